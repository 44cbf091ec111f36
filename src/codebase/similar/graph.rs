//! Who imports whom, and how near that brings two files.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::codebase::{Index, Resolved, Resolver};

/// The files of an index by their place in it, with the edges of their imports. A folder that is imported as a whole
/// is a point of its own, so that no edge is drawn for each pair of files.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Edges from each point to what it imports, in order, each once. Points after the files are folders, which lead to
    /// their files.
    pub(super) imports: Vec<Vec<u32>>,
    /// The same edges the other way.
    pub(super) imported_by: Vec<Vec<u32>>,
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
        let by_path: HashMap<&str, u32> = files.iter().zip(0..).map(|(file, at)| (file.path.as_str(), at)).collect();
        let mut folders: HashMap<&str, u32> = HashMap::new();
        let mut graph = Self { imports: vec![Vec::new(); files.len()], imported_by: Vec::new() };
        for (from, found) in resolved.iter().enumerate() {
            for resolved in found {
                match resolved {
                    Resolved::Files(paths) => graph.imports[from].extend(paths.iter().map(|path| by_path[path])),
                    Resolved::Folder(folder) => {
                        let next = files.len() + folders.len();
                        let point = *folders.entry(folder).or_insert_with(|| u32::try_from(next).unwrap_or(0));
                        graph.imports[from].push(point);
                    }
                    Resolved::External | Resolved::Missing => {}
                }
            }
        }
        graph.imports.resize(files.len() + folders.len(), Vec::new());
        for (file, at) in files.iter().zip(0..) {
            if let Some(point) = folders.get(crate::codebase::imports::folder_of(&file.path))
                && !super::tests_of::is_test(&file.path)
            {
                graph.imports[*point as usize].push(at);
            }
        }
        graph.finish()
    }

    fn finish(mut self) -> Self {
        self.imported_by = vec![Vec::new(); self.imports.len()];
        for from in 0..self.imports.len() {
            let edges = &mut self.imports[from];
            edges.sort_unstable();
            edges.dedup();
            edges.retain(|to| *to as usize != from);
            for to in &self.imports[from] {
                self.imported_by[*to as usize].push(u32::try_from(from).unwrap_or(0));
            }
        }
        self
    }

    /// What flows to each point when each keeps nothing and hands what it has to its neighbours in equal parts, `steps`
    /// times, a part `back` of it coming from the seeds anew at each.
    pub(super) fn spread(&self, seeds: &[f64], steps: usize, back: f64) -> Vec<f64> {
        let mut now = vec![0.0; self.imports.len()];
        now[..seeds.len()].copy_from_slice(seeds);
        let start = now.clone();
        for _ in 0..steps {
            let mut next: Vec<f64> = start.iter().map(|seed| seed * back).collect();
            for (from, has) in now.iter().enumerate().filter(|(_, has)| **has > 0.0) {
                for edges in [&self.imports[from], &self.imported_by[from]] {
                    let share = has * (1.0 - back) / 2.0 / edges.len().max(1) as f64;
                    for to in edges {
                        next[*to as usize] += share;
                    }
                }
            }
            now = next;
        }
        now
    }
}
