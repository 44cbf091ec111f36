//! The type of a body that may be posted. The body is checked once more as a whole, and split into comments that fit
//! GitHub's limit.

use comrak::{Arena, Node, Options, nodes::NodeValue, parse_document};

use super::{
    MAX_PASSES, SEAM, cut_at_line, fence, fits, is_active_sign,
    rewrite::{fence_language, parser_options, write_blocks},
};
use crate::{documents::unix_lines, limits};

/// A body that may be posted to GitHub. Its lines end in LF, so that our line numbers match the parser's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboundBody(pub(super) String);

impl OutboundBody {
    /// Builds a body from our own text. Any untrusted text in it must have passed [`clean`](super::clean),
    /// [`plain`](super::inline_text) or [`code`](super::inline_code). Only `messages` calls this function.
    ///
    /// Text from [`clean`](super::clean) is enclosed in separator characters. If the surrounding text would change how
    /// Markdown parses such a part, the part becomes a code block.
    pub fn frame(text: String) -> Self {
        let mut parts: Vec<String> = unix_lines(text).split(SEAM).map(str::to_owned).collect();
        for _ in 0..parts.len() {
            match first_changed_part(&parts) {
                Some(part) => parts[part] = fence("", &parts[part]),
                None => break,
            }
        }
        Self(parts.concat())
    }

    /// Builds a body from a posted text that we have edited. Other people may have edited the text too, and no
    /// separators mark their parts. Therefore every block with active content becomes a code block.
    pub fn from_posted(text: String) -> Self {
        let mut text = unix_lines(text);
        for _ in 0..MAX_PASSES {
            let (mut out, mut inert) = (String::new(), true);
            for_each_block(&text, |block, node| {
                let words = block.trim_end();
                if node.descendants().any(is_active) {
                    inert = false;
                    out.extend([&fence("", words), &block[words.len()..]]);
                } else {
                    out.push_str(block);
                }
            });
            if inert {
                return Self(text);
            }
            text = out;
        }
        Self(fence("", &text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Splits the body into parts that fit GitHub's limit, each with space for a marker. Splits are made between
    /// blocks, but never right after a heading. A `<details>` section that is open at a split is closed there and
    /// reopened in the next part. A body that fits is returned as one part.
    pub fn pieces(&self) -> Vec<String> {
        const ROOM: usize = 200;
        let limit = limits::BODY_CHARS - ROOM;
        if fits(&self.0, limit) {
            return vec![self.0.clone()];
        }
        let (mut parts, mut part, mut length, mut open) = (Vec::new(), String::new(), 0, 0_usize);
        for block in split_blocks(&self.0, limit - 2 * ROOM) {
            let mut block = block;
            if open.checked_add_signed(block.folds).is_none() {
                // This closes a fold whose opening tag became code, so it becomes code as well.
                block = OutboundBlock { text: fence("", block.text.trim_end()) + "\n\n", folds: 0 };
            }
            let added = block.text.chars().count();
            if length + added > limit - ROOM && length > 0 {
                parts.push(part + &"\n\n</details>".repeat(open));
                part = "<details open><summary>(continued)</summary>\n\n".repeat(open);
                length = part.len();
            }
            part.push_str(&block.text);
            length += added;
            open = open.saturating_add_signed(block.folds);
        }
        parts.push(part);
        let count = parts.len();
        let numbered = |(i, part): (usize, &String)| format!("{}\n\n*({}/{count})*", part.trim_end(), i + 1);
        parts.iter().enumerate().map(numbered).collect()
    }
}

/// Returns the index of the first untrusted part whose rewritten form would differ in this context. Every second part
/// is untrusted. A part differs if it has active content, is hidden, or continues into the text after it.
fn first_changed_part(parts: &[String]) -> Option<usize> {
    let arena = Arena::new();
    let root = parse_document(&arena, &parts.concat(), &all_extensions());
    let mut line = 1;
    for (index, part) in parts.iter().enumerate() {
        let lines = line..=line + part.matches('\n').count();
        line = *lines.end();
        let here = root.children().filter(|block| lines.contains(&line_of(block)));
        if index % 2 == 1 && !part.is_empty() && write_blocks(here).as_ref() != Some(part) {
            return Some(index);
        }
    }
    None
}

/// Returns parser options with all Markdown extensions that GitHub supports. A footnote definition that nothing refers
/// to keeps its position.
fn all_extensions() -> Options<'static> {
    let mut options = parser_options();
    options.extension.footnotes = true;
    options.extension.tasklist = true;
    options.parse.leave_footnote_definitions = true;
    options
}

fn line_of(node: Node<'_>) -> usize {
    node.data().sourcepos.start.line
}

/// Calls `see` for each top-level block, in order. The text passed to `see` includes the blank lines after the block.
fn for_each_block(text: &str, mut see: impl FnMut(&str, Node<'_>)) {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let arena = Arena::new();
    let nodes: Vec<_> = parse_document(&arena, text, &all_extensions()).children().collect();
    let mut begin = 0;
    for (n, node) in nodes.iter().enumerate() {
        let end = nodes.get(n + 1).map_or(lines.len(), |next| line_of(next) - 1);
        see(&lines[begin..end].concat(), node);
        begin = end;
    }
}

/// Returns whether a node is hidden or has an effect when posted. Links to threads do not count as active, because our
/// own texts contain such links.
fn is_active(node: Node<'_>) -> bool {
    match &node.data().value {
        NodeValue::HtmlBlock(html) => !is_frame_tag(&html.literal),
        NodeValue::HtmlInline(html) => !is_frame_tag(html),
        NodeValue::Text(text) => {
            let linked = node.ancestors().any(|above| matches!(above.data().value, NodeValue::Link(_)));
            !linked && has_active_content(text)
        }
        NodeValue::CodeBlock(code) => !code.closed || fence_language(&code.info) != code.info,
        NodeValue::Link(link) => !link.url.starts_with("https://") && !link.url.starts_with("http://"),
        NodeValue::Image(_)
        | NodeValue::TaskItem(_)
        | NodeValue::FootnoteDefinition(_)
        | NodeValue::FootnoteReference(_) => true,
        _ => false,
    }
}

fn has_active_content(text: &str) -> bool {
    text.char_indices().any(|(at, c)| is_active_sign(c, &text[..at], &text[at + c.len_utf8()..]))
}

/// Returns whether the HTML contains only tags that our own texts use, and no active content.
fn is_frame_tag(html: &str) -> bool {
    const TAGS: [&str; 9] = [
        "<details>",
        "<details open>",
        "</details>",
        "<summary>",
        "</summary>",
        "<code>",
        "</code>",
        "<sub>",
        "</sub>",
    ];
    let words = TAGS.iter().fold(html.to_owned(), |words, tag| words.replace(tag, " "));
    !words.contains('<') && !has_active_content(&words)
}

/// A top-level block, including the blank lines after it. `folds` is the number of `<details>` sections that the block
/// opens minus the number that it closes.
#[derive(Default)]
struct OutboundBlock {
    text: String,
    folds: isize,
}

/// Splits a body into blocks, in order. A heading or an opening `<details>` tag stays with the next block. A block
/// longer than `limit` is split into several code blocks.
fn split_blocks(text: &str, limit: usize) -> Vec<OutboundBlock> {
    let (mut out, mut block) = (Vec::new(), OutboundBlock::default());
    for_each_block(text, |text, node| {
        if block.text.len() + text.chars().count() > limit {
            out.push(std::mem::take(&mut block));
        }
        if !fits(text, limit) {
            let mut rest = text;
            while !rest.is_empty() {
                // In the worst case each of the two fences is as long as the chunk.
                let (chunk, after) = rest.split_at(cut_at_line(rest, limit / 3).len());
                out.push(OutboundBlock { text: fence("", chunk) + "\n\n", folds: 0 });
                rest = after;
            }
            return;
        }
        block.text.push_str(text);
        let folds = match &node.data().value {
            NodeValue::HtmlBlock(html) => {
                let count = |tag| html.literal.matches(tag).count().cast_signed();
                count("<details") - count("</details>")
            }
            _ => 0,
        };
        block.folds += folds;
        if folds <= 0 && !matches!(node.data().value, NodeValue::Heading(_)) {
            out.push(std::mem::take(&mut block));
        }
    });
    out.push(block);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_markdown_in_a_comment_template_is_rendered_as_code() {
        let harmless = "a `@mona` [b](https://c)";
        for text in [
            "@mona",
            "Fixes #1",
            "<b>x</b>",
            "</details>",
            "![x](https://e/p.png)",
            "[x](https://e \"title\")",
            "[x](//github.com/o/r/issues/1)",
            "[^a]: unused",
            "```mermaid\na\n```",
            "/approve",
            "a ```\n```",
            "```\nopen",
            "<!-- open",
            "[//]: # (hidden)",
            " \nbegins too late",
        ] {
            let body =
                OutboundBody::frame(format!("ours\n\n{SEAM}{harmless}{SEAM}\n\n{SEAM}{text}{SEAM}\n\nours"));
            let expected = format!("ours\n\n{harmless}\n\n{}\n\nours", fence("", text));
            assert_eq!(body.as_str(), expected);
        }
    }

    #[test]
    fn long_body_is_split_between_blocks() {
        let section =
            |n: usize| format!("## Part {n}\n\n```rust\n{}```\n\ntext {n}\n\n", "let x = 1;\n".repeat(1500));
        let whole: String = (0..12).map(section).collect();
        let body = OutboundBody::frame(format!("<details><summary>Draft</summary>\n\n{whole}\n</details>\n"));
        let pieces = body.pieces();
        assert!(pieces.len() >= 3);
        for (i, piece) in pieces.iter().enumerate() {
            assert!(piece.chars().count() <= limits::BODY_CHARS - 200);
            assert_eq!(piece.matches("<details").count(), piece.matches("</details>").count(), "piece {i}");
            assert_eq!(piece.matches("```").count() % 2, 0, "piece {i}");
            assert!(piece.ends_with(&format!("*({}/{})*", i + 1, pieces.len())));
        }
        assert!(pieces[1].starts_with("<details open><summary>(continued)</summary>\n\n## Part"));
        let lines = |text: &str| text.matches("let x = 1;").count();
        assert_eq!(pieces.iter().map(|p| lines(p)).sum::<usize>(), 18_000, "nothing is lost");
        let unbroken = OutboundBody::frame("é".repeat(200_000)).pieces();
        assert_eq!(unbroken.iter().map(|p| p.matches('é').count()).sum::<usize>(), 200_000);
    }

    #[test]
    fn pieces_of_a_long_body_fit_githubs_comment_limit() {
        for text in ["`", "`\n", "# a\n"] {
            for piece in OutboundBody::frame(text.repeat(200_000 / text.len())).pieces() {
                assert!(piece.chars().count() <= limits::BODY_CHARS - 200, "{text:?}: {}", piece.len());
            }
        }
    }

    #[test]
    fn random_markdown_never_panics() {
        let parts = [
            "\r",
            "\n",
            "\r\n",
            "\u{2028}",
            "\u{2029}",
            "\u{85}",
            "\u{b}",
            "\u{c}",
            "\u{0}",
            " ",
            "b",
            "é",
            "# ",
            "> ",
            "- ",
            "```",
            "|a|\n|-|",
            "<b>",
            "<!--",
            "</details>",
            "[a]: b",
            "@mona",
            "    ",
        ];
        // Linear congruential generator with a fixed seed.
        let texts =
            if std::env::var("COUNTERSIGN_TESTS").is_ok_and(|all| all == "all") { 100_000 } else { 3_000 };
        let mut seed = 7_u64;
        for _ in 0..texts {
            let mut text = String::new();
            for _ in 0..1 + seed % 9 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(parts[(seed >> 33) as usize % parts.len()]);
            }
            let again = OutboundBody::from_posted(text.clone());
            assert!(!again.as_str().contains('\r'), "{text:?}");
            assert_eq!(OutboundBody::from_posted(again.as_str().to_owned()), again, "{text:?}");
            let framed = OutboundBody::frame(format!("ours {text}\n\n{}", super::super::clean(&text, 1_000)));
            assert!(!framed.pieces().is_empty());
        }
        assert_eq!(OutboundBody::from_posted("b\r\rr".to_owned()).as_str(), "b\n\nr");
    }

    #[test]
    fn fetched_comment_is_rendered_as_code_if_it_has_active_markdown() {
        let ours = "### ✋ A\n\n[the pull request, #3](https://github.com/o/r/pull/3)\n\n```\n/approve lld 3f9c\n```\n\n\
                    | F1 |\n|--:|\n| `@mona` |\n\n<details><summary>D <code>3f</code></summary>\n\n@\u{200b}mona\n\n\
                    </details>\n\n<sub>`/stop` · 1</sub>";
        assert_eq!(OutboundBody::from_posted(ours.to_owned()).as_str(), ours);
        for text in [
            "@mona",
            "Fixes #1",
            "> /approve",
            "a <b>x</b>",
            "<details onclick=x>",
            "<!-- open",
            "![x](https://e/p.png)",
            "[x](javascript:y)",
            "a[^1]\n\n[^1]: b",
            "- [ ] a box",
            "```mermaid\na\n```",
        ] {
            let again = OutboundBody::from_posted(format!("{text}\n\n{ours}"));
            let fenced = again.as_str().trim_start_matches('`').strip_prefix('\n');
            assert!(fenced.is_some_and(|code| code.starts_with(&text[..5])), "{again:?}");
            assert_eq!(OutboundBody::from_posted(again.as_str().to_owned()), again);
        }
        assert_eq!(OutboundBody::from_posted("```\nopen".to_owned()).as_str(), fence("", "```\nopen"));
    }
}
