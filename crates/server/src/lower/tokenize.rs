//! Lowers `POST /tokenize`.

use omnibus_engine::{AddSpecial, Input};

use super::chat;
use crate::wire::tokenize::{Source, Special};

/// The engine input to tokenize.
pub fn input(source: Source) -> Input {
    match source {
        Source::Prompt(text) => Input::Text(text),
        Source::Messages(conversation) => Input::Chat(chat::chat(*conversation)),
    }
}

/// Whether the tokenizer adds its special tokens.
pub fn special(wire: Special) -> AddSpecial {
    match wire {
        Special::Add => AddSpecial::Yes,
        Special::Omit => AddSpecial::No,
    }
}
