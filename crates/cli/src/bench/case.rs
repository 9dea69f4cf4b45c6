//! A measurement of the engine beside the device's limit, and its row of a table.

use omnibus_offline::bench::{Decode, DeviceLimits, HostSplit, MemoryUse, Prefill, StepWork};
use serde::Serialize;

/// A measurement beside the device's limit; or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Case<T> {
    /// It was measured.
    Measured {
        /// What was measured.
        #[serde(flatten)]
        measured: T,
        /// Milliseconds that the device needs at least.
        limit_ms: f64,
        /// That over the measured time.
        share_of_limit: f64,
    },
    /// It failed.
    Failed {
        /// Sequences of a step, or tokens of a prompt.
        case: usize,
        /// Why.
        error: String,
    },
}

/// What the table needs of a measurement.
pub trait Measured {
    /// `16 streams`, `prefill of 2048`.
    fn label(case: usize) -> &'static str;

    /// Name, milliseconds and tokens per second.
    fn times(&self) -> (String, f64, f64);

    fn host(&self) -> Option<HostSplit>;

    /// `None` where kernels are launched one by one.
    fn launches_per_layer(&self) -> Option<f64>;

    fn memory(&self) -> MemoryUse;
}

impl<T: Measured> Case<T> {
    /// `work`: what the device has to do at least.
    pub fn of(case: usize, measured: Result<T, String>, work: StepWork, limits: &DeviceLimits) -> Self {
        match measured {
            Ok(measured) => {
                let limit_ms = 1e3 * work.limit_s(limits);
                let (_, ms, _) = measured.times();
                Self::Measured { measured, limit_ms, share_of_limit: limit_ms / ms.max(f64::MIN_POSITIVE) }
            }
            Err(error) => Self::Failed { case, error },
        }
    }

    /// A row of the table.
    pub fn row(&self) -> String {
        self.row_of("")
    }

    /// A row of the table with more words in its name.
    pub fn row_of(&self, more: &str) -> String {
        match self {
            Self::Measured { measured, limit_ms, share_of_limit } => {
                let (name, ms, rate) = measured.times();
                let host = measured.host().map_or("– | – | – | –".to_owned(), |host| {
                    let HostSplit { plan_ms, build_ms, dispatch_ms, wait_ms } = host;
                    format!("{plan_ms:.2} | {build_ms:.2} | {dispatch_ms:.2} | {wait_ms:.2}")
                });
                let launches = measured.launches_per_layer();
                let launches = launches.map_or("–".to_owned(), |launches| format!("{launches:.1}"));
                let MemoryUse { active_bytes, peak_bytes, .. } = measured.memory();
                let [active, peak] = [active_bytes, peak_bytes].map(|bytes| bytes as f64 / 1e9);
                format!(
                    "| {name}{more} | {ms:.2} | {rate:.0} | {limit_ms:.3} | {share_of_limit:.2} | {launches} | {host} | {active:.2} | {peak:.2} |"
                )
            }
            Self::Failed { case, error } => {
                format!(
                    "| {case} {}{more} | {error} | – | – | – | – | – | – | – | – | – | – |",
                    T::label(*case)
                )
            }
        }
    }
}

impl Measured for Decode {
    fn label(case: usize) -> &'static str {
        if case == 1 { "stream" } else { "streams" }
    }

    fn times(&self) -> (String, f64, f64) {
        let Self { streams, context, .. } = self;
        let name = format!("decode, {streams} {} at {context}", Self::label(*streams));
        (name, self.step_ms, self.tokens_per_s)
    }

    fn host(&self) -> Option<HostSplit> {
        self.host
    }

    fn launches_per_layer(&self) -> Option<f64> {
        self.launches_per_layer
    }

    fn memory(&self) -> MemoryUse {
        self.memory
    }
}

impl Measured for Prefill {
    fn label(_case: usize) -> &'static str {
        "tokens of prefill"
    }

    fn times(&self) -> (String, f64, f64) {
        (format!("prefill of {}", self.tokens), self.ms, self.tokens_per_s)
    }

    fn host(&self) -> Option<HostSplit> {
        self.host
    }

    fn launches_per_layer(&self) -> Option<f64> {
        None
    }

    fn memory(&self) -> MemoryUse {
        self.memory
    }
}
