//! The demo's environment: a localhub with one repository, the App installed on it, and the bot connected to both.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail, ensure};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    super::print_line,
    DemoModels, DemoStory,
    nodes::{self, DemoNodes},
};
use crate::{
    app::Application,
    clock::{Clock, SystemClock},
    config::{ModelSettings, Secrets, Settings},
    github::manifest,
    localhub::{self, AppCredentials, AppSpec, Hub, HubError, HubOptions, RepoSource, RepositoryProfile},
    providers::{ModelReadiness, REHEARSAL, SAMPLE},
    runners,
    sandbox::Sandbox,
    types::{Hash, InstallationId, IssueNo, RepoId, Role, UserId},
    workflows,
};

/// The repository and the issues that exist in the demo.
pub(super) struct DemoMaterial {
    name: String,
    source: RepoSource,
    issues: Vec<(String, String)>,
    /// Number of the issue that the demo works on.
    on: IssueNo,
    story: DemoStory,
    /// Script of the stub models; `None` to use the default rehearsal.
    script: Option<String>,
}

/// Title and body of the rough idea that the maintainer files as an issue.
const IDEA: (&str, &str) = (
    "The weeks",
    "It would be cool to have weeks in the sums, too. I add them up by hand at the end of a month.\n",
);

/// Repositories that the scout finds, each with name, number of stars, licence and README.
const OTHERS: [(&str, u64, Option<&str>, &str); 2] = [
    (
        "clockwork",
        1240,
        Some("MIT"),
        "# clockwork\n\nSums of a time sheet by ISO week, by month or by project.\n",
    ),
    ("hoursheet", 310, None, "# hoursheet\n\nA week begins on the day that you say. One sum at a time.\n"),
];

/// Stub script in which the scout's narrator plans two searches in the first round and stops in the second.
const SEARCHES: &str = r#"
[[answer]]
role = "narrator"
json = { queries = ["report time", "week"] }

[[answer]]
role = "narrator"
task = "further"
json = { queries = [] }
"#;

impl DemoStory {
    fn issue_number(self, issues: &[(String, String)]) -> IssueNo {
        match self {
            Self::Design | Self::Gates | Self::Scout | Self::Ask => IssueNo(1),
            Self::Issue => IssueNo(issues.len() as u64),
        }
    }
}

impl DemoMaterial {
    pub(super) fn sample(story: DemoStory, with_code: bool) -> Self {
        let sample = localhub::embedded_sample();
        let files = sample.files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
        let issues = sample.issues.iter().map(|(t, b)| ((*t).to_owned(), (*b).to_owned())).collect();
        let mut issues: Vec<(String, String)> = issues;
        if story == DemoStory::Issue {
            let (title, body) = IDEA;
            issues.push((title.to_owned(), body.to_owned()));
        }
        let (name, source, on) = ("tally".to_owned(), RepoSource::Files(files), story.issue_number(&issues));
        let script = match story {
            DemoStory::Gates => Some(gates_script()),
            DemoStory::Scout => Some(format!("{REHEARSAL}{SEARCHES}")),
            _ => with_code.then(|| SAMPLE.to_owned()),
        };
        Self { name, source, issues, on, story, script }
    }

    /// Uses the user's repository as the source to clone, and reads the demo's only issue from the file.
    pub(super) fn from_repository(repo: &Path, issue: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(issue).with_context(|| format!("{} cannot be read", issue.display()))?;
        let (title, body) = text.split_once('\n').unwrap_or((&text, ""));
        let title = title.trim_start_matches('#').trim();
        if title.is_empty() {
            bail!("{} has no title; put the issue's title on its first line", issue.display());
        }
        let path = fs::canonicalize(repo).with_context(|| format!("{} is not there", repo.display()))?;
        let name: String = path
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
            .collect();
        let name = name.trim_end_matches(".git").to_owned();
        Ok(Self {
            name: if name.is_empty() { "yours".to_owned() } else { name },
            source: RepoSource::Clone(path),
            issues: vec![(title.to_owned(), body.trim_start().to_owned())],
            on: IssueNo(1),
            story: DemoStory::Design,
            script: None,
        })
    }
}

/// Builds the stub script of the gates story: the first draft of the rehearsal, followed by the responses in
/// `gates.toml`.
fn gates_script() -> String {
    let follows = REHEARSAL.match_indices("[[answer]]").nth(1).map_or(REHEARSAL.len(), |(at, _)| at);
    format!("{}{}", &REHEARSAL[..follows], include_str!("../../../fixtures/models/gates.toml"))
}

/// Sentence that the maintainer adds to the issue while the gate is open.
const AFTERTHOUGHT: &str = "\nAnd it should say so when there is nothing to sum up.\n";

/// A running demo: the localhub, the bot and the issue.
pub(super) struct DemoScene {
    pub(super) hub: Hub,
    pub(super) app: Arc<Application>,
    pub(super) repo: RepoId,
    pub(super) issue: IssueNo,
    maintainer: UserId,
    listeners: std::sync::Mutex<Option<(TcpListener, TcpListener)>>,
    /// Node processes that run the bot. If present, this process only watches.
    pub(super) nodes: Option<DemoNodes>,
    app_id: u64,
}

/// Models, settings and processes with which the bot runs.
pub(super) struct DemoMachine<'a> {
    pub(super) models: DemoModels,
    /// Settings file from which models and keys are taken.
    pub(super) config: Option<&'a Path>,
    /// Number of node processes, and the file with the address of their shared database. If `None`, the bot runs in
    /// this process and stores its data in files.
    pub(super) nodes: Option<(usize, &'a Path)>,
}

/// State of a demo, which is stored in the demo's data directory.
#[derive(Serialize, Deserialize)]
struct DemoMemory {
    app: u64,
    installation: InstallationId,
    repo: RepoId,
    issue: IssueNo,
    /// Port of the demo's pages; 0 if the state was written by an earlier version.
    #[serde(default)]
    port: u16,
}

/// Name of the state file. A demo writes only to a directory that is empty or contains this file.
pub(super) const MEMORY_FILE: &str = "demo.json";
const MAINTAINER: &str = "maya";
const BOT: &str = "countersign";

impl DemoScene {
    pub(super) async fn open(
        data: &Path,
        machine: &DemoMachine<'_>,
        material: &DemoMaterial,
    ) -> anyhow::Result<Self> {
        let files = DemoFiles::in_directory(data);
        let known = files.read_memory()?;
        let hub = start_hub(data, known.as_ref().map_or(0, |known| known.port)).await?;
        let opened = Self::build(hub.clone(), &files, known, machine, material).await;
        if opened.is_err() {
            // The hub writes until it is stopped, and its directory may be removed when this program exits.
            hub.stop().await;
        }
        opened
    }

    async fn build(
        hub: Hub,
        files: &DemoFiles,
        known: Option<DemoMemory>,
        machine: &DemoMachine<'_>,
        material: &DemoMaterial,
    ) -> anyhow::Result<Self> {
        let (models, new) = (machine.models, known.is_none());
        let maintainer = hub.create_user(MAINTAINER)?;
        let listeners = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let webhook: Url = format!("http://{}/webhook", listeners.0.local_addr()?).parse()?;
        let port = hub.base_url().port().unwrap_or_default();
        let remembered = match known {
            Some(known) => {
                let secret = Secrets::load(&files.env)?.webhook.context("the demo's .env lost its secret")?;
                hub.set_webhook(known.app, Some(webhook), &secret)?;
                let remembered = DemoMemory { port, ..known };
                files.write_memory(&remembered)?;
                remembered
            }
            None => create_fixture(&hub, files, maintainer, webhook, material)?,
        };
        let mut text = settings_text(&hub, &remembered);
        // Real models: no router, so only models that were printed at the start are called.
        text += match models {
            DemoModels::Stub => "\n[route]\nmodel = \"stub:router\"\n",
            DemoModels::Real => "\n[route]\nmode = \"manual\"\n",
        };
        if let Some(script) = &material.script {
            fs::write(files.config.with_file_name("script.toml"), script)?;
            text += "[providers.stub]\nscript = \"script.toml\"\n";
        }
        if material.story == DemoStory::Gates {
            text += "\n[lld]\nmax_rounds = 2\n";
        }
        if let Some((_, postgres)) = machine.nodes {
            let directory = "dir = \"data\"\n";
            text = text.replacen(directory, &format!("{directory}{}", nodes::settings(postgres)?), 1);
        }
        fs::write(&files.config, text)?;
        let mut settings = workflows::load_settings(&files.config)?;
        settings.models = model_settings(&settings, models, machine.config)?;
        let app = Application::build(settings, Arc::new(SystemClock)).await?;
        // A server waits until someone adds a key; the demo fails at once, because the user wants to see a run.
        for ModelReadiness { role, spec, lacks } in app.providers.readiness(&app.settings.models) {
            ensure!(lacks.is_none(), "the {role} {spec} cannot be called: {}", lacks.unwrap_or_default());
        }
        let used = new && machine.nodes.is_some() && !app.store.repositories().await?.is_empty();
        ensure!(
            !used,
            "the database already holds runs; start the demo with an empty one, or continue with --data"
        );
        let nodes = machine.nodes.map(|(count, _)| DemoNodes::start(&files.config, count)).transpose()?;
        let stage = Self {
            hub,
            app: Arc::new(app),
            repo: remembered.repo,
            issue: remembered.issue,
            maintainer,
            listeners: std::sync::Mutex::new(Some(listeners)),
            nodes,
            app_id: remembered.app,
        };
        if let Some(nodes) = &stage.nodes {
            nodes.wait_until_ready().await?;
            stage.deliver_to_nodes()?;
        }
        Ok(stage)
    }

    /// Points the webhook at the node that receives deliveries now. As a result, the hub also resends the deliveries
    /// that a killed node missed.
    pub(super) fn deliver_to_nodes(&self) -> anyhow::Result<()> {
        let Some(nodes) = &self.nodes else { return Ok(()) };
        let secret = &self.app.settings.webhook_secrets[0];
        self.hub.set_webhook(self.app_id, Some(nodes.webhook()?), secret)?;
        Ok(())
    }

    /// Starts the bot in this process, unless node processes run it. Ctrl-C parks the run at once, without waiting for
    /// the current step.
    pub(super) fn serve(&self, stop: CancellationToken) -> JoinHandle<std::io::Result<()>> {
        if self.nodes.is_some() {
            return tokio::spawn(async { Ok(()) });
        }
        let app = self.app.clone();
        let listeners = self.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        tokio::spawn(async move {
            match listeners {
                Some((public, private)) => app.serve(public, private, stop.clone(), stop).await,
                None => Ok(()),
            }
        })
    }

    pub(super) fn issue_page(&self) -> String {
        let path = format!("issues/{}", self.issue);
        self.hub.repo_page_url(self.repo, &path).unwrap_or_else(|| self.hub.page_url()).to_string()
    }

    /// Returns the address of the issue's pull request, if there is one.
    pub(super) fn pull_page(&self) -> Option<Url> {
        let number = self.hub.pulls(self.repo).last()?.number;
        self.hub.repo_page_url(self.repo, &format!("pull/{number}"))
    }

    /// Adds the label as the maintainer, unless an earlier, interrupted demo has already added it.
    pub(super) fn add_label(&self, label: &str) -> anyhow::Result<()> {
        let issue = self.hub.issue(self.repo, self.issue).context("the demo's issue is gone")?;
        let mut labels =
            issue.timeline.iter().filter(|item| item.event == "labeled" && item.actor == MAINTAINER);
        if labels.any(|item| item.detail.as_deref() == Some(label)) {
            return Ok(());
        }
        Ok(self.hub.label(self.repo, self.issue, self.maintainer, label)?)
    }

    /// Posts a comment as the maintainer.
    pub(super) fn post_comment(&self, text: &str) -> anyhow::Result<()> {
        self.hub.comment(self.repo, self.issue, self.maintainer, text)?;
        Ok(())
    }

    /// Posts a comment as the maintainer, unless an earlier, interrupted demo has already posted it.
    pub(super) fn post_comment_once(&self, text: &str) -> anyhow::Result<()> {
        let issue = self.hub.issue(self.repo, self.issue).context("the demo's issue is gone")?;
        if issue.comments.iter().any(|comment| comment.author == MAINTAINER && comment.body == text) {
            return Ok(());
        }
        self.post_comment(text)
    }

    /// Adds a sentence to the issue as the maintainer, unless the issue already contains it.
    pub(super) fn edit_issue(&self) -> anyhow::Result<()> {
        let issue = self.hub.issue(self.repo, self.issue).context("the demo's issue is gone")?;
        if !issue.body.contains(AFTERTHOUGHT.trim()) {
            let body = issue.body + AFTERTHOUGHT;
            self.hub.edit_issue(self.repo, self.issue, self.maintainer, None, Some(&body))?;
        }
        Ok(())
    }

    /// Returns whether a comment of the bot shows the sentence that the maintainer added to the issue.
    pub(super) fn was_shown_an_edit(&self) -> anyhow::Result<bool> {
        let issue = self.hub.issue(self.repo, self.issue).context("the demo's issue is gone")?;
        let added = format!("+{}", AFTERTHOUGHT.trim());
        Ok(issue.comments.iter().any(|comment| comment.author != MAINTAINER && comment.body.contains(&added)))
    }

    /// Returns whether a comment shows the hash of the gate's document. People can reply only after such a comment
    /// exists.
    pub(super) fn is_gate_shown(&self, subject: Hash) -> bool {
        let issue = self.hub.issue(self.repo, self.issue);
        issue.is_some_and(|issue| issue.comments.iter().any(|c| c.body.contains(&subject.short())))
    }
}

struct DemoFiles {
    config: PathBuf,
    env: PathBuf,
    key: PathBuf,
    memory: PathBuf,
}

impl DemoFiles {
    fn in_directory(data: &Path) -> Self {
        Self {
            config: data.join("countersign.toml"),
            env: data.join(".env"),
            key: data.join("private-key.pem"),
            memory: data.join(MEMORY_FILE),
        }
    }

    fn write_memory(&self, remembered: &DemoMemory) -> anyhow::Result<()> {
        crate::cli::setup::write_secret(&self.memory, &serde_json::to_string_pretty(remembered)?)
    }

    fn read_memory(&self) -> anyhow::Result<Option<DemoMemory>> {
        match fs::read(&self.memory) {
            // Empty: an earlier start only marked the directory.
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(|| {
                format!("{} is damaged; start with another --data", self.memory.display())
            })?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", self.memory.display())),
        }
    }
}

/// Starts the hub on its previous port, so that links of the earlier demo still work. If that port is in use, chooses
/// another.
async fn start_hub(data: &Path, port: u16) -> anyhow::Result<Hub> {
    let at = |port: u16| HubOptions {
        listen: ([127, 0, 0, 1], port).into(),
        data: data.join("hub"),
        now: Arc::new(|| SystemClock.now()),
        keeps: true,
    };
    match Hub::start(at(port)).await {
        Err(HubError::Listen { .. }) if port != 0 => {
            print_line(format_args!("Port {port} is in use, so links of the earlier demo do not work."));
            Ok(Hub::start(at(0)).await?)
        }
        started => Ok(started?),
    }
}

/// Creates the users, the repository with its issues, and the App. Reuses objects that an earlier, interrupted start
/// created.
fn create_fixture(
    hub: &Hub,
    files: &DemoFiles,
    maintainer: UserId,
    webhook: Url,
    material: &DemoMaterial,
) -> anyhow::Result<DemoMemory> {
    let repo = match hub.repository_id(MAINTAINER, &material.name) {
        Some(repo) => repo,
        None => hub.create_repo(maintainer, &material.name, material.source.clone(), false)?,
    };
    hub.set_role(repo, maintainer, Role::Admin)?;
    for (login, role) in [("sam", Role::Write), ("tess", Role::Triage), ("stranger", Role::None)] {
        let user = hub.create_user(login)?;
        hub.set_role(repo, user, role)?;
    }
    for (number, (title, body)) in (1..).zip(&material.issues) {
        if hub.issue(repo, IssueNo(number)).is_none() {
            hub.open_issue(repo, maintainer, title, body)?;
        }
    }
    if material.story == DemoStory::Scout {
        create_other_repositories(hub)?;
    }
    let credentials = match hub.credentials(BOT) {
        Some(known) => {
            hub.set_webhook(known.id, Some(webhook), &known.webhook_secret)?;
            known
        }
        None => register_app(hub, maintainer, webhook)?,
    };
    let installation = hub.install(credentials.id, &[repo])?;
    crate::cli::setup::write_secret(&files.key, credentials.pem.expose_secret())?;
    let env = format!("COUNTERSIGN_WEBHOOK_SECRET={}\n", credentials.webhook_secret.expose_secret());
    crate::cli::setup::write_secret(&files.env, &env)?;
    let port = hub.base_url().port().unwrap_or_default();
    let remembered = DemoMemory { app: credentials.id, installation, repo, issue: material.on, port };
    files.write_memory(&remembered)?;
    Ok(remembered)
}

fn create_other_repositories(hub: &Hub) -> anyhow::Result<()> {
    let ann = hub.create_user("ann")?;
    for (name, stars, licence, readme) in
        OTHERS.into_iter().filter(|of| hub.repository_id("ann", of.0).is_none())
    {
        let files = vec![("README.md".to_owned(), readme.as_bytes().to_vec())];
        let repo = hub.create_repo(ann, name, RepoSource::Files(files), false)?;
        let description = "Report time by week and by project from plain text".to_owned();
        let profile = RepositoryProfile {
            stars,
            licence: licence.map(str::to_owned),
            description,
            ..RepositoryProfile::default()
        };
        hub.set_profile(repo, profile)?;
    }
    Ok(())
}

fn register_app(hub: &Hub, owner: UserId, webhook: Url) -> anyhow::Result<AppCredentials> {
    let wanted = manifest::AppManifest::embedded();
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    Ok(hub.create_app(AppSpec {
        name: "Countersign".to_owned(),
        slug: BOT.to_owned(),
        permissions: wanted.permissions.iter().map(|(k, v)| (k.clone(), v.as_str().to_owned())).collect(),
        events: wanted.events,
        webhook_url: Some(webhook),
        private_key: None,
        webhook_secret: SecretString::from(hex::encode(random)),
        owner,
    })?)
}

fn settings_text(hub: &Hub, remembered: &DemoMemory) -> String {
    format!(
        "# Written by `countersign demo` at each start.\n\
         [app]\nid = {}\nprivate_key_file = \"private-key.pem\"\n\n\
         [github]\napi_url = \"{}\"\ngit_url = \"{}\"\nweb_url = \"{}\"\n\n\
         [data]\ndir = \"data\"\n\n\
         [installations]\nallow = [{}]\n\n\
         [models]\ndrafter = \"stub:drafter\"\nreviewer = \"stub:reviewer\"\n",
        remembered.app,
        hub.api_url(),
        hub.base_url(),
        hub.base_url(),
        remembered.installation,
    )
}

/// Returns one line per model with the companies that receive the code.
pub(super) fn receiving_companies(config: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let models = match config {
        Some(path) => workflows::load_settings(path)?.models,
        None => ModelSettings::with_real_models(Path::new(""), None, None),
    };
    let line = |task: &str, spec: &str| {
        let mut all: Vec<String> = Vec::new();
        for company in models.names.models(spec).into_iter().flat_map(|spec| receivers(&models, spec)) {
            if !all.contains(&company) {
                all.push(company);
            }
        }
        format!("{task} by {spec}: {}", all.join("; "))
    };
    let drafts = models.drafters().map(|(_, spec)| line("drafts", spec));
    Ok(drafts.chain([line("reviews", &models.reviewer)]).collect())
}

/// Returns the companies that receive one model's prompts. For a Claude model, Anthropic's API is included if it is
/// configured, because it is the fallback of the Claude CLI.
fn receivers(models: &ModelSettings, spec: &str) -> Vec<String> {
    let usual = ModelSettings::with_real_models(Path::new(""), None, None);
    let through =
        |company: &str, url: Option<&Url>, usual: Option<&Url>| match url.filter(|url| Some(*url) != usual) {
            Some(url) => format!("{company}, by way of {url}"),
            None => company.to_owned(),
        };
    let api = || through("Anthropic", Some(&models.anthropic.base_url), Some(&usual.anthropic.base_url));
    let (provider, model) = spec.split_once(':').unwrap_or((spec, ""));
    match provider {
        "claude" => {
            let program = through("Anthropic", models.claude.base_url.as_ref(), None);
            [Some(program), models.anthropic.api_key.is_some().then(api)].into_iter().flatten().collect()
        }
        "anthropic" => vec![api()],
        "gemini" => vec![through("Google", Some(&models.gemini.base_url), Some(&usual.gemini.base_url))],
        "opencode" => {
            let maker = model.split_once('/').map_or(model, |(maker, _)| maker);
            vec![through(&format!("{maker}, as OpenCode calls it"), models.opencode.base_url.as_ref(), None)]
        }
        "ollama" => vec![format!("whoever runs {}", models.ollama.base_url)],
        "openai" => vec![format!("whoever runs {}", models.openai.base_url)],
        "stub" => vec!["nobody (scripted)".to_owned()],
        other => vec![other.to_owned()],
    }
}

/// Returns the settings of the scripted models, or the settings of the user's own models.
fn model_settings(
    demo: &Settings,
    models: DemoModels,
    config: Option<&Path>,
) -> anyhow::Result<ModelSettings> {
    let mut settings = match (models, config) {
        (DemoModels::Stub, _) => return Ok(demo.models.clone()),
        (DemoModels::Real, Some(path)) => workflows::load_settings(path)?.models,
        (DemoModels::Real, None) => {
            let secrets = Secrets::load(Path::new(".env"))?;
            // Claude's login must outlive the demo's own directory.
            let home = std::env::home_dir()
                .context("there is no home directory for Claude's login; use --config")?;
            let own = home.join(".config/countersign");
            let gemini_key = secrets.gemini_keys.into_iter().next().map(|(_, key)| key);
            ModelSettings::with_real_models(&own, gemini_key, secrets.anthropic_api_key)
        }
    };
    // A server with the same settings has its own child processes; the demo must not end them.
    settings.workers.children = demo.models.workers.children.clone();
    Ok(settings)
}

/// Returns the reason why the sample's tests cannot run on this machine, or `None` if they can run.
pub(super) async fn missing_test_support() -> Option<String> {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return Some(error.to_string()),
    };
    let sandbox = match Sandbox::detect(&own, None).await {
        Ok(sandbox) => sandbox,
        Err(error) => return Some(error.to_string()),
    };
    runners::describe_toolchains(Some(&sandbox))
        .await
        .into_iter()
        .find_map(|(runner, found)| found.err().filter(|_| runner == "cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_lists_companies_that_receive_prompts_without_duplicates() {
        let mut models = ModelSettings::with_real_models(Path::new(""), None, None);
        let companies = |models: &ModelSettings, spec| receivers(models, spec).join("; ");
        for (spec, company) in [
            ("claude:opus", "Anthropic"),
            ("anthropic:opus", "Anthropic"),
            ("gemini:pro", "Google"),
            ("opencode:google/antigravity-gemini-3-pro", "google, as OpenCode calls it"),
            ("ollama:qwen", "whoever runs http://127.0.0.1:11434/"),
            ("stub:drafter", "nobody (scripted)"),
        ] {
            assert_eq!(companies(&models, spec), company);
        }
        models.claude.base_url = Some("https://gate.example".parse().unwrap());
        assert_eq!(
            companies(&models, "opencode:a/b"),
            "a, as OpenCode calls it",
            "Claude's base URL applies to Claude only"
        );
        models.anthropic.base_url = "https://relay.example".parse().unwrap();
        assert_eq!(companies(&models, "anthropic:opus"), "Anthropic, by way of https://relay.example/");
        assert_eq!(companies(&models, "claude:opus"), "Anthropic, by way of https://gate.example/");
        models.anthropic.api_key = Some("sk-ant".into());
        let both = "Anthropic, by way of https://gate.example/; Anthropic, by way of https://relay.example/";
        assert_eq!(companies(&models, "claude:opus"), both);
    }
}
