//! The rules of the house, checked from outside: its floors, its lists, its papers, the contract of its engine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod docs;
mod engine_contract;
mod floors;
mod hours;
mod listed;
mod packaging;
#[allow(dead_code, reason = "each of the binaries with tests needs another part of it")]
mod postgres;
mod words;
