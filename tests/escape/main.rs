//! What code that nobody vouches for tries, and what comes of it: each row in each level of the sandbox, for root and for an
//! ordinary user. After each, what is outside must be as it was, nothing may have heard of it, and nothing it started may be
//! left. `COUNTERSIGN_TEST_SANDBOX` makes what this machine can't do a failure instead of a line.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod builds;
mod roles;
mod rows;
mod world;

use std::{
    fs,
    io::Write as _,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    sync::Mutex,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    rows::{ALONE, Row, TOGETHER},
    world::{World, countersign},
};

/// Someone who is not root and owns nothing.
const NOBODY: u32 = 65534;

/// Who starts it, and in which level.
#[derive(Clone, Copy)]
struct Cell {
    name: &'static str,
    user: u32,
    level: &'static str,
}

const CELLS: [Cell; 3] = [
    Cell { name: "root, full", user: 0, level: "full" },
    Cell { name: "root, basic", user: 0, level: "basic" },
    Cell { name: "user, full", user: NOBODY, level: "full" },
];

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A line for what can't be tried here; where it must be, the end.
fn skip(why: &str) {
    assert!(std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(), "must be tried here, but {why}");
    eprintln!("skipped: {why}");
}

/// Those that this machine and this user can do.
fn cells() -> Vec<Cell> {
    if std::process::Command::new("perl").arg("-e1").status().is_err() {
        skip("perl is not installed, by which the attempts are made");
        return Vec::new();
    }
    let possible = |cell: &Cell| {
        let cell = Cell { user: if own_user() == 0 { cell.user } else { own_user() }, ..*cell };
        let world = World::new(cell);
        let tried = world.run(&[], "true");
        if tried.code != 0 {
            skip(&format!("{}: {}", cell.name, tried.err.trim()));
        }
        (tried.code == 0).then_some(cell)
    };
    let own = |cell: &&Cell| own_user() == 0 || cell.user != 0;
    CELLS.iter().filter(own).filter_map(possible).collect()
}

/// Every row in every cell, and all that went wrong at once.
#[test]
fn nothing_gets_out() {
    let (found, cells) = (Mutex::new(Vec::new()), cells());
    std::thread::scope(|scope| {
        for cell in &cells {
            scope.spawn(|| {
                let world = World::new(*cell);
                let part = |(at, row): (usize, &Row)| format!("echo '== {at} '\n({}\n)\n", row.script);
                let parts: String = TOGETHER.iter().enumerate().map(part).collect();
                let said = world.run(&[], &world.filled(&format!("exec 2>&1\n{parts}"))).out;
                for (at, row) in TOGETHER.iter().enumerate() {
                    let part = said.split("== ").find_map(|part| part.strip_prefix(&format!("{at} ")));
                    found.lock().unwrap().push(judged(row, *cell, part.unwrap_or("(not reached)")));
                }
                let wrong = world.changed();
                assert!(wrong.is_empty(), "{}: {wrong:?}", cell.name);
            });
            for half in 0..2 {
                let found = &found;
                scope.spawn(move || {
                    for row in ALONE.iter().skip(half).step_by(2) {
                        let world = World::new(*cell);
                        let seen = world.run(row.flags, &world.filled(row.script));
                        let said = format!("{}{}code {}", seen.out, seen.err, seen.code);
                        let (name, ours, mut wrong) = judged(row, *cell, &said);
                        wrong.extend(world.changed());
                        found.lock().unwrap().push((name, ours, wrong));
                    }
                });
            }
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|((_, cell), ..)| CELLS.iter().position(|known| known.name == *cell));
    for row in TOGETHER.iter().chain(ALONE) {
        let seen: Vec<_> = found.iter().filter(|(at, ..)| at.0 == row.what).collect();
        let cells: Vec<_> = seen.iter().map(|((_, cell), said, _)| format!("{cell}: {said}")).collect();
        let _ = writeln!(std::io::stderr(), "| {} | {} |", row.what, cells.join(" | "));
    }
    let wrong: Vec<_> = found.iter().filter(|(.., wrong)| !wrong.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

type Judged = ((&'static str, &'static str), String, Vec<String>);

/// Whether what was printed holds all that it must.
fn judged(row: &Row, cell: Cell, said: &str) -> Judged {
    let wanted = if cell.level == "full" { row.full } else { row.basic };
    let lacks = |wanted: &&&str| !said.contains(**wanted);
    let wrong = wanted.iter().filter(lacks).map(|wanted| format!("no {wanted:?} in what is shown"));
    let shown = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let start = shown.char_indices().rev().nth(199).map_or(0, |(at, _)| at);
    ((row.what, cell.name), shown[start..].to_owned(), wrong.collect())
}

/// Without namespaces and without a user of its own there is no sandbox, and one sentence says so.
#[test]
fn the_servers_own_user_is_refused() {
    let user = if own_user() == 0 { NOBODY } else { own_user() };
    let world = World::new(Cell { name: "user, basic", user, level: "basic" });
    let seen = world.run(&[], "true");
    assert_eq!(seen.code, 125);
    assert!(seen.err.contains("needs a user of its own"), "{}", seen.err);
    assert_eq!(seen.err.lines().count(), 1, "{}", seen.err);
}

/// What the server would leave behind if it were killed, or told to end. In the basic level the next one ends what a killed one
/// left.
#[test]
fn a_killed_server_leaves_nothing_running() {
    let daemon = "perl -MPOSIX -e 'exit if fork; setsid(); exit if fork; %ENV = (); exec {\"sleep\"} \"{mark}\", 600'; sleep 60";
    for cell in cells() {
        for signal in [Signal::KILL, Signal::TERM] {
            let world = World::new(cell);
            let mut running = world.command(&[], &world.filled(daemon)).spawn().unwrap();
            world.waited("it begins", || !world.left().is_empty());
            kill_process(Pid::from_child(&running), signal).unwrap();
            running.wait().unwrap();
            if cell.level == "basic" && signal == Signal::KILL {
                assert_eq!(World::new(cell).run(&[], "true").code, 0);
            }
            world.waited("it ends", || world.left().is_empty());
        }
    }
}

/// Where the server is not root, what it must count may be hidden from it.
#[test]
fn nothing_is_hidden_from_the_count() {
    let script = "mkdir hidden; : >hidden/own; chmod 300 hidden; sleep 600; echo not seen";
    for cell in cells().into_iter().filter(|cell| cell.user != 0 || own_user() != 0) {
        let seen = World::new(cell).run(&[], script);
        assert!(seen.code == 124 && seen.err.contains("more bytes or files"), "{}: {}", cell.name, seen.err);
    }
}

/// While tests run, another user of the machine sees none of their code.
#[test]
fn no_other_user_reads_the_code_that_is_tested() {
    let other = if own_user() == 0 { NOBODY - 1 } else { return skip("only root can be another user") };
    for cell in cells() {
        let world = World::new(cell);
        let files = [(".github/countersign.toml", "[test]\ncommand = \"sh attack.sh\"\n")];
        let repository = world.repository(&files, "exec perl -e 'exec {\"sleep\"} \"{mark}\", 600'\n");
        let temporary = tempfile::tempdir().unwrap();
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let mut running = world.testing(&repository).env("TMPDIR", temporary.path()).spawn().unwrap();
        world.waited("it begins", || !world.left().is_empty());
        let mut look = std::process::Command::new("find");
        look.arg(temporary.path()).args(["-mindepth", "1", "(", "-readable", "-o", "-executable", ")"]);
        let seen = look.uid(other).gid(other).output().unwrap();
        kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
        running.wait().unwrap();
        assert_eq!(String::from_utf8_lossy(&seen.stdout), "", "{}", cell.name);
    }
}

/// What another owner has is not given away through a link, and the system's directories not at all.
#[test]
fn links_and_directories_of_the_system_are_not_given_to_write() {
    for cell in cells() {
        let world = World::new(cell);
        let link = world.tree().with_file_name("link");
        symlink(world.filled("{home}/outside"), &link).unwrap();
        let seen = world.run(&["--rw", link.to_str().unwrap()], "true");
        assert!(seen.code == 125 && seen.err.contains("is a link to"), "{}: {}", cell.name, seen.err);
        for system in ["/srv", "/usr/share", "/var/lib/dpkg"].iter().filter(|_| cell.user == 0) {
            let seen = world.run(&["--rw", system], "true");
            assert!(
                seen.code == 125 && seen.err.contains("is a system directory"),
                "{}: {}",
                cell.name,
                seen.err
            );
        }
        assert_eq!(world.changed(), Vec::<String>::new());
    }
}

/// Root lends its directory to the command's user. It takes none from another owner: a server that is killed could not give it back.
#[test]
fn files_of_another_owner_are_not_taken_from_them() {
    for cell in cells().into_iter().filter(|cell| cell.user == 0) {
        let world = World::new(cell);
        // Deeper than there may be open folders.
        let deep = world.tree().join("d/".repeat(1500));
        fs::create_dir_all(&deep).unwrap();
        let owner =
            |path: &std::path::Path| fs::metadata(path).map(|found| (found.uid(), found.gid())).unwrap();
        let seen = world.run(&[], "echo x >new");
        let owners = [world.tree().join("new"), deep.clone(), world.tree()].map(|path| owner(&path));
        assert_eq!((seen.code, owners), (0, [(0, 0); 3]), "{}: {}", cell.name, seen.err);
        let theirs = deep.join("theirs");
        fs::write(&theirs, "").unwrap();
        chown(&theirs, Some(NOBODY), Some(NOBODY - 1)).unwrap();
        let seen = world.run(&[], "echo x >theirs");
        let refused = seen.code == 125 && seen.err.contains("holds files of another owner (65534:65533)");
        assert!(refused, "{}: {}", cell.name, seen.err);
        assert_eq!([owner(&theirs), owner(&deep)], [(NOBODY, NOBODY - 1), (0, 0)], "{}", cell.name);
    }
}

/// What goes deeper than a path may be long is told of, and is the tree's owner's again.
#[test]
fn a_deep_tree_costs_no_result() {
    let script =
        "perl -e 'for (1..3000) { mkdir \"deep\" and chdir \"deep\" or die $! } print \"deep enough\"'";
    for cell in cells() {
        let world = World::new(cell);
        let seen = world.run(&[], script);
        // On a slow machine it is counted in the middle, and ended: so deep it can't be counted.
        let counted = seen.code == 124 && seen.err.contains("more bytes or files");
        assert!(seen.out.contains("deep enough") || counted, "{}: {}", cell.name, seen.err);
        let seen = world.run(&[], "rm -r deep");
        assert_eq!(seen.code, 0, "{}: {}", cell.name, seen.err);
        assert_eq!(world.changed(), Vec::<String>::new());
    }
}

/// Neither all there is nor the server's own home is given to read.
#[test]
fn home_is_not_given_to_read() {
    for cell in cells() {
        let world = World::new(cell);
        for path in ["/", &world.filled("{home}")] {
            let seen = world.run(&["--ro", path], "true");
            assert!(
                seen.code == 125 && seen.err.contains("the server's home"),
                "{}: {}",
                cell.name,
                seen.err
            );
        }
    }
}

/// The only way out, for the hosts that are named and for nothing else.
#[test]
fn a_way_out_leads_to_what_is_named() {
    let outside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in outside.incoming().map_while(Result::ok) {
            let _ = client.write_all(b"hello from outside");
        }
    });
    for cell in cells().into_iter().filter(|cell| cell.level == "full") {
        let script = format!(
            "echo $https_proxy; perl -MIO::Socket::INET -e 'for my $to (@ARGV) {{ my $out = \
             IO::Socket::INET->new(\"127.0.0.1:3128\") or die $!; print $out \"CONNECT $to HTTP/1.1\\r\\n\\r\\n\"; \
             print <$out>, \"\\n\" }}' 127.0.0.1:{port} 127.0.0.2:{port} example.org:443"
        );
        let seen = World::new(cell).run(&["--host", &format!("127.0.0.1:{port}")], &script);
        assert!(seen.out.starts_with("http://127.0.0.1:3128\n"), "{}: {} {}", cell.name, seen.out, seen.err);
        assert_eq!(seen.out.matches("hello from outside").count(), 1, "{}: {}", cell.name, seen.out);
        for host in [format!("127.0.0.2:{port}"), "example.org".to_owned()] {
            let told = format!("`hosts = [\"{host}\"]` under [sandbox]");
            assert!(seen.out.contains(&told) && seen.err.contains(&told), "{}: {}", cell.name, seen.err);
        }
    }
}

/// It is for our own use.
#[test]
fn the_inner_stage_by_hand_does_nothing() {
    let output = countersign().arg("within").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not by hand"));
}
