//! Parts of streaming that all APIs share. Reading stops at the size limit, at the call's deadline, or when the stream
//! stalls. Each back end interprets its own events and lines.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use reqwest::Response;
use serde_json::Value;
use sse_stream::SseByteStream;
use tokio_util::{
    codec::{Decoder, LinesCodec},
    sync::CancellationToken,
};

use super::{
    CallErrorKind, Metering, ModelCall, Usage, answer_checks, http::CallFault, native_tools::NativeToolCalls,
};
use crate::{clock::SharedClock, limits};

/// Runs an exchange with a service. The exchange is stopped when the call's deadline passes or the call is cancelled.
pub(super) async fn run_bounded<T>(
    exchange: impl Future<Output = Result<T, CallFault>>,
    call: &ModelCall,
    cancel: &CancellationToken,
    clock: &SharedClock,
) -> Result<T, CallFault> {
    tokio::select! {
        ended = exchange => ended,
        () = cancel.cancelled() => Err(CallFault::new(CallErrorKind::Cancelled, "cancelled")),
        () = clock.sleep(call.deadline) => Err(timeout_fault(false, "there was no complete answer in time")),
    }
}

/// Builds a timeout fault, in which the caller fills in `elapsed`.
fn timeout_fault(idle: bool, why: &str) -> CallFault {
    CallFault::new(CallErrorKind::Timeout { idle, elapsed: Duration::ZERO }, why)
}

type ByteChunks = BoxStream<'static, Result<Bytes, CallFault>>;

/// Streams the body. Fails if the body is too long, or if the stream stalls after the first chunk.
fn body_chunks(response: Response, call: &ModelCall, clock: &SharedClock) -> ByteChunks {
    let (clock, most_silence) = (Arc::clone(clock), limits::MODEL_IDLE.min(call.deadline / 2));
    let next = move |(mut response, total): (Response, usize)| {
        let clock = Arc::clone(&clock);
        async move {
            let chunk = tokio::select! {
                chunk = response.chunk() => chunk?,
                // The first chunk may take as long as the whole call, since the model reads the prompt first.
                () = clock.sleep(most_silence), if total > 0 => return Err(timeout_fault(true, "the answer started and stalled")),
            };
            let Some(chunk) = chunk else { return Ok(None) };
            let total = total + chunk.len();
            if total > limits::MODEL_ANSWER_BYTES {
                return Err(CallFault::new(CallErrorKind::InvalidOutput, "the answer is too long"));
            }
            Ok(Some((chunk, (response, total))))
        }
    };
    stream::try_unfold((response, 0), next).boxed()
}

pub(super) struct SseEvents(SseByteStream<ByteChunks>);

impl SseEvents {
    pub(super) fn new(response: Response, call: &ModelCall, clock: &SharedClock) -> Self {
        Self::from_chunks(body_chunks(response, call, clock))
    }

    /// Builds the event stream. Appends an empty line to the body, because some services do not terminate their last
    /// event.
    fn from_chunks(pieces: ByteChunks) -> Self {
        let end = stream::once(async { Ok(Bytes::from_static(b"\n\n")) });
        Self(SseByteStream::new(pieces.chain(end).boxed()))
    }

    /// Returns the data of the next event that has data; `None` at the end of the body.
    pub(super) async fn next_event(&mut self) -> Result<Option<String>, CallFault> {
        while let Some(event) = self.0.next().await {
            let event = event.map_err(|error| match error {
                sse_stream::Error::Body(cause) => match cause.downcast() {
                    Ok(fault) => *fault,
                    Err(cause) => CallFault(CallErrorKind::Unavailable, cause.to_string()),
                },
                error => CallFault(CallErrorKind::InvalidOutput, format!("an event cannot be read: {error}")),
            })?;
            if event.data.is_some() {
                return Ok(event.data);
            }
        }
        Ok(None)
    }
}

pub(super) struct ResponseLines {
    pieces: ByteChunks,
    buffer: BytesMut,
    codec: LinesCodec,
}

impl ResponseLines {
    pub(super) fn new(response: Response, call: &ModelCall, clock: &SharedClock) -> Self {
        let (buffer, codec) = (BytesMut::new(), LinesCodec::new());
        Self { pieces: body_chunks(response, call, clock), buffer, codec }
    }

    /// Returns the next line without its line ending; `None` at the end of the body.
    pub(super) async fn next_line(&mut self) -> Result<Option<String>, CallFault> {
        let unread =
            |error| CallFault(CallErrorKind::InvalidOutput, format!("a line cannot be read: {error}"));
        loop {
            if let Some(line) = self.codec.decode(&mut self.buffer).map_err(unread)? {
                return Ok(Some(line));
            }
            match self.pieces.next().await {
                Some(piece) => self.buffer.extend_from_slice(&piece?),
                None => return self.codec.decode_eof(&mut self.buffer).map_err(unread),
            }
        }
    }
}

/// The part of a response received so far. It is kept even if the stream breaks off, so that the cost can be estimated.
#[derive(Default)]
pub(super) struct StreamedAnswer {
    pub(super) text: String,
    /// The model's thoughts, if the service sends them separately.
    pub(super) thoughts: String,
    pub(super) calls: NativeToolCalls,
    /// Model id reported in the response.
    pub(super) served: Option<String>,
    /// Stop reason, in the API's own wording.
    pub(super) ended: Option<String>,
    /// Prompt tokens, including cached ones.
    pub(super) input_tokens: u64,
    pub(super) cache_read_tokens: u64,
    pub(super) output_tokens: u64,
    /// Whether the token counts are final. Some services also send interim counts.
    pub(super) counted: bool,
}

impl StreamedAnswer {
    /// Records the serving model. If the stream names several models, a model that was not requested takes precedence,
    /// so that the mismatch is detected.
    pub(super) fn record_served(&mut self, call: &ModelCall, served: &str) {
        if self.served.as_deref().is_none_or(|known| call.may_be_served_by(known)) {
            self.served = Some(served.to_owned());
        }
    }

    pub(super) fn record_usage(&self, usage: &mut Usage) {
        usage.served.clone_from(&self.served);
        usage.cache_read_tokens = self.cache_read_tokens;
        usage.input_tokens = self.input_tokens.saturating_sub(self.cache_read_tokens);
        usage.output_tokens = self.output_tokens;
        if self.counted && self.ended.is_some() {
            usage.metered = Metering::Known;
        } else {
            usage.received = (self.text.len() + self.thoughts.len()) as u64;
        }
    }

    pub(super) fn check_served(&self, call: &ModelCall) -> Result<(), CallFault> {
        answer_checks::check_served(call, self.served.as_deref())
    }

    /// Returns all thoughts: those that the service sent separately, and those split from the text.
    pub(super) fn thoughts(&self) -> String {
        format!("{}{}", self.thoughts, split_thoughts(&self.text).0).trim().to_owned()
    }

    /// Validates the response and returns its text. If the call has a schema, also returns the value.
    pub(super) fn validate(self, call: &ModelCall) -> Result<(String, Option<Value>), CallFault> {
        let text = self.calls.to_text(call).unwrap_or_else(|| split_thoughts(&self.text).1.to_owned());
        answer_checks::validate_answer(call, text, None)
    }
}

/// Splits text into thoughts and the actual response. This is needed for open models whose server does not separate the
/// two. A model without thinking tags starts its thoughts with a word such as `Thought:`.
fn split_thoughts(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    if let Some((thoughts, rest)) = text.strip_prefix("<think>").and_then(|text| text.split_once("</think>"))
    {
        return (thoughts, rest.trim_start());
    }
    let begins = |line: &str| ["# ", "{", "```"].iter().any(|sign| line.starts_with(sign));
    let worded = ["Thought:", "Reasoning:", "Think:"].iter().any(|word| text.starts_with(word));
    let answer = text.match_indices('\n').map(|(at, _)| at + 1).find(|at| worded && begins(&text[*at..]));
    answer.map_or(("", text), |at| text.split_at(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(body: &str, size: usize) -> ByteChunks {
        let pieces: Vec<_> =
            body.as_bytes().chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces).boxed()
    }

    #[tokio::test]
    async fn stream_events_and_lines_do_not_depend_on_chunk_size() {
        let body = "\u{feff}data: für\r\rid: 1\n\n: a comment\r\nevent: e\r\ndata:alle\r\ndata: da\r\n\r\ndata: the rest";
        for size in 1..body.len() {
            let mut events = SseEvents::from_chunks(cut(body, size));
            for expected in [Some("für"), Some("alle\nda"), Some("the rest"), None, None] {
                assert_eq!(events.next_event().await.unwrap().as_deref(), expected, "{size}");
            }
            let (buffer, codec) = (BytesMut::new(), LinesCodec::new());
            let mut lines = ResponseLines { pieces: cut("für\r\n\nalle\nthe rest", size), buffer, codec };
            for expected in [Some("für"), Some(""), Some("alle"), Some("the rest"), None, None] {
                assert_eq!(lines.next_line().await.unwrap().as_deref(), expected, "{size}");
            }
        }
    }

    #[tokio::test]
    async fn error_in_the_middle_of_a_stream_keeps_its_error_kind() {
        let broken = || stream::iter([Err(timeout_fault(true, "it stalled"))]).boxed();
        let error = SseEvents::from_chunks(broken()).next_event().await.unwrap_err();
        assert_eq!(error.0, CallErrorKind::Timeout { idle: true, elapsed: Duration::ZERO });
    }

    #[test]
    fn thoughts_of_the_model_are_separated_from_its_answer() {
        for (text, thoughts, answer) in [
            ("<think>\nhm\n</think>\n\n# 1", "hm", "# 1"),
            ("Thought: a file\nis missing\n{\"a\": 1}", "Thought: a file\nis missing", "{\"a\": 1}"),
            ("Reasoning: so\n# 1 - Title\n", "Reasoning: so", "# 1 - Title\n"),
            ("Thought: nothing follows", "", "Thought: nothing follows"),
            ("# 1\nThought: of it\n{}", "", "# 1\nThought: of it\n{}"),
            ("<think>without end", "", "<think>without end"),
            ("Say <think> and </think>.", "", "Say <think> and </think>."),
        ] {
            assert_eq!((split_thoughts(text).0.trim(), split_thoughts(text).1), (thoughts, answer), "{text}");
        }
    }
}
