//! Fixes that code applies itself, so that no model is called for them.

use super::{
    ChangeSection,
    parse::{count_backticks, parse},
};
use crate::{
    documents::lld::{self, RepairFunction},
    types::IssueNo,
};

/// Repairs the form of the change's text. If `locked` is given, this locked tests section replaces the text's own tests
/// section.
pub fn fix(text: &str, issue: IssueNo, locked: Option<&str>) -> String {
    const OURS: &[RepairFunction] = &[fix_title, lengthen_fences, fix_file_headings];
    // A fence around the whole text goes first, before our repairs.
    let (whole, rest) = lld::FORM.split_at(2);
    let repairs = whole.iter().chain(OURS).chain(rest);
    let text = lld::apply_repairs(text, issue, repairs.clone());
    match locked {
        Some(locked) => lld::apply_repairs(&with_tests(&text, locked), issue, repairs),
        None => text,
    }
}

/// Returns the tests section of the text. Once people have approved this section, it is locked.
pub fn tests_section(text: &str) -> Option<&str> {
    let change = parse(text);
    let (_, range) = change.sections.iter().find(|(part, _)| *part == ChangeSection::Tests)?;
    Some(text[range.clone()].trim_end())
}

/// Returns the locked text with its tests replaced by the tests of `text`, or `None` if both texts have the same tests.
/// Test files listed in `joined` are ignored in both texts, because they were added after locking.
pub fn replaced_tests(text: &str, locked: &str, joined: &[&str]) -> Option<String> {
    let files = |text: &str| -> Vec<_> {
        parse(text)
            .files_in(ChangeSection::Tests)
            .map(|file| (file.path.clone(), file.kind, file.body.clone()))
            .collect()
    };
    let (text, locked) = (without_files(text, joined), without_files(locked, joined));
    let theirs = tests_section(&text)?;
    (files(&text) != files(&locked)).then(|| with_tests(&locked, theirs))
}

/// Returns the text without these test files.
pub fn without_files(text: &str, paths: &[&str]) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for file in parse(text).files_in(ChangeSection::Tests).filter(|file| paths.contains(&file.path.as_str()))
    {
        out.push_str(&text[from..file.range.start]);
        from = file.range.end;
    }
    out + &text[from..]
}

/// Replaces the tests section of the text by the locked tests section, and moves it before all other sections.
fn with_tests(text: &str, locked: &str) -> String {
    let change = parse(text);
    let theirs = change.sections.iter().filter(|(part, _)| *part == ChangeSection::Tests);
    let (mut out, mut from) = (String::new(), 0);
    for (_, range) in theirs {
        out.push_str(&text[from..range.start]);
        from = range.end;
    }
    out.push_str(&text[from..]);
    let change = parse(&out);
    let at = change.sections.first().map_or(out.len(), |(_, range)| range.start);
    format!("{}\n\n{}\n\n{}", out[..at].trim_end(), locked.trim(), &out[at..])
}

fn fix_title(text: &str, issue: IssueNo) -> Option<String> {
    let change = parse(text);
    let start = if text.starts_with("# ") { 0 } else { text.find("\n# ")? + 1 };
    let end = text[start..].find('\n').map_or(text.len(), |end| start + end);
    let out = format!("{}# {issue} - Change: {}{}", &text[..start], change.title, &text[end..]);
    (!change.title.is_empty()).then_some(out)
}

/// Makes each file's fence longer than any fence in the file's content.
fn lengthen_fences(text: &str, _: IssueNo) -> Option<String> {
    let (mut out, mut from) = (String::new(), 0);
    for file in parse(text).files {
        let Some((block, length)) = &file.block else { continue };
        let (content, most) = (&text[file.content.clone()], text[block.clone()].len());
        let longest = content.lines().map(|line| count_backticks(line.trim_start())).max().unwrap_or(0);
        if longest < *length || file.content.end == text.len() || most == 0 {
            continue;
        }
        let (opening, fence) = (&text[block.start + length..file.content.start], "`".repeat(longest + 1));
        out.push_str(&format!("{}{fence}{opening}{content}{fence}\n", &text[from..block.start]));
        from = block.end;
    }
    (from > 0).then(|| out + &text[from..])
}

/// Normalizes file headings to ``### `path` (Add)``.
fn fix_file_headings(text: &str, _: IssueNo) -> Option<String> {
    let (mut out, mut from) = (String::new(), 0);
    for file in parse(text).files {
        let end = text[file.range.start..].find('\n').map_or(text.len(), |end| file.range.start + end);
        out.push_str(&text[from..file.range.start]);
        out.push_str(&format!("### `{}` ({})", file.path, file.kind.as_str()));
        from = end;
    }
    Some(out + &text[from..])
}
