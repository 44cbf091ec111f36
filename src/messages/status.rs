//! The status comment: one an issue and workflow, edited in place ever after.

use super::{
    ApproveLine, Author, CiView, CostView, ModelWait, WayOn, access, after::waits, count, folded,
    held::day_and_clock, link, overrides, rehearsal, sign, step_name,
};
use crate::{
    documents::visible::{Hidden, HiddenKind},
    github::outbound::{Body, clean, code, plain},
    types::{Hash, Role, RunId, Timestamp, Verdict, WorkerPool},
};

/// A draft longer than this is cut in the comment: the rest is on the branch, and the comment must
/// stay one comment.
const DRAFT_CHARS: usize = 45_000;

/// Rounds that stand there unfolded.
const ROUNDS_SHOWN: usize = 3;

/// Where a result may be.
pub const ON_PULL: &str = "its pull request";
pub const ON_ISSUE: &str = "the issue";

#[derive(Debug, Clone)]
pub struct StatusView {
    /// `lld`
    pub workflow: String,
    pub run: RunId,
    /// Where its page is, if the world can reach one.
    pub page: Option<String>,
    /// The login of who asked.
    pub requested_by: String,
    pub rehearsal: bool,
    pub state: State,
    pub steps: Vec<StepLine>,
    pub rounds: Vec<RoundLine>,
    pub waiting: Option<Waiting>,
    pub draft: Option<DraftView>,
    pub notes: Vec<Note>,
    /// What no model was shown, since people do not see it either.
    pub hidden: Vec<Hidden>,
    /// Those that work in the run, while it goes on, and are not ready.
    pub roles: Vec<RoleState>,
    /// None where it is not to be shown.
    pub cost: Option<CostView>,
    /// What the result is and where, once there is one.
    pub outcome: Option<(&'static str, String)>,
    pub updated: Timestamp,
}

/// How a role stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleState {
    pub name: &'static str,
    /// Ready with a model and all tools that are switched on, degraded without some of these, unavailable without a model or where no workflow
    /// has work for it.
    pub state: &'static str,
    pub why: String,
}

impl RoleState {
    pub fn text(&self) -> String {
        format!("{}: {}, {}", self.name, self.state, self.why)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Working,
    NeedsYou,
    /// Whoever runs the server has to do something first.
    Parked,
    Done,
    Stopped,
    Failed,
}

#[derive(Debug, Clone)]
pub struct StepLine {
    pub id: &'static str,
    pub title: &'static str,
    pub mark: Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    Done,
    Now,
    ToCome,
    /// Not part of this run by its settings.
    Off,
}

#[derive(Debug, Clone)]
pub struct RoundLine {
    pub round: u32,
    /// `None` while it is not given.
    pub verdict: Option<Verdict>,
    pub open_findings: usize,
    pub drafter: Author,
    pub reviewer: Author,
}

/// What a run waits for.
#[derive(Debug, Clone)]
pub enum Waiting {
    /// A person, at a gate. Without APPROVED only an override passes.
    Decision {
        line: ApproveLine,
        /// `None` before the review.
        verdict: Option<Verdict>,
        role: Role,
        gate_url: Option<String>,
    },
    /// A model that cannot be asked now.
    Model(ModelWait),
    /// Answers to the questions of this comment.
    Answers { url: String, until: Timestamp },
    /// Money.
    Budget { way_on: WayOn, url: String },
    /// People to merge what was pushed.
    Merge { ci: Option<CiView>, conflicts: bool, on_top: bool, unknown: bool },
}

#[derive(Debug, Clone)]
pub struct DraftView {
    /// `LLD-042.md`
    pub name: String,
    pub text: String,
    pub hash: Hash,
    /// The file on the branch.
    pub url: Option<String>,
}

/// Something a reader should know.
#[derive(Debug, Clone)]
pub enum Note {
    /// Code mended the form of the draft.
    Repaired(usize),
    /// Code found mistakes and sent the draft back, without a reviewer.
    SentBack {
        mistakes: usize,
    },
    /// The models saw only the beginning of the issue.
    IssueCut {
        shown: usize,
        of: usize,
    },
    FilesNotShown(usize),
    /// Where the run's models wait for a place if they are programs, and the row of the settings that says so.
    Workers {
        pool: WorkerPool,
        row: String,
    },
    /// Models looked at files themselves.
    Looked {
        calls: usize,
        refused: usize,
    },
    /// Hosts that the operator may let pages be fetched from.
    Hosts(Vec<String>),
    /// An answer came by another way than the first one tried.
    Detours(String),
    /// A sentence from elsewhere in the program.
    Said(String),
}

impl Note {
    fn text(&self) -> String {
        match self {
            Self::Repaired(n) => {
                format!("code corrected the draft's form in {}", count(*n, "place", "places"))
            }
            Self::SentBack { mistakes } => {
                format!(
                    "code found {} in the draft and sent it back",
                    count(*mistakes, "mistake", "mistakes")
                )
            }
            Self::IssueCut { shown, of } => {
                format!("the issue is long: the models see its first {shown} of {of} characters")
            }
            Self::FilesNotShown(n) => {
                format!("{} of the repository did not fit into the prompt", count(*n, "file", "files"))
            }
            Self::Looked { calls, refused } => {
                let calls = count(*calls, "call", "calls");
                let refused =
                    if *refused == 0 { String::new() } else { format!(", {refused} of them refused") };
                format!("models looked at the repository themselves: {calls}{refused}")
            }
            Self::Workers { pool, row } => {
                format!("worker pool `{}`, for {}", pool.as_str(), code(row, 80))
            }
            Self::Hosts(hosts) => {
                let hosts: Vec<_> = hosts.iter().map(|host| format!("\"{host}\"")).collect();
                format!(
                    "pages were not read whose hosts the server's settings do not name; {} under `[fetch]` would allow it",
                    code(&format!("hosts = [{}]", hosts.join(", ")), 600)
                )
            }
            // A frame of ours.
            Self::Detours(text) => text.clone(),
            Self::Said(text) => plain(text, 300),
        }
    }
}

/// What a status comment says of a run for which somebody waived people's approval of documents.
pub fn waived(by: &str, reason: &str) -> String {
    format!(
        "Hotfix, asked for by {by}: {reason}. Nobody is asked about design and spec; people are about the code."
    )
}

/// What a status comment says where what was asked for at once ends here, since a run of its next part is alive.
pub fn ends_here(next: &str) -> String {
    format!(
        "It ends here: a run of {next} is alive on this issue, and no second one was begun. Once that one is over, write /{next}."
    )
}

/// What a status comment says of a role whose commands cannot be run.
pub fn without_commands(role: &str) -> String {
    format!("The {role} works without its commands, for nothing can be run on this server.")
}

/// The whole comment.
pub fn status(view: &StatusView) -> Body {
    let mut parts = vec![headline(view)];
    if let Some(waiting) = &view.waiting {
        parts.push(waiting_text(waiting));
    }
    if let Some((what, url)) = &view.outcome {
        parts.push(format!("The result is on {}.", link(what, url)));
    }
    if !view.steps.is_empty() {
        parts.push(view.steps.iter().map(step).collect::<Vec<_>>().join(" → "));
    }
    if !view.rounds.is_empty() {
        parts.push(rounds(&view.rounds));
    }
    if !view.notes.is_empty() {
        parts.push(view.notes.iter().map(|note| format!("- {}", note.text())).collect::<Vec<_>>().join("\n"));
    }
    if !view.hidden.is_empty() {
        let lines: Vec<String> = view.hidden.iter().map(hidden).collect();
        parts.push(folded("Hidden text, which no model was shown", &lines.join("\n")));
    }
    if !view.roles.is_empty() {
        let lines: Vec<String> =
            view.roles.iter().map(|role| format!("- {}", plain(&role.text(), 300))).collect();
        parts.push(folded("Roles that lack something", &lines.join("\n")));
    }
    if let Some(cost) = &view.cost {
        parts.push(cost.text());
    }
    if let Some(view) = &view.draft {
        parts.push(draft(view));
    }
    parts.push(format!(
        "<sub>`/status` · `/stop` · `/help` · updated on {}</sub>",
        day_and_clock(view.updated)
    ));
    Body::frame(rehearsal(view.rehearsal).to_owned() + &parts.join("\n\n"))
}

fn hidden(row: &Hidden) -> String {
    let (one, many) = match row.kind {
        HiddenKind::Comment => ("comment in HTML", "comments in HTML"),
        HiddenKind::Attribute => ("attribute of a tag", "attributes of tags"),
        HiddenKind::Title => ("title of a link", "titles of links"),
        HiddenKind::Description => ("description of an image", "descriptions of images"),
        HiddenKind::Tiny => ("text in letters too small to read", "texts in letters too small to read"),
        HiddenKind::Math => ("formula that may not show", "formulas that may not show"),
        HiddenKind::Tags => ("text in invisible letters", "texts in invisible letters"),
        HiddenKind::Direction => {
            ("sign that turns the direction of text", "signs that turn the direction of text")
        }
        HiddenKind::Invisible => ("invisible sign", "invisible signs"),
        HiddenKind::Unshown => ("text that Markdown does not show", "texts that Markdown does not show"),
    };
    let says = if row.excerpt.is_empty() { String::new() } else { format!(": {}", code(&row.excerpt, 80)) };
    format!("- {}{says}", count(row.count, one, many))
}

fn headline(view: &StatusView) -> String {
    let (sign, words) = match view.state {
        State::Working => ("⏳", "working"),
        State::NeedsYou => ("✋", "waiting for you"),
        State::Parked => ("✋", "waiting for whoever runs this server"),
        State::Done => ("✅", "done"),
        State::Stopped => ("⏹️", "stopped"),
        State::Failed => ("❌", "halted"),
    };
    let who = plain(&view.requested_by, 60);
    let (workflow, page) = (plain(&view.workflow, 30), its_page(view.page.as_deref()));
    format!("### {sign} {workflow}: {words}\n\nRun `{}`{page}, asked for by {who}.", view.run)
}

/// The way to a run's page, behind its id.
pub(super) fn its_page(url: Option<&str>) -> String {
    url.map(|url| format!(" ({})", link("its page, for the operator", url))).unwrap_or_default()
}

fn waiting_text(waiting: &Waiting) -> String {
    match waiting {
        Waiting::Model(wait) => wait.sentence(),
        Waiting::Merge { ci, conflicts, on_top, unknown } => {
            waits(ci.as_ref(), *conflicts, *on_top, *unknown)
        }
        Waiting::Answers { url, until } => format!(
            "**Waits for answers** to {}, until {}; then the defaults hold.",
            link("these questions", url),
            day_and_clock(*until)
        ),
        Waiting::Decision { line, verdict, role, gate_url } => {
            let gate =
                gate_url.as_ref().map_or(String::new(), |url| format!(" ({})", link("what to decide", url)));
            match verdict {
                None | Some(Verdict::Approved) => {
                    format!("**Waits for someone with {}**{gate}:\n\n{}", access(*role), line.block())
                }
                Some(verdict) => format!(
                    "**Waits for a decision**{gate}: the verdict is {verdict}, which `/approve` does not pass. \
                     `/revise TEXT` sends it back; {} accepts it all the same.",
                    overrides(line)
                ),
            }
        }
        Waiting::Budget { way_on, url } => {
            format!(
                "**Paused**: {}. {}",
                link("the budget leaves too little for the next call", url),
                way_on.text()
            )
        }
    }
}

fn step(line: &StepLine) -> String {
    let StepLine { id, title, mark } = line;
    match mark {
        Mark::Now => format!("▶️ **{title}** ({id})"),
        Mark::Done => format!("✅ {}", step_name(id, title)),
        Mark::ToCome => format!("▫️ {}", step_name(id, title)),
        Mark::Off => format!("⏭️ {}", step_name(id, title)),
    }
}

/// The newest of them; what was before is folded, so that ten rounds read like three.
fn rounds(rounds: &[RoundLine]) -> String {
    let (before, newest) = rounds.split_at(rounds.len().saturating_sub(ROUNDS_SHOWN));
    // One alone would take as much room folded.
    let (before, newest) = if before.len() < 2 { (&[][..], rounds) } else { (before, newest) };
    let [first, .., last] = before else { return round_table(newest) };
    let summary = format!("Rounds {} to {}", first.round, last.round);
    format!("{}\n\n{}", folded(&summary, &round_table(before)), round_table(newest))
}

fn round_table(rounds: &[RoundLine]) -> String {
    let mut out =
        String::from("| Round | Verdict | Open findings | Drafted by | Reviewed by |\n|--:|---|--:|---|---|");
    for round in rounds {
        let verdict = round.verdict.map_or("–".to_owned(), |v| format!("{} {v}", sign(v)));
        let (drafter, reviewer) = (round.drafter.text(), round.reviewer.text());
        let open = round.open_findings;
        out.push_str(&format!("\n| {} | {verdict} | {open} | {drafter} | {reviewer} |", round.round));
    }
    out
}

fn draft(view: &DraftView) -> String {
    let text = clean(&view.text, DRAFT_CHARS);
    let file = view
        .url
        .as_ref()
        .map_or(String::new(), |url| format!("{}\n\n", link("The whole file on the branch", url)));
    let summary = format!("Draft {} <code>{}</code>", plain(&view.name, 80), view.hash.short());
    folded(&summary, &format!("{file}{text}"))
}

/// The place of a file or section, as inline code.
pub(super) fn place(text: &str) -> String {
    code(text, 80)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::types::{Family, RepoId};

    fn model(served: &str, family: &str) -> Author {
        Author::Model { served: Some(served.into()), family: Some(Family(family.into())), in_place_of: None }
    }

    fn view() -> StatusView {
        let line = ApproveLine::approve("lld", Hash::of(b"x"), &[]);
        StatusView {
            workflow: "lld".into(),
            run: RunId { repo: RepoId(8123), seq: 4 },
            page: Some("https://ops.example.org/runs/8123/4".into()),
            requested_by: "mona".into(),
            rehearsal: true,
            state: State::NeedsYou,
            steps: vec![
                StepLine { id: "N0", title: "Load input", mark: Mark::Done },
                StepLine { id: "N2", title: "Human gate, draft", mark: Mark::Off },
                StepLine { id: "N4", title: "Human gate, verdict", mark: Mark::Now },
                StepLine { id: "N5", title: "Finalize", mark: Mark::ToCome },
            ],
            rounds: vec![RoundLine {
                round: 1,
                verdict: Some(Verdict::Approved),
                open_findings: 0,
                drafter: model("claude-opus-4-6", "claude"),
                reviewer: Author::Model { served: None, family: None, in_place_of: None },
            }],
            waiting: Some(Waiting::Decision {
                line,
                verdict: Some(Verdict::Approved),
                role: Role::Write,
                gate_url: Some("https://github.com/o/r/issues/42#issuecomment-1".into()),
            }),
            draft: Some(DraftView {
                name: "LLD-042.md".into(),
                text: "# 42 - Feature: x".into(),
                hash: Hash::of(b"x"),
                url: None,
            }),
            notes: vec![Note::Repaired(2)],
            hidden: vec![],
            roles: vec![],
            cost: None,
            outcome: None,
            updated: Timestamp(0),
        }
    }

    #[test]
    fn the_comment_as_a_person_reads_it() {
        insta::assert_snapshot!(status(&view()).as_str(), @r#"
        > **Rehearsal**: scripted answers, no model was asked.

        ### ✋ lld: waiting for you

        Run `8123-4` ([its page, for the operator](https://ops.example.org/runs/8123/4)), asked for by mona.

        **Waits for someone with write access** ([what to decide](https://github.com/o/r/issues/42#issuecomment-1)):

        ```
        /approve lld 2d711642b726
        ```

        ✅ Load input (N0) → ⏭️ Human gate, draft (N2) → ▶️ **Human gate, verdict** (N4) → ▫️ Finalize (N5)

        | Round | Verdict | Open findings | Drafted by | Reviewed by |
        |--:|---|--:|---|---|
        | 1 | ✅ APPROVED | 0 | `claude-opus-4-6` | a model that did not say its name |

        - code corrected the draft's form in 2 places

        <details><summary>Draft LLD-042.md <code>2d711642b726</code></summary>

        # 42 - Feature: x

        </details>

        <sub>`/status` · `/stop` · `/help` · updated on 1970-01-01 00:00 UTC</sub>
        "#);
    }

    #[test]
    fn ten_rounds_read_like_three() {
        let mut long = view();
        (long.draft, long.waiting, long.notes) = (None, None, vec![Note::FilesNotShown(12)]);
        let verdict = |round| match round {
            4 => None,
            10 => Some(Verdict::Approved),
            2 | 7 => Some(Verdict::Blocked),
            _ => Some(Verdict::Revise),
        };
        let line = |round| RoundLine {
            round,
            verdict: verdict(round),
            open_findings: if round == 10 { 0 } else { 3 },
            drafter: model("claude-opus-4-6", "claude"),
            reviewer: if round == 4 { Author::Nobody } else { model("gemini-2.5-pro", "gemini") },
        };
        long.rounds = (1..=10).map(line).collect();
        insta::assert_snapshot!(status(&long).as_str(), @r#"
        > **Rehearsal**: scripted answers, no model was asked.

        ### ✋ lld: waiting for you

        Run `8123-4` ([its page, for the operator](https://ops.example.org/runs/8123/4)), asked for by mona.

        ✅ Load input (N0) → ⏭️ Human gate, draft (N2) → ▶️ **Human gate, verdict** (N4) → ▫️ Finalize (N5)

        <details><summary>Rounds 1 to 7</summary>

        | Round | Verdict | Open findings | Drafted by | Reviewed by |
        |--:|---|--:|---|---|
        | 1 | ✏️ REVISE | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |
        | 2 | ⛔ BLOCKED | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |
        | 3 | ✏️ REVISE | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |
        | 4 | – | 3 | `claude-opus-4-6` | – |
        | 5 | ✏️ REVISE | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |
        | 6 | ✏️ REVISE | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |
        | 7 | ⛔ BLOCKED | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |

        </details>

        | Round | Verdict | Open findings | Drafted by | Reviewed by |
        |--:|---|--:|---|---|
        | 8 | ✏️ REVISE | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |
        | 9 | ✏️ REVISE | 3 | `claude-opus-4-6` | `gemini-2.5-pro` |
        | 10 | ✅ APPROVED | 0 | `claude-opus-4-6` | `gemini-2.5-pro` |

        - 12 files of the repository did not fit into the prompt

        <sub>`/status` · `/stop` · `/help` · updated on 1970-01-01 00:00 UTC</sub>
        "#);
    }

    #[test]
    fn nothing_in_it_acts_and_it_stays_one_comment() {
        let mut hostile = view();
        hostile.requested_by = HOSTILE.into();
        hostile.workflow = HOSTILE.into();
        hostile.rounds[0].drafter = model(HOSTILE, HOSTILE);
        hostile.notes = vec![Note::Said(HOSTILE.into())];
        let kind = HiddenKind::Comment;
        hostile.hidden = vec![Hidden { kind, count: 2, excerpt: HOSTILE.into() }];
        hostile.outcome = Some((ON_PULL, "javascript:alert(1)".into()));
        hostile.draft = Some(DraftView {
            name: HOSTILE.into(),
            text: HOSTILE.repeat(3000),
            hash: Hash::of(b"x"),
            url: Some("https://x/a b".into()),
        });
        let body = status(&hostile);
        assert_inert(body.as_str());
        assert_eq!(body.pieces().len(), 1);
        assert!(!body.as_str().contains("](javascript"));
    }
}
