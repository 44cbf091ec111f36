use super::super::tests::{assert_exact, outline};
use crate::codebase::{Language, summary::summarize};

#[test]
fn markdown_headings_stand_outside_of_fences() {
    let text = "---\ntitle: x\n# none\n---\n# One #\n\n```sh\n# none\n```\n~~~~\n```\n## none\n~~~~\nTwo\n===\n\n## Three\n\
                \n    # none\n<!--\n# none\n-->\nword\nmore\n---\n#none\r\n### Four\r\n";
    insta::assert_snapshot!(outline(Language::Markdown, text), @r"
    Section One
    Section Two
      Section Three
        Section Four
    ");
    let summary = summarize(Language::Markdown, text);
    assert_eq!((summary.items[0].line, summary.items[0].end), (5, 13));
}

#[test]
fn keys_tables_and_targets() {
    insta::assert_snapshot!(outline(Language::Toml, "\u{feff}a = 1\n[package]\nx = '''\n[none]\n'''\nl = [\n[1, 2],\n]\n[[bin]] # c\n"), @r"
    Section package
    Section bin
    ");
    insta::assert_snapshot!(outline(Language::Yaml, "# a: 1\non:\n  push:\njobs: {}\n- x: 1\nhttp://x\n\"quoted key\": |\n  text: 1\n"), @r"
    Section on
    Section jobs
    Section quoted key
    ");
    insta::assert_snapshot!(outline(Language::Json, "{\"a\": 1, // \"none\": 2\n \"b\\\"c\" : {\"d\": [\"e\", {}]},\n\"f\": \"g\"}"), @r#"
    Section a
    Section b\"c
    Section f
    "#);
    insta::assert_snapshot!(outline(Language::Makefile, "include a.mk\nX := 1\n.PHONY: all\nall test: \\\n  dep: x\n\trun: y\n$(X): z\n%.o: %.c\n"), @r"
    Section all
    Section test
    Section %.o
    ");
}

#[test]
fn definitions_of_many_languages() {
    let kotlin = "package a.b\nimport a.b.C\n/* class None\n fun none() */\nclass of things\n@Ann(\"x\") data class User(val a: Int)\n\
                  sealed interface Shape\nenum class Color { RED }\nobject Single : Base() {\n    private suspend fun <T> List<T>.each(f: (T) -> Unit) {\n\
                  \x20   fun `says this`() = 1\n}\nfun String.name(): Int = 1\nconst val MAX = 1\ntypealias A = B\nval x = \"\"\"\nclass None\n\"\"\"\n";
    insta::assert_snapshot!(outline(Language::Other, kotlin), @r"
    Module a.b
    Type User
    Interface Shape
    Enum Color
    Type Single
      Method each -
      Method says this
    Function name
    Constant MAX
    Alias A
    Constant x
    ");
    assert_eq!(summarize(Language::Other, kotlin).imports[0].module, "a.b.C");
    insta::assert_snapshot!(outline(Language::Other, "syntax = \"proto3\";\nimport \"a/b.proto\";\nmessage A {\n  enum K {\n  message B {}\n}\nservice S {\n  rpc Get(A) returns (B);\n"), @r"
    Type A
      Enum K
      Type B
    Module S
      Method Get
    ");
    insta::assert_snapshot!(outline(Language::Other, "create table if not exists a.users (\nCREATE OR REPLACE FUNCTION f(x int)\ncreate unique index i on t(x);\nselect x\nfrom y\n"), @r"
    Type a.users
    Function f
    Section i
    ");
    insta::assert_snapshot!(outline(Language::Other, "# c\nFROM rust:1 AS build\nRUN x\nfrom debian\n"), @r"
    Section build
    Section debian
    ");
    insta::assert_snapshot!(outline(Language::Other, "resource \"aws_vpc\" \"main\" {\n  x \"y\" {\n  }\n}\nlocal function f(a)\nfunction M:g(x)\nsub h {\ndefmodule A.B do\n  defp go(x), do: x\nextension Foo: Bar {\n  public static func == (a: A) {\n  func go<T>(a: T)\n"), @r"
    Section resource.aws_vpc.main
      Section x.y
    Function f -
    Function g
    Function h
    Module A.B
      Method go -
    Extension Foo
      Method go
    ");
}

#[test]
fn prose_and_styles_define_nothing() {
    let text = "class of things to do.\nfunction returns a value\ntype of x\nimport the file first\nlet us go\n.class { color: red }\n\
                create a table for it\nenum is fine\nenumerate\n@media x {\nmodule that holds\n";
    assert_eq!(outline(Language::Other, text), "");
}

#[test]
fn what_is_cut_off_or_long_does_not_break_it() {
    let text = "# é\n```\n{\"a\\\": {\n[[x\n'''\n\"\"\"\nclass A(\nfun `x\n<!--\n".repeat(3);
    let long = format!("class A {{{}\n", " ".repeat(100_000));
    for language in [
        Language::Json,
        Language::Makefile,
        Language::Markdown,
        Language::Toml,
        Language::Yaml,
        Language::Other,
    ] {
        for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert_exact(&text[..end], &summarize(language, &text[..end]));
        }
        assert_exact(&long, &summarize(language, &long));
        let many = "class A {\n# h\n[t]\nk: v\n".repeat(5_000);
        assert!(summarize(language, &many).partial || language == Language::Json);
    }
}
