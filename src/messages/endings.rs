//! How a run ends: done, stopped by a person, or halted, with what was kept and what to type next.

use super::{ModelView, block, capital, count, link, pull::ApprovalLine, rehearsal, stage_name};
use crate::{
    github::outbound::{Body, code, plain},
    types::{Hash, RunId, Verdict},
};

/// A run that could not go on.
#[derive(Debug, Clone)]
pub struct HaltCard {
    pub run: RunId,
    /// Where: `N3 Review`.
    pub at_step: String,
    pub reason: HaltReason,
    pub kept: Vec<Kept>,
    /// The command that starts it again: `/lld`.
    pub again: String,
    pub rehearsal: bool,
}

/// Why a run halted. The words are ours; a provider's or a library's stay on the server, under the
/// run's id.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum HaltReason {
    /// As many rounds as are allowed.
    RoundsSpent {
        cap: u32,
        last: Verdict,
    },
    /// Two rounds in a row in which nothing that counted was settled.
    Stalled {
        findings: Vec<String>,
    },
    /// The drafter did not get the form right.
    NotInForm {
        attempts: u32,
        mistakes: Vec<String>,
    },
    Drafter(CallFailure),
    Reviewer(CallFailure),
    /// Drafter and reviewer would be of one family.
    NoOtherFamily,
    EmptyIssue,
    IssueClosed,
    IssueGone,
    RepositoryGone,
    Archived,
    /// Somebody else's commit on our branch.
    BranchMoved {
        branch: String,
    },
    /// GitHub refused a call for want of a permission.
    Forbidden {
        permission: String,
    },
    MoveLimit {
        moves: u32,
    },
    Bug {
        attempts: u32,
    },
    /// A sentence of ours from elsewhere in the program.
    Said(String),
}

/// How a model's call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum CallFailure {
    Capacity,
    RateLimited,
    Quota,
    Auth,
    Refused,
    TooLong,
    Truncated,
    InvalidOutput,
    TimedOut,
    Unavailable,
}

impl CallFailure {
    fn text(self) -> &'static str {
        match self {
            Self::Capacity => "its provider has no capacity now",
            Self::RateLimited => "its provider asked to go slower for too long",
            Self::Quota => "its quota is used up",
            Self::Auth => "its provider refused the server's credentials; the operator must look",
            Self::Refused => "it refused to answer",
            Self::TooLong => "the prompt is too long for it",
            Self::Truncated => "its answer was cut off",
            Self::InvalidOutput => "its answers could not be used",
            Self::TimedOut => "it did not answer in time",
            Self::Unavailable => "it could not be reached",
        }
    }
}

impl HaltReason {
    fn text(&self) -> String {
        match self {
            Self::RoundsSpent { cap, last } => {
                format!("{} were made and the last verdict is {last}", count(*cap as usize, "round", "rounds"))
            }
            Self::Stalled { findings } => {
                format!("two rounds settled none of the findings that count: {}", list(findings, 20))
            }
            Self::NotInForm { attempts, mistakes } => format!(
                "{} did not bring the document into form:\n\n{}",
                count(*attempts as usize, "attempt", "attempts"),
                bullets(mistakes)
            ),
            Self::Drafter(failure) => format!("the drafter gave no document: {}", failure.text()),
            Self::Reviewer(failure) => format!("the reviewer gave no verdict: {}", failure.text()),
            Self::NoOtherFamily => "no reviewer of another family than the drafter's is configured, and no model may approve itself".into(),
            Self::EmptyIssue => "the issue says nothing to design from; describe what is wanted and start again".into(),
            Self::IssueClosed => "the issue was closed".into(),
            Self::IssueGone => "the issue is no longer there".into(),
            Self::RepositoryGone => "the repository is no longer the one this began in".into(),
            Self::Archived => "the repository is archived".into(),
            Self::BranchMoved { branch } => {
                format!("the branch {} holds commits that are not from this run; they were left alone", code(branch, 100))
            }
            Self::Forbidden { permission } => {
                format!("GitHub asks for a permission the App does not have: {}", code(permission, 100))
            }
            Self::MoveLimit { moves } => format!("it took {moves} steps without reaching an end"),
            Self::Bug { attempts } => format!(
                "something is wrong in Countersign itself; {} failed, and the details are in the server's log",
                count(*attempts as usize, "attempt", "attempts")
            ),
            Self::Said(text) => plain(text, 500),
        }
    }
}

/// Something that is still there after a halt.
#[derive(Debug, Clone)]
pub enum Kept {
    Draft { name: String, hash: Hash, url: Option<String> },
    Pull { number: u64, url: String },
}

impl Kept {
    fn text(&self) -> String {
        match self {
            Self::Draft { name, hash, url } => {
                let draft = format!("the best draft, {} (`{}`)", code(name, 100), hash.short());
                url.as_ref().map_or(draft.clone(), |url| format!("{draft}, {}", link("on the branch", url)))
            }
            Self::Pull { number, url } => format!("the pull request, {}", link(&format!("#{number}"), url)),
        }
    }
}

pub fn halted(card: &HaltCard) -> Body {
    let kept = match card.kept.as_slice() {
        [] => "Nothing was written to the repository.".to_owned(),
        kept => {
            let lines: Vec<String> = kept.iter().map(|k| format!("- {}", k.text())).collect();
            format!("Kept:\n\n{}", lines.join("\n"))
        }
    };
    Body::frame(format!(
        "{}### ❌ Halted at {}\n\n{}\n\n{kept}\n\nTo start again:\n\n{}\n\n<sub>Run {}</sub>",
        rehearsal(card.rehearsal),
        plain(&card.at_step, 80),
        sentence(&card.reason.text()),
        block(&card.again),
        card.run
    ))
}

/// A run that a person ended. `by` is their login.
pub fn stopped(run: RunId, by: &str, again: &str) -> Body {
    let by = plain(by, 60);
    Body::frame(format!(
        "### ⏹️ Stopped by {by}\n\nWhat was made so far stays on the branch. To start again:\n\n{}\n\n<sub>Run {run}</sub>",
        block(again)
    ))
}

/// A run that reached its end.
#[derive(Debug, Clone)]
pub struct DoneCard {
    pub run: RunId,
    pub stage: String,
    pub document_path: String,
    pub document: Hash,
    pub document_url: Option<String>,
    pub pull: Option<(u64, String)>,
    pub ending: Ending,
    pub drafter: ModelView,
    pub reviewer: ModelView,
    pub rehearsal: bool,
}

/// Who signed, and over which verdict.
#[derive(Debug, Clone)]
pub struct Ending {
    pub verdict: Verdict,
    pub approval: ApprovalLine,
}

pub fn finished(card: &DoneCard) -> Body {
    let path = code(&card.document_path, 150);
    let file =
        card.document_url.as_ref().map_or(path.clone(), |url| format!("{path} ({})", link("file", url)));
    let pull = card.pull.as_ref().map_or(String::new(), |(number, url)| {
        format!("\n\nThe pull request is {}; merging it is up to you.", link(&format!("#{number}"), url))
    });
    Body::frame(format!(
        "{}### ✅ The {} is countersigned\n\n{file}, `{}`\n\n- verdict {}, drafted by {}, reviewed by {}\n- {}{pull}\n\n<sub>Run {}</sub>",
        rehearsal(card.rehearsal),
        stage_name(&card.stage),
        card.document.short(),
        card.ending.verdict,
        card.drafter.text(),
        card.reviewer.text(),
        card.ending.approval.text(),
        card.run
    ))
}

fn list(items: &[String], most: usize) -> String {
    let shown: Vec<String> = items.iter().take(most).map(|item| plain(item, 40)).collect();
    let more = items.len().saturating_sub(most);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

fn bullets(items: &[String]) -> String {
    const MOST: usize = 15;
    let mut lines: Vec<String> =
        items.iter().take(MOST).map(|item| format!("- {}", plain(item, 300))).collect();
    if items.len() > MOST {
        lines.push(format!("- … and {} more", items.len() - MOST));
    }
    lines.join("\n")
}

fn sentence(text: &str) -> String {
    let text = capital(text);
    if text.contains("\n- ") || text.ends_with(['.', '!', '?']) { text } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::types::{RepoId, Timestamp};

    const RUN: RunId = RunId { repo: RepoId(8123), seq: 4 };

    fn card(reason: HaltReason, kept: Vec<Kept>) -> HaltCard {
        HaltCard {
            run: RUN,
            at_step: "N3 Review".into(),
            reason,
            kept,
            again: "/lld".into(),
            rehearsal: false,
        }
    }

    #[test]
    fn a_halt_says_where_why_what_was_kept_and_what_to_type() {
        let kept = vec![Kept::Draft {
            name: "LLD-042.md".into(),
            hash: Hash::of(b"x"),
            url: Some("https://x/d".into()),
        }];
        insta::assert_snapshot!(halted(&card(HaltReason::Reviewer(CallFailure::Quota), kept)).as_str(), @r#"
        ### ❌ Halted at N3 Review

        The reviewer gave no verdict: its quota is used up.

        Kept:

        - the best draft, `LLD-042.md` (`2d711642b726`), [on the branch](https://x/d)

        To start again:

        ```
        /lld
        ```

        <sub>Run 8123-4</sub>
        "#);
    }

    #[test]
    fn endings_act_on_nothing() {
        let hostile = || vec![HOSTILE.to_owned(); 30];
        for reason in [
            HaltReason::Said(HOSTILE.into()),
            HaltReason::Stalled { findings: hostile() },
            HaltReason::NotInForm { attempts: 3, mistakes: hostile() },
            HaltReason::BranchMoved { branch: HOSTILE.into() },
            HaltReason::Forbidden { permission: HOSTILE.into() },
        ] {
            let mut card = card(reason, vec![]);
            card.at_step = HOSTILE.into();
            assert_inert(halted(&card).as_str());
        }
        assert_inert(stopped(RUN, HOSTILE, "/lld").as_str());
    }

    #[test]
    fn the_end_names_who_signed() {
        let approval =
            ApprovalLine { by: "mona".into(), at: Timestamp(0), override_reason: Some("known".into()) };
        let card = DoneCard {
            run: RUN,
            stage: "lld".into(),
            document_path: "docs/lld/LLD-042.md".into(),
            document: Hash::of(b"x"),
            document_url: None,
            pull: Some((7, "https://github.com/o/r/pull/7".into())),
            ending: Ending { verdict: Verdict::Blocked, approval },
            drafter: ModelView::default(),
            reviewer: ModelView::default(),
            rehearsal: true,
        };
        assert_inert(finished(&card).as_str());
        insta::assert_snapshot!(finished(&card).as_str(), @r#"
        > **Rehearsal**: scripted answers, no model was asked.

        ### ✅ The LLD is countersigned

        `docs/lld/LLD-042.md`, `2d711642b726`

        - verdict BLOCKED, drafted by an unattested model, reviewed by an unattested model
        - **verdict overridden** by mona at 1970-01-01T00:00:00Z: known

        The pull request is [#7](https://github.com/o/r/pull/7); merging it is up to you.

        <sub>Run 8123-4</sub>
        "#);
    }
}
