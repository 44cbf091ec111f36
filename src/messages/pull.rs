//! Body of a pull request, and the review log. This evidence is written only by our code, never by a model.

use std::collections::BTreeMap;

use super::{
    Author, capitalize, cost::format_spending, details_block, foreign_files_note, link, place,
    rehearsal_banner, stage_name, verdict_sign,
};
use crate::{
    documents::findings::Finding,
    git::ChangedPath,
    github::outbound::{OutboundBody, clean, inert_subject, inline_code, inline_text, plain_line},
    store::Spending,
    types::{Hash, IssueNo, RunId, Timestamp, Verdict},
};

/// The way in which a document was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// A person approved the document. `by` is the person's login.
    Approved { by: String, at: Timestamp },
    /// A person accepted the document against the review's verdict.
    Overridden { by: String, at: Timestamp, reason: String },
    /// A person accepted the document without a review.
    Unreviewed { by: String, at: Timestamp },
    /// The reviewer's APPROVED sufficed, because the settings require no human approval.
    Policy,
    /// The reviewer's APPROVED sufficed, because somebody waived the required human approval.
    Waived { by: String, reason: String },
}

impl Acceptance {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Approved { by, at } => format!("approved by {} at {at}", inline_text(by, 300)),
            Self::Overridden { by, at, reason } => {
                format!(
                    "**verdict overridden** by {} at {at}: {}",
                    inline_text(by, 300),
                    inline_text(reason, 500)
                )
            }
            Self::Unreviewed { by, at } => {
                format!("approved by {} at {at}, without a review", inline_text(by, 300))
            }
            Self::Policy => {
                "accepted after the reviewer's verdict APPROVED; the settings require no human approval"
                    .to_owned()
            }
            Self::Waived { by, reason } => format!(
                "**hotfix**: accepted after the reviewer's verdict APPROVED; {} waived human approval: {}",
                inline_text(by, 300),
                inline_text(reason, 500)
            ),
        }
    }

    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Approved { by, .. } => format!("Accepted by {}.", plain_line(by, 300)),
            Self::Overridden { by, .. } => {
                format!("Accepted by {}, who overrode the verdict.", plain_line(by, 300))
            }
            Self::Unreviewed { by, .. } => format!("Accepted by {} without a review.", plain_line(by, 300)),
            Self::Policy => "Accepted after the review; the settings require no human approval.".to_owned(),
            Self::Waived { by, .. } => {
                format!(
                    "Accepted after the review; {} waived human approval for a hotfix.",
                    plain_line(by, 300)
                )
            }
        }
    }
}

/// Returns the title of a pull request, such as `Design for #42: Read the config from a file`.
pub fn pull_title(stage: &str, issue: IssueNo, title: &str) -> String {
    format!("{} for #{issue}: {}", capitalize(&stage_name(stage)), inert_subject(title, 180))
}

/// The models, people and records behind a document.
#[derive(Debug, Clone)]
pub struct Provenance {
    pub run: RunId,
    pub document: Hash,
    /// Verdict of the review; `None` before the review.
    pub verdict: Option<Verdict>,
    pub drafter: Author,
    pub reviewer: Author,
    /// The way in which the document was accepted; `None` until it is accepted.
    pub acceptance: Option<Acceptance>,
    /// The approved hash, which covers the document and possibly other files.
    pub subject: Option<Hash>,
    /// Head of the audit chain right after the approval.
    pub audit: Option<Hash>,
    /// Cost of the document; `None` in public repositories, where costs are hidden.
    pub cost: Option<Spending>,
    pub rehearsal: bool,
}

impl Provenance {
    /// Returns a sentence that names both models, such as `` Drafted by `opus`, reviewed by `gemini` ``.
    pub(super) fn models(&self) -> String {
        let reviewed = match self.reviewer {
            Author::Nobody => String::new(),
            _ => format!(", reviewed by {}", self.reviewer.text()),
        };
        format!("Drafted by {}{reviewed}", self.drafter.text())
    }

    /// Returns the table of facts about the document. `rows` are its first rows.
    pub(super) fn table(&self, mut rows: Vec<(String, String)>) -> String {
        let hash = |hash: &Hash| format!("`{hash}`");
        let facts = [
            ("Drafted by", Some(self.drafter.text())),
            ("Reviewed by", Some(self.reviewer.text())),
            ("Verdict", self.verdict.map(|verdict| format!("{} {verdict}", verdict_sign(verdict)))),
            ("Decision", self.acceptance.as_ref().map(Acceptance::text)),
            ("Cost so far", self.cost.as_ref().map(format_spending)),
            ("sha256", Some(hash(&self.document))),
            ("Approved hash", self.subject.map(|subject| format!("`{}`", subject.short()))),
            ("Audit head", self.audit.as_ref().map(hash)),
        ];
        rows.extend(facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        let rows: String = rows.iter().map(|(name, value)| format!("\n| {name} | {value} |")).collect();
        format!("| Fact | Value |\n|---|---|{rows}")
    }
}

#[derive(Debug, Clone)]
pub struct PullCard {
    pub issue: IssueNo,
    pub stage: String,
    pub document_path: String,
    pub document_url: Option<String>,
    pub log_path: String,
    pub provenance: Provenance,
    /// Files that other people changed on the branch.
    pub others: Vec<ChangedPath>,
}

/// Returns the body of a pull request, with one section per stage in order. If it has a change, the section about the
/// change comes first and the documents are folded.
pub fn pull_body(issue: IssueNo, sections: &[String]) -> OutboundBody {
    let closes = format!("Closes #{issue}");
    let is_ours = |line: &str| line.trim_end_matches('.') == closes;
    let (change, documents): (Vec<&str>, Vec<&str>) =
        sections.iter().map(String::as_str).partition(|section| section.lines().any(is_ours));
    let (change, documents) = (change.join("\n\n"), documents.join("\n\n"));
    let text = match (change.is_empty(), documents.is_empty()) {
        (true, _) => format!("Part of #{issue}.\n\n{documents}"),
        (false, true) => change,
        (false, false) => {
            format!("{change}\n\n{}", details_block("Source documents", &documents))
        }
    };
    OutboundBody::frame(text).without_marks(is_ours)
}

/// Returns the pull request's section about one stage.
pub fn pull_section(card: &PullCard) -> OutboundBody {
    let provenance = &card.provenance;
    let path = inline_code(&card.document_path, 150);
    let document =
        card.document_url.as_ref().map_or(path.clone(), |url| format!("{path} ({})", link("file", url)));
    let mut rows = vec![("Document".to_owned(), document)];
    if provenance.audit.is_some() {
        rows.push(("Review log".to_owned(), inline_code(&card.log_path, 150)));
    }
    let next = match &provenance.acceptance {
        None => {
            format!("People accept or reject it on #{}.", card.issue)
        }
        Some(_) if card.others.is_empty() => "The document is accepted. Merging is up to you.".to_owned(),
        Some(_) => {
            "The document was accepted by someone who also saw the other files on this branch.".to_owned()
        }
    };
    let vendors = match (&provenance.drafter, &provenance.reviewer) {
        (Author::Model { family: Some(drafter), .. }, Author::Model { family: Some(reviewer), .. })
            if drafter != reviewer =>
        {
            "Drafted and reviewed by models from different vendors.\n\n"
        }
        _ => "",
    };
    OutboundBody::frame(format!(
        "### {}\n\n{}{vendors}{}\n\n{next}{}\n\n<sub>Run {}</sub>",
        capitalize(&stage_name(&card.stage)),
        rehearsal_banner(provenance.rehearsal),
        provenance.table(rows),
        foreign_files_note(&card.others),
        provenance.run
    ))
}

/// A round in the review log.
#[derive(Debug, Clone)]
pub struct RoundLog {
    pub round: u32,
    pub document: Hash,
    pub verdict: Verdict,
    /// The reviewer's reason for the verdict, or our reason why the verdict is missing.
    pub why: String,
    pub drafter: Author,
    pub reviewer: Author,
}

#[derive(Debug, Clone)]
pub struct ReviewLog {
    pub issue: IssueNo,
    pub title: String,
    pub document_path: String,
    pub rounds: Vec<RoundLog>,
    pub findings: Vec<Finding>,
    pub provenance: Provenance,
}

/// Returns the review log, a file next to the document. It contains each round and the final status of each finding.
pub fn review_log(log: &ReviewLog) -> String {
    let Provenance { run, document, rehearsal: rehearses, .. } = log.provenance;
    let mut out = format!(
        "# Review log: #{} {}\n\n{}Written by Countersign from its records, run {run}. Not edited by any model.\n\n\
         - document: {}\n- sha256: `{document}`\n",
        log.issue,
        inline_text(&log.title, 180),
        rehearsal_banner(rehearses),
        inline_code(&log.document_path, 150),
    );
    if let Some(acceptance) = &log.provenance.acceptance {
        out.push_str(&format!("- {}\n", acceptance.text()));
    }
    out.push_str("\n## Rounds\n");
    for round in &log.rounds {
        let (drafter, reviewer) = (round.drafter.text(), round.reviewer.text());
        out.push_str(&format!(
            "\n### Round {}: {}\n\nDocument `{}`, drafted by {drafter}, reviewed by {reviewer}.\n",
            round.round,
            round.verdict,
            round.document.short()
        ));
        let why = clean(&round.why, 4_000);
        if !why.is_empty() {
            out.push_str(&format!("\n{why}\n"));
        }
    }
    out.push_str("\n## Findings\n\n");
    if log.findings.is_empty() {
        out.push_str("None.\n");
    } else {
        out.push_str(&findings_table(&log.findings));
    }
    for finding in &log.findings {
        let detail = clean(&finding.detail, 4_000);
        out.push_str(&format!("\n### {}\n\n{detail}\n", finding.id));
    }
    OutboundBody::frame(out).as_str().to_owned()
}

/// Returns a table of the findings with their final status.
fn findings_table(findings: &[Finding]) -> String {
    let mut out =
        "| | Round | Severity | Place | Finding | Outcome |\n|---|--:|---|---|---|---|\n".to_owned();
    for finding in findings {
        let end = if finding.why.is_empty() {
            finding.status.as_str().to_owned()
        } else {
            format!("{}: {}", finding.status.as_str(), inline_text(&finding.why, 300))
        };
        let (severity, title) = (finding.severity.as_str(), inline_text(&finding.title, 200));
        let place = place(finding, &BTreeMap::new());
        out.push_str(&format!(
            "| {} | {} | {severity} | {place} | {title} | {end} |\n",
            finding.id, finding.round
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::documents::{findings::FindingStatus, verdict::FindingSeverity};

    fn card() -> PullCard {
        PullCard {
            issue: IssueNo(42),
            stage: "lld".into(),
            document_path: "docs/lld/LLD-042.md".into(),
            document_url: None,
            log_path: "docs/lld/LLD-042.review.md".into(),
            provenance: provenance(),
            others: Vec::new(),
        }
    }

    #[test]
    fn pull_request_body_starts_with_the_change_and_closes_the_issue_once() {
        let document = pull_section(&card());
        let document = document.as_str();
        let change = "It adds up.\n\nCloses #42\n\n`Closes #7` and [skip ci]";
        let body = pull_body(IssueNo(42), &[document.to_owned(), change.to_owned()]);
        let body = body.as_str().replace('\u{200b}', "·");
        let parts = "It adds up.\n\nCloses #42\n\n`Closes· #7` and [·skip ci]\n\n<details><summary>Source";
        assert!(body.starts_with(parts) && !body.contains("Part of #42"), "{body}");
    }

    #[test]
    fn pull_request_with_only_documents_does_not_close_the_issue() {
        let section = pull_section(&card()).as_str().to_owned();
        let body = pull_body(IssueNo(42), &[section, "### Spec".to_owned()]);
        assert_inert(body.as_str());
        insta::assert_snapshot!(body.as_str(), @r#"
        Part of #42.

        ### Design

        Drafted and reviewed by models from different vendors.

        | Fact | Value |
        |---|---|
        | Document | `docs/lld/LLD-042.md` |
        | Drafted by | `claude-opus-4-6` |
        | Reviewed by | `gemini-3-pro` |
        | Verdict | ✅ APPROVED |
        | sha256 | `2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881` |

        People accept or reject it on #42.

        <sub>Run 8123-4</sub>

        ### Spec
        "#);
        let title = pull_title("lld", IssueNo(42), "Fixes #1\n@mona");
        assert_eq!(title.replace('\u{200b}', "·"), "Design for #42: Fixes #·1 @·mona");
    }

    #[test]
    fn pull_section_names_vendors_only_after_a_review_by_another_family() {
        let of = |reviewer| {
            let card = PullCard { provenance: Provenance { reviewer, ..provenance() }, ..card() };
            pull_section(&card).as_str().contains("Drafted and reviewed by models")
        };
        assert!(of(model("gemini-3-pro", "gemini")));
        assert!(!of(Author::Nobody) && !of(Author::Person) && !of(model("claude-x", "claude")));
    }

    #[test]
    fn review_log_lists_rounds_and_how_each_finding_was_closed() {
        let fixed = |text: &str, why: &str| Finding {
            status: FindingStatus::Fixed,
            why: why.into(),
            ..finding("F1", FindingSeverity::High, "3", text)
        };
        let mut log = ReviewLog {
            issue: IssueNo(42),
            title: "Read a file".into(),
            document_path: "docs/lld/LLD-042.md".into(),
            rounds: vec![RoundLog {
                round: 1,
                document: Hash::digest(b"w"),
                verdict: Verdict::Revise,
                why: "One thing.".into(),
                drafter: model("claude-opus-4-6", "claude"),
                reviewer: Author::Model { served: None, family: None, in_place_of: None },
            }],
            findings: vec![fixed("No test", "the reviewer marked it fixed in round 2")],
            provenance: Provenance {
                acceptance: Some(Acceptance::Approved { by: "mona".into(), at: Timestamp(0) }),
                rehearsal: true,
                ..provenance()
            },
        };
        insta::assert_snapshot!(review_log(&log), @r#"
        # Review log: #42 Read a file

        > **Rehearsal**: the answers are scripted; no model was called.

        Written by Countersign from its records, run 8123-4. Not edited by any model.

        - document: `docs/lld/LLD-042.md`
        - sha256: `2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881`
        - approved by mona at 1970-01-01T00:00:00Z

        ## Rounds

        ### Round 1: REVISE

        Document `50e721e49c01`, drafted by `claude-opus-4-6`, reviewed by an unidentified model.

        One thing.

        ## Findings

        | | Round | Severity | Place | Finding | Outcome |
        |---|--:|---|---|---|---|
        | F1 | 1 | high | `3` | No test | fixed: the reviewer marked it fixed in round 2 |

        ### F1

        No test
        "#);
        log.rounds[0].why = HOSTILE.into();
        log.findings = vec![fixed(HOSTILE, HOSTILE)];
        log.title = HOSTILE.into();
        assert_inert(&review_log(&log));
    }
}
