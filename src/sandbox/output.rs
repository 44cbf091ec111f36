//! What a run printed: the beginning and the end of each output.

use crate::proc::OutputStream;

/// The beginning and the end of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TruncatedOutput {
    pub head: Vec<u8>,
    /// What followed, or the end of it.
    pub tail: Vec<u8>,
    /// Bytes between the two that are not kept.
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

    /// As one text, with a line that says so where something is left out.
    pub fn text(&self) -> String {
        let [head, tail] = [&self.head, &self.tail].map(|bytes| String::from_utf8_lossy(bytes));
        match self.left_out {
            0 => String::from_utf8_lossy(&[self.head.as_slice(), &self.tail].concat()).into_owned(),
            bytes => format!("{head}\n… {bytes} bytes left out …\n{tail}"),
        }
    }
}

/// Both outputs of a run, as they come.
pub(super) struct CapturedOutputs {
    most: usize,
    out: TruncatedOutput,
    err: TruncatedOutput,
    /// What says on standard error that the command follows.
    mark: Vec<u8>,
    /// Standard error before that.
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

    /// Did it come to the command?
    pub(super) fn has_begun(&self) -> bool {
        self.begun && !self.err.head.starts_with(self.nonce.as_bytes())
    }

    /// Why it did not, and whether that is because there is no such program.
    pub(super) fn refusal_reason(self) -> (String, bool) {
        let said = if self.begun { self.err.head } else { self.before };
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        match said.strip_prefix(&self.nonce) {
            None => (said, false),
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

    fn printed(most: usize, pieces: &[&str]) -> CapturedOutputs {
        let mut outputs = CapturedOutputs::new(most, "word".into());
        pieces.iter().for_each(|piece| outputs.append(OutputStream::Err, piece.as_bytes()));
        outputs
    }

    #[test]
    fn what_follows_the_word_is_the_commands() {
        let outputs = printed(8, &["bwrap: a warning\nwor", "dok", "\nit ", "said a lot in the end"]);
        assert!(outputs.has_begun());
        let (_, said) = outputs.into_outputs();
        assert_eq!(said.text(), "it said \n… 8 bytes left out …\n the end");
    }

    #[test]
    fn only_who_knows_the_word_can_say_that_nothing_began() {
        assert!(printed(99, &["wordok\n", "no lies\n"]).has_begun());
        for (pieces, why, missing) in [
            (&["bwrap: no"][..], "bwrap: no", false),
            (&["wordno rules"], "rules", false),
            (&["wordok\n", "wordmissing sh"], "sh", true),
        ] {
            let outputs = printed(99, pieces);
            assert!(!outputs.has_begun());
            assert_eq!(outputs.refusal_reason(), (why.to_owned(), missing));
        }
    }
}
