//! C++.

use tree_sitter::Node;

use super::{
    Kind,
    bodies::Heads,
    c,
    grammar::{Around, Found, Grammar, Sight},
    source::Source,
};
use crate::limits;

pub(super) static GRAMMAR: Grammar =
    Grammar::new(|| tree_sitter_cpp::LANGUAGE.into(), Heads::Brackets, classify);

fn classify<'t>(source: &Source<'t>, node: Node<'t>, around: &Around) -> Sight<'t> {
    let public = around.public && around.section;
    let named = |kind| Found::new(kind, source.field(node, "name")).public(public);
    match node.kind() {
        "namespace_definition" if node.child_by_field_name("name").is_none() => Sight::Through,
        "namespace_definition" => named(Kind::Module).holding(node.child_by_field_name("body")).into(),
        "namespace_alias_definition" | "alias_declaration" => named(Kind::Alias).into(),
        "concept_definition" => named(Kind::Interface).into(),
        "access_specifier" => Sight::Section(source.of(node).trim_end_matches(':').trim_end() == "public"),
        "template_declaration" => template(source, node, around),
        _ => c::classify(source, node, around),
    }
}

/// What is declared as a template: its signature begins with `template`.
fn template<'t>(source: &Source<'t>, mut node: Node<'t>, around: &Around) -> Sight<'t> {
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
                    Sight::Item(found) => found.into(),
                    _ => Sight::Closed,
                };
            }
            None => break,
        }
    }
    Sight::Closed
}
