//! What of a repository a model is shown: which paths there are, the interfaces and the code of the files that matter
//! with the reason for each, and what the repository says about itself; within a budget of tokens.
//!
//! In two steps, since contents are read late: [`plan`] looks at the index alone and says which texts it wants,
//! [`Plan::fill`] is given those and chooses. In between somebody reads them, once and together, as [`gather`] does; what
//! is wanted is bounded. The same commit, request and budget give the same bytes.
//!
//! Whatever a repository holds, it stays text: nothing in a file closes the fence around it, no path breaks its line, and
//! what looks like a credential is blacked out before anything is cut, lest half of one go unrecognised.

mod forms;
mod listing;
mod report;
mod roles;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    Index, Offer, Request,
    budget::{self, Piece},
    files, rank,
    reading::off_thread,
};
use crate::{
    git::{GitError, Snapshot},
    limits,
};
use forms::{Form, FormKind};
pub use report::{Included, Report};

/// What a model is shown of a repository: Markdown, nothing of which can close its fence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Which files there are.
    pub paths: String,
    /// What stands in some of them, a section each, the most telling first.
    pub files: Vec<String>,
}

/// What is shown, and what is to be said of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Context {
    pub shown: Shown,
    pub report: Report,
}

/// What the context is for.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// An issue, title first, or a design.
    pub text: String,
    /// The files to change, if they are known.
    pub files: Vec<String>,
    /// In tokens.
    pub budget: usize,
}

/// What was settled without a look into any file.
#[derive(Debug)]
pub struct Plan {
    budget: usize,
    listing: String,
    candidates: Vec<Candidate>,
    report: Report,
}

/// A file that may be shown.
#[derive(Debug)]
struct Candidate {
    path: String,
    /// Why, for the model and for people.
    why: String,
    /// Compared with the others'.
    value: f64,
    role: Role,
    /// Its summary at three lengths.
    pages: forms::Pages,
    /// First and last lines of what matters most in it, best first.
    items: Vec<(u32, u32)>,
    /// Its text is asked for.
    wanted: bool,
}

/// What a file is to the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is named as one to change: its interface is ground truth.
    Named,
    /// It says how people work here.
    Convention,
    /// It says what the project depends on.
    Manifest,
    /// It was found.
    Found,
    /// It says what is run for each change.
    Automation,
}

/// Puts together what to show of a commit: plans, reads what is wanted in one go, and fills.
pub async fn gather(index: Arc<Index>, snapshot: &Snapshot, asked: Asked) -> Result<Context, GitError> {
    let plan = off_thread(move || plan(&index, &asked)).await?;
    let wanted: Vec<_> = plan.wants().filter_map(|path| snapshot.entry(path)).cloned().collect();
    let oids: Vec<_> = wanted.iter().map(|entry| entry.oid.clone()).collect();
    let read = snapshot.read(&oids).await?;
    let contents = wanted.into_iter().map(|entry| entry.path).zip(read).collect();
    off_thread(move || plan.fill(contents)).await
}

/// Which files may be shown, and which texts that takes.
pub fn plan(index: &Index, asked: &Asked) -> Plan {
    let offers = rank(index, &Request { text: &asked.text, files: &asked.files });
    let mut plan = Plan {
        budget: asked.budget,
        listing: listing::of(index, &offers, asked.budget / 4),
        candidates: Vec::new(),
        report: Report { budget: asked.budget, ..Report::default() },
    };
    let named = roles::named(index, asked);
    let mut seen = BTreeSet::new();
    let mut add = |path: &str, role: Role, offer: Option<&Offer>, value: f64| {
        if seen.insert(path.to_owned())
            && let Some(file) = index.file(path)
        {
            plan.candidates.push(Candidate {
                path: path.to_owned(),
                why: why(role, offer),
                value,
                role,
                pages: forms::Pages::of(file),
                items: offer.map(|offer| offer.items.clone()).unwrap_or_default(),
                wanted: false,
            });
        }
    };
    let offered = |path: &str| offers.iter().find(|offer| offer.path == path);
    for path in &named {
        add(path, Role::Named, offered(path), NAMED_VALUE);
    }
    for (path, role, value) in roles::about(index) {
        add(&path, role, None, value);
    }
    let best = offers.first().map_or(1.0, |offer| offer.score).max(f64::MIN_POSITIVE);
    for offer in offers.iter().take(limits::CONTEXT_FILES) {
        add(&offer.path, Role::Found, Some(offer), offer.score / best);
    }
    plan.want(index);
    plan.report.left_out =
        index.left_out().iter().map(|left| (left.path.clone(), left.why.words())).collect();
    plan
}

/// A file that is named is worth more than the best that is found.
const NAMED_VALUE: f64 = 1.5;

fn why(role: Role, offer: Option<&Offer>) -> String {
    let reasons = offer.into_iter().flat_map(|offer| &offer.reasons).map(ToString::to_string);
    let own = match role {
        Role::Named => Some("named as a file of this work"),
        Role::Convention => Some("says how people work here"),
        Role::Manifest => Some("says what the project is built from"),
        Role::Automation => Some("says what is run for each change"),
        Role::Found => None,
    };
    write::one_line(&own.map(str::to_owned).into_iter().chain(reasons).collect::<Vec<_>>().join("; "))
}

impl Plan {
    /// Asks for the texts of the first that memory has room for.
    fn want(&mut self, index: &Index) {
        let mut room = limits::CONTEXT_READ_BYTES;
        for candidate in &mut self.candidates {
            let size = index.file(&candidate.path).map_or(0, |file| file.size);
            candidate.wanted = size <= room;
            room -= if candidate.wanted { size } else { 0 };
        }
    }

    /// The paths whose contents are wanted, each once.
    pub fn wants(&self) -> impl Iterator<Item = &str> {
        self.candidates.iter().filter(|candidate| candidate.wanted).map(|candidate| candidate.path.as_str())
    }

    /// Chooses, now that contents are known by path. What is missing is shown by its summary.
    pub fn fill(self, mut contents: BTreeMap<String, Vec<u8>>) -> Context {
        let mut context = Context { report: self.report, ..Context::default() };
        let listing = super::tokens::estimate(&self.listing);
        let fits = listing <= self.budget;
        if fits {
            context.shown.paths = self.listing;
            context.report.listing = listing;
        }
        let forms: Vec<Vec<Form>> = self
            .candidates
            .iter()
            .map(|candidate| {
                let text = contents.remove(&candidate.path).and_then(|bytes| files::text(bytes, true).ok());
                forms::of(candidate, text.as_deref())
            })
            .collect();
        let pieces: Vec<Piece> =
            self.candidates.iter().zip(&forms).map(|(c, forms)| piece(c, forms)).collect();
        let room = self.budget - context.report.listing;
        let choice = budget::choose(&pieces, room);
        context.report.tokens = context.report.listing + choice.tokens;
        for ((candidate, mut forms), chosen) in self.candidates.into_iter().zip(forms).zip(choice.forms) {
            match chosen.map(|at| forms.swap_remove(at)) {
                Some(form) => context.report.include(&candidate, &form, &mut context.shown),
                None if forms.is_empty() => {}
                None => context.report.no_room.push(candidate.path),
            }
        }
        context
    }
}

fn piece(candidate: &Candidate, forms: &[Form]) -> Piece {
    let interface = |form: &Form| matches!(form.kind, FormKind::Interface | FormKind::Names);
    let floor = (candidate.role == Role::Named && !forms.is_empty())
        .then(|| forms.iter().position(interface).unwrap_or(forms.len() - 1));
    let of = |form: &Form| budget::Form { tokens: form.tokens, value: candidate.value * form.share };
    Piece { forms: forms.iter().map(of).collect(), floor }
}

#[cfg(test)]
mod tests;
