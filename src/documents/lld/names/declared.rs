//! What a design declares in its code, or says to be new: that is not there, and need not be.

use std::collections::BTreeSet;

use super::{
    claims::{Claims, Said},
    words::{DECLARING, TYPES},
};
use crate::{
    documents::{Declares, Repository},
    limits,
};

#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Everything, types too.
    all: BTreeSet<String>,
    /// What these have is the design's own business, or another package's.
    types: BTreeSet<String>,
}

impl Declared {
    pub(super) fn of(claims: &Claims<'_>, repository: &dyn Repository) -> Self {
        let mut declared = Self::default();
        for (at, block) in claims.blocks().enumerate() {
            let code = || block.text.lines().scan(false, |inside, line| Some(without_imports(inside, line)));
            let number = claims.number(block.range.start);
            if number == "2.3" || number == "2.4" {
                // Here everything is new or changes, down to the last parameter.
                declared.all.extend(code().flat_map(identifiers).map(str::to_owned));
            }
            let read = (at < limits::NAMED_BLOCKS).then(|| repository.declares(&block.tag, &block.text));
            let read = read.unwrap_or_default();
            if !read.whole {
                code().for_each(|line| declared.line(line));
            }
            declared.extend(read);
        }
        let spans: Vec<&str> = claims.spans().map(|(span, _)| span.text.as_str()).collect();
        declared.types.extend(repository.declares("", &spans.join("\n")).others);
        for (span, said) in claims.spans() {
            declared.keywords(&span.text);
            let number = claims.number(span.range.start);
            if said == Said::Plain && (number == "2.3" || number == "2.4") {
                declared.all.extend(identifiers(&span.text).map(str::to_owned));
            }
            if said == Said::New && !span.text.contains('/') {
                let name = span.text.split('(').next().unwrap_or_default();
                let parts: Vec<&str> = identifiers(name).collect();
                declared.all.extend(parts.last().map(|name| (*name).to_owned()));
                // A new type has what the design says it has.
                if let [name] = parts.as_slice()
                    && name.starts_with(char::is_uppercase)
                {
                    declared.types.insert((*name).to_owned());
                }
            }
        }
        declared
    }

    /// Is the name of the design's own making, or of a type that is?
    pub(super) fn has(&self, name: &str) -> bool {
        let parts: Vec<&str> = identifiers(name).collect();
        let Some((last, owners)) = parts.split_last() else { return false };
        self.all.contains(*last) || owners.iter().any(|owner| self.types.contains(*owner))
    }

    pub(super) fn all(&self) -> &BTreeSet<String> {
        &self.all
    }

    fn extend(&mut self, read: Declares) {
        self.all.extend(read.names);
        self.all.extend(read.types.iter().cloned());
        self.types.extend(read.types);
        self.types.extend(read.others);
    }

    /// A line of what no parser reads: whatever follows a keyword, or stands before what a declaration goes on with.
    fn line(&mut self, line: &str) {
        self.keywords(line);
        for (at, mark) in line.match_indices(['(', ':', '=', ';', '{']) {
            let before = line[..at].trim_end();
            if !(mark == ":" && (line[at..].starts_with("::") || before.ends_with(':'))) {
                let name = before.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next();
                self.all.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
            }
        }
    }

    fn keywords(&mut self, code: &str) {
        let tokens = code.split(|c: char| c.is_whitespace() || "(){}<>[],;&*".contains(c));
        let mut before = "";
        for token in tokens.filter(|token| !token.is_empty()) {
            let is_type = TYPES.contains(&before);
            if (is_type || DECLARING.contains(&before))
                && !DECLARING.contains(&token)
                && !TYPES.contains(&token)
            {
                for name in identifiers(token) {
                    self.all.insert(name.to_owned());
                    if is_type {
                        self.types.insert(name.to_owned());
                    }
                }
            }
            before = token;
        }
    }
}

/// A line, if it is no part of an import, which may go on in brackets.
fn without_imports<'l>(inside: &mut bool, line: &'l str) -> &'l str {
    let start = line.trim_start();
    let begins = ["use ", "pub use ", "import ", "from ", "require", "#include", "using "];
    if !*inside && !begins.iter().any(|word| start.starts_with(word)) {
        return line;
    }
    let opens = line.contains(['{', '(']) && !line.contains(['}', ')']);
    *inside = if *inside { !line.contains(['}', ')']) } else { opens };
    ""
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}
