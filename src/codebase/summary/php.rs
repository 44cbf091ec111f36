//! PHP.

use tree_sitter::Node;

use super::{
    CodeItemKind, Import,
    bodies::FunctionSyntax,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, child_of_kind, children_of_kind},
};
use crate::limits;

pub(super) static GRAMMAR: Grammar = Grammar {
    imports: REQUIRES,
    import_words: &["include ", "include_once", "include(", "require ", "require_once", "require("],
    is_doc: |comment| comment.starts_with("/**"),
    ..Grammar::new(|| tree_sitter_php::LANGUAGE_PHP.into(), FunctionSyntax::Word("function"), classify)
};

const REQUIRES: &[&str] =
    &["include_expression", "include_once_expression", "require_expression", "require_once_expression"];

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let public = || {
        let visibility = child_of_kind(node, &["visibility_modifier"]).map_or("", |said| source.of(said));
        around.public && !visibility.eq_ignore_ascii_case("private")
    };
    let body = node.child_by_field_name("body");
    let named = |kind| ItemDefinition::new(kind, source.field(node, "name")).public(public());
    match node.kind() {
        "program"
        | "if_statement"
        | "else_clause"
        | "else_if_clause"
        | "compound_statement"
        | "colon_block"
        | "expression_statement" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "namespace_use_declaration" => NodeClass::Imports(uses(source, node)),
        kind if REQUIRES.contains(&kind) => NodeClass::Imports(required(source, node)),
        "namespace_definition" => named(CodeItemKind::Module).holding(body).into(),
        "class_declaration" => named(CodeItemKind::Type).holding(body).into(),
        "interface_declaration" | "trait_declaration" => named(CodeItemKind::Interface).holding(body).into(),
        "enum_declaration" => named(CodeItemKind::Enum).holding(body).into(),
        "enum_case" => named(CodeItemKind::Variant).into(),
        "function_definition" => named(CodeItemKind::Function).before(body).into(),
        "method_declaration" => named(CodeItemKind::Method).before(body).into(),
        "property_declaration" => properties(source, node).public(public()).into(),
        "const_declaration" => {
            let elements = children_of_kind(node, "const_element")
                .into_iter()
                .map(|element| (element.named_child(0), element.named_child(1)));
            source.variables(node, CodeItemKind::Constant, elements).public(public()).into()
        }
        "function_call_expression" => defined(source, node),
        _ => NodeClass::Closed,
    }
}

fn properties<'t>(source: &SourceText<'t>, node: Node<'t>) -> ItemDefinition<'t> {
    let elements = children_of_kind(node, "property_element").into_iter().map(|element| {
        let name = element.child_by_field_name("name").and_then(|name| child_of_kind(name, &["name"]));
        (name, element.child_by_field_name("default_value"))
    });
    source.variables(node, CodeItemKind::Field, elements).before(child_of_kind(node, &["property_hook_list"]))
}

/// `define('NAME', …)`
fn defined<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let arguments = node.child_by_field_name("arguments");
    let (true, Some(arguments)) = (source.field(node, "function").eq_ignore_ascii_case("define"), arguments)
    else {
        return NodeClass::Closed;
    };
    let name = arguments.named_child(0).map_or("", |name| source.of(name)).trim_matches(['"', '\'']);
    if name.is_empty() || name.contains('$') {
        return NodeClass::Closed;
    }
    ItemDefinition::new(CodeItemKind::Constant, name)
        .until(source.value_end(node, arguments.named_child(1)))
        .into()
}

/// `require __DIR__.'/a.php'`: the path, if it is said in one piece.
fn required<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    let Some(path) = node.named_child(0) else { return Vec::new() };
    let text = source.of(path);
    let piece = |text: &str| text.trim_start_matches([' ', '.']).trim_matches(['"', '\'']).to_owned();
    let module = match text.strip_prefix("__DIR__") {
        Some(rest) => format!(".{}", piece(rest)),
        None => piece(text),
    };
    vec![source.import(node, &module, Vec::new())]
}

/// A `use` with its braces taken apart.
fn uses<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    if source.of(node).len() > limits::IMPORT_BYTES {
        return Vec::new();
    }
    let group = node.child_by_field_name("body");
    let prefix = group.and_then(|_| child_of_kind(node, &["namespace_name"])).map(|name| source.of(name));
    let says_what = |node| child_of_kind(node, &["function", "const"]).is_some();
    let all_functions = says_what(node);
    children_of_kind(group.unwrap_or(node), "namespace_use_clause")
        .into_iter()
        .filter_map(|clause| {
            let of_functions = all_functions || says_what(clause);
            let path = source.of(child_of_kind(clause, &["qualified_name", "name"])?);
            let whole = prefix.map_or(path.to_owned(), |prefix| format!("{prefix}\\{path}"));
            let whole = whole.trim_start_matches('\\');
            let (space, name) = whole.rsplit_once('\\').unwrap_or(("", whole));
            // A class is found by its whole name, a function or constant in its namespace.
            let module = if of_functions && !space.is_empty() { space } else { whole };
            Some(source.import(node, module, vec![name.to_owned()]))
        })
        .collect()
}
