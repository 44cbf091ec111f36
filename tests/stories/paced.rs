//! Stories about the pacing of writes, with concurrent runs and refused requests under GitHub's write limits.

use std::{sync::Arc, time::Duration};

use countersign::{
    clock::Clock,
    engine::RunViewStatus,
    localhub::{HubCommentView, HubFault, HubRequestView},
    types::{IssueNo, Timestamp},
};
use tokio_util::sync::CancellationToken;

use crate::world::{Setting, World};

/// Time on the test clock after which a test gives up, in seconds.
const PATIENCE: u64 = 3600;

impl World {
    async fn paced() -> Self {
        Self::new(Setting { paced: true, ..Setting::default() }).await
    }

    /// Starts the intake and the engine like `serve` does. Both stop when the returned token is cancelled.
    fn start_bot(&self) -> CancellationToken {
        let (app, stop) = (Arc::clone(&self.app), CancellationToken::new());
        let stopped = stop.clone();
        tokio::spawn(async move { tokio::join!(app.intake.run(stopped.clone()), app.engine.run(stopped)) });
        stop
    }

    /// Makes a request and a database read, then advances the clock by 200 ms. The request and the read keep the clock
    /// from running ahead of a slow bot.
    async fn advance_slowly(&self, client: &reqwest::Client) {
        client.get(self.hub.api_url()).send().await.unwrap();
        self.app.store.inbox().counts().await.unwrap();
        self.clock.pass(Duration::from_millis(200));
    }

    /// Lets the writes after the last label finish, then stops the bot.
    async fn finish_writes(&self, client: &reqwest::Client, stop: CancellationToken) {
        for _ in 0..300 {
            self.advance_slowly(client).await;
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

    /// Returns the gate's approve command and the time at which the gate was posted; `None` if no gate was posted.
    fn gate_line(&self, issue: IssueNo) -> Option<(String, Timestamp)> {
        let view = self.hub.issue(self.repo, issue)?;
        view.comments.iter().find_map(|comment| {
            let mut lines = comment.body.lines().map(|line| line.trim().trim_matches('`'));
            Some((lines.find(|line| line.starts_with("/approve lld "))?.to_owned(), comment.created_at))
        })
    }
}

/// Labels eight issues at once. Approves each issue once `approved_after` has passed since its gate was posted.
async fn run_eight_issues(approved_after: Duration) {
    let mut w = World::paced().await;
    // The bot may write five at once and then one per second, so at most 15 in 10 seconds.
    w.hub.arm_fault(HubFault::FastWrites { most: 16, within: Duration::from_secs(10), lately: Vec::new() });
    let (maya, sam, text) = (w.user("maya"), w.user("sam"), w.view());
    let issues: Vec<IssueNo> =
        (0..8).map(|_| w.hub.open_issue(w.repo, maya, &text.title, &text.body).unwrap()).collect();
    let (client, stop, began) = (reqwest::Client::new(), w.start_bot(), w.clock.now());
    for issue in &issues {
        w.hub.label(w.repo, *issue, maya, "countersign:lld").unwrap();
    }
    let mut waiting = issues.clone();
    let done = || issues.iter().filter(|issue| w.is_done(**issue)).count();
    let passed = || w.clock.now().since(began).as_secs();
    while done() < issues.len() && passed() < PATIENCE {
        waiting.retain(|issue| match w.gate_line(*issue) {
            Some((line, shown)) if w.clock.now().since(shown) >= approved_after => {
                w.hub.comment(w.repo, *issue, sam, &line).unwrap();
                false
            }
            _ => true,
        });
        w.advance_slowly(&client).await;
    }
    w.finish_writes(&client, stop).await;
    let (reactions, writes) = (w.requests("POST", "/reactions"), w.hub.writes());
    // Each attempt at a delivery looks up one permission.
    let put_off = w.requests("GET", "/permission") - 2 * issues.len();
    let figures = format!(
        "approved {approved_after:?} after: {} done after {} s, {reactions} reactions, {writes} writes, {put_off} put off",
        done(),
        passed()
    );
    assert_eq!((done(), reactions), (8, 16), "one 👀 per delivery: {figures}");
    // The gate opens one write after its line is posted, so an approval is put off for two seconds. On a busy
    // machine the clock runs ahead of the bot, and the approval is put off a few times more.
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
async fn eight_concurrent_runs_finish_with_approval_delays_of_up_to_a_minute() {
    let after: &[u64] = if crate::world::all() { &[1, 10, 60] } else { &[1] };
    for &seconds in after {
        run_eight_issues(Duration::from_secs(seconds)).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn sixty_refused_approvals_do_not_delay_a_run() {
    let w = World::paced().await;
    let (client, stop) = (reqwest::Client::new(), w.start_bot());
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    let quiet = w.clock.now().plus(Duration::from_secs(60));
    while w.gate_line(w.issue).is_none() || w.clock.now() < quiet {
        w.advance_slowly(&client).await;
    }
    for _ in 0..60 {
        w.hub.comment(w.repo, w.issue, w.user("stranger"), "/approve").unwrap();
    }
    let (line, approved_at) = (w.gate_line(w.issue).unwrap().0, w.clock.now());
    w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
    while !w.is_done(w.issue) && w.clock.now().since(approved_at).as_secs() < PATIENCE {
        w.advance_slowly(&client).await;
    }
    w.finish_writes(&client, stop).await;
    w.stands(RunViewStatus::Done).await;
    let shown = |c: &&HubCommentView| c.author == "stranger" && !c.reactions.is_empty();
    let thumbs = w.view().comments.iter().filter(shown).count();
    // Each reaction costs one second of the shared write budget, so only a few are sent.
    assert!(w.is_done(w.issue) && (1..=5).contains(&thumbs), "{thumbs} thumbs:\n{}", w.thread());
}
