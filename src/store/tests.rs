//! Tests of the data directory as a whole, and shared test helpers.

use futures_util::{StreamExt, future::join_all, poll, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    clock::Clock,
    types::{
        Actor, Cause, DeliveryId, Hash, InstallationId, IssueNo, MicroUsd, Role, RunId, Timestamp, UserId,
    },
};
use std::{collections::HashSet, future::Future, pin::Pin, time::Duration};

struct StoreTestClock(Timestamp);

impl Clock for StoreTestClock {
    fn now(&self) -> Timestamp {
        self.0
    }

    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

const NOW: Timestamp = Timestamp(1_000_000);

fn clock() -> SharedClock {
    Arc::new(StoreTestClock(NOW))
}

fn open(root: &Path) -> Result<Arc<Store>, StoreError> {
    Store::open(root, clock())
}

fn delivery(id: &str, body: &str) -> NewDelivery {
    let subject = DeliverySubject { installation: Some(InstallationId(7)), ..DeliverySubject::default() };
    NewDelivery {
        id: DeliveryId(id.into()),
        event: "issues".into(),
        subject,
        swept: false,
        body: body.into(),
    }
}

/// Returns a new `lld` run on an issue, for installation 7.
pub(super) fn new_run(repo: RepoId, issue: u64) -> NewRun {
    let actor = Actor { id: UserId(1), login: "ada".into(), bot: false };
    let trigger = RunTrigger {
        command: "lld".into(),
        args: String::new(),
        repo,
        installation: InstallationId(7),
        issue: IssueNo(issue),
        actor,
        role: Role::Triage,
        cause: Cause(format!("{repo}-{issue}")),
        at: NOW,
        comment: None,
        request: None,
    };
    NewRun { workflow: "lld".into(), version: 1, trigger, step: "\"Load\"".into(), state: b"{}".to_vec() }
}

/// Claims a run after scanning all due repositories.
pub(super) async fn claim_after_scans(store: &Store, now: Timestamp) -> Option<RunLease> {
    for _ in 0..2 {
        if let Some(lease) = store.claim_run(now, &HashSet::new()).await.unwrap() {
            return Some(lease);
        }
        join_all(store.live_run_scans(now)).await;
    }
    store.claim_run(now, &HashSet::new()).await.unwrap()
}

#[test]
fn data_directory_is_private_and_used_by_one_server() {
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
fn database_written_by_a_newer_version_is_refused() {
    let root = tempfile::tempdir().unwrap();
    drop(open(root.path()).unwrap());
    let file = root.path().join("main.db");
    let connection = rusqlite::Connection::open(&file).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let refused = open(root.path()).err().unwrap();
    assert!(matches!(refused, StoreError::Newer { found: 99, known: 7, .. }), "{refused}");
    assert!(refused.to_string().contains("main.db"));
}

#[test]
fn damaged_or_foreign_database_file_is_refused_and_not_changed() {
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
        assert!(matches!(&refused, StoreError::Damaged { file: named, .. } if *named == file), "{refused}");
        assert!(fs::read(&file).unwrap() == bytes, "the file was changed");
    }
    fs::write(&file, sound).unwrap();
    assert!(open(root.path()).is_ok());
}

/// Returns the problems that `check` finds in a data directory. Each entry names the affected file.
fn problems(root: &Path) -> Vec<String> {
    let checked = check_databases(&root.into()).unwrap().into_iter();
    checked
        .flat_map(|part| part.problems.into_iter().map(move |why| format!("{}: {why}", part.place)))
        .collect()
}

#[tokio::test]
async fn empty_or_truncated_database_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    store.start_run(new_run(RepoId(3), 42)).await.unwrap();
    drop(store);
    for place in ["main.db", "repos/3/checkpoints.db"] {
        let file = root.path().join(place);
        let sound = fs::read(&file).unwrap();
        assert_eq!(problems(root.path()), [""; 0]);
        let cut = [0, 1, 40, 100, 4096, sound.len() / 2 / 4096 * 4096].map(|size| sound[..size].to_vec());
        for bytes in cut.into_iter().chain([vec![0; sound.len()]]) {
            fs::write(&file, &bytes).unwrap();
            let refused = match open(root.path()) {
                Ok(store) => store.repository_database(RepoId(3)).await.err(),
                Err(error) => Some(error),
            };
            let Some(StoreError::Damaged { file: named, .. }) = &refused else {
                panic!("{place} of {} bytes: {refused:?}", bytes.len())
            };
            assert_eq!(*named, file);
            assert!(fs::read(&file).unwrap() == bytes, "the file was changed");
            let wrong = problems(root.path());
            assert!(!wrong.is_empty() && wrong.iter().all(|why| why.starts_with(place)), "{wrong:?}");
            let copied =
                create_backup(&root.path().into(), &root.path().join("copy"), &CancellationToken::new());
            assert!(!copied.is_ok_and(|copied| copied.missing.is_empty()), "a damaged file was copied");
            drop(fs::remove_dir_all(root.path().join("copy")));
        }
        fs::write(&file, sound).unwrap();
    }
    // An orphaned log would turn into a new main.db.
    fs::write(root.path().join("main.db-wal"), b"log").unwrap();
    fs::remove_file(root.path().join("main.db")).unwrap();
    assert!(open(root.path()).err().unwrap().to_string().contains("main.db"));
}

#[tokio::test]
async fn store_check_reports_repositories_without_a_database() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    for (repo, name) in [(1, "lost"), (2, "folderless"), (3, "seen")] {
        let name = crate::types::RepoName { owner: "ada".into(), name: name.into() };
        let row = RepositoryRow { id: RepoId(repo), installation: InstallationId(7), name };
        store.installation_registry().record_repository(row).await.unwrap();
        if repo < 3 {
            store.start_run(new_run(RepoId(repo), 42)).await.unwrap();
        }
    }
    drop(store);
    assert_eq!(problems(root.path()), [""; 0]);
    fs::create_dir(root.path().join("repos/1/mirror.git")).unwrap();
    fs::remove_file(root.path().join("repos/1/checkpoints.db")).unwrap();
    fs::remove_dir_all(root.path().join("repos/2")).unwrap();
    let wrong = problems(root.path());
    let [lost, folderless] = &wrong[..] else { panic!("{wrong:?}") };
    assert!(lost.starts_with("repos/1/checkpoints.db: ") && lost.contains("is missing although"), "{lost}");
    assert!(folderless.contains("ada/folderless has unfinished runs, and no folder"), "{folderless}");
    let checked = check_databases(&root.path().into()).unwrap();
    assert!(checked.iter().any(|part| part.contents.contains("ada/seen has no folder")), "{checked:?}");
}

#[tokio::test]
async fn damaged_repository_does_not_delay_other_repositories() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    let (broken, sound) = (RepoId(1), RepoId(2));
    store.start_run(new_run(broken, 42)).await.unwrap();
    store.start_run(new_run(sound, 42)).await.unwrap();
    drop(store);
    let file = root.path().join("repos/1/checkpoints.db");
    let junk = b"junk".repeat(4096);
    fs::write(&file, &junk).unwrap();

    let store = open(root.path()).unwrap();
    let error = store.repository_database(broken).await.err().unwrap();
    assert!(error.to_string().contains("repos/1/checkpoints.db"), "{error}");
    let lease = claim_after_scans(&store, NOW).await.unwrap();
    assert_eq!(lease.run.id.repo, sound);
    assert!(fs::read(&file).unwrap() == junk);
    assert!(claim_after_scans(&store, NOW).await.is_none());
    let again = NOW.plus(crate::limits::DAMAGED_RETRY);
    assert_eq!(store.next_due(), Some(again), "the broken one is looked at again");
}

#[tokio::test]
async fn duplicate_delivery_is_ignored_unless_the_first_one_is_marked_dead() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    let inbox = store.inbox();
    assert_eq!(inbox.accept_delivery(delivery("g1", "one")).await.unwrap(), DeliveryReceipt::New);
    assert_eq!(inbox.accept_delivery(delivery("g1", "two")).await.unwrap(), DeliveryReceipt::Duplicate);
    assert_eq!(inbox.accept_delivery(delivery("g2", "three")).await.unwrap(), DeliveryReceipt::New);
    let taken = inbox.claim().await.unwrap().unwrap();
    assert_eq!(
        (taken.id.0.as_str(), taken.body().unwrap().as_slice(), taken.attempts),
        ("g1", &b"one"[..], 1)
    );
    let ended = |id: &DeliveryId, ending| inbox.record_dispositions(vec![(id.clone(), ending)]);
    ended(&taken.id, DeliveryDisposition::Dead("not JSON".into())).await.unwrap();
    assert_eq!(inbox.accept_delivery(delivery("g1", "again")).await.unwrap(), DeliveryReceipt::Rearmed);
    assert_eq!(inbox.claim().await.unwrap().unwrap().body().unwrap(), b"again");
    ended(&taken.id, DeliveryDisposition::Done("started 1-1".into())).await.unwrap();
    assert_eq!(inbox.accept_delivery(delivery("g1", "late")).await.unwrap(), DeliveryReceipt::Duplicate);

    let other = inbox.claim().await.unwrap().unwrap();
    let at = NOW.plus(Duration::from_secs(5));
    let later = DeliveryDisposition::PutOff { why: "GitHub is down".into(), at, holds: at };
    ended(&other.id, later).await.unwrap();
    assert_eq!(inbox.claim().await.unwrap(), None);
    assert_eq!(inbox.next_due().await.unwrap(), Some(at));
    assert_eq!(inbox.counts().await.unwrap(), InboxCounts { new: 1, taken: 0, done: 1, dead: 0 });
}

#[tokio::test]
async fn run_and_delivery_claims_from_before_a_restart_are_released() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    store.inbox().accept_delivery(delivery("g1", "one")).await.unwrap();
    store.start_run(new_run(RepoId(3), 42)).await.unwrap();
    store.inbox().claim().await.unwrap().unwrap();
    let old = claim_after_scans(&store, NOW).await.unwrap();
    assert!(store.inbox().claim().await.unwrap().is_none());
    assert!(claim_after_scans(&store, NOW).await.is_none());
    assert_eq!(store.next_due(), None, "nothing to do before the next boot");
    drop(store);

    let store = open(root.path()).unwrap();
    assert_eq!(store.inbox().claim().await.unwrap().unwrap().attempts, 2);
    let new = claim_after_scans(&store, NOW).await.unwrap();
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
async fn repository_name_resolves_to_the_repository_last_seen_with_it() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    let directory = store.installation_registry();
    let row = |id, name: &str| RepositoryRow {
        id: RepoId(id),
        installation: InstallationId(7),
        name: name.parse().unwrap(),
    };
    directory.record_repository(row(1, "Acme/shop")).await.unwrap();
    directory.record_repository(row(1, "acme/store")).await.unwrap(); // renamed
    directory.record_repository(row(2, "acme/Shop")).await.unwrap(); // a new one takes the name
    let named = directory.repository_named(&"ACME/shop".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(named.id, RepoId(2));
    assert_eq!(directory.repository(RepoId(1)).await.unwrap().unwrap().name, "acme/store".parse().unwrap());
    directory.record_repository(row(1, "acme/shop")).await.unwrap(); // and gives it back
    let named = directory.repository_named(&"acme/shop".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(named.id, RepoId(1));
}

#[tokio::test]
async fn documents_are_stored_by_hash_and_audit_chain_detects_tampering() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    let StartDecision::New(run) = store.start_run(new_run(RepoId(3), 42)).await.unwrap() else { panic!() };
    let repo = store.repository_database(RepoId(3)).await.unwrap();
    let lease = claim_after_scans(&store, NOW).await.unwrap();
    let text = "a design ".repeat(50_000).into_bytes();
    let hash = store.put_document(&lease, &text).unwrap();
    assert_eq!((hash, store.put_document(&lease, &text).unwrap()), (Hash::digest(&text), hash));
    assert_eq!(store.get_document(&lease, hash).await.unwrap(), text, "readable before it is written");
    assert!(matches!(repo.get_document(hash).await, Err(StoreError::Missing { .. })));

    let entry = |key: &str| AuditEntry {
        run,
        visit: 1,
        key: key.into(),
        what: "approved".into(),
        detail: serde_json::json!({ "by": key }),
    };
    let first = repo.append_audit_link(&lease.pending_writes, entry("ada")).await.unwrap();
    assert_eq!(repo.get_document(hash).await.unwrap(), text, "written with what may refer to it");
    let second = repo.append_audit_link(&lease.pending_writes, entry("lin")).await.unwrap();
    assert_eq!(repo.append_audit_link(&lease.pending_writes, entry("ada")).await.unwrap(), first);
    let mut chain = repo.audit_chain().await.unwrap();
    // The start of the run is the first link.
    assert_eq!((chain.len(), chain[2].previous, chain[2].hash), (3, first, second));
    assert!(chain.iter().all(AuditRow::has_valid_hash));
    chain[0].detail = serde_json::json!({ "by": "eve" });
    assert!(!chain[0].has_valid_hash());
}

/// Locks a repository's database so that no other connection can read it.
fn lock_database(root: &Path, repo: RepoId) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(root.join(format!("repos/{repo}/checkpoints.db"))).unwrap();
    let alone = || connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
    while alone().ok().as_deref() != Some("delete") {
        thread::yield_now(); // a database that was dropped is closed by whoever used it last
    }
    connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
    connection
}

#[tokio::test]
async fn database_that_opens_slowly_does_not_delay_other_repositories() {
    let root = tempfile::tempdir().unwrap();
    let (slow, sound) = (RepoId(1), RepoId(2));
    let store = open(root.path()).unwrap();
    store.start_run(new_run(slow, 1)).await.unwrap();
    store.start_run(new_run(sound, 1)).await.unwrap();
    drop(store);
    let seized = lock_database(root.path(), slow);

    // A single-threaded runtime.
    let store = open(root.path()).unwrap();
    let mut starting = Box::pin(store.start_run(new_run(slow, 2)));
    assert!(poll!(&mut starting).is_pending());
    let mut looks: FuturesUnordered<_> = store.live_run_scans(NOW).into_iter().collect();
    assert_eq!(looks.len(), 2);
    looks.next().await;
    let lease = store.claim_run(NOW, &HashSet::new()).await.unwrap().unwrap();
    assert_eq!(lease.run.id.repo, sound);
    assert_eq!(store.inbox().accept_delivery(delivery("g1", "one")).await.unwrap(), DeliveryReceipt::New);
    assert!(store.claim_run(NOW, &HashSet::new()).await.unwrap().is_none());
    assert_eq!(store.next_due(), None, "the slow one is being opened");
    assert!(poll!(&mut starting).is_pending());

    drop(seized);
    assert!(matches!(starting.await.unwrap(), StartDecision::New(_)));
    assert!(looks.next().await.is_some());
    assert_eq!(store.claim_run(NOW, &HashSet::new()).await.unwrap().unwrap().run.id.repo, slow);
}

#[tokio::test]
async fn database_open_completes_once_even_if_its_first_caller_is_cancelled() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    store.start_run(new_run(RepoId(1), 1)).await.unwrap();
    drop(store);
    let seized = lock_database(root.path(), RepoId(1));
    let store = open(root.path()).unwrap();
    let mut given_up = Box::pin(store.repository_database(RepoId(1)));
    assert!(poll!(&mut given_up).is_pending());
    drop(given_up);
    let mut after = Box::pin(store.repository_database(RepoId(1)));
    assert!(poll!(&mut after).is_pending(), "it waits for the first");
    assert!(store.repositories.get_open(RepoId(1)).is_none());
    drop(seized);
    let opened = after.await.unwrap();
    assert_eq!(opened.audit_chain().await.unwrap().len(), 1);
    assert!(Arc::ptr_eq(&opened, &store.repository_database(RepoId(1)).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_reservations_stay_within_the_cap() {
    let root = tempfile::tempdir().unwrap();
    let asked = |repo: u64, run: u64| Reservation {
        run: RunId { repo: RepoId(repo), seq: run },
        visit: 1,
        key: "draft/1".into(),
        installation: InstallationId(7),
        amount: MicroUsd(1_000_000),
        repository_day: Some(MicroUsd(3_500_000)),
        installation_month: Some(MicroUsd(5_000_000)),
    };
    let ten = |store: &Arc<Store>, repo: u64| {
        let each = (1..=10).map(|run| {
            let (store, asked) = (Arc::clone(store), asked(repo, run));
            tokio::spawn(async move { store.reserve_budget(asked).await.unwrap() })
        });
        join_all(each.collect::<Vec<_>>())
    };
    let store = open(root.path()).unwrap();
    for repo in [1, 2] {
        store.repository_database(RepoId(repo)).await.unwrap();
    }
    let held = |answers: Vec<Result<ReservationOutcome, _>>| {
        answers.into_iter().filter(|answer| matches!(answer, Ok(ReservationOutcome::Granted))).count()
    };
    assert_eq!(held(ten(&store, 1).await), 3, "the repository's day");
    assert_eq!(held(ten(&store, 2).await), 2, "the installation's month");
    assert_eq!(
        store.reserve_budget(asked(3, 1)).await.unwrap(),
        ReservationOutcome::OverCap { cap: SharedCap::InstallationMonth, spent: MicroUsd(5_000_000) }
    );
    drop(store);
    // The crash came before any ledger row.
    let store = open(root.path()).unwrap();
    assert_eq!(held(ten(&store, 1).await), 3);
}

#[test]
fn upgrade_backs_up_an_unchanged_database_only_once() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("main.db");
    let open = rusqlite::Connection::open(&file).unwrap();
    open.execute_batch("CREATE TABLE meta (key TEXT, value TEXT); PRAGMA user_version = 6").unwrap();
    let copies = |at: i64| {
        UpgradeCopies::for_main(root.path(), Timestamp(at * 1000)).copy(&file, 6).unwrap();
        fs::read_dir(root.path().join("backups")).unwrap().count()
    };
    assert_eq!([1, 2, 3].map(copies), [1, 1, 1]);
    open.execute_batch("INSERT INTO meta VALUES ('a', 'b')").unwrap();
    assert_eq!(copies(4), 2);
}

#[tokio::test]
async fn spend_of_other_repositories_is_known_without_reading_their_ledgers() {
    let root = tempfile::tempdir().unwrap();
    let store = open(root.path()).unwrap();
    let asked = |repo| Reservation {
        run: RunId { repo: RepoId(repo), seq: 1 },
        visit: 1,
        key: "draft/1".into(),
        installation: InstallationId(7),
        amount: MicroUsd(1_000_000),
        repository_day: None,
        installation_month: None,
    };
    for repo in [1, 2] {
        assert_eq!(store.reserve_budget(asked(repo)).await.unwrap(), ReservationOutcome::Granted);
    }
    drop(store);
    // A copy without either repository.
    let copy = tempfile::tempdir().unwrap();
    copy_databases(&root.path().into(), None, copy.path()).unwrap();
    let store = open(copy.path()).unwrap();
    for _ in 0..2 {
        let spent = store.shared_spend(RepoId(1), InstallationId(7)).await.unwrap();
        let [day, month] = spent.map(|(_, spent)| spent.0);
        assert_eq!((day, month), (1_000_000, 2_000_000));
    }
}

#[test]
fn cancelled_backup_stops_in_the_middle_of_a_database() {
    let root = tempfile::tempdir().unwrap();
    let (from, to) = (root.path().join("from.db"), root.path().join("to.db"));
    let sql = "CREATE TABLE document AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                   SELECT i, randomblob(5000) FROM n";
    rusqlite::Connection::open(&from).unwrap().execute_batch(sql).unwrap();
    let stop = CancellationToken::new();
    let whole = backup::copy_database(&from, &to, &stop).unwrap();
    fs::remove_file(&to).unwrap();
    stop.cancel();
    assert!(matches!(backup::copy_database(&from, &to, &stop), Err(StoreError::Closing)));
    assert!(fs::metadata(&to).unwrap().len() < whole / 2);
}

#[test]
fn sqlite_is_built_without_memory_statistics() {
    let open = rusqlite::Connection::open_in_memory().unwrap();
    let mut options = open.prepare("PRAGMA compile_options").unwrap();
    let options = options.query_map([], |row| row.get::<_, String>(0)).unwrap();
    assert!(options.flatten().any(|option| option == "DEFAULT_MEMSTATUS=0"), "see .cargo/config.toml");
}
