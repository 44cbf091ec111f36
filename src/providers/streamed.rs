//! Answers that arrive a line at a time: what the open APIs have in common. Reading stops at the answer's bound, at the
//! call's deadline and when the stream stalls; what a line means is for the back end to say.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;

use super::{Call, CallErrorKind, Usage, answer, http::Fault};
use crate::limits;

/// The body of an answer, by lines.
pub(super) struct Lines {
    response: Response,
    unread: Vec<u8>,
    total: usize,
    most_silence: Duration,
}

impl Lines {
    pub(super) fn of(response: Response, call: &Call) -> Self {
        // The first word may take as long as the whole call: a prompt is read before it is answered.
        let most_silence = limits::MODEL_IDLE.min(call.deadline / 2);
        Self { response, unread: Vec::new(), total: 0, most_silence }
    }

    /// The next line without its end; `None` when the body is over.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Fault> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.unread[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=searched + at).collect();
                return Ok(Some(text(&line)));
            }
            searched = self.unread.len();
            let Some(chunk) = self.chunk().await? else {
                let rest = std::mem::take(&mut self.unread);
                return Ok((!rest.is_empty()).then(|| text(&rest)));
            };
            self.total += chunk.len();
            if self.total > limits::MODEL_ANSWER_BYTES {
                return Err(Fault::new(CallErrorKind::InvalidOutput, "the answer is too long to be one"));
            }
            self.unread.extend_from_slice(&chunk);
        }
    }

    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, Fault> {
        if self.total == 0 {
            return Ok(self.response.chunk().await?);
        }
        match tokio::time::timeout(self.most_silence, self.response.chunk()).await {
            Ok(chunk) => Ok(chunk?),
            Err(_) => {
                let kind = CallErrorKind::Timeout { idle: true, elapsed: Duration::ZERO };
                Err(Fault::new(kind, "the answer began and stalled"))
            }
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end_matches(['\r', '\n']).to_owned()
}

/// What the lines said so far. It is kept where a stream breaks off, for what it cost.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) text: String,
    /// The model's id as the answer gave it.
    pub(super) served: Option<String>,
    /// Why it ended, in the API's word.
    pub(super) ended: Option<String>,
    /// Tokens of the prompt, those from a cache included.
    pub(super) input_tokens: u64,
    pub(super) cache_read_tokens: u64,
    pub(super) output_tokens: u64,
}

impl Answer {
    pub(super) fn count(&self, usage: &mut Usage) {
        usage.served.clone_from(&self.served);
        usage.cache_read_tokens = self.cache_read_tokens;
        usage.input_tokens = self.input_tokens.saturating_sub(self.cache_read_tokens);
        usage.output_tokens = self.output_tokens;
    }

    /// By the model that was asked?
    pub(super) fn check_served(&self, call: &Call) -> Result<(), Fault> {
        answer::check_served(call, self.served.as_deref())
    }

    /// The text, and the value where the call has a schema: not blank, and fitting.
    pub(super) fn fit(self, call: &Call) -> Result<(String, Option<Value>), Fault> {
        let fits = answer::fit(call, without_thoughts(&self.text).to_owned(), None);
        fits.map_err(|why| Fault(CallErrorKind::InvalidOutput, why))
    }
}

/// Open models think aloud before the answer where the server does not take it out.
fn without_thoughts(text: &str) -> &str {
    let thinking = text.trim_start().strip_prefix("<think>");
    thinking.and_then(|thoughts| thoughts.split_once("</think>")).map_or(text, |(_, rest)| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::without_thoughts;

    #[test]
    fn thoughts_before_the_answer_are_none_of_it() {
        assert_eq!(without_thoughts("<think>APPROVED?</think>\n\nREVISE"), "REVISE");
        for whole in ["REVISE", "<think>never ends", "see <think>a</think>"] {
            assert_eq!(without_thoughts(whole), whole);
        }
    }
}
