//! A model's call that came to nothing, and a review that gave no verdict: why, in a clause of ours, and what helps. The
//! provider's own words are in neither, but for the name that it has for an error.

use serde::{Deserialize, Serialize};

use super::capitalize;
use crate::{
    github::outbound::inline_code,
    limits,
    providers::successor_setting,
    types::{WorkerPool, count},
};

const RETRY_WINDOW_MINUTES: u64 = limits::MODEL_RETRY_WINDOW.as_secs() / 60;

/// Why there is no answer, in the terms of what can be done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The provider is busy or limits us; waiting helps.
    Busy,
    /// It could not be reached, or broke off; waiting may help.
    Unavailable,
    /// The account is used up; time helps, or a payment.
    UsedUp,
    /// Our key or login is refused; only the operator can help.
    Auth,
    /// There is no key, login or program to ask with; nothing was asked.
    Lacking,
    /// The model declined.
    Refused,
    /// The service does not take the request; `code` is what it calls that.
    Rejected {
        code: String,
    },
    /// The service knows no such model.
    NoSuchModel {
        model: String,
    },
    /// The program outgrew what its pool allows, in megabytes.
    ResourceExhausted {
        used: u64,
        limit: u64,
        pool: WorkerPool,
    },
    /// The prompt is longer than the model reads.
    TooLong,
    /// It could cost more than is left.
    OverBudget,
    /// The answer was cut.
    Truncated,
    /// The answer is not what was asked for.
    Invalid,
    /// The answer had no text, twice.
    Empty,
    /// The answer does not say which model served it.
    OtherModel,
    /// This model answered, and another was asked for.
    ServedOther {
        provider: String,
        asked: String,
        served: String,
    },
    TimedOut,
}

impl FailureKind {
    /// What happened to the call of the `role`.
    pub fn clause(&self, role: &str) -> String {
        match self {
            Self::Busy => {
                format!("the {role}'s service stayed busy for {RETRY_WINDOW_MINUTES} minutes or longer")
            }
            Self::Unavailable => format!(
                "the {role}'s service could not be reached, or broke off, for {RETRY_WINDOW_MINUTES} minutes or longer"
            ),
            Self::UsedUp => format!("the account that pays the {role} is used up"),
            Self::Auth => format!("the {role} does not accept this server's key or login"),
            Self::Lacking => format!("this server has nothing to ask the {role} with"),
            Self::Refused => format!("the {role} declined to answer"),
            Self::Rejected { code: named } => {
                format!("the {role}'s service does not accept our request ({})", inline_code(named, 60))
            }
            Self::NoSuchModel { model } => {
                format!("the {role}'s service knows no model {}", inline_code(model, 80))
            }
            Self::ResourceExhausted { used, limit, pool } => format!(
                "the {role}'s program was ended when it used {used} MB of memory; its worker pool, {}, allows {limit} MB",
                inline_code(pool.as_str(), 20)
            ),
            Self::TooLong => format!("what the {role} has to be told is longer than its model reads"),
            Self::OverBudget => format!("the {role}'s call could cost more than is left of the budget"),
            Self::Truncated => format!("the {role}'s answer was cut off"),
            Self::Invalid => format!("the {role}'s answer was not in the form asked for"),
            Self::Empty => format!("the {role} gave an empty answer, twice"),
            Self::OtherModel => "the answer does not say which model gave it".to_owned(),
            Self::ServedOther { asked, served, .. } => format!(
                "{} was asked as the {role}, but {} answered, and that answer does not count",
                inline_code(asked, 80),
                inline_code(served, 80)
            ),
            Self::TimedOut => format!("the {role} did not answer in time, in any of its tries"),
        }
    }

    /// What has to change before the same call can end in another way. None: it may as it is.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Rejected { .. } => {
                "Whoever runs the server finds the service's reason in its log, under the run's id.".to_owned()
            }
            Self::NoSuchModel { .. } => {
                "Whoever runs the server names another one under [models]; `countersign models` lists them.".to_owned()
            }
            Self::ServedOther { provider, asked, served } => format!(
                "The operator can name {} in the settings, or add {} under `[models.successors]`, and restart the server. \
                 {} is not asked before that.",
                inline_code(&format!("{provider}:{served}"), 100),
                inline_code(&successor_setting(provider, asked, served), 200),
                inline_code(asked, 80)
            ),
            Self::ResourceExhausted { pool, .. } => format!(
                "Whoever runs the server raises memory_mb under [workers.{}], or names a model that is asked over the \
                 network.",
                pool.as_str()
            ),
            Self::Refused => {
                "Reword the issue, or have whoever runs the server name another model under [models].".to_owned()
            }
            Self::TooLong => {
                "Whoever runs the server names a model with a larger context; `countersign models` lists them."
                    .to_owned()
            }
            _ => return None,
        })
    }

    /// Both, as sentences.
    pub fn sentence(&self, role: &str) -> String {
        let mend = self.remedy().map_or(String::new(), |mend| format!(" {mend}"));
        format!("{}.{mend}", capitalize(&self.clause(role)))
    }
}

/// The run ends: `why` the last answer could not be used, in our words.
pub fn unusable_draft_reason(tries: u32, why: &str) -> String {
    let tries = count(tries as usize, "try", "tries");
    format!(
        "No usable draft after {tries}; at the last one, {why}. Reword the issue, or have whoever runs the server name another \
         model under [models]."
    )
}

/// Why a review gave no verdict. Computed by us, never said by a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InconclusiveReason {
    Call(FailureKind),
    /// The answer is not schema-valid, or does not echo the nonce.
    NotInForm,
    /// The answer names no model we know.
    Unattested,
    /// Drafter and reviewer turned out to be of one family.
    SameFamily,
    /// The draft names no model we know, so no reviewer is known to be of another family. None was asked.
    DrafterUnattested,
    /// Another model than the one asked for served, a smaller one perhaps.
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
            Self::NotInForm => "The reviewer's answer did not fit the form of a verdict, twice.".to_owned(),
            Self::Unattested => "The reviewer's answer does not say which model gave it.".to_owned(),
            Self::SameFamily => {
                "The reviewer's model is of the same family as one that drafted.".to_owned()
            }
            Self::DrafterUnattested => "Of the draft, or a part of it, nobody says which model wrote it, so no review of it could \
                                        count, and none was paid for, nor is a revision, which would still hold that part. A version of \
                                        your own on the branch is reviewed; or whoever runs the server names a drafter that says \
                                        which model it is, and then `/restart` has it drafted anew."
                .to_owned(),
            Self::OtherModel => FailureKind::OtherModel.sentence("reviewer"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn what_a_service_calls_things_does_nothing_in_a_sentence() {
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
    fn what_is_stored_of_older_runs_is_read() {
        let read = |text| serde_json::from_str::<InconclusiveReason>(text).unwrap();
        assert_eq!(read(r#"{"call":"timed_out"}"#), InconclusiveReason::Call(FailureKind::TimedOut));
        assert_eq!(read(r#""drafter_unattested""#), InconclusiveReason::DrafterUnattested);
    }
}
