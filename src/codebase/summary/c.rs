//! Grammar of C, including functions that the grammar of C++ also uses.

use tree_sitter::Node;

use super::{
    CodeItemKind, Import,
    bodies::FunctionSyntax,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext, TrailingItems},
    source::{SourceText, child_of_kind, children_of_kind},
};
use crate::limits;

pub(super) static GRAMMAR: Grammar =
    Grammar::new(|| tree_sitter_c::LANGUAGE.into(), FunctionSyntax::Brackets, classify);

pub(super) fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let public = around.public && around.section;
    match node.kind() {
        "translation_unit"
        | "preproc_if"
        | "preproc_ifdef"
        | "preproc_else"
        | "preproc_elif"
        | "preproc_elifdef"
        | "linkage_specification"
        | "declaration_list"
        | "field_declaration_list"
        | "enumerator_list" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "preproc_include" => NodeClass::Imports(include(source, node)),
        "preproc_def" | "preproc_function_def" => macro_definition(source, node),
        "struct_specifier" | "union_specifier" | "class_specifier" | "enum_specifier" => {
            match node.child_by_field_name("body") {
                Some(_) => holder(source, node, node, around).map_or(NodeClass::Through, NodeClass::from),
                // A forward declaration.
                None => NodeClass::Closed,
            }
        }
        "type_definition" => classify_declaration(source, node, CodeItemKind::Alias, around),
        "declaration" | "field_declaration" => {
            classify_declaration(source, node, CodeItemKind::Constant, around)
        }
        "enumerator" => ItemDefinition::new(CodeItemKind::Variant, source.field_text(node, "name"))
            .with_public(public)
            .into(),
        "function_definition" => match declared_names(source, node).into_iter().next() {
            Some((_, name)) if !is_keyword(&name) => {
                let body = node.child_by_field_name("body");
                let end = child_of_kind(node, &["field_initializer_list", "try_statement"]).or(body);
                let kind = function_kind(node, around);
                ItemDefinition::new(kind, name)
                    .with_public(public && !is_static(source, node, around))
                    .ending_before(end)
                    .into()
            }
            _ => NodeClass::Closed,
        },
        _ => NodeClass::Closed,
    }
}

/// Returns the item for a struct, union, class or enum that has a body; `None` if it has no name.
fn holder<'t>(
    source: &SourceText<'t>,
    node: Node<'t>,
    specifier: Node<'t>,
    around: &NodeContext,
) -> Option<ItemDefinition<'t>> {
    let name = specifier.child_by_field_name("name").map(|name| base_name(source, name));
    let name = name.or_else(|| {
        let (_, name) = declared_names(source, node).into_iter().next()?;
        Some(name)
    })?;
    let kind = if specifier.kind() == "enum_specifier" { CodeItemKind::Enum } else { CodeItemKind::Type };
    let mut found = ItemDefinition::new(kind, name)
        .with_public(around.public && around.section)
        .with_body(specifier.child_by_field_name("body"));
    found.section = specifier.kind() != "class_specifier";
    Some(found)
}

/// Classifies a declaration. The declaration may also define a type, as in `typedef struct a { … } b;` or `struct { … }
/// field;`.
fn classify_declaration<'t>(
    source: &SourceText<'t>,
    node: Node<'t>,
    kind: CodeItemKind,
    around: &NodeContext,
) -> NodeClass<'t> {
    let specifier = node.child_by_field_name("type").filter(|specifier| {
        matches!(
            specifier.kind(),
            "struct_specifier" | "union_specifier" | "class_specifier" | "enum_specifier"
        )
    });
    let body = specifier.and_then(|specifier| specifier.child_by_field_name("body"));
    let declared = declared_names(source, node);
    let kind = if kind == CodeItemKind::Constant && is_in_type(around) { CodeItemKind::Field } else { kind };
    if let (Some(specifier), Some(body)) = (specifier, body) {
        let Some(mut found) = holder(source, node, specifier, around) else {
            // Members of `union { int a; long b; };` are members of the enclosing type.
            return NodeClass::Through;
        };
        let brace = body.child(body.child_count().saturating_sub(1));
        let names: Vec<String> = declared.into_iter().map(|(_, name)| name).collect();
        found.tail = brace.filter(|_| !names.is_empty()).map(|from| TrailingItems { kind, names, from });
        return found.into();
    }
    let public = around.public && around.section && !is_static(source, node, around);
    let functions = kind != CodeItemKind::Alias && declared.iter().any(|(function, _)| *function);
    let mut found = ItemDefinition::new(if functions { function_kind(node, around) } else { kind }, "")
        .with_public(public);
    found.names = declared.into_iter().map(|(_, name)| name).filter(|name| !is_keyword(name)).collect();
    if found.names.is_empty() {
        return NodeClass::Closed;
    }
    if !functions {
        let mut cursor = node.walk();
        let values = node.children_by_field_name("declarator", &mut cursor);
        found.until = values
            .filter_map(|each| source.value_end(node, each.child_by_field_name("value")))
            .next()
            .or_else(|| source.value_end(node, node.child_by_field_name("default_value")));
    }
    found.into()
}

fn is_in_type(around: &NodeContext) -> bool {
    matches!(around.parent_kind(), Some(CodeItemKind::Type | CodeItemKind::Interface))
}

/// Returns `Method` for a function inside a type or with a qualified name, otherwise `Function`.
fn function_kind(node: Node<'_>, around: &NodeContext) -> CodeItemKind {
    let qualified = declarators(node)
        .first()
        .and_then(|first| innermost_declarator(*first))
        .is_some_and(|(_, name)| name.kind() == "qualified_identifier");
    if is_in_type(around) || qualified { CodeItemKind::Method } else { CodeItemKind::Function }
}

/// Returns whether a declaration outside of types is `static`. A `static` declaration is private to its file.
fn is_static(source: &SourceText<'_>, node: Node<'_>, around: &NodeContext) -> bool {
    let mut specifiers = children_of_kind(node, "storage_class_specifier").into_iter();
    !is_in_type(around) && specifiers.any(|specifier| source.node_text(specifier) == "static")
}

fn declarators(node: Node<'_>) -> Vec<Node<'_>> {
    let mut cursor = node.walk();
    node.children_by_field_name("declarator", &mut cursor).collect()
}

/// Returns the names that a declaration declares, each with whether it is a function.
fn declared_names(source: &SourceText<'_>, node: Node<'_>) -> Vec<(bool, String)> {
    let named = declarators(node).into_iter().filter_map(innermost_declarator);
    named.map(|(function, name)| (function, base_name(source, name))).collect()
}

/// Returns the innermost node of a declarator, and whether the declarator declares a function. `(*f(int))[3]` declares
/// a function; `(*f)(int)` does not.
fn innermost_declarator(mut node: Node<'_>) -> Option<(bool, Node<'_>)> {
    let mut function = false;
    for _ in 0..limits::SUMMARY_NESTING {
        match node.kind() {
            "function_declarator" => function = true,
            "parenthesized_declarator" | "init_declarator" | "attributed_declarator" => {}
            "pointer_declarator" | "array_declarator" | "reference_declarator" => function = false,
            // `operator bool() const`
            "operator_cast" => return Some((true, node)),
            "variadic_declarator" | "structured_binding_declarator" => return None,
            _ => return Some((function, node)),
        }
        let inner = node.child_by_field_name("declarator");
        let mut cursor = node.walk();
        node = inner.or_else(|| {
            node.named_children(&mut cursor).find(|child| {
                child.kind().ends_with("declarator")
                    || child.kind().ends_with("identifier")
                    || child.kind() == "operator_name"
            })
        })?;
    }
    None
}

/// Returns a name without its scope and template arguments, for example `b` for `a::b<int>`.
fn base_name(source: &SourceText<'_>, mut node: Node<'_>) -> String {
    for _ in 0..limits::SUMMARY_NESTING {
        match node.kind() {
            "operator_cast" => return format!("operator {}", source.field_text(node, "type")),
            "operator_name" => {
                return source.node_text(node).split_whitespace().collect::<Vec<_>>().join(" ");
            }
            "qualified_identifier" | "template_function" | "template_type" | "template_method" => {
                match node.child_by_field_name("name") {
                    Some(name) => node = name,
                    None => break,
                }
            }
            _ => break,
        }
    }
    source.node_text(node).to_owned()
}

/// Returns whether a name is a keyword. Keywords occur as names if the text has syntax errors.
fn is_keyword(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "if", "else", "for", "while", "do", "switch", "case", "return", "sizeof", "goto", "default", "catch",
        "throw", "new", "delete", "defined", "static", "const", "void", "int", "char",
    ];
    WORDS.contains(&name)
}

/// Classifies a macro definition `#define NAME value`. A long value is left out of the signature. Header guards are
/// ignored.
fn macro_definition<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let name = source.field_text(node, "name");
    let value = node.child_by_field_name("value");
    if value.is_none() && node.kind() == "preproc_def" && is_guard(source, node, name) {
        return NodeClass::Closed;
    }
    let head = node.child_by_field_name("parameters").or(node.child_by_field_name("name"));
    let end = source.value_end(node, value).and(head).map(|head| head.end_byte());
    ItemDefinition::new(CodeItemKind::Macro, name).ending_at(end).into()
}

fn is_guard(source: &SourceText<'_>, node: Node<'_>, name: &str) -> bool {
    let tail = name.trim_end_matches('_').to_ascii_uppercase();
    let looks = ["_H", "_HH", "_HPP", "_HXX", "INCLUDED"].iter().any(|ending| tail.ends_with(ending));
    looks && node.parent().is_some_and(|parent| source.field_text(parent, "name") == name)
}

/// Reads include directives such as `#include <a.h>` and `#include "a.h"`.
fn include<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    let module = source.field_text(node, "path").trim_matches(['<', '>', '"']);
    let import = source.import(node, module, Vec::new());
    vec![Import { text: import.text.trim_end().to_owned(), ..import }]
}
