//! `implement`: from an approved spec to a pull request with tests and code.
//!
//! The tests come first and are seen to fail, by themselves, in the sandbox; from then on they are locked. Then comes the code,
//! until they pass. Both are one text, the change, which is reviewed and approved as a whole, and pushed only then: nothing
//! that can be run leaves the server before a person has seen it. What CI and people say of it then leads back to the code, until
//! it is merged. [`Implement::GRAPH`] is the whole of what may follow what.

mod adversarial;
mod beyond;
mod bite;
mod lines;
mod replay;
mod text;
mod trial;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use self::{
    beyond::Unlocked,
    text::{LOCKED, LOCKED_HEADING, SPEC, Text},
    trial::{goes_on, job},
};
use crate::{
    codebase::units,
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowTable},
    documents::{
        Mistake, Severity,
        change::{self, Part},
    },
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    rounds::{Cx, Desk, need, text_of},
    runners::{
        is_measured, judge,
        trial::{GREEN_RUNS, Line, Trial, Which},
    },
    stage::{self, Before, Document as _, Exit, Known, Stage, Visit},
    types::{Hash, Role},
};

/// The workflow.
pub struct Implement;

/// What its settings are called, and its defaults.
pub(super) const TABLE: WorkflowTable = WorkflowTable {
    makes_code: true,
    looks: true,
    ..WorkflowTable::of(Implement::NAME, "docs/reports/IMPLEMENT-{issue}.md")
};

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum At {
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

impl Step for At {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Load => ("N0", "Load the spec", Kind::Work),
            Self::Base => ("N0.5", "Run the tests there are", Kind::Work),
            Self::Tests => ("N2", "Write the tests", Kind::Draft),
            Self::CheckTests => ("N2.5", "Check the tests", Kind::Work),
            Self::Red => ("N3", "See the tests fail", Kind::Work),
            Self::ReviewTests => ("N3b", "Review the tests", Kind::Review),
            Self::Code => ("N4", "Write the code", Kind::Draft),
            Self::CheckCode => ("N4b", "Check the code", Kind::Work),
            Self::Lint => ("N4c", "Run formatter and linter", Kind::Work),
            Self::Green => ("N5", "See the tests pass", Kind::Work),
            Self::Review => ("N5b", "Adversarial review", Kind::Review),
            Self::EndToEnd => ("N6", "Run it from end to end", Kind::Work),
            // What it adds has to pass review and gate, like what the drafter writes.
            Self::Attack => ("N7.5", "Write tests against the code", Kind::Draft),
            Self::TryAttack => ("N7.5b", "Run the tests against the code", Kind::Work),
            Self::Bite => ("N7.5c", "See whether the tests bite", Kind::Work),
            Self::Gate => ("N7", "Code gate", Kind::Gate),
            Self::Push => ("N7b", "Push", Kind::Publish),
            Self::Watch => ("N9", "Wait for the merge", Kind::Watch),
            Self::Leave => ("NL", "Wait for leave", Kind::Pause),
            Self::Budget => ("NM", "Wait for money", Kind::Pause),
        };
        StepInfo { id, title, kind }
    }
}

/// What a run knows between its steps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    stage: Stage,
    /// The text with the tests that were seen to fail: from then on they are what they are.
    locked: Option<Hash>,
    /// The tests that the code's drafter wrote in the place of the locked ones, as the text with them.
    #[serde(default)]
    others: Option<Hash>,
    /// While others are proven.
    #[serde(default)]
    unlocked: Option<Unlocked>,
    /// The run of the tests there were. All runs are of one commit, which never changes.
    before: Option<Hash>,
    /// Each proof of red, after the text it is of.
    reds: Vec<(Hash, Hash)>,
    /// Reviews that sent the tests back.
    objections: u32,
    /// Each proof of green, after the text it is of: an earlier text may take a later one's place.
    greens: Vec<(Hash, Hash)>,
    /// Which lines the tests of a green text run, after that text.
    #[serde(default)]
    covered: Option<(Hash, Hash)>,
    /// What the repository checks itself by, what of it complains of which text, and how often the drafter was told.
    #[serde(default)]
    lines: Option<Hash>,
    #[serde(default)]
    complaints: Vec<(Hash, Which, bool)>,
    #[serde(default)]
    told: u32,
    /// What the reviewer's model tried against the code, and the text it was tried with last.
    #[serde(default)]
    adversary: Option<Hash>,
    #[serde(default)]
    attacked: Option<Hash>,
    /// The text with those that joined last, and its proof of green.
    #[serde(default)]
    joined: Option<(Hash, Hash)>,
    /// Who noticed what was undone, after the text it is of.
    bite: Option<(Hash, Hash)>,
    /// What it came to where the default branch went on to, after the text it is of.
    #[serde(default)]
    replayed: Option<(Hash, Hash)>,
    /// The files that were pushed, by earlier runs of the issue as well: what a later text leaves alone is put back as it was.
    #[serde(default)]
    pushed: BTreeSet<String>,
}

impl Workflow<Desk> for Implement {
    const NAME: &'static str = "implement";
    const VERSION: u32 = 1;
    type Step = At;
    type State = State;

    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Base]),
        (At::Base, &[At::Tests, At::Code]),
        (At::Tests, &[At::CheckTests, At::Tests, At::ReviewTests, At::Budget]),
        (At::CheckTests, &[At::Red, At::Tests, At::Leave]),
        (At::Red, &[At::ReviewTests, At::Tests]),
        (At::ReviewTests, &[At::Code, At::Tests, At::ReviewTests, At::Leave, At::Budget]),
        (At::Code, &[At::CheckCode, At::Code, At::Review, At::Watch, At::Budget]),
        (At::CheckCode, &[At::Lint, At::Code, At::Leave]),
        (At::Lint, &[At::Green, At::Code]),
        (At::Green, &[At::EndToEnd, At::Code, At::CheckTests]),
        (At::EndToEnd, &[At::Attack, At::Code]),
        (At::Attack, &[At::TryAttack, At::Budget]),
        (At::TryAttack, &[At::Review, At::Lint, At::Code]),
        (At::Review, &[At::Bite, At::Code, At::Review, At::Budget]),
        (At::Bite, &[At::Gate]),
        (At::Gate, &[At::Push, At::Load, At::Review, At::Gate, At::Watch]),
        (At::Push, &[At::Gate, At::Watch]),
        (At::Watch, &[At::Load]),
        (At::Leave, &[At::CheckTests, At::CheckCode, At::Load, At::ReviewTests]),
        (At::Budget, &[At::Tests, At::ReviewTests, At::Code, At::Attack, At::Review]),
    ];

    const PROOFS: &'static [Proof] = &[];

    const COMMANDS: &'static [CommandSpec] = &[CommandSpec {
        name: "implement",
        usage: "/implement",
        about: "write tests and code of the approved spec, run them, and have the change reviewed",
        role: Role::Write,
        label: Some("countersign:implement"),
        kind: CommandKind::Starts,
    }];

    fn max_iterations() -> u32 {
        // Rounds of the tests, and of the code, which may come back from its run as well.
        3 * MOST_ROUNDS
    }

    fn start(&self, _trigger: &Trigger) -> State {
        State::default()
    }

    async fn run<'a>(&'a self, at: At, s: &'a mut State, cx: &'a Cx) -> Result<Next<At>, StepError> {
        // A look at a job is not worth reading anything.
        if cx.job_goes_on() {
            return goes_on(cx).next(|_| None);
        }
        let text = Text::read(s, cx).await?;
        let v = &Visit::begin(&mut s.stage, &text, at, cx);
        if matches!(at, At::Gate | At::Push) {
            need(&text.green)?;
            let document = text_of(cx, need(&s.stage.document())?).await?;
            if !text.has_locked_tests(&document) {
                return Err(StepError::Bug(anyhow::anyhow!(
                    "the change has other tests than those that are locked"
                )));
            }
        }
        // People may approve another spec meanwhile, or take this one away.
        if matches!(
            at,
            At::Tests | At::ReviewTests | At::Code | At::Attack | At::Review | At::Leave | At::Push
        ) {
            stage::stands(&s.stage, v, SPEC).await?;
        }
        let exit = match at {
            At::Load => {
                if text.adversary.as_ref().is_some_and(adversarial::Adversary::is_none) {
                    // What was in the way may be so no more.
                    s.adversary = None;
                }
                if s.stage.fresh()
                    && let exit @ Exit::Done(_) = stage::load(&mut s.stage, v).await?
                {
                    return exit.next(|_| None);
                }
                stage::stands(&s.stage, v, SPEC).await?;
                // Now it is known what to read.
                let text = Text::read(s, cx).await?;
                s.pushed.extend(stage::earlier(&mut s.stage, &Visit { doc: &text, at: v.at, cx }).await?);
                let text = Text::read(s, cx).await?;
                stage::analyze(&mut s.stage, &Visit { doc: &text, at: v.at, cx }).await?;
                let tree = cx.tools().tree(cx, s.stage.base()?).await?;
                text.fits(cx.run().trigger.issue, &tree)?;
                Exit::Pass
            }
            At::Base => before(s, v, &text).await?,
            At::Tests | At::Code => {
                let exit = stage::draft(&mut s.stage, v).await?;
                if let Exit::Pass = exit {
                    beyond::others(s, v, &text).await?;
                }
                exit
            }
            At::CheckTests | At::CheckCode => beyond::check(s, v, &text).await?,
            At::Red => {
                let came = red(s, v, &text).await;
                beyond::proven(s, came)?
            }
            At::ReviewTests => review_tests(s, v).await?,
            At::Lint => lines::run(s, v, &text, &[Which::Format, Which::Lint]).await?,
            At::Green => green(s, v, &text).await?,
            At::EndToEnd => lines::run(s, v, &text, &[Which::EndToEnd]).await?,
            At::Attack => adversarial::write(s, v, &text).await?,
            At::TryAttack => adversarial::run(s, v, &text).await?,
            At::Review => stage::review(&mut s.stage, v).await?,
            At::Bite => bite::bite(s, v, &text).await?,
            At::Gate if !s.stage.asks_in(cx) => match replay::replay(s, v, &text).await? {
                Err(exit) => exit,
                Ok(replay) => {
                    if let Some((replay, document)) = replay.zip(s.stage.document()) {
                        s.replayed = Some((document, keep(cx, &replay).await?));
                    }
                    // It is among what people are shown.
                    let text = Text::read(s, cx).await?;
                    stage::gate(&mut s.stage, &Visit { doc: &text, at: v.at, cx }).await?
                }
            },
            At::Gate => stage::gate(&mut s.stage, v).await?,
            At::Push => {
                let replay =
                    if s.stage.is_proposed() { Ok(None) } else { replay::replay(s, v, &text).await? };
                let exit = match replay {
                    Err(exit) => exit,
                    Ok(replay) => {
                        // What was approved is pushed as it was shown, so this stands elsewhere.
                        replay.iter().for_each(|replay| s.stage.say(replay.fact()));
                        stage::publish(&mut s.stage, v).await?
                    }
                };
                // On its branch it is also where it is asked for anew after that.
                let is_there = matches!(exit, Exit::Pass) || s.stage.is_proposed();
                if let Some(pushed) = s.stage.document().filter(|_| is_there) {
                    s.pushed.extend(change::paths(&text_of(cx, &pushed).await?));
                }
                exit
            }
            At::Watch => stage::watch(&mut s.stage, v).await?,
            At::Leave => beyond::leave(s, v).await?,
            At::Budget => stage::budget(&mut s.stage, v).await?,
        };
        let s = &*s;
        exit.next(|exit| edge(at, exit, s))
    }

    async fn halted<'a>(
        &'a self,
        at: At,
        s: &'a State,
        halt: &'a Halt,
        cx: &'a Cx,
    ) -> Result<Option<Outcome>, StepError> {
        let mut stage = s.stage.clone();
        if let Some(unlocked) = &s.unlocked {
            // The draft is what people go on from, and not the tests that it wanted.
            stage.amend(unlocked.code);
        }
        // What it pushed says of itself what it did before.
        let text = Text::read(s, cx).await.unwrap_or_else(|error| {
            tracing::warn!(run = %cx.run().id, %error, "could not read the change of a run that ended");
            Text::default()
        });
        stage::halted(&stage, halt, (&text, at), cx).await
    }
}

/// Where a step's end leads. Once the tests are locked, it is the code that is drafted, and reviewed with them.
fn edge(at: At, exit: &Exit, s: &State) -> Option<At> {
    let (draft, review) = match s.locked {
        Some(_) => (At::Code, At::Review),
        None => (At::Tests, At::ReviewTests),
    };
    Some(match (at, exit) {
        (At::Load, Exit::Pass) => At::Base,
        (_, Exit::Reread) => At::Load,
        (At::Base, Exit::Pass) | (_, Exit::Redraft | Exit::Resume(Before::Draft)) => draft,
        (At::Tests, Exit::Pass) => At::CheckTests,
        (At::CheckTests, Exit::Pass) => At::Red,
        (At::Red, Exit::Pass) => At::ReviewTests,
        (At::ReviewTests, Exit::Pass) => At::Code,
        (At::Code, Exit::Pass) => At::CheckCode,
        (At::CheckCode, Exit::Pass) => At::Lint,
        (At::Lint, Exit::Pass) => At::Green,
        (At::Green, Exit::Pass) => At::EndToEnd,
        (At::EndToEnd, Exit::Pass) | (_, Exit::Resume(Before::Attack)) => At::Attack,
        (At::Attack, Exit::Pass) => At::TryAttack,
        // With the tests that joined it is green only once that was seen.
        (At::TryAttack, Exit::Pass) => match s.greens.iter().any(|(of, _)| Some(*of) == s.stage.document()) {
            true => At::Review,
            false => At::Lint,
        },
        (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => review,
        (At::Review, Exit::Pass | Exit::Undecided) => At::Bite,
        (At::Bite, Exit::Pass) | (_, Exit::AskAnew) => At::Gate,
        (At::Gate, Exit::Pass) => At::Push,
        (At::Push, Exit::Pass) | (At::Code | At::Gate | At::Push, Exit::AsPushed) => At::Watch,
        // Other tests have to be proven before people are asked about them.
        (At::Green, Exit::Beyond) => At::CheckTests,
        (_, Exit::Beyond) => At::Leave,
        (At::Leave, Exit::Pass) if s.locked.is_some() => At::CheckCode,
        (At::Leave, Exit::Pass) => At::CheckTests,
        (_, Exit::Money) => At::Budget,
        _ => return None,
    })
}

/// Runs the tests there are, before anything is paid for: where they cannot be run, nothing can be proven.
async fn before(s: &mut State, v: &Visit<'_>, text: &Text) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let base = s.stage.base()?.clone();
    if s.before.is_some() {
        return Ok(Exit::Pass);
    }
    let once = |trial: Trial| async move {
        let ran = trial.run(&[], Vec::new()).await?;
        Ok((trial.lines(trial::lines(&trial)).await?, ran))
    };
    let Some((lines, ran)) = job(cx, &base, text.files_to_change(), once).await? else {
        return Ok(goes_on(cx));
    };
    if let Some(why) = judge::unfit(&ran.found) {
        let notes: String = ran.noted().map(|note| format!("; {note}")).collect();
        return Err(StepError::User(format!(
            "The tests on `{}` do not run as they are ({why}{notes}), so nothing could be proven by new ones. Mend them, then start \
             anew.",
            base.branch
        )));
    }
    text.addressed(&ran)?;
    s.before = Some(keep(cx, &ran).await?);
    s.lines = Some(keep(cx, &lines).await?);
    Ok(Exit::Pass)
}

/// Runs the new tests without the code, twice: they have to fail as they should.
async fn red(s: &mut State, v: &Visit<'_>, text: &Text) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *need(&s.stage.document())?);
    let tests = text_of(cx, &document).await?;
    let before = need(&text.before)?.clone();
    let overlay = match text.overlay(&tests) {
        Ok(overlay) => overlay,
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let (change, stubs) = (change::parse(&tests), text.stubs());
    let told = before.told(&text.spec(), &change);
    let targets: Vec<String> = change.of(Part::Tests).map(|file| file.path.clone()).collect();
    // A linter wants code that can be built; what is of no form now nobody may bring into it later.
    let form: Vec<Line> = text.lines.iter().filter(|line| line.which == Which::Format).cloned().collect();
    let form = if lines::may_be_told(s) { form } else { Vec::new() };
    let twice = |trial: Trial| async move {
        let said = trial.complaints(&form, &overlay).await?;
        if !said.is_empty() {
            return Ok((true, Err(said.into_iter().map(|(_, said)| said).collect())));
        }
        Ok((false, trial.red(&targets, [overlay, stubs], &before.found, &told).await?))
    };
    match job(cx, &base, text.files_to_change(), twice).await? {
        None => Ok(goes_on(cx)),
        Some((_, Ok(red))) => {
            s.reds.push((document, keep(cx, &red).await?));
            Ok(Exit::Pass)
        }
        Some((of_form, Err(wrong))) => {
            s.told += u32::from(of_form);
            let rule = if of_form { "format" } else { "red" };
            stage::settle_checks(&mut s.stage, mistakes(rule, "Tests", wrong)).map_err(|why| text.halted(why))
        }
    }
}

/// So often tests go back because of their review. What it still objects to, the last one tells, and people see it.
const MOST_OBJECTIONS: u32 = 2;

/// Has the tests reviewed, of which no word changes afterwards; then they are locked, and the code is next.
async fn review_tests(s: &mut State, v: &Visit<'_>) -> Result<Exit, StepError> {
    let exit = stage::review(&mut s.stage, v).await?;
    if let Some(unlocked) = s.unlocked.clone() {
        return match exit {
            Exit::Pass | Exit::Undecided | Exit::Redraft => beyond::ask(s, v, &unlocked).await,
            other => Ok(other),
        };
    }
    match exit {
        Exit::Redraft if s.objections + 1 < MOST_OBJECTIONS => {
            s.objections += 1;
            return Ok(Exit::Redraft);
        }
        Exit::Pass | Exit::Undecided | Exit::Redraft => {}
        other => return Ok(other),
    }
    lock(s)?;
    Ok(Exit::Pass)
}

/// From now on the tests are what they are, and there is no code yet.
fn lock(s: &mut State) -> Result<(), StepError> {
    let document = *need(&s.stage.document())?;
    s.locked = Some(document);
    s.told = 0;
    let (kind, heading) = (LOCKED.to_owned(), LOCKED_HEADING.to_owned());
    s.stage.know(Known { kind, heading, text: document, left: false });
    s.stage.begin_anew()
}

/// Runs all tests with the code.
async fn green(s: &mut State, v: &Visit<'_>, text: &Text) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *need(&s.stage.document())?);
    if text.green.is_some() {
        // It is the same again: its drafter had only to say something.
        return Ok(Exit::Pass);
    }
    if let Some(seen) = s.joined.filter(|(of, _)| *of == document) {
        // It was seen before its last tests joined.
        s.greens.push(seen);
        return Ok(Exit::Pass);
    }
    let (before, red) = (need(&text.before)?.clone(), need(&text.red)?.clone());
    let tried = text_of(cx, &document).await?;
    let overlay = match text.overlay(&tried) {
        Ok(overlay) => overlay,
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let changed = units::changed_lines(&change::parse(&tried), &text.files).unwrap_or_default();
    let wanted = s.stage.policy()?.coverage.unwrap_or_default();
    let first = s.adversary.is_none();
    let look = move |trial: Trial| async move {
        let green = match trial.repeated(GREEN_RUNS, &overlay, &before, &red).await? {
            Ok(green) => green,
            Err(failing) => return Ok(Err(failing)),
        };
        let mut covered = None;
        // Lines that no test runs are told to who is yet to write tests against the code.
        if first && is_measured(&before.runner) {
            covered = trial.covered(&green, &overlay, &changed, wanted).await?;
        }
        Ok(Ok((green, covered)))
    };
    let failing = match job(cx, &base, text.files_to_change(), look).await? {
        None => return Ok(goes_on(cx)),
        Some(Ok((green, covered))) => {
            s.others = None;
            s.greens.push((document, keep(cx, &green).await?));
            if first {
                s.covered = Some((document, keep(cx, &covered).await?));
            }
            return Ok(Exit::Pass);
        }
        Some(Err(failing)) => failing,
    };
    if let Some(gone) = failing.iter().find(|group| group.message == judge::GONE) {
        return Err(StepError::User(format!(
            "The new tests took tests away that there were, which no code brings back: `{}`. Write `/implement` to begin anew.",
            gone.tests.join("`, `")
        )));
    }
    let exit = stage::settle_checks(&mut s.stage, mistakes("green", "Code", judge::told(&failing)));
    beyond::unlock(s, exit).map_err(|why| text.halted(why))
}

fn mistakes(rule: &'static str, place: &str, lines: Vec<String>) -> Vec<Mistake> {
    lines.into_iter().map(|message| mistake(rule, place, message)).collect()
}

fn mistake(rule: &'static str, place: &str, message: String) -> Mistake {
    Mistake { rule: rule.into(), severity: Severity::Error, place: place.to_owned(), message, about: None }
}

async fn keep(cx: &Cx, value: &impl Serialize) -> Result<Hash, StepError> {
    cx.put(&serde_json::to_vec(value).map_err(anyhow::Error::new)?).await
}

async fn kept<V: DeserializeOwned>(cx: &Cx, hash: Option<Hash>) -> Result<Option<V>, StepError> {
    match hash {
        Some(hash) => Ok(Some(serde_json::from_slice(&cx.get(&hash).await?).map_err(anyhow::Error::new)?)),
        None => Ok(None),
    }
}
