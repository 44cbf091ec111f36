//! Measures the cost of starting a command in the sandbox, compared with the bare command and with bare bubblewrap.
//! Also measures building and testing a small crate in the sandbox.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use countersign::sandbox::{Sandbox, SandboxCommand};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    measure::{Ms, Samples, head, ms, row, say, sized},
    site::block_on,
};

/// Number of command starts measured per variant. The variants take turns.
const TURNS: usize = sized(100, 10);
const AT_ONCE: usize = 16;

/// Number of test runs measured per variant. The variants take turns.
const TEST_RUNS: usize = sized(9, 1);

pub(crate) fn main() {
    block_on(measured());
}

async fn measured() {
    let own = Path::new(env!("CARGO_BIN_EXE_countersign"));
    let sandbox = match Sandbox::detect(own, None).await {
        Ok(sandbox) => sandbox,
        Err(error) => return say(format_args!("not measured: {error}")),
    };
    let mut kinds = vec![Kind::Bare, Kind::Ours(sandbox)];
    if kinds.iter().any(|kind| matches!(kind, Kind::Ours(sandbox) if sandbox.missing_features().is_empty())) {
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
    if let Some(sandbox) =
        kinds.iter().find_map(|kind| if let Kind::Ours(sandbox) = kind { Some(sandbox) } else { None })
    {
        tests(sandbox).await;
    }
}

async fn tests(sandbox: &Sandbox) {
    let asked =
        tokio::process::Command::new("rustc").args(["--print", "sysroot"]).output().await.expect("rustc");
    let toolchain = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", toolchain.join("bin").display());
    let (mut bare, mut ours) = (Samples::default(), Samples::default());
    for _ in 0..TEST_RUNS {
        for inside in [false, true] {
            let place = tempfile::tempdir().expect("a directory");
            let place = place.path().canonicalize().expect("it is there");
            a_crate(&place);
            let arguments = ["test", "--offline", "--quiet"];
            let home = place.join("home");
            let started = Instant::now();
            let done = if inside {
                let mut run = SandboxCommand::new(toolchain.join("bin/cargo"), &place);
                run.args = arguments.map(std::ffi::OsString::from).into();
                run.read = vec![toolchain.clone()];
                run.environment =
                    [("PATH", std::ffi::OsString::from(&path)), ("HOME", home.into_os_string())]
                        .map(|(name, value)| (name.into(), value))
                        .into();
                run.limits.time = Duration::from_secs(300);
                sandbox.run(run, &CancellationToken::new()).await.expect("it runs").end.success()
            } else {
                let mut command = tokio::process::Command::new(toolchain.join("bin/cargo"));
                command.args(arguments).current_dir(&place).env_clear().env("PATH", &path).env("HOME", home);
                command.output().await.expect("it starts").status.success()
            };
            assert!(done, "the tests failed");
            let samples = if inside { &mut ours } else { &mut bare };
            samples.add(ms(started.elapsed()));
        }
    }
    let (bare, ours) = (bare.sorted().at(0.5), ours.sorted().at(0.5));
    say(format_args!(
        "\n`cargo test` of 300 tests, built: bare {}, in the sandbox {}, {:+.1} %",
        Ms(bare),
        Ms(ours),
        (ours / bare - 1.0) * 100.0
    ));
}

/// Creates a crate with 300 tests, each of which writes a file and computes a little.
fn a_crate(place: &Path) {
    let write = |path: &str, text: &str| std::fs::write(place.join(path), text).expect("it can be written");
    std::fs::create_dir_all(place.join("src")).expect("a directory");
    write("Cargo.toml", "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    let tests = (0..300).map(|n| {
        format!(
            "#[test]\nfn t{n}() {{\n    let path = std::env::temp_dir().join(\"a{n}\");\n    std::fs::write(&path, \"x\").unwrap();\n    \
             let all: Vec<u64> = (0..20_000).map(|k| k * {n} % 7).collect();\n    assert!(all.iter().sum::<u64>() < 200_000);\n    \
             std::fs::remove_file(path).unwrap();\n}}\n"
        )
    });
    write("src/lib.rs", &tests.collect::<String>());
}

enum Kind {
    Bare,
    /// Bubblewrap with the same namespaces as our sandbox, but without the sandbox's other restrictions.
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
                let run = SandboxCommand::new("true", place.canonicalize().expect("it is there"));
                sandbox.run(run, &CancellationToken::new()).await.expect("it runs").end.success()
            }
        };
        assert!(ended, "`true` failed");
    }
}
