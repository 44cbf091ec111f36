//! [`EnginePort`] requests. Each request is idempotent: a second request with the same cause id has no further effect.

use std::sync::atomic::Ordering::SeqCst;

use futures_util::future::BoxFuture;

use super::{
    port::{
        CancelRunsRequest, EngineError, EnginePort, GateAnswerOutcome, GateAnswerRequest, RetryRunRequest,
        RunView, StartRunRequest, match_gate,
    },
    scheduler::{Engine, lock, open_run},
};
use crate::{
    store::{
        ActivePause, AnswerReceipt, CancelRow, PauseScope, RetryDecision, RunFilter, RunRemark, RunRow,
        StartDecision,
    },
    types::RunId,
};

impl<T: Send + Sync + 'static> Engine<T> {
    async fn start_run(&self, start: StartRunRequest) -> Result<StartDecision<RunView>, EngineError> {
        let Some(workflow) = self.workflow(&start.workflow) else {
            return Err(EngineError::UnknownWorkflow(start.workflow));
        };
        let opened = open_run(&self.store, workflow, start.trigger).await?;
        self.wake_up.notify_one();
        Ok(match opened {
            StartDecision::New(id) => StartDecision::New(id),
            StartDecision::Duplicate(id) => StartDecision::Duplicate(id),
            StartDecision::AlreadyLive(row) => StartDecision::AlreadyLive(Box::new(self.run_view(&row))),
        })
    }

    async fn accept_answer(&self, signal: GateAnswerRequest) -> Result<GateAnswerOutcome, EngineError> {
        let GateAnswerRequest { repo, issue, answer, late } = signal;
        let live = RunFilter { repo: Some(repo), issue: Some(issue), live_only: true };
        loop {
            if self.store.has_answer(repo, &answer.cause).await? {
                return Ok(GateAnswerOutcome::Duplicate);
            }
            if late {
                return Ok(GateAnswerOutcome::Late);
            }
            let runs = self.store.runs(live).await?;
            if runs.is_empty() {
                return Ok(GateAnswerOutcome::NoRun);
            }
            let gates: Vec<_> = runs.iter().filter_map(|run| run.gate.clone()).collect();
            let gate = match match_gate(&gates, &answer) {
                Ok(Some(gate)) => gate.clone(),
                Ok(None) => {
                    return Ok(GateAnswerOutcome::NoGate(
                        runs.iter().map(|run| self.run_view(run)).collect(),
                    ));
                }
                Err(why) => return Ok(*why),
            };
            let run = gate.run;
            match self.store.record_answer(gate, answer.clone()).await? {
                AnswerReceipt::Accepted => {
                    self.wake_up.notify_one();
                    return Ok(GateAnswerOutcome::Accepted(run));
                }
                AnswerReceipt::Duplicate => return Ok(GateAnswerOutcome::Duplicate),
                AnswerReceipt::Changed => {} // the gate changed meanwhile; look again
            }
        }
    }

    async fn cancel_runs(&self, cancel: CancelRunsRequest) -> Result<Vec<RunId>, EngineError> {
        let CancelRunsRequest { repo, issue, run, cause, by, why } = cancel;
        let row = CancelRow { cause, by, why, at: self.clock.now() };
        let runs = self.store.cancel_runs(repo, issue, run, row).await?;
        // Before the tokens are read: a step without a token yet sees the new count.
        self.cancels.fetch_add(1, SeqCst);
        let in_flight = lock(&self.in_flight);
        for token in runs.iter().filter_map(|run| in_flight.get(run)) {
            token.cancel();
        }
        drop(in_flight);
        runs.iter().for_each(|run| self.jobs.stop_others(*run, None));
        self.wake_up.notify_one();
        Ok(runs)
    }

    async fn retry_run(&self, retry: RetryRunRequest) -> Result<RetryDecision<RunView>, EngineError> {
        let RetryRunRequest { run, cause, by } = retry;
        let became = self.store.retry_run(run, cause, by).await?;
        self.wake_up.notify_one();
        let view = |row: &RunRow| Box::new(self.run_view(row));
        Ok(match became {
            RetryDecision::Resumed => RetryDecision::Resumed,
            RetryDecision::Duplicate => RetryDecision::Duplicate,
            RetryDecision::NoRun => RetryDecision::NoRun,
            RetryDecision::NotFailed(row) => RetryDecision::NotFailed(view(&row)),
            RetryDecision::OtherRunLive(row) => RetryDecision::OtherRunLive(view(&row)),
        })
    }
}

impl<T: Send + Sync + 'static> EnginePort for Engine<T> {
    fn start(&self, start: StartRunRequest) -> BoxFuture<'_, Result<StartDecision<RunView>, EngineError>> {
        Box::pin(self.start_run(start))
    }

    fn signal(&self, signal: GateAnswerRequest) -> BoxFuture<'_, Result<GateAnswerOutcome, EngineError>> {
        Box::pin(self.accept_answer(signal))
    }

    fn remark(&self, run: RunId, remark: RunRemark) -> BoxFuture<'_, Result<AnswerReceipt, EngineError>> {
        Box::pin(async move {
            let receipt = self.store.record_remark(run, remark).await?;
            self.wake_up.notify_one();
            Ok(receipt)
        })
    }

    fn cancel(&self, cancel: CancelRunsRequest) -> BoxFuture<'_, Result<Vec<RunId>, EngineError>> {
        Box::pin(self.cancel_runs(cancel))
    }

    fn inspect(&self, run: RunId) -> BoxFuture<'_, Result<Option<RunView>, EngineError>> {
        Box::pin(async move { Ok(self.store.run_row(run).await?.map(|row| self.run_view(&row))) })
    }

    fn list(&self, filter: RunFilter) -> BoxFuture<'_, Result<Vec<RunView>, EngineError>> {
        Box::pin(async move {
            let rows = self.store.runs(filter).await?;
            Ok(rows.iter().map(|row| self.run_view(row)).collect())
        })
    }

    fn retry(&self, retry: RetryRunRequest) -> BoxFuture<'_, Result<RetryDecision<RunView>, EngineError>> {
        Box::pin(self.retry_run(retry))
    }

    fn pause(&self, scope: PauseScope, by: String, why: String) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            tracing::warn!(?scope, by, why, "work paused");
            Ok(self.store.set_pause(ActivePause { scope, by, why, at: self.clock.now() }).await?)
        })
    }

    fn resume(&self, scope: PauseScope, by: String) -> BoxFuture<'_, Result<bool, EngineError>> {
        Box::pin(async move {
            let ended = self.store.remove_pause(scope).await?;
            tracing::warn!(?scope, by, ended, "work resumed");
            self.wake_up.notify_one();
            Ok(ended)
        })
    }

    fn pauses(&self) -> BoxFuture<'_, Result<Vec<ActivePause>, EngineError>> {
        Box::pin(async move { Ok(self.store.pauses().await?) })
    }

    fn step_names(&self, workflow: &str, step: &str) -> Option<(&'static str, &'static str)> {
        let workflow = self.workflow(workflow)?;
        Some((workflow.name(), workflow.step(step)?.id))
    }

    fn wake_waiting_runs(&self) {
        self.wake_up.notify_one();
    }
}
