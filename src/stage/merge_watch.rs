//! Watches a pushed change until people merge or close its pull request.
//!
//! Webhooks are only hints: each check reads the pull request and the CI state of the pushed commit. Failed CI,
//! `/revise` and review remarks send the change back to the drafter, and a new version goes through all checks again. A
//! merged or closed pull request ends the run like a stop; the halt visit finds out whether it was merged.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    BackgroundText, PublicationTarget, StageState, StepResult, StepVisit, gates, require_still_wanted, views,
};
use crate::{
    documents::{
        findings::{FindingLedger, LineRemark},
        hidden_text::{merge_hidden, visible_text},
    },
    engine::{
        ApprovalRow, Approvers, ArtifactRow, GateSpec, LedgerRecord, RunCompletion, RunHalt, RunRemark,
        StepError, StepKind,
    },
    github::{LineComment, PullRequest, none_if_refused},
    messages::{
        self, ChangeLesson, CiGiveUpReason, CiView, PushObstacle, RemarkOutcome, RunDisplayState as Shown,
        RunWaitReason,
    },
    publication::{self, MERGE_GATE},
    rounds::{
        self, CiState, StatusUrgency, StepContext, github_error, load_text, post_announcement, require_state,
    },
    types::{Hash, Oid, Role, Timestamp, Verb},
};

/// Interval between checks without an event, because webhooks may get lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(3600);

/// Interval between checks for mergeability, which GitHub computes only on request. `MERGEABLE_LOOKS` limits their
/// number.
const MERGEABLE_LOOK_INTERVAL: Duration = Duration::from_secs(60);
const MERGEABLE_LOOKS: u32 = 10;

/// Maximum CI fixes in a row, whether they are pushed or not. After that, a person has to comment or CI has to pass.
const MOST_FIXES_IN_A_ROW: u32 = 3;

/// Maximum CI fixes of one pull request in total.
const MOST_FIXES: u32 = 6;

/// Maximum times the same checks may fail again after a fix.
const MOST_REPEATED_FAILURES: u32 = 2;

/// Maximum number of foreign files that are recorded.
const MOST_FOREIGN_FILES: usize = 20;

/// Maximum characters kept of a review remark; `PLACE_CHARS` is the limit for its file path.
const REMARK_CHARS: usize = 4_000;
const PLACE_CHARS: usize = 300;

/// Kind of the background text with CI failures for the drafter.
const CI: &str = "ci";

/// State of a pushed change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MergeWatch {
    /// The approval of the pushed document.
    accepted: Option<ApprovalRow>,
    /// The waiting visit; then its start and its number of checks. Each check has its own journal keys.
    visit: u64,
    since: Option<Timestamp>,
    looks: u64,
    /// Time of the next check if no event arrives before.
    next: Option<Timestamp>,
    /// Number of CI fixes in total; then those in a row, and times in a row that the same checks failed after a fix.
    fixes: u32,
    in_a_row: u32,
    strikes: u32,
    failed: Vec<String>,
    /// Whether the drafter is fixing CI. `held_right`: its last fix left the code unchanged.
    mending: bool,
    held_right: bool,
    /// Id of the finding that describes the CI failure.
    finding: Option<String>,
    /// Failed and pending checks while CI is incomplete, and the time since which they are unchanged.
    halfway: Option<([Vec<String>; 2], Timestamp)>,
    ci: Option<CiView>,
    /// Whether part of the CI state could not be read.
    unknown: bool,
    /// Whether we stopped fixing this commit and told people so.
    gave_up: bool,
    conflicts: bool,
    /// Number of checks in a row for which GitHub had not computed conflicts yet.
    unsure_looks: u32,
    /// Whether others committed on top of the pushed commit.
    on_top: bool,
    /// Head of the pull request at the last check; `theirs`: files that others changed in it.
    head: Option<Oid>,
    theirs: Vec<String>,
    /// Findings that people insist on and that are not handled yet; `reviews` are the reviews not handled yet.
    insisted: Vec<String>,
    reviews: Vec<PushedReview>,
    /// Review threads that are not answered yet.
    threads: Vec<ReviewThread>,
    /// Findings as they were at the push, after all replies.
    findings: FindingLedger,
    /// Merge commit, once the pull request is merged; empty if unknown.
    pub(super) merged: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ReviewThread {
    comment: u64,
    /// Id of the finding made from the remark.
    finding: String,
    /// Commit that the remark is about.
    commit: Oid,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PushedReview {
    number: u64,
    by: String,
    /// The review's text, stored by hash.
    text: Hash,
}

impl MergeWatch {
    /// Keeps a review until the next wait for the merge. A review before the first push is ignored, because it is not
    /// about the pushed change.
    pub(super) async fn add_review(&mut self, cx: &StepContext, review: RunRemark) -> Result<(), StepError> {
        if let Some(number) = review.finding.parse().ok().filter(|_| self.visit > 0) {
            let text = cx.put(review.text.as_bytes()).await?;
            self.reviews.push(PushedReview { number, by: review.by.login, text });
        }
        Ok(())
    }

    /// Resets the state that belongs to the previous commit.
    pub(super) fn reset_after_push(&mut self, accepted: Option<ApprovalRow>) {
        (self.mending, self.held_right) = (false, false);
        (self.accepted, self.ci, self.halfway) = (accepted, None, None);
        (self.gave_up, self.conflicts, self.on_top, self.unknown) = (false, false, false, false);
    }

    /// Whether no wait for the merge has started yet.
    pub(super) fn is_new(&self) -> bool {
        self.visit == 0
    }

    /// Records that the drafter starts to fix these failed checks. The attempt counts towards the limits whatever its
    /// result, because it costs money.
    fn start_ci_fix(&mut self, failing: Vec<String>) {
        (self.fixes, self.in_a_row) = (self.fixes + 1, self.in_a_row + 1);
        (self.mending, self.failed) = (true, failing);
    }

    /// Returns the CI state. A failure is reported once all checks are complete, or after [`LOOK_INTERVAL`] without a
    /// change.
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

    /// Whether `document` is the one that was last accepted and pushed.
    fn is_for_document(&self, document: Option<Hash>) -> bool {
        self.accepted.as_ref().map(|row| row.document) == document
    }

    /// Resets the counters of CI fixes, after a person's comment or a CI success.
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
    /// Whether the pull request can be merged; `None` if GitHub does not know yet.
    mergeable: Option<bool>,
    ci: rounds::CiStatus,
    at: Timestamp,
}

/// Decides how to continue after a draft: with the checks, or back to the watch if the drafter left the pushed document
/// unchanged. A document that was only proposed still needs its approval.
pub(super) fn settle_draft(s: &mut StageState, v: &StepVisit<'_>) -> StepResult {
    let code = v.doc.info().target == PublicationTarget::Code;
    let pushed = s.proposal.as_ref().map(|pushed| pushed.document);
    if !code || pushed.is_none() || pushed != s.round.document || !s.after.is_for_document(pushed) {
        return StepResult::Pass;
    }
    s.approval = s.after.accepted.clone();
    s.after.held_right = std::mem::take(&mut s.after.mending);
    StepResult::KeepPushed
}

/// Returns to the watch with the pushed document, and tells people why the later version is not pushed. `None` if no
/// document was pushed yet.
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

/// Watches the pushed change until it is merged or closed. Handles comments and CI results in the meantime.
pub async fn watch_merge(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let (cx, heard) = (v.cx, s.round.applied_remarks());
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
        s.after.findings = s.round.findings.clone();
        views::show_state(s, v, Shown::Done).await?;
    }
    let spoken = cx.answer().is_some() || !insisted.is_empty() || !s.after.reviews.is_empty();
    s.after.insisted.extend(insisted);
    let wanted = spoken || !s.after.insisted.is_empty();
    if wanted && !has_push_obstacle(s, v, spoken).await? {
        let words = take_requested_changes(s, v).await?;
        s.after.reset_ci_attempts();
        s.beside.retain(|known| known.kind != CI);
        return send_back_for_fix(s, v, &words).await;
    }
    // The authors of these reviews were told that nothing can be pushed. Findings that people insist on stay until it
    // can be.
    s.after.reviews.clear();
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

/// Takes all pending change requests and returns their text.
async fn take_requested_changes(s: &mut StageState, v: &StepVisit<'_>) -> Result<String, StepError> {
    let mut words = Vec::new();
    if let Some(answer) = v.cx.answer() {
        words.push(answer.text.clone());
        if let Some(review) = answer.review {
            record_remarks(s, v, review, &answer.by.login).await?;
        }
    }
    let insisted = std::mem::take(&mut s.after.insisted);
    if !insisted.is_empty() {
        words.push(format!("{} must be fixed.", insisted.join(", ")));
    }
    for review in std::mem::take(&mut s.after.reviews) {
        record_remarks(s, v, review.number, &review.by).await?;
        words.push(load_text(v.cx, &review.text).await?);
    }
    Ok(words.join("\n\n"))
}

/// Sends the change back to the drafter. Prevents that an earlier version replaces the new one.
async fn send_back_for_fix(
    s: &mut StageState,
    v: &StepVisit<'_>,
    words: &str,
) -> Result<StepResult, StepError> {
    s.round.forget_best_version();
    gates::send_back_to_drafter(s, v, words).await
}

/// Returns whether another commit of ours on the branch is prevented. If `tell` is set, posts a comment with the
/// reason.
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

/// Records a review's line remarks as findings, so that the drafter answers each one and the reviewer judges the
/// answer.
pub(super) async fn record_remarks(
    s: &mut StageState,
    v: &StepVisit<'_>,
    review: u64,
    by: &str,
) -> Result<(), StepError> {
    // Before the first push there is no code that the review could be about.
    let Some(proposal) = s.proposal.clone() else { return Ok(()) };
    let repo = v.cx.tools().repository(v.cx).await?;
    let comments: Hash =
        v.cx.once(&format!("remarks-{review}"), |_| async {
            let said =
                none_if_refused(repo.review_comments(proposal.pull, review).await).map_err(github_error)?;
            let mut said = said.unwrap_or_default();
            said.truncate(rounds::MOST_REVIEW_REMARKS);
            // Truncate to what the journal and the ledger can hold.
            for comment in &mut said {
                comment.body = comment.body.chars().take(REMARK_CHARS).collect();
                comment.path = comment.path.chars().filter(|c| !c.is_control()).take(PLACE_CHARS).collect();
            }
            v.cx.put(&serde_json::to_vec(&said).map_err(anyhow::Error::new)?).await
        })
        .await?;
    let comments: Vec<LineComment> =
        serde_json::from_slice(&v.cx.get(&comments).await?).map_err(anyhow::Error::new)?;
    for comment in comments {
        let said = visible_text(&comment.body);
        s.hidden = merge_hidden(s.hidden.iter().chain(&said.hidden));
        let line = comment.line.map_or(String::new(), |line| format!(":{line}"));
        let place = format!("{}{line}", comment.path);
        let remarked = LineRemark { place, text: said.text, by: by.to_owned() };
        let finding = s.round.findings.add_remark(remarked);
        let commit = proposal.commit.clone();
        s.after.threads.push(ReviewThread { comment: comment.thread, finding, commit });
    }
    rounds::record_findings(v.cx, &s.round).await
}

/// Replies to each review thread. Does not resolve threads, which is up to people.
async fn answer_threads(s: &mut StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let (cx, proposal) = (v.cx, require_state(&s.proposal)?.clone());
    let repo = cx.tools().repository(cx).await?;
    let rehearsal = views::is_rehearsal(s, cx);
    if let Some(finding) = s.after.finding.take() {
        s.round.findings.close_by_reply(&finding);
    }
    for thread in std::mem::take(&mut s.after.threads) {
        let Some(finding) = s.round.findings.close_by_reply(&thread.finding) else { continue };
        let changed = (thread.commit != proposal.commit).then_some(&proposal.commit);
        let body = messages::remark_reply(&RemarkOutcome { finding, changed, rehearsal });
        let key = format!("thread-{}-{}", thread.comment, thread.finding);
        let marker = format!("{key}-{}-{}", cx.run().id, cx.visit());
        let (repo, marker) = (&repo, &marker);
        cx.once(&key, |entry| async move {
            let to = (proposal.pull, thread.comment);
            let replied = repo.ensure_reply(to, marker, &body, entry.interrupted).await;
            none_if_refused(replied).map(drop).map_err(github_error)
        })
        .await?;
    }
    rounds::record_findings(cx, &s.round).await
}

/// Reads the pull request and CI; returns a step result if the run must leave the watch. `blocked`: an obstacle to
/// another push is already known.
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

/// Handles failed CI: sends the change back to the drafter, or tells people if another fix is pointless.
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
            &messages::ci_failure_comment(why, &ci.failing, &commit),
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

/// Returns the merge commit if the run ended because its pull request was merged. The commit is empty if GitHub does
/// not name it.
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

/// Returns the watch's state for the status comment.
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
    fn merge_watch_is_for_the_accepted_document_and_not_a_proposed_one() {
        let [first, second] = [&b"first"[..], b"second"].map(Hash::digest);
        let (subject, kind) = (Hash::digest(b"subject"), ApprovalKind::Approve);
        let row = ApprovalRow { document: first, subject, answer: None, kind, with: Vec::new() };
        let after = MergeWatch { accepted: Some(row), ..MergeWatch::default() };
        assert!(after.is_for_document(Some(first)) && !after.is_for_document(Some(second)));
    }

    #[test]
    fn ci_fix_is_counted_and_other_pushes_are_not() {
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
    fn ci_failure_is_reported_despite_a_check_that_never_ends() {
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
