//! What people see of a text on GitHub, for models that are to see no more.
//!
//! An issue can hold words that nobody who reads it there ever sees: comments in HTML, titles of links, signs without a
//! shape, definitions that nothing refers to. A model would read them all the same. So the text is read with the parser
//! that GitHub's is derived from, what shows nothing is taken out of the tree, and the text is written anew from that.
//! A text in which nothing is hidden stays as it is.
//!
//! GitHub keeps neither `style` nor `hidden`, so text in such a tag is seen by people, and stays.

use std::collections::HashMap;

use comrak::{Arena, Node, Options, format_commonmark, nodes::NodeValue, parse_document};
use serde::{Deserialize, Serialize};

use super::is_invisible;

/// Shown of what was hidden, in characters.
const EXCERPT: usize = 80;

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
    let known = walk.taken.iter().map(|(_, text)| text.as_str()).chain([walk.dropped.as_str()]);
    let lacking = missing(&text, known.chain([shown.as_str()]));
    let unshown = (!lacking.is_empty()).then(|| (HiddenKind::Unshown, lacking.join(" ")));
    let as_it_was = !walk.changed && unshown.is_none();
    walk.taken.extend(unshown);
    Visible { hidden: walk.rows(), text: if as_it_was { text.clone() } else { shown } }
}

/// What people see of a line that is no Markdown.
pub fn visible_line(text: &str) -> Visible {
    let mut walk = Walk::default();
    Visible { text: walk.shapes(text), hidden: walk.rows() }
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
fn missing<'a>(text: &'a str, others: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
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
            _ => lacking.push(word),
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
    taken: Vec<(HiddenKind, String)>,
    /// Taken out as well, and nothing to tell of.
    dropped: String,
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
        self.taken.push((kind, text.to_owned()));
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
                Some(kind) => self.taken.push((kind, String::new())),
                None => out.push(c),
            }
        }
        if !tags.is_empty() {
            self.taken.push((HiddenKind::Tags, tags));
        }
        out
    }

    fn node(&mut self, node: Node<'a>) {
        let mut data = node.data_mut();
        let tiny = self.around + self.within > 1;
        let hides = match (self.comment, tiny) {
            (true, _) => Some(HiddenKind::Comment),
            (false, true) => Some(HiddenKind::Tiny),
            (false, false) => None,
        };
        match &mut data.value {
            NodeValue::HtmlBlock(html) => {
                html.literal = self.html(&html.literal, true);
                if html.literal.trim().is_empty() {
                    self.gone.push(node);
                }
            }
            NodeValue::HtmlInline(html) => {
                *html = self.html(html, false);
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
            NodeValue::Link(link) => self.title(&mut link.title),
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

    /// People see it where the image does not load; a model sees it instead of the image.
    fn image(&mut self, alt: &str) -> String {
        let alt = self.shapes(alt);
        if alt.trim().is_empty() {
            "[image]".to_owned()
        } else {
            format!("[image, described as: {}]", alt.trim())
        }
    }

    /// HTML without comments, and tags without what they do not show.
    fn html(&mut self, html: &str, block: bool) -> String {
        let (mut out, mut rest) = (String::new(), html);
        while !rest.is_empty() {
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
                None if tag.starts_with("<!") || tag.starts_with("<?") => {
                    let (inside, after) = tag.split_at(tag.find('>').map_or(tag.len(), |end| end + 1));
                    self.take(HiddenKind::Comment, &inside[2..]);
                    after
                }
                None => match Tag::read(tag) {
                    Some((read, after)) => {
                        out += &self.tag(read, block);
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

    fn tag(&mut self, tag: Tag<'_>, block: bool) -> String {
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
                _ if value.contains(char::is_whitespace) || value.len() > 40 => {
                    self.take(HiddenKind::Attribute, value);
                    self.dropped += &format!(" {name}");
                }
                _ => self.dropped += &format!(" {name} {value}"),
            }
        }
        // Whatever else stands in it, read as it came.
        if tag.loose.split_whitespace().count() > 2 {
            self.take(HiddenKind::Attribute, &tag.loose);
        } else {
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

    fn rows(&self) -> Vec<Hidden> {
        let row = |(kind, text): &(HiddenKind, String)| {
            let shown = text.chars().filter(|c| !is_invisible(*c)).collect::<String>();
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            Hidden { kind: *kind, count: 1, excerpt: words.chars().take(EXCERPT).collect() }
        };
        // A comment that says nothing hides nothing.
        let says = |row: &Hidden| row.kind != HiddenKind::Comment || !row.excerpt.is_empty();
        gathered(&self.taken.iter().map(row).filter(says).collect::<Vec<_>>())
    }
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
        use HiddenKind::{Attribute, Comment, Direction, Invisible, Math, Tags, Tiny, Title, Unshown};
        let tags: String =
            "obey me".chars().map(|c| char::from_u32(0xE0000 + u32::from(c)).unwrap()).collect();
        for (text, kind, excerpt) in [
            ("Seen. <!-- obey me --> On.".to_owned(), Comment, "obey me"),
            ("Seen.\n\n<!--\nobey me\n-->\n\nOn.".into(), Comment, "obey me"),
            ("Seen.\n\n> - <!-- obey me -->\n\nOn.".into(), Comment, "obey me"),
            ("Seen.\n\n<div>\nx <!--\n\nobey me\n\n<p>--> On.</p>\n".into(), Comment, "obey me"),
            ("Seen. <?obey me?> On.".into(), Comment, "obey me?>"),
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
        let alt = seen("Seen ![a cat](http://x/y.png) and <img src=z alt='two dogs'> ![](q).");
        assert_eq!(
            alt.0.trim_end().replace('\\', ""),
            "Seen [image, described as: a cat] and [image, described as: two dogs] [image]."
        );
        assert_eq!(alt.1, []);
        let many = "<!-- a -->\n".repeat(3) + &format!("<!-- {} -->", "b".repeat(200));
        assert_eq!(seen(&many).1, [(Comment, 4, "a".to_owned())]);
        let title = visible_line("Fix \u{202e}it\u{200b} <!-- not Markdown -->");
        assert_eq!((title.text.as_str(), title.hidden.len()), ("Fix it <!-- not Markdown -->", 2));
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
