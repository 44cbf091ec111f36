//! Stories about a server that cannot call its models. The server must start and report the missing parts, and its runs
//! must wait.

use std::path::{Path, PathBuf};

use countersign::engine::RunViewStatus;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    apis::{drafting, reviewing},
    pools::drafting_opencode,
    script::{Script, approved, design},
    world::{Setting, World, some},
};

const LABEL: &str = "countersign:lld";

/// Creates a test environment configured for Claude and Gemini, but without a program, login or key. The APIs of both
/// are reachable.
async fn world_without_models() -> World {
    let ((anthropic, _), (gemini, _)) = (drafting().await, reviewing(None).await);
    let toml = format!(
        "[providers.claude]\npath = \"/nowhere/claude\"\n[providers.anthropic]\nbase_url = \"{anthropic}\"\n\
         [providers.gemini]\nbase_url = \"{gemini}\"\n"
    );
    World::new(Setting { models: Some(("claude:opus", "gemini:pro")), toml, ..Setting::default() }).await
}

async fn scripted_world(script: &Script) -> World {
    let mut w = World::new(Setting { script: Some(script.toml()), ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    w
}

impl World {
    fn bot_directory(&self) -> PathBuf {
        self.directory().join("bot")
    }

    /// Returns the text of the status comment and the number of times it was edited.
    #[track_caller]
    fn status_comment(&mut self) -> (String, usize) {
        let comment = self.find("updated on 20");
        (comment.body, comment.edits)
    }

    async fn readyz(&self) -> Value {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let url = format!("http://{at}/readyz");
        let router = self.app.private(at, CancellationToken::new());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        let answer = reqwest::Client::new().get(url).bearer_auth(self.token()).send().await.unwrap();
        assert_eq!(answer.status(), 200, "it accepts deliveries");
        let answer = answer.json().await.unwrap();
        // Release the router, since the restarted server needs its resources.
        server.abort();
        answer
    }

    /// Restarts the server after adding this line to its `.env` file.
    async fn restart_with(self, secret: &str) -> Self {
        let env = self.bot_directory().join(".env");
        self.restart_after(|_| add_line(&env, secret)).await
    }
}

fn add_line(file: &Path, line: &str) {
    let before = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, format!("{before}{line}\n")).unwrap();
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_waits_when_no_model_is_available_and_resumes_by_itself() {
    let mut w = world_without_models().await;
    let ready = w.readyz().await;
    assert_eq!((&ready["ready"], &ready["degraded"]), (&json!(true), &json!(true)));
    assert_eq!(ready["models"]["reviewer"]["spec"], "gemini:pro");
    assert_eq!(ready["models"]["drafter"]["ready"], false);
    assert_eq!(ready["roles"]["architect"]["state"], "unavailable", "{ready}");
    assert_eq!(ready["roles"].as_object().unwrap().len(), 10);
    assert!(ready["models"]["reviewer"]["lacks"].to_string().contains("GEMINI_API_KEY"), "{ready}");

    w.label("maya", LABEL).await;
    let (status, edits) = w.status_comment();
    assert!(status.contains("✋ lld: waiting for the operator"), "{status}");
    let missing =
        "The drafter `claude:opus` has neither a logged-in Claude CLI nor an API key on this server.";
    assert!(status.contains(missing), "{status}");
    assert!(!w.thread().contains("/nowhere") && !w.thread().contains("APPROVED"), "{}", w.thread());
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Waiting);

    let requests_before = w.hub.requests().len();
    w.wait(2 * 3600).await;
    assert_eq!(w.hub.requests().len(), requests_before, "waiting makes no request to GitHub");
    w.comment("maya", "/status").await;
    assert!(w.newest().contains("nor an API key on this server"), "{}", w.thread());
    assert_eq!(w.status_comment().1, edits);

    let mut w = w.restart_with("ANTHROPIC_API_KEY=sk-ant-of-this-story").await;
    w.wait(75).await;
    let (status, _) = w.status_comment();
    assert!(status.contains("The reviewer `gemini:pro` has no key on this server."), "{status}");
    assert!(status.contains("add GEMINI_API_KEY to the server's .env"), "{status}");
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    let ready = w.readyz().await;
    assert_eq!(ready["models"]["drafter"], json!({ "spec": "claude:opus", "ready": true, "lacks": null }));

    let mut w = w.restart_with("GEMINI_API_KEY=AIzaSyOfThisStory").await;
    w.wait(75).await;
    assert_eq!(w.readyz().await["degraded"], false);
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED"), "{gate}");
    w.approved_by("sam").await;
    assert_eq!(w.notifying(), 3, "the status, the answer to /status, the gate");
    assert!(w.status_comment().0.contains("### ✅ lld: done"));
}

#[tokio::test]
async fn run_waiting_for_a_key_can_be_stopped() {
    let mut w = world_without_models().await;
    w.label("maya", LABEL).await;
    w.wait(120).await;
    w.comment("maya", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.labels(), ["countersign:stopped"]);
    let (status, _) = w.status_comment();
    assert!(!status.contains("resumes by itself"), "a stopped run waits for nothing: {status}");
}

#[tokio::test]
async fn waiting_run_calls_claude_again_after_a_login() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/dying-claude.sh");
    let toml = format!("[providers.claude]\npath = \"{program}\"\nconfig_dir = \"login\"\n");
    let models = Some(("claude:opus", "stub:reviewer"));
    let mut w = World::new(Setting { models, toml, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    let login = w.bot_directory().join("login");
    std::fs::create_dir_all(&login).unwrap();
    std::fs::write(login.join(".credentials.json"), "{}").unwrap();
    w.wait(75).await;
    assert_eq!(w.labels(), [""; 0]);
    let (status, _) = w.status_comment();
    assert!(
        status.contains("Waiting for Claude: it was unreachable or dropped the connection; next try at 09:0"),
        "{status}"
    );
}

#[tokio::test]
async fn status_comment_shows_an_overloaded_model_and_the_next_retry_in_one_line() {
    let script = Script::default()
        .fails("drafter", "capacity")
        .fails("drafter", "capacity")
        .drafts(&design())
        .reviews(&approved());
    let mut w = scripted_world(&script).await;
    let (status, edits) = w.status_comment();
    assert_eq!((status.contains("Waiting for"), edits), (false, 0), "the comment is seconds old: {status}");
    w.wait(15).await;
    let (status, edits) = w.status_comment();
    assert!(status.contains("### ⏳ lld: working"), "{status}");
    assert!(
        status.contains("\n\nWaiting for the script: it is busy; next try at 09:00 UTC.\n\n"),
        "{status}"
    );
    assert_eq!((edits, w.labels()), (1, vec![]));
    w.wait(30).await;
    let (status, edits) = w.status_comment();
    assert!(status.contains("next try at 09:01 UTC."), "{status}");
    assert_eq!(edits, 2);
    w.wait(75).await;
    assert!(!w.status_comment().0.contains("Waiting for the script"), "{}", w.thread());
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED") && gate.contains("round 1"), "waiting is not a round:\n{gate}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn model_call_with_a_refused_key_is_retried_after_ten_minutes_or_a_restart() {
    let script = || {
        Script::default()
            .fails("drafter", "auth")
            .drafts(&design())
            .fails("reviewer", "auth")
            .reviews(&approved())
    };
    let mut w = scripted_world(&script()).await;
    let (status, _) = w.status_comment();
    assert!(status.contains("does not accept this server's key or login"), "{status}");
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    w.wait(540).await;
    assert_eq!(w.run().await.unwrap().step_id, "N1");
    w.wait(75).await;
    assert_eq!(w.run().await.unwrap().step_id, "N3", "tried again after ten minutes");
    assert!(w.status_comment().0.contains("The reviewer `stub:reviewer` does not accept"), "{}", w.thread());
    // After a restart the key may be another one.
    let mut w = w.restart().await;
    w.wait(75).await;
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED") && gate.contains("round 1"), "{gate}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn run_waits_for_an_exhausted_quota() {
    let script = Script::default().drafts(&design()).fails("reviewer", "quota").reviews(&approved());
    let mut w = scripted_world(&script).await;
    w.wait(15).await;
    let (status, _) = w.status_comment();
    assert!(
        status.contains("the account has no quota or credit left; next try at 2026-03-02 09:00 UTC"),
        "{status}"
    );
    w.wait(60).await;
    assert!(w.find("waits for a person").body.contains("APPROVED"));
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn permanent_provider_errors_are_reported_and_not_retried() {
    for (error, reason, remedy) in some([
        (
            "resource_exhausted",
            "program was killed at 1100 MB of memory; its worker pool `medium` allows 1024 MB.",
            "memory_mb under [workers.medium]",
        ),
        ("rejected", "service does not accept our request (`INVALID_ARGUMENT`).", "The server's log"),
        ("no_such_model", "service does not have the model `stub-", "`countersign models` lists them"),
    ]) {
        let w = scripted_world(&Script::default().fails("drafter", error).drafts(&design())).await;
        let halt = w.find("### ❌ Halted at Draft the design").body;
        // The comment escapes brackets.
        let plain = halt.replace('\\', "");
        assert!(
            plain.contains(reason) && plain.contains(remedy) && plain.contains("\n/retry\n"),
            "{error}:\n{halt}"
        );
        w.stands(RunViewStatus::Failed).await;
        assert_eq!(w.calls().await.len(), 1, "{error}");

        let w = scripted_world(&Script::default().drafts(&design()).fails("reviewer", error)).await;
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate();
        assert!(
            gate.contains("INCONCLUSIVE: the design waits") && gate.contains(reason) && gate.contains(remedy),
            "{error}:\n{gate}"
        );
        assert!(!gate.contains("reviewed by"), "no review took place:\n{gate}");
        assert_eq!(w.calls().await.len(), 2, "{error}");
    }
}

#[tokio::test]
async fn gate_comment_reports_that_the_reviewer_declined_to_answer() {
    let w = scripted_world(&Script::default().drafts(&design()).fails("reviewer", "refused")).await;
    let gate = w.find("INCONCLUSIVE: the design waits for a person").body;
    assert!(gate.contains("There is no verdict. The reviewer declined to answer."), "{gate}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn round_without_a_draft_shows_no_author() {
    let script = Script::default().fails("drafter", "truncated").drafts(&design()).reviews(&approved());
    let mut w = scripted_world(&script).await;
    let (status, _) = w.status_comment();
    assert!(status.contains("| 1 | – | 0 | – | – |\n| 2 | ✅ APPROVED | 0 | `stub-drafter`"), "{status}");
    assert!(!w.thread().contains("(human)"), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn draft_is_not_reviewed_when_its_model_is_unknown() {
    let place = tempfile::tempdir().unwrap();
    let toml = format!(
        "[providers.opencode]\npath = {:?}\nbase_url = \"http://127.0.0.1:1\"\n[[model]]\nid = \"maker/one\"\n\
         providers = [\"opencode\"]\nfamily = \"maker\"\ncontext = 1000000\nmax_output = 8000\n\
         price = {{ input = 0, output = 0 }}\n",
        drafting_opencode(place.path())
    );
    let models = Some(("opencode:maker/one", "stub:reviewer"));
    let script = Some(Script::default().reviews(&approved()).toml());
    let mut w = World::new(Setting { models, toml, script, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    let gate = w.find("INCONCLUSIVE: the design waits for a person").body;
    assert!(gate.contains("no review of it can count, and Countersign does not pay for one"), "{gate}");
    assert!(gate.contains("Drafted by an unidentified model, round 1."), "{gate}");
    let roles: Vec<_> = w.calls().await.into_iter().map(|row| row.role).collect();
    assert_eq!(roles, ["drafter"]);

    w.comment("max", "/override I read every line").await;
    w.stands(RunViewStatus::Done).await;
}
