//! A reviewer's answer: its schema, its rules for the prompt, and its parser.
//!
//! A verdict counts only if it is a field of a valid answer that echoes the call's nonce. The parser neither searches
//! other text for a verdict nor guesses one.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{as_json_object, truncate};
use crate::types::Verdict;

/// Severity of a finding. Only a blocking finding stops a document by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingSeverity {
    Suggestion,
    High,
    Blocking,
}

impl FindingSeverity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Suggestion => "suggestion",
            Self::High => "high",
            Self::Blocking => "blocking",
        }
    }
}

/// A finding as the reviewer wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFinding {
    pub severity: FindingSeverity,
    pub category: String,
    pub place: String,
    pub title: String,
    pub detail: String,
    /// ID of the earlier finding that this finding repeats, such as `F3`.
    pub repeats: Option<String>,
}

impl RawFinding {
    /// Returns whether the finding is about security or data loss. New findings of this kind are accepted even in late
    /// rounds.
    pub fn is_security_or_data_loss(&self) -> bool {
        let letters = |c: &char| c.is_ascii_alphabetic();
        let category: String = self.category.chars().filter(letters).collect::<String>().to_ascii_lowercase();
        matches!(category.as_str(), "security" | "dataloss")
    }
}

/// A valid answer of a reviewer. Its verdict is never `Inconclusive`, because only our code assigns that verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewAnswer {
    pub verdict: Verdict,
    pub rationale: String,
    pub findings: Vec<RawFinding>,
    /// IDs of earlier findings that the reviewer reports as fixed, such as `F1`.
    pub resolved: Vec<String>,
}

impl ReviewAnswer {
    pub fn has_blocking_finding(&self) -> bool {
        self.findings.iter().any(|f| f.severity == FindingSeverity::Blocking)
    }

    /// Demotes findings whose location does not exist to suggestions. Returns the indices of these findings.
    pub fn demote_unplaced(&mut self, exists: impl Fn(&str) -> bool) -> Vec<usize> {
        let mut demoted = Vec::new();
        for (index, finding) in self.findings.iter_mut().enumerate() {
            if finding.severity > FindingSeverity::Suggestion && !exists(&finding.place) {
                finding.severity = FindingSeverity::Suggestion;
                demoted.push(index);
            }
        }
        demoted
    }
}

/// Error in a reviewer's answer. The caller asks again and never guesses a verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewAnswerError {
    #[error("the answer is not one JSON object and nothing else")]
    NotOneObject,
    #[error("the answer does not fit the schema: {0}")]
    Shape(String),
    #[error("the answer does not carry this call's nonce")]
    Nonce,
    #[error("the verdict is {0} but there is no finding that says why")]
    NoFinding(Verdict),
    #[error("the verdict is APPROVED but a finding is blocking")]
    ApprovedThoughBlocking,
    #[error("`{0}` is empty")]
    Empty(&'static str),
    #[error("`{field}` is longer than {cap}")]
    TooLong { field: &'static str, cap: usize },
}

const FINDINGS: usize = 40;
const RESOLVED: usize = 200;
const RATIONALE_CHARS: usize = 4_000;
const TITLE_CHARS: usize = 200;
const DETAIL_CHARS: usize = 4_000;
const WORD_CHARS: usize = 80;

/// Returns the JSON Schema of the answer, in the subset that all providers support.
pub fn schema() -> Value {
    let text = json!({ "type": "string" });
    let fields = ["severity", "category", "place", "title", "detail", "repeats"];
    json!({
        "type": "object",
        "properties": {
            "nonce": text,
            "verdict": { "type": "string", "enum": ["APPROVED", "REVISE", "BLOCKED"] },
            "rationale": text,
            "findings": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "severity": { "type": "string", "enum": ["blocking", "high", "suggestion"] },
                        "category": text,
                        "place": text,
                        "title": text,
                        "detail": text,
                        "repeats": { "type": ["string", "null"] },
                    },
                    "required": fields,
                    "additionalProperties": false,
                },
            },
            "resolved": { "type": "array", "items": text },
        },
        "required": ["nonce", "verdict", "rationale", "findings", "resolved"],
        "additionalProperties": false,
    })
}

/// Returns the schema's rules in words, for the prompt.
pub fn prompt_rules() -> String {
    format!(
        "Answer with one JSON object that fits the schema, and nothing else.\n\
         - `nonce`: the eight characters this prompt gives, copied exactly.\n\
         - `verdict`: APPROVED when it can be built as it stands; REVISE when findings must be dealt with first; \
         BLOCKED when it should not be built in this form at all. REVISE and BLOCKED need at least one finding; \
         APPROVED allows none that is blocking.\n\
         - `rationale`: the reason for the verdict in a few sentences (at most {RATIONALE_CHARS} characters).\n\
         - `findings` (at most {FINDINGS}): `severity` is blocking (wrong, unsafe or impossible as written), high \
         (should change) or suggestion. `category` is one word such as correctness, security, data-loss, scope, tests. `place` is \
         exactly one section title (`Files Changed`), requirement (`REQ-3`), scenario id (`010`) or path of the repository; \
         a finding whose place does not exist counts as a suggestion. `title` is one line (at most \
         {TITLE_CHARS} characters); `detail` says what is wrong and what would settle it (at most {DETAIL_CHARS}). \
         `repeats` is the id of the earlier finding (`F2`) this says again, else null.\n\
         - `resolved`: the ids of earlier findings that are settled: fixed now, or the author's answer to them convinces \
         you. What does not convince you is repeated as a finding. APPROVED accounts for every open finding that \
         is blocking: its id stands here, or a finding that is not blocking repeats it.\n"
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviewAnswerJson {
    nonce: String,
    verdict: ReviewerVerdict,
    rationale: String,
    findings: Vec<RawFinding>,
    resolved: Vec<String>,
}

/// Verdicts that a reviewer may give.
#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum ReviewerVerdict {
    Approved,
    Revise,
    Blocked,
}

/// Parses an answer: one JSON object and nothing else.
pub fn parse(answer: &str, nonce: &str) -> Result<ReviewAnswer, ReviewAnswerError> {
    let object = as_json_object(answer).ok_or(ReviewAnswerError::NotOneObject)?;
    let answer = serde_json::from_str(object).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => ReviewAnswerError::Shape(one_line(&error)),
        _ => ReviewAnswerError::NotOneObject,
    })?;
    validate(answer, nonce)
}

fn one_line(error: &serde_json::Error) -> String {
    let line = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    truncate(&line, 200).to_owned()
}

fn validate(answer: ReviewAnswerJson, nonce: &str) -> Result<ReviewAnswer, ReviewAnswerError> {
    if nonce.is_empty() || answer.nonce != nonce {
        return Err(ReviewAnswerError::Nonce);
    }
    check_limits(&answer)?;
    let verdict = match answer.verdict {
        ReviewerVerdict::Approved => Verdict::Approved,
        ReviewerVerdict::Revise => Verdict::Revise,
        ReviewerVerdict::Blocked => Verdict::Blocked,
    };
    let ReviewAnswerJson { rationale, findings, resolved, .. } = answer;
    let review = ReviewAnswer { verdict, rationale, findings, resolved };
    match verdict {
        Verdict::Approved if review.has_blocking_finding() => Err(ReviewAnswerError::ApprovedThoughBlocking),
        Verdict::Revise | Verdict::Blocked if review.findings.is_empty() => {
            Err(ReviewAnswerError::NoFinding(verdict))
        }
        _ => Ok(review),
    }
}

fn check_limits(answer: &ReviewAnswerJson) -> Result<(), ReviewAnswerError> {
    let text = |field, text: &str, cap| {
        if text.trim().is_empty() {
            Err(ReviewAnswerError::Empty(field))
        } else if text.chars().nth(cap).is_some() {
            Err(ReviewAnswerError::TooLong { field, cap })
        } else {
            Ok(())
        }
    };
    let count = |field, count: usize, cap| {
        if count > cap { Err(ReviewAnswerError::TooLong { field, cap }) } else { Ok(()) }
    };
    text("rationale", &answer.rationale, RATIONALE_CHARS)?;
    count("findings", answer.findings.len(), FINDINGS)?;
    count("resolved", answer.resolved.len(), RESOLVED)?;
    for finding in &answer.findings {
        text("category", &finding.category, WORD_CHARS)?;
        text("place", &finding.place, TITLE_CHARS)?;
        text("title", &finding.title, TITLE_CHARS)?;
        text("detail", &finding.detail, DETAIL_CHARS)?;
        if let Some(repeats) = &finding.repeats {
            count("repeats", repeats.len(), WORD_CHARS)?;
        }
    }
    answer.resolved.iter().try_for_each(|id| text("resolved", id, WORD_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: &str = "a1b2c3d4";

    fn finding_json(severity: &str) -> Value {
        json!({ "severity": severity, "category": "tests", "place": "2.1", "title": "t", "detail": "d", "repeats": null })
    }

    fn answer_json(verdict: &str, findings: Vec<Value>) -> Value {
        json!({ "nonce": NONCE, "verdict": verdict, "rationale": "r", "findings": findings, "resolved": [] })
    }

    #[test]
    fn verdict_is_parsed_only_from_one_complete_json_object() {
        let good = answer_json("APPROVED", vec![]).to_string();
        assert!(parse(&format!("\n{good}\n"), NONCE).is_ok());
        for (text, why) in [
            (String::new(), ReviewAnswerError::NotOneObject),
            ("APPROVED".into(), ReviewAnswerError::NotOneObject),
            (format!("Sure! {good}"), ReviewAnswerError::NotOneObject),
            (format!("{good}{good}"), ReviewAnswerError::NotOneObject),
            (format!("{good} trailing }}"), ReviewAnswerError::NotOneObject),
            (format!("[{good}]"), ReviewAnswerError::NotOneObject),
            (format!("```json\n{good}\n```"), ReviewAnswerError::NotOneObject),
            (good[..good.len() - 1].into(), ReviewAnswerError::NotOneObject),
            (good.replace(NONCE, "a1b2c3d5"), ReviewAnswerError::Nonce),
        ] {
            assert_eq!(parse(&text, NONCE), Err(why), "{text}");
        }
        for text in [
            good.replace("APPROVED", "approved"),
            good.replace("APPROVED", "INCONCLUSIVE"),
            good.replacen('{', "{\"verdict\":\"REVISE\",", 1),
            good.replacen('{', "{\"extra\":1,", 1),
            good.replace("\"resolved\":[],", "").replace(",\"resolved\":[]", ""),
            good.replace("\"r\"", "null"),
        ] {
            assert!(matches!(parse(&text, NONCE), Err(ReviewAnswerError::Shape(_))), "{text}");
        }
    }

    #[test]
    fn verdict_that_contradicts_its_findings_is_refused() {
        let read = |verdict, findings| parse(&answer_json(verdict, findings).to_string(), NONCE);
        assert_eq!(read("BLOCKED", vec![]), Err(ReviewAnswerError::NoFinding(Verdict::Blocked)));
        assert_eq!(
            read("APPROVED", vec![finding_json("blocking")]),
            Err(ReviewAnswerError::ApprovedThoughBlocking)
        );
        assert!(read("APPROVED", vec![finding_json("high")]).is_ok());
        assert!(matches!(
            read("REVISE", vec![finding_json("high"); 41]),
            Err(ReviewAnswerError::TooLong { .. })
        ));
        assert_eq!(parse(&answer_json("APPROVED", vec![]).to_string(), ""), Err(ReviewAnswerError::Nonce));
    }

    #[test]
    fn blocking_finding_needs_a_place_that_exists() {
        let value = answer_json("REVISE", vec![finding_json("blocking"), finding_json("high")]);
        let mut review = parse(&value.to_string(), NONCE).unwrap();
        assert_eq!(review.demote_unplaced(|place| place == "3"), [0, 1]);
        assert!(!review.has_blocking_finding());
    }

    #[test]
    fn verdict_schema_has_exactly_the_fields_that_are_parsed() {
        let schema = schema();
        let fields: Vec<_> = schema["properties"].as_object().unwrap().keys().cloned().collect();
        let value = answer_json("APPROVED", vec![]);
        let read: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, read);
    }
}
