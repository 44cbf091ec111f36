//! What a drafter wants beyond what people approved: the comment that asks them, and what is said of it afterwards.

use super::{GateState, access_name, link, model_waits::format_day_and_time, rehearsal_banner, verdict_sign};
use crate::{
    github::outbound::{OutboundBody, code_block, inline_code},
    types::{Hash, Role, RunId, Timestamp, Verb, Verdict},
};

/// Characters of how the tests differ.
const DIFF_CHARS: usize = 30_000;

#[derive(Debug, Clone)]
pub struct ExceptionCard {
    pub run: RunId,
    /// The files that are wanted; none: other tests are.
    pub paths: Vec<String>,
    /// How those differ from the locked ones.
    pub diff: Option<String>,
    /// What the review says of them.
    pub verdict: Option<Verdict>,
    /// Whether they can be reviewed again.
    pub can_review_again: bool,
    pub state: GateState,
    pub rehearsal: bool,
}

pub fn exception_comment(card: &ExceptionCard) -> OutboundBody {
    let waits = card.state.closing_line().is_none();
    let hand = if waits { "✋ " } else { "" };
    let (headline, why) = match &card.diff {
        None => (
            "The change wants files that the approved spec does not list",
            format!(
                "Its drafter wants these: {}. How they change is shown where you are asked about the change as a whole.",
                card.paths.iter().map(|path| inline_code(path, 200)).collect::<Vec<_>>().join(", ")
            ),
        ),
        Some(diff) => (
            "The drafter of the code wants other tests than those that are locked",
            format!(
                "No draft of its code passed the locked ones. Those that it wants in their place were seen to fail without the \
                 code, and their review says {}. This is how they differ:\n\n{}",
                card.verdict
                    .map_or("nothing".to_owned(), |verdict| format!("{} {verdict}", verdict_sign(verdict))),
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

/// How it stands, and what to do about it.
fn decision_text(card: &ExceptionCard) -> String {
    match &card.state {
        GateState::Waits(line) | GateState::WaitsWithNewLine(line) => format!(
            "Someone with {} allows that, and the run goes on with it:\n\n{}\n\n`/revise TEXT` does not, and sends the code back \
             with TEXT.{}",
            access_name(Role::Write),
            line.block(),
            if card.can_review_again { " `/retry` has them reviewed again." } else { "" }
        ),
        GateState::Answered { verb, by, at } if *verb != Verb::Revise => {
            format!("**Allowed by {}** on {}.", inline_code(by, 60), format_day_and_time(*at))
        }
        over => over.closing_line().unwrap_or_default(),
    }
}

/// For whom it waits too long.
pub fn exception_reminder(card: &ExceptionCard, url: &str) -> OutboundBody {
    OutboundBody::frame(format!(
        "### ⏰ What the drafter wants still waits for a person\n\n{}{}\n\n{}",
        rehearsal_banner(card.rehearsal),
        decision_text(card),
        link("What is asked", url)
    ))
}

/// Who allowed it, as a sentence of the pull request and the report; `document` is what it was about.
pub fn exception_sentence(paths: &[String], document: Hash, by: &str, at: Timestamp) -> String {
    let by = by.replace('`', "'");
    let paths: Vec<String> = paths.iter().map(|path| format!("`{}`", path.replace('`', "'"))).collect();
    match paths.is_empty() {
        false => format!("{}, not listed by the approved spec: `{by}` at {at}.", paths.join(", ")),
        true => format!(
            "The tests of `{}`, in the place of those that were locked before: `{by}` at {at}.",
            document.short()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::messages::ApproveLine;

    #[test]
    fn what_a_drafter_wants_is_inert_and_the_line_to_paste_is_whole() {
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
