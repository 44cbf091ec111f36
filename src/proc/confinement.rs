//! Confinement of child processes. Landlock restricts the files and TCP ports that a child can access. A seccomp filter
//! refuses the few system calls that Landlock does not cover.
//!
//! Both permanently restrict the calling thread and everything started from it. So a confined child is started from a
//! thread created for it, and our other threads stay unrestricted. If the kernel does not support confinement, the
//! child is not started. A confined child also has no capabilities: with root's capabilities, it could read the
//! environment of every process, including ours.
//!
//! Two things are not restricted: UDP, and the host to which a child connects on an allowed TCP port.
//! [`missing_protections`] lists the protections that an older kernel lacks.

use std::path::PathBuf;

/// Access granted to a child, in addition to reading the system paths.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// Files that the child may read and execute, and directories whose contents it may read and execute. Paths that
    /// cannot be opened are skipped.
    pub read: Vec<PathBuf>,
    /// Files and directories that the child may also write. They must exist.
    pub write: Vec<PathBuf>,
    /// TCP ports that the child may connect to, on any host. It may not listen on any port.
    pub ports: Vec<u16>,
    /// Policy that determines which system calls are refused.
    pub calls: SyscallPolicy,
}

/// Set of system calls to refuse, which depends on the other restrictions of the child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SyscallPolicy {
    /// The child is a trusted program that runs as our own user.
    #[default]
    Program,
    /// The child is untrusted code in its own namespaces. It may use its own network namespace, which it shares with no
    /// other process.
    Isolated,
    /// The child is untrusted code that runs as its own user. It may not open any socket.
    Alone,
}

/// Paths that every program may read and execute. Only the parts of `/etc` for name resolution, certificates and the
/// linker are listed, because the rest may contain our settings, keys or passwords.
pub const SYSTEM_PATHS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    // The kernel hides memory, environment and open files of outside processes from a confined one.
    "/proc",
    // Number of processors and amount of memory.
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/passwd",
    "/etc/group",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/timezone",
    // Symlinks from program names to programs.
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/openssl.cnf",
    "/etc/crypto-policies",
];

/// Devices that every program may read and write. Terminals are not listed, because the only terminal would be the
/// operator's.
pub const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Checks whether this machine can confine a child, and caches the result. `Err` contains the reason why it cannot.
pub fn check_confinement() -> Result<(), String> {
    probe_kernel().as_ref().map(|_| ()).map_err(Clone::clone)
}

/// Returns descriptions of the protections that this kernel lacks and a newer one would offer.
pub fn missing_protections() -> Vec<&'static str> {
    let Ok((abi, filters)) = probe_kernel() else { return Vec::new() };
    let lacks = LATER_PROTECTIONS.iter().filter(|(first, _)| abi < first);
    lacks.map(|(_, what)| *what).chain((!filters).then_some(FILTERED)).collect()
}

/// Returns the ABI version of Landlock, and whether system calls can be filtered.
fn probe_kernel() -> &'static Result<(i32, bool), String> {
    static TRIED: std::sync::OnceLock<Result<(i32, bool), String>> = std::sync::OnceLock::new();
    TRIED.get_or_init(kernel::try_out)
}

/// Protections that later Landlock versions added, each with the first version that has it.
const LATER_PROTECTIONS: &[(i32, &str)] = &[
    (3, "emptying files that it may not write (Linux 6.2)"),
    (4, "connecting to any TCP port, those of this machine's services included (Linux 6.7)"),
    (6, "ending processes of the same user (Linux 6.12)"),
];

/// Description of the protections that the system call filter provides.
const FILTERED: &str = "speaking to sockets of this machine's services, such as Docker's or the session bus's, connecting to any \
                        port in ways that the rules for ports do not know, setting limits for other processes, and opening \
                        files of the server's user to others (seccomp, on x86-64, ARM64 and RISC-V)";

#[cfg(target_os = "linux")]
pub use kernel::confine_permanently;
#[cfg(target_os = "linux")]
pub(super) use kernel::confine_this_thread;

#[cfg(target_os = "linux")]
mod kernel {
    use std::{io, os::unix::net::UnixDatagram, path::Path, thread};

    use landlock::{
        ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
        PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
        RulesetStatus, Scope,
    };

    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    use super::{Confinement, DEVICES, SYSTEM_PATHS, SyscallPolicy, probe_kernel};
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    use crate::proc::seccomp::refuse_on_this_thread;

    /// Always fails, because this processor architecture has no filter.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    fn refuse_on_this_thread(_: SyscallPolicy) -> Result<(), Box<dyn std::error::Error>> {
        Err("no filter for this processor architecture".into())
    }

    const NEEDED: ABI = ABI::V1;
    /// Highest Landlock version that we use. An older kernel enforces only the restrictions that it supports.
    const WANTED: ABI = ABI::V9;

    /// Permanently confines the calling thread and everything started from it. If this machine cannot filter system
    /// calls, the filter is skipped, and `missing_protections` reports it. If it can, a failure to install the filter
    /// is an error.
    pub(in crate::proc) fn confine_this_thread(confinement: &Confinement) -> Result<(), String> {
        let (_, filters) = probe_kernel().as_ref().map_err(String::clone)?;
        restrict_this_thread(confinement)?;
        if *filters {
            refuse_on_this_thread(confinement.calls)
                .map_err(|error| format!("system calls can't be filtered: {error}"))?;
        }
        Ok(())
    }

    /// Confines a single-threaded process that is about to execute a command. Here, a missing system call filter is
    /// always an error.
    pub fn confine_permanently(confinement: &Confinement) -> Result<(), String> {
        restrict_this_thread(confinement)?;
        refuse_on_this_thread(confinement.calls)
            .map_err(|error| format!("system calls can't be filtered: {error}"))
    }

    /// Applies all restrictions except the system call filter. Returns the version of Landlock that is enforced.
    fn restrict_this_thread(confinement: &Confinement) -> Result<i32, String> {
        let rules = build_ruleset(confinement)?;
        let status = rules.restrict_self().map_err(|error| landlock_error(&error))?;
        if status.ruleset == RulesetStatus::NotEnforced {
            return Err("the kernel did not enforce the rules".into());
        }
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).map_err(|error| format!("capabilities can't be dropped: {error}"))?;
        Ok(match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
            LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => 0,
        })
    }

    fn build_ruleset(confinement: &Confinement) -> Result<RulesetCreated, String> {
        let read = AccessFs::from_read(WANTED);
        let device = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
        let write = AccessFs::from_all(WANTED) & !devices;
        let mut rules = empty_ruleset(confinement.calls).map_err(|error| landlock_error(&error))?;
        let system = SYSTEM_PATHS.iter().map(|path| (Path::new(path), read));
        let devices = DEVICES.iter().map(|path| (Path::new(path), device));
        let given = confinement.read.iter().map(|path| (path.as_path(), read));
        for (path, access) in system.chain(devices).chain(given) {
            // A path that can't be opened stays forbidden.
            if let Ok(opened) = PathFd::new(path) {
                rules = allow(rules, opened, path, access)?;
            }
        }
        for path in &confinement.write {
            let opened = PathFd::new(path).map_err(|error| error.to_string())?;
            rules = allow(rules, opened, path, write)?;
        }
        let ports = confinement.ports.iter().map(|port| Ok(NetPort::new(*port, AccessNet::ConnectTcp)));
        rules.add_rules(ports).map_err(|error: RulesetError| landlock_error(&error))
    }

    fn empty_ruleset(calls: SyscallPolicy) -> Result<RulesetCreated, RulesetError> {
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(NEEDED))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(WANTED))?
            .scope(Scope::from_all(WANTED))?;
        // An isolated child has its own network and may listen and connect there.
        match calls {
            SyscallPolicy::Isolated => rules,
            SyscallPolicy::Program | SyscallPolicy::Alone => {
                rules.handle_access(AccessNet::from_all(WANTED))?
            }
        }
        .create()
    }

    fn allow(
        rules: RulesetCreated,
        opened: PathFd,
        path: &Path,
        access: BitFlags<AccessFs>,
    ) -> Result<RulesetCreated, String> {
        // The kernel refuses directory-only rights on a file.
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(WANTED) };
        rules.add_rule(PathBeneath::new(opened, access)).map_err(|error| landlock_error(&error))
    }

    fn landlock_error(error: &RulesetError) -> String {
        format!(
            "{error}; Linux 5.13 or newer with Landlock is needed (`cat /sys/kernel/security/lsm` names it)"
        )
    }

    pub(super) fn try_out() -> Result<(i32, bool), String> {
        let trial = || {
            let abi = restrict_this_thread(&Confinement::default())?;
            let filters =
                refuse_on_this_thread(SyscallPolicy::Program).is_ok() && UnixDatagram::unbound().is_err();
            match std::fs::read_dir("/") {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok((abi, filters)),
                _ => Err("the kernel accepted the rules but does not enforce them".to_owned()),
            }
        };
        let thread =
            thread::Builder::new().spawn(trial).map_err(|error| format!("can't start a thread: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the trial panicked".into()))
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    pub(super) fn try_out() -> Result<(i32, bool), String> {
        Err("only Linux is supported (Landlock)".into())
    }
}
