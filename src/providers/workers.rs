//! Worker slots for model programs on this machine. Each worker pool has its own slots, so that many runs of one pool
//! never starve another.
//!
//! A call that starts a program first waits for a slot, in order of arrival and without a timeout. The call's deadline
//! starts afterwards. If other calls are already waiting, callers should retry later, because a waiting run blocks
//! other runs. Calls over the network need no slot. Router and narrator calls fail unless a slot is free at once,
//! because a person waits for them and they are not essential.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::{CallError, CallErrorKind, ModelCall, ModelReply, Usage};
use crate::{
    clock::SharedClock,
    config::{Bulkhead, WorkerSettings},
    proc,
    types::WorkerPool,
};

/// Free memory that must remain for other processes when a program starts, in bytes.
const SPARE_MEMORY: u64 = 128 * 1024 * 1024;

/// Free memory required to start a program, in bytes. Programs have used 200 MB and more.
const PROGRAM_MEMORY: u64 = 512 * 1024 * 1024;

/// Interval between checks for free memory.
const MEMORY_LOOK: Duration = Duration::from_secs(1);

const MEGABYTE: u64 = 1024 * 1024;

/// A function that returns the machine's free memory in bytes, if known.
type MemoryProbe = fn() -> Option<u64>;

pub(super) struct WorkerSlots {
    settings: WorkerSettings,
    /// Free slots of each pool, in the order of [`WorkerPool::ALL`].
    slots: [Semaphore; 4],
    /// Number of calls waiting for a slot, per pool.
    waiting: [AtomicUsize; 4],
    /// Number of running programs, over all pools.
    running: AtomicUsize,
    /// Serializes program starts, so that two programs do not claim the same free memory.
    beginning: Mutex<()>,
    memory: MemoryProbe,
    /// Cancelled when the server stops. No slot is granted afterwards.
    closed: CancellationToken,
    clock: SharedClock,
}

impl WorkerSlots {
    pub(super) fn new(settings: WorkerSettings, clock: SharedClock) -> Arc<Self> {
        Self::with_memory(settings, clock, proc::memory_available)
    }

    fn with_memory(settings: WorkerSettings, clock: SharedClock, memory: MemoryProbe) -> Arc<Self> {
        let slots = WorkerPool::ALL.map(|pool| Semaphore::new(settings.pool_settings(pool).size));
        let (waiting, running, beginning) = Default::default();
        let closed = CancellationToken::new();
        Arc::new(Self { settings, slots, waiting, running, beginning, memory, closed, clock })
    }

    pub(super) fn has_waiters(&self, pool: WorkerPool) -> bool {
        let slots = &self.slots[pool as usize];
        slots.available_permits() == 0 && self.waiting[pool as usize].load(Ordering::Relaxed) > 0
    }

    /// Cancels all waiting and future calls.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    /// Waits for a slot. Fails if the call is cancelled, the server stops, or memory is short. Also fails if no slot is
    /// free and the call's role does not wait for one.
    pub(super) async fn acquire_slot(
        &self,
        call: &ModelCall,
        cancel: &CancellationToken,
    ) -> Result<WorkerSlot<'_>, CallError> {
        let requested_at = self.clock.now();
        let pool = self.settings.pool_settings(call.workers);
        let slot = async {
            let waiting = CounterGuard::increment(&self.waiting[call.workers as usize]);
            let permit = self.slots[call.workers as usize].acquire().await;
            drop(waiting);
            let running =
                self.wait_for_memory(pool).await.map_err(|why| (CallErrorKind::Unavailable, why))?;
            Ok((permit.expect("nobody closes the pools"), running))
        };
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err((CallErrorKind::Cancelled, "cancelled while waiting for a worker slot".to_owned())),
            () = self.closed.cancelled() => Err((CallErrorKind::Cancelled, "the server is stopping".to_owned())),
            outcome = slot => outcome,
            () = std::future::ready(()), if !call.role.is_waited_for() =>
                Err((CallErrorKind::Unavailable, "no worker slot is free now".to_owned())),
        };
        let queued = self.clock.now().since(requested_at);
        match outcome {
            Ok((permit, running)) => {
                Ok(WorkerSlot { _permit: permit, _running: running, workers: self, pool, queued })
            }
            Err((kind, why)) => {
                let usage = Usage { queued, ..Usage::for_model(&call.model) };
                Err(CallError::new(kind, why, usage))
            }
        }
    }

    /// Waits until there is enough memory for a program, as long as other programs of ours are running and may free
    /// some. If no program is running, returns an error at once, because waiting would not help.
    async fn wait_for_memory(&self, pool: Bulkhead) -> Result<CounterGuard<'_>, String> {
        let needed = PROGRAM_MEMORY.min(pool.memory_mb * MEGABYTE) + SPARE_MEMORY;
        let _turn = self.beginning.lock().await;
        loop {
            let left = (self.memory)().unwrap_or(u64::MAX);
            if left >= needed {
                return Ok(CounterGuard::increment(&self.running));
            }
            if self.running.load(Ordering::Relaxed) == 0 {
                return Err(format!(
                    "this machine has {} MB of memory left and the program needs {} MB to start; free some, or use a \
                     model that is called over the network",
                    left / MEGABYTE,
                    needed / MEGABYTE
                ));
            }
            self.clock.sleep(MEMORY_LOOK).await;
        }
    }
}

/// Guard that increments a counter when created and decrements it when dropped.
struct CounterGuard<'a>(&'a AtomicUsize);

impl<'a> CounterGuard<'a> {
    fn increment(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }
}

impl Drop for CounterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to run one program. Dropping it frees the slot.
pub(super) struct WorkerSlot<'a> {
    _permit: SemaphorePermit<'a>,
    _running: CounterGuard<'a>,
    workers: &'a WorkerSlots,
    pool: Bulkhead,
    queued: Duration,
}

impl WorkerSlot<'_> {
    /// Applies the pool's priority and memory limit to the command. Also records the child process, so that the next
    /// server process can kill it after a crash.
    pub(super) fn apply_limits(&self, command: proc::ChildCommand) -> proc::ChildCommand {
        let bytes = self.pool.memory_mb * MEGABYTE;
        let WorkerSettings { children, kill_delay, .. } = &self.workers.settings;
        command.nice(self.pool.nice).memory_limit(bytes).kill_delay(*kill_delay).recorded_in(children)
    }

    /// Releases the slot and records the time spent waiting for it in `outcome`.
    pub(super) fn release(self, mut outcome: Result<ModelReply, CallError>) -> Result<ModelReply, CallError> {
        match &mut outcome {
            Ok(reply) => reply.usage.queued = self.queued,
            Err(error) => error.usage.queued = self.queued,
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::Pin, sync::atomic::AtomicU64};

    use super::*;
    use crate::{
        clock::Clock,
        providers::{CallRole, samples},
        types::Timestamp,
    };

    fn call(workers: WorkerPool) -> ModelCall {
        ModelCall {
            prompt: String::new(),
            model: "m".into(),
            deadline: Duration::from_millis(1),
            private: true,
            workers,
            ..samples::call()
        }
    }

    /// A clock whose `sleep` returns at once.
    struct ImmediateClock;

    impl Clock for ImmediateClock {
        fn now(&self) -> Timestamp {
            Timestamp(0)
        }

        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(tokio::task::yield_now())
        }
    }

    fn workers(memory: MemoryProbe) -> Arc<WorkerSlots> {
        let settings = WorkerSettings::new(std::path::Path::new("/nowhere"));
        WorkerSlots::with_memory(settings, Arc::new(ImmediateClock), memory)
    }

    #[tokio::test]
    async fn worker_pool_never_exceeds_its_size_and_pools_are_independent() {
        let workers = workers(|| None);
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let job = |_| {
            let (workers, inside, most) = (Arc::clone(&workers), Arc::clone(&inside), Arc::clone(&most));
            tokio::spawn(async move {
                let slot = workers.acquire_slot(&call(WorkerPool::Low), &CancellationToken::new()).await?;
                most.fetch_max(1 + inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                inside.fetch_sub(1, Ordering::SeqCst);
                slot.release(Ok(ModelReply::new("done".into(), None, Usage::default())))
            })
        };
        let crowd: Vec<_> = (0..12).map(job).collect();
        let urgent = workers.acquire_slot(&call(WorkerPool::High), &CancellationToken::new()).await.unwrap();
        for job in crowd {
            job.await.unwrap().unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 2, "the size of the pool");
        drop(urgent);
        assert_eq!(workers.running.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn model_call_waiting_for_a_worker_can_be_cancelled() {
        let workers = workers(|| None);
        let taken =
            workers.acquire_slot(&call(WorkerPool::Background), &CancellationToken::new()).await.unwrap();
        let cancel = CancellationToken::new();
        let second = call(WorkerPool::Background);
        assert!(!workers.has_waiters(WorkerPool::Background), "one more may wait");
        let waiting = workers.acquire_slot(&second, &cancel);
        let called_off = async {
            assert!(workers.has_waiters(WorkerPool::Background) && !workers.has_waiters(WorkerPool::Low));
            cancel.cancel();
        };
        let (outcome, ()) = tokio::join!(waiting, called_off);
        assert_eq!(outcome.err().unwrap().kind, CallErrorKind::Cancelled);
        assert!(!workers.has_waiters(WorkerPool::Background));
        let routes = ModelCall { role: CallRole::Router, ..second.clone() };
        let error = workers.acquire_slot(&routes, &CancellationToken::new()).await.err().unwrap();
        assert_eq!(error.kind, CallErrorKind::Unavailable, "it waits for nobody");
        drop(taken);
        workers.acquire_slot(&routes, &CancellationToken::new()).await.unwrap();
        workers.acquire_slot(&second, &CancellationToken::new()).await.unwrap();
    }

    #[tokio::test]
    async fn closing_worker_pools_cancels_waiting_calls() {
        let workers = workers(|| None);
        let taken =
            workers.acquire_slot(&call(WorkerPool::Background), &CancellationToken::new()).await.unwrap();
        let (second, cancel) = (call(WorkerPool::Background), CancellationToken::new());
        let waiting = workers.acquire_slot(&second, &cancel);
        let stops = async {
            workers.close();
            drop(taken);
        };
        let (outcome, ()) = tokio::join!(waiting, stops);
        let error = outcome.err().unwrap();
        assert_eq!((error.kind, error.usage.attempts), (CallErrorKind::Cancelled, 0));
        assert!(workers.acquire_slot(&second, &cancel).await.is_err());
    }

    #[tokio::test]
    async fn low_memory_delays_a_call_while_programs_run_and_fails_it_otherwise() {
        static LEFT: AtomicU64 = AtomicU64::new(4096);
        let workers = workers(|| Some(LEFT.load(Ordering::SeqCst) * MEGABYTE));
        let medium = call(WorkerPool::Medium);
        let cancel = CancellationToken::new();
        let first = workers.acquire_slot(&medium, &cancel).await.unwrap();
        LEFT.store(600, Ordering::SeqCst);
        let ends = async {
            tokio::task::yield_now().await;
            drop(first);
            LEFT.store(700, Ordering::SeqCst);
        };
        let (second, ()) = tokio::join!(workers.acquire_slot(&medium, &cancel), ends);
        drop(second.unwrap());

        LEFT.store(600, Ordering::SeqCst);
        let error = workers.acquire_slot(&medium, &CancellationToken::new()).await.err().unwrap();
        assert_eq!(error.kind, CallErrorKind::Unavailable);
        assert!(error.message.contains("has 600 MB of memory left"), "{error}");
        // The smaller background pool still fits.
        workers.acquire_slot(&call(WorkerPool::Background), &CancellationToken::new()).await.unwrap();
    }
}
