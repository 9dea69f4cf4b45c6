//! A decoded recording.

use std::sync::Arc;

use crate::media::Reserved;

/// Samples of a sound. Clones share them.
#[derive(Clone)]
pub(crate) struct Sound {
    pub(crate) rate: u32,
    pub(crate) samples: Arc<[f32]>,
    /// Memory of open requests.
    pub(crate) _reserved: Arc<Reserved>,
}
