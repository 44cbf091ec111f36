//! Stories about the rotation of secrets in a running server, by command and by signal.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::process::Signal;

use super::{
    process::{run_countersign, text},
    server::Site,
};

fn reload(site: &Site) -> (Option<i32>, String) {
    let output = run_countersign(&["reload", "--config", site.config().to_str().unwrap()]);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn secrets_are_reloaded_without_a_restart() {
    let mut site = Site::new();
    let env = site.directory().join(".env");
    let before = fs::read_to_string(&env).unwrap();
    site.edit("[data]", &format!("{}\n[data]", super::lists::services("http://127.0.0.1:1")));
    let old = before.lines().find_map(|line| line.strip_prefix("COUNTERSIGN_WEBHOOK_SECRET=")).unwrap();
    let mut serving = site.serve();
    assert_eq!(reload(&site), (Some(0), "no secret has changed\n".to_owned()));

    let new = "COUNTERSIGN_WEBHOOK_SECRET=one-that-GitHub-will-have-soon\nGEMINI_API_KEY=another\nANTHROPIC_API_KEY=the-first\n";
    fs::write(&env, new).unwrap();
    let (code, printed) = reload(&site);
    assert_eq!(code, Some(0), "{printed}");
    let alone =
        "in use now: the webhook's secret (no other is accepted), ANTHROPIC_API_KEY, GEMINI_API_KEY\n";
    assert_eq!(printed, alone);
    let issue = site.label("countersign:lld");
    serving.wait_for_line("webhook refused: The signature does not match");

    // Deliveries signed with the previous secret are accepted while that is configured.
    fs::write(&env, format!("{new}COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS={old}\n")).unwrap();
    site.edit("[data]", "[budget]\nrun = \"$9\"\n\n[data]");
    serving.signal(Signal::HUP);
    let printed = serving.wait_for_line(
        "in use now: the webhook's secret (COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS is accepted, too)",
    );
    assert!(printed.contains("[budget] also changed; restart the server to apply it"), "{printed}");
    site.comment(&issue, "/lld");
    site.wait_for(&issue, "/approve lld ");
}

#[test]
fn unlisted_model_causes_a_warning_at_start_and_reload() {
    let site = Site::new();
    let lists = super::lists::serve(&["claude-haiku-5-5"], &["gemini-4-neon"]);
    site.edit("stub:reviewer", "gemini:pro");
    site.edit("[data]", &format!("{}\n[data]", super::lists::services(&lists)));
    let env = site.directory().join(".env");
    let before = fs::read_to_string(&env).unwrap();
    fs::write(&env, format!("{before}GEMINI_API_KEY=of-this-test\n")).unwrap();
    let warning = "gemini:gemini-3.1-pro-preview: 127.0.0.1 does not list it. Write under [models]: reviewer = \
                   \"gemini:gemini-4-neon\"";
    let (_, printed) = site.doctor();
    assert!(printed.contains(&format!("WARN  models         {warning}")), "{printed}");
    let mut serving = site.serve();
    let printed = serving.wait_for_line(warning);
    assert!(printed.contains("WARN"), "{printed}");
    assert_eq!(reload(&site), (Some(0), format!("no secret has changed. {warning}\n")));
    serving.wait_for_line(warning);
    // A reload checks the current reviewer, not the one of the start.
    site.edit("gemini:pro", "gemini:flash");
    let (_, printed) = reload(&site);
    assert!(
        printed.starts_with(
            "in use now: the reviewer gemini:flash. gemini:gemini-3.8-flash: 127.0.0.1 does not"
        ),
        "{printed}"
    );
}

#[test]
fn reload_fails_and_keeps_the_current_secrets_when_the_new_ones_are_invalid() {
    let mut site = Site::new();
    let serving = site.serve();
    let (env, key) = (site.directory().join(".env"), site.key());
    let (good_env, good_key) = (fs::read_to_string(&env).unwrap(), fs::read_to_string(&key).unwrap());
    let assert_refused = |words: &str| {
        let (code, printed) = reload(&site);
        assert_eq!(code, Some(1), "{printed}");
        assert!(
            printed.contains(words) && printed.contains("keeps its current"),
            "`{words}` is not in: {printed}"
        );
        fs::write(&env, &good_env).unwrap();
        fs::write(&key, &good_key).unwrap();
        set_mode(&key, 0o600);
    };
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET=new\nthis is no line of it\n").unwrap();
    assert_refused(".env:2: is not NAME=value");
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET=new\n").unwrap();
    set_mode(&key, 0o644);
    assert_refused("private-key.pem is open to other users; run: chmod 600");
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET=new\n").unwrap();
    fs::write(&key, "no key").unwrap();
    assert_refused("is not a readable RSA key");
    let other = site.directory().join("other.txt");
    fs::write(&other, "new\n").unwrap();
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET_FILE=other.txt\n").unwrap();
    assert_refused("other.txt is a new place for a secret");

    let settings = fs::read_to_string(site.config()).unwrap();
    site.edit("[models]", "[models]\nreviwer = \"x\"");
    assert_refused("unknown field `reviwer`");
    fs::write(site.config(), settings).unwrap();

    // The same key in another form: the server treats it as new and checks it with GitHub.
    fs::write(&key, format!("{good_key}\n")).unwrap();
    assert_eq!(reload(&site), (Some(0), "in use now: the private key\n".to_owned()));
    let issue = site.label("countersign:lld");
    site.wait_for(&issue, "/approve lld ");
    drop(serving);
    let (code, printed) = reload(&site);
    assert_eq!(code, Some(1));
    assert!(printed.contains("no server runs on"), "{printed}");
}
