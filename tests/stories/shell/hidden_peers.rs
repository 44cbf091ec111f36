//! The control commands against a server that cannot see their processes, as under `packaging/countersign.service`.

use std::process::Command;

use super::{
    process::{Running, finished, text},
    server::Site,
};

/// A namespace of users and one of processes: the server's `/proc` has neither our process nor our children.
fn apart() -> Command {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount-proc", "--pid", "--fork", "--kill-child"]);
    unshare
}

#[test]
fn control_commands_work_when_their_process_is_hidden_from_the_server() {
    if !apart().arg("true").status().is_ok_and(|end| end.success()) {
        return eprintln!("skipped: `unshare` makes no namespaces here");
    }
    let site = Site::new();
    let config = site.config().to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_countersign");
    let mut serving = Running::start(apart().args([program, "serve", "--config", config]));
    serving.hear("serving");
    for (command, says) in [
        ("runs", "Nothing runs now"),
        ("reload", "no secret has changed"),
        ("open", "http://"),
        ("pause", "is paused"),
        ("resume", "goes on"),
    ] {
        let output = finished(&[command, "--config", config]);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && said.contains(says), "{command}: {said}");
    }
    // The token is what counts, not the process.
    std::fs::write(site.directory().join("data/token"), "guessed").unwrap();
    let output = finished(&["runs", "--config", config]);
    assert!(text(&output.stderr).contains("the token of this server is missing"), "{}", text(&output.stderr));
}
