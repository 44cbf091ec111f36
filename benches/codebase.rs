//! Measures the cost of indexing a repository. First indexes the newest commit without a cache, and compares this with
//! `ctags -R` and Aider's map on the same files. Then indexes later commits, each of which changes a few files. Also
//! measures memory.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use countersign::{clock::SystemClock, codebase::Index, store::Store, types::RepoId};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    aider::Aider,
    measure::{Samples, head, ms, row, say},
    repositories::{Repository, Tree, given, is_source, target, version},
    site::{block_on, scratch},
};

/// Environment variable that makes this process only build indexes. Its value is a JSON object with the repository and
/// the commits.
pub(crate) const ALONE: &str = "COUNTERSIGN_BENCH_INDEX";

const RUNS: usize = 7;
const FOLLOWING: usize = 7;
const CHANGED: usize = 20;

pub(crate) fn main() {
    for repository in given("codebase") {
        measure(&repository);
    }
}

fn measure(repository: &Repository) {
    let commit = repository.git(&["rev-parse", "HEAD"]);
    let files = repository.files(&commit);
    let tree = Tree::of(repository);
    tree.turn_to(&commit);
    say(format_args!("\n{} at {}: {} files\n", repository.name, &commit[..12], files.len()));
    let Some(ctags) = version("ctags") else {
        return say("(ctags is not installed)");
    };

    let (mut ours, mut one_core, mut theirs, mut memory) = <(Samples, Samples, Samples, Samples)>::default();
    let mut last = Value::Null;
    for run in 0..RUNS {
        // Alternates the order, so that neither always finds the files in the system's cache.
        if run % 2 == 0 {
            theirs.add(tags(&tree.path()));
        }
        let (time, index) = alone(repository, &[&commit], false);
        ours.add(time);
        memory.add(number(&index["peak"]));
        last = index;
        one_core.add(alone(repository, &[&commit], true).0);
        if run % 2 == 1 {
            theirs.add(tags(&tree.path()));
        }
    }
    let [ours, one_core, theirs, memory] = [ours, one_core, theirs, memory].map(|s| s.sorted().at(0.5));
    let beside = |time: f64| format!("× {:.2}", time / ours);
    let seconds = |time: f64| format!("{:.2} s", time / 1e3);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    head(&["from nothing, whole processes", "median", "beside ours"]);
    row(&[&format!("ours, {cores} cores"), &seconds(ours), &""]);
    row(&[&"ours, held to one core with its git", &seconds(one_core), &beside(one_core)]);
    row(&[&format!("{ctags} `-R`"), &seconds(theirs), &beside(theirs)]);
    let map = Aider::start().map(|mut aider| aider.map(&tree.path(), &files));
    if let Some(map) = &map {
        let name = |what: &str| format!("aider {} {what}, once", map["version"].as_str().unwrap_or_default());
        let (tags, all) = (number(&map["tag_seconds"]) * 1e3, number(&map["seconds"]) * 1e3);
        row(&[&name("tags alone"), &seconds(tags), &beside(tags)]);
        row(&[&name("map"), &seconds(all), &beside(all)]);
    }
    let next = following(repository, &commit);
    let next_memory = number(&next["peak"]);
    let times = next["times"].as_array().expect("times").iter().skip(1).map(number);
    let next = times.collect::<Samples>().sorted();
    say(format_args!(
        "\n{} files known, {} items, {} left out; memory at its highest {memory:.0} MB, over {FOLLOWING} more commits \
         {next_memory:.0} MB (git's own not counted)",
        last["files"], last["items"], last["left_out"]
    ));
    let (median, worst) = (next.at(0.5), next.at(1.0));
    say(format_args!(
        "a commit after it that changes {CHANGED} files, from the commit's name to its index: {median:.0} ms, the \
         slowest of {FOLLOWING} {worst:.0} ms\n"
    ));

    target(
        format_args!("no slower than ctags × 1.5 (it took × {:.2} as long)", ours / theirs),
        ours <= theirs * 1.5,
    );
    if let Some(map) = map {
        let ratio = number(&map["seconds"]) * 1e3 / ours;
        target(format_args!("20 × as fast as aider's map (× {ratio:.1})"), ratio >= 20.0);
    }
    target(format_args!("next commit within 150 ms ({median:.0} ms)"), median <= 150.0);
    let memory = memory.max(next_memory);
    target(format_args!("at most 300 MB ({memory:.0} MB)"), memory <= 300.0);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

/// Returns the time, in milliseconds, that `ctags -R` takes on a tree.
fn tags(tree: &Path) -> f64 {
    let out = scratch();
    let begun = Instant::now();
    let status = Command::new("ctags")
        .arg("-R")
        .arg("-f")
        .arg(out.path().join("tags"))
        .arg(".")
        .current_dir(tree)
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("ctags runs").success(), "ctags failed");
    ms(begun.elapsed())
}

/// Indexes the commits in order in a child process; the first commit is indexed without a cache. Returns the run time
/// of the child process in milliseconds, and its report.
fn alone(repository: &Repository, commits: &[&str], one_core: bool) -> (f64, Value) {
    let data = scratch();
    let order = json!({
        "repository": repository.dir, "commits": commits, "data": data.path(), "one_core": one_core,
    });
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let begun = Instant::now();
    let output =
        command.env(ALONE, order.to_string()).stderr(Stdio::inherit()).output().expect("this program runs");
    let time = ms(begun.elapsed());
    assert!(output.status.success(), "no index could be made");
    (time, serde_json::from_slice(&output.stdout).expect("its JSON"))
}

/// Main function of the child process that [`alone`] starts.
pub(crate) fn index_alone(order: &str) {
    let order: Value = serde_json::from_str(order).expect("an order");
    if order["one_core"] == true {
        // Threads and git processes started from here on inherit the limit.
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        rustix::thread::sched_setaffinity(None, &one).expect("a core");
    }
    let text = |key: &str| order[key].as_str().expect("a text").to_owned();
    let repository = Repository::at(text("repository"));
    let commits: Vec<String> = serde_json::from_value(order["commits"].clone()).expect("commits");
    let report = block_on(async {
        let store = Store::open(Path::new(&text("data")), Arc::new(SystemClock)).expect("a data directory");
        store.repository_database(RepoId(1)).await.expect("a database");
        let mut times = Vec::new();
        let mut report = Value::Null;
        for commit in commits {
            let begun = Instant::now();
            let snapshot = repository.snapshot(&commit).await;
            let cache = store.cache(RepoId(1)).await.expect("a cache");
            let index = Index::read(&snapshot, cache, &CancellationToken::new()).await.expect("an index");
            times.push(ms(begun.elapsed()));
            report = json!({
                "files": index.files().len(),
                "left_out": index.excluded().len(),
                "items": index.files().iter().map(|file| count(file.digest.summary())).sum::<usize>(),
            });
        }
        report["times"] = json!(times);
        report["peak"] = json!(peak());
        report
    });
    say(report);
}

fn count(summary: &countersign::codebase::Summary) -> usize {
    let mut waiting: Vec<_> = summary.items.iter().collect();
    let mut count = 0;
    while let Some(item) = waiting.pop() {
        count += 1;
        waiting.extend(&item.children);
    }
    count
}

/// Returns the peak memory of this process in megabytes.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().map_or(f64::NAN, |kilobytes| kilobytes / 1024.0)
}

/// Creates [`FOLLOWING`] new commits after `commit`, indexes them, and returns the report on the indexing.
fn following(repository: &Repository, commit: &str) -> Value {
    let home = scratch();
    let copy = home.path().join("copy.git");
    let from = repository.dir.to_str().expect("a path");
    repository.git(&["clone", "--quiet", "--bare", "--shared", from, copy.to_str().expect("a path")]);
    let copy = Repository::at(copy);
    let mut commits = vec![commit.to_owned()];
    for round in 0..FOLLOWING {
        let parent = commits.last().expect("the first");
        commits.push(next(&copy, parent, round, &home.path().join("index")));
    }
    let commits: Vec<&str> = commits.iter().map(String::as_str).collect();
    alone(&copy, &commits, false).1
}

/// Creates a commit on `parent` that adds a line to each of [`CHANGED`] files spread across the tree.
fn next(copy: &Repository, parent: &str, round: usize, index: &Path) -> String {
    let sources: Vec<String> = copy.files(parent).into_iter().filter(|path| is_source(path)).collect();
    let step = (sources.len() / CHANGED).max(1);
    let chosen = sources.iter().skip(round % step).step_by(step).take(CHANGED);
    let git = |args: &[&str], input: Option<&[u8]>| with_index(copy, index, args, input);
    git(&["read-tree", parent], None);
    for path in chosen {
        let mut text = with_index(copy, index, &["cat-file", "blob", &format!("{parent}:{path}")], None);
        text.extend_from_slice(b"\n");
        let blob = line(&git(&["hash-object", "-w", "--stdin"], Some(&text)));
        git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},{path}")], None);
    }
    let tree = line(&git(&["write-tree"], None));
    line(&git(&["commit-tree", &tree, "-p", parent, "-m", "Change a few files"], None))
}

fn line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn with_index(copy: &Repository, index: &Path, args: &[&str], input: Option<&[u8]>) -> Vec<u8> {
    use std::io::Write;
    let mut child = Command::new("git")
        .arg("-C")
        .arg(&copy.dir)
        .args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"])
        .args(args)
        .env("GIT_INDEX_FILE", index)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("git runs");
    let mut stdin = child.stdin.take().expect("its input");
    stdin.write_all(input.unwrap_or_default()).expect("git reads");
    drop(stdin);
    let output = child.wait_with_output().expect("git ends");
    assert!(output.status.success(), "git {args:?} failed");
    output.stdout
}
