//! Tokens of Whisper and the rules that its answers follow.

pub(crate) mod rules;
pub(crate) mod tokens;
