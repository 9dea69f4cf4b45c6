//! Energy: the sensors of the machine, a thread that samples them, and how the energy of a step is shared by its rows.
//!
//! Invariant: no edge to a crate of ours. Energy is in whole microjoules, so that the shares of rows add up to the whole.
//! A machine without a sensor has no meter: its energy is absent, not zero.

mod attribution;
mod curve;
mod environment;
mod estimate;
#[cfg(any(target_os = "macos", test))]
mod io_report;
mod meter;
mod nvml;
mod open;
mod rapl;
mod sensor;

pub use attribution::{Attribution, Phase, Row, Totals};
pub use meter::{Meter, PERIOD};
pub use open::{Device, open};
pub use sensor::{EnergySource, Sensor, SensorError};
