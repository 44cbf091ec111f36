//! The proofs in sentences, for models and people alike.

use super::{Green, Kind, Red, Row};
use crate::types::count;

impl Red {
    /// How a test that the spec asks for ended without the code.
    pub fn seen(&self, row: &Row) -> &'static str {
        let with_stub = || self.stubbed.keys().any(|id| row.is(id));
        match row.kind {
            Some(Kind::Assertion) if with_stub() => {
                "fails by an assertion, with a stub in the place of the code"
            }
            Some(Kind::Assertion) => "fails by an assertion",
            Some(Kind::Missing) => "misses a declared name",
            Some(Kind::Runtime) => "fails at run time, by no assertion",
            Some(Kind::Guard) => "passes: it guards what there is",
            Some(Kind::Weak) => "weak red: with a stub for the code it fails by that alone",
            Some(Kind::Compile) => {
                "red by compile: is not built without the code, and shows only that a name is missing"
            }
            None => "was not seen to fail",
        }
    }

    /// How the new tests fail without the code.
    pub fn facts(&self) -> Vec<String> {
        let of = |kind| self.tests.values().filter(|test| **test == kind).count();
        let mut facts = vec![format!(
            "Without the code, twice alike: {} new tests fail by an assertion, {} because a name is missing that the spec \
             declares, {} test binaries cannot be built without such a name, and {} pass since they guard what there is.",
            of(Kind::Assertion),
            of(Kind::Missing),
            of(Kind::Compile),
            of(Kind::Guard)
        )];
        if !self.stubbed.is_empty() {
            let stubbed = |kind| self.stubbed.values().filter(|known| **known == kind).count();
            let (weak, pass) = (stubbed(Kind::Weak), stubbed(Kind::Compile));
            facts.push(format!(
                "With stubs of what design and spec declare in the place of the code, {} tests of what could not be built run: \
                 {weak} of them fail by the stub alone, which is weak red.",
                self.stubbed.len()
            ));
            if pass > 0 {
                facts.push(format!(
                    "{pass} of them pass with the stubs, which panic or give nothing: either they want that, or they show \
                     nothing."
                ));
            }
        } else if self.by_compile() {
            let unbuilt =
                "What could not be built is red by compile: it was not seen to run without the code.";
            facts.push(unbuilt.to_owned());
        }
        let other = of(Kind::Runtime);
        if other > 0 {
            facts.push(format!("{other} more fail as they run, by something else than an assertion."));
        }
        facts
    }
}

impl Green {
    /// What passes with the code, and what that says nothing of.
    pub fn facts(&self) -> Vec<String> {
        let (all, kept) = (self.locked.len(), count(self.kept, "other", "others"));
        let thrice = count(all - self.once.unwrap_or_default(), "test", "tests");
        let mut facts = vec![match self.once {
            None => format!(
                "With the code, three times, all pass: {thrice} of the change, and {kept} that passed before."
            ),
            Some(new) => format!(
                "With the code, three times, all pass: {thrice} of the change. All tests together are slow here, and were run once: \
                 {kept} that passed before, and {new} more that are new, pass then."
            ),
        }];
        if !self.broken.is_empty() || !self.gone.is_empty() {
            facts.push(format!(
                "{} tests failed before and are not counted; {} of a test file that is deleted are gone.",
                self.broken.len(),
                self.gone.len()
            ));
        }
        facts
    }
}
