//! GitHub refuses: for now, which is waited out; for good, which is said; and of what only decorates nobody hears.

use std::time::Duration;

use countersign::{engine::RunViewStatus, localhub::HubFault};

use crate::world::{World, all, world, world_of_files};

const SWAP: &str = "addLabelsToLabelable";

fn mutation(name: &'static str, kind: Option<&'static str>, message: &'static str, times: u32) -> HubFault {
    HubFault::Mutation { name, kind, message, times }
}

fn refused(method: &str, path: &str, status: u16, message: &'static str, times: u32) -> HubFault {
    let (method, path_contains) = (method.to_owned(), path.to_owned());
    HubFault::Refused { method, path_contains, status, message, times }
}

/// A design from its label to its end, with the time its faults cost.
async fn designed(w: &mut World) {
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
async fn what_goes_wrong_in_graphql_is_asked_again() {
    let wrong = "Something went wrong while executing your query. This may be the result of a timeout, or it could \
                 be a GitHub bug.";
    for (row, kind) in [None, Some("RATE_LIMIT"), Some("SERVICE_UNAVAILABLE")].into_iter().enumerate() {
        let names = [SWAP, "createCommitOnBranch", "updateIssueComment"].into_iter().enumerate();
        for (_, name) in names.filter(|(column, _)| all() || *column == row) {
            let mut w = world().await;
            w.hub.arm_fault(mutation(name, kind, wrong, 2));
            designed(&mut w).await;
            assert_eq!(w.labels(), ["countersign:done"], "{name} {kind:?}");
        }
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_label_or_a_title_that_is_refused_for_good_holds_nothing_up() {
    let mut w = world_of_files().await;
    w.hub.arm_fault(mutation(SWAP, Some("FORBIDDEN"), "Resource not accessible by integration", 1000));
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
    assert_eq!(w.commits()[0], "docs: accept LLD for #1");
    w.pull();
    assert_eq!(w.check_says(), "success: Countersigned");
}

#[tokio::test]
#[ignore = "takes long"]
async fn an_ending_reaches_the_thread_however_long_that_takes() {
    let mut w = world_of_files().await;
    w.hub.arm_fault(refused("POST", "/pulls", 403, "Resource not accessible by integration", 1000));
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    for steps in 0.. {
        if w.hub.branches(w.repo).len() == 2 {
            break;
        }
        assert!(steps < 1000, "it makes no branch:\n{}", w.thread());
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
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Halting, "two days, and nobody knows");
    w.hub.clear_faults();
    w.pass(3600);
    w.wait(60).await;
    w.stands(RunViewStatus::Failed).await;
    let said = w.find("Halted").body;
    assert!(said.contains("GitHub does not let the App do this here"), "{said}");
    assert_eq!(w.commits(), ["docs: propose LLD for #1", "Initial commit"], "no pull request, but this");
}

#[tokio::test]
async fn a_refusal_is_no_doubt() {
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
async fn what_passes_is_tried_again() {
    let listed = "Although you appear to have the correct authorization credentials, the `acme` organization has an IP \
                  allow list enabled, and your IP address is not permitted to access this resource.";
    for fault in [
        refused("POST", "/comments", 422, "IssueComment was submitted too quickly", 2),
        refused("POST", "/pulls", 422, "Could not resolve to a node with the global id of 'R_1'", 2),
        refused("GET", "/tally", 403, listed, 5),
    ] {
        let mut w = world().await;
        w.hub.arm_fault(fault);
        designed(&mut w).await;
    }
}

#[tokio::test]
async fn a_branch_that_a_ruleset_forbids_is_named() {
    let mut w = world_of_files().await;
    let rules =
        "Repository rule violations found\n\nCannot create ref due to creations being restricted.\n\n";
    w.hub.arm_fault(mutation("createRef", Some("UNPROCESSABLE"), rules, 1000));
    w.label("maya", "countersign:lld").await;
    w.wait(150).await;
    let said = w.find("Halted").body;
    assert!(said.contains("GitHub does not let the App make the branch countersign/issue-1."), "{said}");
    assert!(said.contains("bypass that ruleset") && !said.contains("restricted"), "{said}");
    w.stands(RunViewStatus::Failed).await;
}
