//! The databases: the only room that knows SQL.
//!
//! A data directory holds `main.db` (inbox, installations, repositories, wake hints) and, for each
//! repository, `repos/<id>/checkpoints.db` (runs, their journals, documents and ledgers) beside its
//! mirror. One process at a time may have the directory. Every function is one transaction on one
//! file; what must hold across files is said in `hints`. Nothing here decides anything: no
//! workflow, no GitHub, no rule about who may do what.

mod agenda;
mod backup;
mod check;
mod database;
mod directory;
mod error;
mod gathered;
mod gone;
mod hints;
mod inbox;
mod packer;
mod patrol;
mod pauses;
mod repository;
mod rows;
mod shelf;
mod wake;

use std::{
    fs,
    io::Read,
    os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FlockOperation, flock};

use self::{
    agenda::Agenda,
    database::{Database, Schema, Traffic, Watch},
    error::Fault,
    shelf::Shelf,
};
pub use self::{
    backup::BackedUp,
    check::{Checked, check},
    database::Disk,
    directory::{Directory, InstallationRow, RepoRow},
    error::StoreError,
    gathered::{Calls, Gathered, Tally},
    inbox::{Accepted, Ending, Inbox, InboxCounts, NewDelivery, Subject, Taken},
    patrol::LabelingKey,
    repository::RepoDb,
    rows::*,
};
use crate::{clock::SharedClock, types::RepoId};

const MAIN: Schema = Schema {
    mark: 0x4353_6d31,
    migrations: &[include_str!("migrations/main-1.sql"), include_str!("migrations/main-2.sql")],
    traffic: Traffic::Busy,
};

/// The open data directory.
pub struct Store {
    root: PathBuf,
    main: Database,
    clock: SharedClock,
    /// Counts boots; what an older boot had taken is free.
    epoch: i64,
    repositories: Shelf,
    agenda: Agenda,
    watch: Watch,
    inbox: inbox::Memory,
    /// Locked for as long as the store is open.
    _lock: fs::File,
}

impl Store {
    /// Opens (or creates) a data directory for this process alone and counts the boot.
    pub fn open(root: &Path, clock: SharedClock) -> Result<Arc<Self>, StoreError> {
        create_directory(root)?;
        let lock_path = root.join("lock");
        let io = |source| StoreError::Io { path: lock_path.clone(), source };
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&lock_path)
            .map_err(io)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::InUse { directory: root.to_owned() });
            }
            Err(errno) => return Err(io(errno.into())),
        }
        gone::sweep(root);
        let file = root.join("main.db");
        let watch = Watch::default();
        let main = Database::open(&file, &MAIN, Arc::clone(&watch))?;
        let now = clock.now();
        let (mark, repos) = (last_boot(&lock), repositories_in(root)?);
        let ((epoch, agenda), suspects) = main.write_now(|tx| {
            patrol::begin_sweeping(tx, now)?;
            Ok((boot(tx, mark.as_deref(), &repos)?, inbox::boot(tx, now)?))
        })?;
        // If this fails, the next boot looks into every repository, and finds nothing amiss.
        drop(lock.write_all_at(format!("{epoch:>20}").as_bytes(), 0));
        Ok(Arc::new(Self {
            root: root.to_owned(),
            main,
            clock,
            epoch,
            repositories: Shelf::default(),
            agenda,
            watch,
            inbox: inbox::Memory::after_boot(suspects),
            _lock: lock,
        }))
    }

    /// Calls `told` after every commit, with the file it went to, before the caller hears of it: where a crash
    /// could come. For proofs that none does harm. Only the first watcher is kept.
    pub fn watch(&self, told: impl Fn(&Path) + Send + Sync + 'static) {
        let _ = self.watch.told.set(Box::new(told));
    }

    /// Makes every write from now on meet this disk. For proofs that nothing is lost by it.
    pub fn pretend(&self, disk: Disk) {
        self.watch.pretend(disk);
    }

    pub fn inbox(&self) -> Inbox<'_> {
        Inbox { store: self }
    }

    pub fn directory(&self) -> Directory<'_> {
        Directory { store: self }
    }

    /// Where the repositories lie, each under its number.
    pub fn repos_dir(&self) -> PathBuf {
        self.root.join("repos")
    }

    /// Where everything of a repository lies: `checkpoints.db` and `mirror.git`.
    pub fn repo_dir(&self, repo: RepoId) -> PathBuf {
        self.repos_dir().join(repo.to_string())
    }

    /// The repository's own database, created at its first use. A damaged one is an error for this
    /// repository only, and is left as it is.
    pub fn repo(&self, repo: RepoId) -> Result<Arc<RepoDb>, StoreError> {
        self.repositories.get(repo, |opening| {
            let directory = self.repo_dir(repo);
            create_directory(&directory)?;
            refuse_loss(&directory)?;
            let (clock, watch) = (Arc::clone(&self.clock), Arc::clone(&self.watch));
            RepoDb::open(&directory, repo, self.epoch, clock, watch, opening)
        })
    }

    /// The same, but a repository that has no database yet is not given one.
    pub fn repo_if_any(&self, repo: RepoId) -> Result<Option<Arc<RepoDb>>, StoreError> {
        let directory = self.repo_dir(repo);
        if directory.join(repository::FILE).exists() {
            return self.repo(repo).map(Some);
        }
        refuse_loss(&directory)?;
        Ok(None)
    }

    /// Every repository that has a database, by number.
    pub fn repos(&self) -> Result<Vec<RepoId>, StoreError> {
        repositories_in(&self.root)
    }
}

fn repositories_in(root: &Path) -> Result<Vec<RepoId>, StoreError> {
    let path = root.join("repos");
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StoreError::Io { path, source }),
    };
    let mut found: Vec<RepoId> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join(repository::FILE).exists())
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// The boot that is noted in the lock's file. A `main.db` that does not know of it is not the one that was here last:
/// it is new, or came from a backup.
fn last_boot(mut lock: &fs::File) -> Option<String> {
    let mut text = String::new();
    lock.read_to_string(&mut text).ok().map(|_| text.trim().to_owned())
}

/// A new epoch, and what there is to do in it.
fn boot(
    tx: &rusqlite::Transaction<'_>,
    mark: Option<&str>,
    repos: &[RepoId],
) -> Result<(i64, Agenda), Fault> {
    let before: Option<String> = rusqlite::OptionalExtension::optional(tx.query_row(
        "SELECT value FROM meta WHERE key = 'epoch'",
        [],
        |row| row.get(0),
    ))?;
    // It may not know all that lies beside it.
    if before.is_none() || before.as_deref() != mark {
        hints::note(tx, repos)?;
    }
    let epoch = before.and_then(|value| value.parse::<i64>().ok()).unwrap_or(0) + 1;
    directory::set_meta(tx, "epoch", &epoch.to_string())?;
    let paused = pauses::all(tx)?.into_iter().map(|pause| pause.scope);
    Ok((epoch, Agenda::at_boot(hints::all(tx)?, paused, directory::suspended(tx)?)))
}

/// A folder with a mirror and no database has lost it. A new one would number its runs from 1 again, and take
/// what the lost ones left on GitHub for its own.
fn refuse_loss(directory: &Path) -> Result<(), StoreError> {
    let file = directory.join(repository::FILE);
    let used = fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
    if used && !file.exists() { Err(StoreError::Lost { file }) } else { Ok(()) }
}

/// Creates a directory that only we may read; one that was there is closed to others.
fn create_directory(path: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        // One that was there before may stand open to others.
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
        .map_err(|source| StoreError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        types::{Actor, Cause, DeliveryId, Hash, InstallationId, IssueNo, Role, Timestamp, UserId},
    };
    use std::{collections::HashSet, future::Future, pin::Pin, time::Duration};

    struct Fixed(Timestamp);

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            self.0
        }

        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::pending())
        }
    }

    const NOW: Timestamp = Timestamp(1_000_000);

    fn clock() -> SharedClock {
        Arc::new(Fixed(NOW))
    }

    fn open(root: &Path) -> Result<Arc<Store>, StoreError> {
        Store::open(root, clock())
    }

    fn delivery(id: &str, body: &str) -> NewDelivery {
        let subject = Subject { installation: Some(InstallationId(7)), ..Subject::default() };
        NewDelivery {
            id: DeliveryId(id.into()),
            event: "issues".into(),
            subject,
            swept: false,
            body: body.into(),
        }
    }

    fn new_run(repo: RepoId, cause: &str) -> NewRun {
        let actor = Actor { id: UserId(1), login: "ada".into(), bot: false };
        let trigger = Trigger {
            command: "lld".into(),
            args: String::new(),
            repo,
            installation: InstallationId(7),
            issue: IssueNo(42),
            actor,
            role: Role::Triage,
            cause: Cause(cause.into()),
            at: NOW,
            comment: None,
        };
        NewRun { workflow: "lld".into(), version: 1, trigger, step: "\"Load\"".into(), state: b"{}".to_vec() }
    }

    #[test]
    fn a_directory_has_one_owner_and_only_we_may_read_it() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        let first = open(&data).unwrap();
        let mode = fs::metadata(&data).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let refused = open(&data).err().unwrap();
        assert!(matches!(&refused, StoreError::InUse { directory } if *directory == data), "{refused}");
        drop(first);
        assert!(open(&data).is_ok());
    }

    #[test]
    fn a_newer_database_is_refused() {
        let root = tempfile::tempdir().unwrap();
        drop(open(root.path()).unwrap());
        let file = root.path().join("main.db");
        let connection = rusqlite::Connection::open(&file).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        drop(connection);
        let refused = open(root.path()).err().unwrap();
        assert!(matches!(refused, StoreError::Newer { found: 99, known: 2, .. }), "{refused}");
        assert!(refused.to_string().contains("main.db"));
    }

    #[test]
    fn damaged_and_foreign_files_are_named_and_left_alone() {
        let root = tempfile::tempdir().unwrap();
        drop(open(root.path()).unwrap());
        let file = root.path().join("main.db");
        let sound = fs::read(&file).unwrap();

        let mut torn = sound.clone();
        torn[4096..].fill(0xA5); // every page but the first
        let foreign = {
            let other = root.path().join("other.db");
            let connection = rusqlite::Connection::open(&other).unwrap();
            connection.execute_batch("CREATE TABLE t (x); PRAGMA application_id = 7").unwrap();
            drop(connection);
            fs::read(&other).unwrap()
        };
        for bytes in [b"not a database at all, but long enough for a header".repeat(40), torn, foreign] {
            fs::write(&file, &bytes).unwrap();
            let refused = open(root.path()).err().unwrap();
            assert!(
                matches!(&refused, StoreError::Damaged { file: named, .. } if *named == file),
                "{refused}"
            );
            assert!(fs::read(&file).unwrap() == bytes, "the file was changed");
        }
        fs::write(&file, sound).unwrap();
        assert!(open(root.path()).is_ok());
    }

    #[tokio::test]
    async fn a_damaged_repository_keeps_nobody_else_waiting() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path()).unwrap();
        let (broken, sound) = (RepoId(1), RepoId(2));
        store.start_run(new_run(broken, "a")).await.unwrap();
        store.start_run(new_run(sound, "b")).await.unwrap();
        drop(store);
        let file = root.path().join("repos/1/checkpoints.db");
        let junk = b"junk".repeat(4096);
        fs::write(&file, &junk).unwrap();

        let store = open(root.path()).unwrap();
        let error = store.repo(broken).err().unwrap();
        assert!(error.to_string().contains("repos/1/checkpoints.db"), "{error}");
        let lease = store.claim_run(NOW, &HashSet::new()).await.unwrap().unwrap();
        assert_eq!(lease.run.id.repo, sound);
        assert!(fs::read(&file).unwrap() == junk);
        assert!(store.claim_run(NOW, &HashSet::new()).await.unwrap().is_none());
        let again = NOW.plus(crate::limits::DAMAGED_RETRY);
        assert_eq!(store.next_due(), Some(again), "the broken one is looked at again");
    }

    #[tokio::test]
    async fn a_delivery_is_kept_once_and_a_dead_one_comes_back() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path()).unwrap();
        let inbox = store.inbox();
        assert_eq!(inbox.accept(delivery("g1", "one")).await.unwrap(), Accepted::New);
        assert_eq!(inbox.accept(delivery("g1", "two")).await.unwrap(), Accepted::Duplicate);
        assert_eq!(inbox.accept(delivery("g2", "three")).await.unwrap(), Accepted::New);
        let taken = inbox.claim().await.unwrap().unwrap();
        assert_eq!(
            (taken.id.0.as_str(), taken.body().unwrap().as_slice(), taken.attempts),
            ("g1", &b"one"[..], 1)
        );
        let ended = |id: &DeliveryId, ending| inbox.end(vec![(id.clone(), ending)]);
        ended(&taken.id, Ending::Dead("not JSON".into())).await.unwrap();
        assert_eq!(inbox.accept(delivery("g1", "again")).await.unwrap(), Accepted::Rearmed);
        assert_eq!(inbox.claim().await.unwrap().unwrap().body().unwrap(), b"again");
        ended(&taken.id, Ending::Done("started 1-1".into())).await.unwrap();
        assert_eq!(inbox.accept(delivery("g1", "late")).await.unwrap(), Accepted::Duplicate);

        let other = inbox.claim().await.unwrap().unwrap();
        let at = NOW.plus(Duration::from_secs(5));
        let later = Ending::Later { why: "GitHub is down".into(), at, holds: at };
        ended(&other.id, later).await.unwrap();
        assert_eq!(inbox.claim().await.unwrap(), None);
        assert_eq!(inbox.next_due().await.unwrap(), Some(at));
        assert_eq!(inbox.counts().await.unwrap(), InboxCounts { new: 1, taken: 0, done: 1, dead: 0 });
    }

    #[tokio::test]
    async fn what_an_older_boot_had_taken_is_free() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path()).unwrap();
        store.inbox().accept(delivery("g1", "one")).await.unwrap();
        store.start_run(new_run(RepoId(3), "a")).await.unwrap();
        store.inbox().claim().await.unwrap().unwrap();
        let old = store.claim_run(NOW, &HashSet::new()).await.unwrap().unwrap();
        assert!(store.inbox().claim().await.unwrap().is_none());
        assert!(store.claim_run(NOW, &HashSet::new()).await.unwrap().is_none());
        assert_eq!(store.next_due(), None, "nothing to do before the next boot");
        drop(store);

        let store = open(root.path()).unwrap();
        assert_eq!(store.inbox().claim().await.unwrap().unwrap().attempts, 2);
        let new = store.claim_run(NOW, &HashSet::new()).await.unwrap().unwrap();
        assert_eq!(new.run.id, old.run.id);
        let left = || Checkpoint::Go { step: "\"Draft\"".into(), state: b"{}".to_vec(), moves: 1 };
        assert!(matches!(store.save_step(&old, left()).await, Err(StoreError::Fenced)));
        store.save_step(&new, left()).await.unwrap();
        assert!(
            matches!(store.save_step(&new, left()).await, Err(StoreError::Fenced)),
            "a lease is for one save"
        );
    }

    #[tokio::test]
    async fn a_name_belongs_to_the_repository_last_seen_under_it() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path()).unwrap();
        let directory = store.directory();
        let row = |id, name: &str| RepoRow {
            id: RepoId(id),
            installation: InstallationId(7),
            name: name.parse().unwrap(),
        };
        directory.saw_repository(row(1, "Acme/shop")).await.unwrap();
        directory.saw_repository(row(1, "acme/store")).await.unwrap(); // renamed
        directory.saw_repository(row(2, "acme/Shop")).await.unwrap(); // a new one takes the name
        let named = directory.repository_named(&"ACME/shop".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(named.id, RepoId(2));
        assert_eq!(
            directory.repository(RepoId(1)).await.unwrap().unwrap().name,
            "acme/store".parse().unwrap()
        );
        directory.saw_repository(row(1, "acme/shop")).await.unwrap(); // and gives it back
        let named = directory.repository_named(&"acme/shop".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(named.id, RepoId(1));
    }

    #[tokio::test]
    async fn documents_are_kept_by_hash_and_the_audit_chain_shows_tampering() {
        let root = tempfile::tempdir().unwrap();
        let store = open(root.path()).unwrap();
        let Opened::New(run) = store.start_run(new_run(RepoId(3), "a")).await.unwrap() else { panic!() };
        let repo = store.repo(RepoId(3)).unwrap();
        let lease = store.claim_run(NOW, &HashSet::new()).await.unwrap().unwrap();
        let text = "a design ".repeat(50_000).into_bytes();
        let hash = store.put_document(&lease, &text).unwrap();
        assert_eq!((hash, store.put_document(&lease, &text).unwrap()), (Hash::of(&text), hash));
        assert_eq!(store.get_document(&lease, hash).await.unwrap(), text, "readable before it is written");
        assert!(matches!(repo.get(hash).await, Err(StoreError::Missing { .. })));

        let entry = |key: &str| AuditEntry {
            run,
            visit: 1,
            key: key.into(),
            what: "approved".into(),
            detail: serde_json::json!({ "by": key }),
        };
        let first = repo.audit(&lease.gathered, entry("ada")).await.unwrap();
        assert_eq!(repo.get(hash).await.unwrap(), text, "written with what may refer to it");
        let second = repo.audit(&lease.gathered, entry("lin")).await.unwrap();
        assert_eq!(repo.audit(&lease.gathered, entry("ada")).await.unwrap(), first);
        let mut chain = repo.audit_chain().await.unwrap();
        assert_eq!((chain.len(), chain[1].previous, chain[1].hash), (2, first, second));
        assert!(chain.iter().all(AuditRow::sound));
        chain[0].detail = serde_json::json!({ "by": "eve" });
        assert!(!chain[0].sound());
    }
}
