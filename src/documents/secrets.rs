//! Credentials by the shape their makers gave them. Used to refuse a document that holds one and
//! to black it out of everything we post. A shape is not a proof: a hit costs a word of text, a
//! miss costs an account, so the patterns lean towards hits.

use std::ops::Range;

/// A prefix, how many characters must follow, and which they may be besides letters and digits.
struct SecretPattern {
    prefix: &'static str,
    least: usize,
    also: &'static str,
}

const fn shape(prefix: &'static str, least: usize, also: &'static str) -> SecretPattern {
    SecretPattern { prefix, least, also }
}

const SHAPES: &[SecretPattern] = &[
    shape("ghp_", 20, ""),
    shape("gho_", 20, ""),
    shape("ghu_", 20, ""),
    shape("ghs_", 20, "-_."),
    shape("ghr_", 20, ""),
    shape("github_pat_", 20, "-_"),
    shape("sk-ant-", 16, "-_"),
    shape("sk-proj-", 16, "-_"),
    shape("sk-svcacct-", 16, "-_"),
    shape("sk-admin-", 16, "-_"),
    shape("sk-or-", 16, "-_"),
    // What OpenAI gave out first; words are not that long.
    shape("sk-", 40, ""),
    shape("sk_live_", 16, ""),
    shape("sk_test_", 16, ""),
    shape("rk_live_", 16, ""),
    shape("rk_test_", 16, ""),
    shape("whsec_", 24, ""),
    shape("hf_", 30, ""),
    shape("SG.", 40, "-_."),
    shape("dop_v1_", 40, ""),
    shape("dp.pt.", 40, ""),
    shape("hvs.", 20, "-_."),
    shape("ya29.", 40, "-_."),
    shape("AIza", 30, "-_"),
    shape("GOCSPX-", 20, "-_"),
    shape("AKIA", 16, ""),
    shape("ASIA", 16, ""),
    shape("AccountKey=", 40, "+/="),
    shape("AGE-SECRET-KEY-1", 50, ""),
    shape("xoxa-", 10, "-_"),
    shape("xoxb-", 10, "-_"),
    shape("xoxp-", 10, "-_"),
    shape("xoxr-", 10, "-_"),
    shape("xapp-", 10, "-_"),
    shape("hooks.slack.com/services/", 20, "/"),
    shape("discord.com/api/webhooks/", 20, "/-_"),
    shape("glpat-", 16, "-_."),
    shape("glrt-", 16, "-_."),
    shape("gldt-", 16, "-_."),
    shape("npm_", 30, ""),
    shape("pypi-", 50, "-_"),
    shape("shpat_", 30, ""),
    shape("dckr_pat_", 20, "-_"),
    // A token of JSON that says first how it is signed, what it is, or by which key.
    shape("eyJhbGci", 40, "-_."),
    shape("eyJ0eXAi", 40, "-_."),
    shape("eyJraWQi", 40, "-_."),
];

const PEM: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";

/// The bytes that a secret can begin with; most of a text are others.
const BEGINNINGS: [bool; 256] = {
    let mut begins = [false; 256];
    begins[PEM.as_bytes()[0] as usize] = true;
    let mut at = 0;
    while at < SHAPES.len() {
        begins[SHAPES[at].prefix.as_bytes()[0] as usize] = true;
        at += 1;
    }
    begins
};

/// Where secrets stand, in order and without overlap.
pub fn find(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(skipped) = text.as_bytes()[at..].iter().position(|byte| BEGINNINGS[usize::from(*byte)]) {
        at += skipped;
        match secret_at(text, at) {
            Some(end) => {
                found.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

/// The text with every secret replaced by `[redacted]`.
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

fn secret_at(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    if rest.starts_with(PEM) {
        return private_key_end(text, at);
    }
    let mut before = text[..at].bytes().rev();
    // What follows a line break that is spelled `\n` is not inside a word.
    if before.next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && before.next() != Some(b'\\') {
        return None;
    }
    let shape = SHAPES.iter().find(|shape| rest.starts_with(shape.prefix))?;
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || shape.also.as_bytes().contains(byte);
    let body = rest.as_bytes()[shape.prefix.len()..].iter().take_while(|byte| fits(byte)).count();
    (body >= shape.least).then(|| at + shape.prefix.len() + body)
}

/// A private key runs to its END mark, or to the end of the text when that was cut off. Another may begin right after.
fn private_key_end(text: &str, at: usize) -> Option<usize> {
    let first = super::head(&text[at..], 60);
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
    fn known_shapes_are_blacked_out_and_nothing_else_is() {
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
