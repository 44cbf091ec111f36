//! How far a name is looked for before it is denied.

use super::*;

#[test]
fn a_name_that_many_files_might_have_is_none_that_one_has() {
    let texts: Vec<(String, String)> = (0..400)
        .map(|at| (format!("src/file_{at}.rs"), format!("pub fn parse_sheet_{at}_row() {{}}\n")))
        .collect();
    let mut files: Vec<(&str, &str)> =
        texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    files.push((
        "src/lib.rs",
        "pub fn read_settings() {}\npub fn get_amounts() {}\npub fn read_u16_pair() {}\n",
    ));
    for slip in ["read_setings", "read_settingss", "reed_settings", "readSettings", "raed_settings"] {
        assert_eq!(weighed(&files, &format!("It calls `{slip}()`.")).0, [slip], "{slip}");
    }
    for other in ["set_amounts", "read_u32_pair", "READ_SETTINGS", "write_settings"] {
        assert_eq!(weighed(&files, &format!("It calls `{other}()`.")), (vec![], vec![]), "{other}");
    }
}

#[test]
fn what_a_type_has_is_looked_for_wherever_it_may_have_it_from() {
    let files: &[(&str, &str)] = &[
        (
            "src/till.rs",
            "pub trait Sells { fn sell_all(&self) {} }\npub struct Till;\nimpl Till { pub fn open_drawer(&self) {} }\n",
        ),
        ("src/sale.rs", "use std::fmt;\nimpl Sells for Till {}\nimpl fmt::Debug for Till {}\n"),
        ("src/row.rs", "pub struct Row;\nimpl Iterator for Row { fn next(&mut self) {} }\n"),
        (
            "app/cart.py",
            "from .base import Base as Basis\n\nclass Cart(Basis):\n    def add_item(self):\n        pass\n",
        ),
        ("app/base.py", "class Base:\n    def save_all(self):\n        pass\n"),
        ("app/bag.py", "class Bag(dict):\n    def add_item(self):\n        pass\n"),
        ("shop/shop.go", "package shop\n\ntype Shop struct {\n\tStore\n}\n"),
        (
            "shop/store.go",
            "package shop\n\ntype Store struct {\n\tsize int\n}\n\nfunc (s *Store) Restock() {}\n",
        ),
    ];
    for fine in ["Till::sell_all", "Till::fmt", "Row::map", "Cart.save_all", "Bag.setdefault", "Shop.Restock"]
    {
        assert_eq!(weighed(files, &format!("It calls `{fine}()`.")), (vec![], vec![]), "{fine}");
    }
    for gone in
        ["Till::close_drawer", "Till::open_drawers", "Cart.save_everything", "Bag.add_items", "Shop.Restocks"]
    {
        assert_eq!(weighed(files, &format!("It calls `{gone}()`.")).0, [gone], "{gone}");
    }
    // A variable is likely of the type that it is called like.
    assert_eq!(weighed(files, "It calls `till.open_drawers()`.").0, ["till.open_drawers"]);
    assert_eq!(
        weighed(files, "It calls `lib.open_drawers()`."),
        (vec![], vec!["lib.open_drawers".to_owned()])
    );
}

#[test]
fn files_of_the_root_and_files_that_use_a_name_tell_of_it() {
    let files: &[(&str, &str)] = &[
        ("main.go", "package main\n\nfunc ServeRequests() {}\n"),
        ("serve_log.go", "package main\n\nfunc WriteLog() {}\n"),
        ("web/hmr.ts", "import { trimPath } from './paths'\nexport const run = () => trimPath('')\n"),
        ("web/paths.ts", "export function trimPath(path: string): string { return path }\n"),
    ];
    let one = |about: &str| (vec![about.to_owned()], vec![]);
    for (text, about) in [
        ("`ServeRequest()` in `main.go` runs.", "main.go ServeRequest"),
        ("It calls `ServeTheRequests()` in `main.go`.", "ServeTheRequests"),
        ("Lines go through `servelog.go`.", "servelog.go"),
        ("`trimPath()` is defined in `web/hmr.ts`.", "web/hmr.ts trimPath"),
    ] {
        assert_eq!(weighed(files, text), one(about), "{text}");
    }
    let files = &[files, &[("cmd/api/serve_log.go", "package main\n\nfunc RunServer() {}\n")]].concat();
    for fine in [
        "The existing `RunServer()` in `serve_log.go` runs, and `RunServer()` is defined in `serve_log.go`.",
        "`trimPath()` in `web/hmr.ts` runs, and `paths.ts` is read.",
        "`ServeRequests()` in `other.go` runs, as `server.go` does. `setup.py` is none of it.",
    ] {
        assert_eq!(weighed(files, fine), (vec![], vec![]), "{fine}");
    }
}

#[test]
fn a_signature_that_is_said_to_change_is_of_what_is_there() {
    let signatures = |code: &str| {
        let design = format!(
            "# 1 - Feature: T\n\n### 2.1 Files Changed\n\n| File | Change Type | Description |\n|---|---|---|\n{MODIFY}\n\n\
             ### 2.4 Function Signatures\n\n```rust\n{code}\n```\n"
        );
        let index = Index::of_texts(RUST.iter().copied());
        let tree = TreeIndex::new(RUST.iter().map(|(path, _)| *path));
        let outside = outside(RUST);
        lld::names(&design, &Symbols::new(&index, &tree, &outside))
    };
    for code in [
        "// existing\nfn load_all(path: &str);",
        "fn load_all(path: &str); // Changed: takes a path",
        "// existing\n@cached(1)\nfn load_all(path: &str);",
    ] {
        let told = signatures(code);
        assert!(told.len() == 1 && told[0].is_error(), "{told:?}");
        assert!(
            told[0].message.starts_with("`load_all` is not in `src/config.rs`; did you mean `load_file"),
            "{told:?}"
        );
    }
    for fine in [
        "// existing\npub fn load_file() -> Config;",
        "fn load_all(path: &str);",
        "// Existing callers are unchanged.\nfn load_all(path: &str);",
        "// new\nfn load_all(path: &str);",
        "// unchanged\npub fn split_words();",
        "pub fn split_words(); // existing, called for each line",
        "// Changed: renamed from load_file\nfn load_all(path: &str);",
        "fn load_all(path: &str); // Changed: was `load_file`.",
    ] {
        assert_eq!(signatures(fine), [], "{fine}");
    }
}

#[test]
fn imports_that_only_a_build_could_follow_are_wrong_if_they_are_slips() {
    let files: &[(&str, &str)] = &[
        ("core/src/main/java/org/shop/Order.java", "package org.shop;\npublic class Order {}\n"),
        ("core/src/main/java/org/shop/Receipt.java", "package org.shop;\npublic class Receipt {}\n"),
        ("src/Models/Customer.php", "<?php\nnamespace App\\Models;\nclass Customer {}\n"),
        ("net/socket.h", "int open_socket(void);\n"),
        ("net/socket.c", "#include \"net/socket.h\"\n"),
        ("src/cart.rs", "mod tests { use super::*; }\npub fn add_item() {}\n"),
        ("src/lib.rs", "pub mod cart;\npub mod store;\n"),
        ("src/store/mod.rs", "pub mod rows;\npub struct Store;\n"),
        ("src/store/rows.rs", "pub struct Rows;\n"),
        ("web/package.json", "{}\n"),
        ("web/src/lib/format.ts", "export const format = 1\n"),
        ("web/src/page.ts", "import { format } from '@/lib/format'\n"),
    ];
    let told = |file: &str, code: &str| wrong(files, &format!("| `{file}` | Modify | x |"), code);
    let (java, rust, script) =
        ("core/src/main/java/org/shop/Order.java", "src/store/rows.rs", "web/src/page.ts");
    for (file, code, near) in [
        (java, "```java\nimport org.shop.Reciept;\nimport org.shop.Receipts;\n```", "org/shop/Receipt.java`"),
        ("x.php", "```php\nuse App\\Models\\Custmer;\n```", "`src/Models/Customer.php`"),
        ("net/a.c", "```c\n#include \"net/sockets.h\"\n```", "`net/socket.h`"),
        (rust, "```rust\nuse super::Stor;\nuse super::Storee;\n```", "`Store (line 2)`"),
        (script, "```ts\nimport { x } from '@/lib/formats'\n```", "`@/lib/format`"),
        (script, "```\nimport { formats } from './lib/format'\n```", "`format (line 1)`"),
    ] {
        let told = told(file, code);
        assert!(told.len() == 1 && told[0].contains(near), "{code}: {told:?}");
    }
    for (file, fine) in [
        (java, "```java\nimport org.shop.Order_;\nimport org.shop.QOrder;\nimport org.other.Receipts;\n```"),
        ("net/a.c", "```c\n#include <net/sockets.h>\n#include \"config.h\"\n```"),
        (rust, "```rust\nuse super::Rows;\nuse super::{Store, rows};\nuse super::Entirely;\n```"),
        (script, "```ts\nimport { format } from '@/lib/format'\nimport x from '~/lib/formats'\n```"),
        (script, "```\n./lib/formats is none\n```"),
    ] {
        assert_eq!(told(file, fine), [""; 0], "{fine}");
    }
}

#[test]
fn a_file_is_found_by_the_end_of_its_path() {
    let files: &[(&str, &str)] = &[
        ("web/cart-service.ts", "export const sum = 1\n"),
        ("api/main.ts", "export const main = 1\n"),
        ("src/index.ts", "export const front = 1\n"),
        ("packages/shop/src/index.ts", "export const openShop = 1\n"),
    ];
    let told = |rows: &str, text: &str| wrong(files, rows, text);
    let rows = "| `web/api/cartService.ts` | Add | x |\n| `packages/shop/src/index.ts` | Modify | x |";
    for fine in [
        "`cartService.ts` calls it, and `api/cartService.ts` does.",
        "The existing `openShop()` in `src/index.ts` runs, and the existing `openShop()` in `index.ts`.",
    ] {
        assert_eq!(told(rows, fine), [""; 0], "{fine}");
    }
    let rows = "| `src/index.ts` | Modify | x |";
    for wrong in ["`cartService.ts` calls it.", "`api/cartService.ts` calls it."] {
        assert_eq!(told(rows, wrong).len(), 1, "{wrong}");
    }
    for file in ["src/index.ts", "index.ts"] {
        let gone = format!("The existing `openAll()` in `{file}` runs.");
        assert_eq!(told(rows, &gone).len(), usize::from(file == "src/index.ts"), "{gone}");
    }
}
