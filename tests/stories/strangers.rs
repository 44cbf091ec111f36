//! Stories about limits on the effects that strangers can have, and about recovery from outages, crashes and panics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use countersign::{
    clock::Clock,
    engine::{
        ActivePause, AnswerReceipt, CancelRunsRequest, EngineError, EnginePort, GateAnswerOutcome,
        GateAnswerRequest, PauseScope, RetryDecision, RetryRunRequest, RunFilter, RunRemark, RunView,
        RunViewStatus, StartDecision, StartRunRequest,
    },
    intake::{Intake, IntakeOptions},
    localhub::{HubCommentView, HubFault},
    store::{DeliveryDisposition, InboxCounts},
    types::{IssueNo, RunId},
};
use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    script::{Script, design},
    shell::process::PATIENCE,
    world::{Setting, World, world},
};

impl World {
    async fn at_the_gate(setting: Setting) -> Self {
        let mut w = Self::new(setting).await;
        w.comes_to_the_gate().await;
        w
    }

    /// Returns this person's newest comment.
    fn last_comment_of(&self, who: &str) -> HubCommentView {
        self.view().comments.into_iter().rfind(|c| c.author == who).unwrap()
    }

    /// Asserts that this person's newest comment got a thumbs-down reaction and no reply.
    #[track_caller]
    fn assert_only_thumb_down(&self, who: &str, text: &str, said_before: usize) {
        assert_eq!(self.notifying(), said_before, "{text:?} by {who} must get no reply:\n{}", self.thread());
        let reactions = self.last_comment_of(who).reactions;
        assert_eq!(reactions, [("countersign[bot]".to_owned(), "-1".to_owned())], "{text:?} by {who}");
    }

    async fn review(&mut self, who: &str, state: &str, body: &str) {
        let pull: IssueNo = self.hub.pulls(self.repo)[0].number;
        self.hub.review(self.repo, pull, self.user(who), state, body).unwrap();
        self.settle().await;
    }

    async fn inbox(&self) -> InboxCounts {
        self.app.store.inbox().counts().await.unwrap()
    }

    /// Returns the note that the inbox stores with the newest processed comment delivery.
    fn last_note(&self) -> String {
        let database = rusqlite::Connection::open(self.app.settings.data_dir.join("main.db")).unwrap();
        let sql = "SELECT note FROM inbox WHERE event = 'issue_comment' AND note NOT LIKE 'bots%'
                   ORDER BY seq DESC LIMIT 1";
        database.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

#[tokio::test]
async fn command_without_the_required_role_gets_only_a_thumbs_down() {
    let mut w = World::at_the_gate(Setting::default()).await;
    let before = w.notifying();
    let line = w.approve_line();
    for (who, text) in [
        ("stranger", "/aprove"),
        ("stranger", "/countersign frobnicate"),
        ("stranger", "/approve one two three"),
        ("stranger", "/revise"),
        ("stranger", "/override"),
        ("stranger", line.as_str()),
        ("stranger", "/lld"),
        ("stranger", "/aprove\n/approve\n/override me\n/stop"),
        ("tess", "/revise"),
        ("tess", "/approve one two three"),
        ("sam", "/override"),
    ] {
        w.comment(who, text).await;
        w.assert_only_thumb_down(who, text, before);
        w.stands(RunViewStatus::Asking).await;
    }
}

#[tokio::test]
async fn deleted_comment_does_not_delay_later_comments() {
    let mut w = World::at_the_gate(Setting::default()).await;
    let (line, stranger) = (w.approve_line(), w.user("stranger"));
    for text in ["/status", "/approve"] {
        let id = w.hub.comment(w.repo, w.issue, stranger, text).unwrap();
        w.hub.delete_comment(w.repo, id, stranger).unwrap();
    }
    // The clock stands still, so a delivery that was put off would block this one.
    w.comment_at_once("sam", &line).await;
    w.stands(RunViewStatus::Done).await;
    w.find("### Runs on this issue");
}

#[tokio::test]
async fn at_most_five_command_comments_per_user_are_answered_per_minute() {
    let mut w = World::at_the_gate(Setting::default()).await;
    let (stranger, eyes) = (w.user("stranger"), |w: &World, who: &str| {
        w.view().comments.iter().filter(|c| c.author == who && !c.reactions.is_empty()).count()
    });
    let writes = w.hub.writes();
    for _ in 0..20 {
        w.hub.comment(w.repo, w.issue, stranger, "/status\n/help").unwrap();
    }
    w.comment_at_once("tess", "/status").await;
    assert_eq!((eyes(&w, "stranger"), eyes(&w, "tess")), (5, 1), "{}", w.thread());
    assert!(w.newest().contains("### Runs on this issue"));
    let writes = w.hub.writes() - writes;
    assert!(writes <= 12, "one 👀 per answered comment and few comment edits: {writes}");
    w.comment("stranger", "/help").await;
    assert_eq!(eyes(&w, "stranger"), 6, "a minute later one more is answered");
    w.find("### Commands");
}

#[tokio::test]
async fn one_reply_lists_every_invalid_command_of_a_comment() {
    let mut w = World::at_the_gate(Setting::default()).await;
    let before = w.notifying();
    w.comment("sam", "/aprove\n\n/countersign frobnicate\n\n/aprove\n\n/approve one two three\n\n/revise")
        .await;
    assert_eq!(w.notifying(), before + 1, "{}", w.thread());
    let comment = w.newest();
    for text in
        ["Did you mean `/approve`", "no command `/frobnicate`", "was not understood", "command is incomplete"]
    {
        assert_eq!(comment.matches(text).count(), 1, "{text}:\n{comment}");
    }
}

#[tokio::test]
async fn commands_after_the_fifth_in_a_comment_are_ignored() {
    let mut w = World::at_the_gate(Setting::default()).await;
    w.comment("maya", "/status\n\n/status\n\n/help\n\n/help\n\n/status\n\n/stop\n\n/stop").await;
    // the sixth command, /stop, was ignored
    w.stands(RunViewStatus::Asking).await;
    assert!(w.last_note().contains("ignored the commands after the first 5"), "{}", w.last_note());
    w.find("### Commands");
}

#[tokio::test]
async fn replies_to_help_and_status_are_edits_of_one_comment() {
    let mut w = world().await;
    for text in ["/countersign help", "/countersign status", "/help"] {
        w.comment("stranger", text).await;
        assert_eq!(w.notifying(), 0, "the bot is not active on this issue:\n{}", w.thread());
    }
    w.comment("tess", "/countersign help").await;
    let help = w.find("### Commands");
    assert!(
        help.body.contains("A person owns this repository"),
        "maya is a person, not an organization:\n{}",
        help.body
    );
    w.label("maya", "countersign:lld").await;
    let before = w.notifying();
    w.comment("stranger", "/help").await;
    w.comment("stranger", "/status").await;
    let status = w.find("### Runs on this issue");
    assert_eq!(status.id, help.id, "one comment holds all answers");
    w.comment("sam", "/status\n/help").await;
    let both = w.find("### Commands").body;
    assert!(both.contains("### Runs on this issue"), "{both}");
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.notifying(), before);
}

/// Returns a fault that makes permission lookups fail this many times.
fn outage(times: u32) -> HubFault {
    HubFault::Status {
        method: "GET".to_owned(),
        path_contains: "/collaborators/".to_owned(),
        status: 502,
        times,
    }
}

#[tokio::test]
async fn delivery_is_retried_at_long_intervals_until_a_github_outage_of_hours_ends() {
    let mut w = world().await;
    let dead = w.inbox().await.dead;
    w.hub.arm_fault(outage(40));
    w.comment("sam", "/lld").await;
    let began = w.clock.now();
    let calls = w.hub.requests().len();
    for _ in 0..(8 * 60) {
        w.pass(30);
        w.settle().await;
        if w.run().await.is_some() {
            break;
        }
    }
    let lasted = w.clock.now().since(began);
    assert!(w.run().await.is_some(), "the command is processed once GitHub is back");
    assert!(lasted > Duration::from_secs(1800), "forty attempts are spread out: {lasted:?}");
    assert_eq!(w.inbox().await.dead, dead);
    let lookups = w.hub.requests()[calls..].iter().filter(|r| r.path.contains("/collaborators/")).count();
    assert!(lookups <= 42, "{lookups}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn delivery_is_given_up_after_72_hours_and_retried_when_redelivered() {
    let mut w = world().await;
    let dead = w.inbox().await.dead;
    w.hub.arm_fault(outage(u32::MAX));
    w.comment("sam", "/lld").await;
    for hour in 1..=73 {
        w.pass(3600);
        w.settle().await;
        let counts = w.inbox().await;
        assert_eq!(counts.dead > dead, hour >= 72, "after {hour} hours: {counts:?}");
    }
    assert!(w.last_note().contains("failed in transit or inside GitHub"), "{}", w.last_note());
    let sent = w.hub.deliveries();
    let comment = sent.iter().rev().find(|d| d.event == "issue_comment").unwrap();
    w.hub.redeliver(&comment.guid).unwrap();
    w.settle().await;
    let counts = w.inbox().await;
    assert_eq!((counts.new, counts.dead), (1, dead), "a redelivery gets three more days");
}

#[tokio::test]
async fn delivery_that_repeatedly_kills_the_process_is_given_up() {
    let mut w = world().await;
    w.hub.comment(w.repo, w.issue, w.user("maya"), "/lld").unwrap();
    w.hub.wait_for_webhooks().await;
    let dead = w.inbox().await.dead;
    // Being put off does not count as an attempt that died.
    for _ in 0..3 {
        let taken = w.app.store.inbox().claim().await.unwrap().unwrap();
        let now = w.clock.now();
        let later = DeliveryDisposition::PutOff { why: "GitHub is down".to_owned(), at: now, holds: now };
        w.app.store.inbox().record_dispositions(vec![(taken.id, later)]).await.unwrap();
    }
    for attempt in 1..=20 {
        let taken = w.app.store.inbox().claim().await.unwrap().expect("the delivery is retried");
        assert_eq!(taken.attempts, attempt);
        assert!(taken.taken_before, "earlier effects may exist");
        w = w.restart().await;
    }
    w.settle().await;
    assert_eq!(w.inbox().await.dead, dead + 1);
    assert!(w.last_note().starts_with("our fault"), "{}", w.last_note());
    assert!(w.run().await.is_none());
}

/// Engine that forwards all requests to another engine. During the first `times` calls of `list`, it calls `first`
/// before forwarding.
struct InterceptingEngine {
    engine: Arc<dyn EnginePort>,
    list_calls: AtomicUsize,
    times: usize,
    first: Box<dyn Fn() + Send + Sync>,
}

impl EnginePort for InterceptingEngine {
    fn start(&self, start: StartRunRequest) -> BoxFuture<'_, Result<StartDecision<RunView>, EngineError>> {
        self.engine.start(start)
    }

    fn signal(&self, signal: GateAnswerRequest) -> BoxFuture<'_, Result<GateAnswerOutcome, EngineError>> {
        self.engine.signal(signal)
    }

    fn remark(&self, run: RunId, remark: RunRemark) -> BoxFuture<'_, Result<AnswerReceipt, EngineError>> {
        self.engine.remark(run, remark)
    }

    fn cancel(&self, cancel: CancelRunsRequest) -> BoxFuture<'_, Result<Vec<RunId>, EngineError>> {
        self.engine.cancel(cancel)
    }

    fn inspect(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunView>, EngineError>> {
        self.engine.inspect(run)
    }

    fn list(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunView>, EngineError>> {
        if self.list_calls.fetch_add(1, SeqCst) < self.times {
            (self.first)();
        }
        self.engine.list(filter)
    }

    fn retry(&self, retry: RetryRunRequest) -> BoxFuture<'_, Result<RetryDecision<RunView>, EngineError>> {
        self.engine.retry(retry)
    }

    fn pause(&self, scope: PauseScope, by: String, why: String) -> BoxFuture<'_, Result<(), EngineError>> {
        self.engine.pause(scope, by, why)
    }

    fn resume(&self, scope: PauseScope, by: String) -> BoxFuture<'_, Result<bool, EngineError>> {
        self.engine.resume(scope, by)
    }

    fn pauses(&self) -> BoxFuture<'_, Result<Vec<ActivePause>, EngineError>> {
        self.engine.pauses()
    }

    fn step_names(&self, workflow: &str, step: &str) -> Option<(&'static str, &'static str)> {
        self.engine.step_names(workflow, step)
    }

    fn wake_waiting_runs(&self) {
        self.engine.wake_waiting_runs();
    }
}

/// Creates an intake for which two comments are pending. Its engine calls `first` during the first `times` calls of
/// `list`.
async fn intercepted_intake(w: &World, times: usize, first: impl Fn() + Send + Sync + 'static) -> Intake {
    for who in ["maya", "sam"] {
        w.hub.comment(w.repo, w.issue, w.user(who), "/countersign status").unwrap();
    }
    w.hub.wait_for_webhooks().await;
    let engine = InterceptingEngine {
        engine: w.app.engine.clone(),
        list_calls: AtomicUsize::new(0),
        times,
        first: Box::new(first),
    };
    let options = IntakeOptions {
        starts: Vec::new(),
        allow: [w.installation].into(),
        shows_cost_on_public: false,
        people: w.app.settings.people.clone(),
        routes: false,
    };
    let (store, github, clock) = (w.app.store.clone(), w.app.github.clone(), w.clock.clone());
    Intake::new(store, github, Arc::new(engine), clock, options)
}

#[tokio::test]
async fn delivery_that_panics_is_retried_and_blocks_no_other_delivery() {
    let w = world().await;
    let before = w.inbox().await;
    let intake = intercepted_intake(&w, 1, || panic!("a rule was broken")).await;
    // The third is the delivery of our answer to the second.
    assert_eq!(intake.drain_inbox().await.unwrap(), 3, "the other deliveries are processed");
    let after = w.inbox().await;
    assert_eq!((after.done, after.dead, after.new), (before.done + 2, before.dead, before.new + 1));
    w.find("Nothing is running");
    // A delivery that was taken before looks twice for an answer that may exist already.
    for _ in 0..20 {
        w.pass(30);
        intake.drain_inbox().await.unwrap();
        w.hub.wait_for_webhooks().await;
    }
    let after = w.inbox().await;
    assert_eq!((after.dead, after.new), (before.dead, before.new), "{}", w.thread());
    w.newest();
}

#[tokio::test]
async fn delivery_that_always_panics_is_given_up() {
    let w = world().await;
    let before = w.inbox().await;
    let intake = intercepted_intake(&w, usize::MAX, || panic!("a rule was broken")).await;
    for _ in 0..12 {
        intake.drain_inbox().await.unwrap();
        assert_eq!(w.inbox().await.dead, before.dead);
        w.pass(50);
    }
    w.pass(300);
    assert_eq!(intake.drain_inbox().await.unwrap(), 2);
    assert_eq!(w.inbox().await.dead, before.dead + 2);
    let database = rusqlite::Connection::open(w.app.settings.data_dir.join("main.db")).unwrap();
    let why: String =
        database.query_row("SELECT note FROM inbox WHERE state = 'dead'", [], |row| row.get(0)).unwrap();
    assert_eq!(why, "our fault: panicked: a rule was broken");
}

#[tokio::test]
async fn delivery_is_retried_when_its_outcome_cannot_be_stored() {
    let w = world().await;
    let main = w.app.settings.data_dir.join("main.db");
    let rename = move |from: &str, to: &str| {
        let database = rusqlite::Connection::open(&main).unwrap();
        database.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).unwrap();
    };
    let lose = rename.clone();
    let intake = intercepted_intake(&w, 1, move || lose("inbox", "lost")).await;
    assert!(intake.drain_inbox().await.is_err());
    rename("lost", "inbox");
    for _ in 0..2 {
        intake.drain_inbox().await.unwrap();
        w.hub.wait_for_webhooks().await;
        w.pass(10); // a delivery whose lookup failed was put off
    }
    intake.drain_inbox().await.unwrap();
    let counts = w.inbox().await;
    assert_eq!((counts.new, counts.taken, counts.dead), (0, 0, 0));
    w.find("Nothing is running");
}

#[tokio::test]
async fn stopping_server_finishes_the_current_delivery_and_leaves_the_rest_queued() {
    let w = world().await;
    let before = w.inbox().await;
    let stop = CancellationToken::new();
    let stop_signal = stop.clone();
    let intake = intercepted_intake(&w, 1, move || stop_signal.cancel()).await;
    timeout(PATIENCE, intake.run(stop.clone())).await.expect("intake stops");
    let after = w.inbox().await;
    assert_eq!(after.done, before.done + 1, "only the delivery in progress is finished");
    assert!(after.new > 0);
    w.find("Nothing is running");
    timeout(PATIENCE, intake.run(stop)).await.expect("a stopped intake returns at once");
    w.hub.wait_for_webhooks().await;
    assert_eq!(w.inbox().await.done, after.done);
}

/// Sends a request that stops in the middle of its body. Returns the open connection.
async fn half_sent(address: std::net::SocketAddr, headers: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /webhook HTTP/1.1\r\nHost: bot\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n{headers}\r\n{{"
    );
    client.write_all(head.as_bytes()).await.unwrap();
    client
}

fn signed() -> String {
    format!("X-Hub-Signature-256: sha256={}\r\n", "0".repeat(64))
}

async fn status_line(client: &mut TcpStream) -> Option<String> {
    let mut bytes = vec![0; 12];
    timeout(Duration::from_millis(50), client.read_exact(&mut bytes)).await.ok()?.unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn webhook_refuses_an_unsigned_or_too_slow_request_before_its_body_is_complete() {
    let w = world().await;
    let address = w.webhook.socket_addrs(|| None).unwrap()[0];
    for headers in ["", "X-Hub-Signature: sha1=00\r\n", "X-Hub-Signature-256: sha256=00\r\n"] {
        let mut client = half_sent(address, headers).await;
        let mut answer = None;
        for _ in 0..100 {
            if answer.is_none() {
                answer = status_line(&mut client).await;
            }
        }
        assert_eq!(
            answer.as_deref(),
            Some("HTTP/1.1 401"),
            "{headers:?}: refused before the body is complete"
        );
    }
    let mut client = half_sent(address, &signed()).await;
    let mut waited = 0;
    let answer = loop {
        if let Some(answer) = status_line(&mut client).await {
            break answer;
        }
        assert!(waited < 60, "no timeout after 60 s");
        w.pass(5);
        waited += 5;
    };
    assert_eq!(answer, "HTTP/1.1 408");
    assert!(waited >= 15, "a slow connection gets at least 15 s: {waited}");
}

#[tokio::test]
async fn hanging_client_does_not_delay_shutdown() {
    let w = world().await;
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (public, private) = (bind().await.unwrap(), bind().await.unwrap());
    let address = public.local_addr().unwrap();
    let (stop, park) = (CancellationToken::new(), CancellationToken::new());
    let (app, stop_signal) = (w.app.clone(), stop.clone());
    let mut serving = tokio::spawn(async move { app.serve(public, private, stop_signal, park).await });
    let mut client = half_sent(address, &signed()).await;
    assert_eq!(status_line(&mut client).await, None, "the server waits for the body");
    stop.cancel();
    // Ten seconds, less than a body's timeout.
    for _ in 0..10 {
        if let Ok(ended) = timeout(Duration::from_secs(1), &mut serving).await {
            return ended.unwrap().unwrap();
        }
        w.pass(1);
    }
    panic!("the server did not shut down");
}

#[tokio::test]
async fn reviews_sent_with_the_review_buttons_are_answered_like_comments() {
    let mut w = World::at_the_gate(Setting { as_files: true, ..Setting::default() }).await;
    let on_issue = w.notifying();
    w.review("sam", "APPROVED", "").await;
    let comments = w.on_pull();
    assert!(comments.len() == 1 && comments[0].contains("only moments before"), "{comments:?}");
    w.pass(60);
    w.review("stranger", "CHANGES_REQUESTED", " ").await;
    w.review("tess", "CHANGES_REQUESTED", "").await;
    assert_eq!(w.on_pull().len(), 1, "reviews below the required role are not answered");
    w.review("sam", "CHANGES_REQUESTED", " \n").await;
    let comments = w.on_pull();
    assert!(comments.len() == 2 && comments[1].contains("`/revise TEXT`"), "{comments:?}");
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.notifying(), on_issue, "no comment on the issue: {}", w.thread());

    w.review("sam", "APPROVED", "").await;
    w.stands(RunViewStatus::Done).await;
    w.review("max", "APPROVED", "").await;
    assert_eq!(w.on_pull().len(), 2, "reviews after the end are not answered");
}

#[tokio::test]
async fn approve_command_is_refused_with_a_reason_unless_the_verdict_is_approved() {
    let script = Script::default().drafts(&design()).fails("reviewer", "truncated").toml();
    let mut w = World::new(Setting { as_files: true, script: Some(script), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    let why = "`/approve` works only when the verdict is APPROVED.";
    w.comment("max", "/approve").await;
    let comment = w.newest();
    assert!(comment.contains(why) && comment.contains("`/revise TEXT` or `/override REASON`"), "{comment}");
    w.review("max", "APPROVED", "").await;
    let comments = w.on_pull();
    assert!(comments.len() == 1 && comments[0].contains(why), "{comments:?}");
    w.stands(RunViewStatus::Asking).await;
}
