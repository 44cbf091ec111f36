//! What is a change's own: the form of its text, what stands beside it as evidence, and what of it is published.

use std::collections::{BTreeMap, BTreeSet};

use super::{Implement, State};
use crate::{
    codebase::{self, Language, TreeIndex},
    documents::{
        Mistake,
        change::{self, Allowed, Change, Part},
        spec::{self, TestRow},
    },
    engine::{StepError, Workflow as _},
    messages::{self, ChangeReport, FileLine, ProofLine},
    rounds::{self, Cx, Policy, text_of},
    runners::{
        judge::{self, Green, Red, Told},
        one_line,
    },
    stage::{self, About, Asks, Document, Gate, Input, Target},
    types::{Hash, IssueNo},
};

use super::{
    bite::Bite,
    trial::{self, Overlay, Ran},
};
use crate::workflows::issue;

/// What it builds on.
pub(super) const SPEC: &str = "spec";

/// What the drafter of the code is told of the tests.
pub(super) const LOCKED: &str = "locked-tests";

/// The change as a step has it at hand.
#[derive(Default)]
pub(super) struct Text {
    /// The approved spec; empty before it was loaded.
    spec: String,
    /// The text with the tests that were seen to fail.
    locked: Option<String>,
    /// The files that the spec speaks of, as they are at the commit.
    pub(super) files: BTreeMap<String, String>,
    /// The runs that the evidence is of, and what they proved.
    pub(super) before: Option<Ran>,
    pub(super) red: Option<Red>,
    pub(super) green: Option<Green>,
    bite: Option<Bite>,
    commit: String,
    issue: Option<IssueNo>,
}

impl Text {
    pub(super) async fn read(s: &State, cx: &Cx) -> Result<Self, StepError> {
        let spec = s.stage.told(SPEC, cx).await?;
        let locked = match &s.locked {
            Some(hash) => Some(text_of(cx, hash).await?),
            None => None,
        };
        let (mut files, mut commit) = (BTreeMap::new(), String::new());
        if let Ok(base) = s.stage.base() {
            files = rounds::raw_files(cx, base, &files_of(&spec)).await?;
            commit = base.commit.to_string();
        }
        let document = s.stage.document();
        let of = |all: &[(Hash, Hash)], text: Option<Hash>| {
            all.iter().rev().find(|(of, _)| Some(*of) == text).map(|(_, evidence)| *evidence)
        };
        let (red, green) = (of(&s.reds, s.locked.or(document)), of(&s.greens, document));
        let bite = s.bite.filter(|(of, _)| Some(*of) == document).map(|(_, evidence)| evidence);
        Ok(Self {
            spec,
            locked,
            files,
            before: super::kept(cx, s.before).await?,
            red: super::kept(cx, red).await?,
            green: super::kept(cx, green).await?,
            bite: super::kept(cx, bite).await?,
            commit,
            issue: Some(cx.run().trigger.issue),
        })
    }

    /// What the drafter writes now.
    fn part(&self) -> Part {
        if self.locked.is_some() { Part::Code } else { Part::Tests }
    }

    /// What of a text lies over the files of the commit when its tests run.
    pub(super) fn overlay(&self, text: &str) -> Result<Overlay, Vec<Mistake>> {
        change::apply(&change::parse(text), &self.files).map(trial::laid_over)
    }

    /// A row of the spec as the project's own tests have it. A command of the repository says of no test where it is.
    fn row(&self, row: &TestRow) -> judge::Row {
        let file = match &self.before {
            Some(ran) if ran.runner == "command" => "",
            Some(ran) => ran.within(&row.file).unwrap_or(&row.file),
            None => &row.file,
        };
        judge::Row { file: file.to_owned(), name: row.name.clone(), kind: None }
    }

    /// What spec and tests say that the runs have to show.
    pub(super) fn told(&self, text: &str) -> Told {
        let (spec, change) = (spec::parse(&self.spec), change::parse(text));
        let tests = || change.of(Part::Tests);
        let within = |path: &str| match &self.before {
            Some(ran) => ran.within(path).map(str::to_owned),
            None => Some(path.to_owned()),
        };
        let there = |removed: bool| {
            let files = tests().filter(|file| (file.kind == change::Kind::Delete) == removed);
            files.filter_map(|file| within(&file.path)).collect()
        };
        Told {
            files: there(false),
            removed: there(true),
            rows: spec.tests.iter().map(|row| self.row(row)).collect(),
            guards: tests().flat_map(|file| file.guards.clone()).collect(),
            declared: judge::declared(&spec),
        }
    }

    /// Does the spec still fit the code? If not, no change could be right, and none is paid for.
    pub(super) fn fits(&self, issue: IssueNo, tree: &TreeIndex) -> Result<(), StepError> {
        let mistakes = spec::check(&self.spec, issue, tree);
        if let Some(mistake) = mistakes.iter().find(|m| m.is_error() && m.rule.starts_with("files.")) {
            return Err(StepError::User(format!(
                "The approved spec does not fit the code any more: {}. Write `/spec` to have it written anew, then start \
                 anew.",
                mistake.message
            )));
        }
        match change::unbuildable(&Allowed::of(&spec::parse(&self.spec), Part::Code), tree) {
            Some(why) => Err(no_way(&why)),
            None => Ok(()),
        }
    }

    /// Can the project's own tests be asked about those of the spec? If not, none of them would ever be seen to fail.
    pub(super) fn addressed(&self, ran: &Ran) -> Result<(), StepError> {
        let spec = spec::parse(&self.spec);
        let mut seen = BTreeSet::new();
        for row in &spec.tests {
            let added = spec
                .view
                .files
                .iter()
                .any(|file| file.path == row.file && file.change == Some(change::Kind::Add));
            let why = match ran.within(&row.file) {
                _ if ran.runner == "command" && !seen.insert(&row.name) => Some(
                    "has the name of another one, and the command of the repository does not say which is which",
                ),
                _ if ran.runner == "command" => None,
                Some(file) => judge::unaddressed(&ran.runner, file, added, &ran.found),
                None => Some("stands in another project than the one whose tests run here"),
            };
            if let Some(why) = why {
                let (name, file) = (one_line(&row.name), one_line(&row.file));
                return Err(no_way(&format!("the test `{name}` of `{file}` {why}")));
            }
        }
        Ok(())
    }

    /// The new tests that show nothing, and those of the spec that stand in comments alone.
    fn hollow(&self, text: &str, allowed: &Allowed) -> Vec<Mistake> {
        let (change, mut wrong) = (change::parse(text), Vec::new());
        let files = change::apply(&change, &self.files).unwrap_or_default();
        let read = |path: &str, text: &str| codebase::tests(Language::of(path), text);
        for (file, (path, made)) in change.files.iter().zip(&files) {
            let Some(tests) = made.as_ref().filter(|_| file.part == Part::Tests).and_then(|t| read(path, t))
            else {
                continue;
            };
            let before = self.files.get(path).and_then(|text| read(path, text)).unwrap_or_default();
            let known = |name: &str| before.hollow.iter().any(|(known, ..)| known == name);
            let new = tests.hollow.iter().filter(|(name, ..)| !known(name));
            wrong.extend(new.map(|(name, line, why)| {
                (format!("{path}:{line}"), format!("`{}` {why}", one_line(name).replace('`', "'")))
            }));
            let gone = allowed.rows.iter().filter(|row| row.file == *path && !tests.has(&row.name));
            wrong.extend(gone.map(|row| {
                (path.clone(), format!("it has no test `{}`, which the approved spec asks for", row.name))
            }));
        }
        let places = wrong.into_iter().map(|(place, why)| super::mistake("tests.hollow", &place, why));
        places.collect()
    }

    fn facts_of_runs(&self) -> Vec<String> {
        let mut facts = Vec::new();
        if let Some(red) = &self.red {
            let of = |kind| red.tests.values().filter(|test| **test == kind).count();
            facts.push(format!(
                "Without the code, twice alike: {} new tests fail by an assertion, {} because a name is missing that the spec \
                 declares, {} test binaries cannot be built without such a name, and {} pass since they guard what there is.",
                of(judge::Kind::Assertion),
                of(judge::Kind::Missing),
                of(judge::Kind::Compile),
                of(judge::Kind::Guard)
            ));
            let other = of(judge::Kind::Runtime);
            if other > 0 {
                facts.push(format!("{other} more fail as they run, by something else than an assertion."));
            }
        }
        if let Some(green) = &self.green {
            facts.push(format!(
                "With the code, three times: all {} tests of the change pass, and so do all {} others that passed before.",
                green.locked.len(),
                green.kept
            ));
            if !green.broken.is_empty() || !green.gone.is_empty() {
                facts.push(format!(
                    "{} tests failed before and are not counted; {} of a test file that is deleted are gone.",
                    green.broken.len(),
                    green.gone.len()
                ));
            }
        }
        facts.extend(self.bite.iter().flat_map(Bite::facts));
        facts.extend(
            self.before.iter().flat_map(|ran| &ran.notes).map(|note| format!("Of the runs: {note}.")),
        );
        facts
    }

    fn proofs(&self, change: &Change) -> Vec<ProofLine> {
        let spec = spec::parse(&self.spec);
        let rows = spec.tests.iter().map(|row| ProofLine {
            requirement: row.requirements.join(", "),
            test: row.name.clone(),
            file: row.file.clone(),
            red: self.red.as_ref().map_or("", |red| {
                let asked = self.row(row);
                let seen = red.rows.iter().find(|row| (&row.file, &row.name) == (&asked.file, &asked.name));
                match seen.and_then(|row| row.kind) {
                    Some(judge::Kind::Assertion) => "fails by an assertion",
                    Some(judge::Kind::Missing) => "misses a declared name",
                    Some(judge::Kind::Runtime) => "fails at run time, by no assertion",
                    Some(judge::Kind::Guard) => "passes: it guards what there is",
                    Some(judge::Kind::Compile) => {
                        "is not built without the code: shows only that a name is missing"
                    }
                    None => "was not seen to fail",
                }
            }),
        });
        rows.filter(|row| change.files.iter().any(|file| file.path == row.file)).collect()
    }
}

fn no_way(why: &str) -> StepError {
    StepError::User(format!(
        "The approved spec cannot be built: {why}. Write `/spec` to have it written anew, then start anew."
    ))
}

/// The files that an approved spec changes.
fn files_of(spec: &str) -> Vec<String> {
    Allowed::of(&spec::parse(spec), Part::Code).files.into_keys().collect()
}

impl Document for Text {
    fn about(&self) -> About {
        About {
            workflow: Implement::NAME,
            stage: "change",
            what: "change",
            commands: Implement::COMMANDS,
            steps: stage::steps(Implement::GRAPH),
            proofs: Implement::PROOFS,
            target: Target::Code,
        }
    }

    fn author(&self) -> &'static str {
        match self.part() {
            Part::Tests => {
                "a test engineer who writes the tests of an approved specification before there is any code"
            }
            _ => "a software engineer who writes the code of an approved specification, until its tests pass",
        }
    }

    fn role(&self) -> &'static str {
        "implementer"
    }

    fn shows_from(&self) -> Option<&'static str> {
        Some("N0.5")
    }

    fn inputs(&self) -> &'static [Input] {
        const SPEC_FIRST: [Input; 5] = [
            Input { kind: SPEC, heading: "The approved spec", made_by: Some("/spec") },
            Input { kind: "lld", heading: "The approved design", made_by: None },
            issue::LEFT[0],
            issue::LEFT[1],
            issue::LEFT[2],
        ];
        &SPEC_FIRST
    }

    fn files_to_change(&self) -> Vec<String> {
        files_of(&self.spec)
    }

    fn gate(&self, step: &str, _policy: &Policy) -> Option<Gate> {
        // What is pushed is run: always a person's word.
        (step == "N7").then_some(Gate { word: "implement", asks: Asks::Verdict, on: true, ways: &[] })
    }

    fn rules(&self) -> String {
        change::format_rules(self.part())
    }

    fn fix(&self, text: &str, issue: IssueNo) -> (String, usize) {
        change::fix(text, issue, self.locked.as_deref().and_then(change::tests_of))
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<Mistake> {
        let allowed = Allowed::of(&spec::parse(&self.spec), self.part());
        let mut mistakes = change::check(text, issue, &allowed, &self.files, tree);
        if self.part() == Part::Tests && !mistakes.iter().any(Mistake::is_error) {
            mistakes.extend(self.hollow(text, &allowed));
        }
        mistakes
    }

    fn facts(&self, commit: &str) -> String {
        let runs: String = self.facts_of_runs().iter().map(|fact| format!("- {fact}\n")).collect();
        let tests = match self.part() {
            Part::Tests => {
                "There are only the tests yet, and they are locked after this: judge whether they show each requirement and each \
                 row of the Test Mapping, and whether wrong code could pass them. That there is no code is no fault."
            }
            _ => {
                "The section `## Tests` was locked when its tests were seen to fail, before there was any code."
            }
        };
        format!(
            "- It has the files of the approved spec and no other, and each search stands in its file at commit {commit} once.\n- \
             {tests}\n{runs}"
        )
    }

    fn summary(&self, text: &str) -> String {
        let runs: String = self.facts_of_runs().iter().map(|fact| format!("\n- {fact}")).collect();
        format!("{}\n{runs}", change::summary(text))
    }

    fn paths(&self, text: &str) -> Vec<String> {
        change::paths(text)
    }

    fn place_exists(&self, text: &str, place: &str, tree: &TreeIndex) -> bool {
        change::place_exists(text, place, tree)
    }

    fn line_of(&self, text: &str, place: &str) -> Option<usize> {
        change::line_of(text, place)
    }

    fn unchanged_at(&self, before: &str, now: &str, place: &str) -> bool {
        change::unchanged_at(before, now, place)
    }

    fn files(&self, text: &str) -> Result<Vec<(String, Option<String>)>, StepError> {
        change::apply(&change::parse(text), &self.files).map_err(|mistakes| {
            StepError::Bug(anyhow::anyhow!("a change that was tried cannot be made: {mistakes:?}"))
        })
    }

    fn report(&self, text: &str) -> Option<String> {
        let change = change::parse(text);
        let files = change.files.iter().map(|file| FileLine {
            part: file.part.as_str(),
            change: file.kind.as_str(),
            path: file.path.clone(),
        });
        let ran = self.before.as_ref();
        Some(messages::change_report(&ChangeReport {
            issue: self.issue?,
            title: change.title.clone(),
            commit: self.commit.clone(),
            summary: text[change.summary.clone()].trim().to_owned(),
            files: files.collect(),
            proofs: self.proofs(&change),
            facts: self.facts_of_runs(),
            runner: ran.map(|ran| ran.runner.clone()).unwrap_or_default(),
            level: ran.map(|ran| ran.level.clone()).unwrap_or_default(),
        }))
    }

    fn executed(&self, text: &str) -> Vec<String> {
        change::paths(text).into_iter().filter(|path| change::is_executed(path)).collect()
    }

    fn diff(&self, text: &str) -> Option<String> {
        Some(change::diff(&change::parse(text), &self.files))
    }
}
