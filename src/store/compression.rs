//! Compression of what is kept by the thousand: deliveries' bodies, documents, and what is known of files.

use std::{cell::RefCell, io};

use zstd::bulk::{Compressor, Decompressor};

/// The fastest level: it packs text within a twentieth of what the default comes to, in two thirds of its time,
/// and somebody waits for it.
const LEVEL: i32 = 1;

thread_local! {
    /// Setting one up costs a tenth of packing a design, and more than a small body does.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

pub(super) fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(bytes),
        none => none.insert(compressor()?).compress(bytes),
    })
}

/// With a sum at the end that unpacking looks at.
fn compressor() -> io::Result<Compressor<'static>> {
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    Ok(compressor)
}

/// What was packed, if it is no larger than `most` bytes.
pub(super) fn unpack(packed: &[u8], most: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(decompressor) => decompressor.decompress(packed, most),
        none => none.insert(Decompressor::new()?).decompress(packed, most),
    })
}
