//! Grammar of Bash and similar shells.

use tree_sitter::Node;

use super::{
    CodeItemKind,
    bodies::FunctionSyntax,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, children_of_kind},
};

pub(super) static GRAMMAR: Grammar = Grammar {
    imports: &["command"],
    import_words: &["source ", ". "],
    ..Grammar::new(|| tree_sitter_bash::LANGUAGE.into(), FunctionSyntax::Unknown, classify)
};

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, _around: &NodeContext) -> NodeClass<'t> {
    match node.kind() {
        "program"
        | "compound_statement"
        | "if_statement"
        | "elif_clause"
        | "else_clause"
        | "case_statement"
        | "case_item"
        | "list"
        | "redirected_statement"
        | "variable_assignments" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "function_definition" => ItemDefinition::new(CodeItemKind::Function, source.field_text(node, "name"))
            .ending_before(node.child_by_field_name("body"))
            .into(),
        "command" => command(source, node),
        "declaration_command" => declaration(source, node),
        "variable_assignment" => match node.child_by_field_name("name") {
            Some(name) if is_constant(source.node_text(name)) => classify_assignments(source, node, [node]),
            _ => NodeClass::Closed,
        },
        _ => NodeClass::Closed,
    }
}

/// Returns whether a variable is a script setting by convention, which means that its name is uppercase.
fn is_constant(name: &str) -> bool {
    name.len() > 1
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Classifies declarations such as `export A=1 B=2`, `readonly A=1` and `declare -r A=1`.
fn declaration<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let text = source.node_text(node);
    let lasting = ["export", "readonly", "declare", "typeset"].iter().any(|word| text.starts_with(word));
    if !lasting {
        return NodeClass::Closed;
    }
    let assignments = children_of_kind(node, "variable_assignment");
    classify_assignments(source, node, assignments)
}

fn classify_assignments<'t>(
    source: &SourceText<'t>,
    node: Node<'t>,
    assignments: impl IntoIterator<Item = Node<'t>>,
) -> NodeClass<'t> {
    let found = source.variables(
        node,
        CodeItemKind::Constant,
        assignments
            .into_iter()
            .map(|each| (each.child_by_field_name("name"), each.child_by_field_name("value"))),
    );
    if found.names.is_empty() { NodeClass::Closed } else { found.into() }
}

/// Classifies the commands `source file`, `. file` and `alias name=…`, and `@test` of the Bats test framework.
fn command<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let mut cursor = node.walk();
    let argument = node.children_by_field_name("argument", &mut cursor).next();
    let (Some(argument), name) = (argument, source.field_text(node, "name")) else {
        return NodeClass::Closed;
    };
    match name {
        "source" | "." => {
            let module = source.node_text(argument).trim_matches(['"', '\'']);
            NodeClass::Imports(vec![source.import(node, module, Vec::new())])
        }
        "alias" => match source.node_text(argument).split_once('=') {
            Some((name, _)) if !name.is_empty() => ItemDefinition::new(CodeItemKind::Alias, name).into(),
            _ => NodeClass::Closed,
        },
        // Bats tests: `@test "description" {`.
        "@test" => {
            let description = source.node_text(argument).trim_matches(['"', '\'']);
            ItemDefinition::new(CodeItemKind::Function, description)
                .ending_at(Some(argument.end_byte()))
                .into()
        }
        _ => NodeClass::Closed,
    }
}
