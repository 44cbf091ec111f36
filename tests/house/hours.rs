//! No test asserts how long something took: the machine may be busy. Count what is done; `cargo bench` times it.

use std::{fs, path::Path};

use syn::{
    Macro,
    visit::{self, Visit},
};

use crate::floors::sources;

/// The asserts of a file that a busy machine could fail.
#[derive(Default)]
struct Timed(Vec<String>);

impl<'ast> Visit<'ast> for Timed {
    fn visit_macro(&mut self, node: &'ast Macro) {
        let asserts =
            node.path.segments.last().is_some_and(|last| last.ident.to_string().starts_with("assert"));
        let text = node.tokens.to_string();
        let compared = text.split(['<', '>']).next().filter(|before| before.len() < text.len());
        // Longer than its patience, a test only stops; longer than a time is what a clock of ours has seen to.
        let fast = text.contains('<') && !text.contains("PATIENCE");
        if asserts
            && fast
            && compared.is_some_and(|before| before.contains("elapsed") || before.contains("took"))
        {
            self.0.push(text);
        }
        visit::visit_macro(self, node);
    }
}

fn timed(text: &str) -> Vec<String> {
    let mut timed = Timed::default();
    timed.visit_file(&syn::parse_file(text).unwrap());
    timed.0
}

#[test]
fn no_test_asserts_wall_time() {
    let (mut paths, mut found) = (Vec::new(), Vec::new());
    for folder in ["src", "tests"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut paths);
    }
    for path in paths {
        let told = timed(&fs::read_to_string(&path).unwrap());
        found.extend(told.into_iter().map(|text| format!("{}: {text}", path.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn an_assert_of_wall_time_is_seen() {
    for (body, seen) in [
        ("assert!(begun.elapsed() < Duration::from_secs(5), \"{}\", 1);", 1),
        ("assert!(begun.elapsed().as_secs() < 5 && fine);", 1),
        ("assert!(outcome.took < SOON);", 1),
        ("assert!(begun.elapsed() < PATIENCE);", 0),
        ("assert!(waited.elapsed() >= LEAST);", 0),
        ("assert!(count < 5, \"{:?}\", begun.elapsed());", 0),
    ] {
        assert_eq!(timed(&format!("fn test() {{ {body} }}")).len(), seen, "{body}");
    }
}
