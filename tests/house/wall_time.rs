//! Checks that no test asserts how long something took, because the machine may be busy. Tests should count events
//! instead; `cargo bench` measures time.

use std::{fs, path::Path};

use syn::{
    Macro,
    visit::{self, Visit},
};

use crate::layers::sources;

/// Collects the assertions of a file that could fail on a busy machine.
#[derive(Default)]
struct TimeAsserts(Vec<String>);

impl<'ast> Visit<'ast> for TimeAsserts {
    fn visit_macro(&mut self, node: &'ast Macro) {
        let asserts =
            node.path.segments.last().is_some_and(|last| last.ident.to_string().starts_with("assert"));
        let text = node.tokens.to_string();
        let compared = text.split(['<', '>']).next().filter(|before| before.len() < text.len());
        // An upper bound of PATIENCE only stops a stuck test, and lower bounds are kept by our own clocks.
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

fn time_asserts(text: &str) -> Vec<String> {
    let mut time_asserts = TimeAsserts::default();
    time_asserts.visit_file(&syn::parse_file(text).unwrap());
    time_asserts.0
}

#[test]
fn no_test_asserts_an_upper_bound_on_elapsed_time() {
    let (mut paths, mut found) = (Vec::new(), Vec::new());
    for folder in ["src", "tests"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut paths);
    }
    for path in paths {
        let asserts = time_asserts(&fs::read_to_string(&path).unwrap());
        found.extend(asserts.into_iter().map(|text| format!("{}: {text}", path.display())));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn assert_of_an_upper_bound_on_elapsed_time_is_detected() {
    for (body, seen) in [
        ("assert!(begun.elapsed() < Duration::from_secs(5), \"{}\", 1);", 1),
        ("assert!(begun.elapsed().as_secs() < 5 && fine);", 1),
        ("assert!(outcome.took < SOON);", 1),
        ("assert!(begun.elapsed() < PATIENCE);", 0),
        ("assert!(waited.elapsed() >= LEAST);", 0),
        ("assert!(count < 5, \"{:?}\", begun.elapsed());", 0),
    ] {
        assert_eq!(time_asserts(&format!("fn test() {{ {body} }}")).len(), seen, "{body}");
    }
}
