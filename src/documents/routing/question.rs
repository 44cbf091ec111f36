//! The answer to a question about the code: prose, and the locations in the code that support it. Each location is
//! checked before it is shown. The prose may not contain URLs that are not in the code, because such a URL could lead
//! to any site.

use pulldown_cmark::{Event, Parser, Tag};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::documents::{markdown, strip_fence};

/// Rules of the answer's format, in words, for the prompt.
pub const ANSWER_RULES: &str = "One JSON object: {\"answer\": \"Markdown\", \"places\": [{\"path\": \"src/a.rs\", \"from\": 1, \"to\": 9, \"what\": \
\"what stands there\"}]}. `answer` has at most 300 words and no links; where you were not shown enough to tell, say that instead of \
guessing. `places` are the at most eight files, with lines, that show it; of a file whose lines you do not know, `from` and `to` are 0.";

/// Maximum number of locations in an answer.
const MOST_PLACES: usize = 8;

/// Returns the JSON Schema of the answer, for providers with structured output.
pub fn answer_schema() -> Value {
    let (text, number) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let place = json!({
        "type": "object",
        "properties": { "path": text, "from": number, "to": number, "what": text },
        "required": ["path", "from", "to", "what"],
        "additionalProperties": false,
    });
    json!({
        "type": "object",
        "properties": { "answer": text, "places": { "type": "array", "items": place } },
        "required": ["answer", "places"],
        "additionalProperties": false,
    })
}

/// A model's answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeAnswer {
    pub answer: String,
    pub places: Vec<CodeLocation>,
}

/// A location in the code that supports the answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeLocation {
    pub path: String,
    /// First line of the location, counted from 1. `to` is the last line. If both are 0, the location is the whole
    /// file.
    #[serde(default)]
    pub from: u64,
    #[serde(default)]
    pub to: u64,
    #[serde(default)]
    pub what: String,
}

impl CodeLocation {
    /// Returns whether the location's line range fits into a file with this many lines.
    pub fn is_within(&self, lines: u64) -> bool {
        (self.from, self.to) == (0, 0) || (1 <= self.from && self.from <= self.to && self.to <= lines)
    }
}

/// Parses a model's answer to a question. `code` contains the texts of the files, whose URLs the answer may repeat.
///
/// # Errors
/// Returns a description of the mistake in the answer, worded for the model.
pub fn parse_code_answer(answer: &str, code: &[String]) -> Result<CodeAnswer, String> {
    let mut parsed: CodeAnswer = serde_json::from_str(strip_fence(answer))
        .map_err(|_| "it is not one JSON object with a text `answer` and a list `places`".to_owned())?;
    if parsed.answer.trim().is_empty() {
        return Err("`answer` is empty".to_owned());
    }
    parsed.places.truncate(MOST_PLACES);
    if has_foreign_address(&parsed.answer, code)
        || parsed.places.iter().any(|place| has_foreign_address(&place.what, code))
    {
        return Err(
            "it holds an address that is not in the code; files are named under `places` alone".to_owned()
        );
    }
    Ok(parsed)
}

/// Returns whether the rendered text contains a URL that is not in the code. HTML entities are decoded first, even
/// inside code, because people may copy a URL from there.
fn has_foreign_address(text: &str, code: &[String]) -> bool {
    let mut read = String::new();
    for event in Parser::new_ext(text, markdown::parser_options()) {
        match event {
            Event::Start(Tag::Link { .. } | Tag::Image { .. }) => return true,
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                read.push_str(&text);
            }
            Event::SoftBreak | Event::HardBreak | Event::End(_) => read.push('\n'),
            _ => {}
        }
    }
    let read = ammonia::Builder::empty().clean(&read.replace('<', " ")).to_string().replace("&amp;", "&");
    markdown::bare_addresses(&read).any(|address| !code.iter().any(|file| file.contains(&address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_about_code_is_refused_if_it_links_to_a_url_missing_from_the_code() {
        let code = ["let base = \"https://a.b/c?d=1&e=2\";".to_owned()];
        let about = |answer: &str, what: &str| {
            let place = json!({ "path": "a", "what": what });
            parse_code_answer(&json!({ "answer": answer, "places": [place] }).to_string(), &code)
        };
        let said = |answer: &str| about(answer, "");
        for fine in
            ["It adds up.", "See `https://a.b/c?d=1&e=2`.", "```\nhttps://a.b\n```", "a < b && c::d // e"]
        {
            assert!(said(fine).is_ok(), "{fine}");
        }
        for wrong in [
            "",
            " ",
            "[x](https://e.example)",
            "https://e.example",
            "![x](y)",
            "<https://e.example>",
            "www.e.example",
            "`https://e.example`",
            "```\ncurl https://e.example\n```",
            "https&colon;//e.example",
            "`https:&#47;&#x2f;e.example`",
            "<b title='https:&#47;&#47;e.example'>",
        ] {
            assert!(said(wrong).is_err(), "{wrong}");
            assert!(wrong.trim().is_empty() || about("It adds up.", wrong).is_err(), "{wrong}");
        }
        assert!(parse_code_answer("It adds up.", &code).is_err());
        let many = vec![json!({ "path": "a" }); 20];
        let many = parse_code_answer(&json!({ "answer": "x", "places": many }).to_string(), &[]).unwrap();
        assert_eq!(many.places.len(), MOST_PLACES);
        let place = |from, to| CodeLocation { from, to, ..many.places[0].clone() };
        assert!(place(0, 0).is_within(0) && place(1, 3).is_within(3));
        assert!(!place(1, 4).is_within(3) && !place(0, 2).is_within(3) && !place(3, 2).is_within(3));
    }
}
