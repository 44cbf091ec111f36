use super::*;
use crate::documents::lld;

/// What is wrong with the names of a design whose §2.1 has these rows and whose §2.5 this text.
fn wrong(files: &[(&str, &str)], rows: &str, text: &str) -> Vec<String> {
    let design = format!(
        "# 1 - Feature: T\n\n### 2.1 Files Changed\n\n| File | Change Type | Description |\n|---|---|---|\n{rows}\n\n\
         ### 2.5 Logic Flow\n\n{text}\n"
    );
    let index = Index::of_texts(files.iter().copied());
    let tree = TreeIndex::new(files.iter().map(|(path, _)| *path));
    let mut symbols = Symbols::new(&index, &tree);
    lld::names(&design, &symbols);
    while !symbols.lacking().is_empty() {
        let text =
            |path: &String| files.iter().find(|(known, _)| known == path).map(|(_, text)| (*text).to_owned());
        let texts: Vec<_> = symbols.lacking().into_iter().map(|path| (path.clone(), text(&path))).collect();
        symbols.give(texts);
        lld::names(&design, &symbols);
    }
    lld::names(&design, &symbols).iter().map(ToString::to_string).collect()
}

const RUST: &[(&str, &str)] = &[
    ("Cargo.toml", "[package]\nname = \"tally-book\"\n"),
    ("src/lib.rs", "pub mod config;\nmod count;\npub use count::Count;\nmod inline { pub fn deep() {} }\n"),
    (
        "src/config.rs",
        "use std::fs;\npub struct Config { pub path: String }\n\nimpl Config {\n    pub fn read_settings(&self) -> u8 { 0 }\n}\n\n\
         pub fn load_file() -> Config { fs::read(\"\"); todo!() }\n",
    ),
    ("src/count/mod.rs", "pub struct Count;\npub mod words;\npub use words::*;\n"),
    ("src/count/words.rs", "pub fn split_words() {}\n#[cfg(test)]\nmod tests { use super::*; }\n"),
    ("src/row.rs", "#[derive(Builder)]\npub struct Row;\n"),
    ("src/broken.rs", "fn half( {{{\npub fn other() {}\n"),
    ("tests/all.rs", "use tally_book::Count;\n"),
];

const MODIFY: &str = "| `src/config.rs` | Modify | x |";

fn rust(text: &str) -> Vec<String> {
    wrong(RUST, MODIFY, text)
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let both = rust("Then `load_settings()` in `src/config.rs` reads `src/confg.rs`.");
    let path = "§2.5: `src/confg.rs` is named here, but it neither exists nor stands in 2.1; did you mean `src/config.rs`";
    assert!(both.len() == 2 && both[0].starts_with(path), "{both:?}");
    assert_eq!(
        both[1],
        "§2.5: `load_settings` is not in `src/config.rs`; did you mean `Config.read_settings (line 5)`? A \
         new one has its signature in 2.4 [names.symbol]"
    );
    for (text, name) in [
        ("`src/config.rs::load_settings`", "load_settings"),
        ("`src/config.rs#parse_all` is called", "parse_all"),
        ("A look at `src/config.rs`'s `parse_all`", "parse_all"),
        ("Add a call to the existing `parse_all()` in `src/config.rs`", "parse_all"),
        ("`Config::parse_all` in `src/config.rs` runs", "Config::parse_all"),
        ("`parse_all(path)` (`src/config.rs`) runs", "parse_all"),
        ("`part_words()` in `src/count/words.rs` runs", "part_words"),
    ] {
        let wrong = rust(text);
        assert!(wrong.len() == 1 && wrong[0].contains(&format!("`{name}` is not in")), "{text}: {wrong:?}");
    }
    let doubt = rust("`Config::parse_all` does the rest");
    assert!(doubt[0].contains("was not found in this repository"), "{doubt:?}");
}

#[test]
fn what_may_be_there_is_left_alone() {
    for fine in [
        "`load_file()` in `src/config.rs` is called, and `fs::read` there.",
        "Add `parse_all()` in `src/config.rs`.",
        "A new `parse_all()` in `src/config.rs`. `parse_all()` in `src/config.rs` is fast.",
        "`parse_all()` in `src/config.rs`\n\n```rust\npub fn parse_all(path: &str);\n```",
        "`whatever()` in `src/broken.rs` runs",
        "`unheard_of()` in `src/count/mod.rs` runs",
        "Call `unheard_of()` in `src/config.rs`. `Json::unheard_of()` in `src/config.rs` runs.",
        "`split_words()` in `src/config.rs` runs",
        "`RowBuilder` in `src/row.rs` is made",
        "`timeout` in `src/config.rs` counts",
        "`unheard_of()` runs, `serde_json::from_str` too, and `tokio::spawn(x)`.",
        "`Config::default()` is taken, `config.toml` is read, `docs.rs/tokio` too, `e.g.`",
        "There is no `src/confg.rs`, for example. `target/x.rs` is built. `src/**/*.rs`, `src/x.md`",
        "`parse_all()` in `src/absent.toml`, `https://x.org/src/a.rs`",
    ] {
        let wrong = rust(fine);
        let wrong: Vec<_> = wrong.iter().filter(|wrong| !wrong.contains("was not found")).collect();
        assert!(wrong.is_empty(), "{fine}: {wrong:?}");
    }
    let added = wrong(RUST, "| `src/new.rs` | Add | x |", "`run_all()` in `src/new.rs` runs.");
    assert_eq!(added, [""; 0]);
}

#[test]
fn imports_of_rust() {
    let import = |code: &str| rust(&format!("```rust\n{code}\n```"));
    let missing = |code: &str, module: &str| {
        let wrong = import(code);
        assert!(wrong.len() == 1 && wrong[0].contains(module), "{code}: {wrong:?}");
    };
    missing(
        "use crate::confg::Config;",
        "`crate::confg` is imported, but it neither exists nor is added in 2.1; did you mean `crate::config`?",
    );
    missing(
        "use crate::config::{Config, Settings};",
        "`Settings` is imported from `crate::config`, but `src/config.rs` has no such name",
    );
    missing("use tally_book::confg::Config;", "did you mean `tally_book::config`?");
    missing("use crate::config::load_fil;", "did you mean `load_file (line 8)`");
    for fine in [
        "use crate::config::{self, Config, load_file};",
        "use crate::count::{Count, words::split_words};",
        "use crate::inline::deep;",
        "use crate::count::made_by_glob;",
        "use crate::*;\nuse tally_book::load_file;",
        "use std::fmgt::Display;\nuse serde::Desreialize;\nuse tally::book;",
        "use super::anything::At;\nuse self::other::All;",
        "pub struct Settings;\nuse crate::config::Settings;",
        "use",
        "use crate",
        "use crate::;",
    ] {
        assert_eq!(import(fine), [""; 0], "{fine}");
    }
    let rows = "| `src/store` | Add (Directory) | x |\n| `src/store/mod.rs` | Add | x |";
    assert_eq!(wrong(RUST, rows, "```rust\nuse crate::store::deep::Store;\n```"), [""; 0]);
    let none = wrong(&[("src/a.py", "")], "| `src/a.py` | Modify | x |", "```rust\nuse crate::x::Y;\n```");
    assert_eq!(none, [""; 0], "there is no crate to be missing in");
}

#[test]
fn the_nearest_is_never_nonsense() {
    let wrong = rust("`zzgy_qqx()` in `src/config.rs` runs.");
    assert!(
        wrong[0].contains("; name one that is there, or give its signature in 2.4 if it is new"),
        "{wrong:?}"
    );
}

const PYTHON: &[(&str, &str)] = &[
    ("src/shop/__init__.py", "from .cart import Cart as Cart\n"),
    ("src/shop/cart.py", "class Cart:\n    def add_item(self, item):\n        pass\n"),
    ("src/shop/deep/inner.py", "def reach():\n    pass\n"),
    ("src/shop/lazy.py", "def __getattr__(name):\n    return name\n"),
    ("src/shop/native.pyx", ""),
    ("src/shop/models/__init__.py", "from .order import *\n"),
    ("src/shop/models/order.py", "class Order:\n    pass\n"),
];

#[test]
fn imports_of_python() {
    let import =
        |code: &str| wrong(PYTHON, "| `src/shop/cart.py` | Modify | x |", &format!("```python\n{code}\n```"));
    for (code, said) in [
        (
            "from shop.carts import Cart",
            "`shop.carts` is imported, but it neither exists nor is added in 2.1; did you mean `shop.cart`?",
        ),
        (
            "import shop.modles.order",
            "`shop.modles` is imported, but it neither exists nor is added in 2.1; did you mean `shop.models`",
        ),
        (
            "from shop.cart import Card",
            "`Card` is imported from `shop.cart`, but `src/shop/cart.py` has no such name; did you mean `Cart (line 1)`",
        ),
    ] {
        let wrong = import(code);
        assert!(wrong.len() == 1 && wrong[0].contains(said), "{code}: {wrong:?}");
    }
    for fine in [
        "from shop import Cart, cart, models, native, deep",
        "from shop.cart import Cart as Basket",
        "import shop.cart as c, os.pth",
        "from shop.lazy import anything",
        "from shop.models import Whatever",
        "from shop.deep.inner import reach",
        "from shop.deep.nothing import reach",
        "from shop._version import version",
        "from shop.native import fast",
        "from .anything import At\nfrom .. import all",
        "from shopping import x\nimport requests_toolbelt.nothing",
        "class Card:\n    pass\n\nfrom shop.cart import Card",
    ] {
        assert_eq!(import(fine), [""; 0], "{fine}");
    }
}

#[test]
fn imports_of_go() {
    let files = [
        ("go.mod", "module example.org/shop\n\ngo 1.22\n"),
        ("cart/cart.go", "package cart\n\nfunc Add() {}\n"),
        ("tools/go.mod", "module example.org/shop/tools\n"),
        ("tools/lint/lint.go", "package lint\n"),
    ];
    let import = |code: &str| {
        wrong(&files, "| `cart/cart.go` | Modify | x |", &format!("```go\npackage x\n\n{code}\n```"))
    };
    let missing = import("import (\n\t\"fmt\"\n\t\"example.org/shop/carts\"\n)");
    let said = "`example.org/shop/carts` is imported, but it neither exists nor is added in 2.1; did you mean `example.org/shop/cart`?";
    assert!(missing.len() == 1 && missing[0].contains(said), "{missing:?}");
    let fine = import(
        "import (\n\t\"example.org/shop\"\n\tc \"example.org/shop/cart\"\n\t\"example.org/shop/tools/lint\"\n\t\"example.org/shopping/x\"\n)",
    );
    assert_eq!(fine, [""; 0]);
}

#[test]
fn imports_of_scripts() {
    let files = [
        ("web/src/app.ts", "import './style.css'\n"),
        ("web/src/cart.ts", "export function addItem(): void {}\n"),
        ("web/src/all.ts", "export * from './cart'\n"),
        ("web/src/parts/index.tsx", "export const Part = 1\n"),
        ("web/src/style.css", ""),
    ];
    let import =
        |code: &str| wrong(&files, "| `web/src/app.ts` | Modify | x |", &format!("```ts\n{code}\n```"));
    for (code, said) in [
        (
            "import { addItem } from './carts'",
            "`./carts` is imported, but it neither exists nor is added in 2.1; did you mean `./cart`",
        ),
        (
            "import { addItems } from './cart.js'",
            "`addItems` is imported from `./cart.js`, but `web/src/cart.ts` has no such name; did you mean `addItem (line 1)`",
        ),
    ] {
        let wrong = import(code);
        assert!(wrong.len() == 1 && wrong[0].contains(said), "{code}: {wrong:?}");
    }
    for fine in [
        "import { addItem as add } from './cart'",
        "import { anything } from './all'",
        "import { Part } from './parts'\nimport anyName from './parts/index'",
        "import './style.css'\nimport type { X } from 'vitee'\nimport y from '@/nowhere'",
        "import raw from './nothing?raw'\nimport './carts.css'\nimport { x } from './zzgy'",
        "import z from '../../../../etc/passwd'",
    ] {
        assert_eq!(import(fine), [""; 0], "{fine}");
    }
}
