//! A thread that samples a sensor, so that the engine never waits for one.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::curve::Curve;
use crate::sensor::{EnergySource, Sensor, SensorError};

/// Time between two readings.
pub const PERIOD: Duration = Duration::from_millis(100);
/// After a reading, the thread sleeps for so many times the processor time that the reading took, if that is longer than
/// [`PERIOD`]: it takes at most a thousandth of a core. The time for which a reading waits for the driver costs nothing.
const SLEEP_PER_READING: u32 = 999;
/// Longest time between two readings, whatever they cost: requests shorter than that get parts of an assumed power.
const PERIOD_MAX: Duration = Duration::from_secs(5);
/// Failures in a row after which the sensor is given up.
const FAILURES_MAX: u32 = 10;

/// The energy that a sensor counted, at any moment. The thread ends when it is dropped.
#[derive(Debug)]
pub struct Meter {
    source: EnergySource,
    started: Instant,
    curve: Arc<Mutex<Curve>>,
    _running: Sender<()>,
}

impl Meter {
    /// Opens a sensor on a thread of its own, and reads it there from now on. Fails where it cannot be opened or read.
    pub fn start(
        open: impl FnOnce() -> Result<Box<dyn Sensor>, SensorError> + Send + 'static,
    ) -> Result<Self, SensorError> {
        let curve = Arc::new(Mutex::new(Curve::default()));
        let (running, stopped) = channel::<()>();
        let (opened, result) = channel();
        let shared = Arc::clone(&curve);
        let body = move || {
            let started = Instant::now();
            match open().and_then(|mut sensor| Ok((sensor.microjoules()?, sensor))) {
                Ok((first, sensor)) => {
                    let _gone = opened.send(Ok((sensor.source(), started)));
                    sample(sensor, (first, started), &shared, &stopped);
                }
                Err(error) => _ = opened.send(Err(error)),
            }
        };
        let thread = std::thread::Builder::new().name("omnibus-power".to_owned()).spawn(body);
        thread.map_err(|error| SensorError::Thread(error.to_string()))?;
        let panicked = |_| SensorError::Thread("it ended".to_owned());
        let (source, started) = result.recv().map_err(panicked)??;
        Ok(Self { source, started, curve, _running: running })
    }

    /// What the sensor reads.
    pub fn source(&self) -> EnergySource {
        self.source
    }

    /// The energy since the start, in microjoules. Never decreases, and never waits for the sensor.
    pub fn microjoules(&self) -> u64 {
        lock(&self.curve).microjoules(self.started.elapsed())
    }

    /// The power between the last two readings, in watts.
    pub fn watts(&self) -> f64 {
        lock(&self.curve).watts()
    }
}

/// Reads a sensor until the meter is dropped, or it fails too often. `first`: what it had counted when the meter started.
fn sample(
    mut sensor: Box<dyn Sensor>,
    (first, started): (u64, Instant),
    curve: &Mutex<Curve>,
    stopped: &Receiver<()>,
) {
    let (mut sleep, mut failures) = (PERIOD, 0);
    while stopped.recv_timeout(sleep) == Err(RecvTimeoutError::Timeout) {
        let before = processor_time();
        match sensor.microjoules() {
            Ok(now) => {
                failures = 0;
                lock(curve).add(started.elapsed(), now.saturating_sub(first));
            }
            Err(error) => {
                failures += 1;
                if failures == FAILURES_MAX {
                    tracing::warn!("energy is not counted any more: {error}");
                    return;
                }
            }
        }
        let reading = processor_time().saturating_sub(before);
        sleep = reading.saturating_mul(SLEEP_PER_READING).clamp(PERIOD, PERIOD_MAX);
    }
}

/// What this thread has computed so far.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

/// A panic cannot leave the curve half-written.
fn lock(curve: &Mutex<Curve>) -> MutexGuard<'_, Curve> {
    curve.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts a joule at each reading, and says that it was read.
    struct Fake {
        sum: u64,
        read: Sender<u64>,
    }

    impl Sensor for Fake {
        fn source(&self) -> EnergySource {
            EnergySource::Estimate
        }

        fn microjoules(&mut self) -> Result<u64, SensorError> {
            self.sum += 1_000_000;
            let _done = self.read.send(self.sum);
            Ok(self.sum)
        }
    }

    fn fake() -> (Fake, Receiver<u64>) {
        let (read, readings) = channel();
        (Fake { sum: 41_000_000, read }, readings)
    }

    #[test]
    fn the_first_reading_is_zero_and_later_ones_are_counted() {
        let (sensor, readings) = fake();
        let meter = Meter::start(|| Ok(Box::new(sensor))).unwrap();
        // The third reading begins when the second is in the curve.
        let third = readings.iter().nth(2);
        assert_eq!((meter.source(), third), (EnergySource::Estimate, Some(44_000_000)));
        assert!(meter.microjoules() >= 1_000_000 && meter.watts() > 0.0);
        drop(meter);
        // The thread ends, and its sensor with it.
        assert!(readings.iter().count() < 1000);
    }

    /// Can never be read.
    struct Broken;

    impl Sensor for Broken {
        fn source(&self) -> EnergySource {
            EnergySource::Estimate
        }

        fn microjoules(&mut self) -> Result<u64, SensorError> {
            Err(SensorError::Nvml("not supported".to_owned()))
        }
    }

    #[test]
    fn a_sensor_that_cannot_be_read_is_absent() {
        let why = SensorError::Nvml("not supported".to_owned());
        assert_eq!(Meter::start(|| Ok(Box::new(Broken))).err(), Some(why.clone()));
        let error = why.clone();
        assert_eq!(Meter::start(|| Err(error)).err(), Some(why));
    }
}
