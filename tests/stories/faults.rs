//! Stories about failures of GitHub and of the network. The thread must read as if the failures had not happened. The
//! stories also count the mails and API calls of a design.

use std::time::Duration;

use countersign::{
    clock::Clock,
    engine::RunViewStatus,
    localhub::{HubFault, HubRequestView},
    store::{PostgresServer, Store},
};

use crate::postgres;
use crate::world::{Setting, World, some, world, world_of_files};

/// Returns everything that people see of a finished design, without details that differ between test environments.
fn visible_state(w: &World) -> String {
    let view = w.view();
    let mut labels = view.labels;
    labels.sort();
    let bots = view.comments.iter().filter(|c| c.author == "countersign[bot]");
    let first_lines = |body: &str| w.plain(body).lines().take(3).collect::<Vec<_>>().join(" / ");
    let comments: Vec<_> = bots.map(|c| first_lines(&c.body)).collect();
    let pulls: Vec<_> = w.hub.pulls(w.repo).iter().map(|p| (p.title.clone(), p.draft)).collect();
    let branch = format!("countersign/issue-{}", w.issue);
    let log = w.hub.log(w.repo, &branch);
    let commits: Vec<_> = log.iter().map(|c| c.message.lines().next().unwrap().to_owned()).collect();
    let mut reactions = view.reactions;
    reactions.sort();
    format!("{labels:?}\n{comments:#?}\n{pulls:?}\n{commits:#?}\n{reactions:?}")
}

/// Runs a design from its label to its end and lets time pass between the steps.
async fn run_to_done(w: &mut World) {
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn lost_responses_to_github_writes_do_not_change_the_visible_result() {
    let mut w = world().await;
    run_to_done(&mut w).await;
    let expected = visible_state(&w);

    // Every kind of write, each with lost responses, in one run.
    let mut w = world().await;
    for (method, path) in [
        ("POST", "/comments"),
        ("PATCH", "/issues/comments/"),
        ("POST", "/graphql"),
        ("POST", "/pulls"),
        ("PATCH", "/pulls/"),
        ("POST", "/labels"),
        ("DELETE", "/labels/"),
        ("POST", "/reactions"),
        ("POST", "/access_tokens"),
    ] {
        let (method, path_contains) = (method.to_owned(), path.to_owned());
        w.hub.arm_fault(HubFault::AnswerBadGatewayAfter { method, path_contains, times: 2 });
    }
    run_to_done_slowly(&mut w).await;
    assert_eq!(visible_state(&w), expected);
}

/// Runs a design with long waits between the steps, so that temporary failures end during the waits.
async fn run_to_done_slowly(w: &mut World) {
    w.label("maya", "countersign:lld").await;
    w.wait(900).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(900).await;
    w.stands(RunViewStatus::Done).await;
}

fn lost_response(method: &str, path_contains: &str, times: u32) -> HubFault {
    HubFault::AnswerBadGatewayAfter {
        method: method.to_owned(),
        path_contains: path_contains.to_owned(),
        times,
    }
}

fn dropped_connection(method: &str, path_contains: &str, after_effect: bool) -> HubFault {
    let (method, path_contains) = (method.to_owned(), path_contains.to_owned());
    HubFault::Drop { method, path_contains, after_effect, times: 1 }
}

#[tokio::test]
#[ignore = "takes long"]
async fn lost_responses_combined_with_stale_reads_cause_no_duplicates() {
    let mut w = world().await;
    run_to_done(&mut w).await;
    let expected = visible_state(&w);

    for (behind, times) in some([(40, 2), (8, 1)]) {
        let mut w = world().await;
        w.hub.arm_fault(HubFault::ReadsLag { by: Duration::from_secs(behind) });
        for (method, path) in [
            ("POST", "/comments"),
            ("PATCH", "/issues/comments/"),
            ("POST", "/graphql"),
            ("POST", "/pulls"),
            ("POST", "/labels"),
        ] {
            w.hub.arm_fault(lost_response(method, path, times));
        }
        run_to_done_slowly(&mut w).await;
        assert_eq!(visible_state(&w), expected, "{behind} s behind, {times} answers lost of each");
        // A comment that nobody could see after its creation is created again, and the older one deleted.
        let doubles = usize::from(times == 2);
        assert_eq!(w.unseen.saw_gone().len(), doubles, "{behind} s behind: {}", w.thread());
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn dropped_github_connections_and_slow_responses_do_not_change_the_result() {
    let mut w = world().await;
    run_to_done(&mut w).await;
    let expected = visible_state(&w);

    let mut w = world().await;
    for path in ["/comments", "/graphql", "/pulls", "/reactions"] {
        w.hub.arm_fault(dropped_connection("POST", path, false));
        w.hub.arm_fault(dropped_connection("POST", path, true));
    }
    w.hub.arm_fault(dropped_connection("GET", "/issues/", false));
    let (method, path_contains) = ("PATCH".to_owned(), "/comments/".to_owned());
    w.hub.arm_fault(HubFault::Slow { method, path_contains, by: Duration::from_millis(200), times: 2 });
    run_to_done_slowly(&mut w).await;
    assert_eq!(visible_state(&w), expected);
}

#[tokio::test]
async fn redelivered_events_do_not_change_the_result() {
    let mut w = world().await;
    run_to_done(&mut w).await;
    let expected = visible_state(&w);
    for delivery in w.hub.deliveries() {
        w.hub.redeliver(&delivery.guid).unwrap();
    }
    w.wait(60).await;
    assert_eq!(visible_state(&w), expected);
}

#[tokio::test]
async fn no_github_call_is_made_until_a_secondary_rate_limit_ends() {
    let mut w = world().await;
    let limit = HubFault::SecondaryLimit {
        method: "POST".to_owned(),
        path_contains: "/issues/1/comments".to_owned(),
        retry_after: Duration::from_secs(100),
        times: 1,
    };
    w.hub.arm_fault(limit);
    w.label("maya", "countersign:lld").await;
    let calls = w.hub.requests().len();
    w.wait(90).await;
    assert_eq!(w.hub.requests().len(), calls, "no request during the rate limit");
    assert_eq!(w.notifying(), 0);
    w.wait(60).await;
    w.find("waits for a person");
    assert_eq!(w.notifying(), 2);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn no_github_call_is_made_until_a_primary_rate_limit_ends() {
    for status in [403, 429] {
        let mut w = world().await;
        let until = w.clock.now().plus(Duration::from_secs(600));
        w.hub.arm_fault(HubFault::PrimaryLimit { status, until });
        w.label("maya", "countersign:lld").await;
        let calls = w.hub.requests().len();
        w.wait(585).await;
        assert_eq!(w.hub.requests().len(), calls);
        assert!(w.run().await.is_none());
        w.wait(60).await;
        w.stands(RunViewStatus::Asking).await;
        assert_eq!(w.notifying(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long"]
async fn no_github_call_is_made_until_a_rate_limit_seen_by_another_server_ends() {
    let Some(address) = postgres::database() else { return };
    let mut w = World::new(Setting { postgres: Some(address.clone()), ..Setting::default() }).await;
    let (home, lease) = (tempfile::tempdir().unwrap(), Duration::from_secs(600));
    let server = PostgresServer { address: address.into(), lease };
    let other = Store::join_postgres(&server, home.path(), w.clock.clone()).unwrap();
    let until = w.clock.now().plus(Duration::from_secs(600));
    // Repeat until the other store is listening.
    while w.app.store.rate_limited_until(w.installation, false).is_none() {
        other.publish_rate_limit(w.installation, false, until).await.unwrap();
    }
    w.label("maya", "countersign:lld").await;
    w.wait(500).await;
    // Requests in the App's own name count against another limit.
    let of_the_app = |request: &HubRequestView| request.actor.starts_with("app ");
    assert!(w.hub.requests().iter().all(of_the_app), "no request during the rate limit");
    w.wait(160).await;
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn run_halts_only_after_repeated_git_fetch_failures() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(1).await;
    assert_eq!(w.run().await.unwrap().step_id, "N0b");
    let after = async |w: &mut World, seconds| {
        w.pass(seconds);
        w.settle().await;
        w.run().await.unwrap().status
    };
    let until = w.clock.now().plus(Duration::from_secs(1500));
    w.hub.arm_fault(HubFault::PrimaryLimit { status: 403, until });
    assert_eq!(after(&mut w, 0).await, RunViewStatus::Ready);
    assert_eq!(after(&mut w, 900).await, RunViewStatus::Ready, "a rate limit does not count as a failure");
    let repository = w.hub.git_dir(w.repo);
    std::fs::rename(&repository, repository.with_extension("away")).unwrap();
    assert_eq!(after(&mut w, 900).await, RunViewStatus::Ready, "the limit is over and git has failed once");
    w.wait(500).await;
    assert_eq!(after(&mut w, 3600).await, RunViewStatus::Ready, "time without a git call does not count");
    w.wait(150).await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.find("Halted at Analyze the codebase").body;
    assert!(halt.contains("Fix that, then start again."), "{halt}");
}

#[tokio::test]
async fn refused_installation_token_is_replaced_during_a_run() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let line = w.approve_line();
    w.hub.expire_tokens().unwrap();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.notifying(), 2);
}

#[tokio::test]
async fn run_waits_for_an_issue_that_is_not_visible_yet() {
    let mut w = world().await;
    let until = w.clock.now().plus(Duration::from_secs(60));
    w.hub.arm_fault(HubFault::HiddenUntil { path_contains: "/issues/1".to_owned(), until });
    w.label("maya", "countersign:lld").await;
    w.wait(45).await;
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Ready);
    w.wait(45).await;
    w.find("waits for a person");
    assert_eq!(w.notifying(), 2);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn run_ends_with_a_reason_if_its_issue_never_becomes_visible() {
    let mut w = world().await;
    let until = w.clock.now().plus(Duration::from_secs(3600));
    w.hub.arm_fault(HubFault::HiddenUntil { path_contains: "/issues/1".to_owned(), until });
    w.label("maya", "countersign:lld").await;
    w.wait(105).await;
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Ready);
    w.wait(60).await;
    let run = w.run().await.unwrap();
    assert_eq!(
        (run.status, w.labels().len(), w.notifying()),
        (RunViewStatus::Failed, 0, 0),
        "there is no issue to comment on"
    );
    assert!(run.why.as_deref().unwrap().contains("no longer in this repository"), "{:?}", run.why);
}

#[tokio::test]
async fn new_repository_name_is_learned_from_a_redirect() {
    let mut w = world_of_files().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(0).await;
    w.lose_webhooks(true);
    w.hub.rename_repo(w.repo, "abacus").unwrap();
    while w.app.engine.tick().await.unwrap() > 0 {}
    w.stands(RunViewStatus::Asking).await;
    let row = w.app.store.installation_registry().repository(w.repo).await.unwrap().unwrap();
    assert_eq!(row.name.to_string(), "maya/abacus");
    w.lose_webhooks(false);
    w.approved_by("sam").await;
    assert_eq!((w.notifying(), w.hub.pulls(w.repo).len()), (2, 1));
}

#[tokio::test]
async fn halt_comment_explains_a_github_422_without_the_raw_error_message() {
    let mut w = world_of_files().await;
    let (method, path_contains) = ("POST".to_owned(), "/pulls".to_owned());
    let (field, code) = ("head".to_owned(), "invalid".to_owned());
    w.hub.arm_fault(HubFault::Unprocessable { method, path_contains, field, code, times: 1000 });
    w.label("maya", "countersign:lld").await;
    w.wait(105).await;
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Ready, "GitHub's data may only be stale");
    w.wait(45).await;
    w.find("Rehearsal");
    // Without addresses, because their ports vary.
    let comment = w.plain(&w.find("Halted").body);
    assert!(comment.contains("GitHub refused a write by Countersign: head is not valid."), "{comment}");
    assert!(!comment.contains("Validation Failed") && !comment.contains("422"), "{comment}");
    assert!(comment.contains("- `docs/lld/LLD-1.md`") && comment.contains("[on the branch]("), "{comment}");
    w.stands(RunViewStatus::Failed).await;
    assert_eq!(w.commits(), ["docs: propose design for #1", "Initial commit"]);
}

#[tokio::test]
async fn unchanged_resources_are_read_with_etags() {
    let mut w = world().await;
    run_to_done(&mut w).await;
    let unchanged = |part: &str| {
        let answers =
            w.hub.requests().into_iter().filter(|r| r.status == 304 && r.path.ends_with(part)).count();
        assert!(answers > 0, "{part} was read again without its ETag");
    };
    for part in ["/tally", "/issues/1"] {
        unchanged(part);
    }
}

#[tokio::test]
async fn eyes_reaction_is_not_delayed_by_write_pacing() {
    let mut w = World::new(Setting { paced: true, ..Setting::default() }).await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(0).await;
    let app = w.app.clone();
    let work = tokio::spawn(async move { while app.engine.tick().await.unwrap() > 0 {} });
    while w.view().comments.is_empty() {
        tokio::task::yield_now().await;
    }
    // The clock stands still, so the run stops when the pacer's bucket is empty.
    let command = w.hub.comment(w.repo, w.issue, w.user("tess"), "/countersign status").unwrap();
    w.hub.wait_for_webhooks().await;
    let app = w.app.clone();
    let answer = tokio::spawn(async move { app.intake.drain_inbox().await.unwrap() });
    let eyes = |w: &World| w.view().comments.iter().any(|c| c.id == command && !c.reactions.is_empty());
    while !eyes(&w) {
        tokio::task::yield_now().await;
    }
    assert!(!work.is_finished(), "the gate waits for its turn");
    while !work.is_finished() || !answer.is_finished() {
        w.clock.pass(Duration::from_millis(20));
        tokio::task::yield_now().await;
    }
    w.find("waits for a person");
    w.find("### Runs on this issue");
    assert_eq!(w.notifying(), 3, "status, gate and the answer to the command:\n{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

/// Performs an action for which GitHub sends no webhook. Asserts that the run stops before its next stage, with this
/// reason.
async fn assert_stopped_without_webhook(action: impl Fn(&World), why: &str) {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(3).await;
    w.lose_webhooks(true);
    action(&w);
    w.settle().await;
    let run = w.run().await.unwrap();
    assert_eq!((run.status, run.why.as_deref()), (RunViewStatus::Stopped, Some(why)), "{}", w.thread());
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.notifying(), 1, "no further mail, as with a webhook");
}

#[tokio::test]
async fn issue_closed_without_a_webhook_stops_its_run() {
    let close = |w: &World| w.hub.close_issue(w.repo, w.issue, w.user("maya")).unwrap();
    assert_stopped_without_webhook(close, "stopped by someone: the issue was closed").await;
}

#[tokio::test]
async fn stop_label_set_without_a_webhook_stops_the_run() {
    let label = |w: &World| w.hub.label(w.repo, w.issue, w.user("tess"), "countersign:stop").unwrap();
    assert_stopped_without_webhook(label, "stopped by someone: stop label").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_finishes_when_github_refuses_its_reactions() {
    for status in some([403, 404, 422]) {
        let mut w = world().await;
        let (method, path_contains) = ("POST".to_owned(), "/reactions".to_owned());
        w.hub.arm_fault(HubFault::Status { method, path_contains, status, times: 1000 });
        w.comes_to_the_gate().await;
        let line = w.approve_line();
        w.comment("stranger", "/approve").await;
        w.comment("sam", &line).await;
        w.stands(RunViewStatus::Done).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn comments_for_a_locked_issue_go_to_the_pull_request() {
    // Lock the issue before the bot comments, or after it has posted the gate.
    for locked_first in [true, false] {
        let mut w = world_of_files().await;
        let maya = w.user("maya");
        if locked_first {
            w.hub.lock(w.repo, w.issue, maya, true).unwrap();
        }
        w.label("maya", "countersign:lld").await;
        w.hub.lock(w.repo, w.issue, maya, true).unwrap();
        let asks = |body: &String| body.contains("/approve lld ");
        assert_eq!(w.on_pull().iter().any(asks), locked_first, "{:#?}\n{}", w.on_pull(), w.thread());
        // Collaborators can still comment on a locked issue.
        w.comment("sam", "/status").await;
        assert!(w.on_pull().iter().any(|body| body.contains("### Runs on this issue")), "{:#?}", w.on_pull());
        w.comment("sam", "/approve").await;
        assert_eq!(
            (w.run_status().await, w.labels()),
            (RunViewStatus::Done, vec!["countersign:done".to_owned()])
        );
        assert!(w.commits()[0].starts_with("docs: accept"), "{:?}", w.commits());
        assert!(w.pull().body.contains("Merging is up to you."), "{}", w.pull().body);
        assert_eq!(w.check_says(), "success: Countersigned");
        // With the issue locked from the start, the status comment is here as well.
        assert_eq!(w.on_pull().len(), if locked_first { 3 } else { 1 }, "{:#?}", w.on_pull());
        let on_issue: Vec<_> = w.bots().into_iter().map(|comment| w.look_at(comment.id)).collect();
        assert_eq!(on_issue.len(), if locked_first { 0 } else { 2 }, "{}", w.thread());
    }
}

#[tokio::test]
async fn comments_for_a_locked_pull_request_go_to_the_issue() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let (line, pull) = (w.approve_line(), w.pull_number());
    let (maya, sam) = (w.user("maya"), w.user("sam"));
    w.hub.lock(w.repo, pull, maya, true).unwrap();
    for (command, answer) in [
        ("/status", "### Runs on this issue"),
        ("/approve lld 00000000", "that hash belongs to another version"),
    ] {
        w.pass(60);
        w.hub.comment(w.repo, pull, sam, command).unwrap();
        w.settle().await;
        w.find(answer);
    }
    w.hub.lock(w.repo, w.issue, maya, true).unwrap();
    let before = w.view().comments.len();
    w.label("maya", "countersign:lld").await;
    assert!(!w.labels().contains(&"countersign:lld".to_owned()), "{:?}", w.labels());
    w.hub.comment(w.repo, pull, sam, &format!("/status\n{line}\n/revise")).unwrap();
    w.settle().await;
    // Comments on the issue cannot be updated; label, branch and pull request can.
    assert_eq!(
        (w.run_status().await, w.labels()),
        (RunViewStatus::Done, vec!["countersign:done".to_owned()])
    );
    assert!(w.commits()[0].starts_with("docs: accept"), "{:?}", w.commits());
    assert!(w.pull().body.contains("Merging is up to you."), "{}", w.pull().body);
    assert_eq!(w.check_says(), "success: Countersigned");
    assert_eq!(w.app.store.inbox().counts().await.unwrap().dead, 0);
    assert_eq!(w.view().comments.len(), before, "there is no place for another comment:\n{}", w.thread());
}

#[tokio::test]
async fn command_is_retried_not_refused_when_the_permission_lookup_fails() {
    let mut w = world().await;
    let broken = |status| HubFault::Status {
        method: "GET".to_owned(),
        path_contains: "/collaborators/".to_owned(),
        status,
        times: 3,
    };
    w.hub.arm_fault(broken(500));
    w.comment("tess", "/lld").await;
    let reactions = |w: &World| w.view().comments[0].reactions.clone();
    assert!(w.run().await.is_none());
    assert!(reactions(&w).is_empty(), "the permission is still unknown: {:?}", reactions(&w));
    w.wait(30).await;
    assert!(w.run().await.is_some(), "the second lookup allows it");
    assert_eq!(reactions(&w), [("countersign[bot]".to_owned(), "eyes".to_owned())]);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn design_run_sends_two_mails_and_at_most_thirty_api_calls() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;

    // The first design also created the labels and read the App's identity; measure a second one.
    let view = w.view();
    w.issue = w.hub.open_issue(w.repo, w.user("maya"), &view.title, &view.body).unwrap();
    let (calls, writes) = (w.hub.requests().len(), w.hub.writes());
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;
    assert!(w.notifying() <= 2, "a design sends two mails:\n{}", w.thread());
    let (calls, writes) = (&w.hub.requests()[calls..], w.hub.writes() - writes);
    let list: Vec<_> = calls.iter().map(|r| format!("{} {} {}", r.status, r.method, r.path)).collect();
    let (count, list) = (calls.len(), list.join("\n"));
    // Two of the writes only read (the issue's author, how the approval was sent): GraphQL always uses POST.
    assert!(count <= 30 && writes <= 12, "one design made {count} calls, {writes} of them writes:\n{list}");
}

#[tokio::test]
async fn slow_design_run_makes_at_most_eighteen_writes() {
    let mut w = world().await;
    let writes = w.hub.writes();
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    // Every step takes longer than the gap between two edits of the status comment, so none is skipped.
    while w.run().await.is_none_or(|run| run.status != RunViewStatus::Asking) {
        w.step(1).await;
        w.pass(60);
    }
    w.settle().await;
    w.approved_by("sam").await;
    let made = |r: &&HubRequestView| r.method == "POST" && r.path == "/repos/maya/tally/labels";
    let once = w.hub.requests().iter().filter(made).count();
    // Two more only read, because GraphQL always uses POST.
    assert!(w.hub.writes() - writes - once <= 20, "{} writes", w.hub.writes() - writes - once);
    let edits = w.find("Rehearsal").edits;
    assert_eq!(edits, 5, "two reviews, a second draft, the gate and the end are each shown");
}
