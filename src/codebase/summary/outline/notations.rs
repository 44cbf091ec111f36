//! Notations: headings, tables, top-level keys and targets.

use super::{Items, indentation};
use crate::{
    codebase::summary::{Import, Kind, walk},
    limits,
};

/// Headings outside of fences, HTML comments and what stands before the text between two `---`.
pub(super) fn markdown(text: &str) -> Items {
    let mut items = Items::of(text);
    let lines: Vec<&str> = text.lines().map(|line| line.trim_start_matches('\u{feff}')).collect();
    let mut fence: Option<&str> = None;
    let mut in_comment = false;
    let mut at = match lines.first() {
        Some(first) if first.trim_end() == "---" => {
            lines.iter().skip(1).position(|line| line.trim_end() == "---").map_or(0, |end| end + 2)
        }
        _ => 0,
    };
    while let Some(line) = lines.get(at) {
        let row = at;
        at += 1;
        let bare = line.trim();
        if let Some(open) = fence {
            if bare.starts_with(open) && bare.trim_start_matches(&open[..1]).is_empty() {
                fence = None;
            }
        } else if in_comment {
            in_comment = !line.contains("-->");
        } else if bare.starts_with("```") || bare.starts_with("~~~") {
            let length = bare.bytes().take_while(|b| *b == bare.as_bytes()[0]).count();
            fence = Some(&bare[..length]);
        } else if bare.starts_with("<!--") {
            in_comment = !bare.contains("-->");
        } else if indentation(line) < 4 {
            let level = bare.bytes().take_while(|b| *b == b'#').count();
            let rest = &bare[level..];
            if (1..=6).contains(&level) && rest.starts_with([' ', '\t']) {
                items.add(Kind::Section, rest.trim().trim_end_matches('#'), bare, row, level);
            } else if let Some(level) = underlined(&lines, row) {
                items.add(Kind::Section, bare, bare, row, level);
            }
        }
    }
    items.ended(lines.len())
}

/// A paragraph of one line with `===` or `---` below.
fn underlined(lines: &[&str], row: usize) -> Option<usize> {
    let (line, below) = (lines[row].trim(), lines.get(row + 1)?.trim());
    let begins = row == 0 || lines[row - 1].trim().is_empty();
    let plain = line.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '`' | '[' | '('));
    let level = match below.as_bytes().first()? {
        b'=' => 1,
        b'-' => 2,
        _ => return None,
    };
    let all_one = below.len() >= 3 && below.bytes().all(|b| b == below.as_bytes()[0]);
    (begins && plain && all_one).then_some(level)
}

/// `[table]` and `[[of tables]]`.
pub(super) fn toml(text: &str) -> Items {
    let mut items = Items::of(text);
    let mut quoted = None;
    for (row, line) in text.lines().enumerate() {
        if ends_quotes(&mut quoted, line) {
            continue;
        }
        let bare = line.trim_start_matches('\u{feff}').trim();
        let inner = bare.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name);
        if let Some(name) = inner.filter(|_| indentation(line) == 0) {
            let name = name.trim_start_matches('[').trim();
            let is_name =
                name.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '"' | '\'' | '_' | '*' | '.'));
            // A list of values that goes on has a comma.
            if is_name && !name.contains(',') {
                items.add(Kind::Section, name, bare, row, 0);
            }
        }
    }
    items.ended(text.lines().count())
}

/// Whether a line stands in a string of three quotes.
pub(super) fn ends_quotes(open: &mut Option<&'static str>, line: &str) -> bool {
    let inside = open.is_some();
    for quotes in ["\"\"\"", "'''"] {
        if open.is_none_or(|open| open == quotes) && line.matches(quotes).count() % 2 == 1 {
            *open = if open.is_some() { None } else { Some(quotes) };
        }
    }
    inside
}

/// Top-level keys.
pub(super) fn yaml(text: &str) -> Items {
    let mut items = Items::of(text);
    for (row, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}');
        let Some((key, rest)) = line.split_once(':') else { continue };
        let name = key.trim_end().trim_matches(['"', '\'']);
        let is_key = key
            .starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '\'' | '/' | '$'))
            && (rest.is_empty() || rest.starts_with([' ', '\t']));
        if is_key && name.len() <= limits::NAME_BYTES {
            items.add(Kind::Section, name, short(line, key.len() + 1), row, 0);
        }
    }
    items.ended(text.lines().count())
}

/// A line, or only its beginning if it is long.
fn short(line: &str, head: usize) -> &str {
    let line = line.trim_end();
    if line.len() <= head + limits::SUMMARY_VALUE_BYTES { line } else { line.get(..head).unwrap_or(line) }
}

/// The keys of the outermost object.
pub(super) fn json(text: &str) -> Items {
    let mut items = Items::of(text);
    let bytes = text.as_bytes();
    let (mut at, mut row, mut depth) = (0, 0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => row += 1,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = text[at..].find('\n').map_or(bytes.len(), |end| at + end);
                continue;
            }
            b'"' => {
                let end = end_of_string(bytes, at);
                let after = text.get(end..).unwrap_or("").trim_start_matches([' ', '\t']);
                if depth == 1 && after.starts_with(':') {
                    let line = text[at..].lines().next().unwrap_or("");
                    let key = text.get(at..end).unwrap_or("");
                    let signature = short(line, key.len());
                    items.add(Kind::Section, key.trim_matches('"'), signature, row, 0);
                }
                // No string of JSON has a line end in it.
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    items.ended(text.lines().count())
}

/// The byte after a string's closing quote, or the end of its line.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => at += 1,
            b'"' => return at + 1,
            b'\n' => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Targets that are files or names, and what is included.
pub(super) fn makefile(text: &str, imports: &mut Vec<Import>) -> Items {
    let mut items = Items::of(text);
    let mut goes_on = false;
    for (row, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let continued = std::mem::replace(&mut goes_on, line.ends_with('\\'));
        if continued || line.starts_with(['\t', ' ', '#', '.']) {
            continue;
        }
        let included = ["include ", "-include ", "sinclude "].iter().find_map(|word| line.strip_prefix(word));
        if let Some(module) = included {
            let module = module.trim().to_owned();
            imports.push(Import { line: walk::line(row), text: line.to_owned(), module, names: Vec::new() });
        } else if let Some((targets, rest)) = line.split_once(':')
            && !targets.contains(['=', '$', '(', '"'])
            && !rest.trim_start_matches(':').starts_with('=')
        {
            let signature = short(line, targets.len() + 1).trim_end_matches('\\');
            for target in targets.split_whitespace() {
                items.add(Kind::Section, target, signature, row, 0);
            }
        }
    }
    items
}
