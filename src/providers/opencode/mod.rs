//! OpenCode in headless mode, one process per call; for drafts only.
//!
//! OpenCode is a coding agent and sends tools to the model, so every call gets a configuration file with an agent that
//! has no tools. OpenCode never reports the serving model. Therefore a review of its drafts does not count, unless the
//! operator has confirmed that OpenCode calls the requested model. OpenCode silently retries overloaded or rate-limited
//! services without limit, so only the call's deadline stops it.

mod transcript;

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::transcript::OpenCodeTranscript;
use super::{
    CallError, CallErrorKind, CallRole, ModelCall, ModelReply, Provider, ReplyFuture, RouteState, Usage,
    http::CallFault,
    models::ModelCatalog,
    program::{LOOPBACK_KEY, ModelProgram, ProgramKind, split_prompt},
    workers::{WorkerSlot, WorkerSlots},
};
use crate::{
    clock::SharedClock,
    config::{ProgramSettings, is_loopback},
    proc::{self, ProcError},
    types::WorkerPool,
};

/// Name of the agent in the configuration that we write.
const AGENT: &str = "countersign";

const KIND: ProgramKind =
    ProgramKind { title: "OpenCode", name: "opencode", install: "npm i -g opencode-ai", tried: &["1.18.33"] };

pub(super) struct OpenCodeProvider {
    program: ModelProgram,
    attested: bool,
    workers: Arc<WorkerSlots>,
    table: Arc<ModelCatalog>,
    clock: SharedClock,
}

impl OpenCodeProvider {
    pub(super) fn new(
        settings: ProgramSettings,
        ours: Vec<PathBuf>,
        attested: bool,
        workers: Arc<WorkerSlots>,
        table: &Arc<ModelCatalog>,
        clock: &SharedClock,
    ) -> Self {
        let program = ModelProgram::new(&KIND, settings, ours);
        Self { program, attested, workers, table: Arc::clone(table), clock: Arc::clone(clock) }
    }

    async fn ask(
        &self,
        call: &ModelCall,
        slot: &WorkerSlot<'_>,
        cancel: &CancellationToken,
    ) -> Result<ModelReply, CallError> {
        let started = self.clock.now();
        let mut transcript = OpenCodeTranscript::default();
        let mut usage = Usage::for_model(&call.model);
        let outcome = self.exchange(call, slot, &mut transcript, &mut usage, cancel).await;
        transcript.record_usage(&mut usage);
        usage.elapsed = self.clock.now().since(started);
        usage.served = Some(call.model.clone()).filter(|_| self.attested && outcome.is_ok());
        match outcome {
            Ok((text, value)) => Ok(ModelReply::new(text, value, usage)),
            Err(fault) => Err(fault.into_call_error(KIND.name, None, usage)),
        }
    }

    async fn exchange(
        &self,
        call: &ModelCall,
        slot: &WorkerSlot<'_>,
        transcript: &mut OpenCodeTranscript,
        usage: &mut Usage,
        cancel: &CancellationToken,
    ) -> Result<(String, Option<Value>), CallFault> {
        let unasked = |why: String| match cancel.is_cancelled() {
            true => CallFault(CallErrorKind::Cancelled, why),
            false => CallFault(CallErrorKind::Unavailable, why),
        };
        if call.role == CallRole::Reviewer {
            return Err(unasked("it only drafts, because it does not report which model answered".into()));
        }
        let Some((service, model)) = call.model.split_once('/') else {
            return Err(unasked(format!("{} names no service; write opencode:SERVICE/MODEL", call.model)));
        };
        let started = self.clock.now();
        let found = self.program.find(cancel).await.map_err(unasked)?;
        let home = self.program.prepare_home().map_err(unasked)?;
        let (system, mut prompt) = split_prompt(call, usize::MAX);
        if let Some(schema) = &call.schema {
            prompt
                .push_str(&format!("\n\nAnswer with nothing but JSON that fits this JSON Schema:\n{schema}"));
        }
        let row = self.table.find(KIND.name, &call.model);
        let limit = row.map(|row| (row.context, row.max_output_for(call)));
        let configuration = configuration(&self.program.settings, (service, model), limit, &system);
        let file = self.write_configuration(home.path(), &configuration);
        let file = file.map_err(|error| unasked(format!("can't write its configuration: {error}")))?;
        let left = call.deadline.saturating_sub(self.clock.now().since(started));
        let command = apply_environment(self.program.command(&found.path, home.path()))
            .env("OPENCODE_CONFIG", file)
            // Without a title, OpenCode would call a model to make one.
            .args(["run", "--pure", "--format", "json", "--title", AGENT, "--agent", AGENT])
            .args(["--model", &call.model])
            .stdin(prompt)
            .timeout(left);
        (usage.attempts, usage.billed) = (1, true);
        match slot.apply_limits(command).run_lines(cancel, |line| transcript.read_line(line)).await {
            Ok(output) => transcript.judge_result(call, &output),
            Err(error) => {
                // A program that did not start called no model.
                usage.billed = !matches!(error, ProcError::NotFound { .. } | ProcError::NotConfined { .. });
                let (kind, why) = self.program.classify_error(&error, call.workers, false);
                Err(CallFault(kind, why))
            }
        }
    }

    /// Writes the configuration file and links the login file into the folder in which the program looks for it.
    /// Returns the configuration's path.
    fn write_configuration(&self, home: &Path, configuration: &Value) -> io::Result<PathBuf> {
        let file = home.join("opencode.json");
        fs::write(&file, configuration.to_string())?;
        let kept = home.join(".local/share/opencode");
        fs::create_dir_all(&kept)?;
        // A link, so that a renewed login is kept.
        symlink(self.login_file(), kept.join("auth.json"))?;
        Ok(file)
    }

    fn login_file(&self) -> PathBuf {
        self.program.settings.config_dir.join("opencode/auth.json")
    }
}

/// Disables updates, downloads, sharing, plugins and project or operator configuration, and keeps the database in
/// memory.
fn apply_environment(command: proc::ChildCommand) -> proc::ChildCommand {
    [
        "OPENCODE_DISABLE_AUTOUPDATE",
        "OPENCODE_DISABLE_MODELS_FETCH",
        "OPENCODE_DISABLE_LSP_DOWNLOAD",
        "OPENCODE_DISABLE_SHARE",
        "OPENCODE_DISABLE_PROJECT_CONFIG",
        "OPENCODE_DISABLE_CLAUDE_CODE",
        "OPENCODE_DISABLE_EXTERNAL_SKILLS",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    ]
    .into_iter()
    .fold(command, |command, name| command.env(name, "1"))
    .env("OPENCODE_DB", ":memory:")
}

/// Builds the complete configuration: one model, and one agent without tools or permissions.
fn configuration(
    settings: &ProgramSettings,
    (service, model): (&str, &str),
    limit: Option<(u64, u64)>,
    system: &str,
) -> Value {
    let mut about = json!({"name": model});
    if let Some((context, output)) = limit {
        about["limit"] = json!({"context": context, "output": output});
    }
    let mut options = json!({});
    if let Some(url) = &settings.base_url {
        options["baseURL"] = json!(url.as_str().trim_end_matches('/'));
        if is_loopback(url) {
            options["apiKey"] = json!(LOOPBACK_KEY);
        }
    }
    let (deny, none) = (json!({"*": "deny"}), json!({"*": false}));
    json!({
        "autoupdate": false,
        "share": "disabled",
        "snapshot": false,
        "plugin": [],
        "permission": deny,
        "tools": none,
        "small_model": format!("{service}/{model}"),
        "agent": {AGENT: {"mode": "primary", "prompt": system, "permission": deny, "tools": none}},
        "provider": {service: {"options": options, "models": {model: about}}},
    })
}

impl Provider for OpenCodeProvider {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn missing_requirement(&self) -> Option<String> {
        if let Some(why) = self.program.missing_requirement() {
            return Some(why);
        }
        let unknown = self.program.settings.base_url.is_none() && !self.login_file().is_file();
        unknown.then(|| "OpenCode is not logged in; run `countersign login opencode`".into())
    }

    fn inspect(&self) -> BoxFuture<'_, Vec<RouteState>> {
        Box::pin(async {
            let found = self.program.describe().await;
            vec![RouteState {
                provider: self.name(),
                state: found.and_then(|description| self.missing_requirement().map_or(Ok(description), Err)),
            }]
        })
    }

    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        Some(Box::pin(async {
            let home = self.program.prepare_home()?;
            let command = self.program.terminal_command(home.path()).await?.args(["auth", "login"]);
            let command = apply_environment(command).env("XDG_DATA_HOME", &self.program.settings.config_dir);
            command.run_at_terminal().await.map_err(|error| error.to_string())
        }))
    }

    /// Always `true`, because the service behind OpenCode bills the calls.
    fn is_billed(&self) -> bool {
        true
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
