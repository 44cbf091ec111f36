//! What a wrong command line says, and with which code it ends.

use super::process::{finished, text};

#[test]
fn wrong_usage_exits_with_two_and_says_what_to_write() {
    for (arguments, words) in [
        (&[][..], "Usage: countersign"),
        (&["nope"], "unrecognized subcommand"),
        (&["graph"], "<WORKFLOW>"),
        (&["graph", "nope"], "there is no workflow `nope`; there is route, scout, issue, lld"),
        (&["demo", "--repo", "."], "--issue"),
        (&["demo", "--config", "x"], "add --models real"),
        (&["setup"], "--webhook-url is missing"),
        (&["setup", "--webhook-url", "http://bot.example.org/webhook"], "write https://"),
        (&["setup", "--webhook-url", "https://bot.example.org"], "has no path; add /webhook"),
        (&["setup", "--webhook-url", "http://127.0.0.1:8008/webhook"], "is for this machine alone"),
        (
            &["setup", "--github", "http://127.0.0.1:1", "--webhook-url", "https://a.example/webhook"],
            "is elsewhere",
        ),
        (&["localhub"], "--data"),
        (&["localhub", "--data", "x", "--listen", "0.0.0.0:0"], "write 127.0.0.1:PORT"),
    ] {
        let output = finished(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn a_missing_settings_file_points_to_setup() {
    for command in ["serve", "doctor"] {
        let output = finished(&[command, "--config", "/nowhere/countersign.toml"]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(
            said.contains("/nowhere/countersign.toml: there is no such file; run `countersign setup`"),
            "{said}"
        );
    }
}

#[test]
fn a_graph_is_printed_as_mermaid() {
    let output = finished(&["graph", "lld"]);
    assert!(output.status.success());
    let diagram = text(&output.stdout);
    assert!(diagram.contains("flowchart") && diagram.contains("Finalize"), "{diagram}");
}
