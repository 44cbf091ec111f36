//! Two servers on one Postgres: what one leaves in the middle the other ends, and each hears what the other was told.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use countersign::providers::REHEARSAL;
use rustix::process::Signal;
use url::Url;

use super::{
    browser::Page,
    process::{PATIENCE, Running, countersign, finish, finished, free_address, text},
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

/// Somebody pastes the line of the gate, and it goes to its end.
fn approve(site: &mut Site, issue: &Url, page: &Page) {
    // Whoever reads it sees one gate, whichever server asked.
    assert_eq!(page.body.matches("the LLD waits for a person").count(), 1, "{}", page.body);
    let line = page.body.split("/approve lld ").nth(1).unwrap();
    let hash: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
    site.comment(issue, &format!("/approve lld {hash}"));
    site.wait_for(issue, "lld: done");
}

/// Each is told to stop, and does so well.
fn stop(servers: impl IntoIterator<Item = Running>) {
    for serving in servers {
        serving.signal(Signal::TERM);
        let (code, said) = serving.end();
        assert_eq!(code, Some(0), "{said}");
    }
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
    let page = site.browser().wait_for(&issue, "/approve lld ");
    // Webhooks go to the first one's address, where another process takes it up.
    let again = site.serve();
    approve(&mut site, &issue, &page);
    stop([second, again]);
}

#[test]
fn a_delivery_to_a_node_with_other_settings_is_not_lost() {
    let Some(mut site) = on_postgres() else { return };
    let served = another(&site);
    let settings = fs::read_to_string(site.config()).unwrap();
    let line = settings.lines().find(|line| line.starts_with("allow = [")).unwrap();
    // Webhooks go to this one.
    site.edit(line, "allow = []");
    let mut second = serve(&served);
    let first = site.serve();
    second.hear("other nodes have different settings");
    let reload = || text(&finished(&["reload", "--config", site.config().to_str().unwrap()]).stdout);
    assert!(reload().ends_with(" in [installations]\n"), "{}", reload());
    site.edit("\"stub:reviewer\"", "\"stub:router\"");
    let said = reload();
    assert!(said.ends_with(" in [installations], what is said of models\n"), "{said}");
    site.edit("\"stub:router\"", "\"stub:reviewer\"");
    assert!(reload().ends_with(" in [installations]\n"), "{}", reload());
    let issue = site.label("countersign:lld");
    let page = site.browser().wait_for(&issue, "/approve lld ");
    approve(&mut site, &issue, &page);
    stop([first, second]);
}

/// For whoever is started from now on, the model takes longer for a first draft than anybody waits.
fn slow(site: &Site) {
    let script = REHEARSAL.replacen("role = \"drafter\"\n", "role = \"drafter\"\ndelay_ms = 3600000\n", 1);
    fs::write(site.directory().join("slow.toml"), script).unwrap();
    site.edit("\"script.toml\"", "\"slow.toml\"");
}

const BEGUN: &str = "SELECT COUNT(*) FROM all_call WHERE status = 'reserved'";

/// Waits for a call that is going on, and answers the database's address.
fn calling(site: &Site) -> String {
    let address = fs::read_to_string(site.directory().join("postgres.url")).unwrap();
    let until = Instant::now() + PATIENCE;
    while postgres::number(&address, "", BEGUN) == 0 {
        assert!(Instant::now() < until, "no call was ever begun");
    }
    address
}

#[test]
#[ignore = "takes long"]
fn a_server_that_was_frozen_is_refused_what_another_took_meanwhile() {
    let Some(mut site) = on_postgres() else { return };
    let config = another(&site);
    slow(&site);
    let mut first = site.serve();
    let issue = site.label("countersign:lld");
    calling(&site);
    first.signal(Signal::STOP);
    let second = serve(&config);
    let page = site.browser().wait_for(&issue, "/approve lld ");
    first.signal(Signal::CONT);
    first.hear("its late result was dropped");
    approve(&mut site, &issue, &page);
    stop([first, second]);
}

#[test]
fn a_stop_reaches_a_call_that_another_server_makes() {
    let Some(mut site) = on_postgres() else { return };
    slow(&site);
    let config = another(&site);
    let issue = site.label("countersign:lld");
    let second = serve(&config);
    let address = calling(&site);
    // Webhooks go to this one.
    let first = site.serve();
    site.comment(&issue, "/stop");
    site.wait_for(&issue, "lld: stopped");
    // It may have been billed.
    let held = "SELECT COUNT(*) FROM all_call WHERE status IN ('reserved', 'lost')";
    assert!(postgres::number(&address, "", held) > 0);
    stop([first, second]);
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
    stop([first, second]);
}

#[test]
#[ignore = "takes long"]
fn doctor_says_whether_a_node_could_serve_from_there() {
    let Some(site) = on_postgres() else { return };
    let file = site.directory().join("postgres.url");
    let address = fs::read_to_string(&file).unwrap();
    let says = |address: &str, words: &[&str]| {
        fs::write(&file, address).unwrap();
        let (_, said) = site.doctor();
        let rows: Vec<_> = said.lines().filter(|line| line.get(6..15) == Some("database ")).collect();
        assert!(words.iter().all(|words| rows.iter().any(|row| row.contains(words))), "{words:?}: {rows:#?}");
        assert!(words.len() >= rows.len(), "{rows:#?}");
    };
    says(
        &address,
        &["ok    database       Postgres 1", "tables will be made at the first start", "connections left"],
    );
    let serving = site.serve();
    says(&address, &["ok    database       Postgres 1", "tables of schema 2"]);
    stop([serving]);

    let (of, others) =
        (|who: &str| address.replace("countersign@", who), address.rsplit_once('/').unwrap().0);
    postgres::sql(&address, "CREATE ROLE reads LOGIN; CREATE ROLE waits LOGIN SUPERUSER CONNECTION LIMIT 5");
    says(&of("reads@"), &["BAD   database", "let it own the database"]);
    says(&of("waits@"), &["ok    database", "note  database       it takes 5 connections more"]);
    postgres::sql(&address, "UPDATE countersign.meta SET value = '99' WHERE key = 'schema'");
    says(&address, &["BAD   database", "of a newer countersign, schema 99; run that version"]);
    postgres::sql(&address, "CREATE DATABASE ascii ENCODING SQL_ASCII TEMPLATE template0");
    says(&format!("{others}/ascii"), &["BAD   database", "encoding is SQL_ASCII; make one with createdb"]);
    says("postgres://127.0.0.1:1/x", &["BAD   database", "see to the server"]);
}

#[test]
fn a_server_that_nobody_vouches_for_gets_nothing_by_tls() {
    let Some(site) = on_postgres() else { return };
    let Some(authority) = postgres::authority() else { return };
    let file = site.directory().join("postgres.url");
    let plain = fs::read_to_string(&file).unwrap();
    let secured = format!("{plain}?sslmode=require");
    let serve = || countersign(&["serve", "--config", site.config().to_str().unwrap()]);
    let trusting = || {
        let mut serve = serve();
        serve.env("SSL_CERT_FILE", &authority);
        serve
    };
    let refused = |mut serve: Command, why: &str| {
        let output = finish(&mut serve);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
        assert!(said.contains("put the authority of its certificate among those"), "{said}");
    };
    fs::write(&file, &secured).unwrap();
    refused(trusting(), "not valid for");
    fs::write(&file, secured.replace("127.0.0.1", "localhost")).unwrap();
    refused(serve(), "UnknownIssuer");
    let mut serving = Running::start(&mut trusting());
    serving.hear("serving");
    let open = "SELECT COUNT(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE datname = current_database() AND application_name = 'countersign' AND NOT ssl";
    assert_eq!(postgres::number(&plain, "", open), 0);
    assert!(postgres::number(&plain, "", &open.replace("NOT ", "")) > 0);
    stop([serving]);
}
