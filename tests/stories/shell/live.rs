//! Stories about `doctor --live`, with localhub in place of the real GitHub.

use super::server::Site;

#[test]
fn doctor_live_option_checks_each_assumption_about_the_github_api() {
    let mut site = Site::new();
    // This setting opens a pull request to check.
    site.edit("[models]", "[lld]\npublish = \"pull-request\"\n\n[models]");
    let serving = site.serve();
    let (code, printed) = site.doctor_with(&["--live"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains(
            "note  live           GET /repos/{owner}/{repo}/pulls: not observed, the list is empty"
        ),
        "{printed}"
    );

    let issue = site.label("countersign:lld");
    site.wait_for(&issue, "/approve lld ");
    let (code, printed) = site.doctor_with(&["--live"]);
    assert_eq!(code, Some(0), "{printed}");
    let rows: Vec<_> =
        printed.lines().filter(|line| line.get(6..).is_some_and(|rest| rest.starts_with("live "))).collect();
    for (call, seen) in [
        ("GET /app/hook/deliveries: id, guid,", "in this log"),
        (
            "GET /repos/{owner}/{repo}/collaborators/{login}/permission: permission, role_name, user.id,",
            "user.permissions.push",
        ),
        ("GET /repos/{owner}/{repo}/pulls: number, head.ref, head.repo.id,", "from ours"),
        ("GET /repos/{owner}/{repo}/commits/{commit}/check-runs: ", "own run"),
        ("GET /repos/{owner}/{repo}: ", "calls are left until"),
        ("GET /repos/{owner}/{repo}: ", "calls were used before and after"),
    ] {
        assert!(
            rows.iter().any(|row| row.contains(call) && row.contains(seen)),
            "{call} … {seen} is not in:\n{printed}"
        );
    }
    assert_eq!(rows.len(), 24, "{printed}");
    assert!(rows.iter().any(|row| row.contains("POST /graphql: maya wrote it, edits 0")), "{printed}");

    // The repository has a run.
    let (code, printed) = site.doctor_with(&["--scratch", "maya/tally"]);
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("nothing was written: maya/tally has runs of this server"), "{printed}");
    drop(serving);
}

#[test]
fn doctor_scratch_option_creates_and_cleans_up_one_github_object_of_each_kind() {
    let mut site = Site::new();
    let serving = site.serve();
    for (name, code, words) in
        [("tally", 2, "OWNER/NAME"), ("maya/other", 1, "maya/other belongs to no installation")]
    {
        let (ended, printed) = site.doctor_with(&["--scratch", name]);
        assert!(ended == Some(code) && printed.contains(words), "{name}: {printed}");
    }
    let (code, printed) = site.doctor_with(&["--scratch", "maya/tally"]);
    assert_eq!(code, Some(0), "{printed}");
    let rows = printed.lines().filter(|line| line.starts_with("ok    scratch"));
    assert_eq!(rows.count(), 13, "{printed}");
    assert!(
        printed.contains("left behind: an issue and a pull request, both closed, and a check"),
        "{printed}"
    );
    let name = printed.split("scratch-").nth(1).unwrap().split(' ').next().unwrap();
    for page in ["issues", "pulls"] {
        let open = site.page_of(page);
        assert!(!open.contains(name), "{page}: {open}");
    }
    drop(serving);
}
