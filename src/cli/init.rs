//! `countersign init`: interactive setup that ends with a server that can start.

use std::{
    fs,
    io::{IsTerminal, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncBufReadExt, BufReader, Stdin};
use url::Url;

use super::{
    ConfigFlag, INTERRUPTED,
    doctor::{self, DoctorScope},
    login::LoginCommand,
    print_line,
    setup::{self, LOCAL_WEBHOOK, SetupCommand, add_secret, webhook_problem},
};
use crate::{
    clock::SystemClock,
    config::{GitHubSettings, ModelSettings, Settings, is_loopback},
    providers::{ApiService, KeyCheck, ModelProviders, check_key},
    workflows,
};

/// Timeout of the request that checks the given GitHub address.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Set everything up interactively (the App, the keys, the login) and then check the result.
///
/// Each answer is checked immediately. Existing files and keys are kept and listed, so you can run the command again
/// after an interruption. With --yes, or at the end of input, questions take their defaults and keys are skipped; put
/// skipped keys into .env.
#[derive(clap::Args)]
pub(super) struct InitCommand {
    #[command(flatten)]
    config: ConfigFlag,
    /// GitHub's address. If it is not given, the command asks for it.
    #[arg(long, value_name = "URL")]
    github: Option<Url>,
    /// Public address of this server's webhook. If it is not given, the command asks for it, unless GitHub is a
    /// localhub.
    #[arg(long, value_name = "URL")]
    webhook_url: Option<Url>,
    /// Address of a relay channel from which the server takes deliveries. The address also becomes the webhook address.
    #[arg(long, value_name = "URL", conflicts_with = "webhook_url")]
    relay: Option<Url>,
    /// Organisation for which to register the App.
    #[arg(long, value_name = "ORGANISATION")]
    organization: Option<String>,
    /// Method of payment for Claude.
    #[arg(long, value_enum)]
    claude: Option<ClaudePayment>,
    /// Tier of your Gemini key.
    #[arg(long, value_enum)]
    gemini_tier: Option<GeminiTierChoice>,
    /// Ask no questions; take the default answers.
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ClaudePayment {
    /// Use a subscription; the Claude CLI is logged in with it.
    Login,
    /// Pay per token, with an Anthropic API key.
    Key,
    /// Set Claude up later.
    Later,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GeminiTierChoice {
    /// The free tier. Google may train on the data that it receives, so no private data is sent to it.
    Free,
    Paid,
}

/// Asks questions on standard input and checks the answers.
struct Prompter {
    /// Standard input; `None` with `--yes`, because no questions are asked then.
    input: Option<BufReader<Stdin>>,
    asked: usize,
}

/// Error for a setup that cannot continue: a question without a default got no answer, or the value of a flag failed
/// its check.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct InitAbort;

type PromptResult<T> = Result<T, InitAbort>;

impl InitCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut prompter = Prompter::new(self.yes);
        let code = tokio::select! {
            // Polled first: Ctrl-C must win over a step that fails because of it.
            biased;
            // Also caught during checks and waits.
            _ = tokio::signal::ctrl_c() => INTERRUPTED,
            done = self.ask_and_do(&mut prompter) => match done {
                Err(error) if error.is::<InitAbort>() => 1,
                done => return done,
            },
        };
        print_line("\nStopped. What was written is kept; run `countersign init` again to continue.");
        Ok(ExitCode::from(code))
    }

    async fn ask_and_do(&self, prompter: &mut Prompter) -> anyhow::Result<ExitCode> {
        let config = self.config.config.clone();
        let mut relay = self.relay.clone();
        let env = config.with_file_name(".env");
        // Writing `.env` as another user would replace the file and lock the server out of it.
        if let Ok(file) = fs::metadata(&env)
            && file.uid() != rustix::process::geteuid().as_raw()
        {
            let (env, owner) = (env.display(), file.uid());
            bail!("{env} belongs to user {owner}, as whom the server runs; run this as that user");
        }
        if config.exists() {
            print_line(format_args!("{} already exists and is kept.", config.display()));
            let installed = |settings: &Settings| !settings.allowed_installations.is_empty();
            if workflows::load_settings(&config).is_ok_and(|settings| !installed(&settings))
                && let Err(error) = setup::allow_installation(&config, None).await
            {
                // `doctor` below reports this too.
                print_line(format_args!("Not installed: {error:#}"));
            }
        } else {
            let setup = self.app(prompter, &mut relay).await?;
            let code = setup.register().await?;
            if code != ExitCode::SUCCESS {
                return Ok(code);
            }
        }
        let settings = workflows::load_settings(&config)?;
        // A localhub uses the scripted stub and needs no keys.
        let scripted =
            settings.models.drafter.starts_with("stub:") && settings.models.reviewer.starts_with("stub:");
        if !scripted {
            self.models(prompter, &settings.models).await?;
        }
        print_line(format_args!(
            "\nChecking ({} asked):",
            crate::types::count(prompter.asked, "question was", "questions were")
        ));
        let checked = doctor::check(&config, DoctorScope::NoServerYet, None).await;
        let relay = relay.map(|url| format!(" --relay {url}")).unwrap_or_default();
        let first = match &checked {
            Ok(code) if *code == ExitCode::SUCCESS => "Next",
            _ => "Once that is fixed",
        };
        print_line(format_args!("{first}: countersign serve --config {}{relay}", config.display()));
        checked
    }

    /// Asks the questions that are needed to register the App, and returns the setup command with the answers.
    async fn app(&self, prompter: &mut Prompter, relay: &mut Option<Url>) -> PromptResult<SetupCommand> {
        let given = self.github.as_ref().map(Url::as_str);
        let github =
            prompter.given_or_ask(given, "GitHub's address", "https://github.com", check_reachable).await?;
        let webhook_url = match (&self.webhook_url, &relay) {
            (Some(url), _) | (None, Some(url)) => url.clone(),
            (None, None) if is_loopback(&github) => LOCAL_WEBHOOK.parse().expect("a constant that parses"),
            (None, None) => {
                print_line(
                    "GitHub must reach this server: at a public https address that ends at this server's /webhook, or",
                );
                print_line("through a smee-compatible relay, whose operator can read all deliveries.");
                let by_relay = prompter
                    .ask("By a relay? (yes or no)", "no", |text| async move { parse_yes_no(&text) })
                    .await?;
                let what = if by_relay { "The relay's channel" } else { "The webhook's public address" };
                let usable = |text: String| {
                    let github = github.clone();
                    async move {
                        let url = parse_address(&text)?;
                        webhook_problem(&url, &github).map_or(Ok(url), |why| Err(why.to_owned()))
                    }
                };
                let url = prompter.ask(what, "", usable).await?;
                if by_relay {
                    *relay = Some(url.clone());
                }
                url
            }
        };
        let whose = "Organisation to register the App for (empty: your own account)";
        let organization =
            prompter.given_or_ask(self.organization.as_deref(), whose, "", check_account).await?;
        Ok(SetupCommand {
            config: ConfigFlag { config: self.config.config.clone() },
            github,
            webhook_url: Some(webhook_url),
            name: "countersign".to_owned(),
            organization: Some(organization).filter(|name| !name.is_empty()),
            port: 0,
            relayed: relay.is_some(),
        })
    }

    async fn models(&self, prompter: &mut Prompter, models: &ModelSettings) -> anyhow::Result<()> {
        let env = self.config.config.with_file_name(".env");
        if models.anthropic.api_key.is_some() {
            print_line(format_args!("ANTHROPIC_API_KEY is in {} and kept.", env.display()));
        } else {
            let logged_in = async {
                let providers = ModelProviders::new(models, Arc::new(SystemClock)).ok()?;
                let routes = providers.login_program("claude")?.inspect().await;
                routes.into_iter().next()?.state.ok()
            };
            let payment = match self.claude {
                Some(payment) => payment,
                None => match logged_in.await {
                    Some(state) => {
                        print_line(format_args!("Claude is already logged in ({state}); nothing to do."));
                        ClaudePayment::Later
                    }
                    None => {
                        prompter
                            .ask("Claude by login (your subscription), key or later", "login", parse_choice)
                            .await?
                    }
                },
            };
            match payment {
                ClaudePayment::Later => {}
                ClaudePayment::Key => {
                    let key = prompter.key("ANTHROPIC_API_KEY", ApiService::Anthropic, models).await;
                    save_key(&env, "ANTHROPIC_API_KEY", key)?;
                }
                ClaudePayment::Login => {
                    let config = ConfigFlag { config: self.config.config.clone() };
                    // The rest is useful without a login, and `doctor` reports it too.
                    if let Err(error) = (LoginCommand { config, program: "claude".to_owned() }).run().await {
                        print_line(format_args!("Not logged in: {error:#}"));
                    }
                }
            }
        }
        if !models.gemini.keys.is_empty() {
            print_line(format_args!("A Gemini key is in {} and kept.", env.display()));
            return Ok(());
        }
        let Some(key) = prompter.key("GEMINI_API_KEY", ApiService::Gemini, models).await else {
            return Ok(());
        };
        let tier = match self.gemini_tier {
            Some(tier) => tier,
            None => prompter.ask("Does that key's project pay? (free or paid)", "free", parse_choice).await?,
        };
        save_key(&env, "GEMINI_API_KEY", Some(key))?;
        self.save_tier(tier)
    }

    fn save_tier(&self, tier: GeminiTierChoice) -> anyhow::Result<()> {
        let (path, tier) =
            (&self.config.config, if tier == GeminiTierChoice::Paid { "paid" } else { "free" });
        let cannot = || format!("{} cannot be written", path.display());
        let mut file = fs::OpenOptions::new().append(true).open(path).with_context(cannot)?;
        let table = format!("\n[[providers.gemini.key]]\nname = \"default\"\ntier = \"{tier}\"\n");
        file.write_all(table.as_bytes()).with_context(cannot)
    }
}

impl Prompter {
    fn new(silent: bool) -> Self {
        let input = (!silent).then(|| BufReader::new(tokio::io::stdin()));
        Self { input, asked: 0 }
    }

    /// If the command line gave a value, checks that value and aborts if the check fails. Otherwise calls
    /// [`ask`](Self::ask).
    async fn given_or_ask<T, F: Future<Output = Result<T, String>>>(
        &mut self,
        given: Option<&str>,
        what: &str,
        default: &str,
        check: impl Fn(String) -> F,
    ) -> PromptResult<T> {
        let Some(given) = given else { return self.ask(what, default, check).await };
        check(given.to_owned()).await.map_err(|why| {
            print_line(format_args!("{what}: {why}"));
            InitAbort
        })
    }

    /// Asks until an answer passes `check`. An empty answer, or the end of input, stands for the default. At the end of
    /// input, aborts if the default fails the check.
    async fn ask<T, F: Future<Output = Result<T, String>>>(
        &mut self,
        what: &str,
        default: &str,
        check: impl Fn(String) -> F,
    ) -> PromptResult<T> {
        loop {
            let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
            let answer = self.line(&format!("{what}{shown}: ")).await;
            let over = answer.is_none();
            let answer = answer.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned());
            match check(answer).await {
                Ok(good) => return Ok(good),
                Err(why) => print_line(format_args!("  {why}")),
            }
            if over {
                return Err(InitAbort);
            }
        }
    }

    /// Asks for a key until the key's service accepts a key or cannot be reached. Returns `None` if the user skips the
    /// question.
    async fn key(&mut self, name: &str, service: ApiService, models: &ModelSettings) -> Option<SecretString> {
        loop {
            let hidden = HiddenInput::begin();
            let typed = self.line(&format!("{name} (empty: later): ")).await;
            if hidden.is_some() {
                print_line("");
            }
            drop(hidden);
            let key = typed.filter(|text| !text.is_empty()).map(SecretString::from)?;
            // Only characters that `.env` holds unescaped.
            if !key.expose_secret().bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\'') {
                print_line("  a key has no spaces or quotation marks; paste only the key");
                continue;
            }
            match check_key(service, models, &key).await {
                KeyCheck::Accepted => return Some(key),
                KeyCheck::Refused(why) => print_line(format_args!("  {why}")),
                KeyCheck::Unknown(why) => {
                    print_line(format_args!("  Kept, but not checked: {why}"));
                    return Some(key);
                }
            }
        }
    }

    /// Prints the prompt and reads one answer. Returns `None` at the end of input or with `--yes`.
    async fn line(&mut self, prompt: &str) -> Option<String> {
        let input = self.input.as_mut()?;
        self.asked += 1;
        let mut out = std::io::stdout();
        // A closed pipe is not our problem.
        drop(out.write_all(prompt.as_bytes()).and_then(|()| out.flush()));
        let mut line = Vec::new();
        let read = input.read_until(b'\n', &mut line).await.ok()?;
        // Invalid UTF-8 is a bad answer, not end of input.
        (read > 0).then(|| String::from_utf8_lossy(&line).trim().to_owned())
    }
}

/// Guard that turns the terminal's echo off until the guard is dropped. `begin` returns `None` if stdin is not a
/// terminal.
struct HiddenInput(rustix::termios::Termios);

impl HiddenInput {
    fn begin() -> Option<Self> {
        let input = std::io::stdin();
        if !input.is_terminal() {
            return None;
        }
        let before = tcgetattr(&input).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Now, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

fn parse_address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    let missing = "an address is required: https://HOST; with --yes, pass --webhook-url or --relay";
    url.ok_or_else(|| match text {
        "" => missing.to_owned(),
        _ => format!("`{text}` is not a web address; write https://HOST"),
    })
}

/// Parses GitHub's address and checks that the API at the address answers.
async fn check_reachable(text: String) -> Result<Url, String> {
    let url = parse_address(&text)?;
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err(format!("{url} would send secrets in clear text; write https://"));
    }
    let api = GitHubSettings::from_web_url(&url).api_url;
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().timeout(ADDRESS_TIMEOUT);
    let client = if is_loopback(&url) { client.no_proxy() } else { client };
    let request = async { client.build()?.get(api.clone()).send().await };
    match request.await {
        Ok(_) => Ok(url),
        Err(_) => Err(format!("no answer from {api}; check the address and this machine's network")),
    }
}

/// Returns the text if it is a valid account name or empty; otherwise an error.
async fn check_account(text: String) -> Result<String, String> {
    match text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        true => Ok(text),
        false => Err(format!("`{text}` is not an account name; write it as in its address on GitHub")),
    }
}

fn parse_yes_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}

async fn parse_choice<T: ValueEnum>(text: String) -> Result<T, String> {
    T::from_str(&text, true).map_err(|_| {
        let names = T::value_variants()
            .iter()
            .filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()));
        format!("write {}", names.collect::<Vec<_>>().join(" or "))
    })
}

/// Writes a key to `.env`; does nothing if the key is `None`.
fn save_key(env: &Path, name: &str, key: Option<SecretString>) -> anyhow::Result<()> {
    let Some(key) = key else { return Ok(()) };
    add_secret(env, name, &key)?;
    print_line(format_args!("{name} is in {}.", env.display()));
    Ok(())
}
