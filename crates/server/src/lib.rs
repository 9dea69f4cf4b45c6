//! HTTP APIs over the engine. Start at [`serve`]; every route is in `routes`.
//!
//! Invariant: a request body is read in [`wire`], becomes an engine request in [`lower`] once, and the
//! engine's events become wire types in [`answer`]. Nothing here knows arrays or blocks.

mod active;
pub mod answer;
mod app;
mod auth;
mod engine;
mod error;
mod limits;
mod listen;
pub mod lower;
mod metrics;
mod observe;
mod request_id;
mod routes;
mod sse;
pub mod wire;

pub use app::{App, Settings};
pub use auth::{KeyError, Keys};
pub use engine::{Engine, Events};
pub use error::ApiError;
pub use limits::Limits;
pub use listen::{bind, serve};
pub use routes::router;
