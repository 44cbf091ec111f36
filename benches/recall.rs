//! Measures the recall of our file ranking on real commits. The ranking sees only the commit's message and the tree of
//! the commit's parent. The score counts the changed files among the ten best-ranked files, and the changed lines that
//! a model would be shown.
//!
//! Peers are two rankings of ripgrep's hits, and Aider's map. `recall/commits.txt` lists the commits, chosen by
//! `recall/choose.sh`. The weights were tuned on the commits in `recall/older.txt`, and checked on the repositories in
//! `recall/fresh.txt`, which neither of the other lists contains.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use countersign::{
    clock::SystemClock,
    codebase::{ContextRequest, ContextSections, Index, RankingRequest, gather_context, rank_files},
    limits::CONTEXT_TOKENS,
    store::Store,
    types::RepoId,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{
    aider::Aider,
    measure::{Ms, head, ms, row, say},
    repositories::{Repository, Tree, given, is_source, target, version},
    seen,
    site::{block_on, scratch},
};

const COMMITS: &str = include_str!("recall/commits.txt");
const OLDER: &str = include_str!("recall/older.txt");
const FRESH: &str = include_str!("recall/fresh.txt");
const OFFERED: usize = 10;

/// One commit to test: its message is the query, its changed files are the expected result.
struct Case {
    parent: String,
    message: String,
    /// Source files that the commit changed and that its parent contains. Each file has the numbers of its lines in the
    /// parent that were changed or removed, or that precede added lines.
    changed: BTreeMap<String, BTreeSet<usize>>,
}

/// Score of one competitor.
#[derive(Default, Clone, Copy)]
struct Score {
    commits: f64,
    recall: f64,
    hits: f64,
    first: f64,
    milliseconds: f64,
    /// Sum over all commits of the share of changed lines that a model would be shown; `None` for the peers, which show
    /// no lines.
    seen: Option<f64>,
}

impl Score {
    /// Adds the result for one commit. Files that are not source code are removed from the ranking first, so that a
    /// competitor loses nothing by ranking a changelog.
    fn add(&mut self, case: &Case, begun: Instant, offered: &[String]) {
        self.milliseconds += ms(begun.elapsed());
        let first: Vec<&String> = offered.iter().filter(|path| is_source(path)).take(OFFERED).collect();
        let found = case.changed.keys().filter(|path| first.contains(path)).count();
        self.commits += 1.0;
        self.recall += found as f64 / case.changed.len() as f64;
        self.hits += f64::from(u8::from(found > 0));
        self.first += f64::from(u8::from(first.first().is_some_and(|path| case.changed.contains_key(*path))));
    }

    fn plus(&mut self, other: Self) {
        self.commits += other.commits;
        self.recall += other.recall;
        self.hits += other.hits;
        self.first += other.first;
        self.milliseconds += other.milliseconds;
        self.seen = other.seen.map(|seen| seen + self.seen.unwrap_or_default()).or(self.seen);
    }

    fn print(&self, repository: &str, who: &str) {
        let percent = |sum: f64| format!("{:.1} %", 100.0 * sum / self.commits);
        row(&[
            &repository,
            &who,
            &self.commits,
            &percent(self.hits),
            &percent(self.recall),
            &percent(self.first),
            &self.seen.map_or_else(|| "–".to_owned(), percent),
            &Ms(self.milliseconds / self.commits),
        ]);
    }
}

const RIVALS: [&str; 4] = ["ours", "ripgrep, words counted", "ripgrep, rare words first", "aider's map"];

type Scores = [Score; RIVALS.len()];

pub(crate) fn main() {
    ask("recall", COMMITS);
}

/// Runs the benchmark on the commits on which the weights were tuned.
pub(crate) fn older() {
    ask("older", OLDER);
}

/// Runs the benchmark on commits of repositories that were not used for tuning.
pub(crate) fn fresh() {
    ask("fresh", FRESH);
}

fn ask(part: &str, commits: &'static str) {
    let repositories = given(part);
    if repositories.is_empty() {
        return;
    }
    let has_ripgrep = version("rg").is_some();
    if !has_ripgrep {
        say("(ripgrep is not installed)");
    }
    let mut aider = Aider::start();
    let mut all = Scores::default();
    head(&[
        "repository",
        "",
        "commits",
        "hit@10",
        "recall@10",
        "in first place",
        "lines seen",
        "per question",
    ]);
    for repository in &repositories {
        let Some((name, cases)) = cases(repository, commits) else {
            say(format_args!("({} has none of the commits)", repository.dir.display()));
            continue;
        };
        let scores = compare(repository, &cases, has_ripgrep, &mut aider);
        print(name, &scores);
        for (score, sum) in scores.iter().zip(&mut all) {
            sum.plus(*score);
        }
    }
    print("all", &all);
    let [ours, peers @ ..] = all;
    let better = |of: fn(&Score) -> f64| peers.iter().all(|peer| of(&ours) > of(peer));
    target("more often a hit than each peer, over all", better(|score| score.hits));
    target("more of the changed files found than by each peer, over all", better(|score| score.recall));
}

fn print(repository: &str, scores: &Scores) {
    for (score, rival) in scores.iter().zip(RIVALS).filter(|(score, _)| score.commits > 0.0) {
        score.print(repository, rival);
    }
}

fn compare(repository: &Repository, cases: &[Case], has_ripgrep: bool, aider: &mut Option<Aider>) -> Scores {
    let ours = block_on(Ours::start());
    let tree = Tree::of(repository);
    let mut scores = Scores::default();
    for case in cases {
        // The time includes reading the tree, as for the peers.
        let begun = Instant::now();
        let index = Arc::new(block_on(ours.index(repository, &case.parent)));
        let offers = rank_files(&index, &RankingRequest { text: &case.message, files: &[] });
        let paths: Vec<String> = offers.into_iter().map(|offer| offer.path).collect();
        scores[0].add(case, begun, &paths);
        let shown = block_on(shown(repository, case, index));
        *scores[0].seen.get_or_insert_default() += seen::share(&case.changed, &shown);
        tree.turn_to(&case.parent);
        if has_ripgrep {
            let begun = Instant::now();
            let hits = Hits::of(&tree.path(), &case.message);
            scores[1].add(case, begun, &hits.counted());
            scores[2].add(case, begun, &hits.rare_first());
        }
        if let Some(aider) = aider {
            let files = repository.files(&case.parent);
            let begun = Instant::now();
            scores[3].add(case, begun, &aider.rank(&tree.path(), &files, &case.message));
        }
    }
    scores
}

/// Builds our index of successive trees. Because of the cache, a file that several trees share is parsed only once.
struct Ours {
    store: Arc<Store>,
    _data: TempDir,
}

impl Ours {
    async fn start() -> Self {
        let data = scratch();
        let store = Store::open(data.path(), Arc::new(SystemClock)).expect("a data directory");
        store.repository_database(RepoId(1)).await.expect("a database");
        Self { store, _data: data }
    }

    async fn index(&self, repository: &Repository, commit: &str) -> Index {
        let snapshot = repository.snapshot(commit).await;
        let cache = self.store.cache(RepoId(1)).await.expect("a cache");
        Index::read(&snapshot, cache, &CancellationToken::new()).await.expect("an index")
    }
}

/// Returns the context that a model would be shown if the commit's message were the request.
async fn shown(repository: &Repository, case: &Case, index: Arc<Index>) -> ContextSections {
    let snapshot = repository.snapshot(&case.parent).await;
    let asked = ContextRequest { text: case.message.clone(), files: Vec::new(), budget: CONTEXT_TOKENS };
    gather_context(index, &snapshot, asked).await.expect("a context").shown
}

/// Returns the listed commits that this repository contains, with the repository's name from the list.
fn cases(repository: &Repository, commits: &'static str) -> Option<(&'static str, Vec<Case>)> {
    let lines = commits.lines().filter_map(|line| line.split_once(' '));
    let known = lines.filter(|(_, hash)| repository.try_git(&["cat-file", "-e", hash]).is_some());
    let mut name = None;
    let cases = known.map(|(repository_name, hash)| {
        name = Some(repository_name);
        case(repository, hash)
    });
    let cases: Vec<Case> = cases.collect();
    Some((name?, cases))
}

fn case(repository: &Repository, hash: &str) -> Case {
    let message = repository.git(&["log", "-1", "--format=%B", hash]);
    let trailer = |line: &&str| ["Co-authored-by:", "Signed-off-by:"].iter().any(|t| line.starts_with(t));
    let message = message.lines().filter(|line| !trailer(line)).collect::<Vec<_>>().join("\n");
    let mut changed = seen::changed(repository, hash);
    changed.retain(|path, _| is_source(path));
    Case { parent: format!("{hash}^"), message, changed }
}

/// ripgrep's hits for the words of a message.
struct Hits {
    /// Number of hits of each word in each source file, by word and then by path.
    words: BTreeMap<String, BTreeMap<String, f64>>,
    /// Size of each source file in bytes.
    sizes: BTreeMap<String, f64>,
}

impl Hits {
    fn of(tree: &Path, message: &str) -> Self {
        let listed = ripgrep(tree, &["--files"]);
        let size = |path: &str| std::fs::metadata(tree.join(path)).map_or(0.0, |known| known.len() as f64);
        let sources = listed.lines().filter(|path| is_source(path));
        let sizes: BTreeMap<String, f64> = sources.map(|path| (path.to_owned(), size(path))).collect();
        let words = keywords(message).into_iter().map(|word| {
            let counts = ripgrep(tree, &["--count-matches", "-i", "-F", "--with-filename", "-e", &word]);
            let count = |line: &str| {
                let (path, count) = line.rsplit_once(':')?;
                Some((path.to_owned(), count.parse().ok()?))
            };
            let found = counts.lines().filter_map(count).filter(|(path, _)| sizes.contains_key(path));
            let found = found.collect();
            (word, found)
        });
        Self { words: words.collect(), sizes }
    }

    /// Ranks files by the number of different words that they contain. A word that also occurs in the path counts
    /// twice. Ties are broken by the total number of hits.
    fn counted(&self) -> Vec<String> {
        self.ranked(|path| {
            let held = self.words.iter().filter_map(|(word, found)| Some((word, found.get(path)?)));
            let hits: f64 = held.map(|(_, hits)| hits).sum();
            self.words_of(path) + hits / 1e9
        })
    }

    fn words_of(&self, path: &str) -> f64 {
        let one = |(word, found): (&String, &BTreeMap<String, f64>)| {
            f64::from(u8::from(found.contains_key(path))) + f64::from(u8::from(in_path(path, word)))
        };
        self.words.iter().map(one).sum()
    }

    /// Ranks the same hits by BM25. A word that occurs in the path adds twice its rarity to the score.
    fn rare_first(&self) -> Vec<String> {
        let count = self.sizes.len() as f64;
        let mean = self.sizes.values().sum::<f64>() / count.max(1.0);
        self.ranked(|path| {
            let size = self.sizes[path];
            let one = |(word, found): (&String, &BTreeMap<String, f64>)| {
                let holding = found.len() as f64;
                let rarity = (1.0 + (count - holding + 0.5) / (holding + 0.5)).ln();
                let hits = found.get(path).copied().unwrap_or_default();
                let text = hits * 2.2 / (hits + 1.2 * (0.25 + 0.75 * size / mean));
                rarity * (text + 2.0 * f64::from(u8::from(in_path(path, word))))
            };
            self.words.iter().map(one).sum()
        })
    }

    fn ranked(&self, score: impl Fn(&str) -> f64) -> Vec<String> {
        let mut scored: Vec<(f64, &String)> = self.sizes.keys().map(|path| (score(path), path)).collect();
        scored.retain(|(score, _)| *score > 0.0);
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        scored.into_iter().take(OFFERED).map(|(_, path)| path.clone()).collect()
    }
}

fn in_path(path: &str, word: &str) -> bool {
    path.to_lowercase().contains(word)
}

fn ripgrep(tree: &Path, args: &[&str]) -> String {
    let common = ["--no-config", "--hidden", "--no-ignore", "--glob=!.aider*"];
    let mut command = Command::new("rg");
    command.args(common).args(args).current_dir(tree).stdin(Stdio::null());
    if !args.contains(&"--files") {
        // Makes ripgrep print paths as git does.
        command.args(["--", "."]);
    }
    let output = command.output().expect("ripgrep runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| format!("{}\n", line.strip_prefix("./").unwrap_or(line))).collect()
}

/// Returns the words of a message that a person would search for: whole names of at least four letters, without common
/// words.
fn keywords(message: &str) -> BTreeSet<String> {
    let words = message.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_lowercase);
    let letters = |word: &String| word.chars().filter(|c| c.is_alphabetic()).count() >= 4;
    words.filter(letters).filter(|word| !COMMON.contains(&word.as_str())).collect()
}

const COMMON: &[&str] = &[
    "about", "after", "again", "also", "because", "been", "before", "being", "between", "both", "cannot",
    "could", "does", "doesn", "done", "each", "else", "even", "every", "from", "have", "here", "https",
    "http", "instead", "into", "issue", "just", "like", "made", "make", "makes", "many", "more", "most",
    "much", "must", "need", "needs", "only", "other", "over", "same", "should", "since", "some", "such",
    "than", "that", "their", "them", "then", "there", "these", "they", "this", "those", "through", "thus",
    "under", "until", "used", "uses", "using", "very", "want", "well", "were", "what", "when", "where",
    "which", "while", "will", "with", "without", "would", "your",
];
