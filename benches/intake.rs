//! Sends signed 12 KB deliveries over HTTP. `serve` commits each delivery to disk before it answers 202; the peer,
//! Probot, only keeps deliveries in memory. Afterwards kills the server under load, and checks that every delivery
//! answered with 202 was stored.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use countersign::{
    clock::SystemClock,
    store::{DeliveryReceipt, DeliverySubject, NewDelivery, Store},
    types::DeliveryId,
};
use serde_json::{Value, json};

use crate::{
    load::{Outcome, Shot, delivery_id, fire},
    measure::{Ms, head, resident, row, say, sized},
    site::{SECRET, Site, block_on, peer},
};

const CONNECTIONS: [usize; 4] = [1, 8, 32, 128];
const WARM_UP: Duration = Duration::from_millis(sized(1000, 10) as u64);
const MEASURED: Duration = Duration::from_millis(sized(5000, 200) as u64);

pub(crate) fn main() {
    block_on(async {
        let site = Site::new("").await;
        let serving = site.serve().await;
        let body = payload(&site).to_string().into_bytes();
        let ours = Shot::new(site.public, "/webhook", SECRET, &body);
        let probot = Probot::start();
        if probot.is_none() {
            say("(no Probot here: benches/README.md says how to install it)");
        }
        say(format_args!("{} bytes a delivery; each side alone, one after the other\n", body.len()));
        head(&[
            "connections",
            "countersign, on disk",
            "p50",
            "p99",
            "refused",
            "dealt with",
            "Probot, in memory",
            "p50",
            "p99",
            "times Probot",
            "p99 to Probot's",
        ]);
        for (number, connections) in (0..).zip(CONNECTIONS) {
            let series = number * 4;
            shoot(site.public, &ours, series, connections, WARM_UP).await;
            let (us, drained) = drained(&site, &ours, series + 1, connections).await;
            let them = match &probot {
                Some(probot) => {
                    let shot = Shot::new(probot.address, "/api/github/webhooks", SECRET, &body);
                    shoot(probot.address, &shot, series + 2, connections, WARM_UP).await;
                    Some(shoot(probot.address, &shot, series + 3, connections, MEASURED).await)
                }
                None => None,
            };
            print(connections, &us, drained, them.as_ref());
        }
        say(format_args!(
            "\nmemory after it: countersign {:.0} MB{}",
            resident(serving.pid()),
            probot
                .as_ref()
                .map_or_else(String::new, |p| format!(", Probot {:.0} MB", resident(p.child.id())))
        ));
        killed(&site, serving, &ours).await;
    });
}

/// Builds an `issues.labeled` delivery of typical size. The label is not one of the bot's labels, so the delivery is
/// processed but starts no run.
fn payload(site: &Site) -> Value {
    let user = json!({ "id": site.maya.0, "login": "maya", "type": "User" });
    let prose = "The export stops at the first row whose amount is empty. ".repeat(190);
    json!({
        "action": "labeled",
        "label": { "id": 1, "name": "bug", "color": "d73a4a", "default": true, "description": "Not working" },
        "issue": {
            "id": 4201, "number": 1, "title": "Export stops early", "state": "open", "locked": false,
            "user": user, "labels": [{ "id": 1, "name": "bug" }], "body": prose,
            "created_at": "2026-01-05T10:00:00Z", "updated_at": "2026-01-05T10:00:00Z",
            "html_url": "http://127.0.0.1/maya/tally/issues/1", "author_association": "OWNER"
        },
        "repository": {
            "id": site.repo.0, "name": "tally", "full_name": "maya/tally", "private": false,
            "default_branch": "main", "owner": user, "html_url": "http://127.0.0.1/maya/tally"
        },
        "installation": { "id": site.installation.0 },
        "sender": user
    })
}

async fn shoot(
    address: SocketAddr,
    shot: &Shot,
    series: u32,
    connections: usize,
    lasting: Duration,
) -> Outcome {
    let shot = shot.clone();
    let firing = tokio::task::spawn_blocking(move || fire(address, &shot, series, connections, lasting));
    firing.await.expect("the generator")
}

/// Sends deliveries and waits until all accepted deliveries are processed. Returns the outcome and the number of
/// deliveries processed per second.
async fn drained(site: &Site, shot: &Shot, series: u32, connections: usize) -> (Outcome, f64) {
    while site.unread().await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let started = Instant::now();
    let outcome = shoot(site.public, shot, series, connections, MEASURED).await;
    while site.unread().await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rate = outcome.accepted as f64 / started.elapsed().as_secs_f64();
    (outcome, rate)
}

fn print(connections: usize, us: &Outcome, drained: f64, them: Option<&Outcome>) {
    let rate = |outcome: &Outcome| format!("{:.0}/s", outcome.rate());
    let peer = |f: &dyn Fn(&Outcome) -> String| them.map_or_else(|| "–".to_owned(), f);
    row(&[
        &connections,
        &rate(us),
        &Ms(us.latency.at(0.5)),
        &Ms(us.latency.at(0.99)),
        &us.refused,
        &format!("{drained:.0}/s"),
        &peer(&rate),
        &peer(&|o| Ms(o.latency.at(0.5)).to_string()),
        &peer(&|o| Ms(o.latency.at(0.99)).to_string()),
        &peer(&|o| format!("{:.2}", us.rate() / o.rate())),
        &peer(&|o| format!("{:.2}", us.latency.at(0.99) / o.latency.at(0.99))),
    ]);
}

/// Kills the server while 32 connections send deliveries. Then submits each acknowledged delivery again: the store
/// reports a duplicate if the delivery was stored before.
async fn killed(site: &Site, serving: crate::site::Serving, shot: &Shot) {
    const SERIES: u32 = 0xdead;
    let (address, shot) = (site.public, shot.clone());
    let firing =
        tokio::task::spawn_blocking(move || fire(address, &shot, SERIES, 32, Duration::from_secs(20)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    serving.kill();
    let outcome = firing.await.expect("the generator");
    let store = Store::open(&site.data(), Arc::new(SystemClock)).expect("the data directory");
    let mut missing = 0;
    for (connection, counts) in outcome.ids.iter().enumerate() {
        for count in counts {
            let id = DeliveryId(delivery_id(SERIES, connection, *count));
            let again = NewDelivery {
                id,
                event: "issues".to_owned(),
                subject: DeliverySubject::default(),
                swept: false,
                body: b"{}".to_vec(),
            };
            if store.inbox().accept_delivery(again).await.expect("the inbox") == DeliveryReceipt::New {
                missing += 1;
            }
        }
    }
    say(format_args!(
        "SIGKILL at 32 connections: {} answered 202, {missing} of them missing",
        outcome.accepted
    ));
    assert_eq!(missing, 0, "an acknowledged delivery was lost");
}

/// Probot as a child process.
struct Probot {
    child: Child,
    address: SocketAddr,
}

impl Probot {
    fn start() -> Option<Self> {
        let directory = peer("probot");
        if !directory.join("node_modules/probot").exists() {
            return None;
        }
        let mut child = Command::new("node")
            .arg("app.mjs")
            .current_dir(directory)
            .env("NODE_ENV", "production")
            .env("WEBHOOK_SECRET", SECRET)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
        let port: u16 = line.trim().parse().ok()?;
        Some(Self { child, address: ([127, 0, 0, 1], port).into() })
    }
}

impl Drop for Probot {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
