//! The virtual environment of a Python project: the fetched packages and an editable install of the project. Each run
//! makes its own, in the sandbox and without network, because an installation runs the project's code.

use std::path::PathBuf;

use super::{
    CommandExit, SuiteCommand, SuiteOutput, TestProject, error_summary, sanitize_line,
    toolchains::{SYSTEM_PATH, Toolchain},
};

/// Exit codes of the script: the environment is there without the project, or nothing has to be prepared.
const NOT_INSTALLED: CommandExit = CommandExit::Exit(3);
const NOTHING: CommandExit = CommandExit::Exit(4);

pub(super) struct PythonEnvironment {
    directory: PathBuf,
    project: PathBuf,
    version: String,
    tool: Toolchain,
    /// Whether the environment is there.
    pub(super) usable: bool,
    /// Whether the project is installed in it.
    pub(super) installed: bool,
    /// Folders and files, relative to the project, that tox passes to pytest. Empty if pytest finds the tests itself.
    pub(super) paths: Vec<String>,
}

impl PythonEnvironment {
    pub(super) fn new(project: &TestProject) -> Self {
        Self {
            directory: project.reports.join("venv"),
            project: project.root.clone(),
            version: project.version.clone(),
            tool: project.tool.clone(),
            usable: false,
            installed: false,
            paths: Vec::new(),
        }
    }

    /// Returns the command that makes the environment.
    pub(super) fn prepare(&self) -> SuiteCommand {
        let sites = self.tool.sites.iter().map(|site| site.display().to_string());
        let places = [&self.directory, &self.project].map(|place| place.display().to_string());
        let words = ["-I", "-c", include_str!("python_prepare.py")].map(str::to_owned).into_iter();
        SuiteCommand {
            program: self.tool.program.clone(),
            args: words.chain(places).chain([self.version.clone()]).chain(sites).collect(),
            environment: vec![("PATH".to_owned(), SYSTEM_PATH.to_owned())],
            ..SuiteCommand::default()
        }
    }

    /// Reads the output of the command. Returns a note if the project or its environment is missing.
    pub(super) fn read(&mut self, output: &SuiteOutput) -> Option<String> {
        self.installed = output.end.success();
        self.usable = self.installed || output.end == NOT_INSTALLED;
        let paths = output.stdout.lines().next().unwrap_or_default();
        self.paths = paths.split_whitespace().map(str::to_owned).collect();
        let printed = error_summary(&output.stderr);
        let note =
            format!("the project was not installed; the tests ran without that ({}: {printed})", output.end);
        (!self.installed && output.end != NOTHING).then(|| sanitize_line(&note))
    }

    /// Returns the folder of the environment's programs.
    pub(super) fn programs(&self) -> Option<PathBuf> {
        self.usable.then(|| self.directory.join("bin"))
    }

    /// Returns the variables of a command that uses the environment. `path` is the search path for other programs.
    pub(super) fn variables(&self, path: &str) -> Vec<(String, String)> {
        let Some(programs) = self.programs() else { return vec![("PATH".to_owned(), path.to_owned())] };
        let directory = self.directory.display().to_string();
        vec![
            ("PATH".to_owned(), format!("{}:{path}", programs.display())),
            ("VIRTUAL_ENV".to_owned(), directory),
        ]
    }
}
