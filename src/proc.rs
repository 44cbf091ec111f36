//! Child processes: the only place that starts one.
//!
//! A child gets the environment it is given and nothing else (bar `PATH`), its own process group,
//! a time limit and a cap on what it may print. However a call ends (exit, timeout, cancellation,
//! a dropped future), nothing of the group stays behind. What the output means is the caller's
//! business; this room knows no program by name.
//!
//! Time limits here are on the real clock, whatever `Clock` says: a process runs in real time.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Child,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::limits;

/// What a child that ended by itself left behind.
#[derive(Debug, Clone)]
pub struct Output {
    /// The exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    /// The last [`limits::CHILD_ERROR_BYTES`] of standard error.
    pub stderr: Vec<u8>,
    pub elapsed: Duration,
}

impl Output {
    pub fn success(&self) -> bool {
        self.status == Some(0)
    }

    /// Standard error as one trimmed text, for a message.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// Why there is no [`Output`].
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    #[error("`{program}` was not found; install it or give its full path")]
    NotFound { program: String },
    #[error("the child process was ended after {:.1} s, its time limit", elapsed.as_secs_f64())]
    TimedOut { elapsed: Duration },
    #[error("the child process was cancelled")]
    Cancelled,
    #[error("the child process was ended: it printed more than {limit} bytes")]
    OutputTooLong { limit: usize },
    #[error("`{program}` could not be run: {source}")]
    Io { program: String, source: io::Error },
}

/// A child process to be. Build it, then [`run`](Command::run) it.
#[derive(Clone)]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    directory: Option<PathBuf>,
    stdin: Vec<u8>,
    timeout: Duration,
    output_limit: usize,
}

impl Command {
    /// `program` is a path, or a name looked up in our own `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        // The path is the machine's, not the operator's: a program's helpers are found through it.
        let env = std::env::var_os("PATH").map(|path| ("PATH".into(), path)).into_iter().collect();
        Self {
            program: program.as_ref().into(),
            args: Vec::new(),
            env,
            directory: None,
            stdin: Vec::new(),
            timeout: limits::CHILD_TIME,
            output_limit: limits::CHILD_OUTPUT_BYTES,
        }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().into());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(key.as_ref().into(), value.as_ref().into());
        self
    }

    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().into());
        self
    }

    /// Bytes for standard input; without them the child reads end of file at once.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Time until the whole group is ended; [`limits::CHILD_TIME`] unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Bytes of standard output allowed; [`limits::CHILD_OUTPUT_BYTES`] unless set.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }

    /// Runs the child to its end. A status other than 0 is an [`Output`], not an error.
    pub async fn run(self, cancel: &CancellationToken) -> Result<Output, ProcError> {
        self.run_lines(cancel, |_| {}).await
    }

    /// As [`run`](Command::run), and `line` sees each line of standard output (without its end) as
    /// it is printed.
    pub async fn run_lines(
        mut self,
        cancel: &CancellationToken,
        line: impl FnMut(&[u8]) + Send,
    ) -> Result<Output, ProcError> {
        if cancel.is_cancelled() {
            return Err(ProcError::Cancelled);
        }
        let started = Instant::now();
        let timeout = self.timeout;
        let stdin = std::mem::take(&mut self.stdin);
        let mut group = self.spawn()?;
        let ended = tokio::select! {
            done = group.drive(stdin, self.output_limit, line) => done,
            () = tokio::time::sleep(timeout) => Err(Ended::TimedOut),
            () = cancel.cancelled() => Err(Ended::Cancelled),
        };
        match ended {
            Ok((status, stdout, stderr)) => {
                Ok(Output { status: status.code(), stdout, stderr, elapsed: started.elapsed() })
            }
            Err(why) => {
                group.end().await;
                Err(match why {
                    Ended::TimedOut => ProcError::TimedOut { elapsed: started.elapsed() },
                    Ended::Cancelled => ProcError::Cancelled,
                    Ended::TooLong => ProcError::OutputTooLong { limit: self.output_limit },
                    Ended::Io(source) => ProcError::Io { program: self.shown(), source },
                })
            }
        }
    }

    fn spawn(&self) -> Result<Group, ProcError> {
        let mut command = tokio::process::Command::new(located(&self.program));
        command
            .arg0(&self.program)
            .args(&self.args)
            .env_clear()
            .envs(&self.env)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let child = command.spawn().map_err(|source| {
            let directory_there = self.directory.as_ref().is_none_or(|d| d.is_dir());
            if source.kind() == io::ErrorKind::NotFound && directory_there {
                ProcError::NotFound { program: self.shown() }
            } else {
                ProcError::Io { program: self.shown(), source }
            }
        })?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Group { child: Some(child), pid })
    }

    fn shown(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

/// Where in `PATH` a program is. Only a program given by its path is started without a copy of our whole
/// process's page tables (`posix_spawn` looks names up in the wrong environment, so the standard library
/// forks for them).
fn located(program: &OsStr) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = !program.as_encoded_bytes().contains(&b'/');
    let mut places = std::env::split_paths(&path).filter(|directory| named && directory.is_absolute());
    let found = places.find_map(|directory| Some(directory.join(program)).filter(|file| is_program(file)));
    found.unwrap_or_else(|| program.into())
}

fn is_program(file: &Path) -> bool {
    let executable = |found: std::fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    file.metadata().is_ok_and(executable)
}

/// Why we ended a child ourselves.
enum Ended {
    TimedOut,
    Cancelled,
    TooLong,
    Io(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A running child and everything in its process group. The group's number stays ours for as long
/// as the child is not waited for, so a signal can't hit a stranger.
struct Group {
    /// Taken once the child was waited for.
    child: Option<Child>,
    pid: Option<Pid>,
}

type Streams = (std::process::ExitStatus, Vec<u8>, Vec<u8>);

impl Group {
    /// Feeds standard input while reading both outputs, until the child has ended.
    async fn drive(
        &mut self,
        stdin: Vec<u8>,
        output_limit: usize,
        line: impl FnMut(&[u8]) + Send,
    ) -> Result<Streams, Ended> {
        let pid = self.pid;
        let child = self.child.as_mut().expect("driven once");
        let (input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async move {
            if let Some(mut input) = input {
                // A child that exits without reading everything is no error: its status tells.
                let _ = input.write_all(&stdin).await;
                let _ = input.shutdown().await;
            }
            Ok::<_, Ended>(())
        };
        let exit = async {
            let status = child.wait().await?;
            // Whatever it left running in its group holds our pipes open and is ended with it.
            signal(pid, Signal::KILL);
            Ok::<_, Ended>(status)
        };
        let read = read_all(out, output_limit, line);
        let (status, (), stdout, stderr) = tokio::try_join!(exit, feed, read, read_tail(err))?;
        self.child = None;
        Ok((status, stdout, stderr))
    }

    /// SIGTERM to the whole group, a short delay, SIGKILL, and the child's status collected.
    async fn end(&mut self) {
        if let Some(child) = self.child.take() {
            end(child, self.pid).await;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        // A dropped call can't wait; a task does, so that the group has its moment to end well.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                let pid = self.pid;
                runtime.spawn(end(child, pid));
            }
            Err(_) => signal(self.pid, Signal::KILL),
        }
    }
}

async fn end(mut child: Child, pid: Option<Pid>) {
    signal(pid, Signal::TERM);
    // Not `child.wait()` first: it would free the group's number while members may be alive.
    let deadline = Instant::now() + limits::CHILD_KILL_DELAY;
    while Instant::now() < deadline && group_alive(pid) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // A zombie counts as alive, so the leader is collected as soon as it has ended.
        if matches!(child.try_wait(), Ok(Some(_))) {
            break;
        }
    }
    signal(pid, Signal::KILL);
    let _ = child.wait().await;
}

fn group_alive(pid: Option<Pid>) -> bool {
    pid.is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok())
}

fn signal(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // Fails only when the group is gone, which is what is wanted.
        let _ = kill_process_group(pid, signal);
    }
}

async fn read_all(
    stream: Option<impl AsyncRead + Unpin>,
    limit: usize,
    mut line: impl FnMut(&[u8]),
) -> Result<Vec<u8>, Ended> {
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    let mut line_start = 0;
    loop {
        let seen = all.len();
        if stream.read_buf(&mut all).await? == 0 {
            break;
        }
        if all.len() > limit {
            return Err(Ended::TooLong);
        }
        for at in seen..all.len() {
            if all[at] == b'\n' {
                line(&all[line_start..at]);
                line_start = at + 1;
            }
        }
    }
    if line_start < all.len() {
        line(&all[line_start..]);
    }
    Ok(all)
}

async fn read_tail(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Ended> {
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let mut tail = Vec::new();
    while stream.read_buf(&mut tail).await? != 0 {
        if tail.len() > 2 * limits::CHILD_ERROR_BYTES {
            tail.drain(..tail.len() - limits::CHILD_ERROR_BYTES);
        }
    }
    let extra = tail.len().saturating_sub(limits::CHILD_ERROR_BYTES);
    tail.drain(..extra);
    Ok(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command::new("sh").args(["-c", script])
    }

    /// Is the process there and not merely waiting to be collected?
    fn alive(pid: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
    }

    async fn gone(pid: &str) -> bool {
        for _ in 0..200 {
            if !alive(pid) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    #[tokio::test]
    async fn only_the_environment_given_arrives() {
        let output = Command::new("env").env("GIVEN", "1").run(&CancellationToken::new()).await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<_> = text.lines().filter_map(|l| l.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["GIVEN", "PATH"]);
        assert!(std::env::vars().count() > 2, "our own environment has more to leak");
    }

    #[tokio::test]
    async fn large_input_and_output_do_not_block_each_other() {
        let input = vec![b'x'; 8 * 1024 * 1024];
        let output = Command::new("cat").stdin(input.clone()).run(&CancellationToken::new()).await.unwrap();
        assert!(output.success());
        assert_eq!(output.stdout, input);
    }

    #[tokio::test]
    async fn a_child_that_reads_nothing_is_judged_by_its_status() {
        let output = shell("echo why >&2; exit 3")
            .stdin(vec![b'x'; 1024 * 1024])
            .run(&CancellationToken::new())
            .await
            .unwrap();
        assert_eq!(output.status, Some(3));
        assert_eq!(output.stderr_text(), "why");
    }

    #[tokio::test]
    async fn a_timeout_ends_grandchildren_too() {
        let mut pids = Vec::new();
        let error = shell("sleep 300 & echo $!; wait")
            .timeout(Duration::from_millis(400))
            .run_lines(&CancellationToken::new(), |line| pids.push(String::from_utf8(line.to_vec()).unwrap()))
            .await
            .unwrap_err();
        assert!(matches!(error, ProcError::TimedOut { elapsed } if elapsed >= Duration::from_millis(400)));
        assert!(gone(&pids[0]).await);
    }

    #[tokio::test]
    async fn one_that_ignores_sigterm_is_killed() {
        let mut pids = Vec::new();
        let error = shell("trap '' TERM; (trap '' TERM; sleep 300) & echo $!; wait; wait")
            .timeout(Duration::from_millis(300))
            .run_lines(&CancellationToken::new(), |line| pids.push(String::from_utf8(line.to_vec()).unwrap()))
            .await
            .unwrap_err();
        assert!(matches!(error, ProcError::TimedOut { .. }));
        assert!(gone(&pids[0]).await);
    }

    #[tokio::test]
    async fn cancelling_and_dropping_end_the_group() {
        let cancel = CancellationToken::new();
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
        let lines = move |line: &[u8]| drop(send.send(String::from_utf8(line.to_vec()).unwrap()));
        let waiting = tokio::spawn({
            let (cancel, lines) = (cancel.clone(), lines.clone());
            async move { shell("sleep 300 & echo $!; wait").run_lines(&cancel, lines).await }
        });
        let pid = receive.recv().await.unwrap();
        cancel.cancel();
        assert!(matches!(waiting.await.unwrap(), Err(ProcError::Cancelled)));
        assert!(gone(&pid).await);

        let dropped = tokio::spawn(async move {
            shell("sleep 300 & echo $!; wait").run_lines(&CancellationToken::new(), lines).await
        });
        let pid = receive.recv().await.unwrap();
        dropped.abort();
        assert!(gone(&pid).await);
    }

    #[tokio::test]
    async fn what_stays_in_the_background_does_not_hold_us() {
        let output = shell("sleep 300 & echo $!").run(&CancellationToken::new()).await.unwrap();
        assert!(output.elapsed < Duration::from_secs(20));
        assert!(gone(String::from_utf8(output.stdout).unwrap().trim()).await);
    }

    #[tokio::test]
    async fn endless_output_and_missing_programs_are_named() {
        let error =
            Command::new("yes").output_limit(100_000).run(&CancellationToken::new()).await.unwrap_err();
        assert!(matches!(error, ProcError::OutputTooLong { limit: 100_000 }));
        let error = Command::new("no-such-program-here").run(&CancellationToken::new()).await.unwrap_err();
        assert!(matches!(&error, ProcError::NotFound { program } if program == "no-such-program-here"));
        let error = Command::new("true")
            .current_dir("/no/such/place")
            .run(&CancellationToken::new())
            .await
            .unwrap_err();
        assert!(matches!(error, ProcError::Io { .. }));
    }
}
