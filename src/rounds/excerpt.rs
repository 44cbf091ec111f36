//! What of a repository the models of a run are shown.

use serde::{Deserialize, Serialize};

use super::{BaseCommit, StepContext, step_services::git_error};
use crate::{
    codebase::{self, CodebaseContext, ContextReport, ContextRequest, ContextSections, Index},
    engine::StepError,
    git::{CommitEntry, Snapshot},
    limits,
    types::Hash,
};

/// Chosen once a visit, and the same for every model that is asked in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CodeExcerpt {
    /// What is shown, stored with the report of it.
    pub shown: Hash,
    /// Files to change, and the best of the others, of which there was room for nothing.
    pub left_out: usize,
    /// A source file that exists and a line of it, for scripted answers.
    pub sample: Option<(String, String)>,
}

/// Chooses by these words, and by the files that are to change as far as they are known.
pub async fn choose_code_excerpt(
    cx: &StepContext,
    base: &BaseCommit,
    words: &str,
    files: &[String],
) -> Result<CodeExcerpt, StepError> {
    cx.once("excerpt", |_| async {
        // First what has the snapshot beside it.
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
        tracing::info!(run = %cx.run().id, tokens, shown = included.len(), no_room = no_room.len(), ?some, "chose what models are shown");
        let stored = serde_json::to_vec(&context).map_err(anyhow::Error::new)?;
        Ok(CodeExcerpt { shown: cx.put(&stored).await?, left_out: context.report.missed, sample })
    })
    .await
}

/// What was chosen.
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

/// A file of code, for scripted answers to speak of.
fn sample_path(index: &Index) -> Option<String> {
    let code = index.files().iter().find(|file| file.language.is_code());
    code.or(index.files().first()).map(|file| file.path.clone())
}
