//! Agent roles, the tools that each role may call, and the executor of those tools.
//!
//! A model never runs anything itself. It requests a tool by name in a JSON response ([`AgentAnswer::parse`]). Our code
//! runs the tools that the model's role allows and refuses all others. Read tools read the git objects of one commit. A
//! path therefore cannot reach files of the host, and models cannot read files that they must not see (secrets, links).
//! A command is a fixed line without arguments, which the caller runs in the sandbox. The caller also calls the model
//! and records the cost.

mod roles;
#[cfg(test)]
mod tests;
mod tool_executor;
mod tool_requests;

pub use roles::{AgentRole, AgentTool, ROLES, ToolAvailability, ToolchainProfile, find_role};
pub use tool_executor::{ToolCallReport, ToolExecutor};
pub use tool_requests::{AgentAnswer, ToolRequest};

/// Maximum number of tool calls run per response. Further calls are refused, and the model is told how many were
/// refused.
pub const MOST_CALLS: usize = 8;

/// Maximum length of a tool result in a prompt, in characters.
pub const RESULT_CHARS: usize = 10_000;
