//! Agent roles and their tools, tested by real calls. Each role's own tools must work, with commands run in the
//! sandbox. Every other tool must be refused by name.

use std::{
    fs,
    net::TcpListener,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
    process::Command,
};

use countersign::{
    agents::{AgentRole, AgentTool, ROLES, ToolCallReport, ToolExecutor, ToolRequest},
    codebase::{Index, TreeIndex},
    config::TestSettings,
    documents::{
        change::{self, ChangeScope, ChangeSection, Workspace},
        spec,
    },
    git::{self, Snapshot},
    runners,
    sandbox::Sandbox,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{NOBODY, own_user, skip, world::CANARY};

/// Expected tools of each role. The table was copied from the project whose idea the roles follow.
const TABLE: [(&str, &str); 10] = [
    ("architect", "typecheck read list search count"),
    ("implementer", "typecheck lint format read list search write"),
    ("reviewer", "typecheck lint read list search count diff"),
    ("tester", "test read list search"),
    ("maintainer", "typecheck lint test read list search count"),
    ("narrator", ""),
    ("ingestor", ""),
    ("crawler", "fetch"),
    ("hunter", "fetch"),
    ("catcher", "read list search"),
];

/// Each tool with the commands it stands for in a Rust repository, its arguments, and a text in the output that shows
/// that the tool worked.
const TOOLS: [(&str, &[&str], &str, &str); 11] = [
    ("typecheck", &["cargo check"], "{}", "it ended well"),
    ("lint", &["cargo clippy"], "{}", "it ended well"),
    ("format", &["cargo fmt"], "{}", "it ended well"),
    ("test", &["cargo test"], "{}", "it ended well"),
    ("read", &["cat"], r#"{"path": "src/lib.rs"}"#, "pub fn one()"),
    ("list", &["ls"], "{}", "Cargo.toml ("),
    ("search", &["grep", "find"], r#"{"text": "one()", "name": ".rs"}"#, "src/lib.rs:1: pub fn one()"),
    ("count", &["wc"], r#"{"path": "src/lib.rs"}"#, "3 lines"),
    ("diff", &[], r#"{"path": "src/lib.rs", "other": "tests/one.rs"}"#, "-pub fn one()"),
    ("write", &["cp", "mkdir"], r#"{"path": "src/new.rs", "from": "src/lib.rs"}"#, "written; it has 3 lines"),
    // No role can use it yet.
    ("fetch", &["curl"], r#"{"url": "{loopback}"}"#, "but it is not done here"),
];

const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", "[package]\nname = \"one\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
    ("Cargo.lock", "version = 3\n\n[[package]]\nname = \"one\"\nversion = \"0.1.0\"\n"),
    ("src/lib.rs", "pub fn one() -> u8 {\n    1\n}\n"),
    ("tests/one.rs", "#[test]\nfn is_one() {\n    assert_eq!(one::one(), 1);\n}\n"),
];

const SPEC: &str = "# 1 - Implementation: One\n\n## Files to Implement\n\n| File | Change Type | Description |\n|---|---|---|\n\
                    | `src/lib.rs` | Modify | x |\n| `src/new.rs` | Add | x |\n";

/// A repository that contains a secret and has another secret next to it, and the sandbox in which tools run.
struct ToolSetup {
    place: TempDir,
    sandbox: Sandbox,
    snapshot: Snapshot,
    index: std::sync::Arc<Index>,
    outside: TcpListener,
}

impl ToolSetup {
    async fn new() -> Option<Self> {
        Self::of(&FILES).await
    }

    async fn of(files: &[(&str, &str)]) -> Option<Self> {
        let own = Path::new(env!("CARGO_BIN_EXE_countersign"));
        let sandbox = match Sandbox::detect(own, None).await {
            Ok(sandbox) => sandbox,
            Err(error) => {
                skip(&error.to_string());
                return None;
            }
        };
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("repo");
        fs::write(place.path().join("secret"), CANARY).unwrap();
        for (path, text) in files.iter().copied().chain([(".env", CANARY)]) {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
            let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::symlink("../secret", root.join("away")).unwrap();
        std::os::unix::fs::symlink("..", root.join("above")).unwrap();
        let line = "git init --quiet && git add --all --force && git -c user.name=A -c user.email=a@example.com commit --quiet -m a";
        let made = Command::new("sh").args(["-c", line]).current_dir(&root).env("HOME", &root).status();
        assert!(made.unwrap().success());
        let snapshot = git::open_local(&root, "HEAD").await.unwrap();
        let index = Index::read_uncached(&snapshot, &CancellationToken::new()).await.unwrap().into();
        let outside = TcpListener::bind("127.0.0.1:0").unwrap();
        outside.set_nonblocking(true).unwrap();
        Some(Self { place, sandbox, snapshot, index, outside })
    }

    /// Runs tool calls as this role. Commands run in the sandbox.
    async fn run_calls(&self, role: &AgentRole, calls: &[(&str, Value)]) -> ToolCallReport {
        let base = [("src/lib.rs".to_owned(), FILES[2].1.to_owned())].into();
        let copy = Workspace::new(ChangeScope::from_spec(&spec::parse(SPEC), ChangeSection::Code), base, "");
        let tree = TreeIndex::new(self.snapshot.entries().iter().map(|entry| entry.path.as_str()));
        let executor = ToolExecutor::new(self.index.clone(), self.snapshot.clone(), true);
        // A role without the write tool gets the copy as well, so that the refusal depends on the role alone.
        let mut executor = executor.with_workspace(copy, tree);
        let requests = calls
            .iter()
            .map(|(name, with)| ToolRequest { name: (*name).to_owned(), arguments: with.clone() });
        let requests: Vec<ToolRequest> = requests.collect();
        executor.run_write_calls(role, &requests).await.unwrap();
        let overlay = change::overlay_files(executor.workspace().unwrap().changed_files());
        for (tool, line) in executor.commands_to_run(role, &requests) {
            let (settings, overlay) =
                (TestSettings::from_command(&format!("PYTHONPATH=site {line}")), overlay.clone());
            let run = runners::TestRequest { settings, overlay, ..runners::TestRequest::default() };
            let output =
                match runners::run_tests(&self.sandbox, &self.snapshot, run, &CancellationToken::new()).await
                {
                    Ok(tested) if tested.found.has_passed() => "it ended well".to_owned(),
                    Ok(tested) => {
                        let failed = tested.found.failures().map(|test| test.message.clone());
                        let all = failed.chain(tested.found.trouble.clone()).chain(tested.notes);
                        format!("it failed\n{}", all.collect::<Vec<_>>().join("\n"))
                    }
                    Err(error) => format!("it could not be run: {error}"),
                };
            executor = executor.with_command_output(tool, &output);
        }
        executor.run_calls(role, &requests).await.unwrap()
    }

    /// Returns one line for each deviation from [`TABLE`].
    async fn wrong(&self, roles: &[AgentRole]) -> Vec<String> {
        let mut wrong = Vec::new();
        let loopback = format!("http://{}/", self.outside.local_addr().unwrap());
        for ((name, tools), role) in TABLE.iter().zip(roles) {
            for (tool, words, with, done) in TOOLS {
                let has = tools.split(' ').any(|known| known == tool);
                let with: Value = serde_json::from_str(&with.replace("{loopback}", &loopback)).unwrap();
                // One command name is enough, since each run builds the repository.
                let more = if has && done == "it ended well" { &[][..] } else { words };
                for word in [tool].iter().chain(more) {
                    let result = self.run_calls(role, &[(word, with.clone())]).await;
                    let refusal = format!("refused: {word:?} is not for the {name}; it has ");
                    let expected = if has { done } else { &refusal };
                    let refused = usize::from(!has || tool == "fetch");
                    if result.refused != refused || !output_contains(&result.text, expected) {
                        wrong.push(format!("{name}, {word}: {}", result.text));
                    }
                }
            }
        }
        wrong
    }
}

/// Returns whether the output contains the text. If the current user cannot run the machine's toolchain, returns true
/// as soon as the output shows that the sandbox's shell looked for the toolchain.
fn output_contains(output: &str, what: &str) -> bool {
    let closed = own_user() != 0 && output.contains("cargo: not found");
    if closed {
        eprintln!("only looked for, as the toolchain is closed to this user: {what}");
    }
    output.contains(what) || closed
}

async fn check_role_table() {
    let Some(setup) = ToolSetup::new().await else { return };
    assert_eq!(setup.wrong(&ROLES).await, [""; 0]);
    let mut widened = ROLES;
    widened[5].tools = &[AgentTool::Read];
    assert!(!setup.wrong(&widened).await.is_empty(), "a narrator that may read was not noticed");
}

/// Tries attacks that succeed against shell tools of other projects.
async fn check_escape_attempts() {
    let Some(setup) = ToolSetup::new().await else { return };
    let secret = setup.place.path().join("secret");
    let (secret, port) = (secret.to_str().unwrap(), setup.outside.local_addr().unwrap().port());
    let path = |path: &str| json!({ "path": path });
    let url = |url: String| json!({ "url": url });
    let attempts = [
        ("cat", path(secret)),
        ("cat", path("../secret")),
        ("cat", path("away")),
        ("cat", path("above/secret")),
        ("cat", path(".env")),
        ("cat", path("/proc/self/environ")),
        ("wc", json!({ "path": "src/lib.rs", "files0-from": secret })),
        ("diff", json!({ "path": "src/lib.rs", "other": secret })),
        ("find", json!({ "path": "/", "name": "secret" })),
        ("find", json!({ "name": "lib.rs", "exec": "cat ../secret" })),
        ("find", json!({ "name": "lib.rs", "delete": true })),
        ("find", json!({ "name": "lib.rs", "fprintf": "/tmp/out" })),
        ("cp", json!({ "from": secret, "path": "src/new.rs" })),
        ("cp", json!({ "from": "../secret", "path": "src/new.rs" })),
        ("cp", json!({ "from": "src/lib.rs", "path": secret })),
        ("cp", json!({ "from": "src/lib.rs", "path": "../secret" })),
        ("write", json!({ "path": "away", "text": "x" })),
        ("write", json!({ "path": "above/secret", "text": "x" })),
        ("write", json!({ "path": ".git/hooks/pre-commit", "text": "x" })),
        ("write", json!({ "path": "build.rs", "text": "fn main() {}" })),
        ("write", json!({ "path": ".cargo/config.toml", "text": "[build]" })),
        ("curl", url(format!("file://{secret}"))),
        ("curl", url(format!("http://127.0.0.1:{port}/"))),
        ("curl", url("http://169.254.169.254/latest/meta-data/".to_owned())),
        ("curl", json!({ "url": format!("http://127.0.0.1:{port}/"), "output": "/tmp/out" })),
        ("curl", json!({ "url": format!("http://127.0.0.1:{port}/"), "data": format!("@{secret}") })),
        ("cargo check", json!({ "config": "build.rustc-wrapper=\"cat\"" })),
        ("cargo check --config x", json!({})),
        ("cargo run", json!({})),
        ("pnpm", json!(["dlx", "evil"])),
        ("npx", json!({})),
        ("tsc", json!({ "project": secret })),
        ("sh", json!({ "command": "cat ../secret" })),
        ("shell", json!({ "command": "env" })),
        ("READ", path("src/lib.rs")),
        ("./cat", path("src/lib.rs")),
        ("re\u{430}d", path("src/lib.rs")),
        ("read\u{200b}", path("src/lib.rs")),
    ];
    for role in &ROLES {
        for (name, with) in &attempts {
            let result = setup.run_calls(role, &[(name, with.clone())]).await;
            let message = format!("{}, {name} {with}: {}", role.name, result.text);
            assert!(result.refused == 1 && !result.text.contains(CANARY), "{message}");
        }
    }
    // A command sees the changed files but nothing next to the repository, and its own writes are discarded.
    let test = format!(
        "#[test]\nfn tries() {{\n    assert_eq!(std::fs::read_to_string({secret:?}).unwrap(), \"\");\n}}\n"
    );
    let maintainer = ROLES.iter().find(|role| role.name == "maintainer").unwrap();
    fs::write(setup.place.path().join("repo/tests/one.rs"), test).unwrap();
    let line = "git -c user.name=A -c user.email=a@example.com commit --quiet --all -m b";
    let root = setup.place.path().join("repo");
    assert!(
        Command::new("sh")
            .args(["-c", line])
            .current_dir(&root)
            .env("HOME", &root)
            .status()
            .unwrap()
            .success()
    );
    let setup = ToolSetup { snapshot: git::open_local(&root, "HEAD").await.unwrap(), ..setup };
    let result = setup.run_calls(maintainer, &[("test", json!({}))]).await;
    assert!(result.text.contains("it failed") && output_contains(&result.text, "tries"), "{}", result.text);
    assert!(!result.text.contains(CANARY), "{}", result.text);
    // The implementer's compile error is reported by the command of the same turn.
    let implementer = ROLES.iter().find(|role| role.name == "implementer").unwrap();
    let broken = json!({ "path": "src/lib.rs", "text": "pub fn one() -> u8 {\n    nowhere\n}\n" });
    let result = setup.run_calls(implementer, &[("typecheck", json!({})), ("write", broken)]).await;
    assert!(output_contains(&result.text, "cannot find value `nowhere`"), "{}", result.text);
    assert_eq!(fs::read_to_string(setup.place.path().join("secret")).unwrap(), CANARY);
    assert_eq!(fs::read_to_string(root.join("src/lib.rs")).unwrap(), FILES[2].1);
    assert!(setup.outside.accept().is_err(), "a tool connected to the machine");
}

#[tokio::test]
async fn each_role_can_use_exactly_its_tools() {
    check_role_table().await;
}

#[tokio::test]
async fn escape_attempts_are_refused_for_every_role() {
    Box::pin(check_escape_attempts()).await;
}

/// Content of a Python module in the repository that has the same name as a tool which checks the repository.
const FAKE_MODULE: &str = "import sys\nsys.exit('stands in')\n";

/// Fake programs for two other kinds of repositories. Each program fails unless it is called with the expected
/// arguments.
const FAKE_PROGRAMS: [(&str, &[(&str, &str)]); 2] = [
    (
        "npx",
        &[
            ("package.json", "{}"),
            ("node_modules/.bin/tsc", "#!/bin/sh\n[ \"$*\" = --noEmit ]\n"),
            ("node_modules/.bin/eslint", "#!/bin/sh\n[ \"$*\" = . ] && echo 1 problem && exit 1\n"),
            ("node_modules/.bin/prettier", "#!/bin/sh\n[ \"$*\" = '--check .' ]\n"),
            ("node_modules/.bin/vitest", "#!/bin/sh\n[ \"$*\" = run ]\n"),
        ],
    ),
    (
        "python3",
        &[
            ("pyproject.toml", ""),
            ("mypy.py", FAKE_MODULE),
            ("ruff.py", FAKE_MODULE),
            ("black.py", FAKE_MODULE),
            ("site/mypy.py", "import sys\nsys.exit(sys.argv[1:] != ['.'])\n"),
            ("site/ruff.py", "import sys\nprint('1 problem')\nsys.exit(sys.argv[1:] == ['check', '.'])\n"),
            ("site/black.py", "import sys\nsys.exit(sys.argv[1:] != ['--check', '.'])\n"),
            ("site/pytest.py", "import sys\nsys.exit(sys.argv[1:] != ['-q'])\n"),
        ],
    ),
];

#[tokio::test]
async fn roles_can_run_project_commands_in_node_and_python_repositories() {
    for (program, files) in FAKE_PROGRAMS {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: {program} is not installed");
            continue;
        }
        let Some(setup) = ToolSetup::of(files).await else { return };
        for (tool, expected) in [
            ("typecheck", "it ended well"),
            ("lint", "1 problem"),
            ("format", "it ended well"),
            ("test", "it ended well"),
        ] {
            for role in &ROLES {
                let result = setup.run_calls(role, &[(tool, json!({}))]).await;
                let has = role.tools.iter().any(|known| known.name() == tool);
                let expected = if has { expected } else { "refused: " };
                assert!(result.text.contains(expected), "{program}, {}, {tool}: {}", role.name, result.text);
            }
        }
    }
}

/// Runs both tests again with a server that is not root.
#[test]
fn role_tool_limits_hold_when_the_server_is_not_root() {
    if own_user() != 0 {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "roles::each_role_can_use_exactly_its_tools"]);
    command
        .args(["roles::escape_attempts_are_refused_for_every_role", "--nocapture"])
        .env("HOME", home.path());
    for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
        let usual = || Some(Path::new(&std::env::var_os("HOME")?).join(folder).into_os_string());
        command.envs(std::env::var_os(name).or_else(usual).map(|path| (name, path)));
    }
    let output = command.current_dir("/").uid(NOBODY).gid(NOBODY).output().unwrap();
    let output_text = [output.stdout, output.stderr]
        .map(|output_text| String::from_utf8_lossy(&output_text).into_owned())
        .join("\n");
    assert!(output.status.success() && output_text.contains("2 passed"), "{output_text}");
    output_text
        .lines()
        .filter(|line| line.starts_with("only looked for"))
        .for_each(|line| eprintln!("{line}"));
    if let Some(skipped) = output_text.lines().find(|line| line.starts_with("skipped: ")) {
        skip(skipped);
    }
}
