//! Fetches a project's dependencies before its tests run. This is the only phase with network access, and it also runs
//! in the sandbox.
//!
//! The fetch sees only manifests and lock files, in a separate tree. It sees no sources, and no settings that make
//! tools run other programs or contact other hosts. The result is cached read-only, for this repository only, under a
//! hash of the fetch's inputs.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, symlink},
    path::{Component, Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{TestError, error_summary, sanitize_line, toolchains::Toolchain};
use crate::{
    config::Hosts,
    git::Snapshot,
    proc::{self, ChildCommand, ProcError},
    sandbox::{
        FETCHED_BYTES, Level, NetworkAccess, Sandbox, SandboxCommand, SandboxError, SandboxLimits,
        SandboxProxy, ScratchDirectory,
    },
    types::Hash,
};

/// Time limit of a fetch. If the limit is exceeded, nothing of the fetch is kept.
const TIME: Duration = Duration::from_secs(10 * 60);

/// Maximum number of cached results over all repositories. Beyond it, the least recently used result is removed.
const MOST_CACHED: usize = 64;

/// Maximum total bytes of a commit's manifests and lock files.
const MANIFEST_BYTES: u64 = 64 << 20;

/// Maximum total bytes of the operator's settings files, including their names.
const HOME_BYTES: u64 = 1 << 20;

/// Name of the file in the fetch command's home directory with its notes, one per line, and the maximum number of notes.
const NOTES_FILE: &str = "notes";
const MOST_NOTES: usize = 20;

/// Name prefix of directories for unfinished fetches. Tests never use such a directory. A directory left behind by a
/// killed process is removed later.
const PENDING_PREFIX: &str = ".countersign-new-";

/// Fetches dependencies and caches them.
#[derive(Debug, Clone)]
pub struct DependencyFetcher {
    /// Repository that owns the cached results. Other repositories cannot use these results.
    pub repository: String,
    /// Cache directory for all repositories.
    pub cache: PathBuf,
    /// Hosts that a fetch may contact, from `[sandbox] hosts` in the settings or the default list.
    pub hosts: Hosts,
    /// Folder with the operator's settings for the fetching programs. The files in it are linked into the home
    /// directory of these programs.
    pub home: Option<PathBuf>,
}

/// Functions that fetch and install one ecosystem's dependencies.
pub(super) struct DependencyPreset {
    pub(super) name: &'static str,
    /// Whether a path is a manifest or lock file.
    pub(super) is_manifest: fn(&str) -> bool,
    /// Plans the fetch.
    ///
    /// # Errors
    ///
    /// Returns the lock file entries that must not be fetched.
    pub(super) plan_fetch: fn(&ProjectManifests<'_>) -> Result<FetchNeed, String>,
    /// Returns the part of the operator's settings that tests need, as content for the file [`SETTINGS_FILE`].
    ///
    /// # Errors
    ///
    /// Returns the settings that must not be shown to tests.
    pub(super) settings_for_tests: fn(&FileContents) -> Result<String, String>,
    /// Adds the fetched dependencies to a toolchain. The path is that of their directory, which contains `home`, `tree`
    /// and [`SETTINGS_FILE`].
    pub(super) install: fn(&Path, &mut Toolchain),
    /// Whether the preset only saves time. If so, tests also work without the fetched dependencies, and no operator
    /// settings are needed.
    pub(super) saves_time: bool,
}

pub(super) type FileContents = BTreeMap<String, Vec<u8>>;

/// Name of the file with the settings for tests. It lies next to the output of the fetch command, in a place to which
/// that command cannot write.
pub(super) const SETTINGS_FILE: &str = "told";

/// Sandbox in which a fetch runs, and the commit whose dependencies it fetches.
pub(super) struct FetchContext<'p> {
    pub(super) sandbox: &'p Sandbox,
    pub(super) snapshot: &'p Snapshot,
    pub(super) cancel: &'p CancellationToken,
}

pub(super) struct ProjectManifests<'s> {
    pub(super) folder: &'s str,
    pub(super) paths: &'s [String],
    pub(super) files: &'s BTreeMap<String, String>,
    pub(super) tool: &'s Toolchain,
}

pub(super) enum FetchNeed {
    Nothing,
    /// Nothing can be fetched. Holds the reason, which is shown if tests lack a dependency.
    Unknown(String),
    Fetch(FetchPlan),
}

#[derive(Debug, Default)]
pub(super) struct FetchPlan {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    /// Arguments of an offline check. If the check succeeds, this machine already has all dependencies and nothing is
    /// fetched.
    pub(super) local: Vec<String>,
    /// Whether a failed fetch is only a note, because the tests may need nothing of it.
    pub(super) is_optional: bool,
    /// Arguments of an offline check of what the tests need at least. If it succeeds, a failed fetch is only a note.
    pub(super) least: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    /// All files that the fetch command sees: their contents by path.
    pub(super) files: BTreeMap<String, String>,
    pub(super) folder: String,
    /// Notes to show with every result. `{day}` stands for the day of the fetch.
    pub(super) notes: Vec<String>,
    /// Notes to show if the tests do not pass.
    pub(super) hints: Vec<String>,
}

/// Fetched dependencies, protected from removal until this value is dropped.
pub(super) struct FetchedDependencies {
    pub(super) path: PathBuf,
    /// Notes of the [`FetchPlan`].
    pub(super) notes: Vec<String>,
    pub(super) hints: Vec<String>,
    _held: File,
}

impl FetchedDependencies {
    fn with_notes(mut self, plan: &FetchPlan) -> Self {
        let made = self.path.join("tree").metadata().and_then(|tree| tree.modified());
        let day = made.map_or_else(|_| String::new(), |made| OffsetDateTime::from(made).date().to_string());
        let text = fs::read_to_string(self.path.join("home").join(NOTES_FILE)).unwrap_or_default();
        let of_fetch = text.lines().take(MOST_NOTES).map(sanitize_line);
        self.notes = plan.notes.iter().map(|note| note.replace("{day}", &day)).chain(of_fetch).collect();
        self.hints.clone_from(&plan.hints);
        self
    }
}

/// Result of [`DependencyFetcher::ensure`].
pub(super) enum DependencyState {
    Available(FetchedDependencies),
    /// No dependencies are available. Holds a note to show if tests lack a dependency.
    Unavailable(Option<String>),
}

impl DependencyFetcher {
    /// Returns the dependencies, fetching them if needed.
    pub(super) async fn ensure(
        &self,
        preset: &DependencyPreset,
        place: &FetchContext<'_>,
        of: (&str, &Toolchain),
    ) -> Result<DependencyState, TestError> {
        match self.find_or_fetch(preset, place, of).await {
            Ok(DependencyState::Unavailable(_)) if preset.saves_time => {
                Ok(DependencyState::Unavailable(None))
            }
            Err(error) if preset.saves_time && !place.cancel.is_cancelled() => {
                tracing::warn!(%error, "could not prepare {}; tests will take longer", preset.name);
                Ok(DependencyState::Unavailable(None))
            }
            state => state,
        }
    }

    async fn find_or_fetch(
        &self,
        preset: &DependencyPreset,
        place: &FetchContext<'_>,
        (folder, tool): (&str, &Toolchain),
    ) -> Result<DependencyState, TestError> {
        let (sandbox, snapshot) = (place.sandbox, place.snapshot);
        let lacks =
            |why: String| TestError::MissingPrerequisite(format!("the dependencies were not fetched: {why}"));
        let paths: Vec<String> = snapshot.entries().iter().map(|entry| entry.path.clone()).collect();
        let files = snapshot
            .entries()
            .iter()
            .filter(|entry| entry.mode.is_file() && (preset.is_manifest)(&entry.path));
        let files: Vec<_> = files.filter(|entry| is_safe_path(&entry.path)).collect();
        if files.iter().map(|entry| entry.size).sum::<u64>() > MANIFEST_BYTES {
            return Err(lacks("the manifests and lock files are larger than 64 MB together".to_owned()));
        }
        let files = snapshot.read_texts(&files).await?.into_iter().collect();
        let seen = ProjectManifests { folder, paths: &paths, files: &files, tool };
        let plan = match (preset.plan_fetch)(&seen).map_err(|why| lacks(sanitize_line(&why)))? {
            FetchNeed::Nothing => return Ok(DependencyState::Unavailable(None)),
            FetchNeed::Unknown(why) => return Ok(DependencyState::Unavailable(Some(sanitize_line(&why)))),
            FetchNeed::Fetch(plan) => plan,
        };
        let home = if preset.saves_time { Ok(FileContents::new()) } else { self.home_files() };
        // At the basic level, the sandbox runs as another user, who may not read the cache.
        if sandbox.level() != Level::Basic
            && let Ok(home) = &home
            && let Some(made) = self.find_cached(&self.cache_key(preset, tool, &plan, home))?
        {
            return Ok(DependencyState::Available(made.with_notes(&plan)));
        }
        if is_available_locally(place, tool, &plan, &plan.local).await? {
            return Ok(DependencyState::Unavailable(None));
        }
        if sandbox.level() != Level::Full {
            let why = "dependencies are fetched only at the full level of the sandbox";
            return Ok(DependencyState::Unavailable(Some(why.to_owned())));
        }
        let home = home.map_err(|(path, error)| {
            // Paths of this machine do not belong in a public thread.
            tracing::error!(path = %path.display(), %error, "could not read a file under [sandbox] home; fetching no dependencies");
            lacks("the operator's settings for it (`home`) cannot be read; the log says which".to_owned())
        })?;
        let settings = (preset.settings_for_tests)(&home).map_err(|why| lacks(sanitize_line(&why)))?;
        let key = self.cache_key(preset, tool, &plan, &home);
        match Box::pin(self.fetch(&key, place, tool, &plan, (&home, &settings))).await {
            Err(TestError::MissingPrerequisite(why))
                if plan.is_optional || is_available_locally(place, tool, &plan, &plan.least).await? =>
            {
                Ok(DependencyState::Unavailable(Some(why)))
            }
            fetched => Ok(DependencyState::Available(fetched?.with_notes(&plan))),
        }
    }

    /// Returns the operator's settings files by their paths relative to the home directory.
    fn home_files(&self) -> Result<FileContents, (PathBuf, io::Error)> {
        let (mut files, mut room) = (FileContents::new(), HOME_BYTES);
        let Some(home) = &self.home else { return Ok(files) };
        // The trailing slash allows the home itself to be a link, but nothing inside it.
        let mut open = vec![home.join("")];
        while let Some(path) = open.pop() {
            let wrong = |error| (path.clone(), error);
            let found = path.symlink_metadata().map_err(wrong)?;
            if found.is_dir() {
                for entry in fs::read_dir(&path).map_err(wrong)? {
                    open.push(entry.map_err(wrong)?.path());
                }
                continue;
            }
            if !found.is_file() {
                return Err(wrong(io::Error::other("it is neither a file nor a folder")));
            }
            let name = path.strip_prefix(home).unwrap_or(&path).display().to_string();
            let left = room.checked_sub(found.len()).and_then(|room| room.checked_sub(name.len() as u64));
            room = left.ok_or_else(|| wrong(io::Error::other("all files are larger than 1 MB together")))?;
            files.insert(name, fs::read(&path).map_err(wrong)?);
        }
        Ok(files)
    }

    /// Returns the cache key: a hash of all inputs of the fetch. Source files are not among the inputs.
    fn cache_key(
        &self,
        preset: &DependencyPreset,
        tool: &Toolchain,
        plan: &FetchPlan,
        home: &FileContents,
    ) -> String {
        let program = plan.program.display().to_string();
        // A time-saving preset contains nothing of the repository.
        let whose = if preset.saves_time { "" } else { self.repository.as_str() };
        let mut parts = vec![whose, preset.name, &program, &tool.version, &plan.folder];
        parts.extend(plan.args.iter().map(String::as_str));
        let known = plan.files.iter().filter(|(_, text)| !text.is_empty());
        parts.extend(known.flat_map(|(path, text)| [path.as_str(), text]));
        let home = home.iter().flat_map(|(path, bytes)| [path.as_bytes(), bytes]);
        Hash::digest_parts(parts.into_iter().map(str::as_bytes).chain(home)).to_string()
    }

    /// Returns the cached result with this key, if there is one. Only complete results are stored under a key's name.
    fn find_cached(&self, key: &str) -> io::Result<Option<FetchedDependencies>> {
        let path = self.cache.join(key);
        let held = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            held => held?,
        };
        flock(&held, FlockOperation::LockShared)?;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        // The directory may belong to another user's server.
        let _ = futimens(&held, &Timestamps { last_access: now, last_modification: now });
        // Another process may have removed it before we got the lock.
        let there =
            path.metadata().is_ok_and(|found| held.metadata().is_ok_and(|own| own.ino() == found.ino()));
        Ok(there.then(|| FetchedDependencies {
            path: path.canonicalize().unwrap_or(path),
            notes: Vec::new(),
            hints: Vec::new(),
            _held: held,
        }))
    }

    async fn fetch(
        &self,
        key: &str,
        place: &FetchContext<'_>,
        tool: &Toolchain,
        plan: &FetchPlan,
        (home, settings_for_tests): (&FileContents, &str),
    ) -> Result<FetchedDependencies, TestError> {
        let new = self.create_pending()?;
        let places = FetchDirectories::create_below(&new.path.join("made"))?;
        write_files(&places.tree, &plan.files)?;
        let settings = new.link_settings(&places.home, home)?;
        let socket = ScratchDirectory::new()?;
        let proxy = SandboxProxy::open(&socket.path().join("way-out"), self.hosts.clone(), FETCHED_BYTES)?;
        let network = NetworkAccess::Proxy(proxy.socket().to_owned());
        let mut run = places.build_command(tool, plan, &plan.args, network);
        run.write.push(settings);
        // A tool may retry a refused host for minutes.
        let stop = place.cancel.child_token();
        let running = place.sandbox.run(run, &stop);
        tokio::pin!(running);
        let ended = tokio::select! {
            ended = &mut running => ended,
            () = proxy.wait_for_refusal() => {
                stop.cancel();
                running.await
            }
        };
        let refused = proxy.refusals().iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let why = match ended {
            Ok(ended) if ended.end.success() => None,
            Ok(_) | Err(SandboxError::Cancelled) if !refused.is_empty() && !place.cancel.is_cancelled() => {
                Some(refused)
            }
            ended => {
                let ended = ended?;
                Some(format!("{}: {}", ended.end, error_summary(&ended.stderr.text())))
            }
        };
        if let Some(why) = why {
            return Err(TestError::MissingPrerequisite(format!(
                "the dependencies were not fetched: {}",
                sanitize_line(&why)
            )));
        }
        // Readable for everyone, writable for nobody: each test run may have another user.
        let seal =
            ChildCommand::new("chmod").args(["-R", "a+rX,a-w", "--"]).args([&places.tree, &places.home]);
        run_to_end(seal, place.cancel).await?;
        if !settings_for_tests.is_empty() {
            fs::write(new.path.join("made").join(SETTINGS_FILE), settings_for_tests)?;
        }
        Ok(self.store_fetched(key, &new)?)
    }

    /// Creates a directory for an unfinished fetch and locks it against other processes.
    fn create_pending(&self) -> io::Result<PendingFetch> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.cache)?;
        self.remove_stale()?;
        loop {
            let path = tempfile::Builder::new()
                .prefix(PENDING_PREFIX)
                .tempdir_in(self.cache.canonicalize()?)?
                .keep();
            let held = File::open(&path)?;
            flock(&held, FlockOperation::LockExclusive)?;
            // A cleanup may have removed it before we got the lock.
            if path.exists() {
                return Ok(PendingFetch { path, _held: held });
            }
        }
    }

    fn store_fetched(&self, key: &str, new: &PendingFetch) -> io::Result<FetchedDependencies> {
        match fs::rename(new.path.join("made"), self.cache.join(key)) {
            // Another process stored the same result first.
            Err(error) if !self.cache.join(key).is_dir() => return Err(error),
            _ => {}
        }
        self.find_cached(key)?.ok_or_else(|| io::Error::other("the fetched dependencies are gone"))
    }

    /// Removes the directories of killed fetches. If the cache exceeds its limit, also removes the least recently used
    /// results.
    fn remove_stale(&self) -> io::Result<()> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.cache)?.flatten() {
            let path = entry.path();
            let name = entry.file_name().into_string().unwrap_or_default();
            match entry.metadata().and_then(|found| found.modified()) {
                _ if name.starts_with(PENDING_PREFIX) => remove_if_unused(&path),
                // Other files are not ours.
                Ok(used) if name.parse::<Hash>().is_ok() => kept.push((used, path)),
                _ => {}
            }
        }
        kept.sort();
        kept.iter()
            .take(kept.len().saturating_sub(MOST_CACHED - 1))
            .for_each(|(_, path)| remove_if_unused(path));
        Ok(())
    }
}

/// Removes a directory that is not in use. The directory is renamed first, so that a partly removed directory is never
/// mistaken for a result.
fn remove_if_unused(path: &Path) {
    let free = |held: &File| flock(held, FlockOperation::NonBlockingLockExclusive).is_ok();
    let Some(_held) = File::open(path).ok().filter(free) else { return };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let nameless =
        path.with_file_name(format!("{PENDING_PREFIX}{}", name.trim_start_matches(PENDING_PREFIX)));
    if fs::rename(path, &nameless).is_ok()
        && let Err(error) = proc::remove_all(&nameless)
    {
        tracing::warn!(%error, "could not remove unused dependencies; leaving them on disk");
    }
}

/// An unfinished fetch. Its directory is removed on drop.
struct PendingFetch {
    path: PathBuf,
    _held: File,
}

impl PendingFetch {
    /// Creates links to the operator's settings in the home directory. The settings may contain keys, so they are not
    /// copied into the stored result. The links in the stored result therefore dangle.
    fn link_settings(&self, home: &Path, files: &FileContents) -> io::Result<PathBuf> {
        let settings = self.path.join("settings");
        fs::create_dir(&settings)?;
        write_files(&settings, files)?;
        for name in files.keys() {
            let link = home.join(name);
            link.parent().map_or(Ok(()), fs::create_dir_all)?;
            symlink(settings.join(name), link)?;
        }
        Ok(settings)
    }
}

impl Drop for PendingFetch {
    fn drop(&mut self) {
        if let Err(error) = proc::remove_all(&self.path) {
            tracing::warn!(%error, "could not remove an unfinished fetch; leaving it on disk");
        }
    }
}

struct FetchDirectories {
    tree: PathBuf,
    home: PathBuf,
}

impl FetchDirectories {
    fn create_below(root: &Path) -> io::Result<Self> {
        let [tree, home] = ["tree", "home"].map(|name| root.join(name));
        [root, &tree, &home]
            .into_iter()
            .try_for_each(|place| fs::DirBuilder::new().mode(0o755).create(place))?;
        Ok(Self { tree, home })
    }

    fn build_command(
        &self,
        tool: &Toolchain,
        plan: &FetchPlan,
        args: &[String],
        network: NetworkAccess,
    ) -> SandboxCommand {
        let mut run = SandboxCommand::new("/bin/sh", &self.tree);
        run.args =
            ["-c".into(), "cd \"$0\" && exec \"$@\"".into(), self.tree.join(&plan.folder).into()].into();
        run.args.push(plan.program.clone().into());
        run.args.extend(args.iter().map(Into::into));
        run.read.clone_from(&tool.read);
        run.write = vec![self.home.clone()];
        run.environment = [("HOME", self.home.as_os_str()), ("LANG", "C.UTF-8".as_ref())]
            .map(|(name, value)| (name.into(), value.to_owned()))
            .into();
        run.environment.extend(plan.environment.iter().map(|(name, value)| (name.into(), value.into())));
        run.limits = SandboxLimits { time: TIME, ..SandboxLimits::default() };
        run.network = network;
        run
    }
}

/// Whether this machine already has all dependencies.
async fn is_available_locally(
    place: &FetchContext<'_>,
    tool: &Toolchain,
    plan: &FetchPlan,
    args: &[String],
) -> Result<bool, TestError> {
    if args.is_empty() {
        return Ok(false);
    }
    let scratch = ScratchDirectory::new()?;
    let places = FetchDirectories::create_below(&scratch.path().join("local"))?;
    write_files(&places.tree, &plan.files)?;
    tool.link_into(&places.home, &places.tree)?;
    let run = places.build_command(tool, plan, args, NetworkAccess::Loopback);
    let ended = place.sandbox.run(run, place.cancel).await?;
    Ok(ended.end.success())
}

/// Runs a system program until it exits. A failing exit status is an error.
pub(super) async fn run_to_end(command: ChildCommand, cancel: &CancellationToken) -> Result<(), TestError> {
    let done = command.timeout(TIME).run(cancel).await.map_err(|error| match error {
        ProcError::Cancelled => TestError::Sandbox(SandboxError::Cancelled),
        error => io::Error::other(error).into(),
    })?;
    if done.success() { Ok(()) } else { Err(io::Error::other(done.stderr_text()).into()) }
}

fn write_files(tree: &Path, files: &BTreeMap<String, impl AsRef<[u8]>>) -> io::Result<()> {
    for (path, text) in files.iter().filter(|(path, _)| is_safe_path(path)) {
        let path = tree.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// Whether the path is a safe relative path, so that it names a file below the root.
fn is_safe_path(path: &str) -> bool {
    !path.contains('\0') && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const KEY: &str = "00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa00aa";

    fn dependencies(cache: &Path) -> DependencyFetcher {
        let (repository, hosts) = ("a".to_owned(), Hosts::default());
        DependencyFetcher { repository, cache: cache.to_owned(), hosts, home: None }
    }

    fn made(of: &DependencyFetcher, text: &str) -> PendingFetch {
        let new = of.create_pending().unwrap();
        fs::create_dir(new.path.join("made")).unwrap();
        fs::write(new.path.join("made/text"), text).unwrap();
        new
    }

    #[test]
    fn concurrent_fetches_store_one_complete_result() {
        let directory = tempfile::tempdir().unwrap();
        let of = dependencies(&directory.path().join("new/cache"));
        assert!(of.find_cached(KEY).unwrap().is_none());
        let (first, second) = (made(&of, "first"), made(&of, "second"));
        assert!(of.find_cached(KEY).unwrap().is_none(), "an unfinished fetch is found");
        for new in [&first, &second] {
            let kept = of.store_fetched(KEY, new).unwrap();
            assert_eq!(fs::read_to_string(kept.path.join("text")).unwrap(), "first");
        }
        drop((first, second));
        assert_eq!(fs::read_dir(&of.cache).unwrap().count(), 1);
    }

    #[test]
    fn dependency_cleanup_keeps_entries_in_use_and_removes_interrupted_fetches() {
        let directory = tempfile::tempdir().unwrap();
        let of = dependencies(directory.path());
        fs::create_dir(directory.path().join(format!("{PENDING_PREFIX}killed"))).unwrap();
        fs::create_dir(directory.path().join("somebody's")).unwrap();
        let key = |n: usize| format!("{n:064x}");
        let held = of.store_fetched(&key(0), &made(&of, "")).unwrap();
        for n in 1..=MOST_CACHED {
            of.store_fetched(&key(n), &made(&of, "")).unwrap();
        }
        drop(of.store_fetched(KEY, &made(&of, "")).unwrap());
        let there = |name: &str| directory.path().join(name).exists();
        assert!(
            there(&key(0)) && !there(&key(1)) && there(&key(MOST_CACHED)),
            "cleanup removed the wrong results"
        );
        assert!(there("somebody's") && !there(&format!("{PENDING_PREFIX}killed")));
        drop(held);
        // A child process of another test inherits our open files until it calls exec, so retry.
        let gone = |_| {
            drop(of.create_pending().unwrap());
            let gone = !there(&key(0));
            thread::sleep(Duration::from_millis(if gone { 0 } else { 10 }));
            gone
        };
        assert!((0..1_000).any(gone));
    }

    #[test]
    fn dependency_cache_key_differs_per_repository_and_lock_file() {
        let (tool, mut plan) = (Toolchain::default(), FetchPlan::default());
        plan.files = [("a".to_owned(), "text".to_owned()), ("b.rs".to_owned(), String::new())].into();
        let preset = &super::super::presets::GO;
        let of =
            |of: DependencyFetcher, plan: &FetchPlan| of.cache_key(preset, &tool, plan, &FileContents::new());
        let own = dependencies(Path::new("/c"));
        let key = of(own.clone(), &plan);
        assert_ne!(of(DependencyFetcher { repository: "b".to_owned(), ..own.clone() }, &plan), key);
        plan.files.remove("b.rs");
        assert_eq!(of(own.clone(), &plan), key);
        plan.files.insert("a".to_owned(), "texts".to_owned());
        assert_ne!(of(own, &plan), key);
    }

    #[test]
    fn dependency_cache_key_includes_the_operator_settings() {
        let home = tempfile::tempdir().unwrap();
        let of = |home| DependencyFetcher { home, ..dependencies(Path::new("/c")) };
        assert_eq!(of(None).home_files().unwrap(), FileContents::new());
        fs::create_dir_all(home.path().join(".cargo")).unwrap();
        fs::write(home.path().join(".cargo/config.toml"), "a").unwrap();
        let own = of(Some(home.path().to_owned()));
        let files = own.home_files().unwrap();
        assert_eq!(files, [(".cargo/config.toml".to_owned(), b"a".to_vec())].into());
        let key = |files| {
            own.cache_key(&super::super::presets::GO, &Toolchain::default(), &FetchPlan::default(), files)
        };
        assert_ne!(key(&files), key(&FileContents::new()));
        let (path, _) = of(Some(home.path().join("none"))).home_files().unwrap_err();
        assert_eq!(path, home.path().join("none"));
        let odd = home.path().join("odd");
        fs::write(&odd, vec![b'\xff'; 1 << 20]).unwrap();
        assert_eq!(own.home_files().unwrap_err().0, odd, "too large");
        fs::remove_file(&odd).unwrap();
        symlink("/dev/zero", &odd).unwrap();
        assert_eq!(own.home_files().unwrap_err().0, odd, "a link");
    }

    #[test]
    fn operator_keys_are_not_stored_with_fetched_dependencies() {
        let cache = tempfile::tempdir().unwrap();
        let of = dependencies(cache.path());
        let new = of.create_pending().unwrap();
        let home = new.path.join("made/home");
        let settings = new.link_settings(&home, &[(".a/key".to_owned(), b"secret".to_vec())].into()).unwrap();
        assert_eq!(fs::read_to_string(home.join(".a/key")).unwrap(), "secret");
        let kept = of.store_fetched(KEY, &new).unwrap();
        drop(new);
        assert!(!settings.exists() && !kept.path.join("home/.a/key").exists());
    }
}
