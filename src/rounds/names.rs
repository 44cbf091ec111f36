//! What a document says of the repository's code, held against the commit that the run works from.

use std::time::Duration;

use super::{Base, Cx, desk::git_error};
use crate::{
    codebase::{Outside, Symbols, TreeIndex},
    documents::{Mistake, Repository},
    engine::StepError,
    git::{Mode, Snapshot},
    limits,
};

/// What `judge` finds. It works for a second on a large repository, and so where it keeps nobody waiting; a run that is
/// cancelled does not wait for it either.
pub async fn names(
    cx: &Cx,
    base: &Base,
    tree: TreeIndex,
    judge: impl FnOnce(&dyn Repository) -> Vec<Mistake> + Send + 'static,
) -> Result<Vec<Mistake>, StepError> {
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let index = cx.tools().index(cx, base).await?;
    let outside = outside(&snapshot).await?;
    let judged = tokio::task::spawn_blocking(move || judge(&Symbols::new(&index, &tree, &outside)));
    tokio::select! {
        mistakes = judged => mistakes.map_err(|error| StepError::Bug(error.into())),
        () = cx.cancelled().cancelled() => {
            Err(StepError::Later { why: "the run is stopping".to_owned(), after: Duration::from_secs(30) })
        }
    }
}

/// What the commit does not show and that may be there all the same.
async fn outside(snapshot: &Snapshot) -> Result<Outside, StepError> {
    let submodules = snapshot.entries().iter().filter(|entry| entry.mode == Mode::Submodule);
    let telling = snapshot.entries().iter().filter(|entry| {
        entry.mode.is_file() && entry.size <= limits::TELLING_BYTES && Outside::is_told_by(&entry.path)
    });
    let mut telling: Vec<_> = telling.collect();
    // Those at the root speak of everything.
    telling.sort_by_key(|entry| entry.path.matches('/').count());
    telling.truncate(limits::TELLING_FILES);
    let oids: Vec<_> = telling.iter().map(|entry| entry.oid.clone()).collect();
    let texts = snapshot.read(&oids).await.map_err(git_error)?;
    let texts: Vec<_> = texts.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    let files = telling.iter().zip(&texts).map(|(entry, text)| (entry.path.as_str(), &**text));
    Ok(Outside::new(submodules.map(|entry| entry.path.clone()), files))
}
