//! Runs the tools that a role requests. Read tools see the files of one commit, except files hidden from models, and
//! never the host's files.
//!
//! A path exists only if the commit lists it. A path with a special meaning to a shell or file system is refused before
//! the lookup. The refusal states the reason, so that the model does not try another spelling.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use similar::TextDiff;

use super::{
    MOST_CALLS, RESULT_CHARS,
    roles::{AgentRole, AgentTool, ToolAvailability, ToolchainProfile},
    tool_requests::{ToolRequest, truncate_line},
};
use crate::{
    codebase::{Index, TreeIndex, fence_text, redact_text, run_blocking},
    documents::change::Workspace,
    git::{CommitEntry, EntryMode, GitError, Snapshot},
};

/// Maximum number of file bytes that one search reads in total. The result states how many files were skipped because
/// of this limit.
const SEARCH_BYTES: u64 = 32 * 1024 * 1024;

/// Maximum number of file bytes that a search holds in memory at once.
const BATCH_BYTES: u64 = 4 * 1024 * 1024;

/// Maximum number of characters shown of a matching line.
const LINE_CHARS: usize = 300;

/// Maximum number of characters of a path, name or text argument. The length is limited because a search compares the
/// argument with every path and line.
const ARGUMENT_CHARS: usize = 300;

/// Maximum number of lines in each of two compared files. The limit exists because the diff of two entirely different
/// files takes quadratic time.
const DIFF_LINES: usize = 5_000;

/// Runs the tool calls of a role on one commit.
pub struct ToolExecutor {
    index: Arc<Index>,
    snapshot: Snapshot,
    profile: ToolchainProfile,
    /// Whether commands are available. Their outputs are in `command_outputs`.
    commands: bool,
    command_outputs: Vec<(AgentTool, String)>,
    /// Files that the change under review writes, each with its new text; `None` if the change removes the file.
    changed: Vec<(String, Option<String>)>,
    /// Workspace with the files that the role has written, which read tools also see. The field `write_results`
    /// contains the results of the write calls by call index.
    workspace: Option<(Workspace, TreeIndex)>,
    write_results: HashMap<usize, ToolResult>,
}

/// Results of all tool calls in one model response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolCallReport {
    /// Text for the model that lists each call with its result. The text is untrusted because it quotes files.
    pub text: String,
    pub calls: usize,
    pub refused: usize,
}

/// Output of a tool, or the reason why the call was refused.
type ToolResult = Result<ToolOutput, String>;

/// File content, and a note about it from our code. The two are separate because a file may contain text that looks
/// like such a note.
#[derive(Default, Clone)]
struct ToolOutput {
    /// Note written by our code.
    note: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
    #[serde(default = "first")]
    from: usize,
}

fn first() -> usize {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    #[serde(default)]
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    text: Option<String>,
    name: Option<String>,
    #[serde(default)]
    path: String,
}

/// Arguments of `write` and its aliases. The alias `cp` uses `from`, and `mkdir` uses only `path`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    text: Option<String>,
    from: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountArguments {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DiffArguments {
    path: String,
    other: Option<String>,
}

impl ToolExecutor {
    /// Creates an executor for one commit. If `commands` is true, the role's commands are available; in that case the
    /// caller must run the requested commands before calling [`Self::run_calls`].
    pub fn new(index: Arc<Index>, snapshot: Snapshot, commands: bool) -> Self {
        let profile = ToolchainProfile::detect(snapshot.entries().iter().map(|entry| entry.path.as_str()));
        let (ran, changed, wrote) = (Vec::new(), Vec::new(), HashMap::new());
        Self {
            index,
            snapshot,
            profile,
            commands,
            command_outputs: ran,
            changed,
            workspace: None,
            write_results: wrote,
        }
    }

    /// Adds a workspace to which the role can write.
    #[must_use]
    pub fn with_workspace(self, workspace: Workspace, tree: TreeIndex) -> Self {
        Self { workspace: Some((workspace, tree)), ..self }
    }

    /// Returns the workspace if one was added.
    pub fn workspace(&self) -> Option<&Workspace> {
        self.workspace.as_ref().map(|(workspace, _)| workspace)
    }

    fn authorize(&self, role: &AgentRole, name: &str) -> Result<AgentTool, String> {
        let done = ToolAvailability {
            commands: self.commands.then_some(self.profile),
            writes: self.workspace.is_some(),
        };
        role.authorize(self.profile, done, name)
    }

    /// Runs the write calls that the role may make. A step that is retried gets the same results.
    ///
    /// # Errors
    /// Returns an error if git fails.
    pub async fn run_write_calls(
        &mut self,
        role: &AgentRole,
        requests: &[ToolRequest],
    ) -> Result<(), GitError> {
        for (at, call) in requests.iter().enumerate().take(MOST_CALLS) {
            if self.authorize(role, &call.name) == Ok(AgentTool::Write) {
                let found = match parse_arguments::<WriteArguments>(&call.arguments) {
                    Ok(arguments) => self.write_file(arguments).await?,
                    Err(why) => Err(why),
                };
                self.write_results.insert(at, found);
            }
        }
        Ok(())
    }

    async fn write_file(&mut self, arguments: WriteArguments) -> Result<ToolResult, GitError> {
        let text = match (arguments.text, arguments.from) {
            (Some(text), None) => text,
            (None, Some(from)) => match self.raw_text(&from).await?.map(|text| text.replace("\r\n", "\n")) {
                Ok(text) if redact_text(&text) != text => {
                    return Ok(Err(
                        "refused: models are shown this file otherwise than it is; write a text".to_owned()
                    ));
                }
                Ok(text) if text.trim_start().starts_with("<<<<<<<") => {
                    return Ok(Err("refused: it begins like an edit; write a text".to_owned()));
                }
                Ok(text) => text,
                Err(why) => return Ok(Err(why)),
            },
            (None, None) => {
                return Ok(Ok(note_only("[a folder is there as soon as a file is written in it]")));
            }
            (Some(_), Some(_)) => return Ok(Err("refused: say a `text` or a `from`, not both".to_owned())),
        };
        if is_too_long(&arguments.path) {
            return Ok(Err(format!("refused: `path` is longer than {ARGUMENT_CHARS} characters")));
        }
        let Some((workspace, tree)) = &mut self.workspace else {
            return Ok(Err("refused: there is no workspace".to_owned()));
        };
        Ok(match workspace.write_file(&arguments.path, &text, tree) {
            Ok(()) => {
                let lines =
                    workspace.file_text(&arguments.path).flatten().map_or(0, |text| text.lines().count());
                Ok(note_only(format!("written; it has {lines} lines")))
            }
            Err(why) => Err(format!("refused: {}", truncate_line(&why, 2_000))),
        })
    }

    /// Adds the files of the change under review, so that read tools see their new texts.
    #[must_use]
    pub fn with_changes(self, changed: &[(String, Option<String>)]) -> Self {
        Self { changed: changed.to_vec(), ..self }
    }

    /// Returns the commands among the requested tools, each at most once and with its command line.
    pub fn commands_to_run(
        &self,
        role: &AgentRole,
        requests: &[ToolRequest],
    ) -> Vec<(AgentTool, &'static str)> {
        let mut lines: Vec<(AgentTool, &'static str)> = Vec::new();
        for call in requests.iter().take(MOST_CALLS) {
            let Ok(tool) = self.authorize(role, &call.name) else { continue };
            let line = self
                .profile
                .command_line(tool)
                .filter(|_| parse_arguments::<NoArguments>(&call.arguments).is_ok());
            if !lines.iter().any(|(known, _)| *known == tool) {
                lines.extend(line.map(|line| (tool, line)));
            }
        }
        lines
    }

    /// Adds the output of a command that the caller has run.
    pub fn with_command_output(mut self, tool: AgentTool, output: &str) -> Self {
        self.command_outputs.push((tool, output.to_owned()));
        self
    }

    /// Runs the requested tools in order and refuses the tools that the role may not use.
    ///
    /// # Errors
    /// Returns an error if git fails. A mistake in a tool call is not an error: the model gets a refusal as the result
    /// of that call.
    pub async fn run_calls(
        &self,
        role: &AgentRole,
        requests: &[ToolRequest],
    ) -> Result<ToolCallReport, GitError> {
        let mut report = ToolCallReport { calls: requests.len(), ..ToolCallReport::default() };
        for (at, call) in requests.iter().enumerate().take(MOST_CALLS) {
            let found = match self.authorize(role, &call.name) {
                Ok(AgentTool::Write) => self
                    .write_results
                    .get(&at)
                    .cloned()
                    .unwrap_or(Err("refused: it was not written".to_owned())),
                Ok(tool) => self.run_tool(tool, &call.arguments).await?,
                Err(refusal) => Err(refusal),
            };
            report.refused += usize::from(found.is_err());
            let ToolOutput { note, text } = found.unwrap_or_else(note_only);
            report.text += &format!("call {}: {}\n", at + 1, call.one_line());
            if !note.is_empty() {
                report.text += &format!("{note}\n");
            }
            if !text.is_empty() {
                report.text += &fence_text(&text);
            }
            report.text.push('\n');
        }
        if requests.len() > MOST_CALLS {
            report.refused += requests.len() - MOST_CALLS;
            let (from, to) = (MOST_CALLS + 1, requests.len());
            report.text +=
                &format!("calls {from} to {to}: refused, for an answer may hold at most {MOST_CALLS}\n");
        }
        Ok(report)
    }

    async fn run_tool(&self, tool: AgentTool, arguments: &Value) -> Result<ToolResult, GitError> {
        Ok(match tool {
            AgentTool::Read => match parse_arguments(arguments) {
                Ok(arguments) => self.read_file(&arguments).await?,
                Err(why) => Err(why),
            },
            AgentTool::List => parse_arguments(arguments).and_then(|arguments| self.list_folder(&arguments)),
            AgentTool::Search => match parse_arguments(arguments) {
                Ok(arguments) => self.search_files(&arguments).await?,
                Err(why) => Err(why),
            },
            AgentTool::Count => match parse_arguments::<CountArguments>(arguments) {
                Ok(CountArguments { path }) => self.shown_text(&path).await?.map(|text| {
                    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
                    note_only(format!("{lines} lines, {words} words, {} bytes", text.len()))
                }),
                Err(why) => Err(why),
            },
            AgentTool::Diff => match parse_arguments(arguments) {
                Ok(arguments) => self.diff_files(&arguments).await?,
                Err(why) => Err(why),
            },
            AgentTool::Typecheck | AgentTool::Lint | AgentTool::Format | AgentTool::Test => {
                parse_arguments::<NoArguments>(arguments).and_then(|NoArguments {}| {
                    let (_, output) = self
                        .command_outputs
                        .iter()
                        .find(|(ran, _)| *ran == tool)
                        .ok_or("refused: it was not run")?;
                    let (ended, output) = output.split_once('\n').unwrap_or((output, ""));
                    let ToolOutput { note, text } = truncate_output(&redact_text(output));
                    Ok(ToolOutput {
                        note: format!("{}\n{note}", truncate_line(ended, LINE_CHARS)).trim_end().to_owned(),
                        text,
                    })
                })
            }
            AgentTool::Write | AgentTool::Fetch => Err("refused: it is not done here".to_owned()),
        })
    }

    async fn read_file(&self, arguments: &ReadArguments) -> Result<ToolResult, GitError> {
        let text = match self.shown_text(&arguments.path).await? {
            Ok(text) => text,
            Err(why) => return Ok(Err(why)),
        };
        let (all, from) = (text.lines().count(), arguments.from.max(1));
        if from > all.max(1) {
            return Ok(Err(format!("refused: it has {all} lines, and from = {from} is beyond them")));
        }
        let mut shown = String::new();
        let mut chars = 0;
        for (at, text) in text.split_inclusive('\n').enumerate().skip(from - 1) {
            chars += text.chars().count();
            if chars > RESULT_CHARS {
                if shown.is_empty() {
                    return Ok(Ok(truncate_output(text)));
                }
                let note = format!(
                    "[cut at {RESULT_CHARS} characters: lines {from} to {at} of {all}; go on with from = {}]",
                    at + 1
                );
                return Ok(Ok(ToolOutput { note, text: shown }));
            }
            shown += text;
        }
        Ok(Ok(match shown.is_empty() {
            true => note_only("[it is empty]"),
            false => ToolOutput { text: shown, ..ToolOutput::default() },
        }))
    }

    fn list_folder(&self, arguments: &ListArguments) -> ToolResult {
        let folder = repository_path(&arguments.path)?;
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut lines: Vec<String> = Vec::new();
        let entries = self.snapshot.entries().iter();
        let mut entries: BTreeMap<&str, (EntryMode, u64)> =
            entries.map(|entry| (entry.path.as_str(), (entry.mode, entry.size))).collect();
        let copied = self.workspace().map(Workspace::changed_files).unwrap_or_default();
        for (path, text) in &copied {
            match text {
                Some(text) => drop(entries.insert(path, (EntryMode::File, text.len() as u64))),
                None => drop(entries.remove(path.as_str())),
            }
        }
        for (path, (mode, size)) in entries {
            let Some(rest) = path.strip_prefix(&start) else { continue };
            let text = match (rest.split_once('/'), mode) {
                (Some((inner, _)), _) => format!("{}/", truncate_line(inner, 200)),
                (None, EntryMode::Symlink) => {
                    format!("{} (a symbolic link, which is not followed)", truncate_line(rest, 200))
                }
                (None, EntryMode::Submodule) => format!("{} (a submodule)", truncate_line(rest, 200)),
                (None, _) => format!("{} ({size} bytes)", truncate_line(rest, 200)),
            };
            if lines.last() != Some(&text) {
                lines.push(text);
            }
        }
        match lines.is_empty() {
            true => {
                Err(format!("refused: there is no folder {:?} at this commit", truncate_line(folder, 120)))
            }
            false => Ok(truncate_output(&lines.join("\n"))),
        }
    }

    async fn search_files(&self, arguments: &SearchArguments) -> Result<ToolResult, GitError> {
        let folder = match repository_path(&arguments.path) {
            Ok(folder) => folder,
            Err(why) => return Ok(Err(why)),
        };
        let text = arguments.text.as_deref().filter(|text| !text.is_empty());
        let name = arguments.name.as_deref().filter(|name| !name.is_empty());
        for (key, given) in [("text", text), ("name", name)] {
            if given.is_some_and(is_too_long) {
                return Ok(Err(format!("refused: `{key}` is longer than {ARGUMENT_CHARS} characters")));
            }
        }
        if text.is_none() && name.is_none() && folder.is_empty() {
            return Ok(Err("refused: say a text, a name or a path".to_owned()));
        }
        let start = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let meant = |path: &str| {
            (path == folder || path.starts_with(&start))
                && name.is_none_or(|name| matches_wildcard(path, name))
        };
        let mut copied = self.workspace().map(Workspace::changed_files).unwrap_or_default();
        let other = |path: &str| copied.iter().any(|(known, _)| known == path);
        let files = self.index.files().iter().filter(|file| meant(&file.path) && !other(&file.path));
        let entries: Vec<&CommitEntry> = files.filter_map(|file| self.snapshot.entry(&file.path)).collect();
        copied.retain(|(path, text)| meant(path) && text.is_some());
        let Some(text) = text else {
            let mut paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
            paths.extend(copied.iter().map(|(path, _)| path.as_str()));
            paths.sort_unstable();
            let all = self.index.files().len();
            return Ok(Ok(match paths.is_empty() {
                true => note_only(format!("[no such file among the {all} files that are searched]")),
                false => truncate_output(&paths.join("\n")),
            }));
        };
        let all = entries.len() + copied.len();
        let copied: Vec<_> = copied.into_iter().filter_map(|(path, text)| Some((path, text?))).collect();
        let (mut rows, mut full) = add_matching_lines(String::new(), &copied, text);
        let (mut read, mut at) = (0, 0);
        while at < entries.len() && !full && read < SEARCH_BYTES {
            let mut batch = 0;
            let from = at;
            while at < entries.len() && (at == from || batch + entries[at].size <= BATCH_BYTES) {
                batch += entries[at].size;
                at += 1;
            }
            read += batch;
            let (texts, sought) = (self.snapshot.read_texts(&entries[from..at]).await?, text.to_owned());
            (rows, full) = run_blocking(move || add_matching_lines(rows, &texts, &sought)).await?;
        }
        let left = entries.len() - at;
        let mut note = Vec::new();
        if rows.is_empty() {
            note.push(format!("[no line has it in the {} files that are searched]", all - left));
        }
        if full {
            note.push(format!(
                "[cut at {RESULT_CHARS} characters: there are more lines; say a path or a name]"
            ));
        } else if left > 0 {
            note.push(format!("[{left} files were not looked into; say a path or a name]"));
        }
        Ok(Ok(ToolOutput { note: note.join("\n"), text: rows }))
    }

    async fn diff_files(&self, arguments: &DiffArguments) -> Result<ToolResult, GitError> {
        let one = self.shown_text(&arguments.path).await?;
        let (one, other) = match &arguments.other {
            Some(other) => (one, self.shown_text(other).await?),
            None => match self.changed.iter().find(|(path, _)| *path == arguments.path) {
                // A new file has no old text.
                Some((path, text)) => {
                    let one = if self.snapshot.entry(path).is_none() { Ok(String::new()) } else { one };
                    (one, Ok(redact_text(text.as_deref().unwrap_or_default())))
                }
                None => (one, Err("refused: nothing here changes it; say an `other` file".to_owned())),
            },
        };
        let (one, other) = match (one, other) {
            (Ok(one), Ok(other)) => (one, other),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        if one.lines().count().max(other.lines().count()) > DIFF_LINES {
            return Ok(Err(format!("refused: files of more than {DIFF_LINES} lines are not compared")));
        }
        let diff = move || TextDiff::from_lines(&one, &other).unified_diff().context_radius(3).to_string();
        let diff = run_blocking(diff).await?;
        Ok(Ok(if diff.is_empty() { note_only("[they are alike]") } else { truncate_output(&diff) }))
    }

    /// Returns the text of a file with its secrets redacted, as it is shown to models. The inner error is a refusal for
    /// the model.
    async fn shown_text(&self, path: &str) -> Result<Result<String, String>, GitError> {
        Ok(self.raw_text(path).await?.map(|text| redact_text(&text)))
    }

    /// Returns the unredacted text of a file that models may see. The inner error is a refusal for the model.
    async fn raw_text(&self, path: &str) -> Result<Result<String, String>, GitError> {
        let path = match repository_path(path) {
            Ok(path) => path,
            Err(why) => return Ok(Err(why)),
        };
        let shown = truncate_line(path, 120);
        if let Some(text) = self.workspace().and_then(|workspace| workspace.file_text(path)) {
            return Ok(text.map(str::to_owned).ok_or_else(|| format!("refused: {shown:?} is removed here")));
        }
        if self.index.file(path).is_some() {
            return Ok(match self.snapshot.read_path(path).await? {
                Some(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
                None => Err(format!("refused: {shown:?} is not a file")),
            });
        }
        let why = self.index.excluded().iter().find(|left| left.path == path).map(|left| left.why);
        let folder = format!("{path}/");
        Ok(Err(match why {
            Some(why) => format!("refused: no model is shown {shown:?}: {why}"),
            None if self.snapshot.entries().iter().any(|entry| entry.path.starts_with(&folder)) => {
                format!("refused: {shown:?} is a folder; list it")
            }
            None => format!("refused: there is no file {shown:?} at this commit"),
        }))
    }
}

/// Parses a call's arguments. Unknown fields are an error. Arguments given as a JSON string are accepted, because some
/// models send the object in that form.
fn parse_arguments<T: DeserializeOwned>(arguments: &Value) -> Result<T, String> {
    let arguments = match arguments {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    serde_json::from_value(arguments)
        .map_err(|error| format!("refused: {}", truncate_line(&error.to_string(), 160)))
}

/// Normalizes a path argument to a path in the commit. The repository root becomes the empty path. The error is a
/// refusal for the model.
fn repository_path(path: &str) -> Result<&str, String> {
    if is_too_long(path) {
        return Err(format!("refused: `path` is longer than {ARGUMENT_CHARS} characters"));
    }
    let bare = path.strip_suffix('/').unwrap_or(path);
    let why = match () {
        () if matches!(path, "" | "." | "./") => return Ok(""),
        () if path.starts_with('/') => "is absolute; paths begin at the root of the repository",
        () if path.starts_with('-') => "is an option, and options are not allowed",
        () if bare.split('/').any(|part| part == "..") => "leads out of the repository",
        () if bare.split('/').any(|part| matches!(part, "" | ".")) || path.contains('\\') => {
            "is not written as the repository has it: names with one `/` between them"
        }
        () => return Ok(bare),
    };
    Err(format!("refused: the path {:?} {why}", truncate_line(path, 120)))
}

/// Returns whether any part of the path matches the pattern `name`, in which `*` matches any characters.
fn matches_wildcard(path: &str, name: &str) -> bool {
    let mut rest = path;
    name.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

fn is_too_long(argument: &str) -> bool {
    argument.chars().nth(ARGUMENT_CHARS).is_some()
}

/// Appends a row to `rows` for each line that contains `text`. Returns the rows, and true if some rows were omitted
/// because of the size limit.
fn add_matching_lines(mut rows: String, files: &[(String, String)], text: &str) -> (String, bool) {
    let mut remaining = RESULT_CHARS.saturating_sub(rows.chars().count());
    for (path, content) in files.iter().filter(|(_, content)| content.contains(text)) {
        // Redacted text must not be found either.
        let content = redact_text(content);
        for (number, content) in content.lines().enumerate().filter(|(_, content)| content.contains(text)) {
            let row = format!("{path}:{}: {}\n", number + 1, truncate_line(content, LINE_CHARS));
            match remaining.checked_sub(row.chars().count()) {
                Some(left) => remaining = left,
                None => return (rows, true),
            }
            rows += &row;
        }
    }
    (rows, false)
}

fn note_only(note: impl Into<String>) -> ToolOutput {
    ToolOutput { note: note.into(), text: String::new() }
}

fn truncate_output(text: &str) -> ToolOutput {
    match text.char_indices().nth(RESULT_CHARS) {
        None => ToolOutput { note: String::new(), text: text.to_owned() },
        Some((at, _)) => {
            let note = format!("[cut at {RESULT_CHARS} of {} characters]", text.chars().count());
            ToolOutput { note, text: text[..at].to_owned() }
        }
    }
}
