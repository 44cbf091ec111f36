//! Command line, with one file per command. Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.

mod archive;
mod audit;
mod backup;
mod completions;
mod context;
mod control;
mod cost;
mod demo;
mod diff;
mod doctor;
mod forget;
mod graph;
mod healthy;
mod hub;
mod init;
mod login;
mod man;
mod models;
mod move_data;
mod open;
mod pause;
mod reload;
mod replay;
mod routes;
mod runs;
mod sandbox;
mod serve;
mod setup;
mod simulate;
mod test;

pub use simulate::{SimulationRequest, simulate_event};

use std::{
    fmt::Display,
    fs::{self, File},
    io::{IsTerminal, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::{
    CommandFactory, Parser, Subcommand, ValueEnum,
    builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser},
    error::ErrorKind,
};
use rustix::fs::{FlockOperation, flock};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{
    app, config::Settings, github::GitHubApiError, proc, sandbox::Level, store::DatabaseSource,
    types::with_causes, workflows,
};

/// A GitHub App that ships nothing without review by a second model family and approval by a person.
///
/// Label an issue, and Countersign drafts a low-level design with Claude, has Gemini search the draft for flaws, posts
/// the verdict and waits. A person approves the design with `/approve` or sends it back with `/revise`.
///
/// New here? `countersign demo` runs a whole job on this machine, without an account, a key or a network.
///
/// Exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
#[derive(Parser)]
#[command(name = "countersign", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
    /// Level of the log lines on standard error.
    #[arg(long, global = true, value_enum, default_value_t = LogChoice::Default)]
    log: LogChoice,
    /// Write log lines as JSON.
    #[arg(long, global = true)]
    log_json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogChoice {
    /// `info` for `serve`, and `error` for all other commands.
    Default,
    Error,
    Warn,
    Info,
    Debug,
}

#[derive(Subcommand)]
enum CliCommand {
    Demo(demo::DemoCommand),
    Init(init::InitCommand),
    Setup(setup::SetupCommand),
    Login(login::LoginCommand),
    Doctor(doctor::DoctorCommand),
    Serve(serve::ServeCommand),
    Open(open::OpenCommand),
    Runs(runs::RunsCommand),
    Diff(diff::DiffCommand),
    Cost(cost::CostCommand),
    Routes(routes::RoutesCommand),
    Pause(pause::PauseCommand),
    Resume(pause::ResumeCommand),
    Retry(pause::RetryCommand),
    Reload(reload::ReloadCommand),
    Forget(forget::ForgetCommand),
    Backup(backup::BackupCommand),
    Check(backup::CheckCommand),
    Archive(archive::ArchiveCommand),
    Move(move_data::MoveCommand),
    Audit(audit::AuditCommand),
    Export(audit::ExportCommand),
    Simulate(simulate::SimulateCommand),
    Context(context::ContextCommand),
    Test(test::TestCommand),
    Graph(graph::GraphCommand),
    Models(models::ModelsCommand),
    Replay(replay::ReplayCommand),
    Sandbox(sandbox::SandboxRunCommand),
    Localhub(hub::LocalhubCommand),
    Healthy(healthy::HealthyCommand),
    Completions(completions::CompletionsCommand),
    Man(man::ManCommand),
}

/// `--config` flag, shared by the commands that read the server's settings.
#[derive(clap::Args)]
struct ConfigFlag {
    /// Settings file of the server; `.env` is read from the same directory.
    #[arg(long, value_name = "FILE", default_value = crate::config::DEFAULT_FILE)]
    config: PathBuf,
}

impl ConfigFlag {
    /// Returns the directory `named` if it is given, otherwise the data directory from the settings. Fails if the
    /// directory contains no databases, because commands that only read must not create databases.
    fn data_directory(&self, named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
        let data = match named {
            Some(data) => data,
            None => workflows::load_settings(&self.config)?.data_dir,
        };
        require_data(&data)?;
        Ok(data)
    }

    /// Returns the databases in the directory `named`. If no directory is given, returns the databases of the settings:
    /// Postgres if it is configured, otherwise the files.
    fn open_source(&self, named: Option<PathBuf>) -> anyhow::Result<DatabaseSource> {
        if named.is_none()
            && let Some(place) = app::find_source(&workflows::load_settings(&self.config)?)?
        {
            return Ok(place);
        }
        Ok(DatabaseSource::Files(self.data_directory(named)?))
    }
}

/// Parses the command line and runs the command that it names.
pub fn main() -> ExitCode {
    // The sandbox re-executes this binary as its inner stage. Must run before any thread starts, so restrictions apply
    // to the whole process.
    if std::env::args_os().nth(1).is_some_and(|command| command == crate::sandbox::INNER_STAGE_COMMAND) {
        return crate::sandbox::run_inner_stage();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    log_to_stderr(&cli);
    if let Err(error) = proc::disable_core_dumps() {
        tracing::warn!(%error, "could not disable core dumps; a crash may write this process's memory to disk");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return print_failure(format_args!("cannot start: {error}")),
    };
    let result = runtime.block_on(async {
        match cli.command {
            CliCommand::Demo(command) => command.run().await,
            CliCommand::Init(command) => Box::pin(command.run()).await,
            CliCommand::Setup(command) => command.run().await,
            CliCommand::Login(command) => command.run().await,
            CliCommand::Doctor(command) => command.run().await,
            CliCommand::Serve(command) => Box::pin(command.run()).await,
            CliCommand::Open(command) => command.run().await,
            CliCommand::Runs(command) => command.run().await,
            CliCommand::Diff(command) => command.run(),
            CliCommand::Cost(command) => command.run().await,
            CliCommand::Routes(command) => command.run().await,
            CliCommand::Pause(command) => command.run().await,
            CliCommand::Resume(command) => command.run().await,
            CliCommand::Retry(command) => command.run().await,
            CliCommand::Reload(command) => command.run().await,
            CliCommand::Forget(command) => command.run().await,
            CliCommand::Backup(command) => command.run().await,
            CliCommand::Check(command) => command.run().await,
            CliCommand::Archive(command) => command.run().await,
            CliCommand::Move(command) => command.run().await,
            CliCommand::Audit(command) => command.run().await,
            CliCommand::Export(command) => command.run().await,
            CliCommand::Simulate(command) => Box::pin(command.run()).await,
            CliCommand::Context(command) => command.run().await,
            CliCommand::Test(command) => command.run().await,
            CliCommand::Graph(command) => command.run(),
            CliCommand::Models(command) => command.run(),
            CliCommand::Replay(command) => command.run(),
            CliCommand::Sandbox(command) => command.run().await,
            CliCommand::Localhub(command) => command.run().await,
            CliCommand::Healthy(command) => command.run().await,
            CliCommand::Completions(command) => command.run(),
            CliCommand::Man(command) => command.run(),
        }
    });
    // A blocking read of stdin must not keep a finished command alive.
    runtime.shutdown_background();
    match result {
        Ok(code) => code,
        Err(error) => print_failure(with_causes(&*error)),
    }
}

/// Returns the clap command, so that tests can check its definition without running a command.
pub fn command() -> clap::Command {
    Cli::command()
}

fn print_failure(message: impl Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "countersign: {message}");
    ExitCode::FAILURE
}

fn log_to_stderr(cli: &Cli) {
    let level = match (cli.log, &cli.command) {
        (LogChoice::Default, CliCommand::Serve(_)) | (LogChoice::Info, _) => LevelFilter::INFO,
        (LogChoice::Default | LogChoice::Error, _) => LevelFilter::ERROR,
        (LogChoice::Warn, _) => LevelFilter::WARN,
        (LogChoice::Debug, _) => LevelFilter::DEBUG,
    };
    // Other crates' debug lines may hold request headers; ours hold ids only. At the default level of interactive
    // commands, other crates' warnings are dropped, because we print the error ourselves.
    let others = if level >= LevelFilter::INFO { LevelFilter::WARN } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(others).with_target("countersign", level);
    let registry = tracing_subscriber::registry().with(targets);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    if cli.log_json {
        registry.with(lines.json()).init();
    } else {
        registry.with(lines.with_target(false).with_ansi(std::io::stderr().is_terminal())).init();
    }
}

/// Returns a message that explains why GitHub does not accept us as the configured App, and how to fix the problem.
fn wrong_app_message(settings: &Settings, fault: &GitHubApiError) -> String {
    let id = settings.app.id;
    let api = &settings.github.api_url;
    match fault {
        GitHubApiError::NotFound { .. } => format!(
            "{api} knows no App with id {id}; correct id under [app], the number is at the top of the App's settings page"
        ),
        GitHubApiError::Unauthorized { message, .. } => format!(
            "GitHub does not accept the key {} for App {id} ({message}); check that the key is this App's, the id under \
             [app], and this machine's clock",
            settings.app.private_key_file.display()
        ),
        GitHubApiError::Transient { why, .. } => format!(
            "{api} cannot be reached ({why}); check api_url under [github] and this machine's network"
        ),
        other => other.to_string(),
    }
}

/// Prints a usage error that clap's own rules cannot express. Returns exit code 2.
fn report_usage_error(message: impl Display) -> ExitCode {
    let _ = Cli::command().error(ErrorKind::ValueValidation, message).print();
    ExitCode::from(2)
}

/// Exit code after Ctrl-C; shells use the same code for SIGINT.
const INTERRUPTED: u8 = 130;

/// Returns a parser that makes a path absolute immediately, so that later code does not depend on the working
/// directory.
fn absolute_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(std::path::absolute::<PathBuf>)
}

fn sandbox_level<const MANY: usize>(levels: [Level; MANY]) -> impl TypedValueParser<Value = Level> {
    let named = move |name: String| levels.into_iter().find(|level| level.as_str() == name);
    PossibleValuesParser::new(levels.map(Level::as_str))
        .try_map(move |name| named(name).ok_or("no such level"))
}

/// Creates the directory, or reuses it if it is empty or contains the file `mark` from an earlier use. Returns an
/// exclusive lock on the directory.
fn claim_directory(directory: &Path, mark: &str) -> anyhow::Result<File> {
    let shown = directory.display();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("{shown} cannot be created"))?;
    let cannot = || format!("{shown} cannot be used");
    let lock = File::open(directory).with_context(cannot)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!(
                "{shown} is in use by another countersign; stop that one, or name another directory with --data"
            )
        }
        locked => locked.with_context(cannot)?,
    }
    let mark = directory.join(mark);
    if !mark.exists() {
        if fs::read_dir(directory).with_context(cannot)?.next().is_some() {
            bail!(
                "{shown} holds files that this command did not create; name a new or an empty directory with --data"
            );
        }
        File::create_new(mark).with_context(cannot)?;
    }
    Ok(lock)
}

/// Fails if `data` contains no databases, because commands that only read must not create databases.
fn require_data(data: &Path) -> anyhow::Result<()> {
    if data.join("main.db").exists() {
        return Ok(());
    }
    let databases = fs::read_dir(data.join("repos")).into_iter().flatten().flatten();
    if databases.into_iter().any(|folder| folder.path().join("checkpoints.db").exists()) {
        bail!(
            "{} has lost its main.db: restore it from a backup, or start the server, which creates a new one and reads the \
             costs from the repositories' ledgers",
            data.display()
        );
    }
    Err(anyhow::anyhow!(
        "{} holds no countersign databases; check [data] dir in the settings. With Postgres, this command needs a running server",
        data.display()
    ))
}

/// Maximum width to which table cells are padded. The limit prevents one long cell from moving the other columns off
/// the screen.
const WIDEST_COLUMN: usize = 60;

/// Formats rows as a table with aligned columns.
fn align_columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(WIDEST_COLUMN)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Prints one line to stdout. Errors are ignored, because a closed pipe does not mean that the command failed.
fn print_line(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
