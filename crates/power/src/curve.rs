//! The energy at any moment, from readings at some.
//!
//! Invariant: no clock; time is an argument.

use std::time::Duration;

/// Readings of a sensor, and what follows from them until the next one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Curve {
    /// Time and microjoules of the last reading, since the first.
    last: (Duration, u64),
    /// Microjoules per second between the last two readings.
    power: f64,
    /// Time between them. The power is assumed to stay for so long.
    span: Duration,
    /// The largest value that was given out.
    given: u64,
}

impl Curve {
    /// Adds a reading.
    pub(crate) fn add(&mut self, at: Duration, microjoules: u64) {
        let (last_at, last) = self.last;
        let span = at.saturating_sub(last_at);
        if span.is_zero() {
            return;
        }
        self.power = microjoules.saturating_sub(last) as f64 / span.as_secs_f64();
        (self.span, self.last) = (span, (at, microjoules.max(last)));
    }

    /// The energy until `at`, in microjoules. Never less than an earlier answer: where power fell since the last reading, the
    /// curve stays flat until the sensor has reached it.
    pub(crate) fn microjoules(&mut self, at: Duration) -> u64 {
        let (last_at, last) = self.last;
        let ahead = at.saturating_sub(last_at).min(self.span);
        self.given = self.given.max(last + (self.power * ahead.as_secs_f64()) as u64);
        self.given
    }

    /// The power between the last two readings, in watts.
    pub(crate) fn watts(&self) -> f64 {
        self.power / 1e6
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn power_goes_on_until_the_next_reading_and_no_longer_than_the_last_span() {
        let mut curve = Curve::default();
        assert_eq!(curve.microjoules(ms(50)), 0);
        curve.add(ms(100), 1_000_000);
        assert_eq!((curve.watts(), curve.microjoules(ms(150))), (10.0, 1_500_000));
        assert_eq!(curve.microjoules(ms(900)), 2_000_000);
        curve.add(ms(1000), 1_100_000);
        assert_eq!(curve.microjoules(ms(1000)), 2_000_000);
    }

    proptest! {
        #[test]
        fn it_never_falls_and_ends_at_the_sensors_sum(
            steps in prop::collection::vec((1u64..1000, 0u64..1_000_000_000), 1..50),
        ) {
            let (mut curve, mut at, mut sum, mut before) = (Curve::default(), 0, 0, 0);
            for (milliseconds, energy) in steps {
                let now = curve.microjoules(ms(at + milliseconds / 2));
                prop_assert!(now >= before);
                (at, sum) = (at + milliseconds, sum + energy);
                curve.add(ms(at), sum);
                before = curve.microjoules(ms(at));
                prop_assert!(before >= sum.max(now));
            }
            // Without use the sensor stays, and what was assumed ahead of it is at most the last power for the last span.
            prop_assert!(before >= sum);
        }
    }
}
