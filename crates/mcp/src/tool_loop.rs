//! The loop in which a model calls tools: what becomes of the calls of a generation, and whether another one follows.
//!
//! Invariants: no clock, no server, no text of an API: what was spent is an argument. A loop ends: rounds, calls, time, tokens
//! and bytes have limits, and so has a call that is made again with the same result. A limit is said to the model once, in the
//! result of the call that is not made, and the generation after it is the last.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::LoopLimits;
use crate::outcome::Outcome;

/// How often a call with the same arguments may have the same result.
const REPEATS_MAX: usize = 2;

/// A call that a model made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The call's id.
    pub id: String,
    /// The name by which the model knows the tool.
    pub name: String,
    /// JSON text.
    pub arguments: String,
}

/// A call, with what the server knows of its tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopCall {
    /// The call.
    pub call: Call,
    /// Whether the client runs it.
    pub is_clients: bool,
    /// Whether it needs an approval.
    pub needs_approval: bool,
    /// Why it cannot be made, in words for the model: its arguments do not match.
    pub refusal: Option<String>,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The server makes it.
    Run,
    /// It waits for an approval.
    AskApproval,
    /// It is not made. The model reads why.
    Answer(String),
    /// The client makes it.
    LeaveToClient,
}

/// What follows the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Another generation.
    Generate,
    /// A last generation, for which a limit is the reason.
    GenerateLast(StopReason),
    /// Nothing: the client has calls to make, or approvals to give.
    End,
    /// Nothing, for a limit: the model called tools in its last generation.
    EndAt(StopReason),
}

/// The limit that a loop is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Rounds.
    Rounds,
    /// Calls.
    Calls,
    /// Time.
    Time,
    /// Tokens.
    Tokens,
    /// Bytes of results.
    ResultBytes,
    /// A call was made again, with the same result.
    Repetition,
}

impl StopReason {
    /// As in responses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rounds => "max_rounds",
            Self::Calls => "max_tool_calls",
            Self::Time => "max_seconds",
            Self::Tokens => "max_total_tokens",
            Self::ResultBytes => "max_result_bytes",
            Self::Repetition => "repeated_call",
        }
    }

    /// What the model reads in place of a result.
    fn answer(self) -> String {
        let why = match self {
            Self::Repetition => "this call was made before, with the same result",
            Self::Rounds | Self::Calls | Self::Time | Self::Tokens | Self::ResultBytes => {
                "the limit of tool calls of this request is reached"
            }
        };
        format!("This call was not made: {why}. Answer with what is known, without more tool calls.")
    }
}

/// What a loop has spent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Since its begin.
    pub time: Duration,
    /// Of all prompts and completions.
    pub tokens: usize,
}

/// What becomes of a generation's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The calls in their order.
    pub actions: Vec<(Call, Action)>,
    /// What follows.
    pub after: After,
}

/// The loop of one request.
#[derive(Debug)]
pub struct ToolLoop {
    limits: LoopLimits,
    rounds: usize,
    calls: usize,
    result_bytes: usize,
    /// Why the next generation is the last.
    last: Option<StopReason>,
    /// The hash of the result of each call, by name and arguments, and how often it was the same.
    results: BTreeMap<(String, String), (String, usize)>,
}

impl ToolLoop {
    /// A loop within limits, and with fewer calls where a request says so.
    pub fn new(limits: LoopLimits, requested_calls: Option<usize>) -> Self {
        let calls = requested_calls.map_or(limits.calls, |calls| calls.min(limits.calls));
        Self {
            limits: LoopLimits { calls, ..limits },
            rounds: 0,
            calls: 0,
            result_bytes: 0,
            last: None,
            results: BTreeMap::new(),
        }
    }

    /// What becomes of the calls of a generation that has ended.
    pub fn plan(&mut self, calls: Vec<LoopCall>, spent: Spent) -> Plan {
        self.rounds += 1;
        let had_last = self.last;
        let limit = had_last.or_else(|| self.limit(spent));
        let mut actions = Vec::with_capacity(calls.len());
        for LoopCall { call, is_clients, needs_approval, refusal } in calls {
            let reason = limit.or_else(|| self.call_limit(&call));
            let action = match (is_clients, reason, refusal) {
                (true, ..) => Action::LeaveToClient,
                (_, Some(reason), _) => {
                    self.last = Some(reason);
                    Action::Answer(reason.answer())
                }
                (.., Some(why)) => {
                    // The model may write it anew: it counts.
                    self.calls += 1;
                    Action::Answer(why)
                }
                (_, None, None) => {
                    self.calls += 1;
                    if needs_approval { Action::AskApproval } else { Action::Run }
                }
            };
            actions.push((call, action));
        }
        let waits =
            |(_, action): &(Call, Action)| matches!(action, Action::LeaveToClient | Action::AskApproval);
        let after = match (actions.iter().any(waits), had_last, self.last) {
            (true, ..) => After::End,
            (false, Some(reason), _) => After::EndAt(reason),
            (false, None, Some(reason)) => After::GenerateLast(reason),
            (false, None, None) => After::Generate,
        };
        Plan { actions, after }
    }

    /// Notes a result. Returns what the model gets of it.
    pub fn result(&mut self, call: &Call, outcome: Outcome) -> Outcome {
        let left = self.limits.result_bytes.saturating_sub(self.result_bytes);
        let outcome = outcome.within(left);
        self.result_bytes += outcome.text.len();
        let key = (call.name.clone(), same_arguments(&call.arguments));
        let (text, repeats) = self.results.entry(key).or_default();
        if *text == outcome.text {
            *repeats += 1;
        } else {
            (*text, *repeats) = (outcome.text.clone(), 1);
        }
        outcome
    }

    /// The limit that all calls are at.
    fn limit(&self, spent: Spent) -> Option<StopReason> {
        [
            (self.rounds > self.limits.rounds, StopReason::Rounds),
            (spent.time >= self.limits.time, StopReason::Time),
            (spent.tokens >= self.limits.tokens, StopReason::Tokens),
            (self.result_bytes >= self.limits.result_bytes, StopReason::ResultBytes),
        ]
        .into_iter()
        .find_map(|(is_reached, reason)| is_reached.then_some(reason))
    }

    /// The limit that one call is at.
    fn call_limit(&self, call: &Call) -> Option<StopReason> {
        let key = (call.name.clone(), same_arguments(&call.arguments));
        let is_repeated = self.results.get(&key).is_some_and(|(_, repeats)| *repeats >= REPEATS_MAX);
        match (self.calls >= self.limits.calls, is_repeated) {
            (true, _) => Some(StopReason::Calls),
            (false, true) => Some(StopReason::Repetition),
            (false, false) => None,
        }
    }
}

/// Arguments that differ only in their spaces are the same.
fn same_arguments(json: &str) -> String {
    serde_json::from_str::<serde_json::Value>(json)
        .map_or_else(|_| json.to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests;
