//! Runs the loop of one request: generations, and between them the calls of the model.
//!
//! Invariants: each generation is a request of its own for the scheduler, with the tenant, the class and the places of its
//! key, and its prompt begins with the one before it. Dropping the events cancels what runs, at the engine and at servers.

use std::sync::Arc;
use std::time::Instant;

use futures::channel::mpsc;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, FuturesUnordered};
use futures::{SinkExt, StreamExt};
use omnibus_engine::{
    ContentPart, EnergyUsage, Event as EngineEvent, FinishReason, Input, Message, PromptEnd, Request, Role,
    StopMatch, ToolArguments, ToolCall, ToolChoice, ToolResult, Usage,
};
use omnibus_mcp::{Action, After, Call, LoopCall, Outcome, Plan, Spent, ToolLoop};

use super::SharedMcp;
use super::approvals::{ApprovedCall, PendingCall};
use super::calls::Calls;
use super::tools::ServerTools;
use crate::error::ApiError;
use crate::response::{
    Completion, CompletionPart, Event, Found, ListedServer, SearchFailure, StartedCall, ToolEvent,
};

/// In place of a result that cannot be made plain text.
const UNSHOWN: &str = "[the result spells special tokens of this model, and is not shown]";

/// In place of the result of a search that is not made.
const USED_UP: &str = "This search was not made: the request has no more. Answer with what is known.";

/// What a request's loop needs.
#[derive(Clone)]
pub struct Loop {
    /// The server's.
    pub mcp: SharedMcp,
    /// The tools that it runs.
    pub tools: ServerTools,
    /// Most calls, where the request says so.
    pub max_calls: Option<usize>,
    /// Calls that were approved, and are made first.
    pub approved: Vec<ApprovedCall>,
    /// Servers whose tools are shown first.
    pub listed: Vec<ListedServer>,
}

/// Submits the generations of one HTTP request.
pub trait Generations: Send + Sync + 'static {
    /// Whose request it is.
    fn tenant(&self) -> &str;
    /// Whether the client cancelled the response while no generation ran.
    fn is_cancelled(&self) -> bool;
    /// Submits a generation. Takes milliseconds of CPU: not for an async thread.
    fn submit(&self, request: Request) -> Result<Events, ApiError>;
    /// Submits a generation that follows another, off the threads that serve connections. Returns its request, too.
    fn submit_next(
        self: Arc<Self>,
        next: NextGeneration,
    ) -> BoxFuture<'static, Result<(Request, Events), ApiError>>;
}

/// The events of one generation.
pub type Events = BoxStream<'static, Event>;

/// A generation that follows another.
pub struct NextGeneration {
    request: Request,
    /// The answer of the one before.
    answer: Vec<Message>,
    /// The texts of its calls' results, by the ids of the calls.
    results: Vec<(String, String)>,
}

impl NextGeneration {
    /// The model that generates.
    pub fn model(&self) -> Option<String> {
        self.request.model.clone()
    }

    /// Its request. `plain` makes a text from elsewhere one without tokens that steer the model, where it can.
    pub fn request(self, plain: impl Fn(&str) -> Option<String>) -> Request {
        let Self { mut request, answer, results } = self;
        if let Input::Chat(chat) = &mut request.input {
            chat.end = PromptEnd::Answer;
            chat.messages.extend(answer);
            for (id, text) in results {
                chat.messages.push(result(id, plain(&text).unwrap_or_else(|| UNSHOWN.to_owned())));
            }
        }
        // The tool that had to be called was called.
        request.tool_choice = ToolChoice::Auto;
        request
    }
}

/// A generation that has ended.
struct Generation {
    completion: Completion,
    calls: Calls,
    reason: FinishReason,
    matched: Option<StopMatch>,
}

/// Why the loop ended early.
enum Ended {
    /// The client has the reason, or is gone.
    Sent,
    /// It does not.
    Failed(ApiError),
}

impl From<ApiError> for Ended {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

struct Rounds {
    submission: Arc<dyn Generations>,
    request: Request,
    parts: Loop,
    tool_loop: ToolLoop,
    since: Instant,
    usage: Usage,
    /// How many searches of the web were made.
    searches: usize,
    has_started: bool,
    events: mpsc::Sender<Event>,
}

/// Starts the loop. Its first generation is submitted at once, unless approved calls come before it.
pub fn start(
    submission: &Arc<dyn Generations>,
    request: Request,
    parts: Loop,
) -> Result<BoxStream<'static, Event>, ApiError> {
    let first = match parts.approved.is_empty() {
        true => Some(submission.submit(request.clone())?),
        false => None,
    };
    let (events, receiver) = mpsc::channel(1);
    let tool_loop = ToolLoop::new(parts.mcp.servers().config().limits, parts.max_calls);
    let rounds = Rounds {
        submission: Arc::clone(submission),
        request,
        parts,
        tool_loop,
        since: Instant::now(),
        usage: Usage::default(),
        searches: 0,
        has_started: false,
        events,
    };
    // The loop runs while its events are read, and ends with them.
    let run = stream::once(rounds.run(first)).filter_map(|()| std::future::ready(None));
    Ok(stream::select(receiver, run).boxed())
}

impl Rounds {
    async fn run(mut self, first: Option<Events>) {
        if let Err(Ended::Failed(error)) = self.rounds(first).await {
            _ = self.send(Event::Failed(error)).await;
        }
    }

    async fn rounds(&mut self, first: Option<Events>) -> Result<(), Ended> {
        for server in std::mem::take(&mut self.parts.listed) {
            self.send(Event::Tool(ToolEvent::Listed(server))).await?;
        }
        let mut events = match first {
            Some(events) => events,
            None => {
                let results = self.make_approved().await?;
                self.submit(Vec::new(), results).await?
            }
        };
        loop {
            let generation = self.generation(&mut events).await?;
            let Generation { completion, calls, reason, matched } = generation;
            if reason != FinishReason::Stop {
                return self.cut(calls, reason, matched).await;
            }
            let Some(calls) = calls.finish(&self.parts.tools) else {
                return self.finish(reason, matched).await;
            };
            let Plan { actions, after } = self.plan(calls);
            let results = self.act(actions).await?;
            match after {
                After::Generate | After::GenerateLast(_) => {}
                After::End => return self.finish(FinishReason::Stop, None).await,
                After::EndAt(reason) => {
                    self.send(Event::Tool(ToolEvent::Stopped(reason))).await?;
                    return self.finish(FinishReason::Stop, None).await;
                }
            }
            if let After::GenerateLast(reason) = after {
                self.send(Event::Tool(ToolEvent::Limited(reason))).await?;
            }
            if self.submission.is_cancelled() {
                return self.finish(FinishReason::Cancelled, None).await;
            }
            let message = assistant(completion);
            events = self.submit(vec![message], results).await?;
        }
    }

    /// Passes the events of a generation on, until it ends.
    async fn generation(&mut self, events: &mut Events) -> Result<Generation, Ended> {
        let (mut completion, mut calls) = (Completion::default(), Calls::default());
        while let Some(event) = events.next().await {
            match event {
                Event::Engine(EngineEvent::Started { .. }) if self.has_started => {}
                Event::Engine(EngineEvent::Started { .. }) => {
                    self.has_started = true;
                    self.send(event).await?;
                }
                Event::Engine(EngineEvent::Delta { delta, tokens }) => {
                    let whole = EngineEvent::Delta { delta: delta.clone(), tokens: Vec::new() };
                    completion.fold(Event::Engine(whole));
                    if let Some(shown) = calls.take(delta, tokens, &self.parts.tools) {
                        self.send(shown).await?;
                    }
                }
                Event::Engine(EngineEvent::Finished { reason, matched, usage }) => {
                    add(&mut self.usage, &usage);
                    return Ok(Generation { completion, calls, reason, matched });
                }
                Event::Engine(EngineEvent::Failed(_)) => {
                    self.send(event).await?;
                    return Err(Ended::Sent);
                }
                other => self.send(other).await?,
            }
        }
        Err(ApiError::internal("the engine stopped before the completion was finished").into())
    }

    fn plan(&mut self, calls: Vec<LoopCall>) -> Plan {
        let tokens = self.usage.prompt_tokens + self.usage.completion_tokens;
        self.tool_loop.plan(calls, Spent { time: self.since.elapsed(), tokens })
    }

    /// Makes the calls of a plan, all at once. Returns the results in the order of the calls.
    async fn act(&mut self, actions: Vec<(Call, Action)>) -> Result<Vec<(String, Outcome)>, Ended> {
        let mut results: Vec<Option<(String, Outcome)>> = Vec::new();
        let mut running = FuturesUnordered::new();
        for (index, (call, action)) in actions.into_iter().enumerate() {
            results.push(None);
            match action {
                Action::Run if self.is_used_up(&call) => {
                    let (id, found) = (call.id.clone(), Found::Failed(SearchFailure::MaxUses));
                    self.send(Event::Tool(ToolEvent::SearchEnded { id, found })).await?;
                    put(&mut results, index, (call.id, Outcome::failure(USED_UP)));
                }
                Action::Run => {
                    let tools = self.parts.tools.clone();
                    running.push(async move { (index, run(&tools, &call).await, call) });
                }
                Action::Answer(text) => {
                    let outcome = Outcome::failure(text);
                    self.ended(&call, outcome.clone()).await?;
                    put(&mut results, index, (call.id, outcome));
                }
                Action::AskApproval => self.ask(call).await?,
                Action::LeaveToClient => {}
            }
        }
        while let Some((index, outcome, call)) = running.next().await {
            let outcome = self.tool_loop.result(&call, outcome);
            self.ended(&call, outcome.clone()).await?;
            put(&mut results, index, (call.id, outcome));
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// Makes the calls that were approved. The conversation has them, and needs their results.
    async fn make_approved(&mut self) -> Result<Vec<(String, Outcome)>, Ended> {
        let approved = std::mem::take(&mut self.parts.approved);
        let mut actions = Vec::new();
        for ApprovedCall { call, approval_id: approval } in approved {
            if let Some(tool) = self.parts.tools.find(&call.name) {
                let (label, name) = (tool.label.clone(), tool.definition.name.clone());
                let (id, approval_id) = (call.id.clone(), approval.clone());
                let started = StartedCall { id: id.clone(), label, name, approval_id: Some(approval_id) };
                self.send(Event::Tool(ToolEvent::Started(started))).await?;
                let json = call.arguments.clone();
                self.send(Event::Tool(ToolEvent::Arguments { id: id.clone(), json })).await?;
                self.send(Event::Tool(ToolEvent::Called { id })).await?;
            }
            // An approval is used once.
            let action = match self.parts.mcp.approvals.take(&approval, self.submission.tenant()) {
                Some(_) => Action::Run,
                None => Action::Answer("the approval was used before, or came too late".to_owned()),
            };
            actions.push((call, action));
        }
        self.act(actions).await
    }

    async fn ask(&mut self, call: Call) -> Result<(), Ended> {
        let Some(tool) = self.parts.tools.find(&call.name) else { return Ok(()) };
        let (label, name) = (tool.label.clone(), tool.definition.name.clone());
        let pending = PendingCall {
            tenant: self.submission.tenant().to_owned(),
            label: label.clone(),
            tool: name.clone(),
            arguments: call.arguments.clone(),
            hash: tool.definition.hash.clone(),
        };
        let approval_id = self.parts.mcp.approvals.add(pending);
        let started = StartedCall { id: call.id, label, name, approval_id: Some(approval_id.clone()) };
        let event = ToolEvent::NeedsApproval { approval_id, call: started, arguments: call.arguments };
        self.send(Event::Tool(event)).await
    }

    /// Submits the next generation, with an answer and the results of its calls.
    async fn submit(
        &mut self,
        answer: Vec<Message>,
        results: Vec<(String, Outcome)>,
    ) -> Result<Events, Ended> {
        let results = results.into_iter().map(|(id, outcome)| (id, outcome.text)).collect();
        let next = NextGeneration { request: self.request.clone(), answer, results };
        let (request, events) = Arc::clone(&self.submission).submit_next(next).await?;
        self.request = request;
        Ok(events)
    }

    /// Ends a response whose last generation was cut, and shows that its calls are not made.
    async fn cut(
        &mut self,
        calls: Calls,
        reason: FinishReason,
        matched: Option<StopMatch>,
    ) -> Result<(), Ended> {
        for call in calls.shown() {
            self.ended(&call, Outcome::failure("the call was not made: the answer was cut")).await?;
        }
        self.finish(reason, matched).await
    }

    async fn ended(&mut self, call: &Call, outcome: Outcome) -> Result<(), Ended> {
        let id = call.id.clone();
        let is_search = self.parts.tools.find(&call.name).is_some_and(|tool| tool.search().is_some());
        let event = match (is_search, outcome.is_error) {
            (false, _) => ToolEvent::Ended { id, outcome },
            (true, false) => ToolEvent::SearchEnded { id, found: Found::Text(outcome.text) },
            (true, true) => ToolEvent::SearchEnded { id, found: Found::Failed(SearchFailure::Unavailable) },
        };
        self.send(Event::Tool(event)).await
    }

    /// Whether a call is a search, of which the request has no more. Counts it otherwise.
    fn is_used_up(&mut self, call: &Call) -> bool {
        let Some(rules) = self.parts.tools.find(&call.name).and_then(|tool| tool.search()) else {
            return false;
        };
        let is_used_up = rules.max_uses.is_some_and(|most| self.searches >= most);
        self.searches += usize::from(!is_used_up);
        is_used_up
    }

    async fn finish(&mut self, reason: FinishReason, matched: Option<StopMatch>) -> Result<(), Ended> {
        let usage = self.usage;
        self.send(Event::Engine(EngineEvent::Finished { reason, matched, usage })).await
    }

    /// Fails when the response was dropped.
    async fn send(&mut self, event: Event) -> Result<(), Ended> {
        self.events.send(event).await.map_err(|_| Ended::Sent)
    }
}

fn put(results: &mut [Option<(String, Outcome)>], index: usize, result: (String, Outcome)) {
    if let Some(place) = results.get_mut(index) {
        *place = Some(result);
    }
}

/// Makes a call. What goes wrong is for the model to read.
async fn run(tools: &ServerTools, call: &Call) -> Outcome {
    let Some(tool) = tools.find(&call.name) else {
        return Outcome::failure(format!("there is no tool `{}`", call.name));
    };
    let made = async { tool.call(tool.arguments(&call.arguments)?).await };
    let outcome = made.await.unwrap_or_else(|error| Outcome::failure(error.to_string()));
    let (is_error, bytes) = (outcome.is_error, outcome.text.len());
    tracing::info!(server = tool.label, tool = tool.definition.name, is_error, bytes, "tool call");
    outcome
}

/// An answer as the next prompt has it.
fn assistant(completion: Completion) -> Message {
    let part = |part| match part {
        CompletionPart::Text(text) => Some(ContentPart::Text(text)),
        CompletionPart::Reasoning(text) => Some(ContentPart::Reasoning(text)),
        CompletionPart::ToolCall(call) => {
            let is_object =
                serde_json::from_str(&call.arguments).is_ok_and(|value: serde_json::Value| value.is_object());
            let arguments = match is_object {
                true => ToolArguments::Json(call.arguments),
                false => ToolArguments::Text(call.arguments),
            };
            Some(ContentPart::ToolCall(ToolCall { id: call.id, name: call.name, arguments }))
        }
        CompletionPart::Tool(_) => None,
    };
    let content = completion.parts.into_iter().filter_map(part).collect();
    Message { role: Role::Assistant, name: None, content }
}

fn result(call_id: String, text: String) -> Message {
    let content = vec![ContentPart::ToolResult(ToolResult { call_id, text })];
    Message { role: Role::Tool, name: None, content }
}

/// Adds the usage of a generation.
fn add(total: &mut Usage, more: &Usage) {
    total.prompt_tokens += more.prompt_tokens;
    total.cached_tokens += more.cached_tokens;
    total.completion_tokens += more.completion_tokens;
    total.reasoning_tokens += more.reasoning_tokens;
    total.drafts += more.drafts;
    total.energy = EnergyUsage::sum(total.energy, more.energy);
    total.media.images += more.media.images;
    total.media.audio += more.media.audio;
}
