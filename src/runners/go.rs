//! Runs Go tests with `go test -json`, whose output has one event per line.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    path::Path,
};

use serde::Deserialize;

use super::{
    CommandExit, CompilerError, SuiteCommand, SuiteOutput, TestFailure, TestProject, TestReport, TestResult,
    TestRunner, TestSuite, coverage, exit_failure, presets,
    test_report::MOST_FAULTS,
    toolchains::{SYSTEM_PATH, Toolchain, ToolchainProbe},
};

pub(super) const RUNNER: TestRunner = TestRunner {
    name: "go",
    manifests: &["go.mod"],
    probe: ToolchainProbe {
        language: "Go",
        program: "go",
        args: &["env", "GOROOT", "GOMODCACHE"],
        version: &["version"],
        oldest: (1, 19),
        missing: "Go's tests need Go 1.19 or newer; install it (`apt install golang`, or a newer one from its makers)",
        tool: parse_toolchain,
    },
    setup: &[presets::GO, presets::GO_LIBRARY],
    suite: |project| Box::new(GoSuite { project }),
};

/// Maximum bytes of output kept per test or package.
const OUTPUT_BYTES: usize = 16 * 1024;

fn parse_toolchain(lines: &[&str]) -> Option<Toolchain> {
    let [root, modules, ..] = lines else { return None };
    let program = Path::new(root).join("bin/go");
    let environment = vec![("GOMODCACHE", modules.to_string())];
    Some(Toolchain { program, read: vec![root.into(), modules.into()], environment, ..Toolchain::default() })
}

struct GoSuite {
    project: TestProject,
}

/// An event in the output of `go test -json`, or of the build before the tests.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct GoTestEvent {
    action: String,
    package: String,
    test: String,
    output: String,
    import_path: String,
    failed_build: String,
}

impl TestSuite for GoSuite {
    fn begin(&mut self) -> Result<SuiteCommand, String> {
        let seconds = (self.project.time.as_secs() / 4 * 3).max(1);
        // `-count=1` disables the cache of passed tests.
        let mut args = ["test", "-json", "-count=1"].map(str::to_owned).to_vec();
        args.push(format!("-timeout={seconds}s"));
        if self.project.coverage {
            args.push("-coverpkg=./...".to_owned());
            args.push(format!("-coverprofile={}", self.project.coverage_file()));
        }
        match self.project.only.as_deref().map(|only| only.rsplit_once('.').unwrap_or(("", only))) {
            Some((package, test)) => {
                let parts = test.split('/').map(|part| format!("^{}$", regex::escape(part)));
                args.push(format!("-run={}", parts.collect::<Vec<_>>().join("/")));
                args.push(if package.is_empty() { "./...".to_owned() } else { package.to_owned() });
            }
            None => {
                let files = self.project.requested_files(|file| file.ends_with("_test.go"));
                let folder = |file: &str| {
                    file.rsplit_once('/').map_or(".".to_owned(), |(folder, _)| format!("./{folder}"))
                };
                let folders: BTreeSet<_> = files.into_iter().map(folder).collect();
                match folders.is_empty() {
                    true => args.push("./...".to_owned()),
                    // `-e` reports all errors, not just the first ten.
                    false => args.extend(["-gcflags=-e".to_owned()].into_iter().chain(folders)),
                }
            }
        }
        let bin =
            self.project.tool.program.parent().map(|path| path.display().to_string()).unwrap_or_default();
        let environment = [
            ("PATH", format!("{bin}:{SYSTEM_PATH}")),
            ("GOPROXY", "off".to_owned()),
            ("GOTOOLCHAIN", "local".to_owned()),
            ("GOCACHE", self.project.built.join(RUNNER.name).display().to_string()),
        ];
        Ok(SuiteCommand {
            program: self.project.tool.program.clone(),
            args,
            environment: environment.map(|(name, value)| (name.to_owned(), value)).into(),
            folder: self.project.folder.clone(),
            report: None,
        })
    }

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        let lines = output.lines.as_deref().filter(|_| self.project.coverage);
        found.coverage = lines.map(|lines| coverage::parse_go_profile(lines, &self.project.manifest));
        let mut printed = HashMap::<(String, String), String>::new();
        // Grouped by package, so that the end of a package finds its running tests without searching all.
        let mut running = BTreeMap::<String, BTreeSet<String>>::new();
        let mut failed_packages = HashSet::<String>::new();
        let mut builds = HashMap::<String, String>::new();
        // Packages that failed or whose test binary printed its last line, and the tests that passed, with their packages.
        let (mut summarized, mut passed) = (HashSet::<String>::new(), Vec::new());
        let (root, before) = (self.project.root.as_path(), found.failures().count());
        let old_builds = split_build_errors(&output.stderr);
        for line in output.stdout.lines() {
            let Ok(event) = serde_json::from_str::<GoTestEvent>(line) else {
                // Go 1.19 has no event for a failed build. Any other line comes from a child process that bypassed the pipe.
                let failed = line.strip_prefix("FAIL\t").and_then(|rest| rest.split_once(" ["));
                if let Some((package, "build failed]" | "setup failed]")) = failed {
                    let text = old_builds.get(package).map_or("", String::as_str);
                    found.add(build_failure(package, text, root));
                }
                continue;
            };
            let at = (event.package.clone(), event.test.clone());
            let id = format!("{}.{}", event.package, event.test);
            let whole = event.test.is_empty();
            if !whole && matches!(event.action.as_str(), "pass" | "skip" | "fail") {
                running.get_mut(&event.package).map(|tests| tests.remove(&event.test));
            }
            match event.action.as_str() {
                "build-output" => append_bounded(builds.entry(event.import_path).or_default(), &event.output),
                "output" if whole && matches!(event.output.as_str(), "PASS\n" | "FAIL\n") => {
                    summarized.insert(event.package);
                }
                "output" => append_bounded(printed.entry(at).or_default(), &event.output),
                "run" => drop(running.entry(event.package).or_default().insert(event.test)),
                "pass" if !whole => {
                    passed.push((event.package, id.clone()));
                    found.add(TestResult::passed(id));
                }
                "skip" if !whole => {
                    found.add(TestResult::skipped(
                        id,
                        strip_frame_lines(printed.get(&at).map_or("", String::as_str)),
                    ));
                }
                "fail" if !whole => {
                    failed_packages.insert(event.package);
                    found.add(failed_test(id, printed.get(&at).map_or("", String::as_str), root));
                }
                "fail" => {
                    summarized.insert(event.package.clone());
                    let none = String::new();
                    let of_build =
                        builds.get(&event.failed_build).or_else(|| old_builds.get(event.package.as_str()));
                    let text = of_build.or_else(|| printed.get(&at)).unwrap_or(&none);
                    // Tests that were still running when their package's process ended.
                    let left = running.remove(&event.package).unwrap_or_default();
                    let silent = left.is_empty() && !failed_packages.contains(&event.package);
                    for test in left {
                        let id = format!("{}.{test}", event.package);
                        let at = (event.package.clone(), test);
                        found.add(failed_test(id, printed.get(&at).map_or("", String::as_str), root));
                    }
                    if of_build.is_some() {
                        found.add(build_failure(&event.package, text, root));
                    } else if silent {
                        found.add(TestResult::failed(&event.package, TestFailure::Crash, text));
                    }
                }
                _ => {}
            }
        }
        for (package, test) in
            running.iter().flat_map(|(package, tests)| tests.iter().map(move |test| (package, test)))
        {
            found.add(TestResult::failed(
                format!("{package}.{test}"),
                exit_failure(output.end),
                output.end.to_string(),
            ));
        }
        passed.retain(|(package, _)| {
            matches!(output.end, CommandExit::Exit(_)) && !summarized.contains(package)
        });
        for (_, id) in passed {
            let message = "its test binary ended without the summary of its tests";
            found.add_or_merge(TestResult::failed(id, TestFailure::Crash, message));
        }
        if !matches!(output.end, CommandExit::Exit(_))
            || output.end != CommandExit::Exit(0) && found.failures().count() == before
        {
            let mut lines = output.stderr.lines().chain(output.stdout.lines());
            let printed = lines.rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
            found.add_trouble(format!("go: {}: {printed}", output.end));
        }
        None
    }
}

/// Splits the build errors that Go before 1.24 writes to its standard error. Each package's part begins with a line such
/// as `# example.org/a` or `# example.org/a [example.org/a.test]`.
fn split_build_errors(stderr: &str) -> HashMap<&str, String> {
    let (mut errors, mut package) = (HashMap::<&str, String>::new(), "");
    for line in stderr.lines() {
        match line.strip_prefix("# ") {
            Some(name) => package = name.split(' ').next().unwrap_or(name),
            None if !package.is_empty() => {
                append_bounded(errors.entry(package).or_default(), &format!("{line}\n"))
            }
            None => {}
        }
    }
    errors
}

fn append_bounded(text: &mut String, more: &str) {
    if text.len() < OUTPUT_BYTES {
        text.push_str(more);
    }
}

fn build_failure(package: &str, output: &str, root: &Path) -> TestResult {
    let faults: Vec<CompilerError> =
        output.lines().filter_map(|line| parse_compiler_error(line, root)).take(MOST_FAULTS).collect();
    let failure = match faults.iter().any(|fault| !fault.missing.is_empty()) {
        true => TestFailure::Missing,
        false => TestFailure::Build,
    };
    TestResult::failed(package, failure, output)
        .with_place(output.lines().find_map(|line| parse_place(line, root)))
        .with_errors(faults)
}

/// Parses a compiler error such as `a/a_test.go:10:5: undefined: b.C`.
fn parse_compiler_error(line: &str, root: &Path) -> Option<CompilerError> {
    let at = parse_place(line, root)?;
    let (_, message) = line.split_once(": ")?;
    let missing = ["undefined", "provides", "is not in std", "cannot find module", "could not import"];
    let before = ["undefined: ", "field or method ", "package ", "could not import "];
    let found = before.iter().find_map(|words| message.split_once(words));
    let found = found.filter(|_| missing.iter().any(|words| message.contains(words)));
    let name = found.and_then(|(_, rest)| rest.split([' ', ';', ')', ',']).next());
    let name = name.and_then(|name| name.rsplit(['.', '/']).next()).filter(|name| !name.is_empty());
    Some(CompilerError::new(at.rsplit_once(':').map_or("", |(file, _)| file), message, name))
}

fn failed_test(id: String, output: &str, root: &Path) -> TestResult {
    let failure = match output {
        _ if output.contains("panic: test timed out after ") => TestFailure::Timeout,
        _ if output.contains("panic: ") || output.contains("fatal error: ") || output.contains("SIG") => {
            TestFailure::Crash
        }
        _ => TestFailure::Assertion,
    };
    TestResult::failed(id, failure, strip_frame_lines(output))
        .with_place(output.lines().rev().find_map(|line| parse_place(line, root)))
}

/// Removes the `===` and `---` lines that `go test` adds to a test's output.
fn strip_frame_lines(output: &str) -> String {
    let frame = |line: &&str| !["=== ", "--- "].iter().any(|mark| line.trim_start().starts_with(mark));
    output.lines().filter(frame).map(str::trim_start).collect::<Vec<_>>().join("\n")
}

/// Parses the location in `    a_test.go:10: what`, in the compiler's `a/a_test.go:10:5: what`, or in a stack frame
/// with an absolute path.
fn parse_place(line: &str, root: &Path) -> Option<String> {
    let (path, rest) = line.trim_start().split_once(".go:")?;
    let path = Path::new(path).strip_prefix(root).ok().and_then(Path::to_str).unwrap_or(path);
    // A file in the root folder.
    let path = path.strip_prefix("./").unwrap_or(path);
    let number = rest.split([':', ' ']).next()?.parse::<u32>().ok()?;
    (!path.contains([' ', ':']) && !path.starts_with(['/', '_'])).then(|| format!("{path}.go:{number}"))
}
