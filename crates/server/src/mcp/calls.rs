//! The calls of one generation, by who makes them, as its deltas come.

use omnibus_engine::{CallEnding, Delta, Event as EngineEvent, TokenInfo};
use omnibus_mcp::{Call, LoopCall, web_search};

use super::tools::ServerTools;
use crate::response::{Event, StartedCall, ToolEvent};

/// The calls so far.
#[derive(Debug, Default)]
pub struct Calls {
    done: Vec<MadeCall>,
    open: Option<OpenCall>,
}

/// A complete call, and whether the client runs it.
#[derive(Debug)]
struct MadeCall {
    call: Call,
    owner: Owner,
}

#[derive(Debug)]
struct OpenCall {
    call: Call,
    owner: Owner,
}

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The client, which sees it as any call.
    Client,
    /// This server, which shows it.
    Server,
    /// This server, once it is approved: until then nothing is shown.
    Pending,
    /// This server, which shows it whole: it is the search of the web.
    Search,
}

impl Calls {
    /// Takes a delta. Returns what the client sees of it.
    pub fn take(&mut self, delta: Delta, tokens: Vec<TokenInfo>, tools: &ServerTools) -> Option<Event> {
        match delta {
            Delta::ToolCallStart { id, name } => self.start(id, name, tokens, tools),
            Delta::ToolCallArguments(json) => self.arguments(json, tokens),
            Delta::ToolCallEnd(ending) => self.end(ending, tokens),
            delta @ (Delta::Text(_) | Delta::Reasoning(_)) => Some(engine(delta, tokens)),
        }
    }

    fn start(
        &mut self,
        id: String,
        name: String,
        tokens: Vec<TokenInfo>,
        tools: &ServerTools,
    ) -> Option<Event> {
        let call = Call { id: id.clone(), name: name.clone(), arguments: String::new() };
        let tool = tools.find(&name);
        let owner = match tool {
            None => Owner::Client,
            Some(tool) if tool.needs_approval => Owner::Pending,
            Some(tool) if tool.search().is_some() => Owner::Search,
            Some(_) => Owner::Server,
        };
        self.open = Some(OpenCall { call, owner });
        match (tool, owner) {
            (Some(tool), Owner::Server) => {
                let (label, name) = (tool.label.clone(), tool.definition.name.clone());
                Some(Event::Tool(ToolEvent::Started(StartedCall { id, label, name, approval_id: None })))
            }
            (_, Owner::Pending | Owner::Search) => None,
            _ => Some(engine(Delta::ToolCallStart { id, name }, tokens)),
        }
    }

    fn arguments(&mut self, json: String, tokens: Vec<TokenInfo>) -> Option<Event> {
        let Some(open) = &mut self.open else { return Some(engine(Delta::ToolCallArguments(json), tokens)) };
        open.call.arguments.push_str(&json);
        match open.owner {
            Owner::Client => Some(engine(Delta::ToolCallArguments(json), tokens)),
            Owner::Server => Some(Event::Tool(ToolEvent::Arguments { id: open.call.id.clone(), json })),
            Owner::Pending | Owner::Search => None,
        }
    }

    fn end(&mut self, ending: CallEnding, tokens: Vec<TokenInfo>) -> Option<Event> {
        let Some(OpenCall { call, owner }) = self.open.take() else {
            return Some(engine(Delta::ToolCallEnd(ending), tokens));
        };
        let shown = match owner {
            Owner::Client => Some(engine(Delta::ToolCallEnd(ending), tokens)),
            Owner::Server => Some(Event::Tool(ToolEvent::Called { id: call.id.clone() })),
            Owner::Search if ending == CallEnding::Complete => {
                let query = web_search::query(&call.arguments).unwrap_or_default();
                Some(Event::Tool(ToolEvent::SearchStarted { id: call.id.clone(), query }))
            }
            Owner::Pending | Owner::Search => None,
        };
        match (ending, owner) {
            (CallEnding::Complete, _) | (_, Owner::Server) => self.done.push(MadeCall { call, owner }),
            (CallEnding::Cut, Owner::Client | Owner::Pending | Owner::Search) => {}
        }
        shown
    }

    /// The calls of a generation that has ended, and whether this server has any to make.
    pub fn finish(self, tools: &ServerTools) -> Option<Vec<LoopCall>> {
        let is_servers = |made: &MadeCall| made.owner != Owner::Client;
        if !self.done.iter().any(is_servers) {
            return None;
        }
        let call = |MadeCall { call, owner }: MadeCall| {
            let tool = tools.find(&call.name);
            let read = tool.map(|tool| tool.arguments(&call.arguments));
            LoopCall {
                refusal: read.and_then(Result::err).map(|error| error.to_string()),
                is_clients: owner == Owner::Client,
                needs_approval: owner == Owner::Pending,
                call,
            }
        };
        Some(self.done.into_iter().map(call).collect())
    }

    /// Calls that are shown and that nothing is made of: the generation ended before they were complete.
    pub fn shown(self) -> Vec<Call> {
        let is_shown = |made: &MadeCall| matches!(made.owner, Owner::Server | Owner::Search);
        let open = self.open.map(|open| MadeCall { call: open.call, owner: open.owner });
        let open = open.filter(|made| made.owner == Owner::Server);
        self.done.into_iter().filter(is_shown).chain(open).map(|made| made.call).collect()
    }
}

fn engine(delta: Delta, tokens: Vec<TokenInfo>) -> Event {
    Event::Engine(EngineEvent::Delta { delta, tokens })
}
