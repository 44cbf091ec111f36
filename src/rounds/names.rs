//! What a document says of the repository's code, held against the commit that the run works from.

use std::collections::BTreeSet;

use super::{Base, Cx, desk::git_error};
use crate::{
    codebase::{Symbols, TreeIndex},
    documents::{Mistake, Repository},
    engine::StepError,
    git::Snapshot,
    limits,
};

/// What `judge` finds. It is asked again as long as it asks of files that were not read yet.
pub async fn names(
    cx: &Cx,
    base: &Base,
    tree: &TreeIndex,
    judge: impl Fn(&dyn Repository) -> Vec<Mistake>,
) -> Result<Vec<Mistake>, StepError> {
    let snapshot = cx.tools().snapshot(cx, base).await?;
    let index = cx.tools().index(cx, base).await?;
    let mut symbols = Symbols::new(&index, tree);
    let mut mistakes = judge(&symbols);
    let mut left = limits::NAMED_FILES;
    loop {
        let lacking: BTreeSet<String> = symbols.lacking().into_iter().take(left).collect();
        if lacking.is_empty() {
            return Ok(mistakes);
        }
        left -= lacking.len();
        symbols.give(texts(&snapshot, lacking).await?);
        mistakes = judge(&symbols);
    }
}

/// Files by path; none for what is no text, too large or no file.
async fn texts(
    snapshot: &Snapshot,
    paths: BTreeSet<String>,
) -> Result<Vec<(String, Option<String>)>, StepError> {
    let readable = |path: &String| {
        snapshot.entry(path).filter(|entry| entry.mode.is_file() && entry.size <= limits::BLOB_BYTES)
    };
    let (wanted, other): (Vec<String>, Vec<String>) =
        paths.into_iter().partition(|path| readable(path).is_some());
    let oids: Vec<_> = wanted.iter().filter_map(|path| Some(readable(path)?.oid.clone())).collect();
    let read = snapshot.read(&oids).await.map_err(git_error)?;
    let texts = wanted.into_iter().zip(read).map(|(path, bytes)| (path, String::from_utf8(bytes).ok()));
    Ok(texts.chain(other.into_iter().map(|path| (path, None))).collect())
}
