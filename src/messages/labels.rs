//! Labels that we put on issues. They only show state; the store holds it.

use crate::github::{LabelSpec, outbound};

/// A label with the data to create it on GitHub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelView {
    pub name: &'static str,
    /// Six hexadecimal digits.
    pub color: &'static str,
    /// At most 100 characters.
    pub description: &'static str,
}

impl LabelView {
    pub fn spec(self) -> LabelSpec<'static> {
        LabelSpec { name: self.name, color: self.color, description: self.description }
    }
}

const fn label(name: &'static str, color: &'static str, description: &'static str) -> LabelView {
    LabelView { name, color, description }
}

pub const NEEDS_YOU: LabelView =
    label("countersign:needs-you", "fbca04", "Countersign waits for a person's decision");
pub const DONE: LabelView = label("countersign:done", "0e8a16", "Countersign has finished");
pub const STOPPED: LabelView =
    label("countersign:stopped", "cfd3d7", "Countersign stopped before it finished");

/// State labels. An issue has one of them while a person must decide or after its runs ended. It has none of them while
/// a run works.
pub const STATES: [LabelView; 3] = [NEEDS_YOU, DONE, STOPPED];

/// Label that earlier versions used while a run worked.
pub const OLD_WORKING: &str = "countersign:working";

/// Colour of labels that start a workflow.
pub const TRIGGER_COLOR: &str = "5319e7";

/// Returns the description of a trigger label; `about` is the command's line in `/help`.
pub fn trigger_description(about: &str) -> String {
    outbound::plain_line(&format!("Put on an issue: Countersign will {about}"), LONGEST_DESCRIPTION)
}

/// Maximum characters of a label's description on GitHub.
const LONGEST_DESCRIPTION: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_fit_github_limits() {
        for label in STATES {
            assert!(label.name.starts_with("countersign:") && label.name.len() <= 50);
            assert!(label.description.len() <= LONGEST_DESCRIPTION);
            assert!(label.color.len() == 6 && label.color.bytes().all(|b| b.is_ascii_hexdigit()));
        }
        assert_eq!(trigger_description(&"é".repeat(200)).chars().count(), LONGEST_DESCRIPTION);
    }
}
