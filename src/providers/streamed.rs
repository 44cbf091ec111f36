//! Answers that arrive a line at a time: what the APIs that stream have in common. Reading stops at the answer's bound, at
//! the call's deadline and when the stream stalls; what a line means is for the back end to say.

use std::{future::Future, time::Duration};

use reqwest::Response;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Call, CallErrorKind, Metered, Usage, answer, http::Fault, models};
use crate::{clock::SharedClock, limits};

/// An exchange that lasts no longer than its call may, and ends when nobody wants it any more.
pub(super) async fn bounded<T>(
    exchange: impl Future<Output = Result<T, Fault>>,
    call: &Call,
    cancel: &CancellationToken,
    clock: &SharedClock,
) -> Result<T, Fault> {
    tokio::select! {
        ended = exchange => ended,
        () = cancel.cancelled() => Err(Fault::new(CallErrorKind::Cancelled, "cancelled")),
        () = clock.sleep(call.deadline) => Err(late(false, "there was no whole answer in time")),
    }
}

/// How long it took is filled in where it is known.
fn late(idle: bool, why: &str) -> Fault {
    Fault::new(CallErrorKind::Timeout { idle, elapsed: Duration::ZERO }, why)
}

/// The body of an answer, by lines.
pub(super) struct Lines<'a> {
    response: Response,
    clock: &'a SharedClock,
    most_silence: Duration,
    heard: Heard,
}

impl<'a> Lines<'a> {
    pub(super) fn of(response: Response, call: &Call, clock: &'a SharedClock) -> Self {
        let most_silence = limits::MODEL_IDLE.min(call.deadline / 2);
        Self { response, clock, most_silence, heard: Heard::default() }
    }

    /// The next line without its end; `None` when the body is over.
    pub(super) async fn next(&mut self) -> Result<Option<String>, Fault> {
        loop {
            if let Some(line) = self.heard.line() {
                return Ok(Some(line));
            }
            match self.chunk().await? {
                Some(chunk) => self.heard.hear(&chunk)?,
                None => return Ok(self.heard.rest()),
            }
        }
    }

    async fn chunk(&mut self) -> Result<Option<bytes::Bytes>, Fault> {
        // The first word may take as long as the whole call: a prompt is read before it is answered.
        let begun = self.heard.total > 0;
        tokio::select! {
            chunk = self.response.chunk() => Ok(chunk?),
            () = self.clock.sleep(self.most_silence), if begun => Err(late(true, "the answer began and stalled")),
        }
    }
}

/// Bytes as they come, which may begin and end anywhere.
#[derive(Default)]
struct Heard {
    bytes: Vec<u8>,
    /// Those before it were read.
    read: usize,
    /// Those before it hold no line's end that was not read.
    searched: usize,
    total: usize,
}

impl Heard {
    fn hear(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.total += bytes.len();
        if self.total > limits::MODEL_ANSWER_BYTES {
            return Err(Fault::new(CallErrorKind::InvalidOutput, "the answer is too long to be one"));
        }
        // Once a piece and not once a line: there may be as many lines as bytes.
        self.bytes.drain(..self.read);
        self.searched -= self.read;
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self) -> Option<String> {
        let end = self.bytes[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end else {
            self.searched = self.bytes.len();
            return None;
        };
        let next = self.searched + end + 1;
        let line = text(&self.bytes[self.read..next]);
        (self.read, self.searched) = (next, next);
        Some(line)
    }

    /// What comes after the last line's end.
    fn rest(&mut self) -> Option<String> {
        let rest = std::mem::take(self);
        let rest = &rest.bytes[rest.read..];
        (!rest.is_empty()).then(|| text(rest))
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
    /// Some services count as they go, so this is all only where the answer came to its end.
    pub(super) counted: bool,
}

impl Answer {
    /// Another piece of it says who serves. Where two were named, whoever was not asked for is remembered.
    pub(super) fn serves(&mut self, call: &Call, served: &str) {
        if self.served.as_deref().is_none_or(|known| models::is_same(&call.model, known)) {
            self.served = Some(served.to_owned());
        }
    }

    pub(super) fn count(&self, usage: &mut Usage) {
        usage.served.clone_from(&self.served);
        usage.cache_read_tokens = self.cache_read_tokens;
        usage.input_tokens = self.input_tokens.saturating_sub(self.cache_read_tokens);
        usage.output_tokens = self.output_tokens;
        if self.counted && self.ended.is_some() {
            usage.metered = Metered::Known;
        }
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
    use super::{Heard, without_thoughts};

    #[test]
    fn lines_are_the_same_however_they_are_cut_into_pieces() {
        let body = "data: für\r\n\n: a comment\ndata: alle\nthe rest";
        for size in 1..body.len() {
            let (mut heard, mut lines) = (Heard::default(), Vec::new());
            for piece in body.as_bytes().chunks(size) {
                heard.hear(piece).unwrap();
                lines.extend(std::iter::from_fn(|| heard.line()));
            }
            lines.extend(heard.rest());
            assert_eq!(lines, ["data: für", "", ": a comment", "data: alle", "the rest"], "{size}");
            assert_eq!(
                (heard.line(), heard.rest()),
                (None, None),
                "whoever asks again is told again that it is over"
            );
        }
        // As many lines as bytes.
        let mut heard = Heard::default();
        heard.hear(&vec![b'\n'; 1 << 20]).unwrap();
        assert_eq!(std::iter::from_fn(|| heard.line()).count(), 1 << 20);
        let endless = vec![b'x'; crate::limits::MODEL_ANSWER_BYTES + 1];
        assert!(Heard::default().hear(&endless).is_err());
    }

    #[test]
    fn thoughts_before_the_answer_are_none_of_it() {
        assert_eq!(without_thoughts("<think>APPROVED?</think>\n\nREVISE"), "REVISE");
        for whole in ["REVISE", "<think>never ends", "see <think>a</think>"] {
            assert_eq!(without_thoughts(whole), whole);
        }
    }
}
