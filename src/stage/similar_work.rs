//! Open issues that may be about the same, for people and for the models; and earlier commits, for the models.

use super::{BackgroundText, StageState};
use crate::{
    codebase::most_similar_texts,
    documents::hidden_text::visible_line,
    engine::StepError,
    messages,
    rounds::{StepContext, git_error},
    types::IssueNo,
};

/// More are not offered.
const MOST_SIMILAR: usize = 3;

/// So many of the last commits are looked through, and so many told of.
const PAST_COMMITS: usize = 1_000;
const MOST_COMMITS: usize = 10;

/// Tells the models which earlier commits of the repository touch on these words. What they say is the code's, so it is told only
/// where that is shown.
///
/// # Errors
/// Where the commit cannot be read.
pub async fn add_similar_commits(s: &mut StageState, cx: &StepContext, words: &str) -> Result<(), StepError> {
    let snapshot = cx.tools().snapshot(cx, s.base()?).await?;
    let past = snapshot.past_commits(PAST_COMMITS).await.map_err(git_error)?;
    let said: Vec<String> = past.iter().map(|past| visible_line(&past.subject).text).collect();
    let best = most_similar_texts(words, &said, MOST_COMMITS).into_iter();
    let text: String =
        best.map(|at| format!("- {}\n", said[at].chars().take(200).collect::<String>())).collect();
    let (kind, heading) =
        ("commits".to_owned(), "Earlier commits of this repository that may be about the same");
    // Those of another commit are none of this one's.
    s.beside.retain(|known| known.kind != kind);
    if !text.is_empty() {
        let text = cx.put(text.as_bytes()).await?;
        s.add_background(BackgroundText { kind, heading: heading.to_owned(), text, left: false });
    }
    Ok(())
}

/// Offers open issues that may be about the same. What cannot be looked up keeps nobody waiting.
///
/// # Errors
/// Those of the store.
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
                    tracing::warn!(run = %cx.run().id, %error, "similar issues could not be looked for");
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
