//! HTTP APIs over the engine. Start at [`serve`]; every route is in `routes`.
//!
//! Invariant: a wire type is read in [`wire`], becomes the engine's words in [`lower`] once, and
//! comes back in [`answer`]. Nothing here knows arrays or blocks.

pub mod answer;
mod app;
mod auth;
mod engine;
mod error;
mod limits;
mod listen;
pub mod lower;
mod metrics;
mod request_id;
mod routes;
mod running;
mod sse;
mod watch;
pub mod wire;

pub use app::{App, Settings};
pub use auth::{KeyError, Keys};
pub use engine::{Engine, Events};
pub use error::ApiError;
pub use limits::Limits;
pub use listen::{bind, serve};
pub use routes::router;
