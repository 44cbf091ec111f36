//! What of a repository a model is shown: which paths there are, the interfaces of the files that are to change, the code
//! of those that matter with the reason for each, and what the repository says about itself; within a budget of tokens.
//!
//! In two steps, since contents are read late: [`plan_context`] looks at the index alone and says which texts it wants,
//! [`ContextPlan::fill`] is given those and chooses. In between somebody reads them, once and together, as [`gather_context`] does; what
//! is wanted is bounded. The same commit, request and budget give the same bytes, but for what [`ContextReport::timed_out`] names.
//!
//! Whatever a repository holds, it stays text: nothing in a file closes the fence around it, no path breaks its line, and
//! what looks like a credential is blacked out before anything is cut, lest half of one go unrecognised.

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

/// Of their texts, what is in memory at once.
const CONTEXT_READ_BYTES: u64 = 8 * 1024 * 1024;

/// Files found for a text of which it is told when there was room for nothing: as many as people look into first.
const CONTEXT_HELD: usize = 8;

/// What a model is shown of a repository: Markdown, nothing of which can close its fence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextSections {
    /// Which files there are.
    pub paths: String,
    /// What stands in some of them, a section each: those that are named, then the most telling first.
    pub files: Vec<String>,
    /// For the first of those, which are named, the least that must be shown of each: its interface.
    #[serde(default)]
    pub least: Vec<String>,
}

/// What is shown, and what is to be said of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodebaseContext {
    #[serde(flatten)]
    pub shown: ContextSections,
    #[serde(default)]
    pub report: ContextReport,
}

/// What the context is for.
#[derive(Debug, Clone, Default)]
pub struct ContextRequest {
    /// An issue, title first, or a design.
    pub text: String,
    /// The files to change, if they are known.
    pub files: Vec<String>,
    /// In tokens.
    pub budget: usize,
}

/// What was settled without a look into any file.
#[derive(Debug)]
pub struct ContextPlan {
    index: Arc<Index>,
    query: RankingQuery,
    budget: usize,
    listing: String,
    /// In the order in which they are shown.
    candidates: Vec<ContextCandidate>,
    report: ContextReport,
}

/// A file that may be shown.
#[derive(Debug)]
struct ContextCandidate {
    path: String,
    /// Why, for the model and for people.
    why: String,
    /// Compared with the others'.
    value: f64,
    role: FileRole,
}

/// What a file is to the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileRole {
    /// It is named as one to change: its interface is ground truth.
    Named,
    /// It says how people work here.
    Convention,
    /// It says what the project depends on.
    Manifest,
    /// It says what is run for each change.
    Automation,
    /// It was found.
    Found,
}

/// Puts together what to show of a commit: plans, reads what is wanted in one go, and fills.
pub async fn gather_context(
    index: Arc<Index>,
    snapshot: &Snapshot,
    asked: ContextRequest,
) -> Result<CodebaseContext, GitError> {
    let plan = run_blocking(move || plan_context(index, &asked)).await?;
    let wanted: Vec<_> = plan.wanted_paths().filter_map(|path| snapshot.entry(path)).cloned().collect();
    let oids: Vec<_> = wanted.iter().map(|entry| entry.oid.clone()).collect();
    let read = snapshot.read(&oids).await?;
    let contents =
        wanted.into_iter().zip(read).filter_map(|(entry, bytes)| Some((entry.path, bytes?))).collect();
    run_blocking(move || plan.fill(contents)).await
}

/// Which files may be shown, and which texts that takes.
pub fn plan_context(index: Arc<Index>, asked: &ContextRequest) -> ContextPlan {
    let offers = rank_files(&index, &RankingRequest { text: &asked.text, files: &asked.files });
    let (named, refused) = roles::find_named_files(&index, asked);
    let report = ContextReport { budget: asked.budget, refused, ..ContextReport::for_index(&index) };
    let listing = listing::list_paths(&index, &offers, asked.budget / 8);
    let candidates = collect_candidates(&index, named, &offers);
    let query = RankingQuery::parse(&asked.text);
    ContextPlan { index, query, budget: asked.budget, listing, candidates, report }
}

/// A file that is named is worth more than the best that is found.
const NAMED_VALUE: f64 = 1.5;

/// The best offers that surroundings are looked for around, tests apart: those bring manifests of their own.
const BEST: usize = 3;

/// Each file once, and for what it is most: those that are named, in their order, then the most telling first.
fn collect_candidates(index: &Index, named: Vec<String>, offers: &[RankedFile]) -> Vec<ContextCandidate> {
    let best = offers.iter().find(|offer| !named.contains(&offer.path));
    let best = best.map_or(1.0, |offer| offer.score).max(f64::MIN_POSITIVE);
    let no_tests = offers.iter().map(|offer| &offer.path).filter(|path| !is_test(path));
    let around: Vec<String> = named.iter().chain(no_tests.take(BEST)).cloned().collect();
    let named = named.into_iter().map(|path| (path, FileRole::Named, NAMED_VALUE));
    let found = offers.iter().take(limits::CONTEXT_FILES);
    // Half as near is a quarter of the worth: else a handful of small files outweighs the code of one that matters.
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
    /// The paths whose contents are wanted, each once: the first that memory has room for.
    pub fn wanted_paths(&self) -> impl Iterator<Item = &str> {
        let mut room = CONTEXT_READ_BYTES;
        self.candidates.iter().map(|candidate| candidate.path.as_str()).filter(move |path| {
            let size = self.index.file(path).map_or(0, |file| file.size);
            let wanted = size <= room;
            room -= if wanted { size } else { 0 };
            wanted
        })
    }

    /// Chooses, now that contents are known by path. What is missing is shown by its summary. Each file's forms are
    /// written twice, to be measured and to be shown: all of them at once would be many times what is shown.
    pub fn fill(self, contents: BTreeMap<String, Bytes>) -> CodebaseContext {
        let Self { index, query, budget, listing, candidates, mut report } = self;
        let mut shown = ContextSections::default();
        let tokens = super::tokens::estimate_tokens(&listing);
        if tokens <= budget {
            (shown.paths, report.listing) = (listing, tokens);
        }
        let room = budget - report.listing;
        let text = |file: &ContextCandidate| {
            let bytes = contents.get(&file.path)?;
            Some(RedactedText::new(file_filter::decode_text(bytes, true).ok()?))
        };
        // Blacked out before anything is cut.
        let texts: Vec<Option<RedactedText>> = in_parallel(|| candidates.par_iter().map(text).collect());
        let plain: Vec<Option<&str>> = texts.iter().map(|text| Some(text.as_ref()?.text.as_str())).collect();
        let parts = parts::split_texts(&plain, &query);
        let forms = |at: usize| -> Vec<FileForm> {
            let file = index.file(&candidates[at].path);
            let forms =
                |file| forms::build_forms(&candidates[at], file, texts[at].as_ref(), &parts[at], room);
            file.map_or_else(Vec::new, forms)
        };
        let named = candidates.iter().filter(|candidate| candidate.role == FileRole::Named).count();
        let share = (room / (2 * named.max(1))).max(INTERFACE);
        let pieces: Vec<BudgetItem> =
            (0..candidates.len()).map(|at| budget_item(&candidates[at], &forms(at), share)).collect();
        let mut found = 0;
        let choice = budget::select_forms(&pieces, room);
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

/// Tokens of an interface that is always ground truth, however many files are named.
const INTERFACE: usize = 600;

/// The interfaces of the files that are named come first; together they have half of the room, `share` each.
fn budget_item(candidate: &ContextCandidate, forms: &[FileForm], share: usize) -> BudgetItem {
    let last = forms.len().checked_sub(1).filter(|_| candidate.role == FileRole::Named);
    let fits = |form: &FileForm| form.kind.is_interface() && form.tokens <= share;
    let floor = last.map(|last| forms.iter().position(fits).unwrap_or(last));
    let of = |form: &FileForm| budget::FormCost { tokens: form.tokens, value: candidate.value * form.share };
    BudgetItem { forms: forms.iter().map(of).collect(), floor }
}

#[cfg(test)]
mod tests;
