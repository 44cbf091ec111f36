//! The change without one of its parts: whether any test notices says how much the tests are worth.

use std::{collections::BTreeMap, ops::Range};

use super::{
    Change, Kind, Mistake, Part,
    apply::{MOST_LINES, apply},
};

/// Files with their new texts, none where one is deleted.
pub type Files = Vec<(String, Option<String>)>;

/// A part of the code: lines that change together, or a file that is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub path: String,
    /// Its lines in the file as it was and as it becomes, from 0.
    old: Range<usize>,
    new: Range<usize>,
}

impl Unit {
    /// The first of its lines in the new text, from 1, and how many there are. Of what is only taken away there is none.
    pub fn lines(&self) -> (usize, usize) {
        (self.new.start + 1, self.new.len())
    }
}

/// The parts of the code, the largest first.
///
/// # Errors
///
/// As [`apply`].
pub fn bite_units(change: &Change, base: &BTreeMap<String, String>) -> Result<Vec<Unit>, Vec<Mistake>> {
    let (files, mut units) = (apply(change, base)?, Vec::new());
    for (file, (path, after)) in change.files.iter().zip(&files).filter(|(file, _)| file.part == Part::Code) {
        let Some(after) = after else { continue };
        let (before, after) = (base.get(path).map_or("", String::as_str), after.as_str());
        let path = path.clone();
        let [old, new] = [before, after].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
        if file.kind == Kind::Add || old.len() + new.len() > MOST_LINES {
            units.push(Unit { path, old: 0..old.len(), new: 0..new.len() });
            continue;
        }
        let ops = similar::capture_diff_slices(similar::Algorithm::Myers, &old, &new);
        let changed = ops.iter().filter(|op| op.tag() != similar::DiffTag::Equal);
        units.extend(changed.map(|op| Unit { path: path.clone(), old: op.old_range(), new: op.new_range() }));
    }
    units.sort_by_key(|unit| std::cmp::Reverse(unit.new.len().max(unit.old.len())));
    Ok(units)
}

/// All of the change but this.
///
/// # Errors
///
/// As [`apply`].
pub fn without(change: &Change, base: &BTreeMap<String, String>, unit: &Unit) -> Result<Files, Vec<Mistake>> {
    let mut files = apply(change, base)?;
    for (path, after) in files.iter_mut().filter(|(path, _)| *path == unit.path) {
        *after = after.take().zip(base.get(path)).map(|(after, before)| {
            let part = |text: &str, range: Range<usize>| -> String {
                text.split_inclusive('\n').skip(range.start).take(range.len()).collect()
            };
            let (start, end) = (part(&after, 0..unit.new.start), part(&after, unit.new.end..usize::MAX));
            format!("{start}{}{end}", part(before, unit.old.clone()))
        });
    }
    // A file that was added is not there without.
    Ok(files.into_iter().filter(|(path, after)| *path != unit.path || after.is_some()).collect())
}
