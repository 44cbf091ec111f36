//! The proofs in sentences, for models and people alike.

use super::{ExpectedTest, GreenProof, RedKind, RedProof};
use crate::{documents::change::TestEvidence, types::count};

impl RedProof {
    /// How a test that the spec asks for ended without the code.
    pub fn describe_test(&self, row: &ExpectedTest) -> &'static str {
        let with_stub = || self.stubbed.keys().any(|id| row.matches_id(id));
        match row.kind {
            Some(RedKind::Assertion) if with_stub() => {
                "fails by an assertion, with a stub in the place of the code"
            }
            Some(RedKind::Assertion) => "fails by an assertion",
            Some(RedKind::Missing) => "misses a declared name",
            Some(RedKind::Runtime) => "fails at run time, by no assertion",
            Some(RedKind::Guard) => "passes: it guards what there is",
            Some(RedKind::Weak) => "weak red: with a stub for the code it fails by that alone",
            Some(RedKind::Compile) => {
                "red by compile: is not built without the code, and shows only that a name is missing"
            }
            None => "was not seen to fail",
        }
    }

    /// How the new tests fail without the code.
    pub fn add_evidence(&self, evidence: &mut TestEvidence) {
        let of = |kind| self.tests.values().filter(|test| **test == kind).count();
        let stubbed = |kind| self.stubbed.values().filter(|known| **known == kind).count();
        let ends = [
            (of(RedKind::Assertion), "fails by an assertion", "fail by an assertion"),
            (of(RedKind::Missing), "misses a declared name", "miss a declared name"),
            (of(RedKind::Runtime), "fails at run time, by no assertion", "fail at run time, by no assertion"),
            (
                of(RedKind::Guard),
                "passes (it guards existing behaviour)",
                "pass (they guard existing behaviour)",
            ),
        ];
        let mut parts: Vec<String> = ends.into_iter().filter(|(n, ..)| *n > 0).map(count_clause).collect();
        let unbuilt = of(RedKind::Compile);
        if unbuilt > 0 {
            parts.push(format!(
                "{} cannot be built without the code",
                count(unbuilt, "test binary", "test binaries")
            ));
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
            let unseen =
                "What cannot be built without the code was not seen to fail as it runs (red by compile).";
            evidence.not_shown.push(unseen.to_owned());
        }
    }
}

/// `1 test fails`, `2 tests fail`.
fn count_clause((n, one, many): (usize, &str, &str)) -> String {
    format!("{} {}", count(n, "test", "tests"), if n == 1 { one } else { many })
}

impl GreenProof {
    /// What passes with the code, and what that says nothing of.
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
        let gaps = [
            (
                self.broken.len(),
                "failed before the change and is not counted",
                "failed before the change and are not counted",
            ),
            (
                self.gone.len(),
                "went with a test file that is deleted",
                "went with a test file that is deleted",
            ),
        ];
        let gaps = gaps.into_iter().filter(|(n, ..)| *n > 0).map(count_clause);
        evidence.not_shown.extend(gaps.map(|gap| gap + "."));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_counts_with_plurals_and_leaves_zeros_out() {
        let tests = [("a", RedKind::Assertion), ("b", RedKind::Assertion), ("c", RedKind::Guard)];
        let tests = tests.map(|(id, kind)| (id.to_owned(), kind)).into();
        let (red, mut green) = (RedProof { tests, ..RedProof::default() }, GreenProof::default());
        green.locked = ["a", "b", "c"].map(str::to_owned).into();
        let mut evidence = TestEvidence::default();
        red.add_evidence(&mut evidence);
        green.add_evidence(&mut evidence);
        (green.kept, green.broken) = (1, vec!["d".to_owned()]);
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
