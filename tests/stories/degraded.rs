//! A server that cannot ask its models: it starts, says what is missing, and its runs wait until it is there.

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

/// A server for Claude and Gemini that has no program, no login and no key; their APIs are there.
async fn bare() -> World {
    let ((anthropic, _), (gemini, _)) = (drafting().await, reviewing(None).await);
    let toml = format!(
        "[providers.claude]\npath = \"/nowhere/claude\"\n[providers.anthropic]\nbase_url = \"{anthropic}\"\n\
         [providers.gemini]\nbase_url = \"{gemini}\"\n"
    );
    World::new(Setting { models: Some(("claude:opus", "gemini:pro")), toml, ..Setting::default() }).await
}

async fn scripted(script: &Script) -> World {
    let mut w = World::new(Setting { script: Some(script.toml()), ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    w
}

impl World {
    fn bot(&self) -> PathBuf {
        self.directory().join("bot")
    }

    /// The status comment and how often it was edited.
    #[track_caller]
    fn status_comment(&mut self) -> (String, usize) {
        let comment = self.find("updated on 20");
        (comment.body, comment.edits)
    }

    async fn readyz(&self) -> Value {
        let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = door.local_addr().unwrap();
        let url = format!("http://{at}/readyz");
        let router = self.app.private(at, CancellationToken::new());
        let open = tokio::spawn(async move { axum::serve(door, router).await });
        let answer = reqwest::Client::new().get(url).bearer_auth(self.token()).send().await.unwrap();
        assert_eq!(answer.status(), 200, "it takes deliveries in");
        let answer = answer.json().await.unwrap();
        // Another server is about to need what its routes hold.
        open.abort();
        answer
    }

    /// The server ends, gets a secret, and starts.
    async fn restart_with(self, secret: &str) -> Self {
        let env = self.bot().join(".env");
        self.restart_after(|_| add_line(&env, secret)).await
    }
}

fn add_line(file: &Path, line: &str) {
    let before = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, format!("{before}{line}\n")).unwrap();
}

#[tokio::test]
#[ignore = "takes long"]
async fn without_models_a_run_waits_and_goes_on_by_itself() {
    let mut w = bare().await;
    let ready = w.readyz().await;
    assert_eq!((&ready["ready"], &ready["degraded"]), (&json!(true), &json!(true)));
    assert_eq!(ready["models"]["reviewer"]["spec"], "gemini:pro");
    assert_eq!(ready["models"]["drafter"]["ready"], false);
    assert_eq!(ready["roles"]["architect"]["state"], "unavailable", "{ready}");
    assert_eq!(ready["roles"].as_object().unwrap().len(), 10);
    assert!(ready["models"]["reviewer"]["lacks"].to_string().contains("GEMINI_API_KEY"), "{ready}");

    w.label("maya", LABEL).await;
    let (said, edits) = w.status_comment();
    assert!(said.contains("✋ lld: waiting for whoever runs this server"), "{said}");
    let missing = "The drafter `claude:opus` has neither a Claude program that is logged in nor an API key on this server.";
    assert!(said.contains(missing), "{said}");
    assert!(!w.thread().contains("/nowhere") && !w.thread().contains("APPROVED"), "{}", w.thread());
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Waiting);

    let asked = w.hub.requests().len();
    w.wait(2 * 3600).await;
    assert_eq!(w.hub.requests().len(), asked, "looking costs GitHub nothing");
    w.comment("maya", "/status").await;
    assert!(w.newest().contains("nor an API key on this server"), "{}", w.thread());
    assert_eq!(w.status_comment().1, edits);

    let mut w = w.restart_with("ANTHROPIC_API_KEY=sk-ant-of-this-story").await;
    w.wait(75).await;
    let (said, _) = w.status_comment();
    assert!(said.contains("The reviewer `gemini:pro` has no key on this server."), "{said}");
    assert!(said.contains("adds GEMINI_API_KEY to its .env"), "{said}");
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
async fn what_waits_for_a_key_can_be_stopped() {
    let mut w = bare().await;
    w.label("maya", LABEL).await;
    w.wait(120).await;
    w.comment("maya", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.labels(), ["countersign:stopped"]);
    let (said, _) = w.status_comment();
    assert!(!said.contains("goes on by itself"), "it waits for nothing now: {said}");
}

#[tokio::test]
async fn a_login_made_meanwhile_is_noticed() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/dying-claude.sh");
    let toml = format!("[providers.claude]\npath = \"{program}\"\nconfig_dir = \"login\"\n");
    let models = Some(("claude:opus", "stub:reviewer"));
    let mut w = World::new(Setting { models, toml, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    let login = w.bot().join("login");
    std::fs::create_dir_all(&login).unwrap();
    std::fs::write(login.join(".credentials.json"), "{}").unwrap();
    w.wait(75).await;
    assert_eq!(w.labels(), [""; 0]);
    let (said, _) = w.status_comment();
    assert!(
        said.contains("Waiting for Claude: it could not be reached, or broke off; next try at 09:0"),
        "{said}"
    );
}

#[tokio::test]
async fn a_busy_model_is_told_in_one_line_that_is_seldom_edited() {
    let script = Script::default()
        .fails("drafter", "capacity")
        .fails("drafter", "capacity")
        .drafts(&design())
        .reviews(&approved());
    let mut w = scripted(&script).await;
    let (said, edits) = w.status_comment();
    assert_eq!((said.contains("Waiting for"), edits), (false, 0), "the comment is seconds old: {said}");
    w.wait(15).await;
    let (said, edits) = w.status_comment();
    assert!(said.contains("### ⏳ lld: working"), "{said}");
    assert!(said.contains("\n\nWaiting for the script: it is busy; next try at 09:00 UTC.\n\n"), "{said}");
    assert_eq!((edits, w.labels()), (1, vec![]));
    w.wait(30).await;
    let (said, edits) = w.status_comment();
    assert!(said.contains("next try at 09:01 UTC."), "{said}");
    assert_eq!(edits, 2);
    w.wait(75).await;
    assert!(!w.status_comment().0.contains("Waiting for the script"), "{}", w.thread());
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED") && gate.contains("round 1"), "waiting is not a round:\n{gate}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_key_that_is_refused_waits_for_the_operator_and_is_seldom_tried() {
    let script = || {
        Script::default()
            .fails("drafter", "auth")
            .drafts(&design())
            .fails("reviewer", "auth")
            .reviews(&approved())
    };
    let mut w = scripted(&script()).await;
    let (said, _) = w.status_comment();
    assert!(said.contains("does not accept this server's key or login"), "{said}");
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    w.wait(540).await;
    assert_eq!(w.run().await.unwrap().step_id, "N1");
    w.wait(75).await;
    assert_eq!(w.run().await.unwrap().step_id, "N3", "tried again after ten minutes");
    assert!(w.status_comment().0.contains("The reviewer `stub:reviewer` does not accept"), "{}", w.thread());
    // A new start may have another key.
    let mut w = w.restart().await;
    w.wait(75).await;
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED") && gate.contains("round 1"), "{gate}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn an_account_that_is_used_up_is_waited_for() {
    let script = Script::default().drafts(&design()).fails("reviewer", "quota").reviews(&approved());
    let mut w = scripted(&script).await;
    w.wait(15).await;
    let (said, _) = w.status_comment();
    assert!(said.contains("the account is used up; next try at 2026-03-02 09:00 UTC"), "{said}");
    w.wait(60).await;
    assert!(w.find("waits for a person").body.contains("APPROVED"));
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn what_would_fail_again_is_said_as_it_is_and_not_tried_again() {
    for (error, said, mend) in some([
        (
            "resource_exhausted",
            "program was ended when it used 1100 MB of memory; its worker pool, `medium`, allows 1024 MB.",
            "memory_mb under [workers.medium]",
        ),
        ("rejected", "service does not accept our request (`INVALID_ARGUMENT`).", "in its log"),
        ("no_such_model", "service knows no model `stub-", "`countersign models` lists them"),
    ]) {
        let w = scripted(&Script::default().fails("drafter", error).drafts(&design())).await;
        let halt = w.find("### ❌ Halted at Draft the design").body;
        // Brackets are escaped on the page.
        let plain = halt.replace('\\', "");
        assert!(
            plain.contains(said) && plain.contains(mend) && plain.contains("\n/retry\n"),
            "{error}:\n{halt}"
        );
        w.stands(RunViewStatus::Failed).await;
        assert_eq!(w.calls().await.len(), 1, "{error}");

        let w = scripted(&Script::default().drafts(&design()).fails("reviewer", error)).await;
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate();
        assert!(
            gate.contains("INCONCLUSIVE: the LLD waits") && gate.contains(said) && gate.contains(mend),
            "{error}:\n{gate}"
        );
        assert!(!gate.contains("reviewed by"), "nobody did:\n{gate}");
        assert_eq!(w.calls().await.len(), 2, "{error}");
    }
}

#[tokio::test]
async fn a_review_that_was_declined_is_said_to_be() {
    let w = scripted(&Script::default().drafts(&design()).fails("reviewer", "refused")).await;
    let gate = w.find("INCONCLUSIVE: the LLD waits for a person").body;
    assert!(gate.contains("There is no verdict. The reviewer declined to answer."), "{gate}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_round_without_a_draft_has_no_author() {
    let script = Script::default().fails("drafter", "truncated").drafts(&design()).reviews(&approved());
    let mut w = scripted(&script).await;
    let (said, _) = w.status_comment();
    assert!(said.contains("| 1 | – | 0 | – | – |\n| 2 | ✅ APPROVED | 0 | `stub-drafter`"), "{said}");
    assert!(!w.thread().contains("(human)"), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn no_review_is_paid_for_of_a_draft_that_nobody_is_known_to_have_written() {
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
    let gate = w.find("INCONCLUSIVE: the LLD waits for a person").body;
    assert!(gate.contains("no review of it could count, and none was paid for, nor is a revision"), "{gate}");
    assert!(gate.contains("Drafted by a model that did not say its name, round 1."), "{gate}");
    let asked: Vec<_> = w.calls().await.into_iter().map(|row| row.role).collect();
    assert_eq!(asked, ["drafter"]);

    w.comment("max", "/override I read every line").await;
    w.stands(RunViewStatus::Done).await;
}
