//! From the binary and nothing else to the first gate, by `init`.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{ChildStdin, Stdio},
    time::Instant,
};

use tempfile::tempdir;

use super::{
    process::{Running, countersign, finished, free_address, text},
    server::Site,
};

/// Starts it, to be answered line by line.
fn init(arguments: &[&str]) -> (Running, ChildStdin) {
    let mut command = countersign(&[&["init"], arguments].concat());
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let input = running.child.stdin.take().unwrap();
    (running, input)
}

#[test]
fn from_nothing_to_the_first_gate_in_two_questions() {
    let begun = Instant::now();
    let mut site = Site::bare();
    let webhook = format!("http://{}/webhook", free_address());
    let config = site.config().to_owned();
    let (mut running, mut input) = init(&["--config", config.to_str().unwrap(), "--webhook-url", &webhook]);
    // A wrong answer is asked for again, with the reason.
    writeln!(input, "gihub").unwrap();
    running.hear("`gihub` is no web address; write https://HOST");
    writeln!(input, "http://{}", free_address()).unwrap();
    running.hear("nobody answers at http://127.0.0.1:");
    writeln!(input, "{}", site.github()).unwrap();
    writeln!(input, "two words").unwrap();
    running.hear("`two words` is no account's name");
    writeln!(input).unwrap();
    site.register(&mut running);
    let (code, said) = running.end();
    assert_eq!(code, Some(0), "{said}");
    let env = site.directory().join(".env");
    assert_eq!(fs::metadata(&env).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(said.contains("Checking (5 questions were asked):"), "two, and three asked again: {said}");
    assert!(said.contains("Everything needed is there."), "{said}");
    let next = said.lines().last().unwrap();
    assert_eq!(next, format!("Next: countersign serve --config {}", config.display()));

    site.edit("127.0.0.1:8009", &free_address());
    let serving = site.serve();
    let issue = site.label("countersign:lld");
    site.wait_for(&issue, "/approve lld ");
    eprintln!("commands: init, serve; questions: 2; seconds: {}", begun.elapsed().as_secs());
    drop(serving);

    // Once more: nothing is asked, and nothing is lost.
    let (settings, secrets) = (fs::read(&config).unwrap(), fs::read(&env).unwrap());
    let again = finished(&["init", "--config", config.to_str().unwrap()]);
    let said = text(&again.stdout);
    assert_eq!(again.status.code(), Some(0), "{said}");
    assert!(
        said.contains("countersign.toml is there and kept.") && said.contains("(0 questions were asked)"),
        "{said}"
    );
    assert_eq!((fs::read(&config).unwrap(), fs::read(&env).unwrap()), (settings, secrets));
}

#[test]
fn keys_are_kept_beside_what_is_there() {
    let site = Site::new();
    // Models that are none of the script's; their services are away.
    site.edit("stub:drafter", "anthropic:opus");
    site.edit("stub:reviewer", "gemini:pro");
    let away = format!("http://{}", free_address());
    site.edit(
        "[data]",
        &format!("[providers.anthropic]\nbase_url = \"{away}\"\n[providers.gemini]\nbase_url = \"{away}\"\n\n[data]"),
    );
    let before = fs::read_to_string(site.directory().join(".env")).unwrap();
    let (mut running, mut input) = init(&["--config", site.config().to_str().unwrap()]);
    writeln!(input, "perhaps").unwrap();
    running.hear("write login or key or later");
    writeln!(input, "key\nsk-$of-this-test").unwrap();
    running.hear("It is kept and was not tried");
    writeln!(input, "g-of-this-test\npaid").unwrap();
    drop(input);
    let (code, said) = running.end();
    assert_eq!(code, Some(0), "{said}");
    let env = fs::read_to_string(site.directory().join(".env")).unwrap();
    assert!(env.starts_with(&before), "{env}");
    assert!(
        env.ends_with("ANTHROPIC_API_KEY='sk-$of-this-test'\nGEMINI_API_KEY='g-of-this-test'\n"),
        "{env}"
    );
    assert!(!said.contains("of-this-test"), "no key is printed: {said}");
    assert!(fs::read_to_string(site.config()).unwrap().ends_with("name = \"default\"\ntier = \"paid\"\n"));
}

#[test]
fn where_nobody_answers_it_says_what_is_missing() {
    let home = tempdir().unwrap();
    let config = home.path().join("countersign.toml");
    let output =
        finished(&["init", "--yes", "--github", "https://github.com", "--config", config.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("run `countersign init` again") && !config.exists(), "{said}");
}
