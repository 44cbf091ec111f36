//! Which names a text has, and whether its file may have others that it does not spell.

use serde::{Deserialize, Serialize};

use crate::codebase::{
    Import, Kind, Language, Summary,
    words::{self, Names},
};

/// So small that every file's is kept. Of a name that is there it never says that it is not; the other way it is wrong
/// once in some thousand times: a name is asked of every file that has words like it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::codebase) struct Spelled {
    /// Those at [`places`] of each name.
    bits: Box<[u64]>,
    /// All names of another file, or what code makes up, may be there as well.
    more: bool,
}

/// Characters of a call that are looked at.
const CALL: usize = 200;

/// Bits kept for each name.
const BITS: usize = 20;

impl Spelled {
    pub(in crate::codebase) fn of(
        language: Language,
        text: &str,
        names: &Names<'_>,
        summary: &Summary,
    ) -> Self {
        let mut bits = vec![0_u64; (names.len() * BITS).div_ceil(64)].into_boxed_slice();
        for name in names.keys() {
            for place in places(hash(name), bits.len()) {
                bits[place / 64] |= 1 << (place % 64);
            }
        }
        Self { bits, more: makes_names(language, text, summary) }
    }

    /// Surely not, if not.
    pub(in crate::codebase) fn may_have(&self, name: &str) -> bool {
        let mut places = places(hash(name), self.bits.len());
        // What some languages have in names besides, like `$`, parts them here.
        !words::is_plain(name)
            || !self.bits.is_empty() && places.all(|place| self.bits[place / 64] & (1 << (place % 64)) != 0)
    }

    /// May the file have names that its text does not spell?
    pub(in crate::codebase) fn may_have_more(&self) -> bool {
        self.more
    }
}

/// The same everywhere and always, for it is kept.
pub(super) fn hash(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The bits of a name among those of so many words.
fn places(hash: u64, words: usize) -> impl Iterator<Item = usize> {
    let bits = (words * 64).max(1) as u64;
    let (first, step) = (hash >> 32, (hash & 0xffff_ffff) | 1);
    (0..8).map(move |at| (first.wrapping_add(step.wrapping_mul(at)) % bits) as usize)
}

/// Signs of it in a text, by language.
fn marks(language: Language) -> &'static [&'static str] {
    match language {
        Language::Rust => &["include!", "paste!", "concat_idents"],
        Language::Python => &[
            "import *",
            "__getattr__",
            "globals()",
            "locals()",
            "vars()",
            "setattr(",
            "exec(",
            "sys.modules[__name__]",
        ],
        Language::JavaScript | Language::TypeScript | Language::Tsx => &[
            "export *",
            "export =",
            "exports[",
            "...require(",
            "__exportStar",
            "__createBinding",
            "Object.assign(exports",
            "Object.assign(module",
            "Object.assign(this",
            "defineProperty(exports",
            "defineProperty(module",
            ".prototype,",
        ],
        Language::C | Language::Cpp => &["##", ".inc\"", ".def\"", ".inc>", ".def>"],
        Language::CSharp => &["partial "],
        Language::Java => &["lombok", "Generated"],
        Language::Ruby => {
            &["define_method", "method_missing", "include ", "extend ", "class_eval", "instance_eval"]
        }
        Language::Php => &["__call"],
        Language::Bash => &["eval ", "source ", "\n. "],
        Language::Go
        | Language::Json
        | Language::Makefile
        | Language::Markdown
        | Language::Other
        | Language::Toml
        | Language::Yaml => &[],
    }
}

fn makes_names(language: Language, text: &str, summary: &Summary) -> bool {
    let handed_on =
        |import: &Import| import.text.starts_with("pub") && import.names.iter().any(|name| name == "*");
    marks(language).iter().any(|mark| text.contains(mark))
        || (language == Language::Rust && calls_macro_of_items(text, summary))
        || (language == Language::Python && makes_types(text))
        || (language == Language::Php && text.lines().any(uses_trait))
        || (language == Language::JavaScript && exports_what_it_has_not_named(text))
        || summary.imports.iter().any(handed_on)
}

/// Outside functions, that is: in those a macro makes nothing that others could name.
fn calls_macro_of_items(text: &str, summary: &Summary) -> bool {
    let (mut functions, mut within) = (Vec::new(), summary.items.iter().collect::<Vec<_>>());
    while let Some(item) = within.pop() {
        match item.kind {
            Kind::Function | Kind::Method => functions.push((item.line, item.end)),
            _ => within.extend(&item.children),
        }
    }
    functions.sort_unstable();
    let mut lines = text.lines().zip(1_u32..).filter(|(line, _)| is_macro_of_items(line.trim_start()));
    lines.any(|(_, at)| {
        let before = functions.partition_point(|(line, _)| *line <= at);
        before.checked_sub(1).is_none_or(|last| functions[last].1 < at)
    })
}

/// A trait is used inside a class, and so never at the beginning of a line; a closure uses what is in brackets.
fn uses_trait(line: &str) -> bool {
    let used = line.trim_start().strip_prefix("use ");
    line.starts_with(char::is_whitespace) && used.is_some_and(|used| !used.trim_start().starts_with('('))
}

/// `type(name, bases, members)`, where `type(it)` only asks.
fn makes_types(text: &str) -> bool {
    text.match_indices("type(").any(|(at, call)| {
        let own = !text[..at].ends_with(|c: char| c.is_alphanumeric() || "_.".contains(c));
        let mut deep = 0_u32;
        let given = text[at + call.len()..].chars().take(CALL).take_while(|c| {
            deep = match c {
                '(' | '[' | '{' => deep + 1,
                ')' | ']' | '}' => deep.wrapping_sub(1),
                _ => deep,
            };
            deep != u32::MAX
        });
        own && given.filter(|c| *c == ',').count() > 1
    })
}

/// `module.exports = axios.create()`, `module.exports = { ...others }`.
fn exports_what_it_has_not_named(text: &str) -> bool {
    let mut exported = text.split("module.exports").skip(1).peekable();
    let spreads = exported.peek().is_some() && text.contains("...");
    let made = |rest: &str| {
        let value = rest.trim_start().strip_prefix('=').filter(|value| !value.starts_with('='));
        value.is_some_and(|value| !value.trim_start().starts_with('{'))
    };
    spreads || exported.any(made)
}

/// `tonic::include_proto!("cart");` at the beginning of a line: what it makes only its author knows. Those that merely
/// wrap what they are given spell it.
fn is_macro_of_items(line: &str) -> bool {
    let Some((path, rest)) = line.split_once('!') else { return false };
    let name = path.rsplit("::").next().unwrap_or(path);
    let legal = !path.is_empty() && path.chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
    let wraps = name.starts_with("cfg_")
        || name.contains("assert")
        || matches!(name, "compile_error" | "macro_rules" | "thread_local" | "pin_project");
    legal && !wraps && rest.trim_start().starts_with(['(', '{', '['])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codebase::summarize;

    fn spelled(language: Language, text: &str) -> Spelled {
        Spelled::of(language, text, &words::names(text), &summarize(language, text))
    }

    #[test]
    fn what_is_there_is_never_denied_and_little_else_is_said_to_be() {
        let names: Vec<String> = (0..2_000).map(|at| format!("name_{at}")).collect();
        let all = spelled(Language::Rust, &names.join(" ("));
        assert!(names.iter().all(|name| all.may_have(name)));
        let wrong = (0..10_000).filter(|at| all.may_have(&format!("other_{at}"))).count();
        assert!(wrong < 20, "{wrong} of 10000");
        assert!(
            !all.may_have("nam")
                && all.may_have("é")
                && all.may_have("x$")
                && all.may_have("r#type")
                && !spelled(Language::Rust, "").may_have("x")
        );
        let prose = spelled(Language::Markdown, "what pay_now—and „pay_later“—do");
        assert!(prose.may_have("pay_now") && prose.may_have("pay_later"));
    }

    #[test]
    fn macros_and_tricks_may_make_more() {
        for (language, text) in [
            (Language::Rust, "pub mod pb {}\ntonic::include_proto!(\"shop\");\n"),
            (Language::Rust, "slint::include_modules!();\n"),
            (Language::Rust, "pub use words::*;\n"),
            (Language::Python, "sys.modules[__name__] = _LazyModule(__name__)\n"),
            (Language::JavaScript, "module.exports = { ...require('./a') }\n"),
            (Language::JavaScript, "const a = require('./a');\nmodule.exports = {\n  ...a,\n};\n"),
            (Language::JavaScript, "module.exports = axios.create({});\n"),
            (Language::Python, "Cart = type(\"Cart\", (Base,), {})\n"),
            (Language::Rust, "impl Cart {\n    accessors!(total);\n    fn pay() {}\n}\n"),
            (Language::Ruby, "class Cart\n  include Sellable\nend\n"),
            (Language::Php, "<?php\nclass A {\n    use Sells;\n}\n"),
            (Language::C, "#define NAME(x) cart_##x\n"),
        ] {
            assert!(spelled(language, text).may_have_more(), "{text}");
        }
        for (language, text) in [
            (
                Language::Rust,
                "macro_rules! a { () => {} }\ncfg_rt! { mod a; }\nfn f() {\n    println!(\"\");\n}\n",
            ),
            (Language::JavaScript, "function pay() {}\nmodule.exports = { pay };\n"),
            (Language::TypeScript, "export const pay = Object.assign(base, { now: 1 });\n"),
            (Language::Python, "if type(item) is dict or isinstance(item, (a, b)):\n    pass\n"),
            (Language::Rust, "impl Cart {\n    fn pay() {\n        vec![1];\n    }\n}\n"),
            (Language::C, "#include \"cart.h\"\n"),
            (Language::Php, "<?php\nuse App\\Cart;\n"),
            (Language::Php, "<?php\n// what we use here\n$a = function ($b)\n    use ($c) { return $b; };\n"),
        ] {
            assert!(!spelled(language, text).may_have_more(), "{text}");
        }
    }
}
