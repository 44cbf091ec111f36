//! What people see of a text on GitHub, for models that are to see no more.
//!
//! An issue can hold words that nobody who reads it there ever sees: comments in HTML, titles of links, signs without a
//! shape, definitions that nothing refers to. A model would read them all the same. So the text is read with the parser
//! that GitHub's is derived from, what shows nothing is taken out of the tree, and the text is written anew from that.
//! A text in which nothing is hidden stays as it is. In a document of ours what shows nothing is a mistake, with its line
//! (`hidden_lines`): it would be committed, and read by models later.
//!
//! One word says too little to be an order, so a label, a description or an attribute of one word hides nothing. A link
//! shows where it leads, and a label that is the link's own text is seen there.
//!
//! GitHub keeps neither `style` nor `hidden`, so text in such a tag is seen by people, and stays.

use std::collections::HashMap;

use comrak::{Arena, Node, Options, format_commonmark, nodes::NodeValue, parse_document};
use pulldown_cmark::{Event, LinkType, Parser, Tag as Begins};
use serde::{Deserialize, Serialize};

use super::{is_invisible, markdown};

/// Shown of what was hidden, in characters.
const EXCERPT: usize = 80;

/// Characters of what is taken for one word.
const WORD: usize = 40;

/// Attributes that a document may use besides links.
const LAYOUT: [&str; 10] =
    ["align", "valign", "width", "height", "colspan", "rowspan", "start", "open", "type", "target"];

/// Text that models are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    pub text: String,
    /// What was taken out, a row a kind.
    pub hidden: Vec<Hidden>,
}

/// What was taken out of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    pub kind: HiddenKind,
    pub count: usize,
    /// The beginning of the first; nothing where it has no shape.
    pub excerpt: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HiddenKind {
    /// `<!-- … -->`, and what else of HTML is for no reader.
    Comment,
    /// A tag's attribute that says something.
    Attribute,
    /// Of a link or an image.
    Title,
    /// The alternative text of an image.
    Description,
    /// In letters that are too small to be read.
    Tiny,
    /// Formulas in a colour that may be that of the page.
    Math,
    /// Letters of Unicode's block of tags.
    Tags,
    /// Signs that turn the direction of what follows.
    Direction,
    /// Other signs without a shape.
    Invisible,
    /// Definitions that nothing refers to, words behind a fence.
    Unshown,
}

impl HiddenKind {
    /// The drafter's mistake, as the prompt names it.
    pub(super) fn mistake(self) -> &'static str {
        match self {
            Self::Comment => "an HTML comment or its like stands here, which nobody sees; take it out",
            Self::Attribute => "a tag of HTML says something here that nobody sees; take it out",
            Self::Title => "the title of a link or an image stands here, which nobody sees; take it out",
            Self::Description => "an image has a description here, which nobody sees; write it as text",
            Self::Tiny => "letters too small to be read stand here; write them as text",
            Self::Math => "a formula may not show here; take out its colour or its size",
            Self::Tags | Self::Direction | Self::Invisible => {
                "an invisible character stands here; take it out"
            }
            Self::Unshown => {
                "words stand here that Markdown does not show, such as a link's definition that nothing refers to, a \
                 label that is not the link's text, or words behind a fence; take them out"
            }
        }
    }
}

/// The rows of several texts as one list.
pub fn gathered<'a>(lists: impl IntoIterator<Item = &'a Hidden>) -> Vec<Hidden> {
    let mut all: Vec<Hidden> = Vec::new();
    for row in lists {
        match all.iter_mut().find(|known| known.kind == row.kind) {
            Some(known) => known.count += row.count,
            None => all.push(row.clone()),
        }
    }
    all
}

/// What people see of Markdown.
pub fn visible(text: &str) -> Visible {
    let read = Read::of(text);
    Visible { hidden: rows(&read.taken), text: read.text }
}

/// What people see of a line that is no Markdown.
pub fn visible_line(text: &str) -> Visible {
    let mut walk = Walk::default();
    Visible { text: walk.shapes(text), hidden: rows(&walk.taken) }
}

/// Lines of a document, from 1, on which something stands that no reader sees, in order.
pub(super) fn hidden_lines(text: &str) -> Vec<(usize, HiddenKind)> {
    let read = Read::of(text);
    let taken = read.taken.iter().filter(|taken| taken.line > 0 && says(&row(taken)));
    let taken = taken.map(|taken| (taken.line, taken.kind));
    let mut lines: Vec<_> = read.bare.iter().copied().chain(taken).collect();
    lines.sort_by_key(|(line, _)| *line);
    lines.dedup_by_key(|(line, _)| *line);
    lines
}

/// Something that no reader sees.
struct Taken {
    kind: HiddenKind,
    text: String,
    /// From 1; 0 for what is taken out before the text is parsed.
    line: usize,
}

/// A text without what no reader sees, and that.
struct Read {
    text: String,
    taken: Vec<Taken>,
    /// Lines of what is a mistake in a document alone: tags that say something of one word, definitions that nothing refers to.
    bare: Vec<(usize, HiddenKind)>,
}

impl Read {
    fn of(text: &str) -> Self {
        let mut walk = Walk::default();
        let text = walk.shapes(text);
        let arena = Arena::new();
        let options = options();
        let root = parse_document(&arena, &text, &options);
        for node in root.descendants().collect::<Vec<_>>() {
            walk.node(node);
        }
        walk.gone.iter().for_each(|node| node.detach());
        let mut shown = String::new();
        // Writing into a string does not fail.
        let _ = format_commonmark(root, &options, &mut shown);
        let (labels, unused) = labels(&text);
        let known = walk.taken.iter().map(|taken| taken.text.as_str());
        let known = known.chain([walk.dropped.as_str(), labels.as_str(), shown.as_str()]);
        let lacking = missing(&text, known);
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        let unshown = lacking.first().map(|(at, _)| Taken {
            kind: HiddenKind::Unshown,
            text: lacking.iter().map(|(_, word)| *word).collect::<Vec<_>>().join(" "),
            line: line(*at),
        });
        let as_it_was = !walk.changed && unshown.is_none();
        walk.taken.extend(unshown);
        let mut bare = walk.bare;
        bare.extend(unused.into_iter().map(|at| (line(at), HiddenKind::Unshown)));
        let taken = walk.taken;
        Self { text: if as_it_was { text.clone() } else { shown }, taken, bare }
    }
}

/// Labels that say no more than the text of their links, or one word, once for each place where they stand unseen.
/// And where the definitions begin that nothing refers to.
fn labels(text: &str) -> (String, Vec<usize>) {
    let parser = Parser::new_ext(text, markdown::options());
    let defined = parser.reference_definitions().iter();
    let defined: Vec<_> = defined.map(|(label, of)| (label.to_owned(), of.span.start)).collect();
    let (mut used, mut unseen) = (HashMap::<String, bool>::new(), String::new());
    for event in parser {
        let Event::Start(Begins::Link { link_type, id, .. } | Begins::Image { link_type, id, .. }) = event
        else {
            continue;
        };
        let says_no_more = match link_type {
            LinkType::Collapsed | LinkType::Shortcut => true,
            LinkType::Reference if is_word(&id) => {
                unseen.extend([&*id, " "]);
                true
            }
            _ => false,
        };
        *used.entry(id.to_lowercase()).or_default() |= says_no_more;
    }
    let mut unused = Vec::new();
    for (label, at) in defined {
        match used.get(&label.to_lowercase()) {
            Some(true) => unseen.extend([label.as_str(), " "]),
            Some(false) => {}
            None => unused.push(at),
        }
    }
    (unseen, unused)
}

fn is_word(text: &str) -> bool {
    !text.contains(char::is_whitespace) && text.chars().count() <= WORD
}

/// All that GitHub reads in an issue.
fn options() -> Options<'static> {
    let mut options = Options::default();
    let extension = &mut options.extension;
    (extension.table, extension.strikethrough, extension.tasklist) = (true, true, true);
    (extension.footnotes, extension.alerts) = (true, true);
    (extension.math_dollars, extension.math_code) = (true, true);
    options
}

/// Words of a text that none of the others has, as often as it is there.
fn missing<'a>(text: &'a str, others: impl Iterator<Item = &'a str>) -> Vec<(usize, &'a str)> {
    let mut there: HashMap<&str, usize> = HashMap::new();
    for (_, word) in others.flat_map(words) {
        *there.entry(word).or_default() += 1;
    }
    let mut lacking = Vec::new();
    for (at, word) in words(text) {
        // An entity is a sign, and the numbers of lists are counted anew.
        let entity = text[..at].trim_end_matches('#').ends_with('&');
        match there.get_mut(word) {
            Some(left) if *left > 0 => *left -= 1,
            _ if entity || word.bytes().all(|b| b.is_ascii_digit()) => {}
            _ => lacking.push((at, word)),
        }
    }
    lacking
}

fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - start, word))
}

#[derive(Default)]
struct Walk<'a> {
    taken: Vec<Taken>,
    /// Taken out as well, and nothing to tell of.
    dropped: String,
    /// As [`Read::bare`].
    bare: Vec<(usize, HiddenKind)>,
    /// The line being read, as [`Taken::line`].
    line: usize,
    gone: Vec<Node<'a>>,
    changed: bool,
    /// A comment was opened, and nothing closed it yet: GitHub shows nothing until then, whatever Markdown makes of it.
    comment: bool,
    /// `<sub>` and `<sup>` around this place, opened by blocks of HTML and within the block of text.
    around: usize,
    within: usize,
}

impl<'a> Walk<'a> {
    fn take(&mut self, kind: HiddenKind, text: &str) {
        self.changed = true;
        self.taken.push(Taken { kind, text: text.to_owned(), line: self.line });
    }

    /// The text without signs that have no shape.
    fn shapes(&mut self, text: &str) -> String {
        let (mut out, mut tags) = (String::with_capacity(text.len()), String::new());
        let mut chars = text.chars().peekable();
        let mut before = None;
        while let Some(c) = chars.next() {
            let foreign = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_invisible(c));
            let kind = match c {
                // Of an emoji, or between letters that it joins or parts.
                '\u{FE0F}' if before.is_some_and(|c| c != '\u{FE0F}') => None,
                '\u{200C}' | '\u{200D}' if foreign(before) && foreign(chars.peek().copied()) => None,
                '\u{E0020}'..='\u{E007E}' => {
                    tags.extend(char::from_u32(u32::from(c) - 0xE0000));
                    before = None;
                    continue;
                }
                '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => {
                    Some(HiddenKind::Direction)
                }
                '\u{FE0F}' => Some(HiddenKind::Invisible),
                c if is_invisible(c) => Some(HiddenKind::Invisible),
                c if c.is_control() && !matches!(c, '\n' | '\r' | '\t') => Some(HiddenKind::Invisible),
                _ => None,
            };
            before = kind.is_none().then_some(c);
            match kind {
                Some(kind) => self.taken.push(Taken { kind, text: String::new(), line: self.line }),
                None => out.push(c),
            }
        }
        if !tags.is_empty() {
            self.taken.push(Taken { kind: HiddenKind::Tags, text: tags, line: self.line });
        }
        out
    }

    fn node(&mut self, node: Node<'a>) {
        // The type of a generic in prose, as in `Box<dyn Error>`, reads as a tag.
        let generic = node.previous_sibling().is_some_and(|before| match &before.data().value {
            NodeValue::Text(text) => text.ends_with(|c: char| c.is_alphanumeric() || c == '_'),
            _ => false,
        });
        let mut data = node.data_mut();
        self.line = data.sourcepos.start.line;
        let tiny = self.around + self.within > 1;
        let hides = match (self.comment, tiny) {
            (true, _) => Some(HiddenKind::Comment),
            (false, true) => Some(HiddenKind::Tiny),
            (false, false) => None,
        };
        match &mut data.value {
            NodeValue::HtmlBlock(html) => {
                html.literal = self.html(&html.literal, true, false);
                if html.literal.trim().is_empty() {
                    self.gone.push(node);
                }
            }
            NodeValue::HtmlInline(html) => {
                *html = self.html(html, false, generic);
                if html.is_empty() {
                    self.gone.push(node);
                }
            }
            NodeValue::Text(text) => {
                let shown = self.shapes(text);
                self.changed |= shown != **text;
                // What GitHub takes for a formula, and this parser does not.
                let formula = shown.contains('$') && may_not_show(&shown);
                *text = shown.into();
                let kind = hides.or(formula.then_some(HiddenKind::Math));
                let text = text.to_string();
                self.hide(kind, &text, node);
            }
            NodeValue::Code(code) => {
                let text = code.literal.clone();
                self.hide(hides, &text, node);
            }
            NodeValue::CodeBlock(code) => {
                let language = code.info.split_whitespace().next().unwrap_or_default().to_owned();
                self.changed |= language != code.info;
                let formula = language.eq_ignore_ascii_case("math") && may_not_show(&code.literal);
                code.info = language;
                let text = code.literal.clone();
                self.hide(hides.or(formula.then_some(HiddenKind::Math)), &text, node);
            }
            NodeValue::Math(math) => {
                let kind = hides.or(may_not_show(&math.literal).then_some(HiddenKind::Math));
                let text = math.literal.clone();
                self.hide(kind, &text, node);
            }
            NodeValue::Link(link) => {
                // An address that is the link's own text is written once.
                let own: String = node.descendants().skip(1).map(words_of).collect();
                if !own.is_empty() && link.url.ends_with(&own) {
                    self.dropped += &format!(" {}", link.url);
                }
                self.title(&mut link.title);
            }
            NodeValue::Image(image) => {
                self.title(&mut image.title);
                self.dropped += &format!(" {}", image.url);
                self.changed = true;
                let alt: String = node.descendants().skip(1).map(words_of).collect();
                data.value = NodeValue::Text(self.image(&alt).into());
                self.gone.extend(node.children());
            }
            NodeValue::Paragraph | NodeValue::Heading(_) | NodeValue::TableCell => self.within = 0,
            _ => {}
        }
    }

    fn hide(&mut self, kind: Option<HiddenKind>, text: &str, node: Node<'a>) {
        if let Some(kind) = kind {
            self.take(kind, text);
            self.gone.push(node);
        }
    }

    fn title(&mut self, title: &mut String) {
        if !title.is_empty() {
            self.take(HiddenKind::Title, title);
            title.clear();
        }
    }

    /// Text in place of an image. People see its description only if the image doesn't load.
    fn image(&mut self, alt: &str) -> String {
        let alt = self.shapes(alt);
        if is_word(alt.trim()) {
            self.dropped += &format!(" {alt}");
        } else {
            self.take(HiddenKind::Description, &alt);
        }
        "[image]".to_owned()
    }

    /// HTML without comments, and tags without what they do not show.
    fn html(&mut self, html: &str, block: bool, generic: bool) -> String {
        let (mut out, mut rest, first) = (String::new(), html, self.line);
        while !rest.is_empty() {
            self.line = first + html[..html.len() - rest.len()].matches('\n').count();
            if self.comment {
                let end = rest.find("-->");
                let (inside, after) = rest.split_at(end.unwrap_or(rest.len()));
                self.take(HiddenKind::Comment, inside);
                self.comment = end.is_none();
                rest = after.strip_prefix("-->").unwrap_or(after);
                continue;
            }
            let (text, tag) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
            if self.around + self.within > 1 && !text.trim().is_empty() {
                self.take(HiddenKind::Tiny, text);
            } else {
                out += text;
            }
            rest = match tag.strip_prefix("<!--") {
                Some(comment) => {
                    self.comment = true;
                    self.changed = true;
                    // `<!-->` is a whole comment.
                    if comment.starts_with('>') || comment.starts_with("->") { &tag[2..] } else { comment }
                }
                // A browser takes `</ x>` for a comment.
                None if tag.starts_with("<!") || tag.starts_with("<?") || ends_nothing(tag) => {
                    let (inside, after) = tag.split_at(tag.find('>').map_or(tag.len(), |end| end + 1));
                    self.take(HiddenKind::Comment, &inside[2..]);
                    after
                }
                None => match Tag::read(tag) {
                    Some((read, after)) => {
                        out += &self.tag(read, block, generic);
                        after
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

    fn tag(&mut self, tag: Tag<'_>, block: bool, generic: bool) -> String {
        let small = tag.name.to_ascii_lowercase();
        if matches!(small.as_str(), "sub" | "sup") {
            let depth = if block { &mut self.around } else { &mut self.within };
            *depth = if tag.closes { depth.saturating_sub(1) } else { *depth + 1 };
        }
        let (mut kept, mut alt) = (String::new(), "");
        for (name, value) in tag.attributes {
            match name.to_ascii_lowercase().as_str() {
                "href" | "src" if !value.contains(['"', '<', '>']) && small != "img" => {
                    kept += &format!(" {name}=\"{value}\"");
                }
                "alt" if small == "img" => alt = value,
                "src" if small == "img" && !value.contains(char::is_whitespace) => {
                    self.dropped += &format!(" {name} {value}")
                }
                _ if !is_word(value) => {
                    self.take(HiddenKind::Attribute, value);
                    self.dropped += &format!(" {name}");
                }
                layout => {
                    if !LAYOUT.contains(&layout) {
                        self.bare.push((self.line, HiddenKind::Attribute));
                    }
                    self.dropped += &format!(" {name} {value}");
                }
            }
        }
        // Whatever else stands in it, read as it came.
        if tag.loose.split_whitespace().count() > 2 {
            self.take(HiddenKind::Attribute, &tag.loose);
        } else {
            let mut loose = tag.loose.split_whitespace();
            if !generic && loose.any(|word| !LAYOUT.contains(&word)) {
                self.bare.push((self.line, HiddenKind::Attribute));
            }
            self.dropped += &format!(" {}", tag.loose);
        }
        let stroke = if tag.closes { "/" } else { "" };
        let written = match small.as_str() {
            "img" => {
                self.dropped += " img alt";
                self.image(alt)
            }
            _ => format!("<{stroke}{}{kept}>", tag.name),
        };
        self.changed |= written != tag.source;
        written
    }
}

fn rows(taken: &[Taken]) -> Vec<Hidden> {
    gathered(&taken.iter().map(row).filter(says).collect::<Vec<_>>())
}

fn row(taken: &Taken) -> Hidden {
    let shown = taken.text.chars().filter(|c| !is_invisible(*c)).collect::<String>();
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    Hidden { kind: taken.kind, count: 1, excerpt: words.chars().take(EXCERPT).collect() }
}

/// A comment that says nothing hides nothing.
fn says(row: &Hidden) -> bool {
    row.kind != HiddenKind::Comment || !row.excerpt.is_empty()
}

/// Whether the tag looks like the end of an element but isn't one.
fn ends_nothing(tag: &str) -> bool {
    tag.strip_prefix("</").is_some_and(|name| !name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn words_of(node: Node<'_>) -> String {
    match &node.data().value {
        NodeValue::Text(text) => text.to_string(),
        NodeValue::Code(code) => code.literal.clone(),
        NodeValue::SoftBreak | NodeValue::LineBreak => " ".to_owned(),
        _ => String::new(),
    }
}

/// May a formula be in the colour of some page, or too small, or take room only?
fn may_not_show(formula: &str) -> bool {
    /// On a bright page and on a dark one.
    const SEEN: [&str; 9] = ["red", "green", "blue", "orange", "purple", "magenta", "cyan", "teal", "gray"];
    const NEVER: [&str; 4] = ["\\phantom", "\\hphantom", "\\vphantom", "\\tiny"];
    let colours = formula.match_indices("color").filter(|(at, _)| {
        let word = formula[..*at].rsplit(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        formula[..*at - word.len()].ends_with('\\')
    });
    let hides = |(at, _): (usize, &str)| {
        let named = formula[at..].split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        named.is_none_or(|(name, _)| !SEEN.contains(&name.trim()))
    };
    NEVER.iter().any(|command| formula.contains(command)) || colours.into_iter().any(hides)
}

/// One tag of HTML.
struct Tag<'t> {
    source: &'t str,
    name: &'t str,
    closes: bool,
    attributes: Vec<(&'t str, &'t str)>,
    /// Words in it that have no value.
    loose: String,
}

impl<'t> Tag<'t> {
    /// The tag that the text begins with, and what follows it.
    fn read(text: &'t str) -> Option<(Self, &'t str)> {
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
                return Some((Self { source, name, closes, attributes, loose }, after));
            }
            let end = rest.find(|c: char| ends(c) || c == '=')?;
            // HTML takes a stray sign for the beginning of a name.
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

    /// What is left, and the kinds that were taken out with their beginnings.
    fn seen(text: &str) -> (String, Vec<(HiddenKind, usize, String)>) {
        let Visible { text, hidden } = visible(text);
        (text, hidden.into_iter().map(|row| (row.kind, row.count, row.excerpt)).collect())
    }

    #[test]
    fn what_hides_nothing_stays_as_it_is() {
        for text in [
            "# A title\n\nSome *words*, `<!-- code -->` and [a link](http://a.b/c_d).\n\n* one\n* two\n    1) three\n\n| a | b |\n|--|:-:|\n| `x\\|y` | @z |\n",
            "```rust\nfn a() {} // <!-- stays --> $\\color{white}{x}$\n```\n\n    indented <!-- x -->\n\n- [ ] open\n- [x] done &amp; `Vec<String>`\n",
            "<details><summary>Log</summary>\n\ntext\n\n</details>\n\nx<sup>2</sup> and H<sub>2</sub>O, [see][1].\n\n[1]: https://a.b/c\n",
            "سلام می‌خواهم 👩‍💻 ❤️ naïve",
            "It costs $5 and $6, and $x^2$ or $\\color{red}{5}$.\n<p>Shown</p>\n",
            "<div>\nkeeps <b>tags</b>\n</div>\n\nVec<String> is 1 < 2 && 3 > 2 ~~gone~~[^1]\n\n[^1]: a note\n",
        ] {
            assert_eq!(seen(text), (text.to_owned(), vec![]), "{text}");
        }
    }

    #[test]
    fn what_people_do_not_see_is_taken_out_and_told() {
        use HiddenKind::{
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
            let (left, hidden) = seen(&text);
            assert!(left.contains("Seen.") && left.contains("On."), "{text:?}: {left:?}");
            let told = hidden.iter().find(|(of, ..)| *of == kind);
            assert_eq!(told.map(|(.., words)| words.as_str()), Some(excerpt), "{text:?}: {hidden:?}");
            let gone = ["obey me", "my words", "obey~me", "OBEY", "\u{200b}", "\u{202e}", "ignore it"];
            assert!(!gone.iter().any(|words| left.contains(words)), "{text:?}: {left:?}");
            assert_eq!(seen(&left).1, [], "{text:?}: {left:?}");
        }
        let alt = seen("Seen ![cat](http://x/y.png) and <img src=z alt='dog'> ![](q).");
        assert_eq!(alt.0.trim_end().replace('\\', ""), "Seen [image] and [image] [image].");
        assert_eq!(alt.1, []);
        let many = "<!-- a -->\n".repeat(3) + &format!("<!-- {} -->", "b".repeat(200));
        assert_eq!(seen(&many).1, [(Comment, 4, "a".to_owned())]);
        let title = visible_line("Fix \u{202e}it\u{200b} <!-- not Markdown -->");
        assert_eq!((title.text.as_str(), title.hidden.len()), ("Fix it <!-- not Markdown -->", 2));
    }

    #[test]
    fn our_own_pages_hide_nothing_but_comments_and_descriptions() {
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
            hidden.retain(|(_, kind)| !matches!(kind, HiddenKind::Comment | HiddenKind::Description));
            assert_eq!(hidden, [], "{}", file.display());
        }
        assert!(pages > 20, "{pages}");
    }

    #[test]
    fn a_label_that_is_seen_hides_nothing() {
        for text in [
            "[ripgrep] is fast, as [ripgrep] says, and [`code`][].\n\n[ripgrep]: https://a.b/c\n[`code`]: #x\n",
            "[Unreleased] at <a@b.c>, [a@b.c](mailto:a@b.c) and [https://a.b/c](https://a.b/c).\n\n[unreleased]: https://a.b/d\n",
            "[The docs][docs], and [more][docs].\n\n[docs]: https://a.b/c\n",
            "Use `Box<dyn Error>`, Box<dyn Error>, Vec<T> or <path>.\n",
        ] {
            assert_eq!((seen(text).1, hidden_lines(text)), (vec![], vec![]), "{text}");
        }
    }

    #[test]
    fn no_text_is_too_odd_to_be_read() {
        let marks = [
            "<", "<!--", "<sub>", "<a b=", "$", "> ", "- ", "`", "[", "![", "|", "*a ", "&", "[a]: b\n", "\\",
        ];
        for mark in marks {
            let text = format!("Begin {} end", mark.repeat(2000));
            assert!(visible(&text).text.contains("Begin"), "{mark}");
            assert!(visible(&format!("{mark}é\n").repeat(300)).text.len() < 40_000, "{mark}");
        }
    }
}
