//! The Claude CLI in headless mode, one process per call.
//!
//! The process gets no tools, no MCP servers, an empty home directory and a cleared environment. It also gets our own
//! configuration directory, because hooks in the operator's settings would otherwise run here. We never pass the flag
//! that skips permissions. We read the format `stream-json`, because only the assistant message names the serving
//! model. The result line and the usage table repeat the requested model.

mod transcript;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::transcript::ClaudeTranscript;
use super::{
    CallError, CallErrorKind, ModelCall, ModelReply, Provider, ReplyFuture, RouteState, Usage,
    program::{LOOPBACK_KEY, ModelProgram, ProgramKind, split_prompt},
    workers::{WorkerSlot, WorkerSlots},
};
use crate::{
    clock::SharedClock,
    config::{ProgramSettings, is_loopback},
    limits, proc,
    types::WorkerPool,
};

/// Maximum bytes of a system prompt passed as an argument, because Linux limits one argument to 128 KiB. A longer
/// system prompt is put at the start of the user prompt instead.
const ARGUMENT_BYTES: usize = 100 * 1024;

const KIND: ProgramKind = ProgramKind {
    title: "the Claude CLI",
    name: "claude",
    install: "npm i -g @anthropic-ai/claude-code",
    tried: &["2.1.197", "2.1.329", "2.1.332"],
};

pub(super) struct ClaudeCliProvider {
    program: ModelProgram,
    workers: Arc<WorkerSlots>,
    clock: SharedClock,
}

impl ClaudeCliProvider {
    pub(super) fn new(
        settings: ProgramSettings,
        ours: Vec<PathBuf>,
        workers: Arc<WorkerSlots>,
        clock: SharedClock,
    ) -> Self {
        Self { program: ModelProgram::new(&KIND, settings, ours), workers, clock }
    }

    async fn ask(
        &self,
        call: &ModelCall,
        slot: &WorkerSlot<'_>,
        cancel: &CancellationToken,
    ) -> Result<ModelReply, CallError> {
        let started = self.clock.now();
        let unasked = |why: String| {
            let kind = match cancel.is_cancelled() {
                true => CallErrorKind::Cancelled,
                false => CallErrorKind::Unavailable,
            };
            CallError::new(kind, format!("claude: {why}"), Usage::for_model(&call.model))
        };
        let found = self.program.find(cancel).await.map_err(unasked)?;
        let home = self.program.prepare_home().map_err(unasked)?;
        let left = call.deadline.saturating_sub(self.clock.now().since(started));
        let mut transcript = ClaudeTranscript::default();
        let command = slot.apply_limits(self.command(&found.path, home.path(), call, left));
        match command.run_lines(cancel, |line| transcript.read_line(line)).await {
            Ok(output) => transcript.judge(call, &output, self.clock.now()),
            Err(error) => {
                let mut usage = transcript.usage(call);
                usage.elapsed = self.clock.now().since(started);
                let (kind, why) = self.program.classify_error(&error, call.workers, transcript.has_begun());
                Err(CallError::new(kind, why, usage))
            }
        }
    }

    /// Whether calls need a login. No login is needed if a `base_url` is set, such as that of a fake API.
    fn needs_login(&self) -> bool {
        self.program.settings.base_url.is_none()
    }

    /// Checks that the program is installed and logged in, and returns its description.
    async fn inspect_login(&self) -> Result<String, String> {
        let cancel = CancellationToken::new();
        let description = self.program.describe().await?;
        if self.needs_login() {
            let found = self.program.find(&cancel).await?;
            let home = self.program.prepare_home()?;
            let command = self.program.command(&found.path, home.path()).timeout(limits::VERSION_TIME);
            let command = apply_environment(command, &self.program.settings).args(["auth", "status"]);
            let output = command.run(&cancel).await.map_err(|error| error.to_string())?;
            let status = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
            if status["loggedIn"] != true {
                return Err(NOT_LOGGED_IN.into());
            }
        }
        Ok(description)
    }

    fn command(&self, program: &Path, home: &Path, call: &ModelCall, left: Duration) -> proc::ChildCommand {
        let (system, prompt) = split_prompt(call, ARGUMENT_BYTES);
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let settings = &self.program.settings;
        let command = self.program.command(program, home);
        let mut command = apply_environment(command, settings)
            .args(["-p", "--output-format", "stream-json", "--verbose"])
            .args(["--setting-sources", "user", "--tools", "", "--strict-mcp-config"])
            .args(["--no-session-persistence", "--model", &call.model, "--system-prompt", &system])
            // Without these, the program would include the file named by `@/path` in a prompt, so any issue could quote
            // our `.env`. Versions differ in the variable they read.
            .env("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1")
            .env("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1")
            // With its default of ten retries, a bad key costs three minutes.
            .env("CLAUDE_CODE_MAX_RETRIES", "1")
            .env("API_TIMEOUT_MS", milliseconds(left))
            .env("CLAUDE_STREAM_IDLE_TIMEOUT_MS", milliseconds(limits::MODEL_IDLE.min(left)))
            .stdin(prompt)
            .timeout(left);
        if let Some(schema) = &call.schema {
            command = command.arg("--json-schema").arg(schema.to_string());
        }
        if let Some(url) = &settings.base_url {
            command = command.env("ANTHROPIC_BASE_URL", url.as_str().trim_end_matches('/'));
            if is_loopback(url) {
                command = command.env("ANTHROPIC_API_KEY", LOOPBACK_KEY);
            }
        }
        command
    }
}

const NOT_LOGGED_IN: &str = "the Claude CLI is not logged in; run `countersign login`";

/// Sets our configuration directory and disables all traffic except to the API.
fn apply_environment(command: proc::ChildCommand, settings: &ProgramSettings) -> proc::ChildCommand {
    command
        .env("CLAUDE_CONFIG_DIR", &settings.config_dir)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_TELEMETRY", "1")
        .env("DISABLE_ERROR_REPORTING", "1")
        .env("DISABLE_AUTOUPDATER", "1")
}

impl Provider for ClaudeCliProvider {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn missing_requirement(&self) -> Option<String> {
        if let Some(why) = self.program.missing_requirement() {
            return Some(why);
        }
        // On other systems the login is in the key chain, which we don't read.
        let login = self.program.settings.config_dir.join(".credentials.json");
        (cfg!(target_os = "linux") && self.needs_login() && !login.is_file()).then(|| NOT_LOGGED_IN.into())
    }

    fn inspect(&self) -> BoxFuture<'_, Vec<RouteState>> {
        Box::pin(async { vec![RouteState { provider: self.name(), state: self.inspect_login().await }] })
    }

    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        Some(Box::pin(async {
            let home = self.program.prepare_home()?;
            let command = self.program.terminal_command(home.path()).await?.args(["auth", "login"]);
            let done = apply_environment(command, &self.program.settings).run_at_terminal().await;
            done.map_err(|error| error.to_string())
        }))
    }

    fn is_billed(&self) -> bool {
        false
    }

    fn would_queue(&self, pool: WorkerPool) -> bool {
        self.workers.has_waiters(pool)
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(async {
            let slot = self.workers.acquire_slot(call, cancel).await?;
            let outcome = self.ask(call, &slot, cancel).await;
            slot.release(outcome)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::samples;

    fn call(system: &str, prompt: &str) -> ModelCall {
        ModelCall { system: system.into(), prompt: prompt.into(), ..samples::call() }
    }

    #[test]
    fn system_prompt_over_the_argument_limit_is_sent_inside_the_prompt() {
        let long = "x".repeat(ARGUMENT_BYTES + 1);
        let (system, prompt) = split_prompt(&call(&long, "ask"), ARGUMENT_BYTES);
        assert!(system.len() < 100);
        assert!(prompt.starts_with(&long) && prompt.ends_with("\n\nask"));
        let short = split_prompt(&call("short\0", "ask"), ARGUMENT_BYTES);
        assert_eq!(short, ("short".into(), "ask".into()));
    }

    #[test]
    fn prompt_with_a_leading_slash_is_not_run_as_a_slash_command() {
        assert!(split_prompt(&call("", "\n/cost"), ARGUMENT_BYTES).1.starts_with("The request"));
    }

    #[tokio::test]
    async fn call_of_a_missing_claude_program_fails_as_unavailable_with_an_install_hint() {
        let home = tempfile::tempdir().unwrap();
        let settings = ProgramSettings {
            path: Some(home.path().join("claude")),
            ..ProgramSettings::with_config_dir(home.path().join("config"))
        };
        let clock: SharedClock = Arc::new(crate::clock::SystemClock);
        let workers = WorkerSlots::new(crate::config::WorkerSettings::new(home.path()), Arc::clone(&clock));
        let provider = ClaudeCliProvider::new(settings, Vec::new(), workers, clock);
        let error = provider.call(&call("s", "p"), &CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable);
        assert!(error.to_string().contains("npm i -g"), "{error}");
        assert!(provider.missing_requirement().is_some());
    }
}
