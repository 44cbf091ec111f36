//! An answer that came by another way than the first one tried, in one plain line.

use super::held::provider;

/// How an answer was had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detour {
    /// Who answered: `anthropic`
    pub by: String,
    /// Who had been asked before, in order, and why that was no answer.
    pub before: Vec<(String, Trouble)>,
}

/// What kept a provider from answering, as far as readers care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    Busy,
    UsedUp,
    /// The key or login was not accepted.
    Refused,
    Slow,
    /// The answer was none that could be used.
    Unusable,
    Failed,
}

impl Trouble {
    fn words(self) -> &'static str {
        match self {
            Self::Busy => "was busy",
            Self::UsedUp => "is used up",
            Self::Refused => "was not accepted",
            Self::Slow => "took too long",
            Self::Unusable => "gave no usable answer",
            Self::Failed => "failed",
        }
    }
}

impl Detour {
    fn clause(&self) -> String {
        let same = self.before.iter().all(|(provider, _)| *provider == self.by);
        match self.before.as_slice() {
            [(_, why)] if same => {
                format!("one of {}'s keys {}, another answered", provider(&self.by), why.words())
            }
            keys if same => {
                format!("{} of {}'s keys had no answer, another did", keys.len(), provider(&self.by))
            }
            [(first, why)] if first == "claude" && self.by == "anthropic" => {
                format!("Claude's program {}, its API answered", why.words())
            }
            tried => {
                let tried: Vec<_> =
                    tried.iter().map(|(by, why)| format!("{} {}", provider(by), why.words())).collect();
                format!("{}, {} answered", tried.join(", "), provider(&self.by))
            }
        }
    }
}

/// One line for all of them; none where every answer came at once.
pub fn detours(all: &[Detour]) -> Option<String> {
    let clauses: Vec<_> = all.iter().map(Detour::clause).collect();
    (!clauses.is_empty()).then(|| format!("{}.", super::capital(&clauses.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(by: &str, before: &[(&str, Trouble)]) -> String {
        let before = before.iter().map(|(by, why)| ((*by).to_owned(), *why)).collect();
        detours(&[Detour { by: by.into(), before }]).unwrap()
    }

    #[test]
    fn each_way_round_is_told_in_a_clause() {
        let gemini = ("gemini", Trouble::UsedUp);
        assert_eq!(told("gemini", &[gemini]), "One of Gemini's keys is used up, another answered.");
        assert_eq!(told("gemini", &[gemini, gemini]), "2 of Gemini's keys had no answer, another did.");
        assert_eq!(
            told("anthropic", &[("claude", Trouble::Slow)]),
            "Claude's program took too long, its API answered."
        );
        assert_eq!(told("ollama", &[gemini]), "Gemini is used up, Ollama answered.");
        assert_eq!(detours(&[]), None);
    }
}
