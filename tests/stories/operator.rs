//! Stories about operator commands: the control socket, pauses, backups and checks of the data.

use std::{os::unix::fs::PermissionsExt, path::Path, time::Duration};

use countersign::{
    engine::RunViewStatus,
    providers::REHEARSAL,
    store::{AuditEntry, DatabaseCheck, PendingWrites, check_databases, create_backup},
    web::{
        control::{
            ControlMessage, ControlReply, ForgetRepositoryRequest, PauseRequest, RetryCommandRequest,
            RunListItem, call_server, control_socket, listen,
        },
        token_file,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{
    postgres,
    world::{Setting, World, world, world_of_files},
};

const LABEL: &str = "countersign:lld";

impl World {
    pub(crate) fn data(&self) -> &Path {
        &self.app.settings.data_dir
    }

    /// Opens the control socket and serves it in a background task.
    pub(crate) fn socket(&self) -> JoinHandle<()> {
        let (socket, routes) = (
            listen(self.data(), self.clock.clone()).unwrap(),
            self.app.control(([127, 0, 0, 1], 8009).into()),
        );
        tokio::spawn(async move { axum::serve(socket, routes).await.unwrap() })
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: impl Serialize) -> ControlReply<T> {
        call_server(self.data(), path, Some(serde_json::to_value(body).unwrap())).await.unwrap()
    }

    async fn post_done(&self, path: &str, body: impl Serialize) -> String {
        match self.post::<ControlMessage>(path, body).await {
            ControlReply::Done(done) => done.message,
            other => panic!("{other:?}"),
        }
    }

    async fn post_refused(&self, path: &str, body: impl Serialize) -> String {
        match self.post::<ControlMessage>(path, body).await {
            ControlReply::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    async fn run_lines(&self, query: &str) -> Vec<RunListItem> {
        match call_server(self.data(), &format!("/runs?{query}"), None).await.unwrap() {
            ControlReply::Done(lines) => lines,
            other => panic!("{other:?}"),
        }
    }

    /// Opens the repository's database in the data directory `data`.
    pub(crate) fn checkpoints(&self, data: &Path) -> rusqlite::Connection {
        rusqlite::Connection::open(data.join(format!("repos/{}/checkpoints.db", self.repo))).unwrap()
    }
}

fn pause_request(repository: Option<&str>) -> PauseRequest {
    PauseRequest { repository: repository.map(|name| name.parse().unwrap()), by: "ops".to_owned() }
}

#[tokio::test]
async fn control_socket_serves_only_the_owner_of_the_data_directory() {
    let w = world().await;
    assert!(matches!(
        w.post::<ControlMessage>("/pause", pause_request(None)).await,
        ControlReply::NotRunning
    ));
    // A stale socket of a dead server is ignored.
    std::fs::write(control_socket(w.data()), "").unwrap();
    assert!(matches!(
        w.post::<ControlMessage>("/pause", pause_request(None)).await,
        ControlReply::NotRunning
    ));
    let _open = w.socket();
    let mode = std::fs::metadata(control_socket(w.data())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(w.post_done("/pause", pause_request(None)).await.contains("the server is paused"));
    assert!(w.post_done("/resume", pause_request(None)).await.contains("is resumed"));
    assert!(w.post_done("/resume", pause_request(None)).await.contains("was not paused"));
    let mode = std::fs::metadata(token_file(w.data())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = reqwest::Client::builder().unix_socket(control_socket(w.data())).build().unwrap();
    for token in ["", "guessed", &w.token()[1..]] {
        let request = client.get("http://bot/runs?all=true").bearer_auth(token);
        assert_eq!(request.send().await.unwrap().status(), 401, "{token}");
    }
    let why = w.post_refused("/pause", pause_request(Some("maya/nothing"))).await;
    assert!(why.contains("no repository maya/nothing is known here"), "{why}");
}

#[tokio::test]
async fn run_list_shows_the_step_of_each_run() {
    let mut w = world().await;
    let _open = w.socket();
    assert_eq!(w.run_lines("all=false").await, []);
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let lines = w.run_lines("all=false&repository=maya%2Ftally").await;
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(
        (line.repository.as_str(), line.issue, line.workflow.as_str()),
        ("maya/tally", w.issue.0, "lld")
    );
    assert_eq!((line.step.as_str(), line.run), ("Human gate: verdict (N4)", w.run().await.unwrap().id));
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    assert_eq!(w.run_lines("all=false").await, []);
    assert_eq!(w.run_lines("all=true").await.len(), 1);
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn operator_pause_is_shown_in_the_status_comment_until_it_ends() {
    let mut w = world().await;
    let _open = w.socket();
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let line = w.approve_line();
    let [listed] = &w.run_lines("all=false").await[..] else { panic!() };
    assert_eq!(listed.why.as_deref(), Some(&*format!("waits for {line} or /revise")));
    let page = format!("{}/maya/tally/issues/{}", w.hub.base_url().as_str().trim_end_matches('/'), w.issue);
    assert_eq!((listed.status.as_str(), listed.url.as_deref()), ("asking", Some(page.as_str())));

    let message = w.post_done("/pause", pause_request(Some("maya/tally"))).await;
    assert!(message.ends_with("until `countersign resume maya/tally`"), "{message}");
    w.settle().await;
    let [listed] = &w.run_lines("all=false").await[..] else { panic!() };
    assert_eq!(listed.status, "paused");
    assert_eq!(listed.why.as_deref(), Some("paused by ops until `countersign resume maya/tally`"));
    let words = "> ⏸️ **Paused** by the operator, since 2026-03-02 ";
    let status = w.find(words).body;
    assert!(status.starts_with(words) && status.contains("lld: waiting for you"), "{status}");
    w.comment("sam", &line).await;
    w.comment("sam", "/status").await;
    assert!(w.find("Runs on this issue").body.contains("| paused |"), "{}", w.thread());
    assert!(
        w.find(words).body.contains("lld: waiting for you"),
        "the rest of the comment is kept:\n{}",
        w.thread()
    );

    w.post_done("/resume", pause_request(Some("maya/tally"))).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    assert!(!w.thread().contains("**Paused**"), "{}", w.thread());
    w.find("was accepted");
}

#[tokio::test]
async fn pause_note_is_added_to_a_status_comment_with_mixed_line_endings() {
    let mut w = world().await;
    let open = w.socket();
    w.comes_to_the_gate().await;
    let status = w.find("waiting for you");
    let body = status.body.replacen("\n\n", "\n\nb\r\rr\u{2028}\u{85}\r\n\n", 1).replace("waits", "\rwaits");
    w.hub.edit_comment(w.repo, status.id, w.user("maya"), &body).unwrap();
    w.post_done("/pause", pause_request(None)).await;
    w.settle().await;
    let comment = w.find("**Paused** by the operator").body;
    assert!(comment.contains("\n\nb\n\nr\u{2028}\u{85}\n\n") && !comment.contains('\r'), "{comment:?}");
    open.abort();
    open.await.unwrap_err();
    let mut w = w.restart().await;
    w.settle().await;
    w.find("waits for a person");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn note_of_an_ended_pause_is_removed_after_a_restart() {
    let mut w = world().await;
    let open = w.socket();
    w.comes_to_the_gate().await;
    w.post_done("/pause", pause_request(None)).await;
    w.settle().await;
    w.find("**Paused** by the operator");
    w.post_done("/resume", pause_request(None)).await;
    open.abort();
    open.await.unwrap_err();
    let mut w = w.restart().await;
    w.settle().await;
    assert!(!w.thread().contains("**Paused**"), "{}", w.thread());
    let calls = w.hub.requests().len();
    w = w.restart().await;
    w.settle().await;
    assert_eq!(w.hub.requests().len(), calls, "the next restart makes no request");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn status_comment_written_during_an_operator_pause_shows_the_pause_note() {
    let mut w = world_of_files().await;
    let main = w.data().join("main.db");
    w.hub.watch_writes(move |request| {
        if request.method == "POST" && request.path.ends_with("/pulls") {
            let pause = r#"INSERT INTO meta VALUES ('paused', '{"by":"ops","why":"","at":0}')"#;
            rusqlite::Connection::open(&main).unwrap().execute(pause, []).unwrap();
        }
    });
    w.hub.label(w.repo, w.issue, w.user("maya"), LABEL).unwrap();
    while !w.thread().contains("waits for a person") {
        w.pass(15);
        w.step(1).await;
    }
    assert!(
        w.find("lld: waiting for you").body.starts_with("> ⏸️ **Paused** by the operator"),
        "{}",
        w.thread()
    );
    w.find("waits for a person");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn pause_note_is_added_after_the_step_in_progress_ends() {
    let slow = REHEARSAL.replacen("role = \"drafter\"", "role = \"drafter\"\ndelay_ms = 1000", 1);
    let mut w = World::new(Setting { script: Some(slow), ..Setting::default() }).await;
    let _open = w.socket();
    w.hub.label(w.repo, w.issue, w.user("maya"), LABEL).unwrap();
    w.step(0).await;
    let app = w.app.clone();
    let work = tokio::spawn(async move { while app.engine.tick().await.unwrap() > 0 {} });
    while w.run().await.is_none() || w.number(Some(w.repo), "SELECT COUNT(*) FROM call") == 0 {
        tokio::task::yield_now().await;
    }
    w.post_done("/pause", pause_request(None)).await;
    // The step will write the status comment too; two writers would overwrite each other.
    w.app.intake.drain_inbox().await.unwrap();
    assert!(!work.is_finished() && !w.thread().contains("**Paused**"), "{}", w.thread());
    while !work.is_finished() {
        w.clock.pass(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    w.settle().await;
    w.find("**Paused** by the operator");
    w.stands(RunViewStatus::Ready).await;
}

#[tokio::test]
async fn retry_command_refuses_a_run_that_did_not_fail() {
    let mut w = world().await;
    let _open = w.socket();
    w.comes_to_the_gate().await;
    let run = w.run().await.unwrap().id;
    let by = || "ops".to_owned();
    let why = w.post_refused("/retry", RetryCommandRequest { run, by: by() }).await;
    assert!(why.contains("only a run that failed, waits for a model or is parked"), "{why}");
    let run = "999-1".parse().unwrap();
    let why = w.post_refused("/retry", RetryCommandRequest { run, by: by() }).await;
    assert!(why.contains("there is no run 999-1"), "{why}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn forget_command_refuses_a_repository_with_a_live_run() {
    let mut w = world().await;
    let _open = w.socket();
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let forgetting = || ForgetRepositoryRequest { repository: "maya/tally".parse().unwrap() };
    let why = w.post_refused("/forget", forgetting()).await;
    assert!(why.contains("end them with `/stop`"), "{why}");
    assert!(w.run().await.is_some());
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    assert!(
        w.post_done("/forget", forgetting()).await.contains("deleted everything stored about maya/tally")
    );
    assert!(!w.app.store.repo_dir(w.repo).exists());
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await; // the repository starts again as a new one
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_continues_from_a_backup_taken_at_its_gate() {
    let mut w = world().await;
    let open = w.socket();
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let home = w.data().parent().unwrap().to_owned();
    let directory = home.join("copy");
    // Deliveries are written during the backup.
    let busy = {
        let (hub, repo, issue, maya) = (w.hub.clone(), w.repo, w.issue, w.user("maya"));
        tokio::task::spawn_blocking(move || {
            for n in 0..20 {
                hub.comment(repo, issue, maya, &format!("talk {n}")).unwrap();
            }
        })
    };
    let copy = directory.to_str().unwrap();
    let (code, output) = typed(&w, &["backup", copy]).await;
    busy.await.unwrap();
    assert!(code == Some(0) && output.contains("databases of 1 repository:"), "{output}");
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    for (place, words) in [
        (directory.clone(), "this one holds something"),
        (w.data().join("claude/copy"), "choose a directory outside it"),
    ] {
        let (code, output) = typed(&w, &["backup", place.to_str().unwrap()]).await;
        assert!(code == Some(1) && output.contains(words), "{output}");
    }
    assert!(
        check_databases(&directory.as_path().into())
            .unwrap()
            .iter()
            .all(|database| database.problems.is_empty())
    );

    // The original data are deleted, with everything written after the backup.
    w.settle().await;
    open.abort();
    restore_and_approve(w, &directory, || {}).await;
}

/// Calls `meanwhile` while the bot is stopped, and replaces the data by a copy with a run at its gate. After a restart,
/// approves that run.
async fn restore_and_approve(w: World, copy: &Path, meanwhile: impl FnOnce()) {
    let (line, data) = (w.approve_line(), w.data().to_owned());
    let restored = |_: &_| {
        meanwhile();
        std::fs::remove_dir_all(&data).unwrap();
        std::fs::rename(copy, &data).unwrap();
    };
    let mut w = w.restart_after(restored).await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    w.find("was accepted");
    assert!(
        check_databases(&data.as_path().into()).unwrap().iter().all(|database| database.problems.is_empty())
    );
}

/// Damages a backup called `name` with the SQL statement `harm`. Returns the problems that the check finds in the
/// backup.
async fn problems_after(w: &World, name: &str, harm: &str) -> Vec<String> {
    let copy = w.data().with_file_name(name);
    create_backup(&w.data().into(), &copy, &Default::default()).unwrap();
    let database = w.checkpoints(&copy);
    database.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    assert!(database.execute(harm, []).unwrap() > 0, "{harm}");
    drop(database);
    check_databases(&copy.as_path().into())
        .unwrap()
        .into_iter()
        .flat_map(|checked| checked.problems)
        .collect()
}

#[tokio::test]
async fn check_command_reports_damaged_data() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    for key in ["one", "two"] {
        let run = w.run().await.unwrap().id;
        let entry =
            AuditEntry { run, visit: 99, key: key.to_owned(), what: "seen".to_owned(), detail: Value::Null };
        w.app
            .store
            .repository_database(w.repo)
            .await
            .unwrap()
            .append_audit_link(&PendingWrites::default(), entry)
            .await
            .unwrap();
    }
    let sound = check_databases(&w.data().into()).unwrap();
    assert!(sound.iter().all(|database| database.problems.is_empty()), "a live directory: {sound:?}");
    let holds: Vec<_> = sound.iter().map(|DatabaseCheck { contents, .. }| contents.as_str()).collect();
    assert!(holds[0].contains("deliveries") && holds[1].contains("1 run, "), "{holds:?}");
    assert!(!holds[1].contains(" 0 audit links"), "{holds:?}");

    for (name, harm, words) in [
        (
            "flipped",
            "UPDATE document SET zstd = zeroblob(length(zstd)) WHERE rowid = 1",
            "not what their hash says",
        ),
        ("lost", "DELETE FROM document", "documents are missing that were reviewed or approved"),
        (
            "forged",
            "UPDATE audit SET what = 'nothing' WHERE seq = 1",
            "links of the audit chain do not hold: link 1",
        ),
        ("cut", "DELETE FROM audit WHERE seq = 1", "links of the audit chain do not hold"),
        ("torn", "DELETE FROM run", "rows point to something that is not there"),
    ] {
        let wrong = problems_after(&w, name, harm).await;
        assert!(wrong.iter().any(|line| line.contains(words)), "{name}: {wrong:?}");
    }
}

#[tokio::test]
async fn run_from_a_postgres_backup_continues_on_sqlite_files() {
    let Some(address) = postgres::database() else { return };
    let mut w = World::new(Setting { postgres: Some(address.clone()), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let (code, output) = typed(&w, &["check"]).await;
    let sound =
        [format!("repository {}: intact; 1 run, ", w.repo), "the server's own tables: intact; ".to_owned()];
    assert!(code == Some(0) && sound.iter().all(|words| output.contains(words)), "{output}");
    let copy = w.data().with_file_name("copy");
    let (code, output) = typed(&w, &["backup", copy.to_str().unwrap()]).await;
    assert!(code == Some(0) && output.contains("databases of 1 repository:"), "{output}");
    postgres::sql(
        &address,
        "UPDATE countersign.all_audit SET what = 'nothing'; UPDATE countersign.all_document SET zstd = ''",
    );
    let (code, output) = typed(&w, &["check"]).await;
    let wrong =
        ["links of the audit chain do not hold", "not what their hash says", "Stop all nodes, keep a dump"];
    assert!(code == Some(1) && wrong.iter().all(|words| output.contains(words)), "{output}");

    let config = w.app.settings.file.clone();
    let in_files = || {
        let settings = std::fs::read_to_string(&config).unwrap();
        let of_files = |line: &&str| !line.starts_with("postgres_file") && !line.starts_with("lease_seconds");
        let settings: Vec<_> = settings.lines().filter(of_files).collect();
        std::fs::write(&config, settings.join("\n")).unwrap();
    };
    restore_and_approve(w, &copy, in_files).await;
}

/// Runs a `countersign` command with the test environment's configuration. Returns its exit code and output.
pub(crate) async fn typed(w: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let config = w.app.settings.file.clone();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.args(arguments).arg("--config").arg(config).stdin(std::process::Stdio::null());
    let output = command.output().await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), text)
}

#[tokio::test]
async fn operator_commands_use_the_control_socket_of_the_running_server() {
    let mut w = world().await;
    let (code, output) = typed(&w, &["pause"]).await;
    assert_eq!(code, Some(1));
    assert!(
        output.contains("no server runs on") && output.contains("start it with `countersign serve"),
        "{output}"
    );
    // This process has the data directory locked.
    let (code, output) = typed(&w, &["runs"]).await;
    assert!(code == Some(1) && output.contains("is in use by another countersign"), "{output}");
    let _open = w.socket();
    w.comes_to_the_gate().await;
    let run = w.run().await.unwrap().id.to_string();
    for (arguments, code, words) in [
        (&["runs"][..], 0, "Human gate: verdict (N4)"),
        (&["runs", "--json", "--repo", "maya/tally"], 0, "\"workflow\": \"lld\""),
        (&["runs", "--repo", "maya/other"], 1, "no repository maya/other is known here"),
        (&["pause", "maya/tally"], 0, "maya/tally is paused"),
        (&["resume", "maya/tally"], 0, "maya/tally is resumed"),
        (&["cost", "--settle", "maya/tally"], 1, "no finished call holds budget"),
        (&["cost", "--settle", "--billed", "$1"], 2, "--run <RUN>"),
        (&["retry", &run], 1, "only a run that failed, waits for a model or is parked"),
        (&["forget", "maya/tally", "--yes"], 1, "end them with `/stop`"),
        (&["forget", "maya/tally"], 2, "add --yes"),
        (&["check"], 0, "main.db: intact"),
    ] {
        let (ended, output) = typed(&w, arguments).await;
        assert!(ended == Some(code) && output.contains(words), "{arguments:?}: {ended:?} {output}");
    }
}

#[tokio::test]
async fn operator_commands_open_the_data_directory_when_no_server_is_running() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let config = w.app.settings.file.clone();
    let (config, copy) = (config.to_str().unwrap().to_owned(), w.data().with_file_name("copy"));
    let copy = copy.to_str().unwrap().to_owned();
    let (data, second) = (w.data().to_owned(), format!("{copy}-2"));
    let _w = w
        .restart_after(|_| {
            for (arguments, words) in [
                (&["runs"][..], "Human gate: verdict (N4)"),
                (&["backup", &copy], "holds main.db and the databases of 1 repository:"),
                (&["check"], "1 run, "),
                (&["forget", "maya/tally", "--yes"], "deleted everything stored about maya/tally"),
                (&["runs", "--all"], "There are no runs."),
            ] {
                let arguments = [arguments, &["--config", &config]].concat();
                let output = std::process::Command::new(env!("CARGO_BIN_EXE_countersign"))
                    .args(&arguments)
                    .output()
                    .unwrap();
                let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
                assert!(output.status.success() && printed.contains(words), "{arguments:?}: {printed}");
            }
            // A damaged database is named and left out of the backup.
            let damaged = data.join("repos/99");
            std::fs::create_dir_all(&damaged).unwrap();
            std::fs::write(damaged.join("checkpoints.db"), b"junk".repeat(4096)).unwrap();
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_countersign"))
                .args(["backup", &second, "--config", &config])
                .output()
                .unwrap();
            let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(output.status.code() == Some(1) && printed.contains("NOT in the copy: "), "{printed}");
            assert!(
                printed.contains("repos/99/checkpoints.db") && printed.contains("of 0 repositories"),
                "{printed}"
            );
            std::fs::remove_dir_all(damaged).unwrap();
        })
        .await;
    let copied = check_databases(&Path::new(&copy).into()).unwrap();
    assert!(copied.iter().all(|database| database.problems.is_empty()), "{copied:?}");
}
