//! Writes at the pace that GitHub asks for: who goes first, and who keeps nobody waiting.

use std::{sync::Arc, time::Duration};

use countersign::{
    clock::Clock,
    engine::RunViewStatus,
    localhub::{HubCommentView, HubFault, HubRequestView},
    types::{IssueNo, Timestamp},
};
use tokio_util::sync::CancellationToken;

use crate::world::{Setting, World};

/// Seconds by our clock after which a story gives up.
const PATIENCE: u64 = 3600;

impl World {
    async fn paced() -> Self {
        Self::new(Setting { paced: true, ..Setting::default() }).await
    }

    /// The bot works as it does under `serve`, until this is cancelled.
    fn at_work(&self) -> CancellationToken {
        let (app, stop) = (Arc::clone(&self.app), CancellationToken::new());
        let stopped = stop.clone();
        tokio::spawn(async move { tokio::join!(app.intake.run(stopped.clone()), app.engine.run(stopped)) });
        stop
    }

    /// A fifth of a second passes, once a request and a read were answered: so the clock goes no faster than the
    /// work beside it, however slow the machine is.
    async fn moment(&self, client: &reqwest::Client) {
        client.get(self.hub.api_url()).send().await.unwrap();
        self.app.store.inbox().counts().await.unwrap();
        self.clock.pass(Duration::from_millis(200));
    }

    /// What comes after the label is written as well.
    async fn finish(&self, client: &reqwest::Client, stop: CancellationToken) {
        for _ in 0..300 {
            self.moment(client).await;
        }
        stop.cancel();
    }

    fn requests(&self, method: &str, end: &str) -> usize {
        let meant = |r: &&HubRequestView| r.method == method && r.path.ends_with(end);
        self.hub.requests().iter().filter(meant).count()
    }

    fn is_done(&self, issue: IssueNo) -> bool {
        self.hub.issue(self.repo, issue).unwrap().labels.contains(&"countersign:done".to_owned())
    }

    /// The line that approves, and since when it can be read.
    fn gate_of(&self, issue: IssueNo) -> Option<(String, Timestamp)> {
        let view = self.hub.issue(self.repo, issue)?;
        view.comments.iter().find_map(|comment| {
            let mut lines = comment.body.lines().map(|line| line.trim().trim_matches('`'));
            Some((lines.find(|line| line.starts_with("/approve lld "))?.to_owned(), comment.created_at))
        })
    }
}

/// Eight issues are labelled at once, and each is approved so long after its gate can be read.
async fn eight_at_once(approved_after: Duration) {
    let mut w = World::paced().await;
    // Five at once and one a second after that is what the bot may do at most.
    w.hub.arm_fault(HubFault::FastWrites { most: 16, within: Duration::from_secs(10), lately: Vec::new() });
    let (maya, sam, text) = (w.user("maya"), w.user("sam"), w.view());
    let issues: Vec<IssueNo> =
        (0..8).map(|_| w.hub.open_issue(w.repo, maya, &text.title, &text.body).unwrap()).collect();
    let (client, stop, began) = (reqwest::Client::new(), w.at_work(), w.clock.now());
    for issue in &issues {
        w.hub.label(w.repo, *issue, maya, "countersign:lld").unwrap();
    }
    let mut waiting = issues.clone();
    let done = || issues.iter().filter(|issue| w.is_done(**issue)).count();
    let passed = || w.clock.now().since(began).as_secs();
    while done() < issues.len() && passed() < PATIENCE {
        waiting.retain(|issue| match w.gate_of(*issue) {
            Some((line, shown)) if w.clock.now().since(shown) >= approved_after => {
                w.hub.comment(w.repo, *issue, sam, &line).unwrap();
                false
            }
            _ => true,
        });
        w.moment(&client).await;
    }
    w.finish(&client, stop).await;
    let (reactions, writes) = (w.requests("POST", "/reactions"), w.hub.writes());
    // Whoever may do what is asked once for each time a delivery is taken.
    let put_off = w.requests("GET", "/permission") - 2 * issues.len();
    let figures = format!(
        "approved {approved_after:?} after: {} done after {} s, {reactions} reactions, {writes} writes, {put_off} put off",
        done(),
        passed()
    );
    assert_eq!((done(), reactions), (8, 16), "one 👀 a delivery: {figures}");
    // An approval waits two seconds for its gate, which opens a write after its line can be read; on a busy machine the clock
    // runs ahead of the bot, and it waits a few more.
    assert!(put_off <= 5 * issues.len(), "{figures}");
    let too_fast = |r: &HubRequestView| r.method != "GET" && r.status == 403;
    assert!(!w.hub.requests().iter().any(too_fast), "{figures}");
    for issue in issues {
        w.issue = issue;
        w.stands(RunViewStatus::Done).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn eight_at_once_are_all_done_however_quick_the_approvals() {
    let after: &[u64] = if crate::world::all() { &[1, 10, 60] } else { &[1] };
    for &seconds in after {
        eight_at_once(Duration::from_secs(seconds)).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn sixty_refusals_keep_nobody_waiting() {
    let w = World::paced().await;
    let (client, stop) = (reqwest::Client::new(), w.at_work());
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    let quiet = w.clock.now().plus(Duration::from_secs(60));
    while w.gate_of(w.issue).is_none() || w.clock.now() < quiet {
        w.moment(&client).await;
    }
    for _ in 0..60 {
        w.hub.comment(w.repo, w.issue, w.user("stranger"), "/approve").unwrap();
    }
    let (line, said) = (w.gate_of(w.issue).unwrap().0, w.clock.now());
    w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
    while !w.is_done(w.issue) && w.clock.now().since(said).as_secs() < PATIENCE {
        w.moment(&client).await;
    }
    w.finish(&client, stop).await;
    w.stands(RunViewStatus::Done).await;
    let shown = |c: &&HubCommentView| c.author == "stranger" && !c.reactions.is_empty();
    let thumbs = w.view().comments.iter().filter(shown).count();
    // A write is a second of everybody's.
    assert!(w.is_done(w.issue) && (1..=5).contains(&thumbs), "{thumbs} thumbs:\n{}", w.thread());
}
