//! The formatter, the linter and the mutation check, as our code runs them for a change.

use countersign::engine::RunViewStatus;

use crate::{
    implement::{can_run, plain, specified_in},
    script::{Script, small},
    world::{Setting, World},
};

const EDIT: &str = "<<<<<<< SEARCH\n    left.wrapping_add(right)\n=======\n    left.saturating_add(right)\n>>>>>>> REPLACE\n";

/// Runs `implement` in the small repository with one file replaced. Returns the gate and the roles of the called models.
async fn implement(
    (path, text): (&str, impl Fn(String) -> String),
    drafts: impl FnOnce(Script, [String; 2]) -> Script,
) -> (World, String, String) {
    let (texts, mut files) = small();
    let file = files.iter_mut().find(|(known, _)| known == path).unwrap();
    file.1 = text(String::from_utf8(file.1.clone()).unwrap()).into_bytes();
    let mut w = specified_in(texts, Setting { files, bare: true, ..Setting::default() }, drafts).await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    let roles = w.calls().await.iter().map(|call| &call.role[..1]).collect();
    let gate = w.gate().replace('\\', "");
    (w, gate, roles)
}

#[tokio::test]
async fn badly_formatted_drafts_are_formatted_without_a_model_call() {
    if !can_run().await {
        return;
    }
    let old = |text: String| text.replace("(1, 1), 2", "(1,1), 2");
    let (mut w, gate, roles) = implement(("tests/old.rs", old), |script, [tests, code]| {
        let tests = tests.replace("(2, 3), 5", "(2,3),5");
        plain(script, [tests, code.replace("left.saturating_add(right)", "left . saturating_add( right )")])
    })
    .await;
    assert_eq!(roles, "drdrr", "tests, code, and a review of each; the reviewer's tests: {}", w.thread());
    assert!(gate.contains("**Formatter:** `cargo fmt --check` has no new complaint."), "{gate}");
    w.approved_by("sam").await;
    let [tests, code, old] =
        ["tests/new.rs", "src/lib.rs", "tests/old.rs"].map(|path| w.file_on_branch(path).unwrap());
    assert!(
        tests.contains("sum(2, 3), 5") && code.contains("    left.saturating_add(right)\n"),
        "{tests}{code}"
    );
    assert!(old.contains("(1,1), 2"), "an old file stays as it is: {old}");
}

#[tokio::test]
async fn old_file_is_not_reformatted_and_only_new_linter_complaints_are_sent_back() {
    if !can_run().await {
        return;
    }
    const FAULT: &str = "    if right != right {\n        return 0;\n    }\n";
    // Both badly formatted and with an old complaint of the linter.
    let old = |text: String| {
        text.replace("left: u8, right", "left: u8,right")
            + "\npub fn one(of: u8) -> bool {\n    of == of\n}\n"
    };
    let (mut w, gate, roles) = implement(("src/lib.rs", old), |script, [tests, code]| {
        let code = code.replace("    left.saturating", &format!("{FAULT}    left.saturating"));
        let script = plain(script, [tests.replace("(2, 3), 5", "(2,3),5"), code]);
        script.edits(FAULT, "").of("implement")
    })
    .await;
    assert_eq!(roles, "drddrr", "{}", w.thread());
    for line in ["Formatter:** `cargo fmt --check`", "Linter:** `cargo clippy --offline --all-targets`"] {
        assert!(gate.contains(&format!("**{line} has no new complaint.")), "{gate}");
    }
    w.approved_by("sam").await;
    let [tests, code] = ["tests/new.rs", "src/lib.rs"].map(|path| w.file_on_branch(path).unwrap());
    assert!(tests.contains("sum(2, 3), 5") && code.contains("left: u8,right"), "{tests}{code}");
}

#[tokio::test]
async fn mutation_check_counts_only_parts_that_a_test_can_notice() {
    if !can_run().await {
        return;
    }
    const MOVED: &str = "/// The first number.\npub fn first() -> u8 {\n    1\n}\n";
    // The file gets other comments, loses a function, and a function moves. The helper cannot be reverted alone.
    let whole = format!(
        "//! Sums that stop.\n\n{MOVED}\n/// What two numbers make together.\npub fn sum(left: u8, right: u8) -> u8 {{\n    \
         // It stops.\n    capped(left, right)\n}}\n\nfn capped(left: u8, right: u8) -> u8 {{\n    \
         left.saturating_add(right)\n}}\n"
    );
    let untested = format!("{whole}\npub fn nothing() -> u8 {{\n    0\n}}\n");
    for (new, score, missed) in [
        (whole, "a test fails for 2 of 2 parts.", None),
        (untested, "a test fails for 2 of 3 parts.", Some("Reverting `src/lib.rs:18-20` breaks no test.")),
    ] {
        let old = |text: String| {
            format!("{text}\n/// Nobody needs it.\npub fn gone() -> u8 {{\n    2\n}}\n\n{MOVED}")
        };
        let (w, gate, _) = implement(("src/lib.rs", old), |script, [tests, code]| {
            plain(script, [tests, code.replace(EDIT, &new)])
        })
        .await;
        assert!(gate.contains(&format!("with each part of the code reverted in turn, {score}")), "{gate}");
        assert_eq!(gate.matches("breaks no test").count(), missed.iter().count(), "{gate}");
        assert!(missed.is_none_or(|missed| gate.contains(missed)), "{gate}");
        w.nothing_is_pushed();
    }
}
