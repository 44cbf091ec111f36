//! Deliveries that come twice, late, in the wrong order, all at once, or from where nothing should come.

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

/// A signature in form alone.
const NOBODYS: &str = "sha256=0000000000000000000000000000000000000000000000000000000000000000";

impl World {
    /// A delivery of our own making, through the front door.
    async fn delivered(&self, id: &str, event: &str, payload: &Value) {
        let (status, said) = knock(id, event, payload.to_string()).at(self.webhook.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{said}");
    }

    /// What the webhook of this person's newest comment said.
    fn told(&self, who: &str) -> Value {
        let sent = self.hub.deliveries();
        let comments = sent.iter().rev().filter(|d| d.event == "issue_comment");
        let mut bodies = comments.filter_map(|d| self.hub.delivery_body(&d.guid));
        let by = |body: Vec<u8>| {
            serde_json::from_slice::<Value>(&body).ok().filter(|v| v["sender"]["login"] == who)
        };
        bodies.find_map(by).unwrap()
    }

    /// A comment whose webhook is lost; what it would have said.
    async fn lost(&self, who: &str, text: &str) -> Value {
        let (app, secret) = (self.app.settings.app.id, SecretString::from(SECRET));
        self.hub.wait_for_webhooks().await;
        let nobody = "http://127.0.0.1:9/".parse().unwrap();
        self.hub.set_webhook(app, Some(nobody), &secret).unwrap();
        self.hub.comment(self.repo, self.issue, self.user(who), text).unwrap();
        self.hub.wait_for_webhooks().await;
        self.hub.set_webhook(app, Some(self.webhook.clone()), &secret).unwrap();
        self.told(who)
    }

    /// As the sweep of the delivery log does it.
    async fn swept(&self, id: &str, event: &str, payload: &Value) {
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

    fn lifecycle(&self, action: &str, more: &[(&str, Value)]) -> Value {
        let user = json!({ "id": self.user("maya").0, "login": "maya", "type": "User" });
        let mut payload = json!({
            "action": action, "sender": user, "installation": { "id": self.installation.0, "account": user },
        });
        for (key, value) in more {
            payload[*key] = value.clone();
        }
        payload
    }

    fn listed(&self) -> Value {
        json!([{ "id": self.repo.0, "full_name": "maya/tally", "name": "tally" }])
    }
}

#[tokio::test]
async fn two_hooks_for_one_comment_have_one_effect() {
    let mut w = world().await;
    w.comment("tess", "/lld").await;
    let payload = w.told("tess");
    w.find("Rehearsal");
    w.find("waits for a person");
    let (run, said) = (w.run().await.unwrap().id, w.notifying());
    w.delivered("another-hook", "issue_comment", &payload).await;
    w.settle().await;
    assert_eq!(w.ending("another-hook"), ("done".to_owned(), "another delivery told of it".to_owned()));
    w.comment("sam", "/stop").await;
    w.delivered("a-third-hook", "issue_comment", &payload).await;
    w.settle().await;
    assert_eq!(w.run().await.unwrap().id, run, "also when the run is over");

    // An answer in words is given once.
    w.comment("sam", "/countersign aprove").await;
    let payload = w.told("sam");
    w.find("Did you mean");
    w.delivered("a-fourth-hook", "issue_comment", &payload).await;
    w.settle().await;
    assert_eq!(w.notifying(), said + 1, "{}", w.thread());
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn two_hooks_for_one_label_start_one_run() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.hub.wait_for_webhooks().await;
    let payload = w.payload("issues", "labeled");
    w.settle().await;
    w.comment("sam", "/stop").await;
    let run = w.run().await.unwrap();
    w.delivered("another-hook", "issues", &payload).await;
    w.settle().await;
    assert_eq!(w.run().await.unwrap().id, run.id);
    assert_eq!(w.ending("another-hook").1, "another delivery told of it");
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn deliveries_out_of_order_confuse_nobody() {
    let mut w = world().await;
    let start = w.lost("sam", "/lld").await;
    w.pass(60);
    let stop = w.lost("sam", "/stop").await;
    w.delivered("second", "issue_comment", &stop).await;
    w.settle().await;
    w.delivered("first", "issue_comment", &start).await;
    w.settle().await;
    // what came last counts: nobody knows of an order
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    w.find("waits for a person");
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    // The issue was closed; the word of it comes after its run has ended.
    w.hub.close_issue(w.repo, w.issue, w.user("maya")).unwrap();
    w.settle().await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_command_found_late_is_asked_for_again_and_a_start_is_not() {
    let mut w = world().await;
    let start = w.lost("sam", "/lld").await;
    w.pass(600);
    w.swept("lost-start", "issue_comment", &start).await;
    w.settle().await;
    // nothing has happened since, so it holds
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    w.find("waits for a person");

    let revise = w.lost("sam", "/revise Say more.").await;
    let stop = w.lost("sam", "/stop").await;
    w.pass(60);
    w.comment("sam", "/revise Say what an empty file does.").await;
    let (run, said) = (w.run().await.unwrap(), w.notifying());
    w.stands(RunViewStatus::Asking).await;
    w.newest();
    for (id, payload) in [("lost-revise", &revise), ("lost-stop", &stop)] {
        w.swept(id, "issue_comment", payload).await;
        w.settle().await;
    }
    let now = w.run().await.unwrap();
    assert_eq!((now.status, now.visit), (RunViewStatus::Asking, run.visit), "neither was carried out");
    assert_eq!(w.notifying(), said + 2, "{}", w.thread());
    assert!(w.find("Your `/revise` came late").body.contains("say it again"), "{}", w.thread());
    w.find("Your `/stop` came late");

    // Written after the gate was opened, a late one is not too late.
    w.pass(60);
    let line = w.approve_line();
    let approval = w.lost("sam", &line).await;
    w.swept("lost-approval", "issue_comment", &approval).await;
    w.settle().await;
    w.stands(RunViewStatus::Done).await;
}

/// A gate whose comment is there and which does not open, because what is shown after it cannot be.
async fn about_to_open() -> World {
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
    // First the comment, until all before it is done; then what comes after it.
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
async fn what_is_said_between_a_gates_comment_and_its_opening_is_not_late() {
    let mut w = about_to_open().await;
    w.pass(20);
    let approval = w.lost("sam", "/approve").await;
    w.hub.clear_faults();
    w.wait(60).await;
    // it opened after that
    w.stands(RunViewStatus::Asking).await;
    w.swept("lost-approval", "issue_comment", &approval).await;
    w.settle().await;
    w.stands(RunViewStatus::Done).await;
    w.find("Rehearsal");
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_is_found_while_a_gate_opens_waits_for_it() {
    let mut w = about_to_open().await;
    w.pass(20);
    let approval = w.lost("sam", "/approve").await;
    w.wait(60).await;
    w.swept("lost-approval", "issue_comment", &approval).await;
    // Longer than a gate takes to open on a good day.
    w.wait(600).await;
    assert!(w.run().await.unwrap().shows_unopened_gate, "{}", w.thread());
    w.hub.clear_faults();
    w.wait(600).await;
    w.stands(RunViewStatus::Done).await;
    w.find("Rehearsal");
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_stop_waits_for_no_gate_to_open() {
    // Found by the sweep, and heard behind an answer that waits.
    for found in [true, false] {
        let mut w = about_to_open().await;
        w.pass(20);
        if found {
            let stop = w.lost("sam", "/stop").await;
            w.wait(60).await;
            w.swept("lost-stop", "issue_comment", &stop).await;
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
            w.status().body.contains("lld: stopped") && w.gate().contains("was not decided"),
            "{}",
            w.thread()
        );
        if !found {
            w.find("Nothing waits for a decision");
        }
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn an_answer_with_a_hash_is_never_late_and_may_be_stale() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let line = w.approve_line();
    w.pass(60);
    let approval = w.lost("sam", &line).await;
    w.pass(60);
    w.comment("sam", "/revise Say what an empty file does.").await;
    assert_ne!(w.approve_line(), line, "another version is asked about");
    w.newest();
    w.swept("lost-approval", "issue_comment", &approval).await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    assert!(w.newest().starts_with("That hash is not of the version that waits"), "{}", w.thread());
}

#[tokio::test]
async fn thousands_at_once_are_kept_and_dealt_with() {
    let many = if all() { 10_000 } else { 1_000 };
    let w = world().await;
    let before = w.counts().await;
    let (inbox, client) = (w.app.store.clone(), reqwest::Client::new());
    let answers = stream::iter(0..many).map(|n| {
        // Of as many repositories and issues as there may be; nothing acts on a star.
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
    assert_eq!(w.counts().await.new, before.new + many as u64, "each 202 is on disk");

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
    timeout(PATIENCE, all).await.expect("all are dealt with");
    stop.cancel();
    working.await.unwrap();
    let after = w.counts().await;
    assert_eq!((after.done, after.dead), (before.done + many as u64, before.dead));
}

const MEGABYTE: usize = 1 << 20;

/// A delivery that announces its whole body and has sent this much of it.
async fn half_sent(w: &World, knock: &Knock, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(w.webhook.socket_addrs(|| None).unwrap()[0]).await.unwrap();
    let mut head = format!("POST /webhook HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", knock.body.len());
    for (name, value) in &knock.headers {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    // One that has to go is not read to its end.
    drop(stream.write_all(&knock.body[..sent]).await);
    stream
}

async fn status_of(stream: &mut TcpStream) -> String {
    let mut line = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut line)).await.expect("an answer").unwrap();
    String::from_utf8(line.to_vec()).unwrap()
}

#[tokio::test]
#[ignore = "takes long"]
async fn half_sent_bodies_keep_nobody_out() {
    let w = world().await;
    let room = countersign::limits::PENDING_DELIVERY_BYTES;
    let unsigned = knock("half", "ping", vec![b' '; 25 * MEGABYTE]).with("x-hub-signature-256", NOBODYS);
    let mut crowd = Vec::new();
    // Few large ones and many small ones, together twice the room.
    for size in [[24 * MEGABYTE; 3].as_slice(), &[MEGABYTE; 20], &[100_000; 300]].concat() {
        crowd.push(half_sent(&w, &unsigned, size).await);
    }
    let genuine = knock("genuine", "ping", format!("{{\"zen\":\"{}\"}}", "x".repeat(21 * MEGABYTE)));
    let mut large = half_sent(&w, &genuine, 20 * MEGABYTE).await;
    for n in 0..40 {
        let (status, said) = knock(&format!("small-{n}"), "ping", "{}").at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{said}");
    }
    for gone in &mut crowd[..3] {
        assert_eq!(status_of(gone).await, "HTTP/1.1 503", "it was the first, and had to go");
    }
    large.write_all(&genuine.body[20 * MEGABYTE..]).await.unwrap();
    assert_eq!(status_of(&mut large).await, "HTTP/1.1 202");
    drop(crowd);

    // Filled to a few bytes: the first two lack one each.
    let share = countersign::limits::LEAST_REQUEST_BYTES;
    let rest = room - 2 * (25 * MEGABYTE + share) - share;
    let third = knock("half", "ping", vec![b' '; rest]).with("x-hub-signature-256", NOBODYS);
    let mut first = half_sent(&w, &unsigned, 25 * MEGABYTE - 1).await;
    let _second = half_sent(&w, &unsigned, 25 * MEGABYTE - 1).await;
    let _third = half_sent(&w, &third, rest - 1).await;
    let knocking = async {
        for n in 0.. {
            let (status, said) = knock(&format!("again-{n}"), "ping", "{}").at(w.webhook.clone()).await;
            assert_eq!(status, StatusCode::ACCEPTED, "{said}");
        }
    };
    tokio::select! {
        () = knocking => {}
        status = status_of(&mut first) => assert_eq!(status, "HTTP/1.1 503"),
    }
}

#[tokio::test]
async fn more_than_memory_may_hold_is_sent_away() {
    let w = world().await;
    let zen = |size: usize| format!("{{\"zen\":\"{}\"}}", "x".repeat(size));
    // Signing takes long here, and a disk is not waited for any longer than it has to be.
    let whole: Vec<_> = (0..3).map(|n| knock(&format!("waits-{n}"), "ping", zen(20 * MEGABYTE))).collect();
    let large = knock("crowded", "ping", zen(10 * MEGABYTE));
    let disk = w.database();
    disk.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Signed and whole, they wait for a disk that is busy.
    let mut waiting = Vec::new();
    for knock in &whole {
        waiting.push(half_sent(&w, knock, knock.body.len()).await);
    }
    let client = reqwest::Client::new().post(w.webhook.clone());
    let refused = client.headers(large.headers.clone()).body(large.body.clone()).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()["retry-after"], "5");
    assert!(refused.text().await.unwrap().contains("redeliver it later"));
    disk.execute_batch("ROLLBACK").unwrap();
    for stream in &mut waiting {
        assert_eq!(status_of(stream).await, "HTTP/1.1 202", "what is whole keeps its place");
    }
    let (status, _) = large.at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "there is room again");
}

#[tokio::test]
async fn a_suspended_installation_rests_and_goes_on() {
    let mut w = world().await;
    let status = w.lost("tess", "/status").await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(2).await;
    let visit = w.run().await.unwrap().visit;
    w.hub.suspend(w.installation, true).unwrap();
    w.settle().await;
    w.wait(600).await;
    let run = w.run().await.unwrap();
    assert_eq!((run.status, run.visit), (RunViewStatus::Ready, visit), "it neither runs nor ends");
    // A delivery that was on its way is kept; other installations go on meanwhile.
    w.delivered("on-its-way", "issue_comment", &status).await;
    w.settle().await;
    assert_eq!(w.ending("on-its-way"), ("new".to_owned(), "its installation is suspended".to_owned()));
    w = w.restart().await;
    w.settle().await;
    assert_eq!(w.run().await.unwrap().visit, visit, "another process knows it too");

    w.hub.suspend(w.installation, false).unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    // It was taken before, so it is made sure that its answer is not there already.
    w.wait(15).await;
    assert_eq!(w.ending("on-its-way").0, "done");
    w.find("Rehearsal");
    w.find("waits for a person");
    w.newest();
}

#[tokio::test]
async fn a_repository_taken_from_the_app_ends_its_runs_and_is_kept_for_a_month() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let folder = w.app.store.repo_dir(w.repo);
    let removed =
        w.lifecycle("removed", &[("repositories_removed", w.listed()), ("repositories_added", json!([]))]);
    w.delivered("removed", "installation_repositories", &removed).await;
    let late = w.lost("sam", "/help").await;
    w.settle().await;
    w.wait(60).await;
    assert!(!w.run_status().await.is_live(), "{:?}", w.run().await);
    w.delivered("late", "issue_comment", &late).await;
    w.settle().await;
    assert_eq!(w.ending("late").1, "ignored: its repository is gone");
    assert!(w.app.store.installation_registry().repository(w.repo).await.unwrap().is_none());

    w.pass(29 * DAY);
    w.app.intake.remove_old_data().await.unwrap();
    assert!(folder.join("checkpoints.db").exists());
    w.pass(DAY);
    w.app.intake.remove_old_data().await.unwrap();
    assert!(!folder.exists());
    assert!(w.run().await.is_none(), "and nothing brings it back");
}

#[tokio::test]
async fn a_repository_given_back_in_time_is_as_it_was() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let lists =
        |added: Value, removed: Value| [("repositories_added", added), ("repositories_removed", removed)];
    let removed = w.lifecycle("removed", &lists(json!([]), w.listed()));
    w.delivered("removed", "installation_repositories", &removed).await;
    w.settle().await;
    w.wait(60).await;
    let added = w.lifecycle("added", &lists(w.listed(), json!([])));
    w.delivered("added", "installation_repositories", &added).await;
    w.settle().await;
    w.pass(60 * DAY);
    w.app.intake.remove_old_data().await.unwrap();
    assert_eq!(w.run_status().await, RunViewStatus::Stopped, "what was done is still known");
    // The App could not write there when the run ended, so its gate stands as it was.
    assert!(w.gate().contains("waits for a person"));
    w.label("maya", "countersign:lld").await;
    assert_eq!(w.runs_begun(), 2);
    assert_eq!(
        (w.run_status().await, w.labels()),
        (RunViewStatus::Asking, vec!["countersign:needs-you".to_owned()])
    );
    assert!(w.status().body.contains("lld: waiting for you") && w.gate().contains("waits for a person"));
    assert_eq!(w.commits(), ["docs: propose LLD for #1", "Initial commit"], "what was there is taken up");
    assert_eq!(w.pulls().len(), 1);
    w.pull();
    assert_eq!(w.check_says(), "action_required: APPROVED: waits for a person");
}

#[tokio::test]
#[ignore = "takes long"]
async fn an_archived_or_transferred_repository_ends_its_runs() {
    for (action, elsewhere) in [("archived", false), ("transferred", true), ("renamed", false)] {
        let mut w = world().await;
        w.comes_to_the_gate().await;
        let mut payload = w.payload("issues", "labeled");
        payload["action"] = json!(action);
        if elsewhere {
            // Its new owner has the App too, and has been let in.
            payload["installation"]["id"] = json!(w.installation.0 + 1);
        }
        w.delivered("changed", "repository", &payload).await;
        w.settle().await;
        w.wait(60).await;
        let live = w.run_status().await.is_live();
        // Another installation is none of ours here, so its word is not taken.
        assert_eq!(live, action != "archived", "{action}: {:?}", w.ending("changed"));
        w.stands(if live { RunViewStatus::Asking } else { RunViewStatus::Stopped }).await;
    }
}

#[tokio::test]
async fn an_uninstalled_app_ends_its_runs() {
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
async fn a_clock_set_back_an_hour_delays_nothing() {
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
async fn a_clock_a_year_ahead_loses_nothing() {
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
    assert_eq!(w.counts().await.dead, 0, "its first trouble is not its last, however old it looks");
    w.wait(600).await;
    assert!(w.run().await.is_some(), "{}", w.thread());
    let issue: IssueNo = w.run().await.unwrap().issue;
    assert_eq!(issue, w.issue);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn what_took_a_repository_away_once_takes_nothing_away_when_it_is_there() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let lists = [("repositories_removed", w.listed()), ("repositories_added", json!([]))];
    let removed = w.lifecycle("removed", &lists);
    w.swept("late-removed", "installation_repositories", &removed).await;
    w.swept("late-uninstall", "installation", &w.lifecycle("deleted", &[])).await;
    let mut payload = w.payload("issues", "labeled");
    for action in ["archived", "deleted"] {
        payload["action"] = json!(action);
        w.swept(&format!("late-{action}"), "repository", &payload).await;
    }
    w.settle().await;
    w.wait(60).await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.app.store.installation_registry().repository(w.repo).await.unwrap().is_some());
    for id in ["late-uninstall", "late-archived", "late-deleted"] {
        assert_eq!(w.ending(id).1, "came late: it holds no longer", "{id}");
    }
    assert_eq!(w.ending("late-removed").0, "done");
}

#[tokio::test]
async fn one_person_may_label_in_several_repositories_in_one_second() {
    let mut w = world().await;
    let maya = w.user("maya");
    let other =
        w.hub.create_repo(maya, "ledger", RepoSource::Files(vec![("a.txt".into(), b"a".into())]), false);
    let (other, app) = (other.unwrap(), w.app.settings.app.id);
    w.hub.install(app, &[other]).unwrap();
    let there = w.hub.open_issue(other, maya, "Months", "As well.").unwrap();
    assert_eq!(there, w.issue, "both have the same number");
    w.settle().await;
    for repo in [w.repo, other] {
        w.hub.label(repo, w.issue, maya, "countersign:lld").unwrap();
    }
    w.hub.wait_for_webhooks().await;
    w.app.intake.drain_inbox().await.unwrap();
    for repo in [w.repo, other] {
        w.repo = repo;
        assert!(w.run().await.is_some(), "both are worked on");
        w.labels();
    }
}
