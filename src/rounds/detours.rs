//! Which answers came by another way than the first one tried: read from the ledger, so that the thread tells what the
//! books hold.

use crate::{
    engine::{CallRow, CallStatus},
    messages::{Detour, Trouble},
    providers::CallRole,
};

/// Of each side's newest answer, if something else was asked before it.
pub fn detours(calls: &[CallRow]) -> Vec<Detour> {
    [CallRole::Drafter, CallRole::Reviewer].into_iter().filter_map(|role| newest(calls, role)).collect()
}

fn newest(calls: &[CallRow], role: CallRole) -> Option<Detour> {
    let answered = |row: &CallRow| row.role == role.as_str() && row.status == CallStatus::Done;
    let at = calls.iter().rposition(answered)?;
    let answer = &calls[at];
    // A call's own row is reserved before it and its legs' rows are written after it. One that was skipped was not asked.
    let legs = calls[at + 1..]
        .iter()
        .filter(|row| row.prompt == answer.prompt && row.status == CallStatus::Failed && row.attempts > 0);
    let before: Vec<_> = legs.map(|row| (row.provider.clone(), trouble(row.error.as_deref()))).collect();
    (!before.is_empty()).then(|| Detour { by: answer.provider.clone(), before })
}

/// The books hold the name of the kind and what came with it.
fn trouble(error: Option<&str>) -> Trouble {
    let name = error.unwrap_or_default().split([' ', '{']).next().unwrap_or_default();
    match name {
        "Capacity" | "RateLimited" => Trouble::Busy,
        "Quota" => Trouble::UsedUp,
        "Auth" => Trouble::Refused,
        "Timeout" => Trouble::Slow,
        "InvalidOutput" | "WrongModel" => Trouble::Unusable,
        _ => Trouble::Failed,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{providers::CallErrorKind, types::Hash};

    #[test]
    fn the_books_name_every_kind_as_it_is_read_here() {
        let time = Duration::from_secs(1);
        for (kind, expected) in [
            (CallErrorKind::Capacity, Trouble::Busy),
            (CallErrorKind::RateLimited { reset: Some(time) }, Trouble::Busy),
            (CallErrorKind::Quota { reset: None }, Trouble::UsedUp),
            (CallErrorKind::Auth, Trouble::Refused),
            (CallErrorKind::Timeout { idle: true, elapsed: time }, Trouble::Slow),
            (CallErrorKind::InvalidOutput, Trouble::Unusable),
            (CallErrorKind::WrongModel { served: None }, Trouble::Unusable),
            (CallErrorKind::Unavailable, Trouble::Failed),
        ] {
            assert_eq!(trouble(Some(&format!("{kind:?}"))), expected, "{kind:?}");
        }
    }

    pub(in crate::rounds) fn row(provider: &str, prompt: &str, status: CallStatus, attempts: u32) -> CallRow {
        CallRow {
            role: "reviewer".into(),
            provider: provider.into(),
            asked: "gemini:pro".into(),
            served: None,
            accepted_by: None,
            family: None,
            prompt: Hash::of(prompt.as_bytes()),
            status,
            input_tokens: 0,
            output_tokens: 0,
            cache_read: 0,
            cache_written: 0,
            cost_microusd: None,
            billed: false,
            elapsed_ms: 0,
            attempts,
            cut: Vec::new(),
            held_microusd: None,
            likely_microusd: None,
            settled: None,
            error: (status == CallStatus::Failed).then(|| "Quota { reset: None }".to_owned()),
        }
    }

    #[test]
    fn only_what_was_really_asked_for_the_newest_answer_is_told() {
        let (done, failed) = (CallStatus::Done, CallStatus::Failed);
        let first = [row("gemini", "one", done, 1), row("gemini", "one", failed, 1)];
        let told = Detour { by: "gemini".into(), before: vec![("gemini".into(), Trouble::UsedUp)] };
        assert_eq!(detours(&first), [told]);
        // Tried again later is no detour, nor is one that was skipped.
        assert_eq!(detours(&[row("gemini", "one", failed, 1), row("gemini", "one", done, 1)]), []);
        assert_eq!(detours(&[row("anthropic", "one", done, 1), row("claude", "one", failed, 0)]), []);
        let [a, b] = first;
        assert_eq!(detours(&[a, b, row("gemini", "two", done, 1)]), [], "an older answer's is over");
    }
}
