//! Removes comments, to compare what is left of two texts.

use super::{grammar, parse};
use crate::codebase::{Language, is_comment};

/// Returns the text without comments, blank lines and blanks at line ends. In a text without a syntax tree, only whole
/// lines count as comments.
pub fn strip_comments(language: Language, text: &str) -> String {
    let tree = grammar::grammar_for(language).and_then(|grammar| {
        parse::begin_file(grammar, text);
        parse::parse_ranges(grammar, text, &[])
    });
    let is_parsed = tree.is_some();
    let (mut nodes, mut comments) = (Vec::new(), Vec::new());
    nodes.extend(tree.as_ref().map(tree_sitter::Tree::root_node));
    while let Some(node) = nodes.pop() {
        if node.kind().contains("comment") {
            comments.push(node.byte_range());
        } else {
            nodes.extend((0..node.child_count()).rev().filter_map(|child| node.child(child)));
        }
    }
    let (mut code, mut from) = (String::new(), 0);
    for comment in comments {
        code.push_str(&text[from..comment.start]);
        // Some comments include the line end.
        code.push_str(if text[comment.clone()].ends_with('\n') { "\n" } else { "" });
        from = comment.end;
    }
    code.push_str(&text[from..]);
    let lines = code.lines().map(str::trim_end);
    let kept = lines.filter(|line| !line.is_empty() && (is_parsed || !is_comment(language, line)));
    kept.map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_removed_and_look_alikes_are_kept() {
        for (language, text, kept) in [
            (
                Language::Rust,
                "/// A.\nfn a() { // b\n\n    \"// c\"; /* d */\n}\n",
                "fn a() {\n    \"// c\";\n}\n",
            ),
            (Language::Python, "# A.\nif a:\n    b = '# c'  # d\n", "if a:\n    b = '# c'\n"),
            (Language::Go, "/*\nA\n*/\nfunc a() {} // b\n", "func a() {}\n"),
            (Language::JavaScript, "// A.\nlet a = `// b`;\n", "let a = `// b`;\n"),
            (Language::Other, "# A.\na # b\n", "a # b\n"),
        ] {
            assert_eq!(strip_comments(language, text), kept);
        }
    }
}
