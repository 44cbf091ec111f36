//! Stories about `move` from SQLite files to Postgres while a run waits at its gate, and about the demo on Postgres.

use std::{fs, os::unix::fs::PermissionsExt};

use ::postgres::{Client, NoTls};
use rustix::process::Signal;

use super::{
    process::{run_countersign, text},
    server::Site,
};
use crate::postgres;

#[test]
fn run_at_a_gate_continues_after_the_move_to_postgres() {
    let Some(address) = postgres::database() else { return };
    let mut site = Site::new();
    let serving = site.serve();
    let issue = site.label("countersign:lld");
    let page = site.browser().wait_for(&issue, "/approve lld ");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));

    let config = site.config().to_str().unwrap().to_owned();
    let old = site.directory().join("data").to_str().unwrap().to_owned();
    let move_data = || {
        let output = run_countersign(&["move", "--from", &old, "--config", &config]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, printed) = move_data();
    assert!(code == Some(1) && printed.contains("has no postgres_file under [data]"), "{printed}");
    let file = site.directory().join("postgres.url");
    fs::write(&file, &address).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    site.edit("dir = \"data\"", "dir = \"data\"\npostgres_file = \"postgres.url\"\nlease_seconds = 8");
    let refused = run_countersign(&["serve", "--config", &config]);
    assert!(text(&refused.stderr).contains("run countersign move --from"), "{refused:?}");

    // Data of another server in Postgres stay unchanged.
    let sql = |sql: &str| {
        let (address, sql) = (address.clone(), sql.to_owned());
        Client::connect(&address, NoTls)
            .unwrap()
            .batch_execute(&format!("SET search_path = countersign; {sql}"))
    };
    sql("CREATE SCHEMA countersign").unwrap();
    let (code, printed) = move_data();
    assert_eq!(code, Some(0), "{printed}");
    sql("DO $$ BEGIN ASSERT nextval('numbers') > (SELECT MAX(rowid) FROM all_journal); END $$").unwrap();
    let again = || fs::remove_file(format!("{old}/moved-to-postgres")).unwrap();
    again();
    let (code, printed) = move_data();
    assert!(code == Some(0) && printed.contains("already moved: 1 repository, "), "{printed}");
    again();
    sql("INSERT INTO node (name, until) VALUES ('another', now() + interval '1 hour')").unwrap();
    let (code, printed) = move_data();
    assert!(
        code == Some(1)
            && printed.contains("a server serves from there")
            && printed.contains("nothing was moved"),
        "{printed}"
    );
    sql("DELETE FROM node; UPDATE inbox SET note = 'somebody else''s'").unwrap();
    let (code, printed) = move_data();
    assert!(
        code == Some(1) && printed.contains("the table inbox of the server is not the same there"),
        "{printed}"
    );
    sql("DROP SCHEMA countersign CASCADE").unwrap();
    let lost = format!("{old}/repos/77");
    fs::create_dir(&lost).unwrap();
    fs::write(format!("{lost}/mirror.git"), "").unwrap();
    let (code, printed) = move_data();
    assert!(code == Some(1) && printed.contains("repos/77/checkpoints.db is missing"), "{printed}");
    fs::remove_dir_all(&lost).unwrap();

    let (code, printed) = move_data();
    assert!(code == Some(0) && printed.contains("moved: 1 repository, "), "{printed}");
    assert!(printed.contains("set [data] dir to another directory"), "{printed}");
    // The old files refuse to be used by mistake, even if no setting names Postgres.
    let (code, printed) = move_data();
    assert!(code == Some(1) && printed.contains("were moved into Postgres"), "{printed}");

    site.edit("dir = \"data\"", "dir = \"node\"");
    let serving = site.serve();
    let (code, printed) = move_data();
    assert!(code == Some(1) && printed.contains("were moved into Postgres"), "{printed}");
    let line = page.body.split("/approve lld ").nth(1).unwrap();
    let hash: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
    site.browser().submit(&page, "/comment", &[("body", &format!("/approve lld {hash}"))]);
    site.browser().wait_for(&issue, "lld: done");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));
    // Commands that read without the server also read from Postgres.
    for (what, words) in [
        (&["audit", "verify", "maya/tally"][..], "The chain holds."),
        (&["export", "maya/tally", "--issue", "1", "--jsonl"], "approval"),
        (&["routes"], "No requests in free words yet."),
    ] {
        let read = run_countersign(&[what, &["--config", &config]].concat());
        assert!(read.status.success() && text(&read.stdout).contains(words), "{what:?}: {read:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn demo_with_three_nodes_finishes_after_one_node_is_killed() {
    let Some(address) = postgres::database() else { return };
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("postgres.url");
    fs::write(&file, &address).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let demo = || {
        let file = file.to_str().unwrap();
        let output =
            run_countersign(&["demo", "--yes", "--through", "lld", "--nodes", "3", "--postgres-file", file]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, printed) = demo();
    assert_eq!(code, Some(0), "{printed}");
    let (before, after) = printed.split_once("Node 1 is killed now.").unwrap_or_else(|| panic!("{printed}"));
    let end = "Done: the design is approved.";
    assert!(!before.contains(end) && after.contains(end), "{printed}");
    let (code, printed) = demo();
    assert!(code == Some(1) && printed.contains("the database already holds runs"), "{printed}");
}
