//! The real program, killed outright at random times, again and again; GitHub goes on meanwhile.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use countersign::{
    clock::{Clock, SystemClock},
    localhub::{Hub, HubOptions},
};
use rustix::process::Signal;
use secrecy::SecretString;
use serde_json::Value;
use tempfile::TempDir;
use url::Url;

use crate::{
    matrix::{self, Books, redeliver},
    models::{Models, READ},
    process::{PATIENCE, Running, countersign, free_address},
    random::Random,
    scenarios::{self, Scenario, Thread, Turn},
    seen::seen,
    world::{Known, SECRET, World, without_toys},
};

/// From its start to its death. A boot takes a part of the shortest, a whole design several of the longest.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(900);

/// A model's answer takes long enough to be killed in the middle of, now and then.
const THINKING: Duration = Duration::from_millis(80);

/// Kills in one run of a scenario; then it may go on to its end.
const KILLS_A_STORY: usize = 10;

/// A hub here, and the bot as a process that knows it by HTTP alone.
struct Site {
    directory: TempDir,
    hub: Hub,
    known: Known,
    webhook: Url,
    /// Deliveries from before the program's first start.
    before: usize,
}

impl Site {
    async fn open(models: &Models, key: &str) -> Self {
        let world = matrix::world(models, key).await;
        let (known, address) = (world.known(), world.hub.base_url().to_string());
        let directory = world.leave().await;
        let options = HubOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            data: directory.path().join("hub"),
            now: Arc::new(|| SystemClock.now()),
            keeps: true,
        };
        let hub = Hub::start(options).await.unwrap();
        let door = free_address();
        let webhook: Url = format!("http://{door}/webhook").parse().unwrap();
        hub.set_webhook(known.app, Some(webhook.clone()), &SecretString::from(SECRET)).unwrap();
        let config = directory.path().join("bot/countersign.toml");
        let text = without_toys(fs::read_to_string(&config).unwrap());
        let text = text.replace(&address, hub.base_url().as_str());
        let server = format!("[server]\nlisten = \"{door}\"\nprivate_listen = \"{}\"\n", free_address());
        fs::write(&config, format!("{text}{server}")).unwrap();
        let before = hub.deliveries().len();
        Self { directory, hub, known, webhook, before }
    }

    fn serve(&self) -> Running {
        let config = self.directory.path().join("bot/countersign.toml");
        Running::start(&mut countersign(&["serve", "--config", config.to_str().unwrap()]))
    }

    fn listens(&self) -> bool {
        let address = self.webhook.socket_addrs(|| None).unwrap();
        TcpStream::connect(address.as_slice()).is_ok()
    }

    /// People and GitHub while one process of the bot lives; true when the story is at its end.
    async fn life(&self, scenario: &Scenario, until: Option<Duration>) -> bool {
        let mut bot = self.serve();
        let born = Instant::now();
        let thread = Thread { hub: &self.hub, repo: self.known.repo, issue: self.known.issue };
        let over = loop {
            if until.is_some_and(|until| born.elapsed() >= until) {
                break false;
            }
            if bot.child.try_wait().unwrap().is_some() {
                // While it was down a connection of somebody's may have been given its port.
                let (_, said) = std::mem::replace(&mut bot, self.serve()).end();
                assert!(said.contains("in use"), "it ended by itself:\n{said}");
            }
            if self.listens() {
                redeliver(&self.hub);
            }
            match scenario.turn(&thread) {
                Turn::Person(act) => (act.act)(&thread),
                Turn::Over if thread.view().comments.iter().any(|c| c.body.contains(scenario.end)) => {
                    break true;
                }
                _ => {}
            }
            assert!(born.elapsed() < PATIENCE, "it comes to no end: {:#?}", thread.view().comments);
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        bot.signal(Signal::KILL);
        bot.child.wait().unwrap();
        self.nothing_acknowledged_is_missing();
        over
    }

    /// Every delivery that was answered 202 is in the inbox, as a kill left it. What came before, by a clock of long
    /// ago, is old enough to be forgotten.
    fn nothing_acknowledged_is_missing(&self) {
        let data = self.directory.path().join("bot/data");
        let copy = tempfile::tempdir().unwrap();
        for file in ["main.db", "main.db-wal"].into_iter().filter(|file| data.join(file).exists()) {
            fs::copy(data.join(file), copy.path().join(file)).unwrap();
        }
        let database = rusqlite::Connection::open(copy.path().join("main.db")).unwrap();
        let stored: BTreeSet<String> = database
            .prepare("SELECT id FROM inbox")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        for delivery in self.hub.deliveries().iter().skip(self.before).filter(|d| d.status == Some(202)) {
            assert!(stored.contains(&delivery.guid), "{delivery:?} was acknowledged and is not in the inbox");
        }
    }
}

#[test]
fn killed_at_random_the_last_boot_ends_it_as_if_nothing_had_happened() {
    let wanted: usize = if crate::world::all() { 20 } else { 4 };
    let mut random = Random::seeded("kills");
    let begun = Instant::now();
    let (mut kills, mut stories, mut lost_calls) = (0, 0, 0);
    let models = Models::start(THINKING);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut baselines = Vec::new();
        for scenario in scenarios::ALL.iter().take(wanted.div_ceil(KILLS_A_STORY)) {
            let key = format!("calm-{}", baselines.len());
            let world = matrix::world(&models, &key).await;
            baselines.push(matrix::baseline(world, scenario, (&models, &key), |_| ()).await);
        }
        while kills < wanted {
            let (scenario, baseline) =
                (&scenarios::ALL[stories % baselines.len()], &baselines[stories % baselines.len()]);
            let key = format!("killed-{stories}");
            let site = Site::open(&models, &key).await;
            let mut here = 0;
            loop {
                let last = here == KILLS_A_STORY || kills == wanted;
                let until = (!last).then(|| random.between(SHORTEST, LONGEST));
                if site.life(scenario, until).await {
                    break;
                }
                (here, kills) = (here + 1, kills + 1);
            }
            let Site { directory, hub, known, .. } = site;
            let address = hub.base_url().to_string();
            hub.stop().await;
            let mut w = World::go_on(directory, known, SystemClock.now()).await;
            matrix::played_on(&mut w, scenario).await;
            let (books, asked) = (Books::of(&w).await, models.calls(w.directory(), &key));
            let lost = books.lost;
            assert!(lost <= here + 1, "{here} kills lost {lost} calls");
            // A call is settled in one commit with its answer, so nothing is known of one that was lost.
            assert_eq!(books.differ(asked, READ * books.settled as u64), None);
            let difference = baseline.differs(&seen(&w, &[address]).await, asked, lost);
            assert!(difference.is_none(), "{}, after {here} kills:\n{}", scenario.name, difference.unwrap());
            (stories, lost_calls) = (stories + 1, lost_calls + lost);
        }
    });
    crate::say(&format!(
        "{kills} kills of the program in {stories} stories, {lost_calls} calls lost, {} s",
        begun.elapsed().as_secs()
    ));
}

/// The drafter and a program it started in a session of its own, while the server is killed and another comes.
#[test]
fn what_a_killed_server_had_started_ends_with_the_next_and_nobody_else() {
    let models = Models::hanging();
    matrix::runtime().block_on(async {
        let site = Site::open(&models, "orphans").await;
        let data = site.directory.path().join("bot/data");
        let mut bot = site.serve();
        let begun = Instant::now();
        let thread = Thread { hub: &site.hub, repo: site.known.repo, issue: site.known.issue };
        let running = loop {
            if site.listens() {
                redeliver(&site.hub);
            }
            if let Turn::Person(act) = scenarios::ALL[0].turn(&thread) {
                (act.act)(&thread);
            }
            let noted = fs::read_to_string(data.join("claude/running")).unwrap_or_default();
            if let [leader, grandchild, home] = *noted.lines().collect::<Vec<_>>() {
                break [leader, grandchild, home].map(str::to_owned);
            }
            assert!(begun.elapsed() < PATIENCE, "nothing was started");
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        bot.signal(Signal::KILL);
        bot.child.wait().unwrap();
        let [leader, grandchild, home] = running;
        assert!(alive(&leader) && alive(&grandchild) && Path::new(&home).exists());
        // Somebody who has the number of another child now.
        let mut stranger = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        let records = data.join("children");
        let record = fs::read_dir(&records).unwrap().next().unwrap().unwrap().path();
        let mut written: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        (written["pid"], written["mark"]) = (stranger.id().into(), "of somebody else".into());
        written["scratch"] = Value::Null;
        let old = records.join("old.json");
        fs::write(&old, written.to_string()).unwrap();

        let mut next = site.serve();
        next.hear("ended what a crashed server had left running");
        // A record goes when all that it tells of is gone.
        while !site.listens() || record.exists() || old.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(!alive(&leader) && !alive(&grandchild) && !Path::new(&home).exists());
        assert!(alive(&stranger.id().to_string()));
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        next.signal(Signal::TERM);
        next.signal(Signal::TERM);
        next.end();
    });
}

/// Is it there, and not merely waiting to be collected?
fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}
