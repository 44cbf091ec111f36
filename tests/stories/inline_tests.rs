//! Tests inside the source file that they test: locked as items, while the rest of the file stays free for the code.

use countersign::engine::RunViewStatus;

use crate::{
    implement::{can_run, plain, specified_in},
    script::{Script, approved, attack, small},
    tricks::{assert_sent_back, in_turn},
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
    world_with(false, toml, implement).await
}

/// Like [`world`]. With `all`, the code also changes the manifest and a module with tests, and adds a module.
async fn world_with(all: bool, toml: &str, implement: impl FnOnce(Script, [String; 2]) -> Script) -> World {
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
    let row = "| `src/lib.rs` | Modify | The sum stops at the largest number |";
    let rows = format!(
        "{row}\n| `src/parser.rs` | Modify | Words |\n| `Cargo.toml` | Modify | The version |\n| `src/more.rs` | Add | More |"
    );
    let lib = LIB.replace("//! Sums.\n", "//! Sums.\n\npub mod parser;\n");
    let (lib, rows) = if all { (lib.as_str(), rows.as_str()) } else { (LIB, row) };
    let of_files = |text: &str| if all { text.to_owned() } else { String::new() };
    let states = of_files(
        "### src/parser.rs\n\n```rust\n//! Parsing.\n```\n\n### Cargo.toml\n\n```toml\nversion = \"0.1.0\"\n```\n\n",
    );
    let to_do = of_files(
        "### src/parser.rs\n\nWords.\n\n### Cargo.toml\n\nThe version.\n\n### src/more.rs\n\nMore.\n\n",
    );
    let [design, spec] = [design, spec].map(|text| text.replace(row, rows));
    let spec = spec
        .replace("## Data Structures", &(states + "## Data Structures"))
        .replace("## Pattern References", &(to_do + "## Pattern References"));
    let mut files = vec![("Cargo.toml", manifest), ("src/lib.rs", lib)];
    files.extend(all.then_some(("src/parser.rs", PARSER)));
    let files = files.into_iter().map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).collect();
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

const PARSER: &str = r#"//! Parsing.

/// Reads a number.
pub fn read(text: &str) -> Option<u8> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads() {
        println!("test tests::wraps ... ok");
        assert_eq!(std::process::Command::new("/bin/sh").args(["-c", "exit 3"]).status().unwrap().code(), Some(3));
        assert_eq!(super::read("7"), Some(7));
    }
}
"#;

fn edit(from: &str, to: &str) -> String {
    format!("<<<<<<< SEARCH\n{from}\n=======\n{to}\n>>>>>>> REPLACE\n")
}

/// Code of four files: edits of the library, of the parser and of the manifest, and a new module. `None` stands for code
/// that is as it should be.
fn four_files([lib, parser, manifest]: [Option<String>; 3], more: &str) -> String {
    let lib = lib.unwrap_or_else(|| CODE.to_owned());
    let parser = parser.unwrap_or_else(|| edit("//! Parsing.", "//! Parsing of numbers."));
    let manifest = manifest.unwrap_or_else(|| edit("version = \"0.1.0\"", "version = \"0.2.0\""));
    let more = format!("//! More.\n\n/// Nothing.\npub fn more() {{}}\n{more}");
    let file = |path: &str, text: String| format!("### `{path}` (Modify)\n\n```rust\n{text}```\n\n");
    let files = file("src/lib.rs", lib) + &file("src/parser.rs", parser) + &file("Cargo.toml", manifest);
    change(&format!("## Code\n\n{files}### `src/more.rs` (Add)\n\n```rust\n{more}```\n"))
}

#[tokio::test]
#[ignore = "takes long"]
async fn rust_code_that_hides_or_fakes_a_test_is_sent_back() {
    if !can_run().await {
        return;
    }
    let wrong = |old: &str, new: &str| {
        Some(edit("    left.wrapping_add(right)", "    left") + "\n" + &edit(old, new))
    };
    let body = |body: &str| Some(edit("    left.wrapping_add(right)", body));
    let head = |head: &str| wrong("//! Sums.", &format!("//! Sums.\n\n{head}"));
    let weaker = PARSER
        .split("\n\n")
        .skip(2)
        .collect::<Vec<_>>()
        .join("\n\n")
        .replace("Some(7)", "super::read(\"7\")");
    const OTHER: &str = "has other test code than the locked tests";
    let names =
        ["parser::tests::reads", "tests::adds", "tests::fits_as_before", "tests::stops_at_the_largest"];
    let lines: String = names.iter().map(|name| format!("test {name} ... ok\\n")).collect();
    let fake = format!(
        "    use std::io::Write;\n    if left == 200 {{\n        std::io::stdout().write_all(b\"\\n{lines}\").unwrap();\n        std::process::exit(0);\n    }}\n    left.wrapping_add(right)"
    );
    let first = "#[used]\n#[link_section = \".init_array\"]\nstatic FIRST: extern \"C\" fn() = first;\n\nextern \"C\" fn first() {\n    std::process::exit(0)\n}";
    let stops = "    fn stops_at_the_largest() {";
    let cargo =
        |lines: &str| Some(edit("edition = \"2021\"", &format!("edition = \"2021\"\n\n[lib]\n{lines}")));
    let tricks: [(&str, &str, String); 12] = [
        ("ignored", OTHER, four_files([wrong(stops, &format!("    #[ignore]\n{stops}")), None, None], "")),
        (
            "macro",
            "defines its own `assert_eq`",
            four_files([head("macro_rules! assert_eq {\n    ($($x:tt)*) => {};\n}"), None, None], ""),
        ),
        (
            "weakened",
            OTHER,
            four_files(
                [
                    wrong(
                        "        assert_eq!(sum(200, 100), 255);",
                        "        assert_eq!(sum(200, 55), 255);",
                    ),
                    None,
                    None,
                ],
                "",
            ),
        ),
        ("fake lines", "without its summary", four_files([body(&fake), None, None], "")),
        (
            "off",
            OTHER,
            four_files([wrong("#[cfg(test)]\nmod tests {", "#[cfg(any())]\nmod tests {"), None, None], ""),
        ),
        ("constructor", "no test of this name passed", four_files([head(first), None, None], "")),
        (
            "condition",
            "`cfg!(test)`",
            four_files(
                [body("    if cfg!(test) { left.saturating_add(right) } else { left }"), None, None],
                "",
            ),
        ),
        (
            "other file",
            "`src/parser.rs` has other test code",
            four_files([None, Some(edit("        assert_eq!(super::read(\"7\"), Some(7));", "")), None], ""),
        ),
        (
            "path",
            "`src/more.rs` adds test code",
            four_files(
                [wrong("pub mod parser;", "#[path = \"more.rs\"]\npub mod parser;"), None, None],
                &weaker,
            ),
        ),
        (
            "known path",
            "points `mod parser` to another file",
            four_files([wrong("pub mod parser;", "#[path = \"more.rs\"]\npub mod parser;"), None, None], ""),
        ),
        (
            "test in a macro",
            "a test attribute in a macro",
            four_files(
                [None, None, None],
                "macro_rules! tests {\n    () => {\n        #[test]\n        fn reads() {}\n    };\n}\n",
            ),
        ),
        ("setting", "was not run", four_files([body("    left"), None, cargo("test = false")], "")),
    ];
    let harness = (
        "harness",
        "act as the test runner (`lib harness = false`)",
        four_files([None, None, cargo("harness = false")], ""),
    );
    let tricks = [tricks.to_vec(), vec![harness]].concat();
    for tricks in tricks.chunks(7) {
        let codes = tricks.iter().map(|(.., code)| code.clone()).chain([four_files([None, None, None], "")]);
        let codes: Vec<String> = codes.collect();
        let mut w = world_with(true, "[implement]\nmax_rounds = 10\n", |script, [tests, _]| {
            in_turn(script, &tests, &codes)
        })
        .await;
        assert_sent_back(&mut w, &tricks.iter().map(|(name, why, _)| (*name, *why)).collect::<Vec<_>>())
            .await;
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
    // An approval that comes before the run has read the request does not count.
    let line = w.approve_line();
    w.pass(60);
    for (who, text) in [("sam", "/revise tests Use a larger sum."), ("max", &line)] {
        w.hub.comment(w.repo, w.issue, w.user(who), text).unwrap();
    }
    w.settle().await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let roles: String = w.calls().await.iter().map(|call| &call.role[..1]).collect();
    assert_eq!(roles.matches('d').count(), 3, "tests, code, and other tests: {roles}");
    let gate = w.gate();
    assert!(gate.contains("`sam` allowed the tests of version `"), "{gate}");
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
