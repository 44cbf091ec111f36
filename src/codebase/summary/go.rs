//! Go.

use tree_sitter::Node;

use super::{
    Import, Kind,
    bodies::Heads,
    grammar::{Around, Found, Grammar, Sight},
    source::{Source, child_of_kind},
};
use crate::limits;

pub(super) static GRAMMAR: Grammar =
    Grammar::new(|| tree_sitter_go::LANGUAGE.into(), Heads::Word("func"), classify);

fn classify<'t>(source: &Source<'t>, node: Node<'t>, _around: &Around) -> Sight<'t> {
    let named = |kind| {
        let name = source.field(node, "name");
        Found::new(kind, name).public(is_public(name))
    };
    let body = node.child_by_field_name("body");
    match node.kind() {
        "source_file" | "var_spec_list" => Sight::Through,
        "comment" => Sight::Comment,
        "import_declaration" => Sight::Imports(imports(source, node)),
        "function_declaration" => named(Kind::Function).before(body).into(),
        "method_declaration" | "method_elem" => named(Kind::Method).before(body).into(),
        "const_declaration" | "var_declaration" | "type_declaration" => {
            let kinds = &["const_spec", "var_spec", "type_spec", "type_alias"];
            let grouped = child_of_kind(node, &["(", "var_spec_list"]).is_some();
            match child_of_kind(node, kinds).filter(|_| !grouped) {
                Some(only) => spec(source, only),
                None => Sight::Through,
            }
        }
        "const_spec" | "var_spec" | "type_spec" | "type_alias" => spec(source, node),
        "field_declaration" => field(source, node),
        "type_elem" => embedded(source.of(node)),
        _ => Sight::Closed,
    }
}

/// What a `const`, `var` or `type` declares, in a group or alone.
fn spec<'t>(source: &Source<'t>, node: Node<'t>) -> Sight<'t> {
    let mut found = names(
        source,
        node,
        match node.kind() {
            "type_spec" => Kind::Type,
            "type_alias" => Kind::Alias,
            _ => Kind::Constant,
        },
    );
    if found.kind == Kind::Constant {
        return found.until(source.value_end(node, node.child_by_field_name("value"))).into();
    }
    match node.child_by_field_name("type") {
        Some(kind) if kind.kind() == "struct_type" => {
            found.holding(child_of_kind(kind, &["field_declaration_list"])).into()
        }
        Some(kind) if kind.kind() == "interface_type" => {
            found.kind = Kind::Interface;
            found.within = Some(kind);
            found.before(child_of_kind(kind, &["{"])).into()
        }
        _ => found.into(),
    }
}

fn names<'t>(source: &Source<'t>, node: Node<'t>, kind: Kind) -> Found<'t> {
    let mut cursor = node.walk();
    let names: Vec<String> = node
        .children_by_field_name("name", &mut cursor)
        .filter(|name| name.is_named())
        .map(|name| source.of(name).to_owned())
        .collect();
    Found::several(kind, names, is_public)
}

fn field<'t>(source: &Source<'t>, node: Node<'t>) -> Sight<'t> {
    let found = names(source, node, Kind::Field);
    if found.names.is_empty() { embedded(source.field(node, "type")) } else { found.into() }
}

/// A type that stands in another without a name of its own goes by its last one.
fn embedded<'t>(text: &str) -> Sight<'t> {
    let plain = text.split('[').next().unwrap_or_default();
    let name = plain.rsplit('.').next().unwrap_or_default().trim();
    if name.is_empty() || name.len() > limits::NAME_BYTES || name.contains('\n') {
        return Sight::Closed;
    }
    Found::new(Kind::Field, name).public(is_public(name)).into()
}

fn is_public(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}

/// Of a block, one for each line of it.
fn imports<'t>(source: &Source<'t>, node: Node<'t>) -> Vec<Import> {
    let import = |spec: Node<'t>, whole: Node<'t>| {
        let names = if source.field(spec, "name") == "." { vec!["*".into()] } else { Vec::new() };
        source.import(whole, source.field(spec, "path").trim_matches(['"', '`']), names)
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
