//! Short answers to commands that could not be taken as they were.

use super::{ApproveLine, InconclusiveReason, access, count, folded, link, others, overrides, paths};
use crate::{
    git::ChangedPath,
    github::outbound::{OutboundBody, code, fenced, plain},
    types::{Role, RunId},
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
pub fn stale(line: &ApproveLine) -> OutboundBody {
    said(&format!(
        "That hash is not of the version that waits, so nothing was approved. Look at the current one; to accept it:\n\n{}",
        line.block()
    ))
}

/// What is shown of a diff, in characters.
pub const LONGEST_DIFF: usize = 6_000;

/// An approval did not pass, for what it covers besides the document: `files` that this speaks of have changed on the
/// default branch as the diff says, or others have files on its own. Without a line an override is what passes.
pub fn not_yet(
    (files, diff): (&[String], &str),
    theirs: &[ChangedPath],
    line: Option<&ApproveLine>,
) -> OutboundBody {
    let mut what = String::new();
    if !files.is_empty() {
        let files = paths(files.iter().map(|path| (path.as_str(), "")));
        what += &format!("\n\nFiles that the document speaks of changed on the default branch:\n\n{files}");
    }
    if !diff.is_empty() {
        what += &format!("\n\n{}", folded("What changed in them", &fenced("diff", diff, LONGEST_DIFF)));
    }
    what += &others(theirs);
    if what.is_empty() {
        what += " What others had on its branch is gone again.";
    }
    let again = match line {
        Some(line) => format!("accept it with its hash:\n\n{}", line.block()),
        None => "write `/override REASON` once more.".to_owned(),
    };
    said(&format!(
        "Nothing was approved yet: an approval covers more than the document.{what}\n\n\
         If it is right as things are now, {again}"
    ))
}

/// For the pull request of a branch that somebody rewrote.
pub fn left(branch: &str, follows: &str, pull_url: &str) -> OutboundBody {
    said(&format!(
        "Somebody rewrote the branch {}: the last commit of Countersign is not in it any more. It is left as it is, and \
         the document goes on at {}, on the branch {}.",
        code(branch, 100),
        link("another pull request", pull_url),
        code(follows, 100)
    ))
}

/// A bare approval came when its writer could not have read what waits, or may have read what this login wrote.
pub fn too_soon(line: &ApproveLine, touched_by: Option<&str>) -> OutboundBody {
    let why = match touched_by {
        Some(login) => format!(
            "The comment that asks was changed by {}, so what you read may not have been ours",
            code(login, 60)
        ),
        None => {
            "The document was posted only moments before that, so it may not be the one you read".to_owned()
        }
    };
    said(&format!("{why}. To accept it:\n\n{}", line.block()))
}

/// A revision was asked for of what no review could count of.
pub fn in_vain(why: &InconclusiveReason) -> OutboundBody {
    said(&why.sentence())
}

/// A review of the pull request came, where what waits is not on it yet.
pub fn not_by_review(line: &ApproveLine) -> OutboundBody {
    said(&format!(
        "Nothing was approved: that was a review of the pull request, and what waits here is not on it before it is accepted. \
         To accept it:\n\n{}",
        line.block()
    ))
}

/// The way of accepting it was not named, or another one was.
pub fn no_way(verb: &str, line: &ApproveLine) -> OutboundBody {
    let (why, write) = match line.ways.as_slice() {
        [paths] if paths.starts_with('+') => ("it is all of these files, or none", "Write this"),
        [] | [_] => ("that is no way to", "Write this"),
        _ => ("there is more than one way to", "Write one of these"),
    };
    let how = match verb {
        "override" => format!("Write {}.", overrides(line)),
        _ => format!("{write}:\n\n{}", line.block()),
    };
    said(&format!("Nothing was accepted: {why}. {how}"))
}

/// A bare approval, and more than one gate it may have meant.
pub fn several(lines: &[ApproveLine]) -> OutboundBody {
    let all: Vec<String> = lines.iter().map(ApproveLine::block).collect();
    said(&format!("More than one decision waits here. Write the one you mean:\n\n{}", all.join("\n\n")))
}

/// The stage that was named is not the one that waits.
pub fn wrong_stage(stage: &str, lines: &[ApproveLine]) -> OutboundBody {
    let all: Vec<String> = lines.iter().map(ApproveLine::block).collect();
    said(&format!("Nothing waits at stage {}. What does wait:\n\n{}", code(stage, 20), all.join("\n\n")))
}

/// A run is alive, but nothing waits for a person.
pub fn no_gate(run: RunId, at_step: &str, status_url: Option<&str>) -> OutboundBody {
    let status = status_url.map_or(String::new(), |url| format!(" {}", link("How it stands", url)));
    said(&format!("Nothing waits for a decision: run `{run}` is at “{}”.{status}", plain(at_step, 80)))
}

/// Nothing is alive that could wait for a decision; `status` is how the newest run ended.
pub fn over(run: RunId, workflow: &str, status: &str, why: Option<&str>) -> OutboundBody {
    let ended = match why {
        Some(why) => format!("ended: {}", plain(why, 300).trim_end_matches('.')),
        None => format!("is {}", stands(status)),
    };
    let workflow = plain(workflow, 30);
    said(&format!(
        "Nothing waits for a decision here any more. Run `{run}` ({workflow}) {ended}. `/restart` begins it again."
    ))
}

/// A gate is open, but not to this command.
pub fn no_such_verb(command: &str, usages: &[&str]) -> OutboundBody {
    let overridden = usages.iter().any(|usage| usage.starts_with("/override"));
    let why = match command {
        "approve" if overridden => " passes only what the review approved, and it did not approve this",
        _ => " does not pass what waits here",
    };
    let usages: Vec<_> = usages.iter().map(|usage| code(usage, 40)).collect();
    let command = code(&format!("/{command}"), 40);
    said(&format!("{command}{why}. What can be said to it: {}.", usages.join(" or ")))
}

/// What was said came here long after it was said, and the work has gone on since.
pub fn came_late(command: &str) -> OutboundBody {
    said(&format!(
        "Your {} came late: GitHub could not bring it when you wrote it, and the work has gone on since. Nothing was \
         done; if you still mean it, say it again.",
        code(&format!("/{command}"), 40)
    ))
}

/// All that there is to say to one comment.
pub fn together(bodies: &[OutboundBody]) -> OutboundBody {
    let texts: Vec<_> = bodies.iter().map(OutboundBody::as_str).collect();
    OutboundBody::again(texts.join("\n\n"))
}

/// Stands between answers in one comment; nothing of ours holds such a line.
const ANSWERS_APART: &str = "\n\n---\n\n";

/// The comment with the last answer to each of `/status`, `/cost` and `/help`, the newest first; `before` is its text so far.
pub fn answers(new: &[OutboundBody], before: &str) -> OutboundBody {
    let question = |answer: &str| answer.lines().next().unwrap_or_default().to_owned();
    let new: Vec<&str> = new.iter().map(OutboundBody::as_str).collect();
    let asked_again = |old: &&str| new.iter().any(|new| question(new) == question(old));
    let kept = before.split(ANSWERS_APART).filter(|old| !old.is_empty() && !asked_again(old));
    OutboundBody::again(new.iter().copied().chain(kept).collect::<Vec<_>>().join(ANSWERS_APART))
}

/// A comment is a command alone, in a form that does not count: the line to write, or the lines of the gates that wait.
pub fn not_plain(command: &str, lines: &[ApproveLine]) -> OutboundBody {
    let blocks = match lines {
        [] => fenced("", command, 1_000),
        lines => lines.iter().map(ApproveLine::block).collect::<Vec<_>>().join("\n\n"),
    };
    said(&format!(
        "Nothing was done: a command counts only as plain text at the start of a line, without quotes or formatting. To say \
         it, write\n\n{blocks}"
    ))
}

/// An approval came by email, or stood below a text of ours that was repeated, as mail programs do.
pub fn not_by_email(command: &str, gate_url: Option<&str>) -> OutboundBody {
    let place = gate_url.map_or("on the page of this issue".to_owned(), |url| link("on the page", url));
    said(&format!(
        "{} was ignored: it counts neither by email nor below quoted text of Countersign. Write it {place}.",
        code(&format!("/{command}"), 40)
    ))
}

/// The arguments of a command were not understood; `why` is a sentence of ours.
pub fn not_understood(command: &str, why: &str) -> OutboundBody {
    said(&format!("That {} was not understood: {}.", code(&format!("/{command}"), 40), plain(why, 200)))
}

pub fn unknown_command(word: &str, did_you_mean: Option<&str>) -> OutboundBody {
    let word = code(&format!("/{word}"), 40);
    match did_you_mean {
        Some(name) => said(&format!("There is no {word}. Did you mean {}?", code(&format!("/{name}"), 40))),
        None => said(&format!("There is no {word}. `/help` lists what there is.")),
    }
}

pub fn already_running(run: RunId, workflow: &str, status_url: Option<&str>) -> OutboundBody {
    let status = status_url.map_or(String::new(), |url| format!(": {}", link("how it stands", url)));
    said(&format!(
        "Run `{run}` of {} is already at work on this issue{status}. `/stop` ends it.",
        code(workflow, 30)
    ))
}

/// A person has started enough for a day.
pub fn too_many_runs(most: u32) -> OutboundBody {
    said(&format!(
        "You have started {} in this repository today, which is as many as one person may in a day of UTC. \
         Somebody else may, or you tomorrow; whoever runs the server can raise `runs_a_day` in its settings.",
        count(usize::try_from(most).unwrap_or(usize::MAX), "run", "runs")
    ))
}

/// What a person started has cost enough for a day.
pub fn too_much_spent() -> OutboundBody {
    said(
        "The runs you started in this repository today have cost as much as those of one person may in a day of UTC. \
         Somebody else may start this, or you tomorrow; whoever runs the server can raise `cost_a_day` in its settings.",
    )
}

/// Nothing was reviewed yet that a person could settle something of.
pub fn no_findings() -> OutboundBody {
    said("There is no finding to settle: no review of a run that is at work here has found anything.")
}

/// Each run counts its findings from F1.
pub fn whose_finding() -> OutboundBody {
    said(
        "More than one document is at work here and has findings of such a name. Wait for one, or `/stop` it.",
    )
}

pub fn no_such_finding<'o>(finding: &str, open: impl Iterator<Item = &'o str>) -> OutboundBody {
    let open: Vec<_> = open.map(|id| plain(id, 10).to_string()).collect();
    let there = match &open[..] {
        [] => "None is open.".to_owned(),
        [one] => format!("The open one is {one}."),
        all => format!("Open are {}.", all.join(", ")),
    };
    said(&format!("There is no finding {}. {there}", plain(finding, 10)))
}

pub fn settled_already(finding: &str, status: &str) -> OutboundBody {
    said(&format!("Nothing was done: {} is {} already.", plain(finding, 10), plain(status, 20)))
}

/// `/restart`, and there is no run of which it could be.
pub fn nothing_to_restart() -> OutboundBody {
    said("There is nothing to start anew: no such run is at work here, and the newest one was another.")
}

/// `/retry`, and nothing on the issue halted.
pub fn nothing_to_retry() -> OutboundBody {
    said("There is nothing to try again: the newest run on this issue did not halt.")
}

/// A command that needs text came without.
pub fn empty_args(command: &str) -> OutboundBody {
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
    let usage = code(&format!("/{command} {placeholder}"), 40);
    said(&format!("Nothing was done: the command needs {what} after it, as in {usage}."))
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
pub fn runs(runs: &[RunStatusRow]) -> OutboundBody {
    if runs.is_empty() {
        return said(
            "### Runs on this issue\n\nNothing is running. `/countersign help` lists what can be started.",
        );
    }
    let mut out = String::from(
        "### Runs on this issue\n\n| Run | Workflow | Status | Step | Why |\n|---|---|---|---|---|",
    );
    for run in runs.iter().rev() {
        let why = run.why.as_ref().map_or(String::new(), |why| plain(why, 300));
        let (workflow, step) = (plain(&run.workflow, 30), plain(&run.step, 80));
        let status = stands(run.status);
        out.push_str(&format!("\n| `{}` | {workflow} | {status} | {step} | {why} |", run.run));
    }
    said(&out)
}

/// A run's status as people read it.
fn stands(status: &str) -> &str {
    match status {
        "asking" => "waits for a person",
        "ready" | "running" | "halting" => "at work",
        "parked" => "held up",
        other => other,
    }
}

/// The issue was edited after the gate was posted; a bare approval does not cover the new text.
pub fn issue_changed(diff: &str, line: &ApproveLine) -> OutboundBody {
    said(&format!(
        "The issue was edited after this document was posted, so nothing was approved yet:\n\n{}\n\n\
         If the document is right all the same, accept it with its hash:\n\n{}",
        fenced("diff", diff, LONGEST_DIFF),
        line.block()
    ))
}

/// The command table as people read it.
pub fn help(rows: &[HelpRow], user_owned: bool) -> OutboundBody {
    let mut out = String::from(
        "### Commands\n\nAt the start of a line of a comment:\n\n| Command | What it does | Who may |\n|---|---|---|",
    );
    for row in rows {
        out.push_str(&format!(
            "\n| {} | {} | {} |",
            code(&row.usage, 60),
            plain(&row.about, 200),
            access(row.role)
        ));
    }
    let labels: Vec<_> = rows.iter().filter_map(|row| row.label.as_ref().map(|label| (label, row))).collect();
    if !labels.is_empty() {
        out.push_str(&format!("\n\n{} the same:\n", count(labels.len(), "label says", "labels say")));
        for (label, row) in labels {
            out.push_str(&format!("\n- {}: as {}", code(label, 50), code(&row.usage, 60)));
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
    said(&out)
}

fn said(text: &str) -> OutboundBody {
    OutboundBody::frame(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};
    use crate::types::Hash;

    #[test]
    fn no_reply_acts_whatever_it_quotes() {
        let line = ApproveLine::approve("lld", Hash::of(b"x"), &[]);
        let row = |usage: &str, label: Option<&str>| HelpRow {
            usage: usage.into(),
            about: "does a | b".into(),
            role: Role::Write,
            label: label.map(Into::into),
        };
        let all = [
            stale(&line),
            too_soon(&line, None),
            several(&[line.clone(), line.clone()]),
            wrong_stage(HOSTILE, std::slice::from_ref(&line)),
            no_gate(RUN, "Review", Some("https://x/1")),
            not_understood("approve", "a hash needs at least its first 8 digits"),
            unknown_command("aprove", Some("approve")),
            unknown_command(HOSTILE, None),
            already_running(RUN, "lld", None),
            empty_args("revise"),
            not_plain("", std::slice::from_ref(&line)),
            not_by_email("approve", Some("https://x/1")),
            not_by_email("override", None),
            runs(&[]),
            runs(&[RunStatusRow {
                run: RUN,
                workflow: "lld".into(),
                status: "asking",
                step: "N4 Gate".into(),
                why: Some(HOSTILE.into()),
            }]),
            issue_changed("-a\n+```\n+/approve @mona", &line),
            help(&[row("/approve [stage] [hash]", None), row("/lld", Some("countersign:lld"))], true),
        ];
        for body in all.iter().chain([&not_plain(HOSTILE, &[])]) {
            assert_inert(body.as_str());
        }
        let theirs = [ChangedPath { path: HOSTILE.into(), now: None }];
        let diff = "-a\n+```\n+/approve @mona\n+</details>";
        assert_inert(not_yet((&[HOSTILE.into()], diff), &theirs, Some(&line)).as_str());
    }
}
