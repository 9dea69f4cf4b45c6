//! CORS: the headers by which a browser lets the pages of allowed origins read responses. A preflight is answered without a
//! key, as it has none.

use std::time::Duration;

use axum::http::{HeaderValue, Method};
use tower_http::cors::{AllowHeaders, AllowOrigin, Any, CorsLayer};

use super::AllowedOrigins;

/// How long a browser may keep the answer to a preflight.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Answers preflights and adds the headers of CORS to responses. Credentials are not allowed: a key is a header.
pub fn cors(origins: AllowedOrigins) -> CorsLayer {
    let allowed =
        move |origin: &HeaderValue, _: &_| origin.to_str().is_ok_and(|origin| origins.listed(origin));
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(allowed))
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::DELETE])
        // SDKs in browsers send headers of their own, and new ones with each release.
        .allow_headers(AllowHeaders::mirror_request())
        .allow_private_network(true)
        // Ids of requests, and what is left of limits.
        .expose_headers(Any)
        .max_age(MAX_AGE)
}
