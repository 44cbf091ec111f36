//! In-memory schedule of all live runs: the time at which each run is due, and the runs that are claimed.
//!
//! It mirrors the repository databases. A change to a repository's runs holds the repository's lock from before the
//! commit until the agenda is updated. If an error occurs in between, the repository is scheduled for a new scan. A
//! server that starts knows only which repositories may have live runs (the [hints](super::wake_hints)), and scans each
//! of these repositories first. In a cluster, the agenda is only a hint about which runs may be claimed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{PauseScope, RunStatus};
use crate::{
    limits,
    types::{InstallationId, RepoId, RunId, Timestamp},
};

/// Priority of a run within its repository. A repository with a `PersonWaiting` run is served before repositories
/// without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunPriority {
    /// A person answered or cancelled the run.
    PersonWaiting,
    Normal,
    /// The run's last attempt failed.
    AfterFailure,
}

impl RunPriority {
    const ALL: [Self; 3] = [Self::PersonWaiting, Self::Normal, Self::AfterFailure];
}

/// Schedule entry of a live run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScheduledRun {
    pub(super) seq: u64,
    /// Time from which the run may be claimed. `None` if the run waits for a person, or if it cannot continue until the
    /// server restarts.
    pub(super) due: Option<Timestamp>,
    pub(super) priority: RunPriority,
    pub(super) installation: InstallationId,
    pub(super) position: RunPosition,
}

/// Position of a live run at its last save.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunPosition {
    pub workflow: String,
    /// Serde name of the step.
    pub step: String,
    pub status: RunStatus,
}

/// Sequence number of a changed run with the run's new schedule entry, or `None` if the run has ended.
pub(super) type RunUpdate = (u64, Option<ScheduledRun>);

/// A claimed run, with the number of the claim.
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
    /// Repositories that have to be scanned. None of their runs can be claimed until the scan is done.
    scans: BTreeMap<RepoId, LiveRunScan>,
    /// By installation: for each repository, the time at which its first unclaimed run of that installation is due. A
    /// claim can thus skip all runs that are not due or not allowed to start.
    first_due: BTreeMap<InstallationId, BTreeSet<(Timestamp, RepoId)>>,
    paused: HashSet<PauseScope>,
    suspended: HashSet<InstallationId>,
    /// Number of changes made to `paused` and `suspended`.
    pause_changes: u64,
    /// Number of steps in progress per installation.
    busy: HashMap<InstallationId, usize>,
    claims: u64,
}

/// Schedule of one repository.
#[derive(Default)]
struct RepositoryRuns {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Whether `main.db` contains a wake hint for this repository.
    hinted: bool,
    live: BTreeMap<u64, ScheduledRun>,
    held: BTreeMap<u64, HeldRun>,
    /// Live runs that are not claimed, by installation.
    queues: BTreeMap<InstallationId, InstallationQueue>,
    /// Number of the last claim of a run of this repository.
    served: u64,
}

struct HeldRun {
    claim: u64,
    installation: InstallationId,
    /// Value of the repository's `served` before this claim.
    served: u64,
}

struct LiveRunScan {
    due: Timestamp,
    under_way: bool,
    /// Time of the next scan, if the repository changed during the current scan.
    rescan_at: Option<Timestamp>,
}

impl LiveRunScan {
    fn due_at(due: Timestamp) -> Self {
        Self { due, under_way: false, rescan_at: None }
    }
}

/// Unclaimed runs of one installation in one repository, in the order in which they are claimed.
#[derive(Default)]
struct InstallationQueue(BTreeSet<(RunPriority, Timestamp, u64)>);

impl Agenda {
    /// Creates the agenda when the server starts, before any scan.
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

    /// Returns the lock that must be held by a change of the repository's runs until the agenda is updated.
    pub(super) fn repository_lock(&self, repo: RepoId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.lock().repos.entry(repo).or_default().lock)
    }

    pub(super) fn is_hinted(&self, repo: RepoId) -> bool {
        self.lock().repos.get(&repo).is_some_and(|runs| runs.hinted)
    }

    /// Returns every repository that may have live runs, ordered by ID.
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

    /// Returns whether the repository has a wake hint although it has no live run.
    pub(super) fn has_stale_hint(&self, repo: RepoId) -> bool {
        let inner = self.lock();
        !inner.scans.contains_key(&repo)
            && inner.repos.get(&repo).is_some_and(|runs| runs.hinted && runs.live.is_empty())
    }

    /// Starts a change to the runs of `repo`.
    pub(super) fn begin_change(&self, repo: RepoId) -> AgendaChangeGuard<'_> {
        AgendaChangeGuard { agenda: self, repo, settled: false }
    }

    /// Schedules a scan of `repo`, because its entries in the agenda may be wrong. If a scan is already scheduled, the
    /// earlier of both times is used.
    pub(super) fn schedule_scan(&self, repo: RepoId, when: Timestamp) {
        let mut inner = self.lock();
        let look = inner.scans.entry(repo).or_insert(LiveRunScan::due_at(when));
        if look.under_way {
            look.rescan_at = Some(look.rescan_at.map_or(when, |again| again.min(when)));
        } else {
            look.due = look.due.min(when);
        }
    }

    /// Starts all scans that are due.
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

    /// Replaces the entries of all live runs of `repo` after a scan.
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

    /// Updates the entries of these runs.
    pub(super) fn update_runs(&self, repo: RepoId, runs: &[RunUpdate]) {
        self.lock().apply(repo, runs);
    }

    /// Postpones a run that cannot be read, so that the other runs of its repository can continue.
    pub(super) fn postpone(&self, run: RunId, until: Timestamp) {
        self.lock().change_run(run.repo, run.seq, |runs| {
            if let Some(slot) = runs.live.get_mut(&run.seq) {
                slot.due = Some(until);
            }
        });
    }

    /// Claims a due run that is not in `except`. Repositories in which a person is waiting come first, then the
    /// repository whose last claim is oldest. The run stays claimed until it is released.
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

    /// Returns whether the run is still held by the claim `picked`.
    pub(super) fn is_held_by(&self, picked: RunClaim) -> bool {
        let inner = self.lock();
        let held = inner.repos.get(&picked.run.repo).and_then(|runs| runs.held.get(&picked.run.seq));
        held.is_some_and(|held| held.claim == picked.claim)
    }

    /// Returns the number of live runs per position.
    pub(super) fn count_positions(&self) -> HashMap<RunPosition, u64> {
        let mut places = HashMap::new();
        for slot in self.lock().repos.values().flat_map(|runs| runs.live.values()) {
            *places.entry(slot.position.clone()).or_default() += 1;
        }
        places
    }

    /// Returns whether a worker has claimed the run.
    pub(super) fn is_held(&self, run: RunId) -> bool {
        self.lock().repos.get(&run.repo).is_some_and(|runs| runs.held.contains_key(&run.seq))
    }

    /// Releases a run. Returns `false` and changes nothing if the claim `picked` does not hold the run.
    pub(super) fn release(&self, picked: RunClaim) -> bool {
        self.lock().release(picked).is_some()
    }

    /// Releases a run without changing it. A run of normal priority is due again at `until`. Any other run keeps its
    /// due time, because a person acted or the run failed before.
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

    /// Releases a run whose database is closed, and schedules a scan that opens the database. The repository keeps its
    /// place in the claim order.
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

    /// Returns the time at which the next run or scan is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let inner = self.lock();
        let looks = inner.scans.values().filter(|look| !look.under_way).map(|look| look.due);
        let lines =
            inner.first_due.iter().filter(|(installation, _)| inner.may_serve_installation(**installation));
        let runs = lines.filter_map(|(_, repos)| repos.iter().find(|(_, repo)| inner.may_start_steps(*repo)));
        looks.chain(runs.map(|(due, _)| *due)).min()
    }

    /// Removes the repository and its runs from the agenda.
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

    /// Returns the number of changes made to pauses and suspensions so far.
    pub(super) fn pause_changes(&self) -> u64 {
        self.lock().pause_changes
    }

    /// Replaces all pauses and suspensions by those read from the database. If they changed in memory since
    /// `seen_changes`, keeps them and returns `false`, because the values from the database may be outdated.
    pub(super) fn replace_pauses(
        &self,
        seen_changes: u64,
        paused: impl IntoIterator<Item = PauseScope>,
        suspended: impl IntoIterator<Item = InstallationId>,
    ) -> bool {
        let mut inner = self.lock();
        if inner.pause_changes == seen_changes {
            inner.paused = paused.into_iter().collect();
            inner.suspended = suspended.into_iter().collect();
        }
        inner.pause_changes == seen_changes
    }

    /// Suspends or resumes all runs of an installation.
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
    /// Returns the candidates for a claim: from each queue that is allowed to start steps, the first claimable run.
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

    /// Returns whether steps of this repository may start.
    fn may_start_steps(&self, repo: RepoId) -> bool {
        !self.scans.contains_key(&repo)
            && self.repos.get(&repo).is_some_and(|runs| runs.held.len() < limits::REPOSITORY_STEPS)
            && !self.paused.contains(&PauseScope::Repo(repo))
    }

    /// Returns whether steps of this installation may start. Whether steps of the repository may start must be checked
    /// separately.
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

    /// Changes the entry of a run and moves the run to its new position in the queues.
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
    /// Returns the queue of an unclaimed run, and the run's position in that queue.
    fn queue_position(&self, seq: u64) -> Option<(InstallationId, (RunPriority, Timestamp, u64))> {
        let slot = self.live.get(&seq).filter(|_| !self.held.contains_key(&seq))?;
        Some((slot.installation, (slot.priority, slot.due?, seq)))
    }
}

impl InstallationQueue {
    /// Returns the time at which the first run of the queue is due.
    fn first_due(&self) -> Option<Timestamp> {
        RunPriority::ALL
            .into_iter()
            .filter_map(|rank| self.with_priority(rank).next())
            .map(|(_, due, _)| *due)
            .min()
    }

    /// Returns the first due run, in claim order, for which `may` returns true.
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

/// A running scan. If it is dropped before its result is stored, the scan is scheduled again.
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

/// A change in progress. Until it is committed, the repository's entries may be wrong. Therefore, dropping an
/// uncommitted change schedules a scan.
pub(super) struct AgendaChangeGuard<'a> {
    agenda: &'a Agenda,
    repo: RepoId,
    settled: bool,
}

impl AgendaChangeGuard<'_> {
    /// Updates the agenda after the change was committed to the database.
    pub(super) fn commit(mut self, runs: &[RunUpdate]) {
        self.settled = true;
        self.agenda.update_runs(self.repo, runs);
    }

    /// Updates the agenda after the change was committed to the database, and releases the run.
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
    fn change_during_a_repository_scan_schedules_another_scan() {
        let (agenda, repo) = (Agenda::default(), RepoId(1));
        agenda.schedule_scan(repo, NOW);
        // A later scan time does not delay the earlier one.
        agenda.schedule_scan(repo, NOW.plus(Duration::from_secs(1)));
        for changed in [true, false] {
            let looks = agenda.begin_due_scans(NOW);
            assert_eq!(looks.len(), 1);
            if changed {
                agenda.schedule_scan(repo, NOW);
            }
            assert!(!agenda.is_scan_due(NOW), "somebody looks already");
            agenda.set_live_runs(repo, vec![scheduled_run(1, RunPriority::Normal, 1)]);
            drop(looks);
            assert_eq!(claim_key(&agenda), (!changed).then_some((1, 1)));
        }
    }

    #[test]
    fn claims_prefer_awaited_runs_and_then_the_longest_idle_repository() {
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
    fn one_repository_or_installation_cannot_take_every_worker() {
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
    fn runs_of_a_suspended_installation_are_not_claimed_until_it_is_resumed() {
        let agenda = Agenda::at_boot([], [], [InstallationId(1)]);
        agenda.set_live_runs(RepoId(1), vec![scheduled_run(1, RunPriority::PersonWaiting, 1)]);
        assert_eq!((claim_key(&agenda), agenda.next_due()), (None, None));
        agenda.set_suspended(InstallationId(1), false);
        assert_eq!(agenda.next_due(), Some(NOW));
        assert_eq!(claim_key(&agenda), Some((1, 1)));
    }

    #[test]
    fn runs_that_are_not_due_do_not_slow_down_claiming_runs() {
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
    fn loaded_pause_list_is_discarded_if_a_pause_changes_while_it_is_loaded() {
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
    fn repository_is_rescanned_after_an_uncommitted_change_is_dropped() {
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
    fn run_prioritized_while_claimed_is_due_at_once_even_if_released_with_a_delay() {
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
