//! A plain excerpt: the list of files, what the repository says about itself, and the files that
//! share words with the issue.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    FileInfo,
    files::{self, Sieve, Why},
    tree::file_name,
    words,
};
use crate::{documents::secrets, git::Mode, limits};

/// What a model is shown of a repository: Markdown, nothing of which can close its fence.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Which files there are.
    pub paths: String,
    /// What stands in some of them, a section each, the most telling first.
    pub files: Vec<String>,
}

impl Shown {
    fn bytes(&self) -> usize {
        self.paths.len() + self.files.iter().map(String::len).sum::<usize>()
    }
}

/// What was chosen of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    pub shown: Shown,
    /// Files shown, at least in part, in their order.
    pub included: Vec<String>,
    /// Files not shown though a rule or the issue had picked them, each with the reason.
    pub left_out: Vec<(String, &'static str)>,
}

/// What a repository says about itself, in the order of its worth to a newcomer.
const ABOUT: &[&str] = &["readme", "contributing", "agents.md", "claude.md", "architecture.md"];

const MANIFESTS: &[&str] = &[
    "cargo.toml",
    "package.json",
    "pyproject.toml",
    "setup.py",
    "requirements.txt",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "gemfile",
    "composer.json",
    "mix.exs",
    "cmakelists.txt",
    "makefile",
    "justfile",
];

/// Shown of a file that says something about the whole repository.
const HEAD_BYTES: usize = 4_000;

const NO_ROOM: &str = "no room left";

/// Builds the excerpt within `budget` bytes (at most [`limits::EXCERPT_BYTES`]). `read` gives a
/// file's bytes, or `None` when they are not to be had.
pub fn excerpt(
    files: &[FileInfo],
    issue_text: &str,
    budget: usize,
    read: &mut dyn FnMut(&str) -> Option<Vec<u8>>,
) -> Excerpt {
    let mut page = Page { budget: budget.min(limits::EXCERPT_BYTES), out: Excerpt::default() };
    let mut files: Vec<&FileInfo> = files.iter().collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    page.listing(&files);
    let sieve = Sieve::default();
    files.retain(|file| match sieve.judge(&file.path, Mode::File, file.size).err().map(Why::words) {
        None => true,
        Some(why) => {
            page.out.left_out.push((file.path.clone(), why));
            false
        }
    });
    let mut reader = Reader { read, texts: BTreeMap::new(), refused: BTreeMap::new() };
    for file in about(&files) {
        if let Some(text) = reader.text(file) {
            page.file(&file.path, text, HEAD_BYTES);
        }
    }
    for file in ranked(&files, issue_text, &mut reader) {
        if !page.out.included.contains(&file.path)
            && let Some(text) = reader.text(file)
        {
            page.file(&file.path, text, limits::EXCERPT_FILE_BYTES);
        }
    }
    page.out.left_out.extend(reader.refused);
    page.out
}

/// The page as it fills.
struct Page {
    budget: usize,
    out: Excerpt,
}

impl Page {
    fn room(&self) -> usize {
        self.budget.saturating_sub(self.out.shown.bytes())
    }

    /// The list of files, in at most a quarter of the budget: all of them, else folders with counts.
    fn listing(&mut self, files: &[&FileInfo]) {
        let most = self.budget / 4;
        let title = format!("{} files\n\n", files.len());
        let all: String = files.iter().map(|file| format!("{}\n", one_line(&file.path))).collect();
        let list = std::iter::once(all)
            .chain((1..=4).rev().map(|depth| folders(files, depth)))
            .find(|list| title.len() + list.len() + 16 <= most)
            .unwrap_or_else(|| head(&folders(files, 1), most.saturating_sub(title.len() + 16)).to_owned());
        if title.len() + list.len() + 16 <= self.budget && !list.is_empty() {
            let fence = fence(&list);
            self.out.shown.paths = format!("{title}{fence}text\n{list}{fence}\n");
        }
    }

    /// One file, cut to `most` bytes at the end of a line.
    fn file(&mut self, path: &str, text: &str, most: usize) {
        // Blacked out before it is cut, lest half a secret go unrecognised.
        let text = secrets::redact(text);
        let fence = fence(&text);
        let frame = path.len() + 2 * fence.len() + 64;
        let room = self.room().saturating_sub(frame).min(most);
        let shown = head(&text, room);
        if shown.trim().is_empty() {
            if !text.trim().is_empty() {
                self.out.left_out.push((path.to_owned(), NO_ROOM));
            }
            return;
        }
        let cut = if shown.len() < text.len() { " (beginning)" } else { "" };
        let end = if shown.ends_with('\n') { "" } else { "\n" };
        self.out.shown.files.push(format!("\n## `{path}`{cut}\n\n{fence}\n{shown}{end}{fence}\n"));
        self.out.included.push(path.to_owned());
    }
}

/// Files already read; each is read once.
struct Reader<'a> {
    read: &'a mut dyn FnMut(&str) -> Option<Vec<u8>>,
    texts: BTreeMap<String, String>,
    refused: BTreeMap<String, &'static str>,
}

impl Reader<'_> {
    fn text(&mut self, file: &FileInfo) -> Option<&str> {
        let path = &file.path;
        if !self.texts.contains_key(path) && !self.refused.contains_key(path) {
            match (self.read)(path)
                .ok_or("could not be read")
                .and_then(|bytes| files::text(bytes, false).map_err(Why::words))
            {
                Ok(text) => drop(self.texts.insert(path.clone(), text)),
                Err(why) => drop(self.refused.insert(path.clone(), why)),
            }
        }
        self.texts.get(path).map(String::as_str)
    }
}

/// Files at the root, or in `docs` and `.github`, that speak about the whole repository.
fn about<'f>(files: &[&'f FileInfo]) -> Vec<&'f FileInfo> {
    let place = |file: &FileInfo| {
        let path = file.path.to_lowercase();
        let name = file_name(&path);
        let folder = path[..path.len() - name.len()].trim_end_matches('/');
        let about = ABOUT
            .iter()
            .position(|known| name == *known || name.strip_prefix(known).is_some_and(|r| r.starts_with('.')));
        match (folder, about, MANIFESTS.iter().position(|known| name == *known)) {
            ("" | "docs" | ".github", Some(at), _) => Some(at),
            ("", None, Some(at)) => Some(ABOUT.len() + at),
            _ => None,
        }
    };
    let mut found: Vec<_> = files.iter().filter_map(|file| Some((place(file)?, *file))).collect();
    found.sort_by_key(|(at, file)| (*at, file.path.matches('/').count(), file.path.clone()));
    found.dedup_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, file)| file).collect()
}

/// The files that have to do with the issue, most so first. A path written out in the issue comes
/// before every other; then paths and contents that share its words, rare words counting for more.
fn ranked<'f>(files: &[&'f FileInfo], issue_text: &str, reader: &mut Reader<'_>) -> Vec<&'f FileInfo> {
    let words = words::of(issue_text);
    let named = |file: &FileInfo| {
        let path = file.path.as_str();
        issue_text.contains(path) && (path.contains('/') || path.contains('.'))
    };
    let mut candidates: Vec<(f64, &FileInfo)> = files
        .iter()
        .map(|file| (path_score(&file.path, &words) + if named(file) { 1000.0 } else { 0.0 }, *file))
        .collect();
    by_score(&mut candidates);
    candidates.truncate(limits::EXCERPT_FILES_SCANNED);

    let held: Vec<BTreeSet<&str>> = candidates
        .iter()
        .map(|(_, file)| match reader.text(file) {
            Some(text) => {
                let inside = words::of(text);
                words.iter().filter(|word| inside.contains(*word)).map(String::as_str).collect()
            }
            None => BTreeSet::new(),
        })
        .collect();
    let mut spread: BTreeMap<&str, usize> = BTreeMap::new();
    for word in held.iter().flatten() {
        *spread.entry(word).or_default() += 1;
    }
    for ((score, _), words) in candidates.iter_mut().zip(&held) {
        let rarity = |word: &str| (1.0 + held.len() as f64 / spread[word] as f64).ln();
        *score += words.iter().map(|word| rarity(word)).sum::<f64>();
    }
    candidates.retain(|(score, _)| *score > 0.0);
    by_score(&mut candidates);
    candidates.into_iter().map(|(_, file)| file).collect()
}

fn by_score(files: &mut [(f64, &FileInfo)]) {
    files.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.path.cmp(&right.path)));
}

fn path_score(path: &str, words: &BTreeSet<String>) -> f64 {
    let name = words::of(file_name(path));
    let all = words::of(path);
    let count = |found: &BTreeSet<String>| found.iter().filter(|word| words.contains(*word)).count() as f64;
    2.0 * count(&name) + count(&all)
}

/// Folders down to `depth` with the number of files below each.
fn folders(files: &[&FileInfo], depth: usize) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        let ends = file.path.match_indices('/').take(depth).map(|(at, _)| at);
        for end in ends {
            *counts.entry(&file.path[..end]).or_default() += 1;
        }
        if !file.path.contains('/') {
            *counts.entry(&file.path).or_default() += 0;
        }
    }
    let line = |(path, count): (&&str, &usize)| match count {
        0 => format!("{}\n", one_line(path)),
        count => format!("{}/ ({count})\n", one_line(path)),
    };
    counts.iter().map(line).collect()
}

fn one_line(path: &str) -> String {
    path.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Backticks enough that nothing inside can close the fence.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(longest.max(2) + 1)
}

/// The first lines of a text that fit in `most` bytes; all of it if it fits.
fn head(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    match text.as_bytes()[..most].iter().rposition(|b| *b == b'\n') {
        Some(at) => &text[..=at],
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPO: &[(&str, &str)] = &[
        ("README.md", "# Coins\nCounts coins.\n"),
        ("Cargo.toml", "[package]\nname = \"coins\"\n"),
        ("Cargo.lock", "locked"),
        (".env", "KEY=visible"),
        ("logo.png", "\u{0}"),
        ("src/lib.rs", "mod parser;\nmod purse;\n"),
        ("src/parser.rs", "/// Reads an amount.\npub fn parse_amount() {}\n"),
        (
            "src/purse.rs",
            "pub struct Purse; // overflow of the amount\nconst T: &str = \"ghp_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\";\n",
        ),
        ("src/weather.rs", "pub fn rain() {}\n"),
        ("docs/fences.md", "overflow\n````\n```\ninner\n```\n````\n"),
    ];

    fn files() -> Vec<FileInfo> {
        REPO.iter().map(|(path, text)| FileInfo { path: (*path).into(), size: text.len() as u64 }).collect()
    }

    fn read(path: &str) -> Option<Vec<u8>> {
        assert!(path != ".env" && path != "logo.png", "{path} is not to be opened");
        REPO.iter().find(|(known, _)| *known == path).map(|(_, text)| text.as_bytes().to_vec())
    }

    const ISSUE: &str =
        "Overflow of amounts\n\nA large amount overflows in the purse. See src/weather.rs too.";

    #[test]
    fn the_issues_words_choose_the_files() {
        let excerpt = excerpt(&files(), ISSUE, usize::MAX, &mut read);
        assert_eq!(
            excerpt.included,
            [
                "README.md",
                "Cargo.toml",
                "src/weather.rs",
                "src/purse.rs",
                "docs/fences.md",
                "src/lib.rs",
                "src/parser.rs"
            ]
        );
        let left_out: Vec<_> = excerpt.left_out.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(left_out, [".env", "Cargo.lock", "logo.png"]);
        assert!(excerpt.shown.paths.contains("src/purse.rs\nsrc/weather.rs\n"), "the list of files");
        let files = excerpt.shown.files.concat();
        assert!(!files.contains("ghp_aaaa") && files.contains("[redacted]"));
        assert!(files.contains("`````\noverflow\n````\n"), "the fence is longer than any inside");
    }

    #[test]
    fn the_order_of_the_input_does_not_matter() {
        let mut reversed = files();
        reversed.reverse();
        assert_eq!(excerpt(&files(), ISSUE, 9000, &mut read), excerpt(&reversed, ISSUE, 9000, &mut read));
    }

    #[test]
    fn no_budget_is_exceeded() {
        for budget in 0..1500 {
            let excerpt = excerpt(&files(), ISSUE, budget, &mut read);
            assert!(excerpt.shown.bytes() <= budget, "{budget}: {}", excerpt.shown.bytes());
        }
        let short = excerpt(&files(), ISSUE, 450, &mut read);
        assert!(short.left_out.iter().any(|(_, why)| *why == NO_ROOM), "{short:?}");
    }

    #[test]
    fn a_large_repository_is_listed_by_folder() {
        let many: Vec<_> = (0..50_000)
            .map(|n| FileInfo { path: format!("src/area{}/part{n}/file.rs", n % 20), size: 1 })
            .collect();
        let excerpt = excerpt(&many, "area3", 60_000, &mut |_| Some(b"fn x() {}\n".to_vec()));
        let paths = &excerpt.shown.paths;
        assert!(paths.contains("src/area3/ (2500)"), "{}", &paths[..200]);
        assert!(excerpt.shown.bytes() <= 60_000);
    }

    #[test]
    fn an_empty_repository_gives_an_empty_excerpt() {
        assert_eq!(excerpt(&[], ISSUE, 1000, &mut read), Excerpt::default());
    }
}
