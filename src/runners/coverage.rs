//! Which lines the tests ran, as the tools of each ecosystem tell it. Who wrote the tests could write this as well.

use std::{collections::BTreeMap, path::Path};

/// Lines that can run, by file relative to the project, and whether each did.
pub type Coverage = BTreeMap<String, BTreeMap<u32, bool>>;

/// The report's file.
pub(super) const REPORT: &str = "lines";

/// Lines that are kept of a report; no change of a person's has more.
const MOST_LINES: usize = 1_000_000;

/// These runners can tell which lines run.
const MEASURED: [&str; 3] = ["go", "node", "pytest"];

/// Can this runner tell which lines run?
pub fn is_measured(runner: &str) -> bool {
    MEASURED.contains(&runner)
}

/// What node and coverage.py write: `SF:` a file, `DA:` a line and how often it ran.
pub(super) fn lcov(report: &str, root: &Path) -> Coverage {
    let (mut all, mut file) = (Coverage::new(), String::new());
    for line in report.lines().take(MOST_LINES) {
        if let Some(path) = line.strip_prefix("SF:") {
            let path = Path::new(path);
            file = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        } else if let Some((line, ran)) = line.strip_prefix("DA:").and_then(|line| line.split_once(',')) {
            let ran =
                ran.split(',').next().is_some_and(|times| times.parse::<u64>().is_ok_and(|times| times > 0));
            note(&mut all, &file, line.parse().ok(), ran);
        }
    }
    all
}

/// What `go test -coverprofile` writes: `module/path.go:FROM.COLUMN,TO.COLUMN STATEMENTS TIMES`.
pub(super) fn go(report: &str, manifest: &str) -> Coverage {
    let mut all = Coverage::new();
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
                note(&mut all, path, Some(line), ran);
            }
        }
    }
    all
}

/// One that ran in part ran.
fn note(all: &mut Coverage, file: &str, line: Option<u32>, ran: bool) {
    if let Some(line) = line {
        if !all.contains_key(file) {
            all.insert(file.to_owned(), BTreeMap::new());
        }
        if let Some(lines) = all.get_mut(file) {
            *lines.entry(line).or_default() |= ran;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(coverage: &Coverage) -> Vec<String> {
        let file = |(path, lines): (&String, &BTreeMap<u32, bool>)| {
            let lines: Vec<String> =
                lines.iter().map(|(line, ran)| format!("{line}{}", if *ran { "" } else { "!" })).collect();
            format!("{path}: {}", lines.join(" "))
        };
        coverage.iter().map(file).collect()
    }

    #[test]
    fn reports_of_lines_are_read() {
        let report = "TN:\nSF:/tree/a.py\nDA:1,1\nDA:2,0,abc\nend_of_record\nSF:b.js\nDA:2,1\nDA:2,0\nDA:x,1\nDA:3,-1\nDA:";
        assert_eq!(told(&lcov(report, Path::new("/tree"))), ["a.py: 1 2!", "b.js: 2 3!"]);
        let report = "mode: set\nexample.com/m/a.go:3.9,5.2 2 1\nexample.com/m/a.go:5.2,6.3 1 0\nother/a.go:1.1,2.2 1 1\n\
                      example.com/m/b.go:1.1,4294967295.1 1 0\nexample.com/m/a.go:x\nexample.com/m/c.go:9.1,9.2 0 0\n";
        let coverage = go(report, "// a\nmodule example.com/m\n\ngo 1.24\n");
        assert_eq!(told(&coverage)[0], "a.go: 3 4 5 6!");
        assert_eq!(coverage["b.go"].len(), MOST_LINES - 5);
        assert!(lcov("", Path::new("/")).is_empty() && go("", "").is_empty());
    }
}
