//! What may be posted: looked at once more as a whole, and cut into comments that GitHub takes.

use comrak::{Arena, Node, Options, nodes::NodeValue, parse_document};

use super::{
    SEAM, cut_at_line, fence,
    rewrite::{options, written},
    within,
};
use crate::limits;

/// What may be posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(String);

impl Body {
    /// Text that is ours, with nothing of anybody else's in it that did not pass [`clean`](super::clean),
    /// [`plain`](super::plain) or [`code`](super::code). Only `messages` calls this.
    ///
    /// What passed [`clean`](super::clean) stands between seams. Read with all that is around it, it must be what it
    /// was alone; if it is not, it becomes one block of code.
    pub fn frame(text: String) -> Self {
        let mut parts: Vec<String> = text.split(SEAM).map(str::to_owned).collect();
        for _ in 0..parts.len() {
            match first_that_changed(&parts) {
                Some(part) => parts[part] = fence("", &parts[part]),
                None => break,
            }
        }
        Self(parts.concat())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The body in parts that GitHub takes, each with room for a marker: cut between blocks, and not below a
    /// heading, with folds closed and opened again. One part when it fits.
    pub fn pieces(&self) -> Vec<String> {
        const ROOM: usize = 200;
        let limit = limits::BODY_CHARS - ROOM;
        if within(&self.0, limit) {
            return vec![self.0.clone()];
        }
        let (mut parts, mut part, mut length, mut open) = (Vec::new(), String::new(), 0, 0_usize);
        for block in blocks(&self.0, limit - 2 * ROOM) {
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

/// The first of the parts between seams, every second one, that would not be written as it is where it stands. Whatever
/// acts, is hidden, or runs over its end, is written in another way or not at all.
fn first_that_changed(parts: &[String]) -> Option<usize> {
    let arena = Arena::new();
    let root = parse_document(&arena, &parts.concat(), &everything());
    let mut line = 1;
    for (index, part) in parts.iter().enumerate() {
        let lines = line..=line + part.matches('\n').count();
        line = *lines.end();
        let here = root.children().filter(|block| lines.contains(&line_of(block)));
        if index % 2 == 1 && !part.is_empty() && written(here).as_ref() != Some(part) {
            return Some(index);
        }
    }
    None
}

/// All that GitHub reads in a comment; a footnote that nothing refers to stays where it is.
fn everything() -> Options<'static> {
    let mut options = options();
    options.extension.footnotes = true;
    options.extension.tasklist = true;
    options.parse.leave_footnote_definitions = true;
    options
}

fn line_of(node: Node<'_>) -> usize {
    node.data().sourcepos.start.line
}

/// A block of a body as it is written, with the blank lines below it, and how many more folds it opens than closes.
#[derive(Default)]
struct Block {
    text: String,
    folds: isize,
}

/// A body's blocks in order. What stands above something stays with it, and what is longer than `limit` becomes
/// blocks of code.
fn blocks(text: &str, limit: usize) -> Vec<Block> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let arena = Arena::new();
    let nodes: Vec<_> = parse_document(&arena, text, &everything()).children().collect();
    let (mut out, mut block) = (Vec::new(), Block::default());
    for (n, node) in nodes.iter().enumerate() {
        let end = nodes.get(n + 1).map_or(lines.len(), |next| line_of(next) - 1);
        let text = lines[line_of(node) - 1..end].concat();
        if !within(&text, limit) {
            out.push(std::mem::take(&mut block));
            let mut rest = text.as_str();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(cut_at_line(rest, limit / 2).len());
                out.push(Block { text: fence("", chunk) + "\n\n", folds: 0 });
                rest = after;
            }
            continue;
        }
        block.text.push_str(&text);
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
    }
    out.push(block);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_something_in_its_place_becomes_code() {
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
            "- [ ] a box",
            "```mermaid\na\n```",
            "/approve",
            "a ```\n```",
            "```\nopen",
            "<!-- open",
            "[//]: # (hidden)",
            " \nbegins too late",
        ] {
            let body = Body::frame(format!("ours\n\n{SEAM}{harmless}{SEAM}\n\n{SEAM}{text}{SEAM}\n\nours"));
            let expected = format!("ours\n\n{harmless}\n\n{}\n\nours", fence("", text));
            assert_eq!(body.as_str(), expected);
        }
    }

    #[test]
    fn a_long_body_is_cut_between_blocks_with_folds_and_code_kept_whole() {
        let section =
            |n: usize| format!("## Part {n}\n\n```rust\n{}```\n\ntext {n}\n\n", "let x = 1;\n".repeat(1500));
        let whole: String = (0..12).map(section).collect();
        let body = Body::frame(format!("<details><summary>Draft</summary>\n\n{whole}\n</details>\n"));
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
        let unbroken = Body::frame("é".repeat(200_000)).pieces();
        assert_eq!(unbroken.iter().map(|p| p.matches('é').count()).sum::<usize>(), 200_000);
    }
}
