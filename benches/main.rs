//! Figures, with the peers' beside them where there is a peer. `cargo bench` prints all, `cargo bench -- intake`
//! those of one part. What the peers need is said in README.md here; a part whose peer is missing says so and goes on.

mod calls;
mod checkpoints;
mod intake;
mod load;
mod measure;
mod paced;
mod runs;
mod site;
mod waiting;

type Part = (&'static str, fn());

const PARTS: &[Part] = &[
    ("intake", intake::main),
    ("checkpoints", checkpoints::main),
    ("waiting", waiting::main),
    ("runs", runs::main),
    ("paced", paced::main),
    ("calls", calls::main),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
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
