//! Stories in which runs that the first version left in the middle of a step resume in this version. Each workflow is
//! covered.
//!
//! `fixtures/stages-VERSION.tar.zst` contains a directory for each row of [`STAGES`], with the directories of the bot
//! and the hub as a kill left them. [`each_stage_resumes_from_data_stored_by_the_first_version`] writes the file only if
//! `UPDATE_STATES` is set and the file does not exist. An existing file is never rewritten. The keys and secrets in the
//! file give access to nothing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use countersign::{
    clock::Clock, engine::RunViewStatus, localhub::embedded_sample, store::check_databases, types::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;

use super::upgrade::{calls, fixtures, pack, paid_amid, tar};
use crate::{
    implement::{can_run, plain, specified},
    script::{Script, approved, design, rehearsed},
    world::{Known, Setting, World, directory},
};

/// A stage: the way its run starts, the point at which the run is interrupted, and the run's status after resuming.
struct Stage {
    name: &'static str,
    /// Comment by the user maya that starts the run.
    starts: &'static str,
    /// Workflow, role and number of the paid call after which the run is interrupted. `None`: the run is copied while
    /// no step is running.
    cut: Option<(&'static str, &'static str, u32)>,
    resumes_as: RunViewStatus,
}

const STAGES: [Stage; 9] = [
    Stage {
        name: "issue",
        starts: "/issue",
        cut: Some(("issue", "drafter", 1)),
        resumes_as: RunViewStatus::Asking,
    },
    Stage {
        name: "lld",
        starts: "/lld",
        cut: Some(("lld", "reviewer", 1)),
        resumes_as: RunViewStatus::Asking,
    },
    Stage {
        name: "spec",
        starts: "/spec",
        cut: Some(("spec", "drafter", 1)),
        resumes_as: RunViewStatus::Done,
    },
    Stage {
        name: "tests",
        starts: "/implement",
        cut: Some(("implement", "drafter", 1)),
        resumes_as: RunViewStatus::Asking,
    },
    Stage {
        name: "code",
        starts: "/implement",
        cut: Some(("implement", "drafter", 2)),
        resumes_as: RunViewStatus::Asking,
    },
    Stage { name: "gate", starts: "/implement", cut: None, resumes_as: RunViewStatus::Asking },
    Stage { name: "pushed", starts: "/implement", cut: None, resumes_as: RunViewStatus::Asking },
    Stage {
        name: "scout",
        starts: "/scout weeks of time sheets",
        cut: Some(("scout", "drafter", 1)),
        resumes_as: RunViewStatus::Asking,
    },
    Stage {
        name: "route",
        starts: "@countersign add weeks to the report",
        cut: Some(("route", "router", 1)),
        resumes_as: RunViewStatus::Asking,
    },
];

/// Contents of the file `kept.json`, which is stored next to the directories of a stage.
#[derive(Serialize, Deserialize)]
struct StageFile {
    known: Known,
    now: Timestamp,
}

impl Stage {
    async fn world(&self) -> World {
        if self.starts == "/implement" {
            return specified("", plain).await;
        }
        let routed = json!({ "skill": "feature-brief", "confidence": 0.97, "intent": "work", "reasoning": "It asks for a feature.",
            "others": [], "missing": [] });
        let script = Script::default().no_questions().drafts(&design()).reviews(&approved());
        let script = ["issue", "spec", "scout"].into_iter().fold(script, |script, workflow| {
            script.drafts(&rehearsed(workflow)).of(workflow).reviews(&approved()).of(workflow)
        });
        let script = script.with(json!({ "role": "router", "text": routed.to_string() }));
        let toml = "[route]\nmodel = \"stub:router\"\n".to_owned();
        let mut w = World::new(Setting { script: Some(script.toml()), toml, ..Setting::default() }).await;
        if self.name == "issue" {
            let (title, body) = embedded_sample().issues[1];
            w.issue = w.hub.open_issue(w.repo, w.user("tess"), title, body).unwrap();
        }
        if self.name == "spec" {
            w.label("maya", "countersign:lld").await;
            w.approved_by("sam").await;
        }
        w
    }

    /// Plays the stage up to its point of interruption. Returns the directory that a kill at that point would leave.
    async fn interrupted(&self) -> TempDir {
        let mut w = self.world().await;
        let copied = self
            .cut
            .map(|(workflow, role, nth)| w.copy_when(move |file| paid_amid(file, workflow, role, nth)));
        w.comment("maya", self.starts).await;
        w.tried().await;
        if self.name == "pushed" {
            w.stands(RunViewStatus::Asking).await;
            w.approved_by("sam").await;
        }
        let (known, now) = (w.known(), w.clock.now());
        w.mark_all_seen();
        let left = w.leave().await;
        let (directory, now) = match copied {
            Some(copied) => Arc::into_inner(copied).unwrap().into_inner().expect("the run was interrupted"),
            None => (left, now),
        };
        let kept = serde_json::to_string_pretty(&StageFile { known, now }).unwrap();
        fs::write(directory.path().join("kept.json"), kept).unwrap();
        directory
    }

    /// Opens the directory like a server of this version. Asserts that the run resumes and that no call is paid twice.
    async fn resume(&self, directory: TempDir) {
        let kept: StageFile =
            serde_json::from_slice(&fs::read(directory.path().join("kept.json")).unwrap()).unwrap();
        let data = directory.path().join("bot/data");
        let checkpoints = data.join(format!("repos/{}/checkpoints.db", kept.known.repo));
        let paid = calls(&checkpoints);
        let mut w = World::go_on(directory, kept.known, kept.now).await;
        // A starting server does this. It removes the label that the first version set on a working run.
        w.look().await;
        w.settle().await;
        w.tried().await;
        assert_eq!(w.run_status().await, self.resumes_as, "{}:\n{}", self.name, w.thread());
        match self.name {
            "gate" => {
                // The hash covers the change's report. This version words it differently, so the gate shows a new
                // command.
                let line = w.approve_line();
                w.comment("sam", &line).await;
                w.newest();
                w.approved_by("sam").await;
            }
            "lld" | "scout" => w.approved_by("sam").await,
            "pushed" => w.merged().await,
            _ => {}
        }
        w.mark_all_seen();
        let now = calls(&checkpoints);
        assert!(paid.iter().all(|row| now.contains(row)), "{}: {now:#?}", self.name);
        let prompts: BTreeSet<_> = now.iter().map(|(run, _, key, body)| (run, key, prompt(body))).collect();
        assert_eq!(prompts.len(), now.len(), "{}: a prompt was paid twice: {now:#?}", self.name);
        let wrong: Vec<_> = check_databases(&data.as_path().into())
            .unwrap()
            .into_iter()
            .flat_map(|checked| checked.problems)
            .collect();
        assert_eq!(wrong, [""; 0], "{}", self.name);
    }
}

/// Returns the hash of the prompt from the stored body of a call.
fn prompt(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["prompt"].as_str().unwrap().to_owned()
}

impl World {
    fn mark_all_seen(&self) {
        self.seen_by_all();
        self.checks();
        if !self.pulls().is_empty() {
            self.pull();
            self.commits();
            self.on_pull();
        }
    }
}

async fn resume_all(packed: &[u8]) {
    let all = directory();
    tar(&["--no-same-owner", "-xf", "-"], all.path(), &zstd::decode_all(packed).unwrap());
    let sandbox = can_run().await;
    for stage in STAGES.iter().filter(|stage| sandbox || stage.starts != "/implement") {
        let own = directory();
        for part in ["hub", "bot", "kept.json"] {
            let from = all.path().join(stage.name).join(part);
            assert!(Command::new("cp").arg("-r").arg(from).arg(own.path()).status().unwrap().success());
        }
        stage.resume(own).await;
    }
}

fn file() -> PathBuf {
    let (major, minor) = (env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
    fixtures().join(format!("stages-{major}.{minor}.tar.zst"))
}

/// Fails if a stored format has changed so that the code can no longer read data stored by the first version. In that
/// case fix the code that reads the data, never the fixture.
#[tokio::test]
#[ignore = "takes long"]
async fn each_stage_resumes_from_data_stored_by_the_first_version() {
    if !file().exists() && std::env::var_os("UPDATE_STATES").is_some() {
        let all = directory();
        for stage in &STAGES {
            let left = stage.interrupted().await;
            let to: &Path = &all.path().join(stage.name);
            assert!(Command::new("cp").arg("-r").arg(left.path()).arg(to).status().unwrap().success());
        }
        fs::write(file(), pack(all.path())).unwrap();
    }
    resume_all(&fs::read(file()).unwrap()).await;
}
