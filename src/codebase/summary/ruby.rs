//! Ruby.

use tree_sitter::Node;

use super::{
    Kind,
    bodies::Heads,
    grammar::{Around, Found, Grammar, Sight},
    source::Source,
};

pub(super) static GRAMMAR: Grammar = Grammar {
    imports: &["call"],
    import_words: &["require", "autoload"],
    ..Grammar::new(|| tree_sitter_ruby::LANGUAGE.into(), Heads::Ruby, classify)
};

fn classify<'t>(source: &Source<'t>, node: Node<'t>, around: &Around) -> Sight<'t> {
    match node.kind() {
        "program" | "body_statement" | "block_body" | "if" | "unless" | "else" | "elsif" | "then"
        | "begin" | "rescue" | "ensure" | "if_modifier" | "unless_modifier" | "do_block" => Sight::Through,
        "comment" => Sight::Comment,
        "module" => holder(source, node, Kind::Module, "name", around).into(),
        "class" => holder(source, node, Kind::Type, "name", around).into(),
        "singleton_class" => holder(source, node, Kind::Extension, "value", around).into(),
        "method" | "singleton_method" => {
            // Sections hide the methods of instances only.
            let public = around.public && (around.section || node.kind() == "singleton_method");
            method(source, node, around).public(public).into()
        }
        "alias" => Found::new(Kind::Method, symbol(source.field(node, "name"))).public(around.public).into(),
        "assignment" => constant(source, node),
        "identifier" => section(source.of(node)),
        "call" => call(source, node, around),
        _ => Sight::Closed,
    }
}

/// What holds its members between its first line and its `end`: comments above the first of them too.
fn holder<'t>(source: &Source<'t>, node: Node<'t>, kind: Kind, field: &str, around: &Around) -> Found<'t> {
    let name = node.child_by_field_name(field);
    let head = node.child_by_field_name("superclass").or(name);
    let mut found = Found::new(kind, name.map_or("", |name| source.of(name)))
        .public(around.public)
        .until(head.map(|head| head.end_byte()));
    found.within = Some(node);
    found
}

fn method<'t>(source: &Source<'t>, node: Node<'t>, around: &Around) -> Found<'t> {
    let name = node.child_by_field_name("name");
    let head = node.child_by_field_name("parameters").or(name);
    Found::new(method_kind(around), name.map_or("", |name| source.of(name)))
        .until(head.map(|head| head.end_byte()))
}

fn method_kind(around: &Around) -> Kind {
    if around.parent.is_some() { Kind::Method } else { Kind::Function }
}

/// `NAME = …`, `Name = Struct.new(…) do`
fn constant<'t>(source: &Source<'t>, node: Node<'t>) -> Sight<'t> {
    let Some(name) = node.child_by_field_name("left").filter(|left| left.kind() == "constant") else {
        return Sight::Closed;
    };
    let right = node.child_by_field_name("right");
    let block = right.and_then(|call| call.child_by_field_name("block"));
    let makes_type = right.is_some_and(|call| {
        matches!(
            (source.field(call, "receiver"), source.field(call, "method")),
            ("Struct" | "Class", "new") | ("Data", "define")
        )
    });
    if makes_type {
        return Found::new(Kind::Type, source.of(name)).holding(block).into();
    }
    Found::new(Kind::Constant, source.of(name)).until(source.value_end(node, right)).into()
}

/// A word on a line of its own.
fn section<'t>(word: &str) -> Sight<'t> {
    match word {
        "private" | "protected" => Sight::Section(false),
        "public" | "module_function" => Sight::Section(true),
        _ => Sight::Closed,
    }
}

/// What is only a call for Ruby, and a definition for whoever reads it.
fn call<'t>(source: &Source<'t>, node: Node<'t>, around: &Around) -> Sight<'t> {
    let word = source.field(node, "method");
    if node.child_by_field_name("receiver").is_some() {
        return Sight::Closed;
    }
    let arguments = node.child_by_field_name("arguments");
    let first = arguments.and_then(|arguments| arguments.named_child(0));
    let path = first.filter(|_| word != "autoload").or(arguments.and_then(|all| all.named_child(1)));
    match (word, first) {
        ("require" | "require_relative" | "load" | "autoload", Some(_)) if let Some(path) = path => {
            Sight::Imports(vec![source.import(node, symbol(source.of(path)), Vec::new())])
        }
        ("attr_accessor" | "attr_reader" | "attr_writer" | "attr", Some(_)) => {
            let mut found = Found::new(Kind::Field, "").public(around.public && around.section);
            found.names = symbols(source, arguments);
            if found.names.is_empty() { Sight::Closed } else { found.into() }
        }
        ("alias_method" | "define_method" | "define_singleton_method", Some(first)) if is_symbol(first) => {
            Found::new(Kind::Method, symbol(source.of(first)))
                .public(around.public && around.section)
                .until(arguments.map(|arguments| arguments.end_byte()))
                .into()
        }
        (
            "private" | "protected" | "public" | "private_class_method" | "memoize" | "module_function",
            Some(first),
        ) if matches!(first.kind(), "method" | "singleton_method") => {
            let hides = matches!(word, "private" | "protected" | "private_class_method");
            method(source, first, around).public(around.public && !hides).into()
        }
        ("private" | "protected" | "private_class_method" | "private_constant", Some(_)) => {
            Sight::Hides(symbols(source, arguments))
        }
        ("included" | "class_methods" | "class_eval" | "module_eval" | "refine" | "namespace", _) => {
            Sight::Through
        }
        _ => Sight::Closed,
    }
}

fn is_symbol(node: Node<'_>) -> bool {
    matches!(node.kind(), "simple_symbol" | "string")
}

fn symbols<'t>(source: &Source<'t>, arguments: Option<Node<'t>>) -> Vec<String> {
    let Some(arguments) = arguments else { return Vec::new() };
    let mut cursor = arguments.walk();
    let symbols = arguments.named_children(&mut cursor).filter(|node| is_symbol(*node));
    symbols.map(|node| symbol(source.of(node)).to_owned()).collect()
}

/// A symbol or string without what makes it one.
fn symbol(text: &str) -> &str {
    text.trim_start_matches(':').trim_matches(['"', '\''])
}
