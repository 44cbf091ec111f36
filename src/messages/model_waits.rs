//! Status lines of runs that wait for a model. They contain neither the provider's messages nor paths on the server.

use serde::{Deserialize, Serialize};

use crate::{
    github::outbound::{OutboundBody, inline_code},
    types::Timestamp,
};

/// Reason why a model cannot be called now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelWaitReason {
    Busy,
    /// The provider is unreachable or dropped the connection.
    Unavailable,
    /// The provider did not respond in time.
    Slow,
    /// The account's quota or credit is exhausted.
    UsedUp,
    /// The provider did not accept the key or login.
    Refused,
    /// The server has no key, login or program for this model.
    Lacking,
    /// All worker slots are taken.
    Crowded,
}

/// A run that waits for a model.
#[derive(Debug, Clone)]
pub struct ModelWait {
    pub reason: ModelWaitReason,
    /// Role of the model in the run, such as `drafter`.
    pub role: String,
    /// Provider and model, such as `gemini:pro`.
    pub spec: String,
    /// Time of the next attempt.
    pub until: Timestamp,
}

impl ModelWait {
    /// Whether only the operator can end the wait.
    pub fn needs_operator(&self) -> bool {
        matches!(self.reason, ModelWaitReason::Refused | ModelWaitReason::Lacking)
    }

    /// Returns one line about the wait for the status comment and `/status`.
    pub fn sentence(&self) -> String {
        let (who, model) = (provider_name(&self.spec), inline_code(&self.spec, 80));
        match self.reason {
            ModelWaitReason::Busy => {
                format!("Waiting for {who}: it is busy; next try at {}.", format_time(self.until))
            }
            ModelWaitReason::Unavailable => format!(
                "Waiting for {who}: it was unreachable or dropped the connection; next try at {}.",
                format_time(self.until)
            ),
            ModelWaitReason::Slow => {
                format!(
                    "Waiting for {who}: it did not answer in time; next try at {}.",
                    format_time(self.until)
                )
            }
            ModelWaitReason::Crowded => format!(
                "Waiting for a slot: this server has reached its limit of parallel calls of this kind. {who} is \
                 called when it is this run's turn."
            ),
            ModelWaitReason::UsedUp => format!(
                "Waiting for {who}: the account has no quota or credit left; next try at {}, or when the operator has \
                 fixed it and restarts the server.",
                format_day_and_time(self.until)
            ),
            ModelWaitReason::Refused => format!(
                "The {} {model} does not accept this server's key or login for this repository. `countersign doctor` \
                 tells the operator what to fix. The run tries again when the server restarts, and at {}.",
                self.role,
                format_day_and_time(self.until)
            ),
            ModelWaitReason::Lacking => {
                let (what, fix) = missing_access(&self.spec);
                format!(
                    "The {} {model} has {what} on this server. The operator can {fix}; then the run resumes by itself.",
                    self.role
                )
            }
        }
    }
}

/// Beginning of the line that a status comment shows while the operator has paused all work. We also find the line in a
/// posted comment by this beginning, so it must match the lines that earlier versions wrote.
const PAUSE_LINE: &str = "> ⏸️ **Paused** by ";

/// Beginnings of the headline in the status comment of an ended run.
const ENDED_HEADLINES: [&str; 3] = ["### ✅ ", "### ⏹️ ", "### ❌ "];

/// Returns the body of a status comment with the pause line added if `since` is given, and removed otherwise. An ended
/// run is never shown as paused.
pub fn with_pause_line(text: &str, since: Option<Timestamp>) -> OutboundBody {
    let rest = match text.split_once("\n\n") {
        Some((line, rest)) if line.starts_with(PAUSE_LINE) => rest,
        _ => text,
    };
    let headline = rest.lines().find(|line| line.starts_with("### "));
    let over = headline.is_some_and(|headline| ENDED_HEADLINES.iter().any(|over| headline.starts_with(over)));
    OutboundBody::from_posted(match since.filter(|_| !over) {
        Some(since) => format!(
            "{PAUSE_LINE}the operator, since {}. Countersign reads comments here when the work resumes.\n\n{rest}",
            format_day_and_time(since)
        ),
        None => rest.to_owned(),
    })
}

/// Returns a description of the missing access to a provider, and how to fix it.
fn missing_access(spec: &str) -> (&'static str, &'static str) {
    match provider_prefix(spec) {
        "claude" => (
            "neither a logged-in Claude CLI nor an API key",
            "log the program in, or add ANTHROPIC_API_KEY to the server's .env and restart it",
        ),
        "anthropic" => ("no key", "add ANTHROPIC_API_KEY to the server's .env and restart it"),
        "gemini" => ("no key", "add GEMINI_API_KEY to the server's .env and restart it"),
        "openai" => ("no key", "add OPENAI_API_KEY to the server's .env and restart it"),
        _ => ("no key, login or program", "run `countersign doctor` to see what is missing, and add it"),
    }
}

/// Returns the name of a provider as shown to people.
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

fn provider_prefix(spec: &str) -> &str {
    spec.split(':').next().unwrap_or(spec)
}

/// Formats a time, for example `14:05 UTC`.
fn format_time(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{} UTC", text.get(11..16).unwrap_or(&text))
}

/// Formats a date and time, for example `2026-03-02 14:05 UTC`.
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
    fn status_comment_shows_a_pause_by_the_operator_only_for_live_runs() {
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
                let before =
                    format!("{PAUSE_LINE}whoever runs this server, since then.\n\n{}", text.as_str());
                assert_eq!(with_pause_line(&before, Some(at)).as_str(), shown.as_str(), "{state:?}");
            }
        }
    }

    fn sentence_for(hold: ModelWaitReason, spec: &str) -> String {
        let until = Timestamp::parse("2026-03-02T14:05:59Z").unwrap();
        ModelWait { reason: hold, role: "reviewer".into(), spec: spec.into(), until }.sentence()
    }

    #[test]
    fn model_wait_sentence_names_the_provider_and_the_fix() {
        assert_eq!(
            sentence_for(ModelWaitReason::Busy, "claude:opus"),
            "Waiting for Claude: it is busy; next try at 14:05 UTC."
        );
        assert_eq!(
            sentence_for(ModelWaitReason::Lacking, "gemini:pro"),
            "The reviewer `gemini:pro` has no key on this server. The operator can add GEMINI_API_KEY to the server's .env \
             and restart it; then the run resumes by itself."
        );
        assert!(
            sentence_for(ModelWaitReason::Crowded, "claude:opus")
                .ends_with("Claude is called when it is this run's turn.")
        );
        assert!(
            sentence_for(ModelWaitReason::UsedUp, "gemini:pro").contains("next try at 2026-03-02 14:05 UTC")
        );
        assert!(sentence_for(ModelWaitReason::Refused, "gemini:pro").contains("`countersign doctor`"));
    }
}
