//! The pull request, the commits on its branch, and the review log: evidence, written by code only.

use super::{
    Author, cost::spending, folded, link, others, rehearsal, report::fact, sign, stage_name, status::place,
};
use crate::{
    documents::findings::Finding,
    git::Changed,
    github::outbound::{Body, clean, code, fenced, line, plain},
    store::Spending,
    types::{Actor, Hash, IssueNo, RunId, Timestamp, Verdict},
};

/// How a document came to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// By a person; `by` is their login.
    Approved { by: String, at: Timestamp },
    /// By a person against the verdict, for this reason.
    Overridden { by: String, at: Timestamp, reason: String },
    /// By a person; nobody reviewed it.
    Unreviewed { by: String, at: Timestamp },
    /// By the reviewer's APPROVED alone.
    Policy,
    /// The same, because somebody waived what the settings ask for.
    Waived { by: String, reason: String },
}

impl Acceptance {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Approved { by, at } => format!("approved by {} at {at}", plain(by, 300)),
            Self::Overridden { by, at, reason } => {
                format!("**verdict overridden** by {} at {at}: {}", plain(by, 300), plain(reason, 500))
            }
            Self::Unreviewed { by, at } => {
                format!("approved by {} at {at}, without a review", plain(by, 300))
            }
            Self::Policy => "the reviewer's APPROVED is enough by the settings; nobody was asked".to_owned(),
            Self::Waived { by, reason } => format!(
                "**hotfix**: the reviewer's APPROVED is enough, and {} waived people's approval: {}",
                plain(by, 300),
                plain(reason, 500)
            ),
        }
    }

    fn sentence(&self) -> String {
        match self {
            Self::Approved { by, .. } => format!("Accepted by {}.", line(by, 300)),
            Self::Overridden { by, .. } => {
                format!("Accepted by {}, who overrode the verdict.", line(by, 300))
            }
            Self::Unreviewed { by, .. } => format!("Accepted by {} without a review.", line(by, 300)),
            Self::Policy => "Accepted by its review alone: the settings ask nobody.".to_owned(),
            Self::Waived { by, .. } => {
                format!(
                    "Accepted by its review alone: {} waived people's approval for a hotfix.",
                    line(by, 300)
                )
            }
        }
    }
}

/// `LLD for #42: Read the config from a file`, with `[WIP] ` where the plan has no drafts.
pub fn pull_title(stage: &str, issue: IssueNo, title: &str, wip: bool) -> String {
    let wip = if wip { "[WIP] " } else { "" };
    format!("{wip}{} for #{issue}: {}", stage_name(stage), line(title, 180))
}

#[derive(Debug, Clone)]
pub struct PullCard {
    pub issue: IssueNo,
    pub stage: String,
    pub run: RunId,
    pub document_path: String,
    pub document: Hash,
    pub document_url: Option<String>,
    pub log_path: Option<String>,
    /// Merging it closes the issue.
    pub closes: bool,
    /// `None` before the review.
    pub verdict: Option<Verdict>,
    pub drafter: Author,
    pub reviewer: Author,
    /// `None` while the gate waits.
    pub approval: Option<Acceptance>,
    /// What came of the gate, where nobody is asked any more and nothing was approved.
    pub over: Option<String>,
    /// What others have on the branch.
    pub others: Vec<Changed>,
    /// Was whoever approved shown just that?
    pub others_shown: bool,
    /// What was approved, as people's line names it.
    pub subject: Option<Hash>,
    /// The report of what was tried, where code is made, and what was objected to it.
    pub report: Option<String>,
    pub findings: Vec<Finding>,
    /// A patch for people to apply: what this bot does not commit.
    pub offered: Option<String>,
    /// So many of its test files the reviewer's model wrote, and no other reviewed.
    pub unreviewed: usize,
    /// What somebody allowed beyond what was approved before: sentences of ours.
    pub leaves: Vec<String>,
    /// A model, and what it says that the change does.
    pub narrated: Option<(Author, String)>,
    /// The head of the audit chain.
    pub audit: Option<Hash>,
    /// None where everybody would read it.
    pub cost: Option<Spending>,
    pub rehearsal: bool,
}

/// Characters of a patch that a pull request shows, beside all else that stands there.
const PATCH_CHARS: usize = 12_000;

/// The same of the report, which is a file beside it, and findings that are named.
const REPORT_CHARS: usize = 20_000;
const FINDINGS: usize = 30;

/// What stands on a pull request: a section a stage, each the text of a body, as the stages came to the branch.
pub fn pull_body(issue: IssueNo, sections: &[String]) -> Body {
    Body::frame(format!("Part of #{issue}.\n\n{}", sections.join("\n\n")))
}

/// What one stage says on the pull request.
pub fn pull_section(card: &PullCard) -> Body {
    let path = code(&card.document_path, 150);
    let document =
        card.document_url.as_ref().map_or(path.clone(), |url| format!("{path} ({})", link("file", url)));
    let waits = if card.over.is_some() { "none" } else { "waits for a person" };
    let mut rows = vec![
        (if card.closes { "Report" } else { "Document" }, document),
        (if card.closes { "sha256 of the change" } else { "sha256" }, format!("`{}`", card.document)),
        ("Verdict", card.verdict.map_or("not reviewed yet".into(), |v| format!("{} {v}", sign(v)))),
        ("Drafted by", card.drafter.text()),
        ("Reviewed by", card.reviewer.text()),
        ("Decision", card.approval.as_ref().map_or(waits.into(), Acceptance::text)),
    ];
    if let Some(subject) = &card.subject {
        rows.push(("Approved hash", format!("`{}`", subject.short())));
    }
    rows.extend(card.leaves.iter().map(|text| ("Allowed besides", fact(text))));
    if let Some(cost) = &card.cost {
        rows.push(("Cost so far", spending(cost)));
    }
    if let Some(path) = &card.log_path {
        rows.push(("Review log", code(path, 150)));
    }
    if let Some(audit) = &card.audit {
        rows.push(("Audit head", format!("`{audit}`")));
    }
    let table: String = rows.iter().map(|(name, value)| format!("\n| {name} | {value} |")).collect();
    let next = match (&card.approval, &card.over) {
        (None, Some(over)) => over.clone(),
        (None, None) => format!(
            "A person decides on it: what there is to decide, and what to write, stands on #{}. Written here, it counts \
             as well.",
            card.issue
        ),
        _ if card.others.is_empty() => "The document is accepted. Merging is up to you.".to_owned(),
        _ if card.others_shown => {
            "The document is accepted, by somebody who was shown what else is here.".to_owned()
        }
        _ => "The document is accepted, and nothing else: look at the rest before you merge.".to_owned(),
    };
    let others = others(&card.others);
    let offered = card.offered.as_ref().map_or(String::new(), |patch| {
        let cut = match patch.chars().count().saturating_sub(PATCH_CHARS) {
            0 => String::new(),
            more => format!(
                "\n\n{more} more characters have no room here; `countersign diff {}` prints all of it.",
                card.run
            ),
        };
        let inside = fenced("diff", patch, PATCH_CHARS).to_string() + &cut;
        format!(
            "\n\n{}",
            folded("Workflow files, which are not committed here: a patch for a person to apply", &inside)
        )
    });
    let evidence = card.report.as_ref().and_then(|report| {
        // Below its heading and where it comes from.
        let (_, sections) = report.split_once("\n## ")?;
        let inside = format!("#### {}", sections.replace("\n## ", "\n#### "));
        let room = inside.chars().count() <= REPORT_CHARS;
        room.then(|| folded("What was asked, which test shows it, and what the runs came to", &inside))
    });
    let named = &card.findings[..card.findings.len().min(FINDINGS)];
    let ends = (!named.is_empty()).then(|| folded("What was objected to, and how that ended", &ended(named)));
    let folds: String = evidence.into_iter().chain(ends).map(|fold| format!("\n\n{fold}")).collect();
    let decided = match card.approval {
        Some(Acceptance::Policy | Acceptance::Waived { .. }) => "",
        _ => " and decided by a person",
    };
    let unreviewed = match card.unreviewed {
        0 => String::new(),
        files => format!(
            " (but for {files} of its test files: the reviewer's model wrote them, and no other reviewed them)"
        ),
    };
    let narrated = card.narrated.as_ref().map_or(String::new(), |(by, text)| {
        format!(
            "What it does, in the words of {}, which nobody reviewed: {}\n\n",
            by.text(),
            plain(text, 700)
        )
    });
    let closes = if card.closes { format!("Closes #{}.\n\n", card.issue) } else { String::new() };
    Body::frame(format!(
        "### {}\n\n{}{closes}{narrated}Drafted and reviewed by models of different makers{unreviewed}{decided}.\n\n\
         | Fact | Value |\n|---|---|{table}\n\n{next}{others}{folds}{offered}\n\n<sub>Run {}</sub>",
        stage_name(&card.stage),
        rehearsal(card.rehearsal),
        card.run
    ))
}

/// What a commit on our branch is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitKind {
    /// A version that is shown to people; of code all that its tests are not.
    Proposal,
    /// The tests of code, before it.
    Tests,
    /// The accepted bytes, with their log.
    Approval(Acceptance),
}

#[derive(Debug, Clone)]
pub struct CommitCard {
    pub kind: CommitKind,
    /// It is code, on which CI runs once all of it is there.
    pub code: bool,
    pub stage: String,
    pub issue: IssueNo,
    pub title: String,
    pub run: RunId,
    pub document: Hash,
    pub audit: Option<Hash>,
    /// Whoever asked for code, and where GitHub is.
    pub with: Option<(Actor, String)>,
}

/// `Co-authored-by: mona <7+mona@users.noreply.github.com>`, as GitHub knows who that is.
fn co_author((actor, host): &(Actor, String)) -> String {
    let login: String =
        actor.login.chars().filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c)).collect();
    format!("\nCo-authored-by: {login} <{}+{login}@users.noreply.{host}>", actor.id)
}

/// What only the commit of an approved document has: the link of the audit chain by which it was countersigned.
pub const AUDIT_TRAILER: &str = "Countersign-Audit: ";

/// The message of a commit of ours, with trailers by which a repeat is recognised and the audit chain can be followed. CI
/// skips all but the last that brings code.
pub fn commit_message(card: &CommitCard) -> String {
    let stage = stage_name(&card.stage);
    let (verb, body) = match &card.kind {
        CommitKind::Proposal if card.code => ("feat: make", String::new()),
        CommitKind::Proposal => ("docs: propose", String::new()),
        CommitKind::Tests => ("test: write tests of", String::new()),
        CommitKind::Approval(acceptance) => ("docs: accept", acceptance.sentence() + "\n"),
    };
    let last = card.code && matches!(card.kind, CommitKind::Approval(_));
    let skip = if last { "" } else { " [skip ci]" };
    let audit = card.audit.map_or(String::new(), |hash| format!("\n{AUDIT_TRAILER}{hash}"));
    format!(
        "{verb} {stage} for #{issue}{skip}\n\n{title}\n{body}\nCountersign-Run: {run}\nCountersign-Document: {document}{audit}{with}\n",
        with = card.with.as_ref().map_or(String::new(), co_author),
        issue = card.issue,
        // A sentence of its own, so that no title can pass for a trailer.
        title = format_args!("“{}”", line(&card.title, 180)),
        run = card.run,
        document = card.document,
    )
}

/// One round in the review log.
#[derive(Debug, Clone)]
pub struct RoundLog {
    pub round: u32,
    pub document: Hash,
    pub verdict: Verdict,
    /// The reviewer's reason, or ours where there is no verdict.
    pub why: String,
    pub drafter: Author,
    pub reviewer: Author,
}

#[derive(Debug, Clone)]
pub struct ReviewLog {
    pub issue: IssueNo,
    pub title: String,
    pub run: RunId,
    pub document_path: String,
    pub document: Hash,
    pub rounds: Vec<RoundLog>,
    pub findings: Vec<Finding>,
    pub approval: Option<Acceptance>,
    pub rehearsal: bool,
}

/// The file beside the document: what was said of it, and how each finding ended.
pub fn review_log(log: &ReviewLog) -> String {
    Body::frame(log_text(log)).as_str().to_owned()
}

fn log_text(log: &ReviewLog) -> String {
    let mut out = format!(
        "# Review log: #{} {}\n\n{}Written by Countersign from its records, run {}. Not edited by any model.\n\n\
         - document: {}\n- sha256: `{}`\n",
        log.issue,
        plain(&log.title, 180),
        rehearsal(log.rehearsal),
        log.run,
        code(&log.document_path, 150),
        log.document
    );
    if let Some(approval) = &log.approval {
        out.push_str(&format!("- {}\n", approval.text()));
    }
    out.push_str("\n## Rounds\n");
    for round in &log.rounds {
        let (drafter, reviewer) = (round.drafter.text(), round.reviewer.text());
        out.push_str(&format!(
            "\n### Round {}: {}\n\nDocument `{}`, drafted by {drafter}, reviewed by {reviewer}.\n",
            round.round,
            round.verdict,
            round.document.short()
        ));
        let why = clean(&round.why, 4_000);
        if !why.is_empty() {
            out.push_str(&format!("\n{why}\n"));
        }
    }
    out.push_str("\n## Findings\n\n");
    if log.findings.is_empty() {
        out.push_str("None.\n");
        return out;
    }
    out.push_str(&ended(&log.findings));
    for finding in &log.findings {
        let detail = clean(&finding.detail, 4_000);
        out.push_str(&format!("\n### {}\n\n{detail}\n", finding.id));
    }
    out
}

/// Findings and their ends.
fn ended(findings: &[Finding]) -> String {
    let mut out = "| | Round | Severity | Place | Finding | End |\n|---|--:|---|---|---|---|\n".to_owned();
    for finding in findings {
        let end = if finding.why.is_empty() {
            finding.status.as_str().to_owned()
        } else {
            format!("{}: {}", finding.status.as_str(), plain(&finding.why, 300))
        };
        let (severity, title) = (finding.severity.as_str(), plain(&finding.title, 200));
        let place = place(&finding.place);
        out.push_str(&format!(
            "| {} | {} | {severity} | {place} | {title} | {end} |\n",
            finding.id, finding.round
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::{
        documents::{findings::Status, verdict::Severity},
        types::{Family, RepoId, UserId},
    };

    const RUN: RunId = RunId { repo: RepoId(8123), seq: 4 };

    fn model(served: &str) -> Author {
        Author::Model {
            served: Some(served.into()),
            family: Some(Family("claude".into())),
            in_place_of: None,
        }
    }

    fn finding(id: &str, text: &str, why: &str) -> Finding {
        Finding {
            id: id.into(),
            round: 1,
            last_round: 1,
            severity: Severity::High,
            category: "tests".into(),
            place: "3".into(),
            title: text.into(),
            detail: text.into(),
            status: Status::Fixed,
            why: why.into(),
            must_fix: false,
            reply: None,
            answer: None,
        }
    }

    fn card() -> PullCard {
        PullCard {
            issue: IssueNo(42),
            stage: "lld".into(),
            run: RUN,
            document_path: "docs/lld/LLD-042.md".into(),
            document: Hash::of(b"x"),
            document_url: None,
            log_path: None,
            closes: false,
            verdict: Some(Verdict::Approved),
            drafter: model("claude-opus-4-6"),
            reviewer: Author::Model { served: None, family: None, in_place_of: None },
            approval: None,
            over: None,
            others: Vec::new(),
            others_shown: false,
            subject: None,
            report: None,
            findings: Vec::new(),
            offered: None,
            unreviewed: 0,
            leaves: Vec::new(),
            narrated: None,
            audit: Some(Hash::of(b"y")),
            cost: None,
            rehearsal: false,
        }
    }

    #[test]
    fn the_pull_request_belongs_to_the_issue_and_never_closes_it() {
        let section = pull_section(&card()).as_str().to_owned();
        let code = pull_section(&PullCard { closes: true, offered: Some(HOSTILE.to_owned()), ..card() });
        assert!(code.as_str().contains("\n\nCloses #42.\n\n") && !section.contains("Closes"), "{code:?}");
        let report = "# Report\n\nBy code.\n\n## Summary\n\nX.\n\n## Runs\n\nY.\n".to_owned();
        let folds = pull_section(&PullCard {
            report: Some(report),
            findings: vec![finding("F1", HOSTILE, HOSTILE)],
            subject: Some(Hash::of(b"z")),
            ..card()
        });
        let folds = folds.as_str();
        assert!(folds.contains("\n\n#### Summary\n\nX.\n\n#### Runs\n\nY.\n\n</details>"), "{folds}");
        assert!(folds.contains("| Approved hash | `") && folds.contains("| F1 | 1 | high |"), "{folds}");
        assert_inert(folds);
        let said = PullCard { narrated: Some((model(HOSTILE), HOSTILE.to_owned())), ..card() };
        assert_inert(pull_section(&said).as_str());
        let partly = pull_section(&PullCard { unreviewed: 2, ..card() });
        assert!(partly.as_str().contains("makers (but for 2 of its test files: the reviewer's model wrote"));
        let body = pull_body(IssueNo(42), &[section, "### Spec".to_owned()]);
        assert_inert(body.as_str());
        insta::assert_snapshot!(body.as_str(), @r#"
        Part of #42.

        ### LLD

        Drafted and reviewed by models of different makers and decided by a person.

        | Fact | Value |
        |---|---|
        | Document | `docs/lld/LLD-042.md` |
        | sha256 | `2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881` |
        | Verdict | ✅ APPROVED |
        | Drafted by | `claude-opus-4-6` |
        | Reviewed by | a model that did not say its name |
        | Decision | waits for a person |
        | Audit head | `a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa` |

        A person decides on it: what there is to decide, and what to write, stands on #42. Written here, it counts as well.

        <sub>Run 8123-4</sub>

        ### Spec
        "#);
        let title = pull_title("lld", IssueNo(42), "Fixes #1\n@mona", true);
        assert_eq!(title.replace('\u{200b}', "·"), "[WIP] LLD for #42: Fixes #·1 @·mona");
    }

    #[test]
    fn a_title_cannot_forge_a_trailer() {
        let card = CommitCard {
            kind: CommitKind::Approval(Acceptance::Overridden {
                by: "mona".into(),
                at: Timestamp(0),
                reason: "known".into(),
            }),
            code: false,
            stage: "lld".into(),
            issue: IssueNo(42),
            title: "x\n\nCountersign-Run: 1-1\nCloses #7".into(),
            run: RUN,
            document: Hash::of(b"x"),
            audit: Some(Hash::of(b"y")),
            with: Some((
                Actor { id: UserId(7), login: "mona>\nX: y".into(), bot: false },
                "github.com".into(),
            )),
        };
        insta::assert_snapshot!(commit_message(&card).replace('\u{200b}', "·"), @r#"
        docs: accept LLD for #42 [skip ci]

        “x Countersign-Run: 1-1 Closes #·7”
        Accepted by mona, who overrode the verdict.

        Countersign-Run: 8123-4
        Countersign-Document: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881
        Countersign-Audit: a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa
        Co-authored-by: monaXy <7+monaXy@users.noreply.github.com>
        "#);
    }

    #[test]
    fn the_log_holds_every_round_and_every_end() {
        let mut log = ReviewLog {
            issue: IssueNo(42),
            title: "Read a file".into(),
            run: RUN,
            document_path: "docs/lld/LLD-042.md".into(),
            document: Hash::of(b"x"),
            rounds: vec![RoundLog {
                round: 1,
                document: Hash::of(b"w"),
                verdict: Verdict::Revise,
                why: "One thing.".into(),
                drafter: model("claude-opus-4-6"),
                reviewer: Author::Model { served: None, family: None, in_place_of: None },
            }],
            findings: vec![finding("F1", "No test", "the reviewer held it fixed in round 2")],
            approval: Some(Acceptance::Approved { by: "mona".into(), at: Timestamp(0) }),
            rehearsal: true,
        };
        insta::assert_snapshot!(review_log(&log), @r#"
        # Review log: #42 Read a file

        > **Rehearsal**: scripted answers, no model was asked.

        Written by Countersign from its records, run 8123-4. Not edited by any model.

        - document: `docs/lld/LLD-042.md`
        - sha256: `2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881`
        - approved by mona at 1970-01-01T00:00:00Z

        ## Rounds

        ### Round 1: REVISE

        Document `50e721e49c01`, drafted by `claude-opus-4-6`, reviewed by a model that did not say its name.

        One thing.

        ## Findings

        | | Round | Severity | Place | Finding | End |
        |---|--:|---|---|---|---|
        | F1 | 1 | high | `3` | No test | fixed: the reviewer held it fixed in round 2 |

        ### F1

        No test
        "#);
        log.rounds[0].why = HOSTILE.into();
        log.findings = vec![finding("F1", HOSTILE, HOSTILE)];
        log.title = HOSTILE.into();
        assert_inert(&review_log(&log));
    }
}
