//! Checks which lines of a commit's changed files are shown to a model.

use std::collections::{BTreeMap, BTreeSet};

use countersign::codebase::ContextSections;

use crate::repositories::Repository;

/// Returns, for each file, the lines that the commit changed or removed, with the line numbers of the parent commit. An
/// added line is represented by the line before it.
pub(crate) fn changed(repository: &Repository, hash: &str) -> BTreeMap<String, BTreeSet<usize>> {
    let diff =
        ["diff-tree", "-r", "-p", "-U0", "--no-renames", "--no-commit-id", "--no-color", "--no-ext-diff"];
    let diff = repository.git(&[&diff[..], &["--src-prefix=a/", "--dst-prefix=b/", hash]].concat());
    let mut changed: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut file = None;
    // Remaining lines of the hunk, which may look like headers.
    let mut rest = 0;
    for line in diff.lines() {
        if rest > 0 && line.starts_with(['-', '+']) {
            rest -= 1;
        } else if line.starts_with("diff --git ") {
            file = None;
        } else if let Some(path) = line.strip_prefix("--- a/") {
            file = Some(changed.entry(path.trim_end_matches('\t').to_owned()).or_default());
        } else if let Some((old, new)) = hunk(line) {
            rest = old.1 + new.1;
            if let Some(lines) = &mut file {
                lines.extend(old.0.max(1)..old.0.max(1) + old.1.max(1));
            }
        }
    }
    changed
}

/// Parses a hunk header such as `@@ -12,3 +14 @@`. Returns the first line and the number of lines, for the old file and
/// for the new file.
fn hunk(line: &str) -> Option<((usize, usize), (usize, usize))> {
    let mut parts = line.strip_prefix("@@ -")?.split(' ');
    let mut range = || {
        let part = parts.next()?.trim_start_matches('+');
        let (first, count) = part.split_once(',').unwrap_or((part, "1"));
        Some((first.parse().ok()?, count.parse().ok()?))
    };
    Some((range()?, range()?))
}

/// Returns the share, from 0 to 1, of the changed lines that are shown. If a file is shown without line numbers, its
/// lines count as not shown.
pub(crate) fn share(changed: &BTreeMap<String, BTreeSet<usize>>, shown: &ContextSections) -> f64 {
    let mut ranges: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
    for section in &shown.files {
        let Some((path, section)) =
            section.trim_start().strip_prefix("## `").and_then(|s| s.split_once("`\n"))
        else {
            continue;
        };
        ranges.entry(path).or_default().extend(self::shown(section));
    }
    let is_shown = |path: &str, line: &usize| {
        ranges
            .get(path)
            .is_some_and(|ranges| ranges.iter().any(|(first, last)| first <= line && line <= last))
    };
    let all: usize = changed.values().map(BTreeSet::len).sum();
    let seen: usize =
        changed.iter().map(|(path, lines)| lines.iter().filter(|line| is_shown(path, line)).count()).sum();
    seen as f64 / all.max(1) as f64
}

/// Returns the line ranges that a file's section shows.
fn shown(section: &str) -> Vec<(usize, usize)> {
    let mut ranges = Vec::new();
    let mut fence: Option<&str> = None;
    for line in section.lines() {
        match fence {
            Some(end) if line == end => fence = None,
            Some(_) => {
                // A signature of several lines continues below its place.
                if let Some(place) = line.strip_prefix('L') {
                    let number = place.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
                    ranges.extend(number.parse().ok().map(|line: usize| (line, line)));
                }
            }
            None if line.starts_with("```") => fence = Some(line),
            None if line.starts_with("The whole file") => ranges.push((1, usize::MAX)),
            None => ranges.extend(label(line)),
        }
    }
    ranges
}

/// Parses a label such as `Line 3.` or `Lines 3–9.`. Ignores text after the label.
fn label(line: &str) -> Option<(usize, usize)> {
    let range = line.strip_prefix("Line").map(|rest| rest.trim_start_matches('s').trim_start())?;
    let range = range.split('.').next()?;
    let (first, last) = range.split_once('–').unwrap_or((range, range));
    Some((first.parse().ok()?, last.parse().ok()?))
}
