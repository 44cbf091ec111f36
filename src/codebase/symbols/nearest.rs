//! Which real names come nearest to one that does not exist.

use std::collections::{BTreeMap, BTreeSet};

use super::{Definition, is_nameable};
use crate::{
    codebase::{
        Kind, Language,
        imports::stem,
        tree::{file_name, likeness, pairs},
        words,
    },
    documents::Meant,
};

/// How many are named.
const MOST: usize = 3;

/// Letters of a name that are compared.
const LONGEST: usize = 60;

/// Below this two names have nothing in common that anybody would take one for the other for.
const ALIKE: f64 = 0.5;

/// From here on the real one is surely meant, if it stands where the other was looked for.
const MEANT: f64 = 0.66;

/// One letter in so many may be another in a slip, and two in a long name.
const SLIP: usize = 6;

/// Names that are compared letter by letter before one counts as no slip: more than are so like it where people name things.
const SLIPS: usize = 1_000;

/// Is one of these what somebody meant who wrote `name`? A type of a name that is merely alike is likely another's.
pub(super) fn meant(definitions: &[Definition<'_>], name: &str) -> Meant {
    let wanted = Name::of(name);
    // In these, functions begin with a capital as well.
    let capitals =
        |found: &Definition<'_>| matches!(Language::of(found.path), Language::CSharp | Language::Go);
    let is_type = name.starts_with(char::is_uppercase) && !definitions.first().is_some_and(capitals);
    let near = |found: &&Definition<'_>| is_nameable(found) && wanted.may_be_like(found.mask);
    let meant = |found: &Definition<'_>| match found.item.name.as_str() {
        own if own == name => Meant::Other,
        own if is_slip(own, name) => Meant::Slip,
        own if !is_type => wanted.meant(&Name::of(own)),
        _ => Meant::Other,
    };
    definitions.iter().filter(near).map(meant).max().unwrap_or(Meant::Other)
}

/// Is one of these so like the name that it may be meant, be it a type or not?
pub(super) fn is_any_alike(definitions: &[Definition<'_>], name: &str) -> bool {
    let wanted = Name::of(name);
    let near = |found: &&Definition<'_>| is_nameable(found) && wanted.may_be_like(found.mask);
    definitions.iter().filter(near).any(|found| wanted.likeness(&Name::of(&found.item.name)) >= MEANT)
}

/// Is the name a slip of one of these? They stand in the order of their names.
pub(super) fn has_slip(definitions: &[Definition<'_>], name: &str) -> bool {
    let wanted = Name::of(name);
    let near = |found: &&Definition<'_>| is_nameable(found) && wanted.may_be_slip(found.mask);
    let mut names: Vec<&str> =
        definitions.iter().filter(near).map(|found| found.item.name.as_str()).collect();
    names.dedup();
    names.into_iter().filter(|own| is_of_a_kind(own, name)).take(SLIPS).any(|own| is_slip(own, name))
}

/// The files of these whose name this one is a slip of, best first.
pub(super) fn slips<'p>(name: &str, paths: impl Iterator<Item = &'p str>) -> Vec<String> {
    let wanted = Name::of(name);
    let named = paths.map(|path| (path, stem(file_name(path))));
    let near = named.filter(|(_, own)| is_of_a_kind(own, name) && wanted.may_be_slip(mask(own)));
    let near = near.take(SLIPS).filter(|(_, own)| is_slip(own, name));
    likest(name, near.map(|(path, own)| (path.to_owned(), own.to_owned())))
}

fn digits(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(u8::is_ascii_digit)
}

/// As long, with the same numbers, and a constant's if the other is: seen without working anything out.
fn is_of_a_kind(real: &str, name: &str) -> bool {
    let (a, b) = (real.len(), name.len());
    let constant = |name: &str| !name.contains(char::is_lowercase);
    a.min(b) >= 5
        && a.abs_diff(b) <= 2 + b / SLIP
        && real != name
        && digits(real).eq(digits(name))
        && constant(real) == constant(name)
}

/// Is the name this one mistyped, or written in another manner? What has another number, `get` for `set` or is a constant's,
/// is another's.
pub(super) fn is_slip(real: &str, name: &str) -> bool {
    if !is_of_a_kind(real, name) {
        return false;
    }
    let (own, asked) = (real, name);
    let letters = |name: &str| name.chars().flat_map(char::to_lowercase).take(LONGEST).collect::<Vec<_>>();
    let (real, name) = (letters(real), letters(name));
    let plain = |name: &[char]| name.iter().filter(|c| **c != '_').copied().collect::<Vec<_>>();
    plain(&real) == plain(&name)
        || edits(&real, &name) <= (name.len() / SLIP).clamp(1, 2) && !is_exchanged(own, asked)
}

/// Is one short word there for another?
fn is_exchanged(real: &str, name: &str) -> bool {
    let (real, name) = (words::pieces(real), words::pieces(name));
    let mut others = real.symmetric_difference(&name);
    match (others.next(), others.next(), others.next()) {
        (Some(a), Some(b), None) => a.len() <= 3 && b.len() <= 3 && real.len() == name.len(),
        _ => false,
    }
}

/// Definitions nearest to a name, best first: spelled alike or of the same words, those of the file it was looked for in
/// before others. Each as `name (path:line)`, or `name (line 3)` in that file.
pub(super) fn of(name: &str, path: Option<&str>, definitions: &[Definition<'_>]) -> Vec<String> {
    let wanted = Name::of(name);
    let mut scored: Vec<(f64, &Definition<'_>)> = Vec::new();
    // Those of one name stand together.
    let mut before = ("", 0.0);
    for found in definitions.iter().filter(|found| is_nameable(found) && wanted.may_be_like(found.mask)) {
        let own = found.item.name.as_str();
        if before.0 != own {
            before = (own, wanted.likeness(&Name::of(own)));
        }
        let (_, alike) = before;
        if alike >= ALIKE {
            // What is elsewhere must be nearer by far to be told of before what is here.
            let here = if path == Some(found.path) { 0.25 } else { 0.0 };
            scored.push((alike + here, found));
        }
    }
    scored.sort_by(|(a, left), (b, right)| {
        let by = |found: &Definition<'_>| found.item.line;
        b.total_cmp(a)
            .then_with(|| left.path.cmp(right.path))
            .then_with(|| by(left).cmp(&by(right)))
            .then_with(|| left.item.name.cmp(&right.item.name))
    });
    let mut seen = BTreeSet::new();
    let told =
        scored.into_iter().map(|(_, found)| told(found, path)).filter(|told| seen.insert(told.clone()));
    told.take(MOST).collect()
}

/// The likest of these names, best first.
pub(super) fn among(name: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    likest(name, names.map(|name| (name.clone(), name)))
}

/// What is told of the likest of these, each of a name.
fn likest(name: &str, told: impl Iterator<Item = (String, String)>) -> Vec<String> {
    let wanted = Name::of(name);
    let told: BTreeMap<String, String> = told.filter(|(_, name)| wanted.may_be_like(mask(name))).collect();
    let scored = told.into_iter().map(|(told, name)| (told, wanted.likeness(&Name::of(&name))));
    let mut scored: Vec<_> = scored.filter(|(_, alike)| *alike >= ALIKE).collect();
    // Those that are equally like stay in the order of their names.
    scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    scored.into_iter().take(MOST).map(|(told, _)| told).collect()
}

/// Is one module so near the other that it is surely meant?
pub(super) fn is_near(real: &str, name: &str) -> bool {
    Name::of(real).likeness(&Name::of(name)) >= MEANT
}

/// May names of these masks be alike?
pub(super) fn may_be_alike(a: u64, b: u64) -> bool {
    (a & b).count_ones() * 5 >= a.count_ones()
}

fn told(found: &Definition<'_>, path: Option<&str>) -> String {
    let (name, line) = (&found.item.name, found.item.line);
    let qualified = match found.owner {
        Some(owner) if found.item.kind == Kind::Method => format!("{owner}.{name}"),
        _ => name.clone(),
    };
    if path == Some(found.path) {
        format!("{qualified} (line {line})")
    } else {
        format!("{qualified} ({}:{line})", found.path)
    }
}

/// A name as it is compared.
struct Name {
    letters: Vec<char>,
    mask: u64,
    pairs: Vec<[u8; 2]>,
    words: BTreeSet<String>,
}

impl Name {
    fn of(name: &str) -> Self {
        let lower = name.to_lowercase().replace('_', "");
        Self {
            mask: mask(name),
            letters: lower.chars().take(LONGEST).collect(),
            pairs: pairs(&lower),
            words: words::pieces(name),
        }
    }

    fn may_be_like(&self, mask: u64) -> bool {
        may_be_alike(self.mask, mask)
    }

    /// A letter is part of two pairs, and a slip is of two letters at most.
    fn may_be_slip(&self, mask: u64) -> bool {
        (self.mask & !mask).count_ones() <= 4 && (mask & !self.mask).count_ones() <= 4
    }

    /// From 0, nothing in common, to 1.
    fn likeness(&self, other: &Self) -> f64 {
        let spelled = likeness(&self.pairs, &other.pairs);
        let common = self.words.intersection(&other.words).count();
        let all = self.words.union(&other.words).count();
        let said = if all == 0 { 0.0 } else { common as f64 / all as f64 };
        spelled.max(said).max(self.slip(other))
    }

    fn meant(&self, real: &Self) -> Meant {
        let common = self.words.intersection(&real.words).count();
        let same = common >= 2 && self.words.len().max(real.words.len()) - common <= 1;
        match self.likeness(real) >= MEANT {
            true if same => Meant::Near,
            true => Meant::Alike,
            false => Meant::Other,
        }
    }

    /// How near they are if one is the other mistyped: at most one letter in three is another. 0 otherwise.
    fn slip(&self, other: &Self) -> f64 {
        let longest = self.letters.len().max(other.letters.len());
        let apart = self.letters.len().abs_diff(other.letters.len());
        if longest < 4 || apart * 3 > longest {
            return 0.0;
        }
        let edits = edits(&self.letters, &other.letters);
        if edits * 3 > longest { 0.0 } else { 1.0 - edits as f64 / longest as f64 }
    }
}

/// A bit for each pair of neighbouring letters, whatever their case: names that have few in common are not alike, which
/// is seen without working anything out.
pub(super) fn mask(name: &str) -> u64 {
    let letters = name.bytes().filter(|byte| *byte != b'_').map(|byte| byte.to_ascii_lowercase());
    let mut before = 0_u8;
    letters.fold(0, |mask, letter| {
        let pair = u64::from(before) * 256 + u64::from(letter);
        before = letter;
        mask | 1 << (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
    })
}

/// Letters to put in, take out or exchange that make one of the other.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let exchanged = corner + usize::from(left != right);
            corner = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
