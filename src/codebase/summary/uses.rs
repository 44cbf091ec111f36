//! The names that code uses, told by how they stand in a line.

use std::collections::HashSet;

use foldhash::fast::RandomState;

use crate::{codebase::Language, limits};

/// Names that look called (`name(`) or entered (`name::`) or begin with a capital, in order, each once. Comments and
/// strings are left out as far as their line shows them.
pub(super) fn of(language: Language, text: &str) -> Vec<String> {
    let quotes: &[char] = if language == Language::Rust { &['"'] } else { &['"', '\'', '`'] };
    let mut found = HashSet::with_hasher(RandomState::default());
    for line in text.lines().map(str::trim_start) {
        if line.starts_with(['*', '#']) || line.starts_with("/*") {
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        for piece in code.split(quotes).step_by(2) {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
            let mut rest = piece;
            while let Some(start) = rest.bytes().position(is_part) {
                let end = rest.bytes().skip(start).position(|byte| !is_part(byte));
                let (name, after) = rest.split_at(end.map_or(rest.len(), |end| start + end));
                let name = &name[start..];
                let used =
                    name.starts_with(char::is_uppercase) || after.starts_with('(') || after.starts_with("::");
                if used && (2..=limits::NAME_BYTES).contains(&name.len()) {
                    found.insert(name);
                }
                rest = after;
            }
        }
    }
    let mut found: Vec<String> = found.into_iter().map(str::to_owned).collect();
    found.sort_unstable();
    found
}
