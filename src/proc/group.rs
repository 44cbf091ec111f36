//! Group of a running child and its descendants, which exists until all of them have ended.

use std::{collections::BTreeSet, io, process::ExitStatus, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStderr, ChildStdout},
    time::Instant,
};

use super::{
    orphans::ChildRecord,
    processes::{ProcessTree, ProcessUsage, StartedChild, signal_each},
};

/// Interval between measurements of a child's memory. Each measurement reads all of `/proc`, which takes a millisecond
/// or two. The interval must be short, because a child must be gone within two seconds of exceeding its limit.
const CHILD_MEMORY_LOOK: Duration = Duration::from_millis(250);

/// Maximum number of checks for remaining descendants after SIGKILL. After the last check, we give up. Checks are 1 ms
/// apart at first, then 20 ms. Most processes end at once, or within seconds on a busy machine, but a process stuck in
/// the kernel may take longer.
const CHILD_KILL_LOOKS: u32 = 500;
const MOST_BETWEEN: Duration = Duration::from_millis(20);

pub(super) enum KillReason {
    TimedOut,
    Cancelled,
    TooLong,
    TooLarge { used: u64 },
    TooMany { processes: u64 },
    Io(io::Error),
}

impl From<io::Error> for KillReason {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A running child. Dropping it ends the child and all its descendants.
pub(super) struct ChildGroup {
    /// The running child; `None` once its status has been collected.
    running: Option<RunningChild>,
    tree: ProcessTree,
}

/// A child whose status has not been collected yet. Until then its process group id cannot be reused, so that a signal
/// never reaches another process.
struct RunningChild {
    child: Child,
    pid: Option<Pid>,
    tree: ProcessTree,
    /// Record file of the child, kept until all its processes have ended.
    record: Option<ChildRecord>,
    kill_delay: Duration,
    _started: Option<StartedChild>,
}

impl ChildGroup {
    pub(super) fn new(
        (child, started): (Child, Option<StartedChild>),
        tree: ProcessTree,
        record: Option<ChildRecord>,
        kill_delay: Duration,
    ) -> Self {
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let running = RunningChild { child, pid, tree: tree.clone(), record, kill_delay, _started: started };
        Self { tree, running: Some(running) }
    }

    /// Writes to the child's stdin and reads both of its outputs until the child has ended. If `thorough` is true, also
    /// ends descendants that left the child's process group.
    pub(super) async fn drive<T>(
        &mut self,
        stdin: Vec<u8>,
        thorough: bool,
        read: impl AsyncFnOnce(Option<ChildStdout>, Option<ChildStderr>) -> Result<T, KillReason>,
    ) -> Result<(ExitStatus, T), KillReason> {
        let RunningChild { child, pid, tree, .. } = self.running.as_mut().expect("driven once");
        let (input, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async move {
            if let Some(mut input) = input {
                // A child may exit without reading all its input; its status tells whether that is an error.
                let _ = input.write_all(&stdin).await;
                let _ = input.shutdown().await;
            }
            Ok::<_, KillReason>(())
        };
        let exit = async {
            let status = child.wait().await?;
            // Remaining processes hold our pipes open, so end them.
            signal_group(*pid, Signal::KILL);
            if thorough {
                kill_all(tree, BTreeSet::new()).await;
            }
            Ok::<_, KillReason>(status)
        };
        let (status, (), read) = tokio::try_join!(exit, feed, read(out, err))?;
        self.running = None;
        Ok((status, read))
    }

    /// Waits until the child and its descendants together exceed a limit. Waits forever if neither limit is set.
    pub(super) fn wait_for_overuse(
        &self,
        memory: Option<u64>,
        processes: Option<u64>,
    ) -> impl Future<Output = KillReason> + use<> {
        let tree = self.tree.clone();
        async move {
            if memory.is_none() && processes.is_none() {
                return std::future::pending().await;
            }
            loop {
                tokio::time::sleep(CHILD_MEMORY_LOOK).await;
                let ProcessUsage { bytes, members } = tree.measure_usage(memory.unwrap_or(u64::MAX)).await;
                if memory.is_some_and(|limit| bytes > limit) {
                    return KillReason::TooLarge { used: bytes };
                }
                if processes.is_some_and(|limit| members > limit) {
                    return KillReason::TooMany { processes: members };
                }
            }
        }
    }

    /// Ends the child and all its descendants; see [`end_child`]. If `at_once` is true, SIGTERM is skipped.
    pub(super) async fn end(&mut self, at_once: bool) {
        if let Some(mut running) = self.running.take() {
            if at_once {
                running.kill_delay = Duration::ZERO;
            }
            end_child(running).await;
        }
    }
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        // `drop` can't wait, so a task ends the group and gives it time to exit.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(end_child(running))),
            Err(_) => signal_group(running.pid, Signal::KILL),
        }
    }
}

/// Sends SIGTERM to the child and its descendants, waits for up to the kill delay, sends SIGKILL, and collects the
/// child's status.
async fn end_child(mut running: RunningChild) {
    let (pid, delay) = (running.pid, running.kill_delay);
    // List members now: once the child has ended, its children get another parent.
    let known = running.tree.members(BTreeSet::new()).await;
    if !delay.is_zero() {
        signal_group(pid, Signal::TERM);
        signal_each(&known, Signal::TERM);
    }
    // Don't `child.wait()` first: it would free the group id while members may be alive.
    let deadline = Instant::now() + delay;
    while Instant::now() < deadline && is_group_alive(pid) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // A zombie counts as alive, so collect the leader as soon as it has ended.
        if matches!(running.child.try_wait(), Ok(Some(_))) {
            break;
        }
    }
    signal_group(pid, Signal::KILL);
    kill_all(&running.tree, known).await;
    let _ = running.child.wait().await;
    drop(running.record);
}

/// Sends SIGKILL repeatedly until all processes have ended. Once is not enough, because a process may fork after the
/// processes were listed and before the signal arrives.
pub(super) async fn kill_all(tree: &ProcessTree, mut known: BTreeSet<super::processes::ProcessIdentity>) {
    for look in 0..CHILD_KILL_LOOKS {
        known = tree.members(known).await;
        if known.is_empty() {
            return;
        }
        signal_each(&known, Signal::KILL);
        tokio::time::sleep(MOST_BETWEEN.min(Duration::from_millis(1 << look.min(5)))).await;
    }
    tracing::warn!(left = known.len(), "some processes of a child survived SIGKILL");
}

fn is_group_alive(pid: Option<Pid>) -> bool {
    pid.is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok())
}

fn signal_group(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // Fails only if the group is already gone.
        let _ = kill_process_group(pid, signal);
    }
}
