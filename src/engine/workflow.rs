//! What a workflow is: steps, a serde state, a table of edges and one `match`.

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

/// What a step is for; the graph check reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepKind {
    /// Anything that neither makes, judges nor ships model text.
    Work,
    /// A model writes.
    Draft,
    /// Another model judges.
    Review,
    /// A person decides, or the policy says that none is needed here.
    Gate,
    /// People are asked for something that is no decision about a document.
    Pause,
    /// What was decided leaves the house.
    Publish,
    /// What left the house is watched, until people are done with it.
    Watch,
}

/// What a workflow's publishing takes besides a review and then a person's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LesserProof {
    /// APPROVED by another family, where the policy asks nobody.
    Policy,
    /// A person's approval of what nobody reviewed: only for what is published on the issue alone.
    Unreviewed,
}

/// A place in a workflow: a plain enum, saved by its serde name.
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

/// What a step wants next.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition<S> {
    /// On along an edge of the graph.
    Go(S),
    /// Sleep until someone who may answers; the same visit then runs again with `cx.answer()`.
    /// Asking again refuses the answer it was given.
    Ask(GateSpec),
    /// Run this visit again then.
    Wait {
        until: Timestamp,
        why: String,
    },
    Done(RunCompletion),
}

/// Why a step stopped. The variant decides what the engine does, never the message.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// Nothing is wrong with us or the run; try again after a while. Holds no worker.
    #[error("later: {why}")]
    Later { why: String, after: Duration },
    /// A person can mend it; said on the thread, and the run ends.
    #[error("{0}")]
    User(String),
    /// Somebody ended it on GitHub and the step is the first to notice; as if they had said so to us.
    #[error("stopped: {why}")]
    Stopped { by: Actor, why: String },
    /// Our fault; tried again, and after [`limits::STEP_ATTEMPTS`](crate::limits::STEP_ATTEMPTS)
    /// the run ends and says so.
    #[error(transparent)]
    Bug(#[from] anyhow::Error),
}

impl StepError {
    pub(super) fn from_store(error: StoreError) -> Self {
        Self::Bug(error.into())
    }
}

/// Why a run ends without having reached its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunHalt {
    /// What a person has to mend, in the step's words.
    User(String),
    Stopped {
        by: Actor,
        why: String,
    },
    /// `error` is for the server's log, not for the thread.
    Bug {
        attempts: u32,
        error: String,
    },
    /// So many moves without a person having spoken.
    Limit {
        moves: u32,
    },
}

impl RunHalt {
    /// One sentence that may be shown to anyone.
    pub fn public_reason(&self) -> String {
        match self {
            Self::User(text) => text.clone(),
            Self::Stopped { by, why } if why.is_empty() => format!("stopped by {}", by.login),
            Self::Stopped { by, why } => format!("stopped by {}: {why}", by.login),
            Self::Bug { attempts, .. } => {
                format!(
                    "a step failed {attempts} times by our own fault; the details are in the server's log"
                )
            }
            Self::Limit { moves } => format!("{moves} steps were taken without a person having spoken"),
        }
    }
}

/// One workflow = one file that implements this.
pub trait Workflow<T: 'static>: Send + Sync + 'static {
    const NAME: &'static str;
    /// Grows when steps or state change their meaning; pinned in each run at its start.
    const VERSION: u32;
    type Step: WorkflowStep;
    type State: Serialize + DeserializeOwned + Send + Sync;
    /// The first row is where a run starts. Checked at boot, drawn in the docs, obeyed at run time.
    const GRAPH: &'static [(Self::Step, &'static [Self::Step])];
    /// The lesser proofs that its publishing takes, where the policy allows them.
    const PROOFS: &'static [LesserProof] = &[];
    /// What people may type to start it.
    const COMMANDS: &'static [CommandSpec];
    /// The workflow that goes on from what it made, where people asked for all of them at once, or for that one.
    const NEXT_WORKFLOW: Option<&'static str> = None;

    /// How often its loops may go round between two words of a person.
    fn max_iterations() -> u32;

    fn start(&self, trigger: &RunTrigger) -> Self::State;

    /// What this version makes of a checkpoint it cannot read as it is, if that is one of an earlier `version`
    /// whose steps or state had another shape. Not asked about what can be read: a state that changes its
    /// meaning must change its shape.
    fn upcast(_version: u32, _saved: &SavedCheckpoint) -> Option<SavedCheckpoint> {
        None
    }

    /// One attempt at a step.
    ///
    /// # Errors
    /// A [`StepError`], whose variant decides what comes next.
    fn run<'a>(
        &'a self,
        at: Self::Step,
        state: &'a mut Self::State,
        cx: &'a AttemptContext<T>,
    ) -> impl Future<Output = Result<Transition<Self::Step>, StepError>> + Send + 'a;

    /// Tell people why the run ended here; a visit of its own, retried like any other step. An outcome says that what
    /// the run is for had already happened when it was to end, and that it ends as done.
    ///
    /// # Errors
    /// A [`StepError`]: it is tried again then.
    fn report_halt<'a>(
        &'a self,
        at: Self::Step,
        state: &'a Self::State,
        halt: &'a RunHalt,
        cx: &'a AttemptContext<T>,
    ) -> impl Future<Output = Result<Option<RunCompletion>, StepError>> + Send + 'a;
}

/// A checkpoint as text and bytes.
#[derive(Debug, Clone)]
pub struct SavedCheckpoint {
    pub step: String,
    pub state: Vec<u8>,
}

/// What an attempt came to, with the state it left.
#[derive(Debug, Clone)]
pub struct StepAttemptOutcome {
    /// The serde form of the step to go to, where the step wants to go.
    pub next: Transition<String>,
    pub state: Vec<u8>,
}

/// Why an attempt came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum StepAttemptError {
    /// The checkpoint is not one this version of the workflow knows.
    #[error("{0}")]
    Unreadable(String),
    #[error(transparent)]
    Step(#[from] StepError),
}

/// A workflow without its types, so that the engine names none. Implemented for every [`Workflow`].
pub trait AnyWorkflow<T: 'static>: Send + Sync {
    fn name(&self) -> &'static str;
    fn version(&self) -> u32;
    fn commands(&self) -> &'static [CommandSpec];
    /// See [`Workflow::NEXT_WORKFLOW`].
    fn next_workflow(&self) -> Option<&'static str>;
    /// Every step, the first one first.
    fn steps(&self) -> Vec<StepInfo>;
    /// What may follow what, by the steps' ids.
    fn edges(&self) -> Vec<(&'static str, &'static str)>;
    /// Is the graph whole, and does review and gate stand before all that is published?
    ///
    /// # Errors
    /// The first [`GraphError`] found.
    fn check(&self) -> Result<(), GraphError>;
    /// The graph as a Mermaid flowchart.
    fn mermaid(&self) -> String;
    /// Moves between two words of a person.
    fn recursion_limit(&self) -> u32;
    /// The step saved under this serde form.
    fn step(&self, saved: &str) -> Option<StepInfo>;
    /// The first checkpoint.
    ///
    /// # Errors
    /// [`StepError::Bug`] where the first state has no serde form.
    fn first_checkpoint(&self, trigger: &RunTrigger) -> Result<SavedCheckpoint, StepError>;
    /// One attempt at the saved step.
    ///
    /// # Errors
    /// [`StepAttemptError::Unreadable`] for a checkpoint of another shape; the step's own.
    fn attempt_step<'a>(
        &'a self,
        from: &'a SavedCheckpoint,
        cx: &'a AttemptContext<T>,
    ) -> BoxFuture<'a, Result<StepAttemptOutcome, StepAttemptError>>;
    /// One attempt at telling people that it ended there; see [`Workflow::report_halt`].
    ///
    /// # Errors
    /// As [`AnyWorkflow::attempt_step`].
    fn attempt_halt_report<'a>(
        &'a self,
        from: &'a SavedCheckpoint,
        halt: &'a RunHalt,
        cx: &'a AttemptContext<T>,
    ) -> BoxFuture<'a, Result<Option<RunCompletion>, StepAttemptError>>;
}

/// What goes on from what a workflow made, if its people asked for that.
pub(super) fn follow_up_workflow<T: Send + Sync + 'static>(
    all: &'static [&'static dyn AnyWorkflow<T>],
    workflow: &str,
    trigger: &RunTrigger,
) -> Option<&'static dyn AnyWorkflow<T>> {
    let of = |name: &str| all.iter().copied().find(|known| known.name() == name);
    let next = of(of(workflow)?.next_workflow()?)?;
    let asked = trigger.command.as_str();
    let its_own = || next.commands().iter().any(|command| command.name == asked);
    ([AUTO, HOTFIX].contains(&asked) || its_own()).then_some(next)
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
                        let error =
                            anyhow::anyhow!("{}: there is no edge {at:?} -> {to:?} in its graph", W::NAME);
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
