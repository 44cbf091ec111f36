//! Neutralises marks in titles, commit messages and pull request bodies. These texts end up on the default branch,
//! where CI, GitHub, git and release tools act on marks such as `[skip ci]`. Untrusted text must therefore not contain
//! a mark.

use super::{GUARD, OutboundBody, cut_at_line, insert_guards, plain_line, scrub};
use crate::documents::secrets;

/// Maximum number of characters of a mark in brackets; anything longer in brackets is treated as prose.
const MARK_CHARS: usize = 40;

/// Marks that take effect anywhere in a text. The number is the offset at which a guard character is inserted to split
/// the mark.
const MARK_WORDS: [(&str, usize); 5] =
    [("skip-checks", 4), ("no_ci", 2), ("breaking change", 8), ("breaking-change", 8), ("release-as", 7)];

const CLOSING_VERBS: [&str; 9] =
    ["close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved"];

/// Returns untrusted text as a single line without active marks, for a title or a commit subject.
pub fn inert_subject(text: &str, cap_chars: usize) -> String {
    disarm(&plain_line(text, cap_chars))
}

/// Returns untrusted text without active marks, for the body of a commit message. Lines are wrapped at spaces to at
/// most `columns` characters.
pub fn inert_message(text: &str, cap_chars: usize, columns: usize) -> String {
    let text = secrets::redact(&scrub(text));
    let lines = cut_at_line(&text, cap_chars).trim().lines();
    let wrapped: Vec<String> =
        lines.map(|line| wrap(&disarm(&insert_guards(line.trim_end())), columns)).collect();
    // Wrapping may have moved a mark to the start of a line.
    disarm(&wrapped.join("\n"))
}

/// Returns whether the text contains marks that would take effect on the default branch.
pub fn has_marks(text: &str) -> bool {
    text.lines().any(|line| !guard_positions(line).is_empty())
}

impl OutboundBody {
    /// Neutralises marks, including issue-closing keywords, in a pull request's body, except in lines for which `own`
    /// returns true. So only those lines can close an issue.
    #[must_use]
    pub fn without_marks(self, own: impl Fn(&str) -> bool) -> Self {
        let line = |line: &str| if own(line) { line.to_owned() } else { disarm(line) };
        Self(self.0.split('\n').map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// Inserts a guard character into each mark of the text, so that the mark has no effect.
fn disarm(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let mut cuts = guard_positions(line);
        cuts.sort_unstable();
        cuts.dedup();
        let mut from = 0;
        let parted = |cut: &usize| line[*cut..].starts_with(GUARD) || line[..*cut].ends_with(GUARD);
        for cut in cuts.into_iter().filter(|cut| !parted(cut)) {
            out.push_str(&line[from..cut]);
            out.push(GUARD);
            from = cut;
        }
        out.push_str(&line[from..]);
    }
    out
}

/// Returns the byte positions in a line at which a guard character is needed.
fn guard_positions(line: &str) -> Vec<usize> {
    // ASCII lowercasing keeps byte positions.
    let lower = line.to_ascii_lowercase();
    let mut cuts: Vec<usize> = trailer_colon(&lower).into_iter().collect();
    cuts.extend(lower.match_indices('[').filter(|(at, _)| skips_ci(&lower[at + 1..])).map(|(at, _)| at + 1));
    for (word, letters) in MARK_WORDS {
        cuts.extend(lower.match_indices(word).map(|(at, _)| at + letters));
    }
    let begins = |at: usize| !lower[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    for verb in CLOSING_VERBS {
        let ends = lower.match_indices(verb).filter(|(at, _)| begins(*at)).map(|(at, _)| at + verb.len());
        cuts.extend(ends.filter(|end| points_to_issue(&lower[*end..])));
    }
    cuts
}

/// Returns the position of the colon if git reads the line as a trailer (`Signed-off-by: …`) or a release tool reads it
/// as a commit type (`feat!: …`).
fn trailer_colon(line: &str) -> Option<usize> {
    let token = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|end| *end > 0)?;
    let scope = match line[token..].strip_prefix('(') {
        Some(scope) => 1 + scope.find(')')? + 1,
        None => 0,
    };
    let mark = usize::from(line[token + scope..].starts_with('!'));
    let colon = token + scope + mark;
    line[colon..].starts_with(':').then_some(colon)
}

/// Returns whether the text after an opening bracket is a mark that skips CI, such as `skip ci]`, `ci-skip]`, `no ci]`
/// or `skip azurepipelines]`.
fn skips_ci(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once(']') else { return false };
    let has = |word: &str| inside.split(|c: char| !c.is_ascii_alphanumeric()).any(|known| known == word);
    inside.len() <= MARK_CHARS && (has("skip") || has("no") && has("ci"))
}

/// Returns whether the text after a closing keyword refers to an issue, such as `: #1`, ` owner/repo#1`, ` GH-1` or a
/// URL.
fn points_to_issue(rest: &str) -> bool {
    let word = rest.trim_start_matches([' ', '\t', ':']);
    let word = word.split_whitespace().next().unwrap_or_default();
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    rest.starts_with([' ', '\t', ':'])
        && (word.split_once('#').is_some_and(|(_, number)| digit(number))
            || word.strip_prefix("gh-").is_some_and(digit)
            || word.starts_with("http"))
}

/// Wraps a line at spaces to at most `columns` characters where possible.
fn wrap(line: &str, columns: usize) -> String {
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let (mut out, mut length) = (String::new(), 0);
    for word in line.split(' ') {
        let chars = word.chars().count();
        if length > 0 && length + 1 + chars > columns {
            out.push('\n');
            out.push_str(indent);
            length = indent.len();
        } else if !out.is_empty() {
            out.push(' ');
            length += 1;
        }
        out.push_str(word);
        length += chars;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        disarm(text).replace(GUARD, "·")
    }

    #[test]
    fn commit_message_neutralises_skip_ci_marks_and_trailers() {
        for (text, inert) in [
            ("Sum [skip ci]", "Sum [·skip ci]"),
            ("[CI Skip] [no ci] [skip-ci]", "[·CI Skip] [·no ci] [·skip-ci]"),
            ("[skip actions] [actions skip]", "[·skip actions] [·actions skip]"),
            ("[skip azurepipelines] ***NO_CI***", "[·skip azurepipelines] ***NO·_CI***"),
            ("skip-checks: true", "skip·-checks·: true"),
            ("x\nSigned-off-by: a <a@b>", "x\nSigned-off-by·: a <a@b>"),
            ("feat!: x", "feat!·: x"),
            ("fix(a): x", "fix(a)·: x"),
            ("BREAKING CHANGE: x", "BREAKING· CHANGE: x"),
            ("BREAKING-CHANGE: x", "BREAKING·-CHANGE·: x"),
            ("see Release-As: 2.0.0", "see Release·-As: 2.0.0"),
            ("`Fixes #1` and closes: o/r#2", "`Fixes· #1` and closes·: o/r#2"),
            ("resolved GH-3, fix https://x/issues/4", "resolved· GH-3, fix· https://x/issues/4"),
        ] {
            assert_eq!(shown(text), inert, "{text:?}");
        }
        for same in ["Skip empty rows", "a[skipped]", "fixes the sum", "prefix #1", "see #1", "- a: [b](c)"] {
            assert_eq!(shown(same), same);
        }
        assert_eq!(disarm(&disarm("[skip ci]")), disarm("[skip ci]"));
    }

    #[test]
    fn only_a_commit_line_added_by_the_bot_can_close_an_issue() {
        let body = OutboundBody("Closes #1\n`Closes #2`\n\n```\nCloses #1\nCloses #3\n```".to_owned());
        let body = body.without_marks(|line| line == "Closes #1").as_str().replace(GUARD, "·");
        assert_eq!(body, "Closes #1\n`Closes· #2`\n\n```\nCloses #1\nCloses· #3\n```");
    }

    #[test]
    fn commit_message_is_wrapped_before_its_marks_are_neutralised() {
        let text = "One two three Signed-off-by: a\n\n- `[skip ci]` and @mona";
        let message = inert_message(text, 1_000, 14).replace(GUARD, "·");
        assert_eq!(message, "One two three\nSigned-off-by·:\na\n\n- `[·skip ci]`\n  and @·mona");
        assert_eq!(
            inert_subject("Fixes #1: [skip ci]\nx", 72).replace(GUARD, "·"),
            "Fixes #·1: [·skip ci] x"
        );
    }
}
