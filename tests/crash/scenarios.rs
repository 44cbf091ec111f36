//! What people do in each workflow, told so that it can go on from any point: who sees this and has not yet done
//! that, does it.

use countersign::workflows;

use crate::world::World;

/// A thing a person does once.
pub(crate) struct Act {
    pub(crate) what: &'static str,
    /// Has it been done?
    pub(crate) done: fn(&World) -> bool,
    /// Is there on the thread what it answers?
    pub(crate) ready: fn(&World) -> bool,
    pub(crate) act: fn(&World),
}

pub(crate) struct Scenario {
    pub(crate) workflow: &'static str,
    pub(crate) name: &'static str,
    pub(crate) acts: &'static [Act],
}

/// At least one for each registered workflow.
pub(crate) const ALL: &[Scenario] = &[
    Scenario { workflow: "lld", name: "approved at the first gate", acts: &[LABEL, APPROVE] },
    Scenario {
        workflow: "lld",
        name: "sent back once",
        acts: &[
            LABEL,
            Act {
                what: "sam has it revised",
                done: |w| said(w, "sam", "/revise"),
                ready: |w| gates(w) == 1,
                act: |w| comment(w, "sam", "/revise say what happens to an empty file"),
            },
            Act { ready: |w| gates(w) == 2, ..APPROVE },
        ],
    },
];

const LABEL: Act = Act {
    what: "maya labels the issue",
    done: |w| w.view().timeline.iter().any(|item| item.event == "labeled" && item.actor == "maya"),
    ready: |_| true,
    act: |w| w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap(),
};

const APPROVE: Act = Act {
    what: "sam approves",
    done: |w| said(w, "sam", "/approve"),
    ready: |w| gates(w) == 1,
    act: |w| comment(w, "sam", &w.approve_line()),
};

fn said(w: &World, who: &str, words: &str) -> bool {
    w.view().comments.iter().any(|c| c.author == who && c.body.starts_with(words))
}

fn comment(w: &World, who: &str, text: &str) {
    w.hub.comment(w.repo, w.issue, w.user(who), text).unwrap();
}

/// Comments that ask a person.
fn gates(w: &World) -> usize {
    let asks =
        |body: &str| body.lines().any(|line| line.trim().trim_matches('`').starts_with("/approve lld "));
    let comments = w.view().comments;
    comments
        .iter()
        .filter(|c| c.author == "countersign[bot]" && c.body.contains("waits for a person") && asks(&c.body))
        .count()
}

#[test]
fn every_workflow_has_a_scenario() {
    for workflow in workflows::ALL {
        let known = ALL.iter().any(|scenario| scenario.workflow == workflow.name());
        assert!(known, "add what people do in `{}` to the table in {}", workflow.name(), file!());
    }
}
