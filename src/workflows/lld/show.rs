//! What people see of a design's run: the status comment, the gate, the pull request, the log, the labels.
//!
//! Views only: state in, typed values for `messages` out.

use serde::{Deserialize, Serialize};

use super::{At, Lld, STAGE, State, conclude, document, gates, straight_to};
use crate::{
    commands::CommandSpec,
    documents::lld,
    engine::{ApprovalKind, ApprovalRow, CallRow, Halt, Outcome, Step, StepError, Workflow},
    github::{Body, Fault, LabelSpec, LabelSwap, Repo, decorated},
    limits,
    messages::{
        self, ApprovalLine, ApproveLine, Author, CommitCard, CommitKind, CostView, DraftView, GateCard,
        HaltCard, HaltReason, Kept, LabelView, Mark, Note, PullCard, ReviewLog, RoundLine, RoundLog,
        Standing, StatusView, StepLine, Waiting,
    },
    rounds::{self, Cx, Remains, Seen, Served, Urgency, announce, fault, need},
    store::Spending,
    types::{Hash, Role, Verdict},
};

/// The status comment with the run at `at`.
pub(super) async fn status(s: &State, cx: &Cx, at: At, state: messages::State) -> Result<Body, StepError> {
    let run = cx.run();
    let draft = match s.round.document {
        Some(hash) => Some(DraftView {
            name: path(s)?,
            text: document(s, cx).await?,
            hash,
            url: s.proposal.as_ref().filter(|p| p.document == hash).map(|p| p.file_url.clone()),
        }),
        None => None,
    };
    let issue_chars = match &s.issue {
        Some(issue) => rounds::text_of(cx, &issue.body).await?.chars().count(),
        None => 0,
    };
    let view = StatusView {
        workflow: Lld::NAME.to_owned(),
        run: run.id,
        requested_by: run.trigger.actor.login.clone(),
        rehearsal: rehearsal(s, cx),
        state,
        steps: steps(s, at, state),
        rounds: s.round.history.iter().map(round).collect(),
        waiting: waiting(s, state),
        draft,
        notes: notes(s, issue_chars, &cx.ledger().await?.calls),
        cost: spent(s, cx).await?.map(|spent| CostView { stage: "LLD".to_owned(), quote: s.quote, spent }),
        outcome: s.proposal.as_ref().filter(|_| state == messages::State::Done).map(|p| p.pull_url.clone()),
        updated: cx.clock().now(),
    };
    Ok(messages::status(&view))
}

fn steps(s: &State, at: At, state: messages::State) -> Vec<StepLine> {
    // A run that waits for money stands before the step it is for.
    let at = s.paused.as_ref().filter(|_| at == At::Budget).map_or(at, |paused| paused.before);
    let here = Lld::GRAPH.iter().position(|(step, _)| *step == at).unwrap_or_default();
    let draft_gate = s.policy.as_ref().is_some_and(|p| p.draft_gate);
    let mark = |index: usize, step: At| match index {
        _ if step == At::DraftGate && !draft_gate => Mark::Off,
        _ if state == messages::State::Done || index < here => Mark::Done,
        _ if index == here => Mark::Now,
        _ => Mark::ToCome,
    };
    let steps = Lld::GRAPH.iter().enumerate().filter(|(_, (step, _))| *step != At::Budget);
    steps
        .map(|(index, (step, _))| StepLine { id: step.id(), title: step.title(), mark: mark(index, *step) })
        .collect()
}

fn round(line: &rounds::Line) -> RoundLine {
    RoundLine {
        round: line.round,
        verdict: line.verdict,
        open_findings: line.open,
        drafter: drafter(line.document, line.drafter.as_ref()),
        reviewer: reviewer(line.reviewer.as_ref()),
    }
}

fn waiting(s: &State, state: messages::State) -> Option<Waiting> {
    let going = matches!(state, messages::State::Working | messages::State::Parked);
    if let Some(held) = s.round.held().filter(|_| going) {
        return Some(Waiting::Model(held.view()));
    }
    if let Some(paused) = s.paused.as_ref().filter(|_| state == messages::State::NeedsYou) {
        return Some(Waiting::Budget { way_on: paused.capped.way_on(), url: paused.url.clone()? });
    }
    let asked = s.asked.as_ref().filter(|_| state == messages::State::NeedsYou)?;
    Some(Waiting::Decision {
        line: line(asked.subject),
        verdict: s.round.review.as_ref().map(|r| r.verdict),
        role: Role::Write,
        gate_url: Some(asked.url.clone()),
    })
}

fn notes(s: &State, issue_chars: usize, calls: &[CallRow]) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Some(complaint) = s.policy.as_ref().and_then(|p| p.complaint.as_ref()) {
        notes.push(Note::Said(format!("{complaint}. The server's own settings are used instead.")));
    }
    if issue_chars > limits::ISSUE_CHARS {
        notes.push(Note::IssueCut { shown: limits::ISSUE_CHARS, of: issue_chars });
    }
    let not_shown = s.left_out + s.round.unshown;
    if not_shown > 0 {
        notes.push(Note::FilesNotShown(not_shown));
    }
    if s.repairs > 0 {
        notes.push(Note::Repaired(s.repairs));
    }
    notes.extend(messages::detours(&rounds::detours(calls)).map(Note::Detours));
    if let Some(line) = s.round.history.last().filter(|line| line.verdict.is_none() && line.open > 0) {
        notes.push(Note::SentBack { mistakes: line.open });
    }
    notes
}

async fn spent(s: &State, cx: &Cx) -> Result<Option<Spending>, StepError> {
    rounds::so_far(cx, s.policy.as_ref()).await
}

/// The comment that asks a person.
pub(super) async fn gate(
    s: &State,
    cx: &Cx,
    standing: Standing,
    left: Option<String>,
) -> Result<Body, StepError> {
    let review = s.round.review.as_ref();
    let design = document(s, cx).await?;
    let proposal = s.proposal.as_ref();
    Ok(messages::gate(&GateCard {
        stage: STAGE.to_owned(),
        standing,
        document: *need(&s.round.document)?,
        run: cx.run().id,
        round: s.round.number,
        verdict: review.map(|r| r.verdict),
        inconclusive: review.and_then(|r| r.why.clone()),
        rationale: review.map(|r| r.rationale.clone()).unwrap_or_default(),
        findings: s.round.findings.open().cloned().collect(),
        summary: lld::summary(&design),
        role: Role::Write,
        override_role: Role::Maintain,
        drafter: drafter(s.round.document, s.round.drafter.as_ref()),
        reviewer: reviewer(review.and_then(|r| r.reviewer.as_ref())),
        others: rounds::foreign_files(cx, s.foreign).await?,
        left,
        document_url: proposal.map(|p| p.file_url.clone()),
        pull_url: proposal.map(|p| p.pull_url.clone()),
        status_url: s.status.url.clone(),
        cost: spent(s, cx).await?,
        rehearsal: rehearsal(s, cx),
    }))
}

/// The pull request's body; `audit` is there once the document is approved. How its gate stands, if that is over.
pub(super) async fn pull(
    s: &State,
    cx: &Cx,
    audit: Option<Hash>,
    over: Option<Standing>,
) -> Result<Body, StepError> {
    let review = s.round.review.as_ref();
    let path = path(s)?;
    let approved = s.approval.as_ref().filter(|_| audit.is_some());
    let foreign = match audit {
        None => s.foreign,
        // The commit is made: a look that fails for good must not end the run as if it were not.
        Some(_) => match rounds::foreign(cx).await {
            Err(StepError::User(why)) => {
                tracing::warn!(run = %cx.run().id, why, "the branch could not be looked at once more");
                s.foreign
            }
            looked => looked?,
        },
    };
    Ok(messages::pull_body(&PullCard {
        issue: need(&s.issue)?.number,
        stage: STAGE.to_owned(),
        run: cx.run().id,
        log_path: approved.map(|_| log_path(&path)),
        document_path: path,
        document: *need(&s.round.document)?,
        document_url: s.proposal.as_ref().map(|p| p.file_url.clone()),
        verdict: review.map(|r| r.verdict),
        drafter: drafter(s.round.document, s.round.drafter.as_ref()),
        reviewer: reviewer(review.and_then(|r| r.reviewer.as_ref())),
        approval: approved.map(approval),
        over: over.and_then(|standing| standing.over()),
        others: rounds::foreign_files(cx, foreign).await?,
        others_shown: foreign == s.foreign,
        audit,
        cost: spent(s, cx).await?,
        rehearsal: rehearsal(s, cx),
    }))
}

/// Brings the pull request up to date.
pub(super) async fn update_pull(
    s: &State,
    cx: &Cx,
    key: &str,
    audit: Option<Hash>,
    over: Option<Standing>,
) -> Result<(), StepError> {
    let (issue, proposal) = (need(&s.issue)?, need(&s.proposal)?);
    let repo = cx.tools().repo(cx).await?;
    let body = pull(s, cx, audit, over).await?;
    let title = messages::pull_title(STAGE, issue.number, &issue.title, !proposal.draft);
    cx.once(key, |_| async {
        decorated(repo.edit_pull(proposal.pull, &title, &body).await).map(drop).map_err(fault)
    })
    .await
}

/// The message of a commit of ours on the issue's branch.
pub(super) fn commit(s: &State, cx: &Cx, kind: CommitKind, audit: Option<Hash>) -> Result<String, StepError> {
    let issue = need(&s.issue)?;
    Ok(messages::commit_message(&CommitCard {
        kind,
        stage: STAGE.to_owned(),
        issue: issue.number,
        title: issue.title.clone(),
        run: cx.run().id,
        document: *need(&s.round.document)?,
        audit,
    }))
}

/// The file beside the document.
pub(super) fn log(s: &State, cx: &Cx) -> Result<String, StepError> {
    let issue = need(&s.issue)?;
    let rounds = s.round.history.iter().filter_map(|line| {
        Some(RoundLog {
            round: line.round,
            document: line.document?,
            verdict: line.verdict?,
            why: line.why.clone(),
            drafter: drafter(line.document, line.drafter.as_ref()),
            reviewer: reviewer(line.reviewer.as_ref()),
        })
    });
    Ok(messages::review_log(&ReviewLog {
        issue: issue.number,
        title: issue.title.clone(),
        run: cx.run().id,
        document_path: path(s)?,
        document: *need(&s.round.document)?,
        rounds: rounds.collect(),
        findings: s.round.findings.all().to_vec(),
        approval: s.approval.as_ref().map(approval),
        rehearsal: rehearsal(s, cx),
    }))
}

/// Moves the issue's state label.
pub(super) async fn label(s: &mut State, cx: &Cx, view: LabelView) -> Result<(), StepError> {
    let repo = cx.tools().repo(cx).await?;
    label_as(s, cx, &repo, "label", view).await
}

async fn label_as(s: &mut State, cx: &Cx, repo: &Repo, key: &str, view: LabelView) -> Result<(), StepError> {
    if s.label.as_deref() == Some(view.name) {
        return Ok(());
    }
    cx.once(key, |_| async {
        let moved = match s.label.as_deref() {
            Some(old) => repo.swap_label(&swap(cx, old, view)).await,
            None => repo.ensure_label(cx.run().trigger.issue, spec(view)).await,
        };
        decorated(moved).map(drop).map_err(fault)
    })
    .await?;
    s.label = Some(view.name.to_owned());
    Ok(())
}

/// Shows a turn of the run and moves the label with it: one write, where there is a label to take away.
pub(super) async fn turn(
    s: &mut State,
    cx: &Cx,
    at: At,
    state: messages::State,
    view: LabelView,
) -> Result<(), StepError> {
    turn_as(s, cx, "status", at, state, view).await
}

/// As [`turn`], where the visit shows more than one; `key` names it in the journal.
pub(super) async fn turn_as(
    s: &mut State,
    cx: &Cx,
    key: &str,
    at: At,
    state: messages::State,
    view: LabelView,
) -> Result<(), StepError> {
    say_turn(s, cx, key, at, state, view).await?;
    let repo = cx.tools().repo(cx).await?.asking();
    label_as(s, cx, &repo, &format!("{key}-label"), view).await
}

/// As [`turn_as`], but the label stays where it is if it takes a write of its own.
async fn say_turn(
    s: &mut State,
    cx: &Cx,
    key: &str,
    at: At,
    state: messages::State,
    view: LabelView,
) -> Result<(), StepError> {
    let shown = status(s, cx, at, state).await?;
    let old = s.label.as_deref().filter(|old| *old != view.name);
    let swap = old.map(|old| swap(cx, old, view));
    if s.status.turn(cx, key, &shown, Urgency::Turning, swap).await? {
        s.label = Some(view.name.to_owned());
    }
    Ok(())
}

fn spec(view: LabelView) -> LabelSpec<'static> {
    LabelSpec { name: view.name, color: view.color, description: view.description }
}

fn swap<'a>(cx: &Cx, old: &'a str, view: LabelView) -> LabelSwap<'a> {
    LabelSwap { issue: cx.run().trigger.issue, old, new: spec(view) }
}

/// Makes the label that starts this workflow known in the repository, so that whoever typed the command can
/// choose it from the list the next time.
pub(super) async fn offer_label(cx: &Cx, repo: &Repo) -> Result<(), StepError> {
    let ours =
        messages::LABELS.iter().find(|view| Lld::COMMANDS.iter().any(|row| row.label == Some(view.name)));
    let Some(LabelView { name, color, description }) = ours else { return Ok(()) };
    let spec = LabelSpec { name, color, description };
    cx.once("offer-label", |_| async { decorated(repo.define_label(spec).await).map(drop).map_err(fault) })
        .await
}

/// The state label that an earlier run left on the issue.
pub(super) fn label_left(labels: &[String]) -> Option<String> {
    let ours = [messages::WORKING, messages::NEEDS_YOU, messages::DONE, messages::STOPPED];
    labels.iter().find(|label| ours.iter().any(|view| view.name == *label)).cloned()
}

/// Tells why the run ended at `at`. A person who stopped it knows; everyone else gets a comment. One that ended after its
/// approved commit was made has published, and is done.
pub(super) async fn halted(at: At, s: &State, halt: &Halt, cx: &Cx) -> Result<Option<Outcome>, StepError> {
    match tell(at, s, halt, cx).await {
        // The issue or the repository is gone: there is nobody left to tell here.
        Err(StepError::User(why)) => {
            tracing::info!(run = %cx.run().id, why, "the end of the run could not be shown");
            Ok(None)
        }
        told => told,
    }
}

/// What the visit that tells of the end finds on GitHub. The state is that of the beginning of the visit before,
/// whose effects nobody wrote down.
#[derive(Serialize, Deserialize)]
struct Found {
    /// The state label on the issue.
    label: Option<String>,
    /// The label that stops a run, if it is still on.
    stop: Option<String>,
    /// None where nobody is to be told of it.
    remains: Option<Remains>,
}

/// None: there is no issue to show anything on.
async fn find(s: &State, cx: &Cx, repo: &Repo, told: bool) -> Result<Option<Found>, StepError> {
    let issue = match repo.issue(cx.run().trigger.issue).await {
        Ok(issue) => issue,
        Err(Fault::NotFound { .. } | Fault::Gone { .. }) => return Ok(None),
        Err(other) => return Err(fault(other)),
    };
    let path = path(s).ok();
    let remains = match told {
        true => Some(rounds::remains(cx, repo, path.as_deref(), s.proposal.as_ref()).await?),
        false => None,
    };
    let stop = rounds::stop_label_on(&issue.labels).map(str::to_owned);
    Ok(Some(Found { label: label_left(&issue.labels), stop, remains }))
}

async fn tell(at: At, s: &State, halt: &Halt, cx: &Cx) -> Result<Option<Outcome>, StepError> {
    let repo = cx.tools().repo(cx).await?;
    let stopped = matches!(halt, Halt::Stopped { .. });
    let Some(found) = cx.once("found", |_| find(s, cx, &repo, !stopped)).await? else { return Ok(None) };
    let mut s = s.clone();
    s.label = found.label.or(s.label);
    // Its first draft made it, or was about to; or an earlier end of the same run did.
    if !matches!(at, At::Load | At::Analyze) || cx.visit() > straight_to(at) + 1 {
        s.status = s.status.in_doubt();
    }
    let published = match &s.proposal {
        Some(proposal) if at == At::Finalize => {
            cx.once("published", |_| cx.tools().published(cx, proposal)).await?
        }
        _ => None,
    };
    let outcome = match published {
        Some(audit) => match conclude(&mut s, cx, audit).await {
            // The same fault as before, perhaps: people are told of that one.
            Err(StepError::Bug(error)) if matches!(halt, Halt::Bug { .. }) => {
                tracing::error!(run = %cx.run().id, "what is left after the approved commit cannot be done: {error:#}");
                None
            }
            concluded => Some(concluded?),
        },
        None => {
            let state = if stopped { messages::State::Stopped } else { messages::State::Failed };
            match say_turn(&mut s, cx, "status", at, state, messages::STOPPED).await {
                // The comment below may get through all the same.
                Err(StepError::User(why)) => {
                    tracing::warn!(run = %cx.run().id, why, "the end does not show in the status comment")
                }
                said => said?,
            }
            None
        }
    };
    if let Some(remains) = found.remains.as_ref().filter(|_| outcome.is_none()) {
        announce(cx, "halted", &messages::halted(&halt_card(at, &s, halt, remains, cx))).await?;
    }
    // Labels last: nobody waits for them.
    if outcome.is_none() {
        label(&mut s, cx, messages::STOPPED).await?;
    }
    if let Some(label) = found.stop {
        decorated(repo.remove_label(cx.run().trigger.issue, &label).await).map_err(fault)?;
    }
    if at == At::Budget {
        gates::unpause(&s, cx).await?;
    }
    let ended = Standing::Ended(match halt {
        Halt::Stopped { .. } => format!("the run was {}", halt.sentence()),
        _ => "the run could not go on, as the newest comment says".to_owned(),
    });
    if matches!(at, At::DraftGate | At::VerdictGate) {
        // The visit before this one asked.
        gates::restate(&s, cx, cx.visit() - 1, ended).await?;
    } else if s.proposal.is_some() && published.is_none() {
        update_pull(&s, cx, "pull-ended", None, Some(ended)).await?;
    }
    Ok(outcome)
}

/// What there is for people to go on from: on the branch, in the status comment, as a pull request.
fn kept(s: &State, remains: &Remains) -> Vec<Kept> {
    let (name, branch) = (path(s).unwrap_or_default(), remains.branch.clone());
    let (mut kept, mut there) = (Vec::new(), None);
    match &remains.seen {
        Seen::Nothing => {}
        Seen::Branch(None) => kept.push(Kept::Branch { name: branch }),
        Seen::Branch(Some((hash, url))) => {
            there = Some(*hash);
            kept.push(Kept::File { name: name.clone(), hash: *hash, url: url.clone() });
        }
        Seen::Unknown => kept.push(Kept::Unseen { branch }),
    }
    if let (Some(hash), Some(url)) = (s.round.document.filter(|hash| Some(*hash) != there), &s.status.url) {
        kept.push(Kept::Draft { name, hash, url: url.clone() });
    }
    kept.extend(remains.pull.clone().map(|(number, url)| Kept::Pull { number: number.0, url }));
    kept
}

fn halt_card(at: At, s: &State, halt: &Halt, remains: &Remains, cx: &Cx) -> HaltCard {
    let reason = match halt {
        Halt::Bug { attempts, .. } => HaltReason::Bug { attempts: *attempts },
        Halt::Limit { moves } => HaltReason::MoveLimit { moves: *moves },
        Halt::User(_) | Halt::Stopped { .. } => HaltReason::Said(halt.sentence()),
    };
    let CommandSpec { usage, .. } = Lld::COMMANDS[0];
    HaltCard {
        run: cx.run().id,
        at_step: format!("{} {}", at.id(), at.title()),
        reason,
        kept: kept(s, remains),
        again: usage.to_owned(),
        rehearsal: rehearsal(s, cx),
    }
}

fn approval(row: &ApprovalRow) -> ApprovalLine {
    ApprovalLine {
        by: row.answer.by.login.clone(),
        at: row.answer.at,
        override_reason: (row.kind == ApprovalKind::Override).then(|| row.answer.text.clone()),
    }
}

/// Who wrote the document, if there is one: a version that no model wrote is a person's.
fn drafter(document: Option<Hash>, served: Option<&Served>) -> Author {
    match (document, served) {
        (None, _) => Author::Nobody,
        (Some(_), None) => Author::Person,
        (Some(_), Some(served)) => model(served),
    }
}

fn reviewer(served: Option<&Served>) -> Author {
    served.map_or(Author::Nobody, model)
}

fn model(served: &Served) -> Author {
    Author::Model { served: served.name().map(str::to_owned), family: served.family.clone() }
}

pub(super) fn line(subject: Hash) -> ApproveLine {
    ApproveLine { stage: STAGE.to_owned(), subject }
}

/// Where the document goes.
pub(super) fn path(s: &State) -> Result<String, StepError> {
    let issue = need(&s.issue)?.number;
    Ok(need(&s.policy)?.document_path.replace("{issue}", &issue.to_string()))
}

/// `docs/lld/LLD-7.md` → `docs/lld/LLD-7.review.md`.
pub(super) fn log_path(path: &str) -> String {
    format!("{}.review.md", path.strip_suffix(".md").unwrap_or(path))
}

/// Also of a run that ended before it knew its own policy.
fn rehearsal(s: &State, cx: &Cx) -> bool {
    cx.tools().rehearsal(s.policy.as_ref())
}

/// The verdict a gate goes by.
pub(super) fn verdict(s: &State) -> Verdict {
    s.round.review.as_ref().map_or(Verdict::Inconclusive, |r| r.verdict)
}
