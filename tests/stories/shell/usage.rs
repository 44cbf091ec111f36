//! Tests of the error messages and exit codes for wrong command lines.

use std::{io::Write, process::Command};

use super::process::{run_countersign, text};

#[test]
fn wrong_usage_exits_with_status_two_and_prints_the_fix() {
    for (arguments, words) in [
        (&[][..], "Usage: countersign"),
        (&["nope"], "unrecognized subcommand"),
        (&["graph"], "<WORKFLOW>"),
        (&["graph", "nope"], "unknown workflow `nope`; known are route, scout, issue, lld"),
        (&["demo", "--repo", "."], "--issue"),
        (&["demo", "--config", "x"], "add --models real"),
        (&["setup"], "--webhook-url is missing"),
        (&["setup", "--webhook-url", "http://bot.example.org/webhook"], "write https://"),
        (&["setup", "--webhook-url", "https://bot.example.org"], "has no path; add /webhook"),
        (&["setup", "--webhook-url", "http://127.0.0.1:8008/webhook"], "is a loopback address"),
        (
            &["setup", "--github", "http://127.0.0.1:1", "--webhook-url", "https://a.example/webhook"],
            "is elsewhere",
        ),
        (&["open", "--hours", "0"], "0 is not in 1..=720"),
        (&["open", "--revoke", "--act"], "cannot be used with"),
        (&["localhub"], "--data"),
        (&["completions", "nope"], "[possible values: bash"),
        (&["man"], "--to"),
        (&["localhub", "--data", "x", "--listen", "0.0.0.0:0"], "write 127.0.0.1:PORT"),
    ] {
        let output = run_countersign(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let printed = text(&output.stderr);
        assert!(printed.contains(words), "{arguments:?}: {printed}");
    }
}

#[test]
fn missing_settings_file_points_to_setup() {
    for command in ["serve", "doctor", "healthy"] {
        let output = run_countersign(&[command, "--config", "/nowhere/countersign.toml"]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(
            printed.contains("/nowhere/countersign.toml: there is no such file; run `countersign setup`"),
            "{printed}"
        );
    }
}

#[test]
fn graph_command_prints_mermaid() {
    let output = run_countersign(&["graph", "lld"]);
    assert!(output.status.success());
    let diagram = text(&output.stdout);
    assert!(diagram.contains("flowchart") && diagram.contains("Finalize"), "{diagram}");
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = run_countersign(&["completions", "bash"]).stdout;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&script).unwrap();
    let completed = |words: &str, last: usize| {
        let line = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _countersign countersign \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"; echo \"${{COMPREPLY[*]}}\"",
            file.path().display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(completed("countersign doc", 1), "doctor\n");
    assert_eq!(completed("countersign audit ver", 2), "verify\n");
    assert!(completed("countersign serve --", 2).contains("--config"));
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(text(&run_countersign(&["completions", shell]).stdout).contains("doctor"), "{shell}");
    }
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man");
    assert!(run_countersign(&["man", "--to", pages.to_str().unwrap()]).status.success());
    let mut commands = vec![("countersign".to_owned(), countersign::cli::command())];
    let mut seen = 0;
    while let Some((name, command)) = commands.pop() {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.starts_with(".ie") && page.contains(".SH DESCRIPTION"), "{name}: {page}");
        commands
            .extend(command.get_subcommands().map(|sub| (format!("{name}-{}", sub.get_name()), sub.clone())));
        seen += 1;
    }
    assert_eq!(std::fs::read_dir(&pages).unwrap().count(), seen, "a page belongs to no command");
    let taken = run_countersign(&["man", "--to", pages.join("countersign.1").to_str().unwrap()]);
    assert_eq!(taken.status.code(), Some(1));
    assert!(text(&taken.stderr).contains("name another directory"), "{}", text(&taken.stderr));
}
