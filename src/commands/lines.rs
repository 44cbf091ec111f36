//! Finds the lines of plain Markdown prose that start with a given character, such as `/` or `@`.

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Returns the byte offset of `sign` on each line that starts with this character, in order. Searches only the lines of
/// top-level paragraphs.
pub(super) fn lines_opening_with(sign: char, text: &str) -> Vec<usize> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_FOOTNOTES;
    let mut out = Vec::new();
    let mut walk = LineScanner::default();
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Paragraph) if walk.depth == 0 && walk.folds == 0 => {
                walk.paragraph = Some(range)
            }
            Event::End(TagEnd::Paragraph) => {
                if let Some(paragraph) = walk.paragraph.take() {
                    out.extend(line_openings(sign, text, paragraph, &walk.inside));
                }
                walk.inside.clear();
            }
            Event::Start(
                Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. },
            )
            | Event::Code(_) => walk.inside.push(range),
            Event::InlineHtml(html) => {
                walk.track_html(&html);
                walk.inside.push(range);
            }
            Event::Html(html) => walk.track_html(&html),
            Event::Start(Tag::BlockQuote(_) | Tag::List(_) | Tag::FootnoteDefinition(_) | Tag::Table(_)) => {
                walk.depth += 1
            }
            Event::End(
                TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::FootnoteDefinition | TagEnd::Table,
            ) => walk.depth -= 1,
            _ => {}
        }
    }
    out
}

#[derive(Default)]
struct LineScanner {
    /// Number of block quotes, lists, tables and footnotes that are currently open.
    depth: usize,
    /// Number of currently open HTML elements that fold or quote their content.
    folds: usize,
    paragraph: Option<Range<usize>>,
    /// Spans of the paragraph that are not plain text: code, links, emphasis and HTML.
    inside: Vec<Range<usize>>,
}

impl LineScanner {
    fn track_html(&mut self, html: &str) {
        let html = html.to_ascii_lowercase();
        for element in ["details", "blockquote", "pre", "code"] {
            self.folds += html.matches(&format!("<{element}")).count();
            self.folds = self.folds.saturating_sub(html.matches(&format!("</{element}")).count());
        }
    }
}

fn line_openings<'a>(
    sign: char,
    text: &'a str,
    paragraph: Range<usize>,
    inside: &'a [Range<usize>],
) -> impl Iterator<Item = usize> + 'a {
    let mut at = paragraph.start;
    text[paragraph].split_inclusive('\n').filter_map(move |line| {
        let start = at + (line.len() - line.trim_start_matches([' ', '\t']).len());
        at += line.len();
        let plain = !inside.iter().any(|range| range.contains(&start));
        (plain && text[start..].starts_with(sign)).then_some(start)
    })
}
