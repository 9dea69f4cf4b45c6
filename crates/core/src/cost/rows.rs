//! What decode steps of some numbers of rows take: products of more rows use other kernels, and past some number arithmetic
//! bounds a step, not memory, so that the cost of rows has knees.

use serde::{Deserialize, Serialize};

/// Numbers of rows whose time is kept: among them all that a step is padded to.
const KNOTS: [f64; 19] = [
    1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 80.0, 96.0, 128.0, 160.0, 192.0, 224.0,
    256.0,
];
/// Beyond so many rows nothing is known.
pub(crate) const ROWS_KNOWN: f64 = 256.0;
/// By how much longer than expected the first step of a number of rows may have taken, as a share, where others would be outliers:
/// kernels change with the number of rows, and nothing else tells by how much.
const FIRST_OFF: f64 = 1.0;
/// Steps of a number of rows that are not believed to be much dearer than the fit says: what seems dear is not tried again. The first
/// one is not believed at all, because it may have waited for a compiler.
const DOUBTED: u64 = 3;
/// By how much dearer they are believed to be, as a factor.
const DOUBTED_MOST: f64 = 1.25;
/// The weight of the newest step in a time.
const GAIN: f64 = 0.1;

/// Measured times of steps by their number of rows, without what depends on the context. Between two numbers they are on the
/// line between them; where at most one was measured, parallel to the linear fit from the next smaller number that was, and where
/// two were, at most a quarter above that.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RowCurve([RowTime; KNOTS.len()]);

/// Of one number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct RowTime {
    us: f64,
    /// Steps it was measured with.
    samples: u64,
}

/// The linear fit: microseconds of a step without rows, and of each row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) base_us: f64,
    pub(super) row_us: f64,
}

impl RowCurve {
    /// The microseconds of a step of so many rows: never fewer than of fewer rows.
    pub(super) fn at(&self, rows: f64, line: Line) -> f64 {
        let (mut before, mut us) = (0.0, line.base_us);
        for (knot, own) in KNOTS.iter().zip(&self.0) {
            let parallel = us + line.row_us * (knot - before);
            let next = match own.samples {
                0 | 1 => parallel,
                2..DOUBTED => own.us.min(DOUBTED_MOST * parallel).max(us),
                _ => own.us.max(us),
            };
            if rows <= *knot {
                return us + (next - us) * (rows - before) / (knot - before);
            }
            (before, us) = (*knot, next);
        }
        us + line.row_us * (rows - before)
    }

    /// Of the numbers of rows whose time is kept, those of which little was measured.
    pub(super) fn little_known(&self) -> impl DoubleEndedIterator<Item = f64> {
        let doubted = KNOTS.iter().zip(&self.0).filter(|(_, own)| own.samples < DOUBTED);
        doubted.map(|(knot, _)| *knot)
    }

    /// Learns from a step of so many rows. A time further than `most_off` from the expected one counts as that far; the first one of a
    /// number of rows has more room.
    pub(super) fn learn(&mut self, rows: f64, us: f64, line: Line, most_off: f64) {
        let (expected, neighbors) = (self.at(rows, line), neighbors(rows));
        let is_new = neighbors.iter().any(|(at, _)| self.0[*at].samples < 2);
        let most_off = if is_new { most_off.max(FIRST_OFF * expected) } else { most_off };
        let off = (us - expected).clamp(-most_off, most_off);
        for (at, share) in neighbors {
            let known = self.at(KNOTS[at], line);
            let own = &mut self.0[at];
            let gain = GAIN.max(1.0 / own.samples.max(1) as f64);
            own.us = known + gain * share * off;
            own.samples += 1;
        }
    }
}

/// The knots about a number of rows, and how near it is to each: together one.
fn neighbors(rows: f64) -> Vec<(usize, f64)> {
    match KNOTS.iter().position(|knot| rows <= *knot) {
        // Few steps have more rows, and the last knot would take their time for its own.
        None => Vec::new(),
        Some(0) => vec![(0, 1.0)],
        Some(at) => {
            let share = (rows - KNOTS[at - 1]) / (KNOTS[at] - KNOTS[at - 1]);
            let both = [(at - 1, 1.0 - share), (at, share)];
            both.into_iter().filter(|(_, share)| *share > 0.0).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line { base_us: 100.0, row_us: 10.0 };

    #[test]
    fn what_was_measured_is_predicted_and_what_was_not_is_parallel_to_the_fit() {
        let mut curve = RowCurve::default();
        assert_eq!(curve.at(7.0, LINE), 170.0);
        (0..100).for_each(|_| curve.learn(4.0, 440.0, LINE, f64::INFINITY));
        assert_eq!(curve.at(4.0, LINE).round(), 440.0);
        assert_eq!(curve.at(20.0, LINE).round(), 600.0);
        assert_eq!(curve.at(1.0, LINE).round(), 110.0);
        (0..300).for_each(|_| curve.learn(9.0, 990.0, LINE, f64::INFINITY));
        assert_eq!(curve.at(9.0, LINE).round(), 990.0);
        // The fit has followed other steps: what was measured stays.
        assert_eq!(curve.at(4.0, Line { base_us: 0.0, row_us: 90.0 }).round(), 440.0);
    }

    #[test]
    fn one_late_step_is_not_the_time_of_all() {
        let mut curve = RowCurve::default();
        (0..2).for_each(|_| curve.learn(4.0, 140.0, LINE, 14.0));
        curve.learn(4.0, 10_000.0, LINE, 14.0);
        assert!((curve.at(4.0, LINE) - 147.0).abs() < 0.1, "{curve:?}");
    }

    /// A step of more rows than before may use other kernels.
    #[test]
    fn a_knee_is_believed_after_three_steps() {
        let mut curve = RowCurve::default();
        (0..50).for_each(|_| curve.learn(64.0, 740.0, LINE, 14.0));
        for most in [1.0, 1.25] {
            curve.learn(128.0, 2_000.0, LINE, 500.0);
            assert_eq!(curve.at(128.0, LINE), most * (740.0 + 640.0));
        }
        curve.learn(128.0, 2_000.0, LINE, 500.0);
        assert!((1_800.0..2_000.0).contains(&curve.at(128.0, LINE)), "{curve:?}");
    }

    /// The first step of a number of rows may have waited for a compiler.
    #[test]
    fn a_late_first_step_is_forgotten_with_the_next_ones() {
        let mut curve = RowCurve::default();
        (0..50).for_each(|_| curve.learn(64.0, 740.0, LINE, 14.0));
        curve.learn(128.0, 90_000.0, LINE, 14.0);
        (0..3).for_each(|_| curve.learn(128.0, 1_400.0, LINE, 500.0));
        assert!((1_380.0..1_500.0).contains(&curve.at(128.0, LINE)), "{curve:?}");
    }

    #[test]
    fn more_rows_never_take_less_time() {
        let mut curve = RowCurve::default();
        for (rows, us) in [(1.0, 100.0), (2.0, 600.0), (4.0, 20.0), (7.0, 40.0), (300.0, 0.0)] {
            (0..20).for_each(|_| curve.learn(rows, us, LINE, f64::INFINITY));
        }
        let times: Vec<f64> = (0..400).map(|rows| curve.at(f64::from(rows), LINE)).collect();
        assert!(times.windows(2).all(|two| two[0] <= two[1]), "{times:?}");
    }
}
