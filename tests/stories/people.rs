//! Stories about the controls that maintainers have: limits per person, the `no-agent` label, the repository's switch,
//! the permission check, and the list of open work on the same files.

use countersign::{engine::RunViewStatus, types::IssueNo};

use crate::{
    money::{PRICES, billed},
    world::{Setting, World},
};

const LABEL: &str = "countersign:lld";
const OFF: &[u8] = b"enabled = false\n";
const SETTINGS: &str = ".github/countersign.toml";

async fn world_with_toml(toml: &str) -> World {
    World::new(Setting { toml: toml.to_owned(), ..Setting::default() }).await
}

impl World {
    fn another_issue(&mut self) -> IssueNo {
        let body = "Print the sum of all lines at the end. It is done when `--sum` prints it.";
        let (before, maya) = (self.issue, self.user("maya"));
        self.issue = self.hub.open_issue(self.repo, maya, "Print a sum", body).unwrap();
        before
    }

    fn push_settings(&self, text: &[u8]) {
        self.hub.push_commit(self.repo, "main", self.user("maya"), &[(SETTINGS, text)], "Settings").unwrap();
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn runs_per_day_limit_applies_to_each_person() {
    let mut w = world_with_toml("[people]\nruns_a_day = 1\n").await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.another_issue();
    w.label("maya", LABEL).await;
    assert!(w.run().await.is_none());
    let comment = w.find("the limit for one person").body;
    assert!(comment.contains("You have started 1 run in this repository today"), "{comment}");
    w.comment("maya", "/restart lld").await;
    assert!(w.run().await.is_none(), "no run to restart");
    w.comment("sam", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    // The limit resets on the next UTC day.
    w.another_issue();
    w.pass(24 * 3600);
    w.comment("maya", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    // Gates list other open issues whose designs change the same file.
    for number in [1, 2, 3].map(IssueNo) {
        w.issue = number;
        let overlap_shown = w.gate().contains("touches the same files");
        assert!(overlap_shown || number == IssueNo(2), "{}", w.thread());
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn no_agent_label_prevents_new_runs_and_stops_a_live_run() {
    let mut w = world_with_toml("").await;
    w.hub.label(w.repo, w.issue, w.user("tess"), "no-agent").unwrap();
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Failed).await;
    let comment = w.find("Halted at").body;
    assert!(
        comment.contains("The label “no-agent” tells Countersign to leave this issue alone."),
        "{comment}"
    );
    w.another_issue();
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.label("tess", "no-agent").await;
    w.stands(RunViewStatus::Stopped).await;
    // Without a delivery, the next read of the issue finds the label.
    w.another_issue();
    w.label("maya", LABEL).await;
    w.lose_webhooks(true);
    w.hub.label(w.repo, w.issue, w.user("tess"), "no-agent").unwrap();
    w.lose_webhooks(false);
    w.comment("sam", "/revise say more").await;
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn repository_that_disables_the_app_stops_its_runs() {
    let mut w = world_with_toml("").await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.push_settings(OFF);
    w.comment("sam", "/revise say more").await;
    w.stands(RunViewStatus::Stopped).await;
    w.comment("maya", "/lld").await;
    w.stands(RunViewStatus::Failed).await;
    let comment = w.find("Halted at").body;
    assert!(
        comment.contains(".github/countersign.toml switches Countersign off here (enabled = false)."),
        "{comment}"
    );
    w.push_settings(b"enabled = true\n");
    w.comment("maya", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    // The periodic check also stops a run that waits at a gate.
    w.app.intake.stop_switched_off_runs().await.unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    w.push_settings(OFF);
    w.app.intake.stop_switched_off_runs().await.unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Stopped).await;
    w.find("the run was stopped by someone");
}

#[tokio::test]
async fn missing_permission_halts_the_run_before_any_model_call() {
    for (label, lacks, named) in [
        ("countersign:issue", "contents", "contents: read"),
        (LABEL, "pull_requests", "pull_requests: write"),
    ] {
        let mut w = World::new(Setting { lacks, ..Setting::default() }).await;
        w.label("maya", label).await;
        w.stands(RunViewStatus::Failed).await;
        let comment = w.find("Halted at").body.replace('\\', "");
        assert!(comment.contains(&format!("lacks a permission: {named}.")), "{comment}");
        assert!(w.calls().await.is_empty());
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn daily_cost_limit_applies_and_estimate_is_shown_before_the_first_call() {
    let toml = format!("{PRICES}[people]\ncost_a_day = \"$0.01\"\n");
    let mut w =
        World::new(Setting { script: Some(billed()), toml, private: true, ..Setting::default() }).await;
    for who in ["maya", "max"] {
        w.label(who, LABEL).await;
        w.stands(RunViewStatus::Asking).await;
        w.approved_by("sam").await;
        w.stands(RunViewStatus::Done).await;
        w.another_issue();
    }
    w.label("maya", LABEL).await;
    assert!(w.run().await.is_none());
    w.find("cost limit for one person");
    // The first call may cost more than the repository's cap for a run.
    w.push_settings(b"[budget]\nrun = \"$0.50\"\n");
    w.comment("sam", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("### ✋ Paused before Draft the design");
    let status = w.status().body;
    assert!(status.contains("Half of the last 2 designs here cost at most $"), "{status}");
    assert!(w.calls().await.is_empty());
}

#[tokio::test]
#[ignore = "takes long"]
async fn gate_lists_open_runs_of_other_issues_that_touch_the_same_files() {
    let mut w = world_with_toml("").await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    assert!(!w.find("waits for a person").body.contains("touches the same files"));
    let first = w.another_issue();
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.find("waits for a person").body;
    assert!(
        gate.contains(&format!("Open work on other issues touches the same files: `#{first}` (")),
        "{gate}"
    );
    // The older gate is updated too.
    let second = std::mem::replace(&mut w.issue, first);
    let gate = w.last("waits for a person").body;
    assert!(gate.contains(&format!("touches the same files: `#{second}` (")), "{gate}");
    w.stands(RunViewStatus::Asking).await;
    w.issue = second;
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    w.find("was closed without a decision");
    w.issue = first;
    w.comment("sam", "/revise say more").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("was sent back");
    let again = w.last("waits for a person").body;
    assert!(!again.contains("touches the same files"), "a stopped run is not open work: {again}");
}
