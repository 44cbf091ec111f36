//! Who imports whom, and how near that brings two files.

use std::collections::HashMap;

use rayon::prelude::*;

use super::tests_of::is_test;
use crate::codebase::{Index, Resolved, Resolver, imports::folder_of};

/// Of what a point receives at each step, this part comes from the seeds anew.
const BACK: f64 = 0.3;

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
        let resolved: Vec<Vec<Resolved<'_>>> = files
            .par_iter()
            .map(|file| {
                let imports = &file.digest.summary().imports;
                imports.iter().map(|import| resolver.resolve(&file.path, import)).collect()
            })
            .collect();
        let places: HashMap<&str, usize> = files.iter().zip(0..).map(|(file, at)| (file.path.as_str(), at)).collect();
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

    /// The files that one imports, in order.
    pub(super) fn imports(&self, file: usize) -> Vec<usize> {
        self.past_folders(&self.out, file)
    }

    /// The files that import one, in order.
    pub(super) fn imported_by(&self, file: usize) -> Vec<usize> {
        self.past_folders(&self.back, file)
    }

    fn past_folders(&self, edges: &[Vec<usize>], file: usize) -> Vec<usize> {
        let (mut found, folders): (Vec<usize>, Vec<usize>) = edges[file].iter().partition(|to| **to < self.files);
        found.extend(folders.iter().flat_map(|folder| &edges[*folder]));
        found.sort_unstable();
        found.dedup();
        found.retain(|other| *other != file);
        found
    }

    /// Whether one file imports the other, or the folder that it is in.
    pub(super) fn leads(&self, from: usize, to: usize) -> bool {
        let edges = &self.out[from];
        edges.binary_search(&to).is_ok()
            || edges.iter().rev().take_while(|to| **to >= self.files).any(|folder| self.out[*folder].binary_search(&to).is_ok())
    }

    /// What has come to each point when each hands what it has to its neighbours in equal parts, so many times.
    pub(super) fn spread(&self, seeds: &[f64], steps: usize) -> Vec<f64> {
        let mut start = seeds.to_vec();
        start.resize(self.out.len(), 0.0);
        let mut now = start.clone();
        for _ in 0..steps {
            let mut next: Vec<f64> = start.iter().map(|seed| seed * BACK).collect();
            for (from, has) in now.iter().enumerate().filter(|(_, has)| **has > 0.0) {
                for edges in [&self.out[from], &self.back[from]] {
                    let share = has * (1.0 - BACK) / 2.0 / edges.len().max(1) as f64;
                    for to in edges {
                        next[*to] += share;
                    }
                }
            }
            now = next;
        }
        now.truncate(self.files);
        now
    }
}
