//! The change: the tests and code for an issue in one text, which is reviewed and approved as a whole. Each file has a
//! heading and a fenced block, which contains the file's full text or search and replace blocks.
//!
//! People approve the text as GitHub renders it, but [`parse()`] decides which edits are applied. Therefore [`check()`]
//! refuses a text that a Markdown parser and [`parse()`] read differently.

pub mod adversarial;
mod apply;
mod check;
mod evidence;
mod fix;
mod linter_output;
mod parse;
mod stubs;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};

pub use self::{
    apply::{MOST_LINES, apply, file_diff, unified_diff, with_inline_tests},
    check::{FOR_PEOPLE, check, files_beyond_scope, is_workflow, unbuildable_files, unbuildable_reason},
    evidence::TestEvidence,
    fix::{fix, replaced_tests, tests_section, without_files},
    linter_output::{LinterComplaint, find_complaints},
    parse::{
        FileChange, FileChangeBody, ParsedChange, mentions_test, parse, test_id_has_name, test_name_parts,
    },
    stubs::{STUB, make_stubs},
    workspace::Workspace,
};
pub use super::lld::ChangeType as Kind;
use super::{
    FileTree,
    lld::{first_line, path_of_place},
    path_rules, quotable_path,
    spec::{ParsedSpec, TestMappingRow},
};

/// A section of the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeSection {
    Tests,
    Code,
    Documents,
}

impl ChangeSection {
    const ALL: [Self; 3] = [Self::Tests, Self::Code, Self::Documents];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tests => "Tests",
            Self::Code => "Code",
            Self::Documents => "Documents",
        }
    }
}

/// Files that a change may touch: those of the approved spec, and those that people allowed later.
#[derive(Debug, Clone)]
pub struct ChangeScope {
    /// Section that is being drafted. While this is [`ChangeSection::Tests`], the change contains no code; later it
    /// contains tests and code.
    pub part: ChangeSection,
    /// Kind of change allowed for each file.
    pub files: BTreeMap<String, Kind>,
    /// Files that hold only tests or support them.
    pub tests: BTreeSet<String>,
    /// Code files that hold their own tests, such as a Rust file with a `tests` module. Both sections may change them:
    /// `Tests` the test code, `Code` the rest.
    pub inline: BTreeSet<String>,
    /// Files that people allowed later. A change does not have to touch them.
    pub allowed_later: BTreeSet<String>,
    /// Tests that the spec requires.
    pub rows: Vec<TestMappingRow>,
    /// Requirements of the spec that have tests.
    pub requirements: BTreeSet<String>,
    /// Whether a person asked for other tests. They may then be in any test file, and files of the spec may stay
    /// without tests.
    pub is_reopened: bool,
}

impl ChangeScope {
    pub fn from_spec(spec: &ParsedSpec, part: ChangeSection) -> Self {
        let rows = spec.view.files.iter().filter(|row| !row.directory);
        let files: BTreeMap<_, _> = rows.filter_map(|row| Some((row.path.clone(), row.change?))).collect();
        let named: BTreeSet<&str> = spec.tests.iter().map(|row| row.file.as_str()).collect();
        let holds_tests =
            |(path, kind): &(&String, &Kind)| can_hold_inline_tests(path) && **kind == Kind::Modify;
        let inline: BTreeSet<String> =
            files.iter().filter(holds_tests).map(|(path, _)| path.clone()).collect();
        let is_test_file = |path: &&String| {
            !inline.contains(*path) && (named.contains(path.as_str()) || is_test_support(path))
        };
        Self {
            part,
            tests: files.keys().filter(is_test_file).cloned().collect(),
            inline,
            files,
            allowed_later: BTreeSet::new(),
            rows: spec.tests.clone(),
            requirements: (spec.tests.iter().chain(&spec.doc_tests))
                .flat_map(|row| row.requirements.iter().cloned())
                .collect(),
            is_reopened: false,
        }
    }

    /// Adds these files to the files that the change may touch. The change may modify a file that is in `base`, and add
    /// any other file.
    #[must_use]
    pub fn with_files<'p>(
        mut self,
        paths: impl IntoIterator<Item = &'p String>,
        base: &BTreeMap<String, String>,
    ) -> Self {
        for path in paths {
            let kind = if base.contains_key(path) { Kind::Modify } else { Kind::Add };
            self.files.insert(path.clone(), kind);
            self.allowed_later.insert(path.clone());
            self.tests.extend(is_test(path).then(|| path.clone()));
        }
        self
    }
}

/// Returns whether the path is in a test folder, or whether a test runner loads the file as a test or as settings. Such
/// a file belongs to the tests even if it contains none. Otherwise it could be written together with the code and make
/// the locked tests pass.
fn is_test_support(path: &str) -> bool {
    let names = "test tests __tests__ spec fixtures testdata snapshots __snapshots__ conftest.py pytest.ini";
    let name = path.rsplit('/').next().unwrap_or(path);
    let settings = ["jest.config.", "vitest.config.", "vitest.workspace.", ".mocharc."];
    path.split('/').any(|part| names.split(' ').any(|name| name == part))
        || name.ends_with("_test.go")
        || name.ends_with(".py") && (name.starts_with("test_") || name.ends_with("_test.py"))
        || [".test.", ".spec."].iter().any(|mark| name.contains(mark))
        || settings.iter().any(|begins| name.starts_with(begins))
}

/// Returns whether a file of this path may hold code and its tests.
pub fn can_hold_inline_tests(path: &str) -> bool {
    let stem = path.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).unwrap_or_default();
    !stem.is_empty() && !is_test_support(path) && !stem.ends_with("test") && !stem.ends_with("tests")
}

/// Returns whether the path is test support or has a name like a test's.
pub fn is_test(path: &str) -> bool {
    const NAMES: [&str; 4] = ["Test", "Tests", "Spec", "Specs"];
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let mut words = stem.split(['_', '.', '-']);
    let ends = [words.next(), words.next_back()];
    let named = |word: &str| NAMES.iter().any(|known| word.eq_ignore_ascii_case(known));
    is_test_support(path)
        || ends.into_iter().flatten().any(named)
        || NAMES.iter().any(|known| stem.ends_with(known))
}

/// Returns the first of these names and paths that a person's text contains as a word. A name that may be an ordinary
/// word counts only in backticks.
pub fn find_named<'n>(text: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let in_code = |name: &str| text.split('`').skip(1).step_by(2).any(|code| parse::has_word(code, name));
    let is_plain = |name: &str| name.chars().all(char::is_lowercase);
    names.into_iter().find(|name| if is_plain(name) { in_code(name) } else { parse::has_word(text, name) })
}

/// Returns the rules of the change's format, in words, for a prompt.
pub fn format_rules(part: ChangeSection) -> String {
    let sections = match part {
        ChangeSection::Tests => {
            "Write the tests alone, before any code: the only section is `## Tests`, with the test files of the specification \
             and what they need. Each test of its Test Mapping stands there under its name, in its file. The tests must fail \
             as the code is now, by an assertion or because a name that the specification declares is missing yet, and pass \
             once it is built as specified. None is skipped, and each has an assertion. Below the heading of a test file \
             stands a line `Proves: REQ-1, REQ-2` with the requirements that its tests show. Leave out doc tests (`doc ITEM` in the Test \
             Mapping): they come with the code. A Rust source file that holds its own tests has a heading here as well: its block \
             changes only test code (`#[cfg(test)]` items and test functions), and the rest of the file follows with the code. A test that is to pass already, since it \
             guards what must stay as it is, is named on a line `Guards: {name of the test}`.\n"
        }
        _ => {
            "Write the code that makes the tests pass: the sections are `## Code`, with every other file of the \
             specification and the doc tests of its Test Mapping, and, if any of them is documentation or a changelog, `## Documents`: those it names are written \
             with the code. A workflow of GitHub Actions is written like any other file, and a person applies it. The section `## Tests` is locked: it is \
             put in its place by machine, so leave it out or as it is. Name no file of it under another heading. A Rust source file with locked tests is the exception: its code has a \
             heading below `## Code` too. Search there in the file with the locked tests, and leave all its test code as it is. Code adds no tests to any file. Only where a locked test \
             contradicts the specification, so that no right code passes it, write that section anew, whole, as it should be: \
             people are asked about it where no code passes the locked one.\n"
        }
    };
    let inline = match part {
        ChangeSection::Tests => "",
        _ => ", or, for a source file with locked tests, as it is with these tests",
    };
    format!(
        "The document is Markdown. Its first line is `# {{issue number}} - Change: {{title}}`; \
         the title says what the change does, as an imperative of at most 60 characters (`Print a total for each week`). Below it \
         stand 3 to 8 lines on what the change does for whoever uses the repository, and why: people read them first, in the \
         pull request and in the commit, so they name no requirement by its number alone. {sections}\
         Each file of the specification that belongs there has exactly one heading, as ``### `path/from/the/root` (Modify)``, with \
         the specification's `Add`, `Modify` or `Delete`, and no other file has one. Below it stands one fenced code block and \
         nothing else but such lines as named here; a file to delete has none. If a line of what it holds begins with a fence, \
         the block's own fence is longer. It holds\n\
         - for `Add` the whole file;\n\
         - for `Modify` one or more blocks of this form, or, of a file of at most {WHOLE_LINES} lines, its whole new text:\n\n\
         ```text\n<<<<<<< SEARCH\n{{whole lines of the file, copied exactly}}\n=======\n{{what stands there instead}}\n\
         >>>>>>> REPLACE\n```\n\n\
         The lines searched for stand in the file exactly once, and no two blocks touch the same line; every search is made in \
         the file as it is in the repository now{inline}. Do not claim that something was run or verified: code adds that.\n"
    )
}

/// Maximum number of lines of a file that a change may rewrite as a whole. Longer files must be changed with search and
/// replace blocks, because models lose lines when they rewrite long files.
const WHOLE_LINES: usize = 150;

/// Returns the paths of the change's files, without duplicates.
pub fn file_paths(text: &str) -> Vec<String> {
    let paths: BTreeSet<String> = parse(text).files.into_iter().map(|file| file.path).collect();
    paths.into_iter().collect()
}

/// Returns the paths of the files with tests.
pub fn test_paths(text: &str) -> Vec<String> {
    parse(text).files_in(ChangeSection::Tests).map(|file| file.path.clone()).collect()
}

/// Returns whether a build, a test run or CI automatically executes the file or reads settings from it.
pub fn is_executed(path: &str) -> bool {
    const NAMES: &str = "build.rs cargo.toml package.json makefile gnumakefile justfile rakefile gemfile jenkinsfile \
        cmakelists.txt conftest.py pyproject.toml setup.py setup.cfg tox.ini noxfile.py pytest.ini sitecustomize.py pom.xml \
        dockerfile containerfile go.mod go.work rust-toolchain rust-toolchain.toml pipfile requirements.txt configure gradlew \
        mvnw build workspace gruntfile.js gulpfile.js jest.config.json vitest.workspace.ts action.yml action.yaml \
        azure-pipelines.yml";
    const ENDS: &str = ".sh .bash .zsh .ps1 .bat .cmd .gradle .gradle.kts .mk .bzl .bazel .dockerfile .lock -lock.json \
        -lock.yaml .sum .config.js .config.mjs .config.cjs .config.ts .config.mts compose.yml compose.yaml";
    const FOLDERS: &str = "bin ci script scripts";
    let path = path.to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    path.split('/').any(|part| part.starts_with('.'))
        || path.split_once('/').is_some_and(|(top, _)| FOLDERS.split_whitespace().any(|folder| folder == top))
        || name.starts_with("requirements") && name.ends_with(".txt")
        || name.starts_with("dockerfile.")
        || NAMES.split_whitespace().any(|known| known == name)
        || ENDS.split_whitespace().any(|end| name.ends_with(end))
}

/// Paths of files with their new texts; `None` if the file is deleted.
pub type FileTexts = Vec<(String, Option<String>)>;

/// Returns the files to write over a commit before a test run; the content is `None` if the file is removed. GitHub
/// Actions workflows are left out: the bot never pushes them, and it tests only files that it pushes.
pub fn overlay_files(files: FileTexts) -> Vec<(String, Option<Vec<u8>>)> {
    let pushed = files.into_iter().filter(|(path, _)| !is_workflow(path));
    pushed.map(|(path, text)| (path, text.map(String::into_bytes))).collect()
}

/// Returns the change's summary and its files, in at most forty lines.
pub fn summary(text: &str) -> String {
    const FILES: usize = 8;
    let change = parse(text);
    let mut out: Vec<&str> = text[change.summary.clone()].trim().lines().take(10).collect();
    let lists =
        ChangeSection::ALL.into_iter().filter(|part| change.files_in(*part).next().is_some()).map(|part| {
            let named = |file: &FileChange| format!("{} `{}`", file.kind.as_str(), quotable_path(&file.path));
            let named: Vec<String> = change.files_in(part).take(FILES).map(named).collect();
            let more = change.files_in(part).skip(FILES).count();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("\n{}: {}{more}.", part.as_str(), named.join(", "))
        });
    let lists: Vec<String> = lists.collect();
    out.extend(lists.iter().map(String::as_str));
    out.join("\n")
}

/// Returns whether the location that a reviewer cites exists. A location is a section, a file of the change or
/// repository, a requirement with tests, or a test.
pub fn place_exists(text: &str, place: &str, tree: &dyn FileTree) -> bool {
    let place = strip_marks(place);
    let file = path_of_place(place);
    (1..=400).contains(&place.len())
        && (parse(text).find_place(place).is_some()
            || (path_rules::refusal_reason(file).is_none()
                && (tree.is_file(file) || tree.is_dir(file.trim_end_matches('/')))))
}

/// Returns the 1-based number of the line where a location starts; `None` if the text has no such location.
pub fn line_of(text: &str, place: &str) -> Option<usize> {
    Some(first_line(text, parse(text).find_place(strip_marks(place))?))
}

/// Returns whether the text at this location is the same in both versions. Returns false if either version lacks the
/// location.
pub fn unchanged_at(before: &str, now: &str, place: &str) -> bool {
    let at = |text| parse(text).find_place(strip_marks(place));
    at(before).zip(at(now)).is_some_and(|(then, there)| before[then].trim() == now[there].trim())
}

fn strip_marks(place: &str) -> &str {
    place.trim().trim_matches('`').trim()
}

#[cfg(test)]
mod tests;
