//! Runs the steps of the checkpoint benchmark on Postgres, with one process and with several, and compares them to
//! SQLite on this machine. Also measures the rate of accepted deliveries and the database connections of an idle node.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use countersign::{
    clock::SystemClock,
    store::{DeliveryReceipt, DeliverySubject, NewDelivery, PostgresServer, Store},
    types::DeliveryId,
};
use postgres::{Client, NoTls};
use tokio_util::sync::CancellationToken;

use crate::{
    checkpoints::{Bench, NODES, RUNS, one_after_the_other, words},
    measure::{Ms, head, row, say, sized},
    postgres_server,
    site::{block_on, scratch},
};

/// Environment variable with the database address. A process that has this variable acts as a node.
pub(crate) const NODE: &str = "COUNTERSIGN_BENCH_NODE";

const PROCESSES: [usize; 3] = [1, 2, 4];
const REPOSITORIES: u64 = 16;
const DELIVERIES: usize = sized(4000, 64);
const AT_ONCE: usize = 32;
const BODY: usize = 12_000;

fn join(address: &str, directory: &Path) -> Arc<Store> {
    let server = PostgresServer { address: address.to_owned().into(), lease: Duration::from_secs(45) };
    Store::join_postgres(&server, directory, Arc::new(SystemClock)).expect("the database")
}

pub(crate) fn main() {
    let Some(address) = postgres_server::database() else { return };
    let (text, directory) = (words(), scratch());
    say(format_args!(
        "{NODES} steps a run, each writes a document of {} bytes; Postgres with its usual settings on this machine\n",
        text.len()
    ));
    head(&["a step, one after the other", "p50", "p99"]);
    for (name, of_postgres) in [("SQLite", false), ("Postgres", true)] {
        let place = directory.path().join(name);
        let store = if of_postgres {
            join(&address, &place)
        } else {
            Store::open(&place, Arc::new(SystemClock)).expect("the data directory")
        };
        let steps = block_on(one_after_the_other(store, text.clone(), true));
        row(&[&name, &Ms(steps.at(0.5)), &Ms(steps.at(0.99))]);
    }
    say("");
    head(&["processes", "steps/s", "connections a process, idle"]);
    for processes in PROCESSES {
        let address = postgres_server::database().expect("it runs");
        let (rate, connections) = side_by_side(&address, directory.path(), processes, &text);
        row(&[&processes, &format!("{rate:.0}"), &connections]);
    }
    say("");
    head(&["deliveries of 12 KB, 32 at once", "a second"]);
    let store = Store::open(&directory.path().join("inbox"), Arc::new(SystemClock)).expect("the directory");
    row(&[&"SQLite", &format!("{:.0}", block_on(deliveries(store)))]);
    let address = postgres_server::database().expect("it runs");
    row(&[
        &"Postgres",
        &format!("{:.0}", block_on(deliveries(join(&address, &directory.path().join("door"))))),
    ]);
}

/// Returns the steps per second that all `processes` nodes reach together, and the number of database connections that
/// each node keeps afterwards.
fn side_by_side(address: &str, directory: &Path, processes: usize, text: &str) -> (f64, f64) {
    let runs = RUNS as u64 / REPOSITORIES * REPOSITORIES;
    let starter = Bench::over(join(address, &directory.join(format!("starter-{processes}"))), text, true);
    block_on(async {
        for run in 0..runs {
            starter.start(run % REPOSITORIES + 1, run + 1).await;
        }
    });
    drop(starter);
    let nodes = (0..processes).map(|number| {
        let mut node = Command::new(std::env::current_exe().expect("this program"))
            .env(NODE, address)
            .current_dir(tempfile::tempdir_in(directory).expect("a directory").keep())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut line = String::new();
        BufReader::new(node.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready", "node {number}");
        node
    });
    let mut nodes: Vec<Child> = nodes.collect();
    let mut database = Client::connect(address, NoTls).expect("the database");
    let mut count = |sql: &str| -> i64 { database.query_one(sql, &[]).expect("a number").get(0) };
    let begun = Instant::now();
    nodes.iter_mut().for_each(|node| drop(node.stdin.as_mut().map(|stdin| stdin.write_all(b"go\n"))));
    let live = "SELECT COUNT(*) FROM countersign.all_run WHERE status = 'ready'";
    while count(live) > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let connections = count(
        "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'countersign' AND datname = current_database()",
    );
    for mut node in nodes {
        drop(node.stdin.take());
        node.wait().expect("its end");
    }
    ((runs as usize * NODES) as f64 / seconds, connections as f64 / processes as f64)
}

/// Runs a node. The node starts to execute steps when it reads the first line from standard input, and stops when
/// standard input is closed.
pub(crate) fn node(address: &str) {
    let here = std::env::current_dir().expect("a directory");
    let bench = Bench::over(join(address, &here), &words(), true);
    say("ready");
    let read_line = || std::io::stdin().read_line(&mut String::new()).is_ok_and(|read| read > 0);
    if !read_line() {
        return;
    }
    block_on(async {
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (engine, stop) = (bench.engine.clone(), stop.clone());
            async move { engine.run(stop).await }
        });
        tokio::task::spawn_blocking(move || while read_line() {}).await.expect("its input");
        stop.cancel();
        running.await.expect("the engine");
    });
}

/// Returns the number of deliveries stored per second.
async fn deliveries(store: Arc<Store>) -> f64 {
    let begun = Instant::now();
    let senders = (0..AT_ONCE).map(|sender| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for number in 0..DELIVERIES / AT_ONCE {
                let delivery = NewDelivery {
                    id: DeliveryId(format!("{sender}-{number}")),
                    event: "issues".to_owned(),
                    subject: DeliverySubject::default(),
                    swept: false,
                    body: vec![b'x'; BODY],
                };
                let accepted = store.inbox().accept_delivery(delivery).await.expect("the inbox");
                assert!(accepted == DeliveryReceipt::New);
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.expect("a sender");
    }
    DELIVERIES as f64 / begun.elapsed().as_secs_f64()
}
