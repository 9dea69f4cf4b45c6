//! What a request asks to see.

use crate::wire::energy::ShownEnergy;
use crate::wire::responses::{EncryptedReasoning, Generation, SearchDetails};

/// What a response shows.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    /// Reasoning in a form that the client sends back.
    pub encrypted: EncryptedReasoning,
    /// Whether there is output.
    pub generation: Generation,
    /// Energy in the usage.
    pub energy: ShownEnergy,
    /// What is shown of searches of the web.
    pub search: SearchDetails,
}
