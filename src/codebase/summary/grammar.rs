//! Describes a language to the tree walk, which is the same for all languages.
//!
//! **To add a language**: write a file with a `pub(super) static GRAMMAR: Grammar` (and no other public item), and list
//! the grammar in [`grammar_for`]. The core of a grammar is `classify`: this function receives every named node that
//! may be an item, and returns the node's [`NodeClass`]. The walk passes to `classify` the nodes at the top of the
//! file, inside nodes classified as [`NodeClass::Through`], and inside an item's container
//! ([`ItemDefinition::within`]). Nodes inside functions are passed only if `imports` lists their kind. `go.rs` is the
//! shortest example. Add a sample text to `FIXTURES` in `tests`; the tests then check the language.

use tree_sitter::{Language as Parsed, Node, Range};

use super::{
    CodeItemKind, Import, bash, bodies::FunctionSyntax, c, cpp, csharp, doc, ecma, go, java, php,
    preprocessor, python, ruby, rust, source::SourceText,
};
use crate::codebase::Language;

/// Returns the grammar of a language; `None` for languages whose files get only an outline.
pub(super) fn grammar_for(language: Language) -> Option<&'static Grammar> {
    match language {
        Language::Bash => Some(&bash::GRAMMAR),
        Language::C => Some(&c::GRAMMAR),
        Language::Cpp => Some(&cpp::GRAMMAR),
        Language::CSharp => Some(&csharp::GRAMMAR),
        Language::Go => Some(&go::GRAMMAR),
        Language::Java => Some(&java::GRAMMAR),
        Language::JavaScript => Some(&ecma::JAVASCRIPT),
        Language::Php => Some(&php::GRAMMAR),
        Language::Python => Some(&python::GRAMMAR),
        Language::Ruby => Some(&ruby::GRAMMAR),
        Language::Rust => Some(&rust::GRAMMAR),
        Language::Tsx => Some(&ecma::TSX),
        Language::TypeScript => Some(&ecma::TYPESCRIPT),
        _ => None,
    }
}

/// Blanks code on which the grammar is known to fail, without changing the length of the text. Used only if the text
/// does not parse otherwise. Returns `None` if no such code is known for the language.
pub(super) fn blank_unparsable(language: Language, text: &str) -> Option<String> {
    match language {
        Language::C | Language::Cpp => Some(preprocessor::blank_preprocessor(text)),
        Language::Java => Some(java::blank_annotations(text)),
        _ => None,
    }
}

/// Rules for reading source texts in one language.
pub(super) struct Grammar {
    pub parser: fn() -> Parsed,
    pub classify: NodeClassifier,
    /// Syntax of function heads, used to blank function bodies before parsing.
    pub heads: FunctionSyntax,
    /// Kinds of import nodes. Nodes of these kinds are also read inside functions.
    pub imports: &'static [&'static str],
    /// Words of which every import statement contains at least one. Imports are read only from texts that contain such
    /// a word.
    pub import_words: &'static [&'static str],
    /// Returns whether a comment directly above an item documents it.
    pub is_doc: fn(&str) -> bool,
    /// Returns the first sentence of the file's documentation, given the root node.
    pub file_doc: for<'t> fn(&SourceText<'t>, Node<'t>) -> Option<String>,
}

impl Grammar {
    /// Creates a grammar that ignores imports inside functions and accepts any comment directly above an item as
    /// documentation.
    pub(super) const fn new(parser: fn() -> Parsed, heads: FunctionSyntax, classify: NodeClassifier) -> Self {
        Self {
            parser,
            classify,
            heads,
            imports: &[],
            import_words: &[],
            is_doc: |_| true,
            file_doc: |source, root| doc::file_doc(source, root),
        }
    }
}

pub(super) type NodeClassifier = for<'t> fn(&SourceText<'t>, Node<'t>, &NodeContext) -> NodeClass<'t>;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeContext<'w> {
    /// Kind and name of the enclosing item; `None` at the top of a file.
    pub parent: Option<(CodeItemKind, &'w str)>,
    /// Whether the enclosing item is public. True at the top of a file.
    pub public: bool,
    /// Whether the current section of the enclosing item is public. For example, `private:` starts a section that is
    /// not.
    pub section: bool,
    /// Position of the first byte of the attributes directly before the node. Without attributes, the position of the
    /// node's first byte.
    pub start: usize,
}

impl NodeContext<'_> {
    pub(super) fn parent_kind(&self) -> Option<CodeItemKind> {
        self.parent.map(|(kind, _)| kind)
    }

    /// Returns `Method` if the enclosing item is a type, otherwise `Function`.
    pub(super) fn function_kind(&self) -> CodeItemKind {
        match self.parent_kind() {
            Some(
                CodeItemKind::Type | CodeItemKind::Interface | CodeItemKind::Enum | CodeItemKind::Extension,
            ) => CodeItemKind::Method,
            _ => CodeItemKind::Function,
        }
    }
}

pub(super) enum NodeClass<'t> {
    /// The node is not an item, but its children may be items. Examples are the file, a declaration list, `#ifdef` and
    /// `try:`.
    Through,
    /// The node is a comment, which may document the next item.
    Comment,
    /// The node is an attribute or decorator that precedes its item as a sibling.
    Attribute,
    Item(ItemDefinition<'t>),
    /// The node is an import statement. Contains one entry per imported module.
    Imports(Vec<Import>),
    /// The node is a section marker such as `private:`. Says whether the following members of the enclosing item are
    /// public.
    Section(bool),
    /// The node makes earlier members of the enclosing item private. Contains the names of these members.
    Hides(Vec<String>),
    /// The node makes top-level items public. Contains the names of these items.
    Exports(Vec<String>),
    /// The node contains text that the grammar does not parse, such as a macro's body. If this text parses without
    /// errors as a file, its items are added to the enclosing item.
    Text(Range),
    /// The node is not an item and contains no items. Its content is searched only for imports.
    Closed,
}

pub(super) struct ItemDefinition<'t> {
    pub kind: CodeItemKind,
    /// Names of the item, usually one. For example, `var a, b int` gives two items with the same signature.
    pub names: Vec<String>,
    pub public: bool,
    /// Function that returns whether a name is public. If set, it is used instead of `public`.
    pub public_by_name: Option<fn(&str) -> bool>,
    /// End of the signature; `None` if the signature ends with the node.
    pub until: Option<usize>,
    /// Node whose children may be child items: the item's own node, or a node inside it.
    pub within: Option<Node<'t>>,
    /// Documentation that is not in a comment above the item.
    pub doc: Option<String>,
    /// Whether members before the first access specifier, such as `private:`, are public.
    pub section: bool,
    pub tail: Option<TrailingItems<'t>>,
}

/// Items that are defined after the body of another item, as in `} name;`.
pub(super) struct TrailingItems<'t> {
    pub kind: CodeItemKind,
    pub names: Vec<String>,
    /// Node at which the signature starts. The signature runs to the end of the whole declaration.
    pub from: Node<'t>,
}

impl<'t> ItemDefinition<'t> {
    pub(super) fn new(kind: CodeItemKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            names: vec![name.into()],
            public: true,
            public_by_name: None,
            until: None,
            within: None,
            doc: None,
            section: true,
            tail: None,
        }
    }

    pub(super) fn with_public(mut self, public: bool) -> Self {
        self.public = public;
        self
    }

    /// Creates several items with the same signature. `public` returns for each name whether the item is public.
    pub(super) fn with_names(kind: CodeItemKind, names: Vec<String>, public: fn(&str) -> bool) -> Self {
        Self { names, public_by_name: Some(public), ..Self::new(kind, "") }
    }

    /// Ends the signature before `body`; does nothing if `body` is `None`.
    pub(super) fn ending_before(mut self, body: Option<Node<'t>>) -> Self {
        self.until = body.map(|body| body.start_byte()).or(self.until);
        self
    }

    /// Ends the signature at position `byte`; does nothing if `byte` is `None`.
    pub(super) fn ending_at(mut self, byte: Option<usize>) -> Self {
        self.until = byte.or(self.until);
        self
    }

    /// Sets `body` as the node that contains the children, and ends the signature before `body`. If `body` is `None`,
    /// the item has no children and the signature is unchanged.
    pub(super) fn with_body(mut self, body: Option<Node<'t>>) -> Self {
        self.within = body;
        self.ending_before(body)
    }

    pub(super) fn with_doc(mut self, doc: Option<String>) -> Self {
        self.doc = doc;
        self
    }
}

impl<'t> From<ItemDefinition<'t>> for NodeClass<'t> {
    fn from(found: ItemDefinition<'t>) -> Self {
        Self::Item(found)
    }
}
