//! What a context holds, and what it does not.

use super::{Candidate, Shown, forms::Form, write};

/// For people: what a model was shown and why, and what was left out and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What there was room for, in tokens, as estimated.
    pub budget: usize,
    /// What was used of it.
    pub tokens: usize,
    /// What of that the list of paths takes.
    pub listing: usize,
    pub included: Vec<Included>,
    /// Files that matter and had no room, the most telling first.
    pub no_room: Vec<String>,
    /// Files no model is shown, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
    /// Credentials blacked out.
    pub secrets: usize,
}

/// A file that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    pub path: String,
    /// How much of it.
    pub form: &'static str,
    pub tokens: usize,
    pub why: String,
}

impl Report {
    pub(super) fn include(&mut self, candidate: &Candidate, form: &Form, shown: &mut Shown) {
        shown.files.push(form.text.clone());
        self.secrets += form.secrets;
        self.included.push(Included {
            path: write::one_line(&candidate.path),
            form: form.kind.as_str(),
            tokens: form.tokens,
            why: candidate.why.clone(),
        });
    }
}
