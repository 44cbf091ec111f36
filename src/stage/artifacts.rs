//! Artifacts: results that a stage stores on the issue for later stages.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{PublicationTarget, StageInput, StageState, StepVisit};
use crate::{
    engine::{
        ArtifactRow, LedgerRecord, RemarkKind, RunCompletion, RunFilter, RunRemark, StartDecision, StepError,
    },
    publication,
    rounds::{PromptExtra, StepContext, load_text, require_state},
    store::{RunRow, RunStatus},
    types::{Cause, Hash, IssueNo, Role, RunId},
};

/// A text about the issue that is added to the prompts, in addition to the issue's own text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundText {
    /// Kind of the text, such as `answers`.
    pub kind: String,
    /// Trusted heading of the text in the prompts.
    pub heading: String,
    /// Hash of the stored text. The text is untrusted, because anybody may have written it.
    pub text: Hash,
    /// Whether the current run produced the text. If so, the text is also stored for later stages.
    pub left: bool,
}

/// Artifact kind of the issue's original text, which is saved before the run replaces that text.
pub(super) const BRIEF: &str = "brief";

/// Returns the issue's artifacts, oldest first; empty if this stage has no inputs.
pub(super) async fn load_artifacts(v: &StepVisit<'_>) -> Result<Vec<ArtifactRow>, StepError> {
    if v.doc.inputs().is_empty() {
        return Ok(Vec::new());
    }
    let cx = v.cx;
    cx.once("artifacts", |_| async {
        let db = cx.tools().store.repository_database(cx.run().id.repo).await.map_err(anyhow::Error::new)?;
        Ok(db.artifacts_of_issue(cx.run().trigger.issue).await.map_err(anyhow::Error::new)?)
    })
    .await
}

/// Starts the stage that produces this stage's first input, if that input is missing or older than the second input. In
/// that case the current stage ends, and the same command continues it afterwards.
pub(super) async fn start_input_stage(
    v: &StepVisit<'_>,
    rows: &[ArtifactRow],
) -> Result<Option<RunCompletion>, StepError> {
    let newest = |input: &StageInput| rows.iter().rposition(|row| row.kind == input.kind);
    let [own, of, ..] = v.doc.inputs() else { return Ok(None) };
    if newest(own).is_none() {
        require_artifact(newest(of).map(|at| &rows[at]), of.heading, &format!("/{}", of.kind))?;
    }
    if newest(of) <= newest(own) {
        return Ok(None);
    }
    let cx = v.cx;
    let begun: Option<RunId> = cx
        .once("begin", |_| async {
            Ok(match cx.begin_run(own.kind, cx.run().trigger.clone()).await? {
                StartDecision::New(run) | StartDecision::Duplicate(run) => Some(run),
                StartDecision::AlreadyLive(_) => None,
            })
        })
        .await?;
    match begun {
        Some(run) => Ok(Some(RunCompletion { summary: format!("started {} as {run}", own.kind), url: None })),
        None => Err(StepError::User(format!(
            "{} is being worked on by another run. Wait for that run or `/stop` it, then write `{}`.",
            own.heading,
            v.doc.info().command(cx.run()).usage
        ))),
    }
}

/// Returns the artifacts of earlier stages that this stage takes as input.
pub(super) fn load_inputs(v: &StepVisit<'_>, rows: &[ArtifactRow]) -> Result<Vec<BackgroundText>, StepError> {
    let mut known = Vec::new();
    for input in v.doc.inputs() {
        let newest = rows.iter().rfind(|row| row.kind == input.kind);
        let Some(row) = (match input.made_by {
            Some(command) => Some(require_artifact(newest, input.heading, command)?),
            None => newest,
        }) else {
            continue;
        };
        let (kind, heading) = (input.kind.to_owned(), input.heading.to_owned());
        known.push(BackgroundText { kind, heading, text: row.hash, left: false });
    }
    Ok(known)
}

/// Returns why the newest failed run on this issue halted, unless a later run of its workflow succeeded. The next
/// drafter should not lead into the same halt again.
pub(super) async fn load_last_halt(v: &StepVisit<'_>) -> Result<Option<BackgroundText>, StepError> {
    let cx = v.cx;
    let why: Option<String> = cx
        .once("last-halt", |_| async {
            let own = cx.run();
            let db = cx.tools().store.repository_database(own.id.repo).await.map_err(anyhow::Error::new)?;
            let issue = Some(own.trigger.issue);
            let runs = db.runs(RunFilter { repo: Some(own.id.repo), issue, live_only: false }).await;
            let mut runs = runs.map_err(anyhow::Error::new)?;
            runs.retain(|run| run.id.seq < own.id.seq);
            let is_done_later = |failed: &RunRow| {
                let later = runs.iter().filter(|run| run.id.seq > failed.id.seq);
                later.filter(|run| run.status == RunStatus::Done).any(|run| run.workflow == failed.workflow)
            };
            let failed = runs.iter().filter(|run| run.status == RunStatus::Failed);
            let newest = failed.max_by_key(|run| run.id.seq).filter(|failed| !is_done_later(failed));
            Ok(newest.and_then(|run| Some(format!("{}: {}", run.workflow, run.why.as_ref()?))))
        })
        .await?;
    let Some(why) = why else { return Ok(None) };
    let (kind, heading) = ("last-halt".to_owned(), "Why the last run on this issue halted".to_owned());
    Ok(Some(BackgroundText { kind, heading, text: cx.put(why.as_bytes()).await?, left: false }))
}

/// Returns the artifact. If it is missing, returns a user error that names the command to produce it.
fn require_artifact<'r>(
    row: Option<&'r ArtifactRow>,
    what: &str,
    command: &str,
) -> Result<&'r ArtifactRow, StepError> {
    row.ok_or_else(|| {
        StepError::User(format!("{what} is missing. Write `{command}` first, then start again."))
    })
}

/// Checks that the approved input is unchanged on its branch and that no other run is producing a new version. This
/// stage must build only on the approved bytes. The check is not journalled, so each attempt reads GitHub again.
///
/// # Errors
/// `User` if the input changed; the message says how to proceed.
pub async fn require_unchanged_input(s: &StageState, v: &StepVisit<'_>, kind: &str) -> Result<(), StepError> {
    let Some(known) = s.beside.iter().find(|known| known.kind == kind) else {
        return Err(StepError::Bug(anyhow::anyhow!("there is no {kind} to build on")));
    };
    let issue = v.cx.run().trigger.issue;
    if live_runs(v.cx).await?.iter().any(|run| run.trigger.issue == issue && run.workflow == kind) {
        return Err(StepError::User(format!(
            "{} is being revised by another run. Wait for that run or `/stop` it, then write `{}`.",
            known.heading,
            v.doc.info().command(v.cx.run()).usage
        )));
    }
    match publication::find_altered_document(v.cx, &known.text).await? {
        None => Ok(()),
        Some((path, branch)) => Err(StepError::User(format!(
            "{} is not on `{branch}` as approved: `{path}` was changed or removed there. Put it back, or write \
             `/{kind}` to review the new version. Then start again.",
            known.heading
        ))),
    }
}

/// Returns the background texts as prompt sections.
pub(super) async fn prompt_extras(s: &StageState, cx: &StepContext) -> Result<Vec<PromptExtra>, StepError> {
    let mut extras = Vec::new();
    for known in &s.beside {
        extras.push(PromptExtra { heading: known.heading.clone(), text: load_text(cx, &known.text).await? });
    }
    Ok(extras)
}

/// Stores the document and this run's background texts as artifacts of the issue.
pub(super) async fn record_artifacts(
    s: &StageState,
    v: &StepVisit<'_>,
    issue: IssueNo,
) -> Result<(), StepError> {
    let cx = v.cx;
    let mut left: Vec<(String, Hash)> =
        vec![(v.doc.info().stage.to_owned(), *require_state(&s.round.document)?)];
    left.extend(s.beside.iter().filter(|known| known.left).map(|known| (known.kind.clone(), known.text)));
    let snapshot = require_state(&s.issue)?;
    if v.doc.info().target == PublicationTarget::Issue && issue != snapshot.number {
        // The document is on another issue, where readers do not see this issue's text.
        let text =
            format!("#{} {}\n\n{}", snapshot.number, snapshot.title, load_text(cx, &snapshot.body).await?);
        left.push((BRIEF.to_owned(), cx.put(text.as_bytes()).await?));
    }
    for (kind, hash) in left {
        let key = format!("artifact-{kind}");
        cx.record(&key, LedgerRecord::Artifact(ArtifactRow { issue, kind, hash })).await?;
    }
    Ok(())
}

/// Artifact kind of the paths that a document touches, one path per line. The artifact is stored when people are asked
/// about the document.
const TOUCHED_PATHS: &str = "touches";

/// Maximum number of overlapping issues that are listed. It is also the maximum number of paths listed per issue.
const MOST_OVERLAPS: usize = 5;

/// Stores the paths touched by the document that is about to be shown for approval. If live runs of other issues touch
/// the same paths, sends a remark to their gates.
pub(super) async fn record_touched_paths(
    v: &StepVisit<'_>,
    paths: &[String],
) -> Result<Vec<(IssueNo, Vec<String>)>, StepError> {
    let (cx, issue) = (v.cx, v.cx.run().trigger.issue);
    let hash = cx.put(paths.join("\n").as_bytes()).await?;
    cx.record(
        TOUCHED_PATHS,
        LedgerRecord::Artifact(ArtifactRow { issue, kind: TOUCHED_PATHS.to_owned(), hash }),
    )
    .await?;
    let found = find_overlaps(v, "overlaps", paths).await?;
    let at = cx.now("overlaps-told").await?;
    for other in
        live_runs(cx).await?.iter().filter(|run| found.iter().any(|(issue, _)| *issue == run.trigger.issue))
    {
        let remark = RunRemark {
            cause: Cause(format!("overlap-{}-{}-{}", cx.run().id, cx.visit(), other.id)),
            kind: RemarkKind::Overlaps,
            finding: String::new(),
            text: issue.to_string(),
            by: cx.run().trigger.actor.clone(),
            role: Role::None,
            at,
        };
        cx.send_remark(other.id, remark).await?;
    }
    Ok(found)
}

pub(super) async fn live_runs(cx: &StepContext) -> Result<Vec<RunRow>, StepError> {
    let repo = cx.run().id.repo;
    let db = cx.tools().store.repository_database(repo).await.map_err(anyhow::Error::new)?;
    let live = RunFilter { repo: Some(repo), issue: None, live_only: true };
    Ok(db.runs(live).await.map_err(anyhow::Error::new)?)
}

/// Returns other issues with a live run whose stored document touches any of these paths, with the shared paths.
pub(super) async fn find_overlaps(
    v: &StepVisit<'_>,
    key: &str,
    paths: &[String],
) -> Result<Vec<(IssueNo, Vec<String>)>, StepError> {
    let (cx, issue) = (v.cx, v.cx.run().trigger.issue);
    cx.once(key, |_| async {
        let db = cx.tools().store.repository_database(cx.run().id.repo).await.map_err(anyhow::Error::new)?;
        let live = live_runs(cx).await?;
        let others: BTreeSet<_> = live.iter().map(|run| run.trigger.issue).filter(|n| *n != issue).collect();
        let mut found = Vec::new();
        for other in others {
            let rows = db.artifacts_of_issue(other).await.map_err(anyhow::Error::new)?;
            let Some(row) = rows.iter().rfind(|row| row.kind == TOUCHED_PATHS) else { continue };
            let theirs = load_text(cx, &row.hash).await?;
            let both = theirs.lines().filter(|path| paths.iter().any(|own| own == path));
            let both: Vec<String> = both.take(MOST_OVERLAPS).map(str::to_owned).collect();
            if !both.is_empty() {
                found.push((other, both));
            }
            if found.len() == MOST_OVERLAPS {
                break;
            }
        }
        Ok(found)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_for_a_missing_input_names_the_command_that_creates_it() {
        let row = ArtifactRow { issue: IssueNo(7), kind: "lld".into(), hash: Hash::digest(b"") };
        assert_eq!(require_artifact(Some(&row), "The design", "/lld").unwrap().hash, row.hash);
        let StepError::User(said) = require_artifact(None, "The approved design", "/lld").unwrap_err() else {
            panic!()
        };
        assert_eq!(said, "The approved design is missing. Write `/lld` first, then start again.");
    }
}
