//! Stories about provider outages. Calls fall back to other routes, and the run still reaches its approval.

use countersign::{
    engine::{CallRow, CallStatus},
    types::{Timestamp, Verdict},
};

use crate::{
    apis::{BEGUN, DRAFT, REVIEW, drafting, reviewing},
    world::{Setting, World},
};

const FIRST: &str = "AIzaSyTheFirstKeyOfThisStory";
const SECOND: &str = "AIzaSyTheSecondKeyOfThisStory";

#[tokio::test]
#[ignore = "takes long"]
async fn run_finishes_by_fallback_when_a_program_dies_and_a_key_is_exhausted() {
    let (anthropic, drafter) = drafting().await;
    let (gemini, reviewer) = reviewing(Some(FIRST)).await;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/dying-claude.sh");
    let toml = format!(
        "[providers.claude]\npath = \"{program}\"\nbase_url = \"{anthropic}\"\n\
         [providers.anthropic]\nbase_url = \"{anthropic}\"\n[providers.gemini]\nbase_url = \"{gemini}\"\n\
         [[providers.gemini.key]]\nname = \"default\"\ntier = \"paid\"\n\
         [[providers.gemini.key]]\nname = \"second\"\ntier = \"paid\"\n"
    );
    let env = format!(
        "ANTHROPIC_API_KEY=sk-ant-of-this-story\nGEMINI_API_KEY={FIRST}\nGEMINI_API_KEY_SECOND={SECOND}\n"
    );
    let models = Some(("claude:opus", "gemini:pro"));
    let mut w = World::new(Setting { models, toml, env, ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;

    w.find("### ✅ lld: done");
    let gate = w.find("the design was accepted").body;
    assert!(gate.contains(&Verdict::Approved.to_string()), "{gate}");
    for provider_text in ["exceeded your current quota", "out of memory", "some@place", "sk-ant", "AIza"] {
        assert!(!w.thread().contains(provider_text), "the thread shows provider text {provider_text}");
    }
    assert_eq!((drafter.requests().len(), reviewer.asked()), (1, vec![FIRST.to_owned(), SECOND.to_owned()]));

    let run = w.run().await.unwrap().id;
    let calls = w.app.store.repository_database(w.repo).await.unwrap().ledger(run).await.unwrap().calls;
    let leg = |row: &CallRow| (row.provider.clone(), row.status, row.billed, row.cost_microusd);
    let expected = [
        ("anthropic", CallStatus::Done, true, Some(DRAFT)),
        ("claude", CallStatus::Failed, false, Some(BEGUN)),
        ("gemini", CallStatus::Done, true, Some(REVIEW)),
        ("gemini", CallStatus::Failed, true, None),
    ];
    let legs: Vec<_> = calls.iter().map(leg).collect();
    let expected = expected.map(|(by, status, billed, cost)| (by.to_owned(), status, billed, cost));
    assert_eq!(legs, expected, "each route that was tried has a row");
    let prices = w.app.providers.model_catalog();
    for row in &calls {
        let served = row.served.as_deref();
        let by_list = served.and_then(|served| {
            let tokens = [row.input_tokens, row.output_tokens, row.cache_read, row.cache_written];
            prices.cost_microusd(served, tokens, Timestamp(0))
        });
        assert_eq!(row.cost_microusd, by_list, "costs use the price of the model that served");
    }
    let total: u64 = calls.iter().filter_map(|row| row.cost_microusd).sum();
    assert_eq!(total, DRAFT + BEGUN + REVIEW);
}
