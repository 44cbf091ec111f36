//! Stories: what people do on an issue and what they read there, over real HTTP between the bot and a localhub.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod bad_input;
mod doors;
mod faults;
mod gemini;
mod intake;
mod lld;
mod long_log;
mod missed;
mod models;
mod money;
mod operator;
mod resumed;
mod script;
mod shell;
mod strangers;
#[allow(dead_code, reason = "the crash tests tell of the same world and need other parts")]
mod world;
