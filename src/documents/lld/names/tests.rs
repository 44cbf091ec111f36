use super::*;
use crate::documents::{Absent, Declares, Meant, Stands, Stray, Tree};

/// A repository that has nothing but one file.
struct Bare;

impl Tree for Bare {
    fn is_file(&self, path: &str) -> bool {
        path == "src/a.rs"
    }
    fn is_dir(&self, path: &str) -> bool {
        path == "src"
    }
    fn nearest(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

impl Repository for Bare {
    fn is_code(&self, path: &str) -> bool {
        path.ends_with(".rs")
    }
    fn may_be_made(&self, path: &str) -> bool {
        path.starts_with("src/made/")
    }
    fn ending_so(&self, path: &str) -> Option<String> {
        path.starts_with("inner/").then(|| format!("outer/{path}"))
    }
    fn symbol(&self, _: Stands<'_>, _: &str) -> Option<Absent> {
        Some(Absent {
            nearest: vec!["`a`\u{202e}\n".repeat(100)],
            closed: true,
            nowhere: true,
            meant: Meant::Slip,
        })
    }
    fn declares(&self, _: &str, _: &str) -> Declares {
        Declares::default()
    }
    fn strays(&self, design: &Design<'_>) -> Vec<(usize, Stray)> {
        let stray =
            |code: &str| Stray { module: code.to_owned(), name: None, nearest: Vec::new(), sure: true };
        design.blocks.iter().enumerate().map(|(at, block)| (at, stray(block.code))).collect()
    }
}

/// The names that are asked about of a design with this text in §2.5 and this code in §2.4.
fn asked(text: &str, code: &str) -> Vec<String> {
    let design = format!(
        "# 1 - Feature: T\n\n## 2. Proposed Changes\n\n### 2.1 Files Changed\n\n| File | Change Type | Description |\n\
         |---|---|---|\n| `src/a.rs` | Modify | x |\n| `src/new.rs` | Add | holds `Fresh::take()` |\n\n\
         ### 2.4 Function Signatures\n\n```text\n{code}\n```\n\n### 2.5 Logic Flow\n\n{text}\n"
    );
    let lld = parse(&design);
    let outline = markdown::outline(&design);
    let claims = Claims::new(&design, &lld, &outline);
    let declared = Declared::of(&claims, &Bare);
    let mut asked: Vec<String> =
        claims.symbols(&declared).iter().map(|claim| claim.name.to_owned()).collect();
    asked.extend(claims.paths().into_iter().map(|(path, _)| path.to_owned()));
    asked.retain(|name| name != "src/a.rs");
    asked
}

#[test]
fn what_is_called_or_read_is_said_to_be_there() {
    for text in [
        "The handler will call `parse_sheet()` in `src/a.rs`.",
        "Adds a call to `parse_sheet()`.",
        "A new flag is passed on to what calls `parse_sheet()` today.",
        "It should be fast: `parse_sheet()` runs once.",
        "This replaces `parse_sheet()`.",
        "`parse_sheet()` in `src/a.rs` will return an error instead of stopping.",
        "Add a row when the existing `parse_sheet()` in `src/a.rs` fails.",
        "1. Such rows go through `parse_sheet()`.",
        "It calls `parse_sheet()`, then a row is added.",
        "It calls `parse_sheet()`, which creates a row.",
        "x\n\n### 2.4 Function Signatures\n\nThe existing `parse_sheet()` gives rows",
    ] {
        assert_eq!(asked(text, ""), ["parse_sheet"], "{text}");
    }
    assert_eq!(
        asked("A new flag in `src/a.rs`, read by `a::load()` and `src/b.rs`.", ""),
        ["a::load", "src/b.rs"]
    );
    assert_eq!(asked("`Config::read()` runs.", "impl Config {\n    fn write(&self);\n}"), ["Config::read"]);
}

#[test]
fn what_is_new_or_doubtful_is_not() {
    for text in [
        "Add `parse_sheet()`.",
        "A new helper function called `parse_sheet()` is there.",
        "Adds `one_two()`, `three_four()` and `parse_sheet()`. Then `parse_sheet()` runs.",
        "`parse_sheet()` is added to `src/a.rs`.",
        "There is no `src/gone.rs`, nor a `parse_sheet()`.",
        "`src/gen/api.rs` is produced by the build.",
        "The build writes `src/gen/api.rs`.",
        "Instead of a separate `SheetManager`, one function.",
        "`load_all()` is renamed to `load_sheet()`, e.g. `parse_sheet()`.",
        "`Fresh::take()` does it.",
        "It calls `parse_sheet()`, a new method, and `parse_line()`, which is added too.",
        "It calls `parse_sheet()`, which this adds.",
        "It calls `Sheet.print()` of the SDK.",
        "x\n\n### 2.4 Function Signatures\n\n- `Sheet.parse_all(path)` gives rows\n- `Sheet.take_all(rows: Row): Row`\n",
    ] {
        assert_eq!(asked(text, ""), [""; 0], "{text}");
    }
}

/// One block of §2.4 a language, with names of it that prose may then use.
#[test]
fn what_the_design_declares_itself_is_not_asked_about() {
    for (code, names) in [
        ("func (c *Cart) Remove(id string) error", "`Remove()` `Cart.Remove()`"),
        ("interface Cart {\n  removeItem(id: string): void;\n}", "`removeItem()` `Cart.removeItem()`"),
        ("remove_item() {", "`remove_item()`"),
        ("private int maxItems;\npublic int MaxItems { get; set; }", "`maxItems` `MaxItems`"),
        ("    void removeItem(String id) // why", "`removeItem()`"),
        ("void Cart::remove_all(int id = 3);", "`Cart::remove_all()` `remove_all()`"),
        ("def remove_item(self, item: Item = None) -> bool", "`remove_item()`"),
        ("pub fn remove_item<T: Into<Id>>(id: T)", "`remove_item()`"),
        ("function removeItem(array $item = []): void", "`removeItem()`"),
    ] {
        assert_eq!(asked(&format!("Then {names}."), code), [""; 0], "{code}");
    }
}

#[test]
fn a_path_of_another_folder_or_repository_is_no_error() {
    let told = |text: &str| {
        let design = format!("# 1 - Feature: T\n\n## 2. Proposed Changes\n\n{text}\n");
        let mistakes = names(&design, &Bare);
        mistakes
            .iter()
            .map(|mistake| (mistake.is_error(), mistake.about.clone().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(told("`src/b.rs` is read."), [(true, "src/b.rs".to_owned())]);
    assert_eq!(told("`src/runtime/mod.rs` is like it."), [(false, "src/runtime/mod.rs".to_owned())]);
    assert_eq!(told("`inner/b.rs` is read."), [(false, "inner/b.rs".to_owned())]);
    assert_eq!(told("`src/made/b.rs` is read, and `other/b.rs`."), []);
}

#[test]
fn what_is_long_and_hostile_is_told_in_few_words() {
    for unit in
        ["`a_b` ", "`a` ", "new `A::b` ", "x", "`src/x.rs`", "\n```rust\nuse a;\n```\n", "\n# 2.5 A\n`a_b`\n"]
    {
        let text = unit.repeat(262_144 / unit.len());
        let told = names(&format!("## 2. Proposed Changes\n\n{text}"), &Bare);
        assert!(told.len() <= 3 * NAMED_MISTAKES, "{unit}");
    }
}

#[test]
fn no_text_makes_it_panic_and_no_message_is_long() {
    use crate::documents::lld::check::tests::nasty;
    let mut texts = nasty();
    let design = "# 1 - Feature: x\n\n## 2. Proposed Changes\n\n`src/b.rs` `a::b()` in `src/a.rs`\n\n```rust\nuse x;é (: =\n``` \n\n";
    texts.push(design.repeat(200));
    texts.extend(design.char_indices().map(|(at, _)| design[..at].to_owned()));
    for text in texts {
        let mistakes = names(&text, &Bare);
        assert!(mistakes.len() <= 3 * NAMED_MISTAKES);
        for mistake in mistakes {
            assert!(
                mistake.message.len() < 1500 && !mistake.message.contains(['\n', '\u{202e}']),
                "{mistake}"
            );
        }
    }
}
