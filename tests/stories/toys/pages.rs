//! `pages`: a document of several files, reviewed before people are asked; and `patch`, the same for code: pushed once it is
//! accepted, and watched until it is merged.

use countersign::{
    commands::{CommandKind, CommandSpec},
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    rounds::{Cx, Desk, Policy},
    stage::{self, About, Asks, Before, Document, Exit, Gate, Stage, Target, Visit},
    types::Role,
};
use serde::{Deserialize, Serialize};

use super::step;

pub(crate) struct Made<const CODE: bool>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum At {
    Load,
    Analyze,
    Draft,
    Check,
    Review,
    Gate,
    Publish,
    Watch,
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
            Self::Watch => step("B7", "Wait for the merge", Kind::Watch),
            Self::Money => step("BM", "Wait for money", Kind::Pause),
        }
    }
}

const PAGES: &[(At, &[At])] = &[
    (At::Load, &[At::Analyze]),
    (At::Analyze, &[At::Draft]),
    (At::Draft, &[At::Check, At::Draft, At::Review, At::Money]),
    (At::Check, &[At::Review, At::Draft]),
    (At::Review, &[At::Gate, At::Draft, At::Review, At::Money]),
    (At::Gate, &[At::Publish, At::Analyze, At::Check, At::Gate, At::Review]),
    (At::Publish, &[At::Check, At::Gate]),
    (At::Money, &[At::Draft, At::Review]),
];

const PATCH: &[(At, &[At])] = &[
    (At::Load, &[At::Analyze]),
    (At::Analyze, &[At::Draft]),
    (At::Draft, &[At::Check, At::Draft, At::Review, At::Watch, At::Money]),
    (At::Check, &[At::Review, At::Draft]),
    (At::Review, &[At::Gate, At::Draft, At::Review, At::Money]),
    (At::Gate, &[At::Publish, At::Analyze, At::Gate, At::Review]),
    (At::Publish, &[At::Gate, At::Watch]),
    (At::Watch, &[At::Analyze]),
    (At::Money, &[At::Draft, At::Review]),
];

const COMMAND: CommandSpec = CommandSpec {
    name: "pages",
    usage: "/pages",
    about: "write some pages",
    role: Role::Triage,
    label: Some("countersign:pages"),
    kind: CommandKind::Starts,
};

impl<const CODE: bool> Workflow<Desk> for Made<CODE> {
    const NAME: &'static str = if CODE { "patch" } else { "pages" };
    const VERSION: u32 = 1;
    type Step = At;
    type State = Stage;
    const GRAPH: &'static [(At, &'static [At])] = if CODE { PATCH } else { PAGES };
    const PROOFS: &'static [Proof] = &[Proof::Policy];
    const COMMANDS: &'static [CommandSpec] = &[if CODE {
        CommandSpec { name: "patch", usage: "/patch", label: Some("countersign:patch"), ..COMMAND }
    } else {
        COMMAND
    }];

    fn max_iterations() -> u32 {
        10
    }

    fn start(&self, _trigger: &Trigger) -> Stage {
        Stage::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut Stage, cx: &'a Cx) -> Result<Next<At>, StepError> {
        let v = &Visit::begin(s, &Text::<CODE>, at, cx);
        let exit = match at {
            At::Load => stage::load(s, v).await?,
            At::Analyze => stage::analyze(s, v).await?,
            At::Draft => stage::draft(s, v).await?,
            At::Check => stage::check(s, v).await?,
            At::Review => stage::review(s, v).await?,
            At::Gate => stage::gate(s, v).await?,
            At::Publish => stage::publish(s, v).await?,
            At::Watch => stage::watch(s, v).await?,
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
            (At::Publish, Exit::Pass) | (At::Draft, Exit::AsPushed) => Some(At::Watch),
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
        stage::halted(s, halt, (&Text::<CODE>, at), cx).await
    }
}

struct Text<const CODE: bool>;

impl<const CODE: bool> Document for Text<CODE> {
    fn about(&self) -> About {
        About {
            workflow: Made::<CODE>::NAME,
            stage: Made::<CODE>::NAME,
            what: Made::<CODE>::NAME,
            commands: Made::<CODE>::COMMANDS,
            steps: stage::steps(Made::<CODE>::GRAPH),
            proofs: Made::<CODE>::PROOFS,
            target: if CODE { Target::Code } else { Target::Branch },
            roles: &["architect"],
        }
    }
    fn gate(&self, step: &str, policy: &Policy) -> Option<Gate> {
        let gate = Gate { word: Made::<CODE>::NAME, asks: Asks::Verdict, on: policy.verdict_gate, ways: &[] };
        (step == "B5").then_some(gate)
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
