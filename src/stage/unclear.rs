//! What an issue leaves open, asked of people before anything is drafted: questions with numbers, a default each, and a
//! time after which the defaults hold. Answers are data: they are told to the models and start nothing.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{Before, Exit, Known, Stage, Visit, at_work, held, repository, show, still_wanted};
use crate::{
    commands,
    documents::{
        open_questions::OpenQuestion,
        visible::{gathered, visible},
    },
    engine::{Approvers, GateSpec, StepError, Who},
    messages::{self, Answering, QuestionView, QuestionsCard, State as Shown},
    publication,
    rounds::{self, announce, need, text_of},
    types::{Hash, Role, Timestamp},
};

/// The verb that answers.
const ANSWER: &str = "answer";

/// What takes the default.
const DEFAULT: &str = "default";

/// Characters of one answer that models are told and people see again.
const ANSWER_CHARS: usize = 2000;

/// Something only a person knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    pub text: String,
    /// What holds where nobody answers.
    pub default: String,
}

/// What people are asked, and what they said.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Questions {
    asked: Vec<Question>,
    /// By the number of the question, from 1: the newest, and who said it.
    answers: BTreeMap<usize, (String, String)>,
    posted: Option<Posted>,
}

/// The comment that asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Posted {
    url: String,
    shown_at: Timestamp,
    visit: u64,
    until: Timestamp,
    /// Nobody is asked any more.
    over: bool,
}

impl Questions {
    pub(super) fn new(asked: Vec<Question>) -> Self {
        Self { asked, answers: BTreeMap::new(), posted: None }
    }

    /// Where and until when answers are waited for.
    pub(super) fn waits(&self) -> Option<(String, Timestamp)> {
        let posted = self.posted.as_ref().filter(|posted| !posted.over)?;
        Some((posted.url.clone(), posted.until))
    }

    fn hear(&mut self, text: &str, by: &str) -> Vec<usize> {
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

    /// For the models: what was asked and what holds.
    fn told(&self) -> String {
        let line = |(question, number): (&Question, usize)| {
            let holds = match self.answers.get(&number) {
                Some((text, by)) => format!("Answer by {by}: {text}"),
                None => format!("Nobody answered, so this holds: {}", question.default),
            };
            format!("{number}. {}\n   {holds}\n", question.text)
        };
        self.asked.iter().zip(1..).map(line).collect()
    }
}

/// What the issue leaves to a person besides what is `asked` already; an exit if the model cannot be asked now. `None`: no
/// answer could be used.
pub async fn open_questions(
    s: &mut Stage,
    v: &Visit<'_>,
    asked: &str,
) -> Result<Result<Option<Vec<OpenQuestion>>, Exit>, StepError> {
    let cx = v.cx;
    if let Some(exit) = held::still(s, v).await? {
        return Ok(Err(exit));
    }
    at_work(s, v).await?;
    let (issue, policy) = (need(&s.issue)?.clone(), need(&s.policy)?.clone());
    let body = text_of(cx, &issue.body).await?;
    let shown = repository(s, v).await?;
    let before = s.round.clone();
    match rounds::open_questions(cx, &mut s.round, &policy, (&issue, &body, &shown), asked).await {
        Ok(found) => Ok(Ok(found)),
        Err(why) => held::unanswered(s, v, Before::Questions, before, why).await.map(Err),
    }
}

/// Asks, and goes on with the answers: at once where all are there, and otherwise when the time is over.
pub async fn questions(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    still_wanted(s, cx).await?;
    let mut questions = need(&s.questions)?.clone();
    let Some(posted) = questions.posted.clone() else {
        return ask(s, v, questions).await;
    };
    let Some(answer) = cx.answer() else {
        // Time only goes on: what is said here by the clock, a later attempt says as well.
        if cx.clock().now() < posted.until {
            return Ok(Exit::Ask(gate(s, v, &questions, &posted)?));
        }
        return over(s, v, questions, Answering::Over).await;
    };
    let text = visible(&answer.text);
    s.hidden = gathered(s.hidden.iter().chain(&text.hidden));
    let unknown = questions.hear(&text.text, &answer.by.login);
    if !unknown.is_empty() {
        let body = messages::no_such_question(&unknown, questions.asked.len());
        announce(cx, &format!("unknown-{}", answer.cause), &body).await?;
    }
    if questions.answers.len() == questions.asked.len() {
        return over(s, v, questions, Answering::Answered).await;
    }
    s.questions = Some(questions.clone());
    restate(s, v, Answering::Waits).await?;
    Ok(Exit::Ask(gate(s, v, &questions, &posted)?))
}

async fn ask(s: &mut Stage, v: &Visit<'_>, mut questions: Questions) -> Result<Exit, StepError> {
    let cx = v.cx;
    let hours = need(&s.policy)?.filing.as_ref().map_or(24, |filing| filing.answer_hours);
    let until = cx.now("asked-at").await?.plus(Duration::from_secs(u64::from(hours) * 3600));
    let card = card(s, v, &questions, until, Answering::Waits);
    let (url, shown_at) = announce(cx, publication::GATE, &messages::questions(&card)).await?;
    let posted = Posted { url, shown_at, visit: cx.visit(), until, over: false };
    let spec = gate(s, v, &questions, &posted)?;
    questions.posted = Some(posted);
    s.questions = Some(questions);
    show::turn(s, v, Shown::NeedsYou).await?;
    Ok(Exit::Ask(spec))
}

async fn over(
    s: &mut Stage,
    v: &Visit<'_>,
    mut questions: Questions,
    standing: Answering,
) -> Result<Exit, StepError> {
    if let Some(posted) = &mut questions.posted {
        posted.over = true;
    }
    let text = v.cx.put(questions.told().as_bytes()).await?;
    s.questions = Some(questions);
    restate(s, v, standing).await?;
    let heading = "What was asked about the issue, and what people answered".to_owned();
    s.know(Known { kind: "answers".to_owned(), heading, text, left: true });
    Ok(Exit::Pass)
}

/// Says in the comment that asks how it stands now; nothing where there is none.
pub(super) async fn restate(s: &Stage, v: &Visit<'_>, standing: Answering) -> Result<(), StepError> {
    let Some(questions) = &s.questions else { return Ok(()) };
    let Some(posted) = &questions.posted else { return Ok(()) };
    let body = messages::questions(&card(s, v, questions, posted.until, standing));
    let key = v.cx.answer().map_or("asked-over".to_owned(), |answer| format!("asked-{}", answer.cause));
    publication::restate(v.cx, &key, posted.visit, &body).await
}

fn card(
    s: &Stage,
    v: &Visit<'_>,
    questions: &Questions,
    until: Timestamp,
    standing: Answering,
) -> QuestionsCard {
    let view = |(question, number): (&Question, usize)| QuestionView {
        text: question.text.clone(),
        default: question.default.clone(),
        answer: questions.answers.get(&number).cloned(),
    };
    let questions = questions.asked.iter().zip(1..).map(view).collect();
    let rehearsal = show::rehearsal(s, v.cx);
    QuestionsCard { run: v.cx.run().id, questions, until, standing, rehearsal }
}

fn gate(s: &Stage, v: &Visit<'_>, questions: &Questions, posted: &Posted) -> Result<GateSpec, StepError> {
    let people = vec![need(&s.issue)?.author.id];
    let asked = serde_json::to_vec(&questions.asked).map_err(anyhow::Error::new)?;
    Ok(GateSpec {
        stage: v.doc.about().stage.to_owned(),
        subject: Hash::of(&asked),
        verbs: vec![(ANSWER.to_owned(), Who::Either { people, role: Some(Role::Write) })],
        shown_at: posted.shown_at,
        approvers: Approvers::default(),
        expires: Some(posted.until),
        ways: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_answer_holds_and_the_rest_goes_by_its_default() {
        let question = |text: &str| Question { text: text.into(), default: "As it is.".into() };
        let mut questions = Questions::new(vec![question("Which?"), question("How many?"), question("Why?")]);
        let mut says = |text: &str| questions.hear(text, "ada");
        assert_eq!(says("1: this 9: what 0: x"), Vec::<usize>::new());
        assert_eq!(says("1: that\n9: what"), [9]);
        assert_eq!(says("2: default"), Vec::<usize>::new());
        assert_eq!(
            questions.told(),
            "1. Which?\n   Answer by ada: that\n2. How many?\n   Answer by ada: As it is.\n3. Why?\n   Nobody answered, so \
             this holds: As it is.\n"
        );
        questions.hear(&format!("3: {}", "x".repeat(70_000)), "ada");
        assert!(questions.told().len() < 3000);
    }
}
