//! Words by which prose says whether a name is there.

/// What comments begin with.
pub(super) const COMMENTS: [&str; 4] = ["//", "#", "/*", "--"];

/// At the beginning of a comment on a function: it is there.
pub(super) const KEPT: [&str; 4] = ["changed", "existing", "modified", "unchanged"];

/// After that, if it is the function that is meant.
pub(super) const OF_IT: [&str; 5] = ["function", "gains", "method", "now", "signature"];

/// Anywhere in that comment: the function has the name of none that is there.
pub(super) const RENAMED: [&str; 4] = ["formerly", "renamed", "replaces", "was"];

/// Right before a name: it is there.
pub(super) const SURELY: [&str; 5] = ["existing", "today's", "current", "already", "reuse"];

/// Before a name: it is called or read, and so there, whatever is said to be new in front of that.
pub(super) const USING: &[&str] = &[
    "call", "calling", "calls", "follows", "from", "invoke", "invokes", "invoking", "mirrors", "read",
    "reading", "reads", "reuse", "reuses", "reusing", "through", "use", "uses", "using", "via", "wraps",
];

/// Right before a name: it is a function's.
pub(super) const CALLING: [&str; 6] = ["call", "calling", "calls", "invoke", "invokes", "invoking"];

/// Before a name: something else becomes it, if one of [`TURNING`] stands before that.
pub(super) const INTO: [&str; 4] = ["by", "into", "to", "with"];

/// Before one of [`INTO`]: what follows that need not be there yet.
pub(super) const TURNING: &[&str] = &[
    "change",
    "changed",
    "changes",
    "convert",
    "converted",
    "converts",
    "extend",
    "extended",
    "extends",
    "replace",
    "replaces",
    "replacing",
    "swap",
    "swapped",
    "swaps",
    "switch",
    "switched",
    "switches",
    "turn",
    "turned",
    "turns",
];

/// Before a name: it is new.
pub(super) const NEW: &[&str] = &[
    "add",
    "adding",
    "adds",
    "called",
    "create",
    "creates",
    "creating",
    "declare",
    "declares",
    "define",
    "defines",
    "expose",
    "exposes",
    "export",
    "exports",
    "extract",
    "extracts",
    "gain",
    "gains",
    "gets",
    "implement",
    "implements",
    "introduce",
    "introduces",
    "introducing",
    "named",
    "new",
    "newly",
    "provide",
    "provides",
    "proposed",
];

/// Before a name: it may be new, gone or made up, or is said not to be there.
pub(super) const DOUBT: &[&str] = &[
    "absent",
    "added",
    "become",
    "becomes",
    "build",
    "builds",
    "could",
    "created",
    "e.g",
    "emits",
    "example",
    "extracted",
    "future",
    "generate",
    "generated",
    "generates",
    "hypothetical",
    "implemented",
    "instead",
    "introduced",
    "lacks",
    "might",
    "missing",
    "move",
    "moved",
    "moves",
    "neither",
    "never",
    "no",
    "none",
    "nonexistent",
    "nor",
    "not",
    "output",
    "produce",
    "produces",
    "rename",
    "renamed",
    "renames",
    "renaming",
    "replaced",
    "replacement",
    "split",
    "splits",
    "such",
    "without",
    "write",
    "writes",
];

/// After a name: it is new.
pub(super) const MADE: &[&str] = &["added", "created", "introduced", "new"];

/// After a name: it may not be there, or be another's.
pub(super) const UNSURE: &[&str] = &[
    "absent",
    "becomes",
    "browser",
    "built",
    "disappears",
    "emitted",
    "exist",
    "exists",
    "extracted",
    "generated",
    "gone",
    "implemented",
    "library",
    "missing",
    "moved",
    "moves",
    "nonexistent",
    "produced",
    "proposed",
    "removed",
    "renamed",
    "replaced",
    "sdk",
    "split",
    "written",
    "yet",
];

/// Between a name and the file that it is said to be in.
pub(super) const IN: &[&str] = &[
    "in",
    "from",
    "of",
    "inside",
    "within",
    "(",
    "(in",
    "(from",
    ", in",
    "in the file",
    "in file",
    "from the file",
    "function in",
    "method in",
    "type in",
    "struct in",
    "class in",
    "helper in",
    "function from",
    "helper from",
    "function (",
    "method (",
    "struct (",
    "class (",
    "type (",
];

/// The same, said so that it is meant to be there already.
pub(super) const DEFINED_IN: &[&str] = &[
    "is in",
    "lives in",
    "stands in",
    "(defined in",
    "defined in",
    ", defined in",
    "is defined in",
    "(declared in",
    "declared in",
    ", declared in",
    "is declared in",
];

/// Between a name and a file that uses it.
pub(super) const USED_IN: &[&str] = &[
    "is called in",
    "is called from",
    "is called by",
    "is read in",
    "is read by",
    "is used in",
    "is used by",
];

/// Between a file and a name that it is said to have.
pub(super) const HAS: [&str; 4] = ["'s", "’s", "already has", "has"];

/// After these a name is declared, in one language or another.
pub(super) const DECLARING: &[&str] = &[
    "const",
    "def",
    "field",
    "final",
    "fn",
    "fun",
    "func",
    "function",
    "let",
    "macro_rules!",
    "mod",
    "module",
    "mut",
    "namespace",
    "package",
    "rpc",
    "static",
    "val",
    "var",
];

/// After these a type is.
pub(super) const TYPES: &[&str] = &[
    "actor",
    "class",
    "enum",
    "interface",
    "message",
    "object",
    "protocol",
    "record",
    "service",
    "struct",
    "trait",
    "type",
    "union",
];

/// Endings by which `config.toml` is a file, and no `toml` of a `config`.
pub(super) const ENDINGS: &[&str] = &[
    "bat", "bin", "c", "cc", "cfg", "conf", "cpp", "cs", "css", "csv", "db", "dev", "env", "example", "exe",
    "go", "gz", "h", "hpp", "html", "ico", "ini", "io", "java", "js", "json", "jsonl", "jsx", "lock", "log",
    "md", "mjs", "mod", "net", "org", "php", "png", "proto", "py", "pyi", "rb", "rs", "sh", "sql", "sqlite",
    "sum", "svg", "toml", "ts", "tsx", "txt", "wasm", "xml", "yaml", "yml", "zip", "zst", "com",
];
