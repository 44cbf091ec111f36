//! Finds rate limits and quota limits in the output of a failed program, if nothing else explains the failure.
//!
//! The output of a successful program is never searched, because the response itself may be about rate limits. Event
//! lines are ignored, because they contain model text.

use std::sync::LazyLock;

use regex::Regex;

use crate::{limits, proc::ChildOutput, providers::CallErrorKind};

/// Maximum bytes searched at the end of each output. The last complete lines usually name the reason.
const TAIL: usize = 2_000;

/// Builds a regex that matches any of these patterns as whole words in lower-case text. `..` in a pattern stands for up
/// to 60 characters of the same line.
fn word_pattern(patterns: &[&str]) -> Regex {
    let any = patterns.join("|").replace("..", "(?:[^a-z0-9\\n](?:[^\\n]{0,60}[^a-z0-9\\n])?)?");
    Regex::new(&format!("(?:^|[^a-z0-9])(?:{any})(?:$|[^a-z0-9])")).expect("a constant that is a pattern")
}

static QUOTA: LazyLock<Regex> = LazyLock::new(|| {
    word_pattern(&["quotas?..exceed(?:s|ed)?", "exceed(?:s|ed)?..quotas?", "billing..limits?"])
});

static RATE: LazyLock<Regex> = LazyLock::new(|| {
    word_pattern(&["rate..limit(?:s|ed|ing|error|exceeded)?", "too..many..requests?", "resource..exhausted"])
});

/// Matches the HTTP status 429, but not the line number 429 of a file.
static STATUS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("(?:^|[^a-z0-9.:]|\":)429(?:$|[^a-z0-9:]|:[^0-9]|:$)").expect("a constant that is a pattern")
});

/// Finds a limit that is named in `message` (the program's own failure text) or at the end of its outputs. Quota is
/// checked first, because messages about an exhausted quota usually mention a limit too.
pub(in crate::providers) fn limit_kind(output: &ChildOutput, message: &str) -> Option<CallErrorKind> {
    if output.success() {
        return None;
    }
    // Stderr may start in the middle of a line, which may belong to an event.
    let cut = output.stderr.len() >= limits::CHILD_ERROR_BYTES;
    // A full disk is not an exhausted account.
    let all = [message.to_owned(), last_lines(&output.stderr, cut), last_lines(&output.stdout, false)]
        .map(|text| text.to_ascii_lowercase().replace("disk quota", "disk"));
    let matches_any = |pattern: &Regex| all.iter().any(|text| pattern.is_match(text));
    let rate =
        || (matches_any(&RATE) || matches_any(&STATUS)).then_some(CallErrorKind::RateLimited { reset: None });
    matches_any(&QUOTA).then_some(CallErrorKind::Quota { reset: None }).or_else(rate)
}

/// Returns the last lines, without events. If `cut` is true, the first line is incomplete and is skipped.
fn last_lines(bytes: &[u8], cut: bool) -> String {
    let all = String::from_utf8_lossy(bytes);
    let lines = all.lines().skip(usize::from(cut)).filter(|line| !line.trim_start().starts_with('{'));
    let lines: Vec<_> = lines.collect();
    let mut size = 0;
    let last = lines.iter().rev().take_while(|line| {
        size += line.len() + 1;
        size <= TAIL
    });
    lines[lines.len() - last.count()..].join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NEITHER: Option<CallErrorKind> = None;
    const RATE_LIMITED: Option<CallErrorKind> = Some(CallErrorKind::RateLimited { reset: None });
    const USED_UP: Option<CallErrorKind> = Some(CallErrorKind::Quota { reset: None });

    fn failed(stdout: &str, stderr: &str) -> ChildOutput {
        let (stdout, stderr) = (stdout.into(), stderr.into());
        ChildOutput { status: Some(1), signal: None, stdout, stderr, elapsed: Duration::ZERO }
    }

    #[test]
    fn limit_messages_are_matched_by_whole_words() {
        for (text, kind) in [
            ("429 RESOURCE_EXHAUSTED quota exceeded", USED_UP),
            ("You exceeded your current quota, please check your plan", USED_UP),
            ("error: quotaExceeded", USED_UP),
            ("Error: billing hard limit reached", USED_UP),
            ("HTTP 429: Too Many Requests", RATE_LIMITED),
            ("x {\"code\":429}", RATE_LIMITED),
            ("status 429", RATE_LIMITED),
            ("RESOURCE_EXHAUSTED", RATE_LIMITED),
            ("rate_limit_error", RATE_LIMITED),
            ("rateLimitExceeded", RATE_LIMITED),
            ("The rate of requests is over the limit.", RATE_LIMITED),
            ("Too many concurrent requests", RATE_LIMITED),
            ("we generate limits", NEITHER),
            ("generate unlimited", NEITHER),
            ("they accelerate beyond the limit", NEITHER),
            ("Added RateLimiter middleware", NEITHER),
            ("app.ts:1429", NEITHER),
            ("at app.ts:429:13", NEITHER),
            ("commit 4f429ab", NEITHER),
            ("version 1.2.429", NEITHER),
            ("the first rate\nis no limit", NEITHER),
            ("quotations exceeded", NEITHER),
            ("write failed: Disk quota exceeded (EDQUOT)", NEITHER),
            ("error: unknown option", NEITHER),
            ("", NEITHER),
        ] {
            assert_eq!(limit_kind(&failed("", text), ""), kind, "{text}");
            assert_eq!(limit_kind(&failed(text, ""), ""), kind, "{text}");
        }
    }

    #[test]
    fn rate_limit_text_inside_an_answer_or_on_an_earlier_output_line_is_ignored() {
        let good = ChildOutput { status: Some(0), ..failed("429", "too many requests") };
        assert_eq!(limit_kind(&good, "rate limit"), NEITHER);
        let event = |size| format!("{{\"text\":\"{}429, rate limit\"}}\n", " ".repeat(size));
        let cut = format!("429, rate limit\"}}\n{}", event(limits::CHILD_ERROR_BYTES));
        let above = format!("quota exceeded{}", "\n".repeat(TAIL));
        for printed in [event(0), event(2 * TAIL), cut, above] {
            assert_eq!(limit_kind(&failed("", &printed), ""), NEITHER, "{printed}");
            let printed = format!("{printed}Rate limit reached");
            assert_eq!(limit_kind(&failed("", &printed), ""), RATE_LIMITED, "{printed}");
        }
        assert_eq!(limit_kind(&failed(&event(2 * TAIL), ""), ""), NEITHER);
        assert_eq!(limit_kind(&failed("", ""), "Rate limit reached"), RATE_LIMITED);
    }
}
