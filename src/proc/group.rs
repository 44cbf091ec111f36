//! A running child and all that comes of it, until the last of them has ended.

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

/// How often the memory of a child and its descendants is added up. A look reads all of `/proc`, which takes a
/// millisecond or two; two seconds after one has outgrown its limit it must be gone.
const CHILD_MEMORY_LOOK: Duration = Duration::from_millis(250);

/// Looks for descendants of a child after SIGKILL, at first a millisecond apart and then 20, before they are given up: most
/// end at once, on a busy machine some seconds later, and one that hangs in the kernel ends when that lets it.
const CHILD_KILL_LOOKS: u32 = 500;
const MOST_BETWEEN: Duration = Duration::from_millis(20);

/// Why we ended a child ourselves.
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

/// A running child, ended with all its own when dropped.
pub(super) struct ChildGroup {
    /// Taken once the child was waited for.
    running: Option<RunningChild>,
    tree: ProcessTree,
}

/// The process group's number stays ours for as long as the child is not waited for, so a signal to it can't hit a
/// stranger.
struct RunningChild {
    child: Child,
    pid: Option<Pid>,
    tree: ProcessTree,
    /// Kept until none of them is left.
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

    /// Feeds standard input while both outputs are read, until the child has ended. With `thorough`, also what it left
    /// outside its group is looked for and ended.
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
                // A child that exits without reading everything is no error: its status tells.
                let _ = input.write_all(&stdin).await;
                let _ = input.shutdown().await;
            }
            Ok::<_, KillReason>(())
        };
        let exit = async {
            let status = child.wait().await?;
            // Whatever it left running holds our pipes open and is ended with it.
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

    /// Returns once the child and its own use more memory than that together, or are more than so many; never without a limit.
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

    /// Ends all of them; see [`end_child`]. `at_once`: without asking.
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
        // A dropped call can't wait; a task does, so that the group has its moment to end well.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(end_child(running))),
            Err(_) => signal_group(running.pid, Signal::KILL),
        }
    }
}

/// SIGTERM to all of them, the time they have, SIGKILL, and the child's status collected.
async fn end_child(mut running: RunningChild) {
    let (pid, delay) = (running.pid, running.kill_delay);
    // Looked for while the child is still there: once it has ended its children have another parent.
    let known = running.tree.members(BTreeSet::new()).await;
    if !delay.is_zero() {
        signal_group(pid, Signal::TERM);
        signal_each(&known, Signal::TERM);
    }
    // Not `child.wait()` first: it would free the group's number while members may be alive.
    let deadline = Instant::now() + delay;
    while Instant::now() < deadline && is_group_alive(pid) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // A zombie counts as alive, so the leader is collected as soon as it has ended.
        if matches!(running.child.try_wait(), Ok(Some(_))) {
            break;
        }
    }
    signal_group(pid, Signal::KILL);
    kill_all(&running.tree, known).await;
    let _ = running.child.wait().await;
    drop(running.record);
}

/// SIGKILL until nobody is left: between a look and the signal one may have had another child.
pub(super) async fn kill_all(tree: &ProcessTree, mut known: BTreeSet<super::processes::ProcessIdentity>) {
    for look in 0..CHILD_KILL_LOOKS {
        known = tree.members(known).await;
        if known.is_empty() {
            return;
        }
        signal_each(&known, Signal::KILL);
        tokio::time::sleep(MOST_BETWEEN.min(Duration::from_millis(1 << look.min(5)))).await;
    }
    tracing::warn!(left = known.len(), "processes of a child outlived SIGKILL");
}

fn is_group_alive(pid: Option<Pid>) -> bool {
    pid.is_some_and(|pid| rustix::process::test_kill_process_group(pid).is_ok())
}

fn signal_group(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // Fails only when the group is gone, which is what is wanted.
        let _ = kill_process_group(pid, signal);
    }
}
