//! `issue`: a rough idea becomes an issue that one can build from, reviewed by a second model family and accepted by a
//! person.
//!
//! Seven steps, and two in which it waits; [`Issue::GRAPH`] is the whole of what may follow what. What a step does is the
//! [`stage`]'s; what an issue has to have stands in [`documents::issue`](crate::documents::issue), what is looked at before
//! anything is paid in `preflight`. Where the settings leave the review out, the gate
//! before it stands, and a person's word alone files what nobody reviewed.

mod preflight;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::{
    codebase::TreeIndex,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowTable},
    documents::{Mistake, issue},
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    publication::{self, FiledAt, Filing},
    rounds::{Cx, Desk, Policy},
    stage::{
        self, About, Accepted, Asks, Before, Document, Exit, Filed, Gate, Input, Placed, Stage, Target, Visit,
    },
    types::{IN_PLACE, IssueNo, Role, WAYS},
};

/// The workflow.
pub struct Issue;

/// What its settings are called, and what its drafts are named.
pub(super) const TABLE: WorkflowTable =
    WorkflowTable { files_issue: true, ..WorkflowTable::of(Issue::NAME, "issue-{issue}.md") };

/// What it leaves for the stages that follow.
pub(super) const LEFT: &[Input] = &[
    Input { kind: "brief", heading: "The issue as it was opened, before it was worded anew", made_by: None },
    Input { kind: preflight::RUBRIC, heading: preflight::RUBRIC_HEADING, made_by: None },
    Input {
        kind: "answers",
        heading: "What was asked about the issue, and what people answered",
        made_by: None,
    },
];

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum At {
    Load,
    Preflight,
    Draft,
    DraftGate,
    Review,
    VerdictGate,
    File,
    Questions,
    Budget,
}

impl Step for At {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the brief", Kind::Work),
            Self::Preflight => ("N1", "Preflight", Kind::Work),
            Self::Draft => ("N2", "Draft the issue", Kind::Draft),
            Self::DraftGate => ("N3", "Human gate: draft", Kind::Gate),
            Self::Review => ("N4", "Adversarial review", Kind::Review),
            Self::VerdictGate => ("N5", "Human gate: verdict", Kind::Gate),
            Self::File => ("N6", "File", Kind::Publish),
            Self::Questions => ("NQ", "Wait for answers", Kind::Pause),
            Self::Budget => ("NM", "Wait for money", Kind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

impl Workflow<Desk> for Issue {
    const NAME: &'static str = "issue";
    const VERSION: u32 = 1;
    type Step = At;
    type State = Stage;

    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Preflight]),
        (At::Preflight, &[At::Draft, At::Questions, At::Budget]),
        (At::Draft, &[At::DraftGate, At::Draft, At::Review, At::Budget]),
        (At::DraftGate, &[At::Review, At::File, At::Preflight, At::DraftGate]),
        (At::Review, &[At::VerdictGate, At::Draft, At::Review, At::Budget]),
        (At::VerdictGate, &[At::File, At::Preflight, At::VerdictGate, At::Review]),
        (At::File, &[At::DraftGate, At::VerdictGate]),
        (At::Questions, &[At::Draft]),
        (At::Budget, &[At::Preflight, At::Draft, At::Review]),
    ];

    const PROOFS: &'static [Proof] = &[Proof::Unreviewed];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "issue",
        usage: "/issue",
        about: "make a good issue out of this rough one and have it reviewed",
        role: Role::Triage,
        label: Some("countersign:issue"),
        kind: CommandKind::Starts,
    }];

    fn max_iterations() -> u32 {
        // A round that never reaches review goes round as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &Trigger) -> Stage {
        Stage::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut Stage, cx: &'a Cx) -> Result<Next<At>, StepError> {
        let text = Text::of(s);
        let v = &Visit::begin(s, &text, at, cx);
        let exit = match at {
            At::Load => stage::load(s, v).await?,
            At::Preflight => preflight::preflight(s, v).await?,
            At::Draft => Box::pin(draft(s, v)).await?,
            At::DraftGate | At::VerdictGate => stage::gate(s, v).await?,
            At::Review => stage::review(s, v).await?,
            At::File => stage::publish(s, v).await?,
            At::Questions => stage::questions(s, v).await?,
            At::Budget => stage::budget(s, v).await?,
        };
        let reviewed = s.policy().is_ok_and(reviews);
        exit.next(|exit| edge(at, exit, reviewed))
    }

    async fn halted<'a>(
        &'a self,
        at: At,
        s: &'a Stage,
        halt: &'a Halt,
        cx: &'a Cx,
    ) -> Result<Option<Outcome>, StepError> {
        stage::halted(s, halt, (&Text::of(s), at), cx).await
    }
}

/// Buys a draft, mends its form and holds it against the format: what code finds goes back at once.
async fn draft(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    match stage::draft(s, v).await? {
        Exit::Pass => {
            stage::fix(s, v).await?;
            stage::check(s, v).await
        }
        other => Ok(other),
    }
}

/// Where a step's end leads; what is not `reviewed` goes from its gate to where it is filed.
fn edge(at: At, exit: &Exit, reviewed: bool) -> Option<At> {
    let asks = if reviewed { At::VerdictGate } else { At::DraftGate };
    Some(match (at, exit) {
        (At::Load, Exit::Pass) | (_, Exit::Reread | Exit::Resume(Before::Questions)) => At::Preflight,
        (At::Preflight, Exit::Unclear) => At::Questions,
        (At::Preflight | At::Questions, Exit::Pass) | (_, Exit::Redraft | Exit::Resume(Before::Draft)) => {
            At::Draft
        }
        (At::Draft, Exit::Pass) => At::DraftGate,
        (At::DraftGate, Exit::Pass) if reviewed => At::Review,
        (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => At::Review,
        (At::Review, Exit::Pass | Exit::Undecided) => At::VerdictGate,
        (At::DraftGate | At::VerdictGate, Exit::Pass) => At::File,
        (At::DraftGate, Exit::AskAnew) => At::DraftGate,
        (_, Exit::AskAnew) => asks,
        (_, Exit::Money) => At::Budget,
        _ => return None,
    })
}

/// Does a model review it?
fn reviews(policy: &Policy) -> bool {
    policy.filing.as_ref().is_none_or(|filing| filing.review)
}

/// What is an issue's own.
struct Text {
    /// What the settings let it be labelled with.
    labels: Vec<String>,
}

impl Text {
    fn of(s: &Stage) -> Self {
        let filing = s.policy().ok().and_then(|policy| policy.filing.as_ref());
        Self { labels: filing.map(|filing| filing.labels.clone()).unwrap_or_default() }
    }

    async fn put(&self, accepted: Accepted<'_>, cx: &Cx) -> Result<Filed, StepError> {
        let parsed = issue::parse(accepted.text);
        let Accepted { text, signed, issue, provenance, open } = accepted;
        let allowed = |label: &String| self.labels.contains(label);
        // The way that the person named: in `/approve in-place`, or with the reason of `/override`.
        let way = signed.approval().answer.as_ref().and_then(|answer| answer.way.as_deref());
        let filing = Filing {
            title: &parsed.title,
            text: &text[parsed.body.clone()],
            labels: parsed.labels.iter().filter(|label| allowed(label)).cloned().collect(),
            issue,
            in_place: way == Some(IN_PLACE),
            provenance,
            open,
        };
        let at = publication::file(cx, filing).await?;
        Ok(at.map_or(Filed::Edited, |at| Filed::On(placed(cx, at))))
    }
}

fn placed(cx: &Cx, at: FiledAt) -> Placed {
    let summary = match at.issue == cx.run().trigger.issue {
        true => format!("issue #{} says now what was accepted", at.issue),
        false => format!("filed as issue #{}", at.issue),
    };
    Placed { issue: at.issue, outcome: Outcome { summary, url: Some(at.url) } }
}

impl Document for Text {
    fn about(&self) -> About {
        About {
            workflow: Issue::NAME,
            stage: "issue",
            what: "issue",
            commands: Issue::COMMANDS,
            steps: stage::steps(Issue::GRAPH),
            proofs: Issue::PROOFS,
            target: Target::Issue,
            roles: &["ingestor"],
        }
    }

    fn shows_from(&self) -> Option<&'static str> {
        Some("N1")
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<Gate> {
        let word = "issue";
        match step {
            "N3" if reviews(policy) => {
                Some(Gate { word, asks: Asks::Draft, on: policy.draft_gate, ways: &[] })
            }
            "N3" => Some(Gate { word, asks: Asks::Unreviewed, on: true, ways: WAYS }),
            "N5" => Some(Gate { word, asks: Asks::Verdict, on: true, ways: WAYS }),
            _ => None,
        }
    }

    fn rules(&self) -> String {
        issue::format_rules(&self.labels)
    }

    fn fix(&self, text: &str, number: IssueNo) -> String {
        issue::fix(text, number)
    }

    fn check(&self, text: &str, _number: IssueNo, tree: &TreeIndex) -> Vec<Mistake> {
        issue::check(text, &self.labels, tree)
    }

    fn facts(&self, commit: &str) -> String {
        format!(
            "- All sections are there, and no criterion rests on a word that nobody can answer yes or no to.\n\
             - Every path it lists exists at commit {commit} or is marked as new.\n"
        )
    }

    fn summary(&self, text: &str) -> String {
        issue::summary(text)
    }

    fn paths(&self, text: &str) -> Vec<String> {
        issue::parse(text).files.into_iter().map(|file| file.path).collect()
    }

    fn place_exists(&self, text: &str, place: &str, tree: &TreeIndex) -> bool {
        issue::place_exists(text, place, tree)
    }

    fn unchanged_at(&self, before: &str, now: &str, place: &str) -> bool {
        issue::unchanged_at(before, now, place)
    }

    fn file<'a>(&'a self, accepted: Accepted<'a>, cx: &'a Cx) -> BoxFuture<'a, Result<Filed, StepError>> {
        Box::pin(self.put(accepted, cx))
    }

    fn filed<'a>(&'a self, cx: &'a Cx) -> BoxFuture<'a, Result<Option<Placed>, StepError>> {
        Box::pin(async { Ok(publication::filed(cx).await?.map(|at| placed(cx, at))) })
    }
}
