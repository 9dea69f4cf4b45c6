//! Energy of requests and of their engine, with a stated power in the place of a sensor.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common::{complete, engine, wait_for};
use omnibus_engine::{EnergySource, EnergyUsage, Settings};

/// Batches until there is energy at the latest: the first reading comes soon, at a time of its own.
const BATCHES_MAX: usize = 1000;

#[test]
fn requests_have_all_the_energy_of_their_steps() {
    let engine = engine(Settings { power_model_watts: Some(50.0), ..Settings::default() });
    let (mut all, mut at_once) = (EnergyUsage::none(EnergySource::Estimate), 0);
    for batch in 0..BATCHES_MAX {
        let requests = (0..4).map(|at| complete(&format!("{batch} {at}"), "the bus stops at", 4 + 3 * at));
        let streams: Vec<_> = requests.map(|request| engine.submit(request).unwrap()).collect();
        at_once = streams.len();
        for output in streams.into_iter().map(wait_for) {
            all = EnergyUsage::sum(Some(all), output.usage.energy).unwrap();
        }
        if all.prompt_microjoules > 0 && all.completion_microjoules > 0 {
            break;
        }
    }
    assert_eq!((at_once, all.source), (4, EnergySource::Estimate));
    assert!(all.prompt_microjoules > 0 && all.completion_microjoules > 0, "{all:?}");
    let stats = engine.stats().energy;
    assert_eq!(stats.source, Some(EnergySource::Estimate));
    // A step that was launched ahead of a request's end belongs to no request, so the totals may have more.
    assert!(stats.prompt_millijoules_total >= all.prompt_microjoules / 1000, "{stats:?} {all:?}");
    assert!(stats.completion_millijoules_total >= all.completion_microjoules / 1000, "{stats:?} {all:?}");
}
