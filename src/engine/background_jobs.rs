//! Long work that costs no money, beside the steps: a test run of twenty minutes keeps no step's slot, is no part of a
//! `once`, and does not hold a shutdown up.
//!
//! A job lives in this process alone. A run that is stopped ends it, and so does a shutdown, or a lease that ends; the next
//! boot's step finds none and begins it anew. What it came to is in the journal once a step has read it.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::anyhow;
use futures_util::future::join_all;
use tokio::{sync::Semaphore, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::workflow::StepError;
use crate::{clock::SharedClock, limits, types::RunId};

/// Jobs that go on at once; others wait for their place.
const MAX_RUNNING_JOBS: usize = 2;

/// A job that was told to end and does not is given up after this.
const JOB_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The jobs of this process.
pub(super) struct BackgroundJobs {
    all: Mutex<HashMap<JobKey, BackgroundJob>>,
    /// Those that were told to end, and may not have yet.
    ending: Mutex<Vec<JoinHandle<JobResult>>>,
    slots: Arc<Semaphore>,
    clock: SharedClock,
}

/// The run, the visit that began it, and its key there.
pub(super) type JobKey = (RunId, u64, String);

/// What a job came to, in JSON.
type JobResult = Result<Vec<u8>, StepError>;

enum BackgroundJob {
    Running {
        stop: CancellationToken,
        task: JoinHandle<JobResult>,
    },
    /// It is kept until a step has written it down.
    Finished(Vec<u8>),
}

impl BackgroundJobs {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            all: Mutex::default(),
            ending: Mutex::default(),
            slots: Arc::new(Semaphore::new(MAX_RUNNING_JOBS)),
            clock,
        }
    }

    /// What the job came to, if it is over; it is begun where there is none. `stop` ends it. One that failed is
    /// forgotten, and any other once it is [`read`](Self::discard).
    pub(super) async fn poll<W, Fut>(
        &self,
        name: JobKey,
        stop: CancellationToken,
        work: W,
    ) -> Option<JobResult>
    where
        W: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = JobResult> + Send + 'static,
    {
        let task = {
            let mut all = lock(&self.all);
            match all.remove(&name).unwrap_or_else(|| self.spawn(stop, work)) {
                BackgroundJob::Running { task, .. } if task.is_finished() => task,
                // Not over, or not written down yet: it stays.
                stays => {
                    let came = match &stays {
                        BackgroundJob::Finished(left) => Some(Ok(left.clone())),
                        BackgroundJob::Running { .. } => None,
                    };
                    all.insert(name, stays);
                    return came;
                }
            }
        };
        let left = task.await;
        let left =
            left.unwrap_or_else(|error| Err(StepError::Bug(anyhow!("a job of a step ended: {error}"))));
        if let Ok(left) = &left {
            lock(&self.all).insert(name, BackgroundJob::Finished(left.clone()));
        }
        Some(left)
    }

    /// Does a job of this visit go on?
    pub(super) fn is_running(&self, run: RunId, visit: u64) -> bool {
        let goes_on =
            |job: &BackgroundJob| matches!(job, BackgroundJob::Running { task, .. } if !task.is_finished());
        lock(&self.all).iter().any(|((of, began, _), job)| (*of, *began) == (run, visit) && goes_on(job))
    }

    /// A step has written down what it came to.
    pub(super) fn discard(&self, name: &JobKey) {
        lock(&self.all).remove(name);
    }

    fn spawn<W, Fut>(&self, stop: CancellationToken, work: W) -> BackgroundJob
    where
        W: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = JobResult> + Send + 'static,
    {
        let (places, clock, token) = (Arc::clone(&self.slots), self.clock.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let stopped =
                || StepError::Later { why: "a job was stopped".into(), after: limits::JOB_POLL_INTERVAL };
            // One that does not end when it is told to is dropped.
            let over = async {
                token.cancelled().await;
                clock.sleep(JOB_STOP_TIMEOUT).await;
            };
            let run = async {
                let Some(place) = token.run_until_cancelled(places.acquire()).await else {
                    return Err(stopped());
                };
                let _place = place.map_err(|error| StepError::Bug(error.into()))?;
                work(token.clone()).await
            };
            tokio::select! {
                left = run => left,
                () = over => Err(stopped()),
            }
        });
        BackgroundJob::Running { stop, task }
    }

    /// Ends the jobs of a run, but for those of this visit.
    pub(super) fn stop_others(&self, run: RunId, visit: Option<u64>) {
        let mut all = lock(&self.all);
        let over = all.extract_if(|(of, began, _), _| *of == run && Some(*began) != visit);
        let mut ending = lock(&self.ending);
        ending.retain(|task| !task.is_finished());
        ending.extend(over.filter_map(|(_, job)| job.stop()));
    }

    /// Ends all of them.
    pub(super) fn stop_all(&self) {
        let over: Vec<_> = lock(&self.all).drain().filter_map(|(_, job)| job.stop()).collect();
        lock(&self.ending).extend(over);
    }

    /// The same, and waits until they have ended.
    pub(super) async fn stop_all_and_wait(&self) {
        self.stop_all();
        let ending = std::mem::take(&mut *lock(&self.ending));
        join_all(ending).await;
    }
}

impl BackgroundJob {
    fn stop(self) -> Option<JoinHandle<JobResult>> {
        let Self::Running { stop, task } = self else { return None };
        stop.cancel();
        Some(task)
    }
}

fn lock<V>(of: &Mutex<V>) -> MutexGuard<'_, V> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
