//! Extracts the first sentence of a doc comment.

use tree_sitter::Node;

use super::source::SourceText;

/// Maximum length of a first sentence in bytes. A longer sentence is truncated.
const DOC_BYTES: usize = 200;

/// Returns the first sentence of the given comments, which are ordered from top to bottom.
pub(super) fn doc_from_comments<'t>(comments: impl IntoIterator<Item = &'t str>) -> Option<String> {
    first_sentence(comments.into_iter().flat_map(comment_lines))
}

/// Returns the first sentence of the file's documentation, taken from the comments at the start of the file. Skips
/// license comments, tool directives, and comments directly above an item.
pub(super) fn file_doc<'t>(source: &SourceText<'t>, root: Node<'t>) -> Option<String> {
    let mut cursor = root.walk();
    let mut group: Vec<Node<'t>> = Vec::new();
    let telling = |group: &[Node<'t>]| {
        let texts = || group.iter().map(|comment| source.node_text(*comment));
        (!texts().any(is_legal))
            .then(|| doc_from_comments(texts().filter(|text| !is_tool_directive(text))))?
    };
    for node in root.named_children(&mut cursor) {
        let row = node.start_position().row;
        let block = |node: &Node<'_>| source.node_text(*node).starts_with("/*");
        let apart = group.last().is_some_and(|last| {
            last.end_position().row + 1 < row
                || (node.kind().contains("comment") && (block(last) || block(&node)))
        });
        if apart || !node.kind().contains("comment") {
            let above_import = ["import", "package", "using", "use", "include"]
                .iter()
                .any(|word| node.kind().contains(word));
            let doc = telling(&group).filter(|_| apart || above_import);
            if doc.is_some() {
                return doc;
            }
            group.clear();
        }
        if node.kind().contains("comment") {
            group.push(node);
        } else if node.kind() != "hash_bang_line" {
            return None;
        }
    }
    telling(&group)
}

fn is_legal(comment: &str) -> bool {
    let lower = comment.to_ascii_lowercase();
    ["copyright", "licen", "spdx", "eslint", "@ts-", "prettier-", "/// <reference", "@flow"]
        .iter()
        .any(|word| lower.contains(word))
}

/// Returns whether a comment is a tool directive, such as `#!`, `//go:build`, `# frozen_string_literal: true` or `#
/// shellcheck …`.
pub(super) fn is_tool_directive(comment: &str) -> bool {
    const WORDS: &[&str] = &[
        "+build",
        "-*-",
        "coding:",
        "encoding:",
        "frozen_string_literal",
        "go:",
        "line ",
        "nolint",
        "rubocop:",
        "shellcheck",
        "typed:",
        "vim:",
        "warn_indent",
    ];
    let text = comment.strip_prefix('#').or(comment.strip_prefix("//"));
    comment.starts_with("#!")
        || text.is_some_and(|text| WORDS.iter().any(|word| text.trim_start().starts_with(word)))
}

/// Returns the first sentence of a docstring. The caller must have removed the quotes.
pub(super) fn doc_from_text(text: &str) -> Option<String> {
    first_sentence(text.lines())
}

/// Returns the lines of a comment without their comment markers.
fn comment_lines(comment: &str) -> impl Iterator<Item = &str> {
    let comment = comment.trim();
    let inner = comment.strip_prefix("/*").map(|rest| rest.strip_suffix("*/").unwrap_or(rest));
    let block = inner.is_some();
    inner.unwrap_or(comment).lines().map(move |line| {
        let line = line.trim();
        if block {
            line.trim_start_matches(['*', '!'])
        } else {
            line.trim_start_matches(['/', '#', '!', '-', ':'])
        }
    })
}

/// Returns the first sentence of the first paragraph, cut to [`DOC_BYTES`]. The sentence ends at a tag, or at a
/// punctuation mark such as a full stop unless the next word starts with a lowercase letter.
fn first_sentence<'t>(lines: impl Iterator<Item = &'t str>) -> Option<String> {
    let mut sentence = String::new();
    for line in lines {
        let line = without_file_tag(line.trim());
        // Doxygen's and C#'s markers of the summary.
        let line = ["@brief ", "\\brief ", "<summary>"]
            .iter()
            .find_map(|word| line.strip_prefix(word))
            .unwrap_or(line);
        let (line, ends) = line.split_once("</summary>").map_or((line, false), |(line, _)| (line, true));
        if ends && line.trim().is_empty() && !sentence.is_empty() {
            break;
        }
        if line.is_empty() || line.starts_with('@') || line.starts_with("```") {
            if sentence.is_empty() && !line.starts_with('@') {
                continue;
            }
            break;
        }
        for word in line.split_whitespace() {
            if ends_sentence(&sentence) && !word.starts_with(char::is_lowercase) {
                return Some(sentence);
            }
            if sentence.len() + word.len() + 1 > DOC_BYTES {
                return (!sentence.is_empty()).then(|| sentence + " …");
            }
            if !sentence.is_empty() {
                sentence.push(' ');
            }
            sentence.push_str(word);
        }
    }
    (!sentence.is_empty()).then_some(sentence)
}

/// Removes a `@file` tag from the start of the line.
fn without_file_tag(line: &str) -> &str {
    let tags = ["@fileoverview", "@file", "@packageDocumentation"];
    tags.iter().find_map(|tag| line.strip_prefix(tag)).map_or(line, str::trim_start)
}

fn ends_sentence(text: &str) -> bool {
    let abbreviated = ["e.g.", "i.e.", "vs.", "cf."].iter().any(|short| text.ends_with(short));
    text.ends_with(['.', '!', '?', '。']) && !abbreviated
}
