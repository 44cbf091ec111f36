//! Lines that define something in any of many languages: `fun name(`, `class Name :`, `message Name {`,
//! `CREATE TABLE name`, `resource "a" "b" {`.

use super::{Items, indentation, notations};
use crate::{
    codebase::summary::{Import, Kind, walk},
    limits,
};

/// Deeper than two levels of four no definition is looked for: those are somebody's locals.
const DEEPEST: usize = 8;

pub(super) fn read(text: &str, imports: &mut Vec<Import>) -> Items {
    let mut items = Items::of(text);
    let dockerfile = is_dockerfile(text);
    let (mut in_comment, mut quoted) = (false, None);
    for (row, line) in text.lines().enumerate() {
        let line = line.trim_start_matches('\u{feff}');
        if notations::ends_quotes(&mut quoted, line) {
            continue;
        }
        let bare = line.trim();
        if in_comment || bare.starts_with("/*") {
            in_comment = !bare.contains("*/");
            continue;
        }
        let depth = indentation(line);
        if bare.is_empty() || depth > DEEPEST || line.len() > limits::SIGNATURE_BYTES {
            continue;
        }
        if dockerfile {
            stage(&mut items, bare, row);
        } else if let Some(import) = import(bare, row).filter(|_| depth == 0) {
            imports.push(import);
        } else if let Some((kind, name)) = table(bare).or_else(|| block(bare)) {
            items.add(kind, &name, bare, row, depth);
        } else if let Some(found) = definition(bare, depth) {
            let held = depth > 0 && found.kind == Kind::Function;
            items.add(if held { Kind::Method } else { found.kind }, found.name, bare, row, depth);
            if let Some(item) = items.last() {
                item.public &= !found.hidden;
            }
        }
    }
    items
}

/// `FROM image AS stage`, in what begins like a Dockerfile.
fn stage(items: &mut Items, line: &str, row: usize) {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["FROM" | "from", .., word, name] if word.eq_ignore_ascii_case("as") => {
            items.add(Kind::Section, name, line, row, 0);
        }
        ["FROM" | "from", .., image] => items.add(Kind::Section, image, line, row, 0),
        _ => {}
    }
}

fn is_dockerfile(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with("FROM ") || line.starts_with("ARG "))
}

/// `import a.b.C`, `import "a.proto";`, `import a.b.C as D`
fn import(line: &str, row: usize) -> Option<Import> {
    let rest = line.strip_prefix("import ")?.trim_start_matches("static ").trim_start_matches("public ");
    let module = rest.split([' ', ';', '{', '(']).next().unwrap_or("").trim_matches(['"', '\'', ';']);
    let looks = module.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '/' | '@'));
    // `import the file first` is prose.
    let alone =
        rest.split_whitespace().count() == 1 || rest.contains([';', '"', '\'', '{']) || rest.contains(" as ");
    (looks && alone).then(|| Import {
        line: walk::line(row),
        text: line.to_owned(),
        module: module.to_owned(),
        names: Vec::new(),
    })
}

/// `CREATE TABLE IF NOT EXISTS name (`
fn table(line: &str) -> Option<(Kind, String)> {
    let mut words = line.split_whitespace();
    let mut next = || words.next().map(str::to_ascii_uppercase);
    if next()? != "CREATE" {
        return None;
    }
    for _ in 0..6 {
        let word = next()?;
        let kind = match word.as_str() {
            "TABLE" | "VIEW" | "TYPE" | "DOMAIN" => Kind::Type,
            "FUNCTION" | "PROCEDURE" | "TRIGGER" => Kind::Function,
            "SCHEMA" | "DATABASE" => Kind::Module,
            "INDEX" | "SEQUENCE" | "POLICY" => Kind::Section,
            "OR" | "REPLACE" | "TEMP" | "TEMPORARY" | "UNIQUE" | "MATERIALIZED" | "VIRTUAL" | "GLOBAL"
            | "UNLOGGED" | "EXTERNAL" | "FOREIGN" | "RECURSIVE" => continue,
            _ => return None,
        };
        let name = words.find(|word| {
            !matches!(word.to_ascii_uppercase().as_str(), "IF" | "NOT" | "EXISTS" | "CONCURRENTLY")
        })?;
        let name = name.split(['(', ';']).next().unwrap_or("").trim_matches(['"', '`', '[', ']']);
        return Some((kind, name.to_owned()));
    }
    None
}

/// `resource "a" "b" {`: a word, labels in quotes, a brace.
fn block(line: &str) -> Option<(Kind, String)> {
    let head = line.strip_suffix('{')?.trim_end();
    let (word, labels) = head.split_once(' ')?;
    let labels = labels.trim();
    let whole = word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        && labels.starts_with('"')
        && labels.ends_with('"')
        && labels.len() > 2
        && !labels.contains(['(', ',', '=']);
    let name = labels.split('"').filter(|label| !label.trim().is_empty()).collect::<Vec<_>>().join(".");
    whole.then(|| (Kind::Section, format!("{word}.{name}")))
}

struct Definition<'l> {
    kind: Kind,
    name: &'l str,
    hidden: bool,
}

/// What may stand before the keyword.
const MODIFIERS: &[&str] = &[
    "abstract",
    "actual",
    "async",
    "base",
    "case",
    "companion",
    "data",
    "default",
    "expect",
    "export",
    "extern",
    "external",
    "fileprivate",
    "final",
    "implicit",
    "indirect",
    "infix",
    "inline",
    "inner",
    "internal",
    "lazy",
    "local",
    "mutating",
    "nonisolated",
    "open",
    "operator",
    "override",
    "private",
    "protected",
    "pub",
    "public",
    "required",
    "sealed",
    "static",
    "suspend",
    "tailrec",
    "unsafe",
    "value",
    "virtual",
];

/// A line with a keyword of many languages, where what follows looks like code.
fn definition(line: &str, depth: usize) -> Option<Definition<'_>> {
    let (mut rest, mut hidden) = (line, false);
    let keyword = loop {
        let (word, after) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
        if word.starts_with('@')
            && word.len() > 1
            && !word.starts_with("@i")
            && !word.starts_with("@protocol")
            || MODIFIERS.contains(&word)
        {
            hidden |= matches!(word, "private" | "fileprivate" | "local");
            rest = after.trim_start();
            continue;
        }
        rest = after.trim_start();
        break word;
    };
    let kind = match keyword {
        "class" | "struct" | "object" | "record" | "actor" | "union" | "message" | "contract"
        | "@interface" | "@implementation" | "input" => Kind::Type,
        "interface" | "protocol" | "trait" | "@protocol" | "mixin" => Kind::Interface,
        "enum" => Kind::Enum,
        "fun" | "func" | "fn" | "def" | "defp" | "defmacro" | "function" | "sub" | "proc" | "procedure"
        | "rpc" | "macro" | "event" | "modifier" => Kind::Function,
        "module" | "namespace" | "package" | "service" | "defmodule" => Kind::Module,
        "type" | "typealias" | "newtype" | "scalar" => Kind::Alias,
        "extension" => Kind::Extension,
        "const" | "val" | "let" | "var" if depth == 0 => Kind::Constant,
        _ => return None,
    };
    // `enum class Name`, `const val NAME`, `fun <T> name`, `fun interface Name`
    let kind = match rest.split_once(' ') {
        Some(("interface", after)) if keyword == "fun" => {
            rest = after;
            Kind::Interface
        }
        Some(("class" | "struct" | "val" | "object", after))
            if matches!(keyword, "enum" | "const" | "package") =>
        {
            rest = after;
            kind
        }
        _ => kind,
    };
    if kind == Kind::Function && rest.starts_with('<') {
        rest = rest.split_once("> ").map_or(rest, |(_, after)| after);
    }
    let (name, after) = named(rest, kind)?;
    hidden |= keyword == "defp";
    follows(kind, after).then_some(Definition { kind, name, hidden })
}

/// The name at the beginning, and what follows it.
fn named(text: &str, kind: Kind) -> Option<(&str, &str)> {
    if let Some(quoted) = text.strip_prefix('`') {
        return quoted.split_once('`');
    }
    let part = |c: char| {
        c.is_alphanumeric()
            || matches!(c, '_' | '.' | '$' | '?' | '!' | '\'')
            || c == ':' && kind == Kind::Function
    };
    let end = text.find(|c| !part(c)).unwrap_or(text.len());
    let (path, after) = text.split_at(end);
    // A `:` at the end belongs to what follows.
    let name = path.trim_end_matches([':', '.', '?']);
    let after = if name.len() < path.len() { &text[name.len()..] } else { after };
    // `fun String.name(`, `function M.name(`, `function M:name(`: the last is the name.
    let name = if kind == Kind::Function { name.rsplit(['.', ':']).next().unwrap_or(name) } else { name };
    // `fun List<T>.name(`
    if kind == Kind::Function
        && after.starts_with('<')
        && let Some((head, _)) = text.split_once('(')
        && let Some((_, last)) = head.rsplit_once(">.")
    {
        return last.chars().all(part).then_some((last, &text[head.len()..]));
    }
    (name.starts_with(|c: char| c.is_alphabetic() || c == '_')).then_some((name, after))
}

/// Whether code goes on like this after the name, and not prose.
fn follows(kind: Kind, after: &str) -> bool {
    let after = after.trim();
    let code = after.starts_with(['{', '(', '<', '[', ';', '=', ':']);
    let words = ["extends ", "implements ", "with ", "where ", "is ", "do", "derives "];
    match kind {
        Kind::Function => {
            after.starts_with(['(', '<', '[', '{'])
                || after.starts_with([':', '='])
                || after == "do"
                || after.starts_with("do ")
        }
        Kind::Constant => after.starts_with([':', '=']),
        Kind::Alias => after.starts_with(['=', '{', '<', '(', '[']) || after.starts_with("implements "),
        _ => after.is_empty() || code || words.iter().any(|word| after.starts_with(word)),
    }
}
