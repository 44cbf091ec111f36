//! The gate comment, which is posted as a new comment because it must send mail: a person must decide. After the
//! decision it shows the outcome.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    ApprovalProgress, ApproveLine, ChangeReport, InconclusiveReason, Provenance, access_name,
    approvals::approval_progress, cost::format_spending, count, details_block, foreign_files_note, link,
    links, list_paths, merge_watch::unchanged_text, model_waits::format_day_and_time, override_usage, place,
    rehearsal_banner, stage_name, verdict_sign,
};
use crate::{
    documents::{edits::FindingReply, findings::Finding},
    git::ChangedPath,
    github::outbound::{OutboundBody, clean, code_block, inline_code, inline_text},
    types::{IssueNo, RepoName, Role, Timestamp, Verb, Verdict},
};

const SUMMARY_LINES: usize = 40;
const SUMMARY_CHARS: usize = 6_000;
const RATIONALE_CHARS: usize = 1_500;
/// Maximum number of lines of the reviewer's reason that are shown without being folded.
const REASON_LINES: usize = 3;
/// Maximum number of findings that are shown without being folded.
const MOST_TABLE_ROWS: usize = 5;
/// Maximum number of findings whose details are shown in the comment. The review log contains all details.
const MOST_DETAILS: usize = 25;
const DETAIL_CHARS: usize = 1_000;
const DIFF_CHARS: usize = 6_000;
/// Maximum number of open questions to show. `QUESTION_CHARS` is the maximum length of each.
const MOST_QUESTIONS: usize = 3;
const QUESTION_CHARS: usize = 300;
/// Maximum number of characters shown of the document. GitHub's limit for the whole comment is 65,536.
const DOCUMENT_CHARS: usize = 50_000;
/// Maximum number of characters shown of code, about half of a comment.
const CODE_CHARS: usize = 30_000;
/// Maximum number of automatically executed files (run by a build or CI) to list.
const MOST_EXECUTED: usize = 30;

#[derive(Debug, Clone)]
pub struct GateCard {
    /// Stage of the document, such as `lld`.
    pub stage: String,
    pub state: GateState,
    /// Whether no model will review the document.
    pub skips_review: bool,
    pub provenance: Provenance,
    pub round: u32,
    /// Reason why the review has no verdict.
    pub inconclusive: Option<InconclusiveReason>,
    /// The reviewer's explanation of the verdict.
    pub rationale: String,
    /// Replies of the drafter who changed nothing for a person's request; `None` if the version is new.
    pub unchanged: Option<Vec<FindingReply>>,
    /// Open findings, in the order in which they are shown.
    pub findings: Vec<Finding>,
    /// Findings that people dismissed.
    pub dismissed: Vec<Finding>,
    /// Text of each requirement, by the requirement's id.
    pub requirements: BTreeMap<String, String>,
    /// Questions to people that the document leaves open.
    pub questions: Vec<String>,
    /// Diff from the version that people sent back last.
    pub since: Option<String>,
    /// The drafter's summary of the document.
    pub summary: String,
    /// Report about the change; `None` if the document is not a change.
    pub report: Option<ChangeReport>,
    /// The whole document; `None` if this comment does not publish it.
    pub whole: Option<WholeDocument>,
    /// Diff of the change.
    pub diff: Option<String>,
    /// Changed files that a build or CI runs automatically.
    pub executed: Vec<String>,
    /// Reviewer named in the current settings; `None` if the review used the same one.
    pub reviewer_now: Option<String>,
    /// Whether a maintainer may accept a version that the review did not approve.
    pub overridable: bool,
    /// Files that other people changed on the branch.
    pub others: Vec<ChangedPath>,
    /// The branch that people rewrote and that this gate's branch replaces.
    pub abandoned_branch: Option<String>,
    /// Notes about the issue's authors.
    pub authorship: Vec<AuthorshipNote>,
    /// Other issues whose open work touches the same files, each with some of these files.
    pub overlaps: Vec<(IssueNo, Vec<String>)>,
    /// Approval rules in addition to the required role, and their progress.
    pub approvals: Option<ApprovalProgress>,
    /// Login of the person whose edit of this comment was undone.
    pub edited_by: Option<String>,
    /// Diff of an edit of the issue. Because of this edit, the approved text did not replace the issue's body.
    pub issue_diff: Option<String>,
    /// Reason why approval is needed although the settings do not require it.
    pub reason: Option<GateReason>,
    pub document_url: Option<String>,
    pub pull_url: Option<String>,
    pub status_url: Option<String>,
}

/// A document published in a comment.
#[derive(Debug, Clone)]
pub struct WholeDocument {
    pub text: String,
    /// Repository name to pass to `countersign export`.
    pub repo: RepoName,
    pub issue: IssueNo,
}

/// Reason why a gate opens although the settings require no approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateReason {
    /// The user with this login wrote or edited the issue and has no write access.
    Stranger(String),
    /// The issue was edited after the document was drafted.
    IssueEdited,
    /// The waiver for a hotfix has expired.
    WaiverOver,
}

/// A note about the issue's authors or the run's requester.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthorshipNote {
    /// The author with this login has not contributed to the repository before.
    Newcomer(String),
    /// Somebody edited the issue's body or title after the run was requested.
    Edited { by: String, at: Timestamp },
    /// Somebody waived the approval of earlier stages.
    Waived { by: String, reason: String },
}

impl AuthorshipNote {
    fn sentence(&self) -> String {
        match self {
            Self::Newcomer(login) => {
                format!(
                    "The issue's author {} has not contributed to this repository before.",
                    inline_code(login, 60)
                )
            }
            Self::Waived { by, reason } => format!(
                "**Hotfix**: {} skipped the approval of design and spec: {}.",
                inline_code(by, 60),
                inline_text(reason, 500)
            ),
            Self::Edited { by, at } => format!(
                "{} edited the issue on {}, after this run was requested.",
                inline_code(by, 60),
                format_day_and_time(*at)
            ),
        }
    }
}

/// State of a gate. An open gate has a command line to paste.
#[derive(Debug, Clone)]
pub enum GateState {
    Waits(ApproveLine),
    /// The gate is open, but its hash has changed since the comment was posted. Contains the new line to paste.
    WaitsWithNewLine(ApproveLine),
    /// Somebody answered the gate.
    Answered {
        verb: Verb,
        by: String,
        at: Timestamp,
    },
    /// A person committed another version. Contains the diff between our version and that person's.
    Replaced(String),
    /// The gate was closed without an answer. Contains the reason in our own words.
    Ended(String),
}

impl GateState {
    fn is_open(&self) -> bool {
        matches!(self, Self::Waits(_) | Self::WaitsWithNewLine(_))
    }

    /// Returns the outcome of a closed gate; `None` for an open gate.
    pub fn closing_line(&self) -> Option<String> {
        Some(match self {
            Self::Waits(_) | Self::WaitsWithNewLine(_) => return None,
            Self::Answered { verb, by, at } => {
                let what = match verb {
                    Verb::Revise => "Sent back to the drafter",
                    Verb::Override => "Accepted against the review",
                    _ => "Accepted",
                };
                format!("**{what} by {}** on {}.", inline_text(by, 300), format_day_and_time(*at))
            }
            Self::Replaced(_) => {
                "**Nobody needs to answer this any more**: somebody changed the document on its branch. Countersign \
                 reviews their version next, then asks again."
                    .to_owned()
            }
            Self::Ended(why) => {
                format!("**Nobody needs to answer this any more**: {}.", inline_text(why, 500).trim_end_matches('.'))
            }
        })
    }

    /// Returns the headline's predicate, such as `was accepted`.
    fn headline(&self) -> &'static str {
        match self {
            Self::Waits(_) | Self::WaitsWithNewLine(_) => "waits for a person",
            Self::Answered { verb, .. } if *verb == Verb::Revise => "was sent back",
            Self::Answered { .. } => "was accepted",
            Self::Replaced(_) => "was replaced",
            Self::Ended(_) => "was closed without a decision",
        }
    }
}

/// Returns the gate comment: the verdict, the findings, folded details, and the commands to answer the gate.
pub fn gate_comment(card: &GateCard) -> OutboundBody {
    let (waits, provenance) = (card.state.is_open(), &card.provenance);
    let mut parts = vec![headline(card)];
    parts.extend(card.abandoned_branch.as_ref().map(|branch| {
        format!(
            "Somebody rewrote the branch {}. Countersign left it as it is and closed its pull request. The {} is on a \
             new branch now, and earlier answers no longer count.",
            inline_code(branch, 100),
            stage_name(&card.stage)
        )
    }));
    if let GateState::Replaced(diff) = &card.state {
        parts.push(details_block("What changed", &code_block("diff", diff, DIFF_CHARS)));
    }
    parts.extend(card.reason.as_ref().map(gate_reason_sentence));
    if waits && !card.authorship.is_empty() {
        parts.push(card.authorship.iter().map(AuthorshipNote::sentence).collect::<Vec<_>>().join(" "));
    }
    if waits && !card.overlaps.is_empty() {
        let other = |(issue, paths): &(IssueNo, Vec<String>)| {
            let paths: Vec<_> = paths.iter().map(|path| inline_code(path, 100).to_string()).collect();
            format!("{} ({})", inline_code(&format!("#{issue}"), 30), paths.join(", "))
        };
        let others: Vec<_> = card.overlaps.iter().map(other).collect();
        parts.push(format!("Open work on other issues touches the same files: {}.", others.join("; ")));
    }
    parts.extend(card.issue_diff.as_ref().filter(|_| waits).map(|diff| {
        let diff = details_block("What was edited", &code_block("diff", diff, DIFF_CHARS));
        format!(
            "**Somebody edited the issue** before the approved text could replace it, so Countersign changed \
             nothing.\n\n{diff}"
        )
    }));
    parts.extend(card.unchanged.as_deref().map(unchanged_text));
    if waits && !card.questions.is_empty() {
        parts.push(open_questions(&card.questions, &card.stage));
    }
    parts.extend(review_parts(card));
    parts.extend(card.since.as_ref().filter(|_| waits).map(|diff| {
        details_block(
            "What changed since the last version",
            &code_block("diff", diff, DIFF_CHARS).to_string(),
        )
    }));
    parts.extend(card.report.as_ref().map(|report| report.gate_summary(card.findings.is_empty())));
    if let Some(whole) = &card.whole {
        parts.push(whole.to_details(&card.stage));
    } else if !card.summary.trim().is_empty() {
        let lines: Vec<&str> = card.summary.trim().lines().take(SUMMARY_LINES).collect();
        let summary = clean(&lines.join("\n"), SUMMARY_CHARS);
        let what = if card.report.is_some() { "change".to_owned() } else { stage_name(&card.stage) };
        parts.push(details_block(&format!("Summary of the {what}"), &summary.to_string()));
    }
    if waits && !card.executed.is_empty() {
        parts.push(format!(
            "**Builds or CI run these files automatically**, so review them first: {}.",
            list_paths(card.executed.iter().map(String::as_str), MOST_EXECUTED)
        ));
    }
    parts.extend(card.diff.as_ref().filter(|_| waits).map(|diff| {
        let more = diff.chars().count().saturating_sub(CODE_CHARS);
        let cut = match more {
            0 => String::new(),
            more => format!(
                "\n\n**{more} more characters do not fit here.** On the server, `countersign diff {}` prints the \
                 whole change.",
                provenance.run
            ),
        };
        details_block("The change", &(code_block("diff", diff, CODE_CHARS).to_string() + &cut))
    }));
    parts.push(decision_text(card) + &foreign_files_note(&card.others));
    parts.extend(required_approvals(card));
    parts.extend(card.edited_by.as_ref().filter(|_| waits).map(|login| {
        let login = inline_code(login, 60);
        format!(
            "{login} edited this comment, and Countersign restored it. So `/approve` must include the hash."
        )
    }));
    if waits && !card.others.is_empty() && matches!(card.provenance.verdict, None | Some(Verdict::Approved)) {
        parts.push(
            "`/approve` must include the hash shown above, which also covers the other people's files."
                .to_owned(),
        );
    }
    let links = links(&[
        ("Document", &card.document_url),
        ("Pull request", &card.pull_url),
        ("Status", &card.status_url),
    ]);
    let round = card.round;
    let cost =
        provenance.cost.map_or(String::new(), |cost| format!(" Cost so far: {}.", format_spending(&cost)));
    let by = format!("{}, round {round}.{cost}", provenance.models());
    parts.push([by, links].join("\n\n").trim_end().to_owned());
    parts.push(format!(
        "<sub>Run {} · the hash covers the document, the files it names and this gate's policy</sub>",
        provenance.run
    ));
    OutboundBody::frame(rehearsal_banner(card.provenance.rehearsal).to_owned() + &parts.join("\n\n"))
}

fn open_questions(questions: &[String], stage: &str) -> String {
    let rows = questions.iter().take(MOST_QUESTIONS);
    let rows: String =
        rows.map(|question| format!("\n- {}", inline_text(question, QUESTION_CHARS))).collect();
    let more = questions.len().saturating_sub(MOST_QUESTIONS);
    let more = if more > 0 {
        format!("\n- … and {}", count(more, "more question", "more questions"))
    } else {
        String::new()
    };
    format!(
        "**The {} asks you**\n{rows}{more}\n\nAnswer with `/revise`, or accept what it assumes.",
        stage_name(stage)
    )
}

impl WholeDocument {
    /// Returns the document, folded. A long document is truncated and followed by the command that exports it.
    fn to_details(&self, stage: &str) -> String {
        let stage = stage_name(stage);
        let mut shown = clean(&self.text, DOCUMENT_CHARS).to_string();
        if self.text.chars().count() > DOCUMENT_CHARS {
            let export =
                inline_code(&format!("countersign export {} --issue {}", self.repo, self.issue), 200);
            shown += &format!("\n\nOn the server, {export} writes the whole document to files.");
        }
        details_block(&format!("The whole {stage}"), &shown)
    }
}

/// Returns the comment that publishes a reviewed document for which no approval is needed.
pub fn document_comment(stage: &str, whole: &WholeDocument, rehearses: bool) -> OutboundBody {
    let heading = format!("### ✅ The {} passed its review", stage_name(stage));
    let parts =
        [heading, "The settings require no human approval for it.".to_owned(), whole.to_details(stage)];
    OutboundBody::frame(rehearsal_banner(rehearses).to_owned() + &parts.join("\n\n"))
}

fn gate_reason_sentence(reason: &GateReason) -> String {
    let why = match reason {
        GateReason::Stranger(login) => {
            format!("was written or edited by {}, who has no write access here", inline_code(login, 60))
        }
        GateReason::IssueEdited => "was edited after the draft was written".to_owned(),
        GateReason::WaiverOver => {
            return "The hotfix was requested more than a day ago, so approval is required again.".to_owned();
        }
    };
    format!(
        "The settings require no human approval after a passed review. A person must approve here, because the issue \
         {why}."
    )
}

/// Returns the reviewer's reason and the findings, most severe first. Findings beyond the limit are folded.
fn review_parts(card: &GateCard) -> Vec<String> {
    let mut parts = Vec::new();
    if !card.rationale.trim().is_empty() {
        let rationale = clean(&card.rationale, RATIONALE_CHARS).to_string();
        parts.push(match rationale.lines().count() {
            ..=REASON_LINES => format!("**The reviewer's reason**\n\n{rationale}"),
            _ => details_block("The reviewer's reason", &rationale),
        });
    }
    let (declined, mut findings): (Vec<&Finding>, Vec<&Finding>) =
        card.findings.iter().partition(|finding| finding.declined && !finding.must_fix);
    if let [first, ..] = declined[..] {
        let rows: String = declined.iter().map(|finding| declined_row(finding, &card.requirements)).collect();
        parts.push(format!(
            "**Not changed, although people asked for it**\n{rows}\n\nAccepting this version accepts these answers. \
             `/must-fix {}` insists on a change.",
            first.id
        ));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse((finding.must_fix, finding.severity)));
    let (first, rest) = findings.split_at(findings.len().min(MOST_TABLE_ROWS));
    if !first.is_empty() {
        parts.push(findings_table(card, first));
    }
    let mut inside = Vec::new();
    if !rest.is_empty() || !card.dismissed.is_empty() {
        inside.push(findings_table(card, rest) + &dismissed_rows(card));
    }
    if !first.is_empty() {
        inside.push(finding_details(&findings));
    }
    if !inside.is_empty() {
        let summary = match rest.len() {
            0 => "Details of the findings".to_owned(),
            more => format!("{}, and details of all", count(more, "more finding", "more findings")),
        };
        parts.push(details_block(&summary, &inside.join("\n\n")));
    }
    parts
}

/// Returns the reminder about an open gate. It is posted only once.
pub fn gate_reminder(card: &GateCard, gate_url: &str) -> OutboundBody {
    let stage = stage_name(&card.stage);
    let mut parts = vec![format!("### ⏰ The {stage} still waits for a person"), decision_text(card)];
    parts.extend(required_approvals(card));
    parts.push(link("Gate comment", gate_url));
    OutboundBody::frame(rehearsal_banner(card.provenance.rehearsal).to_owned() + &parts.join("\n\n"))
}

/// Returns the reason for ending a run whose gate nobody has answered for `days` days.
pub fn gate_expired_reason(days: u32) -> String {
    format!("Nobody decided within {}, so the run ended.", count(days as usize, "day", "days"))
}

/// Returns the gate's approval rules in addition to the required role. Returns `None` if the gate has no such rules or
/// no longer waits for an approval.
fn required_approvals(card: &GateCard) -> Option<String> {
    let passes = matches!(card.provenance.verdict, None | Some(Verdict::Approved));
    let waits = card.state.is_open() && passes;
    card.approvals.as_ref().filter(|_| waits).map(approval_progress).filter(|text| !text.is_empty())
}

fn headline(card: &GateCard) -> String {
    let (stage, predicate) = (stage_name(&card.stage), card.state.headline());
    let Some(verdict) = card.provenance.verdict else {
        let review = if card.skips_review { "; no model reviews it" } else { ", before it goes to review" };
        return format!("### 👤 The {stage} {predicate}{review}");
    };
    let sign = verdict_sign(verdict);
    let open = match card.findings.len() {
        0 => String::new(),
        open => format!(" ({})", count(open, "open finding", "open findings")),
    };
    let why = match verdict {
        Verdict::Inconclusive => {
            let why = card.inconclusive.as_ref().map(InconclusiveReason::sentence);
            format!("\n\nThere is no verdict. {}", why.as_deref().unwrap_or("The reason was not recorded."))
        }
        _ => String::new(),
    };
    format!("### {sign} {verdict}: the {stage} {predicate}{open}{why}")
}

/// Returns the outcome of a closed gate. For an open gate, returns the commands to answer it and says who may use them.
/// Only complete commands get a code block: its copy button would otherwise invite people to paste a placeholder, which
/// would be taken as real text.
fn decision_text(card: &GateCard) -> String {
    let role = access_name(Role::Write);
    let line = match &card.state {
        GateState::Waits(line) | GateState::WaitsWithNewLine(line) => line,
        standing => return standing.closing_line().unwrap_or_default(),
    };
    let tests = match card.report {
        Some(_) => ", or `/revise tests TEXT` if its locked tests must change",
        None => "",
    };
    if matches!(card.provenance.verdict, None | Some(Verdict::Approved)) {
        let note = match card.state {
            GateState::WaitsWithNewLine(_) => {
                "The content has changed since this comment was posted, so the hash is new.\n\n"
            }
            _ => "",
        };
        return format!(
            "{note}To accept it, someone with {role} writes:\n\n{}\n\nTo send it back to the drafter instead: \
             `/revise TEXT`{tests}.",
            line.block()
        );
    }
    let over = match card.overridable {
        true => format!(
            "\n- {} (requires {}) accepts it anyway and records the reason.",
            override_usage(line),
            access_name(Role::Maintain)
        ),
        false => String::new(),
    };
    let can_change = card.inconclusive.as_ref().is_none_or(InconclusiveReason::can_be_retried);
    let (mut retry, mut revise) = (String::new(), String::new());
    if can_change {
        revise = format!("\n- `/revise TEXT` (requires {role}) sends it back to the drafter{tests}.");
    }
    if can_change && card.provenance.verdict == Some(Verdict::Inconclusive) {
        let now = card
            .reviewer_now
            .as_ref()
            .map_or(String::new(), |reviewer| format!(" The reviewer is now {}.", inline_code(reviewer, 80)));
        let access = access_name(Role::Triage);
        retry = format!("\n- `/retry` (requires {access}) reviews the same version again.{now}");
    }
    format!("`/approve` is not possible with this verdict.\n{retry}{revise}{over}")
}

fn findings_table(card: &GateCard, findings: &[&Finding]) -> String {
    let mut out = String::from("| | Severity | Place | Finding |\n|---|---|---|---|");
    for finding in findings {
        let severity = if finding.must_fix { "must fix" } else { finding.severity.as_str() };
        let (place, title) = (place(finding, &card.requirements), inline_text(&finding.title, 200));
        out.push_str(&format!("\n| {} | {severity} | {place} | {title} |", finding.id));
    }
    out
}

/// Returns the table rows of the dismissed findings.
fn dismissed_rows(card: &GateCard) -> String {
    let row = |finding: &Finding| {
        let place = place(finding, &card.requirements);
        let (title, why) = (inline_text(&finding.title, 200), inline_text(&finding.why, 300));
        let status = finding.status.as_str();
        format!("\n| ~~{}~~ | {status} | {place} | ~~{title}~~ ({why}) |", finding.id)
    };
    card.dismissed.iter().map(row).collect()
}

/// Returns a person's remark for which nothing was changed, with the drafter's answer.
fn declined_row(finding: &Finding, requirements: &BTreeMap<String, String>) -> String {
    let (place, title) = (place(finding, requirements), inline_text(&finding.title, 300));
    let answer = finding.answer.as_deref().map_or("no answer".to_owned(), |why| inline_text(why, 500));
    format!("\n- **{}** at {place}: {title}\n  The drafter: {answer}", finding.id)
}

fn finding_details(findings: &[&Finding]) -> String {
    let mut out = String::new();
    for finding in findings.iter().take(MOST_DETAILS) {
        let why = if finding.why.is_empty() {
            String::new()
        } else {
            format!(" ({})", inline_text(&finding.why, 200))
        };
        out.push_str(&format!("**{}**{why}\n\n{}\n\n", finding.id, clean(&finding.detail, DETAIL_CHARS)));
        if let Some(reply) = &finding.reply {
            let (what, why) = (reply.disposition.as_str(), clean(&reply.why, DETAIL_CHARS));
            out.push_str(&format!("The drafter's answer: {what}.\n\n{why}\n\n"));
        }
    }
    if findings.len() > MOST_DETAILS {
        out.push_str(&format!("… and {} more, in the review log.\n", findings.len() - MOST_DETAILS));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{
        super::{report::tests::report, tests::*},
        *,
    };
    use crate::{documents::verdict::FindingSeverity, types::Hash};

    fn finding(id: &str, text: &str) -> Finding {
        super::super::tests::finding(id, FindingSeverity::Blocking, text, text)
    }

    fn card(verdict: Verdict, findings: Vec<Finding>) -> GateCard {
        GateCard {
            stage: "lld".into(),
            state: GateState::Waits(ApproveLine::approve("lld", Hash::digest(b"x"), &[])),
            skips_review: false,
            provenance: Provenance { verdict: Some(verdict), ..provenance() },
            round: 2,
            inconclusive: None,
            reviewer_now: None,
            rationale: "Sound.".into(),
            unchanged: None,
            findings,
            dismissed: Vec::new(),
            requirements: BTreeMap::from([("REQ-1".into(), "Each week has a total".into())]),
            questions: vec![],
            since: None,
            summary: "Reads a file.".into(),
            report: None,
            whole: None,
            diff: None,
            executed: vec![],
            overridable: true,
            others: Vec::new(),
            abandoned_branch: None,
            authorship: vec![],
            overlaps: vec![],
            reason: None,
            approvals: None,
            edited_by: None,
            issue_diff: None,
            document_url: Some("https://github.com/o/r/blob/b/d.md".into()),
            pull_url: Some("https://github.com/o/r/pull/7".into()),
            status_url: None,
        }
    }

    #[test]
    fn gate_comment_truncates_the_diff_and_lists_files_run_by_builds() {
        let mut card = card(Verdict::Approved, vec![]);
        card.diff = Some("+x\n".repeat(CODE_CHARS));
        card.executed = vec!["build.rs".into(), HOSTILE.into()];
        let body = gate_comment(&card);
        assert_inert(body.as_str());
        let body = body.as_str();
        assert!(
            body.contains("do not fit here.** On the server, `countersign diff 8123-4` prints the whole"),
            "{body}"
        );
        assert!(body.contains("so review them first: `build.rs`, "), "{body}");
    }

    #[test]
    fn gate_comment_after_an_inconclusive_review_offers_override_and_retry() {
        let mut card = card(Verdict::Inconclusive, vec![finding("F1", "2.1")]);
        card.inconclusive = Some(InconclusiveReason::SameFamily);
        let text = gate_comment(&card).as_str().to_owned();
        assert!(text.contains("There is no verdict. The reviewer's model is of the same family"), "{text}");
        assert!(
            text.contains("\n- `/retry` (requires triage")
                && text.contains("\n- `/override REASON` (requires maintain"),
            "{text}"
        );
        assert!(
            text.contains("\n`/approve` is not possible with this verdict.\n")
                && !text.contains("/approve lld"),
            "{text}"
        );
    }

    #[test]
    fn gate_comment_shows_worst_findings_first_in_at_most_25_visible_lines() {
        let mut findings: Vec<Finding> = (1..=12).map(|n| finding(&format!("F{n}"), "2.1")).collect();
        findings[..9].iter_mut().for_each(|finding| finding.severity = FindingSeverity::Suggestion);
        findings[3].must_fix = true;
        let mut card = card(Verdict::Inconclusive, findings);
        card.rationale = "One line.\n".repeat(9);
        card.authorship = vec![AuthorshipNote::Newcomer("mona".into())];
        card.overlaps = vec![(IssueNo(7), vec!["src/lib.rs".into()])];
        (card.issue_diff, card.diff) = (Some("-a\n+b".into()), Some("+c\n".repeat(50)));
        card.executed = vec!["build.rs".into()];
        let visible = |body: &OutboundBody| {
            let mut folds = 0_usize;
            let visible = body.as_str().lines().filter(|line| {
                let outside = folds == 0;
                folds += line.matches("<details>").count();
                folds -= line.matches("</details>").count();
                outside && !line.is_empty()
            });
            let visible: Vec<_> = visible.map(str::to_owned).collect();
            assert!(visible.len() <= 25, "{}: {visible:#?}", visible.len());
            visible
        };
        let mut report = report();
        report.evidence.review = vec!["Line 7 is covered by no test.".to_owned(); 9];
        let gaps = ["Mutation check", "Adversarial tests", "Formatter", "Linter", "End-to-end run"];
        gaps.iter().for_each(|label| report.evidence.add_sentence(label, "was run.".into()));
        // The issue's text gives way to another issue alone, and never to a change.
        let of_change = GateCard { report: Some(report), issue_diff: None, ..card.clone() };
        visible(&gate_comment(&of_change));
        let approved = GateCard { provenance: provenance(), findings: vec![], ..of_change };
        let lines = visible(&gate_comment(&approved)).join("\n");
        assert!(
            lines.contains("**Print a total for each week**\n- **Before the change:** 4 tests fail"),
            "{lines}"
        );
        assert!(lines.contains("**For your review**\n"), "{lines}");
        let body = gate_comment(&card);
        let visible = visible(&body);
        let shown: Vec<_> = visible.iter().filter_map(|line| line.strip_prefix("| F")).collect();
        let shown: Vec<_> = shown.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(shown, ["4", "10", "11", "12", "1"]);
        assert!(body.as_str().contains("<summary>7 more findings, and details of all</summary>"));
    }

    #[test]
    fn gate_comment_shows_both_words_on_a_declined_remark_and_why_nothing_changed() {
        let mut declined = finding("F7", "2.1");
        (declined.declined, declined.answer) = (true, Some("The spec says so.".into()));
        let mut card = card(Verdict::Approved, vec![declined.clone()]);
        card.unchanged = Some(vec![]);
        let text = gate_comment(&card).as_str().to_owned();
        assert!(text.contains("**Nothing changed**, so nothing is run or reviewed again."), "{text}");
        assert!(
            text.contains("`: 2\\.1\n  The drafter: The spec says so.\n\nAccepting this version"),
            "{text}"
        );
        assert!(text.contains("`/must-fix F7` insists") && !text.contains("\n| F7"), "{text}");
        declined.must_fix = true;
        card.findings = vec![declined];
        let text = gate_comment(&card).as_str().to_owned();
        assert!(text.contains("\n| F7 | must fix |") && !text.contains("The drafter: "), "{text}");
    }

    #[test]
    fn gate_comment_neutralises_hostile_text() {
        let mut card = card(Verdict::Blocked, (1..=40).map(|n| finding(&format!("F{n}"), HOSTILE)).collect());
        card.findings[39].declined = true;
        card.findings[39].answer = Some(HOSTILE.to_owned());
        card.rationale = HOSTILE.repeat(500);
        card.summary = HOSTILE.repeat(500);
        let mut hostile = report();
        hostile.title = HOSTILE.into();
        hostile.evidence.add_sentence("Linter", HOSTILE.into());
        hostile.evidence.review = vec![HOSTILE.into()];
        card.report = Some(hostile);
        card.provenance.reviewer = model(HOSTILE, HOSTILE);
        let body = gate_comment(&card);
        assert_inert(body.as_str());
        assert_eq!(body.pieces().len(), 1);
        let rows = body.as_str().lines().filter(|l| l.starts_with("| F")).collect::<Vec<_>>();
        assert_eq!(rows.len(), 39);
        let bars = |row: &str| row.replace("\\|", "").matches('|').count();
        assert!(rows.iter().all(|row| bars(row) == 5), "{}", rows[0]);
    }
}
