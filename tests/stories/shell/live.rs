//! `doctor --live`, with localhub for the real GitHub.

use super::server::Site;

#[test]
fn what_is_taken_for_true_of_github_is_looked_at_row_by_row() {
    let mut site = Site::new();
    // So that there is a pull request to look at.
    site.edit("[models]", "[lld]\npublish = \"pull-request\"\n\n[models]");
    let serving = site.serve();
    let (code, said) = site.doctor_with(&["--live"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("note  live           GET /repos/{owner}/{repo}/pulls: not seen, the list is empty"),
        "{said}"
    );

    let issue = site.label("countersign:lld");
    site.wait_for(&issue, "/approve lld ");
    let (code, said) = site.doctor_with(&["--live"]);
    assert_eq!(code, Some(0), "{said}");
    let rows: Vec<_> =
        said.lines().filter(|line| line.get(6..).is_some_and(|rest| rest.starts_with("live "))).collect();
    for (call, seen) in [
        ("GET /app/hook/deliveries: id, guid,", "found in this log"),
        (
            "GET /repos/{owner}/{repo}/collaborators/{login}/permission: permission, role_name, user.id,",
            "user.permissions.push",
        ),
        ("GET /repos/{owner}/{repo}/pulls: number, head.ref, head.repo.id,", "from ours"),
        ("GET /repos/{owner}/{repo}/commits/{commit}/check-runs: ", "own run"),
        ("GET /repos/{owner}/{repo}: ", "calls are left until"),
        ("GET /repos/{owner}/{repo}: ", "calls are used before and after"),
    ] {
        assert!(
            rows.iter().any(|row| row.contains(call) && row.contains(seen)),
            "{call} … {seen} is not in:\n{said}"
        );
    }
    assert_eq!(rows.len(), 24, "{said}");
    assert!(rows.iter().any(|row| row.contains("POST /graphql: maya wrote it, edits 0")), "{said}");

    // There was a run.
    let (code, said) = site.doctor_with(&["--scratch", "maya/tally"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("nothing was written: maya/tally has runs of this server's"), "{said}");
    drop(serving);
}

#[test]
fn scratch_makes_one_of_each_and_takes_it_away_in_the_named_repository_alone() {
    let mut site = Site::new();
    let serving = site.serve();
    for (name, code, words) in
        [("tally", 2, "OWNER/NAME"), ("maya/other", 1, "maya/other is no repository of an installation")]
    {
        let (ended, said) = site.doctor_with(&["--scratch", name]);
        assert!(ended == Some(code) && said.contains(words), "{name}: {said}");
    }
    let (code, said) = site.doctor_with(&["--scratch", "maya/tally"]);
    assert_eq!(code, Some(0), "{said}");
    let rows = said.lines().filter(|line| line.starts_with("ok    scratch"));
    assert_eq!(rows.count(), 13, "{said}");
    assert!(said.contains("what stays: an issue and a pull request, both closed, and a check"), "{said}");
    let name = said.split("scratch-").nth(1).unwrap().split(' ').next().unwrap();
    for page in ["issues", "pulls"] {
        let open = site.page_of(page);
        assert!(!open.contains(name), "{page}: {open}");
    }
    drop(serving);
}
