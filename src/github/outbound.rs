//! (in work)

/// Text that may be posted: frames of ours around cleaned text of a model's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body(String);

impl Body {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
