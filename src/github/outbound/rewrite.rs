//! Rewriter of Markdown, based on the syntax tree of comrak, a port of GitHub's parser.
//!
//! Only constructs with a match arm here are written, each in one canonical form. Everything else becomes plain text.
//! So hidden content is dropped, and it does not matter how another parser would read the source.

use comrak::{
    Arena, Node, Options,
    nodes::{ListType, NodeValue},
    parse_document,
};

use super::{GUARD, fence, is_active_sign, longer_fence, scrub};
use crate::documents::secrets;

/// Maximum nesting depth of quotes, lists and emphasis; protects against stack overflow.
const MAX_DEPTH: usize = 24;

/// Fence languages that GitHub renders as something other than code.
const RENDERED_FENCES: [&str; 6] = ["mermaid", "geojson", "topojson", "stl", "math", "suggestion"];

/// Treatment of task list checkboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckboxMode {
    /// Checkboxes become plain text that nobody can tick.
    Text,
    Keep,
}

/// Returns parser options with only the extensions that the rewriter can write. Footnotes become plain text.
pub(super) fn parser_options() -> Options<'static> {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.strikethrough = true;
    options.extension.autolink = true;
    options
}

/// Returns the text without active content, or `None` if it is nested too deeply.
pub(super) fn rewrite(text: &str, boxes: CheckboxMode) -> Option<String> {
    let (arena, mut options) = (Arena::new(), parser_options());
    options.extension.tasklist = boxes == CheckboxMode::Keep;
    write_blocks(parse_document(&arena, text, &options).children())
}

/// Returns the Markdown of these top-level blocks, or `None` if they are nested too deeply.
pub(super) fn write_blocks<'a>(nodes: impl Iterator<Item = Node<'a>>) -> Option<String> {
    let nodes: Vec<_> = nodes.collect();
    let mut inside = nodes.iter().flat_map(|block| block.descendants());
    let deep = inside.any(|node| node.ancestors().count() > MAX_DEPTH);
    (!deep).then(|| render_blocks(nodes.into_iter(), false))
}

/// Returns the language of a code fence to keep for syntax highlighting, or an empty string if it must not be kept.
pub(super) fn fence_language(info: &str) -> &str {
    let word = info.split(char::is_whitespace).next().unwrap_or_default();
    let named = word.len() <= 20 && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"+#-_.".contains(&b));
    if named && !RENDERED_FENCES.iter().any(|drawn| word.eq_ignore_ascii_case(drawn)) { word } else { "" }
}

/// Returns whether a link may point to this URL. The URL must be absolute and contain no Markdown characters. It must
/// not point to an issue, pull request, discussion or commit. Otherwise GitHub would post a "mentioned this" note in
/// that thread, even in other people's repositories.
pub(super) fn is_allowed_link(url: &str) -> bool {
    const THREADS: [&str; 5] = ["/issues/", "/pull/", "/pulls/", "/discussions/", "/commit/"];
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/:?#=&+,".contains(&b);
    let small = url.to_ascii_lowercase();
    (url.starts_with("https://") || url.starts_with("http://"))
        && url.bytes().all(plain)
        && !THREADS.iter().any(|part| small.contains(part))
}

/// Returns the blocks as Markdown, one after the other. In a `tight` list, blank lines between blocks are omitted where
/// possible.
fn render_blocks<'a>(nodes: impl Iterator<Item = Node<'a>>, tight: bool) -> String {
    let mut out = String::new();
    for node in nodes {
        let block = render_block(node, tight);
        if !out.is_empty() && !block.is_empty() {
            let close = tight && !matches!(node.data().value, NodeValue::Paragraph | NodeValue::Table(_));
            out.push_str(if close { "\n" } else { "\n\n" });
        }
        out.push_str(&block);
    }
    out
}

fn render_block(node: Node<'_>, tight: bool) -> String {
    match &node.data().value {
        NodeValue::Paragraph => InlineWriter::render(node, InlineContainer::Paragraph),
        NodeValue::Heading(heading) => format!(
            "{} {}",
            "#".repeat(heading.level.into()),
            InlineWriter::render(node, InlineContainer::Line)
        )
        .trim_end()
        .to_owned(),
        NodeValue::CodeBlock(code) => fence(fence_language(&code.info), &code.literal),
        NodeValue::HtmlBlock(html) => fence("", &html.literal),
        NodeValue::BlockQuote => prefix_lines("> ", "> ", &render_blocks(node.children(), false)),
        NodeValue::List(list) => {
            let item = |(item, number): (Node<'_>, usize)| {
                let mark = match list.list_type {
                    ListType::Bullet => "- ".to_owned(),
                    ListType::Ordered => format!("{number}. "),
                };
                let tick = match &item.data().value {
                    NodeValue::TaskItem(task) if task.symbol.is_some() => "[x] ",
                    NodeValue::TaskItem(_) => "[ ] ",
                    _ => "",
                };
                let below = " ".repeat(mark.len());
                prefix_lines(&(mark + tick), &below, &render_blocks(item.children(), list.tight))
            };
            let items: Vec<_> = node.children().zip(list.start..).map(item).collect();
            items.join(if list.tight { "\n" } else { "\n\n" })
        }
        NodeValue::Table(table) => {
            let row = |row: Node<'_>| {
                row.children()
                    .map(|cell| format!("| {} ", InlineWriter::render(cell, InlineContainer::Cell)))
                    .collect::<String>()
                    + "|"
            };
            let mut rows: Vec<String> = node.children().map(row).collect();
            rows.insert(1, "| --- ".repeat(table.num_columns) + "|");
            rows.join("\n")
        }
        NodeValue::ThematicBreak => "***".to_owned(),
        _ => render_blocks(node.children(), tight),
    }
}

/// Prefixes the first line with `mark` and the other lines with `below`.
fn prefix_lines(mark: &str, below: &str, inside: &str) -> String {
    let leads = std::iter::once(mark).chain(std::iter::repeat(below));
    let lines = inside.split('\n').zip(leads);
    let lines = lines.map(
        |(line, lead)| if line.is_empty() { lead.trim_end().to_owned() } else { format!("{lead}{line}") },
    );
    lines.collect::<Vec<_>>().join("\n")
}

/// Kind of Markdown element that contains inline content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InlineContainer {
    Paragraph,
    /// An element that must stay on one line, such as a heading.
    Line,
    Cell,
}

/// Writer of inline content.
pub(super) struct InlineWriter {
    out: String,
    container: InlineContainer,
    /// Byte offset in `out` at which the current line starts.
    line: usize,
}

impl InlineWriter {
    pub(super) fn new(container: InlineContainer) -> Self {
        Self { out: String::new(), container, line: 0 }
    }

    pub(super) fn finish(self) -> String {
        self.out.trim_end().to_owned()
    }

    fn render(node: Node<'_>, container: InlineContainer) -> String {
        let mut words = Self::new(container);
        words.write_children(node);
        words.finish()
    }

    fn write_children(&mut self, parent: Node<'_>) {
        for node in parent.children() {
            match &node.data().value {
                NodeValue::Text(text) => self.write_text(text),
                NodeValue::HtmlInline(html) => self.write_text(html),
                NodeValue::Code(code) => self.write_code(&code.literal),
                NodeValue::SoftBreak => self.write_line_break(""),
                NodeValue::LineBreak => self.write_line_break("\\"),
                NodeValue::Emph => self.write_wrapped("*", node, "*"),
                NodeValue::Strong => self.write_wrapped("**", node, "**"),
                NodeValue::Strikethrough => self.write_wrapped("~~", node, "~~"),
                NodeValue::Link(link) => self.write_link(&link.url, node),
                // An image becomes its alt text.
                _ => self.write_children(node),
            }
        }
    }

    /// Writes text escaped, so that no Markdown or HTML in it has an effect.
    pub(super) fn write_text(&mut self, text: &str) {
        let text = secrets::redact(&scrub(text));
        for (at, c) in text.char_indices() {
            let (before, rest) = (&text[..at], &text[at + c.len_utf8()..]);
            let line = &self.out[self.line..];
            match c {
                c if c.is_whitespace() => {
                    if !line.is_empty() && !line.ends_with(' ') {
                        self.out.push(' ');
                    }
                    continue;
                }
                '<' => self.out.push_str("&lt;"),
                '&' => self.out.push_str("&amp;"),
                // An underscore inside a word is no emphasis.
                '_' if before.ends_with(char::is_alphanumeric) && rest.starts_with(char::is_alphanumeric) => {
                    self.out.push(c);
                }
                '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' => self.out.extend(['\\', c]),
                '#' | '>' | '-' | '+' | '=' | ':' if line.is_empty() => self.out.extend(['\\', c]),
                // A trailing `#` could close a heading, and a trailing `!` could start an image.
                '#' | '!' if rest.is_empty() => self.out.extend(['\\', c]),
                '.' | ')' if looks_like_list_number(line) => self.out.extend(['\\', c]),
                c => self.out.push(c),
            }
            if is_active_sign(c, before, rest) {
                self.out.push(GUARD);
            }
        }
    }

    /// Writes Markdown that is already escaped, unchanged.
    pub(super) fn write_inline(&mut self, written: &str) {
        self.out.push_str(written);
    }

    fn write_code(&mut self, code: &str) {
        let code = scrub(code).replace('\n', " ");
        let code = if self.container == InlineContainer::Cell { code.replace('|', "\\|") } else { code };
        let fence = longer_fence(&code, 0);
        let spaced = code.starts_with(' ') && code.ends_with(' ') && !code.trim().is_empty();
        let pad = if spaced || code.starts_with('`') || code.ends_with('`') { " " } else { "" };
        self.out.push_str(&format!("{fence}{pad}{code}{pad}{fence}"));
    }

    fn write_line_break(&mut self, mark: &str) {
        self.out.truncate(self.out.trim_end().len());
        if self.container == InlineContainer::Paragraph {
            self.out.push_str(mark);
            self.out.push('\n');
            self.line = self.out.len();
        } else {
            self.out.push(' ');
        }
    }

    fn write_wrapped(&mut self, before: &str, node: Node<'_>, behind: &str) {
        self.out.push_str(before);
        self.write_children(node);
        self.out.push_str(behind);
    }

    /// Writes a link. If the URL is not allowed, writes the link's text followed by the URL as inline code.
    fn write_link(&mut self, url: &str, node: Node<'_>) {
        let words = node.collect_text();
        match is_allowed_link(url) {
            true if url == words => self.out.push_str(&format!("<{url}>")),
            true => self.write_wrapped("[", node, &format!("]({url})")),
            false if url.ends_with(&words) => self.write_children(node),
            false => {
                self.write_wrapped("", node, " (");
                self.write_code(url);
                self.out.push(')');
            }
        }
    }
}

fn looks_like_list_number(line: &str) -> bool {
    (1..10).contains(&line.len()) && line.bytes().all(|b| b.is_ascii_digit())
}
