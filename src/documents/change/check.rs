//! Checks of a change. They report all mistakes at once, so that one revision can fix them all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use unicode_normalization::UnicodeNormalization;

use super::{
    ChangeScope, ChangeSection, FileChange, FileTexts, Kind, ParsedChange, apply, can_hold_inline_tests,
    is_executed, is_test,
    parse::{mentions_test, parse, parse_file_heading},
};
use crate::{
    documents::{DocumentMistake, FileTree, lld, markdown, path_rules, quotable_path, secrets},
    types::IssueNo,
};

const MOST_FILES: usize = 200;

/// Maximum size of one changed file, in bytes.
const FILE_BYTES: usize = 1_000_000;
const ALL_BYTES: usize = 4_000_000;

/// Maximum number of mistakes reported per change. A change with more mistakes must be rewritten anyway.
const MOST_MISTAKES: usize = 100;

/// Checks the form, paths, completeness and code blocks of a change. `base` contains the texts of the changed files at
/// the commit of `tree`.
pub fn check(
    text: &str,
    issue: IssueNo,
    allowed: &ChangeScope,
    base: &BTreeMap<String, String>,
    tree: &dyn FileTree,
) -> Vec<DocumentMistake> {
    if let Some(mistake) = lld::check_readable(text) {
        return vec![mistake];
    }
    let change = parse(text);
    let mut out = Vec::new();
    if change.files.len() > MOST_FILES {
        let message = format!("it has {} files; {MOST_FILES} are allowed", change.files.len());
        return vec![DocumentMistake::error("files.many", "document", message)];
    }
    lld::check_hidden_text(text, &mut out);
    check_form(text, &change, issue, &mut out);
    check_touched_files(&change, allowed, tree, &mut out);
    check_missing_files(&change, allowed, &mut out);
    let files = apply_blocks(&change, base, tree, &mut out);
    check_tests(&change, allowed, &files, &mut out);
    out.truncate(MOST_MISTAKES);
    out
}

/// Maximum number of files beyond the scope that people may be asked to allow.
const MOST_EXTRA_FILES: usize = 5;

/// Returns the files that the change touches beyond its scope and that a person may allow. Each file belongs to the
/// section being drafted, is not executed automatically, and has a path that people can type. If there are more than
/// `MOST_EXTRA_FILES` such files, the list is empty.
pub fn files_beyond_scope(change: &ParsedChange, allowed: &ChangeScope, tree: &dyn FileTree) -> Vec<String> {
    let mut wrong = Vec::new();
    check_paths(change, tree, &mut wrong);
    permissible_files(change, allowed, tree, &wrong)
}

/// Returns the files beyond the scope that a person may allow, except the files that have a mistake in `wrong`.
fn permissible_files(
    change: &ParsedChange,
    allowed: &ChangeScope,
    tree: &dyn FileTree,
    wrong: &[DocumentMistake],
) -> Vec<String> {
    let typed = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let found = change.files.iter().filter(|file| {
        let path = file.path.as_str();
        let of_tests = is_test(path);
        !allowed.files.contains_key(path)
            && matches!(file.kind, Kind::Add | Kind::Modify)
            && (file.part == ChangeSection::Tests, allowed.part == ChangeSection::Tests)
                == (of_tests, of_tests)
            && !is_executed(path)
            && !tree.is_executable(path)
            && path.len() <= 200
            && path.chars().all(typed)
            && !path.ends_with('.')
            && !wrong.iter().any(|mistake| mistake.place == quotable_path(path))
    });
    let found: Vec<String> = found.map(|file| file.path.clone()).collect();
    if found.len() > MOST_EXTRA_FILES { Vec::new() } else { found }
}

/// Reports files that the change touches but may not touch. Files that the change should touch but does not are not
/// reported.
pub(super) fn check_touched_files(
    change: &ParsedChange,
    allowed: &ChangeScope,
    tree: &dyn FileTree,
    out: &mut Vec<DocumentMistake>,
) {
    check_paths(change, tree, out);
    let asked = permissible_files(change, allowed, tree, out);
    check_scope(change, allowed, &asked, out);
}

/// Rule of mistakes about files that people can change but this program cannot.
pub const FOR_PEOPLE: &str = "path.people";

/// Returns a mistake for each file that no change can touch as a design or spec asks for.
pub fn unbuildable_files<'p>(
    files: impl IntoIterator<Item = (&'p str, Kind)>,
    tree: &dyn FileTree,
) -> Vec<DocumentMistake> {
    let files: BTreeMap<&str, Kind> = files.into_iter().collect();
    let change = ParsedChange {
        files: files.iter().map(|(path, kind)| FileChange::for_path(path, *kind)).collect(),
        ..ParsedChange::default()
    };
    let mut wrong = Vec::new();
    check_paths(&change, tree, &mut wrong);
    let modified = files.iter().filter(|(_, kind)| **kind == Kind::Modify).map(|(path, _)| *path);
    wrong.extend(modified.filter(|path| tree.is_executable(path)).map(|path| {
        let path = quotable_path(path);
        let message = format!("`{path}` is executable, which a commit made by GitHub's API would reset");
        DocumentMistake::error(FOR_PEOPLE, path, message)
    }));
    wrong
}

/// Returns the reason why no change can satisfy the spec, worded as the end of a sentence about the spec.
pub fn unbuildable_reason(allowed: &ChangeScope, tree: &dyn FileTree) -> Option<String> {
    let files = allowed.files.iter().map(|(path, kind)| (path.as_str(), *kind));
    if let Some(why) = unbuildable_files(files, tree).into_iter().next() {
        return Some(why.message);
    }
    let mut seen = BTreeSet::new();
    for row in &allowed.rows {
        let (name, file) = (quotable_path(&row.name), quotable_path(&row.file));
        if !seen.insert((&row.file, &row.name)) {
            return Some(format!(
                "the test `{name}` of `{file}` stands in two rows, and a test run could not tell them apart"
            ));
        }
        if !matches!(allowed.files.get(&row.file), Some(Kind::Add | Kind::Modify)) {
            return Some(format!("the test `{name}` stands in `{file}`, which it neither adds nor modifies"));
        }
        if is_workflow(&row.file) {
            return Some(format!("the test `{name}` stands in `{file}`, which is never committed"));
        }
    }
    allowed
        .rows
        .is_empty()
        .then(|| "it asks for no test, and nothing could show that it was built".to_owned())
}

fn check_form(text: &str, change: &ParsedChange, issue: IssueNo, out: &mut Vec<DocumentMistake>) {
    if change.title.is_empty() || change.number != Some(issue.0) {
        let message = format!("the first line must be `# {issue} - Change: TITLE`");
        out.push(DocumentMistake::error("h1.missing", "H1", message));
    }
    if text[change.summary.clone()].trim().is_empty() {
        let message = "there is no summary below the first heading; say in 3 to 8 lines what changes and why";
        out.push(DocumentMistake::error("summary.missing", "H1", message));
    }
    for part in ChangeSection::ALL {
        if change.sections.iter().filter(|(known, _)| *known == part).count() > 1 {
            let message = format!("`## {}` stands here twice; make it one", part.as_str());
            out.push(DocumentMistake::error("section.twice", part.as_str(), message));
        }
    }
    if !secrets::find(text).is_empty() {
        let message = "this text looks like a credential; remove it";
        out.push(DocumentMistake::error("secret", "document", message));
    }
    // The rendered page and the applied text must agree: people read one, code applies the other.
    let outline = markdown::parse_outline(text);
    let mut say =
        |place: String, message: &str| out.push(DocumentMistake::error("form.hidden", place, message));
    let seen: HashMap<usize, &str> =
        outline.headings.iter().map(|h| (h.range.start, text[h.range.clone()].trim_end())).collect();
    let files: BTreeSet<usize> = change.files.iter().map(|file| file.range.start).collect();
    if change.sections.iter().any(|(_, range)| !seen.contains_key(&range.start)) {
        say("document".to_owned(), "the heading of a section stands in a block that is not closed");
    }
    for file in &change.files {
        let blocks = outline.code_blocks.iter().filter(|block| file.range.contains(&block.range.start));
        let blocks = blocks.map(|block| block.text.as_str());
        let ours = file.block.is_some().then(|| &text[file.content.clone()]);
        if !seen.contains_key(&file.range.start) || !blocks.eq(ours) {
            let message = "its heading or its one code block is not what Markdown makes of it; close every fence, and put \
                           nothing else into a block";
            say(quotable_path(&file.path), message);
        }
    }
    if seen.iter().any(|(at, line)| parse_file_heading(line).is_some() && !files.contains(at)) {
        say(
            "document".to_owned(),
            "the heading of a file stands in no section, or in a block that is not closed",
        );
    }
}

fn check_paths(change: &ParsedChange, tree: &dyn FileTree, out: &mut Vec<DocumentMistake>) {
    let mut report = |rule, path: &str, why: &str| {
        let path = quotable_path(path);
        out.push(DocumentMistake::error(rule, path.clone(), format!("`{path}` {why}")));
    };
    // Paths, with every folder, as a file system without case and Unicode normalization sees them.
    let mut known = HashMap::<String, &str>::new();
    for path in tree.paths() {
        for part in parent_folders(path).chain([path]) {
            known.entry(fold_path(part)).or_insert(part);
        }
    }
    let mut named = BTreeMap::<&str, &FileChange>::new();
    for file in &change.files {
        let path = file.path.as_str();
        if let Some(why) = path_rules::refusal_reason(path) {
            report("path", path, why);
            continue;
        }
        if let Some(why) = reserved_reason(path) {
            report(FOR_PEOPLE, path, why);
            continue;
        }
        let mut say = |path: &str, why: &str| report("path", path, why);
        if path.ends_with('/') {
            say(path, "is a folder; name files only");
        }
        if parent_folders(path).chain([path]).any(|part| tree.is_link(part)) {
            say(path, "is or lies below a link or another repository, where nothing is written");
        }
        let deleted = |path| change.files.iter().any(|file| file.path == path && file.kind == Kind::Delete);
        if tree.is_dir(path) || parent_folders(path).any(|part| tree.is_file(part) && !deleted(part)) {
            say(path, "would be a file and a folder at once");
        }
        // A file with inline tests may be in `Tests` and once more in `Code`.
        let twin = named.insert(path, file);
        let is_of_tests = |file: &FileChange| file.part == ChangeSection::Tests;
        let shares =
            |twin: &FileChange| can_hold_inline_tests(path) && is_of_tests(twin) != is_of_tests(file);
        if twin.is_some_and(|twin| !shares(twin)) {
            say(path, "has two headings; make them one");
        }
        for part in parent_folders(path).chain([path]) {
            let there = tree.is_file(part) || tree.is_dir(part);
            if *known.entry(fold_path(part)).or_insert(part) != part && !there {
                say(path, "differs from another path only by case, or by how its letters are composed");
                break;
            }
        }
    }
    for file in &change.files {
        if parent_folders(&file.path)
            .any(|part| named.get(part).is_some_and(|other| other.kind != Kind::Delete))
        {
            report("path", &file.path, "lies below what is itself a file of this change");
        }
    }
}

fn parent_folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

fn fold_path(path: &str) -> String {
    if path.is_ascii() {
        return path.to_ascii_lowercase();
    }
    // Uppercase, then lowercase: some letters have several lowercase forms.
    path.nfd().flat_map(char::to_uppercase).flat_map(char::to_lowercase).nfd().collect()
}

/// Returns the reason why no model may write this path, even if the spec allows it. The reason is worded as the end of
/// a sentence.
fn reserved_reason(path: &str) -> Option<&'static str> {
    let path = fold_path(path);
    if path.rsplit('/').next() == Some("codeowners") {
        return Some("says who owns the code, which only people change");
    }
    if path == ".github/countersign.toml" || path.starts_with(".github/countersign/") {
        return Some("holds the settings of this bot, which only people change");
    }
    None
}

/// Returns whether the path is a GitHub Actions workflow. The bot never commits such a file; a person must commit it.
pub fn is_workflow(path: &str) -> bool {
    fold_path(path).starts_with(".github/workflows/")
}

/// Reports files that are not in the approved spec, or whose kind or section differs from the spec.
fn check_scope(
    change: &ParsedChange,
    allowed: &ChangeScope,
    asked: &[String],
    out: &mut Vec<DocumentMistake>,
) {
    for file in &change.files {
        let path = quotable_path(&file.path);
        let mut say = |rule, message: String| out.push(DocumentMistake::error(rule, path.clone(), message));
        let of_tests = allowed.tests.contains(&file.path);
        let of_section = file.part == ChangeSection::Tests;
        match allowed.files.get(&file.path) {
            None if allowed.is_reopened && of_section && asked.contains(&file.path) => {}
            None => {
                let or = match asked.contains(&file.path) {
                    true => ", or, if the change needs it, keep it: people are asked after the last draft",
                    false => "",
                };
                say("files.scope", format!("`{path}` is not in the approved spec; leave it out{or}"));
            }
            Some(kind) if *kind != file.kind => {
                let message = format!("`{path}` is {} in the approved spec; write the same", kind.as_str());
                say("files.kind", message);
            }
            Some(_) if allowed.inline.contains(&file.path) => {
                if allowed.part == ChangeSection::Tests && file.part != ChangeSection::Tests {
                    say(
                        "files.part",
                        format!("the code of `{path}` is to be written later; write its tests alone"),
                    );
                }
            }
            Some(_)
                if of_tests && file.part != ChangeSection::Tests && allowed.part != ChangeSection::Tests =>
            {
                say("files.part", format!("`{path}` is a file of the tests, which are locked; leave it out"));
            }
            Some(_) if (file.part == ChangeSection::Tests) != of_tests => {
                let (is, to) = if of_tests { ("is", "Tests") } else { ("is not", "Code") };
                say("files.part", format!("`{path}` {is} a file of the tests; put it below `## {to}`"));
            }
            Some(_) if allowed.part == ChangeSection::Tests && file.part != ChangeSection::Tests => {
                say("files.part", format!("`{path}` is to be written later; write the tests alone"));
            }
            Some(_) => {}
        }
    }
}

fn check_missing_files(change: &ParsedChange, allowed: &ChangeScope, out: &mut Vec<DocumentMistake>) {
    // The section of the locked tests is not the drafter's.
    let is_test_file = |path: &String| allowed.tests.contains(path);
    let of_part = |path: &&String| match allowed.part {
        ChangeSection::Tests => {
            is_test_file(path) && !allowed.is_reopened || allowed.rows.iter().any(|row| row.file == **path)
        }
        _ => !is_test_file(path),
    };
    let wanted = allowed.files.keys().filter(|path| of_part(path) && !allowed.allowed_later.contains(*path));
    for path in wanted.filter(|path| !change.files.iter().any(|file| file.path == **path)) {
        let (path, kind) = (quotable_path(path), allowed.files[path].as_str());
        let message = format!("`{path}` of the approved spec is missing; add ``### `{path}` ({kind})``");
        out.push(DocumentMistake::error("files.missing", path, message));
    }
}

/// Applies the code blocks and checks the sizes of the resulting files.
pub(super) fn apply_blocks(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
    tree: &dyn FileTree,
    out: &mut Vec<DocumentMistake>,
) -> FileTexts {
    for file in &change.files {
        let (path, there) = (quotable_path(&file.path), tree.is_file(&file.path));
        let wrong = match file.kind {
            // `apply` knows a file only by its text in `base`.
            Kind::Add if there && !base.contains_key(&file.path) => {
                "is there already; write `(Modify)` if it is to change"
            }
            Kind::Modify | Kind::Delete if !there => "is not there; name a file that is, or write `(Add)`",
            _ => continue,
        };
        out.push(DocumentMistake::error("change.kind", path.clone(), format!("`{path}` {wrong}")));
    }
    let files = match apply(change, base) {
        Ok(files) => files,
        Err(mistakes) => {
            // Outside the scope the file's text is not known, so an edit of it says nothing more.
            let refused: Vec<String> =
                out.iter().filter(|mistake| mistake.rule == "files.scope").map(|m| m.place.clone()).collect();
            out.extend(mistakes.into_iter().filter(|mistake| !refused.contains(&mistake.place)));
            return Vec::new();
        }
    };
    let sizes = || files.iter().map(|(path, text)| (path, text.as_ref().map_or(0, String::len)));
    for (path, size) in sizes().filter(|(_, size)| *size > FILE_BYTES) {
        let path = quotable_path(path);
        let message = format!("`{path}` would have {size} bytes; {FILE_BYTES} are allowed");
        out.push(DocumentMistake::error("files.large", path, message));
    }
    let all: usize = sizes().map(|(_, size)| size).sum();
    if all > ALL_BYTES {
        let message = format!("its files would have {all} bytes together; {ALL_BYTES} are allowed");
        out.push(DocumentMistake::error("files.large", "document", message));
    }
    files
}

/// Checks that each test required by the spec is in its file, and that each requirement has a test.
fn check_tests(
    change: &ParsedChange,
    allowed: &ChangeScope,
    made: &[(String, Option<String>)],
    out: &mut Vec<DocumentMistake>,
) {
    let mut say =
        |rule, message| out.push(DocumentMistake::error(rule, ChangeSection::Tests.as_str(), message));
    for row in &allowed.rows {
        let file = made.iter().find(|(path, _)| *path == row.file).and_then(|(_, text)| text.as_deref());
        if file.is_some_and(|text| !mentions_test(text, &row.name)) {
            let (name, path) = (quotable_path(&row.name), quotable_path(&row.file));
            say("tests.name", format!("`{path}` has no test `{name}`, which the approved spec asks for"));
        }
    }
    let proven: BTreeSet<&str> =
        change.files_in(ChangeSection::Tests).flat_map(|file| &file.proves).map(String::as_str).collect();
    let wanted: BTreeSet<&str> =
        allowed.rows.iter().flat_map(|row| &row.requirements).map(String::as_str).collect();
    for id in wanted.difference(&proven) {
        let id = quotable_path(id);
        say(
            "tests.proof",
            format!("no test says that it shows {id}; write `Proves: {id}` below the heading of its file"),
        );
    }
    for id in proven.difference(&allowed.requirements.iter().map(String::as_str).collect()) {
        say(
            "tests.unknown",
            format!("{} is shown by no test of the approved spec; leave it out", quotable_path(id)),
        );
    }
}
