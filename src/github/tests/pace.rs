//! Tests of the order in which writes are sent when the bucket is empty.

use super::*;
use crate::types::{CommentId, IssueNo};

/// Returns a fake GitHub that accepts all writes of these tests.
async fn accepting_server() -> FakeGitHub {
    let comment = json!({
        "id": 5, "user": null, "html_url": "https://x/c",
        "created_at": "2026-02-19T10:00:00Z", "updated_at": "2026-02-19T10:00:05Z",
    });
    FakeGitHub::start(move |seen, _| match seen.line.as_str() {
        line if line.starts_with("POST /repos") || line.starts_with("PATCH ") => canned(200, comment.clone()),
        _ => None,
    })
    .await
}

/// Waits until the server has received `writes` writes. The clock stands still, so only the loopback connection takes
/// time.
async fn wait_for_writes(fake: &FakeGitHub, writes: usize) -> Vec<String> {
    while fake.writes().len() < writes {
        tokio::task::yield_now().await;
    }
    fake.writes().into_iter().map(|seen| seen.line.replace(" /repos/o/r/issues", "")).collect()
}

#[tokio::test]
async fn acknowledgement_is_sent_while_other_writes_wait() {
    let fake = accepting_server().await;
    let repo =
        fake.github_with_pacing("/", Pacing::GitHub).repo(InstallationId(3), OURS, "o/r".parse().unwrap());
    // Cache name and token first, so that the test measures only the pace.
    for _ in 0..3 {
        repo.edit_comment(CommentId(1), "m", &OutboundBody::frame("text".to_owned())).await.unwrap();
    }
    let waiting: Vec<_> = [1, 2, 3]
        .map(|n| {
            let repo = repo.clone();
            tokio::spawn(async move {
                let body = OutboundBody::frame("text".to_owned());
                match n {
                    3 => drop(repo.ensure_comment(IssueNo(1), "m", &body, false).await.unwrap()),
                    n => drop(repo.edit_comment(CommentId(10 + n), "m", &body).await.unwrap()),
                }
            })
        })
        .into();
    repo.react(ReactionTarget::Comment(CommentId(7)), Reaction::Eyes).await.unwrap();
    repo.remove_label(IssueNo(1), "countersign:lld").await.unwrap();
    assert_eq!(
        wait_for_writes(&fake, 5).await[3..],
        ["POST/comments/7/reactions", "DELETE/1/labels/countersign%3Alld"]
    );
    assert!(waiting.iter().all(|task| !task.is_finished()), "what is kept for the eyes is kept");

    // The acknowledgements' share refills first; then the comment goes before the edits, which keep their order.
    fake.clock.advance(Duration::from_secs(3));
    assert_eq!(wait_for_writes(&fake, 6).await[5], "POST/1/comments");
    for (count, edit) in [(7, "PATCH/comments/11"), (8, "PATCH/comments/12")] {
        fake.clock.advance(Duration::from_secs(1));
        assert_eq!(wait_for_writes(&fake, count).await[count - 1], edit);
    }
    for task in waiting {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn thumbs_down_reaction_over_the_write_limit_fails_and_is_not_sent() {
    let fake = accepting_server().await;
    let repo =
        fake.github_with_pacing("/", Pacing::GitHub).repo(InstallationId(3), OURS, "o/r".parse().unwrap());
    for _ in 0..3 {
        repo.react(ReactionTarget::Comment(CommentId(7)), Reaction::ThumbsDown).await.unwrap();
    }
    let left_out = repo.react(ReactionTarget::Comment(CommentId(7)), Reaction::ThumbsDown).await.unwrap_err();
    assert!(matches!(left_out, GitHubApiError::TemporarilyRefused { .. }), "{left_out}");
    assert_eq!(fake.writes().len(), 3);
}
