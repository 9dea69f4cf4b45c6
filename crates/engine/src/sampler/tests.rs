//! Sampled tokens against what they should be: exact supports, and frequencies over many positions.

use mlx::Array;
use omnibus_core::SequenceId;
use omnibus_grammar::TokenMask;

use super::{Chooser, LateStops, NewSequence, SampleRow, Sampler, SamplingChanges};
use crate::message::TokenLogprobs;
use crate::request::{Dry, SAMPLERS, SamplerKind, Sampling};

/// Probabilities 0.4, 0.3, 0.15, 0.1, 0.05, not in this order.
const LIKELY: [f32; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

fn logits(rows: usize) -> Array {
    let row: Vec<f32> = LIKELY.iter().map(|p| p.ln()).collect();
    Array::from_slice(&row.repeat(rows), &[rows as i32, 5]).unwrap()
}

fn new_sequence(id: usize, sampling: &Sampling) -> NewSequence {
    let sampling = Sampling { seed: Some(11), ..sampling.clone() };
    let sequence = SequenceId(id as u64);
    NewSequence {
        sequence,
        sampling,
        logprobs: None,
        logprob_token_ids: Vec::new(),
        tokens: Vec::new(),
        prompt: 0,
        late_stops: LateStops::default(),
        xtc_kept: Vec::new(),
        dry_breakers: Vec::new(),
    }
}

fn sampler(added: Vec<NewSequence>) -> Sampler {
    let mut sampler = Sampler::new(Chooser::Kernel);
    sampler.apply(&SamplingChanges { added, ..SamplingChanges::default() });
    sampler
}

fn row(id: usize, position: usize) -> SampleRow {
    SampleRow { sequence: SequenceId(id as u64), position, logits: 0 }
}

fn token(sampled: &Option<TokenLogprobs>) -> Option<u32> {
    sampled.as_ref().map(|sampled| sampled.token)
}

fn sample(sampler: &mut Sampler, logits: &Array, rows: &[SampleRow]) -> Vec<Option<TokenLogprobs>> {
    sampler.sample(logits, rows).unwrap().read().unwrap()
}

/// How often each token is sampled over many positions, as a share.
fn shares(sampling: &Sampling) -> [f32; 5] {
    const DRAWS: usize = 4000;
    let rows: Vec<SampleRow> = (0..DRAWS).map(|position| row(0, position)).collect();
    let mut shares = [0.0; 5];
    for sampled in sample(&mut sampler(vec![new_sequence(0, sampling)]), &logits(DRAWS), &rows) {
        shares[sampled.unwrap().token as usize] += 1.0 / DRAWS as f32;
    }
    shares
}

#[track_caller]
fn check(sampling: Sampling, want: [f32; 5]) {
    let found = shares(&sampling);
    for (found, want) in found.iter().zip(want) {
        // Three standard deviations of 4000 draws are below 0.025.
        let near = if want == 0.0 { *found == 0.0 } else { (found - want).abs() < 0.025 };
        assert!(near, "{found} is not {want} in {sampling:?}");
    }
}

#[test]
fn a_temperature_of_one_samples_the_models_own_distribution() {
    check(Sampling::default(), LIKELY);
}

#[test]
fn a_low_temperature_sharpens() {
    let squared: Vec<f32> = LIKELY.iter().map(|p| p * p).collect();
    let total: f32 = squared.iter().sum();
    let want =
        [squared[0] / total, squared[1] / total, squared[2] / total, squared[3] / total, squared[4] / total];
    check(Sampling { temperature: 0.5, ..Sampling::default() }, want);
}

#[test]
fn top_k_keeps_the_k_most_likely() {
    check(Sampling { top_k: 2, ..Sampling::default() }, [0.0, 0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]);
}

#[test]
fn a_top_k_beyond_the_vocabulary_keeps_all() {
    check(Sampling { top_k: 1 << 40, ..Sampling::default() }, LIKELY);
}

#[test]
fn top_p_keeps_the_smallest_set_that_reaches_it() {
    check(Sampling { top_p: 0.75, ..Sampling::default() }, [0.0, 0.4 / 0.85, 0.0, 0.3 / 0.85, 0.15 / 0.85]);
}

#[test]
fn a_tiny_top_p_keeps_the_most_likely() {
    check(Sampling { top_p: 1e-6, temperature: 5.0, ..Sampling::default() }, [0.0, 1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn min_p_keeps_tokens_near_the_most_likely() {
    check(Sampling { min_p: 0.3, ..Sampling::default() }, [0.0, 0.4 / 0.85, 0.0, 0.3 / 0.85, 0.15 / 0.85]);
}

#[test]
fn filters_follow_the_temperature() {
    // Tempered by 2: square roots, 0.632, 0.548, 0.387, 0.316, 0.224, in all 2.107.
    let roots = LIKELY.map(f32::sqrt);
    let total: f32 = roots.iter().sum();
    let hot = |sampling: Sampling| Sampling { temperature: 2.0, ..sampling };
    // 0.75 of the tempered distribution takes four tokens; of the model's own it would take three.
    let four = total - roots[2];
    let want = [roots[0] / four, roots[1] / four, 0.0, roots[3] / four, roots[4] / four];
    check(hot(Sampling { top_p: 0.75, ..Sampling::default() }), want);
    // A token of 0.3 of the best before, and of 0.55 now.
    let three = roots[1] + roots[3] + roots[4];
    let want = [0.0, roots[1] / three, 0.0, roots[3] / three, roots[4] / three];
    check(hot(Sampling { min_p: 0.6, ..Sampling::default() }), want);
}

#[test]
fn top_p_applies_to_what_top_k_keeps() {
    // Of 0.4 and 0.3, the first alone has 0.57 of the weight.
    check(Sampling { top_k: 2, top_p: 0.5, ..Sampling::default() }, [0.0, 1.0, 0.0, 0.0, 0.0]);
    check(Sampling { top_k: 2, top_p: 0.6, ..Sampling::default() }, [0.0, 0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]);
}

#[test]
fn greedy_rows_take_the_most_likely_beside_other_rows() {
    let filtered = Sampling { top_k: 3, ..Sampling::default() };
    let kinds = [Sampling::default(), Sampling::greedy(), filtered, Sampling::greedy(), Sampling::default()];
    let added = kinds.iter().enumerate().map(|(id, sampling)| new_sequence(id, sampling)).collect();
    let rows: Vec<SampleRow> = (0..kinds.len()).map(|id| row(id, id)).collect();
    let mut all = sampler(added);
    let together = sample(&mut all, &logits(5), &rows);
    assert_eq!((token(&together[1]), token(&together[3])), (Some(1), Some(1)));
    assert_eq!(sample(&mut all, &logits(5), &rows), together, "the kept batch samples the same");
    for (id, sampling) in kinds.iter().enumerate() {
        let alone = sample(&mut sampler(vec![new_sequence(id, sampling)]), &logits(1), &[row(id, id)]);
        assert_eq!(alone[0], together[id], "a row samples the same in any batch");
    }
    let some = [rows[4], rows[0]];
    assert_eq!(
        sample(&mut all, &logits(2), &some)[1],
        together[0],
        "a new batch takes the place of the kept one"
    );
}

#[test]
fn changed_parameters_take_effect_though_the_batch_has_the_same_sequences() {
    let mut sampler = sampler(vec![new_sequence(0, &Sampling::greedy())]);
    let rows = [row(0, 0)];
    assert_eq!(token(&sample(&mut sampler, &logits(1), &rows)[0]), Some(1));
    let biased = Sampling { logit_bias: [(2, 100.0)].into(), ..Sampling::greedy() };
    let added = vec![new_sequence(0, &biased)];
    sampler.apply(&SamplingChanges { added, ..SamplingChanges::default() });
    assert_eq!(token(&sample(&mut sampler, &logits(1), &rows)[0]), Some(2));
}

#[test]
fn rows_that_are_not_numbers_fail_alone_and_stay_valid_input() {
    let sampling = [Sampling::default(), Sampling::greedy(), Sampling { top_k: 2, ..Sampling::default() }];
    for sampling in &sampling {
        let values = [[f32::NAN; 5], [0.0; 5].map(|_: f32| 0.5)].concat();
        let logits = Array::from_slice(&values, &[2, 5]).unwrap();
        let mut sampler = sampler(vec![new_sequence(0, sampling), new_sequence(1, sampling)]);
        let pending = sampler.sample(&logits, &[row(0, 0), row(1, 1)]).unwrap();
        assert!(pending.tokens.to_vec::<i32>().unwrap().iter().all(|token| (0..5).contains(token)));
        let sampled = pending.read().unwrap();
        assert_eq!(token(&sampled[0]), None);
        assert!(token(&sampled[1]).is_some());
    }
}

#[test]
fn a_sequence_with_a_failed_update_fails_alone() {
    let mut sampler =
        sampler(vec![new_sequence(0, &Sampling::greedy()), new_sequence(1, &Sampling::greedy())]);
    let state = sampler.states.get_mut(&SequenceId(0)).unwrap();
    state.update(|_| std::panic::resume_unwind(Box::new("injected")));
    let sampled = sample(&mut sampler, &logits(2), &[row(0, 0), row(1, 0)]);
    assert_eq!((token(&sampled[0]), token(&sampled[1])), (None, Some(1)));
}

#[test]
fn named_tokens_are_scored_beside_the_most_likely_ones() {
    let named = |id: usize, tokens: &[u32], logprobs| NewSequence {
        logprobs,
        logprob_token_ids: tokens.to_vec(),
        ..new_sequence(id, &Sampling::greedy())
    };
    let sequences = vec![named(0, &[4, 1, 4], Some(0)), named(1, &[], Some(0)), named(2, &[0, 1], Some(1))];
    let mut sampler = sampler(sequences);
    let sampled = sample(&mut sampler, &logits(3), &[row(0, 0), row(1, 0), row(2, 0)]);
    let all = {
        let mut sampler = self::sampler(vec![named(0, &[], Some(5))]);
        sample(&mut sampler, &logits(1), &[row(0, 0)]).remove(0).unwrap().top
    };
    let of = |token: u32| *all.iter().find(|(listed, _)| *listed == token).unwrap();
    let top = |row: usize| sampled[row].as_ref().unwrap().top.clone();
    assert_eq!(top(0), [of(4), of(1)], "a token that is named twice is listed once");
    assert_eq!(top(1), []);
    assert_eq!(top(2), [of(1), of(0)], "the most likely one first");
}

#[test]
fn penalties_lower_the_logits_of_earlier_tokens() {
    let tokens = |sampling: &Sampling| {
        let (tokens, logprobs) = (vec![3, 1], Some(5));
        let new = NewSequence { tokens, prompt: 1, logprobs, ..new_sequence(0, sampling) };
        let mut sampler = sampler(vec![new]);
        let appended = vec![(SequenceId(0), vec![1])];
        sampler.apply(&SamplingChanges { appended, ..SamplingChanges::default() });
        sample(&mut sampler, &logits(1), &[row(0, 3)]).remove(0).unwrap()
    };
    // Token 1 is in the answer twice: 0.4 · e^(-0.2) stays ahead, 0.4 · e^(-0.2 · 2 - 0.1) does not.
    let light = Sampling { presence_penalty: 0.2, ..Sampling::greedy() };
    assert_eq!(tokens(&light).token, 1);
    let heavy = Sampling { presence_penalty: 0.1, frequency_penalty: 0.2, ..Sampling::greedy() };
    assert_eq!(tokens(&heavy).token, 3, "OpenAI's penalties leave the prompt's tokens out");
    // Logits are negative, so the repetition penalty multiplies; it applies to the prompt, too.
    let repeated = Sampling { repetition_penalty: 3.0, ..Sampling::greedy() };
    assert_eq!(tokens(&repeated).token, 4);
    let recent = Sampling { repetition_context: 2, ..repeated };
    assert_eq!(tokens(&recent).token, 3);
    // Log-probabilities are the model's own, before all of this.
    let scored = tokens(&heavy);
    assert!((scored.logprob.unwrap() - 0.3f32.ln()).abs() < 1e-5);
    assert_eq!(scored.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 3, 4, 0, 2]);
}

/// An order that is the default one but for two filters that are off.
fn reordered() -> Vec<SamplerKind> {
    let mut order: Vec<SamplerKind> = SAMPLERS.iter().map(|row| row.kind).collect();
    order.retain(|kind| !matches!(kind, SamplerKind::TopNSigma | SamplerKind::TypicalP));
    order
}

#[test]
fn the_samplers_here_keep_what_the_kernels_keep() {
    const ROWS: usize = 24;
    const VOCAB: i32 = 300;
    let of = |row: usize, order: Vec<SamplerKind>| Sampling {
        seed: Some(row as u64),
        temperature: [0.0, 0.7, 1.3][row % 3],
        top_k: [0, 1, 40][row / 3 % 3],
        top_p: [1.0, 0.9][row / 9 % 2],
        min_p: [0.0, 0.02][row / 2 % 2],
        xtc_probability: [0.0, 0.5][row % 2],
        xtc_threshold: 0.02,
        repetition_penalty: [1.0, 1.4][row / 4 % 2],
        presence_penalty: [0.0, 0.8][row / 5 % 2],
        logit_bias: [(7, 2.0)].into(),
        order,
        ..Sampling::default()
    };
    let tokens = |order: &[SamplerKind], logits: &Array, position| {
        let new = |id: usize| NewSequence {
            sampling: of(id, order.to_vec()),
            tokens: vec![3, 7, 9, 7, 11],
            prompt: 2,
            xtc_kept: vec![5],
            ..new_sequence(id, &Sampling::default())
        };
        let rows: Vec<SampleRow> = (0..ROWS).map(|id| row(id, position)).collect();
        let sampled = sample(&mut sampler((0..ROWS).map(new).collect()), logits, &rows);
        sampled.iter().map(token).collect::<Vec<_>>()
    };
    for seed in 0..20 {
        let key = mlx::random::key(seed).unwrap();
        let logits = mlx::random::normal(&[ROWS as i32, VOCAB], mlx::Dtype::F32, 2.0, &key).unwrap();
        let (kernels, here) = (tokens(&[], &logits, 9), tokens(&reordered(), &logits, 9));
        assert_eq!(here, kernels, "seed {seed}");
    }
}

#[test]
fn samplers_apply_in_the_order_of_the_request() {
    // Of the two most likely tokens the first has 0.57; of all, three are needed for 0.75.
    let sampling = Sampling { top_k: 2, top_p: 0.56, temperature: 9.0, ..Sampling::default() };
    let order = |order: &[SamplerKind]| Sampling { order: order.to_vec(), ..sampling.clone() };
    check(order(&[SamplerKind::TopK, SamplerKind::TopP]), [0.0, 1.0, 0.0, 0.0, 0.0]);
    check(order(&[SamplerKind::TopP, SamplerKind::TopK]), [0.0, 0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]);
    // Samplers that are not named are not applied.
    check(order(&[SamplerKind::TypicalP]), LIKELY);
}

#[test]
fn samplers_of_this_server_cut_and_temper() {
    check(Sampling { top_n_sigma: 0.5, ..Sampling::default() }, [0.0, 0.4 / 0.7, 0.0, 0.3 / 0.7, 0.0]);
    check(Sampling { top_n_sigma: 0.5, temperature: 50.0, ..Sampling::default() }, [0.0, 0.5, 0.0, 0.5, 0.0]);
    check(Sampling { typical_p: 0.2, ..Sampling::default() }, [0.0, 0.0, 0.0, 1.0, 0.0]);
    // The entropy is 0.8651 of the largest possible one, so the temperature is 0.8651 · 2.
    let power = LIKELY.map(|p| p.powf(1.0 / (0.8651 * 2.0)));
    let total: f32 = power.iter().sum();
    check(Sampling { dynatemp_range: 1.0, ..Sampling::default() }, power.map(|p| p / total));
}

#[test]
fn a_repetition_is_not_continued_and_log_probabilities_stay_the_models_own() {
    let dry = |breakers: Vec<Vec<u32>>| {
        let sampling = Sampling { dry: Dry { multiplier: 1.0, ..Dry::default() }, ..Sampling::greedy() };
        let (tokens, dry_breakers) = (vec![3, 0, 1, 4, 2, 3, 0], breakers);
        let new =
            NewSequence { tokens, dry_breakers, prompt: 3, logprobs: Some(1), ..new_sequence(0, &sampling) };
        sample(&mut sampler(vec![new]), &logits(1), &[row(0, 7)]).remove(0).unwrap()
    };
    // After 3, 0 stood 1, the most likely token.
    let penalized = dry(Vec::new());
    assert_eq!(penalized.token, 3);
    assert!((penalized.logprob.unwrap() - 0.3f32.ln()).abs() < 1e-5);
    assert_eq!(dry(vec![vec![0]]).token, 1, "a breaker ends the repetition");
}

#[test]
fn draft_tokens_before_a_row_repeat_too() {
    let sampling = Sampling { dry: Dry { multiplier: 1.0, ..Dry::default() }, ..Sampling::greedy() };
    let new = NewSequence { tokens: vec![3, 0, 1, 4, 2, 3], prompt: 3, ..new_sequence(0, &sampling) };
    let mut drafting = sampler(vec![new]);
    drafting.apply(&SamplingChanges { drafts: vec![(SequenceId(0), vec![0])], ..SamplingChanges::default() });
    let sampled = sample(&mut drafting, &logits(2), &[row(0, 6), row(0, 7)]);
    assert_eq!((token(&sampled[0]), token(&sampled[1])), (Some(1), Some(3)));
}

#[test]
fn a_mask_holds_for_rows_that_are_shaped() {
    let sampling = Sampling { typical_p: 0.2, ..Sampling::default() };
    let mut masked = sampler(vec![new_sequence(0, &sampling), new_sequence(1, &sampling)]);
    let mask = TokenMask::only(2, 5);
    masked.apply(&SamplingChanges { masks: vec![(SequenceId(0), vec![mask])], ..SamplingChanges::default() });
    let sampled = sample(&mut masked, &logits(2), &[row(0, 0), row(1, 0)]);
    assert_eq!((token(&sampled[0]), token(&sampled[1])), (Some(2), Some(3)));
}

#[test]
fn shaped_rows_that_are_not_numbers_fail_alone() {
    let sampling = Sampling { typical_p: 0.2, ..Sampling::default() };
    let values = [[f32::NAN; 5], LIKELY.map(f32::ln)].concat();
    let logits = Array::from_slice(&values, &[2, 5]).unwrap();
    let mut shaped = sampler(vec![new_sequence(0, &sampling), new_sequence(1, &sampling)]);
    let sampled = sample(&mut shaped, &logits, &[row(0, 0), row(1, 0)]);
    assert_eq!((token(&sampled[0]), token(&sampled[1])), (None, Some(3)));
}

#[test]
fn a_bad_word_is_not_generated() {
    let bad = |tokens: Vec<Vec<u32>>| {
        let mut sampling = Sampling::greedy();
        sampling.bad_words.tokens = tokens;
        sampling
    };
    // The answer so far is 2, 3; the prompt ends with 1.
    let next = |words: Vec<Vec<u32>>| {
        let sampling = bad(words);
        let (tokens, prompt) = (vec![0, 1, 2, 3], 2);
        let new = NewSequence { tokens, prompt, ..new_sequence(0, &sampling) };
        let changes = SamplingChanges { added: vec![new], ..SamplingChanges::default() };
        let mut sampler = Sampler::new(Chooser::Kernel);
        sampler.apply(&changes);
        let logits = Array::from_slice(&[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0], &[1, 6]).unwrap();
        let rows = [SampleRow { sequence: SequenceId(0), position: 4, logits: 0 }];
        sampler.sample(&logits, &rows).unwrap().read().unwrap()[0].as_ref().unwrap().token
    };
    assert_eq!(next(Vec::new()), 5);
    assert_eq!(next(vec![vec![5]]), 4, "one token is never sampled");
    assert_eq!(next(vec![vec![3, 5], vec![2, 3, 4]]), 3, "nor the last one of a sequence that stands there");
    assert_eq!(next(vec![vec![2, 5], vec![3, 2, 5]]), 5, "others are");
    assert_eq!(next(vec![vec![1, 2, 3, 5]]), 5, "the prompt's tokens are no part of it");
}
