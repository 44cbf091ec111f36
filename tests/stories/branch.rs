//! What others do on the branch of a design: they are asked to see it, and nothing of it passes for ours.

use std::process::Command;

use countersign::{engine::RunViewStatus, localhub::HubFault, types::Oid};

use crate::world::{World, world_of_files};

const WORKFLOW: (&str, &[u8]) = (".github/workflows/x.yml", b"on: push");
const CODE: (&str, &[u8]) = ("src/lib.rs", b"// theirs");

impl World {
    /// Someone who may write pushes these to the issue's branch.
    fn push(&self, files: &[(&str, &[u8])]) {
        let sam = self.user("sam");
        self.hub.push_commit(self.repo, &self.branch(), sam, files, "Mine").unwrap();
    }

    /// git in the repository as GitHub has it.
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=sam", "-c", "user.email=sam@example.com", "--git-dir"]);
        let output = git.arg(self.hub.git_dir(self.repo)).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The issue's branch becomes a commit of this tree.
    fn move_branch(&self, tree: &str, parents: &[&str]) -> Oid {
        let parents = parents.iter().flat_map(|parent| ["-p", *parent]);
        let commit = ["commit-tree", "-m", "Theirs", tree].into_iter().chain(parents).collect::<Vec<_>>();
        let commit: Oid = self.git(&commit).parse().unwrap();
        self.hub.move_branch(self.repo, &self.branch(), self.user("sam"), &commit).unwrap();
        commit
    }
}

#[track_caller]
fn names(text: &str) {
    for (path, _) in [WORKFLOW, CODE] {
        assert!(text.contains(&format!("- `{path}`")), "{path} is not named:\n{text}");
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn files_of_others_are_named_and_need_the_line() {
    let mut w = world_of_files().await;
    w.push(&[WORKFLOW, CODE]);
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    names(&w.find("waits for a person").body);
    names(&w.pull().body);
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Asking).await;
    let (line, answer) = (w.approve_line(), w.newest());
    names(&answer);
    assert!(answer.contains("/approve lld HASH"), "{answer}");
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Done).await;
    let body = w.pull().body;
    names(&body);
    assert!(body.contains("by somebody who was shown") && !body.contains("up to you"), "{body}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn files_of_others_that_come_later_are_asked_about() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let gate = w.approve_line();
    w.push(&[WORKFLOW, ("src/lib.rs", b"// not yet")]);
    w.comment("sam", &gate).await;
    names(&w.newest());
    let again = w.approve_line();
    assert_ne!(again, gate);

    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), &again).unwrap();
    w.step(1).await;
    assert_eq!(w.run().await.unwrap().step_id, "N5", "approved, and nothing committed yet");
    w.push(&[CODE]);
    w.settle().await;
    // the same files, and not as they were shown
    w.stands(RunViewStatus::Asking).await;
    let asked = w.find("others changed the branch before the approval was on it").body;
    assert!(asked.contains("the LLD was not decided"), "{asked}");
    names(&w.newest());
    w.approved_by("sam").await;
    names(&w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_merge_of_the_default_branch_brings_nothing_foreign() {
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

    // What the first run put there is ours to the second.
    w.comment("sam", "/lld").await;
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.pull().body.contains("Merging is up to you."), "{}", w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_branch_that_was_rewritten_is_left_alone_and_another_follows() {
    for orphan in [true, false] {
        let mut w = world_of_files().await;
        w.comes_to_the_gate().await;
        let (line, branch) = (w.approve_line(), w.branch());
        let follows = format!("{branch}-2");
        let tree = w.git(&["rev-parse", &format!("{branch}^{{tree}}")]);
        let theirs = w.move_branch(&tree, if orphan { &[] } else { &["main"] });
        w.comment("sam", &line).await;
        // an approval of what was there is not one of this
        w.stands(RunViewStatus::Asking).await;
        let answer = w.newest();
        assert!(answer.contains(&format!("Somebody rewrote the branch `{branch}`")), "{answer}");
        let pulls = w.hub.pulls(w.repo);
        let states: Vec<_> = pulls.iter().map(|p| (p.head.as_str(), p.state.as_str())).collect();
        assert_eq!(states, [(branch.as_str(), "closed"), (follows.as_str(), "open")]);
        assert_eq!(w.pull_at(0).state, "closed");
        let told = w.on_thread(pulls[0].number).pop().unwrap();
        assert!(told.contains(&format!("/pull/{})", pulls[1].number)) && told.contains(&follows), "{told}");

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
async fn a_branch_that_began_anew_is_ours_though_nobody_saw_it_begin() {
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
    assert_eq!(w.run_status().await, RunViewStatus::Ready, "the answer was lost");
    w.comment("tess", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;

    w.comment("sam", "/lld").await;
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Done).await;
    let branches: Vec<_> = w.hub.branches(w.repo).into_iter().map(|(name, _)| name).collect();
    assert_eq!(branches, [w.branch(), "main".to_owned()]);
    assert!(w.pull().body.contains("Merging is up to you."), "{}", w.pull().body);
}
