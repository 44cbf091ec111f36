//! Contract tests of the engine. They run on SQLite and on Postgres.

mod cluster;
mod failures;
mod interleavings;
mod world;

use std::{collections::HashSet, sync::atomic::Ordering::SeqCst, time::Duration};

use countersign::{
    clock::Clock,
    commands::CommandSpec,
    engine::{
        AllowedResponders, AnyWorkflow, AttemptContext, EnginePort, GateAnswer, GateAnswerOutcome,
        PauseScope, RetryDecision, RetryRunRequest, RunCompletion, RunFilter, RunHalt, RunTrigger,
        RunViewStatus, SavedCheckpoint, StartDecision, StepError, StepInfo, StepKind, Transition, Workflow,
        WorkflowStep,
    },
    limits,
    store::{CancelRow, Checkpoint, NewRun, RunStatus},
    types::{Cause, IssueNo, RepoId, Role, RunId, Verb},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use world::{BEGINNING, REPO, TOYS, Toys, World, answer_by_grace, person, subject};

macro_rules! contract {
    ($($name:ident)*) => {
        mod sqlite {
            // As in a server: each step commits on its own thread.
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::World::sqlite()).await })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(world) = super::World::postgres() {
                    super::$name(world).await;
                }
            })*
        }
    };
}

contract! {
    one_cause_starts_one_run
    issue_has_one_live_run_per_workflow
    run_follows_its_graph_to_the_end
    revision_repeats_the_steps_with_a_new_journal
    panicking_step_is_retried_then_fails_the_run
    run_ends_when_its_halt_cannot_be_reported
    halt_report_is_retried
    user_error_ends_the_run_with_its_message
    journaled_effect_is_not_repeated_after_a_crash
    failed_effect_runs_again
    recorded_call_survives_a_failed_step
    later_error_discards_state_changes
    wait_keeps_state_and_visit
    repeated_wait_writes_nothing
    journal_refuses_duplicate_nested_and_large_entries
    transition_outside_the_graph_is_refused
    loop_without_answers_hits_the_move_limit
    each_answer_resets_the_move_limit
    reopened_gate_consumes_the_answer
    answer_to_an_earlier_subject_is_dropped
    answers_are_matched_to_the_open_gate
    expired_gate_wakes_its_step_once
    answer_during_a_step_that_waits_is_handled
    cancel_reaches_a_running_step
    cancel_reaches_a_run_at_a_gate
    cancelled_run_that_was_published_ends_as_done
    follow_up_run_starts_unless_the_run_was_cancelled
    unreadable_run_is_parked
    older_checkpoint_is_upcast
    failed_run_is_retried_on_request
    waiting_run_is_resumed_on_request
    paused_server_starts_no_step
    github_calls_of_a_run_are_counted
    busy_repository_starves_no_other
    delayed_runs_hold_no_worker
    stopping_server_starts_no_effect
    job_holds_no_slot_and_its_result_is_stored
    cancel_stops_a_job
    shutdown_stops_a_job_and_the_next_boot_restarts_it
    countersignature_needs_stored_rows
    runs_of_two_issues_advance_in_one_tick
    live_loop_runs_and_shuts_down
    live_loop_finishes_many_runs
    live_loop_releases_a_stuck_step_when_parked
}

async fn one_cause_starts_one_run(world: World) {
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    let StartDecision::Duplicate(same) = world.start("walk", "delivery-1#0").await else { panic!() };
    assert_eq!(run, same);
    world.settle().await;
    assert_eq!(world.signal(answer_by_grace(Verb::Approve, "delivery-2#0")).await.run(), Some(run));
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Done);
    // The cause counts as a duplicate even after the run ended.
    assert!(
        matches!(world.start("walk", "delivery-1#0").await, StartDecision::Duplicate(same) if same == run)
    );
}

async fn issue_has_one_live_run_per_workflow(world: World) {
    let run = world.start_and_settle("walk").await;
    let StartDecision::AlreadyLive(view) = world.start("walk", "delivery-2#0").await else { panic!() };
    assert_eq!((view.id, view.status), (run, RunViewStatus::Asking));
    assert!(matches!(world.start_on(IssueNo(43), "walk", "delivery-3#0").await, StartDecision::New(_)));
    world.cancel("delivery-4#0").await;
    world.settle().await;
    assert!(
        matches!(world.start("walk", "delivery-5#0").await, StartDecision::New(_)),
        "the issue is free again"
    );
}

async fn run_follows_its_graph_to_the_end(world: World) {
    let run = world.start_and_settle("walk").await;
    let view = world.view(run).await;
    assert_eq!(
        (view.status, view.step_id.as_str(), view.step_title.as_str()),
        (RunViewStatus::Asking, "N2", "Human gate")
    );
    assert_eq!((view.visit, view.version), (3, 3));
    let gate = view.gate.unwrap();
    assert_eq!(
        (gate.spec.stage.as_str(), gate.spec.subject, gate.spec.approvers.needed, gate.answers),
        ("lld", subject(), 1, 0)
    );

    world.signal(answer_by_grace(Verb::Approve, "delivery-2#0")).await;
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit, view.gate), (RunViewStatus::Done, 4, None));
    assert_eq!(view.outcome.unwrap().summary, "published");
    assert_eq!(world.toys.events(), ["asked", "approve by grace", "APPROVED Approve by grace"]);
    assert!(world.live().await.is_empty());
}

async fn revision_repeats_the_steps_with_a_new_journal(world: World) {
    let run = world.start_and_settle("walk").await;
    world.signal(answer_by_grace(Verb::Revise, "delivery-2#0")).await;
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Asking, 6));
    // Two drafts at 1 and two gates at 100: each visit of a step has its own journal.
    assert_eq!(world.toys.paid.load(SeqCst), 202);
    assert_eq!(view.gate.unwrap().answers, 0, "the second gate is another gate");
}

async fn panicking_step_is_retried_then_fails_the_run(world: World) {
    let run = world.start_and_settle("panic").await;
    let view = world.view(run).await;
    assert_eq!((view.status, world.toys.attempts.load(SeqCst)), (RunViewStatus::Ready, 1));
    let wait = view.due.unwrap().since(BEGINNING);
    assert!((limits::STEP_BACKOFF..=limits::STEP_BACKOFF * 5 / 4).contains(&wait), "{wait:?}");
    world.settle_in_time().await;
    assert_eq!(world.toys.attempts.load(SeqCst), limits::STEP_ATTEMPTS);
    let view = world.view(run).await;
    assert_eq!(view.status, RunViewStatus::Failed);
    assert!(!view.why.unwrap().contains("toy broke"), "the detail stays on the server");
    let halts = world.toys.halts.lock().unwrap().clone();
    let [RunHalt::Bug { attempts, error }] = halts.as_slice() else { panic!("{halts:?}") };
    assert_eq!((*attempts, error.as_str()), (limits::STEP_ATTEMPTS, "panicked: the toy broke"));
}

async fn run_ends_when_its_halt_cannot_be_reported(world: World) {
    let run = world.start_and_settle("mute").await;
    world.settle_in_time().await;
    let view = world.view(run).await;
    assert_eq!(view.status, RunViewStatus::Failed);
    assert!(view.why.unwrap().contains("could not tell people"));
    assert!(world.toys.halts.lock().unwrap().is_empty());
}

async fn halt_report_is_retried(world: World) {
    world.toys.failing_reports.store(7, SeqCst);
    let run = world.start_and_settle("user").await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Halting);
    world.settle_in_time().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Failed);
    assert_eq!(
        world.toys.halts.lock().unwrap().len(),
        1,
        "`Later` is retried more often than a bug: 7 failures are allowed"
    );
}

async fn user_error_ends_the_run_with_its_message(world: World) {
    let run = world.start_and_settle("user").await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Failed, 2));
    assert_eq!(view.why.unwrap(), "the issue is empty: write what you want");
    assert_eq!(world.toys.attempts.load(SeqCst), 1);
}

async fn journaled_effect_is_not_repeated_after_a_crash(mut world: World) {
    *world.toys.stuck.lock().unwrap() = true;
    let StartDecision::New(run) = world.start("half", "delivery-1#0").await else { panic!() };
    world.tick_until_stuck().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Running);
    assert_eq!(world.engine().tick().await.unwrap(), 0, "the run is still claimed");

    *world.toys.stuck.lock().unwrap() = false;
    world.restart(TOYS);
    world.clock.advance(Duration::from_secs(1));
    world.settle().await;
    let events = world.toys.events();
    assert_eq!((events[1].as_str(), events[3].as_str()), ("interrupted false", "interrupted true"));
    assert_eq!(events[0], events[2], "nonce and time come from the journal");
    assert_eq!(world.toys.paid.load(SeqCst), 101, "one draft, one gate");
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking);
}

async fn failed_effect_runs_again(world: World) {
    world.start_and_settle("refuse").await;
    world.settle_in_time().await;
    assert_eq!(world.toys.events()[..3], ["interrupted false", "interrupted true", "value 2"]);
}

async fn recorded_call_survives_a_failed_step(world: World) {
    world.start_and_settle("bill").await;
    world.settle_in_time().await;
    assert_eq!(world.toys.events()[..3], ["booked None", "booked Some(1)", "1 row"]);
}

async fn later_error_discards_state_changes(world: World) {
    let run = world.start_and_settle("later").await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.why.as_deref()), (RunViewStatus::Ready, Some("rate limit")));
    world.clock.advance(Duration::from_secs(29));
    assert_eq!(world.engine().tick().await.unwrap(), 0);
    assert_eq!(world.engine().next_due().await.unwrap(), Some(BEGINNING.plus(Duration::from_secs(30))));
    world.clock.advance(Duration::from_secs(1));
    world.settle().await;
    assert_eq!(world.toys.events()[0], "draft 1", "the first attempt's count is gone");
}

async fn wait_keeps_state_and_visit(world: World) {
    let run = world.start_and_settle("wait").await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Waiting);
    world.clock.advance(Duration::from_secs(90));
    world.settle().await;
    assert_eq!(world.toys.events()[0], "draft 2 visit 1");
    assert_eq!(world.toys.paid.load(SeqCst), 101, "the effect before the wait is read from the journal");
}

async fn repeated_wait_writes_nothing(world: World) {
    let run = world.start_and_settle("idle").await;
    let before = world.view(run).await;
    assert_eq!((before.status, world.toys.attempts.load(SeqCst)), (RunViewStatus::Waiting, 1));
    for looks in 2..=4 {
        world.clock.advance(Duration::from_secs(59));
        assert_eq!(world.engine().tick().await.unwrap(), 0, "not before its time");
        world.clock.advance(Duration::from_secs(1));
        world.settle().await;
        assert_eq!(world.toys.attempts.load(SeqCst), looks);
    }
    let after = world.view(run).await;
    assert_eq!((after.updated_at, after.status), (before.updated_at, RunViewStatus::Waiting));
    world.cancel("delivery-2#0").await;
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Stopped, "a waiting run can be stopped");
}

async fn journal_refuses_duplicate_nested_and_large_entries(world: World) {
    for (issue, mode, expected) in
        [(1, "twice", "twice"), (2, "nested", "was called while"), (3, "big", "70002 bytes")]
    {
        let StartDecision::New(_) = world.start_on(IssueNo(issue), mode, &format!("{mode}#0")).await else {
            panic!()
        };
        world.settle_in_time().await;
        let halts = world.toys.halts.lock().unwrap().pop().unwrap();
        assert!(matches!(&halts, RunHalt::Bug { error, .. } if error.contains(expected)), "{halts:?}");
    }
}

async fn transition_outside_the_graph_is_refused(world: World) {
    let run = world.start_and_settle("stray").await;
    world.settle_in_time().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.step_id.as_str()), (RunViewStatus::Failed, "N1"));
    let halts = world.toys.halts.lock().unwrap().clone();
    assert!(
        matches!(&halts[..], [RunHalt::Bug { error, .. }] if error.contains("no edge Draft -> Publish")),
        "{halts:?}"
    );
}

async fn loop_without_answers_hits_the_move_limit(world: World) {
    let run = world.start_and_settle("loop").await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Failed);
    // Two iterations and one direct path, of at most four steps each.
    let halts = world.toys.halts.lock().unwrap().clone();
    assert_eq!(halts, [RunHalt::Limit { moves: 2 * 4 + 4 }]);
}

async fn each_answer_resets_the_move_limit(world: World) {
    let run = world.start_and_settle("walk").await;
    for round in 0..8 {
        world.signal(answer_by_grace(Verb::Revise, &format!("round-{round}"))).await;
        world.settle().await;
    }
    let view = world.view(run).await;
    assert_eq!(
        (view.status, view.visit),
        (RunViewStatus::Asking, 3 + 8 * 3),
        "far more moves than the limit of 10"
    );
}

async fn answer_to_an_earlier_subject_is_dropped(world: World) {
    let run = world.start_and_settle("shift").await;
    let unclear = GateAnswer { text: "unclear".into(), ..answer_by_grace(Verb::Revise, "delivery-2#0") };
    world.signal(unclear).await;
    assert_eq!(
        world.signal(answer_by_grace(Verb::Approve, "delivery-3#0")).await.run(),
        Some(run),
        "accepted for the subject shown"
    );
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!(
        (view.status, view.gate.map(|gate| gate.spec.subject == subject())),
        (RunViewStatus::Asking, Some(false))
    );
    assert_eq!(world.toys.events(), ["asked", "revise by grace"], "the approval was of something else");
    assert_eq!(world.engine().tick().await.unwrap(), 0);
}

async fn reopened_gate_consumes_the_answer(world: World) {
    let run = world.start_and_settle("walk").await;
    let unclear = GateAnswer { text: "unclear".into(), ..answer_by_grace(Verb::Revise, "delivery-2#0") };
    assert_eq!(world.signal(unclear.clone()).await.run(), Some(run));
    // A second answer arrives before the first was handled, and is queued.
    let more = GateAnswer { cause: Cause("delivery-2#1".into()), by: person("lin", 1003), ..unclear };
    assert_eq!(world.signal(more).await.run(), Some(run));
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Asking, 3));
    let gate = view.gate.unwrap();
    assert_eq!(gate.answers, 2);
    assert_eq!(world.toys.events(), ["asked", "revise by grace", "revise by lin"]);
    assert_eq!(world.engine().tick().await.unwrap(), 0, "no answer is queued");

    world.signal(answer_by_grace(Verb::Approve, "delivery-3#0")).await;
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Done);
    assert_eq!(world.toys.paid.load(SeqCst), 101, "the gate was shown once");
}

async fn answers_are_matched_to_the_open_gate(world: World) {
    let approve = || answer_by_grace(Verb::Approve, "delivery-2#0");
    assert!(matches!(world.signal(approve()).await, GateAnswerOutcome::NoRun));
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    assert!(matches!(world.signal(approve()).await, GateAnswerOutcome::NoGate(runs) if runs[0].id == run));
    world.settle().await;

    assert!(matches!(
        world.signal(answer_by_grace(Verb::Dismiss, "d#1")).await,
        GateAnswerOutcome::NoGate(_)
    ));
    let stage = GateAnswer { stage: Some("spec".into()), ..approve() };
    assert!(
        matches!(world.signal(stage).await, GateAnswerOutcome::WrongStage(gates) if gates[0].spec.stage == "lld")
    );
    let stale = GateAnswer { hash: Some("0123456789ab".into()), ..approve() };
    assert!(
        matches!(world.signal(stale).await, GateAnswerOutcome::Stale(gate) if gate.spec.subject == subject())
    );
    let short = GateAnswer { hash: Some(subject().to_string()[..7].into()), ..approve() };
    assert!(matches!(world.signal(short).await, GateAnswerOutcome::Stale(_)));
    let soon = BEGINNING.plus(limits::SEEN_BEFORE_APPROVAL - Duration::from_millis(1));
    assert!(matches!(
        world.signal(GateAnswer { at: soon, ..approve() }).await,
        GateAnswerOutcome::TooSoon(_)
    ));
    let weak = GateAnswer { role: Role::Triage, ..approve() };
    let GateAnswerOutcome::NotAllowed { needs, .. } = world.signal(weak).await else { panic!() };
    assert_eq!(needs, AllowedResponders::Role(Role::Write));
    let writer = GateAnswer { role: Role::Write, ..answer_by_grace(Verb::Override, "d#2") };
    assert!(matches!(
        world.signal(writer).await,
        GateAnswerOutcome::NotAllowed { needs: AllowedResponders::Role(Role::Maintain), .. }
    ));
    assert!(matches!(world.signal_late(approve()).await, GateAnswerOutcome::Late));
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking, "the run did not advance");

    // After an edit of the gate comment, approvals without a hash are refused, since people may have read other text.
    world.edit_gate_comment(run).await;
    for _ in 0..2 {
        assert!(
            matches!(world.signal(approve()).await, GateAnswerOutcome::TooSoon(gate) if gate.comment_edit.is_some())
        );
        world.settle().await;
    }

    // An approval with a hash counts at once. The case of hash and stage does not matter.
    let hash = Some(subject().short().to_uppercase());
    let typed = GateAnswer { hash, stage: Some("LLD".into()), at: BEGINNING, ..approve() };
    assert!(matches!(world.signal(typed.clone()).await, GateAnswerOutcome::Accepted(id) if id == run));
    assert!(matches!(world.signal_late(typed).await, GateAnswerOutcome::Duplicate), "it was in time");
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Done);
    assert!(
        matches!(world.signal(approve()).await, GateAnswerOutcome::Duplicate),
        "known, though the run has ended"
    );
}

async fn expired_gate_wakes_its_step_once(world: World) {
    let run = world.start_and_settle("expire").await;
    assert_eq!(world.view(run).await.due, Some(BEGINNING.plus(Duration::from_secs(600))));
    world.settle_in_time().await;
    assert_eq!(world.toys.events(), ["asked", "asked"], "the step runs once more without an answer");
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking);
}

async fn cancel_reaches_a_running_step(world: World) {
    let StartDecision::New(run) = world.start("listen", "delivery-1#0").await else { panic!() };
    let cancelled = async {
        world.toys.entered.notified().await;
        assert_eq!(world.cancel("delivery-2#0").await, [run]);
        assert_eq!(world.cancel("delivery-2#0").await, [run], "the same cause, the same answer");
    };
    let (ticked, ()) = tokio::join!(world.engine().tick(), cancelled);
    assert_eq!(ticked.unwrap(), 1);
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!(
        (view.status, view.why.as_deref()),
        (RunViewStatus::Stopped, Some("stopped by ada: wrong issue"))
    );
    assert_eq!(world.toys.attempts.load(SeqCst), 1);
    assert!(
        matches!(&world.toys.halts.lock().unwrap()[..], [RunHalt::Stopped { by, .. }] if by.login == "ada")
    );
}

async fn cancel_reaches_a_run_at_a_gate(world: World) {
    let run = world.start_and_settle("walk").await;
    assert_eq!(world.cancel("delivery-2#0").await, [run]);
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.gate), (RunViewStatus::Stopped, None));
    assert!(matches!(
        world.signal(answer_by_grace(Verb::Approve, "delivery-3#0")).await,
        GateAnswerOutcome::NoRun
    ));
    assert!(world.cancel("delivery-4#0").await.is_empty(), "nothing left to stop");
}

async fn cancelled_run_that_was_published_ends_as_done(world: World) {
    let run = world.start_and_settle("there").await;
    world.cancel("delivery-2#0").await;
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.gate), (RunViewStatus::Done, None));
    assert_eq!(view.outcome.unwrap().summary, "published before");
}

async fn follow_up_run_starts_unless_the_run_was_cancelled(world: World) {
    let store = world.store();
    for (issue, stopped) in [(7, false), (8, true)] {
        let new = |cause: &str| NewRun {
            workflow: "toy".into(),
            version: 1,
            trigger: World::trigger(REPO, IssueNo(issue), "walk", cause),
            step: "\"Draft\"".into(),
            state: b"{}".to_vec(),
        };
        let StartDecision::New(run) = store.start_run(new(&format!("first-{issue}"))).await.unwrap() else {
            panic!()
        };
        futures_util::future::join_all(store.live_run_scans(BEGINNING)).await;
        let lease = store.claim_run(BEGINNING, &HashSet::new()).await.unwrap().unwrap();
        if stopped {
            let cancel = CancelRow {
                cause: Cause("stop".into()),
                by: person("ada", 1001),
                why: "no".into(),
                at: BEGINNING,
            };
            assert_eq!(store.cancel_runs(run.repo, IssueNo(issue), None, cancel).await.unwrap(), [run]);
        }
        let outcome = RunCompletion { summary: "done".into(), url: None };
        let then = Some(Box::new(new(&format!("after-{issue}"))));
        store.save_step(&lease, Checkpoint::Done { state: b"{}".to_vec(), outcome, then }).await.unwrap();
        let live = RunFilter { repo: Some(run.repo), issue: Some(IssueNo(issue)), live_only: true };
        let causes: Vec<_> =
            store.runs(live).await.unwrap().into_iter().map(|run| run.trigger.cause.0).collect();
        assert_eq!(causes, if stopped { vec![] } else { vec![format!("after-{issue}")] });
        // Ends this run before the next loop iteration.
        let rest = CancelRow {
            cause: Cause("end".into()),
            by: person("ada", 1001),
            why: String::new(),
            at: BEGINNING,
        };
        store.cancel_runs(run.repo, IssueNo(issue), None, rest).await.unwrap();
        futures_util::future::join_all(store.live_run_scans(BEGINNING)).await;
        if let Some(lease) = store.claim_run(BEGINNING, &HashSet::new()).await.unwrap() {
            let ended = Checkpoint::Ended { status: RunStatus::Stopped, why: "no".into() };
            store.save_step(&lease, ended).await.unwrap();
        }
    }
}

/// A rewritten toy workflow that cannot read the state of old runs.
struct Rewritten;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum OneStep {
    Think,
}

impl WorkflowStep for OneStep {
    fn info(self) -> StepInfo {
        StepInfo { id: "N1", title: "Think", kind: StepKind::Work }
    }
}

impl Workflow<Toys> for Rewritten {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 4;
    type Step = OneStep;
    type State = ();
    const GRAPH: &'static [(OneStep, &'static [OneStep])] = &[(OneStep::Think, &[])];
    const COMMANDS: &'static [CommandSpec] = &[];
    fn max_iterations() -> u32 {
        1
    }
    fn start(&self, _trigger: &RunTrigger) {}
    async fn run(
        &self,
        _at: OneStep,
        _state: &mut (),
        _cx: &AttemptContext<Toys>,
    ) -> Result<Transition<OneStep>, StepError> {
        Err(StepError::User("never".into()))
    }
    async fn report_halt(
        &self,
        _at: OneStep,
        _state: &(),
        _halt: &RunHalt,
        _cx: &AttemptContext<Toys>,
    ) -> Result<Option<RunCompletion>, StepError> {
        Ok(None)
    }
}

static REWRITTEN: &[&dyn AnyWorkflow<Toys>] = &[&Rewritten];

async fn unreadable_run_is_parked(mut world: World) {
    let run = world.start_and_settle("walk").await;
    world.signal(answer_by_grace(Verb::Revise, "delivery-2#0")).await;
    world.restart(REWRITTEN);
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Parked, 3));
    let why = view.why.unwrap();
    assert!(why.contains("toy version 3") && why.contains("/stop"), "{why}");

    // The version that can read the run continues it, with the answer.
    world.restart(TOYS);
    world.settle().await;
    assert_eq!(world.view(run).await.visit, 6);

    // A version that cannot read the run can still end it.
    world.signal(answer_by_grace(Verb::Revise, "delivery-3#0")).await;
    world.restart(&[]);
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Parked);
    world.cancel("delivery-4#0").await;
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Stopped);
}

/// The toy workflow with its first step renamed. An upcast converts the old name.
struct Renamed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum RenamedStep {
    Write,
}

impl WorkflowStep for RenamedStep {
    fn info(self) -> StepInfo {
        StepInfo { id: "N1", title: "Write", kind: StepKind::Work }
    }
}

impl Workflow<Toys> for Renamed {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 5;
    type Step = RenamedStep;
    type State = Vec<String>;
    const GRAPH: &'static [(RenamedStep, &'static [RenamedStep])] = &[(RenamedStep::Write, &[])];
    const COMMANDS: &'static [CommandSpec] = &[];
    fn max_iterations() -> u32 {
        1
    }
    fn start(&self, _trigger: &RunTrigger) -> Vec<String> {
        Vec::new()
    }
    fn upcast(version: u32, saved: &SavedCheckpoint) -> Option<SavedCheckpoint> {
        let older = version == 3 && saved.step == "\"Draft\"";
        older.then(|| SavedCheckpoint { step: "\"Write\"".into(), state: b"[\"from version 3\"]".to_vec() })
    }
    async fn run(
        &self,
        _at: RenamedStep,
        state: &mut Vec<String>,
        _cx: &AttemptContext<Toys>,
    ) -> Result<Transition<RenamedStep>, StepError> {
        Err(StepError::User(state.join(", ")))
    }
    async fn report_halt(
        &self,
        _: RenamedStep,
        _: &Vec<String>,
        _: &RunHalt,
        _: &AttemptContext<Toys>,
    ) -> Result<Option<RunCompletion>, StepError> {
        Ok(None)
    }
}

static RENAMED: &[&dyn AnyWorkflow<Toys>] = &[&Renamed];

async fn older_checkpoint_is_upcast(mut world: World) {
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    world.restart(RENAMED);
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.why.as_deref()), (RunViewStatus::Failed, Some("from version 3")));
}

async fn waiting_run_is_resumed_on_request(world: World) {
    let run = world.start_and_settle("wait").await;
    let before = world.view(run).await;
    assert_eq!(before.status, RunViewStatus::Waiting);
    let retry = RetryRunRequest { run, cause: Cause("r1".into()), by: "root".into() };
    assert!(matches!(world.engine().retry(retry.clone()).await.unwrap(), RetryDecision::Resumed));
    assert!(matches!(world.engine().retry(retry).await.unwrap(), RetryDecision::Duplicate));
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Ready, before.visit + 1));
    world.settle().await;
    assert_ne!(
        world.view(run).await.status,
        RunViewStatus::Waiting,
        "the run continues before the wait is over"
    );
    assert_eq!(world.toys.paid.load(SeqCst), 102, "a new visit with its own journal");
}

async fn failed_run_is_retried_on_request(mut world: World) {
    let run = world.start_and_settle("user").await;
    let retry = |cause: &str| RetryRunRequest { run, cause: Cause(cause.into()), by: "root".into() };
    let retried = world.engine().retry(retry("r1")).await.unwrap();
    assert!(matches!(retried, RetryDecision::Resumed), "{retried:?}");
    assert!(matches!(world.engine().retry(retry("r1")).await.unwrap(), RetryDecision::Duplicate));
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit, view.step_id.as_str()), (RunViewStatus::Ready, 3, "N1"));
    assert!(matches!(world.engine().retry(retry("r2")).await.unwrap(), RetryDecision::NotFailed(_)));
    world.settle().await;
    assert_eq!((world.view(run).await.status, world.toys.attempts.load(SeqCst)), (RunViewStatus::Failed, 2));
    assert_eq!(world.toys.halts.lock().unwrap().len(), 2, "the halt is reported again");

    let StartDecision::New(other) = world.start("walk", "delivery-2#0").await else { panic!() };
    let refused = world.engine().retry(retry("r3")).await.unwrap();
    assert!(matches!(refused, RetryDecision::OtherRunLive(view) if view.id == other));
    let nobody = RunId { seq: 99, ..run };
    let unknown = RetryRunRequest { run: nobody, ..retry("r4") };
    assert!(matches!(world.engine().retry(unknown).await.unwrap(), RetryDecision::NoRun));

    // A retry reads a parked run again.
    world.restart(REWRITTEN);
    world.settle().await;
    assert_eq!(world.view(other).await.status, RunViewStatus::Parked);
    let again = RetryRunRequest { run: other, ..retry("r5") };
    assert!(matches!(world.engine().retry(again).await.unwrap(), RetryDecision::Resumed));
    assert_eq!(world.engine().tick().await.unwrap(), 1);
}

async fn paused_server_starts_no_step(mut world: World) {
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    let repo = PauseScope::Repo(run.repo);
    for scope in [PauseScope::Server, repo] {
        world.engine().pause(scope, "root".into(), "upgrade".into()).await.unwrap();
    }
    world.restart(TOYS);
    assert_eq!(world.engine().tick().await.unwrap(), 0);
    assert_eq!(world.engine().next_due().await.unwrap(), None, "nothing to wake up for");
    assert_eq!(world.engine().pauses().await.unwrap().len(), 2);
    assert!(world.engine().resume(PauseScope::Server, "root".into()).await.unwrap());
    assert_eq!(world.engine().tick().await.unwrap(), 0, "the repository is still paused");
    assert!(world.engine().resume(repo, "root".into()).await.unwrap());
    assert!(!world.engine().resume(repo, "root".into()).await.unwrap());
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking);
}

async fn github_calls_of_a_run_are_counted(world: World) {
    let run = world.start_and_settle("walk").await;
    world.signal(answer_by_grace(Verb::Revise, "delivery-2#0")).await;
    world.settle().await;
    let calls = world.view(run).await.calls;
    assert_eq!((calls.calls, calls.writes), (4, 2), "a read and a write at each of two gates");
}

async fn busy_repository_starves_no_other(world: World) {
    for issue in 100..130 {
        world.start_on(IssueNo(issue), "loop", &format!("busy-{issue}")).await;
    }
    let quiet = world.start_in(RepoId(8), IssueNo(1), "walk", "quiet").await;
    let StartDecision::New(quiet) = quiet else { panic!() };
    let mut claims = Vec::new();
    let store = world.store();
    let now = BEGINNING.plus(Duration::from_secs(1));
    while claims.len() < 4 {
        futures_util::future::join_all(store.live_run_scans(now)).await;
        claims.extend(store.claim_run(now, &HashSet::new()).await.unwrap());
    }
    assert!(claims[..2].iter().any(|lease| lease.run.id == quiet), "it is one of the first two");
}

async fn delayed_runs_hold_no_worker(world: World) {
    for issue in 100..140 {
        world.start_on(IssueNo(issue), "later", &format!("later-{issue}")).await;
    }
    world.toys.attempts.store(0, SeqCst);
    world.engine().tick().await.unwrap();
    let held = world.engine().list(RunFilter::default()).await.unwrap();
    assert!(held.iter().all(|view| view.status != RunViewStatus::Running));
    let StartDecision::New(run) = world.start_in(RepoId(8), IssueNo(1), "walk", "other").await else {
        panic!()
    };
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking);
}

/// Advances the clock until the run has this status.
async fn advance_until(world: &World, run: RunId, status: RunViewStatus) {
    for _ in 0..2_000 {
        world.settle().await;
        if world.view(run).await.status == status {
            return;
        }
        world.clock.advance(5 * limits::JOB_POLL_INTERVAL);
        // The job runs on another thread, which may get no processor for a while.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", world.view(run).await);
}

async fn job_holds_no_slot_and_its_result_is_stored(mut world: World) {
    let run = world.start_and_settle("job").await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Waiting);
    for issue in 0..limits::LIVE_STEPS as u64 {
        world.start_on(IssueNo(100 + issue), "walk", &format!("walk-{issue}")).await;
    }
    world.settle().await;
    let all = world.engine().list(RunFilter::default()).await.unwrap();
    let others = all.iter().filter(|view| view.status == RunViewStatus::Asking).count();
    assert_eq!(others, limits::LIVE_STEPS, "{all:?}");
    world.clock.advance(Duration::from_secs(19 * 60));
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Waiting, "the job takes twenty minutes");
    advance_until(&world, run, RunViewStatus::Asking).await;
    world.restart(TOYS);
    world.signal(answer_by_grace(Verb::Revise, "delivery-2#0")).await;
    let read = world.toys.events().into_iter().filter(|event| event == "green").count();
    assert_eq!((world.toys.long.begun.load(SeqCst), read), (1, 1));
    advance_until(&world, run, RunViewStatus::Waiting).await;
    advance_until(&world, run, RunViewStatus::Asking).await;
    assert_eq!(world.toys.long.begun.load(SeqCst), 2, "another visit, another job");
}

async fn cancel_stops_a_job(world: World) {
    let run = world.start_and_settle("job").await;
    while world.toys.long.begun.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    world.cancel("delivery-2#0").await;
    advance_until(&world, run, RunViewStatus::Stopped).await;
    while world.toys.long.stopped.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.toys.long.begun.load(SeqCst), 1);
}

async fn shutdown_stops_a_job_and_the_next_boot_restarts_it(mut world: World) {
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let StartDecision::New(run) = world.start("job", "delivery-1#0").await else { panic!() };
    until(&world, run, RunViewStatus::Waiting).await;
    shutdown.cancel();
    live.await.unwrap();
    assert_eq!(world.toys.long.stopped.load(SeqCst), 1, "the job ends with the server");
    world.restart(TOYS);
    advance_until(&world, run, RunViewStatus::Asking).await;
    assert_eq!(world.toys.long.begun.load(SeqCst), 2);
}

async fn stopping_server_starts_no_effect(mut world: World) {
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let StartDecision::New(run) = world.start("two", "delivery-1#0").await else { panic!() };
    world.toys.entered.notified().await;
    shutdown.cancel();
    // The engine and the step run in parallel, and the engine must notice the shutdown first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    while !live.is_finished() {
        world.toys.leave.notify_one();
        tokio::task::yield_now().await;
    }
    assert_eq!(world.toys.paid.load(SeqCst), 1, "the call in flight was awaited, the next one not begun");
    assert_eq!(world.view(run).await.status, RunViewStatus::Ready);
    world.restart(TOYS);
    world.settle().await;
    assert_eq!(world.toys.paid.load(SeqCst), 102, "the first effect is not repeated");
}

async fn countersignature_needs_stored_rows(world: World) {
    let cases = [
        ("walk", Verb::Approve, "", "APPROVED Approve by grace"),
        ("blocked", Verb::Approve, "", "has the verdict BLOCKED, and nobody waived it"),
        ("other", Verb::Approve, "", "was never reviewed"),
        ("inbred", Verb::Approve, "", "was reviewed by the model family that drafted it"),
        ("unrecorded", Verb::Approve, "", "has 0 of the 1 approvals"),
        ("misbound", Verb::Approve, "", "has 0 of the 1 approvals"),
        ("forged", Verb::Approve, "", "has 0 of the 1 approvals"),
        ("elsewhere", Verb::Approve, "", "has 0 of the 1 approvals"),
        ("waived", Verb::Override, "no load test; accepted by ops", "BLOCKED Override by grace"),
        ("shrugged", Verb::Override, "  ", "has the verdict BLOCKED, and nobody waived it"),
    ];
    for (mode, verb, text, expected) in cases {
        let StartDecision::New(run) = world.start(mode, mode).await else { panic!() };
        world.settle().await;
        let answer = GateAnswer { text: text.into(), ..answer_by_grace(verb, &format!("{mode}-answer")) };
        assert_eq!(world.signal(answer).await.run(), Some(run), "{mode}");
        world.settle().await;
        let proof = world.toys.events().pop().unwrap();
        assert!(proof.ends_with(expected) || proof.contains(expected), "{mode}: {proof}");
    }
}

async fn runs_of_two_issues_advance_in_one_tick(world: World) {
    world.start_on(IssueNo(1), "walk", "a").await;
    world.start_on(IssueNo(2), "walk", "b").await;
    assert_eq!(world.engine().tick().await.unwrap(), 2, "one step of each");
    assert_eq!(world.toys.paid.load(SeqCst), 2);
    world.settle().await;
    assert!(
        matches!(world.signal(answer_by_grace(Verb::Approve, "c")).await, GateAnswerOutcome::NoRun),
        "issue 42 has no run"
    );
}

async fn answer_during_a_step_that_waits_is_handled(world: World) {
    let run = world.start_and_settle("expire").await;
    world.clock.advance(Duration::from_secs(600));
    let (store, now) = (world.store(), world.clock.now());
    let until = now.plus(Duration::from_secs(3600));
    let wait = || Checkpoint::Wait { state: b"{}".to_vec(), until, why: "checks run".into() };
    let lease = store.claim_run(now, &HashSet::new()).await.unwrap().unwrap();
    assert!(lease.run.id == run && lease.run.gate.is_some() && lease.run.answer.is_none());
    world.signal(answer_by_grace(Verb::Approve, "delivery-2#0")).await;
    store.save_step(&lease, wait()).await.unwrap();
    assert_eq!(store.next_due(), Some(now), "an answer arrived meanwhile");
    let lease = store.claim_run(now, &HashSet::new()).await.unwrap().unwrap();
    assert!(lease.run.answer.is_some());
    store.save_step(&lease, wait()).await.unwrap();
    assert_eq!(store.next_due(), Some(until), "the step has seen the answer");
}

#[tokio::test]
async fn repository_error_is_retried_after_a_backoff() {
    let world = World::sqlite();
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    let other = world.checkpoints();
    other.execute("UPDATE boot SET epoch = 99", []).unwrap();
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    while world.toys.attempts.load(SeqCst) == 0 {
        world.view(run).await;
    }
    for _ in 0..200 {
        world.view(run).await;
    }
    assert_eq!(world.toys.attempts.load(SeqCst), 1);
    other.execute("UPDATE boot SET epoch = 0", []).unwrap();
    while world.view(run).await.status != RunViewStatus::Asking {
        world.clock.advance(limits::STEP_BACKOFF);
        tokio::task::yield_now().await;
    }
    shutdown.cancel();
    live.await.unwrap();
}

/// While one database is slow to open, runs of other repositories must continue. The runtime has only one thread, so a
/// blocking wait for the file would stop all other tasks.
#[tokio::test]
async fn database_that_opens_slowly_delays_no_other_repository() {
    let mut world = World::sqlite();
    let StartDecision::New(slow) = world.start("walk", "slow").await else { panic!() };
    let other = world.start_in(RepoId(8), IssueNo(1), "walk", "other").await;
    let StartDecision::New(other) = other else { panic!() };
    world.restart(TOYS);
    let seized = world.lock_exclusively();
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    until(&world, other, RunViewStatus::Asking).await;
    drop(seized);
    // The delayed run continues at once, without a failure.
    until(&world, slow, RunViewStatus::Asking).await;
    shutdown.cancel();
    live.await.unwrap();
}

/// A locked database must not delay runs of other repositories. Both starts run in one task, like in a server, where
/// one task drives the listener, the intake and the engine loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_database_of_one_repository_does_not_delay_other_repositories() {
    let world = World::sqlite();
    let StartDecision::New(_) = world.start("walk", "first").await else { panic!() };
    let held = world.checkpoints();
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let others = async {
        let other = world.start_in(RepoId(8), IssueNo(1), "walk", "other").await;
        assert!(matches!(other, StartDecision::New(_)));
    };
    tokio::select! {
        biased;
        _ = world.start_on(IssueNo(99), "walk", "second") => panic!("its file was locked"),
        () = others => {}
    }
    drop(held);
}

async fn live_loop_runs_and_shuts_down(world: World) {
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let StartDecision::New(run) = world.start("wait", "delivery-1#0").await else { panic!() };
    until(&world, run, RunViewStatus::Waiting).await;
    world.clock.advance(Duration::from_secs(90));
    until(&world, run, RunViewStatus::Asking).await;
    world.signal(answer_by_grace(Verb::Approve, "delivery-2#0")).await;
    until(&world, run, RunViewStatus::Done).await;
    shutdown.cancel();
    live.await.unwrap();
    let StartDecision::New(late) = world.start("walk", "delivery-3#0").await else { panic!() };
    assert_eq!(world.view(late).await.status, RunViewStatus::Ready, "nothing is claimed after shutdown");
}

async fn live_loop_finishes_many_runs(world: World) {
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let issues = || (100..124).map(IssueNo);
    let mut runs = Vec::new();
    for issue in issues() {
        let StartDecision::New(run) = world.start_on(issue, "walk", &format!("start-{issue}")).await else {
            panic!()
        };
        runs.push(run);
    }
    for (issue, run) in issues().zip(&runs) {
        until(&world, *run, RunViewStatus::Asking).await;
        world.signal_on(issue, answer_by_grace(Verb::Approve, &format!("approve-{issue}"))).await;
    }
    for run in &runs {
        until(&world, *run, RunViewStatus::Done).await;
    }
    shutdown.cancel();
    live.await.unwrap();
    assert_eq!(world.toys.paid.load(SeqCst), 24 * 101);
}

async fn live_loop_releases_a_stuck_step_when_parked(mut world: World) {
    *world.toys.stuck.lock().unwrap() = true;
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let StartDecision::New(run) = world.start("half", "delivery-1#0").await else { panic!() };
    world.toys.entered.notified().await;
    shutdown.cancel();
    tokio::task::yield_now().await;
    assert!(!live.is_finished(), "a step in flight is awaited");
    world.engine().park();
    live.await.unwrap();
    assert_eq!(world.view(run).await.status, RunViewStatus::Ready, "the claim is released unchanged");
    *world.toys.stuck.lock().unwrap() = false;
    world.restart(TOYS);
    world.settle().await;
    assert_eq!(world.toys.paid.load(SeqCst), 101);
}

/// Waits, in real time, until the live loop has brought the run to this status.
async fn until(world: &World, run: RunId, status: RunViewStatus) {
    let reached = async {
        while world.view(run).await.status != status {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), reached).await.expect("the live loop gets there");
}

/// Adds a method that returns the run by which an answer was accepted.
trait AcceptedBy {
    fn run(&self) -> Option<RunId>;
}

impl AcceptedBy for GateAnswerOutcome {
    fn run(&self) -> Option<RunId> {
        match self {
            Self::Accepted(run) => Some(*run),
            _ => None,
        }
    }
}
