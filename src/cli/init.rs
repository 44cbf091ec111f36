//! `countersign init`: from nothing to a server that can be started, by a few questions.

use std::{
    fs,
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::ValueEnum;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use url::Url;

use super::{
    ConfigFlag, INTERRUPTED,
    doctor::{self, Expected},
    login::Login,
    say,
    setup::{LOCAL_WEBHOOK, Setup, unreachable, write_secret},
};
use crate::{
    config::{GitHubSettings, ModelSettings, Secrets, is_loopback},
    providers::{Service, Trial, try_key},
    workflows,
};

/// An address that somebody waits for to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Set everything up by questions: the App, the keys, the login; then check it.
///
/// Each answer is checked at once. What is there already is kept and named, so it can be run again where it ended. With
/// --yes, and where input ends, questions have their defaults as answers, and keys are left out: put those into .env.
#[derive(clap::Args)]
pub(super) struct Init {
    #[command(flatten)]
    config: ConfigFlag,
    /// GitHub's address; asked for otherwise.
    #[arg(long, value_name = "URL")]
    github: Option<Url>,
    /// Where GitHub reaches this server; asked for otherwise, unless GitHub is a localhub.
    #[arg(long, value_name = "URL")]
    webhook_url: Option<Url>,
    /// A relay's channel to take deliveries from; the webhook's address, then.
    #[arg(long, value_name = "URL", conflicts_with = "webhook_url")]
    relay: Option<Url>,
    /// The organisation to register the App for.
    #[arg(long, value_name = "ORGANISATION")]
    organization: Option<String>,
    /// How Claude is paid for.
    #[arg(long, value_enum)]
    claude: Option<Claude>,
    /// What Google is paid with for what the key asks.
    #[arg(long, value_enum)]
    gemini_tier: Option<Tier>,
    /// Ask nothing.
    #[arg(long)]
    yes: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Claude {
    /// By your subscription: the Claude CLI is logged in.
    Login,
    /// By the token: a key of Anthropic's API.
    Key,
    /// Not now.
    Later,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// With what it is sent: Google may train on that, so nothing private is sent.
    Free,
    Paid,
}

/// Where people are asked.
struct Desk {
    /// None where nobody is to be asked.
    lines: Option<Lines<BufReader<Stdin>>>,
    /// Questions so far.
    asked: usize,
}

/// The exit code where it cannot go on: they pressed Ctrl-C, or nobody is there to answer what has no default.
struct Stopped(u8);

type Answered<T> = Result<T, Stopped>;

impl Init {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut desk = Desk::new(self.yes);
        match self.ask_and_do(&mut desk).await {
            Ok(done) => done,
            Err(Stopped(code)) => {
                say("\nStopped. What was written is kept; run `countersign init` again to go on.");
                Ok(ExitCode::from(code))
            }
        }
    }

    async fn ask_and_do(self, desk: &mut Desk) -> Answered<anyhow::Result<ExitCode>> {
        let config = self.config.config.clone();
        let mut relay = self.relay.clone();
        if config.exists() {
            say(format_args!("{} is there and kept.", config.display()));
        } else {
            let setup = self.app(desk, &mut relay).await?;
            match setup.register().await {
                Ok(code) if code == ExitCode::SUCCESS => {}
                ended => return Ok(ended),
            }
        }
        let settings = match workflows::settings(&config) {
            Ok(settings) => settings,
            Err(error) => return Ok(Err(error.into())),
        };
        // A localhub's bot answers by the script.
        let scripted =
            settings.models.drafter.starts_with("stub:") && settings.models.reviewer.starts_with("stub:");
        if !scripted && let Err(error) = self.models(desk, &settings.models).await? {
            return Ok(Err(error));
        }
        say(format_args!(
            "\nChecking ({} asked):",
            crate::types::count(desk.asked, "question was", "questions were")
        ));
        let checked = doctor::check(&config, Expected::NoServerYet).await;
        let relay = relay.map(|url| format!(" --relay {url}")).unwrap_or_default();
        say(format_args!("Next: countersign serve --config {}{relay}", config.display()));
        Ok(checked)
    }

    /// What registering the App takes.
    async fn app(&self, desk: &mut Desk, relay: &mut Option<Url>) -> Answered<Setup> {
        let github = match &self.github {
            Some(url) => url.clone(),
            None => desk.ask("GitHub's address", "https://github.com", reached).await?,
        };
        let webhook_url = match (&self.webhook_url, &relay) {
            (Some(url), _) | (None, Some(url)) => url.clone(),
            (None, None) if is_loopback(&github) => LOCAL_WEBHOOK.parse().expect("a constant that parses"),
            (None, None) => {
                say(
                    "GitHub must reach this server: at a public https address that ends at this server's /webhook, or",
                );
                say("through a relay that speaks as smee does, whose operator can read what passes.");
                let by_relay =
                    desk.ask("By a relay? (yes or no)", "no", |text| async move { yes(&text) }).await?;
                let what = if by_relay { "The relay's channel" } else { "The webhook's public address" };
                let usable = |text: String| {
                    let github = github.clone();
                    async move {
                        let url = address(&text)?;
                        unreachable(&url, &github).map_or(Ok(url), |why| Err(why.to_owned()))
                    }
                };
                let url = desk.ask(what, "", usable).await?;
                if by_relay {
                    *relay = Some(url.clone());
                }
                url
            }
        };
        let organization = match &self.organization {
            Some(name) => name.clone(),
            None => {
                desk.ask("Organisation to register the App for (empty: your own account)", "", account)
                    .await?
            }
        };
        Ok(Setup {
            config: ConfigFlag { config: self.config.config.clone() },
            github,
            webhook_url: Some(webhook_url),
            name: "countersign".to_owned(),
            organization: Some(organization).filter(|name| !name.is_empty()),
            port: 0,
        })
    }

    /// The keys and the login.
    async fn models(&self, desk: &mut Desk, models: &ModelSettings) -> Answered<anyhow::Result<()>> {
        let env = self.config.config.with_file_name(".env");
        if models.anthropic.api_key.is_some() {
            say(format_args!("ANTHROPIC_API_KEY is in {} and kept.", env.display()));
        } else {
            let way = match self.claude {
                Some(way) => way,
                None => {
                    desk.ask("Claude by login (your subscription), key or later", "login", choice).await?
                }
            };
            match way {
                Claude::Later => {}
                Claude::Key => {
                    let key = desk.key("ANTHROPIC_API_KEY", Service::Anthropic, models).await?;
                    if let Err(error) = keep(&env, "ANTHROPIC_API_KEY", key) {
                        return Ok(Err(error));
                    }
                }
                Claude::Login => {
                    let config = ConfigFlag { config: self.config.config.clone() };
                    // The rest is worth having without it, and doctor tells of it, too.
                    if let Err(error) = (Login { config, program: "claude".to_owned() }).run().await {
                        say(format_args!("Not logged in: {error:#}"));
                    }
                }
            }
        }
        if !models.gemini.keys.is_empty() {
            say(format_args!("A key of Gemini's is in {} and kept.", env.display()));
            return Ok(Ok(()));
        }
        let Some(key) = desk.key("GEMINI_API_KEY", Service::Gemini, models).await? else { return Ok(Ok(())) };
        let tier = match self.gemini_tier {
            Some(tier) => tier,
            None => desk.ask("Does that key's project pay? (free or paid)", "free", choice).await?,
        };
        Ok(keep(&env, "GEMINI_API_KEY", Some(key)).and_then(|()| self.keep_tier(tier)))
    }

    fn keep_tier(&self, tier: Tier) -> anyhow::Result<()> {
        let (path, tier) = (&self.config.config, if tier == Tier::Paid { "paid" } else { "free" });
        let cannot = || format!("{} cannot be written", path.display());
        let mut file = fs::OpenOptions::new().append(true).open(path).with_context(cannot)?;
        let table = format!("\n[[providers.gemini.key]]\nname = \"default\"\ntier = \"{tier}\"\n");
        file.write_all(table.as_bytes()).with_context(cannot)
    }
}

impl Desk {
    fn new(silent: bool) -> Self {
        let lines = (!silent).then(|| BufReader::new(tokio::io::stdin()).lines());
        Self { lines, asked: 0 }
    }

    /// Asks until the answer will do. Where nobody answers any more the default does, if it will.
    async fn ask<T, F: Future<Output = Result<T, String>>>(
        &mut self,
        what: &str,
        default: &str,
        check: impl Fn(String) -> F,
    ) -> Answered<T> {
        loop {
            let shown = if default.is_empty() { String::new() } else { format!(" [{default}]") };
            let answer = self.line(&format!("{what}{shown}: ")).await?;
            let over = answer.is_none();
            let answer = answer.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned());
            match check(answer).await {
                Ok(good) => return Ok(good),
                Err(why) => say(format_args!("  {why}")),
            }
            if over {
                return Err(Stopped(1));
            }
        }
    }

    /// A key that its service accepts, or none.
    async fn key(
        &mut self,
        name: &str,
        service: Service,
        models: &ModelSettings,
    ) -> Answered<Option<SecretString>> {
        loop {
            let unseen = Unseen::begin();
            let typed = self.line(&format!("{name} (empty: later): ")).await;
            if unseen.is_some() {
                say("");
            }
            drop(unseen);
            let Some(key) = typed?.filter(|text| !text.is_empty()).map(SecretString::from) else {
                return Ok(None);
            };
            match try_key(service, models, &key).await {
                Trial::Opens => return Ok(Some(key)),
                Trial::Refused(why) => say(format_args!("  {why}")),
                Trial::Unknown(why) => {
                    say(format_args!("  It is kept and was not tried: {why}"));
                    return Ok(Some(key));
                }
            }
        }
    }

    /// What somebody types; none where nobody is there to type.
    async fn line(&mut self, prompt: &str) -> Answered<Option<String>> {
        let Some(lines) = &mut self.lines else { return Ok(None) };
        self.asked += 1;
        let mut out = std::io::stdout();
        // A closed pipe is not our trouble.
        drop(out.write_all(prompt.as_bytes()).and_then(|()| out.flush()));
        tokio::select! {
            line = lines.next_line() => Ok(line.ok().flatten().map(|line| line.trim().to_owned())),
            _ = tokio::signal::ctrl_c() => Err(Stopped(INTERRUPTED)),
        }
    }
}

/// What is typed does not appear while this is kept. None where input is no terminal.
struct Unseen(rustix::termios::Termios);

impl Unseen {
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

impl Drop for Unseen {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    url.ok_or_else(|| format!("`{text}` is no web address; write https://HOST"))
}

/// GitHub's address, where something answers under it.
async fn reached(text: String) -> Result<Url, String> {
    let url = address(&text)?;
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err(format!("{url} would send secrets in clear text; write https://"));
    }
    let api = GitHubSettings::of(&url).api_url;
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().timeout(PATIENCE);
    let client = if is_loopback(&url) { client.no_proxy() } else { client };
    let asked = async { client.build()?.get(api.clone()).send().await };
    match asked.await {
        Ok(_) => Ok(url),
        Err(_) => Err(format!("nobody answers at {api}; check the address and this machine's network")),
    }
}

/// The name of an account, or nothing.
async fn account(text: String) -> Result<String, String> {
    match text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        true => Ok(text),
        false => {
            Err(format!("`{text}` is no account's name; write it as it stands in its address on GitHub"))
        }
    }
}

fn yes(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(true),
        "n" | "no" => Ok(false),
        _ => Err("write yes or no".to_owned()),
    }
}

async fn choice<T: ValueEnum>(text: String) -> Result<T, String> {
    T::from_str(&text, true).map_err(|_| {
        let names = T::value_variants()
            .iter()
            .filter_map(|value| Some(value.to_possible_value()?.get_name().to_owned()));
        format!("write {}", names.collect::<Vec<_>>().join(" or "))
    })
}

/// Puts a key into `.env`, where everything else stays as it is.
fn keep(env: &PathBuf, name: &str, key: Option<SecretString>) -> anyhow::Result<()> {
    let Some(key) = key else { return Ok(()) };
    let mut text = match fs::read_to_string(env) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", env.display())),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("{name}='{}'\n", key.expose_secret()));
    write_secret(env, &text)?;
    // Read back at once: a key with a quotation mark in it would spoil the file at the next start.
    Secrets::load(env)?;
    say(format_args!("{name} is in {}.", env.display()));
    Ok(())
}
