//! `omnibus replay`: recorded requests, against a running server or one of its own.

use std::path::Path;
use std::process::ExitCode;

use crate::completion_output::runtime;
use crate::error::Error;
use crate::launch::server::OwnServer;
use crate::output;
use crate::replay::{Outcome, Server, json, play, read, table};
use crate::server_client::ServerClient;
use crate::settings::{ClientSettings, Config, Output};

/// Plays the records of a folder, and prints how the answers compare. Exit code 1 when one differs.
pub fn run(config: &Config, arguments: &[String]) -> Result<ExitCode, Error> {
    let [folder] = arguments else {
        return Err(Error::usage("missing folder: give the one that `omnibus serve --record DIR` wrote"));
    };
    if config.client.url.is_some() && config.model.is_some() {
        return Err(Error::usage("--url and -m exclude each other: a running server has its models"));
    }
    let records = read(Path::new(folder))?;
    let own = match &config.client.url {
        Some(_) => None,
        None => Some(OwnServer::start(config.model.as_deref(), config.client.key.as_deref())?),
    };
    let url = own.as_ref().map(|server| server.url.clone()).or(config.client.url.clone());
    let settings = ClientSettings { url, key: config.client.key.clone() };
    let played = runtime()?.block_on(async {
        let client = ServerClient::new(&settings)?;
        let models = client.models().await.map_err(Error::failed)?;
        let models = models.into_iter().map(|model| model.id).collect();
        let server = Server { origin: client.origin().to_owned(), key: settings.key.clone(), models };
        play(&records, &server, config.replay).await
    })?;
    match config.output {
        Output::Json => output::line(json(&records, &played).to_string()),
        Output::Text => table(&records, &played).iter().for_each(output::line),
    }
    let differ = played.iter().filter(|played| matches!(played.outcome, Outcome::Differs(_))).count();
    if differ > 0 {
        output::note(format!("{differ} of {} answers differ", played.len()));
    }
    Ok(ExitCode::from(u8::from(differ > 0)))
}
