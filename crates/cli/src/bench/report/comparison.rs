//! Two reports beside each other.

use serde::Serialize;

use super::results::{Better, Metric, Report};
use crate::settings::load_kind::LoadKind;

/// A metric in both reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The server.
    pub contender: String,
    /// The load.
    pub load: LoadKind,
    /// The metric.
    pub metric: Metric,
    /// The second report's mean, divided by the first one's.
    pub ratio: f64,
    /// The ends of its interval.
    pub interval: (f64, f64),
    /// By how many percent it is worse at least: the end of the interval that is nearer to the first report. Zero or less when it
    /// may be as good.
    pub worse_percent: f64,
}

/// Every metric that is in both reports and has a better direction.
pub fn compare(before: &Report, after: &Report) -> Vec<Comparison> {
    let one = |of: &super::results::Measurement| {
        let earlier = before.value(&of.contender, of.load, of.metric)?;
        let (ratio, low, high) = of.value.ratio(earlier)?;
        let worse = match of.metric.better() {
            Better::Low => low,
            Better::High => 1.0 / high,
            Better::Neither => return None,
        };
        Some(Comparison {
            contender: of.contender.clone(),
            load: of.load,
            metric: of.metric,
            ratio,
            interval: (low, high),
            worse_percent: 100.0 * (worse - 1.0),
        })
    };
    after.values.iter().filter_map(one).collect()
}

impl Comparison {
    /// A line for the terminal.
    pub fn row(&self) -> String {
        let (low, high) = self.interval;
        format!(
            "{:<26} {:<8} {:<29} {:>7.3}  {low:.3} to {high:.3}",
            self.contender,
            self.load.name(),
            self.metric.label(),
            self.ratio
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::interval::Interval;
    use super::super::results::Measurement;
    use super::*;

    fn report(metric: Metric, mean: f64, half: Option<f64>) -> Report {
        Report {
            values: vec![Measurement {
                contender: "omnibus".to_owned(),
                load: LoadKind::Closed,
                metric,
                value: Interval { mean, half },
            }],
            ..Report::default()
        }
    }

    fn worse_percent(metric: Metric, before: (f64, Option<f64>), after: (f64, Option<f64>)) -> f64 {
        let found = compare(&report(metric, before.0, before.1), &report(metric, after.0, after.1));
        assert_eq!(found.len(), 1);
        found[0].worse_percent
    }

    #[test]
    fn more_time_and_fewer_tokens_are_worse() {
        assert!((worse_percent(Metric::TtftP50, (10.0, None), (12.0, None)) - 20.0).abs() < 1e-9);
        assert!((worse_percent(Metric::OutputThroughput, (10.0, None), (8.0, None)) - 25.0).abs() < 1e-9);
        assert!(worse_percent(Metric::OutputThroughput, (10.0, None), (12.0, None)) < 0.0);
    }

    #[test]
    fn noise_is_not_worse() {
        assert!(worse_percent(Metric::TtftP50, (10.0, Some(2.0)), (11.0, Some(2.0))) < 0.0);
        assert!(worse_percent(Metric::TtftP50, (10.0, Some(0.1)), (20.0, Some(0.2))) > 90.0);
    }

    #[test]
    fn what_explains_is_not_compared() {
        let of = || report(Metric::CachedShare, 0.5, None);
        assert!(compare(&of(), &of()).is_empty());
    }
}
