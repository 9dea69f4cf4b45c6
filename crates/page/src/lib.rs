//! The web page of the server: its files, and Markdown as HTML while it grows.
//!
//! Invariants: a file needs nothing from another host; HTML that is made here has no script, no style and no image, whatever
//! the Markdown says.

mod blocks;
mod files;
mod markdown;

pub use blocks::{Blocks, Changes};
pub use files::{CONTENT_SECURITY_POLICY, File, file};
pub use markdown::html;
