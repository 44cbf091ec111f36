//! Report on a context: the files shown, the files left out, and the reasons.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ContextCandidate, forms::FileForm, untrusted_text};
use crate::codebase::Index;

/// Report for people on the files that were shown to a model and the files that were left out, each with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextReport {
    /// Budget of the whole context in tokens.
    pub budget: usize,
    pub tokens: usize,
    /// Number of tokens used by the list of paths.
    pub listing: usize,
    /// Files that are shown, in display order.
    pub included: Vec<IncludedFile>,
    /// Relevant files that did not fit into the budget, most relevant first.
    pub no_room: Vec<String>,
    /// Number of files in `no_room` that were named in the request or were among the best-ranked files.
    pub missed: usize,
    /// Named files that are never shown to a model, each with the reason for the exclusion.
    pub refused: Vec<(String, String)>,
    /// Files that are never shown to a model, grouped by reason.
    pub left_out: Vec<ExclusionGroup>,
    /// Files whose parsing timed out on this machine; only the first few are listed. A faster machine may parse more of
    /// them.
    #[serde(default)]
    pub timed_out: Vec<String>,
    pub secrets: usize,
}

/// A file that is shown to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludedFile {
    pub path: String,
    /// Form in which the file is shown, such as `whole` or `parts`.
    pub form: String,
    pub tokens: usize,
    pub why: String,
}

/// Files excluded for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExclusionGroup {
    pub why: String,
    pub count: usize,
    pub some: Vec<String>,
}

/// Maximum number of paths listed per reason. Also the maximum number of listed files whose parsing timed out.
const SOME: usize = 10;

impl ContextReport {
    /// Creates a report that lists the files excluded from every context.
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
