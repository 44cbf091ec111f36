//! Which files of a repository matter for a text and a list of files, best first, and why.

mod graph;
mod query;
mod tests_of;

use std::{collections::BTreeMap, fmt};

use rayon::prelude::*;

use super::{File, Index, Language, words, imports::{stem, folder_of}, tree::file_name};
use crate::limits;
use query::Query;
use graph::Graph;

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
    let n = files.len();
    let hits: Vec<(Vec<Hit>, Vec<&str>)> = files.par_iter().map(|file| hits_of(file, &query)).collect();
    let mean = files.iter().map(|f| f.size as f64).sum::<f64>() / n.max(1) as f64;
    let mut df = vec![0u32; query.words.len()];
    for hit in hits.iter().flat_map(|h| &h.0) { df[hit.word] += 1; }
    let idf: Vec<f64> = df.iter().map(|d| (1.0 + (n as f64 - f64::from(*d) + 0.5) / (f64::from(*d) + 0.5)).ln()).collect();
    let k1 = env("K1", 1.2); let b = env("B", 0.5);
    let (wp, wd, wdir) = (env("WP", 4.0), env("WD", 3.0), env("WDIR", 0.5));
    let mut score: Vec<f64> = (0..n).map(|at| {
        let norm = 1.0 - b + b * files[at].size as f64 / mean;
        let mut s = 0.0;
        for hit in &hits[at].0 {
            let tf = wp * hit.path.max(hit.dir * wdir) + wd * hit.defined.ln_1p() + hit.body / norm;
            s += query.words[hit.word].1 * idf[hit.word].powf(env("IDFP", 1.0)) * tf * (k1 + 1.0) / (tf + k1);
        }
        let p = &files[at].path;
        if files[at].language == Language::Other { s *= env("OTHER", 0.5); }
        if tests_of::is_test(p) { s *= env("TEST", 1.0); }
        s
    }).collect();
    // scope
    for at in 0..n {
        let pw = words::of(&files[at].path);
        let inside = query.scope.iter().filter(|w| pw.contains(*w)).count();
        if inside > 0 { score[at] *= 1.0 + (env("SCOPE", 1.3) - 1.0) * inside as f64 / query.scope.len() as f64; }
    }
    norm(&mut score);
    // names
    let mut defs: BTreeMap<&str, u32> = BTreeMap::new();
    for name in hits.iter().flat_map(|h| &h.1) { *defs.entry(name).or_default() += 1; }
    let (wn, cap) = (env("NAME", 0.2), env("NAMECAP", 0.5));
    for at in 0..n {
        let bonus: f64 = hits[at].1.iter().map(|name| wn / f64::from(defs[name]).powf(env("NAMEP", 0.5))).sum();
        score[at] += bonus.min(cap);
    }
    // paths
    let mut by_stem: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, f) in files.iter().enumerate() { by_stem.entry(stem(file_name(&f.path))).or_default().push(at); if ["mod", "index", "__init__", "lib", "main"].contains(&stem(file_name(&f.path))) { by_stem.entry(file_name(folder_of(&f.path))).or_default().push(at); } }
    let mut by_path = vec![0.0f64; n];
    for path in &query.paths {
        let found = resolve_path(path, files, &by_stem);
        for at in &found { by_path[*at] = by_path[*at].max(env("PATH", 0.8) / (found.len() as f64).powf(env("PATHP", 0.7))); }
    }
    for at in 0..n { score[at] += by_path[at]; }
    // tests
    let wt = env("TESTOF", 0.0); let wts = env("SUBJECT", 0.0);
    if wt > 0.0 || wts > 0.0 {
        let old = score.clone();
        for at in 0..n {
            let Some(subject) = tests_of::subject(file_name(&files[at].path)) else { continue };
            for other in by_stem.get(subject).into_iter().flatten() {
                if tests_of::is_test(&files[*other].path) { continue }
                let same = folder_of(&files[*other].path) == folder_of(&files[at].path);
                let k = if same { 1.0 } else { 1.0 / (by_stem[subject].len() as f64) };
                score[at] = score[at].max(old[at] + wt * old[*other] * k);
                score[*other] = score[*other].max(old[*other] + wts * old[at] * k);
            }
        }
    }
    // graph
    let wg = env("GRAPH", 0.3);
    if wg > 0.0 {
        let graph = Graph::of(index);
        let seeds: Vec<f64> = score.iter().map(|s| s.powf(env("SEEDP", 2.0))).collect();
        let mut flow = graph.spread(&seeds, env("STEPS", 2.0) as usize, env("BACK", 0.3));
        flow.truncate(n);
        norm(&mut flow);
        for at in 0..n { score[at] += wg * flow[at] ; }
        let wpop = env("POP", 0.0);
        for at in 0..n { score[at] *= 1.0 + wpop * (graph.imported_by[at].len() as f64).ln_1p(); }
    }
    // folder
    let wf = env("FOLDER", 0.0);
    if wf > 0.0 {
        let mut best: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for at in 0..n { let e = best.entry(folder_of(&files[at].path)).or_default(); e.0 += score[at].powi(2); e.1 += 1.0; }
        let top = best.values().map(|b| b.0 / b.1.sqrt()).fold(0.0, f64::max).max(1e-9);
        for at in 0..n { let b = best[folder_of(&files[at].path)]; score[at] += wf * b.0 / b.1.sqrt() / top * score[at]; }
    }
    let mut scored: Vec<(f64, usize)> = score.into_iter().zip(0..).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    scored.into_iter().take(100).filter(|s| s.0 > 0.0).map(|(score, at)| {
        let mut w: Vec<_> = hits[at].0.iter().map(|h| (idf[h.word] * query.words[h.word].1, h.word)).collect();
        w.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut r: Vec<String> = w.iter().take(6).map(|w| query.words[w.1].0.clone()).collect();
        r.extend(hits[at].1.iter().map(|n| format!("def {n}")));
        Offer { path: files[at].path.clone(), score, reasons: vec![Reason::SharesWords(r)], items: vec![] }
    }).collect()
}
fn norm(v: &mut [f64]) { let top = v.iter().copied().fold(0.0, f64::max); if top > 0.0 { for s in v { *s /= top; } } }
fn resolve_path(path: &str, files: &[File], by_stem: &BTreeMap<&str, Vec<usize>>) -> Vec<usize> {
    let mut parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty() && *p != "..").collect();
    if parts.is_empty() { return vec![]; }
    let has_ending = parts.last().unwrap().contains('.');
    while !parts.is_empty() {
        let last = stem(parts.last().unwrap());
        let Some(known) = by_stem.get(last) else { parts.pop(); if has_ending || parts.len() < 2 { break } else { continue } };
        for skip in 0..parts.len() {
            if !has_ending && parts.len() - skip < 2 { break }
            if has_ending && parts.len() > 1 && parts.len() - skip < 2 { break }
            let want = parts[skip..].join("/");
            let found: Vec<usize> = known.iter().copied().filter(|at| {
                let p = &files[*at].path;
                if has_ending { p == &want || p.strip_suffix(&want).is_some_and(|b| b.ends_with('/')) }
                else { let w = p.rsplit_once('.').map_or(p.as_str(), |x| x.0); let w = w.strip_suffix("/mod").or(w.strip_suffix("/__init__")).or(w.strip_suffix("/index")).unwrap_or(w);
                    w == want || w.strip_suffix(&want).is_some_and(|b| b.ends_with('/')) }
            }).collect();
            if !found.is_empty() { return found }
        }
        if has_ending { break }
        parts.pop();
    }
    vec![]
}
fn env(n: &str, d: f64) -> f64 {
    use std::sync::{OnceLock, Mutex};
    static E: OnceLock<std::collections::HashMap<String, f64>> = OnceLock::new();
    *E.get_or_init(|| std::env::vars().filter_map(|(k, v)| Some((k, v.parse().ok()?))).collect()).get(n).unwrap_or(&d)
}
#[derive(Default)]
struct Hit { word: usize, path: f64, dir: f64, defined: f64, body: f64 }
fn hits_of<'i>(file: &'i File, query: &Query) -> (Vec<Hit>, Vec<&'i str>) {
    let mut map: BTreeMap<usize, Hit> = BTreeMap::new();
    let find = |word: &str| query.words.binary_search_by(|(w, _)| w.as_str().cmp(word)).ok();
    for (at, (word, _)) in query.words.iter().enumerate() {
        let c = file.digest.count(word);
        if c > 0 { map.entry(at).or_default().body += f64::from(c); }
    }
    let parts: Vec<&str> = file.path.split('/').collect();
    for (i, part) in parts.iter().enumerate() {
        let last = i + 1 == parts.len();
        for name in words::names_of(part) { words::each_of_name(name, |word| if let Some(at) = find(word) { let h = map.entry(at).or_default(); if last { h.path = 1.0 } else { h.dir = 1.0 } }) }
    }
    let mut names = vec![];
    let mut stack: Vec<_> = file.digest.summary().items.iter().collect();
    while let Some(item) = stack.pop() {
        words::each_of_name(&item.name, |word| if let Some(at) = find(word) { map.entry(at).or_default().defined += 1.0 });
        if query.names.contains(&item.name) { names.push(item.name.as_str()); }
        stack.extend(&item.children);
    }
    names.sort_unstable(); names.dedup();
    (map.into_iter().map(|(word, hit)| Hit { word, ..hit }).collect(), names)
}
