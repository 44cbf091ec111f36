//! `login`, and what `doctor` says of each way to a model, with a script for the Claude program.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use tempfile::{TempDir, tempdir};

use super::process::{countersign, text};

/// Knows its version, and whether someone logged in with it.
const PROGRAM: &str = r#"#!/bin/sh
login="$CLAUDE_CONFIG_DIR/.credentials.json"
case "$*" in
  --version) echo '2.1.900 (Claude Code)' ;;
  'auth login') env > "$CLAUDE_CONFIG_DIR/environment"; echo '{}' > "$login"; test ! -e "$CLAUDE_CONFIG_DIR/declined" ;;
  'auth status') if [ -f "$login" ]; then echo '{"loggedIn": true}'; else echo '{"loggedIn": false}'; exit 1; fi ;;
  *) exit 2 ;;
esac
"#;

struct Server {
    home: TempDir,
    config: PathBuf,
}

impl Server {
    fn new(program: &str) -> Self {
        let home = tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("opt")).unwrap();
        fs::write(at("opt/claude"), program).unwrap();
        fs::set_permissions(at("opt/claude"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(
            at(".env"),
            "COUNTERSIGN_WEBHOOK_SECRET=a-secret-of-this-test\nANTHROPIC_API_KEY=sk-of-this-test\n",
        )
        .unwrap();
        let settings = "[app]\nid = 1\nprivate_key_file = \"key.pem\"\n[github]\napi_url = \"http://127.0.0.1:1\"\n\
                        [data]\ndir = \"data\"\n[providers.claude]\npath = \"opt/claude\"\n\
                        [providers.anthropic]\nbase_url = \"http://127.0.0.1:1\"\n";
        let config = at("countersign.toml");
        fs::write(&config, settings).unwrap();
        Self { home, config }
    }

    fn says(&self, command: &str) -> (Option<i32>, String) {
        let output = countersign(&[command, "--config", self.config.to_str().unwrap()])
            .env("ANTHROPIC_API_KEY", "sk-of-the-operator")
            .output()
            .unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.home.path().join("data/claude").join(name)
    }
}

#[test]
fn one_login_in_a_directory_of_the_servers_own() {
    let server = Server::new(PROGRAM);
    let (_, said) = server.says("doctor");
    assert!(
        said.contains(
            "note  drafter        claude:opus (claude-opus-5-5): not through claude, the Claude CLI is not \
             logged in; run `countersign login`"
        ),
        "{said}"
    );
    assert!(said.contains("ok    drafter        claude:opus (claude-opus-5-5) through anthropic"), "{said}");
    assert!(
        said.contains("note  models         not checked: 127.0.0.1 does not list its models: "),
        "{said}"
    );

    let (code, said) = server.says("login");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("claude is logged in (2.1.900 at ") && server.kept(".credentials.json").exists(),
        "{said}"
    );
    let environment = fs::read_to_string(server.kept("environment")).unwrap();
    assert!(!environment.contains("ANTHROPIC_API_KEY"), "{environment}");
    let directory = format!("CLAUDE_CONFIG_DIR={}/data/claude", server.home.path().display());
    assert!(environment.contains(&directory), "{environment}");

    let (_, said) = server.says("doctor");
    let version = "2.1.900 at ";
    assert!(said.contains(&format!("(claude-opus-5-5) through claude: {version}")), "{said}");
    assert!(
        said.contains("which this release was not tried with (it was with 2.1.197, 2.1.329, 2.1.332)"),
        "{said}"
    );
}

#[test]
fn who_gives_up_is_not_logged_in() {
    let server = Server::new(PROGRAM);
    fs::create_dir_all(server.kept("")).unwrap();
    fs::write(server.kept("declined"), "").unwrap();
    let (code, said) = server.says("login");
    assert_eq!(code, Some(1));
    assert!(said.contains("claude was not logged in; run `countersign login claude` again"), "{said}");
}

#[test]
fn a_program_that_only_complains_is_named_with_its_words() {
    let server = Server::new("#!/bin/sh\necho 'native binary not installed' >&2\nexit 1\n");
    let (code, said) = server.says("login");
    assert_eq!(code, Some(1));
    assert!(
        said.contains("the Claude CLI does not work (") && said.contains("native binary not installed"),
        "{said}"
    );
    assert!(said.contains("npm i -g @anthropic-ai/claude-code"), "{said}");
}
