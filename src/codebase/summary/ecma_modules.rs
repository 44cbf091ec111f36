//! Reads imports and exports of JavaScript and TypeScript.

use tree_sitter::Node;

use super::{
    Import,
    source::{SourceText, child_of_kind},
};

/// Reads statements of the form `import … from`, `export … from`, `import "…"` and `import x = require("…")`.
pub(super) fn imports<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    let require = child_of_kind(node, &["import_require_clause"]);
    let from = require.unwrap_or(node).child_by_field_name("source");
    let Some(from) = from else { return Vec::new() };
    let mut names = Vec::new();
    let mut cursor = node.walk();
    // `export * from` has no export clause, only the star.
    for part in node.children(&mut cursor) {
        match part.kind() {
            "*" | "namespace_export" => names.push("*".to_owned()),
            "export_clause" => names.extend(specifier_names(source, part)),
            "import_clause" => names.extend(clause(source, part)),
            _ => {}
        }
    }
    vec![source.import(node, unquote(source.node_text(from)), names)]
}

fn clause(source: &SourceText<'_>, node: Node<'_>) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = node.walk();
    for part in node.named_children(&mut cursor) {
        match part.kind() {
            "identifier" => names.push("default".to_owned()),
            "namespace_import" => names.push("*".to_owned()),
            "named_imports" => names.extend(specifier_names(source, part)),
            _ => {}
        }
    }
    names
}

fn specifier_names(source: &SourceText<'_>, list: Node<'_>) -> Vec<String> {
    let mut cursor = list.walk();
    list.named_children(&mut cursor)
        .map(|one| unquote(source.field_text(one, "name")).to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// Reads declarations such as `const x = require("…")`, `const { a, b } = require("…")` and `const x = require("…").a`.
pub(super) fn require_imports<'t>(
    source: &SourceText<'t>,
    node: Node<'t>,
    declarator: Node<'t>,
) -> Vec<Import> {
    let Some(value) = declarator.child_by_field_name("value") else { return Vec::new() };
    let member = value.child_by_field_name("property").filter(|_| value.kind() == "member_expression");
    let call = if member.is_some() { value.child_by_field_name("object") } else { Some(value) };
    let module = call
        .filter(|call| call.kind() == "call_expression" && source.field_text(*call, "function") == "require")
        .and_then(|call| call.child_by_field_name("arguments")?.named_child(0))
        .filter(|argument| argument.kind() == "string");
    let Some(module) = module else { return Vec::new() };
    let mut names = Vec::new();
    names.extend(member.map(|member| source.node_text(member).to_owned()));
    if let Some(pattern) =
        declarator.child_by_field_name("name").filter(|name| name.kind() == "object_pattern")
    {
        let mut cursor = pattern.walk();
        for part in pattern.named_children(&mut cursor) {
            match part.kind() {
                "shorthand_property_identifier_pattern" => names.push(source.node_text(part).to_owned()),
                "pair_pattern" => names.push(unquote(source.field_text(part, "key")).to_owned()),
                _ => {}
            }
        }
    }
    vec![source.import(node, unquote(source.node_text(module)), names)]
}

/// Returns the names that `module.exports = { a, b: c }` or `module.exports = a` exports. Returns `None` if the
/// assigned value contains anything but plain names.
pub(super) fn exported_names(source: &SourceText<'_>, value: Node<'_>) -> Option<Vec<String>> {
    match value.kind() {
        "identifier" => Some(vec![source.node_text(value).to_owned()]),
        "object" => {
            let mut cursor = value.walk();
            let parts = value.named_children(&mut cursor).filter(|part| part.kind() != "comment");
            parts
                .map(|part| match part.kind() {
                    "shorthand_property_identifier" => Some(source.node_text(part).to_owned()),
                    "pair" => part
                        .child_by_field_name("value")
                        .filter(|value| value.kind() == "identifier")
                        .map(|value| source.node_text(value).to_owned()),
                    _ => None,
                })
                .collect()
        }
        _ => None,
    }
}

/// Removes the quotes around a string or name.
pub(super) fn unquote(text: &str) -> &str {
    text.trim_matches(['"', '\'', '`'])
}
