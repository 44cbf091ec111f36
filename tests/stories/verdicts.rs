//! Stories about reviewer responses. Only well-formed responses are verdicts, only APPROVED passes the gate, and the
//! gate explains every other response.

use std::fmt::Write as _;

use countersign::{
    documents::verdict::{self, ReviewAnswerError},
    engine::RunViewStatus,
};
use serde::Deserialize;

use crate::{
    script::{Script, approved, design, review},
    world::{Setting, World, all},
};

#[derive(Deserialize)]
struct Table {
    answer: Vec<Answer>,
}

#[derive(Deserialize)]
pub(crate) struct Answer {
    name: String,
    /// Expected verdict, or the reason why the response is not a verdict.
    pub(crate) ends: String,
    pub(crate) text: String,
}

/// Returns the responses from the fixture, and generated responses that are too long for the fixture.
pub(crate) fn answers() -> Vec<Answer> {
    let table: Table = toml::from_str(include_str!("../../fixtures/verdicts/answers.toml")).unwrap();
    let long = |name: &str, ends: &str, text: String| Answer { name: name.into(), ends: ends.into(), text };
    let good = approved().to_string();
    let (nested, filler) = ("[".repeat(10_000) + &"]".repeat(10_000), "APPROVED ".repeat(240_000));
    let in_it = |field: &str, by: &str| good.replace(field, by);
    let generated = [
        long("two megabytes of prose", "no object", filler.clone()),
        long("two megabytes of reason", "too long", in_it("A reason in one sentence.", &filler)),
        long("two megabytes after it", "no object", format!("{good}{filler}")),
        long("nested", "no object", nested.clone()),
        long("nested in it", "no object", in_it("\"findings\":[]", &format!("\"findings\":{nested}"))),
        long("more findings than are read", "too long", {
            let many = vec![crate::script::finding("Another", None); 41];
            review("REVISE", &many, &[]).to_string()
        }),
    ];
    // Approvals come last, because they resolve the findings of the others.
    let mut answers: Vec<_> = generated.into_iter().chain(table.answer).collect();
    answers.sort_by_key(|answer| answer.ends == "APPROVED");
    answers
}

const VERDICTS: [&str; 3] = ["APPROVED", "REVISE", "BLOCKED"];

/// Parses a response. Returns its verdict, or a short name of its error.
pub(crate) fn read(text: &str) -> &'static str {
    let nonce = "k3x9q2mz";
    match verdict::parse(&text.replace("{{nonce}}", nonce), nonce) {
        Ok(review) => VERDICTS.iter().find(|word| **word == review.verdict.to_string()).unwrap(),
        Err(ReviewAnswerError::NotOneObject) => "no object",
        Err(ReviewAnswerError::Shape(_)) => "shape",
        Err(ReviewAnswerError::Nonce) => "nonce",
        Err(ReviewAnswerError::NoFinding(_)) => "no finding",
        Err(ReviewAnswerError::ApprovedThoughBlocking) => "blocking",
        Err(ReviewAnswerError::Empty(_)) => "empty",
        Err(ReviewAnswerError::TooLong { .. }) => "too long",
    }
}

#[test]
fn only_well_formed_reviewer_responses_parse_as_verdicts() {
    let answers = answers();
    let wrong = answers.iter().fold(String::new(), |mut wrong, Answer { name, ends, text }| {
        // The parser alone cannot see that an approval ignores an open finding.
        let expected = if ends == "silent" { "APPROVED" } else { ends.as_str() };
        let read = read(text);
        if read != expected {
            let _ = writeln!(wrong, "{name}: {read} instead of {expected}");
        }
        wrong
    });
    assert!(answers.len() > 70 && wrong.is_empty(), "{wrong}");
}

/// Names of the responses that are tested unless all cases run, because testing all responses takes minutes.
const SAMPLE: &[&str] = &[
    "the word in a quote of the draft",
    "two megabytes of reason",
    "two verdicts that differ",
    "another nonce",
    "approving with a blocking finding",
    "a blocking finding at a place that does not exist",
    "BLOCKED, with the word in its reason",
    "approving in silence over an open blocking finding",
    "in form, in another language, with space around it",
];

/// Number of responses tested per run. The first responses, which open findings, and the approval at the end do not
/// count.
const ANSWERS_PER_RUN: usize = 16;

#[tokio::test]
#[ignore = "takes long"]
async fn review_passes_only_when_approved_and_other_verdicts_are_explained_at_the_gate() {
    let (approve, rest): (Vec<_>, Vec<_>) =
        answers().into_iter().partition(|answer| answer.ends == "APPROVED");
    let (open, mut rest): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|answer| VERDICTS.contains(&answer.ends.as_str()));
    let worst = |answer: &&Answer| SAMPLE.contains(&answer.name.as_str());
    rest.retain(|answer| all() || worst(&answer));
    for answers in rest.chunks(ANSWERS_PER_RUN) {
        assert_only_last_passes(
            &open.iter().chain(answers).chain(approve.iter().filter(worst)).collect::<Vec<_>>(),
        )
        .await;
    }
}

/// Makes the reviewer give these responses in one run, one per round. Asserts that only the last one passes the gate.
async fn assert_only_last_passes(answers: &[&Answer]) {
    let mut script = Script::default().drafts(&design());
    for (n, answer) in answers.iter().enumerate() {
        if n > 0 {
            let before =
                if n == 1 { "The goal of a real".into() } else { format!("The goal {} of a real", n - 1) };
            script = script.edits(&before, &format!("The goal {n} of a real"));
        }
        // A malformed answer is requested once more.
        let times = if VERDICTS.contains(&answer.ends.as_str()) { 1 } else { 2 };
        script = (0..times).fold(script, |script, _| script.reviews_as_text(&answer.text));
    }
    let setting = Setting {
        as_files: true,
        script: Some(script.toml()),
        toml: "[lld]\nmax_rounds = 1\n".into(),
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    for (n, Answer { name, ends, .. }) in answers.iter().enumerate() {
        if n > 0 {
            w.comment("max", "/revise look once more").await;
        }
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate();
        let (verdict, line) = match ends.as_str() {
            ends if VERDICTS.contains(&ends) => (ends, "**The reviewer's reason**"),
            _ => ("INCONCLUSIVE", "The reviewer's answer was not a valid verdict, twice."),
        };
        assert!(gate.contains(&format!("{verdict}: the design waits for a person")), "{name}: {gate}");
        assert!(gate.contains(line), "{name}: {gate}");
        assert_eq!(w.lines_to_paste().is_empty(), ends != "APPROVED", "{name}: {gate}");
        if ends != "APPROVED" {
            let subject = w.run().await.unwrap().gate.unwrap().spec.subject;
            w.comment("max", &format!("/approve lld {subject}")).await;
            w.stands(RunViewStatus::Asking).await;
            for comment in w.bots() {
                w.look_at(comment.id);
            }
        }
    }
    w.approved_by("max").await;
    let accepted = w.commits().iter().filter(|subject| subject.starts_with("docs: accept")).count();
    assert_eq!(accepted, 1, "{:?}", w.commits());
    for comment in w.bots() {
        w.look_at(comment.id);
    }
    w.pull();
}
