//! Measures the cost of waiting runs. Compares an idle server with a server that has 10,000 runs at gates in 200
//! repositories.
//!
//! The server first brings one run to its gate. The benchmark then copies that run's database to 200 repositories and
//! multiplies the run's rows, because playing every run would take hours.

use std::{path::Path, time::Duration};

use countersign::types::IssueNo;
use rusqlite::{Connection, params};

use crate::{
    measure::{head, ms, processor, resident, row, sized},
    site::{Serving, Site, block_on},
};

const REPOSITORIES: u64 = sized(200, 3) as u64;
const RUNS_EACH: u32 = sized(50, 2) as u32;
/// Time over which an idle server's processor time is measured.
const COUNTED: Duration = Duration::from_secs(sized(10, 1) as u64);

pub(crate) fn main() {
    block_on(async {
        let site = Site::new("").await;
        head(&["server", "start", "memory", "processor time in 10 s of waiting"]);
        measure("idle", site.serve().await).await;

        let serving = site.serve().await;
        let issue =
            site.hub.open_issue(site.repo, site.maya, "Export", "Rows go missing.").expect("an issue");
        to_the_gate(&site, issue).await;
        serving.stop();
        multiply(&site);
        let waiting = site.serve().await;
        let ready = site.ready().await;
        assert_eq!(ready["runs"]["waiting_for_people"], REPOSITORIES * u64::from(RUNS_EACH), "{ready}");
        let name =
            format!("{} runs waiting in {REPOSITORIES} repositories", REPOSITORIES * u64::from(RUNS_EACH));
        waiting.stop();
        measure(&name, site.serve().await).await;
    });
}

async fn measure(name: &str, serving: Serving) {
    let start = ms(serving.started.elapsed());
    // The work of a start is over by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = processor(serving.pid());
    tokio::time::sleep(COUNTED).await;
    let used = processor(serving.pid()) - before;
    row(&[
        &name,
        &format!("{start:.0} ms"),
        &format!("{:.1} MB", resident(serving.pid())),
        &format!("{used:.0} ms"),
    ]);
    serving.stop();
}

pub(crate) async fn to_the_gate(site: &Site, issue: IssueNo) {
    site.hub.label(site.repo, issue, site.maya, "countersign:lld").expect("a label");
    for _ in 0..600 {
        let view = site.hub.issue(site.repo, issue).expect("the issue");
        if view.comments.iter().any(|comment| comment.body.contains("/approve lld ")) {
            // The gate opens a moment after its command appears.
            tokio::time::sleep(Duration::from_secs(2)).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no gate within a minute");
}

pub(crate) fn multiply(site: &Site) {
    let repos = site.data().join("repos");
    let original = repos.join(site.repo.to_string()).join("checkpoints.db");
    more_runs(&original);
    let main = Connection::open(site.data().join("main.db")).expect("main.db");
    for number in 1..REPOSITORIES {
        let copy = i64::try_from(site.repo.0 + 1_000_000 + number).expect("a small number");
        let directory = repos.join(copy.to_string());
        std::fs::create_dir(&directory).expect("a directory");
        let file = directory.join("checkpoints.db");
        std::fs::copy(&original, &file).expect("a copy");
        let database = Connection::open(&file).expect("the copy");
        database
            .execute("UPDATE run SET request = json_set(request, '$.repo', ?1)", params![copy])
            .expect("an update");
        main.execute("INSERT INTO hint (repo, seq, due) VALUES (?1, 1, NULL)", params![copy])
            .expect("a hint");
    }
}

/// Copies the waiting run and its gate until the database contains [`RUNS_EACH`] runs, each on a separate issue.
fn more_runs(file: &Path) {
    let database = Connection::open(file).expect("the repository's database");
    let columns = |table: &str, but: &[&str]| -> String {
        let mut query =
            database.prepare(&format!("SELECT name FROM pragma_table_info('{table}')")).expect("a query");
        let names = query.query_map([], |row| row.get::<_, String>(0)).expect("columns");
        let names: Vec<_> =
            names.map(|name| name.expect("a name")).filter(|n| !but.contains(&n.as_str())).collect();
        names.join(", ")
    };
    let run = columns("run", &["seq", "issue", "cause", "request"]);
    let gate = columns("gate", &["id", "run"]);
    for number in 1..RUNS_EACH {
        let issue = 1000 + number;
        database
            .execute(
                &format!(
                    "INSERT INTO run (issue, cause, request, {run})
                     SELECT ?1, 'bench-' || ?1, json_set(request, '$.issue', ?1), {run} FROM run WHERE seq = 1"
                ),
                params![issue],
            )
            .expect("a run");
        let seq = database.last_insert_rowid();
        let sql = format!(
            "INSERT INTO gate (run, {gate}) SELECT ?1, {gate} FROM gate WHERE run = 1 AND closed_at IS NULL"
        );
        database.execute(&sql, params![seq]).expect("a gate");
        let trail = columns("trail", &["run"]);
        let sql = format!("INSERT INTO trail (run, {trail}) SELECT ?1, {trail} FROM trail WHERE run = 1");
        database.execute(&sql, params![seq]).expect("its trail");
    }
}
