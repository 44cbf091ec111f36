//! Ends children that outlived a crashed server. Each running child is identified by a record file, and the next server
//! ends the children that are still running. A process that merely reuses a child's PID is not ended.

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

/// Record file of one child. The file is removed on drop.
pub(super) struct ChildRecord {
    path: PathBuf,
    written: ChildRecordFile,
}

#[derive(Serialize, Deserialize)]
struct ChildRecordFile {
    /// PID of the child; `None` until the child has started. Until then, only the marker identifies it.
    pid: Option<i32>,
    started: Option<u64>,
    /// Id of the current boot. It is needed because start times of processes are relative to the boot.
    boot: String,
    mark: String,
    /// The child's exclusive user, if it has one.
    #[serde(default)]
    user: Option<u32>,
    program: String,
    /// Directory to remove once the child has ended.
    scratch: Option<PathBuf>,
}

impl ChildRecord {
    /// Writes the record before the child starts, so that no child is ever without a record. Returns `None` on systems
    /// without a boot id, because processes cannot be identified there.
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

    pub(super) fn identify(&mut self, leader: ProcessIdentity) -> io::Result<()> {
        (self.written.pid, self.written.started) = (Some(leader.pid), Some(leader.started));
        self.write()
    }

    /// Writes the record by replacing the file atomically, so that a crash never leaves an incomplete file.
    fn write(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        fs::write(&new, serde_json::to_vec(&self.written)?)?;
        fs::rename(&new, &self.path)
    }
}

impl Drop for ChildRecord {
    fn drop(&mut self) {
        // A record that stays names a process that is gone; the next start removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Ends processes that an earlier server left running, according to the records in `directory`. Returns the number of
/// ended processes. Must run before this server starts any child.
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
    // In parallel, since each may take its time to end.
    let ended = join_all(paths.iter().map(|path| end_orphan(path, boot.as_deref()))).await;
    ended.into_iter().sum()
}

async fn end_orphan(path: &Path, boot: Option<&str>) -> io::Result<usize> {
    let mut ended = 0;
    // A truncated record identifies no process.
    if let Ok(written) = serde_json::from_slice::<ChildRecordFile>(&fs::read(path)?) {
        if Some(written.boot.as_str()) == boot {
            let leader =
                written.pid.zip(written.started).map(|(pid, started)| ProcessIdentity { pid, started });
            ended = end_tree(&ProcessTree { leader, mark: written.mark, user: written.user }).await;
        }
        if ended > 0 {
            tracing::warn!(program = %written.program, pid = written.pid, processes = ended, "ended a process that a crashed server left running");
        }
        if let Some(scratch) = written.scratch
            && let Err(error) = remove_all(&scratch)
        {
            tracing::warn!(directory = %scratch.display(), %error, "could not remove the directory of a crashed server's process");
        }
    }
    fs::remove_file(path)?;
    Ok(ended)
}

/// Removes a directory into which untrusted code wrote. The code may have removed permissions, or nested directories
/// more deeply than a path can name.
///
/// # Errors
/// If the directory still exists.
pub fn remove_all(directory: &Path) -> io::Result<()> {
    let run = |program: &str, flag: &str| {
        let mut command = std::process::Command::new(program);
        command.arg(flag).args((program == "chmod").then_some("u+rwX")).arg("--").arg(directory);
        // Another waiter may collect our child's status first, so check the directory instead.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        matches!(directory.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
    };
    let gone = run("rm", "-rf") || run("chmod", "-R") || run("rm", "-rf");
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
