//! Story about a hijacked model program that is run by a real `serve`.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    path::Path,
    time::Instant,
};

use countersign::proc::missing_protections;

use super::{
    process::{PATIENCE, Running, countersign},
    server::Site,
};

/// User id of an ordinary user who owns no files.
const NOBODY: u32 = 65534;

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn chown_tree(user: u32, place: &Path) {
    chown(place, Some(user), Some(user)).unwrap();
    for entry in fs::read_dir(place).into_iter().flatten() {
        chown_tree(user, &entry.unwrap().path());
    }
}

/// Asserts that a hijacked model program reaches nothing outside its sandbox. The server runs as this user, or as the
/// current user for `None`.
fn assert_contained(user: Option<u32>) {
    let mut site = Site::new();
    let (own, page) = (site.directory().join("data/claude"), site.page());
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join(".credentials.json"), "{}").unwrap();
    fs::write(own.join("page"), &page).unwrap();
    let program = site.directory().join("opt/claude");
    fs::create_dir(program.parent().unwrap()).unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/escaping-claude.sh"), &program).unwrap();
    site.edit("stub:drafter", "claude:opus");
    site.edit("[models]", &format!("[providers.claude]\npath = \"{}\"\n[models]", program.display()));

    let mut serve = countersign(&["serve", "--config", site.config().to_str().unwrap()]);
    if let Some(user) = user {
        site.open_to_others();
        chown_tree(user, site.directory());
        serve.uid(user).gid(user);
        if countersign(&["--version"]).uid(user).gid(user).output().is_err() {
            return eprintln!("skipped: user {user} may not run the program where it was built");
        }
    }
    let mut serving = Running::start(&mut serve);
    serving.wait_for_line("serving");
    // The server disables core dumps, which makes root the owner of its `/proc` files.
    let process = Path::new("/proc").join(serving.child.id().to_string());
    assert_eq!(fs::metadata(process.join("environ")).unwrap().uid(), 0);
    let limits = fs::read_to_string(process.join("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    fs::copy(site.directory().join("data/token"), own.join("leaked")).unwrap();
    user.into_iter().for_each(|user| chown_tree(user, &own));

    site.label("countersign:lld");
    let printed = own.join("said");
    wait_until("the program wrote no report", || printed.exists());
    let held = !missing_protections().iter().any(|what| what.contains("TCP"));
    let way = if held { "no way in" } else { "HTTP/1.1 404 Not Found\r" };
    let filtered = !missing_protections().iter().any(|what| what.contains("sockets"));
    assert!(filtered || !cfg!(target_arch = "x86_64"), "system calls are not filtered");
    let sockets = "socket: no way in\nsocket, token: no way in\n";
    let around =
        "MPTCP: no way in\nfast open: no way in\npair of datagrams: no way in\nraw pair: no way in\n";
    let wanted = format!("{sockets}page: {way}\n{around}its own login, 600: done\n");
    assert_eq!(fs::read_to_string(printed).unwrap(), wanted);
    let late = fs::read_to_string(own.join("late")).unwrap();
    let gone = || !Path::new("/proc").join(late.trim()).exists();
    wait_until("its child process outlives the call", gone);
}

#[test]
fn hijacked_model_program_cannot_escape_its_sandbox() {
    assert_contained(None);
}

#[test]
fn hijacked_model_program_cannot_escape_its_sandbox_when_the_server_is_not_root() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can start a server for somebody else");
    }
    assert_contained(Some(NOBODY));
}
