//! History of earlier runs of the repository, read once at the start of a run.

use std::collections::BTreeMap;

use tokio::task::spawn_blocking;

use super::{BaseCommit, IssueSnapshot, StepContext};
use crate::{
    codebase::{self, History},
    engine::StepError,
    types::Hash,
};

/// Maximum number of earlier runs considered for the history. Each run's design is read completely, and the newest
/// designs matter most.
const PAST_RUNS: u32 = 60;

/// Maximum number of finding rows searched for recurring objections. A run has about ten rows, one per review.
const PAST_FINDINGS: u32 = 1500;

/// Maximum number of earlier changes whose outcome is shown. Each outcome is limited to `LESSON_CHARS`.
const PAST_LESSONS: u32 = 5;
const LESSON_CHARS: usize = 1_000;

/// Selects the earlier runs and findings that match these words, and stores them as the run's history.
pub async fn store_history(
    cx: &StepContext,
    base: &BaseCommit,
    issue: &IssueSnapshot,
    words: &str,
) -> Result<Hash, StepError> {
    cx.once("history", |_| async {
        let (run, snapshot) = (cx.run(), cx.tools().snapshot(cx, base).await?);
        let db = cx.tools().store.repository_database(run.id.repo).await.map_err(anyhow::Error::new)?;
        let designs = db.past_designs(run.id, &run.workflow, issue.number, PAST_RUNS);
        let designs = designs.await.map_err(anyhow::Error::new)?;
        let findings = db.past_findings(run.id, &run.workflow, issue.number, PAST_FINDINGS);
        let findings = findings.await.map_err(anyhow::Error::new)?;
        let lessons = db.past_lessons(run.id, PAST_LESSONS).await.map_err(anyhow::Error::new)?;
        let lessons: Vec<String> =
            lessons.into_iter().map(|lesson| lesson.chars().take(LESSON_CHARS).collect()).collect();
        let (number, words) = (issue.number, words.to_owned());
        let chosen = spawn_blocking(move || {
            let mut names = BTreeMap::<&str, u32>::new();
            for entry in snapshot.entries() {
                *names.entry(entry.path.rsplit('/').next().unwrap_or_default()).or_default() += 1;
            }
            let alone = |name: &str| names.get(name).is_none_or(|files| *files == 1);
            let chosen = codebase::select_history(number, &words, &designs, &findings, alone);
            serde_json::to_vec(&History { lessons, ..chosen })
        });
        let history = chosen.await.map_err(anyhow::Error::new)?;
        cx.put(&history.map_err(anyhow::Error::new)?).await
    })
    .await
}

/// Loads a stored history.
pub async fn load_history(cx: &StepContext, kept: Option<Hash>) -> Result<History, StepError> {
    match kept {
        Some(kept) => Ok(serde_json::from_slice(&cx.get(&kept).await?).map_err(anyhow::Error::new)?),
        None => Ok(History::default()),
    }
}
