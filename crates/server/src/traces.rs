//! Traces of requests, exported by OTLP over HTTP: one span a request, with its waiting, prefill and decode below it.
//!
//! Invariant: a request never waits for the exporter, which has a thread of its own and drops spans when it falls behind.
//! Spans hold names, numbers and sizes, and no text of prompts and completions.

mod generation;

use std::fmt;
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use reqwest::Url;

pub use generation::{Generated, GenerationTrace};

use crate::crypto;

/// The header with the caller's span, and with ours in a response.
const TRACEPARENT: &str = "traceparent";
/// Where collectors take traces, below an address without a path.
const TRACES_PATH: &str = "/v1/traces";
/// Our name in spans.
const SERVICE: &str = "mlx-omnibus";
/// How the SDK's name of a service begins that has none.
const UNKNOWN_SERVICE: &str = "unknown_service";

static PROPAGATOR: LazyLock<TraceContextPropagator> = LazyLock::new(TraceContextPropagator::new);

/// Makes and exports spans.
#[derive(Clone)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Why there is no exporter.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The endpoint cannot be read.
    #[error("`{0}` must be a URL that begins with http:// or https://")]
    Endpoint(String),
    /// The exporter cannot be made.
    #[error("{0}")]
    Exporter(String),
}

impl fmt::Debug for Traces {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Traces")
    }
}

impl Traces {
    /// Exports to a collector. A URL without a path gets that of OTLP.
    pub fn to(endpoint: &str) -> Result<Self, TracesError> {
        let unreadable = || TracesError::Endpoint(endpoint.to_owned());
        let mut url = Url::parse(endpoint).map_err(|_| unreadable())?;
        if !["http", "https"].contains(&url.scheme()) || url.host().is_none() {
            return Err(unreadable());
        }
        if url.path() == "/" {
            url.set_path(TRACES_PATH);
        }
        crypto::install();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url.as_str())
            .build()
            .map_err(|error| TracesError::Exporter(error.to_string()))?;
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource());
        let provider = provider.build();
        Ok(Self { tracer: provider.tracer(SERVICE), provider })
    }

    /// Begins the span of a request, below the span that its headers name.
    pub fn begin(&self, headers: &HeaderMap, method: &str, route: &str) -> RequestTrace {
        let parent = PROPAGATOR.extract_with_context(&Context::new(), &Incoming(headers));
        let builder = self.tracer.span_builder(format!("{method} {route}")).with_kind(SpanKind::Server);
        let attributes = [
            KeyValue::new("http.request.method", method.to_owned()),
            KeyValue::new("http.route", route.to_owned()),
        ];
        let span = builder.with_attributes(attributes).start_with_context(&self.tracer, &parent);
        RequestTrace { context: parent.with_span(span), tracer: self.tracer.clone() }
    }

    /// Exports what is left. Blocks for some seconds at most.
    pub fn shut_down(&self) {
        if let Err(error) = self.provider.shutdown() {
            tracing::warn!(%error, "traces were not exported");
        }
    }
}

/// What all spans say of this server: our name, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` has one.
fn resource() -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let found = Resource::builder().with_attribute(version.clone()).build();
    let name = found.get(&Key::from_static_str("service.name")).map(|name| name.to_string());
    if name.is_some_and(|name| !name.starts_with(UNKNOWN_SERVICE)) {
        return found;
    }
    Resource::builder().with_attribute(version).with_service_name(SERVICE).build()
}

/// The span of a request. It ends when all copies are dropped, and so with the last event of its response.
#[derive(Clone)]
pub struct RequestTrace {
    context: Context,
    tracer: SdkTracer,
}

impl fmt::Debug for RequestTrace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RequestTrace")
    }
}

impl RequestTrace {
    /// Notes the status of the response.
    fn respond(&self, response: &mut Response) {
        let status = response.status();
        let span = self.context.span();
        span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        // A generation that failed has said why.
        if status.is_client_error() {
            span.set_attribute(KeyValue::new("error.type", status.as_str().to_owned()));
        }
        if status.is_server_error() {
            span.set_status(Status::error(status.to_string()));
        }
        PROPAGATOR.inject_context(&self.context, &mut Outgoing(response.headers_mut()));
    }
}

/// Traces each request that may generate: those with POST.
pub async fn layer(State(traces): State<Option<Traces>>, mut request: Request, next: Next) -> Response {
    let Some(traces) = traces.filter(|_| request.method() == axum::http::Method::POST) else {
        return next.run(request).await;
    };
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str);
    let trace = traces.begin(request.headers(), "POST", route);
    request.extensions_mut().insert(trace.clone());
    let mut response = next.run(request).await;
    trace.respond(&mut response);
    response
}

struct Incoming<'a>(&'a HeaderMap);

impl Extractor for Incoming<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct Outgoing<'a>(&'a mut HeaderMap);

impl Injector for Outgoing<'_> {
    fn set(&mut self, key: &str, value: String) {
        // The state of other vendors is the caller's already.
        if key == TRACEPARENT
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            self.0.insert(TRACEPARENT, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_of_http() {
        for wrong in ["", "collector:4318", "localhost", "ftp://collector", "grpc://collector:4317"] {
            let refused = Traces::to(wrong).unwrap_err().to_string();
            assert!(refused.contains("must be a URL"), "{wrong}: {refused}");
        }
    }
}
