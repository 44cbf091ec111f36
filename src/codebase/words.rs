//! Splits texts and names into words, for search.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

use foldhash::fast::RandomState;

/// Names and words of a text in their original spelling, each with its number of occurrences. The map is unordered.
pub(super) type NameCounts<'t> = HashMap<&'t str, u32, RandomState>;

/// Returns the words of a text in lowercase singular form. Names in `snake_case` or `camelCase` are split into words;
/// the name as a whole is also included as one word.
pub(super) fn word_set(text: &str) -> BTreeSet<String> {
    count_words(&count_names(text)).into_iter().map(|(word, _)| word).collect()
}

/// Returns the words that these names consist of, each with its number of occurrences, sorted by word.
pub(super) fn count_words(names: &NameCounts<'_>) -> Vec<(String, u32)> {
    let mut words = HashMap::<String, u32, RandomState>::default();
    for (name, count) in names {
        for_each_word(name, |word| match words.get_mut(word) {
            Some(sum) => *sum = sum.saturating_add(*count),
            None => drop(words.insert(word.to_owned(), *count)),
        });
    }
    let mut words: Vec<_> = words.into_iter().collect();
    words.sort_unstable();
    words
}

pub(super) fn count_names(text: &str) -> NameCounts<'_> {
    let mut names = NameCounts::default();
    for name in names_in(text) {
        let count = names.entry(name).or_default();
        *count = count.saturating_add(1);
    }
    names
}

/// Returns the names and words of a text in their original spelling. The character `_` counts as part of a name.
pub(super) fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|name| !name.is_empty())
}

/// Splits a name into its words and returns their stems.
pub(super) fn name_pieces(name: &str) -> BTreeSet<String> {
    let words = split_name(name).map(|piece| stem_word(&piece.to_lowercase()).into_owned());
    words.filter(|word| is_significant(word)).collect()
}

/// Calls `found` for each word of a name. If the name consists of several words, also calls `found` for the whole name
/// without separators.
pub(super) fn for_each_word(name: &str, mut found: impl FnMut(&str)) {
    let mut pieces = 0;
    let mut whole = String::with_capacity(name.len());
    for piece in split_name(name) {
        pieces += 1;
        let start = whole.len();
        if piece.is_ascii() {
            whole.push_str(piece);
            whole[start..].make_ascii_lowercase();
        } else {
            whole.push_str(&piece.to_lowercase());
        }
        let stem = stem_word(&whole[start..]);
        if is_significant(&stem) {
            found(&stem);
        }
    }
    let whole = stem_word(&whole);
    if pieces > 1 && is_significant(&whole) {
        found(&whole);
    }
}

/// Splits a name into pieces, for example `HTTPServer_v2` into `HTTP`, `Server` and `v2`.
fn split_name(name: &str) -> impl Iterator<Item = &str> {
    name.split('_').flat_map(|part| {
        let mut rest = part;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (piece, after) = rest.split_at(first_piece_end(rest));
            rest = after;
            Some(piece)
        })
    })
}

/// Returns the end of a name's first piece. A piece ends before a capital that follows a lowercase letter. In a
/// sequence of capitals, a piece ends before the last capital if a lowercase letter follows. An exception is the `s` of
/// `URLs`, which does not end a piece.
fn first_piece_end(name: &str) -> usize {
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

/// Returns whether a capital is the first letter of a word, judging by the text after the capital.
fn begins_word(after: &str) -> bool {
    let mut letters = after.chars();
    let first = letters.next().filter(|c| c.is_lowercase());
    let second_too = letters.next().is_some_and(char::is_lowercase);
    first.is_some_and(|first| first != 's' || second_too)
}

/// Reduces a word and its plural to the same rough stem: "queries" and "query" to `query`, "cookies" and "cookie" to
/// `cooky`, "caches" and "cache" to `cach`.
fn stem_word(word: &str) -> Cow<'_, str> {
    let one = word.strip_suffix('s').unwrap_or(word);
    if let Some(start) = one.strip_suffix("ie").filter(|start| start.len() > 2) {
        return Cow::Owned(format!("{start}y"));
    }
    let hissing = |start: &&str| ["ss", "sh", "ch", "us", "x"].iter().any(|end| start.ends_with(end));
    let without_e = one.strip_suffix('e').filter(hissing).filter(|start| start.len() > 2);
    let is_plural = one.len() > 2 && !one.ends_with(['s', 'u', 'i']);
    Cow::Borrowed(without_e.unwrap_or(if is_plural { one } else { word }))
}

fn is_significant(word: &str) -> bool {
    (2..=40).contains(&word.len()) && !word.bytes().all(|b| b.is_ascii_digit())
}

/// Returns whether a word, such as "fix", could occur in any issue. Such words can be rare in code, so their rarity
/// would give them too much weight.
pub(super) fn is_common(word: &str) -> bool {
    COMMON.split(' ').any(|common| common == word)
}

const COMMON: &str = "\
    about add added adding after all also am an and any are as at be becaus been before being but by can \
    cannot could did do doe does doing done each else etc false fix fixed fixes fixing for from had has have \
    having he her here him his how if in instead into is issue it its just let like make makes making may me \
    more most must my need needed no none not now null of off on one only or other our out over own please pub \
    return see self she should since so some src str such than that the their them then there these they thi \
    this those to too true two up us use used uses using very via want was we were what when where whether \
    which while who why will with without would you your";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn identifiers_are_split_into_words() {
        let words = |text: &str| word_set(text).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(words("HTTPServer"), "http httpserver server");
        assert_eq!(words("find_caseInsensitivePath"), "case find findcaseinsensitivepath insensitive path");
        assert_eq!(words("URLs of parseErrors, io 42 v2 a"), "error io of parse parseerror url v2");
        assert_eq!(words("addresses branches boxes queries ties"), "address box branch query tie");
        for word in
            ["cache", "cookie", "movie", "status", "house", "axe", "process", "match", "tie", "size", "key"]
        {
            let plural = format!("{word}{}", if word.ends_with(['s', 'h']) { "es" } else { "s" });
            assert_eq!(words(&plural), words(word));
        }
        assert_eq!(words("status class ÄÖÜber __init__"), "class init status äö äöüber über");
    }

    #[test]
    fn words_are_counted_across_identifier_styles() {
        let words: BTreeMap<_, _> =
            count_words(&count_names("retry_limit RetryLimit retries; Retry\u{0}LIMIT"))
                .into_iter()
                .collect();
        assert_eq!(words["retry"], 4);
        assert_eq!(words["limit"], 3);
        assert_eq!(words["retrylimit"], 2);
    }
}
