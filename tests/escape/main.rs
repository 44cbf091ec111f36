//! Escape attempts of untrusted code. Each attempt (a row) runs in each cell: a combination of a sandbox level and a
//! user, who is root or an ordinary user. After each attempt, everything outside the sandbox must be unchanged, no
//! outside listener may have been contacted, and no process may be left running. If `COUNTERSIGN_TEST_SANDBOX` is set,
//! a skipped test fails instead.

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

/// User id of an ordinary user who owns no files.
const NOBODY: u32 = 65534;

/// A combination of a user and a sandbox level to test.
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

/// Prints that a test is skipped, or fails if `COUNTERSIGN_TEST_SANDBOX` is set.
fn skip(why: &str) {
    assert!(std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(), "must be tried here, but {why}");
    eprintln!("skipped: {why}");
}

/// Returns the cells that can be tested on this machine by the current user.
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

/// Runs every row in every cell and reports all failures together.
#[test]
fn sandbox_escape_attempts_fail_for_every_user_and_sandbox_level() {
    let (found, cells) = (Mutex::new(Vec::new()), cells());
    std::thread::scope(|scope| {
        for cell in &cells {
            scope.spawn(|| {
                let world = World::new(*cell);
                let part = |(at, row): (usize, &Row)| format!("echo '== {at} '\n({}\n)\n", row.script);
                let parts: String = TOGETHER.iter().enumerate().map(part).collect();
                let output = world.run(&[], &world.fill_placeholders(&format!("exec 2>&1\n{parts}"))).out;
                for (at, row) in TOGETHER.iter().enumerate() {
                    let part = output.split("== ").find_map(|part| part.strip_prefix(&format!("{at} ")));
                    found.lock().unwrap().push(check_output(row, *cell, part.unwrap_or("(not reached)")));
                }
                let wrong = world.violations();
                assert!(wrong.is_empty(), "{}: {wrong:?}", cell.name);
            });
            for half in 0..2 {
                let found = &found;
                scope.spawn(move || {
                    for row in ALONE.iter().skip(half).step_by(2) {
                        let world = World::new(*cell);
                        let result = world.run(row.flags, &world.fill_placeholders(row.script));
                        let output = format!("{}{}code {}", result.out, result.err, result.code);
                        let (name, ours, mut wrong) = check_output(row, *cell, &output);
                        wrong.extend(world.violations());
                        found.lock().unwrap().push((name, ours, wrong));
                    }
                });
            }
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|((_, cell), ..)| CELLS.iter().position(|known| known.name == *cell));
    for row in TOGETHER.iter().chain(ALONE) {
        let result: Vec<_> = found.iter().filter(|(at, ..)| at.0 == row.what).collect();
        let cells: Vec<_> = result.iter().map(|((_, cell), output, _)| format!("{cell}: {output}")).collect();
        let _ = writeln!(std::io::stderr(), "| {} | {} |", row.what, cells.join(" | "));
    }
    let wrong: Vec<_> = found.iter().filter(|(.., wrong)| !wrong.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

type CheckedOutput = ((&'static str, &'static str), String, Vec<String>);

/// Checks that the output contains every expected text. Returns the expected texts that are missing, with the row, the
/// cell and the end of the output.
fn check_output(row: &Row, cell: Cell, output: &str) -> CheckedOutput {
    let expected = if cell.level == "full" { row.full } else { row.basic };
    let lacks = |expected: &&&str| !output.contains(**expected);
    let wrong = expected.iter().filter(lacks).map(|expected| format!("no {expected:?} in what is shown"));
    let shown = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let start = shown.char_indices().rev().nth(199).map_or(0, |(at, _)| at);
    ((row.what, cell.name), shown[start..].to_owned(), wrong.collect())
}

/// Without namespaces and without a separate user, the sandbox has no means of isolation. So it must refuse to run,
/// with an error of one sentence.
#[test]
fn sandbox_at_basic_level_is_refused_without_a_separate_user() {
    let user = if own_user() == 0 { NOBODY } else { own_user() };
    let world = World::new(Cell { name: "user, basic", user, level: "basic" });
    let result = world.run(&[], "true");
    assert_eq!(result.code, 125);
    assert!(result.err.contains("needs a user of its own"), "{}", result.err);
    assert_eq!(result.err.lines().count(), 1, "{}", result.err);
}

/// Kills or terminates the server while a daemon that a command started is running. At the basic level, a daemon that
/// survives the killed server must be killed by the next server.
#[test]
fn killed_server_leaves_no_process_running() {
    let daemon = "perl -MPOSIX -e 'exit if fork; setsid(); exit if fork; %ENV = (); exec {\"sleep\"} \"{mark}\", 600'; sleep 60";
    for cell in cells() {
        for signal in [Signal::KILL, Signal::TERM] {
            let world = World::new(cell);
            let mut running = world.command(&[], &world.fill_placeholders(daemon)).spawn().unwrap();
            world.wait_until("it begins", || !world.leftover_processes().is_empty());
            kill_process(Pid::from_child(&running), signal).unwrap();
            running.wait().unwrap();
            if cell.level == "basic" && signal == Signal::KILL {
                assert_eq!(World::new(cell).run(&[], "true").code, 0);
            }
            world.wait_until("it ends", || world.leftover_processes().is_empty());
        }
    }
}

/// A daemon that cleared its environment must still be recognized as part of its command as long as the command runs.
#[test]
fn daemon_started_by_a_command_is_killed_when_the_command_ends() {
    let script = "perl -MPOSIX -e 'exit if fork; setsid(); exit if fork; open(my $f, \">\", \"pid\"); print $f $$; close $f; \
                  %ENV = (); exec {\"sleep\"} \"{mark}\", 600'; sleep 2; kill -0 $(cat pid) && echo alive";
    for cell in cells() {
        let world = World::new(cell);
        let result = world.run(&[], &world.fill_placeholders(script));
        assert_eq!((result.code, result.out.trim()), (0, "alive"), "{}: {}", cell.name, result.err);
        assert_eq!(world.violations(), Vec::<String>::new());
    }
}

/// If the server is not root, a command can make its own files unreadable. The server then cannot measure their disk
/// usage, so an unreadable directory must count as over the limit.
#[test]
fn unreadable_directory_counts_as_over_the_disk_limit() {
    let script = "mkdir hidden; : >hidden/own; chmod 300 hidden; sleep 600; echo not seen";
    for cell in cells().into_iter().filter(|cell| cell.user != 0 || own_user() != 0) {
        let result = World::new(cell).run(&[], script);
        assert!(
            result.code == 124 && result.err.contains("exceeded its disk limit"),
            "{}: {}",
            cell.name,
            result.err
        );
    }
}

#[test]
fn other_users_cannot_read_the_tested_code() {
    let other = if own_user() == 0 { NOBODY - 1 } else { return skip("only root can be another user") };
    for cell in cells() {
        let world = World::new(cell);
        let files = [(".github/countersign.toml", "[test]\ncommand = \"sh attack.sh\"\n")];
        let repository = world.repository(&files, "exec perl -e 'exec {\"sleep\"} \"{mark}\", 600'\n");
        let temporary = tempfile::tempdir().unwrap();
        fs::set_permissions(temporary.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let mut running = world.test_command(&repository).env("TMPDIR", temporary.path()).spawn().unwrap();
        world.wait_until("it begins", || !world.leftover_processes().is_empty());
        let mut find = std::process::Command::new("find");
        find.arg(temporary.path()).args(["-mindepth", "1", "(", "-readable", "-o", "-executable", ")"]);
        let result = find.uid(other).gid(other).output().unwrap();
        kill_process(Pid::from_child(&running), Signal::TERM).unwrap();
        running.wait().unwrap();
        assert_eq!(String::from_utf8_lossy(&result.stdout), "", "{}", cell.name);
    }
}

/// A symlink passed to `--rw` could make files of another owner writable, so symlinks must be refused. System
/// directories must be refused as well.
#[test]
fn sandbox_refuses_symlinks_and_system_directories_as_writable_paths() {
    for cell in cells() {
        let world = World::new(cell);
        let link = world.tree().with_file_name("link");
        symlink(world.fill_placeholders("{home}/outside"), &link).unwrap();
        let result = world.run(&["--rw", link.to_str().unwrap()], "true");
        assert!(result.code == 125 && result.err.contains("is a link to"), "{}: {}", cell.name, result.err);
        for system in ["/srv", "/usr/share", "/var/lib/dpkg"].iter().filter(|_| cell.user == 0) {
            let result = world.run(&["--rw", system], "true");
            assert!(
                result.code == 125 && result.err.contains("is a system directory"),
                "{}: {}",
                cell.name,
                result.err
            );
        }
        assert_eq!(world.violations(), Vec::<String>::new());
    }
}

/// As root, the server temporarily gives a directory to the user of the command. It must refuse a directory with files
/// of another owner, because a killed server could not return these files to their owner.
#[test]
fn sandbox_refuses_a_writable_directory_with_files_of_another_owner() {
    for cell in cells().into_iter().filter(|cell| cell.user == 0) {
        let world = World::new(cell);
        // Deeper than the limit on open directories.
        let deep = world.tree().join("d/".repeat(1500));
        fs::create_dir_all(&deep).unwrap();
        let owner =
            |path: &std::path::Path| fs::metadata(path).map(|found| (found.uid(), found.gid())).unwrap();
        let result = world.run(&[], "echo x >new");
        let owners = [world.tree().join("new"), deep.clone(), world.tree()].map(|path| owner(&path));
        assert_eq!((result.code, owners), (0, [(0, 0); 3]), "{}: {}", cell.name, result.err);
        let theirs = deep.join("theirs");
        fs::write(&theirs, "").unwrap();
        chown(&theirs, Some(NOBODY), Some(NOBODY - 1)).unwrap();
        let result = world.run(&[], "echo x >theirs");
        let refused = result.code == 125 && result.err.contains("holds files of another owner (65534:65533)");
        assert!(refused, "{}: {}", cell.name, result.err);
        assert_eq!([owner(&theirs), owner(&deep)], [(NOBODY, NOBODY - 1), (0, 0)], "{}", cell.name);
    }
}

/// A directory tree that is deeper than the maximum path length must be counted, or its command must be ended. In both
/// cases the owner must get the tree back.
#[test]
fn very_deep_directory_tree_counts_towards_disk_usage_and_can_be_deleted() {
    let script =
        "perl -e 'for (1..3000) { mkdir \"deep\" and chdir \"deep\" or die $! } print \"deep enough\"'";
    for cell in cells() {
        let world = World::new(cell);
        let result = world.run(&[], script);
        // On a slow machine the disk count runs before the tree is complete and ends the command, because it cannot
        // count so deep.
        let counted = result.code == 124 && result.err.contains("exceeded its disk limit");
        assert!(result.out.contains("deep enough") || counted, "{}: {}", cell.name, result.err);
        let result = world.run(&[], "rm -r deep");
        assert_eq!(result.code, 0, "{}: {}", cell.name, result.err);
        assert_eq!(world.violations(), Vec::<String>::new());
    }
}

#[test]
fn home_of_the_server_cannot_be_mounted_into_the_sandbox() {
    for cell in cells() {
        let world = World::new(cell);
        for path in ["/", &world.fill_placeholders("{home}")] {
            let result = world.run(&["--ro", path], "true");
            assert!(
                result.code == 125 && result.err.contains("the server's home"),
                "{}: {}",
                cell.name,
                result.err
            );
        }
    }
}

/// The proxy must be the only way to the network and must connect only to the named hosts.
#[test]
fn sandbox_proxy_reaches_only_allowed_hosts() {
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
        let result = World::new(cell).run(&["--host", &format!("127.0.0.1:{port}")], &script);
        assert!(
            result.out.starts_with("http://127.0.0.1:3128\n"),
            "{}: {} {}",
            cell.name,
            result.out,
            result.err
        );
        assert_eq!(result.out.matches("hello from outside").count(), 1, "{}: {}", cell.name, result.out);
        for host in [format!("127.0.0.2:{port}"), "example.org".to_owned()] {
            let hint = format!("`hosts = [\"{host}\"]` under [sandbox]");
            assert!(
                result.out.contains(&hint) && result.err.contains(&hint),
                "{}: {}",
                cell.name,
                result.err
            );
        }
    }
}

/// `countersign within` is for internal use only, so it must refuse to run when a user calls it.
#[test]
fn internal_command_within_is_refused_when_called_by_a_user() {
    let output = countersign().arg("within").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not by hand"));
}
