//! Lists the paths of a repository. If there are too many paths, lists folders with their file counts instead.

use std::collections::{BTreeMap, BTreeSet};

use super::untrusted_text::{fence_text, one_line};
use crate::codebase::{Index, RankedFile, tokens};

/// Folder depths to try, deepest first.
const DEPTHS: [usize; 5] = [6, 4, 3, 2, 1];

/// Returns a list of the repository's paths with at most `most` tokens; empty for an empty repository. The list
/// includes the paths of files excluded from the context, because only the content of these files is secret. If only
/// folders fit, the list also contains the files in the folders of the best-ranked files, as far as the budget allows.
pub(super) fn list_paths(index: &Index, offers: &[RankedFile], most: usize) -> String {
    let files = index.files().iter().map(|file| file.path.as_str());
    let mut paths: Vec<&str> = files.chain(index.excluded().iter().map(|left| left.path.as_str())).collect();
    paths.sort_unstable();
    if paths.is_empty() {
        return String::new();
    }
    let title = format!("{} {}\n\n", paths.len(), if paths.len() == 1 { "file" } else { "files" });
    let listed = |list: &str| format!("{title}{}", fence_text(list));
    let fits = |list: &str| tokens::estimate_tokens(&listed(list)) <= most;
    // Each path takes more than one token.
    if paths.len() <= most {
        let all: String = paths.iter().map(|path| format!("{}\n", one_line(path))).collect();
        if fits(&all) {
            return listed(&all);
        }
    }
    let shallow = count_by_folder(&paths, DEPTHS[DEPTHS.len() - 1]);
    // Half of the budget is for the folders of relevant files.
    let by_depth = DEPTHS.iter().map(|depth| count_by_folder(&paths, *depth));
    let chosen = by_depth.into_iter().find(|list| tokens::estimate_tokens(&listed(list)) <= most / 2);
    let mut list = chosen.unwrap_or_else(|| first_lines(&shallow, &fits));
    for folder in top_folders(offers) {
        let more = unlisted_siblings(&paths, folder, &list);
        if fits(&format!("{list}{more}")) {
            list.push_str(&more);
        }
    }
    if list.is_empty() { String::new() } else { listed(&list) }
}

/// Returns the first lines that fit, followed by a line with the number of omitted lines.
fn first_lines(list: &str, fits: &dyn Fn(&str) -> bool) -> String {
    let ends: Vec<usize> = list.match_indices('\n').map(|(at, _)| at + 1).collect();
    let with = |count: usize| format!("{}… and {} more\n", &list[..ends[count - 1]], ends.len() - count);
    let counts: Vec<usize> = (1..ends.len()).collect();
    match counts.partition_point(|count| fits(&with(*count))) {
        0 => String::new(),
        count => with(count),
    }
}

/// Returns the folders of the best-ranked files in rank order, without duplicates.
fn top_folders(offers: &[RankedFile]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let folders =
        offers.iter().take(20).map(|offer| offer.path.rsplit_once('/').map_or("", |(folder, _)| folder));
    folders.filter(|folder| seen.insert(*folder)).collect()
}

/// Returns the paths of the folder's files, one per line. Returns an empty text for the root folder if `list` already
/// contains its files.
fn unlisted_siblings(paths: &[&str], folder: &str, list: &str) -> String {
    let within = |path: &&&str| path.rsplit_once('/').map_or("", |(parent, _)| parent) == folder;
    let mut lines = String::new();
    for path in paths.iter().filter(within) {
        lines.push_str(&format!("{}\n", one_line(path)));
    }
    // Every folder list includes the files of the root.
    if folder.is_empty() && list.contains(&lines) { String::new() } else { lines }
}

/// Lists folders down to `depth`, each with the number of files below it. The files in the root folder are listed by
/// name.
fn count_by_folder(paths: &[&str], depth: usize) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in paths {
        for (end, _) in path.match_indices('/').take(depth) {
            *counts.entry(&path[..end]).or_default() += 1;
        }
        if !path.contains('/') {
            counts.entry(path).or_default();
        }
    }
    let line = |(path, count): (&&str, &usize)| match count {
        0 => format!("{}\n", one_line(path)),
        count => format!("{}/ ({count})\n", one_line(path)),
    };
    counts.iter().map(line).collect()
}
