//! The routes that a line of a batch may name, without what stands between them and the network: a batch was authenticated
//! when it was made.

use std::sync::Arc;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use omnibus_batches::URLS;

use crate::app::App;
use crate::routes::{ERROR_FORMATS, paths};
use crate::{error, request_id};

/// Their router.
pub fn router(app: &Arc<App>) -> Router {
    paths()
        .filter(|(path, route)| URLS.contains(path) && route.is_post())
        .fold(Router::new(), |router, (path, route)| router.route(path, route.method_router()))
        .layer(from_fn_with_state(ERROR_FORMATS, error::render))
        .layer(from_fn(request_id::layer))
        .with_state(Arc::clone(app))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_of_a_line_is_a_route() {
        for url in URLS {
            assert!(paths().any(|(path, route)| path == *url && route.is_post()), "{url}");
        }
    }
}
