//! Checks of the test plan: each requirement needs a test scenario with a precise pass criterion.

use std::collections::BTreeSet;

use super::{ParsedDesign, TestScenario, parse};
use crate::documents::{DocumentMistake, as_identifier, quotable_path};

/// Vague phrases, which any result would satisfy. A text matches a phrase if the words occur in this order, with at
/// most two other words between consecutive words.
const VAGUE_PHRASES: &[&[&str]] = &[
    &["verify", "it", "works"],
    &["check", "everything"],
    &["ensure", "proper", "behavior"],
    &["ensure", "proper", "behaviour"],
    &["test", "that", "it", "is", "correct"],
    &["validate", "functionality"],
    &["confirm", "it", "functions"],
    &["should", "work", "properly"],
    &["works", "as", "expected"],
    &["works", "correctly"],
];

/// Phrases that leave the test to a person.
const MANUAL_PHRASES: &[&[&str]] = &[
    &["manual", "verification"],
    &["manual", "check"],
    &["manual", "inspection"],
    &["visual", "check"],
    &["visual", "verification"],
    &["human", "review"],
    &["visually", "inspect"],
    &["manually", "verify"],
];

/// Phrases in an automatic test scenario that suggest a live service.
const LIVE_SERVICE_PHRASES: &[&[&str]] =
    &[&["network"], &["database"], &["live"], &["external", "service"], &["api", "call"]];

/// Words before a phrase that deny it, as in "without manual verification".
const DENIALS: [&str; 5] = ["no", "not", "never", "without", "instead"];

/// Returns all mistakes in the test plan. Requirements and scenarios are matched by exact ID.
pub fn check_coverage(text: &str) -> Vec<DocumentMistake> {
    let lld = parse(text);
    let mut out = Vec::new();
    if lld.requirements.is_empty() {
        out.push(DocumentMistake::error(
            "coverage.requirements",
            "Requirements",
            "there is no numbered requirement to test",
        ));
    }
    if lld.scenarios.is_empty() {
        let message = "no scenario could be read; write a table with the columns ID, Scenario, Type, Input, \
                       Expected Output, Pass Criteria";
        out.push(DocumentMistake::error("coverage.scenarios", "Test Scenarios", message));
        return out;
    }
    check_uncovered(&lld, &mut out);
    let mut ids = BTreeSet::new();
    for scenario in &lld.scenarios {
        let twice = !ids.insert(scenario.id.as_str());
        check_scenario(&lld, scenario, twice, &mut out);
    }
    out
}

/// Returns the first vague phrase in the text, which any result would satisfy.
pub(in crate::documents) fn find_vague_phrase(lower: &str) -> Option<String> {
    VAGUE_PHRASES.iter().find(|phrase| contains_phrase(lower, phrase)).map(|phrase| phrase.join(" "))
}

fn check_uncovered(lld: &ParsedDesign, out: &mut Vec<DocumentMistake>) {
    let covered: BTreeSet<&str> =
        lld.scenarios.iter().flat_map(|s| &s.requirements).map(String::as_str).collect();
    for requirement in lld.requirements.iter().filter(|r| !covered.contains(r.id.as_str())) {
        let id = quotable_path(&requirement.id);
        let message = format!("no scenario shows it; add one whose Scenario cell ends with `({id})`");
        out.push(DocumentMistake::error("coverage.uncovered", id, message));
    }
}

fn check_scenario(lld: &ParsedDesign, scenario: &TestScenario, twice: bool, out: &mut Vec<DocumentMistake>) {
    let place =
        format!("Test Scenarios, scenario {}", as_identifier(&scenario.id).unwrap_or("without an ID"));
    let mut say = |rule, message: String| out.push(DocumentMistake::error(rule, place.as_str(), message));
    if scenario.id.is_empty()
        || scenario.id.len() > 8
        || !scenario.id.chars().all(|c| c.is_ascii_alphanumeric())
    {
        say("coverage.id", "its ID must be a number such as 010".into());
    } else if twice {
        say("coverage.id", "its ID stands in another row too; give each its own".into());
    }
    if scenario.requirements.is_empty() {
        say(
            "coverage.unmapped",
            "its Scenario cell must end with the requirement it shows, such as `(REQ-1)`".into(),
        );
    }
    for id in scenario.requirements.iter().filter(|id| !lld.requirements.iter().any(|r| r.id == **id)) {
        say("coverage.unknown", format!("it names {}, which Requirements does not have", quotable_path(id)));
    }
    if scenario.pass.trim().is_empty() {
        say("coverage.criteria", "its Pass Criteria are empty; say the exact value that is observed".into());
    }
    let row = [&scenario.text, &scenario.input, &scenario.expected, &scenario.pass]
        .map(|c| c.to_lowercase())
        .join(" . ");
    if let Some(phrase) = find_vague_phrase(&row) {
        say(
            "coverage.vague",
            format!("\"{phrase}\" passes whatever happens; say the exact value, status or text"),
        );
    }
    let manual = scenario.kind.trim().eq_ignore_ascii_case("manual");
    if let Some(phrase) = MANUAL_PHRASES.iter().find(|p| !manual && contains_phrase(&row, p)) {
        let phrase = phrase.join(" ");
        say(
            "coverage.human",
            format!("\"{phrase}\" leaves the test to a person; make it automatic or its Type `Manual`"),
        );
    }
    let live = LIVE_SERVICE_PHRASES.iter().find(|phrase| contains_phrase(&row, phrase));
    if let Some(phrase) = live.filter(|_| scenario.kind.trim().eq_ignore_ascii_case("auto")) {
        let phrase = phrase.join(" ");
        let message =
            format!("its Type is `Auto` but it speaks of \"{phrase}\"; `Auto-Live` if it needs one");
        out.push(DocumentMistake::warning("coverage.type", place, message));
    }
}

/// Returns whether the words of a phrase occur in this order in one sentence, with at most two other words between
/// consecutive words, and with no denial among the three words before.
fn contains_phrase(row: &str, phrase: &[&str]) -> bool {
    let row = row.replace('.', " . ");
    let words: Vec<&str> =
        row.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|w| !w.is_empty()).collect();
    words.iter().enumerate().filter(|(_, w)| **w == phrase[0]).any(|(start, _)| {
        if words[start.saturating_sub(3)..start]
            .iter()
            .rev()
            .take_while(|w| **w != ".")
            .any(|w| DENIALS.contains(w))
        {
            return false;
        }
        let mut at = start;
        phrase[1..].iter().all(|wanted| {
            let window = &words[at + 1..words.len().min(at + 4)];
            let sentence = window.iter().position(|w| *w == ".").unwrap_or(window.len());
            match window[..sentence].iter().position(|w| w == wanted) {
                Some(step) => {
                    at += step + 1;
                    true
                }
                None => false,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_for_plan(requirements: &str, rows: &str) -> Vec<String> {
        let text = format!(
            "# 1 - Feature: x\n\n## Requirements\n\n{requirements}\n\n### Test Scenarios\n\n\
             | ID | Scenario | Type | Input | Expected Output | Pass Criteria |\n|-|-|-|-|-|-|\n{rows}\n"
        );
        check_coverage(&text).iter().map(|m| format!("{} {}", m.rule, m.place)).collect()
    }

    #[test]
    fn requirement_needs_a_scenario_with_its_exact_id() {
        let rows = "| 010 | a (REQ-1) | Auto | x | y | exit code 0 |\n| 020 | b REQ-2 | Auto | x | y | 1 |\n\
                    | 020 | c (REQ-12) | Auto | x | y | 2 |";
        assert_eq!(
            rules_for_plan("1. one\n2. two", rows),
            [
                "coverage.uncovered REQ-2",
                "coverage.unmapped Test Scenarios, scenario 020",
                "coverage.id Test Scenarios, scenario 020",
                "coverage.unknown Test Scenarios, scenario 020",
            ]
        );
    }

    #[test]
    fn vague_or_manual_test_scenario_is_an_error() {
        let rows = "| 010 | a (REQ-1) | Auto | x | y | it works as expected |\n\
                    | 020 | b (REQ-1) | Auto | x | y | manually verify the page |\n\
                    | 030 | c (REQ-1) | Manual | x | y | manually verify the page shows `3` |\n\
                    | 040 | verify the parser (REQ-1) | Auto | x | works | 3 |\n| 050 | d (REQ-1) | Auto | live site | y | 4 |\n\
                    | 060 | delivers all olives without manual checks (REQ-1) | Auto | x | no human review | 5 |";
        assert_eq!(
            rules_for_plan("1. one", rows),
            [
                "coverage.vague Test Scenarios, scenario 010",
                "coverage.human Test Scenarios, scenario 020",
                "coverage.type Test Scenarios, scenario 050"
            ]
        );
    }

    #[test]
    fn design_without_requirements_or_scenarios_fails_the_coverage_check() {
        assert_eq!(check_coverage("").len(), 2);
        assert_eq!(rules_for_plan("", "| 010 | a (REQ-1) | Auto | x | y | 1 |").len(), 2);
    }
}
