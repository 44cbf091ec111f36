//! Where a run belongs if its models run as programs: by the issue's labels, and by the files it is about.

use super::{StageState, StepVisit};
use crate::{config::PoolAssignment, engine::StepError, rounds::load_text};

/// The files are those that the draft names, and before there is one, those that an earlier stage settled. What the issue
/// says counts for nothing here: anybody may write one.
pub(super) async fn assign_worker_pool(
    s: &StageState,
    v: &StepVisit<'_>,
) -> Result<PoolAssignment, StepError> {
    let workers = &v.cx.tools().settings.models.workers;
    let Some(issue) = &s.issue else { return Ok(PoolAssignment::default()) };
    let paths = match s.round.document {
        _ if workers.paths.is_empty() => Vec::new(),
        Some(document) => v.doc.paths(&load_text(v.cx, &document).await?),
        None => v.doc.files_to_change(),
    };
    Ok(v.cx.tools().worker_assignment(v.cx, &issue.labels, &paths))
}
