//! Short answers to commands that could not be taken as they were.

use super::{
    ApproveLine, InconclusiveReason, access_name, count, details_block, foreign_files_note, link,
    override_usage, path_lines,
};
use crate::{
    git::ChangedPath,
    github::outbound::{OutboundBody, code_block, inline_code, inline_text},
    types::{Role, RunId, Verb},
};

/// One row of `/help`.
#[derive(Debug, Clone)]
pub struct HelpRow {
    pub usage: String,
    pub about: String,
    pub role: Role,
    pub label: Option<String>,
}

/// The hash that was given is of another version than the one that waits.
pub fn stale_hash_reply(line: &ApproveLine) -> OutboundBody {
    frame_reply(&format!(
        "That hash is not of the version that waits, so nothing was approved. Look at the current one; to accept it:\n\n{}",
        line.block()
    ))
}

/// What is shown of a diff, in characters.
pub const DIFF_CHARS: usize = 6_000;

/// An approval did not pass, for what it covers besides the document: `files` that this speaks of have changed on the
/// default branch as the diff says, or others have files on its own. Without a line an override is what passes.
pub fn changed_files_reply(
    (files, diff): (&[String], &str),
    theirs: &[ChangedPath],
    line: Option<&ApproveLine>,
) -> OutboundBody {
    let mut what = String::new();
    if !files.is_empty() {
        let files = path_lines(files.iter().map(|path| (path.as_str(), "")));
        what += &format!("\n\nFiles that the document speaks of changed on the default branch:\n\n{files}");
    }
    if !diff.is_empty() {
        what +=
            &format!("\n\n{}", details_block("What changed in them", &code_block("diff", diff, DIFF_CHARS)));
    }
    what += &foreign_files_note(theirs);
    if what.is_empty() {
        what += " What others had on its branch is gone again.";
    }
    let again = match line {
        Some(line) => format!("accept it with its hash:\n\n{}", line.block()),
        None => "write `/override REASON` once more.".to_owned(),
    };
    frame_reply(&format!(
        "Nothing was approved yet: an approval covers more than the document.{what}\n\n\
         If it is right as things are now, {again}"
    ))
}

/// For the pull request of a branch that somebody rewrote.
pub fn abandoned_branch_comment(branch: &str, follows: &str, pull_url: &str) -> OutboundBody {
    frame_reply(&format!(
        "Somebody rewrote the branch {}: the last commit of Countersign is not in it any more. It is left as it is, and \
         the document goes on at {}, on the branch {}.",
        inline_code(branch, 100),
        link("another pull request", pull_url),
        inline_code(follows, 100)
    ))
}

/// A bare approval came when its writer could not have read what waits, or may have read what this login wrote.
pub fn too_soon_reply(line: &ApproveLine, touched_by: Option<&str>) -> OutboundBody {
    let why = match touched_by {
        Some(login) => format!(
            "The comment that asks was changed by {}, so what you read may not have been ours",
            inline_code(login, 60)
        ),
        None => {
            "The document was posted only moments before that, so it may not be the one you read".to_owned()
        }
    };
    frame_reply(&format!("{why}. To accept it:\n\n{}", line.block()))
}

/// A revision was asked for of what no review could count of.
pub fn unattested_draft_reply(why: &InconclusiveReason) -> OutboundBody {
    frame_reply(&why.sentence())
}

/// A review of the pull request came, where what waits is not on it yet.
pub fn review_not_counted_reply(line: &ApproveLine) -> OutboundBody {
    frame_reply(&format!(
        "Nothing was approved: that was a review of the pull request, and what waits here is not on it before it is accepted. \
         To accept it:\n\n{}",
        line.block()
    ))
}

/// The way of accepting it was not named, or another one was.
pub fn wrong_option_reply(verb: Verb, line: &ApproveLine) -> OutboundBody {
    let (why, write) = match line.options.as_slice() {
        [paths] if paths.starts_with('+') => ("it is all of these files, or none", "Write this"),
        [] | [_] => ("that is no way to", "Write this"),
        _ => ("there is more than one way to", "Write one of these"),
    };
    let how = match verb {
        Verb::Override => format!("Write {}.", override_usage(line)),
        _ => format!("{write}:\n\n{}", line.block()),
    };
    frame_reply(&format!("Nothing was accepted: {why}. {how}"))
}

/// A bare approval, and more than one gate it may have meant.
pub fn ambiguous_gate_reply(lines: &[ApproveLine]) -> OutboundBody {
    let all: Vec<String> = lines.iter().map(ApproveLine::block).collect();
    frame_reply(&format!(
        "More than one decision waits here. Write the one you mean:\n\n{}",
        all.join("\n\n")
    ))
}

/// The stage that was named is not the one that waits.
pub fn wrong_stage_reply(stage: &str, lines: &[ApproveLine]) -> OutboundBody {
    let all: Vec<String> = lines.iter().map(ApproveLine::block).collect();
    frame_reply(&format!(
        "Nothing waits at stage {}. What does wait:\n\n{}",
        inline_code(stage, 20),
        all.join("\n\n")
    ))
}

/// A run is alive, but nothing waits for a person.
pub fn no_gate_reply(run: RunId, at_step: &str, status_url: Option<&str>) -> OutboundBody {
    let status = status_url.map_or(String::new(), |url| format!(" {}", link("How it stands", url)));
    frame_reply(&format!(
        "Nothing waits for a decision: run `{run}` is at “{}”.{status}",
        inline_text(at_step, 80)
    ))
}

/// Nothing is alive that could wait for a decision; `status` is how the newest run ended.
pub fn run_ended_reply(run: RunId, workflow: &str, status: &str, why: Option<&str>) -> OutboundBody {
    let ended = match why {
        Some(why) => format!("ended: {}", inline_text(why, 300).trim_end_matches('.')),
        None => format!("is {}", status_words(status)),
    };
    let workflow = inline_text(workflow, 30);
    frame_reply(&format!(
        "Nothing waits for a decision here any more. Run `{run}` ({workflow}) {ended}. `/restart` begins it again."
    ))
}

/// A gate is open, but not to this command.
pub fn wrong_command_reply(command: Verb, usages: &[&str]) -> OutboundBody {
    let overridden = usages.iter().any(|usage| usage.starts_with("/override"));
    let why = match command {
        Verb::Approve if overridden => " passes only what the review approved, and it did not approve this",
        _ => " does not pass what waits here",
    };
    let usages: Vec<_> = usages.iter().map(|usage| inline_code(usage, 40)).collect();
    let command = inline_code(&format!("/{command}"), 40);
    frame_reply(&format!("{command}{why}. What can be said to it: {}.", usages.join(" or ")))
}

/// What was said came here long after it was said, and the work has gone on since.
pub fn late_command_reply(command: &str) -> OutboundBody {
    frame_reply(&format!(
        "Your {} came late: GitHub could not bring it when you wrote it, and the work has gone on since. Nothing was \
         done; if you still mean it, say it again.",
        inline_code(&format!("/{command}"), 40)
    ))
}

/// All that there is to say to one comment.
pub fn join_replies(bodies: &[OutboundBody]) -> OutboundBody {
    let texts: Vec<_> = bodies.iter().map(OutboundBody::as_str).collect();
    OutboundBody::from_posted(texts.join("\n\n"))
}

/// Stands between answers in one comment; nothing of ours holds such a line.
const ANSWER_SEPARATOR: &str = "\n\n---\n\n";

/// The comment with the last answer to each of `/status`, `/cost` and `/help`, the newest first; `before` is its text so far.
pub fn merge_answers(new: &[OutboundBody], before: &str) -> OutboundBody {
    let question = |answer: &str| answer.lines().next().unwrap_or_default().to_owned();
    let new: Vec<&str> = new.iter().map(OutboundBody::as_str).collect();
    let asked_again = |old: &&str| new.iter().any(|new| question(new) == question(old));
    let kept = before.split(ANSWER_SEPARATOR).filter(|old| !old.is_empty() && !asked_again(old));
    OutboundBody::from_posted(new.iter().copied().chain(kept).collect::<Vec<_>>().join(ANSWER_SEPARATOR))
}

/// A comment is a command alone, in a form that does not count: the line to write, or the lines of the gates that wait.
pub fn not_plain_text_reply(command: &str, lines: &[ApproveLine]) -> OutboundBody {
    let blocks = match lines {
        [] => code_block("", command, 1_000),
        lines => lines.iter().map(ApproveLine::block).collect::<Vec<_>>().join("\n\n"),
    };
    frame_reply(&format!(
        "Nothing was done: a command counts only as plain text at the start of a line, without quotes or formatting. To say \
         it, write\n\n{blocks}"
    ))
}

/// An approval came by email, or stood below a text of ours that was repeated, as mail programs do.
pub fn email_command_reply(command: &str, gate_url: Option<&str>) -> OutboundBody {
    let place = gate_url.map_or("on the page of this issue".to_owned(), |url| link("on the page", url));
    frame_reply(&format!(
        "{} was ignored: it counts neither by email nor below quoted text of Countersign. Write it {place}.",
        inline_code(&format!("/{command}"), 40)
    ))
}

/// The arguments of a command were not understood; `why` is a sentence of ours.
pub fn bad_arguments_reply(command: &str, why: &str) -> OutboundBody {
    frame_reply(&format!(
        "That {} was not understood: {}.",
        inline_code(&format!("/{command}"), 40),
        inline_text(why, 200)
    ))
}

pub fn unknown_command_reply(word: &str, did_you_mean: Option<&str>) -> OutboundBody {
    let word = inline_code(&format!("/{word}"), 40);
    match did_you_mean {
        Some(name) => frame_reply(&format!(
            "There is no {word}. Did you mean {}?",
            inline_code(&format!("/{name}"), 40)
        )),
        None => frame_reply(&format!("There is no {word}. `/help` lists what there is.")),
    }
}

pub fn already_running_reply(run: RunId, workflow: &str, status_url: Option<&str>) -> OutboundBody {
    let status = status_url.map_or(String::new(), |url| format!(": {}", link("how it stands", url)));
    frame_reply(&format!(
        "Run `{run}` of {} is already at work on this issue{status}. `/stop` ends it.",
        inline_code(workflow, 30)
    ))
}

/// A person has started enough for a day.
pub fn too_many_runs_reply(most: u32) -> OutboundBody {
    frame_reply(&format!(
        "You have started {} in this repository today, which is as many as one person may in a day of UTC. \
         Somebody else may, or you tomorrow; whoever runs the server can raise `runs_a_day` in its settings.",
        count(usize::try_from(most).unwrap_or(usize::MAX), "run", "runs")
    ))
}

/// What a person started has cost enough for a day.
pub fn too_much_spent_reply() -> OutboundBody {
    frame_reply(
        "The runs you started in this repository today have cost as much as those of one person may in a day of UTC. \
         Somebody else may start this, or you tomorrow; whoever runs the server can raise `cost_a_day` in its settings.",
    )
}

/// Nothing was reviewed yet that a person could settle something of.
pub fn no_findings_reply() -> OutboundBody {
    frame_reply("There is no finding to settle: no review of a run that is at work here has found anything.")
}

/// Each run counts its findings from F1.
pub fn ambiguous_finding_reply() -> OutboundBody {
    frame_reply(
        "More than one document is at work here and has findings of such a name. Wait for one, or `/stop` it.",
    )
}

pub fn unknown_finding_reply<'o>(finding: &str, open: impl Iterator<Item = &'o str>) -> OutboundBody {
    let open: Vec<_> = open.map(|id| inline_text(id, 10).to_string()).collect();
    let there = match &open[..] {
        [] => "None is open.".to_owned(),
        [one] => format!("The open one is {one}."),
        all => format!("Open are {}.", all.join(", ")),
    };
    frame_reply(&format!("There is no finding {}. {there}", inline_text(finding, 10)))
}

pub fn already_settled_reply(finding: &str, status: &str) -> OutboundBody {
    frame_reply(&format!(
        "Nothing was done: {} is {} already.",
        inline_text(finding, 10),
        inline_text(status, 20)
    ))
}

/// `/restart`, and there is no run of which it could be.
pub fn nothing_to_restart_reply() -> OutboundBody {
    frame_reply(
        "There is nothing to start anew: no such run is at work here, and the newest one was another.",
    )
}

/// `/retry`, and nothing on the issue halted.
pub fn nothing_to_retry_reply() -> OutboundBody {
    frame_reply("There is nothing to try again: the newest run on this issue did not halt.")
}

/// A command that needs text came without.
pub fn missing_text_reply(command: &str) -> OutboundBody {
    let what = match command {
        "revise" => "what should change",
        "override" | "dismiss" => "the reason",
        _ => "the text",
    };
    let placeholder = match command {
        "override" => "REASON",
        "dismiss" => "F3 REASON",
        _ => "TEXT",
    };
    let usage = inline_code(&format!("/{command} {placeholder}"), 40);
    frame_reply(&format!("Nothing was done: the command needs {what} after it, as in {usage}."))
}

/// One run as `/status` tells it.
#[derive(Debug, Clone)]
pub struct RunStatusRow {
    pub run: RunId,
    pub workflow: String,
    pub status: &'static str,
    /// `Adversarial review`
    pub step: String,
    /// Why it waits or ended, in our words.
    pub why: Option<String>,
}

/// The runs of an issue, the newest first.
pub fn runs_table(runs: &[RunStatusRow]) -> OutboundBody {
    if runs.is_empty() {
        return frame_reply(
            "### Runs on this issue\n\nNothing is running. `/countersign help` lists what can be started.",
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

/// A run's status as people read it.
fn status_words(status: &str) -> &str {
    match status {
        "asking" => "waits for a person",
        "ready" | "running" | "halting" => "at work",
        "parked" => "held up",
        other => other,
    }
}

/// The issue was edited after the gate was posted; a bare approval does not cover the new text.
pub fn issue_changed_reply(diff: &str, line: &ApproveLine) -> OutboundBody {
    frame_reply(&format!(
        "The issue was edited after this document was posted, so nothing was approved yet:\n\n{}\n\n\
         If the document is right all the same, accept it with its hash:\n\n{}",
        code_block("diff", diff, DIFF_CHARS),
        line.block()
    ))
}

/// The command table as people read it.
pub fn help_table(rows: &[HelpRow], user_owned: bool) -> OutboundBody {
    let mut out = String::from(
        "### Commands\n\nAt the start of a line of a comment:\n\n| Command | What it does | Who may |\n|---|---|---|",
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
        out.push_str(&format!("\n\n{} the same:\n", count(labels.len(), "label says", "labels say")));
        for (label, row) in labels {
            out.push_str(&format!("\n- {}: as {}", inline_code(label, 50), inline_code(&row.usage, 60)));
        }
    }
    out.push_str("\n\nEach may also be written with the name first, as in `/countersign help`. Code, quotes and lists are not read.");
    if user_owned {
        out.push_str(
            "\n\nThis repository belongs to a person: its owner has admin access, collaborators have write access, \
             and everybody else has read access or none. What needs triage access, collaborators may; what needs \
             maintain access, only the owner.",
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
    fn no_reply_acts_whatever_it_quotes() {
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
            bad_arguments_reply("approve", "a hash needs at least its first 8 digits"),
            unknown_command_reply("aprove", Some("approve")),
            unknown_command_reply(HOSTILE, None),
            already_running_reply(RUN, "lld", None),
            missing_text_reply("revise"),
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
            help_table(&[row("/approve [stage] [hash]", None), row("/lld", Some("countersign:lld"))], true),
        ];
        for body in all.iter().chain([&not_plain_text_reply(HOSTILE, &[])]) {
            assert_inert(body.as_str());
        }
        let theirs = [ChangedPath { path: HOSTILE.into(), now: None }];
        let diff = "-a\n+```\n+/approve @mona\n+</details>";
        assert_inert(changed_files_reply((&[HOSTILE.into()], diff), &theirs, Some(&line)).as_str());
    }
}
