//! Finds credentials by the prefixes that their issuers use. Documents with credentials are refused, and posts are
//! redacted. False positives are acceptable: they only redact harmless text, while a missed secret can cost an account.

use std::ops::Range;

/// A prefix, the minimum number of characters after it, and the allowed characters other than letters and digits.
struct SecretPattern {
    prefix: &'static str,
    least: usize,
    also: &'static str,
}

const fn secret_pattern(prefix: &'static str, least: usize, also: &'static str) -> SecretPattern {
    SecretPattern { prefix, least, also }
}

const SECRET_PATTERNS: &[SecretPattern] = &[
    secret_pattern("ghp_", 20, ""),
    secret_pattern("gho_", 20, ""),
    secret_pattern("ghu_", 20, ""),
    secret_pattern("ghs_", 20, "-_."),
    secret_pattern("ghr_", 20, ""),
    secret_pattern("github_pat_", 20, "-_"),
    secret_pattern("sk-ant-", 16, "-_"),
    secret_pattern("sk-proj-", 16, "-_"),
    secret_pattern("sk-svcacct-", 16, "-_"),
    secret_pattern("sk-admin-", 16, "-_"),
    secret_pattern("sk-or-", 16, "-_"),
    // Oldest form of OpenAI keys; no word is that long.
    secret_pattern("sk-", 40, ""),
    secret_pattern("sk_live_", 16, ""),
    secret_pattern("sk_test_", 16, ""),
    secret_pattern("rk_live_", 16, ""),
    secret_pattern("rk_test_", 16, ""),
    secret_pattern("whsec_", 24, ""),
    secret_pattern("hf_", 30, ""),
    secret_pattern("SG.", 40, "-_."),
    secret_pattern("dop_v1_", 40, ""),
    secret_pattern("dp.pt.", 40, ""),
    secret_pattern("hvs.", 20, "-_."),
    secret_pattern("ya29.", 40, "-_."),
    secret_pattern("AIza", 30, "-_"),
    secret_pattern("GOCSPX-", 20, "-_"),
    secret_pattern("AKIA", 16, ""),
    secret_pattern("ASIA", 16, ""),
    secret_pattern("AccountKey=", 40, "+/="),
    secret_pattern("AGE-SECRET-KEY-1", 50, ""),
    secret_pattern("xoxa-", 10, "-_"),
    secret_pattern("xoxb-", 10, "-_"),
    secret_pattern("xoxp-", 10, "-_"),
    secret_pattern("xoxr-", 10, "-_"),
    secret_pattern("xapp-", 10, "-_"),
    secret_pattern("hooks.slack.com/services/", 20, "/"),
    secret_pattern("discord.com/api/webhooks/", 20, "/-_"),
    secret_pattern("glpat-", 16, "-_."),
    secret_pattern("glrt-", 16, "-_."),
    secret_pattern("gldt-", 16, "-_."),
    secret_pattern("npm_", 30, ""),
    secret_pattern("pypi-", 50, "-_"),
    secret_pattern("shpat_", 30, ""),
    secret_pattern("dckr_pat_", 20, "-_"),
    // JSON Web Tokens whose header starts with `alg`, `typ` or `kid`.
    secret_pattern("eyJhbGci", 40, "-_."),
    secret_pattern("eyJ0eXAi", 40, "-_."),
    secret_pattern("eyJraWQi", 40, "-_."),
];

const PEM: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";

/// Table, indexed by byte value, that says whether a secret can start with this byte. Most bytes of a text cannot start
/// a secret, so [`find`] skips them quickly.
const BEGINNINGS: [bool; 256] = {
    let mut begins = [false; 256];
    begins[PEM.as_bytes()[0] as usize] = true;
    let mut at = 0;
    while at < SECRET_PATTERNS.len() {
        begins[SECRET_PATTERNS[at].prefix.as_bytes()[0] as usize] = true;
        at += 1;
    }
    begins
};

/// Returns the ranges of secrets, in order and without overlap.
pub fn find(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(skipped) = text.as_bytes()[at..].iter().position(|byte| BEGINNINGS[usize::from(*byte)]) {
        at += skipped;
        match find_secret_end(text, at) {
            Some(end) => {
                found.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

/// Replaces each secret with `[redacted]`.
pub fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for range in find(text) {
        out.push_str(&text[from..range.start]);
        out.push_str("[redacted]");
        from = range.end;
    }
    out.push_str(&text[from..]);
    out
}

fn find_secret_end(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    if rest.starts_with(PEM) {
        return private_key_end(text, at);
    }
    let mut before = text[..at].bytes().rev();
    // A prefix inside a word does not count, but one after an escaped line break (`\n`) does.
    if before.next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && before.next() != Some(b'\\') {
        return None;
    }
    let shape = SECRET_PATTERNS.iter().find(|shape| rest.starts_with(shape.prefix))?;
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || shape.also.as_bytes().contains(byte);
    let body = rest.as_bytes()[shape.prefix.len()..].iter().take_while(|byte| fits(byte)).count();
    (body >= shape.least).then(|| at + shape.prefix.len() + body)
}

/// Returns the offset at which the private key that starts at `at` ends. The key ends after its END line, or at the end
/// of the text if that line is missing. Text directly after the END marker may be another key. Returns `None` if no
/// private key starts at `at`.
fn private_key_end(text: &str, at: usize) -> Option<usize> {
    let first = super::truncate(&text[at..], 60);
    let first = first.split_once('\n').map_or(first, |(line, _)| line);
    if !first.contains("PRIVATE KEY") {
        return None;
    }
    let Some(end) = text[at..].find(PEM_END).map(|end| at + end + PEM_END.len()) else {
        return Some(text.len());
    };
    let line = text[end..].split('\n').next().unwrap_or_default();
    Some(end + line.find("-----").map_or(line.len(), |mark| mark + 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_secret_patterns_are_redacted() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        assert_eq!(redact(&format!("use {token}.")), "use [redacted].");
        assert_eq!(redact(&format!("k=AIza{}", "x".repeat(35))), "k=[redacted]");
        assert_eq!(redact("sk-ant-api03-abcdefghijklmnop é"), "[redacted] é");
        for prefix in ["sk_live_", "whsec_", "hf_", "SG.", "ya29.", "dop_v1_", "glrt-", "sk-", "eyJ0eXAi"] {
            assert_eq!(redact(&format!("{prefix}{}", "x1".repeat(20))), "[redacted]", "{prefix}");
        }
        let key = "a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb";
        assert_eq!(redact(key), "a\n[redacted]\nb");
        assert_eq!(redact("-----BEGIN PRIVATE KEY-----\nMII"), "[redacted]");
        let key = |kind: &str| format!("-----BEGIN {kind}-----\nMII\n-----END {kind}-----");
        let two = format!("`{}`, `{}`", key("PRIVATE KEY"), key("PGP PRIVATE KEY BLOCK"));
        assert_eq!(redact(&two), "`[redacted]`, `[redacted]`");
        assert_eq!(redact(&format!("{0}{0} b", key("PRIVATE KEY"))), "[redacted][redacted] b");
        assert_eq!(redact(&format!("\"x\\n{token}\"")), "\"x\\n[redacted]\"");
        for hook in ["https://hooks.slack.com/services/", "https://discord.com/api/webhooks/"] {
            let url = format!("{hook}T0000/B0000/{}", "x1".repeat(12));
            assert_eq!(redact(&url), "https://[redacted]");
        }
        for fine in [
            "the ghp_ prefix",
            "AKIA",
            "-----BEGIN CERTIFICATE-----\nMII",
            "npm_config_cache",
            "ask-ant-farm",
            "sk-a-very-long-name-of-a-class-that-is-none-of-theirs",
            "hf_hub_download",
            "hooks.slack.com/services/",
            "pypi-publish",
        ] {
            assert_eq!(redact(fine), fine);
        }
    }
}
