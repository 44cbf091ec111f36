//! What to search for: plain words, a few at a time, whoever thought of them.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::documents::unfenced;

/// What one search has all of.
pub type SearchTerms = Vec<String>;

/// Words of one search: GitHub finds what has all of them.
const WORDS: usize = 5;

const SEARCHES: usize = 3;

const WORD_CHARS: usize = 40;

/// How a model is to say it.
pub const QUERY_RULES: &str = "One JSON object: {\"queries\": [\"…\", …]}. At most three searches, the likeliest first, each of one to \
five plain English words between spaces, as repositories describe themselves: no quotes, no operators, no names of people. A \
search finds what has all of its words, so fewer find more.";

/// The same for services that hold a model to a form.
pub fn query_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "queries": { "type": "array", "items": { "type": "string" } } },
        "required": ["queries"],
        "additionalProperties": false,
    })
}

/// Reads a model's plan, which may hold nothing where there is one already. What is no word does not stay.
///
/// # Errors
/// Why it is none, for the model.
pub fn planned(answer: &str, may_be_empty: bool) -> Result<Vec<SearchTerms>, String> {
    #[derive(Deserialize)]
    struct SearchPlan {
        queries: Vec<String>,
    }
    let plan: SearchPlan = serde_json::from_str(unfenced(answer))
        .map_err(|_| "it is not one JSON object with a list of texts called `queries`".to_owned())?;
    let words = |query: &String| -> SearchTerms {
        let words = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let short = words.filter(|word| word.chars().count() <= WORD_CHARS);
        short.take(WORDS).map(str::to_lowercase).collect()
    };
    let mut planned: Vec<SearchTerms> = Vec::new();
    for words in plan.queries.iter().map(words).filter(|words| !words.is_empty()) {
        if !planned.contains(&words) {
            planned.push(words);
        }
    }
    planned.truncate(SEARCHES);
    if planned.is_empty() && !(may_be_empty && plan.queries.is_empty()) {
        Err("there is no word in any of its `queries`".to_owned())
    } else {
        Ok(planned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_of_plain_words_and_few() {
        let plan = r#"{"queries": ["repo:evil/x \"week report\"", "", "time  sheet", "time sheet", "a b c d e f g", "z"], "more": 1}"#;
        let joined: Vec<_> = planned(plan, false).unwrap().iter().map(|words| words.join(" ")).collect();
        assert_eq!(joined, ["repo evil x week report", "time sheet", "a b c d e"]);
        assert_eq!(planned("```json\n{\"queries\": [\"weeks\"]}\n```", false).unwrap(), [["weeks"]]);
        for wrong in ["weeks", "[\"weeks\"]", r#"{"queries": "weeks"}"#, r#"{"queries": ["🦀", "::"]}"#, ""]
        {
            assert!(planned(wrong, true).is_err(), "{wrong}");
        }
        let none = r#"{"queries": []}"#;
        assert!(planned(none, true).unwrap().is_empty() && planned(none, false).is_err());
    }
}
