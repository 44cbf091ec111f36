//! The operator's hand: the control socket, and copies of the data that can be gone on from.

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

    /// Opens the control socket.
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

    async fn said(&self, path: &str, body: impl Serialize) -> String {
        match self.post::<ControlMessage>(path, body).await {
            ControlReply::Done(said) => said.message,
            other => panic!("{other:?}"),
        }
    }

    async fn refused(&self, path: &str, body: impl Serialize) -> String {
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

    /// The repository's database in some data directory.
    pub(crate) fn checkpoints(&self, data: &Path) -> rusqlite::Connection {
        rusqlite::Connection::open(data.join(format!("repos/{}/checkpoints.db", self.repo))).unwrap()
    }
}

fn pausing(repository: Option<&str>) -> PauseRequest {
    PauseRequest { repository: repository.map(|name| name.parse().unwrap()), by: "ops".to_owned() }
}

#[tokio::test]
async fn the_socket_answers_whoever_owns_the_data_and_says_when_nobody_is_there() {
    let w = world().await;
    assert!(matches!(w.post::<ControlMessage>("/pause", pausing(None)).await, ControlReply::NotRunning));
    // What a server left that died is in nobody's way.
    std::fs::write(control_socket(w.data()), "").unwrap();
    assert!(matches!(w.post::<ControlMessage>("/pause", pausing(None)).await, ControlReply::NotRunning));
    let _open = w.socket();
    let mode = std::fs::metadata(control_socket(w.data())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(w.said("/pause", pausing(None)).await.contains("the server is paused"));
    assert!(w.said("/resume", pausing(None)).await.contains("goes on"));
    assert!(w.said("/resume", pausing(None)).await.contains("was not paused"));
    let mode = std::fs::metadata(token_file(w.data())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = reqwest::Client::builder().unix_socket(control_socket(w.data())).build().unwrap();
    for token in ["", "guessed", &w.token()[1..]] {
        let asked = client.get("http://bot/runs?all=true").bearer_auth(token);
        assert_eq!(asked.send().await.unwrap().status(), 401, "{token}");
    }
    let why = w.refused("/pause", pausing(Some("maya/nothing"))).await;
    assert!(why.contains("no repository maya/nothing is known here"), "{why}");
}

#[tokio::test]
async fn runs_are_listed_with_where_they_stand() {
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
async fn a_pause_is_told_where_people_look_until_it_ends() {
    let mut w = world().await;
    let _open = w.socket();
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let line = w.approve_line();
    let [listed] = &w.run_lines("all=false").await[..] else { panic!() };
    assert_eq!(listed.why.as_deref(), Some(&*format!("waits for {line} or /revise")));
    let page = format!("{}/maya/tally/issues/{}", w.hub.base_url().as_str().trim_end_matches('/'), w.issue);
    assert_eq!((listed.status.as_str(), listed.url.as_deref()), ("asking", Some(page.as_str())));

    let said = w.said("/pause", pausing(Some("maya/tally"))).await;
    assert!(said.ends_with("until `countersign resume maya/tally`"), "{said}");
    w.settle().await;
    let [listed] = &w.run_lines("all=false").await[..] else { panic!() };
    assert_eq!(listed.status, "paused");
    assert_eq!(listed.why.as_deref(), Some("paused by ops until `countersign resume maya/tally`"));
    let words = "> ⏸️ **Paused** by whoever runs this server, since 2026-03-02 ";
    let status = w.find(words).body;
    assert!(status.starts_with(words) && status.contains("lld: waiting for you"), "{status}");
    w.comment("sam", &line).await;
    w.comment("sam", "/status").await;
    assert!(w.find("Runs on this issue").body.contains("| paused |"), "{}", w.thread());
    assert!(w.find(words).body.contains("lld: waiting for you"), "what was said is kept:\n{}", w.thread());

    w.said("/resume", pausing(Some("maya/tally"))).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    assert!(!w.thread().contains("**Paused**"), "{}", w.thread());
    w.find("was accepted");
}

#[tokio::test]
async fn a_pause_is_told_in_a_comment_with_any_line_ends() {
    let mut w = world().await;
    let open = w.socket();
    w.comes_to_the_gate().await;
    let status = w.find("waiting for you");
    let body = status.body.replacen("\n\n", "\n\nb\r\rr\u{2028}\u{85}\r\n\n", 1).replace("waits", "\rwaits");
    w.hub.edit_comment(w.repo, status.id, w.user("maya"), &body).unwrap();
    w.said("/pause", pausing(None)).await;
    w.settle().await;
    let told = w.find("**Paused** by whoever runs this server").body;
    assert!(told.contains("\n\nb\n\nr\u{2028}\u{85}\n\n") && !told.contains('\r'), "{told:?}");
    open.abort();
    open.await.unwrap_err();
    let mut w = w.restart().await;
    w.settle().await;
    w.find("waits for a person");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_pause_that_ended_while_nobody_could_tell_of_it_is_told_of_no_more() {
    let mut w = world().await;
    let open = w.socket();
    w.comes_to_the_gate().await;
    w.said("/pause", pausing(None)).await;
    w.settle().await;
    w.find("**Paused** by whoever runs this server");
    w.said("/resume", pausing(None)).await;
    open.abort();
    open.await.unwrap_err();
    let mut w = w.restart().await;
    w.settle().await;
    assert!(!w.thread().contains("**Paused**"), "{}", w.thread());
    let calls = w.hub.requests().len();
    w = w.restart().await;
    w.settle().await;
    assert_eq!(w.hub.requests().len(), calls, "and then nobody asks any more");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_step_that_was_under_way_when_the_pause_began_does_not_hide_it() {
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
        w.find("lld: waiting for you").body.starts_with("> ⏸️ **Paused** by whoever runs this server"),
        "{}",
        w.thread()
    );
    w.find("waits for a person");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_run_in_the_middle_of_a_step_is_told_of_a_pause_after_it() {
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
    w.said("/pause", pausing(None)).await;
    // What the step is about to write would be lost, or this.
    w.app.intake.drain_inbox().await.unwrap();
    assert!(!work.is_finished() && !w.thread().contains("**Paused**"), "{}", w.thread());
    while !work.is_finished() {
        w.clock.pass(Duration::from_millis(10));
        tokio::task::yield_now().await;
    }
    w.settle().await;
    w.find("**Paused** by whoever runs this server");
    w.stands(RunViewStatus::Ready).await;
}

#[tokio::test]
async fn only_what_failed_is_tried_again() {
    let mut w = world().await;
    let _open = w.socket();
    w.comes_to_the_gate().await;
    let run = w.run().await.unwrap().id;
    let by = || "ops".to_owned();
    let why = w.refused("/retry", RetryCommandRequest { run, by: by() }).await;
    assert!(why.contains("only a run that failed, waits for a model or is parked"), "{why}");
    let run = "999-1".parse().unwrap();
    let why = w.refused("/retry", RetryCommandRequest { run, by: by() }).await;
    assert!(why.contains("there is no run 999-1"), "{why}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_repository_is_forgotten_once_nothing_of_it_is_alive() {
    let mut w = world().await;
    let _open = w.socket();
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let forgetting = || ForgetRepositoryRequest { repository: "maya/tally".parse().unwrap() };
    let why = w.refused("/forget", forgetting()).await;
    assert!(why.contains("end them with `/stop`"), "{why}");
    assert!(w.run().await.is_some());
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    assert!(w.said("/forget", forgetting()).await.contains("nothing is kept of maya/tally"));
    assert!(!w.app.store.repo_dir(w.repo).exists());
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await; // it may come back, as a new one
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_backup_taken_at_the_gate_is_gone_on_from_elsewhere() {
    let mut w = world().await;
    let open = w.socket();
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let home = w.data().parent().unwrap().to_owned();
    let directory = home.join("copy");
    // Writers go on meanwhile.
    let busy = {
        let (hub, repo, issue, maya) = (w.hub.clone(), w.repo, w.issue, w.user("maya"));
        tokio::task::spawn_blocking(move || {
            for n in 0..20 {
                hub.comment(repo, issue, maya, &format!("talk {n}")).unwrap();
            }
        })
    };
    let copy = directory.to_str().unwrap();
    let (code, said) = typed(&w, &["backup", copy]).await;
    busy.await.unwrap();
    assert!(code == Some(0) && said.contains("databases of 1 repository:"), "{said}");
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    for (place, words) in [
        (directory.clone(), "this one holds something"),
        (w.data().join("claude/copy"), "choose a place outside of it"),
    ] {
        let (code, said) = typed(&w, &["backup", place.to_str().unwrap()]).await;
        assert!(code == Some(1) && said.contains(words), "{said}");
    }
    assert!(
        check_databases(&directory.as_path().into())
            .unwrap()
            .iter()
            .all(|database| database.problems.is_empty())
    );

    // The original goes on to its end, and is then lost with all that came after the copy.
    w.settle().await;
    open.abort();
    goes_on_from(w, &directory, || {}).await;
}

/// The copy of a run at its gate takes the place of the data, once `meanwhile` is over, and the run is accepted there.
async fn goes_on_from(w: World, copy: &Path, meanwhile: impl FnOnce()) {
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

/// What is wrong with a copy after something was done to it.
async fn harmed(w: &World, name: &str, harm: &str) -> Vec<String> {
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
async fn damage_is_found_and_named() {
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
        let wrong = harmed(&w, name, harm).await;
        assert!(wrong.iter().any(|line| line.contains(words)), "{name}: {wrong:?}");
    }
}

#[tokio::test]
async fn a_backup_of_a_postgres_is_gone_on_from_in_files_whatever_becomes_of_it_there() {
    let Some(address) = postgres::database() else { return };
    let mut w = World::new(Setting { postgres: Some(address.clone()), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let (code, said) = typed(&w, &["check"]).await;
    let sound =
        [format!("repository {}: sound; 1 run, ", w.repo), "the server's own tables: sound; ".to_owned()];
    assert!(code == Some(0) && sound.iter().all(|words| said.contains(words)), "{said}");
    let copy = w.data().with_file_name("copy");
    let (code, said) = typed(&w, &["backup", copy.to_str().unwrap()]).await;
    assert!(code == Some(0) && said.contains("databases of 1 repository:"), "{said}");
    postgres::sql(
        &address,
        "UPDATE countersign.all_audit SET what = 'nothing'; UPDATE countersign.all_document SET zstd = ''",
    );
    let (code, said) = typed(&w, &["check"]).await;
    let wrong =
        ["links of the audit chain do not hold", "not what their hash says", "Stop all nodes, keep a dump"];
    assert!(code == Some(1) && wrong.iter().all(|words| said.contains(words)), "{said}");

    let config = w.app.settings.file.clone();
    let in_files = || {
        let settings = std::fs::read_to_string(&config).unwrap();
        let of_files = |line: &&str| !line.starts_with("postgres_file") && !line.starts_with("lease_seconds");
        let settings: Vec<_> = settings.lines().filter(of_files).collect();
        std::fs::write(&config, settings.join("\n")).unwrap();
    };
    goes_on_from(w, &copy, in_files).await;
}

/// A command as it is typed, beside the world's own configuration.
pub(crate) async fn typed(w: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let config = w.app.settings.file.clone();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.args(arguments).arg("--config").arg(config).stdin(std::process::Stdio::null());
    let output = command.output().await.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), said)
}

#[tokio::test]
async fn the_command_line_speaks_to_the_server_that_runs() {
    let mut w = world().await;
    let (code, said) = typed(&w, &["pause"]).await;
    assert_eq!(code, Some(1));
    assert!(
        said.contains("no server runs on") && said.contains("start it with `countersign serve"),
        "{said}"
    );
    // The world's own process holds the directory, so nobody else opens it.
    let (code, said) = typed(&w, &["runs"]).await;
    assert!(code == Some(1) && said.contains("is in use by another countersign"), "{said}");
    let _open = w.socket();
    w.comes_to_the_gate().await;
    let run = w.run().await.unwrap().id.to_string();
    for (arguments, code, words) in [
        (&["runs"][..], 0, "Human gate: verdict (N4)"),
        (&["runs", "--json", "--repo", "maya/tally"], 0, "\"workflow\": \"lld\""),
        (&["runs", "--repo", "maya/other"], 1, "no repository maya/other is known here"),
        (&["pause", "maya/tally"], 0, "maya/tally is paused"),
        (&["resume", "maya/tally"], 0, "maya/tally goes on"),
        (&["cost", "--settle", "maya/tally"], 1, "nothing is held for calls that are over"),
        (&["cost", "--settle", "--billed", "$1"], 2, "--run <RUN>"),
        (&["retry", &run], 1, "only a run that failed, waits for a model or is parked"),
        (&["forget", "maya/tally", "--yes"], 1, "end them with `/stop`"),
        (&["forget", "maya/tally"], 2, "add --yes"),
        (&["check"], 0, "main.db: sound"),
    ] {
        let (ended, said) = typed(&w, arguments).await;
        assert!(ended == Some(code) && said.contains(words), "{arguments:?}: {ended:?} {said}");
    }
}

#[tokio::test]
async fn without_a_server_the_command_line_looks_for_itself() {
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
                (&["forget", "maya/tally", "--yes"], "nothing is kept of maya/tally"),
                (&["runs", "--all"], "There are no runs."),
            ] {
                let arguments = [arguments, &["--config", &config]].concat();
                let output = std::process::Command::new(env!("CARGO_BIN_EXE_countersign"))
                    .args(&arguments)
                    .output()
                    .unwrap();
                let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
                assert!(output.status.success() && said.contains(words), "{arguments:?}: {said}");
            }
            // What is damaged is named and left out.
            let damaged = data.join("repos/99");
            std::fs::create_dir_all(&damaged).unwrap();
            std::fs::write(damaged.join("checkpoints.db"), b"junk".repeat(4096)).unwrap();
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_countersign"))
                .args(["backup", &second, "--config", &config])
                .output()
                .unwrap();
            let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(output.status.code() == Some(1) && said.contains("NOT in it: "), "{said}");
            assert!(said.contains("repos/99/checkpoints.db") && said.contains("of 0 repositories"), "{said}");
            std::fs::remove_dir_all(damaged).unwrap();
        })
        .await;
    let copied = check_databases(&Path::new(&copy).into()).unwrap();
    assert!(copied.iter().all(|database| database.problems.is_empty()), "{copied:?}");
}
