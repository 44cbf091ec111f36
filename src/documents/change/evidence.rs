//! What the runs of a change came to, in sentences of ours, for models and people alike.

/// Names and paths stand between backticks, so that nothing in them means anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// What was seen, below a label: `Before the change`.
    pub shown: Vec<(&'static str, String)>,
    /// What nobody saw.
    pub not_shown: Vec<String>,
    /// What a person should look at before they decide.
    pub review: Vec<String>,
}

impl Evidence {
    pub fn show(&mut self, label: &'static str, text: String) {
        self.shown.push((label, text));
    }

    /// What was shown and what was not, as Markdown: `**Before the change:** 4 new tests fail.`
    pub fn lines(&self) -> Vec<String> {
        let label = |(label, text): &(&str, String)| format!("**{label}:** {text}");
        let shown = self.shown.iter().map(label);
        let gaps =
            (!self.not_shown.is_empty()).then(|| format!("**Not shown:** {}", self.not_shown.join(" ")));
        shown.chain(gaps).collect()
    }

    /// Everything, a line each.
    pub fn all(&self) -> Vec<String> {
        let mut all = self.lines();
        all.extend(self.review.iter().cloned());
        all
    }
}
