//! Questions about a state, each with the answers that it may have.

mod labels;
pub mod openai;
pub mod systemone;
