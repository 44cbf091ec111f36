//! How much a run's directories have grown. The kernel limits each file; of all together somebody must keep count.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{CommandExit, SandboxLimits};
use crate::proc::memory_available;

/// Between two counts, and so many times as long as one takes: counting is not to be felt.
const LOOK: Duration = Duration::from_millis(500);
const SHARE: u32 = 10;

/// Of a file system that holds one of the directories so much stays free, or half of what was, whatever way there may be not
/// to be counted.
const RESERVE: u64 = 256 << 20;

/// The same, in files.
const RESERVE_FILES: u64 = 10_000;

#[derive(Clone, Copy, Default)]
pub(super) struct DiskUsage {
    bytes: u64,
    files: u64,
    /// Directories that can't be read: whatever is in them isn't counted.
    hidden: u64,
    /// What is left on the fullest of their file systems, and of the machine's memory.
    free: u64,
    free_files: u64,
    memory: u64,
}

/// Is hardly anything left of what there was?
fn is_nearly_full(now: u64, before: u64, reserve: u64) -> bool {
    now < reserve.min(before / 2)
}

/// What is there before the command begins.
pub(super) async fn measure_usage(places: &[PathBuf]) -> DiskUsage {
    let places = places.to_vec();
    tokio::task::spawn_blocking(move || count_usage(&places)).await.unwrap_or_default()
}

/// Returns once the directories have grown by more than the limits allow since then, or the machine has hardly any memory left:
/// there are ways to take some that is in no process's account.
pub(super) async fn wait_for_overuse(
    places: &[PathBuf],
    before: DiskUsage,
    limits: SandboxLimits,
) -> CommandExit {
    let mut hid = false;
    loop {
        let started = Instant::now();
        let now = measure_usage(places).await;
        if is_nearly_full(now.memory, before.memory, RESERVE) {
            return CommandExit::MemoryExceeded;
        }
        // For a moment tests do that. Who does it for longer is one who hides something.
        let hides = now.hidden > before.hidden;
        if (hides && hid)
            || now.bytes > before.bytes + limits.disk_bytes
            || now.files > before.files + limits.inodes
            || is_nearly_full(now.free, before.free, RESERVE)
            || is_nearly_full(now.free_files, before.free_files, RESERVE_FILES)
        {
            return CommandExit::DiskExceeded;
        }
        hid = hides;
        tokio::time::sleep(LOOK.max(started.elapsed() * SHARE)).await;
    }
}

/// Links are counted and not followed. A directory too deep to be named can't be read either.
fn count_usage(places: &[PathBuf]) -> DiskUsage {
    let systems: Vec<_> = places.iter().filter_map(|place| rustix::fs::statvfs(place).ok()).collect();
    let bytes = systems.iter().map(|system| system.f_bavail.saturating_mul(system.f_frsize));
    let mut used = DiskUsage {
        free: bytes.min().unwrap_or(u64::MAX),
        free_files: systems.iter().map(|system| system.f_favail).min().unwrap_or(u64::MAX),
        memory: memory_available().unwrap_or(u64::MAX),
        ..DiskUsage::default()
    };
    let mut open = places.to_vec();
    while let Some(directory) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
            Err(_) => {
                used.hidden += 1;
                continue;
            }
        };
        for entry in entries.flatten() {
            let found = match entry.metadata() {
                Ok(found) => found,
                Err(error) => {
                    used.hidden += u64::from(error.kind() != ErrorKind::NotFound);
                    continue;
                }
            };
            used.files += 1;
            used.bytes += found.blocks() * 512;
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    used
}
