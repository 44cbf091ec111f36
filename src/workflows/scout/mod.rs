//! `scout`: researches existing solutions by others before anything is designed. The result is a brief with a source
//! for each claim.
//!
//! [`ScoutWorkflow::GRAPH`] lists all transitions. Searching and reading are in `search`, the format of the brief is in
//! [`documents::scout`](crate::documents::scout), and the bodies of the other steps are in [`stage`]. The brief
//! compares the work of others, so models see nothing of this repository except the issue unless the settings allow
//! more.

mod search;

use serde::{Deserialize, Serialize};

use crate::{
    codebase::TreeIndex,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowDefaults},
    documents::{
        DocumentMistake, lld,
        scout::{self, ScoutEvidence, ScoutSource},
    },
    engine::{
        LesserProof, RunCompletion, RunHalt, RunTrigger, StepError, StepInfo, StepKind, Transition, Workflow,
        WorkflowStep,
    },
    rounds::{Policy, StepContext, StepServices},
    stage::{
        self, DocumentGate, DocumentInfo, GateQuestion, PublicationTarget, StageCall, StageDocument,
        StageState, StepResult, StepVisit,
    },
    types::{IssueNo, Role},
};

/// The `scout` workflow.
pub struct ScoutWorkflow;

/// Names and defaults of the workflow's settings.
pub(super) const TABLE: WorkflowDefaults = WorkflowDefaults {
    searches: true,
    ..WorkflowDefaults::for_document(ScoutWorkflow::NAME, "docs/scout/{slug}-{issue}.md")
};

/// Number of steps from a search to the model call that plans further searches.
const STEPS_PER_SEARCH: u64 = 3;

/// The steps of `scout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScoutStep {
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

impl WorkflowStep for ScoutStep {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("S0", "Load the question", StepKind::Work),
            Self::Search => ("S1", "Search", StepKind::Work),
            Self::Read => ("S2", "Read the results", StepKind::Work),
            Self::Further => ("S2b", "Plan another search", StepKind::Work),
            Self::Draft => ("S3", "Write the brief", StepKind::Draft),
            Self::Check => ("S3b", "Check the brief", StepKind::Work),
            Self::Review => ("S4", "Adversarial review", StepKind::Review),
            Self::Gate => ("S5", "Human gate", StepKind::Gate),
            Self::Publish => ("S6", "Publish", StepKind::Publish),
            Self::Budget => ("SM", "Wait for budget", StepKind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

/// State of a `scout` run between two steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ScoutRunState {
    stage: StageState,
    topic: String,
    found: Vec<ScoutSource>,
    /// Search terms by which each source was found.
    #[serde(default)]
    words: Vec<scout::SearchTerms>,
    /// Description that each source gives of itself. `homes` contains the home page that each source names.
    #[serde(default)]
    abouts: Vec<String>,
    #[serde(default)]
    homes: Vec<Option<String>>,
    /// Whether a model, rather than only our own code, planned the searches.
    #[serde(default)]
    planned: bool,
    /// All searches made so far. `first` is the number of searches made before any source was read.
    #[serde(default)]
    searched: Vec<scout::SearchTerms>,
    #[serde(default)]
    first: usize,
    /// Searches to be made next.
    #[serde(default)]
    further: Vec<scout::SearchTerms>,
    /// Number of further search rounds made. `before` is the number of sources that were known before the last round.
    #[serde(default)]
    deeper: u8,
    #[serde(default)]
    before: usize,
    /// URLs of the pages outside GitHub that were read.
    #[serde(default)]
    pages: Vec<String>,
}

impl Workflow<StepServices> for ScoutWorkflow {
    const NAME: &'static str = "scout";
    const VERSION: u32 = 1;
    type Step = ScoutStep;
    type State = ScoutRunState;

    const GRAPH: &'static [(ScoutStep, &'static [ScoutStep])] = &[
        (ScoutStep::Load, &[ScoutStep::Search]),
        (ScoutStep::Search, &[ScoutStep::Read]),
        (ScoutStep::Read, &[ScoutStep::Further]),
        (ScoutStep::Further, &[ScoutStep::Draft, ScoutStep::Search]),
        (ScoutStep::Draft, &[ScoutStep::Check, ScoutStep::Draft, ScoutStep::Review, ScoutStep::Budget]),
        (ScoutStep::Check, &[ScoutStep::Review, ScoutStep::Draft]),
        (ScoutStep::Review, &[ScoutStep::Gate, ScoutStep::Draft, ScoutStep::Review, ScoutStep::Budget]),
        (
            ScoutStep::Gate,
            &[ScoutStep::Publish, ScoutStep::Read, ScoutStep::Check, ScoutStep::Gate, ScoutStep::Review],
        ),
        (ScoutStep::Publish, &[ScoutStep::Check, ScoutStep::Gate]),
        (ScoutStep::Budget, &[ScoutStep::Draft, ScoutStep::Review]),
    ];

    const PROOFS: &'static [LesserProof] = &[LesserProof::Policy];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "scout",
        usage: "/scout TOPIC",
        about: "find out what other repositories do about TOPIC or the issue's title, and write a brief",
        role: Role::Triage,
        label: Some("countersign:scout"),
        kind: CommandKind::Start,
    }];

    fn max_iterations() -> u32 {
        // A round that never reaches review counts as well.
        2 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &RunTrigger) -> ScoutRunState {
        ScoutRunState::default()
    }

    async fn run<'a>(
        &'a self,
        at: ScoutStep,
        s: &'a mut ScoutRunState,
        cx: &'a StepContext,
    ) -> Result<Transition<ScoutStep>, StepError> {
        let text =
            if at == ScoutStep::Check { BriefDocument::read(s, cx).await? } else { BriefDocument::default() };
        let v = &StepVisit::begin(&mut s.stage, &text, at, cx);
        let exit = match at {
            ScoutStep::Load => load_topic(s, v).await?,
            ScoutStep::Search => search::search_repositories(s, v).await?,
            ScoutStep::Read => load(s, v).await?,
            ScoutStep::Further => {
                search::plan_further_searches(s, v).await?;
                if s.further.is_empty() {
                    return Ok(Transition::Go(ScoutStep::Draft));
                }
                s.stage.add_extra_steps(STEPS_PER_SEARCH);
                return Ok(Transition::Go(ScoutStep::Search));
            }
            ScoutStep::Draft => stage::write_draft(&mut s.stage, v).await?,
            ScoutStep::Check => {
                stage::fix_draft(&mut s.stage, v).await?;
                stage::check_draft(&mut s.stage, v).await?
            }
            ScoutStep::Review => stage::review_draft(&mut s.stage, v).await?,
            ScoutStep::Gate => stage::run_gate(&mut s.stage, v).await?,
            ScoutStep::Publish => stage::publish_document(&mut s.stage, v).await?,
            ScoutStep::Budget => stage::wait_for_budget(&mut s.stage, v).await?,
        };
        exit.into_next(|exit| next_step(at, exit))
    }

    async fn report_halt<'a>(
        &'a self,
        at: ScoutStep,
        s: &'a ScoutRunState,
        halt: &'a RunHalt,
        cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        stage::report_halt(&s.stage, halt, (&BriefDocument::default(), at), cx).await
    }
}

async fn load_topic(s: &mut ScoutRunState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let exit = stage::load_issue(&mut s.stage, v).await?;
    let (args, title) = (&v.cx.run().trigger.args, &s.stage.issue()?.title);
    s.topic = search::topic(args, title);
    let slug = slug(args, title);
    s.stage.set_path_slug(&slug)?;
    Ok(exit)
}

/// Returns the slug in the brief's file name, derived from the command's arguments or the issue's title.
pub fn slug(args: &str, title: &str) -> String {
    search::slug(&search::topic(args, title))
}

/// Loads the run's sources once, and the current head commit of this repository. The repository's code is loaded only
/// if the settings allow it.
async fn load(s: &mut ScoutRunState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    if s.stage.is_fresh() {
        search::read_found(s, v).await?;
    }
    match s.stage.policy()?.search.as_ref().is_some_and(|search| search.send_code) {
        true => {
            stage::analyze_codebase(&mut s.stage, v).await?;
            stage::add_similar_commits(&mut s.stage, v.cx, &s.topic).await?;
        }
        false => drop(stage::skip_codebase(&mut s.stage, v).await?),
    }
    let first = s.found.first().map_or(&s.stage.issue()?.url, |source| &source.url).clone();
    s.stage.set_sample(first, scout::table_rows(&s.found)[0].clone());
    Ok(StepResult::Pass)
}

fn next_step(at: ScoutStep, exit: &StepResult) -> Option<ScoutStep> {
    Some(match (at, exit) {
        (ScoutStep::Load, StepResult::Pass) => ScoutStep::Search,
        (ScoutStep::Search, StepResult::Pass) | (_, StepResult::Reread) => ScoutStep::Read,
        (ScoutStep::Read, StepResult::Pass) => ScoutStep::Further,
        (_, StepResult::Redraft | StepResult::Resume(StageCall::Draft)) => ScoutStep::Draft,
        (ScoutStep::Draft, StepResult::Pass) | (_, StepResult::ForeignVersion) => ScoutStep::Check,
        (ScoutStep::Check, StepResult::Pass)
        | (_, StepResult::Resume(StageCall::Review) | StepResult::ReviewAgain) => ScoutStep::Review,
        (ScoutStep::Review, StepResult::Pass | StepResult::Undecided) | (_, StepResult::ReopenGate) => {
            ScoutStep::Gate
        }
        (ScoutStep::Gate, StepResult::Pass) => ScoutStep::Publish,
        (_, StepResult::OutOfBudget) => ScoutStep::Budget,
        _ => return None,
    })
}

#[derive(Default)]
struct BriefDocument(ScoutEvidence);

impl BriefDocument {
    async fn read(s: &ScoutRunState, cx: &StepContext) -> Result<Self, StepError> {
        let mut texts = Vec::new();
        for kind in search::background_kinds(s.found.len()) {
            texts.push(s.stage.background_text(&kind, cx).await?);
        }
        let (first, then) = s.searched.split_at(s.first.min(s.searched.len()));
        let [first, then] = [first, then].map(|all| all.iter().map(|words| words.join(" ")).collect());
        let (issue, pages) = (s.stage.issue()?.url.clone(), s.pages.clone());
        Ok(Self(ScoutEvidence { found: s.found.clone(), texts, issue, pages, searched: [first, then] }))
    }
}

impl StageDocument for BriefDocument {
    fn info(&self) -> DocumentInfo {
        DocumentInfo {
            workflow: ScoutWorkflow::NAME,
            stage: "scout",
            what: "brief on what other repositories do",
            commands: ScoutWorkflow::COMMANDS,
            steps: stage::step_infos(ScoutWorkflow::GRAPH),
            proofs: ScoutWorkflow::PROOFS,
            target: PublicationTarget::Branch,
            roles: &["architect"],
        }
    }

    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate> {
        (step == ScoutStep::Gate.id()).then_some(DocumentGate {
            word: "scout",
            question: GateQuestion::Verdict,
            is_on: policy.verdict_gate,
            options: &[],
        })
    }

    fn rules(&self) -> String {
        scout::format_rules()
    }

    fn fix(&self, text: &str, issue: IssueNo) -> String {
        scout::fix(text, issue, &self.0)
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<DocumentMistake> {
        scout::check(text, issue, tree, &self.0)
    }

    fn facts(&self, _commit: &str) -> String {
        "- The repositories of its table are those that were found, with stars and licence as GitHub tells them.\n\
         - Every address in it is that of a source or of the issue, is below one of these, or is that of a page that was read. \
         Every claim about other projects cites one.\n\
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
