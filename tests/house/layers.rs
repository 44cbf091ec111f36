//! Checks that each module uses only modules of lower layers. The check reads tokens, so it sees every form of use:
//! `use` lines with braces, full paths, re-exports, macros, attributes, and `super` paths that leave the top-level
//! module.
//!
//! Paths in doc comments are not checked, because a link may point to a higher layer.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Item,
    buffer::Cursor,
    parse::{ParseStream, Parser},
};

/// The layers, lowest first. Modules of the same layer must not use each other.
const LAYERS: &[&[&str]] = &[
    &["limits", "panics", "types"],
    &["clock", "config", "proc"],
    &["documents", "egress", "git", "store"],
    &["github", "providers", "sandbox"],
    &["codebase", "commands", "messages", "runners"],
    &["agents"],
    &["engine"],
    &["rounds"],
    &["publication"],
    &["stage"],
    &["workflows"],
    &["intake"],
    &["traces"],
    &["web"],
    &["app"],
    &["cli"],
    &["main"],
];

/// Module outside the layers: the imitation of GitHub. The imitation and the bot must not use each other, apart from
/// the exceptions below.
const SEPARATE: &str = "localhub";
const SEPARATE_MAY_USE: &[&str] = &["types"];
const MAY_USE_SEPARATE: &[&str] = &["cli"];

/// Name by which `main.rs` refers to the crate.
const CRATE: &str = "countersign";

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// Returns the reason why module `from` may not use module `to`, or `None` if it may.
fn objection(from: &str, to: &str) -> Option<String> {
    if from == to {
        return None;
    }
    if from == SEPARATE || to == SEPARATE {
        let allowed =
            if from == SEPARATE { SEPARATE_MAY_USE.contains(&to) } else { MAY_USE_SEPARATE.contains(&from) };
        return (!allowed).then(|| {
            format!("{SEPARATE} must be separate from {}", if from == SEPARATE { to } else { from })
        });
    }
    match (layer(from), layer(to)) {
        (_, None) => Some(format!("`{to}` is not in the table of layers")),
        (None, _) => Some(format!("`{from}` is not in the table of layers")),
        (Some(own), Some(other)) if other == own => Some(format!("`{from}` and `{to}` share layer {own}")),
        (Some(own), Some(other)) if other > own => {
            Some(format!("`{from}` in layer {own} uses `{to}` in the higher layer {other}"))
        }
        _ => None,
    }
}

/// Module or crate that a path in the source resolves to.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// The path leads to this top-level module of the crate.
    Module(String),
    /// The path leads to the root of the crate, through which every module could be reached.
    Root,
    /// The path leads to another crate, or starts with an imported name whose import was already checked.
    Elsewhere,
}

fn target(at: &[String], path: &[String]) -> Target {
    let mut place: Vec<&str> = match path.first().map(String::as_str) {
        Some("crate" | CRATE) => Vec::new(),
        Some("self" | "super") => at.iter().map(String::as_str).collect(),
        _ => return Target::Elsewhere,
    };
    for segment in path {
        match segment.as_str() {
            "super" => drop(place.pop()),
            "crate" | "self" => {}
            name if name == CRATE && place.is_empty() => {}
            name => place.push(name),
        }
    }
    match place.first() {
        None | Some(&"*") => Target::Root,
        Some(module) => Target::Module((*module).to_owned()),
    }
}

/// Reads one file and collects its violations.
struct Reader {
    /// Name of the top-level module that contains the file.
    top_module: String,
    /// Path, from the crate's root, of the module that is being read.
    at: Vec<String>,
    /// Whether an attribute is being read. In attributes, a string may be a path.
    in_attribute: bool,
    objections: BTreeSet<String>,
}

impl Reader {
    fn path(&mut self, path: &[String]) {
        let shown = path.join("::");
        match target(&self.at, path) {
            Target::Elsewhere => {}
            Target::Root => self.object(format!("`{shown}` is the whole crate; name the module")),
            Target::Module(module) => {
                if let Some(why) = objection(&self.top_module, &module) {
                    self.object(format!("`{shown}`: {why}"));
                }
            }
        }
    }

    fn object(&mut self, what: String) {
        self.objections.insert(what);
    }

    fn text(&mut self, text: &str) -> syn::Result<()> {
        let mut read = false;
        let tokens = |input: ParseStream| {
            self.tokens(&[], input.cursor());
            read = true;
            Ok(())
        };
        // The parser reports an error because no token was consumed.
        tokens.parse_str(text).or_else(|error| if read { Ok(()) } else { Err(error) })
    }

    /// Reads tokens and checks the paths among them. If the tokens are inside a brace, `before` is the path in front of
    /// that brace.
    fn tokens(&mut self, before: &[String], mut cursor: Cursor) {
        while !cursor.eof() {
            if let Some((name, inside, after)) = module(cursor) {
                self.at.push(name);
                self.tokens(&[], inside);
                self.at.pop();
                cursor = after;
            } else if let Some((inside, after)) = attribute(cursor) {
                if inside.ident().is_none_or(|(name, _)| name != "doc") {
                    self.in_attribute = true;
                    self.tokens(&[], inside);
                    self.in_attribute = false;
                }
                cursor = after;
            } else if let Some((inside, _, _, after)) = cursor.any_group() {
                self.tokens(&[], inside);
                cursor = after;
            } else if let Some(after) = renamed(cursor) {
                cursor = after;
            } else if cursor.ident().is_some() || star(cursor).is_some() {
                cursor = self.path_of_tokens(before.to_vec(), cursor);
            } else if let Some((literal, after)) = cursor.literal() {
                self.quoted(&literal.to_string());
                cursor = after;
            } else {
                cursor = cursor.token_tree().map_or(Cursor::empty(), |(_, after)| after);
            }
        }
    }

    /// Reads and checks a path such as `a::b::c`, `a::{b, c::d}` or `a::$b`. Returns the cursor after the path.
    fn path_of_tokens<'a>(&mut self, mut path: Vec<String>, mut cursor: Cursor<'a>) -> Cursor<'a> {
        loop {
            if let Some((ident, after)) = cursor.ident() {
                // In `use ::countersign` the word before is not part of the path.
                if ident == CRATE {
                    path.clear();
                }
                path.push(ident.to_string());
                cursor = after;
            } else if let Some(after) = star(cursor) {
                path.push("*".to_owned());
                cursor = after;
            }
            let Some(after) = colons(cursor) else { break };
            if let Some((inside, _, _, rest)) = after.any_group() {
                self.tokens(&path, inside);
                return rest;
            }
            if after.ident().is_none() && star(after).is_none() {
                // `crate::$module` could be any module.
                path.push("?".to_owned());
                cursor = after;
                break;
            }
            cursor = after;
        }
        // Any other single word is a visibility or a variable.
        let all = path == ["crate"] && renamed(cursor).is_some();
        if path.len() > 1 || all {
            self.path(&path);
        }
        cursor
    }

    /// Checks a string literal as a path, because attributes such as serde's contain paths as strings.
    fn quoted(&mut self, literal: &str) {
        let inside = literal.trim_matches(['r', '#', '"']);
        if self.in_attribute && literal.ends_with(['"', '#']) && inside.contains("::") {
            // The literal may not be valid tokens.
            let _ = self.text(inside);
        }
    }
}

/// Parses `mod name { … }`. Returns the module's name, its content and the cursor after the module.
fn module(cursor: Cursor) -> Option<(String, Cursor, Cursor)> {
    let (word, after) = cursor.ident()?;
    let (name, after) = after.ident().filter(|_| word == "mod")?;
    let (inside, _, _, after) = after.any_group()?;
    Some((name.to_string(), inside, after))
}

/// Parses `#[…]` or `#![…]`. Returns the attribute's content and the cursor after the attribute.
fn attribute(cursor: Cursor) -> Option<(Cursor, Cursor)> {
    let (_, after) = cursor.punct().filter(|(punct, _)| punct.as_char() == '#')?;
    let after = after.punct().filter(|(punct, _)| punct.as_char() == '!').map_or(after, |(_, after)| after);
    let (inside, _, _, after) = after.any_group()?;
    Some((inside, after))
}

/// Skips `as name`, because the name is not a path. Returns the cursor after it.
fn renamed(cursor: Cursor) -> Option<Cursor> {
    let (word, after) = cursor.ident()?;
    let (_, after) = after.ident()?;
    (word == "as").then_some(after)
}

fn star(cursor: Cursor) -> Option<Cursor> {
    let (punct, after) = cursor.punct()?;
    (punct.as_char() == '*').then_some(after)
}

fn colons(cursor: Cursor) -> Option<Cursor> {
    let (first, after) = cursor.punct()?;
    let (second, after) = after.punct()?;
    (first.as_char() == ':' && second.as_char() == ':').then_some(after)
}

/// Returns the violations in the file at `path` below `src/`.
fn objections(path: &str, source: &str) -> Vec<String> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let at: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if stem == "lib" {
        return check_lib(&syn::parse_file(source).expect("lib.rs is Rust"));
    }
    let mut reader =
        Reader { top_module: at[0].clone(), at, in_attribute: false, objections: BTreeSet::new() };
    if let Err(error) = reader.text(source) {
        return vec![format!("{path}: cannot be read: {error}")];
    }
    for construct in ["include!(", "#[path", "extern crate"] {
        if source.contains(construct) {
            reader.object(format!("`{construct}` brings in code under another name; declare a module"));
        }
    }
    reader.objections.into_iter().map(|what| format!("{path}: {what}")).collect()
}

/// Checks that `lib.rs` only declares modules, because any other item would belong to no layer.
fn check_lib(file: &syn::File) -> Vec<String> {
    let plain = |item: &&Item| !matches!(item, Item::Mod(module) if module.content.is_none());
    let other_items = file.items.iter().filter(plain).count();
    let message = format!("lib.rs: {other_items} items are not `mod name;`; move them into a module");
    if other_items == 0 { Vec::new() } else { vec![message] }
}

/// Compares [`LAYERS`] with the modules in `src/`. Returns one line for each difference.
fn unlisted(modules: &BTreeSet<String>) -> Vec<String> {
    let listed: BTreeSet<String> =
        LAYERS.iter().copied().flatten().copied().chain([SEPARATE]).map(str::to_owned).collect();
    let missing = modules.difference(&listed).map(|m| format!("`{m}` is in no layer; add it to the table"));
    let gone = listed.difference(modules).map(|m| format!("`{m}` is in the table but not in src; remove it"));
    missing.chain(gone).collect()
}

pub(crate) fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn modules_use_only_lower_layers() {
    let mut files = Vec::new();
    sources(&src(), &mut files);
    assert!(files.len() > 20, "found only {} source files", files.len());
    let bad: Vec<String> = files
        .iter()
        .flat_map(|file| {
            let path = file.strip_prefix(src()).unwrap().to_str().unwrap().to_owned();
            objections(&path, &fs::read_to_string(file).unwrap())
        })
        .collect();
    assert!(bad.is_empty(), "\n{}\n", bad.join("\n"));
}

#[test]
fn each_module_has_a_layer() {
    let modules = fs::read_dir(src())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.strip_suffix(".rs").unwrap_or(&name).to_owned())
        .filter(|name| name != "lib")
        .collect();
    let bad = unlisted(&modules);
    assert!(bad.is_empty(), "\n{}\n", bad.join("\n"));
}

/// Tests of the layer check itself: it must detect every way to name a higher module, and accept everything that is
/// allowed.
mod checker {
    use super::*;

    /// Returns the violations in a snippet that is checked as part of the module `messages`. That module is in the same
    /// layer as `commands` and below `engine`.
    fn objections_in(source: &str) -> Vec<String> {
        objections("messages/cards/gate.rs", source)
    }

    #[track_caller]
    fn assert_caught(source: &str, module: &str) {
        let found = objections_in(source);
        assert!(found.iter().any(|s| s.contains(&format!("`{module}`"))), "{source}: {found:?}");
    }

    #[test]
    fn layer_check_finds_every_form_of_module_path() {
        for source in [
            "use crate::engine;",
            "use crate::engine as quiet;",
            "use crate::engine::*;",
            "use crate::{types, documents::{self, lld}, engine::{Cx}};",
            "use {crate::types, crate::{engine}};",
            "pub use crate::engine::Cx;",
            "pub(crate) use crate::engine::Cx as Context;",
            "use super::super::super::engine::Cx;",
            "use self::super::super::super::engine::Cx;",
            "mod tests { use super::super::super::super::engine::Cx; }",
            "fn f() { use crate::engine::Cx; }",
            "fn f() { crate::engine::run() }",
            "fn f(cx: &crate::engine::Cx) {}",
            "fn f(cx: Box<dyn Fn(crate::engine::Cx)>) {}",
            "impl crate::engine::Step for X {}",
            "fn f<T: crate::engine::Step>() {}",
            "const X: usize = <crate::engine::Cx as Sized>::SIZE;",
            "fn f(x: E) { match x { crate::engine::E::A => {} } }",
            "fn f() { println!(\"{}\", crate::engine::name()) }",
            "fn f() { vec![Some(super::super::super::engine::name())] }",
            "macro_rules! m { () => { $crate::engine::name() } }",
            "macro_rules! m { () => { use $crate::{types::Hash, engine::{Cx as Context}}; } }",
            "#[derive(Error)] enum E { #[error(\"{}\", crate::engine::name())] A }",
            "struct S { #[serde(with = \"crate::engine::bytes\")] b: u8 }",
            "#[serde(bound = r#\"T: crate::engine::Step\"#)] struct S<T>(T);",
            "use countersign::engine::Cx;",
            "use ::countersign::engine::Cx;",
            "fn f() { countersign::engine::run() }",
        ] {
            assert_caught(source, "engine");
        }
    }

    #[test]
    fn layer_check_refuses_imports_from_the_same_layer_and_from_localhub() {
        assert_caught("use crate::commands::CommandSpec;", "commands");
        assert!(!objections_in("use crate::localhub::Hub;").is_empty());
        assert_eq!(objections("localhub/rest/issues.rs", "use crate::types::IssueNo;"), [""; 0]);
        assert!(!objections("localhub/rest/issues.rs", "use crate::limits::BODY_CHARS;").is_empty());
        assert_eq!(objections("cli/hub.rs", "use crate::localhub::Hub;"), [""; 0]);
        assert!(!objections("app.rs", "use crate::localhub::Hub;").is_empty());
    }

    #[test]
    fn layer_check_refuses_glob_imports_and_aliases_of_the_crate() {
        for source in [
            "use crate::*;",
            "use crate as all;",
            "use crate::{self as all};",
            "use super::super::super as all;",
            "use super::super::super::*;",
            "use countersign::*;",
            "macro_rules! m { () => { use $crate::*; } }",
            "macro_rules! m { ($m:ident) => { $crate::$m::run() } }",
            "use crate::some_macro_at_the_root;",
            "extern crate self as all;",
            "extern crate countersign as all;",
            "include!(\"../engine/cx.rs\");",
            "#[path = \"../engine/cx.rs\"] mod cx;",
        ] {
            assert!(!objections_in(source).is_empty(), "{source}");
        }
    }

    #[test]
    fn layer_check_accepts_paths_to_lower_layers() {
        for source in [
            "use crate::{github::Body, types::{Hash, IssueNo}, limits};",
            "use super::super::frame; use super::line; use self::inner::x;",
            "use crate::messages::frame;",
            "use super::super::super::types::Hash;",
            "mod tests { use super::*; }",
            "pub(crate) fn f() {} pub(super) struct S; pub(in crate::messages) struct T;",
            "use std::{fmt, collections::BTreeMap}; use engine::Other;",
            "/// See [`crate::engine::Cx`].\nfn f(countersign: u8) { drop(countersign) }",
            "fn f() { println!(\"crate::engine is a word here\", self.x, list.collect::<Vec<_>>()) }",
            "macro_rules! m { () => { use $crate::{types::Hash as Engine}; pub(crate) fn f() {} } }",
        ] {
            assert_eq!(objections_in(source), [""; 0], "{source}");
        }
    }

    #[test]
    fn layer_check_resolves_super_from_the_inline_module() {
        assert_eq!(objections("messages/mod.rs", "use super::github::Body;"), [""; 0]);
        assert!(!objections("messages/mod.rs", "use super::engine::Cx;").is_empty());
        assert!(!objections("clock.rs", "use super::store::Store;").is_empty());
        assert_eq!(objections("messages/cards/mod.rs", "use super::engine::Cx;"), [""; 0]);
        assert!(!objections("clock.rs", "mod tests { use super::super::store::Store; }").is_empty());
    }

    #[test]
    fn layer_check_allows_cli_imports_only_in_main_and_no_code_in_lib() {
        assert_eq!(objections("main.rs", "fn main() { countersign::cli::main() }"), [""; 0]);
        assert!(!objections("cli/mod.rs", "use crate::main::x;").is_empty());
        assert!(!objections("app.rs", "use crate::cli::x;").is_empty());
        assert_eq!(objections("lib.rs", "//! Doc.\npub mod types;\nmod engine;"), [""; 0]);
        assert!(!objections("lib.rs", "pub mod types;\npub use engine::Cx;").is_empty());
        assert!(!objections("lib.rs", "pub mod types { }").is_empty());
    }
}
