//! Makes stubs of functions that the spec declares but no code defines yet. With the stubs, tests that call the
//! functions compile and fail when they run.
//!
//! The comment above a declaration names the file to which the function belongs. A declaration without this comment
//! gets no stub. If a stub does not compile, the test run fails to build and proves nothing.

use std::collections::BTreeMap;

use super::{ChangeScope, FileTexts, Kind, parse::has_word};
use crate::documents::lld::function_names;

/// Message with which a stub panics.
pub const STUB: &str = "stub of the specification";

/// Returns the files with stubs added for the functions that these code blocks declare. Functions that already exist
/// get no stub.
pub fn make_stubs(blocks: &[String], allowed: &ChangeScope, base: &BTreeMap<String, String>) -> FileTexts {
    let mut declared = BTreeMap::<&str, String>::new();
    for block in blocks {
        let mut at = None;
        for line in block.lines() {
            let named = line.trim().strip_prefix("//").map(|path| path.trim().trim_end_matches(':'));
            match named.and_then(|path| allowed.files.get_key_value(path)) {
                Some((path, kind)) => {
                    // Test files and deleted files get no code.
                    let code = *kind != Kind::Delete && !allowed.tests.contains(path);
                    at = Some(path.as_str()).filter(|_| code);
                }
                None => {
                    if let Some(path) = at {
                        declared.entry(path).or_default().extend([line, "\n"]);
                    }
                }
            }
        }
    }
    let mut files = BTreeMap::<String, String>::new();
    for (path, code) in declared {
        let there = base.get(path).map_or("", String::as_str);
        let (before, code) = match path.rsplit_once('.') {
            Some((_, "rs")) => (
                there.to_owned(),
                stub_functions(&code, there, |signature, _| format!("{signature} {{ todo!(\"{STUB}\") }}")),
            ),
            Some((_, "go")) => {
                (go_package_text(path, base), stub_functions(&code, there, go_zero_value_stub))
            }
            _ => continue,
        };
        if code.trim().is_empty() {
            continue;
        }
        // The file may already have a `mod` line from this loop.
        let before = files.remove(path).unwrap_or(before);
        files.insert(path.to_owned(), format!("{before}\n{code}"));
        // A new module needs a `mod` line in its parent.
        let module = path.strip_suffix(".rs").and_then(|path| path.strip_prefix("src/"));
        let new = allowed.files.get(path) == Some(&Kind::Add);
        if let Some(module) = module.filter(|module| new && !module.contains('/')) {
            let root = ["src/lib.rs", "src/main.rs"].into_iter().find(|root| base.contains_key(*root));
            let line = format!("mod {module}");
            if let Some(root) = root.filter(|root| !has_word(&base[*root], &line)) {
                let text = files.entry(root.to_owned()).or_insert_with(|| base[root].clone());
                text.push_str(&format!("\npub {line};\n"));
            }
        }
    }
    files.into_iter().map(|(path, text)| (path, Some(text))).collect()
}

/// Returns the text of a Go file. If the file is new, the text is only a package clause.
fn go_package_text(path: &str, base: &BTreeMap<String, String>) -> String {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let beside =
        |other: &&String| other.ends_with(".go") && other.rsplit_once('/').map_or("", |(f, _)| f) == folder;
    let clause =
        base.keys().find(beside).and_then(|other| base[other].lines().find(|l| l.starts_with("package ")));
    let own =
        format!("package {}", folder.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("main"));
    base.get(path).cloned().unwrap_or_else(|| format!("{}\n", clause.unwrap_or(&own)))
}

/// Returns a Go function that returns zero values. It does not panic, because a panic in Go would end all other tests
/// too.
fn go_zero_value_stub(signature: &str, name: &str) -> String {
    let signature = signature.trim_end();
    let panics = format!("{signature} {{ panic(\"{STUB}\") }}");
    let Some(begin) = signature.find(&format!("{name}(")).map(|at| at + name.len()) else { return panics };
    let (mut depth, mut commas) = (0_i32, Vec::new());
    let mut ends = Vec::new();
    for (at, c) in signature[begin..].char_indices().map(|(at, c)| (begin + at, c)) {
        depth += i32::from(matches!(c, '(' | '[' | '{')) - i32::from(matches!(c, ')' | ']' | '}'));
        match c {
            ')' if depth == 0 => ends.push(at + 1),
            ',' if depth == 1 && ends.len() == 1 => commas.push(at),
            _ => {}
        }
    }
    let Some(&params) = ends.first() else { return panics };
    let (head, results) = (&signature[..params], signature[params..].trim());
    let types = match results.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(_) => {
            let from = params + signature[params..].find('(').unwrap_or_default() + 1;
            let starts = [from].into_iter().chain(commas.iter().map(|at| at + 1));
            let stops = commas.iter().copied().chain([signature.len() - 1]);
            starts.zip(stops).map(|(from, to)| signature[from..to].trim()).collect()
        }
        None if results.is_empty() => return format!("{head} {{}}"),
        None => vec![results],
    };
    let of_words = |of: &str| {
        let first = of.split([' ', '(', '[', '{']).next().unwrap_or_default();
        of.contains(' ') && !["chan", "<-chan", "func", "interface", "map", "struct"].contains(&first)
    };
    // Named results stay as they are.
    let named = types.iter().any(|of| of_words(of)) && results.starts_with('(');
    let results: Vec<String> = types.iter().map(|of| format!("_ {of}")).collect();
    let results =
        if named { signature[params..].trim().to_owned() } else { format!("({})", results.join(", ")) };
    format!("{head} {results} {{ return }}")
}

/// Replaces each function declaration in `code` by a stub. Removes the declarations of functions that `there` already
/// defines, and keeps all other lines.
fn stub_functions(code: &str, there: &str, stub: impl Fn(&str, &str) -> String) -> String {
    let (mut out, mut lines) = (String::new(), code.lines());
    while let Some(line) = lines.next() {
        let names = function_names(line);
        let Some(name) = names.first().filter(|_| !line.trim_start().starts_with("//")) else {
            out.extend([line, "\n"]);
            continue;
        };
        let mut whole = line.to_owned();
        let open =
            |text: &str, pair: [char; 2]| text.matches(pair[0]).count() > text.matches(pair[1]).count();
        while open(&whole, ['(', ')']) || open(&whole, ['{', '}']) {
            let Some(line) = lines.next() else { break };
            whole.extend(["\n", line]);
        }
        let named = |text: &str| ["fn", "func"].iter().any(|word| has_word(text, &format!("{word} {name}")));
        let known = named(there) || named(&out);
        if !known {
            let signature = whole.split(" {").next().unwrap_or(&whole).trim_end_matches([';', ' ']);
            out.extend([stub(signature, name).as_str(), "\n"]);
        }
    }
    out
}
