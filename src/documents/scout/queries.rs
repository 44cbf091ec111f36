//! What to search for: plain words, a few at a time, whoever thought of them.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::documents::strip_fence;

/// What one search has all of.
pub type SearchTerms = Vec<String>;

/// Words of one search: GitHub finds what has all of them.
const MOST_TERMS: usize = 5;

const MOST_SEARCHES: usize = 3;

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
pub fn parse_search_plan(answer: &str, may_be_empty: bool) -> Result<Vec<SearchTerms>, String> {
    #[derive(Deserialize)]
    struct SearchPlan {
        queries: Vec<String>,
    }
    let plan: SearchPlan = serde_json::from_str(strip_fence(answer))
        .map_err(|_| "it is not one JSON object with a list of texts called `queries`".to_owned())?;
    let words = |query: &String| -> SearchTerms {
        let words = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let short = words.filter(|word| word.chars().count() <= WORD_CHARS);
        short.take(MOST_TERMS).map(str::to_lowercase).collect()
    };
    let mut planned: Vec<SearchTerms> = Vec::new();
    for words in plan.queries.iter().map(words).filter(|words| !words.is_empty()) {
        if !planned.contains(&words) {
            planned.push(words);
        }
    }
    planned.truncate(MOST_SEARCHES);
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
    fn search_plan_has_few_plain_words() {
        let plan = r#"{"queries": ["repo:evil/x \"week report\"", "", "time  sheet", "time sheet", "a b c d e f g", "z"], "more": 1}"#;
        let joined: Vec<_> =
            parse_search_plan(plan, false).unwrap().iter().map(|words| words.join(" ")).collect();
        assert_eq!(joined, ["repo evil x week report", "time sheet", "a b c d e"]);
        assert_eq!(
            parse_search_plan("```json\n{\"queries\": [\"weeks\"]}\n```", false).unwrap(),
            [["weeks"]]
        );
        for wrong in ["weeks", "[\"weeks\"]", r#"{"queries": "weeks"}"#, r#"{"queries": ["🦀", "::"]}"#, ""]
        {
            assert!(parse_search_plan(wrong, true).is_err(), "{wrong}");
        }
        let none = r#"{"queries": []}"#;
        assert!(parse_search_plan(none, true).unwrap().is_empty() && parse_search_plan(none, false).is_err());
    }
}
