//! The lengths at which one file can be shown.

use super::{Candidate, Role, roles, write};
use crate::{
    codebase::{Detail, File, tokens},
    documents::{secrets, sections},
};

/// A file as it would be shown.
#[derive(Debug, Clone)]
pub(super) struct Form {
    pub(super) kind: FormKind,
    /// The whole section, heading and fence included.
    pub(super) text: String,
    pub(super) tokens: usize,
    /// What of the file's value it gives.
    pub(super) share: f64,
    /// Credentials blacked out in it.
    pub(super) secrets: usize,
}

/// How much of a file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormKind {
    Whole,
    /// The interface, and the code of what matters most in it.
    Parts,
    /// Prose without its less needed sections.
    Shortened,
    /// What of it names other packages.
    Dependencies,
    Beginning,
    Interface,
    Names,
}

impl FormKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Parts => "interface and parts",
            Self::Shortened => "shortened",
            Self::Dependencies => "dependencies",
            Self::Beginning => "beginning",
            Self::Interface => "interface",
            Self::Names => "names",
        }
    }

    /// What of a file's value it gives.
    fn share(self) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::Parts => 0.85,
            Self::Shortened | Self::Dependencies => 0.7,
            Self::Interface => 0.5,
            Self::Beginning => 0.35,
            Self::Names => 0.15,
        }
    }
}

/// A file's summary at three lengths.
#[derive(Debug)]
pub(super) struct Pages {
    all: String,
    public: String,
    names: String,
}

impl Pages {
    pub(super) fn of(file: &File) -> Self {
        let page = |detail| file.digest.summary().page(detail);
        Self { all: page(Detail::All), public: page(Detail::Public), names: page(Detail::Names) }
    }
}

/// Shown of prose that matters a little.
const SHORT_PROSE: [usize; 2] = [4000, 1500];

/// Shown of a text without structure.
const BEGINNING: usize = 2000;

/// Parts of one file whose code is shown.
const PARTS: usize = 6;

/// The forms of a file, the longest first, each longer than the next.
pub(super) fn of(candidate: &Candidate, text: Option<&str>) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    let mut add = |kind: FormKind, share: f64, bodies: &[(String, String)], secrets: usize| {
        if bodies.iter().all(|(_, body)| body.trim().is_empty()) {
            return;
        }
        let text = write::section(&candidate.path, &candidate.why, bodies);
        let tokens = tokens::estimate(&text);
        // What takes as much as something longer is needless.
        if forms.iter().all(|longer| longer.tokens > tokens) {
            forms.push(Form { kind, text, tokens, share, secrets });
        }
    };
    let one = |label: &str, body: &str| vec![(label.to_owned(), body.to_owned())];
    if let Some(text) = text {
        let Blacked { text, ranges } = Blacked::of(text);
        let secrets = ranges.len();
        add(FormKind::Whole, 1.0, &one("The whole file", &text), secrets);
        match candidate.role {
            Role::Manifest => {
                if let Some(dependencies) = roles::dependencies(&candidate.path, &text) {
                    let label = "What it says of dependencies";
                    add(
                        FormKind::Dependencies,
                        FormKind::Dependencies.share(),
                        &one(label, &dependencies),
                        0,
                    );
                }
            }
            _ if is_prose(&candidate.path) => {
                for (at, room) in SHORT_PROSE.into_iter().enumerate() {
                    let shortened = sections::shorten(&text, &roles::prose_rank, room);
                    let share = FormKind::Shortened.share() - 0.2 * at as f64;
                    add(FormKind::Shortened, share, &one("Shortened", &shortened.text), secrets);
                }
            }
            _ if !candidate.items.is_empty() => {
                let mut bodies =
                    one("Its interface, with line numbers", &redacted(&candidate.pages.public).0);
                let lines: Vec<&str> = text.lines().collect();
                let parts = parts(&candidate.items, lines.len());
                bodies.extend(parts.into_iter().map(|(first, last)| {
                    (format!("Lines {first}–{last}"), lines[first - 1..last].join("\n"))
                }));
                add(FormKind::Parts, FormKind::Parts.share(), &bodies, secrets);
            }
            _ => {}
        }
        if candidate.pages.public.trim().is_empty() && !is_prose(&candidate.path) {
            let beginning = head(&text, BEGINNING);
            add(FormKind::Beginning, FormKind::Beginning.share(), &one("Its beginning", beginning), secrets);
        }
    }
    let pages = [
        (
            FormKind::Interface,
            0.1,
            "Its interface with what it says of itself, with line numbers",
            &candidate.pages.all,
        ),
        (FormKind::Interface, 0.0, "Its interface, with line numbers", &candidate.pages.public),
        (FormKind::Names, 0.0, "Names it defines, with line numbers", &candidate.pages.names),
    ];
    for (kind, more, label, page) in pages {
        let (page, secrets) = redacted(page);
        add(kind, kind.share() + more, &one(label, &page), secrets);
    }
    forms
}

/// First and last lines, counted from 1, in order and without overlap, within the file.
fn parts(items: &[(u32, u32)], lines: usize) -> Vec<(usize, usize)> {
    let within = |(first, last): &(u32, u32)| {
        let (first, last) = (*first as usize, (*last as usize).min(lines));
        (first >= 1 && first <= last).then_some((first, last))
    };
    let mut best: Vec<_> = items.iter().filter_map(within).take(PARTS).collect();
    best.sort_unstable();
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for (first, last) in best {
        match parts.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => parts.push((first, last)),
        }
    }
    parts
}

pub(super) fn is_prose(path: &str) -> bool {
    let path = path.to_lowercase();
    [".md", ".mdx", ".markdown"].iter().any(|ending| path.ends_with(ending))
}

fn redacted(text: &str) -> (String, usize) {
    let Blacked { text, ranges } = Blacked::of(text);
    (text, ranges.len())
}

/// A text with its credentials blacked out and every line where it was.
struct Blacked {
    text: String,
    ranges: Vec<std::ops::Range<usize>>,
}

impl Blacked {
    fn of(text: &str) -> Self {
        let ranges = secrets::find(text);
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for range in &ranges {
            out.push_str(&text[from..range.start]);
            out.push_str("[redacted]");
            let lines = text[range.clone()].matches('\n').count();
            out.extend(std::iter::repeat_n('\n', lines));
            from = range.end;
        }
        out.push_str(&text[from..]);
        Self { text: out, ranges }
    }
}

/// The first lines of a text that fit in `most` bytes; all of it if it fits.
fn head(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    match text.as_bytes()[..most].iter().rposition(|b| *b == b'\n') {
        Some(at) => &text[..=at],
        None => "",
    }
}
