//! Stories about deliveries that arrive twice, late, out of order, in floods, or from unexpected senders.

use std::{sync::Arc, time::Duration};

use countersign::{
    engine::RunViewStatus,
    localhub::{HubFault, RepoSource},
    store::{DeliverySubject, NewDelivery},
    types::{DeliveryId, IssueNo},
};
use futures_util::{StreamExt, stream};
use reqwest::StatusCode;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    doors::{Knock, knock},
    shell::process::PATIENCE,
    world::{SECRET, World, all, world, world_of_files},
};

const DAY: u64 = 24 * 3600;

/// Signature that is well-formed but wrong.
const INVALID_SIGNATURE: &str = "sha256=0000000000000000000000000000000000000000000000000000000000000000";

impl World {
    /// Sends a signed delivery to the webhook endpoint and asserts that it is accepted.
    async fn deliver(&self, id: &str, event: &str, payload: &Value) {
        let (status, message) = knock(id, event, payload.to_string()).at(self.webhook.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{message}");
    }

    /// Returns the webhook payload of this user's newest comment.
    fn newest_comment_payload(&self, who: &str) -> Value {
        let sent = self.hub.deliveries();
        let comments = sent.iter().rev().filter(|d| d.event == "issue_comment");
        let mut bodies = comments.filter_map(|d| self.hub.delivery_body(&d.guid));
        let by = |body: Vec<u8>| {
            serde_json::from_slice::<Value>(&body).ok().filter(|v| v["sender"]["login"] == who)
        };
        bodies.find_map(by).unwrap()
    }

    /// Posts a comment whose webhook is lost. Returns the payload of that webhook.
    async fn comment_without_webhook(&self, who: &str, text: &str) -> Value {
        let (app, secret) = (self.app.settings.app.id, SecretString::from(SECRET));
        self.hub.wait_for_webhooks().await;
        let nobody = "http://127.0.0.1:9/".parse().unwrap();
        self.hub.set_webhook(app, Some(nobody), &secret).unwrap();
        self.hub.comment(self.repo, self.issue, self.user(who), text).unwrap();
        self.hub.wait_for_webhooks().await;
        self.hub.set_webhook(app, Some(self.webhook.clone()), &secret).unwrap();
        self.newest_comment_payload(who)
    }

    /// Stores a delivery as if the sweep of GitHub's delivery log had found it.
    async fn store_as_swept(&self, id: &str, event: &str, payload: &Value) {
        let body = payload.to_string().into_bytes();
        let subject = DeliverySubject {
            installation: Some(self.installation),
            repository: Some(self.repo),
            issue: Some(self.issue),
            fence: false,
        };
        let new = NewDelivery {
            id: DeliveryId(id.to_owned()),
            event: event.to_owned(),
            subject,
            swept: true,
            body,
        };
        self.app.store.inbox().accept_delivery(new).await.unwrap();
    }

    fn installation_payload(&self, action: &str, more: &[(&str, Value)]) -> Value {
        let user = json!({ "id": self.user("maya").0, "login": "maya", "type": "User" });
        let mut payload = json!({
            "action": action, "sender": user, "installation": { "id": self.installation.0, "account": user },
        });
        for (key, value) in more {
            payload[*key] = value.clone();
        }
        payload
    }

    fn repository_list(&self) -> Value {
        json!([{ "id": self.repo.0, "full_name": "maya/tally", "name": "tally" }])
    }
}

#[tokio::test]
async fn comment_delivered_twice_is_processed_once() {
    let mut w = world().await;
    w.comment("tess", "/lld").await;
    let payload = w.newest_comment_payload("tess");
    w.find("Rehearsal");
    w.find("waits for a person");
    let (run, mails) = (w.run().await.unwrap().id, w.notifying());
    w.deliver("another-hook", "issue_comment", &payload).await;
    w.settle().await;
    assert_eq!(w.ending("another-hook"), ("done".to_owned(), "duplicate of another delivery".to_owned()));
    w.comment("sam", "/stop").await;
    w.deliver("a-third-hook", "issue_comment", &payload).await;
    w.settle().await;
    assert_eq!(w.run().await.unwrap().id, run, "also after the run has ended");

    // A command that only gets an answer is answered once.
    w.comment("sam", "/countersign aprove").await;
    let payload = w.newest_comment_payload("sam");
    w.find("Did you mean");
    w.deliver("a-fourth-hook", "issue_comment", &payload).await;
    w.settle().await;
    assert_eq!(w.notifying(), mails + 1, "{}", w.thread());
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn two_deliveries_of_one_label_start_one_run() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.hub.wait_for_webhooks().await;
    let payload = w.payload("issues", "labeled");
    w.settle().await;
    w.comment("sam", "/stop").await;
    let run = w.run().await.unwrap();
    w.deliver("another-hook", "issues", &payload).await;
    w.settle().await;
    assert_eq!(w.run().await.unwrap().id, run.id);
    assert_eq!(w.ending("another-hook").1, "duplicate of another delivery");
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn out_of_order_deliveries_are_processed_in_arrival_order() {
    let mut w = world().await;
    let start = w.comment_without_webhook("sam", "/lld").await;
    w.pass(60);
    let stop = w.comment_without_webhook("sam", "/stop").await;
    w.deliver("second", "issue_comment", &stop).await;
    w.settle().await;
    w.deliver("first", "issue_comment", &start).await;
    w.settle().await;
    // the latest arrival counts, because deliveries carry no order
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    w.find("waits for a person");
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    // The close event arrives after the run has ended.
    w.hub.close_issue(w.repo, w.issue, w.user("maya")).unwrap();
    w.settle().await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn late_revise_and_stop_commands_are_refused_and_a_late_start_is_accepted() {
    let mut w = world().await;
    let start = w.comment_without_webhook("sam", "/lld").await;
    w.pass(600);
    w.store_as_swept("lost-start", "issue_comment", &start).await;
    w.settle().await;
    // nothing has happened since, so the command still counts
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    w.find("waits for a person");

    let revise = w.comment_without_webhook("sam", "/revise Say more.").await;
    let stop = w.comment_without_webhook("sam", "/stop").await;
    w.pass(60);
    w.comment("sam", "/revise Say what an empty file does.").await;
    let (run, mails) = (w.run().await.unwrap(), w.notifying());
    w.stands(RunViewStatus::Asking).await;
    w.newest();
    for (id, payload) in [("lost-revise", &revise), ("lost-stop", &stop)] {
        w.store_as_swept(id, "issue_comment", payload).await;
        w.settle().await;
    }
    let now = w.run().await.unwrap();
    assert_eq!(
        (now.status, now.visit),
        (RunViewStatus::Asking, run.visit),
        "neither command was carried out"
    );
    assert_eq!(w.notifying(), mails + 2, "{}", w.thread());
    assert!(w.find("delivered your `/revise` late").body.contains("write it again"), "{}", w.thread());
    w.find("delivered your `/stop` late");

    // Written after the gate opened, so it still counts although it is found late.
    w.pass(60);
    let line = w.approve_line();
    let approval = w.comment_without_webhook("sam", &line).await;
    w.store_as_swept("lost-approval", "issue_comment", &approval).await;
    w.settle().await;
    w.stands(RunViewStatus::Done).await;
}

/// Creates a test environment whose gate comment is posted, but whose gate is not open yet because a write after the
/// comment fails.
async fn world_with_unopened_gate() -> World {
    let mut w = world().await;
    let fails = |path: &str| HubFault::Status {
        method: "POST".to_owned(),
        path_contains: path.to_owned(),
        status: 502,
        times: u32::MAX,
    };
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(14).await;
    assert_eq!(w.run().await.unwrap().step_id, "N4");
    // Block the comment until all earlier writes are done; then block the writes after it.
    w.hub.arm_fault(fails("/comments"));
    w.settle().await;
    w.hub.clear_faults();
    w.hub.arm_fault(fails("/graphql"));
    w.wait(60).await;
    w.find("waits for a person");
    assert!(w.run().await.unwrap().shows_unopened_gate, "{}", w.thread());
    w
}

#[tokio::test]
#[ignore = "takes long"]
async fn approval_written_between_the_gate_comment_and_gate_opening_is_accepted() {
    let mut w = world_with_unopened_gate().await;
    w.pass(20);
    let approval = w.comment_without_webhook("sam", "/approve").await;
    w.hub.clear_faults();
    w.wait(60).await;
    // the gate opened after the approval was written
    w.stands(RunViewStatus::Asking).await;
    w.store_as_swept("lost-approval", "issue_comment", &approval).await;
    w.settle().await;
    w.stands(RunViewStatus::Done).await;
    w.find("Rehearsal");
}

#[tokio::test]
#[ignore = "takes long"]
async fn approval_swept_before_the_gate_opens_is_applied_when_the_gate_opens() {
    let mut w = world_with_unopened_gate().await;
    w.pass(20);
    let approval = w.comment_without_webhook("sam", "/approve").await;
    w.wait(60).await;
    w.store_as_swept("lost-approval", "issue_comment", &approval).await;
    // Longer than a gate usually takes to open.
    w.wait(600).await;
    assert!(w.run().await.unwrap().shows_unopened_gate, "{}", w.thread());
    w.hub.clear_faults();
    w.wait(600).await;
    w.stands(RunViewStatus::Done).await;
    w.find("Rehearsal");
}

#[tokio::test]
#[ignore = "takes long"]
async fn stop_command_does_not_wait_for_a_gate_to_open() {
    // Found by the sweep, or delivered behind an approval that waits.
    for found in [true, false] {
        let mut w = world_with_unopened_gate().await;
        w.pass(20);
        if found {
            let stop = w.comment_without_webhook("sam", "/stop").await;
            w.wait(60).await;
            w.store_as_swept("lost-stop", "issue_comment", &stop).await;
        } else {
            w.comment("sam", "/approve").await;
            w.comment("sam", "/stop").await;
        }
        w.wait(300).await;
        w.hub.clear_faults();
        w.wait(60).await;
        assert_eq!(
            (w.run_status().await, w.labels()),
            (RunViewStatus::Stopped, vec!["countersign:stopped".to_owned()])
        );
        assert!(
            w.status().body.contains("lld: stopped") && w.gate().contains("was closed without a decision"),
            "{}",
            w.thread()
        );
        if !found {
            w.find("No decision is open");
        }
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn late_approval_with_an_old_hash_is_refused_as_stale() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let line = w.approve_line();
    w.pass(60);
    let approval = w.comment_without_webhook("sam", &line).await;
    w.pass(60);
    w.comment("sam", "/revise Say what an empty file does.").await;
    assert_ne!(w.approve_line(), line, "the gate is about another version");
    w.newest();
    w.store_as_swept("lost-approval", "issue_comment", &approval).await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    assert!(
        w.newest().starts_with("Nothing was approved: that hash belongs to another version"),
        "{}",
        w.thread()
    );
}

#[tokio::test]
async fn thousands_of_concurrent_deliveries_are_each_acknowledged_and_processed() {
    let many = if all() { 10_000 } else { 1_000 };
    let w = world().await;
    let before = w.counts().await;
    let (inbox, client) = (w.app.store.clone(), reqwest::Client::new());
    let answers = stream::iter(0..many).map(|n| {
        // Spread over several repositories and issues; nothing acts on a star.
        let body = json!({
            "action": "created", "installation": { "id": w.installation.0 }, "repository": { "id": 1000 + n % 7 },
            "issue": { "number": n % 11 },
        });
        let knock = knock(&format!("flood-{n}"), "star", body.to_string());
        let sent = client.post(w.webhook.clone()).headers(knock.headers).body(knock.body).send();
        async move { sent.await.unwrap().status() }
    });
    let answers: Vec<_> = answers.buffer_unordered(64).collect().await;
    assert!(answers.iter().all(|status| *status == StatusCode::ACCEPTED));
    assert_eq!(w.counts().await.new, before.new + many as u64, "each 202 is stored");

    let stop = CancellationToken::new();
    let (intake, stopped) = (Arc::clone(&w.app), stop.clone());
    let working = tokio::spawn(async move { intake.intake.run(stopped).await });
    let all = async {
        loop {
            let counts = inbox.inbox().counts().await.unwrap();
            if counts.new + counts.taken == 0 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all).await.expect("all deliveries are processed");
    stop.cancel();
    working.await.unwrap();
    let after = w.counts().await;
    assert_eq!((after.done, after.dead), (before.done + many as u64, before.dead));
}

const MEGABYTE: usize = 1 << 20;

/// Opens a connection and sends a request that announces its whole body. Only the first `sent` bytes of the body are
/// sent.
async fn send_partially(w: &World, knock: &Knock, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(w.webhook.socket_addrs(|| None).unwrap()[0]).await.unwrap();
    let mut head = format!("POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", knock.body.len());
    for (name, value) in &knock.headers {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    // The server may close the connection before it has read the body.
    drop(stream.write_all(&knock.body[..sent]).await);
    stream
}

async fn status_of(stream: &mut TcpStream) -> String {
    let mut line = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut line)).await.expect("a response").unwrap();
    String::from_utf8(line.to_vec()).unwrap()
}

#[tokio::test]
#[ignore = "takes long"]
async fn incomplete_request_bodies_do_not_block_other_deliveries() {
    let w = world().await;
    let limit = countersign::limits::PENDING_DELIVERY_BYTES;
    let unsigned =
        knock("half", "ping", vec![b' '; 25 * MEGABYTE]).with("x-hub-signature-256", INVALID_SIGNATURE);
    let mut partial = Vec::new();
    // Few large bodies and many small ones, together twice the memory limit.
    for size in [[24 * MEGABYTE; 3].as_slice(), &[MEGABYTE; 20], &[100_000; 300]].concat() {
        partial.push(send_partially(&w, &unsigned, size).await);
    }
    let genuine = knock("genuine", "ping", format!("{{\"zen\":\"{}\"}}", "x".repeat(21 * MEGABYTE)));
    let mut large = send_partially(&w, &genuine, 20 * MEGABYTE).await;
    for n in 0..40 {
        let (status, message) = knock(&format!("small-{n}"), "ping", "{}").at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{message}");
    }
    for dropped in &mut partial[..3] {
        assert_eq!(status_of(dropped).await, "HTTP/1.1 503", "the oldest body is dropped");
    }
    large.write_all(&genuine.body[20 * MEGABYTE..]).await.unwrap();
    assert_eq!(status_of(&mut large).await, "HTTP/1.1 202");
    drop(partial);

    // Fill the limit almost completely; each body lacks its last byte.
    let share = countersign::limits::LEAST_REQUEST_BYTES;
    let rest = limit - 2 * (25 * MEGABYTE + share) - share;
    let third = knock("half", "ping", vec![b' '; rest]).with("x-hub-signature-256", INVALID_SIGNATURE);
    let mut first = send_partially(&w, &unsigned, 25 * MEGABYTE - 1).await;
    let _second = send_partially(&w, &unsigned, 25 * MEGABYTE - 1).await;
    let _third = send_partially(&w, &third, rest - 1).await;
    let pings = async {
        for n in 0.. {
            let (status, message) = knock(&format!("again-{n}"), "ping", "{}").at(w.webhook.clone()).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{message}");
        }
    };
    tokio::select! {
        () = pings => {}
        status = status_of(&mut first) => assert_eq!(status, "HTTP/1.1 503"),
    }
}

#[tokio::test]
async fn delivery_over_the_memory_limit_gets_503() {
    let w = world().await;
    let zen = |size: usize| format!("{{\"zen\":\"{}\"}}", "x".repeat(size));
    // Signing is slow, so it is done before the database is locked.
    let whole: Vec<_> = (0..3).map(|n| knock(&format!("waits-{n}"), "ping", zen(20 * MEGABYTE))).collect();
    let large = knock("crowded", "ping", zen(10 * MEGABYTE));
    let lock = w.database();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Signed and complete, they wait for the locked database.
    let mut waiting = Vec::new();
    for knock in &whole {
        waiting.push(send_partially(&w, knock, knock.body.len()).await);
    }
    let client = reqwest::Client::new().post(w.webhook.clone());
    let refused = client.headers(large.headers.clone()).body(large.body.clone()).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "5");
    assert!(refused.text().await.unwrap().contains("redeliver it later"));
    lock.execute_batch("ROLLBACK").unwrap();
    for stream in &mut waiting {
        assert_eq!(status_of(stream).await, "HTTP/1.1 202", "a complete body is not dropped");
    }
    let (status, _) = large.at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "memory is free again");
}

#[tokio::test]
async fn run_of_a_suspended_installation_pauses_and_resumes() {
    let mut w = world().await;
    let status = w.comment_without_webhook("tess", "/status").await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(2).await;
    let visit = w.run().await.unwrap().visit;
    w.hub.suspend(w.installation, true).unwrap();
    w.settle().await;
    w.wait(600).await;
    let run = w.run().await.unwrap();
    assert_eq!((run.status, run.visit), (RunViewStatus::Ready, visit), "the run neither continues nor ends");
    // A delivery under way is kept; other installations continue meanwhile.
    w.deliver("on-its-way", "issue_comment", &status).await;
    w.settle().await;
    assert_eq!(w.ending("on-its-way"), ("new".to_owned(), "its installation is suspended".to_owned()));
    w = w.restart().await;
    w.settle().await;
    assert_eq!(w.run().await.unwrap().visit, visit, "the suspension survives a restart");

    w.hub.suspend(w.installation, false).unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    // The delivery was claimed before, so the bot first checks whether its answer exists.
    w.wait(15).await;
    assert_eq!(w.ending("on-its-way").0, "done");
    w.find("Rehearsal");
    w.find("waits for a person");
    w.newest();
}

#[tokio::test]
async fn runs_of_a_removed_repository_end_and_its_data_is_kept_for_a_month() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let folder = w.app.store.repo_dir(w.repo);
    let removed = w.installation_payload(
        "removed",
        &[("repositories_removed", w.repository_list()), ("repositories_added", json!([]))],
    );
    w.deliver("removed", "installation_repositories", &removed).await;
    let late = w.comment_without_webhook("sam", "/help").await;
    w.settle().await;
    w.wait(60).await;
    assert!(!w.run_status().await.is_live(), "{:?}", w.run().await);
    w.deliver("late", "issue_comment", &late).await;
    w.settle().await;
    assert_eq!(w.ending("late").1, "ignored: its repository is gone");
    assert!(w.app.store.installation_registry().repository(w.repo).await.unwrap().is_none());

    w.pass(29 * DAY);
    w.app.intake.remove_old_data().await.unwrap();
    assert!(folder.join("checkpoints.db").exists());
    w.pass(DAY);
    w.app.intake.remove_old_data().await.unwrap();
    assert!(!folder.exists());
    assert!(w.run().await.is_none(), "the data stays removed");
}

#[tokio::test]
async fn repository_added_back_within_a_month_keeps_its_data() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let lists =
        |added: Value, removed: Value| [("repositories_added", added), ("repositories_removed", removed)];
    let removed = w.installation_payload("removed", &lists(json!([]), w.repository_list()));
    w.deliver("removed", "installation_repositories", &removed).await;
    w.settle().await;
    w.wait(60).await;
    let added = w.installation_payload("added", &lists(w.repository_list(), json!([])));
    w.deliver("added", "installation_repositories", &added).await;
    w.settle().await;
    w.pass(60 * DAY);
    w.app.intake.remove_old_data().await.unwrap();
    assert_eq!(w.run_status().await, RunViewStatus::Stopped, "the old run is still known");
    // The App could not write when the run ended, so the gate comment is unchanged.
    assert!(w.gate().contains("waits for a person"));
    w.label("maya", "countersign:lld").await;
    assert_eq!(w.runs_begun(), 2);
    assert_eq!(
        (w.run_status().await, w.labels()),
        (RunViewStatus::Asking, vec!["countersign:needs-you".to_owned()])
    );
    assert!(w.status().body.contains("lld: waiting for you") && w.gate().contains("waits for a person"));
    assert_eq!(
        w.commits(),
        ["docs: propose design for #1", "Initial commit"],
        "the earlier proposal is reused"
    );
    assert_eq!(w.pulls().len(), 1);
    w.pull();
    assert_eq!(w.check_says(), "action_required: APPROVED: waits for a person");
}

#[tokio::test]
#[ignore = "takes long"]
async fn archiving_a_repository_ends_its_runs_and_renaming_it_does_not() {
    for (action, elsewhere) in [("archived", false), ("transferred", true), ("renamed", false)] {
        let mut w = world().await;
        w.comes_to_the_gate().await;
        let mut payload = w.payload("issues", "labeled");
        payload["action"] = json!(action);
        if elsewhere {
            // The new owner's installation is allowed too.
            payload["installation"]["id"] = json!(w.installation.0 + 1);
        }
        w.deliver("changed", "repository", &payload).await;
        w.settle().await;
        w.wait(60).await;
        let live = w.run_status().await.is_live();
        // An event from another installation about this repository is ignored.
        assert_eq!(live, action != "archived", "{action}: {:?}", w.ending("changed"));
        w.stands(if live { RunViewStatus::Asking } else { RunViewStatus::Stopped }).await;
    }
}

#[tokio::test]
async fn uninstalling_the_app_ends_its_runs() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.hub.uninstall(w.installation).unwrap();
    for _ in 0..20 {
        w.pass(60);
        w.settle().await;
    }
    assert!(!w.run_status().await.is_live(), "{:?}", w.run().await);
    assert_eq!(w.counts().await.dead, 0);
}

#[tokio::test]
async fn clock_set_back_by_an_hour_does_not_delay_an_approval() {
    let mut w = world().await;
    w.comment("sam", "/lld").await;
    w.find("Rehearsal");
    w.find("waits for a person");
    w.pass(60);
    let line = w.approve_line();
    w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
    w.hub.wait_for_webhooks().await;
    w.clock.set_back(Duration::from_secs(3600));
    w.settle().await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.counts().await.dead, 0);
}

#[tokio::test]
async fn no_delivery_is_lost_when_the_clock_is_set_ahead_by_a_year() {
    let mut w = world().await;
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/lld").unwrap();
    w.hub.wait_for_webhooks().await;
    w.hub.arm_fault(HubFault::Status {
        method: "GET".to_owned(),
        path_contains: "/collaborators/".to_owned(),
        status: 500,
        times: 3,
    });
    w.pass(365 * DAY);
    w.app.intake.remove_old_data().await.unwrap();
    w.settle().await;
    assert_eq!(w.counts().await.dead, 0, "the first failure is retried, however old the delivery looks");
    w.wait(600).await;
    assert!(w.run().await.is_some(), "{}", w.thread());
    let issue: IssueNo = w.run().await.unwrap().issue;
    assert_eq!(issue, w.issue);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn late_uninstall_archive_and_delete_events_are_ignored_if_the_repository_exists() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let lists = [("repositories_removed", w.repository_list()), ("repositories_added", json!([]))];
    let removed = w.installation_payload("removed", &lists);
    w.store_as_swept("late-removed", "installation_repositories", &removed).await;
    w.store_as_swept("late-uninstall", "installation", &w.installation_payload("deleted", &[])).await;
    let mut payload = w.payload("issues", "labeled");
    for action in ["archived", "deleted"] {
        payload["action"] = json!(action);
        w.store_as_swept(&format!("late-{action}"), "repository", &payload).await;
    }
    w.settle().await;
    w.wait(60).await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.app.store.installation_registry().repository(w.repo).await.unwrap().is_some());
    for id in ["late-uninstall", "late-archived", "late-deleted"] {
        assert_eq!(w.ending(id).1, "outdated: it arrived too late", "{id}");
    }
    assert_eq!(w.ending("late-removed").0, "done");
}

#[tokio::test]
async fn labels_set_in_two_repositories_in_the_same_second_both_start_runs() {
    let mut w = world().await;
    let maya = w.user("maya");
    let other =
        w.hub.create_repo(maya, "ledger", RepoSource::Files(vec![("a.txt".into(), b"a".into())]), false);
    let (other, app) = (other.unwrap(), w.app.settings.app.id);
    w.hub.install(app, &[other]).unwrap();
    let other_issue = w.hub.open_issue(other, maya, "Months", "As well.").unwrap();
    assert_eq!(other_issue, w.issue, "both have the same number");
    w.settle().await;
    for repo in [w.repo, other] {
        w.hub.label(repo, w.issue, maya, "countersign:lld").unwrap();
    }
    w.hub.wait_for_webhooks().await;
    w.app.intake.drain_inbox().await.unwrap();
    for repo in [w.repo, other] {
        w.repo = repo;
        assert!(w.run().await.is_some(), "both issues have a run");
        w.labels();
    }
}
