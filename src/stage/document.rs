//! What a workflow says of its document: the one thing that differs between those that use the stage.

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

/// What a reviewed document is called, and where it goes.
pub struct DocumentInfo {
    pub workflow: &'static str,
    /// Its short name, as in `LLD for #42`.
    pub stage: &'static str,
    /// What models and people call it: `low-level design`.
    pub what: &'static str,
    /// What starts the workflow; the first is its own.
    pub commands: &'static [CommandSpec],
    /// All steps, in the order of the graph.
    pub steps: Vec<StepInfo>,
    /// The lesser proofs that its publishing takes.
    pub proofs: &'static [LesserProof],
    pub target: PublicationTarget,
    /// Who drafts, each by its row in the table of roles.
    pub roles: &'static [&'static str],
}

/// Where a document is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicationTarget {
    /// On the issue's branch, with a pull request that shows it; in a comment unless the settings say so.
    Branch,
    /// In a comment on the issue, by those settings.
    Comment,
    /// There as well, but only once it is accepted: whatever is pushed is run by CI.
    Code,
    /// In place of the issue's own text, or as another issue.
    Issue,
}

impl DocumentInfo {
    /// The one that started a run, or the workflow's own where it followed another.
    pub(super) fn command(&self, run: &RunInfo) -> &'static CommandSpec {
        let named = self.commands.iter().find(|command| command.name == run.trigger.command);
        named.unwrap_or(&self.commands[0])
    }
}

/// What a gate asks people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateQuestion {
    /// May the draft go to review? It never stands in for one.
    Draft,
    /// May the document be published, if the review that follows approves it?
    Beforehand,
    /// Does the reviewed document stand?
    Verdict,
    /// Does the document stand, which nobody is going to review?
    Unreviewed,
    /// May there be more in it than people approved? No gate of a document asks that.
    Exception,
}

/// A gate as the policy of a run has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentGate {
    /// What people type: the `lld` of `/approve lld 3f9c…`.
    pub word: &'static str,
    pub question: GateQuestion,
    /// Off: nobody is asked about a draft, nor about what was approved; the rest is for people all the same.
    pub is_on: bool,
    /// The ways of accepting it, of which an approval names one; none where there is but one.
    pub options: &'static [&'static str],
}

/// What an earlier stage left on the issue and this one builds on.
#[derive(Debug, Clone, Copy)]
pub struct StageInput {
    /// As the other stage calls it.
    pub kind: &'static str,
    /// Our words for it, in the prompts.
    pub heading: &'static str,
    /// The command that makes it, where there is no going on without.
    pub made_by: Option<&'static str>,
}

/// A document that was countersigned, on its way to the issue.
pub struct AcceptedDocument<'a> {
    pub text: &'a str,
    pub signed: &'a Countersignature,
    /// The issue as it was approved that this takes its place.
    pub issue: &'a IssueSnapshot,
    pub provenance: Provenance,
    /// What the reviewer found and nobody settled.
    pub open: Vec<Finding>,
}

/// What came of filing it.
#[derive(Debug)]
pub enum FilingOutcome {
    /// On this issue, which need not be the run's.
    Issue(FiledDocument),
    /// Somebody edited the issue: nobody approved that this goes.
    IssueEdited,
}

/// Where it is.
#[derive(Debug, Clone)]
pub struct FiledDocument {
    pub issue: IssueNo,
    pub outcome: RunCompletion,
}

/// Looks up in the code what a text takes from it.
pub type NamesCheck = fn(&str, &dyn CodebaseLookup) -> Vec<DocumentMistake>;

/// A workflow's own part of a stage. Pure, but for [`names`](Self::names_check): text in, facts out.
pub trait StageDocument: Send + Sync {
    fn info(&self) -> DocumentInfo;

    /// The first step that shows people something.
    fn first_shown_step(&self) -> Option<&'static str> {
        self.info().steps.iter().find(|step| step.kind == StepKind::Draft).map(|step| step.id)
    }

    /// Who the drafter is told to be.
    fn author_persona(&self) -> &'static str {
        "a software architect who writes for the engineer that will build from your text"
    }

    /// In which role the drafter works: it has the model of that one, and its tools where the settings give it any.
    fn role(&self) -> &'static str {
        self.info().roles[0]
    }

    /// A copy of the files that it changes, as this draft of it has them, for a drafter that may write.
    fn workspace(&self, _draft: Option<&str>) -> Option<Workspace> {
        None
    }

    /// What earlier stages left that this one is told.
    fn inputs(&self) -> &'static [StageInput] {
        &[]
    }

    /// The files that change, as an earlier stage settled it.
    fn files_to_change(&self) -> Vec<String> {
        Vec::new()
    }

    /// The gate of this step, if it is one.
    fn gate(&self, step: &str, policy: &Policy) -> Option<DocumentGate>;

    /// The format in words, for the prompts of both models.
    fn rules(&self) -> String;

    /// The text with its form repaired.
    fn fix(&self, text: &str, _issue: IssueNo) -> String {
        text.to_owned()
    }

    /// What the form of the text and the paths in it get wrong.
    fn check(&self, _text: &str, _issue: IssueNo, _tree: &TreeIndex) -> Vec<DocumentMistake> {
        Vec::new()
    }

    /// What judges the names that the text takes from the code, if anything does.
    fn names_check(&self) -> Option<NamesCheck> {
        None
    }

    /// What the text promises and then leaves out.
    fn coverage(&self, _text: &str) -> Vec<DocumentMistake> {
        Vec::new()
    }

    /// What the checks have established, for the reviewer: words of ours, none of the text's. A line each.
    fn facts(&self, _commit: &str) -> String {
        String::new()
    }

    /// At most forty lines of Markdown for whoever has to decide.
    fn summary(&self, text: &str) -> String;

    /// The text of each requirement by its id, for findings that name one: `REQ-1`.
    fn requirements(&self, _text: &str) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// The files the text speaks of; what they hold is bound by an approval.
    fn paths(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    /// Is there such a place as a finding names?
    fn place_exists(&self, text: &str, place: &str, _tree: &TreeIndex) -> bool {
        text.contains(place.trim())
    }

    /// The line of the text, from 1, that such a place is at.
    fn line_of(&self, text: &str, place: &str) -> Option<usize> {
        let place = place.trim();
        text.lines().position(|line| !place.is_empty() && line.contains(place)).map(|before| before + 1)
    }

    /// Files that are published with the text, each with its path. They are made from it alone, so who approves the
    /// text approves them. None: the file is removed.
    ///
    /// # Errors
    /// `Bug` where they cannot be made.
    fn files(&self, _text: &str) -> Result<Vec<(String, Option<String>)>, StepError> {
        Ok(Vec::new())
    }

    /// What a change says of itself, where the text is one.
    fn change_report(&self, _text: &str) -> Option<ChangeReport> {
        None
    }

    /// What is published at the document's path instead of the text, in the same way.
    fn report(&self, text: &str) -> Option<String> {
        self.change_report(text).map(|report| messages::change_report(&report))
    }

    /// How the text changes the repository, for whoever has to decide.
    fn diff(&self, _text: &str) -> Option<String> {
        None
    }

    /// What of that is left to people, who find it as a patch in the pull request.
    fn offered_patch(&self, _text: &str) -> Option<String> {
        None
    }

    /// Files among them that a build or CI runs by itself: whoever decides looks at these first.
    fn executed_files(&self, _text: &str) -> Vec<String> {
        Vec::new()
    }

    /// Publishes on the issue, where that is the [`PublicationTarget`]; it may be done twice, and the second time changes nothing.
    fn file_issue<'a>(
        &'a self,
        _accepted: AcceptedDocument<'a>,
        _cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<FilingOutcome, StepError>> {
        Box::pin(async { Err(StepError::Bug(anyhow::anyhow!("this is not published on the issue"))) })
    }

    /// What [`file`](Self::file_issue) put on the issue in this run, if it did: asked where the run ends before that was saved.
    fn find_filed_document<'a>(
        &'a self,
        _cx: &'a StepContext,
    ) -> BoxFuture<'a, Result<Option<FiledDocument>, StepError>> {
        Box::pin(async { Ok(None) })
    }

    /// Does the text say the same at a place as it did `before`?
    fn unchanged_at(&self, before: &str, now: &str, _place: &str) -> bool {
        before == now
    }
}
