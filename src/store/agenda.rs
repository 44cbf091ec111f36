//! When each live run wants a worker, and who has one: kept in memory, since one process has the directory.
//!
//! It mirrors the repository databases. Whoever changes one holds the repository's order from before
//! the change until the agenda knows of it; whoever fails in between leaves the repository to be looked into
//! again. A boot knows nothing but which repositories may have live runs (the [hints](super::hints)) and looks
//! into each of them first.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::PauseScope;
use crate::{
    limits,
    types::{InstallationId, RepoId, RunId, Timestamp},
};

/// What is served first within a repository. A repository where somebody spoke goes before others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A person answered, or wants it to end.
    Spoken,
    Going,
    /// Came to nothing before.
    Again,
}

/// One live run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) seq: u64,
    /// None: not before somebody speaks, or not in this boot.
    pub(super) due: Option<Timestamp>,
    pub(super) rank: Rank,
    pub(super) installation: InstallationId,
}

/// What a change made of a run: its slot, or none when it lives no more.
pub(super) type Became = (u64, Option<Slot>);

/// A run that was chosen, and the number of the choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picked {
    pub(super) run: RunId,
    pub(super) claim: u64,
}

#[derive(Default)]
pub(super) struct Agenda {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    places: BTreeMap<RepoId, Place>,
    paused: HashSet<PauseScope>,
    suspended: HashSet<InstallationId>,
    /// Steps in flight.
    busy: HashMap<InstallationId, usize>,
    claims: u64,
}

/// One repository.
#[derive(Default)]
struct Place {
    order: Arc<tokio::sync::Mutex<()>>,
    /// Main.db says that there may be live runs here.
    hinted: bool,
    /// Look into the database then; until that is done nothing here is claimed.
    look: Option<Timestamp>,
    live: BTreeMap<u64, Slot>,
    held: BTreeMap<u64, Held>,
    /// The earliest due time of what is not held, and of that somebody spoke to.
    next: Option<Timestamp>,
    spoken: Option<Timestamp>,
    /// The claim it was last served by.
    served: u64,
}

struct Held {
    claim: u64,
    installation: InstallationId,
}

impl Agenda {
    /// What a boot knows before it has looked.
    pub(super) fn at_boot(
        hinted: impl IntoIterator<Item = RepoId>,
        paused: impl IntoIterator<Item = PauseScope>,
        suspended: impl IntoIterator<Item = InstallationId>,
    ) -> Self {
        let place = || Place { hinted: true, look: Some(Timestamp(0)), ..Place::default() };
        let inner = Inner {
            places: hinted.into_iter().map(|repo| (repo, place())).collect(),
            paused: paused.into_iter().collect(),
            suspended: suspended.into_iter().collect(),
            ..Inner::default()
        };
        Self { inner: Mutex::new(inner) }
    }

    /// Held by whoever changes the repository's runs, until the agenda knows of it.
    pub(super) fn order(&self, repo: RepoId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.lock().places.entry(repo).or_default().order)
    }

    pub(super) fn hinted(&self, repo: RepoId) -> bool {
        self.lock().places.get(&repo).is_some_and(|place| place.hinted)
    }

    pub(super) fn set_hinted(&self, repo: RepoId, hinted: bool) {
        self.lock().places.entry(repo).or_default().hinted = hinted;
    }

    /// Is there a hint although nothing lives here?
    pub(super) fn hinted_in_vain(&self, repo: RepoId) -> bool {
        self.lock()
            .places
            .get(&repo)
            .is_some_and(|place| place.hinted && place.look.is_none() && place.live.is_empty())
    }

    /// The runs of `repo` are about to change.
    pub(super) fn doubt(&self, repo: RepoId) -> Doubt<'_> {
        Doubt { agenda: self, repo, settled: false }
    }

    /// What stands here about `repo` may be wrong; look into its database then.
    pub(super) fn look_at(&self, repo: RepoId, when: Timestamp) {
        self.lock().places.entry(repo).or_default().look = Some(when);
    }

    /// Repositories whose databases are to be looked into.
    pub(super) fn to_look_at(&self, now: Timestamp) -> Vec<RepoId> {
        let inner = self.lock();
        let due = inner.places.iter().filter(|(_, place)| place.look.is_some_and(|at| at <= now));
        due.map(|(repo, _)| *repo).collect()
    }

    /// All that lives in `repo`, as its database says.
    pub(super) fn looked(&self, repo: RepoId, slots: Vec<Slot>) {
        let mut inner = self.lock();
        let place = inner.places.entry(repo).or_default();
        place.look = None;
        place.live = slots.into_iter().map(|slot| (slot.seq, slot)).collect();
        place.reckon();
    }

    /// A run that is no longer what stands here.
    pub(super) fn became(&self, repo: RepoId, runs: &[Became]) {
        self.lock().places.entry(repo).or_default().apply(runs);
    }

    /// A run that cannot be read; the others of its repository go on.
    pub(super) fn postpone(&self, run: RunId, until: Timestamp) {
        let mut inner = self.lock();
        let place = inner.places.entry(run.repo).or_default();
        if let Some(slot) = place.live.get_mut(&run.seq) {
            slot.due = Some(until);
        }
        place.reckon();
    }

    /// Chooses a run that is due and not among `except`: of a repository where somebody spoke, or else of the
    /// one that was served least recently. The run is held until it is released.
    pub(super) fn pick(&self, now: Timestamp, except: &HashSet<RunId>) -> Option<Picked> {
        let mut inner = self.lock();
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        let mut ready: Vec<_> = inner
            .places
            .iter()
            .filter(|(repo, place)| due(place.next) && inner.open(**repo, place))
            .map(|(repo, place)| (!due(place.spoken), place.served, *repo))
            .collect();
        ready.sort_unstable();
        let slot = ready.into_iter().find_map(|(.., repo)| {
            let place = inner.places.get(&repo)?;
            let mut free: Vec<_> = place
                .free()
                .filter(|slot| due(slot.due) && inner.serves(slot.installation))
                .filter(|slot| !except.contains(&RunId { repo, seq: slot.seq }))
                .collect();
            free.sort_unstable_by_key(|slot| (slot.rank, slot.due, slot.seq));
            Some((repo, **free.first()?))
        });
        let (repo, Slot { seq, installation, .. }) = slot?;
        inner.claims += 1;
        let claim = inner.claims;
        *inner.busy.entry(installation).or_default() += 1;
        let place = inner.places.get_mut(&repo)?;
        place.served = claim;
        place.held.insert(seq, Held { claim, installation });
        place.reckon();
        Some(Picked { run: RunId { repo, seq }, claim })
    }

    /// Is the run held by this claim?
    pub(super) fn holds(&self, picked: Picked) -> bool {
        let inner = self.lock();
        let held = inner.places.get(&picked.run.repo).and_then(|place| place.held.get(&picked.run.seq));
        held.is_some_and(|held| held.claim == picked.claim)
    }

    /// Is anybody taking a step of it right now?
    pub(super) fn held(&self, run: RunId) -> bool {
        self.lock().places.get(&run.repo).is_some_and(|place| place.held.contains_key(&run.seq))
    }

    /// Lets go of a run; false: this claim does not hold it.
    pub(super) fn release(&self, picked: Picked) -> bool {
        self.lock().release(picked)
    }

    /// When something may be claimed, or is to be looked into.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let inner = self.lock();
        inner.places.iter().filter_map(|(repo, place)| inner.next(*repo, place)).min()
    }

    /// The repository is gone, with its runs.
    pub(super) fn forget(&self, repo: RepoId) {
        self.lock().places.remove(&repo);
    }

    pub(super) fn pause(&self, scope: PauseScope) {
        self.lock().paused.insert(scope);
    }

    pub(super) fn resume(&self, scope: PauseScope) {
        self.lock().paused.remove(&scope);
    }

    /// The runs of a suspended installation are left alone.
    pub(super) fn suspend(&self, installation: InstallationId, suspended: bool) {
        let mut inner = self.lock();
        if suspended {
            inner.suspended.insert(installation);
        } else {
            inner.suspended.remove(&installation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// May steps of this repository begin?
    fn open(&self, repo: RepoId, place: &Place) -> bool {
        place.look.is_none()
            && place.held.len() < limits::REPOSITORY_STEPS
            && !self.paused.contains(&PauseScope::Server)
            && !self.paused.contains(&PauseScope::Repo(repo))
    }

    fn serves(&self, installation: InstallationId) -> bool {
        !self.suspended.contains(&installation)
            && self.busy.get(&installation).is_none_or(|busy| *busy < limits::INSTALLATION_STEPS)
    }

    fn next(&self, repo: RepoId, place: &Place) -> Option<Timestamp> {
        if place.look.is_some() {
            return place.look;
        }
        // Most repositories only wait for people: nothing to go through.
        place.next.filter(|_| self.open(repo, place))?;
        place.free().filter(|slot| self.serves(slot.installation)).filter_map(|slot| slot.due).min()
    }

    fn release(&mut self, picked: Picked) -> bool {
        let Some(place) = self.places.get_mut(&picked.run.repo) else { return false };
        let seq = picked.run.seq;
        if place.held.get(&seq).is_none_or(|held| held.claim != picked.claim) {
            return false;
        }
        if let Some(Held { installation, .. }) = place.held.remove(&seq)
            && let Some(busy) = self.busy.get_mut(&installation)
        {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&installation);
            }
        }
        place.reckon();
        true
    }
}

impl Place {
    fn free(&self) -> impl Iterator<Item = &Slot> {
        self.live.values().filter(|slot| !self.held.contains_key(&slot.seq))
    }

    fn apply(&mut self, runs: &[Became]) {
        for (seq, slot) in runs {
            match slot {
                Some(slot) => self.live.insert(*seq, *slot),
                None => self.live.remove(seq),
            };
        }
        self.reckon();
    }

    fn reckon(&mut self) {
        self.next = self.free().filter_map(|slot| slot.due).min();
        self.spoken = self.free().filter(|slot| slot.rank == Rank::Spoken).filter_map(|slot| slot.due).min();
    }
}

/// Until it is settled, what the agenda holds of a repository may be wrong.
pub(super) struct Doubt<'a> {
    agenda: &'a Agenda,
    repo: RepoId,
    settled: bool,
}

impl Doubt<'_> {
    /// The change is on disk, and this is what it made of the runs.
    pub(super) fn settle(mut self, runs: &[Became]) {
        self.settled = true;
        self.agenda.became(self.repo, runs);
    }

    /// The same, and whoever took the step lets go of its run.
    pub(super) fn settle_and_release(mut self, runs: &[Became], picked: Picked) {
        self.settled = true;
        let mut inner = self.agenda.lock();
        inner.release(picked);
        inner.places.entry(self.repo).or_default().apply(runs);
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.agenda.look_at(self.repo, Timestamp(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1000);

    fn slot(seq: u64, rank: Rank, installation: u64) -> Slot {
        Slot { seq, due: Some(NOW), rank, installation: InstallationId(installation) }
    }

    fn picked(agenda: &Agenda) -> Option<(u64, u64)> {
        agenda.pick(NOW, &HashSet::new()).map(|picked| (picked.run.repo.0, picked.run.seq))
    }

    #[test]
    fn the_repository_served_least_recently_goes_first_and_a_person_before_it() {
        let agenda = Agenda::default();
        let busy: Vec<_> = (1..=6).map(|seq| slot(seq, Rank::Going, 1)).collect();
        agenda.looked(RepoId(1), busy);
        agenda.looked(RepoId(2), vec![slot(1, Rank::Again, 1), slot(2, Rank::Going, 1)]);
        assert_eq!(picked(&agenda), Some((1, 1)));
        assert_eq!(picked(&agenda), Some((2, 2)), "what failed before comes last");
        assert_eq!(picked(&agenda), Some((1, 2)));
        agenda.became(RepoId(1), &[(5, Some(slot(5, Rank::Spoken, 1)))]);
        assert_eq!(picked(&agenda), Some((1, 5)), "somebody spoke");
        assert_eq!(picked(&agenda), Some((2, 1)));
    }

    #[test]
    fn neither_a_repository_nor_an_installation_takes_every_worker() {
        let agenda = Agenda::default();
        for repo in 1..=3 {
            let runs = (1..=40).map(|seq| slot(seq, Rank::Going, 1)).collect();
            agenda.looked(RepoId(repo), runs);
        }
        agenda.looked(RepoId(9), vec![slot(1, Rank::Going, 2)]);
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
        agenda.looked(RepoId(1), vec![slot(1, Rank::Spoken, 1)]);
        assert_eq!((picked(&agenda), agenda.next_due()), (None, None));
        agenda.suspend(InstallationId(1), false);
        assert_eq!(agenda.next_due(), Some(NOW));
        assert_eq!(picked(&agenda), Some((1, 1)));
    }

    #[test]
    fn what_was_left_in_doubt_is_looked_at() {
        let agenda = Agenda::default();
        agenda.looked(RepoId(1), vec![slot(1, Rank::Going, 1)]);
        drop(agenda.doubt(RepoId(1)));
        assert_eq!(picked(&agenda), None, "it may have ended");
        assert_eq!((agenda.next_due(), agenda.to_look_at(NOW)), (Some(Timestamp(0)), vec![RepoId(1)]));
        agenda.looked(RepoId(1), vec![slot(1, Rank::Going, 1)]);
        let chosen = agenda.pick(NOW, &HashSet::new()).unwrap();
        agenda.doubt(RepoId(1)).settle_and_release(&[(1, None)], chosen);
        assert_eq!((picked(&agenda), agenda.holds(chosen), agenda.next_due()), (None, false, None));
    }
}
