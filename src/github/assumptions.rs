//! What we take for true of GitHub's answers, held against the GitHub that answers now. Most of the tests meet an
//! imitation; this is where the two are compared. Reads alone.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    api::{As, Request, Response},
    app::GitHub,
    error::Fault,
    event::RepoRef,
    manifest::{
        CHECKS, COMMENTS, COMMIT_OBJECT, Call, DELIVERIES, DELIVERY, HOOK_CONFIG, INSTALLATION, ISSUE_EVENTS,
        ISSUES_LIST, JOB_LOG, LINE_COMMENTS, PERMISSION, PULL, PULLS_LIST, REF, REPOSITORY, RUN_JOBS,
        SEARCH_CODE, STATUSES, WORKFLOW_RUNS,
    },
};
use crate::types::InstallationId;

/// One assumption and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The call, as the table of calls has it.
    pub call: String,
    /// What would go wrong otherwise.
    pub why: &'static str,
    pub seen: Seen,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    AsAssumed(String),
    Differs(String),
    /// There was nothing to look at, and why.
    Nothing(String),
}

/// What a field has to be.
#[derive(Clone, Copy)]
enum Is {
    Text,
    Number,
    Flag,
    List,
    Object,
}
use Is::{Flag, List, Number, Object, Text};

/// A call and the fields that we read in its answer.
struct Row {
    call: &'static Call,
    why: &'static str,
    query: &'static [(&'static str, &'static str)],
    /// Where the answer's list is, whose last item is looked at, the oldest of most: bots come later than people; none where the answer is the thing itself.
    items: Option<&'static str>,
    fields: &'static [(&'static str, Is)],
    /// What later calls take from it: the name of their placeholder, and the field.
    keeps: &'static [(&'static str, &'static str)],
}

const ANY: &[(&str, &str)] = &[("state", "all")];
const FIRST: &[(&str, &str)] = &[("per_page", "1")];
/// A listing that is the whole answer.
const WHOLE: Option<&str> = Some("");

const ROWS: &[Row] = &[
    Row {
        call: &DELIVERIES,
        why: "what no webhook brought is found in this log",
        query: FIRST,
        items: WHOLE,
        fields: &[
            ("/id", Number),
            ("/guid", Text),
            ("/delivered_at", Text),
            ("/event", Text),
            ("/status_code", Number),
        ],
        keeps: &[("delivery", "/id")],
    },
    Row {
        call: &DELIVERY,
        why: "and read from there",
        query: &[],
        items: None,
        fields: &[("/request/payload", Object)],
        keeps: &[],
    },
    Row {
        call: &HOOK_CONFIG,
        why: "doctor says where webhooks go",
        query: &[],
        items: None,
        fields: &[("/url", Text), ("/content_type", Text)],
        keeps: &[],
    },
    Row {
        call: &INSTALLATION,
        why: "a suspended installation is told from one that is gone",
        query: &[],
        items: None,
        fields: &[("/id", Number), ("/account/login", Text), ("/permissions", Object)],
        keeps: &[],
    },
    Row {
        call: &REPOSITORY,
        why: "a repository is known by its number, whatever it is called",
        query: &[],
        items: None,
        fields: &[
            ("/id", Number),
            ("/node_id", Text),
            ("/full_name", Text),
            ("/default_branch", Text),
            ("/private", Flag),
            ("/archived", Flag),
        ],
        keeps: &[("branch", "/default_branch")],
    },
    Row {
        call: &REF,
        why: "a branch that moved is noticed before it is written to",
        query: &[],
        items: None,
        fields: &[("/ref", Text), ("/object/sha", Text)],
        keeps: &[("commit", "/object/sha")],
    },
    Row {
        call: &COMMIT_OBJECT,
        why: "our commits are known again by parent, tree and trailer",
        query: &[],
        items: None,
        fields: &[("/sha", Text), ("/tree/sha", Text), ("/parents", List), ("/message", Text)],
        keeps: &[],
    },
    Row {
        call: &ISSUES_LIST,
        why: "labels that no webhook told of are found, and a bot is told from a person",
        query: ANY,
        items: WHOLE,
        fields: &[
            ("/number", Number),
            ("/user/id", Number),
            ("/user/type", Text),
            ("/labels", List),
            ("/updated_at", Text),
        ],
        keeps: &[("issue", "/number"), ("login", "/user/login")],
    },
    Row {
        call: &PERMISSION,
        why: "who may approve is decided by these",
        query: &[],
        items: None,
        fields: &[
            ("/permission", Text),
            ("/role_name", Text),
            ("/user/id", Number),
            ("/user/permissions/admin", Flag),
            ("/user/permissions/maintain", Flag),
            ("/user/permissions/push", Flag),
            ("/user/permissions/triage", Flag),
            ("/user/permissions/pull", Flag),
        ],
        keeps: &[],
    },
    Row {
        call: &ISSUE_EVENTS,
        why: "who put a label there decides whether it counts",
        query: FIRST,
        items: WHOLE,
        fields: &[("/event", Text), ("/actor/id", Number), ("/created_at", Text)],
        keeps: &[],
    },
    Row {
        call: &COMMENTS,
        why: "our own comments are known again, and edited instead of written twice",
        query: FIRST,
        items: WHOLE,
        fields: &[
            ("/id", Number),
            ("/node_id", Text),
            ("/user/type", Text),
            ("/body", Text),
            ("/updated_at", Text),
        ],
        keeps: &[],
    },
    Row {
        call: &PULLS_LIST,
        why: "a pull request of a fork is told from ours",
        query: ANY,
        items: WHOLE,
        fields: &[
            ("/number", Number),
            ("/head/ref", Text),
            ("/head/repo/id", Number),
            ("/base/ref", Text),
            ("/draft", Flag),
        ],
        // CI is at work there rather than on the default branch.
        keeps: &[("pull", "/number"), ("commit", "/head/sha")],
    },
    Row {
        call: &PULL,
        why: "a merge ends a run",
        query: &[],
        items: None,
        fields: &[("/state", Text), ("/html_url", Text), ("/head/repo/id", Number)],
        keeps: &[],
    },
    Row {
        call: &LINE_COMMENTS,
        why: "remarks at lines are answered where they stand",
        query: FIRST,
        items: WHOLE,
        fields: &[("/id", Number), ("/path", Text), ("/diff_hunk", Text), ("/body", Text)],
        keeps: &[],
    },
    Row {
        call: &CHECKS,
        why: "a check of Actions counts only as a job of this repository's own run",
        query: &[],
        items: Some("/check_runs"),
        fields: &[
            ("/id", Number),
            ("/name", Text),
            ("/status", Text),
            ("/app/id", Number),
            ("/app/slug", Text),
            ("/check_suite/id", Number),
            ("/output/annotations_count", Number),
        ],
        keeps: &[],
    },
    Row {
        call: &STATUSES,
        why: "CI may speak by statuses instead of checks",
        query: &[],
        items: Some("/statuses"),
        fields: &[("/context", Text), ("/state", Text)],
        keeps: &[],
    },
    Row {
        call: &WORKFLOW_RUNS,
        why: "a run whose head is a fork says nothing of our change",
        query: FIRST,
        items: Some("/workflow_runs"),
        fields: &[("/id", Number), ("/check_suite_id", Number), ("/head_repository/id", Number)],
        keeps: &[("run", "/id")],
    },
    Row {
        call: &RUN_JOBS,
        why: "the job that failed is the one whose log is read",
        query: FIRST,
        items: Some("/jobs"),
        fields: &[("/id", Number)],
        keeps: &[("job", "/id")],
    },
    Row {
        call: &SEARCH_CODE,
        why: "a search that was given up is not taken for one that found nothing",
        query: &[("q", "countersign repo:{owner}/{repo}"), ("per_page", "1")],
        items: None,
        fields: &[("/total_count", Number), ("/incomplete_results", Flag), ("/items", List)],
        keeps: &[],
    },
];

/// Looks at one repository by all of them.
pub async fn look(github: &GitHub, installation: InstallationId, repo: &RepoRef) -> Vec<Looked> {
    let mut looking = Looking {
        github,
        installation,
        known: BTreeMap::from([
            ("installation".to_owned(), installation.to_string()),
            ("owner".to_owned(), repo.name.owner.clone()),
            ("repo".to_owned(), repo.name.name.clone()),
        ]),
    };
    let mut looked = Vec::new();
    for row in ROWS {
        let seen = looking.at(row).await;
        looked.push(Looked { call: row.call.to_string(), why: row.why, seen });
    }
    let log = looking.log().await;
    looked.push(Looked {
        call: JOB_LOG.to_string(),
        why: "a log lies elsewhere, where no credentials of ours go",
        seen: log,
    });
    let [limits, unchanged] = looking.limits().await;
    let call = REPOSITORY.to_string();
    looked.push(Looked {
        call: call.clone(),
        why: "how long to wait is read from these headers",
        seen: limits,
    });
    looked.push(Looked {
        call,
        why: "what has not changed is asked for again and again, and counts as nothing",
        seen: unchanged,
    });
    looked
}

struct Looking<'g> {
    github: &'g GitHub,
    installation: InstallationId,
    /// What placeholders of calls are filled with.
    known: BTreeMap<String, String>,
}

impl Looking<'_> {
    async fn at(&mut self, row: &Row) -> Seen {
        let mut request = match self.request(row.call) {
            Ok(request) => request,
            Err(nothing) => return nothing,
        };
        for (key, value) in row.query {
            let filled = self
                .known
                .iter()
                .fold((*value).to_owned(), |text, (name, known)| text.replace(&format!("{{{name}}}"), known));
            request = request.query(key, filled);
        }
        let answer = match self.send(row.call, request).await.and_then(|answer| answer.json::<Value>()) {
            Ok(answer) => answer,
            Err(fault) => return faulty(&fault),
        };
        let (thing, seen) = judge(row, &answer);
        for (name, field) in row.keeps {
            let value = thing.and_then(|thing| thing.pointer(field)).map(|value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            self.known.extend(value.map(|value| ((*name).to_owned(), value)));
        }
        seen
    }

    /// The log of a job is a redirect, and octets behind it.
    async fn log(&self) -> Seen {
        let request = match self.request(&JOB_LOG) {
            Ok(request) => request,
            Err(nothing) => return nothing,
        };
        match self.send(&JOB_LOG, request).await {
            Err(Fault::Moved { .. }) => Seen::AsAssumed("a redirect".to_owned()),
            Err(fault) => faulty(&fault),
            Ok(_) => Seen::Differs("it is answered at once".to_owned()),
        }
    }

    async fn limits(&self) -> [Seen; 2] {
        let ask = || async {
            let request =
                self.request(&REPOSITORY).map_err(|_| Fault::Invalid("no repository".to_owned()))?;
            self.send(&REPOSITORY, request.kept()).await
        };
        let answers = async { Ok((ask().await?, ask().await?)) };
        let (first, second) = match answers.await {
            Ok(answers) => answers,
            Err(fault) => return [faulty(&fault), faulty(&fault)],
        };
        let header =
            |answer: &Response, name: &str| answer.headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        let names = ["x-ratelimit-remaining", "x-ratelimit-reset"];
        let limits = match names.map(|name| header(&first, name)) {
            [Some(left), Some(reset)] => Seen::AsAssumed(format!("{left} calls are left until {reset}")),
            _ => Seen::Differs(format!("{} or {} is missing, or is no number", names[0], names[1])),
        };
        let used = [&first, &second].map(|answer| header(answer, "x-ratelimit-used"));
        let unchanged = match (first.headers.contains_key("etag"), used) {
            (false, _) => Seen::Differs("the answer has no etag".to_owned()),
            (true, [Some(before), Some(after)]) if after > before => Seen::Differs(format!(
                "{before} calls were used before it was asked for again, and {after} after that"
            )),
            (true, [Some(_), Some(after)]) => {
                Seen::AsAssumed(format!("{after} calls are used before and after"))
            }
            (true, _) => Seen::Nothing("GitHub does not say how many calls are used".to_owned()),
        };
        [limits, unchanged]
    }

    /// The call with its placeholders filled, as far as that is known.
    fn request(&self, call: &'static Call) -> Result<Request, Seen> {
        let shown = call.to_string();
        let names = shown.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let value = |name: &str| {
            let name = name.trim_start_matches('*');
            self.known
                .get(name)
                .map(String::as_str)
                .ok_or_else(|| Seen::Nothing(format!("no {name} is there to ask about")))
        };
        let values: Vec<&str> = names.map(value).collect::<Result<_, _>>()?;
        Ok(Request::to(call, &values))
    }

    async fn send(&self, call: &Call, request: Request) -> Result<Response, Fault> {
        let by_app = call.to_string().starts_with("GET /app");
        let who = if by_app { As::App } else { As::Installation(self.installation) };
        self.github.api().send(who, request).await
    }
}

/// A refusal shows nothing of the answer's form.
fn faulty(fault: &Fault) -> Seen {
    match fault {
        Fault::Unexpected { .. } | Fault::Rejected { .. } => Seen::Differs(fault.to_string()),
        _ => Seen::Nothing(fault.to_string()),
    }
}

/// Holds an answer against its row; with the thing in it that was looked at.
fn judge<'a>(row: &Row, answer: &'a Value) -> (Option<&'a Value>, Seen) {
    let thing = match row.items.map(|items| answer.pointer(items).and_then(Value::as_array)) {
        None => answer,
        Some(None) => return (None, Seen::Differs("the list is missing, or is none".to_owned())),
        Some(Some(items)) => match items.last() {
            Some(last) => last,
            None => return (None, Seen::Nothing("the list is empty".to_owned())),
        },
    };
    let named = |field: &str| field.trim_start_matches('/').replace('/', ".");
    let wrong: Vec<String> = row
        .fields
        .iter()
        .filter_map(|(field, is)| Some(format!("{} {}", named(field), is.unlike(thing.pointer(field))?)))
        .collect();
    let seen = match wrong.is_empty() {
        true => {
            Seen::AsAssumed(row.fields.iter().map(|(field, _)| named(field)).collect::<Vec<_>>().join(", "))
        }
        false => Seen::Differs(wrong.join(", ")),
    };
    (Some(thing), seen)
}

impl Is {
    /// How a field is otherwise.
    fn unlike(self, value: Option<&Value>) -> Option<&'static str> {
        let Some(value) = value else { return Some("is missing") };
        let (fits, wanted) = match self {
            Text => (value.is_string(), "is no text"),
            Number => (value.is_u64(), "is no number"),
            Flag => (value.is_boolean(), "is not true or false"),
            List => (value.is_array(), "is no list"),
            Object => (value.is_object(), "is no object"),
        };
        (!fits).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_of_another_form_differs_and_says_where() {
        let row = ROWS.iter().find(|row| row.call.to_string().ends_with("/permission")).unwrap();
        let rights = json!({"admin": true, "maintain": true, "push": true, "triage": true, "pull": true});
        let mut answer =
            json!({"permission": "admin", "role_name": "admin", "user": {"id": 1, "permissions": rights}});
        assert!(matches!(judge(row, &answer).1, Seen::AsAssumed(_)));
        answer["user"]["permissions"]["push"] = json!("yes");
        answer.as_object_mut().unwrap().remove("role_name");
        let differs = "role_name is missing, user.permissions.push is not true or false";
        assert_eq!(judge(row, &answer).1, Seen::Differs(differs.to_owned()));
    }

    #[test]
    fn an_empty_list_shows_nothing_and_a_missing_one_differs() {
        let row = ROWS.iter().find(|row| row.items == Some("/check_runs")).unwrap();
        assert!(matches!(judge(row, &json!({"check_runs": []})).1, Seen::Nothing(_)));
        assert!(matches!(judge(row, &json!({"runs": []})).1, Seen::Differs(_)));
    }

    #[test]
    fn every_look_is_a_read() {
        assert!(ROWS.iter().all(|row| row.call.to_string().starts_with("GET ")));
    }
}
