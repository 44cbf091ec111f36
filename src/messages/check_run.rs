//! The check on a commit of the branch: one line on how the run stands, and the findings at their lines.

use super::{Acceptance, rehearsal_banner, stage_name, status::run_page_link};
use crate::{
    documents::{findings::Finding, verdict::FindingSeverity},
    github::{
        Annotation, AnnotationLevel, CheckRunContent, CheckRunStatus, MAX_ANNOTATIONS,
        outbound::{OutboundBody, inline_code, plain_line},
    },
    types::{Hash, RunId, Verdict},
};

#[derive(Debug, Clone)]
pub struct CheckCard {
    /// `lld`
    pub stage: String,
    pub run: RunId,
    /// Where the run's page is, if the world can reach one.
    pub page: Option<String>,
    pub state: CheckRunState,
    /// The document on the branch.
    pub path: String,
    /// Where there is more.
    pub url: Option<String>,
    /// What to show at which line of it.
    pub findings: Vec<(Finding, usize)>,
    /// What the pull request says, where an accepted change is on the commit.
    pub change: Option<OutboundBody>,
    pub rehearsal: bool,
}

/// How the run stands.
#[derive(Debug, Clone)]
pub enum CheckRunState {
    Working,
    /// A person decides; `None` before the review.
    Decision {
        verdict: Option<Verdict>,
    },
    /// Only with more money.
    Budget,
    /// Whoever runs the server has to do something first.
    Parked,
    /// The commit is of what was accepted, and this link of the audit chain says so.
    Accepted {
        acceptance: Option<Acceptance>,
        audit: Hash,
    },
    /// At this step.
    Halted(String),
    Stopped,
    /// A later commit of the run took its place while it was at work.
    Replaced,
}

/// `countersign / lld`
pub fn check_name(stage: &str) -> String {
    format!("countersign / {stage}")
}

pub fn check_run_text(card: &CheckCard) -> CheckRunContent {
    let (state, title, says) = describe_state(&card.state);
    let shown = card.findings.len().min(MAX_ANNOTATIONS);
    let more = match card.findings.len() - shown {
        0 => String::new(),
        more => format!(" Only {shown} findings are shown at their lines; {more} more are on the issue."),
    };
    let (stage, path) = (stage_name(&card.stage), inline_code(&card.path, 150));
    let (head, run, page) = (rehearsal_banner(card.rehearsal), card.run, run_page_link(card.page.as_deref()));
    let summary = format!("{head}{stage} {path}: {says}{more}\n\n<sub>Run {run}{page}</sub>");
    let annotation = |(finding, at): &(Finding, usize)| annotation(&card.path, finding, *at);
    CheckRunContent {
        state,
        title,
        summary: card.change.clone().unwrap_or_else(|| OutboundBody::frame(summary)),
        url: card.url.clone(),
        annotations: card.findings.iter().take(shown).map(annotation).collect(),
    }
}

fn describe_state(stands: &CheckRunState) -> (CheckRunStatus, String, String) {
    let plain = |state, title: &str, says: &str| (state, title.to_owned(), says.to_owned());
    match stands {
        CheckRunState::Working => {
            plain(CheckRunStatus::InProgress, "At work", "models are at work on it; nobody is waited for.")
        }
        CheckRunState::Decision { verdict } => {
            let title = match verdict {
                None => "Waits for a person, before its review".to_owned(),
                Some(verdict) => format!("{verdict}: waits for a person"),
            };
            let says = "somebody has to decide; the details say what to write, and where.";
            (CheckRunStatus::ActionRequired, title, says.to_owned())
        }
        CheckRunState::Budget => plain(
            CheckRunStatus::ActionRequired,
            "Paused: the budget leaves too little for the next call",
            "the details say how it goes on.",
        ),
        CheckRunState::Parked => plain(
            CheckRunStatus::ActionRequired,
            "Waits for whoever runs this server",
            "a model cannot be asked until they mend that.",
        ),
        CheckRunState::Accepted { acceptance, audit } => {
            let how = acceptance.as_ref().map_or("accepted".to_owned(), Acceptance::text);
            (
                CheckRunStatus::Success,
                "Countersigned".to_owned(),
                format!("{how}. Link of the audit chain: `{audit}`."),
            )
        }
        CheckRunState::Halted(step) => (
            CheckRunStatus::Failure,
            format!("Halted at {step}"),
            "the run could not go on; the newest comment on the issue says why, and how to start again."
                .to_owned(),
        ),
        CheckRunState::Stopped => plain(CheckRunStatus::Cancelled, "Stopped", "somebody stopped the run."),
        CheckRunState::Replaced => plain(
            CheckRunStatus::Cancelled,
            "Replaced by a later commit",
            "a later commit of the same run has a check of its own.",
        ),
    }
}

fn annotation(path: &str, finding: &Finding, at: usize) -> Annotation {
    let level = match finding.severity {
        FindingSeverity::Blocking => AnnotationLevel::Failure,
        FindingSeverity::High => AnnotationLevel::Warning,
        FindingSeverity::Suggestion => AnnotationLevel::Notice,
    };
    let (severity, place) = (finding.severity.as_str(), plain_line(&finding.place, 80));
    Annotation {
        path: path.to_owned(),
        line: at,
        level,
        title: format!("{} ({severity}, {}) at {place}", finding.id, plain_line(&finding.category, 40)),
        message: plain_line(&format!("{}. {}", finding.title.trim_end_matches('.'), finding.detail), 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    #[test]
    fn a_check_says_one_line_and_nothing_in_it_acts() {
        let finding = Finding {
            category: HOSTILE.into(),
            detail: HOSTILE.repeat(100),
            ..finding("F1", FindingSeverity::Blocking, HOSTILE, HOSTILE)
        };
        let acceptance = Acceptance::Overridden {
            by: HOSTILE.into(),
            at: crate::types::Timestamp(0),
            reason: HOSTILE.into(),
        };
        let text = check_run_text(&CheckCard {
            stage: "lld".into(),
            run: RUN,
            page: None,
            state: CheckRunState::Accepted { acceptance: Some(acceptance), audit: Hash::digest(b"x") },
            path: "docs/lld/LLD-42.md".into(),
            url: None,
            findings: vec![(finding, 7); MAX_ANNOTATIONS + 2],
            change: None,
            rehearsal: false,
        });
        assert_eq!((text.state, text.title.as_str()), (CheckRunStatus::Success, "Countersigned"));
        assert_inert(text.summary.as_str());
        assert!(text.summary.as_str().contains("Only 50 findings are shown"), "{:?}", text.summary);
        assert_eq!(text.annotations.len(), MAX_ANNOTATIONS);
        let shown = &text.annotations[0];
        assert_eq!((shown.line, shown.level), (7, AnnotationLevel::Failure));
        for text in [&shown.title, &shown.message] {
            assert!(!text.contains('\n') && !text.contains("@mona") && text.chars().count() < 2000, "{text}");
        }
    }
}
