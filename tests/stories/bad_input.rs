//! Stories about unexpected actions of people: closing, deleting, renaming, repeating, and answering in the wrong
//! place.

use countersign::{engine::RunViewStatus, localhub::RepoSource};

use crate::{
    script::{Script, approved, design},
    world::{Setting, World, world, world_of_files},
};

impl World {
    /// Creates a test environment with a run between two steps: it has started but has not called a model yet.
    async fn between_steps() -> Self {
        let mut w = world().await;
        w.start_run().await;
        w
    }

    async fn start_run(&mut self) {
        self.hub.label(self.repo, self.issue, self.user("maya"), "countersign:lld").unwrap();
        self.step(2).await;
        assert_eq!(self.labels(), [""; 0], "the trigger label is removed and no other is set yet");
    }
}

fn repository_file(text: &str) -> Vec<(String, Vec<u8>)> {
    vec![(".github/countersign.toml".to_owned(), text.as_bytes().to_vec())]
}

#[tokio::test]
async fn issue_closed_between_steps_stops_the_run() {
    let mut w = World::between_steps().await;
    w.hub.close_issue(w.repo, w.issue, w.user("maya")).unwrap();
    w.wait(30).await; // the bot looks twice for a status comment that may exist
    w.stands(RunViewStatus::Stopped).await;
    assert!(w.hub.pulls(w.repo).is_empty());
    // A new run on the closed issue says how to continue.
    w.pass(60);
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Failed).await;
    assert!(w.find("Halted").body.contains("Reopen it"), "{}", w.thread());
}

#[tokio::test]
async fn issue_deleted_between_steps_stops_the_run_without_a_comment() {
    let mut w = World::between_steps().await;
    let run = w.run().await.unwrap().id;
    w.hub.delete_issue(w.repo, w.issue, w.user("maya")).unwrap();
    w.settle().await;
    w.wait(60).await;
    let view = countersign::engine::EnginePort::inspect(&*w.app.engine, run).await.unwrap().unwrap();
    assert_eq!(view.status, RunViewStatus::Stopped);
    assert!(w.hub.pulls(w.repo).is_empty());
    assert_eq!(w.app.store.inbox().counts().await.unwrap().dead, 0);
}

#[tokio::test]
async fn run_on_an_empty_issue_halts_and_lists_the_missing_parts() {
    let issue = Some(("Make it better".to_owned(), " \n\n".to_owned()));
    let mut w = World::new(Setting { issue, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.find("Halted at Load the issue").body;
    assert!(halt.contains("The issue has no text. Describe what you want"), "{halt}");
    w.find("Rehearsal");
    assert!(w.notifying() <= 2, "{}", w.thread());
}

#[tokio::test]
#[ignore = "takes long"]
async fn comments_on_a_long_issue_fit_githubs_limit() {
    let body =
        format!("Wanted: exit status 2 on an empty file.\n\n{}", "A line of a long log.\n".repeat(2800));
    assert!(body.len() > 60_000);
    let mut w = World::new(Setting { issue: Some(("Long".to_owned(), body)), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;
    for comment in w.view().comments {
        assert!(comment.body.chars().count() <= 65_536);
    }
    assert_eq!(w.notifying(), 2);
}

#[tokio::test]
async fn run_follows_a_repository_rename_between_steps() {
    let mut w = World::between_steps().await;
    w.hub.rename_repo(w.repo, "counter").unwrap();
    // The step meets the redirect before the webhook is processed.
    w.app.engine.tick().await.unwrap();
    w.settle().await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("maya/counter/"), "links use the present name:\n{gate}");
    w.hub.rename_repo(w.repo, "counted").unwrap();
    w.approved_by("sam").await;
}

#[tokio::test]
async fn repository_deleted_between_steps_ends_the_run() {
    let w = World::between_steps().await;
    let run = w.run().await.unwrap().id;
    w.hub.delete_repo(w.repo).unwrap();
    for _ in 0..20 {
        w.pass(60);
        w.hub.wait_for_webhooks().await;
        w.app.intake.drain_inbox().await.unwrap();
        w.app.engine.tick().await.unwrap();
    }
    let view = countersign::engine::EnginePort::inspect(&*w.app.engine, run).await.unwrap().unwrap();
    assert!(!view.status.is_live(), "the run must end: {view:?}");
}

#[tokio::test]
async fn run_never_writes_to_a_new_repository_with_the_same_name() {
    for delivered in [true, false] {
        let w = World::between_steps().await;
        let (maya, run) = (w.user("maya"), w.run().await.unwrap().id);
        w.hub.delete_repo(w.repo).unwrap();
        let files = vec![("README.md".to_owned(), b"Another project\n".to_vec())];
        let other = w.hub.create_repo(maya, "tally", RepoSource::Files(files), false).unwrap();
        let issue = w.hub.open_issue(other, maya, "Another matter", "Entirely.").unwrap();
        w.hub.install(w.app.settings.app.id, &[other]).unwrap();
        for _ in 0..20 {
            w.pass(60);
            w.hub.wait_for_webhooks().await;
            if delivered {
                w.app.intake.drain_inbox().await.unwrap();
            }
            w.app.engine.tick().await.unwrap();
        }
        let view = w.hub.issue(other, issue).unwrap();
        assert!(view.comments.is_empty() && view.labels.is_empty(), "{view:?}");
        assert_eq!(w.hub.branches(other).len(), 1, "only its own branch");
        assert!(w.hub.pulls(other).is_empty());
        let run = countersign::engine::EnginePort::inspect(&*w.app.engine, run).await.unwrap().unwrap();
        assert!(!run.status.is_live(), "delivered by webhook: {delivered}: {run:?}");
    }
}

#[tokio::test]
async fn bots_cannot_start_or_approve_runs() {
    let mut w = world().await;
    w.label("countersign[bot]", "countersign:lld").await;
    w.comment("countersign[bot]", "/lld").await;
    assert!(w.run().await.is_none());
    assert!(!w.labels().is_empty(), "a bot's label stays");
    assert_eq!(w.view().comments.len(), 1, "and gets no answer");

    w.comment("tess", "/lld").await;
    w.find("Rehearsal");
    w.find("waits for a person");
    let line = w.approve_line();
    w.comment("countersign[bot]", &line).await;
    // the bot does not approve itself
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn repeated_start_commands_start_one_run() {
    let mut w = world_of_files().await;
    for who in ["maya", "sam"] {
        w.hub.comment(w.repo, w.issue, w.user(who), "/lld").unwrap();
    }
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.settle().await;
    w.pass(60);
    w.label("maya", "countersign:lld").await;
    assert_eq!(w.runs_begun(), 1, "no second run was begun");
    assert_eq!(w.hub.pulls(w.repo).len(), 1);
    let view = w.view();
    assert!(!view.labels.contains(&"countersign:lld".to_owned()), "{:?}", view.labels);
    let count_comments = |text: &str| view.comments.iter().filter(|c| c.body.contains(text)).count();
    assert_eq!(count_comments("waits for a person"), 1);
    w.stands(RunViewStatus::Asking).await;
    let answers = w.bots().into_iter().filter(|c| c.body.contains("already active")).map(|c| c.id);
    assert_eq!(answers.map(|id| w.look_at(id)).count(), 3, "each requester gets an answer:\n{}", w.thread());
}

#[tokio::test]
#[ignore = "takes long"]
async fn broken_repository_settings_are_reported_and_ignored() {
    for (file, complaint) in [
        ("[lld]\nmax_rounds = 2\nmax_round = 3\n", "toml:3:"),
        ("[lld\n", "toml:1:"),
        ("[lld]\nmax_rounds = 9\n", "outside 1 to 3, the range that the server allows"),
        ("[models]\ndrafter = \"stub:other\"\n", "models"),
    ] {
        let mut w = World::new(Setting { files: repository_file(file), ..Setting::default() }).await;
        w.comes_to_the_gate().await;
        let status = w.find("Rehearsal").body;
        assert!(status.contains("countersign.toml") && status.contains(complaint), "{file}\n{status}");
        assert!(status.contains("Countersign uses the server's settings"), "{status}");
        w.find("waits for a person");
        // the run continues
        w.stands(RunViewStatus::Asking).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn repository_settings_can_add_a_draft_gate_but_not_remove_one() {
    let script = Script::default().drafts(&design()).reviews(&approved()).toml();
    let files = repository_file("[lld]\ndraft_gate = true\n");
    let mut w = World::new(Setting { script: Some(script), files, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person, before it goes to review").body;
    assert!(!gate.contains("APPROVED"), "{gate}");
    let draft_line = w.approve_line();
    w.comment("sam", &draft_line).await;
    let gate = w.newest();
    assert!(
        gate.contains("APPROVED: the design waits for a person"),
        "approval of the draft does not approve the design:\n{gate}"
    );
    w.stands(RunViewStatus::Asking).await;

    // The first gate's line pasted again is about the version before the review.
    w.comment("sam", &draft_line).await;
    w.stands(RunViewStatus::Asking).await;
    w.newest();
    w.approved_by("sam").await;

    // A repository cannot remove a gate that the server demands.
    let (files, toml) =
        (repository_file("[lld]\ndraft_gate = false\n"), "[lld]\ndraft_gate = true\n".to_owned());
    let mut w = World::new(Setting { files, toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    assert!(w.find("Rehearsal").body.contains("would remove a gate"), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn failed_retry_keeps_one_status_comment() {
    let issue = Some(("Make it better".to_owned(), " \n\n".to_owned()));
    let mut w = World::new(Setting { issue, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("Halted at Load the issue");
    w.comment("tess", "/retry").await;
    w.stands(RunViewStatus::Failed).await;
    assert_eq!(
        w.newest().matches("Halted at Load the issue").count(),
        1,
        "the second try reports the halt again"
    );
    let status = "<!-- countersign:status -->";
    let kept = w.view().comments.into_iter().filter(|comment| comment.body.contains(status)).count();
    assert_eq!(kept, 1, "{}", w.thread());
}
