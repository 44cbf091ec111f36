//! The workflow interface: an enum of steps, a serializable state, a table of edges, and one `match` over the steps.

use std::{fmt::Debug, future::Future, hash::Hash as StdHash, time::Duration};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    attempt_context::AttemptContext,
    graph::{self, GraphError, StepInfo},
};
use crate::{
    commands::{AUTO, CommandSpec, HOTFIX},
    store::{GateSpec, RunCompletion, RunTrigger, StoreError},
    types::{Actor, Timestamp},
};

/// Kind of a step, used by the check of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// The step neither drafts, reviews nor publishes model text.
    Work,
    /// A model writes a document.
    Draft,
    /// Another model reviews the draft.
    Review,
    /// A person decides, or the policy requires no decision.
    Gate,
    /// The step waits for people, but not for a decision about a document.
    Pause,
    /// The step publishes the approved document or code.
    Publish,
    /// The step watches the published pull request until people merge or close it.
    Watch,
}

/// A proof that is enough for publishing although a review or a person's approval is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LesserProof {
    /// A model of another family gave the verdict APPROVED, and the policy requires no person's approval.
    Policy,
    /// A person approved without a review. This is allowed only for documents that are published only on the issue.
    Unreviewed,
}

/// A step of a workflow: a plain enum, saved by its serde name.
pub trait WorkflowStep:
    Copy + Eq + StdHash + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    fn info(self) -> StepInfo;

    fn id(self) -> &'static str {
        self.info().id
    }

    fn kind(self) -> StepKind {
        self.info().kind
    }
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition<S> {
    /// Go to a step along an edge of the graph.
    Go(S),
    /// Sleep until an allowed person answers. The same visit then runs again, with the answer in `cx.answer()`. If it
    /// returns `Ask` again, the answer is refused.
    Ask(GateSpec),
    /// Run this visit again at `until`.
    Wait {
        until: Timestamp,
        why: String,
    },
    Done(RunCompletion),
}

/// Reason why a step stopped. The engine looks only at the variant, never at the message.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Neither our code nor the run is at fault. The engine tries again after the duration `after`; until then the run
    /// holds no step slot.
    #[error("later: {why}")]
    Later { why: String, after: Duration },
    /// A person has to fix something. The engine ends the run and posts the text on the thread.
    #[error("{0}")]
    User(String),
    /// Somebody stopped the run on GitHub, and this step was the first to notice. The engine treats this like a
    /// `/stop`.
    #[error("stopped: {why}")]
    Stopped { by: Actor, why: String },
    /// A bug of ours. The engine retries the step, and ends the run after
    /// [`limits::STEP_ATTEMPTS`](crate::limits::STEP_ATTEMPTS) attempts.
    #[error(transparent)]
    Bug(#[from] anyhow::Error),
}

impl StepError {
    pub(super) fn from_store(error: StoreError) -> Self {
        Self::Bug(error.into())
    }
}

/// Reason why a run ended early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunHalt {
    /// A person has to fix something, which the step's message describes.
    User(String),
    Stopped {
        by: Actor,
        why: String,
    },
    /// A bug of ours. `error` is for the server's log, not for the thread.
    Bug {
        attempts: u32,
        error: String,
    },
    /// The run made too many moves without an answer from a person.
    Limit {
        moves: u32,
    },
}

impl RunHalt {
    /// Returns the reason as one sentence that may be shown to anyone.
    pub fn public_reason(&self) -> String {
        match self {
            Self::User(text) => text.clone(),
            Self::Stopped { by, why } if why.is_empty() => format!("stopped by {}", by.login),
            Self::Stopped { by, why } => format!("stopped by {}: {why}", by.login),
            Self::Bug { attempts, .. } => {
                format!(
                    "a step failed {attempts} times because of a bug in Countersign; the server's log has the details"
                )
            }
            Self::Limit { moves } => format!("it took {moves} steps without an answer from a person"),
        }
    }
}

/// A workflow; each one is a file or folder under `workflows`.
pub trait Workflow<T: 'static>: Send + Sync + 'static {
    const NAME: &'static str;
    /// Version of the workflow, incremented when its steps or its state change their meaning. Each run stores the
    /// version with which it started.
    const VERSION: u32;
    type Step: WorkflowStep;
    type State: Serialize + DeserializeOwned + Send + Sync;
    /// Table of edges; a run starts at the first row. The table is checked at boot, drawn in the docs, and enforced at
    /// run time.
    const GRAPH: &'static [(Self::Step, &'static [Self::Step])];
    /// The lesser proofs that are enough to publish, if the policy allows them.
    const PROOFS: &'static [LesserProof] = &[];
    /// Commands that start this workflow.
    const COMMANDS: &'static [CommandSpec];
    /// The workflow that continues with this workflow's result. It is started only if the trigger's command runs all
    /// workflows or belongs to the next workflow.
    const NEXT_WORKFLOW: Option<&'static str> = None;

    /// Returns the maximum number of rounds of the workflow's loops between two answers of a person.
    fn max_iterations() -> u32;

    fn start(&self, trigger: &RunTrigger) -> Self::State;

    /// Converts a checkpoint that an earlier `version` saved and this version cannot read. It is not called for
    /// checkpoints that can be read. Therefore a state that changes its meaning must also change its shape.
    fn upcast(_version: u32, _saved: &SavedCheckpoint) -> Option<SavedCheckpoint> {
        None
    }

    /// Makes one attempt at a step.
    ///
    /// # Errors
    /// A [`StepError`], whose variant decides what the engine does next.
    fn run<'a>(
        &'a self,
        at: Self::Step,
        state: &'a mut Self::State,
        cx: &'a AttemptContext<T>,
    ) -> impl Future<Output = Result<Transition<Self::Step>, StepError>> + Send + 'a;

    /// Reports to people the reason why the run ended at this step. The report is a visit of its own and is retried
    /// like any other step. `Some` means that the run had reached its goal before the halt; such a run ends as done.
    ///
    /// # Errors
    /// A [`StepError`]; in that case the engine retries.
    fn report_halt<'a>(
        &'a self,
        at: Self::Step,
        state: &'a Self::State,
        halt: &'a RunHalt,
        cx: &'a AttemptContext<T>,
    ) -> impl Future<Output = Result<Option<RunCompletion>, StepError>> + Send + 'a;
}

/// A checkpoint in its saved form.
#[derive(Debug, Clone)]
pub struct SavedCheckpoint {
    pub step: String,
    pub state: Vec<u8>,
}

/// Result of a successful attempt, with the new state.
#[derive(Debug, Clone)]
pub struct StepAttemptOutcome {
    /// The transition, with the target step in its serde form.
    pub next: Transition<String>,
    pub state: Vec<u8>,
}

/// Error of an attempt.
#[derive(Debug, thiserror::Error)]
pub enum StepAttemptError {
    /// This version of the workflow cannot read the checkpoint.
    #[error("{0}")]
    Unreadable(String),
    #[error(transparent)]
    Step(#[from] StepError),
}

/// A [`Workflow`] with its types erased. Implemented for every [`Workflow`].
pub trait AnyWorkflow<T: 'static>: Send + Sync {
    fn name(&self) -> &'static str;
    fn version(&self) -> u32;
    fn commands(&self) -> &'static [CommandSpec];
    /// See [`Workflow::NEXT_WORKFLOW`].
    fn next_workflow(&self) -> Option<&'static str>;
    /// Returns all steps, beginning with the first step of a run.
    fn steps(&self) -> Vec<StepInfo>;
    /// Returns all edges, by step ids.
    fn edges(&self) -> Vec<(&'static str, &'static str)>;
    /// Checks that the graph is well formed and that every publish is preceded by a review and a gate.
    ///
    /// # Errors
    /// Returns the first [`GraphError`] found.
    fn check(&self) -> Result<(), GraphError>;
    /// Renders the graph as a Mermaid flowchart.
    fn mermaid(&self) -> String;
    /// Returns the maximum number of moves between two answers of a person.
    fn recursion_limit(&self) -> u32;
    /// Returns the step with this serde form.
    fn step(&self, saved: &str) -> Option<StepInfo>;
    /// Returns the first checkpoint.
    ///
    /// # Errors
    /// [`StepError::Bug`] if the first state has no serde form.
    fn first_checkpoint(&self, trigger: &RunTrigger) -> Result<SavedCheckpoint, StepError>;
    /// Makes one attempt at the saved step.
    ///
    /// # Errors
    /// Returns [`StepAttemptError::Unreadable`] for a checkpoint of another shape, and the step's own errors.
    fn attempt_step<'a>(
        &'a self,
        from: &'a SavedCheckpoint,
        cx: &'a AttemptContext<T>,
    ) -> BoxFuture<'a, Result<StepAttemptOutcome, StepAttemptError>>;
    /// Makes one attempt at reporting the end of a run; see [`Workflow::report_halt`].
    ///
    /// # Errors
    /// Those of [`AnyWorkflow::attempt_step`].
    fn attempt_halt_report<'a>(
        &'a self,
        from: &'a SavedCheckpoint,
        halt: &'a RunHalt,
        cx: &'a AttemptContext<T>,
    ) -> BoxFuture<'a, Result<Option<RunCompletion>, StepAttemptError>>;
}

/// Returns the workflow that continues with this workflow's result, if the trigger asked for it.
pub(super) fn follow_up_workflow<T: Send + Sync + 'static>(
    all: &'static [&'static dyn AnyWorkflow<T>],
    workflow: &str,
    trigger: &RunTrigger,
) -> Option<&'static dyn AnyWorkflow<T>> {
    let of = |name: &str| all.iter().copied().find(|known| known.name() == name);
    let next = of(of(workflow)?.next_workflow()?)?;
    let command = trigger.command.as_str();
    let its_own = || next.commands().iter().any(|known| known.name == command);
    ([AUTO, HOTFIX].contains(&command) || its_own()).then_some(next)
}

impl<T: Send + Sync + 'static, W: Workflow<T>> AnyWorkflow<T> for W {
    fn name(&self) -> &'static str {
        W::NAME
    }

    fn version(&self) -> u32 {
        W::VERSION
    }

    fn commands(&self) -> &'static [CommandSpec] {
        W::COMMANDS
    }

    fn next_workflow(&self) -> Option<&'static str> {
        W::NEXT_WORKFLOW
    }

    fn steps(&self) -> Vec<StepInfo> {
        W::GRAPH.iter().map(|(step, _)| step.info()).collect()
    }

    fn edges(&self) -> Vec<(&'static str, &'static str)> {
        W::GRAPH.iter().flat_map(|(step, next)| next.iter().map(|to| (step.id(), to.id()))).collect()
    }

    fn check(&self) -> Result<(), GraphError> {
        graph::check_graph(W::NAME, W::GRAPH, W::PROOFS)
    }

    fn mermaid(&self) -> String {
        graph::mermaid(W::GRAPH)
    }

    fn recursion_limit(&self) -> u32 {
        graph::recursion_limit(W::GRAPH, W::max_iterations())
    }

    fn step(&self, saved: &str) -> Option<StepInfo> {
        serde_json::from_str::<W::Step>(saved).ok().map(WorkflowStep::info)
    }

    fn first_checkpoint(&self, trigger: &RunTrigger) -> Result<SavedCheckpoint, StepError> {
        let (first, _) = W::GRAPH[0];
        Ok(SavedCheckpoint { step: serialized_step(first)?, state: serialized_state(&self.start(trigger))? })
    }

    fn attempt_step<'a>(
        &'a self,
        from: &'a SavedCheckpoint,
        cx: &'a AttemptContext<T>,
    ) -> BoxFuture<'a, Result<StepAttemptOutcome, StepAttemptError>> {
        Box::pin(async move {
            let (at, mut state) = read_or_upcast::<T, W>(cx.version(), from)?;
            let next = match self.run(at, &mut state, cx).await? {
                Transition::Go(to) => {
                    let edge = W::GRAPH.iter().any(|(step, next)| *step == at && next.contains(&to));
                    if !edge {
                        let error = anyhow::anyhow!("{}: the graph has no edge {at:?} -> {to:?}", W::NAME);
                        return Err(StepError::Bug(error).into());
                    }
                    Transition::Go(serialized_step(to)?)
                }
                Transition::Ask(gate) => Transition::Ask(gate),
                Transition::Wait { until, why } => Transition::Wait { until, why },
                Transition::Done(outcome) => Transition::Done(outcome),
            };
            Ok(StepAttemptOutcome { next, state: serialized_state(&state)? })
        })
    }

    fn attempt_halt_report<'a>(
        &'a self,
        from: &'a SavedCheckpoint,
        halt: &'a RunHalt,
        cx: &'a AttemptContext<T>,
    ) -> BoxFuture<'a, Result<Option<RunCompletion>, StepAttemptError>> {
        Box::pin(async move {
            let (at, state) = read_or_upcast::<T, W>(cx.version(), from)?;
            Ok(self.report_halt(at, &state, halt, cx).await?)
        })
    }
}

fn read_or_upcast<T: 'static, W: Workflow<T>>(
    version: u32,
    from: &SavedCheckpoint,
) -> Result<(W::Step, W::State), StepAttemptError> {
    parse_checkpoint::<T, W>(from).or_else(|unreadable| match W::upcast(version, from) {
        Some(newer) => parse_checkpoint::<T, W>(&newer),
        None => Err(unreadable),
    })
}

fn parse_checkpoint<T: 'static, W: Workflow<T>>(
    from: &SavedCheckpoint,
) -> Result<(W::Step, W::State), StepAttemptError> {
    let unreadable = |what: &str, error: serde_json::Error| {
        StepAttemptError::Unreadable(format!(
            "{} version {} cannot read the saved {what} ({error})",
            W::NAME,
            W::VERSION
        ))
    };
    let step = serde_json::from_str(&from.step).map_err(|error| unreadable("step", error))?;
    let state = serde_json::from_slice(&from.state).map_err(|error| unreadable("state", error))?;
    Ok((step, state))
}

fn serialized_step(step: impl WorkflowStep) -> Result<String, StepError> {
    serde_json::to_string(&step).map_err(|error| StepError::Bug(error.into()))
}

fn serialized_state(state: &impl Serialize) -> Result<Vec<u8>, StepError> {
    serde_json::to_vec(state).map_err(|error| StepError::Bug(error.into()))
}
