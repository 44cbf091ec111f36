//! The documents a run makes and judges: the design, the verdict on it, the findings, the edits.
//!
//! Pure: text in, values out. Nothing here reads a file, a clock or the network; a repository is
//! seen only through [`FileTree`] and [`CodebaseLookup`]. The text *is* the document: a parsed view points into it by byte
//! ranges, and Markdown a model wrote is never rendered anew.

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

/// What a document says in short, whatever its kind.
#[derive(Debug, Clone)]
pub struct DocumentSummary {
    pub title: String,
    /// What is to be reached.
    pub goal: String,
    /// The files it is about.
    pub paths: Vec<String>,
}

/// Reads a document of any kind that a workflow here publishes.
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

/// How the sections of a text give way when it is shortened, if it is of a kind that a workflow here publishes.
pub fn rank_function(text: &str) -> Option<fn(&str) -> Option<shorten::SectionRank>> {
    let design = lld::parse(text);
    if !design.files.is_empty() && !design.requirements.is_empty() {
        return Some(lld::section_rank);
    }
    let spec = spec::parse(text);
    (!spec.view.files.is_empty() && !spec.tests.is_empty()).then_some(spec::section_rank)
}

/// What a document may ask of the repository it talks about. Paths have no leading slash.
pub trait FileTree {
    fn is_file(&self, path: &str) -> bool;
    fn is_dir(&self, path: &str) -> bool;
    /// A few existing paths that look like this one, best first.
    fn nearest_paths(&self, path: &str) -> Vec<String>;
    /// Is a link there, or another repository? Neither is followed.
    fn is_link(&self, _path: &str) -> bool {
        false
    }
    /// Is it a file that may be run? A commit made by GitHub's API would take that from it.
    fn is_executable(&self, _path: &str) -> bool {
        false
    }
    /// Every file and link.
    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(std::iter::empty())
    }
}

/// What a document may ask of the code it talks about.
pub trait CodebaseLookup {
    fn tree(&self) -> &dyn FileTree;
    /// May a file or folder be there whose path is this, or ends with it? A build may make it as well.
    fn may_contain(&self, path: &str) -> bool;
    /// Does any file spell this word, or any path? Never denied of one that is there.
    fn has_word(&self, word: &str) -> bool;
    /// Was all code read? Otherwise a word may be in what was not.
    fn has_read_all(&self) -> bool;
    /// Is a folder, a file or what a file defines called so?
    fn defines_name(&self, name: &str) -> bool;
    /// The real name that a word is a slip of, with where it is.
    fn closest_name(&self, word: &str) -> Option<String>;
    /// What a block of code imports of this repository and is not there, in a design that changes and adds these files.
    fn unresolved_imports(&self, tag: &str, code: &str, files: &[&str]) -> Vec<UnresolvedImport>;
}

/// An import of what is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnresolvedImport {
    /// As the import has it: `crate::confg`, `./util`.
    pub module: String,
    /// The part of it that is not there, or what is taken from it.
    pub name: String,
    /// A real one like it.
    pub nearest: Option<String>,
    /// It can mean nothing else, wherever the code is put.
    pub is_certain: bool,
}

/// Something wrong with a document, found by code and said in one sentence with the fix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMistake {
    /// The rule's name, stable: `files.missing`.
    pub rule: Cow<'static, str>,
    pub severity: MistakeSeverity,
    /// Where: `Files Changed`, `H1`, `REQ-3`.
    pub place: String,
    pub message: String,
    /// The name that it is about, wherever in the document that stands and whatever is said of it: `src/config.rs
    /// load_all`, an import's module and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

/// Does a mistake stop the document?
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
}

impl fmt::Display for DocumentMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.message, self.rule)
    }
}

/// An answer that should be one JSON object: its text. Nothing is forgiven, and nothing is searched for.
fn as_json_object(answer: &str) -> Option<&str> {
    let text = answer.trim();
    (text.starts_with('{') && text.ends_with('}')).then_some(text)
}

/// An answer without a byte order mark and one fence around the whole: some models put them there whatever they are told.
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

/// At most `cap` characters of `text`, cut between characters.
fn truncate(text: &str, cap: usize) -> &str {
    text.char_indices().nth(cap).map_or(text, |(at, _)| &text[..at])
}

/// Characters that show nothing, or turn the direction of what follows: what a reader sees is then
/// not what a model is told.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FE00}'..='\u{FE0E}'
        | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// The text with `\n` at the end of each line. Markdown ends a line also at `\r`, alone or before `\n`.
pub(crate) fn unix_lines(text: String) -> String {
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text }
}

/// A text whose characters that steer, or are not seen, are shown by their numbers.
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

/// A path from a document or a repository as a message may quote it. Messages are shown to models as
/// facts, so nothing in one ends its quotation marks or goes on at length.
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

/// A name from a document, if it is one that a message may quote: a single short word.
fn as_identifier(name: &str) -> Option<&str> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    ((1..=60).contains(&name.len()) && name.bytes().all(word)).then_some(name)
}
