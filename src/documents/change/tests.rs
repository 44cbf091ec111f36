#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

use super::{super::DocumentMistake, *};
use crate::{documents::spec, types::IssueNo};

const ISSUE: IssueNo = IssueNo(42);

struct ChangeTestTree;

impl FileTree for ChangeTestTree {
    fn is_file(&self, path: &str) -> bool {
        self.paths().any(|known| known == path)
    }
    fn is_dir(&self, path: &str) -> bool {
        self.paths().any(|known| known.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')))
    }
    fn nearest_paths(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
    fn is_link(&self, path: &str) -> bool {
        matches!(path, "away" | "vendor/module")
    }
    fn is_executable(&self, path: &str) -> bool {
        path == "run.sh"
    }
    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        let paths = ["src/lib.rs", "src/old.rs", "README.md", "away", "vendor/module", "docs/Straße/é.md"];
        Box::new(paths.into_iter())
    }
}

fn base_files() -> BTreeMap<String, String> {
    let files = [
        ("src/lib.rs", "mod old;\n\npub fn read() -> u8 {\n    0\n}\n"),
        ("src/old.rs", "// old\n"),
        ("README.md", "# Sample\n"),
    ];
    files.map(|(path, text)| (path.to_owned(), text.to_owned())).into()
}

fn allowed_scope(part: ChangeSection) -> ChangeScope {
    ChangeScope::from_spec(
        &spec::parse(
            "# 42 - Implementation: Read\n\n## 2. Files to Implement\n\n| File | Change Type | Description |\n|---|---|---|\n\
             | `src/lib.rs` | Modify | x |\n| `src/new.rs` | Add | x |\n| `src/old.rs` | Delete | x |\n| `README.md` | Modify | x |\n\
             | `tests/read.rs` | Add | x |\n\n## 9. Test Mapping\n\n| Requirement | Test | File | Input | Expected |\n\
             |---|---|---|---|---|\n| REQ-1 | reads_three | `tests/read.rs` | - | 3 |\n",
        ),
        part,
    )
}

#[test]
fn name_of_a_test_is_found_as_a_word_and_a_plain_word_only_in_backticks() {
    let names = ["adds", "adds_up", "TestSum", "sums two numbers", "tests/new.rs"];
    for (text, name) in [
        ("Drop `adds`.", Some("adds")),
        ("Drop adds_up, please", Some("adds_up")),
        ("and `TestSum()`", Some("TestSum")),
        ("what sums two numbers checks", Some("sums two numbers")),
        ("move tests/new.rs away", Some("tests/new.rs")),
        ("It adds too much in the latest contest.", None),
        ("adds_upper, test_adds_up, MyTestSum", None),
        ("tests/new.rst", None),
        ("The tests are fine.", None),
    ] {
        assert_eq!(find_named(text, names), name, "{text}");
    }
}

#[test]
fn test_files_and_test_runner_configs_belong_to_the_tests_section() {
    let of = |path: &str| {
        let files = format!(
            "## 2. Files to Implement\n\n| File | Change | Purpose |\n|---|---|---|\n| `{path}` | Add | x |\n"
        );
        ChangeScope::from_spec(&spec::parse(&files), ChangeSection::Code).tests.contains(path)
    };
    let of_tests = "a/main_test.go a/test_a.py a/a_test.py web/a.test.ts web/a.spec.jsx pytest.ini web/jest.config.js \
                    vitest.config.mts conftest.py a/testdata/in.txt";
    assert!(of_tests.split_whitespace().all(of));
    let code =
        "src/spec.rs src/latest.go src/contest.py a/testing.py web/test-run.ts web/config.ts pyproject.toml";
    assert!(!code.split_whitespace().any(of));
}

const TESTS: &str = "## Tests\n\n### `tests/read.rs` (Add)\n\nProves: REQ-1\nGuards: `old_one`\n\n```rust\n#[test]\nfn reads_three() {\n    \
     assert_eq!(sample::read(), 3);\n}\n```";

/// Returns a change without mistakes.
fn sound_change() -> String {
    format!(
        "# 42 - Change: Read a file\n\nIt reads.\n\n{TESTS}\n\n## Code\n\n### `src/lib.rs` (Modify)\n\n```rust\n<<<<<<< SEARCH\n\
         mod old;\n=======\nmod new;\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\n    0\n=======\n    new::three()\n>>>>>>> REPLACE\n```\n\n\
         ### `src/new.rs` (Add)\n\n```rust\npub fn three() -> u8 {{\n    3\n}}\n```\n\n### `src/old.rs` (Delete)\n\n## Documents\n\n\
         ### `README.md` (Modify)\n\n````markdown\n# Sample\n\n```sh\nread\n```\n````\n"
    )
}

fn check_text(text: &str) -> Vec<DocumentMistake> {
    check(text, ISSUE, &allowed_scope(ChangeSection::Code), &base_files(), &ChangeTestTree)
}

#[test]
fn files_beyond_scope_returns_only_files_that_a_person_is_able_to_allow() {
    let allowed = ChangeScope { files: BTreeMap::new(), ..allowed_scope(ChangeSection::Code) };
    let found = |paths: &[(&str, &str)]| {
        let files = paths.iter().map(|(path, kind)| format!("### `{path}` ({kind})\n\n```text\nx\n```\n\n"));
        let text = format!("# 42 - Change: X\n\nX.\n\n## Code\n\n{}", files.collect::<String>());
        files_beyond_scope(&parse(&text), &allowed, &ChangeTestTree)
    };
    assert_eq!(found(&[("src/new.rs", "Add"), ("src/lib.rs", "Modify")]), ["src/new.rs", "src/lib.rs"]);
    for path in [
        "../new.rs",
        "/etc/passwd",
        ".git/hooks/x",
        "CODEOWNERS",
        "docs/CodeOwners",
        ".github/countersign.toml",
        ".github/workflows/ci.yml",
        "away/x.rs",
        "SRC/x.rs",
        "src/lib.rs/x",
        "run.sh",
        "build.rs",
        "scripts/x",
        "tests/new.rs",
        "sum_test.go",
        "src/sum.test.ts",
        "src/test_sum.py",
        "lib/sum_spec.rb",
        "src/SumTest.java",
        "src/x.",
        "src/a b.rs",
        "src/ä.rs",
        "src/@x.rs",
        "x`/approve.rs",
    ] {
        assert_eq!(found(&[(path, "Add")]), Vec::<String>::new(), "{path}");
        let text = format!("# 42 - Change: X\n\nX.\n\n## Code\n\n### `{path}` (Add)\n\n```text\nx\n```\n");
        let mistakes = check(&text, ISSUE, &allowed, &base_files(), &ChangeTestTree);
        assert!(
            !mistakes.iter().any(|mistake| mistake.message.contains("people are asked after the last draft")),
            "{mistakes:?}"
        );
    }
    assert_eq!(found(&[("src/latest.rs", "Add"), ("src/inspect.rs", "Add")]).len(), 2);
    assert_eq!(found(&[("src/lib.rs", "Delete")]), Vec::<String>::new());
    let many: Vec<String> = (0..6).map(|n| format!("src/n{n}.rs")).collect();
    assert!(found(&many.iter().map(|path| (path.as_str(), "Add")).collect::<Vec<_>>()).is_empty());
}

#[test]
fn test_file_added_after_tests_are_locked_is_not_reported_as_a_replaced_test() {
    let joined = "### `tests/joined.rs` (Add)\n\nProves: REQ-1\n\n```rust\nfn full() {}\n```\n\n";
    let locked = TESTS.to_owned() + "\n" + joined;
    let with = |tests: &str| fix(&sound_change(), ISSUE, tests_section(tests));
    for same in [&locked, TESTS] {
        assert_eq!(replaced_tests(&with(same), &locked, &["tests/joined.rs"]), None);
    }
    let others =
        replaced_tests(&with(&locked.replace("reads_three", "reads_four")), &locked, &["tests/joined.rs"]);
    let others = others.unwrap();
    assert!(others.contains("reads_four") && !others.contains("joined"), "{others}");
}

#[test]
fn valid_change_is_parsed_checked_and_applied() {
    let text = sound_change();
    assert_eq!(check_text(&text), []);
    assert_eq!(fix(&text, ISSUE, None), text);
    let change = parse(&text);
    assert_eq!((change.number, change.title.as_str()), (Some(42), "Read a file"));
    let tests: Vec<_> = change.files_in(ChangeSection::Tests).collect();
    assert_eq!(
        (&tests[0].proves, &tests[0].guards),
        (&vec!["REQ-1".to_owned()], &vec!["old_one".to_owned()])
    );
    let files = apply(&change, &base_files()).unwrap();
    let made = |path: &str| files.iter().find(|(known, _)| known == path).unwrap().1.as_deref();
    assert_eq!(made("src/lib.rs"), Some("mod new;\n\npub fn read() -> u8 {\n    new::three()\n}\n"));
    assert_eq!(made("src/old.rs"), None);
    assert_eq!(made("README.md"), Some("# Sample\n\n```sh\nread\n```\n"));
    let diff = unified_diff(&change.files, &base_files());
    for part in [
        "--- /dev/null\n+++ b/tests/read.rs\n@@ -0,0 +1,4 @@\n+#[test]\n",
        "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,5 +1,5 @@\n-mod old;\n+mod new;\n",
        "--- a/src/old.rs\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-// old\n",
    ] {
        assert!(diff.contains(part), "{diff}");
    }
    assert_eq!(file_paths(&text), ["README.md", "src/lib.rs", "src/new.rs", "src/old.rs", "tests/read.rs"]);
    assert!(summary(&text).starts_with("It reads.\n\nTests: Add `tests/read.rs`.\n"), "{}", summary(&text));
}

/// Removes a file's code block, as if the drafter had already written the file with a tool.
fn without_block(text: &str, path: &str) -> String {
    let change = parse(text);
    let file = change.files.iter().find(|file| file.path == path).unwrap();
    let (block, _) = file.block.clone().unwrap();
    format!("{}{}", &text[..block.start], &text[block.end..])
}

#[test]
fn files_written_in_the_workspace_are_validated_and_merged_into_the_response() {
    let mut workspace = Workspace::new(allowed_scope(ChangeSection::Code), base_files(), TESTS);
    assert!(workspace.file_text("tests/read.rs").flatten().is_some_and(|text| text.contains("reads_three")));
    for (path, block, why) in [
        ("tests/read.rs", "", "`tests/read.rs` is a file of the tests, which are locked; leave it out"),
        ("src/stray.rs", "", "`src/stray.rs` is not in the approved spec; leave it out"),
        (".github/CODEOWNERS", "* @me\n", "says who owns the code, which only people change"),
        (".github/countersign.toml", "", "holds the settings of this bot"),
        ("../outside.rs", "", "`../outside.rs` "),
        ("/etc/passwd", "", "`/etc/passwd` "),
        (".git/config", "", "`.git/config` "),
        ("away/x.rs", "", "is or lies below a link"),
        ("SRC/new.rs", "", "differs from another path only by case"),
        ("src/old.rs", "// new\n", "`src/old.rs` is Delete in the approved spec; write the same"),
        ("src/lib.rs", "<<<<<<< SEARCH\nfn none\n=======\n>>>>>>> REPLACE\n", "that does not match"),
        ("src/lib.rs", &base_files()["src/lib.rs"], "stays as it is"),
        ("src/new.rs", &"x".repeat(1_000_001), "1000002 bytes; 1000000 are allowed"),
    ] {
        let error = workspace.write_file(path, block, &ChangeTestTree).unwrap_err();
        assert!(error.contains(why), "{path}: {error}");
    }
    assert!(workspace.written_files().is_empty());
    // A search runs on the text as written so far.
    let text = sound_change();
    workspace
        .write_file(
            "src/lib.rs",
            "<<<<<<< SEARCH\nmod old;\n=======\nmod older;\n>>>>>>> REPLACE\n",
            &ChangeTestTree,
        )
        .unwrap();
    let again = "<<<<<<< SEARCH\nmod older;\n=======\nmod new;\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\n    0\n=======\n    \
                 new::three()\n>>>>>>> REPLACE\n";
    workspace.write_file("src/lib.rs", again, &ChangeTestTree).unwrap();
    workspace.write_file("src/new.rs", "pub fn three() -> u8 {\n    3\n}", &ChangeTestTree).unwrap();
    workspace.write_file("README.md", "# Sample\n\n````sh\nread\n````\n", &ChangeTestTree).unwrap();
    let answer = without_block(&without_block(&text, "src/lib.rs"), "src/new.rs");
    assert!(!check_text(&answer).is_empty());
    let whole = workspace.merge_into_answer(&answer);
    assert_eq!(check_text(&whole), [], "{whole}");
    let files = |text: &str| apply(&parse(text), &base_files()).unwrap();
    assert_eq!(files(&whole), files(&text), "a block of the answer counts");
    // A file that the answer leaves out goes where it belongs, and the checks still find its mistakes.
    let nothing =
        workspace.merge_into_answer(&format!("# 42 - Change: Read a file\n\nIt reads.\n\n{TESTS}\n"));
    let wrong: Vec<_> = check_text(&nothing).into_iter().map(|mistake| mistake.message).collect();
    assert_eq!(wrong, ["`src/old.rs` of the approved spec is missing; add ``### `src/old.rs` (Delete)``"]);
    // If one edit of a draft does not apply, the rest of the draft stays usable.
    let broken = text.replace("mod old;\n=======", "mod none;\n=======");
    let mut after = Workspace::new(allowed_scope(ChangeSection::Code), base_files(), &broken);
    assert!(after.file_text("src/lib.rs").is_none() && after.file_text("src/new.rs").is_some(), "{broken}");
    let error = after.write_file("README.md", &"x\n".repeat(200_000), &ChangeTestTree).unwrap_err();
    assert!(error.contains("longer than the 256 KB") && after.written_files().is_empty(), "{error}");
    let revised = workspace.merge_into_draft(&text);
    assert!(revised.contains("`````markdown\n# Sample\n\n````sh\n"), "{revised}");
    assert_eq!(check_text(&revised), []);
    assert!(
        Workspace::new(allowed_scope(ChangeSection::Tests), base_files(), "")
            .write_file("src/new.rs", "", &ChangeTestTree)
            .is_err()
    );
}

#[test]
fn long_existing_file_can_only_be_changed_by_search_and_replace() {
    let line = |n: usize| format!("line {}\r\n", n % 7);
    let long: String = (0..400).map(line).collect();
    let mut base = base_files();
    base.insert("src/lib.rs".to_owned(), long.clone());
    let mut workspace = Workspace::new(allowed_scope(ChangeSection::Code), base.clone(), "");
    let whole = workspace.write_file("src/lib.rs", "short\n", &ChangeTestTree).unwrap_err();
    assert!(whole.contains("has 400 lines; change it by `<<<<<<< SEARCH`"), "{whole}");
    // The lines repeat, so each search must be long enough to match once.
    let lines = |from: usize, to: usize| (from..to).map(|n| line(n).replace('\r', "")).collect::<String>();
    let edit =
        |from, to, with: &str| format!("<<<<<<< SEARCH\n{}=======\n{with}>>>>>>> REPLACE\n", lines(from, to));
    workspace
        .write_file("src/lib.rs", &edit(0, 400, &format!("first\n{}last\n", lines(1, 399))), &ChangeTestTree)
        .unwrap();
    let middle = "<<<<<<< SEARCH\nlast\n=======\nthe last\n>>>>>>> REPLACE\n";
    workspace.write_file("src/lib.rs", middle, &ChangeTestTree).unwrap();
    let text = workspace.merge_into_answer("# 42 - Change: Read\n\n## Code\n\n### `src/lib.rs` (Modify)\n");
    let made = apply(&parse(&text), &base).unwrap();
    let wanted = format!("first\r\n{}the last\r\n", &long[line(0).len()..long.len() - line(0).len()]);
    assert_eq!(made, [("src/lib.rs".to_owned(), Some(wanted))], "{text}");
    assert!(text.lines().count() < 60 || text.contains("SEARCH"), "{text}");
}

#[test]
fn spec_that_cannot_be_implemented_is_reported_with_the_reason() {
    let spec = |files: &str, row: &str| {
        let text = format!(
            "# 42 - Implementation: Read\n\n## 2. Files to Implement\n\n| File | Change Type | Description |\n|---|---|---|\n{files}\n\
             | `tests/read.rs` | Add | x |\n\n## 9. Test Mapping\n\n| Requirement | Test | File | Input | Expected |\n|---|---|---|---|---|\n{row}\n"
        );
        unbuildable_reason(&ChangeScope::from_spec(&spec::parse(&text), ChangeSection::Code), &ChangeTestTree)
            .unwrap_or_default()
    };
    const ROW: &str = "| REQ-1 | reads | `tests/read.rs` | - | 3 |";
    assert_eq!(spec("| `src/lib.rs` | Modify | x |", ROW), "");
    assert_eq!(spec("| `run.sh` | Delete | x |", ROW), "");
    for (files, row, why) in [
        ("| `src/a.rs` | Add | x |\n| `src/A.rs` | Add | x |", ROW, "differs from another path only by case"),
        ("| `.github/CODEOWNERS` | Add | x |", ROW, "owns the code"),
        ("| `run.sh` | Modify | x |", ROW, "`run.sh` is executable"),
        (
            "| `src/lib.rs` | Modify | x |",
            "| REQ-1 | reads | `tests/other.rs` | - | 3 |",
            "neither adds nor modifies",
        ),
        ("| `src/lib.rs` | Modify | x |", &format!("{ROW}\n{ROW}"), "stands in two rows"),
        ("| `src/lib.rs` | Modify | x |", "", "asks for no test"),
        (
            "| `.github/workflows/ci.yml` | Add | x |",
            "| REQ-1 | reads | `.github/workflows/ci.yml` | - | 3 |",
            "never committed",
        ),
    ] {
        assert!(spec(files, row).contains(why), "{files} {row}: {}", spec(files, row));
    }
}

#[test]
fn files_executed_by_builds_or_ci_are_recognized_by_name() {
    for path in [
        "build.rs",
        "a/Cargo.toml",
        ".github/x.yml",
        "a/.cargo/config.toml",
        "Makefile",
        "ci/run.sh",
        "Dockerfile.dev",
        "go.sum",
        "web/package-lock.json",
        "requirements-dev.txt",
        "ci/run",
        "rust-toolchain",
    ] {
        assert!(is_executed(path), "{path}");
    }
    for path in ["src/lib.rs", "tests/new.rs", "docs/build.md", "a/package.json.md", "README.md"] {
        assert!(!is_executed(path), "{path}");
    }
}

#[test]
fn change_with_only_tests_is_accepted_and_locked_tests_are_restored() {
    let first = format!("# 42 - Change: Read\n\nTests.\n\n{TESTS}\n");
    assert_eq!(
        check(&first, ISSUE, &allowed_scope(ChangeSection::Tests), &base_files(), &ChangeTestTree),
        []
    );
    assert!(
        check_text(&first).iter().all(|mistake| mistake.rule == "files.missing"),
        "the code is missing yet"
    );
    let locked = tests_section(&first).unwrap();
    assert_eq!(locked, TESTS);
    let text = sound_change();
    let (without, with) = (text.replace(&format!("{TESTS}\n\n"), ""), text.clone());
    for theirs in [
        with.as_str(),
        without.as_str(),
        &with.replace("read(), 3", "read(), 0"),
        &format!("{with}\n## tests\n\n### `tests/read.rs` (Delete)\n"),
        &without.replace("## Code", "## Code\n\n```\n\n## Tests\n\n### `src/x` (Delete)\n\n```"),
    ] {
        let fixed = fix(theirs, ISSUE, Some(locked));
        assert_eq!(tests_section(&fixed), Some(TESTS), "{fixed}");
        assert_eq!(
            parse(&fixed).sections.iter().filter(|(part, _)| *part == ChangeSection::Tests).count(),
            1,
            "{fixed}"
        );
        assert_eq!(fix(&fixed, ISSUE, Some(locked)), fixed, "twice is once");
    }
    assert_eq!(fix(&without, ISSUE, Some(locked)), text);
}

#[test]
fn fix_function_corrects_unambiguous_format_mistakes_in_a_change() {
    let text = sound_change();
    let worn = text
        .replace("# 42 - Change: Read a file", "Here it is:\n\n# Read a file")
        .replace("````markdown", "```markdown")
        .replace("````\n", "```\n")
        .replace("### `src/new.rs` (Add)", "### src/new.rs (add)")
        .replace('\n', "\r\n");
    let wrapped = format!("```markdown\n{}```\n", worn.trim_start_matches("Here it is:\r\n\r\n"));
    for worn in [worn, wrapped] {
        let fixed = fix(&worn, ISSUE, None);
        assert_eq!(fixed, text, "{fixed}");
    }
}

#[test]
fn hostile_paths_are_refused() {
    for (path, why) in [
        ("../x", "`..`"),
        ("/etc/passwd", "absolute"),
        ("C:x", "absolute"),
        ("a\\b", "backslash"),
        ("a//b", "`//`"),
        ("./a", "`.`"),
        (".git/config", "`.git`"),
        ("a/.GIT/x", "`.git`"),
        ("git~1/x", "`.git`"),
        (".gI\u{200c}t/x", "invisible"),
        (".git::$DATA", "`.git`"),
        ("a\u{202e}b", "invisible"),
        ("src/", "folder"),
        ("away/x", "link"),
        ("away", "link"),
        ("vendor/module/x", "link"),
        ("src", "file and a folder"),
        ("src/lib.rs/x", "file and a folder"),
        ("SRC/x.rs", "case"),
        ("readme.md", "case"),
        ("docs/STRASSE/x", "case"),
        ("docs/Straße/e\u{301}.md", "case"),
        ("tests/READ.rs", "case"),
        ("tests/read.rs/x", "lies below"),
        ("tests/read.rs", "two headings"),
        ("CODEOWNERS", "owns"),
        ("docs/codeowners", "owns"),
        (".github/countersign.toml", "settings"),
        (".GitHub/Countersign/x", "settings"),
        (".github/workflows/ci.yml", "not in the approved spec"),
        ("src/other.rs", "not in the approved spec"),
    ] {
        let text =
            sound_change().replace("## Code\n", &format!("## Code\n\n### `{path}` (Add)\n\n```\nx\n```\n"));
        let mistakes = check_text(&text);
        let shown = quotable_path(path);
        let found =
            mistakes.iter().any(|m| m.is_error() && m.message.contains(&shown) && m.message.contains(why));
        assert!(found, "{path}: {mistakes:#?}");
    }
}

#[test]
fn invalid_search_replace_block_is_reported_with_path_and_reason() {
    let edit =
        |search: &str, replace: &str| format!("<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n");
    for (block, why) in [
        (edit("    0\n", "    0\n"), "stays as it is"),
        (edit("    1\n", "    2\n"), "the file has no line `1`"),
        (edit("mod old;\n    0\n", ""), "not in one piece"),
        (edit("", "x\n"), "nothing in it"),
        (edit("    0\n", "a\n=======\nb\n"), "two lines `=======`"),
        (edit("    0\n", "1\n") + &edit("    0\n}\n", "2\n"), "for the same line"),
        ("<<<<<<< SEARCH\n    0\n=======\n".into(), "no `>>>>>>> REPLACE` ends"),
        ("<<<<<<< SEARCH\n<<<<<<< SEARCH\n".into(), "SEARCH within a SEARCH"),
        (edit("    0\n", "1\n") + "and more\n", "text outside"),
        (base_files()["src/lib.rs"].clone(), "stays as it is"),
        ("a\u{0}b\n".into(), "control character"),
        ("a\u{200b}b\n".into(), "invisible"),
    ] {
        let text = format!(
            "# 42 - Change: T\n\nS.\n\n{TESTS}\n\n## Code\n\n### `src/lib.rs` (Modify)\n\n```\n{block}```\n"
        );
        let mistakes = check_text(&text);
        assert!(mistakes.iter().any(|mistake| mistake.message.contains(why)), "{why}: {mistakes:#?}");
    }
    let text = sound_change();
    for (from, to, why) in [
        ("`src/new.rs` (Add)", "`src/new.rs` (Modify)", "`src/new.rs` is not there"),
        ("`src/lib.rs` (Modify)", "`src/lib.rs` (Add)", "in a file that is not modified"),
        ("`src/old.rs` (Delete)\n", "`src/old.rs` (Delete)\n\n```\nx\n```\n", "is deleted, and has a block"),
        ("### `src/old.rs` (Delete)\n", "", "`src/old.rs` of the approved spec is missing"),
        ("`src/old.rs` (Delete)", "`src/old.rs` (Modify)", "`src/old.rs` is Delete in the approved spec"),
        ("## Code", "## Other", "stands in no section"),
        ("## Documents", "## Code", "stands here twice"),
        ("## Documents", "## Tests", "is not a file of the tests"),
        ("Proves: REQ-1\n", "", "no test says that it shows REQ-1"),
        ("Proves: REQ-1", "Proves: REQ-1, REQ-9", "REQ-9 is shown by no test"),
        ("fn reads_three", "fn reads_threes", "has no test `reads_three`"),
        ("It reads.\n", "", "no summary"),
        ("# 42 -", "# 41 -", "the first line must be"),
        ("It reads.", "It reads.\n\n```\nof a block without an end", "not what Markdown makes of it"),
        ("```rust\npub fn three", "~~~\npub fn three", "not what Markdown makes of it"),
        ("It reads.", "It reads.<!-- not seen -->", "readers do not see"),
        ("It reads.", "It [reads](https://e 'not seen').", "the title of a link"),
    ] {
        let mistakes = check_text(&text.replace(from, to));
        assert!(mistakes.iter().any(|mistake| mistake.message.contains(why)), "{why}: {mistakes:#?}");
    }
}

#[test]
fn edited_file_keeps_its_line_endings_and_byte_order_mark() {
    let change = |body: &str| parse(&format!("## Code\n### `f` (Modify)\n```\n{body}\n```\n"));
    let edit = "<<<<<<< SEARCH\ntwo\n=======\n2\nii\n>>>>>>> REPLACE";
    for (before, body, after) in [
        ("one\r\ntwo\r\nthree\r\n", edit, "one\r\n2\r\nii\r\nthree\r\n"),
        ("one\r\ntwo", edit, "one\r\n2\r\nii"),
        ("\u{feff}two\nthree", edit, "\u{feff}2\nii\nthree"),
        ("one\ntwo", "<<<<<<< SEARCH\ntwo\n=======\n>>>>>>> REPLACE", "one"),
        ("one\r\nand\ntwo\n", edit, "one\r\nand\n2\r\nii\r\n"),
        ("\u{feff}a\r\n", "b\nc", "\u{feff}b\r\nc\r\n"),
        ("a\n", "b\r\nc", "b\nc\n"),
    ] {
        let base = BTreeMap::from([("f".to_owned(), before.to_owned())]);
        assert_eq!(
            apply(&change(body), &base).unwrap(),
            [("f".to_owned(), Some(after.to_owned()))],
            "{before:?}"
        );
    }
    let twice = BTreeMap::from([("f".to_owned(), "two\ntwo\n".to_owned())]);
    assert!(apply(&change(edit), &twice).unwrap_err()[0].message.contains("stands there 2 times"));
    let long = BTreeMap::from([("f".to_owned(), "x\n".repeat(WHOLE_LINES + 1))]);
    assert!(apply(&change("y"), &long).unwrap_err()[0].message.contains("not as a whole"));
}

#[test]
fn oversized_change_is_reported_with_at_most_100_mistakes() {
    let many: String = (0..10_000).map(|n| format!("### `f{n}` (Add)\n")).collect();
    let fences = format!("### `f` (Modify)\n{}", "```\n```rust\n".repeat(9_000));
    let edits = format!(
        "### `src/lib.rs` (Modify)\n```\n{}```\n",
        "<<<<<<< SEARCH\nx\n=======\n>>>>>>> REPLACE\n".repeat(5_000)
    );
    let open = "### `f` (Add)\n````\n".repeat(10_000);
    for (body, most) in [(many, 1), ("x".repeat(50_000_000), 1), (fences, 100), (edits, 100), (open, 100)] {
        let text = format!("# 42 - Change: T\n\nS.\n\n## Code\n\n{body}");
        assert!((1..=most).contains(&check_text(&text).len()), "{}", &text[..60]);
        if text.len() < 1_000_000 {
            fix(&text, ISSUE, Some(TESTS));
            unified_diff(&parse(&text).files, &base_files());
        }
    }
    // A small text can produce a large file.
    let mut base = base_files();
    base.insert("src/lib.rs".to_owned(), format!("{}end\n", "line\n".repeat(250_000)));
    let text = sound_change()
        .replace("mod old;", "end")
        .replace("<<<<<<< SEARCH\n    0\n=======\n    new::three()\n>>>>>>> REPLACE\n", "");
    let mistakes = check(&text, ISSUE, &allowed_scope(ChangeSection::Code), &base, &ChangeTestTree);
    assert!(mistakes.iter().any(|mistake| mistake.message.contains("1000000 are allowed")), "{mistakes:?}");
    assert!(unified_diff(&parse(&text).files, &base).contains("-line\n"));
}

#[test]
fn finding_place_can_be_a_test_a_requirement_a_section_or_a_file() {
    let text = sound_change();
    for real in [
        "src/lib.rs",
        "`src/new.rs:3`",
        "Tests",
        "## Code",
        "REQ-1",
        "reads_three",
        "tests/read.rs::reads_three",
        "summary",
    ] {
        assert!(place_exists(&text, real, &ChangeTestTree) && unchanged_at(&text, &text, real), "{real}");
    }
    for unreal in ["", "REQ-2", "src/none.rs", "../src/lib.rs", "reads_thre"] {
        assert!(!place_exists(&text, unreal, &ChangeTestTree), "{unreal}");
    }
    assert!(place_exists(&text, "docs/Straße/é.md", &ChangeTestTree));
    let line = line_of(&text, "src/new.rs").unwrap();
    assert_eq!(text.lines().nth(line - 1), Some("### `src/new.rs` (Add)"));
    let now = text.replace("    3\n}", "    4\n}");
    assert!(!unchanged_at(&text, &now, "src/new.rs") && unchanged_at(&text, &now, "src/lib.rs"));
}

#[test]
fn change_format_rules_name_their_section_and_contain_a_valid_example_edit() {
    let (tests, code) = (format_rules(ChangeSection::Tests), format_rules(ChangeSection::Code));
    assert!(tests.contains("`## Tests`") && tests.contains("Proves: REQ-1") && tests.contains("Guards: "));
    assert!(code.contains("`## Code`") && code.contains("is locked") && !code.contains("Proves:"));
    let block = code.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let change = parse(&format!("## Code\n### `f` (Modify)\n```\n{block}```\n"));
    assert!(matches!(&change.files[0].body, FileChangeBody::Edits(edits) if edits.len() == 1), "{change:?}");
}

fn adversarial_test(path: &str, requirement: &str, text: &str) -> adversarial::AdversarialTestFile {
    let (path, requirement, text) = (path.to_owned(), requirement.to_owned(), text.to_owned());
    adversarial::AdversarialTestFile { path, name: "t".into(), requirement, why: "It may.".into(), text }
}

#[test]
fn adversarial_tests_are_added_to_tests_section() {
    let fences =
        "#[test]\nfn t() {\n    // ````\n    // ### `src/x.rs` (Add)\n    assert!(f() > 1);\n}\n\n## Code\n";
    let tests = [
        adversarial_test("tests/a.rs", "REQ-1", fences),
        adversarial_test("tests/b.rs", "REQ-1", "#[test]\nfn b() {}\n"),
    ];
    let text = adversarial::with_adversarial_tests(&sound_change(), &tests, &base_files());
    let (before, change) = (parse(&sound_change()), parse(&text));
    let of_tests = |change: &ParsedChange| {
        change.files_in(ChangeSection::Tests).map(|file| file.path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of_tests(&change), ["tests/read.rs", "tests/a.rs", "tests/b.rs"]);
    assert_eq!(change.files_in(ChangeSection::Code).count(), before.files_in(ChangeSection::Code).count());
    assert_eq!(change.files[1].body, FileChangeBody::Whole(fences.to_owned()));
    let allowed = allowed_scope(ChangeSection::Code);
    assert!(
        !check(&text, ISSUE, &allowed, &base_files(), &ChangeTestTree).is_empty(),
        "they are none of the spec's"
    );
    assert_eq!(check(&text, ISSUE, &allowed.with_tests(&change), &base_files(), &ChangeTestTree), []);
    // If the drafter rewrites the tests, the locked ones replace them.
    let locked = tests_section(&text).unwrap();
    assert_eq!(fix(&sound_change(), ISSUE, Some(locked)).trim(), text.trim());
}

#[test]
fn adversarial_test_is_added_to_the_end_of_its_file_or_module() {
    let test = "#[test]\nfn t() {\n    assert!(f() > 1);\n}\n";
    let text = adversarial::with_adversarial_tests(
        &sound_change(),
        &[adversarial_test("tests/read.rs", "REQ-1", test)],
        &base_files(),
    );
    let change = parse(&text);
    assert_eq!(change.files.len(), parse(&sound_change()).files.len());
    assert!(change.files[0].new_text().ends_with(&format!("\n\n{test}")), "{text}");
    let source = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n";
    let change = "## Tests\n\n### `src/f.rs` (Modify)\n\n```\n<<<<<<< SEARCH\n    fn a() {}\n=======\n    fn a() {\n        \
                  f();\n    }\n>>>>>>> REPLACE\n```\n";
    let base = BTreeMap::from([("src/f.rs".to_owned(), source.to_owned())]);
    let long = "#[test]\nfn t() {\n    assert_eq!(g(), \"a\nb\");\n}\n";
    for (test, expected) in
        [(test, "    #[test]\n    fn t() {\n        assert!(f() > 1);\n    }\n"), (long, long)]
    {
        let tests = [adversarial_test("src/f.rs", "REQ-1", test)];
        let text = adversarial::with_adversarial_tests(change, &tests, &base);
        let files = apply(&parse(&text), &base).unwrap();
        let made = files[0].1.as_deref().unwrap();
        assert!(made.ends_with(&format!("        f();\n    }}\n\n{expected}}}\n")), "{made}");
        assert_eq!(parse(&text).files[0].proves, ["REQ-1"]);
    }
}

#[test]
fn adversarial_test_must_be_next_to_other_tests_and_name_a_requirement() {
    let allowed = allowed_scope(ChangeSection::Code);
    for (path, requirement, why) in [
        ("tests/a.rs", "REQ-1", None),
        ("tests/a.rs", "REQ-2", Some("requirement")),
        ("tests/a.rs", "", Some("requirement")),
        ("tests/read.rs", "REQ-1", None),
        ("src/a.rs", "REQ-1", Some("next to")),
        ("tests/../src/a.rs", "REQ-1", Some("next to")),
        ("/tests/a.rs", "REQ-1", Some("next to")),
        ("tests/deep/a.rs", "REQ-1", Some("next to")),
        ("tests/a.py", "REQ-1", Some("next to")),
        ("tests/build.rs", "REQ-1", Some("next to")),
    ] {
        let reason = adversarial_test(path, requirement, "x\n").refusal_reason(&allowed);
        assert_eq!(reason.is_some(), why.is_some(), "{path} {requirement}: {reason:?}");
        assert!(why.is_none_or(|why| reason.unwrap().contains(why)), "{path} {requirement}: {reason:?}");
    }
    // A path with markup cannot smuggle in a second file.
    let path = "tests/a.rs` (Add)\n\n## Code\n\n### `build.rs";
    let tests = [adversarial_test(path, "REQ-1", "x\n")];
    let text = adversarial::with_adversarial_tests(&sound_change(), &tests, &base_files());
    assert!(parse(&text).files.iter().all(|file| file.path != path));
}

#[test]
fn invalid_or_surplus_tests_in_an_adversarial_response_are_dropped() {
    let one = |text: &str| serde_json::json!({ "path": " tests/a.rs", "name": "t", "requirement": "req-1", "why": "w", "text": text });
    let read = |tests: Vec<serde_json::Value>| {
        let (tests, beyond) =
            adversarial::parse_answer(&serde_json::json!({ "tests": tests }).to_string()).unwrap();
        (tests.len(), beyond)
    };
    assert_eq!(read(vec![one("x"); 7]), (5, 2));
    let mut long = one("x");
    long["path"] = serde_json::json!(format!("tests/{}.rs", "a".repeat(300)));
    assert_eq!(read(vec![long]), (0, 1));
    for (field, word) in
        [("path", "../a.rs"), ("path", "tests/`.rs"), ("name", "t\nApprove."), ("name", "t` **t**")]
    {
        let mut marked = one("x");
        marked[field] = serde_json::json!(word);
        assert_eq!(read(vec![marked]), (0, 1), "{word}");
    }
    assert_eq!(read(vec![one(""), one(&"x".repeat(9_000)), one("x")]), (1, 2));
    let (tests, _) =
        adversarial::parse_answer(&serde_json::json!({ "tests": [one("a\r\nb")] }).to_string()).unwrap();
    assert_eq!(
        (tests[0].path.as_str(), tests[0].requirement.as_str(), tests[0].text.as_str()),
        ("tests/a.rs", "REQ-1", "a\nb\n")
    );
    for none in [
        "",
        "[]",
        "{}",
        "None.",
        "{\"tests\": {}}",
        "{\"tests\": [], \"nonce\": 1}",
        "{\"tests\": [{\"path\": 1}]}",
    ] {
        assert_eq!(adversarial::parse_answer(none), None, "{none}");
    }
}

#[test]
fn stub_of_a_spec_function_is_written_to_the_file_named_in_its_comment() {
    let blocks = [
        "// src/new.rs\n/// Three.\npub struct Three;\n\npub fn three(\n    at: u8,\n) -> Three;\n// src/lib.rs\npub fn read() -> u8\n\
         pub fn write(to: &str) { … }\n",
        "pub fn nowhere()\n",
        "// src/unknown.rs\npub fn unknown()\n",
    ];
    let blocks = blocks.map(str::to_owned);
    let files: BTreeMap<String, Option<String>> =
        make_stubs(&blocks, &allowed_scope(ChangeSection::Code), &base_files()).into_iter().collect();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["src/lib.rs", "src/new.rs"]);
    let body = "{ todo!(\"stub of the specification\") }";
    assert_eq!(
        files["src/new.rs"].as_deref().unwrap(),
        format!("\n/// Three.\npub struct Three;\n\npub fn three(\n    at: u8,\n) -> Three {body}\n")
    );
    let lib = &base_files()["src/lib.rs"];
    let expected = format!("{lib}\npub fn write(to: &str) {body}\n\npub mod new;\n");
    assert_eq!(files["src/lib.rs"].as_deref().unwrap(), expected);
    assert_eq!(make_stubs(&[], &allowed_scope(ChangeSection::Code), &base_files()), []);
    // A function declared twice gets one stub, and a module line does not remove the root's own stub.
    let text = stubbed_files(&[
        "// src/a.rs\npub fn a()\n// src/lib.rs\npub fn b()\n",
        "// src/a.rs\npub fn a();\n",
    ]);
    assert_eq!(text["src/a.rs"].matches("pub fn a()").count(), 1, "{text:?}");
    let root = &text["src/lib.rs"];
    assert!(root.contains("\npub mod a;\n") && root.contains("\npub fn b() {"), "{root}");
    let text = stubbed_files(&["// sums/sum.go\nfunc Sum(a, b int) int\n// sums/old.go\nfunc Old()\n"]);
    assert_eq!(text["sums/sum.go"], "package added\n\nfunc Sum(a, b int) (_ int) { return }\n");
    for (declared, results) in [
        ("", "{}"),
        ("(int, error)", "(_ int, _ error) { return }"),
        ("(n int, err error)", "(n int, err error) { return }"),
        ("(a, b int)", "(a, b int) { return }"),
        ("(map[string]int, chan int)", "(_ map[string]int, _ chan int) { return }"),
        ("func(a, b int) (int, error)", "(_ func(a, b int) (int, error)) { return }"),
    ] {
        let text = stubbed_files(&[&format!("// sums/sum.go\nfunc F(a func(int) int) {declared}\n")]);
        let whole = format!("package added\n\nfunc F(a func(int) int) {results}\n");
        assert_eq!(text["sums/sum.go"], whole, "{declared}");
    }
    // Some blanks are longer than one byte.
    let text = stubbed_files(&["// sums/sum.go\nfunc F() (int)\u{a0}\nfunc G() (int)\t\n"]);
    assert_eq!(text["sums/sum.go"].matches("(_ int) { return }").count(), 2, "{text:?}");
    assert!(!text.contains_key("sums/old.go"), "it is there already");
    let text = stubbed_files(&["// tests/new.rs\nfn helper()\n// src/gone.rs\npub fn gone()\n"]);
    assert!(text.is_empty(), "{text:?}");
}

/// Returns the stubs made in a repository with Rust and Go files.
fn stubbed_files(blocks: &[&str]) -> BTreeMap<String, String> {
    let base = [("src/lib.rs", "//! Sums.\n"), ("sums/old.go", "package added\n\nfunc Old() {}\n")];
    let base: BTreeMap<String, String> = base.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let files = [
        ("src/a.rs", Kind::Add),
        ("src/lib.rs", Kind::Modify),
        ("sums/sum.go", Kind::Add),
        ("sums/old.go", Kind::Modify),
        ("tests/new.rs", Kind::Add),
        ("src/gone.rs", Kind::Delete),
    ];
    let files = files.map(|(path, kind)| (path.to_owned(), kind)).into();
    let allowed = ChangeScope {
        files,
        tests: ["tests/new.rs".to_owned()].into(),
        ..allowed_scope(ChangeSection::Code)
    };
    let blocks: Vec<String> = blocks.iter().map(|block| (*block).to_owned()).collect();
    make_stubs(&blocks, &allowed, &base).into_iter().map(|(path, text)| (path, text.unwrap())).collect()
}

#[test]
fn tests_and_code_sections_can_both_edit_a_file_with_inline_tests() {
    let base =
        BTreeMap::from([("src/lib.rs".to_owned(), "mod old;\n\n#[cfg(test)]\nmod tests {}\n".to_owned())]);
    let edit = |search: &str, replace: &str| {
        format!(
            "### `src/lib.rs` (Modify)\n\n```rust\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n```\n\n"
        )
    };
    let tests = edit("mod tests {}", "mod tests {\n    #[test]\n    fn reads() {}\n}");
    // The code's searches are made in the file with its tests.
    let code = edit("mod old;", "mod new;") + "### `src/new.rs` (Add)\n\n```rust\nA\n```\n";
    let text = format!("# 42 - Change: X\n\nX.\n\n## Tests\n\n{tests}## Code\n\n{code}");
    let change = parse(&text);
    let made = apply(&change, &base).unwrap();
    let both = "mod new;\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn reads() {}\n}\n";
    assert_eq!(made.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["src/lib.rs", "src/new.rs"]);
    assert_eq!(made[0].1.as_deref(), Some(both));
    let diff = unified_diff(&change.files, &base);
    assert_eq!(
        (
            diff.matches("--- a/src/lib.rs").count(),
            diff.contains("+mod new;"),
            diff.contains("+    fn reads() {}")
        ),
        (1, true, true)
    );
    let scope = |part| {
        let mut scope = allowed_scope(part);
        scope.files.retain(|path, _| path.starts_with("src/lib") || path.starts_with("src/new"));
        scope.tests.clear();
        scope.rows.clear();
        scope
    };
    let mistakes = |part: ChangeSection, text: &str| -> Vec<String> {
        check(text, ISSUE, &scope(part), &base, &ChangeTestTree)
            .iter()
            .map(|mistake| mistake.rule.to_string())
            .collect()
    };
    assert_eq!(mistakes(ChangeSection::Code, &text), [""; 0]);
    assert_eq!(
        mistakes(ChangeSection::Code, &text.replace("## Tests\n", "## Code\n")),
        ["section.twice", "path"]
    );
    // The drafter of code writes to the file with its tests; its answer has the code alone.
    let locked = &text[..text.find("## Code").unwrap()];
    let mut workspace = Workspace::new(scope(ChangeSection::Code), base.clone(), locked);
    assert!(workspace.file_text("src/lib.rs").flatten().unwrap().contains("fn reads"));
    workspace
        .write_file(
            "src/lib.rs",
            "<<<<<<< SEARCH\nmod old;\n=======\nmod new;\n>>>>>>> REPLACE\n",
            &ChangeTestTree,
        )
        .unwrap();
    let answer = workspace.merge_into_answer("# 42 - Change: X\n\nX.\n");
    let whole = fix(&answer, ISSUE, tests_section(locked));
    assert_eq!(apply(&parse(&whole), &base).unwrap()[0].1.as_deref(), Some(both));
}
