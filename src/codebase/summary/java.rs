//! Grammar of Java.

use tree_sitter::Node;

use super::{
    CodeItemKind, Import,
    bodies::FunctionSyntax,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext},
    source::{SourceText, child_of_kind, children_of_kind},
};

pub(super) static GRAMMAR: Grammar = Grammar {
    is_doc: |comment| comment.starts_with("/**"),
    ..Grammar::new(|| tree_sitter_java::LANGUAGE.into(), FunctionSyntax::Brackets, classify)
};

/// Blanks annotations directly before `...`, because the grammar does not support annotations there.
pub(super) fn blank_annotations(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (dots, _) in text.match_indices("...") {
        let head = text[..dots].trim_end_matches([' ', '\t']);
        let name = head.len() - head.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        let at = head.len() - name;
        if name > 0 && head[..at].ends_with('@') {
            bytes[at - 1..dots].fill(b' ');
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

fn classify<'t>(source: &SourceText<'t>, node: Node<'t>, around: &NodeContext) -> NodeClass<'t> {
    let modifiers = child_of_kind(node, &["modifiers"]);
    let has_modifier =
        |word: &str| modifiers.is_some_and(|modifiers| child_of_kind(modifiers, &[word]).is_some());
    let public = around.public && !has_modifier("private");
    let body = node.child_by_field_name("body");
    let named = |kind| ItemDefinition::new(kind, source.field_text(node, "name")).with_public(public);
    match node.kind() {
        "program" | "enum_body_declarations" => NodeClass::Through,
        "line_comment" | "block_comment" => NodeClass::Comment,
        "import_declaration" => NodeClass::Imports(import(source, node)),
        "package_declaration" => match child_of_kind(node, &["scoped_identifier", "identifier"]) {
            Some(name) => ItemDefinition::new(CodeItemKind::Module, source.node_text(name)).into(),
            None => NodeClass::Closed,
        },
        "module_declaration" => named(CodeItemKind::Module).ending_before(body).into(),
        "class_declaration" | "record_declaration" => named(CodeItemKind::Type).with_body(body).into(),
        "interface_declaration" | "annotation_type_declaration" => {
            named(CodeItemKind::Interface).with_body(body).into()
        }
        "enum_declaration" => named(CodeItemKind::Enum).with_body(body).into(),
        "enum_constant" => named(CodeItemKind::Variant).ending_before(body).into(),
        "method_declaration"
        | "constructor_declaration"
        | "compact_constructor_declaration"
        | "annotation_type_element_declaration" => named(CodeItemKind::Method).ending_before(body).into(),
        "field_declaration" | "constant_declaration" => {
            let constant =
                node.kind() == "constant_declaration" || has_modifier("static") && has_modifier("final");
            let kind = if constant { CodeItemKind::Constant } else { CodeItemKind::Field };
            let declarators = children_of_kind(node, "variable_declarator")
                .into_iter()
                .map(|each| (each.child_by_field_name("name"), each.child_by_field_name("value")));
            source.variables(node, kind, declarators).with_public(public).into()
        }
        _ => NodeClass::Closed,
    }
}

/// Reads an import statement. `import static a.B.c;` imports `c` from `a.B`; `import a.b.*;` imports everything from
/// `a.b`.
fn import<'t>(source: &SourceText<'t>, node: Node<'t>) -> Vec<Import> {
    let path =
        child_of_kind(node, &["scoped_identifier", "identifier"]).map_or("", |path| source.node_text(path));
    let all = child_of_kind(node, &["asterisk"]).is_some();
    let is_static = child_of_kind(node, &["static"]).is_some();
    let (module, names) = match path.rsplit_once('.') {
        _ if all => (path, vec!["*".to_owned()]),
        Some((module, name)) if is_static => (module, vec![name.to_owned()]),
        Some((_, name)) => (path, vec![name.to_owned()]),
        None => (path, Vec::new()),
    };
    vec![source.import(node, module, names)]
}
