//! Mutation units: parts of a change that are reverted one at a time, to check that a test fails without them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use similar::{Algorithm, DiffTag, capture_diff_slices};

use super::{CodePiece, Language, is_comment, is_significant_line, split_into_pieces, strip_comments};
use crate::documents::{
    DocumentMistake,
    change::{ChangeSection, FileTexts, Kind, MOST_LINES, ParsedChange, apply, with_inline_tests},
};

/// One part of the changed code: a function, a group of adjacent changed lines, or an added file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MutationUnit {
    pub path: String,
    /// Range of lines before the change, counted from 0.
    old: Range<usize>,
    new: Range<usize>,
    /// Words of the unit that no file had before the change.
    names: BTreeSet<String>,
}

impl MutationUnit {
    /// Returns the position of the unit in the changed file: its first line, counted from 1, and its number of lines.
    pub fn lines(&self) -> (usize, usize) {
        (self.new.start + 1, self.new.len())
    }
}

/// Range of lines before the change, and range of lines after the change.
type ChangedRanges = (Range<usize>, Range<usize>);

/// Splits the changed code into mutation units, largest first. Changed comments, deleted lines, and lines that the change
/// only moves are left out: reverting them alone changes nothing that a test could notice.
///
/// # Errors
///
/// Returns the mistakes that [`apply`] finds in the change.
pub fn split_into_units(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
) -> Result<Vec<MutationUnit>, Vec<DocumentMistake>> {
    let removed = removed_lines(change, base)?;
    let known: BTreeSet<&str> = base.values().flat_map(|text| words(text)).collect();
    let mut units = units_by_file(change, base, |path, [before, after]| {
        let language = Language::from_path(path);
        match split_into_pieces(language, [before, after]) {
            Some([old, new]) => [changed_functions(language, &old, &new), other_changes(&old, &new)].concat(),
            None => hunks(before, after),
        }
    })?;
    let before = with_inline_tests(change, base);
    let after: BTreeMap<String, Option<String>> = apply(change, base)?.into_iter().collect();
    units.retain_mut(|unit| {
        let language = Language::from_path(&unit.path);
        let text = |text: Option<&String>, lines: &Range<usize>| {
            strip_comments(language, &take_lines(text.map_or("", String::as_str), lines.clone()))
        };
        let old = text(before.get(&unit.path), &unit.old);
        let new = text(after.get(&unit.path).and_then(Option::as_ref), &unit.new);
        let own = words(&new).filter(|word| !known.contains(word)).map(str::to_owned);
        // Other files name a new file by its stem.
        let stem = unit.path.rsplit('/').next().and_then(|name| name.split('.').next());
        let stem = stem.filter(|_| !before.contains_key(&unit.path)).map(str::to_owned);
        unit.names = own.chain(stem).collect();
        let is_moved = removed.contains(&significant_lines(&new));
        new.contains(char::is_alphanumeric) && new != old && !is_moved
    });
    units.sort_by_key(|unit| Reverse(unit.new.len().max(unit.old.len())));
    Ok(units)
}

/// Returns the lines that the change removes from code files, with a blank line between separate places.
fn removed_lines(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
) -> Result<String, Vec<DocumentMistake>> {
    let before = with_inline_tests(change, base);
    let gone = change.files.iter().filter(|file| file.kind == Kind::Delete);
    let gone = gone.map(|file| (file.path.clone(), 0..usize::MAX));
    let changed = units_by_file(change, base, |_, [before, after]| hunks(before, after))?;
    let places = changed.into_iter().map(|unit| (unit.path, unit.old)).chain(gone);
    Ok(places
        .map(|(path, lines)| {
            let text = take_lines(before.get(&path).map_or("", String::as_str), lines);
            significant_lines(&strip_comments(Language::from_path(&path), &text))
        })
        .collect())
}

/// Returns the lines with letters or digits, without their indentation, each between two line ends.
fn significant_lines(text: &str) -> String {
    let lines = text.lines().filter(|line| line.contains(char::is_alphanumeric));
    lines.fold("\n".to_owned(), |all, line| all + line.trim() + "\n")
}

fn take_lines(text: &str, lines: Range<usize>) -> String {
    text.split_inclusive('\n').skip(lines.start).take(lines.len()).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns a unit and all units that it is connected with, directly or through others, by a name that is new in the
/// change. Code that uses a new name does not compile without the code that defines it.
fn connected_units<'u>(units: &'u [MutationUnit], unit: &'u MutationUnit) -> Vec<&'u MutationUnit> {
    let (mut all, mut names) = (vec![unit], unit.names.clone());
    while let Some(next) = units.iter().find(|unit| !all.contains(unit) && !names.is_disjoint(&unit.names)) {
        names.extend(next.names.iter().cloned());
        all.push(next);
    }
    all
}

/// Returns the changed lines of code files as pairs of path and line number, counted from 1. Comment lines, and lines
/// without letters or digits, are left out.
///
/// # Errors
///
/// Returns the mistakes that [`apply`] finds in the change.
pub fn changed_lines(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
) -> Result<Vec<(String, usize)>, Vec<DocumentMistake>> {
    let texts: BTreeMap<String, Option<String>> = apply(change, base)?.into_iter().collect();
    let mut lines = Vec::new();
    for MutationUnit { path, new, .. } in
        units_by_file(change, base, |_, [before, after]| hunks(before, after))?
    {
        let (text, language) = (texts.get(&path).and_then(Option::as_deref), Language::from_path(&path));
        let numbered = text.unwrap_or_default().lines().zip(1..).skip(new.start).take(new.len());
        let numbered = numbered.filter(|(line, _)| is_significant_line(language, line));
        lines.extend(numbered.map(|(_, number)| (path.clone(), number)));
    }
    Ok(lines)
}

/// Returns the mutation units of all code files. A file that is added or very long forms a single unit.
fn units_by_file(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
    parts: impl Fn(&str, [&str; 2]) -> Vec<ChangedRanges>,
) -> Result<Vec<MutationUnit>, Vec<DocumentMistake>> {
    let (files, mut units) = (apply(change, base)?, Vec::new());
    // Inline tests are not code to revert.
    let before = with_inline_tests(change, base);
    for file in change.files_in(ChangeSection::Code) {
        let made = files.iter().find(|(path, _)| *path == file.path);
        let Some((path, Some(after))) = made else { continue };
        let texts = [before.get(path).map_or("", String::as_str), after.as_str()];
        let [old, new] = texts.map(|text| text.split_inclusive('\n').count());
        let lines = match file.kind {
            Kind::Modify if old + new <= MOST_LINES => parts(path, texts),
            _ => vec![(0..old, 0..new)],
        };
        let unit = |(old, new)| MutationUnit { path: path.clone(), old, new, names: BTreeSet::new() };
        units.extend(lines.into_iter().map(unit));
    }
    Ok(units)
}

fn hunks(before: &str, after: &str) -> Vec<ChangedRanges> {
    let [old, new] = [before, after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let ops = capture_diff_slices(Algorithm::Myers, &old, &new);
    let changed = ops.iter().filter(|op| op.tag() != DiffTag::Equal);
    changed.map(|op| (op.old_range(), op.new_range())).collect()
}

/// Returns the line ranges of changed functions and of new functions. The range of a new function includes the comments
/// above the function.
fn changed_functions(language: Language, old: &[CodePiece<'_>], new: &[CodePiece<'_>]) -> Vec<ChangedRanges> {
    let were: BTreeMap<&str, &CodePiece<'_>> =
        old.iter().filter_map(|piece| Some((piece.name.as_deref()?, piece))).collect();
    let changed = |(at, piece): (usize, &CodePiece<'_>)| match were.get(piece.name.as_deref()?) {
        Some(known) if known.text == piece.text => None,
        Some(known) => Some((known.lines.clone(), piece.lines.clone())),
        None => {
            let above = new[..at].iter().rev();
            let comments = above.take_while(|line| line.name.is_none() && is_comment(language, line.text));
            Some((0..0, piece.lines.start - comments.count()..piece.lines.end))
        }
    };
    new.iter().enumerate().filter_map(changed).collect()
}

/// Returns the line ranges of changed lines outside functions, and of removed functions. A function that was only moved
/// is left out.
fn other_changes(old: &[CodePiece<'_>], new: &[CodePiece<'_>]) -> Vec<ChangedRanges> {
    let is_there =
        |name: &str, pieces: &[CodePiece<'_>]| pieces.iter().any(|piece| piece.name.as_deref() == Some(name));
    let [were, are] = [old, new].map(|pieces| pieces.iter().map(CodePiece::key).collect::<Vec<_>>());
    let runs = |pieces: &[CodePiece<'_>], gone: bool| {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for piece in pieces {
            match &piece.name {
                Some(name) if gone && !is_there(name, new) => runs.push(piece.lines.clone()),
                Some(_) => runs.push(piece.lines.end..piece.lines.end),
                None => match runs.last_mut().filter(|run| run.end == piece.lines.start) {
                    Some(run) => run.end = piece.lines.end,
                    None => runs.push(piece.lines.clone()),
                },
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    };
    let mut found = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, &were, &are) {
        if op.tag() == DiffTag::Equal {
            continue;
        }
        let after = new.get(op.new_range().end).map(|piece| piece.lines.start);
        let after = after.or(new.last().map(|piece| piece.lines.end)).unwrap_or_default();
        let (gone, come) = (runs(&old[op.old_range()], true), runs(&new[op.new_range()], false));
        for at in 0..gone.len().max(come.len()) {
            let nothing = [0..0, after..after];
            found.push((
                gone.get(at).unwrap_or(&nothing[0]).clone(),
                come.get(at).unwrap_or(&nothing[1]).clone(),
            ));
        }
    }
    found
}

/// Reverts a unit, alone or together with its connected units. Returns the locations of the reverted units, such as
/// `src/lib.rs:37+3`, and the files of the change without them. `None` if the unit has no connected units.
pub fn revert_with_connected(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
    (units, unit): (&[MutationUnit], &MutationUnit),
    together: bool,
) -> Option<(String, FileTexts)> {
    let all = if together { connected_units(units, unit) } else { vec![unit] };
    let files = revert_units(change, base, &all).ok().filter(|_| !together || all.len() > 1)?;
    let place = |unit: &&MutationUnit| {
        let (line, lines) = unit.lines();
        format!("{}:{line}+{lines}", unit.path)
    };
    Some((all.iter().map(place).collect::<Vec<_>>().join(", "), files))
}

/// Applies the change, but leaves out these mutation units.
///
/// # Errors
///
/// Returns the mistakes that [`apply`] finds in the change.
fn revert_units(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
    units: &[&MutationUnit],
) -> Result<FileTexts, Vec<DocumentMistake>> {
    let mut files = apply(change, base)?;
    let base = with_inline_tests(change, base);
    // From the end, so that the line numbers of the other units stay right.
    let mut units = units.to_vec();
    units.sort_by_key(|unit| Reverse(unit.new.start));
    for (path, after) in &mut files {
        let mut last = usize::MAX;
        for unit in units.iter().filter(|unit| unit.path == *path) {
            *after = after.take().zip(base.get(path)).map(|(after, before)| {
                let start = take_lines(&after, 0..unit.new.start);
                // A comment may belong to two units.
                let end = take_lines(&after, unit.new.end.min(last)..usize::MAX);
                format!("{start}{}{end}", take_lines(before, unit.old.clone()))
            });
            last = unit.new.start;
        }
    }
    // Without its unit, an added file does not exist.
    let is_reverted = |path: &str| units.iter().any(|unit| unit.path == path);
    Ok(files.into_iter().filter(|(path, after)| after.is_some() || !is_reverted(path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::change::parse;

    /// Returns the mutation units of a changed file as pairs of first line, counted from 1, and number of lines.
    fn unit_lines(path: &str, before: &str, after: &str) -> Vec<(usize, usize)> {
        let edit = format!("<<<<<<< SEARCH\n{before}=======\n{after}>>>>>>> REPLACE\n");
        let text =
            format!("# 42 - Change: X\n\nX.\n\n## Code\n\n### `{path}` (Modify)\n\n````text\n{edit}````\n");
        let base = [(path.to_owned(), before.to_owned())].into();
        let change = parse(&text);
        let units = split_into_units(&change, &base).unwrap();
        // Each unit can be reverted.
        assert!(units.iter().all(|unit| revert_units(&change, &base, &[unit]).is_ok()));
        let mut lines: Vec<_> = units.iter().map(MutationUnit::lines).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn each_changed_function_or_group_of_other_changed_lines_is_a_mutation_unit() {
        let before = "fn a() {\n    1;\n}\n\nfn b() {\n    2;\n}\n";
        let after = "use x::y;\n\nfn a() {\n    3;\n}\n\n/// New.\nfn c() {\n    4;\n}\n\n// Said.\nfn b() {\n    2;\n}\n";
        assert_eq!(unit_lines("src/lib.rs", before, after), [(1, 2), (3, 3), (7, 4)]);
        // A removed function, a moved function and a comment are not units.
        assert_eq!(unit_lines("src/lib.rs", before, "fn b() {\n    2;\n}\n"), []);
        assert_eq!(unit_lines("src/lib.rs", before, "fn b() {\n    2;\n}\n\nfn a() {\n    1;\n}\n"), []);
        assert_eq!(unit_lines("src/lib.rs", before, &format!("// Said.\n{before}")), []);
        let said = before.replace("    1;", "    // One.\n    1; /* one */");
        assert_eq!(unit_lines("src/lib.rs", before, &said), []);
        assert_eq!(unit_lines("src/lib.rs", before, &said.replace("1;", "3;")), [(1, 4)]);
        // A bracket of the function above, and a line that only moved, are not part of the unit.
        let close = "fn a() {\n    1;\n}\nfn c() {}\n\nfn b() {\n    2;\n}\n";
        assert_eq!(unit_lines("src/lib.rs", before, close), [(4, 1)]);
        let limit = ["const A: u8 = 1;\n", "const A: u8 = 2;\nfn c() {}\n"];
        assert_eq!(unit_lines("src/lib.rs", limit[0], limit[1]), [(1, 1), (2, 1)]);
        // Two `impl` blocks of one type differ by their heads, and a new block is one unit.
        let show = "struct A;\n\nimpl Show for A {\n    fn f() {\n        1\n    }\n}\n";
        let more = format!("{show}\nimpl Hide for A {{\n    fn f() {{\n        2\n    }}\n}}\n");
        assert_eq!(unit_lines("src/lib.rs", show, &more), [(9, 5)]);
        let twice = "fn a() {\n    1;\n}\nfn a() {\n    2;\n}\n";
        assert_eq!(
            unit_lines("src/lib.rs", before, twice),
            [(4, 3)],
            "functions of the same name cannot be matched"
        );
        // Without function boundaries, lines that change together are a unit.
        let [before, after] = ["f() { a }; g() { b }\n", "f() { a }; g() { c }\n"];
        assert_eq!(unit_lines("a.txt", before, after), [(1, 1)]);
        let python = "class A:\n    def f(self):\n        return 1\n";
        let more = format!("{python}\n    def g(self):\n        return 2\n\n\nX = 1\n");
        assert_eq!(unit_lines("a.py", python, &more), [(5, 2), (7, 3)]);
    }

    #[test]
    fn reverting_a_mutation_unit_keeps_all_other_changes() {
        let base = [("src/lib.rs".to_owned(), "mod old;\n\nfn read() -> u8 {\n    0\n}\n".to_owned())].into();
        let text = "# 42 - Change: X\n\nX.\n\n## Code\n\n### `src/lib.rs` (Modify)\n\n```rust\n<<<<<<< SEARCH\nmod old;\n=======\nmod new;\n\
                    >>>>>>> REPLACE\n\n<<<<<<< SEARCH\n    0\n=======\n    new::three()\n>>>>>>> REPLACE\n```\n\n### `src/new.rs` (Add)\n\n\
                    ```rust\nA\nB\n```\n";
        let change = parse(text);
        let units = split_into_units(&change, &base).unwrap();
        let made = |unit: &[&MutationUnit], path: &str| {
            let files = revert_units(&change, &base, unit).unwrap();
            files.into_iter().find(|(known, _)| known == path).and_then(|(_, text)| text)
        };
        assert_eq!(units.iter().map(MutationUnit::lines).collect::<Vec<_>>(), [(3, 3), (1, 2), (1, 1)]);
        assert_eq!(made(&[&units[0]], "src/lib.rs").unwrap(), "mod new;\n\nfn read() -> u8 {\n    0\n}\n");
        assert_eq!(made(&[&units[1]], "src/new.rs"), None);
        assert_eq!(
            made(&[&units[2]], "src/lib.rs").unwrap(),
            "mod old;\n\nfn read() -> u8 {\n    new::three()\n}\n"
        );
    }

    #[test]
    fn lines_that_the_change_only_moves_are_no_mutation_unit() {
        let old = "const A: u8 = 1;\n\nfn a() {\n    1;\n}\n\nfn b() {\n    2;\n}\n";
        let base = [("src/lib.rs".to_owned(), old.to_owned())].into();
        let units = |added: &str| {
            let text = format!(
                "# 42 - Change: X\n\nX.\n\n## Code\n\n### `src/lib.rs` (Modify)\n\n```rust\n<<<<<<< SEARCH\n{old}=======\n\
                 fn b() {{\n    2;\n}}\n\nconst A: u8 = 1;\n>>>>>>> REPLACE\n```\n\n### `src/new.rs` (Add)\n\n```rust\n{added}```\n"
            );
            split_into_units(&parse(&text), &base).unwrap()
        };
        assert_eq!(
            units("//! Moved.\n\nimpl X {\n    fn a() {\n        1;\n    }\n}\n").len(),
            1,
            "a new head"
        );
        assert_eq!(units("//! Moved.\n\nfn a() {\n    1;\n}\n"), []);
        assert_eq!(units("fn a() {\n    3;\n}\n").len(), 1);
    }

    #[test]
    fn units_that_share_a_new_name_are_reverted_together() {
        let base = [(
            "src/lib.rs".to_owned(),
            "mod old;\n\nfn read() -> u8 {\n    0\n}\n\nfn all() {}\n".to_owned(),
        )]
        .into();
        let text = "# 42 - Change: X\n\nX.\n\n## Code\n\n### `src/lib.rs` (Modify)\n\n```rust\n<<<<<<< SEARCH\nmod old;\n=======\n\
                    mod old;\nmod three;\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\n    0\n=======\n    three::of()\n>>>>>>> REPLACE\n\n\
                    <<<<<<< SEARCH\nfn all() {}\n=======\nfn all() -> u8 { read() }\n>>>>>>> REPLACE\n```\n\n### `src/three.rs` (Add)\n\n\
                    ```rust\npub fn of() -> u8 {\n    3\n}\n```\n";
        let change = parse(text);
        let units = split_into_units(&change, &base).unwrap();
        let together = |line: usize| {
            let unit = units.iter().find(|unit| unit.path == "src/lib.rs" && unit.lines().0 == line).unwrap();
            let mut paths: Vec<_> = connected_units(&units, unit)
                .iter()
                .map(|unit| (unit.path.clone(), unit.lines().0))
                .collect();
            paths.sort();
            paths.into_iter().map(|(path, line)| format!("{path}:{line}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(together(2), "src/lib.rs:2 src/lib.rs:4 src/three.rs:1");
        assert_eq!(together(8), "src/lib.rs:8", "it uses a known name alone");
        let unit = units.iter().find(|unit| unit.lines().0 == 2).unwrap();
        let files = revert_units(&change, &base, &connected_units(&units, unit)).unwrap();
        let whole = base["src/lib.rs"].replace("all() {}", "all() -> u8 { read() }");
        assert_eq!(files, [("src/lib.rs".to_owned(), Some(whole))]);
    }
}
