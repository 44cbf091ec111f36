//! A model that cannot be asked now: what people are told while their run waits for it. The provider's own words and the
//! server's paths are in neither sentence.

use serde::{Deserialize, Serialize};

use crate::{
    github::outbound::{OutboundBody, inline_code},
    types::Timestamp,
};

/// Why a model cannot be asked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelWaitReason {
    Busy,
    /// It could not be reached, or broke off.
    Unavailable,
    /// It did not answer in time.
    Slow,
    /// The account has no allowance left.
    UsedUp,
    /// The key or login is not accepted.
    Refused,
    /// There is no key, login or program.
    Lacking,
    /// As many programs run as there are places for.
    Crowded,
}

/// A run that waits for a model.
#[derive(Debug, Clone)]
pub struct ModelWait {
    pub reason: ModelWaitReason,
    /// `drafter`
    pub role: String,
    /// `gemini:pro`
    pub spec: String,
    /// The next try.
    pub until: Timestamp,
}

impl ModelWait {
    /// Is it for whoever runs the server to end?
    pub fn needs_operator(&self) -> bool {
        matches!(self.reason, ModelWaitReason::Refused | ModelWaitReason::Lacking)
    }

    /// One line for the status comment and for `/status`.
    pub fn sentence(&self) -> String {
        let (who, model) = (provider_name(&self.spec), inline_code(&self.spec, 80));
        match self.reason {
            ModelWaitReason::Busy => {
                format!("Waiting for {who}: it is busy; next try at {}.", format_time(self.until))
            }
            ModelWaitReason::Unavailable => format!(
                "Waiting for {who}: it could not be reached, or broke off; next try at {}.",
                format_time(self.until)
            ),
            ModelWaitReason::Slow => {
                format!(
                    "Waiting for {who}: it did not answer in time; next try at {}.",
                    format_time(self.until)
                )
            }
            ModelWaitReason::Crowded => format!(
                "Waiting for a place: as many models of its kind as this server runs at a time are at work; {who} is \
                 asked when it is this run's turn."
            ),
            ModelWaitReason::UsedUp => format!(
                "Waiting for {who}: the account is used up; next try at {}, or as soon as whoever runs this server has \
                 put that right and restarts it.",
                format_day_and_time(self.until)
            ),
            ModelWaitReason::Refused => format!(
                "The {} {model} does not accept this server's key or login for this repository. Whoever runs the server \
                 sees with `countersign doctor` what to put right; the run goes on by itself after a restart, and tries \
                 again at {} in any case.",
                self.role,
                format_day_and_time(self.until)
            ),
            ModelWaitReason::Lacking => {
                let (what, mend) = missing_access(&self.spec);
                format!(
                    "The {} {model} has {what} on this server. Whoever runs it {mend}; the run goes on by itself then.",
                    self.role
                )
            }
        }
    }
}

/// What a status comment begins with while whoever runs the server holds the work up.
const PAUSE_LINE: &str = "> ⏸️ **Paused** by whoever runs this server";

/// What the headline of a run that is over begins with.
const ENDED_HEADLINES: [&str; 3] = ["### ✅ ", "### ⏹️ ", "### ❌ "];

/// A status comment's text with the line that it is paused, or without. A run that is over goes on at no time, so nothing
/// holds it up.
pub fn with_pause_line(text: &str, since: Option<Timestamp>) -> OutboundBody {
    let rest = match text.split_once("\n\n") {
        Some((line, rest)) if line.starts_with(PAUSE_LINE) => rest,
        _ => text,
    };
    let headline = rest.lines().find(|line| line.starts_with("### "));
    let over = headline.is_some_and(|headline| ENDED_HEADLINES.iter().any(|over| headline.starts_with(over)));
    OutboundBody::from_posted(match since.filter(|_| !over) {
        Some(since) => format!(
            "{PAUSE_LINE}, since {}. What is said here is kept, and heard when the work goes on.\n\n{rest}",
            format_day_and_time(since)
        ),
        None => rest.to_owned(),
    })
}

/// What is not there, and what to do about it.
fn missing_access(spec: &str) -> (&'static str, &'static str) {
    match provider_prefix(spec) {
        "claude" => (
            "neither a Claude program that is logged in nor an API key",
            "logs the program in, or adds ANTHROPIC_API_KEY to its .env and restarts it",
        ),
        "anthropic" => ("no key", "adds ANTHROPIC_API_KEY to its .env and restarts it"),
        "gemini" => ("no key", "adds GEMINI_API_KEY to its .env and restarts it"),
        "openai" => ("no key", "adds OPENAI_API_KEY to its .env and restarts it"),
        _ => ("nothing to be asked with", "sees with `countersign doctor` what is missing and adds it"),
    }
}

/// A provider as people call it.
pub(super) fn provider_name(spec: &str) -> String {
    match provider_prefix(spec) {
        "claude" => "Claude".to_owned(),
        "anthropic" => "Claude's API".to_owned(),
        "gemini" => "Gemini".to_owned(),
        "ollama" => "Ollama".to_owned(),
        "opencode" => "OpenCode".to_owned(),
        "stub" => "the script".to_owned(),
        other => inline_code(other, 30),
    }
}

/// The word before the colon.
fn provider_prefix(spec: &str) -> &str {
    spec.split(':').next().unwrap_or(spec)
}

/// `14:05 UTC`
fn format_time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} UTC", text.get(11..16).unwrap_or(&text))
}

/// `2026-03-02 14:05 UTC`
pub(super) fn format_day_and_time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} {}", text.get(..10).unwrap_or_default(), format_time(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::tests::RUN;
    use crate::messages::{RunDisplayState, StageResult, StatusView, StepPosition, status_comment};

    #[test]
    fn only_a_run_that_may_go_on_is_called_paused() {
        use RunDisplayState::{Done, Failed, NeedsYou, Parked, Stopped, Working};
        let at = Timestamp::parse("2026-03-02T14:05:59Z").unwrap();
        for (state, told) in [
            (Working, true),
            (NeedsYou, true),
            (Parked, true),
            (Done, false),
            (Stopped, false),
            (Failed, false),
        ] {
            for rehearsal in [false, true] {
                let text = status_comment(&StatusView {
                    workflow: "lld".into(),
                    run: RUN,
                    page: None,
                    requested_by: "ada".into(),
                    rehearsal,
                    state,
                    step: StepPosition { title: "", number: 1, of: 1, minutes: 0 },
                    result: StageResult::default(),
                    others: Vec::new(),
                    follows: None,
                    rounds: Vec::new(),
                    waiting: None,
                    draft: None,
                    hidden: vec![],
                    notes: Vec::new(),
                    cost: None,
                    updated: at,
                });
                let shown = with_pause_line(text.as_str(), Some(at));
                assert_eq!(shown.as_str().starts_with(PAUSE_LINE), told, "{state:?}");
                let before = format!("{PAUSE_LINE}, since then.\n\n{}", text.as_str());
                assert_eq!(with_pause_line(&before, Some(at)).as_str(), shown.as_str(), "{state:?}");
            }
        }
    }

    fn said(hold: ModelWaitReason, spec: &str) -> String {
        let until = Timestamp::parse("2026-03-02T14:05:59Z").unwrap();
        ModelWait { reason: hold, role: "reviewer".into(), spec: spec.into(), until }.sentence()
    }

    #[test]
    fn people_read_who_is_waited_for_and_who_can_end_it() {
        assert_eq!(
            said(ModelWaitReason::Busy, "claude:opus"),
            "Waiting for Claude: it is busy; next try at 14:05 UTC."
        );
        assert_eq!(
            said(ModelWaitReason::Lacking, "gemini:pro"),
            "The reviewer `gemini:pro` has no key on this server. Whoever runs it adds GEMINI_API_KEY to its .env and \
             restarts it; the run goes on by itself then."
        );
        assert!(
            said(ModelWaitReason::Crowded, "claude:opus")
                .ends_with("Claude is asked when it is this run's turn.")
        );
        assert!(said(ModelWaitReason::UsedUp, "gemini:pro").contains("next try at 2026-03-02 14:05 UTC"));
        assert!(said(ModelWaitReason::Refused, "gemini:pro").contains("`countersign doctor`"));
    }
}
