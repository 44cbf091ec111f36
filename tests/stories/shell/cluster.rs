//! Stories about two servers on one Postgres. Each server finishes the other's interrupted runs, and a command to one
//! server takes effect on both.

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
    process::{PATIENCE, Running, countersign, finish, free_address, run_countersign, text},
    server::Site,
};
use crate::postgres;

/// Writes the settings file of a second server, which has its own directory and addresses. Returns the file's path.
fn second_config(site: &Site) -> PathBuf {
    let config = site.directory().join("another.toml");
    let mut settings = fs::read_to_string(site.config()).unwrap();
    settings = settings.replace("dir = \"data\"", "dir = \"another\"");
    let mut lines: Vec<_> = settings.lines().map(str::to_owned).collect();
    for line in &mut lines {
        for key in ["listen = ", "private_listen = "] {
            if line.starts_with(key) {
                *line = format!("{key}\"{}\"", free_address());
            }
        }
    }
    fs::write(&config, lines.join("\n")).unwrap();
    config
}

fn serve(config: &Path) -> Running {
    let mut serving = Running::start(&mut countersign(&["serve", "--config", config.to_str().unwrap()]));
    serving.wait_for_line("serving");
    serving
}

/// Creates a site whose data are on Postgres. Prints a note and returns `None` if Postgres is not installed.
fn on_postgres() -> Option<Site> {
    let address = postgres::database()?;
    let site = Site::new();
    let file = site.directory().join("postgres.url");
    fs::write(&file, address).unwrap();
    site.edit("dir = \"data\"", "dir = \"data\"\npostgres_file = \"postgres.url\"\nlease_seconds = 8");
    let open = run_countersign(&["serve", "--config", site.config().to_str().unwrap()]);
    let printed = text(&open.stderr);
    assert!(open.status.code() == Some(1) && printed.contains("run: chmod 600"), "{printed}");
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
    fs::set_permissions(&file, mode).unwrap();
    Some(site)
}

/// Approves the document at the gate and waits for the end of the run.
fn approve(site: &mut Site, issue: &Url, page: &Page) {
    // The thread shows one gate, whichever server opened it.
    assert_eq!(page.body.matches("the design waits for a person").count(), 1, "{}", page.body);
    let line = page.body.split("/approve lld ").nth(1).unwrap();
    let hash: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
    site.comment(issue, &format!("/approve lld {hash}"));
    site.wait_for(issue, "lld: done");
}

/// Stops the servers and asserts that they exit cleanly.
fn stop(servers: impl IntoIterator<Item = Running>) {
    for serving in servers {
        serving.signal(Signal::TERM);
        let (code, printed) = serving.end();
        assert_eq!(code, Some(0), "{printed}");
    }
}

#[test]
fn another_server_finishes_the_runs_of_a_killed_server() {
    let Some(mut site) = on_postgres() else { return };
    let config = second_config(&site);
    let mut first = site.serve();
    let issue = site.label("countersign:lld");
    first.wait_for_line("step done");
    let second = serve(&config);
    first.signal(Signal::KILL);
    first.end();
    let page = site.browser().wait_for(&issue, "/approve lld ");
    // Webhooks go to the first server's address, where a new process listens.
    let again = site.serve();
    approve(&mut site, &issue, &page);
    stop([second, again]);
}

#[test]
fn delivery_to_a_node_that_serves_no_installation_is_processed_by_another_node() {
    let Some(mut site) = on_postgres() else { return };
    let served = second_config(&site);
    let settings = fs::read_to_string(site.config()).unwrap();
    let line = settings.lines().find(|line| line.starts_with("allow = [")).unwrap();
    // Webhooks go to this server.
    site.edit(line, "allow = []");
    let mut second = serve(&served);
    let first = site.serve();
    second.wait_for_line("other nodes have different settings");
    let reload = || text(&run_countersign(&["reload", "--config", site.config().to_str().unwrap()]).stdout);
    assert!(reload().ends_with(" in [installations]\n"), "{}", reload());
    site.edit("\"stub:reviewer\"", "\"stub:router\"");
    let printed = reload();
    assert!(printed.ends_with(" in [installations], what is said of models\n"), "{printed}");
    site.edit("\"stub:router\"", "\"stub:reviewer\"");
    assert!(reload().ends_with(" in [installations]\n"), "{}", reload());
    let issue = site.label("countersign:lld");
    let page = site.browser().wait_for(&issue, "/approve lld ");
    approve(&mut site, &issue, &page);
    stop([first, second]);
}

/// Makes the first draft take an hour. This affects servers that are started afterwards.
fn use_slow_drafter(site: &Site) {
    let script = REHEARSAL.replacen("role = \"drafter\"\n", "role = \"drafter\"\ndelay_ms = 3600000\n", 1);
    fs::write(site.directory().join("slow.toml"), script).unwrap();
    site.edit("\"script.toml\"", "\"slow.toml\"");
}

const CALLS_IN_PROGRESS: &str = "SELECT COUNT(*) FROM all_call WHERE status = 'reserved'";

/// Waits until a model call is in progress. Returns the address of the database.
fn wait_for_call(site: &Site) -> String {
    let address = fs::read_to_string(site.directory().join("postgres.url")).unwrap();
    let until = Instant::now() + PATIENCE;
    while postgres::number(&address, "", CALLS_IN_PROGRESS) == 0 {
        assert!(Instant::now() < until, "no call started");
    }
    address
}

#[test]
#[ignore = "takes long"]
fn frozen_server_cannot_write_to_runs_that_another_server_took_over() {
    let Some(mut site) = on_postgres() else { return };
    let config = second_config(&site);
    use_slow_drafter(&site);
    let mut first = site.serve();
    let issue = site.label("countersign:lld");
    wait_for_call(&site);
    first.signal(Signal::STOP);
    let second = serve(&config);
    let page = site.browser().wait_for(&issue, "/approve lld ");
    first.signal(Signal::CONT);
    first.wait_for_line("lease expired during a step; dropped the result");
    approve(&mut site, &issue, &page);
    stop([first, second]);
}

#[test]
fn stop_command_cancels_a_model_call_of_another_server() {
    let Some(mut site) = on_postgres() else { return };
    use_slow_drafter(&site);
    let config = second_config(&site);
    let issue = site.label("countersign:lld");
    let second = serve(&config);
    let address = wait_for_call(&site);
    // Webhooks go to this server.
    let first = site.serve();
    site.comment(&issue, "/stop");
    site.wait_for(&issue, "lld: stopped");
    // The call may have been billed.
    let held = "SELECT COUNT(*) FROM all_call WHERE status IN ('reserved', 'lost')";
    assert!(postgres::number(&address, "", held) > 0);
    stop([first, second]);
}

#[test]
fn pause_and_stop_commands_apply_to_all_servers() {
    let Some(mut site) = on_postgres() else { return };
    let config = second_config(&site);
    let (first, second) = (site.serve(), serve(&config));
    let issue = site.label("countersign:lld");
    let page = site.browser().wait_for(&issue, "/approve lld ");
    let paused = run_countersign(&["pause", "--config", config.to_str().unwrap()]);
    assert_eq!(paused.status.code(), Some(0), "{}", text(&paused.stderr));
    site.browser().wait_for(&issue, "Paused");
    let resumed = run_countersign(&["resume", "--config", site.config().to_str().unwrap()]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    site.browser().submit(&page, "/comment", &[("body", "/stop")]);
    site.browser().wait_for(&issue, "lld: stopped");
    stop([first, second]);
}

#[test]
#[ignore = "takes long"]
fn doctor_checks_the_postgres_database() {
    let Some(site) = on_postgres() else { return };
    let file = site.directory().join("postgres.url");
    let address = fs::read_to_string(&file).unwrap();
    let assert_rows = |address: &str, words: &[&str]| {
        fs::write(&file, address).unwrap();
        let (_, printed) = site.doctor();
        let rows: Vec<_> = printed.lines().filter(|line| line.get(6..15) == Some("database ")).collect();
        assert!(words.iter().all(|words| rows.iter().any(|row| row.contains(words))), "{words:?}: {rows:#?}");
        assert!(words.len() >= rows.len(), "{rows:#?}");
    };
    assert_rows(
        &address,
        &["ok    database       Postgres 1", "tables will be created at the first start", "connections left"],
    );
    let serving = site.serve();
    assert_rows(&address, &["ok    database       Postgres 1", "tables of schema 2"]);
    stop([serving]);

    let (of, others) =
        (|who: &str| address.replace("countersign@", who), address.rsplit_once('/').unwrap().0);
    postgres::sql(&address, "CREATE ROLE reads LOGIN; CREATE ROLE waits LOGIN SUPERUSER CONNECTION LIMIT 5");
    assert_rows(&of("reads@"), &["BAD   database", "make it the owner of the database"]);
    assert_rows(&of("waits@"), &["ok    database", "note  database       it takes 5 connections more"]);
    postgres::sql(&address, "UPDATE countersign.meta SET value = '99' WHERE key = 'schema'");
    assert_rows(&address, &["BAD   database", "of a newer countersign, schema 99; run that version"]);
    postgres::sql(&address, "CREATE DATABASE ascii ENCODING SQL_ASCII TEMPLATE template0");
    assert_rows(
        &format!("{others}/ascii"),
        &["BAD   database", "encoding is SQL_ASCII; make one with createdb"],
    );
    assert_rows("postgres://127.0.0.1:1/x", &["BAD   database", "check the server"]);
}

#[test]
fn postgres_with_an_untrusted_certificate_is_refused() {
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
        let printed = text(&output.stderr);
        assert!(output.status.code() == Some(1) && printed.contains(why), "{printed}");
        assert!(printed.contains("make this system trust the authority of its certificate"), "{printed}");
    };
    fs::write(&file, &secured).unwrap();
    refused(trusting(), "not valid for");
    fs::write(&file, secured.replace("127.0.0.1", "localhost")).unwrap();
    refused(serve(), "UnknownIssuer");
    let mut serving = Running::start(&mut trusting());
    serving.wait_for_line("serving");
    let open = "SELECT COUNT(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE datname = current_database() AND application_name = 'countersign' AND NOT ssl";
    assert_eq!(postgres::number(&plain, "", open), 0);
    assert!(postgres::number(&plain, "", &open.replace("NOT ", "")) > 0);
    stop([serving]);
}
