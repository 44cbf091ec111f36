//! Grammar of Ruby.

use tree_sitter::Node;

use super::{
    CodeItemKind,
    bodies::FunctionSyntax,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::SourceText,
};

pub(super) static GRAMMAR: Grammar = Grammar {
    imports: &["call"],
    import_words: &["require", "autoload"],
    ..Grammar::new(|| tree_sitter_ruby::LANGUAGE.into(), FunctionSyntax::Ruby, classify)
};

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    match node.kind() {
        "program" | "body_statement" | "block_body" | "if" | "unless" | "else" | "elsif" | "then"
        | "begin" | "rescue" | "ensure" | "if_modifier" | "unless_modifier" | "do_block" => {
            NodeClass::Through
        }
        "comment" => NodeClass::Comment,
        "module" => holder(source, node, CodeItemKind::Module, "name", around).into(),
        "class" => holder(source, node, CodeItemKind::Type, "name", around).into(),
        "singleton_class" => holder(source, node, CodeItemKind::Extension, "value", around).into(),
        "method" | "singleton_method" => {
            // `private` sections apply to instance methods only.
            let public = around.public && (around.section || node.kind() == "singleton_method");
            method(source, node, around).with_public(public).into()
        }
        "alias" => ItemDefinition::new(CodeItemKind::Method, symbol(source.field_text(node, "name")))
            .with_public(around.public)
            .into(),
        "assignment" => constant(source, node),
        "identifier" => section(source.node_text(node)),
        "call" => call(source, node, around),
        _ => NodeClass::Closed,
    }
}

/// Classifies a class or module. The children, and any comments above the first child, are between the first line and
/// `end`.
fn holder<'t>(
    source: &SourceText<'t>,
    node: Node<'t>,
    kind: CodeItemKind,
    field: &str,
    around: &NodeContext,
) -> ItemDefinition<'t> {
    let name = node.child_by_field_name(field);
    let head = node.child_by_field_name("superclass").or(name);
    let mut found = ItemDefinition::new(kind, name.map_or("", |name| source.node_text(name)))
        .with_public(around.public)
        .ending_at(head.map(|head| head.end_byte()));
    found.within = Some(node);
    found
}

fn method<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> ItemDefinition<'t> {
    let name = node.child_by_field_name("name");
    let head = node.child_by_field_name("parameters").or(name);
    ItemDefinition::new(method_kind(around), name.map_or("", |name| source.node_text(name)))
        .ending_at(head.map(|head| head.end_byte()))
}

fn method_kind(around: &NodeContext) -> CodeItemKind {
    if around.parent.is_some() { CodeItemKind::Method } else { CodeItemKind::Function }
}

/// Classifies assignments of the form `NAME = …` and `Name = Struct.new(…) do`.
fn constant<'t>(source: &SourceText<'t>, node: Node<'t>) -> NodeClass<'t> {
    let Some(name) = node.child_by_field_name("left").filter(|left| left.kind() == "constant") else {
        return NodeClass::Closed;
    };
    let right = node.child_by_field_name("right");
    let block = right.and_then(|call| call.child_by_field_name("block"));
    let makes_type = right.is_some_and(|call| {
        matches!(
            (source.field_text(call, "receiver"), source.field_text(call, "method")),
            ("Struct" | "Class", "new") | ("Data", "define")
        )
    });
    if makes_type {
        return ItemDefinition::new(CodeItemKind::Type, source.node_text(name)).with_body(block).into();
    }
    ItemDefinition::new(CodeItemKind::Constant, source.node_text(name))
        .ending_at(source.value_end(node, right))
        .into()
}

/// Classifies a visibility keyword, such as `private`, that stands on its own line.
fn section<'t>(word: &str) -> NodeClass<'t> {
    match word {
        "private" | "protected" => NodeClass::Section(false),
        "public" | "module_function" => NodeClass::Section(true),
        _ => NodeClass::Closed,
    }
}

/// Classifies a call that defines something by convention, such as `attr_reader` or `require`.
fn call<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let word = source.field_text(node, "method");
    if node.child_by_field_name("receiver").is_some() {
        return NodeClass::Closed;
    }
    let arguments = node.child_by_field_name("arguments");
    let first = arguments.and_then(|arguments| arguments.named_child(0));
    let path = first.filter(|_| word != "autoload").or(arguments.and_then(|all| all.named_child(1)));
    match (word, first) {
        ("require" | "require_relative" | "load" | "autoload", Some(_)) if let Some(path) = path => {
            NodeClass::Imports(vec![source.import(node, symbol(source.node_text(path)), Vec::new())])
        }
        ("attr_accessor" | "attr_reader" | "attr_writer" | "attr", Some(_)) => {
            let mut found =
                ItemDefinition::new(CodeItemKind::Field, "").with_public(around.public && around.section);
            found.names = symbols(source, arguments);
            if found.names.is_empty() { NodeClass::Closed } else { found.into() }
        }
        ("alias_method" | "define_method" | "define_singleton_method", Some(first)) if is_symbol(first) => {
            ItemDefinition::new(CodeItemKind::Method, symbol(source.node_text(first)))
                .with_public(around.public && around.section)
                .ending_at(arguments.map(|arguments| arguments.end_byte()))
                .into()
        }
        (
            "private" | "protected" | "public" | "private_class_method" | "memoize" | "module_function",
            Some(first),
        ) if matches!(first.kind(), "method" | "singleton_method") => {
            let hides = matches!(word, "private" | "protected" | "private_class_method");
            method(source, first, around).with_public(around.public && !hides).into()
        }
        ("private" | "protected" | "private_class_method" | "private_constant", Some(_)) => {
            NodeClass::Hides(symbols(source, arguments))
        }
        ("included" | "class_methods" | "class_eval" | "module_eval" | "refine" | "namespace", _) => {
            NodeClass::Through
        }
        _ => NodeClass::Closed,
    }
}

fn is_symbol(node: Node<'_>) -> bool {
    matches!(node.kind(), "simple_symbol" | "string")
}

fn symbols<'t>(source: &SourceText<'t>, arguments: Option<Node<'t>>) -> Vec<String> {
    let Some(arguments) = arguments else { return Vec::new() };
    let mut cursor = arguments.walk();
    let symbols = arguments.named_children(&mut cursor).filter(|node| is_symbol(*node));
    symbols.map(|node| symbol(source.node_text(node)).to_owned()).collect()
}

/// Removes the colon or the quotes from a symbol or string.
fn symbol(text: &str) -> &str {
    text.trim_start_matches(':').trim_matches(['"', '\''])
}
