//! Grammars of JavaScript and TypeScript.

use tree_sitter::Node;

use super::{
    CodeItemKind,
    bodies::FunctionSyntax,
    ecma_modules::{self, unquote},
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, child_of_kind},
};

pub(super) static JAVASCRIPT: Grammar = grammar(|| tree_sitter_javascript::LANGUAGE.into());
pub(super) static TYPESCRIPT: Grammar = grammar(|| tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into());
pub(super) static TSX: Grammar = grammar(|| tree_sitter_typescript::LANGUAGE_TSX.into());

const fn grammar(parser: fn() -> tree_sitter::Language) -> Grammar {
    let is_doc: fn(&str) -> bool = |comment| comment.starts_with("/**");
    Grammar { is_doc, ..Grammar::new(parser, FunctionSyntax::Brackets, classify) }
}

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    match node.kind() {
        "program" | "statement_block" | "hash_bang_line" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "decorator" => NodeClass::Attribute,
        "import_statement" => NodeClass::Imports(ecma_modules::imports(source, node)),
        "export_statement" => export(source, node),
        "ambient_declaration" => match child_of_kind(node, DECLARATIONS) {
            Some(declaration) => classify_declaration(source, declaration, true),
            None => NodeClass::Through,
        },
        "expression_statement" => match node.named_child(0) {
            Some(module) if module.kind() == "internal_module" => classify_declaration(source, module, false),
            Some(assigned) if assigned.kind() == "assignment_expression" => assignment(source, assigned),
            _ => NodeClass::Closed,
        },
        "variable_declarator" => declarator(source, node, false),
        kind if DECLARATIONS.contains(&kind) => classify_declaration(source, node, false),
        _ => member(source, node, around),
    }
}

const DECLARATIONS: &[&str] = &[
    "function_declaration",
    "generator_function_declaration",
    "function_signature",
    "class_declaration",
    "abstract_class_declaration",
    "interface_declaration",
    "type_alias_declaration",
    "enum_declaration",
    "lexical_declaration",
    "variable_declaration",
    "module",
    "internal_module",
    "import_alias",
];

fn export<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    if node.child_by_field_name("source").is_some() {
        return NodeClass::Imports(ecma_modules::imports(source, node));
    }
    if let Some(declaration) = node.child_by_field_name("declaration") {
        return classify_declaration(source, declaration, true);
    }
    if let Some(clause) = child_of_kind(node, &["export_clause"]) {
        let mut cursor = clause.walk();
        let names = clause.named_children(&mut cursor).map(|one| source.field_text(one, "name").to_owned());
        return NodeClass::Exports(names.collect());
    }
    let Some(value) = node.child_by_field_name("value").or_else(|| child_of_kind(node, &["identifier"]))
    else {
        return NodeClass::Closed;
    };
    if value.kind() == "identifier" {
        return NodeClass::Exports(vec![source.node_text(value).to_owned()]);
    }
    classify_value(source, node, ItemDefinition::new(CodeItemKind::Constant, "default"), Some(value))
}

/// Classifies a declaration. The declaration may be inside another node, such as an export.
fn classify_declaration<'t>(source: &SourceText<'t>, node: Node<'t>, exported: bool) -> NodeClass<'t> {
    let body = node.child_by_field_name("body");
    let name = match source.field_text(node, "name") {
        "" => "default",
        name => unquote(name),
    };
    let named = |kind| ItemDefinition::new(kind, name).with_public(exported);
    match node.kind() {
        "function_declaration" | "generator_function_declaration" | "function_signature" => {
            named(CodeItemKind::Function).ending_before(body).into()
        }
        "class_declaration" | "abstract_class_declaration" => {
            named(CodeItemKind::Type).with_body(body).into()
        }
        "interface_declaration" => named(CodeItemKind::Interface).with_body(body).into(),
        "enum_declaration" => named(CodeItemKind::Enum).with_body(body).into(),
        "module" | "internal_module" => named(CodeItemKind::Module).with_body(body).into(),
        "type_alias_declaration" => {
            let value = node.child_by_field_name("value").filter(|value| value.kind() == "object_type");
            named(CodeItemKind::Alias).with_body(value).into()
        }
        "import_alias" => {
            let name = child_of_kind(node, &["identifier"]).map_or("", |name| source.node_text(name));
            ItemDefinition::new(CodeItemKind::Alias, name).with_public(exported).into()
        }
        _ => variables(source, node, exported),
    }
}

fn variables<'t>(source: &SourceText<'t>, node: Node<'t>, exported: bool) -> NodeClass<'t> {
    let mut cursor = node.walk();
    let declarators: Vec<Node<'t>> =
        node.named_children(&mut cursor).filter(|child| child.kind() == "variable_declarator").collect();
    if let [only] = declarators[..] {
        let imports = ecma_modules::require_imports(source, node, only);
        return if imports.is_empty() {
            declarator(source, only, exported)
        } else {
            NodeClass::Imports(imports)
        };
    }
    if !exported {
        return NodeClass::Through;
    }
    let mut found = ItemDefinition::new(CodeItemKind::Constant, "");
    found.names = declarators.iter().flat_map(|one| bound_names(source, *one)).collect();
    if found.names.is_empty() { NodeClass::Closed } else { found.into() }
}

fn declarator<'t>(source: &SourceText<'t>, node: Node<'t>, exported: bool) -> NodeClass<'t> {
    let mut found = ItemDefinition::new(CodeItemKind::Constant, "").with_public(exported);
    found.names = bound_names(source, node);
    if found.names.is_empty() {
        return NodeClass::Closed;
    }
    classify_value(source, node, found, node.child_by_field_name("value"))
}

/// Returns the names that a declarator binds.
fn bound_names(source: &SourceText<'_>, declarator: Node<'_>) -> Vec<String> {
    let Some(name) = declarator.child_by_field_name("name") else { return Vec::new() };
    if name.kind() == "identifier" {
        return vec![source.node_text(name).to_owned()];
    }
    let mut cursor = name.walk();
    name.named_children(&mut cursor)
        .map(|part| part.child_by_field_name("value").or(part.child_by_field_name("left")).unwrap_or(part))
        .filter(|part| matches!(part.kind(), "identifier" | "shorthand_property_identifier_pattern"))
        .map(|part| source.node_text(part).to_owned())
        .collect()
}

/// Classifies a variable by its value: a function, a class, or otherwise a constant or field.
fn classify_value<'t>(
    source: &SourceText<'t>,
    node: Node<'t>,
    mut found: ItemDefinition<'t>,
    value: Option<Node<'t>>,
) -> NodeClass<'t> {
    let body = value.and_then(|value| value.child_by_field_name("body"));
    match value.map_or("", |value| value.kind()) {
        "arrow_function" | "function_expression" | "generator_function" => {
            found.kind =
                if found.kind == CodeItemKind::Field { CodeItemKind::Method } else { CodeItemKind::Function };
            found.ending_before(body).into()
        }
        "class" => {
            found.kind = CodeItemKind::Type;
            found.with_body(body).into()
        }
        _ => {
            let end = source.value_end(node, value);
            found.ending_at(end).into()
        }
    }
}

/// Classifies assignments of the form `exports.name = …`, `module.exports = …` and `Type.prototype.name = function …`.
fn assignment<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right"))
    else {
        return NodeClass::Closed;
    };
    let target = source.node_text(left);
    if target == "module.exports" {
        return ecma_modules::exported_names(source, right).map_or_else(
            || {
                classify_value(
                    source,
                    node,
                    ItemDefinition::new(CodeItemKind::Constant, "exports"),
                    Some(right),
                )
            },
            NodeClass::Exports,
        );
    }
    let exported = target.starts_with("exports.") || target.starts_with("module.exports.");
    let function = matches!(right.kind(), "function_expression" | "arrow_function" | "generator_function");
    let name = source.field_text(left, "property");
    if name.is_empty() || !(exported || function) {
        return NodeClass::Closed;
    }
    let kind = if target.contains(".prototype.") { CodeItemKind::Field } else { CodeItemKind::Constant };
    classify_value(source, node, ItemDefinition::new(kind, name).with_public(exported), Some(right))
}

/// Classifies a member of a class, interface, enum or object type.
fn member<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let name = match source.field_text(node, "name") {
        "" => source.field_text(node, "property"),
        name => name,
    };
    let hidden = name.starts_with('#')
        || child_of_kind(node, &["accessibility_modifier"])
            .is_some_and(|word| matches!(source.node_text(word), "private" | "protected"));
    let named = |kind| ItemDefinition::new(kind, unquote(name)).with_public(!hidden);
    match node.kind() {
        "method_definition" | "method_signature" | "abstract_method_signature" => {
            named(CodeItemKind::Method).ending_before(node.child_by_field_name("body")).into()
        }
        "public_field_definition" | "field_definition" => {
            classify_value(source, node, named(CodeItemKind::Field), node.child_by_field_name("value"))
        }
        "property_signature" => named(CodeItemKind::Field).into(),
        "call_signature" => ItemDefinition::new(CodeItemKind::Method, "()").into(),
        "construct_signature" => ItemDefinition::new(CodeItemKind::Method, "new").into(),
        "index_signature" => ItemDefinition::new(CodeItemKind::Field, "[]").into(),
        "enum_assignment" => named(CodeItemKind::Variant).into(),
        "property_identifier" | "string" if around.parent_kind() == Some(CodeItemKind::Enum) => {
            ItemDefinition::new(CodeItemKind::Variant, unquote(source.node_text(node))).into()
        }
        _ => NodeClass::Closed,
    }
}
