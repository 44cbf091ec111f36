//! Story about control commands sent to a server that cannot see the processes of the commands, as under
//! `packaging/countersign.service`.

use std::process::Command;

use super::{
    process::{Running, run_countersign, text},
    server::Site,
};

/// Returns a command that runs a program in its own user and PID namespaces. In these namespaces, `/proc` shows neither
/// our process nor our children.
fn in_namespaces() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount-proc", "--pid", "--fork", "--kill-child"]);
    unshare
}

#[test]
fn control_commands_reach_a_server_in_another_pid_namespace() {
    if !in_namespaces().arg("true").status().is_ok_and(|end| end.success()) {
        return eprintln!("skipped: `unshare` makes no namespaces here");
    }
    let site = Site::new();
    let config = site.config().to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_countersign");
    let mut serving = Running::start(in_namespaces().args([program, "serve", "--config", config]));
    serving.wait_for_line("serving");
    for (command, expected) in [
        ("runs", "No live runs"),
        ("reload", "no secret has changed"),
        ("open", "http://"),
        ("pause", "is paused"),
        ("resume", "is resumed"),
    ] {
        let output = run_countersign(&[command, "--config", config]);
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && printed.contains(expected), "{command}: {printed}");
    }
    // The token decides, not the process.
    std::fs::write(site.directory().join("data/token"), "guessed").unwrap();
    let output = run_countersign(&["runs", "--config", config]);
    assert!(text(&output.stderr).contains("the token of this server is missing"), "{}", text(&output.stderr));
}
