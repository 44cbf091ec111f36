use super::*;
use crate::documents::{Stray, Tree};

/// A repository that has nothing but one file.
struct Bare;

impl Tree for Bare {
    fn is_file(&self, path: &str) -> bool {
        path == "src/a.rs"
    }
    fn is_dir(&self, path: &str) -> bool {
        path == "src"
    }
    fn nearest(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

impl Repository for Bare {
    fn is_code(&self, path: &str) -> bool {
        path.ends_with(".rs")
    }
    fn symbol(&self, _: Option<&str>, _: &str) -> Known {
        Known::No { nearest: vec!["`a`\u{202e}\n".repeat(100)] }
    }
    fn strays(&self, block: &Block<'_>) -> Vec<Stray> {
        vec![Stray { module: block.code.to_owned(), name: None, nearest: Vec::new() }]
    }
}

#[test]
fn no_text_makes_it_panic_and_no_message_is_long() {
    use crate::documents::lld::check::tests::nasty;
    let mut texts = nasty();
    let design = "# 1 - Feature: x\n\n## 2. Proposed Changes\n\n`src/b.rs` `a::b()` in `src/a.rs`\n\n```rust\nuse x;é (: =\n``` \n\n";
    texts.push(design.repeat(200));
    texts.extend(design.char_indices().map(|(at, _)| design[..at].to_owned()));
    for text in texts {
        let mistakes = names(&text, &Bare);
        assert!(mistakes.len() <= 3 * MOST);
        for mistake in mistakes {
            assert!(
                mistake.message.len() < 1500 && !mistake.message.contains(['\n', '\u{202e}']),
                "{mistake}"
            );
        }
    }
}
