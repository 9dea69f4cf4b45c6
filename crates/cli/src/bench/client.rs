//! A streaming client that records the arrival time of each chunk.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};

use super::pictures;
use crate::error::Error;
use crate::settings::{BenchSettings, Dataset, Endpoint};

/// A client of one server and model.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    settings: BenchSettings,
    model: String,
}

/// The measured times of one request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestTiming {
    /// Time to first text.
    pub first: Duration,
    /// Times between texts.
    pub gaps: Vec<Duration>,
    /// Time to the end.
    pub whole: Duration,
    /// The server's count, if it reports usage.
    pub prompt_tokens: Option<usize>,
    /// Cached tokens among them, if it reports that.
    pub cached_tokens: Option<usize>,
    /// The server's count; without usage, the number of chunks with text.
    pub output_tokens: usize,
}

impl Client {
    /// A client for the named model, else for the first served one.
    pub async fn new(settings: &BenchSettings, model: Option<&str>) -> Result<Self, Error> {
        if (settings.dataset, settings.endpoint) == (Dataset::Media, Endpoint::Completions) {
            return Err(Error::usage("--dataset media needs --endpoint chat: completions take no pictures"));
        }
        if settings.url.starts_with("https://") {
            return Err(Error::usage("--url must begin with http://: this client does not speak TLS"));
        }
        omnibus_hub::install_crypto_provider();
        let http = reqwest::Client::builder().no_proxy().build().map_err(Error::failed)?;
        let mut client = Self { http, settings: settings.clone(), model: String::new() };
        client.model = match model {
            Some(model) => model.to_owned(),
            None => client.first_model().await?,
        };
        Ok(client)
    }

    /// The model's name.
    pub fn model(&self) -> &str {
        &self.model
    }

    async fn first_model(&self) -> Result<String, Error> {
        let url = format!("{}/models", self.settings.url);
        let failed = |error: &dyn std::fmt::Display| {
            Error::failed(format!("cannot list the models at {url}: {error}"))
        };
        let response = self.keyed(self.http.get(&url)).send().await.map_err(|error| failed(&error))?;
        let list: Value = response.json().await.map_err(|error| failed(&error))?;
        let first = list["data"][0]["id"].as_str().map(str::to_owned);
        first.ok_or_else(|| failed(&"there are none; pass --model"))
    }

    fn keyed(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.settings.api_key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// Sends a request and reads the stream to its end.
    pub async fn send_request(&self, prompt: &str) -> Result<RequestTiming, String> {
        let (path, body) = body(&self.settings, &self.model, prompt);
        let since = Instant::now();
        let request = self.keyed(self.http.post(format!("{}/{path}", self.settings.url))).json(&body);
        let response = request.send().await.map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            let status = response.status();
            let text = response.text().await.unwrap_or_default();
            return Err(format!("{status}: {}", text.chars().take(300).collect::<String>()));
        }
        let mut reader = Reader::default();
        let mut bytes = response.bytes_stream();
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk.map_err(|error| error.to_string())?;
            reader.take(&chunk, since.elapsed())?;
        }
        reader.finish(since.elapsed())
    }
}

fn body(settings: &BenchSettings, model: &str, prompt: &str) -> (&'static str, Value) {
    let mut body = json!({
        "model": model,
        "max_tokens": settings.output_len,
        "temperature": settings.temperature,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    if settings.ignore_eos {
        body["ignore_eos"] = Value::Bool(true);
    }
    match settings.endpoint {
        Endpoint::Chat => {
            body["messages"] = json!([{"role": "user", "content": content(settings.dataset, prompt)}]);
            ("chat/completions", body)
        }
        Endpoint::Completions => {
            body["prompt"] = prompt.into();
            ("completions", body)
        }
    }
}

/// The content of a message. A picture is behind the words, which no other prompt has: its features may be known, what the
/// model makes of them is not.
fn content(dataset: Dataset, prompt: &str) -> Value {
    match dataset {
        Dataset::Random | Dataset::SharedPrefix | Dataset::Turns => prompt.into(),
        Dataset::Media => json!([
            {"type": "text", "text": prompt},
            {"type": "image_url", "image_url": {"url": pictures::url(pictures::picture_of(prompt))}},
        ]),
    }
}

/// Splits bytes into lines, and records when text arrived.
#[derive(Debug, Default)]
pub struct Reader {
    pending: Vec<u8>,
    texts: Vec<Duration>,
    usage: Option<(usize, usize)>,
    cached: Option<usize>,
}

impl Reader {
    /// Reads bytes that arrived at time `at`. Fails at an error event.
    pub fn take(&mut self, bytes: &[u8], at: Duration) -> Result<(), String> {
        self.pending.extend_from_slice(bytes);
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            if let Some(data) = line.strip_prefix(b"data:") {
                self.event(data.trim_ascii(), at)?;
            }
        }
        Ok(())
    }

    fn event(&mut self, data: &[u8], at: Duration) -> Result<(), String> {
        if data == b"[DONE]" {
            return Ok(());
        }
        let chunk: Value =
            serde_json::from_slice(data).map_err(|error| format!("a chunk is not JSON: {error}"))?;
        if let Some(error) = chunk.get("error") {
            return Err(error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        if has_text(&chunk["choices"][0]) {
            self.texts.push(at);
        }
        let count = |name: &str| chunk["usage"][name].as_u64().map(|count| count as usize);
        if let (Some(prompt), Some(output)) = (count("prompt_tokens"), count("completion_tokens")) {
            self.usage = Some((prompt, output));
            let cached = chunk["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
            self.cached = cached.map(|count| count as usize);
        }
        Ok(())
    }

    /// The timing of the whole request. Fails when there was no text.
    pub fn finish(self, whole: Duration) -> Result<RequestTiming, String> {
        let first = *self.texts.first().ok_or("the response had no text")?;
        let gaps = self.texts.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
        Ok(RequestTiming {
            first,
            gaps,
            whole,
            prompt_tokens: self.usage.map(|(prompt, _)| prompt),
            cached_tokens: self.cached,
            output_tokens: self.usage.map_or(self.texts.len(), |(_, output)| output),
        })
    }
}

/// Whether a chunk has content: text, reasoning (which servers name in two ways), or a tool call.
fn has_text(choice: &Value) -> bool {
    let delta = &choice["delta"];
    let texts = [&choice["text"], &delta["content"], &delta["reasoning_content"], &delta["reasoning"]];
    texts.iter().any(|text| text.as_str().is_some_and(|text| !text.is_empty()))
        || delta["tool_calls"].is_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn read(parts: &[(&str, u64)]) -> Result<RequestTiming, String> {
        let mut reader = Reader::default();
        for (bytes, at) in parts {
            reader.take(bytes.as_bytes(), ms(*at))?;
        }
        reader.finish(ms(100))
    }

    #[test]
    fn texts_are_timed_and_the_servers_usage_is_used() {
        let timing = read(&[
            (
                ": keep-alive\n\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
                1,
            ),
            ("data: {\"choices\":[{\"delta\":{\"cont", 5),
            ("ent\":\"a\"}}]}\r\n\r\n", 10),
            (
                "data: {\"choices\":[{\"text\":\"b\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\ndata: [DONE]\n\n",
                30,
            ),
        ]);
        let expected = RequestTiming {
            first: ms(10),
            gaps: vec![ms(20)],
            whole: ms(100),
            prompt_tokens: Some(7),
            cached_tokens: Some(3),
            output_tokens: 9,
        };
        assert_eq!(timing, Ok(expected));
    }

    #[test]
    fn without_usage_chunks_are_counted() {
        let timing = read(&[(
            "data: {\"choices\":[{\"text\":\"a\"}]}\ndata: {\"choices\":[{\"text\":\"b\"}],\"usage\":null}\n",
            3,
        )])
        .unwrap();
        assert_eq!((timing.prompt_tokens, timing.output_tokens), (None, 2));
    }

    #[test]
    fn errors_in_a_stream_are_errors() {
        assert_eq!(read(&[("data: {\"error\":{\"message\":\"broke\"}}\n", 1)]), Err("broke".into()));
        assert_eq!(read(&[("data: [DONE]\n", 1)]), Err("the response had no text".into()));
        assert!(read(&[("data: {\n", 1)]).is_err());
    }
}
