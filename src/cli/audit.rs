//! `countersign audit` and `countersign export`: verify a repository's audit chain, and write the chain's links for one
//! issue as files.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use super::{ConfigFlag, absolute_path, align_columns, print_line, setup::write_secret};
use crate::{
    git, messages,
    store::{self, AuditRow, IssueAuditLink, TextKind, TextRow},
    types::{Hash, IssueNo, RepoId, RepoName, count},
};

/// Repository whose audit chain is read, and the data directory that contains the repository's database.
#[derive(clap::Args)]
struct AuditSource {
    #[arg(value_name = "OWNER/REPO")]
    repo: RepoName,
    /// Data directory to read instead of the one in the settings, for example that of a backup.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    data: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFlag,
}

impl AuditSource {
    fn locate(&self) -> anyhow::Result<(store::DatabaseSource, RepoId)> {
        let place = self.config.open_source(self.data.clone())?;
        let Some(repo) = store::repository_named(&place, &self.repo)? else {
            bail!(
                "no repository {} is known here; check the name as GitHub writes it now: OWNER/REPO",
                self.repo
            )
        };
        Ok((place, repo))
    }
}

/// Inspect a repository's audit chain.
///
/// Each link holds the hash of the previous link and the hash of the row that it records: a run, model call, verdict,
/// finding, answer, approval, raised budget, commit or end of a run. Texts are separate links with their own hash.
#[derive(clap::Args)]
pub(super) struct AuditCommand {
    #[command(subcommand)]
    what: AuditSubcommand,
}

#[derive(Subcommand)]
enum AuditSubcommand {
    Verify(AuditVerifyCommand),
}

/// Walk the audit chain and compare it with the database rows.
///
/// Prints every link and the head. If anything was altered, removed or reordered, names it and exits with code 1. A
/// chain that was rewritten as a whole can only be detected with an earlier head. Each commit of an approved document
/// carries such a head (Countersign-Audit), and so does its pull request; --against looks one up. Read-only; works
/// while a server runs.
#[derive(clap::Args)]
struct AuditVerifyCommand {
    #[command(flatten)]
    source: AuditSource,
    /// Commit whose Countersign-Audit trailer must name a link of the chain.
    #[arg(long, value_name = "COMMIT")]
    against: Option<String>,
    /// Clone that contains this commit; default: the server's own mirror, which contains only the commits that the
    /// server has fetched.
    #[arg(long, value_name = "PATH", requires = "against")]
    clone: Option<PathBuf>,
}

impl AuditCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            AuditSubcommand::Verify(verify) => verify.run().await,
        }
    }
}

impl AuditVerifyCommand {
    async fn run(self) -> anyhow::Result<ExitCode> {
        let (place, repo) = self.source.locate()?;
        let mut links: Vec<(usize, AuditRow)> = Vec::new();
        let walked = store::walk_audit_chain(&place, repo, |ordinal, link| links.push((ordinal, link)))?;
        let head = ["LINK", "AT", "RUN", "WHAT", "KEY", "HASH"].map(str::to_owned);
        let row = |(ordinal, link): &(usize, AuditRow)| {
            let AuditRow { run, what, key, at, hash, .. } = link;
            [
                ordinal.to_string(),
                at.to_string(),
                run.to_string(),
                what.clone(),
                key.clone(),
                hash.short().to_string(),
            ]
        };
        let rows: Vec<_> = std::iter::once(head).chain(links.iter().map(row)).collect();
        align_columns(&rows).iter().for_each(print_line);
        print_line(format_args!("{}, head {}", count(walked.links, "link", "links"), walked.head));
        for (file, documents) in archived_text_counts(links.iter().map(|(_, link)| link)) {
            print_line(format_args!("{} archived in {file}", count(documents, "document", "documents")));
        }
        if walked.uncovered > 0 {
            let rows = count(walked.uncovered, "row", "rows");
            print_line(format_args!(
                "not covered: {rows} of runs that started before the audit chain existed"
            ));
        }
        walked
            .broken
            .iter()
            .chain(&walked.altered)
            .for_each(|wrong| print_line(format_args!("WRONG: {wrong}")));
        let mut sound = walked.is_sound();
        if let Some(commit) = &self.against {
            let place = match self.clone {
                Some(clone) => clone,
                None => {
                    let data = match self.source.data {
                        Some(data) => data,
                        None => crate::workflows::load_settings(&self.source.config.config)?.data_dir,
                    };
                    data.join("repos").join(repo.to_string()).join("mirror.git")
                }
            };
            let link = read_audit_trailer(&place, commit).await?;
            match links.iter().find(|(_, row)| row.hash == link) {
                Some((ordinal, _)) => {
                    print_line(format_args!("commit {commit} names link {ordinal} of this chain"))
                }
                None => {
                    sound = false;
                    print_line(format_args!(
                        "WRONG: commit {commit} names {link}, which is not a link of this chain"
                    ));
                }
            }
        }
        print_line(if sound { "The chain holds." } else { "The chain does NOT hold." });
        Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Counts the texts that exist only in an archive, for each archive file that `countersign archive` has written.
fn archived_text_counts<'a>(links: impl Iterator<Item = &'a AuditRow>) -> BTreeMap<&'a str, usize> {
    let mut files = BTreeMap::new();
    for link in links.filter(|link| link.what == store::ARCHIVED_LINK_TEXT) {
        let documents = link.detail["documents"].as_u64().and_then(|n| usize::try_from(n).ok());
        let file = link.detail["file"].as_str().unwrap_or_default();
        *files.entry(file).or_default() += documents.unwrap_or_default();
    }
    files
}

async fn read_audit_trailer(place: &Path, commit: &str) -> anyhow::Result<Hash> {
    let found = git::open_local(place, commit).await.context(
        "name a clone that has the commit with --clone; the mirror has it once its branch was merged and fetched",
    )?;
    let message = found.commit_message().await?;
    let link = message.lines().rev().find_map(|line| line.strip_prefix(messages::AUDIT_TRAILER));
    let Some(link) = link else {
        bail!("commit {commit} has no line {}", messages::AUDIT_TRAILER.trim());
    };
    link.parse().with_context(|| format!("commit {commit} names no hash"))
}

/// Write the audit chain of one issue, as a folder or as lines of JSON.
///
/// The folder holds, numbered in order: the issue as models saw it, each draft and the fixes applied by code, verdicts,
/// people's answers, approvals, commits, and the end of the run. It also holds costs.json, findings.json and
/// audit.jsonl. With --jsonl, nothing is written to a folder: each link is printed to stdout as one line, with its row
/// and its text. Read-only; works while a server runs. The exit code is 1 if the chain does not verify; `countersign
/// audit verify` shows the reason.
#[derive(clap::Args)]
pub(super) struct ExportCommand {
    #[command(flatten)]
    source: AuditSource,
    /// The issue's number.
    #[arg(long, value_name = "N")]
    issue: u64,
    /// Folder to write; default: issue-N.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    out: Option<PathBuf>,
    /// Write into the folder even if it is not empty. Files with the same names are replaced; other files are kept.
    #[arg(long)]
    force: bool,
    /// Print lines of JSON instead of writing a folder.
    #[arg(long, conflicts_with_all = ["out", "force"])]
    jsonl: bool,
}

impl ExportCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let (place, repo) = self.source.locate()?;
        let (walked, links) = store::issue_audit_links(&place, repo, IssueNo(self.issue))?;
        if links.is_empty() {
            bail!("the audit chain of {} has no run of issue {}", self.source.repo, self.issue);
        }
        if self.jsonl {
            for link in &links {
                let mut line = link_json(link);
                line["row"] = json!(link.row);
                line["text"] = json!(link.text);
                print_line(line);
            }
        } else {
            let out = match self.out {
                Some(out) => out,
                None => std::path::absolute(format!("issue-{}", self.issue))?,
            };
            let files = issue_files(&links)?;
            write_files(&out, &files, self.force)?;
            print_line(format_args!("{} holds {}", out.display(), count(files.len(), "file", "files")));
        }
        for file in archived_text_counts(links.iter().map(|link| &link.link)).keys() {
            let note = "texts missing here were archived in";
            let _ = writeln!(std::io::stderr(), "countersign: {note} {file}");
        }
        if walked.is_sound() {
            return Ok(ExitCode::SUCCESS);
        }
        let note = "the audit chain does not verify; `countersign audit verify` says where";
        let _ = writeln!(std::io::stderr(), "countersign: {note}");
        Ok(ExitCode::FAILURE)
    }
}

fn link_json(link: &IssueAuditLink) -> Value {
    let AuditRow { run, visit, key, what, detail, at, previous, hash } = &link.link;
    json!({
        "link": link.ordinal, "run": run, "visit": visit, "key": key, "what": what, "detail": detail,
        "at": at.to_string(), "previous": previous, "hash": hash,
    })
}

/// Builds the files of the export folder. Returns the name and the text of each file.
fn issue_files(rows: &[IssueAuditLink]) -> anyhow::Result<Vec<(String, String)>> {
    let (mut files, mut lines) = (Vec::new(), String::new());
    let (mut costs, mut findings) = (Vec::new(), BTreeMap::new());
    for audited in rows {
        let link = link_json(audited);
        lines += &format!("{link}\n");
        let mut add = |name: &str, text: String| files.push((format!("{:03}-{name}", files.len() + 1), text));
        let table = audited.link.key.split(['/', ' ']).next().unwrap_or_default();
        match (table, &audited.row) {
            ("text", _) => {
                let row: TextRow = serde_json::from_value(audited.link.detail.clone())?;
                let text = audited.text.clone().unwrap_or_default();
                match row.kind {
                    TextKind::Issue => {
                        add("issue.md", format!("# {}\n\n{text}", row.title.unwrap_or_default()))
                    }
                    TextKind::Draft => add("draft.md", text),
                    TextKind::Fix => add("draft-mended.md", text),
                    TextKind::Person => add("draft-of-a-person.md", text),
                    TextKind::Tests => add("draft-with-tests.md", text),
                    TextKind::Diff => add("change.diff", text),
                    TextKind::Look => add("looked-at.txt", text),
                    TextKind::Thought => add("thoughts.txt", text),
                }
            }
            ("verdict" | "answer" | "approval" | "raise", Some(row)) => {
                add(&format!("{table}.json"), pretty_json(row)?);
            }
            ("own_commit", Some(row)) => add("commit.json", pretty_json(row)?),
            ("halt" | "end" | "stop" | "retry", _) => {
                add(&format!("{table}.json"), pretty_json(&audited.link.detail)?);
            }
            ("call", Some(row)) => {
                costs.push(
                    json!({ "run": audited.link.run, "at": link["at"], "key": audited.link.key, "call": row }),
                );
            }
            ("finding", Some(row)) => {
                // Each review writes all findings again; keep the last row of each.
                let number = row["id"].as_str().unwrap_or_default().trim_start_matches('F').parse::<u64>();
                findings.insert(
                    (audited.link.run, number.unwrap_or(u64::MAX)),
                    json!({ "run": audited.link.run, "at": link["at"], "finding": row }),
                );
            }
            _ => {}
        }
    }
    files.push(("costs.json".to_owned(), pretty_json(&json!(costs))?));
    files
        .push(("findings.json".to_owned(), pretty_json(&json!(findings.into_values().collect::<Vec<_>>()))?));
    files.push(("audit.jsonl".to_owned(), lines));
    Ok(files)
}

fn pretty_json(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn write_files(out: &Path, files: &[(String, String)], force: bool) -> anyhow::Result<()> {
    let shown = out.display();
    let cannot = || format!("{shown} cannot be written");
    // Rebuilt without a trailing slash, which would make `is_symlink` follow the link.
    if out.components().collect::<PathBuf>().is_symlink() {
        bail!("{shown} is a symbolic link; name the folder itself with --out");
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(out).with_context(cannot)?;
    if !force && fs::read_dir(out).with_context(cannot)?.next().is_some() {
        bail!("{shown} is not empty; name another folder with --out, or add --force");
    }
    for (name, text) in files {
        write_secret(&out.join(name), text)?;
    }
    Ok(())
}
