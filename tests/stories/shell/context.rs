//! Stories about `countersign context` on local repositories.

use std::{path::Path, process::Command};

use super::process::{git, run_countersign, text};

fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    git(root.path(), &["init", "--quiet", "--initial-branch=main"]);
    root
}

fn commit(at: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = at.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    git(at, &["add", "--all"]);
    git(at, &["commit", "--quiet", "--allow-empty", "-m", "a commit"]);
}

const PURSE: &str = "/// Holds coins.\npub struct Purse { pub coins: u32 }\n\nimpl Purse {\n    pub fn pay(&mut self, price: u32) {\n        self.coins -= price;\n    }\n}\n";

#[test]
fn context_command_prints_the_context_to_stdout_and_its_report_to_stderr() {
    let root = repository();
    let weather = format!("pub fn rain() {{\n{}}}\n", "    let _ = 1;\n".repeat(5000));
    let secret = format!("const KEY: &str = \"ghp_{}\";\n// The purse.\n", "a1B2".repeat(9));
    let files = [
        ("README.md", "# Coins\n"),
        ("src/purse.rs", PURSE),
        ("src/key.rs", secret.as_str()),
        ("src/weather.rs", weather.as_str()),
        (".env", "KEY=x"),
    ];
    commit(root.path(), &files);
    std::fs::write(root.path().join("src/purse.rs"), "not committed").unwrap();
    let issue = root.path().join("issue.md");
    std::fs::write(&issue, "A purse overflows\n\nIt pays more than it has.\n").unwrap();
    let (repo, issue) = (root.path().to_str().unwrap(), issue.to_str().unwrap());
    let arguments =
        ["context", "--repo", repo, "--issue", issue, "--files", "src/weather.rs", "--budget", "3000"];
    let output = run_countersign(&arguments);
    let (shown, report) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{report}");
    assert!(
        shown.contains("src/purse.rs\n") && shown.contains("pub fn pay(&mut self, price: u32)"),
        "{shown}"
    );
    assert!(shown.contains("## `src/weather.rs`") && shown.contains("pub fn rain()"), "{shown}");
    assert!(!shown.contains(&weather), "a file of five thousand lines is truncated");
    assert!(
        !shown.contains("ghp_") && !shown.contains("KEY=x") && !shown.contains("not committed"),
        "{shown}"
    );
    assert!(report.contains(" of 3000 tokens") && report.contains("credentials redacted: 1"), "{report}");
    assert!(report.contains("src/weather.rs  named as a file of this work"), "{report}");
    assert!(report.contains("looks like it holds a secret: 1 (.env)"), "{report}");
    assert_eq!(run_countersign(&arguments).stdout, output.stdout);
}

#[test]
fn context_command_reports_a_missing_repository_revision_issue_or_file() {
    let (empty, fileless, full) = (repository(), repository(), repository());
    commit(fileless.path(), &[]);
    commit(full.path(), &[("src/purse.rs", PURSE)]);
    let nothing = tempfile::tempdir().unwrap();
    let at = |root: &tempfile::TempDir| root.path().to_str().unwrap().to_owned();
    for (arguments, words) in [
        (vec!["--repo".to_owned(), at(&nothing)], "no git repository at"),
        (vec!["--repo".to_owned(), at(&empty)], "has no commit `HEAD`"),
        (vec!["--repo".to_owned(), at(&fileless)], "has no files"),
        (vec!["--repo".to_owned(), at(&full), "--rev=v9".to_owned()], "has no commit `v9`"),
        (
            vec!["--repo".to_owned(), at(&full), "--issue=/nowhere/i.md".to_owned()],
            "/nowhere/i.md cannot be read",
        ),
        (
            vec!["--repo".to_owned(), at(&full), "--files=src/purs.rs".to_owned()],
            "similar paths: src/purse.rs",
        ),
    ] {
        let arguments: Vec<&str> =
            std::iter::once("context").chain(arguments.iter().map(String::as_str)).collect();
        let output = run_countersign(&arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn context_command_lists_files_missing_in_a_partial_clone_and_fails_on_full_disk() {
    let full = repository();
    commit(full.path(), &[("src/purse.rs", PURSE)]);
    git(full.path(), &["config", "uploadpack.allowFilter", "true"]);
    let at = tempfile::tempdir().unwrap();
    let from = format!("file://{}", full.path().display());
    git(at.path(), &["clone", "--quiet", "--bare", "--filter=blob:none", &from, "partial"]);
    let partial = at.path().join("partial");
    let output = run_countersign(&["context", "--repo", partial.to_str().unwrap()]);
    let printed = text(&output.stderr);
    assert!(
        output.status.success() && printed.contains("clone with `--filter`: 1 (src/purse.rs)"),
        "{printed}"
    );

    let mut context = Command::new(env!("CARGO_BIN_EXE_countersign"));
    context.args(["context", "--repo", full.path().to_str().unwrap()]);
    let output = context.stdout(std::fs::File::create("/dev/full").unwrap()).output().unwrap();
    let printed = text(&output.stderr);
    assert!(!output.status.success() && printed.contains("the context cannot be written"), "{printed}");
}

#[test]
fn context_command_suggests_the_files_option_when_it_shows_no_file() {
    let root = repository();
    commit(root.path(), &[("src/purse.rs", PURSE)]);
    for budget in ["0", "5000"] {
        let output =
            run_countersign(&["context", "--repo", root.path().to_str().unwrap(), "--budget", budget]);
        let printed = text(&output.stderr);
        assert!(
            output.status.success() && printed.contains("no file is shown: name some with --files"),
            "{printed}"
        );
    }
}
