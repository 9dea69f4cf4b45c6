//! `omnibus doctor --plan`: what a decode step of a model launches on a GPU, listed on any machine. With `--as`, the memory plan
//! of a Mac too.

use std::collections::BTreeMap;
use std::process::ExitCode;

use omnibus_offline::planned_step::{LaunchGroup, PlannedGpu, PlannedStep, TracedLaunch, grouped, plan_step};
use serde_json::{Value, json};

use super::doctor_as;
use crate::bench::random_weights_of;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Prints the launches of a step. `name`: a config's path, or a preset.
pub fn run(name: &str, config: &Config) -> Result<ExitCode, Error> {
    let weights = random_weights_of("--plan", name, config.engine_bench.quantize)?;
    let (sequences, context) = (config.doctor.rows.unwrap_or(1), config.engine_bench.context);
    let memory = config.doctor.mac.map(|mac| doctor_as::planned(mac, &weights, config)).transpose()?;
    let gpu = if memory.is_some() { PlannedGpu::Mac } else { PlannedGpu::Nvidia };
    let step = plan_step(&weights, gpu, sequences, context).map_err(Error::failed)?;
    match config.output {
        Output::Json => {
            let mut step = as_json(&step);
            if let Some(memory) = &memory {
                step["memory"] = memory.as_json();
            }
            output::line(step.to_string());
        }
        Output::Text => {
            if let Some(memory) = &memory {
                output::line(format!("{memory}\n"));
            }
            let plural = if sequences == 1 { "" } else { "s" };
            output::line(format!("{name}: decode of {sequences} sequence{plural} after {context} tokens"));
            output::line(table(&step));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn table(step: &PlannedStep) -> String {
    let PlannedStep { layers, rows, weight_bytes, kv_token_bytes, .. } = step;
    let (gigabytes, kilobytes) = (*weight_bytes as f64 / 1e9, *kv_token_bytes as f64 / 1e3);
    let mut lines = vec![
        format!("{layers} layers, {rows} rows with padding, {}", launching(step)),
        format!("{gigabytes:.2} GB weights, {kilobytes:.1} KB of keys and values a token"),
        String::new(),
        format!("{:<40} {:>18} {:>8} {:>8}", "kernel", "grid", "threads", "shared"),
    ];
    for group in grouped(&step.pass).iter().chain(&grouped(&step.choice)) {
        lines.extend(group_lines(group, 0));
    }
    lines.push(String::new());
    lines.push(format!("{:<40} {:>18}", "kernel", "launches a step"));
    let all = || step.pass.iter().chain(&step.choice);
    lines.extend(counts(all().filter(|launch| launch.grid.is_some())));
    let operations: Vec<String> = counts(all().filter(|launch| launch.grid.is_none())).collect();
    if !operations.is_empty() {
        lines.push(String::new());
        lines.push(format!("{:<40} {:>18}", "operation of MLX", "calls a step"));
        lines.extend(operations);
    }
    lines.join("\n")
}

/// How the pass is launched.
fn launching(step: &PlannedStep) -> String {
    match step.graphs {
        Some(1) => "one CUDA graph".to_owned(),
        Some(graphs) => format!("{graphs} CUDA graphs"),
        None => "launched one by one".to_owned(),
    }
}

/// A line for each launch, further right in a repetition.
fn group_lines(group: &LaunchGroup<'_>, depth: usize) -> Vec<String> {
    let indent = "  ".repeat(depth);
    match group {
        LaunchGroup::One(launch) => vec![line(launch, &indent)],
        LaunchGroup::Repeated { times, groups } => {
            let lines = groups.iter().flat_map(|group| group_lines(group, depth + 1));
            std::iter::once(format!("{indent}{times} times:")).chain(lines).collect()
        }
    }
}

fn line(launch: &TracedLaunch, indent: &str) -> String {
    let name = format!("{indent}{}", launch.name);
    match launch.grid {
        Some(grid) => {
            let [x, y, z] = grid.groups;
            let groups = format!("{x} x {y} x {z}");
            format!("{name:<40} {groups:>18} {:>8} {:>8}", grid.threads, grid.shared_bytes)
        }
        None => format!("{name:<40} {:>18}", "MLX"),
    }
}

/// How often each name occurs, the most frequent first.
fn counts<'a>(launches: impl Iterator<Item = &'a TracedLaunch>) -> impl Iterator<Item = String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for launch in launches {
        *counts.entry(&launch.name).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(name, count)| format!("{name:<40} {count:>18}")).collect::<Vec<_>>().into_iter()
}

fn as_json(step: &PlannedStep) -> Value {
    let launches = |launches: &[TracedLaunch]| launches.iter().map(launch_json).collect::<Vec<_>>();
    json!({
        "layers": step.layers,
        "rows": step.rows,
        "weight_bytes": step.weight_bytes,
        "kv_token_bytes": step.kv_token_bytes,
        "graphs": step.graphs,
        "pass": launches(&step.pass),
        "choice": launches(&step.choice),
    })
}

fn launch_json(launch: &TracedLaunch) -> Value {
    json!({
        "name": launch.name,
        "mlx": launch.grid.is_none(),
        "groups": launch.grid.map(|grid| grid.groups),
        "threads": launch.grid.map(|grid| grid.threads),
        "shared_bytes": launch.grid.map(|grid| grid.shared_bytes),
        "bytes": launch.bytes,
    })
}
