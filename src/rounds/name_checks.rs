//! Checks a document's statements about the code against the run's base commit.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BaseCommit, StepContext,
    step_services::{git_error, run_stopping_error},
};
use crate::{
    codebase::{self, CodebaseNames, TreeIndex},
    config::{REPOSITORY_FILE, TestSettings},
    documents::{CodebaseLookup, DocumentMistake},
    engine::StepError,
    git::{CommitEntry, Snapshot},
    limits,
    runners::TestPlacement,
};

/// Maximum number of `go.mod` files read. It is also the maximum number of Python's settings files.
const MODULE_FILES: usize = 60;

/// Maximum number of files that are read for their names although they are not in the index, such as generated code and
/// vendored libraries.
const UNREAD_FILES: usize = 2_000;
const UNREAD_BYTES: u64 = 16_777_216;

/// Finds where the tests of a change to the files `at_hand` may stand.
pub async fn find_test_placement(
    cx: &StepContext,
    base: &BaseCommit,
    at_hand: &[String],
) -> Result<TestPlacement, StepError> {
    const PYTHON_SETTINGS: [&str; 4] = ["pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini"];
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let own = snapshot.read_path(REPOSITORY_FILE).await.map_err(git_error)?;
    // The code run reports settings that cannot be read.
    let own = own.and_then(|text| TestSettings::parse(&String::from_utf8_lossy(&text)).ok());
    let paths: Vec<String> = snapshot.entries().iter().map(|entry| entry.path.clone()).collect();
    let is_setting = |path: &str| PYTHON_SETTINGS.contains(&path.rsplit('/').next().unwrap_or(path));
    let python = snapshot.entries().iter().filter(|entry| entry.mode.is_file() && is_setting(&entry.path));
    let python = python.filter(|entry| entry.size <= limits::BLOB_BYTES);
    let texts = read_texts(&snapshot, python.take(MODULE_FILES).collect()).await?;
    Ok(TestPlacement::find(&paths, at_hand, &own.unwrap_or_default(), &texts))
}

/// Runs `judge` on the names in the code. This takes about a second on a large repository, so `judge` runs on a
/// blocking thread. A cancelled run does not wait for it.
pub async fn check_code_names(
    cx: &StepContext,
    base: &BaseCommit,
    tree: TreeIndex,
    judge: impl FnOnce(&dyn CodebaseLookup) -> Vec<DocumentMistake> + Send + 'static,
) -> Result<Vec<DocumentMistake>, StepError> {
    // Index first: it caches the snapshot.
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

/// Reads files of the base commit by path and redacts secrets in them. Leaves out files that models may not see, and
/// files beyond the byte limit.
pub async fn read_shown_files(
    cx: &StepContext,
    base: &BaseCommit,
    paths: &[String],
) -> Result<BTreeMap<String, String>, StepError> {
    // Redacted, as models see them.
    let shown = |(path, text): (String, String)| (path, codebase::redact_text(&text));
    Ok(read_raw_files(cx, base, paths).await?.into_iter().map(shown).collect())
}

/// Reads files of the base commit by path, like [`read_shown_files`], but without redacting secrets.
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
