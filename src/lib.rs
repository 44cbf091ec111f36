//! Countersign: a GitHub App that ships nothing a second model family and a human have not signed.

// Floors, lowest first; a module may use only those above it in this list.
pub mod limits;
pub mod types;

pub mod clock;
pub mod config;
pub mod proc;

pub mod documents;
pub mod git;
pub mod store;

pub mod github;
pub mod providers;

pub mod codebase;
pub mod commands;
pub mod messages;

pub mod engine;

pub mod localhub;
