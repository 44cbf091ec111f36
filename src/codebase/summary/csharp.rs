//! Grammar of C#.

use tree_sitter::Node;

use super::{
    CodeItemKind, Import,
    bodies::FunctionSyntax,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, child_of_kind, children_of_kind},
};

pub(super) static GRAMMAR: Grammar = Grammar {
    is_doc: |comment| comment.starts_with("///") || comment.starts_with("/**"),
    ..Grammar::new(|| tree_sitter_c_sharp::LANGUAGE.into(), FunctionSyntax::Brackets, classify)
};

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let body = node.child_by_field_name("body");
    let called =
        |kind, name: String| ItemDefinition::new(kind, name).with_public(is_public(source, node, around));
    let named = |kind| called(kind, source.field_text(node, "name").to_owned());
    match node.kind() {
        "compilation_unit"
        | "preproc_if"
        | "preproc_elif"
        | "preproc_else"
        | "global_statement"
        | "declaration_list"
        | "enum_member_declaration_list" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "using_directive" => NodeClass::Imports(import(source, node)),
        "namespace_declaration" => named(CodeItemKind::Module).with_body(body).into(),
        "file_scoped_namespace_declaration" => named(CodeItemKind::Module).into(),
        "class_declaration" | "struct_declaration" | "record_declaration" => {
            named(CodeItemKind::Type).with_body(body).into()
        }
        "interface_declaration" => named(CodeItemKind::Interface).with_body(body).into(),
        "enum_declaration" => named(CodeItemKind::Enum).with_body(body).into(),
        "enum_member_declaration" => named(CodeItemKind::Variant).into(),
        "delegate_declaration" => named(CodeItemKind::Type).into(),
        "method_declaration" | "constructor_declaration" => {
            named(CodeItemKind::Method).ending_before(body).into()
        }
        "local_function_statement" => named(CodeItemKind::Function).ending_before(body).into(),
        "destructor_declaration" => {
            called(CodeItemKind::Method, format!("~{}", source.field_text(node, "name")))
                .ending_before(body)
                .into()
        }
        "operator_declaration" => {
            called(CodeItemKind::Method, format!("operator {}", source.field_text(node, "operator")))
                .ending_before(body)
                .into()
        }
        "conversion_operator_declaration" => {
            called(CodeItemKind::Method, format!("operator {}", source.field_text(node, "type")))
                .ending_before(body)
                .into()
        }
        "property_declaration" | "event_declaration" => {
            named(CodeItemKind::Field).ending_at(accessors_end(source, node)).into()
        }
        "indexer_declaration" => {
            called(CodeItemKind::Method, "this".to_owned()).ending_at(accessors_end(source, node)).into()
        }
        "field_declaration" | "event_field_declaration" => fields(source, node, around),
        _ => NodeClass::Closed,
    }
}

/// Returns whether an item is public. Without a modifier, members of classes and structs are private; types, and
/// members of interfaces and enums, are public.
fn is_public<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> bool {
    let has_modifier = |words: &[&str]| {
        children_of_kind(node, "modifier")
            .into_iter()
            .any(|modifier| words.contains(&source.node_text(modifier)))
    };
    let explicit = child_of_kind(node, &["explicit_interface_specifier"]).is_some();
    let open = match around.parent_kind() {
        Some(CodeItemKind::Type) => explicit,
        _ => !has_modifier(&["private", "file"]),
    };
    around.public && (open || has_modifier(&["public", "protected", "internal"]))
}

/// Returns the end of a property's signature; `None` if the signature ends with the node. Accessors without bodies,
/// such as `{ get; private set; }`, are part of the signature.
fn accessors_end<'t>(source: &SourceText<'t>, node: Node<'t>) -> Option<usize> {
    let value = node.child_by_field_name("value");
    let Some(accessors) = node.child_by_field_name("accessors") else {
        return value.map(|value| value.start_byte());
    };
    let has_body = |accessor: Node<'_>| accessor.child_by_field_name("body").is_some();
    if children_of_kind(accessors, "accessor_declaration").into_iter().any(has_body) {
        return Some(accessors.start_byte());
    }
    source.value_end(node, value)
}

fn fields<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let Some(declaration) = child_of_kind(node, &["variable_declaration"]) else {
        return NodeClass::Closed;
    };
    let constant = children_of_kind(node, "modifier")
        .into_iter()
        .any(|modifier| source.node_text(modifier) == "const")
        || ["static", "readonly"].iter().all(|word| {
            children_of_kind(node, "modifier").into_iter().any(|modifier| source.node_text(modifier) == *word)
        });
    let declarators = children_of_kind(declaration, "variable_declarator").into_iter().map(|declarator| {
        let name = declarator.child_by_field_name("name");
        let last = u32::try_from(declarator.named_child_count()).unwrap_or(0).saturating_sub(1);
        let value = declarator.named_child(last);
        (name, value.filter(|value| Some(*value) != name && value.kind() != "bracketed_argument_list"))
    });
    let kind = if constant { CodeItemKind::Constant } else { CodeItemKind::Field };
    source.variables(node, kind, declarators).with_public(is_public(source, node, around)).into()
}

/// Reads directives such as `using A.B;`, `using static A.B;` and `using Name = A.B;`.
fn import<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    let alias = node.child_by_field_name("name");
    let mut cursor = node.walk();
    let Some(module) = node.named_children(&mut cursor).filter(|child| Some(*child) != alias).last() else {
        return Vec::new();
    };
    let names = child_of_kind(node, &["static"]).map(|_| "*".to_owned()).into_iter().collect();
    vec![source.import(node, source.node_text(module), names)]
}
