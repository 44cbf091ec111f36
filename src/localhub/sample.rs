//! The sample repository of `countersign demo`: a small but real Rust project and its issues.

/// Files by path, and issues with title and body, of a sample repository.
pub struct SampleRepository {
    pub files: Vec<(&'static str, &'static [u8])>,
    pub issues: Vec<(&'static str, &'static str)>,
}

macro_rules! file {
    ($path:literal, $at:literal) => {
        ($path, include_bytes!(concat!("../../fixtures/sample/", $at)).as_slice())
    };
}

macro_rules! issue {
    ($number:literal) => {
        include_str!(concat!("../../fixtures/sample/issues/", $number, ".md"))
    };
}

/// Returns the sample repository that is compiled into the program.
pub fn embedded_sample() -> SampleRepository {
    SampleRepository {
        files: vec![
            // Stored under another name, or cargo would treat it as a package of this workspace.
            file!("Cargo.toml", "Cargo.toml.sample"),
            file!("README.md", "README.md"),
            file!(".gitignore", "gitignore.sample"),
            file!("src/lib.rs", "src/lib.rs"),
            file!("src/parse.rs", "src/parse.rs"),
            file!("src/report.rs", "src/report.rs"),
            file!("src/main.rs", "src/main.rs"),
            file!("tests/command_line.rs", "tests/command_line.rs"),
        ],
        issues: [issue!("1"), issue!("2"), issue!("3")].into_iter().map(split_title).collect(),
    }
}

/// Splits an issue file into title and body. The first line, after `# `, is the title; the rest is the body.
fn split_title(text: &'static str) -> (&'static str, &'static str) {
    let (title, body) = text.split_once('\n').unwrap_or((text, ""));
    (title.trim_start_matches("# ").trim(), body.trim())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_sample_issue_has_a_title_and_a_body() {
        let sample = super::embedded_sample();
        assert_eq!(sample.issues.len(), 3);
        for (title, body) in sample.issues {
            assert!(!title.is_empty() && !title.starts_with('#') && body.len() > 200, "{title}");
        }
    }
}
