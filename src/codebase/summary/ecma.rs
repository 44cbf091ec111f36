//! JavaScript and TypeScript.

use tree_sitter::Node;

use super::{
    Kind,
    bodies::Heads,
    ecma_modules::{self, unquoted},
    grammar::{Around, Found, Grammar, Sight},
    source::{Source, child_of_kind},
};

pub(super) static JAVASCRIPT: Grammar = grammar(|| tree_sitter_javascript::LANGUAGE.into());
pub(super) static TYPESCRIPT: Grammar = grammar(|| tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into());
pub(super) static TSX: Grammar = grammar(|| tree_sitter_typescript::LANGUAGE_TSX.into());

const fn grammar(parser: fn() -> tree_sitter::Language) -> Grammar {
    let is_doc: fn(&str) -> bool = |comment| comment.starts_with("/**");
    Grammar { is_doc, ..Grammar::new(parser, Heads::Brackets, classify) }
}

fn classify<'t>(source: &Source<'t>, node: Node<'t>, around: &Around) -> Sight<'t> {
    match node.kind() {
        "program" | "statement_block" | "hash_bang_line" => Sight::Through,
        "comment" => Sight::Comment,
        "decorator" => Sight::Attribute,
        "import_statement" => Sight::Imports(ecma_modules::imports(source, node)),
        "export_statement" => export(source, node),
        "ambient_declaration" => match child_of_kind(node, DECLARATIONS) {
            Some(declaration) => declared(source, declaration, true),
            None => Sight::Through,
        },
        "expression_statement" => match node.named_child(0) {
            Some(module) if module.kind() == "internal_module" => declared(source, module, false),
            Some(assigned) if assigned.kind() == "assignment_expression" => assignment(source, assigned),
            _ => Sight::Closed,
        },
        "variable_declarator" => declarator(source, node, false),
        kind if DECLARATIONS.contains(&kind) => declared(source, node, false),
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

fn export<'t>(source: &Source<'t>, node: Node<'t>) -> Sight<'t> {
    if node.child_by_field_name("source").is_some() {
        return Sight::Imports(ecma_modules::imports(source, node));
    }
    if let Some(declaration) = node.child_by_field_name("declaration") {
        return declared(source, declaration, true);
    }
    if let Some(clause) = child_of_kind(node, &["export_clause"]) {
        let mut cursor = clause.walk();
        let names = clause.named_children(&mut cursor).map(|one| source.field(one, "name").to_owned());
        return Sight::Exports(names.collect());
    }
    let Some(value) = node.child_by_field_name("value").or_else(|| child_of_kind(node, &["identifier"]))
    else {
        return Sight::Closed;
    };
    if value.kind() == "identifier" {
        return Sight::Exports(vec![source.of(value).to_owned()]);
    }
    valued(source, node, Found::new(Kind::Constant, "default"), Some(value))
}

/// What a declaration declares; the node it stands in may be larger.
fn declared<'t>(source: &Source<'t>, node: Node<'t>, exported: bool) -> Sight<'t> {
    let body = node.child_by_field_name("body");
    let name = match source.field(node, "name") {
        "" => "default",
        name => unquoted(name),
    };
    let named = |kind| Found::new(kind, name).public(exported);
    match node.kind() {
        "function_declaration" | "generator_function_declaration" | "function_signature" => {
            named(Kind::Function).before(body).into()
        }
        "class_declaration" | "abstract_class_declaration" => named(Kind::Type).holding(body).into(),
        "interface_declaration" => named(Kind::Interface).holding(body).into(),
        "enum_declaration" => named(Kind::Enum).holding(body).into(),
        "module" | "internal_module" => named(Kind::Module).holding(body).into(),
        "type_alias_declaration" => {
            let value = node.child_by_field_name("value").filter(|value| value.kind() == "object_type");
            named(Kind::Alias).holding(value).into()
        }
        "import_alias" => {
            let name = child_of_kind(node, &["identifier"]).map_or("", |name| source.of(name));
            Found::new(Kind::Alias, name).public(exported).into()
        }
        _ => variables(source, node, exported),
    }
}

/// `const`, `let` and `var`.
fn variables<'t>(source: &Source<'t>, node: Node<'t>, exported: bool) -> Sight<'t> {
    let mut cursor = node.walk();
    let declarators: Vec<Node<'t>> =
        node.named_children(&mut cursor).filter(|child| child.kind() == "variable_declarator").collect();
    if let [only] = declarators[..] {
        let imports = ecma_modules::required(source, node, only);
        return if imports.is_empty() { declarator(source, only, exported) } else { Sight::Imports(imports) };
    }
    if !exported {
        return Sight::Through;
    }
    let mut found = Found::new(Kind::Constant, "");
    found.names = declarators.iter().flat_map(|one| bound(source, *one)).collect();
    if found.names.is_empty() { Sight::Closed } else { found.into() }
}

fn declarator<'t>(source: &Source<'t>, node: Node<'t>, exported: bool) -> Sight<'t> {
    let mut found = Found::new(Kind::Constant, "").public(exported);
    found.names = bound(source, node);
    if found.names.is_empty() {
        return Sight::Closed;
    }
    valued(source, node, found, node.child_by_field_name("value"))
}

/// The names that a declarator gives values to.
fn bound(source: &Source<'_>, declarator: Node<'_>) -> Vec<String> {
    let Some(name) = declarator.child_by_field_name("name") else { return Vec::new() };
    if name.kind() == "identifier" {
        return vec![source.of(name).to_owned()];
    }
    let mut cursor = name.walk();
    name.named_children(&mut cursor)
        .map(|part| part.child_by_field_name("value").or(part.child_by_field_name("left")).unwrap_or(part))
        .filter(|part| matches!(part.kind(), "identifier" | "shorthand_property_identifier_pattern"))
        .map(|part| source.of(part).to_owned())
        .collect()
}

/// An item that gets a value: it is what its value is.
fn valued<'t>(
    source: &Source<'t>,
    node: Node<'t>,
    mut found: Found<'t>,
    value: Option<Node<'t>>,
) -> Sight<'t> {
    let body = value.and_then(|value| value.child_by_field_name("body"));
    match value.map_or("", |value| value.kind()) {
        "arrow_function" | "function_expression" | "generator_function" => {
            found.kind = if found.kind == Kind::Field { Kind::Method } else { Kind::Function };
            found.before(body).into()
        }
        "class" => {
            found.kind = Kind::Type;
            found.holding(body).into()
        }
        _ => {
            let end = source.value_end(node, value);
            found.until(end).into()
        }
    }
}

/// `exports.name = …`, `module.exports = …`, `Type.prototype.name = function …`.
fn assignment<'t>(source: &Source<'t>, node: Node<'t>) -> Sight<'t> {
    let (Some(left), Some(right)) = (node.child_by_field_name("left"), node.child_by_field_name("right"))
    else {
        return Sight::Closed;
    };
    let target = source.of(left);
    if target == "module.exports" {
        return ecma_modules::exported(source, right).map_or_else(
            || valued(source, node, Found::new(Kind::Constant, "exports"), Some(right)),
            Sight::Exports,
        );
    }
    let exported = target.starts_with("exports.") || target.starts_with("module.exports.");
    let function = matches!(right.kind(), "function_expression" | "arrow_function" | "generator_function");
    let name = source.field(left, "property");
    if name.is_empty() || !(exported || function) {
        return Sight::Closed;
    }
    let kind = if target.contains(".prototype.") { Kind::Field } else { Kind::Constant };
    valued(source, node, Found::new(kind, name).public(exported), Some(right))
}

/// What a class, an interface, an enum or a type made of fields holds.
fn member<'t>(source: &Source<'t>, node: Node<'t>, around: &Around) -> Sight<'t> {
    let name = match source.field(node, "name") {
        "" => source.field(node, "property"),
        name => name,
    };
    let hidden = name.starts_with('#')
        || child_of_kind(node, &["accessibility_modifier"])
            .is_some_and(|word| matches!(source.of(word), "private" | "protected"));
    let named = |kind| Found::new(kind, unquoted(name)).public(!hidden);
    match node.kind() {
        "method_definition" | "method_signature" | "abstract_method_signature" => {
            named(Kind::Method).before(node.child_by_field_name("body")).into()
        }
        "public_field_definition" | "field_definition" => {
            valued(source, node, named(Kind::Field), node.child_by_field_name("value"))
        }
        "property_signature" => named(Kind::Field).into(),
        "call_signature" => Found::new(Kind::Method, "()").into(),
        "construct_signature" => Found::new(Kind::Method, "new").into(),
        "index_signature" => Found::new(Kind::Field, "[]").into(),
        "enum_assignment" => named(Kind::Variant).into(),
        "property_identifier" | "string" if around.parent_kind() == Some(Kind::Enum) => {
            Found::new(Kind::Variant, unquoted(source.of(node))).into()
        }
        _ => Sight::Closed,
    }
}
