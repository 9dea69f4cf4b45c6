//! `omnibus bench report` and `omnibus bench compare`.

use std::path::Path;
use std::process::ExitCode;

use crate::bench::report;
use crate::error::Error;
use crate::output;
use crate::settings::{Config, Output};

/// Measures all servers and writes the report.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::failed)?;
    let report = runtime.block_on(report::run(config))?;
    let folder = &config.report.folder;
    report::write(&report, folder)?;
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&report).map_err(Error::failed)?),
        Output::Text => output::line(folder.join("report.html").display().to_string()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares two reports. Exit code 1 where one is worse by more than the limit.
pub fn compare(config: &Config, files: &[String]) -> Result<ExitCode, Error> {
    let [before, after] = files else { return Err(Error::usage("`bench compare` takes two files")) };
    let (before, after) = (report::read(Path::new(before))?, report::read(Path::new(after))?);
    let rows = report::compare(&before, &after);
    if rows.is_empty() {
        return Err(Error::failed("the reports have no server, load and metric in common"));
    }
    match config.output {
        Output::Json => output::line(serde_json::to_string_pretty(&rows).map_err(Error::failed)?),
        Output::Text => rows.iter().for_each(|row| output::line(row.row())),
    }
    let Some(limit) = config.report.fail_over_percent else { return Ok(ExitCode::SUCCESS) };
    let worse: Vec<_> = rows.iter().filter(|row| row.worse_percent > limit).collect();
    for row in &worse {
        output::note(format!("worse by more than {limit} %: {}", row.row()));
    }
    Ok(ExitCode::from(u8::from(!worse.is_empty())))
}
