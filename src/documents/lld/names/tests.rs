use super::*;
use crate::documents::{FileTree, UnresolvedImport};

/// A repository with a small vocabulary.
pub(in crate::documents) struct NamesTestRepository;

impl FileTree for NamesTestRepository {
    fn is_file(&self, path: &str) -> bool {
        path == "src/a.rs"
    }
    fn is_dir(&self, path: &str) -> bool {
        path == "src"
    }
    fn nearest_paths(&self, path: &str) -> Vec<String> {
        vec![if path.ends_with("moved.rs") { "src/moved.rs" } else { "src/`a\u{202e}\n.rs" }.to_owned()]
    }
}

impl CodebaseLookup for NamesTestRepository {
    fn tree(&self) -> &dyn FileTree {
        self
    }
    fn may_contain(&self, path: &str) -> bool {
        self.is_file(path) || path.starts_with("src/made/")
    }
    fn has_word(&self, word: &str) -> bool {
        matches!(word, "Sheet" | "parse_sheet" | "rows" | "os" | "src") || word.len() < 3
    }
    fn has_read_all(&self) -> bool {
        true
    }
    fn defines_name(&self, name: &str) -> bool {
        name == "Sheet"
    }
    fn closest_name(&self, word: &str) -> Option<String> {
        matches!(word, "parse_shet" | "covert" | "crate").then(|| "parse_sheet (src/a.rs:1)".to_owned())
    }
    fn unresolved_imports(&self, _: &str, code: &str, _: &[&str]) -> Vec<UnresolvedImport> {
        let stray = |module: &str| UnresolvedImport {
            module: module.into(),
            name: module.into(),
            nearest: None,
            is_certain: true,
        };
        code.lines().filter_map(|line| line.strip_prefix("use ")).map(stray).collect()
    }
}

/// Returns the names reported for a design with `text` in Logic Flow and `code` in Function Signatures. Errors are
/// marked with `!`.
fn reported_names(text: &str, code: &str) -> Vec<String> {
    let design = format!(
        "# 1 - Feature: T\n\n## Proposed Changes\n\n### Files Changed\n\n| File | Change Type | Description |\n\
         |---|---|---|\n| `src/a.rs` | Modify | x |\n| `src/new.rs` | Add | holds `Fresh::take_all()` |\n\n\
         ### Function Signatures\n\n```text\n{code}\n```\n\n### Logic Flow\n\n{text}\n\n\
         ## Verification & Testing\n\n`made_up()` in `src/fixture.rs`\n"
    );
    let mark = |mistake: &DocumentMistake| if mistake.is_error() { "!" } else { "" };
    let mistakes = check_names(&design, &NamesTestRepository);
    mistakes.iter().map(|mistake| format!("{}{}", mark(mistake), mistake.about.as_deref().unwrap())).collect()
}

#[test]
fn code_name_is_reported_if_its_last_segment_is_in_no_file() {
    for (text, expected) in [
        ("It calls `parse_all()`.", &["parse_all"][..]),
        ("It calls `Sheet::print()` and `self.lineCount`.", &["print", "lineCount"]),
        ("A `SheetManager` has `SheetManager.open_it()`.", &["SheetManager"]),
        ("It calls `parse_shet(rows)`.", &["!parse_shet"]),
        ("It calls `os.parse_shet()`.", &["parse_shet"]),
        ("The digits are read with the existing helper `read_digits`.", &["read_digits"]),
        ("The private `read_digits` of `src/a.rs` reads them.", &["read_digits"]),
        ("`src/a.rs:12` and `src/a.rs::parse_all` are there.", &["parse_all"]),
        ("```rust\nlet new_one = parse_shet(new_one, parse_all());\n```", &["!parse_shet"]),
    ] {
        assert_eq!(reported_names(text, ""), expected, "{text}");
    }
}

#[test]
fn names_known_from_repository_design_or_other_projects_are_not_reported() {
    let code =
        "pub fn parse_all(deep: Option<LineCount>) -> u8;\nstruct Line { line_count: u8 }\nfn parse_shet();";
    for text in [
        "It calls `parse_sheet()`, `Sheet::rows` and `parse_sheet(x)?`.",
        "It calls `parse_all()`, `Line::print_it()`, `line.line_count` and `parse_shet()`.",
        "`non_exhaustive` is not used; `MAX_DIGITS` and `unit_sec` are as `new_name` in `src/new.rs`.",
        "`Fresh::take_all()` of `src/new.rs` does it.",
        "It adds a helper `parse_zone(text)`, and calls `parse_zone()` before `utcoffset()` and `total_seconds()`.",
        "```python\ndef read_zone(text):\n    return text.toLowerCase()\n```\n\n`read_zone()` and `when.startsWith` are used.",
        "`os.path.join_all()` and `Instant.now_or_never` are others'; `covert`, `crate` and `Words` are no names.",
        "```text\nit is covert // and crate::rows\n```",
        "It says `\"not_found\"`, `--dry_run`, `application/json`, `https://example.com/a_b.html`.",
        "`src/made/api_v2.rs` is made, `/etc/some_file` and `~/.config/x_y` are elsewhere, `src/*/x_y.rs` are many.",
    ] {
        assert_eq!(reported_names(text, code), [""; 0], "{text}");
    }
}

#[test]
fn unresolved_paths_and_imports_are_reported() {
    for (text, expected) in [
        ("`src/b.rs` is read.", &["!src/b.rs"][..]),
        ("`src/deep` is a folder.", &["src/deep"]),
        ("`other/moved.rs` is read, and `other/b.rs`.", &["other/moved.rs"]),
        ("```rust\nuse crate::gone\n```", &["!crate::gone crate::gone"]),
    ] {
        assert_eq!(reported_names(text, ""), expected, "{text}");
    }
}

#[test]
#[ignore = "takes long"]
fn name_check_never_panics_and_its_messages_are_short() {
    use crate::documents::lld::check::tests::hostile_texts;
    let units =
        ["`a_b` ", "`a` ", "`A::b` ", "x", "`src/x.rs`", "\n```rust\nuse a;\n```\n", "\n# 2.5 A\n`a_b`\n"];
    let long = units.map(|unit| format!("## Proposed Changes\n\n{}", unit.repeat(262_144 / unit.len())));
    let design = "# 1 - Feature: x\n\n## Proposed Changes\n\n`src/b.rs` `a_b::éc_d()?.x->y#` in `src/a.rs`\n\n```rust\nuse x;é (: =\n``` \n\n";
    let cut = design.char_indices().map(|(at, _)| design[..at].to_owned());
    for text in hostile_texts().into_iter().chain(long).chain([design.repeat(200)]).chain(cut) {
        let mistakes = check_names(&text, &NamesTestRepository);
        assert!(mistakes.len() <= 3 * NAMED_MISTAKES);
        for mistake in mistakes {
            let message = &mistake.message;
            assert!(message.len() < 1500 && !message.contains(['\n', '\u{202e}']), "{mistake}");
        }
    }
}
