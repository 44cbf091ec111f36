//! Copy of a change's files, to which the drafter writes before it answers.
//!
//! Each write must follow the rules of the change. A refused write returns the same message that the checks would
//! report. Written files are merged into the drafter's answer, which is then checked like any other answer.

use std::collections::BTreeMap;

use similar::TextDiff;

use super::{
    ChangeScope, ChangeSection, FileChange, FileChangeBody, FileTexts, Kind, ParsedChange, WHOLE_LINES,
    apply::{apply_file, with_inline_tests},
    check,
    parse::{count_backticks, parse, parse_body},
};
use crate::{documents::FileTree, limits};

/// Copy of the files, with the drafter's writes.
#[derive(Debug, Clone)]
pub struct Workspace {
    allowed: ChangeScope,
    /// Texts of the files at the base commit.
    base: BTreeMap<String, String>,
    /// Texts of the files after applying the change's current text, which is the locked tests or the previous draft.
    /// `None` if the file is deleted.
    drafted: BTreeMap<String, Option<String>>,
    /// Previous draft; empty if there was no draft.
    draft: String,
    written: BTreeMap<String, String>,
}

impl Workspace {
    /// Creates a workspace in which nothing has been written.
    pub fn new(allowed: ChangeScope, base: BTreeMap<String, String>, text: &str) -> Self {
        let change = parse(text);
        let mut drafted = BTreeMap::<String, Option<String>>::new();
        for file in &change.files {
            let now = drafted.get(&file.path).cloned().unwrap_or_else(|| base.get(&file.path).cloned());
            // The checks report edits that do not apply.
            if let Ok(text) = apply_file(file, now.as_deref()) {
                drafted.insert(file.path.clone(), text);
            }
        }
        let base = match allowed.part {
            ChangeSection::Tests => base,
            _ => with_inline_tests(&change, &base),
        };
        // Locked tests are not part of the answer.
        let own = change.files.iter().any(|file| file.part == drafted_section(&allowed));
        let draft = if own { text.to_owned() } else { String::new() };
        Self { allowed, base, drafted, draft, written: BTreeMap::new() }
    }

    /// Returns the text of a file if the file differs from the commit. The outer `None` means that the file is
    /// unchanged; the inner `None` means that it is removed.
    pub fn file_text(&self, path: &str) -> Option<Option<&str>> {
        let written = self.written.get(path).map(|text| Some(text.as_str()));
        written.or_else(|| self.drafted.get(path).map(Option::as_deref))
    }

    /// Returns all files that differ from the commit.
    pub fn changed_files(&self) -> FileTexts {
        let made = self.drafted.iter().filter(|(path, _)| !self.written.contains_key(*path));
        let made = made.map(|(path, text)| (path.clone(), text.clone()));
        made.chain(self.written.iter().map(|(path, text)| (path.clone(), Some(text.clone())))).collect()
    }

    /// Returns the files that the drafter has written, to store them.
    pub fn written_files(&self) -> &BTreeMap<String, String> {
        &self.written
    }

    /// Restores written files that were stored.
    pub fn restore_written(&mut self, written: BTreeMap<String, String>) {
        self.written = written;
    }

    /// Writes a file from `block`, which contains the file's full text or search and replace blocks for its current
    /// text.
    ///
    /// # Errors
    /// Returns the mistakes that the checks would report.
    pub fn write_file(&mut self, path: &str, block: &str, tree: &dyn FileTree) -> Result<(), String> {
        let base = self.base.get(path).map(String::as_str);
        let now = self.file_text(path).unwrap_or(base);
        let of = |kind: Kind, block: &str| FileChange {
            part: drafted_section(&self.allowed),
            body: parse_body(block, kind),
            ..FileChange::for_path(path, kind)
        };
        let change = |file| ParsedChange { files: vec![file], ..ParsedChange::default() };
        let kind = if tree.is_file(path) { Kind::Modify } else { Kind::Add };
        let mut wrong = Vec::new();
        check::check_touched_files(&change(of(kind, block)), &self.allowed, tree, &mut wrong);
        if wrong.is_empty() {
            // A full text does not depend on the current one.
            let here = match of(Kind::Modify, block) {
                edits if matches!(edits.body, FileChangeBody::Edits(_)) => (edits, now),
                _ => (of(kind, block), base),
            };
            let text = apply_file(&here.0, here.1).map_err(|whys| format!("it {}", whys.join("; it ")))?;
            // The change will make the same text, to the byte.
            let file = of(kind, &self.block_content(path, base, &text.unwrap_or_default()));
            for (path, text) in check::apply_blocks(&change(file), &self.base, tree, &mut wrong) {
                let Some(text) = text.filter(|_| wrong.is_empty()) else { continue };
                let mut after = self.clone();
                after.written.insert(path, text);
                if after.merge_into_draft(&self.draft).len() > limits::DOCUMENT_BYTES {
                    let most = limits::DOCUMENT_BYTES / 1024;
                    return Err(format!(
                        "with it your answer would be longer than the {most} KB that are read"
                    ));
                }
                *self = after;
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(wrong.into_iter().map(|mistake| mistake.message).collect::<Vec<_>>().join("; "))
    }

    /// Merges the written files into the drafter's answer. A file heading without a code block gets the block of the
    /// written file. A written file without a heading gets both. If the answer itself has a block for a file, that
    /// block is kept, because it is newer.
    pub fn merge_into_answer(&self, answer: &str) -> String {
        self.merge(answer, false)
    }

    /// Merges the written files into the previous draft, replacing the draft's blocks for these files.
    pub fn merge_into_draft(&self, draft: &str) -> String {
        self.merge(draft, true)
    }

    /// Replaces the text of one file in `draft`. Returns `None` if the drafted section does not have the file.
    pub fn replace_file(mut self, draft: &str, path: &str, text: &str) -> Option<String> {
        let is_drafted = |file: &FileChange| {
            (file.part == ChangeSection::Tests) == (self.allowed.part == ChangeSection::Tests)
        };
        parse(draft).files.iter().find(|file| file.path == path && is_drafted(file))?;
        self.written = BTreeMap::from([(path.to_owned(), text.to_owned())]);
        Some(self.merge_into_draft(draft))
    }

    /// Section that a written file belongs to.
    fn section_of(&self, path: &str) -> ChangeSection {
        let is_inline = self.allowed.part == ChangeSection::Tests && self.allowed.inline.contains(path);
        if is_inline || self.allowed.tests.contains(path) {
            ChangeSection::Tests
        } else {
            ChangeSection::Code
        }
    }

    /// Returns the content of a code block that turns `base` into `text`. The code of a file with inline tests is never
    /// written as a whole, because its tests may be replaced later.
    fn block_content(&self, path: &str, base: Option<&str>, text: &str) -> String {
        let longest = if self.allowed.inline.contains(path) { 0 } else { WHOLE_LINES };
        block_content(base, text, longest)
    }

    fn merge(&self, text: &str, over: bool) -> String {
        self.written.iter().fold(text.to_owned(), |text, (path, written)| {
            let base = self.base.get(path).map(String::as_str);
            let content = self.block_content(path, base, written);
            let (block, change) = (fenced(&content, ""), parse(&text));
            let of_part = |file: &&FileChange| {
                (file.part == ChangeSection::Tests) == (self.section_of(path) == ChangeSection::Tests)
            };
            let file = change.files.iter().filter(of_part).find(|file| file.path == *path);
            let (range, block) = match file.map(|file| (file, &file.block)) {
                Some((_, Some((there, _)))) if over => {
                    let fence = text[there.clone()].lines().next().unwrap_or_default();
                    (there.clone(), fenced(&content, fence.trim_start_matches('`')))
                }
                Some((FileChange { kind: Kind::Delete, .. }, _) | (_, Some(_))) => return text,
                Some((file, None)) => {
                    let end = file.range.start + text[file.range.clone()].trim_end().len();
                    (end..file.range.end, format!("\n\n{block}\n"))
                }
                None => {
                    let part = self.section_of(path);
                    let kind = if base.is_some() { Kind::Modify } else { Kind::Add };
                    let heading = format!("### `{path}` ({})", kind.as_str());
                    let section = change.sections.iter().find(|(known, _)| *known == part);
                    let (end, title) = match section {
                        Some((_, range)) => (range.end, String::new()),
                        None => (text.len(), format!("## {}\n\n", part.as_str())),
                    };
                    let start = text[..end].trim_end().len();
                    (start..end, format!("\n\n{title}{heading}\n\n{block}\n"))
                }
            };
            format!("{}{block}{}", &text[..range.start], &text[range.end..])
        })
    }
}

fn drafted_section(allowed: &ChangeScope) -> ChangeSection {
    if allowed.part == ChangeSection::Tests { ChangeSection::Tests } else { ChangeSection::Code }
}

/// Returns the content of a code block that turns `base` into `text`.
pub(super) fn block_content(base: Option<&str>, text: &str, longest_whole: usize) -> String {
    let plain = |text: &str| text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let new = plain(text);
    let Some(base) = base.filter(|base| base.lines().count() > longest_whole) else { return new };
    let old = plain(base);
    let (before, after): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let diff = TextDiff::from_slices(&before, &after);
    // Doubles the context lines until each search matches once. The last try takes all lines.
    let tries = (0..16).map(|n| {
        let groups = diff.grouped_ops(1 << n).into_iter().filter_map(|group| {
            let (first, last) = (group.first()?, group.last()?);
            let lines = |all: &[&str], from: usize, to: usize| {
                all[from..to].iter().map(|line| format!("{line}\n")).collect::<String>()
            };
            let search = lines(&before, first.old_range().start, last.old_range().end);
            let replace = lines(&after, first.new_range().start, last.new_range().end);
            Some(format!("<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n"))
        });
        groups.collect::<Vec<_>>().join("\n")
    });
    let makes_it = |block: &String| {
        let file =
            FileChange { body: parse_body(block, Kind::Modify), ..FileChange::for_path("", Kind::Modify) };
        apply_file(&file, Some(base)).is_ok_and(|made| made.is_some_and(|made| plain(&made) == new))
    };
    tries.into_iter().find(makes_it).unwrap_or(new)
}

/// Puts a block of this language into a fence that is longer than any fence inside it.
pub(super) fn fenced(block: &str, language: &str) -> String {
    let longest = block.lines().map(|line| count_backticks(line.trim_start())).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let end = if block.is_empty() || block.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{block}{end}{fence}\n")
}
