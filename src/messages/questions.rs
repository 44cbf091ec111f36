//! What people are asked before anything is drafted, and what they said.

use super::{access_name, model_waits::format_day_and_time, rehearsal_banner};
use crate::{
    github::outbound::{OutboundBody, inline_text},
    types::{Role, RunId, Timestamp, count},
};

const QUESTION_CHARS: usize = 700;
const ANSWER_CHARS: usize = 500;

/// A question with what was said to it.
#[derive(Debug, Clone)]
pub struct QuestionView {
    pub text: String,
    pub default: String,
    /// What, and who said it.
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

/// Are they still waited for?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionsState {
    Waits,
    /// All are answered.
    Answered,
    /// The time is over.
    TimedOut,
    /// The run ended; why, in a sentence of ours.
    Ended(String),
}

pub fn questions_comment(card: &QuestionsCard) -> OutboundBody {
    let open = card.questions.iter().filter(|question| question.answer.is_none()).count();
    let asked = count(card.questions.len(), "question", "questions");
    let headline = match card.state {
        QuestionsState::Waits => format!("### ✋ {asked} before this is drafted"),
        _ => format!("### {asked} before this was drafted"),
    };
    let until = format_day_and_time(card.until);
    let how = match &card.state {
        QuestionsState::Waits => format!(
            "Whoever opened the issue, or someone with {}, answers in a comment: `/answer 1: … 2: …`. `/answer 1: default` \
             takes what is said below. What is not answered by {until} goes by its default.",
            access_name(Role::Write)
        ),
        QuestionsState::Answered => "**All are answered.** Nobody needs to answer them any more.".to_owned(),
        QuestionsState::TimedOut => format!(
            "**The time was over on {until}**: {} by the default.",
            count(open, "question goes", "questions go")
        ),
        QuestionsState::Ended(why) => {
            format!(
                "**Nobody needs to answer this any more**: {}.",
                inline_text(why, 500).trim_end_matches('.')
            )
        }
    };
    let line = |(question, number): (&QuestionView, usize)| {
        let (asked, default) =
            (inline_text(&question.text, QUESTION_CHARS), inline_text(&question.default, QUESTION_CHARS));
        let said = match &question.answer {
            Some((text, by)) => format!("**{}**: {}", inline_text(by, 60), inline_text(text, ANSWER_CHARS)),
            None if card.state == QuestionsState::TimedOut => format!("**By default**: {default}"),
            None => format!("Otherwise: {default}"),
        };
        format!("{number}. {asked}\n   - {said}")
    };
    let lines: Vec<String> = card.questions.iter().zip(1..).map(line).collect();
    let sub = format!(
        "<sub>Run {} · answers are told to the models as they are, and start nothing</sub>",
        card.run
    );
    let parts = [headline, how, lines.join("\n"), sub];
    OutboundBody::frame(rehearsal_banner(card.rehearsal).to_owned() + &parts.join("\n\n"))
}

/// A number of which there is no question.
pub fn unknown_question_reply(numbers: &[usize], there_are: usize) -> OutboundBody {
    let all: Vec<String> = numbers.iter().map(usize::to_string).collect();
    let questions = count(there_are, "question", "questions");
    OutboundBody::frame(format!(
        "There is no question {}: {questions} can be answered here.",
        all.join(" or ")
    ))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn hostile_text_in_questions_does_nothing() {
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
        assert_eq!(one.as_str(), "There is no question 7 or 9: 1 question can be answered here.");
    }
}
