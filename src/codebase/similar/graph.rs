//! Who imports whom, and how near that brings two files.

use std::collections::HashMap;

use rayon::prelude::*;

use super::tests_of::is_test;
use crate::codebase::{File, Index, Resolved, Resolver, imports::folder_of, reading::in_parallel};

/// What a file keeps of what it has.
const KEPT: f64 = 0.3;

/// The files of an index by their places in it, with the edges of their imports. A folder that is imported as a whole
/// is a point of its own after the files, so that no edge is drawn for each pair of files.
#[derive(Debug, Default)]
pub(super) struct Graph {
    files: usize,
    /// Edges from each point to what it imports, in order, each once; from a folder to its files.
    out: Vec<Vec<usize>>,
    /// The same edges the other way.
    back: Vec<Vec<usize>>,
}

impl Graph {
    pub(super) fn of(index: &Index) -> Self {
        let resolver = Resolver::new(index);
        let files = index.files();
        let resolve = |file: &File| -> Vec<Resolved<'_>> {
            let imports = &file.digest.summary().imports;
            imports.iter().map(|import| resolver.resolve(&file.path, import)).collect()
        };
        let resolved: Vec<_> = in_parallel(|| files.par_iter().map(resolve).collect());
        let places: HashMap<&str, usize> =
            files.iter().zip(0..).map(|(file, at)| (file.path.as_str(), at)).collect();
        let mut folders: HashMap<&str, usize> = HashMap::new();
        let mut out = vec![Vec::new(); files.len()];
        for (edges, resolved) in out.iter_mut().zip(&resolved) {
            for resolved in resolved {
                match resolved {
                    Resolved::Files(paths) => edges.extend(paths.iter().map(|path| places[path])),
                    Resolved::Folder(folder) => {
                        let next = files.len() + folders.len();
                        edges.push(*folders.entry(folder).or_insert(next));
                    }
                    Resolved::External | Resolved::Missing => {}
                }
            }
        }
        out.resize(files.len() + folders.len(), Vec::new());
        for (at, file) in files.iter().enumerate().filter(|(_, file)| !is_test(&file.path)) {
            if let Some(folder) = folders.get(folder_of(&file.path)) {
                out[*folder].push(at);
            }
        }
        Self::with_edges(files.len(), out)
    }

    fn with_edges(files: usize, mut out: Vec<Vec<usize>>) -> Self {
        let mut back = vec![Vec::new(); out.len()];
        for (from, edges) in out.iter_mut().enumerate() {
            edges.sort_unstable();
            edges.dedup();
            edges.retain(|to| *to != from);
            for to in edges {
                back[*to].push(from);
            }
        }
        Self { files, out, back }
    }

    /// Whether one file imports the other, or the folder that it is in.
    pub(super) fn leads(&self, from: usize, to: usize) -> bool {
        let edges = &self.out[from];
        edges.binary_search(&to).is_ok()
            || edges
                .iter()
                .rev()
                .take_while(|to| **to >= self.files)
                .any(|folder| self.out[*folder].binary_search(&to).is_ok())
    }

    /// What has come to each file when each has handed most of what it had to its neighbours in equal parts: half of that
    /// to what it imports, half to what imports it. What comes to a folder goes on at once.
    pub(super) fn spread(&self, seeds: &[f64]) -> Vec<f64> {
        let mut flow: Vec<f64> = seeds.iter().map(|seed| seed * KEPT).collect();
        flow.resize(self.out.len(), 0.0);
        for (file, seed) in seeds.iter().enumerate().filter(|(_, seed)| **seed > 0.0) {
            self.hand_on(file, seed * (1.0 - KEPT), &mut flow);
        }
        for folder in self.files..self.out.len() {
            self.hand_on(folder, flow[folder], &mut flow);
        }
        flow.truncate(self.files);
        flow
    }

    fn hand_on(&self, from: usize, amount: f64, flow: &mut [f64]) {
        for edges in [&self.out[from], &self.back[from]] {
            let share = amount / 2.0 / edges.len().max(1) as f64;
            for to in edges {
                flow[*to] += share;
            }
        }
    }
}
