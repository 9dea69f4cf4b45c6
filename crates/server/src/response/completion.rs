//! A choice's events, folded into one completion.

use omnibus_engine::{
    CallEnding, Delta, FinishReason, SpeechSegment, SpeechSummary, StopMatch, TokenInfo, TranscriptionEvent,
};

use super::{Event, TimedChoice, ToolEvent};

/// The finished completion of one choice.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// The parts of the message, in order. Neighbours differ in kind, but for tool calls.
    pub parts: Vec<CompletionPart>,
    /// The tokens of each part, when their log-probabilities were requested. The last parts may have none.
    pub part_tokens: Vec<Vec<TokenInfo>>,
    /// The prompt's tokens, when their log-probabilities were requested.
    pub prompt_tokens: Vec<TokenInfo>,
    /// The generated tokens, with log-probabilities when requested.
    pub tokens: Vec<TokenInfo>,
    /// Why the completion ended.
    pub finish_reason: Option<FinishReason>,
    /// What it ended at.
    pub matched: Option<StopMatch>,
    /// Of a transcription.
    pub transcript: Transcript,
    /// How long it took.
    pub timed: TimedChoice,
}

/// The result of a transcription.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transcript {
    /// The segments, in order.
    pub segments: Vec<SpeechSegment>,
    /// What is known of the whole recording.
    pub summary: Option<SpeechSummary>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum CompletionPart {
    /// Text outside of reasoning and tool calls.
    Text(String),
    /// Reasoning.
    Reasoning(String),
    /// A tool call.
    ToolCall(ToolCall),
    /// What became of a tool that the server runs.
    Tool(ToolEvent),
}

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The id that the tool's result refers to.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments: JSON text, as generated.
    pub arguments: String,
    /// Whether the arguments are a complete JSON object.
    pub ending: CallEnding,
}

impl Completion {
    /// Adds an event.
    pub fn fold(&mut self, event: Event) {
        match event {
            Event::Engine(event) => self.fold_generation(event),
            Event::Speech(TranscriptionEvent::Segment(segment)) => self.transcript.segments.push(segment),
            Event::Speech(TranscriptionEvent::Finished(summary)) => self.transcript.summary = Some(summary),
            Event::Tool(event) => self.parts.push(CompletionPart::Tool(event)),
            Event::Speech(TranscriptionEvent::Failed(_)) | Event::Failed(_) => {}
        }
    }

    fn fold_generation(&mut self, event: omnibus_engine::Event) {
        use omnibus_engine::Event;
        match event {
            Event::Started { .. }
            | Event::Alignment(_)
            | Event::Hidden(_)
            | Event::TokenLogits(_)
            | Event::Progress { .. }
            | Event::Failed(_) => {}
            Event::Prompt(tokens) => self.prompt_tokens.extend(tokens),
            Event::Delta { delta, tokens } => {
                let with_logprob = tokens.iter().filter(|token| token.logprob.is_some());
                let of_part: Vec<TokenInfo> = with_logprob.cloned().collect();
                self.tokens.extend(tokens);
                self.fold_delta(delta);
                self.add_to_last_part(of_part);
            }
            Event::Finished { reason, matched, .. } => {
                self.finish_reason = Some(reason);
                self.matched = matched;
            }
        }
    }

    fn add_to_last_part(&mut self, tokens: Vec<TokenInfo>) {
        if tokens.is_empty() {
            return;
        }
        self.part_tokens.resize_with(self.parts.len().max(1), Vec::new);
        if let Some(last) = self.part_tokens.last_mut() {
            last.extend(tokens);
        }
    }

    /// The text, joined.
    pub fn text(&self) -> String {
        let text = |part: &CompletionPart| match part {
            CompletionPart::Text(text) => Some(text.clone()),
            CompletionPart::Reasoning(_) | CompletionPart::ToolCall(_) | CompletionPart::Tool(_) => None,
        };
        self.parts.iter().filter_map(text).collect()
    }

    /// The reasoning, joined. `None` if there is none.
    pub fn reasoning(&self) -> Option<String> {
        let reasoning = |part: &CompletionPart| match part {
            CompletionPart::Reasoning(text) => Some(text.clone()),
            CompletionPart::Text(_) | CompletionPart::ToolCall(_) | CompletionPart::Tool(_) => None,
        };
        let joined: String = self.parts.iter().filter_map(reasoning).collect();
        (!joined.is_empty()).then_some(joined)
    }

    /// The tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            CompletionPart::ToolCall(call) => Some(call),
            CompletionPart::Text(_) | CompletionPart::Reasoning(_) | CompletionPart::Tool(_) => None,
        })
    }

    fn fold_delta(&mut self, delta: Delta) {
        match (delta, self.parts.last_mut()) {
            (Delta::Text(more), Some(CompletionPart::Text(text)))
            | (Delta::Reasoning(more), Some(CompletionPart::Reasoning(text))) => text.push_str(&more),
            (Delta::Text(text) | Delta::Reasoning(text), _) if text.is_empty() => {}
            (Delta::Text(text), _) => self.parts.push(CompletionPart::Text(text)),
            (Delta::Reasoning(text), _) => self.parts.push(CompletionPart::Reasoning(text)),
            (Delta::ToolCallStart { id, name }, _) => {
                let call = ToolCall { id, name, arguments: String::new(), ending: CallEnding::Cut };
                self.parts.push(CompletionPart::ToolCall(call));
            }
            (Delta::ToolCallArguments(more), Some(CompletionPart::ToolCall(call))) => {
                call.arguments.push_str(&more);
            }
            (Delta::ToolCallEnd(ending), Some(CompletionPart::ToolCall(call))) => call.ending = ending,
            (Delta::ToolCallArguments(_) | Delta::ToolCallEnd(_), _) => {}
        }
    }
}
