//! The loads of a report, in terms of the generator of `bench serve`.

use crate::bench::prompts::TURNS;
use crate::settings::load_kind::LoadKind;
use crate::settings::{Arrivals, BenchSettings, Dataset, Endpoint};

/// Requests of a burst.
const BURST: usize = 8;

/// The generator's settings. `base` has the lengths, the number of requests, its rate and its concurrency.
pub fn settings(load: LoadKind, base: &BenchSettings) -> BenchSettings {
    let closed = Arrivals { rate: None, ..base.arrivals };
    let open = Arrivals { concurrency: None, ..base.arrivals };
    let settings = BenchSettings { arrivals: closed, ..base.clone() };
    let streams = |count| {
        let arrivals = Arrivals { concurrency: Some(count), ..closed };
        BenchSettings { arrivals, ..settings.clone() }
    };
    match load {
        LoadKind::Closed => settings,
        LoadKind::Poisson => BenchSettings { arrivals: open, ..settings },
        LoadKind::Bursts => {
            let rate = open.rate.map(|rate| rate / BURST as f64);
            BenchSettings { arrivals: Arrivals { rate, burst: BURST, ..open }, ..settings }
        }
        LoadKind::Agents => {
            // A turn is sent when the one before it has ended, so no more at once than conversations.
            let conversations = (base.num_warmups + base.num_prompts).div_ceil(TURNS);
            let concurrency = closed.concurrency.map(|most| most.min(conversations));
            let arrivals = Arrivals { concurrency, ..closed };
            BenchSettings { dataset: Dataset::Turns, arrivals, ..settings }
        }
        LoadKind::Shared => BenchSettings { dataset: Dataset::SharedPrefix, ..settings },
        LoadKind::Long => BenchSettings { input_len: 8 * base.input_len, ..settings },
        LoadKind::Media => BenchSettings { dataset: Dataset::Media, endpoint: Endpoint::Chat, ..settings },
        LoadKind::Streams1 => streams(1),
        LoadKind::Streams2 => streams(2),
        LoadKind::Streams4 => streams(4),
        LoadKind::Streams8 => streams(8),
        LoadKind::Streams16 => streams(16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> BenchSettings {
        let arrivals = Arrivals { rate: Some(16.0), concurrency: Some(4), burst: 1 };
        BenchSettings { input_len: 10, arrivals, ..BenchSettings::default() }
    }

    #[test]
    fn a_closed_loop_has_no_rate_and_an_open_one_no_limit() {
        let arrivals = |load: LoadKind| settings(load, &base()).arrivals;
        assert_eq!(arrivals(LoadKind::Closed), Arrivals { rate: None, concurrency: Some(4), burst: 1 });
        assert_eq!(arrivals(LoadKind::Poisson), Arrivals { rate: Some(16.0), concurrency: None, burst: 1 });
        assert_eq!(arrivals(LoadKind::Bursts), Arrivals { rate: Some(2.0), concurrency: None, burst: 8 });
        assert_eq!(arrivals(LoadKind::Streams16), Arrivals { rate: None, concurrency: Some(16), burst: 1 });
    }

    #[test]
    fn loads_have_prompts_of_their_own() {
        assert_eq!(settings(LoadKind::Long, &base()).input_len, 80);
        assert_eq!(settings(LoadKind::Agents, &base()).dataset, Dataset::Turns);
        assert_eq!(settings(LoadKind::Shared, &base()).dataset, Dataset::SharedPrefix);
        assert_eq!(settings(LoadKind::Media, &base()).dataset, Dataset::Media);
    }
}
