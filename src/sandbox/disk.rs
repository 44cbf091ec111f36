//! Disk usage of a run's directories. It must be measured because the kernel limits the size of each file, but not the
//! total size.

use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{CommandExit, SandboxLimits};
use crate::proc::memory_available;

/// Minimum pause between two measurements. To limit the load, the pause is also at least `SHARE` times the duration of
/// the last measurement.
const LOOK: Duration = Duration::from_millis(500);
const SHARE: u32 = 10;

/// Minimum free bytes on each file system of the run's directories. If half of the bytes that were free before the run
/// is less, that half is the minimum. This limit catches usage that the measurement misses.
const RESERVE: u64 = 256 << 20;

/// Minimum free inodes on each file system. If half of the inodes that were free before the run is less, that half is
/// the minimum.
const RESERVE_FILES: u64 = 10_000;

#[derive(Clone, Copy, Default)]
pub(super) struct DiskUsage {
    bytes: u64,
    files: u64,
    /// Number of unreadable directories. Their contents are not measured.
    hidden: u64,
    /// Free bytes on the file system with the fewest free bytes. `free_files` is the same for inodes, and `memory` is
    /// the available memory of the machine.
    free: u64,
    free_files: u64,
    memory: u64,
}

/// Returns whether `now` is below the minimum, which is the smaller of `reserve` and half of `before`.
fn is_nearly_full(now: u64, before: u64, reserve: u64) -> bool {
    now < reserve.min(before / 2)
}

/// Measures the usage of these directories on a blocking thread.
pub(super) async fn measure_usage(places: &[PathBuf]) -> DiskUsage {
    let places = places.to_vec();
    tokio::task::spawn_blocking(move || count_usage(&places)).await.unwrap_or_default()
}

/// Returns once the directories have grown by more than the limits since `before`, or once the machine is almost out of
/// memory. The machine's memory is checked because the memory limit does not cover memory that belongs to no process.
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
        // Tests may make a directory unreadable briefly. If it lasts, the command is hiding files.
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

/// Measures the directories without following symlinks. A directory that is nested too deeply to be opened by its path
/// counts as unreadable.
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
