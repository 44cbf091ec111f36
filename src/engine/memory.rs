//! A backing that keeps everything in memory and whose journal is *positional*: an attempt must ask
//! for its entries in the order in which they were written, as engines that replay demand it. The
//! contract suite runs against this and the SQLite store alike, so that no workflow comes to lean
//! on more than both can give. It is also the quickest backing for a workflow's own tests.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::{BoxFuture, ready};

use super::backing::{Backing, Kept};
use crate::{
    clock::SharedClock,
    limits,
    store::{
        Answer, AnswerRow, AuditEntry, AuditRow, Begun, Booked, CallRow, Calls, CancelRow, Checkpoint,
        Filter, GateRow, GateSpec, Lease, Ledger, NewRun, Opened, Pause, PauseScope, Record, Remark, Rerun,
        RunRow, RunStatus, StoreError,
    },
    types::{Cause, Hash, IssueNo, RepoId, RunId, Timestamp},
};

/// Everything of a server's runs, for as long as it lives.
pub struct Memory {
    clock: SharedClock,
    inner: Mutex<Inner>,
}

impl Memory {
    pub fn new(clock: SharedClock) -> Arc<Self> {
        Arc::new(Self { clock, inner: Mutex::default() })
    }

    /// What a restart of the process does: whatever was held is free.
    pub fn reboot(&self) {
        self.lock().epoch += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One atomic call.
    fn with<V: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Inner, Timestamp) -> Result<V, StoreError>,
    ) -> Kept<'_, V> {
        let result = work(&mut self.lock(), self.clock.now());
        Box::pin(ready(result))
    }
}

#[derive(Default)]
struct Inner {
    epoch: i64,
    runs: BTreeMap<RunId, Run>,
    cancels: HashMap<Cause, Vec<RunId>>,
    gates: Vec<Gate>,
    answers: Vec<Booking>,
    documents: HashMap<Hash, Vec<u8>>,
    records: Vec<(RunId, u64, String, Record)>,
    audit: Vec<AuditRow>,
    /// Causes of retries that were granted.
    retries: HashSet<Cause>,
    remarks: Vec<(RunId, Remark)>,
    pauses: Vec<Pause>,
    claims: u64,
    /// The claim a repository was last served by.
    served: HashMap<RepoId, u64>,
}

struct Run {
    /// `taken`, `parked`, `gate` and `answer` are filled in when it is read.
    row: RunRow,
    taken: Option<i64>,
    parked: Option<i64>,
    lease: u64,
    /// The present visit's.
    journal: Vec<Entry>,
    /// Where in the journal the present attempt is.
    position: usize,
    /// Saves within the present visit.
    saves: u32,
}

struct Entry {
    key: String,
    value: Option<Vec<u8>>,
    lap: Lap,
}

/// Attempts of one lap start from the same state and answer, so they must ask for the same entries
/// in the same order; those of a later lap may pass over what an earlier one wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lap {
    saves: u32,
    answer: Option<u64>,
}

struct Gate {
    row: GateRow,
    open: bool,
}

struct Booking {
    row: AnswerRow,
    run: RunId,
    /// No step has had it, and its gate is open.
    waiting: bool,
}

impl Inner {
    fn start(&mut self, new: NewRun, now: Timestamp) -> Opened {
        let trigger = &new.trigger;
        if let Some(run) = self.runs.values().find(|run| run.row.trigger.cause == trigger.cause) {
            return Opened::Duplicate(run.row.id);
        }
        let live = self.runs.values().find(|run| {
            let row = &run.row;
            row.status.live()
                && (&row.workflow, row.id.repo, row.trigger.issue)
                    == (&new.workflow, trigger.repo, trigger.issue)
        });
        if let Some(run) = live {
            return Opened::Live(Box::new(self.view(run)));
        }
        let seq = 1 + self.runs.keys().filter(|id| id.repo == trigger.repo).count() as u64;
        let id = RunId { repo: trigger.repo, seq };
        let row = RunRow {
            id,
            workflow: new.workflow,
            version: new.version,
            trigger: new.trigger,
            status: RunStatus::Ready,
            step: new.step,
            state: new.state,
            visit: 1,
            moves: 0,
            attempts: 0,
            due: Some(now),
            taken: false,
            parked: false,
            halt: None,
            why: None,
            outcome: None,
            calls: Calls::default(),
            cancel: None,
            gate: None,
            answer: None,
            remarks: 0,
            started_at: now,
            updated_at: now,
        };
        let (journal, position, saves) = (Vec::new(), 0, 0);
        self.runs.insert(id, Run { row, taken: None, parked: None, lease: 0, journal, position, saves });
        Opened::New(id)
    }

    fn view(&self, run: &Run) -> RunRow {
        let mut row = run.row.clone();
        row.taken = run.taken == Some(self.epoch);
        row.parked = run.parked == Some(self.epoch);
        row.gate = self.gates.iter().find(|gate| gate.open && gate.row.run == row.id).map(|gate| {
            let answers = self.answers.iter().filter(|booking| booking.row.gate == gate.row.id).count();
            let touched = self.remarks(row.id).filter(|remark| remark.touches(row.visit)).last().cloned();
            GateRow { answers: u32::try_from(answers).unwrap_or(u32::MAX), touched, ..gate.row.clone() }
        });
        row.answer = row.gate.as_ref().and_then(|gate| {
            let mut bookings = self.answers.iter();
            bookings
                .find(|booking| booking.waiting && booking.row.gate == gate.id)
                .map(|booking| booking.row.clone())
        });
        row
    }

    fn answer(&mut self, gate: &GateRow, answer: Answer, now: Timestamp) -> Booked {
        if self.answers.iter().any(|booking| booking.row.answer.cause == answer.cause) {
            return Booked::Duplicate;
        }
        let same = self
            .gates
            .iter()
            .any(|open| open.open && open.row.id == gate.id && open.row.spec.subject == gate.spec.subject);
        let Some(run) = self.runs.get_mut(&gate.run).filter(|run| same && run.row.status.live()) else {
            return Booked::Changed;
        };
        run.row.due = Some(run.row.due.map_or(now, |due| due.min(now)));
        let id = self.answers.len() as u64 + 1;
        let row = AnswerRow { id, gate: gate.id, subject: gate.spec.subject, answer };
        self.answers.push(Booking { row, run: gate.run, waiting: true });
        Booked::Taken
    }

    fn remark(&mut self, id: RunId, remark: Remark, now: Timestamp) -> Booked {
        if self.remarks.iter().any(|(_, kept)| kept.cause == remark.cause) {
            return Booked::Duplicate;
        }
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.row.status.live()) else {
            return Booked::Changed;
        };
        if run.row.status == RunStatus::Asking {
            let due = now.plus(remark.patience());
            run.row.due = Some(run.row.due.map_or(due, |before| before.min(due)));
        }
        self.remarks.push((id, remark));
        Booked::Taken
    }

    fn remarks(&self, run: RunId) -> impl Iterator<Item = &Remark> {
        self.remarks.iter().filter(move |(of, _)| *of == run).map(|(_, remark)| remark)
    }

    fn cancel(&mut self, repo: RepoId, issue: IssueNo, only: Option<RunId>, cancel: CancelRow) -> Vec<RunId> {
        if let Some(runs) = self.cancels.get(&cancel.cause) {
            return runs.clone();
        }
        let mut marked = Vec::new();
        for run in
            self.runs.values_mut().filter(|run| run.row.id.repo == repo && run.row.trigger.issue == issue)
        {
            let row = &mut run.row;
            if row.status.live() && row.cancel.is_none() && only.is_none_or(|id| id == row.id) {
                row.cancel = Some(cancel.clone());
                marked.push(row.id);
            }
        }
        self.cancels.insert(cancel.cause, marked.clone());
        marked
    }

    fn retry(&mut self, id: RunId, cause: Cause, by: &str, now: Timestamp) -> Rerun {
        if self.retries.contains(&cause) {
            return Rerun::Duplicate;
        }
        let Some(run) = self.runs.get(&id) else { return Rerun::NoRun };
        let row = self.view(run);
        let parked = row.parked && row.status.live();
        let waits = row.status == RunStatus::Waiting && row.gate.is_none();
        if !parked && !waits && row.status != RunStatus::Failed {
            return Rerun::NotFailed(Box::new(row));
        }
        let key = |row: &RunRow| (row.workflow.clone(), row.id.repo, row.trigger.issue);
        let mut others = self.runs.values().filter(|run| run.row.id != id && run.row.status.live());
        if let Some(other) = others.find(|other| key(&other.row) == key(&row)) {
            return Rerun::Another(Box::new(self.view(other)));
        }
        self.retries.insert(cause);
        if let Some(run) = self.runs.get_mut(&id) {
            run.parked = None;
            run.row.due = Some(now);
            if !parked {
                let row = &mut run.row;
                (row.status, row.moves, row.attempts) = (RunStatus::Ready, 0, 0);
                (row.halt, row.why) = (None, Some(format!("tried again by {by}")));
                run.lease += 1;
                run.next_visit();
            }
        }
        Rerun::Going
    }

    fn paused(&self, repo: RepoId) -> bool {
        self.pauses.iter().any(|pause| [PauseScope::Server, PauseScope::Repo(repo)].contains(&pause.scope))
    }

    /// When a run may be taken, if at all in this boot.
    fn due(&self, run: &Run) -> Option<Timestamp> {
        let row = &run.row;
        if !row.status.live() || run.taken == Some(self.epoch) || self.paused(row.id.repo) {
            return None;
        }
        if row.cancel.is_some() && row.status != RunStatus::Halting {
            return Some(Timestamp(0));
        }
        row.due.filter(|_| run.parked != Some(self.epoch))
    }

    /// What is served first: a repository where somebody spoke, then the one served least recently; in it what
    /// somebody spoke to, and last what came to nothing before.
    fn claim(&mut self, now: Timestamp, except: &HashSet<RunId>) -> Option<Lease> {
        let ready: Vec<_> = self
            .runs
            .values()
            .filter(|run| !except.contains(&run.row.id) && self.serves(run))
            .filter_map(|run| Some((self.due(run).filter(|due| *due <= now)?, run.row.id, self.rank(run))))
            .collect();
        let spoken: HashSet<_> =
            ready.iter().filter(|(.., rank)| *rank == 0).map(|(_, id, _)| id.repo).collect();
        let served = |repo: RepoId| self.served.get(&repo).copied().unwrap_or(0);
        let first = |(due, id, rank): &(Timestamp, RunId, u8)| {
            (!spoken.contains(&id.repo), served(id.repo), id.repo, *rank, *due, id.seq)
        };
        let (_, id, _) = ready.into_iter().min_by_key(first)?;
        self.claims += 1;
        self.served.insert(id.repo, self.claims);
        let epoch = self.epoch;
        let run = self.runs.get_mut(&id)?;
        run.taken = Some(epoch);
        run.lease += 1;
        run.position = 0;
        let run = self.runs.get(&id)?;
        let (number, claim) = (run.lease, self.claims);
        Some(Lease { run: self.view(run), number, epoch, claim, gathered: Arc::default() })
    }

    /// Is there a worker left for the run's repository and installation?
    fn serves(&self, run: &Run) -> bool {
        let held = |fits: &dyn Fn(&RunRow) -> bool| {
            self.runs.values().filter(|run| run.taken == Some(self.epoch) && fits(&run.row)).count()
        };
        let row = &run.row;
        held(&|other| other.id.repo == row.id.repo) < limits::REPOSITORY_STEPS
            && held(&|other| other.trigger.installation == row.trigger.installation)
                < limits::INSTALLATION_STEPS
    }

    fn rank(&self, run: &Run) -> u8 {
        let row = self.view(run);
        if row.answer.is_some() || row.cancel.is_some() && row.status != RunStatus::Halting {
            return 0;
        }
        if row.status == RunStatus::Ready && row.why.is_some() { 2 } else { 1 }
    }

    /// The run, if this lease is the last it was taken with.
    fn held(&mut self, lease: &Lease) -> Result<&mut Run, StoreError> {
        let epoch = self.epoch;
        self.runs
            .get_mut(&lease.run.id)
            .filter(|run| run.taken == Some(epoch) && run.lease == lease.number)
            .ok_or(StoreError::Fenced)
    }

    fn save(&mut self, lease: &Lease, left: Checkpoint, now: Timestamp) -> Result<(), StoreError> {
        let run = self.held(lease)?;
        if let Some(until) = lease.waits_on(&left) {
            (run.taken, run.lease, run.row.due) = (None, run.lease + 1, Some(until));
            return Ok(());
        }
        let next_due = match &left {
            Checkpoint::Ask { gate, .. } => self.open_gate(lease, gate, now),
            Checkpoint::Go { .. }
            | Checkpoint::Done { .. }
            | Checkpoint::Halt { .. }
            | Checkpoint::Ended { .. } => {
                self.close_gate(lease);
                None
            }
            Checkpoint::Wait { until, .. } => Some(if self.answered_meanwhile(lease) { now } else { *until }),
            Checkpoint::Retry { .. } | Checkpoint::Park { .. } => None,
        };
        let (epoch, given) = (self.epoch, self.remarks(lease.run.id).count() as u64);
        let run = self.held(lease)?;
        if matches!(left, Checkpoint::Go { .. } | Checkpoint::Ask { .. } | Checkpoint::Wait { .. }) {
            run.row.remarks = given;
        }
        (run.taken, run.parked, run.lease) = (None, None, run.lease + 1);
        let row = &mut run.row;
        let Calls { calls, writes } = lease.gathered.tally().take();
        (row.calls.calls, row.calls.writes) = (row.calls.calls + calls, row.calls.writes + writes);
        (row.updated_at, row.attempts, row.why) = (now, 0, None);
        match left {
            Checkpoint::Go { step, state, moves } => {
                (row.step, row.state, row.moves) = (step, state, moves);
                (row.status, row.due) = (RunStatus::Ready, Some(now));
                run.next_visit();
            }
            Checkpoint::Ask { state, .. } => {
                let more = given > lease.run.remarks;
                let due = if more { Some(now) } else { next_due };
                (row.status, row.state, row.due) = (RunStatus::Asking, state, due);
                run.saves += 1;
            }
            Checkpoint::Wait { state, why, .. } => {
                (row.status, row.state, row.due) = (RunStatus::Waiting, state, next_due);
                row.why = Some(why);
                run.saves += 1;
            }
            Checkpoint::Done { state, outcome, then } => {
                (row.status, row.state, row.due) = (RunStatus::Done, state, None);
                row.outcome = Some(outcome);
                let stopped = row.cancel.is_some();
                if let Some(new) = then.filter(|_| !stopped) {
                    self.start(*new, now);
                }
            }
            Checkpoint::Halt { halt, why } => {
                (row.status, row.due) = (RunStatus::Halting, Some(now));
                (row.halt, row.why) = (Some(halt), Some(why));
                run.next_visit();
            }
            Checkpoint::Ended { status, why } => {
                (row.status, row.due, row.why) = (status, None, Some(why));
            }
            Checkpoint::Retry { attempts, due, why } => {
                (row.attempts, row.due, row.why) = (attempts, Some(due), Some(why));
            }
            Checkpoint::Park { why } => {
                row.why = Some(why);
                run.parked = Some(epoch);
            }
        }
        Ok(())
    }

    fn consume_answer(&mut self, lease: &Lease) {
        if let Some(had) = &lease.run.answer {
            self.answers
                .iter_mut()
                .filter(|booking| booking.row.id == had.id)
                .for_each(|b| b.waiting = false);
        }
    }

    /// Did somebody answer the open gate while the step worked?
    fn answered_meanwhile(&self, lease: &Lease) -> bool {
        let (Some(open), None) = (&lease.run.gate, &lease.run.answer) else { return false };
        self.answers.iter().any(|booking| booking.waiting && booking.row.gate == open.id)
    }

    fn close_gate(&mut self, lease: &Lease) {
        self.consume_answer(lease);
        let Some(gate) = &lease.run.gate else { return };
        self.gates.iter_mut().filter(|open| open.row.id == gate.id).for_each(|open| open.open = false);
        self.answers.iter_mut().filter(|b| b.row.gate == gate.id).for_each(|b| b.waiting = false);
    }

    /// Opens the gate or brings it up to date; says when the step wants to run again.
    fn open_gate(&mut self, lease: &Lease, spec: &GateSpec, now: Timestamp) -> Option<Timestamp> {
        self.consume_answer(lease);
        let run = lease.run.id;
        let mut more = false;
        if let Some(open) = self.gates.iter_mut().find(|gate| gate.open && gate.row.run == run) {
            open.row.spec = spec.clone();
            let id = open.row.id;
            for booking in self.answers.iter_mut().filter(|b| b.waiting && b.row.gate == id) {
                booking.waiting = booking.row.subject == spec.subject;
                more |= booking.waiting;
            }
        } else {
            let id = self.gates.len() as u64 + 1;
            let row = GateRow { id, run, spec: spec.clone(), answers: 0, touched: None };
            self.gates.push(Gate { row, open: true });
        }
        if more { Some(now) } else { spec.expires.filter(|at| *at > now) }
    }

    fn ledger(&self, run: RunId) -> Ledger {
        let mut ledger = Ledger::default();
        for (_, _, _, record) in self.records.iter().filter(|(of, ..)| *of == run) {
            match record.clone() {
                Record::Call(row) => ledger.calls.push(row),
                Record::Verdict(row) => ledger.verdicts.push(row),
                Record::Finding(row) => ledger.findings.push(row),
                Record::Approval(row) => ledger.approvals.push(row),
                Record::Raise(row) => ledger.raises.push(row),
                Record::Commit(row) => ledger.commits.push(row),
                // Read by issue, and by nobody who knows only the engine.
                Record::Section(_) | Record::Text(_) | Record::Artifact(_) | Record::Route(_) => {}
            }
        }
        let gate = |id: u64| self.gates.iter().find(|gate| gate.row.id == id);
        let rule = |id| gate(id).map(|gate| gate.row.spec.approvers.clone()).unwrap_or_default();
        let bookings = self.answers.iter().filter(|booking| booking.run == run);
        ledger.answers = bookings.map(|booking| (booking.row.clone(), rule(booking.row.gate))).collect();
        ledger
    }

    fn record(&mut self, run: RunId, visit: u64, key: &str, record: Record) {
        let same_kind = |held: &Record| std::mem::discriminant(held) == std::mem::discriminant(&record);
        let held = self
            .records
            .iter_mut()
            .find(|(of, at, name, held)| (*of, *at, name.as_str()) == (run, visit, key) && same_kind(held));
        match held {
            Some((.., held)) => *held = record,
            None => self.records.push((run, visit, key.to_owned(), record)),
        }
    }

    fn audit(&mut self, entry: AuditEntry, now: Timestamp) -> Hash {
        let known = self
            .audit
            .iter()
            .find(|row| (row.run, row.visit, &row.key) == (entry.run, entry.visit, &entry.key));
        if let Some(row) = known {
            return row.hash;
        }
        let head = self.audit.iter().rev().find(|row| row.run.repo == entry.run.repo).map(|row| row.hash);
        let row = AuditRow::after(head, entry, now);
        let hash = row.hash;
        self.audit.push(row);
        hash
    }
}

impl Run {
    fn next_visit(&mut self) {
        self.row.visit += 1;
        self.journal.clear();
        self.saves = 0;
    }

    /// The entry this attempt asks for must be the next one of its own lap.
    fn begin(&mut self, lease: &Lease, key: &str) -> Result<Begun, StoreError> {
        let lap = Lap { saves: self.saves, answer: lease.run.answer.as_ref().map(|row| row.id) };
        while let Some(entry) = self.journal.get(self.position) {
            self.position += 1;
            if entry.key == key {
                return Ok(match &entry.value {
                    Some(value) => Begun::Done(value.clone()),
                    None => Begun::Fresh { interrupted: true },
                });
            }
            if entry.lap == lap {
                return Err(StoreError::Journal(format!(
                    "`{key}` was asked for where `{}` was written; calls must come in a fixed order",
                    entry.key
                )));
            }
        }
        if self.journal.iter().any(|entry| entry.key == key) {
            return Err(StoreError::Journal(format!("`{key}` was written earlier than it is asked for")));
        }
        self.journal.push(Entry { key: key.to_owned(), value: None, lap });
        self.position = self.journal.len();
        Ok(Begun::Fresh { interrupted: false })
    }

    fn done(&mut self, key: &str, value: Vec<u8>) {
        let written = self.position.checked_sub(1).and_then(|at| self.journal.get_mut(at));
        if let Some(entry) = written.filter(|entry| entry.key == key) {
            entry.value = Some(value);
        }
    }
}

impl Backing for Memory {
    fn start(&self, new: NewRun) -> Kept<'_, Opened> {
        self.with(|inner, now| Ok(inner.start(new, now)))
    }

    fn answer(&self, gate: GateRow, answer: Answer) -> Kept<'_, Booked> {
        self.with(|inner, now| Ok(inner.answer(&gate, answer, now)))
    }

    fn has_answer<'a>(&'a self, _repo: RepoId, cause: &'a Cause) -> Kept<'a, bool> {
        self.with(|inner, _| Ok(inner.answers.iter().any(|booking| booking.row.answer.cause == *cause)))
    }

    fn remark(&self, run: RunId, remark: Remark) -> Kept<'_, Booked> {
        self.with(|inner, now| Ok(inner.remark(run, remark, now)))
    }

    fn remarks<'a>(&'a self, lease: &'a Lease, after: u64) -> Kept<'a, Vec<Remark>> {
        let (run, upto) = (lease.run.id, lease.run.remarks);
        self.with(|inner, _| {
            let read = (after as usize)..(upto.max(after) as usize);
            Ok(inner.remarks(run).skip(read.start).take(read.len()).cloned().collect())
        })
    }

    fn cancel(
        &self,
        repo: RepoId,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Kept<'_, Vec<RunId>> {
        self.with(|inner, _| Ok(inner.cancel(repo, issue, run, cancel)))
    }

    fn retry(&self, run: RunId, cause: Cause, by: String) -> Kept<'_, Rerun> {
        self.with(|inner, now| Ok(inner.retry(run, cause, &by, now)))
    }

    fn run(&self, id: RunId) -> Kept<'_, Option<RunRow>> {
        self.with(|inner, _| Ok(inner.runs.get(&id).map(|run| inner.view(run))))
    }

    fn runs(&self, filter: Filter) -> Kept<'_, Vec<RunRow>> {
        self.with(|inner, _| {
            let fits = |row: &RunRow| {
                filter.repo.is_none_or(|repo| repo == row.id.repo)
                    && filter.issue.is_none_or(|issue| issue == row.trigger.issue)
                    && (row.status.live() || !filter.live_only)
            };
            Ok(inner.runs.values().filter(|run| fits(&run.row)).map(|run| inner.view(run)).collect())
        })
    }

    fn looks(&self, _: Timestamp) -> Vec<BoxFuture<'_, ()>> {
        Vec::new()
    }

    fn looks_due(&self, _: Timestamp) -> bool {
        false
    }

    fn claim<'a>(&'a self, now: Timestamp, except: &'a HashSet<RunId>) -> Kept<'a, Option<Lease>> {
        self.with(|inner, _| Ok(inner.claim(now, except)))
    }

    fn save<'a>(&'a self, lease: &'a Lease, left: Checkpoint) -> Kept<'a, ()> {
        self.with(|inner, now| inner.save(lease, left, now))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> Kept<'a, ()> {
        self.with(|inner, _| {
            let run = inner.held(lease)?;
            (run.taken, run.lease) = (None, run.lease + 1);
            Ok(())
        })
    }

    fn next_due(&self) -> Kept<'_, Option<Timestamp>> {
        self.with(|inner, _| {
            let free = inner.runs.values().filter(|run| inner.serves(run));
            Ok(free.filter_map(|run| inner.due(run)).min())
        })
    }

    fn begin<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Begun> {
        self.with(|inner, _| inner.held(lease)?.begin(lease, key))
    }

    fn done<'a>(&'a self, lease: &'a Lease, key: &'a str, value: Vec<u8>) -> Kept<'a, ()> {
        self.with(|inner, _| {
            inner.held(lease)?.done(key, value);
            Ok(())
        })
    }

    fn put<'a>(&'a self, _lease: &'a Lease, bytes: &'a [u8]) -> Kept<'a, Hash> {
        self.with(|inner, _| {
            let hash = Hash::of(bytes);
            inner.documents.insert(hash, bytes.to_vec());
            Ok(hash)
        })
    }

    fn get<'a>(&'a self, _lease: &'a Lease, hash: Hash) -> Kept<'a, Vec<u8>> {
        self.with(|inner, _| {
            let missing = || StoreError::Missing { what: format!("document {hash}") };
            inner.documents.get(&hash).cloned().ok_or_else(missing)
        })
    }

    fn record<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()> {
        self.with(|inner, _| {
            inner.record(lease.run.id, lease.run.visit, key, record);
            Ok(())
        })
    }

    fn book<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()> {
        self.record(lease, key, record)
    }

    fn booked<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Option<CallRow>> {
        self.with(|inner, _| {
            let here = (lease.run.id, lease.run.visit, key);
            let mut records = inner.records.iter();
            Ok(records.find_map(|(run, visit, name, record)| match record {
                Record::Call(row) if (*run, *visit, name.as_str()) == here => Some(row.clone()),
                _ => None,
            }))
        })
    }

    fn ledger(&self, run: RunId) -> Kept<'_, Ledger> {
        self.with(|inner, _| Ok(inner.ledger(run)))
    }

    fn audit<'a>(&'a self, _lease: &'a Lease, entry: AuditEntry) -> Kept<'a, Hash> {
        self.with(|inner, now| Ok(inner.audit(entry, now)))
    }

    fn pause(&self, pause: Pause) -> Kept<'_, ()> {
        self.with(|inner, _| {
            inner.pauses.retain(|held| held.scope != pause.scope);
            inner.pauses.push(pause);
            Ok(())
        })
    }

    fn resume(&self, scope: PauseScope) -> Kept<'_, bool> {
        self.with(|inner, _| {
            let before = inner.pauses.len();
            inner.pauses.retain(|held| held.scope != scope);
            Ok(inner.pauses.len() < before)
        })
    }

    fn pauses(&self) -> Kept<'_, Vec<Pause>> {
        self.with(|inner, _| Ok(inner.pauses.clone()))
    }
}
