//! Recognizes a comment that consists of a single command with formatting or a typo. Such a comment is not run as a
//! command.

use super::{ApproveArguments, CommandKind, CommandSpec, nearest_name};
use crate::{documents::is_invisible, types::Verb};

const APPROVE: CommandKind = CommandKind::Common(Verb::Approve);

/// Returns the row of the command in the table, and the command's arguments. Returns `None` for any other comment, such
/// as prose that only mentions a command.
pub(super) fn parse_lone_command(rows: &[CommandSpec], text: &str) -> Option<(CommandSpec, String)> {
    let text: String = text.chars().filter(|c| !is_invisible(*c)).collect();
    let fence = |line: &&str| line.starts_with("```") || line.starts_with("~~~");
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if let [first, line, last] = lines[..]
        && fence(&first)
        && fence(&last)
    {
        lines = vec![line];
    }
    let [line] = lines[..] else { return None };
    let bare = strip_tags(line).trim_start_matches(|c: char| c.is_ascii_digit());
    let bare = if bare.starts_with(['.', ')']) { &bare[1..] } else { line };
    let bare = strip_tags(bare)
        .trim_start_matches(|c: char| c.is_whitespace() || "`*_~\"'“”„‚‘’«»‹›([{#-+•\\".contains(c))
        .trim_end_matches(|c: char| c.is_whitespace() || "`*_~\"'“”„‚‘’«»‹›)]}.,:;!?…".contains(c));
    let command = bare.trim_start_matches(['/', '／', '⁄', '∕', ' ']);
    if command.contains(['`', '*', '<']) {
        return None;
    }
    let (word, args) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    let (word, args) = match word.eq_ignore_ascii_case("countersign") {
        true => args.trim_start_matches([' ', '/']).split_once(' ').unwrap_or((args, "")),
        false => (word, args.trim()),
    };
    let exact = rows.iter().find(|row| row.name.eq_ignore_ascii_case(word)).map(|row| row.name);
    let name = exact.or_else(|| nearest_name(rows, word))?;
    let row = rows.iter().find(|row| row.name == name)?;
    let approve = || ApproveArguments::parse(args).ok();
    let fits = match row.kind {
        // Without a slash, only `approve` with a hash counts: nobody writes that by chance.
        _ if command.len() == bare.len() => row.kind == APPROVE && approve()?.hash.is_some(),
        APPROVE => approve().is_some(),
        _ if row.takes_text() => !args.is_empty(),
        _ => args.split_whitespace().count() <= 1,
    };
    fits.then(|| (*row, args.to_owned()))
}

fn strip_tags(line: &str) -> &str {
    let line = line.strip_prefix('<').and_then(|tag| tag.split_once('>')).map_or(line, |(_, rest)| rest);
    match line.strip_suffix('>').and_then(|tag| tag.rsplit_once('<')) {
        Some((rest, _)) => rest,
        None => line,
    }
}
