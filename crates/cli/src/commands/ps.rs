//! `omnibus ps`: what a running server serves.

use std::process::ExitCode;

use omnibus_engine::gigabytes;
use serde_json::{Value, json};

use crate::completion_output::runtime;
use crate::error::Error;
use crate::output;
use crate::server_client::{ServedModel, ServerClient};
use crate::settings::{Config, Output};

/// Lists the models of a server, and how many requests it has.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let client = ServerClient::new(&config.client)?;
    let (models, status) = runtime()?.block_on(async {
        let models = client.models().await.map_err(Error::failed)?;
        let status = client.get("/v1/status").await.map_err(Error::failed)?;
        Ok::<_, Error>((models, status))
    })?;
    let count = |name: &str| status.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (running, queued) = (count("running"), count("queued"));
    match config.output {
        Output::Json => {
            let models: Vec<Value> = models.iter().map(as_json).collect();
            let all = json!({"url": client.origin(), "models": models, "running": running, "queued": queued});
            output::line(all.to_string());
        }
        Output::Text => {
            table(&models);
            output::note(format!("{} has {running} running and {queued} queued requests", client.origin()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(model: &ServedModel) -> Value {
    json!({
        "model": model.id,
        "architecture": model.architecture,
        "quantization": model.quantization,
        "context": model.window,
        "state": model.state,
        "loaded_bytes": model.progress.map(|(loaded, _)| loaded),
        "total_bytes": model.progress.map(|(_, total)| total),
        "memory_bytes": model.memory,
    })
}

/// Where a model is, and how far its load is.
fn state(model: &ServedModel) -> String {
    match model.progress {
        Some((loaded, total)) if total > 0 => {
            format!("{} {:.0} %", model.state, loaded as f64 / total as f64 * 100.0)
        }
        _ => model.state.clone(),
    }
}

fn table(models: &[ServedModel]) {
    if models.is_empty() {
        output::note("the server has no models");
        return;
    }
    let head = ["NAME", "ARCHITECTURE", "WEIGHTS", "CONTEXT", "STATE", "MEMORY"].map(str::to_owned);
    let row = |model: &ServedModel| {
        let floats = if model.architecture.is_empty() { "" } else { "floats" };
        let weights = if model.quantization.is_empty() { floats } else { &model.quantization };
        let context = model.window.map(|window| window.to_string()).unwrap_or_default();
        let memory = model.memory.map(gigabytes).unwrap_or_default();
        [model.id.clone(), model.architecture.clone(), weights.to_owned(), context, state(model), memory]
    };
    let rows: Vec<[String; 6]> = std::iter::once(head).chain(models.iter().map(row)).collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        output::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
