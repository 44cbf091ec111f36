//! A source text and what is cut out of it.

use tree_sitter::Node;

use super::{CodeItemKind, Import, grammar::ItemDefinition};
use crate::limits;

/// The text of a file whose tree is read.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceText<'t> {
    pub text: &'t str,
    /// The same as its parser saw it: with blanks in some places.
    pub seen: &'t str,
}

impl<'t> SourceText<'t> {
    /// What stands at a node.
    pub(super) fn node_text(&self, node: Node<'_>) -> &'t str {
        self.slice(node.start_byte(), node.end_byte())
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &'t str {
        self.text.get(start..end).unwrap_or("")
    }

    /// Where something begins with what was blanked out before it, on its line.
    pub(super) fn head_start(&self, start: usize) -> usize {
        let before = self.seen.get(..start).unwrap_or("");
        let blank = before.len() - before.trim_end_matches([' ', '\t']).len();
        let gap = self.slice(start - blank, start);
        start - gap.trim_start().len()
    }

    /// What stands at a field of a node; nothing if it has none.
    pub(super) fn field_text(&self, node: Node<'_>, field: &str) -> &'t str {
        node.child_by_field_name(field).map_or("", |child| self.node_text(child))
    }

    /// What this statement imports from a module; nothing of it if it is too long to be taken apart.
    pub(super) fn import(&self, node: Node<'_>, module: &str, names: Vec<String>) -> Import {
        let line = line(node.start_position().row);
        Import { line, text: self.node_text(node).to_owned(), module: module.to_owned(), names }
    }

    /// Where the signature of a constant ends: after its value if that is short, and before the `=` if not.
    pub(super) fn value_end(&self, node: Node<'_>, value: Option<Node<'_>>) -> Option<usize> {
        let value = value?;
        let text = self.node_text(value);
        if text.len() <= limits::SUMMARY_VALUE_BYTES && !text.contains('\n') {
            return None;
        }
        let head = self.slice(node.start_byte(), value.start_byte()).trim_end();
        let head = head.strip_suffix(":=").or(head.strip_suffix('=')).unwrap_or(head);
        Some(node.start_byte() + head.len())
    }

    /// What a declaration of several variables defines, given their names and values.
    pub(super) fn variables(
        &self,
        node: Node<'t>,
        kind: CodeItemKind,
        variables: impl IntoIterator<Item = (Option<Node<'t>>, Option<Node<'t>>)>,
    ) -> ItemDefinition<'t> {
        let mut found = ItemDefinition::new(kind, "");
        found.names.clear();
        for (name, value) in variables {
            found.names.extend(name.map(|name| self.node_text(name).to_owned()));
            found.until = found.until.or_else(|| self.value_end(node, value));
        }
        found
    }
}

/// All children of a node that are of this kind.
pub(super) fn children_of_kind<'t>(node: Node<'t>, kind: &str) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).filter(|child| child.kind() == kind).collect()
}

/// The first child of a node that is of one of these kinds.
pub(super) fn child_of_kind<'t>(node: Node<'t>, kinds: &[&str]) -> Option<Node<'t>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).find(|child| kinds.contains(&child.kind()))
}

/// A signature as it is kept: word for word, with `\n` for line ends, and whether all of it is there. One that is too
/// long keeps its first whole lines; one whose first line is too long is not kept at all.
pub(super) fn signature(text: &str) -> Option<(String, bool)> {
    let text = text.trim_end();
    if text.is_empty() {
        return None;
    }
    let mut kept = String::new();
    let mut whole = true;
    for (at, line) in text.lines().enumerate() {
        if at >= limits::SIGNATURE_LINES || kept.len() + line.len() > limits::SIGNATURE_BYTES {
            whole = false;
            break;
        }
        if at > 0 {
            kept.push('\n');
        }
        kept.push_str(line);
    }
    (!kept.is_empty()).then_some((kept, whole))
}

/// A row as lines are counted.
pub(super) fn line(row: usize) -> u32 {
    u32::try_from(row + 1).unwrap_or(u32::MAX)
}
