//! The engine: it walks runs along their graphs, saves each step, journals each effect, and keeps
//! gates. It names no workflow and no tool: `T` is whatever a step of this house may use.
//!
//! A run is a trail of *visits*. A visit takes one step, perhaps in several attempts: after a crash,
//! after `Later`, after an answer. Within a visit, what [`Cx::once`] reached is read back and never
//! done again. Moving on begins the next visit. A run that cannot go on is *halted*, on a visit of
//! its own that tells people. Nothing here knows what a step does; nothing but the engine moves a
//! run. Others speak to it through [`Port`].

mod countersigned;
mod cx;
mod graph;
mod jobs;
mod port;
mod requests;
mod scheduler;
mod watched;
mod workflow;

pub use self::{
    countersigned::{Countersigned, Missing},
    cx::{Cx, Entry, RunInfo},
    graph::{GraphError, StepInfo},
    port::{
        APPROVE, Cancel, EngineError, OVERRIDE, Port, RETRY, REVISE, Retry, RunView, Signal, Signalled,
        Start, Status,
    },
    scheduler::Engine,
    watched::{Ends, LeftVisit, Spent, Watched},
    workflow::{AnyWorkflow, Attempt, Halt, Kind, Moved, Next, Proof, Saved, Step, StepError, Workflow},
};
pub use crate::store::{
    Answer, AnswerRow, ApprovalKind, ApprovalRow, Approvers, ArtifactRow, Booked, CallRow, CallStatus, Calls,
    CommitRow, Cut, Filter, FindingRow, GateRow, GateSpec, Ledger, NotTheirs, Opened, Outcome, Pause,
    PauseScope, RaiseRow, Record, Remark, Request, Rerun, RouteRow, SectionRow, Tally, TextKind, TextRow,
    Trigger, VerdictRow, Who,
};
