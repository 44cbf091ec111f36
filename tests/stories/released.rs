//! Full runs on published packages. Each run rebuilds a released change from an issue, starting from the previous
//! release.
//!
//! The design, the spec and the new tests were written for this test; the code and the final tests are those of the
//! release. The ecosystem's own runner runs the final tests. `.ci/run` fetches the releases and sets
//! `COUNTERSIGN_TEST_RELEASES` to their folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use countersign::engine::RunViewStatus;
use similar::TextDiff;
use toml::Value;

use crate::{
    implement::{can_run, plain, specified_in},
    world::Setting,
};

/// A table of `fixtures/released`, and the folder with the fetched releases.
struct Released {
    table: Value,
    home: PathBuf,
}

impl Released {
    /// Loads the table. If the release was not fetched or no command can run on this machine, prints the reason and
    /// returns `None`.
    async fn of(table: &str) -> Option<Self> {
        let table: Value = toml::from_str(table).unwrap();
        let name = table["base"].as_str().unwrap();
        let Some(home) = std::env::var_os("COUNTERSIGN_TEST_RELEASES").map(PathBuf::from) else {
            eprintln!("skipped: {name}, because COUNTERSIGN_TEST_RELEASES is not set");
            return None;
        };
        if !home.join(name).is_dir() {
            eprintln!("skipped: {name}, because it is not in {}", home.display());
            return None;
        }
        can_run().await.then_some(Self { table, home })
    }

    fn text(&self, key: &str) -> String {
        self.table[key].as_str().unwrap().trim_start().to_owned()
    }

    fn words(&self, key: &str) -> Vec<&str> {
        self.table[key].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
    }

    fn file(&self, release: &str, path: &str) -> String {
        fs::read_to_string(self.home.join(self.text(release)).join(path)).unwrap()
    }

    /// Returns the code change of the release, in the form of a drafter's response.
    fn code(&self) -> String {
        let path = self.text("code");
        let edits = edits(&self.file("base", &path), &self.file("released", &path));
        format!(
            "# {{{{issue}}}} - Change: {{{{title}}}}\n\nAs specified.\n\n## Code\n\n### `{path}` (Modify)\n\n````text\n{edits}````\n"
        )
    }

    /// Runs the ecosystem's test runner outside the sandbox. Returns whether it succeeded, and its output.
    fn judge(&self, place: &Path, of: &[&str]) -> (bool, String) {
        let words = self.words("judge");
        let out = Command::new(words[0]).args(&words[1..]).args(of).current_dir(place).output().unwrap();
        (out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// Returns search/replace blocks that turn `old` into `new`. The blocks have enough context for each search text to
/// match exactly once.
fn edits(old: &str, new: &str) -> String {
    let [before, after] = [old, new].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let diff = TextDiff::from_slices(&before, &after);
    let blocks = |around| {
        let groups = diff.grouped_ops(around).into_iter();
        let whole = groups.map(|ops| {
            let (first, last) = (ops.first().unwrap(), ops.last().unwrap());
            let search = before[first.old_range().start..last.old_range().end].concat();
            (search, after[first.new_range().start..last.new_range().end].concat())
        });
        whole.collect::<Vec<_>>()
    };
    let once = |(search, _): &(String, String)| !search.is_empty() && old.matches(search).count() == 1;
    let blocks = (0..).map(blocks).find(|blocks| blocks.iter().all(once)).unwrap();
    let text = |(search, replace)| format!("<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n");
    blocks.into_iter().map(text).collect()
}

/// Collects the files of a release. Packaging metadata and folders that start with a dot are left out.
fn files(root: &Path, below: &str, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(root.join(below)).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        match entry.file_type().unwrap().is_dir() {
            true if !name.ends_with(".egg-info") && !name.starts_with('.') => files(root, &path, into),
            false if name != "PKG-INFO" => into.push((path, fs::read(entry.path()).unwrap())),
            _ => {}
        }
    }
}

async fn assert_rebuilt(table: &str) {
    let Some(released) = Released::of(table).await else { return };
    let texts = ["design", "spec", "tests"].map(|key| released.text(key));
    let [design, spec, tests] = texts;
    let mut there = Vec::new();
    files(&released.home.join(released.text("base")), "", &mut there);
    let issue = Some((released.text("title"), released.text("issue")));
    // One round only, so that a mistake in a fixture fails at once.
    let toml = "[implement]\nmax_rounds = 1\n[spec]\nmax_rounds = 1\n".to_owned();
    let setting = Setting { issue, files: there, bare: true, toml, ..Setting::default() };
    let mut w = specified_in([design, spec, tests, released.code()], setting, plain).await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(gate.contains("APPROVED: the change waits for a person"), "{gate}");
    assert!(gate.contains(&released.text("covered")), "{gate}");
    w.nothing_is_pushed();
    w.approved_by("sam").await;
    assert!(w.pull().body.contains("\nCloses #1\n"));
    w.commits();
    let place = w.checked_out();
    let (code, new) = (released.text("code"), released.text("new"));
    assert_eq!(fs::read_to_string(place.path().join(&code)).unwrap(), released.file("released", &code));
    let (passed, output) = released.judge(place.path(), &[]);
    assert!(passed, "all tests on the branch: {output}");
    // The release's own tests must pass on the built code.
    let mut release_files = Vec::new();
    files(&released.home.join(released.text("released")), "", &mut release_files);
    for (path, bytes) in release_files.iter().filter(|(path, _)| path.contains("test")) {
        fs::write(place.path().join(path), bytes).unwrap();
    }
    let (passed, output) = released.judge(place.path(), &[]);
    assert!(passed, "the tests of the release: {output}");
    fs::write(place.path().join(&code), released.file("base", &code)).unwrap();
    let (passed, output) = released.judge(place.path(), &[&new]);
    let guard = released.table.get("guard").is_none_or(|line| output.contains(line.as_str().unwrap()));
    assert!(!passed && guard, "{output}");
    let red = released.words("red");
    assert!(red.iter().all(|line| output.contains(line)), "without the code: {output}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn change_released_in_a_python_package_is_reproduced_from_its_issue() {
    assert_rebuilt(include_str!("../../fixtures/released/parse.toml")).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn change_released_in_a_javascript_package_is_reproduced_from_its_issue() {
    assert_rebuilt(include_str!("../../fixtures/released/fastify-error.toml")).await;
}

/// `.ci/run` does not fetch these releases, because the test needs Go and checkouts of both releases.
#[tokio::test]
#[ignore = "takes long"]
async fn change_released_in_a_go_package_is_reproduced_from_its_issue() {
    assert_rebuilt(include_str!("../../fixtures/released/uuid.toml")).await;
}
