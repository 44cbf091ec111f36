//! Several servers share one Postgres. At random times, the test kills, freezes and disconnects servers, and once it
//! fails over the database. The final state on GitHub must equal the state that a single undisturbed server produces. A
//! server that lost a run's lease must write nothing for that run.

use std::{
    fs,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use countersign::{
    clock::{Clock, SystemClock},
    localhub::{Hub, HubOptions, RepoSource, embedded_sample},
    types::{InstallationId, IssueNo, RepoId, Role},
};
use postgres::Client;
use rustix::process::Signal;
use secrecy::SecretString;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    matrix::{self, redeliver},
    models::Models,
    postgres::Pair,
    process::{PATIENCE, Running, countersign, free_address},
    random::Random,
    scenarios::{self, Thread, Turn},
    seen,
    world::{Known, SECRET, without_toys},
};

/// Duration of the leases, the shortest that the settings allow. A server that is frozen for longer loses its runs.
const LEASE: Duration = Duration::from_secs(8);

/// Time that the models take for a response. It is long enough that some kills happen during a call.
const MODEL_DELAY: Duration = Duration::from_millis(1000);

/// Kinds of faults that the test injects.
const KINDS: [&str; 4] = ["cut", "kill", "freeze", "database failover instead of a fault of"];

/// Amount of work and number of faults of one test.
#[derive(Clone, Copy)]
struct Size {
    repositories: usize,
    issues: u64,
    faults: usize,
}

/// SQL that installs triggers. The triggers record each write, the server that made it, and the node that held the
/// run's lease at that moment. Each server connects with a database role of its own.
const HISTORY: &str = "
    CREATE TABLE public.history (by TEXT, what TEXT, run TEXT, visit BIGINT, holder BIGINT);
    CREATE TABLE public.process (by TEXT, node BIGINT);
    CREATE FUNCTION public.joined() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.process VALUES (session_user, NEW.id);
        RETURN NEW;
    END $$;
    CREATE FUNCTION public.stepped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.history VALUES (session_user, TG_TABLE_NAME, NEW.repo || '/' || NEW.run, NEW.visit,
            (SELECT taken FROM countersign.all_run WHERE repo = NEW.repo AND seq = NEW.run));
        RETURN NEW;
    END $$;
    CREATE FUNCTION public.saved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.history VALUES (session_user, TG_TABLE_NAME, NEW.repo || '/' || NEW.seq, NEW.visit, OLD.taken);
        RETURN NEW;
    END $$;
    CREATE TRIGGER joined AFTER INSERT ON countersign.node FOR EACH ROW EXECUTE FUNCTION public.joined();
    CREATE TRIGGER stepped BEFORE INSERT OR UPDATE ON countersign.all_journal
        FOR EACH ROW EXECUTE FUNCTION public.stepped();
    CREATE TRIGGER saved AFTER UPDATE ON countersign.all_run FOR EACH ROW
        WHEN (NEW.visit <> OLD.visit OR NEW.state <> OLD.state) EXECUTE FUNCTION public.saved();";

/// Query for journal entries and checkpoints that were written by a server without the run's lease.
const WRITES_WITHOUT_LEASE: &str = "
    SELECT history.by || ' wrote ' || what || ' of run ' || run || ', visit ' || visit || ', held by '
        || COALESCE(process.by || ' as node ' || holder, 'nobody')
    FROM public.history LEFT JOIN public.process ON node = holder WHERE process.by IS DISTINCT FROM history.by";

/// The hub in this process, and servers as child processes. The servers share only the hub and their database.
struct Site {
    directory: TempDir,
    hub: Hub,
    known: Known,
    threads: Vec<(RepoId, IssueNo)>,
    servers: Vec<Server>,
    pair: Pair,
}

struct Server {
    name: String,
    config: String,
    webhook: url::Url,
    running: Option<Running>,
    frozen: bool,
}

impl Site {
    /// Sets up the database, the hub and the servers. Prints a note and returns `None` if Postgres is not installed.
    fn open(runtime: &Runtime, models: &Models, key: &str, servers: usize, size: Size) -> Option<Self> {
        let pair = Pair::start()?;
        let setup = async {
            let world = matrix::world(models, key).await;
            let (known, address) = (world.known(), world.hub.base_url().to_string());
            let (threads, installations) = Self::create_threads(&world.hub, &known, size);
            let directory = world.leave().await;
            let options = HubOptions {
                listen: ([127, 0, 0, 1], 0).into(),
                data: directory.path().join("hub"),
                now: Arc::new(|| SystemClock.now()),
                keeps: false,
            };
            (known, address, threads, installations, Hub::start(options).await.unwrap(), directory)
        };
        let (known, address, threads, installations, hub, directory) = runtime.block_on(setup);
        let home = directory.path().join("bot");
        let settings = without_toys(fs::read_to_string(home.join("countersign.toml")).unwrap());
        let (before, rest) = settings.split_once("allow = [").unwrap();
        let (_, after) = rest.split_once(']').unwrap();
        let allowed = installations.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let settings =
            format!("{before}allow = [{allowed}]{after}").replace(&address, hub.base_url().as_str());
        let servers = (1..=servers).map(|number| {
            let (name, listen) = (format!("node{number}"), free_address());
            let file = home.join(format!("{name}.url"));
            super::world::write_secret(&file, &pair.address(&name));
            let data = format!(
                "dir = \"{name}\"\npostgres_file = \"{name}.url\"\nlease_seconds = {}",
                LEASE.as_secs()
            );
            let server_section =
                format!("[server]\nlisten = \"{listen}\"\nprivate_listen = \"{}\"\n", free_address());
            let config = home.join(format!("{name}.toml"));
            fs::write(&config, settings.replace("dir = \"data\"", &data) + &server_section).unwrap();
            let config = config.to_str().unwrap().to_owned();
            let webhook = format!("http://{listen}/webhook").parse().unwrap();
            Server { name, config, webhook, running: None, frozen: false }
        });
        let servers = servers.collect();
        let mut site = Self { directory, hub, known, threads, servers, pair };
        for server in &mut site.servers {
            let role = format!("CREATE ROLE {} LOGIN SUPERUSER", server.name);
            site.pair.connect(site.pair.first).batch_execute(&role).unwrap();
        }
        // The first server creates the tables and stops before the triggers are installed.
        let mut first = site.start(0);
        first.wait_for_line("serving");
        first.signal(Signal::TERM);
        first.end();
        site.pair.connect(site.pair.first).batch_execute(HISTORY).unwrap();
        for number in 0..site.servers.len() {
            let mut running = site.start(number);
            running.wait_for_line("serving");
            site.servers[number].running = Some(running);
        }
        Some(site)
    }

    /// Creates repositories and their issues. Each repository has its own owner, so that no run waits while another run
    /// writes to GitHub.
    fn create_threads(hub: &Hub, known: &Known, size: Size) -> (Vec<(RepoId, IssueNo)>, Vec<InstallationId>) {
        let sample = embedded_sample();
        let (title, body) = &sample.issues[0];
        let maya = hub.user_id("maya").unwrap();
        let (mut threads, mut installations) = (Vec::new(), Vec::new());
        for number in 0..size.repositories {
            let files =
                sample.files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
            let owner = hub.create_user(&format!("owner{number}")).unwrap();
            let repo = hub.create_repo(owner, "tally", RepoSource::Files(files), false).unwrap();
            for (login, role) in [("maya", Role::Admin), ("max", Role::Maintain), ("sam", Role::Write)] {
                hub.set_role(repo, hub.user_id(login).unwrap(), role).unwrap();
            }
            installations.push(hub.install(known.app, &[repo]).unwrap());
            for _ in 0..size.issues {
                threads.push((repo, hub.open_issue(repo, maya, title, body).unwrap()));
            }
        }
        (threads, installations)
    }

    fn start(&self, number: usize) -> Running {
        Running::start(&mut countersign(&["serve", "--config", &self.servers[number].config]))
    }

    /// Connects to the database server that accepts writes, also after a failover.
    fn database(&self) -> Client {
        self.pair
            .address("countersign")
            .parse::<postgres::Config>()
            .unwrap()
            .target_session_attrs(postgres::config::TargetSessionAttrs::ReadWrite)
            .connect(postgres::NoTls)
            .unwrap()
    }

    /// Returns the number of unfinished runs. The count comes from the database because a run continues for a moment
    /// after its last comment on GitHub.
    fn runs_left(&self) -> i64 {
        let sql =
            "SELECT COUNT(*) FROM countersign.all_run WHERE status NOT IN ('done', 'failed', 'stopped')";
        self.database().query_one(sql, &[]).unwrap().get(0)
    }

    fn assert_no_write_without_lease(&self) {
        let rows = self.database().query(WRITES_WITHOUT_LEASE, &[]).unwrap();
        let found: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        assert!(found.is_empty(), "written by a server that had lost the run's lease: {found:#?}");
    }

    /// Returns the number of unfinished model calls of this server, or of all servers.
    fn in_flight(&self, of: Option<&str>) -> usize {
        let sql = "SELECT COUNT(*) FROM countersign.all_call c JOIN countersign.all_run r ON r.repo = c.repo AND r.seq = c.run
            JOIN public.process p ON p.node = r.taken WHERE c.status = 'reserved' AND ($1::text IS NULL OR p.by = $1)";
        let row = self.database().query_one(sql, &[&of]).unwrap();
        usize::try_from(row.get::<_, i64>(0)).unwrap()
    }

    /// Plays the parts of people and GitHub, and injects faults, until every thread is finished. Returns the number of
    /// calls that may have been lost.
    fn live(&mut self, random: &mut Random, faults: usize) -> usize {
        let begun = Instant::now();
        let (mut lost, mut injected) = (0, 0);
        let mut next = begun + Duration::from_secs(3);
        // Faulty server, and the time its fault ends.
        let mut faulty: Option<(usize, Instant)> = None;
        let mut last_check = begun;
        loop {
            let now = Instant::now();
            if let Some((number, until)) = faulty.filter(|(_, until)| now >= *until) {
                faulty = None;
                next = until + random.between(Duration::from_millis(500), Duration::from_secs(3));
                if std::mem::take(&mut self.servers[number].frozen) {
                    self.servers[number].running.as_ref().unwrap().signal(Signal::CONT);
                } else {
                    self.servers[number].running = Some(self.start(number));
                }
            }
            if faulty.is_none() && injected < faults && now >= next {
                let number = random.below(self.servers.len());
                let name = self.servers[number].name.clone();
                // Each kind once, then a random kind; the database fails over only once.
                let kind =
                    KINDS[if injected < KINDS.len() { injected } else { random.below(KINDS.len() - 1) }];
                next = now + random.between(Duration::from_millis(500), Duration::from_secs(2));
                match kind {
                    "cut" => {
                        lost += self.in_flight(Some(&name));
                        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
                        self.database().execute(cut, &[&name]).unwrap();
                    }
                    "kill" => {
                        let mut running = self.servers[number].running.take().unwrap();
                        running.signal(Signal::KILL);
                        running.child.wait().unwrap();
                        lost += self.in_flight(Some(&name));
                        faulty = Some((number, now + random.between(Duration::ZERO, LEASE / 2)));
                    }
                    "freeze" => {
                        self.servers[number].running.as_ref().unwrap().signal(Signal::STOP);
                        self.servers[number].frozen = true;
                        lost += self.in_flight(Some(&name));
                        faulty = Some((number, now + LEASE + random.between(Duration::ZERO, LEASE / 2)));
                    }
                    _ => {
                        let flying = self.in_flight(None);
                        self.pair.promote();
                        lost += flying.max(self.in_flight(None));
                    }
                }
                crate::say(&format!("{kind} {name}"));
                injected += 1;
            }
            // Like a load balancer, sends each delivery to some server believed to be healthy.
            let well: Vec<_> = self.servers.iter().filter(|s| s.running.is_some() && !s.frozen).collect();
            let webhook = well[random.below(well.len())].webhook.clone();
            self.hub.set_webhook(self.known.app, Some(webhook), &SecretString::from(SECRET)).unwrap();
            redeliver(&self.hub);
            let mut over = true;
            for (number, (repo, issue)) in self.threads.iter().enumerate() {
                let (scenario, issue) =
                    (&scenarios::ALL[number % 2], Thread { hub: &self.hub, repo: *repo, issue: *issue });
                match scenario.turn(&issue) {
                    Turn::Person(act) => {
                        (act.act)(&issue);
                        over = false;
                    }
                    Turn::Bot => over = false,
                    Turn::Over => {
                        let ended = |c: &countersign::localhub::HubCommentView| c.body.contains(scenario.end);
                        over &= issue.view().comments.iter().any(ended);
                    }
                }
            }
            if over && faulty.is_none() && self.runs_left() == 0 {
                break;
            }
            if faults > 0 && last_check.elapsed() > Duration::from_secs(1) {
                self.assert_no_write_without_lease();
                last_check = Instant::now();
            }
            assert!(begun.elapsed() < PATIENCE, "the runs did not finish in time:\n{}", self.describe());
            thread::sleep(Duration::from_millis(30));
        }
        assert!(
            injected >= faults.min(KINDS.len()),
            "the runs finished before each kind of fault was injected"
        );
        lost
    }

    /// Returns the state of each repository as people see it on GitHub.
    fn seen(&self) -> Vec<String> {
        let sql = "SELECT hash, 'AUDIT' FROM countersign.all_audit UNION ALL
            SELECT repo || '-' || seq, 'RUN ' || workflow || ' of ' || issue FROM countersign.all_run";
        let rows = self.database().query(sql, &[]).unwrap();
        let mut numbered: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        // Longest names first, so that no name is replaced as the prefix of another.
        numbered.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let mut repositories: Vec<_> = self.threads.iter().map(|(repo, _)| *repo).collect();
        repositories.dedup();
        repositories.iter().map(|repo| seen::repository(&self.hub, *repo, &numbered)).collect()
    }

    fn describe(&self) -> String {
        let threads = self.threads.iter().map(|(repo, issue)| {
            let comments = self.hub.issue(*repo, *issue).unwrap().comments;
            let last = comments.last().map(|c| c.body.lines().take(3).collect::<Vec<_>>().join(" "));
            format!("{repo} #{issue}: {last:?}")
        });
        let notes = "SELECT event || ' ' || state || ' ' || COALESCE(repository || '/' || issue, '') || ' ' || COALESCE(note, '')
            FROM countersign.inbox ORDER BY seq";
        let notes = self.database().query(notes, &[]).unwrap().into_iter().map(|row| row.get::<_, String>(0));
        threads.chain(notes).collect::<Vec<_>>().join("\n")
    }

    /// Stops the servers and returns their output.
    fn end(&mut self) -> String {
        let ended = self.servers.iter_mut().map(|server| {
            let Some(running) = server.running.take() else { return String::new() };
            running.signal(Signal::TERM);
            running.signal(Signal::TERM);
            running.end().1
        });
        ended.collect()
    }

    fn calls(&self, models: &Models, key: &str) -> usize {
        let noted = |server: &Server| {
            let file = self.directory.path().join("bot").join(&server.name).join("claude/calls");
            fs::read_to_string(file).map_or(0, |text| text.lines().count())
        };
        self.servers.iter().map(noted).sum::<usize>() + models.reviews(key)
    }
}

#[test]
#[ignore = "takes long"]
fn cluster_with_faults_reaches_the_state_of_one_server_without_faults() {
    let size = if crate::world::all() {
        Size { repositories: 8, issues: 5, faults: 24 }
    } else {
        Size { repositories: 2, issues: 3, faults: KINDS.len() }
    };
    let mut random = Random::seeded("cluster");
    let models = Models::start(MODEL_DELAY);
    let runtime = matrix::runtime();
    let _inside = runtime.enter();
    let Some(mut calm) = Site::open(&runtime, &models, "calm", 1, size) else { return };
    calm.live(&mut random, 0);
    calm.end();
    let (expected, needed) = (calm.seen(), calm.calls(&models, "calm"));
    drop(calm);

    let mut site = Site::open(&runtime, &models, "ailing", 3, size).unwrap();
    let begun = Instant::now();
    let may_be_lost = site.live(&mut random, size.faults);
    site.end();
    site.assert_no_write_without_lease();
    let writes: i64 = site.database().query_one("SELECT COUNT(*) FROM public.history", &[]).unwrap().get(0);
    assert!(writes > 0);
    let (calls_made, runs) = (site.calls(&models, "ailing"), site.threads.len());
    crate::say(&format!(
        "{runs} runs, {} faults: {needed} calls without faults, {calls_made} with ({may_be_lost} may be lost), {writes} writes \
             checked, {} s",
        size.faults,
        begun.elapsed().as_secs()
    ));
    for (number, (found, expected)) in site.seen().iter().zip(&expected).enumerate() {
        let difference = similar::TextDiff::from_lines(expected, found).unified_diff().to_string();
        assert!(difference.is_empty(), "repository {number}:\n{difference}");
    }
    assert!(
        calls_made >= needed && calls_made <= needed + may_be_lost,
        "{needed} calls are needed, {calls_made} were made"
    );
}
