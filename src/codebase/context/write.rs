//! Text of strangers, written so that it stays where it is put.

/// A file's section: its path, why it is here, and each body under its label in a fence of its own.
pub(super) fn section(path: &str, why: &str, bodies: &[(String, String)]) -> String {
    let mut out = format!("\n## {}\n", code(&one_line(path)));
    for (at, (label, body)) in bodies.iter().enumerate() {
        let why = if at == 0 && !why.is_empty() { format!(" Why: {why}.") } else { String::new() };
        out.push_str(&format!("\n{label}.{why}\n\n{}", fenced(body)));
    }
    out
}

/// A text between backticks enough that nothing inside can close them.
pub(super) fn fenced(text: &str) -> String {
    let fence = "`".repeat(longest_ticks(text).max(2) + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}\n")
}

/// One line of code within a sentence.
fn code(line: &str) -> String {
    let ticks = "`".repeat(longest_ticks(line) + 1);
    let gap = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{ticks}{gap}{line}{gap}{ticks}")
}

fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

/// Nothing in it ends a line or hides.
pub(crate) fn one_line(text: &str) -> String {
    let hides =
        |c: char| c.is_control() || crate::documents::is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}');
    text.chars().map(|c| if hides(c) { '?' } else { c }).collect()
}
