//! Child processes that end with the test. Their output can be read line by line.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use countersign::proc::reserved_address;
use rustix::process::{Pid, Signal, kill_process};

/// Maximum time for which a test waits for anything. It is long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn countersign(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the program until it ends. The program is killed after `PATIENCE`.
pub(crate) fn run_countersign(arguments: &[&str]) -> Output {
    finish(&mut countersign(arguments))
}

pub(crate) fn finish(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (pid, (_ended, end)) = (Pid::from_child(&child), channel::<()>());
    std::thread::spawn(move || {
        if end.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            kill_process(pid, Signal::KILL).unwrap();
        }
    });
    child.wait_with_output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A program that runs in the background and is killed on drop.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: Receiver<String>,
    output: Vec<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    // The receiver is gone once the test ends.
                    let _ = sender.send(line);
                }
            });
        }
        Self { child, lines, output: Vec::new() }
    }

    /// Waits for a line of output that contains `words`, and returns the line.
    pub(crate) fn wait_for_line(&mut self, words: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with `{words}`; the output was:\n{}", self.output.join("\n"));
            };
            self.output.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits until the program exits. Returns the exit code and the whole output.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.output.extend(self.lines.iter());
                return (status.code(), std::mem::take(&mut self.output).join("\n"));
            }
            assert!(
                Instant::now() < until,
                "the program did not end; its output was:\n{}",
                self.output.join("\n")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a loopback address on which nobody listens. Its port stays reserved until this process ends.
pub(crate) fn free_address() -> String {
    let (address, socket) = reserved_address().unwrap();
    // Keeps the port reserved until this process ends.
    std::mem::forget(socket);
    address.to_string()
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "safe.directory=*"])
        .arg("-C")
        .arg(directory)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}
