//! A test of the reviewer's model joined the change: each way back to work still works.

use crate::{
    after::{fixes, pushed_as},
    implement::{can_run, plain},
    script::attack,
};

#[tokio::test]
#[ignore = "takes long"]
async fn a_change_with_a_test_of_the_reviewers_model_goes_back_to_work_in_every_way() {
    if !can_run().await {
        return;
    }
    let zero = attack("tests/zero.rs", "REQ-2", "nothing_and_nothing", "assert_eq!(sums::sum(0, 0), 0);");
    let mut w =
        pushed_as(|script, texts| fixes(plain(script, texts).attacks(std::slice::from_ref(&zero)), 3)).await;
    assert!(w.on_branch("tests/zero.rs").is_some());

    // CI fails, a review asks for changes, somebody writes `/revise`.
    w.ci(&[("build", "failure")]).await;
    w.passed().await;
    let (pull, sam) = (w.pull_number(), w.user("sam"));
    w.hub.review(w.repo, pull, sam, "CHANGES_REQUESTED", "Turn the operands round.").unwrap();
    w.settle().await;
    w.tried().await;
    w.passed().await;
    w.comment("sam", "/revise Turn them round again.").await;
    w.tried().await;
    w.passed().await;
    assert!(w.on_branch("tests/zero.rs").is_some());

    // A new run, in which the reviewer's model knows of no test, puts back what is left of the first one.
    let file = w.directory().join("bot/script.toml");
    let mut script: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
    script["answer"].as_array_mut().unwrap().retain(|answer| !answer.to_string().contains("tests/zero.rs"));
    std::fs::write(&file, script.to_string()).unwrap();
    w = w.restart().await;
    let before = w.run().await.unwrap().id;
    w.comment("sam", "/restart").await;
    w.wait(60).await;
    w.tried().await;
    let gate = w.gate();
    assert!(gate.contains("Left by an earlier change and put back as before it: `tests/zero.rs`."), "{gate}");
    w.passed().await;
    assert!(w.run().await.unwrap().id > before);
    assert_eq!(w.on_branch("tests/zero.rs"), None);
    w.commits();
    w.pull();
}
