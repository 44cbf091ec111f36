//! Which processes there are and how they belong together, from `/proc`. Where there is no such thing, nobody is found,
//! and a child's group is all that is known of its descendants.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Every child has it in its environment and hands it on, whatever session, group or parent its own children get
/// themselves.
pub(super) const MARK: &str = "COUNTERSIGN_CHILD";

/// A number is given to another process sooner or later, a number with the moment of its start never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessIdentity {
    pub(super) pid: i32,
    /// In ticks since the machine was started.
    pub(super) started: u64,
}

impl ProcessIdentity {
    pub(super) fn read(pid: i32) -> Option<Self> {
        ProcessStat::read(pid).map(|process| process.identity)
    }
}

/// Our own children that this room started and nobody has collected yet, by number, with the mark of each.
static STARTED: Mutex<BTreeMap<i32, String>> = Mutex::new(BTreeMap::new());

/// Our own children from before we were given those that lose their parents.
static EARLIER: OnceLock<BTreeSet<ProcessIdentity>> = OnceLock::new();

fn started_children() -> MutexGuard<'static, BTreeMap<i32, String>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// One of our children; to be kept until it was waited for, so that nobody else has its number.
pub(super) struct StartedChild(i32);

impl StartedChild {
    /// Nobody looks between its start and the note of it.
    pub(super) fn spawn_registered(
        mark: &str,
        spawn: impl FnOnce() -> io::Result<tokio::process::Child>,
    ) -> io::Result<(tokio::process::Child, Option<Self>)> {
        let mut all = started_children();
        let child = spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        all.extend(pid.map(|pid| (pid, mark.to_owned())));
        Ok((child, pid.map(Self)))
    }
}

impl Drop for StartedChild {
    fn drop(&mut self) {
        started_children().remove(&self.0);
    }
}

/// From now on whoever loses its parent and came of us is our child, and is ended as soon as no call that runs accounts for
/// it: a daemon would outlive its call and its limit. For a process that starts children here and nowhere else: others of
/// its children that end are collected, too, and whoever waits for one of them waits for nobody.
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

/// Who became our child by losing its parent, bears the mark of no call that runs, and is confined, as only what came of a
/// call is. Those that have ended are collected, for nobody else will.
fn adopted_strays(processes: &[ProcessStat]) -> BTreeSet<ProcessIdentity> {
    let Some(earlier) = EARLIER.get() else { return BTreeSet::new() };
    let started = started_children();
    let adopted = processes.iter().filter(|process| {
        let ProcessIdentity { pid, .. } = process.identity;
        process.parent == own_pid() && !started.contains_key(&pid) && !earlier.contains(&process.identity)
    });
    let (ended, alive): (Vec<_>, Vec<_>) = adopted.partition(|process| process.ended);
    for pid in ended.iter().filter_map(|process| Pid::from_raw(process.identity.pid)) {
        // Fails only when it was collected meanwhile.
        let _ = waitpid(Some(pid), WaitOptions::NOHANG);
    }
    let stray = |process: &&&ProcessStat| {
        process.is_confined() && !started.values().any(|mark| process.has_mark(mark))
    };
    alive.iter().filter(stray).map(|process| process.identity).collect()
}

struct ProcessStat {
    identity: ProcessIdentity,
    parent: i32,
    group: i32,
    /// Ended, and not yet collected by its parent.
    ended: bool,
    /// Pages in memory, those that it shares with others included.
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
        // The program's name is in brackets and may hold anything, brackets included.
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

    /// The same in bytes, but of what it shares only its part, and what is swapped out; `None` if it may not be looked at.
    fn proportional_bytes(&self) -> Option<u64> {
        let all = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.identity.pid)).ok()?;
        let kib = |name: &str| {
            let value = all.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        Some((kib("Pss:")? + kib("SwapPss:").unwrap_or(0)) * 1024)
    }

    /// Landlock wants this of a process, and none gets rid of it.
    fn is_confined(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.identity.pid)).unwrap_or_default();
        status.lines().any(|line| line.split_whitespace().eq(["NoNewPrivs:", "1"]))
    }

    /// Whose it is. Who the owner of its directory is would not tell: what hides its memory has root for one.
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

/// A child and all that came of it.
#[derive(Debug, Clone)]
pub(super) struct ProcessTree {
    /// The child itself, where its start was seen.
    pub(super) leader: Option<ProcessIdentity>,
    pub(super) mark: String,
    /// A user that nobody else is: whatever runs as it, came of the child.
    pub(super) user: Option<u32>,
}

/// What all of a tree take together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProcessUsage {
    pub(super) bytes: u64,
    pub(super) members: u64,
}

impl ProcessTree {
    /// Bytes in memory, all of it together, and how many they are. Pages that several share count for each, unless that is more
    /// than `enough`: then they are looked at more closely, which takes longer. Whoever hides from being counted, is ended.
    pub(super) async fn measure_usage(&self, enough: u64) -> ProcessUsage {
        let members = self.clone().spawn_lookup(move |tree| {
            let processes = ProcessStat::all();
            let strays = adopted_strays(&processes);
            if !strays.is_empty() {
                tracing::warn!(processes = strays.len(), "ended what had left the call that started it");
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

    /// All that are alive: of the child's group, children of one of them, or bearing the mark; and strays. `known` are members
    /// that were found before and may have lost their parent since.
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

    /// `/proc` is read in the background: it takes milliseconds on a busy machine.
    async fn spawn_lookup<T: Send + 'static>(
        self,
        look: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        tokio::task::spawn_blocking(move || look(&self)).await.ok()
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
                    || self.user.is_some_and(|user| process.user() == Some(user))
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

/// Signals whoever of them is still the one that was found.
pub(super) fn signal_each(members: &BTreeSet<ProcessIdentity>, signal: Signal) {
    for member in members {
        if ProcessIdentity::read(member.pid) == Some(*member)
            && let Some(pid) = Pid::from_raw(member.pid)
        {
            // Fails only when it has ended, which is what is wanted.
            let _ = kill_process(pid, signal);
        }
    }
}

/// Bytes that the machine could still give out without swapping; `None` where it does not say.
pub fn memory_available() -> Option<u64> {
    let all = fs::read_to_string("/proc/meminfo").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}
