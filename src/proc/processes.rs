//! Finds processes and their relations in `/proc`. On systems without `/proc`, no processes are found, and only the
//! process group of a child is known.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Name of the environment variable that marks every child. Its descendants inherit the variable even if they change
/// their session, group or parent.
pub(super) const MARK: &str = "COUNTERSIGN_CHILD";

/// Identity of a process. A PID alone may be reused; a PID together with the process's start time is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessIdentity {
    pub(super) pid: i32,
    /// Start time of the process in clock ticks since boot.
    pub(super) started: u64,
}

impl ProcessIdentity {
    pub(super) fn read(pid: i32) -> Option<Self> {
        ProcessStat::read(pid).map(|process| process.identity)
    }
}

/// Children that this module started and whose status has not been collected yet, by PID.
static STARTED: Mutex<BTreeMap<i32, ProcessTree>> = Mutex::new(BTreeMap::new());

/// Children that this process already had when [`adopt_orphans`] was called.
static EARLIER: OnceLock<BTreeSet<ProcessIdentity>> = OnceLock::new();

fn started_children() -> MutexGuard<'static, BTreeMap<i32, ProcessTree>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// Registration of a running child. It must be kept until the child's status is collected, because the PID may be
/// reused after that.
pub(super) struct StartedChild(i32);

impl StartedChild {
    /// Spawns and registers a child under one lock, so that no scan sees it unregistered.
    pub(super) fn spawn_registered(
        tree: &ProcessTree,
        spawn: impl FnOnce() -> io::Result<tokio::process::Child>,
    ) -> io::Result<(tokio::process::Child, Option<Self>)> {
        let mut all = started_children();
        let child = spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        all.extend(pid.map(|pid| (pid, tree.clone())));
        Ok((child, pid.map(Self)))
    }
}

impl Drop for StartedChild {
    fn drop(&mut self) {
        started_children().remove(&self.0);
    }
}

/// Makes this process adopt descendants that lose their parent, so that daemons cannot outlive their call and escape
/// its limits. Adopted processes that belong to no running call are killed. May be used only if all children are
/// started in this module. The status of other children would be collected here, so that their owner's wait would fail.
#[cfg(target_os = "linux")]
pub fn adopt_orphans() -> io::Result<()> {
    let children = ProcessStat::all().into_iter().filter(|process| process.parent == own_pid());
    EARLIER.get_or_init(|| children.map(|process| process.identity).collect());
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

#[cfg(not(target_os = "linux"))]
pub fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Returns the adopted processes that are confined but belong to no running call by marker or user. Only descendants of
/// a call are ever confined. Also collects adopted processes that have ended.
fn adopted_strays(processes: &[ProcessStat]) -> BTreeSet<ProcessIdentity> {
    let Some(earlier) = EARLIER.get() else { return BTreeSet::new() };
    let started = started_children();
    let adopted = processes.iter().filter(|process| {
        let ProcessIdentity { pid, .. } = process.identity;
        process.parent == own_pid() && !started.contains_key(&pid) && !earlier.contains(&process.identity)
    });
    let (ended, alive): (Vec<_>, Vec<_>) = adopted.partition(|process| process.ended);
    for pid in ended.iter().filter_map(|process| Pid::from_raw(process.identity.pid)) {
        // Fails only if it was collected meanwhile.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
    let stray = |process: &&&ProcessStat| {
        process.is_confined()
            && !started.values().any(|tree| process.has_mark(&tree.mark) || tree.owns(process))
    };
    alive.iter().filter(stray).map(|process| process.identity).collect()
}

struct ProcessStat {
    identity: ProcessIdentity,
    parent: i32,
    group: i32,
    /// Whether the process has ended and is a zombie.
    ended: bool,
    /// Number of resident pages, including shared ones.
    pages: u64,
}

impl ProcessStat {
    fn all() -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(Self::read).collect()
    }

    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program name is in parentheses and may itself contain parentheses.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<_> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            identity: ProcessIdentity { pid, started: number(19)? },
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            ended: matches!(*fields.first()?, "Z" | "X"),
            pages: number(21)?,
        })
    }

    fn resident_bytes(&self) -> u64 {
        self.pages.saturating_mul(rustix::param::page_size() as u64)
    }

    /// Returns the memory of the process in bytes, including swap and its proportional share of shared pages; `None` if
    /// access is denied.
    fn proportional_bytes(&self) -> Option<u64> {
        let all = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.identity.pid)).ok()?;
        let kib = |name: &str| {
            let value = all.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        Some((kib("Pss:")? + kib("SwapPss:").unwrap_or(0)) * 1024)
    }

    /// Whether the process has the flag `NoNewPrivs`. Landlock requires this flag, and a process cannot remove it.
    fn is_confined(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.identity.pid)).unwrap_or_default();
        status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]))
    }

    /// Returns the user id of the process. The owner of `/proc/PID` cannot be used, because it is root if the process
    /// hides its memory.
    fn user(&self) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.identity.pid)).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
    }

    fn has_mark(&self, mark: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.identity.pid)).unwrap_or_default();
        let wanted = format!("{MARK}={mark}");
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    }
}

/// A child together with its descendants.
#[derive(Debug, Clone)]
pub(super) struct ProcessTree {
    /// Identity of the child itself; `None` until it has started.
    pub(super) leader: Option<ProcessIdentity>,
    pub(super) mark: String,
    /// Exclusive user of the child. Every process of this user belongs to the tree.
    pub(super) user: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessUsage {
    pub(super) bytes: u64,
    pub(super) members: u64,
}

impl ProcessTree {
    /// Measures the memory and the number of processes of the tree, and kills adopted processes that belong to no
    /// running call. At first, shared pages are counted in full for each process. If the sum exceeds `enough`, they are
    /// counted proportionally, which takes longer.
    pub(super) async fn measure_usage(&self, enough: u64) -> ProcessUsage {
        let members = self.clone().spawn_lookup(move |tree| {
            let processes = ProcessStat::all();
            let strays = adopted_strays(&processes);
            if !strays.is_empty() {
                tracing::warn!(processes = strays.len(), "ended processes that outlived their call");
                signal_each(&strays, Signal::KILL);
            }
            let members = tree.descendants(&processes, |p| p.parent == own_pid() && p.has_mark(&tree.mark));
            let all = || processes.iter().filter(|process| members.contains(&process.identity));
            let mut bytes = all().map(ProcessStat::resident_bytes).sum();
            if bytes > enough {
                bytes = all()
                    .map(|process| process.proportional_bytes().unwrap_or(process.resident_bytes()))
                    .sum();
            }
            ProcessUsage { bytes, members: members.len() as u64 }
        });
        members.await.unwrap_or_default()
    }

    /// Returns all living processes of the tree: those in the child's group, those with the marker, adopted processes
    /// that belong to no running call, and the descendants of all these. `known` are members found earlier, which may
    /// have lost their parent in the meantime.
    pub(super) async fn members(&self, known: BTreeSet<ProcessIdentity>) -> BTreeSet<ProcessIdentity> {
        let found = self.clone().spawn_lookup(move |tree| {
            let processes = ProcessStat::all();
            let known = &known | &adopted_strays(&processes);
            tree.descendants(&processes, |process| {
                known.contains(&process.identity) || process.has_mark(&tree.mark)
            })
        });
        found.await.unwrap_or_default()
    }

    /// Runs `look`, which reads `/proc`, on a blocking thread, because it takes milliseconds on a busy machine.
    async fn spawn_lookup<T: Send + 'static>(
        self,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        tokio::task::spawn_blocking(move || look(&self)).await.ok()
    }

    /// Whether the process runs as the child's exclusive user.
    fn owns(&self, process: &ProcessStat) -> bool {
        self.user.is_some_and(|user| process.user() == Some(user))
    }

    fn descendants(
        &self,
        processes: &[ProcessStat],
        belongs: impl Fn(&ProcessStat) -> bool,
    ) -> BTreeSet<ProcessIdentity> {
        let leader = self.leader.filter(|leader| processes.iter().any(|p| p.identity == *leader));
        let in_group = |process: &ProcessStat| leader.is_some_and(|leader| process.group == leader.pid);
        let mut members: BTreeSet<i32> = processes
            .iter()
            .filter(|process| {
                in_group(process)
                    || Some(process.identity) == leader
                    || belongs(process)
                    || self.owns(process)
            })
            .map(|process| process.identity.pid)
            .collect();
        loop {
            let children = processes.iter().filter(|process| members.contains(&process.parent));
            let with_children = members.iter().copied().chain(children.map(|process| process.identity.pid));
            let grown: BTreeSet<_> = with_children.collect();
            if grown.len() == members.len() {
                break;
            }
            members = grown;
        }
        let alive = processes.iter().filter(|p| !p.ended && p.identity.pid != own_pid());
        alive.filter(|p| members.contains(&p.identity.pid)).map(|p| p.identity).collect()
    }
}

/// Sends the signal to those processes whose PID still belongs to the same process.
pub(super) fn signal_each(members: &BTreeSet<ProcessIdentity>, signal: Signal) {
    for member in members {
        if ProcessIdentity::read(member.pid) == Some(*member)
            && let Some(pid) = Pid::from_raw(member.pid)
        {
            // Fails only if it has already ended.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Returns the number of bytes that the machine can allocate without swapping; `None` if this is unknown.
pub fn memory_available() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
