//! What Rust's compiler says of code that it cannot build.

use cargo_metadata::diagnostic::{Diagnostic, DiagnosticSpan};

use super::{Failure, Fault, Test, found::MOST_FAULTS};

/// Its codes for names that are not there.
const MISSING: &[&str] = &[
    "E0405", "E0412", "E0422", "E0423", "E0424", "E0425", "E0432", "E0433", "E0463", "E0531", "E0560",
    "E0583", "E0599", "E0609",
];

/// A binary of which it said this.
pub(super) fn not_built(id: &str, errors: &[Diagnostic]) -> Test {
    // The last of them says how many there were.
    let errors = || errors.iter().filter(|error| !error.message.starts_with("aborting due to"));
    let faults: Vec<Fault> = errors().take(MOST_FAULTS).map(fault).collect();
    let failure = match faults.iter().any(|fault| !fault.missing.is_empty()) {
        true => Failure::Missing,
        false => Failure::Build,
    };
    let rendered = errors().map(|error| error.rendered.as_deref().unwrap_or(&error.message));
    let at = errors().find_map(primary).map(|span| format!("{}:{}", span.file_name, span.line_start));
    Test::failed(id, failure, rendered.collect::<Vec<_>>().join("\n")).at(at).with(faults)
}

fn primary(error: &Diagnostic) -> Option<&DiagnosticSpan> {
    error.spans.iter().find(|span| span.is_primary)
}

/// `cannot find function `a` in crate `b``: of the names the first is missing, of an import each, of a field the one that is
/// called so.
fn fault(error: &Diagnostic) -> Fault {
    let missing = error.code.as_ref().is_some_and(|code| MISSING.contains(&code.code.as_str()));
    let said = &error.message;
    let from = said.find("named `").unwrap_or(0);
    let names = said[from..].split('`').skip(1).step_by(2);
    let most = match (missing, said.starts_with("unresolved import")) {
        (false, _) => 0,
        (true, imports) => {
            if imports {
                usize::MAX
            } else {
                1
            }
        }
    };
    let names = names.take(most).map(|name| name.rsplit("::").next().unwrap_or(name));
    Fault::new(primary(error).map_or("", |span| &span.file_name), said, names)
}
