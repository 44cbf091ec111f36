//! The rules of the house, checked from outside.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod engine_contract;
