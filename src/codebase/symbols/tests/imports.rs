//! Imports that are right, though nothing in the repository's paths says so at first sight; and what is still wrong beside them.

use super::*;

/// What is told of a block in a design that changes this file.
fn told(files: &[(&str, &str)], changed: &str, tag: &str, code: &str) -> Vec<String> {
    wrong(files, &format!("| `{changed}` | Modify | x |"), &format!("```{tag}\n{code}\n```"))
}

fn is_right(files: &[(&str, &str)], changed: &str, tag: &str, imports: &[&str]) {
    for code in imports {
        assert_eq!(told(files, changed, tag, code), [""; 0], "{code}");
    }
}

fn is_wrong(files: &[(&str, &str)], changed: &str, tag: &str, imports: &[(&str, &str)]) {
    for (code, said) in imports {
        let told = told(files, changed, tag, code);
        assert!(told.len() == 1 && told[0].contains(said), "{code}: {told:?}");
    }
}

#[test]
fn slips_of_classes_are_looked_for_in_their_own_package() {
    let files: &[(&str, &str)] = &[
        ("src/Http/Requests.php", "<?php\nnamespace App\\Http;\nclass Requests {}\n"),
        ("src/Text.php", "<?php\nnamespace App;\nclass Strings {}\n"),
        ("src/String.php", "<?php\nnamespace App;\nclass String {}\n"),
        ("src/main/java/org/shop/Orders.java", "package org.shop;\npublic class Orders {}\n"),
        ("src/main/java/org/shop/Basket.java", "package org.shop;\npublic class Basket {}\n"),
    ];
    let (php, java) = ("src/Text.php", "src/main/java/org/shop/Basket.java");
    is_wrong(
        files,
        php,
        "php",
        &[
            ("use App\\Http\\Request;", "did you mean `src/Http/Requests.php`"),
            ("use App\\Http\\{Request, Requests};", "did you mean `src/Http/Requests.php`"),
        ],
    );
    is_right(
        files,
        php,
        "php",
        &[
            "use Illuminate\\Http\\Request;\nuse Http\\Request;\nuse Request;",
            "use function App\\Stringz\\trim_all;\nuse const App\\Stringz\\LONGEST;",
        ],
    );
    is_wrong(
        files,
        java,
        "java",
        &[("import org.shop.Order;", "did you mean `src/main/java/org/shop/Orders.java`")],
    );
    is_right(
        files,
        java,
        "java",
        &[
            "import shop.Order;\nimport com.org.shop.Order;\nimport Order;",
            "import org.shop.order.*;\nimport org.shop.basket.*;\nimport org.shop.Orders.Baskets;",
            "import static org.shop.Orders.Order;",
        ],
    );
}

#[test]
fn slips_of_headers_are_looked_for_where_the_header_would_be() {
    let files: &[(&str, &str)] = &[
        (
            "core/parser.c",
            "#include \"parsing.h\"\n#include \"net/socket.h\"\nint parse_all(void) { return 0; }\n",
        ),
        ("core/parsing.h", "int parse_all(void);\n"),
        ("core/scanner.h", "int scan_all(void);\n"),
        ("include/net/socket.h", "int open_socket(void);\n"),
        ("include/net/stream.h", "int open_stream(void);\n"),
        ("deep/legacy/formats.h", "int format_all(void);\n"),
        ("deep/legacy/config.hpp", "int configure(void);\n"),
    ];
    is_wrong(
        files,
        "core/parser.c",
        "c",
        &[
            ("#include \"scaner.h\"", "`core/scanner.h`"),
            ("#include \"parsings.h\"", "`core/parsing.h`"),
            ("#include \"net/sockets.h\"", "`include/net/socket.h`"),
            ("#include \"../core/scaner.h\"", "`core/scanner.h`"),
        ],
    );
    is_right(
        files,
        "core/parser.c",
        "c",
        &[
            "#include \"format.h\"\n#include \"other/sockets.h\"\n#include \"configs.h\"\n#include \"formats\"",
        ],
    );
    // What is included by the bare name is known everywhere.
    is_wrong(files, "deep/other.c", "c", &[("#include \"parsings.h\"", "`core/parsing.h`")]);
    is_right(files, "deep/other.c", "c", &["#include \"scaner.h\""]);
    let ignored = [files, &[(".gitignore", "scan*r.h\n")]].concat();
    is_right(&ignored, "core/parser.c", "c", &["#include \"scaner.h\""]);
    let vendored = [files, &[("third_party/scaner.h", "int x;\n")]].concat();
    is_right(&vendored, "core/parser.c", "c", &["#include \"scaner.h\""]);
}

#[test]
fn of_several_slips_the_likest_is_told_first() {
    let texts: Vec<(String, String)> =
        ["AeaderFormatter", "BeaderFormatter", "CeaderFormatter", "HeaderFormatter"]
            .map(|name| {
                (
                    format!("src/org/shop/{name}.java"),
                    format!("package org.shop;\npublic class {name} {{}}\n"),
                )
            })
            .into();
    let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let near = "did you mean `src/org/shop/HeaderFormatter.java`";
    is_wrong(&files, "src/org/shop/Main.java", "java", &[("import org.shop.HeaderFormattr;", near)]);
}

#[test]
fn many_names_that_are_alike_take_little() {
    let long = "NameOfAnEntryInAVeryLargeTableOfManyRows";
    let row = |package: &str, at: usize| {
        let text = format!("package {package};\npublic class {long}{} {{}}\n", letters(at));
        (format!("src/{package}/{long}{}.java", letters(at)), text)
    };
    let texts: Vec<(String, String)> =
        (0..1_500).map(|at| row("near", at)).chain((0..9_000).map(|at| row("far", at))).collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (index, tree) =
        (Index::of_texts(files.iter().copied()), TreeIndex::new(files.iter().map(|(path, _)| *path)));
    let imports: String = (0..100).map(|at| format!("import near.{long}{}Quiz;\n", letters(at))).collect();
    let design = format!(
        "# 1 - Feature: T\n\n### 2.1 Files Changed\n\n| File | Change Type | Description |\n|---|---|---|\n\
         | `src/near/Main.java` | Modify | x |\n\n### 2.5 Logic Flow\n\n```java\n{imports}```\n"
    );
    let outside = Outside::default();
    let symbols = Symbols::new(&index, &tree, &outside);
    let told = lld::names(&design, &symbols);
    assert!(told.len() <= 3 * limits::NAMED_MISTAKES);
}

/// A number in letters.
fn letters(at: usize) -> String {
    format!("{at:04}").bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}

#[test]
fn a_prefix_may_stand_for_several_folders() {
    let files: &[(&str, &str)] = &[
        ("package.json", "{}\n"),
        ("app/blog/components/Header.tsx", "export const Header = 1\n"),
        ("app/blog/page.tsx", "import { Header } from '@/components/Header'\n"),
        ("app/page.tsx", "import { Header } from '@/components/Header'\n"),
        ("components/Header.tsx", "export const NavItem = 1\nexport const Header = 2\n"),
        ("components/Footer.tsx", "export const Footer = 1\n"),
        ("lib/format.ts", "export const format = 1\n"),
    ];
    is_right(
        files,
        "app/blog/page.tsx",
        "tsx",
        &[
            "import { NavItem, Header } from '@/components/Header'\nimport { Footer } from '@/components/Footer'",
        ],
    );
    is_wrong(
        files,
        "app/blog/page.tsx",
        "tsx",
        &[
            ("import { NavItems } from '@/components/Header'", "`components/Header.tsx` has no such name"),
            ("import { format } from '@/lib/formats'", "did you mean `@/lib/format`"),
            ("import { Footer } from '@/components/Footers'", "did you mean `@/components/Footer`"),
        ],
    );
    // A second target that the first import fits.
    let files: &[(&str, &str)] = &[
        ("package.json", "{}\n"),
        ("a.ts", "import { x } from '@/colours'\n"),
        ("b.ts", "import { x } from '@/format'\nimport { y } from '@/parse'\n"),
        ("colours.ts", "export const x = 1\n"),
        ("src/format.ts", "export const x = 1\n"),
        ("src/parse.ts", "export const y = 1\n"),
    ];
    is_right(files, "a.ts", "ts", &["import { x } from '@/colours'\nimport { y } from '@/parse'"]);
    is_wrong(files, "a.ts", "ts", &[("import { x } from '@/formats'", "did you mean `@/format`")]);
    // Most of it is where no file that imports it is below.
    let elsewhere =
        [files, &[("c.ts", "import '@/shared/a'\nimport '@/shared/b'\nimport '@/shared/c'\n")]].concat();
    is_right(&elsewhere, "a.ts", "ts", &["import { x } from '@/formats'"]);
}

#[test]
fn scripts_are_compiled_from_more_than_their_path_says() {
    let files: &[(&str, &str)] = &[
        ("src/app.ts", "import { load } from './made/client'\n"),
        ("src/types.d.ts", "export interface Options { size: number }\n"),
        ("src/cart.js", "exports.addItem = function addItem() {}\nexports.secret = 1\n"),
        ("src/cart.d.ts", "export interface Item { size: number }\nexport function addItem(): void\n"),
        ("src/Button.ios.js", "export const Button = 1\n"),
        ("src/store.svelte.ts", "export const store = 1\n"),
        ("src/Page.vue", "<script>\nexport default {}\n</script>\n"),
        ("src/data.json", "{ \"version\": 1 }\n"),
        ("src/made/clients.ts", "export const load = 1\n"),
        ("src/parts/index.ts", "export const part = 1\n"),
        ("src/native/package.json", "{ \"main\": \"main.js\" }\n"),
        ("src/native/main.js", "exports.run = 1\n"),
    ];
    is_right(
        files,
        "src/app.ts",
        "ts",
        &[
            "import type { Options } from './types.js'\nimport { Options as O } from './types'",
            "import { addItem, secret, Item } from './cart'\nimport { Item as I, secret as s } from './cart.js'",
            "import { Button } from './Button.js'\nimport { store } from './store.svelte'",
            "import { store } from './store.svelte.js'\nimport Page from './Page.vue'\nimport Same from './Page'",
            "import { version } from './data.json'\nimport './theme.css'\nimport run from './native'",
            "import { load } from './made/client'\nimport { part } from './parts/index.js'",
            "import { x } from '~lib/formats'\nimport { y } from 'src/carts'",
        ],
    );
    is_wrong(
        files,
        "src/app.ts",
        "ts",
        &[
            ("import { addItems } from './cart'", "`addItems` is imported from `./cart`"),
            ("import { part } from './part'", "did you mean `./parts`"),
        ],
    );
}

#[test]
fn rust_sees_more_than_a_file_spells() {
    let files: &[(&str, &str)] = &[
        ("Cargo.toml", "[package]\nname = \"shop\"\n"),
        (
            "src/lib.rs",
            "pub mod cart;\npub mod made;\npub mod types;\n#[path = \"odd/path.rs\"]\npub mod moved;\n",
        ),
        ("src/cart/mod.rs", "use crate::types::*;\npub mod rows;\npub struct Cart { size: Amount }\n"),
        (
            "src/cart/rows.rs",
            "pub struct Rows;\npub mod deep {\n    pub mod deeper {}\n}\n#[cfg(test)]\nmod tests {\n    use super::*;\n}\n",
        ),
        ("src/types.rs", "pub struct Amount;\npub struct Rowss;\n"),
        ("src/made.rs", "include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\n"),
        ("src/odd/path.rs", "pub struct Moved;\n"),
        ("tests/fixtures/serde/Cargo.toml", "[package]\nname = \"serde\"\n"),
        ("tests/fixtures/serde/src/lib.rs", "pub struct Thing;\n"),
    ];
    is_right(
        files,
        "src/cart/rows.rs",
        "rust",
        &[
            "use crate::cart::Amount;\nuse super::Amount;",
            "use crate::made::{Anything, deep::Thing};\nuse crate::moved::Moved;",
            "use super::super::Rows;\nuse serde::Deserialize;",
        ],
    );
    is_wrong(
        files,
        "src/cart/rows.rs",
        "rust",
        &[
            ("use crate::cart::rows::Amount;", "`Amount` is imported from `crate::cart::rows`"),
            ("use crate::cart::Amounts;", "`Amounts` is imported from `crate::cart`"),
        ],
    );
    // Of so many crates nobody knows which one is meant.
    let texts: Vec<(String, String)> = (0..30)
        .flat_map(|at| {
            let text = format!("pub mod part{at};\n");
            [
                (format!("crates/c{at}/src/lib.rs"), text),
                (format!("crates/c{at}/src/part{at}.rs"), String::new()),
            ]
        })
        .collect();
    let files: Vec<(&str, &str)> = texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    is_right(&files, "README.md", "rust", &["use crate::part9::Thing;\nuse crate::part9;"]);
}

#[test]
fn python_packages_may_have_parts_elsewhere() {
    let files: &[(&str, &str)] = &[
        ("src/acme/__init__.py", "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"),
        ("src/acme/shop/__init__.py", "from .cart import *\n"),
        ("src/acme/shop/cart.py", "class Cart:\n    pass\n"),
        ("src/bare/cart.py", "class Cart:\n    pass\n"),
        ("src/fast/__init__.py", "VERSION = 1\n"),
        ("src/fast/run.py", "from . import _speedups\nfrom fast._native import add\n"),
    ];
    is_right(
        files,
        "src/fast/run.py",
        "python",
        &[
            "from acme.billing import Invoice\nfrom acme.shop import Cart, Anything",
            "from fast import _speedups\nfrom fast._speedups import run\nfrom fast._native import add, sub",
            "from bare import cart\nfrom bare.cart import Cart\nimport bare.cart",
        ],
    );
    is_wrong(files, "src/fast/run.py", "python", &[("from fast.runs import go", "did you mean `fast.run`")]);
}

#[test]
fn go_packages_of_the_same_prefix_may_be_others() {
    let files: &[(&str, &str)] = &[
        (
            "go.mod",
            "module example.org/shop\n\nrequire (\n\texample.org/shop/v2 v2.0.1\n\texample.org/shop/api v1.0.0\n)\n",
        ),
        ("go.work", "use (\n\t.\n\t./tools\n)\n"),
        ("cart/cart.go", "package cart\n"),
        ("internal/rows/rows.go", "package rows\n"),
        ("tools/go.mod", "module example.org/shop/tools\n"),
        ("tools/lint/lint.go", "package lint\n"),
        ("testdata/go.mod", "module golang.org/x/sys\n"),
        ("testdata/sys.go", "package sys\n"),
        ("other/testdata/go.mod", "module example.org/shop\n"),
    ];
    is_right(
        files,
        "cart/cart.go",
        "go",
        &[
            "package x\nimport \"example.org/shop/v2/cart\"",
            "package x\nimport \"example.org/shop/api/orders\"",
            "package x\nimport (\n\t\"golang.org/x/sys/unix\"\n\t\"example.org/shop/internal/rows\"\n\t\"example.org/shop/tools/lint\"\n)",
            "package x\nimport \"example.org/shop/cart\"",
        ],
    );
    is_wrong(
        files,
        "cart/cart.go",
        "go",
        &[
            ("package x\nimport \"example.org/shop/apis\"", "`example.org/shop/apis` is imported"),
            (
                "package x\nimport \"example.org/shop/tools/lints\"",
                "did you mean `example.org/shop/tools/lint`",
            ),
        ],
    );
}

#[test]
fn gems_are_nobody_s_to_deny() {
    let files: &[(&str, &str)] =
        &[("lib/shop/cart.rb", "class Cart\nend\n"), ("lib/shop.rb", "require 'shop/cart'\n")];
    is_right(
        files,
        "lib/shop.rb",
        "ruby",
        &["require 'shop/carts'\nrequire 'json'\nrequire_relative 'shop/cart.rb'"],
    );
    is_wrong(files, "lib/shop.rb", "ruby", &[("require_relative 'shop/carts'", "did you mean")]);
}
