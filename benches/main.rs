//! Benchmarks, some of them with a comparison to other programs (peers). `cargo bench` runs all parts; `cargo bench --
//! intake` runs one part. README.md in this directory lists the requirements of the peers. If a peer is missing, its
//! part prints a note and only our own figures. `cargo bench -- codebase DIR...` and similar parts read real
//! repositories.

mod aider;
mod calls;
mod checkpoints;
mod cluster;
mod codebase;
mod hostile;
mod implement;
mod intake;
mod load;
mod measure;
mod paced;
mod pages;
#[path = "../tests/house/postgres.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with tests")]
mod postgres_server;
mod recall;
mod repositories;
mod routes;
mod runs;
mod sandbox;
mod seen;
mod signatures;
mod site;
mod waiting;

type Part = (&'static str, fn());

const PARTS: &[Part] = &[
    ("intake", intake::main),
    ("checkpoints", checkpoints::main),
    ("cluster", cluster::main),
    ("waiting", waiting::main),
    ("runs", runs::main),
    ("routes", routes::main),
    ("paced", paced::main),
    ("pages", pages::main),
    ("calls", calls::main),
    ("sandbox", sandbox::main),
    ("implement", implement::main),
    ("codebase", codebase::main),
    ("hostile", hostile::main),
    ("recall", recall::main),
    ("older", recall::older),
    ("fresh", recall::fresh),
    ("signatures", signatures::main),
];

fn main() {
    if let Ok(order) = std::env::var(codebase::ALONE) {
        return codebase::index_alone(&order);
    }
    if let Ok(address) = std::env::var(cluster::NODE) {
        return cluster::node(&address);
    }
    let wanted: Vec<String> =
        repositories::words().filter(|word| !repositories::is_directory(word)).collect();
    let unknown = wanted.iter().find(|word| PARTS.iter().all(|(name, _)| name != word));
    if let Some(word) = unknown {
        let names: Vec<_> = PARTS.iter().map(|(name, _)| *name).collect();
        eprintln!("there is no part {word}; there are {}", names.join(", "));
        std::process::exit(2);
    }
    for (name, run) in PARTS {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            measure::say(format_args!("\n## {name}\n"));
            run();
        }
    }
}
