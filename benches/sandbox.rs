//! What it costs to start a command in the sandbox: beside the bare command, and beside bubblewrap without any of ours.

use std::{path::Path, time::Instant};

use countersign::sandbox::{Run, Sandbox};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    measure::{Ms, Samples, head, ms, row, say},
    site::block_on,
};

/// Starts of each kind, which take turns.
const TURNS: usize = 100;
const AT_ONCE: usize = 16;

pub(crate) fn main() {
    block_on(measured());
}

async fn measured() {
    let own = Path::new(env!("CARGO_BIN_EXE_countersign"));
    let sandbox = match Sandbox::of_this_machine(own, None).await {
        Ok(sandbox) => sandbox,
        Err(error) => return say(format_args!("not measured: {error}")),
    };
    let mut kinds = vec![Kind::Bare, Kind::Ours(sandbox)];
    if kinds.iter().any(|kind| matches!(kind, Kind::Ours(sandbox) if sandbox.lacks().is_empty())) {
        kinds.insert(1, Kind::Bubblewrap);
    }
    let places: Vec<_> = (0..AT_ONCE).map(|_| tempfile::tempdir().expect("a directory")).collect();
    let mut alone = vec![Samples::default(); kinds.len()];
    for _ in 0..TURNS {
        for (kind, samples) in kinds.iter().zip(&mut alone) {
            let started = Instant::now();
            kind.start(places[0].path()).await;
            samples.add(ms(started.elapsed()));
        }
    }
    head(&["`true`", "median", "95 %", &format!("{AT_ONCE} at once, until the last has ended")]);
    for (kind, samples) in kinds.iter().zip(alone) {
        let mut together = Samples::default();
        for _ in 0..TURNS / 10 {
            let started = Instant::now();
            join_all(places.iter().map(|place| kind.start(place.path()))).await;
            together.add(ms(started.elapsed()));
        }
        let sorted = samples.sorted();
        row(&[&kind.name(), &Ms(sorted.at(0.5)), &Ms(sorted.at(0.95)), &Ms(together.sorted().at(0.5))]);
    }
}

enum Kind {
    Bare,
    /// With the namespaces that ours has, and nothing else.
    Bubblewrap,
    Ours(Sandbox),
}

impl Kind {
    fn name(&self) -> String {
        match self {
            Self::Bare => "bare".to_owned(),
            Self::Bubblewrap => "bubblewrap".to_owned(),
            Self::Ours(sandbox) => format!("sandbox, {}", sandbox.level().as_str()),
        }
    }

    async fn start(&self, place: &Path) {
        let all = "--unshare-all --cap-drop ALL --die-with-parent --ro-bind / / --dev /dev --proc /proc true";
        let ended = match self {
            Self::Bare => tokio::process::Command::new("true").status().await.expect("it starts").success(),
            Self::Bubblewrap => {
                let mut command = tokio::process::Command::new("bwrap");
                command.args(all.split(' ')).status().await.expect("it starts").success()
            }
            Self::Ours(sandbox) => {
                let run = Run::new("true", place.canonicalize().expect("it is there"));
                sandbox.run(run, &CancellationToken::new()).await.expect("it runs").end.success()
            }
        };
        assert!(ended, "`true` failed");
    }
}
