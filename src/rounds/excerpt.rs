//! Chooses the code excerpt that is shown to the models of a run.

use serde::{Deserialize, Serialize};

use super::{BaseCommit, StepContext, step_services::git_error};
use crate::{
    codebase::{self, CodebaseContext, ContextReport, ContextRequest, ContextSections, Index},
    documents::change,
    engine::StepError,
    git::{CommitEntry, Snapshot},
    limits,
    types::Hash,
};

/// A code excerpt, chosen once per visit and shown to all models of that visit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CodeExcerpt {
    /// Hash of the stored excerpt and its report.
    pub shown: Hash,
    /// Number of relevant files that did not fit into the excerpt.
    pub left_out: usize,
    /// Path of an existing source file and one of its lines. Both are placeholder values for scripted responses.
    pub sample: Option<(String, String)>,
}

/// Chooses the excerpt that is relevant to `words` and to `files`, the files to change if they are known already.
pub async fn choose_code_excerpt(
    cx: &StepContext,
    base: &BaseCommit,
    words: &str,
    files: &[String],
) -> Result<CodeExcerpt, StepError> {
    cx.once("excerpt", |_| async {
        // Index first: it caches the snapshot.
        let index = cx.tools().index(cx, base).await?;
        let snapshot = cx.tools().snapshot(cx, base).await?;
        let sample = match sample_path(&index) {
            Some(path) => Some((path.clone(), first_nonblank_line(&snapshot, &path).await?)),
            None => None,
        };
        let (text, files) = (words.to_owned(), files.to_vec());
        let asked = ContextRequest { text, files, budget: limits::CONTEXT_TOKENS };
        let context = codebase::gather_context(index, &snapshot, asked).await.map_err(git_error)?;
        let ContextReport { tokens, included, no_room, .. } = &context.report;
        let some = &no_room[..no_room.len().min(10)];
        tracing::info!(run = %cx.run().id, tokens, shown = included.len(), left_out = no_room.len(), examples = ?some, "code excerpt chosen");
        let stored = serde_json::to_vec(&context).map_err(anyhow::Error::new)?;
        Ok(CodeExcerpt { shown: cx.put(&stored).await?, left_out: context.report.missed, sample })
    })
    .await
}

/// Loads a stored excerpt.
pub async fn load_code_excerpt(cx: &StepContext, stored: &Hash) -> Result<ContextSections, StepError> {
    let context: CodebaseContext =
        serde_json::from_slice(&cx.get(stored).await?).map_err(anyhow::Error::new)?;
    Ok(context.shown)
}

async fn first_nonblank_line(snapshot: &Snapshot, path: &str) -> Result<String, StepError> {
    let entries: Vec<&CommitEntry> = snapshot.entries().iter().filter(|entry| entry.path == path).collect();
    let texts = snapshot.read_texts(&entries).await.map_err(git_error)?;
    let mut lines = texts.iter().flat_map(|(_, text)| text.lines());
    Ok(lines.find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned())
}

/// Returns the path of a code file, used as a placeholder value in scripted responses. Prefers a file that may hold
/// tests, because a scripted spec names no other file.
fn sample_path(index: &Index) -> Option<String> {
    let code = || index.files().iter().filter(|file| file.language.is_code());
    let may_hold_tests = |path: &str| change::is_test(path) || change::can_hold_inline_tests(path);
    let best = code().find(|file| may_hold_tests(&file.path)).or_else(|| code().next());
    best.or(index.files().first()).map(|file| file.path.clone())
}
