//! Stories about budgets: limits, pauses, `/budget`, `/cost`, and the agreement of all reported sums.

use std::time::Duration;

use countersign::{
    engine::{CallStatus, RunViewStatus},
    messages,
    store::{Reservation, ReservationOutcome, Spending},
    types::{MicroUsd, RunId, Timestamp},
    web::{
        control::{CostGrouping, CostLine, CostReportRequest, sum_costs},
        held_calls::{SettleCallsRequest, settle_calls},
    },
};

use crate::{
    script::{Script, approved, design},
    world::{Setting, World},
};

const LABEL: &str = "countersign:lld";

/// Prices at which a model call may cost up to one dollar but actually costs a few cents.
pub(crate) const PRICES: &str = "\
[[model]]
id = \"stub-drafter\"
aliases = [\"drafter\"]
providers = [\"stub\"]
family = \"stub-drafter\"
context = 1000000
max_output = 32000
price = { input = 0, output = 31.25 }
[[model]]
id = \"stub-reviewer\"
aliases = [\"reviewer\"]
providers = [\"stub\"]
family = \"stub-reviewer\"
context = 1000000
max_output = 500
price = { input = 0, output = 2000 }
";

pub(crate) fn billed() -> String {
    format!("billed = true\n{}", Script::default().drafts(&design()).reviews(&approved()).toml())
}

async fn priced_world(budget: &str, private: bool) -> World {
    let toml = format!("{PRICES}[budget]\n{budget}\n");
    World::new(Setting { as_files: true, script: Some(billed()), toml, private, ..Setting::default() }).await
}

impl World {
    async fn spending(&self, run: RunId) -> Spending {
        let ledger = self.app.store.repository_database(self.repo).await.unwrap().ledger(run).await.unwrap();
        Spending::from_calls(&ledger.calls)
    }

    /// Returns the lines of `countersign cost`, grouped by `by`.
    async fn cost_lines(&self, by: CostGrouping) -> Vec<CostLine> {
        let request = CostReportRequest { by, ..CostReportRequest::default() };
        sum_costs(&self.app.store, &request).await.unwrap()
    }

    fn pause_comments(&self) -> usize {
        self.view().comments.iter().filter(|c| c.body.contains("### ✋ Paused")).count()
    }

    async fn total_raised(&self) -> u64 {
        let run = self.run().await.unwrap().id;
        let raises =
            self.app.store.repository_database(self.repo).await.unwrap().ledger(run).await.unwrap().raises;
        raises.iter().map(|row| row.amount.0).sum()
    }

    fn reactions_to(&self, text: &str) -> String {
        let view = self.view();
        let comment = view.comments.iter().find(|c| c.body == text).unwrap();
        format!("{:?}", comment.reactions)
    }
}

#[tokio::test]
async fn run_at_its_cap_pauses_once_until_a_maintainer_raises_the_cap() {
    let mut w = priced_world("run = \"$1\"\nrun_at_most = \"$4\"", true).await;
    w.label("maya", LABEL).await;
    let pause = w.newest();
    insta::assert_snapshot!(pause.split("<sub>").next().unwrap(), @r"
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✋ Paused before Adversarial review

    The cap on this run does not leave enough for the next call. The cap is $1.00; $0.02 is spent or reserved. The next call may cost up to $1.00.

    To continue, someone with maintain access writes:

    ```
    /budget +1
    ```
    ");
    let status = w.find("lld: waiting for you").body;
    assert!(status.contains("**Paused**") && !status.contains("/budget"), "{status}");
    assert!(w.labels().contains(&"countersign:needs-you".to_owned()), "{}", w.thread());

    w.wait(3600).await;
    let mut w = w.restart().await;
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.pause_comments(), 1, "{}", w.thread());

    w.comment("sam", "/budget +1").await;
    assert!(w.reactions_to("/budget +1").contains("-1"), "{}", w.reactions_to("/budget +1"));
    w.stands(RunViewStatus::Asking).await;
    w.comment("max", "/budget lots").await;
    w.find("`/budget` was not understood");
    w.comment("max", "/budget +50").await;
    let refusal = w.find("The budget was not raised").body;
    assert!(refusal.contains("at most $4.00 per run") && refusal.contains("\n/budget +3\n"), "{refusal}");
    w.stands(RunViewStatus::Asking).await;

    w.comment("max", "/budget +3").await;
    w.find("waits for a person");
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.pause_comments(), 1, "{}", w.thread());
    w.find("Rehearsal");
    let run = w.run().await.unwrap().id;
    let db = w.app.store.repository_database(w.repo).await.unwrap();
    let raises = db.ledger(run).await.unwrap().raises;
    assert_eq!(
        raises.iter().map(|row| (row.by.login.as_str(), row.amount.0)).collect::<Vec<_>>(),
        [("max", 3_000_000)]
    );
    let audited = db.audit_chain().await.unwrap();
    assert!(audited.iter().any(|row| row.what.contains("budget") && row.detail["amount"] == 3_000_000));
}

#[tokio::test]
async fn model_calls_made_before_a_budget_pause_are_not_repeated_after_a_restart() {
    let mut of_another_call = approved();
    of_another_call["nonce"] = "abcdefgh".into();
    let script = Script::default().drafts(&design()).reviews(&of_another_call).reviews(&approved());
    let toml = format!("{PRICES}[budget]\nrun = \"$1.02\"\n");
    let script = Some(format!("billed = true\n{}", script.toml()));
    let mut w = World::new(Setting { script, toml, private: true, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    w.find("### ✋ Paused before Adversarial review");
    let run = w.run().await.unwrap().id;
    assert_eq!(w.spending(run).await.calls, 2, "a draft and a review out of form");
    let mut w = w.restart().await;
    w.comment("max", "/budget +3").await;
    w.find("### ✅ APPROVED");
    assert_eq!(w.spending(run).await.calls, 3);
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn stop_command_ends_a_run_paused_by_its_budget() {
    let mut w = priced_world("stage = \"$0.5\"", true).await;
    w.label("maya", LABEL).await;
    let pause = w.find("### ✋ Paused before Draft the design").body;
    assert!(pause.contains("The cap on drafting in this run"), "{pause}");
    w.comment("tess", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.spending(w.run().await.unwrap().id).await, Spending::default());
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_paused_at_the_daily_cap_resumes_on_the_next_day() {
    let mut w = priced_world("repository_day = \"$1\"", true).await;
    w.label("maya", LABEL).await;
    let pause = w.find("### ✋ Paused before Adversarial review").body;
    assert!(pause.contains("The run resumes by itself on 2026-03-03 00:00 UTC."), "{pause}");
    w.comment("max", "/budget +1").await;
    w.find("can raise only the caps of a run");
    w.stands(RunViewStatus::Asking).await;
    let mut w = w.restart().await;
    w.pass(15 * 3600);
    w.settle().await;
    assert_eq!(w.pause_comments(), 1, "{}", w.thread());
    w.find("waits for a person");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn model_call_over_midnight_is_billed_to_the_day_it_started() {
    let slow = billed().replacen("role = \"drafter\"", "role = \"drafter\"\ndelay_ms = 1000", 1);
    let setting =
        Setting { script: Some(slow), toml: PRICES.to_owned(), private: true, ..Setting::default() };
    let mut w = World::new(setting).await;
    w.pass(15 * 3600 - 1);
    w.hub.label(w.repo, w.issue, w.user("maya"), LABEL).unwrap();
    w.hub.wait_for_webhooks().await;
    w.app.intake.drain_inbox().await.unwrap();
    let app = w.app.clone();
    let work = tokio::spawn(async move { while app.engine.tick().await.unwrap() > 0 {} });
    loop {
        tokio::task::yield_now().await;
        if let Some(run) = w.run().await
            && w.spending(run.id).await.held > MicroUsd(0)
        {
            break;
        }
    }
    w.pass(1);
    // The reservation is visible before the model's delay starts.
    while !work.is_finished() {
        w.run().await;
        w.clock.pass(Duration::from_millis(10));
    }
    work.await.unwrap();
    w.settle().await;
    let days: Vec<_> =
        w.cost_lines(CostGrouping::Day).await.into_iter().map(|line| (line.what, line.spent.calls)).collect();
    assert_eq!(days, [("2026-03-02".to_owned(), 1), ("2026-03-03".to_owned(), 1)]);
    let midnight = Timestamp::parse("2026-03-03T00:00:00Z").unwrap().0;
    let before =
        |sign: &str| w.number(None, &format!("SELECT COUNT(*) FROM spend WHERE at {sign} {midnight}"));
    assert_eq!((before("<"), before(">=")), (1, 1));
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn pause_comment_says_waiting_does_not_help_if_a_call_exceeds_the_daily_cap() {
    let mut w = priced_world("repository_day = \"$0.50\"", true).await;
    w.label("maya", LABEL).await;
    let pause = w.find("### ✋ Paused before Draft the design").body;
    assert!(pause.contains("waiting does not help"), "{pause}");
    w.pass(24 * 3600);
    w.settle().await;
    w.comment("max", "/budget +1").await;
    w.find("can raise only the caps of a run");
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.pause_comments(), 1, "{}", w.thread());
}

#[tokio::test]
async fn spending_of_all_runs_counts_against_the_daily_cap() {
    let mut w = priced_world("repository_day = \"$1.05\"", true).await;
    w.comes_to_the_gate().await;
    let spent = w.spending(w.run().await.unwrap().id).await.billed;
    assert!(spent > MicroUsd(20_000), "the first run must spend enough for this test: {spent}");
    w.issue = w.hub.open_issue(w.repo, w.user("maya"), "Another", "Count words as well.").unwrap();
    w.label("maya", LABEL).await;
    let pause = w.find("### ✋ Paused before Draft the design").body;
    assert!(pause.contains(&format!("The cap is $1.05; {spent} is spent")), "{pause}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn cost_reserved_for_a_call_lost_in_a_crash_stays_reserved_until_settled() {
    let slow = billed().replacen("role = \"drafter\"", "role = \"drafter\"\ndelay_ms = 1000", 1);
    let toml = format!("{PRICES}[budget]\nrun = \"$2.005\"\n");
    let setting = Setting { script: Some(slow), toml, private: true, ..Setting::default() };
    let w = World::new(setting).await;
    w.hub.label(w.repo, w.issue, w.user("maya"), LABEL).unwrap();
    w.hub.wait_for_webhooks().await;
    w.app.intake.drain_inbox().await.unwrap();
    let called = async {
        loop {
            tokio::task::yield_now().await;
            let Some(run) = w.run().await else { continue };
            if w.spending(run.id).await.held > MicroUsd(0) {
                return;
            }
        }
    };
    let work = async {
        loop {
            w.app.engine.tick().await.unwrap();
        }
    };
    tokio::select! {
        () = called => {}
        () = work => {}
    }
    let script = w.directory().join("bot/script.toml");
    let mut w = w.restart_after(|_| std::fs::write(script, billed()).unwrap()).await;
    w.settle().await;
    let run = w.run().await.unwrap().id;
    let ledger = w.app.store.repository_database(w.repo).await.unwrap().ledger(run).await.unwrap();
    let lost: Vec<_> = ledger.calls.iter().filter(|call| call.status == CallStatus::Lost).collect();
    assert_eq!(lost.iter().map(|call| call.held_microusd).collect::<Vec<_>>(), [Some(1_000_000)]);
    assert_eq!(
        lost[0].run_cap_amount(),
        MicroUsd(0),
        "no answer arrived, and prompts are free in this price list"
    );
    w.find("### ✅ APPROVED");
    w.stands(RunViewStatus::Asking).await;

    let day = || async { w.app.store.shared_spend(w.repo, w.installation).await.unwrap()[0].1 };
    let billed = w.spending(run).await.billed;
    assert_eq!(day().await, billed.plus(MicroUsd(1_000_000)));
    // A reservation for a call that the ledger does not have yet.
    let next = Reservation {
        run,
        visit: 99,
        key: "next".into(),
        installation: w.installation,
        amount: MicroUsd(200_000),
        repository_day: None,
        installation_month: None,
    };
    assert_eq!(w.app.store.reserve_budget(next).await.unwrap(), ReservationOutcome::Granted);
    let request =
        SettleCallsRequest { repository: None, run: Some(run), billed: MicroUsd(30_000), by: "olga".into() };
    let message = settle_calls(&w.app.store, &request).await.unwrap();
    assert_eq!(message, "1 call is settled: $1.00 were held, and $0.03 were billed");
    let spent = w.spending(run).await;
    assert_eq!((day().await, spent.held), (billed.plus(MicroUsd(230_000)), MicroUsd(0)));
    assert_eq!(spent.billed, billed.plus(MicroUsd(30_000)));
    let audited = w.app.store.repository_database(w.repo).await.unwrap().audit_chain().await.unwrap();
    assert!(
        audited.iter().any(|row| row.detail["settled"] == "olga"),
        "the audit chain names who settled the call"
    );
    assert!(
        settle_calls(&w.app.store, &request)
            .await
            .unwrap_err()
            .to_string()
            .starts_with("no finished call holds budget")
    );
}

#[tokio::test]
#[ignore = "takes long"]
async fn spending_shown_in_each_comment_and_the_pull_request_matches_the_cost_report() {
    let mut w = priced_world("", true).await;
    w.comes_to_the_gate().await;
    let status = w.find("lld: waiting for you").body;
    assert!(status.contains("Cost so far: "), "{status}");
    let run = w.run().await.unwrap().id;
    let all = w.spending(run).await;
    assert!(all.billed > MicroUsd(0) && all.held == MicroUsd(0), "{all:?}");
    let sum = messages::format_spending(&all);
    let gate = w.find("waits for a person").body;
    assert!(gate.contains(&format!("round 1. Cost so far: {sum}.")), "{gate}");
    let pull = w.pull().body;
    assert!(pull.contains(&format!("| Cost so far | {sum} |")), "{pull}");
    w.comment("tess", "/cost").await;
    let comment = w.find("### Cost of this issue").body;
    assert!(comment.contains(&format!("| **all** | 2 | {} |", messages::format_spending(&all))), "{comment}");
    assert!(comment.contains("`stub-drafter`"), "{comment}");
    w.comment("stranger", "/cost").await;
    assert!(w.reactions_to("/cost").contains("eyes"));
    for by in [CostGrouping::Run, CostGrouping::Stage, CostGrouping::Model, CostGrouping::Day] {
        let lines = w.cost_lines(by).await;
        let sum = lines.iter().fold(Spending::default(), |sum, line| sum.plus(&line.spent));
        assert_eq!(sum, all, "{by:?}");
    }
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;

    w.issue = w.hub.open_issue(w.repo, w.user("maya"), "Another", "Count words as well.").unwrap();
    w.comes_to_the_gate().await;
    let status = w.find("lld: waiting for you").body;
    assert!(status.contains(&format!("The previous design cost {}.", all.billed)), "{status}");
}

#[tokio::test]
async fn public_repository_shows_no_costs() {
    let mut w = priced_world("run = \"$1\"", false).await;
    w.label("maya", LABEL).await;
    w.comment("tess", "/cost").await;
    w.find("Costs are not shown in public repositories");
    let ours: Vec<_> = w.view().comments.into_iter().filter(|c| c.author.ends_with("[bot]")).collect();
    assert!(ours.len() == 3 && ours.iter().all(|c| !c.body.contains('$')), "{}", w.thread());
    assert!(
        w.find("### ✋ Paused before Adversarial review").body.contains("```\n/budget +"),
        "{}",
        w.thread()
    );
    w.comment("max", "/budget +3").await;
    w.find("### ✋ Paused before Adversarial review");
    w.find("waits for a person");
    let pull = w.pull().body;
    assert!(!w.thread().contains('$') && !pull.contains('$'), "{}\n{pull}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn unbilled_calls_do_not_count_against_any_cap() {
    let script = Script::default().drafts(&design()).reviews(&approved()).toml();
    let toml = format!("{PRICES}[budget]\ncall = \"$0.01\"\nrun = \"$0.01\"\nrepository_day = \"$0.01\"\n");
    let mut w = World::new(Setting { script: Some(script), toml, private: true, ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    let status = w.find("lld: waiting for you").body;
    assert!(status.contains("Cost so far: $0 billed (notional $0."), "{status}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn repository_settings_can_lower_a_cap_but_not_raise_it() {
    for (own, pauses) in [("[budget]\nrun = \"$0.50\"\n", 1), ("[budget]\nrun = \"$11\"\n", 0)] {
        let files = vec![(".github/countersign.toml".to_owned(), own.as_bytes().to_vec())];
        let setting = Setting {
            script: Some(billed()),
            toml: PRICES.to_owned(),
            private: true,
            files,
            ..Setting::default()
        };
        let mut w = World::new(setting).await;
        w.label("maya", LABEL).await;
        assert_eq!(w.pause_comments(), pauses, "{}", w.thread());
        w.stands(RunViewStatus::Asking).await;
        if pauses == 1 {
            w.find("### ✋ Paused before Draft the design");
        }
        if pauses == 0 {
            let status = w.find("lld: waiting for you").body;
            assert!(status.contains("is more than the \\$10.00 that the server allows"), "{status}");
        }
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn retry_command_resumes_a_halted_run() {
    let script = Script::default().fails("drafter", "refused").reviews(&approved()).toml();
    let mut w = World::new(Setting { script: Some(script), ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    let halt = w.find("### ❌ Halted at Draft the design").body;
    assert!(halt.contains("\n/retry\n"), "{halt}");
    let run = w.run().await.unwrap().id;
    w.comment("stranger", "/retry").await;
    w.stands(RunViewStatus::Failed).await;
    let script_file = w.directory().join("bot/script.toml");
    let answers = Script::default().drafts(&design()).reviews(&approved()).toml();
    let mut w = w.restart_after(|_| std::fs::write(script_file, answers).unwrap()).await;
    w.comment("tess", "/retry").await;
    w.find("waits for a person");
    let now = w.run().await.unwrap();
    assert_eq!((now.id, now.status), (run, RunViewStatus::Asking));
    assert!(!w.labels().contains(&"countersign:stopped".to_owned()), "{:?}", w.labels());
    w.comment("tess", "/countersign retry").await;
    w.find("There is nothing to retry");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn budget_command_raises_the_cap_once_if_repeated_and_is_refused_if_malformed() {
    let mut w = priced_world("run = \"$1\"\nrun_at_most = \"$4\"", true).await;
    w.comment("max", "/budget +1").await;
    assert!(w.run().await.is_none() && w.reactions_to("/budget +1").contains("[]"), "{}", w.thread());
    w.label("maya", LABEL).await;
    w.find("### ✋ Paused before Adversarial review");
    for words in
        ["+1e999", "+0", "-3", "$-3", "３", "+٣", "1,5", "+99999999999999999999", "", "NaN", "+3 or so"]
    {
        w.comment("max", &format!("/budget {words}")).await;
        assert!(w.newest().contains("`/budget` was not understood"), "{words}");
    }
    w.comment("max", "> /budget +1\n\n```\n/budget +1\n```\n`/budget +1`").await;
    for words in ["/approve", "/revise shorter", "/override because"] {
        w.comment("max", words).await;
        w.newest();
    }
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.pause_comments(), 1, "{}", w.thread());

    let twice = "/budget $1\n/budget +1";
    w.comment("max", twice).await;
    w.find("waits for a person");
    let raised = w.total_raised().await;
    assert_eq!(raised, 1_000_000, "{}", w.thread());
    let comments_before = w.view().comments.len();
    for delivery in w.hub.deliveries() {
        w.hub.redeliver(&delivery.guid).unwrap();
    }
    w.settle().await;
    let comment = w.view().comments.iter().find(|c| c.body == twice).unwrap().id;
    w.hub.edit_comment(w.repo, comment, w.user("max"), "/budget +2").unwrap();
    w.settle().await;
    w.comment("max", "/budget +1").await;
    assert!(w.newest().contains("`/budget` does not work at this gate"), "{}", w.thread());
    assert_eq!(w.total_raised().await, raised);
    assert_eq!(w.view().comments.len(), comments_before + 2, "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
    w.find("### ✋ Paused before Adversarial review");
}

#[tokio::test]
#[ignore = "takes long"]
async fn billed_model_without_a_price_is_not_called_while_a_budget_cap_is_set() {
    let toml = PRICES.replacen("price = { input = 0, output = 31.25 }\n", "", 1);
    let setting = Setting { script: Some(billed()), toml: toml.clone(), private: true, ..Setting::default() };
    let mut w = World::new(setting).await;
    w.label("maya", LABEL).await;
    let halt = w.find("### ❌ Halted at Draft the design").body;
    assert!(halt.contains("is billed per use but has no price"), "{halt}");
    assert_eq!(w.spending(w.run().await.unwrap().id).await, Spending::default());
    w.stands(RunViewStatus::Failed).await;

    let none = ["call", "stage", "run", "repository_day", "installation_month"]
        .map(|cap| format!("{cap} = \"none\""));
    let toml = format!("{toml}[budget]\n{}\n", none.join("\n"));
    let mut w =
        World::new(Setting { script: Some(billed()), toml, private: true, ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    assert_eq!(w.spending(w.run().await.unwrap().id).await.unpriced, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "takes long"]
async fn concurrent_runs_never_exceed_the_shared_cap() {
    let script = Script::default().drafts(&design()).reviews(&approved()).toml();
    let script = format!("billed = true\n{}", script.replace("[[answer]]\n", "[[answer]]\ndelay_ms = 200\n"));
    let toml = format!("{PRICES}[budget]\nrepository_day = \"$3.1\"\n");
    let mut w = World::new(Setting { script: Some(script), toml, private: true, ..Setting::default() }).await;
    let (first, mut issues) = (w.issue, vec![w.issue]);
    for n in 0..5 {
        issues
            .push(w.hub.open_issue(w.repo, w.user("maya"), &format!("Another {n}"), "Count words.").unwrap());
    }
    for issue in &issues {
        w.hub.label(w.repo, *issue, w.user("maya"), LABEL).unwrap();
    }
    w.hub.wait_for_webhooks().await;
    while w.app.intake.drain_inbox().await.unwrap() > 0 {}
    let held = || async {
        let rows = w
            .app
            .store
            .repository_database(w.repo)
            .await
            .unwrap()
            .call_costs(None, Timestamp(0))
            .await
            .unwrap();
        rows.iter().fold(MicroUsd(0), |sum, row| sum.plus(row.call.shared_cap_amount()))
    };
    // The clock moves only when spending is stable, so no answer arrives while other runs still reserve.
    let (mut most, mut last, mut same) = (MicroUsd(0), MicroUsd(0), 0);
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..issues.len() {
        let engine = w.app.engine.clone();
        workers.spawn(async move { while engine.tick().await.unwrap() > 0 {} });
    }
    while !workers.is_empty() {
        tokio::select! {
            Some(done) = workers.join_next() => done.unwrap(),
            held = held() => {
                most = most.max(held);
                same = if held == last { same + 1 } else { 0 };
                last = held;
                if same == 200 {
                    same = 0;
                    w.clock.pass(Duration::from_millis(300));
                }
            }
        }
    }
    w.settle().await;
    assert!(most <= MicroUsd(3_100_000), "{most} were spent or held back of $3.10");
    assert!(most > MicroUsd(2_900_000), "the calls did not overlap: {most}");
    let mut paused = 0;
    for issue in issues {
        w.issue = issue;
        w.stands(RunViewStatus::Asking).await;
        if w.pause_comments() == 1 {
            w.find("### ✋ Paused before ");
            paused += 1;
        }
    }
    w.issue = first;
    assert!((1..=5).contains(&paused), "{paused} of 6 are paused");
}
