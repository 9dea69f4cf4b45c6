//! An engine whose behaviour depends on the prompt's first word, and that records requests and cancellations.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use omnibus_engine::{
    AddSpecial, Admission, Candidate, Capabilities, Class, Delta, EnergySource, EnergyUsage, Event, Failure,
    FinishReason, Health, HeldBlocks, Input, Message, ModelDetails, ModelInfo, ModelState, Pooled, Pooler,
    PoolingRequest, Request, RequestInfo, RequestState, SchedulerStats, Scoring, ScoringRequest, SessionInfo,
    Stats, Task, TokenInfo, Transcription, Usage, WatchedSteps,
};
use omnibus_server::{Engine, Events, Lease, ModelName, PooledTexts, ScoredReplies, Steps, Transcripts};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// A model whose requests wait for ever until it is loaded.
pub const UNLOADED: &str = "unloaded";
pub const VOCAB: u32 = 1000;
pub const CONTEXT: usize = 4096;

/// An event in the life of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestEvent {
    /// The engine accepted it.
    Submitted(Box<RequestSeen>),
    /// Its event stream was dropped before the last event.
    Dropped(String),
    /// It was cancelled by id.
    Cancelled(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSeen {
    pub id: String,
    pub tenant: String,
    pub seed: Option<u64>,
    pub tokens: Option<usize>,
    pub class: Class,
}

pub struct ScriptedEngine {
    request_events: Sender<RequestEvent>,
    cancelled: watch::Sender<BTreeSet<String>>,
    alive: Mutex<bool>,
    running: Arc<Mutex<BTreeMap<String, Request>>>,
    pooler: Mutex<Pooler>,
    watchers: Mutex<Vec<UnboundedSender<WatchedSteps>>>,
}

impl ScriptedEngine {
    pub fn new(request_events: Sender<RequestEvent>) -> Self {
        let cancelled = watch::Sender::new(BTreeSet::new());
        let pooler = Mutex::new(Pooler::of_generator());
        let (alive, running, watchers) = (Mutex::new(true), Arc::default(), Mutex::default());
        Self { request_events, cancelled, alive, running, pooler, watchers }
    }

    /// From now on texts become what a model with these files makes of them.
    pub fn use_pooler_of(&self, files: &[(&str, Value)]) {
        let folder = tempfile::tempdir().unwrap();
        for (file, content) in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content.to_string()).unwrap();
        }
        *self.pooler.lock().unwrap() = Pooler::read(folder.path()).unwrap();
    }

    /// Clients that watch get these steps.
    pub fn step(&self, steps: &WatchedSteps) {
        self.watchers.lock().unwrap().retain(|watcher| watcher.send(steps.clone()).is_ok());
    }

    /// How many watch the steps.
    pub fn watchers(&self) -> usize {
        self.watchers.lock().unwrap().iter().filter(|watcher| !watcher.is_closed()).count()
    }

    /// Ends the streams of steps, as if the model were unloaded.
    pub fn end_watches(&self) {
        self.watchers.lock().unwrap().clear();
    }

    pub fn die(&self) {
        *self.alive.lock().unwrap() = false;
    }

    fn record(&self, event: RequestEvent) {
        // The receiver is gone when the test has ended.
        _ = self.request_events.send(event);
    }

    fn check_model(&self, model: ModelName<'_>) -> Result<(), Failure> {
        match model {
            None | Some("scripted" | "alias/one") => Ok(()),
            Some(model) => Err(Failure::unknown_model(model, &self.models())),
        }
    }

    /// A stream that ends when it is cancelled.
    fn endless(&self, id: &str) -> Events {
        let mut cancelled = self.cancelled.subscribe();
        let own = id.to_owned();
        let end = async move {
            _ = cancelled.wait_for(|ids| ids.contains(&own)).await;
            finished(FinishReason::Cancelled, 1, 1)
        };
        let begin = stream::iter([started(1), delta("w", 0, None)]);
        begin.chain(end.into_stream()).boxed()
    }
}

fn words(input: &Input) -> String {
    match input {
        Input::Text(text) => text.clone(),
        Input::Infill { prefix, suffix, files } => {
            let files: String = files.iter().map(|(name, text)| format!("{name} {text} ")).collect();
            format!("{files}{prefix} {suffix}")
        }
        Input::Tokens(tokens) => tokens.iter().map(|token| format!("t{token} ")).collect(),
        Input::Chat(chat) => {
            let last = chat.messages.last().and_then(Message::text).unwrap_or_default();
            // A message that begins so has the whole conversation as its prompt.
            match last.starts_with("all ") {
                true => chat.messages.iter().rev().filter_map(Message::text).collect::<Vec<_>>().join(" "),
                false => last,
            }
        }
    }
}

fn tokens_of(text: &str) -> Vec<u32> {
    text.split_whitespace()
        .map(|word| word.bytes().fold(7, |hash: u32, byte| (hash * 31 + u32::from(byte)) % VOCAB))
        .collect()
}

fn token(text: &str, logprobs: Option<usize>) -> TokenInfo {
    let candidate =
        |rank: usize| Candidate { id: rank as u32, bytes: format!("c{rank}").into(), logprob: -1.0 };
    TokenInfo {
        id: 5,
        bytes: text.into(),
        logprob: logprobs.map(|_| -0.5),
        top: (0..logprobs.unwrap_or(0)).map(candidate).collect(),
    }
}

fn started(prompt_tokens: usize) -> Event {
    Event::Started { prompt_tokens, cached_tokens: 1 }
}

fn delta(text: &str, index: usize, logprobs: Option<usize>) -> Event {
    let text = format!("{text}{index} ");
    Event::Delta { tokens: vec![token(&text, logprobs)], delta: Delta::Text(text) }
}

fn finished(reason: FinishReason, prompt_tokens: usize, completion_tokens: usize) -> Event {
    let energy = EnergyUsage {
        prompt_microjoules: 1_500_000,
        completion_microjoules: 250_000,
        source: EnergySource::Estimate,
    };
    let (energy, usage) = (Some(energy), Usage::default());
    let usage = Usage { prompt_tokens, cached_tokens: 1, completion_tokens, energy, ..usage };
    Event::Finished { reason, matched: None, usage }
}

/// A call of the tool that the prompt names, with the arguments that follow the name.
fn call_events(prompt: &str) -> Vec<Event> {
    let mut words = prompt.splitn(3, ' ').skip(1);
    let (name, arguments) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let typed = |delta| Event::Delta { delta, tokens: Vec::new() };
    let (first, rest) = arguments.split_at(arguments.len() / 2);
    vec![
        started(1),
        typed(Delta::ToolCallStart { id: "call-1".into(), name: name.into() }),
        typed(Delta::ToolCallArguments(first.into())),
        typed(Delta::ToolCallArguments(rest.into())),
        typed(Delta::ToolCallEnd(omnibus_engine::CallEnding::Complete)),
        finished(FinishReason::Stop, 1, 9),
    ]
}

fn tool_call_events() -> Vec<Event> {
    let typed = |delta| Event::Delta { delta, tokens: Vec::new() };
    vec![
        started(1),
        typed(Delta::Reasoning("hm".into())),
        typed(Delta::Text("calling".into())),
        typed(Delta::ToolCallStart { id: "call-1".into(), name: "f".into() }),
        typed(Delta::ToolCallArguments("{\"a\":".into())),
        typed(Delta::ToolCallArguments("1}".into())),
        typed(Delta::ToolCallEnd(omnibus_engine::CallEnding::Complete)),
        finished(FinishReason::Stop, 1, 9),
    ]
}

impl Engine for ScriptedEngine {
    fn models(&self) -> Vec<ModelInfo> {
        vec![ModelInfo {
            id: "scripted".into(),
            aliases: vec!["alias/one".into()],
            state: ModelState::Ready(ModelDetails {
                architecture: "script".into(),
                quantization: None,
                context_length: CONTEXT,
                vocab_size: VOCAB as usize,
                hidden_size: 64,
                capabilities: Capabilities { thinking: true, tools: true, infill: true },
                memory: omnibus_engine::MemoryPlan::default(),
                max_model_len: CONTEXT,
                sampling: omnibus_engine::SamplingDefaults::default(),
                task: omnibus_engine::ModelTask::Generate,
                modalities: vec![omnibus_engine::Modality::Text],
                chat_template: Some(5),
            }),
            created: 1,
            adapter: None,
        }]
    }

    fn load_adapter(
        &self,
        _model: ModelName<'_>,
        name: &str,
        _path: &std::path::Path,
    ) -> Result<ModelInfo, Failure> {
        Err(Failure::bad_request("lora_path", format!("there is no adapter for `{name}`")))
    }

    fn unload_adapter<'a>(
        &'a self,
        _model: ModelName<'a>,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let unknown = Failure::unknown_model(name, &self.models());
        async { Err(unknown) }.boxed()
    }

    /// One model is never loaded.
    fn lease<'a>(&'a self, model: ModelName<'a>) -> BoxFuture<'a, Result<Lease, Failure>> {
        match model {
            Some(UNLOADED) => Box::pin(std::future::pending()),
            _ => Box::pin(std::future::ready(Ok(Lease::default()))),
        }
    }

    fn admit(&self, model: ModelName<'_>, _tenant: &str) -> Result<Admission, Failure> {
        self.check_model(model)?;
        Ok(Admission::default())
    }

    fn submit(&self, request: Request) -> Result<Events, Failure> {
        self.check_model(request.model.as_deref())?;
        request.validate()?;
        request.validate_logprobs(20)?;
        let unknown_token = request.sampling.logit_bias.keys().any(|id| *id >= VOCAB);
        if unknown_token {
            return Err(Failure::bad_request("logit_bias", "a token id is outside of the vocabulary"));
        }
        let prompt = words(&request.input);
        let tokens = self.tokenize(None, &request.input, AddSpecial::Yes)?;
        let count = request.max_new_tokens.unwrap_or(3);
        if tokens.len() + count > CONTEXT {
            return Err(Failure::TooLong {
                prompt_tokens: tokens.len(),
                completion_tokens: count,
                limit: CONTEXT,
            });
        }
        let given = matches!(request.input, Input::Tokens(_)).then_some(tokens.len());
        // A test that waits for this event finds the request among the running ones.
        self.running.lock().unwrap().insert(request.id.clone(), request.clone());
        self.record(RequestEvent::Submitted(Box::new(RequestSeen {
            id: request.id.clone(),
            tenant: request.tenant.clone(),
            seed: request.sampling.seed,
            tokens: given,
            class: request.class,
        })));
        if let Some(events) = super::scripts::events(&request.input) {
            let id = request.id.clone();
            self.running.lock().unwrap().remove(&id);
            return Ok(stream::iter(events).boxed());
        }
        let events = match prompt.split_whitespace().next().unwrap_or_default() {
            "busy" => {
                self.running.lock().unwrap().remove(&request.id);
                return Err(Failure::Busy { retry_after_s: 3 });
            }
            "panic" => {
                self.running.lock().unwrap().remove(&request.id);
                panic!("scripted panic");
            }
            "forever" => self.endless(&request.id),
            "fail" => stream::iter([Event::Failed(Failure::Timeout { after_s: 1.0 })]).boxed(),
            "break" => stream::iter([
                started(1),
                delta("w", 0, None),
                Event::Failed(Failure::Engine { message: "broke".into() }),
            ])
            .boxed(),
            "long" => {
                let reports = request.progress == omnibus_engine::ProgressReports::On;
                let processed = Event::Progress { processed_tokens: tokens.len() / 2 };
                let deltas = (0..count).map(|index| delta("w", index, None));
                let end = finished(FinishReason::Length, tokens.len(), count);
                let all = [started(tokens.len())].into_iter().chain(reports.then_some(processed));
                stream::iter(all.chain(deltas).chain([end]).collect::<Vec<_>>()).boxed()
            }
            "call" => stream::iter(call_events(&prompt)).boxed(),
            "tools" => stream::iter(tool_call_events()).boxed(),
            "vanish" => stream::iter([started(1), delta("w", 0, None)]).boxed(),
            _ => {
                let prompt_infos = request.prompt_logprobs.map(|top| {
                    let mut infos: Vec<_> =
                        prompt.split_inclusive(' ').map(|word| token(word, Some(top))).collect();
                    infos[0].logprob = None;
                    Event::Prompt(infos)
                });
                let deltas = (0..count).map(|index| delta("w", index, request.logprobs)).collect::<Vec<_>>();
                let end = finished(FinishReason::Length, tokens.len(), count);
                let all = [started(tokens.len())].into_iter().chain(prompt_infos).chain(deltas).chain([end]);
                stream::iter(all.collect::<Vec<_>>()).boxed()
            }
        };
        Ok(Tracked {
            id: request.id,
            ended: false,
            events,
            request_events: self.request_events.clone(),
            running: Arc::clone(&self.running),
        }
        .boxed())
    }

    fn transcribe(&self, _: Transcription) -> Result<Transcripts, Failure> {
        Err(Failure::bad_request("file", "a script has no sound"))
    }

    fn pool(&self, pooling: PoolingRequest) -> Result<PooledTexts, Failure> {
        self.check_model(pooling.request.model.as_deref())?;
        // A model of tokens' vectors gives two for each text.
        let of_tokens = match self.pooler.lock().unwrap().task() {
            Task::EmbedTokens => vec![5, 6],
            _ => Vec::new(),
        };
        let pooled = |number: usize| Pooled {
            numbers: match of_tokens.as_slice() {
                [] => vec![number as f32, 1.0],
                _ => vec![1.0, number as f32, number as f32, 1.0],
            },
            of_tokens: of_tokens.clone(),
            tokens: 3,
            cut_from: None,
        };
        let pooled: Vec<Pooled> = (0..pooling.inputs.len()).map(pooled).collect();
        Ok(Box::pin(async move { Ok(pooled) }))
    }

    /// Each reply is half as likely as the one before it. A prompt that begins with `long` is too long.
    fn score(&self, scoring: ScoringRequest) -> Result<ScoredReplies, Failure> {
        self.check_model(scoring.request.model.as_deref())?;
        let mut logprobs = Vec::new();
        for prompt in &scoring.prompts {
            let text = words(&Input::Chat(prompt.chat.clone()));
            if text.starts_with("long") {
                return Err(Failure::TooLong { prompt_tokens: 9, completion_tokens: 1, limit: 8 });
            }
            if text.starts_with("busy") {
                return Err(Failure::Busy { retry_after_s: 3 });
            }
            if text.starts_with("merged") {
                return Err(Failure::bad_request(&prompt.field, "no tokens of its own"));
            }
            logprobs.push((0..prompt.replies.len()).map(|reply| -0.8 - reply as f64 * 2f64.ln()).collect());
        }
        let scoring = Scoring { logprobs, prompt_tokens: 30, cached_tokens: 20 };
        Ok(Box::pin(async move { Ok(scoring) }))
    }

    fn pooler(&self, model: ModelName<'_>) -> Result<Pooler, Failure> {
        self.check_model(model)?;
        Ok(self.pooler.lock().unwrap().clone())
    }

    fn cancel(&self, id: &str) -> bool {
        self.record(RequestEvent::Cancelled(id.into()));
        self.cancelled.send_modify(|ids| _ = ids.insert(id.into()));
        true
    }

    fn requests(&self) -> Vec<RequestInfo> {
        let info = |request: &Request| RequestInfo {
            id: request.id.clone(),
            tenant: request.tenant.clone(),
            origin: request.origin.clone(),
            model: "scripted".into(),
            state: RequestState::Running,
            prompt_tokens: 1,
            generated_tokens: 1,
            age_s: 0.5,
            deadline_s: Some(4.5),
            blocks: Some(HeldBlocks { blocks: 3, shared: 1 }),
        };
        self.running.lock().unwrap().values().map(info).collect()
    }

    fn watch_steps(&self, model: ModelName<'_>) -> Result<Steps, Failure> {
        self.check_model(model)?;
        let (watcher, steps) = unbounded_channel();
        self.watchers.lock().unwrap().push(watcher);
        Ok(stream::unfold(steps, async |mut steps| Some((steps.recv().await?, steps))).boxed())
    }

    fn render(&self, model: ModelName<'_>, chat: omnibus_engine::Chat) -> Result<String, Failure> {
        self.check_model(model)?;
        Ok(words(&Input::Chat(chat)))
    }

    fn tokenize(
        &self,
        model: ModelName<'_>,
        input: &Input,
        _special: AddSpecial,
    ) -> Result<Vec<u32>, Failure> {
        self.check_model(model)?;
        let tokens = match input {
            Input::Tokens(tokens) => tokens.clone(),
            other => tokens_of(&words(other)),
        };
        match tokens.iter().find(|token| **token >= VOCAB) {
            Some(token) => {
                Err(Failure::bad_request("prompt", format!("the token {token} is outside of the vocabulary")))
            }
            None if tokens.is_empty() => Err(Failure::bad_request("prompt", "the prompt is empty")),
            None => Ok(tokens),
        }
    }

    fn pieces(&self, _model: ModelName<'_>, tokens: &[u32]) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(tokens.iter().map(|token| format!("t{token} ").into_bytes()).collect())
    }

    fn without_markers(&self, _model: ModelName<'_>, text: &str) -> Result<String, Failure> {
        Ok(text.replace("<|", "< |"))
    }

    fn detokenize(&self, _model: ModelName<'_>, tokens: &[u32]) -> Result<String, Failure> {
        match tokens.iter().find(|token| **token >= VOCAB) {
            Some(token) => {
                Err(Failure::bad_request("tokens", format!("the token {token} is outside of the vocabulary")))
            }
            None => Ok(tokens.iter().map(|token| format!("t{token} ")).collect()),
        }
    }

    fn health(&self, _model: ModelName<'_>) -> Result<Health, Failure> {
        Ok(Health { alive: *self.alive.lock().unwrap(), detail: "scripted".into() })
    }

    /// Every tenant has one session.
    fn sessions(&self, _model: ModelName<'_>, tenant: &str) -> Result<Vec<SessionInfo>, Failure> {
        Ok(vec![SessionInfo { id: format!("session of {tenant}"), tokens: 64, blocks: 2, idle_s: 1.5 }])
    }

    fn drop_session(&self, _model: ModelName<'_>, tenant: &str, id: &str) -> Result<bool, Failure> {
        Ok(id == format!("session of {tenant}"))
    }

    fn stats(&self, _model: ModelName<'_>) -> Result<Stats, Failure> {
        let running = self.running.lock().unwrap().len();
        let scheduler = SchedulerStats { running, ..SchedulerStats::default() };
        Ok(Stats { scheduler, ..Stats::default() })
    }

    /// Cancels at once, without waiting for the timeout.
    fn drain(&self, _timeout: Duration) -> BoxFuture<'_, ()> {
        let running: Vec<String> = self.running.lock().unwrap().keys().cloned().collect();
        self.cancelled.send_modify(|ids| ids.extend(running));
        Box::pin(std::future::ready(()))
    }
}

struct Tracked {
    id: String,
    ended: bool,
    events: Events,
    request_events: Sender<RequestEvent>,
    running: Arc<Mutex<BTreeMap<String, Request>>>,
}

impl Stream for Tracked {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let polled = self.events.poll_next_unpin(context);
        if let Poll::Ready(Some(Event::Finished { .. } | Event::Failed(_))) = &polled {
            self.ended = true;
        }
        polled
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.running.lock().unwrap().remove(&self.id);
        if !self.ended {
            _ = self.request_events.send(RequestEvent::Dropped(self.id.clone()));
        }
    }
}
