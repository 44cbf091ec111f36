//! What the files of an index are to each other, whatever is asked: found out once for each index.

use std::sync::OnceLock;

use super::{graph::Graph, paths::Names, tests_of};
use crate::codebase::Index;

#[derive(Debug)]
pub(super) struct Relations {
    pub(super) names: Names,
    /// Tests with what they test, in order.
    pub(super) tests: Vec<(usize, usize)>,
    pub(super) graph: Graph,
}

impl Relations {
    /// Not to be called by a thread of the pool: one that waits for its own work may take up another question, which
    /// would wait here for it.
    pub(super) fn of(index: &Index) -> &Self {
        index.related.0.get_or_init(|| {
            let names = Names::of(index);
            let tests = tests_of::pairs(index, &names);
            Self { names, tests, graph: Graph::of(index) }
        })
    }
}

/// Room in an index for its relations. They follow from its files: it equals any other.
#[derive(Debug, Default)]
pub(in crate::codebase) struct Related(OnceLock<Relations>);

impl Clone for Related {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Related {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Related {}
