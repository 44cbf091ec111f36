//! Adversarial tests, which a reviewing model writes to make the code fail. Defines the format of the model's answer
//! and adds the tests to the change.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    ChangeScope, ChangeSection, FileChange, FileChangeBody, ParsedChange,
    apply::apply_file,
    can_hold_inline_tests, is_executed, mentions_test, parse,
    workspace::{block_content, fenced},
};
use crate::documents::{as_json_object, path_rules, quotable_path, truncate};

/// Maximum number of adversarial tests per change. People would not read more of them at the gate.
pub const MOST_ADVERSARIAL: usize = 5;

const TEXT_BYTES: usize = 8_000;
const WORD_BYTES: usize = 200;
const WHY_CHARS: usize = 600;

/// An adversarial test, in a test file of the change or in a new file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdversarialTestFile {
    pub path: String,
    pub name: String,
    /// Requirement of the spec that the test checks, such as `REQ-2`.
    pub requirement: String,
    /// Suspected fault of the code.
    pub why: String,
    /// Text of the test, or full text of the new file.
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
         no requirement demands is not to be tested. `text` is the test alone, which has the name `name`, asserts something, is not skipped \
         and depends on nothing but the code; it is added to the end of `path`, which is one of {}, and in a `tests` module of Rust \
         to the end of the module. What that file does not import yet is imported within the test; where the language cannot, \
         `path` is a new file in the same folder with the same ending, and `text` the whole of it. `why` says in a sentence what the code would do wrong. Where you know of \
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
    /// Returns the file of the test, and its name if other tests of the change `text` are in that file.
    pub fn place(&self, text: &str) -> String {
        let is_shared = parse(text).files_in(ChangeSection::Tests).any(|file| file.path == self.path);
        if is_shared { format!("{}: {}", self.path, self.name) } else { self.path.clone() }
    }

    /// Returns whether the test's file in the change `text` mentions the test's name.
    pub fn is_known(&self, text: &str) -> bool {
        let change = parse(text);
        let files = change.files.iter().filter(|file| file.path == self.path);
        files.into_iter().any(|file| mentions_test(&file.new_text(), &self.name))
    }

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
                let is_test_file =
                    [&allowed.tests, &allowed.inline].iter().any(|all| all.contains(&self.path));
                (!is_test_file).then_some("is in a file without tests")
            }
            () if !beside() || is_executed(&self.path) => {
                Some("is not next to a test of the change, with the same ending")
            }
            () => None,
        }
    }
}

/// Returns the text of the change with these tests in its tests section: at the end of their files, or in new files.
/// `base` has the texts of the existing files.
pub fn with_adversarial_tests<'a>(
    text: &str,
    tests: impl IntoIterator<Item = &'a AdversarialTestFile>,
    base: &BTreeMap<String, String>,
) -> String {
    tests.into_iter().fold(text.to_owned(), |text, test| {
        with_test(&text, test, base).unwrap_or_else(|| with_new_file(&text, test))
    })
}

/// Adds a test to its file. Returns `None` if the change has no such test file.
fn with_test(text: &str, test: &AdversarialTestFile, base: &BTreeMap<String, String>) -> Option<String> {
    let change = parse(text);
    let file = change.files_in(ChangeSection::Tests).find(|file| file.path == test.path)?;
    let base = base.get(&test.path).map(String::as_str);
    let before = apply_file(file, base).ok()??;
    // In a source file of Rust the last line closes the tests' module.
    let module = before.rfind("\n}").filter(|_| can_hold_inline_tests(&test.path));
    let (above, below) = before.split_at(module.map_or(before.len(), |at| at + 1));
    let tests = if module.is_some() { indent(test.text.trim_end()) } else { test.text.trim_end().to_owned() };
    let after = format!("{}\n\n{tests}\n{below}", above.trim_end());
    let longest = if matches!(file.body, FileChangeBody::Whole(_)) { usize::MAX } else { 0 };
    let (block, length) = file.block.as_ref()?;
    let language = text[block.start + length..file.content.start].trim();
    let fence = fenced(&block_content(base, &after, longest), language);
    let proves = format!("Proves: {}\n\n", test.requirement);
    let proves = if file.proves.contains(&test.requirement) { "" } else { &proves };
    Some(format!("{}{proves}{fence}{}", &text[..block.start], &text[block.end..]))
}

/// Indents Rust code by one level. Leaves it as it is if a string may continue on the next line.
fn indent(code: &str) -> String {
    let is_closed =
        |line: &str| line.replace("\\\"", "").replace("'\"'", "").matches('"').count().is_multiple_of(2);
    if code.contains("r#") || !code.lines().all(is_closed) {
        return code.to_owned();
    }
    let lines = code.lines().map(|line| if line.is_empty() { String::new() } else { format!("    {line}") });
    lines.collect::<Vec<_>>().join("\n")
}

/// Adds a new file to the tests section.
fn with_new_file(text: &str, test: &AdversarialTestFile) -> String {
    let change = parse(text);
    let Some((_, range)) = change.sections.iter().find(|(part, _)| *part == ChangeSection::Tests) else {
        return text.to_owned();
    };
    let AdversarialTestFile { path, requirement, text: content, .. } = test;
    let out = text[..range.end].trim_end();
    let file = format!("### `{path}` (Add)\n\nProves: {requirement}\n\n{}", fenced(content, ""));
    format!("{out}\n\n{file}\n{}", &text[range.end..]).trim_end().to_owned() + "\n"
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
