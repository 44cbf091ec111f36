//! Results of running a change's tests, as sentences for models and people.

/// Sentences about test runs. Names and paths in the sentences are in backticks, so that GitHub does not render them as
/// markup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestEvidence {
    /// Results that the runs showed, as sentences with a label such as `Before the change`.
    pub shown: Vec<(&'static str, String)>,
    /// Sentences about points that no test run could show.
    pub not_shown: Vec<String>,
    /// Points that a person should check before approving.
    pub review: Vec<String>,
}

impl TestEvidence {
    pub fn add_sentence(&mut self, label: &'static str, text: String) {
        self.shown.push((label, text));
    }

    /// Returns the sentences in `shown`, and those in `not_shown` under the label `Not shown`.
    pub fn labelled_sentences(&self) -> impl Iterator<Item = (&'static str, String)> {
        let gaps = (!self.not_shown.is_empty()).then(|| ("Not shown", self.not_shown.join(" ")));
        self.shown.iter().cloned().chain(gaps)
    }

    /// Returns the labelled sentences as Markdown: `**Before the change:** 4 new tests fail.`
    pub fn markdown_lines(&self) -> Vec<String> {
        self.labelled_sentences().map(|(label, text)| format!("**{label}:** {text}")).collect()
    }

    /// Returns the labelled sentences and the review points, one per line.
    pub fn all_lines(&self) -> Vec<String> {
        let mut all = self.markdown_lines();
        all.extend(self.review.iter().cloned());
        all
    }
}
