//! What a payload is about, read without reading the rest of it: enough to put a delivery in its place.

use serde::Deserialize;

use crate::{
    store::Subject,
    types::{InstallationId, IssueNo, RepoId},
};

#[derive(Deserialize)]
struct Named {
    installation: Option<Id<InstallationId>>,
    repository: Option<Id<RepoId>>,
    issue: Option<Number>,
    pull_request: Option<Number>,
}

#[derive(Deserialize)]
struct Id<T> {
    id: T,
}

#[derive(Deserialize)]
struct Number {
    number: IssueNo,
}

/// A body that is not JSON is about nothing; it is stored all the same and found dead later, with its reason.
pub(super) fn subject(event: &str, body: &[u8]) -> Subject {
    let Ok(named) = serde_json::from_slice::<Named>(body) else { return Subject::default() };
    Subject {
        installation: named.installation.map(|of| of.id),
        repository: named.repository.map(|of| of.id),
        issue: named.issue.or(named.pull_request).map(|of| of.number),
        fence: matches!(event, "repository" | "installation" | "installation_repositories"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_found_among_the_rest() {
        let body =
            br#"{"action":"x","issue":{"user":{"id":1},"number":4},"repository":{"id":9,"owner":{"id":2}},
            "installation":{"id":7,"node_id":"m"}}"#;
        let found = subject("issues", body);
        let expected = Subject {
            installation: Some(InstallationId(7)),
            repository: Some(RepoId(9)),
            issue: Some(IssueNo(4)),
            fence: false,
        };
        assert_eq!(found, expected);
        assert_eq!(subject("pull_request", br#"{"pull_request":{"number":5}}"#).issue, Some(IssueNo(5)));
        assert!(subject("installation", br#"{"installation":{"id":7}}"#).fence);
        for nothing in [&b""[..], b"[]", b"{\"installation\":7}", b"\xff"] {
            assert_eq!(subject("issues", nothing), Subject::default());
        }
    }
}
