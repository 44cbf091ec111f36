//! `countersign demo`: the transcript, its data directory, a repository of the user's own.

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

use super::process::{Running, countersign, finished, git, text};

/// Each of `wanted` stands in `said`, after the one before it.
fn in_order(said: &str, wanted: &[&str]) {
    let mut rest = said;
    for words in wanted {
        let Some(at) = rest.find(words) else { panic!("`{words}` is not there, or too early:\n{said}") };
        rest = &rest[at + words.len()..];
    }
}

/// The commits of the data directory's one bare repository, on branches of the bot's.
fn commits(data: &Path) -> String {
    let repositories = fs::read_dir(data.join("hub/repositories")).unwrap();
    let bare: Vec<_> = repositories.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(bare.len(), 1, "{bare:?}");
    git(&bare[0], &["log", "--format=%s%n%b", "--branches=countersign/*"])
}

#[test]
#[ignore = "takes long"]
fn a_rough_idea_becomes_an_issue_and_then_a_design() {
    let output = finished(&["demo", "--yes", "--story", "issue"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    in_order(
        &said,
        &[
            "maya labels #4 `countersign:issue`",
            "4 questions before this is drafted",
            "/answer 1: ",
            "APPROVED: the issue waits for a person",
            "/approve issue in-place ",
            "Filed: issue #4 says now what was accepted.",
            "maya labels #4 `countersign:lld`",
            "APPROVED: the LLD waits for a person",
            "lld: done",
        ],
    );
}

#[test]
#[ignore = "takes long"]
fn what_others_do_becomes_a_brief() {
    let output = finished(&["demo", "--yes", "--story", "scout"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    in_order(
        &said,
        &[
            "maya labels #1 `countersign:scout`",
            "APPROVED: the scout waits for a person",
            "/approve scout ",
            "scout: done",
            "Done: the scout is approved.",
        ],
    );
    assert!(!said.contains("out of reach"), "{said}");
}

#[test]
#[ignore = "takes long"]
fn a_request_in_free_words_becomes_a_design() {
    let output = finished(&["demo", "--yes", "--story", "ask"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    in_order(
        &said,
        &["@countersign can we have the report by week", "APPROVED: the LLD waits for a person", "lld: done"],
    );
}

#[test]
#[ignore = "takes long"]
fn through_its_spec_an_approved_design_goes_on() {
    let output = finished(&["demo", "--yes", "--through", "spec"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    in_order(
        &said,
        &[
            "maya labels #1 `countersign:lld`",
            "/approve lld ",
            "Done: the LLD is approved.",
            "maya labels #1 `countersign:spec`",
            "Write the spec (N2)",
            "REVISE by stub-reviewer",
            "APPROVED by stub-reviewer",
            "Finalize (N6)",
            "spec: done",
            "Done: the spec is approved.",
        ],
    );
    let output = finished(&["demo", "--yes", "--story", "gates", "--through", "spec"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
}

#[test]
#[ignore = "takes long"]
fn through_its_pull_request_tests_and_code_are_really_run() {
    let output = finished(&["demo", "--yes"]);
    let said = text(&output.stdout);
    if said.contains("It ends with the design, because tests cannot be run here") {
        assert!(std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(), "must be tried here: {said}");
        eprintln!("skipped: no sandbox works here");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    in_order(
        &said,
        &[
            "maya labels #1 `countersign:auto`",
            "lld: done",
            "spec: done",
            "See the tests fail (N3)",
            "See the tests pass (N5)",
            "Run the tests against the code (N7.5b)",
            "APPROVED: the change waits for a person",
            "/approve implement ",
            "implement: done",
            "Tests and code are on their branch as they were tried and approved.",
        ],
    );
}

#[test]
#[ignore = "takes long"]
fn findings_are_answered_and_dismissed_and_a_stale_gate_is_not_passed_unread() {
    let output = finished(&["demo", "--yes", "--story", "gates"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    in_order(
        &said,
        &[
            "review 1: REVISE by stub-reviewer",
            "F1 [high] at Security & Safety: Nothing says who may read the output",
            "review 2: REVISE by stub-reviewer",
            "REVISE: the LLD waits for a person (1 open finding)",
            "│ /dismiss F2 ",
            "review 3: APPROVED by stub-reviewer",
            "APPROVED: the LLD waits for a person",
            "maya edits #1",
            "│ /approve\n",
            "+And it should say so when there is nothing to sum up.",
            "│ /approve lld ",
            "lld: done",
            "Done: the LLD is approved.",
        ],
    );
}

#[test]
fn yes_plays_it_to_the_end_in_order_and_opens_no_branch_for_a_design() {
    let home = tempdir().unwrap();
    let data = home.path().join("data");
    let arguments = ["demo", "--yes", "--through", "lld", "--data", data.to_str().unwrap()];
    let output = finished(&arguments);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    in_order(
        &said,
        &[
            "maya labels #1 `countersign:lld`",
            "reacts 👀 on #1",
            "countersign[bot] comments on #1:",
            "lld: working",
            "REVISE by stub-reviewer",
            "F1 [",
            "Draft the design (N1)",
            "APPROVED by stub-reviewer",
            "APPROVED: the LLD waits for a person",
            "/approve lld ",
            "maya comments on #1:",
            "/approve lld ",
            "Finalize (N5)",
            "lld: done",
            "Done: the LLD is approved.",
        ],
    );
    assert_eq!(commits(&data), "", "a design is a comment: there is no branch before there is code");

    let again = finished(&arguments);
    assert_eq!(again.status.code(), Some(0));
    let said = text(&again.stdout);
    assert!(said.contains("is over already"), "{said}");
    assert!(!said.contains("comments on #1"), "the second run did nothing: {said}");
}

#[test]
#[ignore = "takes long"]
fn a_directory_is_named_from_where_one_stands_and_nothing_of_others_is_overwritten() {
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
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(1)
                && said.contains("did not make; name a new or an empty directory"),
            "{said}"
        );
        let kept = fs::read_dir(&theirs).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        assert_eq!(kept.collect::<Vec<_>>(), vec![b"theirs"; 3], "{arguments:?}");
    }
}

#[test]
#[ignore = "takes long"]
fn an_answer_typed_here_counts_and_the_pages_stay_until_enter() {
    let mut demo = Running::start(countersign(&["demo", "--through", "lld"]).stdin(Stdio::piped()));
    let mut typing = demo.child.stdin.take().unwrap();
    let line = demo.hear("Answer on the page, or here; for example:");
    let answer = line.split("example:").last().unwrap().trim();
    writeln!(typing, "{answer}").unwrap();
    demo.hear("Done: the LLD is approved.");
    demo.hear("Press Enter or Ctrl-C to leave");
    std::thread::sleep(Duration::from_millis(300));
    assert!(demo.child.try_wait().unwrap().is_none(), "the pages are gone too early");
    writeln!(typing).unwrap();
    assert_eq!(demo.end().0, Some(0));
}

#[test]
#[ignore = "takes long"]
fn interrupted_at_the_gate_it_ends_at_once_and_says_how_to_go_on() {
    let home = tempdir().unwrap();
    let data = home.path().join("data");
    let mut demo =
        Running::start(&mut countersign(&["demo", "--through", "lld", "--data", data.to_str().unwrap()]));
    demo.hear("Answer on the page");
    demo.signal(Signal::INT);
    let (code, said) = demo.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains(&format!("--data {} goes on here", data.display())), "{said}");
}

#[test]
#[ignore = "takes long"]
fn a_repository_of_ones_own_is_left_as_it_was() {
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
    let output = finished(&arguments);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    assert!(said.contains("Done: the LLD is approved."), "{said}");
    let after =
        (git(&own, &["rev-parse", "HEAD"]), git(&own, &["status", "--porcelain"]), git(&own, &["branch"]));
    assert_eq!(before, after);
}

#[test]
#[ignore = "takes long"]
fn a_repository_that_cannot_be_worked_on_is_one_sentence_and_a_shallow_one_will_do() {
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
    let demo = |repo: &str| finished(&["demo", "--yes", "--repo", repo, "--issue", &path("issue.md")]);
    for (repo, words) in [(&empty, "has no commit to work on yet"), (&none, "is no git repository")] {
        let output = demo(repo);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.starts_with(&format!("countersign: {repo} {words}")) && said.trim_end().lines().count() == 1,
            "{said}"
        );
    }
    let output = demo(&path("shallow"));
    assert_eq!(output.status.code(), Some(0), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn real_models_name_the_companies_first_and_what_is_missing() {
    let home = tempdir().unwrap();
    let output = countersign(&["demo", "--models", "real"])
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    in_order(&text(&output.stdout), &["drafts by claude:opus: Anthropic", "reviews by gemini:pro: Google"]);
    let said = text(&output.stderr);
    assert!(said.starts_with("countersign: the drafter claude:opus cannot be asked: "), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
}

#[test]
fn a_restart_keeps_the_address_and_says_so_when_it_cannot() {
    let home = tempdir().unwrap();
    let data = home.path().join("data");
    let arguments = ["demo", "--through", "lld", "--data", data.to_str().unwrap()];
    let open = || {
        let mut demo = Running::start(&mut countersign(&arguments));
        let link = demo.hear("Open http://");
        (demo, link)
    };
    let leave = |mut demo: Running| {
        demo.hear("Ctrl-C leaves");
        demo.signal(Signal::INT);
        demo.end();
    };
    let (first, link) = open();
    let port: u16 = link.split([':', '/']).find_map(|part| part.parse().ok()).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "it is there when it is told of");
    leave(first);
    let (second, again) = open();
    assert_eq!(again, link, "a link that was printed before still works");
    leave(second);

    let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let mut third = Running::start(&mut countersign(&arguments));
    third.hear(&format!("Port {port} is taken now, so links of the earlier demo lead nowhere."));
    assert_ne!(third.hear("Open http://"), link);
    leave(third);
}
