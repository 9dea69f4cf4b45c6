//! The energy counters of a Mac's chip: channels of IOReport's group "Energy Model".
//!
//! Counted are the processor cores, the GPU, the neural engine and the memory: all of them serve a model on one chip. IOReport
//! is not documented; which channels there are, and their units, is known from macmon's source
//! (<https://github.com/vladkens/macmon>). This has not run on a Mac: its tests read a fake.

use crate::sensor::{EnergySource, Sensor, SensorError};

/// What a channel counted since it was read before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channel {
    pub(crate) name: String,
    /// `mJ`, `uJ` or `nJ`.
    pub(crate) unit: String,
    pub(crate) energy: i64,
}

/// Reads the channels of the group.
pub(crate) trait Channels {
    /// What each counted since the call before; since it was opened, the first time.
    fn since_last(&mut self) -> Result<Vec<Channel>, SensorError>;
}

/// Adds up what channels count.
pub(crate) struct EnergyModel<C> {
    channels: C,
    /// Since it was opened.
    nanojoules: u64,
}

impl<C: Channels> EnergyModel<C> {
    /// Reads the channels once. Fails where none is counted, as in virtual machines.
    pub(crate) fn open(mut channels: C) -> Result<Self, SensorError> {
        match sum(&channels.since_last()?)? {
            Some(_) => Ok(Self { channels, nanojoules: 0 }),
            None => Err(failed("the group `Energy Model` has no channel of processors or GPUs")),
        }
    }
}

impl<C: Channels> Sensor for EnergyModel<C> {
    fn source(&self) -> EnergySource {
        EnergySource::IoReport
    }

    fn microjoules(&mut self) -> Result<u64, SensorError> {
        let more = sum(&self.channels.since_last()?)?;
        self.nanojoules = self.nanojoules.saturating_add(more.unwrap_or_default());
        Ok(self.nanojoules / 1000)
    }
}

/// Nanojoules of the channels that count; `None` where there are none.
fn sum(channels: &[Channel]) -> Result<Option<u64>, SensorError> {
    let mut counted = channels.iter().filter(|channel| is_counted(&channel.name)).peekable();
    if counted.peek().is_none() {
        return Ok(None);
    }
    counted.map(nanojoules).sum::<Result<u64, _>>().map(Some)
}

/// Whether no other counted channel has this one's energy. `CPU Energy` is the sum of its clusters and cores; chips of two
/// dies have it as `DIE_0_CPU Energy` and `DIE_1_CPU Energy`.
fn is_counted(name: &str) -> bool {
    name == "GPU Energy"
        || name.ends_with("CPU Energy")
        || ["ANE", "DRAM", "GPU SRAM"].iter().any(|prefix| name.starts_with(prefix))
}

/// A counter that went back, as after sleep, counts nothing.
fn nanojoules(channel: &Channel) -> Result<u64, SensorError> {
    let scale = match channel.unit.trim() {
        "mJ" => 1_000_000,
        "uJ" => 1_000,
        "nJ" => 1,
        unit => return Err(failed(format!("the channel `{}` has the unknown unit `{unit}`", channel.name))),
    };
    Ok(u64::try_from(channel.energy).unwrap_or_default().saturating_mul(scale))
}

fn failed(why: impl Into<String>) -> SensorError {
    SensorError::IoReport(why.into())
}

#[cfg(target_os = "macos")]
pub(crate) use apple::AppleChannels;

#[cfg(target_os = "macos")]
mod apple {
    use macmon::sources::{IOReport, cfio_integer_value};

    use super::{Channel, Channels, failed};
    use crate::sensor::SensorError;

    /// The channels of this Mac.
    pub(crate) struct AppleChannels(IOReport);

    impl AppleChannels {
        pub(crate) fn open() -> Result<Self, SensorError> {
            let report = IOReport::new(vec![("Energy Model", None)]);
            report.map(Self).map_err(|error| failed(error.to_string()))
        }
    }

    impl Channels for AppleChannels {
        fn since_last(&mut self) -> Result<Vec<Channel>, SensorError> {
            // One sample, taken at once: a duration of zero does not sleep.
            let samples = self.0.get_samples(0, 1).into_iter().flat_map(|(items, _)| items);
            let channel = |item: macmon::sources::IOReportIteratorItem| Channel {
                energy: cfio_integer_value(item.item),
                name: item.channel,
                unit: item.unit,
            };
            Ok(samples.map(channel).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn channel(name: &str, unit: &str, energy: i64) -> Channel {
        Channel { name: name.to_owned(), unit: unit.to_owned(), energy }
    }

    /// Readings of a Mac that is not there.
    struct Fake(Vec<Vec<Channel>>);

    impl Channels for Fake {
        fn since_last(&mut self) -> Result<Vec<Channel>, SensorError> {
            match self.0.is_empty() {
                true => Err(failed("no more readings")),
                false => Ok(self.0.remove(0)),
            }
        }
    }

    /// The channels of a chip, as macmon's tests and reports name them.
    fn reading(milli: i64) -> Vec<Channel> {
        vec![
            channel("ECPU", "mJ", milli / 4),
            channel("PCPU", "mJ", milli * 3 / 4),
            channel("CPU Energy", "mJ", milli),
            channel("GPU Energy", "nJ", milli * 2_000_000),
            channel("GPU SRAM", "mJ", 1),
            channel("ANE", "uJ", 500),
            channel("DRAM", "mJ", 10),
            channel("ISP", "mJ", 999),
            channel("AMCC", "mJ", 999),
        ]
    }

    #[test]
    fn processors_gpu_neural_engine_and_memory_are_counted_once_in_their_units() {
        let mut model = EnergyModel::open(Fake(vec![reading(7), reading(100), reading(0)])).unwrap();
        assert_eq!(
            (model.source(), model.microjoules()),
            (EnergySource::IoReport, Ok(100_000 + 200_000 + 1_000 + 500 + 10_000))
        );
        assert_eq!(model.microjoules(), Ok(311_500 + 11_500));
        assert!(model.microjoules().is_err());
    }

    #[test]
    fn both_dies_of_a_chip_are_counted() {
        let dies = vec![channel("DIE_0_CPU Energy", "mJ", 3), channel("DIE_1_CPU Energy", "mJ", 4)];
        let mut model = EnergyModel::open(Fake(vec![dies.clone(), dies])).unwrap();
        assert_eq!(model.microjoules(), Ok(7_000));
    }

    #[test]
    fn a_machine_without_counted_channels_and_an_unknown_unit_are_errors() {
        let open =
            |reading| EnergyModel::open(Fake(vec![reading])).map(|_| ()).map_err(|error| error.to_string());
        let none = "IOReport: the group `Energy Model` has no channel of processors or GPUs";
        assert_eq!(open(vec![channel("ISP", "mJ", 1)]), Err(none.to_owned()));
        let unit = "IOReport: the channel `ANE` has the unknown unit `W`";
        assert_eq!(open(vec![channel("ANE", "W", 1)]), Err(unit.to_owned()));
    }

    proptest! {
        #[test]
        fn the_sum_never_decreases_and_loses_no_nanojoules(steps in prop::collection::vec(-5i64..5_000, 0..50)) {
            let mut readings = vec![reading(0)];
            readings.extend(steps.iter().map(|energy| vec![channel("GPU Energy", "nJ", *energy)]));
            let mut model = EnergyModel::open(Fake(readings)).unwrap();
            let (mut last, mut all) = (0, 0);
            for energy in steps {
                all += energy.max(0) as u64;
                let now = model.microjoules().unwrap();
                prop_assert!(now >= last && now == all / 1000);
                last = now;
            }
        }
    }
}
