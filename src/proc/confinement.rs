//! What of the file system a confined child sees, and where it may connect to, held by the kernel (Landlock); and the few
//! system calls that it is refused, because Landlock, or that of most kernels, has no rule for what they do (seccomp).
//!
//! A rule set or a filter binds the thread that takes it on and whatever that thread starts, for good. So a confined child is
//! started from a thread made for that, and ours stay free. Where the kernel cannot do it, nothing is started. It also
//! has none of root's capabilities: with them the kernel would show it the environment of every process, ours included.
//!
//! Not held by it: UDP, and whose TCP port it is that is connected to. What else an older kernel does not hold is in
//! [`missing_protections`].

use std::path::PathBuf;

/// What a child may touch, besides the system's own places, which it may read.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// Files, and directories with all in them, to read and to run. One that can't be opened is left out.
    pub read: Vec<PathBuf>,
    /// The same, also to be written. They must be there.
    pub write: Vec<PathBuf>,
    /// TCP ports that it may connect to, on any machine. It listens on none.
    pub ports: Vec<u16>,
    /// Which system calls are refused.
    pub calls: SyscallPolicy,
}

/// What system calls are refused to a child depends on what else holds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum SyscallPolicy {
    /// A program of somebody we trust not to want anything bad, under the user that we are.
    #[default]
    Program,
    /// Anybody's code, in namespaces of its own: it may have the network there, since there is nobody else in it.
    Isolated,
    /// Anybody's code, under a user of its own: without any socket.
    Alone,
}

/// Read and run by every program. Of `/etc` only what is needed for names, certificates and the linker: settings
/// of ours, keys and passwords of others may be there, too.
pub const SYSTEM_PATHS: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    // Of processes outside, a confined one is shown neither memory nor environment nor open files.
    "/proc",
    // How many processors and how much memory there are.
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
    "/etc/timezone",
    // Names of programs that lead to the programs.
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

/// Read and written by every program, and of no lasting effect. No terminal: it would be the operator's.
pub const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Can this machine confine a child? Tried out once; `Err` says why not.
pub fn check_confinement() -> Result<(), String> {
    probe_kernel().as_ref().map(|_| ()).map_err(Clone::clone)
}

/// What a newer kernel would keep a child from and this one does not.
pub fn missing_protections() -> Vec<&'static str> {
    let Ok((abi, filters)) = probe_kernel() else { return Vec::new() };
    let lacks = LATER_PROTECTIONS.iter().filter(|(first, _)| abi < first);
    lacks.map(|(_, what)| *what).chain((!filters).then_some(FILTERED)).collect()
}

/// Landlock's version, as the kernel counts it, and whether system calls are filtered.
fn probe_kernel() -> &'static Result<(i32, bool), String> {
    static TRIED: std::sync::OnceLock<Result<(i32, bool), String>> = std::sync::OnceLock::new();
    TRIED.get_or_init(kernel::try_out)
}

/// Since which version of Landlock what is held, where it is.
const LATER_PROTECTIONS: &[(i32, &str)] = &[
    (3, "emptying files that it may not write (Linux 6.2)"),
    (4, "connecting to any TCP port, those of this machine's services included (Linux 6.7)"),
    (6, "ending processes of the same user (Linux 6.12)"),
];

/// What the filter holds.
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

    /// For other machines there is no filter.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    fn refuse_on_this_thread(_: SyscallPolicy) -> Result<(), Box<dyn std::error::Error>> {
        Err("no filter is made for this kind of processor".into())
    }

    /// Without these there is no confinement.
    const NEEDED: ABI = ABI::V1;
    /// What a newer kernel adds is taken as far as it goes.
    const WANTED: ABI = ABI::V9;

    /// From here on the calling thread, and what it starts, sees no more than that. Where the machine filters no system
    /// calls at all, none are filtered, and `confinement_lacks` says so; where it does, no call goes without the filter.
    pub(in crate::proc) fn confine_this_thread(confinement: &Confinement) -> Result<(), String> {
        let (_, filters) = probe_kernel().as_ref().map_err(String::clone)?;
        restrict_this_thread(confinement)?;
        if *filters {
            refuse_on_this_thread(confinement.calls)
                .map_err(|error| format!("system calls can't be filtered: {error}"))?;
        }
        Ok(())
    }

    /// The same for a process that has no other thread yet and is about to become something else; nothing is left out.
    pub fn confine_permanently(confinement: &Confinement) -> Result<(), String> {
        restrict_this_thread(confinement)?;
        refuse_on_this_thread(confinement.calls)
            .map_err(|error| format!("system calls can't be filtered: {error}"))
    }

    /// All of it but the filter; Landlock's version.
    fn restrict_this_thread(confinement: &Confinement) -> Result<i32, String> {
        let rules = build_ruleset(confinement)?;
        let status = rules.restrict_self().map_err(|error| landlock_error(&error))?;
        if status.ruleset == RulesetStatus::NotEnforced {
            return Err("the kernel did not take the rules".into());
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
            // What can't be opened is not opened up to the child either.
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
        // In a network of its own it may listen and connect.
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
        // A right that only makes sense for a directory is refused for a file.
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
                _ => Err("the kernel took the rules and does not hold to them".to_owned()),
            }
        };
        let thread = thread::Builder::new().spawn(trial).map_err(|error| format!("no thread: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the trial of it panicked".into()))
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    pub(super) fn try_out() -> Result<(i32, bool), String> {
        Err("only Linux has what it takes (Landlock)".into())
    }
}
