//! Toolchains that lie where the sandbox's user is not let in, as those in root's home.

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

/// A `PATH` without bubblewrap, and with a Rust that root alone reaches.
fn closed() -> TempDir {
    let home = tempdir().unwrap();
    let (path, rust) = (home.path().join("path"), home.path().join("rust"));
    fs::create_dir_all(rust.join("bin")).unwrap();
    fs::create_dir(&path).unwrap();
    for directory in ["/usr/local/bin", "/usr/bin", "/bin"] {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !["bwrap", "rustc", "cargo"].iter().any(|name| entry.file_name() == *name) {
                // The second of a name is not found anyway.
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
fn a_toolchain_that_only_root_reaches_is_told_with_what_helps() {
    if !geteuid().is_root() {
        return eprintln!("skipped: only root's sandbox has another user without bubblewrap");
    }
    let (closed, site) = (closed(), Site::new());
    let run = |arguments: &[&str]| -> (Output, String) {
        let output = finish(countersign(arguments).env("PATH", closed.path().join("path")));
        let said = text(&output.stdout) + &text(&output.stderr);
        (output, said)
    };
    let helps = format!(
        "the sandbox's user cannot run {}/rust/bin/cargo (Permission denied (os error 13)); `apt \
         install bubblewrap` and restart, or install Rust where every user may read it",
        closed.path().display()
    );
    let (_, said) = run(&["doctor", "--config", site.config().to_str().unwrap()]);
    let row = said.lines().find(|line| line.contains(" cargo ")).unwrap();
    assert!(row.starts_with("note ") && row.contains(&helps), "{said}");

    let repository = closed.path().join("repository");
    fs::create_dir_all(repository.join("src")).unwrap();
    fs::write(repository.join("Cargo.toml"), "[package]\nname = \"a\"\n").unwrap();
    fs::write(repository.join("src/lib.rs"), "").unwrap();
    git(closed.path(), &["init", "--quiet", "repository"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "-m", "a"]);
    let cache = closed.path().join("cache");
    let (output, said) =
        run(&["test", "--repo", repository.to_str().unwrap(), "--cache", cache.to_str().unwrap()]);
    assert!(!output.status.success() && said.contains(&helps), "{said}");

    let (output, said) = run(&["demo", "--yes"]);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("It ends with the design, because tests cannot be run here: the sandbox's user"),
        "{said}"
    );
    assert!(said.contains(&helps) && said.contains("lld: done"), "{said}");
}

/// The whole installation on a localhub, as it is rehearsed.
#[test]
#[ignore = "takes long"]
fn a_rehearsed_installation_reaches_the_code() {
    let mut site = Site::new();
    let (_, said) = site.doctor();
    if !said.contains("ok    cargo") {
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
