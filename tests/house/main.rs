//! Checks of the repository from outside the crate: layers of modules, registered workflows, documentation, packaging,
//! names, and the engine's contract.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod docs;
mod engine_contract;
mod layers;
mod packaging;
#[allow(dead_code, reason = "each of the binaries with tests needs another part of it")]
mod postgres;

mod wall_time;
mod words;
mod workflow_registry;
