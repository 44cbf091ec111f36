//! What we take for true of GitHub's answers, held against the GitHub that answers now. Most of the tests meet an
//! imitation; this is where the two are compared. [`check_read_assumptions`] only reads; [`write`] is for a repository that was named for it.

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

/// One assumption and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumptionCheck {
    /// The call, as the table of calls has it.
    pub call: String,
    /// What would go wrong otherwise.
    pub why: &'static str,
    pub seen: AssumptionOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssumptionOutcome {
    Confirmed(String),
    Differs(String),
    /// There was nothing to look at, and why.
    NotObserved(String),
}

/// A call and the fields that we read in its answer.
#[derive(Clone, Copy)]
struct ResponseAssumption {
    call: &'static GitHubEndpoint,
    why: &'static str,
    query: &'static [(&'static str, &'static str)],
    /// JSON with placeholders, where something is sent.
    body: &'static str,
    /// Where the answer's list is, whose last item is looked at, the oldest of most: bots come later than people; none
    /// where the answer is the thing itself.
    list: Option<&'static str>,
    /// What is read, and behind it what it has to be: a number (#), true or false (?), a list ([]), an object ({}), or text.
    fields: &'static str,
    /// What later calls take from it: the name of their placeholder, and the field.
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
/// A listing that is the whole answer.
const WHOLE_RESPONSE: &str = "";

const READ_ASSUMPTIONS: &[ResponseAssumption] = &[
    assumption(
        &DELIVERIES,
        "what no webhook brought is found in this log",
        "id# guid delivered_at event status_code#",
    )
    .query(FIRST)
    .list(WHOLE_RESPONSE)
    .keeps(&[("delivery", "id")]),
    assumption(&DELIVERY, "and read from there", "request.payload{}"),
    assumption(&HOOK_CONFIG, "doctor says where webhooks go", "url content_type"),
    assumption(
        &INSTALLATION,
        "a suspended installation is told from one that is gone",
        "id# account.login permissions{}",
    ),
    assumption(
        &REPOSITORY,
        "a repository is known by its number, whatever it is called",
        "id# node_id full_name default_branch private? archived?",
    )
    .keeps(&[("branch", "default_branch")]),
    assumption(&REF, "a branch that moved is noticed before it is written to", "ref object.sha")
        .keeps(&[("commit", "object.sha")]),
    assumption(
        &RULES,
        "a ruleset can keep our branches from being made, and a run says so only when it is refused",
        "type ruleset_id#",
    )
    .list(WHOLE_RESPONSE),
    assumption(
        &COMMIT_OBJECT,
        "our commits are known again by parent, tree and trailer",
        "sha tree.sha parents[] message",
    ),
    assumption(
        &ISSUES_LIST,
        "labels that no webhook told of are found, and a bot is told from a person",
        "number# user.id# user.type labels[] updated_at",
    )
    .query(ANY)
    .list(WHOLE_RESPONSE)
    .keeps(&[("issue", "number"), ("login", "user.login")]),
    assumption(
        &PERMISSION,
        "who may approve is decided by these",
        "permission role_name user.id# user.permissions.admin? user.permissions.maintain? user.permissions.push? \
         user.permissions.triage? user.permissions.pull?",
    ),
    assumption(
        &ISSUE_EVENTS,
        "who put a label there decides whether it counts",
        "event actor.id# created_at",
    )
    .query(FIRST)
    .list(WHOLE_RESPONSE),
    assumption(
        &COMMENTS,
        "our own comments are known again, and edited instead of written twice",
        "id# node_id user.type body updated_at",
    )
    .query(FIRST)
    .list(WHOLE_RESPONSE),
    // CI is at work there rather than on the default branch.
    assumption(
        &PULLS_LIST,
        "a pull request of a fork is told from ours",
        "number# head.ref head.repo.id# base.ref draft?",
    )
    .query(ANY)
    .list(WHOLE_RESPONSE)
    .keeps(&[("pull", "number"), ("commit", "head.sha")]),
    assumption(&PULL, "a merge ends a run", "state html_url head.repo.id#"),
    assumption(&LINE_COMMENTS, "remarks at lines are answered where they stand", "id# path diff_hunk body")
        .query(FIRST)
        .list(WHOLE_RESPONSE),
    assumption(
        &CHECKS,
        "a check of Actions counts only as a job of this repository's own run",
        "id# name status app.id# app.slug check_suite.id# output.annotations_count#",
    )
    .list("check_runs"),
    assumption(&STATUSES, "CI may speak by statuses instead of checks", "context state").list("statuses"),
    assumption(
        &WORKFLOW_RUNS,
        "a run whose head is a fork says nothing of our change",
        "id# check_suite_id# head_repository.id#",
    )
    .query(FIRST)
    .list("workflow_runs")
    .keeps(&[("run", "id")]),
    assumption(&RUN_JOBS, "the job that failed is the one whose log is read", "id#")
        .query(FIRST)
        .list("jobs")
        .keeps(&[("job", "id")]),
    assumption(
        &SEARCH_CODE,
        "a search that was given up is not taken for one that found nothing",
        "total_count# incomplete_results? items[]",
    )
    .query(&[("q", "countersign repo:{owner}/{repo}"), ("per_page", "1")]),
];

/// What is not one request and one answer.
const AUTHORS_ASSUMPTION: ResponseAssumption =
    assumption(&AUTHORS, "whose words an issue has is asked by GraphQL", "");
const JOB_LOG_ASSUMPTION: ResponseAssumption =
    assumption(&JOB_LOG, "a log lies elsewhere, where no credentials of ours go", "");
const RATE_LIMIT_ASSUMPTION: ResponseAssumption =
    assumption(&REPOSITORY, "how long to wait is read from these headers", "");
const NOT_MODIFIED_ASSUMPTION: ResponseAssumption =
    assumption(&REPOSITORY, "what has not changed is asked for again and again, and counts as nothing", "");

/// Looks at one repository by all of them.
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

/// What is made to see whether it can be, each with the trial's name in it.
const WRITE_ASSUMPTIONS: &[ResponseAssumption] = &[
    assumption(&CREATE_LABEL, "a label says how a run stands", "node_id name")
        .body(r#"{"name": "{scratch}", "color": "ededed"}"#)
        .keeps(&[("label", "name")]),
    assumption(&CREATE_ISSUE, "issues are filed with their labels", "number# html_url labels[]")
        .body(r#"{"title": "A trial of Countersign's, {scratch}", "body": "Closed at once.", "labels": ["{label}"]}"#)
        .keeps(&[("issue", "number")]),
    assumption(&POST_COMMENT, "people are told in comments", "id# node_id body")
        .body(r#"{"body": "A trial, {scratch}."}"#)
        .keeps(&[("comment", "id")]),
    assumption(&EDIT_COMMENT, "and one comment is kept up to date", "body updated_at")
        .body(r#"{"body": "A trial, {scratch}, edited."}"#),
    assumption(&REACT_COMMENT, "a command is seen to be heard", "id# content").body(r#"{"content": "eyes"}"#),
    assumption(&CREATE_PULL, "work is proposed as a draft", "number# draft? head.sha")
        .body(
            r#"{"title": "A trial of Countersign's, {scratch}", "head": "countersign/{scratch}", "base": "{branch}",
                "body": "Closed at once.", "draft": true}"#,
        )
        .keeps(&[("pull", "number"), ("commit", "head.sha")]),
    assumption(&CREATE_CHECK, "a verdict is a check of the commit", "id# external_id status conclusion").body(
        r#"{"name": "countersign trial", "head_sha": "{commit}", "external_id": "{scratch}", "status": "completed",
            "conclusion": "neutral", "output": {"title": "A trial", "summary": "It says nothing of the code."}}"#,
    ),
];
const BRANCH_ASSUMPTION: ResponseAssumption =
    assumption(&COMMIT_ON_BRANCH, "a branch begins with its first commit, in one request", "");

const CLEANUP_ASSUMPTIONS: &[ResponseAssumption] = &[
    assumption(&EDIT_PULL, "closed", "state").body(r#"{"state": "closed"}"#),
    assumption(&DELETE_BRANCH, "taken away", ""),
    assumption(&DELETE_COMMENT, "taken away", ""),
    assumption(&EDIT_ISSUE, "closed", "state").body(r#"{"state": "closed"}"#),
    assumption(&DELETE_LABEL, "taken away", ""),
];

/// Makes one of each thing that runs make, all called `scratch`, and takes them away again: what came of the one, and of the
/// other for what was made. GitHub lets nobody take away issues, pull requests and checks: the first two are closed.
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
    /// What placeholders of calls are filled with.
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
            return AssumptionOutcome::NotObserved("no issue is there to ask about".to_owned());
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

    /// A commit on a new branch, which starts no workflow.
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
        // The branch may be there without the commit.
        if matches!(committed, Ok(Some(_))) || !matches!(repo.branch(&branch).await, Ok(None)) {
            self.known.insert("made".to_owned(), scratch.to_owned());
        }
        match committed {
            Ok(Some(commit)) => AssumptionOutcome::Confirmed(format!("commit {}", commit.oid.short())),
            Ok(None) => {
                AssumptionOutcome::NotObserved("the repository has no commit to begin from".to_owned())
            }
            Err(fault) => fault_outcome(&fault),
        }
    }

    /// The log of a job is a redirect, and octets behind it.
    async fn check_job_log(&self) -> AssumptionOutcome {
        let request = match self.request(&JOB_LOG) {
            Ok(request) => request,
            Err(nothing) => return nothing,
        };
        match self.send(&JOB_LOG, request).await {
            Err(GitHubApiError::Moved { .. }) => AssumptionOutcome::Confirmed("a redirect".to_owned()),
            Err(fault) => fault_outcome(&fault),
            Ok(_) => AssumptionOutcome::Differs("it is answered at once".to_owned()),
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
                "{} or {} is missing, or is no number",
                names[0], names[1]
            )),
        };
        let used = [&first, &second].map(|answer| header(answer, "x-ratelimit-used"));
        let unchanged = match (first.headers.contains_key("etag"), used) {
            (false, _) => AssumptionOutcome::Differs("the answer has no etag".to_owned()),
            (true, [Some(before), Some(after)]) if after > before => AssumptionOutcome::Differs(format!(
                "{before} calls were used before it was asked for again, and {after} after that"
            )),
            (true, [Some(_), Some(after)]) => {
                AssumptionOutcome::Confirmed(format!("{after} calls are used before and after"))
            }
            (true, _) => {
                AssumptionOutcome::NotObserved("GitHub does not say how many calls are used".to_owned())
            }
        };
        [limits, unchanged]
    }

    /// The call with its placeholders filled, as far as that is known.
    fn request(&self, call: &'static GitHubEndpoint) -> Result<ApiRequest, AssumptionOutcome> {
        let shown = call.to_string();
        let names = shown.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let value = |name: &str| {
            let name = name.trim_start_matches('*');
            self.known
                .get(name)
                .map(String::as_str)
                .ok_or_else(|| AssumptionOutcome::NotObserved(format!("no {name} is there to ask about")))
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

/// A refusal shows nothing of the answer's form.
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

/// Holds an answer against its row; with the thing in it that was looked at.
fn compare_response<'a>(
    row: &ResponseAssumption,
    answer: &'a Value,
) -> (Option<&'a Value>, AssumptionOutcome) {
    let thing = match row.list.map(|list| answer.pointer(&json_pointer(list)).and_then(Value::as_array)) {
        None => answer,
        Some(None) => {
            return (None, AssumptionOutcome::Differs("the list is missing, or is none".to_owned()));
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

/// How a field is otherwise than its sign says.
fn field_mismatch(sign: &str, value: Option<&Value>) -> Option<&'static str> {
    let Some(value) = value else { return Some("is missing") };
    let (fits, wanted) = match sign {
        "#" => (value.is_u64(), "is no number"),
        "?" => (value.is_boolean(), "is not true or false"),
        "[]" => (value.is_array(), "is no list"),
        "{}" => (value.is_object(), "is no object"),
        _ => (value.is_string(), "is no text"),
    };
    (!fits).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_of_another_form_differs_and_says_where() {
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
    fn an_empty_list_shows_nothing_and_a_missing_one_differs() {
        let row = READ_ASSUMPTIONS.iter().find(|row| row.list == Some("check_runs")).unwrap();
        assert!(matches!(
            compare_response(row, &json!({"check_runs": []})).1,
            AssumptionOutcome::NotObserved(_)
        ));
        assert!(matches!(compare_response(row, &json!({"runs": []})).1, AssumptionOutcome::Differs(_)));
    }

    #[test]
    fn every_look_is_a_read() {
        assert!(
            READ_ASSUMPTIONS
                .iter()
                .all(|row| row.call.to_string().starts_with("GET ") && row.body.is_empty())
        );
    }

    #[test]
    fn what_is_sent_can_be_read_and_all_that_is_taken_away_was_made_for_it() {
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
