//! Traffic and a machine, simulated under each schedule.

use std::path::Path;

use omnibus_engine::Schedule;
use omnibus_engine::sim::{self, Arrival, CostModel, Machine, Quantiles, Report, Workload};
use serde::Serialize;
use serde_json::Value;

use super::random::Random;
use crate::error::Error;
use crate::settings::{BenchSettings, Config, SimSettings};

/// The schedules, in the table's order.
const SCHEDULES: &[(&str, Schedule)] = &[
    ("fair", Schedule::Fair),
    ("fcfs", Schedule::Fcfs),
    ("static", Schedule::Static),
    ("split", Schedule::Split),
];
/// Requests a second where nobody says.
const RATE: f64 = 0.3;
/// Longest trace, in requests.
const TRACE_MAX: usize = 1_000_000;

/// How one schedule did, as `--json` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulation {
    /// Who went first.
    pub schedule: &'static str,
    /// Requests that were answered.
    pub completed: usize,
    /// Requests that found the queue full.
    pub refused: usize,
    /// From the first arrival's clock to the last token.
    pub duration_s: f64,
    /// Tokens of answers a second.
    pub output_throughput: f64,
    /// Answers a second that came within `--ttft-slo-ms` and `--tpot-slo-ms`, or within 2000 and 100.
    pub goodput: f64,
    /// From arrival to the first token.
    pub ttft_ms: Spread,
    /// Between tokens, on average over a request.
    pub tpot_ms: Spread,
    /// Between tokens.
    pub itl_ms: Spread,
    /// The longest pause between two tokens, in milliseconds.
    pub itl_max_ms: f64,
    /// From arrival to the end.
    pub e2e_ms: Spread,
}

/// How something is spread, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Half are no more.
    pub p50: f64,
    /// 95 of a hundred are no more.
    pub p95: f64,
    /// 99 of a hundred are no more.
    pub p99: f64,
}

impl From<Quantiles> for Spread {
    fn from(quantiles: Quantiles) -> Self {
        let [p50, p95, p99] = [quantiles.p50, quantiles.p95, quantiles.p99].map(|ticks| ticks as f64 / 1e3);
        Self { p50, p95, p99 }
    }
}

/// Plays the same traffic once for each schedule.
pub fn simulate(config: &Config) -> Result<Vec<Simulation>, Error> {
    let machine = machine(&config.sim.profile)?;
    let arrivals = arrivals(&config.bench, &config.sim)?;
    let play = |(name, schedule): &(&'static str, Schedule)| {
        let settings = omnibus_engine::Settings { schedule: *schedule, ..config.engine.clone() };
        Simulation::of(name, &sim::simulate(&settings, &machine, &arrivals))
    };
    Ok(SCHEDULES.iter().map(play).collect())
}

/// A machine by its name, or a file with what a server has learned of its own.
fn machine(profile: &str) -> Result<Machine, Error> {
    match profile {
        "m5-max-70b" => return Ok(Machine::m5_max_70b()),
        "laptop" => return Ok(Machine::default()),
        _ => {}
    }
    let text = read(profile, "--profile")?;
    let wrong = |why: &dyn std::fmt::Display| {
        Error::usage(format!(
            "--profile: {profile} is no answer of GET /v1/status with a cost_model: {why}; other profiles are m5-max-70b and laptop"
        ))
    };
    let mut value: Value = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    let inner = value.get_mut("cost_model").map(Value::take).unwrap_or(value);
    let model: CostModel = serde_json::from_value(inner).map_err(|error| wrong(&error))?;
    if model.decode.samples == 0 || model.prefill.samples == 0 {
        return Err(wrong(&"that server has not computed enough yet"));
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
        None => Ok(equal(bench, rate)),
    }
}

/// What `bench serve` would send, at the times at which it would: all of one size.
fn equal(bench: &BenchSettings, rate: f64) -> Vec<Arrival> {
    let mut random = Random::new(bench.seed ^ u64::MAX);
    let mut at_s = 0.0;
    let arrivals = (0..bench.num_prompts).map(|_| {
        let at = (at_s * 1e6) as u64;
        at_s += random.gap_s(rate);
        let (prompt, answer) = (bench.input_len, bench.output_len);
        Arrival { at, prompt, max_new_tokens: answer, answer, ..Arrival::default() }
    });
    arrivals.collect()
}

/// One request a line, in any order.
fn trace(path: &Path) -> Result<Vec<Arrival>, Error> {
    let text = read(&path.display().to_string(), "--trace")?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let arrivals = lines.take(TRACE_MAX).map(|(at, line)| {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::usage(format!("--trace: {}, line {}: {why}", path.display(), at + 1))
        };
        let arrival: Arrival = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        if arrival.prompt == 0 || arrival.max_new_tokens == 0 {
            return Err(wrong(&"`prompt` and `max_new_tokens` are at least 1"));
        }
        if arrival.prompt.saturating_add(arrival.max_new_tokens) > TOKENS_MAX || arrival.at > TICKS_MAX {
            return Err(wrong(&"at most 10,000,000 tokens and a hundred days can be played"));
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

/// Longest sequence of a trace.
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

    /// For people, and for Markdown.
    pub fn table(results: &[Self]) -> String {
        let head = "| schedule | answered | refused | tokens/s | goodput/s | ttft p50 | p95 | p99 | tpot p50 | p95 | p99 | itl p99 | max |";
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
    fn every_workload_is_answered_under_every_schedule() {
        let names = Workload::ALL.iter().map(|(name, _)| *name).filter(|name| *name != "long");
        for workload in names.chain(["random"]) {
            for row in simulate(&config(workload, "laptop")).unwrap() {
                assert_eq!((row.completed, row.refused), (12, 0), "{workload} {}", row.schedule);
                assert!(row.ttft_ms.p50 > 0.0 && row.ttft_ms.p99 <= row.e2e_ms.p99);
            }
        }
    }

    #[test]
    fn a_profile_that_says_nothing_is_refused() {
        let path = std::env::temp_dir().join(format!("omnibus-profile-{}.json", std::process::id()));
        for text in ["{", "{\"cost_model\": null}", "[]"] {
            std::fs::write(&path, text).unwrap();
            assert!(machine(&path.display().to_string()).is_err(), "{text}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
