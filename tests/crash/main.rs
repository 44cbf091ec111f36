//! Killed anywhere, it goes on as if nothing had happened: shown by trying it everywhere.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod cluster;
mod demo;
mod disk;
mod kills;
mod matrix;
mod models;
mod on_postgres;
mod points;
#[path = "../house/postgres.rs"]
#[allow(dead_code, reason = "each of the binaries with tests needs another part of it")]
mod postgres;
#[path = "../stories/shell/process.rs"]
#[allow(dead_code, reason = "shared with the stories told at a shell")]
mod process;
mod random;
mod scenarios;
#[path = "../stories/script.rs"]
#[allow(dead_code, reason = "shared with the stories, which say more by it")]
mod script;
mod seen;
mod sequences;
#[path = "../stories/toys/mod.rs"]
mod toys;
#[path = "../stories/unseen.rs"]
#[allow(dead_code, reason = "only stories have to look at everything")]
mod unseen;
#[path = "../stories/world.rs"]
#[allow(dead_code, reason = "stories are told of the same world and need other parts")]
mod world;

use random::say;
