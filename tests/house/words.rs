//! Checks that type names are unique and that doc comments start with a noun or a verb.

use std::{collections::BTreeMap, fs, path::Path};

use syn::visit::{self, Visit};

use crate::layers::sources;

/// Collects the names of the types in a file, including types in functions and test modules.
#[derive(Default)]
struct TypeNames(Vec<String>);

impl<'s> Visit<'s> for TypeNames {
    fn visit_item(&mut self, item: &'s syn::Item) {
        let name = match item {
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.0.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }
}

#[test]
fn type_names_are_unique() {
    let (root, mut files) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
    sources(&root.join("src"), &mut files);
    let mut files_by_type: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &files {
        let mut names = TypeNames::default();
        names.visit_file(&syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap());
        let path = file.strip_prefix(root).unwrap().display().to_string();
        names.0.into_iter().for_each(|name| files_by_type.entry(name).or_default().push(path.clone()));
    }
    assert!(files_by_type.len() > 1_000, "{} types", files_by_type.len());
    let shared: Vec<_> = files_by_type.into_iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(shared.is_empty(), "give these names that say what each is without its module: {shared:#?}");
}

/// Words that open a noun clause, such as "What a run costs".
const CLAUSE_OPENERS: [&str; 7] = ["What", "Who", "Where", "How", "Of", "For", "That"];

const WEAK_PHRASES: [&str; 3] = ["is none", "are none", "is no "];

/// Returns the doc comments of a file. Each comes with the number of its first line.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut previous = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let Some(words) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
        match comments.last_mut() {
            Some((_, comment)) if previous + 1 == number => *comment += &format!("\n{}", words.trim()),
            _ => comments.push((number, words.trim().to_owned())),
        }
        previous = number;
    }
    comments
}

fn opens_with_clause(comment: &str) -> bool {
    let first = comment.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    CLAUSE_OPENERS.contains(&first)
}

#[test]
fn doc_comments_open_with_a_noun_or_a_verb() {
    assert!(opens_with_clause("What's left of the budget.") && !opens_with_clause("Whatever remains."));
    let (root, mut files) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
    sources(&root.join("src"), &mut files);
    sources(&root.join("tests"), &mut files);
    let (mut comments, mut clauses, mut weak) = (0, Vec::new(), Vec::new());
    for file in &files {
        let path = file.strip_prefix(root).unwrap().display();
        for (line, comment) in doc_comments(&fs::read_to_string(file).unwrap()) {
            comments += 1;
            if opens_with_clause(&comment) {
                clauses.push(format!("{path}:{line}: {comment}"));
            }
            if WEAK_PHRASES.iter().any(|phrase| comment.contains(phrase)) {
                weak.push(format!("{path}:{line}: {comment}"));
            }
        }
    }
    assert!(comments > 4_000, "{comments} doc comments");
    assert!(
        clauses.len() * 100 <= comments * 3,
        "{} of {comments} doc comments open with What, Who, Where, How, Of, For or That: {clauses:#?}",
        clauses.len()
    );
    assert!(weak.is_empty(), "say what it is instead of what it is not: {weak:#?}");
}
