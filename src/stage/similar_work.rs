//! Finds similar open issues, which are shown to people and models, and similar earlier commits, which are shown to
//! models.

use super::{BackgroundText, StageState};
use crate::{
    codebase::most_similar_texts,
    documents::hidden_text::visible_line,
    engine::StepError,
    messages,
    rounds::{StepContext, git_error},
    types::IssueNo,
};

/// Maximum number of similar issues shown.
const MOST_SIMILAR: usize = 3;

/// Number of recent commits searched for similar ones. `MOST_COMMITS` is the maximum number shown.
const PAST_COMMITS: usize = 1_000;
const MOST_COMMITS: usize = 10;

/// Adds earlier commits that match `words` as a background text. Commit messages count as part of the code, so this
/// must be called only if models may see the code.
///
/// # Errors
/// Errors of reading the commit.
pub async fn add_similar_commits(s: &mut StageState, cx: &StepContext, words: &str) -> Result<(), StepError> {
    let snapshot = cx.tools().snapshot(cx, s.base()?).await?;
    let past = snapshot.past_commits(PAST_COMMITS).await.map_err(git_error)?;
    let said: Vec<String> = past.iter().map(|past| visible_line(&past.subject).text).collect();
    let best = most_similar_texts(words, &said, MOST_COMMITS).into_iter();
    let text: String =
        best.map(|at| format!("- {}\n", said[at].chars().take(200).collect::<String>())).collect();
    let (kind, heading) =
        ("commits".to_owned(), "Earlier commits of this repository that may be about the same");
    // Remove commits found for another base.
    s.beside.retain(|known| known.kind != kind);
    if !text.is_empty() {
        let text = cx.put(text.as_bytes()).await?;
        s.add_background(BackgroundText { kind, heading: heading.to_owned(), text, left: false });
    }
    Ok(())
}

/// Adds similar open issues as a note and as a background text. A failed lookup is skipped, so that the run is not
/// delayed.
///
/// # Errors
/// Errors of the store.
pub async fn add_similar_issues(
    s: &mut StageState,
    cx: &StepContext,
    own: IssueNo,
    words: &str,
) -> Result<(), StepError> {
    let repo = cx.tools().repository(cx).await?;
    let found: Vec<(IssueNo, String)> = cx
        .once("similar", |_| async {
            let mut open = match repo.open_issues().await {
                Ok(open) => open,
                Err(error) => {
                    tracing::warn!(run = %cx.run().id, %error, "could not search for similar issues; continuing without them");
                    return Ok(Vec::new());
                }
            };
            open.retain(|issue| issue.number != own);
            let texts: Vec<String> = open.iter().map(|i| format!("{0}\n{0}\n{1}", i.title, i.body)).collect();
            let best = most_similar_texts(words, &texts, MOST_SIMILAR).into_iter();
            Ok(best.map(|at| (open[at].number, open[at].title.chars().take(200).collect())).collect())
        })
        .await?;
    if found.is_empty() {
        return Ok(());
    }
    s.add_note(messages::similar_issues_note(&found));
    let text: String = found.iter().map(|(number, title)| format!("- #{number} {title}\n")).collect();
    let heading = "Open issues that may be about the same".to_owned();
    s.add_background(BackgroundText {
        kind: "similar".to_owned(),
        heading,
        text: cx.put(text.as_bytes()).await?,
        left: false,
    });
    Ok(())
}
