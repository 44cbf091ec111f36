//! `pages`: a document of several files, reviewed before people are asked.

use countersign::{
    commands::{CommandKind, CommandSpec},
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    rounds::{Cx, Desk, Policy},
    stage::{self, About, Asks, Before, Document, Exit, Gate, Stage, Target, Visit},
    types::Role,
};
use serde::{Deserialize, Serialize};

use super::step;

pub(crate) struct Pages;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum At {
    Load,
    Analyze,
    Draft,
    Check,
    Review,
    Gate,
    Publish,
    Money,
}

impl Step for At {
    fn info(self) -> StepInfo {
        match self {
            Self::Load => step("B0", "Load", Kind::Work),
            Self::Analyze => step("B1", "Analyze", Kind::Work),
            Self::Draft => step("B2", "Draft", Kind::Draft),
            Self::Check => step("B3", "Check", Kind::Work),
            Self::Review => step("B4", "Review", Kind::Review),
            Self::Gate => step("B5", "Ask", Kind::Gate),
            Self::Publish => step("B6", "Publish", Kind::Publish),
            Self::Money => step("BM", "Wait for money", Kind::Pause),
        }
    }
}

impl Workflow<Desk> for Pages {
    const NAME: &'static str = "pages";
    const VERSION: u32 = 1;
    type Step = At;
    type State = Stage;
    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Analyze]),
        (At::Analyze, &[At::Draft]),
        (At::Draft, &[At::Check, At::Draft, At::Review, At::Money]),
        (At::Check, &[At::Review, At::Draft]),
        (At::Review, &[At::Gate, At::Draft, At::Review, At::Money]),
        (At::Gate, &[At::Publish, At::Analyze, At::Check, At::Gate, At::Review]),
        (At::Publish, &[At::Check, At::Gate]),
        (At::Money, &[At::Draft, At::Review]),
    ];
    const PROOFS: &'static [Proof] = &[Proof::Policy];
    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "pages",
        usage: "/pages",
        about: "write some pages",
        role: Role::Triage,
        label: Some("countersign:pages"),
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
            At::Check => stage::check(s, v).await?,
            At::Review => stage::review(s, v).await?,
            At::Gate => stage::gate(s, v).await?,
            At::Publish => stage::publish(s, v).await?,
            At::Money => stage::budget(s, v).await?,
        };
        exit.next(|exit| match (at, exit) {
            (At::Load, Exit::Pass) | (_, Exit::Reread) => Some(At::Analyze),
            (At::Analyze, Exit::Pass) | (_, Exit::Redraft | Exit::Resume(Before::Draft)) => Some(At::Draft),
            (At::Draft, Exit::Pass) | (_, Exit::Theirs) => Some(At::Check),
            (At::Check, Exit::Pass) | (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => {
                Some(At::Review)
            }
            (At::Review, Exit::Pass | Exit::Undecided) | (_, Exit::AskAnew) => Some(At::Gate),
            (At::Gate, Exit::Pass) => Some(At::Publish),
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

impl Document for Text {
    fn about(&self) -> About {
        About {
            workflow: Pages::NAME,
            stage: "pages",
            what: "pages",
            commands: Pages::COMMANDS,
            steps: stage::steps(Pages::GRAPH),
            proofs: Pages::PROOFS,
            target: Target::Branch,
        }
    }
    fn gate(&self, _step: &str, policy: &Policy) -> Option<Gate> {
        Some(Gate { word: "pages", asks: Asks::Verdict, on: policy.verdict_gate, ways: &[] })
    }
    fn rules(&self) -> String {
        "A text.".to_owned()
    }
    fn summary(&self, text: &str) -> String {
        text.chars().take(200).collect()
    }
    fn files(&self, text: &str) -> Result<Vec<(String, Option<String>)>, StepError> {
        let parts = text.split("\n## ").skip(1).take(2).enumerate();
        Ok(parts.map(|(n, part)| (format!("docs/pages/{}.md", n + 1), Some(format!("# {part}\n")))).collect())
    }
}
