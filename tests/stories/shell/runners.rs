//! Stories about `countersign test` on prepared tests, with the real test runners of this machine.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use super::process::{Running, git, run_countersign, text};

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

/// Creates a repository with the prepared tests for this kind of runner. Tests that hang are left out.
fn planted(kind: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/runners/planted").join(kind);
    copy(&from, root.path(), "hangs");
    git(root.path(), &["init", "--quiet", "--initial-branch=main"]);
    git(root.path(), &["add", "--all"]);
    git(root.path(), &["commit", "--quiet", "-m", "planted"]);
    root
}

/// Returns whether the output reports that the runner or the sandbox is missing. In that case prints that the test is
/// skipped.
fn skipped(output: &Output) -> bool {
    const APART: [&str; 2] = [
        "no sandbox works on this machine (",
        "dependencies are fetched only at the full level of the sandbox",
    ];
    const RUNNERS: [&str; 4] = [
        "Rust's tests need rustc and cargo; install them by rustup or `apt install cargo`: ",
        "Go's tests need Go 1.19 or newer; install it (`apt install golang`, or a newer one from its makers): ",
        "Python's tests need python3 with pytest; install it with `python3 -m pip install pytest`: ",
        "JavaScript's tests need Node 20 or newer; install it (`apt install nodejs npm`, or a newer one from its makers): ",
    ];
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    let contains_any = |sentences: &[&str]| sentences.iter().any(|sentence| printed.contains(sentence));
    let apart = contains_any(&APART);
    assert!(
        !apart || std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(),
        "must be tried here: {printed}"
    );
    let skipped = apart || contains_any(&RUNNERS);
    if skipped {
        eprintln!("skipped: {printed}");
    }
    skipped
}

/// Returns one line of the form `id: outcome` per test. Returns `None` if the runner or the sandbox is missing.
fn test_outcomes(repository: &Path, more: &[&str]) -> Option<Vec<String>> {
    let cache = tempfile::tempdir().unwrap();
    let [repository, cache] = [repository, cache.path()].map(|path| path.to_str().unwrap());
    let output =
        run_countersign(&[&["test", "--json", "--repo", repository, "--cache", cache], more].concat());
    let printed = text(&output.stderr);
    if skipped(&output) {
        return None;
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{printed}"));
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
fn cargo_test_outcomes_are_reported_from_the_sandbox() {
    let Some(lines) = test_outcomes(planted("cargo").path(), &[]) else { return };
    insta::assert_snapshot!(lines.join("\n"), @r"
    planted tests::fails: assertion
    planted tests::passes: passed
    planted tests::should_panic_and_does_not: assertion
    planted tests::skipped: skipped
    planted::broken: build
    planted::crashes crashes: crash
    planted::crashes passes: crash
    planted::doc src/lib.rs - double (1): passed
    planted::missing: missing
    ");
}

#[test]
fn pytest_outcomes_are_reported_from_the_sandbox() {
    let Some(lines) = test_outcomes(planted("pytest").path(), &[]) else { return };
    insta::assert_snapshot!(lines.join("\n"), @r"
    tests/test_missing_import.py: missing
    tests/test_planted.py::TestGroup::test_each[1]: passed
    tests/test_planted.py::TestGroup::test_each[a b]: passed
    tests/test_planted.py::TestGroup::test_each[x::y]: passed
    tests/test_planted.py::test_expected: skipped
    tests/test_planted.py::test_fails: assertion
    tests/test_planted.py::test_missing: missing
    tests/test_planted.py::test_passes: passed
    tests/test_planted.py::test_setup: error
    tests/test_planted.py::test_skipped: skipped
    tests/test_syntax.py: build
    ");
}

#[test]
fn node_test_outcomes_are_reported_from_the_sandbox() {
    let Some(lines) = test_outcomes(planted("node").path(), &[]) else { return };
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
#[ignore = "takes long"]
fn go_test_outcomes_are_reported_from_the_sandbox() {
    let Some(lines) = test_outcomes(planted("go").path(), &[]) else { return };
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

/// Maven runs offline, with Debian's own Maven repository, and writes its report as JUnit XML.
#[test]
#[ignore = "takes long"]
fn java_test_outcomes_are_parsed_from_the_junit_report_of_the_test_command() {
    let missing = !Path::new("/usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin").is_dir();
    if missing {
        assert!(std::env::var_os("COUNTERSIGN_TEST_JAVA").is_none(), "must be tried here");
        eprintln!("skipped: Debian's Maven, surefire or JUnit is not installed");
        return;
    }
    let root = planted("java");
    let Some(lines) = test_outcomes(root.path(), &[]) else {
        assert!(std::env::var_os("COUNTERSIGN_TEST_JAVA").is_none(), "must be tried here");
        return;
    };
    insta::assert_snapshot!(lines.join("\n"), @r"
    planted.PlantedTest::assumed: skipped
    planted.PlantedTest::fails: assertion
    planted.PlantedTest::hangs: timeout
    planted.PlantedTest::misses: missing
    planted.PlantedTest::passes: passed
    planted.PlantedTest::skipped: skipped
    planted.PlantedTest::throwsSomething: error
    ");
    let broken = "package planted;\npublic class BrokenTest { int n = Planted.thrice(2); }\n";
    std::fs::write(root.path().join("src/test/java/planted/BrokenTest.java"), broken).unwrap();
    git(root.path(), &["add", "--all"]);
    git(root.path(), &["commit", "--quiet", "-m", "broken"]);
    let output = run_countersign(&["test", "--repo", root.path().to_str().unwrap()]);
    let printed = text(&output.stdout);
    assert!(!output.status.success() && printed.contains("left no report"), "{printed}");
    assert!(printed.contains("BrokenTest.java") && printed.contains("cannot find symbol"), "{printed}");
}

#[test]
fn repository_test_command_runs_and_a_committed_report_file_is_ignored() {
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
    let Some(lines) = test_outcomes(root.path(), &["--twice"]) else { return };
    assert_eq!(lines, ["new: passed"]);
}

/// A repository's tool settings may name other hosts and programs. The package tool must ignore them and contact only
/// the registry that the lock file names. That registry is not allowed in this test, so the error must name the
/// registry's host.
#[test]
fn error_names_a_host_that_the_sandbox_blocked() {
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
        let output = run_countersign(&["test", "--repo", repository, "--cache", kept]);
        let printed = text(&output.stderr);
        if skipped(&output) {
            continue;
        }
        assert!(
            printed.contains("is not allowed; `--host ") && printed.contains("`hosts = [\""),
            "{program}: {printed}"
        );
        assert!(!printed.contains("evil.invalid") && printed.lines().count() == 1, "{program}: {printed}");
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0, "{program}: the cache is not empty");
    }
}

/// Paths and contents of files.
type Files = Vec<(String, String)>;

/// Secret key of an operator, which must never be stored or printed.
const SECRET: &str = "planted-secret";

fn holds_the_secret(place: &Path) -> bool {
    Command::new("grep").args(["-RqsF", SECRET]).arg(place).status().unwrap().success()
}

/// Returns the files of a project that depends on the package `name`. Also returns the operator's settings, which name
/// a mirror.
fn mirror_project(kind: &str, name: &str, registry_info: &Value) -> (Files, Files) {
    let (sums, here) = (&registry_info["sums"][name], format!("https://127.0.0.1:{}", registry_info["port"]));
    let sum = |kind: &str| sums[kind].as_str().unwrap().to_owned();
    let text = |path: &str, text: String| (path.to_owned(), text);
    match kind {
        "cargo" => {
            let own = "[package]\nname = \"own\"\nversion = \"0.1.0\"\nedition = \"2021\"\n";
            let lock = format!(
                "version = 3\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\"{name}\"]\n\n[[package]]\nname = \"{name}\"\n\
                 version = \"1.0.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"\nchecksum = \"{}\"\n",
                sum("crate")
            );
            let test = format!(
                "#[test]\nfn fetched() {{\n    assert_eq!({name}::word(), 7);\n    \
                 let home = std::env::var(\"HOME\").unwrap();\n    let mut grep = std::process::Command::new(\"grep\");\n    \
                 assert!(!grep.args([\"-RqsF\", concat!(\"planted\", \"-secret\"), &home]).status().unwrap().success());\n}}\n"
            );
            let files = [
                text("Cargo.toml", format!("{own}[dependencies]\n{name} = \"1\"\n")),
                text("Cargo.lock", lock),
                text("src/lib.rs", test),
            ];
            let config = format!(
                "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+{here}/{name}/\"\n[http]\n\
                 cainfo = \"ca.pem\"\n[registries.other]\nindex = \"sparse+{here}/other/\"\ntoken = \"{SECRET}\"\n"
            );
            let keys = text(".cargo/credentials.toml", format!("[registry]\ntoken = \"{SECRET}\"\n"));
            (files.into(), vec![text(".cargo/config.toml", config), keys])
        }
        "node" => {
            let lock = format!(
                r#"{{"name": "own", "version": "1.0.0", "lockfileVersion": 3, "packages": {{
                "": {{"name": "own", "version": "1.0.0", "dependencies": {{"{name}": "1.0.0"}}}},
                "node_modules/{name}": {{"version": "1.0.0", "integrity": "{}"}}}}}}"#,
                sum("tgz")
            );
            let manifest =
                format!(r#"{{"name": "own", "version": "1.0.0", "dependencies": {{"{name}": "1.0.0"}}}}"#);
            let test = format!(
                "require('node:test')('fetched', () => {{\n    require('node:assert').equal(require('{name}').word(), 7);\n    \
                 const grep = require('node:child_process').spawnSync('grep', ['-RqsF', 'planted' + '-secret', process.env.HOME]);\n    \
                 require('node:assert').ok(grep.status > 0);\n}});\n"
            );
            let files =
                [text("package.json", manifest), text("package-lock.json", lock), text("a.test.js", test)];
            let key = format!("//127.0.0.1:{}/npm/:_authToken={SECRET}", registry_info["port"]);
            (files.into(), vec![text(".npmrc", format!("registry={here}/npm/\nstrict-ssl=false\n{key}\n"))])
        }
        _ => {
            let files = [
                text("pyproject.toml", String::new()),
                text("requirements.txt", format!("{name}==1.0.0 --hash=sha256:{}\n", sum("whl"))),
                text(
                    "test_a.py",
                    format!(
                        "import os, subprocess, {name}\ndef test_fetched():\n    assert {name}.word() == 7\n    \
                         grep = ['grep', '-RqsF', 'planted' + '-secret', os.environ['HOME']]\n    \
                         assert subprocess.run(grep).returncode > 0\n"
                    ),
                ),
            ];
            let trusted = format!("trusted-host = 127.0.0.1:{}", registry_info["port"]);
            let config = format!("[global]\nindex-url = {here}/simple/\n{trusted}\n");
            let keys = text(".netrc", format!("machine 127.0.0.1 login a password {SECRET}\n"));
            (files.into(), vec![text(".config/pip/pip.conf", config), keys])
        }
    }
}

/// The registries run on this machine. Allowed hosts must be reached; hosts to which an allowed host redirects must not
/// be reached.
#[test]
#[ignore = "takes long"]
fn dependencies_come_only_from_allowed_hosts() {
    let lacks = |program: &&str| Command::new(program).arg("--version").output().is_err();
    if ["python3", "openssl"].iter().any(lacks) {
        assert!(std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(), "must be tried here");
        eprintln!("skipped: the registries need python3 and openssl");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/runners/registry.py");
    let mut registry = Running::start(Command::new("python3").arg(script).arg(place.path()));
    let registry_info: Value = serde_json::from_str(&registry.wait_for_line("port")).unwrap();
    let write = |root: &Path, path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let elsewhere = format!("127.0.0.2:{}", registry_info["port"]);
    let refused = format!("`{elsewhere}` is not allowed; `--host {elsewhere}` allows it");
    let never = "`169.254.169.254` resolves to an address that is always blocked".to_owned();
    for kind in ["cargo", "node", "pytest"] {
        for (name, why) in [("planted", None), ("elsewhere", Some(&refused)), ("metadata", Some(&never))] {
            let [root, home, cache] = [(); 3].map(|()| tempfile::tempdir().unwrap());
            let (files, settings) = mirror_project(kind, name, &registry_info);
            files.iter().for_each(|(path, text)| write(root.path(), path, text));
            settings.iter().for_each(|(path, text)| write(home.path(), path, text));
            std::fs::copy(place.path().join("ca.pem"), home.path().join("ca.pem")).unwrap();
            git(root.path(), &["init", "--quiet", "--initial-branch=main"]);
            git(root.path(), &["add", "--all"]);
            git(root.path(), &["commit", "--quiet", "-m", "what it depends on"]);
            let host = format!("127.0.0.1:{}", registry_info["port"]);
            let [repository, own, kept] = [&root, &home, &cache].map(|place| place.path().to_str().unwrap());
            let words = ["test", "--json", "--repo", repository, "--home", own, "--cache", kept, "--host"];
            let output = run_countersign(&[&words[..], &[&host, "--host", "169.254.0.0/16"]].concat());
            let (out, printed) = (text(&output.stdout), text(&output.stderr));
            if skipped(&output) {
                break;
            }
            assert!(holds_the_secret(home.path()), "{kind}: no secret was planted");
            let shown = holds_the_secret(cache.path()) || out.contains(SECRET) || printed.contains(SECRET);
            assert!(!shown, "{kind}: a key was stored or printed: {out}{printed}");
            assert_eq!(cache.path().read_dir().unwrap().count(), usize::from(why.is_none()), "{kind}");
            match why {
                None => assert!(output.status.success(), "{kind}: {out}{printed}"),
                Some(why) => {
                    assert!(!output.status.success() && printed.contains(why), "{kind}: {out}{printed}");
                    assert_eq!(printed.lines().count(), 1, "{kind}: {printed}");
                }
            }
        }
    }
}

/// Returns the directory of a released package, if this machine has it. The package may have been fetched by `.ci/run`
/// or be in cargo's local registry.
fn release(name: &str) -> Option<PathBuf> {
    let fetched = std::env::var_os("COUNTERSIGN_TEST_RELEASES").map(PathBuf::from);
    let home = |name: &str, usual: &str| {
        let named = std::env::var_os(name).map(PathBuf::from);
        named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(usual)))
    };
    let registries = home("CARGO_HOME", ".cargo").map(|home| home.join("registry/src"));
    let registries =
        registries.into_iter().flat_map(|all| std::fs::read_dir(all).into_iter().flatten().flatten());
    let mut places = registries.map(|entry| entry.path()).chain(fetched);
    places.find_map(|place| Some(place.join(name)).filter(|release| release.is_dir()))
}

/// Returns the test names in another runner's output. A name is the part of a line between `before` and `after`.
fn named<'l>(lines: &'l str, before: &str, after: &str) -> Vec<&'l str> {
    let mut names: Vec<&str> =
        lines.lines().filter_map(|line| line.trim().strip_prefix(before)?.strip_suffix(after)).collect();
    names.sort_unstable();
    names
}

/// Each test of some released packages must have the same name and outcome in the sandbox as with the package's own
/// runner outside.
#[test]
#[ignore = "takes long"]
fn tests_of_released_packages_have_equal_outcomes_inside_and_outside_the_sandbox() {
    let tap = "--test-reporter=tap";
    let suites: [(&str, &str, &[&str], usize); 4] = [
        ("strsim-0.11.1", "cargo", &["test", "--offline"], 90),
        ("parse-1.20.2", "python3", &["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"], 90),
        ("fastify-error-4.2.0", "node", &["--test", tap], 10),
        ("uuid-1.4.0", "go", &["test", "-v", "./..."], 30),
    ];
    for (name, program, words, least) in suites {
        let Some(release) = release(name) else {
            eprintln!("skipped: {name}, because it is not here");
            continue;
        };
        let root = tempfile::tempdir().unwrap();
        copy(&release, root.path(), "\0");
        git(root.path(), &["init", "--quiet", "--initial-branch=main"]);
        git(root.path(), &["add", "--all", "--force"]);
        git(root.path(), &["commit", "--quiet", "-m", name]);
        let Some(lines) = test_outcomes(root.path(), &[]) else { continue };
        let outside = Command::new(program).args(words).current_dir(root.path()).output().unwrap();
        let printed = text(&outside.stdout);
        assert!(outside.status.success(), "{name}: {printed}");
        let passed = lines.iter().filter_map(|line| line.strip_suffix(": passed"));
        // The last part of an id is the test's name. Most runners do not print its file or binary.
        let (theirs, mut ours): (Vec<&str>, Vec<&str>) = match program {
            // A doc test has its line in cargo's name and its number within the item in ours.
            "cargo" => {
                let item = |name: &'_ str| name.split_once(" (").map_or(name.len(), |(item, _)| item.len());
                let theirs = named(&printed, "test ", " ... ok").into_iter();
                let ours = passed.filter_map(|id| Some(id.split_once(' ')?.1));
                (
                    theirs.map(|name| &name[..item(name)]).collect(),
                    ours.map(|name| &name[..item(name)]).collect(),
                )
            }
            "python3" => (named(&printed, "PASSED ", ""), passed.collect()),
            "go" => (
                named(&printed, "--- PASS: ", ")")
                    .iter()
                    .map(|line| line.rsplit_once(" (").unwrap().0)
                    .collect(),
                passed.filter_map(|id| Some(id.rsplit_once('.')?.1)).collect(),
            ),
            _ => {
                let numbered =
                    named(&printed, "ok ", "").into_iter().filter_map(|line| Some(line.split_once(" - ")?.1));
                let tests = numbered.filter(|name| !name.ends_with(".js"));
                (tests.collect(), passed.filter_map(|id| Some(id.split_once(" > ")?.1)).collect())
            }
        };
        let mut theirs = theirs;
        theirs.sort_unstable();
        ours.sort_unstable();
        assert_eq!(ours, theirs, "{name}: {lines:#?}");
        assert!(ours.len() >= least, "{name}: {}", ours.len());
        eprintln!("{name}: {} tests, as outside", ours.len());
    }
}
