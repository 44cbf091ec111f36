//! Answers a question about the code in one comment, or posts the reason why the question is not answered.

use std::time::Duration;

use super::{RouteRunState, decline};
use crate::{
    documents::routing::{CodeAnswer, CodeLocation},
    engine::{RunCompletion, StepError, Transition},
    git::CommitEntry,
    messages::{self, AnswerCard, CodeLink, DeclineReason},
    rounds::{
        BaseCommit, StepContext, answer_code_question, git_error, load_text, post_announcement, require_state,
    },
    types::Timestamp,
};

/// Maximum size, in bytes, of a file in which we look up code locations. Models are not shown larger files.
const FILE_BYTES: u64 = 1 << 20;

/// Minimum time between two answered questions of one person.
const QUESTION_INTERVAL: Duration = Duration::from_secs(3600);

pub(super) async fn answer_question(
    s: &mut RouteRunState,
    cx: &StepContext,
) -> Result<Transition<super::RouteStep>, StepError> {
    let (id, by) = (cx.run().id, cx.run().trigger.actor.id);
    let turn = cx.once("turn", |_| async {
        let db = cx.tools().store.repository_database(id.repo).await.map_err(anyhow::Error::new)?;
        Ok(is_due_for_answer(&db.question_times(by, id).await.map_err(anyhow::Error::new)?))
    });
    if !turn.await? {
        return decline(cx, DeclineReason::TooSoon).await;
    }
    let (issue, base) = (require_state(&s.issue)?, require_state(&s.base)?);
    let request = load_text(cx, require_state(&s.request)?).await?;
    let said = match answer_code_question(cx, require_state(&s.policy)?, issue, base, &request).await? {
        Ok(said) => said,
        Err(why) => return decline(cx, DeclineReason::NoAnswer(why)).await,
    };
    let card = answer_card(cx, base, said).await?;
    let (url, _) = post_announcement(cx, "answered", &messages::route_answer_reply(&card)).await?;
    Ok(Transition::Done(RunCompletion {
        summary: "a question, which was answered".to_owned(),
        url: Some(url),
    }))
}

/// Returns whether the last of these questions is to be answered. The times are in the order in which the questions
/// were read. An answered question blocks all questions of the following hour, so of two concurrent questions only one
/// is answered.
fn is_due_for_answer(read_at: &[Timestamp]) -> bool {
    let mut last: Option<Timestamp> = None;
    let mut answered = true;
    for at in read_at {
        answered = last.is_none_or(|last| at.since(last) >= QUESTION_INTERVAL);
        last = if answered { Some(*at) } else { last };
    }
    answered
}

/// Builds the answer. Code locations in the answer become links if they exist at the commit.
async fn answer_card(cx: &StepContext, base: &BaseCommit, said: CodeAnswer) -> Result<AnswerCard, StepError> {
    let desk = cx.tools();
    let (snapshot, name) = (desk.snapshot(cx, base).await?, desk.repository(cx).await?.name().clone());
    let named = |path: &str| said.places.iter().any(|place| place.path == path);
    let read = |entry: &&CommitEntry| entry.mode.is_file() && entry.size <= FILE_BYTES && named(&entry.path);
    let files: Vec<_> = snapshot.entries().iter().filter(read).collect();
    let texts = snapshot.read_texts(&files).await.map_err(git_error)?;
    let at = format!("{name}/blob/{}", base.commit);
    let line = |place: &CodeLocation| {
        let (_, text) = texts.iter().find(|(path, _)| *path == place.path)?;
        if !place.is_within(text.lines().count() as u64) {
            return None;
        }
        let lines = (place.from > 0).then_some((place.from, place.to));
        let mut web = desk.github.web_url().clone();
        web.path_segments_mut().ok()?.pop_if_empty().extend(at.split('/')).extend(place.path.split('/'));
        web.set_fragment(lines.map(|(from, to)| format!("L{from}-L{to}")).as_deref());
        Some(CodeLink { path: place.path.clone(), lines, url: web.to_string(), what: place.what.clone() })
    };
    let places: Vec<_> = said.places.iter().filter_map(line).collect();
    let dropped = said.places.len() - places.len();
    Ok(AnswerCard { answer: said.answer, places, dropped, commit: base.commit.short().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_question_per_hour_is_answered() {
        let minutes = |all: &[i64]| all.iter().map(|at| Timestamp(at * 60_000)).collect::<Vec<_>>();
        for (asked, answered) in [
            (&[0][..], true),
            (&[0, 0], false),
            (&[0, 59], false),
            (&[0, 59, 60], true),
            (&[0, 60, 61], false),
        ] {
            assert_eq!(is_due_for_answer(&minutes(asked)), answered, "{asked:?}");
        }
    }
}
