//! `implement`: from an approved spec to a pull request with tests and code.
//!
//! The tests come first and are seen to fail, by themselves, in the sandbox; from then on they are locked. Then comes the code,
//! until they pass. Both are one text, the change, which is reviewed and approved as a whole, and pushed only then: nothing
//! that can be run leaves the server before a person has seen it. [`Implement::GRAPH`] is the whole of what may follow what.

mod bite;
mod text;
mod trial;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use self::{
    text::{LOCKED, SPEC, Text},
    trial::{Ran, goes_on},
};
use crate::{
    commands::{CommandKind, CommandSpec},
    config::{MOST_ROUNDS, WorkflowTable},
    documents::{
        Mistake, Severity,
        change::{self, Part},
    },
    engine::{Halt, Kind, Next, Outcome, Proof, Step, StepError, StepInfo, Trigger, Workflow},
    rounds::{Base, Cx, Desk, need, text_of},
    runners::{Asked, Failure, Found, Outcome as Came, Test, judge, one_line},
    stage::{self, Before, Exit, Known, Stage, Visit},
    types::{Hash, Oid, Role},
};

/// The workflow.
pub struct Implement;

/// What its settings are called, and its defaults.
pub(super) const TABLE: WorkflowTable = WorkflowTable {
    makes_code: true,
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
    Code,
    CheckCode,
    Green,
    Review,
    Bite,
    Gate,
    Push,
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
            Self::Code => ("N4", "Write the code", Kind::Draft),
            Self::CheckCode => ("N4b", "Check the code", Kind::Work),
            Self::Green => ("N5", "See the tests pass", Kind::Work),
            Self::Review => ("N5b", "Adversarial review", Kind::Review),
            Self::Bite => ("N7.5", "See whether the tests bite", Kind::Work),
            Self::Gate => ("N7", "Code gate", Kind::Gate),
            Self::Push => ("N7b", "Push", Kind::Publish),
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
    /// The run of the tests there were, and the commit it is of.
    before: Option<(Oid, Hash)>,
    /// The proof of red, and the commit it is of.
    red: Option<(Oid, Hash)>,
    /// Each proof of green, with the commit and the text it is of: an earlier text may take a later one's place.
    #[serde(default)]
    greens: Vec<(Oid, Hash, Hash)>,
    /// Who noticed what was undone, and the text it is of.
    #[serde(default)]
    bite: Option<(Hash, Hash)>,
}

impl Workflow<Desk> for Implement {
    const NAME: &'static str = "implement";
    const VERSION: u32 = 1;
    type Step = At;
    type State = State;

    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Load, &[At::Base]),
        (At::Base, &[At::Tests, At::Red, At::Code]),
        (At::Tests, &[At::CheckTests, At::Tests, At::Budget]),
        (At::CheckTests, &[At::Red, At::Tests]),
        (At::Red, &[At::Code, At::Tests]),
        (At::Code, &[At::CheckCode, At::Code, At::Review, At::Budget]),
        (At::CheckCode, &[At::Green, At::Code]),
        (At::Green, &[At::Review, At::Code]),
        (At::Review, &[At::Bite, At::Code, At::Review, At::Budget]),
        (At::Bite, &[At::Gate]),
        (At::Gate, &[At::Push, At::Load, At::Review, At::Gate]),
        (At::Push, &[At::Gate]),
        (At::Budget, &[At::Tests, At::Code, At::Review]),
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
        let text = Text::read(s, cx).await?;
        let v = &Visit::begin(&mut s.stage, &text, at, cx);
        if matches!(at, At::Gate | At::Push) {
            need(&text.green)?;
        }
        // People may approve another spec meanwhile, or take this one away.
        if matches!(at, At::Tests | At::Code | At::Review | At::Push) {
            stage::stands(&s.stage, v, SPEC).await?;
        }
        let exit = match at {
            At::Load => {
                if s.stage.fresh() {
                    stage::load(&mut s.stage, v).await?;
                }
                stage::stands(&s.stage, v, SPEC).await?;
                // Now it is known what to read.
                let text = Text::read(s, cx).await?;
                stage::analyze(&mut s.stage, &Visit { doc: &text, at: v.at, cx }).await?;
                let tree = cx.tools().tree(cx, s.stage.base()?).await?;
                text.fits(cx.run().trigger.issue, &tree)?;
                Exit::Pass
            }
            At::Base => before(s, v).await?,
            At::Tests | At::Code => stage::draft(&mut s.stage, v).await?,
            At::CheckTests | At::CheckCode => {
                stage::fix(&mut s.stage, v).await?;
                stage::check(&mut s.stage, v).await?
            }
            At::Red => red(s, v, &text).await?,
            At::Green => green(s, v, &text).await?,
            At::Review => stage::review(&mut s.stage, v).await?,
            At::Bite => bite::bite(s, v, &text).await?,
            At::Gate => stage::gate(&mut s.stage, v).await?,
            At::Push => stage::publish(&mut s.stage, v).await?,
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
        stage::halted(&s.stage, halt, (&Text::default(), at), cx).await
    }
}

/// Where a step's end leads. Once the tests are locked, it is the code that is drafted.
fn edge(at: At, exit: &Exit, s: &State) -> Option<At> {
    let draft = if s.locked.is_some() { At::Code } else { At::Tests };
    let proven = || s.red.as_ref().map(|(commit, _)| commit) == s.stage.base().ok().map(|base| &base.commit);
    Some(match (at, exit) {
        (At::Load, Exit::Pass) => At::Base,
        (_, Exit::Reread) => At::Load,
        // The code moved since, and perhaps to where the tests pass.
        (At::Base, Exit::Pass) if s.locked.is_some() && !proven() => At::Red,
        (At::Base, Exit::Pass) | (_, Exit::Redraft | Exit::Resume(Before::Draft)) => draft,
        (At::Tests, Exit::Pass) => At::CheckTests,
        (At::CheckTests, Exit::Pass) => At::Red,
        (At::Red, Exit::Pass) => At::Code,
        (At::Code, Exit::Pass) => At::CheckCode,
        (At::CheckCode, Exit::Pass) => At::Green,
        (At::Green, Exit::Pass) | (_, Exit::Resume(Before::Review) | Exit::ReviewAgain) => At::Review,
        (At::Review, Exit::Pass | Exit::Undecided) => At::Bite,
        (At::Bite, Exit::Pass) | (_, Exit::AskAnew) => At::Gate,
        (At::Gate, Exit::Pass) => At::Push,
        (_, Exit::Money) => At::Budget,
        _ => return None,
    })
}

/// Runs the tests there are, before anything is paid for: where they cannot be run, nothing can be proven.
async fn before(s: &mut State, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let base = s.stage.base()?.clone();
    if s.before.as_ref().is_some_and(|(commit, _)| *commit == base.commit) {
        return Ok(Exit::Pass);
    }
    let asked = Asked { at_hand: v.doc.files_to_change(), ..Asked::default() };
    let Some(ran) = trial::run(cx, &base, "before", asked).await? else { return Ok(goes_on(cx)) };
    if let Some(why) = unfit(&ran.found) {
        let notes: String = ran.notes.iter().map(|note| format!("; {note}")).collect();
        return Err(StepError::User(format!(
            "The tests on `{}` do not run as they are ({why}{notes}), so nothing could be proven by new ones. Mend them, then start \
             anew.",
            base.branch
        )));
    }
    s.before = Some((base.commit, keep(cx, &ran).await?));
    Ok(Exit::Pass)
}

/// Why nothing could be proven beside such tests: what cannot be built takes others along, and where none passes the fault is
/// not theirs alone. What else fails is listed, and never counted.
fn unfit(found: &Found) -> Option<String> {
    let unbuilt = |test: &&Test| match test.outcome {
        Came::Failed(Failure::Build) => true,
        Came::Failed(Failure::Missing) => !test.faults.is_empty(),
        _ => false,
    };
    let unbuilt = found.failed().find(unbuilt).map(|test| format!("`{}` cannot be built", test.id));
    // A repository may have none yet.
    let trouble = found.trouble.iter().find(|line| !found.tests.is_empty() || *line != "no tests were found");
    let none = || {
        let first = found.failed().next().filter(|_| found.count(Came::Passed) == 0)?;
        Some(format!("none passes: `{}`: {}", first.id, one_line(&first.message)))
    };
    unbuilt.or(trouble.cloned()).or_else(none)
}

/// Runs the new tests without the code, twice. Those that fail as they should are locked, and the code is next.
async fn red(s: &mut State, v: &Visit<'_>, text: &Text) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), need(&s.locked.or(s.stage.document()))?.to_owned());
    let tests = text_of(cx, &document).await?;
    let before = need(&text.before)?;
    let overlay = match text.overlay(&tests) {
        Ok(overlay) => overlay,
        Err(mistakes) if s.locked.is_some() => {
            return Err(moved(&base, mistakes.first().map_or("", |mistake| &mistake.message)));
        }
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let told = text.told(&tests);
    let targets = change::parse(&tests).of(Part::Tests).map(|file| file.path.clone()).collect();
    let asked = Asked { at_hand: v.doc.files_to_change(), overlay, targets, ..Asked::default() };
    let Some(first) = trial::run(cx, &base, "first", asked.clone()).await? else { return Ok(goes_on(cx)) };
    let Some(second) = trial::run(cx, &base, "second", asked).await? else { return Ok(goes_on(cx)) };
    match judge::red(&before.found, [&first.found, &second.found], &told) {
        Ok(red) => {
            s.red = Some((base.commit, keep(cx, &red).await?));
            if s.locked.is_none() {
                s.locked = Some(document);
                let heading =
                    "The tests, which are locked: they were seen to fail, and the code is to make them pass";
                let (kind, heading) = (LOCKED.to_owned(), heading.to_owned());
                s.stage.know(Known { kind, heading, text: document, left: false });
                s.stage.begin_anew()?;
            }
            Ok(Exit::Pass)
        }
        Err(wrong) if s.locked.is_some() => Err(moved(&base, wrong.first().map_or("", String::as_str))),
        Err(wrong) => stage::settle_checks(&mut s.stage, mistakes("red", "Tests", wrong)),
    }
}

/// The tests are locked, and no code can mend them.
fn moved(base: &Base, why: &str) -> StepError {
    StepError::User(format!(
        "The code on `{}` moved, and the tests do not fail there any more as they did: {why}. Write `/implement` to begin anew.",
        base.branch
    ))
}

/// Runs all tests with the code: once, and twice more where that was enough.
async fn green(s: &mut State, v: &Visit<'_>, text: &Text) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *need(&s.stage.document())?);
    let (before, red) = (need(&text.before)?, need(&text.red)?);
    let overlay = match text.overlay(&text_of(cx, &document).await?) {
        Ok(overlay) => overlay,
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let asked = Asked { at_hand: v.doc.files_to_change(), overlay, ..Asked::default() };
    let mut runs: Vec<Ran> = Vec::new();
    let mut proof = None;
    for key in ["first", "second", "third"] {
        let Some(ran) = trial::run(cx, &base, key, asked.clone()).await? else { return Ok(goes_on(cx)) };
        runs.push(ran);
        let found: Vec<_> = runs.iter().map(|ran| &ran.found).collect();
        match judge::green(&before.found, red, &found) {
            Ok(green) => proof = Some(green),
            Err(failing) => {
                if let Some(gone) = failing.iter().find(|group| group.message == judge::GONE) {
                    return Err(StepError::User(format!(
                        "The new tests took tests away that there were, which no code brings back: `{}`. Write `/implement` to \
                         begin anew.",
                        gone.tests.join("`, `")
                    )));
                }
                let wrong = mistakes("green", "Code", judge::told(&failing));
                return stage::settle_checks(&mut s.stage, wrong);
            }
        }
    }
    s.greens.push((base.commit, document, keep(cx, need(&proof)?).await?));
    Ok(Exit::Pass)
}

fn mistakes(rule: &'static str, place: &str, lines: Vec<String>) -> Vec<Mistake> {
    let mistake = |message| Mistake {
        rule: rule.into(),
        severity: Severity::Error,
        place: place.to_owned(),
        message,
        about: None,
    };
    lines.into_iter().map(mistake).collect()
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
