//! Which files of a repository matter for a text and a list of files, best first, and why.
//!
//! Three voices: the words that text and file share, rare ones counting more (BM25 over the file's path, what it defines,
//! and its text); what the text names outright; and the graph of who imports whom, through which files that lie close to
//! good ones gain. No model, no embedding: the same commit and request give the same order.

mod query;

use std::{collections::BTreeMap, fmt};

use rayon::prelude::*;

use super::{File, Index, Language, words};
use crate::limits;
use query::Query;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// An issue, title first, or a design.
    pub text: &'a str,
    /// The files to change, if they are known.
    pub files: &'a [String],
}

/// A file that matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    pub path: String,
    /// Comparable within one answer only.
    pub score: f64,
    pub reasons: Vec<Reason>,
    /// The first and last lines of the items in it that matter most, best first.
    pub items: Vec<(u32, u32)>,
}

/// Why a file is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    SharesWords(Vec<String>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharesWords(words) => write!(f, "shares {}", words.join(", ")),
        }
    }
}

/// The files that matter, best first.
pub fn rank(index: &Index, request: &Request<'_>) -> Vec<Offer> {
    let query = Query::of(request.text);
    let files = index.files();
    let hits: Vec<Vec<Hit>> = files.par_iter().map(|file| hits_of(file, &query)).collect();
    let lengths: Vec<f64> = files.par_iter().map(|f| f.digest.words.iter().map(|w| f64::from(w.1)).sum::<f64>()).collect();
    let mean = lengths.iter().sum::<f64>() / files.len().max(1) as f64;
    let mut df = vec![0u32; query.words.len()];
    for hit in hits.iter().flatten() { df[hit.word] += 1; }
    let idf: Vec<f64> = df.iter().map(|d| (1.0 + (files.len() as f64 - f64::from(*d) + 0.5) / (f64::from(*d) + 0.5)).ln()).collect();
    let k1 = env("K1", 1.2); let b = env("B", 0.5);
    let (wp, wd) = (env("WP", 4.0), env("WD", 3.0));
    let mut scored: Vec<(f64, usize)> = (0..files.len()).map(|at| {
        let norm = 1.0 - b + b * lengths[at] / mean;
        let mut s = 0.0;
        for hit in &hits[at] {
            let tf = wp * hit.path + wd * hit.defined.ln_1p() + hit.body / norm;
            s += query.words[hit.word].1 * idf[hit.word] * tf * (k1 + 1.0) / (tf + k1);
        }
        let p = &files[at].path;
        if files[at].language == Language::Other { s *= env("OTHER", 0.5); }
        if p.contains("test") { s *= env("TEST", 1.0); }
        if query.scope.iter().any(|w| words::of(p).contains(w)) { s *= env("SCOPE", 1.3); }
        (s, at)
    }).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().take(100).filter(|s| s.0 > 0.0).map(|(score, at)| {
        let mut w: Vec<_> = hits[at].iter().map(|h| (idf[h.word] * query.words[h.word].1, h.word)).collect();
        w.sort_by(|a, b| b.0.total_cmp(&a.0));
        Offer { path: files[at].path.clone(), score, reasons: vec![Reason::SharesWords(w.iter().take(6).map(|w| query.words[w.1].0.clone()).collect())], items: vec![] }
    }).collect()
}
fn env(n: &str, d: f64) -> f64 { std::env::var(n).ok().and_then(|v| v.parse().ok()).unwrap_or(d) }
#[derive(Default)]
struct Hit { word: usize, path: f64, defined: f64, body: f64 }
fn hits_of(file: &File, query: &Query) -> Vec<Hit> {
    let mut map: BTreeMap<usize, Hit> = BTreeMap::new();
    let find = |word: &str| query.words.binary_search_by(|(w, _)| w.as_str().cmp(word)).ok();
    for (at, (word, _)) in query.words.iter().enumerate() {
        if let Ok(p) = file.digest.words.binary_search_by(|(w, _)| w.cmp(word)) {
            map.entry(at).or_default().body += f64::from(file.digest.words[p].1);
        }
    }
    let parts: Vec<&str> = file.path.split('/').collect();
    for (i, part) in parts.iter().enumerate() {
        let w = if i + 1 == parts.len() { 1.0 } else { 0.5 };
        for name in words::names_of(part) { words::each_of_name(name, |word| if let Some(at) = find(word) { let p = &mut map.entry(at).or_default().path; *p = p.max(w) }); }
    }
    let mut stack: Vec<_> = file.digest.summary.items.iter().collect();
    while let Some(item) = stack.pop() {
        words::each_of_name(&item.name, |word| if let Some(at) = find(word) { map.entry(at).or_default().defined += 1.0 });
        stack.extend(&item.children);
    }
    map.into_iter().map(|(word, hit)| Hit { word, ..hit }).collect()
}
