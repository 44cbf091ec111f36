//! The tool loop: the model requests tool calls, our code runs them, and the results go into the next model call.
//!
//! Each model call is a paid call with its own journal key, and each set of tool results has its own key, too.
//! Therefore, after a crash, the next attempt continues with the next model call. The loop always ends, because the
//! last model call offers no tools. The last call comes when the limit is reached or after an unusable response.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    BaseCommit, StepContext,
    call_waits::UnansweredCall,
    prompt::{MaterialWeight, Prompt, PromptMaterial},
    step_services::git_error,
};
use crate::{
    agents::{self, AgentAnswer, AgentRole, AgentTool, ToolAvailability, ToolRequest, ToolchainProfile},
    config::{TestSettings, ToolSettings},
    documents::{
        change::{self, Workspace},
        strip_fence,
    },
    engine::{LedgerRecord, StepError, TextKind, TextRow},
    runners::{self, TestError},
    sandbox::SandboxError,
    types::Hash,
};

/// Time limit of a sandbox job that runs a command. Half of it is available to the command, because checks of a large
/// repository take minutes. The other half is reserved for follow-up programs, which only test runs have.
const COMMAND_TIME: Duration = Duration::from_secs(600);

/// Interval between checks of a running command. Each check also asks GitHub whether the run is still wanted.
pub const COMMAND_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Role, base commit and limits of a tool loop.
#[derive(Clone, Copy)]
pub struct ToolSession<'a> {
    pub role: &'static AgentRole,
    pub base: &'a BaseCommit,
    /// Files of the change under review, which replace the files of the commit. `None` removes a file.
    changed: &'a [(String, Option<String>)],
    /// Initial state of the workspace that the model writes to.
    workspace: Option<&'a Workspace>,
    pub turns: u32,
    /// Toolchain of the repository. Set only if the role may also run commands.
    pub commands: Option<ToolchainProfile>,
}

impl<'a> ToolSession<'a> {
    /// Creates the session from the settings; `None` if the role may not use tools.
    ///
    /// # Errors
    /// Errors of reading the commit.
    pub async fn from_settings(
        cx: &StepContext,
        role: &str,
        base: &'a BaseCommit,
        settings: Option<&ToolSettings>,
    ) -> Result<Option<Self>, StepError> {
        let Some(settings) = settings else { return Ok(None) };
        let role = agents::find_role(role).expect("the role is in the table");
        let commands = match settings.commands {
            false => None,
            true => {
                let snapshot = cx.tools().snapshot(cx, base).await?;
                Some(ToolchainProfile::detect(snapshot.entries().iter().map(|entry| entry.path.as_str())))
            }
        };
        Ok(Some(Self { role, base, changed: &[], workspace: None, turns: settings.turns, commands }))
    }

    /// Sets the changed files that replace files of the commit.
    #[must_use]
    pub fn with_changes(self, changed: &'a [(String, Option<String>)]) -> Self {
        Self { changed, ..self }
    }

    /// Adds a workspace to which the model can write, if the role may write.
    #[must_use]
    pub fn with_workspace(self, copy: Option<&'a Workspace>) -> Self {
        Self { workspace: copy.filter(|_| self.role.tools.contains(&AgentTool::Write)), ..self }
    }

    fn availability(&self) -> ToolAvailability {
        ToolAvailability { commands: self.commands, writes: self.workspace.is_some() }
    }
}

/// Number of tool calls that a role made in a run, and number of refused calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCallCounts {
    pub calls: usize,
    pub refused: usize,
}

impl ToolCallCounts {
    pub(super) fn add(&mut self, more: Self) {
        self.calls += more.calls;
        self.refused += more.refused;
    }
}

/// Results of the tool calls in one response. The texts are stored separately; only their hashes are kept here.
#[derive(Serialize, Deserialize)]
struct StoredToolResults {
    text: Hash,
    looked: ToolCallCounts,
    /// Hash of the stored set of all files written so far. `None` if no file was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Hash>,
}

/// The model calls that lead to one final response. Without a tool session, there is only one call.
pub(super) struct ToolLoop<'a> {
    session: Option<ToolSession<'a>>,
    prompt: Prompt,
    /// Number of model calls made so far.
    questions_asked: u32,
    tools: Option<Value>,
    offers_tools: bool,
    repaired: bool,
    pub(super) call_counts: ToolCallCounts,
    /// Workspace that contains all files written so far.
    pub(super) workspace: Option<Workspace>,
}

/// Action to take after a response.
pub(super) enum ToolLoopAction {
    /// The response is final.
    Answer,
    /// The model must be called again. The prompt for that call is ready.
    AskAgain,
    /// The response requests tools although the call offered none.
    ToolsExhausted,
}

impl<'a> ToolLoop<'a> {
    pub(super) fn start(question: &Prompt, looks: Option<ToolSession<'a>>) -> Self {
        let prompt = match looks {
            Some(looks) => {
                let rules = looks.role.tool_rules(looks.availability(), looks.turns);
                question.clone().with_section("What you may look at", &rules)
            }
            None => question.clone(),
        };
        let tools = looks.map(|looks| looks.role.tool_schemas(looks.availability()));
        let (looked, copy) = (ToolCallCounts::default(), looks.and_then(|looks| looks.workspace).cloned());
        Self {
            session: looks,
            prompt,
            questions_asked: 0,
            tools,
            offers_tools: looks.is_some(),
            repaired: false,
            call_counts: looked,
            workspace: copy,
        }
    }

    /// Returns the journal key of the next model call.
    pub(super) fn question_key(&self, key: &str) -> String {
        if self.questions_asked == 0 { key.to_owned() } else { format!("{key}-{}", self.questions_asked + 1) }
    }

    pub(super) fn prompt(&self) -> &Prompt {
        &self.prompt
    }

    /// Returns the tools to offer with the next model call, for services with native tool calls.
    pub(super) fn offered_tools(&self) -> Option<&Value> {
        self.tools.as_ref().filter(|_| self.offers_tools)
    }

    /// Returns the files written to the workspace so far.
    pub(super) fn written(&self) -> Option<&BTreeMap<String, String>> {
        self.workspace.as_ref().map(Workspace::written_files)
    }

    /// Whether the next response must be final, because no tools are offered.
    pub(super) fn expects_only_answer(&self) -> bool {
        !self.offers_tools
    }

    /// Removes a code fence around a JSON response. This is needed while tools are offered, because such calls have no
    /// schema that would prevent a fence.
    pub(super) fn strip_answer_fence<'t>(&self, answer: &'t str) -> &'t str {
        if self.offers_tools { strip_fence(answer) } else { answer }
    }

    /// Returns `question` with all tool results so far added.
    pub(super) fn with_tool_results(&self, question: Prompt) -> Prompt {
        question.with_tool_results_of(&self.prompt)
    }

    /// Handles a response. `fits` tells whether a text is usable as the final response.
    pub(super) async fn handle_answer(
        &mut self,
        cx: &StepContext,
        key: &str,
        answer: &str,
        fits: bool,
    ) -> Result<ToolLoopAction, UnansweredCall> {
        let Some(looks) = self.session else { return Ok(ToolLoopAction::Answer) };
        self.questions_asked += 1;
        let read = AgentAnswer::parse(answer);
        // A tool request may contain lines that look like a document.
        let asks = matches!(read, AgentAnswer::Calls(_))
            || self.offers_tools && matches!(read, AgentAnswer::Broken(_));
        if fits && !asks {
            return Ok(ToolLoopAction::Answer);
        }
        Ok(match read {
            AgentAnswer::Calls(_) if !self.offers_tools => ToolLoopAction::ToolsExhausted,
            AgentAnswer::Calls(calls) => {
                self.run_tool_calls(cx, key, &looks, &calls).await?;
                if self.questions_asked >= looks.turns {
                    self.withdraw_tools("You have looked as often as you may. Answer now, without tools, in the form asked for.");
                }
                ToolLoopAction::AskAgain
            }
            // The caller reports what is wrong with it.
            AgentAnswer::Other | AgentAnswer::Broken(_) if self.repaired => ToolLoopAction::Answer,
            AgentAnswer::Broken(why) if self.offers_tools => {
                self.repaired = true;
                self.append_instruction(&format!(
                    "Your last answer was to ask for tools, but could not be read: {why}. Ask again with the JSON object \
                     alone, or answer in the form asked for."
                ));
                ToolLoopAction::AskAgain
            }
            AgentAnswer::Other | AgentAnswer::Broken(_) => {
                self.repaired = true;
                self.withdraw_tools("Your last answer was neither in the form asked for nor a call of tools. Answer now, without tools.");
                ToolLoopAction::AskAgain
            }
        })
    }

    async fn run_tool_calls(
        &mut self,
        cx: &StepContext,
        key: &str,
        looks: &ToolSession<'_>,
        calls: &[ToolRequest],
    ) -> Result<(), UnansweredCall> {
        let key = format!("{key}-look-{}", self.questions_asked);
        let mut desk = self.tool_executor(cx, looks).await?;
        desk.run_write_calls(looks.role, calls).await.map_err(git_error)?;
        let overlay =
            change::overlay_files(desk.workspace().map(Workspace::changed_files).unwrap_or_default());
        for (tool, line) in desk.commands_to_run(looks.role, calls) {
            let key = format!("{key}-{}", tool.name());
            let said = run_command(cx, &key, looks.base, line, overlay.clone()).await?;
            desk = desk.with_command_output(tool, &said.ok_or(UnansweredCall::CommandRunning)?);
        }
        let found: StoredToolResults = cx
            .once(&key, |_| async {
                let seen = desk.run_calls(looks.role, calls).await.map_err(git_error)?;
                let looked = ToolCallCounts { calls: seen.calls, refused: seen.refused };
                tracing::info!(run = %cx.run().id, role = looks.role.name, ?looked, "model used tools on the repository");
                let text = cx.put(seen.text.as_bytes()).await?;
                cx.record_later(&key, LedgerRecord::Text(TextRow::new(TextKind::Look, text))).await?;
                let written = desk.workspace().map(Workspace::written_files).filter(|written| !written.is_empty());
                let written = match written.map(serde_json::to_vec).transpose().map_err(anyhow::Error::new)? {
                    Some(written) => Some(cx.put(&written).await?),
                    None => None,
                };
                Ok(StoredToolResults { text, looked, written })
            })
            .await?;
        if let (Some(copy), Some(written)) = (&mut self.workspace, found.written) {
            let written = serde_json::from_slice(&cx.get(&written).await?);
            copy.restore_written(written.map_err(|error| StepError::Bug(error.into()))?);
        }
        self.call_counts.add(found.looked);
        let text = super::load_text(cx, &found.text).await?;
        let heading = format!("What your calls found, the {}. time", self.questions_asked);
        self.prompt = self
            .prompt
            .clone()
            .with_material(heading, PromptMaterial::text("found", MaterialWeight::ToolResults, &text));
        Ok(())
    }

    async fn tool_executor(
        &self,
        cx: &StepContext,
        looks: &ToolSession<'_>,
    ) -> Result<agents::ToolExecutor, StepError> {
        // Index first: it caches the snapshot.
        let index = cx.tools().index(cx, looks.base).await?;
        let snapshot = cx.tools().snapshot(cx, looks.base).await?;
        let desk =
            agents::ToolExecutor::new(index, snapshot, looks.commands.is_some()).with_changes(looks.changed);
        Ok(match &self.workspace {
            Some(copy) => desk.with_workspace(copy.clone(), cx.tools().file_tree(cx, looks.base).await?),
            None => desk,
        })
    }

    fn withdraw_tools(&mut self, words: &str) {
        self.offers_tools = false;
        self.append_instruction(words);
    }

    fn append_instruction(&mut self, words: &str) {
        self.prompt = self.prompt.clone().with_instructions(words);
    }
}

/// Runs a command in the sandbox, on the commit with these overlay files. Returns the command's output, or `None` while
/// the command is still running. Without a sandbox, the output says that nothing can be run, so that the model can
/// continue.
async fn run_command(
    cx: &StepContext,
    key: &str,
    base: &BaseCommit,
    line: &'static str,
    overlay: Vec<(String, Option<Vec<u8>>)>,
) -> Result<Option<String>, StepError> {
    let (sandbox, snapshot) = (cx.tools().find_sandbox().await, cx.tools().snapshot(cx, base).await?);
    let settings = TestSettings::from_command(line);
    let dependencies = Some(cx.tools().dependencies(cx));
    let time = Some(COMMAND_TIME);
    let asked =
        runners::TestRequest { settings, dependencies, time, overlay, ..runners::TestRequest::default() };
    cx.run_job(key, move |stop| async move {
        let Ok(sandbox) = sandbox else { return Ok("nothing can be run on this machine".to_owned()) };
        let tested = match runners::run_tests(&sandbox, &snapshot, asked, &stop).await {
            Ok(tested) => tested,
            Err(TestError::Sandbox(SandboxError::Cancelled)) => {
                return Err(StepError::Later {
                    why: "a command was stopped".into(),
                    after: COMMAND_POLL_INTERVAL,
                });
            }
            Err(error) => return Ok(format!("it could not be run: {error}")),
        };
        let ended = if tested.found.has_passed() { "it ended well" } else { "it found something, or failed" };
        let said = tested.found.failures().map(|test| test.message.as_str());
        let all = [ended].into_iter().chain(said).chain(tested.found.trouble.iter().map(String::as_str));
        Ok(all.chain(tested.notes.iter().map(String::as_str)).collect::<Vec<_>>().join("\n"))
    })
    .await
}
