//! The contract of the engine, the same in files and in Postgres.

mod interleavings;
mod several;
mod trouble;
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
use world::{BEGINNING, REPO, TOYS, Toys, World, person, says, subject};

macro_rules! contract {
    ($($name:ident)*) => {
        mod sqlite {
            // As in a server, where a step commits on its own thread.
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
    a_cause_starts_one_run
    an_issue_has_one_live_run_of_a_workflow
    a_run_walks_its_graph_to_the_end
    a_revision_goes_round_again_and_pays_again
    a_broken_step_is_retried_then_buried
    a_run_that_cannot_say_why_it_ended_ends_all_the_same
    telling_people_is_retried
    what_a_person_can_mend_ends_the_run_in_its_words
    an_effect_outlives_a_crash_and_is_not_repeated
    an_error_is_never_read_back
    what_was_booked_is_kept_though_its_step_failed
    later_keeps_nothing_of_the_state
    waiting_keeps_state_and_visit
    waiting_on_for_the_same_writes_nothing
    keys_are_unique_nesting_is_refused_and_values_are_small
    an_edge_outside_the_graph_is_refused
    a_loop_without_people_ends
    every_word_of_a_person_gives_new_moves
    asking_again_refuses_the_answer
    an_answer_to_another_subject_is_late
    answers_are_matched_to_their_gate
    a_gate_that_expires_wakes_its_step
    an_answer_is_heard_although_its_step_goes_to_wait
    a_cancel_reaches_a_step_in_flight
    a_cancel_reaches_a_run_that_waits
    what_was_done_when_it_was_to_end_ends_as_done
    what_follows_begins_with_the_end_and_not_after_a_stop
    a_run_nobody_can_read_is_parked
    an_older_shape_is_brought_up_to_date
    a_run_that_failed_is_tried_again_by_hand
    a_run_that_waits_is_let_go_by_hand
    a_paused_server_begins_no_step
    what_a_step_asks_of_github_is_counted
    a_busy_repository_starves_nobody
    waiting_holds_no_worker
    a_server_that_stops_begins_no_effect
    a_job_keeps_no_slot_and_what_it_came_to_is_kept
    a_stop_ends_a_job
    a_shutdown_ends_a_job_and_the_next_boot_begins_it_anew
    only_stored_rows_countersign
    issues_go_on_side_by_side
    the_live_loop_runs_and_stops
    the_live_loop_forgets_nobody
    the_live_loop_gives_up_what_is_stuck
}

async fn a_cause_starts_one_run(world: World) {
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    let StartDecision::Duplicate(same) = world.start("walk", "delivery-1#0").await else { panic!() };
    assert_eq!(run, same);
    world.settle().await;
    assert_eq!(world.signal(says(Verb::Approve, "delivery-2#0")).await.run(), Some(run));
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Done);
    // Still the same cause when the run has long ended.
    assert!(
        matches!(world.start("walk", "delivery-1#0").await, StartDecision::Duplicate(same) if same == run)
    );
}

async fn an_issue_has_one_live_run_of_a_workflow(world: World) {
    let run = world.started("walk").await;
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

async fn a_run_walks_its_graph_to_the_end(world: World) {
    let run = world.started("walk").await;
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

    world.signal(says(Verb::Approve, "delivery-2#0")).await;
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit, view.gate), (RunViewStatus::Done, 4, None));
    assert_eq!(view.outcome.unwrap().summary, "published");
    assert_eq!(world.toys.seen(), ["asked", "approve by grace", "APPROVED Approve by grace"]);
    assert!(world.live().await.is_empty());
}

async fn a_revision_goes_round_again_and_pays_again(world: World) {
    let run = world.started("walk").await;
    world.signal(says(Verb::Revise, "delivery-2#0")).await;
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Asking, 6));
    // Two drafts at 1 and two gates at 100: a new visit of the same step has a new journal.
    assert_eq!(world.toys.paid.load(SeqCst), 202);
    assert_eq!(view.gate.unwrap().answers, 0, "the second gate is another gate");
}

async fn a_broken_step_is_retried_then_buried(world: World) {
    let run = world.started("panic").await;
    let view = world.view(run).await;
    assert_eq!((view.status, world.toys.attempts.load(SeqCst)), (RunViewStatus::Ready, 1));
    let wait = view.due.unwrap().since(BEGINNING);
    assert!((limits::STEP_BACKOFF..=limits::STEP_BACKOFF * 5 / 4).contains(&wait), "{wait:?}");
    world.settle_in_time().await;
    assert_eq!(world.toys.attempts.load(SeqCst), limits::STEP_ATTEMPTS);
    let view = world.view(run).await;
    assert_eq!(view.status, RunViewStatus::Failed);
    assert!(!view.why.unwrap().contains("toy broke"), "the detail stays on the server");
    let told = world.toys.told.lock().unwrap().clone();
    let [RunHalt::Bug { attempts, error }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((*attempts, error.as_str()), (limits::STEP_ATTEMPTS, "panicked: the toy broke"));
}

async fn a_run_that_cannot_say_why_it_ended_ends_all_the_same(world: World) {
    let run = world.started("mute").await;
    world.settle_in_time().await;
    let view = world.view(run).await;
    assert_eq!(view.status, RunViewStatus::Failed);
    assert!(view.why.unwrap().contains("nobody could be told"));
    assert!(world.toys.told.lock().unwrap().is_empty());
}

async fn telling_people_is_retried(world: World) {
    world.toys.mute.store(7, SeqCst);
    let run = world.started("user").await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Halting);
    world.settle_in_time().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Failed);
    assert_eq!(
        world.toys.told.lock().unwrap().len(),
        1,
        "`Later` is patient: 7 is more than the attempts of a bug"
    );
}

async fn what_a_person_can_mend_ends_the_run_in_its_words(world: World) {
    let run = world.started("user").await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Failed, 2));
    assert_eq!(view.why.unwrap(), "the issue is empty: write what you want");
    assert_eq!(world.toys.attempts.load(SeqCst), 1);
}

async fn an_effect_outlives_a_crash_and_is_not_repeated(mut world: World) {
    *world.toys.stuck.lock().unwrap() = true;
    let StartDecision::New(run) = world.start("half", "delivery-1#0").await else { panic!() };
    world.tick_until_stuck().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Running);
    assert_eq!(world.engine().tick().await.unwrap(), 0, "it is held");

    *world.toys.stuck.lock().unwrap() = false;
    world.restart(TOYS);
    world.clock.advance(Duration::from_secs(1));
    world.settle().await;
    let seen = world.toys.seen();
    assert_eq!((seen[1].as_str(), seen[3].as_str()), ("interrupted false", "interrupted true"));
    assert_eq!(seen[0], seen[2], "nonce and time are what they were");
    assert_eq!(world.toys.paid.load(SeqCst), 101, "one draft, one gate");
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking);
}

async fn an_error_is_never_read_back(world: World) {
    world.started("refuse").await;
    world.settle_in_time().await;
    assert_eq!(world.toys.seen()[..3], ["interrupted false", "interrupted true", "value 2"]);
}

async fn what_was_booked_is_kept_though_its_step_failed(world: World) {
    world.started("bill").await;
    world.settle_in_time().await;
    assert_eq!(world.toys.seen()[..3], ["booked None", "booked Some(1)", "1 row"]);
}

async fn later_keeps_nothing_of_the_state(world: World) {
    let run = world.started("later").await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.why.as_deref()), (RunViewStatus::Ready, Some("rate limit")));
    world.clock.advance(Duration::from_secs(29));
    assert_eq!(world.engine().tick().await.unwrap(), 0);
    assert_eq!(world.engine().next_due().await.unwrap(), Some(BEGINNING.plus(Duration::from_secs(30))));
    world.clock.advance(Duration::from_secs(1));
    world.settle().await;
    assert_eq!(world.toys.seen()[0], "draft 1", "the first attempt's count is gone");
}

async fn waiting_keeps_state_and_visit(world: World) {
    let run = world.started("wait").await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Waiting);
    world.clock.advance(Duration::from_secs(90));
    world.settle().await;
    assert_eq!(world.toys.seen()[0], "draft 2 visit 1");
    assert_eq!(world.toys.paid.load(SeqCst), 101, "what the visit paid for before the wait is read back");
}

async fn waiting_on_for_the_same_writes_nothing(world: World) {
    let run = world.started("idle").await;
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
    assert_eq!(world.view(run).await.status, RunViewStatus::Stopped, "it is as easily stopped as any");
}

async fn keys_are_unique_nesting_is_refused_and_values_are_small(world: World) {
    for (issue, mode, says) in
        [(1, "twice", "twice"), (2, "nested", "inside or beside"), (3, "big", "70002 bytes")]
    {
        let StartDecision::New(_) = world.start_on(IssueNo(issue), mode, &format!("{mode}#0")).await else {
            panic!()
        };
        world.settle_in_time().await;
        let told = world.toys.told.lock().unwrap().pop().unwrap();
        assert!(matches!(&told, RunHalt::Bug { error, .. } if error.contains(says)), "{told:?}");
    }
}

async fn an_edge_outside_the_graph_is_refused(world: World) {
    let run = world.started("stray").await;
    world.settle_in_time().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.step_id.as_str()), (RunViewStatus::Failed, "N1"));
    let told = world.toys.told.lock().unwrap().clone();
    assert!(
        matches!(&told[..], [RunHalt::Bug { error, .. }] if error.contains("no edge Draft -> Publish")),
        "{told:?}"
    );
}

async fn a_loop_without_people_ends(world: World) {
    let run = world.started("loop").await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Failed);
    // Two rounds and one straight walk, of at most all four steps each.
    let told = world.toys.told.lock().unwrap().clone();
    assert_eq!(told, [RunHalt::Limit { moves: 2 * 4 + 4 }]);
}

async fn every_word_of_a_person_gives_new_moves(world: World) {
    let run = world.started("walk").await;
    for round in 0..8 {
        world.signal(says(Verb::Revise, &format!("round-{round}"))).await;
        world.settle().await;
    }
    let view = world.view(run).await;
    assert_eq!(
        (view.status, view.visit),
        (RunViewStatus::Asking, 3 + 8 * 3),
        "far more moves than the limit of 10"
    );
}

async fn an_answer_to_another_subject_is_late(world: World) {
    let run = world.started("shift").await;
    let unclear = GateAnswer { text: "unclear".into(), ..says(Verb::Revise, "delivery-2#0") };
    world.signal(unclear).await;
    assert_eq!(
        world.signal(says(Verb::Approve, "delivery-3#0")).await.run(),
        Some(run),
        "accepted for what is shown"
    );
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!(
        (view.status, view.gate.map(|gate| gate.spec.subject == subject())),
        (RunViewStatus::Asking, Some(false))
    );
    assert_eq!(world.toys.seen(), ["asked", "revise by grace"], "the approval was of something else");
    assert_eq!(world.engine().tick().await.unwrap(), 0);
}

async fn asking_again_refuses_the_answer(world: World) {
    let run = world.started("walk").await;
    let unclear = GateAnswer { text: "unclear".into(), ..says(Verb::Revise, "delivery-2#0") };
    assert_eq!(world.signal(unclear.clone()).await.run(), Some(run));
    // A second answer comes before the first was dealt with: it waits its turn.
    let more = GateAnswer { cause: Cause("delivery-2#1".into()), by: person("lin", 1003), ..unclear };
    assert_eq!(world.signal(more).await.run(), Some(run));
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Asking, 3));
    let gate = view.gate.unwrap();
    assert_eq!(gate.answers, 2);
    assert_eq!(world.toys.seen(), ["asked", "revise by grace", "revise by lin"]);
    assert_eq!(world.engine().tick().await.unwrap(), 0, "nobody waits any more");

    world.signal(says(Verb::Approve, "delivery-3#0")).await;
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Done);
    assert_eq!(world.toys.paid.load(SeqCst), 101, "the gate was shown once");
}

async fn answers_are_matched_to_their_gate(world: World) {
    let approve = || says(Verb::Approve, "delivery-2#0");
    assert!(matches!(world.signal(approve()).await, GateAnswerOutcome::NoRun));
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    assert!(matches!(world.signal(approve()).await, GateAnswerOutcome::NoGate(runs) if runs[0].id == run));
    world.settle().await;

    assert!(matches!(world.signal(says(Verb::Dismiss, "d#1")).await, GateAnswerOutcome::NoGate(_)));
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
    let writer = GateAnswer { role: Role::Write, ..says(Verb::Override, "d#2") };
    assert!(matches!(
        world.signal(writer).await,
        GateAnswerOutcome::NotAllowed { needs: AllowedResponders::Role(Role::Maintain), .. }
    ));
    assert!(matches!(world.signal_late(approve()).await, GateAnswerOutcome::Late));
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking, "none of these moved it");

    // The comment that asks may not be what was read, from the moment that somebody changed it.
    world.touches(run).await;
    for _ in 0..2 {
        assert!(
            matches!(world.signal(approve()).await, GateAnswerOutcome::TooSoon(gate) if gate.comment_edit.is_some())
        );
        world.settle().await;
    }

    // With the hash, even at once; upper case and the stage's case are the writer's business.
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

async fn a_gate_that_expires_wakes_its_step(world: World) {
    let run = world.started("expire").await;
    assert_eq!(world.view(run).await.due, Some(BEGINNING.plus(Duration::from_secs(600))));
    world.settle_in_time().await;
    assert_eq!(world.toys.seen(), ["asked", "asked"], "once more, without an answer, and then people only");
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking);
}

async fn a_cancel_reaches_a_step_in_flight(world: World) {
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
        matches!(&world.toys.told.lock().unwrap()[..], [RunHalt::Stopped { by, .. }] if by.login == "ada")
    );
}

async fn a_cancel_reaches_a_run_that_waits(world: World) {
    let run = world.started("walk").await;
    assert_eq!(world.cancel("delivery-2#0").await, [run]);
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.gate), (RunViewStatus::Stopped, None));
    assert!(matches!(world.signal(says(Verb::Approve, "delivery-3#0")).await, GateAnswerOutcome::NoRun));
    assert!(world.cancel("delivery-4#0").await.is_empty(), "nothing left to stop");
}

async fn what_was_done_when_it_was_to_end_ends_as_done(world: World) {
    let run = world.started("there").await;
    world.cancel("delivery-2#0").await;
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.gate), (RunViewStatus::Done, None));
    assert_eq!(view.outcome.unwrap().summary, "published before");
}

async fn what_follows_begins_with_the_end_and_not_after_a_stop(world: World) {
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
        // Not the next turn of this loop.
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

/// The toy after a rewrite that forgot about its old runs.
struct Rewritten;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Only {
    Think,
}

impl WorkflowStep for Only {
    fn info(self) -> StepInfo {
        StepInfo { id: "N1", title: "Think", kind: StepKind::Work }
    }
}

impl Workflow<Toys> for Rewritten {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 4;
    type Step = Only;
    type State = ();
    const GRAPH: &'static [(Only, &'static [Only])] = &[(Only::Think, &[])];
    const COMMANDS: &'static [CommandSpec] = &[];
    fn max_iterations() -> u32 {
        1
    }
    fn start(&self, _trigger: &RunTrigger) {}
    async fn run(
        &self,
        _at: Only,
        _state: &mut (),
        _cx: &AttemptContext<Toys>,
    ) -> Result<Transition<Only>, StepError> {
        Err(StepError::User("never".into()))
    }
    async fn report_halt(
        &self,
        _at: Only,
        _state: &(),
        _halt: &RunHalt,
        _cx: &AttemptContext<Toys>,
    ) -> Result<Option<RunCompletion>, StepError> {
        Ok(None)
    }
}

static REWRITTEN: &[&dyn AnyWorkflow<Toys>] = &[&Rewritten];

async fn a_run_nobody_can_read_is_parked(mut world: World) {
    let run = world.started("walk").await;
    world.signal(says(Verb::Revise, "delivery-2#0")).await;
    world.restart(REWRITTEN);
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Parked, 3));
    let why = view.why.unwrap();
    assert!(why.contains("toy version 3") && why.contains("/stop"), "{why}");

    // The version that can read it goes on from there, with the answer.
    world.restart(TOYS);
    world.settle().await;
    assert_eq!(world.view(run).await.visit, 6);

    // And one that cannot may at least end it.
    world.signal(says(Verb::Revise, "delivery-3#0")).await;
    world.restart(&[]);
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Parked);
    world.cancel("delivery-4#0").await;
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Stopped);
}

/// The toy whose first step has another name now, and brings the old one along.
struct Renamed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Now {
    Write,
}

impl WorkflowStep for Now {
    fn info(self) -> StepInfo {
        StepInfo { id: "N1", title: "Write", kind: StepKind::Work }
    }
}

impl Workflow<Toys> for Renamed {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 5;
    type Step = Now;
    type State = Vec<String>;
    const GRAPH: &'static [(Now, &'static [Now])] = &[(Now::Write, &[])];
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
        _at: Now,
        state: &mut Vec<String>,
        _cx: &AttemptContext<Toys>,
    ) -> Result<Transition<Now>, StepError> {
        Err(StepError::User(state.join(", ")))
    }
    async fn report_halt(
        &self,
        _: Now,
        _: &Vec<String>,
        _: &RunHalt,
        _: &AttemptContext<Toys>,
    ) -> Result<Option<RunCompletion>, StepError> {
        Ok(None)
    }
}

static RENAMED: &[&dyn AnyWorkflow<Toys>] = &[&Renamed];

async fn an_older_shape_is_brought_up_to_date(mut world: World) {
    let StartDecision::New(run) = world.start("walk", "delivery-1#0").await else { panic!() };
    world.restart(RENAMED);
    world.settle().await;
    let view = world.view(run).await;
    assert_eq!((view.status, view.why.as_deref()), (RunViewStatus::Failed, Some("from version 3")));
}

async fn a_run_that_waits_is_let_go_by_hand(world: World) {
    let run = world.started("wait").await;
    let before = world.view(run).await;
    assert_eq!(before.status, RunViewStatus::Waiting);
    let retry = RetryRunRequest { run, cause: Cause("r1".into()), by: "root".into() };
    assert!(matches!(world.engine().retry(retry.clone()).await.unwrap(), RetryDecision::Resumed));
    assert!(matches!(world.engine().retry(retry).await.unwrap(), RetryDecision::Duplicate));
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit), (RunViewStatus::Ready, before.visit + 1));
    world.settle().await;
    assert_ne!(world.view(run).await.status, RunViewStatus::Waiting, "it goes on before its time");
    assert_eq!(world.toys.paid.load(SeqCst), 102, "on a visit of its own, with a journal of its own");
}

async fn a_run_that_failed_is_tried_again_by_hand(mut world: World) {
    let run = world.started("user").await;
    let retry = |cause: &str| RetryRunRequest { run, cause: Cause(cause.into()), by: "root".into() };
    let retried = world.engine().retry(retry("r1")).await.unwrap();
    assert!(matches!(retried, RetryDecision::Resumed), "{retried:?}");
    assert!(matches!(world.engine().retry(retry("r1")).await.unwrap(), RetryDecision::Duplicate));
    let view = world.view(run).await;
    assert_eq!((view.status, view.visit, view.step_id.as_str()), (RunViewStatus::Ready, 3, "N1"));
    assert!(matches!(world.engine().retry(retry("r2")).await.unwrap(), RetryDecision::NotFailed(_)));
    world.settle().await;
    assert_eq!((world.view(run).await.status, world.toys.attempts.load(SeqCst)), (RunViewStatus::Failed, 2));
    assert_eq!(world.toys.told.lock().unwrap().len(), 2, "people are told again");

    let StartDecision::New(other) = world.start("walk", "delivery-2#0").await else { panic!() };
    let refused = world.engine().retry(retry("r3")).await.unwrap();
    assert!(matches!(refused, RetryDecision::OtherRunLive(view) if view.id == other));
    let nobody = RunId { seq: 99, ..run };
    let unknown = RetryRunRequest { run: nobody, ..retry("r4") };
    assert!(matches!(world.engine().retry(unknown).await.unwrap(), RetryDecision::NoRun));

    // One that is parked is read once more.
    world.restart(REWRITTEN);
    world.settle().await;
    assert_eq!(world.view(other).await.status, RunViewStatus::Parked);
    let again = RetryRunRequest { run: other, ..retry("r5") };
    assert!(matches!(world.engine().retry(again).await.unwrap(), RetryDecision::Resumed));
    assert_eq!(world.engine().tick().await.unwrap(), 1);
}

async fn a_paused_server_begins_no_step(mut world: World) {
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
    assert_eq!(world.engine().tick().await.unwrap(), 0, "the repository still is");
    assert!(world.engine().resume(repo, "root".into()).await.unwrap());
    assert!(!world.engine().resume(repo, "root".into()).await.unwrap());
    world.settle().await;
    assert_eq!(world.view(run).await.status, RunViewStatus::Asking);
}

async fn what_a_step_asks_of_github_is_counted(world: World) {
    let run = world.started("walk").await;
    world.signal(says(Verb::Revise, "delivery-2#0")).await;
    world.settle().await;
    let calls = world.view(run).await.calls;
    assert_eq!((calls.calls, calls.writes), (4, 2), "a read and a write at each of two gates");
}

async fn a_busy_repository_starves_nobody(world: World) {
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

async fn waiting_holds_no_worker(world: World) {
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

/// Lets time go on until the run stands like that.
async fn in_time(world: &World, run: RunId, status: RunViewStatus) {
    for _ in 0..2_000 {
        world.settle().await;
        if world.view(run).await.status == status {
            return;
        }
        world.clock.advance(5 * limits::JOB_POLL_INTERVAL);
        // Its job is on another thread, which may have no processor for a while.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", world.view(run).await);
}

async fn a_job_keeps_no_slot_and_what_it_came_to_is_kept(mut world: World) {
    let run = world.started("job").await;
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
    assert_eq!(world.view(run).await.status, RunViewStatus::Waiting, "it takes twenty minutes");
    in_time(&world, run, RunViewStatus::Asking).await;
    world.restart(TOYS);
    world.signal(says(Verb::Revise, "delivery-2#0")).await;
    let read = world.toys.seen().into_iter().filter(|seen| seen == "green").count();
    assert_eq!((world.toys.long.begun.load(SeqCst), read), (1, 1));
    in_time(&world, run, RunViewStatus::Waiting).await;
    in_time(&world, run, RunViewStatus::Asking).await;
    assert_eq!(world.toys.long.begun.load(SeqCst), 2, "another visit, another job");
}

async fn a_stop_ends_a_job(world: World) {
    let run = world.started("job").await;
    while world.toys.long.begun.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    world.cancel("delivery-2#0").await;
    in_time(&world, run, RunViewStatus::Stopped).await;
    while world.toys.long.stopped.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.toys.long.begun.load(SeqCst), 1);
}

async fn a_shutdown_ends_a_job_and_the_next_boot_begins_it_anew(mut world: World) {
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let StartDecision::New(run) = world.start("job", "delivery-1#0").await else { panic!() };
    until(&world, run, RunViewStatus::Waiting).await;
    shutdown.cancel();
    live.await.unwrap();
    assert_eq!(world.toys.long.stopped.load(SeqCst), 1, "it has ended when the server has");
    world.restart(TOYS);
    in_time(&world, run, RunViewStatus::Asking).await;
    assert_eq!(world.toys.long.begun.load(SeqCst), 2);
}

async fn a_server_that_stops_begins_no_effect(mut world: World) {
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let StartDecision::New(run) = world.start("two", "delivery-1#0").await else { panic!() };
    world.toys.entered.notified().await;
    shutdown.cancel();
    // The engine's task and the step's go on side by side, and the engine's is to hear of it first.
    tokio::time::sleep(Duration::from_secs(1)).await;
    while !live.is_finished() {
        world.toys.leave.notify_one();
        tokio::task::yield_now().await;
    }
    assert_eq!(world.toys.paid.load(SeqCst), 1, "the call in flight was awaited, the next one not begun");
    assert_eq!(world.view(run).await.status, RunViewStatus::Ready);
    world.restart(TOYS);
    world.settle().await;
    assert_eq!(world.toys.paid.load(SeqCst), 102, "and the first is not paid again");
}

async fn only_stored_rows_countersign(world: World) {
    let cases = [
        ("walk", Verb::Approve, "", "APPROVED Approve by grace"),
        ("blocked", Verb::Approve, "", "has the verdict BLOCKED, and nobody waived it"),
        ("other", Verb::Approve, "", "was never reviewed"),
        ("inbred", Verb::Approve, "", "was reviewed by the family that drafted it"),
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
        let answer = GateAnswer { text: text.into(), ..says(verb, &format!("{mode}-answer")) };
        assert_eq!(world.signal(answer).await.run(), Some(run), "{mode}");
        world.settle().await;
        let proof = world.toys.seen().pop().unwrap();
        assert!(proof.ends_with(expected) || proof.contains(expected), "{mode}: {proof}");
    }
}

async fn issues_go_on_side_by_side(world: World) {
    world.start_on(IssueNo(1), "walk", "a").await;
    world.start_on(IssueNo(2), "walk", "b").await;
    assert_eq!(world.engine().tick().await.unwrap(), 2, "one step of each");
    assert_eq!(world.toys.paid.load(SeqCst), 2);
    world.settle().await;
    assert!(
        matches!(world.signal(says(Verb::Approve, "c")).await, GateAnswerOutcome::NoRun),
        "issue 42 has none"
    );
}

async fn an_answer_is_heard_although_its_step_goes_to_wait(world: World) {
    let run = world.started("expire").await;
    world.clock.advance(Duration::from_secs(600));
    let (store, now) = (world.store(), world.clock.now());
    let until = now.plus(Duration::from_secs(3600));
    let wait = || Checkpoint::Wait { state: b"{}".to_vec(), until, why: "checks run".into() };
    let lease = store.claim_run(now, &HashSet::new()).await.unwrap().unwrap();
    assert!(lease.run.id == run && lease.run.gate.is_some() && lease.run.answer.is_none());
    world.signal(says(Verb::Approve, "delivery-2#0")).await;
    store.save_step(&lease, wait()).await.unwrap();
    assert_eq!(store.next_due(), Some(now), "somebody spoke meanwhile");
    let lease = store.claim_run(now, &HashSet::new()).await.unwrap().unwrap();
    assert!(lease.run.answer.is_some());
    store.save_step(&lease, wait()).await.unwrap();
    assert_eq!(store.next_due(), Some(until), "this time it knew of the answer");
}

#[tokio::test]
async fn a_repository_that_refuses_us_is_not_asked_again_at_once() {
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

/// On one thread, where whoever waits for a file as threads do keeps all others waiting.
#[tokio::test]
async fn a_repository_whose_file_is_slow_to_open_keeps_no_other_waiting() {
    let mut world = World::sqlite();
    let StartDecision::New(slow) = world.start("walk", "slow").await else { panic!() };
    let other = world.start_in(RepoId(8), IssueNo(1), "walk", "other").await;
    let StartDecision::New(other) = other else { panic!() };
    world.restart(TOYS);
    let seized = world.seize();
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    until(&world, other, RunViewStatus::Asking).await;
    drop(seized);
    // What had to wait is done as soon as it can be, and not after a failure.
    until(&world, slow, RunViewStatus::Asking).await;
    shutdown.cancel();
    live.await.unwrap();
}

/// As in a server: its one task drives the door, the intake and the engine's loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_whose_file_is_locked_keeps_nobody_else_waiting() {
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

async fn the_live_loop_runs_and_stops(world: World) {
    let shutdown = CancellationToken::new();
    let live = tokio::spawn({
        let (engine, shutdown) = (world.engine().clone(), shutdown.clone());
        async move { engine.run(shutdown).await }
    });
    let StartDecision::New(run) = world.start("wait", "delivery-1#0").await else { panic!() };
    until(&world, run, RunViewStatus::Waiting).await;
    world.clock.advance(Duration::from_secs(90));
    until(&world, run, RunViewStatus::Asking).await;
    world.signal(says(Verb::Approve, "delivery-2#0")).await;
    until(&world, run, RunViewStatus::Done).await;
    shutdown.cancel();
    live.await.unwrap();
    let StartDecision::New(late) = world.start("walk", "delivery-3#0").await else { panic!() };
    assert_eq!(world.view(late).await.status, RunViewStatus::Ready, "nothing is claimed after shutdown");
}

async fn the_live_loop_forgets_nobody(world: World) {
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
        world.signal_on(issue, says(Verb::Approve, &format!("approve-{issue}"))).await;
    }
    for run in &runs {
        until(&world, *run, RunViewStatus::Done).await;
    }
    shutdown.cancel();
    live.await.unwrap();
    assert_eq!(world.toys.paid.load(SeqCst), 24 * 101);
}

async fn the_live_loop_gives_up_what_is_stuck(mut world: World) {
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
    assert_eq!(world.view(run).await.status, RunViewStatus::Ready, "given back as it was taken");
    *world.toys.stuck.lock().unwrap() = false;
    world.restart(TOYS);
    world.settle().await;
    assert_eq!(world.toys.paid.load(SeqCst), 101);
}

/// Waits, in real time, for what the live loop does.
async fn until(world: &World, run: RunId, status: RunViewStatus) {
    let reached = async {
        while world.view(run).await.status != status {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), reached).await.expect("the live loop gets there");
}

/// The run an answer was taken by.
trait TakenBy {
    fn run(&self) -> Option<RunId>;
}

impl TakenBy for GateAnswerOutcome {
    fn run(&self) -> Option<RunId> {
        match self {
            Self::Accepted(run) => Some(*run),
            _ => None,
        }
    }
}
