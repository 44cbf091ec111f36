//! The report of a change, shown on its pull request, in its check run and in a file. The drafter writes the first
//! paragraph. Our code writes the rest, based on recorded runs.

use std::collections::BTreeMap;

use super::{
    Provenance, capitalize, details_block, in_words, link, list_paths, place, rehearsal_banner, stage_name,
};
use crate::{
    documents::{change::TestEvidence, findings::Finding},
    git::ChangedPath,
    github::outbound::{OutboundBody, clean, code_block, has_marks, inline_code, inline_text},
    types::{IssueNo, count},
};

/// Maximum number of lines of the drafter's text; `WHY_CHARS` is the maximum number of its characters.
const WHY_LINES: usize = 10;
const WHY_CHARS: usize = 2_000;
const FACT_CHARS: usize = 4_000;

/// Maximum number of lines below "For your review"; `MOST_PATHS` is the maximum number of paths in one of these lines.
const REVIEW_LINES: usize = 12;
const MOST_PATHS: usize = 5;

/// Maximum number of lines of evidence shown without being folded in the gate comment; `GATE_REVIEW_LINES` is the
/// maximum for points to review.
const GATE_EVIDENCE_LINES: usize = 2;
const GATE_REVIEW_LINES: usize = 4;

/// Maximum number of characters of a patch shown in the pull request.
const PATCH_CHARS: usize = 12_000;

#[derive(Debug, Clone)]
pub struct ChangeReport {
    pub issue: IssueNo,
    pub title: String,
    /// The drafter's explanation of what the change does and why.
    pub why: String,
    /// Whether the change contains no code.
    pub only_documents: bool,
    pub evidence: TestEvidence,
    pub proofs: Vec<ProofLine>,
    /// Text of each requirement, by the requirement's id.
    pub requirements: BTreeMap<String, String>,
    /// Base commit on which the tests were run.
    pub commit: String,
    pub runner: String,
    /// Isolation level of the sandbox in which the tests were run.
    pub level: String,
}

/// A test that the spec requires.
#[derive(Debug, Clone)]
pub struct ProofLine {
    /// Ids of the requirements that the test proves.
    pub requirements: Vec<String>,
    pub test: String,
    pub file: String,
    /// Result of the test when run without the code of the change.
    pub red: &'static str,
}

/// An approved change, to be shown in its pull request.
#[derive(Debug, Clone)]
pub struct ChangeCard {
    pub report: ChangeReport,
    pub provenance: Provenance,
    /// Open findings.
    pub findings: Vec<Finding>,
    /// Files that other people changed on the branch.
    pub others: Vec<ChangedPath>,
    /// Files that a build or CI runs automatically.
    pub executed: Vec<String>,
    /// Patch with changes to files that the bot does not commit itself.
    pub patch: Option<String>,
    pub gate_url: Option<String>,
    /// The design and the spec of the issue: stage and comment URL of each.
    pub documents: Vec<(String, String)>,
}

/// Returns the content of the report file.
pub fn change_report(report: &ChangeReport) -> String {
    let text = format!(
        "# {}\n\nReport of the change for #{}. The drafter wrote the first paragraph; Countersign wrote the rest \
         from its test runs.\n\n{}{}{}\n\n## Requirements\n\n{}\n\nRun by {}.\n",
        inline_text(&report.title, 180),
        report.issue,
        report.description(),
        list("\n\n## Evidence\n\n", &report.evidence_lines()),
        list("\n\n## For your review\n\n", &report.review_lines()),
        report.requirements_table(),
        report.test_environment()
    );
    OutboundBody::frame(text).as_str().to_owned()
}

/// Returns the section about the change for the pull request and the check run.
pub fn change_section(card: &ChangeCard) -> OutboundBody {
    let (report, run) = (&card.report, card.provenance.run);
    let review = review_items(card);
    let mut folds = vec![details_block("Requirements and their tests", &report.requirements_table())];
    folds.push(details_block("Models, approval and hashes", &facts(card)));
    folds.extend(card.patch.as_ref().map(|patch| {
        let more = patch.chars().count().saturating_sub(PATCH_CHARS);
        let cut = match more {
            0 => String::new(),
            more => format!("\n\n{more} more characters: `countersign diff {run}` prints the whole patch."),
        };
        let summary = "Workflow files (not committed): apply this patch yourself";
        let inside = match has_marks(patch) {
            true => {
                format!("`countersign diff {run}` prints the patch. It contains keywords that GitHub would act on \
                         here.")
            }
            false => code_block("diff", patch, PATCH_CHARS) + &cut,
        };
        details_block(summary, &inside)
    }));
    OutboundBody::frame(format!(
        "{}{}\n\nCloses #{}{}{}\n\n{}\n\n<sub>Run {run}</sub>",
        rehearsal_banner(card.provenance.rehearsal),
        report.description(),
        report.issue,
        list("\n\n### Evidence\n\n", &report.evidence_lines()),
        list("\n\n### For your review\n\n", &review),
        folds.join("\n\n")
    ))
}

impl ChangeReport {
    fn description(&self) -> String {
        let lines: Vec<&str> = self.why.lines().take(WHY_LINES).collect();
        clean(&lines.join("\n"), WHY_CHARS).to_string()
    }

    fn evidence_lines(&self) -> Vec<String> {
        let facts = self.evidence.labelled_sentences();
        facts.map(|(label, text)| format!("**{label}:** {}", clean_fact(&text))).collect()
    }

    fn review_lines(&self) -> Vec<String> {
        self.evidence.review.iter().map(|text| clean_fact(text)).collect()
    }

    /// Returns the title, the main evidence and the points to review, with the rest folded. If `unfolded` is false, all
    /// lists are folded, because findings are shown above them.
    pub(super) fn gate_summary(&self, unfolded: bool) -> String {
        let (shown, review) = (self.evidence_lines(), self.review_lines());
        let split = |lines: &[String], most: usize| {
            let (first, rest) = lines.split_at(lines.len().min(if unfolded { most } else { 0 }));
            (first.to_vec(), rest.to_vec())
        };
        let (first, rest) = split(&shown, GATE_EVIDENCE_LINES);
        let (look_at, more) = split(&review, GATE_REVIEW_LINES);
        let rest = list("", &rest) + &list("\n\n**For your review**\n\n", &more);
        let mut parts = vec![format!("**{}**", inline_text(&self.title, 180)), list("", &first)];
        parts.push(list("**For your review**\n\n", &look_at));
        if !rest.is_empty() {
            let summary = if unfolded { "More evidence" } else { "Evidence" };
            parts.push(details_block(summary, rest.trim()));
        }
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    fn requirements_table(&self) -> String {
        let row = |row: &ProofLine| {
            let wanted: Vec<_> = row.requirements.iter().map(|id| in_words(id, &self.requirements)).collect();
            let (test, file) = (inline_code(&row.test, 150), inline_code(&row.file, 150));
            format!("\n| {} | {test} | {file} | {} |", wanted.join("; "), row.red)
        };
        let rows: String = self.proofs.iter().map(row).collect();
        format!("| Requirement | Test | File | Before the change |\n|---|---|---|---|{rows}")
    }

    fn test_environment(&self) -> String {
        let (runner, level) = (inline_text(&self.runner, 20), inline_text(&self.level, 20));
        format!("{runner} in the sandbox ({level}), on commit {}", inline_code(&self.commit, 40))
    }
}

/// Returns the points to review: open findings first, then the report's points, then automatically run files and files
/// changed by other people.
fn review_items(card: &ChangeCard) -> Vec<String> {
    let finding = |finding: &Finding| {
        let at = place(finding, &card.report.requirements);
        let title = inline_text(&finding.title, 200);
        let what = if finding.declined { "not changed" } else { finding.severity.as_str() };
        format!("**{}** ({what}): {title} · {at}", finding.id)
    };
    let mut lines: Vec<String> = card.findings.iter().map(finding).collect();
    lines.extend(card.report.review_lines());
    if !card.executed.is_empty() {
        let paths = list_paths(card.executed.iter().map(String::as_str), MOST_PATHS);
        lines.push(format!("Builds or CI run these files automatically: {paths}."));
    }
    if !card.others.is_empty() {
        let paths = list_paths(card.others.iter().map(|changed| changed.path.as_str()), MOST_PATHS);
        lines.push(format!("Other people changed {paths} on this branch. No model reviewed their changes."));
    }
    let more = lines.len().saturating_sub(REVIEW_LINES);
    if more > 0 {
        lines.truncate(REVIEW_LINES);
        lines.push(format!("… and {} in the gate comment", count(more, "more line", "more lines")));
    }
    lines
}

fn facts(card: &ChangeCard) -> String {
    let document = |(stage, url): &(String, String)| (capitalize(&stage_name(stage)), link("comment", url));
    let mut rows: Vec<_> = card.documents.iter().map(document).collect();
    rows.extend(card.gate_url.as_ref().map(|url| ("Gate".to_owned(), link("comment", url))));
    rows.push(("Tests run by".to_owned(), card.report.test_environment()));
    card.provenance.table(rows)
}

/// Returns a list below a heading, or an empty string if the list is empty.
fn list(heading: &str, lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
    if lines.is_empty() { String::new() } else { heading.to_owned() + &lines.join("\n") }
}

/// Sanitises a sentence. Text between backticks becomes inline code; all other Markdown is escaped.
fn clean_fact(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match part.trim() {
        _ if at % 2 == 1 => inline_code(part, FACT_CHARS),
        "" => part.to_owned(),
        words => part.replace(words, &inline_text(words, FACT_CHARS)),
    });
    parts.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::tests::*, *};
    use crate::{
        documents::verdict::FindingSeverity,
        messages::Acceptance,
        types::{Hash, Timestamp},
    };

    pub(in crate::messages) fn report() -> ChangeReport {
        let mut evidence = TestEvidence::default();
        evidence.add_sentence(
            "Before the change",
            "4 tests fail by an assertion, 1 test passes (it guards existing behaviour).".into(),
        );
        evidence.add_sentence(
            "After the change",
            "5 tests of the change and 11 others that passed before pass three times.".into(),
        );
        evidence.not_shown.push(
            "Coverage was not measured: only Go, Node, and Python with coverage.py are supported.".into(),
        );
        evidence.review.push("Reverting `src/report.rs:37-39` breaks no test.".into());
        ChangeReport {
            issue: IssueNo(42),
            title: "Print a total for each week".into(),
            why: "`--by week` prints a total for each ISO week. Whoever writes invoices adds them up by hand today.".into(),
            only_documents: false,
            evidence,
            proofs: vec![ProofLine {
                requirements: vec!["REQ-1".into()],
                test: "weeks_are_summed".into(),
                file: "tests/weeks.rs".into(),
                red: "fails by an assertion",
            }],
            requirements: BTreeMap::from([("REQ-1".into(), "Each week has a total".into())]),
            commit: "3f9c2ab".into(),
            runner: "cargo".into(),
            level: "full".into(),
        }
    }

    fn card() -> ChangeCard {
        ChangeCard {
            report: report(),
            provenance: Provenance {
                acceptance: Some(Acceptance::Approved { by: "mona".into(), at: Timestamp(0) }),
                subject: Some(Hash::digest(b"z")),
                audit: Some(Hash::digest(b"y")),
                ..provenance()
            },
            findings: vec![finding("F1", FindingSeverity::High, "REQ-1", "The turn of the year has no test")],
            others: Vec::new(),
            executed: vec!["Cargo.toml".into()],
            patch: None,
            gate_url: Some("https://github.com/o/r/issues/42#issuecomment-7".into()),
            documents: vec![("lld".into(), "https://github.com/o/r/issues/42#issuecomment-2".into())],
        }
    }

    #[test]
    fn change_section_shows_at_most_40_visible_lines() {
        let mut card = card();
        card.findings = vec![finding("F1", FindingSeverity::High, "REQ-1", "No"); 60];
        card.report.why = "It adds up.\n\n".repeat(60);
        let text = change_section(&card).as_str().to_owned();
        let seen = text.split("<details>").next().unwrap();
        assert!(seen.lines().count() <= 40, "{text}");
        assert!(seen.contains("\n- … and 50 more lines in the gate comment"), "{text}");
    }

    #[test]
    fn change_report_and_section_neutralise_hostile_text() {
        let mut card = card();
        let report = &mut card.report;
        for text in [&mut report.title, &mut report.why, &mut report.runner, &mut report.level] {
            *text = HOSTILE.to_owned();
        }
        report.evidence.add_sentence("Coverage", HOSTILE.to_owned());
        report.evidence.review.push(HOSTILE.to_owned());
        report.requirements.insert("REQ-1".into(), HOSTILE.to_owned());
        let [proof] = report.proofs.as_mut_slice() else { panic!() };
        (proof.test, proof.file) = (HOSTILE.to_owned(), HOSTILE.to_owned());
        proof.requirements.push(HOSTILE.to_owned());
        card.findings.push(finding("F2", FindingSeverity::High, "REQ-1", HOSTILE));
        card.executed.push(HOSTILE.to_owned());
        card.patch = Some(HOSTILE.to_owned());
        assert_inert(&change_report(&card.report));
        let text = change_section(&card).as_str().replacen("\nCloses #42\n", "\n", 1);
        assert_inert(&text);
        // One of them is in the drafter's text.
        assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 14, "{text}");
    }
}
