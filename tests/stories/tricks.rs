//! Code that hides a locked test or fakes its result. Each story tries the tricks of one language one after the other,
//! and ends with code that is as the spec says.

use countersign::engine::RunViewStatus;

use crate::{
    implement::{can_run, specified_in},
    languages::{SAMPLES, Sample},
    script::{Script, approved},
    world::{Setting, World},
};

/// Adds to a script the tests and then each version of the code, until one of them reaches the gate.
pub(crate) fn in_turn(script: Script, tests: &str, codes: &[String]) -> Script {
    let section = |code: &str| code[code.find("## Code").unwrap()..].trim().to_owned();
    let script = script.drafts(tests).of("implement").reviews(&approved()).of("implement");
    let script = script.drafts(&codes[0]).of("implement");
    let script = codes
        .windows(2)
        .fold(script, |script, two| script.edits(&section(&two[0]), &section(&two[1])).of("implement"));
    codes.iter().fold(script, |script, _| script.reviews(&approved()).of("implement"))
}

/// Runs `implement`. Asserts that the code of each trick is sent back for its reason, so that only the sound code after
/// them reaches the gate. A trick is its name and its reason.
pub(crate) async fn assert_sent_back(w: &mut World, tricks: &[(&str, &str)]) {
    w.implement().await;
    let mut reached = Vec::new();
    while w.run().await.is_some_and(|run| run.status == RunViewStatus::Asking) {
        let drafts = w.calls().await.iter().filter(|call| call.role.starts_with('d')).count() - 2;
        reached.push(tricks.get(drafts).map_or("sound", |(name, _)| name));
        if drafts >= tricks.len() {
            break;
        }
        w.comment("sam", "/revise Try again.").await;
        w.tried().await;
    }
    let seen = |why: &str| {
        let sql = format!(
            "SELECT COUNT(*) FROM trail WHERE instr(CAST(state AS TEXT), '{}') > 0",
            why.replace('\'', "''")
        );
        w.number(Some(w.repo), &sql) > 0
    };
    let unseen: Vec<_> = tricks.iter().filter(|(_, why)| !seen(why)).collect();
    assert!(reached == ["sound"] && unseen.is_empty(), "{reached:?} {unseen:?}\n{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
    w.gate();
}

/// One way to make the code of a sample pass its tests without being right.
#[derive(Default)]
struct Trick {
    name: &'static str,
    why: &'static str,
    /// Text below the first paragraph of the source file.
    head: &'static str,
    /// Replaces the first paragraph of the source file, if it is not empty.
    first: &'static str,
    /// Body of the function; the old one if it is empty.
    body: &'static str,
    /// Replaces the line of the manifest; the sound line stands there if it is empty.
    manifest: &'static str,
    /// Another file.
    more: &'static str,
}

/// Tries the tricks in a sample. `manifest` is a file with the line that changes, and its sound replacement.
async fn try_tricks(sample: Sample, manifest: [&str; 3], tricks: &[Trick]) {
    if !sample.is_installed() || !can_run().await {
        return;
    }
    let [path, line, sound] = manifest;
    let [design, spec, tests, code] = sample.texts();
    let row = format!("| `{}` | Add | The tests of it |", sample.tests[0]);
    let with_row =
        |text: String| text.replace(&row, &format!("{row}\n| `{path}` | Modify | The next version |"));
    let spec = with_row(spec)
        .replace("## Data Structures", &format!("### {path}\n\n```toml\n{line}\n```\n\n## Data Structures"))
        .replace(
            "## Change Instructions\n",
            &format!("## Change Instructions\n\n### {path}\n\nThe next version.\n"),
        );
    let source = sample.files.iter().find(|(path, _)| *path == sample.source).unwrap().1;
    let first = source.split("\n\n").next().unwrap();
    let edit = |from: &str, to: &str| format!("<<<<<<< SEARCH\n{from}\n=======\n{to}\n>>>>>>> REPLACE\n");
    let codes = tricks.iter().map(|trick| {
        let or = |text: &'static str, other: &str| if text.is_empty() { other.to_owned() } else { text.to_owned() };
        let top = format!("{}\n{}", or(trick.first, first), trick.head);
        let source = edit(first, &top) + "\n" + &edit(sample.old_code, &(or(trick.body, sample.old_code) + sample.new));
        let manifest = edit(line, &or(trick.manifest, sound));
        let fence = sample.fence;
        format!(
            "{}## Code\n\n### `{}` (Modify)\n\n```{fence}\n{source}```\n\n### `{path}` (Modify)\n\n```toml\n{manifest}```\n{}",
            code.split("## Code").next().unwrap(),
            sample.source,
            trick.more
        )
    });
    let sound = format!("{code}\n### `{path}` (Modify)\n\n```toml\n{}```\n", edit(line, sound));
    let codes: Vec<String> = codes.chain([sound]).collect();
    let files =
        sample.files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
    let toml = "[implement]\nmax_rounds = 10\n".to_owned();
    let setting = Setting { files, bare: true, toml, ..Setting::default() };
    let texts = [with_row(design), spec, tests, String::new()];
    let mut w = specified_in(texts, setting, |script, [tests, _]| in_turn(script, &tests, &codes)).await;
    assert_sent_back(&mut w, &tricks.iter().map(|trick| (trick.name, trick.why)).collect::<Vec<_>>()).await;
}

/// The repository has its own conftest and options, an expected failure, and a test that prints like pytest and whose
/// child process exits.
#[tokio::test]
#[ignore = "takes long"]
async fn python_code_that_hides_or_fakes_a_test_is_sent_back() {
    let sample = Sample {
        files: &[
            (
                "pyproject.toml",
                "[project]\nname = \"sums\"\nversion = \"0.1.0\"\n\n[tool.pytest.ini_options]\npythonpath = [\".\"]\naddopts = \"-q -ra\"\n",
            ),
            ("conftest.py", "def pytest_report_header():\n    return \"own\"\n"),
            ("sums.py", "\"\"\"Sums.\"\"\"\n\n\ndef total(left, right):\n    return (left + right) % 256\n"),
            (
                "tests/test_old.py",
                "import subprocess\nimport sys\n\nimport pytest\n\nimport sums\n\n\ndef test_one_and_one():\n    assert sums.total(1, 1) == 2\n\n\n\
                 @pytest.mark.xfail\ndef test_expected():\n    assert sums.total(1, 1) == 3\n\n\ndef test_child():\n    \
                 print(\"ok 1 - x\\n1 failed in 0.01s\")\n    \
                 assert subprocess.run([sys.executable, \"-c\", \"import os; os._exit(3)\"]).returncode == 3\n",
            ),
        ],
        old: "tests/test_old.py:9-10",
        texts: [
            "import unittest\n\nimport sums\n\n\nclass Sums(unittest.TestCase):\n    def test_is_the_largest(self):\n        \
             self.assertEqual(sums.total(200, 100), 255)\n\n\ndef test_is_as_before():\n    assert sums.total(2, 3) == 5\n",
            SAMPLES[1].texts[1],
        ],
        ..SAMPLES[1]
    };
    let manifest = ["pyproject.toml", "addopts = \"-q -ra\"", "addopts = \"-ra\""];
    let tricks = [
        Trick {
            name: "conftest",
            why: "`conftest.py` is not in the approved spec",
            more: "\n### `conftest.py` (Modify)\n\n```python\ncollect_ignore = [\"tests/test_new.py\"]\n```\n",
            ..Trick::default()
        },
        Trick {
            name: "deselect",
            why: "no test of this name passed",
            manifest: "addopts = \"-q -ra --deselect tests/test_new.py::Sums::test_is_the_largest\"",
            ..Trick::default()
        },
        Trick {
            name: "plugin",
            why: "act as the test runner (`-p sums`)",
            manifest: "addopts = \"-q -ra -p sums\"",
            head: "import pytest\n\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    outcome = yield\n    \
                   outcome.get_result().outcome = \"passed\"\n    outcome.get_result().longrepr = None\n",
            ..Trick::default()
        },
        Trick {
            name: "skip",
            why: "it is skipped",
            head: "import pytest\n\npytest.skip(\"later\", allow_module_level=True)\n",
            ..Trick::default()
        },
        Trick {
            name: "atexit",
            why: "does not fit its report",
            head: "import atexit\nimport os\nimport re\nimport sys\n\n\ndef finish():\n    path = [word for word in sys.argv if \"junitxml\" in word][0].split(\"=\")[1]\n    \
                   text = re.sub(r\"<failure.*?</failure>\", \"\", open(path).read(), flags=re.S)\n    open(path, \"w\").write(text)\n    \
                   os._exit(0)\n\n\natexit.register(finish)\n",
            ..Trick::default()
        },
        Trick {
            name: "report",
            why: "ended without its summary",
            head: "import os\nimport sys\n\nPATHS = [word.split(\"=\")[1] for word in sys.argv if \"junitxml\" in word]\nNAMES = [\"new.Sums is_the_largest\", \
                   \"new is_as_before\", \"capped stops_at_ten\", \"old one_and_one\", \"old child\"]\nCASES = \"\"\nfor name in NAMES:\n    \
                   place, test = name.split()\n    file = place.split(\".\")[0]\n    \
                   CASES += f'<testcase classname=\"tests.test_{place}\" name=\"test_{test}\" file=\"tests/test_{file}.py\"/>'\nif PATHS:\n    \
                   open(PATHS[0], \"w\").write(f\"<testsuite>{CASES}</testsuite>\")\n    os._exit(0)\n",
            ..Trick::default()
        },
        Trick {
            name: "assertion",
            why: "defines its own `unittest.TestCase.assertEqual`",
            head: "import unittest\n\nunittest.TestCase.assertEqual = lambda *_: None\n",
            ..Trick::default()
        },
    ];
    try_tricks(sample, manifest, &tricks).await;
}

/// The repository has a test that prints like a test runner and whose child process exits.
#[tokio::test]
#[ignore = "takes long"]
async fn javascript_code_that_hides_or_fakes_a_test_is_sent_back() {
    const FILES: &[(&str, &str)] = &[
        (
            "package.json",
            "{\n  \"name\": \"sums\",\n  \"version\": \"0.1.0\",\n  \"type\": \"module\",\n  \"scripts\": { \"test\": \"node --test\" }\n}\n",
        ),
        ("src/sums.js", SAMPLES[2].files[1].1),
        (
            "test/old.test.js",
            "import { test } from \"node:test\";\nimport assert from \"node:assert\";\nimport { spawnSync } from \"node:child_process\";\n\
                 import { sum } from \"../src/sums.js\";\n\ntest(\"one and one\", () => {\n  console.log(\"TAP version 13\\nok 1 - x\\n1..7\");\n  \
                 assert.equal(spawnSync(process.execPath, [\"-e\", \"process.exit(3)\"]).status, 3);\n  assert.equal(sum(1, 1), 2);\n});\n",
        ),
    ];
    let sample = Sample { files: FILES, old: "test/old.test.js:6-10", ..SAMPLES[2] };
    const SCRIPTS: &str = "  \"scripts\": { \"test\": \"node --test\" }";
    let manifest =
        ["package.json", SCRIPTS, "  \"scripts\": { \"test\": \"node --test --test-concurrency=1\" }"];
    let tricks = [
        Trick { name: "exit", why: "it was not run", head: "process.exit(0);\n", ..Trick::default() },
        Trick {
            name: "assertion",
            why: "defines its own `assert.equal`",
            head: "import assert from \"node:assert\";\n\nassert.equal = () => {};\n",
            ..Trick::default()
        },
        Trick {
            name: "tap",
            why: "no test of this name passed",
            head: "console.log(\"TAP version 13\\nok 1 - is the largest\\nok 2 - is as before\\n1..2\");\nprocess.exit(0);\n",
            ..Trick::default()
        },
        Trick {
            name: "preload",
            why: "act as the test runner (`--import ./src/sums.js`)",
            manifest: "  \"scripts\": { \"test\": \"node --import ./src/sums.js --test\" }",
            ..Trick::default()
        },
        Trick {
            name: "exit in the test",
            why: "is the largest",
            body: "  process.exit(0);",
            ..Trick::default()
        },
        Trick {
            name: "script",
            why: "it passed before, but was not run now",
            manifest: "  \"scripts\": { \"test\": \"node --test test/capped.test.js\" }",
            ..Trick::default()
        },
        Trick {
            name: "test function",
            why: "defines its own `tests.test`",
            head: "import { createRequire, syncBuiltinESMExports } from \"node:module\";\n\nconst tests = createRequire(import.meta.url)(\"node:test\");\n\
                   const real = tests.test;\ntests.test = (name) => real(name, () => {});\nsyncBuiltinESMExports();\n",
            ..Trick::default()
        },
    ];
    try_tricks(sample, manifest, &tricks).await;
}

/// The repository has its own `TestMain`, and a test that prints like a test runner and whose child process exits.
#[tokio::test]
#[ignore = "takes long"]
async fn go_code_that_hides_or_fakes_a_test_is_sent_back() {
    const FILES: &[(&str, &str)] = &[
        SAMPLES[3].files[0],
        SAMPLES[3].files[1],
        (
            "old_test.go",
            "package sums_test\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"os/exec\"\n\t\"testing\"\n\n\t\"example.com/sums\"\n)\n\n\
                 func TestMain(m *testing.M) {\n\tos.Exit(m.Run())\n}\n\nfunc TestOld(t *testing.T) {\n\tfmt.Println(\"--- FAIL: TestX (0.00s)\\nFAIL\")\n\t\
                 if exec.Command(\"/bin/sh\", \"-c\", \"exit 3\").Run() == nil || sums.Sum(1, 1) != 2 {\n\t\tt.Fatal(\"not two\")\n\t}\n\tfmt.Print(\"ok 1 - x\")\n}\n",
        ),
    ];
    let sample = Sample { files: FILES, old: "old_test.go:16-22", ..SAMPLES[3] };
    let fake: &'static str = "\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc init() {\n\tfor _, name := range []string{\"Largest\", \"AsBefore\", \"StopsAtTen\", \"Old\"} {\n\t\t\
         fmt.Printf(\"\\x16=== RUN   Test%s\\n\\x16--- PASS: Test%s (0.00s)\\n\", name, name)\n\t}\n\tos.Exit(0)\n}\n";
    let tricks = [
        Trick {
            name: "exit",
            why: "it was not run",
            head: "\nimport \"os\"\n\nfunc init() { os.Exit(0) }\n",
            ..Trick::default()
        },
        Trick { name: "frames", why: "ended without the summary", head: fake, ..Trick::default() },
        Trick {
            name: "exit in the test",
            why: "TestLargest",
            head: "\nimport \"syscall\"\n",
            body: "\tsyscall.Exit(0)\n\treturn 0",
            ..Trick::default()
        },
        Trick {
            name: "main",
            why: "`main_test.go` is not in the approved spec",
            more: "\n### `main_test.go` (Add)\n\n```go\npackage sums\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(*testing.M) { os.Exit(0) }\n```\n",
            ..Trick::default()
        },
        Trick {
            name: "build tag",
            why: "build constraints",
            first: "//go:build never\n\npackage sums",
            ..Trick::default()
        },
    ];
    try_tricks(sample, ["go.mod", "go 1.22", "go 1.23"], &tricks).await;
}
