//! The built-in script, played as a workflow would play it.

use countersign::{
    config::ModelSettings,
    providers::{CallRole, Reply},
};
use serde_json::Value;

use crate::{ask, question};

async fn turn(role: CallRole, number: u32) -> Reply {
    let mut call = question("stub");
    call.role = role;
    let facts = [("call", number.to_string()), ("issue", "42".into()), ("title", "Read a file".into())];
    call.facts = facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect();
    call.facts.insert("nonce".into(), "abcd1234".into());
    call.facts.insert("path".into(), "src/lib.rs".into());
    ask(&ModelSettings::rehearsal("/nowhere".as_ref()), &format!("stub:{role}"), call).await.unwrap()
}

fn edited(text: &str, answer: &Reply) -> String {
    let edits: Value = serde_json::from_str(&answer.text).unwrap();
    let mut text = text.to_owned();
    for edit in edits["edits"].as_array().unwrap() {
        let search = edit["search"].as_str().unwrap();
        assert_eq!(text.matches(search).count(), 1, "{search}");
        text = text.replace(search, edit["replace"].as_str().unwrap());
    }
    text
}

#[tokio::test]
async fn the_rehearsal_goes_from_a_weak_draft_to_an_approval() {
    let draft = turn(CallRole::Drafter, 1).await.text;
    assert!(draft.starts_with("# 42 - Feature: Read a file\n"));
    assert!(draft.contains("| `src/lib.rs` | Modify |") && draft.contains("This is a rehearsal."));

    let review: Value = serde_json::from_str(&turn(CallRole::Reviewer, 1).await.text).unwrap();
    assert_eq!((&review["verdict"], &review["nonce"]), (&"REVISE".into(), &"abcd1234".into()));
    assert_eq!(review["findings"][0]["severity"], "high");
    assert!(draft.contains("\n## 3. "), "the finding's place exists");

    let better = edited(&draft, &turn(CallRole::Drafter, 2).await);
    assert!(better.contains("exit status 2") && !better.contains("appropriately"));
    let review: Value = serde_json::from_str(&turn(CallRole::Reviewer, 2).await.text).unwrap();
    assert_eq!((&review["verdict"], &review["resolved"][0]), (&"APPROVED".into(), &"F1".into()));

    // A person may ask for more, any number of times.
    let third = edited(&better, &turn(CallRole::Drafter, 3).await);
    let fourth = edited(&third, &turn(CallRole::Drafter, 4).await);
    assert!(better != third && third != fourth);
}
