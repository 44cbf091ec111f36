//! Search terms, written by a model or by code. Each search consists of a few plain words.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::documents::strip_fence;

/// Words of one search. A result must match all of them.
pub type SearchTerms = Vec<String>;

/// Maximum number of words per search. GitHub returns only repositories that match all words, so more words would find
/// too little.
const MOST_TERMS: usize = 5;

const MOST_SEARCHES: usize = 3;

const WORD_CHARS: usize = 40;

/// Rules of the answer's format, in words, for the prompt.
pub const QUERY_RULES: &str = "One JSON object: {\"queries\": [\"…\", …]}. At most three searches, the likeliest first, each of one to \
five plain English words between spaces, as repositories describe themselves: no quotes, no operators, no names of people. A \
search finds what has all of its words, so fewer find more.";

/// Returns the JSON Schema of the answer, for providers with structured output.
pub fn query_schema() -> Value {
    json!({
        "type": "object",
        "properties": { "queries": { "type": "array", "items": { "type": "string" } } },
        "required": ["queries"],
        "additionalProperties": false,
    })
}

/// Parses a model's search plan. Only the words of each search are kept. An empty plan is accepted if `may_be_empty` is
/// true.
///
/// # Errors
/// Returns a description of the mistake in the plan, worded for the model.
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
        Err("none of its `queries` has a word".to_owned())
    } else {
        Ok(planned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_plan_is_parsed_into_short_queries_of_plain_words() {
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
