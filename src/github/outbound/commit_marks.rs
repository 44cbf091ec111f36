//! Titles, commit messages and pull requests' texts end up on the default branch, where CI, GitHub, git and release tools read
//! marks in them. Nothing that others wrote may be such a mark.

use super::{GUARD, OutboundBody, cut_at_line, insert_guards, plain_line, scrub};
use crate::documents::secrets;

/// Longer parts in brackets are prose.
const MARK_CHARS: usize = 40;

/// Words that act wherever they stand, and after how many of their letters they are parted.
const MARK_WORDS: [(&str, usize); 5] =
    [("skip-checks", 4), ("no_ci", 2), ("breaking change", 8), ("breaking-change", 8), ("release-as", 7)];

const CLOSING_VERBS: [&str; 9] =
    ["close", "closes", "closed", "fix", "fixes", "fixed", "resolve", "resolves", "resolved"];

/// One line of untrusted text as a title or a commit's subject.
pub fn inert_subject(text: &str, cap_chars: usize) -> String {
    disarm(&plain_line(text, cap_chars))
}

/// Untrusted text as the body of a commit's message, in lines of at most `columns` where it has blanks to break at.
pub fn inert_message(text: &str, cap_chars: usize, columns: usize) -> String {
    let text = secrets::redact(&scrub(text));
    let lines = cut_at_line(&text, cap_chars).trim().lines();
    let wrapped: Vec<String> =
        lines.map(|line| wrap(&disarm(&insert_guards(line.trim_end())), columns)).collect();
    // A line may begin elsewhere now.
    disarm(&wrapped.join("\n"))
}

/// Has the text marks that act on the default branch?
pub fn has_marks(text: &str) -> bool {
    text.lines().any(|line| !guard_positions(line).is_empty())
}

impl OutboundBody {
    /// A pull request's text, in which only lines that are `own` may close an issue.
    #[must_use]
    pub fn without_marks(self, own: impl Fn(&str) -> bool) -> Self {
        let line = |line: &str| if own(line) { line.to_owned() } else { disarm(line) };
        Self(self.0.split('\n').map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// The text with a guard inside of each mark.
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

/// Where in a line a guard has to stand.
fn guard_positions(line: &str) -> Vec<usize> {
    // As long as the line, and its characters begin where those of the line do.
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

/// Where the line has its colon, if git reads it as a trailer (`Signed-off-by: …`) or a release tool as a commit (`feat!: …`).
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

/// `skip ci]`, `ci-skip]`, `no ci]`, `skip azurepipelines]`: what stands behind an opening bracket.
fn skips_ci(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once(']') else { return false };
    let has = |word: &str| inside.split(|c: char| !c.is_ascii_alphanumeric()).any(|known| known == word);
    inside.len() <= MARK_CHARS && (has("skip") || has("no") && has("ci"))
}

/// What stands behind a closing verb: `: #1`, ` owner/repo#1`, ` GH-1` or an address.
fn points_to_issue(rest: &str) -> bool {
    let word = rest.trim_start_matches([' ', '\t', ':']);
    let word = word.split_whitespace().next().unwrap_or_default();
    let digit = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    rest.starts_with([' ', '\t', ':'])
        && (word.split_once('#').is_some_and(|(_, number)| digit(number))
            || word.strip_prefix("gh-").is_some_and(digit)
            || word.starts_with("http"))
}

/// In several lines, where it is longer.
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
    fn marks_that_act_on_the_default_branch_are_parted() {
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
    fn only_our_own_line_closes() {
        let body = OutboundBody("Closes #1\n`Closes #2`\n\n```\nCloses #1\nCloses #3\n```".to_owned());
        let body = body.without_marks(|line| line == "Closes #1").as_str().replace(GUARD, "·");
        assert_eq!(body, "Closes #1\n`Closes· #2`\n\n```\nCloses #1\nCloses· #3\n```");
    }

    #[test]
    fn a_message_is_wrapped_before_its_marks_are_parted() {
        let text = "One two three Signed-off-by: a\n\n- `[skip ci]` and @mona";
        let said = inert_message(text, 1_000, 14).replace(GUARD, "·");
        assert_eq!(said, "One two three\nSigned-off-by·:\na\n\n- `[·skip ci]`\n  and @·mona");
        assert_eq!(
            inert_subject("Fixes #1: [skip ci]\nx", 72).replace(GUARD, "·"),
            "Fixes #·1: [·skip ci] x"
        );
    }
}
