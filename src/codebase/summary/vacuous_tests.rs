//! Finds tests that verify nothing: tests without assertions, tests whose assertions are always true, and skipped
//! tests. Assertions and skipped tests are recognized in the syntax tree by the names that common test libraries use.

use std::{collections::BTreeSet, ops::Range};

use tree_sitter::Node;

use super::{grammar, parse};
use crate::{
    codebase::Language,
    documents::change::{test_id_has_name, test_name_parts},
};

/// Maximum nesting of an assertion that is checked. Constant assertions in real code are less deeply nested.
const DEEP: usize = 50;
const LONG: usize = 500;

/// The tests of a file that verify nothing, and the names that the file's code uses.
#[derive(Debug, Default)]
pub struct TestAudit {
    /// Tests that verify nothing. Each entry contains the test's name, its line number counted from 1, and the reason,
    /// phrased as the end of a sentence.
    pub hollow: Vec<(String, usize, &'static str)>,
    /// Names and string literals in the code. Comments are not included.
    words: BTreeSet<String>,
}

impl TestAudit {
    /// Returns whether the code contains this name outside of comments.
    pub fn contains_name(&self, name: &str) -> bool {
        let has =
            |part| self.words.iter().any(|word| test_id_has_name(word.trim_matches(['"', '\'', '`']), part));
        test_name_parts(name).all(has)
    }
}

/// Audits the tests of a file. Returns `None` if the test libraries of the language are unknown to us, or if the text
/// does not parse.
pub fn audit_tests(language: Language, text: &str) -> Option<TestAudit> {
    use Language::{Go, Java, JavaScript, Python, Rust, Tsx, TypeScript};
    if !matches!(language, Go | Java | JavaScript | Python | Rust | Tsx | TypeScript) {
        return None;
    }
    let grammar = grammar::grammar_for(language)?;
    parse::begin_file(grammar, text);
    let tree = parse::parse_ranges(grammar, text, &[])?;
    let mut seen =
        SyntaxScan { language, text, leaves: Vec::new(), asserted: Vec::new(), functions: Vec::new() };
    seen.walk(tree.root_node());
    // A helper that asserts counts as an assertion in its callers, up to three calls deep.
    for _ in 0..3 {
        let names: BTreeSet<&str> = seen
            .functions
            .iter()
            .filter(|f| !f.test && seen.has_assertion(f))
            .map(|f| f.name.as_str())
            .collect();
        let helps = |leaf: &&SyntaxLeaf<'_>| leaf.named && names.contains(leaf.word);
        seen.asserted.extend(seen.leaves.iter().filter(helps).map(|leaf| leaf.start).collect::<Vec<_>>());
        seen.asserted.sort_unstable();
        seen.asserted.dedup();
    }
    let hollow = seen.functions.iter().filter_map(|function| {
        let why = match () {
            () if function.skipped || seen.is_skipped(function) => "is left out of runs; have it run",
            () if function.test && !seen.has_assertion(function) => {
                "asserts nothing that could be otherwise; have it fail without the code"
            }
            () => return None,
        };
        Some((function.name.clone(), function.line, why))
    });
    let hollow = hollow.collect();
    Some(TestAudit { hollow, words: seen.leaves.iter().map(|leaf| leaf.word.to_owned()).collect() })
}

struct SyntaxScan<'t> {
    language: Language,
    text: &'t str,
    leaves: Vec<SyntaxLeaf<'t>>,
    /// Byte offsets at which assertions start.
    asserted: Vec<usize>,
    functions: Vec<FunctionSpan>,
}

struct SyntaxLeaf<'t> {
    start: usize,
    word: &'t str,
    named: bool,
}

struct FunctionSpan {
    name: String,
    line: usize,
    range: Range<usize>,
    test: bool,
    skipped: bool,
}

impl<'t> SyntaxScan<'t> {
    fn walk(&mut self, root: Node<'t>) {
        let (mut cursor, mut above) = (root.walk(), Vec::<Node<'_>>::new());
        let (mut attributes, mut asserting) = (None::<Range<usize>>, Vec::new());
        loop {
            let node = cursor.node();
            let inner = !node.kind().contains("comment");
            if node.kind() == "attribute_item" {
                let from = attributes.take().map_or(node.start_byte(), |before| before.start);
                attributes = Some(from..node.end_byte());
            } else if inner
                && node.is_named()
                && attributes.as_ref().is_none_or(|a| a.end <= node.start_byte())
            {
                let from = attributes.take().map_or(node.start_byte(), |attributes| attributes.start);
                self.functions.extend(self.function(node, above.last(), from));
            }
            if inner && node.child_count() == 0 {
                let (start, word) = (node.start_byte(), &self.text[node.byte_range()]);
                if self.is_assertion(word) {
                    asserting.push((start, assertion_range(word, &above)));
                }
                self.leaves.push(SyntaxLeaf {
                    start,
                    word,
                    named: node.is_named() && !is_constant(node.kind()),
                });
            }
            if inner && cursor.goto_first_child() {
                above.push(node);
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    asserting.retain(|(_, whole)| whole.as_ref().is_none_or(|all| self.depends_on_code(all)));
                    return self.asserted.extend(asserting.iter().map(|(at, _)| *at));
                }
                above.pop();
            }
        }
    }

    /// Returns whether an assertion mentions a name. Without a name, the result of the assertion cannot depend on the
    /// code under test.
    fn depends_on_code(&self, whole: &Range<usize>) -> bool {
        let leaves = self.leaves_within(whole);
        let called = |at: usize| {
            at > 0 && leaves[at - 1].word == "." && leaves.get(at + 1).is_some_and(|l| l.word == "(")
        };
        let ours = |word: &str| {
            is_one_of("self this t expect", word) || word.to_ascii_lowercase().contains("assert")
        };
        leaves.len() > LONG
            || leaves.iter().enumerate().any(|(at, leaf)| leaf.named && !ours(leaf.word) && !called(at))
    }

    fn leaves_within(&self, range: &Range<usize>) -> &[SyntaxLeaf<'t>] {
        let at = |byte| self.leaves.partition_point(|leaf| leaf.start < byte);
        &self.leaves[at(range.start)..at(range.end)]
    }

    fn has_assertion(&self, function: &FunctionSpan) -> bool {
        let first = self.asserted.partition_point(|at| *at < function.range.start);
        self.asserted.get(first).is_some_and(|at| *at < function.range.end)
    }

    /// Returns whether a test skips itself, for example with `t.Skip(` or `pytest.skip(`.
    fn is_skipped(&self, function: &FunctionSpan) -> bool {
        let calls = |four: &[SyntaxLeaf<'_>]| {
            let [of, dot, name, open] = [0, 1, 2, 3].map(|at| four[at].word);
            let skips = is_one_of("skip skipTest xfail Skip Skipf SkipNow", name);
            skips && dot == "." && open == "(" && is_one_of("pytest self t this context", of)
        };
        function.test && self.leaves_within(&function.range).windows(4).any(calls)
    }

    fn is_assertion(&self, word: &str) -> bool {
        use Language::{Go, Java, Python, Rust};
        let own = match self.language {
            Rust => "panic unreachable unwrap_err should_panic Err check bail",
            Python => "raises warns raise fail check verify",
            Go => "Error Errorf Fatal Fatalf Fail FailNow panic require Require Expect suite",
            Java => "fail verify expected throw check",
            _ => "expect should throw throws rejects fail is equal ok same deepEqual",
        };
        let lower = word.to_ascii_lowercase();
        let helps = |help: &str| lower.len() > help.len() && lower.starts_with(help);
        let helps = || "check verify expect ensure should must".split(' ').any(helps);
        word.len() < 80
            && !word.contains(' ')
            && (lower.contains("assert") || is_one_of(own, word) || helps())
    }

    /// Returns the function or test that the node defines. The node may be a function, or a call that defines a test.
    /// Returns `None` for any other node.
    fn function(&self, node: Node<'_>, above: Option<&Node<'_>>, mut from: usize) -> Option<FunctionSpan> {
        use Language::{Go, Java, Python, Rust};
        let text = |range: Range<usize>| &self.text[range];
        let line = node.start_position().row + 1;
        let named = node.child_by_field_name("name");
        let mut name = named.map(|name| text(name.byte_range()).to_owned());
        let head = |from| split_words(text(from..named.map_or(from, |name| name.start_byte())));
        let (test, skipped) = match (self.language, node.kind()) {
            (Rust, "function_item") => {
                let head = head(from);
                let marks = |word: &&str| word.ends_with("test") || *word == "test_case";
                let test = head.iter().any(marks) && !head.contains(&"cfg");
                (test, test && head.contains(&"ignore"))
            }
            (Python, "function_definition") => {
                let decorated = above.filter(|above| above.kind() == "decorated_definition");
                from = decorated.map_or(from, Node::start_byte);
                let head = head(from);
                let test = name.as_deref()?.starts_with("test") && !head.contains(&"fixture");
                let out = "skip skipif skipIf skipUnless xfail expectedFailure";
                (test, test && head.iter().any(|word| is_one_of(out, word)))
            }
            (Go, "function_declaration" | "method_declaration") => {
                (name.as_deref().is_some_and(|name| name.starts_with("Test") && name != "TestMain"), false)
            }
            (Java, "method_declaration") => {
                let head = head(from);
                (
                    head.iter().any(|word| word.ends_with("Test")),
                    head.iter().any(|word| is_one_of("Disabled Ignore", word)),
                )
            }
            (Rust | Python | Go | Java, _) => return None,
            (_, "function_declaration" | "variable_declarator") => (false, false),
            (_, "call_expression") => {
                let called = text(node.child_by_field_name("function")?.byte_range());
                let called: Vec<&str> = called.split('(').next()?.split('.').collect();
                let out = called[1..].iter().any(|word| is_one_of("only skip todo fixme failing", word));
                let first = node.child_by_field_name("arguments")?.named_child(0)?;
                if !first.kind().contains("string") {
                    return None;
                }
                name = Some(text(first.byte_range()).trim_matches(['"', '\'', '`']).to_owned());
                match called[0] {
                    "test" | "it" | "specify" => (true, out),
                    "describe" | "suite" | "context" => (false, out),
                    "xit" | "xtest" | "xdescribe" | "fit" | "fdescribe" => (true, true),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(FunctionSpan { name: name?, line, range: from..node.end_byte(), test, skipped })
    }
}

fn split_words(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

fn is_one_of(these: &str, word: &str) -> bool {
    these.split(' ').any(|one| one == word)
}

fn is_constant(kind: &str) -> bool {
    let kinds = "literal string integer float number true false none null nil escape";
    kinds.split(' ').any(|constant| kind.contains(constant))
}

/// Returns the range of an assertion, such as `assert…`, that could be constant. Returns `None` for assertions such as
/// `panic`, which fail only if they are reached.
fn assertion_range(word: &str, above: &[Node<'_>]) -> Option<Range<usize>> {
    const PARTS: &str = "assert_statement macro_invocation call call_expression method_invocation attribute member_expression \
                         selector_expression scoped_identifier";
    let could = word.to_ascii_lowercase().contains("assert") || word == "expect";
    let parts = above.iter().rev().take(DEEP).take_while(|node| could && is_one_of(PARTS, node.kind()));
    parts.last().map(Node::byte_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vacuous_tests_are_found_in_each_language() {
        for (language, text, hollow) in [
            (
                Language::Rust,
                "#[test]\nfn a() { let x = run(); } // assert\n#[test]\nfn b() { assert!(true); }\n#[tokio::test]\nasync fn c() {\n \
                 assert_eq!(run(), 1) }\n#[test]\n#[should_panic]\nfn d() { run() }\n#[test]\n#[ignore = \"x\"]\nfn e() { assert!(run()) }\n\
                 fn same(a: u8) { assert_eq!(a, run()) }\n#[test]\nfn f() { same(1) }\n#[test]\nfn g() { assert_eq!(1 + 1, 2, \"so\") }\n\
                 #[test]\nfn h() { match run() { 1 => {}, _ => panic!(\"no\") } }\n#[cfg(test)]\nfn help() {}\n",
                "a b e g",
            ),
            (
                Language::Python,
                "import pytest\ndef test_a():\n    run()  # assert\ndef test_b():\n    assert True\ndef test_c():\n    assert run() == 1\n\
                 @pytest.mark.skip\ndef test_d():\n    assert run()\ndef test_e():\n    with pytest.raises(ValueError):\n        run()\n\
                 class T:\n    def test_f(self):\n        self.assertTrue(True)\n    def test_g(self):\n        self.assertEqual(run(), 1)\n\
                 def test_h():\n    pytest.skip('x')\n    assert run()\n@pytest.fixture\ndef test_i():\n    return 1\n\
                 def test_j(m):\n    m.assert_called_once()\n",
                "test_a test_b test_d test_f test_h",
            ),
            (
                Language::JavaScript,
                "test('a', () => { run(); });\nit('b', () => { expect(true).toBe(true); });\nit('c', () => { expect(run()).toBe(1); });\n\
                 it.skip('d', () => { expect(run()).toBe(1); });\ndescribe.only('e', () => {});\ntest('f', () => { assert.throws(() => run()); });\n\
                 test('g', (t) => { t.skip(); assert.equal(run(), 1); });\n/x/.test('h');\n\
                 test('i', async () => { await request(app).get('/').expect(200); });\n",
                "a b d e g",
            ),
            (
                Language::Go,
                "package x\nfunc TestA(t *testing.T) { run() }\nfunc TestB(t *testing.T) { if run() != 1 { t.Fatal(\"x\") } }\n\
                 func TestC(t *testing.T) { t.Skip(\"x\"); t.Error(run()) }\nfunc TestD(t *testing.T) { assert.True(t, true) }\n\
                 func TestE(t *testing.T) { assert.Equal(t, 1, run()) }\nfunc TestMain(m *testing.M) { m.Run() }\n",
                "TestA TestC TestD",
            ),
            (
                Language::Java,
                "class T { @Test void a() { run(); } @Test void b() { assertEquals(1, run()); } @Test @Disabled void c() { assertTrue(run()); }\n\
                 @Test(expected = E.class) public void d() { run(); } @Test void e() { Assertions.assertTrue(true); } void help() {} }",
                "a c e",
            ),
        ] {
            let tests = audit_tests(language, text).unwrap();
            let names: Vec<&str> = tests.hollow.iter().map(|(name, ..)| name.as_str()).collect();
            assert_eq!(names.join(" "), hollow, "{language:?}");
        }
        let chain = format!("it('a', () => {{ {}; }});", "expect(1).".repeat(20_000) + "toBe(1)");
        assert!(audit_tests(Language::JavaScript, &chain).is_none_or(|tests| tests.hollow.is_empty()));
        let tests = audit_tests(Language::Rust, "// adds\n#[test]\nfn sums() { assert!(run()) }").unwrap();
        assert!(tests.contains_name("sums") && !tests.contains_name("adds"));
        let python = audit_tests(
            Language::Python,
            "class Sums:\n    def test_a(self):\n        assert run() == 'x'\n",
        );
        let has = |name| python.as_ref().unwrap().contains_name(name);
        assert!(has("Sums::test_a[1]") && !has("Others::test_a") && !has("est_a"));
        assert!(audit_tests(Language::Ruby, "x").is_none());
    }
}
