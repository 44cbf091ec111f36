//! `implement`: from an approved spec to a pull request with tests and code.
//!
//! The tests come first. They must fail in the sandbox without the code; then they are locked. The code comes next and
//! is redrafted until the tests pass. Tests and code form one document, the change. The change is reviewed and approved
//! as a whole and pushed only after that, so nothing executable leaves the server before a person has seen it. Until
//! the pull request is merged, CI results and people's comments send the change back to the drafter.
//! [`ImplementWorkflow::GRAPH`] lists all transitions.

mod adversarial;
mod change_document;
mod exceptions;
mod mutation_check;
mod project_checks;
mod replay;
mod test_jobs;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use self::{
    change_document::{ChangeDocument, LOCKED_HEADING, LOCKED_TESTS, SPEC},
    exceptions::{ReopenedTests, TestUnlock},
    test_jobs::{run_test_job, wait_for_tests},
};
use crate::{
    codebase::mutation_units,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowDefaults},
    documents::{
        DocumentMistake, MistakeSeverity,
        change::{self, ChangeSection},
    },
    engine::{
        LesserProof, RunCompletion, RunHalt, RunTrigger, StepError, StepInfo, StepKind, Transition, Workflow,
        WorkflowStep,
    },
    rounds::{StepContext, StepServices, load_text, require_state},
    runners::{
        can_measure,
        change_verification::{ChangeVerifier, GREEN_RUNS, RepositoryCheckKind},
        red_green,
    },
    stage::{self, BackgroundText, StageCall, StageDocument as _, StageState, StepResult, StepVisit},
    types::{Hash, Role},
};

/// The `implement` workflow.
pub struct ImplementWorkflow;

/// Names and defaults of the workflow's settings.
pub(super) const TABLE: WorkflowDefaults = WorkflowDefaults {
    makes_code: true,
    looks: true,
    ..WorkflowDefaults::for_document(ImplementWorkflow::NAME, "docs/reports/IMPLEMENT-{issue}.md")
};

/// The steps of `implement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ImplementStep {
    Load,
    Base,
    Tests,
    CheckTests,
    Red,
    ReviewTests,
    Code,
    CheckCode,
    Lint,
    Green,
    EndToEnd,
    Attack,
    TryAttack,
    Review,
    Bite,
    Gate,
    Push,
    Watch,
    Leave,
    Budget,
}

impl WorkflowStep for ImplementStep {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the spec", StepKind::Work),
            Self::Base => ("N0.5", "Run the existing tests", StepKind::Work),
            Self::Tests => ("N2", "Write the tests", StepKind::Draft),
            Self::CheckTests => ("N2.5", "Check the tests", StepKind::Work),
            Self::Red => ("N3", "Check that the tests fail", StepKind::Work),
            Self::ReviewTests => ("N3b", "Review the tests", StepKind::Review),
            Self::Code => ("N4", "Write the code", StepKind::Draft),
            Self::CheckCode => ("N4b", "Check the code", StepKind::Work),
            Self::Lint => ("N4c", "Run the formatter and linter", StepKind::Work),
            Self::Green => ("N5", "Check that the tests pass", StepKind::Work),
            Self::Review => ("N5b", "Adversarial review", StepKind::Review),
            Self::EndToEnd => ("N6", "Run the end-to-end check", StepKind::Work),
            // A draft step: its tests must pass review and gate like the drafter's text.
            Self::Attack => ("N7.5", "Write adversarial tests", StepKind::Draft),
            Self::TryAttack => ("N7.5b", "Run adversarial tests", StepKind::Work),
            Self::Bite => ("N7.5c", "Mutation check", StepKind::Work),
            Self::Gate => ("N7", "Code gate", StepKind::Gate),
            Self::Push => ("N7b", "Push", StepKind::Publish),
            Self::Watch => ("N9", "Wait for the merge", StepKind::Watch),
            Self::Leave => ("NL", "Wait for permission", StepKind::Pause),
            Self::Budget => ("NM", "Wait for budget", StepKind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

/// State of an `implement` run between two steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ImplementRunState {
    stage: StageState,
    /// Version of the change whose tests were seen to fail. The tests of that version are locked: they cannot change
    /// any more.
    locked: Option<Hash>,
    /// Version with the tests by which the drafter of the code replaced the locked tests.
    #[serde(default)]
    others: Option<Hash>,
    /// The pending replacement of the locked tests. Set only while the replacement tests are being proven.
    #[serde(default)]
    unlocked: Option<TestUnlock>,
    /// Set from `/revise tests` until other tests are locked.
    #[serde(default)]
    reopened: Option<ReopenedTests>,
    /// Test run on the base commit, before any change. All test runs of the workflow use that commit.
    before: Option<Hash>,
    /// Red proofs: pairs of a version of the change and the proof that its tests fail without the code.
    reds: Vec<(Hash, Hash)>,
    /// Number of reviews that have sent the tests back.
    objections: u32,
    /// Green proofs: pairs of a version and the proof that its tests pass. All proofs are kept, because an earlier
    /// version may become the current one again.
    greens: Vec<(Hash, Hash)>,
    /// Version that passed its tests, and the coverage measured for that version.
    #[serde(default)]
    covered: Option<(Hash, Hash)>,
    /// Results of the repository's own checks on the base commit. `complaints` records, by version and check, whether
    /// the check complained. `told` counts how often complaints sent a draft back.
    #[serde(default)]
    lines: Option<Hash>,
    #[serde(default)]
    complaints: Vec<(Hash, RepositoryCheckKind, bool)>,
    #[serde(default)]
    told: u32,
    /// Adversarial tests and their results. `attacked` is the version with which the adversarial tests last ran.
    #[serde(default)]
    adversary: Option<Hash>,
    #[serde(default)]
    attacked: Option<Hash>,
    /// The locked version before adversarial tests were added to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    own_tests: Option<Hash>,
    /// Version that includes the most recently added adversarial tests, and the green proof of that version.
    #[serde(default)]
    joined: Option<(Hash, Hash)>,
    /// Version on which the mutation check ran, and the result of the check.
    bite: Option<(Hash, Hash)>,
    /// Version that was tested on a newer base commit, and the result of that test.
    #[serde(default)]
    replayed: Option<(Hash, Hash)>,
    /// Files pushed by this run and by earlier runs of the issue. If a later version does not change one of these
    /// files, the push restores that file.
    #[serde(default)]
    pushed: BTreeSet<String>,
}

impl Workflow<StepServices> for ImplementWorkflow {
    const NAME: &'static str = "implement";
    const VERSION: u32 = 1;
    type Step = ImplementStep;
    type State = ImplementRunState;

    const GRAPH: &'static [(ImplementStep, &'static [ImplementStep])] = &[
        (ImplementStep::Load, &[ImplementStep::Base]),
        (ImplementStep::Base, &[ImplementStep::Tests, ImplementStep::Code]),
        (
            ImplementStep::Tests,
            &[
                ImplementStep::CheckTests,
                ImplementStep::Tests,
                ImplementStep::ReviewTests,
                ImplementStep::Budget,
            ],
        ),
        (ImplementStep::CheckTests, &[ImplementStep::Red, ImplementStep::Tests, ImplementStep::Leave]),
        (ImplementStep::Red, &[ImplementStep::ReviewTests, ImplementStep::Tests]),
        (
            ImplementStep::ReviewTests,
            &[
                ImplementStep::Code,
                ImplementStep::CheckCode,
                ImplementStep::Tests,
                ImplementStep::ReviewTests,
                ImplementStep::Leave,
                ImplementStep::Budget,
            ],
        ),
        (
            ImplementStep::Code,
            &[
                ImplementStep::CheckCode,
                ImplementStep::Code,
                ImplementStep::Review,
                ImplementStep::Watch,
                ImplementStep::Budget,
            ],
        ),
        (ImplementStep::CheckCode, &[ImplementStep::Lint, ImplementStep::Code, ImplementStep::Leave]),
        (ImplementStep::Lint, &[ImplementStep::Green, ImplementStep::Code]),
        (ImplementStep::Green, &[ImplementStep::EndToEnd, ImplementStep::Code, ImplementStep::CheckTests]),
        (ImplementStep::EndToEnd, &[ImplementStep::Attack, ImplementStep::Code]),
        (ImplementStep::Attack, &[ImplementStep::TryAttack, ImplementStep::Budget]),
        (ImplementStep::TryAttack, &[ImplementStep::Review, ImplementStep::Lint, ImplementStep::Code]),
        (
            ImplementStep::Review,
            &[ImplementStep::Bite, ImplementStep::Code, ImplementStep::Review, ImplementStep::Budget],
        ),
        (ImplementStep::Bite, &[ImplementStep::Gate]),
        (
            ImplementStep::Gate,
            &[
                ImplementStep::Push,
                ImplementStep::Load,
                ImplementStep::Review,
                ImplementStep::Gate,
                ImplementStep::Watch,
            ],
        ),
        (ImplementStep::Push, &[ImplementStep::Gate, ImplementStep::Watch]),
        (ImplementStep::Watch, &[ImplementStep::Load]),
        (
            ImplementStep::Leave,
            &[
                ImplementStep::CheckTests,
                ImplementStep::CheckCode,
                ImplementStep::Load,
                ImplementStep::ReviewTests,
            ],
        ),
        (
            ImplementStep::Budget,
            &[
                ImplementStep::Tests,
                ImplementStep::ReviewTests,
                ImplementStep::Code,
                ImplementStep::Attack,
                ImplementStep::Review,
            ],
        ),
    ];

    const PROOFS: &'static [LesserProof] = &[];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "implement",
        usage: "/implement",
        about: "write tests and code for the approved spec, run them, and have the change reviewed",
        role: Role::Write,
        label: Some("countersign:implement"),
        kind: CommandKind::Start,
    }];

    fn max_iterations() -> u32 {
        // Rounds of the tests and rounds of the code, which may also come back from its test run.
        3 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &RunTrigger) -> ImplementRunState {
        ImplementRunState::default()
    }

    async fn run<'a>(
        &'a self,
        at: ImplementStep,
        s: &'a mut ImplementRunState,
        cx: &'a StepContext,
    ) -> Result<Transition<ImplementStep>, StepError> {
        // Loading state is not worth it just to poll a job.
        if cx.is_job_running() {
            return wait_for_tests(cx).into_next(|_| None);
        }
        let text = ChangeDocument::load(s, cx).await?;
        let v = &StepVisit::begin(&mut s.stage, &text, at, cx);
        if matches!(at, ImplementStep::Gate | ImplementStep::Push) {
            require_state(&text.green)?;
            let document = load_text(cx, require_state(&s.stage.document())?).await?;
            if !text.has_locked_tests(&document) {
                return Err(StepError::Bug(anyhow::anyhow!(
                    "the change's tests differ from the locked ones"
                )));
            }
        }
        // People may approve another spec meanwhile, or remove this one.
        if matches!(
            at,
            ImplementStep::Tests
                | ImplementStep::ReviewTests
                | ImplementStep::Code
                | ImplementStep::Attack
                | ImplementStep::Review
                | ImplementStep::Leave
                | ImplementStep::Push
        ) {
            stage::require_unchanged_input(&s.stage, v, SPEC).await?;
        }
        let exit = match at {
            ImplementStep::Load => {
                if text.adversary.as_ref().is_some_and(adversarial::AdversarialResults::is_untried) {
                    // The obstacle of that time may be gone.
                    s.adversary = None;
                }
                if s.stage.is_fresh()
                    && let exit @ StepResult::Done(_) = stage::load_issue(&mut s.stage, v).await?
                {
                    return exit.into_next(|_| None);
                }
                stage::require_unchanged_input(&s.stage, v, SPEC).await?;
                // The spec is loaded now, so the document knows its files.
                let text = ChangeDocument::load(s, cx).await?;
                s.pushed.extend(
                    stage::find_earlier_files(&mut s.stage, &StepVisit { doc: &text, at: v.at, cx }).await?,
                );
                let text = ChangeDocument::load(s, cx).await?;
                stage::analyze_codebase(&mut s.stage, &StepVisit { doc: &text, at: v.at, cx }).await?;
                let tree = cx.tools().file_tree(cx, s.stage.base()?).await?;
                text.require_spec_fits(cx.run().trigger.issue, &tree)?;
                StepResult::Pass
            }
            ImplementStep::Base => run_base_tests(s, v, &text).await?,
            ImplementStep::Tests | ImplementStep::Code => {
                let exit = stage::write_draft(&mut s.stage, v).await?;
                if let StepResult::Pass = exit {
                    exceptions::find_other_tests(s, v, &text).await?;
                }
                if at == ImplementStep::Code
                    && !matches!(exit, StepResult::Wait { .. } | StepResult::OutOfBudget)
                {
                    s.stage.clear_code_request();
                }
                exit
            }
            ImplementStep::CheckTests | ImplementStep::CheckCode => {
                exceptions::check_draft(s, v, &text).await?
            }
            ImplementStep::Red => {
                let came = prove_red(s, v, &text).await;
                exceptions::settle_proof(s, came)?
            }
            ImplementStep::ReviewTests => Box::pin(review_tests(s, v)).await?,
            ImplementStep::Lint => {
                project_checks::run_checks(
                    s,
                    v,
                    &text,
                    &[RepositoryCheckKind::Format, RepositoryCheckKind::Lint],
                )
                .await?
            }
            ImplementStep::Green => prove_green(s, v, &text).await?,
            ImplementStep::EndToEnd => {
                project_checks::run_checks(s, v, &text, &[RepositoryCheckKind::EndToEnd]).await?
            }
            ImplementStep::Attack => adversarial::write_tests(s, v, &text).await?,
            ImplementStep::TryAttack => adversarial::run_tests(s, v, &text).await?,
            ImplementStep::Review => stage::review_draft(&mut s.stage, v).await?,
            ImplementStep::Bite => mutation_check::run_mutation_check(s, v, &text).await?,
            ImplementStep::Gate if !s.stage.has_open_gate(cx) => {
                match replay::replay_on_new_base(s, v, &text).await? {
                    Err(exit) => exit,
                    Ok(replay) => {
                        if let Some((replay, document)) = replay.zip(s.stage.document()) {
                            s.replayed = Some((document, store_json(cx, &replay).await?));
                        }
                        // The replay is part of the evidence shown.
                        let text = ChangeDocument::load(s, cx).await?;
                        stage::run_gate(&mut s.stage, &StepVisit { doc: &text, at: v.at, cx }).await?
                    }
                }
            }
            ImplementStep::Gate => stage::run_gate(&mut s.stage, v).await?,
            ImplementStep::Push => {
                let replay = if s.stage.is_proposed() {
                    Ok(None)
                } else {
                    replay::replay_on_new_base(s, v, &text).await?
                };
                let exit = match replay {
                    Err(exit) => exit,
                    Ok(replay) => {
                        // The approved bytes are pushed as shown, so the replay goes into a note instead.
                        replay.iter().for_each(|replay| s.stage.add_note(replay.fact()));
                        stage::publish_document(&mut s.stage, v).await?
                    }
                };
                // A reopened gate after a push is about the pushed branch, too.
                let is_there = matches!(exit, StepResult::Pass) || s.stage.is_proposed();
                if let Some(pushed) = s.stage.document().filter(|_| is_there) {
                    s.pushed.extend(change::file_paths(&load_text(cx, &pushed).await?));
                }
                exit
            }
            ImplementStep::Watch => stage::watch_merge(&mut s.stage, v).await?,
            ImplementStep::Leave => exceptions::run_exception_gate(s, v).await?,
            ImplementStep::Budget => stage::wait_for_budget(&mut s.stage, v).await?,
        };
        if let StepResult::Reread = exit {
            Box::pin(exceptions::reopen_tests(s, cx, &text)).await?;
        }
        let s = &*s;
        exit.into_next(|exit| next_step(at, exit, s))
    }

    async fn report_halt<'a>(
        &'a self,
        at: ImplementStep,
        s: &'a ImplementRunState,
        halt: &'a RunHalt,
        cx: &'a StepContext,
    ) -> Result<Option<RunCompletion>, StepError> {
        let mut stage = s.stage.clone();
        // People continue from the code, not from the tests that were to replace the locked ones.
        if let Some(code) =
            s.unlocked.as_ref().map(|unlocked| unlocked.code).or(s.reopened.as_ref().map(|r| r.code))
        {
            stage.replace_draft(code);
        }
        // The pushed change carries its own report.
        let text = ChangeDocument::load(s, cx).await.unwrap_or_else(|error| {
            tracing::warn!(run = %cx.run().id, %error, "could not read the change of a run that ended");
            ChangeDocument::default()
        });
        stage::report_halt(&stage, halt, (&text, at), cx).await
    }
}

/// Maps the result of a step to the next step. Once the tests are locked, the steps for drafts and reviews concern the
/// code instead of the tests.
fn next_step(at: ImplementStep, exit: &StepResult, s: &ImplementRunState) -> Option<ImplementStep> {
    let (draft, review) = match s.locked {
        Some(_) => (ImplementStep::Code, ImplementStep::Review),
        None => (ImplementStep::Tests, ImplementStep::ReviewTests),
    };
    Some(match (at, exit) {
        (ImplementStep::Load, StepResult::Pass) => ImplementStep::Base,
        (_, StepResult::Reread) => ImplementStep::Load,
        (ImplementStep::Base, StepResult::Pass)
        | (_, StepResult::Redraft | StepResult::Resume(StageCall::Draft)) => draft,
        (ImplementStep::Tests, StepResult::Pass) => ImplementStep::CheckTests,
        (ImplementStep::CheckTests, StepResult::Pass) => ImplementStep::Red,
        (ImplementStep::Red, StepResult::Pass) => ImplementStep::ReviewTests,
        // Code from before the tests were unlocked is tried first, unless people asked for other code as well.
        (ImplementStep::ReviewTests, StepResult::Pass)
            if s.stage.document().is_some() && !s.stage.wants_code() =>
        {
            ImplementStep::CheckCode
        }
        (ImplementStep::ReviewTests, StepResult::Pass) => ImplementStep::Code,
        (ImplementStep::Code, StepResult::Pass) => ImplementStep::CheckCode,
        (ImplementStep::CheckCode, StepResult::Pass) => ImplementStep::Lint,
        (ImplementStep::Lint, StepResult::Pass) => ImplementStep::Green,
        (ImplementStep::Green, StepResult::Pass) => ImplementStep::EndToEnd,
        (ImplementStep::EndToEnd, StepResult::Pass) | (_, StepResult::Resume(StageCall::Attack)) => {
            ImplementStep::Attack
        }
        (ImplementStep::Attack, StepResult::Pass) => ImplementStep::TryAttack,
        // A text with newly joined tests needs its own green proof first.
        (ImplementStep::TryAttack, StepResult::Pass) => {
            match s.greens.iter().any(|(of, _)| Some(*of) == s.stage.document()) {
                true => ImplementStep::Review,
                false => ImplementStep::Lint,
            }
        }
        (_, StepResult::Resume(StageCall::Review) | StepResult::ReviewAgain) => review,
        (ImplementStep::Review, StepResult::Pass | StepResult::Undecided) => ImplementStep::Bite,
        (ImplementStep::Bite, StepResult::Pass) | (_, StepResult::ReopenGate) => ImplementStep::Gate,
        (ImplementStep::Gate, StepResult::Pass) => ImplementStep::Push,
        (ImplementStep::Push, StepResult::Pass)
        | (ImplementStep::Code | ImplementStep::Gate | ImplementStep::Push, StepResult::KeepPushed) => {
            ImplementStep::Watch
        }
        // Replacement tests must be proven before people are asked about them.
        (ImplementStep::Green, StepResult::NeedsException) => ImplementStep::CheckTests,
        (_, StepResult::NeedsException) => ImplementStep::Leave,
        (ImplementStep::Leave, StepResult::Pass) if s.locked.is_some() => ImplementStep::CheckCode,
        (ImplementStep::Leave, StepResult::Pass) => ImplementStep::CheckTests,
        (_, StepResult::OutOfBudget) => ImplementStep::Budget,
        _ => return None,
    })
}

/// Runs the existing tests before any paid call, because nothing can be proven if these tests cannot run.
async fn run_base_tests(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::show_working(&mut s.stage, v).await?;
    let base = s.stage.base()?.clone();
    if s.before.is_some() {
        return Ok(StepResult::Pass);
    }
    let once = |trial: ChangeVerifier| async move {
        let ran = trial.run(&[], Vec::new()).await?;
        Ok((trial.run_baseline_checks(test_jobs::check_lines(&trial)).await?, ran))
    };
    let Some((lines, ran)) = run_test_job(cx, &base, text.files_to_change(), once).await? else {
        return Ok(wait_for_tests(cx));
    };
    if let Some(why) = red_green::unusable_reason(&ran.found) {
        let notes: String = ran.all_notes().map(|note| format!("; {note}")).collect();
        return Err(StepError::User(format!(
            "The existing tests on `{}` do not run ({why}{notes}), so new tests would prove nothing. Fix them, then \
             start again.",
            base.branch
        )));
    }
    text.require_addressable_tests(&ran)?;
    s.before = Some(store_json(cx, &ran).await?);
    s.lines = Some(store_json(cx, &lines).await?);
    Ok(StepResult::Pass)
}

/// Runs the new tests without the code, twice. They must fail for the right reason.
async fn prove_red(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::show_working(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *require_state(&s.stage.document())?);
    let tests = load_text(cx, &document).await?;
    let before = require_state(&text.before)?.clone();
    if let Err(mistakes) = text.overlay(&tests) {
        return stage::settle_checks(&mut s.stage, mistakes);
    }
    // A linter needs code that compiles. The tests must be formatted now, before the lock.
    let (doc, tree) = (text.clone(), cx.tools().file_tree(cx, &base).await?);
    let may_complain = project_checks::may_report_complaints(s);
    let twice = move |trial: ChangeVerifier| async move {
        let (tests, complaint) = doc.format(&trial, tests, &tree).await?;
        if let Some(said) = complaint.and_then(|(_, said)| said).filter(|_| may_complain) {
            return Ok((tests, true, Err(vec![said])));
        }
        let change = change::parse(&tests);
        let told = doc.expectations(&tests, &before);
        let targets: Vec<String> =
            change.files_in(ChangeSection::Tests).map(|file| file.path.clone()).collect();
        let overlays = [doc.overlay(&tests).unwrap_or_default(), doc.stubs(&change)];
        let proof = trial.prove_red(&targets, overlays, &before.found, &told).await?;
        Ok((tests, false, proof))
    };
    let Some((tests, of_form, proof)) = run_test_job(cx, &base, text.files_to_change(), twice).await? else {
        return Ok(wait_for_tests(cx));
    };
    let document = stage::store_fixed_draft(&mut s.stage, cx, &tests).await?;
    match proof {
        Ok(red) => {
            s.reds.push((document, store_json(cx, &red).await?));
            Ok(StepResult::Pass)
        }
        Err(wrong) => {
            s.told += u32::from(of_form);
            let rule = if of_form { "format" } else { "red" };
            stage::settle_checks(&mut s.stage, to_mistakes(rule, "Tests", wrong))
                .map_err(|why| text.with_unfetched_note(why))
        }
    }
}

/// Maximum number of reviews that may send the tests back. After that, the remaining objections are shown to people.
const MOST_OBJECTIONS: u32 = 2;

/// Has the tests reviewed. Then locks the tests as they are and continues with the code.
async fn review_tests(s: &mut ImplementRunState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let exit = stage::review_draft(&mut s.stage, v).await?;
    if let Some(unlocked) = s.unlocked.clone() {
        return match exit {
            StepResult::Pass | StepResult::Undecided | StepResult::Redraft => {
                exceptions::request_other_tests(s, v, &unlocked).await
            }
            other => Ok(other),
        };
    }
    match exit {
        StepResult::Redraft if s.objections + 1 < MOST_OBJECTIONS => {
            s.objections += 1;
            return Ok(StepResult::Redraft);
        }
        StepResult::Pass | StepResult::Undecided | StepResult::Redraft => {}
        other => return Ok(other),
    }
    lock_tests(s)?;
    exceptions::restore_code(s, v.cx).await?;
    Ok(StepResult::Pass)
}

/// Locks the current tests and starts the rounds in which the code is drafted.
fn lock_tests(s: &mut ImplementRunState) -> Result<(), StepError> {
    let document = *require_state(&s.stage.document())?;
    (s.locked, s.own_tests) = (Some(document), None);
    s.told = 0;
    // The drafter of the code cannot fix findings about the tests.
    if !s.stage.wants_code() {
        s.stage.remark_open_findings("the tests are locked by now, so it is left to people at the code gate");
    }
    let (kind, heading) = (LOCKED_TESTS.to_owned(), LOCKED_HEADING.to_owned());
    s.stage.add_background(BackgroundText { kind, heading, text: document, left: false });
    s.stage.reset_rounds()
}

/// Runs all tests with the code, which must make them pass.
async fn prove_green(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::show_working(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *require_state(&s.stage.document())?);
    if text.green.is_some() {
        // The same text again: its drafter only wrote replies.
        return Ok(StepResult::Pass);
    }
    if let Some(seen) = s.joined.filter(|(of, _)| *of == document) {
        // This text passed before its last tests joined.
        s.greens.push(seen);
        return Ok(StepResult::Pass);
    }
    let (before, red) = (require_state(&text.before)?.clone(), require_state(&text.red)?.clone());
    let tried = load_text(cx, &document).await?;
    let overlay = match text.overlay(&tried) {
        Ok(overlay) => overlay,
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let changed = mutation_units::changed_lines(&change::parse(&tried), &text.files).unwrap_or_default();
    let wanted = s.stage.policy()?.coverage.unwrap_or_default();
    let first = s.adversary.is_none();
    let look = move |trial: ChangeVerifier| async move {
        let green = match trial.prove_green(GREEN_RUNS, &overlay, &before, &red).await? {
            Ok(green) => green,
            Err(failing) => return Ok(Err(failing)),
        };
        let mut covered = None;
        // The model that writes adversarial tests next gets the uncovered lines.
        if first && can_measure(&before.runner) {
            covered = trial.measure_coverage(&green, &overlay, &changed, wanted).await?;
        }
        Ok(Ok((green, covered)))
    };
    let failing = match run_test_job(cx, &base, text.files_to_change(), look).await? {
        None => return Ok(wait_for_tests(cx)),
        Some(Ok((green, covered))) => {
            s.others = None;
            s.greens.push((document, store_json(cx, &green).await?));
            if first {
                s.covered = Some((document, store_json(cx, &covered).await?));
            }
            return Ok(StepResult::Pass);
        }
        Some(Err(failing)) => failing,
    };
    if let Some(gone) = failing.iter().find(|group| group.message == red_green::REMOVED_TEST_MESSAGE) {
        return Err(StepError::User(format!(
            "The new versions of the test files no longer contain existing tests, and the code step cannot restore \
             them: `{}`. Write `/implement` to start over.",
            gone.tests.join("`, `")
        )));
    }
    let exit = stage::settle_checks(
        &mut s.stage,
        to_mistakes("green", "Code", red_green::describe_failures(&failing)),
    );
    let spec = "If no code can pass, the spec asks for the wrong thing: write `/spec`, then start again.";
    exceptions::unlock_tests(s, exit).map_err(|why| match text.with_unfetched_note(why) {
        StepError::User(why) => StepError::User(format!("{}. {spec}", why.trim_end().trim_end_matches('.'))),
        why => why,
    })
}

pub(super) fn to_mistakes(rule: &'static str, place: &str, lines: Vec<String>) -> Vec<DocumentMistake> {
    lines.into_iter().map(|message| to_mistake(rule, place, message)).collect()
}

fn to_mistake(rule: &'static str, place: &str, message: String) -> DocumentMistake {
    DocumentMistake {
        rule: rule.into(),
        severity: MistakeSeverity::Error,
        place: place.to_owned(),
        message,
        about: None,
    }
}

async fn store_json(cx: &StepContext, value: &impl Serialize) -> Result<Hash, StepError> {
    cx.put(&serde_json::to_vec(value).map_err(anyhow::Error::new)?).await
}

async fn load_json<V: DeserializeOwned>(
    cx: &StepContext,
    hash: Option<Hash>,
) -> Result<Option<V>, StepError> {
    match hash {
        Some(hash) => Ok(Some(serde_json::from_slice(&cx.get(&hash).await?).map_err(anyhow::Error::new)?)),
        None => Ok(None),
    }
}
