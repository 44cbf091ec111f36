//! The first sentence of a documentation.

use crate::limits;

/// Of comments as they stand in the source, the uppermost first.
pub(super) fn of_comments<'t>(comments: impl IntoIterator<Item = &'t str>) -> Option<String> {
    first_sentence(comments.into_iter().flat_map(comment_lines))
}

/// Of a docstring without its quotes.
pub(super) fn of_text(text: &str) -> Option<String> {
    first_sentence(text.lines())
}

/// The lines of a comment without what makes it one.
fn comment_lines(comment: &str) -> impl Iterator<Item = &str> {
    let comment = comment.trim();
    let inner = comment.strip_prefix("/*").map(|rest| rest.strip_suffix("*/").unwrap_or(rest));
    let block = inner.is_some();
    inner.unwrap_or(comment).lines().map(move |line| {
        let line = line.trim();
        if block {
            line.trim_start_matches(['*', '!'])
        } else {
            line.trim_start_matches(['/', '#', '!', '-'])
        }
    })
}

/// The first sentence of the first paragraph: up to a full stop before a space and no small letter, up to a tag, at most
/// [`limits::DOC_BYTES`].
fn first_sentence<'t>(lines: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut said = String::new();
    for line in lines {
        let line = line.trim();
        if line.is_empty() || line.starts_with('@') || line.starts_with("```") {
            if said.is_empty() && !line.starts_with('@') {
                continue;
            }
            break;
        }
        for word in line.split_whitespace() {
            if ends_sentence(&said) && !word.starts_with(char::is_lowercase) {
                return Some(said);
            }
            if said.len() + word.len() + 1 > limits::DOC_BYTES {
                return (!said.is_empty()).then(|| said + " …");
            }
            if !said.is_empty() {
                said.push(' ');
            }
            said.push_str(word);
        }
    }
    (!said.is_empty()).then_some(said)
}

fn ends_sentence(said: &str) -> bool {
    let abbreviated = ["e.g.", "i.e.", "vs.", "cf."].iter().any(|short| said.ends_with(short));
    said.ends_with(['.', '!', '?', '。']) && !abbreviated
}
