//! Extracts the names that a failure reports as missing, and the names that a spec declares.

use std::collections::BTreeSet;

use crate::documents::spec::ParsedSpec;

/// Returns the names that a runtime failure reports as missing.
pub(super) fn missing_names(message: &str) -> Vec<String> {
    const SAID: &[(&str, char)] = &[
        ("No module named '", '\''),
        ("cannot import name '", '\''),
        ("NameError: name '", '\''),
        ("has no attribute '", '\''),
        ("export named '", '\''),
        ("Cannot find module '", '\''),
        ("Cannot find package '", '\''),
        ("ReferenceError: ", ' '),
        ("symbol: ", '\n'),
        ("NoClassDefFoundError: ", '\n'),
    ];
    let quoted = SAID.iter().flat_map(|(before, end)| {
        let parts = message.split(before).skip(1);
        parts.filter_map(|rest| rest.split(*end).next())
    });
    let called = message
        .match_indices(" is not a function")
        .filter_map(|(at, _)| message[..at].split([' ', '(']).next_back());
    let last = |name: &str| {
        let name = name.trim();
        let name = if name.contains('/') {
            module_stem(name)
        } else {
            name.rsplit(['.', ':', ' ']).next().unwrap_or(name)
        };
        name.split('(').next().unwrap_or(name).to_owned()
    };
    quoted
        .chain(called)
        .map(last)
        .filter(|name| !name.is_empty())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// Returns the name by which a file is imported. This is the file's stem, or the name of its folder for files such as
/// `mod.rs` or `index.js`.
fn module_stem(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name.split('.').next().unwrap_or(name) {
        "mod" | "index" | "__init__" | "lib" => folder.rsplit('/').next().unwrap_or(folder),
        stem => stem,
    }
}

/// Returns the names that a spec declares: functions, types and their members, and files.
pub fn declared_names(spec: &ParsedSpec) -> Vec<String> {
    const BEFORE: &[&str] = &[
        "fn",
        "def",
        "func",
        "function",
        "class",
        "struct",
        "enum",
        "trait",
        "interface",
        "type",
        "const",
        "static",
        "let",
        "var",
        "mod",
        "union",
        "record",
    ];
    let mut names = BTreeSet::new();
    for part in spec.functions.iter().chain(&spec.types) {
        names.extend(split_words(&part.name).map(str::to_owned));
        for code in &part.code {
            let mut all = split_words(code).peekable();
            while let Some(word) = all.next() {
                names.extend(all.peek().filter(|_| BEFORE.contains(&word)).map(|name| (*name).to_owned()));
            }
        }
    }
    for line in spec
        .types
        .iter()
        .filter_map(|part| part.code.first())
        .flat_map(|code| code.split(['\n', '{', ',', ';']))
    {
        names.extend(
            split_words(line)
                .find(|word| !["pub", "public", "private", "readonly"].contains(word))
                .map(str::to_owned),
        );
    }
    names.extend(spec.view.files.iter().map(|row| module_stem(&row.path).to_owned()));
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).filter(|word| !word.is_empty())
}
