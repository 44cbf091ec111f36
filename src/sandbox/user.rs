//! Who the command is: under root one of this machine that has nothing, otherwise one that there is only inside.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, Uid, chownat, fchown, flock, open, openat},
    io::Errno,
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
    // Its own user is to read them.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
    Ok(Arc::new(directory))
}

/// A directory by its real path, which is removed with its value, whatever a command has made of it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// # Errors
    ///
    /// When none can be made among the system's temporary files.
    pub fn new() -> io::Result<Self> {
        let place = std::env::temp_dir().canonicalize()?;
        Ok(Self(tempfile::Builder::new().prefix("countersign-").tempdir_in(place)?.keep()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
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
    fs::create_dir_all(RECORDS)?;
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
    /// Nobody else on this machine takes that user while it is held.
    _taken: File,
}

impl Own {
    pub(super) async fn take(run: &Run, level: Level) -> io::Result<Self> {
        let mut places: Vec<PathBuf> = run.write.clone();
        places.push(run.tree.clone());
        let tmp = match level {
            Level::Basic => {
                places.iter().try_for_each(|place| must_be_reachable(place))?;
                Some(Scratch::new()?)
            }
            Level::Full | Level::None => None,
        };
        let (user, taken) = {
            let _swept = swept().await?;
            free()?
        };
        let own = Self { user, tmp, places, _taken: taken };
        own.give(user, user, own.tmp()).await?;
        Ok(own)
    }

    pub(super) fn tmp(&self) -> Option<&Path> {
        self.tmp.as_ref().map(Scratch::path)
    }

    /// To be called when none of its processes is left.
    pub(super) async fn give_back(self) -> io::Result<()> {
        self.give(geteuid().as_raw(), getegid().as_raw(), None).await
    }

    /// Links themselves, and not what they lead to. What is too deep for us a program does.
    async fn give(&self, uid: u32, gid: u32, tmp: Option<&Path>) -> io::Result<()> {
        let places = self.places.iter().map(PathBuf::as_path).chain(tmp);
        let all: Vec<PathBuf> = places.clone().map(Path::to_owned).collect();
        let to = (Uid::from_raw(uid), Gid::from_raw(gid));
        let give = move || {
            all.iter().try_for_each(|place| give_below(&open(place, FOLDER, Mode::empty())?, to, DEEPEST))
        };
        if tokio::task::spawn_blocking(give).await.is_ok_and(|given| given.is_ok()) {
            return Ok(());
        }
        let chown = Command::new("chown").args(["-hRP", &format!("{uid}:{gid}"), "--"]).args(places);
        let given = chown.timeout(GIVING).run(&CancellationToken::new()).await.map_err(io::Error::other)?;
        if given.success() { Ok(()) } else { Err(io::Error::other(given.stderr_text())) }
    }
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Each level holds two files open.
const DEEPEST: u32 = 100;

/// Each folder is opened below the one before it: whoever changes anything there meanwhile leads us nowhere.
fn give_below(folder: &OwnedFd, to: (Uid, Gid), depth: u32) -> Result<(), Errno> {
    let (user, group) = (Some(to.0), Some(to.1));
    fchown(folder, user, group)?;
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        match openat(folder, name, FOLDER, Mode::empty()) {
            _ if matches!(name.to_bytes(), b"." | b"..") => {}
            Ok(below) if depth > 0 => give_below(&below, to, depth - 1)?,
            Ok(_) => return Err(Errno::NAMETOOLONG),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                chownat(folder, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One that is not held, by whatever server, and that no process is left of.
fn free() -> io::Result<(u32, File)> {
    fs::create_dir_all(HELD)?;
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

/// Everybody must be let through to it.
fn must_be_reachable(place: &Path) -> io::Result<()> {
    let closed = |above: &&Path| above.metadata().is_ok_and(|found| found.permissions().mode() & 0o001 == 0);
    match place.ancestors().skip(1).find(closed) {
        None => Ok(()),
        Some(above) => Err(io::Error::other(format!(
            "the sandbox's own user is not let through {}; without namespaces it must be (`chmod o+x`)",
            above.display()
        ))),
    }
}
