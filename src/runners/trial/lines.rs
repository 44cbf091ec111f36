//! What a repository checks itself by besides its tests: formatter, linter, and a line of its own from end to end. Of each it
//! is known whether it ends well without the change: what does not is never counted.

use serde::{Deserialize, Serialize};

use super::{
    super::{Bench, TestError, one_line},
    Overlay, Trial,
};

/// Characters of what such a program says that the drafter reads, from its end.
const SAID: usize = 2_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    Format,
    Lint,
    EndToEnd,
}

impl Which {
    pub fn rule(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Lint => "lint",
            Self::EndToEnd => "end_to_end",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Format => "formatter",
            Self::Lint => "linter",
            Self::EndToEnd => "end-to-end run",
        }
    }
}

/// A line for the shell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    pub which: Which,
    line: String,
    /// It ends well without the change.
    pub before: bool,
}

impl Line {
    /// How it stands with the change, in a sentence. `complains`: of this version of it.
    pub fn fact(&self, complains: bool) -> String {
        let name = format!("The {}, `{}`,", self.which.name(), one_line(&self.line).replace('`', "'"));
        match (self.before, complains) {
            (false, _) => {
                format!(
                    "{name} was not checked: without the change it does not end well either, or is not here."
                )
            }
            (true, true) => format!("{name} ends well without the change, and not with it."),
            (true, false) => format!("{name} ends well with the change, as it did without."),
        }
    }
}

impl Trial {
    /// Whether each ends well without the change.
    pub async fn lines(&self, lines: Vec<(Which, String)>) -> Result<Vec<Line>, TestError> {
        let (mut known, mut bench) = (Vec::new(), Bench::new()?);
        for (which, line) in lines {
            let before = self.line(&mut bench, &line, Vec::new()).await?.is_none();
            known.push(Line { which, line, before });
        }
        Ok(known)
    }

    /// What those say with something laid over that say nothing without.
    pub async fn complaints(
        &self,
        lines: &[Line],
        overlay: &Overlay,
    ) -> Result<Vec<(Which, String)>, TestError> {
        let (mut said, mut bench) = (Vec::new(), Bench::new()?);
        for Line { which, line, .. } in lines.iter().filter(|line| line.before) {
            if let Some(text) = self.line(&mut bench, line, overlay.clone()).await? {
                let from = text.ceil_char_boundary(text.len().saturating_sub(SAID));
                said.push((*which, format!("`{line}` does not end well: {}", &text[from..])));
            }
        }
        Ok(said)
    }
}
