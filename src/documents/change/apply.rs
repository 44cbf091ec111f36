//! Applies a change to the files of the repository.

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
};

use super::{
    ChangeSection, FileChange, FileChangeBody, FileTexts, Kind, ParsedChange, WHOLE_LINES,
    can_hold_inline_tests,
};
use crate::documents::{DocumentMistake, edits::Edit, quotable_path, truncate};

/// Maximum number of lines of both texts together for a line diff. The diff of larger texts removes all old lines and
/// adds all new ones.
pub const MOST_LINES: usize = 20_000;

/// Returns each file with its new text, `None` if it is deleted. Applies all files or none. `base` has the texts of the
/// existing files. The code of a file with inline tests is applied to the file as its tests left it.
///
/// # Errors
///
/// Returns one mistake for each edit that does not apply.
pub fn apply(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
) -> Result<Vec<(String, Option<String>)>, Vec<DocumentMistake>> {
    let (mut files, mut mistakes) = (FileTexts::new(), Vec::new());
    for file in &change.files {
        let earlier = files.iter().position(|(path, _)| *path == file.path && can_hold_inline_tests(path));
        let base = match earlier {
            Some(at) => files[at].1.as_deref(),
            None => base.get(&file.path).map(String::as_str),
        };
        match (apply_file(file, base), earlier) {
            (Ok(text), Some(at)) => files[at].1 = text,
            (Ok(text), None) => files.push((file.path.clone(), text)),
            (Err(whys), _) => mistakes.extend(whys.into_iter().map(|why| {
                let path = quotable_path(&file.path);
                DocumentMistake::error("change.apply", path.clone(), format!("`{path}` {why}"))
            })),
        }
    }
    if mistakes.is_empty() { Ok(files) } else { Err(mistakes) }
}

/// Returns the files at the commit, with the change's tests applied to those that also hold code.
pub fn with_inline_tests(change: &ParsedChange, base: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut files = base.clone();
    for file in change.files_in(ChangeSection::Tests).filter(|file| can_hold_inline_tests(&file.path)) {
        if let Ok(Some(text)) = apply_file(file, base.get(&file.path).map(String::as_str)) {
            files.insert(file.path.clone(), text);
        }
    }
    files
}

/// Returns the new text of a file, or `None` if the file is deleted. The error lists the reasons why the change does
/// not apply.
pub(super) fn apply_file(file: &FileChange, base: Option<&str>) -> Result<Option<String>, Vec<String>> {
    let no = |why: &str| Err(vec![why.to_owned()]);
    match (file.kind, &file.body, base) {
        (Kind::Delete, FileChangeBody::None, _) => Ok(None),
        (Kind::Delete, ..) => no("is deleted, and has a block all the same; leave that out"),
        (_, FileChangeBody::None, _) => no("has no code block below its heading"),
        (_, FileChangeBody::Invalid(why), _) => Err(vec![format!("has a block that {why}")]),
        (Kind::Add, FileChangeBody::Whole(text), None) => Ok(Some(text.clone())),
        (Kind::Add, _, None) => no("is added; write the whole of it"),
        (Kind::Add, ..) => no("is there already; write `(Modify)` if it is to change"),
        (Kind::Modify, _, None) => {
            no("is no text file of the repository that models read, so it cannot be modified")
        }
        (Kind::Modify, FileChangeBody::Whole(text), Some(base)) => {
            let (end, lines) = (line_end(base), base.lines().count());
            let new =
                format!("{}{}", if base.starts_with(BOM) { "\u{feff}" } else { "" }, text.replace('\n', end));
            match () {
                () if lines > WHOLE_LINES => {
                    Err(vec![format!("has {lines} lines; change it by `<<<<<<< SEARCH`, not as a whole")])
                }
                () if new == base => no("stays as it is; change it, or say what the spec has wrong"),
                () => Ok(Some(new)),
            }
        }
        (Kind::Modify, FileChangeBody::Edits(edits), Some(base)) => apply_edits(base, edits).map(Some),
    }
}

const BOM: char = '\u{feff}';

fn line_end(text: &str) -> &'static str {
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    if first.ends_with("\r\n") { "\r\n" } else { "\n" }
}

/// Applies edits. Each search text is matched against the original text, line by line, ignoring line endings. Text
/// outside the edits stays the same, byte for byte.
fn apply_edits(base: &str, edits: &[Edit]) -> Result<String, Vec<String>> {
    let (bom, text) = base.strip_prefix(BOM).map_or(("", base), |text| ("\u{feff}", text));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let plain: Vec<&str> =
        lines.iter().map(|line| line.trim_end_matches('\n').trim_end_matches('\r')).collect();
    let all: HashSet<&str> = plain.iter().copied().collect();
    let mut whys = Vec::new();
    let mut places: Vec<(Range<usize>, usize)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let search: Vec<&str> = edit.search.lines().collect();
        let first = quotable_path(
            truncate(search.iter().find(|line| !line.trim().is_empty()).unwrap_or(&""), 100).trim(),
        );
        let number = index + 1;
        if search.iter().all(|line| line.trim().is_empty()) {
            whys.push(format!(
                "has a SEARCH (number {number}) with nothing in it; copy the lines that it stands for"
            ));
            continue;
        }
        let mut found = plain.windows(search.len()).enumerate().filter(|(_, lines)| *lines == search);
        match (found.next(), found.count()) {
            (None, _) => {
                let known = search.iter().find(|line| !all.contains(*line));
                let what = known.map_or("these lines are not in one piece there".to_owned(), |line| {
                    format!("the file has no line `{}`", quotable_path(truncate(line, 100).trim()))
                });
                whys.push(format!("has a SEARCH (number {number}, `{first}`) that does not match: {what}"));
            }
            (Some((at, _)), 0) => places.push((at..at + search.len(), index)),
            (Some(_), more) => whys.push(format!(
                "has a SEARCH (number {number}, `{first}`) that stands there {} times; take in more lines around it",
                more + 1
            )),
        }
    }
    places.sort_by_key(|(range, _)| range.start);
    for pair in places.windows(2).filter(|pair| pair[1].0.start < pair[0].0.end) {
        whys.push(format!(
            "has two SEARCHes (numbers {} and {}) for the same line; make them one",
            pair[0].1 + 1,
            pair[1].1 + 1
        ));
    }
    if !whys.is_empty() {
        return Err(whys);
    }
    let (end, mut out, mut from) = (line_end(text), bom.to_owned(), 0);
    for (range, index) in places {
        out.extend(lines[from..range.start].iter().copied());
        // A last line without a line end gets one only if a line follows it.
        out.push_str(&edits[index].replace.replace('\n', end));
        let last = range.end == lines.len() && !lines[range.end - 1].ends_with('\n');
        if last && out.ends_with(end) {
            out.truncate(out.len() - end.len());
        }
        from = range.end;
    }
    out.extend(lines[from..].iter().copied());
    if out == base {
        Err(vec!["stays as it is; its blocks replace what they find by the same".to_owned()])
    } else {
        Ok(out)
    }
}

/// Returns the change as a unified diff of all files. Files that cannot be applied are left out.
pub fn unified_diff<'c>(
    files: impl IntoIterator<Item = &'c FileChange>,
    base: &BTreeMap<String, String>,
) -> String {
    let files: Vec<&FileChange> = files.into_iter().collect();
    let mut out = String::new();
    for (at, file) in files.iter().enumerate() {
        let of_file = |other: &&&FileChange| other.path == file.path;
        if files[..at].iter().any(|other| of_file(&other)) {
            continue;
        }
        let before = base.get(&file.path).map(String::as_str);
        let all = files[at..].iter().filter(of_file);
        let after = all
            .into_iter()
            .try_fold(before.map(str::to_owned), |text, file| apply_file(file, text.as_deref()));
        let Ok(after) = after else { continue };
        let before = if file.kind == Kind::Add { None } else { Some(before.unwrap_or_default()) };
        out.push_str(&file_diff(&file.path, before, after.as_deref()));
    }
    out
}

/// Returns the diff of one file. `None` means that the file does not exist.
pub fn file_diff(path: &str, before: Option<&str>, after: Option<&str>) -> String {
    let name =
        |side: &str, text: Option<&str>| text.map_or("/dev/null".to_owned(), |_| format!("{side}/{path}"));
    let (left, right) = (&name("a", before), &name("b", after));
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    let (gone, new) = (before.lines().count(), after.lines().count());
    if gone == 0 && new == 0 {
        return format!("--- {left}\n+++ {right}\n");
    }
    if gone > 0 && new > 0 && gone + new <= MOST_LINES {
        return similar::TextDiff::from_lines(before, after).unified_diff().header(left, right).to_string();
    }
    let range = |lines: usize| format!("{},{lines}", usize::from(lines > 0));
    let mut out = format!("--- {left}\n+++ {right}\n@@ -{} +{} @@\n", range(gone), range(new));
    for (mark, text) in [('-', before), ('+', after)] {
        for line in text.split_inclusive('\n') {
            out.push(mark);
            out.push_str(line);
            if !line.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    out
}
