//! What is drawn, against what should be: exact supports, and frequencies over many positions.

use mlx::Array;

use super::{History, Row, sample};
use crate::Sampling;

/// Probabilities 0.4, 0.3, 0.15, 0.1, 0.05, in an order that is not theirs.
const LIKELY: [f32; 5] = [0.1, 0.4, 0.05, 0.3, 0.15];

fn logits(rows: usize) -> Array {
    let row: Vec<f32> = LIKELY.iter().map(|p| p.ln()).collect();
    Array::from_slice(&row.repeat(rows), &[rows as i32, 5]).unwrap()
}

fn row(sampling: &Sampling, position: usize) -> Row<'_> {
    Row {
        sampling,
        seed: 11,
        position,
        history: History { tokens: &[], prompt: 0 },
        logprobs: None,
        fault: None,
    }
}

/// How often each token is drawn over many positions, as a share.
fn shares(sampling: &Sampling) -> [f32; 5] {
    const DRAWS: usize = 4000;
    let rows: Vec<Row<'_>> = (0..DRAWS).map(|position| row(sampling, position)).collect();
    let drawn = sample(&logits(DRAWS), &rows).unwrap();
    let mut shares = [0.0; 5];
    for sampled in drawn.read(&vec![None; DRAWS]).unwrap() {
        shares[sampled.token.unwrap() as usize] += 1.0 / DRAWS as f32;
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
fn a_temperature_of_one_draws_the_models_own_distribution() {
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
fn top_k_keeps_the_k_likeliest() {
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
fn a_tiny_top_p_keeps_the_likeliest() {
    check(Sampling { top_p: 1e-6, temperature: 5.0, ..Sampling::default() }, [0.0, 1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn min_p_keeps_what_is_near_the_likeliest() {
    check(Sampling { min_p: 0.3, ..Sampling::default() }, [0.0, 0.4 / 0.85, 0.0, 0.3 / 0.85, 0.15 / 0.85]);
}

#[test]
fn greedy_rows_take_the_likeliest_beside_rows_that_draw() {
    let (greedy, drawn, filtered) =
        (Sampling::greedy(), Sampling::default(), Sampling { top_k: 3, ..Sampling::default() });
    let kinds = [&drawn, &greedy, &filtered, &greedy, &drawn];
    let rows: Vec<Row<'_>> =
        kinds.iter().enumerate().map(|(position, sampling)| row(sampling, position)).collect();
    let together = sample(&logits(5), &rows).unwrap().read(&[None; 5]).unwrap();
    assert_eq!((together[1].token, together[3].token), (Some(1), Some(1)));
    for (position, sampling) in kinds.iter().enumerate() {
        let alone = sample(&logits(1), &[row(sampling, position)]).unwrap().read(&[None]).unwrap();
        assert_eq!(alone[0], together[position], "a row draws the same in any batch");
    }
}

#[test]
fn rows_that_are_not_numbers_fail_alone_and_stay_safe_to_feed() {
    let sampling = [Sampling::default(), Sampling::greedy(), Sampling { top_k: 2, ..Sampling::default() }];
    for sampling in &sampling {
        let values = [[f32::NAN; 5], [0.0; 5].map(|_: f32| 0.5)].concat();
        let logits = Array::from_slice(&values, &[2, 5]).unwrap();
        let drawn = sample(&logits, &[row(sampling, 0), row(sampling, 1)]).unwrap();
        assert!(drawn.tokens.to_vec::<i32>().unwrap().iter().all(|token| (0..5).contains(token)));
        let sampled = drawn.read(&[None; 2]).unwrap();
        assert_eq!(sampled[0].token, None);
        assert!(sampled[1].token.is_some());
    }
}

#[test]
fn penalties_lower_what_was_said() {
    let history = History { tokens: &[3, 1, 1], prompt: 1 };
    let tokens = |sampling: &Sampling| {
        let row = Row { sampling, seed: 0, position: 3, history, logprobs: Some(5), fault: None };
        sample(&logits(1), &[row]).unwrap().read(&[Some(5)]).unwrap().remove(0)
    };
    // Token 1 was said twice in the answer: 0.4 · e^(-0.2) stays ahead, 0.4 · e^(-0.2 · 2 - 0.1) does not.
    let light = Sampling { presence_penalty: 0.2, ..Sampling::greedy() };
    assert_eq!(tokens(&light).token, Some(1));
    let heavy = Sampling { presence_penalty: 0.1, frequency_penalty: 0.2, ..Sampling::greedy() };
    assert_eq!(tokens(&heavy).token, Some(3), "the prompt's tokens are not penalized by OpenAI's penalties");
    // Logits are negative, so the repetition penalty multiplies; it looks at the prompt, too.
    let repeated = Sampling { repetition_penalty: 3.0, ..Sampling::greedy() };
    assert_eq!(tokens(&repeated).token, Some(4));
    let recent = Sampling { repetition_context: 2, ..repeated };
    assert_eq!(tokens(&recent).token, Some(3));
    // Scores are the model's own, before all of this.
    let scored = tokens(&heavy);
    assert!((scored.logprob.unwrap() - 0.3f32.ln()).abs() < 1e-5);
    assert_eq!(scored.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 3, 4, 0, 2]);
}
