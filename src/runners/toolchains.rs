//! Finds the toolchains of this machine by running them. They run outside any repository, because files of a repository
//! could change their output.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{Mode, open, symlinkat};
use tokio_util::sync::CancellationToken;

use super::overlay;
use crate::{
    git,
    proc::{ChildCommand, ProcError},
    sandbox::{Level, Sandbox, SandboxCommand, SandboxError, ScratchDirectory},
};

/// Time limit for a tool to print its version. Long enough for a very busy machine.
const TRIAL: Duration = Duration::from_secs(60);

/// Environment variables of the server that toolchains need to find their files.
const PASSED_ON: &[&str] = &[
    "HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOROOT",
    "GOPATH",
    "GOMODCACHE",
    "PYENV_ROOT",
];

/// Search path for the system programs that tests may run.
pub(super) const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(super) struct ToolchainProbe {
    pub(super) language: &'static str,
    pub(super) program: &'static str,
    pub(super) args: &'static [&'static str],
    /// Arguments that make the tool print its version on the first line. The `program` of the found [`Toolchain`]
    /// accepts the same arguments.
    pub(super) version: &'static [&'static str],
    /// Oldest supported version, as major and minor number; `(0, 0)` if every version is supported.
    pub(super) oldest: (u32, u32),
    /// Error message if the tool is missing or too old.
    pub(super) missing: &'static str,
    pub(super) tool: fn(&[&str]) -> Option<Toolchain>,
}

/// A toolchain that is installed on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Toolchain {
    pub(super) program: PathBuf,
    /// Paths outside the system's folders that the toolchain reads.
    pub(super) read: Vec<PathBuf>,
    /// Links to create in the home directory of the toolchain's programs: relative path of each link, and the link's
    /// target.
    pub(super) home: Vec<(&'static str, PathBuf)>,
    /// Folder tree whose `node_modules` folders are linked into the tests' tree.
    pub(super) modules: Option<PathBuf>,
    /// Folder tree with the lock files that a fetch wrote. Those that the tests' tree lacks are copied into it.
    pub(super) locks: Option<PathBuf>,
    /// Folders with fetched Python packages.
    pub(super) sites: Vec<PathBuf>,
    /// Prebuilt standard library. Each run works on its own copy.
    pub(super) built: Option<PathBuf>,
    pub(super) environment: Vec<(&'static str, String)>,
    /// Version output of the tool: the first line is the version; further lines describe the tool's target.
    pub(super) version: String,
}

impl Toolchain {
    /// Links the toolchain's files into a home directory and a tree. Must be called once, before anything runs there,
    /// because tests may replace any folder by a symlink.
    pub(super) fn link_into(&self, home: &Path, tree: &Path) -> io::Result<()> {
        for (name, target) in &self.home {
            let link = home.join(name);
            link.parent().map_or(Ok(()), fs::create_dir_all)?;
            symlink(target, link)?;
        }
        if let Some(made) = &self.locks {
            copy_locks(made, made, tree)?;
        }
        let Some(made) = &self.modules else { return Ok(()) };
        link_modules(made, &open(tree, overlay::FOLDER, Mode::empty())?, 0)
    }
}

impl ToolchainProbe {
    pub(super) async fn find(&self, cancel: &CancellationToken) -> Result<Toolchain, String> {
        let output = self.run_probe(self.args, cancel).await?;
        let lines: Vec<&str> = output.lines().map(str::trim).collect();
        let tool = (self.tool)(&lines);
        let tool =
            tool.ok_or_else(|| format!("{}: `{}` printed nothing usable", self.missing, self.program))?;
        let version = self.run_probe(self.version, cancel).await?;
        let line = version.lines().next().unwrap_or_default();
        if parse_version(line) < self.oldest && !line.contains("devel") {
            return Err(format!("{}: this machine has {line}", self.missing));
        }
        Ok(Toolchain { version, ..tool })
    }

    /// Runs the tool in the sandbox once. This trial is needed because the sandbox uses another user if we are root. At
    /// the basic level, that user cannot run a program in a private home directory.
    ///
    /// # Errors
    ///
    /// Returns the reason why the tool does not run in the sandbox, and a suggested fix.
    pub(super) async fn try_in_sandbox(
        &self,
        sandbox: &Sandbox,
        tool: &Toolchain,
        cancel: &CancellationToken,
    ) -> Result<(), String> {
        if sandbox.has_run(&tool.program) {
            return Ok(());
        }
        let tree = ScratchDirectory::new().map_err(|error| error.to_string())?;
        let mut run = SandboxCommand::new(&tool.program, tree.path());
        run.args = self.version.iter().map(Into::into).collect();
        run.read.clone_from(&tool.read);
        run.limits.time = TRIAL;
        let why = match sandbox.run(run, cancel).await {
            Ok(ended) if ended.end.success() => {
                sandbox.remember_run(&tool.program);
                return Ok(());
            }
            Ok(ended) => ended.stderr.text().lines().next_back().map_or(ended.end.to_string(), str::to_owned),
            Err(SandboxError::Failed { why }) => {
                let named = format!("`{}`: ", tool.program.display());
                why.strip_prefix(&named).unwrap_or(&why).to_owned()
            }
            Err(error) => error.to_string(),
        };
        let bubblewrap = match sandbox.level() {
            Level::Basic => "`apt install bubblewrap` and restart, or ",
            Level::Full | Level::None => "",
        };
        Err(format!(
            "the sandbox's user cannot run {} ({why}); {bubblewrap}install {} where every user may read it",
            tool.program.display(),
            self.language
        ))
    }

    /// Returns a one-line description of the toolchain of this machine.
    ///
    /// # Errors
    ///
    /// Returns the name of the missing tool and how to install it.
    pub(super) async fn describe(
        &self,
        sandbox: Option<&Sandbox>,
        cancel: &CancellationToken,
    ) -> Result<String, String> {
        let tool = self.find(cancel).await?;
        if let Some(sandbox) = sandbox {
            self.try_in_sandbox(sandbox, &tool, cancel).await?;
        }
        Ok(format!("{}, {}", tool.version.lines().next().unwrap_or_default(), tool.program.display()))
    }

    async fn run_probe(&self, args: &[&str], cancel: &CancellationToken) -> Result<String, String> {
        let command = ChildCommand::new(self.program).args(args).current_dir("/");
        let known = PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        let command = known.fold(command, |command, (name, value)| command.env(name, value));
        let lacking = |why: &str| format!("{}: {why}", self.missing);
        match command.run(cancel).await {
            Ok(output) if output.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            Ok(output) => Err(lacking(output.stderr_text().lines().next_back().unwrap_or_default())),
            Err(ProcError::NotFound { .. }) => Err(lacking(&format!("`{}` is not in PATH", self.program))),
            Err(error) => Err(lacking(&error.to_string())),
        }
    }
}

/// Returns the major and minor number of the first version in a line such as `go version go1.24.3 linux/amd64`.
fn parse_version(line: &str) -> (u32, u32) {
    let from = line.find(|c: char| c.is_ascii_digit()).unwrap_or(line.len());
    let mut parts = line[from..].split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Returns the folder that the environment variable names. If the variable is unset, returns the default folder `name`
/// in the server's home directory.
pub(super) fn home_folder(variable: &str, name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(name)))
}

/// Whether tests may read the whole folder of a toolchain. They may not if the folder contains our home directory: a
/// toolchain in `~/bin` reports the home directory as its folder.
pub(super) fn is_safe_to_share(folder: &Path) -> bool {
    let home = home_folder("HOME", "").unwrap_or_else(|| "/".into());
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    !real(&home).starts_with(real(folder))
}

/// Returns the files in `/etc` that Debian's Java and Maven read when they start. All other files of these folders are
/// left out, because they may contain passwords.
pub(super) fn java_config_files(etc: &Path) -> Vec<PathBuf> {
    let entries =
        |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named =
        |path: &Path, is: fn(&str) -> bool| path.file_name().and_then(|name| name.to_str()).is_some_and(is);
    let java = entries(etc).filter(|path| named(path, |name| name.starts_with("java-")));
    let java = java.flat_map(|path| entries(&path)).filter(|path| !named(path, |name| name == "management"));
    java.chain(["maven/m2.conf", "maven/logging"].map(|name| etc.join(name))).collect()
}

/// Copies the `Cargo.lock` files below `folder`, which is below `made`, to the same places in the tree, if they are missing
/// there.
fn copy_locks(made: &Path, folder: &Path, tree: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let (path, kind) = (entry.path(), entry.file_type()?);
        let name = path.strip_prefix(made).unwrap_or(&path);
        if kind.is_dir() {
            copy_locks(made, &path, tree)?;
        } else if kind.is_file()
            && entry.file_name() == "Cargo.lock"
            && tree.join(name).symlink_metadata().is_err()
            && let Some(name) = name.to_str()
        {
            overlay::write_overlay_file(tree, name, Some(&fs::read(&path)?))?;
        }
    }
    Ok(())
}

/// Links the entries of fetched `node_modules` folders into the tree; `depth` is the current depth below the root of
/// the tree. Each `node_modules` becomes a regular folder that contains links, because tools write state next to the
/// modules. Symlinks in the commit are not followed, because they may lead anywhere.
fn link_modules(made: &Path, tree: &OwnedFd, depth: usize) -> io::Result<()> {
    let folders = fs::read_dir(made)?.flatten();
    for entry in folders.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let (from, to) = (entry.path(), overlay::open_subfolder(tree, &*entry.file_name(), true)?);
        if entry.file_name() != "node_modules" {
            link_modules(&from, &to, depth + 1)?;
            continue;
        }
        link_entries(&from, &to, depth + 1)?;
    }
    Ok(())
}

/// Links the entries of one `node_modules` folder, or of a scope folder (`@scope`) inside it.
fn link_entries(from: &Path, to: &OwnedFd, depth: usize) -> io::Result<()> {
    for module in fs::read_dir(from)?.flatten() {
        let (path, name) = (module.path(), module.file_name());
        if name.as_encoded_bytes().starts_with(b"@") && module.file_type()?.is_dir() {
            link_entries(&path, &overlay::open_subfolder(to, &*name, true)?, depth + 1)?;
            continue;
        }
        // A link among the modules leads to one of the project's own packages, which are in the tree, or to pnpm's
        // folder of packages, which is linked as well.
        let target = match fs::read_link(&path) {
            Ok(target) if !git::stays_within(depth, &target) => {
                let why = format!("the link {name:?} leads out of the repository");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            target => target.unwrap_or(path),
        };
        symlinkat(target, to, &*name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn outdated_toolchain_is_refused_with_a_hint() {
        for (line, expected) in [
            ("go version go1.19.8 linux/amd64", (1, 19)),
            ("v20.20.2", (20, 20)),
            ("rustc 1.95.0", (1, 95)),
            ("", (0, 0)),
        ] {
            assert_eq!(parse_version(line), expected, "{line}");
        }
        let probe = |oldest| ToolchainProbe {
            language: "Go",
            program: "echo",
            args: &["/usr"],
            version: &["go version go1.19.8"],
            oldest,
            missing: "Go's tests need Go 1.24 or newer",
            tool: |lines| Some(Toolchain { program: lines.first()?.into(), ..Toolchain::default() }),
        };
        let cancel = CancellationToken::new();
        let refused = probe((1, 24)).find(&cancel).await.unwrap_err();
        assert_eq!(refused, "Go's tests need Go 1.24 or newer: this machine has go version go1.19.8");
        assert!(probe((1, 19)).find(&cancel).await.is_ok());
    }

    /// `node_modules` must be a writable folder, because tools write state next to the modules. The project's own
    /// packages must come from the tree.
    #[test]
    fn dependencies_are_linked_into_a_writable_node_modules_folder_of_the_run() {
        let (made, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in ["node_modules/a", "node_modules/@b/c", "packages/w/node_modules/a"] {
            fs::create_dir_all(made.path().join(folder)).unwrap();
        }
        symlink("../packages/w", made.path().join("node_modules/w")).unwrap();
        symlink("../../packages/w", made.path().join("node_modules/@b/w")).unwrap();
        fs::create_dir_all(tree.path().join("packages/w")).unwrap();
        let tool = Toolchain { modules: Some(made.path().to_owned()), ..Toolchain::default() };
        tool.link_into(&tree.path().join("home"), tree.path()).unwrap();
        let leads = |path: &str| fs::read_link(tree.path().join(path)).unwrap();
        assert_eq!(leads("node_modules/a"), made.path().join("node_modules/a"));
        assert_eq!(leads("node_modules/@b/c"), made.path().join("node_modules/@b/c"));
        assert_eq!(leads("node_modules/@b/w"), Path::new("../../packages/w"));
        assert_eq!(leads("node_modules/w"), Path::new("../packages/w"));
        assert_eq!(leads("packages/w/node_modules/a"), made.path().join("packages/w/node_modules/a"));
        fs::create_dir(tree.path().join("node_modules/.cache")).unwrap();
        assert!(!made.path().join("node_modules/.cache").exists());
    }

    #[test]
    fn java_config_files_shown_to_the_sandbox_exclude_password_files() {
        let etc = tempfile::tempdir().unwrap();
        for file in
            ["java-17-openjdk/jvm.cfg", "java-17-openjdk/management/jmxremote.password", "maven/settings.xml"]
        {
            fs::create_dir_all(etc.path().join(file).parent().unwrap()).unwrap();
            fs::write(etc.path().join(file), "").unwrap();
        }
        let shown = java_config_files(etc.path());
        let shown: Vec<_> =
            shown.iter().map(|path| path.strip_prefix(etc.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(shown, ["java-17-openjdk/jvm.cfg", "maven/m2.conf", "maven/logging"]);
    }

    #[test]
    fn node_modules_symlinks_never_point_outside_the_tree() {
        for (links, made_links) in [
            (&[("packages/w/node_modules", "../../node_modules/x")][..], &[("node_modules/x", "../OUT")][..]),
            (&[("packages/w/node_modules", "../../node_modules/x")], &[("node_modules/x", "../packages/v")]),
            (&[("packages/w", "OUT")], &[]),
            (&[("node_modules", "OUT")], &[]),
            (&[], &[("packages/w/node_modules/x", "../../../../OUT")]),
            (&[], &[("node_modules/x", "../packages/w/../../../OUT")]),
            (&[], &[("node_modules/x", "/OUT")]),
        ] {
            let all = tempfile::tempdir().unwrap();
            let [made, tree, out] = ["made", "tree", "out"].map(|name| all.path().join(name));
            let link = |root: &Path, (at, target): &(&str, &str)| {
                let (at, target) = (root.join(at), target.replace("OUT", "../out"));
                fs::create_dir_all(at.parent().unwrap()).unwrap();
                symlink(target, at).unwrap();
            };
            for folder in [&made.join("packages/w/node_modules/a"), &made.join("node_modules/a"), &tree, &out]
            {
                fs::create_dir_all(folder).unwrap();
            }
            links.iter().for_each(|it| link(&tree, it));
            made_links.iter().for_each(|it| link(&made, it));
            let tool = Toolchain { modules: Some(made), ..Toolchain::default() };
            let put = tool.link_into(&all.path().join("home"), &tree);
            assert!(put.is_err(), "{links:?} {made_links:?}");
            assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "{links:?} {made_links:?}");
            assert!(!tree.join("packages/v").exists(), "{links:?} {made_links:?}");
        }
    }
}
