//! Checks of our assumptions about GitHub's responses against a real GitHub, since most tests use a fake.
//! [`check_read_assumptions`] only reads. [`check_write_assumptions`] writes to a repository that the operator chose
//! for this purpose.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    api::{ApiIdentity, ApiRequest, ApiResponse},
    app::GitHub,
    commits::CommitSpec,
    error::GitHubApiError,
    event::RepoRef,
    manifest::{
        AUTHORS, CHECKS, COMMENTS, COMMIT_OBJECT, COMMIT_ON_BRANCH, CREATE_CHECK, CREATE_ISSUE, CREATE_LABEL,
        CREATE_PULL, DELETE_BRANCH, DELETE_COMMENT, DELETE_LABEL, DELIVERIES, DELIVERY, EDIT_COMMENT,
        EDIT_ISSUE, EDIT_PULL, GitHubEndpoint, HOOK_CONFIG, INSTALLATION, ISSUE_EVENTS, ISSUES_LIST, JOB_LOG,
        LINE_COMMENTS, PERMISSION, POST_COMMENT, PULL, PULLS_LIST, REACT_COMMENT, REF, REPOSITORY, RULES,
        RUN_JOBS, SEARCH_CODE, STATUSES, WORKFLOW_RUNS,
    },
};
use crate::types::{InstallationId, IssueNo, RepoName};

/// An assumption with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumptionCheck {
    /// The endpoint, such as `GET /repos/{owner}/{repo}`.
    pub call: String,
    /// Purpose for which we use the call. This use fails if the assumption is wrong.
    pub why: &'static str,
    pub seen: AssumptionOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssumptionOutcome {
    Confirmed(String),
    Differs(String),
    /// The repository had no object to check, or GitHub refused the call. Holds the reason.
    NotObserved(String),
}

/// An endpoint with the response fields that we read.
#[derive(Clone, Copy)]
struct ResponseAssumption {
    call: &'static GitHubEndpoint,
    why: &'static str,
    query: &'static [(&'static str, &'static str)],
    /// JSON body of the request, with placeholders; empty for a read.
    body: &'static str,
    /// Field of the response that holds a list; `None` if the response is a single object. The last item of the list is
    /// checked: most lists are sorted oldest first, and bots come later than people.
    list: Option<&'static str>,
    /// Fields to check. A suffix gives the type of a field: number (`#`), boolean (`?`), list (`[]`) or object (`{}`).
    /// A field without a suffix is text.
    fields: &'static str,
    /// Values that later calls need, as pairs of placeholder name and response field.
    keeps: &'static [(&'static str, &'static str)],
}

const fn assumption(
    call: &'static GitHubEndpoint,
    why: &'static str,
    fields: &'static str,
) -> ResponseAssumption {
    ResponseAssumption { call, why, query: &[], body: "", list: None, fields, keeps: &[] }
}

impl ResponseAssumption {
    const fn query(self, query: &'static [(&'static str, &'static str)]) -> Self {
        Self { query, ..self }
    }

    const fn body(self, body: &'static str) -> Self {
        Self { body, ..self }
    }

    const fn list(self, list: &'static str) -> Self {
        Self { list: Some(list), ..self }
    }

    const fn keeps(self, keeps: &'static [(&'static str, &'static str)]) -> Self {
        Self { keeps, ..self }
    }

    fn into_check(self, seen: AssumptionOutcome) -> AssumptionCheck {
        AssumptionCheck { call: self.call.to_string(), why: self.why, seen }
    }
}

const ANY: &[(&str, &str)] = &[("state", "all")];
const FIRST: &[(&str, &str)] = &[("per_page", "1")];
/// Value of `list` for a response that is itself the list.
const WHOLE_RESPONSE: &str = "";

const READ_ASSUMPTIONS: &[ResponseAssumption] = &[
    assumption(
        &DELIVERIES,
        "the sweep finds missed webhooks in this log",
        "id# guid delivered_at event status_code#",
    )
    .query(FIRST)
    .list(WHOLE_RESPONSE)
    .keeps(&[("delivery", "id")]),
    assumption(&DELIVERY, "the sweep reads their payloads here", "request.payload{}"),
    assumption(&HOOK_CONFIG, "doctor shows the webhook's address", "url content_type"),
    assumption(
        &INSTALLATION,
        "tells a suspended installation from a removed one",
        "id# account.login permissions{}",
    ),
    assumption(
        &REPOSITORY,
        "repositories are identified by number, since names change",
        "id# node_id full_name default_branch private? archived?",
    )
    .keeps(&[("branch", "default_branch")]),
    assumption(&REF, "detects that a branch moved before we write to it", "ref object.sha")
        .keeps(&[("commit", "object.sha")]),
    assumption(
        &RULES,
        "a ruleset may forbid our branches, which a run notices only when GitHub refuses one",
        "type ruleset_id#",
    )
    .list(WHOLE_RESPONSE),
    assumption(
        &COMMIT_OBJECT,
        "a retry recognises its commit by parent, tree and trailer",
        "sha tree.sha parents[] message",
    ),
    assumption(
        &ISSUES_LIST,
        "finds labels whose webhook was missed, and tells bots from people",
        "number# user.id# user.type labels[] updated_at",
    )
    .query(ANY)
    .list(WHOLE_RESPONSE)
    .keeps(&[("issue", "number"), ("login", "user.login")]),
    assumption(
        &PERMISSION,
        "these fields decide who may approve",
        "permission role_name user.id# user.permissions.admin? user.permissions.maintain? user.permissions.push? \
         user.permissions.triage? user.permissions.pull?",
    ),
    assumption(
        &ISSUE_EVENTS,
        "a label counts only if its author may start a run",
        "event actor.id# created_at",
    )
    .query(FIRST)
    .list(WHOLE_RESPONSE),
    assumption(
        &COMMENTS,
        "a retry finds our comment and edits it instead of posting a second one",
        "id# node_id user.type body updated_at",
    )
    .query(FIRST)
    .list(WHOLE_RESPONSE),
    // CI runs on pull requests more often than on the default branch.
    assumption(
        &PULLS_LIST,
        "tells a fork's pull request from ours",
        "number# head.ref head.repo.id# base.ref draft?",
    )
    .query(ANY)
    .list(WHOLE_RESPONSE)
    .keeps(&[("pull", "number"), ("commit", "head.sha")]),
    assumption(&PULL, "merging the pull request ends a run", "state html_url head.repo.id#"),
    assumption(&LINE_COMMENTS, "line comments are answered in their thread", "id# path diff_hunk body")
        .query(FIRST)
        .list(WHOLE_RESPONSE),
    assumption(
        &CHECKS,
        "a check by Actions counts only if it is a job of this repository's own run",
        "id# name status app.id# app.slug check_suite.id# output.annotations_count#",
    )
    .list("check_runs"),
    assumption(&STATUSES, "CI may report statuses instead of checks", "context state").list("statuses"),
    assumption(
        &WORKFLOW_RUNS,
        "workflow runs of a fork do not count",
        "id# check_suite_id# head_repository.id#",
    )
    .query(FIRST)
    .list("workflow_runs")
    .keeps(&[("run", "id")]),
    assumption(&RUN_JOBS, "we read the log of the failed job", "id#")
        .query(FIRST)
        .list("jobs")
        .keeps(&[("job", "id")]),
    assumption(
        &SEARCH_CODE,
        "tells an incomplete search from one without results",
        "total_count# incomplete_results? items[]",
    )
    .query(&[("q", "countersign repo:{owner}/{repo}"), ("per_page", "1")]),
];

/// Assumption about the query for an issue's editors. This assumption and the next three cannot be checked by comparing
/// one response, so each is checked by its own code.
const AUTHORS_ASSUMPTION: ResponseAssumption =
    assumption(&AUTHORS, "only GraphQL knows an issue's editors", "");
const JOB_LOG_ASSUMPTION: ResponseAssumption =
    assumption(&JOB_LOG, "logs are stored elsewhere and must be fetched without credentials", "");
const RATE_LIMIT_ASSUMPTION: ResponseAssumption =
    assumption(&REPOSITORY, "these headers say how long to wait", "");
const NOT_MODIFIED_ASSUMPTION: ResponseAssumption =
    assumption(&REPOSITORY, "unchanged responses must not count against the rate limit", "");

/// Checks, on one repository, every assumption that needs only read requests.
pub async fn check_read_assumptions(
    github: &GitHub,
    installation: InstallationId,
    repo: &RepoRef,
) -> Vec<AssumptionCheck> {
    let mut looking = AssumptionChecker::new(github, installation, repo);
    let mut looked = looking.check_all(READ_ASSUMPTIONS).await;
    looked.push(AUTHORS_ASSUMPTION.into_check(looking.check_authors(repo).await));
    looked.push(JOB_LOG_ASSUMPTION.into_check(looking.check_job_log().await));
    let [limits, unchanged] = looking.check_rate_limit_headers().await;
    looked.extend([RATE_LIMIT_ASSUMPTION.into_check(limits), NOT_MODIFIED_ASSUMPTION.into_check(unchanged)]);
    looked
}

/// Assumptions about calls that create objects. The text of each object contains the name of the trial.
const WRITE_ASSUMPTIONS: &[ResponseAssumption] = &[
    assumption(&CREATE_LABEL, "labels show the state of a run", "node_id name")
        .body(r#"{"name": "{scratch}", "color": "ededed"}"#)
        .keeps(&[("label", "name")]),
    assumption(&CREATE_ISSUE, "issues are filed with their labels", "number# html_url labels[]")
        .body(r#"{"title": "A trial of Countersign's, {scratch}", "body": "Closed at once.", "labels": ["{label}"]}"#)
        .keeps(&[("issue", "number")]),
    assumption(&POST_COMMENT, "runs report in comments", "id# node_id body")
        .body(r#"{"body": "A trial, {scratch}."}"#)
        .keeps(&[("comment", "id")]),
    assumption(&EDIT_COMMENT, "runs keep one comment up to date", "body updated_at")
        .body(r#"{"body": "A trial, {scratch}, edited."}"#),
    assumption(&REACT_COMMENT, "a reaction acknowledges a command", "id# content").body(r#"{"content": "eyes"}"#),
    assumption(&CREATE_PULL, "pull requests are opened as drafts", "number# draft? head.sha")
        .body(
            r#"{"title": "A trial of Countersign's, {scratch}", "head": "countersign/{scratch}", "base": "{branch}",
                "body": "Closed at once.", "draft": true}"#,
        )
        .keeps(&[("pull", "number"), ("commit", "head.sha")]),
    assumption(&CREATE_CHECK, "verdicts are shown as checks on the commit", "id# external_id status conclusion").body(
        r#"{"name": "countersign trial", "head_sha": "{commit}", "external_id": "{scratch}", "status": "completed",
            "conclusion": "neutral", "output": {"title": "A trial", "summary": "It says nothing of the code."}}"#,
    ),
];
const BRANCH_ASSUMPTION: ResponseAssumption =
    assumption(&COMMIT_ON_BRANCH, "one request creates a branch with its first commit", "");

const CLEANUP_ASSUMPTIONS: &[ResponseAssumption] = &[
    assumption(&EDIT_PULL, "cleanup: close it", "state").body(r#"{"state": "closed"}"#),
    assumption(&DELETE_BRANCH, "cleanup: delete it", ""),
    assumption(&DELETE_COMMENT, "cleanup: delete it", ""),
    assumption(&EDIT_ISSUE, "cleanup: close it", "state").body(r#"{"state": "closed"}"#),
    assumption(&DELETE_LABEL, "cleanup: delete it", ""),
];

/// Creates one object of each kind that runs create, all named `scratch`, and then removes the objects. Returns the
/// results of the creation and of the removal. GitHub does not allow deleting issues, pull requests and checks.
/// Therefore issues and pull requests are closed, and checks stay.
pub async fn check_write_assumptions(
    github: &GitHub,
    installation: InstallationId,
    repo: &RepoRef,
    scratch: &str,
) -> (Vec<AssumptionCheck>, Vec<AssumptionCheck>) {
    let mut looking = AssumptionChecker::new(github, installation, repo);
    looking.known.insert("scratch".to_owned(), scratch.to_owned());
    let mut made = vec![BRANCH_ASSUMPTION.into_check(looking.create_branch(repo, scratch).await)];
    made.extend(looking.check_all(WRITE_ASSUMPTIONS).await);
    let there = CLEANUP_ASSUMPTIONS.iter().copied().filter(|row| looking.request(row.call).is_ok());
    let there: Vec<_> = there.collect();
    (made, looking.check_all(&there).await)
}

struct AssumptionChecker<'g> {
    github: &'g GitHub,
    installation: InstallationId,
    /// Values for the placeholders of endpoints.
    known: BTreeMap<String, String>,
}

impl<'g> AssumptionChecker<'g> {
    fn new(github: &'g GitHub, installation: InstallationId, repo: &RepoRef) -> Self {
        let RepoName { owner, name } = repo.name.clone();
        let known = [("installation", installation.to_string()), ("owner", owner), ("repo", name)];
        Self {
            github,
            installation,
            known: known.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
        }
    }

    async fn check_all(&mut self, rows: &[ResponseAssumption]) -> Vec<AssumptionCheck> {
        let mut looked = Vec::new();
        for row in rows {
            looked.push(row.into_check(self.check_one(row).await));
        }
        looked
    }

    async fn check_one(&mut self, row: &ResponseAssumption) -> AssumptionOutcome {
        let mut request = match self.request(row.call) {
            Ok(request) => request,
            Err(nothing) => return nothing,
        };
        for (key, value) in row.query {
            request = request.query(key, self.fill_placeholders(value));
        }
        if !row.body.is_empty() {
            let body: Value =
                serde_json::from_str(&self.fill_placeholders(row.body)).expect("a test reads each of them");
            request = request.body(body);
        }
        let answer = match self.send(row.call, request).await {
            Ok(_) if row.fields.is_empty() => return AssumptionOutcome::Confirmed("done".to_owned()),
            Ok(answer) => answer.json::<Value>(),
            Err(fault) => Err(fault),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return fault_outcome(&fault),
        };
        let (thing, seen) = compare_response(row, &answer);
        for (name, field) in row.keeps {
            let value =
                thing.and_then(|thing| thing.pointer(&json_pointer(field))).map(|value| match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                });
            self.known.extend(value.map(|value| ((*name).to_owned(), value)));
        }
        seen
    }

    fn fill_placeholders(&self, text: &str) -> String {
        let known = self.known.iter();
        known.fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    async fn check_authors(&self, repo: &RepoRef) -> AssumptionOutcome {
        let Some(issue) = self.known.get("issue").and_then(|number| number.parse().ok()) else {
            return AssumptionOutcome::NotObserved("the repository has no issue to check".to_owned());
        };
        let repo = self.github.repo(self.installation, repo.id, repo.name.clone());
        match repo.authors(IssueNo(issue)).await {
            Ok(authors) => AssumptionOutcome::Confirmed(format!(
                "{} wrote it, edits {}",
                authors.author.login,
                authors.edits.len()
            )),
            Err(fault) => fault_outcome(&fault),
        }
    }

    /// Commits to a new branch. The commit message tells CI not to start a workflow.
    async fn create_branch(&mut self, repo: &RepoRef, scratch: &str) -> AssumptionOutcome {
        let repo = self.github.repo(self.installation, repo.id, repo.name.clone());
        let branch = format!("countersign/{scratch}");
        let committed = async {
            let base = repo.info().await?.default_branch;
            let parent = repo.branch(&base).await?;
            self.known.insert("branch".to_owned(), base);
            let Some(parent) = parent else { return Ok(None) };
            let files = vec![(format!("{scratch}.txt"), Some(b"A trial.\n".to_vec()))];
            let message = format!("Try what may be written [skip ci]\n\nCountersign-Run: {scratch}");
            let branch = branch.clone();
            repo.ensure_commit(&CommitSpec { branch, creates_branch: true, parent, files, message }, false)
                .await
                .map(Some)
        };
        let committed = committed.await;
        // The branch may exist without the commit.
        if matches!(committed, Ok(Some(_))) || !matches!(repo.branch(&branch).await, Ok(None)) {
            self.known.insert("made".to_owned(), scratch.to_owned());
        }
        match committed {
            Ok(Some(commit)) => AssumptionOutcome::Confirmed(format!("commit {}", commit.oid.short())),
            Ok(None) => {
                AssumptionOutcome::NotObserved("the repository has no commit to start from".to_owned())
            }
            Err(fault) => fault_outcome(&fault),
        }
    }

    /// Checks that GitHub answers the request for a job's log with a redirect.
    async fn check_job_log(&self) -> AssumptionOutcome {
        let request = match self.request(&JOB_LOG) {
            Ok(request) => request,
            Err(nothing) => return nothing,
        };
        match self.send(&JOB_LOG, request).await {
            Err(GitHubApiError::Moved { .. }) => AssumptionOutcome::Confirmed("a redirect".to_owned()),
            Err(fault) => fault_outcome(&fault),
            Ok(_) => AssumptionOutcome::Differs("answered without a redirect".to_owned()),
        }
    }

    async fn check_rate_limit_headers(&self) -> [AssumptionOutcome; 2] {
        let ask = || async {
            let request =
                self.request(&REPOSITORY).map_err(|_| GitHubApiError::Invalid("no repository".to_owned()))?;
            self.send(&REPOSITORY, request.cacheable()).await
        };
        let answers = async { Ok((ask().await?, ask().await?)) };
        let (first, second) = match answers.await {
            Ok(answers) => answers,
            Err(fault) => return [fault_outcome(&fault), fault_outcome(&fault)],
        };
        let header =
            |answer: &ApiResponse, name: &str| answer.headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let names = ["x-ratelimit-remaining", "x-ratelimit-reset"];
        let limits = match names.map(|name| header(&first, name)) {
            [Some(left), Some(reset)] => {
                AssumptionOutcome::Confirmed(format!("{left} calls are left until {reset}"))
            }
            _ => AssumptionOutcome::Differs(format!(
                "{} or {} is missing or is not a number",
                names[0], names[1]
            )),
        };
        let used = [&first, &second].map(|answer| header(answer, "x-ratelimit-used"));
        let unchanged = match (first.headers.contains_key("etag"), used) {
            (false, _) => AssumptionOutcome::Differs("the answer has no etag".to_owned()),
            (true, [Some(before), Some(after)]) if after > before => AssumptionOutcome::Differs(format!(
                "{before} calls were used before the repeated request, {after} after it"
            )),
            (true, [Some(_), Some(after)]) => AssumptionOutcome::Confirmed(format!(
                "{after} calls were used before and after the repeated request"
            )),
            (true, _) => {
                AssumptionOutcome::NotObserved("GitHub does not say how many calls are used".to_owned())
            }
        };
        [limits, unchanged]
    }

    /// Builds the request for an endpoint and fills its placeholders with the known values.
    fn request(&self, call: &'static GitHubEndpoint) -> Result<ApiRequest, AssumptionOutcome> {
        let shown = call.to_string();
        let names = shown.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let value = |name: &str| {
            let name = name.trim_start_matches('*');
            self.known.get(name).map(String::as_str).ok_or_else(|| {
                AssumptionOutcome::NotObserved(format!("the repository has no {name} to check"))
            })
        };
        let values: Vec<&str> = names.map(value).collect::<Result<_, _>>()?;
        Ok(ApiRequest::new(call, &values))
    }

    async fn send(&self, call: &GitHubEndpoint, request: ApiRequest) -> Result<ApiResponse, GitHubApiError> {
        let by_app = call.to_string().starts_with("GET /app");
        let who = if by_app { ApiIdentity::App } else { ApiIdentity::Installation(self.installation) };
        self.github.api().send(who, request).await
    }
}

/// Maps an error to an outcome. A refused call becomes `NotObserved`, because it does not show the form of the
/// response.
fn fault_outcome(fault: &GitHubApiError) -> AssumptionOutcome {
    match fault {
        GitHubApiError::Unexpected { .. } | GitHubApiError::Rejected { .. } => {
            AssumptionOutcome::Differs(fault.to_string())
        }
        _ => AssumptionOutcome::NotObserved(fault.to_string()),
    }
}

fn json_pointer(field: &str) -> String {
    match field {
        WHOLE_RESPONSE => String::new(),
        field => format!("/{}", field.replace('.', "/")),
    }
}

/// Compares a response with the expected fields. Also returns the object whose fields were checked.
fn compare_response<'a>(
    row: &ResponseAssumption,
    answer: &'a Value,
) -> (Option<&'a Value>, AssumptionOutcome) {
    let thing = match row.list.map(|list| answer.pointer(&json_pointer(list)).and_then(Value::as_array)) {
        None => answer,
        Some(None) => {
            return (None, AssumptionOutcome::Differs("the list is missing or is not a list".to_owned()));
        }
        Some(Some(items)) => match items.last() {
            Some(last) => last,
            None => return (None, AssumptionOutcome::NotObserved("the list is empty".to_owned())),
        },
    };
    let mut names = Vec::new();
    let mut wrong = Vec::new();
    for field in row.fields.split(' ') {
        let name = field.trim_end_matches(['#', '?', '[', ']', '{', '}']);
        names.push(name);
        if let Some(unlike) = field_mismatch(&field[name.len()..], thing.pointer(&json_pointer(name))) {
            wrong.push(format!("{name} {unlike}"));
        }
    }
    let seen = match wrong.is_empty() {
        true => AssumptionOutcome::Confirmed(names.join(", ")),
        false => AssumptionOutcome::Differs(wrong.join(", ")),
    };
    (Some(thing), seen)
}

/// Returns the reason why a field does not have the type given by the suffix `sign`; `None` if it has this type.
fn field_mismatch(sign: &str, value: Option<&Value>) -> Option<&'static str> {
    let Some(value) = value else { return Some("is missing") };
    let (fits, wanted) = match sign {
        "#" => (value.is_u64(), "is not a number"),
        "?" => (value.is_boolean(), "is not true or false"),
        "[]" => (value.is_array(), "is not a list"),
        "{}" => (value.is_object(), "is not an object"),
        _ => (value.is_string(), "is not text"),
    };
    (!fits).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn github_assumption_is_refuted_by_missing_or_wrongly_typed_response_fields() {
        let row = READ_ASSUMPTIONS.iter().find(|row| row.call.to_string().ends_with("/permission")).unwrap();
        let rights = json!({"admin": true, "maintain": true, "push": true, "triage": true, "pull": true});
        let mut answer =
            json!({"permission": "admin", "role_name": "admin", "user": {"id": 1, "permissions": rights}});
        assert!(matches!(compare_response(row, &answer).1, AssumptionOutcome::Confirmed(_)));
        answer["user"]["permissions"]["push"] = json!("yes");
        answer.as_object_mut().unwrap().remove("role_name");
        let differs = "role_name is missing, user.permissions.push is not true or false";
        assert_eq!(compare_response(row, &answer).1, AssumptionOutcome::Differs(differs.to_owned()));
    }

    #[test]
    fn github_assumption_is_unobserved_for_an_empty_list_and_refuted_without_a_list() {
        let row = READ_ASSUMPTIONS.iter().find(|row| row.list == Some("check_runs")).unwrap();
        assert!(matches!(
            compare_response(row, &json!({"check_runs": []})).1,
            AssumptionOutcome::NotObserved(_)
        ));
        assert!(matches!(compare_response(row, &json!({"runs": []})).1, AssumptionOutcome::Differs(_)));
    }

    #[test]
    fn read_only_checks_of_github_assumptions_send_only_get_requests() {
        assert!(
            READ_ASSUMPTIONS
                .iter()
                .all(|row| row.call.to_string().starts_with("GET ") && row.body.is_empty())
        );
    }

    #[test]
    fn write_check_bodies_are_valid_json_and_cleanup_targets_only_created_objects() {
        for row in WRITE_ASSUMPTIONS.iter().chain(CLEANUP_ASSUMPTIONS).filter(|row| !row.body.is_empty()) {
            assert!(serde_json::from_str::<Value>(row.body).is_ok(), "{}", row.body);
        }
        let made: Vec<_> =
            WRITE_ASSUMPTIONS.iter().flat_map(|row| row.keeps).map(|(name, _)| *name).collect();
        for row in CLEANUP_ASSUMPTIONS {
            let name = row.call.path().rsplit('{').next().unwrap().trim_end_matches('}');
            assert!(made.contains(&name) || name == "made", "{} takes {name}", row.call);
        }
    }
}
