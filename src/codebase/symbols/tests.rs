use super::*;
use crate::{
    documents::{Mistake, lld},
    limits,
};

/// What is wrong with the names of a design whose §2.1 has these rows and whose §2.5 this text.
fn judged(files: &[(&str, &str)], outside: &Outside, rows: &str, text: &str) -> Vec<Mistake> {
    let design = format!(
        "# 1 - Feature: T\n\n### 2.1 Files Changed\n\n| File | Change Type | Description |\n|---|---|---|\n{rows}\n\n\
         ### 2.5 Logic Flow\n\n{text}\n"
    );
    let index = Index::of_texts(files.iter().copied());
    let tree = TreeIndex::new(files.iter().map(|(path, _)| *path));
    lld::names(&design, &Symbols::new(&index, &tree, outside))
}

fn outside(files: &[(&str, &str)]) -> Outside {
    Outside::new(Vec::new(), files.iter().copied().filter(|(path, _)| Outside::is_told_by(path)), true)
}

fn wrong(files: &[(&str, &str)], rows: &str, text: &str) -> Vec<String> {
    judged(files, &outside(files), rows, text).iter().map(ToString::to_string).collect()
}

/// The errors, and then the warnings.
fn weighed(files: &[(&str, &str)], text: &str) -> (Vec<String>, Vec<String>) {
    let (path, _) = files[0];
    let (errors, warnings): (Vec<_>, Vec<_>) =
        judged(files, &outside(files), &format!("| `{path}` | Modify | x |"), text)
            .into_iter()
            .partition(Mistake::is_error);
    let about = |mistakes: Vec<Mistake>| mistakes.into_iter().filter_map(|mistake| mistake.about).collect();
    (about(errors), about(warnings))
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
        "`RowBuilder` in `src/row.rs` is made",
        "`timeout` in `src/config.rs` counts",
        "`unheard_of()` runs, `serde_json::from_str` too, and `tokio::spawn(x)`.",
        "`Config::default()` is taken, `config.toml` is read, `docs.rs/tokio` too, `e.g.`",
        "There is no `src/confg.rs`, for example. `target/x.rs` is built. `src/**/*.rs`, `src/x.md`",
        "`parse_all()` in `src/absent.toml`, `https://x.org/src/a.rs`",
    ] {
        assert_eq!(rust(fine), [""; 0], "{fine}");
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
        ("from shop.deep.nothing import reach", "`shop.deep.nothing` is imported"),
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

#[test]
fn only_what_is_sure_sends_a_design_back() {
    let files = [RUST[2], RUST[0], RUST[1], RUST[3], RUST[4], RUST[5]];
    let weighed = |text: &str| weighed(&files, text);
    let one = |about: &str| vec![about.to_owned()];
    for sure in
        ["`load_settings()` in `src/config.rs` runs.", "`load_settings()` is defined in `src/config.rs`."]
    {
        assert_eq!(weighed(sure), (one("src/config.rs load_settings"), vec![]), "{sure}");
    }
    assert_eq!(
        weighed("The existing `parse_all()` in `src/config.rs` runs."),
        (one("src/config.rs parse_all"), vec![])
    );
    // A library's, or another file's: who knows.
    for unsure in ["read_to_string", "split_words", "parse_all"] {
        let text = format!("`{unsure}()` in `src/config.rs` runs.");
        assert_eq!(weighed(&text), (vec![], one(&format!("src/config.rs {unsure}"))), "{unsure}");
    }
    let (_, told) = weighed("A `BTreeMap` in `src/config.rs` keeps the order.");
    assert_eq!(told, ["src/config.rs BTreeMap"]);
    // Slips of one name, whoever is said to have it.
    assert_eq!(weighed("It calls `split_wrods()`.").0, Vec::<String>::new(), "two letters are no slip");
    assert_eq!(weighed("It calls `split_word()`."), (one("split_word"), vec![]));
    assert_eq!(weighed("It calls `splitWords()`."), (one("splitWords"), vec![]));
    assert_eq!(weighed("There is `split_word()`."), (vec![], one("split_word")));
    assert_eq!(weighed("`Config::read_setting()` is called."), (one("Config::read_setting"), vec![]));
    assert_eq!(weighed("`Config::parse_all()` is called."), (vec![], one("Config::parse_all")));
    assert_eq!(weighed("`config.load_fil()` is called."), (one("config.load_fil"), vec![]));
    assert_eq!(weighed("`count.load_fil()` is called."), (one("count.load_fil"), vec![]));
    assert_eq!(weighed("`serde.load_fil()` is called."), (vec![], one("serde.load_fil")));
}

#[test]
fn what_a_type_has_from_elsewhere_is_left_alone() {
    let files: &[(&str, &str)] = &[
        (
            "shop/cart.py",
            "class Cart(Base):\n    def add_item(self):\n        pass\n\nclass Plain:\n    def add_item(self):\n        pass\n",
        ),
        ("web/cart.ts", "export class Cart {\n  addItem(): void {}\n}\n"),
        (
            "cart/cart.go",
            "package cart\n\ntype Store struct {\n\tsync.Mutex\n\tsize int\n}\n\ntype Row struct {\n\tsize int\n}\n",
        ),
        ("cart/row.go", "package cart\n\nfunc (r *Row) Total() int { return 0 }\n"),
        ("Till.java", "@Data\npublic class Till {\n  int total;\n}\n"),
        ("Drawer.java", "public class Drawer {\n  int openDrawer() { return 0; }\n}\n"),
        ("OpenDatabases.cs", "public partial class OpenDatabases {\n  int Size;\n}\n"),
        ("Bag.php", "<?php\nclass Bag {\n    use Sells;\n    function take() {}\n}\n"),
        ("bin.rb", "class Bin\n  include Sellable\n  def take\n  end\nend\n"),
        ("box.c", "struct Box { int size; };\nint open_box(struct Box *box) { return 0; }\n"),
        ("src/row.rs", "#[derive(Parser)]\npub struct Args { path: String }\n"),
    ];
    for fine in [
        "`Cart.save_all()` is called, `Cart.delete()` too.",
        "`Store.TryLock()` is called. `Row.Total()` is called.",
        "`Till.getTotal()` and `Till.hashCode()` are called.",
        "`OpenDatabases.Lift()`, `Bag::sellAll()` and `Bin#sell_all` are called.",
        "`Args::try_parse()` is called. `try_parse()` in `src/row.rs` is called.",
        "`Plain.__init__()` is called.",
    ] {
        assert_eq!(weighed(files, fine), (vec![], vec![]), "{fine}");
    }
    for (text, about) in [
        ("`Plain.add_items()` is called.", "Plain.add_items"),
        ("`web/cart.ts#addItems` is called.", "web/cart.ts addItems"),
        ("`Row.Totals()` is called.", "Row.Totals"),
        ("`Drawer.openDrawers()` is called.", "Drawer.openDrawers"),
        ("`shop/cart.py#add_items` is called.", "shop/cart.py add_items"),
    ] {
        let (errors, warnings) = weighed(files, text);
        let all: Vec<_> = errors.iter().chain(&warnings).collect();
        assert_eq!(all, [about], "{text}");
    }
    let (errors, _) = weighed(files, "`open_boxes()` is defined in `cart/row.go`.");
    assert_eq!(errors, ["cart/row.go open_boxes"]);
}

#[test]
fn what_a_build_makes_or_another_repository_has_is_not_missed() {
    let files: &[(&str, &str)] = &[
        ("src/lib.rs", "pub mod config;\n"),
        ("src/config.rs", "pub fn load() {}\n"),
        ("src/pb.rs", "tonic::include_proto!(\"shop\");\n"),
        ("src/entity.rs", "#[derive(DeriveEntityModel)]\npub struct Model { id: u8 }\n"),
        (".gitignore", "*.log\n/src/gen/\ngenerated\n"),
        ("go.mod", "module example.org/shop\n"),
        ("cart/cart.go", "package cart\n"),
    ];
    let told = Outside::new(
        ["vendor/lib".to_owned()],
        files.iter().copied().filter(|(path, _)| Outside::is_told_by(path)),
        true,
    );
    let rows = "| `src/config.rs` | Modify | x |\n| `cart/cart.go` | Modify | x |";
    for fine in [
        "`src/gen/api.rs` and `cart/generated/x.go` are read, and `vendor/lib/src/x.c`.",
        "```rust\nuse crate::pb::HelloRequest;\nuse crate::entity::Column;\nuse crate::generated::api::Api;\n```",
        "```go\nimport \"example.org/shop/generated/cartpb\"\n```",
    ] {
        assert_eq!(judged(files, &told, rows, fine), [], "{fine}");
    }
    let missed = judged(
        files,
        &told,
        rows,
        "`src/confg.rs` is read.\n\n```go\nimport \"example.org/shop/carts\"\n```",
    );
    assert_eq!(missed.len(), 2, "{missed:?}");
}

#[test]
fn where_not_all_that_is_ignored_is_known_any_file_may_be_made() {
    let may_have = |text: &str, all: bool| Outside::new([], [(".gitignore", text)], all).may_have("src/x.rs");
    assert!(!may_have("gen{src,b}/\n{src\n", true), "git knows no alternates");
    assert!(may_have("/src/*\n", true) && may_have("", false));
    let many = |count: usize| "a\n".repeat(count);
    assert!(!may_have(&many(limits::IGNORE_PATTERNS), true));
    assert!(may_have(&many(limits::IGNORE_PATTERNS + 1), true));
}

#[test]
fn a_folder_named_like_a_package_is_not_that_package() {
    let files: &[(&str, &str)] = &[
        ("shop/__init__.py", ""),
        ("shop/cart.py", "def add():\n    pass\n"),
        ("tests/unit/google/__init__.py", ""),
        ("plugins/slack/__init__.py", ""),
        ("redis/__init__.py", ""),
        ("pyproject.toml", "[project]\nname = \"shop\"\ndependencies = [\"redis>=5\"]\n"),
        ("examples/till/pyproject.toml", "[project]\nname = \"till\"\ndependencies = [\"shop\"]\n"),
    ];
    for (file, fine) in [
        ("tests/unit/test_x.py", "from google.cloud import bigquery"),
        ("plugins/x.py", "from slack.errors import Error"),
        ("shop/cart.py", "from redis.client import Redis"),
    ] {
        let row = format!("| `{file}` | Modify | x |");
        assert_eq!(wrong(files, &row, &format!("```python\n{fine}\n```")), [""; 0], "{fine}");
    }
    let rows = "| `shop/cart.py` | Modify | x |";
    assert_eq!(wrong(files, rows, "```python\nfrom shop.carts import add\n```").len(), 1);
}

#[test]
fn a_crate_may_be_one_of_several() {
    let files: &[(&str, &str)] = &[
        ("src/lib.rs", "pub mod config;\n"),
        ("src/config.rs", "pub fn load() {}\n"),
        ("tests/cli.rs", "mod common;\n"),
        ("tests/helpers/mod.rs", "pub fn help() {}\n"),
    ];
    let rows = "| `src/config.rs` | Modify | x |\n| `tests/common/mod.rs` | Add | x |";
    for fine in ["use crate::common::setup;", "use crate::helpers::help;"] {
        assert_eq!(wrong(files, rows, &format!("```rust\n{fine}\n```")), [""; 0], "{fine}");
    }
    for missing in ["use crate::confg::load;", "use crate::config::lode;"] {
        assert_eq!(wrong(files, rows, &format!("```rust\n{missing}\n```")).len(), 1, "{missing}");
    }
}

#[test]
fn relative_imports_are_followed() {
    let files: &[(&str, &str)] = &[
        ("shop/__init__.py", ""),
        ("shop/cart.py", "def add():\n    pass\n"),
        ("lib/shop/cart.rb", "class Cart\nend\n"),
        ("lib/shop.rb", "require_relative 'shop/cart'\n"),
    ];
    let rows = "| `shop/pay.py` | Add | x |\n| `lib/shop.rb` | Modify | x |";
    for (code, near) in [
        ("```python\nfrom .carts import add\n```", "`.cart`"),
        ("```python\nfrom .cart import adds\n```", "`add (line 1)`"),
        ("```ruby\nrequire_relative \"shop/carts\"\n```", "shop/cart`"),
    ] {
        let told = wrong(files, rows, code);
        assert!(told.len() == 1 && told[0].contains(near), "{code}: {told:?}");
    }
}

#[test]
fn a_large_repository_and_a_hostile_design_take_little() {
    let texts: Vec<(String, String)> = (0..5_000)
        .map(|at| {
            let path = format!("src/part{}/file_{at}.rs", at % 500);
            (
                path,
                format!("pub fn read_entry_{at}() {{}}\npub struct Entry{at};\npub fn write_{at}() {{}}\n"),
            )
        })
        .collect();
    let index = Index::of_texts(texts.iter().map(|(path, text)| (path.as_str(), text.as_str())));
    let tree = TreeIndex::new(texts.iter().map(|(path, _)| path));
    let mut text = String::from("# 1 - Feature: T\n\n## 2. Proposed Changes\n\n### 2.1 Files Changed\n\n");
    text += "| File | Change Type | Description |\n|---|---|---|\n| `src/part1/file_1.rs` | Modify | x |\n\n";
    for at in 0..3_000 {
        text += &format!(
            "It calls `read_entries_{at}()`, `Entry{at}::read()`, reads `src/part{at}/fil_{at}.rs`.\n\n"
        );
        text += &format!("`read_entri_{at}()` in `src/part1/file_1.rs` runs.\n\n");
    }
    for at in 0..500 {
        text += &format!("```rust\nuse crate::part{at}::fil::{{A, B, C{at}}};\nuse self::part{at};\n```\n\n");
    }
    let outside = Outside::default();
    let told = lld::names(&text, &Symbols::new(&index, &tree, &outside));
    assert!(!told.is_empty() && told.len() <= 3 * limits::NAMED_MISTAKES);
}

#[test]
fn what_is_not_parsed_may_have_the_name() {
    let user = ("src/user.ts", "export function loadUser(id: string) {}\n");
    let words = "Then it calls `loadUsers()`.";
    let (sure, open) = (vec!["loadUsers".to_owned()], Vec::<String>::new());
    assert_eq!(weighed(&[user], words), (sure.clone(), open.clone()));
    let page = ("src/page.vue", "<script>\nexport const loadUsers = () => 1;\n</script>\n");
    assert_eq!(weighed(&[user, page], words), (open.clone(), open.clone()));
    let prose = ("README.md", "There was a loadUsers once.\n");
    assert_eq!(weighed(&[user, prose], words), (sure.clone(), open.clone()));
    let made = ("src/api.pb.go", "func LoadEverything() {}\n");
    assert_eq!(weighed(&[user, made], words), (open.clone(), sure.clone()));
    let read = |text| outside(&[]).reading([("src/api.pb.go", text)]);
    let row = "| `src/user.ts` | Modify | x |";
    let errors =
        |text| judged(&[user, made], &read(text), row, words).iter().filter(|told| told.is_error()).count();
    assert_eq!((errors("func LoadEverything() {}"), errors("func loadUsers() {}")), (1, 0));
}

mod imports;
mod others;
mod reach;
