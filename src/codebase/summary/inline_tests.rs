//! Splits a source file that holds its own tests into test code and other code, so that each can be locked alone.

use std::ops::Range;

use tree_sitter::{Node, Tree};

use super::{grammar, parse};
use crate::codebase::Language;

/// A source file's test code and its other code, each without blank lines.
#[derive(Debug, PartialEq, Eq)]
pub struct InlineTests {
    pub tests: String,
    pub code: String,
}

/// Splits a Rust file: items under `#[cfg(test)]` and test functions are tests. Returns `None` for other languages, in
/// which tests have files of their own, and for a text that does not parse.
pub fn split_inline_tests(language: Language, text: &str) -> Option<InlineTests> {
    if language != Language::Rust {
        return None;
    }
    let tree = parse_whole(text)?;
    if tree.root_node().has_error() {
        return None;
    }
    let (mut ranges, mut bodies) = (Vec::new(), vec![tree.root_node()]);
    while let Some(body) = bodies.pop() {
        collect_tests(body, text, &mut ranges, &mut bodies);
    }
    ranges.sort_by_key(|range: &Range<usize>| range.start);
    let (mut split, mut end) = (InlineTests { tests: String::new(), code: String::new() }, 0);
    for range in ranges {
        push_lines(&mut split.code, &text[end..range.start]);
        push_lines(&mut split.tests, &text[range.clone()]);
        end = range.end;
    }
    push_lines(&mut split.code, &text[end..]);
    Some(split)
}

fn parse_whole(text: &str) -> Option<Tree> {
    let grammar = grammar::grammar_for(Language::Rust)?;
    parse::begin_file(grammar, text);
    parse::parse_ranges(grammar, text, &[])
}

/// Adds the ranges of the test items directly in `body`, and the bodies of its other modules and `impl` blocks.
fn collect_tests<'t>(body: Node<'t>, text: &str, ranges: &mut Vec<Range<usize>>, bodies: &mut Vec<Node<'t>>) {
    // Comments and attributes above an item belong to it.
    let (mut head, mut attributes) = (None, Vec::new());
    for item in body.named_children(&mut body.walk()) {
        match item.kind() {
            "line_comment" | "block_comment" => {
                head.get_or_insert(item.start_byte());
            }
            "attribute_item" => {
                head.get_or_insert(item.start_byte());
                attributes.push(&text[item.byte_range()]);
            }
            kind => {
                let start = head.take().unwrap_or(item.start_byte());
                if attributes.drain(..).any(|attribute| is_test_attribute(attribute, kind)) {
                    ranges.push(start..item.end_byte());
                } else if matches!(kind, "mod_item" | "impl_item") {
                    bodies.extend(item.child_by_field_name("body"));
                }
            }
        }
    }
}

fn is_test_attribute(attribute: &str, kind: &str) -> bool {
    let words: Vec<&str> = attribute.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let has = |word: &str| words.contains(&word);
    let first = words.iter().find(|word| !word.is_empty()).copied().unwrap_or_default();
    match first {
        "cfg" => has("test") && !has("not") && !has("any"),
        // `#[tokio::test]`, `#[rstest]`, `#[test_case(1)]`
        _ => {
            let path = attribute.split(['(', '=', ']']).next().unwrap_or_default();
            kind == "function_item" && (path.ends_with("test") || path.ends_with("test_case"))
        }
    }
}

fn push_lines(to: &mut String, text: &str) {
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        to.push_str(line);
        to.push('\n');
    }
}

/// Returns an assertion macro of the standard library that `after` defines or imports under that name and `before` does
/// not. Tests of the same crate would use it instead.
pub fn shadowed_assertion(language: Language, after: &str, before: &str) -> Option<&'static str> {
    const NAMES: [&str; 7] =
        ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne", "panic"];
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
            names.extend(field.map(|name| text[name.byte_range()].to_owned()));
            nodes.extend(node.named_children(&mut node.walk()));
        }
        names
    };
    let after = names(after);
    let new = NAMES.into_iter().find(|name| after.iter().any(|known| known == name))?;
    (!names(before).iter().any(|known| known == new)).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> [String; 2] {
        let InlineTests { tests, code } = split_inline_tests(Language::Rust, text).unwrap();
        [tests, code]
    }

    #[test]
    fn inline_test_items_and_their_comments_are_split_from_the_code() {
        let text = "use a::B;\n\n/// Adds.\nfn add() {}\n\nmod inner {\n    fn two() {}\n    #[tokio::test]\n    async fn t() {}\n}\n\n\
                    // Helpers.\n#[cfg(all(test, feature = \"x\"))]\nmacro_rules! same { () => {} }\n#[cfg(not(test))]\nfn real() {}\n\
                    #[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    #[ignore]\n    fn adds() { assert!(true) }\n}\n";
        let [tests, code] = split(text);
        assert_eq!(
            tests,
            "#[tokio::test]\n    async fn t() {}\n// Helpers.\n#[cfg(all(test, feature = \"x\"))]\nmacro_rules! same { () => {} }\n\
             #[cfg(test)]\nmod tests {\n    use super::*;\n    #[test]\n    #[ignore]\n    fn adds() { assert!(true) }\n}\n"
        );
        assert_eq!(
            code,
            "use a::B;\n/// Adds.\nfn add() {}\nmod inner {\n    fn two() {}\n}\n#[cfg(not(test))]\nfn real() {}\n"
        );
    }

    #[test]
    fn file_without_tests_is_classified_as_code_and_unparsable_file_is_not_split() {
        assert_eq!(split("fn a() {}\n\n\nfn b() {}\n"), ["", "fn a() {}\nfn b() {}\n"]);
        assert_eq!(split_inline_tests(Language::Rust, "fn a( {"), None);
        assert_eq!(split_inline_tests(Language::Python, "def test_a(): pass\n"), None);
    }

    #[test]
    fn redefined_assertion_macro_is_found_but_a_mere_mention_of_one_is_not() {
        let shadowed = |after: &str, before: &str| shadowed_assertion(Language::Rust, after, before);
        assert_eq!(shadowed("mod a { macro_rules! assert_eq { ($($x:tt)*) => {} } }", ""), Some("assert_eq"));
        assert_eq!(shadowed("use a::{b,\n  c as assert};", ""), Some("assert"));
        let mentions =
            "// counts as panic\nmacro_rules! same { () => { assert!(true) } }\nuse a::assert_all as all;";
        assert_eq!(shadowed(mentions, ""), None);
        let known = "macro_rules! assert { () => {} }";
        assert_eq!(shadowed(known, known), None);
        assert_eq!(
            shadowed_assertion(Language::JavaScript, "import * as assert from 'node:assert'", ""),
            None
        );
    }
}
