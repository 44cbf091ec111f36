//! Another version of the program opens the data: an older one's is copied before it is changed, a newer one's is refused.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use countersign::{clock::Clock, engine::Status};
use rusqlite::Connection;
use rustix::process::Signal;

use super::process::{Running, countersign, text};
use crate::world::{World, world};

/// What the last migrations did is undone: files as the version before wrote them.
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

/// A command that opens the data, after `before` was said to the shell that starts it.
fn runs(before: &str, config: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_countersign");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{before} exec \"$@\""), "sh", program, "runs", "--config"]).arg(config);
    shell.output().unwrap()
}

/// No file may grow beyond this, in blocks of the shell's; as on a disk that is full, writing fails and kills nobody.
const SMALL_FILES: &str = "trap '' XFSZ; ulimit -f 256;";

fn refused(before: &str, config: &Path) -> String {
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
async fn what_an_older_version_wrote_is_copied_first_and_its_runs_go_on() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let (known, now, repo) = (w.known(), w.clock.now(), w.repo);
    let directory = w.leave().await;
    let (data, config) = (directory.path().join("bot/data"), directory.path().join("bot/countersign.toml"));
    let (main, checkpoints) = (data.join("main.db"), data.join(format!("repos/{repo}/checkpoints.db")));
    make_older(&data, &checkpoints);

    let before = fs::read(&main).unwrap();
    let said = refused(SMALL_FILES, &config);
    assert!(said.contains("main.db was written by an older countersign and is not upgraded"), "{said}");
    assert!(said.contains("nothing was changed: make room there"), "{said}");
    assert!(fs::read(&main).unwrap() == before, "the file is as it was");
    assert_eq!((version(&main), copies(&data)), (6, Vec::<PathBuf>::new()));

    let mut w = World::go_on(directory, known, now).await;
    w.settle().await;
    w.stands(Status::Asking).await;
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
    w.stands(Status::Done).await;
    w.find("was accepted");
}

#[tokio::test]
async fn a_backup_that_its_disk_does_not_hold_is_none() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let padding = "INSERT INTO document VALUES ('padding', 3000000, randomblob(3000000), 0)";
    w.checkpoints(w.data()).execute_batch(padding).unwrap();
    let (to, config) = (w.directory().join("copy"), w.directory().join("bot/countersign.toml"));
    // Enough for main.db, and not for the repository's.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 4000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_countersign")]);
    let output =
        shell.args(["backup".as_ref(), to.as_os_str(), "--config".as_ref(), config.as_os_str()]).output();
    let output = output.unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains(".half-done/repos/"), "{said}");
    let left = fs::read_dir(w.directory()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_str().unwrap().starts_with("copy")));
}

#[tokio::test]
async fn a_backup_that_is_stopped_leaves_nothing() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let repo = w.repo;
    let directory = w.leave().await;
    let (to, bot) = (directory.path().join("copy"), directory.path().join("bot"));
    // As long as somebody has the file for themselves, it is not copied.
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
    backup.hear("stopping");
    drop(held);
    let (code, said) = backup.end();
    assert_eq!((code, left()), (Some(130), Vec::<PathBuf>::new()), "{said}");
    assert!(said.contains("nothing is left of the copy"), "{said}");
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_refused_with_the_way_back() {
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
    let said = refused("", &config);
    let copy = copies(&data).pop().unwrap();
    assert!(said.contains("was written by a newer countersign (schema 99, this one knows 7)"), "{said}");
    let way =
        format!("move {} with its -wal and -shm aside and copy {} there", main.display(), copy.display());
    assert!(said.contains(&way), "{said}");
    assert!(fs::read(&main).unwrap() == before, "the file is as it was");

    for beside in ["main.db-wal", "main.db-shm"] {
        drop(fs::remove_file(data.join(beside)));
    }
    fs::rename(&copy, &main).unwrap();
    let mut w = World::go_on(directory, known, now).await;
    w.settle().await;
    w.stands(Status::Asking).await;
    w.find("waits for a person");
}
