//! Who the command is: under root one of this machine that has nothing, otherwise one that there is only inside.

use std::{
    collections::{BTreeSet, HashMap},
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
        AtFlags, CWD, Dir, FlockOperation, Gid, Mode, OFlags, Stat, Uid, chownat, fchmod, fchown, flock,
        fstat, open, statat,
    },
    io::Errno,
    path::Arg,
    process::{getegid, geteuid},
};
use tokio_util::sync::CancellationToken;

use super::{Level, Run};
use crate::proc::{self, Command};

/// Its number inside namespaces. Not root's: programs behave differently for root.
pub(super) const INSIDE: u32 = 1000;

/// Numbers that no distribution gives to anybody; one for each run that is on.
const OUTSIDE: std::ops::RangeInclusive<u32> = 65_100..=65_300;

/// Only root makes anything there.
const HELD: &str = "/run/countersign-sandbox";

/// There each server has a directory of records of its runs, which is locked while it lives.
const RECORDS: &str = "/run/countersign-sandbox/children";

pub(super) const ONLY_ROOT: &str = "the basic level needs a user of its own, which only a server that runs as root can \
                                    give it: without namespaces this user's files are not safe from the command";

/// Lists of users and groups for the inside.
pub(super) fn names() -> io::Result<Arc<Scratch>> {
    let directory = Scratch::new()?;
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

/// A directory by its real path, which is removed with its value, whatever a command has made of it. Only we enter it, and the
/// user of a run whose tree is below it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

/// Those that this process has.
static SCRATCHES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn scratches() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    SCRATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Scratch {
    /// # Errors
    ///
    /// When none can be made among the system's temporary files.
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

impl Drop for Scratch {
    fn drop(&mut self) {
        scratches().remove(&self.0);
        if let Err(error) = proc::remove_all(&self.0) {
            tracing::warn!(%error, "what a command wrote stays behind");
        }
    }
}

/// Records of what this server runs, for whoever comes after it.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    _held: File,
}

impl Records {
    pub(super) async fn open() -> io::Result<Self> {
        let _swept = swept().await?;
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

impl Drop for Records {
    fn drop(&mut self) {
        // Records that are left are the next one's.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Ends what servers have left that are gone. While the lock lives nobody else does, nor takes a user that one of theirs was:
/// by that user what they left is found, and another's run would be.
async fn swept() -> io::Result<File> {
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

/// A word that nobody guesses.
pub(super) fn nonce() -> String {
    let mut bytes = [0; 16];
    // Without chance there is no sandbox, and no TLS either.
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    hex::encode(bytes)
}

/// A user of this machine for one run, who owns the run's directories while it lasts.
pub(super) struct Own {
    pub(super) user: u32,
    /// In place of `/tmp`, where there is none of its own.
    tmp: Option<Scratch>,
    places: Vec<PathBuf>,
    /// Our directories above the places. The user's group may enter them while it runs.
    entered: Vec<PathBuf>,
    /// The owners of files that are not ours.
    others: Owners,
    /// Nobody else on this machine takes that user while it is held.
    _taken: File,
}

impl Own {
    pub(super) async fn take(run: &Run, level: Level) -> io::Result<Self> {
        let mut places: Vec<PathBuf> = run.write.clone();
        places.push(run.tree.clone());
        let (tmp, entered) = match level {
            Level::Basic => {
                let scratches = scratches();
                let above = |scratch: &&PathBuf| {
                    places.iter().any(|place| place != *scratch && place.starts_with(scratch))
                };
                let entered: Vec<PathBuf> = scratches.iter().filter(above).cloned().collect();
                places.iter().try_for_each(|place| must_be_reachable(place, &entered))?;
                drop(scratches);
                (Some(Scratch::new()?), entered)
            }
            Level::Full | Level::None => (None, Vec::new()),
        };
        let (user, taken) = {
            let _swept = swept().await?;
            free()?
        };
        let mut own = Self { user, tmp, places, entered, others: Owners::new(), _taken: taken };
        if let Err(error) = own.give(user, user).await {
            // Half of it may be given away.
            own.give_back().await?;
            return Err(error);
        }
        Ok(own)
    }

    pub(super) fn tmp(&self) -> Option<&Path> {
        self.tmp.as_ref().map(Scratch::path)
    }

    /// To be called when none of its processes is left. Each file gets the owner again that it had.
    pub(super) async fn give_back(mut self) -> io::Result<()> {
        self.give(geteuid().as_raw(), getegid().as_raw()).await
    }

    /// Links themselves, and not what they lead to; nothing of another file system. What is too deep for us a program does.
    async fn give(&mut self, uid: u32, gid: u32) -> io::Result<()> {
        let mode = if gid == getegid().as_raw() { 0o700 } else { 0o710 };
        for scratch in &self.entered {
            let entered = open(scratch, FOLDER, Mode::empty())?;
            fchown(&entered, None, Some(Gid::from_raw(gid)))?;
            fchmod(&entered, Mode::from_raw_mode(mode))?;
        }
        let places: Vec<PathBuf> =
            self.places.iter().cloned().chain(self.tmp().map(Path::to_owned)).collect();
        let (all, mut others) = (places.clone(), std::mem::take(&mut self.others));
        let to = (Uid::from_raw(uid), Gid::from_raw(gid));
        let give = move || {
            let given = all.iter().try_for_each(|place| {
                give_below(&folder(CWD, place.as_path(), false)?, to, DEEPEST, &mut others)
            });
            (given, others)
        };
        let (given, others) = tokio::task::spawn_blocking(give).await.map_err(io::Error::other)?;
        self.others = others;
        match given {
            Err(Errno::NAMETOOLONG) => {}
            Err(Errno::XDEV) => return Err(io::Error::other("another file system is mounted in it")),
            given => return Ok(given?),
        }
        let chown = Command::new("chown").args(["-hRP", &format!("{uid}:{gid}"), "--"]).args(places);
        let given = chown.timeout(GIVING).run(&CancellationToken::new()).await.map_err(io::Error::other)?;
        if given.success() { Ok(()) } else { Err(io::Error::other(given.stderr_text())) }
    }
}

/// By device and inode: user and group.
type Owners = HashMap<(u64, u64), (u32, u32)>;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Each level holds two files open.
const DEEPEST: u32 = 100;

/// Each folder is opened below the one before it, so a change there meanwhile leads us nowhere. `others` records the owners of
/// files that are not ours when they are given away; when they are given back, each file gets its owner again.
fn give_below(at: &OwnedFd, to: (Uid, Gid), depth: u32, others: &mut Owners) -> Result<(), Errno> {
    let found = fstat(at)?;
    let (user, group) = new_owner(&found, to, others);
    fchown(at, user, group)?;
    for entry in Dir::read_from(at)? {
        let entry = entry?;
        let name = entry.file_name();
        match folder(at, name, true) {
            _ if matches!(name.to_bytes(), b"." | b"..") => {}
            Ok(below) if depth > 0 => give_below(&below, to, depth - 1, others)?,
            Ok(_) => return Err(Errno::NAMETOOLONG),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let found = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
                let (user, group) = new_owner(&found, to, others);
                chownat(at, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens a folder without following a link anywhere on the way. With `within`, only below `at` and on its file system.
#[cfg(target_os = "linux")]
fn folder(at: impl AsFd, path: impl Arg, within: bool) -> Result<OwnedFd, Errno> {
    use rustix::fs::{ResolveFlags, openat2};
    let within = if within { ResolveFlags::BENEATH | ResolveFlags::NO_XDEV } else { ResolveFlags::empty() };
    openat2(at, path, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS | within)
}

#[cfg(not(target_os = "linux"))]
fn folder(at: impl AsFd, path: impl Arg, _: bool) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, path, FOLDER, Mode::empty())
}

fn new_owner(found: &Stat, to: (Uid, Gid), others: &mut Owners) -> (Option<Uid>, Option<Gid>) {
    let (us, file) = ((geteuid(), getegid()), (found.st_dev, found.st_ino));
    let owner = (found.st_uid, found.st_gid);
    // What a killed run left to the sandbox's user becomes ours.
    if to != us && owner != (us.0.as_raw(), us.1.as_raw()) && !OUTSIDE.contains(&found.st_uid) {
        others.entry(file).or_insert(owner);
    }
    match others.get(&file) {
        Some((user, group)) if to == us => (Some(Uid::from_raw(*user)), Some(Gid::from_raw(*group))),
        _ => (Some(to.0), Some(to.1)),
    }
}

/// One that is not held, by whatever server, and that no process is left of.
fn free() -> io::Result<(u32, File)> {
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

/// A tree has as many files as the limits allow, on a slow disk.
const GIVING: Duration = Duration::from_secs(300);

/// Directories whose owner is the system's business, with all that is in them.
const OF_THE_SYSTEM: &[&str] = &[
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr",
];

/// These themselves, and what is directly in the last two, where services have their directories.
const SHARED: &[&str] =
    &["/home", "/media", "/mnt", "/opt", "/root", "/srv", "/tmp", "/var/tmp", "/run", "/var"];

/// Whether it is a directory that no run may write, because services and other users depend on its owner.
pub(super) fn is_of_the_system(place: &Path) -> bool {
    let temporary = std::env::temp_dir();
    let temporary = temporary.canonicalize().unwrap_or(temporary);
    let services = |above: &Path| [Path::new("/run"), Path::new("/var")].contains(&above);
    let within = OF_THE_SYSTEM.iter().any(|system| place.starts_with(system));
    place == temporary
        || SHARED.iter().any(|shared| place == Path::new(shared))
        || place.parent().is_none_or(services)
        || within && !place.starts_with(&temporary)
}

/// Everybody must be let through to it, where we cannot let the user through.
fn must_be_reachable(place: &Path, entered: &[PathBuf]) -> io::Result<()> {
    let closed = |above: &&Path| {
        above.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 == 0)
            && !entered.iter().any(|scratch| scratch == above)
    };
    match place.ancestors().skip(1).find(closed) {
        None => Ok(()),
        Some(above) => Err(io::Error::other(format!(
            "the sandbox's own user is not let through {}; without namespaces it must be (`chmod o+x`)",
            above.display()
        ))),
    }
}
