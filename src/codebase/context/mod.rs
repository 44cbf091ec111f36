//! Builds the part of a prompt that shows a repository, within a token budget. This part contains the list of paths,
//! the interfaces of the files to change, relevant code with the reason for each file, and the repository's own
//! documentation.
//!
//! The work is split into two steps, so that file contents are read only when they are needed. [`plan_context`] uses
//! only the index and decides which files to read; [`ContextPlan::fill`] takes the contents of these files and chooses
//! what to show. [`gather_context`] runs both steps and reads at most `CONTEXT_READ_BYTES` of files. The same commit,
//! request and budget give the same bytes, except for files listed in [`ContextReport::timed_out`].
//!
//! Repository content cannot escape its place in the prompt: a file cannot close the fence around its text, and a path
//! cannot break out of its line. Credentials are redacted before any text is cut, because half a credential might not
//! be recognized.

mod forms;
mod listing;
mod parts;
mod report;
mod roles;
mod untrusted_text;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    Index, RankedFile, RankingRequest,
    budget::{self, BudgetItem},
    file_filter,
    index_builder::{in_parallel, run_blocking},
    rank_files,
    ranking::{RankingQuery, is_test},
};
use crate::{
    git::{GitError, Snapshot},
    limits,
};
use forms::FileForm;
pub use report::{ContextReport, ExclusionGroup, IncludedFile};
use untrusted_text::RedactedText;
pub use untrusted_text::{fence_text, redact_text};

/// Maximum number of bytes of file contents that are held in memory at once.
const CONTEXT_READ_BYTES: u64 = 8 * 1024 * 1024;

/// Number of top-ranked files that the report counts as missed if they do not fit into the budget.
const CONTEXT_HELD: usize = 8;

/// Repository sections of a prompt, in Markdown that cannot break out of its fences.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSections {
    pub paths: String,
    /// One section per file. Files named in the request come first, followed by the others from most to least relevant.
    pub files: Vec<String>,
    /// Section of each named file in the file's required form, usually the interface. The order is the same as in
    /// `files`.
    #[serde(default)]
    pub least: Vec<String>,
}

/// The repository sections of a prompt, and a report of the files that were shown and left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodebaseContext {
    #[serde(flatten)]
    pub shown: ContextSections,
    #[serde(default)]
    pub report: ContextReport,
}

/// Input of [`gather_context`].
#[derive(Debug, Clone, Default)]
pub struct ContextRequest {
    /// Text of an issue (title first) or of a design.
    pub text: String,
    /// Paths of the files to change, if they are known.
    pub files: Vec<String>,
    /// Budget in tokens.
    pub budget: usize,
}

/// Candidates and paths that were chosen from the index alone, before any file was read.
#[derive(Debug)]
pub struct ContextPlan {
    index: Arc<Index>,
    query: RankingQuery,
    budget: usize,
    listing: String,
    /// Candidates in display order.
    candidates: Vec<ContextCandidate>,
    report: ContextReport,
}

#[derive(Debug)]
struct ContextCandidate {
    path: String,
    /// Reason for showing the file, which is printed in the prompt and in the report.
    why: String,
    /// Relevance, on the same scale for all candidates.
    value: f64,
    role: FileRole,
}

/// Role in the repository or in the request that makes a file a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileRole {
    /// A file that is named as a file to change. Its interface must be shown.
    Named,
    Convention,
    Manifest,
    /// CI configuration, which defines the commands that run for each change.
    Automation,
    Found,
}

/// Builds the context for a commit: plans the context, reads the wanted files in one batch, and chooses what to show.
pub async fn gather_context(
    index: Arc<Index>,
    snapshot: &Snapshot,
    request: ContextRequest,
) -> Result<CodebaseContext, GitError> {
    let plan = run_blocking(move || plan_context(index, &request)).await?;
    let wanted: Vec<_> = plan.wanted_paths().filter_map(|path| snapshot.entry(path)).cloned().collect();
    let oids: Vec<_> = wanted.iter().map(|entry| entry.oid.clone()).collect();
    let read = snapshot.read(&oids).await?;
    let contents =
        wanted.into_iter().zip(read).filter_map(|(entry, bytes)| Some((entry.path, bytes?))).collect();
    run_blocking(move || plan.fill(contents)).await
}

/// Plans which files may be shown and which file contents must be read.
pub fn plan_context(index: Arc<Index>, request: &ContextRequest) -> ContextPlan {
    let offers = rank_files(&index, &RankingRequest { text: &request.text, files: &request.files });
    let (named, refused) = roles::find_named_files(&index, request);
    let report = ContextReport { budget: request.budget, refused, ..ContextReport::for_index(&index) };
    let listing = listing::list_paths(&index, &offers, request.budget / 8);
    let candidates = collect_candidates(&index, named, &offers);
    let query = RankingQuery::parse(&request.text);
    ContextPlan { index, query, budget: request.budget, listing, candidates, report }
}

/// Value of a named file. In comparison, the best-ranked file has the value 1.
const NAMED_VALUE: f64 = 1.5;

/// Number of top-ranked files near which project files such as manifests are searched. Test files do not count, because
/// tests have their own manifests.
const BEST: usize = 3;

/// Returns each candidate once, with its strongest role. Named files come first, followed by the others from most to
/// least relevant.
fn collect_candidates(index: &Index, named: Vec<String>, offers: &[RankedFile]) -> Vec<ContextCandidate> {
    let best = offers.iter().find(|offer| !named.contains(&offer.path));
    let best = best.map_or(1.0, |offer| offer.score).max(f64::MIN_POSITIVE);
    let no_tests = offers.iter().map(|offer| &offer.path).filter(|path| !is_test(path));
    let around: Vec<String> = named.iter().chain(no_tests.take(BEST)).cloned().collect();
    let named = named.into_iter().map(|path| (path, FileRole::Named, NAMED_VALUE));
    let found = offers.iter().take(limits::CONTEXT_FILES);
    // Squared, so that a few small files do not outweigh the code of one relevant file.
    let found = found.map(|offer| (offer.path.clone(), FileRole::Found, (offer.score / best).powi(2)));
    let mut seen = BTreeSet::new();
    let all = named.chain(roles::find_project_files(index, &around)).chain(found);
    let mut candidates: Vec<ContextCandidate> = all
        .filter(|(path, ..)| seen.insert(path.clone()))
        .map(|(path, role, value)| {
            let offer = offers.iter().find(|offer| offer.path == path);
            ContextCandidate { why: inclusion_reason(role, offer), path, value, role }
        })
        .collect();
    let is_named = |candidate: &ContextCandidate| candidate.role == FileRole::Named;
    candidates.sort_by(|a, b| is_named(b).cmp(&is_named(a)).then_with(|| b.value.total_cmp(&a.value)));
    candidates
}

fn inclusion_reason(role: FileRole, offer: Option<&RankedFile>) -> String {
    let own = match role {
        FileRole::Named => Some("named as a file of this work"),
        FileRole::Convention => Some("says how people work here"),
        FileRole::Manifest => Some("says what it is built from"),
        FileRole::Automation => Some("says what is run for each change"),
        FileRole::Found => None,
    };
    let words = offer.map(|offer| offer.words.join(", ")).filter(|words| !words.is_empty());
    let words = words.map(|words| format!("by the words {words}"));
    let all: Vec<String> = own.map(str::to_owned).into_iter().chain(words).collect();
    untrusted_text::one_line(&all.join("; "))
}

impl ContextPlan {
    /// Returns the paths of the files to read, each once. Skips files whose content would exceed the rest of
    /// `CONTEXT_READ_BYTES`.
    pub fn wanted_paths(&self) -> impl Iterator<Item = &str> {
        let mut left = CONTEXT_READ_BYTES;
        self.candidates.iter().map(|candidate| candidate.path.as_str()).filter(move |path| {
            let size = self.index.file(path).map_or(0, |file| file.size);
            let wanted = size <= left;
            left -= if wanted { size } else { 0 };
            wanted
        })
    }

    /// Chooses what to show, given file contents by path. A file without contents is represented by its summary. Each
    /// form is built twice, once to measure it and once to show it, because keeping all forms would take many times the
    /// memory.
    pub fn fill(self, contents: BTreeMap<String, Bytes>) -> CodebaseContext {
        let Self { index, query, budget, listing, candidates, mut report } = self;
        let mut shown = ContextSections::default();
        let tokens = super::tokens::estimate_tokens(&listing);
        if tokens <= budget {
            (shown.paths, report.listing) = (listing, tokens);
        }
        let left = budget - report.listing;
        let text = |file: &ContextCandidate| {
            let bytes = contents.get(&file.path)?;
            Some(RedactedText::new(file_filter::decode_text(bytes, true).ok()?))
        };
        // Redact before any text is cut.
        let texts: Vec<Option<RedactedText>> = in_parallel(|| candidates.par_iter().map(text).collect());
        let plain: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_ref()?.text.as_str())).collect();
        let parts = parts::split_texts(&plain, &query);
        let forms = |at: usize| -> Vec<FileForm> {
            let file = index.file(&candidates[at].path);
            let forms =
                |file| forms::build_forms(&candidates[at], file, texts[at].as_ref(), &parts[at], left);
            file.map_or_else(Vec::new, forms)
        };
        let named = candidates.iter().filter(|candidate| candidate.role == FileRole::Named).count();
        let share = (left / (2 * named.max(1))).max(INTERFACE);
        let pieces: Vec<BudgetItem> =
            (0..candidates.len()).map(|at| budget_item(&candidates[at], &forms(at), share)).collect();
        let mut found = 0;
        let choice = budget::select_forms(&pieces, left);
        report.tokens = report.listing + choice.tokens;
        for (at, (candidate, piece)) in candidates.iter().zip(&pieces).enumerate() {
            found += usize::from(candidate.role == FileRole::Found);
            let best = candidate.role == FileRole::Found && found <= CONTEXT_HELD;
            let Some(chosen) = choice.forms[at] else {
                let empty = piece.forms.is_empty() && plain[at].is_some_and(|text| text.trim().is_empty());
                if !empty {
                    report.record_omission(candidate, candidate.role == FileRole::Named || best);
                }
                continue;
            };
            let mut forms = forms(at);
            if let (FileRole::Named, Some(floor)) = (candidate.role, piece.floor) {
                shown.least.push(forms[floor.max(chosen)].text.clone());
            }
            let form = forms.swap_remove(chosen);
            report.include_file(candidate, &form);
            shown.files.push(form.text);
        }
        CodebaseContext { shown, report }
    }
}

/// Minimum number of tokens that the interface of each named file may use, even if many files are named.
const INTERFACE: usize = 600;

/// Builds the budget item of a candidate. For a named file, the longest interface form of at most `share` tokens is
/// required; if no interface fits, the shortest form is required. The caller chooses `share` so that all named files
/// together take at most about half of the budget.
fn budget_item(candidate: &ContextCandidate, forms: &[FileForm], share: usize) -> BudgetItem {
    let last = forms.len().checked_sub(1).filter(|_| candidate.role == FileRole::Named);
    let fits = |form: &FileForm| form.kind.is_interface() && form.tokens <= share;
    let floor = last.map(|last| forms.iter().position(fits).unwrap_or(last));
    let of = |form: &FileForm| budget::FormCost { tokens: form.tokens, value: candidate.value * form.share };
    BudgetItem { forms: forms.iter().map(of).collect(), floor }
}

#[cfg(test)]
mod tests;
