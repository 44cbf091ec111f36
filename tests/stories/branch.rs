//! What others do on the branch of a design: they are asked to see it, and nothing of it passes for ours.

use std::process::Command;

use countersign::{engine::Status, localhub::Fault, types::Oid};

use crate::world::{World, world};

const WORKFLOW: (&str, &[u8]) = (".github/workflows/x.yml", b"on: push");
const CODE: (&str, &[u8]) = ("src/lib.rs", b"// theirs");

impl World {
    fn branch(&self) -> String {
        format!("countersign/issue-{}", self.issue)
    }

    /// Someone who may write pushes these to the issue's branch.
    fn push(&self, files: &[(&str, &[u8])]) {
        let sam = self.user("sam");
        self.hub.push_commit(self.repo, &self.branch(), sam, files, "Mine").unwrap();
    }

    /// git in the repository as GitHub has it.
    fn git(&self, arguments: &[&str]) -> String {
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

    pub(crate) fn pull_body(&self) -> String {
        self.hub.pulls(self.repo).pop().unwrap().body
    }

    async fn stands(&self) -> Status {
        self.run().await.unwrap().status
    }
}

#[track_caller]
fn names(text: &str) {
    for (path, _) in [WORKFLOW, CODE] {
        assert!(text.contains(&format!("- `{path}`")), "{path} is not named:\n{text}");
    }
}

#[tokio::test]
async fn files_of_others_are_named_and_need_the_line() {
    let mut w = world().await;
    w.push(&[WORKFLOW, CODE]);
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    names(&w.find("waits for a person").body);
    names(&w.pull_body());
    w.comment("sam", "/approve").await;
    assert_eq!(w.stands().await, Status::Asking);
    let (line, answer) = (w.approve_line(), w.newest());
    names(&answer);
    assert!(answer.contains("/approve lld HASH"), "{answer}");
    w.comment("sam", &line).await;
    assert_eq!(w.stands().await, Status::Done);
    let body = w.pull_body();
    names(&body);
    assert!(body.contains("by somebody who was shown") && !body.contains("up to you"), "{body}");
    w.nothing_else_was_said();
}

#[tokio::test]
async fn files_of_others_that_come_later_are_asked_about() {
    let mut w = world().await;
    w.label("maya", "countersign:lld").await;
    let gate = w.approve_line();
    w.push(&[WORKFLOW, ("src/lib.rs", b"// not yet")]);
    w.comment("sam", &gate).await;
    names(&w.newest());
    let again = w.approve_line();
    assert_ne!(again, gate);
    names(&w.pull_body());

    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), &again).unwrap();
    w.step(1).await;
    assert_eq!(w.run().await.unwrap().step_id, "N5", "approved, and nothing committed yet");
    w.push(&[CODE]);
    w.settle().await;
    assert_eq!(w.stands().await, Status::Asking, "the same files, and not as they were shown");
    let asked = w.find("others changed the branch before the approval was on it").body;
    assert!(asked.contains("the LLD was not decided"), "{asked}");
    names(&w.newest());
    let line = w.approve_line();
    w.comment("sam", &line).await;
    assert_eq!(w.stands().await, Status::Done);
    names(&w.pull_body());
}

#[tokio::test]
async fn a_merge_of_the_default_branch_brings_nothing_foreign() {
    let mut w = world().await;
    w.label("maya", "countersign:lld").await;
    w.hub.push_commit(w.repo, "main", w.user("maya"), &[("NEWS.md", b"news")], "News").unwrap();
    let branch = w.branch();
    let tree = w.git(&["merge-tree", "--write-tree", &branch, "main"]);
    w.move_branch(&tree, &[&branch, "main"]);
    w.comment("sam", "/approve").await;
    assert_eq!(w.stands().await, Status::Done, "{}", w.thread());
    assert!(w.pull_body().contains("The document is accepted. Merging is up to you."), "{}", w.pull_body());
    assert_eq!(w.notifying(), 2);

    // What the first run put there is ours to the second.
    w.comment("sam", "/lld").await;
    w.comment("sam", "/approve").await;
    assert_eq!(w.stands().await, Status::Done, "{}", w.thread());
    assert!(w.pull_body().contains("Merging is up to you."), "{}", w.pull_body());
}

#[tokio::test]
async fn a_branch_that_was_rewritten_is_left_alone_and_another_follows() {
    for orphan in [true, false] {
        let mut w = world().await;
        w.label("maya", "countersign:lld").await;
        w.find("Rehearsal");
        w.find("waits for a person");
        let (line, branch) = (w.approve_line(), w.branch());
        let follows = format!("{branch}-2");
        let tree = w.git(&["rev-parse", &format!("{branch}^{{tree}}")]);
        let theirs = w.move_branch(&tree, if orphan { &[] } else { &["main"] });
        w.comment("sam", &line).await;
        assert_eq!(w.stands().await, Status::Asking, "an approval of what was there is not one of this");
        let answer = w.newest();
        assert!(answer.contains(&format!("Somebody rewrote the branch `{branch}`")), "{answer}");
        let pulls = w.hub.pulls(w.repo);
        let states: Vec<_> = pulls.iter().map(|p| (p.head.as_str(), p.state.as_str())).collect();
        assert_eq!(states, [(branch.as_str(), "closed"), (follows.as_str(), "open")]);
        let told = w.hub.issue(w.repo, pulls[0].number).unwrap().comments.pop().unwrap().body;
        assert!(told.contains(&format!("/pull/{})", pulls[1].number)) && told.contains(&follows), "{told}");

        w.comment("sam", "/approve").await;
        assert_eq!(w.stands().await, Status::Done, "{}", w.thread());
        let heads = w.hub.branches(w.repo);
        assert!(heads.contains(&(branch, theirs)), "{heads:?}");
        assert!(
            w.pull_body().contains("The document is accepted. Merging is up to you."),
            "{}",
            w.pull_body()
        );
        let log = w.hub.log(w.repo, &follows);
        assert!(log[0].message.starts_with("docs: accept") && log.len() == 3, "{log:?}");
        w.nothing_else_was_said();
    }
}

#[tokio::test]
async fn a_branch_that_began_anew_is_ours_though_nobody_saw_it_begin() {
    let mut w = world().await;
    w.label("maya", "countersign:lld").await;
    w.comment("sam", "/approve").await;
    assert_eq!(w.stands().await, Status::Done, "{}", w.thread());
    w.git(&["update-ref", "-d", &format!("refs/heads/{}", w.branch())]);
    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/lld").unwrap();
    w.step(1).await;
    while w.run().await.unwrap().step_id != "N4" {
        w.step(1).await;
    }
    let (method, path_contains) = ("POST".to_owned(), "/graphql".to_owned());
    w.hub.fault(Fault::AnswerBadGatewayAfter { method, path_contains, times: 1 });
    w.settle().await;
    assert!(w.hub.log(w.repo, &w.branch())[0].message.starts_with("docs: propose"));
    assert_eq!(w.stands().await, Status::Ready, "the answer was lost");
    w.comment("tess", "/stop").await;
    assert_eq!(w.stands().await, Status::Stopped);

    w.comment("sam", "/lld").await;
    w.comment("sam", "/approve").await;
    assert_eq!(w.stands().await, Status::Done, "{}", w.thread());
    let branches: Vec<_> = w.hub.branches(w.repo).into_iter().map(|(name, _)| name).collect();
    assert_eq!(branches, [w.branch(), "main".to_owned()]);
    assert!(w.pull_body().contains("Merging is up to you."), "{}", w.pull_body());
}
