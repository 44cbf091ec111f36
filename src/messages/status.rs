//! The status comment. Each issue has one, which is edited in place. It shows the state of each stage; everything else
//! is folded.

use super::{
    Acceptance, Author, CiView, CostView, ModelWait, access_name, capitalize, count, details_block,
    format_spending, link, merge_watch::merge_wait_line, model_waits::format_day_and_time, rehearsal_banner,
    stage_name, verdict_sign,
};
use crate::{
    documents::hidden_text::{HiddenText, HiddenTextKind},
    github::outbound::{OutboundBody, clean, inline_code, inline_text},
    store::Spending,
    types::{Role, RunId, Timestamp, Verdict, WorkerPool},
};

/// Maximum number of characters of a draft shown in the status comment, so that it fits into one comment. The whole
/// draft is on the branch.
const DRAFT_CHARS: usize = 45_000;

#[derive(Debug, Clone)]
pub struct StatusView {
    /// Workflow of the run, such as `lld`.
    pub workflow: String,
    pub run: RunId,
    /// URL of the run's page, if it is public.
    pub page: Option<String>,
    /// Login of the person who requested the run.
    pub requested_by: String,
    pub rehearsal: bool,
    pub state: RunDisplayState,
    pub step: StepPosition,
    /// Result of the stage; meaningful only once the stage is done.
    pub result: StageResult,
    /// The issue's other stages that are finished or active, oldest first.
    pub others: Vec<(String, RunDisplayState, StageResult)>,
    /// Workflow that starts automatically after this one; `None` if no workflow follows.
    pub follows: Option<&'static str>,
    pub rounds: Vec<RoundLine>,
    pub waiting: Option<RunWaitReason>,
    pub draft: Option<DraftView>,
    pub notes: Vec<StatusNote>,
    /// Text in the issue that is hidden from people and therefore was not shown to the models.
    pub hidden: Vec<HiddenText>,
    /// Cost line; `None` if costs are hidden.
    pub cost: Option<CostView>,
    pub updated: Timestamp,
}

/// Result of a stage.
#[derive(Debug, Clone, Default)]
pub struct StageResult {
    pub accepted: Option<Acceptance>,
    /// Number of reviews that the stage needed.
    pub rounds: usize,
    /// Cost of the stage; `None` if costs are hidden.
    pub cost: Option<Spending>,
    pub url: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunDisplayState {
    Working,
    NeedsYou,
    /// The run waits for the operator.
    Parked,
    Done,
    Stopped,
    Failed,
}

/// Current step of a run.
#[derive(Debug, Clone, Copy)]
pub struct StepPosition {
    pub title: &'static str,
    /// Number of the step, counted from 1 among the steps that the run's settings enable.
    pub number: usize,
    pub of: usize,
    /// Number of minutes that the run has spent at this step.
    pub minutes: u64,
}

#[derive(Debug, Clone)]
pub struct RoundLine {
    pub round: u32,
    /// Verdict of the review; `None` before the review.
    pub verdict: Option<Verdict>,
    pub open_findings: usize,
    pub drafter: Author,
    pub reviewer: Author,
}

#[derive(Debug, Clone)]
pub enum RunWaitReason {
    /// The run waits for a person's decision at a gate. If the verdict is not APPROVED, accepting the version needs an
    /// override.
    Decision {
        /// Verdict of the review; `None` before the review.
        verdict: Option<Verdict>,
        gate_url: Option<String>,
    },
    /// The run waits for a model that cannot be called now.
    Model(ModelWait),
    /// The run waits for answers to the questions in the comment at `url`.
    Answers { url: String, until: Timestamp },
    /// The run is paused by a budget limit, explained in the comment at `url`.
    Budget { url: String },
    /// The run waits for its pull request to be merged.
    Merge { ci: Option<CiView>, conflicts: bool, on_top: bool, unknown: bool },
}

#[derive(Debug, Clone)]
pub struct DraftView {
    /// File name, such as `LLD-042.md`; `None` if the document is not published as a file.
    pub path: Option<String>,
    pub text: String,
    /// URL of the file on the branch.
    pub url: Option<String>,
}

/// A note shown to readers of the status comment.
#[derive(Debug, Clone)]
pub enum StatusNote {
    /// Automatic checks found mistakes and sent the draft back before a review.
    SentBack {
        mistakes: usize,
    },
    /// The models saw only the beginning of the issue, because it is too long.
    IssueCut {
        shown: usize,
        of: usize,
    },
    FilesNotShown(usize),
    /// Worker pool in which the run's model programs are executed, and the row of the settings that selects it.
    Workers {
        pool: WorkerPool,
        row: String,
    },
    /// The models called tools to read files.
    ToolCalls {
        calls: usize,
        refused: usize,
    },
    /// Hosts that the operator could add to the allow list.
    Hosts(Vec<String>),
    /// A sentence written by another module.
    Sentence(String),
}

impl StatusNote {
    fn text(&self) -> String {
        match self {
            Self::SentBack { mistakes } => {
                format!(
                    "automatic checks found {} in the draft and sent it back",
                    count(*mistakes, "mistake", "mistakes")
                )
            }
            Self::IssueCut { shown, of } => {
                format!("the issue is long: the models see its first {shown} of {of} characters")
            }
            Self::FilesNotShown(n) => {
                format!("{} of the repository did not fit into the prompt", count(*n, "file", "files"))
            }
            Self::ToolCalls { calls, refused } => {
                let calls = count(*calls, "tool call", "tool calls");
                let refused =
                    if *refused == 0 { String::new() } else { format!(", {refused} of them refused") };
                format!("models made {calls} to read the repository{refused}")
            }
            Self::Workers { pool, row } => {
                format!("worker pool `{}`, assigned by {}", pool.as_str(), inline_code(row, 80))
            }
            Self::Hosts(hosts) => {
                let hosts: Vec<_> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
                format!(
                    "some pages were not read, because the server's settings do not allow their hosts; {} under \
                     `[fetch]` allows them",
                    inline_code(&format!("hosts = [{}]", hosts.join(", ")), 600)
                )
            }
            Self::Sentence(text) => inline_text(text, 300),
        }
    }
}

/// Returns a note about a hotfix.
pub fn hotfix_note(by: &str, reason: &str) -> String {
    format!("Hotfix, requested by {by}: {reason}. Design and spec need no approval; the code does.")
}

/// Returns a note saying that the next stage does not start, because it already has an active run.
pub fn next_stage_running_note(next: &str) -> String {
    format!(
        "This run ends here, because another {next} run is active on this issue. When that run has ended, write \
         /{next}."
    )
}

/// Returns a note saying that a role's model cannot run commands.
pub fn commands_unavailable_note(role: &str) -> String {
    format!("The {role} works without its commands, because this server cannot run commands.")
}

/// Returns the body of the status comment.
pub fn status_comment(view: &StatusView) -> OutboundBody {
    let mut parts = vec![headline(view), stage_lines(view)];
    parts.extend(view.waiting.as_ref().map(waiting_text));
    parts.extend(next_step(view));
    let (sentences, notes): (Vec<_>, Vec<_>) =
        view.notes.iter().partition(|note| matches!(note, StatusNote::Sentence(_) | StatusNote::Hosts(_)));
    let list =
        |notes: &[&StatusNote]| notes.iter().map(|note| format!("- {}", note.text())).collect::<Vec<_>>();
    if !sentences.is_empty() {
        parts.push(list(&sentences).join("\n"));
    }
    if !view.hidden.is_empty() {
        let lines: Vec<String> = view.hidden.iter().map(hidden_text_line).collect();
        parts.push(details_block("Hidden text (not shown to any model)", &lines.join("\n")));
    }
    let mut details = Vec::new();
    if !view.rounds.is_empty() {
        details.push(round_table(&view.rounds));
    }
    if !notes.is_empty() {
        details.push(list(&notes).join("\n"));
    }
    details.extend(view.cost.as_ref().map(CostView::text));
    if !details.is_empty() {
        parts.push(details_block("Details", &details.join("\n\n")));
    }
    if let Some(view) = &view.draft {
        parts.push(draft_section(view));
    }
    parts.push(format!(
        "<sub>`/status` · `/stop` · `/help` · run `{}`{}, requested by {} · updated on {}</sub>",
        view.run,
        run_page_link(view.page.as_deref()),
        inline_text(&view.requested_by, 60),
        format_day_and_time(view.updated)
    ));
    OutboundBody::frame(rehearsal_banner(view.rehearsal).to_owned() + &parts.join("\n\n"))
}

fn hidden_text_line(row: &HiddenText) -> String {
    let (one, many) = match row.kind {
        HiddenTextKind::Comment => ("HTML comment", "HTML comments"),
        HiddenTextKind::Attribute => ("HTML attribute", "HTML attributes"),
        HiddenTextKind::Title => ("link title", "link titles"),
        HiddenTextKind::Description => ("image description", "image descriptions"),
        HiddenTextKind::Tiny => ("passage too small to read", "passages too small to read"),
        HiddenTextKind::Math => ("formula that may not render", "formulas that may not render"),
        HiddenTextKind::Tags => ("passage in invisible characters", "passages in invisible characters"),
        HiddenTextKind::Direction => ("text direction character", "text direction characters"),
        HiddenTextKind::Invisible => ("invisible character", "invisible characters"),
        HiddenTextKind::Unshown => {
            ("passage that Markdown does not render", "passages that Markdown does not render")
        }
    };
    let says =
        if row.excerpt.is_empty() { String::new() } else { format!(": {}", inline_code(&row.excerpt, 80)) };
    format!("- {}{says}", count(row.count, one, many))
}

impl RunDisplayState {
    fn sign(self) -> &'static str {
        match self {
            Self::Working => "⏳",
            Self::NeedsYou | Self::Parked => "✋",
            Self::Done => "✅",
            Self::Stopped => "⏹️",
            Self::Failed => "❌",
        }
    }
}

fn headline(view: &StatusView) -> String {
    let words = match view.state {
        RunDisplayState::Working => "working",
        RunDisplayState::NeedsYou => "waiting for you",
        RunDisplayState::Parked => "waiting for the operator",
        RunDisplayState::Done => "done",
        RunDisplayState::Stopped => "stopped",
        RunDisplayState::Failed => "halted",
    };
    format!("### {} {}: {words}", view.state.sign(), inline_text(&view.workflow, 30))
}

/// Returns one line per stage: the issue's other stages, this stage, and the next one if it starts automatically.
fn stage_lines(view: &StatusView) -> String {
    let line = |state: RunDisplayState, workflow: &str, says: &str| {
        format!("- {} **{}**{says}", state.sign(), capitalize(&stage_name(workflow)))
    };
    let other = |(workflow, state, result): &(String, RunDisplayState, StageResult)| match state {
        RunDisplayState::Done => line(*state, workflow, &format!(": {}", result.text())),
        RunDisplayState::NeedsYou => line(*state, workflow, " also waits for you"),
        _ => line(*state, workflow, " is also running"),
    };
    let mut lines: Vec<String> = view.others.iter().map(other).collect();
    lines.push(match view.state {
        RunDisplayState::Done => line(view.state, &view.workflow, &format!(": {}", view.result.text())),
        _ => view.step.line(),
    });
    lines.extend(view.follows.map(|next| line(RunDisplayState::Working, next, " starts next")));
    lines.join("\n")
}

/// Returns the next command to type after a finished design or spec; `None` if the next stage starts automatically or
/// has already begun.
fn next_step(view: &StatusView) -> Option<String> {
    let (later, says): (&[&str], &str) = match view.workflow.as_str() {
        "lld" => (&["spec", "implement"], "Next: `/spec` writes the implementation spec."),
        "spec" => (&["implement"], "Next: `/implement` writes tests, then code, and opens a pull request."),
        _ => return None,
    };
    let began = view.others.iter().any(|(workflow, ..)| later.contains(&workflow.as_str()));
    (view.state == RunDisplayState::Done && view.follows.is_none() && !began).then(|| says.to_owned())
}

impl StepPosition {
    /// Returns a line about the current step, such as `Step 6 of 11: write the code (2 min)`.
    fn line(&self) -> String {
        let Self { title, number, of, minutes } = self;
        let mut chars = title.chars();
        let first = chars.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
        let time = if *minutes > 0 { format!(" ({minutes} min)") } else { String::new() };
        format!("- Step {number} of {of}: {first}{}{time}", chars.as_str())
    }
}

impl StageResult {
    /// Returns the result in words, for example `approved by sam, 2 rounds, $0.42 billed ([result](…))`.
    fn text(&self) -> String {
        let accepted = match &self.accepted {
            Some(Acceptance::Approved { by, .. }) => format!("approved by {}", inline_text(by, 300)),
            Some(Acceptance::Overridden { by, .. }) => {
                format!("verdict overridden by {}", inline_text(by, 300))
            }
            Some(Acceptance::Unreviewed { by, .. }) => {
                format!("approved by {} without a review", inline_text(by, 300))
            }
            Some(Acceptance::Policy | Acceptance::Waived { .. }) => "approved by the reviewer".to_owned(),
            None => "finished".to_owned(),
        };
        let rounds = Some(self.rounds).filter(|rounds| *rounds > 0);
        let rounds = rounds.map(|rounds| format!(", {}", count(rounds, "round", "rounds")));
        let cost = self.cost.map(|cost| format!(", {}", format_spending(&cost)));
        let url = self.url.as_ref().map(|url| format!(" ({})", link("result", url)));
        [Some(accepted), rounds, cost, url].into_iter().flatten().collect()
    }
}

/// Returns a link to the run's page, which is shown after the run's id.
pub(super) fn run_page_link(url: Option<&str>) -> String {
    url.map(|url| format!(" ({})", link("run page, for the operator", url))).unwrap_or_default()
}

fn waiting_text(waiting: &RunWaitReason) -> String {
    match waiting {
        RunWaitReason::Model(wait) => wait.sentence(),
        RunWaitReason::Merge { ci, conflicts, on_top, unknown } => {
            merge_wait_line(ci.as_ref(), *conflicts, *on_top, *unknown)
        }
        RunWaitReason::Answers { url, until } => format!(
            "**Waits for answers** to {} until {}. After that, the defaults apply.",
            link("these questions", url),
            format_day_and_time(*until)
        ),
        RunWaitReason::Decision { verdict, gate_url } => {
            let what = gate_url.as_ref().map_or("gate".to_owned(), |url| link("gate comment", url));
            match verdict {
                None | Some(Verdict::Approved) => {
                    format!("**Waits for someone with {}** to answer the {what}.", access_name(Role::Write))
                }
                Some(verdict) => {
                    format!("**Waits for a decision** (the verdict is {verdict}) in the {what}.")
                }
            }
        }
        RunWaitReason::Budget { url } => {
            format!("**Paused**: {}.", link("the budget leaves too little for the next call", url))
        }
    }
}

fn round_table(rounds: &[RoundLine]) -> String {
    let mut out =
        String::from("| Round | Verdict | Open findings | Drafted by | Reviewed by |\n|--:|---|--:|---|---|");
    for round in rounds {
        let verdict = round.verdict.map_or("–".to_owned(), |v| format!("{} {v}", verdict_sign(v)));
        let (drafter, reviewer) = (round.drafter.text(), round.reviewer.text());
        let open = round.open_findings;
        out.push_str(&format!("\n| {} | {verdict} | {open} | {drafter} | {reviewer} |", round.round));
    }
    out
}

fn draft_section(view: &DraftView) -> String {
    let text = clean(&view.text, DRAFT_CHARS);
    let file = view
        .url
        .as_ref()
        .map_or(String::new(), |url| format!("{}\n\n", link("Full file on the branch", url)));
    let summary = match &view.path {
        Some(path) => format!("Draft {}", inline_text(path, 80)),
        None => "The draft".to_owned(),
    };
    details_block(&summary, &format!("{file}{text}"))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::types::MicroUsd;

    fn view() -> StatusView {
        StatusView {
            workflow: "spec".into(),
            run: RUN,
            page: Some("https://ops.example.org/runs/8123/4".into()),
            requested_by: "mona".into(),
            rehearsal: true,
            state: RunDisplayState::NeedsYou,
            step: StepPosition { title: "Human gate: verdict", number: 6, of: 7, minutes: 0 },
            result: StageResult::default(),
            others: vec![("lld".into(), RunDisplayState::Done, result())],
            follows: None,
            rounds: vec![RoundLine {
                round: 1,
                verdict: Some(Verdict::Approved),
                open_findings: 0,
                drafter: model("claude-opus-4-6", "claude"),
                reviewer: Author::Model { served: None, family: None, in_place_of: None },
            }],
            waiting: Some(RunWaitReason::Decision {
                verdict: Some(Verdict::Approved),
                gate_url: Some("https://github.com/o/r/issues/42#issuecomment-1".into()),
            }),
            draft: Some(DraftView {
                path: Some("SPEC-042.md".into()),
                text: "# 42 - Feature: x".into(),
                url: None,
            }),
            notes: vec![StatusNote::FilesNotShown(2), StatusNote::Sentence("CI has no logs.".into())],
            hidden: vec![],
            cost: None,
            updated: Timestamp(0),
        }
    }

    fn result() -> StageResult {
        StageResult {
            accepted: Some(Acceptance::Approved { by: "sam".into(), at: Timestamp(0) }),
            rounds: 2,
            cost: Some(Spending { billed: MicroUsd(420_000), ..Spending::default() }),
            url: Some("https://github.com/o/r/issues/42#issuecomment-2".into()),
        }
    }

    #[test]
    fn status_comment_has_one_line_per_stage() {
        let lines = |state, others: &[(&str, RunDisplayState)], follows| {
            let step = StepPosition { title: "Write the code", number: 7, of: 18, minutes: 2 };
            let others =
                others.iter().map(|(name, state)| ((*name).to_owned(), *state, StageResult::default()));
            let view = StatusView {
                state,
                step,
                others: others.collect(),
                follows,
                workflow: "implement".into(),
                rehearsal: false,
                ..view()
            };
            let text = status_comment(&view);
            text.as_str().split("\n\n").take(2).collect::<Vec<_>>().join("\n")
        };
        let all = [
            lines(RunDisplayState::Working, &[("lld", RunDisplayState::NeedsYou)], None),
            lines(RunDisplayState::Failed, &[], None),
            lines(RunDisplayState::Stopped, &[("lld", RunDisplayState::Working)], None),
            lines(RunDisplayState::Done, &[], Some("scout")),
            lines(RunDisplayState::Done, &[("lld", RunDisplayState::Done)], None),
        ];
        insta::assert_snapshot!(all.join("\n\n"), @r"
        ### ⏳ implement: working
        - ✋ **Design** also waits for you
        - Step 7 of 18: write the code (2 min)

        ### ❌ implement: halted
        - Step 7 of 18: write the code (2 min)

        ### ⏹️ implement: stopped
        - ⏳ **Design** is also running
        - Step 7 of 18: write the code (2 min)

        ### ✅ implement: done
        - ✅ **Implement**: finished
        - ⏳ **Brief** starts next

        ### ✅ implement: done
        - ✅ **Design**: finished
        - ✅ **Implement**: finished
        ");
    }

    #[test]
    fn status_comment_neutralises_hostile_text_and_fits_one_comment() {
        let mut hostile = view();
        hostile.requested_by = HOSTILE.into();
        hostile.workflow = HOSTILE.into();
        hostile.rounds[0].drafter = model(HOSTILE, HOSTILE);
        hostile.notes = vec![StatusNote::Sentence(HOSTILE.into())];
        let kind = HiddenTextKind::Comment;
        hostile.hidden = vec![HiddenText { kind, count: 2, excerpt: HOSTILE.into() }];
        (hostile.state, hostile.result.url) = (RunDisplayState::Done, Some("javascript:alert(1)".into()));
        hostile.draft = Some(DraftView {
            path: Some(HOSTILE.into()),
            text: HOSTILE.repeat(3000),
            url: Some("https://x/a b".into()),
        });
        let body = status_comment(&hostile);
        assert_inert(body.as_str());
        assert_eq!(body.pieces().len(), 1);
        assert!(!body.as_str().contains("](javascript"));
    }
}
