//! Two toy workflows. `pages` publishes a document of several files, which is reviewed before a person approves it.
//! `patch` does the same with code, which is pushed after its approval and watched until it is merged.

use countersign::{
    commands::{CommandKind, CommandSpec},
    engine::{
        LesserProof, RunCompletion, RunHalt, RunTrigger, StepError, StepInfo, StepKind, Transition, Workflow,
        WorkflowStep,
    },
    rounds::{Policy, StepContext, StepServices},
    stage::{
        self, DocumentGate, DocumentInfo, GateQuestion, PublicationTarget, StageCall, StageDocument,
        StageState, StepResult, StepVisit,
    },
    types::Role,
};
use serde::{Deserialize, Serialize};

use super::step;

pub(crate) struct Made<const CODE: bool>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum At {
    Load,
    Analyze,
    Draft,
    Check,
    Review,
    Gate,
    Publish,
    Watch,
    Money,
}

impl WorkflowStep for At {
    fn info(self) -> StepInfo {
        match self {
            Self::Load => step("B0", "Load", StepKind::Work),
            Self::Analyze => step("B1", "Analyze", StepKind::Work),
            Self::Draft => step("B2", "Draft", StepKind::Draft),
            Self::Check => step("B3", "Check", StepKind::Work),
            Self::Review => step("B4", "Review", StepKind::Review),
            Self::Gate => step("B5", "Ask", StepKind::Gate),
            Self::Publish => step("B6", "Publish", StepKind::Publish),
            Self::Watch => step("B7", "Wait for the merge", StepKind::Watch),
            Self::Money => step("BM", "Wait for budget", StepKind::Pause),
        }
    }
}

const PAGES: &[(At, &[At])] = &[
    (At::Load, &[At::Analyze]),
    (At::Analyze, &[At::Draft]),
    (At::Draft, &[At::Check, At::Draft, At::Review, At::Money]),
    (At::Check, &[At::Review, At::Draft]),
    (At::Review, &[At::Gate, At::Draft, At::Review, At::Money]),
    (At::Gate, &[At::Publish, At::Analyze, At::Check, At::Gate, At::Review]),
    (At::Publish, &[At::Check, At::Gate]),
    (At::Money, &[At::Draft, At::Review]),
];

const PATCH: &[(At, &[At])] = &[
    (At::Load, &[At::Analyze]),
    (At::Analyze, &[At::Draft]),
    (At::Draft, &[At::Check, At::Draft, At::Review, At::Watch, At::Money]),
    (At::Check, &[At::Review, At::Draft]),
    (At::Review, &[At::Gate, At::Draft, At::Review, At::Money]),
    (At::Gate, &[At::Publish, At::Analyze, At::Gate, At::Review]),
    (At::Publish, &[At::Gate, At::Watch]),
    (At::Watch, &[At::Analyze]),
    (At::Money, &[At::Draft, At::Review]),
];

const COMMAND: CommandSpec = CommandSpec {
    name: "pages",
    usage: "/pages",
    about: "write some pages",
    role: Role::Triage,
    label: Some("countersign:pages"),
    kind: CommandKind::Start,
};

impl<const CODE: bool> Workflow<StepServices> for Made<CODE> {
    const NAME: &'static str = if CODE { "patch" } else { "pages" };
    const VERSION: u32 = 1;
    type Step = At;
    type State = StageState;
    const GRAPH: &'static [(At, &'static [At])] = if CODE { PATCH } else { PAGES };
    const PROOFS: &'static [LesserProof] = &[LesserProof::Policy];
    const COMMANDS: &'static [CommandSpec] = &[if CODE {
        CommandSpec { name: "patch", usage: "/patch", label: Some("countersign:patch"), ..COMMAND }
    } else {
        COMMAND
    }];

    fn max_iterations() -> u32 {
        10
    }

    fn start(&self, _trigger: &RunTrigger) -> StageState {
        StageState::default()
    }

    async fn run<'a>(
        &'a self,
        at: At,
        s: &'a mut StageState,
        cx: &'a StepContext,
    ) -> Result<Transition<At>, StepError> {
        let v = &StepVisit::begin(s, &Text::<CODE>, at, cx);
        let exit = match at {
            At::Load => stage::load_issue(s, v).await?,
            At::Analyze => stage::analyze_codebase(s, v).await?,
            At::Draft => stage::write_draft(s, v).await?,
            At::Check => stage::check_draft(s, v).await?,
            At::Review => stage::review_draft(s, v).await?,
            At::Gate => stage::run_gate(s, v).await?,
            At::Publish => stage::publish_document(s, v).await?,
            At::Watch => stage::watch_merge(s, v).await?,
            At::Money => stage::wait_for_budget(s, v).await?,
        };
        exit.into_next(|exit| match (at, exit) {
            (At::Load, StepResult::Pass) | (_, StepResult::Reread) => Some(At::Analyze),
            (At::Analyze, StepResult::Pass)
            | (_, StepResult::Redraft | StepResult::Resume(StageCall::Draft)) => Some(At::Draft),
            (At::Draft, StepResult::Pass) | (_, StepResult::ForeignVersion) => Some(At::Check),
            (At::Check, StepResult::Pass)
            | (_, StepResult::Resume(StageCall::Review) | StepResult::ReviewAgain) => Some(At::Review),
            (At::Review, StepResult::Pass | StepResult::Undecided) | (_, StepResult::ReopenGate) => {
                Some(At::Gate)
            }
            (At::Gate, StepResult::Pass) => Some(At::Publish),
            (At::Publish, StepResult::Pass) | (At::Draft, StepResult::KeepPushed) => Some(At::Watch),
            (_, StepResult::OutOfBudget) => Some(At::Money),
            _ => None,
        })
    }

    async fn report_halt<'a>(
        &'a self,
        at: At,
        s: &'a StageState,
        halt: &'a RunHalt,
        cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        stage::report_halt(s, halt, (&Text::<CODE>, at), cx).await
    }
}

struct Text<const CODE: bool>;

impl<const CODE: bool> StageDocument for Text<CODE> {
    fn info(&self) -> DocumentInfo {
        DocumentInfo {
            workflow: Made::<CODE>::NAME,
            stage: Made::<CODE>::NAME,
            what: Made::<CODE>::NAME,
            commands: Made::<CODE>::COMMANDS,
            steps: stage::step_infos(Made::<CODE>::GRAPH),
            proofs: Made::<CODE>::PROOFS,
            target: if CODE { PublicationTarget::Code } else { PublicationTarget::Branch },
            roles: &["architect"],
        }
    }
    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate> {
        let gate = DocumentGate {
            word: Made::<CODE>::NAME,
            question: GateQuestion::Verdict,
            is_on: policy.verdict_gate,
            options: &[],
        };
        (step == "B5").then_some(gate)
    }
    fn rules(&self) -> String {
        "A text.".to_owned()
    }
    fn summary(&self, text: &str) -> String {
        text.chars().take(200).collect()
    }
    fn files(&self, text: &str) -> Result<Vec<(String, Option<String>)>, StepError> {
        let parts = text.split("\n## ").skip(1).take(2).enumerate();
        Ok(parts.map(|(n, part)| (format!("docs/pages/{}.md", n + 1), Some(format!("# {part}\n")))).collect())
    }
}
