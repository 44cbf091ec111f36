//! Line coverage as reported by the tools of each ecosystem. The report does not prove anything, because the author of
//! the tests could forge it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{documents::change::TestEvidence, types::count};

/// Executable lines by file, each with a flag that tells whether the line was executed. Paths are relative to the
/// project.
pub type LineCoverage = BTreeMap<String, BTreeMap<u32, bool>>;

pub(super) const REPORT: &str = "lines";

/// Maximum number of lines kept of a report. This is more than any change has.
const MOST_LINES: usize = 1_000_000;

const MEASURED: [&str; 3] = ["go", "node", "pytest"];

/// Whether this runner can measure coverage.
pub fn can_measure(runner: &str) -> bool {
    MEASURED.contains(&runner)
}

/// Returns the likely reason why no coverage was measured, phrased as the end of a sentence.
pub fn unmeasured_reason(runner: &str) -> &'static str {
    match runner {
        _ if !can_measure(runner) => "this repository's test runner has no coverage that we can read",
        "pytest" => "coverage.py is not installed, or it knows no changed line of code",
        _ => "the runner's coverage knows no changed line of code",
    }
}

/// Parses the LCOV reports of Node and coverage.py. An `SF:` record names a file, and a `DA:` record holds a line and
/// the number of times it was executed.
pub(super) fn parse_lcov(report: &str, root: &Path) -> LineCoverage {
    let (mut all, mut file) = (LineCoverage::new(), String::new());
    for line in report.lines().take(MOST_LINES) {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path);
            file = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        } else if let Some((line, ran)) = line.strip_prefix("DA:").and_then(|line| line.split_once(',')) {
            let ran =
                ran.split(',').next().is_some_and(|times| times.parse::<u64>().is_ok_and(|times| times > 0));
            record_line(&mut all, &file, line.parse().ok(), ran);
        }
    }
    all
}

/// Parses `go test -coverprofile` output: `module/path.go:FROM.COLUMN,TO.COLUMN STATEMENTS TIMES`.
pub(super) fn parse_go_profile(report: &str, manifest: &str) -> LineCoverage {
    let mut all = LineCoverage::new();
    let module = manifest.lines().find_map(|line| line.trim().strip_prefix("module "));
    let module = module.unwrap_or_default().trim().trim_matches('"');
    let mut left = MOST_LINES;
    for line in report.lines() {
        let block = || {
            let (path, rest) = line.strip_prefix(module)?.strip_prefix('/')?.rsplit_once(':')?;
            let (range, counts) = rest.split_once(' ')?;
            let (from, to) = range.split_once(',')?;
            let number = |place: &str| place.split('.').next()?.parse::<u32>().ok();
            let (statements, times) = counts.split_once(' ')?;
            (statements != "0").then_some((path, number(from)?..=number(to)?, times != "0"))
        };
        if let Some((path, lines, ran)) = block() {
            for line in lines.take(left) {
                left -= 1;
                record_line(&mut all, path, Some(line), ran);
            }
        }
    }
    all
}

/// Records a line. A line counts as executed if any of its parts was executed.
fn record_line(all: &mut LineCoverage, file: &str, line: Option<u32>, ran: bool) {
    if let Some(line) = line {
        if !all.contains_key(file) {
            all.insert(file.to_owned(), BTreeMap::new());
        }
        if let Some(lines) = all.get_mut(file) {
            *lines.entry(line).or_default() |= ran;
        }
    }
}

/// Coverage of the changed lines. Only files that the report covers are included.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChangeCoverage {
    files: usize,
    ran: usize,
    /// Path and line number of each changed line that the tests did not execute.
    missed: BTreeSet<(String, usize)>,
    wanted: u32,
}

impl ChangeCoverage {
    /// Determines the coverage of the changed lines. Returns `None` if the report covers none of these lines. `within`
    /// converts a repository path to a path in the project.
    pub fn measure<'p>(
        coverage: &LineCoverage,
        changed: &'p [(String, usize)],
        within: impl Fn(&'p str) -> Option<&'p str>,
        wanted: u32,
    ) -> Option<Self> {
        let (mut covered, mut files) = (Self { wanted, ..Self::default() }, BTreeSet::new());
        for (path, line) in changed {
            let Some(lines) = within(path).and_then(|path| coverage.get(path)) else { continue };
            files.insert(path);
            match u32::try_from(*line).ok().and_then(|line| lines.get(&line)) {
                Some(true) => covered.ran += 1,
                Some(false) => drop(covered.missed.insert((path.clone(), *line))),
                None => {}
            }
        }
        covered.files = files.len();
        (covered.ran + covered.missed.len() > 0).then_some(covered)
    }

    /// Adds the coverage to the evidence. At most `most` missed lines are named.
    pub fn add_evidence(&self, most: usize, evidence: &mut TestEvidence) {
        let all = self.ran + self.missed.len();
        let percent = self.ran * 100 / all.max(1);
        let few = if percent < self.wanted as usize { ", which is too little" } else { "" };
        evidence.add_sentence(
            "Coverage",
            format!(
                "the tests run {} of {} ({percent} %, {} % wanted{few}), in {}.",
                self.ran,
                count(all, "changed line", "changed lines"),
                self.wanted,
                count(self.files, "file", "files")
            ),
        );
        let named = self.missed.iter().take(most).map(|(path, line)| format!("`{path}:{line}`"));
        let named = named.collect::<Vec<_>>().join(", ");
        evidence.review.extend(match self.missed.len().saturating_sub(most) {
            _ if named.is_empty() => None,
            0 => Some(format!("No test runs {named}.")),
            more => Some(format!("No test runs {named} and {more} more.")),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage_lines(coverage: &LineCoverage) -> Vec<String> {
        let file = |(path, lines): (&String, &BTreeMap<u32, bool>)| {
            let lines: Vec<String> =
                lines.iter().map(|(line, ran)| format!("{line}{}", if *ran { "" } else { "!" })).collect();
            format!("{path}: {}", lines.join(" "))
        };
        coverage.iter().map(file).collect()
    }

    #[test]
    fn coverage_reports_are_parsed() {
        let report = "TN:\nSF:/tree/a.py\nDA:1,1\nDA:2,0,abc\nend_of_record\nSF:b.js\nDA:2,1\nDA:2,0\nDA:x,1\nDA:3,-1\nDA:";
        assert_eq!(coverage_lines(&parse_lcov(report, Path::new("/tree"))), ["a.py: 1 2!", "b.js: 2 3!"]);
        let report = "mode: set\nexample.com/m/a.go:3.9,5.2 2 1\nexample.com/m/a.go:5.2,6.3 1 0\nother/a.go:1.1,2.2 1 1\n\
                      example.com/m/b.go:1.1,4294967295.1 1 0\nexample.com/m/a.go:x\nexample.com/m/c.go:9.1,9.2 0 0\n";
        let coverage = parse_go_profile(report, "// a\nmodule example.com/m\n\ngo 1.24\n");
        assert_eq!(coverage_lines(&coverage)[0], "a.go: 3 4 5 6!");
        assert_eq!(coverage["b.go"].len(), MOST_LINES - 5);
        assert!(parse_lcov("", Path::new("/")).is_empty() && parse_go_profile("", "").is_empty());
    }

    #[test]
    fn changed_lines_not_run_by_any_test_are_listed() {
        let ran = parse_lcov("SF:a.py\nDA:1,1\nDA:2,1\nDA:3,1\nDA:7,0\nDA:9,0\n", Path::new("/"));
        let changed = [1, 2, 3, 4, 7].map(|line| ("src/a.py".to_owned(), line));
        let covered = ChangeCoverage::measure(&ran, &changed, |path| path.strip_prefix("src/"), 95).unwrap();
        let mut evidence = TestEvidence::default();
        covered.add_evidence(40, &mut evidence);
        let expected = "**Coverage:** the tests run 3 of 4 changed lines (75 %, 95 % wanted, which is too little), in 1 file.";
        assert_eq!(evidence.all_lines(), [expected, "No test runs `src/a.py:7`."]);
        assert!(ChangeCoverage::measure(&ran, &changed[..0], Some, 95).is_none());
    }
}
