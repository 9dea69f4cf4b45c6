//! Random requests have the same tokens and log-probabilities with draft tokens of each kind and without, whatever else an engine
//! does: preemption, swap, prefix hits, adapters, recurrent states.
//!
//! `OMNIBUS_FUZZ_DRAFTS` sets how many requests are compared for each kind, `OMNIBUS_FUZZ_FIRST` the first. The number of a request
//! is its seed.

#![allow(clippy::print_stdout, reason = "what a long run compared")]

use std::path::Path;

use crate::common::draft_model::FirstLayers;
use crate::common::{Output, engine, fixture, output_tokens};
use crate::random_requests::{has_grammar, request};
use crate::speculation::{outputs, settings};
use omnibus_core::DraftPolicy;
use omnibus_engine::{
    DraftSource, DraftUsage, Handle, NamedAdapter, PreemptionPolicy, Request, Settings, Stats,
};
use omnibus_testing::mutate::cases;

/// Requests in a batch.
const BATCH: usize = 20;
/// Requests of each kind that every change is tested with.
const COUNT: u64 = 30;
/// Memory of few blocks: sequences are preempted, and blocks change hands.
const FEW_BLOCKS: u64 = 6 << 20;
/// The first request that is compared where those of every change did not preempt, and how many batches at most.
const FURTHER: u64 = 1_000_000;
const FURTHER_BATCHES: usize = 20;
/// Adapters of the embedded model.
const ADAPTERS: [&str; 2] = ["drift", "turn"];

/// The embedded model with its adapters.
fn with_adapters(settings: Settings) -> Settings {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/adapters");
    let adapters =
        ADAPTERS.map(|name| NamedAdapter { name: name.to_owned(), path: folder.join(name), loaded: None });
    Settings { adapters: adapters.into(), ..settings }
}

/// Sequences are preempted, and swapped or computed again.
fn tight(settings: Settings, preemption: PreemptionPolicy) -> Settings {
    Settings { kv_cache_memory: Some(FEW_BLOCKS), swap_space: Some(64 << 20), preemption, ..settings }
}

/// Two engines, and what requests they get.
struct Pair {
    plain: Handle,
    drafting: Handle,
    adapters: &'static [&'static str],
}

/// What was compared.
#[derive(Debug, Default)]
struct Compared {
    requests: usize,
    drafts: DraftUsage,
    in_grammars: DraftUsage,
    found_tokens: usize,
}

impl Pair {
    /// Engines of the embedded model. The one without drafts has more memory.
    fn embedded(drafting: Settings) -> Self {
        let plain = engine(with_adapters(settings(DraftSource::Off, None)));
        Self { plain, drafting: engine(with_adapters(drafting)), adapters: &ADAPTERS }
    }

    /// Engines of a fixture with a draft head, all of whose weights are random. Its attention is that of the checkpoint's kind.
    fn of_fixture(name: &str, source: DraftSource) -> Self {
        let (target, head) = fixture::with_draft_head_and_all_tokens(name, &format!("{source:?}"));
        let head = head.filter(|_| source != DraftSource::Ngram);
        let start = |settings: Settings| {
            fixture::engine(&target, Settings { kv_cache_memory: Some(64 << 20), ..settings })
        };
        let plain = start(settings(DraftSource::Off, None));
        Self { plain, drafting: start(settings(source, head.as_deref())), adapters: &[] }
    }

    /// Compares random requests. `changed`: what a request is in the engine with drafts, given its answer without.
    fn compare(&self, changed: impl Fn(&Request, &Output) -> Request) -> Compared {
        let numbers: Vec<u64> = cases("OMNIBUS_FUZZ_DRAFTS", COUNT).collect();
        self.compare_numbers(&numbers, changed)
    }

    fn compare_numbers(&self, numbers: &[u64], changed: impl Fn(&Request, &Output) -> Request) -> Compared {
        let mut compared = Compared::default();
        for batch in numbers.chunks(BATCH) {
            let requests: Vec<Request> = batch.iter().map(|number| request(*number, self.adapters)).collect();
            let without = outputs(&self.plain, requests.clone());
            let changed: Vec<Request> =
                requests.iter().zip(&without).map(|(request, answer)| changed(request, answer)).collect();
            let with = outputs(&self.drafting, changed.clone());
            for ((request, without), with) in changed.iter().zip(&without).zip(&with) {
                compared.add(request, without, with);
            }
        }
        println!("{compared:?}");
        compared
    }

    /// Compares requests, which have drafts of all kinds of places, and of the ones that are wrong, too.
    fn check(&self) -> Stats {
        self.check_changed(|request, _| request.clone())
    }

    /// Checks, and compares further requests until a sequence was preempted: how many run at once depends on the speed of the
    /// machine.
    fn check_preempted(&self) -> Stats {
        let mut stats = self.check();
        for further in (FURTHER..).step_by(BATCH).take(FURTHER_BATCHES) {
            if stats.scheduler.preemptions_total > 0 {
                break;
            }
            let numbers: Vec<u64> = (further..further + BATCH as u64).collect();
            self.compare_numbers(&numbers, |request, _| request.clone());
            stats = self.drafting.stats();
        }
        assert!(stats.scheduler.preemptions_total > 0, "{stats:?}");
        stats
    }

    fn check_changed(&self, changed: impl Fn(&Request, &Output) -> Request) -> Stats {
        let compared = self.compare(changed);
        let Compared { requests, drafts, in_grammars, found_tokens } = compared;
        let stats = self.drafting.stats();
        assert!(
            stats.scheduler.draft_tokens_total >= (drafts.accepted + drafts.rejected) as u64,
            "{stats:?}"
        );
        if requests >= COUNT as usize {
            assert!(drafts.accepted > requests / 4 && drafts.rejected > requests / 4, "{compared:?}");
            assert!(in_grammars.accepted + in_grammars.rejected > 0, "{compared:?}");
            // Where memory is short, all blocks that would be found may have been evicted.
            assert!(found_tokens > 0 || stats.scheduler.preemptions_total > 0, "{compared:?}");
        }
        stats
    }
}

impl Compared {
    /// A request as it was in the engine with drafts, and its two answers.
    fn add(&mut self, request: &Request, without: &Output, with: &Output) {
        let id = &request.id;
        let ids =
            |output: &Output| -> Vec<u32> { output_tokens(output).iter().map(|(token, _)| *token).collect() };
        assert_eq!(ids(with), ids(without), "request {id}");
        assert_eq!((&with.text, with.reason), (&without.text, without.reason), "request {id}");
        if output_tokens(without).iter().any(|(_, logprob)| logprob.is_some()) && request.logprobs.is_some() {
            assert_eq!(output_tokens(with), output_tokens(without), "request {id}");
        }
        assert_eq!(without.usage.drafts, DraftUsage::default());
        self.requests += 1;
        self.drafts += with.usage.drafts;
        self.found_tokens += with.usage.cached_tokens;
        if has_grammar(request) {
            self.in_grammars += with.usage.drafts;
        }
    }
}

#[test]
fn ngram_drafts_change_no_token() {
    let drafting = tight(settings(DraftSource::Ngram, None), PreemptionPolicy::Swap);
    let stats = Pair::embedded(drafting).check_preempted();
    assert!(stats.scheduler.swap_preemptions_total > 0, "{stats:?}");
}

#[test]
fn what_a_client_expects_changes_no_token() {
    let pair = Pair::embedded(settings(DraftSource::Ngram, None));
    pair.check_changed(|request, answer| {
        // Right at first, then wrong, then right again.
        let cut = answer.text.chars().count() / 2;
        let (one, two): (String, String) =
            (answer.text.chars().take(cut).collect(), answer.text.chars().skip(cut).collect());
        Request { prediction: Some(format!("{one} or not {two}")), ..request.clone() }
    });
}

/// Log-probabilities need a pass for each token, so that nothing is forced.
#[test]
fn tokens_that_a_grammar_forces_are_those_that_are_sampled() {
    let pair = Pair::embedded(settings(DraftSource::Off, None));
    let compared =
        pair.compare(|request, _| Request { logprobs: request.logprobs.xor(Some(0)), ..request.clone() });
    assert_eq!(compared.drafts, DraftUsage::default());
}

#[test]
fn drafts_of_a_model_or_of_ngrams_change_no_token() {
    let draft = FirstLayers::new("draft-bits", 5);
    let drafting = settings(DraftSource::Auto, Some(draft.path()));
    let stats = Pair::embedded(tight(drafting, PreemptionPolicy::Swap)).check_preempted();
    assert!(stats.scheduler.swap_preemptions_total > 0, "{stats:?}");
}

/// States of prompts are missing where their blocks are found.
#[test]
fn drafts_of_an_mtp_head_change_no_token() {
    let drafting = tight(settings(DraftSource::Mtp, None), PreemptionPolicy::Recompute);
    Pair::embedded(drafting).check_preempted();
}

/// By the adaptive policy: the head rests where its drafts do not pay, and begins again in the middle of sequences.
#[test]
fn a_head_that_drafts_at_times_changes_no_token() {
    let mut drafting = settings(DraftSource::Mtp, None);
    drafting.tuning.drafts = DraftPolicy::Adaptive;
    let pair = Pair::embedded(drafting);
    let batch = |number: u64| Request { max_new_tokens: Some(120), ..request(number, pair.adapters) };
    let requests: Vec<Request> = (7_000..7_024).map(batch).collect();
    let (without, with) = (outputs(&pair.plain, requests.clone()), outputs(&pair.drafting, requests.clone()));
    let mut compared = Compared::default();
    for ((request, without), with) in requests.iter().zip(&without).zip(&with) {
        compared.add(request, without, with);
    }
}

#[test]
fn drafts_of_a_hybrid_change_no_token() {
    Pair::of_fixture("qwen3_next.mtp.hf", DraftSource::Ngram).check();
    Pair::of_fixture("qwen3_next.mtp.hf", DraftSource::Mtp).check();
}

#[test]
fn drafts_with_latent_attention_change_no_token() {
    Pair::of_fixture("deepseek_v3.mtp.hf", DraftSource::Mtp).check();
}

/// Its own layer attends to a window, or is two: attention, then experts.
#[test]
fn drafts_of_heads_with_other_layers_than_the_targets_change_no_token() {
    Pair::of_fixture("mimo_v2_flash.mtp", DraftSource::Mtp).check();
    Pair::of_fixture("nemotron_h.moe.mtp", DraftSource::Mtp).check();
}

/// Some rows of a step verify copied text, and others what a head drafted.
#[test]
fn drafts_of_a_head_beside_ngrams_change_no_token() {
    Pair::of_fixture("deepseek_v3.mtp.hf", DraftSource::Auto).check();
}

#[test]
fn drafts_of_eagle3_heads_change_no_token() {
    Pair::of_fixture("eagle3.llama", DraftSource::Eagle3).check();
    Pair::of_fixture("eagle3.qwen3", DraftSource::Eagle3).check();
}

#[test]
fn drafts_of_a_dflash_head_change_no_token() {
    Pair::of_fixture("dflash.qwen3", DraftSource::Dflash).check();
}
