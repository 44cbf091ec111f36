//! Secrets that are rotated under a running server, by the command and by the signal.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::process::Signal;

use super::{
    process::{finished, text},
    server::Site,
};

fn reload(site: &Site) -> (Option<i32>, String) {
    let output = finished(&["reload", "--config", site.config().to_str().unwrap()]);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn secrets_are_swapped_without_a_restart() {
    let mut site = Site::new();
    let env = site.directory().join(".env");
    let before = fs::read_to_string(&env).unwrap();
    site.edit("[data]", &format!("{}\n[data]", super::lists::services("http://127.0.0.1:1")));
    let old = before.lines().find_map(|line| line.strip_prefix("COUNTERSIGN_WEBHOOK_SECRET=")).unwrap();
    let mut serving = site.serve();
    assert_eq!(reload(&site), (Some(0), "no secret has changed\n".to_owned()));

    let new = "COUNTERSIGN_WEBHOOK_SECRET=one-that-GitHub-will-have-soon\nGEMINI_API_KEY=another\nANTHROPIC_API_KEY=the-first\n";
    fs::write(&env, new).unwrap();
    let (code, said) = reload(&site);
    assert_eq!(code, Some(0), "{said}");
    let alone =
        "in use now: the webhook's secret (no other is accepted), ANTHROPIC_API_KEY, GEMINI_API_KEY\n";
    assert_eq!(said, alone);
    let issue = site.label("countersign:lld");
    serving.hear("webhook refused: The signature does not fit");

    // What GitHub still signs with the one before is taken as long as that is named.
    fs::write(&env, format!("{new}COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS={old}\n")).unwrap();
    site.edit("[data]", "[budget]\nrun = \"$9\"\n\n[data]");
    serving.signal(Signal::HUP);
    let said = serving
        .hear("in use now: the webhook's secret (COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS is accepted, too)");
    assert!(said.contains("[budget] also changed; restart the server to apply it"), "{said}");
    site.comment(&issue, "/lld");
    site.wait_for(&issue, "/approve lld ");
}

#[test]
fn a_model_that_its_service_does_not_list_is_warned_of_at_start_and_by_a_reload() {
    let site = Site::new();
    let lists = super::lists::serve(&["claude-haiku-5-5"], &["gemini-4-neon"]);
    site.edit("stub:reviewer", "gemini:pro");
    site.edit("[data]", &format!("{}\n[data]", super::lists::services(&lists)));
    let env = site.directory().join(".env");
    let before = fs::read_to_string(&env).unwrap();
    fs::write(&env, format!("{before}GEMINI_API_KEY=of-this-test\n")).unwrap();
    let warning = "gemini:gemini-3.1-pro-preview: 127.0.0.1 does not list it. Write under [models]: reviewer = \
                   \"gemini:gemini-4-neon\"";
    let (_, said) = site.doctor();
    assert!(said.contains(&format!("WARN  models         {warning}")), "{said}");
    let mut serving = site.serve();
    let said = serving.hear(warning);
    assert!(said.contains("WARN"), "{said}");
    assert_eq!(reload(&site), (Some(0), format!("no secret has changed. {warning}\n")));
    serving.hear(warning);
    // The reviewer of now is looked for, not the one of the start.
    site.edit("gemini:pro", "gemini:flash");
    let (_, said) = reload(&site);
    assert!(
        said.starts_with(
            "in use now: the reviewer gemini:flash. gemini:gemini-3.8-flash: 127.0.0.1 does not"
        ),
        "{said}"
    );
}

#[test]
fn what_is_broken_changes_nothing_and_is_named() {
    let mut site = Site::new();
    let serving = site.serve();
    let (env, key) = (site.directory().join(".env"), site.key());
    let (good_env, good_key) = (fs::read_to_string(&env).unwrap(), fs::read_to_string(&key).unwrap());
    let stays = |words: &str| {
        let (code, said) = reload(&site);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains(words) && said.contains("goes on with what it had"),
            "`{words}` is not in: {said}"
        );
        fs::write(&env, &good_env).unwrap();
        fs::write(&key, &good_key).unwrap();
        set_mode(&key, 0o600);
    };
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET=new\nthis is no line of it\n").unwrap();
    stays(".env:2: is not NAME=value");
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET=new\n").unwrap();
    set_mode(&key, 0o644);
    stays("private-key.pem is open to other users; run: chmod 600");
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET=new\n").unwrap();
    fs::write(&key, "no key").unwrap();
    stays("is not a readable RSA key");
    let other = site.directory().join("other.txt");
    fs::write(&other, "new\n").unwrap();
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET_FILE=other.txt\n").unwrap();
    stays("other.txt is a new place for a secret");

    let settings = fs::read_to_string(site.config()).unwrap();
    site.edit("[models]", "[models]\nreviwer = \"x\"");
    stays("unknown field `reviwer`");
    fs::write(site.config(), settings).unwrap();

    // The key as it is, written otherwise: to the server it is a new one, and GitHub is asked about it.
    fs::write(&key, format!("{good_key}\n")).unwrap();
    assert_eq!(reload(&site), (Some(0), "in use now: the private key\n".to_owned()));
    let issue = site.label("countersign:lld");
    site.wait_for(&issue, "/approve lld ");
    drop(serving);
    let (code, said) = reload(&site);
    assert_eq!(code, Some(1));
    assert!(said.contains("no server runs on"), "{said}");
}
