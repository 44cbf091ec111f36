//! Random interleavings of store operations, including crashes. After each operation, the stored data must match a
//! simple model, and every due run must be claimable.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use countersign::{
    engine::{ActivePause, Approvers, GateSpec, PauseScope, RunCompletion, RunFilter, RunTrigger},
    store::{
        AnswerReceipt, CancelRow, Checkpoint, JournalLookup, NewRun, RetryDecision, RunLease, RunRow,
        RunStatus, StartDecision, Store, StoreError,
    },
    types::{Cause, Hash, InstallationId, IssueNo, RepoId, Role, RunId, Verb},
};

use super::world::{BEGINNING, ManualClock, answer_by_grace, person};

const REPOS: u64 = 2;
const ISSUES: u64 = 2;
const KEYS: [&str; 3] = ["first", "second", "third"];

/// Pseudorandom number generator. The same seed produces the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A lease, and the progress of the attempt that holds the lease.
struct Attempt {
    lease: RunLease,
    next: usize,
    /// Index of the journal key of the effect that has started but not finished.
    inside: Option<usize>,
}

struct Simulation {
    random: Random,
    directory: tempfile::TempDir,
    store: Option<Arc<Store>>,
    clock: Arc<ManualClock>,
    attempts: Vec<Attempt>,
    /// Leases that are no longer valid: they are from before a crash, or were saved or released.
    stale: Vec<RunLease>,
    causes: u64,
    starts: Vec<(Cause, RunId)>,
    /// Expected journal entries by run, visit and key. `None` if the effect has started but not finished.
    journal: HashMap<(RunId, u64, usize), Option<Vec<u8>>>,
    /// Ids of accepted answers that no step has consumed yet, by gate.
    waiting: BTreeMap<(RepoId, u64), BTreeSet<u64>>,
    consumed: HashSet<(RepoId, u64)>,
    paused: HashSet<RepoId>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::new();
        let mut simulation = Self {
            random: Random(seed),
            directory: tempfile::tempdir().unwrap(),
            store: None,
            clock,
            attempts: Vec::new(),
            stale: Vec::new(),
            causes: 0,
            starts: Vec::new(),
            journal: HashMap::new(),
            waiting: BTreeMap::new(),
            consumed: HashSet::new(),
            paused: HashSet::new(),
        };
        simulation.open();
        simulation
    }

    fn open(&mut self) {
        self.store = Some(Store::open(self.directory.path(), self.clock.clone()).unwrap());
    }

    fn store(&self) -> Arc<Store> {
        self.store.clone().unwrap()
    }

    fn cause(&mut self) -> Cause {
        self.causes += 1;
        Cause(format!("delivery-{}#0", self.causes))
    }

    async fn step(&mut self) {
        match self.random.below(100) {
            0..12 => self.start().await,
            12..30 => self.claim().await,
            30..52 => self.work().await,
            52..70 => self.save().await,
            70..74 => self.release().await,
            74..86 => self.answer().await,
            86..89 => self.cancel().await,
            89..91 => self.retry().await,
            91..93 => self.write_with_stale_lease().await,
            93..95 => self.pause().await,
            95..97 => self.clock.advance(Duration::from_secs(self.random.below(40))),
            _ => self.crash(),
        }
        self.check().await;
    }

    async fn start(&mut self) {
        let repeat = self.random.below(4) == 0 && !self.starts.is_empty();
        let (cause, known) = if repeat {
            let at = self.random.below(self.starts.len() as u64) as usize;
            (self.starts[at].0.clone(), Some(self.starts[at].1))
        } else {
            (self.cause(), None)
        };
        let repo = known.map_or(RepoId(1 + self.random.below(REPOS)), |run| run.repo);
        let trigger = RunTrigger {
            command: "toy".into(),
            args: String::new(),
            repo,
            installation: InstallationId(5),
            issue: IssueNo(1 + self.random.below(ISSUES)),
            actor: person("ada", 1001),
            role: Role::Triage,
            cause: cause.clone(),
            at: BEGINNING,
            comment: None,
            request: None,
        };
        let (step, state) = ("\"Draft\"".to_owned(), b"{}".to_vec());
        let new = NewRun { workflow: "toy".into(), version: 1, trigger, step, state };
        match (self.store().start_run(new).await.unwrap(), known) {
            (StartDecision::Duplicate(run), Some(known)) => assert_eq!(run, known),
            (StartDecision::New(run), None) => self.starts.push((cause, run)),
            (StartDecision::AlreadyLive(_), None) => {}
            (opened, known) => panic!("{opened:?}, but the model has {known:?}"),
        }
    }

    async fn claim(&mut self) {
        let now = self.clock_now();
        if let Some(lease) = self.claim_at(now).await {
            self.check_claim(&lease);
            self.attempts.push(Attempt { lease, next: 0, inside: None });
        }
    }

    async fn claim_at(&self, now: countersign::types::Timestamp) -> Option<RunLease> {
        let store = self.store();
        futures_util::future::join_all(store.live_run_scans(now)).await;
        store.claim_run(now, &HashSet::new()).await.unwrap()
    }

    fn check_claim(&self, lease: &RunLease) {
        let run = &lease.run;
        assert!(self.attempts.iter().all(|held| held.lease.run.id != run.id), "{} is held twice", run.id);
        assert!(!self.paused.contains(&run.id.repo), "{} is paused", run.id.repo);
        assert!(run.status.is_live());
        if let Some(gate) = &run.gate {
            let oldest = self.waiting.get(&(run.id.repo, gate.id)).and_then(|ids| ids.first()).copied();
            assert_eq!(run.answer.as_ref().map(|answer| answer.id), oldest, "the oldest answer comes first");
        }
    }

    fn random_attempt(&mut self) -> Option<usize> {
        let held = self.attempts.len() as u64;
        (held > 0).then(|| self.random.below(held) as usize)
    }

    /// Starts or finishes an effect of a random attempt.
    async fn work(&mut self) {
        let Some(at) = self.random_attempt() else { return };
        let store = self.store();
        let value = vec![self.random.below(256) as u8, self.random.below(256) as u8];
        let Attempt { lease, next, inside } = &mut self.attempts[at];
        let (run, visit) = (lease.run.id, lease.run.visit);
        if let Some(key) = inside.take() {
            store.journal_done(lease, KEYS[key], value.clone()).await.unwrap();
            self.journal.insert((run, visit, key), Some(value));
            return;
        }
        let key = *next;
        if key == KEYS.len() {
            return;
        }
        *next += 1;
        let begun = store.journal_begin(lease, KEYS[key]).await.unwrap();
        match (self.journal.get(&(run, visit, key)), begun) {
            (Some(Some(value)), JournalLookup::Done(read)) => assert_eq!(*value, read),
            (None, JournalLookup::Begun { interrupted: false })
            | (Some(None), JournalLookup::Begun { interrupted: true }) => {
                self.journal.insert((run, visit, key), None);
                *inside = Some(key);
            }
            (known, begun) => panic!("{run} visit {visit} {key}: {begun:?}, but the model has {known:?}"),
        }
    }

    async fn save(&mut self) {
        let Some(at) = self.random_attempt() else { return };
        let Attempt { lease, inside, .. } = self.attempts.swap_remove(at);
        let checkpoint = if inside.is_some() { self.retry_later() } else { self.next_checkpoint(&lease.run) };
        let (run, used) = (&lease.run, consumes_answer(&checkpoint));
        let closes = used && !matches!(checkpoint, Checkpoint::Ask { .. });
        self.store().save_step(&lease, checkpoint).await.unwrap();
        if let (true, Some(gate)) = (used, &run.gate) {
            let waiting = self.waiting.entry((run.id.repo, gate.id)).or_default();
            if let Some(answer) = &run.answer {
                assert!(waiting.remove(&answer.id), "answer {} was consumed before", answer.id);
                assert!(self.consumed.insert((run.id.repo, answer.id)), "answer {} twice", answer.id);
            }
            if closes {
                waiting.clear(); // late answers are dropped
            }
        }
        self.stale.push(lease);
    }

    fn retry_later(&mut self) -> Checkpoint {
        let due = self.clock_now().plus(Duration::from_secs(self.random.below(30)));
        Checkpoint::Retry { attempts: 1, due, why: "later".into() }
    }

    fn next_checkpoint(&mut self, run: &RunRow) -> Checkpoint {
        let state = b"{}".to_vec();
        if run.status == RunStatus::Halting {
            return match self.random.below(3) {
                0 => self.retry_later(),
                _ => Checkpoint::Ended { status: RunStatus::Failed, why: "ended".into() },
            };
        }
        if run.cancel.is_some() {
            return Checkpoint::Halt { halt: "{}".into(), why: "stopped".into() };
        }
        match self.random.below(10) {
            0..3 => Checkpoint::Go { step: "\"Review\"".into(), state, moves: 0 },
            3..6 => Checkpoint::Ask { state, gate: gate() },
            6 => {
                let until = self.clock_now().plus(Duration::from_secs(self.random.below(30)));
                Checkpoint::Wait { state, until, why: "checks".into() }
            }
            7 => self.retry_later(),
            8 => Checkpoint::Done {
                state,
                outcome: RunCompletion { summary: "done".into(), url: None },
                then: None,
            },
            _ => Checkpoint::Halt { halt: "{}".into(), why: "broken".into() },
        }
    }

    async fn release(&mut self) {
        let Some(at) = self.random_attempt() else { return };
        let held = self.attempts.swap_remove(at);
        self.store().release_run(&held.lease).await.unwrap();
        self.stale.push(held.lease);
    }

    async fn answer(&mut self) {
        let gates: Vec<_> = self.live().await.into_iter().filter_map(|run| run.gate).collect();
        if gates.is_empty() {
            return;
        }
        let gate = gates[self.random.below(gates.len() as u64) as usize].clone();
        let answer = answer_by_grace(Verb::Approve, &self.cause().0);
        let key = (gate.run.repo, gate.id);
        assert_eq!(
            self.store().record_answer(gate.clone(), answer.clone()).await.unwrap(),
            AnswerReceipt::Accepted
        );
        let again = self.store().record_answer(gate.clone(), answer).await.unwrap();
        assert_eq!(again, AnswerReceipt::Duplicate);
        let ledger = self.store().ledger(gate.run).await.unwrap();
        self.waiting.entry(key).or_default().insert(ledger.answers.last().unwrap().0.id);
    }

    async fn cancel(&mut self) {
        let (repo, issue) = (RepoId(1 + self.random.below(REPOS)), IssueNo(1 + self.random.below(ISSUES)));
        let (by, at) = (person("ada", 1001), self.clock_now());
        let cancel = CancelRow { cause: self.cause(), by, why: String::new(), at };
        let marked = self.store().cancel_runs(repo, issue, None, cancel.clone()).await.unwrap();
        assert_eq!(self.store().cancel_runs(repo, issue, None, cancel).await.unwrap(), marked);
    }

    async fn retry(&mut self) {
        let all = self.store().runs(RunFilter::default()).await.unwrap();
        let Some(run) = all.iter().find(|run| run.status == RunStatus::Failed) else { return };
        let cause = self.cause();
        let became = self.store().retry_run(run.id, cause.clone(), "root".into()).await.unwrap();
        if matches!(became, RetryDecision::Resumed) {
            let again = self.store().retry_run(run.id, cause, "root".into()).await.unwrap();
            assert!(matches!(again, RetryDecision::Duplicate));
        } else {
            assert!(matches!(became, RetryDecision::OtherRunLive(_)), "{became:?}");
        }
    }

    /// Asserts that every write with a stale lease is refused.
    async fn write_with_stale_lease(&mut self) {
        let Some(lease) = self.stale.pop() else { return };
        let (store, checkpoint) = (self.store(), self.retry_later());
        let refused = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Fenced));
        assert!(refused(store.journal_begin(&lease, "late").await.map(|_| ())));
        assert!(refused(store.journal_done(&lease, "first", b"late".to_vec()).await));
        assert!(refused(store.save_step(&lease, checkpoint).await));
        assert!(refused(store.release_run(&lease).await));
    }

    async fn pause(&mut self) {
        let repo = RepoId(1 + self.random.below(REPOS));
        let scope = PauseScope::Repo(repo);
        if self.paused.remove(&repo) {
            assert!(self.store().remove_pause(scope).await.unwrap());
        } else {
            let pause = ActivePause { scope, by: "root".into(), why: "upgrade".into(), at: self.clock_now() };
            self.store().set_pause(pause).await.unwrap();
            self.paused.insert(repo);
        }
    }

    fn crash(&mut self) {
        self.stale = self.attempts.drain(..).map(|held| held.lease).collect();
        self.store = None;
        self.open();
    }

    async fn live(&self) -> Vec<RunRow> {
        self.store().runs(RunFilter { live_only: true, ..RunFilter::default() }).await.unwrap()
    }

    fn clock_now(&self) -> countersign::types::Timestamp {
        countersign::clock::Clock::now(&*self.clock)
    }

    /// Asserts that no issue has two live runs, that no answer is lost, and that exactly the due runs can be claimed.
    async fn check(&mut self) {
        let (now, store) = (self.clock_now(), self.store());
        let live = self.live().await;
        let places: HashSet<_> = live.iter().map(|run| (run.id.repo, run.trigger.issue)).collect();
        assert_eq!(places.len(), live.len(), "one live run of a workflow on an issue");
        for run in &live {
            let held = self.attempts.iter().any(|attempt| attempt.lease.run.id == run.id);
            assert_eq!(run.taken, held, "{}", run.id);
            let waiting = run.gate.as_ref().and_then(|gate| self.waiting.get(&(run.id.repo, gate.id)));
            let oldest = waiting.and_then(|ids| ids.first()).copied();
            assert_eq!(run.answer.as_ref().map(|answer| answer.id), oldest, "{}", run.id);
        }
        let due: BTreeSet<_> = live.iter().filter(|run| self.due(run, now)).map(|run| run.id).collect();
        let mut leases: Vec<RunLease> = Vec::new();
        while let Some(lease) = self.claim_at(now).await {
            self.check_claim(&lease);
            leases.push(lease);
        }
        let claimed: BTreeSet<_> = leases.iter().map(|lease| lease.run.id).collect();
        assert_eq!(claimed, due, "exactly the due runs can be claimed");
        for lease in &leases {
            store.release_run(lease).await.unwrap();
        }
        if !due.is_empty() {
            assert!(store.next_due().is_some_and(|next| next <= now));
        }
    }

    fn due(&self, run: &RunRow, now: countersign::types::Timestamp) -> bool {
        let ends = run.cancel.is_some() && run.status != RunStatus::Halting;
        !run.taken && !self.paused.contains(&run.id.repo) && (ends || run.due.is_some_and(|due| due <= now))
    }
}

fn gate() -> GateSpec {
    GateSpec {
        stage: "lld".into(),
        subject: Hash::digest(b"the design"),
        verbs: vec![(Verb::Approve, Role::Write.into())],
        shown_at: BEGINNING,
        approvers: Approvers::default(),
        expires: None,
        options: Vec::new(),
    }
}

/// Returns whether saving this checkpoint consumes the answer. Both leaving the visit and reopening the gate consume
/// it.
fn consumes_answer(left: &Checkpoint) -> bool {
    !matches!(left, Checkpoint::Wait { .. } | Checkpoint::Retry { .. } | Checkpoint::Park { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_invariants_hold_after_random_operations_and_crashes() {
    for seed in 1..=6 {
        let mut simulation = Simulation::new(seed);
        for _ in 0..200 {
            simulation.step().await;
        }
        assert!(!simulation.starts.is_empty(), "seed {seed} started no run");
    }
}
