//! Revisions of a document by search and replace. Text outside the edits stays the same, byte for byte. Each search
//! text must match exactly once. If an edit fails, the next prompt contains the error, or the drafter is asked for the
//! full document instead.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{as_json_object, truncate};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    pub search: String,
    pub replace: String,
}

/// An author's reply to an open finding. The reply is only a claim; the reviewer decides whether to accept it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingReply {
    /// Finding ID, such as `F3`, or the ID of a disputable mistake, such as `M1`.
    pub finding: String,
    pub disposition: FindingDisposition,
    /// Description of the fix, or the reason why the finding is not a defect or can wait.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingDisposition {
    Fixed,
    Rebutted,
    Deferred,
    /// Only for a mistake that code found: the check is wrong here.
    Disputed,
}

impl FindingDisposition {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Rebutted => "rebutted",
            Self::Deferred => "deferred",
            Self::Disputed => "disputed",
        }
    }
}

/// A revision: edits and replies to findings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revision {
    pub edits: Vec<Edit>,
    pub replies: Vec<FindingReply>,
}

impl Revision {
    /// Returns whether the revision replies to findings but does not edit the document.
    pub fn has_only_replies(&self) -> bool {
        self.edits.is_empty()
    }
}

/// Error in parsing a revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevisionError {
    #[error("the answer is not one JSON object that fits the schema")]
    NotOneObject,
    #[error("the answer holds no edit, and no finding that it rebuts or defers")]
    NoEdits(Vec<FindingReply>),
    #[error("the answer holds more than {MOST_EDITS} edits or replies")]
    TooMany,
}

/// Error in applying one edit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum EditError {
    #[error("edit {index}: the search text is empty")]
    Empty { index: usize },
    #[error("edit {index}: the search text does not occur: `{search}`")]
    NotFound { index: usize, search: String },
    #[error("edit {index}: the search text occurs {times} times, take in more around it: `{search}`")]
    Several { index: usize, times: usize, search: String },
    #[error("edit {index}: it overlaps edit {other}; make them one")]
    Overlap { index: usize, other: usize },
    #[error("the edits change nothing")]
    NoChange,
}

const MOST_EDITS: usize = 200;
const WHY_CHARS: usize = 1_000;

/// Returns the JSON Schema of the answer.
pub fn schema() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": {
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": { "search": text, "replace": text },
                    "required": ["search", "replace"],
                    "additionalProperties": false,
                },
            },
            "replies": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "finding": text,
                        "disposition": { "type": "string", "enum": ["fixed", "rebutted", "deferred", "disputed"] },
                        "why": text,
                    },
                    "required": ["finding", "disposition", "why"],
                    "additionalProperties": false,
                },
            },
        },
        "required": ["edits", "replies"],
        "additionalProperties": false,
    })
}

/// Returns the schema's rules in words, for the prompt.
pub fn prompt_rules() -> String {
    format!(
        "Answer with one JSON object `{{\"edits\": [{{\"search\": …, \"replace\": …}}], \"replies\": [{{\"finding\": \
         \"F1\", \"disposition\": …, \"why\": …}}]}}` and nothing else. Each \
         `search` is copied exactly from the document, blanks and line breaks included, and is long enough to occur \
         in it exactly once. All searches are made in the document as it is now, and no two touch the same text. An \
         empty `replace` deletes. At most {MOST_EDITS} edits; what no edit names stays as it is. \
         `replies` has a reply to each open finding; without open findings it is empty. If you make no change for a maintainer's request, \
         add a reply whose `finding` is `request` and say why. The `disposition` is `fixed`, and `why` says how; `rebutted`, and why \
         the document is right; or `deferred`, and why it can wait. A mistake with an id, such as `M1`, may be wrong: if no change \
         is right, answer it by `disputed` and why the check is wrong here. The reviewer judges each; `why` has at most {WHY_CHARS} characters.\n"
    )
}

/// Parses an answer, which must be a single JSON object.
pub fn parse(answer: &str) -> Result<Revision, RevisionError> {
    let object = as_json_object(answer).ok_or(RevisionError::NotOneObject)?;
    let mut revision: Revision = serde_json::from_str(object).map_err(|_| RevisionError::NotOneObject)?;
    if revision.edits.len().max(revision.replies.len()) > MOST_EDITS {
        return Err(RevisionError::TooMany);
    }
    for reply in &mut revision.replies {
        if let Some((end, _)) = reply.why.char_indices().nth(WHY_CHARS) {
            reply.why.truncate(end);
        }
    }
    if revision.edits.is_empty()
        && revision.replies.iter().all(|r| r.disposition == FindingDisposition::Fixed)
    {
        return Err(RevisionError::NoEdits(revision.replies));
    }
    Ok(revision)
}

/// Applies all edits, or none if one of them fails. Every search text is matched against the original `text`, so that
/// no edit depends on an earlier edit.
pub fn apply(text: &str, edits: &[Edit]) -> Result<String, Vec<EditError>> {
    let mut errors = Vec::new();
    let mut places: Vec<(Range<usize>, usize)> = Vec::new();
    for (at, edit) in edits.iter().enumerate() {
        match find_only_match(text, &edit.search, at + 1) {
            Ok(range) => places.push((range, at)),
            Err(error) => errors.push(error),
        }
    }
    places.sort_by_key(|(range, _)| range.start);
    for pair in places.windows(2) {
        if pair[1].0.start < pair[0].0.end {
            errors.push(EditError::Overlap { index: pair[1].1 + 1, other: pair[0].1 + 1 });
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut out = text.to_owned();
    for (range, at) in places.into_iter().rev() {
        out.replace_range(range, &edits[at].replace.replace("\r\n", "\n"));
    }
    if out == text { Err(vec![EditError::NoChange]) } else { Ok(out) }
}

fn find_only_match(text: &str, search: &str, index: usize) -> Result<Range<usize>, EditError> {
    let search = search.replace("\r\n", "\n");
    if search.is_empty() {
        return Err(EditError::Empty { index });
    }
    // Overlapping matches count too: `aa` occurs twice in `aaa`.
    let mut matches = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find(&search) {
        let start = from + at;
        matches.push(start);
        from = start + text[start..].chars().next().map_or(1, char::len_utf8);
        if matches.len() > 9 {
            break;
        }
    }
    let shown = || truncate(&search, 120).to_owned();
    match matches[..] {
        [] => Err(EditError::NotFound { index, search: shown() }),
        [start] => Ok(start..start + search.len()),
        _ => Err(EditError::Several { index, times: matches.len(), search: shown() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_edit(search: &str, replace: &str) -> Edit {
        Edit { search: search.into(), replace: replace.into() }
    }

    #[test]
    fn each_edit_applies_to_the_original_text_and_not_to_earlier_edits() {
        let edits = [make_edit("two", "one"), make_edit("one", "two"), make_edit(" é", "")];
        assert_eq!(apply("one two é", &edits).unwrap(), "two one");
        assert_eq!(apply("a\nb", &[make_edit("a\r\nb", "c\r\nd")]).unwrap(), "c\nd");
    }

    #[test]
    fn edits_with_errors_return_every_error_and_change_nothing() {
        let errors = apply(
            "aaa bcd",
            &[
                make_edit("aa", "x"),
                make_edit("zz", "x"),
                make_edit("", "x"),
                make_edit("bc", "x"),
                make_edit("cd", "y"),
            ],
        )
        .unwrap_err();
        insta::assert_snapshot!(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"), @r#"
        edit 1: the search text occurs 2 times, take in more around it: `aa`
        edit 2: the search text does not occur: `zz`
        edit 3: the search text is empty
        edit 5: it overlaps edit 4; make them one
        "#);
        assert_eq!(apply("a", &[make_edit("a", "a")]), Err(vec![EditError::NoChange]));
    }

    #[test]
    fn only_a_complete_response_is_parsed_as_edits() {
        let good = r#"{"edits":[{"search":"a","replace":""}],"replies":[]}"#;
        assert_eq!(parse(good).unwrap().edits, [make_edit("a", "")]);
        assert_eq!(parse(r#"{"edits": [], "replies": []}"#), Err(RevisionError::NoEdits(Vec::new())));
        let reply = |word: &str| {
            parse(&format!(
                r#"{{"edits": [], "replies": [{{"finding":"F1","disposition":"{word}","why":"w"}}]}}"#
            ))
        };
        assert!(
            matches!(reply("fixed"), Err(RevisionError::NoEdits(replies)) if replies.len() == 1),
            "nothing was changed"
        );
        assert!(reply("rebutted").unwrap().has_only_replies());
        assert_eq!(reply("dismissed"), Err(RevisionError::NotOneObject), "that is for people");
        for bad in [
            "",
            "# A whole document",
            r#"{"edits":[{"search":"a"}]}"#,
            r#"{"edits":[],"edits":[],"replies":[]}"#,
            &format!("{good}{good}"),
        ] {
            assert_eq!(parse(bad), Err(RevisionError::NotOneObject), "{bad}");
        }
    }
}
