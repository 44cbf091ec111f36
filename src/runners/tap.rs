//! Parses the Test Anything Protocol: one line per test, followed by indented details.

use super::{TestFailure, TestReport, TestResult, mentions_missing_name};

/// Whether the text is TAP output.
pub(super) fn is_tap(text: &str) -> bool {
    text.lines().map(str::trim_end).any(|line| line.starts_with("TAP version ") || parse_plan(line).is_some())
}

pub(super) fn read_tap(text: &str, found: &mut TestReport) {
    let (mut promised, mut seen) = (None, 0);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        promised = parse_plan(line).or(promised);
        if let Some(why) = line.strip_prefix("Bail out!") {
            found.add_trouble(format!("the tests bailed out:{why}"));
        }
        let (ok, rest) = match (line.strip_prefix("ok"), line.strip_prefix("not ok")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => continue,
        };
        if !rest.is_empty() && !rest.starts_with(' ') {
            continue;
        }
        seen += 1;
        let mut more = String::new();
        while let Some(line) = lines.next_if(|line| line.starts_with([' ', '\t'])) {
            more += &format!("{}\n", line.trim_end());
        }
        found.add(test_from_line(ok, rest, seen, &more));
    }
    found.has_summary |= promised.is_some();
    match promised {
        Some(promised) if promised != seen => {
            found.add_trouble(format!("the report promises {promised} tests and has {seen}"));
        }
        _ => {}
    }
}

/// Parses the rest of a test line after `ok` or `not ok`, such as ` 3 - name # SKIP reason`.
fn test_from_line(ok: bool, rest: &str, number: usize, more: &str) -> TestResult {
    let (name, directive) = match rest.rsplit_once(" # ") {
        Some((name, directive)) => (name, directive.trim()),
        None => (rest, ""),
    };
    let name = name.trim().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
    let name = name.strip_prefix('-').unwrap_or(name).trim();
    let id = if name.is_empty() { format!("test {number}") } else { name.to_owned() };
    let upper = directive.to_ascii_uppercase();
    match (ok, upper.starts_with("SKIP") || upper.starts_with("TODO")) {
        (_, true) => TestResult::skipped(id, directive),
        (true, false) => TestResult::passed(id),
        (false, false) if mentions_missing_name(more) => TestResult::failed(id, TestFailure::Missing, more),
        (false, false) => TestResult::failed(id, TestFailure::Assertion, more),
    }
}

/// Parses a plan line such as `1..12`.
fn parse_plan(line: &str) -> Option<usize> {
    line.strip_prefix("1..")?.split_whitespace().next()?.parse().ok()
}
