//! Labels that we put on issues. They only show the state; the actual state is in the store.

use crate::github::{LabelSpec, outbound};

/// A label with the data needed to create it on GitHub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelView {
    pub name: &'static str,
    /// Colour as six hexadecimal digits.
    pub color: &'static str,
    /// Description with at most 100 characters.
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

/// Labels that show the state of an issue's runs. An issue has one of them while a person must decide or after its runs
/// have ended, and none of them while a run is working.
pub const STATES: [LabelView; 3] = [NEEDS_YOU, DONE, STOPPED];

/// Label with which earlier versions marked an issue while a run was working.
pub const OLD_WORKING: &str = "countersign:working";

/// Colour of the labels that start a workflow.
pub const TRIGGER_COLOR: &str = "5319e7";

/// Returns the description of a label that starts a workflow. `about` is the command's description in `/help`.
pub fn trigger_description(about: &str) -> String {
    outbound::plain_line(&format!("Put on an issue: Countersign will {about}"), LONGEST_DESCRIPTION)
}

/// Maximum number of characters of a label's description on GitHub.
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
