//! The interface that a workflow implements for its document. It covers all differences between workflows that use the
//! stage.

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
    /// Proofs weaker than a person's approval of the document that suffice to publish it.
    pub proofs: &'static [LesserProof],
    pub target: PublicationTarget,
    /// Names of the drafter roles in the role table.
    pub roles: &'static [&'static str],
}

/// Place where a document is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicationTarget {
    /// On the issue's branch with a pull request, if the settings publish files; otherwise in a comment.
    Branch,
    /// A comment on the issue. With the matching setting, used in place of `Branch`.
    Comment,
    /// On the issue's branch, but only after approval, because CI runs all pushed code.
    Code,
    /// The issue's own text, or a new issue.
    Issue,
}

impl DocumentInfo {
    /// Returns the command that started the run. If the run followed another one, returns the workflow's own command.
    pub(super) fn command(&self, run: &RunInfo) -> &'static CommandSpec {
        let named = self.commands.iter().find(|command| command.name == run.trigger.command);
        named.unwrap_or(&self.commands[0])
    }
}

/// The question that a gate asks people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateQuestion {
    /// May the draft go to review? The answer never replaces a review.
    Draft,
    /// May the document be published if the following review approves it?
    Beforehand,
    /// Is the reviewed document accepted?
    Verdict,
    /// Is the document accepted without a review?
    Unreviewed,
    /// May the document exceed what people approved? Only the exception gate asks this, no gate of a document.
    Exception,
}

/// A gate under the run's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentGate {
    /// Word that people type after `/approve`: `lld` in `/approve lld 3f9c…`.
    pub word: &'static str,
    pub question: GateQuestion,
    /// Whether people are always asked. If not, drafts and documents with an APPROVED review pass without asking;
    /// people are asked about all others.
    pub is_on: bool,
    /// Options; an approval must name one of them. Empty if there is only one.
    pub options: &'static [&'static str],
}

/// An artifact of an earlier stage that this stage uses as input.
#[derive(Debug, Clone, Copy)]
pub struct StageInput {
    pub kind: &'static str,
    /// Our heading for the artifact in the prompts.
    pub heading: &'static str,
    /// The command that produces the artifact, if the stage cannot run without it.
    pub made_by: Option<&'static str>,
}

/// A countersigned document, about to be filed on the issue.
pub struct AcceptedDocument<'a> {
    pub text: &'a str,
    pub signed: &'a Countersignature,
    /// The original issue as it was when people approved its replacement.
    pub issue: &'a IssueSnapshot,
    pub provenance: Provenance,
    /// Open findings of the reviewer.
    pub open: Vec<Finding>,
}

/// Result of filing a document.
#[derive(Debug)]
pub enum FilingOutcome {
    /// The document was filed as this issue, which may differ from the run's issue.
    Issue(FiledDocument),
    /// Nothing was filed: somebody edited the issue, so the approval does not cover its replacement.
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

/// A workflow's part of a stage: derives facts from the document's text. Pure, except for
/// [`names_check`](Self::names_check).
pub trait StageDocument: Send + Sync {
    fn info(&self) -> DocumentInfo;

    /// Id of the first step that shows something to people.
    fn first_shown_step(&self) -> Option<&'static str> {
        self.info().steps.iter().find(|step| step.kind == StepKind::Draft).map(|step| step.id)
    }

    /// The author's persona in the drafter's prompt, such as "a software architect".
    fn author_persona(&self) -> &'static str {
        "a software architect who writes for the engineer that will build from your text"
    }

    /// The drafter's role, which selects its model and its allowed tools.
    fn role(&self) -> &'static str {
        self.info().roles[0]
    }

    /// A workspace with the files that this draft changes, for a drafter that may write files.
    fn workspace(&self, _draft: Option<&str>) -> Option<Workspace> {
        None
    }

    /// Artifacts of earlier stages that go into the prompts.
    fn inputs(&self) -> &'static [StageInput] {
        &[]
    }

    /// The files to change, as decided by an earlier stage.
    fn files_to_change(&self) -> Vec<String> {
        Vec::new()
    }

    /// The gate at this step, if there is one.
    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate>;

    /// The document's format in words, for the prompts of drafter and reviewer.
    fn rules(&self) -> String;

    /// Returns the text after mechanical repairs of its form.
    fn fix(&self, text: &str, _issue: IssueNo) -> String {
        text.to_owned()
    }

    /// Returns mistakes in the text's form and paths.
    fn check(&self, _text: &str, _issue: IssueNo, _tree: &TreeIndex) -> Vec<DocumentMistake> {
        Vec::new()
    }

    /// The check of names that the text takes from the code, if the document has one.
    fn names_check(&self) -> Option<NamesCheck> {
        None
    }

    /// Returns mistakes where the text lacks something that it declares or must cover.
    fn coverage(&self, _text: &str) -> Vec<DocumentMistake> {
        Vec::new()
    }

    /// Facts that the checks established, for the reviewer. They contain only our own words, one fact per line.
    fn facts(&self, _commit: &str) -> String {
        String::new()
    }

    /// Summary for the people who decide, at most forty lines of Markdown.
    fn summary(&self, text: &str) -> String;

    /// The text of each requirement by its id, such as `REQ-1`, for findings about a requirement.
    fn requirements(&self, _text: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Paths that the text mentions. An approval is bound to the contents of these files.
    fn paths(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    /// Whether a place named in a finding exists in the text or the repository.
    fn place_exists(&self, text: &str, place: &str, _tree: &TreeIndex) -> bool {
        text.contains(place.trim())
    }

    /// Line number of a place that a finding names, from 1.
    fn line_of(&self, text: &str, place: &str) -> Option<usize> {
        let place = place.trim();
        text.lines().position(|line| !place.is_empty() && line.contains(place)).map(|before| before + 1)
    }

    /// Files published with the text; `None` removes a file. They are derived only from the text, so an approval of the
    /// text covers them.
    ///
    /// # Errors
    /// `Bug` if they cannot be derived.
    fn files(&self, _text: &str) -> Result<Vec<(String, Option<String>)>, StepError> {
        Ok(Vec::new())
    }

    /// The change's report, if the document is a change.
    fn change_report(&self, _text: &str) -> Option<ChangeReport> {
        None
    }

    /// The text to publish at the document's path in place of the document. Derived from the document, like `files`.
    fn report(&self, text: &str) -> Option<String> {
        self.change_report(text).map(|report| messages::change_report(&report))
    }

    /// The document's changes to the repository as a diff, for the people who decide.
    fn diff(&self, _text: &str) -> Option<String> {
        None
    }

    /// Changes that people must apply themselves, as a patch for the pull request.
    fn offered_patch(&self, _text: &str) -> Option<String> {
        None
    }

    /// Changed files that a build or CI executes automatically. Reviewers should read these first.
    fn executed_files(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    /// Files the document on the issue, for [`PublicationTarget::Issue`]. A second call changes nothing.
    fn file_issue<'a>(
        &'a self,
        _accepted: AcceptedDocument<'a>,
        _cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<FilingOutcome, StepError>> {
        Box::pin(async {
            Err(StepError::Bug(anyhow::anyhow!("this document is not published on the issue")))
        })
    }

    /// Finds the document that [`file_issue`](Self::file_issue) filed in this run. Called when the run ends before the
    /// result was saved.
    fn find_filed_document<'a>(
        &'a self,
        _cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<Option<FiledDocument>, StepError>> {
        Box::pin(async { Ok(None) })
    }

    /// Whether the text at a place is the same in `before` and `now`.
    fn unchanged_at(&self, before: &str, now: &str, _place: &str) -> bool {
        before == now
    }
}
