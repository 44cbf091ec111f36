//! Readers of a child's outputs. They return either all of stdout up to a limit and the end of stderr, or chunks of
//! both as they arrive.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::group::KillReason;
use crate::limits;

pub(super) async fn read_all(
    stream: Option<impl AsyncRead + Unpin>,
    limit: usize,
    mut line: Option<impl FnMut(&[u8])>,
) -> Result<Vec<u8>, KillReason> {
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    let mut line_start = 0;
    loop {
        let seen = all.len();
        if stream.read_buf(&mut all).await? == 0 {
            break;
        }
        if all.len() > limit {
            return Err(KillReason::TooLong);
        }
        let Some(line) = &mut line else { continue };
        for at in seen..all.len() {
            if all[at] == b'\n' {
                line(&all[line_start..at]);
                line_start = at + 1;
            }
        }
    }
    if let Some(line) = &mut line
        && line_start < all.len()
    {
        line(&all[line_start..]);
    }
    Ok(all)
}

/// One of a child's two outputs, stdout or stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Out,
    Err,
}

/// Passes chunks of both outputs to `sink` as they arrive. Ends when both outputs have ended, and fails when they
/// exceed `limit` bytes together.
pub(super) async fn read_chunks(
    out: Option<impl AsyncRead + Unpin>,
    err: Option<impl AsyncRead + Unpin>,
    limit: usize,
    mut sink: impl FnMut(OutputStream, &[u8]),
) -> Result<(), KillReason> {
    let (Some(mut out), Some(mut err)) = (out, err) else { return Ok(()) };
    let (mut from_out, mut from_err) = (BytesMut::with_capacity(PIECE), BytesMut::with_capacity(PIECE));
    let (mut more_out, mut more_err, mut seen) = (true, true, 0);
    while more_out || more_err {
        let (stream, piece, more) = tokio::select! {
            read = out.read_buf(&mut from_out), if more_out => (OutputStream::Out, &mut from_out, (read?, &mut more_out)),
            read = err.read_buf(&mut from_err), if more_err => (OutputStream::Err, &mut from_err, (read?, &mut more_err)),
        };
        *more.1 = more.0 != 0;
        seen += piece.len();
        sink(stream, piece);
        piece.clear();
        if seen > limit {
            return Err(KillReason::TooLong);
        }
    }
    Ok(())
}

/// Number of bytes to read at a time, which is the capacity of a pipe.
const PIECE: usize = 64 * 1024;

pub(super) async fn read_tail(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, KillReason> {
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let mut tail = Vec::new();
    while stream.read_buf(&mut tail).await? != 0 {
        if tail.len() > 2 * limits::CHILD_ERROR_BYTES {
            tail.drain(..tail.len() - limits::CHILD_ERROR_BYTES);
        }
    }
    let extra = tail.len().saturating_sub(limits::CHILD_ERROR_BYTES);
    tail.drain(..extra);
    Ok(tail)
}
