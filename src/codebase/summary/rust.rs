//! Grammar of Rust.

use std::{collections::HashMap, rc::Rc};

use tree_sitter::{Node, Range};

use super::{
    CodeItemKind, Import,
    bodies::FunctionSyntax,
    doc,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, child_of_kind},
};
use crate::limits;

pub(super) static GRAMMAR: Grammar = Grammar {
    imports: &["use_declaration"],
    import_words: &["use "],
    is_doc: |comment| {
        (comment.starts_with("///") && !comment.starts_with("////"))
            || (comment.starts_with("/**") && !comment.starts_with("/***"))
    },
    file_doc,
    ..Grammar::new(|| tree_sitter_rust::LANGUAGE.into(), FunctionSyntax::Word("fn"), classify)
};

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    // Members of a trait or trait implementation are as visible as it is.
    let shared = matches!(
        around.parent_kind(),
        Some(CodeItemKind::Interface | CodeItemKind::Enum | CodeItemKind::Extension)
    );
    let public = || (shared && around.public) || child_of_kind(node, &["visibility_modifier"]).is_some();
    let body = node.child_by_field_name("body");
    let named = |kind| ItemDefinition::new(kind, source.field_text(node, "name")).with_public(public());
    match node.kind() {
        "source_file" | "declaration_list" | "foreign_mod_item" => NodeClass::Through,
        "line_comment" | "block_comment" => NodeClass::Comment,
        "attribute_item" => NodeClass::Attribute,
        "use_declaration" => NodeClass::Imports(imports(source, node)),
        "mod_item" => named(CodeItemKind::Module).with_body(body).into(),
        "struct_item" if body.is_some_and(|body| body.kind() == "ordered_field_declaration_list") => {
            named(CodeItemKind::Type).into()
        }
        "struct_item" | "union_item" => named(CodeItemKind::Type).with_body(body).into(),
        "enum_item" => named(CodeItemKind::Enum).with_body(body).into(),
        "enum_variant" => named(CodeItemKind::Variant).with_public(around.public).into(),
        "field_declaration" => named(CodeItemKind::Field).into(),
        "trait_item" => named(CodeItemKind::Interface).with_body(body).into(),
        "impl_item" => {
            let name = node.child_by_field_name("type").map_or("", |kind| base_name(source, kind));
            let public = node.child_by_field_name("trait").is_some();
            ItemDefinition::new(CodeItemKind::Extension, name).with_public(public).with_body(body).into()
        }
        "function_item" | "function_signature_item" => {
            named(around.function_kind()).ending_before(body).into()
        }
        "const_item" | "static_item" => {
            let end = source.value_end(node, node.child_by_field_name("value"));
            named(CodeItemKind::Constant).ending_at(end).into()
        }
        "type_item" | "associated_type" => named(CodeItemKind::Alias).into(),
        "macro_definition" => {
            let attributes = source.slice(around.start, node.start_byte());
            let name = node.child_by_field_name("name");
            named(CodeItemKind::Macro)
                .with_public(attributes.contains("macro_export"))
                .ending_at(name.map(|name| name.end_byte()))
                .into()
        }
        // Macro calls such as `cfg_if! { … }`, `pin_project! { … }` and `thread_local! { … }` often contain items.
        "expression_statement" => {
            let only = node.named_child(0);
            only.and_then(|only| macro_item_range(source, only)).map_or(NodeClass::Closed, NodeClass::Text)
        }
        "macro_invocation" => macro_item_range(source, node).map_or(NodeClass::Closed, NodeClass::Text),
        _ => NodeClass::Closed,
    }
}

/// Keywords by which items are recognized. Every item contains at least one of them.
const ITEMS: &[&str] = &[
    "const",
    "enum",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "use",
];

/// Returns the range inside the braces of a macro call if the text in that range may contain items; otherwise `None`.
fn macro_item_range(source: &SourceText<'_>, node: Node<'_>) -> Option<Range> {
    let tokens = child_of_kind(node, &["token_tree"]).filter(|_| node.kind() == "macro_invocation")?;
    let first = tokens.child(0).filter(|first| first.kind() == "{")?;
    let last = tokens.child(tokens.child_count().checked_sub(1)?)?;
    // Parsing it costs as much as a small file, so look for an item keyword first.
    let inner = source.slice(first.end_byte(), last.start_byte());
    inner.split(|c: char| !c.is_alphanumeric() && c != '_').find(|word| ITEMS.contains(word))?;
    Some(Range {
        start_byte: first.end_byte(),
        end_byte: last.start_byte(),
        start_point: first.end_position(),
        end_point: last.start_position(),
    })
}

/// Returns the name of a type without its path, parameters and references.
fn base_name<'t>(source: &SourceText<'t>, mut node: Node<'t>) -> &'t str {
    for _ in 0..limits::SUMMARY_NESTING {
        let inner = node.child_by_field_name("type").or_else(|| node.child_by_field_name("name"));
        match inner {
            Some(inner) => node = inner,
            None => break,
        }
    }
    source.node_text(node)
}

fn file_doc<'t>(source: &SourceText<'t>, root: Node<'t>) -> Option<String> {
    let mut cursor = root.walk();
    let comments = root
        .named_children(&mut cursor)
        .take_while(|node| node.kind().ends_with("comment") || node.kind() == "inner_attribute_item")
        .map(|node| source.node_text(node))
        .filter(|text| text.starts_with("//!") || text.starts_with("/*!"));
    doc::doc_from_comments(comments)
}

/// Returns the imports of a `use` statement, one per module. Groups in braces are expanded.
fn imports<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    if source.node_text(node).len() > limits::IMPORT_BYTES {
        return Vec::new();
    }
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut add = |module: String, name: Option<&str>| {
        let at = *places.entry(module.clone()).or_insert_with(|| {
            found.push((module, Vec::new()));
            found.len() - 1
        });
        found[at].1.extend(name.map(str::to_owned));
    };
    let mut rest: Vec<(Node<'t>, Rc<str>, usize)> =
        node.child_by_field_name("argument").map(|node| (node, "".into(), 0)).into_iter().collect();
    while let Some((node, prefix, depth)) = rest.pop() {
        if prefix.len() > limits::IMPORT_LENGTH {
            continue;
        }
        let under = |path: &str| match (&*prefix, path) {
            (prefix, "") => prefix.to_owned(),
            ("", path) => path.to_owned(),
            (prefix, path) => format!("{prefix}::{path}"),
        };
        match node.kind() {
            "scoped_use_list" | "use_list" if depth < limits::SUMMARY_NESTING => {
                let prefix: Rc<str> = under(source.field_text(node, "path")).into();
                let list = node.child_by_field_name("list").unwrap_or(node);
                let mut cursor = list.walk();
                let inner: Vec<_> = list.named_children(&mut cursor).collect();
                rest.extend(inner.into_iter().rev().map(|node| (node, Rc::clone(&prefix), depth + 1)));
            }
            "use_as_clause" => {
                rest.extend(node.child_by_field_name("path").map(|path| (path, prefix, depth + 1)));
            }
            "use_wildcard" => {
                let path = source.node_text(node).trim_end_matches('*').trim_end().trim_end_matches(':');
                add(under(path), Some("*"));
            }
            "scoped_identifier" => {
                let (path, name) = (source.field_text(node, "path"), source.field_text(node, "name"));
                if prefix.is_empty() && path.is_empty() {
                    add(name.to_owned(), None);
                } else {
                    add(under(path), Some(name));
                }
            }
            "identifier" | "self" | "crate" | "super" => {
                let name = source.node_text(node);
                if prefix.is_empty() {
                    add(name.to_owned(), None);
                } else {
                    add(prefix.as_ref().to_owned(), Some(name));
                }
            }
            _ => {}
        }
    }
    found.into_iter().map(|(module, names)| source.import(node, &module, names)).collect()
}
