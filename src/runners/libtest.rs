//! The text that Rust's test binaries print: `test NAME ... ok` a test, then a section `---- NAME stdout ----` a failure.

use std::collections::{BTreeMap, BTreeSet};

use super::{CommandExit, SuiteOutput, TestFailure, TestReport, TestResult, exit_failure};

/// Reads what `binary` printed; `names` are the tests it listed.
pub(super) fn read_libtest(
    binary: &str,
    names: &BTreeSet<String>,
    came: &SuiteOutput,
    found: &mut TestReport,
) {
    let (results, details) = came.stdout.split_once("\nfailures:\n").unwrap_or((&came.stdout, ""));
    let details = failure_sections(details);
    let mut seen = BTreeMap::<&str, Vec<&str>>::new();
    let mut last = None;
    for line in results.lines().filter_map(|line| line.strip_prefix("test ")) {
        let Some((name, result)) = line.split_once(" ... ") else { continue };
        // What else it says of a test: `- should panic`, `- compile`.
        let plain = name.rsplit_once(" - ").map_or(name, |(plain, _)| plain);
        if let Some(name) = [name, plain].into_iter().find_map(|name| names.get(name)) {
            seen.entry(name).or_default().push(result);
            last = Some(name.as_str()).filter(|_| result.is_empty());
        }
    }
    let before = found.failures().count();
    for name in names {
        let id = format!("{} {name}", binary);
        let results = seen.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let said = details.get(name.as_str()).copied().unwrap_or_default();
        let has = |word: &str| results.iter().any(|result| result.starts_with(word));
        let skipped = results.iter().find_map(|result| result.strip_prefix("ignored"));
        found.add_or_merge(match skipped {
            _ if has("FAILED") => {
                let failure = if is_assertion(said) { TestFailure::Assertion } else { TestFailure::Error };
                TestResult::failed(id, failure, said).with_place(parse_place(said))
            }
            Some(why) => TestResult::skipped(id, why.trim_start_matches(", ")),
            None if has("ok") => TestResult::passed(id),
            // It asked for less than was listed.
            None if came.end == CommandExit::Exit(0) => {
                TestResult::failed(id, TestFailure::Crash, "its process ended well without it")
            }
            None => {
                let whose = match last {
                    Some(last) if last != name => format!("its process was on `{last}`: "),
                    _ => String::new(),
                };
                let said = format!("{whose}{}\n{}", came.end, came.stderr.trim());
                TestResult::failed(id, exit_failure(came.end), said)
            }
        });
    }
    if came.end != CommandExit::Exit(0) && found.failures().count() == before {
        found.add_trouble(format!("{}: {}, and none of its tests failed", binary, came.end));
    }
}

/// Is it an assertion, or a panic that was expected and did not come? What `assert!` says in words of the test's own looks
/// like any panic.
fn is_assertion(said: &str) -> bool {
    said.lines().any(|line| {
        line.starts_with("assertion ") || line.starts_with("note: ") && line.contains("as expected")
    })
}

/// What each failed test printed, by its name.
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

/// `thread 'a' (12) panicked at src/lib.rs:22:9:`, or `note: test did not panic as expected at src/lib.rs:31:8`.
fn parse_place(said: &str) -> Option<String> {
    let line =
        said.lines().find(|line| line.contains(" panicked at ") || line.contains(" as expected at "))?;
    let at = line.rsplit(" at ").next()?.trim_end_matches(':');
    let at = at.rsplit_once(':').filter(|(path, _)| path.contains(':')).map_or(at, |(place, _)| place);
    Some(at.to_owned())
}
