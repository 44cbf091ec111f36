//! `node --test`, by a reporter of ours: none of Node's own says in which file a test is, or why a file could not be read.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;

use super::{
    Call, Came, End, Failure, Found, Project, Report, Runner, Suite, Test, coverage, presets, says_missing,
    tools::{Probe, Tool, may_be_shown},
};

pub(super) const RUNNER: Runner = Runner {
    name: "node",
    manifests: &["package.json"],
    probe: Probe {
        program: "node",
        args: &["-p", "process.execPath"],
        version: &["--version"],
        missing: "JavaScript's tests need Node 20 or newer; install it (`apt install nodejs npm`, or a newer one from its makers)",
        tool,
    },
    setup: presets::NPM,
    suite: |project| Box::new(Node { project }),
};

const REPORTER: &str = include_str!("node_reporter.mjs");

/// Suites around a test that its name tells; no report of a person's tests has more.
const DEEPEST: usize = 64;

/// What is kept of what a file's process says.
const SAID_BYTES: usize = 8 * 1024;

fn tool(lines: &[&str]) -> Option<Tool> {
    let program = std::path::PathBuf::from(lines.first()?);
    // What else lies beside these, as below `~/.local`, is not node's. npm and npx are in `bin`.
    let prefix = program.parent()?.parent()?;
    let read = match may_be_shown(prefix) {
        true => ["bin", "lib"].map(|name| prefix.join(name)).into(),
        false => vec![program.clone()],
    };
    Some(Tool { program, read, ..Tool::default() })
}

struct Node {
    project: Project,
}

impl Suite for Node {
    fn begin(&mut self) -> Result<Call, String> {
        let manifest: Manifest = serde_json::from_str(&self.project.manifest)
            .map_err(|error| format!("package.json cannot be read: {error}"))?;
        let command = match manifest.scripts.get("test") {
            None => "node --test".to_owned(),
            Some(script) => manifest.scripts.iter().find_map(by_node).ok_or_else(|| {
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
            flags.push(format!("--test-reporter-destination='{}'", self.project.lines()));
        }
        if let Some(only) = &self.project.only {
            let name = only.rsplit(" > ").next().unwrap_or(only);
            flags.push(format!("--test-name-pattern='^{}$'", regex::escape(name).replace('\'', ".")));
        }
        let command = self.targeted(&command).unwrap_or(command);
        // The shell reads the repository's own line, which is as much its code as the tests are.
        let line = command.replacen("--test", &flags.join(" "), 1);
        let near =
            self.project.tool.program.parent().map(|path| path.display().to_string()).unwrap_or_default();
        let path = format!("node_modules/.bin:{near}:{}", super::tools::SYSTEM_PATH);
        Ok(Call {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), line],
            environment: vec![("PATH".to_owned(), path)],
            folder: self.project.folder.clone(),
            report: Some(Report::Ours("report.jsonl")),
        })
    }

    fn read(&mut self, came: Came, found: &mut Found) -> Option<Call> {
        let lines = came.lines.as_deref().filter(|_| self.project.coverage);
        found.coverage = lines.map(|lines| coverage::lcov(lines, &self.project.root));
        let root = format!("{}/", self.project.root.display());
        let mut files = Files { root, files: HashMap::new(), found };
        for line in came.reports.iter().flat_map(|report| report.lines()) {
            match serde_json::from_str(line) {
                Ok(event) => files.take(event),
                Err(error) if came.end != End::TimedOut => {
                    files.found.trouble(format!("the report has a line that is not node's: {error}"));
                    break;
                }
                // Cut off in the middle.
                Err(_) => {}
            }
        }
        files.left(&came);
        let cut = !matches!(came.end, End::Exit(_));
        let silent = cut || found.failed().next().is_none() && came.end != End::Exit(0);
        if silent || came.reports.is_empty() {
            let said = came.stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
            found.trouble(format!("node: {}: {said}", came.end));
        }
        None
    }
}

impl Node {
    /// The command with the asked-for files for its own, where it has nothing but files, and these are no patterns.
    fn targeted(&self, command: &str) -> Option<String> {
        let files = self.project.asked(|file| file.contains("test") && file.ends_with(['s', 'x']));
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
struct Manifest {
    #[serde(default)]
    scripts: BTreeMap<String, String>,
}

/// The part of a script for tests (`test`, or what that runs: `test:unit`) that is `node … --test …`, without what measures
/// coverage around it.
fn by_node((name, script): (&String, &String)) -> Option<String> {
    let parts = script.split(['&', ';', '|']).filter(|_| name.starts_with("test"));
    parts.map(|part| part.split_whitespace().collect::<Vec<_>>()).find_map(|words| {
        let at = words.iter().position(|word| *word == "node").filter(|_| words.contains(&"--test"))?;
        let variables = words[..at].iter().filter(|word| word.contains('='));
        Some(variables.chain(&words[at..]).copied().collect::<Vec<_>>().join(" "))
    })
}

/// A line of our reporter.
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    nesting: usize,
    #[serde(default)]
    file: String,
    line: Option<u32>,
    /// `true` or why.
    skip: Option<serde_json::Value>,
    #[serde(default)]
    suite: bool,
    #[serde(default)]
    failure: String,
    signal: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    stack: String,
}

/// A test file's process.
#[derive(Default)]
struct File {
    /// The names from the outermost down to the test at hand.
    within: Vec<String>,
    /// What began and is not over.
    running: BTreeSet<String>,
    said: String,
    tests: usize,
}

struct Files<'a> {
    root: String,
    files: HashMap<String, File>,
    found: &'a mut Found,
}

impl Files<'_> {
    fn take(&mut self, mut event: Event) {
        event.nesting = event.nesting.min(DEEPEST);
        let path = event.file.strip_prefix(&self.root).unwrap_or(&event.file).to_owned();
        let file = self.files.entry(path.clone()).or_default();
        // A file is a test of its own, around those in it.
        let whole = event.nesting == 0 && event.file.ends_with(&event.name);
        match event.kind.as_str() {
            "stderr" if file.said.len() < SAID_BYTES => file.said.push_str(&event.message),
            "dequeue" if !whole => drop(file.running.insert(event.name)),
            "complete" => drop(file.running.remove(&event.name)),
            "start" => {
                file.within.truncate(event.nesting);
                file.within.push(event.name);
            }
            "pass" | "fail" if event.failure == "subtestsFailed" && (event.suite || whole) => {}
            "pass" if event.suite => {}
            "fail" if whole => self.file_failed(&path, &event),
            "pass" | "fail" => {
                file.tests += 1;
                let outer = file.within.iter().take(event.nesting).map(String::as_str);
                let names: Vec<&str> =
                    [path.as_str()].into_iter().chain(outer).chain([event.name.as_str()]).collect();
                let id = if whole { path.clone() } else { names.join(" > ") };
                self.found.add(test(id, &path, &event));
            }
            _ => {}
        }
    }

    /// Something that is no failed test ended the process of a file.
    fn file_failed(&mut self, path: &str, event: &Event) {
        let file = self.files.remove(path).unwrap_or_default();
        if event.failure == "testTimeoutFailure" && !file.running.is_empty() {
            return self.hung(path, &file);
        }
        let failure = match event {
            _ if event.failure == "testTimeoutFailure" => Failure::Timeout,
            _ if event.signal.is_some() => Failure::Crash,
            _ if says_missing(&file.said) => Failure::Missing,
            _ if file.tests == 0 || file.said.contains("SyntaxError") => Failure::Build,
            _ if file.said.contains("AssertionError") => Failure::Assertion,
            _ => Failure::Error,
        };
        let signal = event.signal.as_ref().map(|signal| format!("{signal}\n")).unwrap_or_default();
        let said = if file.said.trim().is_empty() { &event.message } else { &file.said };
        self.found.add(Test::failed(path, failure, signal + said).at(place(path, said)));
    }

    fn hung(&mut self, path: &str, file: &File) {
        for name in &file.running {
            let message = "it did not end before its time";
            self.found.add(Test::failed(format!("{path} > {name}"), Failure::Timeout, message));
        }
    }

    /// What was running when everything was ended.
    fn left(&mut self, came: &Came) {
        if came.end == End::TimedOut {
            for (path, file) in std::mem::take(&mut self.files) {
                self.hung(&path, &file);
            }
        }
    }
}

fn test(id: String, path: &str, event: &Event) -> Test {
    let at = place(path, &event.stack).or_else(|| Some(format!("{path}:{}", event.line?)));
    let failed = |failure| {
        let message = if event.message.is_empty() { &event.stack } else { &event.message };
        Test::failed(id.clone(), failure, message).at(at)
    };
    match (&event.skip, event.kind.as_str(), event.failure.as_str()) {
        (Some(serde_json::Value::String(why)), ..) => Test::skipped(id, why),
        (Some(serde_json::Value::Bool(true)), ..) => Test::skipped(id, ""),
        (_, "pass", _) => Test::passed(id),
        // Also a promise that nothing would ever have kept.
        (_, _, "testTimeoutFailure" | "cancelledByParent") => failed(Failure::Timeout),
        _ if event.stack.starts_with("AssertionError") => failed(Failure::Assertion),
        _ if says_missing(&event.stack) => failed(Failure::Missing),
        _ => failed(Failure::Error),
    }
}

/// The first `path:line` of a stack.
fn place(path: &str, stack: &str) -> Option<String> {
    let (_, rest) = stack.split_once(&format!("{path}:"))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (end > 0).then(|| format!("{path}:{}", &rest[..end]))
}
