//! The system calls that a confined child is refused, because Landlock, or that of most kernels, has no rule for what they
//! do. Held by the kernel (seccomp); a filter sees a call's numbers, and no path.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]

use std::{collections::BTreeMap, error::Error};

use libc::{
    AF_INET, AF_INET6, AF_NETLINK, EPERM, IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP, MSG_FASTOPEN, SOCK_DGRAM,
    SOCK_RAW,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

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

/// From here on the calling thread, and what it starts, is answered `EPERM`.
pub(super) fn refuse_on_this_thread() -> Result<(), Box<dyn Error>> {
    let mut rules: BTreeMap<_, _> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    for (call, mode) in MODES {
        let opening = OPENING.iter().map(|bit| rule(vec![masked(*mode, *bit, *bit)?]));
        rules.insert(*call, opening.collect::<Result<Vec<_>, _>>()?);
    }
    for (call, flags) in SENDING {
        rules.insert(*call, vec![rule(vec![masked(*flags, MSG_FASTOPEN, MSG_FASTOPEN)?])?]);
    }
    rules.insert(libc::SYS_socket, sockets()?);
    // A connected pair is no way to a service, but for one of datagrams, which can be connected anew. A raw one is that, too.
    let pairs = [SOCK_DGRAM, SOCK_RAW].map(|kind| rule(vec![masked(1, KIND, kind)?]));
    rules.insert(libc::SYS_socketpair, pairs.into_iter().collect::<Result<Vec<_>, _>>()?);
    // Limits of another process, ours included; its own it may set. The second is an address, and so twice as wide.
    let limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Is::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![rule(vec![argument(0, Is::Ne, 0)?, limits])?]);
    if cfg!(target_arch = "x86_64") {
        rules.extend(rules.clone().into_iter().map(|(call, rules)| (call | X32, rules)));
    }
    let (refused, here) = (SeccompAction::Errno(EPERM.cast_unsigned()), std::env::consts::ARCH.try_into()?);
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refused, here)?.try_into()?;
    Ok(apply_filter(&program)?)
}

/// The bits that say which kind of socket it is; the rest are flags.
const KIND: i32 = 0xf;

/// Of sockets there are those of the internet and the kernel's own. Of the internet's only TCP and UDP: the rules for ports
/// are for TCP, and what speaks TCP under another number (MPTCP), or something else, passes them by.
fn sockets() -> Result<Vec<SeccompRule>, Box<dyn Error>> {
    let families = [AF_INET, AF_INET6, AF_NETLINK].map(|family| argument(0, Is::Ne, family));
    let mut refused = vec![rule(families.into_iter().collect::<Result<Vec<_>, _>>()?)?];
    for family in [AF_INET, AF_INET6] {
        let mut other = vec![argument(0, Is::Eq, family)?];
        for protocol in [IPPROTO_IP, IPPROTO_TCP, IPPROTO_UDP] {
            other.push(argument(2, Is::Ne, protocol)?);
        }
        refused.push(rule(other)?);
        // Without a number the kind decides, and each that is neither a stream (1) nor datagrams (2) nor raw (3), which is
        // root's, has one of these bits: SCTP and DCCP are such.
        for bit in [0b100, 0b1000] {
            refused.push(rule(vec![argument(0, Is::Eq, family)?, masked(1, bit, bit)?])?);
        }
    }
    Ok(refused)
}

/// That all of these hold.
fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, Box<dyn Error>> {
    Ok(SeccompRule::new(conditions)?)
}

/// Of that argument, counted from 0, these bits are as in the value.
fn masked(number: u8, bits: i32, value: i32) -> Result<SeccompCondition, Box<dyn Error>> {
    argument(number, Is::MaskedEq(bits.cast_unsigned().into()), value)
}

/// Half of an argument is compared, for the kernel takes no more of a number.
fn argument(number: u8, is: Is, value: i32) -> Result<SeccompCondition, Box<dyn Error>> {
    Ok(SeccompCondition::new(number, SeccompCmpArgLen::Dword, is, value.cast_unsigned().into())?)
}
