//! What a run knows of its repository: the names that are there, and what earlier runs came to.

use countersign::engine::Status;

use crate::{
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

/// What the drafter of the newest run was sent, oldest first.
async fn prompts(w: &World) -> Vec<String> {
    let run = w.run().await.unwrap().id;
    let store = w.app.store.repo(w.repo).await.unwrap();
    let mut prompts = Vec::new();
    for call in store.ledger(run).await.unwrap().calls.iter().filter(|call| call.role == "drafter") {
        prompts.push(String::from_utf8(store.get(call.prompt).await.unwrap()).unwrap());
    }
    prompts
}

#[tokio::test]
async fn names_that_do_not_exist_go_back_with_the_real_ones() {
    let wrong = "1. `parse_sheet()` in `src/parse.rs` reads the file.\n2. `src/reports.rs` prints it.\n\n\
                 ```rust\nuse crate::reprot::table;\n```";
    let better = wrong.replace("parse_sheet()", "sheet()").replace("src/reports.rs", "src/report.rs");
    let right = better.replace("crate::reprot", "crate::report");
    let begin = "1. Read the input and check it before anything is changed.";
    let script = Script::default()
        .drafts(&design().replacen(begin, wrong, 1))
        .edits(wrong, &better)
        .edits(&better, &right)
        .reviews(&approved());
    let toml = "[lld]\nmax_rounds = 5\n".to_owned();
    let mut w = World::new(Setting { script: Some(script.toml()), toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    assert_eq!(w.run().await.unwrap().status, Status::Asking, "{}", w.thread());
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED"), "{gate}");

    let prompts = prompts(&w).await;
    assert_eq!(prompts.len(), 3);
    let mistakes = |prompt: &str| {
        let (_, mistakes) = prompt.split_once("## Mistakes found mechanically").expect("there are some");
        mistakes.split("<<<end of mistakes").next().unwrap().to_owned()
    };
    let first = mistakes(&prompts[1]);
    for said in [
        "`src/reports.rs` is named here, but it neither exists nor stands in 2.1; did you mean `src/report.rs`",
        "`parse_sheet` is not in `src/parse.rs`; did you mean `sheet (line ",
        "`crate::reprot` is imported, but it neither exists nor is added in 2.1; did you mean `crate::report`?",
    ] {
        assert!(first.contains(said), "{said}\n{first}");
    }
    let second = mistakes(&prompts[2]);
    assert!(
        second.contains("`crate::reprot` is imported") && second.matches("\n- ").count() == 1,
        "{second}"
    );
}

#[tokio::test]
async fn a_drafter_that_keeps_to_a_name_is_judged_by_the_reviewer() {
    let begin = "1. Read the input and check it before anything is changed.";
    let script = Script::default()
        .drafts(&design().replacen(begin, "1. `parse_sheet()` in `src/parse.rs` reads the file.", 1))
        .edits("The goal of a real design", "The aim of a real design")
        .edits("The aim of a real design", "The point of a real design")
        .reviews(&approved());
    let toml = "[lld]\nmax_rounds = 5\n".to_owned();
    let mut w = World::new(Setting { script: Some(script.toml()), toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    assert_eq!(w.run().await.unwrap().status, Status::Asking, "{}", w.thread());
    w.find("waits for a person");
    let store = w.app.store.repo(w.repo).await.unwrap();
    let ledger = store.ledger(w.run().await.unwrap().id).await.unwrap();
    let prompt = String::from_utf8(store.get(ledger.verdicts[0].prompt).await.unwrap()).unwrap();
    let warnings = prompt.split("## Warnings of the mechanical checks").nth(1).expect("it is warned");
    assert!(warnings.contains("`parse_sheet` is not in `src/parse.rs`"), "{warnings}");
}

#[tokio::test]
async fn what_three_reviews_asked_for_the_fourth_drafter_is_told() {
    let script = Script::default()
        .drafts(&design())
        .edits("The goal of a real design", "The aim of a real design")
        .reviews(&review("REVISE", &[finding("Requirement 2 names no exit status", None)], &[]))
        .reviews(&review("APPROVED", &[], &["F1"]));
    let mut w = World::new(Setting { script: Some(script.toml()), ..Setting::default() }).await;
    let maya = w.user("maya");
    for (title, body) in [
        ("Weekly totals", "Add up the hours by week."),
        ("Colours", "Show totals over eight hours in red."),
        ("Rounding", "In `src/lib.rs`, round spans to quarters."),
    ] {
        if title != "Weekly totals" {
            w.issue = w.hub.open_issue(w.repo, maya, title, body).unwrap();
        }
        w.label("maya", "countersign:lld").await;
        assert!(!prompts(&w).await[0].contains("Asked in"), "twice is no rule");
        let line = w.approve_line();
        w.comment("sam", &line).await;
        assert_eq!(w.run().await.unwrap().status, Status::Done, "{}", w.thread());
    }
    w.issue =
        w.hub.open_issue(w.repo, maya, "Negative spans", "`src/lib.rs` takes none; refuse them.").unwrap();
    w.label("maya", "countersign:lld").await;
    let first = prompts(&w).await.remove(0);
    let rule = "- Asked in 3 runs (#4, #3, #1), of section 3: Requirement 2 names no exit status. Say what is observed.";
    let rules =
        first.split("<<<rules ").nth(1).expect("there are rules").split("<<<end of rules").next().unwrap();
    assert!(rules.contains("Requirement 2 names no exit status. Say what is observed."), "{rule}\n{rules}");
    assert!(rules.contains("- Asked in 3 runs (#"), "{rules}");
    let designs = first
        .split("<<<designs ")
        .nth(1)
        .expect("there are designs")
        .split("<<<end of designs")
        .next()
        .unwrap();
    assert!(designs.contains("Rounding\n\ndocs/lld/LLD-"), "{designs}");
    assert!(
        designs.contains("approved by a person.\nIt changes files that the issue names: src/lib.rs."),
        "{designs}"
    );
}
