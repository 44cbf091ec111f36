//! Matches test ids, in the notation of each runner, to files and test names.

use super::super::TestReport;

/// Whether the test `id` belongs to `whole`, which is the id of a file, package or binary.
pub(super) fn contains_test(whole: &str, id: &str) -> bool {
    let mark = if whole.ends_with(".py") { "::" } else { " " };
    id.strip_prefix(whole).is_some_and(|rest| rest.starts_with(mark) || rest.starts_with('.'))
}

/// Whether the test belongs to this file. The ids of pytest and Node name the file. Cargo ids name only the binary or
/// module, and Go ids only the package.
pub(super) fn is_in_file(id: &str, file: &str) -> bool {
    if file.ends_with(".go") {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let end = [".Test", ".Fuzz", ".Example"].iter().filter_map(|mark| id.find(mark)).min();
        let package = &id[..end.unwrap_or(id.len())];
        return folder.is_empty() || is_path_suffix(package, folder);
    }
    let Some(path) = file.strip_suffix(".rs") else {
        return is_path_suffix(
            file,
            id.split(" > ").next().and_then(|id| id.split("::").next()).unwrap_or(id),
        );
    };
    let (binary, test) = id.split_once(' ').unwrap_or((id, ""));
    match path.rsplit_once("tests/") {
        Some((_, target)) => binary.rsplit("::").next() == target.split('/').next() && binary.contains("::"),
        None => {
            let module = path.rsplit_once("src/").map_or(path, |(_, module)| module).trim_end_matches("/mod");
            // A crate's root file has no module name; deeper modules usually have files of their own.
            let root = |binary: bool| binary && (test.split("::").count() <= 2 || test.starts_with("test"));
            if let Some(program) = module.strip_prefix("bin/") {
                let name = program.split('/').next().unwrap_or_default();
                return binary.ends_with(&format!("::bin/{name}"));
            }
            match module {
                "lib" => return root(!binary.contains("::")),
                "main" => return root(binary.contains("::bin/")),
                _ => {}
            }
            test.strip_prefix(&module.replace('/', "::")).is_some_and(|rest| rest.starts_with("::"))
        }
    }
}

/// Returns the file and the item of a doc test of Rust, such as `src/lib.rs` and `sum`. `None` for other tests.
pub(super) fn doc_test_item(id: &str) -> Option<(&str, &str)> {
    let (binary, test) = id.split_once(' ')?;
    let (file, item) = test.split_once(" - ").filter(|_| binary.ends_with("::doc"))?;
    Some((file, item.rsplit_once(" (").map_or(item, |(item, _)| item)))
}

/// Returns the reason why the runner cannot find tests of this file before the code is written, phrased as the end of a
/// sentence. `None` if the runner can probably find them.
pub fn unreachable_reason(
    runner: &str,
    file: &str,
    added: bool,
    before: &TestReport,
) -> Option<&'static str> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let python =
        |name: &str| name.starts_with("test_") && name.ends_with(".py") || name.ends_with("_test.py");
    match runner {
        "cargo" if !file.ends_with(".rs") => Some("is not in a Rust file; put it into a file in `tests/`"),
        "cargo" if file.split('/').rev().skip(1).any(|part| part == "tests") => None,
        "cargo" if added => Some(
            "is in a new module, which no `mod` line names before the code is written; put it into the `tests` module of an \
             existing file or into a file in `tests/`",
        ),
        "go" if !name.ends_with("_test.go") => Some("is not in a Go test file; name the file `…_test.go`"),
        // If tests in unusually named files already run, pytest's settings allow other names too.
        "pytest"
            if !python(name)
                && before.tests.iter().all(|test| {
                    let file = test.id.split("::").next().unwrap_or_default();
                    python(file.rsplit('/').next().unwrap_or(file))
                }) =>
        {
            Some("is not in a file that pytest takes for tests; name the file `test_….py`")
        }
        _ => None,
    }
}

/// Whether `end` equals `path` or the last components of `path`.
pub(super) fn is_path_suffix(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}
