//! A load that changes all the time, for as long as wanted: what shows memory that is not given back, and drivers that
//! fail after minutes.
//!
//! Each stream sends one request after the other. Prompts share prefixes, lengths of prompts and answers differ, and some
//! requests are cancelled, so blocks of the prefix cache are evicted and buffers of many sizes come and go.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use omnibus_core::Stats as SchedulerStats;
use omnibus_engine::{Speculation, Stats, TokenRequest, TokenUpdate};
use serde::Serialize;

use super::BenchEngine;
use super::measured::MemoryUse;

/// Prefixes that prompts share.
const PREFIXES: usize = 8;
/// Most tokens of an answer.
const ANSWER_TOKENS: usize = 32;
/// One request in so many is cancelled at its first token.
const CANCELLED: u64 = 8;
/// Parts that the soak's time is divided into.
const PARTS: u32 = 10;
/// Without a report for so long, the engine hangs.
const SILENCE: Duration = Duration::from_secs(120);
/// Failed requests before the soak ends.
const FAILURES_MAX: usize = 100;

/// How long the load lasts, and how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoakLoad {
    /// Requests at once, at least one.
    pub streams: usize,
    /// Tokens of the longest prompt.
    pub context: usize,
    /// No request is sent later than this.
    pub duration: Duration,
    /// Requests that are sent at least, however long they take.
    pub requests: usize,
}

/// What a soak found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Soak {
    /// Requests that ended, with those that were cancelled or failed.
    pub requests: usize,
    /// Of these, those that were cancelled.
    pub cancelled: usize,
    /// Why requests failed; empty when all is well.
    pub failures: Vec<String>,
    /// Longest time between two reports of the engine, in milliseconds.
    pub longest_gap_ms: f64,
    /// Full blocks of prompts that the prefix cache had evicted.
    pub evicted_misses: u64,
    /// Sequences that were preempted.
    pub preemptions: u64,
    /// The soak in parts of equal time, oldest first. Memory that grows from part to part is not given back.
    pub parts: Vec<SoakPart>,
}

/// A part of a soak.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SoakPart {
    /// When it ended, in seconds since the soak began.
    pub end_s: f64,
    /// Requests that ended in it.
    pub requests: usize,
    /// Tokens a second, of all streams.
    pub tokens_per_s: f64,
    /// Memory at its end.
    pub memory: MemoryUse,
    /// Buffers of MLX's allocator at its end, with those it keeps for reuse; zero where they are not counted.
    pub buffers: u64,
}

impl Soak {
    /// Rows of a Markdown table.
    pub fn table(&self) -> String {
        let head =
            "| until, s | requests | tokens/s | memory, GB | kept for reuse, GB | peak, GB | buffers |";
        let rule = "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |";
        let rows = self.parts.iter().map(SoakPart::row);
        [head.to_owned(), rule.to_owned()].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }
}

impl SoakPart {
    fn row(&self) -> String {
        let Self { end_s, requests, tokens_per_s, memory, buffers } = self;
        let MemoryUse { active_bytes, peak_bytes, cache_bytes } = memory;
        let [active, kept, peak] = [active_bytes, cache_bytes, peak_bytes].map(|bytes| *bytes as f64 / 1e9);
        let buffers = if *buffers == 0 { "–".to_owned() } else { buffers.to_string() };
        format!(
            "| {end_s:.0} | {requests} | {tokens_per_s:.1} | {active:.3} | {kept:.3} | {peak:.3} | {buffers} |"
        )
    }
}

/// A soak that runs.
struct Running {
    load: SoakLoad,
    begun: Instant,
    /// Requests sent so far.
    sent: usize,
    /// What was sent and has not ended.
    live: BTreeMap<u64, Ending>,
    /// Of the part that runs.
    part: PartCounts,
    first: Option<SchedulerStats>,
    latest: Stats,
    last_report: Instant,
    found: Soak,
}

/// How a request is going to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    AtItsLimit,
    CancelledAtItsFirstToken,
    Cancelled,
}

#[derive(Debug, Default)]
struct PartCounts {
    requests: usize,
    tokens: usize,
}

impl BenchEngine {
    /// Runs a load that changes all the time. Fails when the engine hangs or has ended; requests that fail are in the result.
    pub fn soak(&mut self, load: SoakLoad) -> Result<Soak, String> {
        let prefixes: Vec<Vec<u32>> = (0..PREFIXES).map(|_| self.random_tokens(load.context / 2)).collect();
        let mut running = Running::new(load);
        mlx::memory::reset_peak_memory();
        loop {
            while running.live.len() < load.streams.max(1) && running.wants_more() {
                let ending = self.send(&prefixes, load.context)?;
                running.sent += 1;
                running.live.insert(ending.0, ending.1);
            }
            if running.live.is_empty() {
                return Ok(running.finish());
            }
            let report = self.next(Instant::now() + SILENCE)?;
            running.reported(report.at, report.stats);
            for (request, update) in report.updates {
                if running.updated(request, update) == Next::Cancel {
                    self.engine.cancel(request).map_err(|failure| failure.to_string())?;
                }
            }
            running.end_part_when_due();
        }
    }

    /// Sends a request: one of the prefixes, or none, and tokens of its own.
    fn send(&mut self, prefixes: &[Vec<u32>], context: usize) -> Result<(u64, Ending), String> {
        let which = self.rng.below(1 + prefixes.len() as u64) as usize;
        let mut prompt = prefixes.get(which).cloned().unwrap_or_default();
        let own = self.rng.within(1..=(context - prompt.len().min(context)).max(1));
        prompt.extend(self.random_tokens(own));
        let answer = self.rng.within(1..=ANSWER_TOKENS);
        let ending = match self.rng.one_in(CANCELLED) {
            true => Ending::CancelledAtItsFirstToken,
            false => Ending::AtItsLimit,
        };
        let request = self.submit(TokenRequest {
            prompt,
            max_new_tokens: answer,
            speculation: Speculation::Off,
            ..TokenRequest::default()
        })?;
        Ok((request, ending))
    }
}

/// What follows from an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Wait,
    Cancel,
}

impl Running {
    fn new(load: SoakLoad) -> Self {
        let begun = Instant::now();
        let found = Soak {
            requests: 0,
            cancelled: 0,
            failures: Vec::new(),
            longest_gap_ms: 0.0,
            evicted_misses: 0,
            preemptions: 0,
            parts: Vec::new(),
        };
        Self {
            load,
            begun,
            sent: 0,
            live: BTreeMap::new(),
            part: PartCounts::default(),
            first: None,
            latest: Stats::default(),
            last_report: begun,
            found,
        }
    }

    fn wants_more(&self) -> bool {
        let is_early = self.begun.elapsed() < self.load.duration || self.sent < self.load.requests;
        is_early && self.found.failures.len() < FAILURES_MAX
    }

    fn reported(&mut self, at: Instant, stats: Option<Stats>) {
        let gap_ms = 1e3 * at.saturating_duration_since(self.last_report).as_secs_f64();
        self.found.longest_gap_ms = self.found.longest_gap_ms.max(gap_ms);
        self.last_report = at;
        if let Some(stats) = stats {
            self.first.get_or_insert_with(|| stats.scheduler.clone());
            self.latest = stats;
        }
    }

    fn updated(&mut self, request: u64, update: TokenUpdate) -> Next {
        let Some(ending) = self.live.get_mut(&request) else { return Next::Wait };
        match update {
            TokenUpdate::Started => Next::Wait,
            TokenUpdate::Token => {
                self.part.tokens += 1;
                match ending {
                    Ending::CancelledAtItsFirstToken => {
                        *ending = Ending::Cancelled;
                        Next::Cancel
                    }
                    Ending::AtItsLimit | Ending::Cancelled => Next::Wait,
                }
            }
            TokenUpdate::Finished => {
                self.found.cancelled += usize::from(*ending == Ending::Cancelled);
                self.ended(request)
            }
            TokenUpdate::Failed(failure) => {
                self.found.failures.push(failure.to_string());
                self.ended(request)
            }
        }
    }

    fn ended(&mut self, request: u64) -> Next {
        self.live.remove(&request);
        self.found.requests += 1;
        self.part.requests += 1;
        Next::Wait
    }

    fn end_part_when_due(&mut self) {
        let ended = self.found.parts.len() as u32;
        // The last part ends with the last request.
        if ended + 1 < PARTS && self.begun.elapsed() >= self.load.duration / PARTS * (1 + ended) {
            self.end_part();
        }
    }

    fn end_part(&mut self) {
        let end_s = self.begun.elapsed().as_secs_f64();
        let start_s = self.found.parts.last().map_or(0.0, |part| part.end_s);
        let PartCounts { requests, tokens } = std::mem::take(&mut self.part);
        self.found.parts.push(SoakPart {
            end_s,
            requests,
            tokens_per_s: tokens as f64 / (end_s - start_s).max(f64::MIN_POSITIVE),
            memory: MemoryUse::now(),
            buffers: self.latest.buffers.count,
        });
    }

    fn finish(mut self) -> Soak {
        self.end_part();
        let first = self.first.unwrap_or_default();
        let since =
            |total: fn(&SchedulerStats) -> u64| total(&self.latest.scheduler).saturating_sub(total(&first));
        self.found.evicted_misses = since(|stats| stats.prefix_misses.evicted);
        self.found.preemptions = since(|stats| stats.preemptions_total);
        self.found
    }
}
