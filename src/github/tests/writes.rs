//! A write that is made twice leaves one.

use super::*;
use crate::types::{CommentId, IssueNo, Oid};

fn body(text: &str) -> Body {
    Body::frame(text.to_owned())
}

fn oid(digit: char) -> Oid {
    digit.to_string().repeat(40).parse().unwrap()
}

fn comment(id: u64, by: u64, text: &str) -> Value {
    json!({
        "id": id, "body": text, "user": { "id": by, "login": "x", "type": "Bot" }, "html_url": "https://x/c",
        "created_at": "2026-02-19T10:00:00Z", "updated_at": "2026-02-19T10:00:05Z",
    })
}

const MARKED: &str = "hello\n\n<!-- countersign:m -->";

#[tokio::test]
async fn a_comment_is_written_with_its_marker_last() {
    let fake = Fake::start(|seen, _| match seen.line.as_str() {
        "POST /repos/o/r/issues/1/comments" => {
            answer(201, comment(5, BOT, seen.body["body"].as_str().unwrap()))
        }
        _ => None,
    })
    .await;
    let made = fake.repo().ensure_comment(IssueNo(1), "m", &body("hello"), false).await.unwrap();
    assert_eq!(made.id, CommentId(5));
    assert_eq!(made.updated_at.since(made.created_at).as_secs(), 5);
    assert_eq!(fake.writes()[0].body["body"], MARKED);
    assert_eq!(fake.count("GET /repos/o/r/issues/1/comments"), 0, "no look without need");
}

#[tokio::test]
async fn after_an_interruption_our_comment_is_found_on_a_late_page_and_its_double_removed() {
    let fake = Fake::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/issues/1/comments?per_page=100&page=1" => {
            answer(200, json!([comment(1, 8, "/lld")])).map(|a| {
                a.header("link", "<https://x/repos/o/r/issues/1/comments?per_page=100&page=2>; rel=\"next\", <https://x/repos/o/r/issues/1/comments?per_page=100&page=2>; rel=\"last\"")
            })
        }
        "GET /repos/o/r/issues/1/comments?per_page=100&page=2" => answer(
            200,
            json!([comment(4, 8, MARKED), comment(5, BOT, MARKED), comment(6, BOT, "other"), comment(7, BOT, MARKED)]),
        ),
        "DELETE /repos/o/r/issues/comments/7" => answer(204, Value::Null),
        _ => None,
    })
    .await;
    let found = fake.repo().ensure_comment(IssueNo(1), "m", &body("hello"), true).await.unwrap();
    assert_eq!(found.id, CommentId(5));
    let writes: Vec<_> = fake.writes().into_iter().map(|seen| seen.line).collect();
    assert_eq!(writes, ["DELETE /repos/o/r/issues/comments/7"]);
}

#[tokio::test]
async fn what_fits_no_comment_becomes_several() {
    let fake = Fake::start(|seen, before| match seen.line.as_str() {
        "POST /repos/o/r/issues/1/comments" => answer(201, comment(5 + before as u64, BOT, "")),
        "PATCH /repos/o/r/issues/comments/5" => answer(200, comment(5, BOT, "")),
        _ => None,
    })
    .await;
    let long = body(&"A line of forty characters, give or take.\n".repeat(2_000));
    let repo = fake.repo();
    let made = repo.ensure_comment(IssueNo(1), "m", &long, false).await.unwrap();
    assert_eq!(made.id, CommentId(5), "the first");
    repo.edit_comment(CommentId(5), "m", &long).await.unwrap();
    let texts: Vec<String> =
        fake.writes().iter().map(|seen| seen.body["body"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts.len(), 3);
    assert!(texts.iter().all(|text| text.chars().count() <= crate::limits::BODY_CHARS));
    assert!(texts[0].ends_with("<!-- countersign:m -->") && texts[1].ends_with("<!-- countersign:m/2 -->"));
    assert_eq!(texts[0], texts[2], "an edit keeps the first");
}

#[tokio::test]
async fn a_label_is_made_at_its_first_use() {
    let fake = Fake::start(|seen, _| match seen.line.as_str() {
        "POST /repos/o/r/labels" => answer(201, json!({})),
        "POST /repos/o/r/issues/1/labels" => answer(200, json!([])),
        _ => None,
    })
    .await;
    let label = LabelSpec { name: "countersign: needs you", color: "d93f0b", description: "why" };
    let repo = fake.repo();
    repo.ensure_label(IssueNo(1), label).await.unwrap();
    repo.remove_label(IssueNo(1), "not there").await.unwrap();
    assert_eq!(fake.count("GET /repos/o/r/labels/countersign%3A%20needs%20you"), 1);
    let writes = fake.writes();
    assert_eq!(
        writes[0].body,
        json!({ "name": "countersign: needs you", "color": "d93f0b", "description": "why" })
    );
    assert_eq!(writes[1].body, json!({ "labels": ["countersign: needs you"] }));
    assert_eq!(writes[2].line, "DELETE /repos/o/r/issues/1/labels/not%20there");
}

fn spec(path: &str) -> CommitSpec {
    CommitSpec {
        branch: "countersign/issue-1".into(),
        parent: oid('a'),
        files: vec![(path.into(), vec![0xff, b'\n'])],
        message: "Design\n\nCountersign-Run: 9-1\n".into(),
    }
}

/// A repository whose branch is at `head` and refuses to move when `refuse`.
fn tree(head: char, refuse: bool) -> impl Fn(&Seen, usize) -> Option<Answer> {
    move |seen, _| match seen.line.as_str() {
        "GET /repos/o/r/git/ref/heads/countersign/issue-1" => {
            answer(200, json!({ "ref": "refs/heads/countersign/issue-1", "object": { "sha": oid(head) } }))
        }
        "GET /repos/o/r/git/commits/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" => answer(
            200,
            json!({ "sha": oid('a'), "tree": { "sha": oid('1') }, "parents": [], "message": "base" }),
        ),
        // Ours, as GitHub keeps it: without the last line's end.
        "GET /repos/o/r/git/commits/cccccccccccccccccccccccccccccccccccccccc" => answer(
            200,
            json!({ "sha": oid('c'), "tree": { "sha": oid('2') }, "parents": [{ "sha": oid('a') }],
                    "message": "Design\n\nCountersign-Run: 9-1" }),
        ),
        "GET /repos/o/r/git/commits/dddddddddddddddddddddddddddddddddddddddd" => answer(
            200,
            json!({ "sha": oid('d'), "tree": { "sha": oid('2') }, "parents": [{ "sha": oid('a') }],
                    "message": "Someone else's" }),
        ),
        "POST /repos/o/r/git/blobs" => answer(201, json!({ "sha": oid('b') })),
        "POST /repos/o/r/git/trees" => answer(201, json!({ "sha": oid('2') })),
        "POST /repos/o/r/git/commits" => answer(201, json!({ "sha": oid('c') })),
        "PATCH /repos/o/r/git/refs/heads/countersign/issue-1" if refuse => {
            answer(422, json!({ "message": "Update is not a fast forward" }))
        }
        "PATCH /repos/o/r/git/refs/heads/countersign/issue-1" => answer(200, json!({})),
        _ => None,
    }
}

#[tokio::test]
async fn a_commit_is_bytes_on_a_base_moved_forward() {
    let fake = Fake::start(tree('a', false)).await;
    let commit = fake.repo().ensure_commit(&spec("docs/a.md"), false).await.unwrap();
    assert_eq!(commit.oid, oid('c'));
    assert_eq!(commit.url, format!("{}/o/r/commit/{}", fake.origin, oid('c')));
    let bodies: Vec<Value> = fake.writes().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies[0], json!({ "content": "/wo=", "encoding": "base64" }));
    assert_eq!(bodies[1]["base_tree"], oid('1').as_str());
    assert_eq!(bodies[1]["tree"][0]["path"], "docs/a.md");
    assert_eq!(
        bodies[2],
        json!({ "message": "Design\n\nCountersign-Run: 9-1\n", "tree": oid('2'), "parents": [oid('a')] }),
        "no author and no committer, so that GitHub signs it"
    );
    assert_eq!(bodies[3], json!({ "sha": oid('c'), "force": false }));
}

#[tokio::test]
async fn an_interrupted_commit_is_recognised_and_another_is_not() {
    let fake = Fake::start(tree('c', true)).await;
    assert_eq!(fake.repo().ensure_commit(&spec("docs/a.md"), true).await.unwrap().oid, oid('c'));
    assert_eq!(fake.count("POST /repos/o/r/git/commits"), 0);
    let fake = Fake::start(tree('d', true)).await;
    let fault = fake.repo().ensure_commit(&spec("docs/a.md"), true).await.unwrap_err();
    assert!(matches!(fault, Fault::Conflict { .. }), "{fault}");
}

#[tokio::test]
async fn a_refused_move_is_a_conflict_only_if_the_branch_moved() {
    let fake = Fake::start(tree('d', true)).await;
    let fault = fake.repo().ensure_commit(&spec("docs/a.md"), false).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        "moving countersign/issue-1 in o/r conflicts with what is there now: \
         it is at ddddddd and no longer at aaaaaaa"
    );
    let fake = Fake::start(tree('a', true)).await;
    let fault = fake.repo().ensure_commit(&spec("docs/a.md"), false).await.unwrap_err();
    assert!(matches!(fault, Fault::Rejected { status: 422, .. }), "a rule of the branch: {fault}");
}

#[tokio::test]
async fn a_path_out_of_the_tree_is_never_sent() {
    let fake = Fake::start(tree('a', false)).await;
    for path in ["../x", ".git/config", "/x"] {
        let fault = fake.repo().ensure_commit(&spec(path), false).await.unwrap_err();
        assert!(matches!(fault, Fault::Invalid(_)), "{fault}");
    }
    assert!(fake.seen().is_empty());
}

#[tokio::test]
async fn a_file_is_read_also_when_github_keeps_its_content_apart() {
    let fake = Fake::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/contents/a%20b/small?ref=main" => answer(
            200,
            json!({ "type": "file", "sha": oid('b'), "content": "aGVs\nbG8=\n", "encoding": "base64" }),
        ),
        "GET /repos/o/r/contents/large?ref=main" => {
            answer(200, json!({ "type": "file", "sha": oid('b'), "content": "", "encoding": "none" }))
        }
        "GET /repos/o/r/git/blobs/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" => {
            answer(200, json!({ "content": "bGFyZ2U=\n", "encoding": "base64" }))
        }
        "GET /repos/o/r/contents/src?ref=main" => answer(200, json!([{ "type": "file" }])),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    let file = async |path| repo.file(path, "main").await.unwrap();
    assert_eq!(file("a b/small").await.as_deref(), Some(&b"hello"[..]));
    assert_eq!(file("large").await.as_deref(), Some(&b"large"[..]));
    assert_eq!(file("src").await, None);
    assert_eq!(file("nothing").await, None);
}

fn pull(number: u64, head_repo: u64, draft: bool) -> Value {
    json!({
        "number": number, "html_url": "https://x/p", "draft": draft, "state": "open", "merged_at": null,
        "head": { "ref": "countersign/issue-1", "sha": oid('c'), "repo": { "id": head_repo } },
        "base": { "ref": "main", "sha": oid('a'), "repo": { "id": 9 } },
    })
}

fn pull_spec() -> PullSpec {
    PullSpec {
        head: "countersign/issue-1".into(),
        base: "main".into(),
        title: "Design".into(),
        body: body("Part of #1"),
        draft: true,
    }
}

const PULLS: &str = "GET /repos/o/r/pulls?head=o%3Acountersign%2Fissue-1&state=open&base=main&per_page=100";

#[tokio::test]
async fn the_pull_request_that_is_open_is_ours_only_from_our_repository() {
    let fake = Fake::start(|seen, _| match seen.line.as_str() {
        PULLS => answer(200, json!([pull(1, 10, false), pull(2, 9, true)])),
        _ => None,
    })
    .await;
    assert_eq!(fake.repo().ensure_pull(&pull_spec()).await.unwrap().number, IssueNo(2));
    assert!(fake.writes().is_empty());
}

#[tokio::test]
async fn where_drafts_are_unknown_a_normal_one_says_so() {
    let fake = Fake::start(|seen, _| match seen.line.as_str() {
        PULLS => answer(200, json!([])),
        "POST /repos/o/r/pulls" if seen.body["draft"] == true => {
            answer(422, json!({ "message": "Draft pull requests are not supported in this repository." }))
        }
        "POST /repos/o/r/pulls" => answer(201, pull(3, 9, false)),
        _ => None,
    })
    .await;
    let made = fake.repo().ensure_pull(&pull_spec()).await.unwrap();
    assert_eq!((made.number, made.draft), (IssueNo(3), false));
    let titles: Vec<Value> = fake.writes().iter().map(|seen| seen.body["title"].clone()).collect();
    assert_eq!(titles, ["Design", "[WIP] Design"]);
}
