//! After the pull request: what CI says of it, what stands in its way, and how it ended.

use serde::{Deserialize, Serialize};

use super::{code_block, rehearsal_banner};
use crate::{
    documents::findings::{Finding, FindingStatus},
    github::outbound::{OutboundBody, clean, inline_code, inline_text, plain_line},
    types::{IssueNo, Oid, count},
};

/// Checks that are named.
const MOST_NAMED_CHECKS: usize = 10;

/// Characters of what the drafter says in a thread.
const ANSWER_CHARS: usize = 2_000;

/// What CI says of the pushed commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CiView {
    /// These checks are at work.
    Pending(Vec<String>),
    Passed(Oid),
    /// These checks.
    Failed(Vec<String>),
}

/// Why nothing more is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiGiveUpReason {
    /// The same fails on the commit that the change is made on.
    FailsOnBase,
    /// The drafter was told, and left the code as it is.
    LeftByDrafter,
    /// So many fixes in all.
    FixLimit(u32),
    ConsecutiveFixLimit(u32),
    /// The same checks failed so often after a fix for them.
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

/// What a change waits for that was pushed; for the status comment.
pub(super) fn merge_wait_line(ci: Option<&CiView>, conflicts: bool, on_top: bool, unknown: bool) -> String {
    let ci = match ci {
        _ if on_top => {
            " Others committed on top of what was pushed; what CI says of that is theirs to see to."
                .to_owned()
        }
        None => String::new(),
        Some(CiView::Pending(checks)) => format!(" CI is at work on it: {}.", list_checks(checks)),
        Some(CiView::Passed(commit)) => format!(" CI passed on `{}`.", commit.short()),
        Some(CiView::Failed(checks)) => format!(" CI failed: {}.", list_checks(checks)),
    };
    let unknown = if unknown {
        " Of some checks on this commit GitHub does not tell us how they went, or that they ran for this repository: those count \
         neither way, and CI is not said to have passed beside them."
    } else {
        ""
    };
    let conflicts = if conflicts { " It cannot be merged as it is: there are conflicts." } else { "" };
    format!(
        "**Waits for the merge.**{ci}{unknown}{conflicts} Failing CI, `/revise TEXT` and a review by somebody with write access start work on it \
         again."
    )
}

/// What the drafter is asked for; not for people.
pub fn ci_fix_instructions() -> String {
    "CI failed on the pushed change. Which checks, and what they said, is among the material below. Mend the code so that they \
     pass; where it is right and they fail for another reason, change nothing and answer the finding that they are by why."
        .to_owned()
}

/// The drafter does without logs of so many checks; for the status comment.
pub fn missing_logs_note(checks: usize, commit: &Oid) -> String {
    format!(
        "The log of {} that failed on {} could not be had from GitHub, so the drafter is told only what the check itself says.",
        count(checks, "job", "jobs"),
        commit.short()
    )
}

/// A finding's title. Which checks they are stands among what CI said: their names are anybody's words.
pub fn ci_finding_title(checks: usize) -> String {
    format!("CI fails on what was pushed, in {}", count(checks, "check", "checks"))
}

pub fn ci_failure_comment(why: CiGiveUpReason, checks: &[String], commit: &Oid) -> OutboundBody {
    let why = match why {
        CiGiveUpReason::FailsOnBase => {
            "The same fails on the commit that the change was made on, so it is no fault of the change, and nothing is tried."
                .to_owned()
        }
        CiGiveUpReason::LeftByDrafter => {
            "The drafter was told what they say and left the code as it is: it holds that to be right. They may fail by chance; run \
             them again to see."
                .to_owned()
        }
        CiGiveUpReason::FixLimit(n) => format!("There were {n} fixes of this pull request, and no more are tried."),
        CiGiveUpReason::ConsecutiveFixLimit(n) => format!("{n} fixes in a row did not make it pass, and no more are tried."),
        CiGiveUpReason::RepeatedFailure(n) => {
            format!("The same failed again after each of {n} fixes for it, and no more are tried.")
        }
    };
    OutboundBody::frame(format!(
        "### ❌ CI fails on `{}`\n\n{}.\n\n{why} Mend it on the branch, or say what is to be done:\n\n{}\n\n`/stop` ends the run, \
         and what was pushed stays.",
        commit.short(),
        list_checks(checks),
        code_block("/revise TEXT")
    ))
}

pub fn conflicts_comment(branch: &str, base: &str) -> OutboundBody {
    let (branch, base) = (inline_code(branch, 100), inline_code(base, 100));
    OutboundBody::frame(format!(
        "### ✋ The pull request cannot be merged as it is\n\n{base} and {branch} changed the same lines. Merge {base} into \
         {branch} and settle the conflicts there; whoever merges decides, and no model is asked."
    ))
}

/// A further change is left, for this reason.
pub fn not_pushed_comment(why: &str) -> OutboundBody {
    OutboundBody::frame(format!(
        "### ✋ The further change is not pushed\n\n{} What is on the pull request stays as it is. Once that is mended on the \
         default branch, say again what is to be done:\n\n{}",
        clean(why, 1000),
        code_block("/revise TEXT")
    ))
}

/// What keeps a further change from the branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PushObstacle {
    /// Somebody changed this file, which is one of the change.
    Changed(String),
    /// Somebody rewrote this branch.
    Rewritten(String),
    /// The base was merged into this branch, and nothing was tried with that.
    Updated { branch: String, base: String },
    /// In words for people.
    Other(String),
}

/// Somebody asked for a change, or CI did, and the branch does not allow one.
pub fn push_obstacle_comment(why: &PushObstacle) -> OutboundBody {
    let said = match why {
        PushObstacle::Changed(path) => format!(
            "Somebody changed {path} on the branch since it was pushed, and a further change would go over that. It is theirs \
             now: go on there by hand, or take their commit back and say again what is to be done."
        ),
        PushObstacle::Rewritten(branch) => format!(
            "Somebody rewrote {branch}, and what was pushed is not on it any more. It is theirs now: go on there by hand, or put \
             the branch back and say again what is to be done."
        ),
        PushObstacle::Updated { branch, base } => format!(
            "Somebody merged {base} into {branch} since it was pushed, and what would be pushed is tried without that. It is \
             theirs now: go on there by hand."
        ),
        PushObstacle::Other(why) => why.clone(),
    };
    // Only there another branch is begun, and nobody's work is under what is built anew.
    let anew = match why {
        PushObstacle::Rewritten(_) => {
            format!(
                " To have the change built anew on a branch of its own:\n\n{}",
                code_block("/restart implement")
            )
        }
        _ => String::new(),
    };
    OutboundBody::frame(format!(
        "### ✋ Nothing is changed on the pull request\n\n{}\n\nThe run goes on waiting for the merge.{anew}",
        inline_text(&said, 600)
    ))
}

pub fn merge_summary(commit: &str) -> String {
    if commit.is_empty() { "merged".to_owned() } else { format!("merged as {commit}") }
}

pub fn merged_meanwhile_note() -> String {
    "It was merged while a further change was at work, and that was not pushed".to_owned()
}

/// What is said to a word that starts or passes something, where a change waits for its merge.
pub fn waits_for_merge_reply(command: &str) -> OutboundBody {
    OutboundBody::frame(format!(
        "{} finds nothing to do: the change is on its pull request and waits for the merge. `/revise TEXT` has it changed, \
         `/restart implement` begins it anew, and `/stop` ends the run.",
        inline_code(&format!("/{command}"), 40)
    ))
}

/// What came of a change that was pushed.
pub struct ChangeLesson<'a> {
    pub issue: IssueNo,
    pub title: &'a str,
    pub merged: bool,
    pub rounds: u32,
    /// Of what CI said.
    pub fixes: u32,
    pub findings: &'a [Finding],
    /// Files that people changed on top.
    pub theirs: &'a [String],
}

/// The same for later drafters, who are told it as anybody's words.
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

/// What came of a remark at a line.
pub struct RemarkOutcome<'a> {
    pub finding: &'a Finding,
    /// The commit that came of it, if one did.
    pub changed: Option<&'a Oid>,
    pub rehearsal: bool,
}

pub fn remark_reply(card: &RemarkOutcome<'_>) -> OutboundBody {
    let Finding { status, answer, .. } = card.finding;
    let said = clean(answer.as_deref().unwrap_or_default(), ANSWER_CHARS);
    let said = if said.is_empty() { String::new() } else { format!("\n\n{said}") };
    let what = match card.changed {
        Some(commit) if *status == FindingStatus::Fixed => {
            format!("Changed in `{}`.", commit.short())
        }
        _ => "Not changed.".to_owned(),
    };
    OutboundBody::frame(format!("{}{what}{said}", rehearsal_banner(card.rehearsal)))
}
