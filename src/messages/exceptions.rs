//! Comments about exceptions, which are changes that the drafter requests in addition to the approved spec.

use super::{GateState, access_name, link, model_waits::format_day_and_time, rehearsal_banner, verdict_sign};
use crate::{
    github::outbound::{OutboundBody, code_block, inline_code},
    types::{Hash, Role, RunId, Timestamp, Verb, Verdict},
};

/// Maximum number of characters shown of the diff of the tests.
const DIFF_CHARS: usize = 30_000;

#[derive(Debug, Clone)]
pub struct ExceptionCard {
    pub run: RunId,
    /// Files that the drafter asks to change; empty if the drafter asks for other tests instead.
    pub paths: Vec<String>,
    /// Diff between the locked tests and the requested ones.
    pub diff: Option<String>,
    /// Verdict of the review of the requested tests.
    pub verdict: Option<Verdict>,
    /// Whether the requested tests can be reviewed again.
    pub can_review_again: bool,
    pub state: GateState,
    pub rehearsal: bool,
}

pub fn exception_comment(card: &ExceptionCard) -> OutboundBody {
    let waits = card.state.closing_line().is_none();
    let hand = if waits { "✋ " } else { "" };
    let (headline, why) = match &card.diff {
        None => (
            "The change needs files that the approved spec does not list",
            format!(
                "The drafter asks to change {}. You review these changes later, when you approve the whole change.",
                card.paths.iter().map(|path| inline_code(path, 200)).collect::<Vec<_>>().join(", ")
            ),
        ),
        Some(diff) => (
            "The drafter asks to replace the locked tests",
            format!(
                "No draft of the code passed the locked tests. The new tests fail without the code, as they should. \
                 Review verdict on the new tests: {}. The difference from the locked tests:\n\n{}",
                card.verdict
                    .map_or("none".to_owned(), |verdict| format!("{} {verdict}", verdict_sign(verdict))),
                code_block("diff", diff, DIFF_CHARS)
            ),
        ),
    };
    OutboundBody::frame(format!(
        "### {hand}{headline}\n\n{}{why}\n\n{}\n\n<sub>Run {}</sub>",
        rehearsal_banner(card.rehearsal),
        decision_text(card),
        card.run
    ))
}

/// Returns the state of the request and the command to answer it.
fn decision_text(card: &ExceptionCard) -> String {
    match &card.state {
        GateState::Waits(line) | GateState::WaitsWithNewLine(line) => format!(
            "To allow this, someone with {} writes:\n\n{}\n\nTo refuse, write `/revise TEXT`: the code goes back to \
             the drafter with TEXT.{}",
            access_name(Role::Write),
            line.block(),
            if card.can_review_again { " `/retry` reviews the new tests again." } else { "" }
        ),
        GateState::Answered { verb, by, at } if *verb != Verb::Revise => {
            format!("**Allowed by {}** on {}.", inline_code(by, 60), format_day_and_time(*at))
        }
        over => over.closing_line().unwrap_or_default(),
    }
}

/// Returns the reminder about an open request.
pub fn exception_reminder(card: &ExceptionCard, url: &str) -> OutboundBody {
    OutboundBody::frame(format!(
        "### ⏰ The drafter's request still waits for a person\n\n{}{}\n\n{}",
        rehearsal_banner(card.rehearsal),
        decision_text(card),
        link("Request", url)
    ))
}

/// Returns the sentence for the pull request and the report that says what was allowed, by whom and when. `document` is
/// the hash of the document with the new tests.
pub fn exception_sentence(paths: &[String], document: Hash, by: &str, at: Timestamp) -> String {
    let (by, at) = (by.replace('`', "'"), format_day_and_time(at));
    let paths: Vec<String> = paths.iter().map(|path| format!("`{}`", path.replace('`', "'"))).collect();
    match paths.is_empty() {
        false => {
            format!(
                "`{by}` allowed a change of {}, which the approved spec does not list ({at}).",
                paths.join(", ")
            )
        }
        true => format!(
            "`{by}` allowed the tests of version `{}` in place of the locked ones ({at}).",
            document.short()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::messages::ApproveLine;

    #[test]
    fn exception_comment_neutralises_paths_and_never_cuts_the_approve_line() {
        let ways = vec![format!("+src/{}.rs", "x".repeat(150))];
        let line = ApproveLine::approve("scope", Hash::digest(b"x"), &ways);
        let text = line.texts().concat();
        let card = ExceptionCard {
            can_review_again: true,
            run: RUN,
            paths: vec![HOSTILE.to_owned()],
            diff: None,
            verdict: None,
            state: GateState::Waits(line),
            rehearsal: false,
        };
        let asked = exception_comment(&card);
        assert!(asked.as_str().contains(&format!("\n{text}\n")) && text.len() > 170, "{}", asked.as_str());
        assert_inert(asked.as_str());
        let diff = exception_comment(&ExceptionCard { diff: Some(HOSTILE.to_owned()), ..card });
        assert_inert(diff.as_str());
    }
}
