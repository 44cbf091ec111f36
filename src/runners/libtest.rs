//! Parses the text output of Rust test binaries: one `test NAME ... ok` line per test, then one `---- NAME stdout ----`
//! section per failure.

use std::collections::{BTreeMap, BTreeSet};

use super::{CommandExit, SuiteOutput, TestFailure, TestReport, TestResult, exit_failure};

/// Adds the results that the test binary `binary` printed. `names` are the tests that the binary listed.
pub(super) fn read_libtest(
    binary: &str,
    names: &BTreeSet<String>,
    output: &SuiteOutput,
    found: &mut TestReport,
) {
    let (results, details) = output.stdout.split_once("\nfailures:\n").unwrap_or((&output.stdout, ""));
    let details = failure_sections(details);
    let mut seen = BTreeMap::<&str, Vec<&str>>::new();
    let mut last = None;
    for line in results.lines().filter_map(|line| line.strip_prefix("test ")) {
        let Some((name, result)) = line.split_once(" ... ") else { continue };
        // A name may have a suffix: `- should panic`, `- compile`.
        let plain = name.rsplit_once(" - ").map_or(name, |(plain, _)| plain);
        if let Some(name) = [name, plain].into_iter().find_map(|name| names.get(name)) {
            seen.entry(name).or_default().push(result);
            last = Some(name.as_str()).filter(|_| result.is_empty());
        }
    }
    let before = found.failures().count();
    let has_ended = output.end != CommandExit::Exit(0) || count_summarized(&output.stdout) >= names.len();
    for name in names {
        let id = format!("{binary} {name}");
        let results = seen.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let details_text = details.get(name.as_str()).copied().unwrap_or_default();
        let has = |word: &str| results.iter().any(|result| result.starts_with(word));
        let skipped = results.iter().find_map(|result| result.strip_prefix("ignored"));
        found.add_or_merge(match skipped {
            _ if has("FAILED") => {
                let failure =
                    if is_assertion(details_text) { TestFailure::Assertion } else { TestFailure::Error };
                TestResult::failed(id, failure, details_text).with_place(parse_place(details_text))
            }
            Some(why) => TestResult::skipped(id, why.trim_start_matches(", ")),
            None if has("ok") && has_ended => TestResult::passed(id),
            None if output.end == CommandExit::Exit(0) => {
                let why =
                    "its process exited normally without running it, or without its summary of all tests";
                TestResult::failed(id, TestFailure::Crash, why)
            }
            None => {
                let whose = match last {
                    Some(last) if last != name => format!("its process was running `{last}`: "),
                    _ => String::new(),
                };
                let details_text = format!("{whose}{}\n{}", output.end, output.stderr.trim());
                TestResult::failed(id, exit_failure(output.end), details_text)
            }
        });
    }
    if output.end != CommandExit::Exit(0) && found.failures().count() == before {
        found.add_trouble(format!("{}: {}, but none of its tests failed", binary, output.end));
    }
}

/// Returns how many tests the summaries `test result: ok. 2 passed; 0 failed; 1 ignored; …` count. Doc tests may have
/// several summaries.
fn count_summarized(stdout: &str) -> usize {
    let summaries = stdout.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let counts = summaries.flat_map(|line| line.split("; ").take(4));
    counts.filter_map(|part| part.split(' ').next()?.parse::<usize>().ok()).sum()
}

/// Replaces the line in each doc test's id by the position among the doc tests of its item, because the line changes
/// with every edit above it: `src/lib.rs - add (line 5)` becomes `src/lib.rs - add (1)`.
pub(super) fn number_doc_tests(found: &mut TestReport) {
    let split = |id: &str| {
        let (item, line) = id.strip_suffix(')')?.rsplit_once(" (line ")?;
        let is_doc = item.split(' ').next().is_some_and(|binary| binary.ends_with("::doc"));
        Some((item.to_owned(), line.parse::<usize>().ok().filter(|_| is_doc)?))
    };
    let lines: BTreeSet<(String, usize)> = found.tests.iter().filter_map(|test| split(&test.id)).collect();
    for test in &mut found.tests {
        if let Some((item, line)) = split(&test.id) {
            let earlier = lines.range((item.clone(), 0)..(item.clone(), line)).count();
            test.id = format!("{item} ({})", earlier + 1);
        }
    }
}

/// Whether the output shows a failed assertion or a missing expected panic. An `assert!` with a custom message is not
/// recognized, because its output looks like that of any other panic.
fn is_assertion(output: &str) -> bool {
    output.lines().any(|line| {
        line.starts_with("assertion ") || line.starts_with("note: ") && line.contains("as expected")
    })
}

/// Returns the output of each failed test, by name.
fn failure_sections(details: &str) -> BTreeMap<&str, &str> {
    let mut sections = BTreeMap::new();
    let (details, _) = details.rsplit_once("\nfailures:\n").unwrap_or((details, ""));
    let mut rest = details;
    while let Some((_, section)) = rest.split_once("---- ") {
        let end = section.find("\n---- ").map_or(section.len(), |end| end + 1);
        if let Some((name, text)) = section[..end].split_once(" stdout ----\n") {
            sections.entry(name).or_insert(text.trim());
        }
        rest = &section[end..];
    }
    sections
}

/// Parses the location in `thread 'a' (12) panicked at src/lib.rs:22:9:` or `note: test did not panic as expected at
/// src/lib.rs:31:8`.
fn parse_place(output: &str) -> Option<String> {
    let line =
        output.lines().find(|line| line.contains(" panicked at ") || line.contains(" as expected at "))?;
    let at = line.rsplit(" at ").next()?.trim_end_matches(':');
    let at = at.rsplit_once(':').filter(|(path, _)| path.contains(':')).map_or(at, |(place, _)| place);
    Some(at.to_owned())
}
