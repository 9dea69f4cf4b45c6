//! Energy: the sensors of the machine, a thread that samples them, and how the energy of a step is shared by its rows.
//!
//! Invariant: no edge to a crate of ours. Energy is in whole microjoules, so that the shares of rows add up to the whole.
//! A machine without a sensor has no meter: its energy is absent, not zero.

mod curve;
mod estimate;
mod ledger;
mod meter;
mod nvml;
mod rapl;
mod sensor;

pub use ledger::{Ledger, Phase, Row, Totals};
pub use meter::{Meter, PERIOD};
pub use sensor::{Device, EnergySource, Sensor, SensorError, open};
