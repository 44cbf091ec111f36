//! Comments about the end of a run: the reason, the documents and branches that are kept, and the command to type next.

use super::{capitalize, code_block, count, link, rehearsal_banner};
use crate::{
    github::outbound::{OutboundBody, inline_code, inline_text},
    types::{Hash, RunId},
};

/// A run that has halted.
#[derive(Debug, Clone)]
pub struct HaltCard {
    pub run: RunId,
    /// Title of the step that halted, such as `Review`.
    pub at_step: String,
    pub reason: HaltReason,
    pub leftovers: Vec<HaltLeftover>,
    /// Command that starts the run again, such as `/lld`.
    pub restart_command: String,
    pub rehearsal: bool,
}

/// Reason why a run halted, in our own words. Messages of a provider or a library are not shown; the server stores them
/// under the run's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HaltReason {
    /// The run took too many steps without an answer from a person.
    MoveLimit { moves: u32 },
    /// A bug in Countersign, which occurred in all of these attempts.
    Bug { attempts: u32 },
    /// A problem that a person has to fix, described in our own words.
    UserError(String),
}

impl HaltReason {
    fn text(&self) -> String {
        match self {
            Self::MoveLimit { moves } => format!("the run took {moves} steps without finishing"),
            Self::Bug { attempts } => format!(
                "this is a bug in Countersign: {} failed, and the server's log has the details",
                count(*attempts as usize, "attempt", "attempts")
            ),
            Self::UserError(text) => inline_text(text, 500),
        }
    }
}

/// Something that remains after a halt: a document, a branch or a pull request.
#[derive(Debug, Clone)]
pub enum HaltLeftover {
    /// The document on the branch of the issue.
    File {
        name: String,
        hash: Hash,
        url: String,
    },
    /// A draft that is not on a branch. `url` is the URL of the status comment, which contains the draft.
    Draft {
        hash: Hash,
        url: String,
    },
    /// The branch of the issue, without the document.
    Branch {
        name: String,
    },
    /// A branch that may or may not exist, because GitHub refused to show it.
    UnreadableBranch {
        branch: String,
    },
    Pull {
        number: u64,
        url: String,
    },
}

impl HaltLeftover {
    fn text(&self) -> String {
        match self {
            Self::File { name, hash, url } => {
                format!("{} (`{}`), {}", inline_code(name, 100), hash.short(), link("on the branch", url))
            }
            Self::Draft { hash, url } => {
                format!("the last draft (`{}`), {}", hash.short(), link("in the status comment", url))
            }
            Self::Branch { name } => format!("the branch {}", inline_code(name, 100)),
            Self::UnreadableBranch { branch } => {
                format!(
                    "the branch {}, if it exists: GitHub does not let Countersign read it",
                    inline_code(branch, 100)
                )
            }
            Self::Pull { number, url } => format!("the pull request, {}", link(&format!("#{number}"), url)),
        }
    }
}

/// Returns the reason why a stopped run ended. `sentence` continues the words `the run was`.
pub fn run_end_reason(sentence: &str) -> String {
    format!("the run was {sentence}")
}

pub fn halt_comment(card: &HaltCard) -> OutboundBody {
    let kept = match card.leftovers.as_slice() {
        [] => "There is no branch and no pull request for this issue.".to_owned(),
        kept => {
            let lines: Vec<String> = kept.iter().map(|k| format!("- {}", k.text())).collect();
            format!("Kept:\n\n{}", lines.join("\n"))
        }
    };
    // Only the operator, who sees the server's log, can know whether a bug is fixed.
    let to_go_on = match card.reason {
        HaltReason::Bug { .. } => format!(
            "Once the bug is fixed, the operator can resume from this step:\n\n{}\n\n",
            code_block(&format!("countersign retry {}", card.run))
        ),
        HaltReason::UserError(_) => {
            format!("Once the cause is fixed, resume from this step:\n\n{}\n\n", code_block("/retry"))
        }
        HaltReason::MoveLimit { .. } => String::new(),
    };
    OutboundBody::frame(format!(
        "{}### ❌ Halted at {}\n\n{}\n\n{kept}\n\n{to_go_on}To start again:\n\n{}\n\n<sub>Run {}</sub>",
        rehearsal_banner(card.rehearsal),
        inline_text(&card.at_step, 80),
        to_sentence(&card.reason.text()),
        code_block(&card.restart_command),
        card.run
    ))
}

fn to_sentence(text: &str) -> String {
    let text = capitalize(text);
    if text.ends_with(['.', '!', '?']) { text } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    fn card(reason: HaltReason, kept: Vec<HaltLeftover>) -> HaltCard {
        HaltCard {
            run: RUN,
            at_step: "Review".into(),
            reason,
            leftovers: kept,
            restart_command: "/lld".into(),
            rehearsal: false,
        }
    }

    #[test]
    fn halt_comment_names_the_step_reason_commands_and_kept_work() {
        let (name, hash) = ("LLD-042.md".to_owned(), Hash::digest(b"x"));
        let kept = vec![
            HaltLeftover::File { name, hash, url: "https://x/d".into() },
            HaltLeftover::Draft { hash: Hash::digest(b"y"), url: "https://x/s".into() },
            HaltLeftover::Branch { name: "countersign/issue-42".into() },
            HaltLeftover::UnreadableBranch { branch: "countersign/issue-42".into() },
            HaltLeftover::Pull { number: 7, url: "https://x/7".into() },
        ];
        insta::assert_snapshot!(halt_comment(&card(HaltReason::UserError("the reviewer's quota is used up".into()), kept)).as_str(), @r#"
        ### ❌ Halted at Review

        The reviewer's quota is used up.

        Kept:

        - `LLD-042.md` (`2d711642b726`), [on the branch](https://x/d)
        - the last draft (`a1fce4363854`), [in the status comment](https://x/s)
        - the branch `countersign/issue-42`
        - the branch `countersign/issue-42`, if it exists: GitHub does not let Countersign read it
        - the pull request, [#7](https://x/7)

        Once the cause is fixed, resume from this step:

        ```
        /retry
        ```

        To start again:

        ```
        /lld
        ```

        <sub>Run 8123-4</sub>
        "#);
    }

    #[test]
    fn halt_comment_after_a_bug_offers_a_retry_by_the_operator() {
        let body = halt_comment(&card(HaltReason::Bug { attempts: 5 }, vec![]));
        assert!(body.as_str().contains("```\ncountersign retry 8123-4\n```"), "{}", body.as_str());
        assert!(!halt_comment(&card(HaltReason::MoveLimit { moves: 3 }, vec![])).as_str().contains("retry"));
    }

    #[test]
    fn halt_comment_neutralises_hostile_text() {
        for reason in [
            HaltReason::UserError(HOSTILE.into()),
            HaltReason::Bug { attempts: 5 },
            HaltReason::MoveLimit { moves: 40 },
        ] {
            let mut card = card(reason, vec![]);
            card.at_step = HOSTILE.into();
            assert_inert(halt_comment(&card).as_str());
        }
    }
}
