//! From databases in files into a Postgres, with a run at its gate; and the demo on one.

use std::{fs, os::unix::fs::PermissionsExt};

use ::postgres::{Client, NoTls};
use rustix::process::Signal;

use super::{
    process::{finished, text},
    server::Site,
};
use crate::postgres;

#[test]
fn a_run_at_its_gate_is_moved_and_goes_on_there() {
    let Some(address) = postgres::database() else { return };
    let mut site = Site::new();
    let serving = site.serve();
    let issue = site.label("countersign:lld");
    let page = site.browser().wait_for(&issue, "/approve lld ");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));

    let config = site.config().to_str().unwrap().to_owned();
    let old = site.directory().join("data").to_str().unwrap().to_owned();
    let moved = || {
        let output = finished(&["move", "--from", &old, "--config", &config]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let (code, said) = moved();
    assert!(code == Some(1) && said.contains("names no postgres_file under [data]"), "{said}");
    let file = site.directory().join("postgres.url");
    fs::write(&file, &address).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    site.edit("dir = \"data\"", "dir = \"data\"\npostgres_file = \"postgres.url\"\nlease_seconds = 8");
    let refused = finished(&["serve", "--config", &config]);
    assert!(text(&refused.stderr).contains("run countersign move --from"), "{refused:?}");

    // What another one has there is left as it is.
    let sql = |sql: &str| {
        let (address, sql) = (address.clone(), sql.to_owned());
        Client::connect(&address, NoTls)
            .unwrap()
            .batch_execute(&format!("SET search_path = countersign; {sql}"))
    };
    sql("CREATE SCHEMA countersign").unwrap();
    let (code, said) = moved();
    assert_eq!(code, Some(0), "{said}");
    sql("DO $$ BEGIN ASSERT nextval('numbers') > (SELECT MAX(rowid) FROM all_journal); END $$").unwrap();
    let again = || fs::remove_file(format!("{old}/moved-to-postgres")).unwrap();
    again();
    let (code, said) = moved();
    assert!(code == Some(0) && said.contains("it was there already: 1 repository, "), "{said}");
    again();
    sql("INSERT INTO node (name, until) VALUES ('another', now() + interval '1 hour')").unwrap();
    let (code, said) = moved();
    assert!(
        code == Some(1) && said.contains("a server serves from there") && said.contains("nothing was moved"),
        "{said}"
    );
    sql("DELETE FROM node; UPDATE inbox SET note = 'somebody else''s'").unwrap();
    let (code, said) = moved();
    assert!(
        code == Some(1) && said.contains("the table inbox of the server is not the same there"),
        "{said}"
    );
    sql("DROP SCHEMA countersign CASCADE").unwrap();
    let lost = format!("{old}/repos/77");
    fs::create_dir(&lost).unwrap();
    fs::write(format!("{lost}/mirror.git"), "").unwrap();
    let (code, said) = moved();
    assert!(code == Some(1) && said.contains("repos/77/checkpoints.db is missing"), "{said}");
    fs::remove_dir_all(&lost).unwrap();

    let (code, said) = moved();
    assert!(code == Some(0) && said.contains("moved: 1 repository, "), "{said}");
    assert!(said.contains("name another directory under [data] dir"), "{said}");
    // Nobody works on the files by mistake, even where nothing says Postgres.
    let (code, said) = moved();
    assert!(code == Some(1) && said.contains("was moved into a Postgres"), "{said}");

    site.edit("dir = \"data\"", "dir = \"node\"");
    let serving = site.serve();
    let (code, said) = moved();
    assert!(code == Some(1) && said.contains("was moved into a Postgres"), "{said}");
    let line = page.body.split("/approve lld ").nth(1).unwrap();
    let hash: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
    site.browser().submit(&page, "/comment", &[("body", &format!("/approve lld {hash}"))]);
    site.browser().wait_for(&issue, "lld: done");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));
    // What is read beside a server is read from there, too.
    for (what, words) in [
        (&["audit", "verify", "maya/tally"][..], "The chain holds."),
        (&["export", "maya/tally", "--issue", "1", "--jsonl"], "approval"),
        (&["routes"], "Nothing was asked in free words yet."),
    ] {
        let read = finished(&[what, &["--config", &config]].concat());
        assert!(read.status.success() && text(&read.stdout).contains(words), "{what:?}: {read:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn the_demo_goes_on_when_one_of_its_processes_is_killed() {
    let Some(address) = postgres::database() else { return };
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("postgres.url");
    fs::write(&file, &address).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let demo = || {
        let file = file.to_str().unwrap();
        let played =
            finished(&["demo", "--yes", "--through", "lld", "--nodes", "3", "--postgres-file", file]);
        (played.status.code(), text(&played.stdout) + &text(&played.stderr))
    };
    let (code, said) = demo();
    assert_eq!(code, Some(0), "{said}");
    let (before, after) =
        said.split_once("Node 1 is killed in the middle of it.").unwrap_or_else(|| panic!("{said}"));
    let end = "Done: the LLD is approved.";
    assert!(!before.contains(end) && after.contains(end), "{said}");
    let (code, said) = demo();
    assert!(code == Some(1) && said.contains("the database holds runs already"), "{said}");
}
