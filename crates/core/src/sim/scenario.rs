//! A scenario: a machine, its clients and its faults.

use omnibus_kv::CacheKind;
use serde::{Deserialize, Serialize};

use super::{Cost, Machine, MeasuredDrafts, Price, Rng};
use crate::drafting::DraftPolicy;
use crate::padding::Padding;
use crate::random::mix;
use crate::request::{Class, Tick};
use crate::settings::{
    CacheGroup, LatencyTargets, Offload, PreemptionPolicy, PrefixCache, Schedule, Settings, StageLimits,
    StaticBatch, SwapSettings, Tuning,
};

/// A scenario to simulate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Of the scheduler.
    pub settings: Settings,
    /// In order of time.
    pub arrivals: Vec<Arrival>,
    /// How long steps take.
    pub machine: Machine,
    /// Draft tokens in place of those of the arrivals, if they were measured.
    #[serde(default)]
    pub drafts: Option<MeasuredDrafts>,
    /// Faults.
    pub faults: Faults,
    /// Whether a step is launched before the last one is read.
    pub overlap: Overlap,
    /// Offload tiers.
    pub tier: Tier,
    /// When the scheduler's state is audited.
    pub audits: Audits,
    /// Decides when faults happen.
    pub seed: u64,
}

/// One request of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Arrival {
    /// When.
    pub at: Tick,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// The request's limit. Zero: it only computes its prompt.
    pub max_new_tokens: usize,
    /// New tokens after which the model stops, if the limit does not come first.
    pub answer: usize,
    /// Requests of one conversation have equal tokens as long as all of them are `alike`.
    pub conversation: u64,
    /// Leading tokens, of the prompt and the answer, that are the conversation's. The rest are its own.
    pub alike: usize,
    /// [`crate::Request::cache_salt`].
    pub salt: u64,
    /// [`crate::Request::adapter`].
    pub adapter: u64,
    /// Whether some tokens stand for content.
    pub marks: bool,
    /// Which of them attend to each other.
    pub spans: SpanKind,
    /// [`crate::Request::session`].
    pub session: Option<u64>,
    /// [`crate::Request::boundaries`].
    pub boundaries: Vec<usize>,
    /// [`crate::Request::class`].
    pub class: Class,
    /// [`crate::Request::priority`].
    pub priority: i32,
    /// [`crate::Request::tenant`].
    pub tenant: u64,
    /// Draft tokens that are offered after each step with tokens, at most.
    pub draft_tokens: usize,
    /// From arrival to the deadline.
    pub patience: Option<Tick>,
    /// From arrival until the client disconnects.
    pub leaves_after: Option<Tick>,
    /// Every step with this request fails.
    pub is_poison: bool,
}

/// Which tokens of a prompt attend to each other in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SpanKind {
    /// None.
    #[default]
    None,
    /// Some runs, of at most so many tokens.
    Runs(usize),
    /// All.
    Prompt,
}

/// Offload tiers. The size of a block follows from [`omnibus_kv::KvCacheSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tier {
    /// At most so long is a sequence held while its blocks are read from disk. Zero: there is no disk.
    pub delay: Tick,
    /// One in so many blocks cannot be read back; zero for none.
    pub loss_one_in: u64,
    /// Blocks that the host's memory has room for. Zero: none are kept there.
    pub host_blocks: usize,
    /// Nanoseconds that a byte takes from the pools to the host, and back.
    pub byte_ns: (u64, u64),
}

/// Faults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Faults {
    /// One in so many steps fails; zero for none.
    pub step_one_in: u64,
    /// At most so many steps fail for that reason.
    pub steps_max: usize,
    /// One in so many samples fails; zero for none.
    pub row_one_in: u64,
    /// Steps of more tokens run out of memory. Not less than a block.
    pub tokens_max: Option<usize>,
    /// Steps of more sequences run out of memory. Not less than one.
    pub sequences_max: Option<usize>,
    /// At one in so many steps, the time that the scheduler is given jumps, back or ahead; zero for never.
    pub jump_one_in: u64,
    /// At one in so many steps, a client disconnects or the engine fails a sequence; zero for never.
    pub loss_one_in: u64,
    /// At one in so many steps, a sequence's number of draft tokens changes; zero for never.
    pub drafts_one_in: u64,
    /// After one in so many tokens, the sequence's next ones are forced; zero for never.
    pub force_one_in: u64,
    /// Background load.
    pub interference: Interference,
}

/// Background load, as it slows steps. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Interference {
    /// Any step takes up to so many thousandths more or less.
    pub jitter: u64,
    /// Mean time between other programs' bursts; zero for never.
    pub hiccup_every: Tick,
    /// Their length.
    pub hiccup: Tick,
    /// Mean time between slow periods; zero for never.
    pub slow_every: Tick,
    /// Their length.
    pub slow_for: Tick,
    /// The slowdown in thousandths.
    pub slow: u64,
}

impl Interference {
    /// The time of a step that begins now and would take `alone` on an idle machine.
    pub fn of(&self, took: Tick, now: Tick, rng: &mut Rng) -> Tick {
        let slow = if self.slow_every > 0 && now % self.slow_every < self.slow_for { self.slow } else { 0 };
        let jitter = if self.jitter > 0 { rng.below(2 * self.jitter + 1) } else { 0 };
        let took = took * (1000 + slow + jitter).saturating_sub(self.jitter) / 1000;
        let is_hit = self.hiccup_every > 0 && rng.below(self.hiccup_every) < took;
        if is_hit { took + self.hiccup } else { took }
    }
}

/// When the scheduler's state is audited, which takes longer than the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Audits {
    /// After every change.
    #[default]
    EveryStep,
    /// Once.
    AtTheEnd,
}

/// Whether a step is launched before the last one is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Overlap {
    /// One step in flight.
    Off,
    /// Two.
    #[default]
    On,
}

impl Scenario {
    /// A small, crowded and unlucky world, different for each seed.
    pub fn adversarial(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut settings = adversarial_settings(&mut rng);
        let mut arrivals = adversarial_arrivals(&mut rng, &settings);
        let faults = adversarial_faults(&mut rng, &settings);
        adversarial_spans(seed, &mut settings, &mut arrivals, &faults);
        adversarial_goals(seed, &mut arrivals);
        adversarial_classes(seed, &mut settings, &mut arrivals);
        let overlap = if rng.one_in(3) { Overlap::Off } else { Overlap::On };
        let prefill = Price { token_ns: 20_000, context_ps: 100_000 };
        let decode = Price { token_ns: 40_000, context_ps: 200_000 };
        let machine = Machine::Priced(Cost { step_ns: 300_000, prefill_step_ns: 0, prefill, decode });
        let tier = adversarial_tier(&mut rng);
        settings.swap = adversarial_swap(&mut rng, &mut settings, &tier);
        let audits = Audits::EveryStep;
        Self { settings, arrivals, machine, drafts: None, faults, overlap, tier, audits, seed: rng.draw() }
    }

    /// A well-behaved world: so many requests, on average `gap` apart, a third of them in conversations with one of
    /// eight long beginnings.
    pub fn typical(seed: u64, requests: usize, gap: Tick) -> Self {
        let mut rng = Rng::new(seed);
        let settings = Settings {
            block_size: 16,
            groups: vec![CacheGroup::of_kind(CacheKind::Full, 2048)],
            max_sequences: 64,
            max_step_tokens: 512,
            max_queue: 256,
            max_offline_queue: 256,
            max_context: 8192,
            max_span_tokens: 8192,
            schedule: Schedule::Fcfs,
            tuning: Tuning::default(),
            prefix_cache: PrefixCache::On,
            cache_events: crate::settings::CacheEvents::Ignored,
            session_ttl: 60_000_000,
            swap: SwapSettings::default(),
        };
        let mut at = 0;
        let arrivals = (0..requests).map(|_| {
            at += rng.below(2 * gap);
            typical_arrival(&mut rng, at)
        });
        let arrivals = arrivals.collect();
        let (machine, faults, overlap) = (Machine::default(), Faults::default(), Overlap::On);
        Self {
            settings,
            arrivals,
            machine,
            drafts: None,
            faults,
            overlap,
            tier: Tier::default(),
            audits: Audits::EveryStep,
            seed,
        }
    }
}

fn typical_arrival(rng: &mut Rng, at: Tick) -> Arrival {
    let alike = if rng.one_in(3) { 700 } else { 0 };
    Arrival {
        at,
        prompt: alike + rng.within(20..=400),
        max_new_tokens: 256,
        answer: rng.within(5..=200),
        conversation: rng.below(8),
        alike,
        ..Arrival::default()
    }
}

/// Memory for 0.8 to three sequences of the longest kind.
fn adversarial_settings(rng: &mut Rng) -> Settings {
    let block_size = rng.within(1..=5);
    let max_context = rng.within(8..=56);
    let longest = max_context.div_ceil(block_size);
    let pool = |rng: &mut Rng, one: usize| (one * rng.within(8..=30) / 10).max(1) as u32;
    let window = |rng: &mut Rng, most: usize| {
        let (tokens, sinks) = (rng.within(1..=most), if rng.one_in(3) { rng.within(1..=6) } else { 0 });
        let blocks = pool(rng, (tokens - 1).div_ceil(block_size) + 1 + sinks.div_ceil(block_size));
        CacheGroup::of_kind(CacheKind::SlidingWindow { tokens, sinks }, blocks)
    };
    let mut groups = Vec::new();
    let mixture = rng.below(8);
    if mixture != 6 {
        groups.push(CacheGroup::of_kind(CacheKind::Full, pool(rng, longest)));
    }
    if matches!(mixture, 3..=6) {
        groups.push(window(rng, 20));
    }
    if mixture == 5 {
        groups.push(window(rng, 9));
    }
    if mixture != 6 && rng.one_in(6) {
        let tokens = rng.within(1..=20);
        let blocks = pool(rng, tokens.div_ceil(block_size));
        groups.push(CacheGroup::of_kind(CacheKind::UnquantizedPrefix { tokens }, blocks));
    }
    if mixture == 7 || rng.one_in(6) {
        groups.push(CacheGroup::of_kind(CacheKind::State, rng.within(1..=9) as u32));
    }
    Settings {
        block_size,
        groups,
        max_sequences: rng.within(1..=7),
        max_step_tokens: rng.within(1..=24),
        max_queue: rng.within(1..=24),
        max_offline_queue: 24,
        max_context,
        max_span_tokens: max_context,
        schedule: [Schedule::Fair, Schedule::Fcfs, Schedule::Static, Schedule::Split][rng.within(0..=3)],
        tuning: adversarial_tuning(rng),
        prefix_cache: if rng.one_in(6) { PrefixCache::Off } else { PrefixCache::On },
        cache_events: crate::settings::CacheEvents::Ignored,
        session_ttl: rng.below(30_000),
        swap: SwapSettings::default(),
    }
}

fn adversarial_tuning(rng: &mut Rng) -> Tuning {
    let target = |rng: &mut Rng| rng.one_in(2).then(|| rng.below(20_000));
    let mut tuning = Tuning {
        targets: LatencyTargets { ttft: target(rng), tpot: target(rng) },
        batch: StaticBatch { sequences: rng.within(1..=6), wait: rng.below(5_000) },
        stages: StageLimits { prefill: rng.within(1..=3), decode: rng.within(1..=5) },
        drafts: DraftPolicy::Adaptive,
        step_time: None,
        padding: Padding::None,
    };
    // Not drawn, so that a seed's other numbers stay what they were.
    if tuning.batch.wait.is_multiple_of(2) {
        tuning.drafts = DraftPolicy::All;
    }
    if tuning.batch.wait.is_multiple_of(3) {
        tuning.padding = Padding::Buckets;
    }
    tuning
}

fn adversarial_arrivals(rng: &mut Rng, settings: &Settings) -> Vec<Arrival> {
    let count = rng.within(1..=18);
    let conversations = rng.within(1..=4) as u64;
    let gap = [50, 500, 3_000][rng.within(0..=2)];
    let longest_prompt = settings.max_context * [1, 3][rng.within(0..=1)] / 4;
    let leaves_one_in = rng.within(0..=6) as u64;
    let drafts_max = if rng.one_in(2) { 0 } else { rng.within(1..=4) };
    let mut at = 0;
    let mut arrival = |rng: &mut Rng| {
        at += rng.below(gap);
        let prompt = rng.within(1..=longest_prompt);
        let max_new_tokens = rng.within(1..=settings.max_context + 1 - prompt);
        let alike = if rng.one_in(3) { 0 } else { rng.within(0..=settings.max_context) };
        Arrival {
            at,
            prompt,
            max_new_tokens,
            answer: rng.within(1..=max_new_tokens * 2),
            conversation: rng.below(conversations),
            alike,
            salt: u64::from(rng.one_in(5)),
            adapter: u64::from(rng.one_in(8)),
            marks: rng.one_in(3),
            spans: SpanKind::None,
            session: rng.one_in(2).then(|| rng.below(6)),
            boundaries: (0..rng.below(5)).map(|_| rng.within(0..=prompt + 2)).collect(),
            class: Class::Online,
            priority: if rng.one_in(3) { rng.within(0..=4) as i32 - 2 } else { 0 },
            tenant: if rng.one_in(3) { rng.below(4) } else { 0 },
            draft_tokens: rng.within(0..=drafts_max),
            patience: rng.one_in(8).then(|| rng.below(40_000)),
            leaves_after: rng.one_in(leaves_one_in).then(|| rng.below(20_000)),
            is_poison: rng.one_in(60),
        }
    };
    (0..count).map(|_| arrival(rng)).collect()
}

/// Spans for some sequences of some worlds, some too long for their steps. Drawn from numbers of their own, so that a
/// seed's other numbers stay what they were.
fn adversarial_spans(seed: u64, settings: &mut Settings, arrivals: &mut [Arrival], faults: &Faults) {
    let mut rng = Rng::new(mix(seed ^ 0x5AA5));
    if rng.one_in(3) {
        return;
    }
    // A span that no step has memory for fails its sequence, which is tested elsewhere.
    let memory = faults.tokens_max.unwrap_or(usize::MAX);
    settings.max_span_tokens = rng.within(1..=settings.max_context).min(memory);
    let longest = rng.within(1..=12);
    for arrival in arrivals {
        arrival.spans = match rng.below(6) {
            0..=2 => SpanKind::Runs(longest),
            3 => SpanKind::Prompt,
            _ => SpanKind::None,
        };
    }
}

/// Some requests of half of the worlds only compute. Drawn from numbers of their own, which leave the worlds of the seeds
/// that are tests as they were.
fn adversarial_goals(seed: u64, arrivals: &mut [Arrival]) {
    let mut rng = Rng::new(mix(seed ^ 0x6050));
    if rng.one_in(2) {
        return;
    }
    let one_in = rng.within(1..=6) as u64;
    for arrival in arrivals.iter_mut().filter(|_| rng.one_in(one_in)) {
        arrival.max_new_tokens = 0;
    }
}

/// Some requests of half of the worlds are offline. Drawn from numbers of their own, like the goals.
fn adversarial_classes(seed: u64, settings: &mut Settings, arrivals: &mut [Arrival]) {
    let mut rng = Rng::new(mix(seed ^ 0x6149));
    if rng.one_in(2) {
        return;
    }
    settings.max_offline_queue = rng.within(1..=24);
    let one_in = rng.within(1..=4) as u64;
    for arrival in arrivals.iter_mut().filter(|_| rng.one_in(one_in)) {
        arrival.class = Class::Offline;
    }
}

fn adversarial_tier(rng: &mut Rng) -> Tier {
    let disk = match rng.one_in(2) {
        true => Tier::default(),
        false => Tier { delay: rng.within(1..=5_000) as Tick, loss_one_in: rng.below(12), ..Tier::default() },
    };
    if rng.one_in(2) {
        return disk;
    }
    Tier { host_blocks: rng.within(1..=40), byte_ns: (rng.below(200), rng.below(200)), ..disk }
}

fn adversarial_swap(rng: &mut Rng, settings: &mut Settings, tier: &Tier) -> SwapSettings {
    if tier.delay == 0 && tier.host_blocks == 0 {
        return SwapSettings::default();
    }
    let policies = [PreemptionPolicy::Recompute, PreemptionPolicy::Swap, PreemptionPolicy::Auto];
    let preemption = policies[rng.within(0..=2)];
    for group in &mut settings.groups {
        group.spec.elements = (rng.within(1..=2_000) / (4 * settings.block_size)).max(1);
    }
    SwapSettings { preemption, offload: Offload::Available }
}

fn adversarial_faults(rng: &mut Rng, settings: &Settings) -> Faults {
    if rng.one_in(3) {
        return Faults::default();
    }
    let tokens = settings.block_size..=settings.block_size + settings.max_step_tokens;
    Faults {
        step_one_in: rng.within(0..=30) as u64,
        steps_max: rng.within(0..=4),
        row_one_in: if rng.one_in(2) { 0 } else { rng.within(20..=100) as u64 },
        tokens_max: rng.one_in(5).then(|| rng.within(tokens)),
        sequences_max: rng.one_in(5).then(|| rng.within(1..=4)),
        drafts_one_in: if rng.one_in(2) { 0 } else { rng.within(1..=20) as u64 },
        // Not drawn, so that a seed's other numbers stay what they were.
        force_one_in: (settings.max_context % 5) as u64,
        jump_one_in: if rng.one_in(3) { rng.within(5..=40) as u64 } else { 0 },
        loss_one_in: if rng.one_in(2) { 0 } else { rng.within(10..=60) as u64 },
        interference: adversarial_interference(rng),
    }
}

fn adversarial_interference(rng: &mut Rng) -> Interference {
    if rng.one_in(2) {
        return Interference::default();
    }
    Interference {
        jitter: rng.below(1000),
        hiccup_every: rng.below(10_000),
        hiccup: rng.below(20_000),
        slow_every: rng.below(200_000),
        slow_for: rng.below(100_000),
        slow: rng.below(5_000),
    }
}
