//! Stories about the check on the run's commits, which shows the state of the run.

use countersign::{
    engine::RunViewStatus,
    localhub::{HubCheckView, HubFault},
};
use serde_json::json;

use crate::{
    resumed::answer_lost,
    script::{Script, approved, design, finding, review},
    world::{Setting, World, some, world_of_files},
};

impl World {
    async fn with_script(script: Script, toml: &str) -> Self {
        let (script, toml) = (Some(script.toml()), toml.to_owned());
        let mut w = Self::new(Setting { as_files: true, script, toml, ..Setting::default() }).await;
        w.label("maya", "countersign:lld").await;
        w.stands(RunViewStatus::Asking).await;
        w
    }

    /// Returns the number of successful requests to the checks API with this method.
    fn check_calls(&self, method: &str) -> usize {
        let meant = |path: &str| path.contains("/check-runs");
        self.hub.requests().iter().filter(|r| r.method == method && meant(&r.path) && r.status < 300).count()
    }
}

fn conclusion_and_title(check: &HubCheckView) -> (&str, &str) {
    (check.conclusion.as_ref().unwrap_or(&check.status), &check.title)
}

fn checks_fault(method: &str, status: u16) -> HubFault {
    HubFault::Status { method: method.into(), path_contains: "/check-runs".into(), status, times: 99 }
}

#[tokio::test]
async fn check_run_is_action_required_at_the_gate_and_succeeds_on_the_approved_commit() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let checks = w.checks();
    let [check] = checks.as_slice() else { panic!("{checks:#?}") };
    assert_eq!((check.name.as_str(), &check.head), ("countersign / lld", &w.pull().head_oid));
    assert_eq!(conclusion_and_title(check), ("action_required", "APPROVED: waits for a person"));
    let gate = format!("#issuecomment-{}", w.find("waits for a person").id);
    assert!(check.details_url.as_ref().unwrap().ends_with(&gate), "{check:#?}");
    let calls: Vec<_> = w.hub.requests().into_iter().filter(|r| r.method == "POST").collect();
    let first = |end: &str| calls.iter().position(|r| r.path.ends_with(end)).unwrap();
    assert!(first("/pulls") < first("/check-runs"), "no check before the pull request");

    w.approved_by("sam").await;
    let checks = w.checks();
    assert_eq!(
        (conclusion_and_title(&checks[1]), &checks[1].head),
        (("success", "Countersigned"), &w.pull().head_oid)
    );
    let pull = w.pull().body;
    let audit = pull.split("| Audit head | `").nth(1).unwrap().split('`').next().unwrap();
    let summary = &checks[1].summary;
    assert!(summary.contains("approved by sam at") && summary.contains(audit), "{summary}");
    assert_eq!((checks.len(), w.check_calls("POST"), w.check_calls("PATCH")), (2, 2, 0));
    let page = w.page("pull/2").await;
    assert!(page.contains("countersign / lld</a> <b>success</b> Countersigned"), "{page}");
}

#[tokio::test]
async fn each_commit_gets_its_own_check_run_with_findings_as_annotations() {
    let mut grave = finding("Nobody says who reads it", None);
    (grave["severity"], grave["place"]) = (json!("blocking"), json!("REQ-1"));
    let refuses = review("REVISE", &[finding("No test", None), grave], &[]);
    let script = Script::default()
        .drafts(&design())
        .reviews(&refuses)
        .edits("The goal of a real design", "The aim of a real design")
        .reviews(&review("APPROVED", &[], &["F1", "F2"]));
    let mut w = World::with_script(script, "[lld]\nmax_rounds = 1\n").await;
    let path = format!("docs/lld/LLD-{}.md", w.issue);
    let text = String::from_utf8(w.hub.branch_file(w.repo, &w.branch(), &path).unwrap()).unwrap();
    let first = w.checks().remove(0);
    assert_eq!(conclusion_and_title(&first), ("action_required", "REVISE: waits for a person"));
    let at = |n: usize| {
        let annotation = &first.annotations[n];
        assert_eq!(annotation.path, path);
        let line = text.lines().nth(annotation.start_line as usize - 1).unwrap();
        (annotation.annotation_level.as_str(), annotation.message.as_str(), line)
    };
    assert_eq!(first.annotations.len(), 2);
    let (level, message, _) = at(0);
    assert_eq!((level, message), ("warning", "No test. Say what is observed."));
    let (level, _, line) = at(1);
    assert!(level == "failure" && line.starts_with("1. "), "{level} at {line:?}");

    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/revise say more").unwrap();
    w.step(3).await;
    let before = ("action_required", "REVISE: waits for a person");
    assert_eq!(
        w.checks().iter().map(conclusion_and_title).collect::<Vec<_>>(),
        [before, ("in_progress", "Running")]
    );
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    let checks = w.checks();
    let of_both = [
        before,
        ("cancelled", "Replaced by a later commit"),
        ("action_required", "APPROVED: waits for a person"),
    ];
    assert_eq!(checks.iter().map(conclusion_and_title).collect::<Vec<_>>(), of_both);
    assert!(checks[0].head == checks[1].head && checks[2].head == w.pull().head_oid);
    assert_eq!(checks.iter().map(|check| check.annotations.len()).collect::<Vec<_>>(), [2, 0, 0]);
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn rerequested_check_run_retries_only_a_halted_run() {
    let script = Script::default().drafts(&design()).reviews(&approved()).drafts("");
    let mut w = World::with_script(script, "[lld]\nmax_rounds = 1\n").await;
    let check = w.checks().remove(0).id;
    for (who, suite, writes) in [("stranger", false, 0), ("tess", false, 1), ("tess", true, 2)] {
        w.hub.rerequest(w.repo, check, w.user(who), suite).unwrap();
        w.settle().await;
        assert_eq!(w.check_calls("PATCH"), writes, "{who}");
        w.stands(RunViewStatus::Asking).await;
    }
    assert_eq!(w.notifying(), 2, "no mail is sent:\n{}", w.thread());
    w.comment("sam", "/revise say it better").await;
    w.stands(RunViewStatus::Failed).await;
    w.find("Halted at Draft the design");
    let halted = w.checks().pop().unwrap();
    assert_eq!(conclusion_and_title(&halted), ("failure", "Halted at Draft the design"));
    let check = halted.id;

    w.hub.rerequest(w.repo, check, w.user("stranger"), false).unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Failed).await;
    let script_file = w.directory().join("bot/script.toml");
    let edits = ("The goal of a real design", "The aim of a real design");
    let answers = Script::default().drafts(&design()).reviews(&approved()).edits(edits.0, edits.1);
    let answers = answers.reviews(&approved()).toml();
    let mut w = w.restart_after(|_| std::fs::write(script_file, answers).unwrap()).await;
    w.hub.rerequest(w.repo, check, w.user("tess"), false).unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    let again: Vec<_> = w.checks().into_iter().skip_while(|check| check.id <= halted.id).collect();
    assert_eq!(
        conclusion_and_title(&again[0]),
        ("cancelled", "Replaced by a later commit"),
        "the run worked again"
    );
    w.approved_by("sam").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn issue_thread_is_identical_when_the_app_lacks_the_checks_permission() {
    let thread = async |fault: Option<HubFault>| {
        let mut w = world_of_files().await;
        fault.into_iter().for_each(|fault| w.hub.arm_fault(fault));
        w.comes_to_the_gate().await;
        w.comment("sam", "/revise say it shorter").await;
        w.stands(RunViewStatus::Asking).await;
        w.approved_by("sam").await;
        (w.plain(&w.thread()).replace(|c: char| c.is_ascii_digit(), ""), w.checks().len())
    };
    let (usual, checks) = thread(None).await;
    assert_eq!(checks, 4);
    for status in some([403, 404, 422]) {
        assert_eq!(thread(Some(checks_fault("POST", status))).await, (usual.clone(), 0), "{status}");
    }
}

#[tokio::test]
async fn check_run_is_created_only_once_when_the_response_is_lost() {
    let mut w = world_of_files().await;
    w.hub.arm_fault(answer_lost("POST", "/check-runs"));
    w.label("maya", "countersign:lld").await;
    w.wait(30).await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!((w.checks().len(), w.check_calls("POST")), (1, 1));
    w.hub.arm_fault(answer_lost("POST", "/check-runs"));
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.wait(30).await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.checks().len(), 2);
}
