//! An estimate in the place of a sensor: the same power at every moment.

use std::time::Instant;

use crate::sensor::{EnergySource, Sensor, SensorError};

/// A power that the user stated.
pub(crate) struct Estimate {
    watts: f64,
    started: Instant,
}

impl Estimate {
    pub(crate) fn new(watts: f64) -> Self {
        Self { watts, started: Instant::now() }
    }
}

impl Sensor for Estimate {
    fn source(&self) -> EnergySource {
        EnergySource::Estimate
    }

    fn microjoules(&mut self) -> Result<u64, SensorError> {
        Ok((self.watts * self.started.elapsed().as_secs_f64() * 1e6) as u64)
    }
}
