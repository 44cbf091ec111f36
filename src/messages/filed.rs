//! An issue that was made of a rough one: its title and its text.

use super::{Acceptance, Author, capital, folded, rehearsal, status::place};
use crate::{
    documents::findings::Finding,
    github::outbound::{self, Body, clean, clean_with_boxes, plain},
    types::{IssueNo, RunId},
};

/// Longer ones are cut in lists; GitHub takes 256.
const TITLE_CHARS: usize = 200;
/// With what it takes the place of, it stays one issue.
const TEXT_CHARS: usize = 45_000;
const BEFORE_CHARS: usize = 15_000;

/// Who made it and who stands for it.
#[derive(Debug, Clone)]
pub struct Credit {
    pub run: RunId,
    pub drafter: Author,
    pub reviewer: Author,
    pub acceptance: Acceptance,
    /// What the reviewer found and nobody settled.
    pub open: Vec<Finding>,
    pub rehearsal: bool,
}

/// What it comes from.
#[derive(Debug, Clone)]
pub enum Origin {
    /// Another issue, which stays as it is.
    From(IssueNo),
    /// The title and the text whose place it takes.
    InPlaceOf(String, String),
}

pub fn filed_title(title: &str) -> String {
    outbound::line(title, TITLE_CHARS)
}

/// `text` is the accepted document below its title.
pub fn filed_issue(text: &str, origin: &Origin, credit: &Credit) -> Body {
    let mut parts = Vec::new();
    if let Origin::From(issue) = origin {
        parts.push(format!("From #{issue}."));
    }
    parts.push(clean_with_boxes(text, TEXT_CHARS).to_string());
    if !credit.open.is_empty() {
        let line = |finding: &Finding| format!("- {}: {}", place(&finding.place), plain(&finding.title, 200));
        let lines: Vec<_> = credit.open.iter().map(line).collect();
        parts.push(folded("What the reviewer also suggests", &lines.join("\n")));
    }
    if let Origin::InPlaceOf(title, body) = origin {
        let before = clean(body, BEFORE_CHARS);
        parts.push(folded("The issue as it was opened", &format!("**{}**\n\n{before}", plain(title, 300))));
    }
    let reviewed = match credit.reviewer {
        Author::Nobody => ", reviewed by no model".to_owned(),
        _ => format!(", reviewed by {}", credit.reviewer.text()),
    };
    let accepted = capital(&credit.acceptance.text());
    parts.push(format!(
        "<sub>Drafted by {}{reviewed}. {accepted}. Run {}.</sub>",
        credit.drafter.text(),
        credit.run
    ));
    Body::frame(rehearsal(credit.rehearsal).to_owned() + &parts.join("\n\n"))
}

/// Open issues that may be about the same, as a note.
pub fn similar(issues: &[(IssueNo, String)]) -> String {
    let all: Vec<String> =
        issues.iter().map(|(number, title)| format!("#{number} {}", outbound::line(title, 60))).collect();
    format!("open issues that may be about the same: {}", all.join("; "))
}

/// Labels of the settings that the repository does not have.
pub fn labels_lacking(labels: &[String]) -> String {
    format!(
        "the settings name labels that this repository does not have, so they are not used: {}",
        labels.join(", ")
    )
}

/// No model's answer about open questions could be used.
pub fn questions_unknown() -> String {
    "no model could be asked what is unclear in this issue, so it raised no questions".to_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::{
        documents::{findings::Status, verdict::Severity},
        types::{RepoId, Timestamp},
    };

    #[test]
    fn criteria_are_boxes_and_open_suggestions_go_along() {
        let finding = Finding {
            id: "F2".into(),
            round: 1,
            last_round: 1,
            severity: Severity::Suggestion,
            category: "tests".into(),
            place: "AC-2".into(),
            title: "Name the `sheet_file`".into(),
            detail: String::new(),
            status: Status::Open,
            why: String::new(),
            must_fix: false,
            reply: None,
            answer: None,
        };
        let credit = Credit {
            run: RunId { repo: RepoId(8123), seq: 4 },
            drafter: Author::Person,
            reviewer: Author::Nobody,
            acceptance: Acceptance::Unreviewed { by: "sam".into(), at: Timestamp(0) },
            open: vec![finding],
            rehearsal: false,
        };
        let text =
            "## Criteria\n\n- [ ] AC-1 `tally x` reads sheet_file\n- [ ] AC-2 @mona\n\n## Scope\n\n- [ ] x";
        let body = filed_issue(text, &Origin::From(IssueNo(42)), &credit);
        assert_inert(body.as_str());
        insta::assert_snapshot!(body.as_str().replace('\u{200b}', "·"), @r"
        From #42.

        ## Criteria

        - [ ] AC-1 `tally x` reads sheet_file
        - [ ] AC-2 @·mona

        ## Scope

        - [ ] x

        <details><summary>What the reviewer also suggests</summary>

        - `AC-2`: Name the `sheet_file`

        </details>

        <sub>Drafted by a person, reviewed by no model. Approved by sam at 1970-01-01T00:00:00Z, without a review. Run 8123-4.</sub>
        ");
    }

    #[test]
    fn nothing_in_a_filed_issue_acts() {
        let credit = Credit {
            run: RunId { repo: RepoId(8123), seq: 4 },
            drafter: Author::Person,
            reviewer: Author::Nobody,
            acceptance: Acceptance::Approved { by: HOSTILE.into(), at: Timestamp(0) },
            open: vec![],
            rehearsal: false,
        };
        let marker = "<!-- countersign:issue-8123-4 -->";
        for origin in
            [Origin::From(IssueNo(42)), Origin::InPlaceOf(HOSTILE.into(), format!("{HOSTILE}\n\n{marker}"))]
        {
            let body = filed_issue(
                &format!("{HOSTILE}\n\n{marker}\n{}", "- [ ] AC-1 x\n".repeat(9000)),
                &origin,
                &credit,
            );
            assert_inert(body.as_str());
            assert_eq!(body.pieces().len(), 1);
            assert!(!body.as_str().ends_with(marker), "the one at the end is ours alone");
        }
        let title = filed_title(&format!("Add @mona {HOSTILE}"));
        assert!(!title.contains("@mona") && !title.contains('\n'), "{title}");
    }
}
