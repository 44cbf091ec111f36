//! Stories about requests that GitHub refuses. Temporary refusals are retried, permanent ones halt the run, and refused
//! cosmetic writes are skipped.

use std::time::Duration;

use countersign::{engine::RunViewStatus, localhub::HubFault};

use crate::world::{World, all, world, world_of_files};

const LABEL_MUTATION: &str = "addLabelsToLabelable";

fn mutation(name: &'static str, kind: Option<&'static str>, message: &'static str, times: u32) -> HubFault {
    HubFault::Mutation { name, kind, message, times }
}

fn refused(method: &str, path: &str, status: u16, message: &'static str, times: u32) -> HubFault {
    let (method, path_contains) = (method.to_owned(), path.to_owned());
    HubFault::Refused { method, path_contains, status, message, times }
}

/// Runs a design from its label to its end, with enough time for retries.
async fn run_to_done(w: &mut World) {
    w.label("maya", "countersign:lld").await;
    w.wait(150).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(150).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.notifying(), 2, "{}", w.thread());
}

#[tokio::test]
#[ignore = "takes long"]
async fn temporary_graphql_errors_are_retried() {
    let wrong = "Something went wrong while executing your query. This may be the result of a timeout, or it could \
                 be a GitHub bug.";
    for (row, kind) in [None, Some("RATE_LIMIT"), Some("SERVICE_UNAVAILABLE")].into_iter().enumerate() {
        let names = [LABEL_MUTATION, "createCommitOnBranch", "updateIssueComment"].into_iter().enumerate();
        for (_, name) in names.filter(|(column, _)| all() || *column == row) {
            let mut w = world().await;
            w.hub.arm_fault(mutation(name, kind, wrong, 2));
            run_to_done(&mut w).await;
            assert_eq!(w.labels(), ["countersign:done"], "{name} {kind:?}");
        }
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_continues_when_github_permanently_refuses_its_label_or_title() {
    let mut w = world_of_files().await;
    w.hub.arm_fault(mutation(
        LABEL_MUTATION,
        Some("FORBIDDEN"),
        "Resource not accessible by integration",
        1000,
    ));
    w.hub.arm_fault(refused("POST", "/labels", 403, "Resource not accessible by integration", 1000));
    w.hub.arm_fault(refused("PATCH", "/pulls/", 422, "Validation Failed", 1000));
    w.label("maya", "countersign:lld").await;
    w.wait(150).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(150).await;
    assert_eq!(
        (w.run_status().await, w.labels().len(), w.notifying()),
        (RunViewStatus::Done, 0, 2),
        "{}",
        w.thread()
    );
    assert!(w.status().body.contains("lld: done") && w.gate().contains("was accepted"), "{}", w.thread());
    assert_eq!(w.commits()[0], "docs: accept design for #1");
    w.pull();
    assert_eq!(w.check_says(), "success: Countersigned");
}

#[tokio::test]
#[ignore = "takes long"]
async fn halt_comment_is_posted_after_a_long_github_outage() {
    let mut w = world_of_files().await;
    w.hub.arm_fault(refused("POST", "/pulls", 403, "Resource not accessible by integration", 1000));
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    for steps in 0.. {
        if w.hub.branches(w.repo).len() == 2 {
            break;
        }
        assert!(steps < 1000, "no branch after 1000 steps:\n{}", w.thread());
        w.step(1).await;
    }
    for (method, path) in [("POST", "/comments"), ("PATCH", "/comments/"), ("POST", "/graphql")] {
        let (method, path_contains) = (method.to_owned(), path.to_owned());
        w.hub.arm_fault(HubFault::Status { method, path_contains, status: 500, times: 100_000 });
    }
    for _ in 0..40 {
        w.wait(15).await;
        w.pass(3600);
    }
    assert_eq!(
        w.run().await.unwrap().status,
        RunViewStatus::Halting,
        "the run keeps trying to report its halt"
    );
    w.hub.clear_faults();
    w.pass(3600);
    w.wait(60).await;
    w.stands(RunViewStatus::Failed).await;
    let comment = w.find("Halted").body;
    assert!(comment.contains("GitHub refused a request of the App"), "{comment}");
    assert_eq!(
        w.commits(),
        ["docs: propose design for #1", "Initial commit"],
        "the proposal is committed without a pull request"
    );
}

#[tokio::test]
async fn rate_limited_comment_is_posted_once() {
    let mut w = world().await;
    let (method, path_contains) = ("POST".to_owned(), "/issues/1/comments".to_owned());
    let retry_after = Duration::from_secs(1);
    w.hub.arm_fault(HubFault::SecondaryLimit { method, path_contains, retry_after, times: 3 });
    w.label("maya", "countersign:lld").await;
    w.wait(60).await;
    w.find("waits for a person");
    assert_eq!(w.notifying(), 2, "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn requests_that_github_refuses_temporarily_are_retried() {
    let listed = "Although you appear to have the correct authorization credentials, the `acme` organization has an IP \
                  allow list enabled, and your IP address is not permitted to access this resource.";
    for fault in [
        refused("POST", "/comments", 422, "IssueComment was submitted too quickly", 2),
        refused("POST", "/pulls", 422, "Could not resolve to a node with the global id of 'R_1'", 2),
        refused("GET", "/tally", 403, listed, 5),
    ] {
        let mut w = world().await;
        w.hub.arm_fault(fault);
        run_to_done(&mut w).await;
    }
}

#[tokio::test]
async fn halt_comment_names_a_branch_forbidden_by_a_ruleset() {
    let mut w = world_of_files().await;
    let rules =
        "Repository rule violations found\n\nCannot create ref due to creations being restricted.\n\n";
    w.hub.arm_fault(mutation("createRef", Some("UNPROCESSABLE"), rules, 1000));
    w.label("maya", "countersign:lld").await;
    w.wait(150).await;
    let comment = w.find("Halted").body;
    assert!(
        comment.contains("GitHub does not let the App create the branch countersign/issue-1."),
        "{comment}"
    );
    assert!(comment.contains("bypass that ruleset") && !comment.contains("restricted"), "{comment}");
    w.stands(RunViewStatus::Failed).await;
}
