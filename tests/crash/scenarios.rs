//! What people do in each workflow, told so that it can go on from any point: who sees this and has not yet done
//! that, does it.

use countersign::{
    localhub::{ActionsJob, Hub, HubIssueView, HubTimelineItem},
    types::{IssueNo, RepoId},
    workflows,
};

/// An issue as people meet it.
pub(crate) struct Thread<'a> {
    pub(crate) hub: &'a Hub,
    pub(crate) repo: RepoId,
    pub(crate) issue: IssueNo,
}

/// A thing a person does once.
pub(crate) struct Act {
    pub(crate) what: &'static str,
    /// Has it been done?
    done: fn(&Thread<'_>) -> bool,
    /// Is there on the thread what it answers?
    ready: fn(&Thread<'_>) -> bool,
    pub(crate) act: fn(&Thread<'_>),
}

pub(crate) struct Scenario {
    pub(crate) workflow: &'static str,
    pub(crate) name: &'static str,
    acts: &'static [Act],
    /// What a run may spend before it pauses, in micro-dollars.
    pub(crate) cap: u64,
    /// Lines of the settings.
    pub(crate) toml: &'static str,
    /// In these steps it is killed, as they are stored; none: in all.
    pub(crate) killed_in: &'static [&'static str],
    /// In a comment at the end.
    pub(crate) end: &'static str,
}

/// Whose turn it is.
pub(crate) enum Turn {
    Person(&'static Act),
    /// The bot's, before a person can do anything.
    Bot,
    /// Everything was said that people have to say.
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

/// At least one for each registered workflow.
pub(crate) const ALL: &[Scenario] = &[
    Scenario {
        workflow: "lld",
        name: "approved at the first gate",
        acts: &[LABEL, APPROVE],
        cap: USUAL_CAP,
        toml: "",
        killed_in: &[],
        end: "lld: done",
    },
    Scenario {
        workflow: "lld",
        name: "sent back once",
        acts: &[LABEL, REVISE, Act { ready: |t| t.sent_back() && t.gates().len() == 1, ..APPROVE }],
        cap: USUAL_CAP,
        toml: "",
        killed_in: &[],
        end: "lld: done",
    },
    Scenario {
        workflow: "issue",
        name: "asked, answered, and filed as a new one",
        acts: &[LABEL_IDEA, ANSWER, Act { act: |t| t.say("sam", &t.way("new")), ..APPROVE }],
        cap: USUAL_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &[],
        end: "issue: done",
    },
    Scenario {
        workflow: "spec",
        name: "from an approved design to its spec",
        acts: &[LABEL, APPROVE, LABEL_SPEC],
        cap: USUAL_CAP,
        toml: "",
        killed_in: &[],
        end: "spec: done",
    },
    Scenario {
        workflow: "scout",
        name: "a search that finds nothing, and its brief",
        acts: &[Act { act: |t| t.label("countersign:scout"), ..LABEL }, APPROVE],
        cap: USUAL_CAP,
        toml: "",
        killed_in: &[],
        end: "scout: done",
    },
    Scenario {
        workflow: "route",
        name: "asked for in free words, and the design that comes of it",
        acts: &[ASK, APPROVE],
        cap: USUAL_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"Choose\"", "\"Begin\""],
        end: "lld: done",
    },
];

/// Whatever runs tests takes seconds from each moment of it. Its repository is the one of a single function.
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
        Act { ready: |t| t.answered_that_it_waits() == 1, ..MERGES },
    ],
    cap: USUAL_CAP,
    toml: "[implement]\ntools = true\n",
    killed_in: &[],
    end: "implement: done",
};

/// Documents that are published otherwise: on another target, with several files, unasked.
pub(crate) const OTHERWISE: &[Scenario] = &[
    Scenario {
        workflow: "issue",
        name: "filed in place, which no model reviewed",
        acts: &[LABEL_IDEA, ANSWER, Act { act: |t| t.say("sam", &t.way("in-place")), ..APPROVE }],
        cap: USUAL_CAP,
        toml: "[issue]\nreview = false\n[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"DraftGate\"", "\"File\""],
        end: "issue: done",
    },
    Scenario {
        workflow: "route",
        name: "a question, which is answered",
        acts: &[Act { act: |t| t.say("sam", "@countersign how does it add up?"), ..ASK }],
        cap: USUAL_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"Choose\"", "\"Answer\""],
        end: "It adds up by project.",
    },
    Scenario {
        workflow: "scout",
        name: "a search that finds nothing, and another one",
        acts: &[Act { act: |t| t.label("countersign:scout"), ..LABEL }, APPROVE],
        cap: USUAL_CAP,
        toml: "[route]\nmodel = \"claude:opus\"\n",
        killed_in: &["\"Search\"", "\"Read\"", "\"Further\""],
        end: "scout: done",
    },
    Scenario {
        workflow: "lld",
        name: "approved by its review alone",
        acts: &[LABEL],
        cap: USUAL_CAP,
        toml: "[lld]\nverdict_gate = false\n",
        killed_in: &["\"VerdictGate\"", "\"Finalize\""],
        end: "lld: done",
    },
    Scenario {
        workflow: "lld",
        name: "drafted after a look at files",
        acts: &[LABEL, APPROVE],
        cap: USUAL_CAP,
        toml: "[lld]\ntools = true\n",
        killed_in: &["\"Draft\""],
        end: "lld: done",
    },
    Scenario {
        workflow: "pages",
        name: "several files",
        acts: &[Act { act: |t| t.label("countersign:pages"), ..LABEL }, APPROVE],
        cap: USUAL_CAP,
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
                done: |t| t.times("sam", "/approve") == 3,
                ready: |t| t.gates().len() == 1,
                ..APPROVE_AGAIN
            },
            Act { done: |t| t.times("max", "/override") == 2, ..ASKS_WHETHER_IT_WAITS },
            MERGES,
        ],
        cap: USUAL_CAP,
        toml: "",
        killed_in: &["\"Watch\"", "\"Publish\"", "\"Gate\""],
        end: "patch: done",
    },
];

/// What shows that it waits is there before it does; it answers only then.
const ASKS_WHETHER_IT_WAITS: Act = Act {
    what: "max says something for which there is no gate",
    done: |t| t.said("max", "/override"),
    ready: |t| t.watched() && t.gates().is_empty(),
    act: |t| t.say("max", "/override nothing"),
};

const MERGES: Act = Act {
    what: "maya merges it",
    done: |t| t.hub.pulls(t.repo).iter().any(|pull| pull.merged),
    ready: |t| t.answered_that_it_waits() == 2,
    act: |t| {
        let (pull, maya) = (t.hub.pulls(t.repo)[0].number, t.hub.user_id("maya").unwrap());
        t.hub.set_draft(t.repo, pull, maya, false).unwrap();
        t.hub.merge(t.repo, pull, maya).unwrap();
    },
};

const REMARKS: Act = Act {
    what: "sam remarks at a line",
    done: |t| t.hub.pulls(t.repo).iter().any(|pull| !pull.reviews.is_empty()),
    ready: |t| t.times("sam", "/approve") == 2 && t.watched(),
    act: |t| {
        let (pull, sam) = (t.hub.pulls(t.repo)[0].number, t.hub.user_id("sam").unwrap());
        t.hub
            .review_lines(t.repo, pull, sam, "COMMENTED", "", &[("docs/pages/1.md", 1, "Say more.")])
            .unwrap();
    },
};

const CI_FAILS: Act = Act {
    what: "CI fails on what was pushed",
    done: |t| t.hub.checks(t.repo).iter().any(|check| check.name == "build"),
    ready: |t| t.answered_that_it_waits() == 1,
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

/// One review may cost more than its cap.
pub(crate) const PAUSED: Scenario = Scenario {
    workflow: "lld",
    name: "paused at its cap",
    acts: &[LABEL, RAISE, APPROVE],
    cap: 200_000,
    toml: "",
    killed_in: &["\"Review\"", "\"Budget\""],
    end: "lld: done",
};

/// As the settings have it that say nothing of it.
const USUAL_CAP: u64 = 10_000_000;

const RAISE: Act = Act {
    what: "max raises the cap",
    done: |t| t.said("max", "/budget"),
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("### ✋ Paused before Adversarial review")),
    act: |t| t.say("max", "/budget +3"),
};

const LABEL: Act = Act {
    what: "maya labels the issue",
    done: |t| t.view().timeline.iter().any(|item| item.event == "labeled" && item.actor == "maya"),
    ready: |_| true,
    act: |t| t.label("countersign:lld"),
};

const ASK: Act = Act {
    what: "sam asks for it",
    done: |t| t.said("sam", "@countersign"),
    ready: |_| true,
    act: |t| t.say("sam", "@countersign can we have this by week as well?"),
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

const APPROVE_CODE: Act =
    Act { what: "sam approves the code", done: |t| t.times("sam", "/approve implement") == 1, ..APPROVE };

const ANSWER: Act = Act {
    what: "maya answers what she is asked",
    done: |t| t.said("maya", "/answer"),
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("before this is drafted")),
    act: |t| t.say("maya", "/answer 1: the second one"),
};

const REVISE: Act = Act {
    what: "sam has it revised",
    done: |t| t.said("sam", "/revise"),
    ready: |t| t.gates().len() == 1,
    act: |t| t.say("sam", "/revise say what happens to an empty file"),
};

const APPROVE: Act = Act {
    what: "sam approves",
    done: |t| t.said("sam", "/approve"),
    ready: |t| t.gates().len() == 1,
    act: |t| t.say("sam", t.gates().last().unwrap()),
};

const APPROVE_AGAIN: Act = Act {
    what: "sam approves what became of it",
    done: |t| t.times("sam", "/approve") >= 2,
    ready: |t| t.view().comments.iter().any(|c| c.body.contains("was accepted")) && t.gates().len() == 1,
    ..APPROVE
};

impl Thread<'_> {
    pub(crate) fn view(&self) -> HubIssueView {
        self.hub.issue(self.repo, self.issue).unwrap()
    }

    fn said(&self, who: &str, words: &str) -> bool {
        self.times(who, words) > 0
    }

    fn times(&self, who: &str, words: &str) -> usize {
        self.view().comments.iter().filter(|c| c.author == who && c.body.starts_with(words)).count()
    }

    fn say(&self, who: &str, text: &str) {
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

    /// Does what was pushed wait for its merge alone?
    fn watched(&self) -> bool {
        self.view().comments.iter().any(|c| c.body.contains("**Waits for the merge.**"))
    }

    fn answered_that_it_waits(&self) -> usize {
        self.view().comments.iter().filter(|c| c.body.contains("waits for the merge. `/revise TEXT`")).count()
    }

    fn sent_back(&self) -> bool {
        self.view().comments.iter().any(|c| c.body.contains("was sent back"))
    }

    /// The line to copy for this way of accepting.
    fn way(&self, way: &str) -> String {
        self.gates().last().unwrap().replace(" in-place ", &format!(" {way} "))
    }

    /// The line to copy from each comment that asks a person.
    fn gates(&self) -> Vec<String> {
        let comments = self.view().comments;
        let asking = comments.iter().filter(|c| c.body.contains("waits for a person"));
        let line = |body: &str| body.lines().find(|line| line.starts_with("/approve ")).map(str::to_owned);
        asking.filter_map(|c| line(&c.body)).collect()
    }
}

#[test]
fn every_workflow_has_a_scenario() {
    for workflow in workflows::ALL {
        let known = ALL.iter().chain([&CODE]).any(|scenario| scenario.workflow == workflow.name());
        assert!(known, "add what people do in `{}` to the table in {}", workflow.name(), file!());
    }
}
