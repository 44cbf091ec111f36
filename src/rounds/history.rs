//! What earlier runs of the repository came to, read once at the beginning of a run.

use super::{Cx, IssueSnapshot};
use crate::{
    codebase::{self, History},
    engine::StepError,
    limits,
    types::{Hash, IssueNo},
};

/// Looks up what touches on these words, and keeps it. `path_of` says where the design of an issue goes.
pub async fn history(
    cx: &Cx,
    issue: &IssueSnapshot,
    words: &str,
    path_of: impl Fn(IssueNo) -> String,
) -> Result<Hash, StepError> {
    cx.once("history", |_| async {
        let run = cx.run();
        let db = cx.tools().store.repo(run.id.repo).await.map_err(anyhow::Error::new)?;
        let designs = db
            .past_designs(run.id, &run.workflow, issue.number, limits::PAST_RUNS)
            .await
            .map_err(anyhow::Error::new)?;
        let findings = db
            .past_findings(run.id, &run.workflow, limits::PAST_FINDINGS)
            .await
            .map_err(anyhow::Error::new)?;
        let history = codebase::history(issue.number, words, &designs, &findings, path_of);
        cx.put(&serde_json::to_vec(&history).map_err(anyhow::Error::new)?).await
    })
    .await
}

/// What was kept.
pub async fn remembered(cx: &Cx, kept: Option<Hash>) -> Result<History, StepError> {
    match kept {
        Some(kept) => Ok(serde_json::from_slice(&cx.get(&kept).await?).map_err(anyhow::Error::new)?),
        None => Ok(History::default()),
    }
}
