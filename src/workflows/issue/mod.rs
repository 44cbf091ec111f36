//! `issue`: turns a rough idea into an issue that can be implemented. A model of a second family reviews the issue, and
//! a person accepts it.
//!
//! [`IssueWorkflow::GRAPH`] lists all transitions. The bodies of the steps are in [`stage`], the issue format is in
//! [`documents::issue`](crate::documents::issue), and the checks before the first paid call are in `preflight`. If the
//! settings turn the review off, a person's approval of the draft is enough to file the issue unreviewed.

mod preflight;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    codebase::TreeIndex,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowDefaults},
    documents::{DocumentMistake, issue},
    engine::{
        LesserProof, RunCompletion, RunHalt, RunTrigger, StepError, StepInfo, StepKind, Transition, Workflow,
        WorkflowStep,
    },
    publication::{self, FiledIssue, IssueFiling},
    rounds::{Policy, StepContext, StepServices},
    stage::{
        self, AcceptedDocument, DocumentGate, DocumentInfo, FiledDocument, FilingOutcome, GateQuestion,
        PublicationTarget, StageCall, StageDocument, StageInput, StageState, StepResult, StepVisit,
    },
    types::{APPROVAL_OPTIONS, IN_PLACE, IssueNo, Role},
};

/// The `issue` workflow.
pub struct IssueWorkflow;

/// Names of the workflow's settings, and the file name of its drafts.
pub(super) const TABLE: WorkflowDefaults = WorkflowDefaults {
    files_issue: true,
    ..WorkflowDefaults::for_document(IssueWorkflow::NAME, "issue-{issue}.md")
};

/// Artifacts of an `issue` run that later stages use as input.
pub(super) const ISSUE_INPUTS: &[StageInput] = &[
    StageInput {
        kind: "brief",
        heading: "The issue as it was opened, before it was worded anew",
        made_by: None,
    },
    StageInput { kind: preflight::RUBRIC, heading: preflight::RUBRIC_HEADING, made_by: None },
    StageInput {
        kind: "answers",
        heading: "What was asked about the issue, and what people answered",
        made_by: None,
    },
];

/// The steps of `issue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IssueStep {
    Load,
    Preflight,
    Draft,
    DraftGate,
    Review,
    VerdictGate,
    File,
    Questions,
    Budget,
}

impl WorkflowStep for IssueStep {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the brief", StepKind::Work),
            Self::Preflight => ("N1", "Preflight", StepKind::Work),
            Self::Draft => ("N2", "Draft the issue", StepKind::Draft),
            Self::DraftGate => ("N3", "Human gate: draft", StepKind::Gate),
            Self::Review => ("N4", "Adversarial review", StepKind::Review),
            Self::VerdictGate => ("N5", "Human gate: verdict", StepKind::Gate),
            Self::File => ("N6", "File", StepKind::Publish),
            Self::Questions => ("NQ", "Wait for answers", StepKind::Pause),
            Self::Budget => ("NM", "Wait for budget", StepKind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

impl Workflow<StepServices> for IssueWorkflow {
    const NAME: &'static str = "issue";
    const VERSION: u32 = 1;
    type Step = IssueStep;
    type State = StageState;

    const GRAPH: &'static [(IssueStep, &'static [IssueStep])] = &[
        (IssueStep::Load, &[IssueStep::Preflight]),
        (IssueStep::Preflight, &[IssueStep::Draft, IssueStep::Questions, IssueStep::Budget]),
        (IssueStep::Draft, &[IssueStep::DraftGate, IssueStep::Draft, IssueStep::Review, IssueStep::Budget]),
        (
            IssueStep::DraftGate,
            &[IssueStep::Review, IssueStep::File, IssueStep::Preflight, IssueStep::DraftGate],
        ),
        (
            IssueStep::Review,
            &[IssueStep::VerdictGate, IssueStep::Draft, IssueStep::Review, IssueStep::Budget],
        ),
        (
            IssueStep::VerdictGate,
            &[IssueStep::File, IssueStep::Preflight, IssueStep::VerdictGate, IssueStep::Review],
        ),
        (IssueStep::File, &[IssueStep::DraftGate, IssueStep::VerdictGate]),
        (IssueStep::Questions, &[IssueStep::Draft]),
        (IssueStep::Budget, &[IssueStep::Preflight, IssueStep::Draft, IssueStep::Review]),
    ];

    const PROOFS: &'static [LesserProof] = &[LesserProof::Unreviewed];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "issue",
        usage: "/issue",
        about: "turn this rough issue into a structured one and have it reviewed",
        role: Role::Triage,
        label: Some("countersign:issue"),
        kind: CommandKind::Start,
    }];

    fn max_iterations() -> u32 {
        // A round that never reaches review counts as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &RunTrigger) -> StageState {
        StageState::default()
    }

    async fn run<'a>(
        &'a self,
        at: IssueStep,
        s: &'a mut StageState,
        cx: &'a StepContext,
    ) -> Result<Transition<IssueStep>, StepError> {
        let text = IssueDocument::from_stage(s);
        let v = &StepVisit::begin(s, &text, at, cx);
        let exit = match at {
            IssueStep::Load => stage::load_issue(s, v).await?,
            IssueStep::Preflight => preflight::run_preflight(s, v).await?,
            IssueStep::Draft => Box::pin(write_draft(s, v)).await?,
            IssueStep::DraftGate | IssueStep::VerdictGate => stage::run_gate(s, v).await?,
            IssueStep::Review => stage::review_draft(s, v).await?,
            IssueStep::File => stage::publish_document(s, v).await?,
            IssueStep::Questions => stage::ask_questions(s, v).await?,
            IssueStep::Budget => stage::wait_for_budget(s, v).await?,
        };
        let reviewed = s.policy().is_ok_and(has_review);
        exit.into_next(|exit| next_step(at, exit, reviewed))
    }

    async fn report_halt<'a>(
        &'a self,
        at: IssueStep,
        s: &'a StageState,
        halt: &'a RunHalt,
        cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        stage::report_halt(s, halt, (&IssueDocument::from_stage(s), at), cx).await
    }
}

/// Calls the model for a draft, then repairs and checks the draft's format. A format mistake sends the draft back at
/// once.
async fn write_draft(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    match stage::write_draft(s, v).await? {
        StepResult::Pass => {
            stage::fix_draft(s, v).await?;
            stage::check_draft(s, v).await
        }
        other => Ok(other),
    }
}

/// Maps the result of a step to the next step. If `reviewed` is false, an issue is filed right after the draft gate.
fn next_step(at: IssueStep, exit: &StepResult, reviewed: bool) -> Option<IssueStep> {
    let asks = if reviewed { IssueStep::VerdictGate } else { IssueStep::DraftGate };
    Some(match (at, exit) {
        (IssueStep::Load, StepResult::Pass)
        | (_, StepResult::Reread | StepResult::Resume(StageCall::Questions)) => IssueStep::Preflight,
        (IssueStep::Preflight, StepResult::Unclear) => IssueStep::Questions,
        (IssueStep::Preflight | IssueStep::Questions, StepResult::Pass)
        | (_, StepResult::Redraft | StepResult::Resume(StageCall::Draft)) => IssueStep::Draft,
        (IssueStep::Draft, StepResult::Pass) => IssueStep::DraftGate,
        (IssueStep::DraftGate, StepResult::Pass) if reviewed => IssueStep::Review,
        (_, StepResult::Resume(StageCall::Review) | StepResult::ReviewAgain) => IssueStep::Review,
        (IssueStep::Review, StepResult::Pass | StepResult::Undecided) => IssueStep::VerdictGate,
        (IssueStep::DraftGate | IssueStep::VerdictGate, StepResult::Pass) => IssueStep::File,
        (IssueStep::DraftGate, StepResult::ReopenGate) => IssueStep::DraftGate,
        (_, StepResult::ReopenGate) => asks,
        (_, StepResult::OutOfBudget) => IssueStep::Budget,
        _ => return None,
    })
}

/// Returns whether the settings require a review of issues.
fn has_review(policy: &Policy) -> bool {
    policy.filing.as_ref().is_none_or(|filing| filing.review)
}

struct IssueDocument {
    /// Labels that the settings allow for filed issues.
    labels: Vec<String>,
}

impl IssueDocument {
    fn from_stage(s: &StageState) -> Self {
        let filing = s.policy().ok().and_then(|policy| policy.filing.as_ref());
        Self { labels: filing.map(|filing| filing.labels.clone()).unwrap_or_default() }
    }

    async fn file_document(
        &self,
        accepted: AcceptedDocument<'_>,
        cx: &StepContext,
    ) -> Result<FilingOutcome, StepError> {
        let parsed = issue::parse(accepted.text);
        let AcceptedDocument { text, signed, issue, provenance, open } = accepted;
        let allowed = |label: &String| self.labels.contains(label);
        // The option named by the person: in `/approve in-place`, or with the reason of `/override`.
        let way = signed.approval().answer.as_ref().and_then(|answer| answer.way.as_deref());
        let filing = IssueFiling {
            title: &parsed.title,
            text: &text[parsed.body.clone()],
            labels: parsed.labels.iter().filter(|label| allowed(label)).cloned().collect(),
            issue,
            in_place: way == Some(IN_PLACE),
            provenance,
            open,
        };
        let at = publication::file_issue(cx, filing).await?;
        Ok(at.map_or(FilingOutcome::IssueEdited, |at| FilingOutcome::Issue(filed_document(cx, at))))
    }
}

fn filed_document(cx: &StepContext, at: FiledIssue) -> FiledDocument {
    let summary = match at.issue == cx.run().trigger.issue {
        true => format!("issue #{} now has the accepted text", at.issue),
        false => format!("filed as issue #{}", at.issue),
    };
    FiledDocument { issue: at.issue, outcome: RunCompletion { summary, url: Some(at.url) } }
}

impl StageDocument for IssueDocument {
    fn info(&self) -> DocumentInfo {
        DocumentInfo {
            workflow: IssueWorkflow::NAME,
            stage: "issue",
            what: "issue",
            commands: IssueWorkflow::COMMANDS,
            steps: stage::step_infos(IssueWorkflow::GRAPH),
            proofs: IssueWorkflow::PROOFS,
            target: PublicationTarget::Issue,
            roles: &["ingestor"],
        }
    }

    fn first_shown_step(&self) -> Option<&'static str> {
        Some(IssueStep::Preflight.id())
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate> {
        let word = "issue";
        match stage::find_step(IssueWorkflow::GRAPH, step)? {
            IssueStep::DraftGate if has_review(policy) => Some(DocumentGate {
                word,
                question: GateQuestion::Draft,
                is_on: policy.draft_gate,
                options: &[],
            }),
            IssueStep::DraftGate => Some(DocumentGate {
                word,
                question: GateQuestion::Unreviewed,
                is_on: true,
                options: APPROVAL_OPTIONS,
            }),
            IssueStep::VerdictGate => Some(DocumentGate {
                word,
                question: GateQuestion::Verdict,
                is_on: true,
                options: APPROVAL_OPTIONS,
            }),
            _ => None,
        }
    }

    fn rules(&self) -> String {
        issue::format_rules(&self.labels)
    }

    fn fix(&self, text: &str, number: IssueNo) -> String {
        issue::fix(text, number)
    }

    fn check(&self, text: &str, _number: IssueNo, tree: &TreeIndex) -> Vec<DocumentMistake> {
        issue::check(text, &self.labels, tree)
    }

    fn facts(&self, commit: &str) -> String {
        format!(
            "- All sections are there, and every criterion can be answered with yes or no.\n\
             - Every path it lists exists at commit {commit} or is marked as new.\n"
        )
    }

    fn summary(&self, text: &str) -> String {
        issue::summary(text)
    }

    fn paths(&self, text: &str) -> Vec<String> {
        issue::parse(text).files.into_iter().map(|file| file.path).collect()
    }

    fn place_exists(&self, text: &str, place: &str, tree: &TreeIndex) -> bool {
        issue::place_exists(text, place, tree)
    }

    fn unchanged_at(&self, before: &str, now: &str, place: &str) -> bool {
        issue::unchanged_at(before, now, place)
    }

    fn file_issue<'a>(
        &'a self,
        accepted: AcceptedDocument<'a>,
        cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<FilingOutcome, StepError>> {
        Box::pin(self.file_document(accepted, cx))
    }

    fn find_filed_document<'a>(
        &'a self,
        cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<Option<FiledDocument>, StepError>> {
        Box::pin(async { Ok(publication::find_filed_issue(cx).await?.map(|at| filed_document(cx, at))) })
    }
}
