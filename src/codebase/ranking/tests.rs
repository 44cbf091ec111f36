use super::*;
use crate::{codebase::IndexedFile, git::PastCommit};

const STORE: &str = "//! Rows kept.\n\npub struct Row;\n\n/// Finds a row again.\npub fn find_row(id: u64) -> Row {\n    Row\n}\n\npub fn close(row: Row) {}\n";
const WEB: &str = "use crate::store::find_row;\n\npub fn page(id: u64) {\n    find_row(id);\n}\n";

fn shop() -> Index {
    Index::from_texts([
        ("Cargo.toml", "[package]\nname = \"shop\"\n"),
        ("README.md", "# The shop\n\nrow after row of text, row row row\n"),
        ("src/lib.rs", "pub mod store;\npub mod web;\npub mod clock;\n"),
        ("src/clock.rs", "pub fn now() -> u64 { 0 }\n"),
        ("src/store.rs", STORE),
        ("src/web.rs", WEB),
        ("tests/store.rs", "use shop::store::find_row;\n\n#[test]\nfn finds() { find_row(1); }\n"),
    ])
}

fn ask(index: &Index, text: &str) -> Vec<RankedFile> {
    rank_files(index, &RankingRequest { text, files: &[] })
}

fn paths(offers: &[RankedFile]) -> Vec<&str> {
    offers.iter().map(|offer| offer.path.as_str()).collect()
}

#[test]
fn file_that_defines_a_named_symbol_ranks_first() {
    let offers = ask(&shop(), "`find_row` answers with the wrong row\n\nSeen in src/web.rs:3 under load.");
    assert_eq!(offers[0].path, "src/store.rs");
    assert!(offers[0].words.contains(&"findrow".to_owned()), "{offers:?}");
    assert!(paths(&offers[..4]).contains(&"src/web.rs"), "{offers:?}");
}

#[test]
fn requested_files_rank_first_and_are_followed_by_their_tests() {
    let files = ["src/store.rs".to_owned()];
    let offers = rank_files(&shop(), &RankingRequest { text: "", files: &files });
    assert_eq!(paths(&offers), ["src/store.rs", "tests/store.rs"]);
}

#[test]
fn file_is_found_by_words_in_messages_of_commits_that_changed_it() {
    let past =
        |subject: &str, path: &str| PastCommit { subject: subject.to_owned(), paths: vec![path.to_owned()] };
    let many = PastCommit {
        subject: "Count clouds".to_owned(),
        paths: (0..100).map(|at| format!("gone/{at}")).chain(["src/lib.rs".to_owned()]).collect(),
    };
    let past = [past("Page through the ledger", "src/clock.rs"), past("Ledger", "gone.rs"), many];
    let index = shop().with_past_commits(&past);
    assert_eq!(paths(&ask(&index, "ledger")), ["src/clock.rs"]);
    assert!(ask(&index, "clouds").is_empty(), "a commit that changed a hundred files does not count");
}

#[test]
fn file_in_a_language_without_a_grammar_is_ranked_as_code() {
    let text = "fun cart() = cart\n";
    let index = Index::from_texts([("a.txt", text), ("b.kt", text), ("c.toml", text), ("d/cart.txt", "")]);
    assert_eq!(ask(&index, "cart")[0].path, "b.kt");
    assert!(ask(&index, "kt toml").is_empty());
}

#[test]
fn file_ranking_is_deterministic_and_ties_sort_by_path() {
    let index =
        Index::from_texts([("b.rs", "fn cart() {}"), ("a.rs", "fn cart() {}"), ("c.rs", "fn cart() {}")]);
    assert_eq!(paths(&ask(&index, "the cart")), ["a.rs", "b.rs", "c.rs"]);
    let index = shop();
    let once = ask(&index, "fix(store): row and page");
    assert!((0..10).all(|_| ask(&index, "fix(store): row and page") == once));
}

#[test]
fn file_link_is_matched_by_its_path_and_not_by_its_host() {
    let index =
        Index::from_texts([("src/github.rs", "fn https() {}"), ("src/row.rs", ""), ("src/web.rs", "")]);
    let offers = ask(&index, "Wrong total\n\nSee https://github.com/o/shop/blob/3f2a/src/row.rs#L3-L5");
    assert_eq!(offers[0].path, "src/row.rs");
    assert!(offers.iter().all(|offer| !offer.words.contains(&"github".to_owned())), "{offers:?}");
}

#[test]
fn test_is_paired_with_the_nearest_source_file_of_the_same_name() {
    let index = Index::from_texts(
        [
            "a/__tests__/config.spec.ts",
            "a/__tests_dts__/config.ts",
            "a/config.ts",
            "a/deep/config.ts",
            "b/config.ts",
        ]
        .map(|path| (path, "")),
    );
    let place = |path| index.position(path).expect("it is there");
    let pair = (place("a/__tests__/config.spec.ts"), place("a/config.ts"));
    assert!(test_pairs::pair_tests(&index).contains(&pair));
}

#[test]
fn ranking_is_empty_for_an_empty_query_or_repository() {
    assert!(ask(&shop(), "").is_empty());
    assert!(ask(&shop(), "unheard 42 a").is_empty());
    assert!(ask(&Index::default(), "find_row").is_empty());
}

#[test]
#[ignore = "takes long"]
fn scores_are_finite_for_hostile_queries() {
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

#[test]
#[ignore = "takes long"]
fn ranking_completes_for_100000_files_with_the_same_name() {
    // All files are alike, so one is parsed for all.
    let one = Index::from_texts([("mod.rs", "use crate::mod_x::y;\nfn cart() {}\n")]).files()[0].clone();
    let mut index = Index::default();
    for at in 0..100_000 {
        index.add_file(IndexedFile { path: format!("d{}/e{at}/mod.rs", at % 100), ..one.clone() });
    }
    let index = index.sorted();
    let offers = ask(&index, "cart in mod.rs");
    assert_eq!(offers.len(), limits::SIMILAR_OFFERS);
}
