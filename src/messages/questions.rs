//! The comment that asks people questions before the draft is written, with their answers.

use super::{access_name, model_waits::format_day_and_time, rehearsal_banner};
use crate::{
    github::outbound::{OutboundBody, inline_text},
    types::{Role, RunId, Timestamp, count},
};

const QUESTION_CHARS: usize = 700;
const ANSWER_CHARS: usize = 500;

/// A question and its answer.
#[derive(Debug, Clone)]
pub struct QuestionView {
    pub text: String,
    pub default: String,
    /// Text of the answer, and its author; `None` if the question has no answer yet.
    pub answer: Option<(String, String)>,
}

#[derive(Debug, Clone)]
pub struct QuestionsCard {
    pub run: RunId,
    pub questions: Vec<QuestionView>,
    pub until: Timestamp,
    pub state: QuestionsState,
    pub rehearsal: bool,
}

/// State of the questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionsState {
    Waits,
    Answered,
    TimedOut,
    /// The run ended. Contains the reason in our own words.
    Ended(String),
}

pub fn questions_comment(card: &QuestionsCard) -> OutboundBody {
    let open = card.questions.iter().filter(|question| question.answer.is_none()).count();
    let total = count(card.questions.len(), "question", "questions");
    let headline = match card.state {
        QuestionsState::Waits => format!("### ✋ {total} before the draft is written"),
        _ => format!("### {total} before the draft was written"),
    };
    let until = format_day_and_time(card.until);
    let how = match &card.state {
        QuestionsState::Waits => format!(
            "The issue's author or someone with {} answers in a comment: `/answer 1: … 2: …`. `/answer 1: default` \
             accepts the default below. After {until}, the defaults apply to open questions.",
            access_name(Role::Write)
        ),
        QuestionsState::Answered => "**All questions are answered.**".to_owned(),
        QuestionsState::TimedOut => format!(
            "**Time ran out on {until}**: {}.",
            count(open, "question gets its default", "questions get their defaults")
        ),
        QuestionsState::Ended(why) => {
            format!(
                "**Nobody needs to answer this any more**: {}.",
                inline_text(why, 500).trim_end_matches('.')
            )
        }
    };
    let line = |(question, number): (&QuestionView, usize)| {
        let (text, default) =
            (inline_text(&question.text, QUESTION_CHARS), inline_text(&question.default, QUESTION_CHARS));
        let reply = match &question.answer {
            Some((text, by)) => format!("**{}**: {}", inline_text(by, 60), inline_text(text, ANSWER_CHARS)),
            None if card.state == QuestionsState::TimedOut => format!("**By default**: {default}"),
            None => format!("Default: {default}"),
        };
        format!("{number}. {text}\n   - {reply}")
    };
    let lines: Vec<String> = card.questions.iter().zip(1..).map(line).collect();
    let sub = format!(
        "<sub>Run {} · answers go to the models verbatim; answering does not start a new run</sub>",
        card.run
    );
    let parts = [headline, how, lines.join("\n"), sub];
    OutboundBody::frame(rehearsal_banner(card.rehearsal).to_owned() + &parts.join("\n\n"))
}

/// Returns the reply to an `/answer` command with unknown question numbers.
pub fn unknown_question_reply(numbers: &[usize], there_are: usize) -> OutboundBody {
    let all: Vec<String> = numbers.iter().map(usize::to_string).collect();
    let questions = count(there_are, "question", "questions");
    OutboundBody::frame(format!("There is no question {}; this issue has {questions}.", all.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn questions_comment_neutralises_hostile_text() {
        let hostile = QuestionView {
            text: HOSTILE.into(),
            default: HOSTILE.into(),
            answer: Some((HOSTILE.into(), HOSTILE.into())),
        };
        let mut card = QuestionsCard {
            run: RUN,
            questions: vec![hostile],
            until: Timestamp(0),
            state: QuestionsState::Waits,
            rehearsal: false,
        };
        for standing in [
            QuestionsState::Waits,
            QuestionsState::Answered,
            QuestionsState::TimedOut,
            QuestionsState::Ended(HOSTILE.into()),
        ] {
            card.state = standing;
            assert_inert(questions_comment(&card).as_str());
        }
        let one = unknown_question_reply(&[7, 9], 1);
        assert_eq!(one.as_str(), "There is no question 7 or 9; this issue has 1 question.");
    }
}
