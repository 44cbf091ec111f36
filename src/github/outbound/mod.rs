//! Sanitiser for untrusted text, written by models or strangers, before it is posted.
//!
//! Posted Markdown can notify people, close issues, trigger other bots, load images and break out of the `<details>`
//! section around it. This module parses the Markdown with comrak, a port of the parser that GitHub uses, and rewrites
//! it without such content. The result is an [`OutboundBody`]. Only `messages` builds this type, and each body is
//! checked once more as a whole. This module does not use GitHub's API.

use std::fmt;

use crate::documents::{is_invisible, secrets, unix_lines};

mod body;
mod commit_marks;
mod rewrite;
pub use body::OutboundBody;
pub use commit_marks::{has_marks, inert_message, inert_subject};
use rewrite::{CheckboxMode, InlineContainer, InlineWriter, rewrite};

/// Zero-width space inserted after an active character, such as `@`, so that it has no effect. It is invisible, and
/// `trim` does not remove it.
const GUARD: char = '\u{200B}';

/// Separator at both ends of untrusted text inside our own text. Untrusted text cannot contain it, because control
/// characters are removed first.
const SEAM: char = '\u{1F}';

const CUT_NOTICE: &str = "\n\n*… cut here for length.*";

/// Maximum number of times that a text is rewritten. A text that the last rewrite still changed becomes a code block.
const MAX_PASSES: usize = 6;

/// Sanitised Markdown by a model or a stranger. Use `{}` to insert it into our own text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InertMarkdown(String);

impl InertMarkdown {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes the sanitised text between two separators, which [`OutboundBody::frame`] recognises.
impl fmt::Display for InertMarkdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SEAM}{}{SEAM}", self.0)
    }
}

/// Sanitises Markdown and limits it to `cap_chars` characters. Code is kept as written, except for secrets and control
/// characters. Sanitising the result again does not change it.
pub fn clean(text: &str, cap_chars: usize) -> InertMarkdown {
    clean_with(text, cap_chars, CheckboxMode::Text)
}

/// Same as [`clean`], but keeps task list checkboxes. Used for the body of an issue.
pub fn clean_with_checkboxes(text: &str, cap_chars: usize) -> InertMarkdown {
    clean_with(text, cap_chars, CheckboxMode::Keep)
}

fn clean_with(text: &str, cap_chars: usize, boxes: CheckboxMode) -> InertMarkdown {
    let text = secrets::redact(&scrub(text));
    let mut keep = cap_chars;
    loop {
        let head = cut_at_line(&text, keep);
        let note = if head.len() < text.len() { CUT_NOTICE } else { "" };
        let out = (rewrite_until_stable(head, boxes) + note).trim_start().to_owned();
        let length = out.chars().count();
        if length <= cap_chars {
            return InertMarkdown(out);
        }
        if keep == 0 {
            return InertMarkdown(String::new());
        }
        // Sanitising made the text longer: keep proportionally less, and always a little less.
        keep = (keep * cap_chars / length).min(keep - keep / 50 - 1);
    }
}

/// Returns untrusted text as one line for use inside our own sentence, such as a title, a reason or a login. Only
/// inline code keeps its Markdown meaning.
pub fn inline_text(text: &str, cap_chars: usize) -> String {
    let text = one_line(text, cap_chars);
    let parts: Vec<&str> = text.split('`').collect();
    let last = parts.len() - 1;
    let trimmed = |part: &str| !part.is_empty() && part.trim() == part;
    // Backticks must be single, paired and not adjacent.
    let pairs = last.is_multiple_of(2)
        && parts.iter().enumerate().all(|(n, part)| match n % 2 {
            0 => n == 0 || n == last || !part.is_empty(),
            _ => trimmed(part),
        });
    let mut words = InlineWriter::new(InlineContainer::Line);
    if !pairs {
        words.write_text(&text);
        return words.finish();
    }
    for (n, part) in parts.iter().enumerate() {
        match n % 2 {
            0 => words.write_text(part),
            _ => words.write_inline(&inline_code(part, cap_chars)),
        }
    }
    words.finish()
}

/// Formats untrusted text, such as a path, a location or a model id, as one line of inline code.
pub fn inline_code(text: &str, cap_chars: usize) -> String {
    let text = one_line(text, cap_chars).replace('`', "'").replace('|', "¦");
    if text.is_empty() { "–".to_owned() } else { format!("`{text}`") }
}

/// Returns untrusted text as one line for places without Markdown, such as a title or a commit subject. The line cannot
/// close an issue or mention anybody.
pub fn plain_line(text: &str, cap_chars: usize) -> String {
    insert_guards(&one_line(text, cap_chars))
}

/// Inserts a guard character after each active character, such as `@` in a mention.
fn insert_guards(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        out.push(c);
        if is_active_sign(c, &text[..at], &text[at + c.len_utf8()..]) {
            out.push(GUARD);
        }
    }
    out
}

/// Returns untrusted text, such as a diff or a log, as a code block. The fence is longer than any run of backticks in
/// the text.
pub fn code_block(info: &'static str, text: &str, cap_chars: usize) -> String {
    let text = secrets::redact(&scrub(text));
    let shown = cut_at_line(&text, cap_chars);
    let note = if shown.len() < text.len() { CUT_NOTICE } else { "" };
    fence(info, shown.trim_end()) + note
}

/// Returns a code block whose fence the content cannot close.
fn fence(info: &str, text: &str) -> String {
    let fence = longer_fence(text, 2);
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{info}\n{text}{end}{fence}")
}

/// Returns a sequence of backticks that is longer than any in the text and longer than `least`.
fn longer_fence(text: &str, least: usize) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(least) + 1)
}

fn one_line(text: &str, cap_chars: usize) -> String {
    let text = secrets::redact(&scrub(text));
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if fits(&line, cap_chars) {
        return line;
    }
    line.chars().take(cap_chars.saturating_sub(1)).chain(['…']).collect()
}

fn fits(text: &str, cap_chars: usize) -> bool {
    text.len() <= cap_chars || text.chars().nth(cap_chars).is_none()
}

/// Removes control characters, text direction characters and invisible characters, and converts line ends to LF.
fn scrub(text: &str) -> String {
    if text.bytes().all(|b| matches!(b, b'\n' | b'\t' | b' '..=b'~')) {
        return text.to_owned();
    }
    let text = unix_lines(text.to_owned()).replace(['\u{2028}', '\u{2029}'], "\n");
    text.chars().filter(|&c| c == '\n' || c == '\t' || !(c.is_control() || is_invisible(c))).collect()
}

/// Truncates the text to `keep` characters. If the second half of those characters contains a line break, the text is
/// cut there.
fn cut_at_line(text: &str, keep: usize) -> &str {
    let Some((end, _)) = text.char_indices().nth(keep) else { return text };
    let head = &text[..end];
    match head.rfind('\n') {
        Some(line) if line > head.len() / 2 => &head[..line],
        _ => head,
    }
}

/// Rewrites the text until a rewrite no longer changes it, because replacing one construct can change how its
/// neighbours are parsed.
fn rewrite_until_stable(source: &str, boxes: CheckboxMode) -> String {
    let mut text = source.to_owned();
    for _ in 0..MAX_PASSES {
        match rewrite(&scrub(&text), boxes) {
            Some(next) if next == text => return text,
            Some(next) => text = next,
            None => break,
        }
    }
    fence("", source.trim_matches('\n'))
}

/// Returns whether this character, in its context, notifies people, refers to a thread, or starts a URL or a command.
/// The surrounding Markdown does not matter.
fn is_active_sign(c: char, before: &str, rest: &str) -> bool {
    let next = rest.as_bytes().first().copied().unwrap_or(b' ');
    let follows = |word: &str| {
        before
            .rsplit(|c: char| !c.is_ascii_alphanumeric())
            .next()
            .is_some_and(|last| last.eq_ignore_ascii_case(word))
    };
    match c {
        '@' => next.is_ascii_alphanumeric(),
        '#' => next.is_ascii_digit(),
        '-' => next.is_ascii_digit() && follows("gh"),
        ':' => rest.starts_with("//"),
        'w' | 'W' => rest.starts_with('.') && follows("ww"),
        // A command: only punctuation precedes it on its line.
        '/' => next.is_ascii_alphabetic() && !before.chars().rev().any(char::is_alphanumeric),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sanitised text with each guard character shown as `·`.
    fn shown(text: &str) -> String {
        clean(text, 10_000).as_str().replace(GUARD, "·")
    }

    #[test]
    fn cleaning_outbound_text_neutralises_active_markdown() {
        for (text, inert) in [
            ("ping @mona and @org/team", "ping @·mona and @·org/team"),
            ("Fixes #1, closes owner/repo#12\nGH-7 HIGH-5", "Fixes #·1, closes owner/repo#·12\nGH-·7 HIGH-5"),
            ("/approve src/lib.rs\n  **/y**", "/·approve src/lib.rs\n**/·y**"),
            ("- /stop\n> 1. /help\n* [ ] /x", "- /·stop\n\n> 1. /·help\n\n- \\[ \\] /·x"),
            ("<https://docs.rs/x> [y](http://z/?q \"@mona\")", "<https://docs.rs/x> [y](http://z/?q)"),
            ("[x](https://ghe.corp/o/r/pull/2)", "x (`https://ghe.corp/o/r/pull/2`)"),
            ("[x](//github.com/o/r/issues/1)", "x (`//github.com/o/r/issues/1`)"),
            ("[x](/o/r&#47;issues/1) [y](javascript:z)", "x (`/o/r/issues/1`) y (`javascript:z`)"),
            ("https://github.com/o/r/issues/1 m@e.x", "https:·//github.com/o/r/issues/1 m@·e.x"),
            ("www.e.x [www.e.x/a](http://b)", "[www·.e.x](http://www.e.x) [www·.e.x/a](http://b)"),
            ("![a![b](c)](d) ![x][1]\n\n[1]: https://evil/y.png\n[//]: # (@mona)", "ab x"),
            ("R&D &commat;mona &#35;1 &#8238;é", "R&amp;D @·mona #·1 é"),
            ("a<b>c</b>Vec<String>\n\n<!-- x -->", "a&lt;b>c&lt;/b>Vec&lt;String>\n\n```\n<!-- x -->\n```"),
            ("a\u{202e}b\u{200b}c\u{0}d\u{feff}e\u{7f}\u{1f}", "abcde"),
            ("see [^1]\n\n[^1]: a note\n\n    @mona", "see \\[^1\\]\n\n\\[^1\\]: a note\n\n```\n@mona\n```"),
            (
                "Title\n===\n## b ##\n***\n1) c\n\n   d\n2) e",
                "# Title\n\n## b\n\n***\n\n1. c\n\n   d\n\n2. e",
            ),
            ("|a|b|\n|-|:-:|\n|`x\\|y`|@mona|", "| a | b |\n| --- | --- |\n| `x\\|y` | @·mona |"),
            ("- a\n  - b\n\n    c\n- ~~d~~ _e_\\\n  f", "- a\n  - b\n\n    c\n- ~~d~~ *e*\\\n  f"),
        ] {
            assert_eq!(shown(text), inert, "{text:?}");
        }
    }

    #[test]
    fn cleaning_outbound_text_keeps_checkboxes_when_requested() {
        for same in ["- [ ] **a** `b_c`\n  d\n- [x] e\n  - [ ] f", "1. [ ] a", "- [ ] /\u{200B}stop"] {
            assert_eq!(clean_with_checkboxes(same, 99).as_str(), same);
        }
        let body = OutboundBody::frame(format!("ours\n\n{}", clean_with_checkboxes("* [ ] @mona", 99)));
        assert_eq!(body.as_str().replace(GUARD, "·"), "ours\n\n- [ ] @·mona");
    }

    #[test]
    fn cleaning_outbound_text_keeps_code_and_closes_open_fences() {
        for same in ["`@mona #1 <b>`", "```rust\n@mona\n/approve\n<b> ![x](y)\n```", "``a`b``"] {
            assert_eq!(shown(same), same);
        }
        assert_eq!(shown("~~~\n```\n@a"), "````\n```\n@a\n````");
        assert_eq!(shown("```\n    ```"), "````\n    ```\n````");
        assert_eq!(shown("> ```\n> @a\n\n@b"), "> ```\n> @a\n> ```\n\n@·b");
        assert_eq!(shown("    a\n\n\tb"), "```\na\n\nb\n```");
        for drawn in ["mermaid", "GeoJSON x", "math", "a b"] {
            assert!(!shown(&format!("```{drawn}\n@a\n```")).contains(drawn));
        }
    }

    #[test]
    fn secrets_are_redacted_even_in_code() {
        let token = format!("ghs_{}", "a".repeat(36));
        let split = format!("gh\u{200b}s_{}", "a".repeat(36));
        let escaped = format!("ghs\\_{}", "a".repeat(36));
        assert_eq!(
            shown(&format!("`{token}` {split} {escaped}")),
            "`[redacted]` \\[redacted\\] \\[redacted\\]"
        );
        assert_eq!(inline_text(&token, 100), "\\[redacted\\]");
    }

    #[test]
    #[ignore = "takes long"]
    fn long_hostile_text_is_cut_and_stays_neutralised() {
        let marks = [
            "[",
            "![",
            "<",
            "> ",
            "- ",
            "*a ",
            "**a* ",
            "`",
            "|-",
            "&",
            "[a](",
            "~~",
            "\\",
            "[a]: b\n",
            "@a #1 /b `c` é \n",
        ];
        let mut texts: Vec<String> = marks.iter().map(|mark| mark.repeat(20_000)).collect();
        texts.push(format!("{}{}", "|a".repeat(3_000), "\n|-|".repeat(9_000)));
        texts.push(format!("|{}\n|{}{}", "a|".repeat(5_000), "-|".repeat(5_000), "\n|a".repeat(9_000)));
        texts.push("a `b\n\n` @c\n".repeat(5_000));
        for text in &texts {
            for cap in [0, 30, 15_000] {
                let once = clean(text, cap);
                assert!(once.as_str().chars().count() <= cap, "{:?} at {cap}", &text[..9]);
                assert_eq!(clean(once.as_str(), cap), once, "{:?} at {cap}", &text[..9]);
            }
            let _ = (inline_text(text, 200), plain_line(text, 200), inline_code(text, 200));
        }
        let out = shown(&("```\n".to_owned() + &"line\n".repeat(20_000)));
        assert!(out.ends_with("line\n```\n\n*… cut here for length.*"), "{}", &out[out.len() - 80..]);
        let grown = shown(&"<".repeat(20_000));
        assert!(grown.len() > 9_000 && grown.starts_with("&lt;"), "{}", grown.len());
    }

    #[test]
    fn text_and_code_formatting_functions_neutralise_markdown() {
        let text = "# *a* [b](http://c) <d> `e`\n| f @g #1 www.h.i _j_ !";
        assert_eq!(
            inline_text(text, 200).replace(GUARD, "·"),
            "\\# \\*a\\* \\[b\\](http:·//c) &lt;d> `e` \\| f @·g #·1 www·.h.i \\_j\\_ \\!"
        );
        for (text, inert) in
            [("1. x", "1\\. x"), ("/approve", "/·approve"), ("#1", "\\#·1"), ("> a", "\\> a")]
        {
            assert_eq!(inline_text(text, 9).replace(GUARD, "·"), inert);
        }
        for (text, inert) in [
            ("Mend `a|@b` in `c_d` or e_f", "Mend `a¦@b` in `c_d` or e_f"),
            ("`a``b`", "\\`a\\`\\`b\\`"),
            ("a `b", "a \\`b"),
            ("` a`", "\\` a\\`"),
            ("x_ _y a__b", "x\\_ \\_y a\\_\\_b"),
        ] {
            assert_eq!(inline_text(text, 99), inert);
        }
        assert_eq!(inline_text("abcdef", 4), "abc…");
        assert_eq!(code_block("diff", "+ ```\n- @a", 99), "````diff\n+ ```\n- @a\n````");
        assert_eq!(inline_code("a`b|c\nd", 20), "`a'b¦c d`");
        assert_eq!(
            plain_line("Fixes #1 @x https://a\nb", 40).replace(GUARD, "·"),
            "Fixes #·1 @·x https:·//a b"
        );
    }
}
