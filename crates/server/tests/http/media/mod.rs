//! Pictures over HTTP, through a real engine: a tiny model with random weights, and answers that a reference gives.

mod answers;
mod apis;
mod cache;
mod families;
mod files;
mod flood;
pub mod hostile_inputs;
mod model;
mod refused;
mod sense;
mod smallest;
mod sound_files;
mod sounds;
mod sounds_gemma3n;
mod spans;
mod transcriptions;
mod urls;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use omnibus_engine::{Handle, MediaStats, ModelSource, Settings, start};
use omnibus_server::{Listeners, Settings as ServerSettings, serve};
use omnibus_testing::hostile_pictures as hostile;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::client::{self, Reply};
use super::tcp_address;
use files::Picture;

pub const CHAT: &str = "/v1/chat/completions";

/// A server of the tiny model, stopped when dropped.
pub struct VisionServer {
    pub address: SocketAddr,
    pub engine: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl VisionServer {
    /// With an engine of these settings.
    pub fn new(settings: Settings) -> Self {
        Self::of(&model::directory(), settings, ServerSettings::default())
    }

    pub fn of(model: &Path, settings: Settings, server: ServerSettings) -> Self {
        let settings =
            Settings { kv_cache_memory: Some(settings.kv_cache_memory.unwrap_or(1 << 20)), ..settings };
        let source = ModelSource::Directory { path: model.to_owned(), served_names: vec!["seer".to_owned()] };
        let engine = start(vec![source], settings).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (found, address) = channel();
        let shared: Arc<dyn omnibus_server::Engine> = Arc::new(engine.clone());
        let run = async move {
            let listeners = Listeners::bind("127.0.0.1", 0).await.unwrap();
            found.send(tcp_address(&listeners)).unwrap();
            let stop = async {
                _ = stopped.await;
            };
            serve(listeners, shared, server, stop).await;
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let thread = std::thread::spawn(move || runtime.block_on(run));
        Self { address: address.recv().unwrap(), engine, stop: Some(stop), thread: Some(thread) }
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        client::post(self.address, path, &body.to_string())
    }

    /// The answer to a user's message of these parts: its first tokens with their most likely alternatives.
    pub fn answer(&self, content: &Value) -> Answer {
        let reply = self.post(CHAT, &body(content, 4));
        assert_eq!(reply.status, 200, "{}", reply.body);
        Answer(reply.json())
    }

    pub fn media(&self) -> MediaStats {
        self.engine.stats().media
    }
}

impl Drop for VisionServer {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A greedy request.
pub fn body(content: &Value, tokens: usize) -> Value {
    json!({
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens, "temperature": 0, "ignore_eos": true, "logprobs": true, "top_logprobs": 20,
    })
}

/// A response.
pub struct Answer(pub Value);

impl Answer {
    fn tokens(&self) -> &Vec<Value> {
        self.0["choices"][0]["logprobs"]["content"].as_array().unwrap()
    }

    /// The generated tokens with all their numbers.
    pub fn exact(&self) -> String {
        self.tokens().iter().map(|token| format!("{} {}\n", token["token"], token["logprob"])).collect()
    }

    /// The generated tokens' text.
    pub fn text(&self) -> Vec<String> {
        self.tokens().iter().map(|token| token["token"].as_str().unwrap().to_owned()).collect()
    }

    /// The most likely first tokens, by id, with their log-probabilities.
    pub fn first(&self) -> Vec<(u32, f32)> {
        self.first_of(&model::WORDS)
    }

    /// The most likely first tokens by ids of another vocabulary, with their log-probabilities.
    pub fn first_of(&self, words: &model::Words) -> Vec<(u32, f32)> {
        let alternatives = self.tokens()[0]["top_logprobs"].as_array().unwrap().iter();
        let of =
            |one: &Value| (words.id(one["token"].as_str().unwrap()), one["logprob"].as_f64().unwrap() as f32);
        alternatives.map(of).collect()
    }

    pub fn cached_tokens(&self) -> u64 {
        self.0["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    }
}

/// A text part.
pub fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// A part with a picture in a data URL.
pub fn image(picture: &Picture) -> Value {
    image_bytes("image/png", &picture.png())
}

pub fn image_bytes(mime: &str, bytes: &[u8]) -> Value {
    json!({"type": "image_url", "image_url": {"url": files::data_url(mime, bytes)}})
}
