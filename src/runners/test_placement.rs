//! Determines in which files a repository's test runner finds tests, without running it.

use super::{RUNNERS, TestRunner, change_verification::RecordedTestRun, projects::detect_project};
use crate::config::TestSettings;

/// Files in which the tests of a repository may stand.
#[derive(Debug, Default)]
pub struct TestPlacement {
    /// The runner and project of a change, as a record without results. `None` if they or their rules are unknown.
    pub project: Option<RecordedTestRun>,
    /// Rules for a prompt, one for each runner of the repository. Empty if no runner was found.
    pub rules: String,
}

impl TestPlacement {
    /// Finds the project that the files `at_hand` belong to. `texts` are the contents of Python's settings files.
    pub fn find(paths: &[String], at_hand: &[String], settings: &TestSettings, texts: &[String]) -> Self {
        let at_hand: Vec<&str> = at_hand.iter().map(String::as_str).collect();
        let detected = || detect_project(paths, &at_hand).map(|(runner, folder)| (runner.name, folder));
        let has_manifest = |runner: &&TestRunner| {
            paths.iter().any(|path| runner.manifests.contains(&path.rsplit('/').next().unwrap_or(path)))
        };
        let (runners, project) = match settings.command {
            Some(_) => (vec!["command"], Some(("command", ""))),
            None => (RUNNERS.iter().filter(has_manifest).map(|runner| runner.name).collect(), detected()),
        };
        // With this setting, pytest finds tests in files of other names.
        let renamed = texts.iter().any(|text| text.contains("python_files"));
        let is_known = |runner: &str| runner != "pytest" || !renamed;
        let rules = runners.into_iter().filter(|runner| is_known(runner)).filter_map(placement_rule);
        let rules: String = rules.map(|rule| format!("- {rule}\n")).collect();
        let heading = if rules.is_empty() {
            ""
        } else {
            "Tests stand only where this repository's runner finds them:\n"
        };
        let project =
            project.filter(|(runner, _)| is_known(runner)).map(|(runner, folder)| RecordedTestRun {
                runner: runner.to_owned(),
                folder: folder.to_owned(),
                ..RecordedTestRun::default()
            });
        Self { project, rules: format!("{heading}{rules}") }
    }
}

/// Returns the rule on test files of a runner, for a prompt.
fn placement_rule(runner: &str) -> Option<&'static str> {
    match runner {
        "cargo" => Some(
            "Rust (cargo): in a file directly in the folder `tests/` of the package, or in the `#[cfg(test)]` module of a source \
             file that exists and is modified. A new source file holds no tests: no `mod` line names it before the code is \
             written. Doc tests run too.",
        ),
        "go" => Some("Go: in a file `…_test.go` in the folder of the code that it tests."),
        "pytest" => Some("Python (pytest): in a file `test_….py` or `…_test.py`, as in `tests/`."),
        "node" => Some(
            "JavaScript (`node --test`): in a file `….test.js` (or `.mjs`, `.cjs`, `.ts`) or in the folder `test/`.",
        ),
        "command" => Some(
            "The repository's own command runs the tests: in files like those that hold its tests today. Each test has a name of \
             its own.",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::spec;

    #[test]
    fn test_outside_the_files_that_the_runner_finds_is_refused_without_a_run() {
        for (files, command, settings, file, why) in [
            ("Cargo.toml src/lib.rs", None, "", "src/lib.rs", None),
            ("Cargo.toml src/lib.rs", None, "", "src/new.rs", Some("is in a new module")),
            ("pyproject.toml a.py", None, "", "tests/test_a.py", None),
            ("pyproject.toml a.py", None, "", "a.py", Some("takes for tests")),
            ("pyproject.toml a.py", None, "python_files = [\"check_*.py\"]", "check_a.py", None),
            ("go.mod a.go", None, "", "a.go", Some("name the file `…_test.go`")),
            ("sub/go.mod sub/a.go", None, "", "a_test.go", Some("is in another project")),
            ("Cargo.toml", Some("make test"), "", "anything.txt", None),
            ("README.md", None, "", "src/new.rs", None),
        ] {
            let paths: Vec<String> = files.split(' ').map(str::to_owned).collect();
            let command = command.map(TestSettings::from_command).unwrap_or_default();
            let places = TestPlacement::find(&paths, &[], &command, &[settings.to_owned()]);
            let kind = if paths.iter().any(|path| path == file) { "Modify" } else { "Add" };
            let spec = format!(
                "## Files to Implement\n\n| File | Change Type | Description |\n|---|---|---|\n| `{file}` | {kind} | x |\n\n\
                 ## Test Mapping\n\n| Requirement | Test | File | Input | Expected |\n|---|---|---|---|---|\n\
                 | REQ-1 | reads | `{file}` | - | 3 |\n"
            );
            let found =
                places.project.as_ref().and_then(|ran| ran.unreachable_tests(&spec::parse(&spec)).pop());
            assert_eq!(found.is_some(), why.is_some(), "{files} {file}: {found:?}");
            assert!(found.unwrap_or_default().contains(why.unwrap_or_default()), "{files} {file}");
            assert_eq!(places.rules.is_empty(), places.project.is_none(), "{files}");
        }
    }
}
