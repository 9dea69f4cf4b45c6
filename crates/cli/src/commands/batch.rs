//! `omnibus batch`: answers a file of requests, with a running server or one of its own.

use std::process::ExitCode;

use omnibus_batches::Usage;
use serde_json::json;

use crate::batch::{self, Server, Summary};
use crate::completion_output::runtime;
use crate::error::Error;
use crate::launch::server::OwnServer;
use crate::server_client::ServerClient;
use crate::settings::{ClientSettings, Config, Output};
use crate::{output, progress};

/// Answers the requests that have no results yet.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let (Some(input), Some(results)) = (&config.batch.input, &config.batch.output) else {
        return Err(Error::usage("give the file of requests by -i and that of results by -o"));
    };
    let input = batch::input(input)?;
    let mut journal = batch::journal(results)?;
    let key = config.client.key.clone();
    let (_own, origin) = match &config.client.url {
        Some(_) if config.model.is_some() => {
            return Err(Error::usage("a model is for a server of its own, and --url for a running one"));
        }
        Some(_) => (None, ServerClient::new(&config.client)?.origin().to_owned()),
        None => {
            let server = OwnServer::start(config.model.as_deref(), key.as_deref())?;
            let origin = server.url.clone();
            (Some(server), origin)
        }
    };
    let server = Server::new(&origin, key)?;
    let mut progress = progress::items("answered");
    let width = config.batch.max_inflight;
    let runtime = runtime()?;
    let summary = runtime.block_on(batch::run(&server, &input, &mut journal, width, &mut progress));
    progress.finish();
    let summary = summary?;
    let client = ServerClient::new(&ClientSettings { url: Some(origin), key: config.client.key.clone() })?;
    // Another program's server does not say it.
    let peak = runtime.block_on(client.peak_memory_bytes()).ok();
    print(&summary, peak, config.output);
    Ok(if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(summary: &Summary, peak_bytes: Option<u64>, format: Output) {
    let Summary { lines, found, found_failed, succeeded, failed, usage, seconds } = *summary;
    let Usage { input_tokens: prompt_tokens, cached_tokens, output_tokens: completion_tokens, .. } = usage;
    let rate = completion_tokens as f64 / seconds.max(1e-9);
    match format {
        Output::Json => output::line(
            json!({
                "lines": lines, "found": found, "found_failed": found_failed, "succeeded": succeeded, "failed": failed,
                "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens,
                "completion_tokens": completion_tokens, "cached_share": share(cached_tokens, prompt_tokens),
                "seconds": seconds, "completion_tokens_per_s": rate, "peak_memory_bytes": peak_bytes,
            })
            .to_string(),
        ),
        Output::Text => output::note(format!(
            "{succeeded} of {lines} lines answered, {failed} failed, {found} were there{}; {prompt_tokens} tokens of prompts \
             ({:.0}% cached), {completion_tokens} generated, {rate:.0} a second{}",
            match found_failed {
                0 => String::new(),
                count => format!(", {count} of them failed: what is removed from the results runs again"),
            },
            100.0 * share(cached_tokens, prompt_tokens),
            peak_bytes.map(|bytes| format!("; peak memory {:.2} GB", bytes as f64 / 1e9)).unwrap_or_default()
        )),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
