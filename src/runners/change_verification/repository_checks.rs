//! What a repository checks itself by besides its tests: formatter, linter, and a line of its own from end to end. Of each it
//! is known whether it ends well without the change: what does not is never counted.

use serde::{Deserialize, Serialize};

use super::{
    super::{TestError, TestWorkspace, sanitize_line},
    ChangeVerifier, FileOverlay,
};
use crate::documents::change::TestEvidence;

/// Characters of what such a program says that the drafter reads, from its end.
const SAID: usize = 2_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepositoryCheckKind {
    Format,
    Lint,
    EndToEnd,
}

impl RepositoryCheckKind {
    pub fn rule(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Lint => "lint",
            Self::EndToEnd => "end_to_end",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Format => "Formatter",
            Self::Lint => "Linter",
            Self::EndToEnd => "End-to-end run",
        }
    }
}

/// A line for the shell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepositoryCheck {
    pub which: RepositoryCheckKind,
    line: String,
    /// It ends well without the change.
    pub before: bool,
}

impl RepositoryCheck {
    /// How it stands with the change. `complains`: of this version of it.
    pub fn add_evidence(&self, complains: bool, evidence: &mut TestEvidence) {
        let (label, line) = (self.which.label(), sanitize_line(&self.line).replace('`', "'"));
        match (self.before, complains) {
            (false, _) => evidence.not_shown.push(format!(
                "{label} `{line}` was not checked: it fails without the change too, or is not installed."
            )),
            (true, true) => evidence
                .review
                .push(format!("{label} `{line}` complains of the change; without the change it does not.")),
            (true, false) => evidence.add_sentence(label, format!("`{line}` passes.")),
        }
    }
}

impl ChangeVerifier {
    /// Whether each ends well without the change.
    pub async fn run_baseline_checks(
        &self,
        lines: Vec<(RepositoryCheckKind, String)>,
    ) -> Result<Vec<RepositoryCheck>, TestError> {
        let (mut known, mut bench) = (Vec::new(), TestWorkspace::new()?);
        for (which, line) in lines {
            let before = self.run_check(&mut bench, &line, Vec::new()).await?.is_none();
            known.push(RepositoryCheck { which, line, before });
        }
        Ok(known)
    }

    /// What those say with something laid over that say nothing without.
    pub async fn new_complaints(
        &self,
        lines: &[RepositoryCheck],
        overlay: &FileOverlay,
    ) -> Result<Vec<(RepositoryCheckKind, String)>, TestError> {
        let (mut said, mut bench) = (Vec::new(), TestWorkspace::new()?);
        for RepositoryCheck { which, line, .. } in lines.iter().filter(|line| line.before) {
            if let Some(text) = self.run_check(&mut bench, line, overlay.clone()).await? {
                let from = text.ceil_char_boundary(text.len().saturating_sub(SAID));
                said.push((*which, format!("`{line}` does not end well: {}", &text[from..])));
            }
        }
        Ok(said)
    }
}
