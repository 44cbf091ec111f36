//! What unit tests of back ends begin with.

use std::time::Duration;

use super::{Call, CallRole};

/// A call with nothing special about it; a test says what is special about its own.
pub(super) fn call() -> Call {
    Call {
        role: CallRole::Drafter,
        system: String::new(),
        prompt: "p".into(),
        schema: None,
        model: "claude-opus-4-6".into(),
        deadline: Duration::from_secs(5),
        budget: None,
        private: false,
        not_families: Vec::new(),
        workers: Default::default(),
        facts: Default::default(),
    }
}
