//! Splits a source file that holds its own tests into test code and other code, so that each can be locked alone.

use std::ops::Range;

use tree_sitter::{Node, Tree};

use super::{grammar, parse};
use crate::codebase::Language;

/// Tokens of a source file's test code and of its other code, one per line. White space between tokens is left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InlineTests {
    pub tests: String,
    pub code: String,
    /// Declarations of test modules in files of their own: `#[cfg(test)] mod tests;`.
    pub modules: Vec<String>,
    /// Names of other modules whose file is named by a `path` attribute or an `include!`.
    pub redirected: Vec<String>,
    /// Number of test attributes in the other code, where only a macro can use them, and of conditions on `cfg(test)`.
    pub hidden: usize,
}

/// Splits a Rust file: items under `#[cfg(test)]` and test functions are tests. The functions `removed` are left out.
/// Returns `None` for other languages, in which tests have files of their own, and for a text that does not parse.
pub fn split_inline_tests(language: Language, text: &str, removed: &[&str]) -> Option<InlineTests> {
    let tree = (language == Language::Rust).then(|| parse_whole(language, text)).flatten()?;
    if tree.root_node().has_error() {
        return None;
    }
    let mut split = InlineTests::default();
    let mut items = find_tests(&tree, text, &mut split.redirected);
    let (mut nodes, mut at) = (vec![tree.root_node()], 0);
    let declared = |item: &TestItem| {
        let lines = text[item.range.clone()].lines().map(str::trim);
        lines.filter(|line| !line.starts_with("//")).collect::<Vec<_>>().join(" ")
    };
    split.modules.extend(items.iter().filter(|item| item.is_declaration).map(declared));
    while let Some(node) = nodes.pop() {
        // A literal's white space counts.
        let whole =
            node.child_count() == 0 || node.kind().ends_with("_literal") || node.kind().contains("comment");
        if !whole {
            nodes.extend(kept_children(node, text, removed).into_iter().rev());
            continue;
        }
        while items.get(at).is_some_and(|item| item.range.end <= node.start_byte()) {
            at += 1;
        }
        let item = items.get_mut(at).filter(|item| item.range.start <= node.start_byte());
        let to = match item {
            Some(item) => {
                // A test that moves to another module is another test.
                split.tests += &std::mem::take(&mut item.path);
                &mut split.tests
            }
            None => &mut split.code,
        };
        to.push_str(&text[node.byte_range()]);
        to.push('\n');
    }
    split.hidden = count_hidden_tests(&split.code);
    Some(split)
}

/// Returns the children of a node, without the functions `removed` and the attributes and comments above these.
fn kept_children<'t>(node: Node<'t>, text: &str, removed: &[&str]) -> Vec<Node<'t>> {
    let (mut kept, mut head) = (Vec::new(), 0);
    for child in (0..node.child_count()).filter_map(|child| node.child(child)) {
        let name = child.child_by_field_name("name").filter(|_| child.kind() == "function_item");
        if name.is_some_and(|name| removed.contains(&&text[name.byte_range()])) {
            kept.truncate(head);
            continue;
        }
        kept.push(child);
        if !matches!(child.kind(), "attribute_item" | "line_comment" | "block_comment") {
            head = kept.len();
        }
    }
    kept
}

fn count_hidden_tests(code: &str) -> usize {
    let tokens: Vec<&str> = code.lines().collect();
    let is_hidden = |rest: &[&str]| match rest {
        ["#", "[", path @ ..] => {
            let end = path.iter().position(|token| matches!(*token, "(" | "=" | "]")).unwrap_or(0);
            end > 0 && is_test_path(path[end - 1])
        }
        ["cfg", "(", "test", ..] => true,
        ["cfg", "!", "(", predicate @ ..] => {
            predicate.iter().take_while(|token| **token != ")").any(|t| *t == "test")
        }
        _ => false,
    };
    (0..tokens.len()).filter(|at| is_hidden(&tokens[*at..])).count()
}

/// Whether this line of a Rust file, counted from 1, is part of a test item.
pub fn is_inline_test_line(language: Language, text: &str, line: usize) -> bool {
    let tree = (language == Language::Rust).then(|| parse_whole(language, text)).flatten();
    let line_at = |at: usize| text[..at].matches('\n').count() + 1;
    let items = tree.map(|tree| find_tests(&tree, text, &mut Vec::new())).unwrap_or_default();
    items.iter().any(|item| (line_at(item.range.start)..=line_at(item.range.end)).contains(&line))
}

/// Returns the test items of a file in their order. Adds the modules that an attribute points to another file.
fn find_tests(tree: &Tree, text: &str, redirected: &mut Vec<String>) -> Vec<TestItem> {
    let (mut items, mut bodies) = (Vec::new(), vec![(tree.root_node(), String::new())]);
    while let Some((body, path)) = bodies.pop() {
        collect_tests(body, &path, text, (&mut items, redirected), &mut bodies);
    }
    items.sort_by_key(|item: &TestItem| item.range.start);
    items
}

fn parse_whole(language: Language, text: &str) -> Option<Tree> {
    let grammar = grammar::grammar_for(language)?;
    parse::begin_file(grammar, text);
    parse::parse_ranges(grammar, text, &[])
}

struct TestItem {
    range: Range<usize>,
    /// Modules and `impl` blocks around the item.
    path: String,
    is_declaration: bool,
}

/// Adds the test items directly in `body`, and the bodies of its other modules and `impl` blocks.
fn collect_tests<'t>(
    body: Node<'t>,
    path: &str,
    text: &str,
    (items, redirected): (&mut Vec<TestItem>, &mut Vec<String>),
    bodies: &mut Vec<(Node<'t>, String)>,
) {
    // Comments on lines of their own and attributes above an item belong to it.
    let (mut head, mut attributes) = (None, Vec::new());
    for item in body.named_children(&mut body.walk()) {
        let start = item.start_byte();
        match item.kind() {
            "line_comment" | "block_comment" => {
                let line = text[..start].rsplit('\n').next().unwrap_or_default();
                let is_outer = line.trim().is_empty()
                    && !["//!", "/*!"].iter().any(|mark| text[start..].starts_with(mark));
                head = head.or(is_outer.then_some(start));
            }
            "attribute_item" => {
                head.get_or_insert(start);
                attributes.push(&text[item.byte_range()]);
            }
            kind => {
                let start = head.take().unwrap_or(start);
                let inner = item.child_by_field_name("body");
                if attributes.iter().any(|attribute| is_test_attribute(attribute, kind)) {
                    let is_declaration = kind == "mod_item" && inner.is_none();
                    items.push(TestItem {
                        range: start..item.end_byte(),
                        path: path.to_owned(),
                        is_declaration,
                    });
                } else {
                    let has_path =
                        |attribute: &&str| attribute.split_whitespace().collect::<String>().contains("path=");
                    let includes = inner.is_some_and(|inner| text[inner.byte_range()].contains("include!"));
                    let name = item.child_by_field_name("name").filter(|_| kind == "mod_item");
                    let elsewhere = includes || attributes.iter().any(has_path);
                    redirected
                        .extend(name.filter(|_| elsewhere).map(|name| text[name.byte_range()].to_owned()));
                    if let Some(inner) = inner.filter(|_| matches!(kind, "mod_item" | "impl_item")) {
                        let name = &text[item.start_byte()..inner.start_byte()];
                        bodies.push((inner, format!("{path}{}\n", name.trim())));
                    }
                }
                attributes.clear();
            }
        }
    }
}

fn is_test_attribute(attribute: &str, kind: &str) -> bool {
    let inner = attribute.trim_start_matches(['#', '[', ' ']);
    if let Some(predicate) =
        inner.strip_prefix("cfg").map(str::trim_start).filter(|rest| rest.starts_with('('))
    {
        let predicate: String = predicate.split_whitespace().collect();
        // Each bracket costs a call below. A predicate with more of them counts as code.
        let is_short = predicate.matches('(').count() <= MOST_BRACKETS;
        return is_short && holds_without_tests(predicate.trim_end_matches(']')) == Some(false);
    }
    // `#[tokio::test]`, `#[rstest]`, `#[test_case(1)]`
    let path = inner.split(['(', '=', ']']).next().unwrap_or_default().trim_end();
    kind == "function_item" && is_test_path(path)
}

fn is_test_path(path: &str) -> bool {
    path.ends_with("test") || path.ends_with("test_case")
}

/// Maximum number of opening brackets in a `cfg` predicate.
const MOST_BRACKETS: usize = 50;

/// Evaluates a `cfg` predicate without white space for a build without tests; `None` if other settings decide.
fn holds_without_tests(predicate: &str) -> Option<bool> {
    let within = |name: &str| predicate.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    let parts = |inner: &str| -> Vec<Option<bool>> {
        let (mut depth, mut from, mut parts) = (0_usize, 0, Vec::new());
        for (at, c) in inner.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    parts.push(&inner[from..at]);
                    from = at + 1;
                }
                _ => {}
            }
        }
        parts.push(&inner[from..]);
        parts.into_iter().filter(|part| !part.is_empty()).map(holds_without_tests).collect()
    };
    if let Some(inner) = within("not") {
        holds_without_tests(inner.trim_end_matches(',')).map(|holds| !holds)
    } else if let Some(inner) = within("all") {
        let parts = parts(inner);
        if parts.contains(&Some(false)) {
            Some(false)
        } else {
            parts.into_iter().try_fold(true, |all, part| Some(all && part?))
        }
    } else if let Some(inner) = within("any") {
        let parts = parts(inner);
        if parts.contains(&Some(true)) {
            Some(true)
        } else {
            parts.into_iter().try_fold(false, |any, part| Some(any || part?))
        }
    } else if let Some(inner) = within("") {
        holds_without_tests(inner.trim_end_matches(','))
    } else {
        (predicate == "test").then_some(false)
    }
}

/// Returns a part of the assertions that `after` replaces and `before` does not. In Rust this is a macro of the standard
/// library that is defined or imported under its name; tests of the same crate would use it instead. In Python and
/// JavaScript it is a member of a test library that the code assigns.
pub fn shadowed_assertion(language: Language, after: &str, before: &str) -> Option<String> {
    let before = replaced_names(language, before);
    replaced_names(language, after).into_iter().find(|name| !before.contains(name)).map(str::to_owned)
}

fn replaced_names(language: Language, text: &str) -> Vec<&str> {
    const MACROS: &str = "assert assert_eq assert_ne debug_assert debug_assert_eq debug_assert_ne format matches panic \
        unreachable vec";
    const LIBRARIES: &str = "unittest pytest _pytest builtins assert node:assert assert/strict node:assert/strict \
        node:test vitest @jest/globals chai";
    const SETTERS: &str = "setattr Object.assign Object.defineProperty Object.defineProperties";
    let is_one_of = |all: &str, name: &str| all.split_whitespace().any(|known| known == name);
    let of = |node: Node<'_>| &text[node.byte_range()];
    let (mut names, mut targets, mut imported) = (Vec::new(), Vec::new(), Vec::new());
    let tree = parse_whole(language, text);
    let mut nodes: Vec<_> = tree.as_ref().map(Tree::root_node).into_iter().collect();
    while let Some(node) = nodes.pop() {
        let field = |name: &str| node.child_by_field_name(name);
        match node.kind() {
            "macro_definition" => names.extend(field("name").map(of)),
            "use_as_clause" => names.extend(field("alias").map(of)),
            "import_statement" | "import_from_statement" => {
                let words = || of(node).split(|c: char| !c.is_alphanumeric() && !"_:/@".contains(c));
                if words().any(|word| is_one_of(LIBRARIES, word)) {
                    imported.extend(words());
                }
            }
            // `const assert = require("node:assert")`
            "variable_declarator" => {
                let module = field("value")
                    .and_then(|value| value.child_by_field_name("arguments"))
                    .map(|all| of(all).trim_matches(['(', ')', '"', '\'']));
                if module.is_some_and(|module| is_one_of(LIBRARIES, module)) {
                    imported.extend(field("name").map(of));
                }
            }
            "assignment" | "assignment_expression" => {
                targets.extend(field("left").map(of).filter(|left| left.contains(['.', '['])));
            }
            "call" | "call_expression"
                if field("function").is_some_and(|called| is_one_of(SETTERS, of(called))) =>
            {
                targets.extend(field("arguments").and_then(|all| all.named_child(0)).map(of));
            }
            _ => {}
        }
        nodes.extend(node.named_children(&mut node.walk()));
    }
    let is_part = |target: &&str| {
        let root = target.split(['.', '[']).next().unwrap_or(target);
        // Translations install themselves as `builtins._`.
        imported.contains(&root) && *target != "builtins._"
    };
    let macros =
        names.into_iter().map(|name| name.trim_start_matches("r#")).filter(|name| is_one_of(MACROS, name));
    macros.chain(targets.into_iter().filter(is_part)).collect()
}

/// Returns the settings in a manifest by which code may act as the test runner: Cargo's `harness = false`, and options of
/// pytest and Node that load a file. `is_code` tells whether a path is a file of this code.
pub fn runner_hooks(path: &str, text: &str, is_code: impl Fn(&str) -> bool) -> Vec<String> {
    const PRELOADS: [&str; 5] = ["--import", "--require", "-r", "--loader", "--experimental-loader"];
    let words =
        text.split(|c: char| c.is_whitespace() || "\"'=,[]".contains(c)).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let options = |is_hook: &dyn Fn(&str, &str) -> bool| -> Vec<String> {
        words.windows(2).filter(|two| is_hook(two[0], two[1])).map(|two| two.join(" ")).collect()
    };
    match path.rsplit('/').next().unwrap_or(path) {
        "Cargo.toml" => {
            let manifest: toml::Table = text.parse().unwrap_or_default();
            let tests = manifest.get("test").and_then(toml::Value::as_array).into_iter().flatten();
            let targets = manifest.get("lib").into_iter().chain(tests);
            let own =
                targets.filter(|target| target.get("harness").and_then(toml::Value::as_bool) == Some(false));
            let name = |target: &toml::Value| {
                target.get("name").and_then(toml::Value::as_str).unwrap_or("lib").to_owned()
            };
            own.map(|target| name(target) + " harness = false").collect()
        }
        "package.json" => {
            options(&|option, file| PRELOADS.contains(&option) && is_code(file.trim_start_matches("./")))
        }
        "pyproject.toml" | "setup.cfg" | "tox.ini" => {
            options(&|option, module| option == "-p" && is_code(&format!("{}.py", module.replace('.', "/"))))
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> InlineTests {
        split_inline_tests(Language::Rust, text, &[]).unwrap()
    }

    #[test]
    fn inline_test_items_and_their_comments_are_split_from_the_code() {
        let text = "use a::B; // bytes\n\n/// Adds.\nfn add() {}\n\nmod inner {\n    fn two() {}\n    #[tokio::test]\n    async fn waits() {}\n}\n\n\
                    // Helpers.\n#[cfg(all(test, not(miri)))]\nmacro_rules! same { () => {} }\n#[cfg(not(test))]\nfn real() {}\n\
                    #[cfg(any(test, feature = \"x\"))]\nfn both() {}\n#[cfg(test)]\nmod tests;\n#[cfg( test )]\nmod more {\n    fn adds() {}\n}\n";
        let InlineTests { tests, code, modules, redirected, hidden } = split(text);
        let has = |text: &str, word: &str| text.lines().any(|line| line == word);
        for word in ["waits", "same", "tests", "adds", "// Helpers.", "mod inner"] {
            assert!(has(&tests, word) && !has(&code, word), "{word}: {tests}");
        }
        for word in ["add", "two", "real", "both", "// bytes", "/// Adds."] {
            assert!(has(&code, word.trim_end()) || code.contains(word), "{word}: {code}");
            assert!(!has(&tests, word), "{word}: {tests}");
        }
        assert_eq!(modules, ["#[cfg(test)] mod tests;"]);
        assert_eq!((redirected.len(), hidden), (0, 0));
    }

    #[test]
    fn tests_in_macros_and_redirected_modules_are_found() {
        for (text, hidden) in [
            ("macro_rules! m { () => { #[test] fn a() {} } }", 1),
            ("a! { #[tokio::test(x)]\n async fn a() {}\n #[cfg(test)] mod b {} }", 2),
            ("fn a() -> bool { cfg!(test) || cfg!(not(test)) }", 2),
            ("#[derive(A)]\nstruct S;\n#[cfg(not(test))]\nfn a() { cfg!(unix); let test = [1]; }", 0),
            ("#[cfg(test)]\nmod tests { #[test]\n fn a() { assert!(cfg!(test)) } }", 0),
        ] {
            assert_eq!(split(text).hidden, hidden, "{text}");
        }
        let text = "# [path = \"x.rs\"]\nmod a;\nmod b { include! { \"x.rs\" } }\nmod c;\n#[cfg_attr(unix, path=\"x\")] mod d;";
        assert_eq!(split(text).redirected, ["a", "b", "d"]);
    }

    #[test]
    fn removed_test_functions_are_left_out_with_their_attributes() {
        let of = |text: &str| split_inline_tests(Language::Rust, text, &["b"]).unwrap();
        let both = of("#[cfg(test)]\nmod t {\n#[test]\nfn a() {}\n// Why.\n#[test]\nfn b() {}\n}");
        assert_eq!(both, of("#[cfg(test)]\nmod t {\n#[test]\nfn a() {}\n}"));
        assert_ne!(both, of("#[cfg(test)]\nmod t {\n#[test]\nfn a() {}\nfn c() {}\n}"));
    }

    #[test]
    fn code_that_acts_as_the_test_runner_is_found_in_manifests() {
        let hooks = |path: &str, text: &str| {
            runner_hooks(path, text, |file| file == "sums.py" || file == "src/a.mjs")
        };
        assert_eq!(hooks("a/pyproject.toml", "addopts = \"-q -p sums -p no:cacheprovider\""), ["-p sums"]);
        assert_eq!(
            hooks("package.json", "{\"test\": \"node --import ./src/a.mjs --import tsx --test\"}"),
            ["--import ./src/a.mjs"]
        );
        let cargo =
            "[package]\nname = \"a\"\n[[bench]]\nname = \"b\"\nharness = false\n[[test]]\nname = \"c\"\n";
        assert!(hooks("Cargo.toml", cargo).is_empty());
        assert_eq!(hooks("Cargo.toml", &format!("{cargo}harness = false\n")), ["c harness = false"]);
    }

    #[test]
    fn assigned_members_of_test_libraries_are_reported() {
        for (language, text, found) in [
            (
                Language::Python,
                "import unittest as u\nu.TestCase.assertEqual = None",
                Some("u.TestCase.assertEqual"),
            ),
            (Language::Python, "from unittest import TestCase as T\nsetattr(T, 'fail', None)", Some("T")),
            (Language::Python, "import builtins\nbuiltins._ = str\nassertion = 1\nself.assertTrue = 1", None),
            (Language::Python, "import pytest\nx = pytest.raises(A)", None),
            (
                Language::JavaScript,
                "import assert from 'node:assert';\nassert.equal = () => {};",
                Some("assert.equal"),
            ),
            (Language::JavaScript, "const t = require(\"node:test\"); Object.assign(t, {});", Some("t")),
            (
                Language::JavaScript,
                "import assert from 'node:assert';\nassert(a.b = 1);\nexports.assert = 1;",
                None,
            ),
            (Language::TypeScript, "const a = b(() => require('assert')); a.c = 1;", None),
        ] {
            assert_eq!(shadowed_assertion(language, text, "").as_deref(), found, "{text}");
            assert_eq!(shadowed_assertion(language, text, text), None);
        }
    }

    #[test]
    fn only_lines_of_test_items_are_test_lines() {
        let text = "fn a() {}\n\n// Helpers.\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let lines = (1..=9).filter(|line| is_inline_test_line(Language::Rust, text, *line));
        assert_eq!(lines.collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
        assert!(!is_inline_test_line(Language::Python, text, 5));
    }

    #[test]
    fn tests_that_differ_only_in_white_space_between_tokens_are_equal() {
        let of = |within: &str, test: &str| format!("{within}#[cfg(test)]\nmod tests {{\n{test}\n}}");
        let one = split(&of("", "fn a() { is(\"x\\n\\n y\") }"));
        assert_eq!(one, split(&of("", "    fn a() {\n\n        is(\"x\\n\\n y\")\n    }")));
        assert_ne!(one, split(&of("", "fn a() { is(\"x\\n y\") }")));
        let raw = |text: &str| split(&of("", &format!("fn a() {{ is(r#\"{text}\"#) }}")));
        assert_ne!(raw("x\n\ny"), raw("x\ny"));
        // The same test in another module is another test.
        let moved = split(&(of("mod fake {\n", "fn a() { is(\"x\\n\\n y\") }") + "\n}"));
        assert_ne!(one.tests, moved.tests);
    }

    #[test]
    fn file_without_tests_is_classified_as_code_and_unparsable_file_is_not_split() {
        let plain = split("fn a() {}\n");
        assert_eq!((plain.tests.as_str(), plain.code.contains("a\n")), ("", true));
        assert_eq!(split_inline_tests(Language::Rust, "fn a( {", &[]), None);
        assert_eq!(split_inline_tests(Language::Python, "def test_a(): pass\n", &[]), None);
    }

    #[test]
    fn only_newly_redefined_assertion_macros_are_reported() {
        let shadowed = |after: &str, before: &str| shadowed_assertion(Language::Rust, after, before);
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(shadowed("mod a { macro_rules! assert_eq { ($($x:tt)*) => {} } }", ""), some("assert_eq"));
        assert_eq!(shadowed("use a::{b,\n  c as assert};", ""), some("assert"));
        let mentions =
            "// counts as panic\nmacro_rules! same { () => { assert!(true) } }\nuse a::assert_all as all;";
        assert_eq!(shadowed(mentions, ""), None);
        assert_eq!(
            shadowed("macro_rules! r#matches { () => {} }", "macro_rules! assert { () => {} }"),
            some("matches")
        );
        let known = "macro_rules! assert { () => {} }";
        assert_eq!(shadowed(known, known), None);
        assert_eq!(
            shadowed_assertion(Language::JavaScript, "import * as assert from 'node:assert'", ""),
            None
        );
    }

    #[test]
    fn deeply_nested_cfg_predicate_counts_as_code() {
        let nested = |depth: usize| {
            let predicate = format!("{}test{}", "all(".repeat(depth), ")".repeat(depth));
            split(&format!("#[cfg({predicate})]\nmod tests {{}}\n"))
        };
        assert!(nested(40).code.is_empty());
        assert!(nested(900).tests.is_empty());
    }
}
