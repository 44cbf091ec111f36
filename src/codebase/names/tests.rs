use super::*;

fn with<T>(files: &[(&str, &str)], look: impl FnOnce(&CodebaseNames<'_>) -> T) -> T {
    let index = Index::from_texts(files.iter().copied());
    let tree = TreeIndex::new(files.iter().map(|(path, _)| *path));
    let go = files.iter().filter(|(path, _)| *path == "go.mod").map(|(_, text)| (*text).to_owned());
    let (go, unread) = (go.collect::<Vec<_>>(), ["func made_by_tool() {}".to_owned()]);
    look(&CodebaseNames::new(&index, &tree, &go).with_unindexed_texts(&unread, true))
}

const FILES: &[(&str, &str)] = &[
    (".gitignore", "dist/\ndocs/_build/\n"),
    ("Cargo.toml", ""),
    ("docs/guide.md", "Set `retry_limit`."),
    ("src/lib.rs", "mod parse;\npub mod report {}\npub struct TcpStream;\nconst GET_ALL: u8 = 1;\n"),
    ("src/parse.rs", "pub fn duration_of(text: &str) { get_nodelay(text) }\n"),
    ("src/store/row.rs", "pub struct Row;\n"),
];

#[test]
fn has_word_matches_whole_words_in_files_of_any_type() {
    with(FILES, |names| {
        for word in ["duration_of", "retry_limit", "made_by_tool", "store", "guide", "text"] {
            assert!(names.has_word(word), "{word}");
        }
        for word in ["made_by", "Duration_of", "limit", "rows"] {
            assert!(!names.has_word(word), "{word}");
        }
        assert!(
            names.defines_name("TcpStream")
                && names.defines_name("store")
                && !names.defines_name("duration_of")
        );
    });
}

#[test]
fn may_contain_accepts_path_suffixes_and_paths_in_ignored_folders() {
    with(FILES, |names| {
        for path in
            ["src/store", "store/row.rs", "src/store/", "dist/a.js", "docs/_build/x.html", "src/dist/a"]
        {
            assert!(names.may_contain(path), "{path}");
        }
        for path in ["src/stores/row.rs", "docs/gone.md", "tore/row.rs", "src/parse"] {
            assert!(!names.may_contain(path), "{path}");
        }
    });
}

#[test]
fn closest_name_suggests_a_name_only_for_a_likely_typo() {
    with(FILES, |names| {
        for (word, real) in [
            ("duratoin_of", "duration_of (src/parse.rs:1)"),
            ("durationOf", "duration_of (src/parse.rs:1)"),
            ("TcpStreem", "TcpStream (src/lib.rs:3)"),
            ("get_no_delay", "get_nodelay (src/parse.rs)"),
        ] {
            assert_eq!(names.closest_name(word).as_deref(), Some(real), "{word}");
        }
        for word in
            ["set_nodelay", "durations_of", "tcpStream", "get_all", "TcpStream2", "ro", "whatever", ""]
        {
            assert_eq!(names.closest_name(word), None, "{word}");
        }
    });
}

/// Returns the imports that do not resolve, each with the most similar existing name.
fn unresolved(files: &[(&str, &str)], tag: &str, code: &str) -> Vec<(String, Option<String>)> {
    let rows = [
        "src/lib.rs",
        "src/new.rs",
        "app/a.ts",
        "shop/basket.py",
        "main.go",
        "src/main/java/org/shop/Basket.java",
    ];
    let found = with(files, |names| names.unresolved_imports(tag, code, &rows));
    found.into_iter().map(|stray| (stray.name, stray.nearest)).collect()
}

#[test]
fn imports_are_resolved_in_five_languages() {
    let none: [(String, Option<String>); 0] = [];
    let rust = "use crate::parse::duration_of;\nuse crate::report::x_y_z;\nuse crate::new::Thing;\nuse std::gone::far;\n";
    assert_eq!(unresolved(FILES, "rust", rust), [("x_y_z".into(), None), ("Thing".into(), None)]);
    let nowhere = unresolved(FILES, "rs", "use crate::prase::{a, b};\n");
    assert_eq!(nowhere, [("prase".into(), Some("crate::parse".into()))]);

    let python =
        &[("shop/__init__.py", ""), ("shop/basket.py", "total = 1\n"), ("shop/json/__init__.py", "")];
    let sound = "from .basket import total\nfrom shop.basket import total\nfrom json.decoder import a_b\nimport os.path\n";
    assert_eq!(unresolved(python, "python", sound), none);
    let wrong = unresolved(python, "py", "from .baskte import total\nfrom shop.gone import total\n");
    assert_eq!(wrong, [("baskte".into(), Some(".basket".into())), ("gone".into(), None)]);

    let script = &[("app/a.ts", ""), ("app/util.ts", "export const sum = 1\n"), ("app/b/index.ts", "")];
    let sound =
        "import { sum } from './util.js'\nimport './b'\nimport x from 'react'\nimport y from './util?raw'\n";
    assert_eq!(unresolved(script, "ts", sound), none);
    let wrong =
        unresolved(script, "javascript", "import { sum } from './utils'\nimport '../../../../../../far'\n");
    assert_eq!(wrong, [("utils".into(), Some("./util".into()))]);

    let go = &[("go.mod", "module example.com/shop\n"), ("main.go", ""), ("internal/cart/cart.go", "")];
    let code = |path: &str| format!("import (\n\t\"fmt\"\n\t\"example.com/{path}\"\n)\n");
    assert_eq!(unresolved(go, "go", &code("shop/internal/cart")), none);
    assert_eq!(unresolved(go, "go", &code("other/internal/crat")), none);
    let near = Some("example.com/shop/internal/cart".to_owned());
    assert_eq!(unresolved(go, "golang", &code("shop/internal/carts")), [("carts".into(), near)]);

    let java = &[("src/main/java/org/shop/Basket.java", "class Basket {}")];
    assert_eq!(unresolved(java, "java", "import org.shop.Basket;\nimport java.util.List;\n"), none);
    let near = Some("org.shop.Basket".to_owned());
    assert_eq!(unresolved(java, "java", "import org.shop.Baskte;\n"), [("Baskte".into(), near)]);
}

#[test]
fn hostile_imports_do_not_panic() {
    let long = "a::b.c/".repeat(1_000);
    for tag in ["rust", "python", "ts", "go", "java", "c", "", "é"] {
        for module in ["", ".", "..", "/", "::", "../../../..", "super::super", "crate", "é.ü", &long] {
            for code in
                [format!("use {module};"), format!("from {module} import é"), format!("import \"{module}\"")]
            {
                unresolved(FILES, tag, &code);
            }
        }
    }
}
