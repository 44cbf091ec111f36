//! Names of types: each is found by its name alone.

use std::{collections::BTreeMap, fs, path::Path};

use syn::visit::{self, Visit};

use crate::floors::sources;

/// All types of a file, those in functions and test modules among them.
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
fn no_two_types_share_a_name() {
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
