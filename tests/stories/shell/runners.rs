//! `countersign test` on the planted tests, by the real runners of this machine.

use std::{path::Path, process::Command};

use serde_json::Value;

use super::process::{finished, git, text};

fn copy(from: &Path, to: &Path, without: &str) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match path.is_dir() {
            _ if name.to_str().unwrap().contains(without) => {}
            true => copy(&path, &to.join(name), without),
            false => drop(std::fs::copy(&path, to.join(name)).unwrap()),
        }
    }
}

/// The planted tests of a kind, without those that hang; committed.
fn planted(kind: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runners/planted").join(kind);
    copy(&from, root.path(), "hangs");
    git(root.path(), &["init", "--quiet", "--initial-branch=main"]);
    git(root.path(), &["add", "--all"]);
    git(root.path(), &["commit", "--quiet", "-m", "planted"]);
    root
}

/// `id: outcome`, a line a test; none where this machine lacks the runner or a sandbox.
fn tested(repository: &Path, more: &[&str]) -> Option<Vec<String>> {
    let output = finished(&[&["test", "--json", "--repo", repository.to_str().unwrap()], more].concat());
    let said = text(&output.stderr);
    if said.contains("install") || said.contains("nothing can be run apart") {
        eprintln!("skipped: {said}");
        return None;
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(report["trouble"], serde_json::json!([]), "{report:#}");
    let tests = report["tests"].as_array().unwrap().iter();
    let outcome = |test: &Value| match &test["outcome"] {
        Value::String(outcome) => outcome.clone(),
        failed => failed["failed"].as_str().unwrap().to_owned(),
    };
    let mut lines: Vec<String> =
        tests.map(|test| format!("{}: {}", test["id"].as_str().unwrap(), outcome(test))).collect();
    lines.sort();
    let failed = lines.iter().any(|line| !line.ends_with(": passed") && !line.ends_with(": skipped"));
    assert_eq!(output.status.success(), !failed, "{lines:#?}");
    Some(lines)
}

#[test]
fn cargo_runs() {
    let Some(lines) = tested(planted("cargo").path(), &[]) else { return };
    insta::assert_snapshot!(lines.join("\n"), @r"
    planted tests::fails: assertion
    planted tests::passes: passed
    planted tests::should_panic_and_does_not: assertion
    planted tests::skipped: skipped
    planted::broken: build
    planted::crashes crashes: crash
    planted::crashes passes: crash
    planted::doc src/lib.rs - double (line 3): passed
    planted::missing: missing
    ");
}

#[test]
fn pytest_runs() {
    let Some(lines) = tested(planted("pytest").path(), &[]) else { return };
    insta::assert_snapshot!(lines.join("\n"), @r"
    tests/test_missing_import.py: missing
    tests/test_planted.py::TestGroup::test_each[1]: passed
    tests/test_planted.py::TestGroup::test_each[a b]: passed
    tests/test_planted.py::TestGroup::test_each[x::y]: passed
    tests/test_planted.py::test_expected: skipped
    tests/test_planted.py::test_fails: assertion
    tests/test_planted.py::test_missing: missing
    tests/test_planted.py::test_passes: passed
    tests/test_planted.py::test_setup: assertion
    tests/test_planted.py::test_skipped: skipped
    tests/test_syntax.py: build
    ");
}

#[test]
fn node_runs() {
    let Some(lines) = tested(planted("node").path(), &[]) else { return };
    insta::assert_snapshot!(lines.join("\n"), @r"
    test/crashes.test.js: crash
    test/missing-import.test.js: missing
    test/planted.test.js > fails: assertion
    test/planted.test.js > group > inner fails: assertion
    test/planted.test.js > group > inner: passed
    test/planted.test.js > passes: passed
    test/planted.test.js > skipped: skipped
    test/planted.test.js > throws: missing
    test/planted.test.js > todo: skipped
    test/syntax.test.js: build
    ");
}

#[test]
fn go_runs() {
    let Some(lines) = tested(planted("go").path(), &[]) else { return };
    insta::assert_snapshot!(lines.join("\n"), @r"
    example.com/planted.TestFails: assertion
    example.com/planted.TestGroup/inner: passed
    example.com/planted.TestGroup/inner_fails: assertion
    example.com/planted.TestGroup: assertion
    example.com/planted.TestPasses: passed
    example.com/planted.TestSkipped: skipped
    example.com/planted/broken: build
    example.com/planted/missing: missing
    example.com/planted/panics.TestPanics: crash
    example.com/planted/panics.TestPasses: passed
    example.com/planted/undefined: missing
    ");
}

#[test]
fn a_command_of_the_repository_runs_and_a_report_that_was_committed_does_not_count() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("out/old.xml", "<testsuite><testcase name='old'/></testsuite>");
    write("new.xml", "<testsuite><testcase name='new'/></testsuite>");
    write(
        ".github/countersign.toml",
        "[test]\ncommand = \"mkdir out && cp new.xml out/ && ln -s /etc/passwd out/x.xml\"\nreport = \"out\"\n",
    );
    git(root.path(), &["init", "--quiet", "--initial-branch=main"]);
    git(root.path(), &["add", "--all"]);
    git(root.path(), &["commit", "--quiet", "-m", "a command"]);
    let Some(lines) = tested(root.path(), &["--twice"]) else { return };
    assert_eq!(lines, ["new: passed"]);
}

/// Whatever a repository tells its tools of other places and programs: who is asked for what a lock names is who the tool
/// itself asks, and nobody lets it through.
#[test]
fn a_host_that_is_missed_is_named() {
    let crates = "[[package]]\nname = \"a\"\nversion = \"0.1.0\"\ndependencies = [\"cfg-if-not\"]\n\n[[package]]\n\
                  name = \"cfg-if-not\"\nversion = \"1.0.0\"\n\
                  source = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"00\"\n";
    let packages = r#"{"name": "a", "version": "1.0.0", "lockfileVersion": 3, "packages": {
        "": {"name": "a", "version": "1.0.0", "dependencies": {"b": "1.0.0"}},
        "node_modules/b": {"version": "1.0.0", "integrity": "sha512-AAAA"}}}"#;
    let wheel = format!("no-such-package-of-ours==1.0 --hash=sha256:{:064}\n", 0);
    let other = "https://evil.invalid/";
    let config = format!(
        "[build]\nrustc-wrapper = \"false\"\n[source.crates-io]\nreplace-with = \"evil\"\n[source.evil]\nregistry = \"sparse+{other}\"\n"
    );
    let kinds: [(&str, &[(&str, &str)]); 3] = [
        (
            "cargo",
            &[
                (
                    "Cargo.toml",
                    "[package]\nname = \"a\"\nversion = \"0.1.0\"\n[dependencies]\ncfg-if-not = \"1\"\n",
                ),
                ("Cargo.lock", crates),
                (".cargo/config.toml", &config),
                ("rust-toolchain", "none-such"),
                ("src/lib.rs", ""),
            ],
        ),
        (
            "npm",
            &[
                ("package.json", r#"{"name": "a", "version": "1.0.0", "dependencies": {"b": "1.0.0"}}"#),
                ("package-lock.json", packages),
                (".npmrc", &format!("registry={other}\n")),
            ],
        ),
        (
            "python3",
            &[
                ("pyproject.toml", ""),
                ("requirements.txt", &wheel),
                ("pip.conf", &format!("[global]\nindex-url = {other}\n")),
                ("conftest.py", "raise Exception('run')"),
            ],
        ),
    ];
    for (program, files) in kinds {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: {program} is not installed");
            continue;
        }
        let (root, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        git(root.path(), &["init", "--quiet", "--initial-branch=main"]);
        git(root.path(), &["add", "--all"]);
        git(root.path(), &["commit", "--quiet", "-m", "what it depends on"]);
        let [repository, kept] = [root.path(), cache.path()].map(|path| path.to_str().unwrap());
        let output = finished(&["test", "--repo", repository, "--cache", kept]);
        let said = text(&output.stderr);
        let lacks = ["install", "nothing can be run apart"];
        if lacks.iter().any(|words| said.contains(words)) || text(&output.stdout).contains("full level") {
            eprintln!("skipped: {said}");
            continue;
        }
        assert!(
            said.contains("may not be reached; `--host ") && said.contains("`hosts = [\""),
            "{program}: {said}"
        );
        assert!(!said.contains("evil.invalid") && said.lines().count() == 1, "{program}: {said}");
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0, "{program}: something is left");
    }
}
