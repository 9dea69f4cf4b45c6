//! Chosen tokens against a sort of the whole vocabulary.

use super::{Choose, Masks, NUMBERS, Xtc};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.unit() * from.len() as f64) as usize]
    }
}

#[derive(Debug, Clone, Copy)]
struct Parameters {
    temperature: f64,
    top_p: f64,
    min_p: f64,
    share: f64,
    top_k: usize,
}

impl Parameters {
    fn random(random: &mut Random, vocab: usize) -> Self {
        Self {
            temperature: random.pick(&[0.0, 0.3, 0.7, 1.0, 1.5, 20.0]),
            top_p: random.pick(&[1.0, 0.95, 0.8, 0.5, 0.01]),
            min_p: random.pick(&[0.0, 0.0, 0.05, 0.5]),
            share: random.unit().min(0.999_999),
            top_k: random.pick(&[0, 1, 2, 20, 300, vocab, vocab + 5]),
        }
    }
}

/// The kept tokens with their weights, in the order of ids.
fn kept(logits: &[f32], of: &Parameters) -> Vec<(usize, f64)> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |logit: f32| ((f64::from(logit) - f64::from(most)) / of.temperature).exp();
    let mut order: Vec<(usize, f64)> = logits.iter().map(|logit| weight(*logit)).enumerate().collect();
    order.retain(|(_, weight)| *weight >= of.min_p);
    order.sort_by(|(i, a), (j, b)| b.total_cmp(a).then(i.cmp(j)));
    order.truncate(if of.top_k == 0 { usize::MAX } else { of.top_k });
    let total: f64 = order.iter().map(|(_, weight)| weight).sum();
    let mut before = 0.0;
    order.retain(|(_, weight)| {
        let keeps = before < total * of.top_p;
        before += weight;
        keeps
    });
    order.sort_by_key(|(id, _)| *id);
    order
}

/// How far the share is from choosing this token; infinite for a token that is not kept.
fn miss(logits: &[f32], of: &Parameters, token: usize) -> f64 {
    if of.temperature == 0.0 || of.top_k == 1 {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        return if Some(token) == logits.iter().position(|logit| *logit == most) {
            0.0
        } else {
            f64::INFINITY
        };
    }
    let kept = kept(logits, of);
    let total: f64 = kept.iter().map(|(_, weight)| weight).sum();
    let mut passed = 0.0;
    for (id, weight) in kept {
        if id == token {
            let (from, to) = (passed / total, (passed + weight) / total);
            return (from - of.share).max(of.share - to).max(0.0);
        }
        passed += weight;
    }
    f64::INFINITY
}

fn run(logits: &[f32], vocab: usize, rows: &[Parameters]) -> Vec<i32> {
    run_masked(logits, vocab, rows, None)
}

/// With each row's mask, and masks of so many words.
fn run_masked(
    logits: &[f32],
    vocab: usize,
    rows: &[Parameters],
    masks: Option<(&[i32], &[u32], usize)>,
) -> Vec<i32> {
    let numbers: Vec<f32> = rows
        .iter()
        .flat_map(|row| [row.temperature, row.top_p, row.min_p, row.share].map(|number| number as f32))
        .collect();
    assert_eq!(numbers.len(), NUMBERS * rows.len());
    let top_k: Vec<i32> = rows.iter().map(|row| row.top_k as i32).collect();
    let mut out = vec![-1; rows.len()];
    let mut inputs = vec![logits.as_ptr().cast(), numbers.as_ptr().cast(), top_k.as_ptr().cast()];
    if let Some((places, words, _)) = masks {
        assert_eq!(places.len(), rows.len());
        inputs.extend([places.as_ptr().cast(), words.as_ptr().cast()]);
    }
    let masks = masks.map(|(_, words, each)| Masks { count: words.len() / each, words: each });
    // SAFETY: the buffers have the sizes that the kernel names.
    unsafe { Choose { rows: rows.len(), vocab, masks, xtc: None }.run(&inputs, out.as_mut_ptr().cast()) };
    out
}

#[test]
fn tokens_are_those_of_a_sorted_vocabulary() {
    for seed in 0..400 {
        let mut random = Random(seed);
        let (vocab, rows) = (random.pick(&[1, 5, 100, 1000, 5003]), random.pick(&[1, 3]));
        let spread = random.pick(&[0.1, 3.0, 12.0]);
        // Steps make equal logits.
        let step = random.pick(&[0.0, 0.25]);
        let logits: Vec<f32> = (0..vocab * rows)
            .map(|_| {
                let logit = spread * (random.unit() + random.unit() + random.unit() - 1.5);
                (if step > 0.0 { (logit / step).round() * step } else { logit }) as f32
            })
            .collect();
        let parameters: Vec<Parameters> = (0..rows).map(|_| Parameters::random(&mut random, vocab)).collect();
        let tokens = run(&logits, vocab, &parameters);
        for ((token, of), logits) in tokens.iter().zip(&parameters).zip(logits.chunks_exact(vocab)) {
            // A weight at the edge of a filter may round to either side.
            let near = [0.0, 1e-6, -1e-6].map(|shift| {
                let moved = Parameters { top_p: of.top_p + shift, min_p: of.min_p * (1.0 + shift), ..*of };
                miss(logits, &moved, *token as usize)
            });
            assert!(
                near.iter().any(|miss| *miss < 1e-5),
                "seed {seed}: {token} of {vocab}, {of:?}: {near:?}"
            );
        }
    }
}

#[test]
fn what_is_not_a_number_gives_a_token() {
    let of = Parameters { temperature: 1.0, top_p: 0.9, min_p: 0.0, share: 0.5, top_k: 7 };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for logits in [vec![bad; 100], [vec![1.0; 50], vec![bad; 50]].concat()] {
            let token = run(&logits, 100, &[of])[0];
            assert!((0..100).contains(&token), "{bad}: {token}");
        }
    }
}

#[test]
fn parameters_out_of_range_give_a_token() {
    let logits: Vec<f32> = (0..100).map(|at| (at as f32 * 0.7).sin()).collect();
    let of = Parameters { temperature: 1.0, top_p: 0.9, min_p: 0.1, share: 0.5, top_k: 7 };
    for bad in [1e-40, 1e-29, 1e38, f64::INFINITY, f64::NAN] {
        for of in [
            Parameters { temperature: bad, ..of },
            Parameters { top_p: bad, ..of },
            Parameters { min_p: bad, ..of },
            Parameters { share: bad, ..of },
        ] {
            let token = run(&logits, 100, &[of])[0];
            assert!((0..100).contains(&token), "{of:?}: {token}");
        }
    }
}

#[test]
fn masked_tokens_are_never_chosen() {
    let mut logits = vec![f32::NEG_INFINITY; 3000];
    (logits[17], logits[2500]) = (-40.0, -41.0);
    for share in [0.0, 0.3, 0.999] {
        for top_k in [0, 2, 40] {
            let of = Parameters { temperature: 1.0, top_p: 0.999, min_p: 0.0, share, top_k };
            assert!([17, 2500].contains(&run(&logits, 3000, &[of])[0]));
        }
    }
}

#[test]
fn a_mask_is_as_good_as_logits_of_minus_infinity() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let vocab: usize = random.pick(&[1, 31, 64, 1000, 2047]);
        let words = random.pick(&[vocab.div_ceil(32), vocab / 32 + 3, (vocab / 64).max(1)]);
        let logits: Vec<f32> = (0..3 * vocab).map(|_| (random.unit() * 9.0) as f32).collect();
        let mut masks: Vec<u32> = (0..2 * words)
            .map(|_| random.pick(&[0, u32::MAX, 0xf0f0_1234, 1 << 31]) & (random.unit() * 8e9) as u32)
            .collect();
        // Each allows one token at least.
        (masks[0], masks[words]) = (masks[0] | 1, masks[words] | 1);
        let places = [1, random.pick(&[-1, 2, i32::MIN]), 0];
        let allows =
            |place: usize, id: usize| id / 32 < words && masks[place * words + id / 32] >> (id % 32) & 1 == 1;
        let mut forbidden = logits.clone();
        for (row, place) in places.iter().enumerate().filter(|(_, place)| [0, 1].contains(*place)) {
            let ids = (0..vocab).filter(|id| !allows(*place as usize, *id));
            ids.for_each(|id| forbidden[row * vocab + id] = f32::NEG_INFINITY);
        }
        let rows: Vec<Parameters> = (0..3).map(|_| Parameters::random(&mut random, vocab)).collect();
        let masked = run_masked(&logits, vocab, &rows, Some((&places, &masks, words)));
        assert_eq!(masked, run(&forbidden, vocab, &rows), "seed {seed}");
    }
}

#[test]
fn a_mask_that_allows_nothing_gives_a_token() {
    let of = Parameters { temperature: 1.0, top_p: 0.9, min_p: 0.1, share: 0.5, top_k: 7 };
    let token = run_masked(&[1.0; 100], 100, &[of], Some((&[0], &[0; 4], 4)))[0];
    assert!((0..100).contains(&token));
}

#[test]
fn the_most_likely_tokens_are_excluded_but_for_the_least_of_them() {
    // Of 50, 30, 15 and 5 in a hundred; each share of the rest chooses.
    let logits: Vec<f32> = [0.5_f32, 0.3, 0.15, 0.05].iter().map(|share| share.ln()).collect();
    let choose = |threshold: f32, stay: i32, top_k: i32, share: f32| {
        let (numbers, mut out) = ([1.0, 1.0, 0.0, share], [-1_i32]);
        let (top_k, thresholds, stay) = ([top_k], [threshold], [stay]);
        let inputs = [
            logits.as_ptr().cast(),
            numbers.as_ptr().cast(),
            top_k.as_ptr().cast(),
            thresholds.as_ptr().cast(),
            stay.as_ptr().cast(),
        ];
        // SAFETY: the buffers have the sizes that the kernel names.
        unsafe {
            let kernel = Choose { rows: 1, vocab: 4, masks: None, xtc: Some(Xtc { kept: 1 }) };
            kernel.run(&inputs, out.as_mut_ptr().cast());
        }
        out[0]
    };
    let shares = [0.01, 0.4, 0.74, 0.76, 0.99];
    let chosen = |threshold, stay, top_k| shares.map(|share| choose(threshold, stay, top_k, share));
    assert_eq!(chosen(0.1, -1, 0), [2, 2, 2, 3, 3]);
    assert_eq!(chosen(0.2, -1, 0), [1, 1, 2, 2, 3], "30, 15 and 5 are left");
    assert_eq!(chosen(0.4, -1, 0), [0, 0, 1, 1, 3], "one token alone is not excluded");
    assert_eq!(chosen(1.0, -1, 0), [0, 0, 1, 1, 3]);
    assert_eq!(chosen(0.1, 0, 0), [0, 0, 2, 2, 3], "50, 15 and 5 are left");
    assert_eq!(chosen(0.1, -1, 2), [1; 5], "of the two that are kept");
}
