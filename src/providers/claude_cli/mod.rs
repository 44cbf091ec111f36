//! The Claude CLI in its headless form, one process a call.
//!
//! The process gets no tools, no MCP servers, an empty directory as its home, a cleared environment
//! and a configuration directory of ours: with the operator's, a hook in their settings would run
//! here. It is asked for `stream-json`, because only the assistant message names the model that
//! really answered; the result line and the usage table repeat what was asked.

mod transcript;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::transcript::Transcript;
use super::{Call, CallError, CallErrorKind, Provider, Reply, Usage};
use crate::{
    clock::SharedClock,
    config::{ClaudeSettings, is_loopback},
    limits,
    proc::{self, ProcError},
};

/// A loopback imitation of the API wants some key, and a real one has no business there.
const LOOPBACK_KEY: &str = "loopback";

pub(super) struct ClaudeCli {
    settings: ClaudeSettings,
    clock: SharedClock,
}

impl ClaudeCli {
    pub(super) fn new(settings: ClaudeSettings, clock: SharedClock) -> Self {
        Self { settings, clock }
    }

    async fn ask(&self, call: &Call, cancel: &CancellationToken) -> Result<Reply, CallError> {
        let unavailable =
            |why: String| CallError::new(CallErrorKind::Unavailable, why, Usage::asking(&call.model));
        let program = self.program().ok_or_else(|| unavailable(NOT_FOUND.into()))?;
        let home = self.prepare().map_err(|error| {
            let place = self.settings.config_dir.display();
            unavailable(format!(
                "no working directory or configuration directory ({place}) could be made: {error}"
            ))
        })?;
        let mut transcript = Transcript::default();
        let outcome =
            self.command(&program, home.path(), call).run_lines(cancel, |line| transcript.line(line)).await;
        match outcome {
            Ok(output) => transcript.judge(call, &output, self.clock.now()),
            Err(error) => {
                let mut usage = transcript.usage(&call.model);
                let kind = match &error {
                    ProcError::TimedOut { elapsed } => {
                        usage.elapsed = *elapsed;
                        CallErrorKind::Timeout { idle: transcript.begun(), elapsed: *elapsed }
                    }
                    ProcError::Cancelled => CallErrorKind::Cancelled,
                    ProcError::OutputTooLong { .. } => CallErrorKind::InvalidOutput,
                    ProcError::NotFound { .. } | ProcError::Io { .. } => CallErrorKind::Unavailable,
                };
                Err(CallError::new(kind, format!("claude: {error}"), usage))
            }
        }
    }

    /// The program's path: as set, else from `PATH`, else where its installers put it.
    fn program(&self) -> Option<PathBuf> {
        if let Some(path) = &self.settings.path
            && path.components().count() > 1
        {
            return path.is_file().then(|| path.clone());
        }
        let name = self.settings.path.as_deref().unwrap_or(Path::new("claude"));
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let usual =
            [".local/bin", ".claude/local", ".npm-global/bin", ".bun/bin"].map(|place| home.join(place));
        std::env::split_paths(&in_path)
            .chain(usual)
            .chain(["/usr/local/bin".into(), "/opt/homebrew/bin".into()])
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(name))
            .find(|path| path.is_file())
    }

    /// The configuration directory, and an empty home for one call that goes when dropped.
    fn prepare(&self) -> std::io::Result<tempfile::TempDir> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.settings.config_dir)?;
        tempfile::Builder::new().prefix("countersign-claude-").tempdir()
    }

    fn command(&self, program: &Path, home: &Path, call: &Call) -> proc::Command {
        let (system, prompt) = fit(call);
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let mut command = proc::Command::new(program)
            .args(["-p", "--output-format", "stream-json", "--verbose"])
            .args(["--setting-sources", "user", "--tools", "", "--strict-mcp-config"])
            .args(["--no-session-persistence", "--model", &call.model, "--system-prompt", &system])
            .env("HOME", home)
            .env("TMPDIR", home)
            .env("CLAUDE_CONFIG_DIR", &self.settings.config_dir)
            // Without these, `@/path` in a prompt makes the program read that file into it: any
            // stranger's issue could quote our `.env`. One name for each version's habit.
            .env("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1")
            .env("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1")
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_TELEMETRY", "1")
            .env("DISABLE_ERROR_REPORTING", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            // With its own ten retries a bad key costs three minutes.
            .env("CLAUDE_CODE_MAX_RETRIES", "1")
            .env("API_TIMEOUT_MS", milliseconds(call.deadline))
            .env("CLAUDE_STREAM_IDLE_TIMEOUT_MS", milliseconds(limits::MODEL_IDLE.min(call.deadline)))
            .current_dir(home)
            .stdin(prompt)
            .timeout(call.deadline);
        if let Some(effort) = &call.effort {
            command = command.args(["--effort", effort]);
        }
        if let Some(schema) = &call.schema {
            command = command.arg("--json-schema").arg(schema.to_string());
        }
        if let Some(url) = &self.settings.base_url {
            command = command.env("ANTHROPIC_BASE_URL", url.as_str().trim_end_matches('/'));
            if is_loopback(url) {
                command = command.env("ANTHROPIC_API_KEY", LOOPBACK_KEY);
            }
        }
        command
    }
}

const NOT_FOUND: &str = "the Claude CLI was not found; install it (npm i -g @anthropic-ai/claude-code) or set \
                         path under [providers.claude]";

impl Provider for ClaudeCli {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn lacks(&self) -> Option<String> {
        if self.program().is_none() {
            return Some(NOT_FOUND.into());
        }
        // Elsewhere the login is kept in the system's key chain, where we don't look.
        let login = self.settings.config_dir.join(".credentials.json");
        if cfg!(target_os = "linux") && self.settings.base_url.is_none() && !login.is_file() {
            let directory = self.settings.config_dir.display();
            return Some(format!(
                "the Claude CLI is not logged in; run `CLAUDE_CONFIG_DIR={directory} claude` and /login"
            ));
        }
        None
    }

    fn bills(&self) -> bool {
        false
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(self.ask(call, cancel))
    }
}

/// The system prompt as an argument and the rest for standard input.
fn fit(call: &Call) -> (String, String) {
    // No argument may hold a NUL, and no prompt needs one.
    let system = call.system.replace('\0', "");
    let mut prompt = call.prompt.clone();
    // A leading slash would be a command of the program's own, answered without any model.
    if prompt.trim_start().starts_with('/') {
        prompt.insert_str(0, "The request:\n\n");
    }
    if system.len() > limits::ARGUMENT_BYTES {
        return ("Follow the instructions that come first.".into(), format!("{system}\n\n{prompt}"));
    }
    (system, prompt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::CallRole;

    fn call(system: &str, prompt: &str) -> Call {
        Call {
            role: CallRole::Drafter,
            system: system.into(),
            prompt: prompt.into(),
            schema: None,
            model: "claude-opus-4-6".into(),
            effort: None,
            deadline: Duration::from_secs(5),
            budget: None,
            private: false,
            facts: Default::default(),
        }
    }

    #[test]
    fn long_instructions_move_into_the_prompt() {
        let long = "x".repeat(limits::ARGUMENT_BYTES + 1);
        let (system, prompt) = fit(&call(&long, "ask"));
        assert!(system.len() < 100);
        assert!(prompt.starts_with(&long) && prompt.ends_with("\n\nask"));
        assert_eq!(fit(&call("short\0", "ask")), ("short".into(), "ask".into()));
    }

    #[test]
    fn a_prompt_is_never_a_command_of_the_program() {
        assert!(fit(&call("", "\n/cost")).1.starts_with("The request"));
    }

    #[tokio::test]
    async fn a_missing_program_is_unavailable_and_says_how_to_get_it() {
        let home = tempfile::tempdir().unwrap();
        let settings = ClaudeSettings {
            path: Some(home.path().join("claude")),
            config_dir: home.path().join("config"),
            base_url: None,
        };
        let provider = ClaudeCli::new(settings, std::sync::Arc::new(crate::clock::SystemClock));
        let error = provider.call(&call("s", "p"), &CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable);
        assert!(error.to_string().contains("npm i -g"), "{error}");
        assert!(provider.lacks().is_some());
    }
}
