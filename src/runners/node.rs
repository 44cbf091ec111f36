//! Runs the test runners that the scripts of package.json call, each with a reporter that we can read. `node --test`
//! gets our own reporter, because Node's report neither the file of a test nor the reason why a file failed to load.

use std::{collections::VecDeque, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};

use super::{
    CommandExit, ReportLocation, SuiteCommand, SuiteOutput, TestFailure, TestProject, TestReport, TestResult,
    TestRunner, TestSuite, coverage, error_summary, exit_failure,
    generic::message_tail,
    jest_report,
    junit::{self, JunitCase, JunitResult},
    mentions_missing_name, node_packages, node_report,
    node_scripts::{ReportFormat, ScriptPlan, ScriptRunner, ScriptStep},
    tap,
    toolchains::{SYSTEM_PATH, Toolchain, ToolchainProbe, is_safe_to_share},
};

pub(super) const RUNNER: TestRunner = TestRunner {
    name: "node",
    manifests: &["package.json"],
    probe: ToolchainProbe {
        language: "Node",
        program: "node",
        args: &["-p", "process.execPath"],
        version: &["--version"],
        oldest: (20, 0),
        missing: "JavaScript's tests need Node 20 or newer; install it (`apt install nodejs npm`, or a newer one from its makers)",
        tool: parse_toolchain,
    },
    setup: &[node_packages::NPM],
    suite: |project| {
        Box::new(NodeSuite {
            project,
            steps: VecDeque::new(),
            running: None,
            checks: Vec::new(),
            failed: Vec::new(),
            cut: false,
        })
    },
};

const REPORTER: &str = include_str!("node_reporter.mjs");

fn parse_toolchain(lines: &[&str]) -> Option<Toolchain> {
    let program = std::path::PathBuf::from(lines.first()?);
    // Only `bin` and `lib` belong to node; a prefix such as `~/.local` holds other files too. npm and npx are in `bin`.
    let prefix = program.parent()?.parent()?;
    let read = match is_safe_to_share(prefix) {
        true => ["bin", "lib"].map(|name| prefix.join(name)).into(),
        false => vec![program.clone()],
    };
    Some(Toolchain { program, read, ..Toolchain::default() })
}

struct NodeSuite {
    project: TestProject,
    steps: VecDeque<ScriptStep>,
    running: Option<ScriptStep>,
    /// Programs of the test script that are not run, because they are no tests.
    checks: Vec<String>,
    /// Optional steps that failed.
    failed: Vec<String>,
    /// Whether a step ended without its runner's summary.
    cut: bool,
}

/// Name of the report in [`TestProject::reports`]. Each step removes the report of the step before it.
const REPORT: &str = "report";

impl TestSuite for NodeSuite {
    fn begin(&mut self) -> Result<SuiteCommand, String> {
        let mut manifests = self.project.manifests.clone();
        manifests.insert("package.json".to_owned(), self.project.manifest.clone());
        let plan = ScriptPlan::new(&manifests, &self.project.paths)?;
        (self.steps, self.checks) = (plan.steps, plan.checks);
        self.select_steps();
        self.next_command().ok_or_else(|| "package.json has no tests".to_owned())
    }

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        let step = self.running.take()?;
        let Some(runner) = step.runner else { return self.read_command(&step, &output, found) };
        let (tests, failures) = (found.tests.len(), found.failures().count());
        let (trouble, root) = (found.trouble.len(), format!("{}/", self.project.root.display()));
        found.has_summary = false;
        let report = output.reports.first().map_or("", String::as_str);
        let read = match runner.format {
            ReportFormat::Node => {
                let lines = output.lines.as_deref().filter(|_| self.project.coverage);
                found.coverage = lines.map(|lines| coverage::parse_lcov(lines, &self.project.root));
                node_report::read_node_report(&self.project.root, &output, found);
                Ok(())
            }
            _ if report.is_empty() && runner.format != ReportFormat::Tap => Ok(()),
            ReportFormat::Jest => jest_report::read_jest_report(report, &root, found),
            ReportFormat::Junit => {
                found.has_summary = true;
                junit::read_junit(report, |case| found.add(test_from_case(case, &step, runner, &root)))
            }
            ReportFormat::Tap => {
                let mut own = TestReport::default();
                tap::read_tap(&output.stdout, &mut own);
                found.has_summary = own.has_summary;
                own.trouble.iter().for_each(|line| found.add_trouble(line));
                for mut test in own.tests {
                    test.id = in_folder(&step.folder, &test.id, " > ");
                    found.add(test);
                }
                Ok(())
            }
        };
        if let Err(why) = read {
            found.add_trouble(format!("{}: {why}", runner.word));
        }
        self.cut |= !std::mem::replace(&mut found.has_summary, true);
        found.has_summary = !self.cut;
        let cut = !matches!(output.end, CommandExit::Exit(_));
        let silent = cut || found.failures().count() == failures && output.end != CommandExit::Exit(0);
        let empty = found.tests.len() == tests && output.reports.is_empty();
        if found.trouble.len() == trouble && (silent || empty) {
            let outputs = [&output.stderr, &output.stdout];
            let named = outputs.into_iter().find(|text| text.to_ascii_lowercase().contains("error"));
            let printed = named.or(outputs.into_iter().find(|text| !text.trim().is_empty()));
            let printed = printed.unwrap_or(&output.stderr);
            let printed =
                error_summary(&printed[printed.ceil_char_boundary(printed.len().saturating_sub(8_000))..]);
            found.add_trouble(match printed.as_str() {
                "" => format!("`{}`: {}: it printed nothing", step.line(), output.end),
                printed => format!("`{}`: {}: {printed}", step.line(), output.end),
            });
        }
        self.next_command()
    }

    fn notes(&self) -> Vec<String> {
        let mut checks: Vec<String> = self.checks.iter().map(|check| format!("`{check}`")).collect();
        checks.dedup();
        let checks = (!checks.is_empty())
            .then(|| format!("not run, because they check style, types or packaging: {}", checks.join(", ")));
        self.failed.iter().cloned().chain(checks).collect()
    }
}

impl NodeSuite {
    /// Leaves out the steps of workspace members that have none of the requested tests.
    fn select_steps(&mut self) {
        let wanted: Vec<&str> = match &self.project.only {
            Some(only) => vec![only.as_str()],
            None => self.project.targets.iter().map(String::as_str).collect(),
        };
        let holds = |folder: &str, path: &str| {
            folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(['/', ' ']))
        };
        let nearest = |path: &&str| {
            let steps = self.steps.iter().filter(|step| step.runner.is_some() && holds(&step.folder, path));
            steps.map(|step| step.folder.clone()).max_by_key(String::len)
        };
        let folders: Vec<String> = wanted.iter().filter_map(nearest).collect();
        if !folders.is_empty() {
            self.steps.retain(|step| step.runner.is_none() || folders.contains(&step.folder));
        }
    }

    fn next_command(&mut self) -> Option<SuiteCommand> {
        let step = self.steps.pop_front()?;
        let report = self.project.reports.join(REPORT);
        let line = match step.runner {
            None => step.line(),
            Some(runner) => {
                let words = self.runner_line(&step, runner, &report.display().to_string());
                // The shell runs the repository's own command, which is as untrusted as its tests.
                format!("rm -f '{}'; {}{words}", report.display(), step.before)
            }
        };
        let folder = in_folder(&self.project.folder, &step.folder, "/");
        let above = Path::new(&folder).ancestors().count();
        let root = self.project.root.join(&step.folder);
        let bins = root.ancestors().take(above).map(|folder| folder.join("node_modules/.bin"));
        let mut path: Vec<String> = bins.map(|bin| bin.display().to_string()).collect();
        path.extend(self.project.tool.program.parent().map(|near| near.display().to_string()));
        path.push(SYSTEM_PATH.to_owned());
        self.running = Some(step);
        Some(SuiteCommand {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), line],
            environment: vec![("PATH".to_owned(), path.join(":"))],
            folder,
            report: Some(ReportLocation::ReportsFile(REPORT)),
        })
    }

    /// Returns the command of a test runner, with the arguments for its report and for the requested tests.
    fn runner_line(&self, step: &ScriptStep, runner: &ScriptRunner, report: &str) -> String {
        let quoted = |text: String| format!("'{}'", text.replace('\'', "."));
        let names: Vec<&str> = self.project.only.as_deref().unwrap_or_default().split(" > ").collect();
        let below = |file: &&str| super::projects::below(&step.folder, file).is_some();
        let files = self.project.requested_files(|file| {
            ["test", "spec"].iter().any(|part| file.contains(part)) && file.ends_with(['s', 'x'])
        });
        let plain = |file: &str| file.chars().all(|c| c.is_alphanumeric() || "/._- ".contains(c));
        let files: Vec<&str> = files.into_iter().filter(below).collect();
        let files = files.iter().map(|file| file[step.folder.len()..].trim_start_matches('/'));
        let files: Vec<&str> = files.collect();
        let files = if files.iter().all(|file| plain(file)) { files } else { Vec::new() };
        if runner.format != ReportFormat::Node {
            let mut line = format!("{} {}", step.words.join(" "), runner.args.replace("{report}", report));
            if self.project.only.is_some() && !runner.filter.is_empty() {
                let first = usize::from(runner.by_file || !step.folder.is_empty()).min(names.len() - 1);
                let name = regex::escape(&names[first..].join(" "));
                line += &format!(" {}={}", runner.filter, quoted(format!("^{name}$")));
                if runner.by_file && first > 0 {
                    let file = names[0].strip_prefix(&step.folder).unwrap_or(names[0]);
                    line += &format!(" {}", quoted(file.trim_start_matches(['/', '-']).to_owned()));
                }
            }
            // Nothing begins with a dash, which would make it an option.
            line.extend(files.iter().map(|file| format!(" '{}'", file.trim_start_matches('-'))));
            return line;
        }
        let mut flags = vec![
            "--test".to_owned(),
            format!("--test-reporter='data:text/javascript;base64,{}'", BASE64_STANDARD.encode(REPORTER)),
            format!("--test-reporter-destination='{report}'"),
            format!("--test-timeout={}", self.project.time.as_millis() / 4 * 3),
        ];
        if self.project.coverage {
            flags.extend(["--experimental-test-coverage", "--test-reporter=lcov"].map(str::to_owned));
            flags.push(format!("--test-reporter-destination='{}'", self.project.coverage_file()));
        }
        if self.project.only.is_some() {
            let name = regex::escape(names.last().copied().unwrap_or_default());
            flags.push(format!("--test-name-pattern={}", quoted(format!("^{name}$"))));
        }
        let at = step.words.iter().position(|word| word == "--test").unwrap_or_default();
        let (before, after) = (&step.words[..at], &step.words[at + 1..]);
        let files: Vec<String> = files.iter().map(|file| format!("'./{file}'")).collect();
        let replaced = !files.is_empty() && !after.iter().any(|word| word.starts_with('-'));
        [before, &flags, if replaced { &files } else { after }].concat().join(" ")
    }

    /// Handles the end of a command that does not run tests itself.
    fn read_command(
        &mut self,
        step: &ScriptStep,
        output: &SuiteOutput,
        found: &mut TestReport,
    ) -> Option<SuiteCommand> {
        let printed = [output.stdout.trim(), output.stderr.trim()].join("\n");
        if output.end == CommandExit::Exit(0) {
            return self.next_command();
        }
        if step.optional {
            let why = error_summary(message_tail(&printed));
            self.failed.push(format!("`{}` failed before the tests: {}: {why}", step.line(), output.end));
            self.steps.retain(|step| !step.optional);
            return self.next_command();
        }
        let failure = match output.end {
            CommandExit::Exit(_) if mentions_missing_name(&printed) => TestFailure::Missing,
            CommandExit::Exit(_) => TestFailure::Build,
            end => exit_failure(end),
        };
        found.add(TestResult::failed(step.line(), failure, message_tail(&printed)));
        let left: Vec<String> = self.steps.drain(..).map(|step| format!("`{}`", step.line())).collect();
        if !left.is_empty() {
            found.add_trouble(format!("not run after `{}` failed: {}", step.line(), left.join(", ")));
        }
        None
    }
}

fn in_folder(folder: &str, path: &str, separator: &str) -> String {
    [folder, path].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(separator)
}

fn test_from_case(case: JunitCase, step: &ScriptStep, runner: &ScriptRunner, root: &str) -> TestResult {
    let separator = if runner.by_file { "/" } else { " > " };
    // A file that failed to load counts as a test of this name.
    let whole = runner.by_file && case.class == case.name;
    let name = if whole { case.name.clone() } else { in_folder(&case.class, &case.name, " > ") };
    let id = in_folder(&step.folder, &name, separator);
    let text = if case.text.trim().is_empty() { &case.message } else { &case.text };
    let file = if runner.by_file { &case.class } else { case.file.strip_prefix(root).unwrap_or(&case.file) };
    let place =
        Some(file).filter(|file| !file.is_empty()).and_then(|file| node_report::parse_place(file, text));
    match case.result {
        JunitResult::Passed => TestResult::passed(id),
        JunitResult::Skipped => TestResult::skipped(id, &case.message),
        JunitResult::Failure | JunitResult::Error => {
            let failure = match failure_kind(&case.kind, text) {
                TestFailure::Error if whole => TestFailure::Build,
                failure => failure,
            };
            TestResult::failed(id, failure, text).with_place(place)
        }
    }
}

/// Derives the cause of a failure from the type and the message of its error.
pub(super) fn failure_kind(kind: &str, text: &str) -> TestFailure {
    let starts = ["AssertionError", "Error: expect(", "expect("];
    let asserts = |line: &str| starts.iter().any(|start| line.trim_start().starts_with(start));
    match kind {
        _ if kind.contains("AssertionError") || text.lines().any(asserts) => TestFailure::Assertion,
        _ if mentions_missing_name(text) => TestFailure::Missing,
        _ if text.contains("imeout of ") || text.contains("timed out in ") => TestFailure::Timeout,
        _ => TestFailure::Error,
    }
}
