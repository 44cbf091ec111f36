//! The interface that a workflow implements for its document. It covers all differences between the workflows that use
//! the document stage.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;

use crate::{
    codebase::TreeIndex,
    commands::CommandSpec,
    documents::{CodebaseLookup, DocumentMistake, change::Workspace, findings::Finding},
    engine::{Countersignature, LesserProof, RunCompletion, RunInfo, StepError, StepInfo, StepKind},
    messages::{self, ChangeReport, Provenance},
    rounds::{IssueSnapshot, Policy, StepContext},
    types::IssueNo,
};

/// Names, commands, steps and publication target of a reviewed document.
pub struct DocumentInfo {
    pub workflow: &'static str,
    /// Short name of the stage, as in `Design for #42`.
    pub stage: &'static str,
    /// Name of the document in prompts and messages, such as `low-level design`.
    pub what: &'static str,
    /// Commands that start the workflow; the first one is the workflow's own command.
    pub commands: &'static [CommandSpec],
    /// All steps, in the order of the graph.
    pub steps: Vec<StepInfo>,
    /// Proofs that are weaker than a person's approval but still suffice to publish the document.
    pub proofs: &'static [LesserProof],
    pub target: PublicationTarget,
    /// Names of the drafter roles in the role table.
    pub roles: &'static [&'static str],
}

/// Location where a document is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicationTarget {
    /// A file on the issue's branch with a pull request, if the settings say to publish files; otherwise a comment on
    /// the issue.
    Branch,
    /// A comment on the issue. Used instead of `Branch` if the settings say so.
    Comment,
    /// Files on the issue's branch. They are pushed only after approval, because CI runs all pushed code.
    Code,
    /// The issue's own text, or a new issue.
    Issue,
}

impl DocumentInfo {
    /// Returns the command that started the run. If the run was started by another run, returns the workflow's own
    /// command.
    pub(super) fn command(&self, run: &RunInfo) -> &'static CommandSpec {
        let named = self.commands.iter().find(|command| command.name == run.trigger.command);
        named.unwrap_or(&self.commands[0])
    }
}

/// The question that a gate asks people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateQuestion {
    /// May the draft go to review? Approving the draft never replaces a review.
    Draft,
    /// May the document be published if the following review approves it?
    Beforehand,
    /// Is the reviewed document accepted?
    Verdict,
    /// Is the document accepted without a review?
    Unreviewed,
    /// May the document exceed the scope that people approved? Only the exception gate asks this question; no document
    /// gate does.
    Exception,
}

/// A gate of a document, as configured by the run's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentGate {
    /// Word that people type after `/approve`: `lld` in `/approve lld 3f9c…`.
    pub word: &'static str,
    pub question: GateQuestion,
    /// Whether people are always asked. If not, drafts and documents with an APPROVED review pass without asking.
    /// People are still asked about all other documents.
    pub is_on: bool,
    /// Options, one of which an approval must name. Empty if there is nothing to choose.
    pub options: &'static [&'static str],
}

/// An artifact of an earlier stage that this stage uses as input.
#[derive(Debug, Clone, Copy)]
pub struct StageInput {
    pub kind: &'static str,
    /// Trusted heading of the artifact in the prompts.
    pub heading: &'static str,
    /// The command that produces the artifact. Set only if the stage cannot run without the artifact.
    pub made_by: Option<&'static str>,
}

/// An approved and countersigned document that is about to be filed on the issue.
pub struct AcceptedDocument<'a> {
    pub text: &'a str,
    pub signed: &'a Countersignature,
    /// Snapshot of the original issue at the time when people approved its replacement.
    pub issue: &'a IssueSnapshot,
    pub provenance: Provenance,
    /// Findings of the reviewer that are still open.
    pub open: Vec<Finding>,
}

/// Result of filing a document.
#[derive(Debug)]
pub enum FilingOutcome {
    /// The document was filed in this issue, which may differ from the run's issue.
    Issue(FiledDocument),
    /// Nothing was filed, because somebody edited the issue. The approval does not cover replacing the edited text.
    IssueEdited,
}

/// The issue that contains the filed document.
#[derive(Debug, Clone)]
pub struct FiledDocument {
    pub issue: IssueNo,
    pub outcome: RunCompletion,
}

/// A check that looks up names from the document's text in the code.
pub type NamesCheck = fn(&str, &dyn CodebaseLookup) -> Vec<DocumentMistake>;

/// The part of a stage that a workflow defines: it derives facts from the document's text. All methods are pure, except
/// for [`names_check`](Self::names_check).
pub trait StageDocument: Send + Sync {
    fn info(&self) -> DocumentInfo;

    /// Returns the ID of the first step that shows something to people.
    fn first_shown_step(&self) -> Option<&'static str> {
        self.info().steps.iter().find(|step| step.kind == StepKind::Draft).map(|step| step.id)
    }

    /// Returns the author's persona in the drafter's prompt, such as "a software architect".
    fn author_persona(&self) -> &'static str {
        "a software architect who writes for the engineer that will build from your text"
    }

    /// Returns the drafter's role, which determines its model and its allowed tools.
    fn role(&self) -> &'static str {
        self.info().roles[0]
    }

    /// Returns a workspace with the files that this draft changes, for a drafter that may write files.
    fn workspace(&self, _draft: Option<&str>) -> Option<Workspace> {
        None
    }

    /// Returns the artifacts of earlier stages that go into the prompts.
    fn inputs(&self) -> &'static [StageInput] {
        &[]
    }

    /// Returns the files to change, as decided by an earlier stage.
    fn files_to_change(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the gate at this step; `None` if the step has no gate.
    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate>;

    /// Returns a description of the document's format for the prompts of drafter and reviewer.
    fn rules(&self) -> String;

    /// Returns the text after mechanical repairs of its format.
    fn fix(&self, text: &str, _issue: IssueNo) -> String {
        text.to_owned()
    }

    /// Returns mistakes in the format of the text and in the paths that it mentions.
    fn check(&self, _text: &str, _issue: IssueNo, _tree: &TreeIndex) -> Vec<DocumentMistake> {
        Vec::new()
    }

    /// Returns the check of code names mentioned in the text, if the document has such a check.
    fn names_check(&self) -> Option<NamesCheck> {
        None
    }

    /// Returns a mistake for each thing that the text declares or must cover but does not contain.
    fn coverage(&self, _text: &str) -> Vec<DocumentMistake> {
        Vec::new()
    }

    /// Returns facts that the checks established, for the reviewer's prompt. They contain only trusted text, one fact
    /// per line.
    fn facts(&self, _commit: &str) -> String {
        String::new()
    }

    /// Returns the questions to people that the text leaves open.
    fn open_questions(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns a summary for the people who decide, at most forty lines of Markdown.
    fn summary(&self, text: &str) -> String;

    /// Returns the text of each requirement by its ID, such as `REQ-1`. Used for findings about a requirement.
    fn requirements(&self, _text: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Returns the paths that the text mentions. An approval is bound to the contents of these files.
    fn paths(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    /// Whether the location named in a finding exists in the text or in the repository.
    fn place_exists(&self, text: &str, place: &str, _tree: &TreeIndex) -> bool {
        text.contains(place.trim())
    }

    /// Returns the line number (from 1) of the location named in a finding.
    fn line_of(&self, text: &str, place: &str) -> Option<usize> {
        let place = place.trim();
        text.lines().position(|line| !place.is_empty() && line.contains(place)).map(|before| before + 1)
    }

    /// Returns the files to publish with the text; `None` removes a file. The files are derived only from the text, so
    /// that an approval of the text covers them.
    ///
    /// # Errors
    /// `Bug` if the files cannot be derived.
    fn files(&self, _text: &str) -> Result<Vec<(String, Option<String>)>, StepError> {
        Ok(Vec::new())
    }

    /// Returns the report of the change, if the document is a change.
    fn change_report(&self, _text: &str) -> Option<ChangeReport> {
        None
    }

    /// Returns the text to publish at the document's path instead of the document itself. Like the result of `files`,
    /// it is derived only from the document.
    fn report(&self, text: &str) -> Option<String> {
        self.change_report(text).map(|report| messages::change_report(&report))
    }

    /// Returns the document's changes to the repository as a diff, for the people who decide.
    fn diff(&self, _text: &str) -> Option<String> {
        None
    }

    /// Returns a patch with the changes that people must apply themselves. It is shown in the pull request.
    fn offered_patch(&self, _text: &str) -> Option<String> {
        None
    }

    /// Returns the changed files that a build or CI executes automatically. Reviewers should read these files first.
    fn executed_files(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns a locked test of the version `text`, or a file with locked tests, that a person's request names.
    fn named_test(&self, _text: &str, _request: &str) -> Option<String> {
        None
    }

    /// Whether this line, counted from 1, of a published file of the version `text` is part of a locked test.
    fn is_test_line(&self, _text: &str, _path: &str, _line: Option<u64>) -> bool {
        false
    }

    /// Files the document on the issue, for [`PublicationTarget::Issue`]. Calling it again changes nothing.
    fn file_issue<'a>(
        &'a self,
        _accepted: AcceptedDocument<'a>,
        _cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<FilingOutcome, StepError>> {
        Box::pin(async {
            Err(StepError::Bug(anyhow::anyhow!("this document is not published on the issue")))
        })
    }

    /// Finds the document that [`file_issue`](Self::file_issue) filed in this run. Called if the run ended before the
    /// result of `file_issue` was saved.
    fn find_filed_document<'a>(
        &'a self,
        _cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<Option<FiledDocument>, StepError>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether the text at the location is the same in `before` and `now`.
    fn unchanged_at(&self, before: &str, now: &str, _place: &str) -> bool {
        before == now
    }
}
