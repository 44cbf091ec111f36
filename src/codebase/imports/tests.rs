use super::*;

/// What an import leads to, for people.
fn said(index: &Index, from: &str, text: &str, module: &str, names: &[&str]) -> String {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let import = Import { line: 1, text: text.into(), module: module.into(), names };
    match Resolver::new(index).resolve(from, &import) {
        Resolved::Files(paths) => paths.join(" "),
        Resolved::Folder(folder) => format!("{folder}/"),
        Resolved::External => "external".into(),
        Resolved::Missing => "missing".into(),
    }
}

fn index(paths: &[&str]) -> Index {
    Index::of_texts(paths.iter().map(|path| (*path, "")))
}

#[test]
fn rust_modules() {
    let index = index(&[
        "Cargo.toml",
        "a-b/Cargo.toml",
        "a-b/src/lib.rs",
        "src/lib.rs",
        "src/store/mod.rs",
        "src/store/row.rs",
        "src/web.rs",
        "tests/world.rs",
        "tests/story.rs",
    ]);
    for (from, module, names, leads) in [
        ("src/web.rs", "crate::store", &["Store"][..], "src/store/mod.rs"),
        ("src/web.rs", "crate::store", &["row"], "src/store/row.rs"),
        ("src/web.rs", "crate::store::row", &["Row"], "src/store/row.rs"),
        ("src/store/row.rs", "super", &["Store"], "src/store/mod.rs"),
        ("src/web.rs", "a_b", &["Thing"], "a-b/src/lib.rs"),
        ("tests/story.rs", "crate::world", &["World"], "tests/world.rs"),
        ("src/web.rs", "serde", &["Serialize"], "external"),
    ] {
        assert_eq!(said(&index, from, "", module, names), leads, "{module} of {from}");
    }
}

#[test]
fn python_packages() {
    let index =
        index(&["src/shop/__init__.py", "src/shop/cart.py", "src/shop/json/tag.py", "tests/test_cart.py"]);
    for (from, module, names, leads) in [
        ("src/shop/cart.py", ".", &["json"][..], "src/shop/__init__.py"),
        ("src/shop/json/tag.py", "..cart", &["Cart"], "src/shop/cart.py"),
        ("src/shop/cart.py", ".gone", &["x"], "missing"),
        ("src/shop/cart.py", ".....", &["x"], "missing"),
        ("tests/test_cart.py", "shop.cart", &["Cart"], "src/shop/cart.py"),
        ("tests/test_cart.py", "shop.gone", &["Cart"], "missing"),
        ("tests/test_cart.py", "requests", &[], "external"),
    ] {
        assert_eq!(said(&index, from, "", module, names), leads, "{module} of {from}");
    }
}

#[test]
fn scripts_by_path_ending_and_package() {
    let index = index(&[
        "packages/kit/package.json",
        "packages/kit/src/index.ts",
        "packages/kit/src/util.ts",
        "app/a.tsx",
        "app/b/index.js",
    ]);
    for (from, module, leads) in [
        ("app/a.tsx", "./b", "app/b/index.js"),
        ("packages/kit/src/index.ts", "./util.js", "packages/kit/src/util.ts"),
        ("app/a.tsx", "../packages/kit/src/util?raw", "packages/kit/src/util.ts"),
        ("app/a.tsx", "./c", "missing"),
        ("app/a.tsx", "../../c", "missing"),
        ("app/a.tsx", "kit", "packages/kit/src/index.ts"),
        ("app/a.tsx", "react", "external"),
    ] {
        assert_eq!(said(&index, from, "", module, &[]), leads, "{module} of {from}");
    }
}

#[test]
fn go_packages_are_folders_of_a_module_whose_name_the_imports_tell() {
    let main =
        "package main\n\nimport (\n\t\"example.com/shop/internal/cart\"\n\t\"example.com/other/list\"\n)\n";
    let more = "package pay\n\nimport \"example.com/shop/internal/cart\"\n";
    let index = Index::of_texts([
        ("go.mod", ""),
        ("main.go", main),
        ("pay/pay.go", more),
        ("internal/cart/cart.go", "package cart\n"),
    ]);
    assert_eq!(said(&index, "main.go", "", "example.com/shop/internal/cart", &[]), "internal/cart/");
    assert_eq!(said(&index, "main.go", "", "example.com/shop/internal/gone", &[]), "missing");
    assert_eq!(said(&index, "main.go", "", "example.com/shopping/x", &[]), "external");
    assert_eq!(said(&index, "main.go", "", "fmt", &[]), "external");
}

#[test]
fn the_rest_by_how_the_path_ends() {
    let index = index(&[
        "core/src/main/java/org/shop/Cart.java",
        "old/src/main/java/org/shop/Cart.java",
        "core/src/main/java/org/shop/Pay.java",
        "net/socket.h",
        "net/socket.c",
        "lib/shop/cart.rb",
        "lib/shop.rb",
        "src/Models/User.php",
        "Shop/Orders/Order.cs",
    ]);
    let pay = "core/src/main/java/org/shop/Pay.java";
    for (from, text, module, leads) in [
        (pay, "import org.shop.Cart;", "org.shop.Cart", "core/src/main/java/org/shop/Cart.java"),
        (pay, "import org.shop.Cart.Line;", "org.shop.Cart.Line", "core/src/main/java/org/shop/Cart.java"),
        (pay, "import java.util.List;", "java.util.List", "external"),
        ("net/socket.c", "", "socket.h", "net/socket.h"),
        ("net/socket.c", "", "stdio.h", "external"),
        ("lib/shop.rb", "require_relative 'shop/cart'", "shop/cart", "lib/shop/cart.rb"),
        ("lib/shop.rb", "require_relative 'shop/gone'", "shop/gone", "missing"),
        ("x.php", "", "App\\Models\\User", "src/Models/User.php"),
        ("x.cs", "", "My.Shop.Orders", "Shop/Orders/"),
    ] {
        assert_eq!(said(&index, from, text, module, &[]), leads, "{module} of {from}");
    }
}

#[test]
fn hostile_imports_lead_nowhere() {
    let index = index(&["a.rs", "a.py", "a.ts", "a.go", "A.java", "a.c", "a.rb", "a.php", "a.cs", "a.sh"]);
    let long = "::a.b/".repeat(100_000);
    for from in ["a.rs", "a.py", "a.ts", "a.go", "A.java", "a.c", "a.rb", "a.php", "a.cs", "a.sh"] {
        for module in
            ["", ".", "..", "/", "::", "\\", "../../../..", "super::super::super", "crate", "@", "é.ü", &long]
        {
            said(&index, from, "*", module, &["", "*", "é"]);
        }
    }
}
