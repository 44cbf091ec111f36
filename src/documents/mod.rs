//! The documents that a run writes and checks: issue, design, spec, change, verdicts and findings.
//!
//! The module is pure: it reads no file, clock or network, and sees a repository only through [`FileTree`] and
//! [`CodebaseLookup`]. Parsed documents refer to their text by byte ranges. We never re-render Markdown that a model
//! wrote.

pub mod change;
mod drawings;
pub mod edits;
pub mod findings;
pub mod hidden_text;
pub mod issue;
pub mod lld;
pub(crate) mod markdown;
pub mod open_questions;
pub mod owners;
mod path_rules;
pub mod routing;
pub mod scout;
pub mod secrets;
pub mod shorten;
pub mod spec;
pub mod verdict;

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// Title, goal and files of a document of any kind.
#[derive(Debug, Clone)]
pub struct DocumentSummary {
    pub title: String,
    /// Goal of the document.
    pub goal: String,
    /// Files that the document names.
    pub paths: Vec<String>,
}

/// Summarizes an issue, a design, a spec, or another document with a design's schema.
pub fn summarize(text: &str) -> DocumentSummary {
    let issue = issue::parse(text);
    if let Some(goal) = issue.section("Summary").filter(|_| !issue.criteria.is_empty()) {
        let paths = issue.files.into_iter().map(|file| file.path).collect();
        return DocumentSummary { title: issue.title, goal: text[goal].trim().to_owned(), paths };
    }
    let spec = spec::parse(text);
    let design = if spec.view.files.is_empty() { lld::parse(text) } else { spec.view };
    let goal = design.section("1").map_or("", |section| &text[section.body.clone()]);
    let goal = goal.split("\n#").next().unwrap_or_default().trim().to_owned();
    DocumentSummary {
        title: design.title,
        goal,
        paths: design.files.into_iter().map(|row| row.path).collect(),
    }
}

/// Returns the function that ranks the document's sections when it is shortened; `None` if the document is neither a
/// design nor a spec.
pub fn rank_function(text: &str) -> Option<fn(&str) -> Option<shorten::SectionRank>> {
    let design = lld::parse(text);
    if !design.files.is_empty() && !design.requirements.is_empty() {
        return Some(lld::section_rank);
    }
    let spec = spec::parse(text);
    (!spec.view.files.is_empty() && !spec.tests.is_empty()).then_some(spec::section_rank)
}

/// Paths of the repository that a document is about, without a leading slash.
pub trait FileTree {
    fn is_file(&self, path: &str) -> bool;
    fn is_dir(&self, path: &str) -> bool;
    /// Returns a few existing paths similar to this one, best first.
    fn nearest_paths(&self, path: &str) -> Vec<String>;
    /// Returns whether the path is a symbolic link or a submodule, neither of which we follow.
    fn is_link(&self, _path: &str) -> bool {
        false
    }
    /// Returns whether the file is executable. Changes to it are refused, because a commit through GitHub's API would
    /// remove the executable bit.
    fn is_executable(&self, _path: &str) -> bool {
        false
    }
    /// Returns every file and link.
    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(std::iter::empty())
    }
}

/// Looks up names in the repository that a document is about.
pub trait CodebaseLookup {
    fn tree(&self) -> &dyn FileTree;
    /// Returns whether a file or folder in the repository has this path or a path that ends with it. Also returns true
    /// if such a file may exist after a build.
    fn may_contain(&self, path: &str) -> bool;
    /// Returns whether any file or path contains this word. The result may be true for a word that does not occur, but
    /// it is never false for a word that does.
    fn has_word(&self, word: &str) -> bool;
    /// Returns whether all code was read. If not, a word that was not found may occur in the unread code.
    fn has_read_all(&self) -> bool;
    /// Returns whether a folder, a file or a definition has this name.
    fn defines_name(&self, name: &str) -> bool;
    /// Returns the existing name that was probably meant if `word` is a misspelling, together with the name's location.
    fn closest_name(&self, word: &str) -> Option<String>;
    /// Returns the imports in a code block that do not resolve in this repository. `files` are the files that the
    /// design changes or adds.
    fn unresolved_imports(&self, tag: &str, code: &str, files: &[&str]) -> Vec<UnresolvedImport>;
}

/// An import that does not resolve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedImport {
    /// Module as written, such as `crate::confg` or `./util`.
    pub module: String,
    /// Missing part of the module path, or missing name in the module.
    pub name: String,
    /// Similar existing name, if there is one.
    pub nearest: Option<String>,
    /// Whether the import is wrong in every file in which the code could be placed.
    pub is_certain: bool,
}

/// A mistake that a check found in a document. The message is a sentence that tells the drafter how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMistake {
    /// Stable name of the rule, such as `files.missing`.
    pub rule: Cow<'static, str>,
    pub severity: MistakeSeverity,
    /// Location in the document, such as `Files Changed`, `H1` or `REQ-3`.
    pub place: String,
    pub message: String,
    /// Name that the mistake is about, such as `src/config.rs load_all`, or an import's module and name. With this
    /// name, a mistake is recognized even if its location or message has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

/// Severity of a mistake. A document with an error is not reviewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MistakeSeverity {
    Warning,
    Error,
}

impl DocumentMistake {
    fn error(rule: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        let (rule, place, message) = (rule.into(), place.into(), message.into());
        Self { rule, severity: MistakeSeverity::Error, place, message, about: None }
    }

    fn warning(rule: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: MistakeSeverity::Warning, ..Self::error(rule, place, message) }
    }

    fn with_name(self, name: &str) -> Self {
        Self { about: Some(truncate(name, 300).to_owned()), ..self }
    }

    fn downgrade_unless(self, sure: bool) -> Self {
        Self { severity: if sure { self.severity } else { MistakeSeverity::Warning }, ..self }
    }

    pub fn is_error(&self) -> bool {
        self.severity == MistakeSeverity::Error
    }

    /// Returns whether the author may dispute the mistake, because its check judges words and can be wrong. Without
    /// the other rules, a text could not be used: its form, paths, scope, secrets and test runs.
    pub fn is_disputable(&self) -> bool {
        const RULES: &str = "coverage.vague coverage.human done.path names.path names.import names.word types.sample \
            functions.values functions.design changes.vague tests.expected tests.baseline tests.error tests.platform \
            tests.hollow";
        RULES.split(' ').any(|rule| rule == self.rule)
    }
}

impl fmt::Display for DocumentMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.message, self.rule)
    }
}

/// Returns the answer without surrounding blanks if it starts and ends like a JSON object. Returns `None` if there is
/// other text around the object.
fn as_json_object(answer: &str) -> Option<&str> {
    let text = answer.trim();
    (text.starts_with('{') && text.ends_with('}')).then_some(text)
}

/// Removes a byte order mark and one code fence around the whole answer. Some models add these even if the prompt
/// forbids them.
pub fn strip_fence(answer: &str) -> &str {
    let text = answer.trim().trim_start_matches('\u{feff}').trim_start();
    let rest = text.trim_start_matches(['`', '~']);
    let fence = Some(&text[..text.len() - rest.len()]).filter(|fence| fence.len() >= 3);
    let inside = fence.and_then(|fence| rest.strip_suffix(fence));
    match inside.and_then(|inside| inside.split_once('\n')) {
        Some((tag, inside)) if tag.trim().chars().all(char::is_alphanumeric) => inside.trim(),
        _ => text,
    }
}

/// Truncates `text` to `cap` characters.
fn truncate(text: &str, cap: usize) -> &str {
    text.char_indices().nth(cap).map_or(text, |(at, _)| &text[..at])
}

/// Returns whether the character is invisible or changes the text direction. With such characters, the text that a
/// model reads differs from the text that a person sees.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0E}'
        | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Replaces all line ends by `\n`. Markdown also ends a line at `\r`, with or without `\n` after it.
pub(crate) fn unix_lines(text: String) -> String {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }
}

/// Escapes control characters and invisible characters.
pub(crate) fn escape_control_characters(text: &str) -> String {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || is_invisible(c);
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if steers(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// Returns a path in a form that is safe to quote in a message. Models trust our messages, so backticks in the path are
/// replaced and a long path is truncated.
fn quotable_path(path: &str) -> String {
    const LONGEST: usize = 120;
    let plain = |c: char| match c {
        '`' => '\'',
        c if c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}') => '?',
        c => c,
    };
    let cut = truncate(path, LONGEST);
    let end = if cut.len() < path.len() { "…" } else { "" };
    cut.chars().map(plain).chain(end.chars()).collect()
}

/// Returns the name if it is safe to quote in a message; otherwise `None`. A safe name is a single word of at most 60
/// letters, digits or underscores.
fn as_identifier(name: &str) -> Option<&str> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    ((1..=60).contains(&name.len()) && name.bytes().all(word)).then_some(name)
}
