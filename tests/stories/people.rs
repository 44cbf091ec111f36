//! What maintainers ask of such a bot: a measure for each person, a label that keeps it away, a switch that turns it off, and
//! word of other open work on the same files.

use countersign::{engine::RunViewStatus, types::IssueNo};

use crate::{
    money::{PRICES, billed},
    world::{Setting, World},
};

const LABEL: &str = "countersign:lld";
const OFF: &[u8] = b"enabled = false\n";
const SETTINGS: &str = ".github/countersign.toml";

async fn measured(toml: &str) -> World {
    World::new(Setting { toml: toml.to_owned(), ..Setting::default() }).await
}

impl World {
    fn another_issue(&mut self) -> IssueNo {
        let body = "Print the sum of all lines at the end. It is done when `--sum` prints it.";
        let (before, maya) = (self.issue, self.user("maya"));
        self.issue = self.hub.open_issue(self.repo, maya, "Print a sum", body).unwrap();
        before
    }

    fn set(&self, text: &[u8]) {
        self.hub.push_commit(self.repo, "main", self.user("maya"), &[(SETTINGS, text)], "Settings").unwrap();
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_person_starts_so_many_runs_a_day_and_others_start_theirs() {
    let mut w = measured("[people]\nruns_a_day = 1\n").await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.another_issue();
    w.label("maya", LABEL).await;
    assert!(w.run().await.is_none());
    let said = w.find("as many as one person may").body;
    assert!(said.contains("You have started 1 run in this repository today"), "{said}");
    w.comment("maya", "/restart lld").await;
    assert!(w.run().await.is_none(), "there is nothing to restart");
    w.comment("sam", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    // The next day of UTC.
    w.another_issue();
    w.pass(24 * 3600);
    w.comment("maya", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    // Each is told of the others, whose designs touch the same file.
    for number in [1, 2, 3].map(IssueNo) {
        w.issue = number;
        let told = w.gate().contains("touches the same files");
        assert!(told || number == IssueNo(2), "{}", w.thread());
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn an_issue_that_is_to_be_left_alone_is_and_what_is_under_way_on_it_stops_at_once() {
    let mut w = measured("").await;
    w.hub.label(w.repo, w.issue, w.user("tess"), "no-agent").unwrap();
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Failed).await;
    let said = w.find("Halted at").body;
    assert!(said.contains("The label “no-agent” says that this issue is to be left alone."), "{said}");
    w.another_issue();
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.label("tess", "no-agent").await;
    w.stands(RunViewStatus::Stopped).await;
    // Nobody told of it: the next look at the issue sees it.
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
async fn a_repository_that_switches_it_off_is_left_alone_at_the_next_step() {
    let mut w = measured("").await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.set(OFF);
    w.comment("sam", "/revise say more").await;
    w.stands(RunViewStatus::Stopped).await;
    w.comment("maya", "/lld").await;
    w.stands(RunViewStatus::Failed).await;
    let said = w.find("Halted at").body;
    assert!(
        said.contains(".github/countersign.toml has switched all work off here (enabled = false)."),
        "{said}"
    );
    w.set(b"enabled = true\n");
    w.comment("maya", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    // At a gate nobody has to speak for it.
    w.app.intake.stop_switched_off_runs().await.unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    w.set(OFF);
    w.app.intake.stop_switched_off_runs().await.unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Stopped).await;
    w.find("the run was stopped by someone");
}

#[tokio::test]
async fn what_the_app_was_not_given_is_said_before_anything_is_paid() {
    for (label, lacks, named) in [
        ("countersign:issue", "contents", "contents: read"),
        (LABEL, "pull_requests", "pull_requests: write"),
    ] {
        let mut w = World::new(Setting { lacks, ..Setting::default() }).await;
        w.label("maya", label).await;
        w.stands(RunViewStatus::Failed).await;
        let said = w.find("Halted at").body.replace('\\', "");
        assert!(said.contains(&format!("lacks a permission that this takes here: {named}.")), "{said}");
        assert!(w.calls().await.is_empty());
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_a_person_starts_costs_so_much_a_day_and_what_it_may_cost_stands_before_the_first_call() {
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
    w.find("have cost as much as those of one person may in a day");
    // The first call may cost more than the repository lets a run have.
    w.set(b"[budget]\nrun = \"$0.50\"\n");
    w.comment("sam", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("### ✋ Paused before Draft the design");
    let status = w.status().body;
    assert!(status.contains("The last 2 LLDs here: half cost at most $"), "{status}");
    assert!(w.calls().await.is_empty());
}

#[tokio::test]
#[ignore = "takes long"]
async fn open_work_that_touches_the_same_files_is_named_at_the_gate() {
    let mut w = measured("").await;
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
    // And at the gate that was there before.
    let second = std::mem::replace(&mut w.issue, first);
    let gate = w.last("waits for a person").body;
    assert!(gate.contains(&format!("touches the same files: `#{second}` (")), "{gate}");
    w.stands(RunViewStatus::Asking).await;
    w.issue = second;
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    w.find("was not decided");
    w.issue = first;
    w.comment("sam", "/revise say more").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("was sent back");
    let again = w.last("waits for a person").body;
    assert!(!again.contains("touches the same files"), "what was stopped is no open work: {again}");
}
