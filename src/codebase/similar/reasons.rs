//! Why a file is offered, for people to read. Each reason is true by itself, whatever it weighed.

use std::{collections::BTreeMap, fmt};

use super::{graph::Graph, query::Query, text::Found};
use crate::codebase::Index;

/// Why a file is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The request lists it.
    Requested,
    /// The text writes its path, its name or its module's path.
    NamedInText(String),
    /// It defines what the text names.
    DefinesSymbols(Vec<String>),
    /// It uses what the text names.
    UsesSymbols(Vec<String>),
    /// Words of the text stand in its path.
    NameMatches(Vec<String>),
    /// It has these words of the text, the most telling first.
    SharesWords(Vec<String>),
    /// It tests an offered file.
    TestOf(String),
    TestedBy(String),
    /// It imports an offered file that ranks higher.
    Imports(String),
    ImportedBy(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("one of the files to change"),
            Self::NamedInText(path) => write!(f, "the text names {path}"),
            Self::DefinesSymbols(names) => write!(f, "defines {}", names.join(", ")),
            Self::UsesSymbols(names) => write!(f, "uses {}", names.join(", ")),
            Self::NameMatches(words) => write!(f, "its path has {}", words.join(", ")),
            Self::SharesWords(words) => write!(f, "has the words {}", words.join(", ")),
            Self::TestOf(path) => write!(f, "tests {path}"),
            Self::TestedBy(path) => write!(f, "is tested by {path}"),
            Self::Imports(path) => write!(f, "imports {path}"),
            Self::ImportedBy(path) => write!(f, "is imported by {path}"),
        }
    }
}

/// How many words, names or neighbours a reason lists.
const LISTED: usize = 6;
/// Neighbours are looked for among so many of the best.
const BEST: usize = 10;

/// What the ranking went by.
pub(super) struct About<'a> {
    pub(super) index: &'a Index,
    pub(super) query: &'a Query,
    pub(super) found: &'a [Found<'a>],
    pub(super) named: &'a BTreeMap<usize, &'a str>,
    /// Tests with what they test, in order.
    pub(super) tests: &'a [(usize, usize)],
    pub(super) graph: &'a Graph,
    /// The offered files, best first.
    pub(super) order: &'a [usize],
}

impl About<'_> {
    pub(super) fn reasons(&self, at: usize, requested: bool) -> Vec<Reason> {
        let found = &self.found[at];
        let mut reasons = Vec::new();
        if requested {
            reasons.push(Reason::Requested);
        }
        reasons.extend(self.named.get(&at).map(|path| Reason::NamedInText((*path).to_owned())));
        let names = |names: &[&str]| names.iter().take(LISTED).map(|name| (*name).to_owned()).collect();
        if !found.defines.is_empty() {
            reasons.push(Reason::DefinesSymbols(names(&found.defines)));
        }
        if !found.uses.is_empty() {
            reasons.push(Reason::UsesSymbols(names(&found.uses)));
        }
        let words = |places: &[usize]| -> Vec<String> {
            places.iter().take(LISTED).map(|word| self.query.words[*word].0.clone()).collect()
        };
        if !found.in_path.is_empty() {
            reasons.push(Reason::NameMatches(words(&found.in_path)));
        }
        if !found.in_text.is_empty() {
            reasons.push(Reason::SharesWords(words(&found.in_text)));
        }
        let better =
            self.order.iter().take(BEST).take_while(|better| **better != at).copied().collect::<Vec<_>>();
        let first =
            |is: &dyn Fn(usize) -> bool| better.iter().find(|better| is(**better)).map(|at| self.path(*at));
        reasons.extend(first(&|other| self.tests.binary_search(&(at, other)).is_ok()).map(Reason::TestOf));
        reasons.extend(first(&|other| self.tests.binary_search(&(other, at)).is_ok()).map(Reason::TestedBy));
        reasons.extend(first(&|other| self.graph.leads(at, other)).map(Reason::Imports));
        reasons.extend(first(&|other| self.graph.leads(other, at)).map(Reason::ImportedBy));
        reasons
    }

    fn path(&self, at: usize) -> String {
        self.index.files()[at].path.clone()
    }
}
