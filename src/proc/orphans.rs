//! Children that outlive a server that crashed: while one runs, a file says who it is, and the next server ends whoever
//! of them is still there. Whoever only has such a one's number now is left alone.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    group::kill_all,
    table::{Identity, Tree, signal_each},
};
use crate::limits;

/// One child's file; removed when dropped.
pub(super) struct Record(PathBuf);

#[derive(Serialize, Deserialize)]
struct Written {
    pid: i32,
    started: u64,
    /// Starts are counted from the machine's own.
    boot: String,
    mark: String,
    program: String,
}

impl Record {
    /// `None` where processes can't be told apart anyway.
    pub(super) fn keep(directory: &Path, tree: &Tree, program: &str) -> io::Result<Option<Self>> {
        let (Some(leader), Some(boot)) = (tree.leader, boot()) else { return Ok(None) };
        let written = Written {
            pid: leader.pid,
            started: leader.started,
            boot,
            mark: tree.mark.clone(),
            program: program.to_owned(),
        };
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{}.json", tree.mark));
        fs::write(&path, serde_json::to_vec(&written)?)?;
        Ok(Some(Self(path)))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // One that stays names a process that is gone, and is removed at the next start.
        let _ = fs::remove_file(&self.0);
    }
}

/// Ends what an earlier server of ours left running by its records in `directory`, and says how many processes that
/// were. To be called before this one starts any.
pub async fn end_orphans(directory: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let boot = boot();
    let mut ended = 0;
    for entry in entries {
        let path = entry?.path();
        // One that was cut short names nobody who could be recognised.
        let written = serde_json::from_slice::<Written>(&fs::read(&path)?).ok();
        if let Some(written) = written.filter(|written| Some(&written.boot) == boot.as_ref()) {
            let leader = Some(Identity { pid: written.pid, started: written.started });
            let count = end_tree(&Tree { leader, mark: written.mark }).await;
            if count > 0 {
                tracing::warn!(program = %written.program, pid = written.pid, processes = count, "ended what a crashed server had left running");
            }
            ended += count;
        }
        fs::remove_file(&path)?;
    }
    Ok(ended)
}

async fn end_tree(tree: &Tree) -> usize {
    let mut known = tree.members(BTreeSet::new()).await;
    let count = known.len();
    signal_each(&known, Signal::TERM);
    let deadline = Instant::now() + limits::CHILD_KILL_DELAY;
    while Instant::now() < deadline && !known.is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
        known = tree.members(known).await;
    }
    kill_all(tree, known).await;
    count
}

fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}
