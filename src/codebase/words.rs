//! The words of texts and names, by which files are found.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

use foldhash::fast::RandomState;

/// The names and words of a text as they stand, each once with how often it occurs. In no order.
pub(super) type NameCounts<'t> = HashMap<&'t str, u32, RandomState>;

/// The words of a text: lower-case and in the singular, `snake_case` and `camelCase` taken apart. A name of several words counts as those and, run together, as one more.
pub(super) fn word_set(text: &str) -> BTreeSet<String> {
    count_words(&count_names(text)).into_iter().map(|(word, _)| word).collect()
}

/// The same with how often each occurs; in order.
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

/// The names and words of a text as they stand, `_` being part of a name.
pub(super) fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|name| !name.is_empty())
}

/// The words that one name is made of.
pub(super) fn name_pieces(name: &str) -> BTreeSet<String> {
    let words = split_name(name).map(|piece| stem_word(&piece.to_lowercase()).into_owned());
    words.filter(|word| is_significant(word)).collect()
}

/// The words of one name, and the name itself if there are several.
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

/// `HTTPServer_v2` is `HTTP`, `Server` and `v2`.
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

/// Where the first piece of a name ends: before a capital after a small letter, and before the last of several capitals
/// that a small letter follows, unless that is the `s` of `URLs`.
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

/// Whether what follows a capital makes it the first letter of a word.
fn begins_word(after: &str) -> bool {
    let mut letters = after.chars();
    let first = letters.next().filter(|c| c.is_lowercase());
    let second_too = letters.next().is_some_and(char::is_lowercase);
    first.is_some_and(|first| first != 's' || second_too)
}

/// What a word and its plural have in common, as crude as that is: of "queries" and "query" `query`, of "cookies" and
/// "cookie" `cooky`, of "caches" and "cache" `cach`.
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

/// Do people say it of any change? How rare such a word is in code tells nothing of a file: "fix" would be a rare one.
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
    fn names_are_taken_apart() {
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
    fn counted_by_word_whatever_the_name() {
        let words: BTreeMap<_, _> =
            count_words(&count_names("retry_limit RetryLimit retries; Retry\u{0}LIMIT"))
                .into_iter()
                .collect();
        assert_eq!(words["retry"], 4);
        assert_eq!(words["limit"], 3);
        assert_eq!(words["retrylimit"], 2);
    }
}
