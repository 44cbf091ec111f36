//! Captures the beginning and the end of a run's stdout and stderr.

use std::sync::LazyLock;

use regex::Regex;

use crate::proc::OutputStream;

/// The beginning and the end of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TruncatedOutput {
    pub head: Vec<u8>,
    /// Last bytes of the output, not including the head.
    pub tail: Vec<u8>,
    /// Number of bytes dropped between head and tail.
    pub left_out: u64,
}

impl TruncatedOutput {
    fn append(&mut self, piece: &[u8], most: usize) {
        let (head, rest) = piece.split_at(piece.len().min(most - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * most {
            self.shorten(most);
        }
    }

    fn shorten(&mut self, most: usize) {
        let extra = self.tail.len().saturating_sub(most);
        self.tail.drain(..extra);
        self.left_out += extra as u64;
    }

    /// Joins head and tail, without terminal codes. If bytes were dropped, a line in between states their number.
    pub fn text(&self) -> String {
        let [head, tail] = [&self.head, &self.tail].map(|bytes| String::from_utf8_lossy(bytes));
        strip_terminal_codes(&match self.left_out {
            0 => String::from_utf8_lossy(&[self.head.as_slice(), &self.tail].concat()).into_owned(),
            bytes => format!("{head}\n… {bytes} bytes left out …\n{tail}"),
        })
    }
}

/// Removes colours, cursor movements and links from a program's output.
pub fn strip_terminal_codes(text: &str) -> String {
    static CODE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("\u{1b}(\\[[0-?]*[ -/]*[@-~]|\\][^\u{7}\u{1b}]*(\u{7}|\u{1b}\\\\)?)")
            .expect("the pattern is valid")
    });
    CODE.replace_all(text, "").into_owned()
}

pub(super) struct CapturedOutputs {
    most: usize,
    out: TruncatedOutput,
    err: TruncatedOutput,
    /// Marker that is printed to stderr before the command's own output.
    mark: Vec<u8>,
    /// Stderr output before the marker.
    before: Vec<u8>,
    begun: bool,
    nonce: String,
}

impl CapturedOutputs {
    pub(super) fn new(most: usize, nonce: String) -> Self {
        let mark = format!("{nonce}ok\n").into_bytes();
        Self {
            most,
            out: TruncatedOutput::default(),
            err: TruncatedOutput::default(),
            mark,
            before: Vec::new(),
            begun: false,
            nonce,
        }
    }

    pub(super) fn append(&mut self, stream: OutputStream, piece: &[u8]) {
        let rest;
        let piece = match stream {
            OutputStream::Err if !self.begun => {
                self.before.extend_from_slice(piece);
                let mark = &self.mark;
                let Some(at) = self.before.windows(mark.len()).position(|window| window == mark) else {
                    return;
                };
                self.begun = true;
                rest = self.before.split_off(at + mark.len());
                rest.as_slice()
            }
            _ => piece,
        };
        match stream {
            OutputStream::Out => self.out.append(piece, self.most),
            OutputStream::Err => self.err.append(piece, self.most),
        }
    }

    /// Whether the command itself was executed, that is, the marker was printed.
    pub(super) fn has_begun(&self) -> bool {
        self.begun && !self.err.head.starts_with(self.nonce.as_bytes())
    }

    /// Returns the reason why the command was not executed, and whether the reason is a missing program.
    pub(super) fn refusal_reason(self) -> (String, bool) {
        let text = if self.begun { self.err.head } else { self.before };
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        match text.strip_prefix(&self.nonce) {
            None => (text, false),
            Some(ours) => {
                let (what, why) = ours.split_once(' ').unwrap_or(("no", ours));
                (why.to_owned(), what == "missing")
            }
        }
    }

    pub(super) fn into_outputs(mut self) -> (TruncatedOutput, TruncatedOutput) {
        self.out.shorten(self.most);
        self.err.shorten(self.most);
        (self.out, self.err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(most: usize, pieces: &[&str]) -> CapturedOutputs {
        let mut outputs = CapturedOutputs::new(most, "word".into());
        pieces.iter().for_each(|piece| outputs.append(OutputStream::Err, piece.as_bytes()));
        outputs
    }

    #[test]
    fn stderr_after_the_start_marker_is_attributed_to_the_sandboxed_command() {
        let outputs = capture(8, &["bwrap: a warning\nwor", "dok", "\nit ", "said a lot in the end"]);
        assert!(outputs.has_begun());
        let (_, stderr) = outputs.into_outputs();
        assert_eq!(stderr.text(), "it said \n… 8 bytes left out …\n the end");
    }

    #[test]
    fn sandbox_start_failure_is_recognized_only_by_messages_with_the_nonce() {
        assert!(capture(99, &["wordok\n", "no lies\n"]).has_begun());
        for (pieces, why, missing) in [
            (&["bwrap: no"][..], "bwrap: no", false),
            (&["wordno rules"], "rules", false),
            (&["wordok\n", "wordmissing sh"], "sh", true),
        ] {
            let outputs = capture(99, pieces);
            assert!(!outputs.has_begun());
            assert_eq!(outputs.refusal_reason(), (why.to_owned(), missing));
        }
    }
}
