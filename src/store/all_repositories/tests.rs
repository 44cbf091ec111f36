//! Tests of the operator's pages with database files in various states, including damaged ones.

use std::{collections::BTreeSet, fs, path::Path};

use rusqlite::Connection;

use super::*;
use crate::{
    clock::SystemClock,
    store::tests::new_run,
    types::{Hash, MicroUsd},
};

/// Creates repositories with runs on issues, then closes and reopens the store.
async fn filled_store(root: &Path, repos: u64, runs: u64) -> Arc<Store> {
    let store = Store::open(root, Arc::new(SystemClock)).unwrap();
    for repo in 1..=repos {
        for issue in 1..=runs {
            store.start_run(new_run(RepoId(repo), issue)).await.unwrap();
        }
    }
    drop(store);
    for repo in 1..=repos {
        // Every second run ended, and many changed at the same time, also across repositories.
        let sql = "UPDATE run SET updated_at = seq / 3, status = iif(seq % 2, 'done', iif(seq % 3, 'asking', 'waiting'))";
        open_database(root, repo).execute_batch(sql).unwrap();
    }
    Store::open(root, Arc::new(SystemClock)).unwrap()
}

fn open_database(root: &Path, repo: u64) -> Connection {
    Connection::open(root.join(format!("repos/{repo}/checkpoints.db"))).unwrap()
}

async fn pages(store: &Arc<Store>, asked: RunQuery) -> Vec<RunListRow> {
    let (mut all, mut asked) = (Vec::new(), asked);
    loop {
        let page = store.run_page(&asked).await.unwrap();
        assert!(page.skipped.is_empty() && page.runs.len() <= asked.most, "{:?}", page.skipped);
        all.extend(page.runs);
        let Some(place) = page.more_after else { return all };
        asked.after = Some(place.to_string().parse().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_is_on_exactly_one_page_and_open_gates_come_first() {
    let root = tempfile::tempdir().unwrap();
    let store = filled_store(root.path(), 4, 13).await;
    for most in [1, 5, 7, 52, 100] {
        let all = pages(&store, RunQuery { most, ..RunQuery::default() }).await;
        assert_eq!(all.len(), 4 * 13);
        assert_eq!(all.iter().map(|run| run.id).collect::<BTreeSet<_>>().len(), 4 * 13, "{most}");
        assert!(all.is_sorted_by_key(|run| Reverse(run.cursor)));
        assert!(all.is_sorted_by_key(|run| (run.status != RunStatus::Asking, Reverse(run.updated_at))));
    }
    let of =
        |state, repo: Option<u64>| RunQuery { state, repo: repo.map(RepoId), most: 3, ..RunQuery::default() };
    for (asked, wanted) in [
        (of(Some(RunStatus::Done), None), 4 * 7),
        (of(Some(RunStatus::Asking), None), 4 * 4),
        (of(Some(RunStatus::Waiting), Some(2)), 2),
        (of(None, Some(3)), 13),
        (of(None, Some(99)), 0),
        (RunQuery { workflow: Some("spec".into()), ..of(None, None) }, 0),
        (RunQuery { workflow: Some("lld".into()), ..of(None, None) }, 4 * 13),
    ] {
        let all = pages(&store, asked.clone()).await;
        assert_eq!(all.len(), wanted, "{asked:?}");
        assert!(all.iter().all(|run| asked.state.is_none_or(|state| run.status == state)));
        assert!(all.iter().all(|run| asked.repo.is_none_or(|repo| run.id.repo == repo)));
    }
    assert!("1.2".parse::<RunCursor>().is_err() && "a.b.c.d".parse::<RunCursor>().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_run_rows_are_reported_and_other_runs_are_shown() {
    let root = tempfile::tempdir().unwrap();
    let store = filled_store(root.path(), 4, 4).await;
    let file = root.path().join("repos/1/checkpoints.db");
    let length = fs::metadata(&file).unwrap().len();
    fs::write(&file, vec![7; usize::try_from(length).unwrap()]).unwrap();
    open_database(root.path(), 2).pragma_update(None, "user_version", 99).unwrap();
    let odd = open_database(root.path(), 3);
    odd.execute_batch("PRAGMA ignore_check_constraints = 1; UPDATE run SET status = 'odd' WHERE seq = 3")
        .unwrap();
    let body = "INSERT INTO call (run, visit, key, body, at) VALUES (1, 1, 'k', '{}', 5)";
    open_database(root.path(), 4).execute_batch(body).unwrap();

    let page = store.run_page(&RunQuery { most: 50, ..RunQuery::default() }).await.unwrap();
    let why: Vec<_> = page.skipped.iter().map(|left| (left.repo.0, left.why.as_str())).collect();
    let wanted = [
        (1, "its database is damaged"),
        (2, "its database was written by a newer countersign"),
        (3, "run 3-3 cannot be read"),
    ];
    assert_eq!(why, wanted);
    assert_eq!(page.runs.len(), 3 + 4);
    let (lines, left_out) = store.spend_since(None, Timestamp(0)).await.unwrap();
    assert!(lines.is_empty());
    let last = left_out.last().map(|left| (left.repo.0, left.why.as_str()));
    assert_eq!((left_out.len(), last), (3, Some((4, "calls that cannot be read: 1"))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_all_runs_leaves_no_database_open_and_uses_an_index() {
    let root = tempfile::tempdir().unwrap();
    let store = filled_store(root.path(), 2, 4).await;
    store.run_page(&RunQuery { most: 50, ..RunQuery::default() }).await.unwrap();
    assert!(store.repositories.get_open(RepoId(1)).is_none());
    let plan: String = open_database(root.path(), 1)
        .query_row(
            "EXPLAIN QUERY PLAN SELECT updated_at, seq FROM run
             WHERE (status = 'asking' OR parked IS NOT NULL) = 1 AND (updated_at, seq) < (5, 5)
             ORDER BY updated_at DESC, seq DESC",
            [],
            |row| row.get("detail"),
        )
        .unwrap();
    assert!(plan.contains("run_shown") && plan.contains("SEARCH"), "{plan}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spend_is_grouped_by_day_and_includes_the_reservations_of_lost_calls() {
    let root = tempfile::tempdir().unwrap();
    let store = filled_store(root.path(), 2, 1).await;
    let at = |text: &str| Timestamp::parse(text).unwrap();
    let call = |status: &str, cost: Option<u64>, billed: bool, held: Option<u64>| {
        serde_json::json!({
            "role": "drafter", "provider": "anthropic", "asked": "opus", "served": "opus-4", "family": null,
            "prompt": Hash::digest(b"p"), "status": status, "input_tokens": 1, "output_tokens": 1, "cache_read": 0,
            "cache_written": 0, "cost_microusd": cost, "billed": billed, "held_microusd": held, "elapsed_ms": 1,
            "attempts": 1, "error": null,
        })
    };
    let book = |repo: u64, key: &str, at: Timestamp, body: serde_json::Value| {
        let sql = "INSERT INTO call (run, visit, key, body, at) VALUES (1, 1, ?1, ?2, ?3)";
        open_database(root.path(), repo).execute(sql, params![key, body.to_string(), at.0]).unwrap();
    };
    let (late, early) = (at("2026-03-30T23:59:59Z"), at("2026-03-31T00:00:00Z"));
    book(1, "a", late, call("done", Some(5), true, None));
    book(1, "b", early, call("done", Some(7), false, None));
    book(1, "c", early, call("lost", None, false, Some(11)));
    book(2, "a", early, call("done", Some(13), true, None));
    let (lines, left_out) = store.spend_since(None, at("2026-03-01T00:00:00Z")).await.unwrap();
    assert_eq!(left_out, []);
    let sums: Vec<_> = lines
        .iter()
        .map(|line| {
            (line.day.to_string(), line.repo.0, [line.spent.billed, line.spent.held, line.spent.notional])
        })
        .collect();
    let money = |sums: [u64; 3]| sums.map(MicroUsd);
    let [first, second] = ["2026-03-30T00:00:00Z", "2026-03-31T00:00:00Z"].map(str::to_owned);
    assert_eq!(
        sums,
        [
            (first, 1, money([5, 0, 0])),
            (second.clone(), 1, money([0, 11, 7])),
            (second, 2, money([13, 0, 0]))
        ]
    );
    let (lines, _) = store.spend_since(Some(RepoId(1)), early).await.unwrap();
    assert_eq!(lines.len(), 1, "the days before are left out");
}
