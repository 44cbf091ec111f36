//! Extracts the text of an issue or comment that people see on GitHub, so that models see the same text.
//!
//! An issue can contain text that no reader sees: HTML comments, link titles, invisible characters, unused link
//! definitions. Without this module, models would read all of this text. We parse the text with comrak, a port of
//! GitHub's Markdown parser, remove hidden nodes from the tree, and render the tree again. A text without hidden parts
//! stays unchanged. In a document written by our models, hidden text is a mistake, which is reported with its line
//! (`hidden_lines`). The reason is that the document is committed and models read it later.
//!
//! A word is unseen if GitHub neither shows the word nor needs it as syntax. Examples are the name of a dropped tag,
//! the label of a link, and words after a fence. One or two short unseen words may stay, because they are too few for
//! an instruction. If there are more, all unseen words are removed. The label of a link may also repeat words of the
//! link's text or address, because the link shows these words.
//!
//! Text in a tag with `style` or `hidden` stays, because GitHub drops these attributes and shows the text.

use std::collections::{HashMap, HashSet};

use comrak::{
    Arena, Node, Options, format_commonmark,
    nodes::{NodeHtmlBlock, NodeValue},
    parse_document,
};
use pulldown_cmark::{Event, LinkType, Parser, Tag as Begins, TagEnd};
use serde::{Deserialize, Serialize};

use super::{drawings, is_invisible, markdown};

/// Maximum number of characters of removed text that an excerpt shows.
const EXCERPT_CHARS: usize = 80;

/// Maximum length of an unseen word that may stay, in bytes. At most [`MOST_UNSEEN_WORDS`] different unseen words may
/// stay.
pub(super) const SHORT_WORD_BYTES: usize = 16;
const MOST_UNSEEN_WORDS: usize = 2;

/// Layout attributes that a document may use, and their usual values.
const LAYOUT: &str = "align valign width height colspan rowspan start open type target left center right justify top middle \
    bottom baseline _blank controls";

/// HTML elements that GitHub keeps. Tags of other elements are dropped.
const ELEMENTS: &str = "h1 h2 h3 h4 h5 h6 h7 h8 br b i strong em a pre code img tt div ins del sup sub p picture ol ul table \
    thead tbody tfoot blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details caption figure \
    figcaption abbr bdo cite dfn mark small source span time wbr";

/// HTML elements whose text people do not see, or see only in another form.
const UNREAD_ELEMENTS: &str = "script style template noscript iframe noembed noframes title object svg audio video canvas datalist rp bdo";

/// Harmless words in angle brackets that occur in prose about code: types, placeholders, and elements whose tags GitHub
/// shows as text.
const TYPES: &str = "string str char bool boolean int integer uint float double long short byte bytes void any never object \
    number unknown null none self value error dyn box vec option result rc arc map set list u8 u16 u32 u64 u128 usize i8 i16 \
    i32 i64 i128 isize f32 f64 path pathbuf name file dir folder id url key type owner repo branch commit tag issue line user \
    host port version command args title textarea style script iframe video";

/// Attributes that may follow `rust` at the start of a code block.
const RUST_EXAMPLE_TAGS: &str = ",ignore ,no_run ,should_panic ,compile_fail";

/// The part of a text that models may see, with a list of the removed parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleText {
    pub text: String,
    /// Removed text, one entry per kind.
    pub hidden: Vec<HiddenText>,
}

/// Removed text of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenText {
    pub kind: HiddenTextKind,
    pub count: usize,
    /// Start of the first removed piece; empty if the piece has no visible characters.
    pub excerpt: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HiddenTextKind {
    /// An HTML comment (`<!-- … -->`) or other HTML that readers do not see.
    Comment,
    /// An HTML attribute that contains words.
    Attribute,
    /// Title of a link or an image, shown only when the mouse is over it.
    Title,
    /// Alternative text of an image.
    Description,
    /// Text too small to read.
    Tiny,
    /// Formulas with commands that are not known to be visible.
    Math,
    /// Characters of Unicode's tag block, which encode invisible letters.
    Tags,
    /// Characters that change the direction of the text after them.
    Direction,
    /// Other invisible characters.
    Invisible,
    /// Text that is not rendered: unused link definitions, words after a fence, lines that a diagram's drawing leaves
    /// out.
    Unshown,
}

impl HiddenTextKind {
    /// Returns the message that tells the drafter to remove text of this kind.
    pub(super) fn mistake_message(self) -> &'static str {
        match self {
            Self::Comment => "readers do not see this HTML comment or markup; remove it",
            Self::Attribute => {
                "readers do not see some words in this HTML tag; put it in backticks, or remove it"
            }
            Self::Title => "readers do not see the title of a link or an image; remove it",
            Self::Description => "readers do not see the description of this image; write it as text",
            Self::Tiny => "this text is too small to read; write it as plain text",
            Self::Math => "this formula may hide text; remove comments, colours, sizes and rare commands",
            Self::Tags | Self::Direction | Self::Invisible => {
                "there is an invisible character here; remove it"
            }
            Self::Unshown => {
                "there are words here that Markdown does not show, such as a link's definition that nothing refers to, a \
                 label that is not the link's text, words behind a fence, or a comment or a style in a diagram; take \
                 them out"
            }
        }
    }
}

/// Merges lists of removed text into one entry per kind and adds up the counts.
pub fn merge_hidden<'a>(lists: impl IntoIterator<Item = &'a HiddenText>) -> Vec<HiddenText> {
    let mut all: Vec<HiddenText> = Vec::new();
    for row in lists {
        match all.iter_mut().find(|known| known.kind == row.kind) {
            Some(known) => known.count += row.count,
            None => all.push(row.clone()),
        }
    }
    all
}

/// Returns the visible part of a Markdown text.
pub fn visible_text(text: &str) -> VisibleText {
    let read = FilteredText::from_text(text);
    VisibleText { hidden: hidden_rows(&read.taken), text: read.text }
}

/// Returns the visible part of a line that is not Markdown.
pub fn visible_line(text: &str) -> VisibleText {
    let mut walk = HiddenTextFilter::default();
    VisibleText { text: walk.remove_invisible(text), hidden: hidden_rows(&walk.taken) }
}

/// Returns the 1-based numbers of the lines with hidden text in a document written by our models, in order. Each line
/// comes with the kind of its hidden text.
pub(super) fn hidden_lines(text: &str) -> Vec<(usize, HiddenTextKind)> {
    let read = FilteredText::from_text(text);
    let taken = read.taken.iter().filter(|taken| taken.line > 0 && says_something(&hidden_row(taken)));
    let taken = taken.map(|taken| (taken.line, taken.kind));
    let mut lines: Vec<_> = read.document_mistakes.iter().copied().chain(taken).collect();
    lines.sort_by_key(|(line, _)| *line);
    lines.dedup_by_key(|(line, _)| *line);
    lines
}

/// A piece of removed text.
struct RemovedText {
    kind: HiddenTextKind,
    text: String,
    /// Line number, from 1; 0 if the text was removed before parsing.
    line: usize,
}

/// A text without its hidden parts, and the removed parts.
struct FilteredText {
    text: String,
    taken: Vec<RemovedText>,
    /// Mistakes that are reported only in a document written by our models, each with its line. They are unusual
    /// attributes of tags, and unused definitions. In an issue or comment, such parts are kept.
    document_mistakes: Vec<(usize, HiddenTextKind)>,
}

impl FilteredText {
    fn from_text(text: &str) -> Self {
        let (read, stayed) = Self::filter(text, true);
        if stayed > MOST_UNSEEN_WORDS { Self::filter(text, false).0 } else { read }
    }

    /// Filters the text. If `words_may_stay` is true, short unseen words are kept, and the returned number is the
    /// number of different words kept. Otherwise the number is 0.
    fn filter(text: &str, words_may_stay: bool) -> (Self, usize) {
        let mut walk = HiddenTextFilter { words_may_stay, ..HiddenTextFilter::default() };
        let text = walk.remove_invisible(text);
        let arena = Arena::new();
        let options = comrak_options();
        let root = parse_document(&arena, &text, &options);
        let nodes: Vec<_> = root.descendants().collect();
        nodes.iter().for_each(|&node| walk.note_node(node));
        for node in nodes {
            walk.visit_node(node);
        }
        walk.removed_nodes.iter().for_each(|node| node.detach());
        let mut shown = String::new();
        // Writing into a string does not fail.
        let _ = format_commonmark(root, &options, &mut shown);
        let (labels, unused) = walk.check_labels(&text);
        let known = walk.taken.iter().map(|taken| taken.text.as_str());
        let known = known.chain([walk.dropped.as_str(), labels.as_str(), shown.as_str()]);
        let source = decode_entities(&text);
        let lacking = missing_words(&source, known);
        let unshown = lacking.first().map(|(at, _)| RemovedText {
            kind: HiddenTextKind::Unshown,
            text: lacking.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(" "),
            line: line_number(&source, *at),
        });
        let as_it_was = !walk.changed && unshown.is_none();
        walk.taken.extend(unshown);
        walk.document_mistakes
            .extend(unused.into_iter().map(|at| (line_number(&text, at), HiddenTextKind::Unshown)));
        let text = if as_it_was { text.clone() } else { shown };
        (Self { text, taken: walk.taken, document_mistakes: walk.document_mistakes }, walk.kept_words.len())
    }
}

fn line_number(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

pub(super) fn is_listed(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|known| known == word)
}

fn is_address(url: &str) -> bool {
    !url.contains(|c: char| c.is_whitespace() || "\"<>".contains(c))
}

/// Replaces each HTML entity by the result of `by`, which receives the entity and the character that the entity stands
/// for.
fn replace_entities(text: &str, mut by: impl FnMut(&str, &str) -> String) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('&') {
        let (before, from) = rest.split_at(at);
        out += before;
        let end = from[1..].find(|c: char| !c.is_ascii_alphanumeric() && c != '#');
        let end = end.map_or(from.len(), |end| end + 1);
        let entity = if end < 40 && from[end..].starts_with(';') { &from[..=end] } else { "&" };
        let events = Some(entity).filter(|entity| entity.len() > 1).into_iter().flat_map(Parser::new);
        let texts = events
            .map(|event| if let Event::Text(text) = event { text.into_string() } else { String::new() });
        let sign: String = texts.collect();
        out += &if sign.is_empty() || sign == entity { entity.to_owned() } else { by(entity, &sign) };
        rest = &from[entity.len()..];
    }
    out + rest
}

fn decode_entities(text: &str) -> String {
    replace_entities(text, |_, sign| sign.replace(is_invisible, ""))
}

/// Returns options for all Markdown extensions that GitHub uses in issues.
fn comrak_options() -> Options<'static> {
    let mut options = Options::default();
    let extension = &mut options.extension;
    (extension.table, extension.strikethrough, extension.tasklist) = (true, true, true);
    (extension.footnotes, extension.alerts, extension.autolink) = (true, true, true);
    (extension.math_dollars, extension.math_code) = (true, true);
    options
}

/// Returns the words that occur more often in `text` than in `others` together, with their offsets.
fn missing_words<'t, 'o>(text: &'t str, others: impl Iterator<Item = &'o str>) -> Vec<(usize, &'t str)> {
    let mut there: HashMap<String, usize> = HashMap::new();
    for other in others {
        for (_, word) in words(&decode_entities(other)) {
            *there.entry(word.to_lowercase()).or_default() += 1;
        }
    }
    let mut lacking = Vec::new();
    for (at, word) in words(text) {
        // The renderer renumbers lists and footnotes.
        let of_list = is_number(word) && text[at + word.len()..].starts_with(['.', ')', ']']);
        match there.get_mut(&word.to_lowercase()) {
            Some(left) if *left > 0 => *left -= 1,
            _ if of_list => {}
            _ => lacking.push((at, word)),
        }
    }
    lacking
}

/// Returns whether the text is at most one short word. Returns false for scripts without upper and lower case, because
/// in these scripts one word may be a sentence.
fn is_short_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_digit() || c.is_lowercase() || c.is_uppercase();
    text.len() <= SHORT_WORD_BYTES
        && word_parts(text).count() <= MOST_UNSEEN_WORDS
        && text.chars().all(is_plain)
}

/// Returns the words of a text. Camel case is split, so that `HashMap` yields two words.
pub(super) fn word_parts(text: &str) -> impl Iterator<Item = &str> {
    words(text).flat_map(|(_, word)| {
        let pairs = word.char_indices().zip(word.char_indices().skip(1));
        let humps =
            pairs.filter(|((_, a), (_, b))| a.is_lowercase() && b.is_uppercase()).map(|(_, (at, _))| at);
        let mut from = 0;
        humps.chain([word.len()]).map(move |to| &word[std::mem::replace(&mut from, to)..to])
    })
}

/// Returns the words of `text` that do not occur in `other`.
pub(super) fn words_beyond(text: &str, other: &str) -> String {
    let known: HashSet<String> = word_parts(other).map(str::to_lowercase).collect();
    let extra = words(text).map(|(_, word)| word);
    let extra = extra.filter(|word| !word_parts(word).all(|part| known.contains(&part.to_lowercase())));
    extra.collect::<Vec<_>>().join(" ")
}

fn is_number(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_digit())
}

pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - start, word))
}

#[derive(Default)]
struct HiddenTextFilter<'a> {
    taken: Vec<RemovedText>,
    /// Removed text that is not reported, because it is too short for an instruction.
    dropped: String,
    /// See [`FilteredText::document_mistakes`].
    document_mistakes: Vec<(usize, HiddenTextKind)>,
    /// Current line; stored in [`RemovedText::line`].
    line: usize,
    removed_nodes: Vec<Node<'a>>,
    changed: bool,
    words_may_stay: bool,
    /// Unseen words that were kept, in lowercase.
    kept_words: HashSet<String>,
    /// Capitalized words in code, which may also be types in angle brackets.
    names: HashSet<String>,
    /// Number of the last line that contains an end tag, by element name.
    ends: HashMap<String, usize>,
    /// Text that ends the comment, element or quoted value that is currently open. GitHub shows nothing before this
    /// text, no matter how Markdown parses it.
    hidden_until: Option<String>,
    /// Shrink level of the open elements in HTML blocks. `inline_shrink` is the shrink level in the current paragraph.
    block_shrink: usize,
    inline_shrink: usize,
    footnotes: u32,
}

/// Minimum shrink level at which text is too small to read.
const TINY_LEVEL: usize = 4;

impl<'a> HiddenTextFilter<'a> {
    fn record_removed(&mut self, kind: HiddenTextKind, text: &str) {
        self.changed = true;
        self.taken.push(RemovedText { kind, text: text.to_owned(), line: self.line });
    }

    /// Returns the text without invisible characters.
    fn remove_invisible(&mut self, text: &str) -> String {
        let (mut out, mut tags) = (String::with_capacity(text.len()), String::new());
        let mut chars = text.chars().peekable();
        let mut before = None;
        while let Some(c) = chars.next() {
            let foreign = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_invisible(c));
            let kind = match c {
                // Part of an emoji, or a joiner between letters of another script.
                '\u{FE0F}' if before.is_some_and(|c| c != '\u{FE0F}') => None,
                '\u{200C}' | '\u{200D}' if foreign(before) && foreign(chars.peek().copied()) => None,
                '\u{E0020}'..='\u{E007E}' => {
                    tags.extend(char::from_u32(u32::from(c) - 0xE0000));
                    before = None;
                    continue;
                }
                '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {
                    Some(HiddenTextKind::Direction)
                }
                '\u{FE0F}' => Some(HiddenTextKind::Invisible),
                c if is_invisible(c) => Some(HiddenTextKind::Invisible),
                c if c.is_control() && !matches!(c, '\n' | '\r' | '\t') => Some(HiddenTextKind::Invisible),
                _ => None,
            };
            before = kind.is_none().then_some(c);
            match kind {
                Some(kind) => self.taken.push(RemovedText { kind, text: String::new(), line: self.line }),
                None => out.push(c),
            }
        }
        if !tags.is_empty() {
            self.taken.push(RemovedText { kind: HiddenTextKind::Tags, text: tags, line: self.line });
        }
        out
    }

    /// Records the names in a code node, and the lines with end tags in an HTML node.
    fn note_node(&mut self, node: Node<'a>) {
        let data = node.data();
        match &data.value {
            NodeValue::HtmlInline(html) | NodeValue::HtmlBlock(NodeHtmlBlock { literal: html, .. }) => {
                for (at, _) in html.match_indices("</") {
                    let name = html[at + 2..].chars().take_while(char::is_ascii_alphanumeric);
                    let last = self.ends.entry(name.collect::<String>().to_ascii_lowercase()).or_default();
                    *last = data.sourcepos.end.line.max(*last);
                }
            }
            NodeValue::Code(code) => self.note_names(&code.literal),
            NodeValue::CodeBlock(code) => self.note_names(&code.literal),
            _ => {}
        }
    }

    fn note_names(&mut self, code: &str) {
        let names = words(code).map(|(_, word)| word).filter(|word| word.starts_with(char::is_uppercase));
        self.names.extend(names.map(str::to_owned));
    }

    /// Returns whether the text may stay because it is too short for an instruction. Apart from numbers, it contains
    /// nothing, one letter, or (if `words_may_stay` is true) one short word.
    fn may_stay(&mut self, text: &str) -> bool {
        let mut rest = words(text).map(|(_, word)| word).filter(|word| !is_number(word));
        match (rest.next(), rest.next()) {
            (None, _) => true,
            (Some(letter), None) if letter.len() == 1 => true,
            (Some(word), None) if self.words_may_stay && is_short_word(word) => {
                self.kept_words.extend(word_parts(word).map(str::to_lowercase));
                true
            }
            _ => false,
        }
    }

    /// Records unseen text that is removed. The text is reported unless it is too short for an instruction.
    fn drop_unseen(&mut self, kind: HiddenTextKind, text: &str) {
        if self.may_stay(text) {
            self.dropped += &format!(" {text}");
        } else {
            self.record_removed(kind, text);
        }
    }

    /// Checks the labels of links. Returns the unseen labels that may stay, because they repeat words of their link or
    /// are short. Also returns the offsets of unused definitions.
    fn check_labels(&mut self, text: &str) -> (String, Vec<usize>) {
        let parser = Parser::new_ext(text, markdown::parser_options());
        let defined = parser.reference_definitions().iter();
        let defined: Vec<_> = defined.map(|(label, of)| (label.to_owned(), of.span.start)).collect();
        // Maps each used label to its index in `taken` if it was removed.
        let (mut used, mut unseen) = (HashMap::<String, Option<usize>>::new(), String::new());
        // Open links, with their text and address.
        let mut open = Vec::new();
        for (event, range) in parser.into_offset_iter() {
            match event {
                Event::Start(
                    Begins::Link { link_type, dest_url, id, .. }
                    | Begins::Image { link_type, dest_url, id, .. },
                ) => open.push((link_type, id, dest_url.into_string())),
                Event::Text(text) | Event::Code(text) => {
                    open.last_mut().into_iter().for_each(|(.., says)| *says += &format!(" {text}"));
                }
                Event::End(TagEnd::Link | TagEnd::Image) => {
                    let Some((link_type, id, says)) = open.pop() else { continue };
                    if !matches!(link_type, LinkType::Reference | LinkType::Collapsed | LinkType::Shortcut) {
                        continue;
                    }
                    let place = used.entry(id.to_lowercase()).or_default();
                    if link_type == LinkType::Reference && self.may_stay(&words_beyond(&id, &says)) {
                        unseen.extend([&*id, " "]);
                    } else if link_type == LinkType::Reference {
                        *place = Some(self.taken.len());
                        self.line = line_number(text, range.start);
                        self.record_removed(HiddenTextKind::Unshown, &id);
                    }
                }
                _ => {}
            }
        }
        let mut unused = Vec::new();
        for (label, at) in defined {
            match used.get(&label.to_lowercase()) {
                Some(None) => unseen.extend([label.as_str(), " "]),
                Some(Some(place)) => self.taken[*place].text.extend([" ", &label]),
                None => unused.push(at),
            }
        }
        (unseen, unused)
    }

    fn visit_node(&mut self, node: Node<'a>) {
        // A generic type in prose, as in `Box<dyn Error>`, looks like a tag.
        let generic = node.previous_sibling().is_some_and(|before| match &before.data().value {
            NodeValue::Text(text) => text.ends_with(|c: char| c.is_alphanumeric() || c == '_'),
            _ => false,
        });
        let mut data = node.data_mut();
        self.line = data.sourcepos.start.line;
        let hides = match (&self.hidden_until, self.block_shrink + self.inline_shrink >= TINY_LEVEL) {
            (Some(_), _) => Some(HiddenTextKind::Comment),
            (None, true) => Some(HiddenTextKind::Tiny),
            (None, false) => None,
        };
        match &mut data.value {
            NodeValue::HtmlBlock(html) => {
                html.literal = self.filter_html(&html.literal, true, false);
                if html.literal.trim().is_empty() {
                    self.removed_nodes.push(node);
                }
            }
            NodeValue::HtmlInline(html) => {
                *html = self.filter_html(html, false, generic);
                if html.is_empty() {
                    self.removed_nodes.push(node);
                }
            }
            NodeValue::Text(text) => {
                let shown = self.remove_invisible(text);
                self.changed |= shown != **text;
                // GitHub treats this as a formula, and this parser does not.
                let mut parts = shown.split('$').skip(1).take(shown.matches('$').count().saturating_sub(1));
                let formula = parts.any(|part| part.trim() == part && drawings::formula_hides(part));
                *text = shown.into();
                let kind = hides.or(formula.then_some(HiddenTextKind::Math));
                let text = text.to_string();
                self.hide_node(kind, &text, node);
            }
            NodeValue::Code(code) => {
                let text = code.literal.clone();
                self.hide_node(hides, &text, node);
            }
            NodeValue::CodeBlock(code) => {
                let info = std::mem::take(&mut code.info);
                let (language, rest) = split_language(&info);
                let small = language.to_ascii_lowercase();
                if is_short_word(&language.replace(|c: char| !c.is_alphanumeric(), "")) {
                    language.clone_into(&mut code.info);
                } else {
                    self.record_removed(HiddenTextKind::Unshown, language);
                }
                if is_listed(RUST_EXAMPLE_TAGS, rest.trim()) || words(rest).all(|(_, word)| is_number(word)) {
                    self.dropped += rest;
                } else {
                    self.record_removed(HiddenTextKind::Unshown, rest);
                }
                self.changed |= code.info != info;
                let kind = match small.as_str() {
                    "math" if drawings::formula_hides(&code.literal) => Some(HiddenTextKind::Math),
                    // GitHub draws maps and 3D models without the labels in their source.
                    "geojson" | "topojson" | "stl" => Some(HiddenTextKind::Unshown),
                    _ => None,
                };
                let (kind, text) = (hides.or(kind), code.literal.clone());
                if kind.is_some() {
                    self.dropped += &format!(" {}", code.info);
                }
                self.hide_node(kind, &text, node);
                if small == "mermaid" && kind.is_none() {
                    code.literal = self.filter_diagram(&text);
                }
            }
            NodeValue::Math(math) => {
                let kind = hides.or(drawings::formula_hides(&math.literal).then_some(HiddenTextKind::Math));
                let text = math.literal.clone();
                self.hide_node(kind, &text, node);
            }
            NodeValue::Link(link) => {
                // An address that is also the link's text is rendered once.
                let own: String = node.descendants().skip(1).map(node_text).collect();
                if !own.is_empty() && link.url.ends_with(&own) {
                    self.dropped += &format!(" {}", link.url);
                }
                self.remove_title(&mut link.title);
                let unseen = node.first_child().is_none();
                if unseen || !is_address(&link.url) {
                    self.record_removed(HiddenTextKind::Unshown, &std::mem::take(&mut link.url));
                }
                if unseen {
                    self.removed_nodes.push(node);
                }
            }
            NodeValue::FootnoteReference(note) => self.filter_footnote(&mut note.name, note.ix),
            NodeValue::FootnoteDefinition(note) => {
                self.footnotes += 1;
                self.filter_footnote(&mut note.name, self.footnotes);
            }
            NodeValue::Image(image) => {
                self.remove_title(&mut image.title);
                let url = std::mem::take(&mut image.url);
                self.dropped += &format!(" {url}");
                self.changed = true;
                let alt: String = node.descendants().skip(1).map(node_text).collect();
                data.value = NodeValue::Text(self.replace_image(&alt, &url).into());
                self.removed_nodes.extend(node.children());
            }
            NodeValue::Paragraph | NodeValue::Heading(_) | NodeValue::TableCell => self.inline_shrink = 0,
            _ => {}
        }
    }

    fn hide_node(&mut self, kind: Option<HiddenTextKind>, text: &str, node: Node<'a>) {
        if let Some(kind) = kind {
            self.record_removed(kind, text);
            self.removed_nodes.push(node);
        }
    }

    fn remove_title(&mut self, title: &mut String) {
        if !title.is_empty() {
            self.record_removed(HiddenTextKind::Title, title);
            title.clear();
        }
    }

    /// Replaces a footnote's label if it has too many words, because GitHub shows only the footnote's number.
    fn filter_footnote(&mut self, label: &mut String, number: u32) {
        if !self.may_stay(label) {
            self.record_removed(HiddenTextKind::Unshown, label);
            *label = format!("n{number}");
        }
    }

    /// Returns the text that is shown instead of an image. The image's alternative text is removed, because people see
    /// it only if the image does not load.
    fn replace_image(&mut self, alt: &str, url: &str) -> String {
        let alt = self.remove_invisible(alt);
        if words_beyond(&alt, url).is_empty() || self.may_stay(&alt) {
            self.dropped += &format!(" {alt}");
        } else {
            self.record_removed(HiddenTextKind::Description, &alt);
        }
        "[image]".to_owned()
    }

    /// Returns a diagram without the lines that its drawing leaves out.
    fn filter_diagram(&mut self, source: &str) -> String {
        let mut out = String::new();
        for (line, hides) in drawings::diagram_lines(source) {
            self.line += 1;
            if hides {
                self.record_removed(HiddenTextKind::Unshown, line.trim());
            } else {
                out += line;
            }
        }
        out
    }

    /// Removes comments and hidden attributes from HTML.
    fn filter_html(&mut self, html: &str, block: bool, generic: bool) -> String {
        let (mut out, mut rest, small) = (String::new(), html, html.to_ascii_lowercase());
        let mut counted = 0;
        while !rest.is_empty() {
            let at = html.len() - rest.len();
            self.line += html[counted..at].matches('\n').count();
            counted = at;
            if let Some(end) = self.hidden_until.take() {
                let found = small[at..].find(&end);
                let (inside, after) = rest.split_at(found.unwrap_or(rest.len()));
                self.record_removed(HiddenTextKind::Comment, inside);
                // The text after a quoted value still belongs to its tag.
                let is_value = found.is_some() && (end == "\"" || end == "'");
                rest = after.strip_prefix(&end).filter(|_| !end.starts_with('<')).unwrap_or(after);
                self.hidden_until =
                    if is_value { Some(">".to_owned()) } else { Some(end).filter(|_| found.is_none()) };
                continue;
            }
            let (text, tag) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
            if self.block_shrink + self.inline_shrink >= TINY_LEVEL && !text.trim().is_empty() {
                self.record_removed(HiddenTextKind::Tiny, text);
            } else {
                out += &self.filter_html_text(text);
            }
            rest = match tag.strip_prefix("<!--") {
                Some(comment) => {
                    self.hidden_until = Some("-->".to_owned());
                    self.changed = true;
                    // `<!-->` is a whole comment.
                    if comment.starts_with('>') || comment.starts_with("->") { &tag[2..] } else { comment }
                }
                // A browser treats `</ x>` as a comment.
                None if tag.starts_with("<!") || tag.starts_with("<?") || is_bogus_end_tag(tag) => {
                    let (inside, after) = tag.split_at(tag.find('>').map_or(tag.len(), |end| end + 1));
                    self.record_removed(HiddenTextKind::Comment, &inside[2..]);
                    after
                }
                None => match HtmlTag::parse(tag) {
                    Some((read, after)) => {
                        out += &self.filter_tag(read, block, generic);
                        after
                    }
                    // An unclosed tag continues in the next node; an unclosed value continues to the next quotation
                    // mark.
                    None if tag[1.min(tag.len())..]
                        .trim_start_matches('/')
                        .starts_with(|c: char| c.is_ascii_alphabetic()) =>
                    {
                        self.record_removed(HiddenTextKind::Attribute, tag);
                        let quote =
                            ['"', '\''].into_iter().find(|quote| tag.matches(*quote).count() % 2 == 1);
                        self.hidden_until = quote.map(String::from);
                        ""
                    }
                    None => {
                        let (sign, after) = tag.split_at(tag.len().min(1));
                        out += sign;
                        after
                    }
                },
            };
        }
        out
    }

    /// Removes entities of invisible characters from the text between HTML tags.
    fn filter_html_text(&mut self, text: &str) -> String {
        replace_entities(text, |entity, sign| {
            let shown = self.remove_invisible(sign) == sign;
            self.changed |= !shown;
            if shown { entity.to_owned() } else { String::new() }
        })
    }

    fn filter_tag(&mut self, tag: HtmlTag<'_>, block: bool, generic: bool) -> String {
        let small = tag.name.to_ascii_lowercase();
        let depth = if block { &mut self.block_shrink } else { &mut self.inline_shrink };
        *depth = if tag.closes {
            depth.saturating_sub(shrink_level(&small))
        } else {
            *depth + shrink_level(&small)
        };
        if !tag.closes && self.is_unread(&tag, &small) {
            self.hidden_until = Some(format!("</{small}"));
        }
        let (mut kept, mut alt, mut source) = (String::new(), "", "");
        for (name, value) in tag.attributes {
            match name.to_ascii_lowercase().as_str() {
                "href" | "src" if small != "img" && is_address(&decode_entities(value)) => {
                    kept += &format!(" {name}=\"{value}\"");
                }
                "alt" if small == "img" => alt = value,
                "src" if small == "img" && !value.contains(char::is_whitespace) => {
                    source = value;
                    self.dropped += &format!(" {name} {value}")
                }
                layout => {
                    if !is_listed(LAYOUT, layout) {
                        self.document_mistakes.push((self.line, HiddenTextKind::Attribute));
                    }
                    self.dropped += &format!(" {name}");
                    if is_listed(LAYOUT, value) || is_number(value.trim_end_matches("px")) {
                        self.dropped += &format!(" {value}");
                    } else {
                        self.drop_unseen(HiddenTextKind::Attribute, value);
                    }
                    if words(name).nth(1).is_some() {
                        self.record_removed(HiddenTextKind::Attribute, name);
                    }
                }
            }
        }
        let names = &self.names;
        let says_nothing = |word: &str| {
            let code = generic && names.contains(word);
            code || is_listed(TYPES, &word.to_ascii_lowercase())
        };
        let (plain, wordy): (Vec<_>, Vec<_>) =
            tag.valueless.split_whitespace().partition(|word| is_listed(LAYOUT, word) || says_nothing(word));
        kept.extend(plain.iter().flat_map(|word| [" ", word]));
        let is_known = is_listed(ELEMENTS, &small) || says_nothing(tag.name);
        if !is_known && !generic {
            // Two such tags may already form a sentence.
            self.kept_words.insert(format!("<{small}>"));
        }
        self.drop_unseen(HiddenTextKind::Attribute, &wordy.join(" "));
        let stroke = if tag.closes { "/" } else { "" };
        let written = if small == "img" {
            self.dropped += " img alt";
            self.replace_image(alt, source)
        } else if is_known || self.may_stay(tag.name) {
            format!("<{stroke}{}{kept}>", tag.name)
        } else {
            self.record_removed(HiddenTextKind::Attribute, tag.name);
            self.dropped += &kept;
            String::new()
        };
        self.changed |= written != tag.source;
        written
    }

    /// Returns whether people cannot read the text between this tag and its end tag. Returns false if the end tag is
    /// missing, because the text then only mentions the element.
    fn is_unread(&self, tag: &HtmlTag<'_>, small: &str) -> bool {
        // A browser draws the content of `<pre lang="mermaid">`.
        let is_picture =
            small == "pre" && tag.attributes.iter().any(|(name, _)| name.eq_ignore_ascii_case("lang"));
        (is_picture || is_listed(UNREAD_ELEMENTS, small))
            && self.ends.get(small).is_some_and(|last| *last >= self.line)
    }
}

/// Splits the info string of a fence into the language and the rest.
fn split_language(info: &str) -> (&str, &str) {
    info.split_at(info.find([' ', '\t', ',', '{']).unwrap_or(info.len()))
}

/// Returns the number of levels by which an element shrinks its text.
fn shrink_level(element: &str) -> usize {
    match element {
        "sub" | "sup" | "small" | "rt" => 2,
        "code" | "kbd" | "samp" | "tt" | "pre" | "h6" => 1,
        _ => 0,
    }
}

fn hidden_rows(taken: &[RemovedText]) -> Vec<HiddenText> {
    merge_hidden(&taken.iter().map(hidden_row).filter(says_something).collect::<Vec<_>>())
}

fn hidden_row(taken: &RemovedText) -> HiddenText {
    let shown = taken.text.chars().filter(|c| !is_invisible(*c)).collect::<String>();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    HiddenText { kind: taken.kind, count: 1, excerpt: words.chars().take(EXCERPT_CHARS).collect() }
}

/// Returns whether the entry should be reported. An HTML comment without words is not reported, because it hides
/// nothing.
fn says_something(row: &HiddenText) -> bool {
    row.kind != HiddenTextKind::Comment || row.excerpt.contains(char::is_alphanumeric)
}

/// Returns whether the tag starts like an end tag but has no element name, so that browsers treat it as a comment.
fn is_bogus_end_tag(tag: &str) -> bool {
    tag.strip_prefix("</").is_some_and(|name| !name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn node_text(node: Node<'_>) -> String {
    match &node.data().value {
        NodeValue::Text(text) => text.to_string(),
        NodeValue::Code(code) => code.literal.clone(),
        NodeValue::SoftBreak | NodeValue::LineBreak => " ".to_owned(),
        _ => String::new(),
    }
}

struct HtmlTag<'t> {
    source: &'t str,
    name: &'t str,
    closes: bool,
    attributes: Vec<(&'t str, &'t str)>,
    valueless: String,
}

impl<'t> HtmlTag<'t> {
    /// Parses the tag at the start of the text. Returns the tag and the text after it.
    fn parse(text: &'t str) -> Option<(Self, &'t str)> {
        let inside = text.strip_prefix('<')?;
        let (closes, inside) = inside.strip_prefix('/').map_or((false, inside), |inside| (true, inside));
        if !inside.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return None;
        }
        let ends = |c: char| c.is_ascii_whitespace() || c == '/' || c == '>';
        let (name, mut rest) = inside.split_at(inside.find(ends)?);
        let (mut attributes, mut loose) = (Vec::new(), String::new());
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if let Some(after) = rest.strip_prefix('>') {
                let source = &text[..text.len() - after.len()];
                return Some((Self { source, name, closes, attributes, valueless: loose }, after));
            }
            let end = rest.find(|c: char| ends(c) || c == '=')?;
            // HTML treats a stray character as the start of a name.
            let (attribute, after) = rest.split_at(end.max(rest.chars().next()?.len_utf8()));
            rest = after;
            let Some(value) = after.trim_start().strip_prefix('=') else {
                loose += &format!("{attribute} ");
                continue;
            };
            let value = value.trim_start();
            let (value, after) = match value.chars().next()? {
                quote @ ('"' | '\'') => value[1..].split_once(quote)?,
                _ => value.split_at(value.find(|c: char| c.is_ascii_whitespace() || c == '>')?),
            };
            attributes.push((attribute, value));
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the visible text, and the kind, count and excerpt of each entry of removed text.
    fn visible_and_hidden(text: &str) -> (String, Vec<(HiddenTextKind, usize, String)>) {
        let VisibleText { text, hidden } = visible_text(text);
        (text, hidden.into_iter().map(|row| (row.kind, row.count, row.excerpt)).collect())
    }

    #[test]
    fn text_without_hidden_parts_is_unchanged() {
        for text in [
            "# A title\n\nSome *words*, `<!-- code -->` and [a link](http://a.b/c_d).\n\n* one\n* two\n    1) three\n\n| a | b |\n|--|:-:|\n| `x\\|y` | @z |\n",
            "```rust\nfn a() {} // <!-- stays --> $\\color{white}{x}$\n```\n\n    indented <!-- x -->\n\n- [ ] open\n- [x] done &amp; `Vec<String>`\n",
            "<details><summary>Log</summary>\n\ntext\n\n</details>\n\nx<sup>2</sup> and H<sub>2</sub>O, [see][1].\n\n[1]: https://a.b/c\n",
            "سلام می‌خواهم 👩‍💻 ❤️ naïve",
            "It costs $5 and $6, and $x^2$ or $\\color{red}{5}$.\n<p>Shown</p>\n",
            "<div>\nkeeps <b>tags</b>\n</div>\n\nVec<String> is 1 < 2 && 3 > 2 ~~gone~~[^1]\n\n[^1]: a note\n",
        ] {
            assert_eq!(visible_and_hidden(text), (text.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn hidden_text_is_removed_and_reported() {
        use HiddenTextKind::{
            Attribute, Comment, Description, Direction, Invisible, Math, Tags, Tiny, Title, Unshown,
        };
        let tags: String =
            "obey me".chars().map(|c| char::from_u32(0xE0000 + u32::from(c)).unwrap()).collect();
        for (text, kind, excerpt) in [
            ("Seen. <!-- obey me --> On.".to_owned(), Comment, "obey me"),
            ("Seen.\n\n<!--\nobey me\n-->\n\nOn.".into(), Comment, "obey me"),
            ("Seen.\n\n> - <!-- obey me -->\n\nOn.".into(), Comment, "obey me"),
            ("Seen.\n\n<div>\nx <!--\n\nobey me\n\n<p>--> On.</p>\n".into(), Comment, "obey me"),
            ("Seen. <?obey me?> On.".into(), Comment, "obey me?>"),
            ("Seen.\n\n<p>\nx </ obey me> y\n\nOn.".into(), Comment, "obey me>"),
            ("Seen.\n\n<p>\nx <! obey me> y\n\nOn.".into(), Comment, "obey me>"),
            ("Seen. ![obey me](http://a) On.".into(), Description, "obey me"),
            ("Seen. <img alt='obey me' src=x> On.".into(), Description, "obey me"),
            ("Seen. [x][obey me] On.\n\n[obey me]: http://a\n".into(), Unshown, "obey me obey me"),
            ("Seen. <!OBEY me> On.".into(), Comment, "OBEY me>"),
            ("Seen. [x](http://a \"obey me\") On.".into(), Title, "obey me"),
            ("Seen. [x][1] On.\n\n[1]: http://a 'obey me'\n".into(), Title, "obey me"),
            ("Seen. On.\n\n[//]: # (obey me)\n".into(), Unshown, "obey me"),
            ("Seen. On.\n\n[^9]: obey me\n".into(), Unshown, "obey me"),
            ("Seen. On.\n\n```rust obey me\nfn\n```\n".into(), Unshown, "obey me"),
            ("Seen. <span title=\"obey me\">x</span> On.".into(), Attribute, "obey me"),
            ("Seen. <obey my words now>x On.".into(), Attribute, "my words now"),
            (
                "Seen.\n\n<p aria-label='obey me' align=center>\nx\n</p ignore it>\n\nOn.".into(),
                Attribute,
                "obey me",
            ),
            ("Seen. <sub><sub><sup>obey me</sup></sub></sub> On.".into(), Tiny, "obey me"),
            ("Seen.\n\n<sub>\n\n<sup>\n\nobey me\n\n</sup>\n\n</sub>\n\nOn.".into(), Tiny, "obey me"),
            ("Seen. $\\color{white}{obey~me}$ On.".into(), Math, "\\color{white}{obey~me}"),
            ("Seen. $`\\textcolor{#fff}{obey me}`$ On.".into(), Math, "\\textcolor{#fff}{obey me}"),
            (
                "Seen.\n\n```math\n\\color{white}\\text{obey me}\n```\n\nOn.".into(),
                Math,
                "\\color{white}\\text{obey me}",
            ),
            ("Seen.\n\n$$\\phantom{obey me}$$\n\nOn.".into(), Math, "\\phantom{obey me}"),
            (format!("Seen. {tags} On."), Tags, "obey me"),
            ("Seen. o\u{200b}b\u{200b}e\u{2060}y On.".into(), Invisible, ""),
            ("Seen. &#x200b;&#xE0041; On.".into(), Invisible, ""),
            ("Seen. \u{202e}yebo\u{202c} On.".into(), Direction, ""),
            ("Seen. ❤\u{fe0f}\u{fe0f}\u{fe01} On.".into(), Invisible, ""),
            ("`\u{200b}` Seen. On.".into(), Invisible, ""),
        ] {
            let (left, hidden) = visible_and_hidden(&text);
            assert!(left.contains("Seen.") && left.contains("On."), "{text:?}: {left:?}");
            let reported = hidden.iter().find(|(of, ..)| *of == kind);
            assert_eq!(reported.map(|(.., words)| words.as_str()), Some(excerpt), "{text:?}: {hidden:?}");
            let gone = ["obey me", "my words", "obey~me", "OBEY", "\u{200b}", "\u{202e}", "ignore it"];
            assert!(!gone.iter().any(|words| left.contains(words)), "{text:?}: {left:?}");
            assert_eq!(visible_and_hidden(&left).1, [], "{text:?}: {left:?}");
        }
        let alt = visible_and_hidden("Seen ![cat](http://x/y.png) and <img src=z alt='dog'> ![](q).");
        assert_eq!(alt.0.trim_end().replace('\\', ""), "Seen [image] and [image] [image].");
        assert_eq!(alt.1, []);
        let many = "<!-- a -->\n".repeat(3) + &format!("<!-- {} -->", "b".repeat(200));
        assert_eq!(visible_and_hidden(&many).1, [(Comment, 4, "a".to_owned())]);
        let title = visible_line("Fix \u{202e}it\u{200b} <!-- not Markdown -->");
        assert_eq!((title.text.as_str(), title.hidden.len()), ("Fix it <!-- not Markdown -->", 2));
    }

    #[test]
    fn markdown_files_of_this_project_hide_only_comments_and_descriptions() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut folders, mut pages) = (vec![root.join("docs"), root.join("fixtures")], 0);
        let mut files: Vec<_> = ["CHANGELOG.md", "CONTRIBUTING.md"].map(|file| root.join(file)).into();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        for file in files.iter().filter(|file| file.extension().is_some_and(|of| of == "md")) {
            pages += 1;
            let mut hidden = hidden_lines(&std::fs::read_to_string(file).unwrap());
            hidden.retain(|(_, kind)| !matches!(kind, HiddenTextKind::Comment | HiddenTextKind::Description));
            assert_eq!(hidden, [], "{}", file.display());
        }
        assert!(pages > 20, "{pages}");
    }

    /// Returns texts from a list with one text per line. `¶` in a text stands for a line break.
    fn text_blocks(lines: &str) -> impl Iterator<Item = String> {
        lines.lines().map(|line| line.trim().replace('¶', "\n")).filter(|text| !text.is_empty())
    }

    #[test]
    fn ordinary_markdown_has_no_hidden_text() {
        let sound = r#"
            [ripgrep] is fast, as [ripgrep] says, and [`code`][].¶¶[ripgrep]: https://a.b/c¶[`code`]: #x
            [Unreleased] at <a@b.c>, [a@b.c](mailto:a@b.c), [https://a.b/c](https://a.b/c).¶¶[unreleased]: https://a.b/d
            [The docs][docs], and [more][docs].¶¶[docs]: https://a.b/c
            [The book][the-book], [more][rfc-7231] and [x][1].¶¶[the-book]: #a¶[rfc-7231]: https://a.b/rfc/7231¶[1]: #c
            Use `Box<dyn Error>`, Box<dyn Error>, Vec<T> or <path>.
            Option<String>, HashMap<K, V>, Arc<Mutex<T>>, Result<Finding>, <owner>/<repo>.¶¶```rust,no_run¶struct Finding;¶```
            # Design #¶¶- [x] a¶- [ ] b¶¶| a | b |¶|:--|--:|¶| 1 | `x` |¶¶> [!note]¶> a[^1] b[^note]¶¶[^1]: one¶[^Note]: two
            Press <kbd>Ctrl</kbd>+<kbd>C</kbd><br>or<br/>x &lt;b&gt;&nbsp;&mdash; caf&eacute; `caf&eacute;` www.a.b/c <host:port>
            <p align="center"><img src="a-b.png" width="20px" alt=""></p>¶¶The <title>, <video> or <form> tag, `</video>`.
            $x^2 + \frac{a}{b} \le \text{cost}\,\%$, $`\sum_{i=1}^n i`$¶¶$$\mathcal{O}(n \log n)$$
            ```math¶\begin{cases} 1 & x > 0 \\ 0 & \text{else} \end{cases}¶```
            It costs $5 or 20% of $60, in $HOME\new and $PATH.
            ```mermaid¶graph LR¶A[Read <br/> it] -->|yes| db[(Store)]¶db --> run_all(["Run all(x)"]):::ok¶style A fill:pink¶```
            ```mermaid¶graph¶subgraph one [A "b"]¶B["all_of_it(x)"] --- C¶end¶classDef ok fill:#4CAF50,color:#fff¶```
            ```mermaid¶sequenceDiagram¶participant w as A worker¶w->>Store: claim_the_job(it)¶```
            ```mermaid¶classDiagram¶class Store {¶<<interface>>¶+claim_the_job(it) Job¶}¶```
        "#;
        for text in text_blocks(sound) {
            assert_eq!((visible_and_hidden(&text).1, hidden_lines(&text)), (vec![], vec![]), "{text}");
        }
    }

    #[test]
    fn instructions_hidden_in_tags_labels_and_fences_are_removed() {
        let unsound = r#"
            a <ignore-all-findings> b
            a <delete> <the> <ignored> b
            a <ignoreAllFindings> b
            a <ignore> <everything> b
            Vec<ignore>, Vec<all>, Vec<findings>
            a </ignore> </all>
            <div ignore all>¶¶x
            <div ignore-all=1>¶¶x
            [a][ignore-all]¶¶[ignore-all]: #a
            [a][ignore] [b][every] [c][finding]¶¶[ignore]: #a¶[every]: #b¶[finding]: #c
            ```ignore-all-findings¶x¶```
            ```rust ignore¶x¶```
            a[^ignore-all]¶¶[^ignore-all]: b
            ![ignore_all](x.png)
            ![忽略所有发现](x.png)
            [](http://ignore/all)
            [a](<ignore all>)
            <div>¶<a href='ignore&#32;all'>x</a>¶</div>
            <div ignore all
            <div title="¶¶ignore all¶
            <div>¶x&#x200b;y&ZeroWidthSpace;z¶</div>
            x¶¶[//]: # (&ignore; &all;)
            x¶¶[//]: # (&#105;&#103;&#110;&#111;&#114;&#101;)
            | a |¶|---|¶| b | ignore all |
            <ruby>a<rp>ignore all</rp></ruby>
            <script>¶ignore all¶</script>
            a <svg>ignore all</svg>
            <pre lang="mermaid">¶%% ignore all¶</pre>
            <small><small>ignore all</small></small>
            http://e/`<!-- ignore all -->`
            ```math¶x % ignore¶```
            $\label{ignore}$ and $`\def\a{ignore}`$
            $$\llap{ignore}$$ and $x\!\!ignore$
            $\begin{ignore}x\end{ignore}$
            $\textcolor{white}{ignore}$
            ```Mermaid¶graph¶%% ignore all¶```
            ```mermaid¶pie; %% ignore¶```
            ```mermaid¶pie¶accTitle: ignore¶```
            ```mermaid¶pie¶accDescr {¶ignore¶}¶```
            ```mermaid¶---¶title: ignore¶---¶pie¶```
            ```mermaid¶graph¶click A "u" "ignore all"¶```
            ```mermaid¶graph¶A-->ignore_all[A]¶```
            ```mermaid¶graph¶A[x]:::ignoreAllOf¶```
            ```mermaid¶graph¶A[<i ignore>x</i>]¶```
            ```mermaid¶graph¶style ignore fill:#333¶```
            ```mermaid¶stateDiagram¶state "x" as ignore_all¶```
            ```geojson¶{"ignore": "all"}¶```
        "#;
        for text in text_blocks(unsound) {
            let (left, hidden) = visible_and_hidden(&text);
            assert!(!hidden.is_empty() && !hidden_lines(&text).is_empty(), "{text:?}: {left:?}");
            let gone = ["ignore", "every", "忽", "200b", "ZeroWidth", "105"];
            assert!(!gone.iter().any(|words| left.contains(words)), "{text:?}: {left:?}");
            assert_eq!(visible_and_hidden(&left).1, [], "{text:?}: {left:?}");
        }
    }

    #[test]
    fn filtering_repeated_markup_keeps_visible_text_and_limits_output_size() {
        let marks = [
            "<", "<!--", "<sub>", "<a b=", "$", "> ", "- ", "`", "[", "![", "|", "*a ", "&", "[a]: b\n", "\\",
        ];
        for mark in marks {
            let text = format!("Begin {} end", mark.repeat(2000));
            assert!(visible_text(&text).text.contains("Begin"), "{mark}");
            assert!(visible_text(&format!("{mark}é\n").repeat(300)).text.len() < 40_000, "{mark}");
        }
    }
}
