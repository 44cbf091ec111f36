//! Parses the commands of a comment against a table of [`CommandSpec`]s.
//!
//! A command starts a line of plain prose. Commands in code, quotes, HTML, links, lists or headings are ignored. Each
//! line is a command, a mistake, or neither; the result contains only commands and mistakes. The parser knows neither
//! the author of the comment nor the open runs, so the caller decides whether to reply to a mistake.
//!
//! A line that starts with a mention of the App, such as `@countersign please look into this`, is a request in free
//! text. The request becomes the command [`ROUTE`], unless the comment contains another command.

mod lines;
mod lone_command;
mod quoted_text;

pub use quoted_text::find_quoted_text;

use crate::types::{APPROVAL_OPTIONS, MicroUsd, Role, Verb};

/// One row of the command table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandSpec {
    /// Name of the command, without the slash.
    pub name: &'static str,
    /// Usage line, for example `/revise TEXT`.
    pub usage: &'static str,
    /// Description of the command, shown in the reply to `/help`.
    pub about: &'static str,
    /// Minimum role that a person needs to use the command.
    pub role: Role,
    /// Label that has the same effect as the command when a person adds the label to an issue.
    pub label: Option<&'static str>,
    pub kind: CommandKind,
}

/// Effect of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// The command starts the workflow whose table contains the command.
    Start,
    Common(Verb),
}

impl CommandKind {
    /// Returns the verb if every workflow understands the command; `None` if the command starts a workflow.
    pub fn verb(self) -> Option<Verb> {
        match self {
            Self::Start => None,
            Self::Common(verb) => Some(verb),
        }
    }
}

impl CommandSpec {
    /// Returns whether the command takes free text. Such text may span several lines and must not be empty.
    pub fn takes_text(&self) -> bool {
        self.usage.split_whitespace().any(|word| matches!(word, "TEXT" | "REASON" | "…"))
    }
}

/// Command that starts a workflow and, after it, the workflows that follow from its result.
pub const AUTO: &str = "auto";

/// Command like [`AUTO`], but people's approval is skipped for documents that only describe the work.
pub const HOTFIX: &str = "hotfix";

const fn common(verb: Verb, usage: &'static str, about: &'static str, role: Role) -> CommandSpec {
    CommandSpec { name: verb.as_str(), usage, about, role, label: None, kind: CommandKind::Common(verb) }
}

/// Commands that every workflow accepts.
pub const COMMON: &[CommandSpec] = &[
    common(
        Verb::Approve,
        "/approve [stage] [option] [hash]",
        "accept the document or change at the open gate; to file an issue: `/approve new` or `/approve in-place`; to allow \
                more files: `/approve scope +PATH`",
        Role::Write,
    ),
    common(Verb::Revise, "/revise TEXT", "send the document back to the drafter with TEXT", Role::Write),
    common(
        Verb::Override,
        "/override REASON",
        "accept a document or change that the review did not approve; the reason is recorded",
        Role::Maintain,
    ),
    common(
        Verb::Dismiss,
        "/dismiss F3 REASON",
        "dismiss a finding that is not a defect; for a blocking finding you need the role maintain",
        Role::Write,
    ),
    common(
        Verb::MustFix,
        "/must-fix F3",
        "require a fix for a finding, whatever later reviews say",
        Role::Write,
    ),
    common(
        Verb::Answer,
        "/answer 1: … 2: …",
        "answer the numbered questions; the issue's author may answer too",
        Role::Write,
    ),
    common(
        Verb::Budget,
        "/budget +N",
        "let a paused run spend N dollars more, up to the server's cap",
        Role::Maintain,
    ),
    common(
        Verb::Retry,
        "/retry",
        "resume a halted run at the step that failed, with one more draft if none is left; at an INCONCLUSIVE gate, review the same version again",
        Role::Triage,
    ),
    common(
        Verb::Restart,
        "/restart [stage]",
        "end the run and start its workflow from the beginning",
        Role::Triage,
    ),
    CommandSpec {
        label: Some("countersign:stop"),
        ..common(Verb::Stop, "/stop", "end the run and keep its results so far", Role::Triage)
    },
    common(Verb::Cost, "/cost", "show the cost of all work on this issue", Role::Triage),
    common(Verb::Status, "/status", "show the state of the runs on this issue", Role::Read),
    common(Verb::Help, "/help", "list these commands", Role::Read),
];

/// A parsed command of a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentCommand {
    pub spec: CommandSpec,
    pub args: String,
    /// Whether the command names the App, as in `/countersign approve`. Such a command cannot be meant for another bot.
    pub addressed: bool,
    /// Line number of the command in the comment, counted from 1.
    pub line: usize,
}

/// A line that is meant for the App but is not a valid command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandMistake {
    /// The word is similar to a command's name, or the line names the App. Reply to it only if `addressed` is true or a
    /// gate is open, because otherwise the line may be meant for another bot.
    Unknown { word: String, did_you_mean: Option<&'static str>, addressed: bool, line: usize },
    /// The comment consists only of this command, but the command is inside code, bold text or a list, or contains a
    /// typo.
    NotPlain { spec: CommandSpec, args: String, misspelt: bool },
    /// The command requires text, but the comment contains no text after the command.
    NeedsText { spec: CommandSpec, line: usize },
}

/// Parses all commands of a comment, in order. `slug` is the App's name on GitHub. A command may name the App by `slug`
/// or as `countersign`, as in `/countersign approve`.
pub fn parse(
    rows: &[CommandSpec],
    slug: Option<&str>,
    text: &str,
) -> Vec<Result<CommentCommand, CommandMistake>> {
    let found: Vec<CommandLine> = lines::lines_opening_with('/', text)
        .into_iter()
        .filter_map(|line| CommandLine::parse_line(rows, slug, text, line))
        .collect();
    let mut out: Vec<Result<CommentCommand, CommandMistake>> = Vec::new();
    for (index, this) in found.iter().enumerate() {
        let line = text[..this.start].matches('\n').count() + 1;
        let spec = match &this.word {
            CommandWord::Ours(spec) => *spec,
            CommandWord::Wrong { word, did_you_mean } => {
                let (word, addressed) = (word.clone(), this.addressed);
                out.push(Err(CommandMistake::Unknown { word, did_you_mean: *did_you_mean, addressed, line }));
                continue;
            }
        };
        let end = if spec.takes_text() {
            found.get(index + 1).map_or(text.len(), |next| next.start)
        } else {
            text[this.args..].find('\n').map_or(text.len(), |n| this.args + n)
        };
        let args = text[this.args..end].trim().to_owned();
        if spec.takes_text() && args.is_empty() {
            out.push(Err(CommandMistake::NeedsText { spec, line }));
        } else {
            out.push(Ok(CommentCommand { spec, args, addressed: this.addressed, line }));
        }
    }
    let plain = |result: &Result<CommentCommand, CommandMistake>| {
        matches!(
            result,
            Ok(_) | Err(CommandMistake::Unknown { addressed: true, .. } | CommandMistake::NeedsText { .. })
        )
    };
    match slug.filter(|_| !out.iter().any(plain)).and_then(|slug| parse_mention(rows, slug, text)) {
        Some(mention) => return vec![Ok(mention)],
        None if out.iter().any(plain) => return out,
        None => {}
    }
    match lone_command::parse_lone_command(rows, text) {
        Some((spec, args)) => {
            let misspelt = !out.is_empty();
            vec![Err(CommandMistake::NotPlain { spec, args, misspelt })]
        }
        None => out,
    }
}

/// Parses a request that mentions the App by name. The request starts at a line of plain prose that begins with the
/// mention, and runs to the end of the comment. A mention without a request means `/help`. A mention followed by a
/// command name, such as `@countersign stop`, means that command.
fn parse_mention(rows: &[CommandSpec], slug: &str, text: &str) -> Option<CommentCommand> {
    let row = |name: &str| rows.iter().find(|row| row.name.eq_ignore_ascii_case(name));
    let route = row(ROUTE)?;
    let ours = |start: &usize| {
        let name = word_at(text, start + 1).0.trim_end_matches([',', ':', '.', '!', '?', ';']);
        name.strip_suffix("[bot]").unwrap_or(name).eq_ignore_ascii_case(slug)
    };
    let start = lines::lines_opening_with('@', text).into_iter().find(ours)?;
    let request = text[word_at(text, start + 1).1..].trim();
    let line = text[..start].matches('\n').count() + 1;
    let command = |row: &CommandSpec, args: &str| {
        Some(CommentCommand { spec: *row, args: args.trim().to_owned(), addressed: true, line })
    };
    if request.is_empty() {
        return command(row("help")?, "");
    }
    let (word, args) = request.split_once(char::is_whitespace).unwrap_or((request, ""));
    let named = row(word.trim_start_matches('/').trim_end_matches(['.', ',', ':', ';', '!']));
    match named.filter(|_| word.starts_with('/') || args.trim().is_empty()) {
        Some(known) if !known.takes_text() || !args.trim().is_empty() => command(known, args),
        _ => command(route, request),
    }
}

/// Returns the command in the table that this label stands for.
pub fn find_by_label<'a>(rows: &'a [CommandSpec], label: &str) -> Option<&'a CommandSpec> {
    rows.iter().find(|row| row.label.is_some_and(|own| own.eq_ignore_ascii_case(label.trim())))
}

/// A command line. `start` and `args` are the byte offsets of the line's start and of the arguments.
struct CommandLine {
    start: usize,
    word: CommandWord,
    addressed: bool,
    args: usize,
}

enum CommandWord {
    Ours(CommandSpec),
    Wrong { word: String, did_you_mean: Option<&'static str> },
}

impl CommandLine {
    /// Parses the line whose slash is at byte offset `start`. Returns `None` if the line is not meant for the App.
    fn parse_line(rows: &[CommandSpec], slug: Option<&str>, text: &str, start: usize) -> Option<Self> {
        let (first, after) = word_at(text, start + 1);
        let named =
            first.eq_ignore_ascii_case("countersign") || slug.is_some_and(|s| first.eq_ignore_ascii_case(s));
        let (word, args) = if named { word_at(text, after) } else { (first, after) };
        let word = word
            .strip_prefix('/')
            .filter(|_| named)
            .unwrap_or(word)
            .trim_end_matches(['.', ',', ':', ';', '!']);
        if let Some(spec) = rows.iter().find(|row| row.name.eq_ignore_ascii_case(word)) {
            return Some(Self { start, word: CommandWord::Ours(*spec), addressed: named, args });
        }
        let shaped = !word.is_empty()
            && word.len() <= 40
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let did_you_mean = if shaped { nearest_name(rows, word) } else { None };
        let word = word.chars().take(40).collect();
        (named || did_you_mean.is_some()).then_some(Self {
            start,
            word: CommandWord::Wrong { word, did_you_mean },
            addressed: named,
            args,
        })
    }
}

/// Returns the next word on the same line, and the position of the word's end.
fn word_at(text: &str, from: usize) -> (&str, usize) {
    let rest = &text[from..];
    let begin = from + (rest.len() - rest.trim_start_matches([' ', '\t']).len());
    let begin = if text[..from].ends_with(['/', '@']) { from } else { begin };
    let end = text[begin..].find(char::is_whitespace).map_or(text.len(), |n| begin + n);
    (&text[begin..end], end)
}

/// Returns the name of the command that is most similar to `word`. A long name may differ by two edits. A short name
/// may differ by only one, so that another bot's `/hold` is not mistaken for `/help`.
fn nearest_name(rows: &[CommandSpec], word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    rows.iter()
        .map(|row| (edit_distance(row.name.as_bytes(), word.as_bytes()), row.name))
        .filter(|(distance, name)| *distance <= if name.len() < 6 { 1 } else { 2 })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the Levenshtein distance between the two texts.
fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Returns the approval option with which `text` starts; `None` if it starts with any other word.
pub fn parse_option(text: &str) -> Option<&'static str> {
    let first = text.split_whitespace().next()?.trim_matches(['`', '.', ',', '!', ':']);
    APPROVAL_OPTIONS.iter().find(|way| way.eq_ignore_ascii_case(first)).copied()
}

/// Finds a hash in the text of `/override`, either as the first word or after an option. Returns the hash, and the text
/// without the hash. The hash must have at least 12 digits, like the hash in a gate's comment.
pub fn split_hash(text: &str) -> Option<(String, String)> {
    let skipped = usize::from(parse_option(text).is_some());
    let word = text.split_whitespace().nth(skipped)?;
    let is_hash = (12..=64).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| (word.to_ascii_lowercase(), text.replacen(word, "", 1).trim().to_owned()))
}

/// Arguments of `/approve`: the stage, the option, and the first digits of the hash, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApproveArguments {
    pub stage: Option<String>,
    pub option: Option<String>,
    pub hash: Option<String>,
}

/// Error in the arguments of `/approve`. The error's message is quoted in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApproveError {
    #[error("a hash needs at least 8 digits")]
    ShortHash,
    #[error("usage: `/approve [stage] [option] [hash]`")]
    TooMuch,
}

impl ApproveArguments {
    pub fn parse(args: &str) -> Result<Self, ApproveError> {
        let mut out = Self::default();
        for word in
            args.split_whitespace().map(|w| w.trim_matches(['`', '.', ',', '!'])).filter(|w| !w.is_empty())
        {
            if word.len() > 1 && word.starts_with('+') {
                // A path keeps its case. Several paths form one option.
                let paths = out.option.take().map_or(String::new(), |paths| paths + " ");
                out.option = Some(paths + word);
                continue;
            }
            let hex = word.bytes().all(|b| b.is_ascii_hexdigit());
            let digits = word.bytes().any(|b| b.is_ascii_digit());
            let slot = match word.len() {
                8..=64 if hex => &mut out.hash,
                _ if hex && digits => return Err(ApproveError::ShortHash),
                _ if parse_option(word).is_some() => &mut out.option,
                1..=20 if word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') => &mut out.stage,
                _ => return Err(ApproveError::TooMuch),
            };
            if slot.replace(word.to_ascii_lowercase()).is_some() {
                return Err(ApproveError::TooMuch);
            }
        }
        Ok(out)
    }
}

/// Command to which a request in free text is converted.
pub const ROUTE: &str = "route";

/// Arguments of `/dismiss` and `/must-fix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingArguments {
    /// Finding number, such as `F3`.
    pub finding: String,
    pub text: String,
}

/// Error in the arguments of `/dismiss` or `/must-fix`. The error's message is quoted in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FindingArgumentsError {
    #[error("give the number of the finding first, as in F3")]
    NoFinding,
    #[error("give the reason after the number of the finding")]
    NoReason,
}

impl FindingArguments {
    pub fn parse(verb: Verb, args: &str) -> Result<Self, FindingArgumentsError> {
        let args = args.trim();
        let (word, text) = args.split_once(char::is_whitespace).unwrap_or((args, ""));
        let word = word.trim_matches(['`', '.', ',', ':']).to_ascii_uppercase();
        let number = word.strip_prefix('F').filter(|n| n.len() <= 4 && n.bytes().all(|b| b.is_ascii_digit()));
        if number.is_none_or(str::is_empty) {
            return Err(FindingArgumentsError::NoFinding);
        }
        let text = text.trim();
        if text.is_empty() && verb == Verb::Dismiss {
            return Err(FindingArgumentsError::NoReason);
        }
        Ok(Self { finding: word, text: text.to_owned() })
    }
}

/// Error in the arguments of `/answer`. The error's message is quoted in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("start each answer with the number of its question, as in /answer 1: yes 2: at most 20")]
pub struct AnswersError;

/// Parses the arguments of `/answer` into pairs of question number and answer. At the start of a line, any number
/// starts an answer. Within a line, only the next question number (the current number plus one) starts an answer, so
/// that the `10:` in `at 10:30` does not. If a number occurs twice, the later answer is used.
///
/// # Errors
/// Returns an error if the text does not start with a number, or if all answers are empty.
pub fn parse_answers(args: &str) -> Result<Vec<(usize, String)>, AnswersError> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for line in args.trim().lines().map(str::trim) {
        let mut rest = line;
        if let Some((number, after)) = parse_numbered(line) {
            found.push((number, String::new()));
            rest = after;
        }
        loop {
            let (number, text) = found.last_mut().ok_or(AnswersError)?;
            let next = *number + 1;
            let begins = format!(" {next}: ");
            let (here, after) = rest.split_once(&begins).map_or((rest, None), |(a, b)| (a, Some(b)));
            text.push_str(here);
            text.push('\n');
            let Some(after) = after else { break };
            found.push((next, String::new()));
            rest = after;
        }
    }
    let mut answers: Vec<(usize, String)> = Vec::new();
    for (number, text) in found {
        answers.retain(|(known, _)| *known != number);
        answers.push((number, text.trim().to_owned()));
    }
    // An unchanged `…` from the usage line does not count as an answer.
    answers.retain(|(_, text)| !text.trim_matches(['…', '.', ' ', '\n']).is_empty());
    if answers.is_empty() { Err(AnswersError) } else { Ok(answers) }
}

/// Splits a line such as `2: text` into the number and the text.
fn parse_numbered(line: &str) -> Option<(usize, &str)> {
    let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number = line[..digits].parse().ok().filter(|_| digits <= 2)?;
    let after = line[digits..].strip_prefix([':', '.', ')'])?;
    let apart = |c: char| c.is_whitespace() || (line[digits..].starts_with(':') && !c.is_ascii_digit());
    after.chars().next().is_none_or(apart).then_some((number, after))
}

/// Error in the argument of `/budget`. The error's message is quoted in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("give the number of dollars to add, as in /budget +3")]
pub struct RaiseError;

/// Parses the argument of `/budget`, which is the number of dollars to add to the run's budget.
pub fn parse_raise(args: &str) -> Result<MicroUsd, RaiseError> {
    let amount = args.trim().trim_matches('`');
    let amount = amount.strip_prefix('+').unwrap_or(amount);
    MicroUsd::parse(amount).ok().filter(|amount| *amount > MicroUsd(0)).ok_or(RaiseError)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a comment and renders each command as `name|args`, and each unknown word as `?word>guess`.
    fn read(text: &str) -> Vec<String> {
        parse(COMMON, Some("countersign-dev"), text)
            .into_iter()
            .map(|line| match line {
                Ok(command) => format!("{}|{}", command.spec.name, command.args),
                Err(CommandMistake::Unknown { word, did_you_mean, addressed, .. }) => {
                    format!("{}{word}>{}", if addressed { "!" } else { "?" }, did_you_mean.unwrap_or(""))
                }
                Err(CommandMistake::NeedsText { spec, .. }) => format!("{} needs text", spec.name),
                Err(CommandMistake::NotPlain { spec, args, .. }) => format!("~{}|{args}", spec.name),
            })
            .collect()
    }

    #[test]
    fn command_at_line_start_is_parsed() {
        assert_eq!(read("/approve lld 3f9c2ab1d4e7"), ["approve|lld 3f9c2ab1d4e7"]);
        assert_eq!(read("Looks fine.\n/Approve\nthanks"), ["approve|"]);
        assert_eq!(read("  /stop  now \n\n/help"), ["stop|now", "help|"]);
        assert_eq!(read("/countersign approve `3f9c2ab1`"), ["approve|`3f9c2ab1`"]);
        assert_eq!(read("/Countersign /stop\n/countersign-dev help!"), ["stop|", "help|"]);
    }

    #[test]
    fn command_text_extends_to_the_next_command_or_the_end_of_the_comment() {
        let text = "/revise Use a table:\n\n- one\n- `/approve` is not meant\n\n```\n/stop\n```\n/usr/bin is fine\n\n/help\n/revise";
        let revise =
            "revise|Use a table:\n\n- one\n- `/approve` is not meant\n\n```\n/stop\n```\n/usr/bin is fine";
        assert_eq!(read(text), [revise, "help|", "revise needs text"]);
        assert_eq!(parse(COMMON, None, text)[1].as_ref().unwrap().line, 11);
        assert_eq!(read("/override\nthe reviewer is down"), ["override|the reviewer is down"]);
    }

    #[test]
    fn command_inside_code_or_a_quote_or_a_list_is_ignored() {
        for text in [
            "```\n/approve\n```",
            "~~~\n/approve",
            "    /approve",
            "`/approve`",
            "`a\n/approve`",
            "> /approve",
            "> quoted\n/approve",
            "<!-- \n/approve\n-->",
            "<!--\n\n/approve\n\n-->",
            "<div>\n/approve\n</div>",
            "<details>\n\n/approve\n\n</details>",
            "<details><summary>x</summary>\n\n<details>\n</details>\n\n/approve\n\n</details>",
            "a <b title='\n/approve'>",
            "[a\n/approve](x)",
            "![a\n/approve](x)",
            "[x]: y \"\n/approve\n\"",
            "| a |\n|---|\n| /approve |\n/approve",
            "/approve\n---",
            "# /approve",
            "- /approve",
            "1. /approve",
            "- a\n/approve",
            "please /approve",
            "\\/approve",
            "*\n/approve*",
            "/ approve",
            "//approve",
            "/approve/it",
            "/\u{200b}approve",
            "\u{200b}/approve",
        ] {
            let read = read(text).into_iter().filter(|read| !read.starts_with('~'));
            assert_eq!(read.collect::<Vec<_>>(), Vec::<String>::new(), "{text:?}");
        }
        assert_eq!(read("<details>\n\nx\n\n</details>\n\n/approve"), ["approve|"]);
    }

    #[test]
    fn command_that_is_not_plain_text_is_reported_if_it_is_the_whole_comment() {
        for text in [
            "`/approve lld 3f9c2ab1d4e7`",
            "**/approve lld 3f9c2ab1d4e7**",
            "\u{200b}/approve lld 3f9c2ab1d4e7",
            "```\n/approve lld 3f9c2ab1d4e7\n```\n",
            "~~~ text\n\n/approve lld 3f9c2ab1d4e7\n~~~",
            "```/approve lld 3f9c2ab1d4e7```",
            "/aprove lld 3f9c2ab1d4e7",
            "_/approve lld 3f9c2ab1d4e7_",
            "„/approve lld 3f9c2ab1d4e7“",
            "“/Approve lld 3f9c2ab1d4e7”.",
            "- /approve lld 3f9c2ab1d4e7",
            "2. `/approve lld 3f9c2ab1d4e7`",
            "# /approve lld 3f9c2ab1d4e7",
            "／approve lld 3f9c2ab1d4e7",
            "\\/approve lld 3f9c2ab1d4e7",
            "//approve lld 3f9c2ab1d4e7!",
            "/ approve lld 3f9c2ab1d4e7",
            "    /approve lld 3f9c2ab1d4e7",
            "<b>/approve lld 3f9c2ab1d4e7</b>",
            "approve lld 3f9c2ab1d4e7",
            "/a\u{200b}pprove lld 3f9c2ab1d4e7",
        ] {
            assert_eq!(read(text), ["~approve|lld 3f9c2ab1d4e7"], "{text:?}");
        }
        assert_eq!(read("`/approve`"), ["~approve|"]);
        assert_eq!(read("- /revise use a table"), ["~revise|use a table"]);
        assert_eq!(read("*/stop*"), ["~stop|"]);
        for talk in [
            "please /approve",
            "`/approve` is what you write to accept it",
            "`/revise` sends it back",
            "> /approve lld 3f9c2ab1d4e7",
            "`/approve lld 3f9c2ab1d4e7`\n\nis the line",
            "approve it",
            "/usr/bin/approve",
            "`/etc/hosts`",
            "`/stop the clock at noon`",
            "`/`",
            "```\n```",
            "",
        ] {
            assert_eq!(read(talk), Vec::<String>::new(), "{talk:?}");
        }
    }

    #[test]
    fn unknown_command_is_reported_if_misspelled_or_preceded_by_the_app_name() {
        assert_eq!(
            read("/aprove\n\n/revize x\n\n/lgtm\n\n/hold\n\n/retest"),
            ["?aprove>approve", "?revize>revise"]
        );
        assert_eq!(read("/countersign lgtm\n/countersign\n/countersign stp"), ["!lgtm>", "!>", "!stp>stop"]);
    }

    #[test]
    fn mention_is_a_request_unless_the_comment_contains_a_command() {
        let start = |name, usage| CommandSpec {
            name,
            usage,
            about: "",
            role: Role::Triage,
            label: None,
            kind: CommandKind::Start,
        };
        let rows: Vec<_> =
            COMMON.iter().copied().chain([start("lld", "/lld"), start(ROUTE, "/route TEXT")]).collect();
        let read = |text: &str| {
            let read = parse(&rows, Some("countersign"), text).into_iter();
            read.map(|result| result.map_or("?".into(), |c| format!("{}|{}", c.spec.name, c.args)))
                .collect::<Vec<_>>()
        };
        let test = "investigate why /upgrade-to-templates command isn't there";
        assert_eq!(read(&format!("@countersign {test}")), [format!("route|{test}")]);
        assert_eq!(read("Hello!\n\n@Countersign[bot]: a\n\n- b 🎉"), ["route|a\n\n- b 🎉"]);
        assert_eq!(read("/route make it faster\nplease"), ["route|make it faster\nplease"]);
        assert_eq!(read("@countersign please design it\n/lld"), ["lld|"], "a plain command wins");
        assert_eq!(read("@countersign /lld"), ["lld|"]);
        assert_eq!(read("@countersign stop!"), ["stop|"]);
        assert_eq!(read("@countersign stop the clock at noon"), ["route|stop the clock at noon"]);
        assert_eq!(read("@countersign revise"), ["route|revise"], "it lacks its text");
        assert_eq!(read("@countersign"), ["help|"]);
        assert_eq!(read("/route"), ["?"]);
        for talk in [
            "thanks @countersign",
            "> @countersign do it",
            "`@countersign do it`",
            "@countersigner do it",
            "- @countersign do it",
            "*@countersign do it*",
            "@sam do it",
            "@ countersign do it",
            "",
        ] {
            assert_eq!(read(talk), Vec::<String>::new(), "{talk:?}");
        }
        assert!(parse(COMMON, Some("countersign"), "@countersign do it").is_empty(), "no row for `route`");
    }

    #[test]
    fn answer_arguments_are_parsed() {
        let read = |args| {
            parse_answers(args).map(|all| {
                all.into_iter()
                    .map(|(n, text)| format!("{n}={}", text.replace('\n', "/")))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(read("1: yes 2: at 10:30"), Ok(vec!["1=yes".into(), "2=at 10:30".into()]));
        assert_eq!(
            read("2) no\n1. it is\n\n- a list\n10:30 is a time"),
            Ok(vec!["2=no".into(), "1=it is//- a list/10:30 is a time".into()])
        );
        assert_eq!(read("1: a\n1:b"), Ok(vec!["1=b".into()]));
        assert_eq!(read("1: 3: x"), Ok(vec!["1=3: x".into()]), "3 does not follow 1");
        assert_eq!(read("1:"), Err(AnswersError));
        assert_eq!(read("yes to all"), Err(AnswersError));
    }

    #[test]
    fn approve_arguments_are_parsed() {
        let read = |args| {
            ApproveArguments::parse(args).map(|a| (a.stage.unwrap_or_default(), a.hash.unwrap_or_default()))
        };
        let with_option = ApproveArguments::parse("issue In-Place 3f9c2ab1d4e7").unwrap();
        assert_eq!(
            (with_option.stage.as_deref(), with_option.option.as_deref()),
            (Some("issue"), Some("in-place"))
        );
        assert_eq!(read(""), Ok((String::new(), String::new())));
        assert_eq!(read("LLD `3F9C2AB1d4e7`."), Ok(("lld".into(), "3f9c2ab1d4e7".into())));
        assert_eq!(read("3f9c2ab1d4e7 lld").unwrap().0, "lld");
        assert_eq!(read("lld 3f9c"), Err(ApproveError::ShortHash));
        assert_eq!(read("lld spec"), Err(ApproveError::TooMuch));
        assert_eq!(read("this, please, at once"), Err(ApproveError::TooMuch));
        assert_eq!(read(&"a".repeat(65)), Err(ApproveError::TooMuch));
    }

    #[test]
    fn budget_arguments_are_parsed() {
        let read = |args| parse_raise(args).map(|amount| amount.0);
        assert_eq!(
            ["+3", "3", " +$2.50 ", "`+1`"].map(read),
            [3_000_000, 3_000_000, 2_500_000, 1_000_000].map(Ok)
        );
        assert_eq!(
            ["", "0", "-3", "++3", "+-3", "+3 more", "1e3", "٣", "lots"].map(read),
            [Err(RaiseError); 9]
        );
    }

    #[test]
    fn label_is_matched_to_its_command_ignoring_case() {
        assert_eq!(find_by_label(COMMON, "Countersign:STOP").map(|row| row.name), Some("stop"));
        assert_eq!(find_by_label(COMMON, "bug"), None);
    }

    #[test]
    fn random_markdown_does_not_panic() {
        // Concatenates random pieces of Markdown, with a fixed seed.
        let parts = [
            "/approve",
            "/",
            "`",
            "```",
            "\n",
            "\r",
            "> ",
            "<",
            "-->",
            "<!--",
            "[",
            "](",
            "é",
            "\u{0}",
            "|",
            "-",
            " ",
            "/countersign",
            "@",
            "\t",
            "<details>",
            "1.",
        ];
        let mut seed = 7_u64;
        for _ in 0..4000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(parts[(seed >> 33) as usize % parts.len()]);
            }
            for command in parse(COMMON, None, &text).into_iter().flatten() {
                let _ = ApproveArguments::parse(&command.args);
            }
        }
    }
}
