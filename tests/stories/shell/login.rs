//! Stories about `login`, and about the report of `doctor` on the providers of models. A script replaces the Claude
//! program.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use tempfile::{TempDir, tempdir};

use super::process::{countersign, text};

/// Script that acts as the Claude program. It reports its version and whether somebody has logged in.
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

    fn run(&self, command: &str) -> (Option<i32>, String) {
        let output = countersign(&[command, "--config", self.config.to_str().unwrap()])
            .env("ANTHROPIC_API_KEY", "sk-of-the-operator")
            .output()
            .unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn claude_file(&self, name: &str) -> PathBuf {
        self.home.path().join("data/claude").join(name)
    }
}

#[test]
fn login_command_stores_the_claude_login_in_the_servers_own_directory() {
    let server = Server::new(PROGRAM);
    let (_, printed) = server.run("doctor");
    assert!(
        printed.contains(
            "note  drafter        claude:opus (claude-opus-5-5): not through claude, the Claude CLI is not \
             logged in; run `countersign login`"
        ),
        "{printed}"
    );
    assert!(
        printed.contains("ok    drafter        claude:opus (claude-opus-5-5) through anthropic"),
        "{printed}"
    );
    assert!(
        printed.contains("note  models         not checked: 127.0.0.1 does not list its models: "),
        "{printed}"
    );

    let (code, printed) = server.run("login");
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("claude is logged in (2.1.900 at ")
            && server.claude_file(".credentials.json").exists(),
        "{printed}"
    );
    let environment = fs::read_to_string(server.claude_file("environment")).unwrap();
    assert!(!environment.contains("ANTHROPIC_API_KEY"), "{environment}");
    let directory = format!("CLAUDE_CONFIG_DIR={}/data/claude", server.home.path().display());
    assert!(environment.contains(&directory), "{environment}");

    let (_, printed) = server.run("doctor");
    let version = "2.1.900 at ";
    assert!(printed.contains(&format!("(claude-opus-5-5) through claude: {version}")), "{printed}");
    assert!(
        printed.contains("which this release was not tested with (it was with 2.1.197, 2.1.329, 2.1.332)"),
        "{printed}"
    );
}

#[test]
fn login_command_fails_when_the_claude_login_is_declined() {
    let server = Server::new(PROGRAM);
    fs::create_dir_all(server.claude_file("")).unwrap();
    fs::write(server.claude_file("declined"), "").unwrap();
    let (code, printed) = server.run("login");
    assert_eq!(code, Some(1));
    assert!(printed.contains("claude was not logged in; run `countersign login claude` again"), "{printed}");
}

#[test]
fn login_command_reports_the_output_of_a_broken_claude_program() {
    let server = Server::new("#!/bin/sh\necho 'native binary not installed' >&2\nexit 1\n");
    let (code, printed) = server.run("login");
    assert_eq!(code, Some(1));
    assert!(
        printed.contains("the Claude CLI does not work (") && printed.contains("native binary not installed"),
        "{printed}"
    );
    assert!(printed.contains("npm i -g @anthropic-ai/claude-code"), "{printed}");
}
