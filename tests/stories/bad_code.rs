//! Stories about drafts that must be refused and repositories in which nothing can be built. They check the reasons
//! shown to people.

use countersign::engine::RunViewStatus;

use crate::{
    implement::{can_run, plain, specified, specified_in},
    script::{approved, small},
    world::{Setting, World, all},
};

/// Settings that allow only one round, so that the first mistake halts the run.
const ONE_ROUND: &str = "[implement]\nmax_rounds = 1\n";

/// Runs `implement`. Asserts that the run failed and pushed nothing. Returns the halt comment.
async fn halt_text(w: &mut World) -> String {
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    w.nothing_is_pushed();
    w.last("Halted at").body.replace('\\', "")
}

/// Asserts that each draft of the tests halts the run with the expected reason. Unless all tests are requested, only
/// every third draft is tried.
async fn assert_rejected(tests: &[(String, &str)]) {
    let mut missing_reasons = Vec::new();
    for (text, why) in tests.iter().step_by(if all() { 1 } else { 3 }) {
        let mut w = specified(ONE_ROUND, |script, _| script.drafts(text).of("implement")).await;
        let halt = halt_text(&mut w).await;
        if !halt.contains(why) {
            missing_reasons.push(format!("{why}: {}", halt.lines().nth(4).unwrap_or_default()));
        }
        assert_eq!(w.calls().await.len(), 1, "no review is paid for");
    }
    assert!(missing_reasons.is_empty(), "{missing_reasons:#?}");
}

fn test_file(path: &str, body: &str) -> String {
    format!("\n### `{path}` (Add)\n\nProves: REQ-1, REQ-2\n\n```rust\n{body}\n```\n")
}

#[tokio::test]
#[ignore = "takes long"]
async fn draft_with_forbidden_files_is_rejected_with_a_reason_and_not_reviewed() {
    if !can_run().await {
        return;
    }
    let ([.., tests, _], _) = small();
    let with_file = |path: &str| tests.clone() + &test_file(path, "fn x() {}");
    let many =
        |count: u32| -> String { (0..count).map(|n| test_file(&format!("tests/n{n}.rs"), "")).collect() };
    assert_rejected(&[
        (with_file("../out.rs"), "`../out.rs`"),
        (with_file("/etc/cron.d/out"), "is absolute"),
        (with_file(".git/hooks/pre-commit"), ".git"),
        (with_file(".github/workflows/ci.yml"), "ci.yml"),
        (tests.clone() + "\n### `tests/old.rs` (Delete)\n", "`tests/old.rs` is not in the approved spec"),
        (tests.clone() + &many(1_000), "1001 files; 200 are allowed"),
        (tests.clone() + &many(10_000), "KB long; at most 256 are read"),
        (tests.replace("255);", "255); // \u{0}\u{1}\u{2}"), "control"),
        (tests.replace("255);", &format!("255); // {}", "x".repeat(50_000_000))), "48828 KB long"),
    ])
    .await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn vacuous_or_flaky_tests_are_rejected_with_a_reason() {
    if !can_run().await {
        return;
    }
    let ([.., tests, _], _) = small();
    let by_chance: String = (0..40)
        .map(|n| format!("#[test]\nfn a{n:02}() {{\n    assert_eq!(std::collections::hash_map::RandomState::new().hash_one(0) % 8, 0);\n}}\n\n"))
        .collect();
    let by_chance = format!("use std::hash::BuildHasher;\n\n{by_chance}#[test]\nfn what_does_not_fit");
    assert_rejected(&[
        (
            tests.replace("assert_eq!(sums::sum(200, 100), 255)", "assert!(true)"),
            "asserts nothing that could be otherwise",
        ),
        (
            tests.replace("#[test]\nfn what_does_not_fit", "#[test]\n#[ignore]\nfn what_does_not_fit"),
            "left out",
        ),
        (tests.replace("200, 100), 255", "200, 50), 250"), "passes without the code, so it shows nothing"),
        (tests.replace("#[test]\nfn what_does_not_fit", &by_chance), "ended differently in two runs"),
    ])
    .await;
}

/// Returns the setting for the small repository, with these files added or replaced. An empty text removes the file.
fn setting_with(files: &[(&str, &str)]) -> Setting {
    let (_, mut repository_files) = small();
    for (path, text) in files {
        repository_files.retain(|(known, _)| known != path);
        repository_files.extend((!text.is_empty()).then(|| ((*path).to_owned(), text.as_bytes().to_vec())));
    }
    Setting { toml: ONE_ROUND.to_owned(), files: repository_files, bare: true, ..Setting::default() }
}

const ONE_FAILS: &str = "#[test]\nfn one_and_one_are_two() {\n    assert_eq!(sums::sum(1, 1), 2);\n}\n\n#[test]\nfn is_wrong() \
                         {\n    assert_eq!(sums::sum(1, 1), 3);\n}\n";

#[tokio::test]
#[ignore = "takes long"]
async fn change_succeeds_in_a_repository_without_tests_or_with_some_failing_tests() {
    if !can_run().await {
        return;
    }
    let web = [
        ("tests/old.rs", ONE_FAILS),
        ("web/package.json", "{\"scripts\": {\"test\": \"node --test\"}}"),
        ("web/test/a.test.js", "throw new Error('not of this change')"),
    ];
    for (files, expected) in [
        (&[("tests/old.rs", "")][..], "2 tests of the change pass three times."),
        (&web, "1 test failed before the change and is not counted."),
    ] {
        let ([design, spec, tests, code], _) = small();
        let spec = spec.replace("- `tests/old.rs:1-4` a test", "- `src/lib.rs:1-4` the code");
        // A repository without tests has no folder for them.
        let row = "| `tests/new.rs` | Add | The";
        let folder = |text: String| match files.len() {
            1 => text.replace(row, &format!("| `tests` | Add (Directory) | Tests |\n{row}")),
            _ => text,
        };
        let [design, spec] = [design, spec].map(folder);
        let mut w = specified_in([design, spec, tests, code], setting_with(files), plain).await;
        w.implement().await;
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate();
        assert!(gate.contains(expected), "{gate}");
        assert!(gate.contains("was not measured"), "{gate}");
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_makes_no_model_call_if_no_existing_test_passes_or_the_tests_are_too_slow() {
    if !can_run().await {
        return;
    }
    let sleeps = "#[test]\nfn sleeps() {\n    std::thread::sleep(std::time::Duration::from_secs(600));\n}\n";
    let fails = ONE_FAILS.replace("1), 2)", "1), 4)");
    for (old, seconds, reason) in [
        (fails.as_str(), None, "no test passes: `sums::old is_wrong`"),
        // Shortens the timeout of a test run to ten seconds.
        (sleeps, Some(10), "so new tests would prove nothing"),
    ] {
        let setting = setting_with(&[("tests/old.rs", old)]);
        let test_time = seconds.map(std::time::Duration::from_secs);
        let (texts, _) = small();
        let mut w = specified_in(texts, Setting { test_time, ..setting }, plain).await;
        let halt = halt_text(&mut w).await;
        assert!(halt.contains(reason), "{reason}: {halt}");
        assert_eq!(w.calls().await.len(), 0);
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn gate_diff_shows_code_that_special_cases_its_tests() {
    if !can_run().await {
        return;
    }
    const CODE: &str = "    left.saturating_add(right)";
    // Special-cases the one tested input, and rewrites the tests so that they pass without the change.
    let special_cased =
        "    if (left, right) == (200, 100) {\n        return 255;\n    }\n    left.wrapping_add(right)";
    let weaker = test_file("tests/new.rs", "#[test]\nfn what_does_not_fit_is_the_largest() {}");
    let mut w = specified(ONE_ROUND, |script, [tests, code]| {
        let code =
            code.replace(CODE, special_cased).replace("## Code\n", &format!("## Tests\n{weaker}\n## Code\n"));
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        script.drafts(&code).of("implement").reviews(&approved()).of("implement")
    })
    .await;
    let maya = w.user("maya");
    w.hub.label(w.repo, w.issue, maya, "countersign:implement").unwrap();
    while w.run().await.is_none_or(|run| run.step_id != "N4") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        w.pass(10);
        w.step(1).await;
    }
    // While the code is written, main gets commits to a file of this change and to another one.
    let theirs: &[u8] = b"//! Sums.\n\n/// As it is now.\npub fn sum(left: u8, _: u8) -> u8 {\n    left\n}\n";
    w.hub
        .push_commit(w.repo, "main", maya, &[("src/lib.rs", theirs), ("other.txt", b"x")], "Meanwhile")
        .unwrap();
    w.settle().await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    // The diff shows the special case to the approver, and it shows the locked tests.
    assert!(gate.contains("+    if (left, right) == (200, 100) {"), "{gate}");
    assert!(gate.contains("+    assert_eq!(sums::sum(200, 100), 255);"), "{gate}");
    // main has changed since the gate was posted: the answer lists the files, and the gate asks again.
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Asking).await;
    let answer = w.last("changed on the default branch").body.clone();
    assert!(answer.contains("- `src/lib.rs`") && !answer.contains("other.txt"), "{answer}");
    w.nothing_is_pushed();
}
