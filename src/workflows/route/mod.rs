//! `route`: finds the workflow that a free-text request asks for.
//!
//! A routing run is a run like any other. Its calls are recorded and count towards the budgets, no call is paid twice
//! after a crash, and the inbox does not wait for a model. The run creates no document. Its last step starts a run of
//! another workflow with the permissions of the requester, answers a question, or tells people which commands they can
//! write.

mod answer;
mod read;

use serde::{Deserialize, Serialize};

use crate::{
    commands::{CommandKind, CommandSpec, ROUTE},
    config::{RouteMode, WorkflowDefaults},
    documents::routing::{
        PROMPT_VERSION, RoutingAction, RoutingDecision, RoutingMethod, Skill, SkillFault, decide_by_name,
        find_named_skill,
    },
    engine::{
        LedgerRecord, RouteRow, RoutedRequest, RunCompletion, RunFilter, RunHalt, RunInfo, RunTrigger,
        StartDecision, StepError, StepInfo, StepKind, Transition, Workflow, WorkflowStep,
    },
    messages::{self, ConflictingRunState, DeclineReason, RouteCard, RouteOffer},
    rounds::{
        BaseCommit, IssueSnapshot, Policy, RoutingRequest, RoutingResult, StepContext, StepServices,
        load_text, post_announcement, require_state, route_request,
    },
    store::RunRow,
    types::{Hash, Role, RunId},
};

/// The `route` workflow.
pub struct RouteWorkflow;

/// Names of the workflow's settings.
pub(super) const TABLE: WorkflowDefaults =
    WorkflowDefaults { routes: true, ..WorkflowDefaults::for_document(RouteWorkflow::NAME, "") };

/// Time for which a decision is reused for a request with the same words. A request that offered a choice also stays
/// open for this time.
const DECISION_LIFETIME: std::time::Duration = std::time::Duration::from_secs(24 * 3600);

/// Cost of a single call, in micro-dollars, above which the operator is alerted. `MEAN_ALERT_MICROUSD` is the limit for
/// the mean cost of the last [`MEAN_SAMPLE`] requests.
pub const CALL_ALERT_MICROUSD: u64 = 10_000;
pub const MEAN_ALERT_MICROUSD: u64 = 5_000;
pub const MEAN_SAMPLE: u32 = 100;

/// The steps of `route`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RouteStep {
    Read,
    Choose,
    Begin,
    Answer,
}

impl WorkflowStep for RouteStep {
    fn info(self) -> StepInfo {
        let (id, title) = match self {
            Self::Read => ("R0", "Read the request"),
            Self::Choose => ("R1", "Choose the workflow"),
            Self::Begin => ("R2", "Start it, or ask"),
            Self::Answer => ("R3", "Answer the question"),
        };
        StepInfo { id, title, kind: StepKind::Work }
    }
}

/// State of a `route` run between two steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RouteRunState {
    policy: Option<Policy>,
    title: String,
    labels: Vec<String>,
    /// Hash of the stored body of the issue. `request` is the hash of the request's visible text.
    body: Option<Hash>,
    request: Option<Hash>,
    /// The issue on which a question was asked. `base` is the commit whose code is used for the answer.
    #[serde(default)]
    issue: Option<IssueSnapshot>,
    #[serde(default)]
    base: Option<BaseCommit>,
    /// Hash of the stored skills as JSON. The skills are kept outside the state because they are long.
    catalog: Option<Hash>,
    /// The skills, loaded only while a step runs.
    #[serde(skip)]
    skills: Vec<Skill>,
    faults: Vec<SkillFault>,
    chosen: Option<RouteChoice>,
}

/// The routing decision and the action that follows from it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RouteChoice {
    decision: RoutingDecision,
    lead: RoutingAction,
    fell_back: Option<String>,
}

impl Workflow<StepServices> for RouteWorkflow {
    const NAME: &'static str = ROUTE;
    const VERSION: u32 = 1;
    type Step = RouteStep;
    type State = RouteRunState;

    const GRAPH: &'static [(RouteStep, &'static [RouteStep])] = &[
        (RouteStep::Read, &[RouteStep::Choose]),
        (RouteStep::Choose, &[RouteStep::Begin, RouteStep::Answer]),
        (RouteStep::Begin, &[]),
        (RouteStep::Answer, &[]),
    ];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: ROUTE,
        usage: "/route TEXT",
        about: "start the workflow that TEXT asks for; a line that begins with the App's name does the same",
        role: Role::Triage,
        label: None,
        kind: CommandKind::Start,
    }];

    fn max_iterations() -> u32 {
        1
    }

    fn start(&self, _trigger: &RunTrigger) -> RouteRunState {
        RouteRunState::default()
    }

    async fn run<'a>(
        &'a self,
        at: RouteStep,
        s: &'a mut RouteRunState,
        cx: &'a StepContext,
    ) -> Result<Transition<RouteStep>, StepError> {
        match at {
            RouteStep::Read => read::read_request(s, cx).await,
            RouteStep::Choose => choose_workflow(s, cx).await,
            RouteStep::Begin => begin_chosen(s, cx).await,
            RouteStep::Answer => answer::answer_question(s, cx).await,
        }
    }

    async fn report_halt<'a>(
        &'a self,
        _at: RouteStep,
        _s: &'a RouteRunState,
        halt: &'a RunHalt,
        cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        // A person who stopped the run knows that it ended.
        if !matches!(halt, RunHalt::Stopped { .. }) {
            post_announcement(cx, "halted", &messages::route_halted_reply(&halt.public_reason())).await?;
        }
        Ok(None)
    }
}

/// Returns the name and first command of every other workflow.
fn other_workflows() -> impl Iterator<Item = (&'static str, &'static CommandSpec)> {
    let others = super::ALL.iter().filter(|workflow| workflow.name() != RouteWorkflow::NAME);
    others.filter_map(|workflow| Some((workflow.name(), workflow.commands().first()?)))
}

/// Chooses a workflow and records the decision. A later comment with the same words reuses the recorded decision.
async fn choose_workflow(
    s: &mut RouteRunState,
    cx: &StepContext,
) -> Result<Transition<RouteStep>, StepError> {
    s.skills = load_skills(s, cx).await?;
    let policy = require_state(&s.policy)?;
    let routing = require_state(&policy.routing)?;
    let request = load_text(cx, require_state(&s.request)?).await?;
    let body = load_text(cx, require_state(&s.body)?).await?;
    let key = decision_key(s, &request, &body, &routing.model);
    let store = &cx.tools().store;
    let repo = cx.run().id.repo;
    let sorted = match find_named_skill(&request, &s.skills) {
        Some((skill, _)) => RoutingResult::without_call(decide_by_name(skill)),
        None if s.skills.is_empty() => RoutingResult {
            fell_back: Some("every brief skill is switched off here".to_owned()),
            ..RoutingResult::without_call(crate::documents::routing::decide_by_keywords("", &[], &[]))
        },
        None => {
            let cached: Option<RoutingDecision> = cx
                .once("cached", |_| async {
                    let db = store.repository_database(repo).await.map_err(anyhow::Error::new)?;
                    let since = cx.clock().now().minus(DECISION_LIFETIME);
                    let row = db.cached_route(key, since).await.map_err(anyhow::Error::new)?;
                    Ok(row.and_then(|row| serde_json::from_value(row.decision).ok()))
                })
                .await?;
            match cached {
                Some(decision) => {
                    RoutingResult::without_call(RoutingDecision { method: RoutingMethod::Cache, ..decision })
                }
                None => {
                    let (title, labels, skills) =
                        (s.title.as_str(), s.labels.as_slice(), s.skills.as_slice());
                    let asked = RoutingRequest { request: &request, title, body: &body, labels, skills };
                    route_request(cx, policy, routing, &asked).await?
                }
            }
        }
    };
    let lead = sorted.decision.routing_action(routing.mode == RouteMode::Confirm);
    record_decision(s, cx, key, &request, &sorted, lead).await?;
    s.chosen = Some(RouteChoice { decision: sorted.decision, lead, fell_back: sorted.fell_back });
    // A run started by an older version has not fetched the code.
    let answers = lead == RoutingAction::Answer && s.base.is_some();
    Ok(Transition::Go(if answers { RouteStep::Answer } else { RouteStep::Begin }))
}

/// Returns a hash of everything that the decision depends on.
fn decision_key(s: &RouteRunState, request: &str, body: &str, model: &str) -> Hash {
    let words = request.split_whitespace().collect::<Vec<_>>().join(" ");
    let skills: Vec<String> =
        s.skills.iter().map(|skill| format!("{}\n{}", skill.name, skill.description)).collect();
    let parts = [&words, &s.title, body, &skills.join("\n\n"), model, &PROMPT_VERSION.to_string()];
    Hash::digest_parts(parts.map(str::as_bytes))
}

async fn record_decision(
    s: &RouteRunState,
    cx: &StepContext,
    key: Hash,
    request: &str,
    sorted: &RoutingResult,
    lead: RoutingAction,
) -> Result<(), StepError> {
    let RoutingResult { decision, calls, cost_microusd, dearest_microusd, elapsed_ms, model, fell_back } =
        sorted;
    let of_skill = |name: &String| s.skills.iter().find(|skill| skill.name == *name);
    let value = |value: serde_json::Result<serde_json::Value>| value.map_err(anyhow::Error::new);
    let trigger = &cx.run().trigger;
    let row = RouteRow {
        key,
        by: trigger.actor.id,
        comment: trigger.comment,
        request: s.request,
        snippet: request.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(50).collect(),
        decision: value(serde_json::to_value(decision))?,
        lead: value(serde_json::to_value(lead))?.as_str().unwrap_or_default().to_owned(),
        workflow: decision.skill.as_ref().and_then(of_skill).map(|skill| skill.workflow.clone()),
        calls: *calls,
        cost_microusd: *cost_microusd,
        dearest_microusd: *dearest_microusd,
        elapsed_ms: *elapsed_ms,
        model: model.clone(),
        fell_back: fell_back.clone(),
    };
    let (run, skill, method) = (cx.run().id, decision.skill.as_deref().unwrap_or("none"), decision.method);
    let confidence = decision.confidence;
    tracing::info!(%run, skill, confidence, ?method, lead = row.lead, cost_microusd, elapsed_ms, "request routed");
    cx.record("route", LedgerRecord::Route(row)).await?;
    if *calls > 0 {
        warn_of_cost(cx, run, *dearest_microusd).await;
    }
    Ok(())
}

/// Logs an alert for the operator if a call, or requests on average, cost too much.
async fn warn_of_cost(cx: &StepContext, run: RunId, call: u64) {
    if call > CALL_ALERT_MICROUSD {
        tracing::warn!(%run, microusd = call, "cost alert: a routing call cost more than $0.01; set a cheaper model under [route]");
    }
    let costs =
        async { cx.tools().store.repository_database(run.repo).await?.route_costs(MEAN_SAMPLE).await };
    match costs.await {
        Ok(costs) if mean(&costs) > MEAN_ALERT_MICROUSD => {
            let mean = mean(&costs);
            tracing::warn!(%run, microusd = mean, "cost alert: routing costs more than $0.005 a request on average; set a cheaper model under [route]");
        }
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%run, %error, "could not read the average cost of routing; skipping the cost alert")
        }
    }
}

/// Returns the mean of the costs; 0 for an empty list.
pub fn mean(costs: &[u64]) -> u64 {
    costs.iter().sum::<u64>() / (costs.len() as u64).max(1)
}

async fn load_skills(s: &RouteRunState, cx: &StepContext) -> Result<Vec<Skill>, StepError> {
    let text = load_text(cx, require_state(&s.catalog)?).await?;
    serde_json::from_str(&text).map_err(|error| StepError::Bug(error.into()))
}

/// Starts the chosen workflow, or tells people which commands they can write.
async fn begin_chosen(s: &mut RouteRunState, cx: &StepContext) -> Result<Transition<RouteStep>, StepError> {
    s.skills = load_skills(s, cx).await?;
    let chosen = require_state(&s.chosen)?.clone();
    let request = load_text(cx, require_state(&s.request)?).await?;
    let of_name = |name: &String| s.skills.iter().find(|skill| skill.name == *name);
    let skill = chosen.decision.skill.as_ref().and_then(of_name);
    let summary = match (chosen.lead, skill) {
        (RoutingAction::Begin | RoutingAction::Probably, Some(skill)) => {
            begin_workflow(s, cx, &chosen, skill, &request).await?
        }
        (RoutingAction::Decline | RoutingAction::Answer, _) => {
            return decline(cx, DeclineReason::NoWork).await;
        }
        _ => {
            post_announcement(cx, "offer", &messages::route_offer_reply(&route_card(s, &chosen, &request)))
                .await?;
            "asked which workflow is meant".to_owned()
        }
    };
    Ok(Transition::Done(RunCompletion { summary, url: None }))
}

/// Ends the run without starting another run, and tells people the reason.
async fn decline(cx: &StepContext, why: DeclineReason) -> Result<Transition<RouteStep>, StepError> {
    post_announcement(cx, "declined", &messages::route_declined_reply(&why)).await?;
    Ok(Transition::Done(RunCompletion { summary: "no request for work".to_owned(), url: None }))
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum RouteStart {
    Run(RunId),
    Not(ConflictingRun),
}

/// A run on the same issue that takes precedence over this request.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ConflictingRun {
    workflow: String,
    stands: ConflictingRunState,
}

impl ConflictingRun {
    fn from_run(run: &RunRow) -> Self {
        let stands = match (run.status.is_live(), &run.gate) {
            (false, _) => ConflictingRunState::Over,
            (true, None) => ConflictingRunState::AtWork,
            (true, Some(_)) => ConflictingRunState::Asking,
        };
        Self { workflow: run.workflow.clone(), stands }
    }
}

/// Finds a run that takes precedence over this request: a live run of the issue, or one that was started after the
/// request was written. Because routing takes time, a command given meanwhile wins over the request.
async fn find_conflicting_run(cx: &StepContext) -> Result<Option<ConflictingRun>, StepError> {
    let RunInfo { id, trigger, .. } = cx.run();
    let db = cx.tools().store.repository_database(id.repo).await.map_err(anyhow::Error::new)?;
    let filter = RunFilter { repo: Some(id.repo), issue: Some(trigger.issue), live_only: false };
    let runs = db.runs(filter).await.map_err(anyhow::Error::new)?;
    // Our own run, started before a crash lost the record.
    if runs.iter().any(|run| run.trigger.cause == trigger.cause.follow_up()) {
        return Ok(None);
    }
    let wins = |run: &&RunRow| {
        let since = run.workflow != RouteWorkflow::NAME && run.started_at >= trigger.at;
        run.id != *id && (run.status.is_live() || since)
    };
    Ok(runs.iter().rfind(wins).map(ConflictingRun::from_run))
}

async fn begin_workflow(
    s: &RouteRunState,
    cx: &StepContext,
    chosen: &RouteChoice,
    skill: &Skill,
    request: &str,
) -> Result<String, StepError> {
    let trigger = &cx.run().trigger;
    let Some((workflow, command)) = other_workflows().find(|(name, _)| *name == skill.workflow) else {
        return Err(StepError::User(format!("There is no workflow called {} here.", skill.workflow)));
    };
    // The text selects among commands this person may use; it grants no permission.
    if trigger.role < command.role {
        let body = messages::route_not_allowed_reply(&skill.name, command.usage, command.role);
        post_announcement(cx, "not-allowed", &body).await?;
        return Ok(format!("{} requires {} access", workflow, command.role));
    }
    let words = find_named_skill(request, &s.skills).map_or(request, |(_, words)| words);
    let request = RoutedRequest {
        text: request_text(skill, words),
        skill: skill.name.clone(),
        confidence: chosen.decision.confidence,
        pool: skill.pool,
    };
    let next = RunTrigger {
        command: command.name.to_owned(),
        args: words.lines().next().unwrap_or_default().to_owned(),
        request: Some(request),
        ..trigger.clone()
    };
    let busy = async |other: ConflictingRun| {
        post_announcement(cx, "busy", &messages::route_busy_reply(&other.workflow, other.stands)).await?;
        Ok(format!("started nothing: {} was already started", other.workflow))
    };
    if let Some(other) = cx.once("other-work", |_| find_conflicting_run(cx)).await? {
        return busy(other).await;
    }
    // Post this first, so that a person can undo the start before its other comments, even after a crash.
    if chosen.lead == RoutingAction::Probably || !s.faults.is_empty() {
        let card = route_card(s, chosen, words);
        post_announcement(
            cx,
            "begun",
            &messages::route_started_reply(&card, skill.name.as_str(), command.usage, chosen.lead),
        )
        .await?;
    }
    let begun: RouteStart = cx
        .once("begin", |_| async {
            Ok(match cx.begin_run(workflow, next).await? {
                StartDecision::New(run) | StartDecision::Duplicate(run) => RouteStart::Run(run),
                StartDecision::AlreadyLive(other) => RouteStart::Not(ConflictingRun::from_run(&other)),
            })
        })
        .await?;
    let run = match begun {
        RouteStart::Run(run) => run,
        RouteStart::Not(other) => return busy(other).await,
    };
    Ok(format!("{} ({:.2}): {workflow} as {run}", skill.name, f32::from(chosen.decision.confidence) / 1000.0))
}

/// Returns the text of the request as the drafter sees it, with the skill's requirements and advice.
fn request_text(skill: &Skill, words: &str) -> String {
    let mut text = format!("{words}\n\nIt was read as a request of the kind {}. ", skill.name);
    let list = |rows: &[String]| rows.iter().map(|row| format!("\n- {row}")).collect::<String>();
    if !skill.required.is_empty() {
        text += &format!("A document for it tells:{}\n", list(&skill.required));
    }
    if !skill.questions.is_empty() {
        text += &format!(
            "Questions that the document answers from the issue or by a named assumption:{}\n",
            list(&skill.questions)
        );
    }
    text + &skill.advice
}

fn route_card(s: &RouteRunState, chosen: &RouteChoice, request: &str) -> RouteCard {
    let RouteChoice { decision, fell_back, .. } = chosen;
    let offers = decision.offered_skills(&s.skills).into_iter().filter_map(|(skill, confidence)| {
        let (_, command) = other_workflows().find(|(name, _)| *name == skill.workflow)?;
        let description = skill.description.split(['.', ':']).next().unwrap_or_default().to_owned();
        Some(RouteOffer { skill: skill.name.clone(), description, usage: command.usage, confidence })
    });
    let of_best = || {
        let best = decision.offered_skills(&s.skills).first().map(|(skill, _)| skill.questions.clone());
        best.filter(|_| decision.confidence > 0).unwrap_or_default()
    };
    let missing = if decision.missing.is_empty() { of_best() } else { decision.missing.clone() };
    RouteCard {
        offers: offers.collect(),
        request: request.to_owned(),
        confidence: decision.confidence,
        reasoning: decision.reasoning.clone(),
        missing,
        fell_back: fell_back.clone(),
        faults: s.faults.iter().map(|fault| (fault.path.clone(), fault.line, fault.why.clone())).collect(),
    }
}
