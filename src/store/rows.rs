//! What is kept about a run, as plain data: the floors above share these types, only this room
//! knows how they lie on disk.

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Approvers, GitHubCallCount, PendingWrites};
use crate::types::{
    Actor, Cause, CommentId, Family, Hash, InstallationId, IssueNo, MicroUsd, Oid, RepoId, Role, RunId,
    Timestamp, UserId, Verb, Verdict, WorkerPool,
};

/// What started a run, pinned for its whole life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTrigger {
    pub command: String,
    pub args: String,
    pub repo: RepoId,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub actor: Actor,
    /// The actor's role when they said it.
    pub role: Role,
    pub cause: Cause,
    /// GitHub's time of the comment or label.
    pub at: Timestamp,
    /// The comment that said it, if one did.
    pub comment: Option<CommentId>,
    /// What was asked for in free words, where a run was begun for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RoutedRequest>,
}

/// A request in free words, as it was read by the run that began another for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoutedRequest {
    /// The request and what a brief of its kind tells: anybody's words.
    pub text: String,
    /// The kind: the name of a brief skill.
    pub skill: String,
    /// In thousandths.
    pub confidence: u16,
    /// Where that kind belongs, if nothing else says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<WorkerPool>,
}

/// How a request in free words was read. A repository's newest of the same key is its cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteRow {
    /// Of all that the model was asked by: request, issue, skills, model and version of the prompt.
    pub key: Hash,
    pub by: UserId,
    pub comment: Option<CommentId>,
    /// Its first words.
    pub snippet: String,
    /// All that was read of it, stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Hash>,
    /// As the documents' room has it.
    pub decision: serde_json::Value,
    /// What followed: `begin`, `probably`, `offer`, `answer`, `decline`.
    pub lead: String,
    /// The workflow of the skill.
    pub workflow: Option<String>,
    /// Calls that were made for it, what they cost or would have by list price, and how long they took.
    pub calls: u32,
    pub cost_microusd: u64,
    /// The one of them that cost most.
    #[serde(default)]
    pub dearest_microusd: u64,
    pub elapsed_ms: u64,
    pub model: Option<String>,
    /// Why no model's answer could be used.
    pub fell_back: Option<String>,
}

/// A decision as it is looked back on.
#[derive(Debug, Clone)]
pub struct PastRoute {
    pub run: RunId,
    pub issue: IssueNo,
    pub at: Timestamp,
    pub route: RouteRow,
    /// The run that was begun for it.
    pub started_run: Option<RunId>,
    /// Within a day somebody stopped that run, or began another workflow before it was done.
    pub changed: bool,
}

/// A gate as a workflow asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateSpec {
    /// The word people may add to `/approve`, for example `lld`.
    pub stage: String,
    /// Hash of everything an approval here is bound to.
    pub subject: Hash,
    /// What may be answered, and by whom.
    pub verbs: Vec<(Verb, AllowedResponders)>,
    /// Since when the subject is on the page, unchanged, by GitHub's clock.
    pub shown_at: Timestamp,
    /// Whose approval counts here, and how many it takes.
    #[serde(flatten)]
    pub approvers: Approvers,
    /// When to run the step again although nobody answered.
    pub expires: Option<Timestamp>,
    /// In which of several ways it may be accepted: an approval names one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Who may give an answer: whoever has at least the role, or is one of the people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum AllowedResponders {
    Role(Role),
    Either {
        people: Vec<UserId>,
        /// None: only the people.
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

    /// May this person answer whatever their role?
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

/// What a person said to a gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateAnswer {
    pub cause: Cause,
    pub verb: Verb,
    pub stage: Option<String>,
    /// The beginning of a hash, as typed.
    pub hash: Option<String>,
    /// Which way of accepting it names, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
    pub text: String,
    pub by: Actor,
    /// The role of `by` when they said it.
    pub role: Role,
    /// GitHub's time of the comment.
    pub at: Timestamp,
    pub url: Option<String>,
    /// The commit that was looked at, when the answer was a review on the pull request.
    pub commit: Option<Oid>,
    /// Its number, where it says something at lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<u64>,
}

/// A visit as it is looked back on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitSpan {
    pub entered_at: Timestamp,
    pub left_at: Option<Timestamp>,
    /// `go`, `done`, `halt`, `ended`.
    pub how: Option<String>,
    /// When the run was tried again that had ended before this visit.
    pub retried_at: Option<Timestamp>,
    /// The visit before was left because the run that waited there was tried again.
    pub after_retry: bool,
    /// Each with its key and when it was asked.
    pub calls: Vec<(String, Timestamp, CallRow)>,
    /// What else went through the journal: its key, when it began, when it was done.
    pub entries: Vec<(String, Timestamp, Option<Timestamp>)>,
}

/// How a run ended well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCompletion {
    pub summary: String,
    pub url: Option<String>,
}

/// What a run waits for. Whether a worker holds it right now is known in memory alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    Ready,
    Asking,
    Waiting,
    /// It was decided to end it; people have not been told yet.
    Halting,
    Done,
    Failed,
    Stopped,
}

impl RunStatus {
    /// May this run still take a step?
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }
}

/// A gate of a run; one run has at most one that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRow {
    pub id: u64,
    pub run: RunId,
    pub spec: GateSpec,
    /// Answers that were accepted at this gate so far.
    pub answers: u32,
    /// The newest remark that somebody changed the comment which asks.
    pub comment_edit: Option<RunRemark>,
}

/// An accepted answer and what its giver was looking at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRow {
    pub id: u64,
    pub gate: u64,
    /// The gate's subject when the answer was accepted.
    pub subject: Hash,
    pub answer: GateAnswer,
}

/// What a [`RunRemark`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RemarkKind {
    Dismiss,
    MustFix,
    /// Somebody edited a gate comment; its number is the text.
    #[serde(rename = "touched")]
    CommentEdited,
    /// Another run's work changes files of this run.
    Overlaps,
    /// Something happened to what the run pushed.
    #[serde(rename = "look")]
    CheckPushed,
    /// A review of what the run pushed; its number is the finding.
    Reviewed,
    /// The settings name another reviewer, which is the text.
    Reviewer,
}

impl RemarkKind {
    /// Spelling in stored rows of [`Self::CommentEdited`].
    pub(super) const COMMENT_EDITED: &str = "touched";
}

/// What a person says of a finding while the run lives, or does to the comment of its gate, or another run has to tell it:
/// data, which starts nothing. A step reads it when it looks next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRemark {
    pub cause: Cause,
    #[serde(rename = "verb")]
    pub kind: RemarkKind,
    /// The finding it is about: `F3`; of a gate's comment the visit that wrote it.
    pub finding: String,
    pub text: String,
    pub by: Actor,
    /// The role of `by` when they said it.
    pub role: Role,
    /// GitHub's time of the comment.
    pub at: Timestamp,
}

impl RunRemark {
    /// Maximum delay before a waiting run reads [`RemarkKind::CheckPushed`].
    pub const CHECK_PUSHED_WITHIN: Duration = Duration::from_secs(20);

    /// How long a run that waits for people may leave it unread: what happens often is looked at once for all.
    pub fn read_within(&self) -> Duration {
        if self.kind == RemarkKind::CheckPushed { Self::CHECK_PUSHED_WITHIN } else { Duration::ZERO }
    }
}

/// Someone's wish that runs end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRow {
    pub cause: Cause,
    pub by: Actor,
    pub why: String,
    pub at: Timestamp,
}

/// A run that is to be.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub workflow: String,
    pub version: u32,
    pub trigger: RunTrigger,
    pub step: String,
    pub state: Vec<u8>,
}

/// A run as it stands.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub id: RunId,
    pub workflow: String,
    /// The workflow's version at the start.
    pub version: u32,
    pub trigger: RunTrigger,
    pub status: RunStatus,
    /// The step's serde form.
    pub step: String,
    pub state: Vec<u8>,
    /// The number of this checkpoint in the run's trail, from 1.
    pub visit: u64,
    /// Edges walked since a person last spoke.
    pub moves: u32,
    /// Failed attempts at this visit.
    pub attempts: u32,
    pub due: Option<Timestamp>,
    /// A worker of this process holds it.
    pub taken: bool,
    /// This process could not read it and leaves it alone.
    pub parked: bool,
    /// Why it is being ended: the engine's own JSON.
    pub halt: Option<String>,
    /// What keeps or ended it, for people.
    pub why: Option<String>,
    pub outcome: Option<RunCompletion>,
    /// What it has asked of GitHub so far.
    pub calls: GitHubCallCount,
    pub cancel: Option<CancelRow>,
    /// The open gate.
    pub gate: Option<GateRow>,
    /// The oldest answer at the open gate that no step has had yet.
    pub answer: Option<AnswerRow>,
    /// How many of its remarks a step may read: those from before it was saved last.
    pub remarks: u64,
    pub started_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The right to take one step of one run, for one save. A writer whose lease is not the run's last is refused.
#[derive(Debug, Clone)]
pub struct RunLease {
    pub run: RunRow,
    /// The run's version when it was taken; it grows with every save.
    pub number: u64,
    /// The boot that took it.
    pub epoch: i64,
    /// Which of that boot's claims this is.
    pub claim: u64,
    pub pending_writes: Arc<PendingWrites>,
}

impl RunLease {
    /// When the run wants to be looked at again, where the step left it as it was: it waited, and waits on for the same.
    /// A write for that, every minute for weeks, would say nothing.
    pub(crate) fn unchanged_wait(&self, left: &Checkpoint) -> Option<Timestamp> {
        let Checkpoint::Wait { state, until, why } = left else { return None };
        let run = &self.run;
        let same = run.status == RunStatus::Waiting
            && (run.attempts, run.why.as_deref()) == (0, Some(why.as_str()))
            && run.state == *state;
        (same && run.gate.is_none() && self.pending_writes.is_empty()).then_some(*until)
    }
}

/// What `start` did.
#[derive(Debug, Clone)]
pub enum StartDecision<R = RunRow> {
    New(RunId),
    /// A run of this workflow lives on this issue.
    AlreadyLive(Box<R>),
    /// This cause started that run before.
    Duplicate(RunId),
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerReceipt {
    Accepted,
    Duplicate,
    /// The gate closed, or asks about something else, since it was looked at.
    Changed,
}

/// What a journal entry held when it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalLookup {
    /// Now begun. `interrupted`: an earlier attempt had begun it and did not finish.
    Begun {
        interrupted: bool,
    },
    Done(Vec<u8>),
}

/// What a step leaves behind, saved in one transaction with what it implies for gate and trail.
#[derive(Debug, Clone)]
pub enum Checkpoint {
    /// On to the next visit; the gate closes, the answer it went on with is consumed.
    Go { step: String, state: Vec<u8>, moves: u32 },
    /// The same visit waits for a person; an answer it was given counts as refused.
    Ask { state: Vec<u8>, gate: GateSpec },
    /// The same visit again at `until`; gate and answer stay as they are. A run that waited for this already is not
    /// written: it may be looked at earlier by the next boot.
    Wait { state: Vec<u8>, until: Timestamp, why: String },
    /// What follows starts in the same transaction, unless this run was stopped, or one of that workflow lives there.
    Done { state: Vec<u8>, outcome: RunCompletion, then: Option<Box<NewRun>> },
    /// Ends here, on a visit of its own that tells people.
    Halt { halt: String, why: String },
    /// People were told (or could not be).
    Ended { status: RunStatus, why: String },
    /// The same visit again at `due`; nothing of the attempt is kept but its journal.
    Retry { attempts: u32, due: Timestamp, why: String },
    /// This process cannot read it; the next may.
    Park { why: String },
}

/// What a pause holds back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PauseScope {
    Server,
    Repo(RepoId),
}

/// While it stands, no step of its scope begins; it outlives restarts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivePause {
    pub scope: PauseScope,
    pub by: String,
    pub why: String,
    pub at: Timestamp,
}

impl ActivePause {
    /// Since when one of these holds a repository back, if one does.
    pub fn since(pauses: &[Self], repo: RepoId) -> Option<Timestamp> {
        Self::for_repository(pauses, repo).map(|pause| pause.at)
    }

    /// The earliest of these that holds a repository back.
    pub fn for_repository(pauses: &[Self], repo: RepoId) -> Option<&Self> {
        let holds = |pause: &&Self| [PauseScope::Server, PauseScope::Repo(repo)].contains(&pause.scope);
        pauses.iter().filter(holds).min_by_key(|pause| pause.at)
    }
}

/// What became of the wish that a run be tried again.
#[derive(Debug, Clone)]
pub enum RetryDecision<R = RunRow> {
    Resumed,
    /// This cause made it go before.
    Duplicate,
    NoRun,
    /// It neither failed nor waits, for a person's answer apart, nor is parked.
    NotFailed(Box<R>),
    /// Another run of its workflow lives on its issue.
    OtherRunLive(Box<R>),
}

impl Checkpoint {
    /// Does it keep what the step made of the run's state?
    pub(super) fn has_state(&self) -> bool {
        matches!(self, Self::Go { .. } | Self::Ask { .. } | Self::Wait { .. } | Self::Done { .. })
    }
}

/// Which runs to list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RunFilter {
    pub repo: Option<RepoId>,
    pub issue: Option<IssueNo>,
    pub live_only: bool,
}

/// How far a paid call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallStatus {
    /// Written before the call; its cost is the reservation.
    Reserved,
    Done,
    Failed,
    /// Begun and never seen to end: it may have been billed.
    Lost,
}

/// What of one segment of a prompt its model was not shown, for want of room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OmittedSegment {
    /// The segment: `files`, `issue` …
    pub what: String,
    /// Files, or lines.
    pub pieces: usize,
    pub bytes: usize,
}

/// One model call in the cost ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRow {
    pub role: String,
    pub provider: String,
    /// The model that was asked for.
    pub asked: String,
    /// The model that says it answered.
    pub served: Option<String>,
    /// The model under `[models.successors]` for which the one that answered is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    pub family: Option<Family>,
    pub prompt: Hash,
    /// What the prompt had no room for. Rows from before this was kept say nothing of it.
    #[serde(default)]
    pub cut: Vec<OmittedSegment>,
    pub status: CallStatus,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read: u64,
    pub cache_written: u64,
    pub cost_microusd: Option<u64>,
    /// The cost was billed, not reckoned.
    pub billed: bool,
    /// Micro-dollars held back for it: what may be on the bill for all anybody knows. None once the cost is known, and
    /// where nothing is billed.
    #[serde(default)]
    pub held_microusd: Option<u64>,
    /// The likely part of `held_microusd`: the prompt and the received part of the answer. Older rows don't have it.
    #[serde(default)]
    pub likely_microusd: Option<u64>,
    /// The operator who settled the held amount from the bill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<String>,
    pub elapsed_ms: u64,
    pub attempts: u32,
    pub error: Option<String>,
}

impl CallRow {
    /// Amount that counts against the caps of a day and a month: all that may be billed.
    pub fn shared_cap_amount(&self) -> MicroUsd {
        self.billed_cost().plus(MicroUsd(self.held_microusd.unwrap_or(0)))
    }

    /// Amount that counts against the caps of a stage and a run: after the call, its likely cost.
    pub fn run_cap_amount(&self) -> MicroUsd {
        self.billed_cost().plus(self.held_in_run())
    }

    /// Nothing is held for it any more: `by` looked at the bill, which shows `more` than was counted.
    pub fn settle(mut self, more: MicroUsd, by: String) -> Self {
        if more > MicroUsd(0) {
            (self.cost_microusd, self.billed) = (Some(self.billed_cost().plus(more).0), true);
        }
        if self.status == CallStatus::Reserved {
            self.status = CallStatus::Lost;
        }
        Self { held_microusd: None, likely_microusd: None, settled: Some(by), ..self }
    }

    /// Its end is not known, and it goes on no more.
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

/// A row of the cost ledger with where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CostRow {
    pub run: RunId,
    pub visit: u64,
    pub key: String,
    pub workflow: String,
    pub issue: IssueNo,
    pub installation: InstallationId,
    /// When it was asked.
    pub at: Timestamp,
    pub call: CallRow,
}

/// What some calls came to, each amount for itself: they are of different money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spending {
    /// Calls that were made.
    pub calls: u64,
    #[serde(rename = "billed_microusd")]
    pub billed: MicroUsd,
    /// Held back for calls under way, and for those of which nobody knows what they cost.
    #[serde(rename = "held_microusd")]
    pub held: MicroUsd,
    /// The part of it that counts for a stage and a run.
    #[serde(rename = "held_in_run_microusd", default)]
    pub held_in_run: MicroUsd,
    /// By list price, of what a subscription pays.
    #[serde(rename = "notional_microusd")]
    pub notional: MicroUsd,
    /// Calls of models without a price.
    pub unpriced: u64,
}

impl Spending {
    pub fn from_calls<'a>(calls: impl IntoIterator<Item = &'a CallRow>) -> Self {
        let mut sum = Self::default();
        calls.into_iter().for_each(|call| sum.add(call));
        sum
    }

    /// One sum for each value of `key`, in the order they first come.
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

/// By how much a person raised the caps of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseRow {
    pub by: Actor,
    pub amount: MicroUsd,
    pub cause: Cause,
    pub at: Timestamp,
}

/// A commit of ours on an issue's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRow {
    pub branch: String,
    /// There was no such branch, or none any more.
    #[serde(default)]
    pub begins: bool,
    /// Paths, and sha256 of what was put there; none where a file was removed.
    pub files: Vec<(String, Option<Hash>)>,
    /// None: it was written down before the commit, and not seen to be made.
    pub commit: Option<Oid>,
}

/// What one stage says on the pull request of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionRow {
    pub branch: String,
    pub stage: String,
    /// Markdown as it was posted.
    pub text: String,
}

impl SectionRow {
    /// The branch begins: whatever was said on one of its name before is of another.
    pub fn branch_start(branch: &str) -> Self {
        Self { branch: branch.to_owned(), stage: String::new(), text: String::new() }
    }

    pub fn is_branch_start(&self) -> bool {
        self.stage.is_empty()
    }
}

/// What a reviewer said of exactly one document.
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

/// A finding as it stands after a round.
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

/// The design that an earlier run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastDesign {
    pub issue: IssueNo,
    /// The last one on it.
    pub verdict: Verdict,
    /// Did a person agree with it, and was it published?
    pub approved: bool,
    pub text: String,
}

/// A finding of an earlier run, as it stood in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastFinding {
    /// Of this repository's runs.
    pub run: u64,
    pub issue: IssueNo,
    /// Did a person agree with the design in the end, and was it published?
    pub approved: bool,
    pub finding: FindingRow,
}

/// On what word a document was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalKind {
    /// A person agreed with the reviewer.
    Approve,
    /// A maintainer waived the verdict.
    Override,
    /// A person agreed with what nobody reviewed.
    Unreviewed,
    /// The reviewer's APPROVED alone: the policy asks nobody.
    Policy,
}

/// A document's acceptance, bound to what people were shown or to the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRow {
    pub document: Hash,
    /// The gate's subject, which covers the document.
    pub subject: Hash,
    /// The person's; none where the policy asked nobody.
    pub answer: Option<GateAnswer>,
    pub kind: ApprovalKind,
    /// Who had approved it before at the same gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Actor>,
}

/// How a text came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TextKind {
    /// The issue, as models are shown it.
    Issue,
    /// A model wrote the document.
    Draft,
    /// Code mended its form.
    Fix,
    /// A person's own version took the place of ours.
    Person,
    /// Tests that the reviewer's model wrote joined those of the document.
    Tests,
    /// How code changes, as people are asked about it.
    Diff,
    /// What a model was shown of the repository because it asked.
    Look,
    /// What a model thought before it answered. No model is told of it again.
    Thought,
}

impl TextKind {
    /// As the audit chain tells it.
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

/// A text that the run worked from or made. It is on the audit chain alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRow {
    pub kind: TextKind,
    /// Of the stored text.
    pub text: Hash,
    /// Of the issue: its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Of the issue: the hash of title and body as they were on GitHub, with what was hidden in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Hash>,
    /// The model that wrote it, by its own word.
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

/// What a run left for the stages that follow on an issue, which need not be its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRow {
    pub issue: IssueNo,
    /// `lld`, `answers`; of each the newest counts.
    pub kind: String,
    /// Of its text.
    pub hash: Hash,
}

impl ArtifactRow {
    /// The kind of what an issue's title and text hash to that we wrote there: no text is stored under that hash.
    pub const OWN_TEXT: &'static str = "own-text";
    /// The kind of what came of a change once it was pushed.
    pub const LESSON: &'static str = "lesson";
}

/// Everything the ledgers hold about one run, each list in the order it was first written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RunLedger {
    pub calls: Vec<CallRow>,
    pub verdicts: Vec<VerdictRow>,
    pub findings: Vec<FindingRow>,
    pub approvals: Vec<ApprovalRow>,
    pub raises: Vec<RaiseRow>,
    pub commits: Vec<CommitRow>,
    /// Every answer that was accepted at a gate of this run, with the rule of that gate.
    pub answers: Vec<(AnswerRow, Approvers)>,
}

/// One link of a repository's audit chain.
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
    /// The link that follows `previous`; the first follows the hash of nothing.
    pub fn link_after(previous: Option<Hash>, entry: AuditEntry, at: Timestamp) -> Self {
        let previous = previous.unwrap_or_else(|| Hash::digest(b""));
        let AuditEntry { run, visit, key, what, detail } = entry;
        let hash = Self::link_hash(previous, &run, visit, &key, &what, &detail, at);
        Self { run, visit, key, what, detail, at, previous, hash }
    }

    /// Does the hash cover what the row says?
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

/// What is to be put on record.
#[derive(Debug, Clone)]
pub struct AuditEntry {
    pub run: RunId,
    pub visit: u64,
    pub key: String,
    pub what: String,
    pub detail: serde_json::Value,
}
