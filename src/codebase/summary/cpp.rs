//! Grammar of C++.

use tree_sitter::Node;

use super::{
    CodeItemKind,
    bodies::FunctionSyntax,
    c,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::SourceText,
};
use crate::limits;

pub(super) static GRAMMAR: Grammar =
    Grammar::new(|| tree_sitter_cpp::LANGUAGE.into(), FunctionSyntax::Brackets, classify);

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let public = around.public && around.section;
    let named = |kind| ItemDefinition::new(kind, source.field_text(node, "name")).with_public(public);
    match node.kind() {
        "namespace_definition" if node.child_by_field_name("name").is_none() => NodeClass::Through,
        "namespace_definition" => {
            named(CodeItemKind::Module).with_body(node.child_by_field_name("body")).into()
        }
        "namespace_alias_definition" | "alias_declaration" => named(CodeItemKind::Alias).into(),
        "concept_definition" => named(CodeItemKind::Interface).into(),
        "access_specifier" => {
            NodeClass::Section(source.node_text(node).trim_end_matches(':').trim_end() == "public")
        }
        "template_declaration" => template(source, node, around),
        _ => c::classify(source, node, around),
    }
}

/// Classifies the declaration inside a template. The signature of the declaration starts with `template`.
fn template<'t>(source: &SourceText<'t>, mut node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    for _ in 0..limits::SUMMARY_NESTING {
        let mut cursor = node.walk();
        let inner = node
            .named_children(&mut cursor)
            .filter(|child| {
                !matches!(child.kind(), "template_parameter_list" | "requires_clause" | "comment")
            })
            .last();
        match inner {
            Some(inner) if inner.kind() == "template_declaration" => node = inner,
            Some(inner) => {
                return match classify(source, inner, around) {
                    NodeClass::Item(found) => found.into(),
                    _ => NodeClass::Closed,
                };
            }
            None => break,
        }
    }
    NodeClass::Closed
}
