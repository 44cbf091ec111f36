//! How many tokens a text is for a model: an estimate that leans to too many.
//!
//! The tokenizers of the models that are asked by default (Claude's and Gemini's) are not public, and a local model has
//! whatever its maker chose; OpenAI's tables are public and would make the program five megabytes larger to be exact for
//! a provider that nobody has by default. So what is counted is what all vocabularies of today cut a text into: parts of
//! words, groups of three digits, runs of punctuation, line breaks with their indentation, and characters beyond ASCII.
//!
//! The weights were fitted to the densest of four public vocabularies, the one that Anthropic published for its earlier
//! models, on 6,292 files (27 kinds of code, data, Markdown, Chinese and Japanese prose, minified scripts). Of it the
//! estimate is +2 % over all files together, and of a file between −9 % and +13 % (first and last percentile; −30 % and
//! +48 % at the very worst, both of a few hundred bytes). Of OpenAI's o200k, cl100k and Llama 3's it is 17 % too high over
//! all, and below the truth by more than 3 % for one file of a hundred.

use std::iter::Peekable;

/// In hundredths of a token.
const WORD: usize = 115;
const DIGITS: usize = 115;
const PUNCTUATION: usize = 115;
const LINE: usize = 80;
const CHARACTER: usize = 105;
/// Beyond the first plane: emoji, rare scripts.
const RARE_CHARACTER: usize = 320;

/// The estimate for a text.
pub(crate) fn estimate(text: &str) -> usize {
    let mut sum = 0;
    let mut rest = text.chars().peekable();
    while let Some(first) = rest.next() {
        sum += match first {
            'a'..='z' | 'A'..='Z' => WORD + 100 * rest.word(first).saturating_sub(8) / 5,
            '0'..='9' => DIGITS * rest.run(|c| c.is_ascii_digit()).div_ceil(3),
            ' ' | '\t' | '\r' | '\n' => rest.blank(first),
            c if c.is_ascii() => PUNCTUATION + 60 * ((rest.run(is_punctuation) - 1) / 4),
            c if u32::from(c) < 0x1_0000 => CHARACTER,
            _ => RARE_CHARACTER,
        };
    }
    sum.div_ceil(100)
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphanumeric() && !is_blank(c)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Reading on behind a character that was taken.
trait Runs {
    /// How many there are in a row, with the one before.
    fn run(&mut self, belongs: impl Fn(char) -> bool) -> usize;
    /// Letters up to a change from small to large, with the one before.
    fn word(&mut self, first: char) -> usize;
    /// The weight of white space: a blank before a word is part of the word.
    fn blank(&mut self, first: char) -> usize;
}

impl<I: Iterator<Item = char>> Runs for Peekable<I> {
    fn run(&mut self, belongs: impl Fn(char) -> bool) -> usize {
        let mut length = 1;
        while self.next_if(|c| belongs(*c)).is_some() {
            length += 1;
        }
        length
    }

    fn word(&mut self, first: char) -> usize {
        let (mut length, mut before) = (1, first);
        while let Some(next) = self
            .next_if(|c| c.is_ascii_alphabetic() && !(c.is_ascii_uppercase() && before.is_ascii_lowercase()))
        {
            (length, before) = (length + 1, next);
        }
        length
    }

    fn blank(&mut self, first: char) -> usize {
        let (mut length, mut breaks) = (1, first == '\n');
        while let Some(next) = self.next_if(|c| is_blank(*c)) {
            length += 1;
            breaks |= next == '\n';
        }
        if breaks || length > 1 { LINE + 100 * (length / 32) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Claude's published vocabulary, o200k and Llama 3's make of these.
    const COUNTED: &[(&str, [usize; 3])] = &[
        (
            "pub async fn snapshot(&self, cx: &Cx, base: &Base) -> Result<Snapshot, StepError> {\n    \
             self.mirrors.snapshot(cx.run().id.repo, base.commit.as_str()).await.map_err(git_error)\n}\n",
            [64, 51, 51],
        ),
        (
            "def read_config(path: str, *, strict: bool = True) -> dict[str, Any]:\n    \"\"\"Reads the settings of a \
             file.\"\"\"\n    with open(path, encoding=\"utf-8\") as file:\n        return parse(file.read(), strict=strict)\n",
            [60, 53, 54],
        ),
        (
            "## Requirements\n\n1. An empty file ends the program with exit status 2.\n2. What is wrong is said on standard \
             error, in one sentence.\n\n| ID | Scenario |\n|---|---|\n| 010 | an empty file (REQ-1) |\n",
            [60, 55, 55],
        ),
        ("计数器的值会在每次点击按钮时增加。请注意，组件的状态必须保持一致。", [26, 24, 26]),
        (
            "!function(e,t){\"object\"==typeof exports?t(exports):t(e.x={})}(this,function(e){var n=1024,r=/[a-z]+/g;\
             e.f=function(t){return t.replace(r,\"$1\")+n}});",
            [67, 53, 54],
        ),
        (
            "{\"name\": \"countersign\", \"version\": \"0.1.0\", \"sizes\": [1024, 2048, 65536], \"at\": \
             \"2026-11-21T23:47:38Z\"}\n",
            [46, 51, 51],
        ),
    ];

    #[test]
    fn near_what_public_vocabularies_count_and_rather_above() {
        for (text, counted) in COUNTED {
            let (most, estimate) = (counted.iter().max().unwrap(), estimate(text));
            assert!(
                estimate * 100 >= most * 85 && estimate * 100 <= most * 135,
                "{estimate} of {counted:?}: {text}"
            );
        }
    }

    #[test]
    fn nothing_long_is_cheap() {
        for text in ["a", "Z", "7", " ", "\n", "-", "é", "語", "🦀"] {
            let many = text.repeat(10_000);
            assert!(estimate(&many) >= 10_000 / 32, "{text:?}: {}", estimate(&many));
        }
        assert_eq!(estimate(""), 0);
        assert!(estimate("one two") <= estimate("one two three"));
    }
}
