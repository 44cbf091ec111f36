//! Reads a free-text request, the issue, and the repository's skills for writing briefs.

use super::{RouteRunState, RouteStep, RouteWorkflow, other_workflows};
use crate::{
    config::RouteMode,
    documents::{
        hidden_text::visible_text,
        routing::{
            FILE_BYTES, FOLDER, MOST_SKILLS, SUFFIX, SkillFault, load_skills, shorten_request,
            strip_answer_prefix,
        },
    },
    engine::{RunCompletion, RunFilter, RunInfo, StepError, Transition, Workflow},
    git::CommitEntry,
    messages,
    rounds::{
        BaseCommit, IssueSnapshot, StepContext, git_error, github_error, load_text, post_announcement,
        require_state,
    },
    types::{Hash, count},
};

/// Stored name of the action for decisions that offered people a choice of workflows.
const OFFER: &str = "offer";

/// Maximum number of unusable skill files that are listed by name. Further files are only counted.
const MOST_FAULTS: usize = 10;

pub(super) async fn read_request(
    s: &mut RouteRunState,
    cx: &StepContext,
) -> Result<Transition<RouteStep>, StepError> {
    let desk = cx.tools();
    let repo = desk.repository(cx).await?;
    let issue: IssueSnapshot = cx.once("issue", |_| desk.read_issue(cx, &repo)).await?;
    let people = &desk.settings.people;
    if let Some(opt_out) = issue.labels.iter().find(|label| people.opts_out(label)) {
        return Err(StepError::User(format!(
            "The label “{opt_out}” tells Countersign to leave this issue alone. Remove it, then ask again."
        )));
    }
    let policy = cx
        .once("policy", |_| async {
            let info = repo.info().await.map_err(github_error)?;
            desk.read_policy(RouteWorkflow::NAME, &repo, &info).await
        })
        .await?;
    s.policy = Some(policy);
    let routing = require_state(&s.policy)?.routing.clone();
    if routing.is_none_or(|routing| routing.mode == RouteMode::Manual) {
        post_announcement(cx, "off", &messages::routing_disabled_reply()).await?;
        let summary = "free-text requests are switched off here".to_owned();
        return Ok(Transition::Done(RunCompletion { summary, url: None }));
    }
    // Read again each time, so that a new skill counts at once.
    let base = desk.fetch_base(cx, "fetch", &repo).await?;
    let (files, mut faults) = read_skill_files(cx, &base).await?;
    let workflows: Vec<_> = other_workflows().map(|(name, _)| name).collect();
    let (all, unusable) = load_skills(&files, &workflows);
    faults.extend(unusable);
    for fault in &faults {
        tracing::warn!(run = %cx.run().id, path = fault.path, line = fault.line, why = fault.why, "brief skill is invalid; skipping it");
    }
    let catalog = serde_json::to_vec(&all).map_err(anyhow::Error::new)?;
    (s.catalog, s.faults) = (Some(cx.put(&catalog).await?), limit_faults(faults));
    // Text that people do not see is not part of the request.
    let mut request = shorten_request(&visible_text(&cx.run().trigger.args).text);
    if let Some(answer) = strip_answer_prefix(&request) {
        let Some(open) = cx.once("open", |_| find_open_request(cx)).await? else {
            post_announcement(cx, "none-open", &messages::no_open_request_reply()).await?;
            let summary = "an answer without an open request".to_owned();
            return Ok(Transition::Done(RunCompletion { summary, url: None }));
        };
        // Request and answer together are decided again.
        request = shorten_request(&format!("{}\n\n{answer}", load_text(cx, &open).await?));
    }
    s.request = Some(cx.put(request.as_bytes()).await?);
    (s.title, s.labels, s.body) = (issue.title.clone(), issue.labels.clone(), Some(issue.body));
    (s.issue, s.base) = (Some(issue), Some(base));
    Ok(Transition::Go(RouteStep::Choose))
}

/// Finds the person's open request on the issue. Only the newest request can be open: it must have offered a choice and
/// be recent, and no run may have started since. Nobody can answer for another person, because the answer starts a run
/// with the requester's permissions.
async fn find_open_request(cx: &StepContext) -> Result<Option<Hash>, StepError> {
    let RunInfo { id, trigger, .. } = cx.run();
    let db = cx.tools().store.repository_database(id.repo).await.map_err(anyhow::Error::new)?;
    let before = db.previous_route(*id, trigger.issue, trigger.actor.id).await.map_err(anyhow::Error::new)?;
    let now = cx.clock().now();
    let open = before.filter(|(row, at)| row.lead == OFFER && now.since(*at) <= super::DECISION_LIFETIME);
    let Some((row, at)) = open else { return Ok(None) };
    let filter = RunFilter { repo: Some(id.repo), issue: Some(trigger.issue), live_only: false };
    let runs = db.runs(filter).await.map_err(anyhow::Error::new)?;
    let begun = runs.iter().any(|run| run.workflow != RouteWorkflow::NAME && run.started_at >= at);
    Ok(row.request.filter(|_| !begun))
}

/// Keeps the first faults and only counts the rest, so that a folder full of faulty files does not flood the comment.
fn limit_faults(mut faults: Vec<SkillFault>) -> Vec<SkillFault> {
    let more = faults.len().saturating_sub(MOST_FAULTS);
    if more > 0 {
        faults.truncate(MOST_FAULTS);
        let why = format!("{} invalid, too", count(more, "more file is", "more files are"));
        faults.push(SkillFault { path: FOLDER.to_owned(), line: None, why });
    }
    faults
}

/// Reads the repository's skill files. Links, files that are too long, and files beyond the maximum number are returned
/// as faults.
async fn read_skill_files(
    cx: &StepContext,
    base: &BaseCommit,
) -> Result<(Vec<(String, String)>, Vec<SkillFault>), StepError> {
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let named =
        |entry: &&CommitEntry| entry.path.strip_prefix(FOLDER).is_some_and(|name| name.ends_with(SUFFIX));
    let ours: Vec<_> = snapshot.entries().iter().filter(named).collect();
    let (mut read, mut faults) = (Vec::new(), Vec::new());
    for entry in ours.iter().copied().take(MOST_SKILLS) {
        let why = match () {
            () if !entry.mode.is_file() => "it is a link; replace it with the file itself".to_owned(),
            () if entry.size > FILE_BYTES as u64 => {
                format!("it is longer than {} KB; shorten it", FILE_BYTES >> 10)
            }
            () => {
                read.push(entry);
                continue;
            }
        };
        faults.push(SkillFault { path: entry.path.clone(), line: None, why });
    }
    if let Some(more) = ours.len().checked_sub(MOST_SKILLS).filter(|more| *more > 0) {
        let why = format!("only the first {MOST_SKILLS} files are read; remove {more}");
        faults.insert(0, SkillFault { path: FOLDER.to_owned(), line: None, why });
    }
    Ok((snapshot.read_texts(&read).await.map_err(git_error)?, faults))
}
