//! Simulates a load and a machine under each scheduling policy.

use std::path::Path;

use omnibus_engine::Schedule;
use omnibus_engine::random::Rng;
use omnibus_offline::sim::{self, Arrival, CostModel, Machine, Quantiles, Report, Workload};
use serde::Serialize;
use serde_json::Value;

use crate::error::Error;
use crate::settings::{BenchSettings, Config, SimSettings};

/// The policies, in the order of the printed table.
const SCHEDULES: &[(&str, Schedule)] = &[
    ("fair", Schedule::Fair),
    ("fcfs", Schedule::Fcfs),
    ("static", Schedule::Static),
    ("split", Schedule::Split),
];
/// Default requests per second.
const RATE: f64 = 0.3;
/// Longest trace, in requests.
const TRACE_MAX: usize = 1_000_000;

/// The results of one policy, as `--json` prints them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulation {
    /// The policy.
    pub schedule: &'static str,
    /// Requests completed.
    pub completed: usize,
    /// Requests refused because the queue was full.
    pub refused: usize,
    /// Time from the first arrival to the last token.
    pub duration_s: f64,
    /// Generated tokens per second.
    pub output_throughput: f64,
    /// Requests per second within `--ttft-slo-ms` and `--tpot-slo-ms`, by default 2000 and 100.
    pub goodput: f64,
    /// Time from arrival to the first token.
    pub ttft_ms: Spread,
    /// Mean time between tokens of a request.
    pub tpot_ms: Spread,
    /// Times between tokens.
    pub itl_ms: Spread,
    /// Longest time between two tokens.
    pub itl_max_ms: f64,
    /// Time from arrival to the end.
    pub e2e_ms: Spread,
}

/// Percentiles, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl From<Quantiles> for Spread {
    fn from(quantiles: Quantiles) -> Self {
        let [p50, p95, p99] = [quantiles.p50, quantiles.p95, quantiles.p99].map(|ticks| ticks as f64 / 1e3);
        Self { p50, p95, p99 }
    }
}

/// Simulates the same load under each policy.
pub fn simulate(config: &Config) -> Result<Vec<Simulation>, Error> {
    let machine = machine(&config.sim.profile)?;
    let arrivals = arrivals(&config.bench, &config.sim)?;
    let run_schedule = |(name, schedule): &(&'static str, Schedule)| {
        let settings = omnibus_engine::Settings { schedule: *schedule, ..config.engine.clone() };
        Simulation::of(name, &sim::simulate(&settings, &machine, &arrivals, None))
    };
    Ok(SCHEDULES.iter().map(run_schedule).collect())
}

/// A machine by name, or from a file with a server's learned cost model.
fn machine(profile: &str) -> Result<Machine, Error> {
    match profile {
        "m5-max-70b" => return Ok(Machine::m5_max_70b()),
        "laptop" => return Ok(Machine::default()),
        _ => {}
    }
    let text = read(profile, "--profile")?;
    let invalid = |why: &dyn std::fmt::Display| {
        Error::usage(format!(
            "--profile: {profile} is not a response of GET /v1/status with a cost_model: {why}; other profiles are m5-max-70b and laptop"
        ))
    };
    let mut value: Value = serde_json::from_str(&text).map_err(|error| invalid(&error))?;
    let inner = value.get_mut("cost_model").map(Value::take).unwrap_or(value);
    let model: CostModel = serde_json::from_value(inner).map_err(|error| invalid(&error))?;
    if model.decode.samples == 0 || model.prefill.samples == 0 {
        return Err(invalid(&"the server has not measured enough steps yet"));
    }
    Ok(Machine::Learned(Box::new(model)))
}

fn arrivals(bench: &BenchSettings, sim: &SimSettings) -> Result<Vec<Arrival>, Error> {
    if let Some(path) = &sim.trace {
        return trace(path);
    }
    let rate = bench.arrivals.rate.unwrap_or(RATE);
    match Workload::ALL.iter().find(|(name, _)| *name == sim.workload) {
        Some((_, workload)) => Ok(workload.arrivals(bench.seed, bench.num_prompts, rate)),
        None => Ok(uniform_arrivals(bench, rate)),
    }
}

/// The requests of `bench serve`, with its arrival times: all of one size.
fn uniform_arrivals(bench: &BenchSettings, rate: f64) -> Vec<Arrival> {
    let mut random = Rng::new(bench.seed ^ u64::MAX);
    let mut at_s = 0.0;
    let arrivals = (0..bench.num_prompts).map(|_| {
        let at = (at_s * 1e6) as u64;
        at_s += random.exponential(rate);
        let (prompt, answer) = (bench.input_len, bench.output_len);
        Arrival { at, prompt, max_new_tokens: answer, answer, ..Arrival::default() }
    });
    arrivals.collect()
}

/// Reads a trace: one request per line, in any order.
fn trace(path: &Path) -> Result<Vec<Arrival>, Error> {
    let text = read(&path.display().to_string(), "--trace")?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let arrivals = lines.take(TRACE_MAX).map(|(at, line)| {
        let invalid = |why: &dyn std::fmt::Display| {
            Error::usage(format!("--trace: {}, line {}: {why}", path.display(), at + 1))
        };
        let arrival: Arrival = serde_json::from_str(line).map_err(|error| invalid(&error))?;
        if arrival.prompt == 0 || arrival.max_new_tokens == 0 {
            return Err(invalid(&"`prompt` and `max_new_tokens` must be at least 1"));
        }
        if arrival.prompt.saturating_add(arrival.max_new_tokens) > TOKENS_MAX || arrival.at > TICKS_MAX {
            return Err(invalid(&"a trace can have at most 10,000,000 tokens per request and 100 days"));
        }
        let answer = if arrival.answer == 0 { arrival.max_new_tokens } else { arrival.answer };
        Ok(Arrival { answer, ..arrival })
    });
    let mut arrivals = arrivals.collect::<Result<Vec<_>, _>>()?;
    if arrivals.is_empty() {
        return Err(Error::usage(format!("--trace: {} has no requests", path.display())));
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    Ok(arrivals)
}

/// Longest sequence of a trace, in tokens.
const TOKENS_MAX: usize = 10_000_000;
/// A hundred days, in microseconds.
const TICKS_MAX: u64 = 100 * 86_400 * 1_000_000;

fn read(path: &str, flag: &str) -> Result<String, Error> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::usage(format!("{flag}: cannot read {path}: {error}")))
}

impl Simulation {
    fn of(schedule: &'static str, report: &Report) -> Self {
        let seconds = (report.end as f64 / 1e6).max(1e-9);
        Self {
            schedule,
            completed: report.completed,
            refused: report.refused,
            duration_s: seconds,
            output_throughput: report.tokens as f64 / seconds,
            goodput: report.good as f64 / seconds,
            ttft_ms: report.ttft.into(),
            tpot_ms: report.tpot.into(),
            itl_ms: report.itl.into(),
            itl_max_ms: report.itl_max as f64 / 1e3,
            e2e_ms: report.e2e.into(),
        }
    }

    /// A Markdown table.
    pub fn table(results: &[Self]) -> String {
        let head = "| schedule | completed | refused | tokens/s | goodput/s | ttft p50 | p95 | p99 | tpot p50 | p95 | p99 | itl p99 | max |";
        let rule =
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";
        let rows = results.iter().map(|row| {
            let [ttft, tpot] = [row.ttft_ms, row.tpot_ms]
                .map(|spread| format!("{:.0} | {:.0} | {:.0}", spread.p50, spread.p95, spread.p99));
            format!(
                "| {} | {} | {} | {:.1} | {:.3} | {ttft} | {tpot} | {:.0} | {:.0} |",
                row.schedule,
                row.completed,
                row.refused,
                row.output_throughput,
                row.goodput,
                row.itl_ms.p99,
                row.itl_max_ms
            )
        });
        [head.to_owned(), rule.to_owned()].into_iter().chain(rows).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(workload: &str, profile: &str) -> Config {
        let mut config = Config::default();
        config.bench = BenchSettings { num_prompts: 12, input_len: 50, output_len: 9, ..config.bench };
        config.sim = SimSettings { profile: profile.into(), workload: workload.into(), trace: None };
        config
    }

    #[test]
    fn every_workload_completes_under_every_policy() {
        let names = Workload::ALL.iter().map(|(name, _)| *name).filter(|name| *name != "long");
        for workload in names.chain(["random"]) {
            for row in simulate(&config(workload, "laptop")).unwrap() {
                assert_eq!((row.completed, row.refused), (12, 0), "{workload} {}", row.schedule);
                assert!(row.ttft_ms.p50 > 0.0 && row.ttft_ms.p99 <= row.e2e_ms.p99);
            }
        }
    }

    #[test]
    fn a_profile_without_a_cost_model_is_refused() {
        let path = std::env::temp_dir().join(format!("omnibus-profile-{}.json", std::process::id()));
        for text in ["{", "{\"cost_model\": null}", "[]"] {
            std::fs::write(&path, text).unwrap();
            assert!(machine(&path.display().to_string()).is_err(), "{text}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
