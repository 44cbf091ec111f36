//! `lld`: an issue becomes a low-level design that a second model family has tried to break and a person has
//! approved, unless the settings ask nobody about what the review approved.
//!
//! Ten steps; [`Lld::GRAPH`] is the whole of what may follow what. What a step does is the [`stage`]'s, which every
//! reviewed document shares; what a design is stands in [`documents::lld`](crate::documents::lld), and `Design` hands it to
//! the stage. The only way to [`At::Finalize`] is through review and the verdict gate, and what it publishes is bytes that
//! both were about.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::issue;
use crate::{
    codebase::TreeIndex,
    commands::{AUTO, CommandKind, CommandSpec, HOTFIX},
    config::{MOST_ROUNDS, WorkflowTable},
    documents::{Mistake, lld},
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    rounds::{Cx, Desk, Policy},
    stage::{self, About, Asks, Before, Document, Exit, Gate, Input, NamesCheck, Stage, Target, Visit},
    types::{IssueNo, Role},
};

/// The workflow.
pub struct Lld;

/// What its settings are called, and its defaults.
pub(super) const TABLE: WorkflowTable =
    WorkflowTable { looks: true, ..WorkflowTable::of(Lld::NAME, "docs/lld/LLD-{issue}.md") };

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum At {
    Load,
    Analyze,
    Draft,
    Fix,
    Check,
    TestPlan,
    DraftGate,
    Review,
    VerdictGate,
    Finalize,
    Budget,
}

impl Step for At {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the issue", Kind::Work),
            Self::Analyze => ("N0b", "Analyze the codebase", Kind::Work),
            Self::Draft => ("N1", "Draft the design", Kind::Draft),
            Self::Fix => ("NP", "Fix mechanically", Kind::Work),
            Self::Check => ("N1.5", "Validate mechanically", Kind::Work),
            Self::TestPlan => ("N1b", "Validate the test plan", Kind::Work),
            Self::DraftGate => ("N2", "Human gate: draft", Kind::Gate),
            Self::Review => ("N3", "Adversarial review", Kind::Review),
            Self::VerdictGate => ("N4", "Human gate: verdict", Kind::Gate),
            Self::Finalize => ("N5", "Finalize", Kind::Publish),
            Self::Budget => ("NM", "Wait for money", Kind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

impl Workflow<Desk> for Lld {
    const NAME: &'static str = "lld";
    const VERSION: u32 = 1;
    type Step = At;
    type State = Stage;

    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Analyze]),
        (At::Analyze, &[At::Draft]),
        (At::Draft, &[At::Fix, At::Draft, At::Review, At::Budget]),
        (At::Fix, &[At::Check]),
        (At::Check, &[At::TestPlan, At::Draft]),
        (At::TestPlan, &[At::DraftGate, At::Draft]),
        (At::DraftGate, &[At::Review, At::Analyze, At::Check, At::DraftGate]),
        (At::Review, &[At::VerdictGate, At::Draft, At::Review, At::Budget]),
        (At::VerdictGate, &[At::Finalize, At::Analyze, At::Check, At::VerdictGate, At::Review]),
        (At::Finalize, &[At::Check, At::VerdictGate]),
        (At::Budget, &[At::Draft, At::Review]),
    ];

    const PROOFS: &'static [Proof] = &[Proof::Policy];

    const COMMANDS: &'static [CommandSpec] = &[
        CommandSpec {
            name: "lld",
            usage: "/lld",
            about: "draft a low-level design for this issue and have it reviewed",
            role: Role::Triage,
            label: Some("countersign:lld"),
            kind: CommandKind::Starts,
        },
        CommandSpec {
            name: AUTO,
            usage: "/auto",
            about: "design, spec and code one after the other, each behind its own gates",
            role: Role::Write,
            label: Some("countersign:auto"),
            kind: CommandKind::Starts,
        },
        CommandSpec {
            name: HOTFIX,
            usage: "/hotfix REASON",
            about: "the same without people's approval of design and spec, for this one time; that of the code stays",
            role: Role::Maintain,
            label: None,
            kind: CommandKind::Starts,
        },
    ];
    const THEN: Option<&'static str> = Some("spec");

    fn max_iterations() -> u32 {
        // A round that never reaches review goes round as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &Trigger) -> Stage {
        Stage::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut Stage, cx: &'a Cx) -> Result<Next<At>, StepError> {
        let visit = &Visit::begin(s, &Design, at, cx);
        let exit = match at {
            At::Load => stage::load(s, visit).await?,
            At::Analyze => stage::analyze(s, visit).await?,
            At::Draft => stage::draft(s, visit).await?,
            At::Fix => stage::fix(s, visit).await?,
            At::Check => stage::check(s, visit).await?,
            At::TestPlan => stage::coverage(s, visit).await?,
            At::DraftGate | At::VerdictGate => stage::gate(s, visit).await?,
            At::Review => stage::review(s, visit).await?,
            At::Finalize => stage::publish(s, visit).await?,
            At::Budget => stage::budget(s, visit).await?,
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
        stage::halted(s, halt, (&Design, at), cx).await
    }
}

/// Where a step's end leads.
fn edge(at: At, exit: &Exit) -> Option<At> {
    Some(match (at, exit) {
        (At::Load, Exit::Pass) | (_, Exit::Reread) => At::Analyze,
        (At::Analyze, Exit::Pass) | (_, Exit::Redraft | Exit::Resume(Before::Draft)) => At::Draft,
        (At::Draft, Exit::Pass) => At::Fix,
        (At::Fix, Exit::Pass) | (_, Exit::Theirs) => At::Check,
        (At::Check, Exit::Pass) => At::TestPlan,
        (At::TestPlan, Exit::Pass) => At::DraftGate,
        (At::DraftGate, Exit::Pass) | (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => At::Review,
        (At::DraftGate, Exit::AskAnew) => At::DraftGate,
        (At::Review, Exit::Pass | Exit::Undecided) | (_, Exit::AskAnew) => At::VerdictGate,
        (At::VerdictGate, Exit::Pass) => At::Finalize,
        (_, Exit::Money) => At::Budget,
        _ => return None,
    })
}

/// What is a design's own.
struct Design;

impl Document for Design {
    fn about(&self) -> About {
        About {
            workflow: Lld::NAME,
            stage: "lld",
            what: "low-level design",
            commands: Lld::COMMANDS,
            steps: stage::steps(Lld::GRAPH),
            proofs: Lld::PROOFS,
            target: Target::Branch,
            roles: &["architect"],
        }
    }

    fn inputs(&self) -> &'static [Input] {
        issue::LEFT
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<Gate> {
        match step {
            "N2" => Some(Gate { word: "lld", asks: Asks::Draft, on: policy.draft_gate, ways: &[] }),
            "N4" => Some(Gate { word: "lld", asks: Asks::Verdict, on: policy.verdict_gate, ways: &[] }),
            _ => None,
        }
    }

    fn rules(&self) -> String {
        lld::format_rules()
    }

    fn fix(&self, text: &str, issue: IssueNo) -> String {
        lld::fix(text, issue)
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<Mistake> {
        lld::check(text, issue, tree)
    }

    fn names(&self) -> Option<NamesCheck> {
        Some(lld::names)
    }

    fn coverage(&self, text: &str) -> Vec<Mistake> {
        lld::coverage(text)
    }

    fn facts(&self, commit: &str) -> String {
        format!(
            "- All required sections are there, the issue number is right, and every requirement has a scenario.\n\
             - Every path marked Modify or Delete exists at commit {commit}; every Add has a parent.\n\
             - Other paths, names and imports were looked up there; those that no file has are among the warnings. \
             What dependencies and builds make was not judged.\n"
        )
    }

    fn summary(&self, text: &str) -> String {
        lld::summary(text)
    }

    fn requirements(&self, text: &str) -> BTreeMap<String, String> {
        lld::requirements(text)
    }

    fn paths(&self, text: &str) -> Vec<String> {
        lld::parse(text).files.into_iter().map(|row| row.path).collect()
    }

    fn place_exists(&self, text: &str, place: &str, tree: &TreeIndex) -> bool {
        lld::place_exists(text, place, tree)
    }

    fn line_of(&self, text: &str, place: &str) -> Option<usize> {
        lld::line_of(text, place)
    }

    fn unchanged_at(&self, before: &str, now: &str, place: &str) -> bool {
        lld::unchanged_at(before, now, place)
    }
}
