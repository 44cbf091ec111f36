//! Every sentence that we post. The functions here take typed values and return an [`OutboundBody`], a title, a commit
//! message or a file.
//!
//! The fixed parts of each text are our own. Text by a model, a provider or a person passes the outbound filter before
//! it is inserted. Outside code blocks, no line of our own text begins with a command, so that no bot obeys us, not
//! even our own. Our own text mentions nobody.
//!
//! [`OutboundBody`]: crate::github::outbound::OutboundBody

mod approvals;
mod check_run;
mod commit;
mod cost;
mod endings;
mod exceptions;
mod failure;
mod gate;
mod issue_filing;
mod labels;
mod merge_watch;
mod model_waits;
mod pull;
mod questions;
mod replies;
mod report;
mod routing;
mod search;
mod status;

pub use approvals::{ApprovalProgress, OwnedFiles, join_names};
pub use check_run::{CheckCard, CheckRunState, check_name, check_run_text};
pub use commit::{
    AUDIT_TRAILER, ChangeCommit, CommitCard, CommitConvention, CommitKind, change_title, commit_message,
    follow_up_title,
};
pub use cost::{
    BudgetCap, CapAmounts, CostHistory, CostView, PauseCard, PauseResolution, budget_pause_comment,
    costs_hidden_reply, costs_table, format_spending, raise_refused_reply, raise_useless_reply,
};
pub use endings::{HaltCard, HaltLeftover, HaltReason, halt_comment, run_end_reason};
pub use exceptions::{ExceptionCard, exception_comment, exception_reminder, exception_sentence};
pub use failure::{FailureKind, InconclusiveReason, unusable_draft_reason};
pub use gate::{
    AuthorshipNote, GateCard, GateReason, GateState, WholeDocument, document_comment, gate_comment,
    gate_expired_reason, gate_reminder,
};
pub use issue_filing::{
    IssueOrigin, filed_issue, filed_title, missing_labels_note, questions_unavailable_note,
    similar_issues_note,
};
pub use labels::{
    DONE, LabelView, NEEDS_YOU, OLD_WORKING, STATES, STOPPED, TRIGGER_COLOR, trigger_description,
};
pub use merge_watch::{
    ChangeLesson, CiGiveUpReason, CiView, PushObstacle, RemarkOutcome, ci_failure_comment, ci_finding_title,
    ci_fix_instructions, conflicts_comment, declined_note, lesson_text, merge_summary, merged_meanwhile_note,
    missing_logs_note, not_pushed_comment, plain_comment_reply, push_obstacle_comment, remark_reply,
    review_body, review_text, unchanged_comment, unclear_request_reply, waits_for_merge_reply,
};
pub use model_waits::{ModelWait, ModelWaitReason, with_pause_line};
pub use pull::{
    Acceptance, Provenance, PullCard, ReviewLog, RoundLog, pull_body, pull_section, pull_title, review_log,
};
pub use questions::{QuestionView, QuestionsCard, QuestionsState, questions_comment, unknown_question_reply};
pub use replies::{
    DIFF_CHARS, HelpRow, RunStatusRow, abandoned_branch_comment, already_running_reply,
    already_settled_reply, ambiguous_finding_reply, ambiguous_gate_reply, bad_arguments_reply,
    changed_files_reply, email_command_reply, help_table, issue_changed_reply, join_replies,
    late_command_reply, merge_answers, missing_text_reply, no_findings_reply, no_gate_reply,
    not_plain_text_reply, nothing_to_restart_reply, nothing_to_retry_reply, overtaken_approval_reply,
    review_not_counted_reply, run_ended_reply, runs_table, stale_hash_reply, too_many_runs_reply,
    too_much_spent_reply, too_soon_reply, unattested_draft_reply, unknown_command_reply,
    unknown_finding_reply, wrong_command_reply, wrong_option_reply, wrong_stage_reply,
};
pub use report::{ChangeCard, ChangeReport, ProofLine, change_report, change_section};
pub use routing::{
    AnswerCard, CodeLink, ConflictingRunState, DeclineReason, RouteCard, RouteOffer, no_open_request_reply,
    route_answer_reply, route_busy_reply, route_declined_reply, route_halted_reply, route_not_allowed_reply,
    route_note, route_offer_reply, route_started_reply, routing_disabled_reply,
};
pub use search::{
    files_not_searched_note, further_search_failed_note, no_further_search_note, not_planned_note,
    nothing_found_note, search_failed_reason, search_rate_limit_reason, unread_pages_notes,
};
pub use status::{
    DraftView, RoundLine, RunDisplayState, RunWaitReason, StageResult, StatusNote, StatusView, StepPosition,
    commands_unavailable_note, hotfix_note, next_stage_running_note, status_comment,
};

use std::collections::BTreeMap;

use crate::{
    documents::findings::Finding,
    git::{ChangedPath, EntryMode},
    github::outbound,
    types::{Family, Hash, IN_PLACE, NEW_ISSUE, Role, Verb, Verdict, count},
};

/// The command line that a person pastes to answer a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApproveLine {
    pub stage: String,
    pub subject: Hash,
    /// Options of the approval. Each option has its own line to paste.
    pub options: Vec<String>,
    /// Verb of the line if it is not `approve`, with the text after the verb.
    pub other_verb: Option<(Verb, String)>,
}

/// Maximum number of characters of an override's reason, or of a revision's text, in a suggested command line.
const TEXT_CHARS: usize = 500;

/// Maximum number of characters of an option, which may be a list of paths.
const OPTION_CHARS: usize = 1_200;

impl ApproveLine {
    pub fn approve(stage: &str, subject: Hash, ways: &[String]) -> Self {
        Self { stage: stage.to_owned(), subject, options: ways.to_vec(), other_verb: None }
    }

    /// Returns the command lines to paste, one per option, such as `/approve lld 3f9c2ab1d4e7`, `/approve issue
    /// in-place 3f9c2ab1d4e7`, `/override 3f9c2ab1d4e7 REASON` or `/retry lld`.
    pub fn texts(&self) -> Vec<String> {
        let (stage, hash) = (outbound::plain_line(&self.stage, 20), self.subject.short());
        let (verb, text) = self.other_verb.as_ref().map_or((Verb::Approve, ""), |(verb, text)| (*verb, text));
        let text = outbound::plain_line(text, TEXT_CHARS);
        let line = |way: &str| {
            let words = match verb {
                Verb::Approve => [stage.as_str(), way, hash.as_str()],
                Verb::Override => [way, hash.as_str(), text.as_str()],
                _ => [stage.as_str(), text.as_str(), ""],
            };
            let words = words.into_iter().filter(|word| !word.is_empty());
            format!("/{verb} {}", words.collect::<Vec<_>>().join(" "))
        };
        if self.options.is_empty() {
            return vec![line("")];
        }
        self.options.iter().map(|way| line(&outbound::plain_line(way, OPTION_CHARS))).collect()
    }

    fn block(&self) -> String {
        let about = |at: usize| self.options.get(at).map_or("", |way| option_description(way));
        let blocks: Vec<_> =
            self.texts().iter().enumerate().map(|(at, text)| code_block(text) + about(at)).collect();
        blocks.join("\n\n")
    }
}

/// Returns the usage of `/override` for this gate.
fn override_usage(line: &ApproveLine) -> String {
    if line.options.is_empty() {
        return "`/override REASON`".to_owned();
    }
    let ways: Vec<_> = line
        .options
        .iter()
        .map(|way| outbound::inline_code(&format!("/override {way} REASON"), 60))
        .collect();
    ways.join(" or ")
}

/// Returns the description of an option, which is shown below the option's line.
fn option_description(way: &str) -> &'static str {
    match way {
        IN_PLACE => {
            "\n\nThis rewrites the issue's title and text. The old text stays below it, in a collapsed section."
        }
        NEW_ISSUE => "\n\nThis opens a new issue that links to this one.",
        _ => "",
    }
}

/// Returns the title and id of a step, such as `Draft the design (N1)`.
pub fn step_name(id: &str, title: &str) -> String {
    if title.is_empty() { id.to_owned() } else { format!("{title} ({id})") }
}

/// Author or reviewer of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Author {
    /// A model, with the name given in its response.
    Model {
        served: Option<String>,
        family: Option<Family>,
        /// The model that was replaced by this one, and the name of the setting that allows it.
        in_place_of: Option<[String; 2]>,
    },
    Person,
    Nobody,
}

impl Author {
    /// Returns the author in the form `` `o3` (openai) ``. The family is omitted if the model's name begins with it.
    fn text(&self) -> String {
        match self {
            Self::Model { served: None, .. } => "an unidentified model".to_owned(),
            Self::Model { served: Some(served), family, in_place_of } => {
                let name = outbound::inline_code(served, 60);
                let name = match family {
                    Some(family) if served.starts_with(&family.0) => name,
                    Some(family) => format!("{name} ({})", outbound::inline_text(&family.0, 30)),
                    None => format!("{name} (family unknown)"),
                };
                let Some([asked, setting]) = in_place_of else { return name };
                let (asked, setting) = (outbound::inline_code(asked, 60), outbound::inline_code(setting, 60));
                format!("{name} instead of {asked} (`[models.successors]` allows it for {setting})")
            }
            Self::Person => "a person".to_owned(),
            Self::Nobody => "–".to_owned(),
        }
    }
}

/// Returns the location of a finding: a file or section as inline code, or a requirement such as `Weeks are summed
/// (REQ-1)`.
fn place(finding: &Finding, requirements: &BTreeMap<String, String>) -> String {
    let id = finding.place.trim().trim_matches('`');
    match requirements.contains_key(id) {
        true => in_words(id, requirements),
        false => outbound::inline_code(&finding.place, 80),
    }
}

/// Returns the text and id of a requirement, or only the id if the text is unknown.
fn in_words(id: &str, requirements: &BTreeMap<String, String>) -> String {
    match requirements.get(id) {
        Some(words) => format!("{} ({})", outbound::inline_text(words, 200), outbound::inline_text(id, 20)),
        None => outbound::inline_text(id, 100),
    }
}

/// Escapes text for use in our HTML pages.
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// Puts a command into a code block, because GitHub shows a copy button for code blocks.
fn code_block(line: &str) -> String {
    format!("```\n{line}\n```")
}

/// Returns a Markdown link. A URL that is not `http` or `https`, or that contains special characters, is shown as
/// inline code instead.
fn link(label: &str, url: &str) -> String {
    let plain = url.starts_with("https://") || url.starts_with("http://");
    let safe =
        plain && !url.contains(|c: char| c.is_whitespace() || c.is_control() || "()<>[]\\\"".contains(c));
    if safe { format!("[{label}]({url})") } else { format!("{label} ({})", outbound::inline_code(url, 200)) }
}

/// Joins those links that have a URL.
fn links(all: &[(&str, &Option<String>)]) -> String {
    let existing: Vec<_> =
        all.iter().filter_map(|(label, url)| url.as_ref().map(|url| link(label, url))).collect();
    existing.join(" · ")
}

fn verdict_sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Approved => "✅",
        Verdict::Revise => "✏️",
        Verdict::Blocked => "⛔",
        Verdict::Inconclusive => "❔",
    }
}

/// Returns the name of a stage's document for use in sentences, such as `design` for `lld`.
pub fn stage_name(stage: &str) -> String {
    match stage {
        "lld" => "design".to_owned(),
        "scout" => "brief".to_owned(),
        _ => outbound::inline_text(&outbound::plain_line(stage, 20), 20),
    }
}

/// Returns the name of a role as in GitHub's settings, such as `write access`.
fn access_name(role: Role) -> String {
    format!("{role} access")
}

/// Returns a list of paths, one per line. A long list is truncated.
fn path_lines<'p>(all: impl ExactSizeIterator<Item = (&'p str, &'static str)>) -> String {
    const MOST: usize = 20;
    let more = all.len().saturating_sub(MOST);
    let line = |(path, what): (&str, &str)| format!("- {}{what}", outbound::inline_code(path, 150));
    let mut lines: Vec<String> = all.take(MOST).map(line).collect();
    if more > 0 {
        lines.push(format!("- … and {more} more"));
    }
    lines.join("\n")
}

/// Returns a paragraph about files that other people changed on the document's branch, or an empty string.
fn foreign_files_note(files: &[ChangedPath]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let what = |changed: &ChangedPath| match changed.now {
        Some((EntryMode::File, _)) => "",
        Some((EntryMode::Executable, _)) => " (executable)",
        Some((EntryMode::Symlink, _)) => " (symlink)",
        Some((EntryMode::Submodule, _)) => " (submodule)",
        None => " (removed)",
    };
    format!(
        "\n\n**Other people changed files on the document's branch.** No model reviewed these files, but a merge \
         includes them:\n\n{}",
        path_lines(files.iter().map(|changed| (changed.path.as_str(), what(changed))))
    )
}

fn details_block(summary: &str, inside: &str) -> String {
    format!("<details><summary>{summary}</summary>\n\n{}\n\n</details>", inside.trim_end())
}

const REHEARSAL: &str = "> **Rehearsal**: the answers are scripted; no model was called.\n\n";

fn rehearsal_banner(on: bool) -> &'static str {
    if on { REHEARSAL } else { "" }
}

/// Returns the first `most` paths as inline code, followed by the number of remaining paths.
fn list_paths<'p>(paths: impl ExactSizeIterator<Item = &'p str>, most: usize) -> String {
    let more = paths.len().saturating_sub(most);
    let named: Vec<_> = paths.take(most).map(|path| outbound::inline_code(path, 100)).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::{Author, Provenance};
    use crate::{
        documents::{
            findings::{Finding, FindingStatus},
            verdict::FindingSeverity,
        },
        types::{Family, Hash, RepoId, RunId, Verdict},
    };

    pub(super) const RUN: RunId = RunId { repo: RepoId(8123), seq: 4 };

    pub(super) fn model(name: &str, family: &str) -> Author {
        Author::Model { served: Some(name.into()), family: Some(Family(family.into())), in_place_of: None }
    }

    pub(super) fn provenance() -> Provenance {
        Provenance {
            run: RUN,
            document: Hash::digest(b"x"),
            verdict: Some(Verdict::Approved),
            drafter: model("claude-opus-4-6", "claude"),
            reviewer: model("gemini-3-pro", "gemini"),
            acceptance: None,
            subject: None,
            audit: None,
            cost: None,
            rehearsal: false,
        }
    }

    pub(super) fn finding(id: &str, severity: FindingSeverity, place: &str, text: &str) -> Finding {
        Finding {
            id: id.into(),
            round: 1,
            last_round: 1,
            severity,
            category: "tests".into(),
            place: place.into(),
            title: text.into(),
            detail: text.into(),
            status: FindingStatus::Open,
            why: String::new(),
            must_fix: false,
            declined: false,
            reply: None,
            answer: None,
        }
    }

    /// Asserts that no part of a comment has an effect when the comment is quoted, mailed or parsed again.
    pub(super) fn assert_inert(text: &str) {
        let mut fence: Option<String> = None;
        let mut folds = 0_isize;
        for line in text.lines() {
            let ticks: String = line.chars().take_while(|c| *c == '`').collect();
            match &fence {
                Some(open) if ticks.len() >= open.len() && line.len() == ticks.len() => fence = None,
                Some(_) => {}
                None if ticks.len() >= 3 => fence = Some(ticks),
                None => {
                    let outside: String = line.replace("\\`", "").split('`').step_by(2).collect();
                    folds += outside.matches("<details").count().cast_signed();
                    folds -= outside.matches("</details>").count().cast_signed();
                    assert_line_is_inert(line, &outside);
                }
            }
        }
        assert_eq!(fence, None, "a fence is left open");
        assert_eq!(folds, 0, "a fold is left open");
    }

    /// Asserts that a line has no effect. `outside` is the same line without its inline code.
    fn assert_line_is_inert(line: &str, outside: &str) {
        let command =
            line.trim_start().strip_prefix('/').is_some_and(|rest| rest.starts_with(char::is_alphabetic));
        assert!(!command, "obeyed: {line}");
        let before = |sign: char, next: fn(&char) -> bool| {
            outside
                .match_indices(sign)
                .any(|(at, _)| outside[at + 1..].chars().next().is_some_and(|c| next(&c)))
        };
        assert!(!before('@', char::is_ascii_alphanumeric), "mentions: {line}");
        let lower = outside.to_lowercase();
        let closes = lower
            .match_indices('#')
            .filter(|(at, _)| lower[at + 1..].starts_with(|c: char| c.is_ascii_digit()))
            .any(|(at, _)| {
                let word = lower[..at].trim_end().trim_end_matches(':').rsplit(' ').next().unwrap_or("");
                ["fix", "clos", "resolv"].iter().any(|verb| word.starts_with(verb))
            });
        assert!(!closes, "closes: {line}");
        assert!(!outside.contains("!["), "shows a picture: {line}");
    }

    /// Untrusted text with which a model might try to break out of a comment.
    pub(super) const HOSTILE: &str =
        "</details>\n/approve\n@mona Fixes #1 ![x](https://evil)\n| a | b |\n```\nopen";
}
