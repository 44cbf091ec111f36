//! The words of texts and names, by which files are found.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use foldhash::fast::RandomState;

/// The words of a text: lower-case and in the singular, `snake_case` and `camelCase` taken apart, without those that
/// every text has. A name of several words counts as those and, run together, as one more.
pub(super) fn of(text: &str) -> BTreeSet<String> {
    counted(text).into_keys().collect()
}

/// The same with how often each occurs.
pub(super) fn counted(text: &str) -> BTreeMap<String, u32> {
    // Each name is taken apart once, however often it stands there. Sums do not depend on the order of this map.
    let mut names: HashMap<&str, u32, RandomState> = HashMap::default();
    for name in names_of(text) {
        let count = names.entry(name).or_default();
        *count = count.saturating_add(1);
    }
    let mut words: HashMap<String, u32, RandomState> = HashMap::default();
    for (name, count) in names {
        each_of_name(name, |word| match words.get_mut(word) {
            Some(sum) => *sum = sum.saturating_add(count),
            None => {
                words.insert(word.to_owned(), count);
            }
        });
    }
    words.into_iter().collect()
}

/// The names and words of a text as they stand, `_` being part of a name.
pub(super) fn names_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|name| !name.is_empty())
}

/// The words that one name is made of.
pub(super) fn pieces(name: &str) -> BTreeSet<String> {
    let words = pieces_of(name).map(|piece| stem(&piece.to_lowercase()).to_owned());
    words.filter(|word| is_telling(word)).collect()
}

/// The word by which a text is sure to have a name that it spells; none if it may do without.
pub(super) fn whole(name: &str) -> Option<String> {
    let joined = name.replace('_', "").to_lowercase();
    let word = stem(&joined);
    is_telling(word).then(|| word.to_owned())
}

/// The words of one name, and the name itself if there are several.
pub(super) fn each_of_name(name: &str, mut found: impl FnMut(&str)) {
    let mut pieces = 0;
    let mut whole = String::with_capacity(name.len());
    for piece in pieces_of(name) {
        pieces += 1;
        let start = whole.len();
        if piece.is_ascii() {
            whole.push_str(piece);
            whole[start..].make_ascii_lowercase();
        } else {
            whole.push_str(&piece.to_lowercase());
        }
        let stem = stem(&whole[start..]);
        if is_telling(stem) {
            found(stem);
        }
    }
    let whole = stem(&whole);
    if pieces > 1 && is_telling(whole) {
        found(whole);
    }
}

/// `HTTPServer_v2` is `HTTP`, `Server` and `v2`.
fn pieces_of(name: &str) -> impl Iterator<Item = &str> {
    name.split('_').flat_map(|part| {
        let mut rest = part;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (piece, after) = rest.split_at(first_piece(rest));
            rest = after;
            Some(piece)
        })
    })
}

/// Where the first piece of a name ends: before a capital after a small letter, and before the last of several capitals
/// that a small letter follows, unless that is the `s` of `URLs`.
fn first_piece(name: &str) -> usize {
    let mut before: Option<char> = None;
    for (at, c) in name.char_indices() {
        if before.is_some_and(|before| {
            c.is_uppercase() && (!before.is_uppercase() || begins_word(&name[at + c.len_utf8()..]))
        }) {
            return at;
        }
        before = Some(c);
    }
    name.len()
}

/// Whether what follows a capital makes it the first letter of a word.
fn begins_word(after: &str) -> bool {
    let mut letters = after.chars();
    let first = letters.next().filter(|c| c.is_lowercase());
    let second_too = letters.next().is_some_and(char::is_lowercase);
    first.is_some_and(|first| first != 's' || second_too)
}

/// A crude singular, so that "errors" finds `error`.
fn stem(word: &str) -> &str {
    match word.strip_suffix('s') {
        Some(stem) if stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']) => stem,
        _ => word,
    }
}

fn is_telling(word: &str) -> bool {
    (2..=40).contains(&word.len())
        && (word.len() > LONGEST_COMMON || COMMON.binary_search(&word).is_err())
        && !word.bytes().all(|b| b.is_ascii_digit())
}

const LONGEST_COMMON: usize = 7;

/// Of every English text or every program. In order.
const COMMON: &[&str] = &[
    "a", "about", "add", "added", "adding", "after", "all", "also", "am", "an", "and", "any", "are", "as",
    "at", "be", "because", "been", "before", "being", "but", "by", "can", "cannot", "could", "did", "do",
    "doe", "does", "doing", "done", "each", "else", "etc", "false", "fix", "fixed", "fixes", "fixing", "for",
    "from", "had", "has", "have", "having", "he", "her", "here", "him", "his", "how", "i", "if", "in",
    "instead", "into", "is", "issue", "it", "its", "just", "let", "like", "make", "makes", "making", "may",
    "me", "more", "most", "must", "my", "need", "needed", "no", "none", "not", "now", "null", "of", "off",
    "on", "one", "only", "or", "other", "our", "out", "over", "own", "please", "pub", "return", "see",
    "self", "she", "should", "since", "so", "some", "src", "str", "such", "than", "that", "the", "their",
    "them", "then", "there", "these", "they", "thi", "this", "those", "to", "too", "true", "two", "up", "us",
    "use", "used", "uses", "using", "very", "via", "want", "was", "we", "were", "what", "when", "where",
    "whether", "which", "while", "who", "why", "will", "with", "without", "would", "you", "your",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let words = |text: &str| of(text).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(words("HTTPServer"), "http httpserver server");
        assert_eq!(words("find_caseInsensitivePath"), "case find findcaseinsensitivepath insensitive path");
        assert_eq!(words("URLs of the parseErrors, io 42 v2"), "error io parse parseerror url v2");
        assert_eq!(words("status class is ÄÖÜber __init__"), "class init status äö äöüber über");
    }

    #[test]
    fn counted_by_word_whatever_the_name() {
        let words = counted("retry_limit RetryLimit retries; Retry\u{0}LIMIT");
        assert_eq!(words["retry"], 3);
        assert_eq!(words["limit"], 3);
        assert_eq!(words["retrylimit"], 2);
    }

    #[test]
    fn common_words_are_in_order() {
        assert!(COMMON.is_sorted());
        assert_eq!(COMMON.iter().map(|word| word.len()).max(), Some(LONGEST_COMMON));
    }
}
