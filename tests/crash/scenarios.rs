//! Acts of people in each workflow. Each act has a condition that makes it due and a condition that shows that it was
//! done. Thus a scenario can continue from any point.

use countersign::{
    localhub::{ActionsJob, Hub, HubIssueView, HubTimelineItem},
    types::{IssueNo, RepoId},
    workflows,
};

/// An issue and the hub that hosts it.
pub(crate) struct Thread<'a> {
    pub(crate) hub: &'a Hub,
    pub(crate) repo: RepoId,
    pub(crate) issue: IssueNo,
}

/// An act of a person, which is done once per scenario.
pub(crate) struct Act {
    pub(crate) what: &'static str,
    /// Returns whether the act was already done.
    done: fn(&Thread<'_>) -> bool,
    /// Returns whether the thread has reached the point at which the act is due.
    ready: fn(&Thread<'_>) -> bool,
    pub(crate) act: fn(&Thread<'_>),
}

pub(crate) struct Scenario {
    pub(crate) workflow: &'static str,
    pub(crate) name: &'static str,
    acts: &'static [Act],
    /// Budget of a run in micro-dollars. A run that reaches its budget pauses.
    pub(crate) cap: u64,
    /// Additional lines for the settings file.
    pub(crate) toml: &'static str,
    /// Stored names of the steps in which the run is killed. If empty, the run is killed in all steps.
    pub(crate) killed_in: &'static [&'static str],
    /// Text of the comment that marks the end of the scenario.
    pub(crate) end: &'static str,
}

/// Next actor of a scenario.
pub(crate) enum Turn {
    Person(&'static Act),
    /// The bot must act before a person can act.
    Bot,
    /// People have finished all their acts.
    Over,
}

impl Scenario {
    pub(crate) fn turn(&self, thread: &Thread<'_>) -> Turn {
        match self.acts.iter().find(|act| !(act.done)(thread)) {
            Some(act) if (act.ready)(thread) => Turn::Person(act),
            Some(_) => Turn::Bot,
            None => Turn::Over,
        }
    }
}

/// The main scenarios. Together with `CODE`, they cover every registered workflow.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        workflow: "lld",
        name: "approved at the first gate",
        acts: &[LABEL, APPROVE],
        cap: DEFAULT_CAP,
        toml: "",
        killed_in: &[],
        end: "lld: done",
    },
    Scenario {
        workflow: "lld",
        name: "sent back once",
        acts: &[LABEL, REVISE, Act { ready: |t| t.was_sent_back() && t.gates().len() == 1, ..APPROVE }],
        cap: DEFAULT_CAP,
        toml: "",
        killed_in: &[],
        end: "lld: done",
    },
    Scenario {
        workflow: "issue",
        name: "asked, answered, and filed as a new one",
        acts: &[LABEL_IDEA, ANSWER, Act { act: |t| t.comment("sam", &t.approve_with("new")), ..APPROVE }],
        cap: DEFAULT_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &[],
        end: "issue: done",
    },
    Scenario {
        workflow: "spec",
        name: "from an approved design to its spec",
        acts: &[LABEL, APPROVE, LABEL_SPEC],
        cap: DEFAULT_CAP,
        toml: "",
        killed_in: &[],
        end: "spec: done",
    },
    Scenario {
        workflow: "scout",
        name: "a search that finds nothing, and its brief",
        acts: &[Act { act: |t| t.label("countersign:scout"), ..LABEL }, APPROVE],
        cap: DEFAULT_CAP,
        toml: "",
        killed_in: &[],
        end: "scout: done",
    },
    Scenario {
        workflow: "route",
        name: "asked for in free words, and the design that comes of it",
        acts: &[ASK, APPROVE],
        cap: DEFAULT_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"Choose\"", "\"Begin\""],
        end: "lld: done",
    },
];

/// Scenario that runs tests in the sandbox. Therefore each moment takes seconds, and the repository has only a single
/// function.
pub(crate) const CODE: Scenario = Scenario {
    workflow: "implement",
    name: "from an approved spec to code",
    acts: &[
        LABEL,
        APPROVE,
        LABEL_SPEC,
        LABEL_CODE,
        APPROVE_CODE,
        ASKS_WHETHER_IT_WAITS,
        Act { ready: |t| t.count_wait_replies() == 1, ..MERGES },
    ],
    cap: DEFAULT_CAP,
    toml: "[implement]\ntools = true\n",
    killed_in: &[],
    end: "implement: done",
};

/// Scenarios whose documents are published differently: to another target, as several files, or without a gate.
pub(crate) const OTHERWISE: &[Scenario] = &[
    Scenario {
        workflow: "issue",
        name: "filed in place, which no model reviewed",
        acts: &[
            LABEL_IDEA,
            ANSWER,
            Act { act: |t| t.comment("sam", &t.approve_with("in-place")), ..APPROVE },
        ],
        cap: DEFAULT_CAP,
        toml: "[issue]\nreview = false\n[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"DraftGate\"", "\"File\""],
        end: "issue: done",
    },
    Scenario {
        workflow: "route",
        name: "a question, which is answered",
        acts: &[Act { act: |t| t.comment("sam", "@countersign how does it add up?"), ..ASK }],
        cap: DEFAULT_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"Choose\"", "\"Answer\""],
        end: "It adds up by project.",
    },
    Scenario {
        workflow: "scout",
        name: "a search that finds nothing, and another one",
        acts: &[Act { act: |t| t.label("countersign:scout"), ..LABEL }, APPROVE],
        cap: DEFAULT_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"Search\"", "\"Read\"", "\"Further\""],
        end: "scout: done",
    },
    Scenario {
        workflow: "lld",
        name: "approved by its review alone",
        acts: &[LABEL],
        cap: DEFAULT_CAP,
        toml: "[lld]\nverdict_gate = false\n",
        killed_in: &["\"VerdictGate\"", "\"Finalize\""],
        end: "lld: done",
    },
    Scenario {
        workflow: "lld",
        name: "drafted after a look at files",
        acts: &[LABEL, APPROVE],
        cap: DEFAULT_CAP,
        toml: "[lld]\ntools = true\n",
        killed_in: &["\"Draft\""],
        end: "lld: done",
    },
    Scenario {
        workflow: "pages",
        name: "several files",
        acts: &[Act { act: |t| t.label("countersign:pages"), ..LABEL }, APPROVE],
        cap: DEFAULT_CAP,
        toml: "",
        killed_in: &["\"Gate\"", "\"Publish\""],
        end: "pages: done",
    },
    Scenario {
        workflow: "patch",
        name: "pushed, mended when CI failed and when a review asked for it, and merged",
        acts: &[
            Act { act: |t| t.label("countersign:patch"), ..LABEL },
            APPROVE,
            ASKS_WHETHER_IT_WAITS,
            CI_FAILS,
            Act { ready: |t| t.gates().len() == 1, ..APPROVE_AGAIN },
            REMARKS,
            Act {
                done: |t| t.count_comments("sam", "/approve") == 3,
                ready: |t| t.gates().len() == 1,
                ..APPROVE_AGAIN
            },
            Act { done: |t| t.count_comments("max", "/override") == 2, ..ASKS_WHETHER_IT_WAITS },
            MERGES,
        ],
        cap: DEFAULT_CAP,
        toml: "",
        killed_in: &["\"Watch\"", "\"Publish\"", "\"Gate\""],
        end: "patch: done",
    },
];

/// A command to which only a waiting run replies. The test needs this act because the comment that announces the wait
/// is posted before the run actually waits.
const ASKS_WHETHER_IT_WAITS: Act = Act {
    what: "max says something for which there is no gate",
    done: |t| t.has_commented("max", "/override"),
    ready: |t| t.waits_for_merge() && t.gates().is_empty(),
    act: |t| t.comment("max", "/override nothing"),
};

const MERGES: Act = Act {
    what: "maya merges it",
    done: |t| t.hub.pulls(t.repo).iter().any(|pull| pull.merged),
    ready: |t| t.count_wait_replies() == 2,
    act: |t| {
        let (pull, maya) = (t.hub.pulls(t.repo)[0].number, t.hub.user_id("maya").unwrap());
        t.hub.set_draft(t.repo, pull, maya, false).unwrap();
        t.hub.merge(t.repo, pull, maya).unwrap();
    },
};

const REMARKS: Act = Act {
    what: "sam remarks at a line",
    done: |t| t.hub.pulls(t.repo).iter().any(|pull| !pull.reviews.is_empty()),
    ready: |t| t.count_comments("sam", "/approve") == 2 && t.waits_for_merge(),
    act: |t| {
        let (pull, sam) = (t.hub.pulls(t.repo)[0].number, t.hub.user_id("sam").unwrap());
        t.hub
            .review_lines(t.repo, pull, sam, "COMMENTED", "", &[("docs/pages/1.md", 1, "Say more.")])
            .unwrap();
    },
};

const CI_FAILS: Act = Act {
    what: "CI fails on the pushed change",
    done: |t| t.hub.checks(t.repo).iter().any(|check| check.name == "build"),
    ready: |t| t.count_wait_replies() == 1,
    act: |t| {
        let head = t.hub.pulls(t.repo)[0].head_oid.clone();
        let job = ActionsJob {
            name: "build".to_owned(),
            conclusion: Some("failure".to_owned()),
            ..ActionsJob::default()
        };
        t.hub.report_job(t.repo, &head, job).unwrap();
    },
};

/// Scenario in which a review may cost more than the rest of the run's budget, so that the run pauses.
pub(crate) const PAUSED: Scenario = Scenario {
    workflow: "lld",
    name: "paused at its cap",
    acts: &[LABEL, RAISE, APPROVE],
    cap: 200_000,
    toml: "",
    killed_in: &["\"Review\"", "\"Budget\""],
    end: "lld: done",
};

/// Default budget of a run in micro-dollars, used by scenarios without a special budget.
const DEFAULT_CAP: u64 = 10_000_000;

const RAISE: Act = Act {
    what: "max raises the cap",
    done: |t| t.has_commented("max", "/budget"),
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("### ✋ Paused before Adversarial review")),
    act: |t| t.comment("max", "/budget +3"),
};

const LABEL: Act = Act {
    what: "maya labels the issue",
    done: |t| t.view().timeline.iter().any(|item| item.event == "labeled" && item.actor == "maya"),
    ready: |_| true,
    act: |t| t.label("countersign:lld"),
};

const ASK: Act = Act {
    what: "sam asks for it",
    done: |t| t.has_commented("sam", "@countersign"),
    ready: |_| true,
    act: |t| t.comment("sam", "@countersign can we have this by week as well?"),
};

const LABEL_IDEA: Act = Act { act: |t| t.label("countersign:issue"), ..LABEL };

const LABEL_SPEC: Act = Act {
    what: "maya labels the issue for its spec",
    done: |t| t.labelled("countersign:spec"),
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("lld: done")),
    act: |t| t.label("countersign:spec"),
};

const LABEL_CODE: Act = Act {
    what: "maya labels the issue for its code",
    done: |t| t.labelled("countersign:implement"),
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("spec: done")),
    act: |t| t.label("countersign:implement"),
};

const APPROVE_CODE: Act = Act {
    what: "sam approves the code",
    done: |t| t.count_comments("sam", "/approve implement") == 1,
    ..APPROVE
};

const ANSWER: Act = Act {
    what: "maya answers what she is asked",
    done: |t| t.has_commented("maya", "/answer"),
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("before the draft is written")),
    act: |t| t.comment("maya", "/answer 1: the second one"),
};

const REVISE: Act = Act {
    what: "sam has it revised",
    done: |t| t.has_commented("sam", "/revise"),
    ready: |t| t.gates().len() == 1,
    act: |t| t.comment("sam", "/revise say what happens to an empty file"),
};

const APPROVE: Act = Act {
    what: "sam approves",
    done: |t| t.has_commented("sam", "/approve"),
    ready: |t| t.gates().len() == 1,
    act: |t| t.comment("sam", t.gates().last().unwrap()),
};

const APPROVE_AGAIN: Act = Act {
    what: "sam approves what became of it",
    done: |t| t.count_comments("sam", "/approve") >= 2,
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("was accepted")) && t.gates().len() == 1,
    ..APPROVE
};

impl Thread<'_> {
    pub(crate) fn view(&self) -> HubIssueView {
        self.hub.issue(self.repo, self.issue).unwrap()
    }

    fn has_commented(&self, who: &str, words: &str) -> bool {
        self.count_comments(who, words) > 0
    }

    fn count_comments(&self, who: &str, words: &str) -> usize {
        self.view().comments.iter().filter(|c| c.author == who && c.body.starts_with(words)).count()
    }

    fn comment(&self, who: &str, text: &str) {
        let user = self.hub.user_id(who).unwrap();
        self.hub.comment(self.repo, self.issue, user, text).unwrap();
    }

    fn label(&self, label: &str) {
        self.hub.label(self.repo, self.issue, self.hub.user_id("maya").unwrap(), label).unwrap();
    }

    fn labelled(&self, label: &str) -> bool {
        let by_maya = |item: &HubTimelineItem| item.event == "labeled" && item.actor == "maya";
        let mut events = self.view().timeline.into_iter().filter(by_maya);
        events.any(|item| item.detail.as_deref() == Some(label))
    }

    /// Returns whether the change is pushed and waits only for its merge.
    fn waits_for_merge(&self) -> bool {
        self.view().comments.iter().any(|c| c.body.contains("**Waits for the merge.**"))
    }

    fn count_wait_replies(&self) -> usize {
        self.view().comments.iter().filter(|c| c.body.contains("waits for the merge. `/revise TEXT`")).count()
    }

    fn was_sent_back(&self) -> bool {
        self.view().comments.iter().any(|c| c.body.contains("was sent back"))
    }

    /// Returns the approve command with this option.
    fn approve_with(&self, option: &str) -> String {
        self.gates().last().unwrap().replace(" in-place ", &format!(" {option} "))
    }

    /// Returns the approve command from each open gate comment.
    fn gates(&self) -> Vec<String> {
        let comments = self.view().comments;
        let asking = comments.iter().filter(|c| c.body.contains("waits for a person"));
        let line = |body: &str| body.lines().find(|line| line.starts_with("/approve ")).map(str::to_owned);
        asking.filter_map(|c| line(&c.body)).collect()
    }
}

#[test]
fn every_workflow_has_a_crash_scenario() {
    for workflow in workflows::ALL {
        let known = ALL.iter().chain([&CODE]).any(|scenario| scenario.workflow == workflow.name());
        assert!(known, "add a scenario for `{}` to the table in {}", workflow.name(), file!());
    }
}
