//! The report of a change: what was asked, what shows it, and what its tests came to. Made by code from what it ran.

use crate::{
    github::outbound::{Body, clean, code, plain},
    types::IssueNo,
};

const SUMMARY_CHARS: usize = 4_000;
const FACT_CHARS: usize = 4_000;

#[derive(Debug, Clone)]
pub struct ChangeReport {
    pub issue: IssueNo,
    pub title: String,
    /// The commit that it was tried on.
    pub commit: String,
    /// The drafter's words.
    pub summary: String,
    pub files: Vec<FileLine>,
    pub proofs: Vec<ProofLine>,
    /// What the runs came to, in sentences of ours.
    pub facts: Vec<String>,
    pub runner: String,
    /// How well they were kept apart.
    pub level: String,
}

/// A file of the change.
#[derive(Debug, Clone)]
pub struct FileLine {
    pub part: &'static str,
    pub change: &'static str,
    pub path: String,
}

/// A test that the spec asks for.
#[derive(Debug, Clone)]
pub struct ProofLine {
    pub requirement: String,
    pub test: String,
    pub file: String,
    /// What it does without the code.
    pub red: &'static str,
}

/// The file that stands beside tests and code.
pub fn change_report(report: &ChangeReport) -> String {
    let proofs: String = report
        .proofs
        .iter()
        .map(|row| {
            let (test, file) = (code(&row.test, 150), code(&row.file, 150));
            format!("\n| {} | {test} | {file} | {} |", plain(&row.requirement, 100), row.red)
        })
        .collect();
    let files: String = report
        .files
        .iter()
        .map(|file| format!("\n| {} | {} | {} |", file.part, file.change, code(&file.path, 150)))
        .collect();
    let facts: String = report.facts.iter().map(|text| format!("\n- {}", fact(text))).collect();
    let text = format!(
        "# Report: #{} {}\n\nWritten by Countersign from what it ran. Not edited by any model, but for the summary.\n\n\
         ## Summary\n\n{}\n\n## Requirements\n\n| Requirement | Test | File | Without the code |\n|---|---|---|---|{proofs}\n\n\
         ## Runs\n\nRun by {} in the sandbox ({}), on the files of commit {}.\n{facts}\n\n\
         ## Files\n\n| Part | Change | File |\n|---|---|---|{files}\n",
        report.issue,
        plain(&report.title, 180),
        clean(&report.summary, SUMMARY_CHARS),
        plain(&report.runner, 20),
        plain(&report.level, 20),
        code(&report.commit, 40),
    );
    Body::frame(text).as_str().to_owned()
}

/// What stands between marks is code, and nothing else in the sentence means anything but its words.
pub(super) fn fact(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match part.trim() {
        _ if at % 2 == 1 => code(part, FACT_CHARS),
        "" => part.to_owned(),
        words => part.replace(words, &plain(words, FACT_CHARS)),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn nothing_a_model_named_leaves_its_place() {
        let line = FileLine { part: "Code", change: "Add", path: HOSTILE.to_owned() };
        let proof = ProofLine {
            requirement: HOSTILE.to_owned(),
            test: HOSTILE.to_owned(),
            file: HOSTILE.to_owned(),
            red: "fails by an assertion",
        };
        let report = change_report(&ChangeReport {
            issue: IssueNo(7),
            title: HOSTILE.to_owned(),
            commit: "3f9c2ab".to_owned(),
            summary: HOSTILE.to_owned(),
            files: vec![line],
            proofs: vec![proof],
            facts: vec!["All pass.".to_owned(), HOSTILE.to_owned()],
            runner: "cargo".to_owned(),
            level: "full".to_owned(),
        });
        assert_inert(&report);
        // One of them stands in the block that holds the summary.
        assert_eq!(report.lines().filter(|line| line.starts_with("| ")).count(), 5, "{report}");
    }
}
