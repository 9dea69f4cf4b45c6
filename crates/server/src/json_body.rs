//! A JSON text that was serialized from a wire type.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A serialized JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonBody(String);

impl JsonBody {
    /// Serializes a wire type. Wire types have string keys and finite numbers, so that they always serialize.
    pub fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_string(value).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot serialize a wire type");
            "{}".into()
        }))
    }

    /// The JSON text.
    pub fn into_text(self) -> String {
        self.0
    }
}

impl IntoResponse for JsonBody {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0).into_response()
    }
}
