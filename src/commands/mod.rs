//! Comment text to commands, from one table of rows.

use crate::types::Role;

/// One row of the command table: what people type, who may, and what `/help` says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandSpec {
    /// The word after the slash.
    pub name: &'static str,
    /// How to write it, for example `/revise TEXT`.
    pub usage: &'static str,
    /// One line for `/help`.
    pub about: &'static str,
    /// The least role that may say it.
    pub role: Role,
    /// A label that says the same thing when someone puts it on an issue.
    pub label: Option<&'static str>,
    pub kind: CommandKind,
}

/// What a command needs to be meant for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// Starts a workflow.
    Starts,
    /// Answers an open gate.
    Answers,
    /// Steers or asks about a live run.
    Controls,
}
