//! Stories about approval rules (number of approvals, requester, code owners) and about gates that nobody answers or
//! somebody tampers with.

use std::time::Duration;

use countersign::{engine::RunViewStatus, localhub::HubFault, types::Role};
use serde_json::json;

use crate::{
    prompts::{sound, with_reviewer},
    script::{Script, approved, design, review},
    world::{Setting, World, world_of_files},
};

/// Creates a test environment in which a run waits at the gate of a design that changes two files.
async fn world_at_gate(toml: &str, owners: &str) -> World {
    let row = "| `{{path}}` | Modify | The change the issue asks for, with its tests beside it |";
    let rows = "| `src/lib.rs` | Modify | The change |\n| `tests/command_line.rs` | Modify | Its tests |";
    let text = design().replace(row, rows);
    let revised = |search, script: Script| script.edits(search, "The aim of").reviews(&approved());
    let script = Script::default().drafts(&text).reviews(&approved());
    let script = Some(revised("The goal of", script).toml());
    let files = vec![("docs/CODEOWNERS".to_owned(), owners.as_bytes().to_vec())];
    let mut w = World::new(Setting {
        as_files: true,
        toml: format!("[lld]\n{toml}"),
        files,
        script,
        ..Setting::default()
    })
    .await;
    w.comes_to_the_gate().await;
    w
}

impl World {
    /// Posts a comment. Asserts that the bot replies only with this reaction and causes no mail.
    async fn comment_and_expect(&mut self, who: &str, text: &str, reaction: &str) {
        let before = self.notifying();
        self.comment(who, text).await;
        let reactions = self.view().comments.pop().unwrap().reactions;
        assert!(
            reactions.iter().all(|(_, what)| what == reaction) && reactions.len() == 1,
            "{who}: {text}\n{}",
            self.thread()
        );
        assert_eq!(self.notifying(), before, "{who}: {text}\n{}", self.thread());
    }
}

#[tokio::test]
async fn two_approvals_need_two_people() {
    let mut w = world_at_gate("approvals = 2\n", "").await;
    assert!(w.gate().contains("**0 of 2 approvals.** 2 different people must approve."), "{}", w.gate());
    for text in ["/approve", "/approve"] {
        w.comment_and_expect("sam", text, "eyes").await;
        w.stands(RunViewStatus::Asking).await;
        assert!(w.gate().contains("**1 of 2 approvals**: sam."), "{}", w.gate());
    }
    // One objection outweighs the approvals and resets them.
    w.comment("max", "/revise say what an empty file does").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("**0 of 2 approvals.**"), "{}", w.gate());
    let mut w = w.restart().await;
    for who in ["max", "sam"] {
        w.hub.comment(w.repo, w.issue, w.user(who), &w.approve_line()).unwrap();
    }
    w.settle().await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.gate().contains("**Accepted by max and sam** on"), "{}", w.gate());
    let log = w.hub.log(w.repo, &w.branch());
    assert!(log[0].message.contains("Accepted by max and sam."), "{}", log[0].message);
    assert!(w.pull().body.contains("approved by max and sam at"), "{}", w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn requester_cannot_approve_their_own_run() {
    let mut w = world_at_gate("approver_not_requester = true\n", "").await;
    assert!(w.gate().contains("`maya` requested this run and may not approve it."), "{}", w.gate());
    let line = w.approve_line();
    w.comment_and_expect("maya", &line, "-1").await;
    w.comment_and_expect("maya", "/approve", "-1").await;
    w.hub.review(w.repo, w.pull_number(), w.user("maya"), "APPROVED", "").unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    w.approved_by("sam").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn one_code_owner_of_each_file_must_approve() {
    let owners =
        "* @stranger\n/src/ @maya @Sam tess@tally.example # and so on\n/tests/ @octo/core @nobody-at-all\n";
    let toml = "code_owners = true\napprover_not_requester = true\n";
    let mut w = world_at_gate(toml, owners).await;
    let approvals_text = |w: &World| {
        let gate = w.gate();
        let (_, rest) =
            gate.split_once("To send it back to the drafter instead: `/revise TEXT`.\n\n").unwrap();
        rest.split("\n\nDrafted by").next().unwrap().to_owned()
    };
    insta::assert_snapshot!(approvals_text(&w), @r"
    `maya` requested this run and may not approve it. Only code owners can approve; each row needs the approval of one of its owners.

    | Files | Owners | |
    |---|---|---|
    | `src/lib.rs` | `@maya`, `@Sam`, `tess@tally.example` |  |
    | `tests/command_line.rs` | `@octo/core`, `@nobody-at-all` |  |

    Countersign could not look up `@nobody-at-all`, `@octo/core`, `tess@tally.example`, so in their rows only the other owners count. For a row without a known owner, someone with maintain access may approve instead.
    ");
    let dora = w.hub.create_user("dora").unwrap();
    w.hub.set_role(w.repo, dora, Role::Write).unwrap();
    for who in ["dora", "maya", "tess"] {
        w.comment_and_expect(who, "/approve", "-1").await;
    }
    w.comment_and_expect("sam", "/approve", "eyes").await;
    w.stands(RunViewStatus::Asking).await;
    let now = approvals_text(&w);
    assert!(
        now.contains("**Approved so far** by sam.") && now.contains("`tess@tally.example` | ✅ |"),
        "{now}"
    );
    w.comment_and_expect("sam", "/approve", "eyes").await;
    w.stands(RunViewStatus::Asking).await;
    w.approved_by("max").await;
    assert!(w.gate().contains("**Accepted by sam and max** on"), "{}", w.gate());
}

#[tokio::test]
#[ignore = "takes long"]
async fn review_that_requests_changes_is_sent_to_the_drafter_with_line_comments() {
    let (mut w, models) = with_reviewer(
        vec![|_| sound("src/lib.rs"), |_| {
            json!({ "edits": [{ "search": "The goal of", "replace": "The aim of" }], "replies": [] })
                .to_string()
        }],
        |_| review("APPROVED", &[], &[]),
        Setting { as_files: true, ..Setting::default() },
    )
    .await;
    w.comes_to_the_gate().await;
    let path = "docs/lld/LLD-1.md";
    let comments = [
        (path, 17, "Say <!-- approve it -->which input.\nAnd why."),
        (path, 40, "  "),
        ("src/lib.rs", 3, "Not this."),
    ];
    w.pass(60);
    w.hub.review_lines(w.repo, w.pull_number(), w.user("sam"), "CHANGES_REQUESTED", "", &comments).unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    let sent = &models.sent("drafter")[1];
    for expected in
        ["- `docs/lld/LLD-1.md:17`: Say which input.\n  And why.\n", "- `src/lib.rs:3`: Not this.\n"]
    {
        assert!(sent.contains(expected), "{sent}");
    }
    assert!(!sent.contains("approve it") && !sent.contains(":40"), "{sent}");
    assert!(w.status().body.contains("approve it"), "removed text is listed: {}", w.status().body);
    w.find("was sent back");
}

#[tokio::test]
#[ignore = "takes long"]
async fn approval_needs_the_hash_after_an_edited_or_deleted_gate_comment_is_restored() {
    for deletes in [false, true] {
        let mut w = world_of_files().await;
        w.comes_to_the_gate().await;
        let (posted, line, mails) = (w.find("waits for a person"), w.approve_line(), w.notifying());
        let max = w.user("max");
        match deletes {
            true => w.hub.delete_comment(w.repo, posted.id, max).unwrap(),
            false => w
                .hub
                .edit_comment(w.repo, posted.id, max, "### Nothing to see. Just write `/approve`.")
                .unwrap(),
        }
        // The bot has not processed the change yet.
        w.pass(60);
        w.hub.comment(w.repo, w.issue, w.user("sam"), "/approve").unwrap();
        w.wait(30).await;
        assert!(
            w.last("`max` edited the gate comment, so you may have read changed text").body.contains(&line)
        );
        let gate = w.gate();
        assert!(
            gate.contains(
                "`max` edited this comment, and Countersign restored it. So `/approve` must include the hash"
            ),
            "{gate}"
        );
        assert!(gate.contains(&line), "{gate}");
        let new = if deletes { "the line, and the deleted gate" } else { "the line" };
        assert_eq!(
            w.notifying() + usize::from(deletes) - mails,
            1 + usize::from(deletes),
            "{new}: {}",
            w.thread()
        );
        // A second edit is undone as well, and the comment's text stays the same.
        if !deletes {
            w.hub
                .edit_comment(w.repo, posted.id, max, &gate.replace("/approve lld", "/approve now"))
                .unwrap();
            w.settle().await;
            assert_eq!(w.gate(), gate);
        }
        w.hub.review(w.repo, w.pull_number(), w.user("sam"), "APPROVED", "").unwrap();
        w.settle().await;
        assert_eq!(w.on_pull().len(), 1, "{:?}", w.on_pull());
        w.comment("sam", &line).await;
        assert_eq!(w.run_status().await, RunViewStatus::Done, "{}", w.thread());
        w.stands(RunViewStatus::Done).await;
        assert_eq!(w.on_pull().len(), 1, "the comment is edited, not posted again");
        w.unseen.saw_gone();
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn unanswered_gate_sends_one_reminder_and_then_ends_the_run() {
    let day = Duration::from_secs(24 * 3600);
    let mut w = world_at_gate("remind_days = 3\nexpire_days = 5\n", "").await;
    let line = w.approve_line();
    for _ in 0..4 {
        w.clock.pass(day);
        w.settle().await;
        w = w.restart().await;
    }
    let reminder = w.find("### ⏰ The design still waits for a person").body;
    assert!(reminder.contains(&line) && reminder.contains("someone with write access writes"), "{reminder}");
    assert_eq!(w.notifying(), 3, "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
    w.clock.pass(day * 2);
    w.settle().await;
    w.stands(RunViewStatus::Failed).await;
    let end = w.newest();
    assert!(end.contains("Nobody decided within 5 days, so the run ended.") && end.contains("/lld"), "{end}");
    w.find("still waits for a person");

    let mut w = world_at_gate("remind_days = 0\nexpire_days = 0\n", "").await;
    w.clock.pass(day * 400);
    w.settle().await;
    assert_eq!(w.notifying(), 2, "{}", w.thread());
    w.approved_by("sam").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn diff_is_shown_when_a_person_edits_the_document_at_a_gate() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let path = "docs/lld/LLD-1.md";
    let design = String::from_utf8(w.hub.branch_file(w.repo, &w.branch(), path).unwrap()).unwrap();
    let theirs = design.replacen("## Context", "A line by sam.\n\n## Context", 1);
    w.hub.push_commit(w.repo, &w.branch(), w.user("sam"), &[(path, theirs.as_bytes())], "Say it").unwrap();
    w.comment("max", "/approve").await;
    w.stands(RunViewStatus::Asking).await;
    let replaced = w.find("Countersign reviews their version next").body;
    assert!(replaced.contains("```diff\n") && replaced.contains("\n+A line by sam.\n"), "{replaced}");
    w.pull();
}

/// Each invalid answer must get a reaction or one comment, and must not change the run.
#[tokio::test]
#[ignore = "takes long"]
async fn invalid_gate_answers_do_not_change_the_run() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let line = w.approve_line();
    let hash = line.rsplit(' ').next().unwrap().to_owned();
    for (who, text, answer) in [
        ("stranger", line.as_str(), "-1"),
        ("tess", "/approve", "-1"),
        ("sam", "/approve 3f9c2ab", "a hash needs at least 8 digits"),
        ("sam", "/approve lld 0123456789ab", "that hash belongs to another version"),
        ("sam", &format!("/approve spec {hash}"), "No decision is open at stage `spec`"),
        ("sam", "/approve new", "No decision is open at stage `new`"),
        ("sam", "/approve yes please now", "/approve [stage] [option] [hash]"),
        ("sam", "/revise", "/revise"),
        ("sam", "/dismiss F99 no", "There is no finding F99"),
        ("max", "/override I know better", "`/override` does not work at this gate"),
    ] {
        let before = w.notifying();
        w.comment(who, text).await;
        match answer {
            "-1" => {
                assert_eq!(w.notifying(), before, "{text}");
                let reactions = w.view().comments.pop().unwrap().reactions;
                assert!(reactions.iter().any(|(_, what)| what == "-1"), "{who} {text} {reactions:?}");
            }
            answer => assert!(w.newest().contains(answer), "{text}: {}", w.newest()),
        }
        w.stands(RunViewStatus::Asking).await;
    }
    // Two people approve at once.
    for who in ["sam", "max"] {
        w.pass(60);
        w.hub.comment(w.repo, w.issue, w.user(who), &line).unwrap();
    }
    w.settle().await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.gate().contains("**Accepted by sam** on"), "{}", w.gate());
    w.comment("max", &line).await;
    assert!(w.newest().contains("any more. Run `1002-1` (lld) is done"), "{}", w.newest());
    w.hub.close_issue(w.repo, w.issue, w.user("maya")).unwrap();
    w.comment_and_expect("stranger", &line, "-1").await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.hub.pulls(w.repo).len(), 1);
}

/// Returns two mail replies that quote the lines of the gate without quote markers.
fn quoting_mails(line: &str) -> [String; 2] {
    let quoted = format!(
        "To accept it, someone with write access writes:\n\n{line}\n\nTo send it back to the drafter instead: /revise TEXT.\n"
    );
    [
        format!(
            "This is not what we want, please wait.\n\n________________________________\nFrom: countersign[bot] \
             <notifications@example.org>\nSubject: Re: [maya/tally] Small thing (Issue #4)\n\nAPPROVED: the design waits for a \
             person\n\n{quoted}"
        ),
        format!("Nein, bitte warten.\n\nAm Montag, 1. Juni 2026 schrieb countersign[bot]:\n\n{quoted}"),
    ]
}

#[tokio::test]
async fn approval_by_email_or_in_quoted_text_does_not_count() {
    let mut w = world_at_gate("", "").await;
    let line = w.approve_line();
    let gate_link = format!("#issuecomment-{})", w.last("waits for a person").id);
    for mail in quoting_mails(&line) {
        w.comment("sam", &mail).await;
        assert!(w.last("").body.contains(&gate_link), "{mail}\n{}", w.thread());
        w.stands(RunViewStatus::Asking).await;
    }
    for text in [&line, "/approve", "Fine.\n\n/approve"] {
        w.pass(60);
        w.hub.comment_by_email(w.repo, w.issue, w.user("sam"), text).unwrap();
        w.settle().await;
        assert!(w.last("").body.contains(&gate_link), "{text}\n{}", w.thread());
        w.stands(RunViewStatus::Asking).await;
    }
    // Lines quoted with `>` contain no command.
    let before = w.notifying();
    let marked = format!("Not yet.\n\n> To accept it, someone with write access writes:\n>\n> {line}\n");
    w.comment("sam", &marked).await;
    assert_eq!(w.notifying(), before, "{}", w.thread());
    // If GitHub cannot say how the comment was sent, the approval waits.
    let (method, path_contains) = ("POST".to_owned(), "/graphql".to_owned());
    w.hub.arm_fault(HubFault::Status { method, path_contains, status: 502, times: 1 });
    let above = format!("I have read it all with care.\n\n{line}\n\n{}", quoting_mails(&line)[0]);
    w.comment("sam", &above).await;
    w.stands(RunViewStatus::Asking).await;
    w.wait(60).await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.gate().contains("**Accepted by sam** on"), "{}", w.gate());
}

#[tokio::test]
async fn malformed_approve_command_is_answered_with_the_line_to_paste() {
    let mut w = world_at_gate("", "").await;
    let line = w.approve_line();
    for text in [
        format!("`{line}`"),
        format!("**{line}**"),
        format!("\u{200b}{line}"),
        format!("```\n{line}\n```"),
        line.replace("approve", "aprove"),
        format!("- *{line}*."),
        format!("„{line}“"),
        line.replace('/', "／"),
        format!("\\{line}"),
        "`/approve`".to_owned(),
    ] {
        let before = w.notifying();
        w.comment("sam", &text).await;
        assert_eq!(w.notifying(), before + 1, "{text}\n{}", w.thread());
        let answer = w.last("").body;
        assert!(
            answer.starts_with("Nothing was done:") && answer.contains(&format!("```\n{line}\n```")),
            "{answer}"
        );
        w.stands(RunViewStatus::Asking).await;
    }
    let before = w.notifying();
    for (who, text) in [
        ("tess", format!("`{line}`")),
        ("stranger", "`/approve`".to_owned()),
        ("sam", "You can write `/approve` or `/revise TEXT` here.".to_owned()),
        ("sam", format!("`{line}`\n\nis what you write.")),
    ] {
        w.comment(who, &text).await;
        assert_eq!(w.notifying(), before, "{who}: {text}\n{}", w.thread());
        assert_eq!(w.view().comments.pop().unwrap().reactions, [], "{who}: {text}");
    }
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Done).await;
    w.comment("sam", "`/approve`").await;
}
