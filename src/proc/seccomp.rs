//! The system calls that a confined child is refused, because Landlock, or that of most kernels, has no rule for what they
//! do. Held by the kernel (seccomp); a filter sees a call's numbers, and no path.
//!
//! Two lists: one for the programs of models, which are ours to choose, and one for code of anybody.
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

/// Whatever they are about: who may read a file is changed by its owner and its access list; and what goes through a ring
/// is a call that no filter sees.
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
    // `setxattrat`, on each machine.
    463,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // `removexattrat`, likewise.
    466,
    libc::SYS_io_uring_setup,
];

/// What sets a file's mode, and which argument is the mode. Refused is a mode that opens something: a program writes its own
/// login with mode 600 when it gets a new one, and is lost where it can't.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    // `fchmodat2`, on each machine.
    (452, 2),
];

/// Each of these bits opens a file to others, or lends its owner's or its group's rights to whoever runs it.
const OPENING: &[i32] = &[0o4000, 0o2000, 0o40, 0o20, 0o10, 0o4, 0o2, 0o1];

/// What sends, and which argument is the flags. One of them connects as it sends, which no rule for ports sees.
const SENDING: &[(i64, u8)] = &[
    (libc::SYS_sendto, 3),
    (libc::SYS_sendmsg, 2),
    (libc::SYS_sendmmsg, 3),
    // The same two for x32, which has numbers of its own for them.
    #[cfg(target_arch = "x86_64")]
    (518 | X32, 2),
    #[cfg(target_arch = "x86_64")]
    (538 | X32, 3),
];

/// On machines that know x32, each call has a second number, which is the first with this bit unless a table says otherwise.
const X32: i64 = 0x4000_0000;

/// For code of anybody, whatever they are about: what looks into other processes, changes what is mounted, keeps keys, hands
/// the kernel programs, or is the kernel's own affair.
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

/// Namespaces that a new process may not get. They are asked for with flags here; what asks for them in memory, which no
/// filter sees, is not there.
const NAMESPACES: &[i32] =
    &[CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWUTS];

/// Calls that programs have another way for: `clone3` and `openat2`, whose arguments no filter sees; and `memfd_create` and
/// `memfd_secret`, whose memory nobody's account has while nobody maps it.
const ABSENT: &[i64] = &[libc::SYS_clone3, libc::SYS_openat2, libc::SYS_memfd_create, 447];

/// What is shared by a number and outlives who made it, and is in nobody's account meanwhile.
const LASTING: &[i64] = &[libc::SYS_shmget, libc::SYS_msgget, libc::SYS_semget, libc::SYS_mq_open];

/// In namespaces of its own it ends with them, and there can be no more than 4096 pieces of shared memory: each this large at
/// the most. Databases share a page so.
const SHARED_BYTES: u64 = 64 << 10;

/// What makes a file, which argument is its mode, and which has the flag that says so, where there is one.
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

/// From here on the calling thread, and what it starts, is answered `EPERM`.
pub(super) fn refuse_on_this_thread(calls: SyscallPolicy) -> Result<(), Box<dyn Error>> {
    let rules = match calls {
        SyscallPolicy::Program => program_rules()?,
        SyscallPolicy::Isolated | SyscallPolicy::Alone => {
            // No machine code of another kind: its calls have numbers of their own. The library sees to that for what the kernel
            // calls another architecture, and x32 is none to it.
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

/// Ends whoever makes a call whose number has the bit of x32.
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
    // Its files lie among the server's, where one that lends its owner's rights would lend the server's.
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
    // A connected pair is no way to a service, but for one of datagrams, which can be connected anew. A raw one is that, too.
    let pairs = [SOCK_DGRAM, SOCK_RAW].map(|kind| rule(vec![masked_condition(1, KIND, kind)?]));
    rules.insert(libc::SYS_socketpair, pairs.into_iter().collect::<Result<Vec<_>, _>>()?);
    rules.insert(libc::SYS_prlimit64, vec![foreign_limits_rule()?]);
    if cfg!(target_arch = "x86_64") {
        rules.extend(rules.clone().into_iter().map(|(call, rules)| (call | X32, rules)));
    }
    Ok(rules)
}

/// Limits of another process, ours included; its own it may set. The second is an address, and so twice as wide.
fn foreign_limits_rule() -> Result<SeccompRule, Box<dyn Error>> {
    let limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Is::Ne, 0)?;
    rule(vec![argument_condition(0, Is::Ne, 0)?, limits])
}

/// The bits that say which kind of socket it is; the rest are flags.
const KIND: i32 = 0xf;

/// Of sockets there are these families: the internet's, the kernel's own, and for some those of this machine. Of the internet's only TCP and UDP: the rules for ports
/// are for TCP, and what speaks TCP under another number (MPTCP), or something else, passes them by.
fn socket_rules(families: &[i32]) -> Result<Vec<SeccompRule>, Box<dyn Error>> {
    let families = families.iter().map(|family| argument_condition(0, Is::Ne, *family));
    let mut refused = vec![rule(families.collect::<Result<Vec<_>, _>>()?)?];
    for family in [AF_INET, AF_INET6] {
        let mut other = vec![argument_condition(0, Is::Eq, family)?];
        for protocol in [IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP] {
            other.push(argument_condition(2, Is::Ne, protocol)?);
        }
        refused.push(rule(other)?);
        // Without a number the kind decides, and each that is neither a stream (1) nor datagrams (2) nor raw (3), which is
        // root's, has one of these bits: SCTP and DCCP are such.
        for bit in [0b100, 0b1000] {
            refused.push(rule(vec![argument_condition(0, Is::Eq, family)?, masked_condition(1, bit, bit)?])?);
        }
    }
    Ok(refused)
}

/// That all of these hold.
fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Box<dyn Error>> {
    Ok(SeccompRule::new(conditions)?)
}

/// Of that argument, counted from 0, these bits are as in the value.
fn masked_condition(number: u8, bits: i32, value: i32) -> Result<SeccompCondition, Box<dyn Error>> {
    argument_condition(number, Is::MaskedEq(bits.cast_unsigned().into()), value)
}

/// Half of an argument is compared, for the kernel takes no more of a number.
fn argument_condition(number: u8, is: Is, value: i32) -> Result<SeccompCondition, Box<dyn Error>> {
    Ok(SeccompCondition::new(number, SeccompCmpArgLen::Dword, is, value.cast_unsigned().into())?)
}
