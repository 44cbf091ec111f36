//! Tests of the built-in rehearsal script, with calls in the order in which a workflow makes them.

use countersign::{
    codebase::TreeIndex,
    config::ModelSettings,
    documents::{edits, lld, verdict},
    providers::{CallRole, ModelReply},
    types::{IssueNo, Verdict},
};

use crate::{ask, question};

async fn turn(role: CallRole, number: u32) -> ModelReply {
    let mut call = question("stub");
    call.role = role;
    let facts = [("call", number.to_string()), ("issue", "42".into()), ("title", "Read a file".into())];
    call.facts = facts.into_iter().map(|(name, fact)| (name.to_owned(), fact)).collect();
    call.facts.insert("nonce".into(), "abcd1234".into());
    call.facts.insert("path".into(), "src/lib.rs".into());
    ask(&ModelSettings::rehearsal("/nowhere".as_ref()), &format!("stub:{role}"), call).await.unwrap()
}

fn edited(text: &str, answer: &ModelReply) -> String {
    edits::apply(text, &edits::parse(&answer.text).unwrap().edits).unwrap()
}

fn mistakes(text: &str) -> Vec<String> {
    let tree = TreeIndex::new(["src/lib.rs"]);
    lld::check(text, IssueNo(42), &tree)
        .iter()
        .chain(&lld::check_coverage(text))
        .map(ToString::to_string)
        .collect()
}

#[tokio::test]
async fn rehearsal_reviewer_rejects_the_weak_draft_and_approves_its_revision() {
    let draft = turn(CallRole::Drafter, 1).await.text;
    assert_eq!(mistakes(&draft), Vec::<String>::new());
    assert!(draft.contains("This is a rehearsal."));

    let review = verdict::parse(&turn(CallRole::Reviewer, 1).await.text, "abcd1234").unwrap();
    assert_eq!(review.verdict, Verdict::Revise);
    assert!(lld::place_exists(&draft, &review.findings[0].place, &TreeIndex::default()));

    let better = edited(&draft, &turn(CallRole::Drafter, 2).await);
    assert_eq!(mistakes(&better), Vec::<String>::new());
    assert!(better.contains("exit status 2") && !better.contains("appropriately"));
    let review = verdict::parse(&turn(CallRole::Reviewer, 2).await.text, "abcd1234").unwrap();
    assert_eq!((review.verdict, review.resolved), (Verdict::Approved, vec!["F1".to_owned()]));

    // A person may request further revisions, any number of times.
    let third = edited(&better, &turn(CallRole::Drafter, 3).await);
    let fourth = edited(&third, &turn(CallRole::Drafter, 4).await);
    assert!(better != third && third != fourth);
    assert_eq!(mistakes(&fourth), Vec::<String>::new());
}
