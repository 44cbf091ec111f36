//! OpenCode in its headless form, one process a call; for drafts only.
//!
//! It is a coding agent of its own and sends tools to the model unless an agent is described that has none, so one is,
//! in a configuration file that is written for every call. It never says which model answered. So no review of what it
//! drafts can count, unless the operator attests that it asks the model it is told to. It never gives up on a service that is overloaded or limits it, and says
//! nothing meanwhile; only the call's time ends that.

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
    program::{LOOPBACK_KEY, ModelProgram, ProgramKind, fit},
    workers::{WorkerSlot, WorkerSlots},
};
use crate::{
    clock::SharedClock,
    config::{ProgramSettings, is_loopback},
    proc::{self, ProcError},
    types::WorkerPool,
};

/// The one agent we describe.
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
        place: &WorkerSlot<'_>,
        cancel: &CancellationToken,
    ) -> Result<ModelReply, CallError> {
        let started = self.clock.now();
        let mut transcript = OpenCodeTranscript::default();
        let mut usage = Usage::asking(&call.model);
        let outcome = self.exchange(call, place, &mut transcript, &mut usage, cancel).await;
        transcript.count(&mut usage);
        usage.elapsed = self.clock.now().since(started);
        usage.served = Some(call.model.clone()).filter(|_| self.attested && outcome.is_ok());
        match outcome {
            Ok((text, value)) => Ok(ModelReply::new(text, value, usage)),
            Err(fault) => Err(fault.of_call(KIND.name, None, usage)),
        }
    }

    async fn exchange(
        &self,
        call: &ModelCall,
        place: &WorkerSlot<'_>,
        transcript: &mut OpenCodeTranscript,
        usage: &mut Usage,
        cancel: &CancellationToken,
    ) -> Result<(String, Option<Value>), CallFault> {
        let unasked = |why: String| match cancel.is_cancelled() {
            true => CallFault(CallErrorKind::Cancelled, why),
            false => CallFault(CallErrorKind::Unavailable, why),
        };
        if call.role == CallRole::Reviewer {
            return Err(unasked("it only drafts, for it does not say which model answered".into()));
        }
        let Some((service, model)) = call.model.split_once('/') else {
            return Err(unasked(format!("{} names no service; write opencode:SERVICE/MODEL", call.model)));
        };
        let started = self.clock.now();
        let found = self.program.find(cancel).await.map_err(unasked)?;
        let home = self.program.prepare().map_err(unasked)?;
        let (system, mut prompt) = fit(call, usize::MAX);
        if let Some(schema) = &call.schema {
            prompt
                .push_str(&format!("\n\nAnswer with nothing but JSON that fits this JSON Schema:\n{schema}"));
        }
        let row = self.table.find(KIND.name, &call.model);
        let limit = row.map(|row| (row.context, row.longest(call)));
        let configuration = configuration(&self.program.settings, (service, model), limit, &system);
        let file = self.furnish(home.path(), &configuration);
        let file = file.map_err(|error| unasked(format!("its configuration can't be written: {error}")))?;
        let left = call.deadline.saturating_sub(self.clock.now().since(started));
        let command = quiet(self.program.command(&found.path, home.path()))
            .env("OPENCODE_CONFIG", file)
            // A title of our own, or a model would be asked for one.
            .args(["run", "--pure", "--format", "json", "--title", AGENT, "--agent", AGENT])
            .args(["--model", &call.model])
            .stdin(prompt)
            .timeout(left);
        (usage.attempts, usage.billed) = (1, true);
        match place.bind(command).run_lines(cancel, |line| transcript.line(line)).await {
            Ok(output) => transcript.verdict(call, &output),
            Err(error) => {
                // Never begun, it asked nobody.
                usage.billed = !matches!(error, ProcError::NotFound { .. } | ProcError::NotConfined { .. });
                let (kind, why) = self.program.fault(&error, call.workers, false);
                Err(CallFault(kind, why))
            }
        }
    }

    /// Puts the configuration and the login where the program looks for them.
    fn furnish(&self, home: &Path, configuration: &Value) -> io::Result<PathBuf> {
        let file = home.join("opencode.json");
        fs::write(&file, configuration.to_string())?;
        let kept = home.join(".local/share/opencode");
        fs::create_dir_all(&kept)?;
        // A link, because a login is renewed now and then, and the new one must stay.
        symlink(self.login(), kept.join("auth.json"))?;
        Ok(file)
    }

    fn login(&self) -> PathBuf {
        self.program.settings.config_dir.join("opencode/auth.json")
    }
}

/// The environment of any run of it: nothing of the operator's or of the directory it runs in, nothing fetched, nothing
/// kept.
fn quiet(command: proc::ChildCommand) -> proc::ChildCommand {
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

/// The whole of its configuration: one model, one agent without tools, and no leave for anything.
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

    fn lacks(&self) -> Option<String> {
        if let Some(why) = self.program.lacks() {
            return Some(why);
        }
        let unknown = self.program.settings.base_url.is_none() && !self.login().is_file();
        unknown.then(|| "OpenCode is not logged in; run `countersign login opencode`".into())
    }

    fn look(&self) -> BoxFuture<'_, Vec<RouteState>> {
        Box::pin(async {
            let found = self.program.look().await;
            vec![RouteState {
                provider: self.name(),
                state: found.and_then(|said| self.lacks().map_or(Ok(said), Err)),
            }]
        })
    }

    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        Some(Box::pin(async {
            let home = self.program.prepare()?;
            let command = self.program.at_terminal(home.path()).await?.args(["auth", "login"]);
            let command = quiet(command).env("XDG_DATA_HOME", &self.program.settings.config_dir);
            command.run_at_terminal().await.map_err(|error| error.to_string())
        }))
    }

    /// By whichever service it is logged in to.
    fn bills(&self) -> bool {
        true
    }

    fn crowded(&self, pool: WorkerPool) -> bool {
        self.workers.crowded(pool)
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(async {
            let place = self.workers.place(call, cancel).await?;
            let outcome = self.ask(call, &place, cancel).await;
            place.done(outcome)
        })
    }
}
