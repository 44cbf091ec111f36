//! What a repository's `.gitattributes` say of its files: the marks by which GitHub tells generated and
//! vendored, and git itself binary.
//!
//! Read as git reads them: patterns are relative to the folder of their file, a pattern without a slash means names at any
//! depth, deeper files outrank higher ones, and in each the last line that matches counts, attribute by attribute.

use std::collections::BTreeMap;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// Lines of `.gitattributes` that are heeded in one commit, and how long a pattern may be: repositories have a dozen, and
/// each file is compared with all.
const ATTRIBUTE_PATTERNS: usize = 500;
const ATTRIBUTE_PATTERN: usize = 200;

pub(super) const FILE: &str = ".gitattributes";

/// What is said of one file; none: nothing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) generated: Option<bool>,
    pub(super) vendored: Option<bool>,
    pub(super) binary: Option<bool>,
}

/// One attribute and what a line makes of it: set, unset, or as if nothing had been said.
type Setting = (Mark, Option<bool>);

#[derive(Debug, Clone, Copy)]
enum Mark {
    Generated,
    Vendored,
    Binary,
}

/// All lines of a commit that say something of what is asked here.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    patterns: GlobSet,
    /// Beside the patterns, the weightier the later.
    settings: Vec<Vec<Setting>>,
}

impl Attributes {
    /// Of the files named [`FILE`], each with its path. Of too many lines the weightier are heeded.
    pub(super) fn new(mut files: Vec<(&str, &str)>) -> Self {
        for (_, text) in &mut files {
            *text = text.trim_start_matches('\u{feff}');
        }
        files.sort_by_key(|(path, _)| (path.matches('/').count(), *path));
        let macros =
            files.iter().find(|(path, _)| *path == FILE).map_or_else(BTreeMap::new, |(_, text)| macros(text));
        let lines = files.iter().flat_map(|(path, text)| {
            let folder = path.strip_suffix(FILE).unwrap_or_default();
            text.lines().map(move |line| (folder, line))
        });
        let mut lines: Vec<(Glob, Vec<Setting>)> = lines
            .rev()
            .filter_map(|(folder, line)| {
                let (pattern, words) = pattern(line)?;
                let said: Vec<Setting> =
                    words.split_ascii_whitespace().flat_map(|word| setting(word, &macros)).collect();
                Some((glob(folder, &pattern).filter(|_| !said.is_empty())?, said))
            })
            .take(ATTRIBUTE_PATTERNS)
            .collect();
        lines.reverse();
        let mut patterns = GlobSetBuilder::new();
        let settings = lines.into_iter().map(|(glob, said)| {
            patterns.add(glob);
            said
        });
        let settings = settings.collect();
        match patterns.build() {
            Ok(patterns) => Self { patterns, settings },
            Err(_) => Self::default(), // together too large
        }
    }

    pub(super) fn of(&self, path: &str) -> Marks {
        let mut marks = Marks::default();
        if self.settings.is_empty() {
            return marks;
        }
        for at in self.patterns.matches(path) {
            for (mark, value) in &self.settings[at] {
                *match mark {
                    Mark::Generated => &mut marks.generated,
                    Mark::Vendored => &mut marks.vendored,
                    Mark::Binary => &mut marks.binary,
                } = *value;
            }
        }
        marks
    }
}

/// A line's pattern and the rest; none for a comment, a macro, and what git does not allow.
fn pattern(line: &str) -> Option<(String, &str)> {
    let line = line.trim_start();
    if line.is_empty() || line.starts_with(['#', '!']) || line.starts_with("[attr]") {
        return None;
    }
    let Some(quoted) = line.strip_prefix('"') else {
        let (pattern, words) = line.split_once(|c: char| c.is_ascii_whitespace())?;
        return Some((pattern.to_owned(), words));
    };
    // Quoted as in C, of which only the quote and the backslash are likely.
    let (mut pattern, mut escaped) = (String::new(), false);
    for (at, c) in quoted.char_indices() {
        match c {
            _ if pattern.len() > ATTRIBUTE_PATTERN => return None,
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return Some((pattern, &quoted[at + 1..])),
            _ => {
                pattern.push(c);
                escaped = false;
            }
        }
    }
    None
}

/// The pattern as one from the root; none for what matches nothing. Git knows no `{a,b}`, and a folder is never meant.
pub(super) fn glob(folder: &str, pattern: &str) -> Option<Glob> {
    if pattern.len() > ATTRIBUTE_PATTERN {
        return None;
    }
    let anywhere = !pattern.contains('/');
    let below = if anywhere { "**/" } else { "" };
    let pattern = pattern.strip_prefix('/').unwrap_or(pattern).replace('{', "[{]").replace('}', "[}]");
    let rooted = format!("{}{below}{pattern}", globset::escape(folder));
    GlobBuilder::new(&rooted).literal_separator(true).backslash_escape(true).build().ok()
}

/// `[attr]name a -b`: other words for several at once.
fn macros(text: &str) -> BTreeMap<&str, Vec<Setting>> {
    let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("[attr]"));
    lines
        .filter_map(|line| {
            let (name, words) = line.split_once(|c: char| c.is_ascii_whitespace())?;
            Some((
                name,
                words.split_ascii_whitespace().flat_map(|word| setting(word, &BTreeMap::new())).collect(),
            ))
        })
        .collect()
}

fn setting(word: &str, macros: &BTreeMap<&str, Vec<Setting>>) -> Vec<Setting> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value != "false")),
        None => match (word.strip_prefix('-'), word.strip_prefix('!')) {
            (Some(name), _) => (name, Some(false)),
            (_, Some(name)) => (name, None),
            _ => (word, Some(true)),
        },
    };
    let mark = match name {
        "linguist-generated" => Mark::Generated,
        "linguist-vendored" => Mark::Vendored,
        // What has no diff is binary to git; its own macro says that and more.
        "diff" => return vec![(Mark::Binary, value.map(|diff| !diff))],
        "binary" if value == Some(true) => Mark::Binary,
        _ if value == Some(true) => return macros.get(name).cloned().unwrap_or_default(),
        _ => return Vec::new(),
    };
    vec![(mark, value)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "\
# comment linguist-generated
[attr]made linguist-generated linguist-vendored=false
*.pb.rs linguist-generated
/api/*.json   linguist-generated=true
schema/** linguist-vendored
schema/own/*.sql -linguist-vendored
\"with space/*\" linguist-generated
*.dump binary
*.lst -diff
*.made made
!*.x linguist-generated
[x linguist-generated
guide/** linguist-vendored=false text
*.txt text=auto
*.{one,two} linguist-generated
a?/*.c linguist-vendored
m/**/p.c linguist-vendored
dir/ linguist-vendored
dir/* linguist-generated
[ab]-[!a].z linguist-generated
";

    #[test]
    fn files_are_marked_as_git_would() {
        let attributes = Attributes::new(vec![
            ("deep/er/.gitattributes", "*.pb.rs -linguist-generated\n"),
            (".gitattributes", ROOT),
            ("deep/.gitattributes", "/x.rs linguist-generated\ny/z.rs linguist-generated\n*.lst !diff\n"),
        ]);
        let generated = |path| attributes.of(path).generated;
        for (path, said) in [
            ("a.pb.rs", Some(true)),
            ("a/b/c.pb.rs", Some(true)),
            ("deep/a.pb.rs", Some(true)),
            ("deep/er/a.pb.rs", Some(false)),
            ("api/a.json", Some(true)),
            ("api/v1/a.json", None),
            ("v1/api/a.json", None),
            ("with space/a", Some(true)),
            ("deep/x.rs", Some(true)),
            ("deep/er/x.rs", None),
            ("x.rs", None),
            ("deep/y/z.rs", Some(true)),
            ("a.made", Some(true)),
            ("a.x", None),
            ("a.txt", None),
        ] {
            assert_eq!(generated(path), said, "{path}");
        }
        assert_eq!(attributes.of("schema/a/b.sql").vendored, Some(true));
        assert_eq!(attributes.of("schema/own/b.sql").vendored, Some(false));
        assert_eq!(attributes.of("a.made").vendored, Some(false));
        assert_eq!(attributes.of("a/b.dump").binary, Some(true));
        assert_eq!(attributes.of("a.lst").binary, Some(true));
        assert_eq!(attributes.of("deep/a.lst").binary, None);
        assert_eq!(attributes.of("guide/a.md").vendored, Some(false));
    }

    /// What git makes of the same files: the attributes of each path, as `check-attr` prints them.
    fn asked_of_git(files: &[(&str, &str)], paths: &[&str]) -> Vec<Marks> {
        let root = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let command = std::process::Command::new("git").args(args).current_dir(root.path()).output();
            String::from_utf8(command.unwrap().stdout).unwrap()
        };
        git(&["init", "--quiet"]);
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let names = ["linguist-generated", "linguist-vendored", "diff"];
        let marks = paths.iter().map(|path| {
            let printed = git(&[&["check-attr"][..], &names, &["--", path]].concat());
            let values = printed.lines().map(|line| match line.rsplit(": ").next().unwrap() {
                "unspecified" => None,
                value => Some(!matches!(value, "unset" | "false")),
            });
            let values: Vec<_> = values.collect();
            let [generated, vendored, diff] = values.try_into().unwrap();
            Marks { generated, vendored, binary: diff.map(|diff: bool| !diff) }
        });
        marks.collect()
    }

    #[test]
    fn git_says_the_same() {
        let files = [
            (".gitattributes", &*format!("\u{feff}*.first linguist-generated\n{ROOT}")),
            ("deep/.gitattributes", "/x.rs linguist-generated\ny/z.rs linguist-generated\n*.lst !diff\n"),
            ("deep/er/.gitattributes", "*.pb.rs -linguist-generated\n"),
        ];
        let paths = [
            "a.first",
            "a.pb.rs",
            "a/b/c.pb.rs",
            "deep/a.pb.rs",
            "deep/er/a.pb.rs",
            "api/a.json",
            "api/v1/a.json",
            "v1/api/a.json",
            "with space/a",
            "deep/x.rs",
            "deep/er/x.rs",
            "x.rs",
            "deep/y/z.rs",
            "a.made",
            "a.x",
            "a.txt",
            "schema/a/b.sql",
            "schema/own/b.sql",
            "schema/b",
            "a/b.dump",
            "a.lst",
            "deep/a.lst",
            "guide/a.md",
            "a.one",
            "a.{one,two}",
            "b.two",
            "ab/q.c",
            "a/q.c",
            "m/n/o/p.c",
            "m/p.c",
            "sub/dir/in.c",
            "dir/in.c",
            "[x",
            "a-b.z",
            "ab.z",
            "a.tail ",
            "back\\slash",
        ];
        let attributes = Attributes::new(files.to_vec());
        for (path, git) in paths.iter().zip(asked_of_git(&files, &paths)) {
            assert_eq!(attributes.of(path), git, "{path}");
        }
    }

    #[test]
    fn of_too_many_lines_the_weightier_are_heeded() {
        let many = "*.a linguist-generated\n".repeat(ATTRIBUTE_PATTERNS);
        let attributes =
            Attributes::new(vec![(".gitattributes", &many), ("b/.gitattributes", "*.a -linguist-generated")]);
        assert_eq!(attributes.of("b/x.a").generated, Some(false));
    }

    #[test]
    fn no_file_of_patterns_takes_long() {
        let many = "*a*b*c*d*e*f*g* linguist-generated\n".repeat(100_000);
        let long = format!("{} linguist-generated\n{{a,b}}{} x", "*a".repeat(50_000), "{a,b}".repeat(9_000));
        let attributes = Attributes::new(vec![(".gitattributes", &many), ("a/.gitattributes", &long)]);
        assert_eq!(attributes.settings.len(), ATTRIBUTE_PATTERNS);
        assert_eq!(attributes.of("abcdefg").generated, Some(true));
    }
}
