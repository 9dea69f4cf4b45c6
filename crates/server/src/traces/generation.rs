//! The spans of one completion, made from its events: how long it waited, its prefill and its decode.
//!
//! Attributes have the names of OpenTelemetry's conventions for generative AI.

use std::time::SystemTime;

use omnibus_engine::{Event, FinishReason, Request, Usage};
use opentelemetry::trace::{Span as _, Status, TraceContextExt, Tracer};
use opentelemetry::{Array, KeyValue, StringValue, Value};

use super::RequestTrace;
use crate::response::Event as AnyEvent;

/// What the spans of a completion say of its request.
pub struct Generated<'a> {
    /// The API, as in metrics.
    pub api: &'static str,
    /// The response.
    pub response_id: &'a str,
    /// The served model.
    pub model: &'a str,
}

/// The trace of one completion of a request.
pub struct GenerationTrace {
    request: RequestTrace,
    submitted: SystemTime,
    started: Option<SystemTime>,
    first: Option<SystemTime>,
}

impl GenerationTrace {
    /// Of a request that is submitted now.
    pub fn new(trace: RequestTrace, of: &Generated<'_>, request: &Request) -> Self {
        let operation = if of.api == "completions" { "text_completion" } else { "chat" };
        let span = trace.context.span();
        span.update_name(format!("{operation} {}", of.model));
        let mut attributes = vec![
            KeyValue::new("gen_ai.operation.name", operation),
            KeyValue::new("gen_ai.provider.name", super::SERVICE),
            KeyValue::new("gen_ai.request.model", of.model.to_owned()),
            KeyValue::new("gen_ai.response.model", of.model.to_owned()),
            KeyValue::new("gen_ai.response.id", of.response_id.to_owned()),
        ];
        let sampling = &request.sampling;
        if request.origin.index == 0 {
            attributes.extend([
                KeyValue::new("gen_ai.request.temperature", f64::from(sampling.temperature)),
                KeyValue::new("gen_ai.request.top_p", f64::from(sampling.top_p)),
            ]);
            let most = request.max_new_tokens.map(number);
            attributes.extend(most.map(|most| KeyValue::new("gen_ai.request.max_tokens", most)));
            let seed = sampling.seed.and_then(|seed| i64::try_from(seed).ok());
            attributes.extend(seed.map(|seed| KeyValue::new("gen_ai.request.seed", seed)));
        }
        span.set_attributes(attributes);
        Self { request: trace, submitted: SystemTime::now(), started: None, first: None }
    }

    /// Notes an event.
    pub fn observe(&mut self, event: &AnyEvent) {
        if let Some(Err(error)) = event.end() {
            let span = self.request.context.span();
            span.set_attribute(KeyValue::new("error.type", error.code()));
            span.set_status(Status::error(error.message().to_owned()));
        }
        let AnyEvent::Engine(event) = event else { return };
        let now = SystemTime::now();
        match event {
            Event::Started { prompt_tokens, cached_tokens } => {
                self.child("queue", self.submitted, now, Vec::new());
                self.started = Some(now);
                let cached = KeyValue::new("gen_ai.usage.cache_read.input_tokens", number(*cached_tokens));
                let tokens = KeyValue::new("gen_ai.usage.input_tokens", number(*prompt_tokens));
                self.request.context.span().set_attributes([tokens, cached]);
            }
            Event::Delta { .. } if self.first.is_none() => {
                self.first = Some(now);
                self.child("prefill", self.started.unwrap_or(self.submitted), now, Vec::new());
            }
            Event::Finished { reason, usage, .. } => self.finish(*reason, usage, now),
            Event::Delta { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. }
            | Event::Failed(_) => {}
        }
    }

    fn finish(&self, reason: FinishReason, usage: &Usage, now: SystemTime) {
        let tokens = KeyValue::new("gen_ai.usage.output_tokens", number(usage.completion_tokens));
        if let Some(first) = self.first {
            self.child("decode", first, now, vec![tokens.clone()]);
        }
        let reason = match reason {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Cancelled => "cancelled",
        };
        let reasons = Value::Array(Array::String(vec![StringValue::from(reason)]));
        let reasons = KeyValue::new("gen_ai.response.finish_reasons", reasons);
        self.request.context.span().set_attributes([tokens, reasons]);
    }

    fn child(&self, name: &'static str, from: SystemTime, to: SystemTime, attributes: Vec<KeyValue>) {
        let RequestTrace { context, tracer } = &self.request;
        let builder = tracer.span_builder(name).with_start_time(from).with_attributes(attributes);
        builder.start_with_context(tracer, context).end_with_timestamp(to);
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
