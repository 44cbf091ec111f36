//! Fuzz test of countersignatures: nothing may be published without the proof that its workflow requires.
//!
//! The model responses, the people and the steps of the workflow are random; the round, the engine and the proof check
//! are real. From the model responses and the accepted commands, the test derives which documents may be published. It
//! then compares them with the documents that were published.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use countersign::{
    clock::Clock,
    config::{ModelSettings, ReloadableValue},
    documents::strip_fence,
    engine::{
        AllowedResponders, ApprovalKind, Approvers, CancelRunsRequest, Engine, EnginePort, GateAnswer,
        GateAnswerOutcome, GateAnswerRequest, RemarkKind, RunRemark, RunTrigger, RunView, RunViewStatus,
        StartDecision, StartRunRequest,
    },
    git::Mirrors,
    providers::ModelProviders,
    rounds::{CommitCache, StepServices},
    store::Store,
    types::{Actor, Cause, Hash, IssueNo, RepoId, Role, RunId, UserId, Verb},
};
use serde_json::{Value, json};

use crate::{
    random::{Random, say},
    reckless::{self, Case, Published, ReviewRecord, subject},
    script::{Script, approved, finding, review},
    verdicts,
    world::{World, all, world},
};

/// Number of cases that share one script.
const CHUNK: usize = 20;
/// Number of calls per role that the script reserves for one case.
const CALLS: usize = 24;

/// Effect that a reviewer's response has.
#[derive(Clone)]
struct ReviewEffect {
    approves: bool,
    /// Ids of the findings that the response resolves.
    resolved: Vec<String>,
}

/// Effect of a response that neither approves nor resolves a finding.
const NO_APPROVAL: ReviewEffect = ReviewEffect { approves: false, resolved: Vec::new() };

/// Adds a random response of the reviewer to the script. Returns the script and the effect of the response.
fn reviewer(random: &mut Random, hostile: &[verdicts::Answer], script: Script) -> (Script, ReviewEffect) {
    let id = |random: &mut Random| format!("F{}", 1 + random.below(4));
    let every: Vec<String> = (1..30).map(|n| format!("F{n}")).collect();
    let severity = |random: &mut Random| random.one_of(&["blocking", "blocking", "high", "suggestion"]);
    let found = |random: &mut Random| {
        let (repeats, title) = (id(random), format!("Objection {}", random.below(5)));
        let mut found = finding(&title, Some(repeats.as_str()).filter(|_| random.below(3) == 0));
        found["severity"] = json!(severity(random));
        found["place"] = json!(random.one_of(&["3", "3", "nowhere"]));
        found
    };
    match random.below(100) {
        0..30 => {
            let resolved: Vec<&str> = every.iter().map(String::as_str).collect();
            (
                script.reviews(&review("APPROVED", &[], &resolved)),
                ReviewEffect { approves: true, resolved: every },
            )
        }
        30..38 => (script.reviews(&approved()), ReviewEffect { approves: true, ..NO_APPROVAL }),
        38..60 => {
            let findings: Vec<Value> = (0..=random.below(2)).map(|_| found(random)).collect();
            let verdict = random.one_of(&["REVISE", "REVISE", "BLOCKED"]);
            (script.reviews(&review(verdict, &findings, &[&id(random)])), NO_APPROVAL)
        }
        60..85 => {
            let answer = &hostile[random.below(hostile.len())];
            // A provider removes one fence or byte order mark.
            let bare = strip_fence(&answer.text);
            let approves = answer.ends == "silent" || verdicts::read(bare) == "APPROVED";
            let read: Value = serde_json::from_str(bare).unwrap_or_default();
            let resolved = read["resolved"].as_array().into_iter().flatten();
            let resolved = resolved.filter_map(|id| id.as_str().map(str::to_owned)).collect();
            (script.reviews_as_text(&answer.text), ReviewEffect { approves, resolved })
        }
        _ => (script.fails("reviewer", random.one_of(FAILURES)), NO_APPROVAL),
    }
}

const FAILURES: &[&str] = &[
    "capacity",
    "rate_limited",
    "refused",
    "truncated",
    "invalid_output",
    "wrong_model",
    "timeout",
    "unavailable",
];

fn drafter(random: &mut Random, script: Script, first: bool) -> Script {
    let whole = |random: &mut Random| format!("# A design\n\nThe design {}.", random.below(3));
    match random.below(if first { 23 } else { 100 }) {
        0..20 => script.drafts(&whole(random)),
        20..25 => script.drafts(random.one_of(&["", "APPROVED", "{\"edits\":[]}", "Here is the design."])),
        25..30 => script.fails("drafter", random.one_of(FAILURES)),
        30..70 => script.edits("# A design", &format!("# A design\n\nMore of it: {}.", random.below(4))),
        70..82 => script.edits("what is not there", "anything"),
        _ => script.rebuts(&format!("F{}", 1 + random.below(3)), "it is as it should be"),
    }
}

/// Generates the script for a chunk of cases. Also returns the effect of each reviewer response, indexed by call
/// number.
fn script(random: &mut Random, cases: usize, hostile: &[verdicts::Answer]) -> (Script, Vec<ReviewEffect>) {
    let (mut script, mut effects) = (Script::default(), Vec::new());
    for call in 0..cases * CALLS {
        let effect;
        (script, effect) = reviewer(random, hostile, script);
        effects.push(effect);
        script = drafter(random, script, call % CALLS == 0);
    }
    (script, effects)
}

/// Gate answers that the engine reported as accepted: command, subject, text and person.
type AcceptedAnswers = Vec<(Verb, Hash, String, UserId)>;

/// Plays one run, which has its own store and engine.
struct RunPlayer<'a> {
    w: &'a World,
    services: Arc<StepServices>,
    data: tempfile::TempDir,
    engine: Option<Arc<Engine<StepServices>>>,
    run: RunId,
    command_count: u64,
    taken: AcceptedAnswers,
}

const PLACE: (RepoId, IssueNo) = (RepoId(1), IssueNo(1));

fn person(id: u64) -> Actor {
    Actor { id: UserId(id), login: format!("user-{id}"), bot: false }
}

/// Creates an engine with its own store in the directory `data`.
fn engine(data: &Path, w: &World, services: &Arc<StepServices>) -> Arc<Engine<StepServices>> {
    let store = Store::open(data, w.clock.clone()).unwrap();
    Engine::new(store, reckless::ALL, services.clone(), w.clock.clone()).unwrap()
}

impl<'a> RunPlayer<'a> {
    fn engine(&self) -> &Arc<Engine<StepServices>> {
        self.engine.as_ref().unwrap()
    }

    async fn begin(w: &'a World, services: &Arc<StepServices>, kind: usize, case: &Case) -> Self {
        let data = tempfile::tempdir().unwrap();
        let engine = engine(data.path(), w, services);
        let trigger = RunTrigger {
            command: "begin".into(),
            args: serde_json::to_string(case).unwrap(),
            repo: PLACE.0,
            installation: w.installation,
            issue: PLACE.1,
            actor: person(1),
            role: Role::Write,
            cause: Cause("begin".into()),
            at: w.clock.now(),
            comment: None,
            request: None,
        };
        let start = StartRunRequest { workflow: reckless::NAMES[kind].into(), trigger };
        let StartDecision::New(run) = engine.start(start).await.unwrap() else {
            panic!("the first start must be accepted")
        };
        Self {
            w,
            services: services.clone(),
            data,
            engine: Some(engine),
            run,
            command_count: 0,
            taken: Vec::new(),
        }
    }

    /// Lets the engine work until only a person can continue the run.
    async fn settle(&self) -> RunView {
        for _ in 0..400 {
            while self.engine().tick().await.unwrap() > 0 {}
            match self.engine().next_due().await.unwrap() {
                Some(due) => self.w.clock.pass(due.since(self.w.clock.now())),
                None => return self.engine().inspect(self.run).await.unwrap().unwrap(),
            }
        }
        panic!("still busy after 400 rounds: {:?}", self.engine().inspect(self.run).await.unwrap());
    }

    async fn act_as_people(&mut self, random: &mut Random, view: &RunView) {
        self.command_count += 1;
        self.w.clock.pass(Duration::from_secs(60));
        let (by, at) = (person(1 + random.below(3) as u64), self.w.clock.now());
        let role = random.one_of(&[Role::Read, Role::Write, Role::Maintain, Role::Maintain]);
        let cause = Cause(format!("said-{}", self.command_count));
        let text = random.one_of(&["", "it is good enough", "say more", "because of F1"]).to_owned();
        match random.below(40) {
            0 => {
                let (run, why) = (Some(self.run), "enough".to_owned());
                let cancel = CancelRunsRequest { repo: PLACE.0, issue: PLACE.1, run, cause, by, why };
                self.engine().cancel(cancel).await.unwrap();
            }
            1..7 => {
                let (kind, finding) =
                    (random.one_of(&[RemarkKind::Dismiss, RemarkKind::MustFix]), "F1".to_owned());
                let remark = RunRemark { cause, kind, finding, text, by, role, at };
                self.engine().remark(self.run, remark).await.unwrap();
            }
            7 => {
                // The server is killed and another one takes over.
                self.engine = None;
                self.engine = Some(engine(self.data.path(), self.w, &self.services));
            }
            _ => {
                let verb = random.one_of(&[
                    Verb::Approve,
                    Verb::Approve,
                    Verb::Approve,
                    Verb::Override,
                    Verb::Revise,
                ]);
                let subject_shown = view.gate.as_ref().map(|gate| gate.spec.subject);
                let hash = match random.below(4) {
                    0 => subject_shown.map(|subject| subject.short()),
                    1 => Some(Hash::digest(b"another").short()),
                    _ => None,
                };
                let id = by.id;
                let answer = GateAnswer {
                    cause,
                    verb,
                    stage: None,
                    hash,
                    way: None,
                    text: text.clone(),
                    by,
                    role,
                    at,
                    url: None,
                    commit: None,
                    review: None,
                };
                let late = random.below(20) == 0;
                let asks = |hash: &String| subject_shown.is_some_and(|subject| subject.starts_with(hash));
                let of_it = answer.hash.as_ref().is_none_or(asks);
                let signal = GateAnswerRequest { repo: PLACE.0, issue: PLACE.1, answer, late };
                // An answer that names another document does not count for this one.
                if matches!(self.engine().signal(signal).await.unwrap(), GateAnswerOutcome::Accepted(_))
                    && of_it
                {
                    self.taken.push((
                        verb,
                        subject_shown.expect("only an open gate accepts an answer"),
                        text,
                        id,
                    ));
                }
            }
        }
    }

    /// Plays the run to its end. Returns the published document, if any.
    async fn play_to_end(&mut self, random: &mut Random) -> Option<Published> {
        for _ in 0..10 {
            let view = self.settle().await;
            if !view.status.is_live() {
                let done = view.outcome.filter(|_| view.status == RunViewStatus::Done);
                return done.map(|outcome| serde_json::from_str(&outcome.summary).unwrap());
            }
            self.act_as_people(random, &view).await;
        }
        None
    }
}

/// Returns the name of the proof that allows this publication, or `None` if no proof does.
fn find_proof(
    published: &Published,
    kind: usize,
    rule: &Approvers,
    taken: &AcceptedAnswers,
    effects: &[ReviewEffect],
) -> Option<&'static str> {
    let document = published.document;
    let of_it: Vec<&ReviewRecord> =
        published.reviews.iter().filter(|record| record.document == document).collect();
    let approves = |record: &&&ReviewRecord| {
        let effect =
            record.call.map(|call| effects.get(call as usize - 1).unwrap_or(&effects[effects.len() - 1]));
        let resolves = |effect: &ReviewEffect| record.blocking.iter().all(|id| effect.resolved.contains(id));
        !record.same_family && effect.is_some_and(|effect| effect.approves && resolves(effect))
    };
    let reviewed = of_it.last().filter(approves).is_some();
    let answers = |wanted: Verb| {
        let at_it =
            taken.iter().filter(move |(verb, asked, ..)| *verb == wanted && *asked == subject(document));
        at_it.collect::<Vec<_>>()
    };
    let owns = |who: &AllowedResponders, by: &UserId| matches!(who, AllowedResponders::Either { people, .. } if people.contains(by));
    let counts = |by: &UserId| {
        rule.not != Some(*by) && (rule.owners.is_empty() || rule.owners.iter().any(|who| owns(who, by)))
    };
    let people: BTreeSet<UserId> = answers(Verb::Approve).iter().map(|(.., by)| *by).filter(counts).collect();
    let owned = |who: &AllowedResponders| people.iter().any(|by| owns(who, by));
    let approved = people.len() >= rule.needed as usize && rule.owners.iter().all(owned);
    if answers(Verb::Override).iter().any(|(_, _, text, by)| !text.is_empty() && rule.not != Some(*by))
        && published.kind == ApprovalKind::Override
    {
        Some("override")
    } else if reviewed && approved {
        Some("review and person")
    } else if reviewed && reckless::NAMES[kind] == "by-policy" {
        Some("review and policy")
    } else if of_it.is_empty() && approved && reckless::NAMES[kind] == "unreviewed" {
        Some("person alone")
    } else {
        None
    }
}

/// Returns random approval rules for the gates of a case. They involve three people.
fn approvers(random: &mut Random) -> Approvers {
    let person = |random: &mut Random| UserId(1 + random.below(3) as u64);
    let owner = |random: &mut Random| AllowedResponders::Either {
        people: vec![person(random), person(random)],
        role: None,
    };
    let needed = 1 + random.below(4) as u32 / 3;
    let not = (random.below(4) == 0).then(|| person(random));
    let owners = (0..random.below(6).saturating_sub(3)).map(|_| owner(random)).collect();
    Approvers { needed, not, owners }
}

/// Creates the services for steps, with models that respond from this script.
fn services(w: &World, script: &Script) -> Arc<StepServices> {
    let file = w.directory().join("proofs.toml");
    std::fs::write(&file, script.toml()).unwrap();
    let mut models = ModelSettings::rehearsal(w.directory());
    models.stub.script = Some(file);
    Arc::new(StepServices {
        github: w.app.github.clone(),
        mirrors: Mirrors::new(w.app.store.repos_dir(), w.hub.base_url()),
        providers: Arc::new(ModelProviders::new(&models, w.clock.clone()).unwrap()),
        store: w.app.store.clone(),
        settings: w.app.settings.clone(),
        reviewer: ReloadableValue::new(w.app.settings.models.reviewer.clone()),
        commits: CommitCache::default(),
        fetch_failure_time: Default::default(),
        switch_checked_at: Default::default(),
        sandbox: Default::default(),
        sandbox_time: Default::default(),
    })
}

/// Plays many random runs of one workflow. If all cases run, also checks that each of the `wanted` proofs occurred.
async fn play(kind: usize, wanted: &[&str]) {
    let name = reckless::NAMES[kind];
    let mut random = Random::seeded(&format!("what is published, {name}"));
    let w = world().await;
    let chunks = if all() { 35 } else { 3 };
    let hostile: Vec<_> =
        verdicts::answers().into_iter().filter(|answer| answer.text.len() < 10_000).collect();
    let mut ways: BTreeMap<&str, usize> = BTreeMap::new();
    for chunk in 0..chunks {
        let (script, effects) = script(&mut random, CHUNK, &hostile);
        let services = services(&w, &script);
        for nth in 0..CHUNK {
            let (approvers, seed) = (approvers(&mut random), random.below(1 << 30) as u64);
            let case = Case { seed, before: (nth * CALLS) as u32, approvers: approvers.clone() };
            let mut play = RunPlayer::begin(&w, &services, kind, &case).await;
            let published = play.play_to_end(&mut random).await;
            let way = published.as_ref().map_or("not at all", |published| {
                find_proof(published, kind, &approvers, &play.taken, &effects).unwrap_or_else(|| {
                    let (case, taken) = (chunk * CHUNK + nth + 1, &play.taken);
                    panic!("case {case}, {name}: no proof at a gate for {approvers:?}: {published:#?}\n{taken:#?}")
                })
            });
            *ways.entry(way).or_default() += 1;
            // The circuit breakers of failed models reset.
            w.clock.pass(Duration::from_secs(7200));
        }
    }
    say(&format!("{name}: {} cases were published {ways:?}", chunks * CHUNK));
    // A sample may miss some of them.
    if all() {
        assert_eq!(ways.keys().copied().collect::<Vec<_>>(), wanted, "{ways:?}");
    }
}

#[tokio::test]
async fn strict_workflow_publishes_only_after_review_and_human_approval_or_an_override() {
    play(0, &["not at all", "override", "review and person"]).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn by_policy_workflow_may_publish_without_human_approval_after_an_approving_review() {
    play(1, &["not at all", "override", "review and person", "review and policy"]).await;
}

#[tokio::test]
async fn unreviewed_workflow_publishes_only_after_human_approval_or_an_override() {
    play(2, &["not at all", "override", "person alone", "review and person"]).await;
}
