//! Stories about `archive`. It writes runs that ended long ago to a file and changes nothing else.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use countersign::{
    clock::Clock,
    engine::RunViewStatus,
    store::{SimulatedDisk, Store, check_databases},
    types::{Hash, RunId},
};
use rusqlite::{Connection, types::Value as Cell};
use serde_json::Value;

use super::process::{countersign, run_countersign, text};
use crate::{
    postgres,
    world::{Setting, World, world},
};

const TABLES: [&str; 8] = ["trail", "journal", "gate", "answer", "call", "verdict", "finding", "approval"];

/// Runs a program on another thread, so that the server in this process can keep working.
async fn run_in_background(mut command: std::process::Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn archive(w: &World, to: &Path) -> (Option<i32>, String) {
    let config = w.directory().join("bot/countersign.toml");
    let (config, to) = (config.to_str().unwrap(), to.to_str().unwrap());
    let command = countersign(&["archive", "--older-than", "90d", "--to", to, "--config", config]);
    let output = run_in_background(command).await;
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Returns all rows and documents of a run, byte for byte.
fn all_of(open: &Connection, run: RunId) -> Vec<Vec<Cell>> {
    let mut found = Vec::new();
    let mut add = |sql: &str| {
        let mut statement = open.prepare(sql).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|at| row.get::<usize, Cell>(at)).collect());
        found.extend(rows.unwrap().map(|row: rusqlite::Result<Vec<Cell>>| row.unwrap()));
    };
    add(&format!("SELECT * FROM run WHERE seq = {}", run.seq));
    TABLES
        .iter()
        .for_each(|table| add(&format!("SELECT * FROM {table} WHERE run = {} ORDER BY 1, 2, 3", run.seq)));
    add(&format!(
        "SELECT * FROM document WHERE EXISTS (SELECT 1 FROM run WHERE seq = {0} AND INSTR(CAST(state AS TEXT), hash))
             OR EXISTS (SELECT 1 FROM journal WHERE run = {0} AND INSTR(CAST(value AS TEXT), hash))
             OR EXISTS (SELECT 1 FROM call WHERE run = {0} AND INSTR(body, hash)) ORDER BY hash",
        run.seq
    ));
    found
}

fn count(open: &Connection, from: &str) -> u64 {
    let count = open.query_row(&format!("SELECT COUNT(*) FROM {from}"), [], |row| row.get::<_, i64>(0));
    count.unwrap().try_into().unwrap()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn lines(file: &Path) -> Vec<Value> {
    let unpacked = zstd::Decoder::new(std::fs::File::open(file).unwrap()).unwrap();
    BufReader::new(unpacked).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

fn assert_databases_intact(w: &World) {
    assert!(check_databases(&w.data().into()).unwrap().iter().all(|database| database.problems.is_empty()));
}

/// Starts two runs in the test environment: one that ended a hundred days ago, and one that waits at its gate on
/// another issue. Returns the ids of both.
async fn old_and_new(mut w: World) -> (World, RunId, RunId) {
    w.comes_to_the_gate().await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    w.find("was accepted");
    let old = w.run().await.unwrap().id;
    w.pass(100 * 24 * 3600);
    w.settle().await;
    let maya = w.user("maya");
    w.issue = w.hub.open_issue(w.repo, maya, "Report time by day", "A day is enough.").unwrap();
    w.label("maya", "countersign:lld").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Asking).await;
    let new = w.run().await.unwrap().id;
    (w, old, new)
}

#[tokio::test]
async fn archive_moves_only_runs_that_ended_before_the_age_limit() {
    let (mut w, old, new) = old_and_new(world().await).await;
    let _open = w.socket();
    let (database, to) = (w.checkpoints(w.data()), w.directory().join("shelf"));
    let (living, costs) = (all_of(&database, new), count(&database, "call"));
    let of_old = |table: &str| count(&database, &format!("{table} WHERE run = {}", old.seq));
    let expected = TABLES.map(of_old);
    let [texts, links] = ["document", "audit"].map(|table| count(&database, table));

    let (code, printed) = archive(&w, &to).await;
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.starts_with("maya/tally: ") && printed.contains(" of 1 run are in "), "{printed}");
    let [file] = &files(&to)[..] else { panic!("{:?}", files(&to)) };
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let archived = lines(file);
    let kept: Vec<_> =
        archived.iter().filter_map(|line| Some((line["document"].as_str()?, &line["text"]))).collect();
    for (hash, text) in &kept {
        assert_eq!(Hash::digest(text.as_str().unwrap().as_bytes()).to_string(), *hash);
    }
    let of = |table: &str| archived.iter().filter(|line| line["table"] == table).count() as u64;
    assert_eq!((TABLES.map(of), of("run")), (expected, 1));
    assert!(expected[0] > 0 && expected[1] > 0 && !kept.is_empty());

    assert!(all_of(&database, new) == living, "the live run is unchanged");
    for table in ["trail", "journal"] {
        assert_eq!(count(&database, &format!("{table} WHERE run = {}", old.seq)), 0);
    }
    let gone = texts - count(&database, "document");
    assert!(gone > 0 && gone < kept.len() as u64, "{gone} of {}", kept.len());
    assert_eq!((count(&database, "call"), count(&database, "audit")), (costs, links + 1));
    assert_databases_intact(&w);
    let approved = "document WHERE hash = (SELECT document FROM approval LIMIT 1)";
    assert_eq!(count(&database, approved), 1, "the approved document stays for later drafters");

    let verify = run_countersign(&["audit", "verify", "maya/tally", "--data", w.data().to_str().unwrap()]);
    let printed = text(&verify.stdout);
    let place = file.display();
    assert!(printed.contains(&format!("{gone} documents archived in {place}")), "{printed}");
    assert!(printed.ends_with("The chain holds.\n"), "{printed}");
    let (code, printed) = archive(&w, &to).await;
    assert_eq!((code, printed.as_str(), files(&to).len()), (Some(0), "No run ended that long ago.\n", 1));

    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    w.find("was accepted");
    assert_databases_intact(&w);
}

#[tokio::test]
async fn interrupted_archive_is_completed_by_the_next_archive_command() {
    let (w, old, _) = old_and_new(world().await).await;
    let _open = w.socket();
    let (database, to) = (w.checkpoints(w.data()), w.directory().join("shelf"));
    let before = all_of(&database, old);
    w.app.store.simulate_disk(SimulatedDisk::ReadOnly);
    let (code, printed) = archive(&w, &to).await;
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("maya/tally: not archived: ") && printed.contains("is not writable"),
        "{printed}"
    );
    assert_eq!(files(&to).len(), 1, "the written file is complete");
    assert!(all_of(&database, old) == before, "no row was removed");

    w.app.store.simulate_disk(SimulatedDisk::Healthy);
    // Three obstacles: the same second, a leftover temporary file, and a symlink at the next file name.
    let [first] = &files(&to)[..] else { panic!() };
    let (left, elsewhere) = (to.join(format!("{}-1.half-done", w.repo)), w.directory().join("elsewhere"));
    std::fs::write(&left, "half").unwrap();
    let next = w.clock.now().plus(Duration::from_secs(1)).to_string();
    let next: String = next.chars().filter(char::is_ascii_alphanumeric).collect();
    let link = to.join(format!("{}-{next}.jsonl.zst", w.repo));
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    for _ in 0..2 {
        let (code, printed) = archive(&w, &to).await;
        assert!(code == Some(1) && printed.contains("maya/tally: not archived: "), "{printed}");
        w.pass(1);
    }
    let (code, printed) = archive(&w, &to).await;
    assert_eq!(code, Some(0), "{printed}");
    let found = files(&to);
    let [_, between, second] = &found[..] else { panic!("{found:?}") };
    assert_eq!((between, lines(first)), (&link, lines(second)));
    assert!(!left.exists() && !elsewhere.exists());
    assert_eq!(count(&database, &format!("journal WHERE run = {}", old.seq)), 0);
    assert_databases_intact(&w);
}

/// Returns the number of rows in an archive file for each table and set of columns, including documents.
fn shape(file: &Path) -> BTreeMap<String, u64> {
    let mut shape = BTreeMap::new();
    for line in lines(file) {
        let row = line["row"].as_object().into_iter().flatten();
        let columns: Vec<_> =
            row.map(|(name, _)| &**name).filter(|name| !["repo", "rowid"].contains(name)).collect();
        *shape.entry(format!("{} {}", line["table"], columns.join(" "))).or_default() += 1;
    }
    shape
}

#[tokio::test]
#[ignore = "takes long"]
async fn postgres_and_sqlite_archives_have_the_same_format() {
    let Some(address) = postgres::database() else { return };
    let in_files = old_and_new(world().await).await.0;
    let setting = Setting { postgres: Some(address.clone()), ..Setting::default() };
    let in_postgres = old_and_new(World::new(setting).await).await.0;
    let mut shapes = Vec::new();
    for w in [&in_files, &in_postgres] {
        let (open, to) = (w.socket(), w.directory().join("shelf"));
        let (code, printed) = archive(w, &to).await;
        assert!(code == Some(0) && printed.contains(" of 1 run are in "), "{printed}");
        let [file] = &files(&to)[..] else { panic!("{:?}", files(&to)) };
        shapes.push(shape(file));
        let (code, printed) = archive(w, &to).await;
        assert_eq!((code, printed.as_str()), (Some(0), "No run ended that long ago.\n"));
        drop(open);
    }
    assert_eq!(shapes[1], shapes[0]);
    let database = in_files.checkpoints(in_files.data());
    for table in ["document", "journal", "trail", "audit"] {
        let there = postgres::number(&address, "", &format!("SELECT COUNT(*) FROM all_{table}"));
        assert_eq!(count(&database, table), u64::try_from(there).unwrap(), "{table}");
    }
    let config = in_postgres.directory().join("bot/countersign.toml");
    let verify = run_in_background(countersign(&[
        "audit",
        "verify",
        "maya/tally",
        "--config",
        config.to_str().unwrap(),
    ]))
    .await;
    let printed = text(&verify.stdout);
    assert!(
        printed.contains(" documents archived in ") && printed.ends_with("The chain holds.\n"),
        "{printed}"
    );
}

#[tokio::test]
async fn archive_command_reports_a_damaged_document_and_archives_the_others() {
    let (w, old, _) = old_and_new(world().await).await;
    let _open = w.socket();
    let (database, to) = (w.checkpoints(w.data()), w.directory().join("shelf"));
    let hash: String = database
        .query_row(
            "SELECT hash FROM document WHERE NOT EXISTS (SELECT 1 FROM verdict WHERE document = hash)
             AND EXISTS (SELECT 1 FROM journal WHERE run = ?1 AND INSTR(CAST(value AS TEXT), hash)) LIMIT 1",
            [i64::try_from(old.seq).unwrap()],
            |row| row.get(0),
        )
        .unwrap();
    database.execute("UPDATE document SET zstd = x'00' WHERE hash = ?1", [&hash]).unwrap();
    let (code, printed) = archive(&w, &to).await;
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains(" of 1 run are in ") && printed.contains(&format!("the text {hash} is damaged")),
        "{printed}"
    );
    assert_eq!(count(&database, &format!("document WHERE hash = '{hash}'")), 1);
    assert_eq!(count(&database, &format!("journal WHERE run = {}", old.seq)), 0);
    let archived = lines(&files(&to)[0]);
    assert!(archived.iter().any(|line| line["damaged"] == hash), "the file names it as well");
}

#[tokio::test]
async fn forgetting_a_repository_during_archiving_leaves_no_archive_file() {
    let (w, _, _) = old_and_new(world().await).await;
    let to = Store::archive_directory(w.data());
    let (store, repo) = (&w.app.store, w.repo);
    let mut given_up = Box::pin(store.archive_runs(repo, w.clock.now(), &to));
    assert!(futures_util::poll!(&mut given_up).is_pending());
    // The caller is gone, but the archive is still being written.
    drop(given_up);
    store.forget_repo(repo).await.unwrap();
    assert!(store.archive_runs(repo, w.clock.now(), &to).await.unwrap().is_none());
    assert_eq!(files(&to), Vec::<PathBuf>::new());
}

#[test]
fn archive_age_must_be_whole_days() {
    for wrong in ["90", "0d", "3h", "-1d"] {
        let output = run_countersign(&["archive", &format!("--older-than={wrong}")]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(text(&output.stderr).contains("write days, at least one: 90d"), "{wrong}");
    }
}
