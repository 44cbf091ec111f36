//! What a document says of the repository's code, held against the commit that the run works from.

use std::collections::BTreeSet;

use super::{
    Base, Cx,
    desk::{git_error, stopping},
};
use crate::{
    codebase::{self, Index, Outside, Symbols, TreeIndex},
    documents::{Mistake, Repository},
    engine::StepError,
    git::{Entry, Mode, Snapshot},
    limits,
};

/// Files whose texts tell what a build makes and what a repository depends on, and bytes of each.
const TELLING_FILES: usize = 60;
const TELLING_BYTES: u64 = 131_072;

/// Code that the index leaves out and that is read for its names, and bytes of it: what a large repository has generated,
/// and a library or two of others.
const UNREAD_FILES: usize = 2_000;
const UNREAD_BYTES: u64 = 16_777_216;

/// What `judge` finds. It works for a second on a large repository, and so where it keeps nobody waiting; a run that is
/// cancelled does not wait for it either.
pub async fn names(
    cx: &Cx,
    base: &Base,
    tree: TreeIndex,
    judge: impl FnOnce(&dyn Repository) -> Vec<Mistake> + Send + 'static,
) -> Result<Vec<Mistake>, StepError> {
    // First what has the snapshot beside it.
    let index = cx.tools().index(cx, base).await?;
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let telling = Telling::read(&snapshot, &index).await?;
    let judged = tokio::task::spawn_blocking(move || {
        let outside = telling.outside(&snapshot);
        judge(&Symbols::new(&index, &tree, &outside))
    });
    tokio::select! {
        mistakes = judged => mistakes.map_err(|error| StepError::Bug(error.into())),
        () = cx.cancelled().cancelled() => Err(stopping()),
    }
}

/// The files that tell of what the commit does not show and that may be there all the same.
struct Telling {
    /// By path, each with its text.
    files: Vec<(String, String)>,
    /// All that tell what is ignored are among them.
    all: bool,
    /// The same of code that the index left out, as far as it is not too much.
    unread: Vec<(String, String)>,
}

impl Telling {
    async fn read(snapshot: &Snapshot, index: &Index) -> Result<Self, StepError> {
        let telling = snapshot.entries().iter().filter(|e| e.mode.is_file() && Outside::is_told_by(&e.path));
        let ignores = |entry: &Entry| entry.path.ends_with(".gitignore");
        let (mut telling, mut unread): (Vec<&Entry>, Vec<&Entry>) =
            telling.partition(|entry| entry.size <= TELLING_BYTES);
        // What is ignored counts most, and what stands at the root speaks of everything.
        telling.sort_by_key(|entry| (!ignores(entry), entry.path.matches('/').count()));
        unread.extend(telling.drain(TELLING_FILES.min(telling.len())..));
        let all = !unread.into_iter().any(ignores);
        let paths: BTreeSet<&str> = codebase::unread(index).collect();
        let mut left = UNREAD_BYTES;
        let code = snapshot.entries().iter().filter(|entry| paths.contains(entry.path.as_str()));
        let code = code.filter(|entry| {
            let fits = entry.size <= left.min(limits::BLOB_BYTES);
            left -= if fits { entry.size } else { 0 };
            fits
        });
        let code: Vec<&Entry> = code.take(UNREAD_FILES).collect();
        let files = snapshot.texts(&telling).await.map_err(git_error)?;
        let unread = snapshot.texts(&code).await.map_err(git_error)?;
        Ok(Self { files, all, unread })
    }

    fn outside(&self, snapshot: &Snapshot) -> Outside {
        let submodules = snapshot.entries().iter().filter(|entry| entry.mode == Mode::Submodule);
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        let unread = self.unread.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        Outside::new(submodules.map(|entry| entry.path.clone()), files, self.all).reading(unread)
    }
}
