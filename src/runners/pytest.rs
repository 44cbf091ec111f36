//! Runs Python tests with pytest. Reads the JUnit XML file that pytest writes. If pytest exited before writing it,
//! reads the progress output instead.

use std::path::Path;

use super::{
    CommandExit, ReportLocation, SuiteCommand, SuiteOutput, TestFailure, TestOutcome, TestProject,
    TestReport, TestResult, TestRunner, TestSuite, coverage, exit_failure,
    junit::{self, JunitCase, JunitResult},
    mentions_missing_name, presets,
    python_environment::PythonEnvironment,
    sanitize_line,
    toolchains::{SYSTEM_PATH, Toolchain, ToolchainProbe, is_safe_to_share},
};

pub(super) const RUNNER: TestRunner = TestRunner {
    name: "pytest",
    manifests: &["pytest.ini", "pyproject.toml", "setup.py", "setup.cfg", "tox.ini"],
    probe: ToolchainProbe {
        language: "Python",
        program: "python3",
        args: &[
            "-I",
            "-c",
            "import pytest, sys; print(sys.executable, sys.prefix, sys.base_prefix, *sys.path, sep='\\n')",
        ],
        version: &[
            "-I",
            "-c",
            "import pytest, platform; print('Python', platform.python_version(), 'with pytest', pytest.__version__)",
        ],
        oldest: (0, 0),
        missing: "Python's tests need python3 with pytest; install it with `python3 -m pip install pytest`",
        tool: parse_toolchain,
    },
    setup: &[presets::PIP],
    suite: |project| Box::new(PytestSuite { environment: PythonEnvironment::new(&project), project }),
};

/// Parses executable, prefix, base prefix and module search paths. Keeps only the package folders that installers write
/// to, because the search path may contain arbitrary user folders.
fn parse_toolchain(lines: &[&str]) -> Option<Toolchain> {
    let [program, prefix, base, modules @ ..] = lines else { return None };
    let installed = modules.iter().map(Path::new).filter(|path| is_packages_folder(path));
    let read = [prefix, base].map(Path::new).into_iter().chain(installed);
    let read = read.filter(|path| path.is_absolute() && is_safe_to_share(path)).map(Path::to_owned).collect();
    Some(Toolchain { program: program.into(), read, ..Toolchain::default() })
}

fn is_packages_folder(path: &Path) -> bool {
    path.ends_with("site-packages") || path.ends_with("dist-packages")
}

struct PytestSuite {
    project: TestProject,
    environment: PythonEnvironment,
}

impl TestSuite for PytestSuite {
    fn prepare(&mut self) -> Option<SuiteCommand> {
        Some(self.environment.prepare())
    }

    fn read_prepared(&mut self, output: &SuiteOutput) -> Vec<String> {
        let missing = self.environment.read(output);
        let paths = sanitize_line(&self.environment.paths.join(" "));
        let all = !paths.is_empty() && self.project.only.is_none() && self.project.targets.is_empty();
        let part = all.then(|| format!("pytest ran only on `{paths}`, as tox.ini says"));
        missing.into_iter().chain(part).collect()
    }

    fn begin(&mut self) -> Result<SuiteCommand, String> {
        let lines = self.project.coverage_file();
        let beside = self.project.tool.read.iter().filter(|path| is_packages_folder(path));
        let beside = beside.map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
        let pytest = match self.project.coverage {
            true => ["-c", include_str!("pytest_coverage.py"), &lines, &beside].map(str::to_owned).to_vec(),
            false => ["-m", "pytest"].map(str::to_owned).to_vec(),
        };
        // The cache is not switched off, because the repository may pass options of it.
        let cache = format!("cache_dir={}", self.project.reports.join("cache").display());
        let args = ["-v", "--tb=short", "--color=no", "-o", &cache];
        let also = ["--continue-on-collection-errors", "-o", "junit_family=xunit1"];
        let report = format!("--junitxml={}", self.project.reports.join("report.xml").display());
        let args = pytest.into_iter().chain(args.into_iter().chain(also).map(str::to_owned));
        let mut files = self.project.requested_files(|file| file.ends_with(".py"));
        if files.is_empty() && self.project.only.is_none() {
            files.extend(self.environment.paths.iter().map(String::as_str));
        }
        // `./` keeps a file name from being read as an option.
        let files: Vec<String> = files.into_iter().map(|file| format!("./{file}")).collect();
        let args = args.chain([report]).chain(files).chain(self.project.only.clone()).collect();
        // A package below `src` is not found unless it is installed.
        let below = self.project.paths.iter().any(|path| path.starts_with("src/") && path.ends_with(".py"));
        let below = below.then(|| "src".to_owned()).filter(|_| !self.environment.installed);
        let sites = self.project.tool.sites.iter().map(|site| site.display().to_string());
        let programs = self.environment.programs();
        let places: Vec<String> = below.into_iter().chain(sites.filter(|_| programs.is_none())).collect();
        let place = (!places.is_empty()).then(|| ("PYTHONPATH".to_owned(), places.join(":")));
        let plain = [("PYTHONUNBUFFERED", "1"), ("PYTHONDONTWRITEBYTECODE", "1")];
        let plain = plain.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = self.environment.variables(SYSTEM_PATH);
        Ok(SuiteCommand {
            program: programs.map_or(self.project.tool.program.clone(), |programs| programs.join("python")),
            args,
            environment: plain.into_iter().chain(variables).chain(place).collect(),
            folder: self.project.folder.clone(),
            report: Some(ReportLocation::ReportsFile("report.xml")),
        })
    }

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        let lines = output.lines.as_deref().filter(|_| self.project.coverage);
        found.coverage = lines.map(|lines| coverage::parse_lcov(lines, &self.project.root));
        let root = &self.project.root.display().to_string();
        let summary = parse_summary(&output.stdout);
        found.has_summary = summary.is_some();
        match output.reports.first() {
            Some(report) => {
                if let Err(why) =
                    junit::read_junit(report, |case| found.add_or_merge(test_from_case(&case, root)))
                {
                    found.add_trouble(why);
                }
                // Exit code 1: some tests failed; 5: no tests were found.
                if !matches!(output.end, CommandExit::Exit(0 | 1 | 5)) {
                    found.add_trouble(format!("pytest: {}: {}", output.end, last_line(&output)));
                }
                let (passed, failed) = summary.unwrap_or((usize::MAX, 0));
                if passed < found.count(TestOutcome::Passed)
                    || failed > 0 && found.failures().next().is_none()
                {
                    found.add_trouble(format!(
                        "pytest's summary ({passed} passed, {failed} failed) does not fit its report"
                    ));
                }
            }
            None => {
                read_progress(&output, found);
                if found.tests.is_empty() || output.end == CommandExit::Exit(0) {
                    found.add_trouble(format!(
                        "pytest wrote no report: {}: {}",
                        output.end,
                        last_line(&output)
                    ));
                }
            }
        }
        None
    }
}

/// Returns the numbers of passed and failed tests in pytest's last line, such as `== 1 failed, 2 passed in 0.03s ==`.
pub(super) fn parse_summary(stdout: &str) -> Option<(usize, usize)> {
    stdout.lines().rev().find_map(|line| {
        let (counts, time) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
        time.split_once('s').filter(|(seconds, _)| seconds.parse::<f32>().is_ok())?;
        let (mut passed, mut failed) = (0, 0);
        for part in counts.split(", ") {
            let (count, word) = part.split_once(' ')?;
            let count = count.parse::<usize>().ok().or((part == "no tests ran").then_some(0))?;
            match word {
                "passed" | "xpassed" => passed += count,
                "failed" | "error" | "errors" => failed += count,
                _ => {}
            }
        }
        Some((passed, failed))
    })
}

fn last_line(output: &SuiteOutput) -> &str {
    let mut lines = output.stderr.lines().chain(output.stdout.lines()).filter(|line| !line.trim().is_empty());
    lines.next_back().unwrap_or("it printed nothing")
}

fn test_from_case(case: &JunitCase, root: &str) -> TestResult {
    let module = case.file.strip_suffix(".py").unwrap_or(&case.file).replace('/', ".");
    let class = case.class.strip_prefix(&module).unwrap_or(&case.class);
    let collected = !case.class.is_empty();
    let id = match (collected, case.file.is_empty()) {
        (true, _) => format!("{}{}::{}", case.file, class.replace('.', "::"), case.name),
        (false, false) => case.file.clone(),
        (false, true) => case.name.clone(),
    };
    let text = if case.text.is_empty() { &case.message } else { &case.text };
    let at = text.lines().rev().find_map(|line| parse_place(line, root)).or_else(|| {
        let line = case.line? + 1;
        Some(format!("{}:{line}", case.file))
    });
    let failed = |failure| TestResult::failed(id.clone(), failure, error_lines(text)).with_place(at);
    match case.result {
        JunitResult::Passed => TestResult::passed(id),
        JunitResult::Skipped if case.kind == "pytest.xfail" => {
            TestResult::skipped(id, format!("expected to fail {}", case.message))
        }
        JunitResult::Skipped => TestResult::skipped(id, &case.message),
        JunitResult::Failure if is_assertion(&error_lines(text)) => failed(TestFailure::Assertion),
        JunitResult::Failure | JunitResult::Error if mentions_missing_name(text) => {
            failed(TestFailure::Missing)
        }
        JunitResult::Error if !collected => failed(TestFailure::Build),
        JunitResult::Failure | JunitResult::Error => failed(TestFailure::Error),
    }
}

/// Whether the failure is an `assert`, a unittest assertion, or a missing expected exception. Any other exception is
/// not an assertion, because any code under test can raise it.
fn is_assertion(complaint: &str) -> bool {
    let starts = ["assert ", "AssertionError", "Failed: "];
    complaint.lines().next().is_some_and(|line| starts.iter().any(|word| line.trim_start().starts_with(word)))
}

/// Parses the location in `tests/test_a.py:10: in test_b` for the repository's own files, or in `E  File "/tree/a.py",
/// line 3` for a syntax error.
fn parse_place(line: &str, root: &str) -> Option<String> {
    if let Some((_, file)) = line.split_once(&format!("File \"{root}/")) {
        let (path, number) = file.split_once("\", line ")?;
        return Some(format!("{path}:{number}"));
    }
    let (path, rest) = line.split_once(".py:")?;
    let number = rest.split(':').next()?.parse::<u32>().ok()?;
    let own = !path.starts_with(['/', '.', '<', ' ', 'E']);
    own.then(|| format!("{path}.py:{number}"))
}

/// Returns the lines that pytest marks as errors. If no line is marked, returns all lines.
fn error_lines(text: &str) -> String {
    let marked: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("E  ")).map(str::trim_end).collect();
    if marked.is_empty() { text.to_owned() } else { marked.join("\n").replace("\n ", "\n") }
}

/// Reads progress lines such as `tests/test_a.py::test_b PASSED   [ 10%]`. If pytest exited early, the line of the test
/// that was running has no outcome.
fn read_progress(output: &SuiteOutput, found: &mut TestReport) {
    const WORDS: &[(&str, TestOutcome)] = &[
        (" PASSED", TestOutcome::Passed),
        (" SKIPPED", TestOutcome::Skipped),
        (" XFAIL", TestOutcome::Skipped),
        (" XPASS", TestOutcome::Passed),
        (" FAILED", TestOutcome::Failed(TestFailure::Error)),
        (" ERROR", TestOutcome::Failed(TestFailure::Error)),
    ];
    let tests = output.stdout.lines().filter(|line| line.contains(".py::") && !line.starts_with(' '));
    for line in tests {
        let ended = WORDS.iter().find_map(|(word, outcome)| Some((line.rfind(word)?, *outcome)));
        found.add_or_merge(match ended {
            Some((end, TestOutcome::Passed)) => TestResult::passed(&line[..end]),
            Some((end, TestOutcome::Skipped)) => TestResult::skipped(&line[..end], ""),
            Some((end, TestOutcome::Failed(failure))) => TestResult::failed(&line[..end], failure, ""),
            None => TestResult::failed(line.trim(), exit_failure(output.end), output.end.to_string()),
        });
    }
}
