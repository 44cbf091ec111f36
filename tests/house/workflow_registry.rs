//! Checks that every workflow has three parts: a file in `src/workflows/`, a `pub mod` line in `mod.rs`, and a row of
//! `ALL` in `mod.rs`. Without one of these lines, the file is not compiled or nobody can start the workflow.

use std::{collections::BTreeSet, fs, path::Path};

use countersign::workflows;
use syn::{Expr, Item};

fn workflows_dir() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/workflows")
}

/// Returns the module names of the files and directories in `src/workflows/`.
fn on_disk() -> BTreeSet<String> {
    fs::read_dir(workflows_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "mod.rs")
        .map(|name| name.strip_suffix(".rs").unwrap_or(&name).to_owned())
        .collect()
}

/// Returns the names of the modules that the file declares with `mod name;`.
fn declared(file: &syn::File) -> BTreeSet<String> {
    file.items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() => Some(module.ident.to_string()),
            _ => None,
        })
        .collect()
}

/// Returns the module name from each row of `ALL`, in order. A row has the form `&name::Type`.
fn in_all(file: &syn::File) -> Vec<String> {
    let all = file.items.iter().find_map(|item| match item {
        Item::Static(item) if item.ident == "ALL" => Some(&*item.expr),
        Item::Const(item) if item.ident == "ALL" => Some(&*item.expr),
        _ => None,
    });
    let Expr::Array(array) = strip_reference(all.expect("src/workflows/mod.rs has ALL")) else {
        panic!("ALL is not a plain array; write &[&lld::Lld]")
    };
    array
        .elems
        .iter()
        .map(|element| match strip_reference(element) {
            Expr::Path(path) if path.path.segments.len() == 2 => path.path.segments[0].ident.to_string(),
            _ => panic!("a row of ALL is not &module::Workflow"),
        })
        .collect()
}

fn strip_reference(expression: &Expr) -> &Expr {
    match expression {
        Expr::Reference(reference) => &reference.expr,
        other => other,
    }
}

fn parsed(source: &str) -> syn::File {
    syn::parse_file(source).unwrap()
}

#[test]
fn each_workflow_file_has_a_module_declaration_and_a_registry_entry() {
    let file = parsed(&fs::read_to_string(workflows_dir().join("mod.rs")).unwrap());
    let rows = in_all(&file);
    assert_eq!(on_disk(), declared(&file), "files in src/workflows, and `pub mod` lines in its mod.rs");
    assert_eq!(
        declared(&file),
        rows.iter().cloned().collect(),
        "`pub mod` lines, and rows of workflows::ALL"
    );
    let names: Vec<&str> = workflows::ALL.iter().map(|workflow| workflow.name()).collect();
    assert_eq!(names, rows, "each workflow is named after its file and is in ALL once");
}

#[test]
fn workflow_registry_parser_finds_modules_and_table_entries() {
    let file = parsed("pub mod lld; pub mod spec; pub static ALL: &[&dyn W] = &[&lld::Lld];");
    assert_eq!(declared(&file), ["lld", "spec"].map(str::to_owned).into());
    assert_eq!(in_all(&file), ["lld"]);
}
