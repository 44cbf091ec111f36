//! The system calls that a confined child is refused, because Landlock, or that of most kernels, has no rule for what they
//! do. Held by the kernel (seccomp); a filter sees a call's numbers, and no path.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")
))]

use std::{collections::BTreeMap, error::Error};

use libc::{AF_INET, AF_INET6, AF_NETLINK, EPERM, SOCK_DGRAM};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp as Is, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Whatever they are about: who may read a file is changed by its mode, its owner and its access list; and what goes
/// through a ring is a call that no filter sees.
const REFUSED: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    // `fchmodat2`, on each machine.
    452,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    // `setxattrat`, likewise.
    463,
    libc::SYS_io_uring_setup,
];

/// On machines that know x32, each call has a second number.
const X32: i64 = 0x4000_0000;

/// From here on the calling thread, and what it starts, is answered `EPERM`. Of sockets it has those of the internet and
/// the kernel's own. A connected pair is no way to a service, but for one of datagrams, which can be connected anew.
pub(super) fn refuse_on_this_thread() -> Result<(), Box<dyn Error>> {
    let argument = |number, is, value| {
        SeccompCondition::new(number, SeccompCmpArgLen::Dword, is, i32::cast_unsigned(value).into())
    };
    let family = |known| argument(0, Is::Ne, known);
    let others = vec![family(AF_INET)?, family(AF_INET6)?, family(AF_NETLINK)?];
    let datagrams = vec![argument(1, Is::MaskedEq(0xf), SOCK_DGRAM)?];
    let mut rules: BTreeMap<_, _> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(others)?]);
    rules.insert(libc::SYS_socketpair, vec![SeccompRule::new(datagrams)?]);
    if cfg!(target_arch = "x86_64") {
        rules.extend(rules.clone().into_iter().map(|(call, rules)| (call | X32, rules)));
    }
    let (refused, here) = (SeccompAction::Errno(EPERM.cast_unsigned()), std::env::consts::ARCH.try_into()?);
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, refused, here)?.try_into()?;
    Ok(apply_filter(&program)?)
}
