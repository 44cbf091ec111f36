//! Grammar of PHP.

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
        let visibility =
            child_of_kind(node, &["visibility_modifier"]).map_or("", |modifier| source.node_text(modifier));
        around.public && !visibility.eq_ignore_ascii_case("private")
    };
    let body = node.child_by_field_name("body");
    let named = |kind| ItemDefinition::new(kind, source.field_text(node, "name")).with_public(public());
    match node.kind() {
        "program"
        | "if_statement"
        | "else_clause"
        | "else_if_clause"
        | "compound_statement"
        | "colon_block"
        | "expression_statement" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "namespace_use_declaration" => NodeClass::Imports(use_imports(source, node)),
        kind if REQUIRES.contains(&kind) => NodeClass::Imports(require_imports(source, node)),
        "namespace_definition" => named(CodeItemKind::Module).with_body(body).into(),
        "class_declaration" => named(CodeItemKind::Type).with_body(body).into(),
        "interface_declaration" | "trait_declaration" => {
            named(CodeItemKind::Interface).with_body(body).into()
        }
        "enum_declaration" => named(CodeItemKind::Enum).with_body(body).into(),
        "enum_case" => named(CodeItemKind::Variant).into(),
        "function_definition" => named(CodeItemKind::Function).ending_before(body).into(),
        "method_declaration" => named(CodeItemKind::Method).ending_before(body).into(),
        "property_declaration" => properties(source, node).with_public(public()).into(),
        "const_declaration" => {
            let elements = children_of_kind(node, "const_element")
                .into_iter()
                .map(|element| (element.named_child(0), element.named_child(1)));
            source.variables(node, CodeItemKind::Constant, elements).with_public(public()).into()
        }
        "function_call_expression" => classify_define(source, node),
        _ => NodeClass::Closed,
    }
}

fn properties<'t>(source: &SourceText<'t>, node: Node<'t>) -> ItemDefinition<'t> {
    let elements = children_of_kind(node, "property_element").into_iter().map(|element| {
        let name = element.child_by_field_name("name").and_then(|name| child_of_kind(name, &["name"]));
        (name, element.child_by_field_name("default_value"))
    });
    source
        .variables(node, CodeItemKind::Field, elements)
        .ending_before(child_of_kind(node, &["property_hook_list"]))
}

/// Classifies calls of the form `define('NAME', …)`.
fn classify_define<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let arguments = node.child_by_field_name("arguments");
    let (true, Some(arguments)) =
        (source.field_text(node, "function").eq_ignore_ascii_case("define"), arguments)
    else {
        return NodeClass::Closed;
    };
    let name = arguments.named_child(0).map_or("", |name| source.node_text(name)).trim_matches(['"', '\'']);
    if name.is_empty() || name.contains('$') {
        return NodeClass::Closed;
    }
    ItemDefinition::new(CodeItemKind::Constant, name)
        .ending_at(source.value_end(node, arguments.named_child(1)))
        .into()
}

/// Reads a statement such as `require __DIR__.'/a.php'`. If the path is a single string literal, that path becomes the
/// module.
fn require_imports<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    let Some(path) = node.named_child(0) else { return Vec::new() };
    let text = source.node_text(path);
    let piece = |text: &str| text.trim_start_matches([' ', '.']).trim_matches(['"', '\'']).to_owned();
    let module = match text.strip_prefix("__DIR__") {
        Some(rest) => format!(".{}", piece(rest)),
        None => piece(text),
    };
    vec![source.import(node, &module, Vec::new())]
}

/// Reads a `use` statement. A group in braces is expanded to one import per name.
fn use_imports<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    if source.node_text(node).len() > limits::IMPORT_BYTES {
        return Vec::new();
    }
    let group = node.child_by_field_name("body");
    let prefix =
        group.and_then(|_| child_of_kind(node, &["namespace_name"])).map(|name| source.node_text(name));
    let says_what = |node| child_of_kind(node, &["function", "const"]).is_some();
    let all_functions = says_what(node);
    children_of_kind(group.unwrap_or(node), "namespace_use_clause")
        .into_iter()
        .filter_map(|clause| {
            let of_functions = all_functions || says_what(clause);
            let path = source.node_text(child_of_kind(clause, &["qualified_name", "name"])?);
            let whole = prefix.map_or(path.to_owned(), |prefix| format!("{prefix}\\{path}"));
            let whole = whole.trim_start_matches('\\');
            let (space, name) = whole.rsplit_once('\\').unwrap_or(("", whole));
            // A class is found by its full name, a function or constant in its namespace.
            let module = if of_functions && !space.is_empty() { space } else { whole };
            Some(source.import(node, module, vec![name.to_owned()]))
        })
        .collect()
}
