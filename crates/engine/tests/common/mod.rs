//! The embedded model behind a real engine.
#![allow(dead_code)]

pub mod draft_model;
pub mod fixture;

use std::path::Path;

use omnibus_engine::{
    Chat, Event, EventStream, FinishReason, Handle, Input, Message, ModelSource, Request, Role, Sampling,
    Settings, StartError, Usage, start,
};

pub fn engine(settings: Settings) -> Handle {
    try_engine(settings).expect("the engine starts")
}

/// An engine with memory for a few thousand tokens, unless the settings say otherwise.
pub fn try_engine(mut settings: Settings) -> Result<Handle, StartError> {
    settings.kv_cache_memory.get_or_insert(64 << 20);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    start(vec![ModelSource::Directory { path, served_names: Vec::new() }], settings)
}

pub fn chat(id: &str, question: &str) -> Request {
    let messages = vec![Message::new(Role::User, question)];
    let chat = Chat { messages, ..Chat::default() };
    Request { sampling: Sampling::greedy(), ..Request::new(id, Input::Chat(chat)) }
}

pub fn complete(id: &str, prompt: &str, tokens: usize) -> Request {
    let mut request = Request::new(id, Input::Text(prompt.to_owned()));
    request.sampling = Sampling::greedy();
    request.max_new_tokens = Some(tokens);
    request.stop.ignore_eos = true;
    request
}

/// A request's events and text.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    pub text: String,
    pub reason: FinishReason,
    pub usage: Usage,
    pub events: Vec<Event>,
}

pub fn wait_for(mut stream: EventStream) -> Output {
    let (mut text, mut events) = (String::new(), Vec::new());
    while let Some(event) = stream.blocking_next() {
        events.push(event.clone());
        match event {
            Event::Delta { delta, .. } => text.push_str(delta.text()),
            Event::Finished { reason, usage, .. } => {
                assert!(stream.blocking_next().is_none(), "silence after the end");
                return Output { text, reason, usage, events };
            }
            Event::Failed(failure) => panic!("{failure}"),
            Event::Started { .. }
            | Event::Prompt(_)
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. } => {}
        }
    }
    panic!("a stream ends with an event")
}

pub fn run(engine: &Handle, request: Request) -> Output {
    wait_for(engine.submit(request).expect("taken"))
}

/// The tokens and their log-probabilities, exactly.
pub fn output_tokens(output: &Output) -> Vec<(u32, Option<f32>)> {
    let tokens = output.events.iter().flat_map(|event| match event {
        Event::Delta { tokens, .. } => tokens.iter().map(|token| (token.id, token.logprob)).collect(),
        _ => Vec::new(),
    });
    tokens.collect()
}
