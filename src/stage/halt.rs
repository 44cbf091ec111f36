//! The visit that reports why a run was halted.

use serde::{Deserialize, Serialize};

use super::{
    PublicationTarget, PublishedDocument, StageDocument, StageState, StepVisit, finish_publication,
    first_visit_number, gates, is_before_first_shown, issue_questions, merge_watch,
    views::{document_path, find_state_label, is_rehearsal, show_state_before_label, update_label},
};
use crate::{
    engine::{RunCompletion, RunHalt, StepError, StepKind, WorkflowStep},
    github::{GitHubApiError, GitHubRepo, none_if_refused},
    messages::{self, GateState, HaltCard, HaltLeftover, HaltReason, QuestionsState},
    publication::{self, BranchContents, BranchLeftovers},
    rounds::{self, StepContext, github_error, post_announcement},
};

/// Reports why the run was halted. Posts a comment, unless a person stopped the run. If the approved commit already
/// exists, completes the publication instead and ends the run as done.
pub async fn report_halt(
    s: &StageState,
    halt: &RunHalt,
    (doc, at): (&dyn StageDocument, impl WorkflowStep),
    cx: &StepContext,
) -> Result<Option<RunCompletion>, StepError> {
    let v = &StepVisit { doc, at: at.info(), cx };
    match report_end(s, halt, v).await {
        // The issue or the repository is gone, so there is no place to report to.
        Err(StepError::User(why)) => {
            tracing::info!(run = %v.cx.run().id, why, "could not report the end of the run: issue or repository is gone");
            Ok(None)
        }
        told => told,
    }
}

/// State on GitHub at the start of the halt visit. The state is read again, because the saved state lacks the effects
/// of the failed visit.
#[derive(Serialize, Deserialize)]
struct HaltSnapshot {
    label: Option<String>,
    /// The stop label, if it is still on the issue.
    stop: Option<String>,
    /// The branch and pull request that the run leaves behind; `None` if no comment will be posted.
    remains: Option<BranchLeftovers>,
}

/// Reads the state of the issue and the run's branch on GitHub. Returns `None` if the issue no longer exists.
async fn load_halt_snapshot(
    s: &StageState,
    v: &StepVisit<'_>,
    repo: &GitHubRepo,
    told: bool,
) -> Result<Option<HaltSnapshot>, StepError> {
    let cx = v.cx;
    let issue = match repo.issue(cx.run().trigger.issue).await {
        Ok(issue) => issue,
        Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => return Ok(None),
        Err(other) => return Err(github_error(other)),
    };
    let path = document_path(s).ok();
    let remains = match told {
        true if s.target(v) == PublicationTarget::Comment => Some(BranchLeftovers::default()),
        true => Some(publication::find_leftovers(cx, repo, path.as_deref(), s.proposal.as_ref()).await?),
        false => None,
    };
    let stop = rounds::stop_label_on(&issue.labels).map(str::to_owned);
    Ok(Some(HaltSnapshot { label: find_state_label(&issue.labels), stop, remains }))
}

async fn report_end(
    s: &StageState,
    halt: &RunHalt,
    v: &StepVisit<'_>,
) -> Result<Option<RunCompletion>, StepError> {
    let cx = v.cx;
    let repo = cx.tools().repository(cx).await?;
    let stopped = matches!(halt, RunHalt::Stopped { .. });
    let Some(found) = cx.once("found", |_| load_halt_snapshot(s, v, &repo, !stopped)).await? else {
        return Ok(None);
    };
    let mut s = s.clone();
    s.label = found.label.or(s.label);
    // The first draft step or an earlier halt may have created the status comment.
    if !is_before_first_shown(v) || cx.visit() > first_visit_number(&s, v) + 1 {
        s.status = s.status.marked_uncertain();
        s.check.mark_uncertain();
    }
    let published = find_published_document(&s, v).await?;
    let merged = merge_watch::find_merge(&s, v, halt).await?;
    let outcome = match (merged, published) {
        (Some(commit), _) => Some(merge_watch::finish_merged(&mut s, v, commit).await?),
        (None, Some(published)) => match finish_publication(&mut s, v, published).await {
            // Perhaps the same bug as before; the comment is about that one.
            Err(StepError::Bug(error)) if matches!(halt, RunHalt::Bug { .. }) => {
                tracing::error!(run = %cx.run().id, "could not complete the publication: {error:#}");
                None
            }
            // The comment below may still succeed.
            Err(StepError::User(why)) => {
                tracing::error!(run = %cx.run().id, why, "could not complete the publication");
                None
            }
            concluded => Some(concluded?),
        },
        (None, None) => {
            merge_watch::record_lesson(&s, v, false).await?;
            // A gate comment states this itself.
            if stopped && v.at.kind != StepKind::Gate {
                s.add_note(messages::run_end_reason(&halt.public_reason()));
            }
            let state =
                if stopped { messages::RunDisplayState::Stopped } else { messages::RunDisplayState::Failed };
            match show_state_before_label(&mut s, v, "status", state).await {
                // The comment below may still succeed.
                Err(StepError::User(why)) => {
                    tracing::warn!(run = %cx.run().id, why, "could not show the end of the run in the status comment; continuing")
                }
                said => drop(said?),
            }
            None
        }
    };
    if let Some(remains) = found.remains.as_ref().filter(|_| outcome.is_none()) {
        let card = halt_card(&s, halt, remains, v);
        post_announcement(cx, "halted", &messages::halt_comment(&card)).await?;
    }
    // Labels last: nobody waits for them.
    if outcome.is_none() {
        update_label(&mut s, cx, messages::RunDisplayState::Stopped).await?;
    }
    if let Some(label) = found.stop {
        none_if_refused(repo.remove_label(cx.run().trigger.issue, &label).await).map_err(github_error)?;
    }
    let why = match halt {
        RunHalt::Stopped { .. } => messages::run_end_reason(&halt.public_reason()),
        _ => "the run halted, and the newest comment says why".to_owned(),
    };
    if s.questions.as_ref().is_some_and(|questions| questions.open_until().is_some()) {
        issue_questions::update_questions_comment(&s, v, QuestionsState::Ended(why.clone())).await?;
    }
    if v.at.kind == StepKind::Gate || v.at.kind == StepKind::Pause && s.wished.is_some() {
        // The visit before this one asked.
        gates::update_gate_comment(&s, v, cx.visit() - 1, GateState::Ended(why)).await?;
    }
    Ok(outcome)
}

/// Returns the document that the failed visit published, if it published one.
async fn find_published_document(
    s: &StageState,
    v: &StepVisit<'_>,
) -> Result<Option<PublishedDocument>, StepError> {
    let cx = v.cx;
    match (v.doc.info().target, &s.proposal) {
        _ if v.at.kind != StepKind::Publish => Ok(None),
        (PublicationTarget::Issue, _) => {
            Ok(v.doc.find_filed_document(cx).await?.map(PublishedDocument::Filed))
        }
        // An earlier push; the failed visit was to push something else.
        (PublicationTarget::Code, Some(proposal)) if s.round.document != Some(proposal.document) => Ok(None),
        (PublicationTarget::Branch | PublicationTarget::Code, Some(proposal)) => {
            let there = cx.once("published-at", |_| publication::find_published_commit(cx, proposal)).await?;
            Ok(there.map(|(audit, commit)| PublishedDocument::Commit { audit, commit }))
        }
        (PublicationTarget::Branch | PublicationTarget::Code, None) | (PublicationTarget::Comment, _) => {
            Ok(None)
        }
    }
}

/// Returns the results of the run that people can continue with: branch, file, draft, pull request.
fn list_leftovers(s: &StageState, remains: &BranchLeftovers) -> Vec<HaltLeftover> {
    let (name, branch) = (document_path(s).unwrap_or_default(), remains.branch.clone());
    let (mut kept, mut there) = (Vec::new(), None);
    match &remains.seen {
        BranchContents::Nothing => {}
        BranchContents::Branch(None) => kept.push(HaltLeftover::Branch { name: branch }),
        BranchContents::Branch(Some((hash, url))) => {
            there = Some(*hash);
            kept.push(HaltLeftover::File { name, hash: *hash, url: url.clone() });
        }
        BranchContents::Unknown => kept.push(HaltLeftover::UnreadableBranch { branch }),
    }
    if let (Some(hash), Some(url)) = (s.round.document.filter(|hash| Some(*hash) != there), &s.status.url) {
        kept.push(HaltLeftover::Draft { hash, url: url.clone() });
    }
    kept.extend(remains.pull.clone().map(|(number, url)| HaltLeftover::Pull { number: number.0, url }));
    kept
}

fn halt_card(s: &StageState, halt: &RunHalt, remains: &BranchLeftovers, v: &StepVisit<'_>) -> HaltCard {
    let reason = match halt {
        RunHalt::Bug { attempts, .. } => HaltReason::Bug { attempts: *attempts },
        RunHalt::Limit { moves } => HaltReason::MoveLimit { moves: *moves },
        RunHalt::User(_) | RunHalt::Stopped { .. } => HaltReason::UserError(halt.public_reason()),
    };
    let (command, run) = (v.doc.info().command(v.cx.run()), v.cx.run());
    let again = match v.cx.next_workflow() {
        // The run was started for the next workflow; that command starts both again.
        Some(next) if next == run.trigger.command => format!("/{next}"),
        _ if command.takes_text() => command.usage.to_owned(),
        // Without the optional text: people would copy its placeholder.
        _ => format!("/{}", command.name),
    };
    HaltCard {
        run: v.cx.run().id,
        at_step: v.at.title.to_owned(),
        reason,
        leftovers: list_leftovers(s, remains),
        restart_command: again,
        rehearsal: is_rehearsal(s, v.cx),
    }
}
