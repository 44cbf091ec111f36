//! What the rest of the house may ask of the engine. Nobody else touches runs, trails or journals.

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

/// Why the engine could not do what it was asked.
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
    #[error("the workflow could not be started: {0}")]
    Start(String),
}

#[derive(Debug, Clone)]
pub struct StartRunRequest {
    pub workflow: String,
    pub trigger: RunTrigger,
}

/// A person's answer for whatever gate of the issue it fits.
#[derive(Debug, Clone)]
pub struct GateAnswerRequest {
    pub repo: RepoId,
    pub issue: IssueNo,
    pub answer: GateAnswer,
    /// The work may have gone on since it was said: it is not taken any more.
    pub late: bool,
}

/// Accepted (not yet applied), or why not.
#[derive(Debug, Clone)]
pub enum GateAnswerOutcome {
    Accepted(RunId),
    /// It was taken before.
    Duplicate,
    Late,
    /// No run lives on this issue.
    NoRun,
    /// None of these runs waits for such an answer.
    NoGate(Vec<RunView>),
    /// The stage that was named is not the one that waits.
    WrongStage(Vec<GateRow>),
    /// The hash that was given is not what the gate asks about.
    Stale(GateRow),
    /// Without a hash, and written before the subject had been on the page long enough, or where what stood on it was not
    /// only ours.
    TooSoon(GateRow),
    /// Without a hash, and more than one gate waits.
    SeveralGates(Vec<GateRow>),
    /// The way that was named is none of the gate's, or none was and it has some.
    UnknownOption(GateRow),
    NotAllowed {
        needs: AllowedResponders,
    },
    /// Their role is enough, and their word does not count at this gate all the same.
    IneligibleApprover(IneligibleApprover),
}

/// A wish that runs end.
#[derive(Debug, Clone)]
pub struct CancelRunsRequest {
    pub repo: RepoId,
    pub issue: IssueNo,
    /// One run, or all that live on the issue.
    pub run: Option<RunId>,
    pub cause: Cause,
    pub by: Actor,
    pub why: String,
}

/// The wish that a run be tried again: one that failed or waits, at the step it is at, or one that is parked.
#[derive(Debug, Clone)]
pub struct RetryRunRequest {
    pub run: RunId,
    pub cause: Cause,
    pub by: String,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunViewStatus {
    Ready,
    /// A step of it runs right now.
    Running,
    Asking,
    Waiting,
    Done,
    /// Being ended; people are being told.
    Halting,
    Failed,
    Stopped,
    /// Saved by a version this one cannot read; `why` says how to go on.
    Parked,
}

impl RunViewStatus {
    /// By what its row says of a run, and whether somebody works on it.
    pub fn from_saved(saved: RunStatus, taken: bool, parked: bool) -> Self {
        match saved {
            saved if !saved.is_live() => saved.into(),
            _ if taken => Self::Running,
            _ if parked => Self::Parked,
            saved => saved.into(),
        }
    }

    /// May this run still take a step?
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

/// A run for others to see.
#[derive(Debug, Clone)]
pub struct RunView {
    pub id: RunId,
    pub workflow: String,
    /// The workflow's version when the run started.
    pub version: u32,
    pub issue: IssueNo,
    pub status: RunViewStatus,
    pub step_id: String,
    pub step_title: String,
    pub gate: Option<GateRow>,
    /// At a gate that is not open yet: its step may have shown the line to paste already.
    pub shows_unopened_gate: bool,
    /// Its workflow has a step that waits for the merge of what it pushed, whether it has come to that or not.
    pub has_watch_step: bool,
    pub visit: u64,
    pub started_by: Actor,
    pub started_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it will go on by itself, if it will.
    pub due: Option<Timestamp>,
    pub why: Option<String>,
    pub outcome: Option<RunCompletion>,
    /// What it has asked of GitHub so far.
    pub calls: GitHubCallCount,
    pub trigger: RunTrigger,
}

impl RunView {
    /// By what the run's workflow says, if this version knows it.
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

/// The engine as intake, the pages and the command line see it. Each request is idempotent by its
/// cause.
pub trait EnginePort: Send + Sync {
    /// Starts a run of a workflow for an issue.
    ///
    /// # Errors
    /// [`EngineError::UnknownWorkflow`]; [`EngineError::Start`] where its first state cannot be made; the store's.
    fn start(&self, start: StartRunRequest) -> BoxFuture<'_, Result<StartDecision<RunView>, EngineError>>;
    /// Hands in a person's answer: accepted is not applied yet.
    ///
    /// # Errors
    /// The store's; the answer may be handed in again then.
    fn signal(&self, signal: GateAnswerRequest) -> BoxFuture<'_, Result<GateAnswerOutcome, EngineError>>;
    /// Hands in what a person says of one of a run's findings; the run looks at it before its next draft or review, and
    /// at once where it waits for people.
    ///
    /// # Errors
    /// The store's; it may be handed in again then.
    fn remark(&self, run: RunId, remark: RunRemark) -> BoxFuture<'_, Result<AnswerReceipt, EngineError>>;
    /// Asks the runs of an issue to end, or one of them; which they are.
    ///
    /// # Errors
    /// The store's; it may be asked again then.
    fn cancel(&self, cancel: CancelRunsRequest) -> BoxFuture<'_, Result<Vec<RunId>, EngineError>>;
    /// One run as it stands.
    ///
    /// # Errors
    /// The store's.
    fn inspect(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunView>, EngineError>>;
    /// Runs that the filter lets through.
    ///
    /// # Errors
    /// The store's, of the one repository asked for.
    fn list(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunView>, EngineError>>;
    /// Makes a run that failed live again at the step it failed at, on a visit of its own; one that waits waits no
    /// longer.
    ///
    /// # Errors
    /// The store's; the run is as it was then.
    fn retry(&self, retry: RetryRunRequest) -> BoxFuture<'_, Result<RetryDecision<RunView>, EngineError>>;
    /// From now on no step of this scope begins; those in flight end as they would. Asked again, it keeps the
    /// later reason.
    ///
    /// # Errors
    /// The store's; nothing is paused then.
    fn pause(&self, scope: PauseScope, by: String, why: String) -> BoxFuture<'_, Result<(), EngineError>>;
    /// Ends a pause; false: there was none.
    ///
    /// # Errors
    /// The store's; the pause goes on then.
    fn resume(&self, scope: PauseScope, by: String) -> BoxFuture<'_, Result<bool, EngineError>>;
    /// The pauses there are.
    ///
    /// # Errors
    /// The store's.
    fn pauses(&self) -> BoxFuture<'_, Result<Vec<ActivePause>, EngineError>>;
    /// The names of a workflow and of a step that is saved so, if they are known here.
    fn step_names(&self, workflow: &str, step: &str) -> Option<(&'static str, &'static str)>;
    /// Runs that had to rest may go on: whoever waits for one looks again.
    fn wake_waiting_runs(&self);
}

/// Paths may come in any order.
fn is_same_option(one: &str, other: &str) -> bool {
    let words = |way| str::split_whitespace(way).collect::<BTreeSet<_>>();
    words(one) == words(other)
}

/// Which of an issue's open gates an answer is for. An approval without a hash counts only when
/// exactly one gate waits and its subject had been on the page, unchanged, for a while. None: no gate has this verb.
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
    // What may be sent back and nothing else is heard once no other gate asks.
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
    // Of a reason that merely begins with such a word only a gate that has ways makes one.
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
    fn between_several_gates_only_a_hash_approves() {
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
        // Whom a gate names may answer it without any role, and nobody else may.
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
        // What binds nobody to content needs to name its gate only.
        assert_eq!(chosen(answer(Revise, None, None)), "several");
        assert_eq!(chosen(answer(Revise, Some("spec"), None)), "2");
        assert_eq!(chosen(answer(Answer, None, None)), "2");
    }

    #[test]
    fn paths_are_all_named_in_any_order_or_none() {
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
    fn what_only_waits_for_a_merge_is_no_other_choice() {
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
