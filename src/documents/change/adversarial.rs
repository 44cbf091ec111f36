//! Adversarial tests, which a reviewing model writes to make the code fail. Defines the format of the model's answer
//! and adds the tests to the change.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    ChangeScope, ChangeSection, FileChange, ParsedChange, is_executed, parse, parse::count_backticks,
};
use crate::documents::{as_json_object, path_rules, quotable_path, truncate};

/// Maximum number of adversarial tests per change. People would not read more of them at the gate.
pub const MOST_ADVERSARIAL: usize = 5;

const TEXT_BYTES: usize = 8_000;
const WORD_BYTES: usize = 200;
const WHY_CHARS: usize = 600;

/// An adversarial test, in its own file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdversarialTestFile {
    pub path: String,
    pub name: String,
    /// Requirement of the spec that the test checks, such as `REQ-2`.
    pub requirement: String,
    /// Suspected fault of the code.
    pub why: String,
    /// Full text of the file.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdversarialAnswer {
    tests: Vec<AdversarialTestFile>,
}

/// Returns the JSON Schema of the answer.
pub fn schema() -> Value {
    let fields = ["path", "name", "requirement", "why", "text"];
    let properties: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), json!({ "type": "string" }))).collect();
    json!({
        "type": "object",
        "properties": { "tests": { "type": "array", "items": {
            "type": "object", "properties": properties, "required": fields, "additionalProperties": false,
        } } },
        "required": ["tests"],
        "additionalProperties": false,
    })
}

/// Returns the schema's rules in words, for the prompt. `tests` are the paths of the change's test files.
pub fn prompt_rules(tests: &BTreeSet<String>) -> String {
    let tests: Vec<String> = tests.iter().map(|path| format!("`{}`", quotable_path(path))).collect();
    format!(
        "Answer with one JSON object `{{\"tests\": [{{\"path\": …, \"name\": …, \"requirement\": …, \"why\": …, \"text\": …}}]}}` \
         and nothing else: at most {MOST_ADVERSARIAL} tests that the code of this change may fail although its own tests pass. \
         Each asserts what the specification demands, at a place where the code may do otherwise: a bound, an order, what is \
         empty, twice there or malformed, and first of all in lines that no test runs, where some are named above. `requirement` is the one of its Test Mapping that the test shows, as `REQ-2`; what \
         no requirement demands is no test. `text` is the whole of a new file that holds this test alone, which has the name \
         `name`, asserts something, is not skipped and depends on nothing but the code; `path` lies in the folder of one of {}, \
         with the same ending, and is not there yet. `why` says in a sentence what the code would do wrong. Where you know of \
         none, the list is empty.\n",
        tests.join(", ")
    )
}

/// Parses the answer and returns its tests with the number of dropped tests. Drops invalid tests and tests beyond the
/// maximum number. Returns `None` if the answer does not match the schema.
pub fn parse_answer(answer: &str) -> Option<(Vec<AdversarialTestFile>, usize)> {
    let AdversarialAnswer { tests } = serde_json::from_str(as_json_object(answer)?).ok()?;
    let all = tests.len();
    let is_valid = |test: &AdversarialTestFile| {
        let words = [&test.path, &test.name, &test.requirement];
        test.text.len() <= TEXT_BYTES
            && !test.text.trim().is_empty()
            && words.iter().all(|word| word.len() <= WORD_BYTES && is_plain(word))
            && path_rules::refusal_reason(test.path.trim()).is_none()
    };
    let valid = tests.into_iter().filter(is_valid).take(MOST_ADVERSARIAL).map(|test| AdversarialTestFile {
        path: test.path.trim().to_owned(),
        name: test.name.trim().to_owned(),
        requirement: test.requirement.trim().to_ascii_uppercase(),
        why: truncate(test.why.trim(), WHY_CHARS).to_owned(),
        text: format!("{}\n", test.text.replace("\r\n", "\n").trim_end()),
    });
    let valid: Vec<_> = valid.collect();
    let dropped = all - valid.len();
    Some((valid, dropped))
}

/// Returns whether the text can be quoted in our sentences, because it contains neither markup nor line breaks.
fn is_plain(word: &str) -> bool {
    word.trim().chars().all(|c| c.is_alphanumeric() || " _-.,:'/()[]+@=".contains(c))
}

impl AdversarialTestFile {
    /// Returns the reason why the file is not a valid test of this change, worded as the end of a sentence. Whether the
    /// file may be written is not checked here but by the checks of the change.
    pub fn refusal_reason(&self, allowed: &ChangeScope) -> Option<&'static str> {
        let place = |path: &str| {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            (folder.to_owned(), name.split_once('.').map(|(_, end)| end.to_owned()))
        };
        let beside = || allowed.rows.iter().any(|row| place(&row.file) == place(&self.path));
        let cited = || allowed.rows.iter().any(|row| row.requirements.contains(&self.requirement));
        match () {
            () if !cited() => Some("cites no requirement of the spec"),
            () if allowed.files.contains_key(&self.path) => {
                Some("has the path of another file of the change")
            }
            () if !beside() || is_executed(&self.path) => {
                Some("is not next to a test of the change, with the same ending")
            }
            () => None,
        }
    }
}

/// Returns the text of the change with these files appended to its tests section.
pub fn with_adversarial_tests<'a>(
    text: &str,
    tests: impl IntoIterator<Item = &'a AdversarialTestFile>,
) -> String {
    let change = parse(text);
    let Some((_, range)) = change.sections.iter().find(|(part, _)| *part == ChangeSection::Tests) else {
        return text.to_owned();
    };
    let mut out = text[..range.end].trim_end().to_owned();
    for AdversarialTestFile { path, requirement, text, .. } in tests {
        let longest = text.lines().map(|line| count_backticks(line.trim_start())).max().unwrap_or(0);
        // A fence of three could be closed by a later line.
        let fence = "`".repeat((longest + 1).max(4));
        out.push_str(&format!("\n\n### `{path}` (Add)\n\nProves: {requirement}\n\n{fence}\n{text}{fence}"));
    }
    format!("{out}\n\n{}", &text[range.end..]).trim_end().to_owned() + "\n"
}

impl ChangeScope {
    /// Adds the test files of `tests` to the files that the change may touch.
    #[must_use]
    pub fn with_tests(mut self, tests: &ParsedChange) -> Self {
        for FileChange { path, kind, .. } in tests.files_in(ChangeSection::Tests) {
            if !self.files.contains_key(path) {
                self.files.insert(path.clone(), *kind);
                self.tests.insert(path.clone());
            }
        }
        self
    }
}
