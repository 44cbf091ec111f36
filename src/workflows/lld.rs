//! `lld`: turns an issue into a low-level design. A model of a second family reviews the design, and a person approves
//! it. The settings can instead accept an APPROVED review without a person.
//!
//! [`LldWorkflow::GRAPH`] lists all transitions. The bodies of the steps are in [`stage`], the design format is in
//! [`documents::lld`](crate::documents::lld), and `DesignDocument` connects the two. Only the review and the verdict
//! gate lead to [`LldStep::Finalize`], which publishes exactly the reviewed and approved bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{implement::to_mistakes, issue};
use crate::{
    codebase::TreeIndex,
    commands::{AUTO, CommandKind, CommandSpec, HOTFIX},
    config::{MOST_ROUNDS, WorkflowDefaults},
    documents::{
        DocumentMistake, MistakeSeverity, change, lld,
        spec::{ParsedSpec, TestMappingRow},
    },
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

/// The `lld` workflow.
pub struct LldWorkflow;

/// Names and defaults of the workflow's settings.
pub(super) const TABLE: WorkflowDefaults = WorkflowDefaults {
    looks: true,
    ..WorkflowDefaults::for_document(LldWorkflow::NAME, "docs/lld/LLD-{issue}.md")
};

/// The steps of `lld`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LldStep {
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

impl WorkflowStep for LldStep {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the issue", StepKind::Work),
            Self::Analyze => ("N0b", "Analyze the codebase", StepKind::Work),
            Self::Draft => ("N1", "Draft the design", StepKind::Draft),
            Self::Fix => ("NP", "Fix automatically", StepKind::Work),
            Self::Check => ("N1.5", "Validate the design", StepKind::Work),
            Self::TestPlan => ("N1b", "Validate the test plan", StepKind::Work),
            Self::DraftGate => ("N2", "Human gate: draft", StepKind::Gate),
            Self::Review => ("N3", "Adversarial review", StepKind::Review),
            Self::VerdictGate => ("N4", "Human gate: verdict", StepKind::Gate),
            Self::Finalize => ("N5", "Finalize", StepKind::Publish),
            Self::Budget => ("NM", "Wait for budget", StepKind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

impl Workflow<StepServices> for LldWorkflow {
    const NAME: &'static str = "lld";
    const VERSION: u32 = 1;
    type Step = LldStep;
    type State = StageState;

    const GRAPH: &'static [(LldStep, &'static [LldStep])] = &[
        (LldStep::Load, &[LldStep::Analyze]),
        (LldStep::Analyze, &[LldStep::Draft]),
        (LldStep::Draft, &[LldStep::Fix, LldStep::Draft, LldStep::Review, LldStep::Budget]),
        (LldStep::Fix, &[LldStep::Check]),
        (LldStep::Check, &[LldStep::TestPlan, LldStep::Draft]),
        (LldStep::TestPlan, &[LldStep::DraftGate, LldStep::Draft]),
        (LldStep::DraftGate, &[LldStep::Review, LldStep::Analyze, LldStep::Check, LldStep::DraftGate]),
        (LldStep::Review, &[LldStep::VerdictGate, LldStep::Draft, LldStep::Review, LldStep::Budget]),
        (
            LldStep::VerdictGate,
            &[LldStep::Finalize, LldStep::Analyze, LldStep::Check, LldStep::VerdictGate, LldStep::Review],
        ),
        (LldStep::Finalize, &[LldStep::Check, LldStep::VerdictGate]),
        (LldStep::Budget, &[LldStep::Draft, LldStep::Review]),
    ];

    const PROOFS: &'static [LesserProof] = &[LesserProof::Policy];

    const COMMANDS: &'static [CommandSpec] = &[
        CommandSpec {
            name: "lld",
            usage: "/lld",
            about: "draft a low-level design for this issue and have it reviewed",
            role: Role::Triage,
            label: Some("countersign:lld"),
            kind: CommandKind::Start,
        },
        CommandSpec {
            name: AUTO,
            usage: "/auto",
            about: "run design, spec and code one after the other, each with its own gates",
            role: Role::Write,
            label: Some("countersign:auto"),
            kind: CommandKind::Start,
        },
        CommandSpec {
            name: HOTFIX,
            usage: "/hotfix REASON",
            about: "like `/auto`, but without approval of this design and spec; the code still needs approval",
            role: Role::Maintain,
            label: None,
            kind: CommandKind::Start,
        },
    ];
    const NEXT_WORKFLOW: Option<&'static str> = Some("spec");

    fn max_iterations() -> u32 {
        // A round that never reaches review counts as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &RunTrigger) -> StageState {
        StageState::default()
    }

    async fn run<'a>(
        &'a self,
        at: LldStep,
        s: &'a mut StageState,
        cx: &'a StepContext,
    ) -> Result<Transition<LldStep>, StepError> {
        let mut text = DesignDocument::default();
        if let (LldStep::Draft | LldStep::Check | LldStep::Review, Ok(base)) = (at, s.base()) {
            let design = match s.document() {
                Some(document) => rounds::load_text(cx, &document).await?,
                None => String::new(),
            };
            text.placement = rounds::find_test_placement(cx, base, &text.paths(&design)).await?;
        }
        let visit = &StepVisit::begin(s, &text, at, cx);
        let exit = match at {
            LldStep::Load => stage::load_issue(s, visit).await?,
            LldStep::Analyze => stage::analyze_codebase(s, visit).await?,
            LldStep::Draft => stage::write_draft(s, visit).await?,
            LldStep::Fix => stage::fix_draft(s, visit).await?,
            LldStep::Check => stage::check_draft(s, visit).await?,
            LldStep::TestPlan => stage::check_coverage(s, visit).await?,
            LldStep::DraftGate | LldStep::VerdictGate => stage::run_gate(s, visit).await?,
            LldStep::Review => stage::review_draft(s, visit).await?,
            LldStep::Finalize => stage::publish_document(s, visit).await?,
            LldStep::Budget => stage::wait_for_budget(s, visit).await?,
        };
        exit.into_next(|exit| next_step(at, exit))
    }

    async fn report_halt<'a>(
        &'a self,
        at: LldStep,
        s: &'a StageState,
        halt: &'a RunHalt,
        cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        stage::report_halt(s, halt, (&DesignDocument::default(), at), cx).await
    }
}

fn next_step(at: LldStep, exit: &StepResult) -> Option<LldStep> {
    Some(match (at, exit) {
        (LldStep::Load, StepResult::Pass) | (_, StepResult::Reread) => LldStep::Analyze,
        (LldStep::Analyze, StepResult::Pass)
        | (_, StepResult::Redraft | StepResult::Resume(StageCall::Draft)) => LldStep::Draft,
        (LldStep::Draft, StepResult::Pass) => LldStep::Fix,
        (LldStep::Fix, StepResult::Pass) | (_, StepResult::ForeignVersion) => LldStep::Check,
        (LldStep::Check, StepResult::Pass) => LldStep::TestPlan,
        (LldStep::TestPlan, StepResult::Pass) => LldStep::DraftGate,
        (LldStep::DraftGate, StepResult::Pass)
        | (_, StepResult::Resume(StageCall::Review) | StepResult::ReviewAgain) => LldStep::Review,
        (LldStep::DraftGate, StepResult::ReopenGate) => LldStep::DraftGate,
        (LldStep::Review, StepResult::Pass | StepResult::Undecided) | (_, StepResult::ReopenGate) => {
            LldStep::VerdictGate
        }
        (LldStep::VerdictGate, StepResult::Pass) => LldStep::Finalize,
        (_, StepResult::OutOfBudget) => LldStep::Budget,
        _ => return None,
    })
}

#[derive(Default)]
struct DesignDocument {
    /// Empty in steps that neither draft nor check.
    placement: TestPlacement,
}

/// Returns the tests that a design names, with its files, as a spec would have them.
fn named_tests(text: &str) -> ParsedSpec {
    let view = lld::parse(text);
    let named = view.scenarios.iter().filter_map(lld::TestScenario::named_test);
    let row = |(name, file): (&str, &str)| TestMappingRow {
        name: name.to_owned(),
        file: file.to_owned(),
        ..TestMappingRow::default()
    };
    ParsedSpec { tests: named.map(row).collect(), view, ..ParsedSpec::default() }
}

impl StageDocument for DesignDocument {
    fn info(&self) -> DocumentInfo {
        DocumentInfo {
            workflow: LldWorkflow::NAME,
            stage: "lld",
            what: "low-level design",
            commands: LldWorkflow::COMMANDS,
            steps: stage::step_infos(LldWorkflow::GRAPH),
            proofs: LldWorkflow::PROOFS,
            target: PublicationTarget::Branch,
            roles: &["architect"],
        }
    }

    fn inputs(&self) -> &'static [StageInput] {
        issue::ISSUE_INPUTS
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate> {
        match stage::find_step(LldWorkflow::GRAPH, step)? {
            LldStep::DraftGate => Some(DocumentGate {
                word: "lld",
                question: GateQuestion::Draft,
                is_on: policy.draft_gate,
                options: &[],
            }),
            LldStep::VerdictGate => Some(DocumentGate {
                word: "lld",
                question: GateQuestion::Verdict,
                is_on: policy.verdict_gate,
                options: &[],
            }),
            _ => None,
        }
    }

    fn rules(&self) -> String {
        lld::format_rules() + &self.placement.rules
    }

    fn fix(&self, text: &str, issue: IssueNo) -> String {
        lld::fix(text, issue)
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<DocumentMistake> {
        let (mut mistakes, tests) = (lld::check(text, issue, tree), named_tests(text));
        let changed = tests.view.files.iter().filter(|row| !row.directory);
        let changed = changed.filter_map(|row| Some((row.path.as_str(), row.change?)));
        for mistake in change::unbuildable_files(changed, tree) {
            // The check of the table reports the same path.
            if mistakes.iter().any(|known| known.message == mistake.message) {
                continue;
            }
            // People can build such a design.
            let by_people = mistake.rule == change::FOR_PEOPLE;
            let severity = if by_people { MistakeSeverity::Warning } else { mistake.severity };
            mistakes.push(DocumentMistake { severity, place: "Files Changed".to_owned(), ..mistake });
        }
        let ran = self.placement.project.as_ref();
        let lost = ran.map(|ran| ran.unreachable_tests(&tests)).unwrap_or_default();
        mistakes.extend(to_mistakes("tests.place", "Test Scenarios", lost));
        mistakes
    }

    fn names_check(&self) -> Option<NamesCheck> {
        Some(lld::check_names)
    }

    fn coverage(&self, text: &str) -> Vec<DocumentMistake> {
        lld::check_coverage(text)
    }

    fn facts(&self, commit: &str) -> String {
        format!(
            "- All required sections are there, the issue number is right, and every requirement has a scenario.\n\
             - Every path marked Modify or Delete exists at commit {commit}; every Add has a parent.\n\
             - Other paths, names and imports were looked up there; those that no file has are among the warnings. \
             What dependencies and builds make was not judged.\n"
        )
    }

    fn open_questions(&self, text: &str) -> Vec<String> {
        lld::open_questions(text)
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
