//! `spec`: from an approved design to an implementation spec, on the same branch and in the same pull request.
//!
//! Seven steps, and one in which it waits for money; [`Spec::GRAPH`] is the whole of what may follow what. What a step does
//! is the [`stage`]'s; what a spec has to have stands in [`documents::spec`](crate::documents::spec). Its gate stands
//! before the review, and where the settings leave it open an APPROVED publishes the spec: nothing runs because of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::issue;
use crate::{
    codebase::TreeIndex,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowTable},
    documents::{Mistake, lld, spec},
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    rounds::{self, Cx, Desk, Policy},
    stage::{self, About, Asks, Before, Document, Exit, Gate, Input, NamesCheck, Stage, Target, Visit},
    types::{IssueNo, Role},
};

/// The workflow.
pub struct Spec;

/// What its settings are called, and its defaults.
pub(super) const TABLE: WorkflowTable = WorkflowTable {
    asks_before: true,
    looks: true,
    ..WorkflowTable::of(Spec::NAME, "docs/spec/SPEC-{issue}.md")
};

/// What it builds on.
const DESIGN: &str = "lld";

/// Files that a design may change: each has an excerpt in the spec, which people are to read.
const MOST_FILES: usize = 60;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum At {
    Load,
    Analyze,
    Generate,
    Completeness,
    Gate,
    Review,
    Finalize,
    Budget,
}

impl Step for At {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the design", Kind::Work),
            Self::Analyze => ("N1", "Analyze the codebase", Kind::Work),
            Self::Generate => ("N2", "Write the spec", Kind::Draft),
            Self::Completeness => ("N3", "Check completeness", Kind::Work),
            Self::Gate => ("N4", "Human gate", Kind::Gate),
            Self::Review => ("N5", "Adversarial review", Kind::Review),
            Self::Finalize => ("N6", "Finalize", Kind::Publish),
            Self::Budget => ("NM", "Wait for money", Kind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

impl Workflow<Desk> for Spec {
    const NAME: &'static str = "spec";
    const VERSION: u32 = 1;
    type Step = At;
    type State = Stage;

    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Analyze]),
        (At::Analyze, &[At::Generate]),
        (At::Generate, &[At::Completeness, At::Generate, At::Review, At::Budget]),
        (At::Completeness, &[At::Gate, At::Generate]),
        (At::Gate, &[At::Review, At::Analyze, At::Completeness, At::Gate]),
        (At::Review, &[At::Finalize, At::Generate, At::Gate, At::Review, At::Budget]),
        (At::Finalize, &[At::Completeness, At::Gate]),
        (At::Budget, &[At::Generate, At::Review]),
    ];

    const PROOFS: &'static [Proof] = &[Proof::Policy];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "spec",
        usage: "/spec",
        about: "write the implementation spec of the approved design and have it reviewed",
        role: Role::Triage,
        label: Some("countersign:spec"),
        kind: CommandKind::Starts,
    }];
    const THEN: Option<&'static str> = Some("implement");

    fn max_iterations() -> u32 {
        // A round that never reaches review goes round as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &Trigger) -> Stage {
        Stage::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut Stage, cx: &'a Cx) -> Result<Next<At>, StepError> {
        let mut text = Text { design: s.told(DESIGN, cx).await?, texts: BTreeMap::new() };
        if at == At::Completeness {
            text.texts = text.read(s, cx).await?;
        }
        let v = &Visit::begin(s, &text, at, cx);
        // People may approve another design meanwhile, or take this one away.
        if matches!(at, At::Analyze | At::Generate | At::Review | At::Finalize) {
            stage::stands(s, v, DESIGN).await?;
        }
        let exit = match at {
            At::Load => {
                stage::load(s, v).await?;
                stage::stands(s, v, DESIGN).await?;
                Exit::Pass
            }
            At::Analyze => {
                stage::analyze(s, v).await?;
                text.fits(s, cx).await?
            }
            At::Generate => stage::draft(s, v).await?,
            At::Completeness => {
                stage::fix(s, v).await?;
                stage::check(s, v).await?
            }
            At::Gate => stage::gate(s, v).await?,
            At::Review => stage::review(s, v).await?,
            At::Finalize => stage::publish(s, v).await?,
            At::Budget => stage::budget(s, v).await?,
        };
        exit.next(|exit| edge(at, exit))
    }

    async fn halted<'a>(
        &'a self,
        at: At,
        s: &'a Stage,
        halt: &'a Halt,
        cx: &'a Cx,
    ) -> Result<Option<Outcome>, StepError> {
        stage::halted(s, halt, (&Text::default(), at), cx).await
    }
}

/// Where a step's end leads.
fn edge(at: At, exit: &Exit) -> Option<At> {
    Some(match (at, exit) {
        (At::Load, Exit::Pass) | (_, Exit::Reread) => At::Analyze,
        (At::Analyze, Exit::Pass) | (_, Exit::Redraft | Exit::Resume(Before::Draft)) => At::Generate,
        (At::Generate, Exit::Pass) | (_, Exit::Theirs) => At::Completeness,
        (At::Completeness, Exit::Pass) | (_, Exit::Undecided | Exit::AskAnew) => At::Gate,
        (At::Gate, Exit::Pass) | (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => At::Review,
        (At::Review, Exit::Pass) => At::Finalize,
        (_, Exit::Money) => At::Budget,
        _ => return None,
    })
}

/// What is a spec's own.
#[derive(Default)]
struct Text {
    /// The approved design; empty before it was loaded.
    design: String,
    /// Files as they are at the commit.
    texts: BTreeMap<String, String>,
}

impl Text {
    /// Does the design still fit the code? If not, no draft could be right, and none is paid for.
    async fn fits(&self, s: &Stage, cx: &Cx) -> Result<Exit, StepError> {
        let files = self.files_to_change().len();
        if files > MOST_FILES {
            return Err(StepError::User(format!(
                "The approved design changes {files} files, and a spec is of at most {MOST_FILES}. Make several issues of \
                 it, each with a design of its own."
            )));
        }
        let tree = cx.tools().tree(cx, s.base()?).await?;
        let mistakes = lld::check(&self.design, s.issue()?.number, &tree);
        match mistakes.iter().find(|mistake| mistake.is_error() && mistake.rule.starts_with("files.")) {
            Some(mistake) => Err(StepError::User(format!(
                "The approved design does not fit the code any more: {}. Write `/lld` to have it revised, then start anew.",
                mistake.message
            ))),
            None => Ok(Exit::Pass),
        }
    }

    /// The texts of the files that the spec says something of.
    async fn read(&self, s: &Stage, cx: &Cx) -> Result<BTreeMap<String, String>, StepError> {
        let Some(document) = s.document() else { return Ok(BTreeMap::new()) };
        let text = rounds::text_of(cx, &document).await?;
        let spec = spec::parse(&spec::fix(&text, s.issue()?.number));
        let named = spec.references.into_iter().take(spec::MOST_REFERENCES).map(|reference| reference.path);
        let mut paths = self.files_to_change();
        paths.extend(named);
        rounds::files(cx, s.base()?, &paths).await
    }
}

impl Document for Text {
    fn about(&self) -> About {
        About {
            workflow: Spec::NAME,
            stage: "spec",
            what: "implementation spec",
            commands: Spec::COMMANDS,
            steps: stage::steps(Spec::GRAPH),
            proofs: Spec::PROOFS,
            target: Target::Branch,
            roles: &["architect"],
        }
    }

    fn inputs(&self) -> &'static [Input] {
        const DESIGN_FIRST: [Input; 4] = [
            Input { kind: DESIGN, heading: "The approved design", made_by: Some("/lld") },
            issue::LEFT[0],
            issue::LEFT[1],
            issue::LEFT[2],
        ];
        &DESIGN_FIRST
    }

    fn files_to_change(&self) -> Vec<String> {
        let rows = lld::parse(&self.design).files.into_iter();
        rows.filter(|row| !row.directory).map(|row| row.path).collect()
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<Gate> {
        // Of such a workflow the policy says `verdict_gate` where its rules take a person.
        let on = policy.draft_gate || policy.verdict_gate;
        (step == "N4").then_some(Gate { word: "spec", asks: Asks::Beforehand, on, ways: &[] })
    }

    fn rules(&self) -> String {
        spec::format_rules()
    }

    fn fix(&self, text: &str, issue: IssueNo) -> String {
        spec::fix(text, issue)
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<Mistake> {
        let mut mistakes = spec::check(text, issue, tree);
        mistakes.extend(spec::complete(text, &self.design, tree, &self.texts));
        mistakes
    }

    fn names(&self) -> Option<NamesCheck> {
        Some(spec::names)
    }

    fn facts(&self, commit: &str) -> String {
        format!(
            "- It has the files of the approved design and no other, and each says what is to be done there.\n\
             - Every excerpt of a file to modify stands there word for word at commit {commit}; files that models are not \
             shown are among the warnings.\n\
             - Every function has a signature, an input and an output, every type a sample value.\n\
             - Every requirement of the design has a test with a name and a file.\n"
        )
    }

    fn summary(&self, text: &str) -> String {
        spec::summary(text)
    }

    fn requirements(&self, _text: &str) -> BTreeMap<String, String> {
        lld::requirements(&self.design)
    }

    fn paths(&self, text: &str) -> Vec<String> {
        spec::parse(text).view.files.into_iter().map(|row| row.path).collect()
    }

    fn place_exists(&self, text: &str, place: &str, tree: &TreeIndex) -> bool {
        spec::place_exists(text, place, tree)
    }

    fn line_of(&self, text: &str, place: &str) -> Option<usize> {
        spec::line_of(text, place)
    }

    fn unchanged_at(&self, before: &str, now: &str, place: &str) -> bool {
        spec::unchanged_at(before, now, place)
    }
}
