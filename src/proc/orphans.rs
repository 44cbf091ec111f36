//! Children that outlive a server that crashed: while one runs, a file says who it is, and the next server ends whoever
//! of them is still there. Whoever only has such a one's number now is left alone.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use futures_util::future::join_all;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    group::kill_all,
    processes::{ProcessIdentity, ProcessTree, signal_each},
};
use crate::limits;

/// One child's file; removed when dropped.
pub(super) struct ChildRecord {
    path: PathBuf,
    written: ChildRecordFile,
}

#[derive(Serialize, Deserialize)]
struct ChildRecordFile {
    /// Who it is, once it was started; until then only by its mark.
    pid: Option<i32>,
    started: Option<u64>,
    /// Starts are counted from the machine's own.
    boot: String,
    mark: String,
    /// One that nobody else is, where it had such a one.
    #[serde(default)]
    user: Option<u32>,
    program: String,
    /// What is removed when it has ended, by whoever ends it.
    scratch: Option<PathBuf>,
}

impl ChildRecord {
    /// Before the child is started, so that none is ever without one. `None` where processes can't be told apart anyway.
    pub(super) fn create(
        directory: &Path,
        ProcessTree { mark, user, .. }: &ProcessTree,
        program: String,
        scratch: Option<PathBuf>,
    ) -> io::Result<Option<Self>> {
        let Some(boot) = boot_id() else { return Ok(None) };
        let (mark, user) = (mark.clone(), *user);
        let path = directory.join(format!("{mark}.json"));
        let written = ChildRecordFile { pid: None, started: None, boot, mark, user, program, scratch };
        fs::create_dir_all(directory)?;
        let record = Self { path, written };
        record.write()?;
        Ok(Some(record))
    }

    /// The child is there, and that is who it is.
    pub(super) fn identify(&mut self, leader: ProcessIdentity) -> io::Result<()> {
        (self.written.pid, self.written.started) = (Some(leader.pid), Some(leader.started));
        self.write()
    }

    /// Whole or not at all, whenever we are killed.
    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        fs::write(&new, serde_json::to_vec(&self.written)?)?;
        fs::rename(&new, &self.path)
    }
}

impl Drop for ChildRecord {
    fn drop(&mut self) {
        // One that stays names a process that is gone, and is removed at the next start.
        let _ = fs::remove_file(&self.path);
    }
}

/// Ends what an earlier server of ours left running by its records in `directory`, and says how many processes that
/// were. To be called before this one starts any.
pub async fn end_orphans(directory: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let boot = boot_id();
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    // Side by side: each may take its time to end.
    let ended = join_all(paths.iter().map(|path| end_orphan(path, boot.as_deref()))).await;
    ended.into_iter().sum()
}

async fn end_orphan(path: &Path, boot: Option<&str>) -> io::Result<usize> {
    let mut ended = 0;
    // One that was cut short names nobody who could be recognised.
    if let Ok(written) = serde_json::from_slice::<ChildRecordFile>(&fs::read(path)?) {
        if Some(written.boot.as_str()) == boot {
            let leader =
                written.pid.zip(written.started).map(|(pid, started)| ProcessIdentity { pid, started });
            ended = end_tree(&ProcessTree { leader, mark: written.mark, user: written.user }).await;
        }
        if ended > 0 {
            tracing::warn!(program = %written.program, pid = written.pid, processes = ended, "ended what a crashed server had left running");
        }
        if let Some(scratch) = written.scratch
            && let Err(error) = remove_all(&scratch)
        {
            tracing::warn!(directory = %scratch.display(), %error, "what a crashed server had left could not be removed");
        }
    }
    fs::remove_file(path)?;
    Ok(ended)
}

/// Removes a directory in which code of anybody wrote: it may have taken rights away, and gone deeper than a path may be long.
///
/// # Errors
///
/// When it is still there.
pub fn remove_all(directory: &Path) -> io::Result<()> {
    let done = |program: &str, what: &str| {
        let mut command = std::process::Command::new(program);
        command.arg(what).args((program == "chmod").then_some("u+rwX")).arg("--").arg(directory);
        // Whoever else collects children of ours may be first to hear how it ended; so the directory is looked for.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        matches!(directory.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
    };
    let gone = done("rm", "-rf") || done("chmod", "-R") || done("rm", "-rf");
    if gone { Ok(()) } else { Err(io::Error::other(format!("{} can't be removed", directory.display()))) }
}

async fn end_tree(tree: &ProcessTree) -> usize {
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

fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}
