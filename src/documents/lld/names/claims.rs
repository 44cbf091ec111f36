//! What a design says to exist, and what it declares itself.

use std::{collections::BTreeSet, ops::Range};

use crate::documents::{
    lld::Lld,
    markdown::{Outline, Span},
};

/// A design, read for what it says of the repository.
pub(super) struct Claims<'a> {
    pub(super) text: &'a str,
    pub(super) lld: &'a Lld,
    pub(super) outline: &'a Outline,
    pub(super) declared: &'a Declared,
}

/// A name that the design takes to exist.
pub(super) struct Claim<'a> {
    pub(super) name: &'a str,
    /// Where it is said to be.
    pub(super) file: Option<&'a str>,
    pub(super) place: String,
}

/// Sections that speak of what is there. Tests and fixtures name things that are made up for them.
const SPEAKING: [&str; 4] = ["1", "2", "7", "11"];

/// Words around a name by which it may be new, gone or made up, or by which it is said not to be there.
const DOUBT: &[&str] = &[
    "absent",
    "add",
    "added",
    "adding",
    "adds",
    "become",
    "becomes",
    "create",
    "created",
    "creates",
    "creating",
    "declare",
    "declared",
    "declares",
    "define",
    "defined",
    "defines",
    "e.g",
    "example",
    "expose",
    "exposes",
    "export",
    "exports",
    "extract",
    "extracted",
    "extracts",
    "future",
    "gain",
    "gains",
    "generate",
    "generated",
    "generates",
    "gets",
    "hypothetical",
    "implement",
    "implemented",
    "implements",
    "instead",
    "introduce",
    "introduced",
    "introduces",
    "introducing",
    "lacks",
    "missing",
    "move",
    "moved",
    "moves",
    "named",
    "neither",
    "never",
    "new",
    "newly",
    "no",
    "none",
    "nonexistent",
    "not",
    "proposed",
    "provide",
    "provides",
    "rename",
    "renamed",
    "renames",
    "renaming",
    "replace",
    "replaced",
    "replacement",
    "replaces",
    "should",
    "similar",
    "split",
    "splits",
    "such",
    "will",
    "without",
    "would",
];

/// Words right before a name that say it is there.
const SURELY: [&str; 6] = ["existing", "today's", "current", "present", "already", "reuse"];

/// Words right before a name by which the file that follows is only where it is used.
const USED: &[&str] = &[
    "call",
    "called",
    "calling",
    "calls",
    "invoke",
    "invokes",
    "invoking",
    "override",
    "overrides",
    "pass",
    "passes",
    "through",
    "use",
    "used",
    "uses",
    "using",
    "via",
    "with",
];

/// What stands between a name and the file that it is said to be in.
const IN: &[&str] = &[
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

/// What stands between a file and a name that it is said to have.
const HAS: [&str; 4] = ["'s", "’s", "already has", "has"];

impl<'a> Claims<'a> {
    /// Paths in backticks that are said to be there, each with its place.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&'a str, String)> {
        let spans = self.spans().filter(|span| !self.doubtful(span) && !self.in_table(span));
        spans.filter_map(|span| {
            let path = file_of(&span.text).0;
            let legal = |c: char| c.is_ascii_alphanumeric() || "_-./@+".contains(c);
            let whole = path.contains('/') && path.chars().all(legal) && !path.contains("...");
            whole.then(|| (path, self.place(span.range.start)))
        })
    }

    /// Names in backticks that are said to be there.
    pub(super) fn symbols(&self) -> Vec<Claim<'a>> {
        let spans: Vec<&'a Span> = self.spans().collect();
        let mut out = Vec::new();
        for (at, span) in spans.iter().enumerate() {
            let (file, inner) = file_of(&span.text);
            let (name, file) = match inner {
                Some(name) => (name, Some(file)),
                None => {
                    let next = spans.get(at + 1).copied();
                    let before = at.checked_sub(1).map(|at| spans[at]);
                    (span.text.as_str(), self.file_beside(before, span, next))
                }
            };
            let Some(name) = symbol(name) else { continue };
            let plain = name.contains("::") || name.contains(['.', '#']);
            if (file.is_none() && !plain) || self.declared.has(name) || self.doubtful(span) {
                continue;
            }
            out.push(Claim { name, file, place: self.place(span.range.start) });
        }
        out
    }

    /// The section that a place in the text belongs to.
    pub(super) fn place(&self, at: usize) -> String {
        self.section(at).map_or_else(|| "document".to_owned(), |number| format!("§{number}"))
    }

    fn section(&self, at: usize) -> Option<&'a str> {
        let around = self.lld.sections.iter().filter(|section| section.body.contains(&at));
        around.max_by_key(|section| section.level).map(|section| section.number.as_str())
    }

    fn spans(&self) -> impl Iterator<Item = &'a Span> {
        self.outline.code_spans.iter().filter(|span| {
            let section = self.section(span.range.start).unwrap_or_default();
            SPEAKING.contains(&section.split('.').next().unwrap_or(section))
        })
    }

    fn in_table(&self, span: &Span) -> bool {
        self.outline.tables.iter().any(|table| table.range.contains(&span.range.start))
    }

    /// The file that the words beside a name put it in.
    fn file_beside(&self, before: Option<&'a Span>, span: &Span, after: Option<&'a Span>) -> Option<&'a str> {
        let path = |span: &'a Span| Some(span.text.as_str()).filter(|text| is_path(text));
        let between = |from: usize, to: usize| {
            let words = self.text.get(from..to).filter(|words| words.len() < 60)?;
            Some(words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase())
        };
        let follows = after.and_then(|after| {
            let words = between(span.range.end, after.range.start)?;
            let before = self.text[..span.range.start].split_whitespace().rev().take(2);
            let used = before.map(str::to_lowercase).any(|word| USED.contains(&word.as_str()));
            let elsewhere = used && !words.contains("defined") && !words.contains("declared");
            path(after).filter(|_| IN.contains(&words.as_str()) && !elsewhere)
        });
        follows.or_else(|| {
            let before = before?;
            let words = between(before.range.end, span.range.start)?;
            path(before).filter(|_| HAS.contains(&words.as_str()))
        })
    }

    /// May what stands here be something else than a claim that it exists?
    fn doubtful(&self, span: &Span) -> bool {
        let sentence = sentence(self.text, &span.range);
        let words = |text: &'a str| {
            text.split(|c: char| c.is_whitespace() || "`*_()[]|,;:\"/→".contains(c))
                .map(|word| word.trim_matches(['.', '!', '?']).to_lowercase())
                .filter(|word| !word.is_empty())
        };
        !is_surely_there(self.text, span)
            && words(&self.text[sentence]).any(|word| DOUBT.contains(&word.as_str()))
    }
}

/// Do the words right before a name say that it is there?
fn is_surely_there(text: &str, span: &Span) -> bool {
    let mut before = text[..span.range.start].split_whitespace().rev().take(2);
    before.any(|word| SURELY.contains(&word.to_lowercase().as_str()))
}

/// What the design declares in any of its code, or says to be new.
#[derive(Debug, Default)]
pub(super) struct Declared(BTreeSet<String>);

/// Words after which a name is declared, in one language or another.
const DECLARING: &[&str] = &[
    "actor",
    "class",
    "const",
    "def",
    "enum",
    "extension",
    "field",
    "final",
    "fn",
    "fun",
    "func",
    "function",
    "impl",
    "interface",
    "let",
    "macro_rules!",
    "message",
    "mod",
    "module",
    "mut",
    "namespace",
    "object",
    "package",
    "protocol",
    "record",
    "rpc",
    "service",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "val",
    "var",
];

/// Words before a name in backticks that say it is new.
const NEW: &[&str] = &[
    "add",
    "adding",
    "adds",
    "create",
    "creates",
    "define",
    "defines",
    "gain",
    "gains",
    "gets",
    "implement",
    "implements",
    "introduce",
    "introduces",
    "introducing",
    "new",
];

impl Declared {
    pub(super) fn of(text: &str, outline: &Outline) -> Self {
        let mut names = BTreeSet::new();
        for code in &outline.code_blocks {
            for line in code.text.lines().filter(|line| !is_import(line)) {
                names.extend(declared_in(line));
                // Before a bracket, an equals sign or a colon at the first place of a line something may be declared in
                // languages that have no word for it.
                names.extend(typed(line));
            }
        }
        for span in &outline.code_spans {
            names.extend(declared_in(&span.text));
            let sentence = sentence(text, &span.range);
            let before = text[sentence.start..span.range.start].to_lowercase();
            let new = before.split(|c: char| !c.is_alphanumeric()).any(|word| NEW.contains(&word));
            if new && !is_surely_there(text, span) {
                names.extend(identifiers(&span.text).map(str::to_owned));
            }
        }
        Self(names)
    }

    /// Is the name, or what it is qualified by, of the design's own making?
    pub(super) fn has(&self, name: &str) -> bool {
        identifiers(name).any(|part| self.0.contains(part))
    }

    pub(super) fn has_module(&self, module: &str) -> bool {
        identifiers(module).last().is_some_and(|last| self.0.contains(last))
    }
}

fn declared_in(code: &str) -> impl Iterator<Item = String> {
    let mut tokens =
        code.split(|c: char| c.is_whitespace() || "(){}<>[],;&*".contains(c)).filter(|t| !t.is_empty());
    let mut names = Vec::new();
    let mut after = false;
    for token in tokens.by_ref() {
        if after && !DECLARING.contains(&token) {
            names.extend(identifiers(token).map(str::to_owned));
            after = false;
        } else {
            after = DECLARING.contains(&token);
        }
    }
    names.into_iter()
}

/// `name(…` or `name: …` or `name = …` or `Type name(…`, where the line is no mere call.
fn typed(line: &str) -> impl Iterator<Item = String> {
    let end = line.find(['(', ':', '=']).unwrap_or(0);
    let head = line[..end].trim();
    let starts = !line.starts_with([' ', '\t']) || line.trim_end().ends_with(['{', ':', ';', ',']);
    let declares = starts && !head.contains(['.', '"', '\'']) && line.get(end..end + 2) != Some("::");
    let several = head.split_whitespace().count() > 1 || !line[end..].starts_with('(');
    identifiers(head).last().filter(|_| declares && several).map(str::to_owned).into_iter()
}

fn is_import(line: &str) -> bool {
    let line = line.trim_start();
    ["use ", "pub use ", "import ", "from ", "require", "#include", "using "]
        .iter()
        .any(|word| line.starts_with(word))
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// The words around a place, up to the end of the sentence, the list item or the table row.
fn sentence(text: &str, around: &Range<usize>) -> Range<usize> {
    const ENDS: [&str; 7] = ["\n\n", "\n- ", "\n* ", "\n|", ". ", ".\n", "\n#"];
    let (before, after) = (&text[..around.start], &text[around.end..]);
    let start = ENDS.iter().filter_map(|end| Some(before.rfind(end)? + end.len())).max().unwrap_or(0);
    let end = ENDS.iter().filter_map(|end| after.find(end)).min().unwrap_or(after.len());
    start..around.end + end
}

/// `src/a.rs`, and what is named in it by `src/a.rs::name`, `src/a.rs#name` or `src/a.rs:name`. A line is no name.
fn file_of(span: &str) -> (&str, Option<&str>) {
    for separator in ["::", "#", ":"] {
        if let Some((path, name)) = span.split_once(separator)
            && is_path(path)
        {
            let name =
                Some(name).filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty());
            return (path, name);
        }
    }
    (span, None)
}

/// A file's name with an ending, alone or in a folder.
fn is_path(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-./@+".contains(c);
    let file = text.rsplit('/').next().unwrap_or(text);
    text.contains('/')
        && text.chars().all(legal)
        && file.rsplit_once('.').is_some_and(|(stem, _)| !stem.is_empty())
}

/// Endings by which `config.toml` is a file, and no `toml` of a `config`.
const ENDINGS: &[&str] = &[
    "bat", "bin", "c", "cc", "cfg", "conf", "cpp", "cs", "css", "csv", "db", "dev", "env", "example", "exe",
    "go", "gz", "h", "hpp", "html", "ico", "ini", "io", "java", "js", "json", "jsonl", "jsx", "lock", "log",
    "md", "mjs", "mod", "net", "org", "php", "png", "proto", "py", "pyi", "rb", "rs", "sh", "sql", "sqlite",
    "sum", "svg", "toml", "ts", "tsx", "txt", "wasm", "xml", "yaml", "yml", "zip", "zst", "com",
];

/// A name that looks like one of code: qualified, called, or written as only code is. Its call's brackets are taken off.
fn symbol(text: &str) -> Option<&str> {
    let called = text.strip_suffix("()");
    let name = called.unwrap_or(text);
    let name = match name.split_once('(') {
        // A call with what it is given; a macro's and a generic's marks are not part of a name either.
        Some((name, rest)) if rest.ends_with(')') => name,
        Some(_) => return None,
        None => name,
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || "_:.#".contains(c);
    let parts: Vec<&str> = name.split(|c: char| ":.#".contains(c)).filter(|part| !part.is_empty()).collect();
    let words = parts.iter().all(|part| !part.starts_with(|c: char| c.is_ascii_digit()));
    let last = parts.last()?;
    let inner_capital =
        last.chars().zip(last.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    let code =
        called.is_some() || name.len() < text.len() || parts.len() > 1 || last.contains('_') || inner_capital;
    let whole = name.chars().all(legal) && words && name.len() <= 100 && last.len() > 1;
    let file = name.contains('.') && called.is_none() && ENDINGS.contains(last);
    (whole && code && !file && !is_path(name) && !name.ends_with([':', '.', '#'])).then_some(name)
}
