//! Document gates: they show the document, ask people, handle their answer, and send the document back to drafter or
//! reviewer if necessary.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    DocumentGate, GateQuestion, PublicationTarget, StageState, StepResult, StepVisit,
    approvals::{ApprovalRules, record_approval},
    artifacts, change_requests, load_document, require_still_wanted, views, waiting_steps,
};
use crate::{
    documents::hidden_text::{merge_hidden, visible_text},
    engine::{
        AnswerRow, ApprovalKind, GateAnswer, GateSpec, LedgerRecord, LesserProof, RunRemark, StepError,
        TextKind, TextRow,
    },
    messages::{
        self, ApproveLine, AuthorshipNote, CommitKind, GateReason, GateState, InconclusiveReason,
        RunDisplayState as Shown,
    },
    publication::{self, AnswerOutcome, BranchPolicy, CommitOutcome, GateUpdate, Proposal, Publication},
    rounds::{
        self, BaseCommit, IssueSnapshot, StatusUrgency, StepContext, load_text, post_announcement,
        require_state,
    },
    types::{CommentId, Hash, Role, Timestamp, Verb, Verdict},
};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OpenGate {
    pub(super) subject: Hash,
    pub(super) shown_at: Timestamp,
    /// URL of the gate comment. The field `visit` is the visit that posted the comment.
    pub(super) url: String,
    #[serde(default)]
    pub(super) visit: u64,
    /// Word that must follow `/approve`. `None` for the stage's name.
    #[serde(default)]
    word: Option<String>,
    /// Options of the gate. An approval must name one of them.
    #[serde(default)]
    ways: Vec<String>,
    /// The last edit that somebody else made to the gate comment. We reverted the edit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) touched: Option<RunRemark>,
    /// Time of our question to a person who sent the document back, whether locked tests are meant. Approvals from before
    /// do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) unclear_request: Option<Timestamp>,
    #[serde(default)]
    reminded: bool,
}

impl OpenGate {
    /// Creates a gate whose comment is not posted yet.
    pub(super) fn new(visit: u64, word: &str, subject: Hash, ways: Vec<String>) -> Self {
        let (shown_at, url, word) = (Timestamp(0), String::new(), Some(word.to_owned()));
        let (touched, unclear_request) = (None, None);
        Self { subject, shown_at, url, visit, word, ways, touched, unclear_request, reminded: false }
    }

    pub(super) fn with_comment(self, (url, shown_at): (String, Timestamp)) -> Self {
        Self { url, shown_at, ..self }
    }

    fn command_word<'w>(&'w self, v: &StepVisit<'_>) -> &'w str {
        self.word.as_deref().unwrap_or(v.doc.info().stage)
    }

    /// Returns the `/approve` line that a person can paste.
    pub(super) fn approve_line(&self, v: &StepVisit<'_>) -> ApproveLine {
        ApproveLine::approve(self.command_word(v), self.subject, &self.ways)
    }
}

impl StageState {
    /// Whether this visit has opened a gate.
    pub fn has_open_gate(&self, cx: &StepContext) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.visit == cx.visit())
    }
}

/// Asks a person to decide, unless the policy lets the document pass without one.
pub async fn run_gate(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let Some(DocumentGate { word, question: asks, is_on: on, options: ways }) =
        v.doc.gate(v.at.id, require_state(&s.policy)?)
    else {
        return Err(StepError::Bug(anyhow::anyhow!("{} is not a gate of this workflow", v.at.id)));
    };
    let asked_here = s.has_open_gate(cx);
    if asked_here {
        restore_gate_comment(s, v).await?;
    }
    let Some(answer) = cx.answer() else {
        if let Some(exit) = settle_finding_remarks(s, v, asks).await? {
            return Ok(exit);
        }
        if asked_here {
            return keep_waiting(s, v, asks).await;
        }
        return match asks {
            GateQuestion::Draft if !on || s.unchanged => Ok(StepResult::Pass),
            // A review sent the document here, because a person has to see it.
            GateQuestion::Beforehand if !on && s.round.review.is_none() => Ok(StepResult::Pass),
            GateQuestion::Verdict if !on && is_review_enough(s, v).await? => Ok(StepResult::Pass),
            _ => open_gate(s, v, (word, ways), asks).await,
        };
    };
    if asked_here && let Some(exit) = refuse_unseen_approval(s, v, asks, answer).await? {
        return Ok(exit);
    }
    match check_answer(s, v, answer).await? {
        AnswerOutcome::AskAgain { subject, shown_at, now } => {
            keep_gate_open(s, v, asks, (subject, shown_at), now).await
        }
        AnswerOutcome::BranchRewritten => reopen_gate(s, v, ReopenReason::BranchRewritten).await,
        AnswerOutcome::ForeignVersion(document) => adopt_foreign_version(s, v, document, Some(answer)).await,
        AnswerOutcome::Accepted if answer.verb == Verb::Retry => review_again(s, v, answer).await,
        AnswerOutcome::Accepted => {
            let objection = match (answer.verb, asks) {
                (Verb::Revise, _) => Some(answer.clone()),
                (_, GateQuestion::Draft) => None,
                _ => find_objection(cx, answer).await?,
            };
            if let Some(objection) = objection {
                return apply_objection(s, v, asks, &objection).await;
            }
            let kind = match asks {
                GateQuestion::Draft | GateQuestion::Exception => None,
                GateQuestion::Unreviewed => Some(ApprovalKind::Unreviewed),
                GateQuestion::Verdict if answer.verb == Verb::Override => Some(ApprovalKind::Override),
                GateQuestion::Beforehand | GateQuestion::Verdict => Some(ApprovalKind::Approve),
            };
            if let Some(kind) = kind {
                let asked = require_state(&s.asked)?.clone();
                if !record_approval(s, v, asked.subject, kind, Some(answer.clone())).await? {
                    update_gate_comment(s, v, cx.visit(), GateState::Waits(asked.approve_line(v))).await?;
                    return Ok(StepResult::Ask(gate_spec(s, v, asks, &asked)?));
                }
            }
            mark_answered(s, v, answer).await?;
            if kind.is_some() {
                s.round.findings.accept_declined(&answer.by.login);
            }
            if asks == GateQuestion::Draft {
                s.asked = None;
            }
            Ok(StepResult::Pass)
        }
    }
}

/// Sends the same version to review again. The reviewer is taken from the current settings.
pub(super) async fn review_again(
    s: &mut StageState,
    v: &StepVisit<'_>,
    answer: &GateAnswer,
) -> Result<StepResult, StepError> {
    let why = format!("{} asked for another review", answer.by.login);
    update_gate_comment(s, v, v.cx.visit(), GateState::Ended(why)).await?;
    let reviewer = async |_| Ok(String::clone(&v.cx.tools().reviewer.get()));
    let reviewer: String = v.cx.once("reviewer", reviewer).await?;
    s.policy.iter_mut().for_each(|policy| policy.reviewer.clone_from(&reviewer));
    (s.asked, s.approval, s.stop, s.wished) = (None, None, None, None);
    Ok(StepResult::ReviewAgain)
}

/// Refuses an approval from before our question about an objection, and an approval without a hash if somebody else
/// edited the gate comment before the approval was given.
pub(super) async fn refuse_unseen_approval(
    s: &StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
    answer: &GateAnswer,
) -> Result<Option<StepResult>, StepError> {
    let (cx, asked) = (v.cx, require_state(&s.asked)?);
    if answer.verb.accepts() && asked.unclear_request.is_some_and(|at| answer.at <= at) {
        let body = messages::overtaken_approval_reply(&asked.approve_line(v));
        post_announcement(cx, &format!("overtaken-{}", answer.cause), &body).await?;
        return Ok(Some(StepResult::Ask(gate_spec(s, v, asks, asked)?)));
    }
    if answer.verb != Verb::Approve || answer.hash.is_some() {
        return Ok(None);
    }
    // The answer may have been recorded before we knew of the edit.
    let key = format!("touched-{}", answer.cause);
    let before = |touched: &&RunRemark| touched.at <= answer.at;
    let by: Option<String> = cx
        .once(&key, |_| async { Ok(cx.gate_comment_edit().filter(before).map(|t| t.by.login.clone())) })
        .await?;
    if by.is_none() {
        return Ok(None);
    }
    let body = messages::too_soon_reply(&asked.approve_line(v), by.as_deref());
    post_announcement(cx, &format!("hash-only-{}", answer.cause), &body).await?;
    Ok(Some(StepResult::Ask(gate_spec(s, v, asks, asked)?)))
}

/// Returns whether part of the draft was written by a model that its response did not identify. If so, posts a comment.
/// The run then pays for no further draft, because no review of it would be accepted.
pub(super) async fn refuse_unattested_draft(
    s: &StageState,
    cx: &StepContext,
    key: &str,
) -> Result<bool, StepError> {
    if s.round.is_unattested() {
        let why = messages::unattested_draft_reply(&InconclusiveReason::DrafterUnattested);
        post_announcement(cx, &format!("in-vain-{key}"), &why).await?;
    }
    Ok(s.round.is_unattested())
}

/// Marks the gate as answered and sends the document back to the drafter. The gate stays open if another draft could not
/// be accepted, or if the person must first say whether locked tests are meant.
pub(super) async fn apply_objection(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
    objection: &GateAnswer,
) -> Result<StepResult, StepError> {
    let words = match refuse_unattested_draft(s, v.cx, &objection.cause.to_string()).await? {
        true => None,
        false => change_requests::take_requests(s, v, Some(objection), true).await?,
    };
    let Some(words) = words else {
        return Ok(StepResult::Ask(gate_spec(s, v, asks, require_state(&s.asked)?)?));
    };
    mark_answered(s, v, objection).await?;
    send_back_to_drafter(s, v, &words).await
}

/// Applies people's new remarks on findings, and returns the IDs of the findings that people insist on.
pub(super) async fn take_finding_remarks(
    s: &mut StageState,
    cx: &StepContext,
) -> Result<Vec<String>, StepError> {
    let said = rounds::apply_remarks(cx, &mut s.round).await?;
    s.hidden = merge_hidden(s.hidden.iter().chain(&said.hidden));
    for review in said.reviews {
        s.after.add_review(cx, review).await?;
    }
    Ok(said.insisted)
}

/// Applies people's new remarks on findings. Findings that people insist on go back to the drafter. If people dismissed
/// all findings that had to be resolved, the unchanged document is reviewed again. All other changes are only shown in
/// the gate comment.
async fn settle_finding_remarks(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
) -> Result<Option<StepResult>, StepError> {
    let (cx, before, hidden) = (v.cx, s.round.applied_remarks(), s.hidden.clone());
    let insisted = take_finding_remarks(s, cx).await?;
    if s.round.applied_remarks() == before {
        return Ok(None);
    }
    let counts = s.round.review.is_some() && asks != GateQuestion::Unreviewed;
    if counts
        && !insisted.is_empty()
        && !refuse_unattested_draft(s, cx, &s.round.applied_remarks().to_string()).await?
    {
        let which = insisted.join(", ");
        update_last_gate_comment(
            s,
            v,
            GateState::Ended(format!("{which} must be fixed first, so the draft is back with the drafter")),
        )
        .await?;
        return send_back_to_drafter(s, v, &format!("{which} must be fixed.")).await.map(Some);
    }
    if counts && s.round.needs_another_review() {
        let why = "the findings were dismissed, so the same version is reviewed again";
        update_last_gate_comment(s, v, GateState::Ended(why.to_owned())).await?;
        (s.asked, s.approval, s.stop) = (None, None, None);
        return Ok(Some(StepResult::ReviewAgain));
    }
    let Some(line) = s.asked.as_ref().map(|asked| asked.approve_line(v)) else { return Ok(None) };
    let heard = s.round.applied_remarks();
    s.overlaps =
        artifacts::find_overlaps(v, &format!("overlaps-{heard}"), &PublicationTexts::load(s, v).await?.paths)
            .await?;
    update_last_gate_comment(s, v, GateState::Waits(line)).await?;
    if s.hidden != hidden {
        let shown = views::status_body(s, v, Shown::NeedsYou).await?;
        s.status.show(cx, &format!("status-{heard}"), &shown, StatusUrgency::TurningPoint).await?;
    }
    Ok(None)
}

/// Restores the gate comment if somebody else edited it.
pub(super) async fn restore_gate_comment(s: &mut StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let (cx, mut asked) = (v.cx, require_state(&s.asked)?.clone());
    let Some(touched) = cx.gate_comment_edit().filter(|touched| asked.touched.as_ref() != Some(touched))
    else {
        return Ok(());
    };
    asked.touched = Some(touched.clone());
    s.asked = Some(asked.clone());
    let gate = views::gate_body(s, v, GateState::Waits(asked.approve_line(v)), None).await?;
    let comment = CommentId(touched.text.parse().map_err(anyhow::Error::new)?);
    let key = format!("put-back-{}", touched.cause);
    if let Some((url, shown_at)) = publication::restore_gate_comment(cx, &key, comment, &gate).await? {
        s.asked = Some(OpenGate { url, shown_at, ..asked });
    }
    Ok(())
}

/// Handles a wake-up without an answer: sends the reminder if it is due, and closes the gate if it has expired.
pub(super) async fn keep_waiting(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    require_still_wanted(s, cx).await?;
    let mut asked = require_state(&s.asked)?.clone();
    // Time only moves forward, so a later attempt makes the same decision.
    let (now, [remind, expire]) = (cx.clock().now(), gate_deadlines(s, &asked)?);
    if expire.is_some_and(|at| at <= now) {
        let days = require_state(&s.policy)?.gates.expire_days;
        return Err(StepError::User(messages::gate_expired_reason(days)));
    }
    if remind.is_some_and(|at| at <= now) {
        let reminder = views::reminder_body(s, v, &asked).await?;
        match post_announcement(cx, "reminder", &reminder).await {
            Err(StepError::User(why)) => {
                tracing::info!(run = %cx.run().id, why, "could not post the reminder; the gate stays open")
            }
            told => drop(told?),
        }
        asked.reminded = true;
    }
    let spec = gate_spec(s, v, asks, &asked)?;
    s.asked = Some(asked);
    Ok(StepResult::Ask(spec))
}

/// Returns the time of the reminder (`None` if it was already sent) and the time of the gate's expiry.
fn gate_deadlines(s: &StageState, asked: &OpenGate) -> Result<[Option<Timestamp>; 2], StepError> {
    let rules = &require_state(&s.policy)?.gates;
    let after = |days: u32| {
        let day = Duration::from_secs(24 * 3600);
        (days > 0).then(|| asked.shown_at.plus(day * days))
    };
    Ok([after(rules.remind_days).filter(|_| !asked.reminded), after(rules.expire_days)])
}

/// Whether the policy accepts the APPROVED review without a person's approval. A person is always needed if somebody
/// else has files on the branch, if the issue's author has no write access, or if the issue was edited.
pub(super) async fn is_review_enough(s: &mut StageState, v: &StepVisit<'_>) -> Result<bool, StepError> {
    let cx = v.cx;
    s.asked_because = None;
    let declared = v.doc.info().proofs.contains(&LesserProof::Policy);
    // After a loop that reached nothing people decide, whatever the best version's verdict is.
    let approved = views::gate_verdict(s) == Verdict::Approved && s.stop.is_none();
    // A person who sent the document back must see that nothing was changed.
    if !declared || !approved || s.foreign.is_some() || s.unchanged {
        return Ok(false);
    }
    require_still_wanted(s, cx).await?;
    let repo = cx.tools().repository(cx).await?;
    let stranger = cx.once("stranger", |_| rounds::find_outside_author(cx, &repo)).await?;
    let issue: IssueSnapshot = cx.once("issue-now", |_| cx.tools().read_issue(cx, &repo)).await?;
    s.asked_because = match stranger {
        Some(login) => Some(GateReason::Stranger(login)),
        None if rounds::is_issue_unchanged(cx, require_state(&s.issue)?.digest, issue.digest).await? => None,
        None => Some(GateReason::IssueEdited),
    };
    if waiting_steps::is_waiver_expired(cx) {
        s.asked_because = Some(GateReason::WaiverOver);
    }
    if s.asked_because.is_some() {
        return Ok(false);
    }
    let subject = approval_subject(s, v, None).await?;
    record_approval(s, v, subject, ApprovalKind::Policy, None).await?;
    Ok(true)
}

/// The document's path and the texts that are derived from the document for publication.
struct PublicationTexts {
    path: String,
    stands: Hash,
    paths: Vec<String>,
    files: Vec<(String, Option<Hash>)>,
}

impl PublicationTexts {
    async fn load(s: &StageState, v: &StepVisit<'_>) -> Result<Self, StepError> {
        let text = load_document(s, v.cx).await?;
        let mut files = Vec::new();
        for (path, text) in v.doc.files(&text)? {
            let hash = match text {
                Some(text) => Some(v.cx.put(text.as_bytes()).await?),
                None => None,
            };
            files.push((path, hash));
        }
        let stands = match v.doc.report(&text) {
            Some(report) => v.cx.put(report.as_bytes()).await?,
            None => *require_state(&s.round.document)?,
        };
        Ok(Self { path: views::document_path(s)?, stands, paths: v.doc.paths(&text), files })
    }

    fn publication<'a>(&'a self, s: &'a StageState, v: &StepVisit<'_>) -> Result<Publication<'a>, StepError> {
        Ok(Publication {
            word: s.asked.as_ref().map_or(v.doc.info().stage, |asked| asked.command_word(v)),
            ways: s.asked.as_ref().map_or(&[][..], |asked| asked.ways.as_slice()),
            gate: v.at.id,
            issue: require_state(&s.issue)?,
            base: require_state(&s.base)?,
            path: &self.path,
            document: *require_state(&s.round.document)?,
            published_hash: self.stands,
            files: &self.files,
            paths: &self.paths,
            policy: require_state(&s.policy)?,
            on_issue: v.doc.info().target == PublicationTarget::Issue,
            in_comment: s.target(v) == PublicationTarget::Comment,
        })
    }
}

/// Returns the hash that an approval of the document refers to. `foreign` is the hash of other people's files on the
/// branch.
async fn approval_subject(
    s: &StageState,
    v: &StepVisit<'_>,
    foreign: Option<Hash>,
) -> Result<Hash, StepError> {
    let texts = PublicationTexts::load(s, v).await?;
    publication::approval_subject(v.cx, require_state(&s.base)?, &texts.publication(s, v)?, foreign).await
}

/// Whether the files to be pushed are the same bytes that were approved at this gate. They may differ after an upgrade
/// of the server, because a new version may derive other files or another report from the same text.
pub(super) async fn is_as_approved(
    s: &StageState,
    v: &StepVisit<'_>,
    gate: &'static str,
    approved: Hash,
) -> Result<bool, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repository(cx).await?;
    let base = cx.tools().fetch_base(cx, "base-now", &repo).await?;
    let texts = PublicationTexts::load(s, v).await?;
    let publication = Publication { gate, ..texts.publication(s, v)? };
    Ok(publication::approval_subject(cx, &base, &publication, s.foreign).await? == approved)
}

/// Checks that the change does not overwrite a file that somebody else changed on the branch.
async fn require_no_foreign_files(s: &StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let texts = PublicationTexts::load(s, v).await?;
    let ours = |path: &str| path == texts.path || texts.files.iter().any(|(file, _)| file == path);
    match find_foreign_file(v.cx, s.foreign, ours).await? {
        Some(path) => Err(foreign_file_error(&path)),
        None => Ok(()),
    }
}

/// Checks that nobody else has changed any of these files on the branch. This is called before any paid step, because
/// otherwise the run would pay for a result that the gate refuses.
pub(super) async fn require_free_files(
    cx: &StepContext,
    base: &BaseCommit,
    files: &[String],
) -> Result<(), StepError> {
    let others = publication::find_foreign_files(cx, "others", Some((base, files))).await?;
    match find_foreign_file(cx, others, |path| files.iter().any(|file| file == path)).await? {
        Some(path) => Err(foreign_file_error(&path)),
        None => Ok(()),
    }
}

/// Returns the first file on the branch that somebody else changed and for which `ours` returns true.
pub(super) async fn find_foreign_file(
    cx: &StepContext,
    others: Option<Hash>,
    ours: impl Fn(&str) -> bool,
) -> Result<Option<String>, StepError> {
    let theirs = publication::load_foreign_files(cx, others).await?;
    Ok(theirs.into_iter().map(|file| file.path).find(|path| ours(path)))
}

pub(super) fn foreign_file_error(path: &str) -> StepError {
    StepError::User(format!(
        "Somebody changed `{path}` on the issue's branch, and this change touches it, too. Merge or revert their \
         change, then start again."
    ))
}

/// Shows the document and asks people to decide. The engine later passes their answer to the same step.
async fn open_gate(
    s: &mut StageState,
    v: &StepVisit<'_>,
    (word, ways): (&str, &[&str]),
    asks: GateQuestion,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    require_still_wanted(s, cx).await?;
    let (subject, left) = match s.target(v) {
        PublicationTarget::Branch => match propose_document(s, v, None).await? {
            Ok(proposed) => proposed,
            Err(exit) => return Ok(exit),
        },
        PublicationTarget::Code => {
            let paths = PublicationTexts::load(s, v).await?.paths;
            s.foreign = publication::find_foreign_files(
                cx,
                "others",
                Some((require_state(&s.base)?, paths.as_slice())),
            )
            .await?;
            require_no_foreign_files(s, v).await?;
            if let Some(diff) = v.doc.diff(&load_document(s, cx).await?) {
                let diff = cx.put(diff.as_bytes()).await?;
                cx.record_later("diff", LedgerRecord::Text(TextRow::new(TextKind::Diff, diff))).await?;
            }
            (approval_subject(s, v, s.foreign).await?, None)
        }
        PublicationTarget::Comment | PublicationTarget::Issue => (approval_subject(s, v, None).await?, None),
    };
    let repo = cx.tools().repository(cx).await?;
    s.rules = ApprovalRules::for_gate(s, v, asks).await?;
    s.authorship = cx.once("authorship", |_| rounds::read_authorship(cx, &repo)).await?;
    s.authorship.extend(
        waiting_steps::hotfix_waiver(cx)
            .map(|(by, reason)| AuthorshipNote::Waived { by: by.to_owned(), reason: reason.to_owned() }),
    );
    let paths = PublicationTexts::load(s, v).await?.paths;
    s.overlaps = artifacts::record_touched_paths(v, &paths).await?;
    let asked = OpenGate::new(cx.visit(), word, subject, ways.iter().map(|way| (*way).to_owned()).collect());
    // A halted attempt may have left an open gate that no longer applies.
    s.asked = None;
    let gate = views::gate_body(s, v, GateState::Waits(asked.approve_line(v)), left).await?;
    let asked = asked.with_comment(post_announcement(cx, publication::GATE_COMMENT, &gate).await?);
    let spec = gate_spec(s, v, asks, &asked)?;
    s.asked = Some(asked);
    views::show_state(s, v, Shown::NeedsYou).await?;
    Ok(StepResult::Ask(spec))
}

/// Commits the document to its branch and opens a pull request. Returns the approval's subject, and the old branch if
/// it was abandoned for the new one. If the document cannot be proposed, returns the next step instead. If `audit` is
/// set, the commit is the final one, which publishes the document; `audit` is then the audit link of the document's
/// approval.
pub(super) async fn propose_document(
    s: &mut StageState,
    v: &StepVisit<'_>,
    audit: Option<Hash>,
) -> Result<Result<(Hash, Option<String>), StepResult>, StepError> {
    let cx = v.cx;
    let code = v.doc.info().target == PublicationTarget::Code;
    if code {
        require_no_foreign_files(s, v).await?;
    }
    let message = views::commit_message(s, v, CommitKind::Proposal, audit).await?;
    let texts = PublicationTexts::load(s, v).await?;
    let publication = texts.publication(s, v)?;
    let on = match (code, &s.proposal) {
        (true, _) => BranchPolicy::OursOrNewWithForeign(s.foreign),
        (false, Some(_)) => BranchPolicy::Shown,
        (false, None) => BranchPolicy::OursOrNew,
    };
    let landing = match publication::propose_document(cx, &publication, s.known, on, &message).await? {
        CommitOutcome::Committed(landing) => landing,
        CommitOutcome::ForeignVersion(theirs) => {
            return adopt_foreign_version(s, v, theirs, None).await.map(Err);
        }
        CommitOutcome::BranchChanged { rewritten, foreign } => {
            s.foreign = foreign;
            return reopen_gate(s, v, ReopenReason::from_rewritten(rewritten)).await.map(Err);
        }
    };
    let subject = publication::approval_subject(cx, publication.base, &publication, landing.foreign).await?;
    (s.known, s.foreign) = (Some(texts.stands), landing.foreign);
    let stage = v.doc.info().stage;
    let title = views::pull_title(s, v, false).await?;
    let section = views::pull_section(s, v, audit).await?;
    let known = s.proposal.clone();
    let publication = texts.publication(s, v)?;
    let proposal = match known.filter(|known| code && known.branch == landing.branch) {
        // The pull request exists; we keep people's edits to it.
        Some(known) => known.with_commit(&publication, landing.commit),
        None => {
            let ready = audit.is_some();
            publication::open_pull_request(cx, &publication, &landing, (&title, ready), (stage, &section))
                .await?
        }
    };
    s.proposal = Some(Proposal { audit, ..proposal });
    Ok(Ok((subject, landing.abandoned_branch)))
}

pub(super) fn gate_spec(
    s: &StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
    asked: &OpenGate,
) -> Result<GateSpec, StepError> {
    let mut verbs = vec![(Verb::Revise, Role::Write.into())];
    let refused = s.round.review.as_ref().is_some_and(|review| review.verdict != Verdict::Approved);
    match asks {
        GateQuestion::Verdict if views::gate_verdict(s) != Verdict::Approved => {
            verbs.push((Verb::Override, Role::Maintain.into()));
        }
        // A refused document can only be sent back: this gate is not about the review.
        GateQuestion::Beforehand if refused => {}
        _ => verbs.push((Verb::Approve, Role::Write.into())),
    }
    if s.round.can_review_again() {
        verbs.push((Verb::Retry, Role::Triage.into()));
    }
    let OpenGate { subject, shown_at, .. } = *asked;
    let (stage, ways) = (asked.command_word(v).to_owned(), asked.ways.clone());
    // A deadline in the past is due at once.
    let soon = v.cx.clock().now().plus(Duration::from_secs(1));
    let expires = gate_deadlines(s, asked)?.into_iter().flatten().min().map(|at| at.max(soon));
    let mut approvers = s.rules.approvers();
    if asks == GateQuestion::Exception {
        // One of the people that the settings ask for is enough here; the document's own gate asks all of them.
        approvers.needed = 1;
    }
    Ok(GateSpec { stage, subject, verbs, shown_at, approvers, expires, options: ways })
}

/// Reason why people are asked for approval again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReopenReason {
    BranchRewritten,
    /// Somebody else changed files on the branch.
    BranchChanged,
    /// The bytes to publish differ from the approved bytes.
    ContentChanged,
    /// Somebody else edited the issue that the document replaces.
    IssueEdited,
}

impl ReopenReason {
    pub(super) fn from_rewritten(rewritten: bool) -> Self {
        if rewritten { Self::BranchRewritten } else { Self::BranchChanged }
    }
}

/// Closes the gate, because its answers are no longer valid, and opens it again. If the branch was rewritten, the run
/// creates a new branch and a new pull request. It closes the old pull request once the new one exists.
pub(super) async fn reopen_gate(
    s: &mut StageState,
    v: &StepVisit<'_>,
    why: ReopenReason,
) -> Result<StepResult, StepError> {
    let rewritten = why == ReopenReason::BranchRewritten;
    let why = match why {
        ReopenReason::BranchRewritten => {
            "somebody rewrote the branch; a newer comment asks about the new branch"
        }
        ReopenReason::BranchChanged => {
            "somebody changed the branch before the approved version was committed; a newer comment asks again"
        }
        ReopenReason::ContentChanged => {
            "the change to push is no longer the approved one; a newer comment asks again"
        }
        ReopenReason::IssueEdited => {
            "the issue was edited before it could be replaced; a newer comment asks again"
        }
    };
    update_last_gate_comment(s, v, GateState::Ended(why.to_owned())).await?;
    if rewritten {
        s.proposal = None;
    }
    (s.asked, s.approval) = (None, None);
    Ok(StepResult::ReopenGate)
}

async fn keep_gate_open(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asks: GateQuestion,
    (subject, shown_at): (Hash, Timestamp),
    now: Option<GateUpdate>,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let before = require_state(&s.asked)?.subject;
    let asked = OpenGate { subject, shown_at, ..require_state(&s.asked)?.clone() };
    let spec = gate_spec(s, v, asks, &asked)?;
    let line = asked.approve_line(v);
    s.asked = Some(asked);
    if let Some(GateUpdate { base, foreign, issue }) = now {
        s.foreign = foreign;
        // Code is pushed on the commit that its tests ran on, so its base stays.
        if v.doc.info().target != PublicationTarget::Code {
            s.base = Some(base);
        }
        s.issue = issue.map(|issue| *issue).or(s.issue.take());
        let standing =
            if subject == before { GateState::Waits(line) } else { GateState::WaitsWithNewLine(line) };
        update_gate_comment(s, v, cx.visit(), standing).await?;
        let cause = cx.answer().map(|a| a.cause.to_string()).unwrap_or_default();
        let shown = views::status_body(s, v, Shown::NeedsYou).await?;
        s.status.show(cx, &format!("status-{cause}"), &shown, StatusUrgency::TurningPoint).await?;
    }
    Ok(StepResult::Ask(spec))
}

/// Returns a `/revise` that was given at this gate after the answer that is being handled. It must be handled first,
/// because an objection outweighs an approval.
pub(super) async fn find_objection(
    cx: &StepContext,
    answer: &GateAnswer,
) -> Result<Option<GateAnswer>, StepError> {
    cx.once(&format!("objection-{}", answer.cause), |_| async {
        let rows = cx.ledger().await?.answers;
        let heard =
            rows.iter().find(|(row, _)| row.answer.cause == answer.cause).map(|(row, _)| (row.id, row.gate));
        let objects = |row: &AnswerRow| {
            row.answer.verb == Verb::Revise && heard.is_some_and(|(id, gate)| row.gate == gate && row.id > id)
        };
        Ok(rows.into_iter().map(|(row, _)| row).find(objects).map(|row| row.answer))
    })
    .await
}

/// Updates the gate comment that `visit` posted to the current state of the gate.
pub(super) async fn update_gate_comment(
    s: &StageState,
    v: &StepVisit<'_>,
    visit: u64,
    standing: GateState,
) -> Result<(), StepError> {
    let gate = views::gate_body(s, v, standing, None).await?;
    let key = match v.cx.answer() {
        Some(answer) => format!("restated-{}", answer.cause),
        None => format!("restated-{}", s.round.applied_remarks()),
    };
    publication::update_gate_comment(v.cx, &key, visit, &gate).await
}

/// Like [`update_gate_comment`], but updates the newest gate comment.
async fn update_last_gate_comment(
    s: &StageState,
    v: &StepVisit<'_>,
    standing: GateState,
) -> Result<(), StepError> {
    match &s.asked {
        // An earlier version did not store the visit: there it is the visit that gets the answer.
        Some(OpenGate { visit: 0, .. }) => update_gate_comment(s, v, v.cx.visit(), standing).await,
        Some(asked) => update_gate_comment(s, v, asked.visit, standing).await,
        None => Ok(()),
    }
}

/// Like [`update_gate_comment`], but also marks this visit's gate as answered by `answer`, which closes the gate.
pub(super) async fn mark_answered(
    s: &StageState,
    v: &StepVisit<'_>,
    answer: &GateAnswer,
) -> Result<(), StepError> {
    let all =
        s.approval.as_ref().filter(|row| row.answer.as_ref() == Some(answer)).map(views::approver_names);
    let by = all.unwrap_or_else(|| answer.by.login.clone());
    let (verb, at) = (answer.verb, answer.at);
    update_gate_comment(s, v, v.cx.visit(), GateState::Answered { verb, by, at }).await
}

async fn check_answer(
    s: &StageState,
    v: &StepVisit<'_>,
    answer: &GateAnswer,
) -> Result<AnswerOutcome, StepError> {
    let cx = v.cx;
    require_still_wanted(s, cx).await?;
    let texts = PublicationTexts::load(s, v).await?;
    let asked = require_state(&s.asked)?;
    let publication = texts.publication(s, v)?;
    // Code is pushed only after approval, so an earlier push is not the subject.
    let proposal = s.proposal.as_ref().filter(|_| v.doc.info().target != PublicationTarget::Code);
    publication::check_answer(cx, answer, &publication, proposal, asked.subject, asked.shown_at).await
}

/// Adopts the document version that a maintainer committed. It goes through all checks and the review like a draft. No
/// model changes it before the review, unless the maintainer sent `/revise`.
pub(super) async fn adopt_foreign_version(
    s: &mut StageState,
    v: &StepVisit<'_>,
    document: Hash,
    answer: Option<&GateAnswer>,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    if v.doc.info().target == PublicationTarget::Code {
        return Err(foreign_file_error(&views::document_path(s)?));
    }
    match answer {
        Some(answer) if answer.verb == Verb::Revise => mark_answered(s, v, answer).await?,
        _ => {
            let (ours, theirs) = (load_document(s, cx).await?, load_text(cx, &document).await?);
            update_last_gate_comment(s, v, GateState::Replaced(publication::text_diff(&ours, &theirs)))
                .await?;
        }
    }
    cx.record_later("theirs", LedgerRecord::Text(TextRow::new(TextKind::Person, document))).await?;
    s.round.adopt_human_version(document);
    s.approval = None;
    s.known = Some(document);
    if let Some(answer) = answer.filter(|a| a.verb == Verb::Revise) {
        return send_back_to_drafter(s, v, &answer.text).await;
    }
    let repo = cx.tools().repository(cx).await?;
    s.base = Some(cx.tools().fetch_base(cx, "their-base", &repo).await?);
    s.asked = None;
    Ok(StepResult::ForeignVersion)
}

/// Sends the document back to the drafter with a person's feedback. The issue and the code are read again before.
pub(super) async fn send_back_to_drafter(
    s: &mut StageState,
    v: &StepVisit<'_>,
    words: &str,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let desk = cx.tools();
    let repo = desk.repository(cx).await?;
    s.issue = Some(cx.once("issue-again", |_| desk.read_issue(cx, &repo)).await?);
    let more = require_state(&s.policy)?.max_rounds;
    let words = visible_text(words);
    s.hidden = merge_hidden(s.hidden.iter().chain(&words.hidden));
    s.sent_back = s.round.document;
    s.round.send_back(&words.text, more);
    (s.asked, s.approval, s.edited) = (None, None, None);
    (s.stop, s.wished) = (None, None);
    Ok(StepResult::Reread)
}
