//! Stories about model services that stay busy, refuse, or truncate responses. They check the number of calls, and
//! which calls count towards budgets.

use std::{collections::BTreeSet, sync::Arc};

use countersign::{engine::RunViewStatus, types::MicroUsd};

use crate::{
    anthropic::{self, Api, Behaviour},
    apis::drafting,
    script::{Script, approved},
    world::{Setting, World},
};

const BUSY: &str = r#"{"type":"system","subtype":"api_retry","attempt":1,"retry_delay_ms":542,"error":"rate_limit"}
{"type":"assistant","error":"rate_limit","message":{"id":"m","model":"<synthetic>","usage":{}}}
{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"API Error: 429"}
"#;

/// Starts a run whose drafter is an imitation of Anthropic's API with this behaviour.
async fn drafted_by_api(behaviour: Behaviour, toml: &str) -> (World, Arc<Api>) {
    let (url, api) = anthropic::start(behaviour).await;
    let setting = Setting {
        models: Some(("anthropic:opus", "stub:reviewer")),
        script: Some(Script::default().reviews(&approved()).toml()),
        toml: format!("[providers.anthropic]\nbase_url = \"{url}\"\n{toml}"),
        env: "ANTHROPIC_API_KEY=sk-ant-of-this-story\n".to_owned(),
        private: true,
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    (w, api)
}

/// Returns the number of seconds until the run halts, measured in steps of 15 seconds.
async fn seconds_until_halt(w: &mut World) -> u64 {
    for passed in (0..7200).step_by(15) {
        if w.run_status().await == RunViewStatus::Failed {
            return passed;
        }
        w.wait(15).await;
    }
    panic!("the run did not halt within two hours:\n{}", w.thread());
}

#[tokio::test]
async fn api_that_responds_429_with_a_retry_header_is_retried_for_15_minutes() {
    let (mut w, api) = drafted_by_api(Behaviour::Error(429, "rate_limit_error", Some(2)), "").await;
    let passed = seconds_until_halt(&mut w).await;
    assert!((900..2000).contains(&passed), "{passed} s");
    assert!((5..15).contains(&api.requests().len()), "{} requests", api.requests().len());
    w.find("stayed busy for 15 minutes or longer");
    w.find("updated on 20");
    w.stands(RunViewStatus::Failed).await;
}

#[tokio::test]
async fn claude_program_that_reports_429_is_retried_for_15_minutes() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/failing-claude.sh");
    let setting = Setting {
        models: Some(("claude:opus", "stub:reviewer")),
        script: Some(Script::default().reviews(&approved()).toml()),
        toml: format!("[providers.claude]\npath = \"{program}\"\nbase_url = \"http://127.0.0.1:9\"\n"),
        private: true,
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    let place = w.directory().join("bot/data/claude");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("says"), BUSY).unwrap();
    w.label("maya", "countersign:lld").await;
    let passed = seconds_until_halt(&mut w).await;
    assert!((900..2000).contains(&passed), "{passed} s");
    let calls = std::fs::read_to_string(place.join("calls")).unwrap().lines().count();
    assert!((5..10).contains(&calls), "{calls} calls");
    w.find("stayed busy for 15 minutes or longer");
    w.find("updated on 20");
    w.stands(RunViewStatus::Failed).await;
}

#[tokio::test]
async fn unchanged_prompt_is_not_sent_again_after_a_refusal_or_truncation() {
    for (behaviour, requests, says) in [
        (Behaviour::Refusal, 1, "The drafter declined to answer. Reword the issue"),
        (Behaviour::MaxTokens, 2, "the answer was cut off at 50 tokens; it has to be shorter"),
    ] {
        let (w, api) = drafted_by_api(behaviour, "").await;
        w.stands(RunViewStatus::Failed).await;
        let halt = w.find("### ❌ Halted at Draft the design").body.replace('\\', "");
        assert!(halt.contains(says) && halt.contains("\n/retry\n"), "{halt}");
        w.find("updated on 20");
        let prompts: Vec<_> = api.requests().iter().map(|request| request["messages"].to_string()).collect();
        assert_eq!(prompts.len(), requests, "{halt}");
        assert_eq!(prompts.iter().collect::<BTreeSet<_>>().len(), requests, "all prompts differ");
        assert!(
            requests == 1 || prompts[1].contains(says),
            "the second prompt gives the reason:\n{}",
            prompts[1]
        );
    }
}

/// A design of maximum length costs $0.80, which is just below the budget of $0.82.
#[tokio::test]
async fn run_is_not_paused_if_the_cost_estimated_from_token_counts_is_below_the_cap() {
    let (url, api) = drafting().await;
    let setting = Setting {
        models: Some(("anthropic:opus", "stub:reviewer")),
        script: Some(Script::default().reviews(&approved()).toml()),
        toml: format!("[providers.anthropic]\nbase_url = \"{url}\"\n[budget]\nrun = \"$0.82\"\n"),
        env: "ANTHROPIC_API_KEY=sk-ant-of-this-story\n".to_owned(),
        private: true,
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    w.find("### ✅ APPROVED");
    w.find("updated on 20");
    w.stands(RunViewStatus::Asking).await;
    assert!(
        api.requests()[0]["messages"].to_string().len() > 5000,
        "counted by bytes, the prompt would exceed the cap"
    );
    assert_eq!(api.requests()[0]["max_tokens"], 32_000);
}

#[tokio::test]
async fn unbilled_gateway_errors_do_not_pause_a_run() {
    let (mut w, api) = drafted_by_api(
        Behaviour::Error(502, "api_error", None),
        "[budget]\nstage = \"$10\"\nrun = \"$10\"\n",
    )
    .await;
    seconds_until_halt(&mut w).await;
    assert!(api.requests().len() > 4, "{} requests", api.requests().len());
    w.find("was unreachable or dropped the connection for 15 minutes or longer");
    w.find("updated on 20");
    w.stands(RunViewStatus::Failed).await;
    let calls = w.calls().await;
    let spent = |of: fn(&countersign::engine::CallRow) -> MicroUsd| {
        calls.iter().fold(MicroUsd(0), |sum, call| sum.plus(of(call)))
    };
    let (run, month) = (spent(|call| call.run_cap_amount()), spent(|call| call.shared_cap_amount()));
    assert!(run < MicroUsd(4_000_000) && month > run, "{run} of the run's, {month} of the month's");
}
