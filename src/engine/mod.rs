//! The engine: it walks runs along their graphs, saves each step, journals each effect, and keeps
//! gates. It names no workflow and no tool: `T` is whatever a step of this house may use.
//!
//! A run is a trail of *visits*. A visit takes one step, perhaps in several attempts: after a crash,
//! after `Later`, after an answer. Within a visit, what [`AttemptContext::once`] reached is read back and never
//! done again. Moving on begins the next visit. A run that cannot go on is *halted*, on a visit of
//! its own that tells people. Nothing here knows what a step does; nothing but the engine moves a
//! run. Others speak to it through [`EnginePort`].

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
