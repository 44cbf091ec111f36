//! Runs the checks that a repository has in addition to its tests: formatter, linter, and an end-to-end command. A
//! check that already fails without the change is ignored.

use serde::{Deserialize, Serialize};

use super::{
    super::{TestError, TestWorkspace, sanitize_line},
    ChangeVerifier, FileOverlay,
};
use crate::documents::change::TestEvidence;

/// Maximum bytes of a check's output shown to the drafter. The end of the output is shown.
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

/// A shell command that checks the repository.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepositoryCheck {
    pub which: RepositoryCheckKind,
    line: String,
    /// Whether the check passes on the commit without the change.
    pub before: bool,
}

impl RepositoryCheck {
    /// Adds the check's result to the evidence. `complains` is true if the check fails on this version of the change.
    pub fn add_evidence(&self, complains: bool, evidence: &mut TestEvidence) {
        let (label, line) = (self.which.label(), sanitize_line(&self.line).replace('`', "'"));
        match (self.before, complains) {
            (false, _) => evidence.not_shown.push(format!(
                "{label} `{line}` was not checked: it fails without the change too, or is not installed."
            )),
            (true, true) => {
                evidence.review.push(format!("{label} `{line}` fails with the change and passes without it."))
            }
            (true, false) => evidence.add_sentence(label, format!("`{line}` passes.")),
        }
    }
}

impl ChangeVerifier {
    /// Runs each check on the commit without the change.
    pub async fn run_baseline_checks(
        &self,
        lines: Vec<(RepositoryCheckKind, String)>,
    ) -> Result<Vec<RepositoryCheck>, TestError> {
        let (mut known, mut workspace) = (Vec::new(), TestWorkspace::new()?);
        for (which, line) in lines {
            let before = self.run_check(&mut workspace, &line, Vec::new()).await?.is_none();
            known.push(RepositoryCheck { which, line, before });
        }
        Ok(known)
    }

    /// Runs each check that passes without the change again, with the change. Returns the complaints of the checks that
    /// fail now.
    pub async fn new_complaints(
        &self,
        lines: &[RepositoryCheck],
        overlay: &FileOverlay,
    ) -> Result<Vec<(RepositoryCheckKind, String)>, TestError> {
        let (mut complaints, mut workspace) = (Vec::new(), TestWorkspace::new()?);
        for RepositoryCheck { which, line, .. } in lines.iter().filter(|line| line.before) {
            if let Some(text) = self.run_check(&mut workspace, line, overlay.clone()).await? {
                let from = text.ceil_char_boundary(text.len().saturating_sub(SAID));
                complaints.push((*which, format!("`{line}` fails: {}", &text[from..])));
            }
        }
        Ok(complaints)
    }
}
