//! `spec`: turns an approved design into an implementation spec, on the same branch and pull request.
//!
//! [`SpecWorkflow::GRAPH`] lists all transitions. The bodies of the steps are in [`stage`], the spec format is in
//! [`documents::spec`](crate::documents::spec). The gate comes before the review. If the settings turn the gate off, an
//! APPROVED review is enough to publish the spec, because a spec contains nothing that is executed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{implement::to_mistakes, issue};
use crate::{
    codebase::TreeIndex,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowDefaults},
    documents::{DocumentMistake, change, lld, spec},
    engine::{
        LesserProof, RunCompletion, RunHalt, RunTrigger, StepError, StepInfo, StepKind, Transition, Workflow,
        WorkflowStep,
    },
    rounds::{self, Policy, StepContext, StepServices},
    runners::TestPlacement,
    stage::{
        self, DocumentGate, DocumentInfo, GateQuestion, NamesCheck, PublicationTarget, StageCall,
        StageDocument, StageInput, StageState, StepResult, StepVisit,
    },
    types::{IssueNo, Role},
};

/// The `spec` workflow.
pub struct SpecWorkflow;

/// Names and defaults of the workflow's settings.
pub(super) const TABLE: WorkflowDefaults = WorkflowDefaults {
    asks_before: true,
    looks: true,
    ..WorkflowDefaults::for_document(SpecWorkflow::NAME, "docs/spec/SPEC-{issue}.md")
};

/// Kind of the artifact that the spec builds on: the approved design.
const DESIGN: &str = "lld";

/// Maximum number of files that a design may change. The spec contains an excerpt of each file, and people have to read
/// all excerpts.
const MOST_FILES: usize = 60;

/// The steps of `spec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpecStep {
    Load,
    Analyze,
    Generate,
    Completeness,
    Gate,
    Review,
    Finalize,
    Budget,
}

impl WorkflowStep for SpecStep {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the design", StepKind::Work),
            Self::Analyze => ("N1", "Analyze the codebase", StepKind::Work),
            Self::Generate => ("N2", "Write the spec", StepKind::Draft),
            Self::Completeness => ("N3", "Check completeness", StepKind::Work),
            Self::Gate => ("N4", "Human gate", StepKind::Gate),
            Self::Review => ("N5", "Adversarial review", StepKind::Review),
            Self::Finalize => ("N6", "Finalize", StepKind::Publish),
            Self::Budget => ("NM", "Wait for budget", StepKind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

impl Workflow<StepServices> for SpecWorkflow {
    const NAME: &'static str = "spec";
    const VERSION: u32 = 1;
    type Step = SpecStep;
    type State = StageState;

    const GRAPH: &'static [(SpecStep, &'static [SpecStep])] = &[
        (SpecStep::Load, &[SpecStep::Analyze]),
        (SpecStep::Analyze, &[SpecStep::Generate]),
        (
            SpecStep::Generate,
            &[SpecStep::Completeness, SpecStep::Generate, SpecStep::Review, SpecStep::Budget],
        ),
        (SpecStep::Completeness, &[SpecStep::Gate, SpecStep::Generate]),
        (SpecStep::Gate, &[SpecStep::Review, SpecStep::Analyze, SpecStep::Completeness, SpecStep::Gate]),
        (
            SpecStep::Review,
            &[SpecStep::Finalize, SpecStep::Generate, SpecStep::Gate, SpecStep::Review, SpecStep::Budget],
        ),
        (SpecStep::Finalize, &[SpecStep::Completeness, SpecStep::Gate]),
        (SpecStep::Budget, &[SpecStep::Generate, SpecStep::Review]),
    ];

    const PROOFS: &'static [LesserProof] = &[LesserProof::Policy];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "spec",
        usage: "/spec",
        about: "write the implementation spec for the approved design and have it reviewed",
        role: Role::Triage,
        label: Some("countersign:spec"),
        kind: CommandKind::Start,
    }];
    const NEXT_WORKFLOW: Option<&'static str> = Some("implement");

    fn max_iterations() -> u32 {
        // A round that never reaches review counts as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &RunTrigger) -> StageState {
        StageState::default()
    }

    async fn run<'a>(
        &'a self,
        at: SpecStep,
        s: &'a mut StageState,
        cx: &'a StepContext,
    ) -> Result<Transition<SpecStep>, StepError> {
        let design = s.background_text(DESIGN, cx).await?;
        let mut text = SpecDocument { design, ..SpecDocument::default() };
        if at == SpecStep::Completeness {
            text.texts = text.read_files(s, cx).await?;
        }
        if let (SpecStep::Generate | SpecStep::Completeness | SpecStep::Review, Ok(base)) = (at, s.base()) {
            let paths = match s.document() {
                Some(document) => text.paths(&rounds::load_text(cx, &document).await?),
                None => text.files_to_change(),
            };
            text.placement = rounds::find_test_placement(cx, base, &paths).await?;
        }
        let v = &StepVisit::begin(s, &text, at, cx);
        // People may approve another design meanwhile, or remove this one.
        if matches!(at, SpecStep::Analyze | SpecStep::Generate | SpecStep::Review | SpecStep::Finalize) {
            stage::require_unchanged_input(s, v, DESIGN).await?;
        }
        let exit = match at {
            SpecStep::Load => {
                stage::load_issue(s, v).await?;
                stage::require_unchanged_input(s, v, DESIGN).await?;
                StepResult::Pass
            }
            SpecStep::Analyze => {
                stage::analyze_codebase(s, v).await?;
                text.require_design_fits(s, cx).await?
            }
            SpecStep::Generate => stage::write_draft(s, v).await?,
            SpecStep::Completeness => {
                stage::fix_draft(s, v).await?;
                stage::check_draft(s, v).await?
            }
            SpecStep::Gate => stage::run_gate(s, v).await?,
            SpecStep::Review => stage::review_draft(s, v).await?,
            SpecStep::Finalize => stage::publish_document(s, v).await?,
            SpecStep::Budget => stage::wait_for_budget(s, v).await?,
        };
        exit.into_next(|exit| next_step(at, exit))
    }

    async fn report_halt<'a>(
        &'a self,
        at: SpecStep,
        s: &'a StageState,
        halt: &'a RunHalt,
        cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        stage::report_halt(s, halt, (&SpecDocument::default(), at), cx).await
    }
}

fn next_step(at: SpecStep, exit: &StepResult) -> Option<SpecStep> {
    Some(match (at, exit) {
        (SpecStep::Load, StepResult::Pass) | (_, StepResult::Reread) => SpecStep::Analyze,
        (SpecStep::Analyze, StepResult::Pass)
        | (_, StepResult::Redraft | StepResult::Resume(StageCall::Draft)) => SpecStep::Generate,
        (SpecStep::Generate, StepResult::Pass) | (_, StepResult::ForeignVersion) => SpecStep::Completeness,
        (SpecStep::Completeness, StepResult::Pass) | (_, StepResult::Undecided | StepResult::ReopenGate) => {
            SpecStep::Gate
        }
        (SpecStep::Gate, StepResult::Pass)
        | (_, StepResult::Resume(StageCall::Review) | StepResult::ReviewAgain) => SpecStep::Review,
        (SpecStep::Review, StepResult::Pass) => SpecStep::Finalize,
        (_, StepResult::OutOfBudget) => SpecStep::Budget,
        _ => return None,
    })
}

/// Returns the reason why no change can touch the files of this design.
pub(super) fn unbuildable_reason(design: &str, tree: &TreeIndex) -> Option<String> {
    let design = lld::parse(design);
    let rows = design.files.iter().filter(|row| !row.directory);
    let files = rows.filter_map(|row| Some((row.path.as_str(), row.change?)));
    change::unbuildable_files(files, tree).into_iter().next().map(|mistake| mistake.message)
}

#[derive(Default)]
struct SpecDocument {
    /// The approved design; empty until it is loaded.
    design: String,
    /// Contents, at the base commit, of the files that the design changes.
    texts: BTreeMap<String, String>,
    /// Empty in steps that neither draft nor check.
    placement: TestPlacement,
}

impl SpecDocument {
    /// Checks that the approved design still fits the code. If it does not, no draft could be right, so the run fails
    /// before a model is called.
    async fn require_design_fits(&self, s: &StageState, cx: &StepContext) -> Result<StepResult, StepError> {
        let files = self.files_to_change().len();
        if files > MOST_FILES {
            return Err(StepError::User(format!(
                "The approved design changes {files} files, but a spec may change at most {MOST_FILES}. Split it into \
                 several issues, each with its own design."
            )));
        }
        let tree = cx.tools().file_tree(cx, s.base()?).await?;
        let mistakes = lld::check(&self.design, s.issue()?.number, &tree);
        let why =
            match mistakes.iter().find(|mistake| mistake.is_error() && mistake.rule.starts_with("files.")) {
                Some(mistake) => format!("no longer fits the code: {}", mistake.message),
                None => match unbuildable_reason(&self.design, &tree) {
                    Some(why) => format!("cannot be built: {why}"),
                    None => return Ok(StepResult::Pass),
                },
            };
        Err(StepError::User(format!(
            "The approved design {why}. Write `/lld` to revise it, then start again."
        )))
    }

    async fn read_files(
        &self,
        s: &StageState,
        cx: &StepContext,
    ) -> Result<BTreeMap<String, String>, StepError> {
        let Some(document) = s.document() else { return Ok(BTreeMap::new()) };
        let text = rounds::load_text(cx, &document).await?;
        let spec = spec::parse(&spec::fix(&text, s.issue()?.number));
        let named = spec.references.into_iter().take(spec::MOST_REFERENCES).map(|reference| reference.path);
        let mut paths = self.files_to_change();
        paths.extend(named);
        rounds::read_shown_files(cx, s.base()?, &paths).await
    }
}

impl StageDocument for SpecDocument {
    fn info(&self) -> DocumentInfo {
        DocumentInfo {
            workflow: SpecWorkflow::NAME,
            stage: "spec",
            what: "implementation spec",
            commands: SpecWorkflow::COMMANDS,
            steps: stage::step_infos(SpecWorkflow::GRAPH),
            proofs: SpecWorkflow::PROOFS,
            target: PublicationTarget::Branch,
            roles: &["architect"],
        }
    }

    fn inputs(&self) -> &'static [StageInput] {
        const DESIGN_FIRST: [StageInput; 4] = [
            StageInput { kind: DESIGN, heading: "The approved design", made_by: Some("/lld") },
            issue::ISSUE_INPUTS[0],
            issue::ISSUE_INPUTS[1],
            issue::ISSUE_INPUTS[2],
        ];
        &DESIGN_FIRST
    }

    fn files_to_change(&self) -> Vec<String> {
        let rows = lld::parse(&self.design).files.into_iter();
        rows.filter(|row| !row.directory).map(|row| row.path).collect()
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate> {
        // For this workflow, `verdict_gate` is on if the gate rules require a person.
        let on = policy.draft_gate || policy.verdict_gate;
        (step == SpecStep::Gate.id()).then_some(DocumentGate {
            word: "spec",
            question: GateQuestion::Beforehand,
            is_on: on,
            options: &[],
        })
    }

    fn rules(&self) -> String {
        spec::format_rules() + &self.placement.rules
    }

    fn fix(&self, text: &str, issue: IssueNo) -> String {
        spec::fix(text, issue)
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<DocumentMistake> {
        let mut mistakes = spec::check(text, issue, tree);
        mistakes.extend(spec::check_completeness(text, &self.design, tree, &self.texts));
        let ran = self.placement.project.as_ref();
        let lost = ran.map(|ran| ran.unreachable_tests(&spec::parse(text))).unwrap_or_default();
        mistakes.extend(to_mistakes("tests.place", "Test Mapping", lost));
        mistakes
    }

    fn names_check(&self) -> Option<NamesCheck> {
        Some(spec::check_names)
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
