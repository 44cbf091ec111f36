//! The same change in four languages, to compare red runs and mutation checks. The change modifies one function and
//! adds another. One of its tests is a regression guard, and part of its code is not covered by any test.

use countersign::engine::RunViewStatus;

use crate::{
    implement::{can_run, plain, specified_in},
    script::small,
    world::Setting,
};

/// The small repository in another language. Its documents are derived from the Rust documents by replacing lines.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) name: &'static str,
    /// Name of the program that runs the tests.
    pub(crate) tool: &'static str,
    pub(crate) files: &'static [(&'static str, &'static str)],
    pub(crate) source: &'static str,
    /// Paths of the test files for the changed function and for the new function.
    pub(crate) tests: [&'static str; 2],
    pub(crate) old: &'static str,
    /// Language name that is used in code fences.
    pub(crate) fence: &'static str,
    pub(crate) old_code: &'static str,
    pub(crate) new_code: &'static str,
    /// Signatures of the changed function and of the new function.
    pub(crate) signatures: [&'static str; 2],
    /// Contents of the two new test files, which contain three tests together.
    pub(crate) texts: [&'static str; 2],
    /// Names of the three tests: of the changed function, of the regression guard, and of the new function.
    pub(crate) names: [&'static str; 3],
    /// Code of the new function, and of a function that nobody requested.
    pub(crate) new: &'static str,
    /// Result that the new function's test must have before the change.
    pub(crate) red: &'static str,
}

const CARGO: &str = "[package]\nname = \"sums\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[lib]\ntest = false\ndoctest = false\n";
const PACKAGE: &str = "{ \"name\": \"sums\", \"version\": \"0.1.0\", \"type\": \"module\", \"scripts\": { \"test\": \"node --test\" } }\n";

pub(crate) const SAMPLES: [Sample; 4] = [
    Sample {
        name: "rust",
        tool: "cargo",
        files: &[
            ("Cargo.toml", CARGO),
            (
                "src/lib.rs",
                "//! Sums.\n\n/// What two numbers make together.\npub fn sum(left: u8, right: u8) -> u8 {\n    left.wrapping_add(right)\n}\n",
            ),
            ("tests/old.rs", "#[test]\nfn one_and_one_are_two() {\n    assert_eq!(sums::sum(1, 1), 2);\n}\n"),
        ],
        source: "src/lib.rs",
        tests: ["tests/new.rs", "tests/capped.rs"],
        old: "tests/old.rs:1-4",
        fence: "rust",
        old_code: "    left.wrapping_add(right)",
        new_code: "    left.saturating_add(right)",
        signatures: [
            "// src/lib.rs\npub fn sum(left: u8, right: u8) -> u8",
            "// src/lib.rs\npub fn capped(left: u8, right: u8) -> u8",
        ],
        texts: [
            "#[test]\nfn is_the_largest() {\n    assert_eq!(sums::sum(200, 100), 255);\n}\n\n#[test]\nfn is_as_before() {\n    assert_eq!(sums::sum(2, 3), 5);\n}\n",
            "#[test]\nfn stops_at_ten() {\n    assert_eq!(sums::capped(8, 3), 10);\n}\n",
        ],
        names: ["is_the_largest", "is_as_before", "stops_at_ten"],
        new: "\n}\n\n/// The same up to ten.\npub fn capped(left: u8, right: u8) -> u8 {\n    sum(left, right).min(10)\n}\n\n/// Nothing.\npub fn nothing() -> u8 {\n    0",
        red: "weak red: fails only because of a stub for the code",
    },
    Sample {
        name: "python",
        tool: "pytest",
        files: &[
            (
                "pyproject.toml",
                "[project]\nname = \"sums\"\nversion = \"0.1.0\"\n\n[tool.pytest.ini_options]\npythonpath = [\".\"]\n",
            ),
            ("sums.py", "\"\"\"Sums.\"\"\"\n\n\ndef total(left, right):\n    return (left + right) % 256\n"),
            (
                "tests/test_old.py",
                "import sums\n\n\ndef test_one_and_one():\n    assert sums.total(1, 1) == 2\n",
            ),
        ],
        source: "sums.py",
        tests: ["tests/test_new.py", "tests/test_capped.py"],
        old: "tests/test_old.py:1-5",
        fence: "python",
        old_code: "    return (left + right) % 256",
        new_code: "    return min(left + right, 255)",
        signatures: ["# sums.py\ndef total(left, right):", "# sums.py\ndef capped(left, right):"],
        texts: [
            "import sums\n\n\ndef test_is_the_largest():\n    assert sums.total(200, 100) == 255\n\n\ndef test_is_as_before():\n    assert sums.total(2, 3) == 5\n",
            "from sums import capped\n\n\ndef test_stops_at_ten():\n    assert capped(8, 3) == 10\n",
        ],
        names: ["test_is_the_largest", "test_is_as_before", "test_stops_at_ten"],
        new: "\n\n\ndef capped(left, right):\n    return min(total(left, right), 10)\n\n\ndef nothing():\n    return 0",
        red: "red by compile: does not build without the code, which shows only a missing name",
    },
    Sample {
        name: "javascript",
        tool: "node",
        files: &[
            ("package.json", PACKAGE),
            (
                "src/sums.js",
                "// Sums.\n\nexport function sum(left, right) {\n  return (left + right) % 256;\n}\n",
            ),
            (
                "test/old.test.js",
                "import { test } from \"node:test\";\nimport assert from \"node:assert\";\nimport { sum } from \"../src/sums.js\";\n\ntest(\"one and one\", () => assert.equal(sum(1, 1), 2));\n",
            ),
        ],
        source: "src/sums.js",
        tests: ["test/new.test.js", "test/capped.test.js"],
        old: "test/old.test.js:1-5",
        fence: "javascript",
        old_code: "  return (left + right) % 256;",
        new_code: "  return Math.min(left + right, 255);",
        signatures: [
            "// src/sums.js\nexport function sum(left, right)",
            "// src/sums.js\nexport function capped(left, right)",
        ],
        texts: [
            "import { test } from \"node:test\";\nimport assert from \"node:assert\";\nimport { sum } from \"../src/sums.js\";\n\ntest(\"is the largest\", () => {\n  assert.equal(sum(200, 100), 255);\n});\n\ntest(\"is as before\", () => {\n  assert.equal(sum(2, 3), 5);\n});\n",
            "import { test } from \"node:test\";\nimport assert from \"node:assert\";\nimport { capped } from \"../src/sums.js\";\n\ntest(\"stops at ten\", () => {\n  assert.equal(capped(8, 3), 10);\n});\n",
        ],
        names: ["is the largest", "is as before", "stops at ten"],
        new: "\n}\n\nexport function capped(left, right) {\n  return Math.min(sum(left, right), 10);\n}\n\nexport function nothing() {\n  return 0;",
        red: "red by compile: does not build without the code, which shows only a missing name",
    },
    Sample {
        name: "go",
        tool: "go",
        files: &[
            ("go.mod", "module example.com/sums\n\ngo 1.22\n"),
            (
                "sums.go",
                "// Package sums adds.\npackage sums\n\n// Sum is what two numbers make together.\nfunc Sum(left, right uint8) uint8 {\n\treturn left + right\n}\n",
            ),
            (
                "old_test.go",
                "package sums_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/sums\"\n)\n\nfunc TestOld(t *testing.T) {\n\tif sums.Sum(1, 1) != 2 {\n\t\tt.Fatal(\"not two\")\n\t}\n}\n",
            ),
        ],
        source: "sums.go",
        tests: ["new_test.go", "capped_test.go"],
        old: "old_test.go:1-13",
        fence: "go",
        old_code: "\treturn left + right",
        new_code: "\tif int(left)+int(right) > 255 {\n\t\treturn 255\n\t}\n\treturn left + right",
        signatures: [
            "// sums.go\nfunc Sum(left, right uint8) uint8",
            "// sums.go\nfunc Capped(left, right uint8) uint8",
        ],
        texts: [
            "package sums_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/sums\"\n)\n\nfunc TestLargest(t *testing.T) {\n\tif got := sums.Sum(200, 100); got != 255 {\n\t\tt.Fatalf(\"got %d\", got)\n\t}\n}\n\nfunc TestAsBefore(t *testing.T) {\n\tif got := sums.Sum(2, 3); got != 5 {\n\t\tt.Fatalf(\"got %d\", got)\n\t}\n}\n",
            "package sums_test\n\nimport (\n\t\"testing\"\n\n\t\"example.com/sums\"\n)\n\nfunc TestStopsAtTen(t *testing.T) {\n\tif got := sums.Capped(8, 3); got != 10 {\n\t\tt.Fatalf(\"got %d\", got)\n\t}\n}\n",
        ],
        names: ["TestLargest", "TestAsBefore", "TestStopsAtTen"],
        new: "\n}\n\n// Capped is the same up to ten.\nfunc Capped(left, right uint8) uint8 {\n\treturn min(Sum(left, right), 10)\n}\n\n// Nothing is nothing.\nfunc Nothing() uint8 {\n\treturn 0",
        red: "fails by an assertion",
    },
];

impl Sample {
    /// Returns whether the program that runs the tests is installed. Says so if it is not.
    pub(crate) fn is_installed(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).any(|folder| folder.join(self.tool).is_file());
        if !found {
            eprintln!("skipped: {}, because {} is not installed", self.name, self.tool);
        }
        found
    }

    /// Returns the design, spec, tests and code for the small repository in this language.
    pub(crate) fn texts(&self) -> [String; 4] {
        let ([design, spec, ..], _) = small();
        let ([new, capped], [changed, added]) = (self.tests, self.signatures);
        let row = "| `tests/new.rs` | Add | The tests of it |";
        let rows = format!("{row}\n| `{capped}` | Add | The tests of what is new |");
        let both = format!("```rust\n{changed}\n```\n\n```rust\n{added}\n```");
        let design = design
            .replace(row, &rows)
            .replace("```rust\n// src/lib.rs\npub fn sum(left: u8, right: u8) -> u8\n```", &both)
            .replace("as it is today.\n", "as it is today.\n3. The capped sum of 8 and 3 is 10.\n")
            .replace("| Output equals 5 |\n", "| Output equals 5 |\n| 030 | It is capped (REQ-3) | Auto | 8 and 3 | 10 | Output equals 10 |\n");
        let function = format!(
            "```rust\n{changed}\n```\n\nInput: `200` and `100`\n\nOutput: `255`\n\n### capped\n\n```rust\n{added}\n```\n\nInput: `8` and `3`\n\nOutput: `10`"
        );
        let [first, guard, third] = self.names;
        let spec = spec
            .replace(row, &rows)
            .replace("    left.wrapping_add(right)", self.old_code)
            .replace("```rust\npub fn sum(left: u8, right: u8) -> u8\n```\n\nInput: `200` and `100`\n\nOutput: `255`", &function)
            .replace("### tests/new.rs\n", &format!("### {capped}\n\nThe last row of section 9.\n\n### tests/new.rs\n"))
            .replace("tests/old.rs:1-4", self.old)
            .replace("what_does_not_fit_is_the_largest", first)
            .replace("what_fits_is_as_before", guard);
        let spec = format!("{}\n| REQ-3 | {third} | `{capped}` | `8` and `3` | `10` |\n", spec.trim_end());
        let file = |path: &str, proves: &str, text: &str| {
            format!("### `{path}` (Add)\n\nProves: {proves}\n\n```{}\n{text}```\n", self.fence)
        };
        let begin = "# {{issue}} - Change: {{title}}\n\nSums that do not fit.\n\n";
        let first = file(new, &format!("REQ-1, REQ-2\n\nGuards: {guard}"), self.texts[0]);
        let tests = format!("{begin}## Tests\n\n{first}\n{}", file(capped, "REQ-3", self.texts[1]));
        let code = format!(
            "{begin}## Code\n\n### `{}` (Modify)\n\n```{}\n<<<<<<< SEARCH\n{}\n=======\n{}{}\n>>>>>>> REPLACE\n```\n",
            self.source, self.fence, self.old_code, self.new_code, self.new
        );
        let here = |text: String| {
            let text = text.replace("src/lib.rs", self.source).replace("tests/new.rs", new);
            text.replace("```rust", &format!("```{}", self.fence))
        };
        [here(design), here(spec), tests, code]
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn change_report_lists_red_tests_and_mutations_in_four_languages() {
    for sample in SAMPLES {
        if !sample.is_installed() {
            continue;
        }
        if !can_run().await {
            return;
        }
        let files =
            sample.files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
        let toml = "[implement]\nmax_rounds = 1\n[spec]\nmax_rounds = 1\n".to_owned();
        let setting = Setting { files, bare: true, toml, ..Setting::default() };
        let mut w = specified_in(sample.texts(), setting, plain).await;
        w.implement().await;
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate().replace('\\', "");
        assert!(gate.contains("APPROVED: the change waits for a person"), "{}: {gate}", sample.name);
        let reverted = gate.split("Reverting `").nth(1).unwrap_or_else(|| panic!("{}: {gate}", sample.name));
        assert!(reverted.starts_with(sample.source), "{}: {gate}", sample.name);
        w.approved_by("sam").await;
        w.tried().await;
        let report = w.pull().body;
        let [first, guard, third] = sample.names;
        let [new, capped] = sample.tests;
        for (at, name, file, red) in [
            (1, first, new, "fails by an assertion"),
            (2, guard, new, "passes: it guards existing behaviour"),
            (3, third, capped, sample.red),
        ] {
            let row = format!("(REQ-{at}) | `{name}` | `{file}` | {red}");
            assert!(report.contains(&row), "{}: {row}\n{report}", sample.name);
        }
        w.pull();
        w.commits();
    }
}
