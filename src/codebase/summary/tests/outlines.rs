//! Tests for outlines, and for parsing with blanked bodies.

use super::*;

#[test]
fn markdown_outline_ignores_headings_in_code_fences() {
    let text = "---\ntitle: x\n# none\n---\n# One #\n\n```sh\n# none\n```\n~~~~\n```\n## none\n~~~~\n\nTwo\n===\n\n## Three\n\
                \n    # none\n<!--\n# none\n-->\nword\nmore\n\n#none\r\n### Four\r\n";
    insta::assert_snapshot!(page(Language::Markdown, text), @r"
    Section One
    Section Two { Section Three { Section Four } }
    ");
    let summary = summarize(Language::Markdown, text);
    assert_eq!((summary.items[0].line, summary.items[0].end), (5, 14));
}

#[test]
fn outline_of_a_config_file_lists_only_top_level_keys() {
    for (language, text, names) in [
        (
            Language::Toml,
            "\u{feff}a = 1\n[package]\nx = 2\nl = [\n[1, 2],\n]\n[[bin]] # c\n",
            "a package bin",
        ),
        (
            Language::Yaml,
            "# a: 1\non:\n  push:\njobs: {}\n- x: 1\nhttp://x\n\"a b\": |\n  text: 1\n",
            "on jobs a b",
        ),
        (Language::Json, "{\n  \"a\": {\n    \"b\": 1\n  },\n  \"c\":2\n}\n", "a c"),
        (Language::Json, "[\n  {\n    \"b\": 1\n  }\n]\n", ""),
        (Language::Makefile, "all: test\n", ""),
        (Language::Other, "fun main() {\n}\n", ""),
    ] {
        let summary = summarize(language, text);
        assert_exact(text, &summary);
        let found: Vec<&str> = summary.items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(found.join(" "), names, "{text}");
    }
    let text = "{\n  \"a\": {\n    \"b\": 1\n  },\n  \"c\": 2\n}\n";
    let ends: Vec<u32> = summarize(Language::Json, text).items.iter().map(|item| item.end).collect();
    assert_eq!(ends, [4, 6]);
}

#[test]
fn outlines_of_truncated_texts_are_exact_and_outlines_of_long_texts_are_limited() {
    let text = "# é\n```\n{\"a\\\": {\n[[x\n'''\n\"\"\"\nk: v\n<!--\n".repeat(3);
    for language in [Language::Json, Language::Markdown, Language::Toml, Language::Yaml] {
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert_exact(&text[..end], &summarize(language, &text[..end]));
        }
        let many = "{\n# h\n[t]\nk: v\n\"l\": 1,\n".repeat(limits::SUMMARY_ITEMS + 1);
        let summary = summarize(language, &many);
        assert!(summary.partial && kept(&summary) <= kept_bytes_limit(&many), "{language:?}");
    }
}

/// Summarizes a text without first blanking its function bodies.
fn whole(language: Language, text: &str) -> Summary {
    let grammar = grammar::grammar_for(language).unwrap();
    parse::begin_file(grammar, text);
    let tree = parse::parse_ranges(grammar, text, &[]).unwrap();
    walk::read_tree(grammar, SourceText { text, seen: text }, tree.root_node())
}

fn without_bodies(language: Language, text: &str) -> String {
    let grammar = grammar::grammar_for(language).unwrap();
    bodies::blank_bodies(language, grammar.heads, grammar.import_words, text)
}

#[test]
fn summary_is_unchanged_when_function_bodies_are_blanked() {
    for (language, text) in FIXTURES {
        assert_eq!(without_bodies(*language, text).len(), text.len());
        let whole = whole(*language, text);
        if !whole.partial {
            assert_eq!(summarize(*language, text), whole, "{language:?}");
        }
    }
    for (language, text) in [
        (Language::C, "int f(int a)\n{\n#if A\n    body(1, 2);\nagain:\n    body(3, 4);\n#endif\n}\n"),
        (Language::Cpp, "template <class T>\nA::A(T a)\n    : b(a) {\n  body(1, 2);\n}\n"),
        (
            Language::CSharp,
            "class A {\n  [B(typeof(C))]\n  void F<T>()\n    where T : class\n  {\n    body(1, 2);\n  }\n}\n",
        ),
        (Language::Go, "package a\n\nfunc f(\n\ta int,\n) (b int) {\n\tx := `\n}\n`\n\tbody(1, 2)\n}\n"),
        (Language::Java, "class A {\n  @B(C.class)\n  void f()\n      throws D {\n    body(1, 2);\n  }\n}\n"),
        (Language::JavaScript, "const f = async (a) => {\n  body(1, 2)\n}\n"),
        (Language::Php, "<?php\nfunction f($a)\n{\n    body(1, 2);\n}\n"),
        (
            Language::Python,
            "async def f(\n    a: int = (1),\n) -> b:\n    '''Says.'''\n    # Why.\n    body(1, 2)\n",
        ),
        (Language::Ruby, "  private def f(a)\n    body(1, 2)\n  end\n"),
        (Language::Rust, "pub fn f<T>(a: impl B) -> u8\nwhere\n    T: C,\n{\n    body(1, 2)\n}\n"),
    ] {
        assert!(!without_bodies(language, text).contains("body"), "{language:?}");
        let found = summarize(language, text);
        assert_exact(text, &found);
        assert_eq!(found, whole(language, text), "{language:?}");
    }
}

#[test]
fn unusual_code_layout_is_summarized_with_correct_line_numbers() {
    for (language, text) in [
        // One brace is missing and another is surplus.
        (
            Language::Java,
            "class A {\n  void f() {\n    if (x) {\n      a = a + 1;\n  }\n  void g() { b(); }\n}\n}\n",
        ),
        (Language::Java, "class A {\n  @X(a = 1)\n  class B {\n    int c;\n  }\n}\n"),
        (Language::Go, "package a\n\nfunc f() {\n\tx := `\n}\nfunc none() {\n`\n}\n\nfunc g() {}\n"),
        (
            Language::C,
            "#if A\nvoid f(int a) {\n#else\nvoid f(long a) {\n#endif\n  a = 1 + 2 + 3;\n}\nint b;\n",
        ),
        (Language::C, "struct __attribute__((packed)) {\n  int first, second;\n} name;\n"),
        (Language::CSharp, "class A {\n  [B(\"c\")]\n  public int D\n  {\n    get { return 1; }\n  }\n}\n"),
        (
            Language::Cpp,
            "void f() {\n    printf(\"%\" PRIxPTR\" (%s)\\n\", (uintptr_t)p, s);\nagain:\n    go();\n}\nint b;\n",
        ),
        (Language::Rust, "impl A for fn(u8) {\n    fn b() {\n        use c::d;\n        d()\n    }\n}\n"),
        (
            Language::Python,
            "def f():\n    x = \"\"\"\ndef none():\n    pass\n\"\"\"\n    return x\n\ndef g(): pass\n",
        ),
        (Language::Python, "def f():\n    '''Says.'''\n    if x:\n        return y\n\nclass A:\n    b = 1\n"),
        (Language::Python, "def f(): pass\n\nclass A:\n    b = 1\n    def c(d,\n          e): pass\n"),
        (
            Language::JavaScript,
            "const a = b(1)\nfunction c() { return a + a + a }\nmodule.exports = {\n  c,\n}\n",
        ),
        (Language::Ruby, "def f\n  <<~A\n  b\nA\nend\n\nclass B\n  def c = 1\nend\n"),
        (Language::TypeScript, "interface A {\n  b(c: {\n    d: string\n  }): void\n  e: number\n}\n"),
    ] {
        let (found, whole) = (summarize(language, text), whole(language, text));
        assert_exact(text, &found);
        if !whole.partial {
            assert_eq!(found, whole, "{text}");
        }
    }
}

#[test]
fn cpp_item_names_are_correct_next_to_unknown_macros() {
    for (text, names) in [
        ("API_EXPORT int f(LONG_MACRO struct s x);\n", "f"),
        ("BEGIN_NAMESPACE\nclass API A : B {\n  API ~A();\n  UINT32 x;\n};\n", "A ~A x"),
        ("void *NO_THROW f(int x) ATTRIBUTE(a, b);\nFILE *g(DWORD x);\n", "f g"),
        ("#ifdef __cplusplus\nextern \"C\" {\n#endif\nint f(void);\n#ifdef __cplusplus\n}\n#endif\n", "f"),
        ("void f(specs s = {}, int b);\n", "f"),
    ] {
        let summary = summarize(Language::Cpp, text);
        assert_exact(text, &summary);
        let found: Vec<&str> = all(&summary).into_iter().map(|item| item.name.as_str()).collect();
        assert_eq!((found.join(" "), summary.partial), (names.to_owned(), false), "{text}");
    }
}

#[test]
fn used_names_include_callees_path_roots_and_capitalized_words() {
    let text = "use aa::bb; // Not (this)\nlet c = Some(dd::ee(\"And (not) this\"), ff);\n * Nor this()\n";
    assert_eq!(summarize_with_uses(Language::Rust, text).1, ["Some", "aa", "dd", "ee"]);
}
