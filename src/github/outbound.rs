//! The one way out: text a model or a stranger wrote becomes text that may be posted.
//!
//! Posted text acts: it pages people, closes issues, obeys other bots, loads pictures, breaks out
//! of the fold it stands in. Here it is made inert by edits of byte ranges outside code, until a
//! further pass would change nothing; nothing is rendered anew. What may be posted is a [`Body`],
//! which only `messages` builds. This file knows nothing of GitHub's API.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use crate::documents::{is_invisible, markdown, secrets};

mod body;
pub use body::Body;

/// Stands between a sign that acts and what it would act on. Invisible, and no white space to
/// anybody's `trim`.
const GUARD: char = '\u{200B}';

const CUT: &str = "\n\n*… cut here for length.*";

/// Passes before a text that will not settle is put into a code block as it is.
const PASSES: usize = 12;

/// Markdown of a model's or a stranger's that was made inert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clean(String);

impl Clean {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.trim().is_empty()
    }
}

/// Makes Markdown inert and at most `cap_chars` long. Text in code stays as written, except for
/// secrets and control characters. Cleaning what is clean changes nothing.
pub fn clean(text: &str, cap_chars: usize) -> Clean {
    let text = secrets::redact(&scrub(text));
    let whole = settle(&text);
    if within(&whole, cap_chars) {
        return Clean(whole);
    }
    let room = cap_chars.saturating_sub(CUT.chars().count());
    let mut keep = room;
    while keep > 0 {
        let out = settle(cut_at_line(&text, keep));
        let length = out.chars().count();
        if length <= room {
            return Clean(format!("{}{CUT}", out.trim_end()));
        }
        // What was made inert grew: keep less, in proportion, and always a little less.
        keep = (keep * room / length).min(keep - keep / 50 - 1);
    }
    Clean(CUT.trim_start().chars().take(cap_chars).collect())
}

/// One line of untrusted text inside a sentence of ours: a title, a reason, a login. No Markdown
/// and no HTML in it means anything.
pub fn plain(text: &str, cap_chars: usize) -> String {
    let text = one_line(text, cap_chars);
    let mut out = String::with_capacity(text.len() + 16);
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    for (at, c) in text.char_indices() {
        let rest = &text[at + c.len_utf8()..];
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => out.extend(['\\', c]),
            '#' | '-' | '+' | '=' if at == 0 => out.extend(['\\', c]),
            '.' | ')' if at == digits && digits > 0 => out.extend(['\\', c]),
            '/' if at == 0 => out.extend([c, GUARD]),
            ':' if rest.starts_with("//") => out.extend([c, GUARD]),
            '.' if ends_with_www(&text[..at]) => out.extend([c, GUARD]),
            _ => {
                out.push(c);
                if acts(c, &text[..at], rest) {
                    out.push(GUARD);
                }
            }
        }
        if at == 0 && c == '#' && acts(c, "", rest) {
            out.push(GUARD);
        }
    }
    out
}

/// One line of untrusted text as inline code: a path, a place, a model's id.
pub fn code(text: &str, cap_chars: usize) -> String {
    let text = one_line(text, cap_chars).replace('`', "'").replace('|', "¦");
    if text.is_empty() { "–".to_owned() } else { format!("`{text}`") }
}

/// One line of untrusted text where there is no Markdown: a title, a commit's subject. It neither
/// closes nor mentions anything.
pub fn line(text: &str, cap_chars: usize) -> String {
    let text = one_line(text, cap_chars);
    let mut out = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        out.push(c);
        let rest = &text[at + c.len_utf8()..];
        if acts(c, &text[..at], rest) || (c == ':' && rest.starts_with("//")) {
            out.push(GUARD);
        }
    }
    out
}

/// Untrusted text as a code block, whatever fences it holds itself: a diff, a log.
pub fn fenced(info: &'static str, text: &str, cap_chars: usize) -> String {
    let text = secrets::redact(&scrub(text));
    let shown = if within(&text, cap_chars) { &text } else { cut_at_line(&text, cap_chars) };
    let note = if shown.len() < text.len() { CUT } else { "" };
    let fence = longer_than_any('`', shown);
    format!("{fence}{info}\n{}\n{fence}{note}", shown.trim_end())
}

/// A fence of this character that nothing in the text can close.
fn longer_than_any(mark: char, text: &str) -> String {
    let longest = text.split(|c| c != mark).map(str::len).max().unwrap_or(0);
    mark.to_string().repeat(longest.max(2) + 1)
}

fn one_line(text: &str, cap_chars: usize) -> String {
    let text = secrets::redact(&scrub(text));
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if within(&line, cap_chars) {
        return line;
    }
    line.chars().take(cap_chars.saturating_sub(1)).chain(['…']).collect()
}

fn within(text: &str, cap_chars: usize) -> bool {
    text.len() <= cap_chars || text.chars().nth(cap_chars).is_none()
}

/// Control, direction and invisible characters out, line ends made uniform.
fn scrub(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace(['\r', '\u{2028}', '\u{2029}'], "\n");
    text.chars().filter(|&c| c == '\n' || c == '\t' || !(c.is_control() || is_invisible(c))).collect()
}

/// At most `keep` characters, ending at a line break where one is near.
fn cut_at_line(text: &str, keep: usize) -> &str {
    let end = text.char_indices().nth(keep).map_or(text.len(), |(at, _)| at);
    let head = &text[..end];
    match head.rfind('\n') {
        Some(line) if line > head.len() / 2 => &head[..line],
        _ => head,
    }
}

/// Passes until nothing changes. Making a sign inert can change what the text around it means to a
/// Markdown parser (a backtick that stood in an HTML attribute), hence more than one.
fn settle(text: &str) -> String {
    let mut text = text.to_owned();
    for _ in 0..PASSES {
        let next = pass(&without_last_tabs(&text));
        if next == text {
            return text;
        }
        text = next;
    }
    let fence = longer_than_any('~', &text);
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// What a Markdown parser sees of a text, as far as it matters here.
#[derive(Default)]
struct Seen {
    /// Code, in order.
    code: Vec<Range<usize>>,
    /// Where inline code begins whose first backtick may belong to an address before it.
    swallowed: Vec<usize>,
    /// What gives way to other text: outermost images to their words, code on several lines to the same
    /// on one.
    replaced: Vec<(Range<usize>, String)>,
    /// Where definitions of link targets begin.
    definitions: Vec<usize>,
    /// The fence that must be closed at the end.
    unclosed: Option<String>,
}

fn see(text: &str) -> Seen {
    let parser = Parser::new_ext(text, markdown::options());
    let mut seen = Seen::default();
    seen.definitions
        .extend(parser.reference_definitions().iter().map(|(_, definition)| definition.span.start));
    let (mut containers, mut images) = (0_usize, 0_usize);
    for (event, range) in parser.into_offset_iter() {
        match event {
            // An indented line is a paragraph's to a parser that sees no table, or a list, above it.
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => {
                if containers == 0 {
                    seen.unclosed = missing_fence(&text[range.clone()]);
                }
                seen.code.push(range);
            }
            Event::Code(inner) => {
                if images > 0
                    && let Some((_, alt)) = seen.replaced.last_mut()
                {
                    alt.push_str(&inner);
                }
                // Behind code that both see, nothing of an address before it goes on.
                let from = seen.code.last().map_or(0, |code| code.end.min(range.start));
                if markdown::in_bare_address(&text[from..], range.start - from) {
                    seen.swallowed.push(range.start);
                }
                if images == 0 && text[range.clone()].contains('\n') {
                    let one_line = on_one_line(&text[range.clone()], &inner);
                    seen.replaced.push((range, one_line));
                } else if certainly_code(text, &range) {
                    seen.code.push(range);
                }
            }
            Event::Start(Tag::BlockQuote(_) | Tag::Item) => containers += 1,
            Event::End(TagEnd::BlockQuote(_) | TagEnd::Item) => containers = containers.saturating_sub(1),
            Event::Start(Tag::Image { .. }) => {
                if images == 0 {
                    seen.replaced.push((range, String::new()));
                }
                images += 1;
            }
            Event::End(TagEnd::Image) => images = images.saturating_sub(1),
            Event::Text(inner) if images > 0 => {
                if let Some((_, alt)) = seen.replaced.last_mut() {
                    alt.push_str(&inner);
                }
            }
            _ => {}
        }
    }
    seen
}

/// Inline code without its line breaks, at which another parser may see a block begin.
fn on_one_line(span: &str, inner: &str) -> String {
    let fence = &span[..span.len() - span.trim_start_matches('`').len()];
    format!("{fence} {} {fence}", inner.replace('\n', " ").trim())
}

/// Is this inline code to every Markdown parser? One that sees a table here would end it at a pipe, and
/// what we had left as written would act.
fn certainly_code(text: &str, span: &Range<usize>) -> bool {
    if !text[span.clone()].contains(['\n', '|']) {
        return true;
    }
    let from = text[..span.start].rfind("\n\n").map_or(0, |blank| blank + 2);
    let to = text[span.end..].find("\n\n").map_or(text.len(), |blank| span.end + blank);
    !text[from..to].lines().any(may_rule_a_table)
}

/// The line below a table's head, within any quote or list; without one there is no table.
fn may_rule_a_table(line: &str) -> bool {
    let marks = |c: char| {
        c.is_ascii_digit() || matches!(c, ' ' | '\t' | '|' | '-' | ':' | '>' | '*' | '+' | '.' | ')')
    };
    line.contains('-') && line.chars().all(marks)
}

/// The fence a block opens with, when its last line does not close it.
fn missing_fence(block: &str) -> Option<String> {
    let open = block.trim_start();
    let mark = open.chars().next()?;
    let length = open.chars().take_while(|c| *c == mark).count();
    let last = block.trim_end_matches('\n').rsplit_once('\n').map(|(_, last)| last.trim());
    let closed = last.is_some_and(|line| line.len() >= length && line.chars().all(|c| c == mark));
    (!closed).then(|| mark.to_string().repeat(length))
}

fn pass(text: &str) -> String {
    let seen = see(text);
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut code = seen.code.iter().peekable();
    let mut replaced = seen.replaced.iter().peekable();
    let mut swallowed = seen.swallowed.iter().peekable();
    let (mut guarded_slash, mut definition) = (None, None);
    let mut at = 0;
    while at < text.len() {
        while code.peek().is_some_and(|range| range.end <= at) {
            code.next();
        }
        while replaced.peek().is_some_and(|(range, _)| range.start < at) {
            replaced.next();
        }
        if let Some((range, words)) = replaced.peek().filter(|(range, _)| range.start == at) {
            out.push_str(&words.replace('\n', " "));
            at = range.end;
            continue;
        }
        while swallowed.next_if(|start| **start < at).is_some() {}
        if swallowed.next_if(|start| **start == at).is_some() {
            // White space ends the address, and code is code again to every parser.
            out.push(' ');
        }
        if let Some(range) = code.peek().filter(|range| range.start <= at) {
            out.push_str(&text[at..range.end]);
            at = range.end;
            continue;
        }
        if at == 0 || text[..at].ends_with('\n') {
            let start = LineStart::of(&text[at..]);
            guarded_slash = start.command.map(|offset| at + offset);
            definition = start.definition.map(|offset| at + offset);
        }
        let c = text[at..].chars().next().expect("a character begins here");
        if c == '[' && (definition == Some(at) || seen.definitions.contains(&at)) {
            out.push('\\');
        }
        live(c, &text[..at], &text[at + c.len_utf8()..], guarded_slash == Some(at), &mut out);
        at += c.len_utf8();
    }
    if let Some(fence) = seen.unclosed {
        if !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&fence);
    }
    out
}

/// Whether a fence with a tab behind it closes is read one way here and another way elsewhere.
fn without_last_tabs(text: &str) -> String {
    let trimmed = |line: &str| match line.ends_with('\t') {
        true => line.trim_end_matches([' ', '\t']).to_owned(),
        false => line.to_owned(),
    };
    text.split('\n').map(trimmed).collect::<Vec<_>>().join("\n")
}

/// What the beginning of a line holds that would act: offsets into the line.
struct LineStart {
    /// The slash of something that reads like a command.
    command: Option<usize>,
    /// The bracket of a definition of a link's target.
    definition: Option<usize>,
}

impl LineStart {
    fn of(text: &str) -> Self {
        let line = &text[..text.find('\n').unwrap_or(text.len())];
        let number =
            line.trim_start_matches([' ', '\t', '>']).trim_start_matches(|c: char| c.is_ascii_digit());
        let from = if number.starts_with(['.', ')']) { line.len() - number.len() } else { 0 };
        let marks = |c: char| !c.is_alphanumeric() && c != '/';
        let body = line[from..].trim_start_matches(marks);
        let command =
            body.strip_prefix('/').is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic()));
        let containers = |c: char| matches!(c, ' ' | '\t' | '>' | '-' | '*' | '+' | '.' | ')');
        let bracket = line[from..].trim_start_matches(containers);
        let definition = bracket.starts_with('[') && bracket.contains("]:");
        Self {
            command: command.then(|| line.len() - body.len()),
            definition: definition.then(|| line.len() - bracket.len()),
        }
    }
}

/// Writes one character that is not in code, made inert if it acts.
fn live(c: char, before: &str, rest: &str, opens_command: bool, out: &mut String) {
    match c {
        '<' => out.push_str("&lt;"),
        '&' if is_active_entity(rest) => out.push_str("&amp;"),
        '!' if rest.starts_with('[') => out.push_str("!\\"),
        ':' if opens_host(rest) && leads_to_a_thread(rest) => out.extend([c, GUARD]),
        '.' if ends_with_www(before) && !rest.starts_with(GUARD) && leads_to_a_thread(rest) => {
            out.extend([c, GUARD])
        }
        '/' if opens_command => out.extend([c, GUARD]),
        // One that opens no code can keep GitHub's parser from seeing the code after it.
        '`' if !is_escaped(before) => out.push_str("&grave;"),
        // A fence to a parser that does not see a table here.
        '~' if rest.starts_with("~~") && !before.ends_with('~') && !is_escaped(before) => out.push_str("\\~"),
        _ => {
            out.push(c);
            if acts(c, before, rest) {
                out.push(GUARD);
            }
        }
    }
}

fn is_escaped(before: &str) -> bool {
    before.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// Signs that page people or point to threads, with or without Markdown around them.
fn acts(c: char, before: &str, rest: &str) -> bool {
    let next = rest.as_bytes().first().copied().unwrap_or(b' ');
    match c {
        '@' => next.is_ascii_alphanumeric(),
        '#' => next.is_ascii_digit(),
        '-' => {
            let bytes = before.as_bytes();
            let word = bytes.len().checked_sub(2).map_or(&b""[..], |from| &bytes[from..]);
            next.is_ascii_digit()
                && word.eq_ignore_ascii_case(b"gh")
                && !bytes[..bytes.len() - 2].last().is_some_and(u8::is_ascii_alphanumeric)
        }
        _ => false,
    }
}

fn ends_with_www(before: &str) -> bool {
    before.len() >= 3 && before.as_bytes()[before.len() - 3..].eq_ignore_ascii_case(b"www")
}

/// Does the address that goes on here point to an issue, a pull request, a discussion or a commit?
/// GitHub writes "mentioned this" there, whoever's repository it is.
fn leads_to_a_thread(rest: &str) -> bool {
    const FAR: usize = 2_000;
    let ends = |c: &char| c.is_whitespace() || matches!(c, ')' | '>' | '<' | '"');
    let written: String =
        rest.chars().take(FAR).take_while(|c| !ends(c)).map(|c| c.to_ascii_lowercase()).collect();
    let address = meant(&written);
    ["/issues/", "/pull/", "/pulls/", "/discussions/", "/commit/"].iter().any(|part| address.contains(part))
}

/// Does an address's `//` stand here, plainly or in one of the ways Markdown lets a sign be written?
fn opens_host(rest: &str) -> bool {
    let slashes: String = rest.chars().take(40).collect();
    meant(&slashes.to_ascii_lowercase()).starts_with("//")
}

/// An address with the ways to write a slash undone: escapes of Markdown, and character references.
fn meant(address: &str) -> String {
    let mut out = String::with_capacity(address.len());
    let mut rest = address;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let reference = after.split_once(';').filter(|(name, _)| c == '&' && is_slash(name));
        rest = match reference {
            Some((_, after)) => {
                out.push('/');
                after
            }
            None => {
                if c != '\\' || !after.starts_with(|next: char| next.is_ascii_punctuation()) {
                    out.push(c);
                    after
                } else {
                    let escaped = &after[..1];
                    out.push_str(escaped);
                    &after[1..]
                }
            }
        };
    }
    out
}

fn is_slash(name: &str) -> bool {
    let number = |digits: &str, radix| u32::from_str_radix(digits, radix) == Ok(u32::from(b'/'));
    match name.strip_prefix('#') {
        Some(coded) => coded.strip_prefix('x').map_or_else(|| number(coded, 10), |hex| number(hex, 16)),
        None => name == "sol",
    }
}

/// A character reference that could spell one of the signs above; those for plain typography stay.
fn is_active_entity(rest: &str) -> bool {
    const HARMLESS: &[&str] = &[
        "amp", "lt", "gt", "quot", "apos", "nbsp", "ndash", "mdash", "hellip", "copy", "times", "rarr",
        "larr", "le", "ge", "ne", "grave",
    ];
    let Some(end) = rest.bytes().take(40).position(|b| b == b';') else { return false };
    let name = &rest[..end];
    let shaped = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'#');
    shaped && !HARMLESS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cleaned, with the guard made visible.
    fn shown(text: &str) -> String {
        clean(text, 10_000).as_str().replace(GUARD, "·")
    }

    #[test]
    fn signs_that_act_are_made_inert() {
        for (text, inert) in [
            ("ping @mona and @org/team", "ping @·mona and @·org/team"),
            ("Fixes #1, closes owner/repo#12", "Fixes #·1, closes owner/repo#·12"),
            ("resolves GH-7 gh-8 HIGH-5", "resolves GH-·7 gh-·8 HIGH-5"),
            ("/approve", "/·approve"),
            (
                "a\n  /approve\n- /stop\n> 1. /help\n* [ ] /x\n**/y**\n| /z |",
                "a\n  /·approve\n- /·stop\n> 1. /·help\n* [ ] /·x\n**/·y**\n| /·z |",
            ),
            ("\\/approve src/lib.rs", "\\/·approve src/lib.rs"),
            ("see https://github.com/o/r/issues/1.", "see https:·//github.com/o/r/issues/1."),
            (
                "[x](https://ghe.corp/o/r/pull/2) www.github.com/o/r/issues/3",
                "[x](https:·//ghe.corp/o/r/pull/2) www.·github.com/o/r/issues/3",
            ),
            (
                "<https://github.com/o/r/commit/abc> https://docs.rs/x",
                "&lt;https:·//github.com/o/r/commit/abc> https://docs.rs/x",
            ),
            ("![alt @mona](https://evil/x.png)", "alt @·mona"),
            ("![a![b](c)](d) ![x][1]\n\n[1]: https://evil/y.png", "ab x\n\n\\[1]: https://evil/y.png"),
            ("<img src=x onerror=y>", "&lt;img src=x onerror=y>"),
            ("a</details><!-- x -->", "a&lt;/details>&lt;!-- x -->"),
            (
                "&commat;mona &#64;mona &#x23;1 &lt;b&gt; &amp; R&D;",
                "&amp;commat;mona &amp;#·64;mona &amp;#x23;1 &lt;b&gt; &amp; R&amp;D;",
            ),
            ("a\u{202e}b\u{200b}c\u{0}d\u{feff}e\u{7f}", "abcde"),
            ("a ` b\n| x | @mona ` |\n|---|---|", "a &grave; b\n| x | @·mona &grave; |\n|---|---|"),
            ("text\n| `x | @mona` |\n|---|---|", "text\n| &grave;x | @·mona&grave; |\n|---|---|"),
            ("[^1]: note\n\n    @mona", "\\[^1]: note\n\n    @·mona"),
            ("@\u{200d}mona #\u{2060}1", "@·mona #·1"),
            (r"[x](https:\/\/github.com/o/r/issues/1)", r"[x](https:·\/\/github.com/o/r/issues/1)"),
            (r"[x](https\:/\/github.com/o/r\/pull\/1)", r"[x](https\:·/\/github.com/o/r\/pull\/1)"),
            (
                "[x](https:&sol;&#47;github.com/o/r&#x2F;issues/1)",
                "[x](https:·&amp;sol;&amp;#·47;github.com/o/r&amp;#x2F;issues/1)",
            ),
        ] {
            assert_eq!(shown(text), inert, "{text:?}");
        }
    }

    #[test]
    fn code_stays_as_written_and_fences_are_closed() {
        for same in ["`@mona #1 <b>`", "```rust\n@mona\n/approve\n<b> ![x](y)\n```", "~~~\n```\n@x\n~~~"] {
            assert_eq!(shown(same), same);
        }
        assert_eq!(shown("```\n@mona"), "```\n@mona\n```");
        assert_eq!(shown("~~~~ text\n```\n~~~\n"), "~~~~ text\n```\n~~~\n~~~~");
        assert_eq!(shown("````md\n```\n@a\n```\n````\n@b"), "````md\n```\n@a\n```\n````\n@·b");
        assert_eq!(shown("> ```\n> @a\n\n@b"), "> ```\n> @a\n\n@·b");
    }

    #[test]
    fn a_backtick_hidden_in_html_cannot_turn_code_inside_out() {
        let text = shown("<a title=\"`\"> `@mona` and `@lisa`");
        let live = see(&text);
        for (at, _) in text.match_indices('@').filter(|(at, _)| !text[at + 1..].starts_with('·')) {
            assert!(live.code.iter().any(|range| range.contains(&at)), "{text}");
        }
    }

    #[test]
    fn an_address_does_not_swallow_the_backtick_before_code() {
        for (text, inert) in [
            ("see http://e.x/`</details><h1>x</h1>`", "see http://e.x/ `</details><h1>x</h1>`"),
            ("www.example.com/`<b>@mona fixes #1</b>`", "www.example.com/ `<b>@mona fixes #1</b>`"),
            ("(FTP://e/*`@mona`", "(FTP://e/* `@mona`"),
            ("me@e.x`@mona`", "me@·e.x `@mona`"),
            // Once the first backtick is code's again, the third opens nothing.
            ("http://e/`a `@mona`", "http://e/ `a `@·mona&grave;"),
            ("http://e/` a ` b `@mona`", "http://e/ ` a ` b `@mona`"),
            ("`http://e/`/`@mona` and `b`", "`http://e/`/`@mona` and `b`"),
            ("http://e/ `@mona`", "http://e/ `@mona`"),
        ] {
            assert_eq!(shown(text), inert, "{text:?}");
        }
    }

    /// cmark-gfm forgets where backticks are once one has no partner, sees tables where others do not,
    /// and lets blocks begin on lines that others take for the inside of code.
    #[test]
    fn what_other_parsers_do_not_take_for_code_is_not_left_to_act() {
        for (text, inert) in [
            ("``a `@mona` `@lisa`", "&grave;&grave;a `@mona` `@lisa`"),
            (r"\```x `@mona` `@lisa`", r"\`&grave;&grave;x `@mona` `@lisa`"),
            (">`a\n<zz a=\"`\">", ">` a <zz a=\" `\">"),
            ("`a @mona\n[^1]: `@lisa`", "` a @mona [^1]: `@·lisa&grave;"),
            ("`\n|-|\n`@mona`x<zz a=\"`\">@lisa\n|-|", "&grave; |-| &grave;@·mona`x<zz a=\"`\">@·lisa\n|-|"),
            ("|a\n|-|-|\n    @mona", "|a\n|-|-|\n    @·mona"),
            ("x |-|\n- |-|\n\n    ></b>", "x |-|\n- |-|\n\n    >&lt;/·b>"),
            ("~~~\na\n~~~\t\n</b>", "~~~\na\n~~~\n&lt;/·b>"),
            ("a ~~~ b", "a \\~~~ b"),
            ("`a | @mona`", "`a | @mona`"),
            ("> x `a | @mona`\n> - | :-:\n> y", "> x &grave;a | @·mona&grave;\n> - | :-:\n> y"),
        ] {
            assert_eq!(shown(text), inert, "{text:?}");
        }
    }

    #[test]
    fn secrets_do_not_leave_even_in_code() {
        let token = format!("ghs_{}", "a".repeat(36));
        let split = format!("gh\u{200b}s_{}", "a".repeat(36));
        assert_eq!(shown(&format!("`{token}` {split}")), "`[redacted]` [redacted]");
        assert_eq!(plain(&token, 100), "\\[redacted\\]");
    }

    #[test]
    fn cleaning_what_is_clean_changes_nothing_and_never_panics() {
        let mut texts: Vec<String> = [
            "",
            "\n",
            "`",
            "``` ",
            "~~~",
            "[",
            "![",
            "&",
            "&;",
            "&#",
            "@",
            "<",
            "![](",
            "[a]:",
            "[a]: b\n[a]: c\n[a]: d",
            "- ```\n  @a",
            "a `b\n\n` @c",
            "| `a | @b` |\n|-|-|\n| ![x](y) | /z |",
            "\\`@a`",
            "<!-- ` --> `@a`",
            "![`a`](b) ![\\![x](y)](z)",
            "[^1]: /approve\n\n[^1]",
            "<details>\n\n```\n</details>\n/approve",
            "1) /a\n2. /b\n #1\n##2",
            "é@é #٣ 中/文",
            "> [!NOTE]\n> /approve",
            "[a\nb]: <c\n>",
            "\t/approve\n\n\t@x",
        ]
        .map(str::to_owned)
        .to_vec();
        texts.push("![".repeat(400));
        texts.push("<".repeat(400) + &"`".repeat(333));
        texts.push("> ".repeat(400) + "/approve");
        texts.push("@a #1 /b `c` <d> é \n".repeat(800));
        for text in &texts {
            for cap in [0, 1, 30, 200, 15_000] {
                let once = clean(text, cap);
                assert!(once.as_str().chars().count() <= cap, "{text:?} at {cap}");
                assert_eq!(clean(once.as_str(), cap), once, "{text:?} at {cap}");
            }
            for (at, _) in text.char_indices().take(60) {
                let _ = (
                    clean(&text[at..], 50),
                    plain(&text[at..], 20),
                    line(&text[at..], 20),
                    code(&text[at..], 20),
                );
            }
        }
    }

    #[test]
    fn long_text_is_cut_with_a_note_and_what_is_open_is_closed() {
        let out = shown(&("```\n".to_owned() + &"line\n".repeat(20_000)));
        let grown = shown(&"<".repeat(20_000));
        assert!(grown.len() > 9_000 && grown.starts_with("&lt;"), "{}", grown.len());
        assert!(out.ends_with("line\n```\n\n*… cut here for length.*"), "{}", &out[out.len() - 80..]);
    }

    #[test]
    fn a_line_of_anyones_is_just_words() {
        let text = "# *a* [b](http://c) <d> `e`\n| f @g #1 www.h.i _j_";
        assert_eq!(
            plain(text, 200).replace(GUARD, "·"),
            "\\# \\*a\\* \\[b\\](http:·//c) &lt;d&gt; \\`e\\` \\| f @·g #·1 www.·h.i \\_j\\_"
        );
        assert_eq!(plain("1. x", 9), "1\\. x");
        assert_eq!(plain("/approve", 9).replace(GUARD, "·"), "/·approve");
        assert_eq!(plain("#1", 9).replace(GUARD, "·"), "\\#·1");
        assert_eq!(plain("abcdef", 4), "abc…");
        assert_eq!(fenced("diff", "+ ```\n- @a", 99), "````diff\n+ ```\n- @a\n````");
        assert_eq!(code("a`b|c\nd", 20), "`a'b¦c d`");
        assert_eq!(line("Fixes #1 @x https://a\nb", 40).replace(GUARD, "·"), "Fixes #·1 @·x https:·//a b");
    }
}
