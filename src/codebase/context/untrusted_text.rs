//! Text of strangers, written so that it stays where it is put.

use crate::documents::{is_invisible, secrets};

/// What stands in place of a credential.
pub(super) const REDACTED: &str = "[redacted]";

/// A text as it may be shown: what looks like a credential is blacked out, what no reader sees is gone, and every line is
/// where it was.
pub(super) struct RedactedText {
    pub(super) text: String,
    /// How many credentials were in it.
    pub(super) secrets: usize,
}

impl RedactedText {
    pub(super) fn new(text: &str) -> Self {
        // Before anything is looked for: a character in the middle may hide a credential, and then show it.
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

/// A file's text as models are shown it.
pub fn redact_text(text: &str) -> String {
    RedactedText::new(text).text
}

/// A file's section: its path, why it is here, and each body under its label in a fence of its own.
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

/// A text between backticks enough that nothing inside can close them.
pub fn fence_text(text: &str) -> String {
    let fence = "`".repeat(longest_backtick_run(text).max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}\n")
}

/// One line of code within a sentence.
fn inline_code(line: &str) -> String {
    let ticks = "`".repeat(longest_backtick_run(line) + 1);
    let gap = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{ticks}{gap}{line}{gap}{ticks}")
}

fn longest_backtick_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Nothing in it ends a line, hides, or is a credential.
pub(super) fn one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if is_hidden(c) { '?' } else { c }).collect();
    secrets::redact(&line)
}

fn is_hidden(c: char) -> bool {
    c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}')
}
