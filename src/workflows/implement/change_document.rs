//! The document of `implement`: the format of a change, its evidence, and its published files.

use std::collections::{BTreeMap, BTreeSet};

use super::{ImplementRunState, ImplementWorkflow};
use crate::{
    codebase::{self, Language, TreeIndex},
    documents::{
        DocumentMistake,
        change::{
            self, ChangeScope, ChangeSection, FileChange, ParsedChange, TestEvidence, Workspace,
            adversarial::AdversarialTestFile,
        },
        lld,
        spec::{self, ParsedSpec},
    },
    engine::{StepError, Workflow as _, WorkflowStep as _},
    messages::{ChangeReport, ProofLine},
    rounds::{self, Policy, StepContext, load_text},
    runners::{
        ChangeCoverage, TestError,
        change_verification::{
            ChangeVerifier, FileOverlay, MutationCheck, RecordedTestRun, RepositoryCheck,
            RepositoryCheckKind, RepositoryComplaint,
        },
        red_green::{self, ExpectedTest, GreenProof, RedProof},
        sanitize_line, unfetched_note, unmeasured_reason,
    },
    stage::{
        self, DocumentGate, DocumentInfo, Exception, ExceptionRequest, GateQuestion, PublicationTarget,
        StageDocument, StageInput,
    },
    types::{Hash, IssueNo},
};

use super::{adversarial::AdversarialResults, replay::BaseReplay};
use crate::workflows::{issue, spec as spec_workflow};

/// Artifact kind of the approved spec. `DESIGN` is the artifact kind of the design.
pub(super) const SPEC: &str = "spec";
const DESIGN: &str = "lld";

/// Kind of the background text that contains the locked tests. The drafter of the code sees this text.
pub(super) const LOCKED_TESTS: &str = "locked-tests";
pub(super) const LOCKED_HEADING: &str =
    "The locked tests: they failed without the code, and the code must make them pass";

/// Rules for the drafter of tests that a person asked for.
const REOPENED_RULES: &str = "A person asked for other tests. As far as that person's words ask for it, a test of the \
    specification is dropped, renamed, or moved to another test file, also to one that the specification does not list. Keep \
    every other test as it is. A test that already passes without the code needs its `Guards:` line in its new file, too.\n";

/// Maximum number of uncovered lines listed for the model that writes tests.
const MOST_LINES_FOR_MODELS: usize = 40;

/// Maximum number of uncovered lines listed for people.
const MOST_LINES_FOR_PEOPLE: usize = 5;

/// The change document, together with everything else that a step needs.
#[derive(Default, Clone)]
pub(super) struct ChangeDocument {
    /// The approved spec; empty until it is loaded.
    spec: String,
    design: String,
    /// Version of the change with the locked tests.
    locked: Option<String>,
    /// Contents, at the base commit, of the files that the spec lists.
    pub(super) files: BTreeMap<String, String>,
    /// Test run on the base commit, before the change. The next fields are the other test runs and proofs that make up
    /// the evidence.
    pub(super) before: Option<RecordedTestRun>,
    pub(super) red: Option<RedProof>,
    pub(super) green: Option<GreenProof>,
    pub(super) adversary: Option<AdversarialResults>,
    pub(super) lines: Vec<RepositoryCheck>,
    complaints: Vec<RepositoryCheckKind>,
    bite: Option<MutationCheck>,
    pub(super) replayed: Option<BaseReplay>,
    pub(super) covered: Option<ChangeCoverage>,
    document: Option<Hash>,
    commit: String,
    issue: Option<IssueNo>,
    /// Files that were pushed by this run or by an earlier run of the issue.
    pushed: BTreeSet<String>,
    /// Whether the current draft fixes CI failures of files that were already pushed.
    mends: bool,
    /// Exceptions that people have granted.
    leaves: Vec<Exception>,
    /// Files allowed in addition to those that the spec lists.
    besides: Vec<String>,
    /// Whether a person asked for other tests, which are not locked yet.
    is_reopened: bool,
}

impl ChangeDocument {
    pub(super) async fn load(s: &ImplementRunState, cx: &StepContext) -> Result<Self, StepError> {
        Self::load_with_files(s, cx, &[]).await
    }

    /// Loads the change as if the files `paths` were allowed in addition.
    pub(super) async fn load_with_files(
        s: &ImplementRunState,
        cx: &StepContext,
        paths: &[String],
    ) -> Result<Self, StepError> {
        let spec = s.stage.background_text(SPEC, cx).await?;
        let design = s.stage.background_text(DESIGN, cx).await?;
        let locked = match &s.locked {
            Some(hash) => Some(load_text(cx, hash).await?),
            None => None,
        };
        let (mut files, mut commit) = (BTreeMap::new(), String::new());
        let leaves = s.stage.exceptions().to_vec();
        let besides = [excepted_files(&leaves), paths.to_vec()].concat();
        // A person may have asked for tests in files that the spec does not list.
        let tests = match (&locked, s.reopened.as_ref().and(s.stage.document())) {
            (Some(locked), _) => locked.clone(),
            (None, Some(tests)) => load_text(cx, &tests).await?,
            (None, None) => String::new(),
        };
        if let Ok(base) = s.stage.base() {
            let more = s.pushed.iter().cloned().chain(change::test_paths(&tests)).collect();
            let paths = [spec_files(&spec), besides.clone(), more].concat();
            files = rounds::read_raw_files(cx, base, &paths).await?;
            commit = base.commit.to_string();
        }
        let document = s.stage.document();
        let of = |all: &[(Hash, Hash)], text: Option<Hash>| {
            all.iter().rev().find(|(of, _)| Some(*of) == text).map(|(_, evidence)| *evidence)
        };
        let (red, green) = (of(&s.reds, s.locked.or(document)), of(&s.greens, document));
        let of_this = |known: Option<(Hash, Hash)>| {
            known.filter(|(of, _)| Some(*of) == document).map(|(_, evidence)| evidence)
        };
        let (bite, covered, replayed) = (of_this(s.bite), of_this(s.covered), of_this(s.replayed));
        let complaints = s.complaints.iter().filter(|(of, _, complains)| Some(*of) == document && *complains);
        Ok(Self {
            spec,
            design,
            locked,
            files,
            before: super::load_json(cx, s.before).await?.map(RecordedTestRun::with_current_ids),
            red: super::load_json(cx, red).await?,
            green: super::load_json(cx, green).await?,
            adversary: super::load_json(cx, s.adversary).await?,
            lines: super::load_json(cx, s.lines).await?.unwrap_or_default(),
            complaints: complaints.map(|(_, which, _)| *which).collect(),
            bite: super::load_json(cx, bite).await?,
            replayed: super::load_json(cx, replayed).await?,
            covered: super::load_json(cx, covered).await?.flatten(),
            document,
            commit,
            issue: Some(cx.run().trigger.issue),
            pushed: s.pushed.clone(),
            mends: s.stage.is_fixing_ci(),
            leaves,
            besides,
            is_reopened: s.reopened.is_some(),
        })
    }

    /// Returns the section that is being drafted: code once the tests are locked, tests before that.
    fn current_part(&self) -> ChangeSection {
        if self.locked.is_some() { ChangeSection::Code } else { ChangeSection::Tests }
    }

    /// Returns the files to overlay on the base commit before running the tests of the document version `text`.
    pub(super) fn overlay(&self, text: &str) -> Result<FileOverlay, Vec<DocumentMistake>> {
        change::apply(&change::parse(text), &self.files).map(change::overlay_files)
    }

    /// Returns the [`overlay`](Self::overlay) of a version that was tested before. An error can only be a bug of ours,
    /// because the earlier overlay succeeded.
    pub(super) fn tried_overlay(&self, text: &str) -> Result<FileOverlay, StepError> {
        self.overlay(text).map_err(tried_change_error)
    }

    /// Returns whether the tests section of the version `text` is byte for byte the locked one.
    pub(super) fn has_locked_tests(&self, text: &str) -> bool {
        change::tests_section(text) == self.locked.as_deref().and_then(change::tests_section)
    }

    pub(super) fn spec(&self) -> ParsedSpec {
        spec::parse(&self.spec)
    }

    /// Returns the spec with the Test Mapping of the change `text`. They differ if a person asked for other tests: a
    /// test then may have moved to another file, or be gone.
    fn spec_for(&self, text: &str) -> ParsedSpec {
        let (mut spec, change) = (self.spec(), change::parse(text));
        let made: BTreeMap<_, _> =
            change::apply(&change, &self.files).unwrap_or_default().into_iter().collect();
        let paths = spec.tests.iter().map(|row| &row.file);
        let paths = paths.chain(change.files_in(ChangeSection::Tests).map(|file| &file.path)).cloned();
        // Each file is parsed once, not once for each row.
        let audits: BTreeMap<String, _> = paths
            .collect::<BTreeSet<_>>()
            .into_iter()
            .filter_map(|path| {
                let text = made.get(&path).map_or(self.files.get(&path), Option::as_ref)?;
                let tests = codebase::audit_tests(Language::from_path(&path), text);
                Some((path, (text, tests)))
            })
            .collect();
        let has_test = |path: &str, name: &str| match audits.get(path) {
            Some((_, Some(tests))) => tests.contains_name(name),
            Some((text, None)) => change::mentions_test(text, name),
            None => false,
        };
        spec.tests.retain_mut(|row| {
            let is_moved_to = |file: &&FileChange| has_test(&file.path, &row.name);
            if has_test(&row.file, &row.name) {
                return true;
            }
            let moved = change.files_in(ChangeSection::Tests).find(is_moved_to);
            moved.map(|file| row.file.clone_from(&file.path)).is_some()
        });
        spec
    }

    /// Returns the spec with the Test Mapping that the tests of `text` must follow.
    pub(super) fn wanted_spec(&self, text: &str) -> ParsedSpec {
        match (&self.locked, self.is_reopened) {
            (Some(locked), _) => self.spec_for(locked),
            (None, true) => self.spec_for(text),
            (None, false) => self.spec(),
        }
    }

    /// Returns the files and tests that the change `text` may contain at this stage. They come from the spec, from
    /// granted exceptions and from the added adversarial tests.
    pub(super) fn allowed(&self, text: &str) -> ChangeScope {
        let mut allowed = self.allowed_files();
        allowed.rows = self.wanted_spec(text).tests;
        allowed.is_reopened = self.is_reopened;
        allowed
    }

    /// Returns the [`allowed`](Self::allowed) files, with the tests of the spec.
    fn allowed_files(&self) -> ChangeScope {
        let allowed =
            ChangeScope::from_spec(&self.spec(), self.current_part()).with_files(&self.besides, &self.files);
        match &self.locked {
            Some(locked) => allowed.with_tests(&change::parse(locked)),
            None => allowed,
        }
    }

    /// Returns what the test runs of the tests in `text` must show.
    pub(super) fn expectations(&self, text: &str, before: &RecordedTestRun) -> red_green::TestExpectations {
        let mut expected = before.expectations(&self.wanted_spec(text), &change::parse(text));
        expected.is_reopened = self.is_reopened;
        expected
    }

    /// Returns the form in which the repository's test runner identifies a test.
    pub(super) fn test_row(&self, file: &str, name: &str) -> ExpectedTest {
        self.before.clone().unwrap_or_default().expected_test(file, name)
    }

    /// Returns whether the runner could confuse this test with another one. This requires that the runner identifies
    /// tests by name only and that one test's id ends with the other test's name. `new` are tests in addition to those
    /// of the spec.
    pub(super) fn is_name_taken(&self, name: &str, new: &[AdversarialTestFile]) -> bool {
        let row = |name: &str| self.test_row("", name);
        let of_runs = |name: &str| self.known_tests().iter().any(|id| row(name).matches_id(id));
        let spec = self.spec();
        let mut others = spec.tests.iter().map(|row| &row.name).chain(new.iter().map(|test| &test.name));
        let alone = self.before.as_ref().is_some_and(RecordedTestRun::is_command);
        alone
            && (of_runs(name)
                || others.any(|other| row(name).matches_id(other) || row(other).matches_id(name)))
    }

    /// Returns the ids of all tests that have run so far.
    pub(super) fn known_tests(&self) -> Vec<String> {
        let before = self.before.iter().flat_map(|ran| ran.found.tests.iter().map(|test| &test.id));
        before.chain(self.green.iter().flat_map(|green| &green.locked)).cloned().collect()
    }

    /// Returns the reason why the test with this name in this file proves nothing, for example because it asserts
    /// nothing. Returns `None` if no reason is found or the language is not supported.
    pub(super) fn vacuous_reason(&self, path: &str, text: &str, name: &str) -> Option<String> {
        let tests = codebase::audit_tests(Language::from_path(path), text)?;
        // The file's own name for the test is not repeated: it is untrusted text.
        let hollow = tests.hollow.first().map(|(_, _, why)| format!("a test in it {why}"));
        hollow
            .or_else(|| (!tests.contains_name(name)).then(|| "the file has no test of that name".to_owned()))
    }

    /// Stubs of the declarations in design and spec, as far as they compile before the code is written, next to the
    /// inline tests of this change.
    pub(super) fn stubs(&self, tests: &ParsedChange) -> FileOverlay {
        let spec = self.spec();
        let parts = spec.types.iter().chain(&spec.functions).flat_map(|part| part.code.first()).cloned();
        let blocks: Vec<String> = lld::signature_blocks(&self.design).into_iter().chain(parts).collect();
        change::overlay_files(change::make_stubs(
            &blocks,
            &ChangeScope::from_spec(&spec, ChangeSection::Code),
            &change::with_inline_tests(tests, &self.files),
        ))
    }

    /// Checks that the approved spec still fits the code. If it does not, no draft could be right, so the run fails
    /// before a model is called.
    pub(super) fn require_spec_fits(&self, issue: IssueNo, tree: &TreeIndex) -> Result<(), StepError> {
        let misfit = |mistakes: Vec<DocumentMistake>| {
            mistakes.into_iter().find(|mistake| mistake.is_error() && mistake.rule.starts_with("files."))
        };
        let scope = ChangeScope::from_spec(&self.spec(), ChangeSection::Code);
        let why = match misfit(spec::check(&self.spec, issue, tree)) {
            Some(mistake) => format!("no longer fits the code: {}", mistake.message),
            None => match change::unbuildable_reason(&scope, tree) {
                Some(why) => format!("cannot be built: {why}"),
                None => return Ok(()),
            },
        };
        // A spec must have the files of its design.
        let by_design = misfit(lld::check(&self.design, issue, tree)).is_some()
            || spec_workflow::unbuildable_reason(&self.design, tree).is_some();
        let command = if by_design { "`/lld` to revise its design" } else { "`/spec` to rewrite it" };
        Err(StepError::User(format!("The approved spec {why}. Write {command}, then start again.")))
    }

    /// Checks that the runner can run each test of the spec by name. Otherwise we could not see whether that test
    /// fails.
    pub(super) fn require_addressable_tests(&self, ran: &RecordedTestRun) -> Result<(), StepError> {
        ran.unreachable_tests(&self.spec()).first().map_or(Ok(()), |why| Err(unbuildable_spec_error(why)))
    }

    /// Returns mistakes for new tests without assertions, and for tests of the spec that exist only in comments.
    fn find_vacuous_tests(&self, text: &str, allowed: &ChangeScope) -> Vec<DocumentMistake> {
        let (change, mut wrong) = (change::parse(text), Vec::new());
        let files = change::apply(&change, &self.files).unwrap_or_default();
        let read = |path: &str, text: &str| codebase::audit_tests(Language::from_path(path), text);
        let is_of_tests = |path: &str| change.files_in(ChangeSection::Tests).any(|file| file.path == path);
        for (path, made) in files.iter().filter(|(path, _)| is_of_tests(path)) {
            let Some(tests) = made.as_ref().and_then(|text| read(path, text)) else { continue };
            let before = self.files.get(path).and_then(|text| read(path, text)).unwrap_or_default();
            let known = |name: &str| before.hollow.iter().any(|(known, ..)| known == name);
            let new = tests.hollow.iter().filter(|(name, ..)| !known(name));
            wrong.extend(new.map(|(name, line, why)| {
                (format!("{path}:{line}"), format!("`{}` {why}", sanitize_line(name).replace('`', "'")))
            }));
            let gone = allowed.rows.iter().filter(|row| row.file == *path && !tests.contains_name(&row.name));
            wrong.extend(gone.map(|row| {
                (path.clone(), format!("it has no test `{}`, which the approved spec asks for", row.name))
            }));
        }
        let places = wrong.into_iter().map(|(place, why)| super::to_mistake("tests.hollow", &place, why));
        places.collect()
    }

    /// Checks Rust files, which may hold code and tests: `Tests` changes only their test code, and `Code` only the rest.
    /// Code neither adds tests nor replaces what tests use.
    fn check_inline_tests(&self, text: &str) -> Vec<DocumentMistake> {
        let (change, spec) = (change::parse(text), self.spec());
        let made = change::apply(&change, &self.files).unwrap_or_default();
        let tested = change::with_inline_tests(&change, &self.files);
        let split = |path: &str, text: &str| {
            let rows = spec.removed_tests.iter().filter(|row| row.file == path);
            let removed: Vec<&str> = rows.filter_map(|row| row.name.rsplit("::").next()).collect();
            codebase::split_inline_tests(Language::from_path(path), text, &removed)
        };
        let tests_of =
            |path: &str| Some(split(path, tested.get(path)?)?.tests).filter(|tests| !tests.is_empty());
        let is_in = |path: &str, part: ChangeSection| change.files_in(part).any(|file| file.path == path);
        let why = made.iter().filter_map(|(path, after)| {
            let in_tests = is_in(path, ChangeSection::Tests);
            let after = after.as_deref().filter(|_| path.ends_with(".rs"))?;
            if in_tests && !change::can_hold_inline_tests(path) {
                return None;
            }
            let parts = |texts: &BTreeMap<String, String>| {
                split(path, texts.get(path).map_or("", String::as_str))
            };
            let of_after = split(path, after);
            let (Some(before), Some(locked), Some(after)) = (parts(&self.files), parts(&tested), of_after) else {
                // What cannot be parsed has no inline tests of this change.
                let is_known = in_tests || parts(&tested).is_some() && after.contains("test");
                let why = "cannot be parsed, so its tests cannot be told from its code; keep the file parsable";
                return is_known.then(|| (path, why.to_owned()));
            };
            if before.code != locked.code && self.files.contains_key(path) {
                let why = "has changes below `## Tests` outside its test code (`#[cfg(test)]` and test functions); leave \
                           them to the code";
                return Some((path, why.to_owned()));
            }
            // A file that moves takes its tests along.
            let is_gone = |path: &str| made.iter().any(|(known, text)| known == path && text.is_none());
            let mut gone = tested.keys().filter(|path| is_gone(path));
            let mut has_moved = |after: &str| gone.any(|path| tests_of(path).as_deref() == Some(after));
            let redirected = after.redirected.iter().find(|name| {
                let ends = [format!("/{name}.rs"), format!("/{name}/mod.rs")];
                let mut files = tested.keys().filter(|path| !is_gone(path) && tests_of(path).is_some());
                !before.redirected.contains(name) && files.any(|path| ends.iter().any(|end| path.ends_with(end)))
            });
            let why = match redirected {
                Some(name) => format!("points `mod {name}` to another file than its tests are in"),
                None if after.hidden > locked.hidden => {
                    "has a test attribute in a macro, or a condition such as `cfg!(test)`; code has no tests and is the \
                     same with and without them"
                        .to_owned()
                }
                None if after.tests == locked.tests => return None,
                None if locked.tests.is_empty() && has_moved(&after.tests) => return None,
                None if locked.tests.is_empty() => "adds test code; only `## Tests` does".to_owned(),
                None => "has other test code than the locked tests; change only its code".to_owned(),
            };
            Some((path, why))
        });
        let mut mistakes: Vec<_> = why
            .map(|(path, why)| super::to_mistake("tests.inline", path, format!("`{path}` {why}")))
            .collect();
        let is_code = |path: &str| is_in(path, ChangeSection::Code);
        for (path, after) in made.iter().filter(|(path, _)| path.ends_with(".rs") || is_code(path)) {
            let (before, after) =
                (self.files.get(path).map_or("", String::as_str), after.as_deref().unwrap_or_default());
            if let Some(name) = codebase::shadowed_assertion(Language::from_path(path), after, before) {
                let name = sanitize_line(&name).replace('`', "'");
                let why = format!(
                    "`{path}` defines its own `{name}`, which would change what tests assert; name it differently"
                );
                mistakes.push(super::to_mistake("tests.shadowed", path, why));
            }
            let hooks = |text: &str| codebase::runner_hooks(path, text, is_code);
            if let Some(hook) = hooks(after).iter().find(|hook| !hooks(before).contains(hook)) {
                let hook = sanitize_line(hook).replace('`', "'");
                let why = format!(
                    "`{path}` lets code of this change act as the test runner (`{hook}`); leave that out"
                );
                mistakes.push(super::to_mistake("tests.runner", path, why));
            }
            // Without its declaration a locked test file would not be compiled.
            let modules = |text: &str| split(path, text).map(|split| split.modules).unwrap_or_default();
            let (locked, kept) =
                (tested.get(path).map(|text| modules(text)).unwrap_or_default(), modules(after));
            if let Some(gone) = locked.iter().find(|module| !after.is_empty() && !kept.contains(module)) {
                let gone = sanitize_line(gone).replace('`', "'");
                let why = format!("`{path}` must keep `{gone}`, which compiles a file with tests");
                mistakes.push(super::to_mistake("tests.module", path, why));
            }
        }
        mistakes
    }

    /// Formats the files of the drafted section with the repository's formatter. A file stays as it is if the locked tests
    /// or the checks would not allow the change. Returns the new version and the formatter's complaint, if any.
    pub(super) async fn format(
        &self,
        trial: &ChangeVerifier,
        mut text: String,
        tree: &TreeIndex,
    ) -> Result<(String, Option<RepositoryComplaint>), TestError> {
        let files = match trial.format_files(&self.lines, &self.overlay(&text).unwrap_or_default()).await? {
            Ok(files) => files,
            Err(said) => return Ok((text, Some((RepositoryCheckKind::Format, Some(said))))),
        };
        let mut complaint = None;
        for (path, mut formatted) in files {
            if self.locked.is_some() {
                // Only the tests section changes tests: a block of the code that does would not fit other tests.
                let made = change::apply(&change::parse(&text), &self.files).unwrap_or_default();
                let current = made.iter().find(|(of, _)| *of == path).and_then(|(_, text)| text.as_deref());
                formatted = current.map_or(formatted.clone(), |current| with_tests_of(&formatted, current));
                if current == Some(&formatted) {
                    complaint = Some((RepositoryCheckKind::Format, None));
                    continue;
                }
            }
            let workspace = Workspace::new(self.allowed(&text), self.files.clone(), &text);
            let new = workspace.replace_file(&text, &path, &formatted).filter(|new| {
                let made = change::apply(&change::parse(new), &self.files).unwrap_or_default();
                let mistakes = self.check(new, self.issue.unwrap_or(IssueNo(0)), tree);
                made.contains(&(path.clone(), Some(formatted.clone())))
                    && (self.locked.is_none() || self.has_locked_tests(new))
                    && !mistakes.iter().any(DocumentMistake::is_error)
            });
            match new {
                Some(new) => text = new,
                None => complaint = Some((RepositoryCheckKind::Format, None)),
            }
        }
        Ok((text, complaint))
    }

    fn unfetched_note(&self) -> Option<String> {
        unfetched_note(self.files_to_change().iter().map(String::as_str))
    }

    /// Adds a note on dependencies that could not be fetched to a user error, because missing dependencies may explain
    /// the error.
    pub(super) fn with_unfetched_note(&self, why: StepError) -> StepError {
        match (why, self.unfetched_note()) {
            (StepError::User(why), Some(note)) => StepError::User(format!("{why} {note}.")),
            (why, _) => why,
        }
    }

    /// Collects the evidence from all test runs, proofs and checks of the change.
    fn evidence(&self) -> TestEvidence {
        let mut evidence = TestEvidence::default();
        self.red.iter().for_each(|red| red.add_evidence(&mut evidence));
        self.green.iter().for_each(|green| green.add_evidence(&mut evidence));
        self.bite.iter().for_each(|bite| bite.add_evidence(&mut evidence));
        self.adversary.iter().for_each(|adversary| adversary.add_evidence(self.document, &mut evidence));
        // Before the green proof, not all checks ran with this text.
        for line in self.lines.iter().filter(|_| self.green.is_some()) {
            line.add_evidence(self.complaints.contains(&line.which), &mut evidence);
        }
        let (covered, most) = match &self.bite {
            Some(bite) => (&bite.covered, MOST_LINES_FOR_PEOPLE),
            None => (&self.covered, MOST_LINES_FOR_MODELS),
        };
        match covered {
            Some(covered) => covered.add_evidence(most, &mut evidence),
            None if self.bite.is_some() => {
                let runner = self.before.as_ref().map_or("", |ran| ran.runner.as_str());
                evidence.not_shown.push(format!("Coverage was not measured: {}.", unmeasured_reason(runner)));
            }
            None => {}
        }
        self.replayed.iter().for_each(|replayed| replayed.add_evidence(&mut evidence));
        evidence.review.extend(self.dropped_tests());
        evidence
            .not_shown
            .extend(self.before.iter().flat_map(RecordedTestRun::all_notes).map(|note| format!("{note}.")));
        evidence
    }

    /// Returns the evidence, with additional notes about parts of the change that people must review or handle
    /// themselves.
    fn evidence_for_people(&self, text: &str) -> TestEvidence {
        let mut evidence = self.evidence();
        let shown = |path: &str| format!("`{}`", sanitize_line(path).replace('`', "'"));
        if self.green.is_some() {
            let why =
                "The tests run together with the code, so code that fakes their results cannot be ruled out.";
            evidence.not_shown.push(why.to_owned());
        }
        let allowed = self.leaves.iter().map(|leave| leave.sentence());
        evidence.review.extend(allowed);
        let offered = change::file_paths(text).into_iter().filter(|path| change::is_workflow(path));
        evidence.review.extend(offered.map(|path| {
            format!("{} is a GitHub Actions workflow: not committed, but offered as a patch.", shown(&path))
        }));
        let restored: Vec<String> = self.restored_paths(text).map(|path| shown(path)).collect();
        if !restored.is_empty() {
            let restored = restored.join(", ");
            evidence
                .review
                .push(format!("Files that only an earlier push changed were reverted: {restored}."));
        }
        evidence
    }

    /// Returns a sentence with the tests that are gone because a person asked for other tests.
    fn dropped_tests(&self) -> Option<String> {
        let red = self.red.as_ref()?;
        let wish = |leave: &&Exception| matches!(leave.wish, ExceptionRequest::Tests { .. });
        let by = self.leaves.iter().rev().find(wish).map(|leave| format!("`{}`", leave.by));
        let by = by.or_else(|| self.is_reopened.then(|| "a person".to_owned()))?;
        let rows = self.spec().tests.into_iter();
        let rows = rows.filter(|row| {
            let asked = self.test_row(&row.file, &row.name);
            !red.rows.iter().any(|row| (&row.file, &row.name) == (&asked.file, &asked.name))
        });
        let dropped: Vec<String> = red.dropped.iter().cloned().chain(rows.map(|row| row.name)).collect();
        let names = red_green::list_tests(&dropped);
        (!dropped.is_empty())
            .then(|| format!("Tests that are removed, renamed or moved, as {by} asked: {names}."))
    }

    /// Returns the pushed files that the version `text` no longer changes. The next push restores these files to their
    /// content at the base commit.
    fn restored_paths(&self, text: &str) -> impl Iterator<Item = &String> {
        let paths = change::file_paths(text);
        self.pushed.iter().filter(move |path| !paths.contains(path))
    }

    fn proofs(&self, text: &str, change: &ParsedChange) -> Vec<ProofLine> {
        let ParsedSpec { tests, doc_tests, .. } = self.wanted_spec(text);
        let rows = tests.iter().filter_map(|row| {
            let red = match &self.red {
                Some(red) => {
                    let asked = self.test_row(&row.file, &row.name);
                    let is_asked = |row: &&ExpectedTest| (&row.file, &row.name) == (&asked.file, &asked.name);
                    red.describe_test(red.rows.iter().find(is_asked)?)
                }
                None => "",
            };
            let (test, file) = (row.name.clone(), row.file.clone());
            Some(ProofLine { requirements: row.requirements.clone(), test, file, red })
        });
        let doc_tests = doc_tests.iter().map(|row| ProofLine {
            requirements: row.requirements.clone(),
            test: row.name.clone(),
            file: row.file.clone(),
            red: "is a doc test, written with the code",
        });
        let rows = rows.chain(doc_tests);
        rows.filter(|row| change.files.iter().any(|file| file.path == row.file)).collect()
    }
}

fn tried_change_error(mistakes: Vec<DocumentMistake>) -> StepError {
    StepError::Bug(anyhow::anyhow!("a change that applied before cannot be applied: {mistakes:?}"))
}

fn unbuildable_spec_error(why: &str) -> StepError {
    StepError::User(format!(
        "The approved spec cannot be built: {why}. Write `/spec` to rewrite it, then start again."
    ))
}

/// Returns the paths of the files that an approved spec changes.
fn spec_files(spec: &str) -> Vec<String> {
    ChangeScope::from_spec(&spec::parse(spec), ChangeSection::Code).files.into_keys().collect()
}

/// Returns the paths of the files that people allowed by exceptions.
fn excepted_files(leaves: &[Exception]) -> Vec<String> {
    leaves.iter().flat_map(|leave| leave.wish.paths()).cloned().collect()
}

impl StageDocument for ChangeDocument {
    fn info(&self) -> DocumentInfo {
        DocumentInfo {
            workflow: ImplementWorkflow::NAME,
            stage: "change",
            what: "change",
            commands: ImplementWorkflow::COMMANDS,
            steps: stage::step_infos(ImplementWorkflow::GRAPH),
            proofs: ImplementWorkflow::PROOFS,
            target: PublicationTarget::Code,
            roles: &["implementer", "tester", "maintainer"],
        }
    }

    fn author_persona(&self) -> &'static str {
        match self.current_part() {
            ChangeSection::Tests => {
                "a test engineer who writes the tests of an approved specification before there is any code"
            }
            _ => "a software engineer who writes the code of an approved specification, until its tests pass",
        }
    }

    fn role(&self) -> &'static str {
        match self.current_part() {
            ChangeSection::Tests => "tester",
            _ if self.mends => "maintainer",
            _ => "implementer",
        }
    }

    fn workspace(&self, draft: Option<&str>) -> Option<Workspace> {
        let text = draft.or(self.locked.as_deref()).unwrap_or_default();
        Some(Workspace::new(self.allowed(text), self.files.clone(), text))
    }

    fn first_shown_step(&self) -> Option<&'static str> {
        Some(super::ImplementStep::Base.id())
    }

    fn inputs(&self) -> &'static [StageInput] {
        const SPEC_FIRST: [StageInput; 5] = [
            StageInput { kind: SPEC, heading: "The approved spec", made_by: Some("/spec") },
            StageInput { kind: DESIGN, heading: "The approved design", made_by: None },
            issue::ISSUE_INPUTS[0],
            issue::ISSUE_INPUTS[1],
            issue::ISSUE_INPUTS[2],
        ];
        &SPEC_FIRST
    }

    fn files_to_change(&self) -> Vec<String> {
        let allowed = self.allowed_files().files.into_keys();
        allowed.chain(self.pushed.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn gate(&self, step: &str, _policy: &Policy) -> Option<DocumentGate> {
        // CI runs what is pushed, so a person always approves.
        (step == super::ImplementStep::Gate.id()).then_some(DocumentGate {
            word: "implement",
            question: GateQuestion::Verdict,
            is_on: true,
            options: &[],
        })
    }

    fn rules(&self) -> String {
        // Tell the drafter before the call is paid for.
        let unfetched = self.unfetched_note().map(|note| format!("\n{note}.\n"));
        let reopened = if self.is_reopened { REOPENED_RULES } else { "" };
        change::format_rules(self.current_part()) + reopened + &unfetched.unwrap_or_default()
    }

    fn fix(&self, text: &str, issue: IssueNo) -> String {
        change::fix(text, issue, self.locked.as_deref().and_then(change::tests_section))
    }

    fn check(&self, text: &str, issue: IssueNo, tree: &TreeIndex) -> Vec<DocumentMistake> {
        let mut allowed = self.allowed(text);
        let mut mistakes = change::check(text, issue, &allowed, &self.files, tree);
        if self.overlay(text).is_ok() {
            mistakes.extend(self.check_inline_tests(text));
            let is_told = |name: &str| {
                let missing = mistakes.iter().filter(|mistake| mistake.rule == "tests.name");
                missing.map(|mistake| &mistake.message).any(|told| told.contains(&format!("`{name}`")))
            };
            allowed.rows.retain(|row| !is_told(&row.name));
            if self.current_part() == ChangeSection::Tests {
                mistakes.extend(self.find_vacuous_tests(text, &allowed));
            }
        }
        mistakes
    }

    fn facts(&self, commit: &str) -> String {
        let runs: String = self.evidence().all_lines().iter().map(|fact| format!("- {fact}\n")).collect();
        let tests = match self.current_part() {
            ChangeSection::Tests => {
                "There are only the tests yet, and they are locked after this: judge whether they show each requirement and each \
                 row of the Test Mapping, and whether wrong code could pass them. That there is no code is no fault."
            }
            _ if self.leaves.iter().any(|leave| matches!(leave.wish, ExceptionRequest::Tests { .. })) => {
                "The section `## Tests` replaces tests that were locked before there was any code. The drafter of the code or a \
                 person asked for it. The present tests were seen to fail without the code, and people allowed them."
            }
            _ => {
                "The section `## Tests` was locked when its tests were seen to fail, before there was any code."
            }
        };
        format!(
            "- The change has the files of the approved spec{} and no others, except for added tests that are named below. Each \
             search text occurs once in its file at commit {commit}.\n- \
             {tests}\n{runs}",
            if self.leaves.is_empty() { "" } else { ", what people allowed in addition," }
        )
    }

    fn summary(&self, text: &str) -> String {
        change::summary(text)
    }

    fn paths(&self, text: &str) -> Vec<String> {
        let mut paths = change::file_paths(text);
        paths.extend(self.restored_paths(text).cloned());
        paths
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
        let mut files = change::apply(&change::parse(text), &self.files).map_err(tried_change_error)?;
        files.retain(|(path, _)| !change::is_workflow(path));
        files.extend(self.restored_paths(text).map(|path| (path.clone(), self.files.get(path).cloned())));
        Ok(files)
    }

    fn requirements(&self, _text: &str) -> BTreeMap<String, String> {
        lld::requirements(&self.design)
    }

    fn change_report(&self, text: &str) -> Option<ChangeReport> {
        let (change, ran) = (change::parse(text), self.before.as_ref());
        Some(ChangeReport {
            issue: self.issue?,
            title: change.title.clone(),
            why: text[change.summary.clone()].trim().to_owned(),
            only_documents: change.files_in(ChangeSection::Code).next().is_none(),
            evidence: self.evidence_for_people(text),
            proofs: self.proofs(text, &change),
            requirements: lld::requirements(&self.design),
            commit: self.commit.clone(),
            runner: ran.map(|ran| ran.runner.clone()).unwrap_or_default(),
            level: ran.map(|ran| ran.level.clone()).unwrap_or_default(),
        })
    }

    fn executed_files(&self, text: &str) -> Vec<String> {
        change::file_paths(text).into_iter().filter(|path| change::is_executed(path)).collect()
    }

    fn diff(&self, text: &str) -> Option<String> {
        Some(change::unified_diff(&change::parse(text).files, &self.files))
    }

    fn offered_patch(&self, text: &str) -> Option<String> {
        let change = change::parse(text);
        let workflows = change.files.iter().filter(|file| change::is_workflow(&file.path));
        Some(change::unified_diff(workflows, &self.files)).filter(|patch| !patch.is_empty())
    }

    fn named_test(&self, text: &str, request: &str) -> Option<String> {
        let (locked, spec) = (change::parse(self.locked.as_deref()?), self.spec());
        let proven = self.green.iter().flat_map(|green| &green.locked);
        let names = spec.tests.iter().map(|row| &row.name).chain(proven);
        let code: String =
            change::parse(text).files_in(ChangeSection::Code).map(|file| file.new_text()).collect();
        // A test and the code may have one name; then the request may mean the code.
        let names = names.filter_map(|name| change::test_name_parts(name).last());
        let names = names.filter(|name| change::find_named(&code, [*name]).is_none());
        let files = locked.files_in(ChangeSection::Tests).map(|file| file.path.as_str());
        let files = files.filter(|path| !change::can_hold_inline_tests(path));
        change::find_named(request, names.chain(files)).map(str::to_owned)
    }

    fn is_test_line(&self, text: &str, path: &str, line: Option<u64>) -> bool {
        let change = change::parse(text);
        if self.locked.is_none() || !change::can_hold_inline_tests(path) {
            return self.locked.is_some()
                && change.files_in(ChangeSection::Tests).any(|file| file.path == path);
        }
        let made = change::apply(&change, &self.files).unwrap_or_default();
        let made = made.into_iter().find(|(made, _)| made == path).and_then(|(_, text)| text);
        made.zip(line).is_some_and(|(text, line)| {
            codebase::is_inline_test_line(Language::from_path(path), &text, line as usize)
        })
    }
}

/// Returns the formatted source file with the test module of the current file, if each has one such module at its end.
fn with_tests_of(formatted: &str, current: &str) -> String {
    const MODULE: &str = "\n#[cfg(test)]\n";
    match (formatted.rsplit_once(MODULE), current.rsplit_once(MODULE)) {
        (Some((code, _)), Some((_, tests))) => format!("{code}{MODULE}{tests}"),
        _ => formatted.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatted_file_keeps_its_locked_test_module() {
        let file = |code: &str, tests: &str| format!("{code}\n\n#[cfg(test)]\nmod tests {{\n{tests}}}\n");
        assert_eq!(with_tests_of(&file("a", "    x\n"), &file("b", "x\n")), file("a", "x\n"));
        assert_eq!(with_tests_of("a\n", &file("b", "x\n")), "a\n");
    }

    #[test]
    fn drafter_rules_and_halt_message_say_that_new_dependencies_are_not_fetched() {
        let of = |path: &str| {
            let spec = format!(
                "## 2. Files to Implement\n\n| File | Change | Purpose |\n|---|---|---|\n| `{path}` | Modify | A crate |\n"
            );
            let text = ChangeDocument { spec, ..ChangeDocument::default() };
            (text.rules(), text.with_unfetched_note(StepError::User("It ends.".to_owned())).to_string())
        };
        let note = "`a/Cargo.toml` is changed; new dependencies in it are not fetched in this run.";
        let (rules, halt) = of("a/Cargo.toml");
        assert!(
            rules.ends_with(&format!("\n{note}\n")) && halt.ends_with(&format!("It ends. {note}")),
            "{halt}"
        );
        let (rules, halt) = of("src/lib.rs");
        assert!(!rules.contains("fetched") && halt.ends_with("It ends."), "{halt}");
    }
}
