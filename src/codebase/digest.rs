//! What is known of a content, in the form it is kept in: the index of a large repository holds ten thousand of these.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{Language, Summary, file_filter::ExclusionReason, summary, words};

/// Changes whenever another digest comes of the same text, which a test of summaries notices. What was kept by another
/// version is worked out anew.
pub(super) const DIGEST_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-8");

/// What is known of a file's content, whatever its path. Kept by the content's hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    summary: Summary,
    /// There was no time for all of its structure.
    timed_out: bool,
    words: SortedNames,
    /// Beside the words.
    counts: Box<[u32]>,
    uses: SortedNames,
    /// [`hash_name`]es of the names as they stand, in order.
    spelled: Box<[u32]>,
}

/// Names in order, each once, in two pieces of memory instead of hundreds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SortedNames {
    text: Box<str>,
    ends: Box<[u32]>,
}

/// A content's language and digest, or why it is none that a model is shown.
pub(super) type DigestResult = Result<(Language, Digest), ExclusionReason>;

impl Digest {
    pub fn new(language: Language, text: &str) -> Self {
        let (summary, uses) = summary::summarize_with_uses(language, text);
        let timed_out = summary.timed_out;
        Self { summary, timed_out, uses: SortedNames::new(&uses), ..Self::without_structure(text) }
    }

    /// Without a look at the structure, for which there was no time.
    pub(super) fn without_structure(text: &str) -> Self {
        let names = words::count_names(text);
        let (words, counts): (Vec<String>, Vec<u32>) = words::count_words(&names).into_iter().unzip();
        let mut spelled: Vec<u32> = names.keys().map(|name| hash_name(name)).collect();
        spelled.sort_unstable();
        let words = SortedNames::new(&words);
        Self { timed_out: true, words, counts: counts.into(), spelled: spelled.into(), ..Self::default() }
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Was there no time for all of its structure?
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// How often a word occurs in its text.
    pub fn count(&self, word: &str) -> u32 {
        self.words.find(word).and_then(|at| self.counts.get(at).copied()).unwrap_or(0)
    }

    /// Names it uses and does not define: what it calls, the types it names. In order, each once.
    pub fn uses(&self) -> impl Iterator<Item = &str> {
        self.uses.iter()
    }

    /// Does its text have this name, whole and written so? What is there is never denied; of ten thousand files' names one
    /// in a thousand is taken for another.
    pub fn contains_name(&self, name: &str) -> bool {
        self.spelled.binary_search(&hash_name(name)).is_ok()
    }
}

impl SortedNames {
    fn new(names: &[String]) -> Self {
        let mut text = String::with_capacity(names.iter().map(String::len).sum());
        let ends = names.iter().map(|name| {
            text.push_str(name);
            u32::try_from(text.len()).unwrap_or(u32::MAX)
        });
        let ends = ends.collect();
        Self { text: text.into(), ends }
    }

    fn get(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start as usize..self.ends[at] as usize).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|at| self.get(at))
    }

    fn find(&self, name: &str) -> Option<usize> {
        let (mut from, mut to) = (0, self.ends.len());
        while from < to {
            let middle = from.midpoint(to);
            match self.get(middle).cmp(name) {
                Ordering::Equal => return Some(middle),
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
            }
        }
        None
    }
}

/// The same everywhere and always, for it is kept.
fn hash_name(name: &str) -> u32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash ^ (hash >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

pub(super) fn pack(known: &DigestResult) -> Vec<u8> {
    postcard::to_allocvec(known).expect("it is plain data, and memory grows")
}

pub(super) fn unpack(packed: &[u8]) -> Option<DigestResult> {
    postcard::from_bytes(packed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn parse_amount(amount: Amount) {} // coins\n";

    #[test]
    fn words_are_counted_and_found() {
        let digest = Digest::new(Language::Rust, TEXT);
        let words: Vec<_> = digest.words.iter().zip(digest.counts.iter().copied()).collect();
        assert_eq!(words, [("amount", 3), ("coin", 1), ("fn", 1), ("parse", 1), ("parseamount", 1)]);
        assert_eq!((digest.count("amount"), digest.count("parse"), digest.count("dollar")), (3, 1, 0));
        assert_eq!(Digest::new(Language::Rust, "").words.iter().count(), 0);
    }

    #[test]
    fn no_name_in_the_text_is_denied_and_hardly_another_is_not() {
        let names = "type é café_Crème HTTPServers _a __init__ v2 URLs fooS A_B_C a addresses 12";
        let many: Vec<String> = (0..2_000).map(|at| format!("name_{at}")).collect();
        let digest = Digest::new(Language::Rust, &format!("{names} {}", many.join("(—„")));
        let there = names.split(' ').chain(many.iter().map(String::as_str));
        assert!(there.into_iter().all(|name| digest.contains_name(name)));
        let others = (0..10_000).map(|at| format!("other_{at}"));
        assert!(!others.into_iter().any(|name| digest.contains_name(&name)));
        assert!(!["server", "HTTPServer", "a_b_c", ""].iter().any(|name| digest.contains_name(name)));
    }

    #[test]
    fn what_is_kept_reads_back_and_nothing_else_does() {
        for known in [Ok((Language::Rust, Digest::new(Language::Rust, TEXT))), Err(ExclusionReason::Minified)]
        {
            let packed = pack(&known);
            assert_eq!(unpack(&packed), Some(known));
            for cut in 0..packed.len() {
                assert_eq!(unpack(&packed[..cut]), None, "{cut}");
            }
        }
    }
}
