#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

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

fn said() -> TestExpectations {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    TestExpectations {
        files: words(&["tests/new.rs", "tests/test_new.py", "web/test/new.test.js"]),
        removed: Vec::new(),
        rows: vec![row("tests/new.rs", "new")],
        guards: words(&["guards"]),
        declared: words(&["read", "config"]),
    }
}

/// What is wrong at red with one more test beside a sound one, twice the same.
fn wrong(test: &TestResult) -> String {
    let old = Some(TestResult::passed("s old")).filter(|old| old.id != test.id);
    let run = || found(old.clone().into_iter().chain([fails("s::new new", "left: 1"), test.clone()]));
    prove_red(&found([TestResult::passed("s old")]), [&run(), &run()], &said())
        .err()
        .unwrap_or_default()
        .join("\n")
}

#[test]
fn a_new_test_is_red_by_an_assertion_or_by_what_the_spec_declares() {
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
        let red = prove_red(&found([TestResult::passed("s old")]), [&run(), &run()], &said()).unwrap();
        assert_eq!(red.tests.get(&test.id), Some(&kind), "{test:?}");
    }
}

#[test]
fn whatever_else_a_new_test_does_goes_back() {
    for (test, why) in [
        (TestResult::passed("s::new more"), "passes without the code"),
        (TestResult::skipped("s::new more", ""), "is skipped"),
        (misses("s::new more", "NameError: name 'reed' is not defined"), "misses `reed`"),
        (misses("s::new more", "something"), "cannot be told"),
        (throws("s::new more", "AttributeError: 'A' object has no attribute 'reed'"), "misses `reed`"),
        (TestResult::skipped("s old", ""), "is skipped now"),
        (TestResult::failed("s::new more", TestFailure::Timeout, ""), "fails by timeout"),
        (TestResult::failed("tests/test_new.py", TestFailure::Build, "SyntaxError"), "fails by build"),
        (unbuilt("s::x", &[("tests/new.rs", &["read", "reed"])]), "misses `reed`"),
        (unbuilt("s::x", &[("tests/new.rs", &["read"]), ("tests/new.rs", &[])]), "no missing name"),
        (unbuilt("s::x", &[("src/lib.rs", &["read"])]), "no file of the new tests"),
        (unbuilt("s::x", &[("", &["read"])]), "no file of the new tests"),
    ] {
        assert!(wrong(&test).contains(why), "{test:?}: {}", wrong(&test));
    }
    let (old, new) = (TestResult::passed("s old"), fails("s::new new", "left: 1"));
    let base = found([old.clone(), TestResult::passed("s::new was"), fails("s broken", "x")]);
    let was = TestResult::passed("s::new was");
    let judged = |first: &[&TestResult], second: &[&TestResult]| {
        let runs = [first, second].map(|tests| found(tests.iter().map(|test| (*test).clone())));
        prove_red(&base, [&runs[0], &runs[1]], &said())
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
        judged(&[&flaky, &was], &[&TestResult::passed("s::new new"), &was]).unwrap_err()[0].contains("alike")
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
    let told = TestExpectations { rows: Vec::new(), ..said() };
    prove_red(&TestReport::default(), [&TestReport::default(), &TestReport::default()], &told).unwrap_err()
}

#[test]
fn green_is_every_locked_test_in_every_run_and_all_that_passed() {
    let base =
        || found([TestResult::passed("s old"), TestResult::passed("s::new was"), fails("s broken", "x")]);
    let with = || {
        found([
            fails("s::new new", "left: 1"),
            TestResult::passed("s::new was"),
            unbuilt("s::other", &[("tests/new.rs", &["read"])]),
        ])
    };
    let red = prove_red(&base(), [&with(), &with()], &said()).unwrap();
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
        (0, None, "it passed before, and was not run now"),
        (1, None, REMOVED_TEST_MESSAGE),
        (4, Some(fails("s::other c", "new and bad")), "new and bad"),
    ] {
        let failing = of(&[&good(&[]), &good(&[(at, test.clone())])]).unwrap_err();
        assert!(failing.iter().any(|group| group.message == why), "{why}: {failing:?}");
    }
    let mut trouble = good(&[]);
    trouble.add_trouble("the process died");
    assert_eq!(of(&[&trouble]).unwrap_err()[0].message, "the process died");
    assert!(of(&[]).is_err(), "nothing was run");
    // Where all are run once, those of the change stand for themselves in each further run.
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
    // A file may share its folder's name with one that was not run for it.
    let red = RedProof { files: vec!["new_test.go".to_owned()], ..red.clone() };
    let run = merge_with_full_run(&red, &all, found(ours[..1].iter().cloned()));
    assert!(run.tests.iter().any(|test| test.id == "s old"), "{run:?}");
    for tests in [&ours[1..], &[ours[0].clone(), fails("s::other b", "left: 4"), ours[2].clone()]] {
        assert!(of(&[&good(&[]), &alone(tests)]).is_err(), "{tests:?}");
    }
}

/// A test of the same name elsewhere proves nothing, and what cannot be built has the tests of its own file alone.
#[test]
fn what_the_spec_asks_for_is_seen_in_its_own_file() {
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
        let told = TestExpectations { files, rows: rows.into(), guards, ..said() };
        let all =
            [fails("s::new a", "1"), TestResult::passed("s::new b"), TestResult::passed("s::other new")];
        let run = || found(all.iter().chain(more).cloned());
        prove_red(&base(), [&run(), &run()], &told).map(|red| red.rows[0].kind)
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
            Err("`b` of `tests/new.rs`, which the spec asks for, is not seen to fail"),
        ),
        (row("tests/new.rs", "new"), &[], &[], Err("no test `new` of `tests/new.rs` was run")),
        (row("tests/new.rs", "new"), &[], whole, Err("no test `new` of `tests/new.rs` was run")),
        (row("tests/new.rs", "c"), &[], whole, Err("no test `c` of `tests/new.rs` was run")),
    ] {
        match (judged(std::slice::from_ref(&row), guards, more), seen) {
            (Ok(kind), Ok(seen)) => assert_eq!(kind, Some(seen), "{row:?}"),
            (Err(wrong), Err(why)) => assert!(wrong.join("\n").contains(why), "{row:?}: {wrong:?}"),
            (came, _) => panic!("{row:?}: {came:?}"),
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
fn trouble_of_either_run_is_told() {
    let run = || found([fails("s::new new", "left: 1")]);
    let mut second = run();
    second.add_trouble("the process died");
    let wrong = prove_red(&TestReport::default(), [&run(), &second], &said()).unwrap_err();
    assert_eq!(wrong, ["the run itself failed: the process died"]);
}

#[test]
fn a_test_file_that_is_deleted_takes_its_tests_along() {
    let base = found([TestResult::passed("s::old a"), TestResult::passed("s keeps")]);
    let told = TestExpectations { removed: vec!["tests/old.rs".to_owned()], ..said() };
    let with = || found([fails("s::new new", "left: 1"), TestResult::passed("s keeps")]);
    let red = prove_red(&base, [&with(), &with()], &told).unwrap();
    let now = found([TestResult::passed("s::new new"), TestResult::passed("s keeps")]);
    assert_eq!(prove_green(&base, &red, &[&now]).unwrap().gone, ["s::old a"]);
}

#[test]
fn a_part_that_is_undone_is_noticed_by_a_test_the_compiler_or_nobody() {
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
fn a_test_that_its_runner_would_never_see_is_told() {
    let theirs = found([TestResult::passed("checks/check_a.py::test_a")]);
    for (runner, file, added, before, seen) in [
        ("cargo", "tests/new.rs", true, &found([]), true),
        ("cargo", "crates/s/tests/new.rs", true, &found([]), true),
        ("cargo", "src/config/tests.rs", false, &found([]), true),
        ("cargo", "src/config/tests.rs", true, &found([]), false),
        ("cargo", "src/lib.rs", false, &found([]), false),
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
fn failures_are_told_by_their_message_and_in_bounds() {
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
fn what_a_spec_declares() {
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
fn a_test_is_of_a_file_as_its_runner_names_it() {
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
fn a_test_against_the_code_counts_only_where_it_ran_and_ended_alike() {
    let id = "sums::full nothing_more";
    let row = |name: &str| ExpectedTest { file: "tests/full.rs".into(), name: name.into(), kind: None };
    let failed = |failure| TestResult::failed(id, failure, "left: 0\nright: 255");
    let with = |first: Vec<TestResult>, second: Vec<TestResult>, known: &[String]| {
        let all = [row("nothing_more"), row("another")];
        attacked([&found(first), &found(second)], &all[0], &all, known)
    };
    let twice = |tests: Vec<TestResult>| with(tests.clone(), tests, &[]);
    let nothing = |came: AdversarialOutcome, why: &str| match came {
        AdversarialOutcome::Nothing(said) => assert!(said.contains(why), "{said}"),
        came => panic!("{came:?}"),
    };
    assert_eq!(twice(vec![TestResult::passed(id)]), AdversarialOutcome::Passes);
    for failure in [TestFailure::Assertion, TestFailure::Error, TestFailure::Crash] {
        assert!(
            matches!(twice(vec![failed(failure)]), AdversarialOutcome::Fails(said) if said.contains("right: 255"))
        );
    }
    nothing(with(vec![failed(TestFailure::Assertion)], vec![TestResult::passed(id)], &[]), "alike");
    nothing(with(vec![failed(TestFailure::Assertion)], vec![failed(TestFailure::Crash)], &[]), "alike");
    nothing(with(vec![TestResult::passed(id)], vec![], &[]), "alike");
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
        let came = attacked([&run, &run], &row, std::slice::from_ref(&row), &[]);
        assert_eq!(came, AdversarialOutcome::Fails("1 != 2".to_owned()), "{id}");
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
fn with_stubs_what_was_not_built_runs_and_has_to_fail() {
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
    let told = TestExpectations { guards: vec!["guard".into()], ..TestExpectations::default() };
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
    let judged = apply_stub_run(red.clone(), &before, &found(ran), &told);
    let kinds: Vec<_> = judged.rows.iter().map(|row| row.kind.unwrap()).collect();
    assert_eq!(kinds, [RedKind::Weak, RedKind::Assertion, RedKind::Compile]);
    assert_eq!((judged.stubbed.len(), judged.tests == red.tests), (4, true));
    assert_eq!(judged.stubbed["sums::new panics"], RedKind::Compile);
    let unbuilt = vec![TestResult::failed("sums::new", TestFailure::Build, "error")];
    assert_eq!(apply_stub_run(red, &before, &found(unbuilt), &told).stubbed.len(), 0);
}
