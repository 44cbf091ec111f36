//! Stories about people's requests for changes: comments without a command, requests that change nothing, and requests
//! about locked tests.

use countersign::engine::RunViewStatus;

use crate::{
    after::pushed_world_as,
    implement::{can_run, plain, specified},
    script::{Script, approved, design},
    unseen::Act,
    world::{Setting, World, world_of_files},
};

const LEFT: &str = "left.saturating_add(right)";
const RIGHT: &str = "right.saturating_add(left)";
const TEST: &str = "what_does_not_fit_is_the_largest";

impl World {
    /// Posts a comment on the pull request and returns the bot's reactions to it and comments below it.
    async fn comment_on_pull(&mut self, who: &str, text: &str) -> (Vec<String>, Vec<String>) {
        let pull = self.pull_number();
        self.pass(60);
        let id = self.hub.comment(self.repo, pull, self.user(who), text).unwrap();
        self.unseen.saw(self.repo, Act::Comment(id));
        self.settle().await;
        let comments = self.hub.issue(self.repo, pull).unwrap().comments;
        let comment = comments.into_iter().find(|comment| comment.id == id).unwrap();
        let reactions = comment.reactions.into_iter().map(|(_, what)| what).collect();
        (reactions, self.on_pull())
    }

    async fn roles(&self) -> String {
        self.calls().await.iter().map(|call| &call.role[..1]).collect()
    }
}

#[tokio::test]
async fn plain_comment_on_a_pull_request_gets_one_reply_for_each_person() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    for who in ["stranger", "tess"] {
        assert_eq!(w.comment_on_pull(who, "Looks odd.").await, (vec![], vec![]), "{who}");
    }
    let (reactions, replies) = w.comment_on_pull("sam", "Looks odd.").await;
    assert_eq!(reactions, ["eyes"]);
    assert!(replies[0].contains("To have this revised, write `/revise TEXT`."), "{replies:?}");
    let mut w = w.restart().await;
    let (reactions, replies) = w.comment_on_pull("sam", "Still odd.").await;
    assert_eq!((reactions.len(), replies.len()), (0, 1));
    let (reactions, replies) = w.comment_on_pull("max", "I agree.").await;
    assert_eq!((reactions.len(), replies.len()), (1, 2));
    w.comment("sam", "Looks odd.").await;
    w.approved_by("sam").await;
    assert_eq!(w.comment_on_pull("maya", "Thank you.").await.1.len(), 2, "no run waits here");
    w.pull();
    w.commits();
    w.checks();
}

#[tokio::test]
async fn unchanged_design_goes_back_to_its_gate_without_another_review() {
    let script = Script::default().drafts(&design()).reviews(&approved());
    let script = script.replies(&[("request", "rebutted", "REQ-1 @maya rules it out")]);
    let mut w = World::new(Setting { script: Some(script.toml()), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    assert!(!w.gate().contains("Nothing changed"));
    w.comment("sam", "/revise Use a database.").await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.roles().await, "drd");
    let gate = w.gate().replace(['\u{200b}', '\\'], "");
    assert!(gate.contains("APPROVED: the design waits for a person"), "{gate}");
    assert!(gate.contains("**Nothing changed**") && gate.contains("- REQ-1 @maya rules it out"), "{gate}");
    w.approved_by("sam").await;
}

#[tokio::test]
async fn request_at_the_code_gate_that_names_a_locked_test_is_answered_before_a_model_is_called() {
    if !can_run().await {
        return;
    }
    let mut w = specified("", |script, texts| {
        let script = plain(script, texts).replies(&[("request", "rebutted", "it is needed")]).of("implement");
        script.replies(&[("request", "deferred", "that is for later")]).of("implement")
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    let calls = w.roles().await;
    for text in [format!("/revise Make {TEST} stricter."), "/revise Drop tests/new.rs".to_owned()] {
        let line = w.approve_line();
        w.pass(60);
        // An approval from before our question does not count.
        for (who, text) in [("sam", &text), ("max", &line)] {
            w.hub.comment(w.repo, w.issue, w.user(who), text).unwrap();
        }
        w.settle().await;
        w.stands(RunViewStatus::Asking).await;
        assert_eq!(w.roles().await, calls);
        let [question, refusal] =
            ["which belongs to the locked tests", "Nothing was approved"].map(|text| w.last(text).body);
        assert!(
            question.contains("`/revise tests TEXT`") && question.contains("`/revise code TEXT`"),
            "{question}"
        );
        assert!(refusal.contains(&line), "{refusal}");
    }
    w.nothing_is_pushed();
    // The code alone is meant, or a word only contains "test". Neither changes anything.
    for (text, why) in [
        (format!("/revise code Special-case {TEST}."), "- it is needed"),
        ("/revise The latest contest tests patience.".to_owned(), "- that is for later"),
    ] {
        w.comment("sam", &text).await;
        w.tried().await;
        w.stands(RunViewStatus::Asking).await;
        let gate = w.gate();
        assert!(gate.contains("**Nothing changed**") && gate.contains(why), "{gate}");
    }
    assert_eq!(w.roles().await, calls + "dd", "no review and no adversarial tests");
    w.approved_by("sam").await;
    w.pull();
    w.commits();
    w.checks();
}

#[tokio::test]
async fn revise_tests_command_counts_if_an_approval_stands_before_it() {
    if !can_run().await {
        return;
    }
    let mut w = specified("", |script, texts| {
        let script = plain(script, texts).edits("sum(200, 100)", "sum(250, 100)").of("implement");
        script.reviews(&approved()).of("implement").reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    let line = w.approve_line();
    w.pass(60);
    for (who, text) in [("max", line.as_str()), ("sam", "/revise tests Use a larger sum.")] {
        w.hub.comment(w.repo, w.issue, w.user(who), text).unwrap();
    }
    w.settle().await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("`sam` allowed the tests of version `"), "{}", w.gate());
    w.nothing_is_pushed();
}

/// A review of a test's line changes the test, and a later request for other code leaves it changed. The review's body
/// is answered, too.
#[tokio::test]
async fn test_changed_by_a_review_stays_changed_after_a_later_request_for_other_code() {
    if !can_run().await {
        return;
    }
    const ALLOWED: &str = "`sam` allowed the tests of version `";
    let mut w = pushed_world_as(|script, texts| {
        let own = |turned| {
            [
                ("F1", "fixed", "it is larger"),
                ("F2", turned, "they are turned"),
                ("F3", "rebutted", "the spec has no such name"),
            ]
        };
        let script =
            plain(script, texts).edits_and_replies("sum(200, 100)", "sum(250, 100)", &own("rebutted"));
        let script = script.of("implement").reviews(&approved()).of("implement");
        let script = script.edits_and_replies(LEFT, RIGHT, &own("fixed")[1..]).of("implement");
        let script = script.reviews(&approved()).of("implement");
        let script =
            script.edits_and_replies(RIGHT, LEFT, &[("F4", "fixed", "they are turned")]).of("implement");
        script.reviews(&approved()).of("implement")
    })
    .await;
    let (pull, sam) = (w.pull_number(), w.user("sam"));
    let at = [("tests/new.rs", 3, "Use a larger sum."), ("src/lib.rs", 5, "Turn the operands.")];
    w.hub.review_lines(w.repo, pull, sam, "CHANGES_REQUESTED", "Rename `sum`, too.", &at).unwrap();
    w.settle().await;
    w.tried().await;
    let gate = w.gate();
    assert!(gate.contains(ALLOWED) && gate.contains("sum(250, 100)"), "{gate}");
    let both = "- **F3** at `review`: Rename `sum`, too.\n  The drafter: the spec has no such name";
    assert!(gate.contains(both) && !gate.contains("**F1** at") && !gate.contains("**F2** at"), "{gate}");
    assert!(gate.contains(RIGHT), "{gate}");
    w.approve_fix().await;
    let threads = w.hub.line_comments(w.repo, pull);
    assert!(threads.last().unwrap().body.contains("Changed in `"), "{threads:#?}");
    let answers = w.on_pull();
    let answer = "> Rename `sum`, too.\n\nNot changed.\n\nthe spec has no such name";
    assert!(answers[0].contains(answer) && !answers[0].contains("stays open"), "{answers:?}");

    let text = format!("Turn the operands back, and see `{TEST}`.");
    w.hub.review(w.repo, pull, sam, "CHANGES_REQUESTED", &text).unwrap();
    w.settle().await;
    let question = w.on_pull().pop().unwrap();
    assert!(question.contains("which belongs to the locked tests"), "{question}");
    assert!(question.contains("Your command then also sends the rest of the review."), "{question}");
    assert!(w.waits_for_merge().await);
    w.comment("sam", "/revise code As I said.").await;
    w.tried().await;
    assert!(w.gate().contains(ALLOWED), "{}", w.gate());
    w.approve_fix().await;
    assert!(w.file_on_branch("tests/new.rs").unwrap().contains("sum(250, 100)"));
    assert!(w.file_on_branch("src/lib.rs").unwrap().contains(LEFT));
    let answers = w.on_pull();
    let answer = answers.last().unwrap();
    assert!(answer.contains("> Turn the operands back") && answer.contains("Changed in `"), "{answers:?}");
    w.pull();
    w.commits();
    w.checks();
}
