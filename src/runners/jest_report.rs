//! Reads the report of `jest --json`.

use serde::Deserialize;

use super::{TestFailure, TestReport, TestResult, mentions_missing_name, node::failure_kind, node_report};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JestReport {
    test_results: Vec<JestFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JestFile {
    name: String,
    #[serde(default)]
    status: String,
    /// Reason why the file failed to load, if it has no tests.
    #[serde(default)]
    message: String,
    #[serde(default)]
    assertion_results: Vec<JestTest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JestTest {
    #[serde(default)]
    ancestor_titles: Vec<String>,
    title: String,
    status: String,
    #[serde(default)]
    failure_messages: Vec<String>,
    location: Option<JestLocation>,
}

#[derive(Deserialize)]
struct JestLocation {
    line: u32,
}

/// Adds the tests of a report. `root` is the project's folder with a slash at its end.
///
/// # Errors
///
/// Returns a one-line description of the error in the report.
pub(super) fn read_jest_report(report: &str, root: &str, found: &mut TestReport) -> Result<(), String> {
    let report: JestReport =
        serde_json::from_str(report).map_err(|error| format!("the report is not jest's: {error}"))?;
    for file in report.test_results {
        let path = file.name.strip_prefix(root).unwrap_or(&file.name);
        if file.assertion_results.is_empty() && file.status == "failed" {
            let failure = match mentions_missing_name(&file.message) {
                true => TestFailure::Missing,
                false => TestFailure::Build,
            };
            let place = node_report::parse_place(path, &file.message);
            found.add(TestResult::failed(path, failure, &file.message).with_place(place));
        }
        for test in file.assertion_results {
            let names = [path].into_iter().chain(test.ancestor_titles.iter().map(String::as_str));
            let id = names.chain([test.title.as_str()]).collect::<Vec<_>>().join(" > ");
            let text = test.failure_messages.join("\n");
            found.add(match test.status.as_str() {
                "passed" => TestResult::passed(id),
                "failed" => {
                    let line = || Some(format!("{path}:{}", test.location.as_ref()?.line));
                    let place = node_report::parse_place(path, &text).or_else(line);
                    TestResult::failed(id, failure_kind("", &text), text).with_place(place)
                }
                // `pending`, `skipped`, `todo` or `disabled`.
                status => TestResult::skipped(id, status),
            });
        }
    }
    found.has_summary = true;
    Ok(())
}
