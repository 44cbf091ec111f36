//! `note`: people say yes before the review, and what it approves is filed on the issue alone.

use countersign::{
    commands::{CommandKind, CommandSpec},
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    github::{Body, outbound::clean},
    rounds::{Cx, Desk, Policy, fault},
    stage::{self, About, Accepted, Asks, Before, Document, Exit, Filed, Gate, Placed, Stage, Target, Visit},
    types::Role,
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::step;

pub(crate) struct Note;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum At {
    Load,
    Analyze,
    Draft,
    Gate,
    Review,
    File,
    Money,
}

impl Step for At {
    fn info(self) -> StepInfo {
        match self {
            Self::Load => step("A0", "Load", Kind::Work),
            Self::Analyze => step("A1", "Analyze", Kind::Work),
            Self::Draft => step("A2", "Draft", Kind::Draft),
            Self::Gate => step("A3", "Ask", Kind::Gate),
            Self::Review => step("A4", "Review", Kind::Review),
            Self::File => step("A5", "File", Kind::Publish),
            Self::Money => step("AM", "Wait for money", Kind::Pause),
        }
    }
}

impl Workflow<Desk> for Note {
    const NAME: &'static str = "note";
    const VERSION: u32 = 1;
    type Step = At;
    type State = Stage;
    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Analyze]),
        (At::Analyze, &[At::Draft]),
        (At::Draft, &[At::Gate, At::Draft, At::Review, At::Money]),
        (At::Gate, &[At::Review, At::Analyze, At::Gate]),
        (At::Review, &[At::File, At::Draft, At::Gate, At::Review, At::Money]),
        (At::File, &[At::Gate]),
        (At::Money, &[At::Draft, At::Review]),
    ];
    const PROOFS: &'static [Proof] = &[Proof::Policy];
    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "note",
        usage: "/note",
        about: "write a note",
        role: Role::Triage,
        label: Some("countersign:note"),
        kind: CommandKind::Starts,
    }];

    fn max_iterations() -> u32 {
        10
    }

    fn start(&self, _trigger: &Trigger) -> Stage {
        Stage::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut Stage, cx: &'a Cx) -> Result<Next<At>, StepError> {
        let v = &Visit::begin(s, &Text, at, cx);
        let exit = match at {
            At::Load => stage::load(s, v).await?,
            At::Analyze => stage::analyze(s, v).await?,
            At::Draft => stage::draft(s, v).await?,
            At::Gate => stage::gate(s, v).await?,
            At::Review => stage::review(s, v).await?,
            At::File => stage::publish(s, v).await?,
            At::Money => stage::budget(s, v).await?,
        };
        exit.next(|exit| match (at, exit) {
            (At::Load, Exit::Pass) | (_, Exit::Reread) => Some(At::Analyze),
            (At::Analyze, Exit::Pass) | (_, Exit::Redraft | Exit::Resume(Before::Draft)) => Some(At::Draft),
            (At::Draft, Exit::Pass) | (_, Exit::AskAnew | Exit::Undecided) => Some(At::Gate),
            (At::Gate, Exit::Pass) | (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => {
                Some(At::Review)
            }
            (At::Review, Exit::Pass) => Some(At::File),
            (_, Exit::Money) => Some(At::Money),
            _ => None,
        })
    }

    async fn halted<'a>(
        &'a self,
        at: At,
        s: &'a Stage,
        halt: &'a Halt,
        cx: &'a Cx,
    ) -> Result<Option<Outcome>, StepError> {
        stage::halted(s, halt, (&Text, at), cx).await
    }
}

struct Text;

fn marker(cx: &Cx) -> String {
    format!("filed-{}", cx.run().id)
}

fn placed(cx: &Cx, url: String) -> Placed {
    let outcome = Outcome { summary: "the note is filed".to_owned(), url: Some(url) };
    Placed { issue: cx.run().trigger.issue, outcome }
}

impl Document for Text {
    fn about(&self) -> About {
        About {
            workflow: Note::NAME,
            stage: "note",
            what: "note",
            commands: Note::COMMANDS,
            steps: stage::steps(Note::GRAPH),
            proofs: Note::PROOFS,
            target: Target::Issue,
            roles: &["architect"],
        }
    }
    fn gate(&self, _step: &str, policy: &Policy) -> Option<Gate> {
        Some(Gate { word: "text", asks: Asks::Beforehand, on: policy.verdict_gate, ways: &[] })
    }
    fn rules(&self) -> String {
        "A text.".to_owned()
    }
    fn summary(&self, text: &str) -> String {
        text.chars().take(200).collect()
    }
    fn file<'a>(&'a self, accepted: Accepted<'a>, cx: &'a Cx) -> BoxFuture<'a, Result<Filed, StepError>> {
        Box::pin(async move {
            let repo = cx.tools().repo(cx).await?;
            let body = Body::frame(format!("Filed:\n\n{}", clean(accepted.text, 300)));
            let marker = marker(cx);
            let url: String = cx
                .once("filed", |entry| async move {
                    let issue = cx.run().trigger.issue;
                    let posted = repo.ensure_comment(issue, &marker, &body, entry.interrupted).await;
                    posted.map(|comment| comment.url).map_err(fault)
                })
                .await?;
            Ok(Filed::On(placed(cx, url)))
        })
    }
    fn filed<'a>(&'a self, cx: &'a Cx) -> BoxFuture<'a, Result<Option<Placed>, StepError>> {
        Box::pin(async move {
            let repo = cx.tools().repo(cx).await?;
            let found = repo.read_comment(cx.run().trigger.issue, &marker(cx)).await.map_err(fault)?;
            Ok(found.map(|(comment, _)| placed(cx, comment.url)))
        })
    }
}
