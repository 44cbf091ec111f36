//! The inner stage: our own executable inside the sandbox, which restricts itself and then executes the command. It has
//! only one thread. It reads its instructions from stdin so that other users cannot see them on the command line.

use std::{
    ffi::OsString,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{ExitCode, Stdio},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::proc::{Confinement, SyscallPolicy};

/// Internal subcommand that runs the inner stage. Users do not call it.
pub const INNER_STAGE_COMMAND: &str = "within";

/// Argument that makes the inner stage forward connections. The forwarding process keeps running after the command has
/// started.
const FORWARDER: &str = "--forward";

/// `PATH` of the command if the command's environment does not set one.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// In-memory file systems that exist inside the sandbox at the full level.
pub(super) const IN_MEMORY: [&str; 2] = ["/dev/shm", "/tmp"];

/// Path of the proxy's socket inside the sandbox, and the local port whose connections are forwarded to the socket.
pub(super) const WAY_OUT: (&str, u16) = ("/run/way-out", 3128);

/// Maximum number of open files per process. It also limits the number of pipes, because no other limit covers unread
/// data in pipes.
const OPEN: u64 = 4096;

#[derive(Serialize, Deserialize)]
pub(super) struct InnerStageSpec {
    /// Random token that precedes our own messages on stderr, so that the command's output cannot imitate them.
    pub(super) nonce: String,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) tree: PathBuf,
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    pub(super) calls: SyscallPolicy,
    /// User to switch to. This user owns nothing else on this machine.
    pub(super) user: Option<u32>,
    /// Whether the proxy's socket is mounted.
    pub(super) way_out: bool,
    pub(super) tmp: Option<TmpLimits>,
    pub(super) file_bytes: u64,
    pub(super) processes: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TmpLimits {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// Reads instructions from stdin and executes the command; returns only on failure. With the argument `--forward`,
/// forwards connections instead.
pub fn run_inner_stage() -> ExitCode {
    if std::env::args_os().nth(2).is_some_and(|word| word == FORWARDER) {
        return run_forwarder().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    // Our own files are close-on-exec. Those the server inherited may not be.
    close_fds::set_fds_cloexec(3, &[]);
    let mut input = Vec::new();
    let spec = io::stdin().read_to_end(&mut input).map_err(|error| error.to_string());
    let spec = spec
        .and_then(|_| serde_json::from_slice::<InnerStageSpec>(&input).map_err(|error| error.to_string()));
    let spec = match spec {
        Ok(spec) => spec,
        Err(why) => {
            return exit_with_message(format_args!(
                "this is started by `countersign sandbox`, not by hand: {why}"
            ));
        }
    };
    let nonce = &spec.nonce;
    if spec.way_out
        && let Err(error) = start_forwarder()
    {
        return exit_with_message(format_args!("{nonce}no proxy forwarder: {error}"));
    }
    if let Err(why) = confine(&spec) {
        return exit_with_message(format_args!("{nonce}no {why}"));
    }
    exit_with_message(format_args!("{nonce}ok"));
    let error = std::process::Command::new(&spec.program)
        .args(&spec.args)
        .env_clear()
        .envs(spec.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&spec.tree)
        .stdin(Stdio::null())
        .exec();
    let missing = if error.kind() == io::ErrorKind::NotFound { "missing" } else { "no" };
    exit_with_message(format_args!("{nonce}{missing} `{}`: {error}", spec.program.to_string_lossy()))
}

fn exit_with_message(line: std::fmt::Arguments<'_>) -> ExitCode {
    let _ = writeln!(io::stderr(), "{line}");
    ExitCode::from(125)
}

/// Starts the process that forwards the local port to the proxy. A separate process is needed, because the current
/// process becomes the command. The kernel kills the forwarder when the PID namespace ends.
fn start_forwarder() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", WAY_OUT.1))?;
    let mut forwarder = std::process::Command::new(std::env::current_exe()?);
    forwarder.args([INNER_STAGE_COMMAND, FORWARDER]).env_clear().stdin(OwnedFd::from(listener));
    forwarder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

/// Forwards connections to the proxy. The command could attack this process over these connections, so the process has
/// only the command's rights and the socket. Returns only if the forwarder cannot start.
fn run_forwarder() -> Result<(), String> {
    let listener = io::stdin().as_fd().try_clone_to_owned().map(TcpListener::from);
    let listener = listener.map_err(|error| error.to_string())?;
    confine_forwarder()?;
    loop {
        // Possibly out of file descriptors; retry, since some get closed.
        if listener.accept().and_then(|(client, _)| forward_connection(client)).is_err() {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(target_os = "linux")]
fn confine_forwarder() -> Result<(), String> {
    let confinement = Confinement {
        write: vec![WAY_OUT.0.into()],
        calls: SyscallPolicy::Isolated,
        ..Confinement::default()
    };
    crate::proc::confine_permanently(&confinement)
}

#[cfg(not(target_os = "linux"))]
fn confine_forwarder() -> Result<(), String> {
    confine_nothing()
}

/// Copies data in both directions between client and proxy, until both directions have ended or one has failed.
fn forward_connection(client: TcpStream) -> io::Result<()> {
    // Wrap the TCP socket as a Unix socket: then both ends have the same type.
    let client = UnixStream::from(OwnedFd::from(client));
    let server = UnixStream::connect(WAY_OUT.0)?;
    for (mut from, mut to) in
        [(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)]
    {
        let way = move || {
            let carried = io::copy(&mut from, &mut to).and_then(|_| to.shutdown(Shutdown::Write));
            if carried.is_err() {
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            }
        };
        if let Err(error) = thread::Builder::new().spawn(way) {
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
            return Err(error);
        }
    }
    Ok(())
}

/// Restricts the current process. Steps that need root come first; irreversible restrictions come last.
#[cfg(target_os = "linux")]
fn confine(spec: &InnerStageSpec) -> Result<(), String> {
    use rustix::{
        mount::{MountFlags, mount_remount},
        process::{Resource, Rlimit, Signal, Uid, getrlimit, set_parent_process_death_signal, setrlimit},
        thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
    };
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    if let Some(TmpLimits { bytes, inodes }) = &spec.tmp {
        let data = std::ffi::CString::new(format!("size={bytes},nr_inodes={inodes}")).unwrap_or_default();
        for path in IN_MEMORY {
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            mount_remount(path, flags, data.as_c_str()).map_err(failed("/tmp can't be limited"))?;
        }
    }
    let limits = [
        (Resource::Core, 0),
        (Resource::Fsize, spec.file_bytes),
        (Resource::Nproc, spec.processes),
        (Resource::Nofile, OPEN),
    ];
    for (resource, most) in limits {
        // Never raise a limit.
        let most = Some(getrlimit(resource).maximum.map_or(most, |maximum| most.min(maximum)));
        setrlimit(resource, Rlimit { current: most, maximum: most })
            .map_err(failed("a limit can't be set"))?;
    }
    if let Some(user) = spec.user {
        let (uid, gid) = (Uid::from_raw(user), rustix::process::Gid::from_raw(user));
        set_thread_groups(&[]).map_err(failed("groups can't be dropped"))?;
        set_thread_res_gid(gid, gid, gid).map_err(failed("the group can't be changed"))?;
        set_thread_res_uid(uid, uid, uid).map_err(failed("the user can't be changed"))?;
        // bubblewrap kills all its processes when it dies. Processes of the basic level that outlive this signal are
        // ended by the next server, from their records.
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(failed("the parent death signal can't be set"))?;
    }
    let confinement = Confinement {
        read: spec.read.clone(),
        write: spec.write.iter().cloned().chain(spec.tmp.is_some().then(|| IN_MEMORY[0].into())).collect(),
        ports: Vec::new(),
        calls: spec.calls,
    };
    crate::proc::confine_permanently(&confinement)
}

#[cfg(not(target_os = "linux"))]
fn confine(_: &InnerStageSpec) -> Result<(), String> {
    confine_nothing()
}

#[cfg(not(target_os = "linux"))]
fn confine_nothing() -> Result<(), String> {
    Err("only Linux is supported".into())
}
