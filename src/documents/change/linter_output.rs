//! Reads which lines of which files a linter complains about.

use crate::documents::truncate;

/// A complaint of a linter about a line.
#[derive(Debug, PartialEq, Eq)]
pub struct LinterComplaint {
    path: String,
    line: usize,
    pub text: String,
}

impl LinterComplaint {
    /// Whether the complaint is about this line of this file. The linter may print an absolute path.
    pub fn is_about(&self, file: &str, line: usize) -> bool {
        self.line == line && std::path::Path::new(&self.path).ends_with(file)
    }

    /// Returns a key that stays the same in another run and if the line moves: the file's name and the text, without
    /// folders, numbers, and margins, which depend on the numbers.
    pub fn key(&self) -> String {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let text = format!("{name}{}", self.text.replace(&self.path, ""));
        text.chars().filter(|c| !c.is_ascii_digit() && !c.is_whitespace()).collect()
    }
}

/// Maximum number of complaints that are read, and of bytes of one: the repository controls the output.
const MOST_COMPLAINTS: usize = 1_000;
const COMPLAINT_BYTES: usize = 2_500;

/// Reads the output of a linter. A complaint is a paragraph with `--> path:line`, a line that starts with `path:line`, or
/// one that starts with `line:column` below a line with the path. Returns at most 1,000.
pub fn find_complaints(output: &str) -> Vec<LinterComplaint> {
    let mut found = Vec::new();
    for paragraph in output.split("\n\n") {
        let mut file = "";
        for line in paragraph.lines().map(str::trim) {
            let arrow = line.strip_prefix("--> ");
            let place = arrow.unwrap_or(line).split_whitespace().next().unwrap_or_default();
            let (first, rest) = place.split_once(':').unwrap_or_default();
            let second = rest.split(':').next().unwrap_or_default().parse();
            let (path, number) = match (first.parse(), second) {
                (Ok(number), Ok(_)) => (file, number),
                (Err(_), Ok(number)) => (first, number),
                _ => {
                    file = line;
                    continue;
                }
            };
            if found.len() == MOST_COMPLAINTS {
                return found;
            }
            let text = match arrow {
                // The complaint begins in the line above; the lines before tell which folder is checked.
                Some(_) => paragraph[paragraph.find(file).unwrap_or_default()..].trim(),
                None => &format!("{path}: {line}"),
            };
            let (path, text) = (truncate(path, 1_000).to_owned(), truncate(text, COMPLAINT_BYTES).to_owned());
            found.push(LinterComplaint { path, line: number, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_found_in_the_output_of_each_linter() {
        for (output, text) in [
            ("error: b\n --> a:3:5\n  |\n3 | b\n\nerror: 1 fault\n", "error: b\n --> a:3:5\n  |\n3 | b"),
            ("a:3:1: E501 long\nFound 1 error.\n", "a: a:3:1: E501 long"),
            ("\n/tree/a\n  3:1  error  b  c\n\n1 problem\n", "/tree/a: 3:1  error  b  c"),
        ] {
            let found = find_complaints(output);
            assert_eq!(found.iter().map(|complaint| complaint.text.as_str()).collect::<Vec<_>>(), [text]);
            assert!(found[0].is_about("a", 3) && !found[0].is_about("a", 2) && !found[0].is_about("b/a", 3));
        }
        assert_eq!(find_complaints("python3: No module named ruff\nError: 3 files\n"), []);
        let key = |text: &str| find_complaints(text)[0].key();
        let [cargo, moved] =
            ["Checking a (/x)\nerror: b\n --> a:9:1\n9 | b\n", "error: b\n  --> a:10:1\n10 | b\n"];
        assert_eq!(key(cargo), key(moved));
        assert_eq!(key("/x/a\n  3:1  error  b\n"), key("/y/a\n  4:1  error  b\n"));
        assert_ne!(key("/x/a\n  3:1  error  b\n"), key("/x/a\n  3:1  error  c\n"));
    }
}
