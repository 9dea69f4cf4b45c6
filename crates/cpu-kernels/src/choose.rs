//! The sampled token of each row, without a sort of the vocabulary.
//!
//! Tokens are ordered by weight, `exp((logit − max) / temperature)`, the largest first, equal ones by id. Each filter keeps
//! a prefix of that order, so all that is kept is everything up to one [`Cut`]. Where a prefix ends is found with buckets
//! of similar weights, and one of them is sorted.

use std::cell::RefCell;

use super::math;
use super::pool;
use super::simd::{self, Simd, Work};

/// Fewer logits than this are faster on one thread.
const SMALL: usize = 1 << 12;
/// Numbers of a row beside its logits.
const NUMBERS: usize = 4;
/// Weights are at most one; floats of one bucket share the bits above these.
const BUCKET_BITS: u32 = 16;
const BUCKETS: usize = (1.0f32.to_bits() >> BUCKET_BITS) as usize + 1;

/// Inputs: logits `[rows, vocab]` f32; `[rows, 4]` f32: temperature (0 for the most likely token), `top_p`, `min_p`, and a
/// number in [0, 1); `[rows]` i32: `top_k`, below 1 for all; with masks, each row's mask `[rows]` i32, −1 for none, and the
/// masks; with `xtc`, each row's threshold `[rows]` f32, 1 for none, and tokens that are never excluded `[rows, kept]` i32, −1
/// for none. Output: tokens `[rows]` i32, all of the vocabulary.
///
/// Of the tokens above the threshold's share of what the filters keep, `xtc` excludes all but the least likely one.
///
/// Of what `min_p`, `top_k` and then `top_p` keep, the first token in the order of ids is chosen whose weight, with those
/// before it, passes the number's share of all. Logits that are no numbers choose some token.
#[derive(Clone, Debug, PartialEq)]
pub struct Choose {
    pub rows: usize,
    pub vocab: usize,
    pub masks: Option<Masks>,
    pub xtc: Option<Xtc>,
}

/// Exclusion of the most likely tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// Tokens of a row that are never excluded.
    pub kept: usize,
}

/// Which tokens rows may choose: `[count, words]` u32, one bit a token, the lowest of the first word for token 0. Bits that
/// are missing are 0. A row whose mask is not there may choose all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Masks {
    pub count: usize,
    pub words: usize,
}

#[derive(Clone, Copy)]
struct Buffers {
    logits: *const f32,
    numbers: *const f32,
    top_k: *const i32,
    /// Each row's mask, and the masks.
    masks: Option<(Masks, *const i32, *const u32)>,
    /// Each row's threshold, and the tokens that are never excluded.
    xtc: Option<(Xtc, *const f32, *const i32)>,
    out: *mut i32,
}

// SAFETY: tasks write disjoint rows.
unsafe impl Sync for Buffers {}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// Memory that a thread keeps from row to row.
#[derive(Default)]
struct Room {
    weights: Vec<f32>,
    counts: Vec<u32>,
    sums: Vec<f64>,
    /// Tokens of one bucket.
    members: Vec<(f32, usize)>,
}

/// The last token that is kept: those of more weight are, and those of the same weight up to its id.
#[derive(Clone, Copy)]
struct Cut {
    weight: f32,
    id: usize,
}

/// The parameters of a row.
struct Row {
    temperature: f32,
    top_p: f64,
    min_p: f32,
    share: f64,
    top_k: usize,
}

impl Choose {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], out: *mut u8) {
        let all = Buffers {
            logits: inputs[0].cast(),
            numbers: inputs[1].cast(),
            top_k: inputs[2].cast(),
            masks: self.masks.map(|masks| (masks, inputs[3].cast(), inputs[4].cast())),
            xtc: self.xtc.map(|xtc| {
                let first = if self.masks.is_some() { 5 } else { 3 };
                (xtc, inputs[first].cast(), inputs[first + 1].cast())
            }),
            out: out.cast(),
        };
        let isa = simd::isa();
        let all = &all;
        let row = |row: usize| {
            let what = RowWork { vocab: self.vocab, all, row };
            *all.out.add(row) = simd::with(isa, what) as i32;
        };
        if self.rows * self.vocab <= SMALL {
            return (0..self.rows).for_each(row);
        }
        pool::run(self.rows, row);
    }
}

struct RowWork<'a> {
    vocab: usize,
    all: &'a Buffers,
    row: usize,
}

impl Work for RowWork<'_> {
    type Output = usize;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> usize {
        let Self { vocab, all, row: at } = self;
        let logits = std::slice::from_raw_parts(all.logits.add(at * vocab), vocab);
        let numbers = all.numbers.add(at * NUMBERS);
        let top_k = usize::try_from(*all.top_k.add(at)).ok().filter(|top_k| *top_k > 0);
        let row = Row {
            temperature: *numbers,
            top_p: f64::from(*numbers.add(1)),
            min_p: *numbers.add(2),
            share: f64::from(*numbers.add(3)),
            top_k: top_k.unwrap_or(vocab).min(vocab),
        };
        let mask = all.mask(at);
        let most = mask.map_or_else(|| most::<S>(logits), |mask| most_allowed(logits, mask));
        let best = || {
            let allowed = |id: usize| mask.is_none_or(|mask| bits(mask, id / 32) >> (id % 32) & 1 == 1);
            (0..vocab).find(|id| logits[*id] == most && allowed(*id)).unwrap_or(0)
        };
        if row.temperature <= 0.0 || row.top_k == 1 || !most.is_finite() {
            return best();
        }
        ROOM.with_borrow_mut(|room| {
            weigh::<S>(logits, most, 1.0 / row.temperature, &mut room.weights);
            if let Some(mask) = mask {
                forbid(&mut room.weights, mask);
            }
            let cut = room.cut(&row);
            if let Some((threshold, kept)) = all.xtc(at) {
                exclude_top(&mut room.weights, cut, threshold, kept);
            }
            choose(&room.weights, cut, row.share).unwrap_or_else(best)
        })
    }
}

impl Buffers {
    /// The mask of a row.
    unsafe fn mask(&self, row: usize) -> Option<&[u32]> {
        let (Masks { count, words }, places, masks) = self.masks?;
        let place = usize::try_from(*places.add(row)).ok().filter(|place| *place < count)?;
        Some(std::slice::from_raw_parts(masks.add(place * words), words))
    }

    /// The threshold of a row, and its tokens that are never excluded.
    unsafe fn xtc(&self, row: usize) -> Option<(f32, &[i32])> {
        let (Xtc { kept }, thresholds, tokens) = self.xtc?;
        let threshold = *thresholds.add(row);
        (threshold < 1.0).then(|| (threshold, std::slice::from_raw_parts(tokens.add(row * kept), kept)))
    }
}

fn bits(mask: &[u32], word: usize) -> u32 {
    mask.get(word).copied().unwrap_or(0)
}

/// The largest of those that the mask allows.
#[inline(always)]
fn most_allowed(logits: &[f32], mask: &[u32]) -> f32 {
    let words = logits.chunks(32).zip(mask).filter(|(_, bits)| **bits != 0);
    words.fold(f32::NEG_INFINITY, |most, (logits, bits)| {
        let allowed = logits.iter().enumerate().map(|(at, logit)| match bits >> at & 1 {
            0 => f32::NEG_INFINITY,
            _ => *logit,
        });
        allowed.fold(most, f32::max)
    })
}

/// Takes the weight of those that the mask forbids.
#[inline(always)]
fn forbid(weights: &mut [f32], mask: &[u32]) {
    for (word, weights) in weights.chunks_mut(32).enumerate() {
        match bits(mask, word) {
            u32::MAX => {}
            0 => weights.fill(0.0),
            bits => weights.iter_mut().enumerate().for_each(|(at, weight)| {
                *weight = if bits >> at & 1 == 1 { *weight } else { 0.0 };
            }),
        }
    }
}

/// The largest of all.
#[inline(always)]
unsafe fn most<S: Simd>(logits: &[f32]) -> f32 {
    let whole = logits.len() / S::LANES * S::LANES;
    let mut best = S::splat(f32::NEG_INFINITY);
    for at in (0..whole).step_by(S::LANES) {
        best = S::max(best, S::load(logits.as_ptr().add(at)));
    }
    let mut lanes = [f32::NEG_INFINITY; 16];
    S::store(lanes.as_mut_ptr(), best);
    lanes.iter().chain(&logits[whole..]).copied().fold(f32::NEG_INFINITY, f32::max)
}

/// `exp((logit − most) · inverse)` of all.
#[inline(always)]
unsafe fn weigh<S: Simd>(logits: &[f32], most: f32, inverse: f32, weights: &mut Vec<f32>) {
    // Whole vectors; what is after the last logit has no weight.
    let room = logits.len().next_multiple_of(S::LANES);
    weights.clear();
    weights.extend_from_slice(logits);
    weights.resize(room, f32::NEG_INFINITY);
    for at in (0..room).step_by(S::LANES) {
        let p = weights.as_mut_ptr().add(at);
        let x = S::mul(S::sub(S::load(p), S::splat(most)), S::splat(inverse));
        S::store(p, math::exp::<S>(x));
    }
    weights.truncate(logits.len());
    // The exponential function has a smallest value; a token that is forbidden has no weight at all.
    for (weight, logit) in weights.iter_mut().zip(logits) {
        *weight = if *logit == f32::NEG_INFINITY { 0.0 } else { *weight };
    }
}

/// Takes the weight of the kept tokens above a share of all, but for the least likely one and some that stay.
fn exclude_top(weights: &mut [f32], cut: Cut, threshold: f32, stay: &[i32]) {
    let total: f64 = kept(weights, cut).map(|(_, weight)| f64::from(weight)).sum();
    let limit = f64::from(threshold) * total;
    let above = kept(weights, cut).map(|(_, weight)| weight).filter(|weight| f64::from(*weight) > limit);
    let least = above.fold(f32::INFINITY, f32::min);
    let excluded: Vec<usize> = kept(weights, cut)
        .filter(|(id, weight)| *weight > least && !stay.contains(&(*id as i32)))
        .map(|(id, _)| id)
        .collect();
    excluded.into_iter().for_each(|id| weights[id] = 0.0);
}

/// The tokens that the filters keep, and their weights.
fn kept(weights: &[f32], cut: Cut) -> impl Iterator<Item = (usize, f32)> {
    let all = weights.iter().copied().enumerate();
    all.filter(move |(id, weight)| *weight > cut.weight || (*weight == cut.weight && *id <= cut.id))
}

/// The first kept token whose weight, with those before it, passes the share of all; `None` if nothing has weight.
fn choose(weights: &[f32], cut: Cut, share: f64) -> Option<usize> {
    let total: f64 = kept(weights, cut).map(|(_, weight)| f64::from(weight)).sum();
    let (mut passed, mut last) = (0.0, None);
    for (id, weight) in kept(weights, cut) {
        passed += f64::from(weight);
        if weight > 0.0 {
            last = Some(id);
            if passed > share * total {
                return last;
            }
        }
    }
    last
}

impl Room {
    /// What the filters of a row keep of the weights.
    fn cut(&mut self, row: &Row) -> Cut {
        let all = Cut { weight: 0.0, id: usize::MAX };
        let least = if row.min_p > 0.0 { Cut { weight: row.min_p.min(1.0), id: usize::MAX } } else { all };
        if row.top_k >= self.weights.len() && row.top_p >= 1.0 {
            return least;
        }
        self.fill_buckets(least);
        let few = if row.top_k < self.weights.len() {
            self.prefix(least, &Wanted::Tokens(row.top_k))
        } else {
            None
        };
        let (top_k, total) = few.unwrap_or_else(|| (least, self.sums.iter().rev().sum()));
        if row.top_p >= 1.0 {
            return top_k;
        }
        let top_p = self.prefix(least, &Wanted::Weight(total * row.top_p));
        top_p.map_or(top_k, |(cut, _)| cut.stricter(top_k))
    }

    fn fill_buckets(&mut self, least: Cut) {
        self.counts.clear();
        self.counts.resize(BUCKETS, 0);
        self.sums.clear();
        self.sums.resize(BUCKETS, 0.0);
        for weight in self.weights.iter().filter(|weight| **weight >= least.weight) {
            // "Not a number" has a bucket, too.
            let bucket = bucket(*weight);
            self.counts[bucket] += 1;
            self.sums[bucket] += f64::from(*weight);
        }
    }

    /// The shortest prefix that has what is wanted, and its weight; `None` if all of it is needed.
    fn prefix(&mut self, least: Cut, wanted: &Wanted) -> Option<(Cut, f64)> {
        let (mut count, mut weight) = (0, 0.0);
        for at in (0..BUCKETS).rev() {
            let (more, heavier) = (count + self.counts[at] as usize, weight + self.sums[at]);
            if wanted.is_met(more, heavier) {
                self.members.clear();
                let tokens = self.weights.iter().copied().enumerate();
                let of_bucket = tokens.filter(|(_, weight)| *weight >= least.weight && bucket(*weight) == at);
                self.members.extend(of_bucket.map(|(id, weight)| (weight, id)));
                self.members.sort_unstable_by(|(a, i), (b, j)| b.total_cmp(a).then(i.cmp(j)));
                for (of, id) in &self.members {
                    (count, weight) = (count + 1, weight + f64::from(*of));
                    if wanted.is_met(count, weight) {
                        return Some((Cut { weight: *of, id: *id }, weight));
                    }
                }
                // Sums in another order differ in the last digits.
                return self.members.last().map(|(of, id)| (Cut { weight: *of, id: *id }, weight));
            }
            (count, weight) = (more, heavier);
        }
        None
    }
}

/// What a prefix must have.
enum Wanted {
    Tokens(usize),
    Weight(f64),
}

impl Wanted {
    fn is_met(&self, tokens: usize, weight: f64) -> bool {
        match self {
            Self::Tokens(wanted) => tokens >= *wanted,
            Self::Weight(wanted) => weight >= *wanted && tokens > 0,
        }
    }
}

impl Cut {
    /// The one that keeps less.
    fn stricter(self, other: Self) -> Self {
        let keeps_less = self.weight > other.weight || (self.weight == other.weight && self.id < other.id);
        if keeps_less { self } else { other }
    }
}

fn bucket(weight: f32) -> usize {
    ((weight.to_bits() >> BUCKET_BITS) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests;
