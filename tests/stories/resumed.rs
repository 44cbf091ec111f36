//! Stories about visits that resume after hours or days. They must respect changes made in the meantime and finish the
//! work that they began.

use std::time::Duration;

use countersign::{
    engine::{CallRow, RunViewStatus},
    localhub::{Hub, HubFault},
};

use crate::{
    script::{Script, approved, design},
    world::{Setting, World, world, world_of_files},
};

impl World {
    /// Creates a test environment with a run that waits because the provider had no capacity for its first model call.
    async fn waiting_for_model() -> Self {
        let script = Script::default().fails("drafter", "capacity").drafts(&design()).reviews(&approved());
        let mut w =
            Self::new(Setting { as_files: true, script: Some(script.toml()), ..Setting::default() }).await;
        w.label("maya", "countersign:lld").await;
        let run = w.run().await.unwrap();
        assert_eq!((run.status, run.step_id.as_str()), (RunViewStatus::Waiting, "N1"), "{}", w.thread());
        w
    }

    /// Creates a test environment with an approved run whose last step failed at its first write.
    async fn approved_with_fault(fault: HubFault) -> Self {
        let mut w = world_of_files().await;
        w.hub.refuse_draft_pulls(w.repo, true).unwrap(); // a draft pull request cannot be merged
        w.comes_to_the_gate().await;
        let line = w.approve_line();
        w.pass(60);
        w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
        w.step(1).await;
        w.hub.arm_fault(fault);
        w.settle().await;
        let run = w.run().await.unwrap();
        assert_eq!((run.status, run.step_id.as_str()), (RunViewStatus::Ready, "N5"), "{}", w.thread());
        w
    }

    /// Runs `action` while webhook deliveries are turned off.
    fn with_webhooks_off(&self, action: impl FnOnce(&Hub)) {
        self.lose_webhooks(true);
        action(&self.hub);
        self.lose_webhooks(false);
    }

    pub(crate) async fn calls(&self) -> Vec<CallRow> {
        let run = self.run().await.unwrap().id;
        self.app.store.repository_database(self.repo).await.unwrap().ledger(run).await.unwrap().calls
    }

    async fn status_and_reason(&self) -> (RunViewStatus, String) {
        let run = self.run().await.unwrap();
        (run.status, run.why.unwrap_or_default())
    }
}

fn graphql_fails() -> HubFault {
    HubFault::Status {
        method: "POST".to_owned(),
        path_contains: "/graphql".to_owned(),
        status: 502,
        times: 1,
    }
}

pub(crate) fn answer_lost(method: &str, path: &str) -> HubFault {
    let (method, path_contains) = (method.to_owned(), path.to_owned());
    HubFault::AnswerBadGatewayAfter { method, path_contains, times: 1 }
}

fn stopped(why: &str) -> (RunViewStatus, String) {
    (RunViewStatus::Stopped, format!("stopped by someone: {why}"))
}

#[tokio::test]
async fn delayed_model_call_is_not_made_if_the_issue_was_closed_meanwhile() {
    let mut w = World::waiting_for_model().await;
    let (repo, issue, maya) = (w.repo, w.issue, w.user("maya"));
    w.with_webhooks_off(|hub| hub.close_issue(repo, issue, maya).unwrap());
    w.wait(60).await;
    assert_eq!(w.status_and_reason().await, stopped("the issue was closed"));
    assert_eq!(w.calls().await.len(), 1, "no further model call");
    assert_eq!(w.labels(), ["countersign:stopped"]);
    assert_eq!(w.notifying(), 1);
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn stop_label_set_during_days_of_downtime_stops_the_run_before_a_model_call() {
    let w = World::waiting_for_model().await;
    let (repo, issue, tess, clock) = (w.repo, w.issue, w.user("tess"), w.clock.clone());
    let mut w = w
        .restart_after(|hub| {
            clock.pass(Duration::from_secs(3 * 24 * 3600));
            hub.label(repo, issue, tess, "countersign:stop").unwrap();
        })
        .await;
    w.wait(60).await;
    assert_eq!(w.status_and_reason().await, stopped("stop label"));
    assert_eq!(w.calls().await.len(), 1);
    assert_eq!(w.labels(), ["countersign:stopped"], "the stop label is removed once the run has stopped");
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn stop_label_stops_the_run_when_the_response_to_its_removal_is_lost() {
    let mut w = World::waiting_for_model().await;
    let (repo, issue, tess) = (w.repo, w.issue, w.user("tess"));
    w.with_webhooks_off(|hub| hub.label(repo, issue, tess, "countersign:stop").unwrap());
    w.hub.arm_fault(answer_lost("DELETE", "/labels/"));
    w.wait(60).await;
    assert_eq!(w.status_and_reason().await, stopped("stop label"));
    assert_eq!(w.labels(), ["countersign:stopped"]);
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn approval_commit_is_not_pushed_if_the_pull_request_was_closed_meanwhile() {
    let mut w = World::approved_with_fault(graphql_fails()).await;
    let (repo, pull, maya) = (w.repo, w.pull_number(), w.user("maya"));
    w.with_webhooks_off(|hub| hub.close_issue(repo, pull, maya).unwrap());
    w.wait(60).await;
    assert_eq!(w.status_and_reason().await, stopped("its pull request was closed"));
    assert!(w.commits()[0].starts_with("docs: propose"), "{:?}", w.commits());
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_finishes_despite_a_close_or_merge_after_its_approved_commit() {
    for (merged, told) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut w = World::approved_with_fault(answer_lost("POST", "/graphql")).await;
        assert!(w.commits()[0].starts_with("docs: accept"), "{:?}", w.commits());
        let (repo, issue, pull, maya) = (w.repo, w.issue, w.pull_number(), w.user("maya"));
        let action = |hub: &Hub| match merged {
            true => hub.merge(repo, pull, maya).unwrap(),
            false => hub.close_issue(repo, issue, maya).unwrap(),
        };
        match told {
            true => action(&w.hub),
            false => w.with_webhooks_off(action),
        }
        w.wait(60).await;
        w.stands(RunViewStatus::Done).await;
        assert_eq!(w.labels(), ["countersign:done"]);
        let accepted = w.commits().iter().filter(|line| line.starts_with("docs: accept")).count();
        assert_eq!((accepted, w.notifying()), (1, 2), "{:?}", w.commits());
    }
}

#[tokio::test]
async fn run_finishes_when_other_people_pushed_after_its_approved_commit() {
    let mut w = World::approved_with_fault(answer_lost("POST", "/graphql")).await;
    let (repo, issue, max, maya) = (w.repo, w.issue, w.user("max"), w.user("maya"));
    let branch = format!("countersign/issue-{issue}");
    w.with_webhooks_off(|hub| {
        hub.push_commit(repo, &branch, max, &[("NOTES.md", b"mine")], "Notes").unwrap();
        hub.push_commit(repo, &branch, max, &[("NOTES.md", b"still mine")], "More notes").unwrap();
        hub.close_issue(repo, issue, maya).unwrap();
    });
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.labels(), ["countersign:done"]);
    let commits = w.commits();
    assert!(commits[0] == "More notes" && commits[1] == "Notes", "no commit follows theirs: {commits:?}");
    assert!(commits[2].starts_with("docs: accept"), "{commits:?}");
    w.pull();
    assert_eq!(w.notifying(), 2);
}

#[tokio::test]
async fn run_stopped_before_its_first_comment_looks_for_the_comment_three_times() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(1).await;
    while w.run().await.unwrap().step_id != "N1" {
        w.step(1).await;
    }
    let looks = |w: &World| {
        let comments = format!("/issues/{}/comments", w.issue);
        w.hub.requests().iter().filter(|r| r.method == "GET" && r.path.contains(&comments)).count()
    };
    let before = looks(&w);
    assert_eq!(w.notifying(), 0);
    w.comment("tess", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    w.find("lld: stopped");
    assert_eq!(looks(&w) - before, 3, "two lookups before the comment is written and one after");
}

#[tokio::test]
async fn run_stopped_during_its_first_draft_leaves_one_comment_and_one_label() {
    let mut w = World::waiting_for_model().await;
    w.comment("tess", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.labels(), ["countersign:stopped"]);
    w.find("lld: stopped");
}

#[tokio::test]
async fn halt_comment_lists_commit_and_pull_request_of_the_failed_step() {
    let mut w = world_of_files().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    w.step(3).await;
    // Commit and pull request exist but are not recorded yet when GitHub refuses the gate's comment.
    let (method, path_contains) = ("POST".to_owned(), "/issues/1/comments".to_owned());
    let (field, code) = ("body".to_owned(), "invalid".to_owned());
    w.hub.arm_fault(HubFault::Unprocessable { method, path_contains, field, code, times: 1 });
    w.settle().await;
    assert_eq!(
        (w.run_status().await, w.labels()),
        (RunViewStatus::Failed, vec!["countersign:stopped".to_owned()])
    );
    assert_eq!(w.commits(), ["docs: propose design for #1", "Initial commit"]);
    w.find("lld: halted");
    let halt = w.find("### ❌ Halted at Human gate: verdict").body;
    let pull = w.pull().number;
    assert!(halt.contains("`docs/lld/LLD-1.md`") && halt.contains("[on the branch]("), "{halt}");
    assert!(halt.contains(&format!("the pull request, [#{pull}](")), "{halt}");
    assert!(!halt.contains("There is no branch"), "{halt}");
}

#[tokio::test]
async fn run_finishes_when_github_refuses_one_lookup_of_its_approved_commit() {
    let mut w = World::approved_with_fault(answer_lost("POST", "/graphql")).await;
    assert!(w.commits()[0].starts_with("docs: accept"), "{:?}", w.commits());
    // The lookup of that commit is refused once; a 403 is permanent.
    let (method, path_contains) = ("GET".to_owned(), "/git/ref/heads/".to_owned());
    w.hub.arm_fault(HubFault::Status { method, path_contains, status: 403, times: 1 });
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.labels(), ["countersign:done"]);
    assert!(w.pull().body.contains("The document is accepted."), "{}", w.pull().body);
    let accepted = w.commits().iter().filter(|line| line.starts_with("docs: accept")).count();
    assert_eq!((accepted, w.notifying()), (1, 2), "{:?}", w.commits());
}
