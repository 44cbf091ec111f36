//! The user that runs a command. If we are root, this is a separate user of this machine; otherwise, a user that exists
//! only in the namespace.

use std::{
    collections::BTreeSet,
    ffi::CString,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid, chownat, fchmod, fchown,
        flock, fstat, open, openat, statat,
    },
    io::Errno,
    path::Arg,
    process::{getegid, geteuid},
};

use super::{Level, SandboxCommand};
use crate::proc;

/// User ID inside namespaces. It is not 0, because some programs behave differently as root.
pub(super) const INSIDE: u32 = 1000;

/// User IDs that distributions leave unassigned. Each active run uses one of them.
const OUTSIDE: std::ops::RangeInclusive<u32> = 65_100..=65_300;

/// Directory of the lock files for user IDs. Only root can write to it.
const HELD: &str = "/run/countersign-sandbox";

/// Directory of run records. Each server has a subdirectory and keeps it locked while the server is running.
const RECORDS: &str = "/run/countersign-sandbox/children";

pub(super) const ONLY_ROOT: &str = "the basic level needs a user of its own, which only a server that runs as root can \
                                    give it: without namespaces this user's files are not safe from the command";

/// Creates a directory with the `passwd` and `group` files to mount inside the sandbox.
pub(super) fn create_user_lists() -> io::Result<Arc<ScratchDirectory>> {
    let directory = ScratchDirectory::new()?;
    let mut users =
        "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534::/nonexistent:/bin/false\n".to_owned();
    let mut groups = "root:x:0:\nnogroup:x:65534:\n".to_owned();
    for user in OUTSIDE.chain([INSIDE]) {
        users += &format!("sandbox:x:{user}:{user}::/tmp:/bin/sh\n");
        groups += &format!("sandbox:x:{user}:\n");
    }
    fs::write(directory.path().join("passwd"), users)?;
    fs::write(directory.path().join("group"), groups)?;
    Ok(Arc::new(directory))
}

/// Path of a temporary directory, without symlinks. Dropping this value removes the directory, whatever a command did
/// to its contents. Only we can enter the directory, and the user of a run whose tree is inside it.
#[derive(Debug)]
pub struct ScratchDirectory(PathBuf);

static SCRATCHES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn scratches() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    SCRATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ScratchDirectory {
    /// Creates the directory.
    ///
    /// # Errors
    /// Returns an error if it cannot be created in the system's temporary directory.
    pub fn new() -> io::Result<Self> {
        let place = std::env::temp_dir().canonicalize()?;
        let path = proc::private_dir("countersign-", &place)?.keep();
        scratches().insert(path.clone());
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        scratches().remove(&self.0);
        if let Err(error) = proc::remove_all(&self.0) {
            tracing::warn!(%error, "could not remove a command's temporary directory");
        }
    }
}

/// Records of this server's runs. After a crash, the next server reads them.
#[derive(Debug)]
pub(super) struct RecordsDirectory {
    directory: PathBuf,
    _held: File,
}

impl RecordsDirectory {
    pub(super) async fn open() -> io::Result<Self> {
        let _swept = sweep_orphans().await?;
        let directory = Path::new(RECORDS).join(nonce());
        fs::create_dir(&directory)?;
        let held = File::open(&directory)?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self { directory, _held: held })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for RecordsDirectory {
    fn drop(&mut self) {
        // Remaining records are handled by the next server.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Kills processes left behind by crashed servers. While the returned lock is held, no other server can kill such
/// processes or take a user ID. Otherwise a new run could be killed, because the processes are found by user ID.
async fn sweep_orphans() -> io::Result<File> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(RECORDS)?;
    let lock = File::open(RECORDS)?;
    while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if error != Errno::WOULDBLOCK {
            return Err(error.into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for entry in fs::read_dir(RECORDS)? {
        let path = entry?.path();
        let Ok(held) = File::open(&path) else { continue };
        if flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok() {
            proc::end_orphans(&path).await?;
            let _ = fs::remove_dir(&path);
        }
    }
    Ok(lock)
}

pub(super) fn nonce() -> String {
    let mut bytes = [0; 16];
    // Without randomness there is no sandbox, and no TLS either.
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    hex::encode(bytes)
}

/// A user of this machine that owns the directories of one run while the run is active.
pub(super) struct RunUser {
    pub(super) user: u32,
    /// Directory used as `/tmp` if the run has no private `/tmp`.
    tmp: Option<ScratchDirectory>,
    places: Vec<PathBuf>,
    /// Our directories above `places`. During the run, the user's group may enter them.
    entered: Vec<PathBuf>,
    /// Lock that keeps other servers from using the same user id.
    _taken: File,
}

impl RunUser {
    pub(super) async fn acquire(run: &SandboxCommand, level: Level) -> io::Result<Self> {
        let mut places: Vec<PathBuf> = run.write.clone();
        places.push(run.tree.clone());
        let (tmp, entered) = match level {
            Level::Basic => {
                let scratches = scratches();
                let above = |scratch: &&PathBuf| {
                    places.iter().any(|place| place != *scratch && place.starts_with(scratch))
                };
                let entered: Vec<PathBuf> = scratches.iter().filter(above).cloned().collect();
                places.iter().try_for_each(|place| check_reachable(place, &entered))?;
                drop(scratches);
                (Some(ScratchDirectory::new()?), entered)
            }
            Level::Full | Level::None => (None, Vec::new()),
        };
        let (user, taken) = {
            let _swept = sweep_orphans().await?;
            acquire_free_user()?
        };
        let mut own = Self { user, tmp, places, entered, _taken: taken };
        if let Err(error) = own.change_owner(user, user).await {
            // Ownership may have changed halfway; undo it.
            own.release().await?;
            return Err(error);
        }
        Ok(own)
    }

    pub(super) fn tmp(&self) -> Option<&Path> {
        self.tmp.as_ref().map(ScratchDirectory::path)
    }

    /// Makes the server's user the owner of the directories again. Call this only when none of the run user's processes
    /// is running.
    pub(super) async fn release(mut self) -> io::Result<()> {
        self.change_owner(geteuid().as_raw(), getegid().as_raw()).await
    }

    /// Changes the owner of the run's directories and everything below them. The owner of a symlink itself is changed,
    /// not of its target.
    async fn change_owner(&mut self, uid: u32, gid: u32) -> io::Result<()> {
        let mode = if gid == getegid().as_raw() { 0o700 } else { 0o710 };
        for scratch in &self.entered {
            let entered = open(scratch, FOLDER, Mode::empty())?;
            fchown(&entered, None, Some(Gid::from_raw(gid)))?;
            fchmod(&entered, Mode::from_raw_mode(mode))?;
        }
        let places: Vec<PathBuf> =
            self.places.iter().cloned().chain(self.tmp().map(Path::to_owned)).collect();
        let to = NewOwner { user: Uid::from_raw(uid), group: Gid::from_raw(gid) };
        let give = move || places.iter().try_for_each(|place| to.change_owner_below(place));
        tokio::task::spawn_blocking(give).await.map_err(io::Error::other)?
    }
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The new owner of the run's directories: the sandbox's user or, after the run, the server's user.
#[derive(Clone, Copy)]
struct NewOwner {
    user: Uid,
    group: Gid,
}

/// Device and inode number of a file.
type FileIdentity = (u64, u64);

impl NewOwner {
    /// Changes the owner of a folder and everything below it. Each folder is opened relative to its parent. On the way
    /// back up, the parent must be the folder from which we descended; otherwise a concurrent change could lead us out
    /// of the tree. At most two folders are open at a time.
    fn change_owner_below(self, place: &Path) -> io::Result<()> {
        let mut at = open_folder(CWD, place, false)?;
        self.change_owner_of_entry(&fstat(&at)?, place, |user, group| fchown(&at, user, group))?;
        let mut folders = self.change_owner_of_entries(&at, place)?;
        let mut above: Vec<(FileIdentity, Vec<CString>)> = Vec::new();
        loop {
            if let Some(name) = folders.pop() {
                let below = match open_folder(&at, name.as_c_str(), true) {
                    Err(Errno::XDEV) if self.is_server_user() => continue,
                    Err(Errno::XDEV) => {
                        let why = format!("another file system is mounted in {}", place.display());
                        return Err(io::Error::other(why));
                    }
                    below => below?,
                };
                above.push((file_identity(&at)?, folders));
                folders = self.change_owner_of_entries(&below, place)?;
                at = below;
            } else {
                let Some((parent, rest)) = above.pop() else { return Ok(()) };
                at = openat(&at, c"..", FOLDER, Mode::empty())?;
                if file_identity(&at)? != parent {
                    return Err(io::Error::other(format!("{} changed during the walk", place.display())));
                }
                folders = rest;
            }
        }
    }

    /// Changes the owner of the entries of one folder, and returns the names of the subfolders.
    fn change_owner_of_entries(self, at: &OwnedFd, place: &Path) -> io::Result<Vec<CString>> {
        let mut folders = Vec::new();
        for entry in Dir::read_from(at)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let found = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
            // A mount keeps its owner, since the walk does not enter it.
            if found.st_dev != fstat(at)?.st_dev && self.is_server_user() {
                continue;
            }
            self.change_owner_of_entry(&found, place, |user, group| {
                chownat(at, name, user, group, AtFlags::SYMLINK_NOFOLLOW)
            })?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
                folders.push(name.to_owned());
            }
        }
        Ok(folders)
    }

    /// Changes the owner of a file that belongs to us, or that a killed run left to a sandbox user. Refuses files of
    /// other users, because their owner could not be restored if the server were killed.
    fn change_owner_of_entry(
        self,
        found: &Stat,
        place: &Path,
        chown: impl FnOnce(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> io::Result<()> {
        let of_a_run = OUTSIDE.contains(&found.st_uid);
        let ours = (found.st_uid, found.st_gid) == (geteuid().as_raw(), getegid().as_raw());
        if of_a_run || ours && !self.is_server_user() {
            return Ok(chown(Some(self.user), Some(self.group))?);
        }
        if ours || self.is_server_user() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{} holds files of another owner ({}:{}), and root would take them; run this as that user, or on a copy",
            place.display(),
            found.st_uid,
            found.st_gid
        )))
    }

    fn is_server_user(self) -> bool {
        self.user == geteuid()
    }
}

fn file_identity(at: &OwnedFd) -> io::Result<FileIdentity> {
    let found = fstat(at)?;
    Ok((found.st_dev, found.st_ino))
}

/// Opens a folder without following symlinks in any part of the path. If `within` is set, succeeds only if the folder
/// is below `at` and on the same file system.
#[cfg(target_os = "linux")]
fn open_folder(at: impl AsFd, path: impl Arg, within: bool) -> Result<OwnedFd, Errno> {
    use rustix::fs::{ResolveFlags, openat2};
    let within = if within { ResolveFlags::BENEATH | ResolveFlags::NO_XDEV } else { ResolveFlags::empty() };
    openat2(at, path, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS | within)
}

#[cfg(not(target_os = "linux"))]
fn open_folder(at: impl AsFd, path: impl Arg, _: bool) -> Result<OwnedFd, Errno> {
    openat(at, path, FOLDER, Mode::empty())
}

/// Returns a user ID that is not locked and has no processes, with the lock file now held for it.
fn acquire_free_user() -> io::Result<(u32, File)> {
    let processes = fs::read_dir("/proc")?.flatten();
    let busy: BTreeSet<u32> = processes.filter_map(|process| Some(process.metadata().ok()?.uid())).collect();
    for user in OUTSIDE.filter(|user| !busy.contains(user)) {
        let held = File::options().create(true).append(true).open(Path::new(HELD).join(user.to_string()))?;
        if flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return Ok((user, held));
        }
    }
    Err(io::Error::other("too many runs at a time"))
}

/// System directories. The ownership of these directories and of everything below them must not change.
const OF_THE_SYSTEM: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr",
];

/// Directories shared by all users and services. Their own ownership must not change, but the ownership of their
/// contents may.
const SHARED: &[&str] =
    &["/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var/tmp", "/run", "/var"];

/// Whether runs must not write to `place`, because services and other users depend on its ownership.
pub(super) fn is_system_directory(place: &Path) -> bool {
    let temporary = std::env::temp_dir();
    let temporary = temporary.canonicalize().unwrap_or(temporary);
    let is_temporary = [&temporary, Path::new("/var/tmp")].iter().any(|shared| place.starts_with(shared));
    let within = OF_THE_SYSTEM.iter().any(|system| place.starts_with(system));
    // Services own `/var/lib/NAME` and the like; root's programs keep settings in `/root/.NAME`.
    let of_a_service = ["/run", "/var"]
        .iter()
        .any(|above| place.strip_prefix(above).is_ok_and(|below| below.components().count() < 3));
    let settings = place.strip_prefix("/root").is_ok_and(|below| {
        below.components().count() == 1 && below.as_os_str().as_encoded_bytes().starts_with(b".")
    });
    place == temporary
        || place.parent().is_none()
        || SHARED.iter().any(|shared| place == Path::new(shared))
        || (within || of_a_service || settings) && !is_temporary
}

/// Checks that every user may pass through each directory above `place`. Directories in `entered` are not checked.
fn check_reachable(place: &Path, entered: &[PathBuf]) -> io::Result<()> {
    let closed = |above: &&Path| {
        above.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 == 0)
            && !entered.iter().any(|scratch| scratch == above)
    };
    match place.ancestors().skip(1).find(closed) {
        None => Ok(()),
        Some(above) => Err(io::Error::other(format!(
            "the sandbox user cannot enter {}; without namespaces it must be able to (`chmod o+x`)",
            above.display()
        ))),
    }
}
