//! Builds everything about a run that people see: status comment, gate, pull request, log, labels. The views are pure:
//! they turn a run's state into values for `messages`.

use super::{
    GateQuestion, PublicationTarget, StageCall, StageState, StepVisit, approvals, artifacts, check_run,
    gates::OpenGate, issue_questions::IssueQuestions, load_document, merge_watch, waiting_steps, worker_pool,
};
use crate::{
    commands::ROUTE,
    config::{PoolAssignment, document_path_of},
    documents::hidden_text,
    engine::{ApprovalKind, ApprovalRow, RunFilter, RunView, RunViewStatus, StepError, StepKind},
    github::{GitHubRepo, LabelChange, LabelSpec, OutboundBody, none_if_refused},
    limits,
    messages::{
        self, Acceptance, Author, ChangeCard, ChangeCommit, ChangeReport, CommitCard, CommitConvention,
        CommitKind, CostView, DraftView, GateCard, GateState, LabelView, Provenance, PullCard, ReviewLog,
        RoundLine, RoundLog, RunWaitReason, StageResult, StatusNote, StatusView, StepPosition, WholeDocument,
    },
    publication::{self, most_urgent_run},
    rounds::{
        self, BaseCommit, ServedModel, StatusUrgency, StepContext, git_error, github_error, load_text,
        require_state,
    },
    store::{RunRow, Spending},
    types::{Actor, Hash, RunId, Verdict},
};

/// Number of recent commits that are read to detect the commit message style.
const PAST_COMMITS: usize = 50;

pub(super) async fn status_body(
    s: &StageState,
    v: &StepVisit<'_>,
    state: messages::RunDisplayState,
) -> Result<OutboundBody, StepError> {
    let (cx, about) = (v.cx, v.doc.info());
    let run = cx.run();
    let draft = match s.round.document.filter(|document| !is_shown_elsewhere(s, v, *document)) {
        Some(hash) => Some(DraftView {
            path: if s.publishes_files() { Some(document_path(s)?) } else { None },
            text: load_document(s, cx).await?,
            url: s.proposal.as_ref().filter(|p| p.document == hash).map(|p| p.file_url.clone()),
        }),
        None => None,
    };
    // Once filed, the document has replaced the text that the models read.
    let issue = s.issue.as_ref().filter(|_| s.filed.is_none());
    let issue_chars = match issue {
        Some(issue) => load_text(cx, &issue.body).await?.chars().count(),
        None => 0,
    };
    let shows_cost = s.policy.as_ref().is_some_and(|policy| policy.shows_cost);
    let rows = load_issue_runs(cx).await?;
    let own = rows.iter().find(|row| row.id == run.id);
    let lives = |workflow: &str| {
        rows.iter().any(|row| row.workflow == workflow && RunView::new::<()>(row, None).status.is_live())
    };
    let now = cx.clock().now();
    let view = StatusView {
        workflow: about.workflow.to_owned(),
        run: run.id,
        page: cx.tools().settings.server.run_page(run.id),
        requested_by: run.trigger.actor.login.clone(),
        rehearsal: is_rehearsal(s, cx),
        state,
        step: StepPosition {
            minutes: own.map_or(0, |row| now.since(row.updated_at).as_secs() / 60),
            ..step_position(s, v)
        },
        result: stage_result(cx, run.id, result_url(s), shows_cost).await?,
        others: other_stage_results(cx, &rows, shows_cost).await?,
        follows: cx.next_workflow().filter(|next| state == messages::RunDisplayState::Done && !lives(next)),
        rounds: s.round.history.iter().map(round_line).collect(),
        waiting: wait_reason(s, v, state),
        draft,
        hidden: hidden_text::merge_hidden(issue.iter().flat_map(|issue| &issue.hidden).chain(&s.hidden)),
        notes: status_notes(s, issue_chars, worker_pool::assign_worker_pool(s, v).await?),
        cost: visible_spending(s, cx).await?.map(|spent| CostView {
            stage: messages::stage_name(about.stage),
            history: s.quote,
            spent,
        }),
        updated: now,
    };
    Ok(messages::status_comment(&view))
}

/// Whether the document is already shown in another comment or in the pull request.
fn is_shown_elsewhere(s: &StageState, v: &StepVisit<'_>, document: Hash) -> bool {
    match s.target(v) {
        PublicationTarget::Comment => s.asked.is_some() || s.filed.is_some(),
        PublicationTarget::Code => {
            let pushed = s.proposal.as_ref().is_some_and(|p| p.document == document);
            !s.publishes_files() && (pushed || s.asked.is_some())
        }
        PublicationTarget::Branch | PublicationTarget::Issue => false,
    }
}

async fn load_issue_runs(cx: &StepContext) -> Result<Vec<RunRow>, StepError> {
    let own = cx.run();
    let filter = RunFilter { repo: Some(own.id.repo), issue: Some(own.trigger.issue), live_only: false };
    let db = cx.tools().store.repository_database(own.id.repo).await.map_err(anyhow::Error::new)?;
    Ok(db.runs(filter).await.map_err(anyhow::Error::new)?)
}

async fn stage_result(
    cx: &StepContext,
    run: RunId,
    url: Option<String>,
    shows_cost: bool,
) -> Result<StageResult, StepError> {
    let db = cx.tools().store.repository_database(run.repo).await.map_err(anyhow::Error::new)?;
    let ledger = db.ledger(run).await.map_err(anyhow::Error::new)?;
    Ok(StageResult {
        accepted: ledger.approvals.last().map(|row| acceptance(row, cx)),
        rounds: ledger.verdicts.len(),
        cost: shows_cost.then(|| Spending::from_calls(&ledger.calls)),
        url,
    })
}

/// Returns the newest run of each other workflow on the issue, with its state. Leaves out runs that neither produced
/// something nor are live.
fn other_stages<'r>(cx: &StepContext, rows: &'r [RunRow]) -> Vec<(&'r RunRow, messages::RunDisplayState)> {
    let mut others = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let later = rows[at + 1..].iter().any(|later| later.workflow == row.workflow);
        if later || [ROUTE, &cx.run().workflow].contains(&row.workflow.as_str()) {
            continue;
        }
        let view = RunView::new::<()>(row, None);
        let state = match view.status {
            RunViewStatus::Done if outcome_url(row).is_some() => messages::RunDisplayState::Done,
            RunViewStatus::Asking if publication::waits_for_merge(&view) => messages::RunDisplayState::Done,
            status if !status.is_live() || row.cancel.is_some() => continue,
            RunViewStatus::Asking => messages::RunDisplayState::NeedsYou,
            _ => messages::RunDisplayState::Working,
        };
        others.push((row, state));
    }
    others
}

fn outcome_url(row: &RunRow) -> Option<String> {
    row.outcome.as_ref()?.url.clone()
}

async fn other_stage_results(
    cx: &StepContext,
    rows: &[RunRow],
    shows_cost: bool,
) -> Result<Vec<(String, messages::RunDisplayState, StageResult)>, StepError> {
    let mut others = Vec::new();
    for (row, state) in other_stages(cx, rows) {
        others.push((
            row.workflow.clone(),
            state,
            stage_result(cx, row.id, outcome_url(row), shows_cost).await?,
        ));
    }
    Ok(others)
}

fn result_url(s: &StageState) -> Option<String> {
    s.proposal.as_ref().map(|proposal| proposal.pull_url.clone()).or_else(|| s.filed.clone())
}

fn step_position(s: &StageState, v: &StepVisit<'_>) -> StepPosition {
    let steps = v.doc.info().steps;
    // A paused run is shown at the step that it waits for.
    let at = match s.paused.as_ref().filter(|_| v.at.kind == StepKind::Pause) {
        Some(paused) => paused.paused_step(v).unwrap_or(v.at),
        None if v.at.kind == StepKind::Pause => {
            let wished = s.wished.as_ref().and_then(|wished| steps.iter().find(|step| step.id == wished.at));
            wished.copied().or_else(|| StageCall::Questions.workflow_step(v)).unwrap_or(v.at)
        }
        None => v.at,
    };
    let off = |id: &str| {
        let gate = s.policy.as_ref().and_then(|policy| v.doc.gate(id, policy));
        gate.is_some_and(|gate| !gate.is_on) && id != at.id
    };
    let shown: Vec<_> = steps.iter().filter(|step| step.kind != StepKind::Pause && !off(step.id)).collect();
    let before = shown.iter().position(|step| step.id == at.id).unwrap_or_default();
    StepPosition { title: at.title, number: before + 1, of: shown.len(), minutes: 0 }
}

fn round_line(line: &rounds::RoundRecord) -> RoundLine {
    RoundLine {
        round: line.round,
        verdict: line.verdict,
        open_findings: line.open,
        drafter: draft_author(line.document, line.drafter.as_ref()),
        reviewer: review_author(line.reviewer.as_ref()),
    }
}

pub(super) fn wait_reason(
    s: &StageState,
    v: &StepVisit<'_>,
    state: messages::RunDisplayState,
) -> Option<RunWaitReason> {
    if state == messages::RunDisplayState::Done && merge_watch::is_waiting_for_merge(s, v) {
        return Some(merge_watch::merge_wait_reason(s));
    }
    let going = matches!(state, messages::RunDisplayState::Working | messages::RunDisplayState::Parked);
    if let Some(held) = s.round.held().filter(|_| going) {
        return Some(RunWaitReason::Model(held.to_view()));
    }
    if let Some(paused) = s.paused.as_ref().filter(|_| state == messages::RunDisplayState::NeedsYou) {
        return Some(RunWaitReason::Budget { url: paused.url.clone()? });
    }
    let needs_you = state == messages::RunDisplayState::NeedsYou;
    if let Some((url, until)) =
        s.questions.as_ref().filter(|_| needs_you).and_then(IssueQuestions::open_until)
    {
        return Some(RunWaitReason::Answers { url, until });
    }
    let asked = s.asked.as_ref().filter(|_| needs_you)?;
    Some(RunWaitReason::Decision {
        // An exception does not depend on the review.
        verdict: s.round.review.as_ref().filter(|_| s.wished.is_none()).map(|r| r.verdict),
        gate_url: Some(asked.url.clone()),
    })
}

fn status_notes(s: &StageState, issue_chars: usize, workers: PoolAssignment) -> Vec<StatusNote> {
    let mut notes = Vec::new();
    notes.extend(workers.row.map(|row| StatusNote::Workers { pool: workers.pool, row }));
    if let Some(complaint) = s.policy.as_ref().and_then(|p| p.complaint.as_ref()) {
        notes.push(StatusNote::Sentence(format!(
            "Countersign uses the server's settings, because the repository's are invalid: {complaint}"
        )));
    }
    notes.extend(s.said.iter().cloned().map(StatusNote::Sentence));
    notes.extend(Some(&s.hosts).filter(|hosts| !hosts.is_empty()).cloned().map(StatusNote::Hosts));
    if issue_chars > limits::ISSUE_CHARS {
        notes.push(StatusNote::IssueCut { shown: limits::ISSUE_CHARS, of: issue_chars });
    }
    let not_shown = s.left_out + s.round.unshown;
    if not_shown > 0 {
        notes.push(StatusNote::FilesNotShown(not_shown));
    }
    let declined: Vec<String> = s.round.findings.declined().map(|finding| finding.id.clone()).collect();
    notes.extend((!declined.is_empty()).then(|| StatusNote::Sentence(messages::declined_note(&declined))));
    let looked = s.round.tool_calls();
    if looked.calls > 0 {
        notes.push(StatusNote::ToolCalls { calls: looked.calls, refused: looked.refused });
    }
    if let Some(line) = s.round.history.last().filter(|line| line.verdict.is_none() && line.open > 0) {
        notes.push(StatusNote::SentBack { mistakes: line.open });
    }
    notes
}

async fn visible_spending(s: &StageState, cx: &StepContext) -> Result<Option<Spending>, StepError> {
    rounds::run_spending(cx, s.policy.as_ref()).await
}

pub(super) async fn gate_body(
    s: &StageState,
    v: &StepVisit<'_>,
    standing: GateState,
    left: Option<String>,
) -> Result<OutboundBody, StepError> {
    Ok(match &s.wished {
        Some(wished) => messages::exception_comment(&wished.exception_card(s, v, standing).await?),
        None => messages::gate_comment(&gate_card(s, v, standing, left).await?),
    })
}

/// Builds the comment that publishes a document without a gate.
pub(super) async fn document_body(s: &StageState, v: &StepVisit<'_>) -> Result<OutboundBody, StepError> {
    let whole = whole_document(s, v).await?;
    Ok(messages::document_comment(v.doc.info().stage, &whole, is_rehearsal(s, v.cx)))
}

async fn whole_document(s: &StageState, v: &StepVisit<'_>) -> Result<WholeDocument, StepError> {
    let repo = v.cx.tools().repository(v.cx).await?.name().clone();
    Ok(WholeDocument { text: load_document(s, v.cx).await?, repo, issue: v.cx.run().trigger.issue })
}

pub(super) async fn reminder_body(
    s: &StageState,
    v: &StepVisit<'_>,
    asked: &OpenGate,
) -> Result<OutboundBody, StepError> {
    let standing = GateState::Waits(asked.approve_line(v));
    Ok(match &s.wished {
        Some(wished) => {
            messages::exception_reminder(&wished.exception_card(s, v, standing).await?, &asked.url)
        }
        None => messages::gate_reminder(&gate_card(s, v, standing, None).await?, &asked.url),
    })
}

/// Collects the data for the gate comment.
async fn gate_card(
    s: &StageState,
    v: &StepVisit<'_>,
    standing: GateState,
    left: Option<String>,
) -> Result<GateCard, StepError> {
    let cx = v.cx;
    let review = s.round.review.as_ref();
    let asks = v.doc.gate(v.at.id, require_state(&s.policy)?).map(|gate| gate.question);
    let design = load_document(s, cx).await?;
    let proposal = s.proposal.as_ref();
    Ok(GateCard {
        stage: v.doc.info().stage.to_owned(),
        state: standing,
        skips_review: asks == Some(GateQuestion::Unreviewed),
        provenance: provenance(s, v, None, None).await?,
        round: s.round.number,
        inconclusive: review.and_then(|r| r.why.clone()),
        rationale: review.map(|r| r.rationale.clone()).unwrap_or_default(),
        unchanged: s.unchanged.then(|| s.round.replies.clone()),
        findings: s.round.findings.open().cloned().collect(),
        dismissed: s.round.findings.dismissed().cloned().collect(),
        requirements: v.doc.requirements(&design),
        questions: v.doc.open_questions(&design),
        since: match s.sent_back.filter(|before| Some(*before) != s.round.document) {
            Some(before) => Some(publication::text_diff(&load_text(cx, &before).await?, &design)),
            None => None,
        },
        summary: v.doc.summary(&design),
        report: v.doc.change_report(&design),
        whole: match s.target(v) {
            PublicationTarget::Comment => Some(whole_document(s, v).await?),
            _ => None,
        },
        diff: v.doc.diff(&design),
        executed: v.doc.executed_files(&design),
        reviewer_now: Some(String::clone(&cx.tools().reviewer.get()))
            .filter(|now| s.policy.as_ref().is_some_and(|policy| policy.reviewer != *now)),
        overridable: asks == Some(GateQuestion::Verdict),
        others: publication::load_foreign_files(cx, s.foreign).await?,
        abandoned_branch: left,
        authorship: s.authorship.clone(),
        overlaps: s.overlaps.clone(),
        approvals: approvals::approval_progress(s, v).await?,
        edited_by: s.asked.as_ref().and_then(|asked| Some(asked.touched.as_ref()?.by.login.clone())),
        issue_diff: match s.edited {
            Some(diff) => Some(load_text(cx, &diff).await?),
            None => None,
        },
        reason: s.asked_because.clone().filter(|_| gate_verdict(s) == Verdict::Approved),
        document_url: proposal.map(|p| p.file_url.clone()),
        pull_url: proposal.map(|p| p.pull_url.clone()),
        status_url: s.status.url.clone(),
    })
}

/// Builds the provenance of the document. `approval` is the row that accepted the document; `audit` is the link of that
/// row in the audit chain.
pub(super) async fn provenance(
    s: &StageState,
    v: &StepVisit<'_>,
    approval: Option<&ApprovalRow>,
    audit: Option<Hash>,
) -> Result<Provenance, StepError> {
    let (cx, review) = (v.cx, s.round.review.as_ref());
    let document = *require_state(&s.round.document)?;
    Ok(Provenance {
        run: cx.run().id,
        document,
        verdict: review.map(|review| review.verdict),
        drafter: draft_author(Some(document), s.round.drafter.as_ref()),
        reviewer: review_author(review.and_then(|review| review.reviewer.as_ref())),
        acceptance: approval.map(|row| acceptance(row, cx)),
        subject: approval.map(|row| row.subject),
        audit,
        cost: visible_spending(s, cx).await?,
        rehearsal: is_rehearsal(s, cx),
    })
}

/// Builds the run's section of the pull request body. `audit` is set once the document is approved.
pub(super) async fn pull_section(
    s: &StageState,
    v: &StepVisit<'_>,
    audit: Option<Hash>,
) -> Result<OutboundBody, StepError> {
    if let Some(change) = change_section(s, v, audit).await? {
        return Ok(change);
    }
    let path = document_path(s)?;
    // Without an audit link, the approval may be of a draft whose review has not approved it.
    let approval = s.approval.as_ref().filter(|_| audit.is_some());
    Ok(messages::pull_section(&PullCard {
        issue: require_state(&s.issue)?.number,
        stage: v.doc.info().stage.to_owned(),
        log_path: review_log_path(&path),
        document_path: path,
        document_url: s.proposal.as_ref().map(|p| p.file_url.clone()),
        provenance: provenance(s, v, approval, audit).await?,
        others: publication::load_foreign_files(v.cx, s.foreign).await?,
    }))
}

/// Builds the section about an accepted change, for its pull request and check run. Returns `None` if the document is
/// not a change.
pub(super) async fn change_section(
    s: &StageState,
    v: &StepVisit<'_>,
    audit: Option<Hash>,
) -> Result<Option<OutboundBody>, StepError> {
    let cx = v.cx;
    if v.doc.info().target != PublicationTarget::Code {
        return Ok(None);
    }
    let text = load_document(s, cx).await?;
    let Some(report) = v.doc.change_report(&text) else { return Ok(None) };
    let approval = s.approval.as_ref().filter(|row| Some(row.document) == s.round.document);
    let rows = load_issue_runs(cx).await?;
    let made =
        other_stages(cx, &rows).into_iter().filter(|(_, state)| *state == messages::RunDisplayState::Done);
    let documents = made.filter_map(|(row, _)| Some((row.workflow.clone(), outcome_url(row)?)));
    let documents = documents.filter(|(_, url)| url.contains("#issuecomment-")).collect();
    Ok(Some(messages::change_section(&ChangeCard {
        report,
        provenance: provenance(s, v, approval, audit).await?,
        findings: s.round.findings.open().cloned().collect(),
        others: publication::load_foreign_files(cx, s.foreign).await?,
        executed: v.doc.executed_files(&text),
        patch: v.doc.offered_patch(&text),
        gate_url: s.asked.as_ref().map(|asked| asked.url.clone()),
        documents,
    })))
}

/// Returns the title of the pull request. If `wip` is set, adds a work-in-progress marker, for GitHub plans without
/// draft pull requests.
pub(super) async fn pull_title(s: &StageState, v: &StepVisit<'_>, wip: bool) -> Result<String, StepError> {
    let issue = require_state(&s.issue)?;
    let title = match change_title(s, v).await? {
        Some((title, _)) => title,
        None => messages::pull_title(v.doc.info().stage, issue.number, &issue.title),
    };
    Ok(if wip { format!("[WIP] {title}") } else { title })
}

/// Returns the one-line title of the change and the report of the change; `None` if the document is not a change.
async fn change_title(
    s: &StageState,
    v: &StepVisit<'_>,
) -> Result<Option<(String, ChangeReport)>, StepError> {
    let report = v.doc.change_report(&load_document(s, v.cx).await?);
    let is_bug = require_state(&s.issue)?.labels.iter().any(|label| label.eq_ignore_ascii_case("bug"));
    Ok(report.map(|report| (messages::change_title(&report, s.convention, is_bug), report)))
}

/// Detects the repository's commit message style.
pub(super) async fn detect_convention(
    cx: &StepContext,
    base: &BaseCommit,
) -> Result<CommitConvention, StepError> {
    let snapshot = cx.tools().snapshot(cx, base).await?;
    cx.once("convention", |_| async {
        let past = snapshot.past_commits(PAST_COMMITS).await.map_err(git_error)?;
        Ok(CommitConvention::detect(past.iter().map(|past| past.subject.as_str())))
    })
    .await
}

/// Updates the pull request after its document is published.
pub(super) async fn update_pull(
    s: &StageState,
    v: &StepVisit<'_>,
    key: &str,
    audit: Hash,
) -> Result<(), StepError> {
    let cx = v.cx;
    let proposal = require_state(&s.proposal)?;
    let repo = cx.tools().repository(cx).await?;
    let stage = v.doc.info().stage;
    let section = pull_section(s, v, Some(audit)).await?;
    let section_key = format!("{key}-section");
    let body = publication::record_pull_body(cx, &section_key, &proposal.branch, stage, &section).await?;
    // Once the pull request holds code, people may have retitled it, so we keep the title.
    let title = match s.publishes_files() || s.after.is_new() {
        true => Some(pull_title(s, v, !proposal.draft).await?),
        false => None,
    };
    cx.once(key, |_| async {
        none_if_refused(repo.edit_pull(proposal.pull, title.as_deref(), &body).await)
            .map(drop)
            .map_err(github_error)
    })
    .await
}

/// Updates the section about the pushed change in its pull request, because people's remarks were settled or stay open.
pub(super) async fn update_open_points(
    s: &StageState,
    v: &StepVisit<'_>,
    key: &str,
) -> Result<(), StepError> {
    match s.check.audit().filter(|_| s.is_proposed()) {
        Some(audit) => update_pull(s, v, &format!("{key}-pull"), audit).await,
        None => Ok(()),
    }
}

/// Builds the message of our commit on the issue's branch.
pub(super) async fn commit_message(
    s: &StageState,
    v: &StepVisit<'_>,
    kind: CommitKind,
    audit: Option<Hash>,
) -> Result<String, StepError> {
    let (cx, issue) = (v.cx, require_state(&s.issue)?);
    let row = s.approval.as_ref();
    let follow_up =
        (!s.after.is_new()).then(|| messages::follow_up_title(s.after.is_fixing_ci(), s.convention));
    let change = change_title(s, v).await?.map(|(title, report)| ChangeCommit {
        title: follow_up.unwrap_or(title),
        why: report.why,
        acceptance: row.map(|row| acceptance(row, cx)),
        approved_by: row.iter().flat_map(|row| approvers(row)).cloned().collect(),
        host: url_host(&issue.url).to_owned(),
    });
    Ok(messages::commit_message(&CommitCard {
        kind,
        stage: v.doc.info().stage.to_owned(),
        issue: issue.number,
        title: issue.title.clone(),
        change,
        run: cx.run().id,
        document: *require_state(&s.round.document)?,
        audit,
    }))
}

/// Returns the host of a URL, such as `github.com`.
fn url_host(url: &str) -> &str {
    url.split('/').nth(2).and_then(|host| host.split(':').next()).unwrap_or("github.com")
}

/// Builds the review log that is committed with the document.
pub(super) async fn review_log(s: &StageState, v: &StepVisit<'_>) -> Result<String, StepError> {
    let issue = require_state(&s.issue)?;
    let rounds = s.round.history.iter().filter_map(|line| {
        Some(RoundLog {
            round: line.round,
            document: line.document?,
            verdict: line.verdict?,
            why: line.why.clone(),
            drafter: draft_author(line.document, line.drafter.as_ref()),
            reviewer: review_author(line.reviewer.as_ref()),
        })
    });
    Ok(messages::review_log(&ReviewLog {
        issue: issue.number,
        title: issue.title.clone(),
        document_path: document_path(s)?,
        rounds: rounds.collect(),
        findings: s.round.findings.all().to_vec(),
        provenance: provenance(s, v, s.approval.as_ref(), None).await?,
    }))
}

/// Returns the label for a run's state. Returns `None` while the run is working, or if another workflow follows.
fn state_label(cx: &StepContext, state: messages::RunDisplayState) -> Option<LabelView> {
    match state {
        messages::RunDisplayState::Working => None,
        messages::RunDisplayState::NeedsYou | messages::RunDisplayState::Parked => Some(messages::NEEDS_YOU),
        messages::RunDisplayState::Done => Some(messages::DONE).filter(|_| cx.next_workflow().is_none()),
        messages::RunDisplayState::Stopped | messages::RunDisplayState::Failed => Some(messages::STOPPED),
    }
}

/// Returns the label for an issue with several live runs. "Needs you" has priority over all other labels. Otherwise the
/// issue has no label while any other run is working.
async fn label_among_runs(
    cx: &StepContext,
    key: &str,
    view: Option<LabelView>,
) -> Result<Option<LabelView>, StepError> {
    if view == Some(messages::NEEDS_YOU) {
        return Ok(view);
    }
    let own = cx.run();
    let (asks, works): (bool, bool) = cx
        .once(&format!("{key}-among"), |_| async {
            let mut others = artifacts::live_runs(cx).await?;
            let other = |run: &RunRow| run.id != own.id && run.cancel.is_none();
            others.retain(|run| run.trigger.issue == own.trigger.issue && other(run));
            let most = most_urgent_run(others.iter().map(|run| RunView::new::<()>(run, None)));
            Ok((most.as_ref().is_some_and(|run| run.status == RunViewStatus::Asking), most.is_some()))
        })
        .await?;
    Ok(match (asks, works) {
        (true, _) => Some(messages::NEEDS_YOU),
        (_, true) => None,
        _ => view,
    })
}

/// Sets the issue's state label.
pub(super) async fn update_label(
    s: &mut StageState,
    cx: &StepContext,
    state: messages::RunDisplayState,
) -> Result<(), StepError> {
    let view = state_label(cx, state);
    if has_label(s, view) {
        return Ok(());
    }
    let view = label_among_runs(cx, "label", view).await?;
    let repo = cx.tools().repository(cx).await?;
    update_label_as(s, cx, &repo, "label", view).await
}

fn has_label(s: &StageState, view: Option<LabelView>) -> bool {
    s.label.as_deref() == view.map(|view| view.name)
}

fn label_change<'a>(s: &'a StageState, cx: &StepContext, view: Option<LabelView>) -> LabelChange<'a> {
    LabelChange { issue: cx.run().trigger.issue, remove: s.label.as_deref(), add: view.map(LabelView::spec) }
}

async fn update_label_as(
    s: &mut StageState,
    cx: &StepContext,
    repo: &GitHubRepo,
    key: &str,
    view: Option<LabelView>,
) -> Result<(), StepError> {
    if has_label(s, view) {
        return Ok(());
    }
    cx.once(key, |_| async {
        none_if_refused(repo.change_label(&label_change(s, cx, view)).await).map(drop).map_err(github_error)
    })
    .await?;
    s.label = view.map(|view| view.name.to_owned());
    Ok(())
}

pub(super) async fn show_working(s: &mut StageState, v: &StepVisit<'_>) -> Result<(), StepError> {
    let state = messages::RunDisplayState::Working;
    let shown = status_body(s, v, state).await?;
    s.status.show(v.cx, "status", &shown, StatusUrgency::Progress).await?;
    let repo = v.cx.tools().repository(v.cx).await?;
    check_run::update_check_run(s, v, &repo, "status", state).await?;
    update_label(s, v.cx, state).await
}

/// Shows a new state of the run in the status comment and sets the issue's label. Both happen in one request if
/// possible.
pub(super) async fn show_state(
    s: &mut StageState,
    v: &StepVisit<'_>,
    state: messages::RunDisplayState,
) -> Result<(), StepError> {
    show_state_as(s, v, "status", state).await
}

/// Like [`show_state`], but for a second update in the same visit; `key` is the journal key of the update.
pub(super) async fn show_state_as(
    s: &mut StageState,
    v: &StepVisit<'_>,
    key: &str,
    state: messages::RunDisplayState,
) -> Result<(), StepError> {
    let view = show_state_before_label(s, v, key, state).await?;
    let repo = v.cx.tools().repository(v.cx).await?.with_question_priority();
    update_label_as(s, v.cx, &repo, &format!("{key}-label"), view).await
}

/// Like [`show_state_as`], but does not set a label that would need a separate request. Returns the label that still
/// has to be set.
pub(super) async fn show_state_before_label(
    s: &mut StageState,
    v: &StepVisit<'_>,
    key: &str,
    state: messages::RunDisplayState,
) -> Result<Option<LabelView>, StepError> {
    let cx = v.cx;
    let view = label_among_runs(cx, key, state_label(cx, state)).await?;
    let shown = status_body(s, v, state).await?;
    let mut comment = s.status.clone();
    let wanted = (!has_label(s, view)).then(|| label_change(s, cx, view));
    if comment.show_and_label(cx, key, &shown, StatusUrgency::TurningPoint, wanted).await? {
        s.label = view.map(|view| view.name.to_owned());
    }
    s.status = comment;
    let repo = cx.tools().repository(cx).await?.with_question_priority();
    check_run::update_check_run(s, v, &repo, key, state).await?;
    Ok(view)
}

/// Creates the workflow's trigger label in the repository, so that people can select it next time.
pub(super) async fn define_trigger_label(v: &StepVisit<'_>, repo: &GitHubRepo) -> Result<(), StepError> {
    let command = v.doc.info().command(v.cx.run());
    let Some(name) = command.label else { return Ok(()) };
    let description = messages::trigger_description(command.about);
    let spec = LabelSpec { name, color: messages::TRIGGER_COLOR, description: &description };
    v.cx.once("offer-label", |_| async {
        none_if_refused(repo.define_label(spec).await).map(drop).map_err(github_error)
    })
    .await
}

/// Returns the state label that an earlier run left on the issue.
pub(super) fn find_state_label(labels: &[String]) -> Option<String> {
    let old = |label: &str| label == messages::OLD_WORKING;
    labels.iter().find(|label| old(label) || messages::STATES.iter().any(|view| view.name == *label)).cloned()
}

pub(super) fn acceptance(row: &ApprovalRow, cx: &StepContext) -> Acceptance {
    let Some(answer) = &row.answer else {
        return match waiting_steps::hotfix_waiver(cx) {
            Some((by, reason)) => Acceptance::Waived { by: by.to_owned(), reason: reason.to_owned() },
            None => Acceptance::Policy,
        };
    };
    let (by, at) = (approver_names(row), answer.at);
    match row.kind {
        ApprovalKind::Override => Acceptance::Overridden { by, at, reason: answer.text.clone() },
        ApprovalKind::Unreviewed => Acceptance::Unreviewed { by, at },
        ApprovalKind::Approve | ApprovalKind::Policy => Acceptance::Approved { by, at },
    }
}

/// Returns all people whose approvals were accepted in this row.
fn approvers(row: &ApprovalRow) -> impl Iterator<Item = &Actor> {
    row.with.iter().chain(row.answer.iter().map(|answer| &answer.by))
}

pub(super) fn approver_names(row: &ApprovalRow) -> String {
    messages::join_names(&approvers(row).map(|actor| actor.login.clone()).collect::<Vec<_>>())
}

/// Returns the author of the document: the model in `served`, or a person if no model wrote this version. Without a
/// document, returns `Author::Nobody`.
fn draft_author(document: Option<Hash>, served: Option<&ServedModel>) -> Author {
    match (document, served) {
        (None, _) => Author::Nobody,
        (Some(_), None) => Author::Person,
        (Some(_), Some(served)) => model_author(served),
    }
}

fn review_author(served: Option<&ServedModel>) -> Author {
    served.map_or(Author::Nobody, model_author)
}

fn model_author(served: &ServedModel) -> Author {
    Author::Model {
        served: served.model_name().map(str::to_owned),
        family: served.family.clone(),
        in_place_of: served.in_place_of.clone().map(|other| [other.asked, other.setting]),
    }
}

pub(super) fn document_path(s: &StageState) -> Result<String, StepError> {
    let issue = require_state(&s.issue)?.number;
    Ok(document_path_of(&require_state(&s.policy)?.document_path, issue))
}

/// Returns the path of the review log: `docs/lld/LLD-7.md` becomes `docs/lld/LLD-7.review.md`.
pub(super) fn review_log_path(path: &str) -> String {
    format!("{}.review.md", path.strip_suffix(".md").unwrap_or(path))
}

/// Whether this run is a rehearsal. Also works if the run ended before it read its policy.
pub(super) fn is_rehearsal(s: &StageState, cx: &StepContext) -> bool {
    cx.tools().is_rehearsal(s.policy.as_ref())
}

/// Returns the verdict shown when the gate opens; INCONCLUSIVE if no review took place.
pub(super) fn gate_verdict(s: &StageState) -> Verdict {
    s.round.review.as_ref().map_or(Verdict::Inconclusive, |r| r.verdict)
}
