//! HTTP APIs over the engine. Start at [`serve`]; every route is in `routes`.
//!
//! Invariant: a request body is read in [`wire`], becomes an engine request in [`lower`] once, and the
//! engine's events become frames in [`response`]. Nothing here knows arrays or blocks.

mod access;
pub mod answer;
mod api;
mod app;
mod auth;
mod batch_runner;
mod batches;
mod body_coding;
mod charge;
mod connection_memory;
mod crypto;
mod engine;
mod error;
mod event_log;
mod file_limit;
mod json_body;
mod keys;
mod limits;
mod listen;
pub mod lower;
mod mcp;
mod media_urls;
mod metrics;
mod model_pool;
mod observe;
mod openapi;
mod outbound;
mod records;
mod request_id;
pub mod response;
mod room;
mod root_path;
mod routes;
mod socket;
mod stored_responses;
mod tls;
mod traces;
pub mod wire;

pub use access::{Access, AllowedHosts, AllowedOrigins, HostError, OriginError};
pub use api::{Api, Origin, Prepared, RequestContext, generate, respond};
pub use app::{AdapterUpdates, App, ModelNames, RequestTemplates, Settings};
pub use batches::BatchSettings;
pub use connection_memory::ConnectionMemory;
pub use engine::{
    Engine, Events, Lease, ModelName, PooledTexts, Residence, ScoredReplies, Steps, TimeToLive, Transcripts,
};
pub use error::{ApiError, ErrorFormat, ErrorKind, Overflow, render as render_errors};
pub use file_limit::raise_open_files;
pub use keys::{Clock, KeyError, Keys};
pub use limits::Limits;
pub use listen::{InheritedSockets, ListenAddress, Listeners, serve};
pub use mcp::Mcp;
pub use media_urls::MediaUrls;
pub use metrics::vllm::VllmMetrics;
pub use model_pool::{FindModel, ModelPool, ModelPoolSettings, NewModel};
pub use records::{Record, RecordedAnswer, Records};
pub use request_id::RequestId;
pub use root_path::{RootPath, RootPathError};
pub use routes::router;
pub use stored_responses::{StoredResponse, StoredResponses};
pub use tls::{Tls, TlsError};
pub use traces::{Traces, TracesError};
