//! N1, preflight: checks before the first draft. First the issue is checked against the rubric, which costs nothing.
//! Then a small model reads the issue and the code. A few gaps that only a person can fill become questions.

use crate::{
    documents::{
        issue::{RubricGap, find_gaps},
        open_questions::{MOST_QUESTIONS, OpenQuestion},
    },
    engine::StepError,
    messages, publication,
    rounds::{StepContext, load_text},
    stage::{self, BackgroundText, IssueQuestion, StageState, StepResult, StepVisit},
};

pub(super) const RUBRIC: &str = "rubric";
pub(super) const RUBRIC_HEADING: &str = "What the issue as it was opened does not say";

pub(super) async fn run_preflight(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::analyze_codebase(s, v).await?;
    if !s.is_fresh() {
        // The person who sent it back wrote what they want.
        return Ok(StepResult::Pass);
    }
    let issue = s.issue()?.clone();
    let body = load_text(cx, &issue.body).await?;
    let tree = cx.tools().file_tree(cx, s.base()?).await?;
    let gaps = find_gaps(&issue.title, &body, &tree);
    report_missing_labels(s, cx).await?;
    stage::add_similar_issues(s, cx, issue.number, &format!("{}\n{body}", issue.title)).await?;
    let by_code: String =
        gaps.iter().flat_map(|gap| &gap.question).map(|(text, _)| format!("- {text}\n")).collect();
    let open = match stage::find_open_questions(s, v, &by_code).await? {
        Ok(Some(found)) => found,
        Ok(None) => {
            s.add_note(messages::questions_unavailable_note());
            Vec::new()
        }
        Err(exit) => return Ok(exit),
    };
    let known: String = gaps.iter().map(|gap| format!("- {}\n", gap.said)).collect();
    if !known.is_empty() {
        let (kind, heading) = (RUBRIC.to_owned(), RUBRIC_HEADING.to_owned());
        s.add_background(BackgroundText { kind, heading, text: cx.put(known.as_bytes()).await?, left: true });
    }
    let asked = collect_questions(gaps, open);
    if asked.is_empty() {
        return Ok(StepResult::Pass);
    }
    s.set_questions(asked);
    Ok(StepResult::Unclear)
}

/// Collects the questions for people. The model's questions come first, because they are specific to the issue, while
/// the rubric asks the same for every issue.
fn collect_questions(gaps: Vec<RubricGap>, open: Vec<OpenQuestion>) -> Vec<IssueQuestion> {
    let open = open.into_iter().map(|OpenQuestion { quote, question, default }| {
        let text = format!("“{quote}”: {question}");
        IssueQuestion { text, default }
    });
    let gap = |gap: RubricGap| gap.question.map(|(text, default)| IssueQuestion { text, default });
    open.chain(gaps.into_iter().filter_map(gap)).take(MOST_QUESTIONS).collect()
}

/// Adds a note that lists labels that the settings name but the repository lacks. We do not create the labels, because
/// naming labels is up to the repository.
async fn report_missing_labels(s: &mut StageState, cx: &StepContext) -> Result<(), StepError> {
    let wanted = s.policy()?.filing.as_ref().map(|filing| filing.labels.clone()).unwrap_or_default();
    let lacking = cx
        .once("labels", |_| async {
            let (there, repo) = (publication::existing_labels(cx, &wanted).await?, &wanted);
            Ok(repo.iter().filter(|label| !there.contains(label)).cloned().collect::<Vec<String>>())
        })
        .await?;
    if !lacking.is_empty() {
        s.add_note(messages::missing_labels_note(&lacking));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::issue::RubricPart;

    #[test]
    fn questions_are_limited_to_five_and_model_questions_come_first() {
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
        let all = collect_questions(gaps, vec![open.clone(), open]);
        assert_eq!(all.len(), 5);
        assert_eq!(all[0].text, "“be sorted”: By name or by time?");
        assert_eq!(all[2].text, "A gap?");
    }
}
