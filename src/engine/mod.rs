//! The engine walks runs along their graphs, saves each step, journals each effect and keeps gates. It depends on no
//! workflow and no tool: `T` is the type of the tools that steps use.
//!
//! A run is a trail of *visits*. A visit takes one step. It may need several attempts, for example after a crash, after
//! `Later`, or after an answer. Within a visit, a later attempt reads back the values of [`AttemptContext::once`] and
//! does not repeat the work. A transition to another step starts the next visit. A run that cannot continue is
//! *halted*: a separate visit reports the halt to people. Only the engine moves a run. Other modules call the engine
//! through [`EnginePort`].

mod attempt_context;
mod background_jobs;
mod countersignature;
mod graph;
mod port;
mod port_requests;
mod scheduler;
mod telemetry;
mod workflow;

pub use self::{
    attempt_context::{AttemptContext, EffectAttempt, RunInfo},
    countersignature::{Countersignature, CountersignatureError},
    graph::{GraphError, StepInfo},
    port::{
        CancelRunsRequest, EngineError, EnginePort, GateAnswerOutcome, GateAnswerRequest, RetryRunRequest,
        RunView, RunViewStatus, StartRunRequest,
    },
    scheduler::Engine,
    telemetry::{FinishedVisit, RunEndsCounter, RunSecondsCounter, RunTelemetry},
    workflow::{
        AnyWorkflow, LesserProof, RunHalt, SavedCheckpoint, StepAttemptError, StepAttemptOutcome, StepError,
        StepKind, Transition, Workflow, WorkflowStep,
    },
};
pub use crate::store::{
    ActivePause, AllowedResponders, AnswerReceipt, AnswerRow, ApprovalKind, ApprovalRow, Approvers,
    ArtifactRow, CallRow, CallStatus, CommitRow, FindingRow, GateAnswer, GateRow, GateSpec, GitHubCallCount,
    GitHubCallCounter, IneligibleApprover, LedgerRecord, OmittedSegment, PauseScope, RaiseRow, RemarkKind,
    RetryDecision, RouteRow, RoutedRequest, RunCompletion, RunFilter, RunLedger, RunRemark, RunTrigger,
    SectionRow, StartDecision, TextKind, TextRow, VerdictRow,
};
