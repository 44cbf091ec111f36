//! The check run on a commit of the branch. It shows the run's state in one line, and the findings at their
//! lines.

use super::{Acceptance, capitalize, rehearsal_banner, stage_name, status::run_page_link};
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
    /// Stage of the run, such as `lld`.
    pub stage: String,
    pub run: RunId,
    /// URL of the run's page, if it is public.
    pub page: Option<String>,
    pub state: CheckRunState,
    /// Path of the document on the branch.
    pub path: String,
    /// URL of the check's details.
    pub url: Option<String>,
    /// Findings, each with its line in the document.
    pub findings: Vec<(Finding, usize)>,
    /// The section about the change from the pull request's body, if the commit contains an accepted change.
    pub change: Option<OutboundBody>,
    pub rehearsal: bool,
}

/// State of the run, as shown in its check.
#[derive(Debug, Clone)]
pub enum CheckRunState {
    Working,
    /// A person must decide. `verdict` is `None` before the review.
    Decision {
        verdict: Option<Verdict>,
    },
    /// A budget limit has paused the run.
    Budget,
    /// The run waits for the operator.
    Parked,
    /// The commit contains the accepted version. `audit` is the version's entry in the audit chain.
    Accepted {
        acceptance: Option<Acceptance>,
        audit: Hash,
    },
    /// The run has halted. Contains the title of the step that halted.
    Halted(String),
    Stopped,
    /// A later commit of the run has replaced this commit.
    Replaced,
}

/// Returns the name of the check of a stage, such as `countersign / lld`.
pub fn check_name(stage: &str) -> String {
    format!("countersign / {stage}")
}

pub fn check_run_text(card: &CheckCard) -> CheckRunContent {
    let (state, title, says) = describe_state(&card.state);
    let shown = card.findings.len().min(MAX_ANNOTATIONS);
    let more = match card.findings.len() - shown {
        0 => String::new(),
        more => format!(" Only {shown} findings are shown here; the issue lists {more} more."),
    };
    let (stage, path) = (capitalize(&stage_name(&card.stage)), inline_code(&card.path, 150));
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

fn describe_state(run_state: &CheckRunState) -> (CheckRunStatus, String, String) {
    let plain = |state, title: &str, says: &str| (state, title.to_owned(), says.to_owned());
    match run_state {
        CheckRunState::Working => plain(
            CheckRunStatus::InProgress,
            "Running",
            "models are working on it; nothing is needed from you.",
        ),
        CheckRunState::Decision { verdict } => {
            let title = match verdict {
                None => "Waits for a person before the review".to_owned(),
                Some(verdict) => format!("{verdict}: waits for a person"),
            };
            let says = "a person has to decide; the details link shows what to write.";
            (CheckRunStatus::ActionRequired, title, says.to_owned())
        }
        CheckRunState::Budget => plain(
            CheckRunStatus::ActionRequired,
            "Paused: the budget leaves too little for the next call",
            "the details link shows how to continue.",
        ),
        CheckRunState::Parked => plain(
            CheckRunStatus::ActionRequired,
            "Waits for the operator",
            "the run continues once the operator has fixed the cause.",
        ),
        CheckRunState::Accepted { acceptance, audit } => {
            let how = acceptance.as_ref().map_or("accepted".to_owned(), Acceptance::text);
            (
                CheckRunStatus::Success,
                "Countersigned".to_owned(),
                format!("{how}. Audit chain entry: `{audit}`."),
            )
        }
        CheckRunState::Halted(step) => (
            CheckRunStatus::Failure,
            format!("Halted at {step}"),
            "the run halted; the newest comment on the issue says why and how to start again.".to_owned(),
        ),
        CheckRunState::Stopped => plain(CheckRunStatus::Cancelled, "Stopped", "somebody stopped the run."),
        CheckRunState::Replaced => plain(
            CheckRunStatus::Cancelled,
            "Replaced by a later commit",
            "a later commit of the same run has its own check.",
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
    fn check_run_neutralises_hostile_text_and_limits_annotations() {
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
