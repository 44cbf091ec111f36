#![allow(clippy::unwrap_used, reason = "a test that cannot continue should fail at once")]

use super::{super::CompilerError, *};
use crate::documents::spec;

fn found(tests: impl IntoIterator<Item = TestResult>) -> TestReport {
    let mut found = TestReport::default();
    tests.into_iter().for_each(|test| found.add(test));
    found
}

fn fails(id: &str, message: &str) -> TestResult {
    TestResult::failed(id, TestFailure::Assertion, message)
}

fn throws(id: &str, message: &str) -> TestResult {
    TestResult::failed(id, TestFailure::Error, message)
}

fn misses(id: &str, message: &str) -> TestResult {
    TestResult::failed(id, TestFailure::Missing, message)
}

fn unbuilt(id: &str, faults: &[(&str, &[&str])]) -> TestResult {
    let faults =
        faults.iter().map(|(file, names)| CompilerError::new(file, "cannot find", names.iter().copied()));
    misses(id, "").with_errors(faults.collect())
}

fn row(file: &str, name: &str) -> ExpectedTest {
    ExpectedTest { file: file.to_owned(), name: name.to_owned(), kind: None }
}

fn expectations() -> TestExpectations {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    TestExpectations {
        files: words(&["tests/new.rs", "tests/test_new.py", "web/test/new.test.js"]),
        removed: Vec::new(),
        removed_tests: Vec::new(),
        is_reopened: false,
        rows: vec![row("tests/new.rs", "new")],
        doc_tests: Vec::new(),
        guards: words(&["guards"]),
        declared: words(&["read", "config"]),
    }
}

/// Returns the problems that `prove_red` reports for this test. The input is two identical test runs without the code,
/// each with this test and one valid new test.
fn wrong(test: &TestResult) -> String {
    let old = Some(TestResult::passed("s old")).filter(|old| old.id != test.id);
    let run = || found(old.clone().into_iter().chain([fails("s::new new", "left: 1"), test.clone()]));
    prove_red(&found([TestResult::passed("s old")]), [&run(), &run()], &expectations())
        .err()
        .unwrap_or_default()
        .join("\n")
}

#[test]
fn new_test_may_fail_by_an_assertion_or_by_a_missing_name_declared_in_the_spec() {
    for (test, kind) in [
        (fails("s::new more", "left: 1"), RedKind::Assertion),
        (throws("s::new more", "ValueError: 5"), RedKind::Runtime),
        (throws("s::new more", "AttributeError: 'A' object has no attribute 'read'"), RedKind::Missing),
        (TestResult::passed("s::new guards"), RedKind::Guard),
        (misses("tests/test_new.py::test_a", "NameError: name 'read' is not defined"), RedKind::Missing),
        (misses("tests/test_new.py", "ImportError: cannot import name 'read' from 'pkg'"), RedKind::Compile),
        (misses("tests/test_new.py", "ModuleNotFoundError: No module named 'pkg.config'"), RedKind::Compile),
        (misses("test/new.test.js > a", "TypeError: lib.read is not a function"), RedKind::Missing),
        (
            misses("test/new.test.js", "Cannot find module '/tree/src/config.js' imported from x"),
            RedKind::Compile,
        ),
        (
            unbuilt("s::other", &[("tests/new.rs", &["read"]), ("tests/new.rs", &["config"])]),
            RedKind::Compile,
        ),
    ] {
        let run = || found([TestResult::passed("s old"), fails("s::new new", "left: 1"), test.clone()]);
        let red =
            prove_red(&found([TestResult::passed("s old")]), [&run(), &run()], &expectations()).unwrap();
        assert_eq!(red.tests.get(&test.id), Some(&kind), "{test:?}");
    }
}

#[test]
fn red_phase_rejects_new_tests_that_pass_are_skipped_or_fail_for_a_wrong_reason() {
    for (test, why) in [
        (TestResult::passed("s::new more"), "passes without the code"),
        (TestResult::skipped("s::new more", ""), "is skipped"),
        (misses("s::new more", "NameError: name 'reed' is not defined"), "misses `reed`"),
        (misses("s::new more", "something"), "could not be determined"),
        (throws("s::new more", "AttributeError: 'A' object has no attribute 'reed'"), "misses `reed`"),
        (TestResult::skipped("s old", ""), "is skipped now"),
        (TestResult::failed("s::new more", TestFailure::Timeout, ""), "fails by timeout"),
        (TestResult::failed("tests/test_new.py", TestFailure::Build, "SyntaxError"), "fails by build"),
        (unbuilt("s::x", &[("tests/new.rs", &["read", "reed"])]), "misses `reed`"),
        (unbuilt("s::x", &[("tests/new.rs", &["read"]), ("tests/new.rs", &[])]), "not a missing name"),
        (unbuilt("s::x", &[("src/lib.rs", &["read"])]), "not one of the new test files"),
        (unbuilt("s::x", &[("", &["read"])]), "not one of the new test files"),
    ] {
        assert!(wrong(&test).contains(why), "{test:?}: {}", wrong(&test));
    }
    let (old, new) = (TestResult::passed("s old"), fails("s::new new", "left: 1"));
    let base = found([old.clone(), TestResult::passed("s::new was"), fails("s broken", "x")]);
    let was = TestResult::passed("s::new was");
    let judged = |first: &[&TestResult], second: &[&TestResult]| {
        let runs = [first, second].map(|tests| found(tests.iter().map(|test| (*test).clone())));
        prove_red(&base, [&runs[0], &runs[1]], &expectations())
    };
    assert!(judged(&[&new, &was], &[&new, &was]).is_ok(), "the others need not be run");
    assert!(judged(&[&new], &[&new]).unwrap_err()[0].contains("`s::new was` is gone"));
    assert!(
        judged(&[&old, &was], &[&old, &was])
            .unwrap_err()
            .join("\n")
            .contains("no test `new` of `tests/new.rs`")
    );
    let flaky = fails("s::new new", "left: 1");
    assert!(
        judged(&[&flaky, &was], &[&TestResult::passed("s::new new"), &was]).unwrap_err()[0]
            .contains("differently")
    );
    let breaks = fails("s old", "order");
    assert!(judged(&[&new, &was, &breaks], &[&new, &was, &breaks]).unwrap_err()[0].contains("passed before"));
    let red = judged(&[&new, &was, &breaks], &[&new, &was, &old]).unwrap();
    assert_eq!(red.broken, ["s broken", "s old"], "a flake of theirs is listed");
    let changed = fails("s::new was", "it is 4 now");
    let red = judged(&[&new, &changed], &[&new, &changed]).unwrap();
    assert_eq!(red.tests.len(), 2, "a test that is changed is red as well");
    let none = red_of_nothing();
    assert_eq!(none, ["there is no new test that fails without the code"]);
}

fn red_of_nothing() -> Vec<String> {
    let expected = TestExpectations { rows: Vec::new(), ..expectations() };
    prove_red(&TestReport::default(), [&TestReport::default(), &TestReport::default()], &expected)
        .unwrap_err()
}

#[test]
fn green_requires_new_and_old_tests_to_pass_in_every_run() {
    let base =
        || found([TestResult::passed("s old"), TestResult::passed("s::new was"), fails("s broken", "x")]);
    let with = || {
        found([
            fails("s::new new", "left: 1"),
            TestResult::passed("s::new was"),
            unbuilt("s::other", &[("tests/new.rs", &["read"])]),
        ])
    };
    let red = prove_red(&base(), [&with(), &with()], &expectations()).unwrap();
    let other = TestResult::passed("s::other b");
    let good = [
        TestResult::passed("s old"),
        TestResult::passed("s::new was"),
        TestResult::passed("s::new new"),
        other,
        fails("s broken", "y"),
    ];
    let of = |runs: &[&TestReport]| prove_green(&base(), &red, runs);
    let good = |changed: &[(usize, Option<TestResult>)]| {
        let mut tests: Vec<Option<TestResult>> = good.iter().cloned().map(Some).collect();
        changed.iter().for_each(|(at, test)| tests[*at] = test.clone());
        found(tests.into_iter().flatten())
    };
    let judged = of(&[&good(&[]), &good(&[]), &good(&[])]).unwrap();
    assert_eq!(judged.locked, ["s::new new", "s::other b"]);
    assert_eq!((judged.kept, judged.broken, judged.gone.len()), (2, vec!["s broken".to_owned()], 0));
    assert_eq!(red.rows[0].kind, Some(RedKind::Assertion));
    for (at, test, why) in [
        (2, Some(fails("s::new new", "left: 2")), "left: 2"),
        (2, Some(TestResult::skipped("s::new new", "")), "it is skipped"),
        (2, None, "it was not run"),
        (3, None, "it was not run"),
        (3, Some(TestResult::skipped("s::other b", "")), "it was not run"),
        (0, Some(fails("s old", "left: 3")), "left: 3"),
        (0, Some(TestResult::skipped("s old", "")), "it is skipped"),
        (0, None, "it passed before, but was not run now"),
        (1, None, "it passed before, but was not run now"),
        (4, Some(fails("s::other c", "new and bad")), "new and bad"),
    ] {
        let failing = of(&[&good(&[]), &good(&[(at, test.clone())])]).unwrap_err();
        assert!(failing.iter().any(|group| group.message == why), "{why}: {failing:?}");
    }
    let mut trouble = good(&[]);
    trouble.add_trouble("the process died");
    assert_eq!(of(&[&trouble]).unwrap_err()[0].message, "the process died");
    assert!(of(&[]).is_err(), "nothing was run");
    // After one full run, later runs include only the tests of the change.
    let alone = |tests: &[TestResult]| {
        merge_with_full_run(
            &red,
            &good(&[(4, Some(TestResult::passed("s doc of what is new")))]),
            found(tests.iter().cloned()),
        )
    };
    let ours = [
        TestResult::passed("s::new new"),
        TestResult::passed("s::other b"),
        TestResult::passed("s::new was"),
    ];
    let all = good(&[(4, Some(TestResult::passed("s doc of what is new")))]);
    assert_eq!(of(&[&all, &alone(&ours)]).unwrap().kept, 2);
    // A Go file shares its folder with tests that were not run for it.
    let red = RedProof { files: vec!["new_test.go".to_owned()], ..red.clone() };
    let run = merge_with_full_run(&red, &all, found(ours[..1].iter().cloned()));
    assert!(run.tests.iter().any(|test| test.id == "s old"), "{run:?}");
    for tests in [&ours[1..], &[ours[0].clone(), fails("s::other b", "left: 4"), ours[2].clone()]] {
        assert!(of(&[&good(&[]), &alone(tests)]).is_err(), "{tests:?}");
    }
}

#[test]
fn required_test_is_accepted_only_in_the_file_named_by_the_spec() {
    let base = || {
        found([
            TestResult::passed("s old"),
            TestResult::passed("s::new b"),
            TestResult::passed("s::other new"),
        ])
    };
    let whole = unbuilt("s::x", &[("tests/x.rs", &["read"])]);
    let judged = |rows: &[ExpectedTest], guards: &[&str], more: &[TestResult]| {
        let files = ["tests/new.rs", "tests/x.rs", "tests/test_new.py"].map(str::to_owned).into();
        let guards = guards.iter().map(|name| (*name).to_owned()).collect();
        let expected = TestExpectations { files, rows: rows.into(), guards, ..expectations() };
        let all =
            [fails("s::new a", "1"), TestResult::passed("s::new b"), TestResult::passed("s::other new")];
        let run = || found(all.iter().chain(more).cloned());
        prove_red(&base(), [&run(), &run()], &expected).map(|red| red.rows[0].kind)
    };
    let whole = std::slice::from_ref(&whole);
    let cases = [test_of("a"), test_of("b")];
    for (row, guards, more, seen) in [
        (row("tests/new.rs", "a"), &[][..], &[][..], Ok(RedKind::Assertion)),
        (row("tests/x.rs", "new"), &[], whole, Ok(RedKind::Compile)),
        (row("tests/new.rs", "b"), &["b"], &[], Ok(RedKind::Guard)),
        (row("tests/test_new.py", "test_c"), &[], &cases, Ok(RedKind::Assertion)),
        (row("", "a"), &[], &[], Ok(RedKind::Assertion)),
        (
            row("tests/new.rs", "b"),
            &[],
            &[],
            Err("`b` of `tests/new.rs`, which the spec requires, is not seen to fail"),
        ),
        (row("tests/new.rs", "new"), &[], &[], Err("no test `new` of `tests/new.rs` was run")),
        (row("tests/new.rs", "new"), &[], whole, Err("no test `new` of `tests/new.rs` was run")),
        (row("tests/new.rs", "c"), &[], whole, Err("no test `c` of `tests/new.rs` was run")),
    ] {
        match (judged(std::slice::from_ref(&row), guards, more), seen) {
            (Ok(kind), Ok(seen)) => assert_eq!(kind, Some(seen), "{row:?}"),
            (Err(wrong), Err(why)) => assert!(wrong.join("\n").contains(why), "{row:?}: {wrong:?}"),
            (outcome, _) => panic!("{row:?}: {outcome:?}"),
        }
    }
    let red = RedProof { rows: vec![row("tests/new.rs", "new")], ..RedProof::default() };
    let now = found([TestResult::passed("s::other new"), TestResult::passed("s::new a")]);
    let failing = prove_green(&TestReport::default(), &red, &[&now]).unwrap_err();
    assert_eq!(failing[0].message, "no test of this name passed");
}

fn test_of(case: &str) -> TestResult {
    fails(&format!("tests/test_new.py::test_c[{case}]"), "assert 1 == 2")
}

#[test]
fn error_in_either_of_the_two_red_test_runs_is_reported() {
    let run = || found([fails("s::new new", "left: 1")]);
    let mut second = run();
    second.add_trouble("the process died");
    let wrong = prove_red(&TestReport::default(), [&run(), &second], &expectations()).unwrap_err();
    assert_eq!(wrong, ["the run itself failed: the process died"]);
}

#[test]
fn tests_of_a_deleted_file_are_listed_as_removed() {
    let base = found([TestResult::passed("s::old a"), TestResult::passed("s keeps")]);
    let expected = TestExpectations { removed: vec!["tests/old.rs".to_owned()], ..expectations() };
    let with = || found([fails("s::new new", "left: 1"), TestResult::passed("s keeps")]);
    let red = prove_red(&base, [&with(), &with()], &expected).unwrap();
    let now = found([TestResult::passed("s::new new"), TestResult::passed("s keeps")]);
    assert_eq!(prove_green(&base, &red, &[&now]).unwrap().gone, ["s::old a"]);
}

#[test]
fn only_tests_that_the_spec_removes_may_be_absent_from_later_test_runs() {
    let doc = "s::doc src/lib.rs - old (1)";
    let base = found(["s tests::old", "s tests::kept", doc].map(TestResult::passed));
    let with = |tests: &[&str]| {
        found(tests.iter().map(|id| TestResult::passed(*id)).chain([fails("s tests::new", "left: 1")]))
    };
    let expected = TestExpectations {
        files: vec!["src/lib.rs".to_owned()],
        removed_tests: vec![row("src/lib.rs", "old"), row("src/lib.rs", "doc old")],
        rows: vec![row("src/lib.rs", "new")],
        ..expectations()
    };
    let run = with(&["s tests::kept", doc]);
    let red = prove_red(&base, [&run, &run], &expected).unwrap();
    let now = |tests: &[&str]| found(tests.iter().map(|id| TestResult::passed(*id)));
    assert_eq!(
        prove_green(&base, &red, &[&now(&["s tests::kept", "s tests::new"])]).unwrap().gone,
        ["s tests::old", doc]
    );
    let run = with(&[doc]);
    assert!(prove_red(&base, [&run, &run], &expected).unwrap_err()[0].contains("`s tests::kept` is gone"));
    let failing = |red: &RedProof| prove_green(&base, red, &[&now(&["s tests::new"])]).unwrap_err();
    assert_eq!(failing(&red)[0].message, "it passed before, but was not run now");
    let mut unbuilt = red.clone();
    unbuilt.tests.insert("s".to_owned(), RedKind::Compile);
    assert_eq!(failing(&unbuilt)[0].message, REMOVED_TEST_MESSAGE);
    let by_a_person = TestExpectations { is_reopened: true, ..expected };
    let red = prove_red(&base, [&run, &run], &by_a_person).unwrap();
    assert_eq!(red.dropped, ["s tests::kept"]);
    assert_eq!(prove_green(&base, &red, &[&now(&["s tests::new"])]).unwrap().kept, 0);
}

#[test]
fn mutation_outcome_is_caught_by_tests_caught_by_compiler_survived_or_unclear() {
    let green = GreenProof { broken: vec!["s broken".to_owned()], ..GreenProof::default() };
    let broken = fails("s broken", "x");
    let unbuilt = unbuilt("s::new", &[("src/lib.rs", &["read"])]);
    let mut trouble = found([]);
    trouble.add_trouble("cargo: it ended with exit code 101");
    let parts = [
        found([broken.clone(), fails("s::new new", "left: 1"), unbuilt.clone()]),
        found([broken.clone(), unbuilt]),
        found([broken]),
        trouble,
    ];
    let parts = parts.map(|run| classify_mutation(&green, &run));
    assert_eq!(
        parts,
        [MutationOutcome::Test, MutationOutcome::Compiler, MutationOutcome::Nobody, MutationOutcome::Unclear]
    );
    assert_eq!(mutation_score(parts), (1, 2));
}

#[test]
fn new_test_file_that_the_runner_would_never_run_is_reported() {
    let theirs = found([TestResult::passed("checks/check_a.py::test_a")]);
    for (runner, file, added, before, seen) in [
        ("cargo", "tests/new.rs", true, &found([]), true),
        ("cargo", "crates/s/tests/new.rs", true, &found([]), true),
        ("cargo", "src/config/tests.rs", false, &found([]), true),
        ("cargo", "src/config/tests.rs", true, &found([]), false),
        ("cargo", "src/lib.rs", false, &found([]), true),
        ("cargo", "src/new.rs", true, &found([]), false),
        ("cargo", "tests/new.py", true, &found([]), false),
        ("go", "sub/a_test.go", true, &found([]), true),
        ("go", "sub/a.go", false, &found([]), false),
        ("pytest", "tests/test_new.py", true, &theirs, true),
        ("pytest", "checks/check_b.py", true, &theirs, true),
        ("pytest", "checks/check_b.py", true, &found([TestResult::passed("tests/test_a.py::test_a")]), false),
        ("node", "anything.js", true, &found([]), true),
    ] {
        assert_eq!(unreachable_reason(runner, file, added, before).is_none(), seen, "{runner} {file}");
    }
}

#[test]
fn test_failures_are_grouped_by_message_and_limited_in_number() {
    let tests =
        |from: usize, to: usize, text: String| (from..to).map(move |n| fails(&format!("s t{n}"), &text));
    let many =
        (10..100).flat_map(|n| tests(n * 10, n * 10 + 10, format!("{n} {}\n", "x".repeat(50)).repeat(50)));
    let failing = prove_green(
        &TestReport::default(),
        &RedProof::default(),
        &[&found(tests(0, 9, "same".into()).chain(many))],
    )
    .unwrap_err();
    let lines = describe_failures(&failing);
    assert_eq!((failing.len(), lines.len()), (91, 9));
    assert!(lines.iter().map(String::len).sum::<usize>() <= 12_000);
    assert!(lines[0].contains(" and 5 more: "), "{}", lines[0]);
    assert_eq!(lines[8], "829 more tests fail for other reasons");
}

#[test]
fn declared_names_include_functions_types_members_and_files_of_the_spec() {
    let text = "# 42 - Implementation: Read\n\n## 2. Files to Implement\n\n| File | Change Type | Description |\n|---|---|---|\n\
        | `src/config/mod.rs` | Add | x |\n\n## 4. Data Structures\n\n### Count\n\n```rust\npub struct Count {\n    pub left: u8,\n}\n\
        enum Side { Left, Right(u8) }\n```\n\n## 5. Function Specifications\n\n### Count::read\n\n```rust\npub fn read(path: &Path) -> \
        HashMap<u8, u8>\n```\n\nInput: `1`\n";
    let names = declared_names(&spec::parse(text));
    for name in ["config", "Count", "left", "Side", "Left", "Right", "read"] {
        assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| ["HashMap", "path", "Path"].contains(&name.as_str())), "{names:?}");
}

#[test]
fn test_id_of_each_runner_is_matched_to_its_file() {
    for (id, file, is) in [
        ("s::read reads", "tests/read.rs", true),
        ("s::read reads", "crates/s/tests/read/main.rs", true),
        ("s::reads a", "tests/read.rs", false),
        ("s config::tests::a", "src/config/tests.rs", true),
        ("s config::testsing::a", "src/config/tests.rs", false),
        ("tests/test_a.py::T::test_b", "api/tests/test_a.py", true),
        ("test/a.test.js > a > b", "test/a.test.js", true),
        ("test/aa.test.js > a", "test/a.test.js", false),
        ("example.com/s/sub.TestA/x", "sub/a_test.go", true),
        ("example.com/s/other.TestA", "sub/a_test.go", false),
        ("example.com/s/sub.TestA/a.b", "sub/a_test.go", true),
        ("example.com/s/sub", "sub/a_test.go", true),
    ] {
        assert_eq!(is_in_file(id, file), is, "{id} {file}");
    }
    assert!(test_id_has_name("a.py::test_b[1-2]", "test_b") && test_id_has_name("s::x m::reads", "reads"));
    assert!(!test_id_has_name("s::x m::rereads", "reads") && !test_id_has_name("x", ""));
}

#[test]
fn adversarial_test_result_counts_only_if_both_test_runs_agree() {
    let id = "sums::full nothing_more";
    let row = |name: &str| ExpectedTest { file: "tests/full.rs".into(), name: name.into(), kind: None };
    let failed = |failure| TestResult::failed(id, failure, "left: 0\nright: 255");
    let with = |first: Vec<TestResult>, second: Vec<TestResult>, known: &[String]| {
        let all = [row("nothing_more"), row("another")];
        attacked([&found(first), &found(second)], &all[0], &all, known)
    };
    let twice = |tests: Vec<TestResult>| with(tests.clone(), tests, &[]);
    let nothing = |outcome: AdversarialOutcome, why: &str| match outcome {
        AdversarialOutcome::Nothing(said) => assert!(said.contains(why), "{said}"),
        outcome => panic!("{outcome:?}"),
    };
    assert_eq!(twice(vec![TestResult::passed(id)]), AdversarialOutcome::Passes);
    for failure in [TestFailure::Assertion, TestFailure::Error, TestFailure::Crash] {
        assert!(
            matches!(twice(vec![failed(failure)]), AdversarialOutcome::Fails(said) if said.contains("right: 255"))
        );
    }
    nothing(with(vec![failed(TestFailure::Assertion)], vec![TestResult::passed(id)], &[]), "differently");
    nothing(with(vec![failed(TestFailure::Assertion)], vec![failed(TestFailure::Crash)], &[]), "differently");
    nothing(with(vec![TestResult::passed(id)], vec![], &[]), "differently");
    nothing(twice(vec![]), "not found");
    nothing(twice(vec![TestResult::skipped(id, "")]), "skipped");
    assert!(
        matches!(twice(vec![failed(TestFailure::Missing)]), AdversarialOutcome::Fails(_)),
        "the code may miss it"
    );
    let fault = |file: &str| CompilerError::new(file, "cannot find", ["more"]);
    nothing(
        twice(vec![failed(TestFailure::Missing).with_errors(vec![fault("tests/full.rs")])]),
        "cannot be built",
    );
    nothing(twice(vec![TestResult::failed("sums::full", TestFailure::Missing, "")]), "cannot be built");
    nothing(
        twice(vec![TestResult::failed("sums::full", TestFailure::Build, "error[E0425]")]),
        "cannot be built",
    );
    assert!(
        matches!(twice(vec![failed(TestFailure::Timeout)]), AdversarialOutcome::Fails(said) if said.contains("in time"))
    );
    nothing(twice(vec![failed(TestFailure::NeedsLoopback)]), "network");
    for (file, name, id) in [
        ("tests/full.test.js", "nothing more", "tests/full.test.js > sums > nothing more"),
        ("tests/test_full.py", "test_full", "tests/test_full.py::test_full[255-1]"),
        ("sums/full_test.go", "TestFull", "example.com/a/sums.TestFull"),
        ("", "full", "Sums::full"),
    ] {
        let row = ExpectedTest { file: file.into(), name: name.into(), kind: None };
        let run = found([TestResult::failed(id, TestFailure::Assertion, "1 != 2")]);
        let outcome = attacked([&run, &run], &row, std::slice::from_ref(&row), &[]);
        assert_eq!(outcome, AdversarialOutcome::Fails("1 != 2".to_owned()), "{id}");
    }
    let beside = |name: &str| vec![TestResult::passed(id), TestResult::passed(format!("sums::full {name}"))];
    nothing(twice(beside("stray")), "other tests");
    assert_eq!(twice(beside("another")), AdversarialOutcome::Passes);
    assert_eq!(
        with(beside("stray"), beside("stray"), &["sums::full stray".to_owned()]),
        AdversarialOutcome::Passes
    );
}

#[test]
fn stub_run_classifies_uncompiled_tests_as_weak_assertion_or_compile() {
    let row = |name: &str| ExpectedTest {
        file: "tests/new.rs".into(),
        name: name.into(),
        kind: Some(RedKind::Compile),
    };
    let red = RedProof {
        tests: [("sums::new".to_owned(), RedKind::Compile)].into(),
        rows: vec![row("weak"), row("strong"), row("other")],
        ..RedProof::default()
    };
    let expected = TestExpectations { guards: vec!["guard".into()], ..TestExpectations::default() };
    let stub =
        |id| TestResult::failed(id, TestFailure::Error, "not yet implemented: stub of the specification");
    let ran = vec![
        stub("sums::new weak"),
        TestResult::failed("sums::new strong", TestFailure::Assertion, "left: 1"),
        TestResult::passed("sums::new guard"),
        TestResult::passed("sums::old as_before"),
        TestResult::passed("sums::new as_before"),
        TestResult::passed("sums::new panics"),
    ];
    let before = found([TestResult::passed("sums::new as_before")]);
    let judged = apply_stub_run(red.clone(), &before, &found(ran), &expected);
    let kinds: Vec<_> = judged.rows.iter().map(|row| row.kind.unwrap()).collect();
    assert_eq!(kinds, [RedKind::Weak, RedKind::Assertion, RedKind::Compile]);
    assert_eq!((judged.stubbed.len(), judged.tests == red.tests), (4, true));
    assert_eq!(judged.stubbed["sums::new panics"], RedKind::Compile);
    let unbuilt = vec![TestResult::failed("sums::new", TestFailure::Build, "error")];
    assert_eq!(apply_stub_run(red, &before, &found(unbuilt), &expected).stubbed.len(), 0);
}

#[test]
fn doc_test_of_the_spec_is_required_with_the_code_but_not_before() {
    let base = found([]);
    let expected =
        TestExpectations { doc_tests: vec![row("src/lib.rs", "doc Size::parse")], ..expectations() };
    let run = found([fails("s::new new", "left: 1")]);
    let red = prove_red(&base, [&run, &run], &expected).unwrap();
    let now = |doc: &str| found(["s::new new", doc].map(TestResult::passed));
    let failing = prove_green(&base, &red, &[&now("s::doc src/lib.rs - Size::new (1)")]).unwrap_err();
    assert_eq!(failing[0].tests, ["doc Size::parse"]);
    prove_green(&base, &red, &[&now("s::doc src/lib.rs - size::Size::parse (1)")]).unwrap();
}
