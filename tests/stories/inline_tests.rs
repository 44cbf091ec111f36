//! Tests inside the source file that they test: locked as items, while the rest of the file stays free for the code.

use countersign::engine::RunViewStatus;

use crate::{
    implement::{can_run, plain, specified_in},
    script::{Script, approved, attack, small},
    world::{Setting, World},
};

const LIB: &str = r#"//! Sums.

/// What two numbers make together.
///
/// ```
/// assert_eq!(sums::sum(1, 1), 2);
/// ```
pub fn sum(left: u8, right: u8) -> u8 {
    left.wrapping_add(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wraps() {
        assert_eq!(sum(255, 1), 0);
    }

    #[test]
    fn adds() {
        assert_eq!(sum(1, 1), 2);
    }
}
"#;

const TESTS: &str = "## Tests\n\n### `src/lib.rs` (Modify)\n\nProves: REQ-1, REQ-2\n\nGuards: fits_as_before\n\n```rust\n\
                     <<<<<<< SEARCH\n    fn wraps() {\n        assert_eq!(sum(255, 1), 0);\n    }\n=======\n    \
                     fn stops_at_the_largest() {\n        assert_eq!(sum(200, 100), 255);\n    }\n\n    #[test]\n    \
                     fn fits_as_before() {\n        assert_eq!(sum(2, 3), 5);\n    }\n>>>>>>> REPLACE\n```\n";

/// Code that also moves the doc test down by two lines.
const CODE: &str = "<<<<<<< SEARCH\n/// What two numbers make together.\n=======\n/// What two numbers make together.\n/// The \
                    largest number is where it stops.\n///\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\n    left.wrapping_add(right)\n\
                    =======\n    left.saturating_add(right)\n>>>>>>> REPLACE\n";

fn change(section: &str) -> String {
    format!(
        "# {{{{issue}}}} - Change: Stop a sum at the largest number\n\nThe sum stops at the largest number.\n\n{section}"
    )
}

fn code(blocks: &str) -> String {
    change(&format!("## Code\n\n### `src/lib.rs` (Modify)\n\n```rust\n{blocks}```\n"))
}

/// The small repository with unit tests in `src/lib.rs`, whose design, spec and tests name no other file.
async fn world(toml: &str, implement: impl FnOnce(Script, [String; 2]) -> Script) -> World {
    let ([design, spec, ..], _) = small();
    let design = design
        .replace("| `tests/new.rs` | Add | The tests of it |\n", "")
        .replace("`tests/new.rs` passes", "The tests pass");
    let spec = spec
        .replace("| `tests/new.rs` | Add | The tests of it |\n", "")
        .replace("### tests/new.rs\n\nA test for each row of Test Mapping.\n\n", "")
        .replace("tests/old.rs:1-4", "src/lib.rs:15-18")
        .replace("what_does_not_fit_is_the_largest", "stops_at_the_largest")
        .replace("what_fits_is_as_before", "fits_as_before")
        .replace("`tests/new.rs`", "`src/lib.rs`")
        + "| REQ-1 | wraps | `src/lib.rs` | `255` and `1` | removed |\n"
        + "| REQ-2 | doc sum | `src/lib.rs` | `1` and `1` | `2` |\n";
    let manifest = "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
    let files = [("Cargo.toml", manifest), ("src/lib.rs", LIB)];
    let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into();
    let setting = Setting { toml: toml.to_owned(), files, bare: true, ..Setting::default() };
    specified_in([design, spec, change(TESTS), code(CODE)], setting, implement).await
}

#[tokio::test]
async fn inline_tests_are_locked_while_the_code_of_the_same_file_is_changed() {
    if !can_run().await {
        return;
    }
    let attack = attack("src/lib.rs", "REQ-1", "stays_the_largest", "assert_eq!(sum(255, 255), 255);");
    let mut w = world("", |script, texts| plain(script, texts).attacks(&[attack])).await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(
        gate.contains("1 test fails by an assertion, 1 test passes (it guards existing behaviour)"),
        "{gate}"
    );
    // `adds` and the doc test, although its line moved.
    assert!(
        gate.contains("3 tests of the change and 2 others that passed before pass three times"),
        "{gate}"
    );
    assert!(gate.contains("1 test is removed, as the approved spec says: `sums tests::wraps`."), "{gate}");
    assert!(gate.contains("The reviewer's model wrote `src/lib.rs: stays_the_largest`"), "{gate}");
    w.approved_by("sam").await;
    w.tried().await;
    let pushed = w.file_on_branch("src/lib.rs").unwrap();
    assert!(pushed.contains("saturating_add") && pushed.contains("fn stops_at_the_largest"), "{pushed}");
    assert!(pushed.ends_with("        assert_eq!(sum(255, 255), 255);\n    }\n}\n"), "{pushed}");
    assert!(!pushed.contains("fn wraps"), "{pushed}");
}

#[tokio::test]
async fn code_that_weakens_or_disables_inline_tests_is_refused() {
    if !can_run().await {
        return;
    }
    let fix = "<<<<<<< SEARCH\n    left.wrapping_add(right)\n=======\n    left\n>>>>>>> REPLACE\n";
    let tricks = [
        // Ignores a locked test.
        format!(
            "{fix}\n<<<<<<< SEARCH\n    fn stops_at_the_largest() {{\n=======\n    #[ignore]\n    fn stops_at_the_largest() {{\n>>>>>>> REPLACE\n"
        ),
        // Weakens a locked test.
        format!(
            "{fix}\n<<<<<<< SEARCH\n        assert_eq!(sum(200, 100), 255);\n=======\n        assert_eq!(sum(200, 55), 255);\n>>>>>>> REPLACE\n"
        ),
        // Turns all tests of the module off.
        format!(
            "{fix}\n<<<<<<< SEARCH\n#[cfg(test)]\nmod tests {{\n=======\n#[cfg(any())]\nmod tests {{\n>>>>>>> REPLACE\n"
        ),
        // Replaces the assertion.
        format!(
            "{fix}\n<<<<<<< SEARCH\n//! Sums.\n=======\n//! Sums.\n\nmacro_rules! assert_eq {{\n    ($($x:tt)*) => {{}};\n}}\n>>>>>>> REPLACE\n"
        ),
    ];
    for (trick, why) in tricks.iter().zip([
        "has other test code than the locked tests",
        "has other test code than the locked tests",
        "has other test code than the locked tests",
        "defines its own `assert_eq`",
    ]) {
        let mut w = world("[implement]\nmax_rounds = 1\n", |script, [tests, _]| {
            let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
            script.drafts(&code(trick)).of("implement")
        })
        .await;
        w.implement().await;
        w.stands(RunViewStatus::Failed).await;
        let halt = w.last("Halted at").body.replace('\\', "");
        assert!(halt.contains(why), "{why}: {halt}");
        w.nothing_is_pushed();
    }
}

/// `/revise tests` has the tests written, proven and reviewed again. The code of before passes them and is not paid for
/// again.
#[tokio::test]
async fn revise_tests_command_replaces_the_locked_tests_but_not_the_code() {
    if !can_run().await {
        return;
    }
    let mut w = world("", |script, texts| {
        let script = plain(script, texts).edits("sum(200, 100)", "sum(250, 100)").of("implement");
        script.reviews(&approved()).of("implement").reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/revise tests Use a larger sum.").await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let roles: String = w.calls().await.iter().map(|call| &call.role[..1]).collect();
    assert_eq!(roles.matches('d').count(), 3, "tests, code, and other tests: {roles}");
    let gate = w.gate();
    assert!(gate.contains("replace the locked tests; allowed by `sam`"), "{gate}");
    assert!(gate.contains("sum(250, 100)") && gate.contains("saturating_add"), "{gate}");
}

/// A person may have tests dropped, renamed and moved to a file that the spec does not list. The gate names them.
#[tokio::test]
async fn revise_tests_command_may_drop_rename_and_move_tests() {
    if !can_run().await {
        return;
    }
    let moved = "fn saturates() {\n        assert_eq!(sum(200, 100), 255);\n    }\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\n\n    \
                 #[test]\n    fn adds() {\n        assert_eq!(sum(1, 1), 2);\n    }\n=======\n>>>>>>> REPLACE\n```\n\n\
                 ### `tests/sum.rs` (Add)\n\nProves: REQ-2\n\nGuards: adds\n\n```rust\n#[test]\nfn adds() {\n    \
                 assert_eq!(sums::sum(1, 1), 2);\n}\n";
    let (_, old) = TESTS.split_once("fn stops_at_the_largest").unwrap();
    let old = format!("fn stops_at_the_largest{}", old.trim_end_matches("```\n"));
    let mut w = world("", |script, texts| {
        let script = plain(script, texts).edits(&old, moved).of("implement");
        script.reviews(&approved()).of("implement").reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/revise tests Rename the first, drop the guard, and move `adds` to `tests/sum.rs`.")
        .await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(
        gate.contains(
            "Tests that are removed, renamed or moved, as `sam` asked: `sums tests::adds`, \
             `stops_at_the_largest`, `fits_as_before`."
        ),
        "{gate}"
    );
    w.approved_by("sam").await;
    w.tried().await;
    let pushed = w.file_on_branch("src/lib.rs").unwrap();
    assert!(pushed.contains("saturating_add") && pushed.contains("fn saturates"), "{pushed}");
    assert!(!pushed.contains("fn fits_as_before") && !pushed.contains("fn adds"), "{pushed}");
    assert!(w.file_on_branch("tests/sum.rs").unwrap().contains("fn adds"));
}
