//! Grammar of Python.

use tree_sitter::Node;

use super::{
    CodeItemKind, Import,
    bodies::FunctionSyntax,
    doc,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, child_of_kind},
};
use crate::limits;

pub(super) static GRAMMAR: Grammar = Grammar {
    imports: &["import_statement", "import_from_statement", "future_import_statement"],
    import_words: &["import "],
    is_doc: |comment| comment.starts_with("#:"),
    file_doc: |source, root| docstring(source, Some(root)),
    ..Grammar::new(|| tree_sitter_python::LANGUAGE.into(), FunctionSyntax::Python, classify)
};

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    match node.kind() {
        "if_statement" if source.field_text(node, "condition").contains("__name__") => NodeClass::Closed,
        "module" | "block" | "if_statement" | "elif_clause" | "else_clause" | "try_statement"
        | "except_clause" | "finally_clause" | "with_statement" => NodeClass::Through,
        "comment" => NodeClass::Comment,
        "import_statement" | "import_from_statement" | "future_import_statement" => {
            NodeClass::Imports(imports(source, node))
        }
        "decorated_definition" => node
            .child_by_field_name("definition")
            .map_or(NodeClass::Closed, |definition| classify_definition(source, definition, around)),
        "function_definition" | "class_definition" => classify_definition(source, node, around),
        "expression_statement" => node
            .named_child(0)
            .filter(|only| only.kind() == "assignment")
            .map_or(NodeClass::Closed, |only| assignment(source, only, around)),
        "type_alias_statement" => {
            let name = source.field_text(node, "left").split('[').next().unwrap_or_default().trim_end();
            ItemDefinition::new(CodeItemKind::Alias, name).with_public(is_public(name)).into()
        }
        _ => NodeClass::Closed,
    }
}

fn classify_definition<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let name = source.field_text(node, "name");
    let body = node.child_by_field_name("body");
    // The colon of the header; colons of parameters are nested deeper.
    let colon = child_of_kind(node, &[":"]);
    let class = node.kind() == "class_definition";
    let kind =
        if class { class_kind(source.field_text(node, "superclasses")) } else { around.function_kind() };
    let mut found = ItemDefinition::new(kind, name)
        .with_public(is_public(name))
        .ending_before(colon)
        .with_doc(docstring(source, body));
    found.within = body.filter(|_| class);
    found.into()
}

fn class_kind(bases: &str) -> CodeItemKind {
    let base = |wanted: fn(&str) -> bool| {
        bases.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).any(wanted)
    };
    if base(|word| matches!(word, "Enum" | "IntEnum" | "StrEnum" | "Flag" | "IntFlag" | "TextChoices")) {
        CodeItemKind::Enum
    } else if base(|word| matches!(word, "Protocol" | "ABC" | "ABCMeta")) {
        CodeItemKind::Interface
    } else {
        CodeItemKind::Type
    }
}

/// Classifies an assignment as a module variable, a field of a class, or a variant of an enum.
fn assignment<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let Some(left) = node.child_by_field_name("left") else { return NodeClass::Closed };
    let mut cursor = left.walk();
    let names: Vec<String> = match left.kind() {
        "identifier" => vec![source.node_text(left).to_owned()],
        "pattern_list" | "tuple_pattern" => left
            .named_children(&mut cursor)
            .filter(|part| part.kind() == "identifier")
            .map(|part| source.node_text(part).to_owned())
            .collect(),
        _ => Vec::new(),
    };
    let Some(first) = names.first() else { return NodeClass::Closed };
    let typed = node.child_by_field_name("type").is_some();
    let kind = match around.parent_kind() {
        None | Some(CodeItemKind::Module) => CodeItemKind::Constant,
        Some(CodeItemKind::Enum) if !typed && !first.starts_with('_') => CodeItemKind::Variant,
        Some(_) => CodeItemKind::Field,
    };
    let end = source.value_end(node, node.child_by_field_name("right"));
    ItemDefinition::with_names(kind, names, is_public).ending_at(end).into()
}

/// Returns whether a name is public. A name is public if it has no leading underscore or is a `__dunder__` name.
fn is_public(name: &str) -> bool {
    !name.starts_with('_') || (name.starts_with("__") && name.ends_with("__"))
}

/// Returns the first sentence of the docstring in a body.
fn docstring<'t>(source: &SourceText<'t>, body: Option<Node<'t>>) -> Option<String> {
    let body = body?;
    let mut cursor = body.walk();
    let first = body.named_children(&mut cursor).find(|node| node.kind() != "comment")?;
    let string = first.named_child(0).filter(|_| first.kind() == "expression_statement")?;
    let content = child_of_kind(string, &["string_content"]).filter(|_| string.kind() == "string")?;
    doc::doc_from_text(source.node_text(content))
}

fn imports<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    if source.node_text(node).len() > limits::IMPORT_BYTES {
        return Vec::new();
    }
    let mut cursor = node.walk();
    let mut names: Vec<String> = node
        .children_by_field_name("name", &mut cursor)
        .map(|name| name.child_by_field_name("name").unwrap_or(name))
        .map(|name| source.node_text(name).to_owned())
        .collect();
    if child_of_kind(node, &["wildcard_import"]).is_some() {
        names.push("*".into());
    }
    match node.kind() {
        "import_statement" => names.iter().map(|module| source.import(node, module, Vec::new())).collect(),
        "future_import_statement" => vec![source.import(node, "__future__", names)],
        _ => vec![source.import(node, source.field_text(node, "module_name"), names)],
    }
}
