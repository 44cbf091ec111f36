//! The page of one run: its position in the workflow, its rounds and findings, and a trace of all its actions, down to
//! the tokens of each call.

use std::collections::HashSet;

use askama::Template;
use axum::{
    Extension,
    extract::{Path, State},
    http::header,
    response::IntoResponse,
};
use serde_json::json;

use super::{
    OperatorPageError, OperatorPageResult, PageFrame, PagesContext, PagesState, filters,
    page_sessions::PageSession,
    render_page,
    runs::{status_class, truncate},
    svg::{GraphDrawing, draw_graph},
};
use crate::{
    documents::escape_control_characters,
    engine::{RunView, RunViewStatus},
    messages::step_name,
    store::{
        ApprovalRow, CallRow, CommitRow, GateHistory, RunHistory, Spending, TextKind, VerdictRow, VisitRecord,
    },
    types::{Hash, MicroUsd, RepoId, RunId, Timestamp, count},
    web::control::RunListItem,
};

/// Maximum number of bytes shown of a stored text.
const TEXT_BYTES: usize = 2 << 20;

#[derive(Template)]
#[template(path = "run.html")]
struct RunDetailPage {
    page: PageFrame,
    base: String,
    retry: String,
    title: String,
    listed: RunListItem,
    spent: Spending,
    class: &'static str,
    retries: bool,
    links: Vec<(String, String)>,
    change: Option<Hash>,
    chain: AuditChainPanel,
    graph: Option<GraphDrawing>,
    visits: Vec<VisitSection>,
    story: RunHistory,
    view: RunView,
}

/// Result of verifying the audit chain.
struct AuditChainPanel {
    sound: bool,
    summary: String,
    wrong: Vec<String>,
}

struct VisitSection {
    number: u64,
    step: String,
    at: Timestamp,
    took: String,
    how: String,
    items: Vec<VisitItem>,
}

/// A model call, journal entry or ledger row that belongs to a visit.
#[derive(Default)]
struct VisitItem {
    title: String,
    facts: Vec<(&'static str, String)>,
    /// Stored texts of the item, each with a label and a hash. Each text has its own page.
    texts: Vec<(&'static str, Hash)>,
}

pub(super) async fn page(
    State(pages): PagesState,
    Extension(visit): Extension<PageSession>,
    Path((repo, seq)): Path<(RepoId, u64)>,
) -> OperatorPageResult {
    let id = RunId { repo, seq };
    let (view, story) = read_run(&pages, id).await?;
    let control = &pages.operator.control;
    let name = control.store.installation_registry().repository(repo).await?.map(|row| row.name);
    let listed = RunListItem::new(&view, name.as_ref(), &control.store.pauses().await?, &control.web_url);
    let workflow = pages.operator.workflows.iter().find(|workflow| workflow.name() == view.workflow);
    let step_of = |saved: &str| workflow.and_then(|workflow| workflow.step(saved));
    let graph = workflow.map(|workflow| {
        let been: HashSet<_> =
            story.visits.iter().filter_map(|visit| Some(step_of(&visit.step)?.id)).collect();
        let now = if view.status == RunViewStatus::Done { "" } else { view.step_id.as_str() };
        draw_graph(&workflow.steps(), &workflow.edges(), &been, now)
    });
    let now = control.clock.now();
    let visits = story.visits.iter().map(|visit| {
        let step = step_of(&visit.step);
        VisitSection {
            number: visit.visit,
            step: step.map_or_else(|| truncate(&visit.step, 40), |step| step_name(step.id, step.title)),
            at: visit.entered_at,
            took: duration_text(visit.entered_at, visit.left_at, now),
            how: visit.how.clone().unwrap_or_default(),
            items: visit_items(&story, visit.visit, now),
        }
    });
    let title = story.texts.iter().find_map(|text| text.row.title.clone()).unwrap_or_default();
    let change =
        story.texts.iter().rev().find(|text| text.row.kind == TextKind::Diff).map(|text| text.row.text);
    let base = format!("/runs/{repo}/{seq}");
    render_page(&RunDetailPage {
        retry: format!("{base}/retry"),
        title: truncate(&title, 300),
        class: status_class(&listed.status),
        spent: Spending::from_calls(story.calls.iter().map(|call| &call.row)),
        retries: matches!(
            view.status,
            RunViewStatus::Failed | RunViewStatus::Waiting | RunViewStatus::Parked
        ),
        links: github_links(&pages, &listed, &view, &story),
        change,
        chain: verify_chain(&pages, repo, &listed.repository).await?,
        graph,
        visits: visits.collect(),
        page: PageFrame::new(format!("Run {id}: {}", view.workflow), &visit),
        base,
        listed,
        story,
        view,
    })
}

/// Returns the run's whole history as JSON, including parts that the page omits.
pub(super) async fn raw_json(
    State(pages): PagesState,
    Path((repo, seq)): Path<(RepoId, u64)>,
) -> OperatorPageResult {
    let (view, story) = read_run(&pages, RunId { repo, seq }).await?;
    let run = json!({
        "run": view.id, "workflow": view.workflow, "version": view.version, "issue": view.issue,
        "status": view.status.as_str(), "step": view.step_id, "visit": view.visit, "why": view.why,
        "started_by": view.started_by, "started_at": view.started_at.to_string(),
        "updated_at": view.updated_at.to_string(), "outcome": view.outcome, "trigger": view.trigger,
        "story": story,
    });
    let text =
        serde_json::to_string_pretty(&run).map_err(|error| OperatorPageError::Broken(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Returns one of the run's stored texts as plain text.
pub(super) async fn stored_text(
    State(pages): PagesState,
    Path((repo, seq, hash)): Path<(RepoId, u64, String)>,
) -> OperatorPageResult {
    let hash = hash.parse().map_err(|_| OperatorPageError::Missing)?;
    let found = pages.operator.control.store.run_text(RunId { repo, seq }, hash).await?;
    let mut text = found.ok_or(OperatorPageError::Missing)?;
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text += "\n… the rest is left out: `countersign export` has it.\n";
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], escape_control_characters(&text))
        .into_response())
}

async fn read_run(pages: &PagesContext, id: RunId) -> Result<(RunView, RunHistory), OperatorPageError> {
    let control = &pages.operator.control;
    let view = control.engine.inspect(id).await?.ok_or(OperatorPageError::Missing)?;
    let story = control.store.run_history(id).await?.ok_or(OperatorPageError::Missing)?;
    Ok((view, story))
}

async fn verify_chain(
    pages: &PagesContext,
    repo: RepoId,
    repository: &str,
) -> Result<AuditChainPanel, OperatorPageError> {
    let Some(walked) = pages.operator.control.store.verify_audit_chain(repo).await? else {
        let summary = format!(
            "The audit chain of this repository is too long to check here; run `countersign audit verify {repository}`."
        );
        return Ok(AuditChainPanel { sound: true, summary, wrong: Vec::new() });
    };
    let (sound, links, head) = (walked.is_sound(), walked.links, walked.head.short());
    let summary = if sound {
        format!("The audit chain is intact: all {links} links were checked just now, head {head}.")
    } else {
        format!("The audit chain is BROKEN: {links} links were checked just now.")
    };
    Ok(AuditChainPanel {
        sound,
        summary,
        wrong: walked.broken.into_iter().chain(walked.altered).take(20).collect(),
    })
}

/// Returns links to the run's issue, branch, pull request and outcome on GitHub. Unknown links are omitted.
fn github_links(
    pages: &PagesContext,
    listed: &RunListItem,
    view: &RunView,
    story: &RunHistory,
) -> Vec<(String, String)> {
    let web_url = pages.operator.control.web_url.as_str().trim_end_matches('/');
    let mut links = Vec::new();
    if let Some(issue) = &listed.url {
        links.push((format!("Issue #{}", view.issue), issue.clone()));
        if let Some(VisitRecord { row, .. }) = story.commits.last() {
            let branch = format!("{web_url}/{}/tree/{}", listed.repository, row.branch);
            links.push((format!("Branch {}", row.branch), branch));
        }
    }
    let state: serde_json::Value = serde_json::from_slice(&story.state).unwrap_or_default();
    let pull =
        ["/proposal/pull_url", "/stage/proposal/pull_url"].iter().find_map(|at| state.pointer(at)?.as_str());
    let outcome = view.outcome.as_ref().and_then(|outcome| outcome.url.as_deref());
    let there = |url: &&str| url.strip_prefix(web_url).is_some_and(|path| path.starts_with('/'));
    for (label, url) in [("Pull request", pull), ("Outcome", outcome)] {
        links.extend(url.filter(there).map(|url| (label.to_owned(), url.to_owned())));
    }
    links
}

/// Returns the items of a visit: its journal entries in order, then its ledger rows.
fn visit_items(story: &RunHistory, visit: u64, now: Timestamp) -> Vec<VisitItem> {
    let calls: Vec<_> = story.calls.iter().filter(|call| call.visit == visit).collect();
    let mut items = Vec::new();
    for entry in story.entries.iter().filter(|entry| entry.visit == visit) {
        let call = calls.iter().find(|call| call.key == entry.key);
        let mut item = call.map_or_else(
            || VisitItem {
                title: format!("{} · {}", entry.key, duration_text(entry.begun_at, entry.done_at, now)),
                ..VisitItem::default()
            },
            |call| call_item(&call.row),
        );
        let named = if call.is_some() { "Answer" } else { "Result" };
        item.texts.extend(entry.texts.iter().map(|text| (named, *text)));
        items.push(item);
    }
    let done = |key: &str| story.entries.iter().any(|entry| entry.visit == visit && entry.key == key);
    items.extend(calls.iter().filter(|call| !done(&call.key)).map(|call| call_item(&call.row)));
    items.extend(rows_of_visit(&story.texts, visit).map(|text| VisitItem {
        title: text.kind.audit_text().to_owned(),
        facts: text.served.iter().map(|served| ("Model", served.clone())).collect(),
        texts: vec![("Text", text.text)],
    }));
    items.extend(rows_of_visit(&story.verdicts, visit).map(verdict_item));
    items.extend(rows_of_visit(&story.approvals, visit).map(approval_item));
    items.extend(rows_of_visit(&story.commits, visit).map(commit_item));
    items.extend(story.gates.iter().filter(|gate| gate.visit == visit).map(gate_item));
    items
}

fn rows_of_visit<R>(rows: &[VisitRecord<R>], visit: u64) -> impl Iterator<Item = &R> {
    rows.iter().filter(move |seen| seen.visit == visit).map(|seen| &seen.row)
}

fn call_item(call: &CallRow) -> VisitItem {
    let status = format!("{:?}", call.status).to_lowercase();
    let served = call.served.as_deref().unwrap_or("unknown");
    let cost = call.cost_microusd.map(|cost| MicroUsd(cost).to_exact_dollars());
    let cost = match (&cost, call.billed) {
        (Some(cost), true) => format!("{cost} billed"),
        (Some(cost), false) => format!("{cost} at list price"),
        (None, _) => "no known cost".to_owned(),
    };
    let seconds = call.elapsed_ms as f64 / 1000.0;
    let tokens = format!(
        "{} in, {} out, {} read from cache, {} written to it",
        call.input_tokens, call.output_tokens, call.cache_read, call.cache_written
    );
    let cut_out =
        call.cut.iter().map(|cut| format!("{}: {} pieces, {} bytes", cut.what, cut.pieces, cut.bytes));
    let mut facts = vec![
        ("Requested", format!("{}:{}", call.provider, call.asked)),
        ("Served", served.to_owned()),
        ("Prompt, sha256", call.prompt.to_string()),
        ("Tokens", tokens),
        ("Cost", cost.clone()),
        ("Latency", format!("{seconds:.1} s in {} attempts", call.attempts)),
    ];
    facts.extend(call.family.iter().map(|family| ("Family", family.to_string())));
    facts.extend(call.held_microusd.map(|held| ("Held back", MicroUsd(held).to_exact_dollars())));
    facts.extend(cut_out.map(|cut| ("Cut from the prompt", cut)));
    facts.extend(call.error_kind().map(|kind| ("Error", truncate(&kind, 2000))));
    let title = format!("{}: {served} · {status} · {cost} · {seconds:.1} s", call.role);
    VisitItem { title, facts, texts: Vec::new() }
}

fn verdict_item(verdict: &VerdictRow) -> VisitItem {
    let VerdictRow { document, round, verdict, prompt, nonce, why, reviewer_served, .. } = verdict;
    VisitItem {
        title: format!("Verdict {verdict} in round {round}"),
        facts: vec![
            ("Reviewer", reviewer_served.clone().unwrap_or_default()),
            ("Prompt, sha256", prompt.to_string()),
            ("Nonce", nonce.clone()),
            ("Why", truncate(why, 4000)),
        ],
        texts: vec![("Document", *document)],
    }
}

fn approval_item(approval: &ApprovalRow) -> VisitItem {
    let by = approval.answer.iter().map(|answer| ("By", answer.by.login.clone()));
    let title = format!("Accepted: {}", format!("{:?}", approval.kind).to_lowercase());
    let facts = [("Subject", approval.subject.to_string())].into_iter().chain(by).collect();
    VisitItem { title, facts, texts: vec![("Document", approval.document)] }
}

fn commit_item(commit: &CommitRow) -> VisitItem {
    let made = commit.commit.as_ref().map_or_else(|| "not confirmed".to_owned(), ToString::to_string);
    let title = format!("Commit on {}: {made}", commit.branch);
    let facts = commit.files.iter().map(|(path, _)| ("File", path.clone())).collect();
    VisitItem { title, facts, texts: Vec::new() }
}

fn gate_item(gate: &GateHistory) -> VisitItem {
    let verbs = gate.spec.verbs.iter().map(|(verb, who)| ("Accepts", format!("/{verb}, by {who}")));
    let answers = gate.answers.iter().map(|answer| {
        let text = truncate(&answer.text, 1000);
        (
            "Answered",
            format!("/{} by {} ({}), {}: {text}", answer.verb, answer.by.login, answer.role, answer.at),
        )
    });
    let ends = [("Subject", gate.spec.subject.to_string()), ("Opened", gate.opened_at.to_string())];
    let closed = gate.closed_at.map(|at| ("Closed", at.to_string()));
    let open = if gate.closed_at.is_none() { ", open" } else { "" };
    VisitItem {
        title: format!("Gate {}{open}: {}", gate.spec.stage, count(gate.answers.len(), "answer", "answers")),
        facts: ends.into_iter().chain(closed).chain(verbs).chain(answers).collect(),
        texts: Vec::new(),
    }
}

/// Formats the time from `from` to `to`, or to `now` if `to` is `None`.
fn duration_text(from: Timestamp, to: Option<Timestamp>, now: Timestamp) -> String {
    let seconds = to.unwrap_or(now).since(from).as_secs_f64();
    let text = match seconds {
        ..60.0 => format!("{seconds:.1} s"),
        ..3600.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86400.0),
    };
    if to.is_some() { text } else { format!("{text} so far") }
}
