//! Finds names in a design that should be in the repository but are not.
//!
//! A qualified name is doubtful if no file contains its last part. Paths and imports are looked up too. Names that the
//! design declares are accepted. Qualified names whose first part is not defined in this repository are also accepted,
//! because they belong to a dependency. A name that nearly matches a real name is an error. Any other unknown name is
//! only a warning for the reviewer, because a false error would send a good design back.

use std::collections::{BTreeMap, BTreeSet};

use super::{ChangeType, DocumentSchema, ParsedDesign, SCHEMA, parse};
use crate::documents::{
    CodebaseLookup, DocumentMistake,
    markdown::{self, MarkdownOutline},
    path_rules, quotable_path,
};

/// Maximum number of mistakes reported per kind.
const NAMED_MISTAKES: usize = 12;

/// Maximum number of words that are looked up. Each look-up scans all files, which takes a millisecond in the largest
/// repository.
const NAMED_WORDS: usize = 2_000;
const NAMED_BLOCKS: usize = 100;

/// Maximum number of unknown words, and of unknown paths, for each of which a similar name or path is looked up in the
/// repository.
const NAMED_UNKNOWN: usize = 200;

/// Keywords that refer to the enclosing scope in code.
const SELF_WORDS: [&str; 5] = ["Self", "crate", "self", "super", "this"];

/// Names of standard libraries that designs mention without their types.
const STANDARD_NAMES: &str = "utcoffset startswith endswith isoformat fromisoformat splitlines partition rpartition rsplit \
    casefold setdefault popitem fromkeys removeprefix removesuffix isdigit isalnum isalpha isspace zfill hexdigest strftime \
    strptime fromtimestamp astimezone timedelta total_seconds read_text write_text read_bytes write_bytes is_file is_dir \
    to_bytes from_bytes is_integer bit_length add_argument parse_args perf_counter from_iterable lru_cache cached_property \
    zip_longest format_map \
    to_string to_owned as_str as_ref as_mut as_bytes into_iter iter_mut is_empty is_some is_none is_ok is_err unwrap_or \
    unwrap_or_else unwrap_or_default map_or map_or_else map_err ok_or ok_or_else and_then or_else filter_map flat_map \
    take_while skip_while to_lowercase to_uppercase to_ascii_lowercase to_ascii_uppercase eq_ignore_ascii_case strip_prefix \
    strip_suffix starts_with ends_with split_once rsplit_once split_at split_whitespace split_terminator trim_start trim_end \
    trim_matches from_str from_utf8 from_utf8_lossy try_from try_into checked_add checked_sub checked_mul checked_div \
    saturating_add saturating_sub saturating_mul wrapping_add wrapping_sub wrapping_mul overflowing_add from_str_radix \
    is_ascii_digit is_alphanumeric char_indices read_to_string write_all sort_by_key sort_unstable assert_eq assert_ne \
    debug_assert catch_unwind should_panic size_hint \
    toString toLowerCase toUpperCase startsWith endsWith indexOf lastIndexOf charCodeAt codePointAt fromCharCode replaceAll \
    matchAll padStart padEnd trimStart trimEnd forEach flatMap findIndex findLast reduceRight toISOString getTime \
    getTimezoneOffset toFixed toSorted parseInt parseFloat isNaN isInteger isSafeInteger isArray hasOwn hasOwnProperty \
    fromEntries defineProperty setTimeout clearTimeout setInterval queueMicrotask structuredClone encodeURIComponent \
    decodeURIComponent deepEqual deepStrictEqual strictEqual readFile readFileSync writeFile addEventListener";

/// Keywords that declare the name after them.
const DECLARING: [&str; 11] =
    ["fn", "def", "func", "function", "class", "struct", "enum", "trait", "interface", "type", "const"];

/// Words in prose that introduce the name after them as new, as in "a new function `parse_zone`".
const INTRODUCING: [&str; 3] = ["helper", "new", "private"];

/// Reports paths, words and imports in a design that do not exist in the repository.
pub fn check_names(text: &str, repository: &dyn CodebaseLookup) -> Vec<DocumentMistake> {
    check_names_in(SCHEMA, text, &parse(text), repository)
}

/// Like [`check_names`], for a document with another schema.
pub(in crate::documents) fn check_names_in(
    schema: &DocumentSchema,
    text: &str,
    lld: &ParsedDesign,
    repository: &dyn CodebaseLookup,
) -> Vec<DocumentMistake> {
    let outline = &markdown::parse_outline(text);
    let mut design = DesignNameChecker {
        text,
        schema,
        lld,
        outline,
        repository,
        declared_words: BTreeSet::new(),
        new_words: BTreeSet::new(),
    };
    design.collect_declared_words();
    let mut out = design.check_paths();
    let (imports, reported) = design.check_imports();
    out.extend(imports);
    out.extend(design.check_words(reported));
    out
}

struct DesignNameChecker<'a> {
    text: &'a str,
    schema: &'a DocumentSchema,
    lld: &'a ParsedDesign,
    outline: &'a MarkdownOutline,
    repository: &'a dyn CodebaseLookup,
    /// Words that the design declares, in code or in the table rows of added files.
    declared_words: BTreeSet<&'a str>,
    /// Words in sections about new code that no file of the repository contains.
    new_words: BTreeSet<&'a str>,
}

/// A name with its qualifiers, such as `Store::open`.
struct QualifiedName<'a> {
    text: &'a str,
    parts: Vec<&'a str>,
    /// Code before the name; `after` is the code after it.
    before: &'a str,
    after: &'a str,
}

impl<'a> DesignNameChecker<'a> {
    /// Returns the number of the innermost section at this offset.
    fn section_number(&self, at: usize) -> &'a str {
        // Sections are in text order, so the last match is the innermost.
        let section = self.lld.sections.iter().rfind(|section| section.body.contains(&at));
        section.map_or("", |section| section.number.as_str())
    }

    fn section_title(&self, at: usize) -> String {
        self.schema.section_title(self.section_number(at)).to_owned()
    }

    /// Returns the pieces of code, each with its offset and a flag that is true for a code block. Chapters about tests
    /// and fixtures are left out, because the names in them are made up.
    fn code_pieces(&self) -> impl Iterator<Item = (&'a str, usize, bool)> {
        let blocks = self.outline.code_blocks.iter().take(NAMED_BLOCKS);
        let blocks = blocks.map(|block| (block.text.as_str(), block.range.start, true));
        let spans = self.outline.code_spans.iter().map(|span| (span.text.as_str(), span.range.start, false));
        spans.chain(blocks).filter(|(_, at, _)| !self.chapter_number(*at).is_empty() && !self.is_fixture(*at))
    }

    fn chapter_number(&self, at: usize) -> &'a str {
        self.section_number(at).split('.').next().unwrap_or_default()
    }

    fn is_fixture(&self, at: usize) -> bool {
        self.schema.fixture_chapters.contains(&self.chapter_number(at))
    }

    fn collect_declared_words(&mut self) {
        for row in self.lld.files.iter().filter(|row| row.change == Some(ChangeType::Add)) {
            let chains = qualified_names(&row.path).chain(qualified_names(&row.description));
            self.declared_words.extend(chains.flat_map(|chain| chain.parts));
        }
        let (mut own, mut mentions) = (BTreeSet::new(), BTreeSet::new());
        for (code, at, block) in self.code_pieces() {
            let is_new = self.schema.new_sections.contains(&self.section_number(at));
            for chain in qualified_names(code) {
                if is_new {
                    mentions.extend(chain.parts.iter().copied());
                }
                let is_introduced = !block && chain.before.is_empty() && self.is_introduced(at);
                if is_introduced || (block || is_new) && chain.is_declared(is_new) {
                    own.extend(chain.parts.last().copied());
                }
            }
        }
        self.declared_words.append(&mut own);
        let unknown = mentions.into_iter().take(NAMED_WORDS).filter(|word| !self.repository.has_word(word));
        self.new_words = unknown.collect();
    }

    /// Returns whether the prose before the code span at this offset introduces its name as new.
    fn is_introduced(&self, at: usize) -> bool {
        let line = self.text[..at].rsplit('\n').next().unwrap_or_default();
        let words = line.split(|c: char| !c.is_alphanumeric()).rev().filter(|word| !word.is_empty());
        let mut words = words.take(2).map(str::to_ascii_lowercase);
        !self.is_claimed(at) && words.any(|word| INTRODUCING.contains(&word.as_str()))
    }

    /// Returns whether the prose around the code span at this offset says that its name exists: "the existing `a_b`", or
    /// "`a_b` of `src/a.rs`" or "`src/a.rs::a_b`" with a file of the repository.
    fn is_claimed(&self, at: usize) -> bool {
        let line = self.text[..at].rsplit('\n').next().unwrap_or_default();
        let mut words = line.split_whitespace().rev().take(3);
        let (code, behind) = self.text[at..].trim_start_matches('`').split_once('`').unwrap_or_default();
        let place = [" of `", " in `", " from `"].iter().find_map(|word| behind.strip_prefix(word));
        let place = place.and_then(|place| place.split('`').next()).or(leading_path(code));
        words.any(|word| word.eq_ignore_ascii_case("existing"))
            || place.is_some_and(|place| self.repository.tree().is_file(place))
    }

    /// Reports files and folders that do not exist and that the design does not add.
    fn check_paths(&self) -> Vec<DocumentMistake> {
        let mut seen = BTreeSet::new();
        let paths = self.code_pieces().filter(|(_, _, block)| !block);
        let paths = paths.filter_map(|(span, at, _)| Some((leading_path(span)?, at)));
        let paths =
            paths.filter(|(path, _)| path_rules::refusal_reason(path).is_none() && seen.insert(*path));
        let strange = paths.take(NAMED_UNKNOWN).filter_map(|(named, at)| {
            let listed = |row: &str| {
                is_within(named, row) || is_within(row, named) || row.ends_with(&format!("/{named}"))
            };
            let known = self.lld.files.iter().any(|row| listed(row.path.trim_end_matches('/')));
            if known || self.repository.may_contain(named) {
                return None;
            }
            let near = self.repository.tree().nearest_paths(named).into_iter().next();
            let file = named.rsplit('/').next().unwrap_or(named);
            let moved = near.as_ref().is_some_and(|near| near.rsplit('/').next() == Some(file));
            let here = self.repository.tree().is_dir(named.split('/').next().unwrap_or_default());
            let hint = near.map_or_else(
                || "fix the path or add a row".to_owned(),
                |near| format!("did you mean `{}`?", quotable_path(&near)),
            );
            let message = format!(
                "`{}` is named here, but it neither exists nor is in {}; {hint}",
                quotable_path(named),
                self.schema.section_title(self.schema.files_section)
            );
            // Without an extension it may be something other than a file.
            let is_file = file.trim_start_matches('.').contains('.');
            let mistake =
                DocumentMistake::error("names.path", self.section_title(at), message).with_name(named);
            (here || is_file && moved).then(|| mistake.downgrade_unless(here && is_file))
        });
        strange.take(NAMED_MISTAKES).collect()
    }

    /// Reports imports that do not resolve. Also returns the reported names.
    fn check_imports(&self) -> (Vec<DocumentMistake>, BTreeSet<String>) {
        let files: Vec<&str> = self.lld.files.iter().map(|row| row.path.trim_end_matches('/')).collect();
        let (mut out, mut reported) = (Vec::new(), BTreeSet::new());
        for block in self.outline.code_blocks.iter().take(NAMED_BLOCKS) {
            if self.is_fixture(block.range.start) {
                continue;
            }
            for stray in self.repository.unresolved_imports(&block.tag, &block.text, &files) {
                let (module, name) = (quotable_path(&stray.module), quotable_path(&stray.name));
                let whole = stray.module.contains(&stray.name);
                let own = !whole && self.declared_words.contains(stray.name.as_str());
                if out.len() == NAMED_MISTAKES || own || !reported.insert(stray.name) {
                    continue;
                }
                let what = if whole { format!("`{module}`") } else { format!("`{name}` of `{module}`") };
                let hint = stray.nearest.map_or_else(
                    || "import what exists, or add a row".to_owned(),
                    |near| format!("did you mean `{}`?", quotable_path(&near)),
                );
                let message = format!(
                    "{what} is imported, but it neither exists nor is added in {}; {hint}",
                    self.schema.section_title(self.schema.files_section)
                );
                let mistake =
                    DocumentMistake::error("names.import", self.section_title(block.range.start), message);
                out.push(mistake.with_name(&format!("{module} {name}")).downgrade_unless(stray.is_certain));
            }
        }
        (out, reported)
    }

    /// Reports words in code and prose that no file contains.
    fn check_words(&self, mut reported: BTreeSet<String>) -> Vec<DocumentMistake> {
        let (mut known, mut unknown) = (BTreeSet::new(), BTreeMap::new());
        let mut out: Vec<DocumentMistake> = Vec::new();
        for (code, at, block) in self.code_pieces() {
            let behind = leading_path(code).filter(|_| !block).map_or(code, |path| &code[path.len()..]);
            for chain in qualified_names(behind) {
                let doubted = if block { &[] } else { self.doubtful_parts(&chain, at) };
                for word in chain.parts.iter().copied().filter(|word| chain.may_be_name(word)) {
                    if self.declared_words.contains(word) || reported.contains(word) || known.contains(word) {
                        continue;
                    }
                    if !unknown.contains_key(word) {
                        if known.len() == NAMED_WORDS || unknown.len() == NAMED_UNKNOWN {
                            continue;
                        }
                        if self.repository.has_word(word) {
                            known.insert(word);
                            continue;
                        }
                    }
                    let near = unknown.entry(word).or_insert_with(|| self.repository.closest_name(word));
                    if near.is_some() || doubted.contains(&word) {
                        reported.insert(word.to_owned());
                        out.push(self.unknown_word_mistake(word, &chain, near.as_deref(), at));
                    }
                }
            }
        }
        out.sort_by_key(|mistake| !mistake.is_error());
        out.truncate(NAMED_MISTAKES);
        out
    }

    fn unknown_word_mistake(
        &self,
        word: &str,
        chain: &QualifiedName<'_>,
        near: Option<&str>,
        at: usize,
    ) -> DocumentMistake {
        let sure = near.is_some() && (word == chain.parts[0] || !self.is_foreign(chain));
        let hint = near.map_or_else(
            || "name one that is there.".to_owned(),
            |near| format!("did you mean `{}`?", quotable_path(near)),
        );
        let message = format!(
            "`{}` is not in this repository: no file has the word `{}`; {hint} A new one has its signature in {}",
            quotable_path(chain.text),
            quotable_path(word),
            self.schema.section_title(self.schema.signatures_section)
        );
        let mistake = DocumentMistake::error("names.word", self.section_title(at), message).with_name(word);
        mistake.downgrade_unless(sure && self.repository.has_read_all())
    }

    /// Returns whether a qualified name starts with a name that this repository does not define. Such a name belongs to
    /// a dependency.
    fn is_foreign(&self, chain: &QualifiedName<'_>) -> bool {
        let first = chain.parts[0];
        chain.parts.len() > 1 && !SELF_WORDS.contains(&first) && !self.repository.defines_name(first)
    }

    /// Returns the parts of a name that must occur in the repository's code. The result is empty unless the name is in
    /// prose about existing code.
    fn doubtful_parts<'c>(&self, chain: &'c QualifiedName<'a>, at: usize) -> &'c [&'a str] {
        let speaks = self.schema.prose_chapters.contains(&self.chapter_number(at));
        let quoted = chain.before.ends_with(['"', '\'', '-', '/', '@', '$', '%']);
        // Members of a new type are new, too.
        let is_new = chain.parts.iter().any(|part| self.new_words.contains(part));
        if !speaks || quoted || is_new || !self.repository.has_read_all() {
            return &[];
        }
        match chain.parts.as_slice() {
            // Any other name may be a local variable, an attribute, or new.
            [name] if chain.is_called() && name.len() > 2 || is_code_word(name) && self.is_claimed(at) => {
                &chain.parts
            }
            // The code would spell a dependency's type somewhere, so an unknown one is doubtful.
            [first, ..] if self.is_foreign(chain) => {
                if is_code_word(first) {
                    &chain.parts[..1]
                } else {
                    &[]
                }
            }
            [_, _, ..] => &chain.parts,
            _ => &[],
        }
    }
}

impl QualifiedName<'_> {
    fn is_called(&self) -> bool {
        self.after.starts_with('(')
    }

    /// Returns whether the word may be a name in code. A single plain word is treated as prose.
    fn may_be_name(&self, word: &str) -> bool {
        let shaped = is_code_word(word) || word.starts_with(char::is_uppercase);
        let known = SELF_WORDS.contains(&word) || STANDARD_NAMES.split(' ').any(|name| name == word);
        !known && (self.parts.len() > 1 || shaped || self.is_called())
    }

    /// Returns whether the code around the name declares it: the name follows a keyword, or it precedes `:` or `=`.
    fn is_declared(&self, in_signature: bool) -> bool {
        let (before, after) = (self.before.trim_end_matches([' ', '\t', '*', '&']), self.after.trim_start());
        let keyword = before.rsplit(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
        if self.parts.len() == 1 && before.len() < self.before.len() && DECLARING.contains(&keyword) {
            return true;
        }
        let word = before.len() < self.before.len() && before.ends_with(|c: char| c.is_ascii_lowercase());
        let follows = after.starts_with([':', '?']) && !after.starts_with("::")
            || after.starts_with('=') && !after.starts_with("==")
            || in_signature && after.starts_with(['(', '<', '[']);
        self.parts.len() == 1 && (word && in_signature || follows)
    }
}

/// Returns the names in a piece of code.
fn qualified_names(code: &str) -> impl Iterator<Item = QualifiedName<'_>> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = 0;
    std::iter::from_fn(move || {
        loop {
            let start = rest + code[rest..].find(part)?;
            let mut end = start;
            let mut parts = Vec::new();
            loop {
                let length = code[end..].find(|c| !part(c)).unwrap_or(code.len() - end);
                parts.push(&code[end..end + length]);
                end += length;
                let joint =
                    ["::", "?.", "->", ".", "#"].into_iter().find(|joint| code[end..].starts_with(joint));
                let next = joint.map(|joint| end + joint.len());
                match next.filter(|next| code[*next..].starts_with(part)) {
                    Some(next) => end = next,
                    None => break,
                }
            }
            rest = end;
            parts.retain(|part| !part.starts_with(|c: char| c.is_ascii_digit()));
            if !parts.is_empty() {
                return Some(QualifiedName {
                    text: &code[start..end],
                    parts,
                    before: &code[..start],
                    after: &code[end..],
                });
            }
        }
    })
}

/// Returns whether the word is spelled like an identifier.
fn is_code_word(word: &str) -> bool {
    let inner = word.trim_matches('_');
    inner.contains('_')
        || inner.chars().zip(inner.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase())
}

/// Returns the path at the start of a code span, without a line number or name after the path. Returns `None` if the
/// span does not start with a path.
fn leading_path(span: &str) -> Option<&str> {
    let path = span.split([':', '#']).next().unwrap_or(span);
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-./@+".contains(c);
    let is_path =
        path.contains('/') && path.chars().all(legal) && !path.contains("...") && !path.ends_with("://");
    (is_path && !span[path.len()..].starts_with("://")).then_some(path)
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
pub(super) mod tests;
