//! Stories about commits by other people on the branch of a design. People must be shown these commits, and the bot
//! must never treat them as its own.

use std::process::Command;

use countersign::{engine::RunViewStatus, localhub::HubFault, types::Oid};

use crate::world::{World, world_of_files};

const WORKFLOW: (&str, &[u8]) = (".github/workflows/x.yml", b"on: push");
const CODE: (&str, &[u8]) = ("src/lib.rs", b"// theirs");

impl World {
    /// Pushes these files to the issue's branch as the user sam, who has the write role.
    fn push(&self, files: &[(&str, &[u8])]) {
        let sam = self.user("sam");
        self.hub.push_commit(self.repo, &self.branch(), sam, files, "Mine").unwrap();
    }

    /// Runs git in the hub's copy of the repository and returns the output.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=sam", "-c", "user.email=sam@example.com", "--git-dir"]);
        let output = git.arg(self.hub.git_dir(self.repo)).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Creates a commit with this tree and these parents, and moves the issue's branch to the commit.
    fn move_branch(&self, tree: &str, parents: &[&str]) -> Oid {
        let parents = parents.iter().flat_map(|parent| ["-p", *parent]);
        let commit = ["commit-tree", "-m", "Theirs", tree].into_iter().chain(parents).collect::<Vec<_>>();
        let commit: Oid = self.git(&commit).parse().unwrap();
        self.hub.move_branch(self.repo, &self.branch(), self.user("sam"), &commit).unwrap();
        commit
    }
}

#[track_caller]
fn assert_files_listed(text: &str) {
    for (path, _) in [WORKFLOW, CODE] {
        assert!(text.contains(&format!("- `{path}`")), "{path} is not named:\n{text}");
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn approval_needs_the_full_approve_line_if_other_people_pushed_files() {
    let mut w = world_of_files().await;
    w.push(&[WORKFLOW, CODE]);
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    assert_files_listed(&w.find("waits for a person").body);
    assert_files_listed(&w.pull().body);
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Asking).await;
    let (line, answer) = (w.approve_line(), w.newest());
    assert_files_listed(&answer);
    assert!(answer.contains("/approve lld HASH"), "{answer}");
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Done).await;
    let body = w.pull().body;
    assert_files_listed(&body);
    assert!(body.contains("someone who also saw the other files") && !body.contains("up to you"), "{body}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn files_pushed_by_other_people_after_the_gate_reopen_the_gate() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let gate = w.approve_line();
    w.push(&[WORKFLOW, ("src/lib.rs", b"// not yet")]);
    w.comment("sam", &gate).await;
    assert_files_listed(&w.newest());
    let again = w.approve_line();
    assert_ne!(again, gate);

    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), &again).unwrap();
    w.step(1).await;
    assert_eq!(w.run().await.unwrap().step_id, "N5", "approved, with no commit yet");
    w.push(&[CODE]);
    w.settle().await;
    // the same files with other contents than shown
    w.stands(RunViewStatus::Asking).await;
    let answer = w.find("somebody changed the branch before the approved version was committed").body;
    assert!(answer.contains("the design was closed without a decision"), "{answer}");
    assert_files_listed(&w.newest());
    w.approved_by("sam").await;
    assert_files_listed(&w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn files_merged_from_the_default_branch_are_not_listed_as_pushed_by_others() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    w.hub.push_commit(w.repo, "main", w.user("maya"), &[("NEWS.md", b"news")], "News").unwrap();
    let branch = w.branch();
    let tree = w.git(&["merge-tree", "--write-tree", &branch, "main"]);
    w.move_branch(&tree, &[&branch, "main"]);
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.pull().body.contains("The document is accepted. Merging is up to you."), "{}", w.pull().body);
    assert_eq!(w.notifying(), 2);

    // Files committed by the first run are the bot's own in the second.
    w.comment("sam", "/lld").await;
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.pull().body.contains("Merging is up to you."), "{}", w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn branch_rewritten_by_a_person_is_kept_and_a_new_pull_request_is_opened() {
    for orphan in [true, false] {
        let mut w = world_of_files().await;
        w.comes_to_the_gate().await;
        let (line, branch) = (w.approve_line(), w.branch());
        let follows = format!("{branch}-2");
        let tree = w.git(&["rev-parse", &format!("{branch}^{{tree}}")]);
        let theirs = w.move_branch(&tree, if orphan { &[] } else { &["main"] });
        w.comment("sam", &line).await;
        // the approval was for the branch before the rewrite
        w.stands(RunViewStatus::Asking).await;
        let answer = w.newest();
        assert!(answer.contains(&format!("Somebody rewrote the branch `{branch}`")), "{answer}");
        let pulls = w.hub.pulls(w.repo);
        let states: Vec<_> = pulls.iter().map(|p| (p.head.as_str(), p.state.as_str())).collect();
        assert_eq!(states, [(branch.as_str(), "closed"), (follows.as_str(), "open")]);
        assert_eq!(w.pull_at(0).state, "closed");
        let notice = w.on_thread(pulls[0].number).pop().unwrap();
        assert!(
            notice.contains(&format!("/pull/{})", pulls[1].number)) && notice.contains(&follows),
            "{notice}"
        );

        w.comment("sam", "/approve").await;
        w.stands(RunViewStatus::Done).await;
        let heads = w.hub.branches(w.repo);
        assert!(heads.contains(&(branch, theirs)), "{heads:?}");
        assert!(
            w.pull().body.contains("The document is accepted. Merging is up to you."),
            "{}",
            w.pull().body
        );
        let log = w.hub.log(w.repo, &follows);
        assert!(log[0].message.starts_with("docs: accept") && log.len() == 3, "{log:?}");
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn branch_counts_as_created_by_the_bot_when_the_creation_response_was_lost() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Done).await;
    w.git(&["update-ref", "-d", &format!("refs/heads/{}", w.branch())]);
    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/lld").unwrap();
    w.step(1).await;
    while w.run().await.unwrap().step_id != "N4" {
        w.step(1).await;
    }
    let (method, path_contains) = ("POST".to_owned(), "/graphql".to_owned());
    w.hub.arm_fault(HubFault::AnswerBadGatewayAfter { method, path_contains, times: 1 });
    w.settle().await;
    assert!(w.hub.log(w.repo, &w.branch())[0].message.starts_with("docs: propose"));
    assert_eq!(w.run_status().await, RunViewStatus::Ready, "the response was lost");
    w.comment("tess", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;

    w.comment("sam", "/lld").await;
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Done).await;
    let branches: Vec<_> = w.hub.branches(w.repo).into_iter().map(|(name, _)| name).collect();
    assert_eq!(branches, [w.branch(), "main".to_owned()]);
    assert!(w.pull().body.contains("Merging is up to you."), "{}", w.pull().body);
}
