//! The gate comment: the one that sends mail, because a person must decide.

use super::{
    ApproveLine, ModelView, access, cost::spending, count, folded, links, rehearsal, sign, stage_name,
    status::place,
};
use crate::{
    documents::findings::Finding,
    github::outbound::{Body, clean, plain},
    store::Spending,
    types::{Hash, Role, RunId, Verdict},
};

const SUMMARY_LINES: usize = 40;
const SUMMARY_CHARS: usize = 6_000;
const RATIONALE_CHARS: usize = 1_500;
/// Findings whose detail is shown here; the review log has all.
const DETAILED: usize = 25;
const DETAIL_CHARS: usize = 1_000;

#[derive(Debug, Clone)]
pub struct GateCard {
    pub line: ApproveLine,
    /// sha256 of the document's bytes, which the line's hash covers with more.
    pub document: Hash,
    pub run: RunId,
    pub round: u32,
    /// `None` at a gate before the review.
    pub verdict: Option<Verdict>,
    /// Why there is no verdict, when there is none.
    pub inconclusive: Option<Inconclusive>,
    /// The reviewer's reason, in its words.
    pub rationale: String,
    /// What is open, in order.
    pub findings: Vec<Finding>,
    /// What the document says, in short; the drafter's words.
    pub summary: String,
    /// Who may pass an approved document.
    pub role: Role,
    /// Who may pass one that is not.
    pub override_role: Role,
    pub drafter: ModelView,
    pub reviewer: ModelView,
    pub document_url: Option<String>,
    pub pull_url: Option<String>,
    pub status_url: Option<String>,
    /// None where everybody would read it.
    pub cost: Option<Spending>,
    pub rehearsal: bool,
}

/// Why a review gave no verdict. Computed by us, said in our words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Inconclusive {
    CallFailed,
    TimedOut,
    Truncated,
    NotValid,
    WrongNonce,
    SameFamily,
    Unattested,
    OtherModel,
    TooLong,
}

impl Inconclusive {
    pub fn text(self) -> &'static str {
        match self {
            Self::CallFailed => "the reviewer could not be reached",
            Self::TimedOut => "the reviewer did not answer in time",
            Self::Truncated => "the reviewer's answer was cut off",
            Self::NotValid => "the reviewer's answer did not fit the form of a verdict",
            Self::WrongNonce => "the reviewer's answer did not belong to this question",
            Self::SameFamily => "the model that reviewed is of the same family as the one that drafted",
            Self::Unattested => "the answer does not say which model gave it",
            Self::OtherModel => "another model answered than the one that was asked",
            Self::TooLong => "the document is too long to be reviewed whole",
        }
    }
}

pub fn gate(card: &GateCard) -> Body {
    let mut parts = vec![headline(card), decision(card)];
    if !card.rationale.trim().is_empty() {
        let rationale = clean(&card.rationale, RATIONALE_CHARS);
        parts.push(format!("**The reviewer's reason**\n\n{rationale}"));
    }
    if card.findings.is_empty() {
        if card.verdict.is_some() {
            parts.push("No open findings.".to_owned());
        }
    } else {
        parts.push(table(&card.findings));
        parts.push(details(&card.findings));
    }
    if !card.summary.trim().is_empty() {
        let lines: Vec<&str> = card.summary.trim().lines().take(SUMMARY_LINES).collect();
        let summary = clean(&lines.join("\n"), SUMMARY_CHARS);
        parts.push(folded("The document in short", &summary.to_string()));
    }
    let links = links(&[
        ("Document", &card.document_url),
        ("Pull request", &card.pull_url),
        ("Status", &card.status_url),
    ]);
    let round = card.round;
    let reviewed = match card.verdict {
        Some(_) => format!(", reviewed by {}", card.reviewer.text()),
        None => String::new(),
    };
    let cost = card.cost.map_or(String::new(), |cost| format!(" Cost so far: {}.", spending(&cost)));
    parts.push(format!("Drafted by {}{reviewed}, round {round}.{cost}", card.drafter.text()));
    if !links.is_empty() {
        parts.push(links);
    }
    parts.push(format!("<sub>Run {} · the hash to approve covers the document (sha256 {}), the files it names and this gate's rules</sub>", card.run, card.document));
    Body::frame(rehearsal(card.rehearsal).to_owned() + &parts.join("\n\n"))
}

fn headline(card: &GateCard) -> String {
    let stage = stage_name(&card.line.stage);
    let Some(verdict) = card.verdict else {
        return format!("### 👤 The {stage} waits for a person, before it goes to review");
    };
    let sign = sign(verdict);
    let open = count(card.findings.len(), "open finding", "open findings");
    let why = match verdict {
        Verdict::Inconclusive => {
            let why = card.inconclusive.map_or("no valid verdict was given", Inconclusive::text);
            format!("\n\nThere is no verdict: {why}.")
        }
        _ => String::new(),
    };
    format!("### {sign} {verdict}: the {stage} waits for a person ({open}){why}")
}

/// What may be typed, by whom. Only the line that can be pasted as it stands gets a block with a
/// copy button; a placeholder that was copied would count.
fn decision(card: &GateCard) -> String {
    let (role, over) = (access(card.role), access(card.override_role));
    if matches!(card.verdict, None | Some(Verdict::Approved)) {
        return format!(
            "To accept it, someone with {role} writes\n\n{}\n\nTo send it back to the drafter instead: `/revise TEXT`.",
            card.line.block()
        );
    }
    format!(
        "`/approve` does not pass this verdict.\n\n\
         - `/revise TEXT`, by someone with {role}, sends it back to the drafter.\n\
         - `/override REASON`, by someone with {over}, takes it as it is, upon themselves; the reason is recorded."
    )
}

pub(super) fn table(findings: &[Finding]) -> String {
    let mut out = String::from("| | Severity | Place | Finding |\n|---|---|---|---|");
    for finding in findings {
        let severity = if finding.must_fix { "must fix" } else { finding.severity.as_str() };
        let (place, title) = (place(&finding.place), plain(&finding.title, 200));
        out.push_str(&format!("\n| {} | {severity} | {place} | {title} |", finding.id));
    }
    out
}

fn details(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings.iter().take(DETAILED) {
        let why =
            if finding.why.is_empty() { String::new() } else { format!(" ({})", plain(&finding.why, 200)) };
        out.push_str(&format!("**{}**{why}\n\n{}\n\n", finding.id, clean(&finding.detail, DETAIL_CHARS)));
    }
    if findings.len() > DETAILED {
        out.push_str(&format!("… and {} more, in the review log.\n", findings.len() - DETAILED));
    }
    folded("Details of the findings", &out)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::{
        documents::{findings::Status, verdict::Severity},
        types::{Family, RepoId},
    };

    fn finding(id: &str, text: &str) -> Finding {
        Finding {
            id: id.into(),
            round: 1,
            last_round: 1,
            severity: Severity::Blocking,
            category: "tests".into(),
            place: text.into(),
            title: text.into(),
            detail: text.into(),
            status: Status::Open,
            why: String::new(),
            must_fix: false,
        }
    }

    fn card(verdict: Verdict, findings: Vec<Finding>) -> GateCard {
        GateCard {
            line: ApproveLine { stage: "lld".into(), subject: Hash::of(b"x") },
            run: RunId { repo: RepoId(8123), seq: 4 },
            document: Hash::of(b"d"),
            round: 2,
            verdict: Some(verdict),
            inconclusive: None,
            rationale: "Sound.".into(),
            findings,
            summary: "Reads a file.".into(),
            role: Role::Write,
            override_role: Role::Maintain,
            drafter: ModelView {
                served: Some("claude-opus-4-6".into()),
                family: Some(Family("claude".into())),
            },
            reviewer: ModelView {
                served: Some("gemini-3-pro".into()),
                family: Some(Family("gemini".into())),
            },
            document_url: Some("https://github.com/o/r/blob/b/d.md".into()),
            pull_url: Some("https://github.com/o/r/pull/7".into()),
            status_url: None,
            cost: None,
            rehearsal: false,
        }
    }

    #[test]
    fn an_approved_design_at_its_gate() {
        insta::assert_snapshot!(gate(&card(Verdict::Approved, vec![])).as_str(), @r#"
        ### ✅ APPROVED: the LLD waits for a person (0 open findings)

        To accept it, someone with write access writes

        ```
        /approve lld 2d711642b726
        ```

        To send it back to the drafter instead: `/revise TEXT`.

        **The reviewer's reason**

        Sound.

        No open findings.

        <details><summary>The document in short</summary>

        Reads a file.

        </details>

        Drafted by `claude-opus-4-6` (claude), reviewed by `gemini-3-pro` (gemini), round 2.

        [Document](https://github.com/o/r/blob/b/d.md) · [Pull request](https://github.com/o/r/pull/7)

        <sub>Run 8123-4 · the hash to approve covers the document (sha256 18ac3e7343f016890c510e93f935261169d9e3f565436429830faf0934f4f8e4), the files it names and this gate's rules</sub>
        "#);
    }

    #[test]
    fn without_a_verdict_only_an_override_passes() {
        let mut card = card(Verdict::Inconclusive, vec![finding("F1", "2.1")]);
        card.inconclusive = Some(Inconclusive::SameFamily);
        insta::assert_snapshot!(gate(&card).as_str(), @r#"
        ### ❔ INCONCLUSIVE: the LLD waits for a person (1 open finding)

        There is no verdict: the model that reviewed is of the same family as the one that drafted.

        `/approve` does not pass this verdict.

        - `/revise TEXT`, by someone with write access, sends it back to the drafter.
        - `/override REASON`, by someone with maintain access, takes it as it is, upon themselves; the reason is recorded.

        **The reviewer's reason**

        Sound.

        | | Severity | Place | Finding |
        |---|---|---|---|
        | F1 | blocking | `2.1` | 2\.1 |

        <details><summary>Details of the findings</summary>

        **F1**

        2\.1

        </details>

        <details><summary>The document in short</summary>

        Reads a file.

        </details>

        Drafted by `claude-opus-4-6` (claude), reviewed by `gemini-3-pro` (gemini), round 2.

        [Document](https://github.com/o/r/blob/b/d.md) · [Pull request](https://github.com/o/r/pull/7)

        <sub>Run 8123-4 · the hash to approve covers the document (sha256 18ac3e7343f016890c510e93f935261169d9e3f565436429830faf0934f4f8e4), the files it names and this gate's rules</sub>
        "#);
        assert!(!gate(&card).as_str().contains("/approve lld"));
    }

    #[test]
    fn nothing_a_model_wrote_leaves_its_place() {
        let mut card = card(Verdict::Blocked, (1..=40).map(|n| finding(&format!("F{n}"), HOSTILE)).collect());
        card.rationale = HOSTILE.repeat(500);
        card.summary = HOSTILE.repeat(500);
        card.reviewer.served = Some(HOSTILE.into());
        let body = gate(&card);
        assert_inert(body.as_str());
        assert_eq!(body.pieces().len(), 1);
        let rows = body.as_str().lines().filter(|l| l.starts_with("| F")).collect::<Vec<_>>();
        assert_eq!(rows.len(), 40);
        let bars = |row: &str| row.replace("\\|", "").matches('|').count();
        assert!(rows.iter().all(|row| bars(row) == 5), "{}", rows[0]);
    }
}
