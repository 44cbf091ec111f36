//! What tests come to that were written against the code.

use serde::{Deserialize, Serialize};

use super::{
    super::{Failure, Found, Outcome, one_line},
    Row, by_id, head, is_in, is_same,
};

/// What two runs with the code say of such a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attacked {
    Passes,
    /// Twice alike, with what it says.
    Fails(String),
    /// It shows nothing, for this reason: the end of a sentence about it.
    Nothing(String),
}

/// One of `all`, each of which is the only test of its file; `known` are the ids of those that ran before.
pub fn attacked(runs: [&Found; 2], row: &Row, all: &[Row], known: &[String]) -> Attacked {
    let [first, second] = runs.map(by_id);
    let others = |id: &str| {
        is_in(id, &row.file) && !all.iter().any(|row| row.is(id)) && !known.iter().any(|known| known == id)
    };
    let ids: Vec<&str> = first.keys().copied().filter(|id| row.is(id)).collect();
    // What holds the test is told of as a whole where it cannot be built. What is missing as it runs may be so in the code.
    let own = |path: &str| !path.is_empty() && is_same(&row.file, path);
    let unbuilt = first.values().any(|test| match test.outcome {
        Outcome::Failed(Failure::Build) => row.is(&test.id) || is_in(&test.id, &row.file),
        Outcome::Failed(Failure::Missing) if row.is(&test.id) => test.faults.iter().any(|f| own(&f.file)),
        Outcome::Failed(Failure::Missing) => is_in(&test.id, &row.file),
        _ => false,
    });
    let outcomes: Vec<Outcome> = ids.iter().map(|id| first[id].outcome).collect();
    let alike = ids.iter().all(|id| second.get(id).is_some_and(|test| test.outcome == first[id].outcome));
    let failed = ids.iter().find(|id| matches!(first[*id].outcome, Outcome::Failed(_)));
    let nothing = |why: &str| Attacked::Nothing(why.to_owned());
    match () {
        () if unbuilt => nothing("cannot be built, or names what is not there"),
        () if ids.is_empty() => nothing("is not found by the runner"),
        () if first.keys().any(|id| others(id)) => nothing("stands in a file with other tests"),
        () if outcomes.contains(&Outcome::Skipped) => nothing("is skipped"),
        () if !alike => nothing("did not end alike in two runs"),
        () => match failed.map(|id| first[id]) {
            None => Attacked::Passes,
            Some(test) => match test.outcome {
                Outcome::Failed(Failure::Timeout) => Attacked::Fails("it did not end in time".to_owned()),
                Outcome::Failed(Failure::NeedsLoopback) => nothing("needs a network"),
                _ => Attacked::Fails(one_line(&head(&test.message))),
            },
        },
    }
}
