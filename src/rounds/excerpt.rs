//! What of a repository the models of a run are shown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Base, Cx};
use crate::{
    codebase::{self, FileInfo, Shown},
    engine::StepError,
    git::Snapshot,
    limits,
    types::Hash,
};

/// Chosen once, and the same for every model of the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Excerpt {
    /// What is shown, stored.
    pub shown: Hash,
    /// Files it had no room or no use for.
    pub left_out: usize,
    /// A source file that exists, for scripted answers.
    pub sample_path: Option<String>,
}

/// Chooses by these words.
pub async fn excerpt(cx: &Cx, base: &Base, words: &str) -> Result<Excerpt, StepError> {
    cx.once("excerpt", |_| async {
        let snapshot = cx.tools().snapshot(cx, base).await?;
        let (chosen, sample_path) = choose(&snapshot, words).await?;
        let shown = serde_json::to_vec(&chosen.shown).map_err(anyhow::Error::new)?;
        Ok(Excerpt { shown: cx.put(&shown).await?, left_out: chosen.left_out.len(), sample_path })
    })
    .await
}

/// What was chosen.
pub async fn shown(cx: &Cx, stored: &Hash) -> Result<Shown, StepError> {
    Ok(serde_json::from_slice(&cx.get(stored).await?).map_err(anyhow::Error::new)?)
}

/// What of the repository to show, and one file of code for scripted answers to speak of.
async fn choose(snapshot: &Snapshot, words: &str) -> Result<(codebase::Excerpt, Option<String>), StepError> {
    let files: Vec<FileInfo> = snapshot
        .entries()
        .iter()
        .filter(|entry| entry.mode.is_file() && entry.size <= limits::BLOB_BYTES)
        .map(|entry| FileInfo { path: entry.path.clone(), size: entry.size })
        .collect();
    let mut contents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    // The excerpt asks for one file at a time and git is fastest asked for many: so it is tried until it lacks
    // none, which is the second time.
    loop {
        let mut lacking = Vec::new();
        let excerpt = codebase::excerpt(&files, words, limits::EXCERPT_BYTES, &mut |path| {
            let found = contents.get(path).cloned();
            if found.is_none() {
                lacking.push(path.to_owned());
            }
            found
        });
        if lacking.is_empty() {
            return Ok((excerpt, sample_path(&files)));
        }
        let oids: Vec<_> =
            lacking.iter().filter_map(|path| Some(snapshot.entry(path)?.oid.clone())).collect();
        let read = snapshot.read(&oids).await.map_err(anyhow::Error::new)?;
        contents.extend(lacking.into_iter().zip(read));
    }
}

/// A file of code, for scripted answers to speak of.
fn sample_path(files: &[FileInfo]) -> Option<String> {
    const CODE: &[&str] =
        &[".rs", ".py", ".go", ".ts", ".js", ".java", ".c", ".cpp", ".cs", ".rb", ".php", ".sh"];
    let code = files.iter().find(|file| CODE.iter().any(|ending| file.path.ends_with(ending)));
    code.or(files.first()).map(|file| file.path.clone())
}
