//! What a program that failed printed of limits, for where nothing tells better why it failed.
//!
//! Never asked about one that ended well: an answer about rate limits is no rate limit. Only text counts, and not the
//! events among it, for those hold what models say.

use std::sync::LazyLock;

use regex::Regex;

use crate::{limits, proc::ChildOutput, providers::CallErrorKind};

/// Bytes of the text in each output that are looked at: its last whole lines, where the reason stands.
const TAIL: usize = 2_000;

/// Whole words of lower-case text, one after the other in a line.
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

/// The status, and no line of a file.
static STATUS: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new("(?:^|[^a-z0-9.:]|\":)429(?:$|[^a-z0-9:]|:[^0-9]|:$)").expect("a constant that is a pattern")
});

/// Which limit is told of by `said` (the program's own word for its failure) or by the end of what else it printed. One
/// that is used up is mostly called limited, too, so that comes second.
pub(in crate::providers) fn limit_kind(output: &ChildOutput, said: &str) -> Option<CallErrorKind> {
    if output.success() {
        return None;
    }
    // Errors may begin in the middle of a line, which may be one of an event.
    let cut = output.stderr.len() >= limits::CHILD_ERROR_BYTES;
    // A disk that is full is no account that is used up.
    let all = [said.to_owned(), last_lines(&output.stderr, cut), last_lines(&output.stdout, false)]
        .map(|text| text.to_ascii_lowercase().replace("disk quota", "disk"));
    let told = |pattern: &Regex| all.iter().any(|text| pattern.is_match(text));
    let rate = || (told(&RATE) || told(&STATUS)).then_some(CallErrorKind::RateLimited { reset: None });
    told(&QUOTA).then_some(CallErrorKind::Quota { reset: None }).or_else(rate)
}

/// The last lines that are no events.
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
    fn limits_are_told_by_whole_words() {
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
    fn neither_an_answer_nor_what_a_model_said_nor_what_is_far_above_tells_of_limits() {
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
