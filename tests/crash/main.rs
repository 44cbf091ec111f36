//! Crash tests: kill the bot at any moment and check that the resumed run ends like a run that was never killed.

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
#[allow(dead_code, reason = "shared with the stories that run the program")]
mod process;
mod random;
mod scenarios;
#[path = "../stories/script.rs"]
#[allow(dead_code, reason = "shared with the stories, which use more of it")]
mod script;
mod seen;
mod sequences;
#[path = "../stories/toys/mod.rs"]
mod toys;
#[path = "../stories/unseen.rs"]
#[allow(dead_code, reason = "only the stories use all of it")]
mod unseen;
#[path = "../stories/world.rs"]
#[allow(dead_code, reason = "the stories use other parts of it")]
mod world;

use random::say;
