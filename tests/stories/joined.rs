//! Stories about a change to which a test by the reviewer's model was added. Such a change can still be fixed, revised
//! and restarted.

use crate::{
    after::{pushed_world_as, with_fixes},
    implement::{can_run, plain},
    script::attack,
};

#[tokio::test]
#[ignore = "takes long"]
async fn change_with_a_reviewer_test_can_be_fixed_revised_and_restarted() {
    if !can_run().await {
        return;
    }
    let zero = attack("tests/zero.rs", "REQ-2", "nothing_and_nothing", "assert_eq!(sums::sum(0, 0), 0);");
    let mut w = pushed_world_as(|script, texts| {
        with_fixes(plain(script, texts).attacks(std::slice::from_ref(&zero)), 3)
    })
    .await;
    assert!(w.file_on_branch("tests/zero.rs").is_some());

    // CI fails, a review requests changes, and sam writes `/revise`.
    w.report_ci(&[("build", "failure")]).await;
    w.approve_fix().await;
    let (pull, sam) = (w.pull_number(), w.user("sam"));
    w.hub.review(w.repo, pull, sam, "CHANGES_REQUESTED", "Turn the operands round.").unwrap();
    w.settle().await;
    w.tried().await;
    w.approve_fix().await;
    let answers = w.on_pull();
    assert!(answers[0].contains("The drafter gave no answer to this point."), "{answers:?}");
    w.comment("sam", "/revise Turn them round again.").await;
    w.tried().await;
    w.approve_fix().await;
    assert!(w.file_on_branch("tests/zero.rs").is_some());

    // In a new run the reviewer's model writes no test, so the first run's test is removed.
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
    assert!(
        gate.contains("Files that only an earlier push changed were reverted: `tests/zero.rs`."),
        "{gate}"
    );
    w.approve_fix().await;
    assert!(w.run().await.unwrap().id > before);
    assert_eq!(w.file_on_branch("tests/zero.rs"), None);
    w.commits();
    w.pull();
}
