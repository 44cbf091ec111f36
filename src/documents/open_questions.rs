//! Questions that a model asks about points that an issue leaves undecided. Questions that do not quote the issue are
//! dropped.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{as_json_object, truncate};

/// A question that only a person can decide.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenQuestion {
    /// Words of the issue that leave the question undecided.
    pub quote: String,
    pub question: String,
    /// Answer that applies if nobody answers.
    pub default: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenQuestionsAnswer {
    questions: Vec<OpenQuestion>,
}

/// Error in parsing the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not one JSON object that fits the schema")]
pub struct OpenQuestionsError;

/// Maximum number of questions per issue. People who get more questions answer none of them.
pub const MOST_QUESTIONS: usize = 5;
const FIELD_CHARS: usize = 500;

/// Returns the JSON Schema of the answer.
pub fn schema() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": { "questions": { "type": "array", "items": {
            "type": "object", "properties": { "quote": text, "question": text, "default": text },
            "required": ["quote", "question", "default"], "additionalProperties": false,
        } } },
        "required": ["questions"],
        "additionalProperties": false,
    })
}

/// Returns the schema's rules in words, for the prompt.
pub fn prompt_rules() -> String {
    format!(
        "Answer with one JSON object `{{\"questions\": [{{\"quote\": …, \"question\": …, \"default\": …}}]}}` and nothing else. \
         Ask where the issue can be read in two ways, where two of its statements cannot both hold, or where the code \
         allows two ways, and whoever uses the result would notice the difference. `quote` is copied word for word from the \
         issue. `question` is one sentence that names both ways, and the file or name of the code that it is about. \
         `default` is the answer of a careful maintainer. Do not ask what the issue or the code answers, what is asked \
         already, how to word something, or how to build it. Most issues leave nothing open: then the list is empty. At most \
         {MOST_QUESTIONS} questions, the one that matters most first.\n"
    )
}

/// Parses the answer. Questions that do not quote the issue are dropped.
///
/// # Errors
/// Returns an error if the answer does not fit the schema.
pub fn parse(answer: &str, issue: &str) -> Result<Vec<OpenQuestion>, OpenQuestionsError> {
    let text = as_json_object(answer).ok_or(OpenQuestionsError)?;
    let OpenQuestionsAnswer { questions } = serde_json::from_str(text).map_err(|_| OpenQuestionsError)?;
    let issue = normalize_quote(issue);
    let sound = |q: &OpenQuestion| {
        let quote = normalize_quote(&q.quote);
        quote.contains(' ')
            && issue.contains(&quote)
            && !q.question.trim().is_empty()
            && !q.default.trim().is_empty()
    };
    let short = |text: &str| truncate(text.trim(), FIELD_CHARS).to_owned();
    let kept = questions.iter().filter(|question| sound(question)).take(MOST_QUESTIONS);
    let kept = kept.map(|OpenQuestion { quote, question, default }| OpenQuestion {
        quote: short(quote),
        question: short(question),
        default: short(default),
    });
    Ok(kept.collect())
}

/// Removes list and emphasis marks, and collapses whitespace.
fn normalize_quote(text: &str) -> String {
    let words =
        text.split(|c: char| c.is_whitespace() || "*_`\"“”".contains(c)).filter(|word| !word.is_empty());
    words
        .filter(|word| !matches!(*word, "-" | "+" | "[" | "]" | "[x]"))
        .collect::<Vec<_>>()
        .join(" ")
        .trim_end_matches('.')
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUE: &str = "- Output stays the same\n  to the byte.\n- **Each** line ends with its week.";

    #[test]
    fn open_question_is_dropped_unless_it_quotes_the_issue() {
        let read = |quote: &str, question: &str| {
            let one = json!({ "quote": quote, "question": question, "default": "The first." });
            parse(&json!({ "questions": [one] }).to_string(), ISSUE).unwrap().len()
        };
        assert_eq!(read("Output stays the same to the byte.", "Which?"), 1);
        assert_eq!(read("Each line ends with its week", "Which?"), 1);
        for (quote, question) in
            [("Each line is red", "Which?"), ("the", "Which?"), ("", "Which?"), ("stays the same", " ")]
        {
            assert_eq!(read(quote, question), 0, "{quote:?} {question:?}");
        }
        let form = "{\"questions\": []}";
        for invalid in ["", "[]", "{}", "{\"questions\": 1}", "Sure: {\"questions\": []}", "{\"x\": 1}"] {
            assert_eq!(parse(invalid, ISSUE), Err(OpenQuestionsError), "{invalid}");
        }
        assert_eq!(parse(form, ISSUE), Ok(Vec::new()));
    }
}
