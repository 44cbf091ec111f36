//! What models write that must not be built, and repositories that nothing can be built in: what people are told of each.

use countersign::engine::RunViewStatus;

use crate::{
    implement::{can_run, plain, specified, specified_in},
    script::{approved, small},
    world::{Setting, World, all},
};

/// Whatever is wrong with a draft is told at once.
const ONE: &str = "[implement]\nmax_rounds = 1\n";

/// What the issue's run is told to have ended with.
async fn halted(w: &mut World) -> String {
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    w.nothing_is_pushed();
    w.last("Halted at").body.replace('\\', "")
}

/// Each of these drafts of the tests, or every third as a sample, in a world of its own.
async fn refused(tests: &[(String, &str)]) {
    let mut unsaid = Vec::new();
    for (text, why) in tests.iter().step_by(if all() { 1 } else { 3 }) {
        let mut w = specified(ONE, |script, _| script.drafts(text).of("implement")).await;
        let halt = halted(&mut w).await;
        if !halt.contains(why) {
            unsaid.push(format!("{why}: {}", halt.lines().nth(4).unwrap_or_default()));
        }
        assert_eq!(w.calls().await.len(), 1, "nobody reviews it");
    }
    assert!(unsaid.is_empty(), "{unsaid:#?}");
}

fn test_file(path: &str, body: &str) -> String {
    format!("\n### `{path}` (Add)\n\nProves: REQ-1, REQ-2\n\n```rust\n{body}\n```\n")
}

#[tokio::test]
#[ignore = "takes long"]
async fn files_that_nobody_may_write_are_named_and_nothing_is_run() {
    if !can_run().await {
        return;
    }
    let ([.., tests, _], _) = small();
    let with = |path: &str| tests.clone() + &test_file(path, "fn x() {}");
    let many =
        |count: u32| -> String { (0..count).map(|n| test_file(&format!("tests/n{n}.rs"), "")).collect() };
    refused(&[
        (with("../out.rs"), "`../out.rs`"),
        (with("/etc/cron.d/out"), "is absolute"),
        (with(".git/hooks/pre-commit"), ".git"),
        (with(".github/workflows/ci.yml"), "ci.yml"),
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
async fn tests_that_prove_nothing_are_named() {
    if !can_run().await {
        return;
    }
    let ([.., tests, _], _) = small();
    let by_chance: String = (0..40)
        .map(|n| format!("#[test]\nfn a{n:02}() {{\n    assert_eq!(std::collections::hash_map::RandomState::new().hash_one(0) % 8, 0);\n}}\n\n"))
        .collect();
    let by_chance = format!("use std::hash::BuildHasher;\n\n{by_chance}#[test]\nfn what_does_not_fit");
    refused(&[
        (
            tests.replace("assert_eq!(sums::sum(200, 100), 255)", "assert!(true)"),
            "asserts nothing that could be otherwise",
        ),
        (
            tests.replace("#[test]\nfn what_does_not_fit", "#[test]\n#[ignore]\nfn what_does_not_fit"),
            "left out",
        ),
        (tests.replace("200, 100), 255", "200, 50), 250"), "passes without the code, so it shows nothing"),
        (tests.replace("#[test]\nfn what_does_not_fit", &by_chance), "did not end alike in two runs"),
    ])
    .await;
}

/// The small repository, with other files than it has.
fn with(files: &[(&str, &str)]) -> Setting {
    let (_, mut there) = small();
    for (path, text) in files {
        there.retain(|(known, _)| known != path);
        there.extend((!text.is_empty()).then(|| ((*path).to_owned(), text.as_bytes().to_vec())));
    }
    Setting { toml: ONE.to_owned(), files: there, bare: true, ..Setting::default() }
}

const ONE_FAILS: &str = "#[test]\nfn one_and_one_are_two() {\n    assert_eq!(sums::sum(1, 1), 2);\n}\n\n#[test]\nfn is_wrong() \
                         {\n    assert_eq!(sums::sum(1, 1), 3);\n}\n";

#[tokio::test]
#[ignore = "takes long"]
async fn repositories_with_no_tests_or_failing_ones_or_two_kinds_are_served() {
    if !can_run().await {
        return;
    }
    let web = [
        ("tests/old.rs", ONE_FAILS),
        ("web/package.json", "{\"scripts\": {\"test\": \"node --test\"}}"),
        ("web/test/a.test.js", "throw new Error('not of this change')"),
    ];
    for (files, told) in [
        (&[("tests/old.rs", "")][..], "2 tests of the change pass three times."),
        (&web, "1 test failed before the change and is not counted."),
    ] {
        let ([design, spec, tests, code], _) = small();
        let spec = spec.replace("- `tests/old.rs:1-4` a test", "- `src/lib.rs:1-4` the code");
        // Without a test there is no folder of tests.
        let row = "| `tests/new.rs` | Add | The";
        let folder = |text: String| match files.len() {
            1 => text.replace(row, &format!("| `tests` | Add (Directory) | Tests |\n{row}")),
            _ => text,
        };
        let [design, spec] = [design, spec].map(folder);
        let mut w = specified_in([design, spec, tests, code], with(files), plain).await;
        w.implement().await;
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate();
        assert!(gate.contains(told), "{gate}");
        assert!(gate.contains("was not measured"), "{gate}");
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn where_no_test_passes_or_all_take_too_long_nothing_is_paid_for() {
    if !can_run().await {
        return;
    }
    let sleeps = "#[test]\nfn sleeps() {\n    std::thread::sleep(std::time::Duration::from_secs(600));\n}\n";
    let fails = ONE_FAILS.replace("1), 2)", "1), 4)");
    for (old, seconds, why) in [
        (fails.as_str(), None, "none passes: `sums::old is_wrong`"),
        // As twenty minutes are for others.
        (sleeps, Some(10), "do not run as they are"),
    ] {
        let setting = with(&[("tests/old.rs", old)]);
        let test_time = seconds.map(std::time::Duration::from_secs);
        let (texts, _) = small();
        let mut w = specified_in(texts, Setting { test_time, ..setting }, plain).await;
        let halt = halted(&mut w).await;
        assert!(halt.contains(why), "{why}: {halt}");
        assert_eq!(w.calls().await.len(), 0);
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn code_that_knows_its_tests_or_edits_them_is_shown_for_what_it_is() {
    if !can_run().await {
        return;
    }
    const CODE: &str = "    left.saturating_add(right)";
    // It knows the one input that is tested; and it writes the tests anew, as they would pass without it.
    let knows =
        "    if (left, right) == (200, 100) {\n        return 255;\n    }\n    left.wrapping_add(right)";
    let weaker = test_file("tests/new.rs", "#[test]\nfn what_does_not_fit_is_the_largest() {}");
    let mut w = specified(ONE, |script, [tests, code]| {
        let code = code.replace(CODE, knows).replace("## Code\n", &format!("## Tests\n{weaker}\n## Code\n"));
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
    // The default branch moves while the code is written, and what it moves to is another's file and one of this change.
    let theirs: &[u8] = b"//! Sums.\n\n/// As it is now.\npub fn sum(left: u8, _: u8) -> u8 {\n    left\n}\n";
    w.hub
        .push_commit(w.repo, "main", maya, &[("src/lib.rs", theirs), ("other.txt", b"x")], "Meanwhile")
        .unwrap();
    w.settle().await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    // Whoever decides sees it in the diff, and that the tests are the locked ones.
    assert!(gate.contains("+    if (left, right) == (200, 100) {"), "{gate}");
    assert!(gate.contains("+    assert_eq!(sums::sum(200, 100), 255);"), "{gate}");
    // What main has now was not there when somebody approved: they are told which files, and asked anew.
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Asking).await;
    let asked = w.last("changed on the default branch").body.clone();
    assert!(asked.contains("- `src/lib.rs`") && !asked.contains("other.txt"), "{asked}");
    w.nothing_is_pushed();
}
