//! Reads the outlines of files that are not code: Markdown headings, and the tables and top-level keys of settings
//! files.

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::{CodeItem, CodeItemKind, Summary, source::line};
use crate::{codebase::Language, limits};

pub(super) fn read_outline(language: Language, text: &str) -> Summary {
    let mut outline = OutlineBuilder {
        items: Vec::new(),
        open: Vec::new(),
        found: 0,
        room: super::kept_bytes_limit(text),
        full: false,
    };
    match language {
        Language::Markdown => add_headings(text, &mut outline),
        Language::Json => {
            let first =
                text.lines().filter(|line| line.trim_start().starts_with('"')).map(indentation).next();
            if let Some(indentation) = first.filter(|_| text.trim_start_matches('\u{feff}').starts_with('{'))
            {
                add_keys(text, ':', indentation, &mut outline);
            }
        }
        Language::Toml => add_keys(text, '=', 0, &mut outline),
        Language::Yaml => add_keys(text, ':', 0, &mut outline),
        _ => {}
    }
    outline.close(0, text.lines().count());
    Summary { items: outline.items, partial: outline.full, ..Summary::default() }
}

struct OutlineBuilder {
    items: Vec<CodeItem>,
    /// Items whose end has not been reached yet, each with its level. The innermost item is last.
    open: Vec<(usize, CodeItem)>,
    found: usize,
    room: usize,
    full: bool,
}

impl OutlineBuilder {
    /// Adds an item. Its signature is `piece`, which is a part of line `row`, counted from 0.
    fn add(&mut self, level: usize, name: &str, piece: &str, row: usize) {
        let (name, signature) = (name.trim(), piece.trim());
        if name.is_empty() || signature.len() > limits::SIGNATURE_BYTES {
            return;
        }
        let bytes = name.len() + signature.len() + limits::SUMMARY_ITEM_BYTES;
        if self.found >= limits::SUMMARY_ITEMS || bytes > self.room {
            self.full = true;
            return;
        }
        self.found += 1;
        self.room -= bytes;
        self.close(level, row);
        let item =
            CodeItem::new(CodeItemKind::Section, name.to_owned(), signature.to_owned(), line(row), line(row));
        self.open.push((level, item));
    }

    /// Ends all open items of this level or a deeper level before line `row`. Each ended item is moved into its parent.
    fn close(&mut self, level: usize, row: usize) {
        while let Some((_, mut done)) = self.open.pop_if(|(open, _)| *open >= level) {
            done.end = done.line.max(u32::try_from(row).unwrap_or(u32::MAX));
            self.open.last_mut().map_or(&mut self.items, |(_, holder)| &mut holder.children).push(done);
        }
    }
}

fn add_headings(text: &str, outline: &mut OutlineBuilder) {
    let (mut row, mut counted) = (0, 0);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_YAML_STYLE_METADATA_BLOCKS).into_offset_iter()
    {
        if let Event::Start(Tag::Heading { level, .. }) = event {
            row += text[counted..range.start].matches('\n').count();
            counted = range.start;
            let heading = text[range].lines().next().unwrap_or_default().trim_end();
            outline.add(level as usize, heading.trim_matches('#'), heading, row);
        }
    }
}

/// Adds an item for each `key: value`, `key = value` and `[table]` line whose indentation is exactly `margin`. Skips
/// keys inside a table.
fn add_keys(text: &str, sign: char, margin: usize, outline: &mut OutlineBuilder) {
    let mut in_table = false;
    for (row, line) in text.lines().enumerate() {
        let bare = line.trim_start_matches('\u{feff}').trim();
        if indentation(line) != margin {
            continue;
        }
        let table = bare.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name);
        let is_name = |name: &str| {
            let marks =
                |c: char| matches!(c, '_' | '-' | '.' | '/' | '$' | '*' | '"' | '\'' | ' ' | ':' | '@');
            name.chars().all(|c| c.is_alphanumeric() || marks(c)) && !name.starts_with(['-', ' '])
        };
        if let Some(name) = table.filter(|_| sign == '=').map(|name| name.trim_start_matches('[')) {
            if is_name(name) {
                in_table = true;
                outline.add(0, name, bare, row);
            }
        } else if let Some((key, value)) = bare.split_once(sign).filter(|_| !in_table)
            && is_name(key)
            && (sign == '=' || value.is_empty() || value.starts_with([' ', '\t']) || key.ends_with('"'))
        {
            let long = bare.len() > key.len() + limits::SUMMARY_VALUE_BYTES;
            let piece = if long { &bare[..=key.len()] } else { bare };
            outline.add(0, key.trim().trim_matches(['"', '\'']), piece, row);
        }
    }
}

/// Returns the number of spaces and tabs at the start of a line.
fn indentation(line: &str) -> usize {
    let line = line.trim_start_matches('\u{feff}');
    line.len() - line.trim_start_matches([' ', '\t']).len()
}
