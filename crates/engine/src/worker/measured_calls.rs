//! Which calls of a network that drafts are measured: only those whose tokens are read at once tell what drafting costs.

/// Measures before any call is not measured: the cost model believes none of the first ones.
const MEASURED_FIRST: u64 = 24;
/// One of so many later calls is measured, too.
const MEASURED_EVERY: u64 = 16;

/// Calls that computed draft tokens.
#[derive(Debug, Default)]
pub(super) struct MeasuredCalls {
    calls: u64,
    /// Calls that gave a measure: during others kernels or graphs were built.
    measured: u64,
}

impl MeasuredCalls {
    /// Whether the next call is measured.
    pub(super) fn is_next(&self) -> bool {
        self.measured < MEASURED_FIRST || self.calls.is_multiple_of(MEASURED_EVERY)
    }

    /// A call is over.
    pub(super) fn add(&mut self, gave_measure: bool) {
        self.calls += 1;
        self.measured += u64::from(gave_measure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many calls are measured, where the first ones build graphs.
    fn measured(calls: u64, building: u64) -> u64 {
        let mut of = MeasuredCalls::default();
        for call in 0..calls {
            let is_measured = of.is_next();
            of.add(is_measured && call >= building);
        }
        of.measured
    }

    #[test]
    fn calls_that_build_graphs_are_no_measures() {
        assert_eq!(measured(MEASURED_FIRST, 0), MEASURED_FIRST);
        assert_eq!(measured(100 + MEASURED_FIRST, 100), MEASURED_FIRST);
    }

    #[test]
    fn later_ones_are_measured_now_and_then() {
        let many = 1_000 * MEASURED_EVERY;
        let found = measured(many, 0);
        assert!((1_000..1_000 + MEASURED_FIRST).contains(&found), "{found}");
    }
}
