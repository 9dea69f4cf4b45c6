//! Traces by OTLP, with a scripted engine and a collector that keeps what it receives.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use omnibus_server::{Settings, Traces};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::client::{JSON, exchange, get, post, request};
use super::server_with;

/// Receives spans by OTLP over HTTP.
struct Collector {
    address: SocketAddr,
    spans: Receiver<(String, ExportTraceServiceRequest)>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (received, spans) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                while let Some((path, body)) = read(&mut stream) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
                    // The receiver is gone when the test has ended.
                    _ = received.send((path, ExportTraceServiceRequest::decode(body.as_slice()).unwrap()));
                }
            }
        });
        Self { address, spans }
    }

    /// The spans that were exported, after the server has ended, and their service.
    fn spans(&self) -> (Vec<Span>, String) {
        let (mut spans, mut service) = (Vec::new(), String::new());
        for (path, export) in self.spans.try_iter() {
            assert_eq!(path, "/v1/traces");
            for resource in export.resource_spans {
                let attributes = resource.resource.unwrap().attributes;
                let named = attributes.into_iter().find(|attribute| attribute.key == "service.name");
                service = text(named.unwrap().value.unwrap().value.unwrap());
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        (spans, service)
    }
}

/// The path and the body of a request; none at the end of the connection.
fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    Some((head.split(' ').nth(1).unwrap().to_owned(), body))
}

fn text(value: Value) -> String {
    match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::ArrayValue(list) => list.values.into_iter().map(|value| text(value.value.unwrap())).collect(),
        other => format!("{other:?}"),
    }
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    Some(text(found.value.clone()?.value?))
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {spans:?}"))
}

#[test]
fn a_request_is_a_span_of_its_caller_with_queue_prefill_and_decode() {
    let collector = Collector::start();
    let traces = Traces::to(&format!("http://{}", collector.address)).unwrap();
    let mut server = server_with(Settings { traces: Some(traces), ..Settings::default() });
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let traceparent = format!("00-{trace}-{parent}-01");
    let body = r#"{"messages":[{"role":"user","content":"hi you"}],"max_tokens":2,"seed":7,"stream":true}"#;
    let headers = [JSON, ("traceparent", traceparent.as_str())];
    let reply = exchange(server.address, &request("POST", "/v1/chat/completions", &headers, body.as_bytes()))
        .unwrap();
    assert_eq!(reply.status, 200);
    let ours = reply.header("traceparent").unwrap().to_owned();
    assert_eq!(
        get(server.address, "/health").header("traceparent"),
        None,
        "only what may generate is traced"
    );
    server.join();
    let (spans, service) = collector.spans();
    assert_eq!(service, "mlx-omnibus");
    let root = named(&spans, "chat scripted");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!((hex(&root.trace_id), hex(&root.parent_span_id)), (trace.into(), parent.into()));
    assert_eq!(ours, format!("00-{trace}-{}-01", hex(&root.span_id)));
    let expected = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.request.model", "scripted"),
        ("gen_ai.request.max_tokens", "2"),
        ("gen_ai.request.seed", "7"),
        ("gen_ai.usage.input_tokens", "2"),
        ("gen_ai.usage.output_tokens", "2"),
        ("gen_ai.response.finish_reasons", "length"),
        ("http.route", "/v1/chat/completions"),
        ("http.response.status_code", "200"),
    ];
    for (key, value) in expected {
        assert_eq!(attribute(root, key).as_deref(), Some(value), "{key}");
    }
    let mut at = root.start_time_unix_nano;
    for name in ["queue", "prefill", "decode"] {
        let child = named(&spans, name);
        assert_eq!(child.parent_span_id, root.span_id);
        assert!(child.start_time_unix_nano >= at && child.end_time_unix_nano <= root.end_time_unix_nano);
        at = child.end_time_unix_nano;
    }
    assert_eq!(spans.len(), 4);
    let says_nothing = |span: &Span| !format!("{span:?}").contains("hi you");
    assert!(spans.iter().all(says_nothing), "spans have no texts");
}

#[test]
fn refused_and_failed_requests_have_spans_with_their_errors() {
    let collector = Collector::start();
    let traces = Traces::to(&format!("http://{}/v1/traces", collector.address)).unwrap();
    let mut server = server_with(Settings { traces: Some(traces), ..Settings::default() });
    post(server.address, "/v1/completions", r#"{"prompt":7}"#);
    post(server.address, "/v1/responses", r#"{"input":"break it"}"#);
    server.join();
    let (spans, _) = collector.spans();
    let refused = named(&spans, "POST /v1/completions");
    assert_eq!(attribute(refused, "error.type").as_deref(), Some("400"));
    let failed = named(&spans, "chat scripted");
    assert_eq!(attribute(failed, "error.type").as_deref(), Some("internal_error"));
    assert!(!failed.status.as_ref().unwrap().message.is_empty());
}

#[test]
fn a_collector_that_is_not_there_costs_no_request() {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let traces = Traces::to(&format!("http://{nowhere}")).unwrap();
    let server = server_with(Settings { traces: Some(traces), ..Settings::default() });
    assert_eq!(post(server.address, "/v1/completions", r#"{"prompt":"hi","max_tokens":1}"#).status, 200);
}
