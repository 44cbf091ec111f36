//! The ten agent roles, their tools, and the names of the tools.

use serde_json::{Map, Value, json};

/// A tool that a role may request. The repository's [`ToolchainProfile`] decides which command a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentTool {
    Typecheck,
    Lint,
    Format,
    Test,
    Read,
    List,
    Search,
    Count,
    Diff,
    Write,
    Fetch,
}

use AgentTool::{Count, Diff, Fetch, Format, Lint, List, Read, Search, Test, Typecheck, Write};

impl AgentTool {
    pub const ALL: [Self; 11] =
        [Typecheck, Lint, Format, Test, Read, List, Search, Count, Diff, Write, Fetch];

    /// Returns the tool's name in prompts and logs.
    pub fn name(self) -> &'static str {
        match self {
            Typecheck => "typecheck",
            Lint => "lint",
            Format => "format",
            Test => "test",
            Read => "read",
            List => "list",
            Search => "search",
            Count => "count",
            Diff => "diff",
            Write => "write",
            Fetch => "fetch",
        }
    }

    /// Returns whether the tool only reads the commit. Our own code runs such a tool, without an external program.
    pub fn reads_repository(self) -> bool {
        matches!(self, Read | List | Search | Count | Diff)
    }

    /// Returns whether the tool runs a command of the repository's toolchain. Other tools read the commit, write files
    /// or use the network.
    pub fn is_command(self) -> bool {
        matches!(self, Typecheck | Lint | Format | Test)
    }
}

/// Toolchain of a repository, which determines the check commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolchainProfile {
    Typescript,
    Rust,
    Python,
    Generic,
}

impl ToolchainProfile {
    /// Detects the toolchain from manifest files at the repository root. If several toolchains match, the most specific
    /// one wins.
    pub fn detect<'p>(paths: impl Iterator<Item = &'p str>) -> Self {
        let mut found = Self::Generic;
        for path in paths {
            found = match path {
                "tsconfig.json" => return Self::Typescript,
                "Cargo.toml" => Self::Rust,
                "package.json" if found != Self::Rust => Self::Typescript,
                "pyproject.toml" | "setup.py" if found == Self::Generic => Self::Python,
                _ => found,
            };
        }
        found
    }

    fn aliases(self, tool: AgentTool) -> &'static [&'static str] {
        match (tool, self) {
            (Read, _) => &["cat"],
            (List, _) => &["ls"],
            (Search, _) => &["grep", "find"],
            (Count, _) => &["wc"],
            (Write, _) => &["mkdir", "cp"],
            (Fetch, _) => &["curl"],
            (Typecheck, Self::Typescript) => &["tsc"],
            (Lint, Self::Typescript) => &["eslint"],
            (Format, Self::Typescript) => &["prettier"],
            (Test, Self::Typescript) => &["vitest", "pnpm"],
            (Typecheck, Self::Rust) => &["cargo check"],
            (Lint, Self::Rust) => &["cargo clippy"],
            (Format, Self::Rust) => &["cargo fmt"],
            (Test, Self::Rust) => &["cargo test"],
            (Typecheck, Self::Python) => &["mypy"],
            (Lint, Self::Python) => &["ruff"],
            (Format, Self::Python) => &["black"],
            (Test, Self::Python) => &["pytest"],
            _ => &[],
        }
    }

    /// Returns the command line of the tool, which runs at the repository root. The line is fixed, so models cannot add
    /// arguments. Changes that the command makes to files are discarded.
    pub fn command_line(self, tool: AgentTool) -> Option<&'static str> {
        Some(match (self, tool) {
            (Self::Typescript, Typecheck) => "npx --no-install tsc --noEmit",
            (Self::Typescript, Lint) => "npx --no-install eslint .",
            (Self::Typescript, Format) => "npx --no-install prettier --check .",
            (Self::Typescript, Test) => "npx --no-install vitest run",
            (Self::Rust, Typecheck) => "cargo check --offline --all-targets",
            (Self::Rust, Lint) => "cargo clippy --offline --all-targets",
            (Self::Rust, Format) => "cargo fmt --check",
            (Self::Rust, Test) => "cargo test --offline",
            (Self::Python, Typecheck) => "python3 -P -m mypy .",
            (Self::Python, Lint) => "python3 -P -m ruff check .",
            (Self::Python, Format) => "python3 -P -m black --check .",
            (Self::Python, Test) => "python3 -m pytest -q",
            _ => return None,
        })
    }

    /// Returns all names of a tool, starting with its main name.
    pub fn tool_names(self, tool: AgentTool) -> impl Iterator<Item = &'static str> {
        std::iter::once(tool.name()).chain(self.aliases(tool).iter().copied())
    }

    /// Returns the tool that has exactly this name. Paths to programs, different letter case and look-alike letters do
    /// not match.
    pub fn find_tool(self, name: &str) -> Option<AgentTool> {
        AgentTool::ALL.into_iter().find(|tool| self.tool_names(*tool).any(|known| known == name))
    }
}

/// An agent role and its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentRole {
    pub name: &'static str,
    pub tools: &'static [AgentTool],
}

/// Optional tools that are available in this run. Read tools are always available.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToolAvailability {
    /// Toolchain whose commands the run can execute; `None` if commands are unavailable.
    pub commands: Option<ToolchainProfile>,
    /// Whether the run has a workspace that a role can write to.
    pub writes: bool,
}

/// All roles. No role can both write files and run tests. Roles that read the repository have no network access.
pub const ROLES: [AgentRole; 10] = [
    AgentRole { name: "architect", tools: &[Typecheck, Read, List, Search, Count] },
    AgentRole { name: "implementer", tools: &[Typecheck, Lint, Format, Read, List, Search, Write] },
    AgentRole { name: "reviewer", tools: &[Typecheck, Lint, Read, List, Search, Count, Diff] },
    AgentRole { name: "tester", tools: &[Test, Read, List, Search] },
    AgentRole { name: "maintainer", tools: &[Typecheck, Lint, Test, Read, List, Search, Count] },
    AgentRole { name: "narrator", tools: &[] },
    AgentRole { name: "ingestor", tools: &[] },
    AgentRole { name: "crawler", tools: &[Fetch] },
    AgentRole { name: "hunter", tools: &[Fetch] },
    AgentRole { name: "catcher", tools: &[Read, List, Search] },
];

/// Returns the role with this name.
pub fn find_role(name: &str) -> Option<&'static AgentRole> {
    ROLES.iter().find(|role| role.name == name)
}

impl AgentRole {
    /// Returns the role's tools that are available in this run.
    pub fn offered_tools(&self, done: ToolAvailability) -> impl Iterator<Item = AgentTool> {
        let runs =
            move |tool: AgentTool| done.commands.is_some_and(|profile| profile.command_line(tool).is_some());
        let writes = move |tool: AgentTool| done.writes && tool == Write;
        self.tools.iter().copied().filter(move |tool| tool.reads_repository() || runs(*tool) || writes(*tool))
    }

    /// Returns the tool called `name` if the role may use it in this run. Otherwise returns an error message for the
    /// model.
    pub(super) fn authorize(
        &self,
        profile: ToolchainProfile,
        done: ToolAvailability,
        name: &str,
    ) -> Result<AgentTool, String> {
        let offers: Vec<_> = self.offered_tools(done).collect();
        let has = || match offers.iter().map(|tool| tool.name()).collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => "it has none".to_owned(),
            names => format!("it has {names}"),
        };
        let shown = super::tool_requests::truncate_line(name, 40);
        match profile.find_tool(name) {
            None => {
                Err(format!("refused: there is no tool called {shown:?} for the {}; {}", self.name, has()))
            }
            Some(tool) if !self.tools.contains(&tool) => {
                Err(format!("refused: {shown:?} is not for the {}; {}", self.name, has()))
            }
            Some(tool) if !offers.contains(&tool) => {
                Err(format!("refused: {shown:?} is the {}'s, but it is not done here; {}", self.name, has()))
            }
            Some(tool) => Ok(tool),
        }
    }

    /// Returns the available tools as JSON schemas, for providers with native tool calls.
    pub fn tool_schemas(&self, done: ToolAvailability) -> Value {
        let schema = |tool: AgentTool| {
            let kind = |name: &str| json!({ "type": if name == "from" { "integer" } else { "string" } });
            let all = tool_arguments(tool).iter();
            let properties: Map<String, Value> =
                all.clone().map(|(name, _)| ((*name).to_owned(), kind(name))).collect();
            let required: Vec<&str> = all.filter(|(_, needed)| *needed).map(|(name, _)| *name).collect();
            let parameters = json!({
                "type": "object", "properties": properties, "required": required, "additionalProperties": false,
            });
            json!({ "name": tool.name(), "description": tool_usage(tool), "parameters": parameters })
        };
        self.offered_tools(done).map(schema).collect()
    }

    /// Returns the part of the prompt that describes the role's tools and the request format.
    pub fn tool_rules(&self, done: ToolAvailability, turns: u32) -> String {
        let tools: String =
            self.offered_tools(done).map(|tool| format!("- {}\n", tool_usage(tool))).collect();
        format!(
            "Before you answer you may look at the repository yourself, at most {turns} times. To look, answer with one JSON \
             object and nothing else, instead of what is asked for above:\n\n\
             {{\"toolCalls\": [{{\"name\": \"read\", \"arguments\": {{\"path\": \"src/lib.rs\"}}}}]}}\n\n\
             At most {} calls at a time; what they found comes with the next question, what \
             files say between backticks. These are the tools, and there are no \
             others:\n\n{tools}\nPaths begin at the root of the repository and name no folder above it. A result has at most \
             {} characters. Look where you would otherwise guess; when you know enough, answer in the form asked for.",
            super::MOST_CALLS,
            super::RESULT_CHARS,
        )
    }
}

/// Returns the argument names of a tool, each with whether the argument is required.
fn tool_arguments(tool: AgentTool) -> &'static [(&'static str, bool)] {
    match tool {
        Read => &[("path", true), ("from", false)],
        List => &[("path", false)],
        Search => &[("text", false), ("name", false), ("path", false)],
        Count => &[("path", true)],
        Diff => &[("path", true), ("other", false)],
        Write => &[("path", true), ("text", true)],
        Typecheck | Lint | Format | Test | Fetch => &[],
    }
}

fn tool_usage(tool: AgentTool) -> &'static str {
    match tool {
        Read => "`read` {\"path\": …, \"from\": 1}: a file, from that line on",
        List => "`list` {\"path\": …}: what is in a folder; without a path, in the root",
        Search => {
            "`search` {\"text\": …, \"name\": …, \"path\": …}: the lines with exactly this text, of the files whose path holds \
             this name (`*` stands for anything), below this folder; without a text, those files. All but one may be left out"
        }
        Count => "`count` {\"path\": …}: lines, words and bytes of a file",
        Diff => {
            "`diff` {\"path\": …, \"other\": …}: in what the second file differs from the first; without a second, how the change \
             that you review changes the first"
        }
        Typecheck => {
            "`typecheck` {}: runs the type checker over all of it, without network, and says how it ended"
        }
        Lint => "`lint` {}: the same with the linter",
        Format => "`format` {}: the same with the formatter, which changes nothing",
        Test => "`test` {}: the same with the tests",
        Write => {
            "`write` {\"path\": …, \"text\": …}: writes into a copy what the code block of this file would hold in your answer: the \
             whole of it, or blocks of search and replace, made in the file as you see it by then. Of one answer, what it writes \
             comes first; the other tools see the copy. In your answer the heading of such a file needs no block, for what you \
             wrote is put there; if it has one, that counts. In a revision it stands in the \
             document before your edits are made: edit nothing of it again, and answer each finding in `replies` even where no \
             edit is left to make"
        }
        Fetch => "",
    }
}
