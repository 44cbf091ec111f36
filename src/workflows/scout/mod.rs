//! `scout`: what others made of a question, before anything is designed: a brief with the source of each claim.
//!
//! [`Scout::GRAPH`] is the whole of what may follow what. What is looked for and read is in `search`, what a brief has to have
//! in [`documents::scout`](crate::documents::scout), and what a step does otherwise is the [`stage`]'s. Unless the settings
//! say so, no model is shown anything of this repository but its issue: what is compared is others' work.

mod search;

use serde::{Deserialize, Serialize};

use crate::{
    codebase::TreeIndex,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowTable},
    documents::{
        Mistake, lld,
        scout::{self, Known, Source},
    },
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    rounds::{Cx, Desk, Policy},
    stage::{self, About, Asks, Before, Document, Exit, Gate, Stage, Target, Visit},
    types::{IssueNo, Role},
};

/// The workflow.
pub struct Scout;

/// What its settings are called, and its defaults.
pub(super) const TABLE: WorkflowTable =
    WorkflowTable { searches: true, ..WorkflowTable::of(Scout::NAME, "docs/scout/{slug}-{issue}.md") };

/// From a search to the question what else to search for.
const ROUND: u64 = 3;

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum At {
    Load,
    Search,
    Read,
    Further,
    Draft,
    Check,
    Review,
    Gate,
    Publish,
    Budget,
}

impl Step for At {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("S0", "Load the question", Kind::Work),
            Self::Search => ("S1", "Search", Kind::Work),
            Self::Read => ("S2", "Read what was found", Kind::Work),
            Self::Further => ("S2b", "Ask what else to search for", Kind::Work),
            Self::Draft => ("S3", "Write the brief", Kind::Draft),
            Self::Check => ("S3b", "Check the brief", Kind::Work),
            Self::Review => ("S4", "Adversarial review", Kind::Review),
            Self::Gate => ("S5", "Human gate", Kind::Gate),
            Self::Publish => ("S6", "Publish", Kind::Publish),
            Self::Budget => ("SM", "Wait for money", Kind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

/// What a run knows between its steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    stage: Stage,
    /// What is looked for.
    topic: String,
    found: Vec<Source>,
    /// What each of them was found by.
    #[serde(default)]
    words: Vec<scout::Words>,
    /// What each says of itself, and the home page it names.
    #[serde(default)]
    abouts: Vec<String>,
    #[serde(default)]
    homes: Vec<Option<String>>,
    /// A model said what to search for.
    #[serde(default)]
    planned: bool,
    /// All that was searched for; so many before anything was read.
    #[serde(default)]
    searched: Vec<scout::Words>,
    #[serde(default)]
    first: usize,
    /// What is to be searched for next.
    #[serde(default)]
    further: Vec<scout::Words>,
    /// How often what was read led to another search, and how much was found before the last one.
    #[serde(default)]
    deeper: u8,
    #[serde(default)]
    before: usize,
    /// Pages that were read, besides what GitHub tells.
    #[serde(default)]
    pages: Vec<String>,
}

impl Workflow<Desk> for Scout {
    const NAME: &'static str = "scout";
    const VERSION: u32 = 1;
    type Step = At;
    type State = State;

    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Search]),
        (At::Search, &[At::Read]),
        (At::Read, &[At::Further]),
        (At::Further, &[At::Draft, At::Search]),
        (At::Draft, &[At::Check, At::Draft, At::Review, At::Budget]),
        (At::Check, &[At::Review, At::Draft]),
        (At::Review, &[At::Gate, At::Draft, At::Review, At::Budget]),
        (At::Gate, &[At::Publish, At::Read, At::Check, At::Gate, At::Review]),
        (At::Publish, &[At::Check, At::Gate]),
        (At::Budget, &[At::Draft, At::Review]),
    ];

    const PROOFS: &'static [Proof] = &[Proof::Policy];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "scout",
        usage: "/scout TOPIC",
        about: "look at what other repositories do about TOPIC, or about the issue's title, and write a brief of it",
        role: Role::Triage,
        label: Some("countersign:scout"),
        kind: CommandKind::Starts,
    }];

    fn max_iterations() -> u32 {
        // A round that never reaches review goes round as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &Trigger) -> State {
        State::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut State, cx: &'a Cx) -> Result<Next<At>, StepError> {
        let text = if at == At::Check { Text::read(s, cx).await? } else { Text::default() };
        let v = &Visit::begin(&mut s.stage, &text, at, cx);
        let exit = match at {
            At::Load => load(s, v).await?,
            At::Search => search::search(s, v).await?,
            At::Read => read(s, v).await?,
            At::Further => {
                search::further(s, v).await?;
                if s.further.is_empty() {
                    return Ok(Next::Go(At::Draft));
                }
                s.stage.goes_round(ROUND);
                return Ok(Next::Go(At::Search));
            }
            At::Draft => stage::draft(&mut s.stage, v).await?,
            At::Check => {
                stage::fix(&mut s.stage, v).await?;
                stage::check(&mut s.stage, v).await?
            }
            At::Review => stage::review(&mut s.stage, v).await?,
            At::Gate => stage::gate(&mut s.stage, v).await?,
            At::Publish => stage::publish(&mut s.stage, v).await?,
            At::Budget => stage::budget(&mut s.stage, v).await?,
        };
        exit.next(|exit| edge(at, exit))
    }

    async fn halted<'a>(
        &'a self,
        at: At,
        s: &'a State,
        halt: &'a Halt,
        cx: &'a Cx,
    ) -> Result<Option<Outcome>, StepError> {
        stage::halted(&s.stage, halt, (&Text::default(), at), cx).await
    }
}

async fn load(s: &mut State, v: &Visit<'_>) -> Result<Exit, StepError> {
    let exit = stage::load(&mut s.stage, v).await?;
    let (args, title) = (&v.cx.run().trigger.args, &s.stage.issue()?.title);
    s.topic = search::topic(args, title);
    let slug = slug(args, title);
    s.stage.name_after(&slug)?;
    Ok(exit)
}

/// What the brief's file is called after, where a run was started with these words on an issue of this title.
pub fn slug(args: &str, title: &str) -> String {
    search::slug(&search::topic(args, title))
}

/// Reads the sources, once, and of this repository where it stands; its code where the settings let it be shown.
async fn read(s: &mut State, v: &Visit<'_>) -> Result<Exit, StepError> {
    if s.stage.fresh() {
        search::read(s, v).await?;
    }
    match s.stage.policy()?.search.as_ref().is_some_and(|search| search.send_code) {
        true => {
            stage::analyze(&mut s.stage, v).await?;
            stage::commits(&mut s.stage, v.cx, &s.topic).await?;
        }
        false => drop(stage::without_code(&mut s.stage, v).await?),
    }
    let first = s.found.first().map_or(&s.stage.issue()?.url, |source| &source.url).clone();
    s.stage.sample(first, scout::rows(&s.found)[0].clone());
    Ok(Exit::Pass)
}

/// Where a step's end leads.
fn edge(at: At, exit: &Exit) -> Option<At> {
    Some(match (at, exit) {
        (At::Load, Exit::Pass) => At::Search,
        (At::Search, Exit::Pass) | (_, Exit::Reread) => At::Read,
        (At::Read, Exit::Pass) => At::Further,
        (_, Exit::Redraft | Exit::Resume(Before::Draft)) => At::Draft,
        (At::Draft, Exit::Pass) | (_, Exit::Theirs) => At::Check,
        (At::Check, Exit::Pass) | (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => At::Review,
        (At::Review, Exit::Pass | Exit::Undecided) | (_, Exit::AskAnew) => At::Gate,
        (At::Gate, Exit::Pass) => At::Publish,
        (_, Exit::Money) => At::Budget,
        _ => return None,
    })
}

/// What is a brief's own.
#[derive(Default)]
struct Text(Known);

impl Text {
    async fn read(s: &State, cx: &Cx) -> Result<Self, StepError> {
        let mut texts = Vec::new();
        for kind in search::kinds(s.found.len()) {
            texts.push(s.stage.told(&kind, cx).await?);
        }
        let (first, then) = s.searched.split_at(s.first.min(s.searched.len()));
        let [first, then] = [first, then].map(|all| all.iter().map(|words| words.join(" ")).collect());
        let (issue, pages) = (s.stage.issue()?.url.clone(), s.pages.clone());
        Ok(Self(Known { found: s.found.clone(), texts, issue, pages, searched: [first, then] }))
    }
}

impl Document for Text {
    fn about(&self) -> About {
        About {
            workflow: Scout::NAME,
            stage: "scout",
            what: "brief on what other repositories do",
            commands: Scout::COMMANDS,
            steps: stage::steps(Scout::GRAPH),
            proofs: Scout::PROOFS,
            target: Target::Branch,
            roles: &["architect"],
        }
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<Gate> {
        (step == "S5").then_some(Gate {
            word: "scout",
            asks: Asks::Verdict,
            on: policy.verdict_gate,
            ways: &[],
        })
    }

    fn rules(&self) -> String {
        scout::format_rules()
    }

    fn fix(&self, text: &str, issue: IssueNo) -> String {
        scout::fix(text, issue, &self.0)
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<Mistake> {
        scout::check(text, issue, tree, &self.0)
    }

    fn facts(&self, _commit: &str) -> String {
        "- The repositories of its table are those that were found, with stars and licence as GitHub tells them.\n\
         - Every address in it is that of a source or of the issue, or below one, or exactly that of a page that was read; \
         every claim about others has one.\n\
         - No long piece of it is copied from a source. Whether a source says what is claimed was not judged.\n"
            .to_owned()
    }

    fn summary(&self, text: &str) -> String {
        scout::summary(text)
    }

    fn place_exists(&self, text: &str, place: &str, tree: &TreeIndex) -> bool {
        scout::place_exists(text, place, tree)
    }

    fn line_of(&self, text: &str, place: &str) -> Option<usize> {
        lld::line_of(text, place)
    }

    fn unchanged_at(&self, before: &str, now: &str, place: &str) -> bool {
        lld::unchanged_at(before, now, place)
    }
}
