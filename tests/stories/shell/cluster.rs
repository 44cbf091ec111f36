//! Two servers on one Postgres: what one leaves in the middle the other ends, and each hears what the other was told.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::Signal;

use super::{
    process::{Running, countersign, finished, free_address, text},
    server::Site,
};
use crate::postgres;

/// The settings of a further server there, which has its own directory and doors.
fn another(site: &Site) -> PathBuf {
    let config = site.directory().join("another.toml");
    let mut settings = fs::read_to_string(site.config()).unwrap();
    settings = settings.replace("dir = \"data\"", "dir = \"another\"");
    let mut lines: Vec<_> = settings.lines().map(str::to_owned).collect();
    for line in &mut lines {
        for door in ["listen = ", "private_listen = "] {
            if line.starts_with(door) {
                *line = format!("{door}\"{}\"", free_address());
            }
        }
    }
    fs::write(&config, lines.join("\n")).unwrap();
    config
}

fn serve(config: &Path) -> Running {
    let mut serving = Running::start(&mut countersign(&["serve", "--config", config.to_str().unwrap()]));
    serving.hear("serving");
    serving
}

/// None: there is no Postgres here, and that was said.
fn on_postgres() -> Option<Site> {
    let address = postgres::database()?;
    let site = Site::new();
    let file = site.directory().join("postgres.url");
    fs::write(&file, address).unwrap();
    site.edit("dir = \"data\"", "dir = \"data\"\npostgres_file = \"postgres.url\"\nlease_seconds = 8");
    let open = finished(&["serve", "--config", site.config().to_str().unwrap()]);
    let said = text(&open.stderr);
    assert!(open.status.code() == Some(1) && said.contains("run: chmod 600"), "{said}");
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(&file, mode).unwrap();
    Some(site)
}

#[test]
fn what_a_killed_server_had_in_hand_another_ends() {
    let Some(mut site) = on_postgres() else { return };
    let config = another(&site);
    let mut first = site.serve();
    let issue = site.label("countersign:lld");
    first.hear("step done");
    let second = serve(&config);
    first.signal(Signal::KILL);
    first.end();
    // Whoever reads it sees one gate, whichever server asked.
    let page = site.browser().wait_for(&issue, "/approve lld ");
    assert_eq!(page.body.matches("the LLD waits for a person").count(), 1, "{}", page.body);
    let line = page.body.split("/approve lld ").nth(1).unwrap();
    let hash: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
    // Webhooks go to the first one's address, where another process takes it up.
    let again = site.serve();
    site.browser().submit(&page, "/comment", &[("body", &format!("/approve lld {hash}"))]);
    site.browser().wait_for(&issue, "lld: done");
    for serving in [second, again] {
        serving.signal(Signal::TERM);
        let (code, said) = serving.end();
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_pause_and_a_stop_reach_every_server() {
    let Some(mut site) = on_postgres() else { return };
    let config = another(&site);
    let (first, second) = (site.serve(), serve(&config));
    let issue = site.label("countersign:lld");
    let page = site.browser().wait_for(&issue, "/approve lld ");
    let paused = finished(&["pause", "--config", config.to_str().unwrap()]);
    assert_eq!(paused.status.code(), Some(0), "{}", text(&paused.stderr));
    site.browser().wait_for(&issue, "Paused");
    let resumed = finished(&["resume", "--config", site.config().to_str().unwrap()]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    site.browser().submit(&page, "/comment", &[("body", "/stop")]);
    site.browser().wait_for(&issue, "lld: stopped");
    for serving in [first, second] {
        serving.signal(Signal::TERM);
        assert_eq!(serving.end().0, Some(0));
    }
}
