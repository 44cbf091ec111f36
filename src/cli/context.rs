//! `countersign context`: prints the parts of a repository that a model would see.

use std::{
    io::{ErrorKind, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use tokio_util::sync::CancellationToken;

use super::align_columns;
use crate::{
    codebase::{self, ContextReport, ContextRequest, ExclusionGroup, Index, TreeIndex},
    documents::FileTree as _,
    git::{self, Snapshot},
    limits,
};

/// Print the parts of a repository that a model would see.
///
/// Reads one commit of a repository on this machine. Needs no settings, no server and no network, and ignores
/// uncommitted files. The same commit and request print the same bytes, unless the report says that parsing a file
/// timed out, which depends on the machine.
///
/// Prints the list of paths, then the files that matter for the issue. Each file is printed whole, with only the code
/// of its relevant parts, or with only its signatures, whichever fits the budget best. Files named by `--files` or in
/// the issue's text come first. Without an issue, prints the repository's own description of itself.
///
/// A report goes to stderr: the chosen files with the reasons, the files that did not fit, and the files that no model
/// sees (secrets, generated, vendored and binary files). The context itself can therefore be piped: `countersign
/// context --issue issue.md | wc -c`.
#[derive(clap::Args)]
pub(super) struct ContextCommand {
    /// Path of a work tree or of a bare repository.
    #[arg(long, value_name = "PATH", default_value = ".")]
    repo: PathBuf,
    /// Text file with the issue; the first line is the issue's title.
    #[arg(long, value_name = "FILE")]
    issue: Option<PathBuf>,
    /// Commit: a branch, a tag or a hash.
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    rev: String,
    /// Files that the work concerns, separated by commas; their interfaces come first.
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    files: Vec<String>,
    /// Budget in tokens. Tokens are estimated for the publicly known vocabulary that needs the most tokens; a token is
    /// 3 to 4 bytes of code.
    #[arg(long, value_name = "TOKENS", default_value_t = limits::CONTEXT_TOKENS)]
    budget: usize,
}

impl ContextCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let text = match &self.issue {
            Some(file) => read_issue(file)?,
            None => String::new(),
        };
        let snapshot = git::open_local(&self.repo, &self.rev).await?;
        if snapshot.entries().is_empty() {
            bail!("commit {} has no files; name another with --rev", snapshot.commit);
        }
        let files: Vec<String> = self.files.into_iter().filter(|path| !path.is_empty()).collect();
        require_files(&snapshot, &files)?;
        let index = Arc::new(Index::read_uncached(&snapshot, &CancellationToken::new()).await?);
        let request = ContextRequest { text, files, budget: self.budget };
        let context = codebase::gather_context(index, &snapshot, request).await?;
        print_context(format!("{}{}", context.shown.paths, context.shown.files.concat()).trim_end())?;
        if std::io::stdout().is_terminal() {
            print_report_line("");
        }
        print_report(&snapshot, &context.report);
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the context. Ignores a closed pipe, but fails on any other write error because the output would then be
/// incomplete.
fn print_context(context: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match writeln!(out, "{context}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("the context cannot be written")
        }
        _ => Ok(()),
    }
}

fn read_issue(file: &Path) -> anyhow::Result<String> {
    let most = limits::SIMILAR_TEXT;
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file);
    opened
        .and_then(|open| open.take(most as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| format!("{} cannot be read", file.display()))?;
    if bytes.len() > most {
        bail!("{} is longer than {} KB, more than any issue", file.display(), most / 1024);
    }
    String::from_utf8(bytes).map_err(|_| anyhow!("{} is not UTF-8 text", file.display()))
}

fn require_files(snapshot: &Snapshot, files: &[String]) -> anyhow::Result<()> {
    let Some(absent) = files.iter().find(|path| snapshot.entry(path).is_none()) else { return Ok(()) };
    let near =
        TreeIndex::new(snapshot.entries().iter().map(|entry| entry.path.as_str())).nearest_paths(absent);
    let hint = if near.is_empty() { String::new() } else { format!("; similar paths: {}", near.join(", ")) };
    bail!("{absent} is not in commit {}{hint}", snapshot.commit)
}

fn print_report(snapshot: &Snapshot, report: &ContextReport) {
    print_report_line(format_args!(
        "commit {}: {} of {} tokens",
        snapshot.commit, report.tokens, report.budget
    ));
    let head = ["tokens", "what", "of", "why"].map(str::to_owned);
    let listing = [report.listing.to_string(), "paths".to_owned(), String::new(), String::new()];
    let rows = report
        .included
        .iter()
        .map(|file| [file.tokens.to_string(), file.form.to_owned(), file.path.clone(), file.why.clone()]);
    for line in align_columns(&[head, listing].into_iter().chain(rows).collect::<Vec<_>>()) {
        print_report_line(line);
    }
    if report.included.is_empty() {
        print_report_line(
            "no file is shown: name some with --files or in an issue with --issue, or raise --budget",
        );
    }
    if !report.no_room.is_empty() {
        print_report_line(format_args!(
            "did not fit, {}: {}",
            report.no_room.len(),
            report.no_room.join(", ")
        ));
    }
    for (path, why) in &report.refused {
        print_report_line(format_args!("{path} is never shown: {why}"));
    }
    for ExclusionGroup { why, count, some } in &report.left_out {
        let more = if *count > some.len() { ", …" } else { "" };
        print_report_line(format_args!("never shown, {why}: {count} ({}{more})", some.join(", ")));
    }
    if !report.timed_out.is_empty() {
        let paths = report.timed_out.join(", ");
        print_report_line(format_args!("read in part, because the parser timed out: {paths}"));
    }
    if report.secrets > 0 {
        print_report_line(format_args!("credentials redacted: {}", report.secrets));
    }
}

/// Prints a line of the report to stderr.
fn print_report_line(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
