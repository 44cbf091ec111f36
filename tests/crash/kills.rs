//! Kills the server process at random times, again and again, while GitHub and people continue.

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
    matrix::{self, LedgerTotals, redeliver},
    models::{Models, READ},
    process::{PATIENCE, Running, countersign, free_address},
    random::Random,
    scenarios::{self, Scenario, Thread, Turn},
    seen::seen,
    world::{Known, SECRET, World, without_toys},
};

/// Minimum time that a server runs before it is killed. It is long enough for the server to start. The maximum is
/// `LONGEST`; a complete design takes several times as long as that, so it is always interrupted.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(900);

/// Time that the models take for a response. It is long enough that some kills happen during a call.
const MODEL_DELAY: Duration = Duration::from_millis(80);

/// Number of kills during one run of a scenario. After these kills, the run may finish.
const KILLS_PER_SCENARIO_RUN: usize = 10;

/// The hub in this process, and the bot as a child process that reaches the hub only by HTTP.
struct Site {
    directory: TempDir,
    hub: Hub,
    known: Known,
    webhook: Url,
    /// Number of deliveries that the hub sent before the first start of the server.
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
        let listen = free_address();
        let webhook: Url = format!("http://{listen}/webhook").parse().unwrap();
        hub.set_webhook(known.app, Some(webhook.clone()), &SecretString::from(SECRET)).unwrap();
        let config = directory.path().join("bot/countersign.toml");
        let text = without_toys(fs::read_to_string(&config).unwrap());
        let text = text.replace(&address, hub.base_url().as_str());
        let server = format!("[server]\nlisten = \"{listen}\"\nprivate_listen = \"{}\"\n", free_address());
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

    /// Starts the server and plays the parts of people and GitHub until the time `until` has passed or the scenario is
    /// finished; then kills the server. Returns whether the scenario is finished.
    async fn run_server_once(&self, scenario: &Scenario, until: Option<Duration>) -> bool {
        let mut bot = self.serve();
        let born = Instant::now();
        let thread = Thread { hub: &self.hub, repo: self.known.repo, issue: self.known.issue };
        let over = loop {
            if until.is_some_and(|until| born.elapsed() >= until) {
                break false;
            }
            if bot.child.try_wait().unwrap().is_some() {
                // While the server was down, another connection may have been given its port.
                let (_, printed) = std::mem::replace(&mut bot, self.serve()).end();
                assert!(printed.contains("in use"), "the server exited by itself:\n{printed}");
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
            assert!(
                born.elapsed() < PATIENCE,
                "the run did not finish in time: {:#?}",
                thread.view().comments
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        bot.signal(Signal::KILL);
        bot.child.wait().unwrap();
        self.assert_acknowledged_deliveries_stored();
        over
    }

    /// Asserts that the inbox of a killed server contains every delivery that was answered with 202. Deliveries from
    /// before the first start are ignored: their timestamps are old, so the retention rule may have deleted them.
    fn assert_acknowledged_deliveries_stored(&self) {
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
fn run_killed_at_random_times_reaches_the_state_of_an_uninterrupted_run() {
    let wanted: usize = if crate::world::all() { 20 } else { 4 };
    let mut random = Random::seeded("kills");
    let begun = Instant::now();
    let (mut kills, mut scenario_runs, mut lost_calls) = (0, 0, 0);
    let models = Models::start(MODEL_DELAY);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut baselines = Vec::new();
        for scenario in scenarios::ALL.iter().take(wanted.div_ceil(KILLS_PER_SCENARIO_RUN)) {
            let key = format!("calm-{}", baselines.len());
            let world = matrix::world(&models, &key).await;
            baselines.push(matrix::baseline(world, scenario, (&models, &key), |_| ()).await);
        }
        while kills < wanted {
            let (scenario, baseline) = (
                &scenarios::ALL[scenario_runs % baselines.len()],
                &baselines[scenario_runs % baselines.len()],
            );
            let key = format!("killed-{scenario_runs}");
            let site = Site::open(&models, &key).await;
            let mut here = 0;
            loop {
                let last = here == KILLS_PER_SCENARIO_RUN || kills == wanted;
                let until = (!last).then(|| random.between(SHORTEST, LONGEST));
                if site.run_server_once(scenario, until).await {
                    break;
                }
                (here, kills) = (here + 1, kills + 1);
            }
            let Site { directory, hub, known, .. } = site;
            let address = hub.base_url().to_string();
            hub.stop().await;
            let mut w = World::go_on(directory, known, SystemClock.now()).await;
            matrix::redeliver_and_play(&mut w, scenario).await;
            let (totals, calls_made) = (LedgerTotals::of(&w).await, models.calls(w.directory(), &key));
            let lost = totals.lost;
            assert!(lost <= here + 1, "{here} kills lost {lost} calls");
            // A call and its response are stored in one commit, so the ledger has no tokens of a lost call.
            assert_eq!(totals.mismatch(calls_made, READ * totals.settled as u64), None);
            let difference = baseline.differs(&seen(&w, &[address]).await, calls_made, lost);
            assert!(difference.is_none(), "{}, after {here} kills:\n{}", scenario.name, difference.unwrap());
            (scenario_runs, lost_calls) = (scenario_runs + 1, lost_calls + lost);
        }
    });
    crate::say(&format!(
        "{kills} kills of the server in {scenario_runs} scenario runs, {lost_calls} calls lost, {} s",
        begun.elapsed().as_secs()
    ));
}

/// The drafter's program and its child in another session outlive the killed server. The next server must end both of
/// these processes.
#[test]
fn restarted_server_kills_only_orphans_of_the_killed_server() {
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
        // An unrelated process that now has the PID in an old record.
        let mut stranger = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        let records = data.join("children");
        let record = fs::read_dir(&records).unwrap().next().unwrap().unwrap().path();
        let mut written: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        (written["pid"], written["mark"]) = (stranger.id().into(), "of somebody else".into());
        written["scratch"] = Value::Null;
        let old = records.join("old.json");
        fs::write(&old, written.to_string()).unwrap();

        let mut next = site.serve();
        next.wait_for_line("ended a process that a crashed server left running");
        // A record is deleted once every process in it has ended.
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

/// Returns whether the process exists and is not a zombie.
fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}
