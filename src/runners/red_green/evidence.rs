//! Describes the red and green proofs in sentences, for people and models.

use super::{super::sanitize_line, ExpectedTest, GreenProof, RedKind, RedProof};
use crate::{documents::change::TestEvidence, types::count};

impl RedProof {
    /// Returns a description of how a required test ended without the code.
    pub fn describe_test(&self, row: &ExpectedTest) -> &'static str {
        let with_stub = || self.stubbed.keys().any(|id| row.matches_id(id));
        match row.kind {
            Some(RedKind::Assertion) if with_stub() => "fails by an assertion, with a stub for the code",
            Some(RedKind::Assertion) => "fails by an assertion",
            Some(RedKind::Missing) => "fails because a declared name is missing",
            Some(RedKind::Runtime) => "fails with a run-time error",
            Some(RedKind::Guard) => "passes: it guards existing behaviour",
            Some(RedKind::Weak) => "weak red: fails only because of a stub for the code",
            Some(RedKind::Compile) => {
                "red by compile: does not build without the code, which shows only a missing name"
            }
            None => "was not seen to fail",
        }
    }

    /// Records in the evidence the failures of the new tests when the code is absent.
    pub fn add_evidence(&self, evidence: &mut TestEvidence) {
        let of = |kind| self.tests.values().filter(|test| **test == kind).count();
        let stubbed = |kind| self.stubbed.values().filter(|known| **known == kind).count();
        let ends = [
            (of(RedKind::Assertion), "fails by an assertion", "fail by an assertion"),
            (
                of(RedKind::Missing),
                "fails because a declared name is missing",
                "fail because a declared name is missing",
            ),
            (of(RedKind::Runtime), "fails with a run-time error", "fail with a run-time error"),
            (
                of(RedKind::Guard),
                "passes (it guards existing behaviour)",
                "pass (they guard existing behaviour)",
            ),
        ];
        let mut parts: Vec<String> = ends.into_iter().filter(|(n, ..)| *n > 0).map(count_clause).collect();
        let unbuilt = of(RedKind::Compile);
        if unbuilt > 0 {
            // Runners of interpreted languages report the file by its path.
            let of_files =
                self.tests.iter().any(|(id, kind)| *kind == RedKind::Compile && self.files.contains(id));
            parts.push(match of_files {
                true => {
                    format!("{} cannot be loaded without the code", count(unbuilt, "test file", "test files"))
                }
                false => {
                    format!(
                        "{} cannot be built without the code",
                        count(unbuilt, "test binary", "test binaries")
                    )
                }
            });
        }
        if !parts.is_empty() {
            evidence.add_sentence("Before the change", format!("{}.", parts.join(", ")));
        }
        let gaps = [
            (
                stubbed(RedKind::Weak),
                "fails before the change only because of a stub for the code (weak red)",
                "fail before the change only because of stubs for the code (weak red)",
            ),
            (
                stubbed(RedKind::Compile),
                "passes with a stub for the code that panics or returns nothing",
                "pass with stubs for the code that panic or return nothing",
            ),
        ];
        let gaps = gaps.into_iter().filter(|(n, ..)| *n > 0).map(count_clause);
        evidence.not_shown.extend(gaps.map(|gap| gap + "."));
        if self.stubbed.is_empty() && self.has_compile_failures() {
            let unseen = "Tests that do not build without the code were not seen to fail at run time (red by compile).";
            evidence.not_shown.push(unseen.to_owned());
        }
    }
}

/// Maximum removed tests that are named.
const MOST_REMOVED: usize = 5;

/// Lists tests by name or id.
pub fn list_tests(tests: &[String]) -> String {
    let names = tests.iter().take(MOST_REMOVED);
    let names: Vec<String> =
        names.map(|name| format!("`{}`", sanitize_line(name).replace('`', "'"))).collect();
    let more = tests.len().saturating_sub(MOST_REMOVED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

/// Formats a count with its clause, such as `1 test fails` or `2 tests fail`.
fn count_clause((n, one, many): (usize, &str, &str)) -> String {
    format!("{} {}", count(n, "test", "tests"), if n == 1 { one } else { many })
}

impl GreenProof {
    /// Adds to the evidence which tests pass with the code, and which tests the proof does not cover.
    pub fn add_evidence(&self, evidence: &mut TestEvidence) {
        let thrice = self.locked.len() - self.once.unwrap_or_default();
        let tests = count(thrice, "test", "tests");
        let others = count(self.kept, "other that passed before", "others that passed before");
        let pass = if thrice == 1 { "passes" } else { "pass" };
        let text = match self.once {
            None if self.kept > 0 => format!("{tests} of the change and {others} pass three times."),
            None => format!("{tests} of the change {pass} three times."),
            Some(new) => format!(
                "{tests} of the change {pass} three times. The whole suite is slow here and ran once: {}.",
                count(self.kept + new, "more test passes", "more tests pass")
            ),
        };
        evidence.add_sentence("After the change", text);
        if !self.broken.is_empty() {
            let (one, many) = (
                "failed before the change and is not counted",
                "failed before the change and are not counted",
            );
            evidence.not_shown.push(count_clause((self.broken.len(), one, many)) + ".");
        }
        if !self.gone.is_empty() {
            let removed = count_clause((self.gone.len(), "is removed", "are removed"));
            let names = list_tests(&self.gone);
            evidence.review.push(format!("{removed}, as the approved spec says: {names}."));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_evidence_uses_plurals_and_omits_zero_counts() {
        let tests = [("a", RedKind::Assertion), ("b", RedKind::Assertion), ("c", RedKind::Guard)];
        let tests = tests.map(|(id, kind)| (id.to_owned(), kind)).into();
        let (red, mut green) = (RedProof { tests, ..RedProof::default() }, GreenProof::default());
        green.locked = ["a", "b", "c"].map(str::to_owned).into();
        let mut evidence = TestEvidence::default();
        red.add_evidence(&mut evidence);
        green.add_evidence(&mut evidence);
        (green.kept, green.broken, green.gone) = (1, vec!["d".to_owned()], vec!["e".to_owned()]);
        green.add_evidence(&mut evidence);
        assert_eq!(
            evidence.markdown_lines(),
            [
                "**Before the change:** 2 tests fail by an assertion, 1 test passes (it guards existing behaviour).",
                "**After the change:** 3 tests of the change pass three times.",
                "**After the change:** 3 tests of the change and 1 other that passed before pass three times.",
                "**Not shown:** 1 test failed before the change and is not counted.",
            ]
        );
    }
}
