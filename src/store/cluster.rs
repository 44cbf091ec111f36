//! Several processes on one PostgreSQL database, as equal *nodes*.
//!
//! Each node has a lease, which is measured only by the database's clock and which the node renews long before it
//! expires. A claimed run or delivery names its node. When that node's lease has expired, other nodes may claim the run
//! or delivery. Each claim increments a counter of the run, so the store can refuse writes of a node that has lost the
//! run. Therefore a node may renew an expired lease if no other node took the run.
//!
//! A node announces its commits to the other nodes with `NOTIFY`. Polling every few seconds finds changes whose
//! notification was lost.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use futures_util::future::BoxFuture;
use rusqlite::params;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Notify, mpsc as news, watch};

use super::{
    Store, StoreError,
    agenda::Agenda,
    database::{Database, SharedCommitWatch, to_signed, to_unsigned},
    error::TransactionError,
    inbox, installation_registry, pauses,
    postgres_backend::{ConnectionPool, PostgresScope},
    repository::LIVE_RUN_CONDITION,
    spend,
    sql::Transaction,
};
use crate::{
    clock::SharedClock,
    limits,
    types::{InstallationId, RepoId, RunId, Timestamp},
};

/// PostgreSQL notification channel. A payload consists of the sending node, a keyword and its arguments.
pub(super) const CHANNEL: &str = "countersign";
const RUNS: &str = "runs";
const CANCELLED: &str = "cancelled";
const DELIVERIES: &str = "deliveries";
const SETTINGS: &str = "settings";
const LIMITED: &str = "limited";

/// Number of times that a lease is renewed within the duration of the lease.
const RENEWALS_PER_LEASE: u32 = 4;

/// Delay before a node that lacks the repository's mirror claims a run, so that a node with the mirror can claim the
/// run first.
const NO_MIRROR_DELAY: Duration = Duration::from_millis(150);

/// Maximum difference between this machine's clock and the database's clock. With a larger difference, runs would start
/// too early or too late.
pub(super) const MAX_CLOCK_SKEW: Duration = Duration::from_secs(30);

/// An event from another node, or a warning that our lease is about to expire because the database does not respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A run or delivery may have become due.
    Due,
    /// A person cancelled this run.
    Cancelled(RunId),
    /// Our lease may expire at any moment, so all running steps must stop.
    LeaseOver,
}

/// The current process as a node of the cluster.
pub(super) struct Cluster {
    pub(super) pool: Arc<ConnectionPool>,
    pub(super) node: i64,
    lease: Duration,
    /// Time until which our lease is certainly valid, in milliseconds since this machine booted. The time includes
    /// sleep.
    holds_until: watch::Sender<u64>,
    /// Number of live nodes.
    nodes: watch::Sender<u32>,
    /// Other nodes whose settings differ from ours; see [`Store::differing_nodes`].
    differing_nodes: watch::Sender<Vec<String>>,
    /// Installations that at least one live node serves.
    served_installations: watch::Sender<BTreeSet<InstallationId>>,
    /// End of the lease for which `LeaseOver` was last sent. Prevents a second event for the same lease.
    announced_lease_end: AtomicU64,
    /// Notified when a run or delivery may have become due. Several notifications are merged into one.
    due: Notify,
    event_sender: news::UnboundedSender<ClusterEvent>,
    event_receiver: tokio::sync::Mutex<news::UnboundedReceiver<ClusterEvent>>,
    /// Notified when another node received a delivery.
    pub(super) deliveries: Notify,
    /// Number of times that other nodes changed the state of models and keys.
    pub(super) remote_changes: watch::Sender<u64>,
    /// End of each rate limit that another node reported. The key is the installation and whether the limit is the one
    /// for searches.
    rate_limits: Mutex<HashMap<(InstallationId, bool), Timestamp>>,
    ended: AtomicBool,
    /// Channel to the renewal thread. A message makes the thread renew the lease immediately.
    renewal_trigger: OnceLock<mpsc::Sender<()>>,
    renewal_thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// State that the threads of a node share.
struct NodeThreads {
    cluster: Weak<Cluster>,
    main: Database,
    agenda: Arc<Agenda>,
    clock: SharedClock,
    inbox: Arc<inbox::InboxState>,
    has_mirror: Box<dyn Fn(RepoId) -> bool + Send + Sync>,
}

/// Returns the number of milliseconds since this machine booted, including sleep.
fn millis_since_boot() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1000 + nanos / 1_000_000
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Cluster {
    /// Registers this process as a node of the cluster.
    pub(super) fn join(
        pool: Arc<ConnectionPool>,
        lease: Duration,
        now: Timestamp,
        watched: SharedCommitWatch,
    ) -> Result<(Arc<Self>, Database), StoreError> {
        let main = Database::from_postgres(PostgresScope::new(Arc::clone(&pool), None), watched);
        let asked_at = millis_since_boot();
        let (node, off) = main.write_blocking(|tx| {
            let off: i64 = tx.query_row(
                "SELECT CAST(extract(epoch FROM now()) * 1000 AS BIGINT) - CAST(?1 AS BIGINT)",
                [now.0],
                |row| row.get(0),
            )?;
            let sql = "INSERT INTO node (name, until) VALUES (?1, now() + ?2 * interval '1 millisecond') RETURNING id";
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let node = tx.query_row(sql, params![name, to_signed(millis(lease))], |row| row.get(0))?;
            Ok((node, off))
        })?;
        if off.unsigned_abs() > millis(MAX_CLOCK_SKEW) {
            tracing::warn!(
                seconds = off / 1000,
                "this machine's clock differs from the database's, so runs start too early or too late; correct the clock"
            );
        }
        let _ = pool.node.set(node);
        let (sender, receiver) = news::unbounded_channel();
        let cluster = Self {
            pool,
            node,
            lease,
            holds_until: watch::Sender::new(asked_at + millis(lease)),
            nodes: watch::Sender::new(1),
            differing_nodes: watch::Sender::default(),
            served_installations: watch::Sender::default(),
            announced_lease_end: AtomicU64::new(0),
            due: Notify::new(),
            event_sender: sender,
            event_receiver: tokio::sync::Mutex::new(receiver),
            deliveries: Notify::new(),
            remote_changes: watch::Sender::new(0),
            rate_limits: Mutex::default(),
            ended: AtomicBool::new(false),
            renewal_trigger: OnceLock::new(),
            renewal_thread: Mutex::default(),
        };
        Ok((Arc::new(cluster), main))
    }

    /// Starts the threads that renew the lease and receive notifications. They run until [`leave`](Self::leave) is
    /// called.
    pub(super) fn start_threads(
        self: &Arc<Self>,
        main: Database,
        agenda: Arc<Agenda>,
        clock: SharedClock,
        inbox: Arc<inbox::InboxState>,
        mirror: impl Fn(RepoId) -> bool + Send + Sync + 'static,
    ) {
        let threads = NodeThreads {
            cluster: Arc::downgrade(self),
            main,
            agenda,
            clock,
            inbox,
            has_mirror: Box::new(mirror),
        };
        let (threads, (bell, rung)) = (Arc::new(threads), mpsc::channel());
        let _ = self.renewal_trigger.set(bell);
        let listening = Arc::clone(&threads);
        thread::spawn(move || listening.listen_to_nodes());
        let beat = self.lease / RENEWALS_PER_LEASE;
        let beating = thread::spawn(move || threads.run_heartbeat(&rung, beat));
        *self.renewal_thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(beating);
    }

    /// Ends the lease and waits until its end is recorded in the database.
    pub(super) fn leave(&self) {
        self.ended.store(true, SeqCst);
        self.renew_now();
        let beating = self.renewal_thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(beating.map(thread::JoinHandle::join));
    }

    fn renew_now(&self) {
        // Fails only if the renewal thread has ended.
        let _ = self.renewal_trigger.get().map(|bell| bell.send(()));
    }

    /// Returns the remaining time during which no other node can take over our claims.
    pub(super) fn lease_left(&self) -> Duration {
        Duration::from_millis(self.holds_until.borrow().saturating_sub(millis_since_boot()))
    }

    pub(super) fn nodes(&self) -> u32 {
        *self.nodes.borrow()
    }

    /// Waits for the next event and returns it.
    pub(super) fn next_event(&self) -> BoxFuture<'_, ClusterEvent> {
        Box::pin(async {
            let (mut events, mut renewed) = (self.event_receiver.lock().await, self.holds_until.subscribe());
            loop {
                let until = *renewed.borrow_and_update();
                // The timeout also covers a renewal that waits for a silent database.
                let left = self.lease_left().saturating_sub(self.lease / RENEWALS_PER_LEASE);
                let announced = self.announced_lease_end.load(SeqCst) == until;
                tokio::select! {
                    Some(news) = events.recv() => return news,
                    () = self.due.notified() => return ClusterEvent::Due,
                    _ = renewed.changed() => {}
                    () = tokio::time::sleep(left), if !announced => self.announce_lease_end(),
                }
            }
        })
    }

    /// Sends `LeaseOver`, unless it was already sent for the current lease.
    fn announce_lease_end(&self) {
        let until = *self.holds_until.borrow();
        if self.announced_lease_end.swap(until, SeqCst) != until {
            self.send_event(ClusterEvent::LeaseOver);
        }
    }

    /// Returns the end of a rate limit that another node reported; see
    /// [`Store::rate_limited_until`](super::Store::rate_limited_until).
    pub(super) fn rate_limited_until(&self, installation: InstallationId, search: bool) -> Option<Timestamp> {
        let limits = self.rate_limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.get(&(installation, search)).copied()
    }

    fn send_event(&self, news: ClusterEvent) {
        let _ = self.event_sender.send(news);
    }

    /// Stores the list of nodes whose settings differ from ours. Logs a warning if the list changed.
    fn set_differing_nodes(&self, unlike: Vec<String>) {
        let names = unlike.join("; ");
        let changed = self.differing_nodes.send_if_modified(|known| {
            let before = std::mem::replace(known, unlike);
            *known != before
        });
        if changed && !names.is_empty() {
            tracing::warn!(
                nodes = names,
                "other nodes have different settings, and each step uses those of its node; give all nodes the same settings"
            );
        }
    }
}

impl Store {
    /// Publishes this node's settings, as one fingerprint per settings table, and the installations that the node
    /// serves. Does nothing if the store is not in a cluster.
    pub async fn publish_settings(
        &self,
        fingerprints: &BTreeMap<&'static str, String>,
        allows: &[InstallationId],
    ) -> Result<(), StoreError> {
        let Some(cluster) = &self.cluster else { return Ok(()) };
        let (node, settings) = (cluster.node, serde_json::json!(fingerprints).to_string());
        let allows = allows.iter().map(|id| to_signed(id.0).to_string()).collect::<Vec<_>>().join(",");
        let sql = "UPDATE node SET settings = ?2, allows = CAST(CAST(?3 AS TEXT) AS BIGINT[]) WHERE id = ?1";
        let tell = move |tx: &Transaction<'_>| {
            tx.execute(sql, params![node, settings, format!("{{{allows}}}")])?;
            ClusterNotice::Settings.notify(tx)?;
            Ok((served_installations(tx)?, read_differing_nodes(tx, node)?))
        };
        let (served, unlike) = self.main.write(tell).await?;
        cluster.served_installations.send_replace(served);
        cluster.set_differing_nodes(unlike);
        cluster.renew_now();
        Ok(())
    }

    /// Returns whether a live node is known to serve this installation.
    pub fn is_served_by_cluster(&self, installation: InstallationId) -> bool {
        self.cluster
            .as_ref()
            .is_some_and(|cluster| cluster.served_installations.borrow().contains(&installation))
    }

    /// Returns the other live nodes whose settings differ from ours, each with the names of the differing settings
    /// tables.
    pub fn differing_nodes(&self) -> Vec<String> {
        self.cluster.as_ref().map_or_else(Vec::new, |cluster| cluster.differing_nodes.borrow().clone())
    }
}

/// SQL condition for a node whose installations count as served. The node is live, or its lease ended so recently that
/// the node may be restarting.
const SERVING_NODE_CONDITION: &str = "until > now() - interval '10 minutes'";

/// Returns the installations served by nodes that meet `SERVING_NODE_CONDITION`.
fn served_installations(tx: &Transaction<'_>) -> Result<BTreeSet<InstallationId>, TransactionError> {
    let mut served = tx.prepare_cached(&format!(
        "SELECT DISTINCT unnest(allows) FROM node WHERE {SERVING_NODE_CONDITION}"
    ))?;
    let served = served.query_map([], |row| Ok(InstallationId(to_unsigned(row.get(0)?))))?;
    served.collect()
}

/// Returns the other live nodes whose settings differ, for [`Store::differing_nodes`]. A node that has published no
/// settings is treated as equal.
fn read_differing_nodes(tx: &Transaction<'_>, node: i64) -> Result<Vec<String>, TransactionError> {
    let mut living = tx.prepare_cached(
        "SELECT id, name, settings FROM node WHERE until > now() AND settings <> '' ORDER BY id",
    )?;
    let living = living.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let living: Vec<(i64, String, String)> = living.collect::<Result<_, _>>()?;
    // Unreadable settings come from a newer version and differ in every table.
    let read =
        |settings: &str| serde_json::from_str::<BTreeMap<String, String>>(settings).unwrap_or_default();
    let Some((.., own)) = living.iter().find(|(id, ..)| *id == node) else { return Ok(Vec::new()) };
    let (own, mut unlike) = (read(own), Vec::new());
    for (id, name, settings) in living.iter().filter(|(id, ..)| *id != node) {
        let theirs = read(settings);
        let differs = |table: &&String| own.get(*table) != theirs.get(*table);
        let tables: Vec<&str> = own.keys().filter(differs).map(String::as_str).collect();
        if !tables.is_empty() {
            unlike.push(format!("node {id} on {name} in {}", tables.join(", ")));
        }
    }
    Ok(unlike)
}

/// Returns the SQL condition under which a node may claim an inbox row: the node serves the row's installation, or no
/// other node serves it. `node` is the SQL parameter with the node's ID. The condition always holds for SQLite, which
/// has only one node.
pub(super) fn serves_row_condition(tx: &Transaction<'_>, node: &str) -> String {
    match tx {
        Transaction::File(_) => format!("{node} IS NOT NULL"),
        Transaction::Server(_) => format!(
            "(EXISTS (SELECT 1 FROM node WHERE node.id = {node} AND inbox.installation = ANY(allows))
                 OR NOT EXISTS (SELECT 1 FROM node WHERE {SERVING_NODE_CONDITION} AND inbox.installation = ANY(allows)))"
        ),
    }
}

/// Returns the SQL condition for a live node, measured by the database's clock.
pub(super) fn living_node_condition(node: &str) -> String {
    format!("EXISTS (SELECT 1 FROM node WHERE node.id = {node} AND until > now())")
}

/// A notification to the other nodes, which is sent when the transaction commits.
pub(super) enum ClusterNotice {
    Runs(RepoId),
    Cancelled(RunId),
    Deliveries,
    Settings,
    Limited { installation: InstallationId, search: bool, until: Timestamp },
}

impl ClusterNotice {
    pub(super) fn notify(&self, tx: &Transaction<'_>) -> Result<(), TransactionError> {
        let Transaction::Server(session) = tx else { return Ok(()) };
        let (word, about) = match self {
            Self::Runs(repo) => (RUNS, repo.to_string()),
            Self::Cancelled(run) => (CANCELLED, run.to_string()),
            Self::Deliveries => (DELIVERIES, String::new()),
            Self::Settings => (SETTINGS, String::new()),
            Self::Limited { installation, search, until } => {
                (LIMITED, format!("{installation} {search} {}", until.0))
            }
        };
        let payload = format!("{} {word} {about}", session.node());
        tx.prepare_cached("SELECT pg_notify(?1, ?2)")?.query(params![CHANNEL, payload])?;
        Ok(())
    }
}

impl NodeThreads {
    fn run_heartbeat(&self, rung: &mpsc::Receiver<()>, every: Duration) {
        let mut late = false;
        loop {
            let Some(cluster) = self.cluster.upgrade() else { return };
            if cluster.ended.load(SeqCst) {
                let leave = |tx: &Transaction<'_>| {
                    tx.execute("UPDATE node SET until = now() WHERE id = ?1", [cluster.node])?;
                    ClusterNotice::Deliveries.notify(tx)
                };
                drop(self.main.write_blocking(leave));
                return;
            }
            let sent = millis_since_boot();
            match self.renew_lease(&cluster) {
                Ok(nodes) => {
                    // The lease had ended before the renewal, so other nodes may have taken our claims. Write nothing
                    // to GitHub until the next renewal.
                    late = !late && cluster.lease_left().is_zero();
                    if late {
                        cluster.announce_lease_end();
                    } else {
                        cluster.holds_until.send_replace(sent + millis(cluster.lease));
                    }
                    cluster.nodes.send_if_modified(|known| std::mem::replace(known, nodes) != nodes);
                    self.poll_database(&cluster);
                }
                Err(error) => tracing::error!(%error, "could not renew this node's lease; will retry"),
            }
            drop(cluster);
            let _ = rung.recv_timeout(every);
        }
    }

    /// Renews the lease, releases claims of dead nodes, and returns the number of live nodes.
    fn renew_lease(&self, cluster: &Cluster) -> Result<u32, StoreError> {
        let (lease, node, now) = (to_signed(millis(cluster.lease)), cluster.node, self.clock.now());
        self.main.write_blocking(|tx| {
            let sql = "UPDATE node SET until = now() + ?2 * interval '1 millisecond' WHERE id = ?1";
            if tx.execute(sql, [node, lease])? == 0 {
                return Err(TransactionError::Row(
                    "the node is missing from the database; restart the server".to_owned(),
                ));
            }
            if inbox::release_dead_claims(tx, now)? > 0 {
                ClusterNotice::Deliveries.notify(tx)?;
            }
            spend::mark_unsettled(tx)?;
            let living = "SELECT COUNT(*) FROM node WHERE until > now()";
            let nodes = tx.query_row(living, [], |row| row.get(0))?;
            // These leases ended long ago, so such nodes hold no claims.
            tx.execute(
                "DELETE FROM node WHERE until < now() - interval '1 day'
                     AND NOT EXISTS (SELECT 1 FROM all_run WHERE taken = node.id)",
                [],
            )?;
            Ok(nodes)
        })
    }

    /// Finds due runs and deliveries whose notification was lost.
    fn poll_database(&self, cluster: &Cluster) {
        let (now, node) = (self.clock.now(), cluster.node);
        let read = self.main.read_blocking(|tx| {
            let due = format!(
                "SELECT DISTINCT repo FROM all_run WHERE {LIVE_RUN_CONDITION} AND (due <= ?1 OR cancel IS NOT NULL AND status <> 'halting')
                     AND (taken IS NULL OR taken <> ?2 AND NOT {})",
                living_node_condition("all_run.taken")
            );
            let mut due = tx.prepare_cached(&due)?;
            let due = due.query_map([now.0, node], |row| Ok(RepoId(to_unsigned(row.get(0)?))))?;
            let cancelled = format!(
                "SELECT repo, seq FROM all_run WHERE {LIVE_RUN_CONDITION} AND taken = ?1 AND cancel IS NOT NULL AND status <> 'halting'"
            );
            let mut cancelled = tx.prepare_cached(&cancelled)?;
            let cancelled = cancelled.query_map([node], |row| {
                Ok(RunId { repo: RepoId(to_unsigned(row.get(0)?)), seq: to_unsigned(row.get(1)?) })
            })?;
            let runs = (due.collect::<Result<Vec<_>, TransactionError>>()?, cancelled.collect::<Result<Vec<_>, TransactionError>>()?);
            Ok((runs, inbox::has_suspects(tx)?))
        });
        match read {
            Ok(((due, cancelled), suspects)) => {
                if suspects {
                    self.inbox.flag_suspects();
                }
                due.into_iter().for_each(|repo| self.agenda.schedule_scan(repo, now));
                cancelled.into_iter().for_each(|run| cluster.send_event(ClusterEvent::Cancelled(run)));
            }
            Err(error) => tracing::error!(%error, "could not query due runs; will retry"),
        }
        self.reload_settings(cluster);
        cluster.remote_changes.send_modify(|times| *times += 1);
        cluster.deliveries.notify_one();
        cluster.due.notify_one();
    }

    /// Reloads pauses, suspensions and served installations. Warns about nodes whose settings differ.
    fn reload_settings(&self, cluster: &Cluster) {
        loop {
            let seen_changes = self.agenda.pause_changes();
            let read = self.main.read_blocking(|tx| {
                Ok((
                    pauses::read_pauses(tx)?,
                    installation_registry::suspended_installations(tx)?,
                    read_differing_nodes(tx, cluster.node)?,
                    served_installations(tx)?,
                ))
            });
            let (pauses, suspended, unlike, served) = match read {
                Ok(read) => read,
                Err(error) => {
                    return tracing::error!(%error, "could not read pauses and suspensions; will retry");
                }
            };
            cluster.served_installations.send_replace(served);
            cluster.set_differing_nodes(unlike);
            if self.agenda.replace_pauses(
                seen_changes,
                pauses.into_iter().map(|pause| pause.scope),
                suspended,
            ) {
                return;
            }
        }
    }

    fn listen_to_nodes(&self) {
        while let Some(cluster) = self.cluster.upgrade().filter(|cluster| !cluster.ended.load(SeqCst)) {
            let listened = cluster.pool.listen(CHANNEL, |payload| {
                if let Some(payload) = payload {
                    self.handle_notification(&cluster, payload);
                }
                !cluster.ended.load(SeqCst)
            });
            if let Err(fault) = listened {
                tracing::warn!(
                    ?fault,
                    "cannot receive notifications from other nodes; polling every few seconds"
                );
                thread::sleep(limits::STEP_BACKOFF.min(cluster.lease / RENEWALS_PER_LEASE));
            }
        }
    }

    fn handle_notification(&self, cluster: &Cluster, payload: &str) {
        let mut words = payload.splitn(3, ' ').map(str::trim);
        let (node, word, about) = (words.next(), words.next(), words.next().unwrap_or_default());
        if node.is_some_and(|node| node == cluster.node.to_string()) {
            return; // known here since it was committed
        }
        match word.unwrap_or_default() {
            RUNS => {
                let Ok(repo) = about.parse::<RepoId>() else { return };
                let now = self.clock.now();
                let when = if (self.has_mirror)(repo) { now } else { now.plus(NO_MIRROR_DELAY) };
                self.agenda.schedule_scan(repo, when);
                cluster.due.notify_one();
            }
            CANCELLED => {
                if let Ok(run) = about.parse::<RunId>() {
                    cluster.send_event(ClusterEvent::Cancelled(run));
                }
            }
            DELIVERIES => cluster.deliveries.notify_one(),
            SETTINGS => {
                self.reload_settings(cluster);
                cluster.remote_changes.send_modify(|times| *times += 1);
                cluster.due.notify_one();
            }
            LIMITED => {
                let mut words = about.split(' ');
                let mut word = || words.next().unwrap_or_default();
                if let (Ok(id), Ok(search), Ok(until)) = (word().parse(), word().parse(), word().parse()) {
                    let mut limits = cluster.rate_limits.lock().unwrap_or_else(PoisonError::into_inner);
                    limits.insert((id, search), Timestamp(until));
                }
            }
            _ => {} // of a version to come
        }
    }
}
