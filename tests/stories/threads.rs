//! Stories about the bot's comments and labels on a thread: replies to commands, and gates that show their outcome.

use countersign::engine::RunViewStatus;

use crate::{
    script::{Script, approved, design},
    world::{Setting, World, world_of_files},
};

impl World {
    /// Creates a test environment with a run that waits at its gate.
    async fn waiting_at_gate() -> Self {
        let mut w = world_of_files().await;
        w.comes_to_the_gate().await;
        assert_eq!(w.lines_to_paste(), [w.approve_line()]);
        w
    }
}

#[tokio::test]
async fn latest_replies_to_help_status_and_cost_share_one_comment() {
    let mut w = World::waiting_at_gate().await;
    let (help, status, cost) = ("### Commands", "### Runs on this issue", "### Cost of this issue");
    let cases = [
        ("/help", vec![help]),
        ("/status", vec![status, help]),
        ("/cost", vec![cost, status, help]),
        ("/status", vec![status, cost, help]),
    ];
    for (question, answers) in cases {
        w.comment("maya", question).await;
        let comment = w.newest();
        let headlines: Vec<_> = comment.lines().filter(|line| line.starts_with("### ")).collect();
        assert_eq!(headlines, answers, "{comment}");
        assert_eq!(w.notifying(), 3, "the first answer is a comment, later ones are edits");
    }
}

#[tokio::test]
async fn accepted_gate_shows_the_person_and_the_time_of_acceptance() {
    let mut w = World::waiting_at_gate().await;
    // The answer also shows the line to paste.
    w.comment_at_once("sam", "/approve").await;
    assert!(w.newest().contains("/approve lld"));
    let (line, mails) = (w.approve_line(), w.notifying());
    w.comment("sam", &line).await;
    let gate = w.find("the design was accepted").body;
    assert!(gate.contains("**Accepted by sam** on 2026-03-02 09:01 UTC."), "{gate}");
    assert!(gate.contains("The reviewer's reason"), "the gate's text stays:\n{gate}");
    assert_eq!(w.lines_to_paste(), [""; 0], "{}", w.thread());
    assert_eq!(w.notifying(), mails, "an edit sends no mail");
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn removed_status_label_is_restored_only_once_before_the_next_gate() {
    let (needs_you, done) = ("countersign:needs-you", "countersign:done");
    let mut w = World::waiting_at_gate().await;
    w.hub.unlabel(w.repo, w.issue, w.user("maya"), needs_you).unwrap();
    w.settle().await;
    assert_eq!(w.labels(), [needs_you]);
    // Not restored a second time: another program may be removing it.
    w.hub.unlabel(w.repo, w.issue, w.user("maya"), needs_you).unwrap();
    w.settle().await;
    assert_eq!(w.labels(), [""; 0]);
    w.comment("sam", "/revise say what happens to an empty file").await;
    w.stands(RunViewStatus::Asking).await;
    w.label("maya", done).await;
    assert_eq!(w.labels(), [needs_you], "a wrong status label is removed");
    w.label("maya", "bug").await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    // An earlier version set this label during a run.
    w.hub.label(w.repo, w.issue, w.user("countersign[bot]"), "countersign:working").unwrap();
    w.look().await;
    assert_eq!(w.labels(), ["bug", done]);
    w.stands(RunViewStatus::Done).await;
    // After the end people may remove the label.
    w.hub.unlabel(w.repo, w.issue, w.user("maya"), done).unwrap();
    w.settle().await;
    assert_eq!(w.labels(), ["bug"]);
}

#[tokio::test]
async fn old_gate_comment_says_sent_back_and_loses_its_approve_line_after_revise() {
    let mut w = World::waiting_at_gate().await;
    w.pass(60);
    let revise = "/revise say what happens to an empty file";
    w.hub.comment(w.repo, w.issue, w.user("sam"), revise).unwrap();
    w.step(1).await;
    let gate = w.find("the design was sent back").body;
    assert!(gate.contains("**Sent back to the drafter by sam** on 2026-03-02 09:01 UTC."), "{gate}");
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.lines_to_paste(), [w.approve_line()]);
}

#[tokio::test]
async fn gate_comment_of_a_stopped_run_says_no_answer_is_needed() {
    let mut w = World::waiting_at_gate().await;
    let mails = w.notifying();
    w.comment("tess", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    let gate = w.find("the design was closed without a decision").body;
    assert!(gate.contains("**Nobody needs to answer this any more**: the run was stopped by tess"), "{gate}");
    assert_eq!(w.lines_to_paste(), [""; 0], "{}", w.thread());
    assert_eq!(w.notifying(), mails);
}

#[tokio::test]
async fn commands_and_reviews_after_the_run_ended_are_answered() {
    let mut w = World::waiting_at_gate().await;
    w.comment("tess", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    w.comment("sam", "/status").await;
    w.find("### Runs on this issue");
    let over = "(lld) ended: stopped by tess: stop command. `/restart` starts it again.";
    w.comment("sam", "/revise say more").await;
    w.find(over);
    w.hub.review(w.repo, w.pull_number(), w.user("sam"), "CHANGES_REQUESTED", "Say more.").unwrap();
    w.settle().await;
    assert!(w.on_pull().iter().any(|comment| comment.contains(over)), "{:?}", w.on_pull());
    w.gate();
    w.pull();
}

#[tokio::test]
async fn gate_shows_a_new_approve_line_when_files_named_in_the_design_changed() {
    let (env, long) = (".env", "docs/long.md");
    let rows = "beside it |\n| `.env` | Modify | The port |\n| `docs/long.md` | Modify | The end |\n";
    let draft = design().replacen("beside it |\n", rows, 1);
    let script = Script::default().drafts(&draft).reviews(&approved());
    let lines = "a line\n".repeat(50_000);
    let files = vec![(env.to_owned(), b"PORT=1\n".to_vec()), (long.to_owned(), lines.clone().into_bytes())];
    let mut w =
        World::new(Setting { as_files: true, script: Some(script.toml()), files, ..Setting::default() })
            .await;
    w.comes_to_the_gate().await;
    let old = w.approve_line();
    let design = w.hub.branch_file(w.repo, "countersign/issue-1", "docs/lld/LLD-1.md").unwrap();
    let design = countersign::documents::lld::parse(std::str::from_utf8(&design).unwrap());
    let file: (&str, &[u8]) = (&design.files[0].path, b"// changed");
    let end = lines + "the end\n";
    let files = [file, (env, b"PORT=2\nPASSWORD=hunter2\n"), (long, end.as_bytes())];
    w.hub.push_commit(w.repo, "main", w.user("maya"), &files, "Change it").unwrap();
    w.comment("sam", "/approve").await;
    let comment = w.newest();
    assert!(comment.contains("What changed") && comment.contains("\n+// changed\n"), "{comment}");
    for unopened in [env, long] {
        let named = format!("- `{unopened}`");
        assert!(comment.contains(&named) && !comment.contains(&format!("b/{unopened}")), "{comment}");
    }
    let gate = w.find("waits for a person").body;
    assert!(
        gate.contains("The content has changed since this comment was posted, so the hash is new"),
        "{gate}"
    );
    let new = w.approve_line();
    assert!(new != old && gate.contains(&new), "{gate}");
    assert_eq!(w.lines_to_paste(), std::slice::from_ref(&new), "{}", w.thread());
    w.comment("sam", &new).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.lines_to_paste(), [""; 0], "{}", w.thread());
}

#[tokio::test]
async fn gate_comment_reports_that_its_version_was_replaced() {
    for accepted in [false, true] {
        let mut w = World::waiting_at_gate().await;
        let line = w.approve_line();
        w.pass(60);
        w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
        if accepted {
            w.step(1).await;
            assert_eq!(w.run().await.unwrap().step_id, "N5", "nothing is committed yet");
        }
        let (branch, path) = ("countersign/issue-1", "docs/lld/LLD-1.md");
        let mut edited = w.hub.branch_file(w.repo, branch, path).unwrap();
        edited.extend(b"\nA sentence by a person.\n");
        w.hub.push_commit(w.repo, branch, w.user("sam"), &[(path, edited.as_slice())], "Mine").unwrap();
        w.settle().await;
        let gate = w.find("the design was replaced").body;
        assert!(gate.contains("somebody changed the document on its branch"), "{gate}");
        w.stands(RunViewStatus::Asking).await;
        assert_eq!(w.lines_to_paste(), [w.approve_line()]);
    }
}
