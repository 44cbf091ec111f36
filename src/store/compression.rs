//! Compression of delivery bodies, documents and cached analysis results.

use std::{cell::RefCell, io};

use zstd::bulk::{Compressor, Decompressor};

/// Compression level: the fastest, because callers wait for the result. For our texts, the output is at most 5 % larger
/// than with the default level, and compression takes two thirds of the time.
const LEVEL: i32 = 1;

thread_local! {
    /// Compressor that each thread reuses. Creating one takes a tenth of the time needed to compress a design, and more
    /// time than compressing a small body.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

pub(super) fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(bytes),
        none => none.insert(compressor()?).compress(bytes),
    })
}

/// Creates a compressor that adds a checksum, so that decompression can verify the data.
fn compressor() -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

/// Decompresses `packed`. Fails if the decompressed data is longer than `most` bytes.
pub(super) fn unpack(packed: &[u8], most: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(decompressor) => decompressor.decompress(packed, most),
        none => none.insert(Decompressor::new()?).decompress(packed, most),
    })
}
