//! Watches a pushed change until people merge or close its pull request.
//!
//! Webhooks are only hints: each check reads the pull request and the CI state of the pushed commit. Failed CI,
//! `/revise` and review remarks send the change back to the drafter. The new version then goes through all checks
//! again. When the pull request is merged or closed, the run ends as if stopped, and the halt visit finds out whether
//! it was merged.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BackgroundText, PublicationTarget, StageState, StepResult, StepVisit, change_requests, gates,
    load_document, require_still_wanted, views,
};
use crate::{
    documents::findings::FindingLedger,
    engine::{
        ApprovalRow, Approvers, ArtifactRow, GateSpec, LedgerRecord, RunCompletion, RunHalt, RunRemark,
        StepError, StepKind,
    },
    github::{PullRequest, none_if_refused},
    messages::{
        self, ChangeLesson, CiGiveUpReason, CiView, PushObstacle, RemarkOutcome, RunDisplayState as Shown,
        RunWaitReason,
    },
    publication::{self, MERGE_GATE},
    rounds::{
        self, CiState, Round, StatusUrgency, StepContext, github_error, post_announcement, require_state,
    },
    types::{Hash, Oid, Role, Timestamp, Verb},
};

/// Interval between checks while no event arrives. The checks are needed because webhooks may get lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(3600);

/// Interval between checks whether the pull request can be merged, which GitHub computes only on request.
/// `MERGEABLE_LOOKS` limits the number of these checks.
const MERGEABLE_LOOK_INTERVAL: Duration = Duration::from_secs(60);
const MERGEABLE_LOOKS: u32 = 10;

/// Maximum number of consecutive CI fixes, whether or not they are pushed. After that, the run does no more fixes until
/// a person comments or CI passes.
const MOST_FIXES_IN_A_ROW: u32 = 3;

/// Maximum total number of CI fixes per pull request.
const MOST_FIXES: u32 = 6;

/// Maximum number of times that the same checks may fail again after a fix.
const MOST_REPEATED_FAILURES: u32 = 2;

/// Maximum number of files changed by other people that are recorded.
const MOST_FOREIGN_FILES: usize = 20;

/// Kind of the background text that describes CI failures to the drafter.
const CI: &str = "ci";

/// State of a pushed change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MergeWatch {
    /// The approval of the pushed document.
    accepted: Option<ApprovalRow>,
    /// Number of the visit that waits for the merge. `since` is the start of the wait and `looks` the number of checks
    /// so far. Each check has its own journal keys.
    visit: u64,
    since: Option<Timestamp>,
    looks: u64,
    /// Time of the next check, unless an event arrives before.
    next: Option<Timestamp>,
    /// Total number of CI fixes. `in_a_row` counts consecutive fixes; `strikes` counts the consecutive times that the
    /// same checks failed after a fix.
    fixes: u32,
    in_a_row: u32,
    strikes: u32,
    failed: Vec<String>,
    /// Whether the drafter is currently fixing a CI failure. `held_right` is set if the drafter's last fix left the
    /// code unchanged.
    mending: bool,
    held_right: bool,
    /// Id of the finding that describes the CI failure.
    finding: Option<String>,
    /// Failed and pending checks if some have failed but others are still pending, and the time since which both lists
    /// are unchanged.
    halfway: Option<([Vec<String>; 2], Timestamp)>,
    ci: Option<CiView>,
    /// Whether part of the CI state could not be read.
    unknown: bool,
    /// Whether the run gave up fixing CI for this commit and told people so.
    gave_up: bool,
    conflicts: bool,
    /// Number of consecutive checks at which GitHub had not yet determined whether the pull request has conflicts.
    unsure_looks: u32,
    /// Whether somebody else committed on top of the pushed commit.
    on_top: bool,
    /// Head of the pull request at the last check. `theirs` lists the files that other people changed in the pull
    /// request.
    head: Option<Oid>,
    theirs: Vec<String>,
    /// IDs of findings that people insist on and that are not handled yet. `reviews` are the reviews that are not
    /// handled yet.
    insisted: Vec<String>,
    pub(super) reviews: Vec<PushedReview>,
    /// Review threads to which the run has not replied yet.
    threads: Vec<ReviewThread>,
    /// Findings at the time of the push, including all replies.
    findings: FindingLedger,
    /// Merge commit, once the pull request is merged; an empty string if the merge commit is unknown.
    pub(super) merged: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ReviewThread {
    /// First comment of the thread; `None` for the body of a review.
    comment: Option<u64>,
    /// ID of the finding that was created from the review remark.
    finding: String,
    /// Commit that the review remark is about.
    commit: Oid,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PushedReview {
    pub(super) number: u64,
    pub(super) by: String,
    /// Hash of the stored text of the review.
    pub(super) text: Hash,
    /// Whether a person must first say if the review is about the locked tests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) kept: bool,
}

impl MergeWatch {
    /// Stores a review until the next wait for the merge starts. A review before the first push is ignored, because it
    /// is not about the pushed change.
    pub(super) async fn add_review(&mut self, cx: &StepContext, review: RunRemark) -> Result<(), StepError> {
        if let Some(number) = review.finding.parse().ok().filter(|_| self.visit > 0) {
            let text = cx.put(review.text.as_bytes()).await?;
            self.reviews.push(PushedReview { number, by: review.by.login, text, kept: false });
        }
        Ok(())
    }

    /// Adds a review thread, or the body of a review, to answer after the next draft.
    pub(super) fn add_thread(&mut self, comment: Option<u64>, finding: String, commit: Oid) {
        self.threads.push(ReviewThread { comment, finding, commit });
    }

    /// Resets the state that was collected for the previous commit.
    pub(super) fn reset_after_push(&mut self, accepted: Option<ApprovalRow>) {
        (self.mending, self.held_right) = (false, false);
        (self.accepted, self.ci, self.halfway) = (accepted, None, None);
        (self.gave_up, self.conflicts, self.on_top, self.unknown) = (false, false, false, false);
    }

    /// Whether the run has not waited for a merge yet.
    pub(super) fn is_new(&self) -> bool {
        self.visit == 0
    }

    /// Records that the drafter starts to fix these failed checks. The attempt counts towards the limits even if it
    /// fails, because it costs money.
    fn start_ci_fix(&mut self, failing: Vec<String>) {
        (self.fixes, self.in_a_row) = (self.fixes + 1, self.in_a_row + 1);
        (self.mending, self.failed) = (true, failing);
    }

    /// Returns the CI state. A failure is reported once all checks are complete, or once the state of the checks has
    /// not changed for [`LOOK_INTERVAL`].
    fn ci_state(&mut self, ci: &rounds::CiStatus, now: Timestamp) -> CiState {
        let halfway = [ci.failing.clone(), ci.pending.clone()];
        if ci.stands != CiState::Pending || ci.failing.is_empty() {
            self.halfway = None;
        } else if self.halfway.as_ref().is_none_or(|(before, _)| *before != halfway) {
            self.halfway = Some((halfway, now));
        }
        match self.halfway {
            Some((_, since)) if now.since(since) >= LOOK_INTERVAL => CiState::Failed,
            _ => ci.stands,
        }
    }

    pub(super) fn is_fixing_ci(&self) -> bool {
        self.mending
    }

    /// Whether `document` is the document that was last accepted and pushed.
    fn is_for_document(&self, document: Option<Hash>) -> bool {
        self.accepted.as_ref().map(|row| row.document) == document
    }

    /// Resets the counters of consecutive CI fixes. Called after a person's comment or after CI has passed.
    fn reset_ci_attempts(&mut self) {
        (self.in_a_row, self.strikes, self.gave_up) = (0, 0, false);
        (self.mending, self.held_right) = (false, false);
        self.failed.clear();
    }
}

/// Result of one check of the pull request.
#[derive(Serialize, Deserialize)]
struct WatchObservation {
    head: Oid,
    /// Whether the pull request can be merged; `None` if GitHub has not determined this yet.
    mergeable: Option<bool>,
    ci: rounds::CiStatus,
    at: Timestamp,
}

/// Returns the next step after a draft: the checks, or the watch if the drafter left the pushed document unchanged. A
/// document that was proposed but not accepted still needs its approval. `before` is the round before the draft: its
/// review counts if the document is still the same, byte for byte.
pub(super) async fn settle_draft(
    s: &mut StageState,
    v: &StepVisit<'_>,
    before: &Round,
) -> Result<StepResult, StepError> {
    let text = v.doc.fix(&load_document(s, v.cx).await?, require_state(&s.issue)?.number);
    let document = Some(v.cx.put(text.as_bytes()).await?);
    let unchanged = before.document == document;
    s.unchanged = unchanged && before.is_approved();
    let code = v.doc.info().target == PublicationTarget::Code;
    let pushed = s.proposal.as_ref().map(|pushed| pushed.document);
    let is_pushed = code && pushed.is_some() && pushed == document && s.after.is_for_document(pushed);
    if s.unchanged || unchanged && is_pushed {
        s.round.keep_version(before);
    }
    if !is_pushed {
        if s.unchanged {
            for thread in &s.after.threads {
                s.round.findings.close_by_reply(&thread.finding, pushed != document);
            }
        }
        return Ok(StepResult::Pass);
    }
    s.round.document = document;
    s.approval = s.after.accepted.clone();
    s.after.held_right = std::mem::take(&mut s.after.mending);
    s.unchanged = !s.after.held_right;
    Ok(StepResult::KeepPushed)
}

/// Returns to the watch with the pushed document, and tells people why the later version is not pushed. Returns `None`
/// if no accepted document was pushed yet.
pub async fn keep_pushed_change(
    s: &mut StageState,
    v: &StepVisit<'_>,
    why: &str,
) -> Result<Option<StepResult>, StepError> {
    let Some(pushed) = s.proposal.as_ref().map(|pushed| pushed.document) else { return Ok(None) };
    if !s.after.is_for_document(Some(pushed)) {
        return Ok(None);
    }
    s.replace_draft(pushed);
    // Fixes in the unpushed version do not count.
    s.round.findings.restore(&s.after.findings);
    s.approval = s.after.accepted.clone();
    (s.after.mending, s.after.gave_up) = (false, true);
    post_announcement(v.cx, "not-pushed", &messages::not_pushed_comment(why)).await?;
    Ok(Some(StepResult::KeepPushed))
}

/// Watches the pushed change until it is merged or closed. Meanwhile, handles comments and CI results.
pub async fn watch_merge(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let (cx, heard) = (v.cx, s.round.applied_remarks());
    let declined = |s: &StageState| s.round.findings.declined().map(|f| f.id.clone()).collect::<Vec<_>>();
    let before = declined(s);
    let insisted = gates::take_finding_remarks(s, cx).await?;
    let arrives = s.after.visit != cx.visit();
    // A remark that wakes the run is visible only in the next attempt, so both attempts share one look. A later attempt
    // may see another time and look then.
    let early = s.after.next.filter(|next| cx.clock().now() < *next);
    if let Some(next) =
        early.filter(|_| !arrives && cx.answer().is_none() && s.round.applied_remarks() == heard)
    {
        return wait_for_merge_until(s, cx, next);
    }
    let pull = require_still_wanted(s, cx).await?;
    if arrives {
        (s.after.visit, s.after.looks, s.after.since) = (cx.visit(), 0, Some(cx.now("arrived").await?));
        answer_threads(s, v).await?;
        if std::mem::take(&mut s.unchanged) {
            let body = messages::unchanged_comment(&s.round.replies, views::is_rehearsal(s, cx));
            post_announcement(cx, "unchanged", &body).await?;
        }
        s.after.findings = s.round.findings.clone();
        views::show_state(s, v, Shown::Done).await?;
    }
    if declined(s) != before {
        let key = format!("declined-{}", s.round.applied_remarks());
        if !arrives {
            views::show_state_as(s, v, &key, Shown::Done).await?;
        }
        views::update_open_points(s, v, &key).await?;
    }
    let reviewed = s.after.reviews.iter().any(|review| !review.kept);
    let spoken = cx.answer().is_some() || !insisted.is_empty() || reviewed;
    s.after.insisted.extend(insisted);
    let wanted = spoken || !s.after.insisted.is_empty();
    if wanted && !has_push_obstacle(s, v, spoken).await? {
        if let Some(words) = take_requested_changes(s, v).await? {
            s.after.reset_ci_attempts();
            s.beside.retain(|known| known.kind != CI);
            return send_back_for_fix(s, v, &words).await;
        }
    } else {
        // The authors of these reviews were told that nothing can be pushed. Findings that people insist on stay until
        // it can be.
        s.after.reviews.retain(|review| review.kept);
    }
    if let Some(exit) = look_at_pull_request(s, v, require_state(&pull)?, wanted).await? {
        return Ok(exit);
    }
    s.after.looks += 1;
    let next = cx.clock().now().plus(if (1..=MERGEABLE_LOOKS).contains(&s.after.unsure_looks) {
        MERGEABLE_LOOK_INTERVAL
    } else {
        LOOK_INTERVAL
    });
    s.after.next = Some(next);
    wait_for_merge_until(s, cx, next)
}

fn wait_for_merge_until(s: &StageState, cx: &StepContext, next: Timestamp) -> Result<StepResult, StepError> {
    let (run, visit) = (cx.run().id.to_string(), cx.visit().to_string());
    Ok(StepResult::Ask(GateSpec {
        stage: MERGE_GATE.to_owned(),
        subject: Hash::digest_parts([MERGE_GATE, &run, &visit].map(str::as_bytes)),
        verbs: vec![(Verb::Revise, Role::Write.into())],
        shown_at: *require_state(&s.after.since)?,
        approvers: Approvers::default(),
        expires: Some(next),
        options: Vec::new(),
    }))
}

/// Collects the text of all pending change requests and marks the requests as handled. Returns `None` if none of them can
/// go to the drafter yet.
async fn take_requested_changes(s: &mut StageState, v: &StepVisit<'_>) -> Result<Option<String>, StepError> {
    let requested = change_requests::take_requests(s, v, v.cx.answer(), false).await?;
    let insisted = std::mem::take(&mut s.after.insisted);
    let insisted = (!insisted.is_empty()).then(|| format!("{} must be fixed.", insisted.join(", ")));
    let words: Vec<String> = requested.into_iter().chain(insisted).collect();
    Ok((!words.is_empty()).then(|| words.join("\n\n")))
}

/// Sends the change back to the drafter, and makes sure that the run does not return to an earlier version.
async fn send_back_for_fix(
    s: &mut StageState,
    v: &StepVisit<'_>,
    words: &str,
) -> Result<StepResult, StepError> {
    s.round.forget_best_version();
    gates::send_back_to_drafter(s, v, words).await
}

/// Returns whether something prevents the run from pushing another commit to the branch. If `tell` is set, posts a
/// comment with the reason.
async fn has_push_obstacle(s: &StageState, v: &StepVisit<'_>, tell: bool) -> Result<bool, StepError> {
    let (cx, n) = (v.cx, s.after.looks);
    let files = v.doc.files_to_change();
    let looked =
        publication::find_push_obstacle(cx, &format!("others-{n}"), (require_state(&s.base)?, &files))
            .await?;
    let why = match looked {
        Err(why) => why,
        Ok(others) => {
            let report = views::document_path(s)?;
            let ours = |path: &str| path == report || files.iter().any(|file| file == path);
            match gates::find_foreign_file(cx, others, ours).await? {
                Some(path) => PushObstacle::Changed(path),
                None => return Ok(false),
            }
        }
    };
    if tell {
        post_announcement(cx, &format!("in-the-way-{n}"), &messages::push_obstacle_comment(&why)).await?;
    }
    Ok(true)
}

/// Replies to each review thread, and on the pull request to the body of each review. Does not resolve the threads,
/// because that is left to people.
async fn answer_threads(s: &mut StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let (cx, proposal) = (v.cx, require_state(&s.proposal)?.clone());
    let repo = cx.tools().repository(cx).await?;
    let rehearsal = views::is_rehearsal(s, cx);
    if let Some(finding) = s.after.finding.take() {
        s.round.findings.close_by_reply(&finding, true);
    }
    for thread in std::mem::take(&mut s.after.threads) {
        let changed = (thread.commit != proposal.commit).then_some(&proposal.commit);
        let Some(finding) = s.round.findings.close_by_reply(&thread.finding, changed.is_some()) else {
            continue;
        };
        let is_quoted = thread.comment.is_none();
        let body = messages::remark_reply(&RemarkOutcome { finding, changed, is_quoted, rehearsal });
        let key = format!("thread-{}-{}", thread.comment.unwrap_or_default(), thread.finding);
        let marker = format!("{key}-{}-{}", cx.run().id, cx.visit());
        let (repo, marker) = (&repo, &marker);
        cx.once(&key, |entry| async move {
            let replied = match thread.comment {
                Some(comment) => {
                    repo.ensure_reply((proposal.pull, comment), marker, &body, entry.interrupted).await
                }
                None => repo.ensure_comment(proposal.pull, marker, &body, entry.interrupted).await.map(drop),
            };
            none_if_refused(replied).map(drop).map_err(github_error)
        })
        .await?;
    }
    rounds::record_findings(cx, &s.round).await
}

/// Reads the pull request and CI. Returns a step result if the run must leave the watch. `blocked` says that an
/// obstacle to another push is already known.
async fn look_at_pull_request(
    s: &mut StageState,
    v: &StepVisit<'_>,
    pull: &PullRequest,
    blocked: bool,
) -> Result<Option<StepResult>, StepError> {
    let (cx, n) = (v.cx, s.after.looks);
    let (proposal, base) = (require_state(&s.proposal)?.clone(), require_state(&s.base)?.clone());
    let repo = cx.tools().repository(cx).await?;
    let WatchObservation { head, mergeable, ci, at } = cx
        .once(&format!("look-{n}"), |_| async {
            let ci = rounds::read_ci_status(&repo, &proposal.commit, &base.commit).await?;
            Ok(WatchObservation {
                head: pull.head_oid.clone(),
                mergeable: pull.mergeable,
                ci,
                at: cx.clock().now(),
            })
        })
        .await?;
    // CI failures of a commit that others pushed on top are theirs to fix.
    let newest = head == proposal.commit;
    if !newest && s.after.head.as_ref() != Some(&head) {
        let list = publication::find_foreign_files(cx, &format!("theirs-{n}"), None).await?;
        let files = publication::load_foreign_files(cx, list).await?;
        s.after.theirs = files.into_iter().take(MOST_FOREIGN_FILES).map(|file| file.path).collect();
    }
    s.after.head = Some(head);
    let shown = |after: &MergeWatch| (after.ci.clone(), after.conflicts, after.on_top, after.unknown);
    let before = shown(&s.after);
    (s.after.on_top, s.after.unknown) = (!newest, ci.unknown);
    let conflicts = mergeable.map_or(s.after.conflicts, |mergeable| !mergeable);
    s.after.unsure_looks = if mergeable.is_none() { s.after.unsure_looks.saturating_add(1) } else { 0 };
    if conflicts && !s.after.conflicts {
        let body = messages::conflicts_comment(&proposal.branch, &pull.base_branch);
        post_announcement(cx, &format!("conflicts-{n}"), &body).await?;
    }
    s.after.conflicts = conflicts;
    let stands = s.after.ci_state(&ci, at);
    s.after.ci = match stands {
        CiState::Nothing => None,
        CiState::Pending => Some(CiView::Pending(ci.pending.clone())),
        CiState::Passed => Some(CiView::Passed(proposal.commit.clone())),
        CiState::Failed => Some(CiView::Failed(ci.failing.clone())),
    };
    if stands == CiState::Passed {
        s.after.reset_ci_attempts();
    }
    if stands == CiState::Failed
        && newest
        && !s.after.gave_up
        && let Some(exit) = handle_ci_failure(s, v, ci, blocked).await?
    {
        return Ok(Some(exit));
    }
    if before != shown(&s.after) {
        let shown = views::status_body(s, v, Shown::Done).await?;
        s.status.show(cx, &format!("status-{n}"), &shown, StatusUrgency::TurningPoint).await?;
    }
    Ok(None)
}

/// Handles failed CI: sends the change back to the drafter, or tells people if another fix would be pointless.
async fn handle_ci_failure(
    s: &mut StageState,
    v: &StepVisit<'_>,
    ci: rounds::CiStatus,
    blocked: bool,
) -> Result<Option<StepResult>, StepError> {
    let (cx, n) = (v.cx, s.after.looks);
    let commit = require_state(&s.proposal)?.commit.clone();
    let ours: Vec<String> = ci.failing.iter().filter(|name| !ci.before.contains(name)).cloned().collect();
    let held_right = s.after.held_right && ours.iter().all(|name| s.after.failed.contains(name));
    s.after.strikes = if !ours.is_empty() && ours == s.after.failed { s.after.strikes + 1 } else { 0 };
    let why = match () {
        () if ours.is_empty() => Some(CiGiveUpReason::FailsOnBase),
        () if held_right => Some(CiGiveUpReason::LeftByDrafter),
        () if s.after.fixes >= MOST_FIXES => Some(CiGiveUpReason::FixLimit(s.after.fixes)),
        () if s.after.in_a_row >= MOST_FIXES_IN_A_ROW => {
            Some(CiGiveUpReason::ConsecutiveFixLimit(s.after.in_a_row))
        }
        () if s.after.strikes >= MOST_REPEATED_FAILURES => {
            Some(CiGiveUpReason::RepeatedFailure(s.after.strikes))
        }
        () => None,
    };
    if let Some(why) = why {
        s.after.gave_up = true;
        post_announcement(
            cx,
            &format!("gave-up-{n}"),
            &messages::ci_failure_comment(why, &ci.failing, &commit, &s.round.replies),
        )
        .await?;
        return Ok(None);
    }
    if blocked || has_push_obstacle(s, v, true).await? {
        s.after.gave_up = true;
        return Ok(None);
    }
    let repo = cx.tools().repository(cx).await?;
    let (said, lacking): (Hash, usize) = cx
        .once(&format!("told-{n}"), |_| async {
            let (said, lacking) = rounds::describe_failing_checks(&repo, &commit, &ours).await?;
            Ok((cx.put(said.as_bytes()).await?, lacking))
        })
        .await?;
    if lacking > 0 {
        s.add_note(messages::missing_logs_note(lacking, &commit));
    }
    let heading = "What CI said of the pushed code, in the words of whatever ran there".to_owned();
    s.add_background(BackgroundText { kind: CI.to_owned(), heading, text: said, left: false });
    s.after.finding = Some(s.round.findings.add_ci_failure(messages::ci_finding_title(ours.len())));
    rounds::record_findings(cx, &s.round).await?;
    s.after.start_ci_fix(ours);
    send_back_for_fix(s, v, &messages::ci_fix_instructions()).await.map(Some)
}

/// Returns the merge commit if the run ended because its pull request was merged. The returned commit is empty if
/// GitHub does not name the merge commit.
pub(super) async fn find_merge(
    s: &StageState,
    v: &StepVisit<'_>,
    halt: &RunHalt,
) -> Result<Option<String>, StepError> {
    let (cx, pushed) = (v.cx, s.after.accepted.is_some());
    let Some(proposal) = s.proposal.as_ref().filter(|_| pushed) else { return Ok(None) };
    let told = matches!(halt, RunHalt::Stopped { why, .. } if why == rounds::MERGED);
    let repo = cx.tools().repository(cx).await?;
    cx.once("merged", |_| async {
        let pull = none_if_refused(repo.pull(proposal.pull).await).map_err(github_error)?;
        let commit = pull.filter(|pull| pull.merged).map(|pull| pull.merge_commit);
        Ok(match commit {
            Some(Some(commit)) => Some(commit.to_string()),
            Some(None) => Some(String::new()),
            None => told.then(String::new),
        })
    })
    .await
}

pub(super) async fn finish_merged(
    s: &mut StageState,
    v: &StepVisit<'_>,
    commit: String,
) -> Result<RunCompletion, StepError> {
    let proposal = require_state(&s.proposal)?.clone();
    if s.round.document != Some(proposal.document) {
        s.add_note(messages::merged_meanwhile_note());
    }
    s.after.merged = Some(commit.clone());
    record_lesson(s, v, true).await?;
    views::show_state(s, v, Shown::Done).await?;
    Ok(RunCompletion { summary: messages::merge_summary(&commit), url: Some(proposal.pull_url) })
}

/// Stores the outcome of the change as a lesson for the drafters of later changes.
pub(super) async fn record_lesson(s: &StageState, v: &StepVisit<'_>, merged: bool) -> Result<(), StepError> {
    if s.after.accepted.is_none() {
        return Ok(());
    }
    let issue = require_state(&s.issue)?;
    let text = messages::lesson_text(&ChangeLesson {
        issue: issue.number,
        title: &issue.title,
        merged,
        rounds: s.round.number,
        fixes: s.after.fixes,
        findings: s.round.findings.all(),
        theirs: &s.after.theirs,
    });
    let hash = v.cx.put(text.as_bytes()).await?;
    let row = ArtifactRow { issue: issue.number, kind: ArtifactRow::LESSON.to_owned(), hash };
    v.cx.record(ArtifactRow::LESSON, LedgerRecord::Artifact(row)).await
}

/// Returns the state of the watch, as shown in the status comment.
pub(super) fn merge_wait_reason(s: &StageState) -> RunWaitReason {
    let MergeWatch { ci, conflicts, on_top, unknown, .. } = &s.after;
    RunWaitReason::Merge { ci: ci.clone(), conflicts: *conflicts, on_top: *on_top, unknown: *unknown }
}

pub(super) fn is_waiting_for_merge(s: &StageState, v: &StepVisit<'_>) -> bool {
    v.at.kind == StepKind::Watch && s.after.merged.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ApprovalKind;

    #[test]
    fn merge_watch_applies_only_to_the_accepted_document() {
        let [first, second] = [&b"first"[..], b"second"].map(Hash::digest);
        let (subject, kind) = (Hash::digest(b"subject"), ApprovalKind::Approve);
        let row = ApprovalRow { document: first, subject, answer: None, kind, with: Vec::new() };
        let after = MergeWatch { accepted: Some(row), ..MergeWatch::default() };
        assert!(after.is_for_document(Some(first)) && !after.is_for_document(Some(second)));
    }

    #[test]
    fn pushes_of_ci_fixes_count_as_fixes_and_other_pushes_do_not() {
        let mut after = MergeWatch::default();
        after.start_ci_fix(vec!["build".to_owned()]);
        after.reset_after_push(None);
        after.reset_after_push(None);
        assert_eq!((after.fixes, after.in_a_row, after.mending), (1, 1, false));
        after.start_ci_fix(vec!["lint".to_owned()]);
        after.reset_ci_attempts();
        assert_eq!(
            (after.fixes, after.in_a_row, after.mending),
            (2, 0, false),
            "a fix without effect counts as well"
        );
    }

    #[test]
    fn ci_failure_is_reported_even_if_another_check_stays_pending() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let ci = |failing: &[&str]| rounds::CiStatus {
            stands: CiState::Pending,
            pending: names(&["slow"]),
            failing: names(failing),
            before: Vec::new(),
            unknown: false,
        };
        let (begun, mut after) = (Timestamp(0), MergeWatch::default());
        let at = |hours: u32| begun.plus(LOOK_INTERVAL * hours);
        let told = [(&[][..], 0), (&[], 9), (&["a"], 9), (&["a", "b"], 10), (&["a", "b"], 11)];
        let stands = told.map(|(failing, hours)| after.ci_state(&ci(failing), at(hours)));
        assert_eq!(stands[..4], [CiState::Pending; 4]);
        assert_eq!(stands[4], CiState::Failed);
    }
}
