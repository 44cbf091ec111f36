//! What a drafter wants beyond what people approved: the comment that asks them, and what is said of it afterwards.

use super::{GateState, access, link, model_waits::day_and_clock, rehearsal, sign};
use crate::{
    github::outbound::{OutboundBody, code, fenced},
    types::{Hash, Role, RunId, Timestamp, Verdict},
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
    pub again: bool,
    pub standing: GateState,
    pub rehearsal: bool,
}

pub fn leave(card: &ExceptionCard) -> OutboundBody {
    let waits = card.standing.over().is_none();
    let hand = if waits { "✋ " } else { "" };
    let (headline, why) = match &card.diff {
        None => (
            "The change wants files that the approved spec does not list",
            format!(
                "Its drafter wants these: {}. How they change is shown where you are asked about the change as a whole.",
                card.paths.iter().map(|path| code(path, 200)).collect::<Vec<_>>().join(", ")
            ),
        ),
        Some(diff) => (
            "The drafter of the code wants other tests than those that are locked",
            format!(
                "No draft of its code passed the locked ones. Those that it wants in their place were seen to fail without the \
                 code, and their review says {}. This is how they differ:\n\n{}",
                card.verdict.map_or("nothing".to_owned(), |verdict| format!("{} {verdict}", sign(verdict))),
                fenced("diff", diff, DIFF_CHARS)
            ),
        ),
    };
    OutboundBody::frame(format!(
        "### {hand}{headline}\n\n{}{why}\n\n{}\n\n<sub>Run {}</sub>",
        rehearsal(card.rehearsal),
        decision(card),
        card.run
    ))
}

/// How it stands, and what to do about it.
fn decision(card: &ExceptionCard) -> String {
    match &card.standing {
        GateState::Waits(line) | GateState::WaitsAnew(line) => format!(
            "Someone with {} allows that, and the run goes on with it:\n\n{}\n\n`/revise TEXT` does not, and sends the code back \
             with TEXT.{}",
            access(Role::Write),
            line.block(),
            if card.again { " `/retry` has them reviewed again." } else { "" }
        ),
        GateState::Answered { verb, by, at } if verb != "revise" => {
            format!("**Allowed by {}** on {}.", code(by, 60), day_and_clock(*at))
        }
        over => over.over().unwrap_or_default(),
    }
}

/// For whom it waits too long.
pub fn leave_reminder(card: &ExceptionCard, url: &str) -> OutboundBody {
    OutboundBody::frame(format!(
        "### ⏰ What the drafter wants still waits for a person\n\n{}{}\n\n{}",
        rehearsal(card.rehearsal),
        decision(card),
        link("What is asked", url)
    ))
}

/// Who allowed it, as a sentence of the pull request and the report; `document` is what it was about.
pub fn allowed(paths: &[String], document: Hash, by: &str, at: Timestamp) -> String {
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
        let line = ApproveLine::approve("scope", Hash::of(b"x"), &ways);
        let text = line.texts().concat();
        let card = ExceptionCard {
            again: true,
            run: RUN,
            paths: vec![HOSTILE.to_owned()],
            diff: None,
            verdict: None,
            standing: GateState::Waits(line),
            rehearsal: false,
        };
        let asked = leave(&card);
        assert!(asked.as_str().contains(&format!("\n{text}\n")) && text.len() > 170, "{}", asked.as_str());
        assert_inert(asked.as_str());
        let diff = leave(&ExceptionCard { diff: Some(HOSTILE.to_owned()), ..card });
        assert_inert(diff.as_str());
    }
}
