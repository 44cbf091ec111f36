//! Assigns a run to a worker pool, for models that run as programs. The pool is chosen by the issue's labels and the
//! files of the change.

use super::{StageState, StepVisit};
use crate::{config::PoolAssignment, engine::StepError, rounds::load_text};

/// Assigns the run to a worker pool. The files are those of the draft or, before the first draft, those that an earlier
/// stage selected. The issue's text is ignored, because anybody may write an issue.
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
