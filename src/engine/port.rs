//! The engine's interface for other modules. Only the engine touches runs, trails and journals.

use std::{collections::BTreeSet, fmt};

use futures_util::future::BoxFuture;

use super::{
    graph::{GraphError, StepInfo},
    workflow::{AnyWorkflow, StepKind},
};
use crate::{
    limits,
    store::{
        ActivePause, AllowedResponders, AnswerReceipt, GateAnswer, GateRow, GitHubCallCount,
        IneligibleApprover, PauseScope, RetryDecision, RunCompletion, RunFilter, RunRemark, RunRow,
        RunStatus, RunTrigger, StartDecision, StoreError,
    },
    types::{Actor, Cause, IssueNo, RepoId, RunId, Timestamp, Verb},
};

/// Error of an engine request.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error("there are two workflows called {0}; rename one")]
    SameName(String),
    #[error("there is no workflow called {0}")]
    UnknownWorkflow(String),
    #[error("could not start the workflow: {0}")]
    Start(String),
}

#[derive(Debug, Clone)]
pub struct StartRunRequest {
    pub workflow: String,
    pub trigger: RunTrigger,
}

/// A person's answer on an issue, which is matched with one of the issue's open gates.
#[derive(Debug, Clone)]
pub struct GateAnswerRequest {
    pub repo: RepoId,
    pub issue: IssueNo,
    pub answer: GateAnswer,
    /// Whether the answer is too old to be accepted, because the run may have changed since the answer was given.
    pub late: bool,
}

/// Result of recording a person's answer to a gate. An accepted answer has not been applied to the run yet.
#[derive(Debug, Clone)]
pub enum GateAnswerOutcome {
    Accepted(RunId),
    /// An answer with this cause was recorded before.
    Duplicate,
    Late,
    /// The issue has no live run.
    NoRun,
    /// None of these runs has an open gate that accepts the answer's verb.
    NoGate(Vec<RunView>),
    /// The answer names a stage that has no open gate.
    WrongStage(Vec<GateRow>),
    /// The hash in the answer is not the hash of the gate's subject.
    Stale(GateRow),
    /// The answer has no hash. In addition, the subject has not been visible for long enough, or somebody else edited
    /// the gate comment.
    TooSoon(GateRow),
    /// The answer has no hash, and more than one gate is waiting.
    SeveralGates(Vec<GateRow>),
    /// The answer names an option that the gate does not have, or omits an option although the gate requires one.
    UnknownOption(GateRow),
    NotAllowed {
        needs: AllowedResponders,
    },
    /// The person's role is high enough, but this gate does not count their approval.
    IneligibleApprover(IneligibleApprover),
}

/// Request to stop runs.
#[derive(Debug, Clone)]
pub struct CancelRunsRequest {
    pub repo: RepoId,
    pub issue: IssueNo,
    /// The run to stop; `None` for all live runs of the issue.
    pub run: Option<RunId>,
    pub cause: Cause,
    pub by: Actor,
    pub why: String,
}

/// Request to retry a run at its current step. The run has failed, is waiting, or is parked.
#[derive(Debug, Clone)]
pub struct RetryRunRequest {
    pub run: RunId,
    pub cause: Cause,
    pub by: String,
}

/// Status of a run as other modules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunViewStatus {
    Ready,
    /// A step is running right now.
    Running,
    Asking,
    Waiting,
    Done,
    /// The run is ending and is reporting its end to people.
    Halting,
    Failed,
    Stopped,
    /// The run was saved in a form that this version cannot read; `why` tells people how to continue.
    Parked,
}

impl RunViewStatus {
    /// Converts a saved status. `taken` is true if a node is running a step of the run. `parked` is true if this
    /// version cannot read the run.
    pub fn from_saved(saved: RunStatus, taken: bool, parked: bool) -> Self {
        match saved {
            saved if !saved.is_live() => saved.into(),
            _ if taken => Self::Running,
            _ if parked => Self::Parked,
            saved => saved.into(),
        }
    }

    /// Returns whether this run may still take a step.
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Asking => "asking",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Halting => "halting",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Parked => "parked",
        }
    }
}

impl fmt::Display for RunViewStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A read-only view of a run.
#[derive(Debug, Clone)]
pub struct RunView {
    pub id: RunId,
    pub workflow: String,
    pub version: u32,
    pub issue: IssueNo,
    pub status: RunViewStatus,
    pub step_id: String,
    pub step_title: String,
    pub gate: Option<GateRow>,
    /// Whether the run is at a gate step whose gate is not open yet. The step may already have posted the comment with
    /// the command to answer.
    pub shows_unopened_gate: bool,
    /// Whether the workflow has a step that watches for the merge of the run's pull request. The run need not have
    /// reached that step.
    pub has_watch_step: bool,
    pub visit: u64,
    pub started_by: Actor,
    pub started_at: Timestamp,
    pub updated_at: Timestamp,
    /// Time at which the run continues even if nobody answers; `None` if it does not continue without an answer.
    pub due: Option<Timestamp>,
    pub why: Option<String>,
    pub outcome: Option<RunCompletion>,
    /// Number of GitHub API calls that the run has made so far.
    pub calls: GitHubCallCount,
    pub trigger: RunTrigger,
}

impl RunView {
    /// Builds the view of a run's row. `workflow` is `None` if this version does not know the workflow.
    pub fn new<T: 'static>(row: &RunRow, workflow: Option<&dyn AnyWorkflow<T>>) -> Self {
        let step = workflow.and_then(|workflow| workflow.step(&row.step));
        let watches = |step: &StepInfo| step.kind == StepKind::Watch;
        let status = RunViewStatus::from_saved(row.status, row.taken, row.parked);
        Self {
            id: row.id,
            workflow: row.workflow.clone(),
            version: row.version,
            issue: row.trigger.issue,
            status,
            step_id: step.map_or_else(|| row.step.trim_matches('"').to_owned(), |step| step.id.to_owned()),
            step_title: step.map_or_else(String::new, |step| step.title.to_owned()),
            gate: row.gate.clone(),
            shows_unopened_gate: row.gate.is_none()
                && matches!(status, RunViewStatus::Ready | RunViewStatus::Running | RunViewStatus::Waiting)
                && step.is_some_and(|step| {
                    matches!(step.kind, StepKind::Gate | StepKind::Pause | StepKind::Watch)
                }),
            has_watch_step: workflow.is_some_and(|workflow| workflow.steps().iter().any(watches)),
            visit: row.visit,
            started_by: row.trigger.actor.clone(),
            started_at: row.started_at,
            updated_at: row.updated_at,
            due: row.due,
            why: row.why.clone(),
            outcome: row.outcome.clone(),
            calls: row.calls,
            trigger: row.trigger.clone(),
        }
    }
}

impl From<RunStatus> for RunViewStatus {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Ready => Self::Ready,
            RunStatus::Asking => Self::Asking,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Halting => Self::Halting,
            RunStatus::Done => Self::Done,
            RunStatus::Failed => Self::Failed,
            RunStatus::Stopped => Self::Stopped,
        }
    }
}

/// Interface through which intake, the web pages and the command line use the engine. Each request is idempotent: a
/// second request with the same cause has no further effect.
pub trait EnginePort: Send + Sync {
    /// Starts a run of a workflow for an issue.
    ///
    /// # Errors
    /// Returns [`EngineError::UnknownWorkflow`] for an unknown workflow, [`EngineError::Start`] if the first state
    /// cannot be created, and store errors.
    fn start(&self, start: StartRunRequest) -> BoxFuture<'_, Result<StartDecision<RunView>, EngineError>>;
    /// Records a person's answer to a gate. The run applies it later.
    ///
    /// # Errors
    /// Store errors; the caller may retry.
    fn signal(&self, signal: GateAnswerRequest) -> BoxFuture<'_, Result<GateAnswerOutcome, EngineError>>;
    /// Records a person's remark on one of a run's findings. The run reads the remark before its next draft or review.
    /// If the run is waiting for people, it reads the remark at once.
    ///
    /// # Errors
    /// Store errors; the caller may retry.
    fn remark(&self, run: RunId, remark: RunRemark) -> BoxFuture<'_, Result<AnswerReceipt, EngineError>>;
    /// Asks one run or all live runs of an issue to stop. Returns the ids of these runs.
    ///
    /// # Errors
    /// Store errors; the caller may retry.
    fn cancel(&self, cancel: CancelRunsRequest) -> BoxFuture<'_, Result<Vec<RunId>, EngineError>>;
    /// Returns one run.
    ///
    /// # Errors
    /// Store errors.
    fn inspect(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunView>, EngineError>>;
    /// Returns the runs that match the filter.
    ///
    /// # Errors
    /// Returns store errors; these can occur only if the filter names a repository.
    fn list(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunView>, EngineError>>;
    /// Resumes a failed run at the step that failed, on a new visit. A waiting run stops waiting and continues.
    ///
    /// # Errors
    /// Store errors; in that case the run is unchanged.
    fn retry(&self, retry: RetryRunRequest) -> BoxFuture<'_, Result<RetryDecision<RunView>, EngineError>>;
    /// Pauses a scope: no new step starts in the scope, and running steps finish. A second call replaces the reason.
    ///
    /// # Errors
    /// Store errors; in that case nothing is paused.
    fn pause(&self, scope: PauseScope, by: String, why: String) -> BoxFuture<'_, Result<(), EngineError>>;
    /// Ends a pause. Returns false if the scope was not paused.
    ///
    /// # Errors
    /// Store errors; in that case the pause stays.
    fn resume(&self, scope: PauseScope, by: String) -> BoxFuture<'_, Result<bool, EngineError>>;
    /// Returns the active pauses.
    ///
    /// # Errors
    /// Store errors.
    fn pauses(&self) -> BoxFuture<'_, Result<Vec<ActivePause>, EngineError>>;
    /// Returns the name of a workflow and the id of a saved step, if this version knows both.
    fn step_names(&self, workflow: &str, step: &str) -> Option<(&'static str, &'static str)>;
    /// Makes the scheduler look for due runs immediately, because waiting runs may be able to continue.
    fn wake_waiting_runs(&self);
}

/// Returns whether two options contain the same words, in any order.
fn is_same_option(one: &str, other: &str) -> bool {
    let words = |way| str::split_whitespace(way).collect::<BTreeSet<_>>();
    words(one) == words(other)
}

/// Returns the open gate to which an answer belongs; `None` if no gate accepts the answer's verb. An approval without a
/// hash is accepted only if exactly one gate is waiting. In addition, the gate's subject must have been visible,
/// without changes, for [`limits::SEEN_BEFORE_APPROVAL`].
pub(super) fn match_gate<'a>(
    gates: &'a [GateRow],
    answer: &GateAnswer,
) -> Result<Option<&'a GateRow>, Box<GateAnswerOutcome>> {
    let no = |why: GateAnswerOutcome| Err(Box::new(why));
    let no_way = |gate: &GateRow| no(GateAnswerOutcome::UnknownOption(gate.clone()));
    let not_allowed = |needs: &AllowedResponders| no(GateAnswerOutcome::NotAllowed { needs: needs.clone() });
    let needs =
        |gate: &'a GateRow| gate.spec.verbs.iter().find(|(verb, _)| *verb == answer.verb).map(|(_, who)| who);
    let may = |who: &AllowedResponders| who.allows(answer.by.id, answer.role);
    let with_verb: Vec<_> = gates.iter().filter_map(|gate| Some((gate, needs(gate)?))).collect();
    if with_verb.is_empty() {
        return Ok(None);
    }
    if let Some((_, who)) = with_verb.first().filter(|_| !with_verb.iter().any(|(_, who)| may(who))) {
        return not_allowed(who);
    }
    let mut fitting = with_verb;
    // A gate that accepts only `/revise` is ignored while another gate is waiting.
    let decides = |gate: &GateRow| gate.spec.verbs.iter().any(|(verb, _)| *verb != Verb::Revise);
    if fitting.iter().any(|(gate, _)| decides(gate)) {
        fitting.retain(|(gate, _)| decides(gate));
    }
    if let Some(stage) = &answer.stage {
        fitting.retain(|(gate, _)| gate.spec.stage.eq_ignore_ascii_case(stage));
        if fitting.is_empty() {
            return no(GateAnswerOutcome::WrongStage(gates.to_vec()));
        }
    }
    let binding = answer.verb.accepts();
    // The first word of a reason may look like an option. It is one only if the gate has options or the stage is named.
    if let Some(way) = answer.way.as_ref().filter(|_| answer.verb == Verb::Approve) {
        let named = |gate: &GateRow| answer.stage.is_some() || !gate.spec.options.is_empty();
        let meant = fitting.iter().map(|(gate, _)| *gate).find(|gate| named(gate));
        fitting.retain(|(gate, _)| gate.spec.options.iter().any(|known| is_same_option(known, way)));
        if fitting.is_empty() {
            return meant.map_or_else(|| no(GateAnswerOutcome::WrongStage(gates.to_vec())), no_way);
        }
    }
    if let Some(prefix) = &answer.hash {
        let stale = fitting[0].0;
        fitting.retain(|(gate, _)| gate.spec.subject.starts_with(prefix));
        if fitting.is_empty() {
            return no(GateAnswerOutcome::Stale(stale.clone()));
        }
    }
    let (gate, who) = fitting[0];
    let open = gates.iter().filter(|gate| decides(gate)).count();
    let several = if answer.hash.is_none() && binding { open > 1 } else { fitting.len() > 1 };
    if several {
        return no(GateAnswerOutcome::SeveralGates(gates.to_vec()));
    }
    if !may(who) {
        return not_allowed(who);
    }
    if let Some(why) =
        binding.then(|| gate.spec.approvers.ineligibility(answer, answer.verb == Verb::Override)).flatten()
    {
        return no(GateAnswerOutcome::IneligibleApprover(why));
    }
    let seen_since = gate.spec.shown_at.plus(limits::SEEN_BEFORE_APPROVAL);
    let touched = gate.comment_edit.is_some() && answer.verb == Verb::Approve;
    if answer.hash.is_none() && binding && (touched || answer.at < seen_since) {
        return no(GateAnswerOutcome::TooSoon(gate.clone()));
    }
    let said = |way: &String| gate.spec.options.iter().any(|known| is_same_option(known, way));
    let unsaid = !answer.way.as_ref().is_some_and(said);
    if binding && unsaid && !gate.spec.options.is_empty() {
        return no_way(gate);
    }
    Ok(Some(gate))
}

#[cfg(test)]
mod tests {
    use Verb::{Answer, Approve, Revise};

    use super::*;
    use crate::{
        store::{Approvers, GateSpec},
        types::{Hash, Role, UserId},
    };

    fn gate(id: u64, stage: &str, verbs: &[Verb]) -> GateRow {
        let spec = GateSpec {
            stage: stage.into(),
            subject: Hash::digest(stage.as_bytes()),
            verbs: verbs.iter().map(|verb| (*verb, Role::Write.into())).collect(),
            shown_at: Timestamp(0),
            approvers: Approvers::default(),
            expires: None,
            options: Vec::new(),
        };
        let run = RunId { repo: RepoId(1), seq: id };
        GateRow { id, run, spec, answers: 0, comment_edit: None }
    }

    fn answer(verb: Verb, stage: Option<&str>, hash: Option<Hash>) -> GateAnswer {
        GateAnswer {
            cause: Cause("c".into()),
            verb,
            stage: stage.map(str::to_owned),
            hash: hash.map(|hash| hash.short()),
            way: None,
            text: String::new(),
            by: Actor { id: UserId(1), login: "ada".into(), bot: false },
            role: Role::Write,
            at: Timestamp(60_000),
            url: None,
            commit: None,
            review: None,
        }
    }

    #[test]
    fn approve_command_needs_a_hash_when_several_gates_are_open() {
        let gates = [gate(1, "lld", &[Approve, Revise]), gate(2, "spec", &[Approve, Revise, Answer])];
        let chosen = |answer: GateAnswer| match match_gate(&gates, &answer) {
            Ok(gate) => gate.unwrap().id.to_string(),
            Err(why) => match *why {
                GateAnswerOutcome::SeveralGates(_) => "several".to_owned(),
                GateAnswerOutcome::Stale(_) => "stale".to_owned(),
                GateAnswerOutcome::WrongStage(_) => "wrong stage".to_owned(),
                _ => "other".to_owned(),
            },
        };
        let spec = Some(Hash::digest(b"spec"));
        assert_eq!(chosen(answer(Approve, None, None)), "several");
        assert_eq!(chosen(answer(Approve, Some("spec"), None)), "several", "a stage is not a hash");
        assert_eq!(chosen(answer(Approve, None, spec)), "2");
        assert_eq!(chosen(answer(Approve, Some("lld"), spec)), "stale");
        assert_eq!(chosen(answer(Approve, Some("code"), spec)), "wrong stage");
        // A person named by the gate may answer without any role; others may not.
        let mut named = gate(3, "brief", &[Answer]);
        named.spec.verbs = vec![(Answer, AllowedResponders::Either { people: vec![UserId(7)], role: None })];
        let by = |id| GateAnswer {
            by: Actor { id: UserId(id), login: String::new(), bot: false },
            role: Role::None,
            ..answer(Answer, None, None)
        };
        assert!(matches!(match_gate(std::slice::from_ref(&named), &by(7)), Ok(Some(_))));
        let refused = match_gate(std::slice::from_ref(&named), &by(1)).unwrap_err();
        assert!(matches!(*refused, GateAnswerOutcome::NotAllowed { .. }));
        // An answer that approves nothing only has to name its gate.
        assert_eq!(chosen(answer(Revise, None, None)), "several");
        assert_eq!(chosen(answer(Revise, Some("spec"), None)), "2");
        assert_eq!(chosen(answer(Answer, None, None)), "2");
    }

    #[test]
    fn approve_command_must_list_all_paths_of_the_gate_option_in_any_order() {
        let mut scope = gate(1, "scope", &[Approve, Revise]);
        scope.spec.options = vec!["+a +b".into()];
        let chosen = |gate: &GateRow, stage: Option<&str>, way: Option<&str>| {
            let way = way.map(str::to_owned);
            match match_gate(std::slice::from_ref(gate), &GateAnswer { way, ..answer(Approve, stage, None) })
            {
                Ok(_) => "taken",
                Err(why) if matches!(*why, GateAnswerOutcome::UnknownOption(_)) => "no way",
                Err(_) => "other",
            }
        };
        for (way, said) in [("+b +a", "taken"), ("+a +b", "taken"), ("+a", "no way"), ("+a +b +c", "no way")]
        {
            assert_eq!(chosen(&scope, Some("scope"), Some(way)), said, "{way}");
        }
        assert_eq!(chosen(&scope, None, None), "no way");
        let tests = gate(1, "tests", &[Approve, Revise]);
        assert_eq!(chosen(&tests, Some("tests"), Some("+a")), "no way");
        assert_eq!(chosen(&tests, None, Some("new")), "other");
    }

    #[test]
    fn approve_and_revise_skip_the_merge_gate_while_another_gate_is_open() {
        let gates = [gate(1, "merge", &[Revise]), gate(2, "lld", &[Approve, Revise])];
        for verb in [Approve, Revise] {
            let chosen = match_gate(&gates, &answer(verb, None, None));
            assert!(matches!(chosen, Ok(Some(gate)) if gate.id == 2), "{verb}");
        }
        let alone = &gates[..1];
        assert!(matches!(match_gate(alone, &answer(Approve, None, None)), Ok(None)));
        assert!(matches!(match_gate(alone, &answer(Revise, None, None)), Ok(Some(_))));
    }
}
