//! Short replies to commands, most of them to commands that could not be carried out.

use super::{
    ApproveLine, InconclusiveReason, access_name, count, details_block, foreign_files_note, link,
    override_usage, path_lines,
};
use crate::{
    git::ChangedPath,
    github::outbound::{OutboundBody, code_block, inline_code, inline_text},
    types::{Role, RunId, Verb},
};

/// One row of the table that `/help` shows.
#[derive(Debug, Clone)]
pub struct HelpRow {
    pub usage: String,
    pub about: String,
    pub role: Role,
    pub label: Option<String>,
}

/// Returns the reply to an approval whose hash belongs to another version.
pub fn stale_hash_reply(line: &ApproveLine) -> OutboundBody {
    frame_reply(&format!(
        "Nothing was approved: that hash belongs to another version. To accept the current version:\n\n{}",
        line.block()
    ))
}

/// Maximum number of characters of a diff.
pub const DIFF_CHARS: usize = 6_000;

/// Returns the reply to an approval that also covers other files, if some of these files changed. `files` changed on
/// the default branch, and `diff` is the diff of these changes. `theirs` are changes by other people on the document's
/// branch. If `line` is `None`, the gate needs an override.
pub fn changed_files_reply(
    (files, diff): (&[String], &str),
    theirs: &[ChangedPath],
    line: Option<&ApproveLine>,
) -> OutboundBody {
    let mut what = String::new();
    if !files.is_empty() {
        let files = path_lines(files.iter().map(|path| (path.as_str(), "")));
        what +=
            &format!("\n\nThese files, which the document names, changed on the default branch:\n\n{files}");
    }
    if !diff.is_empty() {
        what += &format!("\n\n{}", details_block("What changed", &code_block("diff", diff, DIFF_CHARS)));
    }
    what += &foreign_files_note(theirs);
    if what.is_empty() {
        what += " The document's branch no longer contains other people's files.";
    }
    let again = match line {
        Some(line) => format!("accept it with its hash:\n\n{}", line.block()),
        None => "write `/override REASON` again.".to_owned(),
    };
    frame_reply(&format!(
        "Nothing was approved yet, because files that the approval covers have changed.{what}\n\nIf the document is \
         still right, {again}"
    ))
}

/// Returns the comment on the pull request whose branch somebody rewrote.
pub fn abandoned_branch_comment(branch: &str, follows: &str, pull_url: &str) -> OutboundBody {
    frame_reply(&format!(
        "Somebody rewrote the branch {}, and Countersign's last commit is no longer on it. Countersign leaves it as \
         it is and continues in {}, on the branch {}.",
        inline_code(branch, 100),
        link("a new pull request", pull_url),
        inline_code(follows, 100)
    ))
}

/// Returns the reply to an approval without a hash that came too early, or that came after `touched_by` edited the gate
/// comment.
pub fn too_soon_reply(line: &ApproveLine, touched_by: Option<&str>) -> OutboundBody {
    let why = match touched_by {
        Some(login) => {
            format!("{} edited the gate comment, so you may have read changed text", inline_code(login, 60))
        }
        None => {
            "The document was posted only moments before your comment, so you may have read an earlier version".to_owned()
        }
    };
    frame_reply(&format!("{why}. To accept the current version:\n\n{}", line.block()))
}

/// Returns the reply to an approval from before our question about another person's `/revise`.
pub fn overtaken_approval_reply(line: &ApproveLine) -> OutboundBody {
    frame_reply(&format!(
        "Nothing was approved: a request for changes came before your comment and still needs an answer. To accept the \
         current version all the same:\n\n{}",
        line.block()
    ))
}

/// Returns the reply to a `/revise` of a draft whose model is unknown.
pub fn unattested_draft_reply(why: &InconclusiveReason) -> OutboundBody {
    frame_reply(&why.sentence())
}

/// Returns the reply to a pull request review that approves, if the pull request does not contain the open gate's
/// version yet.
pub fn review_not_counted_reply(line: &ApproveLine) -> OutboundBody {
    frame_reply(&format!(
        "Nothing was approved: you reviewed the pull request, which does not contain this version yet. To accept \
         it:\n\n{}",
        line.block()
    ))
}

/// Returns the reply to an approval with a missing or unknown option.
pub fn wrong_option_reply(verb: Verb, line: &ApproveLine) -> OutboundBody {
    let (why, write) = match line.options.as_slice() {
        [paths] if paths.starts_with('+') => {
            ("these files are accepted together or not at all", "Write this")
        }
        [] | [_] => ("this gate has no such option", "Write this"),
        _ => ("this gate has several options", "Write one of these"),
    };
    let how = match verb {
        Verb::Override => format!("Write {}.", override_usage(line)),
        _ => format!("{write}:\n\n{}", line.block()),
    };
    frame_reply(&format!("Nothing was accepted: {why}. {how}"))
}

/// Returns the reply to an approval without a hash if several gates are open.
pub fn ambiguous_gate_reply(lines: &[ApproveLine]) -> OutboundBody {
    let all: Vec<String> = lines.iter().map(ApproveLine::block).collect();
    frame_reply(&format!(
        "Several decisions are open here. Write one of these lines:\n\n{}",
        all.join("\n\n")
    ))
}

/// Returns the reply to an approval of a stage that has no open gate.
pub fn wrong_stage_reply(stage: &str, lines: &[ApproveLine]) -> OutboundBody {
    let all: Vec<String> = lines.iter().map(ApproveLine::block).collect();
    frame_reply(&format!(
        "No decision is open at stage {}. Open decisions:\n\n{}",
        inline_code(stage, 20),
        all.join("\n\n")
    ))
}

/// Returns the reply to an approval if the run has no open gate.
pub fn no_gate_reply(run: RunId, at_step: &str, status_url: Option<&str>) -> OutboundBody {
    let status = status_url.map_or(String::new(), |url| format!(" {}", link("Status", url)));
    frame_reply(&format!("No decision is open: run `{run}` is at “{}”.{status}", inline_text(at_step, 80)))
}

/// Returns the reply to an approval after the run has ended. `status` is the status of the newest run.
pub fn run_ended_reply(run: RunId, workflow: &str, status: &str, why: Option<&str>) -> OutboundBody {
    let ended = match why {
        Some(why) => format!("ended: {}", inline_text(why, 300).trim_end_matches('.')),
        None => format!("is {}", status_words(status)),
    };
    let workflow = inline_text(workflow, 30);
    frame_reply(&format!(
        "No decision is open here any more. Run `{run}` ({workflow}) {ended}. `/restart` starts it again."
    ))
}

/// Returns the reply to a command that the open gate does not accept.
pub fn wrong_command_reply(command: Verb, usages: &[&str]) -> OutboundBody {
    let overridden = usages.iter().any(|usage| usage.starts_with("/override"));
    let why = match command {
        Verb::Approve if overridden => " works only when the verdict is APPROVED",
        _ => " does not work at this gate",
    };
    let usages: Vec<_> = usages.iter().map(|usage| inline_code(usage, 40)).collect();
    let command = inline_code(&format!("/{command}"), 40);
    frame_reply(&format!("{command}{why}. Write {}.", usages.join(" or ")))
}

/// Returns the reply to a command that GitHub delivered late.
pub fn late_command_reply(command: &str) -> OutboundBody {
    frame_reply(&format!(
        "GitHub delivered your {} late, after the work had continued. Nothing was done; write it again if you \
         still want it.",
        inline_code(&format!("/{command}"), 40)
    ))
}

/// Joins all replies into one comment.
pub fn join_replies(bodies: &[OutboundBody]) -> OutboundBody {
    let texts: Vec<_> = bodies.iter().map(OutboundBody::as_str).collect();
    OutboundBody::from_posted(texts.join("\n\n"))
}

/// Separator between the answers in one comment. No other text of ours contains this line.
const ANSWER_SEPARATOR: &str = "\n\n---\n\n";

/// Returns the shared comment, with the most recent answer to each of `/status`, `/cost` and `/help`, newest first.
pub fn merge_answers(new: &[OutboundBody], before: &str) -> OutboundBody {
    let question = |answer: &str| answer.lines().next().unwrap_or_default().to_owned();
    let new: Vec<&str> = new.iter().map(OutboundBody::as_str).collect();
    let asked_again = |old: &&str| new.iter().any(|new| question(new) == question(old));
    let kept = before.split(ANSWER_SEPARATOR).filter(|old| !old.is_empty() && !asked_again(old));
    OutboundBody::from_posted(new.iter().copied().chain(kept).collect::<Vec<_>>().join(ANSWER_SEPARATOR))
}

/// Returns the reply to a comment that consists only of a command but is formatted as Markdown. The reply shows the
/// plain command, or the lines to paste for the open gates.
pub fn not_plain_text_reply(command: &str, lines: &[ApproveLine]) -> OutboundBody {
    let blocks = match lines {
        [] => code_block("", command, 1_000),
        lines => lines.iter().map(ApproveLine::block).collect::<Vec<_>>().join("\n\n"),
    };
    frame_reply(&format!(
        "Nothing was done: a command counts only as plain text at the start of a line, without quotes or formatting. \
         Write:\n\n{blocks}"
    ))
}

/// Returns the reply to a command that came by email, or that stands below our own quoted text.
pub fn email_command_reply(command: &str, gate_url: Option<&str>) -> OutboundBody {
    let place = gate_url.map_or("on the issue's page".to_owned(), |url| link("on the page", url));
    frame_reply(&format!(
        "{} was ignored: commands sent by email or below quoted text of Countersign do not count. Write it {place}.",
        inline_code(&format!("/{command}"), 40)
    ))
}

/// Returns the reply to a command with invalid arguments. `why` is our own text and may begin with `usage: `.
pub fn bad_arguments_reply(command: &str, why: &str) -> OutboundBody {
    let command = inline_code(&format!("/{command}"), 40);
    let why = match why.strip_prefix("usage: ") {
        Some(usage) => format!("usage: {}", inline_code(usage, 80)),
        None => inline_text(why, 200),
    };
    frame_reply(&format!("{command} was not understood; {why}."))
}

pub fn unknown_command_reply(word: &str, did_you_mean: Option<&str>) -> OutboundBody {
    let word = inline_code(&format!("/{word}"), 40);
    match did_you_mean {
        Some(name) => frame_reply(&format!(
            "There is no command {word}. Did you mean {}?",
            inline_code(&format!("/{name}"), 40)
        )),
        None => frame_reply(&format!("There is no command {word}. `/help` lists the commands.")),
    }
}

pub fn already_running_reply(run: RunId, workflow: &str, status_url: Option<&str>) -> OutboundBody {
    let status = status_url.map_or(String::new(), |url| format!(": {}", link("status", url)));
    frame_reply(&format!(
        "Run `{run}` ({}) is already active on this issue{status}. `/stop` ends it.",
        inline_code(workflow, 30)
    ))
}

/// Returns the reply to a person who has reached the daily limit of runs.
pub fn too_many_runs_reply(most: u32) -> OutboundBody {
    frame_reply(&format!(
        "You have started {} in this repository today (UTC), which is the limit for one person. Try again tomorrow, or \
         ask someone else. The operator can raise `runs_a_day`.",
        count(usize::try_from(most).unwrap_or(usize::MAX), "run", "runs")
    ))
}

/// Returns the reply to a person who has reached the daily cost limit.
pub fn too_much_spent_reply() -> OutboundBody {
    frame_reply(
        "Your runs in this repository have reached today's (UTC) cost limit for one person. Try again tomorrow, or \
         ask someone else. The operator can raise `cost_a_day`.",
    )
}

/// Returns the reply to a command about a finding if no active run has findings.
pub fn no_findings_reply() -> OutboundBody {
    frame_reply("There is no finding to settle: no active run here has findings.")
}

/// Returns the reply to a command about a finding if several runs have a finding with this id. This happens because
/// each run numbers its findings from F1.
pub fn ambiguous_finding_reply() -> OutboundBody {
    frame_reply(
        "Several active runs here have a finding with this number. Wait until only one of these runs is active.",
    )
}

pub fn unknown_finding_reply<'o>(finding: &str, open: impl Iterator<Item = &'o str>) -> OutboundBody {
    let open: Vec<_> = open.map(|id| inline_text(id, 10).to_string()).collect();
    let rest = match &open[..] {
        [] => "No finding is open.".to_owned(),
        [one] => format!("The open finding is {one}."),
        all => format!("Open findings: {}.", all.join(", ")),
    };
    frame_reply(&format!("There is no finding {}. {rest}", inline_text(finding, 10)))
}

pub fn already_settled_reply(finding: &str, status: &str) -> OutboundBody {
    frame_reply(&format!(
        "Nothing was done: {} is already {}.",
        inline_text(finding, 10),
        inline_text(status, 20)
    ))
}

/// Returns the reply to a `/restart` on an issue that has no run to restart.
pub fn nothing_to_restart_reply() -> OutboundBody {
    frame_reply(
        "There is nothing to restart: neither an active run nor the newest run here matches the command.",
    )
}

/// Returns the reply to a `/retry` on an issue that has no halted run.
pub fn nothing_to_retry_reply() -> OutboundBody {
    frame_reply("There is nothing to retry: the newest run on this issue did not halt.")
}

/// Returns the reply to a command that lacks its required text.
pub fn missing_text_reply(usage: &str) -> OutboundBody {
    frame_reply(&format!("Nothing was done: the command is incomplete. Usage: {}.", inline_code(usage, 60)))
}

/// A row of the table that `/status` shows.
#[derive(Debug, Clone)]
pub struct RunStatusRow {
    pub run: RunId,
    pub workflow: String,
    pub status: &'static str,
    /// Title of the run's current step, such as `Adversarial review`.
    pub step: String,
    /// Reason why the run is waiting or has ended, in our own words.
    pub why: Option<String>,
}

/// Returns the table of an issue's runs, newest first.
pub fn runs_table(runs: &[RunStatusRow]) -> OutboundBody {
    if runs.is_empty() {
        return frame_reply(
            "### Runs on this issue\n\nNothing is running. `/countersign help` lists the commands.",
        );
    }
    let mut out = String::from(
        "### Runs on this issue\n\n| Run | Workflow | Status | Step | Why |\n|---|---|---|---|---|",
    );
    for run in runs.iter().rev() {
        let why = run.why.as_ref().map_or(String::new(), |why| inline_text(why, 300));
        let (workflow, step) = (inline_text(&run.workflow, 30), inline_text(&run.step, 80));
        let status = status_words(run.status);
        out.push_str(&format!("\n| `{}` | {workflow} | {status} | {step} | {why} |", run.run));
    }
    frame_reply(&out)
}

fn status_words(status: &str) -> &str {
    match status {
        "asking" => "waits for a person",
        "ready" | "running" | "halting" => "running",
        "parked" => "on hold",
        other => other,
    }
}

/// Returns the reply to an approval without a hash, if the issue was edited in the meantime.
pub fn issue_changed_reply(diff: &str, line: &ApproveLine) -> OutboundBody {
    frame_reply(&format!(
        "The issue was edited after this document was posted, so nothing was approved yet:\n\n{}\n\nIf the document \
         is still right, accept it with its hash:\n\n{}",
        code_block("diff", diff, DIFF_CHARS),
        line.block()
    ))
}

/// Returns the answer to `/help`.
pub fn help_table(rows: &[HelpRow], user_owned: bool) -> OutboundBody {
    let mut out = String::from(
        "### Commands\n\nWrite a command at the start of a line in a comment:\n\n| Command | What it does | Requires \
         |\n|---|---|---|",
    );
    for row in rows {
        out.push_str(&format!(
            "\n| {} | {} | {} |",
            inline_code(&row.usage, 60),
            inline_text(&row.about, 200),
            access_name(row.role)
        ));
    }
    let labels: Vec<_> = rows.iter().filter_map(|row| row.label.as_ref().map(|label| (label, row))).collect();
    if !labels.is_empty() {
        out.push_str("\n\nLabels for issues:\n");
        for (label, row) in labels {
            out.push_str(&format!("\n- {}: same as {}", inline_code(label, 50), inline_code(&row.usage, 60)));
        }
    }
    out.push_str(
        "\n\nYou can also put the App's name first, as in `/countersign help`. Commands in code, quotes or lists \
                  do not count.",
    );
    if user_owned {
        out.push_str(
            "\n\nA person owns this repository: the owner has admin access, collaborators have write access, and \
             everyone else has read access or none. Collaborators can use commands that require triage or write \
             access; only the owner can use those that require maintain access.",
        );
    }
    frame_reply(&out)
}

fn frame_reply(text: &str) -> OutboundBody {
    OutboundBody::frame(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::types::Hash;

    #[test]
    fn replies_neutralise_hostile_text() {
        let line = ApproveLine::approve("lld", Hash::digest(b"x"), &[]);
        let row = |usage: &str, label: Option<&str>| HelpRow {
            usage: usage.into(),
            about: "does a | b".into(),
            role: Role::Write,
            label: label.map(Into::into),
        };
        let all = [
            stale_hash_reply(&line),
            too_soon_reply(&line, None),
            ambiguous_gate_reply(&[line.clone(), line.clone()]),
            wrong_stage_reply(HOSTILE, std::slice::from_ref(&line)),
            no_gate_reply(RUN, "Review", Some("https://x/1")),
            bad_arguments_reply("approve", "a hash needs at least 8 digits"),
            unknown_command_reply("aprove", Some("approve")),
            unknown_command_reply(HOSTILE, None),
            already_running_reply(RUN, "lld", None),
            missing_text_reply("/revise TEXT"),
            not_plain_text_reply("", std::slice::from_ref(&line)),
            email_command_reply("approve", Some("https://x/1")),
            email_command_reply("override", None),
            runs_table(&[]),
            runs_table(&[RunStatusRow {
                run: RUN,
                workflow: "lld".into(),
                status: "asking",
                step: "N4 Gate".into(),
                why: Some(HOSTILE.into()),
            }]),
            issue_changed_reply("-a\n+```\n+/approve @mona", &line),
            help_table(
                &[row("/approve [stage] [option] [hash]", None), row("/lld", Some("countersign:lld"))],
                true,
            ),
        ];
        for body in all.iter().chain([&not_plain_text_reply(HOSTILE, &[])]) {
            assert_inert(body.as_str());
        }
        let theirs = [ChangedPath { path: HOSTILE.into(), now: None }];
        let diff = "-a\n+```\n+/approve @mona\n+</details>";
        assert_inert(changed_files_reply((&[HOSTILE.into()], diff), &theirs, Some(&line)).as_str());
    }
}
