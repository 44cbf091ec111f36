//! Detects the language of a file from its name and content.

use serde::{Deserialize, Serialize};

/// A language or notation that can be summarized. For the notations ([`Language::Json`] to [`Language::Yaml`]) and for
/// [`Language::Other`], the summary is at most an outline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Language {
    Bash,
    C,
    Cpp,
    CSharp,
    Go,
    Java,
    JavaScript,
    Php,
    Python,
    Ruby,
    Rust,
    Tsx,
    TypeScript,
    Json,
    Makefile,
    Markdown,
    /// Any format with `[section]` headers, including INI.
    Toml,
    Yaml,
    Other,
}

impl Language {
    /// Detects the language from the file's name alone.
    pub fn from_path(path: &str) -> Self {
        let name = super::tree::file_name(path);
        if let Some(language) = Self::from_file_name(name) {
            return language;
        }
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        if matches!(ending, "C" | "H") {
            return Self::Cpp; // uppercase endings mean C++
        }
        match ending.to_ascii_lowercase().as_str() {
            "bash" | "bats" | "command" | "ebuild" | "ksh" | "sh" | "zsh" => Self::Bash,
            "c" | "h" => Self::C,
            "c++" | "cc" | "cpp" | "cu" | "cuh" | "cxx" | "h++" | "hh" | "hpp" | "hxx" | "inl" | "ino"
            | "ipp" | "tpp" | "txx" => Self::Cpp,
            "cs" | "csx" => Self::CSharp,
            "go" => Self::Go,
            "java" => Self::Java,
            "cjs" | "js" | "jsx" | "mjs" => Self::JavaScript,
            "php" | "phpt" | "phtml" => Self::Php,
            "py" | "pyi" | "pyw" => Self::Python,
            "gemspec" | "jbuilder" | "podspec" | "rake" | "rb" | "ru" => Self::Ruby,
            "rs" => Self::Rust,
            "tsx" => Self::Tsx,
            "cts" | "mts" | "ts" => Self::TypeScript,
            "json" | "json5" | "jsonc" | "webmanifest" => Self::Json,
            "mak" | "make" | "mk" => Self::Makefile,
            "markdown" | "md" | "mdx" | "mkd" => Self::Markdown,
            "cfg" | "conf" | "desktop" | "ini" | "service" | "toml" => Self::Toml,
            "yaml" | "yml" => Self::Yaml,
            _ => Self::Other,
        }
    }

    /// Returns whether this is a programming language. For programming languages the full structure is read; for other
    /// formats only an outline.
    pub fn is_code(self) -> bool {
        !matches!(self, Self::Json | Self::Makefile | Self::Markdown | Self::Other | Self::Toml | Self::Yaml)
    }

    /// Detects the language from the file's name. If the name is ambiguous, also uses the file's text.
    pub fn from_path_and_text(path: &str, text: &str) -> Self {
        Self::from_path(path).refine_by_text(path.ends_with(".h"), text)
    }

    /// Refines a language that was detected from the file's name, by looking at the text.
    pub(super) fn refine_by_text(self, header: bool, text: &str) -> Self {
        match self {
            Self::C if header && looks_like_cpp(text) => Self::Cpp,
            // Scripts name their interpreter on the first line.
            Self::Other => from_first_line(text).unwrap_or(self),
            _ => self,
        }
    }

    fn from_file_name(name: &str) -> Option<Self> {
        Some(match name {
            ".bash_aliases" | ".bash_profile" | ".bashrc" | ".envrc" | ".profile" | ".zshrc" | "APKBUILD"
            | "PKGBUILD" => Self::Bash,
            "Appraisals" | "Berksfile" | "Brewfile" | "Capfile" | "Dangerfile" | "Fastfile" | "Gemfile"
            | "Guardfile" | "Podfile" | "Rakefile" | "Thorfile" | "Vagrantfile" => Self::Ruby,
            "SConscript" | "SConstruct" | "wscript" => Self::Python,
            "BSDmakefile" | "GNUmakefile" | "Makefile" | "Makefile.am" | "Makefile.in" | "makefile" => {
                Self::Makefile
            }
            ".editorconfig" | ".gitmodules" | "Pipfile" => Self::Toml,
            ".clang-format" | ".clang-tidy" => Self::Yaml,
            _ => return None,
        })
    }
}

/// Detects the language from the first line of a text, if that line starts with `#!` or `<?php`.
fn from_first_line(text: &str) -> Option<Language> {
    let line = text.trim_start_matches('\u{feff}').lines().next()?;
    if line.starts_with("<?php") {
        return Some(Language::Php);
    }
    // `#!/usr/bin/env -S VAR=1 python3.12 -u`: skip `env`, its options and its variables.
    let program = line
        .strip_prefix("#!")?
        .split_whitespace()
        .map(super::tree::file_name)
        .find(|word| *word != "env" && !word.starts_with('-') && !word.contains('='))?;
    Some(match program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') {
        "ash" | "bash" | "bats" | "dash" | "ksh" | "sh" | "zsh" => Language::Bash,
        "python" | "pypy" | "uv" => Language::Python,
        "jruby" | "ruby" => Language::Ruby,
        "node" | "nodejs" => Language::JavaScript,
        "bun" | "deno" | "ts-node" | "tsx" => Language::TypeScript,
        "php" => Language::Php,
        "rust-script" => Language::Rust,
        "make" | "gmake" => Language::Makefile,
        _ => return None,
    })
}

/// Whether a header file uses C++ syntax outside comments and outside `#ifdef __cplusplus`.
fn looks_like_cpp(text: &str) -> bool {
    let mut in_comment = false;
    // `#if` depth of the outermost open `#ifdef __cplusplus`, counted from 1.
    let mut for_cpp_only: Option<u32> = None;
    let mut depth = 0_u32;
    for line in text.lines() {
        let line = line.trim_start_matches('\u{feff}').trim();
        if in_comment {
            in_comment = !line.contains("*/");
            continue;
        }
        if line.starts_with("/*") {
            in_comment = !line.contains("*/");
            continue;
        }
        if let Some(directive) = line.strip_prefix('#').map(str::trim_start) {
            if directive.starts_with("if") {
                depth = depth.saturating_add(1);
                if directive.contains("__cplusplus") && !directive.starts_with("ifndef") {
                    for_cpp_only = for_cpp_only.or(Some(depth));
                }
            } else if directive.starts_with("el") || directive.starts_with("endif") {
                for_cpp_only = for_cpp_only.filter(|outer| *outer != depth);
                depth = depth.saturating_sub(u32::from(directive.starts_with("endif")));
            } else if for_cpp_only.is_none() && is_cpp_include(directive) {
                return true;
            }
        } else if for_cpp_only.is_none() && is_cpp_line(line) {
            return true;
        }
    }
    false
}

/// Returns whether a directive includes a C++ header such as `#include <vector>`. A header without an extension is C++,
/// because names of C headers end in `.h`.
fn is_cpp_include(directive: &str) -> bool {
    directive
        .strip_prefix("include")
        .and_then(|rest| rest.trim_start().strip_prefix('<'))
        .and_then(|rest| rest.split_once('>'))
        .is_some_and(|(header, _)| !header.contains('.') || header.ends_with(".hpp"))
}

fn is_cpp_line(line: &str) -> bool {
    let words = line.strip_prefix("inline ").unwrap_or(line);
    let named = |keyword: &str| {
        words.strip_prefix(keyword).is_some_and(|rest| {
            rest.starts_with(' ')
                && rest.trim_start().starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '{')
        })
    };
    // Prose inside a comment ends in none of these.
    let ends_code = line.ends_with(['{', ';', ':', '>', ',']);
    named("namespace") && !line.ends_with('.')
        || named("class") && (ends_code || line.split_whitespace().count() == 2)
        || named("using") && ends_code
        || line.starts_with("template<")
        || line.starts_with("template <")
        || matches!(line.trim_end_matches(' '), "public:" | "private:" | "protected:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_is_detected_from_the_path() {
        for (path, language) in [
            ("src/Main.java", Language::Java),
            ("lib/tasks/Rakefile", Language::Ruby),
            ("foo.gemspec", Language::Ruby),
            ("PKGBUILD", Language::Bash),
            ("a/b.HPP", Language::Cpp),
            ("a/b.C", Language::Cpp),
            ("Makefile", Language::Makefile),
            ("Cargo.toml", Language::Toml),
            (".github/workflows/ci.yml", Language::Yaml),
            ("README.md", Language::Markdown),
            ("Dockerfile", Language::Other),
            ("a.kt", Language::Other),
            ("rs", Language::Other),
        ] {
            assert_eq!(Language::from_path(path), language, "{path}");
        }
    }

    #[test]
    fn language_is_detected_from_the_shebang() {
        for (line, language) in [
            ("#!/usr/bin/env python3", Language::Python),
            ("#! /usr/bin/python3.12 -u", Language::Python),
            ("#!/usr/bin/env -S FOO=1 ruby -w", Language::Ruby),
            ("#!/bin/sh\r", Language::Bash),
            ("#!/usr/bin/env -S uv run --script", Language::Python),
            ("#!/usr/bin/env node", Language::JavaScript),
            ("\u{feff}<?php", Language::Php),
            ("#!", Language::Other),
            ("#!/usr/bin/env", Language::Other),
            ("#!/usr/bin/perl", Language::Other),
            ("", Language::Other),
        ] {
            assert_eq!(
                Language::from_path_and_text("bin/tool", &format!("{line}\nprint")),
                language,
                "{line}"
            );
        }
        assert_eq!(Language::from_path_and_text("a.rs", "#!/bin/sh\n"), Language::Rust);
    }

    #[test]
    fn header_file_is_c_unless_it_has_cpp_syntax() {
        let c = "/* class of things:\n namespace of them */\n#ifdef __cplusplus\nextern \"C\" {\nclass Foo;\n#endif\n\
                 #include <stdio.h>\nint new(struct class *template);\n#ifdef __cplusplus\n}\n#endif\n";
        assert_eq!(Language::from_path_and_text("a.h", c), Language::C);
        for cpp in [
            "#pragma once\nnamespace a::b {\n",
            "class Foo\n{\n",
            "class Foo : public Bar {\n",
            "template <typename T>\nT max(T a, T b);\n",
            "#include <vector>\n",
            "#if A\n#ifdef __cplusplus\n#else\n#endif\n#endif\n  using Name = int;\n",
        ] {
            assert_eq!(Language::from_path_and_text("a.h", cpp), Language::Cpp, "{cpp}");
            assert_eq!(Language::from_path_and_text("a.c", cpp), Language::C, "{cpp}");
        }
    }
}
