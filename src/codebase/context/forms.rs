//! The lengths at which one file can be shown.

use super::{
    Candidate, Role, roles,
    write::{self, Text},
};
use crate::{
    codebase::{Detail, File, dependencies, tokens},
    documents::{self, shorten},
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
    /// What of a shortened text it lacks.
    pub(super) cuts: Vec<shorten::Cut>,
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
    /// What it runs.
    Commands,
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
            Self::Commands => "commands",
            Self::Beginning => "beginning",
            Self::Interface => "interface",
            Self::Names => "names",
        }
    }

    /// Does it say what a file has, and nothing of how that is done?
    pub(super) fn is_interface(self) -> bool {
        matches!(self, Self::Interface | Self::Names)
    }
}

/// Bytes shown of prose that matters a little, and what of its value they give.
const SHORT_PROSE: [(usize, f64); 2] = [(4000, 0.9), (1500, 0.7)];

/// Bytes shown of a text without structure.
const BEGINNING: usize = 2000;

/// How many parts of one file are shown as code, and what of its value they give.
const PARTS: [(usize, f64); 2] = [(6, 0.85), (2, 0.7)];

/// Lines of one part. A longer one is a type with all its methods, or of no use in part.
const PART_LINES: usize = 150;

/// Tokens of what is said of the rest of a file beside its parts.
const BESIDE_PARTS: usize = 500;

/// Tokens of the shortest form of a file that defines very much.
const SHORT_NAMES: usize = 300;

/// The forms of a file that take at most so many tokens, the longest first, each longer than the next.
pub(super) fn of(candidate: &Candidate, file: &File, text: Option<&str>, most: usize) -> Vec<Form> {
    let mut forms = Forms { candidate, most, forms: Vec::new() };
    let pages = pages(file, &candidate.items);
    if let Some(text) = text {
        forms.of_text(&Text::of(text), &pages);
        // Headings and keys alone say little of prose, or of what is run.
        if !forms.forms.is_empty() && (is_prose(&candidate.path) || candidate.role == Role::Automation) {
            return forms.forms;
        }
    }
    for Page { kind, share, label, text } in pages {
        forms.add(kind, share, &[(format!("{label}, with line numbers"), text.text)], text.secrets);
    }
    forms.forms
}

/// A file's summary at one length.
struct Page {
    kind: FormKind,
    share: f64,
    label: &'static str,
    text: Text,
}

/// The longest first. None where nothing is known but imports: those alone tell nobody what a file is for.
fn pages(file: &File, items: &[(u32, u32)]) -> Vec<Page> {
    let summary = file.digest.summary();
    if summary.items.is_empty() {
        return Vec::new();
    }
    let [all, public, names, some] = if file.language.is_code() {
        [
            "Its interface with what it says of itself",
            "Its interface",
            "Names it defines",
            "Some names it defines",
        ]
    } else {
        ["Its outline with what it says of itself", "Its outline", "Its parts", "Some of its parts"]
    };
    let page = |kind, share, label, text: &str| Page { kind, share, label, text: Text::of(text) };
    let all_names = summary.page(Detail::Names);
    vec![
        page(FormKind::Interface, 0.55, all, &summary.page(Detail::All)),
        page(FormKind::Interface, 0.5, public, &summary.page(Detail::Public)),
        page(FormKind::Names, 0.2, names, &all_names),
        page(FormKind::Names, 0.15, some, &some_names(&all_names, items)),
    ]
}

struct Forms<'c> {
    candidate: &'c Candidate,
    most: usize,
    forms: Vec<Form>,
}

impl Forms<'_> {
    fn add(&mut self, kind: FormKind, share: f64, bodies: &[(String, String)], secrets: usize) {
        // No text of so many bytes takes fewer tokens, and none that takes more can be chosen.
        let bytes: usize = bodies.iter().map(|(_, body)| body.len()).sum();
        let blank = bodies.iter().all(|(_, body)| body.trim().is_empty());
        if bytes / 32 > self.most || (blank && kind != FormKind::Whole) {
            return;
        }
        let text = write::section(&self.candidate.path, &self.candidate.why, bodies);
        let tokens = tokens::estimate(&text);
        // What takes as much as something longer is needless.
        if tokens <= self.most && self.forms.iter().all(|longer| longer.tokens > tokens) {
            // A text may have had such a word before.
            let secrets = text.matches(write::REDACTED).count().min(secrets);
            self.forms.push(Form { kind, text, tokens, share, secrets, cuts: Vec::new() });
        }
    }

    fn of_text(&mut self, text: &Text, pages: &[Page]) {
        let Text { text, secrets } = text;
        let path = &self.candidate.path;
        if text.trim().is_empty() {
            if self.candidate.role == Role::Named {
                self.add(FormKind::Whole, 1.0, &one("It is empty", ""), 0);
            }
            return;
        }
        self.add(FormKind::Whole, 1.0, &one("The whole file", text), *secrets);
        if is_prose(path) {
            return self.of_prose(text, *secrets);
        }
        let dependencies: String = dependencies(path, text)
            .iter()
            .map(|(name, version)| write::one_line(&format!("{name} {version}")).trim_end().to_owned() + "\n")
            .collect();
        if !dependencies.is_empty() {
            self.add(FormKind::Dependencies, 0.9, &one("What it depends on", &dependencies), *secrets);
        }
        if self.candidate.role == Role::Automation {
            self.add(FormKind::Commands, 0.9, &one("What it runs", &roles::commands(text)), *secrets);
        }
        if pages.is_empty() || self.candidate.role == Role::Automation {
            self.add(FormKind::Beginning, 0.35, &one("Its beginning", head(text, BEGINNING)), *secrets);
        } else {
            self.of_parts(text, *secrets, pages);
        }
    }

    fn of_parts(&mut self, text: &str, secrets: usize, pages: &[Page]) {
        let short = |page: &&Page| tokens::estimate(&page.text.text) <= BESIDE_PARTS;
        let Some(page) = pages[1..].iter().find(short) else { return };
        let lines: Vec<&str> = text.lines().collect();
        for (count, share) in PARTS {
            let parts = parts(&self.candidate.items, count, lines.len());
            if parts.is_empty() {
                return;
            }
            let mut bodies = one(&format!("{}, with line numbers", page.label), &page.text.text);
            bodies.extend(parts.into_iter().map(|(first, last)| {
                let place =
                    if first == last { format!("Line {first}") } else { format!("Lines {first}–{last}") };
                (place, lines[first - 1..last].join("\n"))
            }));
            self.add(FormKind::Parts, share, &bodies, secrets);
        }
    }

    fn of_prose(&mut self, text: &str, secrets: usize) {
        // A document of ours gives way by its schema.
        let rank = documents::ranks(text).unwrap_or(roles::prose_rank);
        for (room, share) in SHORT_PROSE {
            let shortened = shorten::shorten(text, &rank, room);
            let before = self.forms.len();
            self.add(FormKind::Shortened, share, &one("Shortened", &shortened.text), secrets);
            if let Some(form) = self.forms.get_mut(before) {
                form.cuts = shortened.cuts;
            }
        }
    }
}

fn one(label: &str, body: &str) -> Vec<(String, String)> {
    vec![(label.to_owned(), body.to_owned())]
}

/// First and last lines, counted from 1, in order and without overlap, within the file.
fn parts(items: &[(u32, u32)], count: usize, lines: usize) -> Vec<(usize, usize)> {
    let within = |(first, last): &(u32, u32)| {
        let (first, last) = (*first as usize, (*last as usize).min(lines));
        (first >= 1 && first <= last).then_some((first, last.min(first + PART_LINES - 1)))
    };
    let mut best: Vec<_> = items.iter().filter_map(within).take(count).collect();
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

/// As many lines of a page of names as are short: first those of what matters most, then from the top.
fn some_names(page: &str, items: &[(u32, u32)]) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let place = |line: &str| line.strip_prefix('L')?.split(['-', ' ']).next()?.parse::<u32>().ok();
    let matters = |line: &&str| place(line).is_some_and(|line| items.iter().any(|(first, _)| *first == line));
    let (best, others): (Vec<usize>, Vec<usize>) = (0..lines.len()).partition(|at| matters(&lines[*at]));
    let mut room = SHORT_NAMES;
    let mut shown: Vec<usize> = Vec::new();
    for at in best.into_iter().chain(others) {
        // Each line ends in a break.
        let Some(left) = room.checked_sub(tokens::estimate(lines[at]) + 1) else { break };
        room = left;
        shown.push(at);
    }
    shown.sort_unstable();
    let mut some: String = shown.iter().map(|at| format!("{}\n", lines[*at])).collect();
    match lines.len() - shown.len() {
        0 => {}
        more => some.push_str(&format!("… and {more} more\n")),
    }
    some
}

pub(super) fn is_prose(path: &str) -> bool {
    let path = path.to_lowercase();
    [".md", ".mdx", ".markdown"].iter().any(|ending| path.ends_with(ending))
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
