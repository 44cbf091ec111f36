//! Questions about gaps in the issue, asked before the first draft. Each question has a number and a default answer,
//! which is used if nobody answers in time. Answers are untrusted input: they go into the prompts and cannot trigger
//! anything.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    BackgroundText, StageCall, StageState, StepResult, StepVisit, load_repository_context,
    require_still_wanted, show_working, views, waiting_steps,
};
use crate::{
    commands,
    documents::{
        hidden_text::{merge_hidden, visible_text},
        open_questions::OpenQuestion,
    },
    engine::{AllowedResponders, Approvers, GateSpec, StepError},
    messages::{self, QuestionView, QuestionsCard, QuestionsState, RunDisplayState as Shown},
    publication,
    rounds::{self, load_text, post_announcement, require_state},
    types::{Hash, Role, Timestamp, Verb},
};

/// Word in an answer that accepts the suggested default.
const DEFAULT: &str = "default";

/// Maximum number of characters kept of an answer.
const ANSWER_CHARS: usize = 2000;

/// A question that only a person can answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssueQuestion {
    pub text: String,
    /// Answer that is used if nobody answers the question.
    pub default: String,
}

/// The questions that were asked, and the answers so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct IssueQuestions {
    asked: Vec<IssueQuestion>,
    /// Newest answer to each question and the author of the answer, by question number. Question numbers start at 1.
    answers: BTreeMap<usize, (String, String)>,
    posted: Option<QuestionsComment>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct QuestionsComment {
    url: String,
    shown_at: Timestamp,
    visit: u64,
    until: Timestamp,
    /// Whether the period for answers is over.
    over: bool,
}

impl IssueQuestions {
    pub(super) fn new(asked: Vec<IssueQuestion>) -> Self {
        Self { asked, answers: BTreeMap::new(), posted: None }
    }

    /// Returns the URL of the comment with the questions and the deadline, while the questions still accept answers.
    pub(super) fn open_until(&self) -> Option<(String, Timestamp)> {
        let posted = self.posted.as_ref().filter(|posted| !posted.over)?;
        Some((posted.url.clone(), posted.until))
    }

    fn record_answers(&mut self, text: &str, by: &str) -> Vec<usize> {
        let mut unknown = Vec::new();
        for (number, text) in commands::parse_answers(text).unwrap_or_default() {
            if !(1..=self.asked.len()).contains(&number) {
                unknown.push(number);
            } else if text.eq_ignore_ascii_case(DEFAULT) {
                self.answers.insert(number, (self.asked[number - 1].default.clone(), by.to_owned()));
            } else {
                let text = text.chars().take(ANSWER_CHARS).collect();
                self.answers.insert(number, (text, by.to_owned()));
            }
        }
        unknown
    }

    fn prompt_text(&self) -> String {
        let line = |(question, number): (&IssueQuestion, usize)| {
            let holds = match self.answers.get(&number) {
                Some((text, by)) => format!("Answer by {by}: {text}"),
                None => format!("Nobody answered, so this holds: {}", question.default),
            };
            format!("{number}. {}\n   {holds}\n", question.text)
        };
        self.asked.iter().zip(1..).map(line).collect()
    }
}

/// Asks the model for questions that the issue leaves open and that are not in `asked`. Returns `None` if the model's
/// response was unusable. Returns `Err` with a step result if the model cannot be called now.
pub async fn find_open_questions(
    s: &mut StageState,
    v: &StepVisit<'_>,
    asked: &str,
) -> Result<Result<Option<Vec<OpenQuestion>>, StepResult>, StepError> {
    let cx = v.cx;
    if let Some(exit) = waiting_steps::check_pending_wait(s, v).await? {
        return Ok(Err(exit));
    }
    show_working(s, v).await?;
    let (issue, policy) = (require_state(&s.issue)?.clone(), require_state(&s.policy)?.clone());
    let body = load_text(cx, &issue.body).await?;
    let shown = load_repository_context(s, v).await?;
    let before = s.round.clone();
    match rounds::find_open_questions(cx, &mut s.round, &policy, (&issue, &body, &shown), asked).await {
        Ok(found) => Ok(Ok(found)),
        Err(why) => waiting_steps::handle_no_answer(s, v, StageCall::Questions, before, why).await.map(Err),
    }
}

/// Posts the questions and waits for answers. The run continues when all questions are answered or the deadline has
/// passed.
pub async fn ask_questions(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    require_still_wanted(s, cx).await?;
    let mut questions = require_state(&s.questions)?.clone();
    let Some(posted) = questions.posted.clone() else {
        return post_questions(s, v, questions).await;
    };
    let Some(answer) = cx.answer() else {
        // Time only moves forward, so a later attempt makes the same decision.
        if cx.clock().now() < posted.until {
            return Ok(StepResult::Ask(questions_gate(s, v, &questions, &posted)?));
        }
        return close_questions(s, v, questions, QuestionsState::TimedOut).await;
    };
    let text = visible_text(&answer.text);
    s.hidden = merge_hidden(s.hidden.iter().chain(&text.hidden));
    let unknown = questions.record_answers(&text.text, &answer.by.login);
    if !unknown.is_empty() {
        let body = messages::unknown_question_reply(&unknown, questions.asked.len());
        post_announcement(cx, &format!("unknown-{}", answer.cause), &body).await?;
    }
    if questions.answers.len() == questions.asked.len() {
        return close_questions(s, v, questions, QuestionsState::Answered).await;
    }
    s.questions = Some(questions.clone());
    update_questions_comment(s, v, QuestionsState::Waits).await?;
    Ok(StepResult::Ask(questions_gate(s, v, &questions, &posted)?))
}

async fn post_questions(
    s: &mut StageState,
    v: &StepVisit<'_>,
    mut questions: IssueQuestions,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let hours = require_state(&s.policy)?.filing.as_ref().map_or(24, |filing| filing.answer_hours);
    let until = cx.now("asked-at").await?.plus(Duration::from_secs(u64::from(hours) * 3600));
    let card = questions_card(s, v, &questions, until, QuestionsState::Waits);
    let (url, shown_at) =
        post_announcement(cx, publication::GATE_COMMENT, &messages::questions_comment(&card)).await?;
    let posted = QuestionsComment { url, shown_at, visit: cx.visit(), until, over: false };
    let spec = questions_gate(s, v, &questions, &posted)?;
    questions.posted = Some(posted);
    s.questions = Some(questions);
    views::show_state(s, v, Shown::NeedsYou).await?;
    Ok(StepResult::Ask(spec))
}

async fn close_questions(
    s: &mut StageState,
    v: &StepVisit<'_>,
    mut questions: IssueQuestions,
    standing: QuestionsState,
) -> Result<StepResult, StepError> {
    if let Some(posted) = &mut questions.posted {
        posted.over = true;
    }
    let text = v.cx.put(questions.prompt_text().as_bytes()).await?;
    s.questions = Some(questions);
    update_questions_comment(s, v, standing).await?;
    let heading = "What was asked about the issue, and what people answered".to_owned();
    s.add_background(BackgroundText { kind: "answers".to_owned(), heading, text, left: true });
    Ok(StepResult::Pass)
}

pub(super) async fn update_questions_comment(
    s: &StageState,
    v: &StepVisit<'_>,
    standing: QuestionsState,
) -> Result<(), StepError> {
    let Some(questions) = &s.questions else { return Ok(()) };
    let Some(posted) = &questions.posted else { return Ok(()) };
    let body = messages::questions_comment(&questions_card(s, v, questions, posted.until, standing));
    let key = v.cx.answer().map_or("asked-over".to_owned(), |answer| format!("asked-{}", answer.cause));
    publication::update_gate_comment(v.cx, &key, posted.visit, &body).await
}

fn questions_card(
    s: &StageState,
    v: &StepVisit<'_>,
    questions: &IssueQuestions,
    until: Timestamp,
    standing: QuestionsState,
) -> QuestionsCard {
    let view = |(question, number): (&IssueQuestion, usize)| QuestionView {
        text: question.text.clone(),
        default: question.default.clone(),
        answer: questions.answers.get(&number).cloned(),
    };
    let questions = questions.asked.iter().zip(1..).map(view).collect();
    let rehearsal = views::is_rehearsal(s, v.cx);
    QuestionsCard { run: v.cx.run().id, questions, until, state: standing, rehearsal }
}

fn questions_gate(
    s: &StageState,
    v: &StepVisit<'_>,
    questions: &IssueQuestions,
    posted: &QuestionsComment,
) -> Result<GateSpec, StepError> {
    let people = vec![require_state(&s.issue)?.author.id];
    let asked = serde_json::to_vec(&questions.asked).map_err(anyhow::Error::new)?;
    Ok(GateSpec {
        stage: v.doc.info().stage.to_owned(),
        subject: Hash::digest(&asked),
        verbs: vec![(Verb::Answer, AllowedResponders::Either { people, role: Some(Role::Write) })],
        shown_at: posted.shown_at,
        approvers: Approvers::default(),
        expires: Some(posted.until),
        options: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_answer_to_a_question_wins_and_unanswered_questions_get_their_default() {
        let question = |text: &str| IssueQuestion { text: text.into(), default: "As it is.".into() };
        let mut questions =
            IssueQuestions::new(vec![question("Which?"), question("How many?"), question("Why?")]);
        let mut says = |text: &str| questions.record_answers(text, "ada");
        assert_eq!(says("1: this 9: what 0: x"), Vec::<usize>::new());
        assert_eq!(says("1: that\n9: what"), [9]);
        assert_eq!(says("2: default"), Vec::<usize>::new());
        assert_eq!(
            questions.prompt_text(),
            "1. Which?\n   Answer by ada: that\n2. How many?\n   Answer by ada: As it is.\n3. Why?\n   Nobody answered, so \
             this holds: As it is.\n"
        );
        questions.record_answers(&format!("3: {}", "x".repeat(70_000)), "ada");
        assert!(questions.prompt_text().len() < 3000);
    }
}
