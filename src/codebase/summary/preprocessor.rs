//! Blanks C and C++ macros and preprocessor branches, so that the remaining text parses.
//!
//! The grammar reads a text that has not been preprocessed. For the grammar, `FMT_API void f()` is invalid, and so is
//! an `extern "C" {` whose closing brace is in another branch. Macros are not expanded; a macro is recognized by its
//! uppercase name and its position. The result is used only if it parses with fewer errors than the original text.

use super::bodies::blank;

/// Returns the text with the macros and branches blanked that prevent it from parsing.
pub(super) fn blank_preprocessor(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    blank_branches(text, &mut bytes);
    // Whole characters were blanked, so this is valid UTF-8.
    let text = String::from_utf8(bytes).unwrap_or_default();
    let mut bytes = text.as_bytes().to_vec();
    blank_macros(&text, &mut bytes);
    String::from_utf8(bytes).unwrap_or_default()
}

/// State of one open `#if` group: the start of the current branch, whether this is the first branch, the bracket depth
/// at the `#if`, and the number of brackets that the first branch leaves open.
struct ConditionalGroup {
    start: usize,
    first: bool,
    depth: i64,
    opened: i64,
}

/// Blanks parts of `#if` groups whose first branch leaves brackets open. Only the code of the first branch remains; the
/// directives and all other branches are blanked.
fn blank_branches(text: &str, bytes: &mut [u8]) {
    let (mut open, mut depth, mut at) = (Vec::<ConditionalGroup>::new(), 0_i64, 0);
    for line in text.split_inclusive('\n') {
        let (start, trimmed) = (at, line.trim_start());
        at += line.len();
        let word = trimmed.strip_prefix('#').map(str::trim_start);
        match word {
            Some(word) if word.starts_with("if") => {
                open.push(ConditionalGroup { start, first: true, depth, opened: 0 });
            }
            Some(word) if word.starts_with("el") || word.starts_with("endif") => {
                let Some(group) = open.last_mut() else { continue };
                if group.first {
                    group.opened = depth - group.depth;
                    if group.opened != 0 {
                        let line = text[group.start..].find('\n').map_or(at, |end| group.start + end);
                        blank(&mut bytes[group.start..line]);
                    }
                } else if group.opened != 0 {
                    blank(&mut bytes[group.start..start]);
                }
                if group.opened != 0 {
                    blank(&mut bytes[start..at]);
                }
                (group.start, group.first) = (start, false);
                // Code after the group continues from the first branch.
                depth = group.depth;
                if word.starts_with("endif") {
                    depth += group.opened;
                    open.pop();
                }
            }
            Some(_) => {}
            None => {
                depth += line.matches(['{', '(']).count() as i64 - line.matches(['}', ')']).count() as i64
            }
        }
    }
}

/// Blanks macros at positions where the grammar does not expect a name. Also blanks lists in braces that are default
/// values of parameters.
fn blank_macros(text: &str, bytes: &mut [u8]) {
    let (mut at, mut directive) = (0, false);
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        directive = line.trim_start().starts_with('#') || directive;
        let goes_on = directive && line.trim_end().ends_with('\\');
        if !std::mem::replace(&mut directive, goes_on) {
            let mut from = start;
            while let Some(name) = text[from..at].find(is_identifier_char).map(|first| from + first) {
                let end = text[name..].find(|c| !is_identifier_char(c)).map_or(text.len(), |end| name + end);
                from = end.min(at);
                if let Some(end) =
                    is_macro(&text[name..end]).then(|| misplaced_macro_end(text, name, end)).flatten()
                {
                    blank(&mut bytes[name..end]);
                    from = end.min(at);
                }
            }
        }
    }
    for (start, _) in text.match_indices("= {") {
        let end = text[start..].find(['}', ';']).map_or(text.len(), |end| start + end + 1);
        if text[..end].ends_with('}') && text[end..].trim_start().starts_with([',', ')']) {
            blank(&mut bytes[start..end]);
        }
    }
}

fn is_identifier_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_macro(name: &str) -> bool {
    let capitals =
        name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    capitals && name.len() >= 3 && name.starts_with(|c: char| c.is_ascii_uppercase())
}

/// Words that are not function names even if a parenthesis follows them.
const TYPES: &[&str] =
    &["bool", "char", "double", "float", "int", "long", "short", "unsigned", "void", "operator"];

/// Returns the position after a macro and its arguments. Returns `None` if the surrounding text shows that the supposed
/// macro may be an ordinary name.
fn misplaced_macro_end(text: &str, start: usize, name_end: usize) -> Option<usize> {
    let mut end = name_end;
    if text[end..].starts_with('(') {
        let mut depth = 0_usize;
        let closing = text[end..].bytes().take(400).position(|byte| {
            depth += usize::from(byte == b'(');
            depth -= usize::from(byte == b')');
            depth == 0
        })?;
        end += closing + 1;
    }
    let (before, after) = (text[..start].trim_end(), text[end..].trim_start());
    let last = before.rsplit(|c| !is_identifier_char(c)).next().unwrap_or_default();
    let word = &after[..after.find(|c| !is_identifier_char(c)).unwrap_or(after.len())];
    let next = after[word.len()..].trim_start();
    let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
    let begins = line.is_empty()
        || line.starts_with(['#', '*'])
        || line.starts_with("//")
        || before.ends_with("*/")
        || before.ends_with([';', '{', '}', ':', '>', ')'])
        || is_macro(last);
    let alone = text[..start].ends_with(['\n', ' ']) && text[before.len()..start].contains('\n');
    let own_line =
        (alone || before.is_empty()) && text[end..].trim_start_matches([' ', '\t', '\r']).starts_with('\n');
    let declares = next.starts_with(|c| is_identifier_char(c) || matches!(c, '*' | '&' | ':' | '<' | '~'));
    let out = if matches!(last, "class" | "struct" | "union") {
        // `class API name {`
        !word.is_empty() && (next.starts_with(['{', ':', '<']) || next.starts_with("final"))
    } else if word.is_empty() {
        // `f() ATTRIBUTE;`, `API ~name()`
        let closed = before.ends_with(')') || matches!(last, "const" | "noexcept" | "override");
        closed && after.starts_with([';', '{', ':', '=']) || begins && after.starts_with('~')
    } else {
        // `API void f()`, `int API f()`, `BEGIN_NAMESPACE` on a line of its own
        let typed = before.ends_with(['*', '(', ',']) || last.starts_with(|c: char| c.is_ascii_lowercase());
        declares && (begins || typed) || next.starts_with('(') && (TYPES.contains(&word) || typed)
    };
    let alone = own_line && begins && !after.starts_with(['{', ',', '=', ')', '(', ';']);
    (out || alone).then_some(end)
}
