//! The labels we put on issues. They are a view: the store is the truth.

/// A label with what GitHub needs to create it at first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelView {
    pub name: &'static str,
    /// Six hexadecimal digits.
    pub color: &'static str,
    /// At most 100 characters.
    pub description: &'static str,
}

const fn label(name: &'static str, color: &'static str, description: &'static str) -> LabelView {
    LabelView { name, color, description }
}

pub const WORKING: LabelView = label("countersign:working", "1d76db", "Countersign is working on this issue");
pub const NEEDS_YOU: LabelView =
    label("countersign:needs-you", "fbca04", "Countersign waits for a person's decision");
pub const DONE: LabelView = label("countersign:done", "0e8a16", "Countersign has finished what was asked");
pub const STOPPED: LabelView = label("countersign:stopped", "cfd3d7", "Countersign stopped before the end");

/// All labels of ours: those that start or stop something when a person puts them on an issue, and
/// those that say how it stands.
pub const LABELS: &[LabelView] = &[
    label("countersign:lld", "5319e7", "Put on an issue: Countersign drafts a low-level design"),
    label("countersign:stop", "d93f0b", "Put on an issue: Countersign stops its work there"),
    WORKING,
    NEEDS_YOU,
    DONE,
    STOPPED,
];

#[cfg(test)]
mod tests {
    use super::LABELS;

    #[test]
    fn labels_are_ones_github_takes() {
        for label in LABELS {
            assert!(label.name.starts_with("countersign:") && label.name.len() <= 50);
            assert!(label.description.len() <= 100);
            assert!(label.color.len() == 6 && label.color.bytes().all(|b| b.is_ascii_hexdigit()));
        }
    }
}
