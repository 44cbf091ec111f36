//! Extracts names, signatures and imports from a source text.

use tree_sitter::Node;

use super::{CodeItemKind, Import, grammar::ItemDefinition};
use crate::limits;

/// Source text of the file whose tree is walked.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceText<'t> {
    pub text: &'t str,
    /// Text that the parser read. Parts of it may be blanked.
    pub seen: &'t str,
}

impl<'t> SourceText<'t> {
    pub(super) fn node_text(&self, node: Node<'_>) -> &'t str {
        self.slice(node.start_byte(), node.end_byte())
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &'t str {
        self.text.get(start..end).unwrap_or("")
    }

    /// Returns the start of an item. If text before the item on the same line was blanked for the parser, the item
    /// starts at that text.
    pub(super) fn head_start(&self, start: usize) -> usize {
        let before = self.seen.get(..start).unwrap_or("");
        let blank = before.len() - before.trim_end_matches([' ', '\t']).len();
        let gap = self.slice(start - blank, start);
        start - gap.trim_start().len()
    }

    /// Returns the source text of a node's field. Returns an empty text if the node has no such field.
    pub(super) fn field_text(&self, node: Node<'_>, field: &str) -> &'t str {
        node.child_by_field_name(field).map_or("", |child| self.node_text(child))
    }

    pub(super) fn import(&self, node: Node<'_>, module: &str, names: Vec<String>) -> Import {
        let line = line(node.start_position().row);
        Import { line, text: self.node_text(node).to_owned(), module: module.to_owned(), names }
    }

    /// Returns the end of a constant's signature if its value is long or spans several lines; the signature then ends
    /// before the `=`. Otherwise returns `None`, which means that the signature ends with the node.
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

    /// Creates a single item definition, with several names, for a declaration of several variables.
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

pub(super) fn children_of_kind<'t>(node: Node<'t>, kind: &str) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).filter(|child| child.kind() == kind).collect()
}

pub(super) fn child_of_kind<'t>(node: Node<'t>, kinds: &[&str]) -> Option<Node<'t>> {
    let mut cursor = node.walk();
    node.children(&mut cursor).find(|child| kinds.contains(&child.kind()))
}

/// Returns the signature in its stored form, with `\n` line ends, and whether the signature is complete. A long
/// signature is cut after a whole line. Returns `None` if even the first line is too long.
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

/// Converts a row, counted from 0, to a line number, counted from 1.
pub(super) fn line(row: usize) -> u32 {
    u32::try_from(row + 1).unwrap_or(u32::MAX)
}
