//! What a document says of the repository's code, held against the commit that the run works from.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BaseCommit, StepContext,
    step_services::{git_error, run_stopping_error},
};
use crate::{
    codebase::{self, CodebaseNames, TreeIndex},
    documents::{CodebaseLookup, DocumentMistake},
    engine::StepError,
    git::{CommitEntry, Snapshot},
    limits,
};

/// Files that name a Go module each.
const MODULE_FILES: usize = 60;

/// Code that the index leaves out and that is read for its names, and bytes of it: what a large repository has generated,
/// and a library or two of others.
const UNREAD_FILES: usize = 2_000;
const UNREAD_BYTES: u64 = 16_777_216;

/// What `judge` finds. It works for a second on a large repository, and so where it keeps nobody waiting; a run that is
/// cancelled does not wait for it either.
pub async fn check_code_names(
    cx: &StepContext,
    base: &BaseCommit,
    tree: TreeIndex,
    judge: impl FnOnce(&dyn CodebaseLookup) -> Vec<DocumentMistake> + Send + 'static,
) -> Result<Vec<DocumentMistake>, StepError> {
    // First what has the snapshot beside it.
    let index = cx.tools().index(cx, base).await?;
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let entries = || snapshot.entries().iter().filter(|entry| entry.mode.is_file());
    let go = entries().filter(|entry| entry.path.ends_with("go.mod") && entry.size <= limits::BLOB_BYTES);
    let go = read_texts(&snapshot, go.take(MODULE_FILES).collect()).await?;
    let left_out: BTreeSet<&str> = codebase::unindexed_code(&index).collect();
    let mut left = UNREAD_BYTES;
    let fits = |entry: &&CommitEntry| {
        let fits = entry.size <= left.min(limits::BLOB_BYTES);
        left -= if fits { entry.size } else { 0 };
        fits
    };
    let code = entries().filter(|entry| left_out.contains(entry.path.as_str())).filter(fits);
    let code: Vec<&CommitEntry> = code.take(UNREAD_FILES).collect();
    let unread = read_texts(&snapshot, code).await?;
    let all = unread.len() == left_out.len();
    let judged = tokio::task::spawn_blocking(move || {
        judge(&CodebaseNames::new(&index, &tree, &go).with_unindexed_texts(&unread, all))
    });
    tokio::select! {
        mistakes = judged => mistakes.map_err(|error| StepError::Bug(error.into())),
        () = cx.cancellation().cancelled() => Err(run_stopping_error()),
    }
}

/// Files of the commit a run works from, by their paths, without those that no model is shown; the first of them that
/// memory has room for.
pub async fn read_shown_files(
    cx: &StepContext,
    base: &BaseCommit,
    paths: &[String],
) -> Result<BTreeMap<String, String>, StepError> {
    // As models are shown them.
    let shown = |(path, text): (String, String)| (path, codebase::redact_text(&text));
    Ok(read_raw_files(cx, base, paths).await?.into_iter().map(shown).collect())
}

/// As [`read_shown_files`], but as they are.
pub async fn read_raw_files(
    cx: &StepContext,
    base: &BaseCommit,
    paths: &[String],
) -> Result<BTreeMap<String, String>, StepError> {
    let index = cx.tools().index(cx, base).await?;
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let mut left = UNREAD_BYTES;
    let entries = paths.iter().filter(|path| index.file(path).is_some());
    let entries = entries.filter_map(|path| snapshot.entry(path)).filter(|entry| {
        let fits = entry.size <= left;
        left -= if fits { entry.size } else { 0 };
        fits
    });
    let entries: Vec<&CommitEntry> = entries.collect();
    let texts = snapshot.read_texts(&entries).await.map_err(git_error)?;
    Ok(texts.into_iter().collect())
}

async fn read_texts(snapshot: &Snapshot, entries: Vec<&CommitEntry>) -> Result<Vec<String>, StepError> {
    let texts = snapshot.read_texts(&entries).await.map_err(git_error)?;
    Ok(texts.into_iter().map(|(_, text)| text).collect())
}
