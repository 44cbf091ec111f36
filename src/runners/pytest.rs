//! Python's tests, by pytest: its JUnit XML, and what it prints as it goes where it did not live to write that.

use std::path::Path;

use super::{
    Call, Came, End, Failure, Found, Outcome, Project, Report, Runner, Suite, Test, coverage, failure,
    junit::{self, Case, Result_},
    presets, says_missing,
    tools::{Probe, Tool, may_be_shown},
};

pub(super) const RUNNER: Runner = Runner {
    name: "pytest",
    manifests: &["pytest.ini", "pyproject.toml", "setup.py", "setup.cfg", "tox.ini"],
    probe: Probe {
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
        tool,
    },
    setup: &[presets::PIP],
    suite: |project| Box::new(Pytest { project }),
};

/// Executable, prefix, base prefix, and where modules are looked for. Of the last only what installers fill: a person may
/// have added any folder to them.
fn tool(lines: &[&str]) -> Option<Tool> {
    let [program, prefix, base, modules @ ..] = lines else { return None };
    let installed = modules.iter().map(Path::new);
    let installed =
        installed.filter(|path| path.ends_with("site-packages") || path.ends_with("dist-packages"));
    let read = [prefix, base].map(Path::new).into_iter().chain(installed);
    let read = read.filter(|path| path.is_absolute() && may_be_shown(path)).map(Path::to_owned).collect();
    Some(Tool { program: program.into(), read, ..Tool::default() })
}

struct Pytest {
    project: Project,
}

impl Suite for Pytest {
    fn begin(&mut self) -> Result<Call, String> {
        let lines = self.project.lines();
        let pytest = match self.project.coverage {
            true => ["-c", include_str!("pytest_coverage.py"), &lines].map(str::to_owned).to_vec(),
            false => ["-m", "pytest"].map(str::to_owned).to_vec(),
        };
        let args = ["-v", "--tb=short", "--color=no", "-p", "no:cacheprovider"];
        let also = ["--continue-on-collection-errors", "-o", "junit_family=xunit1"];
        let report = format!("--junitxml={}", self.project.reports.join("report.xml").display());
        let args = pytest.into_iter().chain(args.into_iter().chain(also).map(str::to_owned));
        // Whatever a file is called, it is no option.
        let files =
            self.project.asked(|file| file.ends_with(".py")).into_iter().map(|file| format!("./{file}"));
        let args = args.chain([report]).chain(files).chain(self.project.only.clone()).collect();
        // A package below `src` is not found without being installed.
        let below = self.project.paths.iter().any(|path| path.starts_with("src/") && path.ends_with(".py"));
        let tool = &self.project.tool;
        let fetched =
            tool.environment.iter().filter(|(name, _)| *name == "PYTHONPATH").map(|(_, path)| path.as_str());
        let places = below.then_some("src").into_iter().chain(fetched).collect::<Vec<_>>().join(":");
        let place = (!places.is_empty()).then(|| ("PYTHONPATH".to_owned(), places));
        let plain = [("PYTHONUNBUFFERED", "1"), ("PYTHONDONTWRITEBYTECODE", "1")];
        let plain = plain.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Call {
            program: self.project.tool.program.clone(),
            args,
            environment: plain.into_iter().chain(place).collect(),
            folder: self.project.folder.clone(),
            report: Some(Report::Ours("report.xml")),
        })
    }

    fn read(&mut self, came: Came, found: &mut Found) -> Option<Call> {
        let lines = came.lines.as_deref().filter(|_| self.project.coverage);
        found.coverage = lines.map(|lines| coverage::lcov(lines, &self.project.root));
        let root = &self.project.root.display().to_string();
        match came.reports.first() {
            Some(report) => {
                if let Err(why) = junit::read(report, |case| found.tell(test(&case, root))) {
                    found.trouble(why);
                }
                // 1 is what failed, 5 that there was nothing.
                if !matches!(came.end, End::Exit(0 | 1 | 5)) {
                    found.trouble(format!("pytest: {}: {}", came.end, last_line(&came)));
                }
            }
            None => {
                printed(&came, found);
                if found.tests.is_empty() {
                    found.trouble(format!("pytest told of no test: {}: {}", came.end, last_line(&came)));
                }
            }
        }
        None
    }
}

fn last_line(came: &Came) -> &str {
    let mut lines = came.stderr.lines().chain(came.stdout.lines()).filter(|line| !line.trim().is_empty());
    lines.next_back().unwrap_or("it says nothing")
}

fn test(case: &Case, root: &str) -> Test {
    let module = case.file.strip_suffix(".py").unwrap_or(&case.file).replace('/', ".");
    let class = case.class.strip_prefix(&module).unwrap_or(&case.class);
    let collected = !case.class.is_empty();
    let id = match (collected, case.file.is_empty()) {
        (true, _) => format!("{}{}::{}", case.file, class.replace('.', "::"), case.name),
        (false, false) => case.file.clone(),
        (false, true) => case.name.clone(),
    };
    let said = if case.text.is_empty() { &case.message } else { &case.text };
    let at = said.lines().rev().find_map(|line| place(line, root)).or_else(|| {
        let line = case.line? + 1;
        Some(format!("{}:{line}", case.file))
    });
    let failed = |failure| Test::failed(id.clone(), failure, complaint(said)).at(at);
    match case.result {
        Result_::Passed => Test::passed(id),
        Result_::Skipped if case.kind == "pytest.xfail" => {
            Test::skipped(id, format!("expected to fail {}", case.message))
        }
        Result_::Skipped => Test::skipped(id, &case.message),
        Result_::Failure if asserts(&complaint(said)) => failed(Failure::Assertion),
        Result_::Failure | Result_::Error if says_missing(said) => failed(Failure::Missing),
        Result_::Error if !collected => failed(Failure::Build),
        Result_::Failure | Result_::Error => failed(Failure::Error),
    }
}

/// Is it an `assert`, a method of unittest that is one, or what was expected to be raised and was not? Not an exception: code
/// that gets as far as its first line has that, too.
fn asserts(complaint: &str) -> bool {
    let said = ["assert ", "AssertionError", "Failed: "];
    complaint.lines().next().is_some_and(|line| said.iter().any(|word| line.trim_start().starts_with(word)))
}

/// `tests/test_a.py:10: in test_b`, of the repository's own files; or `E  File "/tree/a.py", line 3` of what is no Python.
fn place(line: &str, root: &str) -> Option<String> {
    if let Some((_, file)) = line.split_once(&format!("File \"{root}/")) {
        let (path, number) = file.split_once("\", line ")?;
        return Some(format!("{path}:{number}"));
    }
    let (path, rest) = line.split_once(".py:")?;
    let number = rest.split(':').next()?.parse::<u32>().ok()?;
    let own = !path.starts_with(['/', '.', '<', ' ', 'E']);
    own.then(|| format!("{path}.py:{number}"))
}

/// The lines by which pytest says what is wrong; all, where it marks none.
fn complaint(text: &str) -> String {
    let marked: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("E  ")).map(str::trim_end).collect();
    if marked.is_empty() { text.to_owned() } else { marked.join("\n").replace("\n ", "\n") }
}

/// `tests/test_a.py::test_b PASSED   [ 10%]`, a line a test; the one that runs has no such word yet.
fn printed(came: &Came, found: &mut Found) {
    const WORDS: &[(&str, Outcome)] = &[
        (" PASSED", Outcome::Passed),
        (" SKIPPED", Outcome::Skipped),
        (" XFAIL", Outcome::Skipped),
        (" XPASS", Outcome::Passed),
        (" FAILED", Outcome::Failed(Failure::Error)),
        (" ERROR", Outcome::Failed(Failure::Error)),
    ];
    let tests = came.stdout.lines().filter(|line| line.contains(".py::") && !line.starts_with(' '));
    for line in tests {
        let ended = WORDS.iter().find_map(|(word, outcome)| Some((line.rfind(word)?, *outcome)));
        found.tell(match ended {
            Some((end, Outcome::Passed)) => Test::passed(&line[..end]),
            Some((end, Outcome::Skipped)) => Test::skipped(&line[..end], ""),
            Some((end, Outcome::Failed(failure))) => Test::failed(&line[..end], failure, ""),
            None => Test::failed(line.trim(), failure(came.end), came.end.to_string()),
        });
    }
}
