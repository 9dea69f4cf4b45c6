//! `omnibus doctor --kernels`: our GPU kernels beside MLX's operations.

use std::process::ExitCode;

use omnibus_engine::KernelRow;
use serde_json::json;

use crate::error::Error;
use crate::output;
use crate::settings::Output;

/// Prints a row for each kernel and shape. Exit code 1 when one differs from MLX or fails.
pub fn run(format: Output) -> Result<ExitCode, Error> {
    let table = omnibus_engine::kernel_table().map_err(Error::failed)?;
    match format {
        Output::Json => output::line(as_json(&table.rows, table.read_rate)),
        Output::Text => {
            output::line(format!("read rate {:.2} TB/s", table.read_rate / 1e12));
            output::line(format!(
                "{:<16} {:<10} {:<52} {:>9} {:>10} {:>10} {:>6}",
                "model", "kernel", "shape", "error", "us", "MLX us", "share"
            ));
            table.rows.iter().for_each(show);
        }
    }
    let failing = table.rows.iter().any(|row| !row.check.holds());
    Ok(ExitCode::from(u8::from(failing)))
}

fn show(row: &KernelRow) {
    let check = &row.check;
    let (ours, mlx) = match check.times {
        Some(times) => (format!("{:.1}", times.ours_us), format!("{:.1}", times.mlx_us)),
        None => (String::new(), String::new()),
    };
    let share = row.share.map(|share| format!("{share:.2}")).unwrap_or_default();
    let verdict = if check.holds() { "" } else { "  WRONG" };
    output::line(format!(
        "{:<16} {:<10} {:<52} {:>9.1e} {ours:>10} {mlx:>10} {share:>6}{verdict}",
        row.model, check.kernel, check.shape, check.error
    ));
    if !check.problem.is_empty() {
        output::line(format!("    {}", check.problem));
    }
}

fn as_json(rows: &[KernelRow], read_rate: f64) -> String {
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let times = row.check.times;
            json!({
                "model": row.model,
                "kernel": row.check.kernel,
                "shape": row.check.shape,
                "error": row.check.error,
                "tolerance": row.check.tolerance,
                "problem": row.check.problem,
                "us": times.map(|times| times.ours_us),
                "mlx_us": times.map(|times| times.mlx_us),
                "share": row.share,
            })
        })
        .collect();
    json!({"read_bytes_per_second": read_rate, "kernels": rows}).to_string()
}
