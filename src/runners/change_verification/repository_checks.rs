//! Runs the checks that a repository has in addition to its tests: formatter, linter, and an end-to-end command. Only
//! complaints that are new with the change count.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    super::{TestError, TestWorkspace, sanitize_line, test_report::sanitize_message},
    ChangeVerifier, FileOverlay,
};
use crate::documents::change::{TestEvidence, find_complaints};

/// Maximum bytes of a check's output shown to the drafter. The end of the output is shown.
const SAID: usize = 2_500;

/// File to which a linter's output is written.
const LINTER_OUTPUT: &str = ".countersign-linter-output";

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
    /// Whether the check works on the commit without the change: it passes there, or old complaints are `known`.
    pub before: bool,
    /// Files that the formatter rewrites without the change, or keys of the linter's complaints without it.
    #[serde(default)]
    known: BTreeSet<String>,
}

/// A complaint that the change caused. Without a message, the drafter need not act: the complaint is about lines that the
/// drafter did not change.
pub type RepositoryComplaint = (RepositoryCheckKind, Option<String>);

impl RepositoryCheck {
    /// Adds the check's result to the evidence. `complains` is true if the check fails on this version of the change.
    pub fn add_evidence(&self, complains: bool, evidence: &mut TestEvidence) {
        let (label, line) = (self.which.label(), sanitize_line(&self.line).replace('`', "'"));
        let (fails, passes) = match self.which {
            RepositoryCheckKind::EndToEnd => ("fails with the change and passes without it", "passes"),
            _ => ("has new complaints with the change", "has no new complaint"),
        };
        match (self.before, complains) {
            (false, _) => evidence.not_shown.push(format!(
                "{label} `{line}` was not checked: it fails without the change too, or is not installed."
            )),
            (true, true) => evidence.review.push(format!("{label} `{line}` {fails}.")),
            (true, false) => evidence.add_sentence(label, format!("`{line}` {passes}.")),
        }
    }

    /// Returns the command to run. A formatter writes what its check asks for.
    fn command(&self) -> String {
        match self.which {
            RepositoryCheckKind::Format => {
                self.line.replace("prettier --check", "prettier --write").replace(" --check", "")
            }
            RepositoryCheckKind::Lint => format!("{} >{LINTER_OUTPUT} 2>&1", self.line),
            RepositoryCheckKind::EndToEnd => self.line.clone(),
        }
    }

    fn describe_failure(&self, said: &str) -> String {
        let from = said.ceil_char_boundary(said.len().saturating_sub(SAID));
        format!("`{}` fails: {}", self.line, &said[from..])
    }
}

impl ChangeVerifier {
    /// Runs each check on the commit without the change. A formatter is used by the repository if it leaves at least half
    /// of the files with the same endings as they are.
    pub async fn run_baseline_checks(
        &self,
        lines: Vec<(RepositoryCheckKind, String)>,
    ) -> Result<Vec<RepositoryCheck>, TestError> {
        let (mut checks, mut workspace) = (Vec::new(), TestWorkspace::new()?);
        for (which, line) in lines {
            let mut check = RepositoryCheck { which, line, before: false, known: BTreeSet::new() };
            check.before = self.run_check(&mut workspace, &check.command(), Vec::new()).await?.is_none();
            if which == RepositoryCheckKind::Format {
                let ending = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
                let written = workspace.rewritten_files(&self.snapshot);
                let endings: BTreeSet<String> = written.iter().map(|path| ending(path)).collect();
                let all =
                    self.snapshot.entries().iter().filter(|entry| endings.contains(&ending(&entry.path)));
                check.before &= 2 * written.len() <= all.count();
                check.known = written.into_iter().filter(|_| check.before).map(str::to_owned).collect();
            } else if which == RepositoryCheckKind::Lint {
                let output = workspace.read_file(LINTER_OUTPUT)?.unwrap_or_default();
                let complaints = find_complaints(&output).into_iter();
                check.known = complaints.map(|complaint| complaint.key()).collect();
                check.before |= !check.known.is_empty();
            }
            checks.push(check);
        }
        Ok(checks)
    }

    /// Runs the formatter on a change. Returns the files of the change that it rewrites, with their new texts; without
    /// those that it would rewrite on the commit too. The inner error is the formatter's message if it fails.
    pub async fn format_files(
        &self,
        checks: &[RepositoryCheck],
        overlay: &FileOverlay,
    ) -> Result<Result<Vec<(String, String)>, String>, TestError> {
        let (mut formatted, mut workspace) = (Vec::new(), TestWorkspace::new()?);
        for check in checks.iter().filter(|check| check.before && check.which == RepositoryCheckKind::Format)
        {
            if let Some(said) = self.run_check(&mut workspace, &check.command(), overlay.clone()).await? {
                return Ok(Err(check.describe_failure(&said)));
            }
            for (path, bytes) in overlay.iter().filter(|(path, _)| !check.known.contains(path)) {
                let text =
                    workspace.read_file(path)?.filter(|text| Some(text.as_bytes()) != bytes.as_deref());
                formatted.extend(text.map(|text| (path.clone(), text)));
            }
        }
        Ok(Ok(formatted))
    }

    /// Runs the linter and the end-to-end command with the change. Returns the complaints that the change caused.
    /// `touched` are the lines that the drafter changed.
    pub async fn new_complaints(
        &self,
        checks: &[RepositoryCheck],
        overlay: &FileOverlay,
        touched: &[(String, usize)],
    ) -> Result<Vec<RepositoryComplaint>, TestError> {
        let (mut complaints, mut workspace) = (Vec::new(), TestWorkspace::new()?);
        for check in checks.iter().filter(|check| check.before && check.which != RepositoryCheckKind::Format)
        {
            let Some(mut said) = self.run_check(&mut workspace, &check.command(), overlay.clone()).await?
            else {
                continue;
            };
            let is_linter = check.which == RepositoryCheckKind::Lint;
            if is_linter {
                let output = workspace.read_file(LINTER_OUTPUT)?.unwrap_or_default();
                let mut new = find_complaints(&output);
                new.retain(|complaint| !check.known.contains(&complaint.key()));
                if new.is_empty() && !check.known.is_empty() {
                    continue;
                }
                new.retain(|complaint| touched.iter().any(|(file, line)| complaint.is_about(file, *line)));
                said = new.iter().map(|complaint| sanitize_message(&complaint.text) + "\n").collect();
            }
            let message = (!is_linter || !said.is_empty()).then(|| check.describe_failure(&said));
            complaints.push((check.which, message));
        }
        Ok(complaints)
    }
}
