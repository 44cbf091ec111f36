//! Comments about an open pull request: CI results, obstacles to pushing a change, and the outcome.

use serde::{Deserialize, Serialize};

use super::{code_block, rehearsal_banner};
use crate::{
    documents::{
        edits::FindingReply,
        findings::{Finding, FindingStatus},
    },
    github::outbound::{OutboundBody, clean, inline_code, inline_text, plain_line},
    types::{IssueNo, Oid, count},
};

/// Maximum number of checks listed.
const MOST_NAMED_CHECKS: usize = 10;

/// Maximum number of lines quoted from the body of a review.
const MOST_QUOTED_LINES: usize = 10;

/// Maximum number of characters of the drafter's reply in a review thread.
const ANSWER_CHARS: usize = 2_000;

/// CI result of the pushed commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CiView {
    /// Some checks are still running. Contains their names.
    Pending(Vec<String>),
    Passed(Oid),
    /// Some checks have failed. Contains their names.
    Failed(Vec<String>),
}

/// Reason why Countersign stops fixing CI failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiGiveUpReason {
    /// The same checks fail on the base commit.
    FailsOnBase,
    /// The drafter saw the failures and left the code unchanged.
    LeftByDrafter,
    /// The maximum total number of fixes has been reached.
    FixLimit(u32),
    ConsecutiveFixLimit(u32),
    /// The same checks still fail after this number of fixes.
    RepeatedFailure(u32),
}

fn list_checks(checks: &[String]) -> String {
    let mut named: Vec<String> =
        checks.iter().take(MOST_NAMED_CHECKS).map(|name| inline_code(name, 80)).collect();
    if checks.len() > MOST_NAMED_CHECKS {
        named.push(format!("{} more", checks.len() - MOST_NAMED_CHECKS));
    }
    named.join(", ")
}

/// Returns the status line of a pushed change.
pub(super) fn merge_wait_line(ci: Option<&CiView>, conflicts: bool, on_top: bool, unknown: bool) -> String {
    let ci = match ci {
        _ if on_top => {
            " Somebody pushed commits on top; Countersign does not act on CI for their commits.".to_owned()
        }
        None => String::new(),
        Some(CiView::Pending(checks)) => format!(" CI is running: {}.", list_checks(checks)),
        Some(CiView::Passed(commit)) => format!(" CI passed on `{}`.", commit.short()),
        Some(CiView::Failed(checks)) => format!(" CI failed: {}.", list_checks(checks)),
    };
    let unknown = if unknown {
        " Countersign ignores some checks on this commit, because GitHub does not show their results or the \
         repository they ran for."
    } else {
        ""
    };
    let conflicts = if conflicts { " It has merge conflicts." } else { "" };
    format!(
        "**Waits for the merge.**{ci}{unknown}{conflicts} Failing CI, `/revise TEXT` or a review by someone with \
         write access starts work on the change again."
    )
}

/// Returns the instructions for the drafter. People do not see them.
pub fn ci_fix_instructions() -> String {
    "CI failed on the pushed change. Which checks, and what they said, is among the material below. Mend the code so that they \
     pass; where it is right and they fail for another reason, change nothing and answer the finding that they are by why."
        .to_owned()
}

/// Returns a status note saying that the logs of some checks are missing.
pub fn missing_logs_note(checks: usize, commit: &Oid) -> String {
    format!(
        "GitHub did not provide the logs of {} that failed on {}, so the drafter sees only the check's own output.",
        count(checks, "job", "jobs"),
        commit.short()
    )
}

/// Returns the title of the CI finding. The title does not contain the names of the checks, because the names are
/// untrusted text.
pub fn ci_finding_title(checks: usize) -> String {
    format!("CI fails on the pushed change, in {}", count(checks, "check", "checks"))
}

/// `replies` are the drafter's, who may have left the code unchanged.
pub fn ci_failure_comment(
    why: CiGiveUpReason,
    checks: &[String],
    commit: &Oid,
    replies: &[FindingReply],
) -> OutboundBody {
    let fixes = |n: u32| count(n as usize, "fix", "fixes");
    let why = match why {
        CiGiveUpReason::FailsOnBase => {
            "The same checks fail on the base commit, so the change did not break them. Countersign does not try to \
             fix them."
                .to_owned()
        }
        CiGiveUpReason::LeftByDrafter => {
            "The drafter saw their output and left the code as it is, because it considers the code right. The checks \
             may be flaky; run them again to find out."
                .to_owned()
                + &list_replies(replies)
                + "\n\n"
        }
        CiGiveUpReason::FixLimit(n) => format!("This pull request has had {}, which is the limit.", fixes(n)),
        CiGiveUpReason::ConsecutiveFixLimit(n) => {
            format!("{} in a row did not make CI pass, which is the limit.", fixes(n))
        }
        CiGiveUpReason::RepeatedFailure(n) => {
            format!("The same checks failed again after {}, which is the limit.", fixes(n))
        }
    };
    OutboundBody::frame(format!(
        "### ❌ CI fails on `{}`\n\n{}.\n\n{why} Fix it on the branch, or tell the drafter what to \
         do:\n\n{}\n\n`/stop` ends the run and keeps the pushed commits.",
        commit.short(),
        list_checks(checks),
        code_block("/revise TEXT")
    ))
}

pub fn conflicts_comment(branch: &str, base: &str) -> OutboundBody {
    let (branch, base) = (inline_code(branch, 100), inline_code(base, 100));
    OutboundBody::frame(format!(
        "### ✋ The pull request cannot be merged as it is\n\n{base} and {branch} changed the same lines. Merge {base} \
         into {branch} and resolve the conflicts there. Countersign does not resolve conflicts."
    ))
}

/// Says that the drafter changed nothing, in the drafter's words.
pub(super) fn unchanged_text(replies: &[FindingReply]) -> String {
    let why = match replies {
        [] => " The drafter gave no reason.".to_owned(),
        replies => format!(" The drafter's reasons:{}", list_replies(replies)),
    };
    format!("**Nothing changed**, so nothing is run or reviewed again.{why}")
}

fn list_replies(replies: &[FindingReply]) -> String {
    let row = |reply: &FindingReply| {
        let (id, why) = (inline_text(&reply.finding, 20), inline_text(&reply.why, ANSWER_CHARS));
        // People know the ids of findings alone.
        if id.starts_with('F') { format!("\n- {id}: {why}") } else { format!("\n- {why}") }
    };
    let rows: String = replies.iter().take(MOST_NAMED_CHECKS).map(row).collect();
    if rows.is_empty() { rows } else { format!("\n{rows}") }
}

/// Returns a comment saying that a request did not change the pushed version.
pub fn unchanged_comment(replies: &[FindingReply], rehearsal: bool) -> OutboundBody {
    OutboundBody::frame(format!(
        "{}### The pull request stays as it is\n\n{}\n\nTo insist, write `/revise TEXT` with what is missing.",
        rehearsal_banner(rehearsal),
        unchanged_text(replies)
    ))
}

/// Returns a status note about people's remarks for which nothing was changed.
pub fn declined_note(findings: &[String]) -> String {
    let first = findings.first().map_or("F1", String::as_str);
    format!(
        "Nothing was changed for {}, and nobody has accepted that yet: `/must-fix {first}` insists, `/dismiss {first} \
         REASON` accepts it",
        findings.join(", ")
    )
}

/// Heading of a review's body, below its line comments.
const REVIEW_BODY: &str = "The review as a whole:";

/// Returns the text of a review from its line comments and its body.
pub fn review_text(comments: &str, body: &str) -> String {
    match (comments.trim(), body.trim()) {
        (comments, "") => comments.to_owned(),
        ("", body) => body.to_owned(),
        (comments, body) => format!("{comments}\n\n{REVIEW_BODY}\n\n{body}"),
    }
}

/// Returns the body in the text of a review. `has_comments` says that the review has line comments.
pub fn review_body(text: &str, has_comments: bool) -> Option<&str> {
    match text.split_once(&format!("\n\n{REVIEW_BODY}\n\n")).filter(|_| has_comments) {
        Some((_, body)) => Some(body),
        None => Some(text).filter(|_| !has_comments),
    }
}

/// Returns the reply to a request that names the locked test `test`.
pub fn unclear_request_reply(by: &str, test: &str, is_review: bool) -> OutboundBody {
    let kept = if is_review { " Your command then also sends the rest of the review." } else { "" };
    OutboundBody::frame(format!(
        "{} named {}, which belongs to the locked tests. Nothing was sent to the drafter yet. To have tests changed, write `/revise \
         tests TEXT`; to have only the code changed, `/revise code TEXT`.{kept}",
        inline_code(by, 60),
        inline_code(test, 150)
    ))
}

/// Returns the reply to a comment without a command on a pull request of ours.
pub fn plain_comment_reply(has_tests: bool) -> OutboundBody {
    let tests = if has_tests { ", or `/revise tests TEXT` if its tests must change" } else { "" };
    OutboundBody::frame(format!(
        "Countersign acts on commands and reviews, not on other comments. To have this revised, write `/revise TEXT`{tests}."
    ))
}

/// Returns a comment saying that a new change was not pushed.
pub fn not_pushed_comment(why: &str) -> OutboundBody {
    OutboundBody::frame(format!(
        "### ✋ The new change was not pushed\n\n{} The pull request stays as it is. Once the default branch is fixed, \
         ask for the change again:\n\n{}",
        clean(why, 1000),
        code_block("/revise TEXT")
    ))
}

/// Reason why a new change cannot be pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PushObstacle {
    /// Somebody changed this file on the branch, and the new change would overwrite that.
    Changed(String),
    /// Somebody rewrote the history of this branch.
    Rewritten(String),
    /// Somebody merged the base branch into the branch. The change was not tested with that merge.
    Updated { branch: String, base: String },
    /// Another obstacle, described by a sentence in our own words.
    Other(String),
}

/// Returns a comment saying that a requested change cannot be pushed.
pub fn push_obstacle_comment(why: &PushObstacle) -> OutboundBody {
    let text = match why {
        PushObstacle::Changed(path) => format!(
            "Somebody changed {path} on the branch after the push, and a new change would overwrite their \
             version. Edit the branch by hand, or revert their commit and ask again."
        ),
        PushObstacle::Rewritten(branch) => format!(
            "Somebody rewrote {branch}, and the pushed commit is no longer on it. Edit the branch by hand, or \
             restore it and ask again."
        ),
        PushObstacle::Updated { branch, base } => format!(
            "Somebody merged {base} into {branch} after the push, and a new change would be tested without that \
             merge. Edit the branch by hand."
        ),
        PushObstacle::Other(why) => why.clone(),
    };
    // Only here does a restart use a new branch, so it discards nobody's work.
    let restart = match why {
        PushObstacle::Rewritten(_) => {
            format!(" To build the change again on a new branch:\n\n{}", code_block("/restart implement"))
        }
        _ => String::new(),
    };
    OutboundBody::frame(format!(
        "### ✋ The pull request was not changed\n\n{}\n\nThe run still waits for the merge.{restart}",
        inline_text(&text, 600)
    ))
}

pub fn merge_summary(commit: &str) -> String {
    if commit.is_empty() { "merged".to_owned() } else { format!("merged as {commit}") }
}

pub fn merged_meanwhile_note() -> String {
    "The pull request was merged while a new change was in progress; the new change was not pushed".to_owned()
}

/// Returns the reply to a command that starts or approves something while the run waits for the pull request to be
/// merged.
pub fn waits_for_merge_reply(command: &str) -> OutboundBody {
    OutboundBody::frame(format!(
        "{} has nothing to do: the pull request waits for the merge. `/revise TEXT` changes it, `/restart implement` \
         starts over, and `/stop` ends the run.",
        inline_code(&format!("/{command}"), 40)
    ))
}

/// Outcome of a pushed change, from which later drafters can learn.
pub struct ChangeLesson<'a> {
    pub issue: IssueNo,
    pub title: &'a str,
    pub merged: bool,
    pub rounds: u32,
    /// Number of fixes that were made for CI failures.
    pub fixes: u32,
    pub findings: &'a [Finding],
    /// Paths of files that people changed after the push.
    pub theirs: &'a [String],
}

/// Returns a text about the outcome for later drafters, which see it as untrusted text.
pub fn lesson_text(lesson: &ChangeLesson<'_>) -> String {
    let end = if lesson.merged { "merged" } else { "not merged" };
    let mut text = format!(
        "#{} {}: {end}, after {} drafts, {} of them since CI failed.\n",
        lesson.issue,
        plain_line(lesson.title, 120),
        lesson.rounds,
        lesson.fixes
    );
    for finding in lesson.findings.iter().filter(|finding| finding.must_be_resolved()).take(MOST_NAMED_CHECKS)
    {
        text += &format!("- {}: {}\n", finding.status.as_str(), plain_line(&finding.title, 160));
    }
    if !lesson.theirs.is_empty() {
        text += &format!(
            "People changed these files themselves: {}.\n",
            plain_line(&lesson.theirs.join(", "), 400)
        );
    }
    text
}

/// Outcome of a review comment on a line of a file.
pub struct RemarkOutcome<'a> {
    pub finding: &'a Finding,
    /// Commit that addresses the review comment; `None` if no commit does.
    pub changed: Option<&'a Oid>,
    /// Whether the reply quotes the remark, because it is the body of a review.
    pub is_quoted: bool,
    pub rehearsal: bool,
}

pub fn remark_reply(card: &RemarkOutcome<'_>) -> OutboundBody {
    let Finding { id, status, answer, title, detail, .. } = card.finding;
    let text = clean(answer.as_deref().unwrap_or_default(), ANSWER_CHARS);
    let text = if text.is_empty() { String::new() } else { format!("\n\n{text}") };
    let what = match card.changed {
        Some(commit) if *status == FindingStatus::Fixed => {
            format!("Changed in `{}`.", commit.short())
        }
        Some(commit) if answer.is_none() => {
            let commit = commit.short();
            format!("The drafter gave no answer to this point. The newest version is in `{commit}`.")
        }
        _ => "Not changed.".to_owned(),
    };
    let open = match status {
        FindingStatus::Open => format!(
            "\n\n{id} stays open. `/must-fix {id}`, `/revise TEXT` that names {id}, or another review insists on it; \
             `/dismiss {id} REASON` accepts the answer."
        ),
        _ => String::new(),
    };
    let quoted: String = format!("{title}\n{detail}")
        .trim()
        .lines()
        .take(MOST_QUOTED_LINES)
        .map(|line| format!("> {}\n", inline_text(line, ANSWER_CHARS)))
        .collect();
    let quoted = if card.is_quoted { quoted + "\n" } else { String::new() };
    OutboundBody::frame(format!("{}{quoted}{what}{text}{open}", rehearsal_banner(card.rehearsal)))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::documents::{edits::FindingDisposition, verdict::FindingSeverity};

    #[test]
    fn review_body_starts_after_the_line_comments() {
        let lines = "- `a.rs:1`: Why?\n";
        let of = |comments: &str, body: &str| {
            let text = review_text(comments, body);
            review_body(&text, !comments.is_empty()).map(str::to_owned)
        };
        assert_eq!(of(lines, " So.\n\nAnd so on. "), Some("So.\n\nAnd so on.".to_owned()));
        assert_eq!((of("", "So."), of(lines, "")), (Some("So.".to_owned()), None));
    }

    #[test]
    fn reply_to_a_declined_remark_says_how_to_insist_and_neutralises_hostile_text() {
        let mut finding = finding("F2", FindingSeverity::High, "a.rs:1", HOSTILE);
        finding.answer = Some(HOSTILE.to_owned());
        let reply = |finding: &Finding, is_quoted| {
            let outcome = RemarkOutcome { finding, changed: None, is_quoted, rehearsal: false };
            remark_reply(&outcome).as_str().to_owned()
        };
        let open = reply(&finding, true);
        assert_inert(&open);
        assert!(open.starts_with("> ") && open.contains("Not changed.\n\n"), "{open}");
        assert!(open.contains("F2 stays open. `/must-fix F2`"), "{open}");
        finding.status = FindingStatus::Deferred;
        let settled = reply(&finding, false);
        assert!(settled.starts_with("Not changed.") && !settled.contains("stays open"), "{settled}");
        let (disposition, why) = (FindingDisposition::Rebutted, HOSTILE.to_owned());
        let replies = [FindingReply { finding: HOSTILE.to_owned(), disposition, why }];
        assert_inert(unchanged_comment(&replies, false).as_str());
        assert!(unchanged_comment(&[], false).as_str().contains("The drafter gave no reason."));
    }
}
