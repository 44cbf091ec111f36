//! Title and body of an issue that is filed from a rough issue.

use std::collections::BTreeMap;

use super::{Provenance, capitalize, details_block, place, rehearsal_banner};
use crate::{
    documents::findings::Finding,
    github::outbound::{self, OutboundBody, clean, clean_with_checkboxes, inline_text},
    types::IssueNo,
};

/// Maximum number of characters of a filed issue's title. GitHub allows 256, but its lists truncate titles beyond this
/// limit.
const TITLE_CHARS: usize = 200;
/// Maximum number of characters of a filed issue's text. Together with `BEFORE_CHARS`, this fits into the body of one
/// issue.
const TEXT_CHARS: usize = 45_000;
const BEFORE_CHARS: usize = 15_000;

/// The rough issue from which an issue is filed, and whether it is replaced.
#[derive(Debug, Clone)]
pub enum IssueOrigin {
    /// The filed issue is a new issue that refers to this rough issue. The rough issue stays unchanged.
    From(IssueNo),
    /// The filed text replaces the title and body of the rough issue. Contains the replaced title and body.
    InPlaceOf(String, String),
}

pub fn filed_title(title: &str) -> String {
    outbound::plain_line(title, TITLE_CHARS)
}

/// Returns the body of the filed issue. `text` is the accepted document without its title, and `open` contains the open
/// findings.
pub fn filed_issue(
    text: &str,
    origin: &IssueOrigin,
    provenance: &Provenance,
    open: &[Finding],
) -> OutboundBody {
    let mut parts = Vec::new();
    if let IssueOrigin::From(issue) = origin {
        parts.push(format!("From #{issue}."));
    }
    parts.push(clean_with_checkboxes(text, TEXT_CHARS).to_string());
    if !open.is_empty() {
        let line = |finding: &Finding| {
            format!("- {}: {}", place(finding, &BTreeMap::new()), inline_text(&finding.title, 200))
        };
        let lines: Vec<_> = open.iter().map(line).collect();
        parts.push(details_block("More suggestions by the reviewer", &lines.join("\n")));
    }
    if let IssueOrigin::InPlaceOf(title, body) = origin {
        let before = clean(body, BEFORE_CHARS);
        parts.push(details_block(
            "The issue as it was opened",
            &format!("**{}**\n\n{before}", inline_text(title, 300)),
        ));
    }
    let accepted = provenance.acceptance.as_ref().map(|by| format!(" {}.", capitalize(&by.text())));
    parts.push(format!(
        "<sub>{}.{} Run {}.</sub>",
        provenance.models(),
        accepted.unwrap_or_default(),
        provenance.run
    ));
    OutboundBody::frame(rehearsal_banner(provenance.rehearsal).to_owned() + &parts.join("\n\n"))
}

/// Returns a note about similar open issues.
pub fn similar_issues_note(issues: &[(IssueNo, String)]) -> String {
    let all: Vec<String> = issues
        .iter()
        .map(|(number, title)| format!("#{number} {}", outbound::plain_line(title, 60)))
        .collect();
    format!("open issues that may be duplicates: {}", all.join("; "))
}

/// Returns a note about labels that the settings name but the repository does not have.
pub fn missing_labels_note(labels: &[String]) -> String {
    format!(
        "the settings name labels that this repository does not have, so they are not used: {}",
        labels.join(", ")
    )
}

/// Returns a note saying that no model could look for open questions.
pub fn questions_unavailable_note() -> String {
    "no model could look for open questions in this issue".to_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::{
        documents::verdict::FindingSeverity,
        messages::{Acceptance, Author},
        types::Timestamp,
    };

    #[test]
    fn filed_issue_has_checkboxes_and_open_suggestions() {
        let mut suggestion = finding("F2", FindingSeverity::Suggestion, "AC-2", "Name the `sheet_file`");
        suggestion.detail.clear();
        let provenance = Provenance {
            drafter: Author::Person,
            reviewer: Author::Nobody,
            acceptance: Some(Acceptance::Unreviewed { by: "sam".into(), at: Timestamp(0) }),
            ..provenance()
        };
        let text =
            "## Criteria\n\n- [ ] AC-1 `tally x` reads sheet_file\n- [ ] AC-2 @mona\n\n## Scope\n\n- [ ] x";
        let body = filed_issue(text, &IssueOrigin::From(IssueNo(42)), &provenance, &[suggestion]);
        assert_inert(body.as_str());
        insta::assert_snapshot!(body.as_str().replace('\u{200b}', "·"), @r"
        From #42.

        ## Criteria

        - [ ] AC-1 `tally x` reads sheet_file
        - [ ] AC-2 @·mona

        ## Scope

        - [ ] x

        <details><summary>More suggestions by the reviewer</summary>

        - `AC-2`: Name the `sheet_file`

        </details>

        <sub>Drafted by a person. Approved by sam at 1970-01-01T00:00:00Z, without a review. Run 8123-4.</sub>
        ");
    }

    #[test]
    fn filed_issue_neutralises_hostile_text() {
        let acceptance = Some(Acceptance::Approved { by: HOSTILE.into(), at: Timestamp(0) });
        let provenance = Provenance { acceptance, ..provenance() };
        let marker = "<!-- countersign:issue-8123-4 -->";
        for origin in [
            IssueOrigin::From(IssueNo(42)),
            IssueOrigin::InPlaceOf(HOSTILE.into(), format!("{HOSTILE}\n\n{marker}")),
        ] {
            let body = filed_issue(
                &format!("{HOSTILE}\n\n{marker}\n{}", "- [ ] AC-1 x\n".repeat(9000)),
                &origin,
                &provenance,
                &[],
            );
            assert_inert(body.as_str());
            assert_eq!(body.pieces().len(), 1);
            assert!(!body.as_str().ends_with(marker), "the one at the end is ours alone");
        }
        let title = filed_title(&format!("Add @mona {HOSTILE}"));
        assert!(!title.contains("@mona") && !title.contains('\n'), "{title}");
    }
}
