//! Checkpoints of each workflow version. They are stored in `fixtures/states`, so that later versions can be tested
//! with them.

use std::{fs, path::PathBuf};

use countersign::workflows;
use serde_json::{Value, json};

use crate::world::World;

fn file(workflow: &str, version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/states/{workflow}-v{version}.jsonl"))
}

impl World {
    /// If `UPDATE_STATES` is set, stores a checkpoint of each step that has none stored for its workflow version. A
    /// stored checkpoint is never rewritten, because later programs must read exactly these bytes.
    pub(crate) fn keep_states(&self) {
        if std::env::var_os("UPDATE_STATES").is_none() {
            return;
        }
        let open = self.checkpoints(self.data());
        let trail = "SELECT workflow, version, trail.step, CAST(trail.state AS TEXT) FROM trail
                         JOIN run ON run.seq = trail.run ORDER BY trail.run, trail.visit DESC";
        let mut statement = open.prepare(trail).unwrap();
        let rows = statement.query_map([], |row| {
            let (workflow, version): (String, u32) = (row.get(0)?, row.get(1)?);
            Ok((file(&workflow, version), row.get::<_, String>(2)?, row.get::<_, String>(3)?))
        });
        for (file, step, state) in rows.unwrap().map(Result::unwrap) {
            let kept = fs::read_to_string(&file).unwrap_or_default();
            let known = |line: &str| serde_json::from_str::<Value>(line).unwrap()["step"] == step;
            if !kept.lines().any(known) {
                fs::write(&file, format!("{kept}{}\n", json!({ "step": step, "state": state }))).unwrap();
            }
        }
    }
}

#[test]
fn every_workflow_version_has_stored_checkpoints() {
    for workflow in workflows::ALL {
        let file = file(workflow.name(), workflow.version());
        assert!(file.exists(), "run a story of {} with UPDATE_STATES=1", workflow.name());
    }
}
