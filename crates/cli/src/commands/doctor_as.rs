//! `omnibus doctor --as`: the memory plans of a Mac that is not there.

use std::fmt;
use std::process::ExitCode;

use omnibus_engine::{Mac, PlannedMemory, StartError, gigabytes, plan_memory};
use omnibus_offline::bench::RandomWeights;
use serde_json::{Value, json};

use crate::bench::random_weights_of;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Presets that are planned where no model is named, in [`PRESET_BITS`].
const PRESETS: &[&str] = &["qwen3-0.6b", "llama-3.1-8b", "gpt-oss-20b", "qwen3-30b-a3b"];
const PRESET_BITS: usize = 4;

/// A model's plan on a Mac, or why it does not fit.
pub struct MacPlan {
    mac: &'static Mac,
    model: String,
    /// The plan, or why there is none.
    pub planned: Result<PlannedMemory, StartError>,
}

/// Prints the plans of some presets.
pub fn run(mac: &'static Mac, config: &Config) -> Result<ExitCode, Error> {
    let bits = config.engine_bench.quantize.unwrap_or(PRESET_BITS);
    let plans =
        PRESETS.iter().map(|name| planned(mac, &random_weights_of("--as", name, Some(bits))?, config));
    let plans = plans.collect::<Result<Vec<MacPlan>, Error>>()?;
    match config.output {
        Output::Json => output::line(Value::Array(plans.iter().map(MacPlan::as_json).collect()).to_string()),
        Output::Text => {
            output::line(described(mac));
            for plan in plans {
                output::line(format!("{} in {bits} bits: {}", plan.model, plan.outcome()));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The plan of a model with the settings of a server.
pub fn planned(mac: &'static Mac, weights: &RandomWeights, config: &Config) -> Result<MacPlan, Error> {
    let plans = plan_memory(weights, &config.engine, std::slice::from_ref(mac)).map_err(Error::failed)?;
    let planned = plans.into_iter().next().ok_or_else(|| Error::failed("a Mac without a plan"))?;
    Ok(MacPlan { mac, model: weights.name().to_owned(), planned })
}

impl MacPlan {
    /// Bytes, and `null` for what the system does not have. A model that does not fit has `error`.
    pub fn as_json(&self) -> Value {
        let mut value = json!({
            "mac": self.mac.name,
            "macos": self.mac.macos,
            "memory_bytes": self.mac.memory_bytes(),
            "working_set_bytes": self.mac.working_set_bytes(),
            "model": self.model,
        });
        match &self.planned {
            Ok(PlannedMemory { plan, cache_bytes, wired_bytes, first_step_tokens }) => {
                value["first_step_tokens"] = json!(first_step_tokens);
                value["plan"] = json!(plan);
                value["cache_bytes"] = json!(cache_bytes);
                value["wired_bytes_of_weights"] = json!(wired_bytes);
            }
            Err(error) => value["error"] = json!(error.to_string()),
        }
        value
    }

    fn outcome(&self) -> String {
        match &self.planned {
            Ok(PlannedMemory { plan, cache_bytes, wired_bytes, first_step_tokens }) => {
                let cache = cache_bytes.map(|bytes| format!("; buffer cache up to {}", gigabytes(bytes)));
                let wired = match wired_bytes {
                    Some(bytes) => format!("; --wired-limit weights keeps {} resident", gigabytes(*bytes)),
                    None => "; this macOS has no wired limit".to_owned(),
                };
                format!(
                    "{plan}{}{wired}; the first steps have up to {first_step_tokens} tokens",
                    cache.unwrap_or_default()
                )
            }
            Err(error) => format!("does not fit: {error}"),
        }
    }
}

impl fmt::Display for MacPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}: {}", described(self.mac), self.model, self.outcome())
    }
}

fn described(mac: &Mac) -> String {
    format!(
        "{}: {} of memory, macOS {}, a working set of {}; nothing is wired by default",
        mac.name,
        gigabytes(mac.memory_bytes()),
        mac.macos,
        gigabytes(mac.working_set_bytes()),
    )
}
