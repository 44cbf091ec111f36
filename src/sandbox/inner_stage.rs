//! The inner stage: our own program, started to become the command. It is told what to be on standard input, so that nothing
//! of it is on a command line, and it is still our code, in a process that has one thread.

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

/// The word by which our own program is this; no command for people.
pub const INNER_STAGE_COMMAND: &str = "within";

/// Its argument for the part of it that stays when the command has begun.
const FORWARDER: &str = "--forward";

/// Where programs are looked for if the environment does not say.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// File systems in memory that the full level has.
pub(super) const IN_MEMORY: [&str; 2] = ["/dev/shm", "/tmp"];

/// Where the proxy's socket is inside, and the port there that leads to it.
pub(super) const WAY_OUT: (&str, u16) = ("/run/way-out", 3128);

/// Files that each process may have open. What lies in a pipe that nobody reads is in nobody's account.
const OPEN: u64 = 4096;

/// All that the inner stage must know.
#[derive(Serialize, Deserialize)]
pub(super) struct InnerStageSpec {
    /// A word that nobody else knows. What comes on standard error after it is ours.
    pub(super) nonce: String,
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) tree: PathBuf,
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
    pub(super) calls: SyscallPolicy,
    /// The user to become; it has nothing on this machine.
    pub(super) user: Option<u32>,
    /// There is a proxy, and its socket is where it should be.
    pub(super) way_out: bool,
    /// What the file systems in memory may hold.
    pub(super) tmp: Option<TmpLimits>,
    pub(super) file_bytes: u64,
    pub(super) processes: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct TmpLimits {
    pub(super) bytes: u64,
    pub(super) inodes: u64,
}

/// Becomes what standard input says, and comes back only if it could not; or stays, as its argument says.
pub fn run_inner_stage() -> ExitCode {
    if std::env::args_os().nth(2).is_some_and(|word| word == FORWARDER) {
        return run_forwarder().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    // Ours are closed when the command is started; whatever the server was started with may not be.
    close_fds::set_fds_cloexec(3, &[]);
    let mut told = Vec::new();
    let spec = io::stdin().read_to_end(&mut told).map_err(|error| error.to_string());
    let spec =
        spec.and_then(|_| serde_json::from_slice::<InnerStageSpec>(&told).map_err(|error| error.to_string()));
    let spec = match spec {
        Ok(spec) => spec,
        Err(why) => {
            return exit_with_message(format_args!(
                "this is started by `countersign sandbox` and not by hand: {why}"
            ));
        }
    };
    let nonce = &spec.nonce;
    if spec.way_out
        && let Err(error) = start_forwarder()
    {
        return exit_with_message(format_args!("{nonce}no way out: {error}"));
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

/// Takes what comes to the port to the proxy, in a process of its own: this one becomes the command. It ends with all others
/// of its namespace.
fn start_forwarder() -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", WAY_OUT.1))?;
    let mut forwarder = std::process::Command::new(std::env::current_exe()?);
    forwarder.args([INNER_STAGE_COMMAND, FORWARDER]).env_clear().stdin(OwnedFd::from(listener));
    forwarder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(drop)
}

/// What [`start_forwarder`] starts. The command speaks to it, so it has no more rights than the command, but for the socket.
/// Comes back only if it could not begin.
fn run_forwarder() -> Result<(), String> {
    let listener = io::stdin().as_fd().try_clone_to_owned().map(TcpListener::from);
    let listener = listener.map_err(|error| error.to_string())?;
    confine_forwarder()?;
    loop {
        // Out of file descriptors, for example; some come back.
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

/// Both ways between a client and the proxy, until both have ended, or one of them has failed.
fn forward_connection(client: TcpStream) -> io::Result<()> {
    // What is done with a connection is the same for each kind of socket.
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

/// First what only root may do, then what nobody undoes.
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
        // None is raised.
        let most = Some(getrlimit(resource).maximum.map_or(most, |maximum| most.min(maximum)));
        setrlimit(resource, Rlimit { current: most, maximum: most })
            .map_err(failed("a limit can't be set"))?;
    }
    if let Some(user) = spec.user {
        let (uid, gid) = (Uid::from_raw(user), rustix::process::Gid::from_raw(user));
        set_thread_groups(&[]).map_err(failed("groups can't be left"))?;
        set_thread_res_gid(gid, gid, gid).map_err(failed("the group can't be changed"))?;
        set_thread_res_uid(uid, uid, uid).map_err(failed("the user can't be changed"))?;
        // Of what it starts itself the next server hears by its record; bubblewrap ends all at once.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(failed("it can't be tied to us"))?;
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
    Err("only Linux has what it takes".into())
}
