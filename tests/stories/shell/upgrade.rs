//! Stories about upgrades. Data of an older version are copied before they are changed, and data of a newer version are
//! refused.
//!
//! `fixtures/data-VERSION.tar.zst` contains a small test environment as a release left it, with the directories of the
//! bot and the hub. One of its runs has ended, one is at its gate, and one is in the middle of a step. The story
//! [`run_stored_by_this_version_resumes_in_the_middle_of_a_step`] writes the file if `UPDATE_STATES` is set and the
//! file does not exist. An existing file is never rewritten. The keys and secrets in the file give access to nothing.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Arc, OnceLock},
};

use countersign::{
    clock::Clock,
    engine::{CallStatus, RunViewStatus},
    localhub::embedded_sample,
    store::check_databases,
    types::{Hash, IssueNo, MicroUsd, RunId, Timestamp},
};
use rusqlite::{Connection, params};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::process::{Running, countersign, text};
use crate::{
    money::{PRICES, billed},
    script::{Script, approved},
    world::{Known, Setting, World, directory, world},
};

/// Newest schema versions of main.db and of a repository's database. [`make_older`] reverts the migrations to these
/// versions.
const NEWEST: [u32; 2] = [7, 8];

/// Reverts the last migration of each database, so that the files look as if the previous version had written them.
fn make_older(data: &Path, checkpoints: &Path) {
    let main = Connection::open(data.join("main.db")).unwrap();
    let padding = "INSERT INTO meta VALUES ('padding', hex(randomblob(1000000)))";
    main.execute_batch(&format!(
        "{padding}; DROP TABLE page_link; DROP TABLE page_session; PRAGMA user_version = 6; \
         PRAGMA wal_checkpoint(TRUNCATE)"
    ))
    .unwrap();
    Connection::open(checkpoints)
        .unwrap()
        .execute_batch("DROP INDEX run_shown; DROP INDEX call_at; PRAGMA user_version = 7; PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
}

/// Runs `countersign runs`, which opens the data, from a shell that first executes `before`.
fn runs(before: &str, config: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_countersign");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before} exec \"$@\""), "sh", program, "runs", "--config"]).arg(config);
    shell.output().unwrap()
}

/// Shell code that limits the size of files, so that writes fail as on a full disk. The limit kills no process.
const LIMIT_FILE_SIZE: &str = "trap '' XFSZ; ulimit -f 256;";

fn assert_refused(before: &str, config: &Path) -> String {
    let output = runs(before, config);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stderr)
}

fn copies(data: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data.join("backups")).into_iter().flatten();
    let mut copies: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    copies.sort();
    copies
}

fn version(file: &Path) -> u32 {
    let open = Connection::open(file).unwrap();
    open.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn data_of_an_older_version_is_backed_up_before_its_upgrade() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let (known, now, repo) = (w.known(), w.clock.now(), w.repo);
    let directory = w.leave().await;
    let (data, config) = (directory.path().join("bot/data"), directory.path().join("bot/countersign.toml"));
    let (main, checkpoints) = (data.join("main.db"), data.join(format!("repos/{repo}/checkpoints.db")));
    make_older(&data, &checkpoints);

    let before = fs::read(&main).unwrap();
    let printed = assert_refused(LIMIT_FILE_SIZE, &config);
    assert!(printed.contains("main.db was written by an older countersign and is not upgraded"), "{printed}");
    assert!(printed.contains("nothing was changed: free some space there"), "{printed}");
    assert!(fs::read(&main).unwrap() == before, "the file is as it was");
    assert_eq!((version(&main), copies(&data)), (6, Vec::<PathBuf>::new()));

    let mut w = World::go_on(directory, known, now).await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    let kept = copies(&data);
    let [of_repository, of_main] = &kept[..] else { panic!("{kept:?}") };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name(of_main).starts_with("main-v6-2026"), "{of_main:?}");
    assert!(name(of_repository).starts_with(&format!("{repo}-v7-2026")), "{of_repository:?}");
    assert_eq!((version(of_main), version(of_repository)), (6, 7));
    for copy in &kept {
        assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!((version(&main), version(&checkpoints)), (7, 8));
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    w.find("was accepted");
}

#[tokio::test]
async fn backup_command_on_a_full_disk_fails_and_leaves_no_partial_copy() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let padding = "INSERT INTO document VALUES ('padding', 3000000, randomblob(3000000), 0)";
    w.checkpoints(w.data()).execute_batch(padding).unwrap();
    let (to, config) = (w.directory().join("copy"), w.directory().join("bot/countersign.toml"));
    // Enough for main.db, but not for the repository's database.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_countersign")]);
    let output =
        shell.args(["backup".as_ref(), to.as_os_str(), "--config".as_ref(), config.as_os_str()]).output();
    let output = output.unwrap();
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(1) && printed.contains(".half-done/repos/"), "{printed}");
    let left = fs::read_dir(w.directory()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_str().unwrap().starts_with("copy")));
}

#[tokio::test]
async fn interrupted_backup_command_leaves_no_partial_copy() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let repo = w.repo;
    let directory = w.leave().await;
    let (to, bot) = (directory.path().join("copy"), directory.path().join("bot"));
    // While another connection has the file exclusively, it is not copied.
    let held = Connection::open(bot.join(format!("data/repos/{repo}/checkpoints.db"))).unwrap();
    held.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE").unwrap();
    let config = bot.join("countersign.toml");
    let (to, config) = (to.to_str().unwrap(), config.to_str().unwrap());
    let mut backup = Running::start(&mut countersign(&["--log", "info", "backup", to, "--config", config]));
    let left = || {
        let entries = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_str().unwrap().starts_with(to)).collect::<Vec<_>>()
    };
    while !left().iter().any(|half| half.join(format!("repos/{repo}")).exists()) {
        assert!(backup.child.try_wait().unwrap().is_none(), "{}", backup.end().1);
        std::thread::yield_now();
    }
    backup.signal(Signal::INT);
    backup.wait_for_line("stopping");
    drop(held);
    let (code, printed) = backup.end();
    assert_eq!((code, left()), (Some(130), Vec::<PathBuf>::new()), "{printed}");
    assert!(printed.contains("the partial copy was removed"), "{printed}");
}

#[tokio::test]
async fn data_of_a_newer_version_is_refused_with_downgrade_instructions() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let (known, now, repo) = (w.known(), w.clock.now(), w.repo);
    let directory = w.leave().await;
    let (data, config) = (directory.path().join("bot/data"), directory.path().join("bot/countersign.toml"));
    let main = data.join("main.db");
    make_older(&data, &data.join(format!("repos/{repo}/checkpoints.db")));
    assert!(runs("", &config).status.success());
    let newer = |file: &Path| {
        Connection::open(file)
            .unwrap()
            .execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)")
            .unwrap();
    };
    newer(&main);

    let before = fs::read(&main).unwrap();
    let printed = assert_refused("", &config);
    let copy = copies(&data).pop().unwrap();
    assert!(
        printed.contains("was written by a newer countersign (schema 99, this one knows 7)"),
        "{printed}"
    );
    let way =
        format!("move {} with its -wal and -shm aside and copy {} there", main.display(), copy.display());
    assert!(printed.contains(&way), "{printed}");
    assert!(fs::read(&main).unwrap() == before, "the file is as it was");

    for beside in ["main.db-wal", "main.db-shm"] {
        drop(fs::remove_file(data.join(beside)));
    }
    fs::rename(&copy, &main).unwrap();
    let mut w = World::go_on(directory, known, now).await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    w.find("waits for a person");
}

/// Contents of the file `kept.json`, which is stored next to the directories of a stored test environment.
#[derive(Serialize, Deserialize)]
struct WorldFile {
    known: Known,
    now: Timestamp,
    /// Issue whose run has ended. `asking` is the issue of the run at its gate, and `amid` is the issue of the
    /// interrupted run.
    ended: IssueNo,
    asking: IssueNo,
    amid: IssueNo,
    /// Steps of the ended run, as read by the version that stored the run. The next two fields are the run's spending
    /// and the hash of its design.
    trail: Vec<String>,
    spent: MicroUsd,
    design: Hash,
}

impl World {
    async fn run_results(&self) -> (RunId, Vec<String>, MicroUsd) {
        let (run, db) =
            (self.run().await.unwrap().id, self.app.store.repository_database(self.repo).await.unwrap());
        let trail = db.trail(run).await.unwrap().into_iter().map(|row| row.step).collect();
        let spent = db.ledger(run).await.unwrap().calls.iter().map(|row| row.shared_cap_amount().0).sum();
        (run, trail, MicroUsd(spent))
    }

    fn design(&self) -> Vec<u8> {
        let file = format!("docs/lld/LLD-{}.md", self.issue);
        self.hub.branch_file(self.repo, &self.branch(), &file).unwrap()
    }

    /// Copies the hub's and the bot's data in the state that a kill would leave. The copy is made at the first commit
    /// after which `when` returns true for the repository's database.
    pub(super) fn copy_when(
        &self,
        when: impl Fn(&Path) -> bool + Send + Sync + 'static,
    ) -> Arc<OnceLock<(TempDir, Timestamp)>> {
        let place = format!("data/repos/{}/checkpoints.db", self.repo);
        let (hub, bot, clock) = (self.hub.clone(), self.directory().join("bot"), self.clock.clone());
        let copied = Arc::new(OnceLock::new());
        let copy = Arc::clone(&copied);
        self.app.store.on_commit(move |_| {
            let checkpoints = bot.join(&place);
            if copy.get().is_none() && checkpoints.exists() && when(&checkpoints) {
                let to = directory();
                hub.copy_to(&to.path().join("hub")).unwrap();
                let copies = Command::new("cp").arg("-r").args([&bot, &to.path().join("bot")]).status();
                assert!(copies.unwrap().success());
                for file in ["data/main.db", &place] {
                    let open = Connection::open(to.path().join("bot").join(file)).unwrap();
                    open.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
                }
                copy.set((to, clock.now())).unwrap();
            }
        });
        copied
    }

    async fn start_next_issue(&mut self, issue: usize) {
        let (title, body) = embedded_sample().issues[issue];
        self.issue = self.hub.open_issue(self.repo, self.user("maya"), title, body).unwrap();
        self.label("maya", "countersign:lld").await;
        self.stands(RunViewStatus::Asking).await;
    }
}

/// Returns whether a run of this workflow is still in the visit in which it paid its `nth` call of this role, and that
/// visit has no unfinished journal entry.
pub(super) fn paid_amid(checkpoints: &Path, workflow: &str, role: &str, nth: u32) -> bool {
    let sql = "SELECT EXISTS (SELECT 1 FROM run JOIN call ON call.run = run.seq AND call.visit = run.visit
                   WHERE run.workflow = ?1 AND call.body ->> 'status' = 'done' AND call.body ->> 'role' = ?2
                   AND ?3 = (SELECT COUNT(*) FROM call AS paid WHERE paid.run = run.seq AND paid.body ->> 'role' = ?2)
                   AND NOT EXISTS (SELECT 1 FROM journal
                       WHERE journal.run = run.seq AND journal.visit = run.visit AND value IS NULL))";
    let open = Connection::open(checkpoints).unwrap();
    open.query_row(sql, params![workflow, role, nth], |row| row.get(0)).unwrap()
}

/// Creates a test environment with three runs. The last run was interrupted at the commit that records its paid draft.
async fn interrupted_world() -> TempDir {
    let toml = format!("{PRICES}[budget]\nrun = \"$4\"\n");
    let files = vec![("src/lib.rs".to_owned(), b"pub struct Minutes(pub u32);\n".to_vec())];
    let setting =
        Setting { as_files: true, script: Some(billed()), toml, files, bare: true, ..Setting::default() };
    let mut w = World::new(setting).await;
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;
    w.wait(60).await;
    w.find("was accepted");
    let (ended, (_, trail, spent), design) = (w.issue, w.run_results().await, Hash::digest(&w.design()));
    w.start_next_issue(1).await;
    let asking = w.issue;

    let copied = w.copy_when(|checkpoints| paid_amid(checkpoints, "lld", "drafter", 1));
    w.start_next_issue(2).await;
    let (known, amid) = (w.known(), w.issue);
    // The gate of the run before names this one, because both change the same files.
    w.issue = asking;
    w.find("waits for a person");
    w.pull();
    w.leave().await;
    let (directory, now) = Arc::into_inner(copied).unwrap().into_inner().expect("it was cut off");
    let kept = WorldFile { known, now, ended, asking, amid, trail, spent, design };
    fs::write(directory.path().join("kept.json"), serde_json::to_string_pretty(&kept).unwrap()).unwrap();
    directory
}

pub(super) fn tar(arguments: &[&str], at: &Path, input: &[u8]) -> Vec<u8> {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(at).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut tar = tar.spawn().unwrap();
    tar.stdin.take().unwrap().write_all(input).unwrap();
    let output = tar.wait_with_output().unwrap();
    assert!(output.status.success(), "tar {arguments:?}");
    output.stdout
}

pub(super) fn pack(directory: &Path) -> Vec<u8> {
    let files =
        tar(&["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", "-", "."], directory, &[]);
    zstd::encode_all(&files[..], 19).unwrap()
}

/// Opens a stored test environment like a server of this version. Asserts that all runs in it continue correctly.
async fn assert_carried_over(packed: &[u8]) {
    let directory = directory();
    tar(&["--no-same-owner", "-xf", "-"], directory.path(), &zstd::decode_all(packed).unwrap());
    let kept: WorldFile =
        serde_json::from_slice(&fs::read(directory.path().join("kept.json")).unwrap()).unwrap();
    let bot = directory.path().join("bot");
    let (data, repo) = (bot.join("data"), kept.known.repo);
    let (main, checkpoints) = (data.join("main.db"), data.join(format!("repos/{repo}/checkpoints.db")));
    if [&main, &checkpoints].map(|file| version(file)) == NEWEST {
        make_older(&data, &checkpoints);
    }
    let was = [&main, &checkpoints].map(|file| version(file));
    let paid = calls(&checkpoints);
    // A second request for a draft would fail.
    let script = format!("billed = true\n{}", Script::default().reviews(&approved()).toml());
    fs::write(bot.join("script.toml"), script).unwrap();

    let mut w = World::go_on(directory, kept.known, kept.now).await;
    // A starting server does this. It removes the label that an earlier version set on a working run.
    w.look().await;
    w.settle().await;
    let copies = copies(&data);
    let changed = |file: &usize| was[*file] != NEWEST[*file];
    // The copy of the repository's database sorts before the copy of main.db.
    let due: Vec<_> = [1, 0].into_iter().filter(changed).map(|file| was[file]).collect();
    assert!(!due.is_empty());
    assert_eq!(copies.iter().map(|copy| version(copy)).collect::<Vec<_>>(), due);
    assert!(
        !changed(&1) || paid_amid(&copies[0], "lld", "drafter", 1),
        "the copy was made before the run resumed"
    );
    assert_eq!([&main, &checkpoints].map(|file| version(file)), NEWEST);

    w.issue = kept.ended;
    w.stands(RunViewStatus::Done).await;
    let (_, trail, spent) = w.run_results().await;
    assert_eq!((trail, spent), (kept.trail, kept.spent));
    let db = w.app.store.repository_database(repo).await.unwrap();
    assert_eq!(db.get_document(kept.design).await.unwrap(), w.design());

    w.issue = kept.amid;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.commits(), [format!("docs: propose design for #{}", w.issue), "Initial commit".to_owned()]);
    let call_statuses = w.calls().await;
    let call_statuses: Vec<_> = call_statuses.iter().map(|row| (row.role.as_str(), row.status)).collect();
    assert_eq!(call_statuses, [("drafter", CallStatus::Done), ("reviewer", CallStatus::Done)]);
    let (now, only) = (calls(&checkpoints), paid.len() + 1);
    assert!(now.len() == only && paid.iter().all(|row| now.contains(row)), "{now:#?}");

    for issue in [kept.asking, kept.amid] {
        w.issue = issue;
        w.stands(RunViewStatus::Asking).await;
        w.approved_by("sam").await;
        w.wait(60).await;
        w.find("was accepted");
        w.pull();
    }
    assert_eq!(calls(&checkpoints).len(), only);
    let wrong: Vec<_> = check_databases(&data.as_path().into())
        .unwrap()
        .into_iter()
        .flat_map(|checked| checked.problems)
        .collect();
    assert_eq!(wrong, [""; 0], "documents and audit chain");
}

/// Returns the stored rows of the call ledger.
pub(super) fn calls(checkpoints: &Path) -> Vec<(i64, i64, String, String)> {
    let open = Connection::open(checkpoints).unwrap();
    let mut statement = open.prepare("SELECT run, visit, key, body FROM call").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

pub(super) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

#[tokio::test]
async fn run_stored_by_this_version_resumes_in_the_middle_of_a_step() {
    let packed = pack(interrupted_world().await.path());
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    let file = fixtures().join(format!("data-{major}.{minor}.tar.zst"));
    if !file.exists() && std::env::var_os("UPDATE_STATES").is_some() {
        fs::write(&file, &packed).unwrap();
    }
    assert!(file.exists(), "run this test with UPDATE_STATES=1, which writes {}", file.display());
    assert_carried_over(&packed).await;
}

/// Fails if a stored format has changed so that the code can no longer read data stored by a release. The formats are
/// those of checkpoints, journal entries, ledger rows, gates, answers and documents. In that case fix the code that
/// reads the data, never the fixture.
#[tokio::test]
async fn runs_stored_by_each_release_resume_in_the_middle_of_a_step() {
    let files = fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> =
        files.filter(|file| file.to_str().is_some_and(|name| name.contains("/data-"))).collect();
    assert!(!kept.is_empty());
    for file in kept {
        assert_carried_over(&fs::read(file).unwrap()).await;
    }
}
