//! Lists the Actions workflows of a repository that would run on the branches that we push.
//!
//! We push approved code to these branches. The operator should know in advance which workflows a push to
//! `countersign/**` starts.

use serde_norway::Value;

use super::{DoctorReport, github::InstalledApp};
use crate::config::Settings;

/// Example name of a branch that we push, used to test the branch filters of workflows.
const BRANCH: &str = "countersign/issue-1";
const DIRECTORY: &str = ".github/workflows";

pub(super) async fn check(report: &mut DoctorReport, known: &InstalledApp, settings: &Settings) {
    for installation in known.installations.iter().filter(|i| settings.allowed_installations.contains(&i.id))
    {
        let repositories = match known.github.repositories(installation.id).await {
            Ok(repositories) => repositories,
            Err(fault) => {
                report.bad("repositories", fault.to_string());
                continue;
            }
        };
        for found in repositories {
            let repo = known.github.repo(installation.id, found.id, found.name.clone());
            match triggered_workflows(&repo).await {
                Ok(names) if names.is_empty() => {
                    report.good("repository", format!("{}: no workflow runs on countersign/**", found.name));
                }
                Ok(names) => report.note(
                    "repository",
                    format!("{}: a push to countersign/** runs {}", found.name, names.join(", ")),
                ),
                Err(fault) => report.bad("repository", format!("{}: {fault}", found.name)),
            }
        }
    }
}

async fn triggered_workflows(
    repo: &crate::github::GitHubRepo,
) -> Result<Vec<String>, crate::github::GitHubApiError> {
    let branch = repo.info().await?.default_branch;
    let mut names = Vec::new();
    for path in repo.directory(DIRECTORY, &branch).await? {
        if !(path.ends_with(".yml") || path.ends_with(".yaml")) {
            continue;
        }
        let Some(text) = repo.file(&path, &branch).await? else { continue };
        let file = path.rsplit('/').next().unwrap_or(&path).to_owned();
        match serde_norway::from_slice::<Value>(&text) {
            Ok(workflow) if runs_on(&workflow, BRANCH) => names.push(file),
            Ok(_) => {}
            Err(_) => names.push(format!("{file} (cannot be read)")),
        }
    }
    Ok(names)
}

/// Whether a push to `branch`, or a pull request from `branch`, starts this workflow.
fn runs_on(workflow: &Value, branch: &str) -> bool {
    // YAML 1.1 parsers read the bare word `on` as `true`.
    let on = workflow.get("on").or_else(|| workflow.get(Value::Bool(true)));
    match on {
        Some(Value::String(event)) => is_ours(event),
        Some(Value::Sequence(events)) => events.iter().filter_map(Value::as_str).any(is_ours),
        Some(Value::Mapping(events)) => events.iter().any(|(event, filter)| match event.as_str() {
            // A pull request's filter applies to its base, the default branch.
            Some("pull_request" | "pull_request_target") => true,
            Some("push") => push_matches(filter, branch),
            _ => false,
        }),
        _ => false,
    }
}

fn is_ours(event: &str) -> bool {
    matches!(event, "push" | "pull_request" | "pull_request_target")
}

fn push_matches(filter: &Value, branch: &str) -> bool {
    let list = |name: &str| -> Option<Vec<&str>> {
        match filter.get(name)? {
            Value::String(one) => Some(vec![one.as_str()]),
            Value::Sequence(many) => Some(many.iter().filter_map(Value::as_str).collect()),
            _ => None,
        }
    };
    if let Some(ignored) = list("branches-ignore") {
        return !ignored.iter().any(|pattern| glob(pattern, branch));
    }
    match list("branches") {
        // Only tags are named, so branches do not start it.
        None => filter.get("tags").is_none() && filter.get("tags-ignore").is_none(),
        // Later patterns win; a pattern with `!` excludes.
        Some(patterns) => patterns.iter().fold(false, |on, pattern| match pattern.strip_prefix('!') {
            Some(pattern) => on && !glob(pattern, branch),
            None => on || glob(pattern, branch),
        }),
    }
}

/// Matches a name against a GitHub branch pattern: `*` matches any characters except a slash, `**` matches any
/// characters, and `?` matches one character.
fn glob(pattern: &str, name: &str) -> bool {
    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', b'*', rest @ ..], _) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
            ([b'*', rest @ ..], _) => {
                let end = name.iter().position(|b| *b == b'/').unwrap_or(name.len());
                (0..=end).any(|at| matches(rest, &name[at..]))
            }
            ([b'?', rest @ ..], [_, tail @ ..]) => matches(rest, tail),
            ([a, rest @ ..], [b, tail @ ..]) => a == b && matches(rest, tail),
            _ => false,
        }
    }
    matches(pattern.as_bytes(), name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str) -> bool {
        runs_on(&serde_norway::from_str(text).unwrap(), BRANCH)
    }

    #[test]
    fn branch_filters_decide_whether_a_ci_workflow_runs_on_bot_branches() {
        assert!(runs("on: push"));
        assert!(runs("on: [push, workflow_dispatch]"));
        assert!(runs("on:\n  push:\n"));
        assert!(runs("on:\n  pull_request:\n    branches: [main]"));
        assert!(runs("on:\n  push:\n    branches: ['**']"));
        assert!(runs("on:\n  push:\n    branches: ['countersign/*']"));
        assert!(runs("on:\n  push:\n    branches-ignore: [main]"));
        assert!(!runs("on:\n  push:\n    branches: [main, '*']"));
        assert!(!runs("on:\n  push:\n    branches: ['**', '!countersign/**']"));
        assert!(!runs("on:\n  push:\n    tags: ['v*']"));
        assert!(!runs("on:\n  push:\n    branches-ignore: ['countersign/**']"));
        assert!(!runs("on: workflow_dispatch"));
        assert!(!runs("name: nothing"));
    }
}
