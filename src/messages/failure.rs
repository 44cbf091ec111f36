//! Explains failed model calls and reviews without a verdict, in our own words and with the way to fix them. Messages
//! of the provider are not shown, except for the name of an error.

use serde::{Deserialize, Serialize};

use super::capitalize;
use crate::{
    github::outbound::inline_code,
    limits,
    providers::successor_setting,
    types::{WorkerPool, count},
};

const RETRY_WINDOW_MINUTES: u64 = limits::MODEL_RETRY_WINDOW.as_secs() / 60;

/// Kind of a failed call, classified by the action that would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The provider is busy or throttles us; waiting helps.
    Busy,
    /// The provider is unreachable or dropped the connection; waiting may help.
    Unavailable,
    /// The quota or credit of the account is exhausted; waiting or paying helps.
    UsedUp,
    /// Our key or login was refused; only the operator can fix this.
    Auth,
    /// The server has no key, login or program for this model, so the model was not called.
    Lacking,
    /// The model declined the request.
    Refused,
    /// The service rejected the request with this error code.
    Rejected {
        code: String,
    },
    /// The service does not know this model.
    NoSuchModel {
        model: String,
    },
    /// The program exceeded the memory limit of its pool. Both numbers are in megabytes.
    ResourceExhausted {
        used: u64,
        limit: u64,
        pool: WorkerPool,
    },
    /// The prompt does not fit into the model's context.
    TooLong,
    /// The call could cost more than the remaining budget.
    OverBudget,
    /// The response was truncated.
    Truncated,
    /// The response does not have the required format.
    Invalid,
    /// The response was empty twice.
    Empty,
    /// The response does not say which model produced it.
    OtherModel,
    /// The response came from a model other than the one called.
    ServedOther {
        provider: String,
        asked: String,
        served: String,
    },
    TimedOut,
}

impl FailureKind {
    /// Returns a clause that describes the failed call.
    pub fn clause(&self, role: &str) -> String {
        match self {
            Self::Busy => {
                format!("the {role}'s service stayed busy for {RETRY_WINDOW_MINUTES} minutes or longer")
            }
            Self::Unavailable => format!(
                "the {role}'s service was unreachable or dropped the connection for {RETRY_WINDOW_MINUTES} minutes or \
                 longer"
            ),
            Self::UsedUp => format!("the {role}'s account has no quota or credit left"),
            Self::Auth => format!("the {role} does not accept this server's key or login"),
            Self::Lacking => format!("this server has no key, login or program for the {role}"),
            Self::Refused => format!("the {role} declined to answer"),
            Self::Rejected { code: named } => {
                format!("the {role}'s service does not accept our request ({})", inline_code(named, 60))
            }
            Self::NoSuchModel { model } => {
                format!("the {role}'s service does not have the model {}", inline_code(model, 80))
            }
            Self::ResourceExhausted { used, limit, pool } => format!(
                "the {role}'s program was killed at {used} MB of memory; its worker pool {} allows {limit} MB",
                inline_code(pool.as_str(), 20)
            ),
            Self::TooLong => format!("the {role}'s prompt does not fit into its model's context"),
            Self::OverBudget => format!("the {role}'s call could cost more than the remaining budget"),
            Self::Truncated => format!("the {role}'s answer was cut off"),
            Self::Invalid => format!("the {role}'s answer did not have the required format"),
            Self::Empty => format!("the {role} gave an empty answer, twice"),
            Self::OtherModel => "the answer does not say which model gave it".to_owned(),
            Self::ServedOther { asked, served, .. } => format!(
                "Countersign called {} as the {role}, but {} answered, so the answer does not count",
                inline_code(asked, 80),
                inline_code(served, 80)
            ),
            Self::TimedOut => format!("the {role} timed out on every attempt"),
        }
    }

    /// Returns the action that is needed before the same call can succeed; `None` if a retry may succeed without any
    /// action.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Rejected { .. } => {
                "The server's log has the service's reason, under the run's id.".to_owned()
            }
            Self::NoSuchModel { .. } => {
                "The operator can set another model under [models]; `countersign models` lists them."
                    .to_owned()
            }
            Self::ServedOther { provider, asked, served } => format!(
                "The operator can name {} in the settings, or add {} under `[models.successors]`, and restart the \
                 server. Until then, {} is not called.",
                inline_code(&format!("{provider}:{served}"), 100),
                inline_code(&successor_setting(provider, asked, served), 200),
                inline_code(asked, 80)
            ),
            Self::ResourceExhausted { pool, .. } => format!(
                "The operator can raise memory_mb under [workers.{}], or set a model that is called over the network.",
                pool.as_str()
            ),
            Self::Refused => {
                "Reword the issue, or ask the operator to set another model under [models].".to_owned()
            }
            Self::TooLong => {
                "The operator can set a model with a larger context; `countersign models` lists them."
                    .to_owned()
            }
            _ => return None,
        })
    }

    /// Returns the description of the failure and its remedy as sentences.
    pub fn sentence(&self, role: &str) -> String {
        let remedy = self.remedy().map_or(String::new(), |remedy| format!(" {remedy}"));
        format!("{}.{remedy}", capitalize(&self.clause(role)))
    }
}

/// Returns the reason why the run ends without a usable draft. `why` describes the problem of the last response in our
/// own words.
pub fn unusable_draft_reason(tries: u32, why: &str) -> String {
    let attempts = count(tries as usize, "attempt", "attempts");
    format!(
        "No usable draft after {attempts}. On the last attempt, {why}. Reword the issue, or ask the operator to set \
         another model under [models]."
    )
}

/// Reason why a review has no verdict. It is determined by our code, never by a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InconclusiveReason {
    Call(FailureKind),
    /// The response does not match the schema, or does not repeat the nonce.
    NotInForm,
    /// The response does not name a known model.
    Unattested,
    /// Drafter and reviewer belong to the same model family.
    SameFamily,
    /// The drafter's model is unknown, so any reviewer could belong to the same family. Therefore no reviewer was
    /// called.
    DrafterUnattested,
    /// The response came from a model other than the one called, perhaps a smaller one.
    OtherModel,
}

impl InconclusiveReason {
    /// Whether another review of the same version can give a verdict.
    pub fn can_be_retried(&self) -> bool {
        *self != Self::DrafterUnattested
    }

    pub fn sentence(&self) -> String {
        match self {
            Self::Call(kind) => kind.sentence("reviewer"),
            Self::NotInForm => "The reviewer's answer was not a valid verdict, twice.".to_owned(),
            Self::Unattested => "The reviewer's answer does not say which model gave it.".to_owned(),
            Self::SameFamily => {
                "The reviewer's model is of the same family as a drafter's model.".to_owned()
            }
            Self::DrafterUnattested => "It is unknown which model wrote the draft or a part of it, so no review \
                                        of it can count, and Countersign does not pay for one. To get a review, \
                                        push your own version to the branch. Or ask the operator to set a \
                                        drafter that reports its model, then write `/restart`."
                .to_owned(),
            Self::OtherModel => FailureKind::OtherModel.sentence("reviewer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn failure_sentences_neutralise_model_names_sent_by_services() {
        for kind in [
            FailureKind::Rejected { code: HOSTILE.into() },
            FailureKind::NoSuchModel { model: HOSTILE.into() },
            FailureKind::ServedOther {
                provider: "gemini".into(),
                asked: "gemini-3-pro-preview".into(),
                served: HOSTILE.into(),
            },
        ] {
            assert_inert(&InconclusiveReason::Call(kind).sentence());
        }
    }

    #[test]
    fn failure_reasons_stored_by_older_versions_deserialize() {
        let read = |text| serde_json::from_str::<InconclusiveReason>(text).unwrap();
        assert_eq!(read(r#"{"call":"timed_out"}"#), InconclusiveReason::Call(FailureKind::TimedOut));
        assert_eq!(read(r#""drafter_unattested""#), InconclusiveReason::DrafterUnattested);
    }
}
