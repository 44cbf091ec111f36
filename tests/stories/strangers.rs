//! What the public can make the bot do, which is little; and what a bad day of GitHub's or of ours loses, which
//! is nothing.

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

    /// The newest comment of this person.
    fn last_of(&self, who: &str) -> HubCommentView {
        self.view().comments.into_iter().rfind(|c| c.author == who).unwrap()
    }

    /// One thumb down and not a word.
    #[track_caller]
    fn shown_the_thumb(&self, who: &str, text: &str, said_before: usize) {
        assert_eq!(self.notifying(), said_before, "{text:?} by {who} is mail to nobody:\n{}", self.thread());
        let reactions = self.last_of(who).reactions;
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

    /// The note beside the delivery that ended last.
    fn last_note(&self) -> String {
        let database = rusqlite::Connection::open(self.app.settings.data_dir.join("main.db")).unwrap();
        let sql = "SELECT note FROM inbox WHERE event = 'issue_comment' AND note NOT LIKE 'a bot%'
                   ORDER BY seq DESC LIMIT 1";
        database.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

#[tokio::test]
async fn below_a_commands_role_there_is_a_thumb_and_no_prose() {
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
        w.shown_the_thumb(who, text, before);
        w.stands(RunViewStatus::Asking).await;
    }
}

#[tokio::test]
async fn a_comment_that_is_deleted_at_once_holds_nobody_up() {
    let mut w = World::at_the_gate(Setting::default()).await;
    let (line, stranger) = (w.approve_line(), w.user("stranger"));
    for text in ["/status", "/approve"] {
        let id = w.hub.comment(w.repo, w.issue, stranger, text).unwrap();
        w.hub.delete_comment(w.repo, id, stranger).unwrap();
    }
    // The clock stands: nothing was put off that this would have to wait for.
    w.comment_at_once("sam", &line).await;
    w.stands(RunViewStatus::Done).await;
    w.find("### Runs on this issue");
}

#[tokio::test]
async fn nobody_asks_for_more_than_a_few_answers_a_minute() {
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
    assert!(writes <= 12, "an answer for each, and a 👀: {writes}");
    w.comment("stranger", "/help").await;
    assert_eq!(eyes(&w, "stranger"), 6, "a minute later there is another");
    w.find("### Commands");
}

#[tokio::test]
async fn all_mistakes_of_a_comment_are_answered_in_one() {
    let mut w = World::at_the_gate(Setting::default()).await;
    let before = w.notifying();
    w.comment("sam", "/aprove\n\n/countersign frobnicate\n\n/aprove\n\n/approve one two three\n\n/revise")
        .await;
    assert_eq!(w.notifying(), before + 1, "{}", w.thread());
    let said = w.newest();
    for text in ["Did you mean `/approve`", "no `/frobnicate`", "was not understood", "what should change"] {
        assert_eq!(said.matches(text).count(), 1, "{text}:\n{said}");
    }
}

#[tokio::test]
async fn only_the_first_five_commands_of_a_comment_are_obeyed() {
    let mut w = World::at_the_gate(Setting::default()).await;
    w.comment("maya", "/status\n\n/status\n\n/help\n\n/help\n\n/status\n\n/stop\n\n/stop").await;
    // the sixth was not heard
    w.stands(RunViewStatus::Asking).await;
    assert!(w.last_note().contains("more than 5 commands"), "{}", w.last_note());
    w.find("### Commands");
}

#[tokio::test]
async fn help_and_status_are_one_comment_and_only_where_we_are_at_work() {
    let mut w = world().await;
    for text in ["/countersign help", "/countersign status", "/help"] {
        w.comment("stranger", text).await;
        assert_eq!(w.notifying(), 0, "nothing of ours is here:\n{}", w.thread());
    }
    w.comment("tess", "/countersign help").await;
    let help = w.find("### Commands");
    assert!(help.body.contains("belongs to a person"), "maya is no organization:\n{}", help.body);
    w.label("maya", "countersign:lld").await;
    let before = w.notifying();
    w.comment("stranger", "/help").await;
    w.comment("stranger", "/status").await;
    let status = w.find("### Runs on this issue");
    assert_eq!(status.id, help.id, "one comment has all answers");
    w.comment("sam", "/status\n/help").await;
    let both = w.find("### Commands").body;
    assert!(both.contains("### Runs on this issue"), "{both}");
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.notifying(), before);
}

/// GitHub does not tell who may do what.
fn outage(times: u32) -> HubFault {
    HubFault::Status {
        method: "GET".to_owned(),
        path_contains: "/collaborators/".to_owned(),
        status: 502,
        times,
    }
}

#[tokio::test]
async fn an_outage_of_hours_loses_nothing_and_is_not_hammered() {
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
    assert!(w.run().await.is_some(), "it is heard when GitHub is back");
    assert!(lasted > Duration::from_secs(1800), "forty tries are spread over hours: {lasted:?}");
    assert_eq!(w.inbox().await.dead, dead);
    let asked = w.hub.requests()[calls..].iter().filter(|r| r.path.contains("/collaborators/")).count();
    assert!(asked <= 42, "{asked}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_delivery_is_given_up_by_its_age_and_begins_anew_when_sent_again() {
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
    assert!(w.last_note().contains("GitHub could not be reached"), "{}", w.last_note());
    let sent = w.hub.deliveries();
    let comment = sent.iter().rev().find(|d| d.event == "issue_comment").unwrap();
    w.hub.redeliver(&comment.guid).unwrap();
    w.settle().await;
    let counts = w.inbox().await;
    assert_eq!((counts.new, counts.dead), (1, dead), "it has its three days again");
}

#[tokio::test]
async fn a_delivery_that_the_process_dies_of_each_time_is_given_up() {
    let mut w = world().await;
    w.hub.comment(w.repo, w.issue, w.user("maya"), "/lld").unwrap();
    w.hub.wait_for_webhooks().await;
    let dead = w.inbox().await.dead;
    // Put off in between it is alive, however often that is.
    for _ in 0..3 {
        let taken = w.app.store.inbox().claim().await.unwrap().unwrap();
        let now = w.clock.now();
        let later = DeliveryDisposition::PutOff { why: "GitHub is down".to_owned(), at: now, holds: now };
        w.app.store.inbox().record_dispositions(vec![(taken.id, later)]).await.unwrap();
    }
    for attempt in 1..=20 {
        let taken = w.app.store.inbox().claim().await.unwrap().expect("it is tried again");
        assert_eq!(taken.attempts, attempt);
        assert!(taken.taken_before, "something of it may be there");
        w = w.restart().await;
    }
    w.settle().await;
    assert_eq!(w.inbox().await.dead, dead + 1);
    assert!(w.last_note().starts_with("our own fault"), "{}", w.last_note());
    assert!(w.run().await.is_none());
}

/// An engine that does something of its own the first times it is asked what runs.
struct Startling {
    engine: Arc<dyn EnginePort>,
    asked: AtomicUsize,
    times: usize,
    first: Box<dyn Fn() + Send + Sync>,
}

impl EnginePort for Startling {
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
        if self.asked.fetch_add(1, SeqCst) < self.times {
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

/// The world's intake, with an engine that is startled so many times; two comments wait for it.
async fn startled(w: &World, times: usize, first: impl Fn() + Send + Sync + 'static) -> Intake {
    for who in ["maya", "sam"] {
        w.hub.comment(w.repo, w.issue, w.user(who), "/countersign status").unwrap();
    }
    w.hub.wait_for_webhooks().await;
    let engine =
        Startling { engine: w.app.engine.clone(), asked: AtomicUsize::new(0), times, first: Box::new(first) };
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
async fn a_delivery_that_panics_is_tried_again_and_holds_no_other_up() {
    let w = world().await;
    let before = w.inbox().await;
    let intake = startled(&w, 1, || panic!("a rule was broken")).await;
    // The third is our own answer to the second, come back as a delivery.
    assert_eq!(intake.drain_inbox().await.unwrap(), 3, "the others are dealt with all the same");
    let after = w.inbox().await;
    assert_eq!((after.done, after.dead, after.new), (before.done + 2, before.dead, before.new + 1));
    w.find("Nothing is running");
    // One that was taken before looks twice for the answer that may be there already.
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
async fn a_delivery_that_always_panics_is_given_up() {
    let w = world().await;
    let before = w.inbox().await;
    let intake = startled(&w, usize::MAX, || panic!("a rule was broken")).await;
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
    assert_eq!(why, "our own fault: panicked: a rule was broken");
}

#[tokio::test]
async fn what_could_not_be_written_down_is_not_stuck_until_the_next_boot() {
    let w = world().await;
    let main = w.app.settings.data_dir.join("main.db");
    let rename = move |from: &str, to: &str| {
        let database = rusqlite::Connection::open(&main).unwrap();
        database.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).unwrap();
    };
    let lose = rename.clone();
    let intake = startled(&w, 1, move || lose("inbox", "lost")).await;
    assert!(intake.drain_inbox().await.is_err());
    rename("lost", "inbox");
    for _ in 0..2 {
        intake.drain_inbox().await.unwrap();
        w.hub.wait_for_webhooks().await;
        w.pass(10); // what could not be looked up either was put off
    }
    intake.drain_inbox().await.unwrap();
    let counts = w.inbox().await;
    assert_eq!((counts.new, counts.taken, counts.dead), (0, 0, 0));
    w.find("Nothing is running");
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_leaves_the_backlog_to_the_next() {
    let w = world().await;
    let before = w.inbox().await;
    let stop = CancellationToken::new();
    let told = stop.clone();
    let intake = startled(&w, 1, move || told.cancel()).await;
    timeout(PATIENCE, intake.run(stop.clone())).await.expect("it ends");
    let after = w.inbox().await;
    assert_eq!(after.done, before.done + 1, "what it had begun is done, no more");
    assert!(after.new > 0);
    w.find("Nothing is running");
    timeout(PATIENCE, intake.run(stop)).await.expect("it does not begin");
    w.hub.wait_for_webhooks().await;
    assert_eq!(w.inbox().await.done, after.done);
}

/// A request that stops in the middle of its body.
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
async fn the_door_waits_for_no_body_it_would_refuse_and_for_none_too_long() {
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
        assert_eq!(answer.as_deref(), Some("HTTP/1.1 401"), "{headers:?}: without the rest of the body");
    }
    let mut client = half_sent(address, &signed()).await;
    let mut waited = 0;
    let answer = loop {
        if let Some(answer) = status_line(&mut client).await {
            break answer;
        }
        assert!(waited < 60, "it waits for ever");
        w.pass(5);
        waited += 5;
    };
    assert_eq!(answer, "HTTP/1.1 408");
    assert!(waited >= 15, "a slow line has its time: {waited}");
}

#[tokio::test]
async fn a_client_that_hangs_does_not_keep_the_server_up() {
    let w = world().await;
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (public, private) = (bind().await.unwrap(), bind().await.unwrap());
    let address = public.local_addr().unwrap();
    let (stop, park) = (CancellationToken::new(), CancellationToken::new());
    let (app, told) = (w.app.clone(), stop.clone());
    let mut serving = tokio::spawn(async move { app.serve(public, private, told, park).await });
    let mut client = half_sent(address, &signed()).await;
    assert_eq!(status_line(&mut client).await, None, "it waits for the body");
    stop.cancel();
    // Less than the time that a body has.
    for _ in 0..10 {
        if let Ok(ended) = timeout(Duration::from_secs(1), &mut serving).await {
            return ended.unwrap().unwrap();
        }
        w.pass(1);
    }
    panic!("it does not end");
}

#[tokio::test]
async fn githubs_review_buttons_are_answered_like_comments() {
    let mut w = World::at_the_gate(Setting { as_files: true, ..Setting::default() }).await;
    let on_issue = w.notifying();
    w.review("sam", "APPROVED", "").await;
    let said = w.on_pull();
    assert!(said.len() == 1 && said[0].contains("only moments before"), "{said:?}");
    w.pass(60);
    w.review("stranger", "CHANGES_REQUESTED", " ").await;
    w.review("tess", "CHANGES_REQUESTED", "").await;
    assert_eq!(w.on_pull().len(), 1, "who may not is not answered");
    w.review("sam", "CHANGES_REQUESTED", " \n").await;
    let said = w.on_pull();
    assert!(said.len() == 2 && said[1].contains("`/revise TEXT`"), "{said:?}");
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.notifying(), on_issue, "nothing went round: {}", w.thread());

    w.review("sam", "APPROVED", "").await;
    w.stands(RunViewStatus::Done).await;
    w.review("max", "APPROVED", "").await;
    assert_eq!(w.on_pull().len(), 2, "reviews go on without us");
}

#[tokio::test]
async fn an_approval_of_what_the_review_did_not_approve_is_told_why_not() {
    let script = Script::default().drafts(&design()).fails("reviewer", "truncated").toml();
    let mut w = World::new(Setting { as_files: true, script: Some(script), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    let why = "`/approve` passes only what the review approved, and it did not approve this.";
    w.comment("max", "/approve").await;
    let said = w.newest();
    assert!(said.contains(why) && said.contains("`/revise TEXT` or `/override REASON`"), "{said}");
    w.review("max", "APPROVED", "").await;
    let said = w.on_pull();
    assert!(said.len() == 1 && said[0].contains(why), "{said:?}");
    w.stands(RunViewStatus::Asking).await;
}
