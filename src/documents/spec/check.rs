//! Checks of a spec. They report all mistakes at once, so that one revision can fix them all.

use std::collections::{BTreeMap, BTreeSet};

use super::{CHANGES, FUNCTIONS, PATTERNS, ParsedSpec, SCHEMA, STATE, SpecPart, TESTS, TYPES, parse};
use crate::{
    documents::{
        DocumentMistake, FileTree,
        change::{is_executed, is_test, is_workflow, unbuildable_files},
        lld::{self, ChangeType, ParsedDesign},
        path_rules, quotable_path,
    },
    types::IssueNo,
};

/// Maximum number of pattern references in a spec.
pub const MOST_REFERENCES: usize = 10;

/// Maximum number of mistakes reported per spec. A spec with more mistakes needs a rewrite.
const MOST_MISTAKES: usize = 200;

/// Checks a spec's form, files and paths.
pub fn check(text: &str, issue: IssueNo, tree: &dyn FileTree) -> Vec<DocumentMistake> {
    if let Some(mistake) = lld::check_readable(text) {
        return vec![mistake];
    }
    let mut out = Vec::new();
    lld::check_form(SCHEMA, text, &parse(text).view, issue, tree, &mut out);
    out
}

/// Checks whether a spec is complete enough to build from, by comparing it with the design and with the files at the
/// commit. `texts` contains the files that models may read, by path. Statements about other files are not checked.
pub fn check_completeness(
    text: &str,
    design: &str,
    tree: &dyn FileTree,
    texts: &BTreeMap<String, String>,
) -> Vec<DocumentMistake> {
    if lld::check_readable(text).is_some() {
        return Vec::new();
    }
    let (spec, design) = (parse(text), lld::parse(design));
    let mut out = Vec::new();
    check_same_files(&spec, &design, &mut out);
    // What no change can touch: better now than when the code is to be written.
    let files = spec.view.files.iter().filter(|row| !row.directory);
    let files = files.filter(|row| path_rules::refusal_reason(&row.path).is_none());
    out.extend(unbuildable_files(files.filter_map(|row| Some((row.path.as_str(), row.change?))), tree));
    check_current_state(text, &spec, texts, &mut out);
    check_types(text, &spec, &mut out);
    check_functions(text, &spec, &design, &mut out);
    check_changes(text, &spec, &mut out);
    check_references(&spec, tree, texts, &mut out);
    check_tests(&spec, &design, &mut out);
    check_untested_promises(text, &spec, &mut out);
    out.truncate(MOST_MISTAKES);
    out
}

fn section_title(section: &str) -> String {
    SCHEMA.section_title(section).to_owned()
}

/// Checks that the spec has the design's files, because people approved those. Only test files may be new.
fn check_same_files(spec: &ParsedSpec, design: &ParsedDesign, out: &mut Vec<DocumentMistake>) {
    let mut say = |message| {
        out.push(DocumentMistake::error("files.design", section_title(SCHEMA.files_section), message))
    };
    let find =
        |lld: &ParsedDesign, path: &str| lld.files.iter().find(|row| row.path == path).map(|row| row.change);
    for row in design.files.iter().filter(|row| !row.directory) {
        let (path, wanted) = (quotable_path(&row.path), row.change.map_or("?", ChangeType::as_str));
        match find(&spec.view, &row.path) {
            None => say(format!("`{path}` is missing, which the design has as {wanted}; add its row")),
            Some(change) if change != row.change => {
                say(format!("`{path}` is {wanted} in the design; write the same"))
            }
            Some(_) => {}
        }
    }
    let others = spec.view.files.iter().filter(|row| !row.directory && find(design, &row.path).is_none());
    let has_test = |path: &str| spec.tests.iter().any(|test| test.file == path);
    let may_join = |path: &str| is_test(path) && !is_executed(path) && has_test(path);
    for row in others.filter(|row| !may_join(&row.path) || row.change == Some(ChangeType::Delete)) {
        let path = quotable_path(&row.path);
        say(format!(
            "`{path}` is not in the approved design, to which the spec may add only files with tests of Test Mapping; leave \
             it out, or have the design revised first"
        ));
    }
}

/// Returns each file of the table whose kind of change is in `which`. Each file comes with its part of the spec, or
/// `None` if that part is missing or empty.
fn parts_by_file<'s>(
    text: &'s str,
    spec: &'s ParsedSpec,
    parts: &'s [SpecPart],
    which: &'s [ChangeType],
) -> impl Iterator<Item = (&'s str, Option<&'s SpecPart>)> {
    let rows = spec.view.files.iter().filter(|row| !row.directory);
    let rows = rows.filter(|row| row.change.is_some_and(|change| which.contains(&change)));
    let says = |part: &&SpecPart| !text[part.body.clone()].trim().is_empty();
    let mut seen = BTreeSet::new();
    let rows = rows.filter(move |row| seen.insert(row.path.as_str()));
    rows.map(move |row| (row.path.as_str(), parts.iter().filter(|part| part.name == row.path).find(says)))
}

fn check_current_state(
    text: &str,
    spec: &ParsedSpec,
    texts: &BTreeMap<String, String>,
    out: &mut Vec<DocumentMistake>,
) {
    // Readers take everything in this section for existing code.
    let modified = spec.view.files.iter().filter(|row| row.change == Some(ChangeType::Modify));
    let (modified, mut seen) =
        (modified.map(|row| row.path.as_str()).collect::<BTreeSet<_>>(), BTreeSet::new());
    for part in &spec.state {
        if !modified.contains(part.name.as_str()) || !seen.insert(part.name.as_str()) {
            let name = quotable_path(&part.name);
            let message =
                format!("`{name}` is not a file to modify, or has two parts here; keep one part for each");
            out.push(DocumentMistake::error("state.stray", section_title(STATE), message));
        }
    }
    for (path, part) in parts_by_file(text, spec, &spec.state, &[ChangeType::Modify]) {
        let shown = quotable_path(path);
        let mut say = |rule, message| out.push(DocumentMistake::error(rule, section_title(STATE), message));
        let Some(part) = part else {
            say(
                "state.missing",
                format!("`{shown}` is modified; add `### {shown}` with the lines that change"),
            );
            continue;
        };
        let Some(there) = texts.get(path) else {
            let message = format!(
                "`{shown}` is not a text that models may read, so the statements about it were not checked"
            );
            out.push(DocumentMistake::warning("state.unread", section_title(STATE), message));
            continue;
        };
        let lines: Vec<&str> = there.lines().map(str::trim_end).collect();
        let whole = format!("\n{}\n", lines.join("\n"));
        if !there.trim().is_empty() && !part.code.iter().any(|code| excerpt_pieces(code).next().is_some()) {
            say("state.missing", format!("`{shown}` has no code block with the lines that change"));
        }
        for strange in part.code.iter().filter(|code| !is_excerpt_of(code, &whole)) {
            let known: BTreeSet<&str> = lines.iter().copied().collect();
            let first = excerpt_pieces(strange).flatten().find(|line| !known.contains(line));
            let what = match first {
                Some(line) => {
                    format!("has the line `{}`, which that file has not", quotable_path(line.trim()))
                }
                None => "is not in one piece there; write `…` on a line of its own where lines are left out"
                    .into(),
            };
            say("state.excerpt", format!("an excerpt of `{shown}` {what}"));
        }
    }
}

/// Returns the pieces of an excerpt, which are separated by lines that contain only `…` or `...`.
fn excerpt_pieces(excerpt: &str) -> impl Iterator<Item = Vec<&str>> {
    let gap = |line: &&str| matches!(line.trim_matches(['/', '#', '-', '*', ' ']), "…" | "...");
    let lines: Vec<&str> = excerpt.lines().map(str::trim_end).collect();
    let pieces = lines.split(gap).map(|piece| {
        let blank = |line: &&str| line.is_empty();
        let first = piece.iter().take_while(|line| blank(line)).count();
        let last = piece.iter().rev().take_while(|line| blank(line)).count();
        piece.get(first..piece.len() - last).unwrap_or_default().to_vec()
    });
    pieces.filter(|piece| !piece.is_empty()).collect::<Vec<_>>().into_iter()
}

/// Returns whether all pieces of the excerpt occur in the text `there`, word for word and in order. `there` must start
/// and end with a line break.
fn is_excerpt_of(excerpt: &str, there: &str) -> bool {
    let mut rest = there;
    excerpt_pieces(excerpt).all(|piece| {
        let piece = format!("\n{}\n", piece.join("\n"));
        let found = rest.find(&piece);
        rest = found.map_or("", |at| &rest[at + piece.len() - 1..]);
        found.is_some()
    })
}

fn check_types(text: &str, spec: &ParsedSpec, out: &mut Vec<DocumentMistake>) {
    for part in &spec.types {
        let sample = labelled_line(&text[part.body.clone()], "Sample").is_some_and(|line| line.contains('`'));
        if part.code.is_empty() || part.code.len() < 2 && !sample {
            let message = format!(
                "`{}` needs its definition and then a sample value, each in a code block",
                quotable_path(&part.name)
            );
            out.push(DocumentMistake::error("types.sample", section_title(TYPES), message));
        }
    }
}

fn check_functions(text: &str, spec: &ParsedSpec, design: &ParsedDesign, out: &mut Vec<DocumentMistake>) {
    let mut say = |rule, message| out.push(DocumentMistake::error(rule, section_title(FUNCTIONS), message));
    let exact = |line: String| {
        line.contains(['`', '"']) || line.bytes().any(|b| b.is_ascii_digit()) || line.contains("nothing")
    };
    for part in &spec.functions {
        let (body, name) = (&text[part.body.clone()], quotable_path(&part.name));
        if part.code.is_empty() {
            say("functions.signature", format!("`{name}` has no signature in a code block"));
        }
        for word in ["Input", "Output"] {
            if !labelled_line(body, word).is_some_and(exact) {
                let message = format!("`{name}` has no line `{word}:` with an exact value in backticks");
                say("functions.values", message);
            }
        }
    }
    let known: BTreeSet<&str> = spec
        .functions
        .iter()
        .flat_map(|part| split_words(&part.name).chain(part.code.iter().flat_map(|code| split_words(code))))
        .collect();
    for name in design.functions.iter().filter(|name| !known.contains(name.as_str())) {
        say(
            "functions.design",
            format!("`{}` of the design has no part of its own here", quotable_path(name)),
        );
    }
}

/// Returns the line that starts with the label `word`, ignoring list and emphasis markup. If nothing follows the
/// label's colon, the next non-empty line is appended.
fn labelled_line(body: &str, word: &str) -> Option<String> {
    let mut lines = body.lines().map(|line| line.trim_start_matches(['-', '*', ' ', '_']));
    let line = lines.find(|line| {
        let rest = line.strip_prefix(word);
        rest.is_some_and(|rest| rest.trim_start_matches(['*', '_', ' ']).starts_with(':'))
    })?;
    let below = lines.find(|line| !line.trim().is_empty()).unwrap_or_default();
    Some(if line.trim_end().ends_with([':', '*']) { format!("{line} {below}") } else { line.to_owned() })
}

fn check_changes(text: &str, spec: &ParsedSpec, out: &mut Vec<DocumentMistake>) {
    const ALL: &[ChangeType] = &[ChangeType::Add, ChangeType::Modify, ChangeType::Delete];
    for (path, part) in parts_by_file(text, spec, &spec.changes, ALL) {
        let path = quotable_path(path);
        let said = part.map(|part| text[part.body.clone()].to_lowercase());
        let wrong = match said.as_deref().map(lld::find_vague_phrase) {
            None => {
                ("changes.missing", format!("nothing says what is to be done in `{path}`; add `### {path}`"))
            }
            Some(Some(phrase)) => (
                "changes.vague",
                format!("\"{phrase}\" does not say what to do in `{path}`; say what is written there"),
            ),
            Some(None) => continue,
        };
        out.push(DocumentMistake::error(wrong.0, section_title(CHANGES), wrong.1));
    }
}

fn check_references(
    spec: &ParsedSpec,
    tree: &dyn FileTree,
    texts: &BTreeMap<String, String>,
    out: &mut Vec<DocumentMistake>,
) {
    let mut say = |rule, message| out.push(DocumentMistake::error(rule, section_title(PATTERNS), message));
    if spec.references.len() > MOST_REFERENCES {
        say(
            "references.many",
            format!("{} are too many; keep the best {MOST_REFERENCES}", spec.references.len()),
        );
    }
    for reference in spec.references.iter().take(MOST_REFERENCES) {
        let path = quotable_path(&reference.path);
        if path_rules::refusal_reason(&reference.path).is_some() || !tree.is_file(&reference.path) {
            say("references.path", format!("there is no file `{path}`; name a place that exists"));
            continue;
        }
        let Some((first, last)) = reference.lines else {
            say("references.lines", format!("`{path}` needs its lines, as in `{path}:12-30`"));
            continue;
        };
        let Some(lines) = texts.get(&reference.path).map(|text| text.lines().count()) else { continue };
        if first == 0 || first > last || last > lines {
            say("references.lines", format!("`{path}` has {lines} lines, so {first}-{last} does not exist"));
        }
    }
}

fn check_tests(spec: &ParsedSpec, design: &ParsedDesign, out: &mut Vec<DocumentMistake>) {
    let mut say = |rule, message| out.push(DocumentMistake::error(rule, section_title(TESTS), message));
    if spec.tests.is_empty() {
        let message = "no row of a table `| Requirement | Test | File | Input | Expected |` could be read";
        return say("tests.none", message.to_owned());
    }
    let all = || spec.tests.iter().chain(&spec.doc_tests);
    let shown: BTreeSet<&str> = all().flat_map(|test| &test.requirements).map(String::as_str).collect();
    for requirement in design.requirements.iter().filter(|r| !shown.contains(r.id.as_str())) {
        say("tests.uncovered", format!("no test shows {}; add a row", quotable_path(&requirement.id)));
    }
    let own: BTreeSet<&str> =
        spec.functions.iter().filter_map(|part| split_words(&part.name).last()).collect();
    let mut names = BTreeSet::new();
    for test in all() {
        let name = quotable_path(&test.name);
        if test.name.is_empty() {
            say("tests.name", "a row names no test".to_owned());
        } else if !names.insert((&test.file, &test.name)) {
            say(
                "tests.name",
                format!("`{name}` stands in two rows; make it one row, with all its requirements"),
            );
        }
        if !spec.view.files.iter().any(|row| row.path == test.file && row.change != Some(ChangeType::Delete))
        {
            let file = quotable_path(&test.file);
            say(
                "tests.file",
                format!("`{name}` stands in `{file}`, which Files to Implement neither adds nor modifies"),
            );
        }
        if is_workflow(&test.file) {
            let file = quotable_path(&test.file);
            say("tests.file", format!("`{name}` stands in `{file}`, which is never committed"));
        }
        for id in test.requirements.iter().filter(|id| !design.requirements.iter().any(|r| r.id == **id)) {
            say(
                "tests.unknown",
                format!("`{name}` names {}, which the design does not have", quotable_path(id)),
            );
        }
        if test.requirements.is_empty() {
            say("tests.requirement", format!("`{name}` names no requirement; write one as REQ-1"));
        }
        let (input, expected) = (test.input.to_lowercase(), test.expected.to_lowercase());
        if expected.trim().is_empty() {
            say("tests.expected", format!("`{name}` has nothing in Expected; say the exact value"));
        } else if let Some(phrase) = lld::find_vague_phrase(&format!("{input} . {expected}")) {
            let message = format!("\"{phrase}\" passes whatever happens; say the exact value of `{name}`");
            say("tests.expected", message);
        }
        let before = test.expected.rmatch_indices('(').map(|(at, _)| &test.expected[..at]);
        let made = before.filter_map(|call| last_word(call)).any(|name| own.contains(name));
        let vague = !expected.contains(|c: char| c == '"' || c.is_ascii_digit());
        let recorded = vague && split_words(&expected).any(|word| RECORDED_WORDS.contains(&word));
        if made || recorded && !spec.view.files.iter().any(|row| test.expected.contains(&row.path)) {
            let message =
                format!("what `{name}` expects is made by the code it tests; write the value itself");
            say("tests.baseline", message);
        }
    }
}

/// Words for recorded expected values. The first test run stores such values, and later runs only compare with them.
const RECORDED_WORDS: [&str; 3] = ["baseline", "golden", "snapshot"];

/// Expressions with which code checks its platform. In contrast, `PLATFORM_WORDS` are the words with which a test names
/// a platform.
const PLATFORM_CHECKS: [&str; 8] = [
    "cfg(windows)",
    "cfg(unix)",
    "cfg(target_os",
    "sys.platform",
    "os.name",
    "process.platform",
    "runtime.GOOS",
    "os.platform()",
];
const PLATFORM_WORDS: [&str; 8] =
    ["platform", "windows", "win32", "linux", "unix", "macos", "darwin", "posix"];

/// Checks that tests cover each error that a function may return and each platform that the code distinguishes.
fn check_untested_promises(text: &str, spec: &ParsedSpec, out: &mut Vec<DocumentMistake>) {
    let cells = spec.tests.iter().flat_map(|test| [&test.name, &test.input, &test.expected]);
    let shown: BTreeSet<&str> = cells.flat_map(|cell| split_words(cell)).collect();
    let mut reported = BTreeSet::new();
    for part in &spec.functions {
        let promised = promised_errors(&part.prose);
        for error in promised.into_iter().filter(|word| !shown.contains(word)) {
            if reported.insert(error.to_owned()) {
                let (name, error) = (quotable_path(&part.name), quotable_path(error));
                let message = format!("`{name}` ends in `{error}`, and no test expects that; add a row");
                out.push(DocumentMistake::error("tests.error", section_title(TESTS), message));
            }
        }
    }
    let varied =
        shown.iter().any(|word| word.to_lowercase().split('_').any(|word| PLATFORM_WORDS.contains(&word)));
    let mut parts = spec.functions.iter().chain(&spec.changes);
    let asks =
        |part: &SpecPart| PLATFORM_CHECKS.into_iter().find(|asks| text[part.body.clone()].contains(asks));
    if let Some(asks) = parts.find_map(asks).filter(|_| !varied) {
        let message = format!("the code asks `{asks}`, and no test names a platform; add a row for each");
        out.push(DocumentMistake::error("tests.platform", section_title(TESTS), message));
    }
}

/// Returns the error names of a text, without those that it says never occur or are caught. What lies between such a
/// word and the error may only be verbs, articles and other errors, as in "neither raises nor returns an `XError`".
fn promised_errors(prose: &str) -> Vec<&str> {
    const DENIALS: &str = "no not never neither without cannot nothing none nobody t instead rather";
    const CATCHES: &str =
        "catch catches catching caught handle handles handling swallow swallows suppress suppresses";
    const RAISES: &str = "raise raises raised raising return returns returned returning throw throws throwing end ends give gives";
    const FILLERS: &str =
        "a an any the of than or and nor ever longer more again be is are by in with silently even";
    let is_in = |words: &str, word: &str| words.split(' ').any(|known| known.eq_ignore_ascii_case(word));
    let mut promised = Vec::new();
    for sentence in prose.split([';', '\n']).flat_map(|part| part.split(". ")) {
        let words: Vec<&str> = split_words(sentence).collect();
        for (at, word) in words.iter().enumerate().filter(|(_, word)| is_error_name(word)) {
            let is_between =
                |word: &&&str| is_in(FILLERS, word) || is_in(RAISES, word) || is_error_name(word);
            let between = words[..at].iter().rev().take_while(is_between).count();
            let (before, between) = words[..at].split_at(at - between);
            let denied = before.last().is_some_and(|word| {
                is_in(DENIALS, word)
                    || is_in(CATCHES, word) && !between.iter().any(|word| is_in(RAISES, word))
            });
            promised.extend((!denied).then_some(*word));
        }
    }
    promised
}

/// Returns whether the word is an error name such as `ParseError`, `IndexOutOfBoundsException` or `ErrNotFound`.
fn is_error_name(word: &str) -> bool {
    let ends = ["Error", "Exception"].iter().any(|end| word.len() > end.len() && word.ends_with(end));
    let go = word.strip_prefix("Err").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    ends && word.starts_with(|c: char| c.is_ascii_uppercase()) || go
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn last_word(text: &str) -> Option<&str> {
    let start = text
        .rfind(|c: char| !c.is_alphanumeric() && c != '_')
        .map_or(0, |at| at + text[at..].chars().next().map_or(0, char::len_utf8));
    Some(&text[start..]).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{super::tests::SOUND, *};
    use crate::documents::lld::{NamesTestRepository, tests::DesignTestTree};

    const DESIGN: &str = "# 42 - Feature: x\n\n### Files Changed\n\n| File | Change Type | Description |\n|---|---|---|\n| \
        `src/lib.rs` | Modify | x |\n\n### Function Signatures\n\n```rust\nfn read() -> u8;\n```\n\n## Requirements\n\n1. It reads.\n";

    fn mistakes_of(text: &str) -> Vec<String> {
        let texts = BTreeMap::from([("src/lib.rs".to_owned(), "//! A.\n\npub fn read() {}\n".to_owned())]);
        let mut all = check(text, IssueNo(42), &DesignTestTree);
        all.extend(check_completeness(text, DESIGN, &DesignTestTree, &texts));
        all.extend(super::super::check_names(text, &NamesTestRepository));
        all.iter().filter(|mistake| mistake.is_error()).map(ToString::to_string).collect()
    }

    #[test]
    fn promised_errors_returns_only_errors_that_the_spec_does_not_rule_out() {
        for (prose, errors) in [
            ("It raises no `ValueError`, and never a KeyError.", &[][..]),
            (
                "It does not raise the TypeError; text that is not a number ends in ParseError.",
                &["ParseError"],
            ),
            ("Not 3 gives ErrNotFound.", &["ErrNotFound"]),
            ("It never raises KeyError or an `IndexError`, and doesn't throw a TypeError.", &[]),
            ("It returns None instead of raising ValueError, without any KeyError.", &[]),
            ("It catches KeyError and raises ParseError.", &["ParseError"]),
            ("It is neither a KeyError nor a `TypeError`. An empty text is a ValueError.", &["ValueError"]),
            ("No such file: it raises KeyError.", &["KeyError"]),
        ] {
            assert_eq!(promised_errors(prose), errors, "{prose}");
        }
    }

    #[test]
    fn valid_spec_has_no_mistakes() {
        assert_eq!(mistakes_of(SOUND), [""; 0]);
    }

    #[test]
    fn incomplete_spec_is_refused() {
        let row = "| REQ-1 | reads_three | `src/lib.rs` | `3` | `3` |";
        let done = "Return the count.";
        for (what, right, wrong, rule) in [
            (
                "files of the design",
                "| the reader |\n",
                "| the reader |\n| `README.md` | Modify | x |\n",
                "files.design",
            ),
            ("files of the design", "| Modify | the reader |", "| Delete | the reader |", "files.design"),
            ("1: an excerpt", "```rust\npub fn read() {}\n```\n\n", "It reads.\n\n", "state.missing"),
            ("1: an excerpt", "```rust\npub fn read() {}\n```", "```rust\n// ...\n```", "state.missing"),
            ("1: an excerpt", "### `src/lib.rs`\n", "### `src/other.rs`\n", "state.missing"),
            (
                "1: nothing else",
                "### `src/lib.rs`\n",
                "### `src/other.rs`\n\nx\n\n### `src/lib.rs`\n",
                "state.stray",
            ),
            ("1: as it is", "pub fn read() {}", "pub fn reads() {}", "state.excerpt"),
            ("2: a sample value", "```rust\nCount(3)\n```\n\n", "", "types.sample"),
            ("3: a signature", "```rust\npub fn read() -> u8\n```\n\n", "", "functions.signature"),
            ("3: an input", "Input: `\"3\"`\n\n", "", "functions.values"),
            ("3: an output", "Output: `3`", "Output: the right one", "functions.values"),
            (
                "3: every function",
                "### read\n\n```rust\npub fn read()",
                "### load\n\n```rust\npub fn load()",
                "functions.design",
            ),
            (
                "4: what to do",
                "### src/lib.rs\n\nReturn the count.\n\n",
                "Return the count.\n\n",
                "changes.missing",
            ),
            ("4: what to do", done, "Ensure proper behaviour.", "changes.vague"),
            ("5: real places", "src/lib.rs:1-2", "src/lib.rs:2-9", "references.lines"),
            ("5: real places", "src/lib.rs:1-2", "src/lib.rs", "references.lines"),
            ("5: real places", "src/lib.rs:1-2", "src/lost.rs:1-2", "references.path"),
            ("5: real places", "src/lib.rs:1-2", "../lib.rs:1-2", "references.path"),
            ("6: imports", done, "Write this.\n\n```rust\nuse nowhere\n```", "names.import"),
            ("7: names", done, "Call `parse_shet()` there.", "names.word"),
            ("8: no baseline of itself", "| `3` |\n", "| what `read()` gives |\n", "tests.baseline"),
            ("8: no baseline of itself", "| `3` |\n", "| the recorded snapshot |\n", "tests.baseline"),
            (
                "9: every requirement",
                row,
                "| REQ-7 | reads_three | `src/lib.rs` | `3` | `3` |",
                "tests.uncovered",
            ),
            (
                "9: every requirement",
                row,
                "| REQ-7 | reads_three | `src/lib.rs` | `3` | `3` |",
                "tests.unknown",
            ),
            ("9: a requirement each", "| REQ-1 |", "| all |", "tests.requirement"),
            ("9: in a file", "| `src/lib.rs` | `3` |", "| src/main.rs | `3` |", "tests.file"),
            ("9: a name each", row, &format!("{row}\n{row}"), "tests.name"),
            ("9: an exact value", "| `3` |\n", "| works correctly |\n", "tests.expected"),
            ("9: an exact value", "| `3` | `3` |\n", "| `3` | |\n", "tests.expected"),
            ("9: tests at all", row, "", "tests.none"),
            (
                "2: a path that can be written",
                "| the reader |\n",
                "| the reader |\n| `.github/CODEOWNERS` | Add | x |\n",
                "path.people",
            ),
            ("10: errors", "Output: `3`", "Output: `3`, or `CountError` for an empty file", "tests.error"),
            ("10: platforms", done, "Return it under `cfg(windows)`.", "tests.platform"),
        ] {
            let text = SOUND.replacen(right, wrong, 1);
            assert_ne!(text, SOUND, "{what}: {right}");
            let mistakes = mistakes_of(&text);
            assert!(
                mistakes.iter().any(|mistakes| mistakes.ends_with(&format!("[{rule}]"))),
                "{what}, {rule}: {mistakes:#?}"
            );
        }
        let tested = SOUND.replacen("Output: `3`", "Output: `3`, or `CountError`", 1);
        let row = format!("{row}\n| REQ-1 | an_empty_file | `src/lib.rs` | nothing | `CountError` |");
        assert_eq!(
            mistakes_of(&tested.replacen("| REQ-1 | reads_three | `src/lib.rs` | `3` | `3` |", &row, 1)),
            [""; 0]
        );
    }

    #[test]
    fn spec_for_a_file_unreadable_by_models_causes_only_a_warning() {
        let mistakes = check_completeness(SOUND, DESIGN, &DesignTestTree, &BTreeMap::new());
        let mistakes: Vec<_> =
            mistakes.iter().map(|mistake| (mistake.is_error(), mistake.rule.as_ref())).collect();
        assert_eq!(mistakes, [(false, "state.unread")]);
    }

    #[test]
    fn code_excerpt_may_omit_lines_but_not_change_them() {
        for (excerpt, is) in [
            ("b\nc", true),
            ("\na\n…\n\nd\n", true),
            ("a\n// ...\nc\n  b", true),
            ("  b", true),
            ("c\nb", false),
            ("d\n…\na", false),
            ("a\nc", false),
            ("", true),
        ] {
            assert_eq!(is_excerpt_of(excerpt, "\na\nb\nc\n  b\nd\n"), is, "{excerpt:?}");
        }
    }

    #[test]
    fn mistakes_are_found_in_a_large_hostile_spec() {
        let lines = "a\n".repeat(500_000);
        assert!(!is_excerpt_of(&format!("{}b", "a\n".repeat(100_000)), &format!("\n{lines}")));
        let rows: String = (0..500).map(|n| format!("| `src/{n}\u{202e}.rs` | Modify | `x\n|\n")).collect();
        let text = SOUND.replacen("| `src/lib.rs` | Modify | the reader |\n", &rows, 1);
        let names = SOUND.replacen("### read\n", &"### f\n~~~\n~~~\n".repeat(15_000), 1);
        for text in [text, names, "### ".repeat(60_000), "```\n".repeat(60_000), "| REQ-1 ".repeat(30_000)] {
            assert!(!mistakes_of(&text).is_empty());
        }
    }
}
