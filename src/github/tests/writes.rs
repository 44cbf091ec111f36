//! Tests that repeating a write creates only one object.

use super::*;
use crate::types::{CommentId, InstallationId, IssueNo, Oid};

fn body(text: &str) -> OutboundBody {
    OutboundBody::frame(text.to_owned())
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
async fn comment_ends_with_its_marker() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "POST /repos/o/r/issues/1/comments" => {
            canned(201, comment(5, BOT, seen.body["body"].as_str().unwrap()))
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
async fn existing_comment_with_the_marker_is_reused_and_its_duplicate_is_deleted() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/issues/1/comments?per_page=100&page=1" => {
            canned(200, json!([comment(1, 8, "/lld")])).map(|a| {
                a.header("link", "<https://x/repos/o/r/issues/1/comments?per_page=100&page=2>; rel=\"next\", <https://x/repos/o/r/issues/1/comments?per_page=100&page=2>; rel=\"last\"")
            })
        }
        "GET /repos/o/r/issues/1/comments?per_page=100&page=2" => canned(
            200,
            json!([comment(4, 8, MARKED), comment(5, BOT, MARKED), comment(6, BOT, "other"), comment(7, BOT, MARKED)]),
        ),
        "DELETE /repos/o/r/issues/comments/7" => canned(204, Value::Null),
        _ => None,
    })
    .await;
    let found = fake.repo().ensure_comment(IssueNo(1), "m", &body("hello"), true).await.unwrap();
    assert_eq!(found.id, CommentId(5));
    let writes: Vec<_> = fake.writes().into_iter().map(|seen| seen.line).collect();
    assert_eq!(writes, ["DELETE /repos/o/r/issues/comments/7"]);
}

#[tokio::test]
async fn long_body_becomes_several_comments() {
    let fake = FakeGitHub::start(|seen, before| match seen.line.as_str() {
        "POST /repos/o/r/issues/1/comments" => canned(201, comment(5 + before as u64, BOT, "")),
        "PATCH /repos/o/r/issues/comments/5" => canned(200, comment(5, BOT, "")),
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
async fn label_is_created_on_first_use() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "POST /repos/o/r/labels" => canned(201, json!({})),
        "POST /repos/o/r/issues/1/labels" => canned(200, json!([])),
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
        creates_branch: false,
        parent: oid('a'),
        files: vec![(path.into(), Some(vec![0xff, b'\n']))],
        message: "Design\n\nCountersign-Run: 9-1\n".into(),
    }
}

/// Returns the script of a repository whose branch is at `head`. The server accepts our commit only if the commit
/// expects that head.
fn branch_script(head: char) -> impl Fn(&ReceivedApiRequest, usize) -> Option<CannedApiResponse> {
    move |seen, _| match seen.line.as_str() {
        "GET /repos/o/r/git/ref/heads/countersign/issue-1" => {
            canned(200, json!({ "ref": "refs/heads/countersign/issue-1", "object": { "sha": oid(head) } }))
        }
        // GitHub strips the message's trailing newline.
        "GET /repos/o/r/git/commits/cccccccccccccccccccccccccccccccccccccccc" => canned(
            200,
            json!({ "sha": oid('c'), "tree": { "sha": oid('2') }, "parents": [{ "sha": oid('a') }],
                    "message": "Design\n\nCountersign-Run: 9-1" }),
        ),
        "GET /repos/o/r/git/commits/dddddddddddddddddddddddddddddddddddddddd" => canned(
            200,
            json!({ "sha": oid('d'), "tree": { "sha": oid('2') }, "parents": [{ "sha": oid('a') }],
                    "message": "Someone else's" }),
        ),
        "GET /repos/o/r/contents/docs/a.md?ref=cccccccccccccccccccccccccccccccccccccccc" => {
            canned(200, json!({ "type": "file", "sha": oid('b'), "content": "/wo=\n", "encoding": "base64" }))
        }
        "POST /graphql" if head == 'a' => {
            canned(200, json!({ "data": { "begin": {}, "commit": { "commit": { "oid": oid('c') } } } }))
        }
        "POST /graphql" => canned(200, stale_head_error()),
        _ => None,
    }
}

fn stale_head_error() -> Value {
    json!({ "data": { "commit": null }, "errors": [{
        "type": "STALE_DATA", "path": ["commit"], "message": "Expected branch to point to something else.",
    }] })
}

#[tokio::test]
async fn commit_request_contains_file_bytes_and_the_expected_head() {
    let fake = FakeGitHub::start(branch_script('a')).await;
    let commit = fake.repo().ensure_commit(&spec("docs/a.md"), false).await.unwrap();
    assert_eq!(commit.oid, oid('c'));
    assert_eq!(commit.url, format!("{}/o/r/commit/{}", fake.origin, oid('c')));
    let sent = fake.writes().pop().unwrap().body;
    assert_eq!(
        sent["variables"]["commit"],
        json!({
            "branch": { "repositoryNameWithOwner": "o/r", "branchName": "countersign/issue-1" },
            "message": { "headline": "Design", "body": "Countersign-Run: 9-1\n" },
            "fileChanges": { "additions": [{ "path": "docs/a.md", "contents": "/wo=" }] },
            "expectedHeadOid": oid('a'),
        }),
        "no author and no committer, so that GitHub signs it"
    );
    insta::assert_snapshot!(
        sent["query"].as_str().unwrap(),
        @"mutation($commit: CreateCommitOnBranchInput!) { commit: createCommitOnBranch(input: $commit) { commit { oid } } }"
    );
}

#[tokio::test]
async fn first_commit_creates_the_branch() {
    let fake = FakeGitHub::start(branch_script('a')).await;
    let spec = CommitSpec { creates_branch: true, ..spec("docs/a.md") };
    fake.repo().ensure_commit(&spec, false).await.unwrap();
    assert_eq!(fake.writes().len(), 1);
    let sent = fake.writes().pop().unwrap().body;
    let begin = json!({ "repositoryId": "R_9", "name": "refs/heads/countersign/issue-1", "oid": oid('a') });
    assert_eq!(sent["variables"]["begin"], begin);
    assert!(sent["query"].as_str().unwrap().contains("{ begin: createRef(input: $begin)"), "{sent}");
}

#[tokio::test]
async fn graphql_url_is_derived_from_rest_url() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /api/v3/repos/o/r" => {
            canned(200, json!({ "id": 9, "full_name": "o/r", "default_branch": "main" }))
        }
        "POST /api/graphql" => {
            canned(200, json!({ "data": { "commit": { "commit": { "oid": oid('c') } } } }))
        }
        _ => None,
    })
    .await;
    let repo = fake.github_at("/api/v3/").repo(InstallationId(3), OURS, "o/r".parse().unwrap());
    repo.ensure_commit(&spec("docs/a.md"), false).await.unwrap();
    assert!(fake.writes()[0].authorization.starts_with("Bearer ghs_"));
}

#[tokio::test]
async fn commit_made_before_an_interruption_is_found_and_not_repeated() {
    let fake = FakeGitHub::start(branch_script('c')).await;
    assert_eq!(fake.repo().ensure_commit(&spec("docs/a.md"), true).await.unwrap().oid, oid('c'));
    assert_eq!(fake.count("POST /graphql"), 0);
    // The read before the commit may have lagged.
    assert_eq!(fake.repo().ensure_commit(&spec("docs/a.md"), false).await.unwrap().oid, oid('c'));
    let fake = FakeGitHub::start(branch_script('d')).await;
    let fault = fake.repo().ensure_commit(&spec("docs/a.md"), true).await.unwrap_err();
    assert!(matches!(fault, GitHubApiError::Conflict { .. }), "{fault}");
}

#[tokio::test]
async fn commit_with_the_same_message_but_different_bytes_is_a_conflict() {
    let fake = FakeGitHub::start(|seen, before| match seen.line.as_str() {
        "GET /repos/o/r/contents/docs/a.md?ref=cccccccccccccccccccccccccccccccccccccccc" => canned(
            200,
            json!({ "type": "file", "sha": oid('b'), "content": "aGVsbG8=\n", "encoding": "base64" }),
        ),
        _ => branch_script('c')(seen, before),
    })
    .await;
    let fault = fake.repo().ensure_commit(&spec("docs/a.md"), true).await.unwrap_err();
    assert!(matches!(fault, GitHubApiError::Conflict { .. }), "{fault}");
}

#[tokio::test]
async fn refused_commit_is_a_conflict_only_if_the_branch_moved() {
    let fake = FakeGitHub::start(branch_script('d')).await;
    let fault = fake.repo().ensure_commit(&spec("docs/a.md"), false).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        "moving countersign/issue-1 in o/r conflicts with the current state: \
         it is at ddddddd and no longer at aaaaaaa"
    );
    // The branch is at the expected head, so either GitHub's reads lag or a branch rule refused the commit.
    let fake = FakeGitHub::start(|seen, before| match seen.line.as_str() {
        "POST /graphql" => canned(200, stale_head_error()),
        _ => branch_script('a')(seen, before),
    })
    .await;
    let repo = fake.repo();
    let fault = repo.ensure_commit(&spec("docs/a.md"), false).await.unwrap_err();
    assert!(fault.is_temporary(), "{fault}");
    fake.clock.advance(crate::limits::GITHUB_LAG);
    let fault = repo.ensure_commit(&spec("docs/a.md"), false).await.unwrap_err();
    assert!(matches!(fault, GitHubApiError::Rejected { status: 422, .. }), "a rule of the branch: {fault}");
}

#[tokio::test]
async fn label_is_added_and_the_old_one_removed_in_one_graphql_request() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/labels/working" => canned(200, json!({ "node_id": "LA_1" })),
        "POST /repos/o/r/labels" => canned(201, json!({ "node_id": "LA_2" })),
        "GET /repos/o/r/issues/1" => canned(
            200,
            json!({ "number": 1, "node_id": "I_1", "title": "t", "state": "open", "updated_at": "2026-02-19T10:00:00Z" }),
        ),
        "POST /graphql" => canned(
            200,
            json!({ "data": { "add": {}, "remove": null },
                    "errors": [{ "type": "NOT_FOUND", "path": ["remove"], "message": "it is not on it" }] }),
        ),
        _ => None,
    })
    .await;
    let label = LabelSpec { name: "done", color: "0e8a16", description: "why" };
    let change = LabelChange { issue: IssueNo(1), remove: Some("working"), add: Some(label) };
    fake.repo().change_label(&change).await.unwrap();
    let mut writes = fake.writes();
    // Removal by id failed, so the label is removed by name: it may have been recreated.
    let by_name = writes.pop().unwrap().line;
    assert!(by_name.starts_with("DELETE ") && by_name.ends_with("/issues/1/labels/working"), "{by_name}");
    let sent = writes.pop().unwrap().body;
    assert_eq!(
        sent["variables"],
        json!({
            "add": { "labelableId": "I_1", "labelIds": ["LA_2"] },
            "remove": { "labelableId": "I_1", "labelIds": ["LA_1"] },
        })
    );
}

/// Returns the script of a server whose reads lag: a new comment becomes visible only after `from` more lookups. The
/// responses to the first `lost` posts are lost.
fn lagging_comments(
    from: usize,
    lost: usize,
) -> impl Fn(&ReceivedApiRequest, usize) -> Option<CannedApiResponse> {
    let looks = Mutex::new(0);
    let written = Mutex::new(Vec::<(u64, usize)>::new());
    move |seen, before| match seen.line.as_str() {
        "POST /repos/o/r/issues/1/comments" => {
            let (mut written, looks) = (written.lock().unwrap(), looks.lock().unwrap());
            let id = 5 + before as u64;
            written.push((id, *looks));
            if before < lost { canned(502, json!({})) } else { canned(201, comment(id, BOT, MARKED)) }
        }
        "GET /repos/o/r/issues/1/comments?per_page=100&page=1" => {
            let mut looks = looks.lock().unwrap();
            *looks += 1;
            let shows = |(id, at): &(u64, usize)| (*looks > at + from).then(|| comment(*id, BOT, MARKED));
            canned(200, Value::Array(written.lock().unwrap().iter().filter_map(shows).collect()))
        }
        line if line.starts_with("DELETE ") => {
            let id: u64 = line.rsplit('/').next().unwrap().parse().unwrap();
            written.lock().unwrap().retain(|(there, _)| *there != id);
            canned(204, Value::Null)
        }
        _ => None,
    }
}

/// Posts a comment in the same way as a step does: retries after a while as long as the error is temporary.
async fn ensure_comment_until_done(fake: &FakeGitHub) -> Comment {
    let repo = fake.repo();
    for attempt in 0..60 {
        match repo.ensure_comment(IssueNo(1), "m", &body("hello"), attempt > 0).await {
            Ok(comment) => return comment,
            Err(fault) => assert!(fault.is_temporary(), "{fault}"),
        }
        fake.clock.advance(Duration::from_secs(5));
    }
    panic!("it never ends");
}

#[tokio::test]
async fn only_one_comment_exists_when_responses_are_lost_and_reads_lag() {
    for looks in 0..6 {
        for lost in 1..3 {
            let fake = FakeGitHub::start(lagging_comments(looks, lost)).await;
            assert_eq!(ensure_comment_until_done(&fake).await.id, CommentId(5), "the first stays");
            let (made, removed) = (fake.count("POST /repos/o/r/issues/1/comments"), fake.count("DELETE "));
            assert_eq!(made - removed, 1, "{looks} looks behind, {lost} answers lost");
            assert!(looks > 1 || made == 1, "two looks find what is {looks} looks behind");
        }
    }
}

#[tokio::test]
async fn path_outside_tree_is_never_sent() {
    let fake = FakeGitHub::start(branch_script('a')).await;
    for path in ["../x", ".git/config", "/x"] {
        let fault = fake.repo().ensure_commit(&spec(path), false).await.unwrap_err();
        assert!(matches!(fault, GitHubApiError::Invalid(_)), "{fault}");
    }
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn large_file_is_read_from_its_blob() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/contents/a%20b/small?ref=main" => canned(
            200,
            json!({ "type": "file", "sha": oid('b'), "content": "aGVs\nbG8=\n", "encoding": "base64" }),
        ),
        "GET /repos/o/r/contents/large?ref=main" => {
            canned(200, json!({ "type": "file", "sha": oid('b'), "content": "", "encoding": "none" }))
        }
        "GET /repos/o/r/git/blobs/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb" => {
            canned(200, json!({ "content": "bGFyZ2U=\n", "encoding": "base64" }))
        }
        "GET /repos/o/r/contents/src?ref=main" => canned(200, json!([{ "type": "file" }])),
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
        "body": "Part of #1",
        "head": { "ref": "countersign/issue-1", "sha": oid('c'), "repo": { "id": head_repo } },
        "base": { "ref": "main", "sha": oid('a'), "repo": { "id": 9 } },
    })
}

fn pull_spec() -> PullRequestSpec {
    PullRequestSpec {
        head: "countersign/issue-1".into(),
        base: "main".into(),
        title: "Design".into(),
        body: body("Part of #1"),
        draft: true,
    }
}

const PULLS: &str = "GET /repos/o/r/pulls?head=o%3Acountersign%2Fissue-1&state=open&per_page=100";

#[tokio::test]
async fn pull_request_from_a_fork_is_not_reused() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        PULLS => canned(200, json!([pull(1, 10, false), pull(2, 9, true)])),
        _ => None,
    })
    .await;
    assert_eq!(fake.repo().ensure_pull(&pull_spec()).await.unwrap().number, IssueNo(2));
    assert!(fake.writes().is_empty());
}

#[tokio::test]
async fn pull_request_title_starts_with_wip_when_drafts_are_not_supported() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        PULLS => canned(200, json!([])),
        "POST /repos/o/r/pulls" if seen.body["draft"] == true => {
            canned(422, json!({ "message": "Draft pull requests are not supported in this repository." }))
        }
        "POST /repos/o/r/pulls" => canned(201, pull(3, 9, false)),
        _ => None,
    })
    .await;
    let made = fake.repo().ensure_pull(&pull_spec()).await.unwrap();
    assert_eq!((made.number, made.draft), (IssueNo(3), false));
    let titles: Vec<Value> = fake.writes().iter().map(|seen| seen.body["title"].clone()).collect();
    assert_eq!(titles, ["Design", "[WIP] Design"]);
}

#[tokio::test]
async fn check_run_requires_a_commit_of_the_bot_and_is_looked_up_before_a_retry() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/git/ref/heads/main" => {
            let object = json!({ "sha": oid('a'), "type": "commit" });
            canned(200, json!({ "ref": "refs/heads/main", "object": object }))
        }
        line if line.contains("/check-runs?") => canned(200, json!({ "total_count": 0, "check_runs": [] })),
        "POST /repos/o/r/check-runs" => canned(
            201,
            json!({ "id": 7, "status": "completed", "conclusion": seen.body["conclusion"], "external_id": "9-4/lld/12-status" }),
        ),
        _ => None,
    })
    .await;
    let place = |branch: &str, head| CheckRunTarget {
        branch: branch.into(),
        head,
        name: "countersign / lld".into(),
        run: "9-4".parse().unwrap(),
        turn: "lld/12-status".into(),
    };
    let text = CheckRunContent {
        state: CheckRunStatus::Failure,
        title: "Halted".into(),
        summary: body("It halted."),
        url: None,
        annotations: Vec::new(),
    };
    let repo = fake.repo();
    for refused in [place("countersign/issue-1", oid('a')), place("main", oid('b'))] {
        let made = repo.ensure_check(&refused, &text, false, false).await;
        assert!(matches!(made, Err(GitHubApiError::Invalid(_))), "{made:?}");
    }
    assert!(fake.writes().is_empty());
    let ours = place("countersign/issue-1", oid('b'));
    assert_eq!(repo.ensure_check(&ours, &text, false, false).await, Ok(7));
    let sent = &fake.writes()[0].body;
    assert_eq!((&sent["external_id"], &sent["conclusion"]), (&json!("9-4/lld/12-status"), &json!("failure")));
    let unsure = repo.ensure_check(&ours, &text, true, false).await;
    assert!(matches!(unsure, Err(GitHubApiError::Transient { .. })), "{unsure:?}");
    assert_eq!(fake.writes().len(), 1);
}

#[tokio::test]
async fn write_check_lists_created_objects_that_it_could_not_delete() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "POST /repos/o/r/labels" => canned(201, json!({"node_id": "L", "name": seen.body["name"]})),
        "POST /repos/o/r/issues" => canned(201, json!({"number": 4, "html_url": "h", "labels": []})),
        "PATCH /repos/o/r/issues/4" => canned(200, json!({"state": "closed"})),
        line if line.starts_with("DELETE ") => canned(403, json!({"message": "no"})),
        _ => None,
    })
    .await;
    let name = "o/r".parse().unwrap();
    let repo = RepoRef { id: OURS, name, private: false, default_branch: None, user_owned: false };
    let (made, taken_away) =
        check_write_assumptions(&fake.github(), InstallationId(3), &repo, "scratch-1").await;
    let good = |looked: &&AssumptionCheck| matches!(looked.seen, AssumptionOutcome::Confirmed(_));
    let calls = |some: &[&AssumptionCheck]| some.iter().map(|looked| looked.call.clone()).collect::<Vec<_>>();
    assert_eq!(
        calls(&made.iter().filter(good).collect::<Vec<_>>()),
        ["POST /repos/{owner}/{repo}/labels", "POST /repos/{owner}/{repo}/issues"]
    );
    let (gone, left): (Vec<_>, Vec<_>) = taken_away.iter().partition(good);
    assert_eq!(calls(&gone), ["PATCH /repos/{owner}/{repo}/issues/{issue}"]);
    assert_eq!(calls(&left), ["DELETE /repos/{owner}/{repo}/labels/{label}"]);
    assert!(fake.writes().iter().all(|seen| seen.line.split_once(' ').unwrap().1.starts_with("/repos/o/r/")));
}
