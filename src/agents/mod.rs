//! Roles, and what each may ask to be done for it: a table, the tools that read, and the lines of the commands.
//!
//! A model runs nothing. It may ask for a tool by name, in an answer that is one JSON object ([`AgentAnswer::parse`]); what its
//! role has is done by our own code, and everything else is refused by name. The tools read one commit of the repository
//! as objects: no path leads to the machine, nothing is executed, and what no model is shown (secrets, links) is not read
//! for one either. A command is a line of ours without arguments, and whoever asks for this room's answer runs it in the
//! sandbox. Who asks a model, and pays for it, is on another floor.

mod roles;
#[cfg(test)]
mod tests;
mod tool_executor;
mod tool_requests;

pub use roles::{AgentRole, AgentTool, ROLES, ToolAvailability, ToolchainProfile, find_role};
pub use tool_executor::{ToolCallReport, ToolExecutor};
pub use tool_requests::{AgentAnswer, ToolRequest};

/// Calls of one answer that are carried out: more is no question but a crawl. The rest is refused, and told of.
pub const MOST_CALLS: usize = 8;

/// Characters of one result that a model is shown.
pub const RESULT_CHARS: usize = 10_000;
