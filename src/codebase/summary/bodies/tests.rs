use super::*;
use crate::codebase::summary::{Summary, grammar, parse, read, source::Source, tests, walk};

/// A text of each language with what looks like a body and is none, or ends a body and does not.
pub(in crate::codebase::summary) const TEXTS: &[(Language, usize, &str)] = &[
    (Language::Go, 4, include_str!("samples/bodies.go")),
    (Language::Java, 7, include_str!("samples/Bodies.java")),
    (Language::CSharp, 7, include_str!("samples/Bodies.cs")),
    (Language::C, 3, include_str!("samples/bodies.c")),
    (Language::Cpp, 6, include_str!("samples/bodies.cpp")),
];

/// With the whole text given to the parser.
fn whole(language: Language, text: &str) -> (Summary, Vec<String>) {
    let grammar = grammar::of(language).unwrap();
    let (tree, _) = parse::fused(|| parse::part(grammar, text, &[]).unwrap());
    walk::read(grammar, Source { text, seen: text }, tree.root_node(), Vec::new())
}

#[test]
fn without_bodies_the_same_is_found() {
    for (language, bodies, text) in TEXTS {
        let left_out = left_out(*language, text).unwrap_or_else(|| panic!("{language:?}"));
        assert_eq!(left_out.rest.len() - 1, *bodies, "{language:?}: {:#?}", left_out.rest);
        let (plain, names) = whole(*language, text);
        assert!(!plain.partial, "{language:?}");
        let (summary, uses) = read(*language, text);
        tests::assert_exact(text, &summary);
        assert_eq!(summary, plain, "{language:?}");
        for name in names.iter().filter(|name| name.starts_with("used") || name.starts_with("Used")) {
            assert!(uses.contains(name), "{language:?} lacks {name}");
        }
        assert!(uses.iter().all(|name| !name.starts_with("hidden")), "{language:?}: {uses:?}");
    }
}

#[test]
fn what_is_doubtful_is_left_to_the_parser() {
    let long = "a = a + 1; b = b + 2; c = c + 3; d = d + 4;";
    for (language, text) in [
        // A brace is missing, and another one is too many.
        (
            Language::Java,
            format!(
                "class A {{\n  void f() {{\n    if (x) {{\n      {long}\n  }}\n  void g() {{ {long} }}\n}}\n}}\n"
            ),
        ),
        (Language::Java, format!("class A {{\n  void f() {{ {long} \n")),
        (Language::Go, format!("func f() {{\n\t{long}\n\tx := `\n}}\n")),
        (
            Language::C,
            format!("void f() {{\n#if A\n  if (a) {{\n#else\n  if (b) {{\n#endif\n    {long}\n  }}\n}}\n"),
        ),
        (Language::C, format!("#if A\nvoid f(int a) {{\n#else\nvoid f(long a) {{\n#endif\n  {long}\n}}\n")),
        (Language::C, format!("void f() {{\n  {long} // a \\\n  }}\n}}\n")),
        (Language::CSharp, format!("class A {{ void f() {{\n  {long} x = $\"{{a[\"}}\"]}}\";\n}} }}\n")),
        (Language::Cpp, format!("void f() {{\n  {long} x = R\"(\n}}\n")),
        (Language::Rust, format!("fn f() {{\n  {long}\n}}\n")),
    ] {
        assert!(left_out(language, &text).is_none(), "{text}");
        tests::assert_exact(&text, &read(language, &text).0);
    }
}

#[test]
fn what_looks_like_something_else_ends_no_body() {
    for (language, text, items) in [
        // No raw string, though a word before the quote ends like one's.
        (
            Language::Cpp,
            "void a(void *p, const char *s) {\n    printf(\"%\" PRIxPTR\" (%s)\\n\", (uintptr_t)p, s);\n}\n\
             int b(int x) {\n    std::cout << \"(\" << x << \") \" << std::endl;\n    return x;\n}\n",
            2,
        ),
        // Looked at twice, since it may be behind `template <…>`.
        (
            Language::Cpp,
            "template /* a comment that is long enough to be left out of the text */ class A<int>;\n\
             int b(int x) {\n    return used(x, 1, 2, 3, 4, 5, 6, 7, 8, 9);\n}\n",
            1,
        ),
        // A line goes on after a backslash in C, and here it does not.
        (
            Language::CSharp,
            "#region C:\\temp\\\npublic class A {\n    int F(int x) { return G(x, 1, 2, 3, 4, 5, 6, 7); }\n}\n#endregion\n",
            1,
        ),
    ] {
        let (summary, _) = read(language, text);
        assert_eq!(summary.items, whole(language, text).0.items, "{text}");
        assert_eq!(summary.items.len(), items, "{text}");
    }
}

#[test]
fn of_many_bodies_the_last_are_parsed() {
    let body = "func f() {\n\tsomethingThatIsLongEnoughToBeLeftOut(1, 2, 3)\n}\n";
    let text = format!("package a\n{}", body.repeat(limits::SUMMARY_GAPS + 100));
    assert_eq!(left_out(Language::Go, &text).unwrap().rest.len(), limits::SUMMARY_GAPS + 1);
    assert_eq!(read(Language::Go, &text).0.items.len(), limits::SUMMARY_GAPS + 100);
}

#[test]
fn keywords_are_in_order() {
    assert!(KEYWORDS.is_sorted());
}
