//! Where in a generated message its grammar begins.

use serde::{Deserialize, Serialize};

/// Where in a generated message its grammar begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Opening {
    /// Reasoning that may come first. The grammar begins after it.
    pub reasoning: Option<Reasoning>,
    /// The grammar begins at this text, if the model writes it, and again at each further one. Elsewhere any text is
    /// allowed.
    pub marker: Option<String>,
}

/// Reasoning at the beginning of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// The tokens with which the model may open it; empty where the prompt has opened it.
    pub opening: Vec<u32>,
    /// The text that ends it.
    pub closing: String,
}
