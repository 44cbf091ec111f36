//! Runs Aider's repository map in a child process that communicates over pipes. If `unshare` works, the child process
//! has no network access.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{measure::say, site::peer};

pub(crate) struct Aider {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Aider {
    /// Starts Aider. If Aider is not installed, prints a note and returns `None`.
    pub(crate) fn start() -> Option<Self> {
        let home = peer("aider");
        let python = home.join(".venv/bin/python");
        if !python.exists() {
            say("(aider is not installed; README.md says how)");
            return None;
        }
        let alone = Command::new("unshare").args(["--net", "true"]).stderr(Stdio::null()).status();
        let mut command = match alone {
            Ok(status) if status.success() => {
                let mut command = Command::new("unshare");
                command.arg("--net").arg(python);
                command
            }
            _ => Command::new(python),
        };
        let mut child = command
            .arg(home.join("map.py"))
            .env("AIDER_ANALYTICS", "false")
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("aider's script starts");
        let requests = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        Some(Self { child, requests, answers })
    }

    /// Builds Aider's repository map of a tree without a cache and returns Aider's report.
    pub(crate) fn map(&mut self, root: &Path, files: &[String]) -> Value {
        self.ask(&json!({"do": "map", "root": root, "files": files}))
    }

    /// Returns the files in the order in which Aider's map ranks them for a message, best first.
    pub(crate) fn rank(&mut self, root: &Path, files: &[String], message: &str) -> Vec<String> {
        let order = json!({"do": "rank", "root": root, "files": files, "message": message, "most": 200});
        serde_json::from_value(self.ask(&order)["files"].take()).expect("paths")
    }

    fn ask(&mut self, order: &Value) -> Value {
        writeln!(self.requests, "{order}").expect("aider's script listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("aider's script answers");
        serde_json::from_str(&line).expect("its JSON")
    }
}

impl Drop for Aider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
