//! Builds the command line of bubblewrap.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use super::{NetworkAccess, SandboxCommand, inner_stage, run_user};
use crate::proc::{DEVICES, SYSTEM_PATHS};

/// Path of our own executable inside the sandbox.
const OWN: &str = "/run/countersign";

/// Builds the arguments. Everything is mounted read-only except the work tree, the writable directories, `/tmp` and
/// `/dev/shm`. `/tmp` and `/dev/shm` are in memory, so their contents count towards the memory limit.
///
/// The command, its environment and its writable paths are sent on stdin instead, because any user of the machine can
/// read a command line.
///
/// If `root` is set, bubblewrap creates no user namespace, because such a namespace would map only one user. Our
/// executable then switches to the other user inside the sandbox.
pub(super) fn arguments(run: &SandboxCommand, own: &Path, names: &Path, root: bool) -> Vec<OsString> {
    let mut all = BubblewrapArguments::default();
    for own in ["ipc", "pid", "net", "uts", "cgroup-try"] {
        all.push(&[&format!("--unshare-{own}")]);
    }
    let id = run_user::INSIDE.to_string();
    if root {
        all.push(&[&"--cap-drop", &"ALL", &"--cap-add", &"CAP_SETUID", &"--cap-add", &"CAP_SETGID"]);
    } else {
        all.push(&[&"--unshare-user", &"--uid", &id, &"--gid", &id, &"--cap-drop", &"ALL"]);
    }
    // The inner stage needs this capability to limit the number of files in `/tmp`; it then drops it.
    all.push(&[
        &"--cap-add",
        &"CAP_SYS_ADMIN",
        &"--hostname",
        &"sandbox",
        &"--die-with-parent",
        &"--new-session",
    ]);
    for path in SYSTEM_PATHS.iter().filter(|path| !matches!(**path, "/proc" | "/etc/passwd" | "/etc/group")) {
        all.bind("--ro-bind-try", path, path);
    }
    for name in ["passwd", "group"] {
        all.bind("--ro-bind", names.join(name), format!("/etc/{name}"));
    }
    all.push(&[&"--proc", &"/proc", &"--tmpfs", &"/dev"]);
    for device in DEVICES {
        all.push(&[&"--dev-bind", device, device]);
    }
    for (target, link) in [("fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr")] {
        all.push(&[&"--symlink", &format!("/proc/self/{target}"), &format!("/dev/{link}")]);
    }
    let size = run.limits.in_memory_bytes().to_string();
    for path in inner_stage::IN_MEMORY {
        all.push(&[&"--perms", &"1777", &"--size", &size, &"--tmpfs", &path]);
    }
    for path in &run.read {
        all.bind("--ro-bind-try", path, path);
    }
    for path in run.write.iter().chain([&run.tree]) {
        all.bind("--bind", path, path);
    }
    if let NetworkAccess::Proxy(socket) = &run.network {
        all.bind("--ro-bind", socket, inner_stage::WAY_OUT.0);
    }
    all.bind("--ro-bind", own, OWN);
    all.push(&[&"--remount-ro", &"/dev", &"--remount-ro", &"/"]);
    // Root without capabilities cannot enter the tree, which belongs to another user. The inner stage enters it as that
    // user.
    all.push(&[&"--chdir", &"/", &"--", &OWN, &inner_stage::INNER_STAGE_COMMAND]);
    all.args
}

#[derive(Default)]
struct BubblewrapArguments {
    args: Vec<OsString>,
    /// Directories that earlier arguments already create inside the sandbox.
    made: BTreeSet<PathBuf>,
}

impl BubblewrapArguments {
    fn push(&mut self, words: &[&dyn AsRef<OsStr>]) {
        self.args.extend(words.iter().map(|word| word.as_ref().to_owned()));
    }

    /// Adds a mount. First adds arguments that create the parent directories of the mount point, because only root
    /// could access parent directories that bubblewrap creates on its own.
    fn bind(&mut self, how: &str, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        let (from, to) = (from.as_ref(), to.as_ref());
        let above: Vec<&Path> = to.ancestors().skip(1).filter(|above| above.parent().is_some()).collect();
        for above in above.into_iter().rev() {
            if self.made.insert(above.to_owned()) {
                self.push(&[&"--dir", &above]);
            }
        }
        self.push(&[&how, &from, &to]);
    }
}

/// Appends a suggested fix to the error message of a failed trial run.
pub(super) fn remedy(why: &str) -> String {
    let help = if why.contains("was not found") {
        "install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)"
    } else if why.contains("amespace") || why.contains("uid map") || why.contains("permitted") {
        "allow it to create user namespaces (`sysctl kernel.unprivileged_userns_clone=1`, or on Ubuntu \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; in Docker `--security-opt seccomp=unconfined \
         --security-opt systempaths=unconfined`, and a server that is not root)"
    } else {
        "try `bwrap --unshare-all --ro-bind / / true` by hand"
    };
    format!("bubblewrap does not work: {why}; {help}")
}
