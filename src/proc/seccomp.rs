//! System calls refused to a confined child because Landlock does not cover them, or not in the version of most
//! kernels. A seccomp filter sees the numeric arguments of a call, but no paths.
//!
//! There are two lists of calls: one for model programs, which we choose, and one for untrusted code.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]

use std::{collections::BTreeMap, error::Error};

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, AF_UNIX, CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS,
    CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS, ENOSYS, EPERM, IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP,
    MSG_FASTOPEN, O_CREAT, S_ISGID, S_ISUID, SOCK_DGRAM, SOCK_RAW,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use super::confinement::SyscallPolicy;

type SeccompRules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls refused to model programs with any arguments. They are the calls that change a file's owner or extended
/// attributes, and thereby who may read the file, and `io_uring`, whose operations bypass filters.
const REFUSED: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    // `setxattrat`; the same number on all architectures.
    463,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // `removexattrat`; the same number on all architectures.
    466,
    libc::SYS_io_uring_setup,
];

/// Calls that set a file's mode, with the index of the mode argument. Modes with one of the `OPENING` bits are refused.
/// Other modes are allowed, because programs must be able to save a renewed login with mode 600.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    // `fchmodat2`; the same number on all architectures.
    (452, 2),
];

/// Mode bits that give other users access to a file, or make the file setuid or setgid.
const OPENING: &[i32] = &[0o4000, 0o2000, 0o40, 0o20, 0o10, 0o4, 0o2, 0o1];

/// Calls that send data, with the index of the flags argument. The flag `MSG_FASTOPEN` opens a connection while
/// sending, which Landlock's port rules do not check.
const SENDING: &[(i64, u8)] = &[
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
    // `sendmsg` and `sendmmsg` for x32, which has its own numbers for them.
    #[cfg(target_arch = "x86_64")]
    (518 | X32, 2),
    #[cfg(target_arch = "x86_64")]
    (538 | X32, 3),
];

/// Bit that marks an x32 call. The number of an x32 call is the x86-64 number plus this bit, except for a few calls
/// with numbers of their own.
const X32: i64 = 0x4000_0000;

/// Calls refused to untrusted code with any arguments. They inspect other processes, change mounts, manage keys, load
/// programs into the kernel, or administer the system.
const REFUSED_TO_ALL: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_vhangup,
];

/// Flags of the namespaces that untrusted code may not create. `clone` receives them as an argument, which the filter
/// checks. `clone3` receives them in memory, which no filter can read; therefore the whole call is in [`ABSENT`].
const NAMESPACES: &[i32] =
    &[CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS];

/// Calls that fail with `ENOSYS`, because programs then use a fallback. The arguments of `clone3` and `openat2` are in
/// memory, which no filter can read. Memory from `memfd_create` and `memfd_secret` that is not mapped is not counted
/// for any process.
const ABSENT: &[i64] = &[libc::SYS_clone3, libc::SYS_openat2, libc::SYS_memfd_create, 447];

/// Calls that create shared objects. These objects outlive the process, and their memory is not counted for any
/// process.
const LASTING: &[i64] = &[libc::SYS_shmget, libc::SYS_msgget, libc::SYS_semget, libc::SYS_mq_open];

/// Maximum number of bytes of a shared memory segment in an IPC namespace. A namespace has at most 4096 segments, which
/// are removed when the namespace ends. Databases need only one page.
const SHARED_BYTES: u64 = 64 << 10;

/// Calls that create a file, with the index of the mode argument. If the call has a flags argument with `O_CREAT`, its
/// index follows.
const MAKING: &[(i64, u8, Option<u8>)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1, None),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2, Some(1)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1, None),
    (libc::SYS_openat, 3, Some(2)),
    (libc::SYS_mknodat, 2, None),
];

/// Installs a filter on the calling thread and everything started from it. With this filter, the refused calls fail
/// with `EPERM`.
pub(super) fn refuse_on_this_thread(calls: SyscallPolicy) -> Result<(), Box<dyn Error>> {
    let rules = match calls {
        SyscallPolicy::Program => program_rules()?,
        SyscallPolicy::Isolated | SyscallPolicy::Alone => {
            // Kill x32 code, whose calls have other numbers. The filter library handles foreign architectures, but the
            // kernel does not count x32 as one.
            #[cfg(target_arch = "x86_64")]
            apply_filter(&without_x32())?;
            let absent = ABSENT.iter().map(|call| (*call, Vec::new())).collect();
            apply_rules(absent, ENOSYS)?;
            untrusted_rules(calls)?
        }
    };
    apply_rules(rules, EPERM)
}

fn apply_rules(rules: SeccompRules, answer: i32) -> Result<(), Box<dyn Error>> {
    let (refused, here) = (SeccompAction::Errno(answer.cast_unsigned()), std::env::consts::ARCH.try_into()?);
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refused, here)?.try_into()?;
    Ok(apply_filter(&program)?)
}

/// Returns a filter that kills a process on any call with the x32 bit.
#[cfg(target_arch = "x86_64")]
fn without_x32() -> BpfProgram {
    use seccompiler::sock_filter;
    let (load, at_least, answer) = (0x20, 0x35, 0x06);
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(load, 0, 0, 0),
        step(at_least, 0, 1, 0x4000_0000),
        step(answer, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
        step(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]
}

fn untrusted_rules(calls: SyscallPolicy) -> Result<SeccompRules, Box<dyn Error>> {
    let mut rules: SeccompRules = REFUSED_TO_ALL.iter().map(|call| (*call, Vec::new())).collect();
    let flagged = NAMESPACES.iter().map(|flag| rule(vec![masked_condition(0, *flag, *flag)?]));
    rules.insert(libc::SYS_clone, flagged.collect::<Result<_, _>>()?);
    // Its files are among the server's, so a setuid or setgid file would lend the server's rights.
    let lending = [S_ISUID, S_ISGID].map(u32::cast_signed);
    for (call, mode) in MODES {
        let lent = lending.iter().map(|bit| rule(vec![masked_condition(*mode, *bit, *bit)?]));
        rules.insert(*call, lent.collect::<Result<_, _>>()?);
    }
    for (call, mode, flags) in MAKING {
        let made = lending.iter().map(|bit| {
            let mode = masked_condition(*mode, *bit, *bit)?;
            let makes = flags.map(|flags| masked_condition(flags, O_CREAT, O_CREAT)).transpose()?;
            rule(makes.into_iter().chain([mode]).collect())
        });
        rules.insert(*call, made.collect::<Result<_, _>>()?);
    }
    let sockets = match calls {
        SyscallPolicy::Alone => {
            rules.extend(LASTING.iter().map(|call| (*call, Vec::new())));
            Vec::new()
        }
        _ => socket_rules(&[AF_INET, AF_INET6, AF_NETLINK, AF_UNIX])?,
    };
    if calls == SyscallPolicy::Isolated {
        let large = SeccompCondition::new(1, SeccompCmpArgLen::Qword, Is::Gt, SHARED_BYTES)?;
        rules.insert(libc::SYS_shmget, vec![rule(vec![large])?]);
    }
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_prlimit64, vec![foreign_limits_rule()?]);
    Ok(rules)
}

fn program_rules() -> Result<SeccompRules, Box<dyn Error>> {
    let mut rules: SeccompRules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for (call, mode) in MODES {
        let opening = OPENING.iter().map(|bit| rule(vec![masked_condition(*mode, *bit, *bit)?]));
        rules.insert(*call, opening.collect::<Result<Vec<_>, _>>()?);
    }
    for (call, flags) in SENDING {
        rules.insert(*call, vec![rule(vec![masked_condition(*flags, MSG_FASTOPEN, MSG_FASTOPEN)?])?]);
    }
    rules.insert(libc::SYS_socket, socket_rules(&[AF_INET, AF_INET6, AF_NETLINK])?);
    // A socket pair reaches a service only if it can be connected again, as datagram and raw pairs can.
    let pairs = [SOCK_DGRAM, SOCK_RAW].map(|kind| rule(vec![masked_condition(1, KIND, kind)?]));
    rules.insert(libc::SYS_socketpair, pairs.into_iter().collect::<Result<Vec<_>, _>>()?);
    rules.insert(libc::SYS_prlimit64, vec![foreign_limits_rule()?]);
    if cfg!(target_arch = "x86_64") {
        rules.extend(rules.clone().into_iter().map(|(call, rules)| (call | X32, rules)));
    }
    Ok(rules)
}

/// Returns the rule that refuses `prlimit64` calls that set the limits of any process other than the caller, such as
/// the bot's. The new-limits argument is a pointer, so all 64 bits are compared.
fn foreign_limits_rule() -> Result<SeccompRule, Box<dyn Error>> {
    let limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Is::Ne, 0)?;
    rule(vec![argument_condition(0, Is::Ne, 0)?, limits])
}

/// Bits of the type argument that contain the socket type. The other bits are flags.
const KIND: i32 = 0xf;

/// Returns rules that refuse all sockets whose family is not in `families`. Internet sockets may only use TCP or UDP,
/// because Landlock's port rules cover only TCP, and MPTCP or other protocols would bypass them.
fn socket_rules(families: &[i32]) -> Result<Vec<SeccompRule>, Box<dyn Error>> {
    let families = families.iter().map(|family| argument_condition(0, Is::Ne, *family));
    let mut refused = vec![rule(families.collect::<Result<Vec<_>, _>>()?)?];
    for family in [AF_INET, AF_INET6] {
        let mut other = vec![argument_condition(0, Is::Eq, family)?];
        for protocol in [IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP] {
            other.push(argument_condition(2, Is::Ne, protocol)?);
        }
        refused.push(rule(other)?);
        // With protocol 0 the socket type decides. Types other than stream (1), datagram (2) and raw (3, root only)
        // have one of these bits, such as those of SCTP and DCCP.
        for bit in [0b100, 0b1000] {
            refused.push(rule(vec![argument_condition(0, Is::Eq, family)?, masked_condition(1, bit, bit)?])?);
        }
    }
    Ok(refused)
}

/// Returns a rule that matches if all conditions are met.
fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Box<dyn Error>> {
    Ok(SeccompRule::new(conditions)?)
}

/// Returns a condition on argument `number`, counted from 0: its bits selected by the mask `bits` must equal `value`.
fn masked_condition(number: u8, bits: i32, value: i32) -> Result<SeccompCondition, Box<dyn Error>> {
    argument_condition(number, Is::MaskedEq(bits.cast_unsigned().into()), value)
}

/// Returns a condition on the lower 32 bits of an argument, because the kernel reads only these bits of an `int`
/// argument.
fn argument_condition(number: u8, is: Is, value: i32) -> Result<SeccompCondition, Box<dyn Error>> {
    Ok(SeccompCondition::new(number, SeccompCmpArgLen::Dword, is, value.cast_unsigned().into())?)
}
