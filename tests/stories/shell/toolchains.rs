//! Stories about toolchains in directories that the sandbox's user cannot enter, such as root's home directory.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Output,
};

use rustix::process::geteuid;
use tempfile::{TempDir, tempdir};

use super::{
    process::{countersign, finish, git, text},
    server::Site,
};

fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Creates a folder with a `PATH` directory that lacks bubblewrap, and a Rust toolchain that only root can reach.
fn root_only_toolchain() -> TempDir {
    let home = tempdir().unwrap();
    let (path, rust) = (home.path().join("path"), home.path().join("rust"));
    fs::create_dir_all(rust.join("bin")).unwrap();
    fs::create_dir(&path).unwrap();
    for directory in ["/usr/local/bin", "/usr/bin", "/bin"] {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !["bwrap", "rustc", "cargo"].iter().any(|name| entry.file_name() == *name) {
                // A second program of the same name would never be found.
                let _ = symlink(entry.path(), path.join(entry.file_name()));
            }
        }
    }
    fs::set_permissions(&rust, fs::Permissions::from_mode(0o700)).unwrap();
    program(&path.join("rustc"), &format!("[ $1 = -vV ] && echo rustc 1.95.0 || echo {}", rust.display()));
    program(&rust.join("bin/cargo"), "echo cargo 1.95.0");
    home
}

#[test]
fn toolchain_readable_only_by_root_is_reported_with_the_fix() {
    if !geteuid().is_root() {
        return eprintln!("skipped: only root's sandbox has another user without bubblewrap");
    }
    let (root_only_toolchain, site) = (root_only_toolchain(), Site::new());
    let run = |arguments: &[&str]| -> (Output, String) {
        let output = finish(countersign(arguments).env("PATH", root_only_toolchain.path().join("path")));
        let printed = text(&output.stdout) + &text(&output.stderr);
        (output, printed)
    };
    let fix = format!(
        "the sandbox's user cannot run {}/rust/bin/cargo (Permission denied (os error 13)); `apt \
         install bubblewrap` and restart, or install Rust where every user may read it",
        root_only_toolchain.path().display()
    );
    let (_, printed) = run(&["doctor", "--config", site.config().to_str().unwrap()]);
    let row = printed.lines().find(|line| line.contains(" cargo ")).unwrap();
    assert!(row.starts_with("note ") && row.contains(&fix), "{printed}");

    let repository = root_only_toolchain.path().join("repository");
    fs::create_dir_all(repository.join("src")).unwrap();
    fs::write(repository.join("Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
    fs::write(repository.join("src/lib.rs"), "").unwrap();
    git(root_only_toolchain.path(), &["init", "--quiet", "repository"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "-m", "a"]);
    let cache = root_only_toolchain.path().join("cache");
    let (output, printed) =
        run(&["test", "--repo", repository.to_str().unwrap(), "--cache", cache.to_str().unwrap()]);
    assert!(!output.status.success() && printed.contains(&fix), "{printed}");

    let (output, printed) = run(&["demo", "--yes"]);
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.contains("The demo ends with the design, because tests cannot run here: the sandbox's user"),
        "{printed}"
    );
    assert!(printed.contains(&fix) && printed.contains("lld: done"), "{printed}");
}

/// Runs a rehearsal on localhub, from `setup` to approved code.
#[test]
#[ignore = "takes long"]
fn rehearsal_started_by_the_auto_label_reaches_approved_code() {
    let mut site = Site::new();
    let (_, printed) = site.doctor();
    if !printed.contains("ok    cargo") {
        return eprintln!("skipped: Rust does not run in this machine's sandbox");
    }
    let _serving = site.serve();
    let issue = site.label("countersign:auto");
    for gate in ["lld", "implement"] {
        let approve = format!("/approve {gate} ");
        let page = site.browser().wait_for(&issue, &approve);
        let line = page.body.split(&approve).nth(1).unwrap();
        let hash: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
        site.comment(&issue, &format!("{approve}{hash}"));
    }
    site.wait_for(&issue, "implement: done");
}
