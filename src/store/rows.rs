//! Stored data of a run as plain types, shared with all other modules. Only the store knows how rows are stored.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Approvers, GitHubCallCount, PendingWrites};
use crate::types::{
    Actor, Cause, CommentId, Family, Hash, InstallationId, IssueNo, MicroUsd, Oid, RepoId, Role, RunId,
    Timestamp, UserId, Verb, Verdict, WorkerPool,
};

/// Trigger of a run, fixed for its whole life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTrigger {
    pub command: String,
    pub args: String,
    pub repo: RepoId,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub actor: Actor,
    /// Role of the actor at the time of the command.
    pub role: Role,
    pub cause: Cause,
    /// GitHub's time of the comment or label.
    pub at: Timestamp,
    /// Comment with the command, if it came from a comment.
    pub comment: Option<CommentId>,
    /// Free-text request that a routing run started this run for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RoutedRequest>,
}

/// Free-text request, as the routing run read it before it started this run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedRequest {
    /// Text of the request, in the form that its skill prescribes. Untrusted input.
    pub text: String,
    /// Name of the brief skill.
    pub skill: String,
    /// Confidence in thousandths.
    pub confidence: u16,
    /// Default worker pool of the skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<WorkerPool>,
}

/// Routing decision for a free-text request. The newest row per key serves as the repository's cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    /// Hash of everything the model saw: request, issue, skills, model and prompt version.
    pub key: Hash,
    pub by: UserId,
    pub comment: Option<CommentId>,
    /// First words of the request.
    pub snippet: String,
    /// Hash of the stored full text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Hash>,
    /// Decision as JSON, in the format that `documents` defines.
    pub decision: serde_json::Value,
    /// Resulting action: `begin`, `probably`, `offer`, `answer`, `decline`.
    pub lead: String,
    /// Workflow of the skill.
    pub workflow: Option<String>,
    /// Number of model calls. The next fields are their total cost (billed, or by list price) and their duration.
    pub calls: u32,
    pub cost_microusd: u64,
    /// Cost of the most expensive call.
    #[serde(default)]
    pub dearest_microusd: u64,
    pub elapsed_ms: u64,
    pub model: Option<String>,
    /// Reason why no model's response could be used.
    pub fell_back: Option<String>,
}

/// Routing decision and its consequences.
#[derive(Debug, Clone)]
pub struct PastRoute {
    pub run: RunId,
    pub issue: IssueNo,
    pub at: Timestamp,
    pub route: RouteRow,
    /// Run that the decision started.
    pub started_run: Option<RunId>,
    /// Whether a person overruled the decision within a day: stopped the started run, or started another workflow
    /// before that run was done.
    pub changed: bool,
}

/// Gate as a workflow defines it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSpec {
    /// Stage name that people may add to `/approve`, for example `lld`.
    pub stage: String,
    /// Hash of everything that an approval of this gate covers.
    pub subject: Hash,
    /// Allowed verbs, each with the people who may use it.
    pub verbs: Vec<(Verb, AllowedResponders)>,
    /// Time since which the unchanged subject is visible, by GitHub's clock.
    pub shown_at: Timestamp,
    /// People whose approvals are accepted, and the number of approvals needed.
    #[serde(flatten)]
    pub approvers: Approvers,
    /// Time to rerun the step if nobody answers.
    pub expires: Option<Timestamp>,
    /// Options to choose from; an approval names one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// People who may give an answer: everyone with at least the role, plus the listed people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AllowedResponders {
    Role(Role),
    Either {
        people: Vec<UserId>,
        /// `None` allows only the listed people.
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

    /// Returns whether this person is listed and so may answer regardless of role.
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

/// Answer of a person to a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateAnswer {
    pub cause: Cause,
    pub verb: Verb,
    pub stage: Option<String>,
    /// Prefix of a hash, as typed.
    pub hash: Option<String>,
    /// Option that the approval names, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
    pub text: String,
    pub by: Actor,
    /// Role of `by` at the time of the answer.
    pub role: Role,
    /// GitHub's time of the comment.
    pub at: Timestamp,
    pub url: Option<String>,
    /// Reviewed commit, if the answer is a review of the pull request.
    pub commit: Option<Oid>,
    /// ID of the review, if it has line comments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<u64>,
}

/// Visit of a run with its calls and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitSpan {
    pub entered_at: Timestamp,
    pub left_at: Option<Timestamp>,
    /// Type of the visit's end: `go`, `done`, `halt` or `ended`.
    pub how: Option<String>,
    /// Time of the retry, if an earlier visit ended the run and the run was retried before this visit.
    pub retried_at: Option<Timestamp>,
    /// Whether a retry ended the previous visit while the run was waiting.
    pub after_retry: bool,
    /// Calls, each with its key and start time.
    pub calls: Vec<(String, Timestamp, CallRow)>,
    /// Journal entries that are not calls, each with key, start and completion.
    pub entries: Vec<(String, Timestamp, Option<Timestamp>)>,
}

/// Result of a completed run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCompletion {
    pub summary: String,
    pub url: Option<String>,
}

/// Status of a run. Whether a worker has claimed the run is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    Ready,
    Asking,
    Waiting,
    /// The engine has decided to end the run, but has not informed people yet.
    Halting,
    Done,
    Failed,
    Stopped,
}

impl RunStatus {
    /// Returns whether this run may still take a step.
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }
}

/// Gate of a run; a run has at most one open gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRow {
    pub id: u64,
    pub run: RunId,
    pub spec: GateSpec,
    /// Number of answers accepted at this gate so far.
    pub answers: u32,
    /// Newest remark about an edit of the gate's comment.
    pub comment_edit: Option<RunRemark>,
}

/// Accepted answer and the subject it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRow {
    pub id: u64,
    pub gate: u64,
    /// Subject of the gate when the answer was accepted.
    pub subject: Hash,
    pub answer: GateAnswer,
}

/// Subject of a [`RunRemark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemarkKind {
    Dismiss,
    MustFix,
    /// Somebody edited a gate comment; `finding` is the number of the visit that wrote it.
    #[serde(rename = "touched")]
    CommentEdited,
    /// Another run changes files that this run also changes.
    Overlaps,
    /// The pushed branch or its pull request changed, so the run must check it.
    #[serde(rename = "look")]
    CheckPushed,
    /// A person reviewed the pushed changes; `finding` is the review's ID.
    Reviewed,
    /// The settings name another reviewer; `text` is that reviewer.
    Reviewer,
}

impl RemarkKind {
    /// Stored name of [`Self::CommentEdited`].
    pub(super) const COMMENT_EDITED: &str = "touched";
}

/// Message to a live run: a person's reply to a finding, an edit of its gate's comment, or news from another run. A
/// remark is data and starts nothing; the run's next step reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRemark {
    pub cause: Cause,
    #[serde(rename = "verb")]
    pub kind: RemarkKind,
    /// Finding it is about, such as `F3`. For an edit of a gate's comment, the visit that wrote the comment.
    pub finding: String,
    pub text: String,
    pub by: Actor,
    /// Role of `by` at the time of the remark.
    pub role: Role,
    /// GitHub's time of the comment.
    pub at: Timestamp,
}

impl RunRemark {
    /// Maximum delay before a waiting run reads [`RemarkKind::CheckPushed`].
    pub const CHECK_PUSHED_WITHIN: Duration = Duration::from_secs(20);

    /// Returns the maximum delay before an asking run reads this remark. The delay lets the run handle frequent events
    /// together.
    pub fn read_within(&self) -> Duration {
        if self.kind == RemarkKind::CheckPushed { Self::CHECK_PUSHED_WITHIN } else { Duration::ZERO }
    }
}

/// Request to end runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRow {
    pub cause: Cause,
    pub by: Actor,
    pub why: String,
    pub at: Timestamp,
}

/// Run to create.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub workflow: String,
    pub version: u32,
    pub trigger: RunTrigger,
    pub step: String,
    pub state: Vec<u8>,
}

/// Current state of a run.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub id: RunId,
    pub workflow: String,
    /// Version of the workflow when the run started.
    pub version: u32,
    pub trigger: RunTrigger,
    pub status: RunStatus,
    /// Step in its serde form.
    pub step: String,
    pub state: Vec<u8>,
    /// Number of this checkpoint in the run's trail, from 1.
    pub visit: u64,
    /// Transitions since a person last acted.
    pub moves: u32,
    /// Failed attempts at this visit.
    pub attempts: u32,
    pub due: Option<Timestamp>,
    /// Whether a worker on this or another node has claimed it.
    pub taken: bool,
    /// Whether this process ignores the run because it could not read it.
    pub parked: bool,
    /// Reason why the engine ends the run, as the engine's JSON.
    pub halt: Option<String>,
    /// Reason why the run waits or ended, for people.
    pub why: Option<String>,
    pub outcome: Option<RunCompletion>,
    /// GitHub API calls so far.
    pub calls: GitHubCallCount,
    pub cancel: Option<CancelRow>,
    /// Open gate.
    pub gate: Option<GateRow>,
    /// Oldest answer at the open gate that no step has received yet.
    pub answer: Option<AnswerRow>,
    /// Number of remarks that a step may read: the remarks recorded before the last save.
    pub remarks: u64,
    pub started_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Right to take one step of one run, for one save. The store refuses a write if the run has a newer lease.
#[derive(Debug, Clone)]
pub struct RunLease {
    pub run: RunRow,
    /// Lease number of the run at the claim; it grows with every save.
    pub number: u64,
    /// Boot, or node, that claimed it.
    pub epoch: i64,
    /// Number of this claim within the boot.
    pub claim: u64,
    pub pending_writes: Arc<PendingWrites>,
}

impl RunLease {
    /// Returns when the run is due again if the step left the run unchanged and still waiting for the same event. The
    /// caller then skips the save, since a run may wait for weeks and wake every minute.
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
    /// The issue has a live run of this workflow already.
    AlreadyLive(Box<R>),
    /// The same cause has already started this run.
    Duplicate(RunId),
}

/// Result of recording an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerReceipt {
    Accepted,
    Duplicate,
    /// The gate has closed or changed its subject since the person saw it.
    Changed,
}

/// State of a journal entry at lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalLookup {
    /// The caller may begin. `interrupted`: an earlier attempt began and did not finish.
    Begun {
        interrupted: bool,
    },
    Done(Vec<u8>),
}

/// Result of a step, saved in one transaction together with its effect on gate and trail.
#[derive(Debug, Clone)]
pub enum Checkpoint {
    /// Continue with the next visit; the gate closes and the answer is consumed.
    Go { step: String, state: Vec<u8>, moves: u32 },
    /// Wait for a person in the same visit; if the step received an answer, it is stored as refused.
    Ask { state: Vec<u8>, gate: GateSpec },
    /// Run the same visit again at `until`; gate and answer stay unchanged. A wait that changes nothing else is not
    /// saved, so the next boot may run the visit earlier.
    Wait { state: Vec<u8>, until: Timestamp, why: String },
    /// Complete the run. The follow-up run starts in the same transaction, unless this run was cancelled or the issue
    /// has a live run of that workflow.
    Done { state: Vec<u8>, outcome: RunCompletion, then: Option<Box<NewRun>> },
    /// End the run, after one more visit that informs people.
    Halt { halt: String, why: String },
    /// End the run; people were informed, or could not be.
    Ended { status: RunStatus, why: String },
    /// Run the same visit again at `due`; only the journal of this attempt is kept.
    Retry { attempts: u32, due: Timestamp, why: String },
    /// Skip the run in this process, which cannot read it; the next process may.
    Park { why: String },
}

/// Scope of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseScope {
    Server,
    Repo(RepoId),
}

/// Active pause. While it lasts, no step in its scope starts. A pause survives restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivePause {
    pub scope: PauseScope,
    pub by: String,
    pub why: String,
    pub at: Timestamp,
}

impl ActivePause {
    /// Returns when the pause of a repository began, or `None` if it is not paused.
    pub fn since(pauses: &[Self], repo: RepoId) -> Option<Timestamp> {
        Self::for_repository(pauses, repo).map(|pause| pause.at)
    }

    /// Returns the earliest pause that covers a repository.
    pub fn for_repository(pauses: &[Self], repo: RepoId) -> Option<&Self> {
        let holds = |pause: &&Self| [PauseScope::Server, PauseScope::Repo(repo)].contains(&pause.scope);
        pauses.iter().filter(holds).min_by_key(|pause| pause.at)
    }
}

/// Result of a retry request.
#[derive(Debug, Clone)]
pub enum RetryDecision<R = RunRow> {
    Resumed,
    /// The same cause has already retried this run.
    Duplicate,
    NoRun,
    /// The run has not failed and is not parked. If it waits, it waits only for a person's answer.
    NotFailed(Box<R>),
    /// Another run of its workflow is live on its issue.
    OtherRunLive(Box<R>),
}

impl Checkpoint {
    /// Returns whether this checkpoint stores a new workflow state.
    pub(super) fn has_state(&self) -> bool {
        matches!(self, Self::Go { .. } | Self::Ask { .. } | Self::Wait { .. } | Self::Done { .. })
    }
}

/// Filter of a run list.
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
    /// Written before the call; the cost is reserved.
    Reserved,
    Done,
    Failed,
    /// Started, but its outcome is unknown: it may have been billed.
    Lost,
}

/// Omitted part of a prompt segment that did not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedSegment {
    /// Name of the segment: `files`, `issue` …
    pub what: String,
    /// Number of omitted files or lines.
    pub pieces: usize,
    pub bytes: usize,
}

/// One model call in the cost ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    pub role: String,
    pub provider: String,
    /// Requested model.
    pub asked: String,
    /// Model that the response names.
    pub served: Option<String>,
    /// Entry of `[models.successors]` that allows the model that responded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    pub family: Option<Family>,
    pub prompt: Hash,
    /// Segments that did not fit the prompt. Older rows lack this field.
    #[serde(default)]
    pub cut: Vec<OmittedSegment>,
    pub status: CallStatus,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read: u64,
    pub cache_written: u64,
    pub cost_microusd: Option<u64>,
    /// Whether the cost was billed rather than estimated by list price.
    pub billed: bool,
    /// Amount reserved for the call in micro-dollars: the maximum that may be billed. `None` once the cost is known,
    /// and for unbilled calls.
    #[serde(default)]
    pub held_microusd: Option<u64>,
    /// Likely part of `held_microusd`: the prompt and the received part of the response. Older rows lack it.
    #[serde(default)]
    pub likely_microusd: Option<u64>,
    /// Operator who settled the reserved amount from the bill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<String>,
    pub elapsed_ms: u64,
    pub attempts: u32,
    /// Kind of the failure. Older versions stored it as `RateLimited { reset: None }`; see [`Self::error_kind`].
    pub error: Option<String>,
}

impl CallRow {
    /// Name of the failure's kind, such as `rate_limited`, whichever version stored it.
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

    /// Returns the amount that counts against daily and monthly caps: the billed cost and the whole reservation.
    pub fn shared_cap_amount(&self) -> MicroUsd {
        self.billed_cost().plus(MicroUsd(self.held_microusd.unwrap_or(0)))
    }

    /// Returns the amount that counts against stage and run caps. After the call, only the likely part of the
    /// reservation is included.
    pub fn run_cap_amount(&self) -> MicroUsd {
        self.billed_cost().plus(self.held_in_run())
    }

    /// Removes the reservation after operator `by` checked the bill. `more` is the cost on the bill in addition to the
    /// recorded cost.
    pub fn settle(mut self, more: MicroUsd, by: String) -> Self {
        if more > MicroUsd(0) {
            (self.cost_microusd, self.billed) = (Some(self.billed_cost().plus(more).0), true);
        }
        if self.status == CallStatus::Reserved {
            self.status = CallStatus::Lost;
        }
        Self { held_microusd: None, likely_microusd: None, settled: Some(by), ..self }
    }

    /// Marks a call that no longer runs and whose outcome is unknown.
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

/// Row of the cost ledger with its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostRow {
    pub run: RunId,
    pub visit: u64,
    pub key: String,
    pub workflow: String,
    pub issue: IssueNo,
    pub installation: InstallationId,
    /// Time of the request.
    pub at: Timestamp,
    pub call: CallRow,
}

/// Sums over calls. The amounts are of different kinds and must not be added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// Number of calls.
    pub calls: u64,
    #[serde(rename = "billed_microusd")]
    pub billed: MicroUsd,
    /// Amount reserved for running calls and calls of unknown cost.
    #[serde(rename = "held_microusd")]
    pub held: MicroUsd,
    /// Part of `held` that counts against stage and run caps.
    #[serde(rename = "held_in_run_microusd", default)]
    pub held_in_run: MicroUsd,
    /// List price of calls that a subscription covers.
    #[serde(rename = "notional_microusd")]
    pub notional: MicroUsd,
    /// Number of calls to models without a price.
    pub unpriced: u64,
}

impl Spending {
    pub fn from_calls<'a>(calls: impl IntoIterator<Item = &'a CallRow>) -> Self {
        let mut sum = Self::default();
        calls.into_iter().for_each(|call| sum.add(call));
        sum
    }

    /// Returns one sum per value of `key`, in order of first appearance.
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

/// Increase of a run's caps by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseRow {
    pub by: Actor,
    pub amount: MicroUsd,
    pub cause: Cause,
    pub at: Timestamp,
}

/// Commit by this App on an issue's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRow {
    pub branch: String,
    /// Whether the branch did not exist before this commit.
    #[serde(default)]
    pub begins: bool,
    /// Paths with the SHA-256 of their new content, or `None` for a removed file.
    pub files: Vec<(String, Option<Hash>)>,
    /// Commit ID. `None` if the row was written before the commit and the commit's completion was not recorded.
    pub commit: Option<Oid>,
}

/// Section that one stage writes in a branch's pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionRow {
    pub branch: String,
    pub stage: String,
    /// Markdown as posted.
    pub text: String,
}

impl SectionRow {
    /// Marks the start of a branch: earlier sections belong to an older branch of the same name.
    pub fn branch_start(branch: &str) -> Self {
        Self { branch: branch.to_owned(), stage: String::new(), text: String::new() }
    }

    pub fn is_branch_start(&self) -> bool {
        self.stage.is_empty()
    }
}

/// Verdict of a reviewer on exactly one document.
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

/// Finding in its status after a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingRow {
    /// `F1`, `F2` …
    pub id: String,
    pub round: u32,
    pub severity: String,
    pub place: String,
    pub title: String,
    pub detail: String,
    /// `open`, `fixed`, `dismissed` …
    pub status: String,
    pub why: String,
}

/// Design from an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastDesign {
    pub issue: IssueNo,
    /// Last verdict on it.
    pub verdict: Verdict,
    /// Whether a person approved it and it was published.
    pub approved: bool,
    pub text: String,
}

/// Finding of an earlier run in its final status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastFinding {
    /// Number of the run in this repository.
    pub run: u64,
    pub issue: IssueNo,
    /// Whether a person approved the final design and it was published.
    pub approved: bool,
    pub finding: FindingRow,
}

/// Basis on which a document was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalKind {
    /// A person agreed with the reviewer.
    Approve,
    /// A maintainer overrode the verdict.
    Override,
    /// A person approved a document without a review.
    Unreviewed,
    /// The reviewer's APPROVED suffices under the policy.
    Policy,
}

/// Acceptance of a document, bound to the gate subject that people saw or to the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRow {
    pub document: Hash,
    /// Subject of the gate, which covers the document.
    pub subject: Hash,
    /// Answer of the approving person, or `None` if the policy required no approval by a person.
    pub answer: Option<GateAnswer>,
    pub kind: ApprovalKind,
    /// Other people who approved earlier at the same gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Actor>,
}

/// Origin of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextKind {
    /// The issue as models see it.
    Issue,
    /// A document written by a model.
    Draft,
    /// A document whose format code corrected.
    Fix,
    /// A document that a person replaced with their own version.
    Person,
    /// A document extended by tests that the reviewer's model wrote.
    Tests,
    /// A code change as people are shown it.
    Diff,
    /// Repository content that a model looked up.
    Look,
    /// A model's reasoning before its response. No later prompt contains it.
    Thought,
}

impl TextKind {
    /// Returns the description in the audit chain.
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

/// Reference to a text that the run read or produced. No ledger table has it, only the audit chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRow {
    pub kind: TextKind,
    /// Hash of the stored text.
    pub text: Hash,
    /// Title of the issue, for [`TextKind::Issue`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Hash of the issue's raw title and body on GitHub, including hidden parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Hash>,
    /// Model that wrote it, as the response names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
}

impl TextRow {
    pub fn new(kind: TextKind, text: Hash) -> Self {
        Self { kind, text, title: None, raw: None, served: None }
    }
}

/// Row for one of the ledgers.
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

/// Artifact of a run for later stages of an issue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRow {
    pub issue: IssueNo,
    /// Kind, such as `lld` or `answers`; only the newest artifact of each kind is used.
    pub kind: String,
    /// Hash of its text.
    pub hash: Hash,
}

impl ArtifactRow {
    /// Artifact kind for a title and text that we wrote to the issue ourselves. Only their hash is stored, not the
    /// text.
    pub const OWN_TEXT: &'static str = "own-text";
    /// Artifact kind for the lesson from a pushed change.
    pub const LESSON: &'static str = "lesson";
}

/// All ledger rows of one run, each list in order of first writing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RunLedger {
    pub calls: Vec<CallRow>,
    pub verdicts: Vec<VerdictRow>,
    pub findings: Vec<FindingRow>,
    pub approvals: Vec<ApprovalRow>,
    pub raises: Vec<RaiseRow>,
    pub commits: Vec<CommitRow>,
    /// Every answer accepted at a gate of this run, with that gate's approval rule.
    pub answers: Vec<(AnswerRow, Approvers)>,
}

/// Link of a repository's audit chain.
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
    /// Builds the link after `previous`. The first link follows the hash of the empty string.
    pub fn link_after(previous: Option<Hash>, entry: AuditEntry, at: Timestamp) -> Self {
        let previous = previous.unwrap_or_else(|| Hash::digest(b""));
        let AuditEntry { run, visit, key, what, detail } = entry;
        let hash = Self::link_hash(previous, &run, visit, &key, &what, &detail, at);
        Self { run, visit, key, what, detail, at, previous, hash }
    }

    /// Returns whether the hash matches the row.
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

/// Entry for the audit chain.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    pub run: RunId,
    pub visit: u64,
    pub key: String,
    pub what: String,
    pub detail: serde_json::Value,
}
