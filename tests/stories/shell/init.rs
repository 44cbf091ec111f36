//! From the binary and nothing else to the first gate, by `init`.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::fs::{PermissionsExt, chown},
    process::{ChildStdin, Stdio},
    time::Instant,
};

use rustix::process::Signal;
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
    // Somebody put a key there first.
    let env = site.directory().join(".env");
    fs::create_dir_all(site.directory()).unwrap();
    fs::write(&env, "GEMINI_API_KEY=AIza\n").unwrap();
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
    assert!(fs::read_to_string(&env).unwrap().starts_with("GEMINI_API_KEY=AIza\n"));
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
    fs::write(site.directory().join(".env"), format!("{before}ANTHROPIC_API_KEY=\n")).unwrap();
    let (mut running, mut input) = init(&["--config", site.config().to_str().unwrap()]);
    writeln!(input, "perhaps").unwrap();
    running.hear("write login or key or later");
    // Neither leaves a file behind that nobody can read.
    input.write_all(b"\xff\xfe\nkey\nit's of-this-test\n").unwrap();
    running.hear("write login or key or later");
    running.hear("a key has no spaces, quotation marks");
    writeln!(input, "sk-$of-this-test").unwrap();
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
fn what_the_command_line_says_is_checked_as_well() {
    let home = tempdir().unwrap();
    let config = home.path().join("countersign.toml");
    let nobody = format!("http://{}", free_address());
    let output = finished(&["init", "--yes", "--github", &nobody, "--config", config.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("GitHub's address: nobody answers at"), "{said}");
    assert!(said.contains("run `countersign init` again") && !config.exists(), "{said}");
}

#[test]
fn it_can_be_left_at_any_time_and_goes_on_where_it_was() {
    let mut site = Site::bare();
    let config = site.config().to_owned();
    let config = config.to_str().unwrap();
    // A GitHub that takes the question and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (running, mut input) = init(&["--config", config]);
    writeln!(input, "http://{}", silent.local_addr().unwrap()).unwrap();
    drop(input);
    let asked = silent.accept().unwrap();
    running.signal(Signal::INT);
    let (code, said) = running.end();
    assert_eq!(code, Some(130), "{said}");
    drop(asked);

    let (webhook, github) = (format!("http://{}/webhook", free_address()), site.github());
    let known =
        ["--config", config, "--github", github.as_str(), "--organization", "", "--webhook-url", &webhook];
    let (mut running, _input) = init(&known);
    let created = site.consent(&mut running);
    running.hear("Now install it: ");
    running.signal(Signal::INT);
    let (code, said) = running.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("run `countersign init` again to go on"), "{said}");
    assert!(fs::read_to_string(config).unwrap().contains("\nallow = []\n"));

    let (mut again, _input) = init(&["--config", config]);
    let link = again.hear("Now install it: ");
    assert!(link.ends_with("/apps/countersign/installations/new"), "{link}");
    site.install(&created);
    let (code, said) = again.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is on the allow-list") && said.contains("(0 questions were asked)"), "{said}");
    assert!(!fs::read_to_string(config).unwrap().contains("allow = []"));

    // Whoever else writes a file of the server's takes it from the server.
    if rustix::process::geteuid().is_root() {
        chown(site.directory().join(".env"), Some(12345), None).unwrap();
        let refused = finished(&["init", "--config", config]);
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(1) && said.contains("run this as that user"), "{said}");
    }
}

#[test]
fn no_app_is_registered_whose_key_could_not_be_kept() {
    let mut setup = Running::start(&mut countersign(&[
        "setup",
        "--github",
        "http://127.0.0.1:1",
        "--config",
        "/proc/countersign.toml",
    ]));
    setup.hear("/proc cannot be written");
    assert_eq!(setup.end().0, Some(1));
}
