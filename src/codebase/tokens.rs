//! Estimates the number of tokens in a text. The estimate tends to be too high rather than too low.
//!
//! The tokenizers of the default models (Claude and Gemini) are not public, and those of local models differ. OpenAI's
//! tables are public, but they would add five megabytes and be exact only for a provider that is not used by default.
//! The estimate therefore counts the units into which all current vocabularies split a text: word pieces, groups of
//! three digits, sequences of punctuation, line breaks with indentation, and non-ASCII characters.
//!
//! The weights were fitted to that one of four public vocabularies which needs the most tokens; Anthropic published it
//! for its earlier models. The sample was 6,292 files: 27 kinds of code, data, Markdown, Chinese and Japanese prose,
//! and minified scripts. Compared with that vocabulary, the estimate is 2 % too high in total. For single files the
//! error is between −9 % and +13 % (1st and 99th percentile). The largest errors, −30 % and +48 %, occur in files of a
//! few hundred bytes. Compared with OpenAI's o200k and cl100k and with Llama 3's vocabulary, the estimate is 17 % too
//! high in total. It is more than 3 % too low for one file in a hundred.

/// Weight of a word piece, in hundredths of a token.
const WORD: usize = 115;
const DIGITS: usize = 115;
const PUNCTUATION: usize = 115;
const LINE: usize = 80;
const CHARACTER: usize = 105;
/// Weight of a character outside the Basic Multilingual Plane, such as an emoji, in hundredths of a token.
const RARE_CHARACTER: usize = 320;

/// Returns the estimated number of tokens in a text.
pub(crate) fn estimate_tokens(text: &str) -> usize {
    let (mut sum, mut rest) = (0, text);
    while let Some(first) = rest.chars().next() {
        let run = |belongs: fn(char) -> bool| rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        let (length, weight) = match first {
            'a'..='z' | 'A'..='Z' => {
                let length = word_length(rest.as_bytes());
                (length, WORD + 100 * length.saturating_sub(8) / 5)
            }
            '0'..='9' => {
                let length = run(|c| c.is_ascii_digit());
                (length, DIGITS * length.div_ceil(3))
            }
            ' ' | '\t' | '\r' | '\n' => {
                let length = run(is_blank);
                // Vocabularies fold a single space into the word after it.
                let counts = length > 1 || first == '\n';
                (length, if counts { LINE + 100 * (length / 32) } else { 0 })
            }
            c if c.is_ascii() => {
                let length = run(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && !is_blank(c));
                (length, PUNCTUATION + 60 * ((length - 1) / 4))
            }
            c if u32::from(c) < 0x1_0000 => (c.len_utf8(), CHARACTER),
            c => (c.len_utf8(), RARE_CHARACTER),
        };
        sum += weight;
        rest = &rest[length..];
    }
    sum.div_ceil(100)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Returns the length of the leading letters, up to the first change from lowercase to uppercase.
fn word_length(text: &[u8]) -> usize {
    let ends = |pair: &[u8]| {
        !pair[1].is_ascii_alphabetic() || pair[1].is_ascii_uppercase() && pair[0].is_ascii_lowercase()
    };
    text.windows(2).position(ends).map_or(text.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sample texts, each with its token counts in Claude's published vocabulary, o200k and Llama 3.
    const COUNTED: &[(&str, [usize; 3])] = &[
        (
            "pub async fn snapshot(&self, cx: &Cx, base: &Base) -> Result<Snapshot, StepError> {\n    \
             self.mirrors.snapshot(cx.run().id.repo, base.commit.as_str()).await.map_err(git_error)\n}\n",
            [64, 51, 51],
        ),
        ("计数器的值会在每次点击按钮时增加。请注意，组件的状态必须保持一致。", [26, 24, 26]),
    ];

    #[test]
    fn token_estimate_is_close_to_counts_of_public_tokenizers() {
        for (text, counted) in COUNTED {
            let (most, estimate) = (counted.iter().max().unwrap(), estimate_tokens(text));
            assert!(
                estimate * 100 >= most * 85 && estimate * 100 <= most * 135,
                "{estimate} of {counted:?}: {text}"
            );
        }
    }

    #[test]
    fn token_estimate_grows_with_text_length() {
        for text in ["a", "Z", "7", " ", "\n", "-", "é", "語", "🦀"] {
            let many = text.repeat(10_000);
            assert!(estimate_tokens(&many) >= 10_000 / 32, "{text:?}: {}", estimate_tokens(&many));
        }
        assert_eq!(estimate_tokens(""), 0);
        assert!(estimate_tokens("one two") <= estimate_tokens("one two three"));
    }
}
