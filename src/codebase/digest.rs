//! Compact digest of one file, as stored in the analysis cache. The format is compact because the index of a large
//! repository contains ten thousand digests.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::{Language, Summary, file_filter::ExclusionReason, summary, words};

/// Version of the cached digests. Cached digests of other versions are ignored and computed again. Change the version
/// whenever the same text would yield a different digest; a snapshot test in `summary` fails if you forget it.
pub(super) const DIGEST_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-8");

/// Digest of a file's content. The digest does not depend on the file's path and is cached by content hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    summary: Summary,
    /// Whether parsing timed out before the whole structure had been read.
    timed_out: bool,
    words: SortedNames,
    /// Number of occurrences of each word in `words`, in the same order.
    counts: Box<[u32]>,
    uses: SortedNames,
    /// Sorted hashes, computed by [`hash_name`], of all names in their original letter case.
    spelled: Box<[u32]>,
}

/// Sorted unique names that are stored in two allocations instead of one allocation per name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SortedNames {
    text: Box<str>,
    ends: Box<[u32]>,
}

/// Language and digest of a file's content, or the reason why a model is never shown the file.
pub(super) type DigestResult = Result<(Language, Digest), ExclusionReason>;

impl Digest {
    pub fn new(language: Language, text: &str) -> Self {
        let (summary, uses) = summary::summarize_with_uses(language, text);
        let timed_out = summary.timed_out;
        Self { summary, timed_out, uses: SortedNames::new(&uses), ..Self::without_structure(text) }
    }

    /// Builds a digest that contains words but no structure. Used when no parsing time remains.
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

    /// Returns whether parsing timed out before the whole structure had been read.
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Returns the number of occurrences of a word in the text.
    pub fn count(&self, word: &str) -> u32 {
        self.words.find(word).and_then(|at| self.counts.get(at).copied()).unwrap_or(0)
    }

    /// Returns the names that the file uses but does not define: called functions and mentioned types. The names are
    /// sorted and unique.
    pub fn uses(&self) -> impl Iterator<Item = &str> {
        self.uses.iter()
    }

    /// Returns whether the text probably contains this exact name. There are no false negatives, but there can be false
    /// positives: with ten thousand files, about one absent name in a thousand is reported as present.
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

/// Returns a hash of a name. The hash must be the same on all platforms and in all versions, because it is stored.
fn hash_name(name: &str) -> u32 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    ((hash ^ (hash >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

pub(super) fn pack(known: &DigestResult) -> Vec<u8> {
    postcard::to_allocvec(known).expect("plain data always serializes")
}

pub(super) fn unpack(packed: &[u8]) -> Option<DigestResult> {
    postcard::from_bytes(packed).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn parse_amount(amount: Amount) {} // coins\n";

    #[test]
    fn digest_counts_the_words_of_a_file() {
        let digest = Digest::new(Language::Rust, TEXT);
        let words: Vec<_> = digest.words.iter().zip(digest.counts.iter().copied()).collect();
        assert_eq!(words, [("amount", 3), ("coin", 1), ("fn", 1), ("parse", 1), ("parseamount", 1)]);
        assert_eq!((digest.count("amount"), digest.count("parse"), digest.count("dollar")), (3, 1, 0));
        assert_eq!(Digest::new(Language::Rust, "").words.iter().count(), 0);
    }

    #[test]
    fn contains_name_has_no_false_negatives() {
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
    fn packed_digest_round_trips_and_truncated_digest_is_rejected() {
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
