//! `omnibus doctor --kernels`: our GPU kernels beside MLX's operations.

use std::process::ExitCode;

use omnibus_offline::kernel_table::{self, CheckExtent, KernelModel, KernelRow};
use serde_json::json;

use crate::bench::PRESETS;
use crate::error::Error;
use crate::output;
use crate::settings::Output;

/// Presets whose products are measured with packed weights, too.
const PACKED: [&str; 5] = ["qwen3-0.6b", "qwen3-4b", "llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-4b"];

/// Prints a row for each kernel and shape of the presets. Exit code 1 when one differs from MLX or fails.
pub fn run(format: Output) -> Result<ExitCode, Error> {
    let shown = |line: String| {
        if format == Output::Text {
            output::line(line);
        }
    };
    let Table { rows, read_rate } = measure(shown)?;
    if format == Output::Json {
        output::line(as_json(&rows, read_rate));
    }
    Ok(ExitCode::from(u8::from(has_failures(&rows))))
}

/// Rows of the table, and the device's read rate in bytes a second.
pub struct Table {
    /// Model by model.
    pub rows: Vec<KernelRow>,
    read_rate: f64,
}

/// Measures the kernels of the presets. `line` gets each line of the table as soon as it is there. Fails without a GPU.
pub fn measure(mut line: impl FnMut(String)) -> Result<Table, Error> {
    let read_rate = kernel_table::kernel_read_rate().map_err(Error::failed)?;
    line(format!("read rate {:.2} TB/s", read_rate / 1e12));
    line(format!(
        "{:<20} {:<13} {:<52} {:>9} {:>10} {:>10} {:>6}",
        "model", "kernel", "shape", "error", "us", "MLX us", "share"
    ));
    let mut rows: Vec<KernelRow> = Vec::new();
    for model in models() {
        let found = kernel_table::kernel_rows(model, read_rate).map_err(Error::failed)?;
        found.iter().map(row_text).for_each(&mut line);
        rows.extend(found);
    }
    Ok(Table { rows, read_rate })
}

/// Whether a kernel differs from MLX's operations, or failed.
pub fn has_failures(rows: &[KernelRow]) -> bool {
    rows.iter().any(|row| !row.check.holds())
}

fn models() -> impl Iterator<Item = KernelModel> {
    PRESETS.iter().map(|(name, config)| {
        let extent = if PACKED.contains(name) { CheckExtent::All } else { CheckExtent::DenseProducts };
        KernelModel { name, config, extent }
    })
}

/// A line, and one below it with the compiler's message, if there is one.
fn row_text(row: &KernelRow) -> String {
    let check = &row.check;
    let (ours, mlx) = match check.times {
        Some(times) => (format!("{:.1}", times.ours_us), format!("{:.1}", times.mlx_us)),
        None => (String::new(), String::new()),
    };
    let share = row.share.map(|share| format!("{share:.2}")).unwrap_or_default();
    let verdict = if check.holds() { "" } else { "  WRONG" };
    let line = format!(
        "{:<20} {:<13} {:<52} {:>9.1e} {ours:>10} {mlx:>10} {share:>6}{verdict}",
        row.model, check.kernel, check.shape, check.error
    );
    match check.problem.as_str() {
        "" => line,
        problem => format!("{line}\n    {problem}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_products_are_those_of_presets() {
        let all = models().filter(|model| model.extent == CheckExtent::All);
        assert_eq!(all.count(), PACKED.len());
    }
}
