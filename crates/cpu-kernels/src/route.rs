//! The choice of experts: scores of each row's logits, the best of them, and their weights.
//!
//! Invariant: of equal scores the first is better, so that a row's experts depend on its logits only.

use std::cell::RefCell;

use super::pool;

/// Rows of a task.
const ROWS: usize = 16;

/// Inputs, all f32: logits `[rows, experts]`, and with `correction` a correction of the scores that choose, `[experts]`.
/// Outputs: indices `[rows, chosen]` u32 and weights `[rows, chosen]` f32, the best first.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub rows: usize,
    pub experts: usize,
    /// From one to `experts`.
    pub chosen: usize,
    pub scores: RouteScores,
    /// Logits become `cap * tanh(logit / cap)`.
    pub softcap: Option<f32>,
    pub correction: bool,
    pub groups: Option<RouteGroups>,
    /// Whether weights are divided by their sum.
    pub renormalize: bool,
    /// Multiplies weights.
    pub scale: f32,
}

/// From router logits to the scores of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteScores {
    /// Softmax over all experts.
    Softmax,
    /// Logits choose; softmax over the chosen experts weighs.
    ChosenSoftmax,
    /// The sigmoid of each.
    Sigmoid,
    /// The square root of the softplus of each.
    SqrtSoftplus,
}

/// Scores count as zero in all but the `kept` best of `count` groups, which divides the number of experts; a group is as
/// good as the sum of its `best` best scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteGroups {
    /// How many there are; divides the number of experts.
    pub count: usize,
    /// How many take part.
    pub kept: usize,
    /// A group is as good as the sum of so many of its best experts.
    pub best: usize,
}

struct Buffers<'a> {
    logits: *const f32,
    correction: Option<&'a [f32]>,
    indices: *mut u32,
    weights: *mut f32,
}

// SAFETY: tasks write different rows.
unsafe impl Sync for Buffers<'_> {}

/// Of a row.
#[derive(Default)]
struct Room {
    scores: Vec<f32>,
    choosing: Vec<f32>,
    of_groups: Vec<f32>,
    taken: Vec<bool>,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

impl Route {
    /// # Safety
    /// The buffers have the sizes named above.
    pub(super) unsafe fn run(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let correction = match self.correction {
            true => Some(std::slice::from_raw_parts(inputs[1].cast::<f32>(), self.experts)),
            false => None,
        };
        let buffers = Buffers {
            logits: inputs[0].cast(),
            correction,
            indices: outputs[0].cast(),
            weights: outputs[1].cast(),
        };
        pool::run(self.rows.div_ceil(ROWS), |task| {
            let Buffers { logits, correction, indices, weights } = &buffers;
            ROOM.with_borrow_mut(|room| {
                for row in task * ROWS..self.rows.min((task + 1) * ROWS) {
                    let logits = std::slice::from_raw_parts(logits.add(row * self.experts), self.experts);
                    let at = row * self.chosen;
                    let indices = std::slice::from_raw_parts_mut(indices.add(at), self.chosen);
                    let weights = std::slice::from_raw_parts_mut(weights.add(at), self.chosen);
                    self.row(logits, *correction, room, (indices, weights));
                }
            })
        });
    }

    fn row(
        &self,
        logits: &[f32],
        correction: Option<&[f32]>,
        room: &mut Room,
        (indices, weights): (&mut [u32], &mut [f32]),
    ) {
        let Room { scores, choosing, of_groups, taken } = room;
        scores.clear();
        scores.extend(logits.iter().map(|logit| match self.softcap {
            Some(cap) => (logit / cap).tanh() * cap,
            None => *logit,
        }));
        self.score(scores);
        choosing.clear();
        match correction {
            Some(correction) => choosing.extend(scores.iter().zip(correction).map(|(score, by)| score + by)),
            None => choosing.extend_from_slice(scores),
        }
        if let Some(groups) = self.groups {
            keep_groups(choosing, groups, of_groups, taken);
        }
        taken.clear();
        taken.resize(self.experts, false);
        for (index, weight) in indices.iter_mut().zip(weights.iter_mut()) {
            let best = best(choosing, taken);
            taken[best] = true;
            *index = best as u32;
            *weight = scores[best];
        }
        if self.scores == RouteScores::ChosenSoftmax {
            softmax(weights);
        }
        if self.renormalize {
            let sum: f32 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        weights.iter_mut().for_each(|weight| *weight *= self.scale);
    }

    fn score(&self, logits: &mut [f32]) {
        match self.scores {
            RouteScores::Softmax => softmax(logits),
            RouteScores::ChosenSoftmax => {}
            RouteScores::Sigmoid => logits.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
            RouteScores::SqrtSoftplus => {
                logits.iter_mut().for_each(|x| *x = (x.max(0.0) + (-x.abs()).exp().ln_1p()).sqrt());
            }
        }
    }
}

fn softmax(x: &mut [f32]) {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    x.iter_mut().for_each(|x| *x = (*x - most).exp());
    let sum: f32 = x.iter().sum();
    x.iter_mut().for_each(|x| *x /= sum);
}

/// The first of the largest that are not taken; any of them where none compares as larger.
fn best(values: &[f32], taken: &[bool]) -> usize {
    let mut best: Option<usize> = None;
    for (at, value) in values.iter().enumerate() {
        if !taken[at] && best.is_none_or(|best| *value > values[best]) {
            best = Some(at);
        }
    }
    best.unwrap_or(0)
}

/// Zeros in all groups but the best.
fn keep_groups(scores: &mut [f32], groups: RouteGroups, of_groups: &mut Vec<f32>, taken: &mut Vec<bool>) {
    let size = (scores.len() / groups.count.max(1)).max(1);
    of_groups.clear();
    for group in scores.chunks(size) {
        taken.clear();
        taken.resize(size, false);
        let mut sum = 0.0;
        for _ in 0..groups.best.min(group.len()) {
            let at = best(group, taken);
            taken[at] = true;
            sum += group[at];
        }
        of_groups.push(sum);
    }
    taken.clear();
    taken.resize(of_groups.len(), false);
    for _ in 0..groups.kept {
        let at = best(of_groups, taken);
        taken[at] = true;
    }
    for (group, kept) in scores.chunks_mut(size).zip(taken) {
        if !*kept {
            group.fill(0.0);
        }
    }
}
