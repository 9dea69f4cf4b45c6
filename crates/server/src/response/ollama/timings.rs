//! How long the parts of an answer took.

use std::time::{Duration, Instant};

use omnibus_engine::{Event as EngineEvent, Usage};

use crate::response::Event;
use crate::wire::ollama::response::Counters;

/// When the parts of an answer began.
#[derive(Debug, Clone, Copy)]
pub struct Timings {
    received: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
}

impl Timings {
    /// Of a request that is read now.
    pub fn start() -> Self {
        Self { received: Instant::now(), started: None, first: None }
    }

    /// Notes the time of an event.
    pub fn observe(&mut self, event: &Event) {
        let Event::Engine(event) = event else { return };
        match event {
            EngineEvent::Started { .. } => _ = self.started.get_or_insert_with(Instant::now),
            EngineEvent::Delta { .. } => _ = self.first.get_or_insert_with(Instant::now),
            EngineEvent::Progress { .. }
            | EngineEvent::Prompt(_)
            | EngineEvent::Alignment(_)
            | EngineEvent::Hidden(_)
            | EngineEvent::TokenLogits(_)
            | EngineEvent::Finished { .. }
            | EngineEvent::Failed(_) => {}
        }
    }

    /// The counters of an answer that ends now.
    pub fn counters(&self, usage: Usage) -> Counters {
        self.counters_at(usage, Instant::now())
    }

    fn counters_at(&self, usage: Usage, end: Instant) -> Counters {
        let started = self.started.unwrap_or(end);
        let first = self.first.unwrap_or(end);
        Counters {
            total_duration: nanoseconds(end.duration_since(self.received)),
            load_duration: nanoseconds(started.duration_since(self.received)),
            prompt_eval_count: usage.prompt_tokens,
            prompt_eval_duration: nanoseconds(first.duration_since(started)),
            eval_count: usage.completion_tokens,
            eval_duration: nanoseconds(end.duration_since(first)),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_nanoseconds_and_add_up() {
        let received = Instant::now();
        let after = |ms| received + Duration::from_millis(ms);
        let timings = Timings { received, started: Some(after(2)), first: Some(after(5)) };
        let usage = Usage { prompt_tokens: 7, completion_tokens: 3, ..Usage::default() };
        let counters = timings.counters_at(usage, after(11));
        let expected = Counters {
            total_duration: 11_000_000,
            load_duration: 2_000_000,
            prompt_eval_count: 7,
            prompt_eval_duration: 3_000_000,
            eval_count: 3,
            eval_duration: 6_000_000,
        };
        assert_eq!(counters, expected);
    }
}
