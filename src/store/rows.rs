//! Stored data of a run as plain types, which all modules share. Only the store knows the format of the stored rows.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Approvers, GitHubCallCount, PendingWrites};
use crate::types::{
    Actor, Cause, CommentId, Family, Hash, InstallationId, IssueNo, MicroUsd, Oid, RepoId, Role, RunId,
    Timestamp, UserId, Verb, Verdict, WorkerPool,
};

/// Trigger of a run. It never changes during the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTrigger {
    pub command: String,
    pub args: String,
    pub repo: RepoId,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub actor: Actor,
    /// Role that the actor had when the command was given.
    pub role: Role,
    pub cause: Cause,
    /// Time of the comment or label, according to GitHub.
    pub at: Timestamp,
    /// ID of the comment that contains the command, if the command came from a comment.
    pub comment: Option<CommentId>,
    /// Free-text request for which a routing run started this run; `None` if no routing run was involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RoutedRequest>,
}

/// A free-text request, as read by the routing run that then started the current run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedRequest {
    /// Text of the request, in the form that its skill prescribes. Untrusted input.
    pub text: String,
    /// Name of the skill whose brief the request uses.
    pub skill: String,
    /// Confidence of the routing decision in thousandths.
    pub confidence: u16,
    /// Default worker pool of the skill, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<WorkerPool>,
}

/// Routing decision for a free-text request. The newest row for each key is used as the repository's cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    /// Hash of everything that the model saw: request, issue, skills, model and prompt version.
    pub key: Hash,
    pub by: UserId,
    pub comment: Option<CommentId>,
    /// The first words of the request.
    pub snippet: String,
    /// Hash of the stored full text of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Hash>,
    /// The decision as JSON, in the format that `documents` defines.
    pub decision: serde_json::Value,
    /// Action that resulted from the decision: `begin`, `probably`, `offer`, `answer` or `decline`.
    pub lead: String,
    /// Workflow of the chosen skill.
    pub workflow: Option<String>,
    /// Number of model calls. The following two fields are the total cost of these calls (billed, or by list price) and
    /// their total duration.
    pub calls: u32,
    pub cost_microusd: u64,
    /// Cost of the most expensive call, in micro-dollars.
    #[serde(default)]
    pub dearest_microusd: u64,
    pub elapsed_ms: u64,
    pub model: Option<String>,
    /// Reason why the response of no model could be used; `None` if a response was used.
    pub fell_back: Option<String>,
}

/// A routing decision and its consequences.
#[derive(Debug, Clone)]
pub struct PastRoute {
    pub run: RunId,
    pub issue: IssueNo,
    pub at: Timestamp,
    pub route: RouteRow,
    /// Run that was started because of the decision; `None` if no run was started.
    pub started_run: Option<RunId>,
    /// Whether a person overruled the decision within a day: the person stopped the started run, or started another
    /// workflow before that run was done.
    pub changed: bool,
}

/// Definition of a gate by a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSpec {
    /// Stage name that people may add to `/approve`, for example `lld`.
    pub stage: String,
    /// Hash of everything that an approval of this gate covers.
    pub subject: Hash,
    /// Verbs that are allowed at the gate, each with the people who may use it.
    pub verbs: Vec<(Verb, AllowedResponders)>,
    /// Time, by GitHub's clock, since which the subject has been visible without changes.
    pub shown_at: Timestamp,
    /// Approval rule of the gate: the people whose approvals are accepted, and the number of approvals needed.
    #[serde(flatten)]
    pub approvers: Approvers,
    /// Time at which the step is run again if nobody answers.
    pub expires: Option<Timestamp>,
    /// Options to choose from. An approval must name one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// People who may give an answer: everyone who has at least the required role, and everyone who is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AllowedResponders {
    Role(Role),
    Either {
        people: Vec<UserId>,
        /// Minimum role. `None` allows only the listed people.
        role: Option<Role>,
    },
}

impl AllowedResponders {
    pub fn allows(&self, person: UserId, has: Role) -> bool {
        let role = match self {
            Self::Role(role) => Some(*role),
            Self::Either { role, .. } => *role,
        };
        self.names_person(person) || role.is_some_and(|role| has >= role)
    }

    /// Returns whether this person is listed, and may therefore answer regardless of their role.
    pub fn names_person(&self, person: UserId) -> bool {
        matches!(self, Self::Either { people, .. } if people.contains(&person))
    }
}

impl From<Role> for AllowedResponders {
    fn from(role: Role) -> Self {
        Self::Role(role)
    }
}

impl fmt::Display for AllowedResponders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(role) | Self::Either { role: Some(role), .. } => role.fmt(f),
            Self::Either { role: None, .. } => f.write_str("to be one of those asked"),
        }
    }
}

/// Answer that a person gave to a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateAnswer {
    pub cause: Cause,
    pub verb: Verb,
    pub stage: Option<String>,
    /// Prefix of the subject's hash, as the person typed it.
    pub hash: Option<String>,
    /// Option that the approval names; `None` if it names no option.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
    pub text: String,
    pub by: Actor,
    /// Role that `by` had when answering.
    pub role: Role,
    /// Time of the comment, according to GitHub.
    pub at: Timestamp,
    pub url: Option<String>,
    /// Commit that was reviewed, if the answer is a review of the pull request.
    pub commit: Option<Oid>,
    /// ID of the review, if the answer is a review that requests changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<u64>,
}

/// Visit of a run, with its calls and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitSpan {
    pub entered_at: Timestamp,
    pub left_at: Option<Timestamp>,
    /// Reason why the visit ended: `go`, `done`, `halt` or `ended`.
    pub how: Option<String>,
    /// Time of the retry, if the run had ended and was retried before this visit.
    pub retried_at: Option<Timestamp>,
    /// Whether the previous visit ended because a person retried the run while it was waiting.
    pub after_retry: bool,
    /// Calls made during the visit, each with its key and start time.
    pub calls: Vec<(String, Timestamp, CallRow)>,
    /// Journal entries other than calls, each with its key, start time and completion time.
    pub entries: Vec<(String, Timestamp, Option<Timestamp>)>,
}

/// Result of a completed run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCompletion {
    pub summary: String,
    pub url: Option<String>,
}

/// Status of a run. It does not tell whether a worker has claimed the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    Ready,
    Asking,
    Waiting,
    /// The engine has decided to end the run but has not yet informed people.
    Halting,
    Done,
    Failed,
    Stopped,
}

impl RunStatus {
    /// Returns whether a run with this status may still execute a step.
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }
}

/// Gate of a run. A run has at most one open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRow {
    pub id: u64,
    pub run: RunId,
    pub spec: GateSpec,
    /// Number of answers that were accepted at this gate so far.
    pub answers: u32,
    /// Newest remark about an edit of the gate's comment, if the comment was edited.
    pub comment_edit: Option<RunRemark>,
}

/// Accepted answer, with the subject that it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRow {
    pub id: u64,
    pub gate: u64,
    /// Subject of the gate at the time when the answer was accepted.
    pub subject: Hash,
    pub answer: GateAnswer,
}

/// Subject of a [`RunRemark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemarkKind {
    Dismiss,
    MustFix,
    /// Somebody edited a gate comment. `finding` is the number of the visit that posted the comment.
    #[serde(rename = "touched")]
    CommentEdited,
    /// Another run changes files that this run also changes.
    Overlaps,
    /// The pushed branch or its pull request changed, so the run must check them.
    #[serde(rename = "look")]
    CheckPushed,
    /// A person reviewed the pushed changes. `finding` is the ID of the review.
    Reviewed,
    /// The settings now name a different reviewer, which is in `text`.
    Reviewer,
}

impl RemarkKind {
    /// Name under which [`Self::CommentEdited`] is stored.
    pub(super) const COMMENT_EDITED: &str = "touched";
}

/// Message to a live run: a person's reply to a finding, an edit of the gate's comment, or news from another run. A
/// remark is untrusted data and triggers nothing by itself; the run's next step reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRemark {
    pub cause: Cause,
    #[serde(rename = "verb")]
    pub kind: RemarkKind,
    /// ID of the finding that the remark is about, such as `F3`. If the remark is about an edited gate comment, the
    /// number of the visit that posted the comment.
    pub finding: String,
    pub text: String,
    pub by: Actor,
    /// Role that `by` had when the remark was made.
    pub role: Role,
    /// Time of the comment, according to GitHub.
    pub at: Timestamp,
}

impl RunRemark {
    /// Maximum delay before a waiting run reads a [`RemarkKind::CheckPushed`] remark.
    pub const CHECK_PUSHED_WITHIN: Duration = Duration::from_secs(20);

    /// Returns the maximum delay before a run that waits for an answer reads this remark. The delay lets the run handle
    /// several frequent events together.
    pub fn read_within(&self) -> Duration {
        if self.kind == RemarkKind::CheckPushed { Self::CHECK_PUSHED_WITHIN } else { Duration::ZERO }
    }
}

/// A person's request to end runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRow {
    pub cause: Cause,
    pub by: Actor,
    pub why: String,
    pub at: Timestamp,
}

/// Data of a run to create.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub workflow: String,
    pub version: u32,
    pub trigger: RunTrigger,
    pub step: String,
    pub state: Vec<u8>,
}

/// The current state of a run.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub id: RunId,
    pub workflow: String,
    /// Version that the workflow had when the run started.
    pub version: u32,
    pub trigger: RunTrigger,
    pub status: RunStatus,
    /// Serde name of the current step.
    pub step: String,
    pub state: Vec<u8>,
    /// Number of the current checkpoint in the run's trail, starting at 1.
    pub visit: u64,
    /// Number of transitions since a person last acted.
    pub moves: u32,
    /// Number of failed attempts at the current visit.
    pub attempts: u32,
    pub due: Option<Timestamp>,
    /// Whether a worker has claimed the run, on this node or on another node.
    pub taken: bool,
    /// Whether the current process skips the run because it could not read the run.
    pub parked: bool,
    /// Reason why the engine is ending the run, as JSON of the engine.
    pub halt: Option<String>,
    /// Reason why the run waits or ended, in a form that is shown to people.
    pub why: Option<String>,
    pub outcome: Option<RunCompletion>,
    /// Number of GitHub API calls that the run has made so far.
    pub calls: GitHubCallCount,
    pub cancel: Option<CancelRow>,
    /// The open gate, if the run has one.
    pub gate: Option<GateRow>,
    /// Oldest answer at the open gate that was not passed to a step yet.
    pub answer: Option<AnswerRow>,
    /// Number of remarks that a step may read. These are the remarks that were recorded before the last save.
    pub remarks: u64,
    pub started_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Right to execute one step of a run and to save its result once. The store refuses a write if the run has a newer
/// lease.
#[derive(Debug, Clone)]
pub struct RunLease {
    pub run: RunRow,
    /// Lease number of the run when it was claimed. Every save increases the run's lease number.
    pub number: u64,
    /// Number of the boot, or ID of the node, that claimed the run.
    pub epoch: i64,
    /// Number of this claim within the current boot.
    pub claim: u64,
    pub pending_writes: Arc<PendingWrites>,
}

impl RunLease {
    /// Returns the time at which the run is due again, if the step left the run unchanged and waiting for the same
    /// event. In that case the caller skips the save, because a run may wait for weeks and wake every minute.
    pub(crate) fn unchanged_wait(&self, left: &Checkpoint) -> Option<Timestamp> {
        let Checkpoint::Wait { state, until, why } = left else { return None };
        let run = &self.run;
        let same = run.status == RunStatus::Waiting
            && (run.attempts, run.why.as_deref()) == (0, Some(why.as_str()))
            && run.state == *state;
        (same && run.gate.is_none() && self.pending_writes.is_empty()).then_some(*until)
    }
}

/// Result of starting a run.
#[derive(Debug, Clone)]
pub enum StartDecision<R = RunRow> {
    New(RunId),
    /// The issue already has a live run of this workflow.
    AlreadyLive(Box<R>),
    /// The same cause already started this run.
    Duplicate(RunId),
}

/// Result of recording an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerReceipt {
    Accepted,
    Duplicate,
    /// The gate was closed, or its subject changed, after the person saw it.
    Changed,
}

/// State of a journal entry when it is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalLookup {
    /// The caller may begin the work. `interrupted` is set if an earlier attempt began the work and did not finish it.
    Begun {
        interrupted: bool,
    },
    Done(Vec<u8>),
}

/// Result of a step. It is saved in one transaction, together with its effect on gate and trail.
#[derive(Debug, Clone)]
pub enum Checkpoint {
    /// The run continues with the next visit. The gate is closed and the answer is consumed.
    Go { step: String, state: Vec<u8>, moves: u32 },
    /// The run waits for a person within the same visit. If the step received an answer, the answer is stored as
    /// refused.
    Ask { state: Vec<u8>, gate: GateSpec },
    /// The same visit is run again at `until`; gate and answer stay unchanged. A wait that changes nothing else is not
    /// saved, so the visit may be run earlier after a restart.
    Wait { state: Vec<u8>, until: Timestamp, why: String },
    /// The run is completed. The follow-up run is started in the same transaction, unless the current run was cancelled
    /// or the issue already has a live run of the follow-up's workflow.
    Done { state: Vec<u8>, outcome: RunCompletion, then: Option<Box<NewRun>> },
    /// The run ends after one more visit, which informs people.
    Halt { halt: String, why: String },
    /// The run ends immediately, because people were informed or could not be informed.
    Ended { status: RunStatus, why: String },
    /// The same visit is run again at `due`. Only the journal of the current attempt is kept.
    Retry { attempts: u32, due: Timestamp, why: String },
    /// The run is skipped in the current process, which cannot read it. A later process may be able to read it.
    Park { why: String },
}

/// The runs to which a pause applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseScope {
    Server,
    Repo(RepoId),
}

/// An active pause. While it lasts, no step within its scope starts. A pause survives restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivePause {
    pub scope: PauseScope,
    pub by: String,
    pub why: String,
    pub at: Timestamp,
}

impl ActivePause {
    /// Returns the time at which the pause of a repository began, or `None` if the repository is not paused.
    pub fn since(pauses: &[Self], repo: RepoId) -> Option<Timestamp> {
        Self::for_repository(pauses, repo).map(|pause| pause.at)
    }

    /// Returns the earliest pause that applies to a repository.
    pub fn for_repository(pauses: &[Self], repo: RepoId) -> Option<&Self> {
        let holds = |pause: &&Self| [PauseScope::Server, PauseScope::Repo(repo)].contains(&pause.scope);
        pauses.iter().filter(holds).min_by_key(|pause| pause.at)
    }
}

/// Result of a retry request.
#[derive(Debug, Clone)]
pub enum RetryDecision<R = RunRow> {
    Resumed,
    /// The same cause has already been used to retry this run.
    Duplicate,
    NoRun,
    /// The run can't be retried, because it neither failed nor is parked. If it is waiting, it waits only for a
    /// person's answer.
    NotFailed(Box<R>),
    /// Another run of the same workflow is live on the same issue.
    OtherRunLive(Box<R>),
}

impl Checkpoint {
    /// Returns whether this checkpoint contains a new workflow state to store.
    pub(super) fn has_state(&self) -> bool {
        matches!(self, Self::Go { .. } | Self::Ask { .. } | Self::Wait { .. } | Self::Done { .. })
    }
}

/// Filter that selects runs for a list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RunFilter {
    pub repo: Option<RepoId>,
    pub issue: Option<IssueNo>,
    pub live_only: bool,
}

/// Progress of a paid call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallStatus {
    /// The cost has been reserved. This is written before the call is made.
    Reserved,
    Done,
    Failed,
    /// The call was started but its outcome is unknown, so it may have been billed.
    Lost,
}

/// A part of a prompt segment that was omitted because it did not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedSegment {
    /// Name of the prompt segment, such as `files` or `issue`.
    pub what: String,
    /// Number of files or lines that were omitted.
    pub pieces: usize,
    pub bytes: usize,
}

/// A model call in the cost ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    pub role: String,
    pub provider: String,
    /// Name of the model that was requested.
    pub asked: String,
    /// Name of the model according to the response.
    pub served: Option<String>,
    /// Entry of `[models.successors]` that allows the responding model in place of the requested model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    pub family: Option<Family>,
    pub prompt: Hash,
    /// Segments that did not fully fit into the prompt. Rows from older versions lack this field.
    #[serde(default)]
    pub cut: Vec<OmittedSegment>,
    pub status: CallStatus,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read: u64,
    pub cache_written: u64,
    pub cost_microusd: Option<u64>,
    /// Whether the cost is what was billed, not an estimate from the list price.
    pub billed: bool,
    /// Amount reserved for the call in micro-dollars, which is the maximum that may be billed. `None` if the cost is
    /// known, and for calls that are not billed.
    #[serde(default)]
    pub held_microusd: Option<u64>,
    /// The part of `held_microusd` that is likely to be billed: the prompt and the received part of the response. Rows
    /// from older versions lack this field.
    #[serde(default)]
    pub likely_microusd: Option<u64>,
    /// Operator who settled the reserved amount according to the bill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<String>,
    pub elapsed_ms: u64,
    pub attempts: u32,
    /// Kind of the failure. Older versions stored this in the form `RateLimited { reset: None }`; see
    /// [`Self::error_kind`].
    pub error: Option<String>,
}

impl CallRow {
    /// Returns the name of the failure's kind, such as `rate_limited`, whichever version stored it.
    pub fn error_kind(&self) -> Option<String> {
        let stored = self.error.as_deref()?;
        let kind = stored.split([' ', '{']).next().unwrap_or(stored);
        let mut name = String::new();
        for letter in kind.chars() {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(letter.to_ascii_lowercase());
        }
        Some(name)
    }

    /// Returns the amount that counts against daily and monthly limits: the billed cost plus the whole reservation.
    pub fn shared_cap_amount(&self) -> MicroUsd {
        self.billed_cost().plus(MicroUsd(self.held_microusd.unwrap_or(0)))
    }

    /// Returns the amount that counts against the limits of a stage or run. After the call has ended, only the likely
    /// part of the reservation is included.
    pub fn run_cap_amount(&self) -> MicroUsd {
        self.billed_cost().plus(self.held_in_run())
    }

    /// Removes the reservation, after the operator `by` checked the bill. `more` is the billed cost beyond the cost
    /// already recorded.
    pub fn settle(mut self, more: MicroUsd, by: String) -> Self {
        if more > MicroUsd(0) {
            (self.cost_microusd, self.billed) = (Some(self.billed_cost().plus(more).0), true);
        }
        if self.status == CallStatus::Reserved {
            self.status = CallStatus::Lost;
        }
        Self { held_microusd: None, likely_microusd: None, settled: Some(by), ..self }
    }

    /// Returns the row of a call that has ended with an unknown outcome, with its status set to `Lost`.
    pub fn mark_lost(self) -> Self {
        Self { status: CallStatus::Lost, ..self }
    }

    fn billed_cost(&self) -> MicroUsd {
        MicroUsd(self.cost_microusd.filter(|_| self.billed).unwrap_or(0))
    }

    fn held_in_run(&self) -> MicroUsd {
        let held = self.held_microusd.unwrap_or(0);
        let over = self.status != CallStatus::Reserved;
        MicroUsd(self.likely_microusd.filter(|_| over).map_or(held, |likely| likely.min(held)))
    }
}

/// A row of the cost ledger, with the run that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostRow {
    pub run: RunId,
    pub visit: u64,
    pub key: String,
    pub workflow: String,
    pub issue: IssueNo,
    pub installation: InstallationId,
    /// Time at which the call was requested.
    pub at: Timestamp,
    pub call: CallRow,
}

/// Sums over several calls. The amounts are of different kinds and must not be added together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// Number of calls that were made.
    pub calls: u64,
    #[serde(rename = "billed_microusd")]
    pub billed: MicroUsd,
    /// Amount reserved for calls that are running and for calls of unknown cost.
    #[serde(rename = "held_microusd")]
    pub held: MicroUsd,
    /// The part of `held` that counts against the limits of a stage or run.
    #[serde(rename = "held_in_run_microusd", default)]
    pub held_in_run: MicroUsd,
    /// List price of calls that are covered by a subscription.
    #[serde(rename = "notional_microusd")]
    pub notional: MicroUsd,
    /// Number of calls to models whose price is unknown.
    pub unpriced: u64,
}

impl Spending {
    pub fn from_calls<'a>(calls: impl IntoIterator<Item = &'a CallRow>) -> Self {
        let mut sum = Self::default();
        calls.into_iter().for_each(|call| sum.add(call));
        sum
    }

    /// Returns a sum for each value of `key`, in the order in which the values first appear.
    pub fn grouped_by<K: PartialEq>(rows: &[CostRow], key: impl Fn(&CostRow) -> K) -> Vec<(K, Self)> {
        let mut sums: Vec<(K, Self)> = Vec::new();
        for row in rows {
            let key = key(row);
            match sums.iter_mut().find(|(known, _)| *known == key) {
                Some((_, sum)) => sum.add(&row.call),
                None => sums.push((key, Self::from_calls([&row.call]))),
            }
        }
        sums
    }

    pub fn plus(self, other: &Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            billed: self.billed.plus(other.billed),
            held: self.held.plus(other.held),
            held_in_run: self.held_in_run.plus(other.held_in_run),
            notional: self.notional.plus(other.notional),
            unpriced: self.unpriced + other.unpriced,
        }
    }

    fn add(&mut self, call: &CallRow) {
        let made = call.status != CallStatus::Failed || call.attempts > 0;
        self.calls += u64::from(made);
        let cost = call.cost_microusd.map(MicroUsd);
        match (cost, call.billed) {
            (Some(cost), true) => self.billed = self.billed.plus(cost),
            (Some(cost), false) => self.notional = self.notional.plus(cost),
            (None, _) => self.unpriced += u64::from(call.status == CallStatus::Done),
        }
        self.held = self.held.plus(MicroUsd(call.held_microusd.unwrap_or(0)));
        self.held_in_run = self.held_in_run.plus(call.held_in_run());
    }
}

/// An increase of a run's limits by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseRow {
    pub by: Actor,
    pub amount: MicroUsd,
    pub cause: Cause,
    pub at: Timestamp,
}

/// A commit that this App made on an issue's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRow {
    pub branch: String,
    /// Whether this commit created the branch.
    #[serde(default)]
    pub begins: bool,
    /// Paths of the changed files, each with the SHA-256 hash of the new content, or `None` if the file was removed.
    pub files: Vec<(String, Option<Hash>)>,
    /// ID of the commit. `None` if the row was written before the commit and the commit's ID was never recorded.
    pub commit: Option<Oid>,
}

/// A section that a stage writes in the pull request of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionRow {
    pub branch: String,
    pub stage: String,
    /// Markdown text of the section, as posted.
    pub text: String,
}

impl SectionRow {
    /// Creates a row that marks the start of a branch. Earlier sections belong to an older branch with the same name.
    pub fn branch_start(branch: &str) -> Self {
        Self { branch: branch.to_owned(), stage: String::new(), text: String::new() }
    }

    pub fn is_branch_start(&self) -> bool {
        self.stage.is_empty()
    }
}

/// Verdict of a reviewer on one particular version of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictRow {
    pub document: Hash,
    pub round: u32,
    pub verdict: Verdict,
    pub reviewer_served: Option<String>,
    pub reviewer_family: Option<Family>,
    pub drafter_served: Option<String>,
    pub drafter_family: Option<Family>,
    pub prompt: Hash,
    pub nonce: String,
    pub why: String,
}

/// A finding, with the status that it has after a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingRow {
    /// ID of the finding, such as `F1`.
    pub id: String,
    pub round: u32,
    pub severity: String,
    pub place: String,
    pub title: String,
    pub detail: String,
    /// Status of the finding, such as `open`, `fixed` or `dismissed`.
    pub status: String,
    pub why: String,
}

/// A design that an earlier run produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastDesign {
    pub issue: IssueNo,
    /// Last verdict on the design.
    pub verdict: Verdict,
    /// Whether a person approved the design and it was then published.
    pub approved: bool,
    pub text: String,
}

/// A finding of an earlier run, with its final status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastFinding {
    /// Number of the run within this repository.
    pub run: u64,
    pub issue: IssueNo,
    /// Whether a person approved the final design and it was then published.
    pub approved: bool,
    pub finding: FindingRow,
}

/// Basis on which a document was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalKind {
    /// A person agreed with the reviewer's approval.
    Approve,
    /// A maintainer overrode the reviewer's verdict.
    Override,
    /// A person approved a document that was not reviewed.
    Unreviewed,
    /// The reviewer's APPROVED verdict was sufficient under the policy.
    Policy,
}

/// Acceptance of a document. It refers to the gate subject that people saw, or to the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRow {
    pub document: Hash,
    /// Hash of the gate's subject, which includes the document.
    pub subject: Hash,
    /// Answer of the person who approved, or `None` if the policy required no approval by a person.
    pub answer: Option<GateAnswer>,
    pub kind: ApprovalKind,
    /// Other people who had approved earlier at the same gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Actor>,
}

/// Origin of a stored text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextKind {
    /// The issue, in the form that models see.
    Issue,
    /// A document written by a model.
    Draft,
    /// A document whose format our code corrected.
    Fix,
    /// A document that a person wrote to replace the model's version.
    Person,
    /// A document that was extended by tests from the reviewer's model.
    Tests,
    /// A code change, in the form that is shown to people.
    Diff,
    /// Repository content that a model looked up.
    Look,
    /// Reasoning that a model produced before its response. It is not included in later prompts.
    Thought,
}

impl TextKind {
    /// Returns the description that the audit chain uses for texts of this kind.
    pub fn audit_text(self) -> &'static str {
        match self {
            Self::Issue => "the issue was read",
            Self::Draft => "a model wrote the document",
            Self::Fix => "code mended the document",
            Self::Person => "a person's own version was taken over",
            Self::Tests => "tests of the reviewer's model joined the document",
            Self::Diff => "people were asked about a change",
            Self::Look => "a model looked at the repository",
            Self::Thought => "a model thought before it answered",
        }
    }
}

/// Reference to a text that the run read or produced. It is stored only in the audit chain, not in a ledger table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRow {
    pub kind: TextKind,
    /// Hash of the stored text.
    pub text: Hash,
    /// Title of the issue. Set only for [`TextKind::Issue`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Hash of the issue's raw title and body on GitHub, including hidden parts. Set only for [`TextKind::Issue`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Hash>,
    /// Model that wrote the text, as named in the model's response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
}

impl TextRow {
    pub fn new(kind: TextKind, text: Hash) -> Self {
        Self { kind, text, title: None, raw: None, served: None }
    }
}

/// A row for one of the ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerRecord {
    Text(TextRow),
    Call(CallRow),
    Verdict(VerdictRow),
    Finding(FindingRow),
    Approval(ApprovalRow),
    Raise(RaiseRow),
    Commit(CommitRow),
    Section(SectionRow),
    Artifact(ArtifactRow),
    Route(RouteRow),
}

/// An artifact that a run stores for later stages of an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRow {
    pub issue: IssueNo,
    /// Kind of the artifact, such as `lld` or `answers`. Only the newest artifact of each kind is used.
    pub kind: String,
    /// Hash of the artifact's text.
    pub hash: Hash,
}

impl ArtifactRow {
    /// Artifact kind for a title and text that the App itself wrote to the issue. Only their hash is stored, not the
    /// text.
    pub const OWN_TEXT: &'static str = "own-text";
    /// Artifact kind for the lesson learned from a pushed change.
    pub const LESSON: &'static str = "lesson";
}

/// All ledger rows of a run. Each list is in the order in which the rows were first written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RunLedger {
    pub calls: Vec<CallRow>,
    pub verdicts: Vec<VerdictRow>,
    pub findings: Vec<FindingRow>,
    pub approvals: Vec<ApprovalRow>,
    pub raises: Vec<RaiseRow>,
    pub commits: Vec<CommitRow>,
    /// Every answer that was accepted at a gate of this run, with the approval rule of the gate.
    pub answers: Vec<(AnswerRow, Approvers)>,
}

/// A link of a repository's audit chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub run: RunId,
    pub visit: u64,
    pub key: String,
    pub what: String,
    pub detail: serde_json::Value,
    pub at: Timestamp,
    pub previous: Hash,
    pub hash: Hash,
}

impl AuditRow {
    /// Builds the link that follows the link with hash `previous`. The first link of a chain follows the hash of the
    /// empty string.
    pub fn link_after(previous: Option<Hash>, entry: AuditEntry, at: Timestamp) -> Self {
        let previous = previous.unwrap_or_else(|| Hash::digest(b""));
        let AuditEntry { run, visit, key, what, detail } = entry;
        let hash = Self::link_hash(previous, &run, visit, &key, &what, &detail, at);
        Self { run, visit, key, what, detail, at, previous, hash }
    }

    /// Returns whether the stored hash matches the contents of the link.
    pub fn has_valid_hash(&self) -> bool {
        self.hash
            == Self::link_hash(
                self.previous,
                &self.run,
                self.visit,
                &self.key,
                &self.what,
                &self.detail,
                self.at,
            )
    }

    fn link_hash(
        previous: Hash,
        run: &RunId,
        visit: u64,
        key: &str,
        what: &str,
        detail: &serde_json::Value,
        at: Timestamp,
    ) -> Hash {
        let (previous, run) = (previous.to_string(), run.to_string());
        let (visit, detail, at) = (visit.to_string(), detail.to_string(), at.0.to_string());
        Hash::digest_parts([&previous, &run, &visit, key, what, &detail, &at].map(str::as_bytes))
    }
}

/// An entry to append to the audit chain.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    pub run: RunId,
    pub visit: u64,
    pub key: String,
    pub what: String,
    pub detail: serde_json::Value,
}
