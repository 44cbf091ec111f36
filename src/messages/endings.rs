//! How a run ends: done, stopped by a person, or halted, with what was kept and what to type next.

use super::{capitalize, code_block, count, link, rehearsal_banner};
use crate::{
    github::outbound::{OutboundBody, inline_code, inline_text},
    types::{Hash, RunId},
};

/// A run that could not go on.
#[derive(Debug, Clone)]
pub struct HaltCard {
    pub run: RunId,
    /// Where: `Review`.
    pub at_step: String,
    pub reason: HaltReason,
    pub leftovers: Vec<HaltLeftover>,
    /// The command that starts it again: `/lld`.
    pub restart_command: String,
    pub rehearsal: bool,
}

/// Why a run halted. The words are ours; a provider's or a library's stay on the server, under the
/// run's id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HaltReason {
    /// So many steps without a person having spoken.
    MoveLimit { moves: u32 },
    /// Our own fault.
    Bug { attempts: u32 },
    /// What a person has to mend, in a sentence of ours from elsewhere in the program.
    UserError(String),
}

impl HaltReason {
    fn text(&self) -> String {
        match self {
            Self::MoveLimit { moves } => format!("it took {moves} steps without reaching an end"),
            Self::Bug { attempts } => format!(
                "something is wrong in Countersign itself; {} failed, and the details are in the server's log",
                count(*attempts as usize, "attempt", "attempts")
            ),
            Self::UserError(text) => inline_text(text, 500),
        }
    }
}

/// Something that is still there after a halt.
#[derive(Debug, Clone)]
pub enum HaltLeftover {
    /// The document on the issue's branch.
    File {
        name: String,
        hash: Hash,
        url: String,
    },
    /// A draft that is on no branch; the link is to the status comment.
    Draft {
        name: String,
        hash: Hash,
        url: String,
    },
    /// The issue's branch, without the document.
    Branch {
        name: String,
    },
    /// There may be a branch: GitHub did not let us look.
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
            Self::Draft { name, hash, url } => {
                let name = inline_code(name, 100);
                format!("the last draft, {name} (`{}`), {}", hash.short(), link("in the status comment", url))
            }
            Self::Branch { name } => format!("the branch {}", inline_code(name, 100)),
            Self::UnreadableBranch { branch } => {
                format!(
                    "whatever is on the branch {}: GitHub does not show it to us",
                    inline_code(branch, 100)
                )
            }
            Self::Pull { number, url } => format!("the pull request, {}", link(&format!("#{number}"), url)),
        }
    }
}

/// Why a run ended that somebody stopped.
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
    // Only whoever sees the server's log can know whether it is mended.
    let to_go_on = match card.reason {
        HaltReason::Bug { .. } => format!(
            "Once that is put right, whoever runs the server can go on from this step:\n\n{}\n\n",
            code_block(&format!("countersign retry {}", card.run))
        ),
        HaltReason::UserError(_) => {
            format!("To go on from this step, once that is put right:\n\n{}\n\n", code_block("/retry"))
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
    fn a_halt_says_where_why_what_was_kept_and_what_to_type() {
        let (name, hash) = ("LLD-042.md".to_owned(), Hash::digest(b"x"));
        let kept = vec![
            HaltLeftover::File { name: name.clone(), hash, url: "https://x/d".into() },
            HaltLeftover::Draft { name, hash: Hash::digest(b"y"), url: "https://x/s".into() },
            HaltLeftover::Branch { name: "countersign/issue-42".into() },
            HaltLeftover::UnreadableBranch { branch: "countersign/issue-42".into() },
            HaltLeftover::Pull { number: 7, url: "https://x/7".into() },
        ];
        insta::assert_snapshot!(halt_comment(&card(HaltReason::UserError("the reviewer's quota is used up".into()), kept)).as_str(), @r#"
        ### ❌ Halted at Review

        The reviewer's quota is used up.

        Kept:

        - `LLD-042.md` (`2d711642b726`), [on the branch](https://x/d)
        - the last draft, `LLD-042.md` (`a1fce4363854`), [in the status comment](https://x/s)
        - the branch `countersign/issue-42`
        - whatever is on the branch `countersign/issue-42`: GitHub does not show it to us
        - the pull request, [#7](https://x/7)

        To go on from this step, once that is put right:

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
    fn a_fault_of_ours_can_be_gone_on_from_once_it_is_mended() {
        let body = halt_comment(&card(HaltReason::Bug { attempts: 5 }, vec![]));
        assert!(body.as_str().contains("```\ncountersign retry 8123-4\n```"), "{}", body.as_str());
        assert!(!halt_comment(&card(HaltReason::MoveLimit { moves: 3 }, vec![])).as_str().contains("retry"));
    }

    #[test]
    fn endings_act_on_nothing() {
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
