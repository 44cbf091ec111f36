//! Background jobs: long work that costs no money, such as a test run of twenty minutes. A job holds no step slot, is
//! not part of a `once`, and does not delay a shutdown.
//!
//! A job exists only in this process. It is stopped when the run is stopped, the server shuts down or the lease ends,
//! and the next attempt starts it again. A job's result reaches the journal when a step reads the result.

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

/// Maximum number of jobs that run at once; further jobs queue.
const MAX_RUNNING_JOBS: usize = 2;

/// Time for which a stopped job may keep running before it is dropped.
const JOB_STOP_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct BackgroundJobs {
    all: Mutex<HashMap<JobKey, BackgroundJob>>,
    /// Stopped jobs that may still be running.
    ending: Mutex<Vec<JoinHandle<JobResult>>>,
    slots: Arc<Semaphore>,
    clock: SharedClock,
}

/// Run, number of the visit that started the job, and key within that visit.
pub(super) type JobKey = (RunId, u64, String);

/// A job's result as JSON.
type JobResult = Result<Vec<u8>, StepError>;

enum BackgroundJob {
    Running {
        stop: CancellationToken,
        task: JoinHandle<JobResult>,
    },
    /// Result that no step has journalled yet.
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

    /// Returns the job's result, or `None` while the job runs. If the job does not exist yet, it is started, and `stop`
    /// cancels it. A failed job is forgotten at once; a successful job is forgotten on [`discard`](Self::discard).
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
                // Still running, or not journalled yet: put it back.
                unread => {
                    let result = match &unread {
                        BackgroundJob::Finished(result) => Some(Ok(result.clone())),
                        BackgroundJob::Running { .. } => None,
                    };
                    all.insert(name, unread);
                    return result;
                }
            }
        };
        let result = task.await;
        let result = result.unwrap_or_else(|error| {
            Err(StepError::Bug(anyhow!("a background job panicked or was aborted: {error}")))
        });
        if let Ok(result) = &result {
            lock(&self.all).insert(name, BackgroundJob::Finished(result.clone()));
        }
        Some(result)
    }

    pub(super) fn is_running(&self, run: RunId, visit: u64) -> bool {
        let is_running =
            |job: &BackgroundJob| matches!(job, BackgroundJob::Running { task, .. } if !task.is_finished());
        lock(&self.all).iter().any(|((of, began, _), job)| (*of, *began) == (run, visit) && is_running(job))
    }

    /// Forgets a job whose result a step has journalled.
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
            // Drops a job that does not stop in time.
            let timeout = async {
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
                result = run => result,
                () = timeout => Err(stopped()),
            }
        });
        BackgroundJob::Running { stop, task }
    }

    /// Stops the run's jobs that were started in another visit than `visit`. If `visit` is `None`, all jobs of the run
    /// are stopped.
    pub(super) fn stop_others(&self, run: RunId, visit: Option<u64>) {
        let mut all = lock(&self.all);
        let others = all.extract_if(|(of, began, _), _| *of == run && Some(*began) != visit);
        let mut ending = lock(&self.ending);
        ending.retain(|task| !task.is_finished());
        ending.extend(others.filter_map(|(_, job)| job.stop()));
    }

    pub(super) fn stop_all(&self) {
        let tasks: Vec<_> = lock(&self.all).drain().filter_map(|(_, job)| job.stop()).collect();
        lock(&self.ending).extend(tasks);
    }

    /// Stops all jobs and waits until they have ended.
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
