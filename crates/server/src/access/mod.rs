//! Which browsers' pages reach the server: the `Host` that a request names, and the `Origin` of the page that sent it.
//!
//! Invariant: both are checked before a handler runs, also for WebSockets and preflights. A simple POST of a foreign page
//! needs no preflight, so a browser's own CORS rules would let it start a generation.

mod cors;
mod hosts;
mod origins;
mod pattern;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
pub use cors::cors;
pub use hosts::{AllowedHosts, Arrival, HostError};
pub use origins::{AllowedOrigins, OriginError};

/// Which hosts and origins a request may name.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The names that the server has.
    pub hosts: AllowedHosts,
    /// The pages that may use it.
    pub origins: AllowedOrigins,
}

/// Answers 403 to a request for another host, or of another origin's page.
pub async fn layer(State(access): State<Access>, request: Request, next: Next) -> Response {
    match access.check(&request) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

impl Access {
    fn check(&self, request: &Request) -> Result<(), ApiError> {
        let arrival = request.extensions().get::<Arrival>().copied().unwrap_or_default();
        // A target in absolute form counts before the header.
        let of_target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
        let headers = || request.headers().get_all(HOST).iter().map(|value| value.as_bytes());
        if let Some(foreign) =
            of_target.into_iter().chain(headers()).find(|host| !self.hosts.allow(host, arrival))
        {
            let host = String::from_utf8_lossy(foreign);
            return Err(ApiError::forbidden(
                "host_not_allowed",
                format!("this server has no name `{host}`; start it with --allowed-hosts to add one"),
            ));
        }
        let host = of_target.or_else(|| headers().next()).unwrap_or_default();
        let mut origins = request.headers().get_all(ORIGIN).iter().map(|value| value.as_bytes());
        match origins.find(|origin| !self.origins.allow(origin, host)) {
            None => Ok(()),
            Some(foreign) => {
                let origin = String::from_utf8_lossy(foreign);
                Err(ApiError::forbidden(
                    "origin_not_allowed",
                    format!(
                        "pages of `{origin}` may not use this server; start it with --allowed-origins to add one"
                    ),
                ))
            }
        }
    }
}
