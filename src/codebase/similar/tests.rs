use super::*;
use crate::codebase::{File, Resolved, Resolver, imports::folder_of};

const STORE: &str = "//! Rows kept.\n\npub struct Row;\n\n/// Finds a row again.\npub fn find_row(id: u64) -> Row {\n    Row\n}\n\npub fn close(row: Row) {}\n";
const WEB: &str = "use crate::store::find_row;\n\npub fn page(id: u64) {\n    find_row(id);\n}\n";

fn shop() -> Index {
    Index::of_texts([
        ("Cargo.toml", "[package]\nname = \"shop\"\n"),
        ("README.md", "# The shop\n\nrow after row of text, row row row\n"),
        ("src/lib.rs", "pub mod store;\npub mod web;\npub mod clock;\n"),
        ("src/clock.rs", "pub fn now() -> u64 { 0 }\n"),
        ("src/store.rs", STORE),
        ("src/web.rs", WEB),
        ("tests/store.rs", "use shop::store::find_row;\n\n#[test]\nfn finds() { find_row(1); }\n"),
    ])
}

fn ask(index: &Index, text: &str) -> Vec<Offer> {
    rank(index, &Request { text, files: &[] })
}

fn reasons(offers: &[Offer], path: &str) -> Vec<Reason> {
    offers.iter().find(|offer| offer.path == path).map(|offer| offer.reasons.clone()).unwrap_or_default()
}

#[test]
fn the_best_first_and_each_reason_holds() {
    let index = shop();
    let offers = ask(&index, "`find_row` answers with the wrong row\n\nSeen in src/web.rs:3 under load.");
    let first: Vec<&str> = offers.iter().take(3).map(|offer| offer.path.as_str()).collect();
    assert!(first.contains(&"src/store.rs") && first.contains(&"src/web.rs"), "{first:?}");
    let store = reasons(&offers, "src/store.rs");
    assert!(store.contains(&Reason::DefinesSymbols(vec!["find_row".into()])), "{store:?}");
    let web = reasons(&offers, "src/web.rs");
    assert!(web.contains(&Reason::NamedInText("src/web.rs".into())), "{web:?}");
    assert!(web.contains(&Reason::UsesSymbols(vec!["find_row".into()])), "{web:?}");
    let store = offers.iter().find(|offer| offer.path == "src/store.rs").expect("offered");
    assert_eq!(store.items.first(), Some(&(6, 8)), "find_row itself");
    for offer in &offers {
        for reason in &offer.reasons {
            holds(&index, offer, reason);
        }
        assert!(!offer.reasons.is_empty(), "{} is offered without a reason", offer.path);
    }
}

/// Looked up by other ways than the ranking's.
fn holds(index: &Index, offer: &Offer, reason: &Reason) {
    let file = index.file(&offer.path).expect("offered files are there");
    let true_of_it = match reason {
        Reason::Requested => false, // nothing is, here
        Reason::NamedInText(path) => file.path.ends_with(path.as_str()),
        Reason::DefinesSymbols(names) => {
            names.iter().all(|name| file.digest.summary().items.iter().any(|item| item.name == *name))
        }
        Reason::UsesSymbols(names) => names.iter().all(|name| file.digest.uses().any(|used| used == name)),
        Reason::NameMatches(found) => found.iter().all(|word| words::of(&file.path).contains(word)),
        Reason::SharesWords(found) => found.iter().all(|word| file.digest.count(word) > 0),
        Reason::TestOf(path) => tests(index, &file.path, path),
        Reason::TestedBy(path) => tests(index, path, &file.path),
        Reason::Imports(path) => imports(index, &file.path, path),
        Reason::ImportedBy(path) => imports(index, path, &file.path),
    };
    assert!(true_of_it, "{}: {reason}", offer.path);
}

fn tests(index: &Index, test: &str, tested: &str) -> bool {
    let place = |path| index.place(path).expect("offered files are there");
    tests_of::pairs(index, &Names::of(index)).contains(&(place(test), place(tested)))
}

fn imports(index: &Index, from: &str, to: &str) -> bool {
    let resolver = Resolver::new(index);
    let file = index.file(from).expect("offered files are there");
    file.digest.summary().imports.iter().any(|import| match resolver.resolve(from, import) {
        Resolved::Files(paths) => paths.contains(&to),
        Resolved::Folder(folder) => folder == folder_of(to),
        Resolved::External | Resolved::Missing => false,
    })
}

#[test]
fn requested_files_come_first_and_bring_their_neighbours() {
    let files = ["src/web.rs".to_owned()];
    let offers = rank(&shop(), &Request { text: "", files: &files });
    assert_eq!(offers[0].path, "src/web.rs");
    assert_eq!(offers[0].reasons, [Reason::Requested]);
    assert_eq!(offers[1].path, "src/store.rs");
    assert!(offers[1].reasons.contains(&Reason::ImportedBy("src/web.rs".into())));
}

#[test]
fn the_same_order_each_time_and_ties_by_path() {
    let index =
        Index::of_texts([("b.rs", "fn cart() {}"), ("a.rs", "fn cart() {}"), ("c.rs", "fn cart() {}")]);
    let paths = |offers: Vec<Offer>| offers.into_iter().map(|offer| offer.path).collect::<Vec<_>>();
    assert_eq!(paths(ask(&index, "the cart")), ["a.rs", "b.rs", "c.rs"]);
    let index = shop();
    let once = ask(&index, "fix(store): row and page");
    assert!((0..10).all(|_| ask(&index, "fix(store): row and page") == once));
}

#[test]
fn a_link_names_its_file_and_no_word_of_the_page() {
    let index = Index::of_texts([("src/github.rs", "fn https() {}"), ("src/row.rs", ""), ("src/web.rs", "")]);
    let offers = ask(&index, "Wrong total\n\nSee https://github.com/o/shop/blob/3f2a/src/row.rs#L3-L5");
    assert_eq!(offers.iter().map(|offer| offer.path.as_str()).collect::<Vec<_>>(), ["src/row.rs"]);
}

#[test]
fn a_test_belongs_to_the_nearest_file_of_its_name() {
    let index = Index::of_texts(
        [
            "a/__tests__/config.spec.ts",
            "a/__tests_dts__/config.ts",
            "a/config.ts",
            "a/deep/config.ts",
            "b/config.ts",
        ]
        .map(|path| (path, "")),
    );
    assert!(tests(&index, "a/__tests__/config.spec.ts", "a/config.ts"));
}

#[test]
fn of_a_long_item_what_matters_in_it() {
    let filler: String = (0..400).map(|at| format!("    fn wait{at}(&self);\n")).collect();
    let text = format!("pub trait Shop {{\n{filler}    fn close_row(&self) {{\n    }}\n}}\n");
    let index = Index::of_texts([("shop.rs", text.as_str())]);
    let items = |text: &str| ask(&index, text).remove(0).items;
    assert_eq!(items("close the row of a shop"), [(402, 403)]);
    assert_eq!(items("the shop"), [(1, limits::SIMILAR_ITEM_LINES)]);
}

#[test]
fn empty_questions_and_empty_repositories() {
    assert!(ask(&shop(), "").is_empty());
    assert!(ask(&shop(), "the of and").is_empty());
    assert!(ask(&Index::default(), "find_row").is_empty());
}

#[test]
fn hostile_texts_are_bounded() {
    let index = shop();
    let words: String = (0..1_000_000).map(|at| format!("w{at:x} ")).collect();
    let texts = [
        words,
        "a/".repeat(500_000),
        "`".repeat(1 << 20),
        "a::".repeat(400_000),
        "(a+)+$.*[".repeat(100_000),
        "é_".repeat(400_000),
        "x.rs ".repeat(200_000),
    ];
    for text in texts {
        for offer in ask(&index, &text) {
            assert!(offer.score.is_finite());
        }
    }
}

/// A stranger's text that names what a stranger's tree holds thousands of, as deep as paths go.
#[test]
fn hostile_paths_in_hostile_trees_are_bounded() {
    let deep = "index/".repeat(300);
    let paths: Vec<String> =
        (0..5_000).map(|at| format!("d{at}/{}index.ts", &deep[..6 * (at % 30)])).collect();
    let tests = (0..500).map(|at| format!("t{at}/{deep}index.test.ts"));
    let paths: Vec<String> = paths.into_iter().chain(tests).collect();
    let index = Index::of_texts(paths.iter().map(|path| (path.as_str(), "")));
    let asked = (0..200).map(|at| format!("x{at}/{}index\n", &deep[..180])).collect::<String>();
    let offers = ask(&index, &asked);
    assert!(!offers.is_empty());
}

#[test]
fn a_hundred_thousand_files_of_one_name() {
    // They are alike, so that one is parsed for all.
    let one = Index::of_texts([("mod.rs", "use crate::mod_x::y;\nfn cart() {}\n")]).files()[0].clone();
    let mut index = Index::default();
    for at in 0..100_000 {
        index.add(File { path: format!("d{}/e{at}/mod.rs", at % 100), ..one.clone() });
    }
    let index = index.sorted();
    let offers = ask(&index, "cart in mod.rs");
    assert_eq!(offers.len(), limits::SIMILAR_OFFERS);
}

#[test]
fn items_made_alike() {
    let index = Index::of_texts([
        ("a.rs", "pub fn render_row(row: &Row, width: usize) -> String {\n    String::new()\n}\n"),
        (
            "b.rs",
            "pub fn render_page(page: &Page, width: usize) -> String {\n    String::new()\n}\n\npub fn close() {}\n",
        ),
        ("c.rs", "pub struct Width;\n"),
    ]);
    let item = &index.file("a.rs").expect("there").digest.summary().items[0];
    let found = alike(&index, "a.rs", item);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].lines, found[0].same_parameters), ("b.rs", (1, 3), true));
    assert!(found[0].words.contains(&"render".to_owned()) && found[0].score <= 1.0);
}

#[test]
fn a_path_means_the_files_with_its_longest_end() {
    let index = Index::of_texts(
        ["a/node/css.ts", "b/css.ts", "b/node/css.ts", "c/mod.rs", "css.ts", "src/store.rs"]
            .map(|path| (path, "")),
    );
    let meant = |path: &str| {
        let found = Names::of(&index).meant_by(&index, path);
        found.into_iter().map(|at| index.files()[at].path.as_str()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(meant("css.ts"), "a/node/css.ts b/css.ts b/node/css.ts css.ts");
    assert_eq!(meant("b/css.ts"), "b/css.ts");
    assert_eq!(meant("/home/me/vite/node/css.ts"), "a/node/css.ts b/node/css.ts");
    assert_eq!(meant("elsewhere/b/node/css.ts"), "b/node/css.ts");
    assert_eq!(meant("crate/src/store/Row/new"), "src/store.rs");
    assert_eq!(meant("elsewhere/css.ts"), "");
    assert_eq!(meant("gone/away"), "");
}
