//! The databases. This is the only module that contains SQL.
//!
//! A data directory contains `main.db` (inbox, installations, repositories, wake hints). It also contains one folder
//! per repository, which holds `repos/<id>/checkpoints.db` (runs with their journals, documents and ledgers) and the
//! mirror. Only one process at a time owns the directory. Every function is one transaction on one file; `wake_hints`
//! documents the guarantees across files. On Postgres, one database holds the same tables. This module makes no decisions: it knows no workflows, no GitHub and no
//! permission rules.

mod agenda;
mod all_repositories;
mod approvers;
mod archive;
mod audit_queries;
mod backup;
mod cache;
mod cluster;
mod compression;
mod database;
mod database_source;
mod delivery_sweep;
mod error;
mod forget_repository;
mod inbox;
mod installation_registry;
mod integrity_check;
mod key_cooldowns;
mod move_to_postgres;
mod open_databases;
mod pauses;
mod pending_writes;
mod postgres_backend;
mod postgres_preflight;
mod referenced_texts;
mod repository;
mod rows;
mod run_history;
mod run_requests;
mod sessions;
mod spend;
mod sql;
mod upgrade_copies;
mod wake_hints;

use std::{
    fs,
    io::Read,
    os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use prometheus_client::metrics::histogram::Histogram;
use rustix::fs::{FlockOperation, flock};
use secrecy::{ExposeSecret, SecretString};

use self::{
    agenda::Agenda,
    cluster::{Cluster, ClusterNotice},
    database::{
        Database, DatabaseSchema, DatabaseTraffic, SharedCommitWatch, UNFINISHED_SUFFIX, to_signed,
        to_unsigned,
    },
    error::TransactionError,
    open_databases::OpenDatabases,
    postgres_backend::{ConnectionPool, PostgresScope},
    sql::{OptionalRow, Transaction},
    upgrade_copies::UpgradeCopies,
};
pub use self::{
    agenda::RunPosition,
    all_repositories::{DailySpend, RunCursor, RunListRow, RunPage, RunQuery, SkippedRepository},
    approvers::{Approvers, IneligibleApprover},
    archive::{ARCHIVED_LINK_TEXT, ArchiveSummary},
    audit_queries::{
        IssueAuditLink, issue_audit_links, last_diff, repositories, repository_named, walk_audit_chain,
        was_initialized,
    },
    backup::{BackupSummary, copy_databases, create_backup},
    cache::{AnalysisCache, CacheKey, PackedValue},
    cluster::ClusterEvent,
    database::SimulatedDisk,
    database_source::DatabaseSource,
    delivery_sweep::LabelingKey,
    error::StoreError,
    inbox::{
        ClaimedDelivery, DeliveryDisposition, DeliveryReceipt, DeliveryRow, DeliverySubject, Inbox,
        InboxCounts, NewDelivery,
    },
    installation_registry::{InstallationRegistry, InstallationRow, RepositoryRow},
    integrity_check::{DatabaseCheck, check_databases},
    key_cooldowns::{KeyCooldownReason, RouteOutage, StoredKeyCooldown, resting_keys},
    move_to_postgres::{PostgresMoveSummary, move_to_postgres},
    pending_writes::{GitHubCallCount, GitHubCallCounter, PendingWrites},
    postgres_preflight::{PostgresPreflight, check_postgres},
    repository::{AuditChainReport, RepositoryDatabase, read_routes},
    rows::*,
    run_history::{GateHistory, JournalEntry, RunHistory, VisitRecord, VisitRow},
    sessions::SessionScope,
    spend::{Reservation, ReservationOutcome, SharedCap},
};
use crate::{
    clock::SharedClock,
    types::{InstallationId, RepoId, Timestamp},
};

const MAIN_SCHEMA: DatabaseSchema = DatabaseSchema {
    application_id: 0x4353_6d31,
    migrations: &[
        include_str!("migrations/main-1.sql"),
        include_str!("migrations/main-2.sql"),
        include_str!("migrations/main-3.sql"),
        include_str!("migrations/main-4.sql"),
        include_str!("migrations/main-5.sql"),
        include_str!("migrations/main-6.sql"),
        include_str!("migrations/main-7.sql"),
    ],
    traffic: DatabaseTraffic::Busy,
};

/// Lock file, which the owner of the data directory keeps locked. It contains the owner's boot number.
const LOCK_FILE: &str = "lock";

/// The open data directory or PostgreSQL database.
pub struct Store {
    root: PathBuf,
    main: Database,
    clock: SharedClock,
    /// Boot number of this process. Claims made by processes with a lower boot number are no longer valid.
    epoch: i64,
    repositories: Arc<OpenDatabases>,
    agenda: Arc<Agenda>,
    /// Cluster to which this process belongs. `None` for a data directory, which a single process owns.
    cluster: Option<Arc<Cluster>>,
    commit_watch: SharedCommitWatch,
    /// Lock that lets only one walk through all repositories run at a time.
    repository_walk_lock: Arc<tokio::sync::Mutex<()>>,
    /// Lock that prevents archiving runs and forgetting a repository at the same time.
    archive_lock: Arc<tokio::sync::Mutex<()>>,
    inbox: Arc<inbox::InboxState>,
    /// Lock on the data directory. It is held until the store is closed and no thread is still opening one of the
    /// store's files.
    lock: Arc<fs::File>,
}

impl Store {
    /// Returns the boot number of this process. The number was incremented when the store was opened.
    pub fn boot_epoch(&self) -> i64 {
        self.epoch
    }

    /// Opens or creates a data directory for use by this process alone, and increments the directory's boot number.
    pub fn open(root: &Path, clock: SharedClock) -> Result<Arc<Self>, StoreError> {
        create_directory(root)?;
        let lock = lock_directory(root)?;
        if root.join(move_to_postgres::MOVED_MARK_FILE).exists() {
            return Err(StoreError::Moved { mark: root.join(move_to_postgres::MOVED_MARK_FILE) });
        }
        forget_repository::remove_forgotten_folders(root);
        let file = root.join("main.db");
        let watch = SharedCommitWatch::default();
        let now = clock.now();
        let main = Database::open(
            &file,
            &MAIN_SCHEMA,
            Arc::clone(&watch),
            Some(&UpgradeCopies::for_main(root, now)),
        )?;
        let (mark, repos) = (last_boot(&lock), repositories_in(root)?);
        let ((epoch, strange, agenda), suspects) = main.write_blocking(|tx| {
            delivery_sweep::begin_sweeping(tx, now)?;
            Ok((count_boot(tx, mark.as_deref(), &repos)?, inbox::release_at_boot(tx, now)?))
        })?;
        if strange && !repos.is_empty() {
            tracing::warn!(
                file = %file.display(), repositories = repos.len(),
                "this database is new or from a backup: reading this month's spend from the repositories' \
                 ledgers; pauses may be lost, and missed deliveries are fetched from GitHub's log"
            );
            spend::rebuild_spend(&main, root, &repos, now)?;
        }
        let inbox = Arc::<inbox::InboxState>::default();
        if suspects {
            inbox.flag_suspects();
        }
        // If this write fails, the next boot scans every repository needlessly, which is harmless.
        drop(lock.write_all_at(format!("{epoch:>20}").as_bytes(), 0));
        Ok(Arc::new(Self {
            root: root.to_owned(),
            main,
            clock,
            epoch,
            repositories: Arc::default(),
            agenda: Arc::new(agenda),
            cluster: None,
            commit_watch: watch,
            repository_walk_lock: Arc::default(),
            archive_lock: Arc::default(),
            inbox,
            lock: Arc::new(lock),
        }))
    }

    /// Joins the nodes that share a PostgreSQL server. Files that are not stored in the database, such as mirrors, are
    /// stored in `root`.
    pub fn join_postgres(
        server: &PostgresServer,
        root: &Path,
        clock: SharedClock,
    ) -> Result<Arc<Self>, StoreError> {
        postgres_backend::run_on_own_thread(|| Self::join_postgres_blocking(server, root, clock))
    }

    fn join_postgres_blocking(
        server: &PostgresServer,
        root: &Path,
        clock: SharedClock,
    ) -> Result<Arc<Self>, StoreError> {
        create_directory(root)?;
        if root.join("main.db").exists() {
            return Err(StoreError::HasFiles { directory: root.to_owned() });
        }
        let lock = lock_directory(root)?;
        let pool = Arc::new(ConnectionPool::new(server.address.expose_secret())?);
        pool.migrate()?;
        let (watch, now) = (SharedCommitWatch::default(), clock.now());
        let (cluster, main) = Cluster::join(pool, server.lease, now, Arc::clone(&watch))?;
        let agenda = main.write_blocking(|tx| {
            delivery_sweep::begin_sweeping(tx, now)?;
            // Release dead nodes' claims before the first step starts, so that it can claim them.
            inbox::release_dead_claims(tx, now)?;
            spend::mark_unsettled(tx)?;
            let paused = pauses::read_pauses(tx)?.into_iter().map(|pause| pause.scope);
            Ok(Agenda::at_boot(
                wake_hints::hinted_repositories(tx)?,
                paused,
                installation_registry::suspended_installations(tx)?,
            ))
        })?;
        let (agenda, inbox) = (Arc::new(agenda), Arc::<inbox::InboxState>::default());
        let repos = root.join("repos");
        let mirrored = move |repo: RepoId| repos.join(repo.to_string()).join("mirror.git").exists();
        cluster.start_threads(
            main.clone(),
            Arc::clone(&agenda),
            Arc::clone(&clock),
            Arc::clone(&inbox),
            mirrored,
        );
        Ok(Arc::new(Self {
            root: root.to_owned(),
            main,
            clock,
            epoch: cluster.node,
            repositories: Arc::default(),
            agenda,
            cluster: Some(cluster),
            commit_watch: watch,
            repository_walk_lock: Arc::default(),
            archive_lock: Arc::default(),
            inbox,
            lock: Arc::new(lock),
        }))
    }

    /// Waits for the next event from another node and returns it. Without a cluster, waits forever.
    pub async fn next_cluster_event(&self) -> ClusterEvent {
        match &self.cluster {
            Some(cluster) => cluster.next_event().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the remaining time of this node's lease, or `None` without a cluster.
    pub fn lease_left(&self) -> Option<Duration> {
        self.cluster.as_ref().map(|cluster| cluster.lease_left())
    }

    /// Returns a counter that is incremented when another node changes the state of a model or a key.
    pub fn remote_changes(&self) -> u64 {
        self.cluster.as_ref().map_or(0, |cluster| *cluster.remote_changes.borrow())
    }

    /// Tells the other nodes that GitHub rate-limits this installation until `until`. If `search` is set, only searches
    /// are limited. A node that misses the notice learns of the limit from GitHub.
    pub async fn publish_rate_limit(
        &self,
        installation: InstallationId,
        search: bool,
        until: Timestamp,
    ) -> Result<(), StoreError> {
        match &self.cluster {
            Some(_) => {
                let limited = ClusterNotice::Limited { installation, search, until };
                self.main.write(move |tx| limited.notify(tx)).await
            }
            None => Ok(()),
        }
    }

    /// Returns the end of the installation's rate limit, according to the last notice from another node.
    pub fn rate_limited_until(&self, installation: InstallationId, search: bool) -> Option<Timestamp> {
        self.cluster.as_ref()?.rate_limited_until(installation, search)
    }

    /// Returns the number of nodes that share each installation's GitHub rate limit.
    pub fn node_count(&self) -> u32 {
        self.cluster.as_ref().map_or(1, |cluster| cluster.nodes())
    }

    /// Calls `callback` with the database file after every commit, before the writer gets its result. Crash tests use
    /// the callback to stop at each commit. If this is called again, the first callback is kept.
    pub fn on_commit(&self, callback: impl Fn(&Path) + Send + Sync + 'static) {
        let _ = self.commit_watch.on_commit.set(Box::new(callback));
    }

    /// Makes all later writes use this simulated disk. Used by tests.
    pub fn simulate_disk(&self, disk: SimulatedDisk) {
        self.commit_watch.simulate_disk(disk);
    }

    /// Returns the histogram of commit durations in seconds.
    pub fn commit_seconds(&self) -> &Histogram {
        &self.commit_watch.commit_seconds
    }

    /// Subscribes to commits. The receiver learns only that something was committed, not the content or the number of
    /// commits.
    pub fn subscribe_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.commit_watch.change_signal.subscribe()
    }

    pub fn inbox(&self) -> Inbox<'_> {
        Inbox { store: self }
    }

    pub fn installation_registry(&self) -> InstallationRegistry<'_> {
        InstallationRegistry { store: self }
    }

    /// Returns the directory that contains the directories of all repositories. Each of them is named by the
    /// repository's ID.
    pub fn repos_dir(&self) -> PathBuf {
        self.root.join("repos")
    }

    /// Returns the directory of a repository, which contains `checkpoints.db` and `mirror.git`.
    pub fn repo_dir(&self, repo: RepoId) -> PathBuf {
        self.repos_dir().join(repo.to_string())
    }

    /// Returns the database of a repository, which is created at first use. If the file is damaged, only this
    /// repository is affected, and the file stays unchanged. Does not wait if the database is already open.
    pub async fn repository_database(&self, repo: RepoId) -> Result<Arc<RepositoryDatabase>, StoreError> {
        match self.repositories.get_open(repo) {
            Some(open) => Ok(open),
            None => self.open_repository_database(repo).await,
        }
    }

    /// Like [`repository_database`](Self::repository_database), but does not create the database if it is missing.
    pub async fn existing_repository_database(
        &self,
        repo: RepoId,
    ) -> Result<Option<Arc<RepositoryDatabase>>, StoreError> {
        if let Some(open) = self.repositories.get_open(repo) {
            return Ok(Some(open));
        }
        if self.cluster.is_some() {
            let sql = "SELECT EXISTS (SELECT 1 FROM all_run WHERE repo = ?1)";
            let any =
                self.main.read(move |tx| tx.query_row(sql, [to_signed(repo.0)], |row| row.get(0))).await?;
            return if any { self.open_repository_database(repo).await.map(Some) } else { Ok(None) };
        }
        let directory = self.repo_dir(repo);
        if directory.join(repository::CHECKPOINTS_FILE).exists() {
            return self.open_repository_database(repo).await.map(Some);
        }
        refuse_lost_database(&directory)?;
        Ok(None)
    }

    async fn open_repository_database(&self, repo: RepoId) -> Result<Arc<RepositoryDatabase>, StoreError> {
        let (directory, epoch, lock) = (self.repo_dir(repo), self.epoch, Arc::clone(&self.lock));
        let (clock, watch) = (Arc::clone(&self.clock), Arc::clone(&self.commit_watch));
        let kept = UpgradeCopies::for_repository(&self.root, repo, clock.now());
        if let Some(cluster) = &self.cluster {
            let part = PostgresScope::new(Arc::clone(&cluster.pool), Some(repo));
            let served = move |_| {
                create_directory(&directory)?;
                Ok(RepositoryDatabase::from_postgres(
                    repo,
                    epoch,
                    Database::from_postgres(part, watch),
                    clock,
                ))
            };
            return self.repositories.get_or_open(repo, served).await;
        }
        let open = move |opening| {
            let _nobody_elses_yet = lock;
            create_directory(&directory)?;
            refuse_lost_database(&directory)?;
            RepositoryDatabase::open((&directory, repo, epoch), clock, watch, opening, &kept)
        };
        self.repositories.get_or_open(repo, open).await
    }

    /// Returns every repository that has a database, ordered by ID.
    pub async fn repositories(&self) -> Result<Vec<RepoId>, StoreError> {
        match &self.cluster {
            Some(_) => self.main.read(repositories_with_runs).await,
            None => repositories_in(&self.root),
        }
    }

    /// Like [`repositories`](Self::repositories), but blocks the calling thread.
    fn repositories_blocking(&self) -> Result<Vec<RepoId>, StoreError> {
        match &self.cluster {
            Some(_) => self.main.read_blocking(repositories_with_runs),
            None => repositories_in(&self.root),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(cluster) = self.cluster.take() {
            // Closing connections blocks, and the dropping thread may not be allowed to.
            let left = thread::spawn(move || {
                cluster.leave();
                drop(cluster);
            });
            drop(left.join());
        }
    }
}

/// A PostgreSQL server that several nodes share.
#[derive(Debug, Clone)]
pub struct PostgresServer {
    /// Connection URL in the form `postgres://user:password@host/database`.
    pub address: SecretString,
    /// Duration of a node's lease. A node that does not renew its lease for this long loses its claims. The lease must
    /// therefore be longer than a failover of the database.
    pub lease: Duration,
}

fn repositories_with_runs(tx: &Transaction<'_>) -> Result<Vec<RepoId>, TransactionError> {
    let mut statement = tx.prepare("SELECT DISTINCT repo FROM all_run ORDER BY repo")?;
    let repos = statement.query_map([], |row| Ok(RepoId(to_unsigned(row.get(0)?))))?;
    repos.collect()
}

/// Returns whether a process has this data directory open. Does not create a lock file.
pub fn in_use(root: &Path) -> Result<bool, StoreError> {
    if !root.join(LOCK_FILE).exists() {
        return Ok(false);
    }
    match lock_directory(root) {
        Ok(_) => Ok(false),
        Err(StoreError::InUse { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Maximum number of attempts to lock the data directory. Retries are needed because a child process between fork and
/// exec still holds the lock of a store that was closed.
const LOCK_TRIES: u32 = 20;
const LOCK_WAIT: Duration = Duration::from_millis(10);

fn lock_directory(root: &Path) -> Result<fs::File, StoreError> {
    let path = root.join(LOCK_FILE);
    let io = |source| StoreError::Io { path: path.clone(), source };
    let lock =
        fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path).map_err(io)?;
    for _ in 0..LOCK_TRIES {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK) => thread::sleep(LOCK_WAIT),
            Err(errno) => return Err(io(errno.into())),
        }
    }
    Err(StoreError::InUse { directory: root.to_owned() })
}

/// Runs slow file operations on the thread pool for blocking work.
async fn run_blocking<V: Send + 'static>(
    work: impl FnOnce() -> Result<V, StoreError> + Send + 'static,
) -> Result<V, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closing), // the runtime is shutting down
        },
    }
}

/// Returns the repositories in a data directory that have a database.
fn repositories_in(root: &Path) -> Result<Vec<RepoId>, StoreError> {
    let with_database = |(_, folder): &(RepoId, PathBuf)| folder.join(repository::CHECKPOINTS_FILE).exists();
    Ok(folders_in(root)?.into_iter().filter(with_database).map(|(repo, _)| repo).collect())
}

/// Returns the repositories in a data directory that have a folder, with the path of each folder.
fn folders_in(root: &Path) -> Result<Vec<(RepoId, PathBuf)>, StoreError> {
    let path = root.join("repos");
    let io = |source| StoreError::Io { path: path.clone(), source };
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io)?.collect::<Result<Vec<_>, _>>().map_err(io)?,
    };
    let mut found: Vec<_> = entries
        .into_iter()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Reads the last boot number from the lock file. A `main.db` with a different boot number is new or was restored from
/// a backup.
fn last_boot(mut lock: &fs::File) -> Option<String> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok().map(|_| text.trim().to_owned())
}

/// Increments the boot number. Returns the new number, whether `main.db` differs from the one used by the last boot,
/// and the initial agenda.
fn count_boot(
    tx: &Transaction<'_>,
    mark: Option<&str>,
    repos: &[RepoId],
) -> Result<(i64, bool, Agenda), TransactionError> {
    let before: Option<String> =
        tx.query_row("SELECT value FROM meta WHERE key = 'epoch'", [], |row| row.get(0)).optional()?;
    // A replaced `main.db` may lack repositories that exist on disk.
    let strange = before.is_none() || before.as_deref() != mark;
    if strange {
        wake_hints::insert_hints(tx, repos)?;
    }
    spend::mark_stale_at_boot(tx, if strange { repos } else { &[] })?;
    let epoch = before.and_then(|value| value.parse::<i64>().ok()).unwrap_or(0) + 1;
    installation_registry::set_meta(tx, "epoch", &epoch.to_string())?;
    let paused = pauses::read_pauses(tx)?.into_iter().map(|pause| pause.scope);
    Ok((
        epoch,
        strange,
        Agenda::at_boot(
            wake_hints::hinted_repositories(tx)?,
            paused,
            installation_registry::suspended_installations(tx)?,
        ),
    ))
}

/// Refuses a folder that contains files but no database. A new database would number its runs from 1 again, and would
/// mistake what the lost runs left on GitHub for results of its own runs.
fn refuse_lost_database(directory: &Path) -> Result<(), StoreError> {
    let (file, unfinished) = (
        directory.join(repository::CHECKPOINTS_FILE),
        format!("{}{UNFINISHED_SUFFIX}", repository::CHECKPOINTS_FILE),
    );
    // Another thread may be creating the database; its files, including the journal, do not count.
    let is_unfinished = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(&unfinished);
    let used =
        |entry: std::io::Result<fs::DirEntry>| entry.is_ok_and(|entry| !is_unfinished(&entry.file_name()));
    let used = fs::read_dir(directory).is_ok_and(|mut entries| entries.any(used));
    if used && !file.exists() { Err(StoreError::Lost { file }) } else { Ok(()) }
}

/// Creates a directory with mode 0700. If the directory exists, changes its mode to 0700.
fn create_directory(path: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        // An existing directory may be open to others.
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
        .map_err(|source| StoreError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
