//! The outline of a Markdown text: headings, tables, lists and code with their byte ranges, as a Markdown parser finds
//! them. Headings inside a code block, a quote or a list item are not included.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Returns the bare URLs in a text; GitHub turns some of them into links. A URL starts with a scheme or `www.` and does
/// not include punctuation at its end.
pub(crate) fn bare_addresses(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c.is_whitespace() || "<>()[]\"'`|".contains(c));
    words.filter_map(|word| {
        let begins = word.find("://").map(|at| {
            let scheme = word[..at].trim_end_matches(|c: char| c.is_ascii_alphabetic());
            scheme.len()
        });
        let at = begins.or_else(|| word.to_ascii_lowercase().find("www."))?;
        Some(word[at..].trim_end_matches(['.', ',', ';', ':', '!', '?', '*', '_']).to_owned())
    })
}

#[derive(Debug, Default)]
pub(crate) struct MarkdownOutline {
    pub(crate) headings: Vec<MarkdownHeading>,
    pub(crate) tables: Vec<MarkdownTable>,
    /// List items that are not nested in another list, a quote or a table.
    pub(crate) items: Vec<MarkdownListItem>,
    pub(crate) code_blocks: Vec<CodeBlock>,
    pub(crate) code_spans: Vec<CodeSpan>,
}

#[derive(Debug)]
pub(crate) struct MarkdownHeading {
    pub(crate) level: usize,
    pub(crate) text: String,
    /// Range of the heading's lines, including the last line break.
    pub(crate) range: Range<usize>,
}

#[derive(Debug, Default)]
pub(crate) struct MarkdownTable {
    pub(crate) range: Range<usize>,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<MarkdownTableRow>,
}

#[derive(Debug, Default)]
pub(crate) struct MarkdownTableRow {
    pub(crate) range: Range<usize>,
    /// Markdown source of each cell, without pipes and surrounding blanks.
    pub(crate) cells: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct MarkdownListItem {
    pub(crate) range: Range<usize>,
    /// Number of the item in an ordered list. Markdown counts up from the first item's number.
    pub(crate) number: Option<u64>,
    pub(crate) checked: Option<bool>,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct CodeBlock {
    pub(crate) range: Range<usize>,
    /// First word after the opening fence, in lowercase.
    pub(crate) tag: String,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct CodeSpan {
    pub(crate) range: Range<usize>,
    pub(crate) text: String,
}

pub(crate) fn parser_options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

pub(crate) fn parse_outline(text: &str) -> MarkdownOutline {
    let mut walk = MarkdownOutlineBuilder {
        text,
        out: MarkdownOutline::default(),
        depth: 0,
        lists: Vec::new(),
        heading: None,
        in_head: false,
    };
    for (event, range) in Parser::new_ext(text, parser_options()).into_offset_iter() {
        walk.handle_event(event, range);
    }
    walk.out
}

struct MarkdownOutlineBuilder<'a> {
    text: &'a str,
    out: MarkdownOutline,
    /// Number of quotes, lists and list items that are currently open.
    depth: usize,
    /// Number of the next item in each open list; `None` for bullet lists.
    lists: Vec<Option<u64>>,
    heading: Option<String>,
    in_head: bool,
}

impl MarkdownOutlineBuilder<'_> {
    fn handle_event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start_tag(tag, range),
            Event::End(tag) => self.end_tag(tag, range),
            Event::Text(text) => {
                self.append_text(&text);
                if let Some(block) = self.out.code_blocks.last_mut()
                    && block.range.start <= range.start
                    && range.end <= block.range.end
                {
                    block.text.push_str(&text);
                }
            }
            Event::Code(text) => {
                self.append_text(&text);
                self.out.code_spans.push(CodeSpan { range, text: text.into_string() });
            }
            Event::SoftBreak | Event::HardBreak => self.append_text(" "),
            Event::TaskListMarker(done) => {
                if self.lists.len() == 1
                    && let Some(item) = self.out.items.last_mut()
                {
                    item.checked = Some(done);
                }
            }
            _ => {}
        }
    }

    /// Appends text to the current heading, or to the outermost list item.
    fn append_text(&mut self, text: &str) {
        if let Some(heading) = &mut self.heading {
            heading.push_str(text);
        } else if self.lists.len() == 1
            && self.depth == 2
            && let Some(item) = self.out.items.last_mut()
        {
            item.text.push_str(text);
        }
    }

    fn start_tag(&mut self, tag: Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Heading { .. } if self.depth == 0 => self.heading = Some(String::new()),
            Tag::CodeBlock(kind) => {
                let tag = match &kind {
                    CodeBlockKind::Fenced(info) => info.split([' ', ',', '{']).next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                let tag = tag.to_ascii_lowercase();
                self.out.code_blocks.push(CodeBlock { range, tag, text: String::new() });
            }
            Tag::BlockQuote(_) | Tag::FootnoteDefinition(_) => self.depth += 1,
            Tag::List(start) => {
                self.depth += 1;
                self.lists.push(start);
            }
            Tag::Item => {
                self.depth += 1;
                let number = self.lists.last_mut().and_then(|next| {
                    let number = *next;
                    *next = next.and_then(|n| n.checked_add(1));
                    number
                });
                if self.depth == 2 && self.lists.len() == 1 {
                    self.out.items.push(MarkdownListItem {
                        range,
                        number,
                        checked: None,
                        text: String::new(),
                    });
                }
            }
            Tag::Table(_) if self.depth == 0 => {
                self.out.tables.push(MarkdownTable { range, ..MarkdownTable::default() })
            }
            Tag::TableHead => self.in_head = true,
            Tag::TableRow if self.depth == 0 => {
                if let Some(table) = self.out.tables.last_mut() {
                    table.rows.push(MarkdownTableRow { range, cells: Vec::new() });
                }
            }
            Tag::TableCell if self.depth == 0 => self.add_cell(&range),
            _ => {}
        }
    }

    fn add_cell(&mut self, range: &Range<usize>) {
        let Some(table) = self.out.tables.last_mut() else { return };
        let raw = self.text[range.clone()].trim().trim_matches('|').trim().replace("\\|", "|");
        if self.in_head {
            table.header.push(raw);
        } else if let Some(row) = table.rows.last_mut() {
            row.cells.push(raw);
        }
    }

    fn end_tag(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Heading(level) => {
                if let Some(text) = self.heading.take() {
                    let text = text.trim().to_owned();
                    self.out.headings.push(MarkdownHeading { level: level as usize, text, range });
                }
            }
            TagEnd::BlockQuote(_) | TagEnd::FootnoteDefinition | TagEnd::Item => {
                self.depth = self.depth.saturating_sub(1);
            }
            TagEnd::List(_) => {
                self.depth = self.depth.saturating_sub(1);
                self.lists.pop();
            }
            TagEnd::TableHead => self.in_head = false,
            _ => {}
        }
    }
}
