//! Mutation units: parts of a change that are reverted one at a time, to check that a test fails without them.

use std::{collections::BTreeMap, ops::Range};

use similar::{Algorithm, DiffTag, capture_diff_slices};

use super::{CodePiece, Language, is_comment, is_significant_line, split_into_pieces};
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
}

impl MutationUnit {
    /// Returns the position of the unit in the changed file: its first line, counted from 1, and its number of lines.
    /// The number is 0 if the unit only deletes lines.
    pub fn lines(&self) -> (usize, usize) {
        (self.new.start + 1, self.new.len())
    }
}

/// Range of lines before the change, and range of lines after the change.
type ChangedRanges = (Range<usize>, Range<usize>);

/// Splits the changed code into mutation units, largest first.
///
/// # Errors
///
/// Returns the mistakes that [`apply`] finds in the change.
pub fn split_into_units(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
) -> Result<Vec<MutationUnit>, Vec<DocumentMistake>> {
    let mut units = units_by_file(change, base, |path, [before, after]| {
        let language = Language::from_path(path);
        let lines = match split_into_pieces(language, [before, after]) {
            Some([old, new]) => [changed_functions(language, &old, &new), other_changes(&old, &new)].concat(),
            None => hunks(before, after),
        };
        let is_significant = |text: &str, lines: &Range<usize>| {
            let mut lines = text.lines().skip(lines.start).take(lines.len());
            lines.any(|line| is_significant_line(language, line))
        };
        lines
            .into_iter()
            .filter(|(old, new)| is_significant(before, old) || is_significant(after, new))
            .collect()
    })?;
    units.sort_by_key(|unit| std::cmp::Reverse(unit.new.len().max(unit.old.len())));
    Ok(units)
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
        units.extend(lines.into_iter().map(|(old, new)| MutationUnit { path: path.clone(), old, new }));
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

/// Applies the change, but leaves out this mutation unit.
///
/// # Errors
///
/// Returns the mistakes that [`apply`] finds in the change.
pub fn revert_unit(
    change: &ParsedChange,
    base: &BTreeMap<String, String>,
    unit: &MutationUnit,
) -> Result<FileTexts, Vec<DocumentMistake>> {
    let mut files = apply(change, base)?;
    let base = with_inline_tests(change, base);
    for (path, after) in files.iter_mut().filter(|(path, _)| *path == unit.path) {
        *after = after.take().zip(base.get(path)).map(|(after, before)| {
            let part = |text: &str, range: Range<usize>| -> String {
                text.split_inclusive('\n').skip(range.start).take(range.len()).collect()
            };
            let (start, end) = (part(&after, 0..unit.new.start), part(&after, unit.new.end..usize::MAX));
            format!("{start}{}{end}", part(before, unit.old.clone()))
        });
    }
    // Without its unit, an added file does not exist.
    Ok(files.into_iter().filter(|(path, after)| *path != unit.path || after.is_some()).collect())
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
        assert!(units.iter().all(|unit| revert_unit(&change, &base, unit).is_ok()));
        let mut lines: Vec<_> = units.iter().map(MutationUnit::lines).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn each_changed_function_or_group_of_other_changed_lines_is_a_mutation_unit() {
        let before = "fn a() {\n    1;\n}\n\nfn b() {\n    2;\n}\n";
        let after = "use x::y;\n\nfn a() {\n    3;\n}\n\n/// New.\nfn c() {\n    4;\n}\n\n// Said.\nfn b() {\n    2;\n}\n";
        assert_eq!(unit_lines("src/lib.rs", before, after), [(1, 2), (3, 3), (7, 4)]);
        // A removed function is a unit; a moved function and a comment are not.
        assert_eq!(unit_lines("src/lib.rs", before, "fn b() {\n    2;\n}\n"), [(1, 0)]);
        assert_eq!(unit_lines("src/lib.rs", before, "fn b() {\n    2;\n}\n\nfn a() {\n    1;\n}\n"), []);
        assert_eq!(unit_lines("src/lib.rs", before, &format!("// Said.\n{before}")), []);
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
            [(4, 3), (7, 0)],
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
        let made = |unit: &MutationUnit, path: &str| {
            let files = revert_unit(&change, &base, unit).unwrap();
            files.into_iter().find(|(known, _)| known == path).and_then(|(_, text)| text)
        };
        assert_eq!(units.iter().map(MutationUnit::lines).collect::<Vec<_>>(), [(3, 3), (1, 2), (1, 1)]);
        assert_eq!(made(&units[0], "src/lib.rs").unwrap(), "mod new;\n\nfn read() -> u8 {\n    0\n}\n");
        assert_eq!(made(&units[1], "src/new.rs"), None);
        assert_eq!(
            made(&units[2], "src/lib.rs").unwrap(),
            "mod old;\n\nfn read() -> u8 {\n    new::three()\n}\n"
        );
    }
}
