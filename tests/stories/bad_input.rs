//! What people do that nobody planned for: close, delete, rename, repeat, answer elsewhere.

use countersign::{engine::RunViewStatus, localhub::RepoSource};

use crate::{
    script::{Script, approved, design},
    world::{Setting, World, world, world_of_files},
};

impl World {
    /// The work has begun and the models have not been asked: the run stands between two steps.
    async fn begun() -> Self {
        let mut w = world().await;
        w.begin().await;
        w
    }

    async fn begin(&mut self) {
        self.hub.label(self.repo, self.issue, self.user("maya"), "countersign:lld").unwrap();
        self.step(2).await;
        assert_eq!(self.labels(), [""; 0], "the trigger is off, and there is nothing to show yet");
    }
}

fn repository_file(text: &str) -> Vec<(String, Vec<u8>)> {
    vec![(".github/countersign.toml".to_owned(), text.as_bytes().to_vec())]
}

#[tokio::test]
async fn an_issue_closed_between_two_steps_ends_the_run() {
    let mut w = World::begun().await;
    w.hub.close_issue(w.repo, w.issue, w.user("maya")).unwrap();
    w.wait(30).await; // a status comment may have been made, so it is looked for twice
    w.stands(RunViewStatus::Stopped).await;
    assert!(w.hub.pulls(w.repo).is_empty());
    // Started again on the closed issue, it says what to do.
    w.pass(60);
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Failed).await;
    assert!(w.find("Halted").body.contains("Reopen it"), "{}", w.thread());
}

#[tokio::test]
async fn an_issue_deleted_between_two_steps_ends_the_run_in_silence() {
    let mut w = World::begun().await;
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
async fn an_empty_issue_is_answered_with_what_is_missing() {
    let issue = Some(("Make it better".to_owned(), " \n\n".to_owned()));
    let mut w = World::new(Setting { issue, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.find("Halted at Load the issue").body;
    assert!(halt.contains("The issue has no text. Say in it what is wanted"), "{halt}");
    w.find("Rehearsal");
    assert!(w.notifying() <= 2, "{}", w.thread());
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_long_issue_is_read_and_its_bodies_fit_github() {
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
async fn a_repository_renamed_between_two_steps_is_followed() {
    let mut w = World::begun().await;
    w.hub.rename_repo(w.repo, "counter").unwrap();
    // The step meets the redirect before the webhook is read.
    w.app.engine.tick().await.unwrap();
    w.settle().await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("maya/counter/"), "links lead to the name it has now:\n{gate}");
    w.hub.rename_repo(w.repo, "counted").unwrap();
    w.approved_by("sam").await;
}

#[tokio::test]
async fn a_repository_deleted_between_two_steps_ends_the_run() {
    let w = World::begun().await;
    let run = w.run().await.unwrap().id;
    w.hub.delete_repo(w.repo).unwrap();
    for _ in 0..20 {
        w.pass(60);
        w.hub.wait_for_webhooks().await;
        w.app.intake.drain_inbox().await.unwrap();
        w.app.engine.tick().await.unwrap();
    }
    let view = countersign::engine::EnginePort::inspect(&*w.app.engine, run).await.unwrap().unwrap();
    assert!(!view.status.is_live(), "it does not go round for ever: {view:?}");
}

#[tokio::test]
async fn another_repository_under_the_same_name_is_not_written_to() {
    for told in [true, false] {
        let w = World::begun().await;
        let (maya, run) = (w.user("maya"), w.run().await.unwrap().id);
        w.hub.delete_repo(w.repo).unwrap();
        let files = vec![("README.md".to_owned(), b"Another project\n".to_vec())];
        let other = w.hub.create_repo(maya, "tally", RepoSource::Files(files), false).unwrap();
        let issue = w.hub.open_issue(other, maya, "Another matter", "Entirely.").unwrap();
        w.hub.install(w.app.settings.app.id, &[other]).unwrap();
        for _ in 0..20 {
            w.pass(60);
            w.hub.wait_for_webhooks().await;
            if told {
                w.app.intake.drain_inbox().await.unwrap();
            }
            w.app.engine.tick().await.unwrap();
        }
        let view = w.hub.issue(other, issue).unwrap();
        assert!(view.comments.is_empty() && view.labels.is_empty(), "{view:?}");
        assert_eq!(w.hub.branches(other).len(), 1, "its own branch and none of ours");
        assert!(w.hub.pulls(other).is_empty());
        let run = countersign::engine::EnginePort::inspect(&*w.app.engine, run).await.unwrap().unwrap();
        assert!(!run.status.is_live(), "told by webhook: {told}: {run:?}");
    }
}

#[tokio::test]
async fn bots_start_and_answer_nothing() {
    let mut w = world().await;
    w.label("countersign[bot]", "countersign:lld").await;
    w.comment("countersign[bot]", "/lld").await;
    assert!(w.run().await.is_none());
    assert!(!w.labels().is_empty(), "a bot's label stays where it put it");
    assert_eq!(w.view().comments.len(), 1, "and is not answered");

    w.comment("tess", "/lld").await;
    w.find("Rehearsal");
    w.find("waits for a person");
    let line = w.approve_line();
    w.comment("countersign[bot]", &line).await;
    // it does not approve itself
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn asked_twice_there_is_one_run() {
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
    let said = |text: &str| view.comments.iter().filter(|c| c.body.contains(text)).count();
    assert_eq!(said("waits for a person"), 1);
    w.stands(RunViewStatus::Asking).await;
    let told = w.bots().into_iter().filter(|c| c.body.contains("already at work")).map(|c| c.id);
    assert_eq!(told.map(|id| w.look_at(id)).count(), 3, "each one who asked is told:\n{}", w.thread());
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_repositorys_own_file_is_read_and_a_broken_one_is_reported() {
    for (file, complaint) in [
        ("[lld]\nmax_rounds = 2\nmax_round = 3\n", "toml:3:"),
        ("[lld\n", "toml:1:"),
        ("[lld]\nmax_rounds = 9\n", "outside 1 to 3, what the server allows"),
        ("[models]\ndrafter = \"stub:other\"\n", "models"),
    ] {
        let mut w = World::new(Setting { files: repository_file(file), ..Setting::default() }).await;
        w.comes_to_the_gate().await;
        let status = w.find("Rehearsal").body;
        assert!(status.contains("countersign.toml") && status.contains(complaint), "{file}\n{status}");
        assert!(status.contains("server's own settings are used"), "{status}");
        w.find("waits for a person");
        // the work goes on
        w.stands(RunViewStatus::Asking).await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_repository_may_ask_people_before_the_review_and_not_less() {
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
        gate.contains("APPROVED: the LLD waits for a person"),
        "the draft's approval is not the design's:\n{gate}"
    );
    w.stands(RunViewStatus::Asking).await;

    // A second paste of the first gate's line is about what was read before the review.
    w.comment("sam", &draft_line).await;
    w.stands(RunViewStatus::Asking).await;
    w.newest();
    w.approved_by("sam").await;

    // Where the server demands that gate, a repository does not take it away.
    let (files, toml) =
        (repository_file("[lld]\ndraft_gate = false\n"), "[lld]\ndraft_gate = true\n".to_owned());
    let mut w = World::new(Setting { files, toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    assert!(w.find("Rehearsal").body.contains("would take away a gate"), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_run_tried_again_in_vain_keeps_its_one_status_comment() {
    let issue = Some(("Make it better".to_owned(), " \n\n".to_owned()));
    let mut w = World::new(Setting { issue, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("Halted at Load the issue");
    w.comment("tess", "/retry").await;
    w.stands(RunViewStatus::Failed).await;
    assert_eq!(
        w.newest().matches("Halted at Load the issue").count(),
        1,
        "it is said again, as it is tried again"
    );
    let status = "<!-- countersign:status -->";
    let kept = w.view().comments.into_iter().filter(|comment| comment.body.contains(status)).count();
    assert_eq!(kept, 1, "{}", w.thread());
}
