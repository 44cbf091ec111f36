//! A child's two outputs: the one in full up to a limit, of the other its end.

use tokio::io::{AsyncRead, AsyncReadExt};

use super::group::Ended;
use crate::limits;

pub(super) async fn read_all(
    stream: Option<impl AsyncRead + Unpin>,
    limit: usize,
    mut line: Option<impl FnMut(&[u8])>,
) -> Result<Vec<u8>, Ended> {
    let Some(mut stream) = stream else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    let mut line_start = 0;
    loop {
        let seen = all.len();
        if stream.read_buf(&mut all).await? == 0 {
            break;
        }
        if all.len() > limit {
            return Err(Ended::TooLong);
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

pub(super) async fn read_tail(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Ended> {
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
