//! Reads the CI state of our commits and describes failures for the drafter.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::github_error;
use crate::{
    documents::{is_invisible, secrets},
    engine::StepError,
    github::{CiCheckOutcome, CiCheckReport, GitHubRepo, JobLogError},
    types::Oid,
};

/// Maximum number of failing checks whose output is described.
const MOST_REPORTED_CHECKS: usize = 5;

/// Maximum characters of a check's output. The same limit applies to the quoted end of the check's log.
const CHECK_OUTPUT_CHARS: usize = 3_000;
const LOG_CHARS: usize = 8_000;

/// Maximum bytes read from the end of a log. This is more than is shown, because secrets are redacted before the text
/// is shortened.
const LOG_BYTES: usize = 256 * 1024;

/// Maximum characters of a check's name; the rest is cut off.
const NAME_CHARS: usize = 100;

/// Maximum total bytes of all check names.
const NAMES_BYTES: usize = 8 * 1024;

/// CI state of a commit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CiStatus {
    pub stands: CiState,
    /// Sorted names of the pending checks. The names of the failed checks are in `failing`.
    pub pending: Vec<String>,
    pub failing: Vec<String>,
    /// Names of the failing checks that also fail on the base commit.
    pub before: Vec<String>,
    /// Whether it is unclear how a check ended, or whether a check was meant to run for this repository at all.
    #[serde(default)]
    pub unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CiState {
    /// CI has no result. Either the commit has no checks, or no check failed and at least one result is unclear.
    Nothing,
    /// Some check is still pending.
    Pending,
    Passed,
    Failed,
}

/// Reads the CI state of a commit. If a check failed, also reads which checks fail on the base commit.
///
/// # Errors
/// Transient GitHub errors.
pub async fn read_ci_status(repo: &GitHubRepo, commit: &Oid, before: &Oid) -> Result<CiStatus, StepError> {
    let reports = repo.ci_check_reports(commit).await.map_err(github_error)?;
    let any = |outcome| reports.iter().any(|report| report.outcome == outcome);
    let stands = if any(CiCheckOutcome::Pending) {
        CiState::Pending
    } else if any(CiCheckOutcome::Failed) {
        CiState::Failed
    } else if any(CiCheckOutcome::Passed)
        && ![CiCheckOutcome::Neither, CiCheckOutcome::Unknown].into_iter().any(any)
    {
        CiState::Passed
    } else {
        CiState::Nothing
    };
    let pending = names_within_limit(check_names(&reports, CiCheckOutcome::Pending));
    let mut found = CiStatus {
        stands,
        pending,
        failing: Vec::new(),
        before: Vec::new(),
        unknown: any(CiCheckOutcome::Unknown),
    };
    if any(CiCheckOutcome::Failed) {
        let before =
            check_names(&repo.ci_check_reports(before).await.map_err(github_error)?, CiCheckOutcome::Failed);
        found.failing = names_within_limit(check_names(&reports, CiCheckOutcome::Failed));
        found.before = found.failing.iter().filter(|name| before.contains(*name)).cloned().collect();
    }
    Ok(found)
}

/// Returns the names of the checks with this outcome, sorted.
fn check_names(reports: &[CiCheckReport], outcome: CiCheckOutcome) -> BTreeSet<String> {
    reports
        .iter()
        .filter(|report| report.outcome == outcome)
        .map(|report| readable_name(&report.name))
        .collect()
}

/// Returns the first names that together fit into [`NAMES_BYTES`].
fn names_within_limit(names: BTreeSet<String>) -> Vec<String> {
    let mut room = NAMES_BYTES;
    let fits = |name: &String| {
        let left = room.checked_sub(name.len());
        room = left.unwrap_or_default();
        left.is_some()
    };
    names.into_iter().take_while(fits).collect()
}

/// Returns the name on one line without invisible characters.
fn readable_name(text: &str) -> String {
    let text = to_readable(text).replace(['\n', '\t'], " ");
    text.trim().chars().take(NAME_CHARS).collect()
}

/// Returns a description of the output of these failing checks, and the number of logs that could not be read.
///
/// # Errors
/// Transient GitHub errors.
pub async fn describe_failing_checks(
    repo: &GitHubRepo,
    commit: &Oid,
    failing: &[String],
) -> Result<(String, usize), StepError> {
    let reports = repo.ci_check_reports(commit).await.map_err(github_error)?;
    let of_these = |report: &&CiCheckReport| {
        report.outcome == CiCheckOutcome::Failed && failing.contains(&readable_name(&report.name))
    };
    let (mut told, mut lacking) = (String::new(), 0);
    for report in reports.iter().filter(of_these).take(MOST_REPORTED_CHECKS) {
        told += &format!("### {}\n\n", readable_name(&report.name));
        for said in &report.says {
            told += &format!("{}\n\n", keep_beginning(&to_readable(said), CHECK_OUTPUT_CHARS).trim());
        }
        if let Some(check) = report.check {
            let remarks = repo.check_annotations(check).await.map_err(github_error)?;
            let remarks: String =
                remarks.iter().map(|said| format!("- {}\n", to_readable(said).trim())).collect();
            told += &format!("{}\n", keep_beginning(&remarks, CHECK_OUTPUT_CHARS));
        }
        let Some(job) = report.job else { continue };
        told += &match repo.job_log_tail(job, LOG_BYTES).await {
            Ok(log) => {
                let log = to_readable(&String::from_utf8_lossy(&log));
                format!("The end of its log:\n\n{}\n\n", keep_end(log.trim_end(), LOG_CHARS))
            }
            Err(why) => {
                lacking += 1;
                let why = match why {
                    JobLogError::NotNow(limit) => return Err(github_error(limit)),
                    JobLogError::Refused => "GitHub refuses it to us",
                    JobLogError::Gone => "there is none, or it was taken away",
                    JobLogError::Unreadable => "it could not be read",
                };
                format!("Its log cannot be had: {why}. Go by what is said above alone.\n\n")
            }
        };
    }
    if failing.len() > MOST_REPORTED_CHECKS {
        told += &format!("({} more checks fail.)\n", failing.len() - MOST_REPORTED_CHECKS);
    }
    Ok((told, lacking))
}

/// Removes terminal escape codes and invisible characters, and redacts secrets.
fn to_readable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\r' if chars.peek() == Some(&'\n') => {}
            // A progress line that overwrites itself becomes several lines.
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || is_invisible(c) => {}
            c => out.push(c),
        }
    }
    secrets::redact(&out)
}

/// Skips the rest of an escape sequence after ESC. A sequence that starts with `[` ends at a letter, one that starts
/// with `]` ends at BEL or ST, and any other has one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
        Some(']') => {
            while let Some(c) = chars.next_if(|c| *c != '\n') {
                if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                    break;
                }
            }
        }
        _ => {}
    }
}

fn keep_beginning(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}\n… (cut)", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns the end of the text, at most `most` characters, beginning at the start of a line.
fn keep_end(text: &str, most: usize) -> String {
    let count = text.chars().count();
    let Some((at, _)) = text.char_indices().nth(count.saturating_sub(most)).filter(|_| count > most) else {
        return text.to_owned();
    };
    let rest = &text[at..];
    format!("(cut) …\n{}", rest.split_once('\n').map_or(rest, |(_, whole)| whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_check_names_are_stripped_of_control_characters_and_limited_in_number() {
        assert_eq!(readable_name("\u{1b}[31mbuild\u{7}\n(a)\u{202e} "), "build (a)");
        let many: BTreeSet<String> = (0..900).map(|n| format!("{n:03}{}", "\u{1F600}".repeat(97))).collect();
        let kept = names_within_limit(many);
        assert!((10..50).contains(&kept.len()) && kept[0].starts_with("000"), "{}", kept.len());
    }

    #[test]
    fn ci_log_is_shown_without_escape_codes_and_secrets() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let log = format!(
            "\u{1b}[31merror\u{1b}[0m: \u{1b}]8;;https://x\u{7}link\u{1b}]8;;\u{1b}\\ end\r\n10%\r20%\n\u{202e}key {token}\u{1b}[K\n"
        );
        assert_eq!(to_readable(&log), "error: link end\n10%\n20%\nkey [redacted]\n");
        assert_eq!(keep_end("one\ntwo\nthree", 8), "(cut) …\nthree");
        assert_eq!(
            (keep_end("ää", 2), keep_beginning("äää", 2)),
            ("ää".to_owned(), "ää\n… (cut)".to_owned())
        );
    }
}
