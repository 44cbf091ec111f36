//! Grammar of Go.

use tree_sitter::Node;

use super::{
    CodeItemKind, Import,
    bodies::FunctionSyntax,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, child_of_kind},
};
use crate::limits;

pub(super) static GRAMMAR: Grammar =
    Grammar::new(|| tree_sitter_go::LANGUAGE.into(), FunctionSyntax::Word("func"), classify);

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, _around: &NodeContext) -> NodeClass<'t> {
    let named = |kind| {
        let name = source.field_text(node, "name");
        ItemDefinition::new(kind, name).with_public(is_public(name))
    };
    let body = node.child_by_field_name("body");
    match node.kind() {
        "source_file" | "var_spec_list" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "import_declaration" => NodeClass::Imports(imports(source, node)),
        "function_declaration" => named(CodeItemKind::Function).ending_before(body).into(),
        "method_declaration" | "method_elem" => named(CodeItemKind::Method).ending_before(body).into(),
        "const_declaration" | "var_declaration" | "type_declaration" => {
            let kinds = &["const_spec", "var_spec", "type_spec", "type_alias"];
            let grouped = child_of_kind(node, &["(", "var_spec_list"]).is_some();
            match child_of_kind(node, kinds).filter(|_| !grouped) {
                Some(only) => spec(source, only),
                None => NodeClass::Through,
            }
        }
        "const_spec" | "var_spec" | "type_spec" | "type_alias" => spec(source, node),
        "field_declaration" => field(source, node),
        "type_elem" => embedded_field(source.node_text(node)),
        _ => NodeClass::Closed,
    }
}

/// Classifies a single `const`, `var` or `type` spec, whether it stands alone or in a group.
fn spec<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let mut found = declared_names(
        source,
        node,
        match node.kind() {
            "type_spec" => CodeItemKind::Type,
            "type_alias" => CodeItemKind::Alias,
            _ => CodeItemKind::Constant,
        },
    );
    if found.kind == CodeItemKind::Constant {
        return found.ending_at(source.value_end(node, node.child_by_field_name("value"))).into();
    }
    match node.child_by_field_name("type") {
        Some(kind) if kind.kind() == "struct_type" => {
            found.with_body(child_of_kind(kind, &["field_declaration_list"])).into()
        }
        Some(kind) if kind.kind() == "interface_type" => {
            found.kind = CodeItemKind::Interface;
            found.within = Some(kind);
            found.ending_before(child_of_kind(kind, &["{"])).into()
        }
        _ => found.into(),
    }
}

fn declared_names<'t>(source: &SourceText<'t>, node: Node<'t>, kind: CodeItemKind) -> ItemDefinition<'t> {
    let mut cursor = node.walk();
    let names: Vec<String> = node
        .children_by_field_name("name", &mut cursor)
        .filter(|name| name.is_named())
        .map(|name| source.node_text(name).to_owned())
        .collect();
    ItemDefinition::with_names(kind, names, is_public)
}

fn field<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let found = declared_names(source, node, CodeItemKind::Field);
    if found.names.is_empty() { embedded_field(source.field_text(node, "type")) } else { found.into() }
}

/// Classifies an embedded type. Its name is the last part of the type's path.
fn embedded_field<'t>(text: &str) -> NodeClass<'t> {
    let plain = text.split('[').next().unwrap_or_default();
    let name = plain.rsplit('.').next().unwrap_or_default().trim();
    if name.is_empty() || name.len() > limits::NAME_BYTES || name.contains('\n') {
        return NodeClass::Closed;
    }
    ItemDefinition::new(CodeItemKind::Field, name).with_public(is_public(name)).into()
}

fn is_public(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}

/// Returns the imports of a statement. An import block has one import per line.
fn imports<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    let import = |spec: Node<'t>, whole: Node<'t>| {
        let names = if source.field_text(spec, "name") == "." { vec!["*".into()] } else { Vec::new() };
        source.import(whole, source.field_text(spec, "path").trim_matches(['"', '`']), names)
    };
    if let Some(only) = child_of_kind(node, &["import_spec"]) {
        return vec![import(only, node)];
    }
    let Some(list) = child_of_kind(node, &["import_spec_list"]) else { return Vec::new() };
    let mut cursor = list.walk();
    list.named_children(&mut cursor)
        .filter(|spec| spec.kind() == "import_spec")
        .map(|spec| import(spec, spec))
        .collect()
}
