//! Builds the forms in which one file can be shown; the forms range from the whole text to a list of names.

use super::{
    ContextCandidate, FileRole,
    parts::FilePart,
    untrusted_text::{self, RedactedText},
};
use crate::codebase::{Detail, IndexedFile, Language, tokens};

/// One rendered form of a file.
#[derive(Debug, Clone)]
pub(super) struct FileForm {
    pub(super) kind: FormKind,
    pub(super) text: String,
    pub(super) tokens: usize,
    /// Share of the file's value that this form provides. The share can exceed 1.
    pub(super) share: f64,
    pub(super) secrets: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormKind {
    Whole,
    /// The parts of the file that match the request best. For a file that the request names, a short interface is
    /// added.
    Parts,
    Interface,
    Names,
}

impl FormKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Parts => "parts",
            Self::Interface => "interface",
            Self::Names => "names",
        }
    }

    /// Whether the form shows only declarations without their implementations.
    pub(super) fn is_interface(self) -> bool {
        matches!(self, Self::Interface | Self::Names)
    }
}

/// Numbers of parts for which a form is tried, largest first.
const PARTS: [usize; 9] = [24, 16, 12, 8, 6, 4, 3, 2, 1];

/// Number of bytes of the best possible parts that together are worth as much as one whole file.
const PARTS_BYTES: f64 = 4000.0;

/// Total worth of the shown parts at which a convention, manifest or automation file reaches its full value.
const ENOUGH: f64 = 1000.0;

/// Share of the value of a file found by ranking that showing any part of the file provides.
const GLANCE: f64 = 0.05;
const INTERFACE: f64 = 0.5;

/// Maximum number of tokens of the interface that is shown together with the parts of a named file.
const BESIDE_PARTS: usize = 500;

/// Maximum number of tokens of a file's shortest form. A file with very many definitions has its list of names cut to
/// this size.
const SHORT_NAMES: usize = 300;

/// Returns the forms of a file that have at most `most` tokens, longest first.
pub(super) fn build_forms(
    candidate: &ContextCandidate,
    file: &IndexedFile,
    text: Option<&RedactedText>,
    parts: &[FilePart],
    most: usize,
) -> Vec<FileForm> {
    let mut forms = FileFormBuilder { candidate, most, forms: Vec::new() };
    let pages = summary_pages(file);
    if let Some(text) = text {
        forms.add_text_forms(text, parts, &pages);
        // For these files the text alone is enough: found files, Markdown, and automation files, whose outline says
        // little.
        let by_text = matches!(candidate.role, FileRole::Found | FileRole::Automation)
            || file.language == Language::Markdown;
        if by_text && !forms.forms.is_empty() {
            return forms.forms;
        }
    }
    for SummaryPage { kind, share, label, text } in pages {
        forms.add_form(kind, share, &[(format!("{label}, with line numbers"), text.text)], text.secrets);
    }
    forms.forms
}

/// A file's summary at one level of detail.
struct SummaryPage {
    kind: FormKind,
    share: f64,
    label: &'static str,
    text: RedactedText,
}

/// Returns the file's summaries, longest first. Returns an empty list for a file that contains only imports, because
/// imports do not show the file's purpose.
fn summary_pages(file: &IndexedFile) -> Vec<SummaryPage> {
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
    let page =
        |kind, share, label, text: &str| SummaryPage { kind, share, label, text: RedactedText::new(text) };
    let all_names = summary.render(Detail::Names);
    vec![
        page(FormKind::Interface, INTERFACE, all, &summary.render(Detail::All)),
        page(FormKind::Interface, 0.9 * INTERFACE, public, &summary.render(Detail::Public)),
        page(FormKind::Names, 0.2, names, &all_names),
        page(FormKind::Names, 0.15, some, &first_names(&all_names)),
    ]
}

struct FileFormBuilder<'c> {
    candidate: &'c ContextCandidate,
    most: usize,
    forms: Vec<FileForm>,
}

impl FileFormBuilder<'_> {
    fn add_form(&mut self, kind: FormKind, share: f64, bodies: &[(String, String)], secrets: usize) {
        // A text takes at least one token per 32 bytes, so a larger one cannot fit.
        let bytes: usize = bodies.iter().map(|(_, body)| body.len()).sum();
        let blank = bodies.iter().all(|(_, body)| body.trim().is_empty());
        if bytes / 32 > self.most || (blank && kind != FormKind::Whole) {
            return;
        }
        let text = untrusted_text::file_section(&self.candidate.path, &self.candidate.why, bodies);
        let tokens = tokens::estimate_tokens(&text);
        // A form that costs as much as a longer one is useless.
        if tokens <= self.most && self.forms.iter().all(|longer| longer.tokens > tokens) {
            // The original text may contain the redaction marker itself.
            let secrets = text.matches(untrusted_text::REDACTED).count().min(secrets);
            self.forms.push(FileForm { kind, text, tokens, share, secrets });
        }
    }

    fn add_text_forms(&mut self, text: &RedactedText, parts: &[FilePart], pages: &[SummaryPage]) {
        let RedactedText { text, secrets } = text;
        if text.trim().is_empty() {
            if self.candidate.role == FileRole::Named {
                self.add_form(FormKind::Whole, 1.0, &single_body("It is empty", ""), 0);
            }
            return;
        }
        let worth: f64 = parts.iter().map(part_worth).sum();
        let (base, unit) = match self.candidate.role {
            FileRole::Named => (INTERFACE, PARTS_BYTES),
            FileRole::Found => (GLANCE, PARTS_BYTES),
            // Project files reach their full value after a few good parts.
            _ => (0.0, worth.min(ENOUGH)),
        };
        let share = |parts: &[FilePart]| {
            let share = base + parts.iter().map(part_worth).sum::<f64>() / unit;
            if base > 0.0 { share } else { share.min(1.0) }
        };
        self.add_form(FormKind::Whole, share(parts), &single_body("The whole file", text), *secrets);
        self.add_part_forms(text, *secrets, parts, &share, pages);
    }

    /// Adds forms with different numbers of the best parts. Within a form, the parts are in line order. For a named
    /// file, each form starts with a short interface.
    fn add_part_forms(
        &mut self,
        text: &str,
        secrets: usize,
        parts: &[FilePart],
        share: &dyn Fn(&[FilePart]) -> f64,
        pages: &[SummaryPage],
    ) {
        let short = |page: &&SummaryPage| tokens::estimate_tokens(&page.text.text) <= BESIDE_PARTS;
        let page = pages.iter().skip(1).find(short).filter(|_| self.candidate.role == FileRole::Named);
        let page = page.map(|page| (format!("{}, with line numbers", page.label), page.text.text.clone()));
        let lines: Vec<&str> = text.lines().collect();
        let mut best = parts.to_vec();
        best.sort_by(|a, b| b.worth.total_cmp(&a.worth).then(a.first.cmp(&b.first)));
        for count in PARTS.into_iter().filter(|count| *count < parts.len()) {
            best.truncate(count);
            let shown = merge_ranges(&best).into_iter().map(|(first, last)| {
                let place =
                    if first == last { format!("Line {first}") } else { format!("Lines {first}–{last}") };
                (place, lines[first - 1..last].join("\n"))
            });
            let bodies: Vec<_> = page.clone().into_iter().chain(shown).collect();
            self.add_form(FormKind::Parts, share(&best), &bodies, secrets);
        }
    }
}

fn single_body(label: &str, body: &str) -> Vec<(String, String)> {
    vec![(label.to_owned(), body.to_owned())]
}

fn part_worth(part: &FilePart) -> f64 {
    part.worth * part.bytes as f64
}

/// Returns the line ranges of the parts in line order. Adjacent parts are merged into one range.
fn merge_ranges(parts: &[FilePart]) -> Vec<(usize, usize)> {
    let mut parts: Vec<(usize, usize)> = parts.iter().map(|part| (part.first, part.last)).collect();
    parts.sort_unstable();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for (first, last) in parts {
        match ranges.last_mut() {
            Some(before) if first == before.1 + 1 => before.1 = last,
            _ => ranges.push((first, last)),
        }
    }
    ranges
}

/// Returns the first lines of `page` that fit into [`SHORT_NAMES`] tokens, followed by the number of omitted lines.
fn first_names(page: &str) -> String {
    let mut budget = SHORT_NAMES;
    let mut some = String::new();
    for (at, line) in page.lines().enumerate() {
        // Plus one token for the line break.
        let Some(left) = budget.checked_sub(tokens::estimate_tokens(line) + 1) else {
            return format!("{some}… and {} more\n", page.lines().count() - at);
        };
        budget = left;
        some.push_str(line);
        some.push('\n');
    }
    some
}
