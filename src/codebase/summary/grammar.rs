//! What a language says of itself, so that one walk reads them all.
//!
//! **To add a language**: write one file with a `pub(super) static GRAMMAR: Grammar` (and nothing else that is public),
//! and give it a line in [`grammar_for`]. Its heart is `classify`, which is asked about every named node that stands where items may
//! stand: at the top of the file, in what `classify` called [`NodeClass::Through`], and in the container of an item
//! ([`ItemDefinition::within`]). It answers with what the node is. It is never asked about what is inside a function, except for
//! the kinds listed in `imports`. `go.rs` is the shortest example. A text among `FIXTURES` in
//! `tests` then holds it to the promise.

use tree_sitter::{Language as Parsed, Node, Range};

use super::{
    CodeItemKind, Import, bash, bodies::FunctionSyntax, c, cpp, csharp, doc, ecma, go, java, php,
    preprocessor, python, ruby, rust, source::SourceText,
};
use crate::codebase::Language;

/// The grammar of a language, if its structure is read.
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

/// What is tried with a text that does not parse: blanks, byte for byte, where the grammar is known to stumble.
pub(super) fn blank_unparsable(language: Language, text: &str) -> Option<String> {
    match language {
        Language::C | Language::Cpp => Some(preprocessor::blank_preprocessor(text)),
        Language::Java => Some(java::blank_annotations(text)),
        _ => None,
    }
}

/// How a language is read.
pub(super) struct Grammar {
    /// How its texts are parsed.
    pub parser: fn() -> Parsed,
    /// What a node is.
    pub classify: NodeClassifier,
    /// How its functions begin, whose bodies need not be parsed.
    pub heads: FunctionSyntax,
    /// Kinds that are looked at inside functions too: import statements.
    pub imports: &'static [&'static str],
    /// One of these is in each of them.
    pub import_words: &'static [&'static str],
    /// Whether a comment directly above an item is its documentation.
    pub is_doc: fn(&str) -> bool,
    /// The first sentence of what the file says about itself, given the root.
    pub file_doc: for<'t> fn(&SourceText<'t>, Node<'t>) -> Option<String>,
}

impl Grammar {
    /// One without imports in functions, in which every comment may document what follows.
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

/// Where a node stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeContext<'w> {
    /// The kind and name of the item that holds it, if one does.
    pub parent: Option<(CodeItemKind, &'w str)>,
    /// Whether that item is public; true at the top of a file.
    pub public: bool,
    /// Whether the section of that item that it stands in is public.
    pub section: bool,
    /// The first byte of the attributes directly before it, or its own.
    pub start: usize,
}

impl NodeContext<'_> {
    pub(super) fn parent_kind(&self) -> Option<CodeItemKind> {
        self.parent.map(|(kind, _)| kind)
    }

    /// What a function is here: a method inside a type.
    pub(super) fn function_kind(&self) -> CodeItemKind {
        match self.parent_kind() {
            Some(
                CodeItemKind::Type | CodeItemKind::Interface | CodeItemKind::Enum | CodeItemKind::Extension,
            ) => CodeItemKind::Method,
            _ => CodeItemKind::Function,
        }
    }
}

/// What a node is.
pub(super) enum NodeClass<'t> {
    /// Nothing of itself; its children stand where it stands: the file, a list of declarations, `#ifdef`, `try:`.
    Through,
    /// A comment: the documentation of what follows, perhaps.
    Comment,
    /// An attribute or decorator that stands before the item it belongs to, as its sibling.
    Attribute,
    Item(ItemDefinition<'t>),
    /// One import statement; more than one if it imports from several modules.
    Imports(Vec<Import>),
    /// From here to the next one, what the same item holds is public or not: `private:`.
    Section(bool),
    /// What the same item holds so far under these names is not public.
    Hides(Vec<String>),
    /// Says that these names, defined elsewhere at the top of the file, are public.
    Exports(Vec<String>),
    /// Text that the grammar did not look into: read as a file of its own, if it is one without a fault. What it defines
    /// is defined here.
    Text(Range),
    /// Nothing; only names used are looked for inside.
    Closed,
}

/// An item.
pub(super) struct ItemDefinition<'t> {
    pub kind: CodeItemKind,
    /// Mostly one. `var a, b int` has two: two items with the same signature.
    pub names: Vec<String>,
    pub public: bool,
    /// Decides that for each of several names instead.
    pub public_by_name: Option<fn(&str) -> bool>,
    /// Where its signature ends, if not with the node.
    pub until: Option<usize>,
    /// What holds its children: itself or any node inside it, where `classify` is asked again.
    pub within: Option<Node<'t>>,
    /// Its doc, where that is not a comment above it.
    pub doc: Option<String>,
    /// Whether its first section is public, if it has such.
    pub section: bool,
    /// What else is defined behind its body.
    pub tail: Option<TrailingItems<'t>>,
}

/// `} name;`: what is defined behind the body of something else.
pub(super) struct TrailingItems<'t> {
    pub kind: CodeItemKind,
    pub names: Vec<String>,
    /// Its signature goes from here to the end.
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

    /// Several items with one signature; whether each is public is said by its name.
    pub(super) fn with_names(kind: CodeItemKind, names: Vec<String>, public: fn(&str) -> bool) -> Self {
        Self { names, public_by_name: Some(public), ..Self::new(kind, "") }
    }

    /// Its signature ends where this node begins, if there is one.
    pub(super) fn ending_before(mut self, body: Option<Node<'t>>) -> Self {
        self.until = body.map(|body| body.start_byte()).or(self.until);
        self
    }

    /// Its signature ends at this byte, if there is one.
    pub(super) fn ending_at(mut self, byte: Option<usize>) -> Self {
        self.until = byte.or(self.until);
        self
    }

    /// Its children are in this node, and its signature ends where that begins.
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
