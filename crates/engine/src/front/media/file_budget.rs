//! The bytes of files that wait for a decoder or are in one.
//!
//! Invariant: those of all requests together are bounded. It knows their lengths only.

use crate::error::Failure;
use crate::media::{ByteBudget, MediaItem, Reserved};

/// As many bytes of files as requests may have in preparation together.
pub(super) struct FileBudget {
    limit: u64,
    left: ByteBudget,
}

impl FileBudget {
    /// This many bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, left: ByteBudget::new(limit) }
    }

    /// Room for the files of one request, until it is dropped. A request whose files never fit is refused by the first
    /// that does not; one that has to wait for others is refused as by a full queue, because its files are in memory
    /// already.
    pub(super) fn reserve<'a>(
        &self,
        items: impl IntoIterator<Item = &'a MediaItem>,
    ) -> Result<Reserved, Failure> {
        let mut bytes = 0u64;
        for item in items {
            bytes = bytes.saturating_add(item.source.file_bytes());
            if bytes > self.limit {
                let message = format!(
                    "`{}`: the files of the request have more than {} bytes together; send fewer or smaller ones",
                    item.field, self.limit
                );
                return Err(Failure::bad_request(&item.field, message));
            }
        }
        self.left.reserve(bytes).ok_or(Failure::Busy { retry_after_s: 1 })
    }
}
