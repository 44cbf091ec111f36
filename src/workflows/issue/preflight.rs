//! N1: what is looked at before anything is drafted. The rubric costs nothing and comes first; what it leaves open, and what
//! contradicts itself, is asked of people, a few questions at most.

use crate::{
    documents::{
        conflicts::Conflict,
        issue::{Gap, criteria, gaps},
    },
    engine::StepError,
    messages, publication,
    rounds::{Cx, text_of},
    stage::{self, Exit, Known, Question, Stage, Visit},
};

/// Who is asked more answers none of it.
const MOST_QUESTIONS: usize = 5;

pub(super) const RUBRIC: &str = "rubric";
pub(super) const RUBRIC_HEADING: &str = "What the issue as it was opened does not say";

pub(super) async fn preflight(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::analyze(s, v).await?;
    if !s.fresh() {
        // Whoever sent it back said what they want.
        return Ok(Exit::Pass);
    }
    let issue = s.issue()?.clone();
    let body = text_of(cx, &issue.body).await?;
    let tree = cx.tools().tree(cx, s.base()?).await?;
    let gaps = gaps(&issue.title, &body, &tree);
    labels(s, cx).await?;
    stage::similar(s, cx, issue.number, &format!("{}\n{body}", issue.title)).await?;
    let criteria: Vec<String> = criteria(&body).into_iter().map(|criterion| criterion.text).collect();
    let mut conflicts = Vec::new();
    if criteria.len() > 1 {
        match stage::conflicts(s, v, &criteria).await? {
            Ok(Some(found)) => conflicts = found,
            Ok(None) => s.say(messages::conflicts_unknown()),
            Err(exit) => return Ok(exit),
        }
    } else {
        stage::at_work(s, v).await?;
    }
    let known = rubric(&gaps, &conflicts);
    if !known.is_empty() {
        let (kind, heading) = (RUBRIC.to_owned(), RUBRIC_HEADING.to_owned());
        s.know(Known { kind, heading, text: cx.put(known.as_bytes()).await?, left: true });
    }
    let asked = asked(gaps, conflicts);
    if asked.is_empty() {
        return Ok(Exit::Pass);
    }
    s.ask(asked);
    Ok(Exit::Unclear)
}

/// For the models.
fn rubric(gaps: &[Gap], conflicts: &[Conflict]) -> String {
    let gap = |gap: &Gap| format!("- {}\n", gap.said);
    let conflict = |c: &Conflict| {
        let Conflict { criterion_a, criterion_b, diverging_situation, .. } = c;
        format!("- “{criterion_a}” and “{criterion_b}” cannot both hold where {diverging_situation}\n")
    };
    gaps.iter().map(gap).chain(conflicts.iter().map(conflict)).collect()
}

/// What contradicts itself comes first: nobody but people can settle it.
fn asked(gaps: Vec<Gap>, conflicts: Vec<Conflict>) -> Vec<Question> {
    let conflict = |c: Conflict| {
        let Conflict { criterion_a, criterion_b, diverging_situation, question, default } = c;
        let text = format!("“{criterion_a}” or “{criterion_b}”, where {diverging_situation}? {question}");
        Question { text, default }
    };
    let gap = |gap: Gap| gap.question.map(|(text, default)| Question { text, default });
    conflicts.into_iter().map(conflict).chain(gaps.into_iter().filter_map(gap)).take(MOST_QUESTIONS).collect()
}

/// Says which labels of the settings are not there. We make none: what a repository calls things is its own.
async fn labels(s: &mut Stage, cx: &Cx) -> Result<(), StepError> {
    let wanted = s.policy()?.filing.as_ref().map(|filing| filing.labels.clone()).unwrap_or_default();
    let lacking = cx
        .once("labels", |_| async {
            let (there, repo) = (publication::labels_there(cx, &wanted).await?, &wanted);
            Ok(repo.iter().filter(|label| !there.contains(label)).cloned().collect::<Vec<String>>())
        })
        .await?;
    if !lacking.is_empty() {
        s.say(messages::labels_lacking(&lacking));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::issue::Part;

    #[test]
    fn what_contradicts_itself_is_asked_first_and_five_at_most() {
        let gap = |part| Gap { part, said: "x".into(), question: Some(("A gap?".into(), "No.".into())) };
        let conflict = Conflict {
            criterion_a: "stay the same".into(),
            criterion_b: "be sorted".into(),
            diverging_situation: "two lines are swapped".into(),
            question: "Which?".into(),
            default: "The first.".into(),
        };
        let gaps: Vec<Gap> = [Part::Criteria, Part::Scope, Part::Signal, Part::Determinism].map(gap).to_vec();
        let all = asked(gaps.clone(), vec![conflict.clone(), conflict.clone()]);
        assert_eq!(all.len(), 5);
        assert_eq!(all[0].text, "“stay the same” or “be sorted”, where two lines are swapped? Which?");
        assert_eq!(all[2].text, "A gap?");
        assert!(rubric(&gaps, &[conflict]).contains("cannot both hold where two lines are swapped"));
    }
}
