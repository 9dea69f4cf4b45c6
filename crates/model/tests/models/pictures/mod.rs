//! Models with pictures: features of the encoder, and logits of prompts in which they stand.
//!
//! Fixtures are in `tests/pictures` and, where `OMNIBUS_PICTURE_FIXTURES` names one, in another directory of that format.

mod encoder;
mod fixture;
mod text;
