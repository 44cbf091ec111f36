//! Walks a syntax tree and collects items and imports.
//!
//! The walk itself does not recurse, because a tree can be as deep as its text is long. Code that reads a summary does
//! recurse, so the walk limits the nesting of items.

use std::collections::{HashMap, HashSet};

use tree_sitter::{Node, Range};

use super::{
    CodeItem, Import, Summary, doc,
    grammar::{Grammar, ItemDefinition, NodeClass, NodeContext, TrailingItems},
    parse,
    source::{self, SourceText, line},
};
use crate::limits;

/// Maximum nesting of embedded texts that are parsed again. The nesting is limited because each level can cost as much
/// as the first.
const SUMMARY_EMBEDDED: usize = 3;

pub(super) fn read_tree<'s>(grammar: &'s Grammar, source: SourceText<'s>, root: Node<'s>) -> Summary {
    let mut walk = TreeWalk::new(grammar, source, 0);
    walk.walk_from(root);
    let TreeWalk { mut summary, exports, .. } = walk;
    for item in &mut summary.items {
        item.public |= exports.contains(&item.name);
    }
    summary.doc = (grammar.file_doc)(&source, root);
    summary.partial |= root.has_error();
    summary.imports.sort_by_key(|import| import.line);
    summary
}

struct TreeWalk<'s, 't> {
    grammar: &'s Grammar,
    source: SourceText<'s>,
    summary: Summary,
    /// Items whose children are being visited. The innermost item is last.
    open: Vec<OpenItem>,
    above: PrecedingNodes<'t>,
    exports: HashSet<String>,
    items: usize,
    room: usize,
    /// Number of embedded texts in which the current text is nested; 0 for the file itself.
    embedded: usize,
}

struct OpenItem {
    /// The item, followed by one copy for each of its other names. Children are attached to the first entry.
    items: Vec<CodeItem>,
    section: bool,
    /// Names that were made private, each with the number of children at that time. Children that are added later stay
    /// public.
    hidden: HashMap<String, usize>,
}

enum WalkStep<'t> {
    Enter(Node<'t>),
    Leave,
}

/// The children of a node that the walk visits next.
enum NodeDescent<'t> {
    Nothing,
    /// The children of this node are visited as children of the current item.
    Through(Node<'t>),
    /// The children of this node are visited as children of the item that was just opened.
    Item(Node<'t>),
}

/// Comments and attributes that stand directly before the next item.
#[derive(Default)]
struct PrecedingNodes<'t> {
    comments: Vec<Node<'t>>,
    attribute: Option<Node<'t>>,
    /// Last row of these comments and attributes. Without any, the last row of the preceding node.
    row: Option<usize>,
}

impl<'s: 't, 't> TreeWalk<'s, 't> {
    fn new(grammar: &'s Grammar, source: SourceText<'s>, embedded: usize) -> Self {
        Self {
            grammar,
            source,
            summary: Summary::default(),
            open: Vec::new(),
            above: PrecedingNodes::default(),
            exports: HashSet::new(),
            items: 0,
            room: super::kept_bytes_limit(source.text),
            embedded,
        }
    }

    fn walk_from(&mut self, root: Node<'t>) {
        let mut steps = vec![WalkStep::Enter(root)];
        while let Some(step) = steps.pop() {
            let WalkStep::Enter(node) = step else {
                self.close_item();
                continue;
            };
            let (NodeDescent::Through(within) | NodeDescent::Item(within)) = (match self.visit(node) {
                NodeDescent::Item(within) => {
                    steps.push(WalkStep::Leave);
                    self.above = PrecedingNodes {
                        row: Some(within.start_position().row),
                        ..PrecedingNodes::default()
                    };
                    NodeDescent::Item(within)
                }
                other => other,
            }) else {
                continue;
            };
            let first = steps.len();
            steps.extend(within.children(&mut within.walk()).map(WalkStep::Enter));
            steps[first..].reverse();
        }
    }

    /// Adds the imports of one statement. If they exceed the limits, marks the summary as partial instead.
    fn add_imports(&mut self, node: Node<'t>, mut imports: Vec<Import>) {
        for import in imports.iter_mut().filter(|import| import.text.contains('\r')) {
            import.text = import.text.replace("\r\n", "\n");
        }
        let long = imports.is_empty() && node.byte_range().len() > limits::IMPORT_BYTES;
        let names = |import: &Import| import.names.iter().map(String::len).sum::<usize>();
        let bytes =
            imports.iter().map(|import| import.text.len() + import.module.len() + names(import)).sum();
        if long || !self.reserve_bytes(bytes) {
            self.summary.partial = true;
        } else {
            self.summary.imports.extend(imports);
        }
    }

    /// Reserves bytes for an addition to the summary. If the size limit would be exceeded, reserves nothing and returns
    /// false.
    fn reserve_bytes(&mut self, bytes: usize) -> bool {
        let left = self.room.checked_sub(bytes);
        self.room = left.unwrap_or(self.room);
        left.is_some()
    }

    fn collect_nested_imports(&mut self, node: Node<'t>) {
        let Grammar { imports, import_words, classify, .. } = self.grammar;
        let text = self.source.node_text(node);
        if !import_words.iter().any(|word| text.contains(word)) {
            return;
        }
        let mut cursor = node.walk();
        loop {
            let node = cursor.node();
            if imports.contains(&node.kind())
                && let NodeClass::Imports(imports) = classify(&self.source, node, &NodeContext::default())
            {
                self.add_imports(node, imports);
            } else if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
            }
        }
    }

    /// Handles a node that may be an item. Returns the children to visit next.
    fn visit(&mut self, node: Node<'t>) -> NodeDescent<'t> {
        if !node.is_named() {
            self.above.row = Some(end_row(node));
            return NodeDescent::Nothing;
        }
        let around = self.node_context(node);
        let class = if node.is_error() {
            NodeClass::Through
        } else {
            (self.grammar.classify)(&self.source, node, &around)
        };
        match class {
            NodeClass::Through => {
                self.above.attribute = None;
                return NodeDescent::Through(node);
            }
            NodeClass::Comment => {
                self.add_comment(node);
                return NodeDescent::Nothing;
            }
            NodeClass::Attribute => {
                self.above.attribute.get_or_insert(node);
                self.above.row = Some(end_row(node));
                return NodeDescent::Nothing;
            }
            NodeClass::Item(found) => {
                let start = around.start;
                let inside = self.add_item(node, found, start);
                self.reset_above(node);
                if matches!(inside, NodeDescent::Nothing) {
                    self.collect_nested_imports(node);
                }
                return inside;
            }
            NodeClass::Section(public) => {
                if let Some(frame) = self.open.last_mut() {
                    frame.section = public;
                }
            }
            NodeClass::Hides(names) => self.hide_names(names),
            NodeClass::Imports(imports) => self.add_imports(node, imports),
            NodeClass::Exports(names) => self.exports.extend(names),
            NodeClass::Text(part) if self.read_embedded(part) => {}
            NodeClass::Text(_) | NodeClass::Closed => self.collect_nested_imports(node),
        }
        self.reset_above(node);
        NodeDescent::Nothing
    }

    /// Reads items from a range of the text, which is parsed like a file. Returns false if the range cannot be parsed.
    fn read_embedded(&mut self, part: Range) -> bool {
        if self.embedded >= SUMMARY_EMBEDDED {
            return false;
        }
        let tree = parse::parse_ranges(self.grammar, self.source.seen, &[part]);
        let Some(tree) = tree.filter(|tree| !tree.root_node().has_error()) else { return false };
        let mut inner = TreeWalk::new(self.grammar, self.source, self.embedded + 1);
        (inner.items, inner.room) = (self.items, self.room);
        inner.walk_from(tree.root_node());
        let TreeWalk { summary, items, room, .. } = inner;
        (self.items, self.room) = (items, room);
        self.summary.partial |= summary.partial;
        self.summary.imports.extend(summary.imports);
        self.open_children().extend(summary.items);
        true
    }

    /// Returns the list of children to which the next item is added.
    fn open_children(&mut self) -> &mut Vec<CodeItem> {
        let item = self.open.last_mut().and_then(|frame| frame.items.first_mut());
        item.map_or(&mut self.summary.items, |item| &mut item.children)
    }

    fn node_context(&self, node: Node<'t>) -> NodeContext<'_> {
        let parent = self.open.last().and_then(|frame| frame.items.first());
        NodeContext {
            parent: parent.map(|item| (item.kind, item.name.as_str())),
            public: parent.is_none_or(|item| item.public),
            section: self.open.last().is_none_or(|frame| frame.section),
            start: self.above.attribute.unwrap_or(node).start_byte(),
        }
    }

    fn add_comment(&mut self, node: Node<'t>) {
        let row = node.start_position().row;
        match self.above.row {
            // A trailing comment on the line of other code.
            Some(last) if last == row && self.above.comments.is_empty() => return,
            Some(last) if last + 1 < row => self.above.comments.clear(),
            _ => {}
        }
        self.above.comments.push(node);
        self.above.row = Some(end_row(node));
    }

    fn reset_above(&mut self, node: Node<'t>) {
        self.above = PrecedingNodes { row: Some(end_row(node)), ..PrecedingNodes::default() };
    }

    fn hide_names(&mut self, names: Vec<String>) {
        if let Some(frame) = self.open.last_mut()
            && let Some(holder) = frame.items.first()
        {
            frame.hidden.extend(names.into_iter().map(|name| (name, holder.children.len())));
        }
    }

    fn add_item(&mut self, node: Node<'t>, mut found: ItemDefinition<'t>, start: usize) -> NodeDescent<'t> {
        found.names.retain(|name| (1..=limits::NAME_BYTES).contains(&name.len()));
        if found.names.is_empty() {
            return NodeDescent::Nothing;
        }
        let more = found.names.len() + found.tail.as_ref().map_or(0, |tail| tail.names.len());
        if self.items + more > limits::SUMMARY_ITEMS || self.open.len() >= limits::SUMMARY_NESTING {
            self.summary.partial = true;
            return NodeDescent::Nothing;
        }
        let end = found.until.unwrap_or(node.end_byte());
        let mut first = self.above.attribute.unwrap_or(node);
        let mut signature = source::signature(self.source.slice(self.source.head_start(start), end));
        if start < node.start_byte() && signature.as_ref().is_none_or(|(_, whole)| !whole) {
            // The attributes are too long; keep the signature without them.
            first = node;
            signature = source::signature(self.source.slice(node.start_byte(), end));
        }
        let Some((signature, whole)) = signature.filter(|_| !has_error_before(node, end)) else {
            self.summary.partial = true;
            // Its children may be intact.
            return found.within.map_or(NodeDescent::Nothing, NodeDescent::Through);
        };
        let doc = found.doc.or_else(|| self.preceding_doc(node));
        let (line, last) = (line(first.start_position().row), line(end_row(node)));
        let names: usize = found.names.iter().map(String::len).sum();
        let each = signature.len() + doc.as_ref().map_or(0, String::len) + limits::SUMMARY_ITEM_BYTES;
        if !self.reserve_bytes(names + found.names.len() * each) {
            self.summary.partial = true;
            return NodeDescent::Nothing;
        }
        let public = |name: &str| found.public_by_name.map_or(found.public, |public| public(name));
        let item = |name: String| CodeItem {
            cut: !whole,
            doc: doc.clone(),
            public: public(&name),
            ..CodeItem::new(found.kind, name, signature.clone(), line, last)
        };
        let mut items: Vec<CodeItem> = found.names.into_iter().map(item).collect();
        if let Some(tail) = found.tail {
            items.extend(self.trailing_items(node, tail, found.public));
        }
        self.items += items.len();
        let Some(within) = found.within else {
            self.open_children().extend(items);
            return NodeDescent::Nothing;
        };
        self.open.push(OpenItem { items, section: found.section, hidden: HashMap::new() });
        NodeDescent::Item(within)
    }

    fn trailing_items(&mut self, node: Node<'t>, tail: TrailingItems<'t>, public: bool) -> Vec<CodeItem> {
        let signature = source::signature(self.source.slice(tail.from.start_byte(), node.end_byte()));
        let Some((signature, whole)) = signature else { return Vec::new() };
        let each = signature.len() + limits::SUMMARY_ITEM_BYTES;
        if !self.reserve_bytes(tail.names.iter().map(|name| name.len() + each).sum()) {
            self.summary.partial = true;
            return Vec::new();
        }
        let (first, last) = (line(tail.from.start_position().row), line(end_row(node)));
        let item = |name| CodeItem {
            cut: !whole,
            public,
            ..CodeItem::new(tail.kind, name, signature.clone(), first, last)
        };
        tail.names.into_iter().filter(|name| !name.is_empty()).map(item).collect()
    }

    /// Returns the first sentence of the documentation in the comments directly above the item.
    fn preceding_doc(&self, first: Node<'t>) -> Option<String> {
        let last = self.above.comments.last()?;
        // An attribute may be between the comment and the item, or the comment between two attributes.
        let gap = self.above.attribute.is_none() && end_row(*last) + 1 < first.start_position().row;
        let texts = self.above.comments.iter().map(|comment| self.source.node_text(*comment));
        (!gap).then(|| {
            doc::doc_from_comments(
                texts.filter(|text| (self.grammar.is_doc)(text) && !doc::is_tool_directive(text)),
            )
        })?
    }

    fn close_item(&mut self) {
        let Some(OpenItem { mut items, hidden, .. }) = self.open.pop() else { return };
        if let Some(holder) = items.first_mut().filter(|_| !hidden.is_empty()) {
            for (at, child) in holder.children.iter_mut().enumerate() {
                child.public &= hidden.get(&child.name).is_none_or(|before| at >= *before);
            }
        }
        self.open_children().extend(items);
    }
}

/// Returns whether a node has a syntax error before the byte `end`.
fn has_error_before(mut node: Node<'_>, end: usize) -> bool {
    'down: while node.has_error() {
        let mut cursor = node.walk();
        for child in node.children(&mut cursor) {
            if child.start_byte() >= end {
                return false;
            }
            if child.is_error() || child.is_missing() || (child.has_error() && child.end_byte() <= end) {
                return true;
            }
            if child.end_byte() > end {
                node = child;
                continue 'down;
            }
        }
        return false;
    }
    false
}

/// Returns the row of a node's last character.
fn end_row(node: Node<'_>) -> usize {
    let (start, end) = (node.start_position(), node.end_position());
    if end.column == 0 && end.row > start.row { end.row - 1 } else { end.row }
}
