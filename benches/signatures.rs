//! Checks that the source contains each signature of a summary completely and at the stated line. Also counts the
//! definitions that `ctags` finds but the summary lacks. Exits with an error if a signature is wrong.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

use countersign::codebase::{CodeItem, Index, Language};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    measure::{head, row, say},
    repositories::{Repository, Tree, given, is_source, target, version},
    site::block_on,
};

/// Maximum number of missing tag kinds printed per language. Also the maximum number of wrong signatures printed.
const SHOWN: usize = 5;

/// Results for one language.
#[derive(Default)]
struct Figures {
    files: usize,
    partial: usize,
    items: usize,
    lines: usize,
    found: usize,
    tags: usize,
    matched: usize,
    /// Kinds of tags that no summary item matches, each with its count and one example.
    missing: BTreeMap<String, (usize, String)>,
    wrong: Vec<String>,
}

pub(crate) fn main() {
    let repositories = given("signatures");
    let mut all: BTreeMap<Language, Figures> = BTreeMap::new();
    for repository in &repositories {
        let commit = repository.git(&["rev-parse", "HEAD"]);
        say(format_args!("{} at {}", repository.name, &commit[..12]));
        let tree = Tree::of(repository);
        tree.turn_to(&commit);
        let tags = version("ctags").map(|_| tags(&tree.path())).unwrap_or_default();
        block_on(compare(repository, &commit, &tags, &mut all));
    }
    if !repositories.is_empty() && !print(&all) {
        std::process::exit(1);
    }
}

async fn compare(
    repository: &Repository,
    commit: &str,
    tags: &BTreeMap<String, Vec<Tag>>,
    all: &mut BTreeMap<Language, Figures>,
) {
    let snapshot = repository.snapshot(commit).await;
    let index = Index::read_uncached(&snapshot, &CancellationToken::new()).await.expect("an index");
    for file in index.files().iter().filter(|file| is_source(&file.path)) {
        let bytes = snapshot.read_path(&file.path).await.expect("its bytes").unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let source: Vec<&str> = text.lines().collect();
        let summary = file.digest.summary();
        let figures = all.entry(file.language).or_default();
        figures.files += 1;
        figures.partial += usize::from(summary.partial);
        let items = flat(&summary.items);
        figures.items += items.len();
        for item in &items {
            figures.look_up(&file.path, item, &source);
        }
        for tag in tags.get(&file.path).into_iter().flatten() {
            figures.pair(&file.path, tag, &items);
        }
    }
}

impl Figures {
    fn look_up(&mut self, path: &str, item: &CodeItem, source: &[&str]) {
        let lines: Vec<&str> = item.signature.lines().map(str::trim).collect();
        if lines.is_empty() {
            self.lines += 1;
            self.wrong.push(format!("{path}:{}: nothing is said of `{}`", item.line, item.name));
        }
        for (at, line) in lines.iter().enumerate() {
            self.lines += 1;
            let known = (item.line as usize + at).checked_sub(1).and_then(|at| source.get(at));
            let there = known.is_some_and(|known| stands(line, known.trim(), at == 0, at + 1 == lines.len()));
            self.found += usize::from(there);
            if !there {
                self.wrong.push(format!("{path}:{}: {line}", item.line as usize + at));
            }
        }
    }

    fn pair(&mut self, path: &str, tag: &Tag, items: &[&CodeItem]) {
        self.tags += 1;
        let last = |item: &CodeItem| item.line as usize + item.signature.lines().count().max(1) - 1;
        let same = |item: &&&CodeItem| {
            item.name == tag.name && (item.line as usize..=last(item)).contains(&tag.line)
        };
        if items.iter().find(same).is_some() {
            self.matched += 1;
        } else {
            let group = self.missing.entry(tag.kind.clone()).or_default();
            group.0 += 1;
            if group.1.is_empty() {
                group.1 = format!("`{}` at {path}:{}", tag.name, tag.line);
            }
        }
    }
}

/// Returns whether a line of a signature matches this line of the source. The first line of a signature may start in
/// the middle of the source line, and the last may end before the source line does, but neither may split a word.
fn stands(line: &str, source: &str, first: bool, last: bool) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let cut = |before: &str, after: &str| before.ends_with(in_word) && after.starts_with(in_word);
    let found = source.match_indices(line).any(|(at, _)| {
        let (before, after) = (&source[..at], &source[at + line.len()..]);
        (before.is_empty() || (first && !cut(before, line)))
            && (after.is_empty() || (last && !cut(line, after)))
    });
    // A blank line within a signature must be blank in the source.
    if line.is_empty() { source.is_empty() && !first && !last } else { found }
}

fn flat(items: &[CodeItem]) -> Vec<&CodeItem> {
    let mut waiting: Vec<&CodeItem> = items.iter().collect();
    let mut all = Vec::new();
    while let Some(item) = waiting.pop() {
        all.push(item);
        waiting.extend(&item.children);
    }
    all
}

/// Prints the figures; returns false if any signature is wrong.
fn print(all: &BTreeMap<Language, Figures>) -> bool {
    head(&[
        "language",
        "files",
        "partly",
        "items",
        "signature lines",
        "in the source",
        "ctags' tags",
        "with an item",
    ]);
    for (language, figures) in all {
        row(&[
            &format!("{language:?}"),
            &figures.files,
            &figures.partial,
            &figures.items,
            &figures.lines,
            &share(figures.found, figures.lines),
            &figures.tags,
            &share(figures.matched, figures.tags),
        ]);
    }
    say("\nTags without an item, the most frequent kinds:\n");
    for (language, figures) in all {
        let mut missing: Vec<_> = figures.missing.iter().collect();
        missing.sort_by_key(|(kind, (count, _))| (std::cmp::Reverse(*count), *kind));
        for (kind, (count, example)) in missing.into_iter().take(SHOWN) {
            say(format_args!("- {language:?}: {count} × {kind}, such as {example}"));
        }
    }
    let wrong: Vec<_> = all.values().flat_map(|figures| &figures.wrong).collect();
    say("");
    for line in wrong.iter().take(SHOWN) {
        say(format_args!("- not in the source: {line}"));
    }
    target(
        format_args!("every signature line is in the source at its line ({} are not)", wrong.len()),
        wrong.is_empty(),
    );
    wrong.is_empty()
}

fn share(part: usize, whole: usize) -> String {
    if whole == 0 { "–".to_owned() } else { format!("{:.2} %", 100.0 * part as f64 / whole as f64) }
}

/// A definition that ctags found.
struct Tag {
    name: String,
    kind: String,
    line: usize,
}

/// Kinds of tags that summaries do not include, such as imported names, file names and labels.
const OTHER: &[&str] = &[
    "package",
    "packageName",
    "unknown",
    "header",
    "heredoc",
    "library",
    "script",
    "label",
    "namespace",
    "anonMember",
];

/// Returns the tags that ctags finds in a tree, grouped by path.
fn tags(tree: &Path) -> BTreeMap<String, Vec<Tag>> {
    let output = Command::new("ctags")
        .args(["-R", "--output-format=json", "--fields=+nK", "-f", "-", "."])
        .current_dir(tree)
        .stderr(Stdio::null())
        .output()
        .expect("ctags runs");
    let mut by_path: BTreeMap<String, Vec<Tag>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(tag) = serde_json::from_str::<Value>(line) else { continue };
        let text = |key: &str| tag[key].as_str().unwrap_or_default().to_owned();
        let line = tag["line"].as_u64().unwrap_or_default() as usize;
        if !OTHER.contains(&text("kind").as_str()) {
            let path = text("path");
            let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
            by_path.entry(path).or_default().push(Tag { name: text("name"), kind: text("kind"), line });
        }
    }
    by_path
}
