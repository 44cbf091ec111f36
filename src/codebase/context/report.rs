//! What a context holds, and what it does not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ContextCandidate, forms::FileForm, untrusted_text};
use crate::codebase::Index;

/// For people: what a model was shown and why, and what was left out and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextReport {
    /// What there was room for, in tokens, as estimated.
    pub budget: usize,
    /// What was used of it.
    pub tokens: usize,
    /// What of that the list of paths takes.
    pub listing: usize,
    /// In the order in which they are shown.
    pub included: Vec<IncludedFile>,
    /// Files that matter and had no room, the most telling first.
    pub no_room: Vec<String>,
    /// How many of those are named as ones to change, or are among the best that were found.
    pub missed: usize,
    /// Files that are named and that no model is shown, each with the reason.
    pub refused: Vec<(String, String)>,
    /// Files no model is shown, by the reason.
    pub left_out: Vec<ExclusionGroup>,
    /// Files that the parser had not the time for here, and of which another machine may know more: the first of them.
    #[serde(default)]
    pub timed_out: Vec<String>,
    /// Credentials blacked out.
    pub secrets: usize,
}

/// A file that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludedFile {
    pub path: String,
    /// How much of it.
    pub form: String,
    pub tokens: usize,
    pub why: String,
}

/// Files that are left out for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExclusionGroup {
    pub why: String,
    pub count: usize,
    /// The first of them.
    pub some: Vec<String>,
}

/// Paths that are told of each reason.
const SOME: usize = 10;

impl ContextReport {
    /// With what no model is shown of a repository, whatever is asked.
    pub(super) fn for_index(index: &Index) -> Self {
        let mut by_reason: BTreeMap<_, (usize, Vec<String>)> = BTreeMap::new();
        for left in index.excluded() {
            let (count, some) = by_reason.entry(left.why).or_default();
            *count += 1;
            if some.len() < SOME {
                some.push(untrusted_text::one_line(&left.path));
            }
        }
        let never = |(why, (count, some)): (crate::codebase::ExclusionReason, (usize, Vec<String>))| {
            ExclusionGroup { why: why.to_string(), count, some }
        };
        let timed_out = index.files().iter().filter(|file| file.digest.timed_out());
        Self {
            left_out: by_reason.into_iter().map(never).collect(),
            timed_out: timed_out.take(SOME).map(|file| untrusted_text::one_line(&file.path)).collect(),
            ..Self::default()
        }
    }

    pub(super) fn include_file(&mut self, candidate: &ContextCandidate, form: &FileForm) {
        self.secrets += form.secrets;
        self.included.push(IncludedFile {
            path: untrusted_text::one_line(&candidate.path),
            form: form.kind.as_str().to_owned(),
            tokens: form.tokens,
            why: candidate.why.clone(),
        });
    }

    pub(super) fn record_omission(&mut self, candidate: &ContextCandidate, held: bool) {
        self.missed += usize::from(held);
        self.no_room.push(untrusted_text::one_line(&candidate.path));
    }
}
