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
    PersonWaiting,
    Normal,
    /// Came to nothing before.
    AfterFailure,
}

impl RunPriority {
    const ALL: [Self; 3] = [Self::PersonWaiting, Self::Normal, Self::AfterFailure];
}

/// One live run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScheduledRun {
    pub(super) seq: u64,
    /// None: not before somebody speaks, or not in this boot.
    pub(super) due: Option<Timestamp>,
    pub(super) priority: RunPriority,
    pub(super) installation: InstallationId,
    pub(super) position: RunPosition,
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
    scans: BTreeMap<RepoId, LiveRunScan>,
    /// For each installation, by when the first of its runs in a repository wants a worker. What nobody may serve
    /// now and what is not due is never gone through.
    first_due: BTreeMap<InstallationId, BTreeSet<(Timestamp, RepoId)>>,
    paused: HashSet<PauseScope>,
    suspended: HashSet<InstallationId>,
    /// Counts what was said here of these two.
    pause_changes: u64,
    /// Steps in flight.
    busy: HashMap<InstallationId, usize>,
    claims: u64,
}

/// One repository.
#[derive(Default)]
struct RepositoryRuns {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Main.db says that there may be live runs here.
    hinted: bool,
    live: BTreeMap<u64, ScheduledRun>,
    held: BTreeMap<u64, HeldRun>,
    /// Its runs that want a worker and have none.
    queues: BTreeMap<InstallationId, InstallationQueue>,
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
    rescan_at: Option<Timestamp>,
}

impl LiveRunScan {
    fn due_at(due: Timestamp) -> Self {
        Self { due, under_way: false, rescan_at: None }
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
        let look = || LiveRunScan::due_at(Timestamp(0));
        let inner = AgendaState {
            scans: repos.keys().map(|repo| (*repo, look())).collect(),
            repos,
            paused: paused.into_iter().collect(),
            suspended: suspended.into_iter().collect(),
            ..AgendaState::default()
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Held by whoever changes the repository's runs, until the agenda knows of it.
    pub(super) fn repository_lock(&self, repo: RepoId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.lock().repos.entry(repo).or_default().lock)
    }

    pub(super) fn is_hinted(&self, repo: RepoId) -> bool {
        self.lock().repos.get(&repo).is_some_and(|runs| runs.hinted)
    }

    /// Every repository in which a run may live, by number.
    pub(super) fn hinted_repositories(&self) -> Vec<RepoId> {
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
    pub(super) fn has_stale_hint(&self, repo: RepoId) -> bool {
        let inner = self.lock();
        !inner.scans.contains_key(&repo)
            && inner.repos.get(&repo).is_some_and(|runs| runs.hinted && runs.live.is_empty())
    }

    /// The runs of `repo` are about to change.
    pub(super) fn begin_change(&self, repo: RepoId) -> AgendaChangeGuard<'_> {
        AgendaChangeGuard { agenda: self, repo, settled: false }
    }

    /// What stands here about `repo` may be wrong; look into its database then, or as somebody else wanted before.
    pub(super) fn schedule_scan(&self, repo: RepoId, when: Timestamp) {
        let mut inner = self.lock();
        let look = inner.scans.entry(repo).or_insert(LiveRunScan::due_at(when));
        if look.under_way {
            look.rescan_at = Some(look.rescan_at.map_or(when, |again| again.min(when)));
        } else {
            look.due = look.due.min(when);
        }
    }

    /// Looks that are due and that nobody has begun.
    pub(super) fn begin_due_scans(&self, now: Timestamp) -> Vec<LiveRunScanGuard<'_>> {
        let mut inner = self.lock();
        let due = inner.scans.iter_mut().filter(|(_, look)| look.due <= now && !look.under_way);
        due.map(|(repo, look)| {
            look.under_way = true;
            LiveRunScanGuard { agenda: self, repo: *repo }
        })
        .collect()
    }

    pub(super) fn is_scan_due(&self, now: Timestamp) -> bool {
        self.lock().scans.values().any(|look| look.due <= now && !look.under_way)
    }

    /// What lives in `repo`, as its database says.
    pub(super) fn set_live_runs(&self, repo: RepoId, slots: Vec<ScheduledRun>) {
        let mut inner = self.lock();
        if inner.scans.get(&repo).is_none_or(|look| look.rescan_at.is_none()) {
            inner.scans.remove(&repo);
        }
        inner.clear_repository(repo);
        for slot in slots {
            inner.set_run(repo, slot.seq, Some(slot));
        }
    }

    /// A run that is no longer what stands here.
    pub(super) fn update_runs(&self, repo: RepoId, runs: &[RunUpdate]) {
        self.lock().apply(repo, runs);
    }

    /// A run that cannot be read; the others of its repository go on.
    pub(super) fn postpone(&self, run: RunId, until: Timestamp) {
        self.lock().change_run(run.repo, run.seq, |runs| {
            if let Some(slot) = runs.live.get_mut(&run.seq) {
                slot.due = Some(until);
            }
        });
    }

    /// Chooses a run that is due and not among `except`: of a repository where somebody spoke, or else of the
    /// one that was served least recently. The run is held until it is released.
    pub(super) fn claim_next(&self, now: Timestamp, except: &HashSet<RunId>) -> Option<RunClaim> {
        let mut inner = self.lock();
        let first = inner.candidates(now, except).min_by_key(|(repo, installation, run)| {
            let (rank, due, seq) = *run;
            let served = inner.repos.get(repo).map_or(0, |runs| runs.served);
            (rank != RunPriority::PersonWaiting, served, *repo, rank, due, seq, *installation)
        });
        let (repo, installation, (.., seq)) = first?;
        inner.claims += 1;
        let claim = inner.claims;
        *inner.busy.entry(installation).or_default() += 1;
        inner.change_run(repo, seq, |runs| {
            let served = std::mem::replace(&mut runs.served, claim);
            runs.held.insert(seq, HeldRun { claim, installation, served });
        });
        Some(RunClaim { run: RunId { repo, seq }, claim })
    }

    /// Is the run held by this claim?
    pub(super) fn is_held_by(&self, picked: RunClaim) -> bool {
        let inner = self.lock();
        let held = inner.repos.get(&picked.run.repo).and_then(|runs| runs.held.get(&picked.run.seq));
        held.is_some_and(|held| held.claim == picked.claim)
    }

    /// How many live runs stand where.
    pub(super) fn count_positions(&self) -> HashMap<RunPosition, u64> {
        let mut places = HashMap::new();
        for slot in self.lock().repos.values().flat_map(|runs| runs.live.values()) {
            *places.entry(slot.position.clone()).or_default() += 1;
        }
        places
    }

    /// Is anybody taking a step of it right now?
    pub(super) fn is_held(&self, run: RunId) -> bool {
        self.lock().repos.get(&run.repo).is_some_and(|runs| runs.held.contains_key(&run.seq))
    }

    /// Lets go of a run; false: this claim does not hold it.
    pub(super) fn release(&self, picked: RunClaim) -> bool {
        self.lock().release(picked).is_some()
    }

    /// Lets go of a run that is as it was, until then. One to which somebody spoke meanwhile, or that somebody wants tried
    /// again, has another rank now and keeps its time.
    pub(super) fn release_until(&self, picked: RunClaim, until: Timestamp) {
        let RunId { repo, seq } = picked.run;
        let mut inner = self.lock();
        if inner.release(picked).is_some() {
            inner.change_run(repo, seq, |runs| {
                if let Some(slot) =
                    runs.live.get_mut(&seq).filter(|slot| slot.priority == RunPriority::Normal)
                {
                    slot.due = Some(until);
                }
            });
        }
    }

    /// Lets go of a run whose database is closed, which does not cost its repository its turn. A look opens it.
    pub(super) fn release_for_scan(&self, picked: RunClaim) {
        let repo = picked.run.repo;
        let mut inner = self.lock();
        if let Some(held) = inner.release(picked)
            && let Some(runs) = inner.repos.get_mut(&repo)
        {
            runs.served = held.served;
        }
        inner.scans.entry(repo).or_insert(LiveRunScan::due_at(Timestamp(0)));
    }

    /// When something may be claimed, or is to be looked into by somebody.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let inner = self.lock();
        let looks = inner.scans.values().filter(|look| !look.under_way).map(|look| look.due);
        let lines =
            inner.first_due.iter().filter(|(installation, _)| inner.may_serve_installation(**installation));
        let runs = lines.filter_map(|(_, repos)| repos.iter().find(|(_, repo)| inner.may_start_steps(*repo)));
        looks.chain(runs.map(|(due, _)| *due)).min()
    }

    /// The repository is gone, with its runs.
    pub(super) fn forget_repository(&self, repo: RepoId) {
        let mut inner = self.lock();
        inner.clear_repository(repo);
        inner.scans.remove(&repo);
        inner.repos.remove(&repo);
    }

    pub(super) fn pause(&self, scope: PauseScope) {
        let mut inner = self.lock();
        inner.pause_changes += 1;
        inner.paused.insert(scope);
    }

    pub(super) fn resume(&self, scope: PauseScope) {
        let mut inner = self.lock();
        inner.pause_changes += 1;
        inner.paused.remove(&scope);
    }

    /// How often it was said here that something is left alone, or is not any more.
    pub(super) fn pause_changes(&self) -> u64 {
        self.lock().pause_changes
    }

    /// These are paused or suspended, and no others. False: something was said here since they were read, so they may be
    /// what was before.
    pub(super) fn replace_pauses(
        &self,
        said: u64,
        paused: impl IntoIterator<Item = PauseScope>,
        suspended: impl IntoIterator<Item = InstallationId>,
    ) -> bool {
        let mut inner = self.lock();
        if inner.pause_changes == said {
            inner.paused = paused.into_iter().collect();
            inner.suspended = suspended.into_iter().collect();
        }
        inner.pause_changes == said
    }

    /// The runs of a suspended installation are left alone.
    pub(super) fn set_suspended(&self, installation: InstallationId, suspended: bool) {
        let mut inner = self.lock();
        inner.pause_changes += 1;
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
        let served =
            self.first_due.iter().filter(|(installation, _)| self.may_serve_installation(**installation));
        let due = served.flat_map(move |(installation, repos)| {
            repos.range(..=(now, RepoId(u64::MAX))).map(|(_, repo)| (*repo, *installation))
        });
        due.filter(|(repo, _)| self.may_start_steps(*repo)).filter_map(move |(repo, installation)| {
            let line = self.repos.get(&repo)?.queues.get(&installation)?;
            Some((
                repo,
                installation,
                line.first_claimable(now, |seq| !except.contains(&RunId { repo, seq }))?,
            ))
        })
    }

    /// May steps of this repository begin?
    fn may_start_steps(&self, repo: RepoId) -> bool {
        !self.scans.contains_key(&repo)
            && self.repos.get(&repo).is_some_and(|runs| runs.held.len() < limits::REPOSITORY_STEPS)
            && !self.paused.contains(&PauseScope::Repo(repo))
    }

    /// May steps of this installation begin, if its repository lets them?
    fn may_serve_installation(&self, installation: InstallationId) -> bool {
        !self.paused.contains(&PauseScope::Server)
            && !self.suspended.contains(&installation)
            && self.busy.get(&installation).is_none_or(|busy| *busy < limits::INSTALLATION_STEPS)
    }

    fn apply(&mut self, repo: RepoId, runs: &[RunUpdate]) {
        for (seq, slot) in runs {
            self.set_run(repo, *seq, slot.clone());
        }
    }

    fn set_run(&mut self, repo: RepoId, seq: u64, slot: Option<ScheduledRun>) {
        self.change_run(repo, seq, |runs| match slot {
            Some(slot) => runs.live.insert(seq, slot),
            None => runs.live.remove(&seq),
        });
    }

    fn clear_repository(&mut self, repo: RepoId) {
        let known: Vec<_> =
            self.repos.get(&repo).into_iter().flat_map(|runs| runs.live.keys().copied()).collect();
        for seq in known {
            self.set_run(repo, seq, None);
        }
    }

    fn release(&mut self, picked: RunClaim) -> Option<HeldRun> {
        let RunId { repo, seq } = picked.run;
        self.repos.get(&repo)?.held.get(&seq).filter(|held| held.claim == picked.claim)?;
        let held = self.change_run(repo, seq, |runs| runs.held.remove(&seq))?;
        if let Some(busy) = self.busy.get_mut(&held.installation) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&held.installation);
            }
        }
        Some(held)
    }

    /// Changes what is known of a run, and its place in the lines with it.
    fn change_run<R>(&mut self, repo: RepoId, seq: u64, change: impl FnOnce(&mut RepositoryRuns) -> R) -> R {
        let runs = self.repos.entry(repo).or_default();
        let before = runs.queue_position(seq);
        let result = change(runs);
        let after = runs.queue_position(seq);
        if before != after {
            if let Some((installation, at)) = before {
                self.change_queue(repo, installation, |line| line.0.remove(&at));
            }
            if let Some((installation, at)) = after {
                self.change_queue(repo, installation, |line| line.0.insert(at));
            }
        }
        result
    }

    fn change_queue(
        &mut self,
        repo: RepoId,
        installation: InstallationId,
        change: impl FnOnce(&mut InstallationQueue) -> bool,
    ) {
        let lines = &mut self.repos.entry(repo).or_default().queues;
        let line = lines.entry(installation).or_default();
        let before = line.first_due();
        change(line);
        let after = line.first_due();
        if after.is_none() {
            lines.remove(&installation);
        }
        if before == after {
            return;
        }
        let repos = self.first_due.entry(installation).or_default();
        before.map(|due| repos.remove(&(due, repo)));
        repos.extend(after.map(|due| (due, repo)));
        if repos.is_empty() {
            self.first_due.remove(&installation);
        }
    }
}

impl RepositoryRuns {
    /// In which line a run stands that wants a worker, and where in it.
    fn queue_position(&self, seq: u64) -> Option<(InstallationId, (RunPriority, Timestamp, u64))> {
        let slot = self.live.get(&seq).filter(|_| !self.held.contains_key(&seq))?;
        Some((slot.installation, (slot.priority, slot.due?, seq)))
    }
}

impl InstallationQueue {
    /// When the first of it is due.
    fn first_due(&self) -> Option<Timestamp> {
        RunPriority::ALL
            .into_iter()
            .filter_map(|rank| self.with_priority(rank).next())
            .map(|(_, due, _)| *due)
            .min()
    }

    /// Who is served first of those that are due.
    fn first_claimable(
        &self,
        now: Timestamp,
        may: impl Fn(u64) -> bool,
    ) -> Option<(RunPriority, Timestamp, u64)> {
        RunPriority::ALL.into_iter().find_map(|rank| {
            self.with_priority(rank)
                .take_while(|(_, due, _)| *due <= now)
                .find(|(.., seq)| may(*seq))
                .copied()
        })
    }

    fn with_priority(&self, rank: RunPriority) -> impl Iterator<Item = &(RunPriority, Timestamp, u64)> {
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
        if let Some(look) = self.agenda.lock().scans.get_mut(&self.repo) {
            look.under_way = false;
            look.due = look.rescan_at.take().unwrap_or(look.due);
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
    pub(super) fn commit(mut self, runs: &[RunUpdate]) {
        self.settled = true;
        self.agenda.update_runs(self.repo, runs);
    }

    /// The same, and whoever took the step lets go of its run.
    pub(super) fn commit_and_release(mut self, runs: &[RunUpdate], picked: RunClaim) {
        self.settled = true;
        let mut inner = self.agenda.lock();
        inner.release(picked);
        inner.apply(self.repo, runs);
    }
}

impl Drop for AgendaChangeGuard<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.agenda.schedule_scan(self.repo, Timestamp(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp(1000);

    fn scheduled_run(seq: u64, rank: RunPriority, installation: u64) -> ScheduledRun {
        let place = RunPosition { workflow: "lld".into(), step: "\"1\"".into(), status: RunStatus::Ready };
        ScheduledRun {
            seq,
            due: Some(NOW),
            priority: rank,
            installation: InstallationId(installation),
            position: place,
        }
    }

    fn claim_key(agenda: &Agenda) -> Option<(u64, u64)> {
        agenda.claim_next(NOW, &HashSet::new()).map(|picked| (picked.run.repo.0, picked.run.seq))
    }

    #[test]
    fn what_is_told_during_a_look_is_looked_into_after_it() {
        let (agenda, repo) = (Agenda::default(), RepoId(1));
        agenda.schedule_scan(repo, NOW);
        // Who comes later keeps nobody else waiting.
        agenda.schedule_scan(repo, NOW.plus(Duration::from_secs(1)));
        for told in [true, false] {
            let looks = agenda.begin_due_scans(NOW);
            assert_eq!(looks.len(), 1);
            if told {
                agenda.schedule_scan(repo, NOW);
            }
            assert!(!agenda.is_scan_due(NOW), "somebody looks already");
            agenda.set_live_runs(repo, vec![scheduled_run(1, RunPriority::Normal, 1)]);
            drop(looks);
            assert_eq!(claim_key(&agenda), (!told).then_some((1, 1)));
        }
    }

    #[test]
    fn the_repository_served_least_recently_goes_first_and_a_person_before_it() {
        let agenda = Agenda::default();
        let busy: Vec<_> = (1..=6).map(|seq| scheduled_run(seq, RunPriority::Normal, 1)).collect();
        agenda.set_live_runs(RepoId(1), busy);
        agenda.set_live_runs(
            RepoId(2),
            vec![scheduled_run(1, RunPriority::AfterFailure, 1), scheduled_run(2, RunPriority::Normal, 1)],
        );
        assert_eq!(claim_key(&agenda), Some((1, 1)));
        assert_eq!(claim_key(&agenda), Some((2, 2)), "what failed before comes last");
        assert_eq!(claim_key(&agenda), Some((1, 2)));
        agenda.update_runs(RepoId(1), &[(5, Some(scheduled_run(5, RunPriority::PersonWaiting, 1)))]);
        assert_eq!(claim_key(&agenda), Some((1, 5)), "somebody spoke");
        assert_eq!(claim_key(&agenda), Some((2, 1)));
    }

    #[test]
    fn neither_a_repository_nor_an_installation_takes_every_worker() {
        let agenda = Agenda::default();
        for repo in 1..=3 {
            let runs = (1..=40).map(|seq| scheduled_run(seq, RunPriority::Normal, 1)).collect();
            agenda.set_live_runs(RepoId(repo), runs);
        }
        agenda.set_live_runs(RepoId(9), vec![scheduled_run(1, RunPriority::Normal, 2)]);
        agenda.pause(PauseScope::Repo(RepoId(2)));
        agenda.pause(PauseScope::Repo(RepoId(3)));
        agenda.pause(PauseScope::Repo(RepoId(9)));
        let taken = std::iter::from_fn(|| claim_key(&agenda)).count();
        assert_eq!(taken, limits::REPOSITORY_STEPS);
        assert_eq!(agenda.next_due(), None, "nothing to wake up for before a step ends");
        agenda.resume(PauseScope::Repo(RepoId(2)));
        agenda.resume(PauseScope::Repo(RepoId(3)));
        let more = std::iter::from_fn(|| claim_key(&agenda)).count();
        assert_eq!(taken + more, limits::INSTALLATION_STEPS);
        agenda.resume(PauseScope::Repo(RepoId(9)));
        assert_eq!(claim_key(&agenda), Some((9, 1)), "another installation is not kept waiting");
    }

    #[test]
    fn a_suspended_installation_is_left_alone_and_goes_on_after() {
        let agenda = Agenda::at_boot([], [], [InstallationId(1)]);
        agenda.set_live_runs(RepoId(1), vec![scheduled_run(1, RunPriority::PersonWaiting, 1)]);
        assert_eq!((claim_key(&agenda), agenda.next_due()), (None, None));
        agenda.set_suspended(InstallationId(1), false);
        assert_eq!(agenda.next_due(), Some(NOW));
        assert_eq!(claim_key(&agenda), Some((1, 1)));
    }

    #[test]
    fn what_is_put_off_costs_a_pick_nothing() {
        let agenda = Agenda::at_boot([], [], [InstallationId(2)]);
        for repo in 1..=100 {
            let later = |seq| ScheduledRun {
                due: Some(NOW.plus(Duration::from_secs(1))),
                ..scheduled_run(seq, RunPriority::PersonWaiting, 1)
            };
            let suspended = (1..=20).map(|seq| scheduled_run(seq, RunPriority::PersonWaiting, 2));
            agenda.set_live_runs(RepoId(repo), suspended.chain((21..=40).map(later)).collect());
        }
        let paused = (1..=2000).map(|seq| scheduled_run(seq, RunPriority::Normal, 3)).collect();
        agenda.set_live_runs(RepoId(500), paused);
        agenda.pause(PauseScope::Repo(RepoId(500)));
        agenda.set_live_runs(
            RepoId(501),
            (1..=2000).map(|seq| scheduled_run(seq, RunPriority::Normal, 3)).collect(),
        );
        let looked_at = |agenda: &Agenda| agenda.lock().candidates(NOW, &HashSet::new()).count();
        assert_eq!(looked_at(&agenda), 1, "one line is due and served, and only its first is looked at");
        assert_eq!(claim_key(&agenda), Some((501, 1)));
        agenda.set_suspended(InstallationId(2), false);
        assert_eq!(looked_at(&agenda), 101);
        for seq in 1..=2000 {
            agenda.update_runs(RepoId(501), &[(seq, None)]);
        }
        agenda.forget_repository(RepoId(500));
        assert!(!agenda.lock().first_due.contains_key(&InstallationId(3)), "nothing is left behind");
    }

    #[test]
    fn what_was_read_before_something_was_said_here_is_read_again() {
        let agenda = Agenda::default();
        agenda.set_live_runs(RepoId(1), vec![scheduled_run(1, RunPriority::Normal, 1)]);
        agenda.pause(PauseScope::Server);
        let read = agenda.pause_changes();
        agenda.resume(PauseScope::Server);
        assert!(!agenda.replace_pauses(read, [PauseScope::Server], []));
        assert_eq!(agenda.next_due(), Some(NOW));
        assert!(agenda.replace_pauses(agenda.pause_changes(), [], [InstallationId(1)]));
        assert_eq!(agenda.next_due(), None);
    }

    #[test]
    fn what_was_left_in_doubt_is_looked_at() {
        let agenda = Agenda::default();
        agenda.set_live_runs(RepoId(1), vec![scheduled_run(1, RunPriority::Normal, 1)]);
        drop(agenda.begin_change(RepoId(1)));
        assert_eq!(claim_key(&agenda), None, "it may have ended");
        assert_eq!(agenda.next_due(), Some(Timestamp(0)));
        let looks = agenda.begin_due_scans(NOW);
        assert_eq!(looks.iter().map(|look| look.repo).collect::<Vec<_>>(), [RepoId(1)]);
        assert!(agenda.begin_due_scans(NOW).is_empty(), "somebody is at it");
        assert_eq!(agenda.next_due(), None);
        drop(looks);
        assert_eq!(agenda.next_due(), Some(Timestamp(0)), "nobody is any more");
        agenda.set_live_runs(RepoId(1), vec![scheduled_run(1, RunPriority::Normal, 1)]);
        let chosen = agenda.claim_next(NOW, &HashSet::new()).unwrap();
        agenda.begin_change(RepoId(1)).commit_and_release(&[(1, None)], chosen);
        assert_eq!((claim_key(&agenda), agenda.is_held_by(chosen), agenda.next_due()), (None, false, None));
    }

    #[test]
    fn who_rests_is_woken_by_whoever_spoke_meanwhile() {
        let agenda = Agenda::default();
        let later = NOW.plus(Duration::from_secs(60));
        for (rank, due) in [
            (RunPriority::Normal, later),
            (RunPriority::AfterFailure, NOW),
            (RunPriority::PersonWaiting, NOW),
        ] {
            agenda.set_live_runs(RepoId(1), vec![scheduled_run(1, RunPriority::Normal, 1)]);
            let chosen = agenda.claim_next(NOW, &HashSet::new()).unwrap();
            agenda.update_runs(RepoId(1), &[(1, Some(scheduled_run(1, rank, 1)))]);
            agenda.release_until(chosen, later);
            assert_eq!(agenda.next_due(), Some(due), "{rank:?}");
        }
    }
}
