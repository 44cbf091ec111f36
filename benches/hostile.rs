//! Measures the ranking of files for requests and trees that an attacker designed to be expensive. Twice the input may
//! take only about twice as long.

use std::time::Instant;

use countersign::codebase::{Index, RankingRequest, rank_files};

use crate::measure::{Ms, head, ms, row};

pub(crate) fn main() {
    head(&["hostile input", "half of it", "all of it", "ratio"]);
    let shop =
        Index::from_texts([("src/store.rs", "pub struct Row;\npub fn find_row(id: u64) -> Row { Row }\n")]);
    for (name, unit, times) in [
        ("a million words", "w1 ", 1_000_000),
        ("folders", "a/", 500_000),
        ("backticks", "`", 1 << 20),
        ("paths of types", "a::", 400_000),
        ("patterns", "(a+)+$.*[", 100_000),
        ("letters of two bytes", "é_", 400_000),
    ] {
        compare(name, times, |times| ask(&shop, &unit.repeat(times)));
    }
    compare("deep paths in a deep tree", 5_000, |files| {
        let deep = "index/".repeat(300);
        let paths: Vec<String> =
            (0..files).map(|at| format!("d{at}/{}index.ts", &deep[..6 * (at % 30)])).collect();
        let asked: String = (0..200).map(|at| format!("x{at}/{}index\n", &deep[..180])).collect();
        ask(&Index::from_texts(paths.iter().map(|path| (path.as_str(), ""))), &asked)
    });
}

/// Returns the time of one ranking in milliseconds.
fn ask(index: &Index, text: &str) -> f64 {
    let begun = Instant::now();
    std::hint::black_box(rank_files(index, &RankingRequest { text, files: &[] }));
    ms(begun.elapsed())
}

fn compare(name: &str, size: usize, measured: impl Fn(usize) -> f64) {
    let (half, whole) = (measured(size / 2), measured(size));
    row(&[&name, &Ms(half), &Ms(whole), &format_args!("{:.1}", whole / half.max(f64::EPSILON))]);
}
