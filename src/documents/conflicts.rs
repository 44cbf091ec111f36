//! Criteria of an idea that cannot both hold, as a model says: only those count of which both stand in the idea and a
//! situation is named in which they part.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{head, one_json_object};

/// Two criteria that cannot both hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conflict {
    /// As they stand in the idea.
    pub criterion_a: String,
    pub criterion_b: String,
    /// When one of them demands what the other forbids.
    pub diverging_situation: String,
    pub question: String,
    /// What holds where nobody answers.
    pub default: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    conflicts: Vec<Conflict>,
}

/// Why an answer says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer is not one JSON object that fits the schema")]
pub struct Invalid;

/// Nobody settles more at once.
const MOST: usize = 20;
const CHARS: usize = 500;

/// JSON Schema of the answer.
pub fn schema() -> Value {
    let text = json!({ "type": "string" });
    let fields = ["criterion_a", "criterion_b", "diverging_situation", "question", "default"];
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), text.clone())).collect();
    json!({
        "type": "object",
        "properties": { "conflicts": { "type": "array", "items": {
            "type": "object", "properties": properties, "required": fields, "additionalProperties": false,
        } } },
        "required": ["conflicts"],
        "additionalProperties": false,
    })
}

/// The schema's rules in words, for the prompt.
pub fn prompt_rules() -> String {
    "Answer with one JSON object `{\"conflicts\": [{\"criterion_a\": …, \"criterion_b\": …, \"diverging_situation\": …, \
     \"question\": …, \"default\": …}]}` and nothing else. A conflict is two statements of the issue of which, in one and the \
     same situation, the first demands what the second forbids. `criterion_a` and `criterion_b` are copied word for word. \
     `diverging_situation` is one concrete situation with its input. `question` asks in one sentence which of the two holds, \
     and `default` answers it as a careful maintainer would. Statements that are merely vague, incomplete or about different \
     things are no conflict; where there is none, the list is empty.\n"
        .to_owned()
}

/// Reads the answer. What is quoted and does not stand in the idea is left out, and so is what names no situation.
///
/// # Errors
/// Where it is not in form.
pub fn parse(answer: &str, idea: &str) -> Result<Vec<Conflict>, Invalid> {
    let text = one_json_object(answer).ok_or(Invalid)?;
    let Answer { conflicts } = serde_json::from_str(text).map_err(|_| Invalid)?;
    let idea = squeezed(idea);
    let stands = |quote: &str| {
        let quote = squeezed(quote);
        quote.split(' ').count() > 1 && idea.contains(&quote)
    };
    let sound = |c: &Conflict| {
        stands(&c.criterion_a)
            && stands(&c.criterion_b)
            && squeezed(&c.criterion_a) != squeezed(&c.criterion_b)
            && [&c.diverging_situation, &c.question, &c.default].iter().all(|text| !text.trim().is_empty())
    };
    let short = |text: String| head(text.trim(), CHARS).to_owned();
    let kept = conflicts.into_iter().filter(sound).take(MOST).map(|c| Conflict {
        criterion_a: short(c.criterion_a),
        criterion_b: short(c.criterion_b),
        diverging_situation: short(c.diverging_situation),
        question: short(c.question),
        default: short(c.default),
    });
    Ok(kept.collect())
}

/// Without marks of lists and emphasis, and with single blanks.
fn squeezed(text: &str) -> String {
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

    const IDEA: &str = "- Output stays the same\n  to the byte.\n- **Each** line ends with its week.";

    fn said(a: &str, b: &str, situation: &str) -> Vec<Conflict> {
        let one = json!({ "criterion_a": a, "criterion_b": b, "diverging_situation": situation, "question": "Which?",
            "default": "The first." });
        parse(&json!({ "conflicts": [one] }).to_string(), IDEA).unwrap()
    }

    #[test]
    fn only_what_stands_there_conflicts() {
        let (a, b) = ("Output stays the same to the byte.", "Each line ends with its week");
        assert_eq!(said(a, b, "any line").len(), 1);
        for (a, b, situation) in
            [(a, b, " "), (a, a, "x"), (a, "Each line is red", "x"), ("", b, "x"), ("the", b, "x")]
        {
            assert_eq!(said(a, b, situation), [], "{a:?} {b:?}");
        }
        for invalid in [
            "",
            "[]",
            "{}",
            "{\"conflicts\": 1}",
            "Sure: {\"conflicts\": []}",
            "{\"conflicts\": [], \"x\": 1}",
        ] {
            assert_eq!(parse(invalid, IDEA), Err(Invalid), "{invalid}");
        }
        assert_eq!(parse(" {\"conflicts\": []}\n", IDEA), Ok(Vec::new()));
    }
}
