//! Tests of the report readers, on real reports of the sample tests in `fixtures/runners/planted`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

use super::{projects::detect_project, *};

fn recorded(name: &str) -> String {
    let path = format!("{}/fixtures/runners/reports/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn project() -> TestProject {
    let manifest = r#"{ "scripts": { "test": "node --test test/" } }"#.to_owned();
    let time = Duration::from_secs(40);
    TestProject { root: "/tree".into(), reports: "/out".into(), manifest, time, ..TestProject::default() }
}

fn suite_output(end: CommandExit, stdout: &str, reports: &[&str]) -> SuiteOutput {
    let reports = reports.iter().map(|report| (*report).to_owned()).collect();
    SuiteOutput { end, stdout: stdout.to_owned(), stderr: String::new(), reports, lines: None }
}

/// Formats each test of a report as `id: outcome at location`.
fn test_lines(found: &TestReport) -> Vec<String> {
    let line = |test: &TestResult| {
        let outcome = match test.outcome {
            TestOutcome::Passed => "passed",
            TestOutcome::Skipped => "skipped",
            TestOutcome::Failed(failure) => failure.name(),
        };
        let place = test.place.as_ref().map(|place| format!(" at {place}")).unwrap_or_default();
        format!("{}: {outcome}{place}", test.id)
    };
    let mut lines: Vec<String> = found.tests.iter().map(line).collect();
    lines.sort();
    lines
}

fn message<'f>(found: &'f TestReport, id: &str) -> &'f str {
    &found.tests.iter().find(|test| test.id == id).unwrap_or_else(|| panic!("no {id}")).message
}

/// Formats each compiler error of a report as `file: missing names`.
fn faults(found: &TestReport, id: &str) -> Vec<String> {
    let test = found.tests.iter().find(|test| test.id == id).unwrap_or_else(|| panic!("no {id}"));
    test.faults.iter().map(|fault| format!("{}: {}", fault.file, fault.missing.join(" "))).collect()
}

fn read(runner: &TestRunner, project: TestProject, suite_output: SuiteOutput) -> TestReport {
    let mut found = TestReport::default();
    let mut suite = (runner.suite)(project);
    suite.begin().unwrap();
    assert!(suite.read_output(suite_output, &mut found).is_none());
    found.finish();
    found
}

#[test]
fn cargo_test_output_is_parsed() {
    let mut found = TestReport::default();
    let mut suite = (cargo::RUNNER.suite)(project());
    let mut call = Some(suite.begin().unwrap());
    let mut suite_output = Some(suite_output(CommandExit::Exit(101), &recorded("cargo-build.jsonl"), &[]));
    let mut calls = Vec::new();
    while let Some(command) = call.take() {
        let program =
            command.program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = program.split('-').next().unwrap_or_default().to_owned();
        let (list, alone) = (
            command.args.iter().any(|arg| arg == "--list"),
            command.args.iter().any(|arg| arg.contains("threads")),
        );
        calls.push(format!("{name} {}", command.args.join(" ")));
        let after = suite_output.take().unwrap_or_else(|| match (name.as_str(), list, alone) {
            ("planted" | "crashes" | "hangs", true, _) => {
                self::suite_output(CommandExit::Exit(0), &recorded(&format!("cargo-{name}.list")), &[])
            }
            ("planted", ..) => {
                self::suite_output(CommandExit::Exit(101), &recorded("cargo-planted.txt"), &[])
            }
            ("crashes", _, false) => self::suite_output(CommandExit::Signal(6), "\nrunning 2 tests\n", &[]),
            ("crashes", _, true) => {
                self::suite_output(CommandExit::Signal(6), &recorded("cargo-crashes-alone.txt"), &[])
            }
            ("hangs", ..) => self::suite_output(CommandExit::TimedOut, &recorded("cargo-hangs.txt"), &[]),
            _ => self::suite_output(CommandExit::Exit(0), "", &[]),
        });
        call = suite.read_output(after, &mut found);
    }
    insta::assert_snapshot!(test_lines(&found).join("\n"), @r"
    planted tests::fails: assertion at src/lib.rs:22
    planted tests::passes: passed
    planted tests::should_panic_and_does_not: assertion at src/lib.rs:31
    planted tests::skipped: skipped
    planted::broken: build or collection at tests/broken.rs:3
    planted::crashes crashes: crash
    planted::crashes passes: crash
    planted::hangs hangs: timeout
    planted::hangs passes: passed
    planted::missing: missing symbol or import at tests/missing.rs:1
    ");
    assert_eq!(found.trouble, [""; 0]);
    assert!(message(&found, "planted tests::fails").contains("left: 4"));
    assert!(message(&found, "planted::missing").contains("unresolved import `no_such_crate`"));
    assert_eq!(faults(&found, "planted::missing"), ["tests/missing.rs: no_such_crate"]);
    assert_eq!(faults(&found, "planted::broken"), ["tests/broken.rs: "]);
    assert!(message(&found, "planted::crashes passes").contains("`crashes`: signal 6"));
    assert_eq!(message(&found, "planted tests::skipped"), "not today");
    assert!(
        calls.iter().any(|call| call.contains("--doc -p path+file:///tree#planted@0.1.0 -- --list")),
        "{calls:?}"
    );
}

#[test]
fn cargo_test_binaries_run_in_a_stable_order() {
    let order = |built: &[&str]| {
        let (mut suite, mut found) = ((cargo::RUNNER.suite)(project()), TestReport::default());
        suite.begin().unwrap();
        let mut call =
            suite.read_output(suite_output(CommandExit::Exit(101), &built.join("\n"), &[]), &mut found);
        let mut programs = Vec::new();
        while let Some(command) = call {
            programs.push(command.program);
            call = suite.read_output(suite_output(CommandExit::Exit(0), "", &[]), &mut found);
        }
        programs
    };
    let built = recorded("cargo-build.jsonl");
    let mut built: Vec<_> = built.lines().collect();
    let programs = order(&built);
    assert!(programs.len() > 3, "{programs:?}");
    built.reverse();
    assert_eq!(order(&built), programs);
}

#[test]
fn deeply_nested_json_line_in_cargo_output_is_ignored() {
    let deep = format!("{{\"a\":{}", "[".repeat(1_000_000));
    let found = read(&cargo::RUNNER, project(), suite_output(CommandExit::Exit(0), &deep, &[]));
    assert_eq!(found.trouble, ["no tests were found"]);
}

#[test]
fn toolchain_inside_home_exposes_only_its_own_files_to_the_sandbox() {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap()).canonicalize().unwrap();
    let home = home.to_str().unwrap();
    let shown = |runner: &TestRunner, lines: &[&str]| {
        let read = (runner.probe.tool)(lines).unwrap().read;
        read.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
    };
    let node = format!("{home}/bin/node");
    assert_eq!(shown(&node::RUNNER, &[&node]), [node]);
    assert_eq!(shown(&node::RUNNER, &["/bin/node"]), ["/bin/node"]);
    assert_eq!(shown(&node::RUNNER, &["/opt/node/bin/node"]), ["/opt/node/bin", "/opt/node/lib"]);
    let lines = ["/p/bin/python3", "/p", home, "/q/lib/python3", "/q/site-packages", home, "", "/"];
    assert_eq!(shown(&pytest::RUNNER, &lines), ["/p", "/q/site-packages"]);
}

#[test]
fn test_report_nesting_and_error_count_are_limited() {
    let event = |kind: &str, nesting: usize| {
        format!(r#"{{"type":"{kind}","name":"n","nesting":{nesting},"file":"/tree/a.js"}}"#) + "\n"
    };
    let report: String = (0..200).map(|nesting| event("start", nesting)).collect();
    let found = read(
        &node::RUNNER,
        project(),
        suite_output(CommandExit::Exit(0), "", &[&(report + &event("pass", 199))]),
    );
    assert_eq!(found.tests[0].id.matches(" > ").count(), 65);
    let found = generic(Some("r"), suite_output(CommandExit::Exit(0), "", &["no report"; 1_000]));
    assert_eq!(found.trouble.len(), 100);
}

#[test]
fn pytest_report_is_parsed() {
    let found =
        read(&pytest::RUNNER, project(), suite_output(CommandExit::Exit(1), "", &[&recorded("pytest.xml")]));
    insta::assert_snapshot!(test_lines(&found).join("\n"), @r"
    tests/test_missing_import.py: missing symbol or import at tests/test_missing_import.py:1
    tests/test_planted.py::TestGroup::test_each[1]: passed
    tests/test_planted.py::TestGroup::test_each[a b]: passed
    tests/test_planted.py::TestGroup::test_each[x::y]: passed
    tests/test_planted.py::test_expected: skipped
    tests/test_planted.py::test_fails: assertion at tests/test_planted.py:10
    tests/test_planted.py::test_missing: missing symbol or import at tests/test_planted.py:14
    tests/test_planted.py::test_passes: passed
    tests/test_planted.py::test_setup: error at run time at tests/test_planted.py:35
    tests/test_planted.py::test_skipped: skipped
    tests/test_syntax.py: build or collection at tests/test_syntax.py:1
    ");
    assert_eq!(found.trouble, [""; 0]);
    assert_eq!(
        message(&found, "tests/test_planted.py::test_fails"),
        "AssertionError: two\n  lines\nassert (2 + 2) == 5"
    );
    let found = read(
        &pytest::RUNNER,
        project(),
        suite_output(CommandExit::TimedOut, &recorded("pytest-hangs.txt"), &[]),
    );
    assert_eq!(
        test_lines(&found),
        ["tests/test_hangs.py::test_hangs: timeout", "tests/test_hangs.py::test_passes: passed"]
    );
}

#[test]
fn node_test_report_is_parsed() {
    let found =
        read(&node::RUNNER, project(), suite_output(CommandExit::Exit(1), "", &[&recorded("node.jsonl")]));
    insta::assert_snapshot!(test_lines(&found).join("\n"), @r"
    test/crashes.test.js: crash at test/crashes.test.js:2
    test/hangs.test.js > before: passed
    test/hangs.test.js > hangs: timeout
    test/missing-import.test.js: missing symbol or import
    test/planted.test.js > fails: assertion at test/planted.test.js:6
    test/planted.test.js > group > inner fails: assertion at test/planted.test.js:13
    test/planted.test.js > group > inner: passed
    test/planted.test.js > passes: passed
    test/planted.test.js > skipped: skipped
    test/planted.test.js > throws: missing symbol or import at test/planted.test.js:8
    test/planted.test.js > todo: skipped
    test/syntax.test.js: build or collection at test/syntax.test.js:1
    ");
    assert_eq!(found.trouble, [""; 0]);
    assert!(message(&found, "test/planted.test.js > fails").contains("4 !== 5"));
    assert!(message(&found, "test/missing-import.test.js").contains("Cannot find package 'no-such-module'"));
}

/// Go 1.19 writes build errors to its standard error only, and has no event for them. Go 1.22 has the event.
#[test]
fn build_errors_of_older_go_versions_are_parsed() {
    let stderr = "# example.com/m/imp\nimp/c_test.go:2:20: cannot find module providing package example.com/m/none: x\n\
                  # example.com/m/bad [example.com/m/bad.test]\nbad/b_test.go:3:27: undefined: missing\n";
    let lines = "FAIL\texample.com/m/imp [setup failed]\nFAIL\texample.com/m/bad [build failed]\n";
    let events = ["imp [setup", "bad [build"].map(|which| {
        let package = which.split(' ').next().unwrap();
        let package = format!("\"Package\":\"example.com/m/{package}\"");
        format!(
            "{{\"Action\":\"output\",{package},\"Output\":\"FAIL\\texample.com/m/{which} failed]\\n\"}}\n\
             {{\"Action\":\"fail\",{package}}}\n"
        )
    });
    for stdout in [lines.to_owned(), events.concat()] {
        let output =
            SuiteOutput { stderr: stderr.to_owned(), ..suite_output(CommandExit::Exit(1), &stdout, &[]) };
        let found = read(&go::RUNNER, project(), output);
        assert_eq!(
            test_lines(&found),
            [
                "example.com/m/bad: missing symbol or import at bad/b_test.go:3",
                "example.com/m/imp: missing symbol or import at imp/c_test.go:2"
            ]
        );
        assert_eq!(found.trouble, [""; 0]);
    }
}

/// Reads a report of a runner that the script `test` calls.
fn node_script(script: &str, output: SuiteOutput) -> TestReport {
    let manifest = serde_json::json!({ "scripts": { "test": script } }).to_string();
    read(&node::RUNNER, TestProject { manifest, ..project() }, output)
}

#[test]
fn reports_of_jest_vitest_and_mocha_are_parsed() {
    let report = r#"{"testResults": [
        {"name": "/tree/a.test.js", "status": "failed", "message": "", "assertionResults": [
            {"ancestorTitles": ["A", "b"], "title": "one", "status": "passed"},
            {"ancestorTitles": [], "title": "two", "status": "failed", "location": {"line": 3},
             "failureMessages": ["Error: expect(received).toBe(expected)\n    at a (/tree/a.test.js:4:1)"]},
            {"ancestorTitles": [], "title": "three", "status": "failed", "location": {"line": 7}, "failureMessages": ["TypeError: x"]},
            {"ancestorTitles": [], "title": "four", "status": "todo"}]},
        {"name": "/tree/b.test.js", "status": "failed", "message": "SyntaxError: b", "assertionResults": []},
        {"name": "/tree/c.test.js", "status": "failed", "message": "Cannot find module 'c'", "assertionResults": []}]}"#;
    let found = node_script("jest", suite_output(CommandExit::Exit(1), "", &[report]));
    insta::assert_snapshot!(test_lines(&found).join("\n"), @r"
    a.test.js > A > b > one: passed
    a.test.js > four: skipped
    a.test.js > three: error at run time at a.test.js:7
    a.test.js > two: assertion at a.test.js:4
    b.test.js: build or collection
    c.test.js: missing symbol or import
    ");
    assert_eq!((found.trouble.as_slice(), found.has_summary), (&[][..], true));

    let report = r#"<testsuites><testcase classname="t/a.test.ts" name="A &gt; one"/>
        <testcase classname="t/a.test.ts" name="two"><failure type="AssertionError">x ❯ t/a.test.ts:5:17</failure></testcase>
        <testcase classname="t/b.test.ts" name="t/b.test.ts"><failure type="SyntaxError">b</failure></testcase></testsuites>"#;
    let found = node_script("vitest", suite_output(CommandExit::Exit(1), "", &[report]));
    let lines = [
        "t/a.test.ts > A > one: passed",
        "t/a.test.ts > two: assertion at t/a.test.ts:5",
        "t/b.test.ts: build or collection",
    ];
    assert_eq!(test_lines(&found), lines);

    let report = r#"<testsuite><testcase classname="A b" name="one" file="/tree/t.js"/><testcase classname="A" name="two" file="/tree/t.js">
        <failure>1 == 2&#10;AssertionError: 1 == 2&#10;    at x (t.js:9:1)</failure></testcase><testcase classname="" name="three"><skipped/></testcase></testsuite>"#;
    let found = node_script("mocha", suite_output(CommandExit::Exit(1), "", &[report]));
    assert_eq!(test_lines(&found), ["A > two: assertion at t.js:9", "A b > one: passed", "three: skipped"]);

    let found = node_script("mocha", suite_output(CommandExit::Exit(1), "Error: no x", &[]));
    assert_eq!(found.trouble, ["`mocha`: it ended with exit code 1: Error: no x"]);
    let found = node_script("make && mocha", suite_output(CommandExit::Exit(2), "", &[]));
    assert_eq!((test_lines(&found), found.trouble.len()), (vec!["make: build or collection".to_owned()], 1));
}

#[test]
fn one_test_of_a_workspace_member_is_selected_by_its_id() {
    let line = |script: &str, only: &str| {
        let root = r#"{"workspaces": ["p/*"]}"#.to_owned();
        let member = serde_json::json!({ "scripts": { "test": script } }).to_string();
        let manifests =
            [("p/a/package.json".to_owned(), member.clone()), ("p/b/package.json".to_owned(), member)].into();
        let project = TestProject { manifest: root, manifests, only: Some(only.to_owned()), ..project() };
        let command = (node::RUNNER.suite)(project).begin().unwrap();
        assert!(
            command.environment[0].1.starts_with(
                "/tree/p/b/node_modules/.bin:/tree/p/node_modules/.bin:/tree/node_modules/.bin:"
            )
        );
        (command.folder, command.args[1].rsplit_once("out/report").unwrap().1.to_owned())
    };
    let jest = " --testLocationInResults --coverage=false --testNamePattern='^A b one$' 't.js'".to_owned();
    assert_eq!(line("jest", "p/b/t.js > A b > one"), ("p/b".to_owned(), jest));
    assert_eq!(line("mocha", "p/b > A b > one"), ("p/b".to_owned(), " --grep='^A b one$'".to_owned()));
}

#[test]
fn go_test_report_is_parsed() {
    let found = read(&go::RUNNER, project(), suite_output(CommandExit::Exit(1), &recorded("go.jsonl"), &[]));
    insta::assert_snapshot!(test_lines(&found).join("\n"), @r"
    example.com/planted.TestFails: assertion at planted_test.go:10
    example.com/planted.TestGroup/inner: passed
    example.com/planted.TestGroup/inner_fails: assertion at planted_test.go:18
    example.com/planted.TestGroup: assertion
    example.com/planted.TestPasses: passed
    example.com/planted.TestSkipped: skipped
    example.com/planted/broken: build or collection at broken/broken_test.go:5
    example.com/planted/hangs.TestHangs: timeout at hangs/hangs_test.go:7
    example.com/planted/hangs.TestPasses: passed
    example.com/planted/missing: missing symbol or import at missing/missing_test.go:3
    example.com/planted/panics.TestPanics: crash at panics/panics_test.go:7
    example.com/planted/panics.TestPasses: passed
    example.com/planted/undefined: missing symbol or import at undefined/undefined_test.go:5
    ");
    assert_eq!(found.trouble, [""; 0]);
    assert!(message(&found, "example.com/planted.TestFails").contains("got 4\nwant 5"));
    assert_eq!(faults(&found, "example.com/planted/undefined"), ["undefined/undefined_test.go: NoSuch"]);
    assert_eq!(message(&found, "example.com/planted.TestSkipped"), "planted_test.go:14: not today");
    // Files in the root folder.
    let root = recorded("go.jsonl").replace("undefined/undefined_test.go", "./undefined_test.go");
    let found = read(&go::RUNNER, project(), suite_output(CommandExit::Exit(1), &root, &[]));
    assert_eq!(faults(&found, "example.com/planted/undefined"), ["undefined_test.go: NoSuch"]);
}

/// Reads the output of a repository's own test command, with or without a report.
fn generic(report: Option<&str>, suite_output: SuiteOutput) -> TestReport {
    let mut project = project();
    project.settings =
        TestSettings { report: report.map(str::to_owned), ..TestSettings::from_command("make test") };
    let mut found = TestReport::default();
    let mut suite = generic::GenericSuite { project, path: Vec::new(), python: None };
    suite.begin().unwrap();
    assert!(suite.read_output(suite_output, &mut found).is_none());
    found.finish();
    found
}

#[test]
fn custom_test_command_result_is_read_from_exit_code_junit_xml_or_tap() {
    let found = generic(None, suite_output(CommandExit::Exit(0), "fine", &[]));
    assert_eq!((test_lines(&found), found.has_passed()), (vec!["make test: passed".to_owned()], true));
    let found = generic(None, suite_output(CommandExit::Exit(2), "ModuleNotFoundError: x", &[]));
    assert_eq!(test_lines(&found), ["make test: missing symbol or import"]);
    assert_eq!(
        test_lines(&generic(None, suite_output(CommandExit::TimedOut, "", &[]))),
        ["make test: timeout"]
    );

    let surefire = r#"<?xml version="1.0"?><testsuite name="A"><testcase classname="com.A" name="one" time="0"/>
        <testcase classname="com.A" name="two"><failure type="AssertionError" message="x"><![CDATA[at <A>.java:3]]></failure></testcase>
        <testcase classname="com.A" name="three"><error type="java.lang.NoClassDefFoundError">B &amp; &#67;</error></testcase>
        <testcase classname="com.A" name="four"><skipped message="not&#10;today"/></testcase></testsuite>"#;
    let found = generic(Some("target"), suite_output(CommandExit::Exit(1), "", &[surefire]));
    assert_eq!(
        test_lines(&found),
        [
            "com.A::four: skipped",
            "com.A::one: passed",
            "com.A::three: missing symbol or import",
            "com.A::two: assertion"
        ]
    );
    assert_eq!(message(&found, "com.A::three"), "B & C");
    assert_eq!(message(&found, "com.A::two"), "at <A>.java:3");

    let tap = "TAP version 13\n1..5\nok 1 - one\n    ok 1 - inner\nnot ok 2 - two\n  ---\n  message: 'x'\n  ...\n\
               ok 3 - three # SKIP not today\nnot ok 4 - four # TODO later\n";
    let found = generic(None, suite_output(CommandExit::Exit(1), tap, &[]));
    assert_eq!(test_lines(&found), ["four: skipped", "one: passed", "three: skipped", "two: assertion"]);
    assert_eq!(found.trouble, ["the report promises 5 tests and has 4"]);
}

#[test]
fn malformed_or_oversized_test_report_produces_one_error_line() {
    let bomb = r#"<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><testsuite><testcase name="&b;"/></testsuite>"#;
    let one = |report: &str| generic(Some("r.xml"), suite_output(CommandExit::Exit(0), "", &[report]));
    assert_eq!(one(bomb).trouble, ["the report declares a document type, which no test report does"]);
    assert_eq!(one("<testsuite><testcase name='a'/>").trouble, ["the report ends in the middle"]);
    assert_eq!(one("hello").trouble, ["the report is neither JUnit XML nor TAP"]);
    assert_eq!(one("<testsuite/>").trouble, ["no tests were found"]);
    assert!(!one("<testsuite/>").has_passed());
    let gone = generic(Some("r.xml"), suite_output(CommandExit::Exit(0), "", &[]));
    assert_eq!(gone.trouble, ["the command left no report at r.xml: it ended with exit code 0"]);
    let lies =
        generic(Some("r.xml"), suite_output(CommandExit::Exit(1), "", &["<a><testcase name='a'/></a>"]));
    assert_eq!((lies.has_passed(), lies.trouble.len()), (false, 1));

    let many: String = (0..100_000).map(|n| format!("<testcase name='{n}'/>")).collect();
    let found = one(&format!("<testsuite>{many}</testsuite>"));
    assert_eq!(found.tests.len(), 50_000);
    assert_eq!(found.trouble, ["the report has 100000 tests, and 50000 are read; run a part of them"]);

    let long = "x".repeat(1_000_000);
    let found = one(&format!(
        "<testsuite><testcase name='a&#10;b&#27;[31m'><failure>&#27;[31mred&#27;[0m {long}</failure></testcase>\
         <testcase name='{long}'/><testcase name='{long}'/></testsuite>"
    ));
    assert_eq!(found.tests[0].id, "a\\nb");
    assert!(found.tests[0].message.starts_with("red xxx") && found.tests[0].message.len() < 5_000);
    assert!(found.tests[1].id.len() < 500 && found.tests[2].id.ends_with("… (2)"));
}

#[test]
fn runner_runs_only_the_requested_files_when_supported() {
    let command_line = |runner: &TestRunner, targets: &[&str], manifest: Option<&str>| {
        let mut project_with_targets = project();
        project_with_targets.targets = targets.iter().map(|path| (*path).to_owned()).collect();
        project_with_targets.manifest = manifest.map_or(project_with_targets.manifest, str::to_owned);
        (runner.suite)(project_with_targets).begin().unwrap().args.join(" ")
    };
    let args = command_line(&cargo::RUNNER, &["tests/read.rs", "tests/b/main.rs"], None);
    assert!(args.contains("--test=read --test=b") && !args.contains("--tests"), "{args}");
    for (files, manifest) in [
        (&["tests/read.rs", "src/a/tests.rs"][..], None),
        (&["tests/read/help.rs"], None),
        (&["tests/a.json"], None),
        (&["tests/read.rs"], Some("[[test]]")),
    ] {
        assert!(command_line(&cargo::RUNNER, files, manifest).contains("--tests"), "{files:?}");
    }
    assert!(
        command_line(&pytest::RUNNER, &["tests/test_a.py", "tests/a.json"], None)
            .ends_with(" ./tests/test_a.py")
    );
    assert!(
        command_line(&go::RUNNER, &["sub/a_test.go", "sub/b_test.go", "a_test.go"], None)
            .ends_with(" . ./sub")
    );
    let line = command_line(&node::RUNNER, &["test/a.test.js"], None);
    assert!(line.ends_with("--test-timeout=30000 './test/a.test.js'"), "{line}");
    for (file, script) in [
        ("test/a.js", "node --test --import ./x test/"),
        ("test/[a].js", "node --test"),
        ("test/$(x).js", "node --test"),
        ("lib/a.js", "node --test"),
    ] {
        let line = command_line(
            &node::RUNNER,
            &[file],
            Some(&format!(r#"{{ "scripts": {{ "test": "{script}" }} }}"#)),
        );
        assert!(!line.contains(file), "{line}");
    }
}

#[test]
fn nearest_manifest_selects_the_runner() {
    let paths: Vec<String> =
        ["Cargo.toml", "src/lib.rs", "web/package.json", "web/app/a.js", "tools/x/pyproject.toml"]
            .map(str::to_owned)
            .into();
    let of = |at_hand: &[&str]| detect_project(&paths, at_hand).map(|(runner, folder)| (runner.name, folder));
    assert_eq!(of(&[]), Some(("cargo", "")));
    assert_eq!(of(&["web/app/a.js"]), Some(("node", "web")));
    assert_eq!(of(&["web/app/a.js", "src/lib.rs", "src/new.rs"]), Some(("cargo", "")));
    assert_eq!(of(&["tools/x/deep/new.py"]), Some(("pytest", "tools/x")));
    let below = ["docs/a.md".to_owned(), "b/go.mod".to_owned(), "a/b/setup.py".to_owned()];
    assert_eq!(detect_project(&below, &[]).map(|(runner, folder)| (runner.name, folder)), Some(("go", "b")));
    assert!(detect_project(&["README.md".to_owned()], &[]).is_none());
}
