//! Which files matter for a text.

use std::fmt;

use super::{Index, words};

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// An issue, title first, or a design.
    pub text: &'a str,
    /// The files to change, if they are known.
    pub files: &'a [String],
}

/// A file that matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    pub path: String,
    /// Comparable within one answer only.
    pub score: f64,
    pub reasons: Vec<Reason>,
    /// The first and last lines of the items in it that matter most, best first.
    pub items: Vec<(u32, u32)>,
}

/// Why a file is offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    SharesWords(Vec<String>),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::SharesWords(words) = self;
        write!(f, "shares {}", words.join(", "))
    }
}

/// The files that matter, best first.
pub fn rank(index: &Index, request: &Request<'_>) -> Vec<Offer> {
    let asked = words::of(request.text);
    let count = index.files().len() as f64;
    let mut offers: Vec<Offer> = Vec::new();
    for file in index.files() {
        let in_path = words::of(&file.path);
        let shared: Vec<String> =
            asked.iter().filter(|w| in_path.contains(*w) || file.digest.count(w) > 0).cloned().collect();
        let rarity = |word: &String| {
            let spread = index.files().iter().filter(|file| file.digest.count(word) > 0).count();
            (1.0 + count / spread.max(1) as f64).ln() * if in_path.contains(word) { 3.0 } else { 1.0 }
        };
        let named = request.text.contains(file.path.as_str()) || request.files.contains(&file.path);
        let score = shared.iter().map(rarity).sum::<f64>() + if named { 100.0 } else { 0.0 };
        if score > 0.0 {
            offers.push(Offer {
                path: file.path.clone(),
                score,
                reasons: vec![Reason::SharesWords(shared)],
                items: Vec::new(),
            });
        }
    }
    offers.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)));
    offers.truncate(100);
    offers
}
