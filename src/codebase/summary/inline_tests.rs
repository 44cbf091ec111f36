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
}

/// Splits a Rust file: items under `#[cfg(test)]` and test functions are tests. Returns `None` for other languages, in
/// which tests have files of their own, and for a text that does not parse.
pub fn split_inline_tests(language: Language, text: &str) -> Option<InlineTests> {
    let tree = (language == Language::Rust).then(|| parse_whole(text)).flatten()?;
    if tree.root_node().has_error() {
        return None;
    }
    let (mut items, mut bodies) = (Vec::new(), vec![(tree.root_node(), String::new())]);
    while let Some((body, path)) = bodies.pop() {
        collect_tests(body, &path, text, &mut items, &mut bodies);
    }
    items.sort_by_key(|item: &TestItem| item.range.start);
    let (mut split, mut nodes, mut at) = (InlineTests::default(), vec![tree.root_node()], 0);
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
            nodes.extend((0..node.child_count()).rev().filter_map(|child| node.child(child)));
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
    Some(split)
}

fn parse_whole(text: &str) -> Option<Tree> {
    let grammar = grammar::grammar_for(Language::Rust)?;
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
    items: &mut Vec<TestItem>,
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
                if attributes.drain(..).any(|attribute| is_test_attribute(attribute, kind)) {
                    let is_declaration = kind == "mod_item" && inner.is_none();
                    items.push(TestItem {
                        range: start..item.end_byte(),
                        path: path.to_owned(),
                        is_declaration,
                    });
                } else if let Some(inner) = inner.filter(|_| matches!(kind, "mod_item" | "impl_item")) {
                    let name = &text[item.start_byte()..inner.start_byte()];
                    bodies.push((inner, format!("{path}{}\n", name.trim())));
                }
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
    kind == "function_item" && (path.ends_with("test") || path.ends_with("test_case"))
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

/// Returns a macro of the standard library, often part of an assertion, that `after` defines or imports under that name
/// and `before` does not. Tests of the same crate would use it instead.
pub fn shadowed_assertion(language: Language, after: &str, before: &str) -> Option<&'static str> {
    const NAMES: [&str; 11] = [
        "assert",
        "assert_eq",
        "assert_ne",
        "debug_assert",
        "debug_assert_eq",
        "debug_assert_ne",
        "format",
        "matches",
        "panic",
        "unreachable",
        "vec",
    ];
    let names = |text: &str| -> Vec<String> {
        let parsed = (language == Language::Rust).then(|| parse_whole(text)).flatten();
        let (mut names, mut nodes) = (Vec::new(), Vec::new());
        nodes.extend(parsed.as_ref().map(Tree::root_node));
        while let Some(node) = nodes.pop() {
            let field = match node.kind() {
                "macro_definition" => node.child_by_field_name("name"),
                "use_as_clause" => node.child_by_field_name("alias"),
                _ => None,
            };
            names.extend(field.map(|name| text[name.byte_range()].trim_start_matches("r#").to_owned()));
            nodes.extend(node.named_children(&mut node.walk()));
        }
        names
    };
    let (after, before) = (names(after), names(before));
    let has = |names: &[String], name: &str| names.iter().any(|known| known == name);
    NAMES.into_iter().find(|name| has(&after, name) && !has(&before, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> InlineTests {
        split_inline_tests(Language::Rust, text).unwrap()
    }

    #[test]
    fn inline_test_items_and_their_comments_are_split_from_the_code() {
        let text = "use a::B; // bytes\n\n/// Adds.\nfn add() {}\n\nmod inner {\n    fn two() {}\n    #[tokio::test]\n    async fn waits() {}\n}\n\n\
                    // Helpers.\n#[cfg(all(test, not(miri)))]\nmacro_rules! same { () => {} }\n#[cfg(not(test))]\nfn real() {}\n\
                    #[cfg(any(test, feature = \"x\"))]\nfn both() {}\n#[cfg(test)]\nmod tests;\n#[cfg( test )]\nmod more {\n    fn adds() {}\n}\n";
        let InlineTests { tests, code, modules } = split(text);
        let has = |text: &str, word: &str| text.lines().any(|line| line == word);
        for word in ["waits", "same", "tests", "adds", "// Helpers.", "mod inner"] {
            assert!(has(&tests, word) && !has(&code, word), "{word}: {tests}");
        }
        for word in ["add", "two", "real", "both", "// bytes", "/// Adds."] {
            assert!(has(&code, word.trim_end()) || code.contains(word), "{word}: {code}");
            assert!(!has(&tests, word), "{word}: {tests}");
        }
        assert_eq!(modules, ["#[cfg(test)] mod tests;"]);
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
        assert_eq!(split_inline_tests(Language::Rust, "fn a( {"), None);
        assert_eq!(split_inline_tests(Language::Python, "def test_a(): pass\n"), None);
    }

    #[test]
    fn only_newly_redefined_assertion_macros_are_reported() {
        let shadowed = |after: &str, before: &str| shadowed_assertion(Language::Rust, after, before);
        assert_eq!(shadowed("mod a { macro_rules! assert_eq { ($($x:tt)*) => {} } }", ""), Some("assert_eq"));
        assert_eq!(shadowed("use a::{b,\n  c as assert};", ""), Some("assert"));
        let mentions =
            "// counts as panic\nmacro_rules! same { () => { assert!(true) } }\nuse a::assert_all as all;";
        assert_eq!(shadowed(mentions, ""), None);
        assert_eq!(
            shadowed("macro_rules! r#matches { () => {} }", "macro_rules! assert { () => {} }"),
            Some("matches")
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
