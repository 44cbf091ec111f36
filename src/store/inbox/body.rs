//! How a delivery's body lies on disk: compressed, because a webhook says little in many bytes and every byte of
//! it goes through the write-ahead log before the delivery is acknowledged.

use zstd::zstd_safe::get_frame_content_size;

use crate::{
    limits,
    store::{error::Fault, packer},
};

/// A body as it lies in its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) packing: Packing,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// As it came: how the first version kept all, and what did not get smaller.
    Raw,
    Zstd,
    /// Too old to be kept.
    Dropped,
}

impl Packing {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Zstd => "zstd",
            Self::Dropped => "dropped",
        }
    }

    pub(super) fn read(text: &str) -> Result<Self, Fault> {
        [Self::Raw, Self::Zstd, Self::Dropped]
            .into_iter()
            .find(|packing| packing.as_str() == text)
            .ok_or_else(|| Fault::Row(format!("a body packed as `{text}`")))
    }
}

impl Stored {
    pub(super) fn pack(body: Vec<u8>) -> Self {
        match packer::pack(&body) {
            Ok(bytes) if bytes.len() < body.len() => Self { packing: Packing::Zstd, bytes },
            _ => Self { packing: Packing::Raw, bytes: body },
        }
    }

    pub(super) fn unpack(&self) -> Result<Vec<u8>, Fault> {
        match self.packing {
            Packing::Raw => Ok(self.bytes.clone()),
            Packing::Zstd => self.decompress().map_err(|why| Fault::Row(format!("a delivery's body: {why}"))),
            Packing::Dropped => Err(Fault::Row("a delivery's body was dropped for its age".to_owned())),
        }
    }

    fn decompress(&self) -> Result<Vec<u8>, String> {
        let size =
            get_frame_content_size(&self.bytes).ok().flatten().and_then(|size| usize::try_from(size).ok());
        let size =
            size.filter(|size| *size <= limits::WEBHOOK_BODY_BYTES).ok_or("no size that a body may have")?;
        packer::unpack(&self.bytes, size).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        for body in [b"{}".to_vec(), vec![], b"{\"a\":1}".repeat(5_000), (0..=255).collect()] {
            assert_eq!(Stored::pack(body.clone()).unpack().unwrap(), body);
        }
        assert_eq!(Stored::pack(b"{\"a\":1}".repeat(500)).packing, Packing::Zstd);
        assert_eq!(Stored::pack(b"{}".to_vec()).packing, Packing::Raw, "what would grow is left");
    }

    #[test]
    fn a_body_is_never_more_than_a_webhook_may_be() {
        let bomb = Stored::pack(vec![0; limits::WEBHOOK_BODY_BYTES + 1]);
        assert!(bomb.unpack().is_err());
    }
}
