//! Locations in a design, in the notation of reviewers.

use std::ops::Range;

use super::{ParsedDesign, parse};
use crate::documents::{FileTree, markdown, path_rules};

/// Returns whether the location that a reviewer cites exists. A location is a section (number or title), another
/// heading, a requirement, a scenario, or a path of the design or repository. A path may have a line number.
pub fn place_exists(text: &str, place: &str, tree: &dyn FileTree) -> bool {
    let place = place.trim().trim_matches('`').trim();
    if place.is_empty() || place.len() > 400 {
        return false;
    }
    let file = path_of_place(place);
    find_place(&parse(text), place).is_some()
        || (path_rules::refusal_reason(file).is_none()
            && (tree.is_file(file) || tree.is_dir(file.trim_end_matches('/'))))
        || markdown::parse_outline(text).headings.iter().any(|h| h.text.eq_ignore_ascii_case(place))
}

/// Returns the 1-based number of the line where a location starts; `None` if the text has no such location.
pub fn line_of(text: &str, place: &str) -> Option<usize> {
    let range = find_place(&parse(text), place.trim().trim_matches('`').trim())?;
    Some(first_line(text, range))
}

/// Returns the 1-based number of the first line in the range that is not blank.
pub(in crate::documents) fn first_line(text: &str, range: Range<usize>) -> usize {
    let blank = text[range.clone()].len() - text[range.clone()].trim_start().len();
    text[..range.start + blank].matches('\n').count() + 1
}

/// Returns whether the text at this location is the same in both versions. Returns false if either version lacks the
/// location.
pub fn unchanged_at(before: &str, now: &str, place: &str) -> bool {
    let place = place.trim().trim_matches('`').trim();
    let (then, there) = (find_place(&parse(before), place), find_place(&parse(now), place));
    then.zip(there).is_some_and(|(then, there)| before[then].trim() == now[there].trim())
}

/// Returns the range of a location: a section (number or title), a requirement, a scenario, or a row of the files
/// table.
fn find_place(lld: &ParsedDesign, place: &str) -> Option<Range<usize>> {
    let bare = strip_section_word(place);
    let (word, _) = bare.split_once([' ', ',', '(', ':']).unwrap_or((bare, ""));
    let number = word.trim_end_matches('.');
    let upper = word.to_ascii_uppercase();
    let section = lld.sections.iter().find(|s| s.number == number || names_section(&s.title, bare));
    let requirement = || lld.requirements.iter().find(|r| r.id == upper).map(|r| r.range.clone());
    let named = |id: &str| id == number || place.strip_prefix("scenario ") == Some(id);
    let scenario = || lld.scenarios.iter().find(|s| named(&s.id)).map(|s| s.range.clone());
    let file = || lld.files.iter().find(|f| f.path == path_of_place(place)).map(|f| f.range.clone());
    section.map(|s| s.body.clone()).or_else(requirement).or_else(scenario).or_else(file)
}

/// Returns whether a cited location starts with the title of a section, as `Files Changed: src/lib.rs` does.
pub(in crate::documents) fn names_section(title: &str, place: &str) -> bool {
    let Some(begins) = place.get(..title.len()) else { return false };
    let rest = &place[title.len()..];
    begins.eq_ignore_ascii_case(title) && (rest.is_empty() || rest.trim_start().starts_with([',', '(', ':']))
}

/// Returns the path in a location such as `path:line`.
pub(in crate::documents) fn path_of_place(place: &str) -> &str {
    match place.rsplit_once(':') {
        Some((path, line)) if !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit() || b == b'-') => {
            path
        }
        _ => place,
    }
}

fn strip_section_word(place: &str) -> &str {
    let place = place.trim_start_matches(['§', '#', ' ']);
    match place.get(..8) {
        Some(word) if word.eq_ignore_ascii_case("section ") => place[8..].trim_start(),
        _ => place,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn finding_place_can_be_a_section_a_requirement_a_scenario_or_a_path() {
        let text = filled_template();
        for real in [
            "2.1",
            "§2.1",
            "Section 3",
            "## Risks & Mitigations",
            "Requirements",
            "REQ-1",
            "req-1",
            "010",
            "src/config.rs:12",
            "`src/lib.rs`",
            "src/",
            "Open Questions",
            "Files Changed: src/lib.rs",
            "requirements, REQ-1",
            "Test Scenarios (010)",
        ] {
            assert!(place_exists(&text, real, &DesignTestTree), "{real}");
        }
        let line = |place| line_of(&text, place).map(|line| text.lines().nth(line - 1).unwrap().to_owned());
        assert!(line("REQ-1").unwrap().starts_with("1. "), "{:?}", line("REQ-1"));
        assert!(line("`src/lib.rs`").unwrap().starts_with("| `src/lib.rs` |"), "{:?}", line("`src/lib.rs`"));
        assert_eq!((line("9.9"), line_of("", "1")), (None, None));
        for unreal in [
            "",
            "2.9",
            "REQ-9",
            "src/none.rs",
            "../src/lib.rs",
            "somewhere",
            "020",
            ":",
            "§",
            "Requirements of others",
        ] {
            assert!(!place_exists(&text, unreal, &DesignTestTree), "{unreal}");
        }
    }

    #[test]
    fn location_of_a_finding_counts_as_changed_only_if_its_text_changed() {
        let before = filled_template();
        let now = before.replacen("Modify | the exit code is 2", "Modify | the exit code is 3", 1);
        assert_ne!(before, now);
        for changed in ["2.1", "§2.1", "src/lib.rs", "`src/lib.rs:12`"] {
            assert!(!unchanged_at(&before, &now, changed), "{changed}");
            assert!(unchanged_at(&before, &before, changed), "{changed}");
        }
        for same in ["11", "REQ-1", "010", "Section 3", "## Risks & Mitigations"] {
            assert!(unchanged_at(&before, &now, same), "{same}");
        }
        for unknown in ["", "2.9", "README.md", "REQ-9"] {
            assert!(!unchanged_at(&before, &before, unknown), "{unknown}");
        }
        let moved = before.replacen("# 42", "A line on top.\n\n# 42", 1);
        assert!(unchanged_at(&before, &moved, "REQ-1"), "it is elsewhere, and the same");
    }
}
