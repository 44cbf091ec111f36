//! Shortens a Markdown text by the rank of its sections, not by their position.
//!
//! All sections of the highest rank are cut before any section of the next rank. Sections of the same rank share the
//! remaining bytes. In these sections the longest blocks are cut first, so that a log of a thousand lines does not
//! displace the sentence below it. The result is valid Markdown: headings stay, code blocks are closed, tables keep
//! their header and whole rows, lists keep whole items. A note replaces each omitted part.

use std::{cmp::Ordering, ops::Range};

use pulldown_cmark::{Event, Parser, Tag};

use super::markdown;

/// Rank of a section. Sections with the highest rank are cut first.
pub type SectionRank = u8;

/// Rank of an unknown section.
pub const DEFAULT_RANK: SectionRank = 5;

/// Omitted part of one section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionCut {
    /// Heading of the section; empty for the text above the first heading.
    pub section: String,
    pub lines: usize,
    pub bytes: usize,
}

/// A shortened text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShortenedText {
    pub text: String,
    /// Cuts in text order.
    pub cuts: Vec<SectionCut>,
}

/// Maximum length of a line that is kept or dropped as a whole, in bytes. A longer line may be cut between words.
const LINE_BYTES: usize = 1000;

/// Number of bytes at the end of an unclosed code block that are treated as prose; see [`unclosed_tail`].
const TAIL_BYTES: usize = 4_000;

/// Maximum number of characters of a heading that a note quotes.
const QUOTED_HEADING_CHARS: usize = 40;

/// Shortens the text to at most `room` bytes. `rank` maps a heading to the rank of its section. A section with an
/// unknown heading has the rank of its parent section, or [`DEFAULT_RANK`] if it has no parent. The text above the
/// first heading gets the rank that `rank` returns for an empty title.
pub fn shorten(text: &str, rank: &dyn Fn(&str) -> Option<SectionRank>, room: usize) -> ShortenedText {
    if text.len() <= room {
        return ShortenedText { text: text.to_owned(), cuts: Vec::new() };
    }
    let sections = split_sections(text, rank);
    let mut ranks: Vec<SectionRank> = sections.iter().map(|section| section.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for cut_first in ranks.into_iter().rev() {
        // Less important sections keep their heading and a note. If that does not fit, they are dropped.
        for less_needed in [Some(0), None] {
            let at_level = |level: usize| {
                render_sections(text, &sections, |section| match section.rank.cmp(&cut_first) {
                    Ordering::Greater => less_needed,
                    Ordering::Equal => Some(level),
                    Ordering::Less => Some(usize::MAX),
                })
            };
            if at_level(0).text.len() <= room {
                return fullest_fit(room, at_level);
            }
        }
    }
    keep_headings_only(text, &sections, room)
}

/// Returns the result of `at_level` for the highest level whose result fits into `room` bytes. The caller has checked
/// that level 0 fits.
fn fullest_fit(room: usize, at_level: impl Fn(usize) -> ShortenedText) -> ShortenedText {
    let (mut fits, mut beyond) = (0, room + 1);
    while beyond - fits > 1 {
        let middle = fits.midpoint(beyond);
        if at_level(middle).text.len() <= room { fits = middle } else { beyond = middle }
    }
    at_level(fits)
}

/// Returns the rank of an issue's section by its title. The text above the first heading usually states the request, so
/// it is cut late. A log pasted there is a long block and is therefore still cut first.
pub fn issue_section_rank(title: &str) -> Option<SectionRank> {
    const WANTED: &[&str] = &[
        "accept", "criteri", "expected", "require", "goal", "want", "behavio", "propos", "problem", "must",
        "done", "solution", "summary", "describ", "descript", "feature", "task",
    ];
    const BESIDE: &[&str] = &[
        "log ",
        "logs ",
        "output",
        "trace",
        "stack",
        "environment",
        "version",
        "screenshot",
        "additional",
        "context ",
        "checklist",
        "contribut",
        "related",
        "reference",
        "appendix",
    ];
    match () {
        () if title.is_empty() || has_word_beginning(title, WANTED) => Some(1),
        () if has_word_beginning(title, BESIDE) => Some(8),
        () => None,
    }
}

/// Returns whether a word of the title starts with one of `beginnings`. A beginning that ends with a blank must match
/// whole words.
pub fn has_word_beginning(title: &str, beginnings: &[&str]) -> bool {
    let lower = title.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let plain: String = words.flat_map(|word| [" ", word]).chain([" "]).collect();
    beginnings.iter().any(|beginning| plain.contains(&format!(" {beginning}")))
}

struct RankedSection {
    /// Heading of the section; empty for the text above the first heading.
    title: String,
    rank: SectionRank,
    heading: Range<usize>,
    blocks: Vec<SectionBlock>,
}

impl RankedSection {
    fn end(&self) -> usize {
        self.blocks.last().map_or(self.heading.end, |block| block.range.end)
    }

    fn is_empty(&self) -> bool {
        self.end() == self.heading.start
    }

    /// Returns the [`SectionCut`] for omitting this section from `from` to its end; `None` if that part has no text.
    fn cut_from(&self, text: &str, from: usize) -> Option<SectionCut> {
        let missing = &text[from..self.end()];
        let lines = missing.trim().lines().count();
        (lines > 0).then(|| SectionCut { section: self.title.clone(), lines, bytes: missing.len() })
    }
}

/// A paragraph, list or table with the blank lines below it.
struct SectionBlock {
    kind: BlockKind,
    range: Range<usize>,
    /// Offsets where the block may be cut, in order. If the list is empty, the block is kept or dropped as a whole.
    ends: Vec<usize>,
    /// Text that closes the block after a cut.
    close: String,
}

fn split_sections(text: &str, rank: &dyn Fn(&str) -> Option<SectionRank>) -> Vec<RankedSection> {
    let above = rank("").unwrap_or(DEFAULT_RANK);
    let mut sections =
        vec![RankedSection { title: String::new(), rank: above, heading: 0..0, blocks: Vec::new() }];
    // Open headings, each with its level and rank.
    let mut parents: Vec<(usize, SectionRank)> = Vec::new();
    let mut outline = markdown::parse_outline(text).headings.into_iter();
    for (part, range) in split_parts(text) {
        match part {
            MarkdownPart::Heading => {
                let Some(heading) = outline.next() else { continue };
                parents.retain(|(level, _)| *level < heading.level);
                let inherited = parents.last().map_or(DEFAULT_RANK, |(_, rank)| *rank);
                let rank = rank(&heading.text).unwrap_or(inherited);
                parents.push((heading.level, rank));
                sections.push(RankedSection {
                    title: heading.text,
                    rank,
                    heading: range,
                    blocks: Vec::new(),
                });
            }
            MarkdownPart::Block { kind, ends, close } => {
                let section = sections.last_mut().expect("the first section begins with the text");
                section.blocks.push(SectionBlock { kind, range, ends, close });
            }
        }
    }
    sections
}

enum MarkdownPart {
    Heading,
    Block { kind: BlockKind, ends: Vec<usize>, close: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Prose,
    Code,
    List,
    Table,
    Other,
}

impl MarkdownPart {
    fn uncuttable(kind: BlockKind) -> Self {
        Self::Block { kind, ends: Vec::new(), close: String::new() }
    }
}

/// Splits a text into its top-level parts. Each part ends where the next one starts, so the parts cover the whole text.
fn split_parts(text: &str) -> Vec<(MarkdownPart, Range<usize>)> {
    let mut parts: Vec<(MarkdownPart, Range<usize>)> = Vec::new();
    let mut depth = 0_usize;
    for (event, range) in Parser::new_ext(text, markdown::parser_options()).into_offset_iter() {
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    let tail = unclosed_tail(&tag, text, &range);
                    parts.push((
                        classify_part(&tag, text, &(range.start..tail.unwrap_or(range.end))),
                        range.clone(),
                    ));
                    if let Some(tail) = tail {
                        let ends = prose_ends(&text[tail..range.end], tail);
                        let block =
                            MarkdownPart::Block { kind: BlockKind::Prose, ends, close: String::new() };
                        parts.push((block, tail..range.end));
                    }
                } else if depth == 1
                    && matches!(tag, Tag::Item | Tag::TableRow)
                    && let Some((MarkdownPart::Block { ends, .. }, _)) = parts.last_mut()
                {
                    // The previous item or row ends here.
                    ends.push(line_start(text, range.start));
                }
                depth += 1;
            }
            Event::End(_) => depth = depth.saturating_sub(1),
            Event::Rule | Event::Html(_) if depth == 0 => {
                parts.push((MarkdownPart::uncuttable(BlockKind::Other), range));
            }
            _ => {}
        }
    }
    // Blank lines and link definitions between parts belong to the part above.
    if let Some((_, range)) = parts.first_mut() {
        range.start = 0;
    }
    let starts: Vec<usize> = parts.iter().skip(1).map(|(_, range)| line_start(text, range.start)).collect();
    for ((_, range), next) in parts.iter_mut().zip(starts.into_iter().chain([text.len()])) {
        range.end = next;
    }
    for at in 1..parts.len() {
        parts[at].1.start = parts[at - 1].1.end;
    }
    parts
}

fn classify_part(tag: &Tag<'_>, text: &str, range: &Range<usize>) -> MarkdownPart {
    let own = &text[range.clone()];
    let lines = || line_ends(own).map(|end| range.start + end);
    match tag {
        Tag::Heading { .. } => MarkdownPart::Heading,
        Tag::Paragraph => MarkdownPart::Block {
            kind: BlockKind::Prose,
            ends: prose_ends(own, range.start),
            close: String::new(),
        },
        Tag::CodeBlock(_) => match opening_fence(own) {
            // The opening fence alone is useless, and `close` writes the closing one.
            Some(fence) => {
                let last = own.trim_end().rfind('\n').map_or(0, |at| range.start + at + 1);
                let ends = lines().skip(1).filter(|end| *end <= last).collect();
                MarkdownPart::Block { kind: BlockKind::Code, ends, close: format!("{fence}\n") }
            }
            None => {
                MarkdownPart::Block { kind: BlockKind::Code, ends: lines().collect(), close: String::new() }
            }
        },
        // Items and rows add their ends later.
        Tag::List(_) => MarkdownPart::uncuttable(BlockKind::List),
        Tag::Table(_) => MarkdownPart::uncuttable(BlockKind::Table),
        _ => MarkdownPart::uncuttable(BlockKind::Other),
    }
}

/// Returns the byte offset at which the last lines of a long, unclosed fenced block start. If an issue contains a
/// pasted log in such a block, the text after the log is parsed as code too. That text may contain the request itself,
/// so the last lines become a separate prose block.
fn unclosed_tail(tag: &Tag<'_>, text: &str, range: &Range<usize>) -> Option<usize> {
    let own = text[range.clone()].trim_end();
    let fence = opening_fence(own).filter(|_| matches!(tag, Tag::CodeBlock(_)))?;
    let last = own.rsplit('\n').next().unwrap_or_default().trim();
    let closed = last.starts_with(fence) && last.bytes().all(|b| fence.as_bytes()[0] == b);
    let most = (own.len() > 2 * TAIL_BYTES && !closed).then(|| range.start + own.len() - TAIL_BYTES)?;
    line_ends(&text[..range.end]).find(|end| *end >= most && *end < range.start + own.len())
}

fn opening_fence(block: &str) -> Option<&str> {
    let mark = block.bytes().next().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let length = block.bytes().take_while(|b| *b == mark).count();
    (length >= 3).then(|| &block[..length])
}

/// Returns the offset after each line break.
fn line_ends(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices('\n').map(|(at, _)| at + 1)
}

/// Returns the offsets where prose may be cut: after a line, and before a word in a very long line.
fn prose_ends(text: &str, offset: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.len() > LINE_BYTES {
            let mut last = 0;
            for (gap, c) in line.char_indices() {
                // Text without blanks, such as Chinese, may be cut anywhere.
                if gap - last >= LINE_BYTES / 10 && (c == ' ' || gap - last >= LINE_BYTES) {
                    ends.push(offset + at + gap);
                    last = gap;
                }
            }
        }
        at += line.len();
        ends.push(offset + at);
    }
    ends
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |before| before + 1)
}

/// Renders the text. Each block is cut to at most the number of bytes that `level` returns for its section. Sections
/// for which `level` returns `None` are dropped.
fn render_sections(
    text: &str,
    sections: &[RankedSection],
    level: impl Fn(&RankedSection) -> Option<usize>,
) -> ShortenedText {
    let mut out = ShortenedText::default();
    let mut gone = 0;
    let mut after_gone = false;
    for section in sections {
        let Some(level) = level(section) else {
            gone += usize::from(!section.is_empty());
            after_gone = true;
            out.cuts.extend(section.cut_from(text, section.heading.start));
            continue;
        };
        if std::mem::take(&mut after_gone) {
            ensure_blank_line(&mut out.text);
        }
        out.text.push_str(&text[section.heading.clone()]);
        let mut gap = OmittedLines::default();
        let mut cut = SectionCut { section: section.title.clone(), lines: 0, bytes: 0 };
        for block in &section.blocks {
            let (shown, end) = block.truncate_to(text, level);
            if !shown.is_empty() {
                gap.write_note(&mut out.text, &section.title);
                out.text.push_str(&shown);
                if end < block.range.end {
                    ensure_blank_line(&mut out.text);
                }
            }
            let missing = &text[end..block.range.end];
            if !missing.trim().is_empty() {
                let lines = missing.trim_end().lines().count();
                gap.lines += lines;
                cut.lines += lines;
                cut.bytes += missing.len();
            }
        }
        gap.write_note(&mut out.text, &section.title);
        if cut.lines > 0 {
            out.cuts.push(cut);
        }
    }
    if gone > 0 {
        ensure_blank_line(&mut out.text);
        out.text
            .push_str(&format!("[… {gone} {} left out …]\n", if gone == 1 { "section" } else { "sections" }));
    }
    out
}

/// Adds a blank line, so that the next text does not become part of a table, list or heading.
fn ensure_blank_line(out: &mut String) {
    if !out.is_empty() && !out.ends_with("\n\n") {
        out.push_str(if out.ends_with('\n') { "\n" } else { "\n\n" });
    }
}

/// Lines omitted since the last shown block.
#[derive(Default)]
struct OmittedLines {
    lines: usize,
}

impl OmittedLines {
    fn write_note(&mut self, out: &mut String, title: &str) {
        if self.lines == 0 {
            return;
        }
        ensure_blank_line(out);
        let lines = if self.lines == 1 { "line" } else { "lines" };
        out.push_str(&format!("[… {} {lines}{} left out …]\n\n", self.lines, section_reference(title)));
        self.lines = 0;
    }
}

/// Returns ` of §5` for a numbered heading, and ` of “Its words”` for other headings.
fn section_reference(title: &str) -> String {
    let number = title.split_whitespace().next().unwrap_or("").trim_end_matches('.');
    if number.is_empty() {
        return String::new();
    }
    if number.len() <= 8 && number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return format!(" of §{number}");
    }
    // Markup in a heading must not take effect in our note.
    let plain: String = title.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(" of “{}”", super::truncate(&plain, QUOTED_HEADING_CHARS))
}

impl SectionBlock {
    /// Returns the block cut to at most `level` bytes, and the offset of the cut. The returned text is empty if the
    /// block cannot be cut within `level` bytes.
    fn truncate_to(&self, text: &str, level: usize) -> (String, usize) {
        let Range { start, end } = self.range;
        if end - start <= level {
            return (text[start..end].to_owned(), end);
        }
        let fitting = self.ends.partition_point(|at| *at - start <= level);
        let nothing = (String::new(), start);
        let Some(&cut) = self.ends[..fitting].last().filter(|cut| **cut > start) else { return nothing };
        let mut shown = format!("{}{}", text[start..cut].trim_end(), "\n");
        shown.push_str(&self.close);
        // A cut block may parse as a different kind, such as half a table as prose.
        match split_parts(&shown).as_slice() {
            [(MarkdownPart::Block { kind, .. }, _)] if *kind == self.kind => (shown, cut),
            _ => nothing,
        }
    }
}

/// Keeps only as many headings as fit, the most important first. This is used if all headings with their notes exceed
/// `room` bytes.
fn keep_headings_only(text: &str, sections: &[RankedSection], room: usize) -> ShortenedText {
    let note = "[… the rest is left out …]\n";
    let mut left = room.saturating_sub(note.len());
    let mut order: Vec<usize> = (0..sections.len()).collect();
    order.sort_by_key(|at| (sections[*at].rank, *at));
    let mut shown = vec![false; sections.len()];
    for at in order {
        let length = sections[at].heading.len() + 1;
        if length > left {
            break;
        }
        shown[at] = true;
        left -= length;
    }
    let mut out: String = sections
        .iter()
        .zip(&shown)
        .filter(|(section, shown)| **shown && !section.heading.is_empty())
        .map(|(section, _)| format!("{}\n", text[section.heading.clone()].trim_end()))
        .collect();
    if out.len() + note.len() <= room {
        out.push_str(note);
    }
    let cuts = sections.iter().zip(shown).filter_map(|(section, shown)| {
        section.cut_from(text, if shown { section.heading.end } else { section.heading.start })
    });
    ShortenedText { text: out, cuts: cuts.collect() }
}

#[cfg(test)]
mod tests;
