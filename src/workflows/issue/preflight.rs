//! N1: what is looked at before anything is drafted. The rubric costs nothing and comes first. Then a small model reads the idea
//! and the code. What either of them finds that only a person can decide is asked, a few questions at most.

use crate::{
    documents::{
        issue::{RubricGap, gaps},
        open_questions::{MOST_QUESTIONS, OpenQuestion},
    },
    engine::StepError,
    messages, publication,
    rounds::{StepContext, text_of},
    stage::{self, BackgroundText, IssueQuestion, StageState, StepResult, StepVisit},
};

pub(super) const RUBRIC: &str = "rubric";
pub(super) const RUBRIC_HEADING: &str = "What the issue as it was opened does not say";

pub(super) async fn preflight(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::analyze(s, v).await?;
    if !s.fresh() {
        // Whoever sent it back said what they want.
        return Ok(StepResult::Pass);
    }
    let issue = s.issue()?.clone();
    let body = text_of(cx, &issue.body).await?;
    let tree = cx.tools().tree(cx, s.base()?).await?;
    let gaps = gaps(&issue.title, &body, &tree);
    labels(s, cx).await?;
    stage::similar(s, cx, issue.number, &format!("{}\n{body}", issue.title)).await?;
    let by_code: String =
        gaps.iter().flat_map(|gap| &gap.question).map(|(text, _)| format!("- {text}\n")).collect();
    let open = match stage::open_questions(s, v, &by_code).await? {
        Ok(Some(found)) => found,
        Ok(None) => {
            s.say(messages::questions_unknown());
            Vec::new()
        }
        Err(exit) => return Ok(exit),
    };
    let known: String = gaps.iter().map(|gap| format!("- {}\n", gap.said)).collect();
    if !known.is_empty() {
        let (kind, heading) = (RUBRIC.to_owned(), RUBRIC_HEADING.to_owned());
        s.know(BackgroundText { kind, heading, text: cx.put(known.as_bytes()).await?, left: true });
    }
    let asked = asked(gaps, open);
    if asked.is_empty() {
        return Ok(StepResult::Pass);
    }
    s.ask(asked);
    Ok(StepResult::Unclear)
}

/// What a model asks comes first: code asks the same of every issue.
fn asked(gaps: Vec<RubricGap>, open: Vec<OpenQuestion>) -> Vec<IssueQuestion> {
    let open = open.into_iter().map(|OpenQuestion { quote, question, default }| {
        let text = format!("“{quote}”: {question}");
        IssueQuestion { text, default }
    });
    let gap = |gap: RubricGap| gap.question.map(|(text, default)| IssueQuestion { text, default });
    open.chain(gaps.into_iter().filter_map(gap)).take(MOST_QUESTIONS).collect()
}

/// Says which labels of the settings are not there. We make none: what a repository calls things is its own.
async fn labels(s: &mut StageState, cx: &StepContext) -> Result<(), StepError> {
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
    use crate::documents::issue::RubricPart;

    #[test]
    fn questions_of_a_model_come_first_and_five_at_most() {
        let gap =
            |part| RubricGap { part, said: "x".into(), question: Some(("A gap?".into(), "No.".into())) };
        let open = OpenQuestion {
            quote: "be sorted".into(),
            question: "By name or by time?".into(),
            default: "By name.".into(),
        };
        let gaps: Vec<RubricGap> =
            [RubricPart::Criteria, RubricPart::Scope, RubricPart::Signal, RubricPart::Determinism]
                .map(gap)
                .to_vec();
        let all = asked(gaps, vec![open.clone(), open]);
        assert_eq!(all.len(), 5);
        assert_eq!(all[0].text, "“be sorted”: By name or by time?");
        assert_eq!(all[2].text, "A gap?");
    }
}
