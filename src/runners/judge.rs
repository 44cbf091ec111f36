//! Red and green: what runs of tests prove of a change. Pure rules over what the runs came to.
//!
//! Red: each new test fails without the code, twice alike, as it runs or because a name is missing that the spec declares.
//! Green: with the code each of them passes in every run, and so does what passed before.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Failure, Found, Outcome, Test, found::MOST_FAULTS};
use crate::documents::spec::Spec;

/// What the change and its spec say of the tests.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// The test files that are added or modified.
    pub files: Vec<String>,
    /// Those that are deleted.
    pub removed: Vec<String>,
    /// The tests that the spec asks for.
    pub rows: Vec<Row>,
    /// Those that pass already, since they guard what there is.
    pub guards: Vec<String>,
    /// What is missing before the code is written; see [`declared`].
    pub declared: Vec<String>,
}

/// A test that the spec asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Relative to its project; empty where its runner does not say of which file a test is.
    pub file: String,
    pub name: String,
    /// How it was seen at red; none where it was not seen to fail, and guards nothing.
    pub kind: Option<Kind>,
}

impl Row {
    fn is(&self, id: &str) -> bool {
        is_named(id, &self.name) && (self.file.is_empty() || is_in(id, &self.file))
    }
}

/// Why a test fails without the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Assertion,
    /// It names what the spec declares.
    Missing,
    /// Something else ended it as it ran.
    Runtime,
    /// The file, package or binary that it is in cannot be built without; its tests are known at green.
    Compile,
    /// It passes, and guards what there is.
    Guard,
}

/// The proof of red.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Red {
    /// By the id of a test, or of what cannot be built.
    pub tests: BTreeMap<String, Kind>,
    /// The test files, those of them that are deleted, and the tests that the spec asks for.
    pub files: Vec<String>,
    #[serde(default)]
    pub removed: Vec<String>,
    #[serde(default)]
    pub rows: Vec<Row>,
    /// What fails or differs from run to run without any change.
    pub broken: Vec<String>,
}

/// The proof of green.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Green {
    /// The tests of the change, all of which passed in every run.
    pub locked: Vec<String>,
    /// How many others passed before and do.
    pub kept: usize,
    /// What failed before, and what was in test files that are deleted: listed, and never counted.
    pub broken: Vec<String>,
    pub gone: Vec<String>,
}

/// Failures with one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    pub message: String,
    /// The ids of all of them.
    pub tests: Vec<String>,
}

/// Do the new tests fail as they have to? `base` is without them, `with` are two runs with them and without the code.
///
/// # Errors
///
/// What the tests have wrong, a line each, for who writes them.
pub fn red(base: &Found, with: [&Found; 2], told: &Told) -> Result<Red, Vec<String>> {
    let (before, [first, second]) = (by_id(base), with.map(by_id));
    let trouble: BTreeSet<&String> = with.iter().flat_map(|run| &run.trouble).collect();
    let mut wrong: Vec<String> =
        trouble.into_iter().map(|line| format!("the run itself failed: {line}")).collect();
    let (files, removed) = (told.files.clone(), told.removed.clone());
    let mut red = Red { files, removed, rows: told.rows.clone(), ..Red::default() };
    red.broken =
        before.values().filter(|test| test.outcome != Outcome::Passed).map(|test| test.id.clone()).collect();
    for (id, test) in &first {
        let was = before.get(id).map(|test| test.outcome);
        let again = second.get(id).map(|test| test.outcome);
        let theirs = was.is_some() && !told.files.iter().any(|file| is_in(id, file));
        let failed = matches!(test.outcome, Outcome::Failed(_));
        let passes = test.outcome == Outcome::Passed;
        if theirs && !passes && again == Some(test.outcome) && was == Some(Outcome::Passed) {
            let now = if failed { "fails" } else { "is skipped" };
            wrong.push(format!(
                "`{id}` passed before the tests were added, and {now} now: {}",
                head(&test.message)
            ));
        } else if theirs && again != Some(test.outcome) {
            red.broken.push((*id).to_owned());
        } else if !theirs && passes && again == Some(test.outcome) && guards(told, id) {
            red.tests.insert((*id).to_owned(), Kind::Guard);
        } else if theirs || was == Some(test.outcome) {
            // As before.
        } else if again != Some(test.outcome) {
            wrong.push(format!(
                "`{id}` did not end alike in two runs; a test depends on nothing but the code"
            ));
        } else if test.outcome == Outcome::Skipped {
            wrong.push(format!("`{id}` is skipped; have it run"));
        } else if failed {
            match kind(test, told) {
                Ok(kind) => {
                    red.tests.insert((*id).to_owned(), kind);
                }
                Err(why) => wrong.push(format!("`{id}` {why}")),
            }
        } else if was.is_none() && !told.files.iter().any(|file| is_same(file, id)) {
            // A file that could be read is no test of its own.
            wrong.push(format!(
                "`{id}` passes without the code, so it shows nothing; have it fail, or write `Guards: NAME` below the heading \
                 of its file if it guards what there is"
            ));
        }
    }
    let unbuilt = || red.tests.iter().filter(|(_, kind)| **kind == Kind::Compile).map(|(id, _)| id.as_str());
    for id in before.iter().filter(|(_, test)| test.outcome == Outcome::Passed).map(|(id, _)| *id) {
        let ours = told.files.iter().any(|file| is_in(id, file));
        if ours && !first.contains_key(id) && !unbuilt().any(|whole| holds(whole, id)) {
            wrong.push(format!("`{id}` is gone; keep the tests that there are"));
        }
    }
    for row in &mut red.rows {
        let (name, file) = (&row.name, &row.file);
        let seen = |(id, _): &(&String, &Kind)| row.is(id);
        // What cannot be built has the tests of its own file, and of those in which it is wrong.
        let whole = |(id, kind): &(&String, &Kind)| {
            let faults = || first.get(id.as_str()).into_iter().flat_map(|test| &test.faults);
            **kind == Kind::Compile && (is_in(id, file) || faults().any(|fault| is_same(file, &fault.file)))
        };
        row.kind = red.tests.iter().find(seen).or(red.tests.iter().find(whole)).map(|(_, kind)| *kind);
        if !first.keys().any(|id| row.is(id)) && row.kind.is_none() {
            wrong.push(format!(
                "no test `{name}` of `{file}` was run, which the spec asks for; is its file found by the runner?"
            ));
        } else if row.kind.is_none() && (file.is_empty() || told.files.contains(file)) {
            wrong.push(format!(
                "`{name}` of `{file}`, which the spec asks for, is not seen to fail: it ends as it did before; have it fail, \
                 or write `Guards: {name}` below the heading of its file if it guards what there is"
            ));
        }
    }
    if red.tests.values().all(|kind| *kind == Kind::Guard) && wrong.is_empty() {
        wrong.push("there is no new test that fails without the code".to_owned());
    }
    wrong.truncate(MOST_LINES);
    if wrong.is_empty() { Ok(red) } else { Err(wrong) }
}

/// Lines of what is wrong with tests; who has more begins anew.
const MOST_LINES: usize = 40;

/// Is it said to guard what there is?
fn guards(told: &Told, id: &str) -> bool {
    told.guards.iter().any(|name| is_named(id, name))
}

/// Why it fails, if that is a proof, or what is wrong as the end of a sentence.
fn kind(test: &Test, told: &Told) -> Result<Kind, String> {
    let declared = |name: &String| told.declared.contains(name);
    let of_tests = |path: &str| !path.is_empty() && told.files.iter().any(|file| is_same(file, path));
    let said = head(&test.message);
    if let Some(fault) = test.faults.iter().find(|fault| {
        fault.missing.is_empty() || !fault.missing.iter().all(declared) || !of_tests(&fault.file)
    }) {
        let why = match fault.missing.iter().find(|name| !declared(name)) {
            _ if !of_tests(&fault.file) => "in what is no file of the new tests".to_owned(),
            Some(name) => format!("which misses `{name}`, and the spec declares no such name"),
            None => "which is no missing name".to_owned(),
        };
        return Err(format!("cannot be built: {}: {}, {why}", fault.file, fault.message));
    }
    if test.faults.len() >= MOST_FAULTS {
        return Err(format!("cannot be built: it has {MOST_FAULTS} errors or more"));
    }
    let whole = !test.faults.is_empty() || of_tests(&test.id);
    match test.outcome {
        Outcome::Failed(Failure::Assertion) => Ok(Kind::Assertion),
        Outcome::Failed(Failure::Error) if !whole && missing(&test.message).is_empty() => Ok(Kind::Runtime),
        Outcome::Failed(Failure::Missing | Failure::Error) => {
            let names = missing(&test.message);
            match names.iter().find(|name| !declared(name)) {
                _ if !test.faults.is_empty() => Ok(Kind::Compile),
                Some(name) => Err(format!("misses `{name}`, and the spec declares no such name: {said}")),
                None if names.is_empty() => Err(format!("misses a name that cannot be told: {said}")),
                None => Ok(if whole { Kind::Compile } else { Kind::Missing }),
            }
        }
        Outcome::Failed(failure) => Err(format!("fails by {}, not by an assertion: {said}", failure.name())),
        Outcome::Passed | Outcome::Skipped => Err("does not fail".to_owned()),
    }
}

/// The names that a failure at run time says are missing.
fn missing(message: &str) -> Vec<String> {
    const SAID: &[(&str, char)] = &[
        ("No module named '", '\''),
        ("cannot import name '", '\''),
        ("NameError: name '", '\''),
        ("has no attribute '", '\''),
        ("export named '", '\''),
        ("Cannot find module '", '\''),
        ("Cannot find package '", '\''),
        ("ReferenceError: ", ' '),
        ("symbol: ", '\n'),
        ("NoClassDefFoundError: ", '\n'),
    ];
    let quoted = SAID.iter().flat_map(|(before, end)| {
        let parts = message.split(before).skip(1);
        parts.filter_map(|rest| rest.split(*end).next())
    });
    let called = message
        .match_indices(" is not a function")
        .filter_map(|(at, _)| message[..at].split([' ', '(']).next_back());
    let last = |name: &str| {
        let name = name.trim();
        let name =
            if name.contains('/') { stem(name) } else { name.rsplit(['.', ':', ' ']).next().unwrap_or(name) };
        name.split('(').next().unwrap_or(name).to_owned()
    };
    quoted
        .chain(called)
        .map(last)
        .filter(|name| !name.is_empty())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// What a file is known by to those who import it: its name, or its folder's where it stands for that.
fn stem(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name.split('.').next().unwrap_or(name) {
        "mod" | "index" | "__init__" | "lib" => folder.rsplit('/').next().unwrap_or(folder),
        stem => stem,
    }
}

/// The names that a spec declares: functions, types and their parts, files.
pub fn declared(spec: &Spec) -> Vec<String> {
    const BEFORE: &[&str] = &[
        "fn",
        "def",
        "func",
        "function",
        "class",
        "struct",
        "enum",
        "trait",
        "interface",
        "type",
        "const",
        "static",
        "let",
        "var",
        "mod",
        "union",
        "record",
    ];
    let mut names = BTreeSet::new();
    for part in spec.functions.iter().chain(&spec.types) {
        names.extend(words(&part.name).map(str::to_owned));
        for code in &part.code {
            let mut all = words(code).peekable();
            while let Some(word) = all.next() {
                names.extend(all.peek().filter(|_| BEFORE.contains(&word)).map(|name| (*name).to_owned()));
            }
        }
    }
    for line in spec
        .types
        .iter()
        .filter_map(|part| part.code.first())
        .flat_map(|code| code.split(['\n', '{', ',', ';']))
    {
        names.extend(
            words(line)
                .find(|word| !["pub", "public", "private", "readonly"].contains(word))
                .map(str::to_owned),
        );
    }
    names.extend(spec.view.files.iter().map(|row| stem(&row.path).to_owned()));
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).filter(|word| !word.is_empty())
}

/// What is said of tests that the locked ones have no more: no code can bring them back.
pub const GONE: &str = "it passed before, and its file was changed so that it is no more";

/// Does the code do what its tests ask, and what it did? `base` is without tests and code, `runs` are with both.
///
/// # Errors
///
/// What fails, by its message, for who writes the code.
pub fn green(base: &Found, red: &Red, runs: &[&Found]) -> Result<Green, Vec<Failing>> {
    let before = by_id(base);
    let passed_before = |id: &str| {
        before.get(id).is_some_and(|test| test.outcome == Outcome::Passed)
            && !red.broken.iter().any(|broken| broken == id)
    };
    let of = |files: &[String], id: &str| files.iter().any(|file| is_in(id, file));
    let mut failing = BTreeMap::<String, BTreeSet<String>>::new();
    let mut fail = |id: &str, message: &str| {
        failing.entry(head(message)).or_default().insert(id.to_owned());
    };
    let (mut locked, mut gone) = (BTreeSet::new(), BTreeSet::new());
    for run in runs {
        run.trouble.iter().for_each(|line| fail("the run itself", line));
        let now = by_id(run);
        let passed = |id: &str| now.get(id).is_some_and(|test| test.outcome == Outcome::Passed);
        for (id, test) in
            now.iter().filter(|(id, _)| !before.contains_key(**id) || red.tests.contains_key(**id))
        {
            locked.insert((*id).to_owned());
            match test.outcome {
                Outcome::Passed => {}
                Outcome::Skipped => fail(id, "it is skipped"),
                Outcome::Failed(_) => fail(id, &test.message),
            }
        }
        for (id, kind) in &red.tests {
            let there = match kind {
                Kind::Compile => now.keys().any(|test| holds(id, test) && passed(test)),
                _ => now.contains_key(id.as_str()),
            };
            if !there {
                fail(id, "it was not run");
            }
        }
        for row in red.rows.iter().filter(|row| !now.keys().any(|id| row.is(id) && passed(id))) {
            fail(&row.name, "no test of this name passed");
        }
        for id in before.keys().filter(|id| passed_before(id) && !red.tests.contains_key(**id)) {
            match now.get(id) {
                Some(test) if test.outcome == Outcome::Passed => {}
                Some(test) => {
                    fail(id, if test.outcome == Outcome::Skipped { "it is skipped" } else { &test.message })
                }
                None if of(&red.removed, id) => {
                    gone.insert((*id).to_owned());
                }
                None if of(&red.files, id) => fail(id, GONE),
                None => fail(id, "it passed before, and was not run now"),
            }
        }
    }
    // Of a set that changes from run to run nobody knows what it holds.
    for run in runs.iter().map(|run| by_id(run)) {
        locked
            .iter()
            .filter(|id| !run.contains_key(id.as_str()))
            .for_each(|id| fail(id, "it was not run each time"));
    }
    if locked.is_empty() {
        fail("the run itself", "no test of this change was run");
    }
    if failing.is_empty() {
        let kept =
            before.keys().filter(|id| passed_before(id) && !locked.contains(**id)).count() - gone.len();
        let (locked, gone) = (locked.into_iter().collect(), gone.into_iter().collect());
        return Ok(Green { locked, kept, broken: red.broken.clone(), gone });
    }
    let groups =
        failing.into_iter().map(|(message, tests)| Failing { message, tests: tests.into_iter().collect() });
    let mut groups: Vec<Failing> = groups.collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.tests.len()));
    Err(groups)
}

/// What fails, for a prompt: a paragraph each, bounded.
pub fn told(failing: &[Failing]) -> Vec<String> {
    const GROUPS: usize = 8;
    const IDS: usize = 5;
    let mut lines: Vec<String> = failing
        .iter()
        .take(GROUPS)
        .map(|group| {
            let ids = group.tests.iter().take(IDS).map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
            let more = group.tests.len().saturating_sub(IDS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{ids}{more}: {}", group.message)
        })
        .collect();
    let left: usize = failing.iter().skip(GROUPS).map(|group| group.tests.len()).sum();
    lines.extend((left > 0).then(|| format!("{left} more tests fail for other reasons")));
    lines
}

/// The first lines of what a test says. Eight of these and the ids beside them are no more than twelve thousand characters.
fn head(message: &str) -> String {
    const LINES: usize = 12;
    const CHARS: usize = 900;
    let lines = message.lines().filter(|line| !line.trim().is_empty()).take(LINES);
    lines.collect::<Vec<_>>().join("\n").chars().take(CHARS).collect()
}

/// Who notices that a part of the code is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noticed {
    /// A test that ran.
    Test,
    /// It cannot be built, or names what is not there.
    Compiler,
    Nobody,
}

/// What a run came to that had a part of the change undone.
pub fn noticed(green: &Green, run: &Found) -> Noticed {
    let ours = |test: &&Test| !green.broken.contains(&test.id);
    // Code that names what is not there shows nothing of what it does.
    let unbuilt = |test: &Test| matches!(test.outcome, Outcome::Failed(Failure::Build | Failure::Missing));
    let failed: Vec<&Test> = run.failed().filter(ours).collect();
    match () {
        () if failed.is_empty() && run.trouble.is_empty() => Noticed::Nobody,
        () if failed.iter().any(|test| !unbuilt(test)) => Noticed::Test,
        () => Noticed::Compiler,
    }
}

/// What tests noticed, of what they could have: those that only the compiler holds are in neither.
pub fn score(parts: impl IntoIterator<Item = Noticed>) -> (usize, usize) {
    parts.into_iter().fold((0, 0), |(test, all), part| match part {
        Noticed::Test => (test + 1, all + 1),
        Noticed::Nobody => (test, all + 1),
        Noticed::Compiler => (test, all),
    })
}

fn by_id(found: &Found) -> BTreeMap<&str, &Test> {
    found.tests.iter().map(|test| (test.id.as_str(), test)).collect()
}

/// Is it a test of this file, package or binary?
fn holds(whole: &str, id: &str) -> bool {
    let mark = if whole.ends_with(".py") { "::" } else { " " };
    id.strip_prefix(whole).is_some_and(|rest| rest.starts_with(mark) || rest.starts_with('.'))
}

/// Is the test of this file, as its runner calls it: pytest and node by the file, cargo by the binary or the module, go by the
/// package?
fn is_in(id: &str, file: &str) -> bool {
    if file.ends_with(".go") {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let end = [".Test", ".Fuzz", ".Example"].iter().filter_map(|mark| id.find(mark)).min();
        let package = &id[..end.unwrap_or(id.len())];
        return folder.is_empty() || is_same(package, folder);
    }
    let Some(path) = file.strip_suffix(".rs") else {
        return is_same(file, id.split(" > ").next().and_then(|id| id.split("::").next()).unwrap_or(id));
    };
    let (binary, test) = id.split_once(' ').unwrap_or((id, ""));
    match path.rsplit_once("tests/") {
        Some((_, target)) => binary.rsplit("::").next() == target.split('/').next() && binary.contains("::"),
        None => {
            let module = path.rsplit_once("src/").map_or(path, |(_, module)| module).trim_end_matches("/mod");
            test.strip_prefix(&module.replace('/', "::")).is_some_and(|rest| rest.starts_with("::"))
        }
    }
}

/// Why no test of this file would ever be seen by its runner before the code is there, as the end of a sentence; none where
/// that is not known.
pub fn unaddressed(runner: &str, file: &str, added: bool, before: &Found) -> Option<&'static str> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let python =
        |name: &str| name.starts_with("test_") && name.ends_with(".py") || name.ends_with("_test.py");
    match runner {
        "cargo" if !file.ends_with(".rs") => Some("stands in no file of Rust; put it into one of `tests/`"),
        "cargo" if file.split('/').rev().skip(1).any(|part| part == "tests") => None,
        "cargo"
            if !name
                .strip_suffix(".rs")
                .is_some_and(|stem| stem.ends_with("tests") || stem.ends_with("test")) =>
        {
            Some(
                "stands among the code, where it cannot be locked before that is written; put it into a file of `tests/`",
            )
        }
        "cargo" if added => Some(
            "stands in a module that no `mod` line names before the code is written; put it into a file of `tests/`",
        ),
        "go" if !name.ends_with("_test.go") => {
            Some("stands in no file that go takes for tests; call it `…_test.go`")
        }
        // Where others are found, its settings say what they are called.
        "pytest"
            if !python(name)
                && before.tests.iter().all(|test| {
                    let file = test.id.split("::").next().unwrap_or_default();
                    python(file.rsplit('/').next().unwrap_or(file))
                }) =>
        {
            Some("stands in no file that pytest takes for tests; call it `test_….py`")
        }
        _ => None,
    }
}

/// Is it the same path, or its end, as who knows nothing of the folders above names it?
fn is_same(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

/// Does a test's id end with this name? A case of a parametrised test has its name, too.
fn is_named(id: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let bare = match id.find('[') {
        Some(at) if !name.contains('[') => &id[..at],
        _ => id,
    };
    !name.is_empty() && bare.strip_suffix(name).is_some_and(|rest| !rest.ends_with(word))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

    use super::{super::Fault, *};
    use crate::documents::spec;

    fn found(tests: impl IntoIterator<Item = Test>) -> Found {
        let mut found = Found::default();
        tests.into_iter().for_each(|test| found.add(test));
        found
    }

    fn fails(id: &str, message: &str) -> Test {
        Test::failed(id, Failure::Assertion, message)
    }

    fn throws(id: &str, message: &str) -> Test {
        Test::failed(id, Failure::Error, message)
    }

    fn misses(id: &str, message: &str) -> Test {
        Test::failed(id, Failure::Missing, message)
    }

    fn unbuilt(id: &str, faults: &[(&str, &[&str])]) -> Test {
        let faults =
            faults.iter().map(|(file, names)| Fault::new(file, "cannot find", names.iter().copied()));
        misses(id, "").with(faults.collect())
    }

    fn row(file: &str, name: &str) -> Row {
        Row { file: file.to_owned(), name: name.to_owned(), kind: None }
    }

    fn said() -> Told {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Told {
            files: words(&["tests/new.rs", "tests/test_new.py", "web/test/new.test.js"]),
            removed: Vec::new(),
            rows: vec![row("tests/new.rs", "new")],
            guards: words(&["guards"]),
            declared: words(&["read", "config"]),
        }
    }

    /// What is wrong at red with one more test beside a sound one, twice the same.
    fn wrong(test: &Test) -> String {
        let old = Some(Test::passed("s old")).filter(|old| old.id != test.id);
        let run = || found(old.clone().into_iter().chain([fails("s::new new", "left: 1"), test.clone()]));
        red(&found([Test::passed("s old")]), [&run(), &run()], &said()).err().unwrap_or_default().join("\n")
    }

    #[test]
    fn a_new_test_is_red_by_an_assertion_or_by_what_the_spec_declares() {
        for (test, kind) in [
            (fails("s::new more", "left: 1"), Kind::Assertion),
            (throws("s::new more", "ValueError: 5"), Kind::Runtime),
            (throws("s::new more", "AttributeError: 'A' object has no attribute 'read'"), Kind::Missing),
            (Test::passed("s::new guards"), Kind::Guard),
            (misses("tests/test_new.py::test_a", "NameError: name 'read' is not defined"), Kind::Missing),
            (misses("tests/test_new.py", "ImportError: cannot import name 'read' from 'pkg'"), Kind::Compile),
            (misses("tests/test_new.py", "ModuleNotFoundError: No module named 'pkg.config'"), Kind::Compile),
            (misses("test/new.test.js > a", "TypeError: lib.read is not a function"), Kind::Missing),
            (
                misses("test/new.test.js", "Cannot find module '/tree/src/config.js' imported from x"),
                Kind::Compile,
            ),
            (
                unbuilt("s::other", &[("tests/new.rs", &["read"]), ("tests/new.rs", &["config"])]),
                Kind::Compile,
            ),
        ] {
            let run = || found([Test::passed("s old"), fails("s::new new", "left: 1"), test.clone()]);
            let red = red(&found([Test::passed("s old")]), [&run(), &run()], &said()).unwrap();
            assert_eq!(red.tests.get(&test.id), Some(&kind), "{test:?}");
        }
    }

    #[test]
    fn whatever_else_a_new_test_does_goes_back() {
        for (test, why) in [
            (Test::passed("s::new more"), "passes without the code"),
            (Test::skipped("s::new more", ""), "is skipped"),
            (misses("s::new more", "NameError: name 'reed' is not defined"), "misses `reed`"),
            (misses("s::new more", "something"), "cannot be told"),
            (throws("s::new more", "AttributeError: 'A' object has no attribute 'reed'"), "misses `reed`"),
            (Test::skipped("s old", ""), "is skipped now"),
            (Test::failed("s::new more", Failure::Timeout, ""), "fails by timeout"),
            (Test::failed("tests/test_new.py", Failure::Build, "SyntaxError"), "fails by build"),
            (unbuilt("s::x", &[("tests/new.rs", &["read", "reed"])]), "misses `reed`"),
            (unbuilt("s::x", &[("tests/new.rs", &["read"]), ("tests/new.rs", &[])]), "no missing name"),
            (unbuilt("s::x", &[("src/lib.rs", &["read"])]), "no file of the new tests"),
            (unbuilt("s::x", &[("", &["read"])]), "no file of the new tests"),
        ] {
            assert!(wrong(&test).contains(why), "{test:?}: {}", wrong(&test));
        }
        let (old, new) = (Test::passed("s old"), fails("s::new new", "left: 1"));
        let base = found([old.clone(), Test::passed("s::new was"), fails("s broken", "x")]);
        let was = Test::passed("s::new was");
        let judged = |first: &[&Test], second: &[&Test]| {
            let runs = [first, second].map(|tests| found(tests.iter().map(|test| (*test).clone())));
            red(&base, [&runs[0], &runs[1]], &said())
        };
        assert!(judged(&[&new, &was], &[&new, &was]).is_ok(), "the others need not be run");
        assert!(judged(&[&new], &[&new]).unwrap_err()[0].contains("`s::new was` is gone"));
        assert!(
            judged(&[&old, &was], &[&old, &was])
                .unwrap_err()
                .join("\n")
                .contains("no test `new` of `tests/new.rs`")
        );
        let flaky = fails("s::new new", "left: 1");
        assert!(
            judged(&[&flaky, &was], &[&Test::passed("s::new new"), &was]).unwrap_err()[0].contains("alike")
        );
        let breaks = fails("s old", "order");
        assert!(
            judged(&[&new, &was, &breaks], &[&new, &was, &breaks]).unwrap_err()[0].contains("passed before")
        );
        let red = judged(&[&new, &was, &breaks], &[&new, &was, &old]).unwrap();
        assert_eq!(red.broken, ["s broken", "s old"], "a flake of theirs is listed");
        let changed = fails("s::new was", "it is 4 now");
        let red = judged(&[&new, &changed], &[&new, &changed]).unwrap();
        assert_eq!(red.tests.len(), 2, "a test that is changed is red as well");
        let none = red_of_nothing();
        assert_eq!(none, ["there is no new test that fails without the code"]);
    }

    fn red_of_nothing() -> Vec<String> {
        let told = Told { rows: Vec::new(), ..said() };
        red(&Found::default(), [&Found::default(), &Found::default()], &told).unwrap_err()
    }

    #[test]
    fn green_is_every_locked_test_in_every_run_and_all_that_passed() {
        let base = || found([Test::passed("s old"), Test::passed("s::new was"), fails("s broken", "x")]);
        let with = || {
            found([
                fails("s::new new", "left: 1"),
                Test::passed("s::new was"),
                unbuilt("s::other", &[("tests/new.rs", &["read"])]),
            ])
        };
        let red = red(&base(), [&with(), &with()], &said()).unwrap();
        let other = Test::passed("s::other b");
        let good = [
            Test::passed("s old"),
            Test::passed("s::new was"),
            Test::passed("s::new new"),
            other,
            fails("s broken", "y"),
        ];
        let of = |runs: &[&Found]| green(&base(), &red, runs);
        let good = |changed: &[(usize, Option<Test>)]| {
            let mut tests: Vec<Option<Test>> = good.iter().cloned().map(Some).collect();
            changed.iter().for_each(|(at, test)| tests[*at] = test.clone());
            found(tests.into_iter().flatten())
        };
        let judged = of(&[&good(&[]), &good(&[]), &good(&[])]).unwrap();
        assert_eq!(judged.locked, ["s::new new", "s::other b"]);
        assert_eq!((judged.kept, judged.broken, judged.gone.len()), (2, vec!["s broken".to_owned()], 0));
        assert_eq!(red.rows[0].kind, Some(Kind::Assertion));
        for (at, test, why) in [
            (2, Some(fails("s::new new", "left: 2")), "left: 2"),
            (2, Some(Test::skipped("s::new new", "")), "it is skipped"),
            (2, None, "it was not run"),
            (3, None, "it was not run"),
            (3, Some(Test::skipped("s::other b", "")), "it was not run"),
            (0, Some(fails("s old", "left: 3")), "left: 3"),
            (0, Some(Test::skipped("s old", "")), "it is skipped"),
            (0, None, "it passed before, and was not run now"),
            (1, None, GONE),
            (4, Some(fails("s::other c", "new and bad")), "new and bad"),
        ] {
            let failing = of(&[&good(&[]), &good(&[(at, test.clone())])]).unwrap_err();
            assert!(failing.iter().any(|group| group.message == why), "{why}: {failing:?}");
        }
        let mut trouble = good(&[]);
        trouble.trouble("the process died");
        assert_eq!(of(&[&trouble]).unwrap_err()[0].message, "the process died");
        assert!(of(&[]).is_err(), "nothing was run");
    }

    /// A test of the same name elsewhere proves nothing, and what cannot be built has the tests of its own file alone.
    #[test]
    fn what_the_spec_asks_for_is_seen_in_its_own_file() {
        let base = || found([Test::passed("s old"), Test::passed("s::new b"), Test::passed("s::other new")]);
        let whole = unbuilt("s::x", &[("tests/x.rs", &["read"])]);
        let judged = |rows: &[Row], guards: &[&str], more: &[Test]| {
            let files = ["tests/new.rs", "tests/x.rs", "tests/test_new.py"].map(str::to_owned).into();
            let guards = guards.iter().map(|name| (*name).to_owned()).collect();
            let told = Told { files, rows: rows.into(), guards, ..said() };
            let all = [fails("s::new a", "1"), Test::passed("s::new b"), Test::passed("s::other new")];
            let run = || found(all.iter().chain(more).cloned());
            red(&base(), [&run(), &run()], &told).map(|red| red.rows[0].kind)
        };
        let whole = std::slice::from_ref(&whole);
        let cases = [test_of("a"), test_of("b")];
        for (row, guards, more, seen) in [
            (row("tests/new.rs", "a"), &[][..], &[][..], Ok(Kind::Assertion)),
            (row("tests/x.rs", "new"), &[], whole, Ok(Kind::Compile)),
            (row("tests/new.rs", "b"), &["b"], &[], Ok(Kind::Guard)),
            (row("tests/test_new.py", "test_c"), &[], &cases, Ok(Kind::Assertion)),
            (row("", "a"), &[], &[], Ok(Kind::Assertion)),
            (
                row("tests/new.rs", "b"),
                &[],
                &[],
                Err("`b` of `tests/new.rs`, which the spec asks for, is not seen to fail"),
            ),
            (row("tests/new.rs", "new"), &[], &[], Err("no test `new` of `tests/new.rs` was run")),
            (row("tests/new.rs", "new"), &[], whole, Err("no test `new` of `tests/new.rs` was run")),
            (row("tests/new.rs", "c"), &[], whole, Err("no test `c` of `tests/new.rs` was run")),
        ] {
            match (judged(std::slice::from_ref(&row), guards, more), seen) {
                (Ok(kind), Ok(seen)) => assert_eq!(kind, Some(seen), "{row:?}"),
                (Err(wrong), Err(why)) => assert!(wrong.join("\n").contains(why), "{row:?}: {wrong:?}"),
                (came, _) => panic!("{row:?}: {came:?}"),
            }
        }
        let red = Red { rows: vec![row("tests/new.rs", "new")], ..Red::default() };
        let now = found([Test::passed("s::other new"), Test::passed("s::new a")]);
        let failing = green(&Found::default(), &red, &[&now]).unwrap_err();
        assert_eq!(failing[0].message, "no test of this name passed");
    }

    fn test_of(case: &str) -> Test {
        fails(&format!("tests/test_new.py::test_c[{case}]"), "assert 1 == 2")
    }

    #[test]
    fn trouble_of_either_run_is_told() {
        let run = || found([fails("s::new new", "left: 1")]);
        let mut second = run();
        second.trouble("the process died");
        let wrong = red(&Found::default(), [&run(), &second], &said()).unwrap_err();
        assert_eq!(wrong, ["the run itself failed: the process died"]);
    }

    #[test]
    fn a_test_file_that_is_deleted_takes_its_tests_along() {
        let base = found([Test::passed("s::old a"), Test::passed("s keeps")]);
        let told = Told { removed: vec!["tests/old.rs".to_owned()], ..said() };
        let with = || found([fails("s::new new", "left: 1"), Test::passed("s keeps")]);
        let red = red(&base, [&with(), &with()], &told).unwrap();
        let now = found([Test::passed("s::new new"), Test::passed("s keeps")]);
        assert_eq!(green(&base, &red, &[&now]).unwrap().gone, ["s::old a"]);
    }

    #[test]
    fn a_part_that_is_undone_is_noticed_by_a_test_the_compiler_or_nobody() {
        let green = Green { broken: vec!["s broken".to_owned()], ..Green::default() };
        let broken = fails("s broken", "x");
        let unbuilt = unbuilt("s::new", &[("src/lib.rs", &["read"])]);
        let mut trouble = found([]);
        trouble.trouble("cargo: it ended with exit code 101");
        let parts = [
            found([broken.clone(), fails("s::new new", "left: 1"), unbuilt.clone()]),
            found([broken.clone(), unbuilt]),
            found([broken]),
            trouble,
        ];
        let parts = parts.map(|run| noticed(&green, &run));
        assert_eq!(parts, [Noticed::Test, Noticed::Compiler, Noticed::Nobody, Noticed::Compiler]);
        assert_eq!(score(parts), (1, 2));
    }

    #[test]
    fn a_test_that_its_runner_would_never_see_is_told() {
        let theirs = found([Test::passed("checks/check_a.py::test_a")]);
        for (runner, file, added, before, seen) in [
            ("cargo", "tests/new.rs", true, &found([]), true),
            ("cargo", "crates/s/tests/new.rs", true, &found([]), true),
            ("cargo", "src/config/tests.rs", false, &found([]), true),
            ("cargo", "src/config/tests.rs", true, &found([]), false),
            ("cargo", "src/lib.rs", false, &found([]), false),
            ("cargo", "tests/new.py", true, &found([]), false),
            ("go", "sub/a_test.go", true, &found([]), true),
            ("go", "sub/a.go", false, &found([]), false),
            ("pytest", "tests/test_new.py", true, &theirs, true),
            ("pytest", "checks/check_b.py", true, &theirs, true),
            ("pytest", "checks/check_b.py", true, &found([Test::passed("tests/test_a.py::test_a")]), false),
            ("node", "anything.js", true, &found([]), true),
        ] {
            assert_eq!(unaddressed(runner, file, added, before).is_none(), seen, "{runner} {file}");
        }
    }

    #[test]
    fn failures_are_told_by_their_message_and_in_bounds() {
        let tests =
            |from: usize, to: usize, text: String| (from..to).map(move |n| fails(&format!("s t{n}"), &text));
        let many = (10..100)
            .flat_map(|n| tests(n * 10, n * 10 + 10, format!("{n} {}\n", "x".repeat(50)).repeat(50)));
        let failing =
            green(&Found::default(), &Red::default(), &[&found(tests(0, 9, "same".into()).chain(many))])
                .unwrap_err();
        let lines = told(&failing);
        assert_eq!((failing.len(), lines.len()), (91, 9));
        assert!(lines.iter().map(String::len).sum::<usize>() <= 12_000);
        assert!(lines[0].contains(" and 5 more: "), "{}", lines[0]);
        assert_eq!(lines[8], "829 more tests fail for other reasons");
    }

    #[test]
    fn what_a_spec_declares() {
        let text = "# 42 - Implementation: Read\n\n## 2. Files to Implement\n\n| File | Change Type | Description |\n|---|---|---|\n\
            | `src/config/mod.rs` | Add | x |\n\n## 4. Data Structures\n\n### Count\n\n```rust\npub struct Count {\n    pub left: u8,\n}\n\
            enum Side { Left, Right(u8) }\n```\n\n## 5. Function Specifications\n\n### Count::read\n\n```rust\npub fn read(path: &Path) -> \
            HashMap<u8, u8>\n```\n\nInput: `1`\n";
        let names = declared(&spec::parse(text));
        for name in ["config", "Count", "left", "Side", "Left", "Right", "read"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
        assert!(!names.iter().any(|name| ["HashMap", "path", "Path"].contains(&name.as_str())), "{names:?}");
    }

    #[test]
    fn a_test_is_of_a_file_as_its_runner_names_it() {
        for (id, file, is) in [
            ("s::read reads", "tests/read.rs", true),
            ("s::read reads", "crates/s/tests/read/main.rs", true),
            ("s::reads a", "tests/read.rs", false),
            ("s config::tests::a", "src/config/tests.rs", true),
            ("s config::testsing::a", "src/config/tests.rs", false),
            ("tests/test_a.py::T::test_b", "api/tests/test_a.py", true),
            ("test/a.test.js > a > b", "test/a.test.js", true),
            ("test/aa.test.js > a", "test/a.test.js", false),
            ("example.com/s/sub.TestA/x", "sub/a_test.go", true),
            ("example.com/s/other.TestA", "sub/a_test.go", false),
            ("example.com/s/sub.TestA/a.b", "sub/a_test.go", true),
            ("example.com/s/sub", "sub/a_test.go", true),
        ] {
            assert_eq!(is_in(id, file), is, "{id} {file}");
        }
        assert!(is_named("a.py::test_b[1-2]", "test_b") && is_named("s::x m::reads", "reads"));
        assert!(!is_named("s::x m::rereads", "reads") && !is_named("x", ""));
    }
}
