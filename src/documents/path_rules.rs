//! Rules for the paths that our commits may contain. The rules look only at the text of a path.

use super::is_invisible;

/// Returns the reason why the path must not be written, worded as the end of the sentence "`path` …"; `None` if the
/// path may be written.
pub(crate) fn refusal_reason(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("is empty");
    }
    if path.chars().any(|c| c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Some("holds a control character or an invisible one");
    }
    if path.contains('\\') {
        return Some("holds a backslash; separate folders with `/`");
    }
    if path.starts_with('/') || path.starts_with('~') || path.as_bytes().get(1) == Some(&b':') {
        return Some("is absolute; write it from the root of the repository");
    }
    if path.len() > 400 {
        return Some("is longer than 400 bytes");
    }
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "" => return Some("holds `//`"),
            "." | ".." => return Some("holds `.` or `..`; write it from the root of the repository"),
            _ if is_git_directory(part) => return Some("leads into `.git`"),
            _ => {}
        }
    }
    None
}

/// Returns whether a file system may treat the name as `.git`. Such a name may have different letter case, or dots or
/// spaces at its end. It may also be an NTFS stream or the 8.3 name of `.git`.
fn is_git_directory(part: &str) -> bool {
    // On NTFS a colon starts the name of a stream of the same file.
    let bare = part.split(':').next().unwrap_or(part).trim_end_matches(['.', ' ']);
    bare.eq_ignore_ascii_case(".git") || bare.to_ascii_lowercase().starts_with("git~")
}

#[cfg(test)]
mod tests {
    use super::refusal_reason;

    #[test]
    fn only_paths_inside_the_repository_are_accepted() {
        for good in ["a", "src/lib.rs", "src/documents/", ".github/x.yml", "a b/ü.md", "src/__init__.py"] {
            assert_eq!(refusal_reason(good), None, "{good}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "./a",
            ".git/hooks/x",
            "a/.GIT/x",
            ".git./x",
            "a\\b",
            "C:x",
            "a\nb",
            "~/x",
            "GIT~1/x",
            ".g\u{200c}it/x",
            ".git::$INDEX_ALLOCATION/x",
            "a\u{202e}b",
        ] {
            assert!(refusal_reason(bad).is_some(), "{bad}");
        }
    }
}
