//! Stories about `countersign demo`: its transcript, its data directory, and demos on a repository of the user.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    time::Duration,
};

use rustix::process::Signal;
use tempfile::tempdir;

use super::process::{Running, countersign, git, run_countersign, text};

/// Asserts that the output contains these texts in this order.
fn assert_in_order(printed: &str, wanted: &[&str]) {
    let mut rest = printed;
    for words in wanted {
        let Some(at) = rest.find(words) else { panic!("`{words}` is missing or too early:\n{printed}") };
        rest = &rest[at + words.len()..];
    }
}

/// Returns the messages of the commits on the bot's branches. Asserts that the demo created only one bare repository.
fn commits(data: &Path) -> String {
    let repositories = fs::read_dir(data.join("hub/repositories")).unwrap();
    let bare: Vec<_> = repositories.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(bare.len(), 1, "{bare:?}");
    git(&bare[0], &["log", "--format=%s%n%b", "--branches=countersign/*"])
}

#[test]
#[ignore = "takes long"]
fn demo_of_the_issue_story_ends_with_a_design() {
    let output = run_countersign(&["demo", "--yes", "--story", "issue"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert_in_order(
        &printed,
        &[
            "maya labels #4 `countersign:issue`",
            "4 questions before the draft is written",
            "/answer 1: ",
            "APPROVED: the issue waits for a person",
            "/approve issue in-place ",
            "Filed: issue #4 now has the accepted text.",
            "maya labels #4 `countersign:lld`",
            "APPROVED: the design waits for a person",
            "lld: done",
        ],
    );
}

#[test]
#[ignore = "takes long"]
fn demo_of_the_scout_story_ends_with_a_brief() {
    let output = run_countersign(&["demo", "--yes", "--story", "scout"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert_in_order(
        &printed,
        &[
            "maya labels #1 `countersign:scout`",
            "APPROVED: the brief waits for a person",
            "/approve scout ",
            "scout: done",
            "Done: the brief is approved.",
        ],
    );
    assert!(!printed.contains("out of reach"), "{printed}");
}

#[test]
#[ignore = "takes long"]
fn demo_of_the_ask_story_ends_with_a_design() {
    let output = run_countersign(&["demo", "--yes", "--story", "ask"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert_in_order(
        &printed,
        &[
            "@countersign can we have the report by week",
            "APPROVED: the design waits for a person",
            "lld: done",
        ],
    );
}

#[test]
#[ignore = "takes long"]
fn demo_through_option_with_spec_writes_a_spec_after_the_design() {
    let output = run_countersign(&["demo", "--yes", "--through", "spec"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert_in_order(
        &printed,
        &[
            "maya labels #1 `countersign:lld`",
            "/approve lld ",
            "Done: the design is approved.",
            "maya labels #1 `countersign:spec`",
            "Write the spec (N2)",
            "REVISE by stub-reviewer",
            "APPROVED by stub-reviewer",
            "Finalize (N6)",
            "spec: done",
            "Done: the spec is approved.",
        ],
    );
    let output = run_countersign(&["demo", "--yes", "--story", "gates", "--through", "spec"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
}

#[test]
#[ignore = "takes long"]
fn demo_with_a_sandbox_runs_through_design_spec_tests_and_code() {
    let output = run_countersign(&["demo", "--yes"]);
    let printed = text(&output.stdout);
    if printed.contains("The demo ends with the design, because tests cannot run here") {
        assert!(std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(), "must be tried here: {printed}");
        eprintln!("skipped: no sandbox works here");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert_in_order(
        &printed,
        &[
            "maya labels #1 `countersign:auto`",
            "lld: done",
            "spec: done",
            "Check that the tests fail (N3)",
            "Check that the tests pass (N5)",
            "Run adversarial tests (N7.5b)",
            "APPROVED: the change waits for a person",
            "/approve implement ",
            "implement: done",
            "The tested and approved code is on its branch.",
        ],
    );
}

#[test]
#[ignore = "takes long"]
fn gates_demo_dismisses_a_finding_and_refuses_a_stale_approval() {
    let output = run_countersign(&["demo", "--yes", "--story", "gates"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert_in_order(
        &printed,
        &[
            "review 1: REVISE by stub-reviewer",
            "F1 [high] at Security & Safety: Nothing says who may read the output",
            "review 2: REVISE by stub-reviewer",
            "REVISE: the design waits for a person (1 open finding)",
            "│ /dismiss F2 ",
            "review 3: APPROVED by stub-reviewer",
            "APPROVED: the design waits for a person",
            "maya edits #1",
            "│ /approve\n",
            "+And it should say so when there is nothing to sum up.",
            "│ /approve lld ",
            "lld: done",
            "Done: the design is approved.",
        ],
    );
}

#[test]
fn demo_yes_option_approves_the_design_and_creates_no_branch() {
    let home = tempdir().unwrap();
    let data = home.path().join("data");
    let arguments = ["demo", "--yes", "--through", "lld", "--data", data.to_str().unwrap()];
    let output = run_countersign(&arguments);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert_in_order(
        &printed,
        &[
            "maya labels #1 `countersign:lld`",
            "reacts 👀 on #1",
            "countersign[bot] comments on #1:",
            "lld: working",
            "REVISE by stub-reviewer",
            "F1 [",
            "Draft the design (N1)",
            "APPROVED by stub-reviewer",
            "APPROVED: the design waits for a person",
            "/approve lld ",
            "maya comments on #1:",
            "/approve lld ",
            "Finalize (N5)",
            "lld: done",
            "Done: the design is approved.",
        ],
    );
    assert_eq!(commits(&data), "", "a design is a comment, so no branch exists before the code");

    let again = run_countersign(&arguments);
    assert_eq!(again.status.code(), Some(0));
    let printed = text(&again.stdout);
    assert!(printed.contains("has already ended"), "{printed}");
    assert!(!printed.contains("comments on #1"), "the second run did nothing: {printed}");
}

#[test]
#[ignore = "takes long"]
fn demo_data_directory_may_be_relative_and_existing_files_are_kept() {
    let home = tempdir().unwrap();
    let here = |arguments: &[&str]| countersign(arguments).current_dir(home.path()).output().unwrap();
    let output = here(&["demo", "--yes", "--through", "lld", "--data", "data"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(home.path().join("data/hub/hub.json").exists());

    let theirs = home.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    for name in ["countersign.toml", ".env", "private-key.pem"] {
        fs::write(theirs.join(name), "theirs").unwrap();
    }
    for arguments in [&["demo", "--yes", "--data", "theirs"][..], &["localhub", "--data", "theirs"]] {
        let output = here(arguments);
        let printed = text(&output.stderr);
        assert!(
            output.status.code() == Some(1)
                && printed.contains("did not create; name a new or an empty directory"),
            "{printed}"
        );
        let kept = fs::read_dir(&theirs).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        assert_eq!(kept.collect::<Vec<_>>(), vec![b"theirs"; 3], "{arguments:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn demo_accepts_a_typed_answer_and_serves_pages_until_enter_is_pressed() {
    let mut demo = Running::start(countersign(&["demo", "--through", "lld"]).stdin(Stdio::piped()));
    let mut typing = demo.child.stdin.take().unwrap();
    let line = demo.wait_for_line("Answer on the page, or here; for example:");
    let answer = line.split("example:").last().unwrap().trim();
    writeln!(typing, "{answer}").unwrap();
    demo.wait_for_line("Done: the design is approved.");
    demo.wait_for_line("Press Enter or Ctrl-C to leave");
    std::thread::sleep(Duration::from_millis(300));
    assert!(demo.child.try_wait().unwrap().is_none(), "the demo ended before Enter");
    writeln!(typing).unwrap();
    assert_eq!(demo.end().0, Some(0));
}

#[test]
#[ignore = "takes long"]
fn demo_interrupted_at_the_gate_says_how_to_continue() {
    let home = tempdir().unwrap();
    let data = home.path().join("data");
    let mut demo =
        Running::start(&mut countersign(&["demo", "--through", "lld", "--data", data.to_str().unwrap()]));
    demo.wait_for_line("Answer on the page");
    demo.signal(Signal::INT);
    let (code, printed) = demo.end();
    assert_eq!(code, Some(130), "{printed}");
    assert!(printed.contains(&format!("--data {} to continue", data.display())), "{printed}");
}

#[test]
#[ignore = "takes long"]
fn demo_leaves_the_users_repository_unchanged() {
    let home = tempdir().unwrap();
    let own = home.path().join("abacus");
    fs::create_dir_all(own.join("src")).unwrap();
    fs::write(own.join("src/lib.rs"), "pub fn add(a: u32, b: u32) -> u32 { a + b }\n").unwrap();
    git(&own, &["init", "--quiet", "--initial-branch=main"]);
    git(&own, &["add", "."]);
    git(&own, &["commit", "--quiet", "--message=An abacus"]);
    fs::write(own.join("notes.txt"), "not committed\n").unwrap();
    let issue = home.path().join("issue.md");
    fs::write(&issue, "# Subtract as well\n\nThere is `add`; there should be `subtract`.\n").unwrap();
    let before =
        (git(&own, &["rev-parse", "HEAD"]), git(&own, &["status", "--porcelain"]), git(&own, &["branch"]));

    let arguments = ["demo", "--yes", "--repo", own.to_str().unwrap(), "--issue", issue.to_str().unwrap()];
    let output = run_countersign(&arguments);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}\n{}", text(&output.stderr));
    assert!(printed.contains("Done: the design is approved."), "{printed}");
    let after =
        (git(&own, &["rev-parse", "HEAD"]), git(&own, &["status", "--porcelain"]), git(&own, &["branch"]));
    assert_eq!(before, after);
}

#[test]
#[ignore = "takes long"]
fn demo_refuses_a_repository_without_commits_and_accepts_a_shallow_clone() {
    let home = tempdir().unwrap();
    let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
    let (empty, none, whole) = (path("empty"), path("none"), path("whole"));
    for directory in [&empty, &none, &whole] {
        fs::create_dir(directory).unwrap();
    }
    git(Path::new(&empty), &["init", "--quiet"]);
    git(Path::new(&whole), &["init", "--quiet", "--initial-branch=main"]);
    for message in ["One", "Two"] {
        fs::write(home.path().join("whole/lib.rs"), format!("// {message}\n")).unwrap();
        git(Path::new(&whole), &["add", "."]);
        git(Path::new(&whole), &["commit", "--quiet", "--message", message]);
    }
    git(home.path(), &["clone", "--quiet", "--depth=1", &format!("file://{whole}"), "shallow"]);
    fs::write(path("issue.md"), "# Three\n\nThere should be three.\n").unwrap();
    let demo = |repo: &str| run_countersign(&["demo", "--yes", "--repo", repo, "--issue", &path("issue.md")]);
    for (repo, words) in [(&empty, "has no commit to work on yet"), (&none, "is no git repository")] {
        let output = demo(repo);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(
            printed.starts_with(&format!("countersign: {repo} {words}"))
                && printed.trim_end().lines().count() == 1,
            "{printed}"
        );
    }
    let output = demo(&path("shallow"));
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn demo_with_real_models_prints_vendors_and_missing_credentials() {
    let home = tempdir().unwrap();
    let output = countersign(&["demo", "--models", "real"])
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_in_order(
        &text(&output.stdout),
        &["drafts by claude:opus: Anthropic", "reviews by gemini:pro: Google"],
    );
    let printed = text(&output.stderr);
    assert!(printed.starts_with("countersign: the drafter claude:opus cannot be called: "), "{printed}");
    assert_eq!(printed.trim_end().lines().count(), 1, "{printed}");
}

#[test]
fn restarted_demo_reuses_its_port_or_reports_that_the_port_is_taken() {
    let home = tempdir().unwrap();
    let data = home.path().join("data");
    let arguments = ["demo", "--through", "lld", "--data", data.to_str().unwrap()];
    let open = || {
        let mut demo = Running::start(&mut countersign(&arguments));
        let link = demo.wait_for_line("Open http://");
        (demo, link)
    };
    let leave = |mut demo: Running| {
        demo.wait_for_line("Press Ctrl-C to leave");
        demo.signal(Signal::INT);
        demo.end();
    };
    let (first, link) = open();
    let port: u16 = link.split([':', '/']).find_map(|part| part.parse().ok()).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server listens when the link is printed");
    leave(first);
    let (second, again) = open();
    assert_eq!(again, link, "a link that was printed before still works");
    leave(second);

    let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut third = Running::start(&mut countersign(&arguments));
    third.wait_for_line(&format!("Port {port} is in use, so links of the earlier demo do not work."));
    assert_ne!(third.wait_for_line("Open http://"), link);
    leave(third);
}
