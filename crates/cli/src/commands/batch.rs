//! `omnibus batch`: answers a file of requests, with a running server or one of its own.

use std::process::ExitCode;

use serde_json::json;

use crate::batch::{self, Input, Results, Server, Summary};
use crate::completion_output::runtime;
use crate::error::Error;
use crate::launch::server::OwnServer;
use crate::server_client::ServerClient;
use crate::settings::{Config, Output};
use crate::{output, progress};

/// Answers the requests that have no results yet.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let (Some(input), Some(results)) = (&config.batch.input, &config.batch.output) else {
        return Err(Error::usage("give the file of requests by -i and that of results by -o"));
    };
    let input = Input::open(input)?;
    let mut results = Results::open(results)?;
    let key = config.client.key.clone();
    let (_own, origin) = match &config.client.url {
        Some(_) if config.model.is_some() => {
            return Err(Error::usage("-m is for a server of its own, and --url for a running one"));
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
    let summary = runtime()?.block_on(batch::run(&server, &input, &mut results, width, &mut progress));
    progress.finish();
    let summary = summary?;
    print(&summary, config.output);
    Ok(if summary.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(summary: &Summary, format: Output) {
    let Summary { lines, found, succeeded, failed, prompt_tokens, cached_tokens, completion_tokens, seconds } =
        *summary;
    let rate = completion_tokens as f64 / seconds.max(1e-9);
    match format {
        Output::Json => output::line(
            json!({
                "lines": lines, "found": found, "succeeded": succeeded, "failed": failed,
                "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens,
                "completion_tokens": completion_tokens, "seconds": seconds, "completion_tokens_per_s": rate,
            })
            .to_string(),
        ),
        Output::Text => output::note(format!(
            "{succeeded} of {lines} lines answered, {failed} failed, {found} were there; {prompt_tokens} tokens of prompts \
             ({cached_tokens} cached), {completion_tokens} generated, {rate:.0} a second"
        )),
    }
}
