//! Runs `node --test` with our own reporter. Node's reporters report neither the file of a test nor the reason why a
//! file failed to load.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::{
    CommandExit, ReportLocation, SuiteCommand, SuiteOutput, TestProject, TestReport, TestRunner, TestSuite,
    coverage, node_report, presets,
    toolchains::{Toolchain, ToolchainProbe, is_safe_to_share},
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
    setup: &[presets::NPM],
    suite: |project| Box::new(NodeSuite { project }),
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
}

impl TestSuite for NodeSuite {
    fn begin(&mut self) -> Result<SuiteCommand, String> {
        let manifest: NodeManifest = serde_json::from_str(&self.project.manifest)
            .map_err(|error| format!("package.json cannot be read: {error}"))?;
        let command = match manifest.scripts.get("test") {
            None => "node --test".to_owned(),
            Some(script) => manifest.scripts.iter().find_map(node_test_part).ok_or_else(|| {
                format!(
                    "package.json runs its tests by `{script}`, not by `node --test`; name a command under [test] in \
                     .github/countersign.toml"
                )
            })?,
        };
        let mut flags = vec![
            "--test".to_owned(),
            format!("--test-reporter='data:text/javascript;base64,{}'", BASE64_STANDARD.encode(REPORTER)),
            format!("--test-reporter-destination='{}'", self.project.reports.join("report.jsonl").display()),
            format!("--test-timeout={}", self.project.time.as_millis() / 4 * 3),
        ];
        if self.project.coverage {
            flags.extend(["--experimental-test-coverage", "--test-reporter=lcov"].map(str::to_owned));
            flags.push(format!("--test-reporter-destination='{}'", self.project.coverage_file()));
        }
        if let Some(only) = &self.project.only {
            let name = only.rsplit(" > ").next().unwrap_or(only);
            flags.push(format!("--test-name-pattern='^{}$'", regex::escape(name).replace('\'', ".")));
        }
        let command = self.targeted_command(&command).unwrap_or(command);
        // The shell runs the repository's own command, which is as untrusted as its tests.
        let line = command.replacen("--test", &flags.join(" "), 1);
        let near =
            self.project.tool.program.parent().map(|path| path.display().to_string()).unwrap_or_default();
        let path = format!("node_modules/.bin:{near}:{}", super::toolchains::SYSTEM_PATH);
        Ok(SuiteCommand {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), line],
            environment: vec![("PATH".to_owned(), path)],
            folder: self.project.folder.clone(),
            report: Some(ReportLocation::ReportsFile("report.jsonl")),
        })
    }

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        let lines = output.lines.as_deref().filter(|_| self.project.coverage);
        found.coverage = lines.map(|lines| coverage::parse_lcov(lines, &self.project.root));
        node_report::read_node_report(&self.project.root, &output, found);
        let cut = !matches!(output.end, CommandExit::Exit(_));
        let silent = cut || found.failures().next().is_none() && output.end != CommandExit::Exit(0);
        if silent || output.reports.is_empty() {
            let last_line =
                output.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it printed nothing");
            found.add_trouble(format!("node: {}: {last_line}", output.end));
        }
        None
    }
}

impl NodeSuite {
    /// Replaces the files in the command by the requested files. `None` unless all arguments of the command are plain
    /// file names.
    fn targeted_command(&self, command: &str) -> Option<String> {
        let files = self.project.requested_files(|file| file.contains("test") && file.ends_with(['s', 'x']));
        let plain = |file: &&str| file.chars().all(|c| c.is_alphanumeric() || "/._- ".contains(c));
        let (before, after) = command.split_once("--test")?;
        let only_files = before.trim_end().ends_with("node")
            && (after.is_empty() || after.starts_with(' '))
            && !after.split_whitespace().any(|word| word.starts_with('-'));
        let wanted =
            !files.is_empty() && self.project.only.is_none() && only_files && files.iter().all(plain);
        let files: String = files.iter().map(|file| format!(" './{file}'")).collect();
        wanted.then(|| format!("{before}--test{files}"))
    }
}

#[derive(Deserialize)]
struct NodeManifest {
    #[serde(default)]
    scripts: BTreeMap<String, String>,
}

/// Returns the `node … --test …` part of a test script (`test`, or a script such as `test:unit`), without a wrapper
/// that measures coverage.
fn node_test_part((name, script): (&String, &String)) -> Option<String> {
    let parts = script.split(['&', ';', '|']).filter(|_| name.starts_with("test"));
    parts.map(|part| part.split_whitespace().collect::<Vec<_>>()).find_map(|words| {
        let at = words.iter().position(|word| *word == "node").filter(|_| words.contains(&"--test"))?;
        let variables = words[..at].iter().filter(|word| word.contains('='));
        Some(variables.chain(&words[at..]).copied().collect::<Vec<_>>().join(" "))
    })
}
