//! Escapes untrusted text so that it cannot leave its place in a prompt.

use crate::documents::{is_invisible, secrets};

pub(super) const REDACTED: &str = "[redacted]";

/// A text with redacted credentials and without invisible characters. Its line numbers are the same as in the original
/// text.
pub(super) struct RedactedText {
    pub(super) text: String,
    pub(super) secrets: usize,
}

impl RedactedText {
    pub(super) fn new(text: &str) -> Self {
        // Remove invisible characters first: one inside a credential could hide it from the search.
        let visible: String = text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_hidden(*c)).collect();
        let ranges = secrets::find(&visible);
        let mut out = String::with_capacity(visible.len());
        let mut from = 0;
        for range in &ranges {
            out.push_str(&visible[from..range.start]);
            out.push_str(REDACTED);
            let lines = visible[range.clone()].matches('\n').count();
            out.extend(std::iter::repeat_n('\n', lines));
            from = range.end;
        }
        out.push_str(&visible[from..]);
        Self { text: out, secrets: ranges.len() }
    }
}

/// Returns the text with credentials redacted and invisible characters removed.
pub fn redact_text(text: &str) -> String {
    RedactedText::new(text).text
}

/// Renders the section of a file: the path, the reason for showing the file, and each body in a fence below its label.
pub(super) fn file_section(path: &str, why: &str, bodies: &[(String, String)]) -> String {
    let mut out = format!("\n## {}\n", inline_code(&one_line(path)));
    for (at, (label, body)) in bodies.iter().enumerate() {
        let why = if at == 0 && !why.is_empty() { format!(" Why: {why}.") } else { String::new() };
        out.push_str(&format!("\n{label}.{why}\n"));
        if !body.is_empty() {
            out.push_str(&format!("\n{}", fence_text(body)));
        }
    }
    out
}

/// Puts a text into a code fence that no line of the text can close.
pub fn fence_text(text: &str) -> String {
    let fence = "`".repeat(longest_backtick_run(text).max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}\n")
}

fn inline_code(line: &str) -> String {
    let ticks = "`".repeat(longest_backtick_run(line) + 1);
    let gap = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{ticks}{gap}{line}{gap}{ticks}")
}

fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Makes a text safe for use in one line: replaces line breaks and invisible characters, and redacts credentials.
pub(super) fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if is_hidden(c) { '?' } else { c }).collect();
    secrets::redact(&line)
}

fn is_hidden(c: char) -> bool {
    c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}')
}
