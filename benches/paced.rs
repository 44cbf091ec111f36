//! Measures the time from a label to 👀 while other runs are live and writes are paced by GitHub's limits. The bot runs
//! in this process, because `serve` does not pace writes to a GitHub server on this machine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use countersign::{app::Application, clock::SystemClock, github::Pacing, workflows};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    measure::{Ms, Samples, ms, say, sized},
    runs::{ANY_NUMBER, has_eyes, label, line, open, until, view},
    site::{Site, block_on},
};

const LIVE: usize = sized(20, 2);
const LABELLED: usize = sized(12, 1);
/// Pause between two labels. The pause is longer than the pacer needs for the writes at the start of a run.
const BETWEEN: Duration = Duration::from_secs(sized(4, 1) as u64);

pub(crate) fn main() {
    block_on(async {
        let site = Site::new(ANY_NUMBER).await;
        let settings = workflows::load_settings(&site.config()).expect("the settings");
        let app = Application::build_with(settings, Arc::new(SystemClock), Pacing::GitHub, workflows::ALL)
            .await
            .expect("the bot");
        let public = TcpListener::bind(site.public).await.expect("its door");
        let private = TcpListener::bind(site.private).await.expect("its private door");
        let stop = CancellationToken::new();
        let serving = tokio::spawn({
            let stop = stop.clone();
            async move { app.serve(public, private, stop.clone(), stop).await }
        });
        let busy: Vec<_> = (0..LIVE).map(|_| open(&site)).collect();
        let started = Instant::now();
        for issue in &busy {
            label(&site, *issue);
        }
        for issue in &busy {
            until(&site, *issue, started, has_eyes).await;
        }
        say(format_args!("{LIVE} runs begun at once: 👀 on each after {}", Ms(ms(started.elapsed()))));
        let mut eyes = Samples::default();
        for _ in 0..LABELLED {
            tokio::time::sleep(BETWEEN).await;
            let issue = open(&site);
            let labelled = label(&site, issue);
            eyes.add(until(&site, issue, labelled, has_eyes).await);
        }
        let live = busy.iter().filter(|issue| line(&view(&site, **issue)).is_none()).count();
        let eyes = eyes.sorted();
        say(format_args!(
            "label → 👀 beside them, {LABELLED} times: p50 {}, p95 {}; {live} of them were still on their way after the \
             last",
            Ms(eyes.at(0.5)),
            Ms(eyes.at(0.95))
        ));
        stop.cancel();
        serving.await.expect("the bot").expect("its doors");
    });
}
