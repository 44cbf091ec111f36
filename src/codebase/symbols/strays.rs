//! Imports of this repository's own modules that are not there.
//!
//! Where an import leads is for the resolver to say, over the commit's paths and those that the design adds. Whose file a
//! block is of nobody says: it may be of any that the design changes, and wrong is only what is wrong from all of them.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
};

use super::{Definition, File, Item, Symbols, attributes, definitions_of, nearest};
use crate::{
    codebase::{
        Import, Kind, Language, Resolved, Resolver,
        imports::{Lead, folder_of, join, relative as relative_to, stem, upwards},
        summarize,
        tree::file_name,
    },
    documents::{Block, Design, Stray},
    limits,
};

/// Files that a block of code may be of, as far as they are tried.
const NAMED_PLACES: usize = 20;

/// The languages whose structure is read, by what documents call them.
pub(super) fn language(tag: &str) -> Option<Language> {
    Some(match tag {
        "rust" | "rs" => Language::Rust,
        "python" | "py" | "python3" => Language::Python,
        "go" | "golang" => Language::Go,
        "javascript" | "js" | "jsx" | "mjs" => Language::JavaScript,
        "typescript" | "ts" => Language::TypeScript,
        "tsx" => Language::Tsx,
        "java" => Language::Java,
        "c" => Language::C,
        "cpp" | "c++" => Language::Cpp,
        "csharp" | "cs" | "c#" => Language::CSharp,
        "ruby" | "rb" => Language::Ruby,
        "php" => Language::Php,
        "bash" | "sh" | "shell" => Language::Bash,
        _ => return None,
    })
}

/// A design's imports with where they may stand.
struct Imports<'s> {
    symbols: &'s Symbols<'s>,
    resolver: Resolver<'s>,
    design: &'s Design<'s>,
    packages: OnceCell<Packages<'s>>,
    found: Vec<(usize, Stray)>,
    seen: BTreeSet<(String, Option<String>)>,
}

/// Files by what imports call the package or folder that they are of. Those of C also by the folder they are in, with a
/// `/` before it.
type Packages<'s> = BTreeMap<(Language, String), Vec<&'s str>>;

/// Every import of the design's blocks that is of what is not there, with the place of its block.
pub(super) fn of<'s>(symbols: &'s Symbols<'s>, design: &'s Design<'s>) -> Vec<(usize, Stray)> {
    let mut paths: Vec<&str> = symbols.tree.files().chain(design.added.iter().copied()).collect();
    paths.sort_unstable();
    let resolver =
        Resolver::over(symbols.index, paths).named(symbols.outside.crates(), symbols.outside.go_modules());
    let (packages, found, seen) = (OnceCell::new(), Vec::new(), BTreeSet::new());
    let mut imports = Imports { symbols, resolver, design, packages, found, seen };
    let mut left = limits::NAMED_IMPORTS;
    for (at, block) in design.blocks.iter().enumerate() {
        let Some(language) = language(block.tag).or_else(|| untold(block, design)) else { continue };
        for import in &read(language, block) {
            // What is like one that is not there is looked for among all files.
            let many = imports.found.len() >= limits::NAMED_MISTAKES
                || imports.seen.len() >= 4 * limits::NAMED_MISTAKES;
            if left == 0 || many {
                return imports.found;
            }
            left = left.saturating_sub(import.names.len().max(1));
            imports.judge(at, language, import);
        }
    }
    imports.found
}

/// A block's language that nobody told: that of all code the design changes, if the block parses as such.
fn untold(block: &Block<'_>, design: &Design<'_>) -> Option<Language> {
    let mut languages =
        design.files.iter().map(|path| Language::of(path)).filter(|language| language.is_code());
    let first = languages.next().filter(|_| block.tag.is_empty())?;
    let alone = languages.all(|language| group(language) == group(first));
    (alone && !summarize(first, block.code).partial).then_some(first)
}

fn read(language: Language, block: &Block<'_>) -> Vec<Import> {
    let code = match language {
        Language::Php if !block.code.contains("<?") => format!("<?php\n{}", block.code),
        _ => block.code.to_owned(),
    };
    summarize(language, &code).imports
}

impl<'s> Imports<'s> {
    fn judge(&mut self, at: usize, language: Language, import: &Import) {
        if let Some(stray) = self.mistyped(language, import) {
            if self.seen.insert((stray.module.clone(), None)) {
                self.found.push((at, stray));
            }
            return;
        }
        let places = self.places(language, import);
        let readings = readings(language, import);
        if let Some(lost) = self.wrong_everywhere(&places, &readings, |from, import, lead| {
            self.lost(language, from, import, lead)
        }) {
            let last = lost.part.rsplit(['/', '.']).next().unwrap_or_default();
            let likewise = |from: &str, import: &Import, lead: &Lead<'s>| match lead.rest.is_empty() {
                true => lead.folder == lost.folder && import.names.contains(&lost.part),
                false => missing(from, import, lead).is_some_and(|path| path == lost.path),
            };
            let known = self.design.declares.contains(last)
                || self.is_imported(language, file_name(&lost.part), likewise);
            if !known && self.seen.insert((lost.module.clone(), None)) {
                let told = self.told(language, lost).map(|stray| (at, stray));
                self.found.extend(told);
            }
            return;
        }
        for name in
            import.names.iter().filter(|name| !matches!(name.as_str(), "*" | "self" | "default" | "crate"))
        {
            let lacking = |from: &str, import: &Import, lead: &Lead<'s>| {
                self.lacking(language, from, import, lead, name)
            };
            let Some(path) = self.wrong_everywhere(&places, &readings, lacking) else { continue };
            // What is relative to a file that nobody named is sure only if it is a slip.
            let slip = || {
                self.symbols.whole(path).is_some_and(|file| nearest::has_slip(&definitions_of(file), name))
            };
            if readings.len() > 1 && !slip() {
                continue;
            }
            let likewise = |_: &str, import: &Import, lead: &Lead<'s>| {
                lead.rest.is_empty() && lead.file == Some(path) && import.names.contains(name)
            };
            let known = self.design.declares.contains(name) || self.is_imported(language, name, likewise);
            if !known && self.seen.insert((import.module.clone(), Some(name.clone()))) {
                let stray = Stray {
                    module: import.module.clone(),
                    nearest: self.symbols.nearest(name, Some(path)),
                    name: Some((name.clone(), path.to_owned())),
                    sure: true,
                };
                self.found.push((at, stray));
            }
        }
    }

    /// What is wrong from every place where it means something and wherever it leads, as it is first.
    fn wrong_everywhere<T>(
        &self,
        places: &[String],
        readings: &[Import],
        wrong: impl Fn(&str, &Import, &Lead<'s>) -> Wrong<T>,
    ) -> Option<T> {
        let mut first = None;
        for (from, import) in places.iter().flat_map(|from| readings.iter().map(move |import| (from, import)))
        {
            let leads = self.resolver.leads(from, import);
            if leads.is_empty() {
                return None;
            }
            for lead in &leads {
                match wrong(from, import, lead) {
                    Wrong::Yes(what) => first = first.or(Some(what)),
                    Wrong::No => return None,
                    Wrong::Elsewhere => {}
                }
            }
        }
        first
    }

    /// The files of that language among those the design changes. A crate's tests and tools are crates of their own, and
    /// which of them a block is of is not said either. None, if they are too many to be tried.
    fn places(&self, language: Language, import: &Import) -> Vec<String> {
        let changed = self.design.files.iter().filter(|path| group(Language::of(path)) == group(language));
        let mut places: Vec<String> = changed.take(NAMED_PLACES + 1).map(|path| (*path).to_owned()).collect();
        if language == Language::Rust && places.is_empty() {
            let roots =
                self.symbols.tree.files().filter(|path| matches!(file_name(path), "lib.rs" | "main.rs"));
            places.extend(roots.take(NAMED_PLACES + 1).map(str::to_owned));
        }
        if places.len() > NAMED_PLACES {
            return Vec::new();
        }
        if language != Language::Rust {
            return places;
        }
        if import.module.split("::").next() == Some("crate") {
            let sources = places.iter().flat_map(|path| upwards(folder_of(path)));
            let crates: BTreeSet<&str> =
                sources.filter(|folder| file_name(folder) == "src").map(folder_of).collect();
            let tools = ["tests/_.rs", "benches/_.rs", "examples/_.rs", "src/bin/_.rs"];
            let tools: Vec<String> =
                crates.iter().flat_map(|folder| tools.map(|tool| join(folder, tool))).collect();
            places.extend(tools);
        }
        places
    }

    /// The part of the import's module that is not there.
    fn lost(&self, language: Language, from: &str, import: &Import, lead: &Lead<'s>) -> Wrong<Lost> {
        if language == Language::Rust && lead.file.is_none() && import.module.starts_with("crate") {
            return Wrong::Elsewhere;
        }
        let Some(part) = lead.rest.first().cloned() else { return Wrong::No };
        // Styles, pictures and what else only a bundler knows.
        let name = file_name(&part);
        let script = group(language) == Language::JavaScript;
        let odd = script && name.contains('.') && !Language::of(name).is_code();
        if odd || !self.is_ours(language, lead, import) || part.contains(['?', '#', '!', '*', ' ']) {
            return Wrong::No;
        }
        let Some(path) = missing(from, import, lead).filter(|_| part != "super") else { return Wrong::No };
        // A script may be compiled from whatever else.
        let source = path.rsplit_once('.').filter(|_| script && name.contains('.')).map(|(source, _)| source);
        if self.may_be(&path) || source.is_some_and(|source| self.may_be(source)) {
            return Wrong::No;
        }
        // A part of a module may be no file, and stand in the one before.
        let inline = matches!(language, Language::Rust | Language::Python);
        // Python's folders need no file, and without one have nothing but modules.
        let bare =
            language == Language::Python && !lead.folder.is_empty() && self.resolver.is_folder(&lead.folder);
        let lacks = lead.file.map_or(bare, |file| self.lacks(file, &part));
        if inline && !lacks {
            return Wrong::No;
        }
        let module =
            if inline { format!("{}{part}", before(&import.module, &part)) } else { import.module.clone() };
        // What is relative to a file that nobody named may be relative to another.
        let relative = group(language) == Language::JavaScript
            || language == Language::Ruby
            || import.module.starts_with(['.'])
            || import.module.starts_with("self")
            || import.module.starts_with("super");
        let (folder, root) = (lead.folder.clone(), lead.root.clone());
        Wrong::Yes(Lost { module, part, path, from: from.to_owned(), folder, root, relative })
    }

    /// Do files import it as well? Then something makes it that does not show.
    fn is_imported(
        &self,
        language: Language,
        name: &str,
        by: impl Fn(&str, &Import, &Lead<'s>) -> bool,
    ) -> bool {
        let files = self.symbols.index.files().iter();
        let files =
            files.filter(|file| group(file.language) == group(language) && file.digest.may_spell(name));
        let imports =
            files.flat_map(|file| file.digest.summary().imports.iter().map(|import| (&file.path, import)));
        imports
            .filter(|(_, import)| import.module.contains(name) || import.names.iter().any(|own| own == name))
            .take(limits::IMPORT_CANDIDATES)
            .any(|(from, import)| self.resolver.leads(from, import).iter().any(|lead| by(from, import, lead)))
    }

    /// The file that should have this name, and has not.
    fn lacking(
        &self,
        language: Language,
        from: &str,
        import: &Import,
        lead: &Lead<'s>,
        name: &str,
    ) -> Wrong<&'s str> {
        if language == Language::Rust && lead.file.is_none() && import.module.starts_with("crate") {
            return Wrong::Elsewhere;
        }
        if !lead.rest.is_empty() {
            // A block is of a file from which its imports are right.
            return match self.lost(language, from, import, lead) {
                Wrong::No => Wrong::No,
                Wrong::Yes(_) | Wrong::Elsewhere => Wrong::Elsewhere,
            };
        }
        let there = !self.is_ours(language, lead, import)
            || self.resolver.within(language, lead, name).is_some()
            || self.may_be(&join(&lead.folder, name)) && language == Language::Python;
        match lead.file {
            Some(file) if !there && self.lacks(file, name) => Wrong::Yes(file),
            _ => Wrong::No,
        }
    }

    /// Does the import surely mean this repository, and not another package of the same name?
    fn is_ours(&self, language: Language, lead: &Lead<'_>, import: &Import) -> bool {
        let first = |separator| import.module.split(separator).next().unwrap_or_default();
        match language {
            Language::Rust => {
                let first = first("::");
                matches!(first, "crate" | "self" | "super") || self.resolver.is_named(first)
            }
            Language::Python if import.module.starts_with('.') => true,
            Language::Python => {
                let says = ["pyproject.toml", "setup.py", "setup.cfg"];
                let project = |folder: &str| {
                    folder.is_empty()
                        || says.iter().any(|file| self.symbols.tree.is_file(&join(folder, file)))
                };
                let root = lead.root.as_str();
                let below = matches!(file_name(root), "src" | "lib") && project(folder_of(root));
                (project(root) || below) && !self.symbols.outside.has_package(first("."))
            }
            // A package of that name may have been taken out of this repository, or be another version's.
            Language::Go => !upwards(&import.module)
                .take_while(|prefix| prefix.len() > lead.root.len())
                .any(|prefix| self.symbols.outside.has_package(prefix)),
            _ => true,
        }
    }

    /// Is it added, made by a build, or of another kind than what is read?
    fn may_be(&self, path: &str) -> bool {
        let tree = self.symbols.tree;
        let beside = format!("{path}.");
        let name = file_name(path);
        let made = name.contains("version") || name.ends_with("_pb2") || name.ends_with("_pb2_grpc");
        let endings = ["rs", "py", "ts", "js", "go", "rb"];
        let ignored =
            || endings.iter().any(|ending| self.symbols.outside.may_have(&format!("{path}.{ending}")));
        let added = |added: &str| added.starts_with(&beside) || upwards(path).any(|above| above == added);
        made || self.resolver.is_folder(path)
            || tree.beginning(&beside).next().is_some()
            || self.design.added.iter().copied().any(added)
            || self.symbols.outside.may_have(path)
            || ignored()
    }

    /// Has a file surely no such name?
    fn lacks(&self, path: &str, name: &str) -> bool {
        let Some(file) = self.symbols.whole(path) else { return false };
        // A decorator makes no names beside its own.
        let decorates = matches!(group(file.language), Language::JavaScript | Language::Python);
        let made = |found: &Definition<'_>| !decorates && attributes::make_names(&found.item.signature);
        // Macros of a crate are at its root, wherever they stand.
        let root = matches!(file_name(path), "lib.rs" | "main.rs");
        let elsewhere = root && (self.symbols.is_defined(name) || self.symbols.is_used(name));
        !elsewhere
            && !self.sees_through(file, name)
            && !file.digest.may_spell(name)
            && !file.digest.may_have_more()
            && !definitions_of(file).iter().any(made)
    }

    /// May it be found through a file that does not spell it?
    fn sees_through(&self, file: &File, name: &str) -> bool {
        let summary = file.digest.summary();
        match file.language {
            // Its modules see all that a file takes from others of the crate, be it handed on or not.
            Language::Rust => {
                let within = |line: u32, item: &Item| {
                    item.kind == Kind::Module && (item.line..=item.end).contains(&line)
                };
                let all = summary.imports.iter().filter(|import| import.names.iter().any(|name| name == "*"));
                let mut own = all.filter(|all| !summary.items.iter().any(|item| within(all.line, item)));
                own.next().is_some() && self.symbols.is_defined(name)
            }
            // A package may have parts elsewhere.
            Language::Python => ["__path__", "extend_path", "declare_namespace"]
                .iter()
                .any(|sign| file.digest.may_spell(sign)),
            _ => false,
        }
    }

    /// Where only a build knows the roots: a file of a name that no code has, and that is a slip of one which is imported
    /// from the same package or folder.
    fn mistyped(&self, language: Language, import: &Import) -> Option<Stray> {
        let module = import.module.trim_matches(['"', '\\']);
        let (separator, ending) = match language {
            Language::Java => ('.', "java"),
            Language::Php => ('\\', "php"),
            Language::C | Language::Cpp if import.text.contains('"') => {
                ('/', file_name(module).split_once('.')?.1)
            }
            _ => return None,
        };
        let (package, name) = module.rsplit_once(separator).unwrap_or(("", module));
        let name = stem(name);
        // All of a package, or a function of a namespace, is no file.
        if separator != '/' && !import.names.iter().any(|brought| brought == name) {
            return None;
        }
        let beside = |place: String| Some(format!("/{}", relative_to(folder_of(&place), package)?));
        let beside =
            self.places(language, import).into_iter().filter(|_| separator == '/').filter_map(beside);
        let packages = std::iter::once(package.to_owned()).chain(beside);
        // What tools make of a class is called like it.
        let made = |real: &str| name.ends_with('_') || name.get(1..).is_some_and(|rest| rest == real);
        let real = |path: &&str| {
            let (own, is) = file_name(path).split_once('.').unwrap_or_default();
            is == ending && !made(own)
        };
        let known = packages.filter_map(|package| self.packages().get(&(group(language), package)));
        let nearest = nearest::slips(name, known.flatten().copied().filter(real));
        let beside = |real: &String| join(folder_of(real), &format!("{name}.{ending}"));
        let unknown = !nearest.is_empty()
            && !self.resolver.is_stem(name)
            && !self.design.declares.contains(name)
            && !self.design.added.iter().any(|added| Language::of(added) == Language::Other)
            && !nearest.iter().any(|real| self.may_be(&beside(real)))
            && self.symbols.is_nowhere(name);
        unknown.then(|| Stray { module: import.module.clone(), name: None, nearest, sure: true })
    }

    fn packages(&self) -> &Packages<'s> {
        self.packages.get_or_init(|| {
            let (mut packages, mut included) = (Packages::new(), BTreeMap::new());
            for file in self.symbols.index.files() {
                let (language, summary) = (group(file.language), file.digest.summary());
                let mut is_of =
                    |name: String| packages.entry((language, name)).or_default().push(file.path.as_str());
                match language {
                    Language::Java | Language::Php => {
                        let modules = summary.items.iter().filter(|item| item.kind == Kind::Module);
                        modules.for_each(|module| is_of(module.name.clone()));
                    }
                    Language::C => {
                        is_of(format!("/{}", folder_of(&file.path)));
                        included.extend(summary.imports.iter().map(|import| (&import.module, import)));
                    }
                    _ => {}
                }
            }
            for (module, import) in included {
                if let Resolved::Files(files) = self.resolver.resolve("_.c", import) {
                    let folder = folder_of(module.trim_matches(['"', '<', '>'])).to_owned();
                    packages.entry((Language::C, folder)).or_default().extend(files);
                }
            }
            packages
        })
    }

    /// What is told of a module that is not there: nothing, if it may well be another file's and nothing is like it here.
    fn told(&self, language: Language, lost: Lost) -> Option<Stray> {
        let nearest = self.modules(language, &lost);
        let sure = !lost.relative || nearest.first().is_some_and(|near| nearest::is_near(near, &lost.module));
        (sure || !nearest.is_empty()).then_some(Stray { module: lost.module, name: None, nearest, sure })
    }

    /// Real modules near one that is not there, as the import would write them.
    fn modules(&self, language: Language, lost: &Lost) -> Vec<String> {
        let tree = self.symbols.tree;
        let beside = if lost.folder.is_empty() { String::new() } else { format!("{}/", lost.folder) };
        let wanted = nearest::mask(stem(file_name(&lost.part)));
        match language {
            Language::Rust | Language::Python => {
                let prefix = before(&lost.module, &lost.part);
                let names = tree.beginning(&beside).filter(|path| Language::of(path) == language).filter_map(
                    |path| {
                        let name = path[beside.len()..].split('/').next()?;
                        Some(stem(name).to_owned())
                            .filter(|name| !matches!(name.as_str(), "mod" | "lib" | "__init__"))
                    },
                );
                nearest::among(&lost.part, names).iter().map(|name| format!("{prefix}{name}")).collect()
            }
            Language::Go => {
                let folders = tree.beginning(&beside).filter(|path| path.ends_with(".go")).map(folder_of);
                let mut names: Vec<&str> = folders.filter_map(|folder| folder.get(beside.len()..)).collect();
                names.dedup();
                let near = nearest::among(&lost.part, names.into_iter().map(str::to_owned));
                near.iter().map(|name| format!("{}/{name}", lost.root)).collect()
            }
            Language::JavaScript | Language::TypeScript | Language::Tsx if lost.module != lost.part => {
                let prefix = lost.module.strip_suffix(lost.part.as_str()).unwrap_or_default();
                let names =
                    tree.beginning(&beside).filter(|path| group(Language::of(path)) == group(language));
                let names = names.filter_map(|path| path.rsplit_once('.')?.0.get(beside.len()..));
                let names = names.map(|name| name.strip_suffix("/index").unwrap_or(name));
                nearest::among(&lost.module, names.map(|name| format!("{prefix}{name}")))
            }
            _ => {
                let like = |path: &&str| {
                    let name = match stem(file_name(path)) {
                        "index" => file_name(folder_of(path)),
                        name => name,
                    };
                    group(Language::of(path)) == group(language)
                        && nearest::may_be_alike(wanted, nearest::mask(name))
                };
                let paths = tree.files().filter(like);
                nearest::among(&lost.part, paths.filter_map(|path| relative(folder_of(&lost.from), path)))
            }
        }
    }
}

/// What an import may mean. In a module inside a file, as tests are, `super` is that file.
fn readings(language: Language, import: &Import) -> Vec<Import> {
    let inside = import.module.strip_prefix("super").filter(|_| language == Language::Rust);
    let inside = std::iter::successors(inside, |rest| rest.strip_prefix("::super"));
    let inside = inside.take(limits::IMPORT_PARTS);
    let inside = inside.map(|rest| Import { module: format!("self{rest}"), ..import.clone() });
    std::iter::once(import.clone()).chain(inside).collect()
}

/// Where the first part of an import that is not there would be.
fn missing(from: &str, import: &Import, lead: &Lead<'_>) -> Option<String> {
    let part = lead.rest.first()?;
    let of_file =
        import.module == *part && (part.starts_with('.') || import.text.contains("require_relative"));
    relative_to(if of_file { folder_of(from) } else { &lead.folder }, part)
}

/// Is an import wrong, seen from one place?
enum Wrong<T> {
    Yes(T),
    No,
    /// It means nothing there.
    Elsewhere,
}

/// A module that is not there.
struct Lost {
    /// As the import has it, up to the part that is not there.
    module: String,
    part: String,
    path: String,
    from: String,
    /// Where that part should be.
    folder: String,
    root: String,
    relative: bool,
}

/// JavaScript and TypeScript import each other, as C and C++ do.
fn group(language: Language) -> Language {
    match language {
        Language::Cpp => Language::C,
        Language::Tsx | Language::TypeScript => Language::JavaScript,
        language => language,
    }
}

/// The module's path up to a part of it.
fn before(module: &str, part: &str) -> String {
    let separator = if module.contains("::") { "::" } else { "." };
    let kept: Vec<&str> = module.split(separator).take_while(|known| *known != part).collect();
    if kept.is_empty() { String::new() } else { format!("{}{separator}", kept.join(separator)) }
}

/// How a file in a folder imports another, without its ending.
fn relative(from: &str, path: &str) -> Option<String> {
    let ours: Vec<&str> = from.split('/').filter(|part| !part.is_empty()).collect();
    let theirs: Vec<&str> = path.split('/').collect();
    let common = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    let up = ours.len() - common;
    let rest = theirs[common..].join("/");
    let rest = rest.rsplit_once('.').map_or(rest.as_str(), |(stem, _)| stem);
    let rest = rest.strip_suffix(".d").unwrap_or(rest);
    let rest = rest.strip_suffix("/index").unwrap_or(rest);
    let start = if up == 0 { "./".to_owned() } else { "../".repeat(up) };
    (up <= 2 && !rest.is_empty()).then(|| format!("{start}{rest}"))
}
