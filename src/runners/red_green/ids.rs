//! Which test of which file an id means, as each runner writes them.

use super::super::TestReport;

/// Is it a test of this file, package or binary?
pub(super) fn contains_test(whole: &str, id: &str) -> bool {
    let mark = if whole.ends_with(".py") { "::" } else { " " };
    id.strip_prefix(whole).is_some_and(|rest| rest.starts_with(mark) || rest.starts_with('.'))
}

/// Is the test of this file, as its runner calls it: pytest and node by the file, cargo by the binary or the module, go by the
/// package?
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
            test.strip_prefix(&module.replace('/', "::")).is_some_and(|rest| rest.starts_with("::"))
        }
    }
}

/// Why no test of this file would ever be seen by its runner before the code is there, as the end of a sentence; none where
/// that is not known.
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
        "cargo" if !file.ends_with(".rs") => Some("stands in no file of Rust; put it into one of `tests/`"),
        "cargo" if file.split('/').rev().skip(1).any(|part| part == "tests") => None,
        "cargo"
            if !name
                .strip_suffix(".rs")
                .is_some_and(|stem| stem.ends_with("tests") || stem.ends_with("test")) =>
        {
            Some(
                "stands among the code, where it cannot be locked before that is written; put it into a file of `tests/`",
            )
        }
        "cargo" if added => Some(
            "stands in a module that no `mod` line names before the code is written; put it into a file of `tests/`",
        ),
        "go" if !name.ends_with("_test.go") => {
            Some("stands in no file that go takes for tests; call it `…_test.go`")
        }
        // Where others are found, its settings say what they are called.
        "pytest"
            if !python(name)
                && before.tests.iter().all(|test| {
                    let file = test.id.split("::").next().unwrap_or_default();
                    python(file.rsplit('/').next().unwrap_or(file))
                }) =>
        {
            Some("stands in no file that pytest takes for tests; call it `test_….py`")
        }
        _ => None,
    }
}

/// Is it the same path, or its end, as who knows nothing of the folders above names it?
pub(super) fn is_path_suffix(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}
