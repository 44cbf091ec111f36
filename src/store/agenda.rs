//! When each live run wants a worker, and who has one: kept in memory. Where several processes share a
//! database it is a hint of what may be claimed.
//!
//! It mirrors the repository databases. Whoever changes one holds the repository's order from before
//! the change until the agenda knows of it; whoever fails in between leaves the repository to be looked into
//! again. A boot knows nothing but which repositories may have live runs (the [hints](super::wake_hints)) and looks
//! into each of them first.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{PauseScope, RunStatus};
use crate::{
    limits,
    types::{InstallationId, RepoId, RunId, Timestamp},
};

/// What is served first within a repository. A repository where somebody spoke goes before others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunPriority {
    /// A person answered, or wants it to end.
    Spoken,
    Going,
    /// Came to nothing before.
    Again,
}

impl RunPriority {
    const ALL: [Self; 3] = [Self::Spoken, Self::Going, Self::Again];
}

/// One live run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScheduledRun {
    pub(super) seq: u64,
    /// None: not before somebody speaks, or not in this boot.
    pub(super) due: Option<Timestamp>,
    pub(super) rank: RunPriority,
    pub(super) installation: InstallationId,
    pub(super) place: RunPosition,
}

/// Where a live run stands, as it was saved last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunPosition {
    pub workflow: String,
    /// The step's serde form.
    pub step: String,
    pub status: RunStatus,
}

/// What a change made of a run: its slot, or none when it lives no more.
pub(super) type RunUpdate = (u64, Option<ScheduledRun>);

/// A run that was chosen, and the number of the choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunClaim {
    pub(super) run: RunId,
    pub(super) claim: u64,
}

#[derive(Default)]
pub(super) struct Agenda {
    inner: Mutex<AgendaState>,
}

#[derive(Default)]
struct AgendaState {
    repos: HashMap<RepoId, RepositoryRuns>,
    /// Databases to look into; until that is done nothing of theirs is claimed.
    looks: BTreeMap<RepoId, LiveRunScan>,
    /// For each installation, by when the first of its runs in a repository wants a worker. What nobody may serve
    /// now and what is not due is never gone through.
    wanting: BTreeMap<InstallationId, BTreeSet<(Timestamp, RepoId)>>,
    paused: HashSet<PauseScope>,
    suspended: HashSet<InstallationId>,
    /// Counts what was said here of these two.
    said: u64,
    /// Steps in flight.
    busy: HashMap<InstallationId, usize>,
    claims: u64,
}

/// One repository.
#[derive(Default)]
struct RepositoryRuns {
    order: Arc<tokio::sync::Mutex<()>>,
    /// Main.db says that there may be live runs here.
    hinted: bool,
    live: BTreeMap<u64, ScheduledRun>,
    held: BTreeMap<u64, HeldRun>,
    /// Its runs that want a worker and have none.
    lines: BTreeMap<InstallationId, InstallationQueue>,
    /// The claim it was last served by.
    served: u64,
}

struct HeldRun {
    claim: u64,
    installation: InstallationId,
    /// What `served` was before.
    served: u64,
}

struct LiveRunScan {
    due: Timestamp,
    under_way: bool,
    /// What is found by the look that is under way may be old already.
    again: Option<Timestamp>,
}

impl LiveRunScan {
    fn at(due: Timestamp) -> Self {
        Self { due, under_way: false, again: None }
    }
}

/// Runs of one installation in one repository, as they are served.
#[derive(Default)]
struct InstallationQueue(BTreeSet<(RunPriority, Timestamp, u64)>);

impl Agenda {
    /// What a boot knows before it has looked.
    pub(super) fn at_boot(
        hinted: impl IntoIterator<Item = RepoId>,
        paused: impl IntoIterator<Item = PauseScope>,
        suspended: impl IntoIterator<Item = InstallationId>,
    ) -> Self {
        let runs = || RepositoryRuns { hinted: true, ..RepositoryRuns::default() };
        let repos: HashMap<_, _> = hinted.into_iter().map(|repo| (repo, runs())).collect();
        let look = || LiveRunScan::at(Timestamp(0));
        let inner = AgendaState {
            looks: repos.keys().map(|repo| (*repo, look())).collect(),
            repos,
            paused: paused.into_iter().collect(),
            suspended: suspended.into_iter().collect(),
            ..AgendaState::default()
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Held by whoever changes the repository's runs, until the agenda knows of it.
    pub(super) fn order(&self, repo: RepoId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.lock().repos.entry(repo).or_default().order)
    }

    pub(super) fn hinted(&self, repo: RepoId) -> bool {
        self.lock().repos.get(&repo).is_some_and(|runs| runs.hinted)
    }

    /// Every repository in which a run may live, by number.
    pub(super) fn may_live(&self) -> Vec<RepoId> {
        let inner = self.lock();
        let hinted = inner.repos.iter().filter(|(_, runs)| runs.hinted);
        let mut repos: Vec<_> = hinted.map(|(repo, _)| *repo).collect();
        repos.sort_unstable();
        repos
    }

    pub(super) fn set_hinted(&self, repo: RepoId, hinted: bool) {
        self.lock().repos.entry(repo).or_default().hinted = hinted;
    }

    /// Is there a hint although nothing lives here?
    pub(super) fn hinted_in_vain(&self, repo: RepoId) -> bool {
        let inner = self.lock();
        !inner.looks.contains_key(&repo)
            && inner.repos.get(&repo).is_some_and(|runs| runs.hinted && runs.live.is_empty())
    }

    /// The runs of `repo` are about to change.
    pub(super) fn doubt(&self, repo: RepoId) -> AgendaChangeGuard<'_> {
        AgendaChangeGuard { agenda: self, repo, settled: false }
    }

    /// What stands here about `repo` may be wrong; look into its database then, or as somebody else wanted before.
    pub(super) fn recheck_at(&self, repo: RepoId, when: Timestamp) {
        let mut inner = self.lock();
        let look = inner.looks.entry(repo).or_insert(LiveRunScan::at(when));
        if look.under_way {
            look.again = Some(look.again.map_or(when, |again| again.min(when)));
        } else {
            look.due = look.due.min(when);
        }
    }

    /// Looks that are due and that nobody has begun.
    pub(super) fn begin_looks(&self, now: Timestamp) -> Vec<LiveRunScanGuard<'_>> {
        let mut inner = self.lock();
        let due = inner.looks.iter_mut().filter(|(_, look)| look.due <= now && !look.under_way);
        due.map(|(repo, look)| {
            look.under_way = true;
            LiveRunScanGuard { agenda: self, repo: *repo }
        })
        .collect()
    }

    pub(super) fn looks_due(&self, now: Timestamp) -> bool {
        self.lock().looks.values().any(|look| look.due <= now && !look.under_way)
    }

    /// What lives in `repo`, as its database says.
    pub(super) fn looked(&self, repo: RepoId, slots: Vec<ScheduledRun>) {
        let mut inner = self.lock();
        if inner.looks.get(&repo).is_none_or(|look| look.again.is_none()) {
            inner.looks.remove(&repo);
        }
        inner.clear(repo);
        for slot in slots {
            inner.set(repo, slot.seq, Some(slot));
        }
    }

    /// A run that is no longer what stands here.
    pub(super) fn became(&self, repo: RepoId, runs: &[RunUpdate]) {
        self.lock().apply(repo, runs);
    }

    /// A run that cannot be read; the others of its repository go on.
    pub(super) fn postpone(&self, run: RunId, until: Timestamp) {
        self.lock().change(run.repo, run.seq, |runs| {
            if let Some(slot) = runs.live.get_mut(&run.seq) {
                slot.due = Some(until);
            }
        });
    }

    /// Chooses a run that is due and not among `except`: of a repository where somebody spoke, or else of the
    /// one that was served least recently. The run is held until it is released.
    pub(super) fn pick(&self, now: Timestamp, except: &HashSet<RunId>) -> Option<RunClaim> {
        let mut inner = self.lock();
        let first = inner.candidates(now, except).min_by_key(|(repo, installation, run)| {
            let (rank, due, seq) = *run;
            let served = inner.repos.get(repo).map_or(0, |runs| runs.served);
            (rank != RunPriority::Spoken, served, *repo, rank, due, seq, *installation)
        });
        let (repo, installation, (.., seq)) = first?;
        inner.claims += 1;
        let claim = inner.claims;
        *inner.busy.entry(installation).or_default() += 1;
        inner.change(repo, seq, |runs| {
            let served = std::mem::replace(&mut runs.served, claim);
            runs.held.insert(seq, HeldRun { claim, installation, served });
        });
        Some(RunClaim { run: RunId { repo, seq }, claim })
    }

    /// Is the run held by this claim?
    pub(super) fn holds(&self, picked: RunClaim) -> bool {
        let inner = self.lock();
        let held = inner.repos.get(&picked.run.repo).and_then(|runs| runs.held.get(&picked.run.seq));
        held.is_some_and(|held| held.claim == picked.claim)
    }

    /// How many live runs stand where.
    pub(super) fn places(&self) -> HashMap<RunPosition, u64> {
        let mut places = HashMap::new();
        for slot in self.lock().repos.values().flat_map(|runs| runs.live.values()) {
            *places.entry(slot.place.clone()).or_default() += 1;
        }
        places
    }

    /// Is anybody taking a step of it right now?
    pub(super) fn held(&self, run: RunId) -> bool {
        self.lock().repos.get(&run.repo).is_some_and(|runs| runs.held.contains_key(&run.seq))
    }

    /// Lets go of a run; false: this claim does not hold it.
    pub(super) fn release(&self, picked: RunClaim) -> bool {
        self.lock().release(picked).is_some()
    }

    /// Lets go of a run that is as it was, until then. One to which somebody spoke meanwhile, or that somebody wants tried
    /// again, has another rank now and keeps its time.
    pub(super) fn rest(&self, picked: RunClaim, until: Timestamp) {
        let RunId { repo, seq } = picked.run;
        let mut inner = self.lock();
        if inner.release(picked).is_some() {
            inner.change(repo, seq, |runs| {
                if let Some(slot) = runs.live.get_mut(&seq).filter(|slot| slot.rank == RunPriority::Going) {
                    slot.due = Some(until);
                }
            });
        }
    }

    /// Lets go of a run whose database is closed, which does not cost its repository its turn. A look opens it.
    pub(super) fn open_first(&self, picked: RunClaim) {
        let repo = picked.run.repo;
        let mut inner = self.lock();
        if let Some(held) = inner.release(picked)
            && let Some(runs) = inner.repos.get_mut(&repo)
        {
            runs.served = held.served;
        }
        inner.looks.entry(repo).or_insert(LiveRunScan::at(Timestamp(0)));
    }

    /// When something may be claimed, or is to be looked into by somebody.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let inner = self.lock();
        let looks = inner.looks.values().filter(|look| !look.under_way).map(|look| look.due);
        let lines = inner.wanting.iter().filter(|(installation, _)| inner.serves(**installation));
        let runs = lines.filter_map(|(_, repos)| repos.iter().find(|(_, repo)| inner.open(*repo)));
        looks.chain(runs.map(|(due, _)| *due)).min()
    }

    /// The repository is gone, with its runs.
    pub(super) fn forget(&self, repo: RepoId) {
        let mut inner = self.lock();
        inner.clear(repo);
        inner.looks.remove(&repo);
        inner.repos.remove(&repo);
    }

    pub(super) fn pause(&self, scope: PauseScope) {
        let mut inner = self.lock();
        inner.said += 1;
        inner.paused.insert(scope);
    }

    pub(super) fn resume(&self, scope: PauseScope) {
        let mut inner = self.lock();
        inner.said += 1;
        inner.paused.remove(&scope);
    }

    /// How often it was said here that something is left alone, or is not any more.
    pub(super) fn said(&self) -> u64 {
        self.lock().said
    }

    /// These are paused or suspended, and no others. False: something was said here since they were read, so they may be
    /// what was before.
    pub(super) fn leave_alone(
        &self,
        said: u64,
        paused: impl IntoIterator<Item = PauseScope>,
        suspended: impl IntoIterator<Item = InstallationId>,
    ) -> bool {
        let mut inner = self.lock();
        if inner.said == said {
            inner.paused = paused.into_iter().collect();
            inner.suspended = suspended.into_iter().collect();
        }
        inner.said == said
    }

    /// The runs of a suspended installation are left alone.
    pub(super) fn suspend(&self, installation: InstallationId, suspended: bool) {
        let mut inner = self.lock();
        inner.said += 1;
        if suspended {
            inner.suspended.insert(installation);
        } else {
            inner.suspended.remove(&installation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, AgendaState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AgendaState {
    /// Whom a pick chooses from: the first of each line that is due and may be served.
    fn candidates(
        &self,
        now: Timestamp,
        except: &HashSet<RunId>,
    ) -> impl Iterator<Item = (RepoId, InstallationId, (RunPriority, Timestamp, u64))> {
        let served = self.wanting.iter().filter(|(installation, _)| self.serves(**installation));
        let due = served.flat_map(move |(installation, repos)| {
            repos.range(..=(now, RepoId(u64::MAX))).map(|(_, repo)| (*repo, *installation))
        });
        due.filter(|(repo, _)| self.open(*repo)).filter_map(move |(repo, installation)| {
            let line = self.repos.get(&repo)?.lines.get(&installation)?;
            Some((repo, installation, line.first(now, |seq| !except.contains(&RunId { repo, seq }))?))
        })
    }

    /// May steps of this repository begin?
    fn open(&self, repo: RepoId) -> bool {
        !self.looks.contains_key(&repo)
            && self.repos.get(&repo).is_some_and(|runs| runs.held.len() < limits::REPOSITORY_STEPS)
            && !self.paused.contains(&PauseScope::Repo(repo))
    }

    /// May steps of this installation begin, if its repository lets them?
    fn serves(&self, installation: InstallationId) -> bool {
        !self.paused.contains(&PauseScope::Server)
            && !self.suspended.contains(&installation)
            && self.busy.get(&installation).is_none_or(|busy| *busy < limits::INSTALLATION_STEPS)
    }

    fn apply(&mut self, repo: RepoId, runs: &[RunUpdate]) {
        for (seq, slot) in runs {
            self.set(repo, *seq, slot.clone());
        }
    }

    fn set(&mut self, repo: RepoId, seq: u64, slot: Option<ScheduledRun>) {
        self.change(repo, seq, |runs| match slot {
            Some(slot) => runs.live.insert(seq, slot),
            None => runs.live.remove(&seq),
        });
    }

    fn clear(&mut self, repo: RepoId) {
        let known: Vec<_> =
            self.repos.get(&repo).into_iter().flat_map(|runs| runs.live.keys().copied()).collect();
        for seq in known {
            self.set(repo, seq, None);
        }
    }

    fn release(&mut self, picked: RunClaim) -> Option<HeldRun> {
        let RunId { repo, seq } = picked.run;
        self.repos.get(&repo)?.held.get(&seq).filter(|held| held.claim == picked.claim)?;
        let held = self.change(repo, seq, |runs| runs.held.remove(&seq))?;
        if let Some(busy) = self.busy.get_mut(&held.installation) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&held.installation);
            }
        }
        Some(held)
    }

    /// Changes what is known of a run, and its place in the lines with it.
    fn change<R>(&mut self, repo: RepoId, seq: u64, change: impl FnOnce(&mut RepositoryRuns) -> R) -> R {
        let runs = self.repos.entry(repo).or_default();
        let before = runs.wants(seq);
        let result = change(runs);
        let after = runs.wants(seq);
        if before != after {
            if let Some((installation, at)) = before {
                self.in_line(repo, installation, |line| line.0.remove(&at));
            }
            if let Some((installation, at)) = after {
                self.in_line(repo, installation, |line| line.0.insert(at));
            }
        }
        result
    }

    fn in_line(
        &mut self,
        repo: RepoId,
        installation: InstallationId,
        change: impl FnOnce(&mut InstallationQueue) -> bool,
    ) {
        let lines = &mut self.repos.entry(repo).or_default().lines;
        let line = lines.entry(installation).or_default();
        let before = line.due();
        change(line);
        let after = line.due();
        if after.is_none() {
            lines.remove(&installation);
        }
        if before == after {
            return;
        }
        let repos = self.wanting.entry(installation).or_default();
        before.map(|due| repos.remove(&(due, repo)));
        repos.extend(after.map(|due| (due, repo)));
        if repos.is_empty() {
            self.wanting.remove(&installation);
        }
    }
}

impl RepositoryRuns {
    /// In which line a run stands that wants a worker, and where in it.
    fn wants(&self, seq: u64) -> Option<(InstallationId, (RunPriority, Timestamp, u64))> {
        let slot = self.live.get(&seq).filter(|_| !self.held.contains_key(&seq))?;
        Some((slot.installation, (slot.rank, slot.due?, seq)))
    }
}

impl InstallationQueue {
    /// When the first of it is due.
    fn due(&self) -> Option<Timestamp> {
        RunPriority::ALL.into_iter().filter_map(|rank| self.of(rank).next()).map(|(_, due, _)| *due).min()
    }

    /// Who is served first of those that are due.
    fn first(&self, now: Timestamp, may: impl Fn(u64) -> bool) -> Option<(RunPriority, Timestamp, u64)> {
        RunPriority::ALL.into_iter().find_map(|rank| {
            self.of(rank).take_while(|(_, due, _)| *due <= now).find(|(.., seq)| may(*seq)).copied()
        })
    }

    fn of(&self, rank: RunPriority) -> impl Iterator<Item = &(RunPriority, Timestamp, u64)> {
        self.0.range((rank, Timestamp(i64::MIN), 0)..=(rank, Timestamp(i64::MAX), u64::MAX))
    }
}

/// A look that somebody has begun; given up when it is dropped before what it found is known.
pub(super) struct LiveRunScanGuard<'a> {
    agenda: &'a Agenda,
    pub(super) repo: RepoId,
}

impl Drop for LiveRunScanGuard<'_> {
    fn drop(&mut self) {
        if let Some(look) = self.agenda.lock().looks.get_mut(&self.repo) {
            look.under_way = false;
            look.due = look.again.take().unwrap_or(look.due);
        }
    }
}

/// Until it is settled, what the agenda holds of a repository may be wrong.
pub(super) struct AgendaChangeGuard<'a> {
    agenda: &'a Agenda,
    repo: RepoId,
    settled: bool,
}

impl AgendaChangeGuard<'_> {
    /// The change is on disk, and this is what it made of the runs.
    pub(super) fn settle(mut self, runs: &[RunUpdate]) {
        self.settled = true;
        self.agenda.became(self.repo, runs);
    }

    /// The same, and whoever took the step lets go of its run.
    pub(super) fn settle_and_release(mut self, runs: &[RunUpdate], picked: RunClaim) {
        self.settled = true;
        let mut inner = self.agenda.lock();
        inner.release(picked);
        inner.apply(self.repo, runs);
    }
}

impl Drop for AgendaChangeGuard<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.agenda.recheck_at(self.repo, Timestamp(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp(1000);

    fn slot(seq: u64, rank: RunPriority, installation: u64) -> ScheduledRun {
        let place = RunPosition { workflow: "lld".into(), step: "\"1\"".into(), status: RunStatus::Ready };
        ScheduledRun { seq, due: Some(NOW), rank, installation: InstallationId(installation), place }
    }

    fn picked(agenda: &Agenda) -> Option<(u64, u64)> {
        agenda.pick(NOW, &HashSet::new()).map(|picked| (picked.run.repo.0, picked.run.seq))
    }

    #[test]
    fn what_is_told_during_a_look_is_looked_into_after_it() {
        let (agenda, repo) = (Agenda::default(), RepoId(1));
        agenda.recheck_at(repo, NOW);
        // Who comes later keeps nobody else waiting.
        agenda.recheck_at(repo, NOW.plus(Duration::from_secs(1)));
        for told in [true, false] {
            let looks = agenda.begin_looks(NOW);
            assert_eq!(looks.len(), 1);
            if told {
                agenda.recheck_at(repo, NOW);
            }
            assert!(!agenda.looks_due(NOW), "somebody looks already");
            agenda.looked(repo, vec![slot(1, RunPriority::Going, 1)]);
            drop(looks);
            assert_eq!(picked(&agenda), (!told).then_some((1, 1)));
        }
    }

    #[test]
    fn the_repository_served_least_recently_goes_first_and_a_person_before_it() {
        let agenda = Agenda::default();
        let busy: Vec<_> = (1..=6).map(|seq| slot(seq, RunPriority::Going, 1)).collect();
        agenda.looked(RepoId(1), busy);
        agenda.looked(RepoId(2), vec![slot(1, RunPriority::Again, 1), slot(2, RunPriority::Going, 1)]);
        assert_eq!(picked(&agenda), Some((1, 1)));
        assert_eq!(picked(&agenda), Some((2, 2)), "what failed before comes last");
        assert_eq!(picked(&agenda), Some((1, 2)));
        agenda.became(RepoId(1), &[(5, Some(slot(5, RunPriority::Spoken, 1)))]);
        assert_eq!(picked(&agenda), Some((1, 5)), "somebody spoke");
        assert_eq!(picked(&agenda), Some((2, 1)));
    }

    #[test]
    fn neither_a_repository_nor_an_installation_takes_every_worker() {
        let agenda = Agenda::default();
        for repo in 1..=3 {
            let runs = (1..=40).map(|seq| slot(seq, RunPriority::Going, 1)).collect();
            agenda.looked(RepoId(repo), runs);
        }
        agenda.looked(RepoId(9), vec![slot(1, RunPriority::Going, 2)]);
        agenda.pause(PauseScope::Repo(RepoId(2)));
        agenda.pause(PauseScope::Repo(RepoId(3)));
        agenda.pause(PauseScope::Repo(RepoId(9)));
        let taken = std::iter::from_fn(|| picked(&agenda)).count();
        assert_eq!(taken, limits::REPOSITORY_STEPS);
        assert_eq!(agenda.next_due(), None, "nothing to wake up for before a step ends");
        agenda.resume(PauseScope::Repo(RepoId(2)));
        agenda.resume(PauseScope::Repo(RepoId(3)));
        let more = std::iter::from_fn(|| picked(&agenda)).count();
        assert_eq!(taken + more, limits::INSTALLATION_STEPS);
        agenda.resume(PauseScope::Repo(RepoId(9)));
        assert_eq!(picked(&agenda), Some((9, 1)), "another installation is not kept waiting");
    }

    #[test]
    fn a_suspended_installation_is_left_alone_and_goes_on_after() {
        let agenda = Agenda::at_boot([], [], [InstallationId(1)]);
        agenda.looked(RepoId(1), vec![slot(1, RunPriority::Spoken, 1)]);
        assert_eq!((picked(&agenda), agenda.next_due()), (None, None));
        agenda.suspend(InstallationId(1), false);
        assert_eq!(agenda.next_due(), Some(NOW));
        assert_eq!(picked(&agenda), Some((1, 1)));
    }

    #[test]
    fn what_is_put_off_costs_a_pick_nothing() {
        let agenda = Agenda::at_boot([], [], [InstallationId(2)]);
        for repo in 1..=100 {
            let later = |seq| ScheduledRun {
                due: Some(NOW.plus(Duration::from_secs(1))),
                ..slot(seq, RunPriority::Spoken, 1)
            };
            let suspended = (1..=20).map(|seq| slot(seq, RunPriority::Spoken, 2));
            agenda.looked(RepoId(repo), suspended.chain((21..=40).map(later)).collect());
        }
        let paused = (1..=2000).map(|seq| slot(seq, RunPriority::Going, 3)).collect();
        agenda.looked(RepoId(500), paused);
        agenda.pause(PauseScope::Repo(RepoId(500)));
        agenda.looked(RepoId(501), (1..=2000).map(|seq| slot(seq, RunPriority::Going, 3)).collect());
        let looked_at = |agenda: &Agenda| agenda.lock().candidates(NOW, &HashSet::new()).count();
        assert_eq!(looked_at(&agenda), 1, "one line is due and served, and only its first is looked at");
        assert_eq!(picked(&agenda), Some((501, 1)));
        agenda.suspend(InstallationId(2), false);
        assert_eq!(looked_at(&agenda), 101);
        for seq in 1..=2000 {
            agenda.became(RepoId(501), &[(seq, None)]);
        }
        agenda.forget(RepoId(500));
        assert!(!agenda.lock().wanting.contains_key(&InstallationId(3)), "nothing is left behind");
    }

    #[test]
    fn what_was_read_before_something_was_said_here_is_read_again() {
        let agenda = Agenda::default();
        agenda.looked(RepoId(1), vec![slot(1, RunPriority::Going, 1)]);
        agenda.pause(PauseScope::Server);
        let read = agenda.said();
        agenda.resume(PauseScope::Server);
        assert!(!agenda.leave_alone(read, [PauseScope::Server], []));
        assert_eq!(agenda.next_due(), Some(NOW));
        assert!(agenda.leave_alone(agenda.said(), [], [InstallationId(1)]));
        assert_eq!(agenda.next_due(), None);
    }

    #[test]
    fn what_was_left_in_doubt_is_looked_at() {
        let agenda = Agenda::default();
        agenda.looked(RepoId(1), vec![slot(1, RunPriority::Going, 1)]);
        drop(agenda.doubt(RepoId(1)));
        assert_eq!(picked(&agenda), None, "it may have ended");
        assert_eq!(agenda.next_due(), Some(Timestamp(0)));
        let looks = agenda.begin_looks(NOW);
        assert_eq!(looks.iter().map(|look| look.repo).collect::<Vec<_>>(), [RepoId(1)]);
        assert!(agenda.begin_looks(NOW).is_empty(), "somebody is at it");
        assert_eq!(agenda.next_due(), None);
        drop(looks);
        assert_eq!(agenda.next_due(), Some(Timestamp(0)), "nobody is any more");
        agenda.looked(RepoId(1), vec![slot(1, RunPriority::Going, 1)]);
        let chosen = agenda.pick(NOW, &HashSet::new()).unwrap();
        agenda.doubt(RepoId(1)).settle_and_release(&[(1, None)], chosen);
        assert_eq!((picked(&agenda), agenda.holds(chosen), agenda.next_due()), (None, false, None));
    }

    #[test]
    fn who_rests_is_woken_by_whoever_spoke_meanwhile() {
        let agenda = Agenda::default();
        let later = NOW.plus(Duration::from_secs(60));
        for (rank, due) in
            [(RunPriority::Going, later), (RunPriority::Again, NOW), (RunPriority::Spoken, NOW)]
        {
            agenda.looked(RepoId(1), vec![slot(1, RunPriority::Going, 1)]);
            let chosen = agenda.pick(NOW, &HashSet::new()).unwrap();
            agenda.became(RepoId(1), &[(1, Some(slot(1, rank, 1)))]);
            agenda.rest(chosen, later);
            assert_eq!(agenda.next_due(), Some(due), "{rank:?}");
        }
    }
}
