//! Credentials by the shape their makers gave them. Used to refuse a document that holds one and
//! to black it out of everything we post. A shape is not a proof: a hit costs a word of text, a
//! miss costs an account, so the patterns lean towards hits.

use std::ops::Range;

/// A prefix, how many characters must follow, and which they may be.
struct Shape {
    prefix: &'static str,
    least: usize,
    /// `-` and `_` may occur besides letters and digits.
    dashes: bool,
}

const fn shape(prefix: &'static str, least: usize, dashes: bool) -> Shape {
    Shape { prefix, least, dashes }
}

const SHAPES: &[Shape] = &[
    shape("ghp_", 20, false),
    shape("gho_", 20, false),
    shape("ghu_", 20, false),
    shape("ghs_", 20, true),
    shape("ghr_", 20, false),
    shape("github_pat_", 20, true),
    shape("sk-ant-", 16, true),
    shape("sk-proj-", 16, true),
    shape("sk-or-", 16, true),
    // What OpenAI gave out first; words are not that long.
    shape("sk-", 40, false),
    shape("sk_live_", 16, false),
    shape("rk_live_", 16, false),
    shape("whsec_", 24, false),
    shape("hf_", 30, false),
    shape("SG.", 40, true),
    shape("dop_v1_", 40, false),
    shape("ya29.", 40, true),
    shape("AIza", 30, true),
    shape("AKIA", 16, false),
    shape("ASIA", 16, false),
    shape("xoxb-", 10, true),
    shape("xoxp-", 10, true),
    shape("glpat-", 16, true),
    shape("glrt-", 16, true),
    shape("npm_", 30, false),
    shape("eyJhbGci", 40, true),
];

const PEM: &str = "-----BEGIN ";

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
    let inside_a_word = text[..at].bytes().next_back().is_some_and(|b| b.is_ascii_alphanumeric());
    if inside_a_word {
        return None;
    }
    let shape = SHAPES.iter().find(|s| rest.starts_with(s.prefix))?;
    let fits = |b: &u8| {
        b.is_ascii_alphanumeric()
            || (shape.dashes && matches!(b, b'-' | b'_'))
            || (*b == b'.' && (shape.prefix.starts_with("eyJ") || shape.prefix.ends_with('.')))
    };
    let body = rest.as_bytes()[shape.prefix.len()..].iter().take_while(|b| fits(b)).count();
    (body >= shape.least).then(|| at + shape.prefix.len() + body)
}

/// A private key runs to its END line, or to the end of the text when that was cut off.
fn private_key_end(text: &str, at: usize) -> Option<usize> {
    let first = super::head(&text[at..], 60);
    let first = first.split_once('\n').map_or(first, |(line, _)| line);
    if !first.contains("PRIVATE KEY-----") {
        return None;
    }
    let Some(end) = text[at..].find("-----END ") else { return Some(text.len()) };
    let end = at + end;
    Some(text[end..].find('\n').map_or(text.len(), |n| end + n))
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
        for prefix in ["sk_live_", "whsec_", "hf_", "SG.", "ya29.", "dop_v1_", "glrt-", "sk-"] {
            assert_eq!(redact(&format!("{prefix}{}", "x1".repeat(20))), "[redacted]", "{prefix}");
        }
        let key = "a\n-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nb";
        assert_eq!(redact(key), "a\n[redacted]\nb");
        assert_eq!(redact("-----BEGIN PRIVATE KEY-----\nMII"), "[redacted]");
        for fine in [
            "the ghp_ prefix",
            "AKIA",
            "-----BEGIN CERTIFICATE-----\nMII",
            "npm_config_cache",
            "ask-ant-farm",
            "sk-a-very-long-name-of-a-class-that-is-none-of-theirs",
            "hf_hub_download",
        ] {
            assert_eq!(redact(fine), fine);
        }
    }
}
