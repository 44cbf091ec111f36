//! Stories about `init`, which leads from the bare binary to the first gate.

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
    process::{Running, countersign, free_address, run_countersign, text},
    server::Site,
};

/// Starts `init`. The test writes its replies to the returned standard input.
fn init(arguments: &[&str]) -> (Running, ChildStdin) {
    let mut command = countersign(&[&["init"], arguments].concat());
    let mut running = Running::start(command.stdin(Stdio::piped()));
    let input = running.child.stdin.take().unwrap();
    (running, input)
}

#[test]
fn two_answers_to_init_questions_suffice_to_reach_the_first_gate() {
    let begun = Instant::now();
    let mut site = Site::bare();
    let webhook = format!("http://{}/webhook", free_address());
    let config = site.config().to_owned();
    // The directory already has a key.
    let env = site.directory().join(".env");
    fs::create_dir_all(site.directory()).unwrap();
    fs::write(&env, "GEMINI_API_KEY=AIza\n").unwrap();
    let (mut running, mut input) = init(&["--config", config.to_str().unwrap(), "--webhook-url", &webhook]);
    // A wrong answer is asked again, with the reason.
    writeln!(input, "gihub").unwrap();
    running.wait_for_line("`gihub` is not a web address; write https://HOST");
    writeln!(input, "http://{}", free_address()).unwrap();
    running.wait_for_line("no answer from http://127.0.0.1:");
    writeln!(input, "{}", site.github()).unwrap();
    writeln!(input, "two words").unwrap();
    running.wait_for_line("`two words` is not an account name");
    writeln!(input).unwrap();
    site.register(&mut running);
    let (code, printed) = running.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(fs::read_to_string(&env).unwrap().starts_with("GEMINI_API_KEY=AIza\n"));
    assert_eq!(fs::metadata(&env).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(printed.contains("Checking (5 questions were asked):"), "two, and three asked again: {printed}");
    assert!(printed.contains("Everything needed is there."), "{printed}");
    let next = printed.lines().last().unwrap();
    assert_eq!(next, format!("Next: countersign serve --config {}", config.display()));

    site.edit("127.0.0.1:8009", &free_address());
    let serving = site.serve();
    let issue = site.label("countersign:lld");
    site.wait_for(&issue, "/approve lld ");
    eprintln!("commands: init, serve; questions: 2; seconds: {}", begun.elapsed().as_secs());
    drop(serving);

    // A second run asks nothing and changes nothing.
    let (settings, secrets) = (fs::read(&config).unwrap(), fs::read(&env).unwrap());
    let again = run_countersign(&["init", "--config", config.to_str().unwrap()]);
    let printed = text(&again.stdout);
    assert_eq!(again.status.code(), Some(0), "{printed}");
    assert!(
        printed.contains("countersign.toml already exists and is kept.")
            && printed.contains("(0 questions were asked)"),
        "{printed}"
    );
    assert_eq!((fs::read(&config).unwrap(), fs::read(&env).unwrap()), (settings, secrets));
}

#[test]
fn init_adds_keys_to_the_env_file_and_keeps_its_existing_lines() {
    let site = Site::new();
    // Real models whose services are unreachable.
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
    running.wait_for_line("write login or key or later");
    // Neither answer may leave an unreadable file.
    input.write_all(b"\xff\xfe\nkey\nit's of-this-test\n").unwrap();
    running.wait_for_line("write login or key or later");
    running.wait_for_line("a key has no spaces or quotation marks");
    writeln!(input, "sk-$of-this-test").unwrap();
    running.wait_for_line("Kept, but not checked");
    writeln!(input, "g-of-this-test\npaid").unwrap();
    drop(input);
    let (code, printed) = running.end();
    assert_eq!(code, Some(0), "{printed}");
    let env = fs::read_to_string(site.directory().join(".env")).unwrap();
    assert!(env.starts_with(&before), "{env}");
    assert!(
        env.ends_with("ANTHROPIC_API_KEY='sk-$of-this-test'\nGEMINI_API_KEY='g-of-this-test'\n"),
        "{env}"
    );
    assert!(!printed.contains("of-this-test"), "no key is printed: {printed}");
    assert!(fs::read_to_string(site.config()).unwrap().ends_with("name = \"default\"\ntier = \"paid\"\n"));
}

#[test]
fn init_rejects_an_unreachable_github_address_and_writes_no_settings_file() {
    let home = tempdir().unwrap();
    let config = home.path().join("countersign.toml");
    let unreachable = format!("http://{}", free_address());
    let output =
        run_countersign(&["init", "--yes", "--github", &unreachable, "--config", config.to_str().unwrap()]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("GitHub's address: no answer from"), "{printed}");
    assert!(printed.contains("run `countersign init` again") && !config.exists(), "{printed}");
}

#[test]
fn interrupted_init_continues_where_it_stopped() {
    let mut site = Site::bare();
    let config = site.config().to_owned();
    let config = config.to_str().unwrap();
    // A GitHub that accepts the connection and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (running, mut input) = init(&["--config", config]);
    writeln!(input, "http://{}", silent.local_addr().unwrap()).unwrap();
    drop(input);
    let asked = silent.accept().unwrap();
    running.signal(Signal::INT);
    let (code, printed) = running.end();
    assert_eq!(code, Some(130), "{printed}");
    drop(asked);

    let (webhook, github) = (format!("http://{}/webhook", free_address()), site.github());
    let known =
        ["--config", config, "--github", github.as_str(), "--organization", "", "--webhook-url", &webhook];
    let (mut running, _input) = init(&known);
    let created = site.consent(&mut running);
    running.wait_for_line("Now install it: ");
    running.signal(Signal::INT);
    let (code, printed) = running.end();
    assert_eq!(code, Some(130), "{printed}");
    assert!(printed.contains("run `countersign init` again to continue"), "{printed}");
    assert!(fs::read_to_string(config).unwrap().contains("\nallow = []\n"));

    let (mut again, _input) = init(&["--config", config]);
    let link = again.wait_for_line("Now install it: ");
    assert!(link.ends_with("/apps/countersign/installations/new"), "{link}");
    site.install(&created);
    let (code, printed) = again.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("is on the allow-list") && printed.contains("(0 questions were asked)"),
        "{printed}"
    );
    assert!(!fs::read_to_string(config).unwrap().contains("allow = []"));

    // Another user who writes a file would take it from the server.
    if rustix::process::geteuid().is_root() {
        chown(site.directory().join(".env"), Some(12345), None).unwrap();
        let refused = run_countersign(&["init", "--config", config]);
        let printed = text(&refused.stderr);
        assert!(refused.status.code() == Some(1) && printed.contains("run this as that user"), "{printed}");
    }
}

#[test]
fn setup_registers_no_app_if_its_key_cannot_be_stored() {
    let mut setup = Running::start(&mut countersign(&[
        "setup",
        "--github",
        "http://127.0.0.1:1",
        "--config",
        "/proc/countersign.toml",
    ]));
    setup.wait_for_line("/proc cannot be written");
    assert_eq!(setup.end().0, Some(1));
}
