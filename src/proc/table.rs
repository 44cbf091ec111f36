//! Which processes there are and how they belong together, from `/proc`. Where there is no such thing, nobody is found,
//! and a child's group is all that is known of its descendants.

use std::{collections::BTreeSet, fs};

use rustix::process::{Pid, Signal, kill_process};

/// Every child has it in its environment and hands it on, whatever session, group or parent its own children get
/// themselves.
pub(super) const MARK: &str = "COUNTERSIGN_CHILD";

/// A number is given to another process sooner or later, a number with the moment of its start never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) pid: i32,
    /// In ticks since the machine was started.
    pub(super) started: u64,
}

impl Identity {
    pub(super) fn of(pid: i32) -> Option<Self> {
        Process::read(pid).map(|process| process.identity)
    }
}

struct Process {
    identity: Identity,
    parent: i32,
    group: i32,
    /// Ended, and not yet collected by its parent.
    ended: bool,
    /// Pages in memory, those that it shares with others included.
    pages: u64,
}

impl Process {
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
            identity: Identity { pid, started: number(19)? },
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            ended: matches!(*fields.first()?, "Z" | "X"),
            pages: number(21)?,
        })
    }

    fn bears(&self, mark: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.identity.pid)).unwrap_or_default();
        let wanted = format!("{MARK}={mark}");
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    }
}

/// A child and all that came of it.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    /// The child itself, where its start was seen.
    pub(super) leader: Option<Identity>,
    pub(super) mark: String,
}

impl Tree {
    /// Bytes in memory, all of it together. Pages that two of them share count twice.
    pub(super) async fn memory(&self) -> u64 {
        let members = self.clone().looked_up(|tree| {
            let processes = Process::all();
            let members = tree.closed(&processes, |_| false);
            processes.iter().filter(|p| members.contains(&p.identity)).map(|p| p.pages).sum::<u64>()
        });
        members.await.unwrap_or(0).saturating_mul(rustix::param::page_size() as u64)
    }

    /// All that are alive: of the child's group, children of one of them, or bearing the mark. `known` are members that
    /// were found before and may have lost their parent since.
    pub(super) async fn members(&self, known: BTreeSet<Identity>) -> BTreeSet<Identity> {
        let found = self.clone().looked_up(move |tree| {
            let processes = Process::all();
            tree.closed(&processes, |process| known.contains(&process.identity) || process.bears(&tree.mark))
        });
        found.await.unwrap_or_default()
    }

    /// `/proc` is read in the background: it takes milliseconds on a busy machine.
    async fn looked_up<T: Send + 'static>(self, look: impl FnOnce(&Self) -> T + Send + 'static) -> Option<T> {
        tokio::task::spawn_blocking(move || look(&self)).await.ok()
    }

    fn closed(&self, processes: &[Process], belongs: impl Fn(&Process) -> bool) -> BTreeSet<Identity> {
        let leader = self.leader.filter(|leader| processes.iter().any(|p| p.identity == *leader));
        let in_group = |process: &Process| leader.is_some_and(|leader| process.group == leader.pid);
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let mut members: BTreeSet<i32> = processes
            .iter()
            .filter(|process| in_group(process) || Some(process.identity) == leader || belongs(process))
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
        let alive = processes.iter().filter(|p| !p.ended && p.identity.pid != own);
        alive.filter(|p| members.contains(&p.identity.pid)).map(|p| p.identity).collect()
    }
}

/// Signals whoever of them is still the one that was found.
pub(super) fn signal_each(members: &BTreeSet<Identity>, signal: Signal) {
    for member in members {
        if Identity::of(member.pid) == Some(*member)
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
