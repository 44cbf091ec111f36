//! Whatever drafter, reviewer and people do, and whatever the workflow wants: nothing is published without what its kind of
//! proof takes. The models' answers, the people and the workflow's own steps are random; round, engine and proof are real,
//! and what may be published is worked out anew from what was served and what people were told that it counts.

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
    reckless::{self, Case, Looked, Published, subject},
    script::{Script, approved, finding, review},
    verdicts,
    world::{World, all, world},
};

/// Cases that share a script.
const CHUNK: usize = 20;
/// Calls of each role that a case has for itself.
const CALLS: usize = 24;

/// What a reviewer's answer is worth.
#[derive(Clone)]
struct Worth {
    approves: bool,
    /// Findings that it settles.
    resolved: Vec<String>,
}

/// One that is no approval.
const NONE: Worth = Worth { approves: false, resolved: Vec::new() };

/// An answer of the reviewer's: added to the script, and what it is worth.
fn reviewer(random: &mut Random, hostile: &[verdicts::Answer], script: Script) -> (Script, Worth) {
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
            (script.reviews(&review("APPROVED", &[], &resolved)), Worth { approves: true, resolved: every })
        }
        30..38 => (script.reviews(&approved()), Worth { approves: true, ..NONE }),
        38..60 => {
            let findings: Vec<Value> = (0..=random.below(2)).map(|_| found(random)).collect();
            let verdict = random.one_of(&["REVISE", "REVISE", "BLOCKED"]);
            (script.reviews(&review(verdict, &findings, &[&id(random)])), NONE)
        }
        60..85 => {
            let answer = &hostile[random.below(hostile.len())];
            // A provider takes one fence or byte order mark off.
            let bare = strip_fence(&answer.text);
            let approves = answer.ends == "silent" || verdicts::read(bare) == "APPROVED";
            let read: Value = serde_json::from_str(bare).unwrap_or_default();
            let resolved = read["resolved"].as_array().into_iter().flatten();
            let resolved = resolved.filter_map(|id| id.as_str().map(str::to_owned)).collect();
            (script.reviews_as_text(&answer.text), Worth { approves, resolved })
        }
        _ => (script.fails("reviewer", random.one_of(FAILURES)), NONE),
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

/// A script for a chunk of cases, and what each answer of the reviewer's is worth, by the number of the call.
fn script(random: &mut Random, cases: usize, hostile: &[verdicts::Answer]) -> (Script, Vec<Worth>) {
    let (mut script, mut worths) = (Script::default(), Vec::new());
    for call in 0..cases * CALLS {
        let worth;
        (script, worth) = reviewer(random, hostile, script);
        worths.push(worth);
        script = drafter(random, script, call % CALLS == 0);
    }
    (script, worths)
}

/// Answers that people were told are taken.
type Taken = Vec<(Verb, Hash, String, UserId)>;

/// One run, in a world that is as large as it needs.
struct Play<'a> {
    w: &'a World,
    desk: Arc<StepServices>,
    data: tempfile::TempDir,
    engine: Option<Arc<Engine<StepServices>>>,
    run: RunId,
    said: u64,
    taken: Taken,
}

const PLACE: (RepoId, IssueNo) = (RepoId(1), IssueNo(1));

fn person(id: u64) -> Actor {
    Actor { id: UserId(id), login: format!("user-{id}"), bot: false }
}

/// An engine on a store of its own.
fn engine(data: &Path, w: &World, desk: &Arc<StepServices>) -> Arc<Engine<StepServices>> {
    let store = Store::open(data, w.clock.clone()).unwrap();
    Engine::new(store, reckless::ALL, desk.clone(), w.clock.clone()).unwrap()
}

impl<'a> Play<'a> {
    fn engine(&self) -> &Arc<Engine<StepServices>> {
        self.engine.as_ref().unwrap()
    }

    async fn begin(w: &'a World, desk: &Arc<StepServices>, kind: usize, case: &Case) -> Self {
        let data = tempfile::tempdir().unwrap();
        let engine = engine(data.path(), w, desk);
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
        let StartDecision::New(run) = engine.start(start).await.unwrap() else { panic!("it is the first") };
        Self { w, desk: desk.clone(), data, engine: Some(engine), run, said: 0, taken: Vec::new() }
    }

    /// Until only people can go on.
    async fn settle(&self) -> RunView {
        for _ in 0..400 {
            while self.engine().tick().await.unwrap() > 0 {}
            match self.engine().next_due().await.unwrap() {
                Some(due) => self.w.clock.pass(due.since(self.w.clock.now())),
                None => return self.engine().inspect(self.run).await.unwrap().unwrap(),
            }
        }
        panic!("this never settles: {:?}", self.engine().inspect(self.run).await.unwrap());
    }

    async fn people(&mut self, random: &mut Random, view: &RunView) {
        self.said += 1;
        self.w.clock.pass(Duration::from_secs(60));
        let (by, at) = (person(1 + random.below(3) as u64), self.w.clock.now());
        let role = random.one_of(&[Role::Read, Role::Write, Role::Maintain, Role::Maintain]);
        let cause = Cause(format!("said-{}", self.said));
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
                // The server is killed, and another one goes on.
                self.engine = None;
                self.engine = Some(engine(self.data.path(), self.w, &self.desk));
            }
            _ => {
                let verb = random.one_of(&[
                    Verb::Approve,
                    Verb::Approve,
                    Verb::Approve,
                    Verb::Override,
                    Verb::Revise,
                ]);
                let asked = view.gate.as_ref().map(|gate| gate.spec.subject);
                let hash = match random.below(4) {
                    0 => asked.map(|subject| subject.short()),
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
                let asks = |hash: &String| asked.is_some_and(|subject| subject.starts_with(hash));
                let of_it = answer.hash.as_ref().is_none_or(asks);
                let signal = GateAnswerRequest { repo: PLACE.0, issue: PLACE.1, answer, late };
                // What names another document is no word for this one, whoever takes it.
                if matches!(self.engine().signal(signal).await.unwrap(), GateAnswerOutcome::Accepted(_))
                    && of_it
                {
                    self.taken.push((verb, asked.expect("a gate took it"), text, id));
                }
            }
        }
    }

    /// What it published, if it came to that.
    async fn played(&mut self, random: &mut Random) -> Option<Published> {
        for _ in 0..10 {
            let view = self.settle().await;
            if !view.status.is_live() {
                let done = view.outcome.filter(|_| view.status == RunViewStatus::Done);
                return done.map(|outcome| serde_json::from_str(&outcome.summary).unwrap());
            }
            self.people(random, &view).await;
        }
        None
    }
}

/// By what way this may be published, if it may at all.
fn allowed(
    published: &Published,
    kind: usize,
    rule: &Approvers,
    taken: &Taken,
    worths: &[Worth],
) -> Option<&'static str> {
    let document = published.document;
    let of_it: Vec<&Looked> = published.looked.iter().filter(|looked| looked.document == document).collect();
    let approves = |looked: &&&Looked| {
        let worth =
            looked.call.map(|call| worths.get(call as usize - 1).unwrap_or(&worths[worths.len() - 1]));
        let settles = |worth: &Worth| looked.blocking.iter().all(|id| worth.resolved.contains(id));
        !looked.alike && worth.is_some_and(|worth| worth.approves && settles(worth))
    };
    let reviewed = of_it.last().filter(approves).is_some();
    let said = |wanted: Verb| {
        let at_it =
            taken.iter().filter(move |(verb, asked, ..)| *verb == wanted && *asked == subject(document));
        at_it.collect::<Vec<_>>()
    };
    let owns = |who: &AllowedResponders, by: &UserId| matches!(who, AllowedResponders::Either { people, .. } if people.contains(by));
    let counts = |by: &UserId| {
        rule.not != Some(*by) && (rule.owners.is_empty() || rule.owners.iter().any(|who| owns(who, by)))
    };
    let people: BTreeSet<UserId> = said(Verb::Approve).iter().map(|(.., by)| *by).filter(counts).collect();
    let owned = |who: &AllowedResponders| people.iter().any(|by| owns(who, by));
    let approved = people.len() >= rule.needed as usize && rule.owners.iter().all(owned);
    if said(Verb::Override).iter().any(|(_, _, text, by)| !text.is_empty() && rule.not != Some(*by))
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

/// Whom the gates of a case ask for, of the three people that there are.
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

/// Tools as every step has them, whose models answer by this script.
fn desk(w: &World, script: &Script) -> Arc<StepServices> {
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

/// Plays many runs of one workflow, which come to their end by each of these ways, and not always.
async fn play(kind: usize, wanted: &[&str]) {
    let name = reckless::NAMES[kind];
    let mut random = Random::seeded(&format!("what is published, {name}"));
    let w = world().await;
    let chunks = if all() { 35 } else { 3 };
    let hostile: Vec<_> =
        verdicts::answers().into_iter().filter(|answer| answer.text.len() < 10_000).collect();
    let mut ways: BTreeMap<&str, usize> = BTreeMap::new();
    for chunk in 0..chunks {
        let (script, worths) = script(&mut random, CHUNK, &hostile);
        let desk = desk(&w, &script);
        for nth in 0..CHUNK {
            let (approvers, seed) = (approvers(&mut random), random.below(1 << 30) as u64);
            let case = Case { seed, before: (nth * CALLS) as u32, approvers: approvers.clone() };
            let mut play = Play::begin(&w, &desk, kind, &case).await;
            let published = play.played(&mut random).await;
            let way = published.as_ref().map_or("not at all", |published| {
                allowed(published, kind, &approvers, &play.taken, &worths).unwrap_or_else(|| {
                    let (case, taken) = (chunk * CHUNK + nth + 1, &play.taken);
                    panic!("case {case}, {name}: no proof at a gate for {approvers:?}: {published:#?}\n{taken:#?}")
                })
            });
            *ways.entry(way).or_default() += 1;
            // What a model was too often too slow for is forgotten.
            w.clock.pass(Duration::from_secs(7200));
        }
    }
    say(&format!("{name}: {} cases were published {ways:?}", chunks * CHUNK));
    // Few cases need not show each of them.
    if all() {
        assert_eq!(ways.keys().copied().collect::<Vec<_>>(), wanted, "{ways:?}");
    }
}

#[tokio::test]
async fn without_lesser_proofs_it_takes_a_review_and_people_or_an_override() {
    play(0, &["not at all", "override", "review and person"]).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn where_the_policy_may_do_it_takes_a_review_all_the_same() {
    play(1, &["not at all", "override", "review and person", "review and policy"]).await;
}

#[tokio::test]
async fn what_nobody_has_to_review_takes_people_and_no_review_that_refused_it() {
    play(2, &["not at all", "override", "person alone", "review and person"]).await;
}
