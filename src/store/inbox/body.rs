//! Stored form of a delivery's body. The body is compressed because every byte goes through the write-ahead log before
//! we acknowledge the delivery.

use zstd::zstd_safe::get_frame_content_size;

use crate::{
    limits,
    store::{compression, error::TransactionError},
};

/// Body of a delivery, as stored in the delivery's inbox row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackedBody {
    pub(super) packing: BodyPacking,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyPacking {
    /// The body is not compressed, because the row is from the first schema version or because compression would not
    /// shrink the body.
    Raw,
    Zstd,
    /// The body was deleted because of its age.
    Dropped,
}

impl BodyPacking {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Zstd => "zstd",
            Self::Dropped => "dropped",
        }
    }

    pub(super) fn from_stored(text: &str) -> Result<Self, TransactionError> {
        [Self::Raw, Self::Zstd, Self::Dropped]
            .into_iter()
            .find(|packing| packing.as_str() == text)
            .ok_or_else(|| TransactionError::Row(format!("a body packed as `{text}`")))
    }
}

impl PackedBody {
    pub(super) fn pack(body: Vec<u8>) -> Self {
        match compression::pack(&body) {
            Ok(bytes) if bytes.len() < body.len() => Self { packing: BodyPacking::Zstd, bytes },
            _ => Self { packing: BodyPacking::Raw, bytes: body },
        }
    }

    pub(super) fn unpack(&self) -> Result<Vec<u8>, TransactionError> {
        match self.packing {
            BodyPacking::Raw => Ok(self.bytes.clone()),
            BodyPacking::Zstd => {
                self.decompress().map_err(|why| TransactionError::Row(format!("a delivery's body: {why}")))
            }
            BodyPacking::Dropped => {
                Err(TransactionError::Row("the delivery's body was deleted because of its age".to_owned()))
            }
        }
    }

    fn decompress(&self) -> Result<Vec<u8>, String> {
        let size =
            get_frame_content_size(&self.bytes).ok().flatten().and_then(|size| usize::try_from(size).ok());
        let size = size
            .filter(|size| *size <= limits::WEBHOOK_BODY_BYTES)
            .ok_or("decompressed size is unknown or above the webhook limit")?;
        compression::unpack(&self.bytes, size).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_body_unpacks_to_the_same_bytes() {
        for body in [b"{}".to_vec(), vec![], b"{\"a\":1}".repeat(5_000), (0..=255).collect()] {
            assert_eq!(PackedBody::pack(body.clone()).unpack().unwrap(), body);
        }
        assert_eq!(PackedBody::pack(b"{\"a\":1}".repeat(500)).packing, BodyPacking::Zstd);
        assert_eq!(PackedBody::pack(b"{}".to_vec()).packing, BodyPacking::Raw, "compression would grow it");
    }

    #[test]
    fn packed_body_that_unpacks_beyond_the_webhook_limit_is_refused() {
        let bomb = PackedBody::pack(vec![0; limits::WEBHOOK_BODY_BYTES + 1]);
        assert!(bomb.unpack().is_err());
    }
}
